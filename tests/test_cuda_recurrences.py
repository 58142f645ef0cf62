"""The kernels of the recurrences and of the short convolution, run on the CPU: against the plain ops in
float64, forward and backward.
"""

import re

import ml_dtypes
import numpy as np
import pytest
from check import same
from emulated.twins import BF16, CLOSE, distance, emulated, sent, twins

from peref.backends.cuda import scans, wkv
from peref.encodings.mix.mamba import selective_scan
from peref.encodings.mix.rwkv4 import wkv4
from peref.encodings.mix.rwkv6 import wkv6
from peref.encodings.mix.rwkv7 import wkv7
from peref.encodings.mix.s4d import diagonal_scan
from peref.errors import Misuse
from peref.ops.scan import short_conv

OPS = {
    "short_conv": (scans.short_conv, short_conv, {}),
    "wkv4": (wkv.wkv4, wkv4, {}),
    "wkv6": (wkv.wkv6, wkv6, {"chunk": 16}),
    "wkv7": (wkv.wkv7, wkv7, {"chunk": 16}),
    "diagonal_scan": (scans.diagonal_scan, diagonal_scan, {"chunk": 16}),
    "euler": (scans.selective_scan, selective_scan, {"discretisation": "euler", "chunk": 16}),
    "zoh": (scans.selective_scan, selective_scan, {"discretisation": "zoh", "chunk": 16}),
}
WIDE = {"diagonal_scan": (1,)}  # factors that stay float64


def arrays(name, T, C, N, state, runs):
    """A sequence for each line of runs, of T tokens; C channels, or heads of N keys and C values; N
    numbers of a state, or weights.
    """
    B, H, rng = 1 if runs is None else len(runs), 2, np.random.default_rng([T, C, N])
    normal = rng.standard_normal
    handed = lambda *shape: normal(shape) if state else None
    if name == "short_conv":
        return [normal((B, T, C)), normal((C, N)), handed(B, N - 1, C), runs]
    if name == "wkv4":
        first = handed(B, 3, C)
        return [
            3 * normal((B, T, C)),
            normal((B, T, C)),
            -abs(normal(C)),
            normal(C),
            first if first is None else abs(first),
            runs,
        ]
    if name == "diagonal_scan":
        modes = np.concatenate([0.6 * normal((2, C, N)), normal((2, C, N))]) * N**-0.5
        return [normal((B, T, C)), modes, normal(C), handed(B, C, 2 * N), runs]
    if name in ("euler", "zoh"):
        b, c = normal((2, B, T, N)) * N**-0.5
        return [
            normal((B, T, C)),
            normal((B, T, C)) - 1,
            normal((C, N)),
            b,
            c,
            normal(C),
            handed(B, N, C),
            runs,
        ]
    r, k, q, w = normal((4, B, H, T, N))
    values, log_w = normal((B, H, T, C)), -abs(w) / 4
    if name == "wkv6":
        return [r, log_w, k, values, normal((H, N)), handed(B, H, N, C), runs]
    kappa = q / np.sqrt((q * q).sum(-1, keepdims=True))
    return [
        r,
        log_w,
        k * N**-0.5,
        values,
        kappa,
        1 / (1 + np.exp(normal((B, H, T, N)))),
        handed(B, H, N, C),
        runs,
    ]


def of(name):
    fast, plain, settings = OPS[name]
    return fast, plain, settings, {"wide": WIDE.get(name, ())}


RUNS = np.array([[0] * 9 + [1] * 14 + [2] * 12, [-1] * 15 + [1] * 16 + [-1] * 4])
SIZES = [(1, 3, 4, True), (15, 5, 33, True), (17, 18, 7, False), (33, 16, 4, True)]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("T", "C", "N", "state"), SIZES)
def test_at_every_edge(name, T, C, N, state):
    """One token, one less and one more than a piece; more channels or values than a block has, more rows
    than one has; a state handed in or not.
    """
    fast, plain, settings, rest = of(name)
    twins(fast, plain, arrays(name, T, C, N, state, None), settings, **rest)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("state", [True, False])
def test_runs(name, state):
    """Documents that begin within a piece and at its end, padding before and after."""
    fast, plain, settings, rest = of(name)
    twins(fast, plain, arrays(name, 35, 5, 3, state, RUNS), settings, seeds=(1,), **rest)


@pytest.mark.parametrize("name", OPS)
def test_bfloat16(name):
    """In memory; what is computed is float32, or the error would be far above that of rounding inputs and
    outputs.
    """
    fast, plain, settings, rest = of(name)
    found = twins(
        fast,
        plain,
        arrays(name, 40, 5, 3, True, None),
        settings,
        dtype=ml_dtypes.bfloat16,
        tolerance=BF16,
        seeds=(1,),
        **rest,
    )
    assert max(found) > CLOSE, "these are the exact numbers"


@pytest.mark.parametrize("width", [70, 128])
@pytest.mark.parametrize("name", ["wkv6", "wkv7"])
def test_wide_heads(name, width):
    """Up to the widest."""
    fast, plain, settings, _ = of(name)
    twins(fast, plain, arrays(name, 6, 3, width, True, None), settings, seeds=(1,))


@pytest.mark.parametrize("name", ["wkv6", "wkv7"])
def test_wider_heads_are_refused(name):
    fast, _, settings, _ = of(name)
    with (
        emulated() as cupy,
        pytest.raises(Misuse, match="heads are 129 wide; the cuda backend takes them up to 128"),
    ):
        fast(
            *sent(
                cupy, [a if a is None else a.astype(np.float32) for a in arrays(name, 2, 3, 129, False, None)]
            ),
            **settings,
        )


