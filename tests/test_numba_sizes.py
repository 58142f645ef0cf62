"""Sizes that do not fit: every op of the numba backend computes what its plain twin computes, or refuses
it in words.
"""

import ast
import re
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from check import same
from generated import config, tokens, weights
from registry import operation
from test_numba import CLOSE, FIELDS, NUMBA, PLAIN, both, fullest
from test_ops import CASES, LATE, PACKED, REAL, random, table

from peref import model
from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops import token
from peref.errors import Misuse, PerefError
from peref.ops.activation import swiglu
from peref.ops.place import At
from peref.ops.shape import merge_heads, split_heads
from peref.passes import start_pass
from peref.tape import Tape

ADAMW = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "decay": 0.1}
RATE, STEP = np.asarray(1e-2), np.asarray(3)


CALLS = [
    (field, *case)
    for field, name in FIELDS.items()
    for case in (CASES[name] if field == "turn" else [fullest(CASES[name])])
]
CALLS += [
    ("activated_linear", [random(3, 5), random(3, 5, seed=1), random(4, 5), random(4), random(3, 4)], {}),
    ("activated_linear", [random(9, 5), None, random(4, 5), random(4), random(9, 4)], {}),
    *(
        (
            "attention",
            [random(B, 4, at.T, 4), random(B, 2, at.S, 4), random(B, 2, at.S, 6), table(4, at), *more],
            {"at": at, "scale": 0.5},
        )
        for B, at, more in (
            (2, LATE, (random(2, 4, 5, 7), random(2, 4, 5, 1), random(2, 4, 1, 7))),
            (3, PACKED, ()),
            (
                3,
                At.of(
                    7,
                    positions=np.array([[0, 1, 1, 2, 5, 7, 9], [0, 2, 3, 3, 4, 5, 6], [0, 3, 4, 4, 5, 6, 9]]),
                ),
                (),
            ),
            (2, REAL, ()),
        )
    ),
]


def other_sizes(x):
    """x with each axis one longer, one shorter and of 1, and with an axis more and an axis less; what is
    new repeats the last.
    """
    for axis, n in enumerate(x.shape):
        for size in {n + 1, n - 1, 1} - {n, 0}:
            yield x.take(np.minimum(np.arange(size), n - 1), axis)
    yield x[None]
    if x.ndim:
        yield x[0]


def calls(arrays, settings):
    """Arrays and settings with one array, or one setting that is an array, of another size."""
    for n, a in enumerate(arrays):
        for other in () if a is None else other_sizes(a):
            yield [*arrays[:n], other, *arrays[n + 1 :]], settings
    for name, a in settings.items():
        for other in other_sizes(a) if isinstance(a, np.ndarray) else ():
            yield arrays, settings | {name: other}


def found(be, dtype, field, arrays, settings):
    """The result and every gradient, or the exception."""
    try:
        tape = Tape()
        args = [
            tape.watch(a.astype(dtype)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for a in arrays
        ]
        y = operation(be, field)(*args, **settings)
        y = y[0] if isinstance(y, tuple) else y
        dy = random(*y.shape, seed=99).astype(y.dtype) if y.shape else y.dtype.type(0.7)
        got = tape.gradients(y, dy)
        return [y.value, *(got[a] for a in args if hasattr(a, "slot"))]
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("field", "arrays", "settings"), CALLS, ids=[f"{c[0]}-{n}" for n, c in enumerate(CALLS)]
)
def test_every_size_is_the_plain_op_or_refused(field, arrays, settings):
    """Each axis of each array one longer, one shorter or 1, and one axis more or less. A kernel does not
    look where an array ends.
    """
    refused = 0
    for given, those in calls(arrays, settings):
        sizes = [None if a is None else a.shape for a in given]
        want, got = (
            found(PLAIN, np.float64, field, given, those),
            found(NUMBA, np.float32, field, given, those),
        )
        if isinstance(got, Exception):
            assert isinstance(got, PerefError), (field, sizes, got)
            refused += 1
            continue
        assert not isinstance(want, Exception), (field, sizes, want)
        assert [a.shape for a in got] == [a.shape for a in want]
        # on one scale: a gradient may be 0 but for rounding, as that of a norm of one channel
        fast, plain = (np.concatenate([a.astype(np.float64).ravel() for a in some]) for some in (got, want))
        same(fast, plain, CLOSE, f"{field} {sizes}")
    assert refused


