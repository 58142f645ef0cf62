"""No golden case lets through who ignores an option or a fact, or reads it as what lies near (nearest.py): at
each level above the table every such reading that changes a number fails a case in float32, and so does each
of any two that meet, in one case, and who reads both and leaves out what they do to one another.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import nearest
import numpy as np
import pytest
from level_mutants import heads_in_turn
from making.catalogue import core, full
from mutants.table import in_dtype

from peref.encodings import get, names, options
from peref.golden.compute.reference import expected, inputs
from peref.golden.compute.trace import trace_outputs
from peref.golden.spec.book import open_book
from peref.golden.spec.cases import LEVELS_OF_HOOK
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@cache
def entries():
    return open_book(GOLDEN).entries


@cache
def by_encoding():
    found = {}
    for case in (*core(), *full()):
        found.setdefault(case.encoding, []).append(case)
    return found


@cache
def every_case(name):
    """Those of an encoding alone, of the core and of the full set."""
    return [case for case in by_encoding()[name] if not case.cycle]


def fails(case):
    """Whether what came fails the case as it stands in the files."""
    entry = entries()[case.id]

    def judged(got, _):
        grades = (
            verdict_on(
                *(Tensor("F32", got[name].astype(np.float32)), entry.want(name), *entry.budget(name)),
                entry.words["depth"],
            ).grade
            for name in entry.outputs
            if name in got
        )
        return "FAIL" in grades

    return judged


def holes(name, level, without=()):
    """What changes a number at the level, alone or with another reading, and fails no case. Cases are asked
    until none is left, those first that were made for many.
    """
    alone, pairs = nearest.matters(name, level)
    cases = [case for case in every_case(name) if case.level == level and case.slug not in without]
    met = set()
    for case in sorted(cases, key=lambda case: not case.slug.startswith("together-")):
        left = alone.union(*pairs)
        # aligned ones are larger, and otherwise as the default
        if left and not (case.variants or case.slug.startswith("aligned-")):
            judged, asked = fails(case), nearest.of_case(case)
            found = nearest.shown(asked, [one for one in nearest.of(name) if one in left], judged)
            both = [two for two in nearest.together(found) if two in pairs]
            alone, met = alone - found.keys(), met.union(both)
            for two in both:
                if judged(nearest.added(asked, two, found), None):
                    del pairs[two]
    lone = [two for two, probe in pairs.items() if two not in met or nearest.interact(two, probe)]
    return sorted(map(str, alone)), sorted(" with ".join(map(str, two)) for two in lone)


LEVELS = [(name, level) for name in names() for level in LEVELS_OF_HOOK[get(name).hook] if level != "table"]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_what_is_read_otherwise_fails_a_case(name, level):
    """Alone, and together with what else is read otherwise."""
    alone, pairs = holes(name, level)
    assert alone == [], f"no case of {name} at level {level} notices {alone}; add settings to `together`"
    assert pairs == [], f"no one case of {name} at level {level} notices {pairs}; add settings to `together`"


def test_without_the_cases_that_close_it_a_hole_is_found():
    """So the test above can fail: for a reading alone, and for two."""
    places = ("", "-real", "-groups")
    alone, pairs = holes("pi", "op", without={f"together-{n}{place}" for n in (1, 2) for place in places})
    assert "original: ignored" in alone
    assert "n: L times the whole quotient" in alone
    assert "original: ignored with R: frequencies of the head width" in pairs
    added = "window: none with distance: without sign"
    assert added in holes("alibi", "op", without={"window-sides"})[1]


@pytest.mark.parametrize("name", [n for n in names() if get(n).axes is not None and get(n).hook != "mix"])
def test_slots_for_positions_fail_a_trace(name):
    """Positions go through a cache as they are."""
    noticed = []
    for case in (case for case in every_case(name) if case.slug.startswith("moved")):
        a, slots = inputs(case), np.arange(case.T)
        got = expected(case, a, None, replace(case.at, i=slots, j=slots))
        noticed.append(fails(case)(got, None))
    assert any(noticed)


@pytest.mark.parametrize("name", [name for name in names() if get(name).hook not in ("embed", "mix")])
def test_heads_dealt_out_in_turn_fail_a_trace_although_a_prefill_is_right(name):
    """Programs repeat the key-value heads of a cache in other lines than those of a prefill."""
    cases = [case for case in every_case(name) if case.level == "trace" and case.G > 1]
    assert any(fails(case)(heads_in_turn(case, inputs(case)), None) for case in cases)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
@pytest.mark.parametrize("name", [name for name in names() if get(name).hook == "mix"])
def test_a_state_kept_in_16_bits_between_calls_fails_a_trace(name, dtype):
    """Each that sums over all tokens, also where all else is exact and what comes is float32."""
    cases = [case for case in every_case(name) if case.level == "trace"]
    coarse = lambda x: in_dtype(x, dtype).wide

    def kept(case, sums):
        def before(number, pe, at, old):
            state = (old or {}).get("state", {})
            return pe, at, {"state": {n: coarse(x) if n in sums else x for n, x in state.items()}}

        return trace_outputs(case, inputs(case), before=before)

    with np.errstate(over="ignore", invalid="ignore"):
        assert any(fails(case)(kept(case, "sh"), None) for case in cases), f"no trace of {name} notices it"
        assert not any(fails(case)(kept(case, ""), None) for case in cases)


@pytest.mark.parametrize("name", [name for name in names() if options(get(name))])
def test_every_option_is_away_from_its_default_above_the_table(name):
    """At each level above the table; in a model, where it changes no number of one layer."""
    for option, (default, _) in options(get(name)).items():
        away = {case.level for case in every_case(name) if nearest.chosen(case)[option] != default}
        levels = {level for one, level in LEVELS if one == name}
        assert levels <= away or "model" in away, f"{option} of {name} is at its default but in {away}"
