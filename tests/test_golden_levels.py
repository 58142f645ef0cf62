"""Blocks, models, training steps and traces: the full set, its archive, budgets of whole tensors, and a
mutant for every flag of these levels.
"""

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same
from golden_files import cli, folder_of
from honest import sixteen
from level_mutants import LEFT, MUTANTS
from making import composed, confirmed, programs, reorder
from making.catalogue import core, full
from making.witness import documents
from mutants.table import in_dtype
from recipes.wholes import blocks, every_aligned, in_full_set, models, steps, traces

from peref import store
from peref.backends import Backend
from peref.config import SHAPES
from peref.encodings import claims_of, get, names
from peref.errors import Damaged
from peref.golden.compute.operation import rounded
from peref.golden.compute.reference import expected, inputs, reference
from peref.golden.judge.implementation import run_function
from peref.golden.judge.judged import check_tensors
from peref.golden.judge.rebuild import agree
from peref.golden.judge.selection import Pick
from peref.golden.spec import checksums
from peref.golden.spec.book import Book, known_flags, open_book
from peref.golden.spec.cases import MODEL_LEVELS, Case, rebuilt
from peref.golden.spec.checksums import FULL, Untrue, to_archive
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
U32 = 2.0**-24


@pytest.fixture(scope="module")
def book():
    return open_book(GOLDEN)


def of_levels(book, *levels):
    return [e for e in book.entries.values() if e.words["level"] in levels]


# ---------------------------------------------------------------- the committed files


def test_the_full_set_is_that_of_the_recipes(book):
    """Every case and no other, with its words; the core has none of it."""
    cases = {case.id: case for case in full()}
    assert set(book.more.entries) == set(cases)
    twice = set(cases) & set(Book(GOLDEN).entries)
    assert not twice, f"{twice} stand in the core too; make the files again: python -m tests.making"
    for name, case in cases.items():
        words = book.entries[name].words
        assert {key: words[key] for key in ("why", "flags", "level", "encoding", "depth")} == {
            "why": case.why,
            "flags": sorted(case.flags),
            "level": case.level,
            "encoding": case.encoding,
            "depth": case.depth,
        }


def test_every_encoding_has_every_level(book):
    """From the registry alone: traces and, unless its recipe says CORE_ONLY, both models, the gradient of
    logits, ten steps, and both blocks unless it is added to the embedding.
    """
    have = {(e.words["encoding"], e.id.partition(".")[2]) for e in of_levels(book, *MODEL_LEVELS)}
    assert {(name, "trace/chunks") for name in names()} <= have
    for name in in_full_set():
        assert {(name, "model/llama"), (name, "model/gpt2")} <= have
        assert {(name, f"model/logits-{shape}") for shape in SHAPES} & have
        assert {(name, f"step/{shape}") for shape in SHAPES} & have
    layers = {name for name in names() if not get(name).embed}
    assert {(name, "trace/long-then-short") for name in layers} <= have
    whole = layers & set(in_full_set())
    assert {(name, slug) for name in whole for slug in ("block/llama", "block/gpt2")} <= have
    assert {
        (name, "trace/window-rolls")
        for name in layers
        if "window" in claims_of(get(name)) and get(name).hook not in ("attend", "mix")
    } <= have


def test_kernels_have_their_sizes(book):
    """D 64 and 128, T by sixteens, 8 heads over 2."""
    sizes = [
        tuple(e.words["facts"][x] for x in "DTHG")
        for e in book.more.entries.values()
        if e.group.endswith("_aligned")
    ]
    found = set(sizes)
    assert {D for D, *_ in found} == {64, 128}
    assert all(T % 16 == 0 and (H, G) == (8, 2) for _, T, H, G in found)


def test_inputs_are_exact_in_every_dtype(book):
    for entry in of_levels(book, *MODEL_LEVELS):
        for name, x in entry.inputs().items():
            if x.dtype.kind == "f" and name != "positions":
                same(x.astype(np.float16).astype(x.dtype), x, 0, f"{entry.id}:{name}")
                same(rounded(x), x, 0, f"{entry.id}:{name}")


def test_computed_again_they_are_the_same(book):
    """One case of each group, from the words of the files, not the recipe, by the rule of rebuilding."""
    for group, entry in {entry.group: entry for entry in book.entries.values()}.items():
        if entry.words["level"] in MODEL_LEVELS or group.endswith("_aligned"):
            agree(entry, expected(rebuilt(entry.words, entry.inputs()), entry.inputs()))


