"""The CUDA kernels, their own text run on the CPU: every op against its plain twin in float64, forward and
backward.
"""

from itertools import pairwise
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from check import same
from emulated.twins import BF16, distance, emulated, twins
from test_ops import random

from peref import optim
from peref.backends.cuda import activation, embedding, loss, norm, optimizer, turn
from peref.backends.cuda.flat import ALIGNED, Flat
from peref.backends.cuda.launch import source
from peref.errors import Misuse
from peref.ops import activation as plain_activation
from peref.ops import embedding as plain_embedding
from peref.ops import loss as plain_loss
from peref.ops import norm as plain_norm
from peref.ops import turn as plain_turn
from peref.ops.shape import add
from peref.tape import Tape

EACH = 2e-6  # kernels that add up little
KINDS = [
    pytest.param({}, id="float32"),
    pytest.param({"dtype": ml_dtypes.bfloat16, "tolerance": BF16}, id="bfloat16"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (8, 40), (2, 7, 129)])
def test_activations(shape, kind):
    given = {"tolerance": EACH, **kind}
    twins(activation.swiglu, plain_activation.swiglu, [3 * random(*shape), random(*shape, seed=1)], **given)
    twins(activation.gelu, plain_activation.gelu, [3 * random(*shape)], **given)


def test_gelu_of_numbers_whose_square_is_none():
    x = np.array([[-3e19, -2e13, 0.5, 2e13, 3e19]])
    twins(activation.gelu, plain_activation.gelu, [x], tolerance=EACH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("M", "C"), [(1, 3), (9, 31), (2, 33), (131, 70), (9, 64), (3, 1040), (2, 1041), (1, 16416)]
)
def test_norms(M, C, kind):
    """One row, a few channels, neither a whole warp; more rows than one share of the sums over rows has; in
    packs and not, by one warp and several, and longer than a block keeps.
    """
    x, w, b = 1 + random(M, 1, C), random(C), random(C, seed=1)
    rest = {"settings": {"eps": 1e-5}, **kind}
    twins(norm.rms_norm, plain_norm.rms_norm, [x, w], **rest)
    twins(norm.rms_norm, plain_norm.rms_norm, [x, None], **rest)
    twins(norm.layer_norm, plain_norm.layer_norm, [x, w, b], **rest)
    twins(norm.layer_norm, plain_norm.layer_norm, [x, None, None], **rest)


@pytest.mark.parametrize("C", [40, 41, 2056])
def test_norms_of_a_sum(monkeypatch, C):
    """What is added to x before it is normed, and to its gradient after; several runs of several rows."""
    monkeypatch.setattr(norm, "MOST_RUNS", 2)
    x, more, w, b, dy, arrived = (random(21, C, seed=k).astype(np.float32) for k in range(6))
    wide = lambda *arrays: (a.astype(np.float64) for a in arrays)
    y, saved = plain_norm.layer_norm_forward(*wide(x + more, w[0], b[0]), eps=1e-5)
    dx, dw, db = plain_norm.layer_norm_backward(saved, dy.astype(np.float64))
    with emulated() as cupy:
        put = cupy.asarray
        got, kept, total = norm.normed(put(x), put(w[0]), put(b[0]), 1e-5, True, put(more))
        found = norm.gradients(kept, put(dy), put(arrived))
        same(total.get(), x + more, 0)
        for one, want in zip((got, *found), (y, dx + arrived, dw, db), strict=True):
            assert distance(one.get(), want) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm_is", ["rms", "layer"])
