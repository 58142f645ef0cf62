"""Where attention's kernels may stop, forward and backward: what they leave out changes nothing, and what
could matter is never left out.
"""

import ml_dtypes
import numpy as np
import pytest
from check import same
from emulated.twins import BF16, CLOSE, SAME, cotangent, distance, emulated, sent
from test_ops import random

from peref.backends.cuda import attention as module
from peref.backends.cuda.attention import attention, kept, reach
from peref.ops.attention import attention as plain
from peref.ops.place import At
from peref.tape import Tape

S, D = 420, 8
LATE = At(np.arange(S - 70, S), np.arange(S), S)
STEEP, FLAT = -np.arange(float(S)), np.zeros(S)


def given(table, far=None):
    """70 late queries of two heads over S keys of one, and a table; `far` is done to the keys and the
    values.
    """
    q, k, v = random(1, 2, 70, D), random(1, 1, S, D, seed=1), random(1, 1, S, D, seed=2)
    q[..., 0] = 2.0
    if far:
        far(k, v)
    return [a.astype(np.float32) for a in (q, k, v, np.stack([table, table / 2]))]


def ours(arrays, monkeypatch, *, skip=True, lies=None, capability="90"):
    """The output, and how many kernels of reach ran; `lies` takes the place of the lengths."""
    monkeypatch.setattr(module, "LONG", 1)
    if lies is not None:
        truth = reach
        monkeypatch.setattr(
            module, "reach", lambda xp, *rest: (truth(xp, *rest)[0] * 0 + lies, *truth(xp, *rest)[1:])
        )
    with emulated(capability=capability) as cupy:
        y = attention(*sent(cupy, arrays), at=sent(cupy, LATE), scale=0.35, skip=skip).get()
        return y, cupy.emulated.launched.count("lengths")


def exact(arrays):
    return plain(*(a.astype(np.float64) for a in arrays), at=LATE, scale=0.35)


def one_long_key(k, v):
    k[0, 0, 5, 0] = 2000.0


def one_long_key_the_other_way(k, v):
    k[0, 0, 5, 0] = -2000.0


@pytest.mark.parametrize(
    ("table", "far"),
    [(STEEP, None), (FLAT, None), (STEEP, one_long_key), (STEEP, one_long_key_the_other_way)],
)
def test_what_is_left_out_changes_nothing(table, far, monkeypatch):
    """Whether the block stops at once, never, or not before a key that is far away and matters."""
    arrays = given(table, far)
    y, looked = ours(arrays, monkeypatch)
    assert looked == 1
    assert distance(y, exact(arrays)) <= (100 if far else 1) * CLOSE  # logits near a thousand
    whole, looked = ours(arrays, monkeypatch, skip=False)
    assert looked == 0
    assert distance(whole, y) <= CLOSE


def test_it_stops(monkeypatch):
    """Told that all keys are short it does not come to the long one that matters; told nothing false it
    does. So it would stop where none matters.
    """
    arrays = given(STEEP, one_long_key)
    assert distance(ours(arrays, monkeypatch, lies=1.0)[0], exact(arrays)) > 0.1


@pytest.mark.parametrize("capability", ["90", "80"])
@pytest.mark.parametrize("lies", [None, 1.0])
def test_wide_bfloat16_stops_too(lies, capability, monkeypatch):
    """With Hopper's own products, and with 32 rows in a warp: not before a key that matters to one row, but
    at once where it is told that none does.
    """
    q, k, v, table = given(STEEP, one_long_key)
    others = np.arange(70) != np.array([[20], [61]])
    q[:, others] /= 1000
    wide = [np.pad(a, [(0, 0)] * 3 + [(0, 32)]).astype(ml_dtypes.bfloat16) for a in (q, k, v)]
    y, _ = ours([*wide, table], monkeypatch, lies=lies, capability=capability)
    error = distance(y[..., :D].astype(np.float64), exact([*(a[..., :D] for a in wide), table]))
    assert error <= BF16 if lies is None else error > 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_what_is_not_finite_comes_out(where, bad, monkeypatch):
    """However far away it is."""

    def spoiled(k, v):
        (k if where == "k" else v)[0, 0, 3, 1] = bad

    assert not np.isfinite(ours(given(STEEP, spoiled), monkeypatch)[0]).all(-1).any()