def test_gradients_and_outputs_are_all_there(book):
    """Of a block y and a gradient of x and of every parameter; of a model logits, loss and every gradient,
    of the loss or of the logits, and through a cache the logits; after ten steps every weight.
    """
    models = of_levels(book, "model")
    cached = [entry for entry in models if "calls" in entry.words["facts"]]
    assert {(entry.words["facts"]["shape"], *entry.outputs) for entry in cached} == {
        ("llama", "logits"),
        ("gpt2", "logits"),
    }
    judged = {name for entry in models for name in entry.words["inputs"] if name.startswith("cotangent.")}
    assert judged == {"cotangent.loss", "cotangent.logits"}
    for entry in (entry for entry in of_levels(book, "block", "model", "step") if entry not in cached):
        parameters = {name for name in entry.words["inputs"] if name.startswith("param.")}
        outputs = {
            "block": {"y", "vjp.x", *(f"vjp.{name}" for name in parameters)},
            "model": {"logits", "loss", *(f"vjp.{name}" for name in parameters)},
            "step": {
                "losses",
                "norms",
                "rates",
                *(name.replace("param.", "final.", 1) for name in parameters),
            },
        }
        assert set(entry.outputs) == outputs[entry.words["level"]]
        if entry.words["level"] == "step":
            assert entry.want("losses").shape == (10,)


def test_a_clipped_step_and_one_that_is_not(book):
    """Both happen, so that an implementation must do both."""
    norms = np.concatenate([e.want("norms") for e in of_levels(book, "step")])
    assert norms.max() > 3 > norms.min()


# ---------------------------------------------------------------- honest and wrong implementations

UNSEEN = {  # on how many cases with a flag its mutant may pass where the outputs are in 16 bits
    "BF16": {
        "block.gelu_exact": 3,  # 5e-4 beside numbers of 1, an eighth of a rounding
        "block.swiglu_swapped": 1,
        "model.tied_gradient": 1,
        "adamw.bias_correction": 1,
        "schedule.counted_from_0": 4,
        "clip.missing": 2,
    },
    "F16": {"block.gelu_exact": 3},
}


def test_the_reference_passes_in_float32(book):
    """One encoding of each hook, at every level here, class A."""
    few = ("none", "learned", "rope", "t5", "forgetting", "shaw", "retnet")
    pick = Pick(levels=MODEL_LEVELS, encodings=few)
    given, errors = run_function(reference, book, pick, "f32")
    assert not errors, errors
    report = check_tensors(book, given, pick)
    assert report.exit_code == 0
    assert report.by_class()["A"] == len(report.results) > 500


