"""What is said of failures that no trap explains: levels, beginnings, laws, and what failing cases share."""

import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from golden_files import cli, dumped

from peref.golden.diagnosis import near_misses, ranking
from peref.golden.diagnosis.answer import Trap, guess
from peref.golden.diagnosis.summary import Probable, Summary
from peref.golden.diagnosis.support import Said
from peref.golden.diagnosis.variants import attempted
from peref.golden.judge.html import report_page
from peref.golden.judge.judged import check_tensors
from peref.golden.judge.report import merged, report_data
from peref.golden.judge.result import Outcome
from peref.golden.judge.selection import Pick
from peref.golden.judge.text import probable_block, unexplained_block
from peref.golden.judge.unexplained import of_shared, unexplained
from peref.golden.spec.cases import rebuilt
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor


def scrambled(x):
    """Numbers that no bug gives."""
    return np.random.default_rng(0).standard_normal(x.shape)


def report_of(book, encoding, levels, change):
    """What comes from somebody for whom change(case, tensors) is the right tensors, changed."""
    given = {}
    for entry in book.entries.values():
        if entry.words["encoding"] == encoding and entry.words["level"] in levels:
            case = rebuilt(entry.words, entry.inputs())
            came = change(case, {n: np.array(entry.want(n)) for n in entry.outputs})
            given |= {
                f"{entry.id}:{n}": Tensor("F32", x.astype(np.float32))
                for n, x in came.items()
                if entry.want(n).dtype.kind == "f"
            }
    return check_tensors(book, given, Pick())


def by_layout(case, right):
    wrong = case.level == "op" and case.layout == "interleaved"
    return {n: scrambled(x) for n, x in right.items()} if wrong else right


@pytest.fixture(scope="module")
def planted(book):
    return report_of(book, "rope", ("table", "op"), by_layout)


def test_a_bug_of_one_layout(planted):
    """The table right, the op wrong, and which fact tells the failing cases from the right ones."""
    assert not any(one.confirmed for one in planted.probable)
    (one,) = planted.unexplained
    assert one.encoding == "rope"
    assert one.known["levels"].startswith("table right (")
    assert "op wrong (2 of " in one.known["levels"]
    assert one.known["shared"] == "all 2 failing cases have layout interleaved; no right one at op has"
    assert one.known["begins"] == "the first token is wrong already"
    assert one.known["catches"].startswith("rope.layout.half: ")


def test_told_in_text_json_and_html(book, planted):
    (one,) = planted.unexplained
    block = unexplained_block(one)
    assert str(block).startswith("UNEXPLAINED rope: no known bug gives what came")
    assert "shared        all 2 failing cases have layout interleaved; no right one at op has" in block.lines
    (said,) = json.loads(json.dumps(report_data(planted, book)))["unexplained"]
    assert (said["encoding"], said["known"]) == ("rope", dict(one.known))
    page = report_page(planted, book)
    assert "no known bug gives what came" in page
    assert all(line in page for line in block.lines)


def test_told_on_the_terminal(book, capsys, tmp_path):
    """`check` as people meet it."""
    out = {}
    for slug in ("default", "interleaved", "partial"):
        entry = book.entries[f"rope.op/{slug}"]
        right = {n: entry.want(n) for n in entry.outputs}
        came = by_layout(rebuilt(entry.words, entry.inputs()), right)
        out |= {f"{entry.id}:{n}": ("F32", x.astype(np.float32)) for n, x in came.items()}
    code, text = cli(capsys, "check", dumped(tmp_path / "out.safetensors", out))
    assert code == 1
    assert "UNEXPLAINED rope: no known bug gives what came" in text, text
    assert "  shared        the failing case has layout interleaved; no right one at op has" in text, text


def after_the_first_call(case, right):
    for first, stop, fresh, _ in case.calls:
        if not fresh:
            right["out"][:, :, first:stop] = scrambled(right["out"][:, :, first:stop])
    return right


def test_where_a_trace_begins_to_be_wrong(book):
    (one,) = report_of(book, "alibi", ("trace",), after_the_first_call).unexplained
    assert one.known.pop("left out").endswith(" changed formulas could not be computed")
    assert one.known == {
        "levels": "trace wrong (5 of 5 cases)",
        "begins": "5 of 5 failing cases begin to be wrong at tokens 2 to 4, where a call with a cache begins",
    }


def test_derivatives_alone(book):
    """Outputs that are right are said to be, and nothing is said of tokens."""
    change = lambda case, right: {n: scrambled(x) if n == "vjp.q" else x for n, x in right.items()}
    (one,) = report_of(book, "rope", ("op",), change).unexplained
    assert one.known["tensors"] == "all outputs are right; wrong are vjp.q"
    assert "begins" not in one.known


