"""Files with right structure and strange contents, by the thousand: does everything that reads them, in this
process and by whole commands, take them or refuse them in words, within seconds and a bounded memory, and
write nothing elsewhere?

A file is a sound one that was changed in up to four places: values of other kinds, keys left out, doubled and
nested, lengths and places that lie, spans cut, doubled and overwritten, flipped bits. What has a seal is in
part sealed again. A case is FILES files that follow from its seed.
"""

import contextlib
import io
import json
import os
import random
import re
import resource
import selectors
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.faults import CFG, ROOT, SOUND, TRAIN, Mutant, copied, everything, new_folder, said, without
from benchmarks.faults.flipped import GOLDEN
from benchmarks.faults.sealed import changed
from peref import data, huggingface, records, runs, vocabulary
from peref.cli import compare, trace
from peref.cli.sweep import sheet_of, sweep_of
from peref.errors import PerefError
from peref.evaluate import model_of
from peref.golden.judge import matrix, process, selection, tables
from peref.golden.spec import checksums, files
from peref.golden.spec.book import Book
from peref.parameters import init
from peref.porting import config_of, load, pair_of, unload
from peref.porting.files import published
from peref.recipe import Recipe
from peref.store import tensor_file
from peref.trace_diff.first import first_difference, said_of_trace

