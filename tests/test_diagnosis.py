"""What a diagnosis says, where it once misled: the right flag, words of one trap alone, what was checked,
the root first and what follows from it.
"""

import ast
import inspect
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from check import same

from peref.encodings.bias import t5
from peref.encodings.mix import mamba
from peref.encodings.rotate import llama3, ntk_by_parts, yarn
from peref.errors import Misuse
from peref.golden.compute.reference import expected
from peref.golden.diagnosis import ranking
from peref.golden.diagnosis.answer import Answer, Clue, Guess, Trap, guess, rounded_near
from peref.golden.diagnosis.backward import Altered, after_it
from peref.golden.diagnosis.engine import recurring
from peref.golden.diagnosis.functions import activated_by, after, ungated
from peref.golden.diagnosis.ranking import diagnosed, weighed
from peref.golden.diagnosis.rotation import in_tables
from peref.golden.diagnosis.support import Said, added_up, guesses_of, seen_in
from peref.golden.diagnosis.variants import variants
from peref.golden.judge.judged import check_tensors
from peref.golden.judge.selection import Pick
from peref.golden.judge.text import failure_lines
from peref.golden.spec.book import known_flags
from peref.golden.spec.cases import OPERATIONS, rebuilt
from peref.golden.spec.files import LOW, Tensor, narrowed
from peref.hooks import around
from peref.model import PLAIN
from peref.ops.activation import relu
from peref.ops.delta import delta_backward
from peref.tape import Tape


def wrong(book, change, *cases):
    """What came from somebody for whom change(case, inputs) is the case: (entry, tensors) for each."""
    found = []
    for name in cases:
        entry = book.entries[name]
        a = entry.inputs()
        given = change(rebuilt(entry.words, a), a)
        found.append(
            (
                entry,
                {
                    n: Tensor("F32", np.asarray(x).astype(np.float32))
                    for n, x in given.items()
                    if n in entry.outputs
                },
            )
        )
    return found


def traps(answers):
    return [one.trap for one in weighed(answers)]


def named(answer):
    return traps([Answer(entry, got) for entry, got in answer])


def reported(book, answer):
    return check_tensors(
        book, {f"{entry.id}:{n}": x for entry, got in answer for n, x in got.items()}, Pick()
    )


def flipped(module, *names):
    """1 minus the ramp."""

    def change(case, a):
        right = {name: getattr(module, name) for name in names}
        changes = {name: (lambda *g, f=right[name]: 1 - f(*g)) for name in names}
        with mock.patch.multiple(module, **changes):
            return expected(case, a)

    return change


@pytest.mark.parametrize(
    ("module", "names", "flag"),
    [
        (yarn, ("slow_pairs", "rising"), "rope.yarn.ramp"),
        (ntk_by_parts, ("slow_pairs",), "rope.parts.ramp"),
        (llama3, ("rising",), "rope.llama3.blend"),
    ],
)
def test_a_ramp_the_other_way_round(book, module, names, flag):
    """It leaves some cases unscaled, and is not named so: what "not scaled" gives elsewhere did not come."""
    encoding = module.__name__.rpartition(".")[2]
    cases = [name for name in book.entries if name.startswith((f"{encoding}.table/", f"{encoding}.op/"))][:12]
    report = reported(book, wrong(book, flipped(module, *names), *cases))
    assert [one.trap.flag for one in report.probable] == [flag]
    assert "the other way round" in report.probable[0].trap.words
    assert {r.trap.flag for r in report.failed if r.trap} == {flag}


def last_use(case, a):
    """A gradient of rows that is assigned where it should be added."""
    found = expected(case, a)
    if case.hook == "bias":
        options = case.config.pe[0][1]
        index, dy = (
            t5.bucket(
                a["distances"],
                causal=case.causal,
                buckets=options["buckets"],
                max_distance=options["max_distance"],
            ),
            a["cotangent.bias"].T,
        )
    else:
        index, dy = np.broadcast_to(case.at.i, a["x"].shape[:-1]), a["cotangent.y"]
    g = np.zeros_like(a["param.table"])
    g[index] = dy
    return {**found, "vjp.param.table": g}


@pytest.mark.parametrize("cases", [("t5.table/default", "t5.table/two-sided"), ("learned.op/default",)])
def test_a_gradient_that_overwrites_rows(book, cases):
    found = named(wrong(book, last_use, *cases))[0]
    assert (found.flag, "the derivative of its last use alone" in found.words) == ("grad.sum", True)


def test_rows_of_a_table_in_reverse(book):
    """Also where only attention came, in which no row can be read."""
    turned = lambda c, a: expected(c, {**a, "param.table": a["param.table"][::-1]})
    for cases in (("t5.table/default", "t5.op/default"), ("t5.attn/default",)):
        found = named(wrong(book, turned, *cases))[0]
        assert (found.flag, "in reverse order" in found.words) == ("bias.rows", True)


def test_rows_that_changed_places(book):
    """Each bucket has the row of another, its edges are right: nothing is said of edges."""
    order = np.random.default_rng(0).permutation(32)
    mixed = lambda c, a: expected(c, {**a, "param.table": a["param.table"][order]})
    found = named(wrong(book, mixed, "t5.table/default", "t5.table/far"))
    assert found[0].flag == "bias.rows"
    assert "your edges are right" in found[0].words
    assert "bias.bucket.border" not in [one.flag for one in found]


