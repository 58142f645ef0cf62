"""The exam of benchmarks/bugs is well formed: names, links, flags, right programs that pass, bugs that
act.
"""

import collections
import json
import re
from pathlib import Path

import numpy as np
import pytest
from check import apart

from benchmarks.bugs.__main__ import LEVELS, called_rightly, counted
from benchmarks.bugs.ask import answer, cases
from benchmarks.bugs.bugs import BUGS
from benchmarks.bugs.later import LATER
from benchmarks.bugs.right import RIGHT

ROOT = Path(__file__).parent.parent
SPEC = (ROOT / "golden" / "SPEC.md").read_text()
FLAGS = set(re.findall(r"^\| `([a-z0-9_.]+)` \| [A-Z_]+ \|", SPEC, re.M))


def test_the_set_is_large_and_varied():
    bugs = BUGS.values()
    levels = collections.Counter(b.level for b in bugs)
    assert len(BUGS) >= 250
    assert levels["trace"] >= 40
    assert sum(b.backward for b in bugs) >= 40
    assert set(levels) == {"table", "op", "attn", "trace"}
    assert len({b.encoding for b in bugs}) >= 25
    assert len({b.link for b in bugs}) >= 120
    assert max(collections.Counter(b.idea for b in bugs).values()) <= 6
    assert sum(not b.accepts for b in bugs) < len(BUGS) / 10


def test_later_flags_are_of_bugs_that_have_others():
    for flag, names in LATER.items():
        assert flag in FLAGS
        assert all(BUGS[name].accepts and flag not in BUGS[name].accepts for name in names)


def test_the_figures_of_the_page_are_those_of_the_answers():
    """Of the last run of the whole: which bugs were asked, and each row of its tables."""
    page = (ROOT / "docs" / "diagnosis.md").read_text()
    whole = json.loads((ROOT / "benchmarks" / "results" / "bugs.json").read_text())
    words = re.findall(r"^- 0\.1[45]\.0: ([^;:]*?),? whose cases", SPEC, re.M | re.S)
    later = {name for some in words for name in re.split(r",\s+|\s+and\s+", some)}

    def told(start, some, rest):
        """Whether one line has: how many were noticed, were right first, and were called so rightly."""
        count = lambda key: sum(answer[key] for _, answer in some)
        probable = [one for one in some if one[1]["confirmed"]]
        called = f"{sum(called_rightly(*one) for one in probable)} of {len(probable)}"
        row = [f"{start} {len(some)} | {count('noticed')} ", f"| {count('right')} (", f"| {called}{rest}"]
        return any(all(words in line for words in row) for line in page.splitlines())

    for dtype, name in (("f64", "float64"), ("f32", "float32")):
        some = [(BUGS[name], answer) for name, answer in whole["found"][dtype].items()]
        assert [b.name for b, _ in some] == [b.name for b in BUGS.values() if dtype in b.dtypes]
        assert all(counted(b, answer) == answer for b, answer in some)
        assert told(f"| {name} |", [one for one in some if one[0].encoding in later], " |")
        first = [one for one in some if one[0].encoding not in later]
        rows = {level: [one for one in first if one[0].level == level] for level in LEVELS} | {"all": first}
        if dtype == "f64":
            assert all(told(f"| {level} |", row, " ") for level, row in rows.items())
        noticed, right = (sum(answer[key] for _, answer in first) for key in ("noticed", "right"))
        assert dtype == "f64" or f"In float32 {noticed} of the 558 were noticed, {right} (" in page


def test_each_bug_is_described():
    for bug in BUGS.values():
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", bug.link), bug
        assert bug.accepts <= FLAGS, bug
        assert bug.wrong.endswith("."), bug
        assert bug.name.startswith(bug.encoding), bug
        assert set(bug.levels) <= set(RIGHT[bug.encoding].levels), bug


@pytest.mark.parametrize("encoding", list(RIGHT)[1::8])
def test_right_programs_pass(encoding):
    found = answer("right", encoding, RIGHT[encoding].levels, "f32")
    assert found["compared"] > 20
    assert found["failed"] == 0


def changed(case, bug):
    """The case as it is, or with the options and facts with which the bug shows."""
    return case | {k: case[k] | bug.where[k] for k in ("options", "facts") if k in bug.where}


@pytest.mark.parametrize("encoding", RIGHT)
def test_bugs_act(encoding):
    bugs = [b for b in BUGS.values() if b.encoding == encoding]
    asleep = {b.name for b in bugs}
    for case, inputs in cases(encoding, RIGHT[encoding].levels):
        if "before" in case["facts"]:  # which the programs do not claim
            continue
        for bug in bugs:
            if bug.name not in asleep or case["level"] not in bug.levels:
                continue
            given = (
                inputs | {"positions": bug.where["positions"](inputs["positions"])}
                if "positions" in bug.where
                else inputs
            )
            with np.errstate(all="ignore"):
                want, came = (
                    made(changed(case, bug), given, np.float64).answer()
                    for made in (RIGHT[encoding], bug.made())
                )
            close = {k: apart(came[k], want[k], 1e-9) is None for k in want}
            if bug.backward:
                assert all(same for k, same in close.items() if k[:4] != "vjp."), bug.name
            if not all(close.values()):
                asleep.discard(bug.name)
    assert not asleep
