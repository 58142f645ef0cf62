"""Published models as runs: read, evaluated, trained on, written back; a bad folder is told in one line."""

import errno
import hashlib
import json
import math
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from check import same, same_numbers
from golden_files import cli, dumped
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from peref import model
from peref.cli.generate import first_token
from peref.config import Config
from peref.errors import Damaged, Misuse
from peref.evaluate import under, weights_of
from peref.imported import export_run, import_run
from peref.parameters import init
from peref.porting import config_of, load, unload
from peref.porting.files import mapped, published
from peref.records import sealed
from peref.runs import open_run
from peref.store import BFLOAT16, save, to_bfloat16
from peref.vocabulary import Vocabulary, damaged, vocabulary_of

V, TEXT = 290, "Position enters a transformer; größer is longer. " * 40
LLAMA = {
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def tokenizer_json():
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=V, initial_alphabet=letters))
    return found.to_str()


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A tiny model in two shards of bfloat16 with an index; the folder around it is the current one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "theirs"
    folder.mkdir()
    tensors = unload(init(config_of(LLAMA), 3), config_of(LLAMA))
    names, where = sorted(tensors), {}
    for n, shard in enumerate(SHARDS):
        part = names[n::2]
        dumped(folder / shard, {name: ("BF16", to_bfloat16(tensors[name])["bfloat16"]) for name in part})
        where |= dict.fromkeys(part, shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (tmp_path / "text.txt").write_text(TEXT)
    return folder


def test_bfloat16_is_read_exactly_and_written_to_nearest():
    """Every bit pattern that is finite comes back; ties go to the even one."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits >> 7) & 0xFF != 0xFF]
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    same(to_bfloat16(wide)["bfloat16"], bits, 0)
    one, step = np.float32(1), np.float32(2**-8)
    found = to_bfloat16(np.array([one + step, one + 3 * step, one + step * 1.01], np.float32))["bfloat16"]
    assert [hex(n) for n in found] == ["0x3f80", "0x3f82", "0x3f81"]


def test_nan_is_nan_in_bfloat16():
    """Where rounding up would carry into the sign, and where rounding down would leave infinity."""
    wide = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    bits = to_bfloat16(wide)["bfloat16"]
    assert np.isnan((bits.astype(np.uint32) << 16).view(np.float32)).all()


def test_a_published_model_is_a_run(theirs, capsys):
    """From the command to the logits: the numbers of the shards, in float32."""
    code, said = cli(capsys, "import", "theirs", "-o", "mine")
    assert code == 0
    assert "llama, 4 files" in said
    run = open_run("mine")
    cfg, params, step = weights_of(run)
    wanted = load(published(theirs).tensors, config_of(LLAMA))
    assert (cfg, step, run.finished) == (config_of(LLAMA), 0, True)
    assert {name: a.dtype.name for name, a in params.items()} == dict.fromkeys(wanted, "float32")
    for name, a in wanted.items():
        same(params[name], a, 0)
    tokens = np.arange(5)[None]
    same(model.logits(cfg, params, tokens), model.logits(cfg, wanted, tokens), 0)
    assert cli(capsys, "import", "theirs", "-o", "mine")[0] == 2
    for line in (["eval", "theirs", "--data", "text.txt"], ["trace", "theirs", "--prompt", "a"]):
        code, said = cli(capsys, *line, *(["-o", "r.safetensors"] if line[0] == "trace" else []))
        assert code == 2
        assert "import theirs` makes one of this published model" in said
    assert cli(capsys, "import", "theirs")[0] == 0
    assert "llama-L16" in cli(capsys, "runs")[1]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_one_file_in_another_dtype(dtype, tmp_path):
    """Its numbers, to the last bit, in float32."""
    tensors = {
        name: a.astype(dtype) for name, a in unload(init(config_of(LLAMA), 3), config_of(LLAMA)).items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA | {"model_type": "mistral", "sliding_window": None})
    )
    run = import_run(tmp_path, tmp_path, [], name="mine")
    assert (run.record["imported"]["model_type"], run.record["imported"]["model"]) == ("mistral", "llama")
    _, params, _ = weights_of(run)
    for name, a in unload(params, config_of(LLAMA)).items():
        same(a, tensors[name].astype(np.float32), 0)


def test_tensors_are_mapped(theirs):
    """Nothing is read before it is used: each tensor lies in the file, and is read-only."""
    a = mapped(theirs / SHARDS[0])["model.embed_tokens.weight"]
    assert a.dtype == BFLOAT16
    assert not a.flags.writeable
    base = a
    while not isinstance(base, np.memmap) or isinstance(base.base, np.memmap):
        base = base.base
    assert str(base.filename) == str(theirs / SHARDS[0])


@pytest.mark.parametrize("published_as", ["BF16", "F32"])
def test_each_tensor_is_copied_once(tmp_path, published_as):
    """While a model is read, nothing is held but the file, which is mapped, and one copy of each weight."""
    cfg = config_of(LLAMA | {"hidden_size": 128, "intermediate_size": 256})
    tensors = unload(init(cfg, 3), cfg)
    if published_as == "BF16":
        tensors = {name: to_bfloat16(a)["bfloat16"] for name, a in tensors.items()}
    dumped(tmp_path / "model.safetensors", {name: (published_as, a) for name, a in tensors.items()})
    found = mapped(tmp_path / "model.safetensors")
    tracemalloc.start()
    try:
        params = load(found, cfg, dtype=np.dtype("float32"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    kept = sum(a.nbytes for a in params.values())
    assert kept > 800_000
    assert peak < 1.1 * kept
    assert all(not np.shares_memory(a, b) for a in params.values() for b in found.values())


def test_it_is_evaluated_by_bytes_and_tokens(theirs, capsys):
    """bits/byte is the loss of all tokens over all bytes, whatever the encoding it is evaluated under."""
    cli(capsys, "import", "theirs", "-o", "mine")
    how = ["--data", "text.txt", "--len", "32", "--bytes", "150", "--threads", "1"]
    for more in ([], ["--pe", "yarn", "--set", "factor=2"]):
        code, said = cli(capsys, "eval", "mine", *how, "--json", *more)
        assert code == 0, said
        found, _ = json.JSONDecoder().raw_decode(said)
        row = found["rows"][-1]
        text = TEXT.encode()[-len(TEXT.encode()) // 10 :][:151]
        tokens = vocabulary_of(open_run("mine"), V).tokens(text.decode(errors="ignore").encode())
        same_numbers(row["bpb"], row["loss"] / np.log(2) * tokens.size / len(text), 1e-12)
        assert row["tokens"] == tokens.size - 1 < 150
        same_numbers(row["bits_per_token"], row["loss"] / np.log(2), 1e-12)
    said = cli(capsys, "eval", "mine", *how, "--pe", "yarn", "--set", "factor=2")[1]
    assert "bits/token  bits/byte" in said
    assert "bytes each, of its last tenth\n" in said
    assert "=none" not in said
    said = cli(capsys, "eval", "mine", "--data", "text.txt", "--len", "400")[1]
    assert "the last tenth of text.txt has" in said
    assert "say with --data" in cli(capsys, "eval", "mine")[1]


def test_another_encoding_of_unlike_layers_is_spelled_in_the_message():
    """What does not turn stays as it is."""
    cfg = Config(pe=(("rope", {"window": 3}), ("none", {}), ("rope", {})), layers=3, L=16, C=16, H=2)
    with pytest.raises(Misuse, match="give 3 names, such as yarn,none,yarn, so that each keeps its own"):
        under(cfg, "yarn", ("factor=4",))
    assert [name for name, _ in under(cfg, "yarn,none,yarn", ("factor=4",)).pe] == ["yarn", "none", "yarn"]


def test_it_generates_shows_and_trains_on(theirs, capsys):
    """Its tokens go along: prompts and texts are cut as the tokenizer cuts them."""
    cli(capsys, "import", "theirs", "-o", "mine")
    few = ["--tokens", "3", "--json", "--backend", "numpy"]  # which compiles nothing, and says nothing of it
    found = json.loads(cli(capsys, "generate", "mine", "--prompt", "größer", *few)[1])
    assert len(found["tokens"]) == 3
    assert max(found["tokens"]) < V
    assert cli(capsys, "show", "--run", "mine", "--prompt", "größer is", "-o", "a.png")[0] == 0
    more = ["--data", "text.txt", "--steps", "2", "--batch", "2", "--runs", "more", "--threads", "1"]
    code, said = cli(capsys, "train", "--from", "mine", *more)
    assert code == 0, said
    assert "bits/token" in said
    assert "yardsticks" not in said
    (made,) = [open_run(path) for path in (theirs.parent / "more").iterdir()]
    assert made.record["parent"]["run"].endswith("mine")
    code, said = cli(capsys, "train", "--resume", "mine")
    again = "mine was imported, not trained here; train on from it with: "
    assert (code, again in said, "train --from mine --data TEXT\n" in said) == (2, True, True), said
    known = vocabulary_of(made, V)
    assert known.text(known.tokens(TEXT.encode())) == TEXT
    assert cli(capsys, "eval", made.folder, "--len", "16", "--bytes", "60", "--threads", "1")[0] == 0


def test_it_trains_on_where_the_held_out_part_begins_inside_a_character(theirs, capsys):
    cli(capsys, "import", "theirs", "-o", "mine")
    (theirs.parent / "cut.txt").write_text("a" + "ö" * 505)
    line = ["--data", "cut.txt", "--steps", "1", "--batch", "2", "--runs", "more", "--backend", "numpy"]
    code, said = cli(capsys, "train", "--from", "mine", *line)
    assert code == 0, said


def test_few_tokens_without_a_text_are_trained_on(tmp_path, capsys, monkeypatch):
    """Numbers below the size of the vocabulary, which may be less than that of bytes; and are exported."""
    monkeypatch.chdir(tmp_path)
    cfg = config_of(LLAMA | {"vocab_size": 67})
    Path("theirs").mkdir()
    save_file(unload(init(cfg, 3), cfg), "theirs/model.safetensors")
    Path("theirs/config.json").write_text(json.dumps(LLAMA | {"vocab_size": 67}))
    Path("tokens.txt").write_text(" ".join(str(n % 67) for n in range(900)))
    cli(capsys, "import", "theirs", "-o", "mine")
    more = ["--data", "tokens.txt", "--steps", "2", "--batch", "2", "--runs", "more", "--backend", "numpy"]
    code, said = cli(capsys, "train", "--from", "mine", *more)
    assert code == 0, said
    assert "training has 808 tokens" in cli(capsys, "train", "--from", "mine", *more, "--len", "99")[1]
    (made,) = Path("more").iterdir()
    assert cli(capsys, "eval", made, "--len", "8", "--backend", "numpy")[0] == 0
    assert cli(capsys, "export", made, "-o", "back")[0] == 0
    Path("tokens.txt").write_text("7 67 " * 300)
    code, said = cli(capsys, "train", "--from", "mine", *more)
    assert (code, "67 is none of the 67 tokens" in said) == (2, True)


def test_export_writes_back_what_was_read(theirs, capsys):
    """In bfloat16 the same numbers under the same names, with config.json and tokenizer.json."""
    cli(capsys, "import", "theirs", "-o", "mine")
    assert cli(capsys, "export", "mine", "-o", "back", "--dtype", "bfloat16")[0] == 0
    before, after = published(theirs), published("back")
    assert before.config == after.config
    assert before.tensors.keys() == after.tensors.keys()
    for name, a in before.tensors.items():
        same(after.tensors[name]["bfloat16"], a["bfloat16"], 0)
    assert (theirs.parent / "back" / "tokenizer.json").read_text() == (theirs / "tokenizer.json").read_text()
    assert cli(capsys, "export", "mine", "-o", "wide")[0] == 0
    assert published("wide").config["torch_dtype"] == "float32"
    assert cli(capsys, "export", "mine", "-o", "wide")[0] == 2
    cli(capsys, "train", "--steps", "1", "--len", "8", "--width", "16", "--heads", "2", "--data", "text.txt")
    assert "was not imported" in cli(capsys, "export", next((theirs.parent / "runs").iterdir()), "-o", "b")[1]


@pytest.mark.parametrize(
    ("text", "said"), [(b"[", "config.json: not JSON"), (b"[]", "config.json: holds a list")]
)
def test_a_strange_config_with_its_own_digest_is_damage(theirs, capsys, text, said):
    """A run folder may be anybody's, and its digests too."""
    cli(capsys, "import", "theirs", "-o", "mine")
    run = open_run("mine")
    record, (arrays, meta) = run.record, run.checkpoint(0)
    (run.folder / "public" / "config.json").write_bytes(text)
    record["imported"]["files"]["config.json"] = hashlib.sha256(text).hexdigest()
    (run.folder / "run.json").write_text(sealed(record))
    save(run.folder / "ckpt" / "00000000.safetensors", arrays, meta | {"run": run.identity})
    code, words = cli(capsys, "export", "mine", "-o", "back")
    assert (code, said in words) == (1, True), words
    with pytest.raises(Damaged, match=said):
        first_token(run)


def test_without_a_tokenizer_there_are_numbers(theirs, capsys, undrawn):
    (theirs / "tokenizer.json").unlink()
    (theirs.parent / "tokens.txt").write_text(" ".join(map(str, range(V))))
    cli(capsys, "import", "theirs", "-o", "mine")
    how = ["eval", "mine", "--data", "tokens.txt", "--len", "8", "--threads", "1"]
    said = cli(capsys, *how)[1]
    text = (theirs.parent / "tokens.txt").read_text()
    whole = text[-(len(text) // 10) :].split()[1:-1]  # of the part held out, numbers that are not cut
    found, _ = json.JSONDecoder().raw_decode(cli(capsys, *how, "--json")[1])
    assert found["rows"][-1]["tokens"] == len(whole) - 1
    assert "bits/token" in said
    assert "bits/byte" not in said
    said = cli(capsys, "generate", "mine", "--prompt", "7 8", "--tokens", "2", "--json")[1]
    found, _ = json.JSONDecoder().raw_decode(said)  # behind it may stand that kernels are compiled
    assert found["text"].split() == [str(n) for n in found["tokens"]]
    assert "none of the 290 tokens" in cli(capsys, "generate", "mine", "--prompt", "7 290")[1]
    said = cli(capsys, "generate", "mine", "--prompt", "seven")[1]
    assert said.startswith("error: 'seven': expected numbers of tokens, 0 to 289 (no tokenizer.json here)")
    assert cli(capsys, "show", "--run", "mine", "-o", "a.svg")[0] == 0
    assert "as it was imported, with rope" in Path("a.svg").read_text()


def quantised(path):
    """The file with bytes in place of the numbers of its first tensor."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    first = next(iter(header.values()))
    first |= {"dtype": "F8_E4M3", "shape": [2 * math.prod(first["shape"])]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


WRONG = {  # what is done to the folder, and what is said
    "not a number": (
        lambda f: (f / SHARDS[1]).write_bytes((f / SHARDS[1]).read_bytes()[:-2] + b"\xc0\x7f"),
        "error: model.norm.weight is nan at [15]",
    ),
    "a missing shard": (lambda f: (f / SHARDS[1]).unlink(), f"{SHARDS[1]} is missing"),
    "a shard cut short": (
        lambda f: (f / SHARDS[0]).write_bytes((f / SHARDS[0]).read_bytes()[:-9]),
        "cut short",
    ),
    "a quantised tensor": (lambda f: quantised(f / SHARDS[0]), "F8_E4M3"),
    "pickled weights": (
        lambda f: [p.unlink() for p in f.glob("*safetensors*")] and (f / "a.bin").touch(),
        "pickled weights",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "a key that matters": (
        lambda f: (f / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": {"bits": 4}})),
        "the weights are quantised by a method that it does not name, to 4 bits; take it in",
    ),
    "more layers than tensors": (  # of which not one is made
        lambda f: (f / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 99_999})),
        "num_hidden_layers is 99999; expected the number of layers of a model, and 20 tensors came with ",
    ),
    "an unknown key": (
        lambda f: (f / "config.json").write_text(json.dumps(LLAMA | {"attention_twist": 2})),
        "attention_twist is 2",
    ),
    "a config of another model": (
        lambda f: (f / "config.json").write_text(json.dumps(LLAMA | {"hidden_size": 32})),
        "expected [",
    ),
    "a size that is left out": (
        lambda f: (f / "config.json").write_text(json.dumps(LLAMA | {"num_key_value_heads": None})),
        "k_proj.weight is [8, 16], expected [16, 16] for vocab_size 290, hidden_size 16, num_attention_heads "
        "4, num_key_value_heads 4 (left out), head_dim 4 (left out), intermediate_size 24, "
        "max_position_embeddings 16; write into",
    ),
    "an index that is no JSON": (
        lambda f: (f / "model.safetensors.index.json").write_text("{x"),
        "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); expected the "
        "index of the shards of a model",
    ),
    "a tokenizer that is none": (
        lambda f: (f / "tokenizer.json").write_bytes(b"\xffgarbage"),
        "theirs: its tokenizer.json cannot be read",
    ),
    "an index without a map": (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "weight_map"),
    "a tensor in no file": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"model.more.weight": SHARDS[0], "lm_head.weight": SHARDS[1]}})
        ),
        "which is in no file",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_one_line_and_leaves_nothing(theirs, capsys, what):
    spoil, wanted = WRONG[what]
    spoil(theirs)
    code, said = cli(capsys, "import", "theirs")
    assert code in (1, 2)
    assert wanted in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert not list((theirs.parent / "runs").glob("*")) if (theirs.parent / "runs").exists() else True


def test_what_does_not_fit_is_refused_before_it_is_read(theirs, capsys, monkeypatch):
    monkeypatch.setattr("peref.memory.free", lambda: 1000)
    assert "needs at least" in cli(capsys, "import", "theirs")[1]


def test_an_altered_tokenizer_is_not_believed(theirs, capsys, monkeypatch):
    cli(capsys, "import", "theirs", "-o", "mine")
    path = theirs.parent / "mine" / "public" / "tokenizer.json"
    path.write_text(path.read_text().replace("ü", "u") + " ")
    assert "not the file that was imported" in cli(capsys, "generate", "mine")[1]
    (theirs / "tokenizer.json").write_text("{}")
    with monkeypatch.context() as bare:  # import cannot know it without the library
        bare.setattr("peref.imported.find_spec", lambda name: None)
        assert cli(capsys, "import", "theirs", "-o", "other")[0] == 0
    assert "its tokenizer.json cannot be read" in cli(capsys, "generate", "other")[1]


def test_a_tokenizer_that_contradicts_itself_is_damaged():
    known = Vocabulary(2, Tokenizer(models.WordLevel({"a": 0}, unk_token="absent")))
    same(known.tokens(b"a"), np.array([0], np.int64), 0)
    with pytest.raises(Damaged, match=r"tokenizer.json cannot cut this text into tokens: .*copy it anew"):
        known.tokens(b"b")


def test_a_panic_of_their_library_is_told_as_damage():
    """Which is no Exception; what interrupts this process is no damage."""
    panic = type("PanicException", (BaseException,), {})  # as pyo3 makes it
    with pytest.raises(Damaged, match=r"^the file: out of bounds; copy it anew$"), damaged("the file"):
        raise panic("out of bounds")
    with pytest.raises(KeyboardInterrupt), damaged("nothing"):
        raise KeyboardInterrupt


def test_bytes_are_the_vocabulary_of_our_own_runs():
    known = Vocabulary(256)
    same(known.tokens("ä".encode()), np.array([195, 164], np.uint8), 0)
    assert known.text([195, 164, 255]) == "ä\N{REPLACEMENT CHARACTER}"
    assert (known.unit, Vocabulary(300).unit) == ("byte", "token")


def test_a_model_of_their_library_gives_their_loss(tmp_path):
    """Saved by transformers itself, in bfloat16 and sharded; exported, it loads without a missing key."""
    torch = pytest.importorskip("torch", reason="PyTorch and transformers are no dependencies of the tests")
    hf = pytest.importorskip("transformers", reason="transformers is no dependency of the tests")
    torch.manual_seed(0)
    sizes = {key: value for key, value in LLAMA.items() if key not in ("model_type", "torch_dtype")}
    net = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)).to(torch.bfloat16)
    net.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    run = import_run(tmp_path / "theirs", tmp_path, [], name="mine")
    cfg, params, _ = weights_of(run)
    tokens = np.arange(1, 16)[None]
    with torch.no_grad():
        same(model.logits(cfg, params, tokens), net.float()(torch.from_numpy(tokens)).logits.numpy(), 1e-5)
    for dtype in ("float32", "bfloat16"):
        folder = export_run(run, cfg, params, tmp_path / dtype, dtype)
        again, info = hf.LlamaForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        assert str(again.dtype) == f"torch.{dtype}"
        for name, a in net.state_dict().items():  # bfloat16 in both, which float32 holds
            same(again.state_dict()[name].float().numpy(), a.numpy(), 0)


def test_export_leaves_no_half_folder(theirs, capsys, monkeypatch):
    """A disk that is full is one line, and what a kill left is removed: the next call writes it."""
    cli(capsys, "import", "theirs", "-o", "mine")
    before = {path.name for path in theirs.parent.iterdir()}
    inner, wrote = os.write, []

    def write(fd, data):
        wrote.append(data)
        if len(wrote) > 3:  # who makes it, the config, the tokenizer
            raise OSError(errno.ENOSPC, "full")
        return inner(fd, data)

    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        code, said = cli(capsys, "export", "mine", "-o", "back")
    assert (code, said.count("\n")) == (1, 1)
    assert "model.safetensors: cannot write: full" in said
    assert {path.name for path in theirs.parent.iterdir()} == before
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    half = theirs.parent / f".tmp-{child.pid}-abcd" / "public"
    half.mkdir(parents=True)
    (half / "config.json").touch()
    assert cli(capsys, "export", "mine", "-o", "back")[0] == 0
    assert {path.name for path in theirs.parent.iterdir()} == before | {"back"}
    assert {path.name for path in (theirs.parent / "back").iterdir()} == {
        *("config.json", "tokenizer.json", "model.safetensors")
    }


def test_a_report_and_a_table_of_imported_runs(theirs, capsys, undrawn):
    """In bits/byte where there is a tokenizer, else in bits/token; what is in both is refused or told."""
    cli(capsys, "import", "theirs", "-o", "mine")
    (theirs / "tokenizer.json").unlink()
    cli(capsys, "import", "theirs", "-o", "bare")
    numbers = np.random.default_rng(0).integers(0, V, 900)
    (theirs.parent / "tokens.txt").write_text(" ".join(map(str, numbers)))
    how = ["--len", "16", "--bytes", "200", "--backend", "numpy"]
    said = cli(capsys, "report", "mine", "--data", "text.txt", "--prompt", "größer", *how, "--json")[1]
    rows = json.JSONDecoder().raw_decode(said)[0]["runs"][0]["rows"]
    said = cli(capsys, "eval", "mine", "--data", "text.txt", *how, "--json")[1]
    alone = json.JSONDecoder().raw_decode(said)[0]
    assert [row["bpb"] for row in rows] == [row["bpb"] for row in alone["rows"]]
    assert alone["unit"] == "bits/byte"
    assert "bits/token" in cli(capsys, "report", "bare", "--data", "tokens.txt", *how)[1]
    code, said = cli(capsys, "report", "mine", "bare", "--data", "tokens.txt", *how)
    assert (code, "bits/byte, bits/token); report them apart" in said) == (2, True)
    said = cli(capsys, "eval", "mine", "bare", "--data", "tokens.txt", *how)[1]
    assert "not the same unit" in said
    assert "say with --data" in cli(capsys, "report", "mine")[1]
