"""S4D and Mamba: their forms, where they start, and the numbers of the papers and of the released code."""

from importlib import import_module

import numpy as np
import pytest
from check import gradient, same, same_numbers
from generated import config, layer_input, lists, loop, weights

from peref import model
from peref.encodings import files
from peref.encodings.mix.mamba import selective_scan
from peref.encodings.mix.s4d import diagonal_scan

S4D, MAMBA = (import_module(files()[name]) for name in ("s4d", "mamba"))


def layer(name, T=37, form=None, **given):
    """What a layer gives for one sequence, and what its loop gives."""
    cfg = config(name, pe=((name, given),))
    p, (x, *_) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, T)
    want = np.array(loop(cfg, **({} if form is None else {"form": form}))(lists(p), lists(x[1]), [*range(T)]))
    return cfg.encoding(0).mix(model.PLAIN, p, x, model.At.of(T), {}, {})[0][1], want


@pytest.mark.parametrize("form", ["convolution", "recurrent"])
@pytest.mark.parametrize("chunk", [1, 5, 64])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_s4d_is_both_forms_of_the_paper(form, chunk, discretisation):
    """Whatever the number of tokens that are convolved at once."""
    same(*layer("s4d", form=form, chunk=chunk, discretisation=discretisation), 1e-12)


@pytest.mark.parametrize("form", ["scan", "sum"])
@pytest.mark.parametrize("discretisation", ["euler", "zoh"])
@pytest.mark.parametrize(
    "sizes", [{}, {"rank": 5, "state_size": 3, "kernel": 6}, {"kernel": 1, "expand": 1, "rank": 1}]
)
def test_mamba_is_the_recurrence_and_the_sum(form, discretisation, sizes):
    """Every width, also a convolution that sees one token only, and one longer than what was read."""
    same(*layer("mamba", T=5, form=form, discretisation=discretisation, **sizes), 1e-12)


# ---------------------------------------------------------------- discretisation


def test_zoh_is_exact_at_small_steps():
    """(e^z - 1) / z and its derivative keep every digit where the formula as printed loses them, and meet
    it at the border of the series.
    """
    for size in (1e-300, 1e-12, 1e-6, 1e-3, 0.1):
        z = size * np.array([-1 + 0j, 0.6 - 0.8j, 1j])
        x, y = z.real, z.imag
        less_one = np.expm1(x) * np.cos(y) - 2 * np.sin(y / 2) ** 2 + 1j * np.exp(x) * np.sin(y)  # e^z - 1
        _, _, phi, slope = S4D.zoh(z)
        same(phi, less_one / z, 1e-15)
        if size < 1e-6:
            same(slope, 0.5 + z / 3, 1e-15)
    z = np.array([-1e-12 + 1e-13j])
    assert abs((np.exp(z) - 1) / z - S4D.zoh(z)[2]) > 1e-6
    around = 0.5 * np.exp(1j * np.linspace(0.6, 5.6, 9))
    same(S4D.zoh(around * (1 - 1e-15)), S4D.zoh(around * (1 + 1e-15)), 1e-14)


@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
@pytest.mark.parametrize("log_dt", [-7.0, 0.0])
def test_gradient_of_the_modes(discretisation, log_dt, rng):
    """Steps on both sides of the series, and A near 0."""
    log_re, im = (
        np.array([[-1.0, 0.5, 1.0], [-12.0, -9.0, -1.0]]),
        np.array([[0.0, 3.0, 12.0], [1e-6, -1e-4, 0.2]]),
    )
    arrays = [log_dt + 0.1 * rng.standard_normal(2), log_re, im, rng.standard_normal((2, 3, 2))]
    gradient(S4D.modes, arrays, {"discretisation": discretisation}, elementwise=True)


def test_the_two_rules_agree_to_second_order():
    """ZOH and bilinear factors differ by z^3/12; the bilinear one lies on the unit circle for an imaginary
    z.
    """
    z = np.array([1e-2j, -1e-2, 1e-2 * (-0.6 + 0.8j)])
    same(S4D.bilinear(z)[0] - S4D.zoh(z)[0], z**3 / 12, 2e-2)
    same(abs(S4D.bilinear(np.array([0.3j, 50j]))[0]), np.ones(2), 1e-15)


def test_euler_and_zoh_of_mamba_part_where_the_step_is_large():
    """dt 0.1, A -16: what B x is multiplied with is 0.1 and 0.0499; the factor of the state is exp(-1.6)
    in both.
    """
    one, dt = np.ones((1, 2, 1)), np.full((1, 2, 1), np.log(np.expm1(0.1)))
    for discretisation, gain in (("euler", 0.1), ("zoh", -np.expm1(-1.6) / 16)):
        y, _ = selective_scan(
            one,
            dt,
            np.log([[16.0]]),
            one,
            one,
            np.zeros(1),
            None,
            None,
            discretisation=discretisation,
            chunk=8,
        )
        same(y[0, :, 0], gain * np.array([1, 1 + np.exp(-1.6)]), 1e-14)
    assert round(gain, 4) == 0.0499


