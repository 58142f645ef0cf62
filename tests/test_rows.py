"""Sums over equal indices: the same on NumPy and on a device, where no order of adding is left to chance."""

import fake_cupy
import numpy as np
import pytest
from check import same

from peref.ops import rows
from peref.ops.embedding import take


def both(function, *arrays):
    """What function gives of the arrays on NumPy, and on the device."""
    with fake_cupy.installed() as cp:
        return function(*arrays), function(*map(cp.asarray, arrays)).get()


@pytest.mark.parametrize(("cells", "rounds"), [(1, 256), (40, 256), (1 << 24, 256), (1, 6)])
def test_rows_are_added_alike(rng, monkeypatch, cells, rounds):
    """Whatever fits at once, and sorted; rows that nobody names stay, what is named twice counts twice."""
    monkeypatch.setattr(rows, "LAID_OUT", cells)
    monkeypatch.setattr(rows, "ROUNDS", rounds)
    to, index, x = (
        rng.standard_normal((7, 3)),
        np.array([[1, 6, 1], [0, 1, 6]]),
        rng.standard_normal((2, 3, 3)),
    )

    def added(to, index, x):
        to = to.copy()
        rows.add_rows(to, index, x)
        return to

    want, got = both(added, to, index, x)
    same(got, want, 1e-14)
    same(got[2:6], to[2:6], 0)


@pytest.mark.parametrize("sums", [rows.sums, rows.sorted_sums])
def test_a_bad_number_spoils_its_row_alone(sums):
    """NaN goes to the row whose index it has, and to no other."""
    with fake_cupy.installed() as cp:
        found = sums(cp.asarray([0, 1, 1]), cp.asarray([1.0, np.nan, 2.0]), 3).get()
    same(found, np.array([1, np.nan, 0]), 0)


def test_many_rows_take_few_kernels(monkeypatch):
    """Of 4,096 rows and 4,096 numbers fewer than a hundred; the sums are those of NumPy, in one order."""
    index, x = np.random.default_rng(0).integers(-3, 5000, 4096), np.random.default_rng(1).random((2, 4096))
    monkeypatch.setattr(rows, "LAID_OUT", 1)
    with fake_cupy.installed() as cp:
        there, before = (cp.asarray(index), cp.asarray(x)), fake_cupy.counts().get("calls", 0)
        got = rows.sums(*there, 4096)
        assert fake_cupy.counts()["calls"] - before < 100
        assert fake_cupy.counts().get("syncs", 0) == 0
    seen = (index >= 0) & (index < 4096)
    same(got.get(), np.stack([np.bincount(index[seen], one[seen], 4096) for one in x]), 1e-14)


def test_bfloat16_is_summed_in_more():
    """300 ones are 300, rounded once; added one at a time in bfloat16 they would stop at 256."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with fake_cupy.installed() as cp:
        ones = cp.ones((300, 2), ml_dtypes.bfloat16)
        _, saved = take.forward(cp.ones((3, 2), ml_dtypes.bfloat16), cp.asarray([1] * 300))
        (dtable, _) = take.backward(saved, ones)
        assert dtable.dtype == ml_dtypes.bfloat16
        assert dtable.astype(np.float32).tolist() == [[0, 0], [300, 300], [0, 0]]
