"""Derivatives where two numbers are equal: the mean of both sides, as golden/SPEC.md says; relu's by custom.

A gradient passes through these bends of peref/ops and peref/encodings, and no others:

    max(|m threshold|, i)   fire                       a tie from the start: m begins at 1
    max(root, |sum|)        retnet, rows="parallel"
    min(s, ln 100)          cosine
    min(gate, limit), up    swiglu_clamped             up on either side
    |c|, |m|                fire                       at 0
    relu, leaky relu        fire, dape, dynamic_bias   by custom, as in PyTorch
    min(p, P-1), floor(p)   cope                       by custom, as in its authors' code: test_cope.py

Elsewhere what bends is made of positions, counts or settings, which have no gradient (buckets, clipped
distances, ramps), or cancels (the largest logit of a softmax, the stable forms of sigmoid, softplus and of
RWKV-4's means), or lies where both sides are 0 (the least log w of RWKV-6 and 7).
"""

from importlib import import_module

import numpy as np
import pytest
from check import frozen, gradient
from generated import NAMES, config, every_choice, layer_input, logits, tokens
from making.confirmed import computed
from making.near import computed as near
from mutants import mutants
from recipes.fire import RECIPES

from peref import model
from peref.encodings import files
from peref.golden.compute.reference import expected, inputs
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on
from peref.ops.activation import relu, swiglu_clamped
from peref.ops.cosine import HUNDRED, of_length

FIRE, RETNET = (import_module(files()[name]) for name in ("fire", "retnet"))
ROWS = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [4, 4, 9, 2, 0, 4, 1, 3]])
SHARED = {"threshold": 4.0, "eps": 1e-6}
NEAR = 1e-5  # at a bend a central difference has an error of first order, which extrapolation leaves


@pytest.mark.parametrize("name", NAMES)
def test_gradient_where_parameters_begin(name):
    """What training starts from is where ties are likely."""
    for given in every_choice(name):
        cfg = config(name, pe=((name, given),), layers=1)
        p = frozen(model.init(cfg, 0, np.float64))
        for own in (n for n in p if "pe." in n):
            gradient(lambda a, c=cfg, p=p, n=own: logits(c, p | {n: a}, tokens(2, 7)), [p[own]])


@pytest.mark.parametrize("m", [1.0, -1.0, 0.5, 0.0])
@pytest.mark.parametrize("positions", [np.arange(8), np.arange(9) / 2, ROWS])
def test_fire_shares_the_derivative_of_its_normaliser(m, positions):
    """|m threshold| is the position of some queries. At m = 0 both sides of |m| cancel."""
    at = model.At.of(positions.shape[-1], positions=positions)
    assert (abs(m * 4) == at.i).any()
    arrays = [np.full(1, 0.1), np.full(1, m), at.distances[at.index], at.i]
    gradient(FIRE.share, arrays, SHARED, wrt=[0, 1], tolerance=NEAR)


def test_fire_begins_at_a_tie():
    """The term of FIRE with m where it starts and a whole threshold within the text."""
    cfg = config("fire", pe=(("fire", {"threshold": 4.0}),))
    p, (_, q, k, _) = model.of_encoding(cfg, model.init(cfg, 0, np.float64), 0), layer_input(cfg, 8)
    assert p["m"] == 1

    def term(*arrays):
        own = dict(zip(p, arrays, strict=True))
        return cfg.encoding(0).score(model.PLAIN, own, q, k, {}, model.At.of(8))[0]

    gradient(term, list(p.values()), tolerance=NEAR)


def test_the_golden_case_has_its_tie():
    """The number m is drawn from the id of the case. Budgets are of where no query has it."""
    case = next(case for case in RECIPES if case.slug == "tie")
    bound = abs(inputs(case)["param.m"] * case.options["threshold"])
    assert np.sign(case.at.i - bound).tolist() == [-1, -1, 0, 0, 1]
    assert (np.array(case.untied) != bound).all()


@pytest.mark.parametrize("dtype", ["F64", "F32"])
def test_the_golden_case_shows_a_derivative_of_one_side(dtype):
    """In float32 too: a product by a power of two and a comparison are exact. Right numbers are class A."""
    case = next(case for case in RECIPES if case.slug == "tie")
    a, want = computed(case)
    real = {"F64": np.float64, "F32": np.float32}[dtype]
    narrow = {name: x.astype(real) if x.dtype.kind == "f" else x for name, x in a.items()}
    own = expected(case, narrow)["vjp.param.m"]
    assert own.dtype == real
    truth = [want[f"vjp.param.m{part}"] for part in ("", ":a", ":b")]
    judge = lambda g: verdict_on(Tensor(dtype, g.astype(real)), *truth, case.depth).grade
    assert judge(own) == "A"
    sides = [near(mutant, case, a)["vjp.param.m"] for mutant in mutants() if mutant.flag == "grad.tie"]
    assert [judge(g) for g in sides] == ["FAIL", "FAIL"]


def test_retnet_shares_the_derivative_of_its_rows(rng):
    """The sum of a row is as large as what it is divided by, with either sign, larger, and smaller."""
    o, weights = rng.standard_normal((1, 1, 5, 3)), np.array([1.0, 4.0, 9.0, 4.0, 0.0]).reshape(1, 1, 5, 1)
    sums = np.array([1.0, -2.0, 7.0, 0.5, -1.0]).reshape(1, 1, 5, 1)
    gradient(RETNET.evened, [o, weights, sums], wrt=[0, 2], tolerance=NEAR, elementwise=True)


def test_cosines_share_the_derivative_of_their_limit(rng):
    s = np.array([HUNDRED, 2.0, 5.0])
    gradient(of_length, [rng.standard_normal((1, 3, 2, 4)), s], tolerance=NEAR, elementwise=True)


def test_a_clamped_gate_shares_the_derivative_of_its_limit():
    gate, up = (x.ravel() for x in np.meshgrid([-2.0, 1.0, 2.0, 3.0], [-3.0, -2.0, 0.5, 2.0, 3.0]))
    gradient(swiglu_clamped, [gate, up], {"limit": 2.0}, tolerance=NEAR, elementwise=True)


def test_a_clamped_gate_keeps_one_array_beside_what_it_was_given():
    """As swiglu does; the rest is made again."""
    gate, up = np.ones(3), np.ones(3)
    _, saved = swiglu_clamped.forward(gate, up, limit=2.0)
    assert len([a for a in saved if isinstance(a, np.ndarray) and a is not gate and a is not up]) == 1


@pytest.mark.parametrize("slope", [0.0, 0.01])
def test_relu_has_its_left_derivative_at_zero(slope):
    """As PyTorch; a central difference would be the mean, (1 + slope) / 2."""
    x = np.array([-1.0, -0.0, 0.0, 1.0])
    y, saved = relu.forward(x, slope=slope)
    assert y.tolist() == [-slope, 0, 0, 1]
    assert relu.backward(saved, np.ones(4))[0].tolist() == [slope, slope, slope, 1]
