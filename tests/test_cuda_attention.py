"""The attention kernels, their own text run on the CPU, against plain attention in float64: output and
every gradient.
"""

import ml_dtypes
import numpy as np
import pytest
from check import same
from emulated.twins import BF16, CLOSE, TF32, distance, emulated, pulled, sent, twins
from test_ops import random

from peref.backends.cuda import attention as module
from peref.backends.cuda.attention import attention
from peref.errors import Misuse
from peref.ops.attention import attention as plain
from peref.ops.place import At


def arrays(B, H, G, T, S, D, at, E=None, table=True):
    rest = [random(H, len(at.distances))] if table else []
    return [random(B, H, T, D), random(B, G, S, D, seed=2), random(B, G, S, E or D, seed=1), *rest]


@pytest.mark.parametrize(
    ("T", "H", "G", "D", "E"),
    [
        (1, 1, 1, 4, 4),
        (63, 2, 1, 8, 8),
        (65, 2, 2, 33, 33),
        (64, 1, 1, 40, 10),
        (33, 3, 1, 65, 65),
        (66, 1, 1, 128, 100),
    ],
)
def test_at_every_edge_of_a_tile(T, H, G, D, E):
    """One less and one more than a tile, one head, grouped heads, widths that are no tile's."""
    at = At.of(T)
    twins(attention, plain, arrays(1, H, G, T, T, D, at, E), {"at": at, "scale": D**-0.5})


SEG = np.repeat([[0, 1, 2], [3, 4, 0], [0, 0, 0]], 24, 1)
LATE = At(np.arange(70, 82), np.arange(82), 82)
PLACES = {
    "two-sided": At.of(70, causal=False),
    "window": At.of(140, window=20),
    "two-sided window": At.of(70, window=3, causal=False),
    "documents": At.of(72, seg=SEG, positions=np.arange(72)),
    "two-sided documents": At.of(72, seg=SEG, positions=np.arange(72), causal=False),
    "documents over tiles": At.of(140, seg=np.repeat([[0, 1, 2]], [5, 70, 65], 1), positions=np.arange(140)),
    "two-sided documents over tiles": At.of(
        140, seg=np.repeat([[1, 2, 0]], [66, 70, 4], 1), positions=np.arange(140), causal=False
    ),
    "restarting": At.of(72, seg=SEG),
    "real": At.of(66, positions=np.concatenate([np.arange(33), 0.5 * np.arange(33)])),
    "late": LATE,
}


@pytest.mark.parametrize("name", PLACES)
def test_every_place(name):
    """Two-sided, windows, documents and padding (a row that sees nothing is 0), positions that the table
    is read through an index for, later queries.
    """
    at = PLACES[name]
    B = 1 if at.seg is None else len(at.seg)
    twins(attention, plain, arrays(B, 2, 1, at.T, at.S, 8, at), {"at": at, "scale": 0.25})


@pytest.mark.parametrize(
    ("term", "row", "column"),
    [
        ((2, 4, 12, 82), (2, 4, 12, 1), (2, 4, 1, 82)),
        ((1, 4, 1, 82), (2, 1, 1, 1), None),
        ((2, 1, 12, 1), None, (1, 1, 1, 1)),
    ],
)
def test_every_addition(term, row, column):
    """Term, row and column of every legal shape. What is one number for a whole row has gradient 0."""
    shapes = [s for s in (term, row, column) if s]
    more = [None if s is None else random(*s) for s in (term, row, column)]
    flat = tuple(k for k, s in enumerate(shapes, start=5) if s[3] == 1)
    twins(
        attention, plain, [*arrays(2, 4, 2, 12, 82, 8, LATE), *more], {"at": LATE, "scale": 0.35}, zero=flat
    )


def test_many_lines_of_the_table():
    """More pieces than lines: a block goes on with another piece, and its line has both."""
    at = At.of(2)
    twins(attention, plain, arrays(66, 1, 1, 2, 2, 2, at), {"at": at, "scale": 0.5}, seeds=(1,))