@pytest.mark.parametrize("n", range(4))
def test_adamw_takes_arrays_of_one_size(n):
    """Parameter, gradient and moments; nothing is written before."""
    arrays = [random(4, 6, seed=k).astype(np.float32) for k in range(4)]
    for other in other_sizes(arrays[n]):
        given = [*arrays[:n], other.copy(), *arrays[n + 1 :]]
        before = [a.copy() for a in given]
        with pytest.raises(Misuse, match="adamw: the parameter, its gradient and moments: sizes"):
            NUMBA.adamw(*given, RATE, STEP, **ADAMW)
        same(given, before, 0)


C, F, D, H, G = 6, 5, 4, 4, 2
SIZES = {"C": C, "H": H, "G": G, "D": D, "F": F, "norm": "layer"}
HOW = {"scale": 0.5, "eps": 1e-5, "layout": "half"}
SHAPES = token.shapes_of(C, H, G, D, F)


def layer(x, w, keys, values, angle, gains, table, *, at, scale, eps, layout):
    """The plain twin of `token`, of layers with LayerNorm, QK-norm and a gate."""
    linear = lambda name, a: PLAIN.linear(a, w[f"{name}.weight"], w[f"{name}.bias"])
    h = PLAIN.layer_norm(x, w["norm1.weight"], w["norm1.bias"], eps=eps)
    q, k, v = (split_heads(linear(name, h), heads=heads) for name, heads in (("q", H), ("k", G), ("v", G)))
    q, k = PLAIN.rms_norm(q, w["qnorm.weight"], eps=eps), PLAIN.rms_norm(k, w["knorm.weight"], eps=eps)
    q, k = (PLAIN.turn(a, angle, gain, layout=layout) for a, gain in zip((q, k), gains, strict=True))
    keys, values = (np.concatenate([old[:, :, : at.S - 1], new], 2) for old, new in ((keys, k), (values, v)))
    x = x + linear("o", merge_heads(PLAIN.attention(q, keys, values, table, at=at, scale=scale)))
    h = PLAIN.layer_norm(x, w["norm2.weight"], w["norm2.bias"], eps=eps)
    return x + linear("down", swiglu(linear("gate", h), linear("up", h)))


def by_kernel(x, w, keys, values, angle, gains, table, *, at, scale, eps, layout):
    step = NUMBA.token((angle, *gains), table, at=at, scale=scale, eps=eps, layout=layout, **SIZES)
    return step(x, w, keys, values)


def one_token(function, dtype, given, at):
    """`function` of copies of the arrays given in one list, or the exception."""
    x, *weights, keys, values, angle, gain_q, gain_k, table = (
        None if a is None else a.astype(dtype) for a in given
    )
    w = {name: a for name, a in zip(SHAPES, weights, strict=True) if a is not None}
    try:
        return function(x, w, keys, values, angle, (gain_q, gain_k), table, at=at, **HOW)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "at", [At(np.arange(3, 4), np.arange(4), 8), At(np.array([9]), np.array([0, 2, 2, 9]), 8)]
)
def test_every_size_for_one_token_is_the_plain_layer_or_refused(at):
    """Likewise for the kernel of a whole layer."""
    shapes = [(1, 1, C), *SHAPES.values(), *[(1, G, 7, D)] * 2, *[(1, 2)] * 3, (H, len(at.distances))]
    arrays = [random(*s, seed=n) for n, s in enumerate(shapes)]
    for given in [arrays, *(given for given, _ in calls(arrays, {}))]:
        want, got = one_token(layer, np.float64, given, at), one_token(by_kernel, np.float32, given, at)
        if isinstance(got, Exception):
            assert given is not arrays
            assert isinstance(got, PerefError), got
            continue
        assert not isinstance(want, Exception), want
        same(got.astype(np.float64), want, 4 * CLOSE)  # five sums one after the other
    for name in ("norm1.weight", "q.weight", "o.weight", "down.weight"):
        missing = 1 + list(SHAPES).index(name)
        given = [*arrays[:missing], None, *arrays[missing + 1 :]]
        assert f"{name} is absent; every layer has one" in str(one_token(by_kernel, np.float32, given, at))
    for other in (At.of(2), At(np.arange(7, 8), np.arange(8), 8), At.of(1, seg=np.ones((2, 1), int))):
        assert isinstance(one_token(by_kernel, np.float32, arrays, other), PerefError)


