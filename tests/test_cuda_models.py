"""Whole models on the cuda backend, its kernels run on the CPU, against the plain ops in float64."""

from dataclasses import replace

import fake_cublas
import ml_dtypes
import numpy as np
import pytest
from check import same_numbers
from emulated.twins import CLOSE, distance, emulated
from generated import config, filling, tokens, weights
from test_train import SMALL, parts, tiny, zeros

from peref import backends, model
from peref.backends.cuda import open_device
from peref.ops.cast import in_dtype
from peref.optim import read_status
from peref.tape import Tape
from peref.train import one_step
from peref.xp import to_host

PLAIN = backends.get("numpy")
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
GEMMA = {"norm_place": "both", "norm_from_one": True, "activation": "geglu"}
SHARED = {"residual": "shared", "activation": "gelu_exact", "logit_factor": 0.5}
PARALLEL = {"residual": "parallel", "activation": "relu2"}
CASES = [
    ("rope", {}, SEGMENTS),
    ("xpos", {"layout": "interleaved", "norm": "layer", "activation": "gelu", "biases": True}, None),
    ("rope_mixed", {}, None),
    ("alibi", {"window": 3}, None),
    ("rope", {**GEMMA, "embed_factor": 6.0, "logit_softcap": 2.0, "qk_norm": True}, SEGMENTS),
    ("rope", {**SHARED, "norm": "layer", "biases": True, "head_bias": True, "embed_norm": True}, None),
    ("alibi", {**PARALLEL, "qk_norm": True, "qk_norm_over": "width", "residual_factor": 0.5}, None),
    ("t5", {"G": 1}, None),
    ("t5", {}, SEGMENTS),
    ("forgetting", {}, SEGMENTS),
    ("fire", {}, SEGMENTS),
    ("retnet", {}, SEGMENTS),
    ("s4d", {}, None),
    ("mamba", {}, SEGMENTS),
    ("rwkv4", {}, SEGMENTS),
    ("rwkv6", {}, None),
    ("rwkv7", {}, SEGMENTS),
]


def of_model(be, cfg, p, x, seg):
    """Loss of each token and gradient of every parameter, in NumPy."""
    tape = Tape()
    leaves = tape.watch(be.place(p))
    y, nll = model.loss(cfg, leaves, x, x, be=be, seg=seg)
    found = tape.gradients(y, be.place(np.ones((), y.dtype)))
    host = lambda a: a.get() if hasattr(a, "get") else np.asarray(a)
    return {"nll": host(nll)} | {n: host(found[a]) for n, a in leaves.items()}


def neighbours(p, seed):
    """Every weight one step of float32 up or down."""
    rng = np.random.default_rng(seed)
    ways = {n: rng.choice(np.float32([-np.inf, np.inf]), a.shape) for n, a in p.items()}
    return {n: np.nextafter(a, ways[n]) for n, a in p.items()}


@pytest.mark.parametrize(
    ("name", "shape", "seg"),
    CASES,
    ids=[f"{name}{'' if seg is None else ' packed'}" for name, _, seg in CASES],
)
def test_models_are_their_plain_twins(name, shape, seg):
    """Each way in which an encoding meets the kernels: angles, gains, tables by diagonal and by index, term,
    row, column, retention.

    Where the plain ops in float32 are further off than kernels may be, a rounding decides, and kernels have
    another sample of the same. Three samples tell how far that goes: the weights as they are, and moved to
    a neighbour in float32.
    """
    cfg = config(name, C=36, F=50, **shape)
    p, x = {n: a.astype(np.float32) for n, a in weights(cfg).items()}, tokens(2, 9)
    want = of_model(PLAIN, cfg, {n: a.astype(np.float64) for n, a in p.items()}, x, seg)
    rounded = [of_model(PLAIN, cfg, some, x, seg) for some in (p, neighbours(p, 1), neighbours(p, 2))]
    with emulated() as cupy:
        got = of_model(open_device(cupy, fake_cublas.Library()), cfg, p, x, seg)
        assert len(set(cupy.emulated.launched)) > 8
    for n, a in want.items():
        assert got[n].dtype == np.float32
        error, allowed = distance(got[n], a), max(CLOSE, *(4 * distance(one[n], a) for one in rounded))
        assert error <= allowed, f"{n}: {error:.1e}, allowed {allowed:.1e}"


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_what_a_feed_forward_adds_is_added_where_the_next_layer_norms_it(activation):
    """In place of a copy of the stream that its last product is added to; the last layer has no next one."""
    cfg, added, alone = replace(tiny("rope"), layers=3, activation=activation), [], []
    with emulated() as cp:
        be = open_device(cp, fake_cublas.Library())
        norm, down = be.add_norm, be.activated_linear
        be = replace(
            be,
            add_norm=lambda *given, **how: added.append(how) or norm(*given, **how),
            activated_linear=lambda *given: alone.append(given[-1] is None) or down(*given),
        )
        of_model(be, cfg, model.init(cfg), *parts(1)[0][:1], None)
    assert len(added) == 3 + 2
    assert alone == [True, True, False]