def test_both_of_each_pair_of_conjugates_count():
    """2 Re over half of the modes is the sum over all of them."""
    p = {n: a[:1] for n, a in S4D.init(np.random.default_rng(0), C=1, state_size=6).items()}
    half = S4D.modes(p["log_dt"], p["log_A_real"], p["A_imag"], p["C"], discretisation="zoh")[:, 0]
    dt, A, C = (
        np.exp(p["log_dt"][0]),
        -np.exp(p["log_A_real"][0]) + 1j * p["A_imag"][0],
        p["C"][0, :, 0] + 1j * p["C"][0, :, 1],
    )
    A, C = np.concatenate([A, A.conj()]), np.concatenate([C, C.conj()])
    for t in range(4):
        whole = (C * np.expm1(dt * A) / A * np.exp(dt * A) ** t).sum()
        same(((half[2] + 1j * half[3]) * (half[0] + 1j * half[1]) ** t).real.sum(), whole.real, 1e-14)
        assert abs(whole.imag) < 1e-15


# ---------------------------------------------------------------- where they start


def test_s4d_spectra():
    """The definitions of the paper, and its statement that S4D-Inv is close to the eigenvalues of
    HiPPO-LegS, the largest foremost.
    """
    same(S4D.spectrum("lin", 6), -0.5 + 1j * np.pi * np.arange(3), 1e-15)
    same(S4D.spectrum("inv", 4), -0.5 + 1j * np.array([12 / np.pi, 4 / (3 * np.pi)]), 1e-15)
    same(S4D.spectrum("real", 6), np.array([-1.0, -2.0, -3.0]), 0)
    same(S4D.spectrum("legs", 2), np.array([-0.5 + 0.75**0.5 * 1j]), 1e-15)
    legs, inv = np.sort(S4D.spectrum("legs", 64).imag), np.sort(S4D.spectrum("inv", 64).imag)
    root = np.sqrt(2 * np.arange(64) + 1.0)
    # LegS is -hippo; without its low-rank part it is normal
    hippo = np.tril(np.outer(root, root), -1) + np.diag(np.arange(64) + 1.0)
    normal = -hippo + np.outer(root, root) / 2
    values = np.linalg.eigvals(normal)
    same(values.real, np.full(64, -0.5), 1e-10)
    same(legs, np.sort(values.imag)[32:], 1e-9)
    same_numbers(legs[-1] / inv[-1], 1.0, 0.05)


@pytest.mark.parametrize("start", ["lin", "inv", "legs", "real"])
def test_s4d_starts_as_it_says(start):
    """A, and steps that fill the range of their logarithm."""
    p = S4D.init(np.random.default_rng(0), C=400, state_size=8, start=start)
    same((-np.exp(p["log_A_real"]) + 1j * p["A_imag"])[399], S4D.spectrum(start, 8) + 0j, 1e-14)
    same(np.quantile(p["log_dt"], [0, 0.5, 1]), np.log([1e-3, 1e-2, 1e-1]), 0.05)
    same((p["C"] ** 2).sum(-1).mean(), np.float64(1), 0.05)


def test_mamba_starts_as_it_says():
    """dt_bias is a softplus away from steps that fill the range of their logarithm; A is -1 ... -N; the
    rank is C/16, rounded up.
    """
    p = MAMBA.init(np.random.default_rng(0), C=200)
    same(np.quantile(np.log(np.logaddexp(0, p["dt.bias"])), [0, 0.5, 1]), np.log([1e-3, 1e-2, 1e-1]), 0.05)
    same(-np.exp(p["A_log"][399]), -np.arange(1.0, 17), 1e-14)
    assert p["dt.weight"].shape == (400, 13)
    same_numbers(abs(p["dt.weight"]).max(), 13**-0.5, 1e-2)


# ---------------------------------------------------------------- long texts


def test_s4d_in_float32_remembers_as_in_float64():
    """The slowest mode that S4D starts with, over ten thousand tokens: powers are made in float64, so
    errors do not grow with distance.
    """
    a = np.exp(0.001 * (-0.5 + 31j * np.pi))
    modes = np.array([a.real, a.imag, 0.002, 0.001]).reshape(4, 1, 1)
    u = np.random.default_rng(0).standard_normal((1, 10_000, 1))
    wide, _ = diagonal_scan(u, modes, np.ones(1), None, None, chunk=32)
    narrow, _ = diagonal_scan(u.astype(np.float32), modes, np.ones(1, np.float32), None, None, chunk=32)
    same(narrow, wide.astype(np.float32), 1e-5)


@pytest.mark.parametrize("name", ["s4d", "mamba"])
def test_positions_have_no_say(name):
    """Positions of any kind change no bit: order is that of the tokens."""
    cfg = config(name)
    p, x = weights(cfg), np.arange(18).reshape(2, 9) % 11
    here = model.logits(cfg, p, x, n=16)
    same(model.logits(cfg, p, x, n=16, positions=np.arange(9)[::-1] * 1000.5), here, 0)