def test_what_could_not_be_computed_is_told_where_nothing_is_named(book):
    """Beside a guess the evidence says it; in several dtypes it is said of each encoding once."""
    program = guess("rope.sign", "a formula", attempted(lambda answer: len(1)))
    stages = dict.fromkeys(("FIRST", "NUMBERS", "LAST"), ()) | {"FORMULAS": (lambda _: [program],)}
    change = lambda case, right: {n: scrambled(x) for n, x in right.items()}
    nothing = mock.patch.object(ranking, "of_flags", return_value={})
    with (
        mock.patch.multiple(ranking, **stages),
        mock.patch.object(near_misses, "likeness", return_value=[]),
        nothing,
    ):
        report = report_of(book, "rope", ("table",), change)
    assert not report.probable
    for one in (report, merged([report, report])):
        (found,) = one.unexplained
        assert found.known["left out"] == "1 changed formula could not be computed"


def test_which_laws_fail(planted):
    law = lambda name, held: Outcome({"encoding": "rope", "level": "law", "law": name}, held, "")
    outcomes = [law("shift", False), law("causal", True), law("packed", None)]
    assert unexplained(planted.results, outcomes, (), {})[0].known["laws"] == "shift fails"


def test_nothing_where_a_trap_is_confirmed(book, planted):
    """Nor where everything is right, nor of another shape; a guess does not count as a trap."""
    assert not report_of(book, "rope", ("op",), lambda case, right: right).unexplained
    trap = lambda confirmed: Probable(Trap("basic", "words", "evidence"), ("rope",), confirmed, confirmed)
    assert not unexplained(planted.results, (), [trap(True)], {})
    assert unexplained(planted.results, (), [trap(False)], {})
    assert str(probable_block(trap(False))).startswith("GUESS basic in rope: words\n")
    assert str(probable_block(trap(True))).startswith("PROBABLE basic in rope: words\n")
    cut = lambda case, right: {n: x[:1] for n, x in right.items()}
    assert not report_of(book, "rope", ("op",), cut).unexplained


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("option", []),
        ("alibi.slopes.non_pow2", ["4 of 4 failing cases are there to catch it, and 0 of 14 right ones"]),
    ],
)
def test_a_flag_that_no_failing_case_is_there_to_catch_is_no_guess(book, flag, told):
    """Of the encoding's own flags; what is known is said beside a guess, and where there is none."""
    fails = lambda case: flag in book.entries[case.id].words["flags"]
    change = lambda case, right: {n: scrambled(x) if fails(case) else x for n, x in right.items()}
    with mock.patch.object(near_misses, "likeness", return_value=[]):
        report = report_of(book, "alibi", ("table",), change)
    assert [one.trap.evidence.split("; ")[1] for one in report.probable] == told
    assert bool(told) == any(r.trap for r in report.failed)
    (one,) = report.unexplained
    assert one.known["levels"].startswith("table wrong (")


def entry_of(**facts):
    return Entry({"level": "op", "options": {}, "inputs": [], "facts": facts}, None)


def test_what_is_told_together_or_expected_is_left_out(planted):
    """What is right in another dtype, and what was foreseen, wants no explanation."""
    together = tuple(r if r.passed else replace(r, aside="right only to float32") for r in planted.results)
    assert not replace(planted, results=together).unexplained
    assert not replace(planted, known=("rope.op/*",)).unexplained


def test_sizes_only_where_nothing_else_is_shared():
    """A size is no story where a choice explains the same; without right cases nothing is told apart."""
    right = entry_of(T=7, D=8, window=None)
    wrong = [entry_of(T=9, D=8, window=3), entry_of(T=9, D=8, window=3)]
    assert of_shared(wrong, [right]) == "all 2 failing cases have window 3; no right one at op has"
    wrong = [entry_of(T=9, D=8, window=None)]
    assert of_shared(wrong, [right]) == "the failing case has T 9; no right one at op has"
    assert of_shared(wrong, [entry_of(T=9, D=4, window=None), right]) == ""
    assert of_shared(wrong, []) == ""


def test_what_is_sure_of_one_encoding_is_said_without_those_of_which_it_is_not():
    summary, trap = Summary([]), Trap("rope.base.ignored", "words", "evidence")
    summary.said = {"yarn": [Said(trap, 0.8)], "rope": [Said(trap, 1.0, whole=True)]}
    said = [(one.encodings, one.explains, one.confirmed) for one in summary.probable]
    assert said == [(("rope",), True, True), (("yarn",), False, False)]