def gradients(arrays, monkeypatch, *, skip=True, lies=None, dy=None, at=LATE):
    """dq, dk, dv and the table's gradient; `lies` takes the place of the lengths, for backward alone."""
    monkeypatch.setattr(module, "LONG", 1)
    with emulated() as cupy:
        given, how = (
            sent(cupy, [*arrays, None, None, None]),
            {"at": sent(cupy, at), "scale": 0.35, "tf32": False, "skip": skip},
        )
        y, (tokens, o, lse, rest, stop, *others) = module.attend.forward(*given, **how)
        assert (stop is not None) == skip
        if lies is not None:
            stop = (stop[0] * 0 + lies, *stop[1:])
        dy = cotangent(y.get()).astype(np.float32) if dy is None else dy
        found = module.attend.backward(
            (tokens, o, lse, rest, stop, *others), cupy.asarray(dy), (True,) * 4 + (False,) * 3
        )
        return [a.get() for a in found[:4]]


def exact_gradients(arrays, at=LATE):
    tape = Tape()
    leaves = [tape.watch(a.astype(np.float64)) for a in arrays]
    y = plain(*leaves, at=at, scale=0.35)
    found = tape.gradients(y, cotangent(y.value).astype(np.float32).astype(np.float64))
    return [found[leaf] for leaf in leaves]


SHALLOW = -np.arange(float(S)) / 4


@pytest.mark.parametrize(("table", "far"), [(SHALLOW, None), (FLAT, None), (STEEP, one_long_key)])
def test_what_backward_leaves_out_changes_nothing(table, far, monkeypatch):
    """Against the same kernels that go through every tile and, where logits are not near a thousand,
    against the plain op in float64.
    """
    arrays = given(table, far)
    got, whole, want = (
        gradients(arrays, monkeypatch),
        gradients(arrays, monkeypatch, skip=False),
        exact_gradients(arrays),
    )
    for a, b, c in zip(got, whole, want, strict=True):
        assert distance(a, b) <= CLOSE
        assert far or distance(a, c) <= CLOSE


def test_several_heads_of_keys(monkeypatch):
    """Several tiles of queries, of which a tile of keys leaves out some; a key of one head is long, and
    its own heads of queries go to it.
    """
    at, (q, k, v) = (
        At.of(200),
        [random(1, heads, 200, D, seed=n).astype(np.float32) for n, heads in enumerate((4, 2, 2))],
    )
    q[0, 1, 130] = k[0, 0, 60]
    k[0, 0, 60] *= 40
    arrays = [q, k, v, np.stack([-np.arange(200.0) / n for n in (1, 1.5, 2, 9)]).astype(np.float32)]
    for a, b in zip(gradients(arrays, monkeypatch, at=at), exact_gradients(arrays, at), strict=True):
        assert distance(a, b) <= CLOSE


def test_a_piece_that_sees_nothing_lets_its_copies_arrive(monkeypatch):
    """One block has every piece of the queries; the first sees no key, and its tiles are still on their way
    when those of the next are sent to the same place.
    """
    monkeypatch.setattr(module, "LINES", 1)
    q, k, v = (random(1, 1, 200, D, seed=n).astype(np.float32) for n in range(3))
    table = -np.arange(200.0)[None].astype(np.float32) / 9
    table[:, :64] = -np.inf
    found = [gradients([q, k, v, table], monkeypatch, at=At.of(200), skip=skip) for skip in (True, False)]
    for a, b in zip(*found, strict=True):
        assert np.isfinite(a).all()
        assert distance(a, b) <= CLOSE


def test_backward_leaves_tiles_out(monkeypatch):
    """Far keys have a gradient that is too small to matter, and with skipping none: both kernels went past
    them. So does the table.
    """
    arrays = given(SHALLOW)
    some, every = gradients(arrays, monkeypatch), gradients(arrays, monkeypatch, skip=False)
    for a, b in zip(some[1:], every[1:], strict=True):
        assert (a == 0).sum() > (b == 0).sum()


@pytest.mark.parametrize("place", [0, 1, 3])
def test_backward_looks_at_the_lengths(place, monkeypatch):
    """Told that all keys are short it leaves out the long one that matters."""
    arrays = given(STEEP, one_long_key)
    right, lied = gradients(arrays, monkeypatch)[place], gradients(arrays, monkeypatch, lies=1.0)[place]
    assert distance(lied, right) > 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_cotangent_that_is_not_finite_comes_out(bad, monkeypatch):
    """In every gradient that it is part of, at however far a key."""
    dy = random(1, 2, 70, D).astype(np.float32)
    dy[0, 1, 69, 3] = bad
    dq, dk, dv, _ = gradients(given(STEEP), monkeypatch, dy=dy)
    assert not np.isfinite(dq[0, 1, 69]).any()
    assert not np.isfinite(dk[0, 0, 0]).any()
    assert not np.isfinite(dv[0, 0, 0, 3])