COUNT, FILES = 400, 50
SECONDS, ROOM = 5, 1 << 30  # of CPU, and bytes of memory that reading a file may take
STEP = 8  # where the run stands
PUBLIC = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 8},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}
OTHERS: tuple[dict[str, Any], ...] = (
    {"model_type": "qwen3", "head_dim": 4, "rope_scaling": YARN | {"original_max_position_embeddings": 8}},
    {"model_type": "gemma2", "sliding_window": 8, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 3.0},
    {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "rope_scaling": None},
    {"model_type": "qwen3_moe", "num_experts": 4, "mlp_only_layers": [0], "decoder_sparse_step": 1},
    {"model_type": "llama4_text", "no_rope_layer_interval": 2, "attention_chunk_size": 8, "moe_layers": [1]}
    | {"interleave_moe_layer_step": 2, "floor_scale": 8, "attn_scale": 0.5, "rope_scaling": None},
    {"model_type": "granite", "logits_scaling": 2.0, "attention_multiplier": 0.5, "rope_scaling": None},
    {"model_type": "mpt", "d_model": 8, "n_layers": 2, "n_heads": 2, "attn_config": {"alibi": True}}
    | {"expansion_ratio": 4, "no_bias": True, "rope_scaling": None},
    {"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 0]}},
    {"model_type": "gpt_neox", "rotary_pct": 0.5, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"model_type": "bloom", "n_head": 2, "n_layer": 2, "rope_scaling": None},
    {"model_type": "t5", "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    | {"is_encoder_decoder": True, "rope_scaling": None},
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {"id": 0, "content": "<s>", "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
    ],
    "normalizer": None,
    "pre_tokenizer": BYTES,
    "post_processor": None,
    "decoder": BYTES,
    "model": {"type": "BPE", "vocab": {"<s>": 0, "t": 1, "h": 2, "e": 3, "th": 4, "the": 5}}
    | {"merges": ["t h", "th e"], "unk_token": "<s>"},
}
SWEEP = """data = "text.txt"
to = 32
bytes = 64
width = 16
heads = 2
layers = 1
batch = 2
len = [8, 16]
steps = 4
valid-bytes = 64

[[grid]]
pe = ["rope", "alibi+none"]
seed = [0, 1]

[[grid]]
pe = "rope"
set = "base=100.0"
[[grid.then]]
pe = "pi"
set = "factor=2"
"""
COMPARISON = {
    **{"L": 4, "lengths": [2, 4, 8], "bytes": 16, "text": "text.txt", "protocol": "side by side", "cut": "2"},
    **{"corpus": "0", "seeds": [0], "recipe": {"steps": 4, "batch": 2}, "environment": {"backend": "numpy"}},
    "entries": [
        {"label": name, "seed": 0, "run": name, "memory": {"token": 8.0, "state": 0.0}}
        | {"cells": {n: [1.5, 2.5, 1.0, 3.0, worse, 2.0, 1.0, 0.5] for n in ("2", "4", "8")}}
        | {"cut": [1.0, 2.0, 1.5, 2.5, 1.0, 3.0, 2.0, 1.0]}
        for name, worse in (("rope", 1.0), ("alibi", 2.0))
    ],
}
SHARES = {"exact": 0.5, "low": 0.2, "high": 0.8, "tokens_right": 0.7, "right": "01"}
ANSWERED = {
    **{"L": 2, "lengths": [2, 4], "task": "reverse", "words": "reverse it", "samples": 2, "corpus": "0"},
    **{"seeds": [0], "recipe": {"steps": 4, "batch": 2, "rate": 1e-3}, "environment": {"backend": "numpy"}},
    "entries": [
        {
            "label": name,
            "seed": 0,
            "run": name,
            "memory": {"token": 8.0, "state": 0.0},
            "rows": [SHARES | {"length": n} for n in (2, 4)],
        }
        | {"effective": {"length": None, "at_least": False}, "config": {"layers": 1, "C": 16, "H": 2}}
        for name in ("rope", "alibi")
    ],
}
XFAIL = f"""{GOLDEN}.*:expected.* # known
sincos_2d.formula/table.basic:table # why

# a comment
"""
VECTORS = ("inputs.safetensors", "expected.safetensors")
ANSWER = {"status": "ok", "seq": 1, "reason": "", "message": "no", "raised": "ValueError"}
WORDS = (b"\0", b"\xff\xfe", b"..", b"/", b"9" * 400, b"1e999", b"NaN", b"-", b"[" * 3000, b'{"a":1,"a":2}')
WORDS += (b"\n", b'"', b"\\ud800", b"\xe2\x80\xae", b"null", b"true", b"-1", b"[[", b"=", b"0.5", b"\x1b[2J")
UNPACKED = "lambda path: {'': os.system(f'tar xf {path} 2>/dev/null')} and {}"
MUTANTS: dict[str, Mutant] = {
    "an archive is unpacked where one stands": ("peref.golden.spec.checksums.unpacked", UNPACKED),
    "no kinds of records": ("peref.records.misfit", "lambda x, schema: ''"),
    "what is unreadable is not minded": ("peref.store.UNREADABLE", "()"),
    "any JSON": ("peref.golden.spec.book.strict_json", "lambda text, where: store.json.loads(text)"),
    "any number of layers": ("peref.huggingface.MOST", "10**40"),
    "any width of a head": ("peref.huggingface.WIDEST", "10**40"),
    "a panic is no damage": ("peref.vocabulary.damaged", "lambda words: contextlib.nullcontext()"),
    "no kinds in a sweep": ("peref.cli.sweep.fitting", "lambda key, value, kind: value"),
}


class Case(NamedTuple):
    """So many files for a reader, in process or by a whole command."""

    reader: str
    whole: bool
    seed: int
    files: int


class TooLong(BaseException):
    """Nothing is to catch it."""


# ---------------------------------------------------------------- sound files


@cache
def sound() -> Path:
    """A folder with a sound file of every kind."""
    top = new_folder() / "in"
    copied(STEP, top).folder.rename(top / "run")
    (top / "runs").rmdir()
    golden = top / "golden"
    shutil.copytree(ROOT / "golden" / "core" / GOLDEN, golden / GOLDEN)
    shutil.copy(ROOT / "golden" / "SPEC_VERSION", golden)
    checksums.pack(checksums.to_archive(golden), top / "golden.tar")
    (top / "public").mkdir()
    (top / "public" / "config.json").write_text(json.dumps(PUBLIC))
    tensors = unload(init(config_of(PUBLIC), 0), config_of(PUBLIC))
    (top / "public" / "model.safetensors").write_bytes(b"".join(tensor_file(tensors, {"format": "pt"})))
    (top / "public" / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (top / "answer.json").write_text(json.dumps(ANSWER))
    (top / "SWEEP.toml").write_text(SWEEP)
    (top / "comparison.json").write_text(json.dumps(COMPARISON))
    (top / "answered.json").write_text(json.dumps(ANSWERED))
    (top / "place.json").write_text(json.dumps({"positions": [*range(7)], "seg": [[1] * 4 + [2] * 3]}))
    (top / "tokens.txt").write_text("1, 2 3 200 0 9 7")
    (top / "xfail.txt").write_text(XFAIL)
    shutil.copy(golden / GOLDEN / VECTORS[1], top / "theirs.safetensors")
    report = ["--golden", golden, "--report", f"json:{top / 'report.json'}"]
    assert said("check", top / "theirs.safetensors", *report)[0] == 0
    traced = ["--prompt", "the cat", "-o", top / "trace.safetensors"]
    assert said("trace", top / "run", *traced)[0] == 0
    (top / "trace.json").unlink()
    shutil.copy(top / "trace.safetensors", top / "other.safetensors")
    return top


@cache
def sound_file(name: str) -> bytes:
    return (sound() / name).read_bytes()


# ---------------------------------------------------------------- readers: what is read, and how


def read_run(path: Path) -> None:
    run = runs.open_run(path.parent)
    model_of(run)
    Recipe.from_json(run.record["recipe"])
    _ = run.identity, run.cycle, run.finished, run.task


def read_lines(path: Path) -> None:
    records.Lines(path).last()
    records.Lines(path).read()


def read_book(path: Path) -> None:
    """Words and tensors, whatever their digests."""
    found = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    index = [line for name in VECTORS for line in index_of(found[name], name)]
    found["index.txt"] = "".join(f"{line}\n" for line in index).encode()
    data = {f"{GOLDEN}/{name}": part for name, part in found.items()}
    folder = path.parents[1]
    _ = Book(folder, data=data | {"SPEC_VERSION": (folder / "SPEC_VERSION").read_bytes()}).entries


@lru_cache(2)
def index_of(file: bytes, name: str) -> list[str]:
    files.tensors(file, name)
    return files.index_of(file, name)


def read_config(path: Path) -> None:
    """Each reader by itself: one may refuse what another takes."""
    public = huggingface.load_json(path)
    for reader in (huggingface.read, config_of, pair_of):
        with contextlib.suppress(PerefError):
            reader(public)


def read_published(path: Path) -> None:
    found = published(path.parent)
    load(found.tensors, config_of(PUBLIC), "llama")


def read_tokenizer(path: Path) -> None:
    run: Any = SimpleNamespace(public=lambda name: path.read_bytes(), folder=path.parent)
    known = vocabulary.vocabulary_of(run, 6)
    known.text(known.tokens(b"the th\xc3\xa9 e"))


def read_answer(path: Path) -> None:
    """As if a runner had said it, with a file of tensors beside."""
    with process.lent_folder() as lent:
        asked = process.Respondent(["x"], lent, 1.0, {}, False)
        asked.child = SimpleNamespace(stdin=io.BytesIO(), stdout=None, returncode=0, poll=lambda: 0)
        asked.pipes, asked.line = selectors.PollSelector(), path.read_bytes() + b"\n"
        with mock.patch.object(asked, "close", str):
            asked.exchange({"id": "x", "expected": ["y"]}, {}, {}, b"")


def read_text(path: Path) -> None:
    data.check_length(data.corpus(str(path)), 8)


def read_sweep(path: Path) -> None:
    sweep_of(sheet_of(SimpleNamespace(file=str(path), runs=str(path.parent / "runs"))))


def read_reports(path: Path) -> None:
    found = matrix.read_reports([path])
    tables.markdown(found), tables.matrix_page(found), matrix.matrix_data(found)


def read_expected(path: Path) -> None:
    """Against the golden files beside it alone, which are soon read."""
    beside = SimpleNamespace(folder=lambda name: path.parent / name)
    with mock.patch("peref.golden.judge.selection.share", beside):
        selection.expected_failures(path, Book(path.parent / "golden"))


def read_trace(path: Path) -> None:
    if words := said_of_trace(path):
        first_difference(path, path.with_name("other.safetensors"), words)


Reader = tuple[str, tuple[str, ...], Callable[[Path], Any], list[Any] | None]
# form and paths of the files, reader, command on a path
READERS: dict[str, Reader] = {
    "checkpoint": (
        "tensors",
        (f"run/ckpt/{STEP:08d}.safetensors",),
        lambda path: runs.Run(path.parents[1]).checkpoint(STEP),
        ["eval", "in/run", "--len", 8, "--bytes", 50, "--backend", "numpy"],
    ),
    "run.json": (
        "sealed",
        ("run/run.json",),
        read_run,
        ["generate", "in/run", "--tokens", 2, "--backend", "numpy"],
    ),
    "metrics": (
        "lines",
        ("run/metrics.jsonl",),
        read_lines,
        ["train", "--resume", "in/run", "--backend", "numpy"],
    ),
    "manifest": (
        "lines",
        (f"golden/{GOLDEN}/SHA256SUMS",),
        lambda path: checksums.in_folder(path.parents[1]),
        ["golden", "verify", "in/golden"],
    ),
    "cases": ("json", (f"golden/{GOLDEN}/cases.json",), read_book, ["golden", "verify", "in/golden"]),
    "vectors": (
        "tensors",
        tuple(f"golden/{GOLDEN}/{name}" for name in VECTORS),
        read_book,
        ["golden", "verify", "in/golden"],
    ),
    "archive": ("bytes", ("golden.tar",), checksums.archived, ["golden", "verify", "in/golden.tar"]),
    "config.json": ("config", ("public/config.json",), read_config, ["show", "--config", "PATH"]),
    "safetensors": ("tensors", ("public/model.safetensors",), read_published, ["import", "in/public"]),
    "tokenizer": ("json", ("public/tokenizer.json",), read_tokenizer, ["import", "in/public"]),
    "answers": ("json", ("answer.json",), read_answer, None),
    "texts": (
        "bytes",
        ("text.txt",),
        read_text,
        [*TRAIN.split(), "--steps", 1, "--backend", "numpy", "--data", "PATH"],
    ),
    "sweeps": ("toml", ("SWEEP.toml",), read_sweep, ["sweep", "PATH", "--dry-run"]),
    "reports": ("json", ("report.json",), read_reports, ["matrix", "PATH"]),
    "traces": ("trace", ("trace.safetensors",), read_trace, ["diff", "PATH", "in/other.safetensors"]),
    "comparisons": (
        "json",
        ("comparison.json", "answered.json"),
        compare.read,
        ["compare", "--again", "PATH"],
    ),
    "places": (
        "json",
        ("place.json",),
        lambda path: trace.placed(CFG, 7, str(path)),
        ["trace", "in/run", "--prompt", "the cat", "-o", "runs/x.safetensors", "--place", "PATH"],
    ),
    "tokens": (
        "bytes",
        ("tokens.txt",),
        lambda path: trace.numbers(str(path)),
        ["trace", "in/run", "--tokens", "PATH", "-o", "runs/x.safetensors"],
    ),
    "xfail": (
        "lines",
        ("xfail.txt",),
        read_expected,
        ["check", "in/theirs.safetensors", "--golden", "in/golden", "--xfail", "PATH"],
    ),
    "candidates": (
        "tensors",
        ("public/model.safetensors",),
        files.read_tensors,
        ["diff", "PATH", "in/public/model.safetensors"],
    ),
}
WHOLE = [name for name, (*_, command) in READERS.items() if command]


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every reader as often, in process and then one file for a whole command."""
    kinds = [(list(READERS), False, FILES), (WHOLE, True, 1)]
    return [
        Case(names[n % len(names)], whole, draw.randrange(10**9), many)
        for n in range(count)
        for names, whole, many in kinds
    ]


# ---------------------------------------------------------------- strange files


def spoiled(data: bytes, form: str, draw: random.Random) -> bytes:
    """A sound file, changed in a few places."""
    for _ in range(draw.choice([1, 1, 2, 4])):
        how = spoil_bytes if draw.random() < 0.3 else FORMS[form]
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            data = how(data, draw)  # what was changed before may fit no more
    return data


def spoil_bytes(data: bytes, draw: random.Random) -> bytes:
    at, end = sorted(draw.randrange(len(data) + 1) for _ in "ab")
    end = min(end, at + draw.choice([1, 8, 100, 10**6]))
    match draw.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:end] + data[at:end] + data[end:]
        case 3:
            return data[:at] + draw.choice(WORDS) + data[at:]
        case 4:
            word = draw.choice(WORDS)
            return data[:at] + word + data[at + len(word) :]
    return data[:at]


def spoil_json(data: bytes, draw: random.Random) -> bytes:
    tree = json.loads(data)
    changed(tree, draw)
    text = json.dumps(tree)
    if draw.random() < 0.1:
        text = re.sub(r'("[a-z_]+"): ', r"\1: 0, \1: ", text, count=1)
    return text.encode()


def spoil_sealed(data: bytes, draw: random.Random) -> bytes:
    record = json.loads(data)
    record.pop("sha256", None)
    changed(record, draw)
    return records.sealed(record).encode()


def spoil_config(data: bytes, draw: random.Random) -> bytes:
    """Perhaps of another family, or of a size that would take all memory."""
    other = PUBLIC | draw.choice(OTHERS) if draw.random() < 0.5 else json.loads(data)
    if draw.random() < 0.1:
        other[draw.choice([name for name, value in other.items() if type(value) is int])] = 10**10
    return spoil_json(json.dumps(other).encode(), draw)


def spoil_tensors(data: bytes, draw: random.Random) -> bytes:
    """The header, its length and what it says of tensors."""
    length = int.from_bytes(data[:8], "little")
    header, payload = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    name, other = draw.choice(names), draw.choice(names)
    match draw.randrange(8):
        case 0:
            changed(header, draw)
        case 1:
            header[name]["dtype"] = draw.choice(["F64", "F16", "BF16", "U8", "I64", "BOOL", "F8_E4M3", ""])
        case 2:
            header[name]["shape"].append(draw.choice([0, 1, 2, -1, 2**32, 2**63, 2**64, 1.5]))
        case 3:
            header[name]["data_offsets"][draw.randrange(2)] += draw.choice([1, -1, 4, 2**63, -(2**31)])
        case 4:
            header[name], header[other] = header[other], header[name]
        case 5:
            header[draw.choice(["../x", "/x", "", "x" * 9999, "\0", "a\nb", "é"])] = header.pop(name)
        case 6:
            del header[name]
        case _:
            length = draw.choice([0, 1, 2**31, 2**63, 2**64 - 1, length + 1, length - 1])
            return length.to_bytes(8, "little") + data[8:]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def spoil_lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, draw.choice(lines))
        case 2:
            lines[at] = spoil_bytes(lines[at], draw)
        case _:
            lines[at] = spoil_json(lines[at], draw) + b"\n"
    return b"".join(lines)


def spoil_toml(data: bytes, draw: random.Random) -> bytes:
    """Another value, or another key."""
    lines = data.decode().splitlines()
    at = draw.randrange(len(lines))
    key, equals, _ = lines[at].partition(" = ")
    values = ["[]", '""', "-1", "0", "1e30", "nan", "true", '["rope", 1]', "[[1]]", '"x=y"', "1979-05-27"]
    values += ["{}", '"rope,alibi"', '"./x.py"', "99999999999999999999", '"../../x"', "[1, 2]"]
    keys = ["len", "set", "positions", "data", "window", "dtype", "batch", "x", "grid", "then", "rate"]
    word = draw.choice(keys) if draw.random() < 0.3 else key
    lines[at] = f"{word} = {draw.choice(values)}" if equals else draw.choice(["[grid]", "[[then]]", "[x", ""])
    return "\n".join(lines).encode()


def spoil_trace(data: bytes, draw: random.Random) -> bytes:
    """What it says of itself, or as spoil_tensors."""
    if draw.random() < 0.3:
        return spoil_tensors(data, draw)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    note = json.loads(header["__metadata__"]["peref"])
    changed(note["meta"], draw)
    header["__metadata__"]["peref"] = json.dumps(note)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


FORMS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": spoil_bytes,
    "json": spoil_json,
    "sealed": spoil_sealed,
    "config": spoil_config,
    "tensors": spoil_tensors,
    "trace": spoil_trace,
    "lines": spoil_lines,
    "toml": spoil_toml,
}


# ---------------------------------------------------------------- and what becomes of them


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Inside, memory is bounded, and Python that computes too long is interrupted."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, before[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, handler)


def late(number: int, frame: Any) -> None:
    raise TooLong(f"not done after {SECONDS} s of CPU")


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is wrong with the first file that something is wrong with."""
    for part in ("cwd", "beside"):
        (folder / part).mkdir()
    shutil.copytree(sound(), folder / "in")
    form, names, reader, command = READERS[case.reader]
    before, here = everything(folder), os.getcwd()
    os.chdir(folder / "cwd" if not case.whole else folder)
    try:
        with without(mutant), bounded():
            for n in range(case.files):
                draw = random.Random(case.seed * 1000 + n)
                name = draw.choice(names)
                path = folder / "in" / name
                path.write_bytes(spoiled(sound_file(name), form, draw))
                if case.whole and path.parent.name == GOLDEN and path.name != checksums.SUMS:
                    listed = {one: (path.parent / one).read_bytes() for one in checksums.FILES}
                    (path.parent / checksums.SUMS).write_bytes(checksums.sha256sums(listed))
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                words = by_command(command or [], path) if case.whole else in_process(reader, path)
                if words:
                    return f"file {n}: {words}"
                path.write_bytes(sound_file(name))
    finally:
        os.chdir(here)
    inside = lambda found: {name for name in found if not (case.whole and name.startswith(("in/", "runs")))}
    elsewhere = inside(everything(folder)) ^ inside(before)
    return f"written elsewhere: {sorted(elsewhere)[:3]}" if elsewhere else ""


def in_process(reader: Callable[[Path], Any], path: Path) -> str:
    """What is no answer."""
    try:
        reader(path)
    except PerefError as error:
        return "" if str(error) else "an error without a word"
    except TooLong as error:
        return str(error)
    except BaseException as error:  # the exceptions of Rust are no Exception
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def by_command(command: list[Any], path: Path) -> str:
    code, err = said(*(path if word == "PATH" else word for word in command))
    if "internal error" in err or "Traceback" in err or "TooLong" in err or "enough memory" in err:
        return err[-300:]
    return "" if code in (0, 1, 2, 3) else f"exit code {code}: {err[-300:]}"


def size(case: Case) -> int:
    return case.files


def part(case: Case) -> str:
    return "whole commands" if case.whole else case.reader
