"""The exam of benchmarks/bugs is well formed: names, links, flags, right programs that pass, bugs that
act.
"""

import collections
import re
from pathlib import Path

import numpy as np
import pytest
from check import apart

from benchmarks.bugs.ask import answer, cases
from benchmarks.bugs.bugs import BUGS
from benchmarks.bugs.later import LATER
from benchmarks.bugs.right import RIGHT

SPEC = (Path(__file__).parent.parent / "golden" / "SPEC.md").read_text()
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


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_is_described(bug):
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", bug.link)
    assert bug.accepts <= FLAGS
    assert bug.wrong.endswith(".")
    assert bug.name.startswith(bug.encoding)
    assert set(bug.levels) <= set(RIGHT[bug.encoding].levels)


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
