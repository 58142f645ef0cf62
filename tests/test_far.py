"""Float32 far out: a million positions on, and behind a long past, each encoding is as good as its formula allows.

What a formula allows is measured: how far its float64 outputs move when each number that goes in is rounded once, up or down by a draw. Float32
rounds a number once as it comes in and a dozen times on the way; independent roundings add up in quadrature, so that 16 of them are 4 times one.
A table of positions or a sum over tokens made in float32 is 100 times off and more.
"""

import numpy as np
import pytest
from generated import config, every_choice, filling, tokens, weights

from peref import model
from peref.ops.bias import slopes

ROUNDED = 2.0**-24
FAR = np.array([0, 1, 2047, 2048, 4096, 131071, 524288, 1048574, 1048575])
ALIBI = {"over": "alibi"}


def rounded(x, rng):
    return x * (1 + ROUNDED * rng.choice([-1, 1], x.shape))


def as_good_as_the_formula(function, p, *arrays, most=4):
    """function(p, *arrays) in float32 against float64, both of the same float32 numbers."""
    p, arrays = {n: a.astype(np.float32) for n, a in p.items()}, [a.astype(np.float32) for a in arrays]
    got = function(p, *arrays)
    wide, arrays = {n: a.astype(np.float64) for n, a in p.items()}, [a.astype(np.float64) for a in arrays]
    exact, rng = function(wide, *arrays), np.random.default_rng(0)
    assert (got.dtype, exact.dtype) == (np.float32, np.float64)
    moved = max(abs(function({n: rounded(a, rng) for n, a in wide.items()}, *(rounded(a, rng) for a in arrays)) - exact).max() for _ in range(3))
    error = abs(got - exact).max()
    assert moved < 1e-4 * abs(exact).max()
    assert not error > most * moved, f"{error:.1e}, {error / moved:.1f} times what one rounding moves"


@pytest.mark.parametrize("name", filling("score", "attend", "mix"))
def test_a_million_positions_on(name):
    """Every option, one layer, tokens that lie next to each other and a million apart."""
    for given in every_choice(name):
        if given != ALIBI:
            cfg = config(name, pe=((name, given),), layers=1)
            as_good_as_the_formula(lambda p, cfg=cfg: model.logits(cfg, p, tokens(2, len(FAR)), n=16, positions=FAR), weights(cfg))


@pytest.mark.parametrize("last", [8191, 1048575])
def test_dape_over_alibi_is_as_good_as_the_biases_it_is_given(last):
    """Far biases are large, a network passes on their rounding, and far keys may win: outputs are off by a few roundings of the largest."""
    cfg, i = config("dape", pe=(("dape", ALIBI),), layers=1), np.array([0, 1, last // 4, last // 4 + 1, last])
    wide = {n: a.astype(np.float32).astype(np.float64) for n, a in weights(cfg).items()}
    narrow = {n: a.astype(np.float32) for n, a in wide.items()}
    y, exact = (model.logits(cfg, p, tokens(2, 5), n=16, positions=i) for p in (narrow, wide))
    assert abs(y - exact).max() < 4 * ROUNDED * slopes(cfg.H)[0] * last


def long_past(cfg, S):
    """One encoding's share of a layer as a function of parameters and arrays: the last query over S keys, or all S tokens of a mixing layer."""
    pe, rng = cfg.encoding(0), np.random.default_rng(S)
    whole, last = model.At.of(S), model.At(np.arange(S - 1, S), np.arange(S), S)
    x, q = rng.standard_normal((1, S, cfg.C)), rng.standard_normal((1, cfg.H, 1, cfg.D))
    k, v = rng.standard_normal((2, 1, cfg.G or cfg.H, S, cfg.D))

    def function(p, x, q, k, v):
        if pe.mix:
            return pe.mix(model.PLAIN, p, x, whole, {}, {})[0]
        f = pe.features(model.PLAIN, p, x, whole, {})[0] if pe.features else {}
        if pe.attend:
            return pe.attend(model.PLAIN, p, q, k, v, f, last)
        return model.PLAIN.attention(q, k, v, None, *pe.score(model.PLAIN, p, q, k, f, last), at=last, scale=pe.scale(cfg.D))

    return function, model.of_encoding(cfg, weights(cfg), 0), x, q, k, v


@pytest.mark.parametrize("name", filling("score", "attend", "mix"))
def test_a_long_past(name):
    """A thousand tokens: sums and products over all of them, states that were handed on from chunk to chunk."""
    cfg = config(name, layers=1, C=8, H=2, L=1024)
    as_good_as_the_formula(*long_past(cfg, 1024))