def two_sided(case, a):
    """Half of the buckets for the future, also in a causal model."""
    right = t5.bucket
    with mock.patch.object(t5, "bucket", lambda d, *, causal, **o: right(d, causal=False, **o)):
        return expected(case, a)


def other_way(case, a):
    """The minus on the wrong half, the tables right."""
    at = case.config.encoding(0).rotate({}, case.at.i, case.at.n)[0]
    turn = lambda x: PLAIN.turn(x, -np.asarray(at), None, layout=case.layout)
    return {"q_rotated": turn(a["q"]), "k_rotated": turn(a["k"])} if case.level == "op" else expected(case, a)


def late(case, a):
    """Positions that begin later than 0 are counted from 1."""
    i = case.at.i + (case.at.i.min() > 0)
    return expected(case, a, None, replace(case.at, i=i, j=i))


@pytest.mark.parametrize(
    ("change", "cases", "flag", "words"),
    [
        (
            two_sided,
            ("t5.table/default", "t5.table/far", "t5.table/two-sided"),
            "t5.bidirectional",
            "half of your buckets are kept for the future",
        ),
        (
            other_way,
            ("rope.op/default", "rope.op/partial", "rope.table/default", "rope.table/long"),
            "rope.sign",
            "your angles are right",
        ),
        (
            late,
            ("rope.table/default", "rope.table/code-llama", "rope.table/wider-than-256"),
            "position.off_by_one",
            "where they do not begin at 0",
        ),
    ],
)
def test_what_is_right_is_left_right(book, change, cases, flag, words):
    """A bug that shows in some cases alone is told as such a one, and not as one that would spoil the
    others.
    """
    found = named(wrong(book, change, *cases))[0]
    assert (found.flag, words in found.words, "something else" in found.evidence) == (flag, True, False), (
        found
    )


def test_words_of_one_trap_alone():
    """Two bugs of one flag: their weights add up, and the words, the evidence and the guess are those of
    the likelier one.
    """
    small, large = (
        Said(Trap("rope.yarn.ramp", "one", "of one"), 0.3),
        Said(Trap("rope.yarn.ramp", "two", "of two"), 0.5),
    )
    assert added_up([small, large]) == replace(large, weight=0.8)


def test_evidence_says_what_was_checked(book):
    """Of the failing cases and of the right ones, each in words of its own."""
    low = lambda c, a: expected(replace(c, options={**c.options, "base": 1000.0}), a)
    some = wrong(book, low, "rope.op/default", "rope.op/long") + wrong(book, expected, "rope.op/unordered")
    found = named(some)[0]
    assert found.evidence == (
        "the reference with this bug gives what came in 2 of 2 failing cases, but gives something else "
        "in 1 of 1 cases that are right"
    )
    assert "the option base seems to be 1000" in found.words


def test_the_root_comes_first(book):
    """table, op, attn, and within a case scores before what is made of them; what follows says so in a
    line.
    """
    low = lambda c, a: expected(replace(c, options={**c.options, "base": 1000.0}), a)
    report = reported(book, wrong(book, low, "rope.attn/default", "rope.op/default", "rope.table/default"))
    assert [(r.entry.id, r.name) for r in report.failed if not r.name.startswith("vjp.")] == [
        *(("rope.table/default", "angle"), ("rope.table/default", "cos"), ("rope.table/default", "sin")),
        *(("rope.op/default", "q_rotated"), ("rope.op/default", "k_rotated")),
        *(
            ("rope.attn/default", "scores"),
            ("rope.attn/default", "probabilities"),
            ("rope.attn/default", "out"),
        ),
    ]
    first, *others = report.failed
    assert "base seems to be 1000" in " ".join(failure_lines(first))
    for r in others:
        said = failure_lines(r)
        assert sum(line.startswith(("follows from  ", "same as       ")) for line in said) == 1
        assert not any(line.startswith(("looks like", "evidence", "why")) for line in said)
    assert (
        others[2].data()["follows"].startswith("rope.table/default angle: the option base seems to be 1000")
    )


def test_a_derivative_behind_a_wrong_value(book):
    """The value is named, and no trap of the derivative's own; a derivative of what is right is asked by
    itself.
    """
    ((entry, got),) = wrong(book, expected, "rope.op/default")
    q = lambda sign: Tensor("F32", np.float32(sign) * got["vjp.q"].bits)
    report = reported(
        book,
        [(entry, got | {"q_rotated": Tensor("F32", got["q_rotated"].bits + np.float32(1)), "vjp.q": q(-1)})],
    )
    value, behind = report.failed
    assert (value.name, value.follows) == ("q_rotated", "")
    assert (behind.name, behind.trap) == ("vjp.q", None)
    assert "q_rotated of this case, whose value is wrong already" in behind.follows
    report = reported(
        book,
        [(entry, got | {"k_rotated": Tensor("F32", got["k_rotated"].bits + np.float32(1)), "vjp.q": q(-1)})],
    )
    assert [(r.name, r.trap.flag if r.trap else None) for r in report.failed][1] == ("vjp.q", "grad.sign")