@pytest.mark.parametrize("at", [At.of(65), PLACES["restarting"]])
@pytest.mark.parametrize("kind", [{"dtype": ml_dtypes.bfloat16}, {}], ids=["bfloat16", "tf32"])
def test_narrow_numbers(at, kind):
    """bfloat16 in memory, and float32 cut to TF32 in products."""
    B = 1 if at.seg is None else 3
    fast = attention if kind else lambda *a, **k: attention(*a, **k, tf32=True)
    found = twins(
        fast,
        plain,
        arrays(B, 2, 1, at.T, at.S, 33, at),
        {"at": at, "scale": 0.2},
        tolerance=BF16 if kind else TF32,
        **kind,
    )
    assert max(found) > CLOSE, "these are the exact numbers"


def forward_of_bfloat16(capability, at, given):
    """The output on a GPU of this compute capability is right, and two orders of threads give its bits."""
    found = []
    for seed in (1, 2):
        with emulated(seed, capability=capability) as cupy:
            found.append(attention(*(cupy.asarray(a) for a in given), at=sent(cupy, at), scale=0.2).get())
    same(*found, 0)
    want = plain(*(a.astype(np.float64) for a in given), at=at, scale=0.2)
    assert distance(found[0].astype(np.float64), want) <= BF16


@pytest.mark.parametrize("capability", ["90", "80"])
@pytest.mark.parametrize(("T", "G", "D"), [(200, 1, 32), (400, 2, 56), (270, 1, 101)])
def test_tiles_of_bfloat16(capability, T, G, D):
    """With Hopper's own products and without: blocks of queries, and as many tiles of keys as take turns in
    one place.
    """
    at = At.of(T, window=150)
    given = [a.astype(ml_dtypes.bfloat16) for a in arrays(1, 2, G, T, T, D, at, table=False)]
    given += [random(2, len(at.distances)).astype(np.float32)] if G == 1 else []
    forward_of_bfloat16(capability, at, given)


FAR = {  # two blocks of queries, and tiles of keys of which some are left out
    "documents": At.of(300, seg=np.repeat([[1, 2, 0]], [20, 270, 10], 1), positions=np.arange(300)),
    "two-sided": At.of(270, causal=False),
    "two-sided documents": At.of(
        300, seg=np.repeat([[0, 1, 2]], [5, 140, 155], 1), positions=np.arange(300), causal=False
    ),
    "two-sided window": At.of(270, window=30, causal=False),
}


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize(("D", "E"), [(32, 24), (40, 56)])
def test_values_of_another_width_in_every_place(name, D, E):
    """By Hopper's own products: documents over several tiles, and what is still to come."""
    at = FAR[name]
    given = arrays(1, 2, 1, at.T, at.S, D, at, E, table=name == "two-sided")
    forward_of_bfloat16("90", at, [a.astype(ml_dtypes.bfloat16) for a in given[:3]] + given[3:])


@pytest.mark.parametrize("scale", [-0.3, 0.0])
def test_a_scale_that_is_not_positive(scale):
    """The largest product is then not the largest logit."""
    at = At.of(70)
    twins(attention, plain, arrays(1, 1, 1, 70, 70, 8, at, table=False), {"at": at, "scale": scale})


def test_large_logits():
    """Of several hundred: the error of a probability is that of its logit."""
    at = At.of(40)
    twins(
        attention, plain, arrays(1, 2, 1, 40, 40, 8, at), {"at": at, "scale": 30.0}, tolerance=300 * 2.0**-22
    )


def test_row_and_column_stay_wide():
    """Sums near a million that cancel leave a float32 result right to float32."""
    at, c = At.of(40), -1e6 + random(1, 2, 40).cumsum(-1)
    given = [*arrays(1, 2, 1, 40, 40, 8, at, table=False), None, None, c[..., None], -c[:, :, None]]
    twins(attention, plain, given, {"at": at, "scale": 0.35}, wide=(5, 6), zero=(4,))


