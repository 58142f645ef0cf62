"""Bugs in layers on the delta rule with decay, and on decay alone (ops/delta.py)."""

from importlib import import_module

import numpy as np

from mutants import Mutant
from mutants.mix import exchanged, of
from mutants.ways import asked, expected, forward, inputs, with_names, with_parameters
from peref.encodings import files
from peref.ops.activation import logistic
from peref.ops.delta import beta_times, log_decay
from peref.ops.norm import rms_norm, unit
from peref.ops.scaled import scaled
from peref.ops.shape import add
from peref.tape import Op

ALL, RULE = with_names("delta"), with_names("delta", "beta_times")
DECAYING = with_names("delta", "log_decay")
WITH_G = tuple(sorted({*DECAYING, *with_names("delta", "log_sigmoid")}))
UNIT, SCALED = with_names("delta", "unit"), with_names("delta", "scaled")
NORMED, CONVOLVED = with_names("delta", "rms_norm"), with_names("delta", "convolved")
GROUPED = with_names("delta", "repeat_heads")


def both(names, *parameters):
    return tuple(name for name in names if name in with_parameters(*parameters))


def arrays(change):
    """delta gets other arrays: change(r, g, k, v, a) -> the same."""

    def run(case, a):
        op = import_module(files()[case.encoding]).delta
        other = asked(op, lambda *given: (*change(*given[:5]), *given[5:]))
        return of(None, delta=other)(case, a)

    return run


def plus(z):
    return np.maximum(z, 0) + np.log1p(np.exp(-abs(z)))


def reversed_taps(case, a):
    return expected(case, {n: w[:, ::-1] if n.endswith(".conv") else w for n, w in a.items()})


def tiled_forward(x, heads):
    """Head h has group h modulo the number of groups."""
    return np.concatenate([x] * (heads // x.shape[1]), 1), x.shape[1]


def tiled_backward(groups, dy):
    return (dy.reshape(len(dy), -1, groups, *dy.shape[2:]).sum(1),)


MUTANTS = [
    Mutant(
        "delta-bias-outside",
        "delta.decay",
        "dt_bias is added after the softplus",
        DECAYING,
        of(None, add=forward(add, lambda y, z, b: plus(z) + b), softplus=lambda u: u),
    ),
    Mutant(
        "delta-a-log",
        "delta.decay",
        "A_log has another sign",
        DECAYING,
        of(None, log_decay=forward(log_decay, lambda y, dt, a: -np.exp(-a)[:, None, None] * dt)),
    ),
    Mutant(
        "delta-no-bias",
        "delta.decay",
        "dt_bias is missing",
        DECAYING,
        inputs(**{"param.dt.bias": lambda b: 0 * b}),
        held_out=True,
    ),
    Mutant(
        "delta-decay-late",
        "delta.order",
        "the value is taken out of the state before it has decayed",
        both(RULE, "A_log"),
        arrays(lambda r, g, k, v, a: (r, g, k, v, a * np.exp(-g))),
    ),
    Mutant(
        "delta-decay-last",
        "delta.order",
        "the state decays after it was written",
        WITH_G,
        arrays(
            lambda r, g, k, v, a: (
                r * np.exp(g),
                np.roll(g, 1, 2) * (np.arange(g.shape[2]) > 0)[:, None],
                k,
                v,
                a,
            )
        ),
    ),
    Mutant(
        "delta-nothing-out",
        "delta.order",
        "nothing is taken out of the state",
        RULE,
        arrays(lambda r, g, k, v, a: (r, g, k, v, 0 * a)),
        held_out=True,
    ),
    Mutant(
        "delta-beta-twice",
        "delta.beta",
        "beta stands twice before v",
        RULE,
        of(None, beta_times=forward(beta_times, lambda y, k, b: y * logistic(b))),
    ),
    Mutant(
        "delta-beta-doubled",
        "delta.beta",
        "beta is twice as large",
        RULE,
        of(None, beta_times=forward(beta_times, lambda y, k, b: 2 * y)),
        held_out=True,
    ),
    Mutant(
        "delta-unnormed", "delta.unit", "q and k have not length one", UNIT, of(None, unit=lambda x, eps: x)
    ),
    Mutant(
        "delta-unit-mean",
        "delta.unit",
        "q and k are divided by the root of the mean of their squares",
        UNIT,
        of(None, unit=forward(unit, lambda y, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6))),
        held_out=True,
    ),
    Mutant(
        "delta-unscaled",
        "delta.scale",
        "q is not divided by sqrt(D)",
        SCALED,
        of(None, scaled=lambda x, factor: x),
    ),
    Mutant(
        "delta-scaled-by-d",
        "delta.scale",
        "q is divided by D",
        SCALED,
        of(None, scaled=lambda x, factor: scaled(x, factor=factor**2)),
        held_out=True,
    ),
    Mutant(
        "delta-groups",
        "delta.heads",
        "your heads are grouped by another division",
        GROUPED,
        of(None, repeat_heads=Op(tiled_forward, tiled_backward)),
    ),
    Mutant(
        "delta-q-and-k",
        "delta.projections",
        "q and k are exchanged",
        both(ALL, "q.weight", "k.weight"),
        exchanged("q.weight", "k.weight"),
    ),
    Mutant(
        "delta-v-and-z",
        "delta.projections",
        "v and z are exchanged",
        both(ALL, "v.weight", "z.weight"),
        exchanged("v.weight", "z.weight"),
        held_out=True,
    ),
    Mutant("delta-conv", "mix.conv", "your convolutions are reversed in time", CONVOLVED, reversed_taps),
    Mutant(
        "delta-no-silu",
        "mix.activation",
        "there is no silu after the convolutions",
        CONVOLVED,
        of(None, silu=lambda x: x),
    ),
    Mutant(
        "delta-no-norm",
        "mix.norm",
        "there is no norm over the heads",
        NORMED,
        of(None, rms_norm=forward(rms_norm, lambda y, x, w: x * w)),
    ),
]
