"""AdamW against a loop over plain numbers, the learning rate, the global norm."""

import math

import numpy as np
import pytest
from check import frozen, same, same_numbers
from loops import adamw as loop

from peref.errors import Diverged
from peref.optim import adamw, decays, judge, read_status, schedule
from peref.xp import namespace, to_host

BETAS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
EPS = 0.03  # large enough to see where it stands
TOLERANCE = {np.float64: 1e-14, np.float32: 1e-6}


def several(dtype, decay, steps=6, shape=(3, 5), send=np.asarray):
    """p, m, v after some steps of the array version, and what it was given."""
    rng = np.random.default_rng(7)
    p0, g = rng.standard_normal(shape).astype(dtype), rng.standard_normal((steps, *shape)).astype(dtype)
    g[:, 0, 0] = 0  # a number that never gets a gradient
    rates = 0.1 / np.arange(1, steps + 1)
    p, m, v = send(p0.copy()), send(np.zeros(shape, dtype)), send(np.zeros(shape, dtype))
    for t in range(steps):
        adamw(
            p,
            send(g[t]),
            m,
            v,
            send(np.asarray(rates[t])),
            send(np.asarray(t + 1)),
            **BETAS | {"eps": EPS},
            decay=decay,
        )
    return (p, m, v), (p0, g, rates)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adamw_is_the_loop_over_plain_numbers(dtype, decay):
    """After six steps at six rates, p, m and v are those of the paper's algorithm, and keep their dtype."""
    got, (p0, g, rates) = several(dtype, decay)
    each = [
        loop.adamw(float(p0[k]), g[:, *k].tolist(), rates.tolist(), 0.9, 0.95, EPS, decay)
        for k in np.ndindex(p0.shape)
    ]
    for actual, expected in zip(got, np.array(each).T, strict=True):
        same(actual, expected.reshape(p0.shape).astype(dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adamw_on_the_fake_cupy(cupy, dtype, decay):
    """With every array on the device, the rate and the step too, it gives what it gives on the host."""
    fake, _ = several(dtype, decay, send=cupy.asarray)
    same([a.get() for a in fake], list(several(dtype, decay)[0]), TOLERANCE[dtype])


def test_adamw_writes_p_m_v_and_nothing_else(rng):
    """It changes p, m and v in place, reads the gradient, the rate and the step, and returns nothing."""
    p, m, v = (rng.standard_normal(5) ** 2 for _ in range(3))
    before = frozen((p, m, v))
    g, rate, step = frozen((rng.standard_normal(5), np.asarray(0.1), np.asarray(3)))
    unchanged = frozen((g, rate, step))
    assert adamw(p, g, m, v, rate, step, **BETAS, decay=0.1) is None
    same((g, rate, step), unchanged, 0)
    for now, then in zip((p, m, v), before, strict=True):
        assert (now != then).all()


def test_decay_is_decoupled(rng):
    """Decay shrinks p by rate * decay whatever the gradient is, and never enters the moments."""
    p, g = rng.standard_normal((2, 7))
    with_decay, without, idle = ([p.copy(), np.zeros(7), np.zeros(7)] for _ in range(3))
    for (q, m, v), gradient, decay in ((with_decay, g, 0.5), (without, g, 0.0), (idle, 0 * g, 0.5)):
        adamw(q, gradient, m, v, np.asarray(0.1), np.asarray(1), **BETAS, decay=decay)
    same(with_decay[0], without[0] - 0.1 * 0.5 * p, 1e-15)
    same(with_decay[1:], without[1:], 0)
    same(idle[0], p * (1 - 0.1 * 0.5), 1e-15)
    assert not idle[1].any()
    assert not idle[2].any()


def test_the_first_step_is_as_long_as_the_rate():
    """Bias correction: from zero moments every number moves by the rate, whatever the size of its
    gradient.
    """
    p, g = np.zeros(4), np.array([1e-3, -1.0, 50.0, -1e4])
    adamw(
        p,
        g,
        np.zeros(4),
        np.zeros(4),
        np.asarray(0.01),
        np.asarray(1),
        beta1=0.9,
        beta2=0.999,
        eps=1e-30,
        decay=0.0,
    )
    same(p, -0.01 * np.sign(g), 1e-12)


def test_what_decays():
    """Linear maps decay: names in .weight with two axes. Norms, biases and the encodings' tables do not."""
    assert decays("0.q.weight", np.ones((2, 3)))
    assert decays("embed.weight", np.ones((2, 3)))
    assert decays("0.experts.up.weight", np.ones((4, 2, 3)))
    assert not decays("0.experts.up.bias", np.ones((4, 2)))
    assert not decays("0.norm1.weight", np.ones(3))
    assert not decays("0.q.bias", np.ones(3))
    assert not decays("pe.0.table", np.ones((2, 3)))
    assert not decays("0.pe.conv.weight", np.ones((2, 3, 4)))
    assert not decays("0.weights", np.ones((2, 3)))


# the learning rate


def test_warm_up_is_linear_and_ends_at_the_peak():
    """Step 1 of w has 1/w of the peak rate, step w the peak."""
    got = [schedule(t, peak=0.3, warmup=5, steps=20, floor=0.1) for t in range(1, 6)]
    same_numbers(got, [0.06, 0.12, 0.18, 0.24, 0.3], 1e-15)


def test_after_the_peak_half_a_cosine_falls_to_the_floor():
    """Half way between peak and end the rate is the mean of both; it ends at floor * peak, falls all the
    time, and stays there.
    """
    at = lambda t: schedule(t, peak=2.0, warmup=10, steps=30, floor=0.25)
    assert at(10) == 2.0
    same_numbers(at(20), 2.0 * (1 + 0.25) / 2, 1e-15)
    same_numbers(at(15), 2.0 * (0.25 + 0.75 * (1 + math.sqrt(0.5)) / 2), 1e-15)
    assert at(30) == at(31) == at(1000) == 0.5
    rates = [at(t) for t in range(10, 31)]
    assert rates == sorted(set(rates), reverse=True)


def test_without_warm_up_the_cosine_begins_at_once():
    """With warmup=0 there is no step at the peak: step 1 is the first of the fall, and a run of one step
    has the floor.
    """
    rates = [schedule(t, peak=1.0, warmup=0, steps=4, floor=0.0) for t in range(1, 5)]
    same_numbers(rates, [0.5 * (1 + math.cos(math.pi * t / 4)) for t in range(1, 5)], 1e-15)
    same_numbers(schedule(1, peak=1.0, warmup=0, steps=1, floor=0.1), 0.1, 1e-15)


def test_a_run_that_ends_with_its_warm_up():
    """steps == warmup ends at the peak, and steps < warmup on the way there."""
    assert [schedule(t, peak=1.0, warmup=4, steps=4, floor=0.1) for t in range(1, 5)] == [
        0.25,
        0.5,
        0.75,
        1.0,
    ]
    assert schedule(2, peak=1.0, warmup=4, steps=2, floor=0.1) == 0.5


# the global norm


def global_norm(gradients):
    """As a step judges it."""
    xp = namespace(*gradients.values())
    judge(status := xp.zeros(3), xp.zeros(()), gradients)
    return read_status(to_host(status), gradients)[1]


def test_the_norm_is_that_of_one_long_vector(rng):
    """The norm of a dict of gradients is that of all their numbers together, whatever the order of the
    dict.
    """
    g = {name: rng.standard_normal(shape) for name, shape in (("b", (3, 5)), ("a", (7,)), ("c", (2, 2, 2)))}
    norm = global_norm(g)
    same_numbers(norm, np.linalg.norm(np.concatenate([a.ravel() for a in g.values()])), 1e-15)
    assert type(norm) is float
    assert global_norm({"a": np.zeros(3)}) == 0.0


def test_the_order_of_the_dict_does_not_matter():
    """The sum runs over the names in their order, to the last bit; of two bad tensors the first by name is
    the one named.
    """
    one, large = np.ones(1), np.full(1, 1e8)
    assert (
        global_norm({"c": large, "a": one, "b": one}) == global_norm({"a": one, "b": one, "c": large}) > 1e8
    )
    with pytest.raises(Diverged, match="the gradient of b is"):
        global_norm({"c": np.nan * one, "b": np.inf * one, "a": one})


def test_the_norm_is_summed_in_float64():
    """Squares that float32 cannot hold are no reason to stop, and small gradients beside large ones are
    not lost.
    """
    same_numbers(global_norm({"a": np.full(4, 1e25, np.float32)}), 2e25, 1e-6)
    same_numbers(global_norm({"a": np.full(4, 1e-25, np.float32)}), 2e-25, 1e-6)
    many = np.full(1 << 16, 2.0**-13, np.float32)
    same_numbers(global_norm({"a": np.ones(1, np.float32), "b": many}) ** 2, 1 + 2.0**-10, 1e-14)


def test_the_norm_on_the_fake_cupy(cupy, rng):
    """Gradients on the device have the norm they have on the host."""
    g = {"a": rng.standard_normal(5), "b": rng.standard_normal((2, 3))}
    same_numbers(global_norm({name: cupy.asarray(a) for name, a in g.items()}), global_norm(g), 1e-15)
    g["b"][1, 2] = np.nan
    with pytest.raises(Diverged, match="the gradient of b "):
        global_norm({name: cupy.asarray(a) for name, a in g.items()})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_a_gradient_that_is_not_finite_is_named(value):
    """One bad number among the good ones raises Diverged with the name of its tensor, and warns of
    nothing.
    """
    g = {"a": np.ones(3), "m.weight": np.array([[1.0, 2.0], [value, 3.0]]), "z": np.ones(2)}
    with pytest.raises(Diverged, match=r"^the gradient of m\.weight is not finite"):
        global_norm(g)