def test_a_sum_is_normed_where_it_is_added(norm_is, kind):
    """Sum, norm and every gradient, in one launch each way beside the sums over rows; of the norm that nobody
    reads too.
    """
    C, dtype, centred = 24, kind.get("dtype", np.float32), norm_is == "layer"
    arrays = [random(2, 7, C), random(2, 7, C, seed=1), 1 + random(C), random(C) if centred else None]
    given = [None if a is None else a.astype(dtype) for a in arrays]
    dys = [random(2, 7, C, seed=n).astype(dtype) for n in (3, 4)]

    def ran(through, send, widen=lambda a: a):
        tape = Tape()
        leaves = [None if a is None else tape.watch(send(widen(a))) for a in given]
        ys = through(*leaves)
        found = tape.gradients(ys, tuple(send(widen(dy)) for dy in dys[: len(ys)]))
        return [*(y.value for y in ys), *(found[a] for a in leaves if a is not None)]

    def apart(x, y, w, b):
        total = add(x, y)
        return total, (
            plain_norm.layer_norm(total, w, b, eps=1e-5)
            if centred
            else plain_norm.rms_norm(total, w, eps=1e-5)
        )

    with emulated() as cupy:
        send = lambda a: cupy.asarray(a)
        got = ran(lambda *leaves: norm.add_norm(*leaves, eps=1e-5, norm=norm_is), send)
        launched = list(cupy.emulated.launched)
        alone = ran(lambda *leaves: norm.add_norm(*leaves, eps=1e-5, norm=norm_is)[:1], send)
        got, alone = [a.get() for a in got], [a.get() for a in alone]
    want = ran(apart, lambda a: a, lambda a: a.astype(np.float64))
    tolerance = kind.get("tolerance", 1e-5)
    for one, expected in zip(got, want, strict=True):
        assert distance(one.astype(np.float64), expected) <= tolerance
    assert launched == ["norm_forward_2", "norm_backward", *["sum_parts"] * (1 + centred)]
    same(alone[:3], [got[0], dys[0], dys[0]], 0)
    assert not any(a.any() for a in alone[3:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("B", "H", "T", "D", "half"),
    [(1, 1, 1, 2, 1), (2, 3, 5, 10, 4), (3, 2, 7, 8, 4), (1, 4, 3, 24, 8), (1, 2, 3, 1040, 520)],
)
def test_turn(B, H, T, D, half, layout, kind):
    """With angles of all sequences or of each, gains or none, channels that pass, in packs and not, and more
    than a block of them; q as the model has it, tokens before heads.
    """
    for angle, gain in (
        (random(T, half), None),
        (random(B, T, half), 1 + random(T, half) / 9),
        (random(T, half), 1 + random(B, T, half) / 9),
    ):
        for x in (random(B, H, T, D), random(B, T, H, D).swapaxes(1, 2)):
            twins(turn.turn, plain_turn.turn, [x, angle, gain], {"layout": layout}, wide=(1, 2), **kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_turn_by_angles_of_heads(layout, kind):
    """One for each head, or for two heads next to one another; with gains of all heads or of each."""
    B, H, T, D, half = 2, 4, 5, 24, 8
    x = random(B, H, T, D)
    for angle, gain in (
        (random(1, H, T, half), None),
        (random(B, 2, T, half), 1 + random(B, T, half) / 9),
        (random(B, T, half), 1 + random(1, H, T, half) / 9),
    ):
        twins(turn.turn, plain_turn.turn, [x, angle, gain], {"layout": layout}, wide=(1, 2), **kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("H", "G", "D", "half"), [(4, 2, 16, 8), (3, 3, 10, 4)])
def test_q_and_k_are_turned_together(H, G, D, half, layout, kind):
    """The bits of each by `turn`, value and gradient, in one launch each way; the tables are made once for
    all that is turned by them, and the gradients of q, k and v are columns of one array.
    """
    B, T, dtype = 2, 5, kind.get("dtype", np.float32)
    gain = 1 + random(B, T, half) / 9
    cases = [
        (random(T, half), None, None, 1),
        (random(T, half), gain, 1 / gain, 2),
        (random(B, G, T, half), None, None, 1),
    ]
    for *given, made in cases:
        with emulated() as cupy:
            send = lambda a: None if a is None else cupy.asarray(a)
            shapes = [(B, n, T, D) for n in (H, H, G, G, G, G)]
            drawn = (random(*shape, seed=seed).astype(dtype) for seed, shape in enumerate(shapes))
            q, dq, k, dk, v, dv = map(send, drawn)
            angle, *gains = map(send, given)
            turned = turn.turning(angle, *gains)
            found = []
            for _ in range(2):
                tape = Tape()
                leaves = [tape.watch(x) for x in (q, k, v)]
                ys = turned(*leaves, layout=layout)
                back = tape.gradients(tuple(ys), (dq, dk, dv))
                found = [*(y.value for y in ys), *(back[x] for x in leaves)]
            assert cupy.emulated.launched == ["tables"] * made + ["turn"] * 4
            for one, other in pairwise(found[3:]):
                assert other.data.ptr - one.data.ptr == one.shape[1] * D * one.itemsize
                assert one.strides == other.strides
            same([found[2].get(), found[5].get()], [v.get(), dv.get()], 0)
            for n, (x, d, gain) in enumerate(((q, dq, gains[0]), (k, dk, gains[1]))):
                y, saved = turn.turn.forward(x, angle, gain, layout=layout)
                same(found[n].get(), y.get(), 0)
                same(found[3 + n].get(), turn.turn.backward(saved, d, (True, False, False))[0].get(), 0)


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_one_angle_for_all_tokens(shape):
    with emulated() as cupy:
        angle, (q, k, v) = (
            cupy.asarray(random(*shape)),
            (cupy.asarray(random(1, 2, 5, 8, seed=n).astype(np.float32)) for n in range(3)),
        )
        found = turn.turning(angle, None, None)(q, k, v, layout="half")
        for x, y in zip((q, k), found[:2], strict=True):
            same(y.get(), turn.turn.forward(x, angle, None, layout="half")[0].get(), 0)


def test_a_rotation_that_is_learned_is_left_as_it_is():
    """For `turn` has the gradient of the angles."""
    with emulated() as cupy:
        angle = Tape().watch(cupy.ones((3, 4), np.float64))
        assert turn.turning(angle, None, None) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("M", "V"), [(1, 1), (2, 31), (9, 33), (300, 5), (9, 256), (3, 2088), (2, 5001)])
def test_cross_entropy(M, V, kind):
    """Rows of which nothing is asked have no part in it; in packs and not, by one warp and several."""
    targets = np.arange(M)[:, None] * 7 % V
    targets[2::3] = -1
    twins(
        loss.cross_entropy,
        plain_loss.cross_entropy,
        [5 * random(M, 1, V), targets],
        **kind,
        zero=(1,) if V == 1 else (),
    )


def test_cross_entropy_of_extremes():
    """Logits that say no for sure are no reason for NaN; NaN, and a target beyond the vocabulary, are."""
    x = random(5, 40)
    x[1, 3:20], x[2, 0], x[3, 35] = -np.inf, 200.0, np.nan
    with emulated() as cupy:
        given = cupy.asarray(x.astype(np.float32))
        nll = loss.cross_entropy(given, cupy.asarray(np.array([1, 25, 0, 1, 40])))[1].get()
    assert np.isfinite(nll[:3]).all()
    assert np.isnan(nll[3:]).all()
    same(np.float64(nll[1]), np.log(np.exp(x[1]).sum()) - x[1, 25], 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("M", "V", "C"), [(1, 1, 1), (300, 5, 33), (40, 17, 264), (2100, 1300, 8)])
def test_take(M, V, C, kind):
    """Rows taken often, and never; more channels than a block has, more rows, more places than a tile."""
    index = np.random.default_rng(M).integers(0, V, (1, M)) * (V > 5) + (np.arange(M)[None] % 3 % V) * (
        V <= 5
    )
    twins(embedding.take, plain_embedding.take, [random(V, C), index], **kind)


def test_a_row_that_is_taken_very_often():
    """Its gradient is a sum of thousands, taken in float64; what arrived from elsewhere comes last."""
    M, more = 12000, random(5, 3).astype(np.float32)
    dy = np.full((M, 3), 0.1, np.float32)
    with emulated() as cupy:
        saved = ((5, 3), cupy.asarray(np.full(M, 2)))
        found = embedding.take.backward(saved, cupy.asarray(dy))[0].get()
        whole = embedding.take.backward(saved, cupy.asarray(dy), cupy.asarray(more))[0].get()
    same(whole, found + more, 0)
    same(np.float64(found[2]), dy.sum(0, dtype=np.float64), 1e-6)
    assert not found[[0, 1, 3, 4]].any()


def test_take_beyond_the_table():
    """Is NaN, and reads nothing there."""
    with emulated() as cupy:
        y = embedding.take(cupy.ones((3, 4), np.float32), cupy.asarray(np.array([2, 3, -1]))).get()
    assert (y[0] == 1).all()
    assert np.isnan(y[1:]).all()


def test_more_tokens_than_a_kernel_counts():
    """Are refused in words, before anything is made."""
    x = SimpleNamespace(shape=(1 << 16, 1, 1 << 15, 2))
    with pytest.raises(Misuse, match="65536 sequences of 32768 tokens; the cuda backend counts"):
        turn.over(x, np.zeros((1, 1)), None)


RULE = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}


