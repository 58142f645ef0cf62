"""What the numba backend deals out in pieces, rows or single numbers, at both sides of the edge of a piece
and over several: the plain ops.
"""

import numpy as np
import pytest
from check import same
from test_numba import CLOSE, NUMBA, PLAIN, both
from test_ops import positive, random

from peref.backends.numba.rows import ROW_CHUNK, STRETCH
from peref.backends.numba.turn import LARGE

ROWS = (1, 7, 8, ROW_CHUNK - 1, ROW_CHUNK, ROW_CHUNK + 1, 2 * ROW_CHUNK + 2)
NUMBERS = (1, STRETCH - 1, STRETCH, STRETCH + 1, 2 * STRETCH + 8)


@pytest.mark.parametrize("C", [5, 33, 64])
@pytest.mark.parametrize("M", ROWS)
def test_rows_at_every_edge(M, C):
    """Norms, the loss with targets that do not count, and rows of a table."""
    x = random(M, C)
    both("rms_norm", [x, random(C)], {"eps": 1e-5})
    both("layer_norm", [x, random(C), random(C, seed=1)], {"eps": 1e-5})
    both("take", [random(9, C), np.arange(M) * 5 % 8], {})
    targets = np.arange(M) % (C + 1) - 1
    targets[-1] = C - 1
    both("cross_entropy", [x, targets], {})


@pytest.mark.parametrize("n", NUMBERS)
def test_adamw_at_every_edge(n):
    """Parameters and moments after a step from moments that are there, with gradients that are cut."""
    given = [random(n), random(n, seed=1), 0.1 * random(n, seed=2), positive(n)]
    rest = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1}
    found = []
    for be, dtype in ((PLAIN, np.float64), (NUMBA, np.float32)):
        p, g, m, v = (a.astype(dtype) for a in given)
        be.adamw(p, g, m, v, np.asarray(0.01), np.asarray(3), np.asarray(0.7), **rest)
        found.append([a.astype(np.float64) for a in (p, m, v)])
    for want, got in zip(*found, strict=True):
        same(got, want, CLOSE)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("T", [t for t in ROWS if t > 8])
def test_turning_at_every_edge(T, layout):
    """Channels that are no whole vector, beside some that pass; of arrays that lie as a model's do, and of
    any strides.
    """
    x = random(2, T, 3, 46).swapaxes(1, 2)
    both("turn", [x, random(T, 21), positive(T, 21)], {"layout": layout})
    angle, narrow = random(2, T, 21), x.astype(np.float32)
    for y in (narrow, np.ascontiguousarray(narrow), np.asfortranarray(narrow)):
        same(NUMBA.turn(y, angle, None, layout=layout), PLAIN.turn(narrow, angle, None, layout=layout), CLOSE)


@pytest.mark.parametrize("R2", [128, 100, 6])
def test_large_arrays_are_turned_past_the_cache_at_every_edge(R2):
    """Also where channels pass; widths that are no multiple of 4 are written as small arrays are."""
    x = random(1, LARGE // (2 * 256) + 1, 2, 256).astype(np.float32).swapaxes(1, 2)
    assert x.size > LARGE
    angle = random(x.shape[2], R2)
    got = NUMBA.turn(x, angle, None, layout="half")
    for t in (slice(0, 70), slice(-70, None)):
        same(got[:, :, t], PLAIN.turn(x[:, :, t], angle[t], None, layout="half"), CLOSE)
    a, b, c, d = (
        np.square(z, dtype=np.float64).sum()
        for z in (got[..., : 2 * R2], x[..., : 2 * R2], got[..., 2 * R2 :], x[..., 2 * R2 :])
    )
    same(np.array([a, c]), np.array([b, d]), CLOSE)