def reached(seed=1, edit=None):
    """ahead and far of random k, v and table, with a key that is long and a value that is no number."""
    k, v, table = (random(2, 200, 3, 40, seed=n).astype(np.float32) for n in (0, 1, 2))
    k[0, 71, 1], v[1, 130, 2, 39] = 9.0, np.nan
    table = table.reshape(6, -1)
    table[2, 77], table[3, 5] = np.nan, -np.inf
    with emulated(seed, edit) as cupy:
        ahead, far, limit = reach(cupy, *map(cupy.asarray, (k, v, table)), 64)
        assert edit is None or cupy.emulated.changed
        assert limit == -np.log(2.0**26 * 200)
        return k, v, table, ahead.get(), far.get()


def test_lengths_and_largest_numbers():
    """By NumPy: of each tile and all before it, of each distance and all beyond it; infinity where
    something is not finite, -infinity as it is.
    """
    k, v, table, ahead, far = reached()
    size = np.sqrt((k.astype(np.float64) ** 2).sum(-1)).swapaxes(1, 2)
    size[~np.isfinite(v).all(-1).swapaxes(1, 2)] = np.inf
    tiles = np.stack([size[..., s : s + 64].max(-1) for s in range(0, 200, 64)], -1)
    same(ahead.astype(np.float64), np.maximum.accumulate(tiles, -1), 1e-6)
    known = np.where(np.isnan(table), np.inf, table)
    same(far, np.maximum.accumulate(known[:, ::-1], -1)[:, ::-1], 0)


def test_both_passes_leave_out_the_same(monkeypatch):
    """By NumPy: of each 64 queries the first tile of keys of which a weight can be 2^-26 / S, and of each
    64 keys the last such queries.
    """
    T, keys = 200, 32
    q, k = (random(1, T, heads, D, seed=n).astype(np.float32) for n, heads in ((0, 4), (1, 2)))
    q[0, 150, 0], k[0, 20, 0] = 30 * q[0, 150, 0], 9 * k[0, 20, 0]
    table = np.stack([-np.arange(float(T)) / n for n in (1, 2, 3, 9)]).astype(np.float32)
    lse, delta = (random(1, 4, T, seed=n).astype(np.float32) for n in (3, 4))
    delta[0, 1, 70] = np.nan
    with emulated() as cupy:
        there = [cupy.asarray(a) for a in (q, k, table, lse, delta)]
        stop = (*reach(cupy, there[1], there[1], there[2], keys), keys)
        rest = (None,) * 6 + (4, 2, T, T, D, D, T, 0) + (None,) * 7 + (0.35,)
        starts, stops = (a.get() for a in kept(there[0], there[1], there[3], there[4], rest, stop))
    ahead = np.maximum.accumulate(
        [np.linalg.norm(k[0, s : s + keys], axis=-1).max(0) for s in range(0, T, keys)]
    )
    reaches = np.zeros((4, T, len(ahead)), bool)
    for h, t, n in np.ndindex(reaches.shape):
        bound = (
            0.35 * np.linalg.norm(q[0, t, h]) * ahead[n, h // 2] + table[h, max(t - n * keys - keys + 1, 0)]
        )
        reaches[h, t, n] = (
            n * keys <= t and not bound < lse[0, h, t] - np.log(2.0**26 * T) - abs(delta[0, h, t]) * 0
        )
    first = np.where(reaches.any(2), reaches.argmax(2), len(ahead)) * keys
    want = np.stack([first[:, t : t + 64].min(1) for t in range(0, T, 64)], 1)
    assert starts[0].tolist() == want.tolist()
    assert len(set(want[0])) > 1
    last = lambda line, s: max([64 * (n + 1) for n, at in enumerate(line) if at < s + 64], default=0)
    assert stops[0].tolist() == [[last(line, s) for s in range(0, T, 64)] for line in want]


PLANTED = {
    "a barrier": ("__syncthreads();\n  if (threadIdx.x) return;", ";\n  if (threadIdx.x) return;"),
    "the other barrier": (
        "shares[threadIdx.x] = most;\n  __syncthreads();",
        "shares[threadIdx.x] = most;\n  ;",
    ),
    "a warp": ("w < warps; w++) most", "w < warps - 1; w++) most"),
    "the threads before": ("t < (int)threadIdx.x; t++", "t < (int)threadIdx.x - 1; t++"),
    "a value that is no number": ("square += wide(v[row * E + e]) - wide(v[row * E + e]);", ";"),
    "a NaN in the table": ("return x < infinity() ? fmaxf(most, x) : infinity();", "return fmaxf(most, x);"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught(name):
    """By a bound that is another one, in one order of threads or the other."""
    right = reached(edit=SAME)[3:]
    assert any(
        a.tobytes() != b.tobytes()
        for seed in (1, 2)
        for a, b in zip(reached(seed, PLANTED[name])[3:], right, strict=True)
    )