def test_one_token_is_computed_with_every_weight_of_a_layer():
    """The kernel knows all that a layer may have, and refuses what it does not know."""
    cfg = config("rope", norm="layer", biases=True, qk_norm=True)
    this = start_pass(PLAIN, cfg, model.init(cfg), At.of(1))
    shapes = token.shapes_of(cfg.C, cfg.H, cfg.G, cfg.D, cfg.F)
    assert {name: a.shape for name, a in this.weights[1].items()} == shapes
    step = NUMBA.token(None, None, at=At.of(1), **SIZES, **HOW)
    w = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    room = np.zeros((1, G, 1, D), np.float32)
    assert step(np.ones((1, 1, C), np.float32), w, room, room.copy()).shape == (1, 1, C)
    with pytest.raises(Misuse, match=r"token: norm3\.weight is none of a layer's weights, which are norm1"):
        step(np.ones((1, 1, C), np.float32), w | {"norm3.weight": w["norm1.weight"]}, room, room.copy())


def test_weights_of_one_token_go_by_their_names():
    """In one argument, whatever their order, and the kernel reads none by a number."""
    w = {name: random(*shape, seed=n).astype(np.float32) for n, (name, shape) in enumerate(SHAPES.items())}
    x = random(1, 1, C).astype(np.float32)
    kept = lambda: [np.zeros((1, G, 1, D), np.float32) for _ in range(2)]
    step = NUMBA.token(None, None, at=At.of(1), **SIZES, **HOW)
    same(step(x, dict(reversed(w.items())), *kept()), step(x, w, *kept()), 0)
    text, fields = Path(kernels("token").__file__).read_text(), kernels("token").Weights._fields
    functions = {f.name: f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)}
    for one in (functions["layer"], functions["some"]):
        arguments = [a.arg for a in one.args.args]
        assert "weights" in arguments
        assert not {*arguments} & {*fields}
        read = [ast.unparse(x.value) for x in ast.walk(one) if isinstance(x, ast.Subscript)]
        assert not {*read} & {"w", "weights"}


def test_a_sequence_beside_others_is_computed_as_if_alone():
    """To the bit, however many share a reading of the weights: eleven are more than ever do."""
    B, sizes = 11, {"C": 36, "H": 4, "G": 2, "D": 10, "F": 50}
    shapes = token.shapes_of(**sizes)
    narrow = lambda shape, seed: random(*shape, seed=seed).astype(np.float32)
    w = {name: narrow(shape, n) for n, (name, shape) in enumerate(shapes.items())}
    x, *kept = (narrow(shape, 1) for shape in ((B, 1, 36), (B, 2, 12, 10), (B, 2, 12, 10)))
    step = NUMBA.token(None, None, at=At(np.arange(10, 11), np.arange(11), 16), norm="rms", **sizes, **HOW)
    alone = [step(x[n : n + 1], w, *(a[n : n + 1].copy() for a in kept)) for n in range(B)]
    same(step(x, w, *kept), np.concatenate(alone), 0)


def q_k_v(B, sequences, T=70, E=6):
    return [random(B, 4, T, 8), random(sequences[0], 2, T, 8, seed=1), random(sequences[1], 2, T, E, seed=2)]