@pytest.mark.parametrize("T", [1, 32, 35])
@pytest.mark.parametrize("name", OPS)
def test_the_last_state(name, T):
    """Is that of the plain op, where sequences end with padding too, and goes on where it was left."""
    runs = RUNS[:, -T:]
    given = arrays(name, T, 5, 3, True, runs)
    given = [
        a.astype(np.float32) if k not in WIDE.get(name, ()) and a.dtype.kind == "f" else a
        for k, a in enumerate(given)
    ]
    fast, plain, settings, _ = of(name)
    want = plain(*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in given), **settings)[1]
    with emulated() as cupy:
        got = fast(*sent(cupy, given), **sent(cupy, settings))[1].get()
    assert got.dtype == np.float32
    there = np.isfinite(want)
    same(np.isfinite(got), there, 0)
    assert distance(got[there], want[there]) <= CLOSE


def test_keys_of_any_size():
    """RWKV-4 keeps the largest exponent: nothing overflows, and tokens that count for nothing have no
    gradient.
    """
    given = arrays("wkv4", 9, 3, 1, False, None)
    given[0][:, 4] += 300
    given[0][:, 6] -= 300
    twins(wkv.wkv4, wkv4, given)


@pytest.mark.parametrize("log_w", [-1e4, -np.inf])
def test_a_decay_that_leaves_nothing(log_w):
    """Is 0, and so are its gradients: no difference of long sums, no NaN."""
    given = arrays("wkv6", 20, 3, 5, True, None)
    given[1][:, :, 3:9] = log_w
    given = [a if a is None else a.astype(np.float32) for a in given]
    plain = [a if a is None else np.maximum(a, -1e4).astype(np.float64) for a in given]
    want, last = wkv6(*plain, chunk=16)
    with emulated() as cupy:
        got = wkv.wkv6(*sent(cupy, given), chunk=16)
        assert distance(got[0].get(), want) <= CLOSE
        assert distance(got[1].get(), last) <= CLOSE


def test_a_factor_applied_at_every_token_forgets_no_digits():
    """The slowest mode that S4D starts with, over two thousand tokens: what its factor is off by would be
    off two thousand times.
    """
    z = np.exp(0.001 * (-0.5 + 31j * np.pi))
    modes = np.array([z.real, z.imag, 0.002, 0.001]).reshape(4, 1, 1)
    u, skip = (
        np.random.default_rng(1).standard_normal((1, 2000, 1)).astype(np.float32),
        np.ones(1, np.float32),
    )
    want, _ = diagonal_scan(u.astype(np.float64), modes, skip.astype(np.float64), None, None, chunk=32)
    with emulated() as cupy:
        got, _ = scans.diagonal_scan(*sent(cupy, [u, modes, skip]), None, None, chunk=32)
        assert distance(got.get(), want) <= 2e-7


@pytest.mark.parametrize(
    ("name", "place", "shape", "said"),
    [
        ("short_conv", 1, (4, 3), "[5] and [4]"),
        ("short_conv", 2, (1, 3, 5), "[1, 2, 5] and [1, 3, 5]"),
        ("short_conv", 3, (1, 3), "[1, 4] and [1, 3]"),
        ("wkv4", 1, (1, 3, 5), "[1, 4, 5] and [1, 3, 5]"),
        ("wkv4", 3, (4,), "[5] and [5] and [4]"),
        ("wkv4", 4, (1, 2, 5), "[1, 3, 5] and [1, 2, 5]"),
        ("wkv6", 2, (1, 2, 4, 4), "[1, 2, 4, 3] and [1, 2, 4, 3] and [1, 2, 4, 4]"),
        ("wkv6", 3, (1, 2, 3, 5), "[1, 2, 4] and [1, 2, 3]"),
        ("wkv6", 4, (3, 2), "[2, 3] and [3, 2]"),
        ("wkv7", 5, (1, 2, 4, 4), "[1, 2, 4, 4]"),
        ("wkv7", 6, (1, 2, 3, 4), "[1, 2, 3, 5] and [1, 2, 3, 4]"),
        ("diagonal_scan", 1, (4, 4, 3), "[4, 5] and [4, 4] and [4, 5]"),
        ("diagonal_scan", 3, (1, 6, 5), "[1, 5, 6] and [1, 6, 5]"),
        ("euler", 4, (1, 4, 4), "[1, 4, 3] and [1, 4, 3] and [1, 4, 4]"),
        ("euler", 1, (1, 4, 4), "[1, 4, 5] and [1, 4, 4]"),
        ("euler", 5, (4,), "[5] and [5] and [4]"),
        ("euler", 6, (1, 5, 3), "[1, 3, 5] and [1, 5, 3]"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, place, shape, said):
    """A kernel would read beyond the end."""
    given = arrays(name, 4, 5, 3, True, np.zeros((1, 4), np.int64))
    given[place] = np.ones(shape, given[place].dtype)
    given = [
        a.astype(np.float32) if k not in WIDE.get(name, ()) and a.dtype.kind == "f" else a
        for k, a in enumerate(given)
    ]
    fast, _, settings, _ = of(name)
    with emulated() as cupy:
        with pytest.raises(Misuse, match=re.escape(said)):
            fast(*sent(cupy, given), **settings)
        assert not cupy.emulated.launched


@pytest.mark.parametrize("name", OPS)
def test_what_is_neither_float32_nor_bfloat16_is_refused(name):
    """float64 computed in float32 without a word would be a reference that is none."""
    fast, _, settings, _ = of(name)
    with emulated() as cupy, pytest.raises(Misuse, match=r"computes in float32 or bfloat16 and got float64"):
        fast(*sent(cupy, arrays(name, 4, 5, 3, True, None)), **settings)