@pytest.mark.parametrize("step", [1, 7])
def test_adamw(step):
    """As the plain one, in place."""
    arrays = [random(3, 300), random(3, 300, seed=1), random(3, 300, seed=2), random(3, 300, seed=3) ** 2]
    plain = [a.astype(np.float32).astype(np.float64) for a in arrays]
    with emulated() as cupy:
        there = [cupy.asarray(a.astype(np.float32)) for a in arrays]
        optimizer.adamw(*there, cupy.asarray(np.array(0.01)), cupy.asarray(np.array(step)), **RULE, decay=0.1)
        optim.adamw(*plain, np.array(0.01), np.array(step), **RULE, decay=0.1)
        for a, b in zip(there, plain, strict=True):
            same(a.get().astype(np.float64), b, 1e-6)


def test_a_chunk_and_a_launch_are_as_long_in_the_kernels():
    """As in the layout of the lines, and in what is handed to one."""
    assert f"CHUNK = {ALIGNED}," in source("optimizer")
    assert f"TENSORS = {optimizer.TENSORS};" in source("optimizer")


SHAPES = {"a.weight": (3, 100), "b": (513,), "c": (7,), "d.weight": (2, 2, 2)}
WHOLE = {"sizes": {"b": 0.5, "c": 2.0}, "decay": 0.1, **RULE}