@pytest.mark.parametrize(
    ("case", "change", "flag", "words"),
    [
        (
            "yarn.table/default",
            lambda g, h: (g * 0 + 1, h * 0 + 1),
            "rope.yarn.mscale_missing",
            "the gain (magnitude) is missing",
        ),
        ("yarn.table/default", lambda g, h: (g * g, h * h), "rope.yarn.mscale_twice", "counts twice"),
        (
            "yarn.table/default",
            lambda g, h: (g**0.5, h**0.5),
            "rope.yarn.mscale_missing",
            "to the power of 0.5",
        ),
        ("yarn.table/default", lambda g, h: (g, h * 0 + 1), "rope.yarn.mscale_missing", "on q alone"),
        ("xpos.table/default", lambda g, h: (h, g), "rope.xpos.gain", "exchanged"),
        ("xpos.table/default", lambda g, h: (g**1.5, h**1.5), "rope.xpos.gain", "to the power of 1.5"),
        (
            "xpos.table/default",
            lambda g, h: (g + 0.1 * np.arange(g.size).reshape(g.shape), h),
            "rope.xpos.gain",
            "your angles are right, and the gain (magnitude) of q is another: ",
        ),
    ],
)
def test_gains_of_a_table(book, case, change, flag, words):
    def wrongly(c, a):
        found = expected(c, a)
        return found | dict(zip(("gain_q", "gain_k"), change(found["gain_q"], found["gain_k"]), strict=True))

    found = named(wrong(book, wrongly, case))[0]
    assert (found.flag, words in found.words) == (flag, True), found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda x: ("F32", x.swapaxes(1, 2)),
            "(B,T,H,D) came, expected (B,H,T,D): the numbers are right, the axes are exchanged",
        ),
        (
            lambda x: ("F32", x.swapaxes(1, 2).reshape(2, 7, 48)),
            "(B,T,HD) came, expected (B,H,T,D): the numbers are right, the axes are exchanged",
        ),
        (lambda x: ("F32", x[..., None]), "(B,H,T,D,1) came, expected (B,H,T,D): the numbers are right"),
        (
            lambda x: ("F32", x.swapaxes(1, 2).reshape(x.shape)),
            "(B,T,H,D) in memory came, expected (B,H,T,D): the numbers are right, the axes are exchanged",
        ),
        (lambda x: ("F32", 1 - x.swapaxes(1, 2)), "its axes seem to be (B,T,H,D), expected (B,H,T,D)"),
        (lambda x: ("F32", x[:, :3]), "H is 3, expected 6; expected (B,H,T,D)"),
        (lambda x: ("F32", x[0]), "3 axes came, expected 4: (B,H,T,D)"),
        (
            lambda x: ("I64", x.astype(np.int64)),
            "dtype I64 came, whole numbers; expected real numbers, one of F64, F32, F16, BF16",
        ),
        (lambda x: ("BOOL", x > 0), "dtype BOOL came, truth values"),
    ],
)
def test_another_shape_or_dtype(book, change, words):
    entry = book.entries["rope.op/default"]
    dtype, x = change(entry.want("q_rotated").astype(np.float32))
    got = Tensor(dtype, np.ascontiguousarray(x))
    assert words in diagnosed(entry, "q_rotated", got).words
    (r,) = reported(book, [(entry, {"q_rotated": got})]).failed
    assert words in "\n".join(failure_lines(r))


def test_heads_that_were_repeated(book):
    entry = book.entries["rope.op/default"]
    got = Tensor("F32", np.repeat(entry.want("k_rotated"), 3, 1).astype(np.float32))
    assert "a head for every query head" in diagnosed(entry, "k_rotated", got).words


def test_weights_that_add_up_to_something_else(book):
    """By one part in a hundred: less than arithmetic of few digits costs, and the very numbers of a bug."""

    def more(c, a):
        found = expected(c, a)
        return found | {n: 1.01 * found[n] for n in ("probabilities", "out", "vjp.v")}

    found = named(wrong(book, more, "none.attn/default", "none.attn/heads-12"))[0]
    assert (found.flag, "adds up to 1.01" in found.words) == ("attn.softmax", True)


def test_a_blind_row_where_there_are_no_probabilities(book):
    case = next(
        name
        for name, e in book.entries.items()
        if name.startswith("shaw.attn/") and "mask.padding" in e.words["flags"]
    )

    def blind(c, a):
        out = expected(c, a)["out"]
        return {"out": np.where(np.broadcast_to(c.at.see.any(-1)[..., None], out.shape), out, np.nan)}

    assert named(wrong(book, blind, case))[0].flag == "mask.padding"


def logits_with_a_gap(case, a):
    """A wrong formula of a bias, and the mask as it is: every third distance counts 2 more."""
    bias = lambda f, *given: f(*given) - 2.0 * (np.abs(given[-1]) % 3 == 1)
    return expected(case, a, around(case.config.encoding(0), "bias", bias))


def open_to_the_future(case, a):
    return expected(replace(case, causal=False), a)


