"""Float32 far out: a million positions on, and behind a long past, each encoding is as good as its formula
allows.

What a formula allows is measured: how far its float64 outputs move when each number that goes in is rounded
once, up or down by a draw. Float32 rounds a number once as it comes in and a dozen times on the way;
independent roundings add up in quadrature, so that 16 of them are 4 times one. A table of positions or a sum
over tokens made in float32 is 100 times off and more.
"""

from dataclasses import replace

import numpy as np
import pytest
from check import frozen, same
from generated import NAMES, config, every_choice, filling, logits, of, subject, tokens, weights
from test_numba import neighbours

from peref import backends, model
from peref.encodings.bias.alibi import fixed as slopes

ROUNDED = 2.0**-24
FAR = np.array([0, 1, 2047, 2048, 4096, 131071, 524288, 1048574, 1048575])
NEAR = 1048575 - np.array([70, 60, 33, 20, 11, 6, 3, 1, 0])
ELSEWHERE = ("learned", "learned_bias", "xpos")  # no such rows; and a centre is needed
BY_NETWORK = [
    given
    for given in every_choice("dynamic_bias")
    if given.get("norm") != "layer" and given.get("distance") != "log"
]
FREE = {"learned": True}  # frequencies of rope: one rounding of them moves everything
LEARNED = [name for name in filling("rotate") if subject(name).learns]  # and where they always are


def rounded(x, rng):
    return x * (1 + ROUNDED * rng.choice([-1, 1], x.shape))


def as_good_as_the_formula(function, p, *arrays, most=4):
    """function(p, *arrays) in float32 against float64, both of the same float32 numbers."""
    p, arrays = {n: a.astype(np.float32) for n, a in p.items()}, [a.astype(np.float32) for a in arrays]
    got = function(p, *arrays)
    wide, arrays = {n: a.astype(np.float64) for n, a in p.items()}, [a.astype(np.float64) for a in arrays]
    exact, rng = function(wide, *arrays), np.random.default_rng(0)
    assert (got.dtype, exact.dtype) == (np.float32, np.float64)
    moved = max(
        abs(
            function({n: rounded(a, rng) for n, a in wide.items()}, *(rounded(a, rng) for a in arrays))
            - exact
        ).max()
        for _ in range(3)
    )
    error = abs(got - exact).max()
    assert moved < 1e-4 * abs(exact).max()
    assert not error > most * moved, f"{error:.1e}, {error / moved:.1f} times what one rounding moves"


def reaches(cfg):
    """Whether it goes so far: of learned_bias, which is clipped alone."""
    return "any_length" in cfg.encoding(0).claims


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("learned", "xpos")])
def test_a_million_positions_on(name):
    """Every option, one layer, tokens that lie next to each other and a million apart."""
    for given in every_choice(name):
        cfg = config(name, pe=((name, given),), layers=1)
        if (
            (name, given) != ("rope", FREE)
            and name not in LEARNED
            and not (name == "dynamic_bias" and given in BY_NETWORK)
            and reaches(cfg)
        ):
            as_good_as_the_formula(
                lambda p, cfg=cfg: model.logits(cfg, p, tokens(2, len(FAR)), n=16, positions=FAR),
                weights(cfg),
            )


def around_zero(name, p, x, i):
    """What float32 may be off by at positions i: 4 times what the plain ops are off by in it as far from 0,
    of three draws, as in test_numba.

    Where they are next to exact, 4 roundings of the largest number.
    """
    cfg, i = choice(name, float(1048575 - i[0])), i - i[0]
    exact = logits(cfg, frozen(p, np.float64), x, positions=i)
    draws = [p, *(neighbours(p, seed) for seed in (1, 2))]
    return 4 * max(
        ROUNDED,
        *(abs(logits(cfg, frozen(a), x, positions=i) - exact).max() / abs(exact).max() for a in draws),
    )


def choice(name, centre=1048575.0):
    return config(
        name, pe=((name, {"centre": centre} if name == "xpos" else FREE if name == "rope" else {}),)
    )


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE[:2]])
def test_around_a_million(name, backend):
    """Nothing far out is cast too early: float32 is as close to float64 there as at 0, in decoding too.
    (That of float64: test_encodings.)
    """
    be = backends.get(backend, threads=1 if backend == "numba" else None)
    cfg, x = choice(name), tokens(2, 9)
    p = frozen(weights(cfg), np.float32)
    for i in (NEAR, 1048567.375 + np.arange(9.0)) if name in of("real_positions") else (NEAR,):
        close = around_zero(name, p, x, i)
        want = logits(cfg, frozen(p, np.float64), x, positions=i).astype(np.float32)
        same(logits(cfg, p, x, positions=i, be=be), want, close)
        memory = model.decode(cfg, p, x[:, :-1], model.cache(cfg, 16), positions=i[:-1], be=be)[1]
        same(model.decode(cfg, p, x[:, -1:], memory, positions=i[-1:], be=be)[0], want[:, -1:], close)


def largest(cfg, p, last):
    """The largest bias; what the network says, where a sigmoid is made of it."""
    if cfg.named == "alibi+dape":
        return slopes(cfg.H)[0] * last
    cfg = replace(cfg, pe=(("dynamic_bias", cfg.pe[0][1] | {"output": "plain"}),))
    return abs(cfg.encoding(0).bias(model.PLAIN, model.of_encoding(cfg, p, 0), np.array([last]))).max()


@pytest.mark.parametrize("last", [8191, 1048575])
@pytest.mark.parametrize(
    ("name", "given"), [("alibi+dape", {}), *(("dynamic_bias", given) for given in BY_NETWORK)]
)
def test_networks_are_as_good_as_their_largest_bias(name, given, last):
    """Far biases are large, a network passes on their rounding, and far keys may win: outputs are off by a
    few roundings of the largest.
    """
    cfg, i = config(name, pe=((name, given),), layers=1), np.array([0, 1, last // 4, last // 4 + 1, last])
    wide = {n: a.astype(np.float32).astype(np.float64) for n, a in weights(cfg).items()}
    narrow = {n: a.astype(np.float32) for n, a in wide.items()}
    y, exact = (model.logits(cfg, p, tokens(2, 5), n=16, positions=i) for p in (narrow, wide))
    same(y, exact.astype(y.dtype), 4 * ROUNDED * largest(cfg, wide, last) / abs(exact).max())


def long_past(cfg, S):
    """One encoding's share of a layer as a function of parameters and arrays: the last query over S keys,
    or all S tokens of a mixing layer.
    """
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
        return model.PLAIN.attention(
            q, k, v, None, *pe.score(model.PLAIN, p, q, k, f, last), at=last, scale=pe.scale(cfg.D)
        )

    return function, model.of_encoding(cfg, weights(cfg), 0), x, q, k, v


@pytest.mark.parametrize("name", filling("score", "attend", "mix"))
def test_a_long_past(name):
    """A thousand tokens: sums and products over all of them, states that were handed on from chunk to
    chunk.
    """
    cfg = config(name, layers=1, C=8, H=2, L=1024)
    as_good_as_the_formula(*long_past(cfg, 1024))