def updated(cupy, clip=1.0, loss=2.0, wrong=(), fault=0.0, step=3):
    """p, m, v and the word after one step of all parameters, by the kernels and by the plain op, and what
    p, m, v were.
    """
    kinds = [
        {
            name: random(*shape, seed=n + 9 * k).astype(np.float32)
            for k, (name, shape) in enumerate(SHAPES.items())
        }
        for n in range(4)
    ]
    kinds[3] = {name: a * a for name, a in kinds[3].items()}
    for name in wrong:
        kinds[1][name].reshape(-1)[-1] = np.inf
    p, g, m, v = (Flat(kind, cupy) for kind in kinds)
    word, numbers = np.array([7.0, 8.0, fault]), [np.array(x) for x in (loss, 0.01, step, clip)]
    there = cupy.asarray(word)
    optimizer.update(p, dict(g), m, v, *map(cupy.asarray, numbers), there, **WHOLE)
    launched = list(cupy.emulated.launched)
    plain = [{name: a.astype(np.float64) for name, a in kind.items()} for kind in kinds]
    with np.errstate(all="ignore"):
        optim.update(*plain, *numbers, word, **WHOLE)
    for kind in (p, m, v):
        filled = sum(a.size for a in kind.values())
        assert np.count_nonzero(kind.line.get()) <= filled
    got = [{name: a.get() for name, a in kind.items()} for kind in (p, m, v)]
    return got, [plain[k] for k in (0, 2, 3)], [kinds[k] for k in (0, 2, 3)], there.get(), word, launched