@pytest.mark.parametrize("dtype", ["F32", "F64"])
@pytest.mark.parametrize(
    ("change", "case", "masked"),
    [
        (logits_with_a_gap, "alibi.attn/default", False),
        (logits_with_a_gap, "sandwich.attn/default", False),
        (open_to_the_future, "alibi.attn/default", True),
        (open_to_the_future, "rope.attn/default", True),
    ],
)
def test_weights_read_from_an_output_are_as_sure_as_its_digits(book, dtype, change, case, masked):
    """A cell is seen where its weight is more than what the output was rounded by, in float32 too."""
    entry = book.entries[case]
    low = np.float32 if dtype == "F32" else np.float64
    out = change(rebuilt(entry.words, entry.inputs()), entry.inputs())["out"]
    flags = [one.flag for one in named([(entry, {"out": Tensor(dtype, np.asarray(out).astype(low))})])]
    assert ("mask.causal" in flags) == masked == (flags[:1] == ["mask.causal"]), flags


def test_weights_below_0_are_no_softmax_and_no_mask(book):
    """Read from an output alone: scores that no softmax went over, those of hidden keys too."""
    entry = book.entries["alibi.attn/default"]
    case, a = rebuilt(entry.words, entry.inputs()), entry.inputs()
    out = expected(replace(case, causal=False), a)["scores"] @ a["v"].repeat(case.H // case.G, 1)
    assert [one.flag for one in named([(entry, {"out": Tensor("F64", out)})])][:1] == ["attn.softmax"]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_a_key_that_is_not_seen_shows_in_16_bits(book, dtype):
    """A weight of 0 is no rounding."""

    def blind(case, a):
        p = expected(case, a)["probabilities"] * (np.arange(case.T) > 0)
        p[:, :, 1:] /= p[:, :, 1:].sum(-1, keepdims=True)
        return {"probabilities": p, "out": p @ a["v"].repeat(case.H // case.G, 1)}

    entry = book.entries["alibi.attn/default"]
    found = blind(rebuilt(entry.words, entry.inputs()), entry.inputs())
    got = {name: narrowed(x, dtype) for name, x in found.items()}
    assert named([(entry, got)])[0].flag == "mask.causal"


@pytest.mark.parametrize("error", [TypeError, KeyError, AttributeError])
def test_a_mistake_in_a_guess_is_not_hidden(book, error):
    """What a case cannot be is left out, as a bad setting; a mistake in the guess itself is told."""

    def raising(kind):
        def gives(answer):
            raise kind("a slip of the pen")

        return guess("basic", "a guess", gives)

    entry = book.entries["rope.op/default"]
    answer = Answer(entry, {"q_rotated": Tensor("F64", 2 * entry.want("q_rotated"))})
    assert answer.fits(raising(Misuse)) is None
    with pytest.raises(error, match="slip"):
        answer.fits(raising(error))


@pytest.mark.parametrize("error", [ValueError, IndexError, np.exceptions.AxisError, ZeroDivisionError])
def test_a_mistake_in_a_family_is_not_hidden(book, error):
    """A family ends where the reference refuses to compute, and nowhere else."""

    def family(kind):
        def of_one_and_none(answer):
            yield guess("basic", "a guess", lambda answer: None)
            raise kind("a slip of the pen")

        return of_one_and_none

    answer = Answer(book.entries["rope.op/default"], {})
    assert len(list(guesses_of(family(Misuse), answer))) == 1
    with pytest.raises(error, match="slip"):
        list(guesses_of(family(error), answer))


unscaled = lambda case, a: expected(case, a, replace(case.config.encoding(0), scale=lambda D: 0.0))
late = lambda case, a: expected(case, a, None, replace(case.at, i=case.at.i + 1, j=case.at.i + 1))


@pytest.mark.parametrize(
    ("change", "case", "flag"),
    [
        (unscaled, "alibi.attn/default", "attn.scale"),
        (late, "rope_mixed.table/default", "position.off_by_one"),
    ],
)
def test_a_family_goes_on(book, change, case, flag):
    """Logits without q k, and heads that turn by angles of their own: a family once ended there."""
    assert named(wrong(book, change, case))[0].flag == flag


@pytest.mark.parametrize(("times", "flag"), [(-1, "bias.negated"), (0.5, "bias.scale")])
def test_a_bug_in_one_branch(book, times, flag):
    """What fails has an option that no right case has: a bug where that is so. That the numbers are others
    times something is no other explanation.
    """

    def where_fixed(case, a):
        found = expected(case, a)
        wrong = times if case.config.pe[0][1]["slopes"] == "fixed" else 1
        return {"bias": wrong * found["bias"]}

    cases = ("alibi.table/default", "alibi.op/default", "alibi.table/slopes-learned", "alibi.table/sides")
    first = reported(book, wrong(book, where_fixed, *cases)).probable[0]
    assert (first.trap.flag, first.confirmed) == (flag, True)
    assert first.trap.words.endswith(", where the case has option slopes fixed")


def test_what_is_seen_is_proven_in_every_case():
    """In one case alone it does not speak for the others, and a sign that something is wrong is no proof."""
    names = {name: SimpleNamespace(entry=SimpleNamespace(id=name)) for name in ("one", "two")}
    one, two = names.values()
    proof = Clue(Trap("basic", "words"), 1.0, True)
    everywhere, once = lambda answer: iter([proof]), lambda answer: iter([proof] * (answer is one))
    whole = lambda clue, family: seen_in([(clue, one, family)], [one], [one, two]).whole
    assert whole(proof, everywhere)
    assert not whole(proof, once)
    assert not whole(replace(proof, proves=False), everywhere)


def self_counts_half(case, a):
    found = expected(case, a)
    e = np.exp(np.where(case.at.see, found["scores"], -np.inf)) * (1 - np.eye(case.T) / 2)
    p = e / e.sum(-1, keepdims=True)
    return {"scores": found["scores"], "probabilities": p, "out": p @ np.repeat(a["v"], case.H // case.G, 1)}


def slopes_of_nobody(case, a):
    factors = np.linspace(0.7, 1.4, case.H)[:, None]
    return {"bias": expected(case, a)["bias"] * (factors if case.level == "table" else factors[..., None])}


def third_slope_for_all(case, a):
    return {"bias": 0 * (bias := expected(case, a)["bias"]) + bias[2:3]}


@pytest.mark.parametrize(
    ("change", "cases", "flag"),
    [
        (third_slope_for_all, ["alibi.table/default"], "bias.heads"),
        (self_counts_half, ["rope.attn/default"], "attn.softmax"),
        (slopes_of_nobody, ["alibi.table/default", "alibi.op/default"], "alibi.slopes.exponent"),
    ],
)
def test_what_only_shows_is_a_guess(book, change, cases, flag):
    """That weights are wrong, or slopes others, does not say what was done."""
    first = reported(book, wrong(book, change, *cases)).probable[0]
    assert (first.trap.flag, first.confirmed) == (flag, False)


def test_a_flag_that_is_said_is_explained():
    """Every word with a point in the diagnosis is a flag of the golden files, the name of a tensor, or the
    end of a flag that each encoding has its own of.
    """
    known = known_flags()
    ends = tuple(flag[len(flag.split(".")[0]) :] for flag in known)
    for path in Path(ranking.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"[a-z]\w*(\.\w+)+", text):
                tensor = text.startswith(("param.", "vjp."))
                assert tensor or text in known or any(f".{text}" in end for end in ends), (path.name, text)


def test_the_end_of_a_learned_table(book):
    """Its rows are looked for among whole positions alone."""
    ends = lambda case, a: expected(case, a, None, replace(case.at, i=np.minimum(case.at.i, 7)))
    first = named(wrong(book, ends, "learned.op/rows", "learned.table/last-row"))[0]
    assert first.flag == "rope.table.clip"
    assert first.words.startswith("your table ends at position 8")


def test_a_wrong_trace_of_two_encodings_in_one_layer(book):
    """The options of a case are those of all of them, under other names."""
    twice = lambda case, a: {"out": 2 * expected(case, a)["out"]}
    assert named(wrong(book, twice, "dape.trace/beside-alibi"))


@pytest.mark.parametrize("encoding", ["learned", "xpos", "t5", "cope", "path", "retnet"])
def test_a_wrong_derivative_beside_right_cases(book, encoding):
    """Of each hook, at each level that has one: a guess at derivatives is held against those of cases that
    are right, and none breaks it.
    """
    right = [
        answer for level in OPERATIONS for answer in wrong(book, expected, *first_of(book, encoding, level))
    ]
    tried = Counter()
    for entry, got in right:
        for name in [name for name, x in got.items() if name.startswith("vjp.") and x.bits.any()][:1]:
            x = got[name].bits
            odd = Tensor("F32", x * np.cos(np.arange(1, x.size + 1)).reshape(x.shape).astype(np.float32))
            bad = Answer(entry, got | {name: odd})
            assert bad.wrong == [name]
            for family in (*ranking.FIRST, *ranking.LAST, *ranking.FORMULAS):
                some = [one for one in guesses_of(family, bad) if isinstance(one, Guess)]
                for one in some[:: max(1, len(some) // 4)]:
                    for other in (Answer(*pair) for pair in right):
                        tried[one.backward, other.fits(one)] += 1
    assert tried[True, -1] > 0, "no guess gives another derivative than the right one"


def first_of(book, encoding, level):
    return [name for name in book.entries if name.startswith(f"{encoding}.{level}/")][:2]


def cut_at_chunks(case, a):
    """Mamba's scan whose backward pass forgets what comes back through the state where a chunk begins."""
    lines, begins = inspect.getsource(mamba.selective_scan_backward), "for cut, h in reversed(starts):\n"
    assert lines.count(begins) == 1
    known = dict(vars(mamba))
    exec(lines.replace(begins, f"{begins}        dh = xp.zeros_like(dh)\n"), known)
    scan = replace(mamba.selective_scan, backward=known["selective_scan_backward"])
    with mock.patch.object(mamba, "selective_scan", scan):
        return expected(case, a)


def test_a_reverse_scan_that_is_cut(book):
    """In the case that has several chunks; those of one are right."""
    some = wrong(book, cut_at_chunks, "mamba.op/chunk-32", "mamba.op/default")
    found = named(some)[0]
    assert [bool(one.wrong) for one in (Answer(*pair) for pair in some)] == [True, False]
    assert found.flag == "grad.time"
    assert found.words.startswith("your reverse scan selective_scan is cut at every chunk: ")


def softmax_without_its_mean(case, a):
    """Attention whose softmax has the derivative p dp."""

    def record(tape, op, saved, *rest):
        name = op.forward.__name__
        op = replace(op, backward=lambda p, dp, *wants: (p * dp,)) if name == "probabilities_forward" else op
        return Tape.record(tape, op, saved, *rest)

    return expected(case, a, None, None, type("Wrong", (Tape,), {"record": record})())


def test_a_function_in_place_of_another_of_its_file():
    """That takes the same: sums over other tokens, in a derivative."""
    said = "sum_before(of_g(rc * dr)) stands where sum_since(of_g(rc * dr)) belongs, in delta_backward"
    assert ("time", said) in [(one.kind, one.words) for one in variants(delta_backward)]


def test_a_mask_is_not_read_otherwise():
    """Half of who is seen is nothing that a program could go on with."""
    half = after(lambda seen, *given: 0.5 * seen)
    same(half(np.abs)(np.array([-2.0])), np.array([1.0]), 0)
    with pytest.raises(ValueError, match="no numbers"):
        half(np.isfinite)(np.array([-2.0]))


def test_a_softmax_that_lacks_its_mean(book):
    found = named(wrong(book, softmax_without_its_mean, "none.attn/default", "none.attn/heads-12"))[0]
    assert (found.flag, "lacks its mean" in found.words) == ("grad.softmax", True), found


def test_a_number_that_nobody_wrote_is_a_guess(book):
    """Told so in one tensor; a number of two digits or a power of 2 is somebody's."""
    odd = lambda c, a: expected(replace(c, options={**c.options, "base": 592.364}), a)
    [(entry, given)] = wrong(book, odd, "rope.op/default")
    alone = diagnosed(entry, "q_rotated", given["q_rotated"])
    assert alone.words.startswith("a guess: the option base seems to be 592.36"), alone
    assert [rounded_near(x) for x in (2.99999, 1 / 3.00001, 4096.01, 0.0)] == [3, 1 / 3, 4096, 0]
    assert rounded_near(592.364) is None


def test_a_number_that_nobody_wrote_comes_last(book):
    """Behind everything that gives as much, however many such numbers there are."""
    gives = lambda answer: {"q_rotated": 1.2345 * answer.want("q_rotated")}
    other = lambda stage: lambda answer: [guess("basic", f"the base seems to be {stage}", gives, 0.95, stage)]
    plain = lambda answer: [guess("rope.sign", "a formula with one sign changed", gives, 0.85)]
    entry = book.entries["rope.op/default"]
    answer = Answer(entry, {"q_rotated": Tensor("F64", 1.2345 * entry.want("q_rotated"))})
    with mock.patch.multiple(ranking, FIRST=(other(592.364),), NUMBERS=(other(1584.89),), LAST=(plain,)):
        assert [one.flag for one in traps([answer])] == ["rope.sign", "basic"]
        assert not diagnosed(entry, "q_rotated", answer.got["q_rotated"]).words.startswith("a guess: ")


RELU, NO_GATE = "you have relu as the activation before the last map", "the gate is left out"
LAST_MAPS = {RELU: lambda be: activated_by(be, relu), NO_GATE: lambda be: partial(ungated, be)}


@pytest.mark.parametrize(
    ("encoding", "words", "flag"),
    [
        ("gated_deltanet", RELU, "mix.gate"),
        ("gla", RELU, "mix.gate"),
        ("retnet", RELU, "mix.gate"),
        ("s4d", RELU, "mix.activation"),
        ("mamba", RELU, "mix.activation"),
        ("mamba", NO_GATE, "mix.activation"),
    ],
)
def test_an_activation_of_a_gate_is_the_gates(book, encoding, words, flag):
    """Where the encoding has such a flag; one that is no gate's has its own."""

    def otherwise(case, a):
        made = LAST_MAPS[words]
        mix = lambda mix, be, *given: mix(replace(be, activated_linear=made(be)), *given)
        return expected(case, a, around(case.config.encoding(0), "mix", mix))

    found = named(wrong(book, otherwise, *first_of(book, encoding, "op")))[0]
    assert (found.flag, found.words) == (flag, words)


def weights_of_few_digits(case, a):
    """Probabilities that were bfloat16."""
    found = expected(case, {n: x for n, x in a.items() if not n.startswith("cotangent.")})
    low = LOW["bfloat16"](found["probabilities"])
    return {**found, "probabilities": low, "output": low @ np.repeat(a["v"], case.H // case.G, 1)}


def tables_of_few_digits(case, a):
    """Cosines and sines that were bfloat16."""
    forward = {n: x for n, x in a.items() if not n.startswith("cotangent.")}
    low = lambda rotate, *place: in_tables(LOW["bfloat16"])(*rotate(*place))
    return expected(case, forward, around(case.config.encoding(0), "rotate", low))


def bias_of_few_digits(case, a):
    """Slopes times distances that were bfloat16."""
    forward = {n: x for n, x in a.items() if not n.startswith("cotangent.")}
    low = lambda bias, *given: LOW["bfloat16"](bias(*given))
    return expected(case, forward, around(case.config.encoding(0), "bias", low))


def decays_of_few_digits(case, a):
    """What a recurrence forgets by was bfloat16."""

    def call(name, plain, given, more):
        return plain(*(LOW["bfloat16"](x) if n == 1 else x for n, x in enumerate(given)), **more)

    mix = lambda mix, be, *given: mix(recurring(be, call), *given)
    forward = {n: x for n, x in a.items() if not n.startswith("cotangent.")}
    return expected(case, forward, around(case.config.encoding(0), "mix", mix))


@pytest.mark.parametrize(
    ("case", "change", "flag"),
    [
        ("none.attn/default", weights_of_few_digits, "attn.softmax"),
        ("gated_deltanet.op/default", decays_of_few_digits, "delta.decay"),
        ("rwkv6.op/default", decays_of_few_digits, "rwkv.decay"),
        ("rope.op/default", tables_of_few_digits, "rope.phase.low_precision"),
        ("alibi.attn/heads-12", bias_of_few_digits, "rope.phase.low_precision"),
    ],
)
def test_what_is_right_but_for_digits_is_a_guess(book, case, change, flag):
    """It says which quantity has 16 bits."""
    entry = book.entries[case]
    came = change(rebuilt(entry.words, entry.inputs()), entry.inputs())
    got = {n: Tensor("F64", np.asarray(x)) for n, x in came.items() if n in entry.outputs}
    first = weighed([Answer(entry, got)])[0]
    assert (first.trap.flag, first.alone) == (flag, False)
    assert first.trap.words.endswith(("was bfloat16", "were bfloat16")), first


def with_backward(name, change):
    """A backward pass in which what this op hands back is another: change(gradients, cotangent)."""
    other = lambda one: (
        after_it(lambda got, saved, dy: change(got, dy))(one.op.backward)
        if one.name == name
        else one.op.backward
    )
    return lambda case, a: expected(case, a, None, None, Altered(other))


@pytest.mark.parametrize(
    ("case", "op", "lost"),
    [
        ("retnet.op/default", "swiglu", "g.weight"),
        ("gla.op/default", "log_sigmoid", "g.bias"),
        ("mamba.op/default", "swiglu", "z.weight"),
    ],
)
def test_a_derivative_that_is_zero_is_the_root(book, case, op, lost):
    """Of what x lacks, to which the same path leads."""
    cut = with_backward(op, lambda got, dy: [0 * got[0], *got[1:]])
    some = wrong(book, cut, case)
    assert "vjp.x" in Answer(*some[0]).wrong
    first = weighed([Answer(*some[0])])[0]
    assert (first.trap.flag, first.whole and first.alone) == ("grad.zero", True), first
    assert first.trap.words.endswith(f"vjp.param.{lost} is zero throughout")


def test_a_state_handed_in_without_a_gradient(book):
    case = "gla.op/handed-state"
    lost = lambda c, a: expected(c, a) | {"vjp.state.s": 0 * a["state.s"]}
    first = weighed([Answer(*wrong(book, lost, case)[0])])[0]
    assert (first.trap.flag, first.whole and first.alone) == ("state.first", True), first


def unit_of_a_constant_length(one):
    """The derivative of x / |x| as if |x| were a constant."""
    return (lambda saved, dy: (saved[1] * dy,)) if one.name == "unit" else one.op.backward


def frequencies_of_queries_alone(one):
    """Keys hand nothing back to the angles that they turn by."""
    cut = after_it(lambda got, saved, dy: [got[0], *(g if g is None else 0 * g for g in got[1:])])
    return cut(one.op.backward) if one.step == ("turn", 1) else one.op.backward


@pytest.mark.parametrize(
    ("case", "other", "sure"),
    [
        ("rope_mixed.op/default", frequencies_of_queries_alone, True),
        ("kda.op/default", unit_of_a_constant_length, False),
    ],
)
def test_a_part_of_a_sum_is_what_one_use_hands_back(book, case, other, sure):
    """A term that is missing within one step is only a guess."""
    lost = lambda case, a: expected(case, a, None, None, Altered(other))
    first = weighed([Answer(*wrong(book, lost, case)[0])])[0]
    assert (first.trap.flag, first.whole, first.alone) == ("grad.sum", True, sure), first


@pytest.mark.parametrize(
    ("case", "name", "axis", "n", "words"),
    [
        ("rwkv6.op/default", "vjp.param.bonus", 0, 1, "sequence in shares 0, 1, expected"),
        ("shaw.attn/default", "vjp.param.value", 1, 0, "head in shares 1, 0, 0, 0, 0, 0, expected"),
    ],
)
def test_a_derivative_of_one_sequence_or_head_alone(book, case, name, axis, n, words):
    """However little is lost; where heads share a parameter, each of them counts."""
    kept = lambda x: x * (np.arange(x.shape[axis]) == n).reshape(-1, *[1] * (x.ndim - 1 - axis))

    def lost(case, a):
        one = {n: kept(x) if n.startswith("cotangent.") else x for n, x in a.items()}
        return expected(case, a) | {name: expected(case, one)[name]}

    first = weighed([Answer(*wrong(book, lost, case)[0])])[0]
    assert (first.trap.flag, first.whole and first.alone) == ("grad.sum", True), first
    assert f"{name} has the parts of each {words}" in first.trap.words


def test_sinks_that_are_scaled(book):
    other = lambda case, a: expected(case, a | {"param.sinks": a["param.sinks"] * case.D**-0.5})
    first = weighed([Answer(*wrong(book, other, "none.attn/sinks")[0])], probes=False)[0]
    assert (first.trap.flag, first.whole and first.alone) == ("sinks.scaled", True), first


@pytest.mark.parametrize(
    ("case", "op", "sure"),
    [
        ("gated_deltanet.op/default", "softplus", False),
        ("kerple_log.op/default", "softplus", False),
        ("gla.op/default", "scaled", True),
    ],
)
def test_a_factor_of_each_number_is_a_guess(book, case, op, sure):
    """A link of the chain rule that is forgotten; one number for a whole derivative is named for sure."""
    forgotten = with_backward(op, lambda got, dy: [None if g is None else dy for g in got])
    first = weighed([Answer(*wrong(book, forgotten, case)[0])])[0]
    assert (first.trap.flag, first.whole, first.alone) == ("grad.factor", True, sure), first


def in_turns(case, a):
    """Angles 2 pi times as large, in float32."""
    turned = lambda f, *place: (lambda phi, *g: (np.float32(2 * np.pi) * np.float32(phi), *g))(*f(*place))
    return expected(case, a, around(case.config.encoding(0), "rotate", turned))


def test_a_bug_rounds_as_its_own_formula_does(book):
    """Angles so large lose more digits than the right ones."""
    some = wrong(book, in_turns, "dynamic_ntk.op/default", "dynamic_ntk.op/long")
    first = weighed([Answer(entry, got) for entry, got in some])[0]
    assert (first.trap.flag, first.whole, first.alone) == ("rope.frequencies", True, True), first


def test_a_budget_that_lets_the_right_numbers_pass_tells_nothing(book):
    """A guess that moves far with any rounding agrees with everything."""
    entry = book.entries["rope.op/default"]
    far = lambda answer: {n: x * (1 + 1e9 * (answer.turned((0.0 * x + 1,))[0] - 1)) for n, x in came.items()}
    want = {n: entry.want(n) for n in ("q_rotated", "k_rotated")}
    came = {n: 1.1 * x for n, x in want.items()}
    answer = Answer(entry, {n: Tensor("F32", np.float32(1.11 * x)) for n, x in want.items()})
    assert answer.fits(guess("basic", "", far)) == 0
    assert answer.moves  # what came is nearer to it than to what is right: its own budget was asked


def test_a_near_miss_that_came_in_one_case_of_two(book):
    """Who reads every other row reads at the end what somebody reads whose rows end one earlier."""

    def by_two(case, a):
        n = np.arange(a["param.table"].shape[1])
        return expected(case, a | {"param.table": a["param.table"][:, 2 * n % len(n)]})

    cases = (name for name, e in book.entries.items() if name.startswith("learned_bias.table/"))
    assert named(wrong(book, by_two, *cases))[0].flag == "bias.rows"


def test_a_fitted_power_is_the_one_that_somebody_writes(book):
    """In float32 too, in which a fit has seven digits."""
    base = lambda case, a: held(base=case.config.pe[0][1]["base"] ** 0.35)(case, a)
    first = weighed(
        [Answer(entry, got) for entry, got in wrong(book, base, "rope.table/default", "rope.op/long")]
    )[0]
    assert (first.trap.flag, first.trap.words.endswith("power of 0.35")) == ("rope.exponent", True), first
    assert first.misfit < 0.1


def held(**options):
    return lambda case, a: expected(replace(case, options=case.options | options), a)


def test_an_option_that_is_held_comes_before_a_changed_formula(book):
    """The simpler story of two that give all."""
    cases = ("transformer_xl.op/default", "transformer_xl.op/odd", "transformer_xl.op/clamp-3")
    first = weighed([Answer(entry, got) for entry, got in wrong(book, held(divided="not"), *cases)])[0]
    assert (first.trap.flag, first.whole and first.alone) == ("option", True), first


def test_a_formula_that_an_option_held_at_a_number_gives_too_is_a_guess(book):
    """A factor of 4 that is squared is 16; a case with another factor tells them apart."""
    squared = lambda case, a: held(factor=case.config.pe[0][1]["factor"] ** 2)(case, a)
    for more, told in (("pi.op/default", False), ("pi.table/factor-8.0", True)):
        some = wrong(book, squared, "pi.table/default", more)
        first = weighed([Answer(entry, got) for entry, got in some])[0]
        assert (first.trap.flag, first.whole, first.alone) == ("rope.factor.twice", True, told), first
        assert told or "the option factor seems to be 16" in first.trap.evidence


def test_what_outputs_have_not_is_a_bug_of_their_derivative(book):
    """A backward pass that turns by positions one too large."""

    def late(case, a):
        i = case.at.i + 1
        other = expected(case, a, None, replace(case.at, i=i, j=i))
        return expected(case, a) | {name: x for name, x in other.items() if name.startswith("vjp.")}

    first = named(wrong(book, late, "rope.op/default", "rope.op/long"))[0]
    assert (first.flag, "one too large" in first.words) == ("grad.rotation", True), first


def test_an_option_that_is_read_for_another_is_no_story_as_simple(book):
    """beta_slow is 1, as the factor of somebody who does not scale."""
    some = wrong(book, held(factor=1.0), "yarn.table/default", "yarn.table/factor-8.0")
    first = weighed([Answer(entry, got) for entry, got in some])[0]
    assert (first.trap.flag, first.whole, first.alone) == ("rope.factor.ignored", True, True), first