@pytest.mark.parametrize("least", [-1e9, -1e30, float(np.finfo(np.float32).min)])
def test_a_mask_that_is_a_finite_number(least):
    """Added to all logits of the first tile of keys: the rest of the row is as if it were not there."""
    at, term = At.of(100, causal=False), np.zeros((1, 1, 100, 100))
    term[..., :64] = least
    given = [*arrays(1, 1, 1, 100, 100, 8, at, table=False), None, term]
    twins(attention, plain, given, {"at": at, "scale": 0.35})


def test_a_large_number_added_to_a_whole_row():
    """Its logits have few digits left; what comes back is no larger for that."""
    at, term = At.of(70, causal=False), np.zeros((1, 1, 70, 70))
    term[:, :, 5] = -1e9
    given = [a.astype(np.float32) for a in (*arrays(1, 1, 1, 70, 70, 8, at, table=False), term)]
    with emulated() as cupy:
        settings = {"at": at, "scale": 0.35}
        got, _ = pulled(attention, [*given[:3], None, given[3]], settings, send=lambda x: sent(cupy, x))
    assert max(np.abs(a.get()).max() for a in got) < 100


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_bits_of_a_row_are_its_own(dtype):
    """Not those of rows of the same warp, whose logits are far larger."""
    at = At.of(140)
    q, k, v = (a.astype(dtype) for a in arrays(1, 1, 1, 140, 140, 32, at, table=False))
    found = []
    for factor in (1, 40):
        q[:, :, 131:] *= factor
        with emulated() as cupy:
            found.append(attention(*sent(cupy, [q, k, v]), at=sent(cupy, at), scale=0.3).get()[:, :, :131])
    same(*found, 0)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_that_goes_in_comes_out(place):
    """In q, k or v; a NaN in q or k reaches no row that does not see it (one in v does: 0 times NaN)."""
    at = At.of(80)
    given = [a.astype(np.float32) for a in arrays(1, 2, 1, 80, 80, 8, at, table=False)]
    given[place][0, 0, 37, 3] = np.nan
    with emulated() as cupy:
        y = attention(*sent(cupy, given), at=sent(cupy, at), scale=0.3).get()
    assert np.isnan(y[0, 0, 37]).any()
    assert place == 2 or np.isfinite(y[:, :, :37]).all()


def test_what_is_refused():
    """Heads that are too wide, sizes that do not fit, dtypes: in words."""
    at = At.of(3)
    with emulated() as cupy:
        make = lambda *shapes: [cupy.ones(s, np.float32) for s in shapes]
        for shapes, said in (
            ([(1, 1, 3, 129)] * 3, "129 wide; the cuda backend takes them up to 128"),
            ([(1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], "3 heads of q over 2 of k"),
            ([(1, 2, 3, 4), (1, 2, 4, 4), (1, 2, 4, 4)], "q and k"),
            ([(1, 2, 3, 4), (1, 2, 3, 4), (1, 1, 3, 4)], "k and v"),
        ):
            with pytest.raises(Misuse, match=said):
                attention(*make(*shapes), at=sent(cupy, at), scale=1.0)
        with pytest.raises(Misuse, match="float64"):
            attention(*(cupy.ones((1, 1, 3, 4)) for _ in range(3)), at=sent(cupy, at), scale=1.0)


@pytest.mark.parametrize("by_sequence", [False, True])
def test_sums_by_index(by_sequence):
    """Rows of the table beyond one block's and several pieces; places of one index side by side, in every
    order of threads with the same bits.
    """
    B, H, T, S, N = 2, 3, 50, 90, 1500
    x, index = (
        random(B, H, T, S).astype(np.float32),
        np.random.default_rng(1).integers(0, N, (B, T, S) if by_sequence else (T, S)).astype(np.int32),
    )
    index[..., :20, :] //= 700
    want = np.zeros((H, N))
    for b, h in np.ndindex(B, H):
        np.add.at(want[h], index[b] if by_sequence else index, x[b, h].astype(np.float64))
    found = []
    for seed in (1, 2):
        with emulated(seed) as cupy:
            found.append(module.summed_by(cupy.asarray(x), cupy.asarray(index), N).get())
    same(found[0], found[1], 0)
    same(found[0].astype(np.float64), want, 1e-6)
    assert (found[0][want == 0] == 0).all()