@pytest.mark.parametrize("clip", [1.0, 1e6])
def test_all_parameters_at_once(clip):
    """In fewer launches than there are tensors, each with its own rate and decay; a long gradient is made
    shorter, a short one taken as it is.
    """
    with emulated() as cupy:
        got, want, _, word, expected, launched = updated(cupy, clip)
    assert len(launched) < len(SHAPES)
    same(word, expected, 1e-12)
    for kind, plain in zip(got, want, strict=True):
        for name, a in kind.items():
            same(a.astype(np.float64), plain[name], 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_more_gradients_than_a_launch_is_told_of(kind):
    """Each is read where it lies, also behind an odd number of others and up to its last number; weights in
    bfloat16 are those in float32; the gradient that is not finite is named among all.
    """
    arrays = {f"{n:03}": random(n % 9 + 1, seed=n).astype(np.float32) for n in range(optimizer.TENSORS + 3)}
    numbers = [np.array(x) for x in (2.0, 0.01, 3, 1.0)]
    narrow = kind.get("dtype", np.float32)
    with emulated() as cupy:
        p, m, v = (Flat(arrays if n == 0 else {k: a * 0 for k, a in arrays.items()}, cupy) for n in range(3))
        line = cupy.asarray(np.concatenate(list(arrays.values())).astype(narrow))
        ends = np.cumsum([0, *(a.size for a in arrays.values())])
        g = {name: line[start : start + arrays[name].size] for name, start in zip(arrays, ends, strict=False)}
        word, p.narrow = cupy.asarray(np.zeros(3)), p.line.astype(ml_dtypes.bfloat16)
        optimizer.update(p, g, m, v, *map(cupy.asarray, numbers), word, **WHOLE)
        same(p.narrow.get().astype(np.float32), p.line.astype(ml_dtypes.bfloat16).get().astype(np.float32), 0)
        launched = list(cupy.emulated.launched)
        plain = [{name: a.astype(np.float64) for name, a in arrays.items()} for _ in range(4)]
        plain[1] = {name: a.get().astype(np.float64) for name, a in g.items()}
        plain[2:] = [{name: a * 0 for name, a in arrays.items()} for _ in range(2)]
        expected = np.zeros(3)
        optim.update(*plain, *numbers, expected, **WHOLE)
        same(word.get(), expected, 1e-12)
        for name in arrays:
            same(p[name].get().astype(np.float64), plain[0][name], 1e-6)
        line[-1] = np.inf
        optimizer.update(p, g, m, v, *map(cupy.asarray, numbers), word, **WHOLE)
        assert word.get()[2] == 2 + len(arrays) - 1
    assert launched == ["squares", "squares", "arena", "arena"]


def test_gradients_of_another_dtype_are_refused():
    with emulated() as cupy:
        p, m, v = (Flat({"a": np.ones(300, np.float32)}, cupy) for _ in range(3))
        numbers = [cupy.asarray(np.array(1.0))] * 4
        with pytest.raises(Misuse, match="float64"):
            optimizer.update(p, {"a": cupy.ones(300, np.float64)}, m, v, *numbers, None, **WHOLE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": np.nan}, 1),
        ({"loss": np.inf, "wrong": ["c"]}, 1),
        ({"wrong": ["b"]}, 3),
        ({"wrong": ["d.weight", "c"]}, 4),
        ({"fault": 4.0}, 4),
    ],
)
def test_a_step_that_must_not_be(given, said):
    """A loss or gradient that is not finite, now or earlier, changes no bit of p, m and v; the word is
    that of the plain op.
    """
    with emulated() as cupy:
        got, _, before, word, expected, _ = updated(cupy, **given)
    assert word[2] == expected[2] == said
    same(word, expected, 1e-12)
    same(got, before, 0)


@pytest.mark.parametrize("shrink", [0.0, 0.25, 1.0])
def test_adamw_with_a_shorter_gradient(shrink):
    """As the plain one; 0 changes nothing."""
    arrays = [random(3, 300, seed=n).astype(np.float32) for n in range(4)]
    arrays[3] = arrays[3] ** 2
    plain = [a.astype(np.float64) for a in arrays]
    rest = [np.array(0.01), np.array(2), np.array(shrink)]
    with emulated() as cupy:
        there = [cupy.asarray(a) for a in arrays]
        optimizer.adamw(*there, *map(cupy.asarray, rest), **RULE, decay=0.1)
        optim.adamw(*plain, *rest, **RULE, decay=0.1)
        for a, b, was in zip(there, plain, arrays, strict=True):
            same(a.get().astype(np.float64), b, 1e-6)
            if not shrink:
                same(a.get(), was, 0)
