"""The numba backend: every op that it fills against its plain twin, outputs and every gradient, and whole
models.

Errors are taken relative to the largest number of the tensor. A float32 rounding is u = 2**-24. A sum of n
products in float32 is off by at most n u times the sum of their sizes and, with independent roundings, by
about sqrt(n) u times that; the longest sum here has 512 terms. Between input and output of the deepest op lie
four such sums and an exponential, whose relative error is that of its argument, u |x|.
"""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same
from generated import NAMES, config, filling, logits, subject, tokens, weights
from registry import RECURRENCES, operation, ops
from test_ops import CASES, DELTA_BOUND, far_from_float64, random
from without_avx512 import AVX, without

from peref import backends, model
from peref.backends import cuda
from peref.backends.numba import host, kernel, matrix
from peref.backends.numba.logits import KEYS, QUERIES
from peref.backends.numba.ops.edges import CACHED
from peref.encodings import HOOKS, claims_of, get
from peref.errors import Misuse
from peref.golden.compute.operation import turns_apart
from peref.laws import loops
from peref.ops.attention import attention
from peref.ops.delta import delta
from peref.ops.kept import Kept
from peref.ops.place import At
from peref.tape import Op, Tape
from peref.xp import empty_at_line

NUMBA = backends.get("numba")
PLAIN = backends.get("numpy")
U = 2.0**-24
CLOSE = 4 * 512**0.5 * U  # four sums of 512 terms: 5.4e-6
OPS = ops()
FIELDS = {
    field: name for field in NUMBA.filled() for name, op in OPS.items() if operation(PLAIN, field) is op
}


def fullest(cases):
    """The first case that leaves out least."""
    return max(cases, key=lambda case: sum(a is not None for a in case[0]))


def cotangent(shape):
    return random(*shape, seed=99)