@pytest.mark.parametrize("at", [At.of(70), At.of(70, window=9, positions=np.arange(70) // 2)])
@pytest.mark.parametrize("sequences", [(1, 3), (3, 1), (1, 1)])
def test_what_may_stand_beside_more_is_computed(at, sequences):
    """One table for all heads, k and v of one sequence for all, terms with fewer axes; gradients in their
    own shapes.
    """
    N = len(at.distances)
    both("attention", [*q_k_v(3, sequences), random(1, N)], {"at": at, "scale": 0.3})
    both("attention", [*q_k_v(3, sequences), random(4, N), random(4, 70, 70)], {"at": at, "scale": 0.3})


@pytest.mark.parametrize(
    "shapes", list(pairwise([(1, 3), (5, 3), (1, 5, 3), (2, 1, 3), (3,), (2, 5, 3), (1, 1)]))
)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_angles_and_gains_of_one_token_or_sequence_are_for_all(shapes, layout):
    """Whatever the plain op lets stand beside x."""
    angle, gain = shapes
    both("turn", [random(2, 4, 5, 8), random(*angle), random(*gain)], {"layout": layout})


NARROW = {"at": At.of(6), "scale": 0.5}
SCAN = {"log_decay": np.full(4, -0.1), "chunk": 4, "scale": 0.5}


@pytest.mark.parametrize(
    ("field", "shapes", "settings", "said"),
    [
        (
            "attention",
            [(2, 4, 6, 8), (2, 2, 6, 4), (2, 2, 6, 4)],
            NARROW,
            "widths of q and k: sizes [8] and [4]",
        ),
        (
            "attention",
            [(2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 5, 8)],
            NARROW,
            "heads and tokens of k and v: sizes [2, 6] and [2, 5]",
        ),
        ("attention", [(2, 4, 6, 8), (2, 2, 5, 8), (2, 2, 5, 8)], NARROW, "sizes [6, 5] and [6, 6]"),
        ("attention", [(2, 3, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)], NARROW, "3 heads of q over 2 of k"),
        ("attention", [(2, 4, 6, 8), (3, 2, 6, 8), (2, 2, 6, 8)], NARROW, "2 sequences of q, 3 of k"),
        (
            "attention",
            [(1, 4, 6, 8), *[(1, 2, 6, 8)] * 2],
            {**NARROW, "at": At.of(6, seg=np.ones((2, 6), int))},
            "2 of the place",
        ),
        ("attention", [(2, 4, 6, 8), *[(2, 2, 6, 8)] * 2, (4, 5)], NARROW, "[4, 6] and [4, 5]"),
        (
            "attention",
            [(2, 4, 6, 8), *[(2, 2, 6, 8)] * 2, None, None, (2, 4, 6, 6)],
            NARROW,
            "the row: [2, 4, 6, 6] does not fit",
        ),
        ("turn", [(2, 4, 6, 8), (6, 6), None], {"layout": "half"}, "6 angles turn 12 channels, x has 8"),
        (
            "turn",
            [(2, 4, 40, 8), (7, 3), None],
            {"layout": "half"},
            "the angles: [7, 3] does not fit; expected [2, 40, 3]",
        ),
        ("turn", [(2, 4, 6, 8), (6, 3), (2, 7, 3)], {"layout": "half"}, "the gain: [2, 7, 3] does not fit"),
        (
            "retention",
            [(2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 6, 8), None, None],
            SCAN,
            "q and k: sizes [2, 4, 6, 8] and [2, 4, 5, 8]",
        ),
        (
            "retention",
            [(2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 8), None, None],
            SCAN,
            "heads of q and decays: sizes [3] and [4]",
        ),
        ("matmul", [(2, 3, 4), (3, 4, 5)], {}, "leading axes equal or 1"),
        ("linear", [(3, 4), (5, 4), (4,)], {}, "rows of w, and b: sizes [5] and [4]"),
    ],
)
def test_what_does_not_fit_is_said(field, shapes, settings, said):
    given = [None if s is None else np.ones(s, np.float32) for s in shapes]
    with pytest.raises(Misuse, match=re.escape(said)):
        operation(NUMBA, field)(*given, **settings)


def test_targets_and_rows_are_whole_numbers_as_many_as_there_are():
    x = random(6, 11).astype(np.float32)
    with pytest.raises(Misuse, match=re.escape("rows of logits, and targets: sizes [6] and [5] do not fit")):
        NUMBA.cross_entropy(x, np.zeros(5, int))
    for call in (NUMBA.cross_entropy, NUMBA.take):
        with pytest.raises(Misuse, match="expected whole numbers"):
            call(x, np.zeros(6))


def peak(function):
    """The most that arrays took at any time of a call, in bytes; what kernels take is counted too."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


DOCUMENTS = np.repeat([[0, 1, 2]], [100, 900, 1048], 1)


def test_documents_and_padding_make_no_square_of_a_table():
    """Attention with a table, forward and backward, and one that is padded on the left: less than half a
    byte for each pair of tokens.
    """
    T, documents = 4096, np.repeat(DOCUMENTS, 2, 1)
    arrays = [random(1, 1, T, 8).astype(np.float32) for _ in range(3)]

    def both_ways(seg):
        tape, at = Tape(), At.of(T, seg=seg)
        y = NUMBA.attention(*map(tape.watch, (*arrays, -0.01 * at.distances[None])), at=at, scale=0.3)
        tape.gradients(y, y.value)

    both_ways(documents)
    for seg in (documents, documents.clip(0, 1)):
        assert peak(lambda seg=seg: both_ways(seg)) < T * T / 2


def test_a_model_of_documents_makes_no_square():
    """Its loss with alibi over 4,096 tokens of two documents, where one byte for each pair of tokens would
    be 16 MiB.
    """
    T = 4096
    cfg = config("alibi", C=16, F=16, L=T, layers=1)
    p, x = {n: a.astype(np.float32) for n, a in weights(cfg).items()}, tokens(1, T)
    seg = np.repeat(DOCUMENTS, 2, 1)
    run = lambda: model.loss(cfg, p, x, x, be=NUMBA, seg=seg)
    run()
    assert peak(run) < T * T / 2
