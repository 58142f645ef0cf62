"""Attention of the numba backend over many tiles: queries in parts, and the bound by which tiles are
skipped.
"""

import numpy as np
import pytest
from test_numba import NUMBA, U, arrays, both, cotangent
from test_ops import random

from peref.ops.place import At
from peref.tape import Tape

FEW = {"B": 1, "H": 3, "G": 1, "T": 700, "S": 700, "D": 8}  # its queries are computed in three parts
SUMS = 4 * 700**0.5 * U  # four sums of 700 terms
STEEP = -np.linspace(0.5, 2, 3)[:, None] * np.arange(700)


@pytest.mark.parametrize(
    "at", [At.of(700), At.of(700, window=300, causal=False), At.of(700, positions=np.arange(700) // 2)]
)
def test_gradients_of_few_heads_are_made_in_parts_of_the_queries(at):
    """One key-value head: keys, values, the table (by distance and by an index), row and column get something
    of every part.

    A row's is 0 (test_attention_with_every_addition).
    """
    row, column = random(1, 3, 700, 1, seed=7), random(1, 3, 1, 700, seed=8)
    q, k, v, table = arrays(**FEW, at=at)
    largest = abs(cotangent(q.shape) @ v.swapaxes(-1, -2)).max()
    both(
        "attention",
        [q, k, v, table, None, row, column],
        {"at": at, "scale": 0.35},
        SUMS,
        zero={4: 2 * largest},
    )


@pytest.mark.parametrize("scale", [0.3, -0.3])
def test_the_bound_of_a_tile_holds_for_either_sign_of_the_scale(scale):
    """Far keys that are 60 times as long outweigh a steep table."""
    at = At.of(700)
    q, k, v, _ = arrays(**FEW, at=at)
    k[:, :, :200] *= 60
    logits = scale * abs(q @ k.swapaxes(-1, -2)).max() / abs(scale)
    both("attention", [q, k, v, STEEP], {"at": at, "scale": scale}, SUMS + 4 * U * 0.3 * abs(logits))


def test_a_window_leaves_out_the_keys_that_no_query_of_a_block_sees():
    """Within a tile too: what is not finite there reaches no row, and no gradient."""
    at = At.of(700, window=128)
    narrow = [a.astype(np.float32) for a in arrays(**FEW, at=at)[:3]]
    for a in narrow[1:]:
        a[:, :, :100] = np.nan
    tape = Tape()
    q, k, v = (tape.watch(a) for a in narrow)
    y = NUMBA.attention(q, k, v, None, at=at, scale=0.35)
    assert np.isnan(y.value[:, :, :227]).all()
    assert np.isfinite(y.value[:, :, 256:]).all()
    dy = np.zeros(y.value.shape, np.float32)
    dy[:, :, 256:] = 1
    assert np.isfinite(tape.gradients(y, dy)[q][:, :, 256:]).all()


def test_what_is_not_finite_in_a_cotangent_reaches_every_key():
    """A NaN in the last row, which sees far keys with weights of less than 2^-100: nothing is skipped on
    the way back.
    """
    at = At.of(700)
    narrow = [a.astype(np.float32) for a in arrays(**FEW, at=at)[:3]]
    tape = Tape()
    q, k, v = (tape.watch(a) for a in narrow)
    y = NUMBA.attention(q, k, v, STEEP, at=at, scale=0.35)
    dy = np.ones(y.value.shape, np.float32)
    dy[:, :, 699] = np.nan
    found = tape.gradients(y, dy)
    assert np.isnan(found[k]).all()
    assert np.isnan(found[v]).all()
