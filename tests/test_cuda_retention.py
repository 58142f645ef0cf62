"""The retention kernels, their own text run on the CPU, against the plain op in float64: output, last
state and every gradient.
"""

import ml_dtypes
import numpy as np
import pytest
from emulated.twins import BF16, CLOSE, TF32, distance, emulated, sent, twins
from test_ops import random

from peref.backends.cuda.retention import retention
from peref.encodings.mix.retnet import retention as plain

LOG = np.log1p(-(2.0 ** -np.arange(2.0, 5.0)))
RUNS = np.array([[0] * 20 + [1] * 46 + [2] * 74, [-1] * 70 + [1] * 60 + [-1] * 10, [0] * 140])


def arrays(B, T, D, E, state=True, runs=None):
    q, k, v = random(B, 3, T, D), random(B, 3, T, D, seed=1), random(B, 3, T, E, seed=2)
    return [q, k, v, random(B, 3, D, E) if state else None, runs]


SETTINGS = {"log_decay": LOG, "chunk": 16, "scale": 0.5}


@pytest.mark.parametrize(
    ("T", "D", "E", "state"),
    [(1, 4, 6, True), (1, 3, 2, False), (63, 33, 8, True), (65, 8, 70, False), (130, 70, 5, True)],
)
def test_at_every_edge_of_a_chunk(T, D, E, state):
    """One less and one more than a chunk, widths that are no tile's, with a state handed in and without."""
    twins(retention, plain, arrays(1, T, D, E, state), SETTINGS)


@pytest.mark.parametrize("state", [True, False])
def test_runs(state):
    """Documents that begin within a chunk and at none of its ends, padding before and after, one run
    throughout.
    """
    twins(retention, plain, arrays(3, 140, 5, 6, state, RUNS), SETTINGS, seeds=(1,))


@pytest.mark.parametrize(
    "kind", [{"dtype": ml_dtypes.bfloat16, "tolerance": BF16}, {"tolerance": TF32}], ids=["bfloat16", "tf32"]
)
def test_narrow_numbers(kind):
    fast = retention if "dtype" in kind else lambda *a, **k: retention(*a, **k, tf32=True)
    found = twins(fast, plain, arrays(1, 70, 33, 6), SETTINGS, **kind)
    assert max(found) > CLOSE, "these are the exact numbers"


@pytest.mark.parametrize("T", [1, 64, 70])
def test_the_last_state(T):
    """Is that of the plain op, and goes on where it was left."""
    given = [a if a is None else a.astype(np.float32) for a in arrays(1, T, 4, 6)]
    want = plain(*(a if a is None else a.astype(np.float64) for a in given), **SETTINGS)[1]
    with emulated() as cupy:
        got = retention(*sent(cupy, given), **sent(cupy, SETTINGS))[1].get()
    assert got.dtype == np.float32
    assert distance(got, want) <= CLOSE