def test_every_op_is_filled():
    """Nothing is left to the plain text but a layer for one token in one call, which is composed of the
    ops.
    """
    with emulated() as cupy:
        assert open_device(cupy, fake_cublas.Library(), "cuda:bf16").plain() == []


OWN = filling("score", "attend", "mix")


@pytest.mark.parametrize("name", [*OWN, "t5", "learned_bias", "learned"])
def test_what_encodings_compute_themselves_stays_float32_beside_bfloat16(name):
    """A step with weights in bfloat16 has the loss and the norm of float32 to bfloat16's digits, or to
    four times what rounding the weights does to them (RetNet's norm of a first token that is nearly 0),
    with a gradient for every weight. Tables are bfloat16 throughout, their sums are not.
    """
    cfg, seen, found = tiny(name), set(), []
    p = model.init(cfg)
    rounded = {n: a.astype(ml_dtypes.bfloat16).astype(np.float32) for n, a in p.items()}

    def widened(x, widen):
        seen.add(x.dtype.name)
        y = widen(x)
        assert y.dtype == np.float32
        return y

    with emulated() as cupy:
        be = open_device(cupy, fake_cublas.Library(), "cuda:bf16")
        be = replace(be, step=backends.call, widen=lambda x, widen=be.widen: widened(x, widen))
        for one, first in ((be, p), (PLAIN, p), (PLAIN, rounded)):
            weights, *moments = (
                one.place({n: np.array(a) for n, a in kind.items()}) for kind in (first, zeros(p), zeros(p))
            )
            word = to_host(one_step(one, cfg, SMALL.rule, weights, *moments, parts(1), SMALL.numbers(1)))
            found.append(
                (
                    np.array(read_status(word, p)),
                    {n for n, a in weights.items() if (to_host(a) != first[n]).any()},
                )
            )
    (got, changed), (want, expected), (near, _) = found
    assert seen == ({"bfloat16"} if name in OWN else set())
    for a, e, n in zip(got, want, near, strict=True):
        same_numbers(a, e, min(max(0.03, 4 * abs(n - e) / e), 0.99))
    assert changed == expected


@pytest.mark.parametrize("form", [case[1] for case in CASES[3:6]], ids=["both", "shared", "parallel"])
def test_forms_of_a_block_train_beside_bfloat16(form):
    """A step with weights in bfloat16 has the loss and the norm of float32 to bfloat16's digits, and changes
    every weight that float32 changes.
    """
    cfg, found = replace(tiny("alibi"), **form), []
    p = model.init(cfg)
    with emulated() as cupy:
        be = replace(open_device(cupy, fake_cublas.Library(), "cuda:bf16"), step=backends.call)
        for one in (be, PLAIN):
            weights, *moments = (
                one.place({n: np.array(a) for n, a in kind.items()}) for kind in (p, zeros(p), zeros(p))
            )
            word = to_host(one_step(one, cfg, SMALL.rule, weights, *moments, parts(1), SMALL.numbers(1)))
            changed = {n for n, a in weights.items() if (to_host(a) != p[n]).any()}
            found.append((np.array(read_status(word, p)), changed))
    (got, changed), (want, expected) = found
    for a, e in zip(got, want, strict=True):
        same_numbers(a, e, 0.03)
    assert changed == expected


def test_a_cast_and_its_gradient():
    """The gradient has the dtype that the array had; an array that has the dtype, or is absent, is itself."""
    tape, x = Tape(), np.arange(3, dtype=np.float32)
    leaf = tape.watch(x)
    y = in_dtype(leaf, np.dtype(np.float64))
    assert y.dtype == np.float64
    (dx,) = [tape.gradients(y, np.array([1.0, 2.0, 3.0]))[leaf]]
    assert dx.dtype == np.float32
    assert dx.tolist() == [1, 2, 3]
    assert in_dtype(x, np.dtype(np.float32)) is x
    assert in_dtype(None, np.dtype(np.float32)) is None
