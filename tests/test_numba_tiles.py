"""Attention over many tiles: what skipping looks at, and that nothing of size T x S is made."""

import tracemalloc

import numpy as np
import pytest
from check import same
from test_numba import CLOSE, NUMBA, PLAIN, arrays, both, cotangent

from peref import model
from peref.backends.numba.attention import QUEUES, TOGETHER
from peref.backends.numba.logits import KEYS
from peref.backends.numba.queries import QUERIES
from peref.config import Config
from peref.ops.place import At
from peref.tape import Tape

T = 700  # three tiles of keys
AT, ASKED = At.of(T), {"at": At.of(T), "scale": 0.35}
WIDE = CLOSE * (T / 512) ** 0.5  # CLOSE is for sums of 512 terms
Q, K, V, _ = arrays(1, 2, 1, T, T, 8, AT, table=False)
STEEP = -0.5 * np.arange(T) * np.ones((2, 1))


def gate(steep):
    """The row and the column of a forget gate that takes off `steep` for every step back."""
    c = -steep * np.arange(T) * np.ones((1, 2, 1))
    return c[..., None], -c[:, :, None]


def last_row(v, *added, **given):
    return NUMBA.attention(*(a.astype(np.float32) for a in (Q, K, v)), *added, **ASKED, **given)[0, :, -1]


def skips(*added):
    """Whether value 0, made so large that a weight of 2^-70 of it shows, has no say in the last row that it
    has without skipping. Its square is finite, else nothing is skipped.
    """
    v = V.copy()
    v[:, :, 0] = 1e18
    return abs(last_row(v, *added) - last_row(v, *added, skip=False)).max() > 1e-5


def test_skipping_by_a_gate_is_right_and_happens():
    """Row and column bound a tile as a table does; what is one number for a whole row has gradient 0
    (test_attention_with_every_addition).
    """
    row, column = gate(0.1)
    largest = abs(cotangent(Q.shape) @ V.repeat(2, 1).swapaxes(-1, -2)).max()
    both("attention", [Q, K, V, None, None, row, column], ASKED, WIDE, zero={3: 2 * largest})
    assert skips(None, None, *gate(0.07))
    assert skips(0.14 * STEEP)
    assert not skips(None, None, *gate(0.0))


def test_skipping_leaves_a_term_alone():
    """A term may make the farthest key win, so with one nothing is left out. All others together weigh
    less than half a unit beside it.
    """
    term = np.zeros((1, 2, T, T))
    term[..., 5] = 400
    both("attention", [Q, K, V, STEEP, term], ASKED, WIDE)
    for head in last_row(V, STEEP, term.astype(np.float32)):
        same(head, V[0, 0, 5].astype(np.float32), 0)


@pytest.mark.parametrize(
    ("place", "key"),
    [("row", None), *((place, key) for place in ("table", "column") for key in (0, 5, KEYS - 1))],
)
def test_a_nan_beside_the_scores_is_not_skipped(place, key):
    """Of a key in the farthest tile, its first, one within or its last, in rows that are steep: it comes
    out where nothing is left out.
    """
    (row, column), table = gate(0.1), STEEP.copy()
    if place == "row":
        row[:, :, -1] = np.nan
    else:
        {"table": table[:, ::-1], "column": column}[place][..., key] = np.nan
    added = (table, None, None, None) if place == "table" else (None, None, row, column)
    assert np.isnan(last_row(V, *added)).all()


FIRST, LAST = 0, KEYS - 1  # of the farthest tile
INDEXED = At.of(T, positions=np.arange(T) // 2)


def ways(q, k, v, table, column, at, skip):
    """The value and every gradient, for a cotangent that is the same for both."""
    tape = Tape()
    arrays = [None if a is None else tape.watch(a.astype(np.float32)) for a in (q, k, v, table)]
    row = None if column is None else np.zeros((1, 2, T, 1))
    y = NUMBA.attention(
        *arrays, None, row, None if column is None else tape.watch(column), at=at, scale=0.35, skip=skip
    )
    return [y.value, *tape.gradients(y, cotangent(y.shape).astype(np.float32)).values()]


@pytest.mark.parametrize("where", ["table", "index", "column", "key"])
def test_one_number_keeps_a_tile_from_being_skipped(where):
    """Wherever it stands in a tile; a bound that missed it would leave out what outweighs all the rest.
    The value and every gradient.
    """
    for far in (FIRST, FIRST + 31, FIRST + 32, LAST, LAST + 1, LAST + 32):
        table, k, column, at = STEEP.copy(), K.copy(), None, AT
        if where == "table":
            table[:, AT.distances == T - 1 - far] = 60
        elif where == "index":
            at, table = INDEXED, -0.5 * INDEXED.distances * np.ones((2, 1))
            table[:, INDEXED.distances == (T - 1) // 2 - far // 2] = 60
        elif where == "column":
            table, column = None, gate(0.5)[1].copy()
            column[..., far] += 400
        else:
            k[:, :, far] *= 400
        every, some = (ways(Q, k, V, table, column, at, skip) for skip in (False, True))
        for want, got in zip(every, some, strict=True):
            same(got, want, 2 * WIDE, str(far))


LATE = At(np.arange(130, T), np.arange(T), T)  # its queries begin within a tile


@pytest.mark.parametrize(
    "at",
    [
        LATE,
        At.of(T, window=90),
        At.of(T, seg=np.repeat([[1, 2, 0]], [300, 340, 60], 1)),
        At.of(T, causal=False),
        At.of(T, causal=False, window=90),
    ],
)
def test_blocks_that_walk_together_change_no_bit(at):
    """Of many sequences up to TOGETHER blocks of queries read a tile of keys one after the other, of one
    sequence fewer do: each as if alone, and right.
    """
    Q, K, V, table = arrays(4, 8, 8, at.T, T, 8, at)
    many, few = 4 * 8 * -(-at.T // QUERIES), 8 * -(-at.T // QUERIES)
    assert min(TOGETHER, many // QUEUES) == TOGETHER > few // QUEUES > 1
    given = [a.astype(np.float32) for a in (Q, K, V)]
    every = NUMBA.attention(*given, table, at=at, scale=0.35)
    for n in range(4):
        alone = NUMBA.attention(*(a[n : n + 1] for a in given), table, at=at, scale=0.35)
        same(alone, every[n : n + 1], 0)
    same(every, PLAIN.attention(Q, K, V, table, at=at, scale=0.35).astype(np.float32), WIDE)


PACKED = np.repeat([[1, 2]], 2048, 1)


@pytest.mark.parametrize(
    ("name", "seg"), [("rope", None), ("alibi", None), ("t5", None), ("forgetting", None), ("alibi", PACKED)]
)
def test_memory_has_nothing_of_t_by_s(name, seg):
    """Forward and backward over 4,096 tokens, two documents where they are packed, take less than half a byte
    for each cell of one head.

    What kernels take is counted too.
    """
    cfg = Config(pe=((name, {}),), L=4096, C=8, H=2, F=8, V=11, layers=1)
    p = model.init(cfg)

    def step(T, seg):
        tape, x = Tape(), np.zeros((1, T), int)
        y, _ = model.loss(cfg, tape.watch(p), x, x, be=NUMBA, seg=seg)
        tape.gradients(y, np.float32(1))

    step(8, None)  # which compiles
    tracemalloc.start()
    try:
        step(4096, seg)
        assert not tracemalloc.get_traced_memory()[1] > 4096 * 4096 / 2
    finally:
        tracemalloc.stop()