def halved(a, b):
    """A sum as two halves, each as two halves: an order that is none of those which made the budgets."""
    if (n := a.shape[-1]) < 4:
        return a @ b
    return halved(a[..., : n // 2], b[..., : n // 2, :]) + halved(a[..., n // 2 :], b[..., n // 2 :, :])


def test_another_honest_program_passes(book):
    """Sums in halves, norms from the end, inputs float32: class A for every block and model of a few
    encodings.
    """
    be = programs.sums(halved, 7)
    count = 0
    for entry in of_levels(book, "block", "model"):
        if entry.words["encoding"] in ("none", "sinusoidal", "yarn", "alibi", "cope", "path", "mamba"):
            a = {
                name: x.astype(np.float32) if x.dtype.kind == "f" and name != "positions" else x
                for name, x in entry.inputs().items()
            }
            for name, c in expected(rebuilt(entry.words, entry.inputs()), a, be).items():
                verdict = verdict_on(
                    Tensor("F32", c), entry.want(name), *entry.budget(name), entry.words["depth"]
                )
                assert verdict.grade == "A", (entry.id, name, verdict.worst)
                count += 1
    assert count > 200


@pytest.mark.parametrize("flag", MUTANTS | LEFT)
def test_a_flag_stands_where_its_mutant_fails(book, flag):
    """On every case of these levels that carries it, in float64 and in float32; in 16 bits but where
    UNSEEN says how many it may pass.
    """
    entries, unseen = (
        [e for e in of_levels(book, *MODEL_LEVELS) if flag in e.words["flags"]],
        dict.fromkeys(UNSEEN, 0),
    )
    assert entries
    for entry in entries:
        a = entry.inputs()
        got = (MUTANTS | LEFT)[flag](rebuilt(entry.words, a), a)
        assert set(got) <= set(entry.outputs)
        for dtype, cast in (("F64", np.float64), ("F32", np.float32)):
            with np.errstate(all="ignore"):
                verdicts = [
                    verdict_on(
                        Tensor(dtype, np.asarray(x, cast)),
                        entry.want(n),
                        *entry.budget(n),
                        entry.words["depth"],
                    )
                    for n, x in got.items()
                ]
            assert any(v.grade == "FAIL" for v in verdicts), (entry.id, dtype, [v.worst for v in verdicts])
        for dtype in unseen:
            verdicts = [
                verdict_on(in_dtype(x, dtype), entry.want(n), *entry.budget(n), entry.words["depth"])
                for n, x in got.items()
            ]
            unseen[dtype] += all(v.grade != "FAIL" for v in verdicts)
    assert all(unseen[dtype] <= few.get(flag, 0) for dtype, few in UNSEEN.items()), unseen


@pytest.mark.parametrize("dtype", UNSEEN)
def test_nearly_all_are_seen_in_16_bits(book, dtype):
    """97 in 100, of the mutant of each flag on each case that carries it."""
    count = sum(flag in e.words["flags"] for e in of_levels(book, *MODEL_LEVELS) for flag in MUTANTS | LEFT)
    assert sum(UNSEEN[dtype].values()) <= 0.03 * count


def test_no_flag_without_a_mutant():
    """Those that cases of these levels carry."""
    carried = {flag for case in (*traces(), *blocks(), *models(), *steps()) for flag in case.flags}
    assert carried == {*MUTANTS, *LEFT}
    assert carried <= set(known_flags())


# ---------------------------------------------------------------- budgets


def small(level, name="rope", **given):
    sizes = (
        {"T": 3, "layers": 2, "H": 2, "G": 1, "D": 4, "C": 6, "F": 5, "V": 7}
        if level in ("model", "step")
        else {"T": 3, "D": 4}
    )
    return Case(name, level, "small", "For a test.", **(sizes | given))


def test_a_budget_for_a_tensor_is_what_it_says():
    """b is the largest of eleven deviations, in roundings; a the largest number, or b."""
    case = small("block")
    a = inputs(case)
    want = expected(case, a)
    found = reorder.budgets(case, a, want)
    several = list(programs.programs(case, a))
    assert len(several) == 11
    got = [expected(case, low, be) for be, low in several]
    for name, (size, phase) in found.items():
        assert size.shape == phase.shape == ()
        assert 1 <= float(size) / max(np.abs(want[name]).max(), float(phase) * (1 - 1e-7)) < 1 + 1e-6
        worst = max(np.abs(g[name] - want[name]).max() for g in got)
        assert 1 <= float(phase) * U32 / worst < 1 + 1e-6
    assert len({g["y"].tobytes() for g in got}) > 7  # they really differ


@pytest.mark.parametrize("level", ["block", "model", "step"])
@pytest.mark.parametrize("name", ["none", "yarn", "t5", "forgetting", "shaw", "retnet", "mamba"])
def test_bfloat16_between_operations_is_class_b(name, level, monkeypatch):
    """Whatever goes from one to the next, forward and backward; weights and moments are float32. None of
    these programs made a budget.
    """
    case = small(level, name, **({"H": 3, "G": None, "D": 4, "C": 5} if name in ("retnet", "mamba") else {}))
    a = inputs(case)
    want = expected(case, a)
    found = reorder.budgets(case, a, want)
    low = sixteen.lowered("BF16")
    for where in ("operation", "training"):
        monkeypatch.setattr(f"peref.golden.compute.{where}.Tape", lambda: sixteen.LowTape(low))
    got = expected(
        case,
        {
            key: x.astype(np.float32) if x.dtype.kind == "f" and key != "positions" else x
            for key, x in a.items()
        },
    )
    for tensor, g in want.items():
        if g.dtype.kind == "f":
            verdict = verdict_on(in_dtype(got[tensor], "BF16"), g, *found[tensor], case.depth)
            assert verdict.grade in "AB", (tensor, verdict.worst)


def test_a_golden_number_rounded_is_class_a(book):
    """In float16 and bfloat16: that is what a is for."""
    for entry in of_levels(book, "block"):
        want = entry.want("y")
        bits = want.astype(np.float32).view(np.uint32)
        rounded_bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        for got in (Tensor("F16", want.astype(np.float16)), Tensor("BF16", rounded_bits)):
            assert verdict_on(got, want, *entry.budget("y"), 0).grade == "A", entry.id


# ---------------------------------------------------------------- the maker


PASSING = [
    ("rope", "block"),
    ("rope", "step"),
    ("learned", "model"),
    ("rwkv7", "block"),
    ("rwkv7", "trace"),
    ("retnet", "model"),
    ("t5", "trace"),
]


@pytest.mark.parametrize(("name", "level"), PASSING)
def test_a_case_passes_its_own_checks(name, level):
    """Witness, finite differences and a second run."""
    more = {"H": 3, "G": None, "D": 4, "C": 5} if name in ("rwkv7", "retnet") else {}
    case = small(level, name, **more)
    confirmed.computed(
        replace(case, calls=((0, 2, True, 16), (2, 3, False, 16))) if level == "trace" else case
    )


@pytest.mark.parametrize("level", ["block", "model", "step", "trace"])
def test_nothing_is_made_when_the_witness_disagrees(level, monkeypatch):
    whole = composed.witnessed
    monkeypatch.setattr(
        composed, "witnessed", lambda case, a: {n: x * (1 + 1e-9) for n, x in whole(case, a).items()}
    )
    case = small(level, calls=((0, 2, True, 16), (2, 3, False, 16)))
    with pytest.raises(confirmed.Disagrees, match="witness"):
        confirmed.computed(case)


@pytest.mark.parametrize("tensor", ["vjp.param.0.norm1.weight", "vjp.param.0.k.weight"])
def test_nothing_is_made_when_a_gradient_is_wrong(tensor, monkeypatch):
    monkeypatch.setattr(
        confirmed,
        "expected",
        lambda *given: {n: x * 1.001 if n == tensor else x for n, x in expected(*given).items()},
    )
    with pytest.raises(confirmed.Disagrees, match=tensor):
        confirmed.computed(small("block"))


def test_a_trace_is_what_one_call_gives():
    """By the array version too: the rows of chunks are those of everything at once, where n stays."""
    for case in traces():
        if case.slug == "chunks":
            a = inputs(case)
            whole = expected(replace(case, calls=((0, case.T, True, case.n),)), a)
            for name, y in expected(case, a).items():
                same(y, whole[name], 1e-13, name)


def test_lengths_as_hugging_face_keeps_them():
    """n of every call is what its state says: it grows with the text, and a text shorter than L sets it
    back.
    """
    case = next(c for c in traces() if c.slug == "length-as-hugging-face")
    longest = made_for = case.L
    text = 0
    for first, stop, fresh, n in case.calls:
        text = stop - first if fresh else text + stop - first
        if text > longest:
            made_for = longest = text
        if text < case.L < longest:
            made_for = longest = case.L
        assert n == made_for
    assert {n for *_, n in case.calls} == {5, 6, 9}


def test_packed_documents_are_told_apart():
    """The witness computes each alone."""
    case = next(c for c in blocks() if c.id == "rope.block/packed")
    # the first sequence begins with padding
    assert [cut.stop - cut.start for _, cut, _ in documents(case)] == [3, 2, 3, 3]


def test_an_aligned_case_has_a_group_of_its_own(book):
    groups = {book.entries[case.id].group for case in every_aligned()}
    assert groups == {
        "none_attn_aligned",
        "rotate_attn_aligned",
        "bias_attn_aligned",
        "score_attn_aligned",
        "rotate_op_aligned",
    }
    assert not groups & {book.entries[case.id].group for case in core()}


# ---------------------------------------------------------------- core and full, and the archive


@pytest.fixture
def folder(tmp_path):
    """A core of one case with a full set of two."""
    place = tmp_path / "golden"
    folder_of(place / "core", [small("trace", calls=((0, 2, True, 16), (2, 3, False, 16)))])
    folder_of(place / FULL, [small("block"), small("model")])
    (place / "LICENSE-DATA").write_text("CC0\n")
    return place


def test_core_and_full_are_two_sets(folder, capsys):
    """Each has digests of its own; together they are one book; the core does not know of the other."""
    assert list(Book(folder).entries) == ["rope.trace/small"]
    assert set(open_book(folder).entries) == {"rope.trace/small", "rope.block/small", "rope.model/small"}
    assert set(Book(folder / FULL).entries) == {"rope.block/small", "rope.model/small"}
    implementation = ["check", "--impl", "peref.golden.compute.reference:reference", "--golden", folder]
    assert "of 1 case compared" in cli(capsys, *implementation)[1]
    code, text = cli(capsys, *implementation, "--full")
    assert (code, "of 3 cases compared" in text) == (0, True), text
    for name in ("rope.block/small", "rope.trace/small"):
        assert cli(capsys, "golden", "show", name, "--golden", folder)[0] == 0
    y = open_book(folder).entries["rope.block/small"].want("y")
    store.save(folder.parent / "mine.safetensors", {"rope.block/small:y": y}, {})
    code, text = cli(capsys, "check", folder.parent / "mine.safetensors", "--golden", folder)
    assert (code, "1 tensor of 1 case compared" in text) == (0, True), text
    code, text = cli(capsys, "golden", "verify", folder)
    assert (code, "3 cases of 1 encoding, every" in text) == (0, True), text
    (folder / FULL / "rope" / "index.txt").write_text("")
    assert cli(capsys, "golden", "verify", folder)[0] == 3
    assert Book(folder).entries


def test_an_archive_is_the_same_each_time_and_read_like_a_folder(folder, tmp_path, capsys):
    for name in ("a.tar", "b.tar"):
        assert cli(capsys, "golden", "archive", tmp_path / name, "--golden", folder / FULL)[0] == 0
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    code, text = cli(capsys, "golden", "verify", tmp_path / "a.tar")
    assert (code, "2 cases of 1 encoding, every digest right" in text) == (0, True), text
    assert Book(tmp_path / "a.tar").digest == Book(folder / FULL).digest
    code, text = cli(
        capsys,
        "check",
        "--impl",
        "peref.golden.compute.reference:reference",
        "--golden",
        tmp_path / "a.tar",
        "--dtype",
        "f32",
    )
    assert (code, "of 2 cases compared" in text) == (0, True), text
    assert cli(capsys, "golden", "show", "rope.block/small", "--golden", tmp_path / "a.tar")[0] == 0
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert {
            "golden/SPEC_VERSION",
            "golden/LICENSE-DATA",
            "golden/full/rope/cases.json",
            "golden/full/rope/SHA256SUMS",
        } <= {m.name for m in tar}
        assert all(
            m.name.startswith("golden/") and (m.mtime, m.uid, m.uname, m.mode) == (0, 0, "", 0o644)
            for m in tar
        )


def test_a_changed_byte_in_an_archive_is_noticed(folder, tmp_path):
    """Any of its files', and any of a header that matters."""
    checksums.pack(to_archive(folder / FULL), tmp_path / "a.tar")
    data = bytearray((tmp_path / "a.tar").read_bytes())
    with tarfile.open(tmp_path / "a.tar") as tar:
        places = [m.offset_data + n for m in tar for n in (0, m.size // 2, m.size - 1)] + [
            m.offset for m in tar
        ]
    for at in places:
        data[at] ^= 1
        (tmp_path / "b.tar").write_bytes(data)
        with pytest.raises(Untrue):
            Book(tmp_path / "b.tar")
        data[at] ^= 1


def tar_of(*members, mode="w", tail=b""):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for name, change in members:
            member = tarfile.TarInfo(name)
            member.size = 1
            for key, value in change.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(b"x"))
    return out.getvalue() + tail


HOSTILE = {
    "nothing": b"",
    "no tar": b"x" * 2000,
    "zeros": bytes(10240),
    "path up": tar_of(("golden/../x", {})),
    "path beside": tar_of(("x", {})),
    "absolute": tar_of(("/golden/x", {})),
    "only the top": tar_of(("golden/", {})),
    "a backslash": tar_of(("golden/a\\b", {})),
    "a blank": tar_of(("golden/a b", {})),
    "a link": tar_of(("golden/x", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0})),
    "a hard link": tar_of(("golden/x", {"type": tarfile.LNKTYPE, "linkname": "golden/y", "size": 0})),
    "a device": tar_of(("golden/x", {"type": tarfile.CHRTYPE, "size": 0})),
    "a folder": tar_of(("golden/x", {"type": tarfile.DIRTYPE, "size": 0})),
    "a pipe": tar_of(("golden/x", {"type": tarfile.FIFOTYPE, "size": 0})),
    "twice": tar_of(("golden/x", {}), ("golden/x", {})),
    "cut short": tar_of(("golden/x", {}))[:512],
    "compressed": tar_of(("golden/x", {}), mode="w:gz"),
    "a long name": tar_of(("golden/" + "x" * 300, {})),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(name, tmp_path, capsys):
    """In one line, exit 3; nothing is written."""
    path = tmp_path / "x.tar"
    path.write_bytes(HOSTILE[name])
    code, text = cli(capsys, "golden", "verify", path)
    assert code == 3
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar"]


def test_an_archive_that_is_too_large_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.tar").write_bytes(bytes(2000))
    monkeypatch.setattr(checksums, "LARGEST_ARCHIVE", 1999)
    with pytest.raises(Damaged, match="at most 1,999"):
        checksums.unpacked(tmp_path / "x.tar")


def test_the_plain_backend_is_one_of_the_programs():
    assert next(iter(programs.programs(small("block"), inputs(small("block")))))[0] == Backend()
