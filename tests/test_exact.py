"""The tables against 50 digits: a relative error of 1e-12 in any of them, a bucket one off, a wrong
ladder; what making golden files then does.
"""

from dataclasses import replace

import exact
import numpy as np
import pytest
from making import confirmed
from making.catalogue import catalogue

from peref.golden.compute.reference import expected, inputs
from peref.golden.spec.cases import sized

TABLES = {case.id: case for case in catalogue() if case.level == "table"}


@pytest.mark.parametrize(
    "name", [name for name in TABLES if TABLES[name].slug not in ("far", "two-sided", "depth-4", "width-64")]
)
def test_a_table_is_what_50_digits_give(name):
    """All but the longest ones, which the maker has too."""
    case = TABLES[name]
    assert exact.known(case.encoding), f"tests/recipes/{case.encoding}.py has no formula in 50 digits (exact)"
    a = inputs(case)
    confirmed.against_exact(case, a, expected(case, a))


SPOILT = {  # case -> a tensor, and what is done to it
    "rope.table/default": ("angle", lambda x: x * (1 + 3e-12)),
    "rope.table/long": ("cos", lambda x: x + 3e-9),
    "yarn.table/llama-2": ("gain_q", lambda x: x * (1 + 2e-12)),
    "alibi.table/heads-12": ("bias", lambda x: x * (1 + 2e-12)),
    "t5.table/default": ("bias", lambda x: np.roll(x, 1, axis=1)),
    "t5.table/32-100": ("bias", lambda x: np.concatenate([x[:, :40], x[:, 39:40], x[:, 41:]], 1)),
    "sinusoidal.table/default": ("rows", lambda x: x[..., ::-1]),
    "kerple_power.table/default": ("bias", lambda x: x * (1 - 2e-12)),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_off_is_noticed(name):
    case, (tensor, change) = TABLES[name], SPOILT[name]
    a = inputs(case)
    want = expected(case, a)
    confirmed.against_exact(case, a, want)
    with pytest.raises(AssertionError, match=f"50 digits: {tensor}"):
        confirmed.against_exact(case, a, want | {tensor: change(want[tensor])})


def test_a_tensor_that_50_digits_do_not_know():
    """None is left out."""
    case = TABLES["rope.table/default"]
    a = inputs(case)
    want = expected(case, a)
    with pytest.raises(AssertionError, match="50 digits give"):
        confirmed.against_exact(case, a, want | {"gain_q": want["cos"]})


def test_nothing_is_given_out_when_they_disagree(monkeypatch):
    """Where array version and loop share a mistake, 50 digits do not."""
    case = sized("rope", "table", "default", "The usual.", ("basic",), T=3)
    both = lambda case, a, *more: {name: x * 1.5 for name, x in expected(case, a, *more).items()}
    monkeypatch.setattr(confirmed, "expected", both)
    monkeypatch.setattr(confirmed, "witnessed", lambda case, a: both(case, a))
    with pytest.raises(confirmed.Disagrees, match=r"rope\.table/default: 50 digits: angle"):
        confirmed.computed(case)
    confirmed.against_exact(replace(case, level="op"), {}, {})  # no table, nothing to compare
