"""The exponential that kernels compute, against that of float64: how far it is off, and what it does where
float32 ends.
"""

import numpy as np
import pytest
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.activations import pointwise
from peref.backends.numba.kernel import OPTIONS


@intrinsic
def wide_row(typingctx, x, y, at, n):
    """y = exp(x) for any x."""
    return pointwise([x], [y], lambda e, x: [e.exp(x)])


@intrinsic
def low_row(typingctx, x, y, at, n):
    """y = exp(x) for x up to 80."""
    return pointwise([x], [y], lambda e, x: [e.exp_of_less(x)])


@njit(**OPTIONS)
def wide(x, y):
    wide_row(x, y, 0, len(x))


@njit(**OPTIONS)
def low(x, y):
    low_row(x, y, 0, len(x))


def of(function, x):
    x = np.asarray(x, np.float32)
    y = np.empty_like(x)
    function(x, y)
    return y


ROUNDED = abs(float(np.float32(np.log(2))) - np.log(2))


@pytest.mark.parametrize(("function", "top", "parts"), [(wide, 88.7, 0), (low, 80, ROUNDED)])
def test_a_unit_and_a_half_at_most(function, top, parts):
    """From the smallest to the largest, also around every n ln(2), where the whole part changes. Where n
    ln(2) is taken in one part it is off by n times what ln(2) is rounded by.
    """
    edges = np.arange(-126, 128) * np.log(2)
    x = np.concatenate(
        [np.linspace(-87.2, top, 100_003), edges, np.nextafter(edges, 99), edges + np.log(2) / 2]
    ).astype(np.float32)
    x = x[(x > -87.2) & (x <= top)]
    want = np.exp(x.astype(np.float64))
    units = 1.5 * np.spacing(want.astype(np.float32)) + parts * abs(x / np.log(2)) * want
    assert (abs(of(function, x) - want) <= units).all()
    assert of(function, np.zeros(37)).tolist() == [1.0] * 37


@pytest.mark.parametrize("function", [wide, low])
def test_what_is_far_below_is_nothing_and_nan_stays(function):
    """A masked cell weighs exactly 0."""
    assert of(function, [-87.31, -88, -1e4, -3e38, -np.inf]).tolist() == [0.0] * 5
    assert np.isnan(of(function, np.full(33, np.nan))).all()


def test_what_is_too_large_is_infinite():
    assert of(wide, [88.73, 89, 100, 3e38, np.inf]).tolist() == [np.inf] * 5