def both(field, arrays, settings, tolerance=CLOSE, zero=None):
    """Outputs and gradients of the fast op in float32 against the plain one in float64, with a random
    cotangent.

    `zero` names the places whose gradient is 0 but for rounding, and for each the size of what cancels there.
    """
    results = []
    for be, dtype in ((PLAIN, np.float64), (NUMBA, np.float32)):
        tape = Tape()
        args = [
            tape.watch(given(a, dtype)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for a in arrays
        ]
        y = operation(be, field)(*args, **settings)
        y = y[0] if isinstance(y, tuple) else y
        dy = cotangent(y.shape).astype(y.dtype) if y.shape else y.dtype.type(0.7)
        found = tape.gradients(y, dy)
        results.append([y.value, *(found[a] for a in args if hasattr(a, "slot"))])
    plain, fast = results
    for k, (want, got) in enumerate(zip(plain, fast, strict=True)):
        assert np.isfinite(got).all()
        if k - 1 in (zero or {}):
            assert not abs(got - want).max() > tolerance * zero[k - 1]
        else:
            same(got.astype(np.float64), want.astype(np.float64), tolerance, f"{field}[{k}]")


def given(a, dtype):
    a = np.array(a, dtype if a.dtype == np.float64 else a.dtype)
    a.setflags(write=False)
    return a


@pytest.mark.parametrize(
    ("field", "case"), [(f, k) for f, name in FIELDS.items() for k in range(len(CASES[name]))]
)
def test_ops_are_their_plain_twins(field, case):
    """The cases of the plain ops, read-only."""
    both(field, *CASES[FIELDS[field]][case])


assert (QUERIES, KEYS) == (32, 256)  # the tile that these sizes lie around
SIZES = [(T, 4, 2, 32, 32) for T in (1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)]
SIZES += [(70, 1, 1, 10, 10), (70, 6, 3, 33, 33), (130, 3, 1, 64, 64), (66, 2, 2, 100, 100), (40, 8, 2, 1, 1)]
SIZES += [(70, 2, 1, 300, 300), (70, 2, 1, 500, 7), (70, 4, 2, 5, 70)]  # any width, of keys and of values


def arrays(B, H, G, T, S, D, at, table=True, E=None):
    return [
        random(B, H, T, D),
        random(B, G, S, D, seed=2),
        random(B, G, S, E or D, seed=1),
        random(H, len(at.distances)) if table else None,
    ]


@pytest.mark.parametrize(("T", "H", "G", "D", "E"), SIZES)
def test_attention_at_every_edge_of_a_tile(T, H, G, D, E):
    """One less and one more than a block or a tile, one head, grouped heads, widths that no vector
    divides.
    """
    both("attention", arrays(2, H, G, T, T, D, At.of(T), E=E), {"at": At.of(T), "scale": D**-0.5})


# the last document lies on both sides of a tile's end
SEG = np.repeat([[0, 1, 2], [3, 4, 0], [0, 0, 0]], 100, 1)
LATE = At(np.arange(230, 300), np.arange(300), 300)


@pytest.mark.parametrize(
    "at",
    [
        At.of(300, causal=False),
        At.of(300, window=20),
        At.of(300, window=20, causal=False),
        At.of(300, seg=SEG),
        At.of(300, seg=SEG, causal=False),
        At.of(300, positions=np.concatenate([np.arange(150), 0.5 * np.arange(150)])),
        At.of(40, positions=np.arange(40) // np.array([[1], [2], [3]])),
        LATE,
    ],
)
def test_attention_of_every_shape(at):
    """Two-sided, windows, documents and padding (a row that sees nothing is 0), real positions, others in
    each sequence, later queries.
    """
    both("attention", arrays(3, 4, 2, at.T, at.S, 16, at), {"at": at, "scale": 0.25})


@pytest.mark.parametrize(
    "at",
    [
        At.of(33, causal=False),
        At.of(70, window=20).seen_within(20, None, 3, False),
        At.of(300, seg=SEG),
        LATE,
    ],
)
@pytest.mark.parametrize("alike", [True, False])
def test_cells_of_every_shape(at, alike):
    """Rows that no vector divides and no unit, documents and padding, a window with global tokens, later
    queries; runs of one row of the table, and others at each cell; an index for all sequences or for each.
    """
    rng, (T, S) = np.random.default_rng(0), (at.T, at.S)
    near = (np.clip(np.arange(S) - np.arange(S - T, S)[:, None], -5, 2) + 5)[None]
    index = near if alike else rng.integers(0, 8, (3, T, S))
    both("gather", [random(3, 2, T, 8), index], {"scale": 0.3})
    both("scatter", [random(3, 2, T, S), index], {"rows": 8})
    both("probabilities", [3 * random(3, 2, T, S)], {"at": at})
    both("interpolate", [random(3, 2, T, 9), 3 * random(3, 2, T, S)], {"at": at, "scale": 0.3})


def test_an_array_whose_numbers_lie_at_odd_addresses_is_refused():
    packed = np.zeros((3, 5), [("x", "<f4", (7,)), ("flag", "u1")])["x"]
    behind_a_byte = np.frombuffer(bytes(3 * 5 * 7 * 4 + 1), np.float32, offset=1).reshape(3, 5, 7)
    for a, strides in (packed, [145, 29, 4]), (behind_a_byte, [140, 28, 4]):
        says = f"does not lie at multiples of 4 bytes (its address and strides {strides}); give a copy"
        with pytest.raises(Misuse, match=re.escape(f"matmul: an array {says}")):
            NUMBA.matmul(a, np.ones((3, 7, 2), np.float32))


def test_an_index_beyond_the_rows_is_refused():
    for n in (-1, 8):
        with pytest.raises(Misuse, match=re.escape(f"the index is int64, {min(n, 7)} to {max(n, 7)}")):
            operation(NUMBA, "gather")(np.ones((1, 1, 1, 8), np.float32), np.array([[7, n]]), scale=1.0)


@pytest.mark.parametrize(
    ("term", "row", "column"),
    [
        ((2, 4, 70, 300), (2, 4, 70, 1), (2, 4, 1, 300)),
        ((1, 4, 1, 300), (2, 1, 1, 1), None),
        ((2, 1, 70, 1), None, (1, 1, 1, 1)),
        (None, (2, 4, 70, 1), (2, 4, 1, 300)),
    ],
)
@pytest.mark.parametrize("table", [True, False])
def test_attention_with_every_addition(term, row, column, table):
    """Term, row and column of every legal shape, over two tiles of keys.

    What is one number for a whole row has gradient 0: the sum over the keys of p (dp - mean of dp), dp = dy
    v. Both are off by CLOSE of the largest dp at most, the p of a row add up to 1, and the errors of n rows
    to sqrt(n) of one.
    """
    shapes = [term, row, column]
    more = [None if s is None else random(*s) for s in shapes]
    present = [s for s in shapes if s]
    q, k, v, t = arrays(2, 4, 2, 70, 300, 8, LATE, table)
    largest = abs(cotangent(q.shape) @ v.repeat(2, 1).swapaxes(-1, -2)).max()
    rows = {n: 2 * 4 * 70 / np.prod(s) for n, s in enumerate(present, start=4 if table else 3) if s[3] == 1}
    both(
        "attention",
        [q, k, v, t, *more],
        {"at": LATE, "scale": 0.35},
        zero={n: 2 * largest * count**0.5 for n, count in rows.items()},
    )


def test_attention_with_an_addition_whose_keys_lie_apart():
    q, k, v, t = arrays(2, 4, 2, 70, 300, 8, LATE)
    term = random(2, 4, 300, 70).swapaxes(2, 3)
    both("attention", [q, k, v, t, term], {"at": LATE, "scale": 0.35})


def test_attention_with_large_scores():
    """Logits of several hundred: the error of a probability is that of its logit."""
    at = At.of(70)
    q, k, v, t = arrays(2, 4, 2, 70, 70, 8, at)
    biggest = 30 * abs(q[:, :2] @ k.swapaxes(-1, -2)).max()
    both("attention", [q, k, v, t], {"at": at, "scale": 30.0}, tolerance=4 * U * biggest + CLOSE)


def test_more_than_a_table_by_distance_is_added_by_a_kernel_of_its_own(monkeypatch):
    """So a first step does not wait until it is compiled for an encoding that has no more."""
    some = lambda *shape: random(*shape).astype(np.float32)
    q, H, T, called = some(1, 2, 9, 8), 2, 9, []
    monkeypatch.setattr(kernel.Kernel, "__call__", lambda self, *arguments: called.append(self.name))
    places = np.array([0, 1, 2, 3, 5, 6, 7, 8, 9])
    near, apart = replace(At.of(T), window=3), At(i=places, j=places, n=T)
    for at, general, given in (
        (At.of(T), False, {}),
        (near, False, {"table": some(H, len(near.distances))}),
        (replace(At.of(T), causal=False), False, {}),
        (At.of(T), True, {"term": some(1, 1, T, T)}),
        (At.of(T), True, {"row": some(1, H, T, 1)}),
        (At.of(T), True, {"column": some(1, H, 1, T)}),
        (At.of(T), True, {"softcap": 5.0}),
        (apart, False, {}),
        (apart, True, {"table": some(H, len(apart.distances))}),
    ):
        tape = Tape()
        y = NUMBA.attention(tape.watch({"q": q})["q"], q, q, **given, at=at, scale=0.35)
        tape.gradients(y, some(*y.shape))
        last = "_general" * general
        assert called == [f"attention.forward{last}", f"attention_backward.backward{last}"], given
        called.clear()


def test_row_and_column_stay_wide():
    """Sums near 1e6 that cancel leave a float32 result right to float32."""
    at, c = At.of(70), -1e6 + random(2, 4, 70).cumsum(-1)
    q, k, v, _ = arrays(2, 4, 2, 70, 70, 8, at)
    want = attention(q, k, v, None, None, c[..., None], -c[:, :, None], at=at, scale=0.35)
    got = NUMBA.attention(
        *(a.astype(np.float32) for a in (q, k, v)),
        None,
        None,
        c[..., None],
        -c[:, :, None],
        at=at,
        scale=0.35,
    )
    same(got.astype(np.float64), want, CLOSE)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_nan_that_goes_in_comes_out(place):
    """In q, k or v; a NaN in q or k reaches no row that does not see it (one in v does: 0 times NaN)."""
    at = At.of(150)
    given = [a.astype(np.float32) for a in arrays(1, 2, 1, 150, 150, 8, at, table=False)[:3]]
    given[place][0, 0, 77, 3] = np.nan
    y = NUMBA.attention(*given, at=at, scale=0.3)
    assert np.isnan(y[0, 0, 77]).any()
    assert place == 2 or np.isfinite(y[:, :, :77]).all()


@pytest.mark.parametrize(
    ("M", "K", "N"),
    [
        *((1, 1, 1), (7, 3, 5), (63, 300, 33), (65, 256, 32), (130, 257, 100), (64, 512, 96), (5, 1, 64)),
        (520, 64, 96),  # with 8 lanes B is packed, and in the gradient of the weights gathered beside A'
    ],
)
def test_products_at_every_edge(M, K, N):
    """Rows, depth and columns that are no whole tiles; any strides."""
    both("linear", [random(M, K), random(N, K), random(N)], {})
    both("matmul", [random(3, 1, M, K), random(2, K, N)], {})
    a, b = random(K, M).astype(np.float32).T, random(N, K).astype(np.float32).T
    same(NUMBA.matmul(a, b).astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), CLOSE)


@pytest.mark.parametrize(("K", "N", "turned"), [(128, 128, False), (300, 64, False), (512, 256, True)])
def test_a_product_calls_for_what_it_reads_next(K, N, turned):
    """Every line of the tile below each tile of A; of A' and B every line of the rows after these."""
    M, wide = matrix.ROWS_AT_ONCE, matrix.COLUMNS
    depth = K // 2 if turned else min(matrix.DEPTH, K)
    shapes = (K, M) if turned else (2 * M, K), (K, N)
    a, b = (empty_at_line(shape, np.zeros(1, np.float32)) for shape in shapes)
    rows = [*a[depth:], *b[depth:]] if turned else a[matrix.ROWS : M + matrix.ROWS]
    line, found = matrix.LINE_BYTES, set()
    for p in range(N // wide):
        given = p, a.T if turned else a, 0, b, p * wide, wide, N, depth
        near, apart, by = matrix.prefetched.py_func(*given)
        for tile in range(M // matrix.ROWS):
            at = near + tile * apart
            found |= {(at + k * by) // line for k in range(depth)}
    assert {(row.ctypes.data + n) // line for row in rows for n in range(0, row.nbytes, 4)} <= found


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(
    ("M", "F", "C"), [(1, 5, 3), (7, 33, 70), (8, 352, 128), (63, 32, 32), (65, 300, 33), (130, 96, 100)]
)
def test_activated_linear_at_every_edge(M, F, C, gated):
    """Few rows and many, no whole tiles; gate, bias and residual there or not."""
    up, gate, w = random(M, F), random(M, F, seed=1) if gated else None, random(C, F, seed=2)
    both("activated_linear", [up, gate, w, None, None], {})
    both("activated_linear", [up, gate, w, random(C), random(M, C, seed=3)], {})


def test_a_rotation_keeps_what_it_turned_for_the_gradient_of_a_gain_alone():
    x, angle = random(1, 2, 3, 8).astype(np.float32), random(3, 4)
    kept = lambda gain: any(a is x for a in NUMBA.turn.forward(x, angle, gain, layout="half")[1])
    assert [kept(angle), kept(None)] == [True, False]


@pytest.mark.parametrize("gated", [True, False])
def test_an_activation_far_from_zero_is_on_or_off(gated):
    """Where e^x of float32 is neither finite nor above 0."""
    x = np.repeat([-300.0, -95, -85, 85, 95, 300], 3).reshape(9, 2)
    both("activated_linear", [*((np.ones_like(x), x) if gated else (x, None)), random(3, 2), None, None], {})


@pytest.mark.parametrize(
    ("field", "shapes", "said"),
    [
        ("matmul", [(3, 4), (5, 6)], "[4] and [5]"),
        ("linear", [(3, 4), (5, 6), None], "[4] and [6]"),
        ("activated_linear", [(3, 4), (3, 5), (6, 4), None, None], "[3, 4] and [3, 5]"),
        ("activated_linear", [(3, 4), None, (6, 5), None, None], "[4] and [5]"),
        ("activated_linear", [(3, 4), None, (6, 4), None, (3, 4)], "[3, 6] and [3, 4]"),
        ("rms_norm", [(3, 4), (5,)], "[4] and [5]"),
        ("layer_norm", [(3, 4), (4,), (5,)], "[4] and [4] and [5]"),
        ("short_conv", [(2, 5, 3), (4, 4), None, None], "[3] and [4]"),
        ("short_conv", [(2, 5, 3), (3, 4), (2, 4, 3), None], "[2, 3, 3] and [2, 4, 3]"),
        ("short_conv", [(2, 5, 3), (3, 4), None, (2, 4)], "[2, 5] and [2, 4]"),
        ("wkv4", [(2, 5, 3), (2, 4, 3), (3,), (3,), None, None], "[2, 5, 3] and [2, 4, 3]"),
        ("wkv4", [(2, 5, 3), (2, 5, 3), (3,), (4,), None, None], "[3] and [3] and [4]"),
        ("wkv4", [(2, 5, 3), (2, 5, 3), (3,), (3,), (2, 2, 3), None], "[2, 3, 3] and [2, 2, 3]"),
        (
            "wkv6",
            [(1, 2, 5, 3), (1, 2, 5, 3), (1, 2, 5, 4), (1, 2, 5, 3), (2, 3), None, None],
            "[1, 2, 5, 4]",
        ),
        ("wkv6", [*[(1, 2, 5, 3)] * 4, (3, 2), None, None], "[2, 3] and [3, 2]"),
        (
            "wkv7",
            [*[(1, 2, 5, 3)] * 3, (1, 2, 4, 3), *[(1, 2, 5, 3)] * 2, None, None],
            "[1, 2, 5] and [1, 2, 4]",
        ),
        ("wkv7", [*[(1, 2, 5, 3)] * 6, (1, 2, 3, 4), None], "[1, 2, 3, 3] and [1, 2, 3, 4]"),
        ("delta", [*[(1, 2, 5, 3)] * 4, (1, 2, 5, 4), None, None], "[1, 2, 5, 3] and [1, 2, 5, 4]"),
        ("delta", [(1, 2, 5, 3), (1, 2, 5, 2), *[(1, 2, 5, 3)] * 3, None, None], "[1, 2, 5, 2]"),
        ("delta", [*[(1, 2, 5, 3)] * 5, (1, 2, 3, 4), None], "[1, 2, 3, 3] and [1, 2, 3, 4]"),
        ("diagonal_scan", [(2, 5, 3), (4, 2, 6), (3,), None, None], "[4, 3] and [4, 2] and [4, 3]"),
        ("diagonal_scan", [(2, 5, 3), (4, 3, 6), (3,), (2, 12, 3), None], "[2, 3, 12] and [2, 12, 3]"),
        (
            "selective_scan",
            [(2, 5, 3), (2, 5, 3), (3, 4), (2, 5, 4), (2, 5, 3), (3,), None, None],
            "[2, 5, 4] and [2, 5, 4] and [2, 5, 3]",
        ),
        (
            "selective_scan",
            [(2, 5, 3), (2, 5, 3), (3, 4), (2, 5, 4), (2, 5, 4), (3,), (2, 3, 4), None],
            "[2, 4, 3] and [2, 3, 4]",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(field, shapes, said):
    """A kernel would read beyond the end."""
    given = [None if s is None else np.ones(s, np.float32) for s in shapes]
    settings = (
        {"eps": 1e-5}
        if "norm" in field
        else {"chunk": 4}
        if field in ("wkv6", "wkv7", "delta", "diagonal_scan")
        else {}
    )
    settings |= {"chunk": 4, "discretisation": "euler"} if field == "selective_scan" else {}
    with pytest.raises(Misuse, match=re.escape(said)):
        operation(NUMBA, field)(*given, **settings)


def recurrences(T, C, N, seed=0):
    """field, arrays and settings of every op with a state, for T tokens of C channels, or heads of C // 3
    keys; N numbers of a state.
    """
    B, H, K, V, rng = 3, 2, C // 3, C // 3 + 5, np.random.default_rng(seed)
    normal = rng.standard_normal
    runs = np.array([[0] * T, [t // 11 for t in range(T)], [-1] * (T // 3) + [1] * (T - T // 3)])
    r, k, w, g, q = normal((5, B, H, T, K))
    kappa, log_w, a, v = (
        q / np.sqrt((q * q).sum(-1, keepdims=True)),
        -abs(w) / 4,
        1 / (1 + np.exp(g)),
        normal((B, H, T, V)),
    )
    (x, y), (b, c), fixed = normal((2, B, T, C)), normal((2, B, T, N)) * N**-0.5, -abs(normal(C))
    for at in (None, runs):
        for state in (lambda *shape: None, lambda *shape: normal(shape)):
            sums = state(B, 3, C)
            yield "short_conv", [x, normal((C, 4)), state(B, 3, C), at], {}
            yield "wkv4", [x, y, fixed, normal(C), None if sums is None else abs(sums), at], {}
            modes = np.concatenate([0.6 * normal((2, C, N)), normal((2, C, N))]) * N**-0.5
            # a factor that is rounded is off once more for every token
            modes = modes.astype(np.float32).astype(np.float64)
            yield "diagonal_scan", [x, modes, fixed, state(B, C, 2 * N), at], {"chunk": 16}
            decay = {"log_decay": np.log1p(-(2.0 ** -np.arange(2, H + 2))), "scale": 0.5}
            yield "retention", [q, k, v, state(B, H, K, V), at], {"chunk": 16, **decay}
            yield "wkv6", [r, log_w, k, v, normal((H, K)), state(B, H, K, V), at], {"chunk": 16}
            yield "wkv7", [r, log_w, k * K**-0.5, v, kappa, a, state(B, H, K, V), at], {"chunk": 16}
            for log_g, removed in ((log_w, kappa), (log_w[..., :1], None), (None, kappa)):
                yield "delta", [r, log_g, kappa * a, v, removed, state(B, H, K, V), at], {"chunk": 16}
            for rule in ("euler", "zoh"):
                yield (
                    "selective_scan",
                    [x, y - 1, normal((C, N)), b, c, fixed, state(B, N, C), at],
                    {"discretisation": rule, "chunk": 16},
                )


LONG = [
    (3, 3, 1),
    (15, 63, 5),
    (16, 64, 3),
    (17, 65, 7),
    (31, 30, 3),
    (33, 30, 16),
    (48, 130, 2),
    (63, 6, 2),
    (65, 6, 2),
    (130, 30, 3),
]


@pytest.mark.parametrize(("T", "C", "N"), LONG)
def test_recurrences_at_every_edge(T, C, N):
    """Three tokens, one less and one more than a chunk or a block of channels; from a state, over breaks
    and padding.
    """
    for field, given, settings in recurrences(T, C, N):
        both(field, given, settings)


@pytest.mark.parametrize("decays", [8, 1])
@pytest.mark.parametrize("removes", [True, False])
def test_the_delta_rule_keeps_float32_whatever_the_decay(removes, decays):
    """The bound of the plain op, with a decay of each channel and one of each head, over 8,192 tokens."""
    found = far_from_float64(8192, (64,), removes, decays, op=NUMBA.recurrence("delta", delta))
    assert found.max() <= DELTA_BOUND


def test_a_recurrence_of_fixed_factors_forgets_no_digits():
    """The slowest mode that S4D starts with, over ten thousand tokens: what its factor is off by would be
    off ten thousand times.
    """
    z = np.exp(0.001 * (-0.5 + 31j * np.pi))
    modes, u = (
        np.array([z.real, z.imag, 0.002, 0.001]).reshape(4, 1, 1),
        random(1, 10_000, 1).astype(np.float32),
    )
    got, want = (
        operation(be, "diagonal_scan")(u.astype(d), modes, np.ones(1, d), None, None, chunk=32)[0]
        for be, d in ((NUMBA, np.float32), (PLAIN, np.float64))
    )
    same(got.astype(np.float64), want, CLOSE)


def test_a_nan_in_a_recurrence_comes_out_and_goes_no_further_back():
    """In any array of tokens, at token 20 of 40: rows before it are as they were. Not of retention: it
    fills a chunk there, as in the plain op.
    """
    for field, given, settings in (call for call in recurrences(40, 30, 3) if call[0] != "retention"):
        given = [a.astype(np.float32) if a is not None and a.dtype == np.float64 else a for a in given]
        before = operation(NUMBA, field)(*given, **settings)[0]
        t = before.shape.index(40)
        for n, a in enumerate(given):
            if a is not None and a.dtype == np.float32 and 40 in a.shape:
                spoilt = a.copy()
                spoilt[(slice(None),) * t + (20,)] = np.nan
                y = operation(NUMBA, field)(*given[:n], spoilt, *given[n + 1 :], **settings)[0]
                same(y.take(range(20), t), before.take(range(20), t), 0)
                assert np.isnan(y[:1].take(range(20, 40), t)).any(), (field, n)


def of_model(be, cfg, p, x, seg, **place):
    """Loss and gradient of every parameter, and the logits of a whole, padded and packed model."""
    tape = Tape()
    leaves = tape.watch(p)
    y, nll = model.loss(cfg, leaves, x, x, be=be, seg=seg, **place)
    g = tape.gradients(y, y.dtype.type(0.7))
    return {"nll": nll} | {n: g[a] for n, a in leaves.items()}


def in_pieces(be, cfg, p, x, cuts, **place):
    """The logits of x, decoded in pieces that end at `cuts`."""
    memory, rows, start = model.cache(cfg, 16), [], 0
    for stop in (*cuts, x.shape[1]):
        y, memory = model.decode(
            cfg, p, x[:, start:stop], memory, be=be, **{n: a[..., start:stop] for n, a in place.items()}
        )
        rows.append(y)
        start = stop
    return {"logits": np.concatenate(rows, 1)}


def neighbours(p, seed):
    """The parameters with each number moved to the next float32 on one side."""
    rng = np.random.default_rng(seed)
    return {
        n: np.nextafter(a, np.where(rng.random(a.shape) < 0.5, -np.inf, np.inf).astype(np.float32))
        for n, a in p.items()
    }


def as_close_as_float32(function, cfg, draws=4):
    """function(backend, parameters, draw) -> {name: array}: the kernels' errors are those of float32.

    What float32 can do is measured, not guessed: by the plain ops in float32, for these parameters and for
    four sets of neighbours, which is one rounding more for each parameter. Where one rounding decides over
    the error, that is a normal number times its size, and the kernels have another sample of the same: 4
    times the largest of five in several draws is rarely passed by chance. Where the plain ops are next to
    exact, 4 roundings of the largest number are allowed.
    """
    plain, ours = {}, {}
    for draw in range(draws):
        wide = weights(cfg, draw)
        narrow = {n: a.astype(np.float32) for n, a in wide.items()}
        exact = function(PLAIN, {n: a.astype(np.float64) for n, a in narrow.items()}, draw)
        tries = [
            (plain, PLAIN, narrow),
            *((plain, PLAIN, neighbours(narrow, seed)) for seed in (1, 2, 3, 4)),
            (ours, NUMBA, narrow),
        ]
        for worst, be, p in tries:
            for name, a in function(be, p, draw).items():
                assert a.dtype == np.float32
                assert np.isfinite(a).all()
                error = abs(a - exact[name]).max() / max(abs(exact[name]).max(), 1e-3)
                worst[name] = max(worst.get(name, 0), error)
    for name, error in ours.items():
        allowed = 4 * max(plain[name], U)
        assert not error > allowed, f"{name}: {error:.1e}, allowed {allowed:.1e}"


SEGMENTS = (None, np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]]))


@pytest.mark.parametrize("name", NAMES)
def test_models_are_their_plain_twins(name):
    """Loss and the gradient of every parameter, whole, padded and packed."""
    cfg = config(name, C=36, F=50)
    for seg in SEGMENTS:
        as_close_as_float32(lambda be, p, draw, seg=seg: of_model(be, cfg, p, tokens(2, 9, draw), seg), cfg)


def turning(name):
    """The rotary widths that the encoding takes."""
    return loops.widths(subject(name), {}) if get(name).rotate else []


SHAPES = [
    {},
    {"norm": "layer", "activation": "gelu", "biases": True, "tied": True},
    {"layout": "interleaved", "R": 2, "G": 3, "qk_norm": True},
    {"window": 3, "G": 1},
]
TWO_OF_EACH_HOOK = [name for hook in ("", *HOOKS) for name in filling(hook)[:2]]


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for shape in SHAPES for name in (NAMES if shape is SHAPES[0] else TWO_OF_EACH_HOOK)],
)
def test_decoding_is_its_plain_twin(name, shape):
    """In pieces and token by token, which has a kernel of its own: of one sequence and of two, from an
    offset, after padding, in documents. In the first shape every encoding, in the others two of each hook.
    """
    pe, one = get(name), tuple(range(1, 9))
    unfit = (
        ({"window"} - claims_of(pe))
        | (set() if 2 in turning(name) else {"layout", "R"})
        | ({"G", "qk_norm"} if pe.mix else set())
    )
    fit = {key: given for key, given in shape.items() if key not in unfit}
    cfg = config(name, C=36, F=50, **fit)
    places = ({}, {"positions": 5 + np.arange(9)}, {"seg": SEGMENTS[1][:1]})
    as_close_as_float32(lambda be, p, draw: in_pieces(be, cfg, p, tokens(2, 9, draw), (4,)), cfg, draws=2)
    as_close_as_float32(
        lambda be, p, draw: in_pieces(be, cfg, p, tokens(1 + draw % 2, 9, draw), one, **places[draw]),
        cfg,
        draws=len(places),
    )


@pytest.mark.parametrize("name", [n for n in NAMES if (get(n).axes or 1) > 1])
def test_several_axes(name):
    """Loss, gradients, decoding in pieces and token by token at places of several axes."""
    cfg, place = (
        config(name, C=36, F=50),
        lambda B, draw: np.random.default_rng([B, draw]).integers(0, 30, (get(name).axes, B, 9)),
    )
    as_close_as_float32(
        lambda be, p, draw: of_model(be, cfg, p, tokens(2, 9, draw), None, positions=place(2, draw)),
        cfg,
        draws=2,
    )
    for B, cuts in ((2, (4,)), (1, tuple(range(1, 9)))):
        as_close_as_float32(
            lambda be, p, draw, B=B, cuts=cuts: in_pieces(
                be, cfg, p, tokens(B, 9, draw), cuts, positions=place(B, draw)
            ),
            cfg,
            draws=2,
        )


@pytest.mark.parametrize("name", NAMES)
def test_laws_hold_on_the_kernels(name):
    """No later token changes a bit of an earlier row; tokens in a cache are those of the whole; the same
    call has the same bits.
    """
    cfg, x = config(name), tokens(2, 9)
    p = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
    full = model.logits(cfg, p, x, n=16, be=NUMBA)
    same(model.logits(cfg, p, x, n=16, be=NUMBA), full, 0)
    for t in (1, 4, 8):
        other = x.copy()
        other[:, t:] = (other[:, t:] + 3) % 11
        same(model.logits(cfg, p, other, n=16, be=NUMBA)[:, :t], full[:, :t], 0)
    as_close_as_float32(
        lambda be, p, draw: {"logits": model.logits(cfg, p, x, n=16, be=be, positions=5 + np.arange(9))}, cfg
    )


def test_causal_over_many_tiles():
    """To the bit where every tile is visited; a tile left out has to be left out for all, so its bound may
    see later keys.
    """
    every = backends.get("numba", every_tile=True)
    assert (every.skips, NUMBA.skips, PLAIN.skips) == (False, True, False)
    at, H = At.of(300), 4
    q, k, v, _ = (
        None if a is None else a.astype(np.float32) for a in arrays(1, H, 2, 300, 300, 8, at, table=False)
    )
    steep = -(2.0 ** -np.arange(1, 5))[:, None] * np.arange(300)
    other_k, other_v = k.copy(), v.copy()
    other_k[:, :, 200:] *= 30
    other_v[:, :, 200:] += 1
    before, after = (
        every.attention(q, a, b, steep, at=at, scale=0.35) for a, b in ((k, v), (other_k, other_v))
    )
    same(after[:, :, :200], before[:, :, :200], 0)


SAME_BITS = """
    import hashlib, sys
    import numba
    import numpy as np
    from peref import backends, model
    from peref.config import shaped
    from peref.settings import choose
    from peref.tape import Tape
    runs = [("llama", pe, 150, {}) for pe in ("alibi", "t5", "rope", "forgetting", "retnet")]
    runs += [("llama", pe, 40, {}) for pe in ("mamba", "s4d", "rwkv4", "rwkv6", "rwkv7", "kda", "shaw")]
    runs += [("gpt2", "learned", 300, {"window": 40})]
    for threads in map(int, sys.argv[1:]):
        be, digest = backends.get("numba", threads=threads), hashlib.sha256()
        for shape, pe, T, more in runs:
            cfg = shaped(shape, L=T, layers=1, **choose(pe), **more)
            p, x = model.init(cfg), np.random.default_rng(0).integers(0, 256, (3, T))
            tape = Tape()
            leaves = tape.watch(p)
            y, _ = model.loss(cfg, leaves, x, x, be=be)
            found = tape.gradients(y, np.float32(1))
            for name, leaf in leaves.items():
                g, moments = found[leaf], np.zeros((2, *p[name].shape), np.float32)
                w = p[name].copy()
                rule = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1}
                be.adamw(w, g, *moments, np.asarray(0.01), np.asarray(1), **rule)
                for a in (g, w, moments):
                    digest.update(np.ascontiguousarray(a).tobytes())
        print(numba.get_num_threads(), digest.hexdigest())
"""


def test_bits_do_not_depend_on_threads():
    """One, two and four threads, and two once more in another process."""

    def bits(*threads):
        command = [sys.executable, "-c", textwrap.dedent(SAME_BITS), *map(str, threads)]
        environ = {**os.environ, "NUMBA_NUM_THREADS": "4"}
        lines = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environ
        ).stdout.splitlines()
        assert [line.split()[0] for line in lines] == [*map(str, threads)]
        return {line.split()[1] for line in lines}

    found = bits(4, 1, 2) | bits(2)
    assert len(found) == 1


def test_what_decoding_reads_begins_at_a_cache_line():
    """Copies of weights that do not, and what a cache keeps; more than a cache holds stays where it is."""
    off = {name: np.arange(21 + k, dtype=np.float32)[1 + k :].reshape(4, 5) for k, name in enumerate("abc")}
    placed = NUMBA.place(off)
    assert [a.ctypes.data % 64 for a in placed.values()] == [0] * len(off)
    same(placed, off, 0)
    assert all(a.flags.c_contiguous for a in placed.values())
    assert all(a is placed[name] for name, a in NUMBA.place(placed).items())
    much = {"a": np.empty(CACHED + 1, np.int8)}
    assert NUMBA.place(much) is much
    kept = Kept(off["a"][None, :, None]).longer(3)
    assert kept.buffer.ctypes.data % 64 == 0
    same(kept.rows[:, :, :1], off["a"][None, :, None], 0)


def test_every_filled_field_is_tested():
    """A field cannot be filled without a plain twin's cases."""
    # not one Op: tested by name here and in test_optim
    composed = {"activated_linear", "attention", "adamw", "place", "token"}
    assert set(FIELDS) | composed == set(NUMBA.filled())
    assert all(isinstance(operation(NUMBA, f), Op) for f in FIELDS)


def test_every_recurrence_with_a_kernel_is_asked_for():
    """By the name of its plain op, with which it is compared; NumPy's record has none."""
    assert {name: f"{name}_forward" for name in RECURRENCES} == {
        name: op.forward.__name__ for name, op in RECURRENCES.items()
    }
    left = {"delta", "gather", "interpolate", "probabilities", "scatter"}  # which that leaves plain
    assert set(NUMBA.recurrences) - left == set(cuda.BACKEND.recurrences)
    assert set(NUMBA.recurrences) <= set(RECURRENCES)
    assert not PLAIN.recurrences


def test_an_encoding_asks_for_its_recurrence():
    """The twin that is filled in under its name computes, and what it refuses is not handed on to the
    plain op.
    """
    cfg = config("rwkv4", layers=1)
    plain, calls = RECURRENCES["wkv4"], []
    be = replace(PLAIN, recurrences={"wkv4": lambda *given: (calls.append(1), plain(*given))[1]})
    same(logits(cfg, weights(cfg), tokens(1, 3), be=be), logits(cfg, weights(cfg), tokens(1, 3)), 0)
    assert len(calls) == cfg.layers


def by_ops(name):
    """Whether a token of its layers needs more than their kernel: of softmax attention with a rotation that
    all heads share or a table.
    """
    pe = get(name)
    return bool(pe.score or pe.attend or pe.mix or pe.features or turns_apart(pe))


def next_token(name, B=1, **place):
    """How often the kernel of a token is called for a fourth one of each sequence, how often on a tape, where
    the ops compute the same logits, and the number of layers.
    """
    calls = []
    counted = lambda step: lambda *a: (calls.append(1), step(*a))[1]
    be = replace(NUMBA, token=lambda *a, **b: counted(NUMBA.token(*a, **b)))
    cfg = config(name)
    p = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
    memory = model.decode(cfg, p, tokens(B, 3), model.cache(cfg, 16), be=be)[1]
    calls.clear()
    y = model.decode(cfg, p, tokens(B, 1), memory, be=be, **place)[0]
    count = len(calls)
    taped = model.decode(cfg, Tape().watch(p), tokens(B, 1), memory, be=be, **place)[0]
    # a layer is five sums of at most C terms one after the other, and both ways round in each
    same(taped.value, y, 2 * cfg.layers * 5 * cfg.C**0.5 * U)
    return count, len(calls) - count, cfg.layers


@pytest.mark.parametrize("name", [name for name in NAMES if not by_ops(name)])
def test_one_token_goes_by_its_kernel(name):
    """Every layer, for sequences at one place; on a tape, and where each has its own, the ops do it."""
    for B in (1, 3):
        count, taped, layers = next_token(name, B)
        assert (count, taped) == (layers, 0)
    assert next_token(name, 4, positions=np.arange(3, 7)[:, None])[:2] == (0, 0)


@pytest.mark.parametrize("name", [name for name in NAMES if by_ops(name)])
def test_other_layers_go_by_their_ops(name):
    assert next_token(name)[:2] == (0, 0)


def test_what_would_read_or_write_elsewhere_is_refused():
    """Targets and rows beyond the table, tables of more axes, parameters that a kernel cannot change in
    place.
    """
    x = random(6, 11).astype(np.float32)
    for call, words in (
        (lambda: NUMBA.cross_entropy(x, np.full(6, 11)), "a target is 11"),
        (lambda: NUMBA.take(x, np.array([6])), "of a table that has 6"),
        (lambda: NUMBA.take(x[None], np.array([0])), r"expected rows, \[V,C\]"),
        (
            lambda: NUMBA.adamw(
                x.T,
                *[x.T.copy() for _ in range(3)],
                np.asarray(1.0),
                np.asarray(1),
                beta1=0.9,
                beta2=0.9,
                eps=1e-8,
                decay=0.0,
            ),
            "C-contiguous",
        ),
    ):
        with pytest.raises(Misuse, match=words):
            call()


def test_nothing_and_strides():
    """No rows, and weights that are views."""
    x, w = random(0, 5).astype(np.float32), random(7, 5).astype(np.float32)
    assert NUMBA.linear(x, w, None).shape == (0, 7)
    tape = Tape()
    table = tape.watch(w)
    y = NUMBA.take(table, np.zeros((0, 3), int))
    assert y.shape == (0, 3, 5)
    assert not tape.gradients(y, np.zeros(y.shape, np.float32))[table].any()
    narrow = random(3, 5).astype(np.float32)
    views = {"w": random(10).astype(np.float32)[::2], "b": random(10, seed=1).astype(np.float32)[::2]}
    same(NUMBA.rms_norm(narrow, views["w"], eps=1e-5), PLAIN.rms_norm(narrow, views["w"], eps=1e-5), CLOSE)
    same(
        NUMBA.layer_norm(narrow, *views.values(), eps=1e-5),
        PLAIN.layer_norm(narrow, *views.values(), eps=1e-5),
        CLOSE,
    )
    same(NUMBA.linear(np.asfortranarray(narrow), np.asfortranarray(w), None), narrow @ w.T, CLOSE)


def test_skipping_tiles_changes_nothing_that_matters():
    """Steep heads over 2,000 keys, forward and backward: as close to the plain op as without skipping, and
    really fewer tiles.

    What is left out of a row adds up to 2^-26 of its weights, and adding it is off by as much again; dividing
    rounds once more on both sides.
    """
    at = At.of(2000)
    q, k, v, _ = arrays(1, 4, 2, 2000, 2000, 8, at)
    steep = -(2.0 ** -np.arange(1, 5))[:, None] * np.arange(2000)
    both("attention", [q, k, v, steep], {"at": at, "scale": 0.35}, tolerance=CLOSE * (2000 / 512) ** 0.5)
    narrow = [a.astype(np.float32) for a in (q, k, v)]
    every = NUMBA.attention(*narrow, steep, at=at, scale=0.35, skip=False)
    some = NUMBA.attention(*narrow, steep, at=at, scale=0.35)
    same(some, every, 2 * U + 2.0**-25 * abs(v).max() / abs(every).max())
    holed = narrow[2].copy()
    holed[:, :, 0] = 1e30  # a key that only the bound keeps from mattering
    assert np.isfinite(NUMBA.attention(*narrow[:2], holed, steep, at=at, scale=0.35)[:, :1, 1000:]).all()
    holed[:, :, 0] = np.nan  # is looked for before anything is skipped
    assert np.isnan(NUMBA.attention(*narrow[:2], holed, steep, at=at, scale=0.35)[:, :, 1999]).all()


def test_products_of_one_column():
    """Of contiguous rows, of columns, and with leading axes that are broadcast."""
    for a, b in (
        (random(2, 3, 17, 40), random(2, 3, 40, 1)),
        (random(3, 40, 17).swapaxes(1, 2), random(40, 1)),
        (random(1, 5), random(2, 5, 1)),
    ):
        both("matmul", [a, b], {})
    both("linear", [random(9, 33), random(1, 33), None], {})


WIDTHS = """
    import sys
    from peref.backends.numba import host
    assert host.LANES == 4, host.LANES
    import pytest
    class Count:
        def pytest_collection_finish(self, session):
            print("collected", sorted({item.originalname for item in session.items}), flush=True)
    files = [f"tests/test_numba{part}.py" for part in ("", "_exp", "_nan", "_rows", "_tiles")]
    asked = ["-q", "-x", "-p", "no:cacheprovider", *files, "-k", sys.argv[1]]
    sys.exit(pytest.main(asked, plugins=[Count()]))
"""


# of those whose tokens go by their kernel one without a hook, one that turns and one with a table
DECODING = " or ".join(f"{filling(hook)[0]}-shape" for hook in ("", "rotate", "bias"))
SELECTED = (
    "(edge or every_shape or no_depth or are_their_plain_twins or addition or wide or large or nan or "
    f"skipping or one_column or one_token or {DECODING}) and not refused and not models and not memory"
)
LONG_TO_COMPILE = ("recurrence", "wkv6", "wkv7", "delta", "diagonal_scan", "retention", "selective_scan")


def test_the_narrowest_vectors():
    """The same kernels with 4 lanes, in a process that is told of no wider ones; where there are 16,
    tests/without_avx512.py repeats this whole file with 8.

    The longest to compile at half the width alone.
    """
    if host.LANES == 4:
        pytest.skip(reason="this machine has 4 lanes and is tested with them")
    root = Path(__file__).parent.parent
    every = host.LANES == 8
    which = SELECTED if every else " and not ".join((SELECTED, *LONG_TO_COMPILE))
    command = [sys.executable, "-c", textwrap.dedent(WIDTHS), which]
    env = os.environ | {"NUMBA_CPU_FEATURES": without(host.features(), AVX)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=env, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    collected = next(line for line in done.stdout.splitlines() if line.startswith("collected ["))
    assert all(f"'{test.__name__}'" in collected for test in OF_EVERY_WIDTH), collected
    assert (f"'{test_recurrences_at_every_edge.__name__}'" in collected) == every


def test_products_of_no_depth():
    """Sums of nothing, whatever the strides: products over 0 channels, and the gradient of weights where no
    row came.
    """
    for M, N in ((4, 3), (20, 40), (70, 64)):
        b = np.zeros((1, 0, N), np.float32)
        for a in (np.zeros((1, M, 0), np.float32), np.zeros((1, 0, M), np.float32).transpose(0, 2, 1)):
            y = NUMBA.matmul(a, b)
            assert y.shape == (1, M, N)
            assert not y.any()
        tape = Tape()
        w = tape.watch(random(M, 5).astype(np.float32))
        y = NUMBA.linear(np.zeros((0, 5), np.float32), w, None)
        assert not tape.gradients(y, np.zeros((0, M), np.float32))[w].any()


OF_EVERY_WIDTH = (
    test_products_of_no_depth,
    test_ops_are_their_plain_twins,
    test_attention_at_every_edge_of_a_tile,
    test_attention_of_every_shape,
    test_attention_with_every_addition,
    test_attention_with_large_scores,
    test_row_and_column_stay_wide,
    test_a_nan_that_goes_in_comes_out,
    test_products_at_every_edge,
    test_activated_linear_at_every_edge,
    test_skipping_tiles_changes_nothing_that_matters,
    test_products_of_one_column,
    test_one_token_goes_by_its_kernel,
    test_decoding_is_its_plain_twin,
)


def test_units_are_dealt_once_each_and_a_failure_is_told():
    from numba import njit

    from peref.backends.numba.kernel import INNER
    from peref.backends.numba.threads import in_parallel

    @njit(**INNER)
    def body(unit, seen, size):
        seen[unit] += 1
        np.empty(size, np.uint8)

    @njit
    def run(seen, size):
        in_parallel(body, len(seen), (seen, size))

    seen = np.zeros(1000, np.int64)
    run(seen, 8)
    assert (seen == 1).all()
    run(seen[:0], 8)
    with pytest.raises(MemoryError):
        run(seen, 1 << 60)


def test_threads_count_no_users_of_what_they_share():
    """One number for an array, which all threads would change for every row that they take."""
    from numba import njit, types
    from numba.extending import intrinsic

    from peref.backends.numba.emit import I64
    from peref.backends.numba.kernel import INNER
    from peref.backends.numba.threads import in_parallel

    @intrinsic
    def counter(typingctx, x):
        """Where the number of users of x is counted, or 0."""

        def codegen(context, b, sig, args):
            found = context.make_array(sig.args[0])(context, b, args[0])
            return b.ptrtoint(found.meminfo, I64)

        return types.int64(x), codegen

    @njit(**INNER)
    def body(unit, found, x, made):
        found[unit, 0], found[unit, 1] = counter(x[unit]), counter(made[unit])
        found[unit, 2] = counter(np.empty(8))
        x[unit] += made[unit]

    @njit
    def run(found, x):
        made = np.ones_like(x)
        in_parallel(body, len(found), (found, x, made))

    found, x = np.ones((1000, 3), np.int64), np.ones((1000, 4))
    run(found, x)
    assert (found[:, :2] == 0).all()
    assert (found[:, 2] != 0).all()
    assert (x == 2).all()
