"""Numbers from the papers and from public code, and where a formula ends: ALiBi, T5, sinusoids, xPos,
Longformer.
"""

from importlib import import_module

import numpy as np
import pytest
from check import frozen, same
from generated import config, logits, tokens, weights

from peref import model
from peref.encodings import files, get
from peref.errors import Misuse
from peref.tape import Tape


def test_t5_edges_of_an_enormous_reach():
    """Found by bisection, not by counting."""
    assert import_module(files()["t5"]).edges(32, 2**30)[-1] < 2**30


def test_alibi_slopes_of_12_heads():
    """The authors' rule: 1/2 ... 1/256, then every second slope of sixteen, unsorted."""
    from peref.encodings.bias.alibi import fixed as of_heads

    slopes = of_heads(12)
    same(
        np.array(slopes),
        np.array([2.0 ** -(k + 1) for k in range(8)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
        1e-15,
    )


@pytest.mark.parametrize(
    ("causal", "first"),
    [
        (False, [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]),
        (True, [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]),
    ],
)
def test_t5_bucket_edges(causal, first):
    """The first distance of each bucket with 32 buckets and max_distance 128."""
    d = np.arange(200)
    bucket = import_module(files()["t5"]).bucket(d, causal=causal, buckets=32, max_distance=128)
    same(np.flatnonzero(np.diff(bucket, prepend=-1)), np.array(first), 0)
    future = import_module(files()["t5"]).bucket(-d[1:], causal=causal, buckets=32, max_distance=128)
    same(future, np.zeros(199, int) if causal else bucket[1:] + 16, 0)


def test_t5_edges_that_a_logarithm_gets_wrong():
    """Distances at which float16 or log2 in float32 land one bucket off."""
    bucket = import_module(files()["t5"]).bucket
    for causal, buckets, far, n, want in (
        (True, 32, 100, 40, 24),
        (True, 64, 256, 110, 51),
        (True, 32, 512, 267, 28),
        (False, 128, 200, 80, 48),
    ):
        assert int(bucket(np.array([n]), causal=causal, buckets=buckets, max_distance=far)[0]) == want


def test_sinusoid_frequencies_of_width_8():
    """1, .1, .01, .001 in the paper; the endpoint ladder ends at 1/10000."""
    embed = get("sinusoidal").embed
    one = np.arcsin(embed({}, np.array([1]), C=8, layout="concatenated")[0, :4])
    same(np.sin(one), np.sin(10.0 ** -np.arange(4)), 1e-13)
    one = embed({}, np.array([1]), C=8, layout="concatenated", ladder="endpoint")[0, :4]
    same(one, np.sin(10000.0 ** (-np.arange(4) / 3)), 1e-13)


def test_xpos_zetas_of_width_8():
    """torchscale's (arange(0, d, 2) + 0.4 d) / (1.4 d): what a query 512 tokens after the centre is
    multiplied with, and a key divided by.
    """
    angle, gain_q, gain_k = get("xpos").rotate({}, np.array([512]), 0, R=8)
    same(gain_q[0], (np.arange(0, 8, 2) + 0.4 * 8) / (1.4 * 8), 1e-15)
    same(gain_q[0].round(6), np.array([0.285714, 0.464286, 0.642857, 0.821429]), 0)
    same(gain_q * gain_k, np.ones((1, 4)), 1e-15)
    same(angle, 512 * 10.0 ** -np.arange(4)[None], 1e-15)


def test_xpos_centres_of_public_code():
    """Of 7 tokens torchscale has the centre 4, flash-attention and fla 3: other gains, one function. Two
    centres at once are an error of z_n^((c_k - c_q)/512) in every product: keys of a prefill of 7 under a
    query whose table was made anew for 9.
    """
    rng, rotate = np.random.default_rng(0), get("xpos").rotate
    q, k = rng.standard_normal((2, 1, 1, 9, 8))
    turned = {
        c: tuple(
            model.PLAIN.turn(x, a, g, layout="half")
            for x, (a, g) in zip((q, k), gains(rotate, c), strict=True)
        )
        for c in (0, 3, 4, -200)
    }
    logits = {c: q @ k.swapaxes(-1, -2) for c, (q, k) in turned.items()}
    for c in (3, 4, -200):
        same(logits[c], logits[0], 1e-13)
        assert abs(turned[c][0] - turned[0][0]).max() > 1e-3
    z = (np.arange(0, 8, 2) + 0.4 * 8) / (1.4 * 8)
    mixed = turned[4][0] @ turned[3][1].swapaxes(-1, -2)
    by_pair = [
        np.einsum("...tc,...sc->...ts", turned[0][0][..., n::4], turned[0][1][..., n::4]) for n in range(4)
    ]
    same(mixed, sum(z[n] ** ((3 - 4) / 512) * by_pair[n] for n in range(4)), 1e-13)
    assert abs(mixed - logits[0]).max() > 1e-3


def gains(rotate, c):
    """(angle, gain) of q and of k for the centre c."""
    angle, gain_q, gain_k = rotate({}, np.arange(9), 0, R=8, centre=float(c))
    return (angle, gain_q), (angle, gain_k)


@pytest.mark.parametrize(("dtype", "last"), [(np.float32, 29178), (np.float64, 274788)])
def test_xpos_ends_where_its_gains_leave_the_dtype(dtype, last):
    """The dtype that the model computes in decides, not that of the gains; a centre amid the positions
    helps, also near 1,048,575; at the last position everything is finite, in the cache and in the
    gradients.
    """
    cfg, x = config("xpos"), tokens(1, 2)
    p = frozen(weights(cfg), dtype)
    assert cfg.ends(dtype) == (last + 1, "xpos")
    for i in (np.array([0, last + 1]), np.array([-last - 1, 0]), np.array([0, 1048575])):
        with pytest.raises(
            Misuse,
            match=(
                f"^xpos: positions .* in {np.dtype(dtype)} it begins at -{last}, goes to {last} and ends "
                "there"
            ),
        ):
            logits(cfg, p, x, positions=i)
    wide = model.decode(cfg, p, x[:, :1], model.cache(cfg), positions=np.array([-last]))[1]
    assert np.isfinite(model.decode(cfg, p, x[:, 1:], wide, positions=np.array([last]))[0]).all()
    with pytest.raises(
        Misuse,
        match=(
            f"positions -{last} to 1 were asked for at once; in {np.dtype(dtype)} they may be {last} apart; "
            "decode them in"
        ),
    ):
        logits(cfg, p, x, positions=np.array([-last, 1]))
    for centre, i in ((0.0, [-last, 0]), (0.0, [0, last]), (1.04e6, [1048574, 1048575])):
        cfg = config("xpos", pe=(("xpos", {"centre": centre}),))
        tape = Tape()
        leaves = tape.watch(p)
        y, memory = model.decode(cfg, leaves, x, model.cache(cfg), positions=np.array(i))
        assert all(
            np.isfinite(a).all() for layer in memory.layers for a in (layer["k"].rows, layer["v"].rows)
        )
        found = tape.gradients(y, np.ones(y.shape, dtype))
        assert all(np.isfinite(g).all() for g in found.values())
    assert config("xpos", pe=(("xpos", {"centre": 1.04e6}),)).ends(dtype) == (0, "xpos")


def test_xpos_in_float32_is_as_good_as_its_logits():
    """Near a million, with the centre there: what float64 has, to a few roundings."""
    pe = (("xpos", {"centre": 1048575.0}),)
    cfg, x, i = config("xpos", pe=pe), tokens(2, 9), 1048575 - 1000 * np.arange(9)[::-1]
    p = frozen(weights(cfg), np.float32)
    same(
        logits(cfg, p, x, positions=i),
        logits(cfg, frozen(p, np.float64), x, positions=i).astype(np.float32),
        2e-5,
    )


def test_equal_borders_are_a_jump():
    """Llama 4 Scout's low and high, both 1: vLLM divides the wave that is just L, where Hugging Face's
    line is 0/0. Kimi-K2's betas, both 1: one border, rounded to both sides; unrounded the 0.001 pairs of
    the code. The paper's ramp has no such line.
    """
    for encoding, options in (
        ("llama3", {"low_freq_factor": 1.0, "high_freq_factor": 1.0, "factor": 16.0}),
        ("yarn", {"beta_fast": 1.0, "factor": 16.0}),
    ):
        jump = get(encoding).rotate({}, np.array([1]), 0, R=8, L=4096, **options)[0][0] * 10.0 ** np.arange(4)
        same(jump, np.array([1, 1, 1, 1 / 16]), 1e-15)
        loop = import_module(f"loops.{encoding}").rotate({}, [1], 0, 8, 4096, **options)[0][
            0
        ] * 10.0 ** np.arange(4)
        same(jump, loop, 1e-15)
    at_the_border = get("llama3").rotate(
        {},
        np.array([1]),
        0,
        R=2,
        L=7,
        base=1.0,
        factor=2.0,
        low_freq_factor=7 / (2 * np.pi),
        high_freq_factor=7 / (2 * np.pi),
    )
    same(at_the_border[0], np.array([[0.5]]), 0)
    unrounded = get("yarn").rotate({}, np.array([1]), 0, R=8, L=4096, beta_fast=1.0, truncate=False)[0][0]
    same(unrounded * 10.0 ** np.arange(4), np.array([1, 1, 1, 1 / 4]), 1e-15)
    with pytest.raises(Misuse, match=r"yarn: beta_fast is 1\.0; expected a number above 1"):
        get("yarn").rotate({}, np.array([1]), 0, R=8, L=4096, beta_fast=1.0, ramp="paper")


def test_longformer_counts_its_window_otherwise():
    """Its attention_window 4 is two keys on each side and the query, 5 keys: window 3, two-sided. Causal,
    window 3 is 3 keys.
    """
    for causal, seen in ((False, 5), (True, 3)):
        cfg, x = config("none", window=4 // 2 + 1, causal=causal, layers=1), tokens(1, 9)
        p, middle = weights(cfg), []
        for t in range(9):
            other = x.copy()
            other[:, t] = (other[:, t] + 3) % 11
            middle.append(abs(logits(cfg, p, other) - logits(cfg, p, x))[0, 4].max() > 1e-9)
        assert np.flatnonzero(middle).tolist() == [*range(2, 2 + seen)]
