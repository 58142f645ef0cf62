"""Bugs in layers that stand where attention does."""

from dataclasses import replace

import numpy as np

from mutants import Mutant
from mutants.ways import asked, backend, expected, forward, hooked, inputs, patched, told, with_options
from peref.encodings.mix import mamba, retnet, rwkv4, rwkv6, rwkv7, s4d
from peref.model import PLAIN
from peref.ops import activation
from peref.ops.norm import group_norm
from peref.ops.shape import merge_heads
from peref.ops.shift import lerp, previous
from peref.tape import Op

RET, S4D, MAMBA, R4, R6, R7 = (("retnet",), ("s4d",), ("mamba",), ("rwkv4",), ("rwkv6",), ("rwkv7",))
SHIFTED = ("rwkv4", "rwkv6", "rwkv7")


def of(name, **changes):
    """Something in the encoding's own file is another."""
    return lambda case, a: patched(f"encodings.mix.{case.encoding if name is None else name}", **changes)(case, a)


def decay(change):
    return of("retnet", retention=told(retnet.retention, log_decay=change))


def exchanged(one, two):
    return lambda case, a: expected(case, {**a, f"param.{one}": a[f"param.{two}"], f"param.{two}": a[f"param.{one}"]})


def recurrence(module, name, change):
    """The recurrence gets other arrays."""
    return patched(f"encodings.mix.{module.__name__.rpartition('.')[2]}", **{name: asked(getattr(module, name), change)})


def kept(x):
    return x


def over_all_heads(y, p, eps):
    return group_norm(merge_heads(y), p["norm.weight"], p["norm.bias"], groups=1, eps=eps)


def unnormed(y, p, eps):
    return scaled(merge_heads(y), p["norm.weight"], p["norm.bias"])


def unnormed_inside(case, a):
    """Mamba's step, B and C keep their size."""
    return backend(rms_norm=lambda x, w, eps: rwkv7.scaled(x, w))(case, a) if "param.b.norm" in a else None


def forgetful(case, a):
    """Each chunk is a document of its own."""
    size = case.config.pe[0][1]["chunk"]
    if case.seg is not None or size >= case.T:
        return None
    return expected(case, a, None, replace(case.at, seg=np.broadcast_to(np.arange(case.T) // size + 1, (case.B, case.T))))


MUTANTS = [
    Mutant("chunk-forgets", "mix.chunk", "the state is lost where a chunk ends", ("retnet", "s4d", "mamba", "rwkv6", "rwkv7"), forgetful),
    Mutant("ret-decay-sign", "retnet.decay", "your decay is 1 - 2^(-h)", RET, decay(lambda d: np.log1p(-(2.0 ** (-1.0 - np.arange(len(d))))))),
    Mutant("ret-decay-heads", "retnet.decay", "your heads are in reverse order", RET, decay(lambda d: d[::-1])),
    Mutant(
        "ret-decay-next",
        "retnet.decay",
        "your decay is 1 - 2^(-6-h)",
        RET,
        decay(lambda d: np.log1p(-(2.0 ** (-6.0 - np.arange(len(d)))))),
        held_out=True,
    ),
    Mutant(
        "ret-decay-reading",
        "retnet.decay",
        "your decays are those of the other reading",
        RET,
        with_options(decays=lambda case: "spread" if case.config.pe[0][1]["decays"] == "powers" else "powers"),
    ),
    Mutant("ret-no-decay", "retnet.decay", "nothing decays", RET, decay(lambda d: 0 * d)),
    Mutant(
        "ret-unscaled",
        "retnet.scale",
        "q k is divided by D, not sqrt(D)",
        RET,
        of("retnet", retention=told(retnet.retention, scale=lambda scale: scale * scale * 0.1)),
    ),
    Mutant(
        "ret-scaled-more",
        "retnet.scale",
        "q k is much too small",
        RET,
        of("retnet", retention=told(retnet.retention, scale=lambda scale: scale * 0.03)),
        held_out=True,
    ),
    Mutant("ret-turn", "rope.layout.half", "your pairs are in halves", RET, backend(turn=lambda *given, layout: PLAIN.turn(*given, layout="half"))),
    Mutant(
        "ret-ladder",
        "retnet.ladder",
        "your frequencies are those of RoPE, or are not where they should",
        RET,
        with_options(ladder=lambda case: "paper" if case.config.pe[0][1]["ladder"] == "endpoint" else "endpoint"),
        ("microsoft/torchscale#47",),
    ),
    Mutant("ret-ladder-base", "retnet.ladder", "your frequencies have another base", RET, with_options(base=100.0), held_out=True),
    Mutant(
        "ret-norm",
        "mix.norm",
        "your norm is another (mean or no mean)",
        RET,
        with_options(norm=lambda case: "rms" if case.config.pe[0][1]["norm"] == "group" else "group"),
    ),
    Mutant(
        "ret-no-norm",
        "mix.norm",
        "there is no norm",
        RET,
        of("retnet", layer_norm=lambda x, w, b, eps: x, rms_norm=lambda x, w, eps: x),
        held_out=True,
    ),
    Mutant("ret-gate", "mix.gate", "the gate is on the other side", RET, backend(swiglu=lambda g, y: PLAIN.swiglu(y, g))),
    Mutant(
        "s4d-real",
        "s4d.conjugates",
        "the factor 2 of the conjugates is missing",
        S4D,
        of("s4d", modes=forward(s4d.modes, lambda y, *_: y * np.array([1, 1, 0.5, 0.5])[:, None, None])),
    ),
    Mutant(
        "s4d-imaginary",
        "s4d.conjugates",
        "you take the imaginary part of C with the other sign",
        S4D,
        inputs(**{"param.C": lambda c: c * np.array([1, -1])}),
    ),
    Mutant(
        "s4d-real-only",
        "s4d.conjugates",
        "you leave out the imaginary part of C",
        S4D,
        inputs(**{"param.C": lambda c: c * np.array([1, 0])}),
        held_out=True,
    ),
    Mutant(
        "s4d-rule",
        "mix.discretisation",
        "your discretisation is another",
        S4D,
        with_options(discretisation=lambda case: "zoh" if case.config.pe[0][1]["discretisation"] == "bilinear" else "bilinear"),
    ),
    Mutant(
        "mamba-rule",
        "mix.discretisation",
        "your discretisation of B is another",
        MAMBA,
        with_options(discretisation=lambda case: "zoh" if case.config.pe[0][1]["discretisation"] == "euler" else "euler"),
        ("state-spaces/mamba#19", "state-spaces/mamba#114"),
    ),
    Mutant(
        "s4d-no-step",
        "mix.discretisation",
        "B is not multiplied by the step",
        S4D,
        of("s4d", modes=forward(s4d.modes, lambda y, log_dt, *_: np.concatenate([y[:2], y[2:] / np.exp(log_dt)[:, None]]))),
        held_out=True,
    ),
    Mutant("s4d-no-skip", "mix.skip", "D is missing", S4D, inputs(**{"param.D": lambda d: 0 * d})),
    Mutant("mamba-no-skip", "mix.skip", "D is missing", MAMBA, inputs(**{"param.D": lambda d: 0 * d})),
    Mutant("skip-negated", "mix.skip", "D is subtracted", ("s4d", "mamba"), inputs(**{"param.D": lambda d: -d}), held_out=True),
    Mutant("s4d-gelu", "mix.activation", "you have relu where gelu belongs", S4D, backend(gelu=activation.relu)),
    Mutant("s4d-gate", "mix.gate", "the halves of the gate are exchanged", S4D, of("s4d", gated=lambda g, x: activation.gated(x, g))),
    Mutant("s4d-no-gate", "mix.gate", "the gate is missing", S4D, of("s4d", gated=forward(activation.gated, lambda y, g, x: x * 1.0)), held_out=True),
    Mutant(
        "mamba-no-softplus",
        "mamba.step",
        "the step has no softplus",
        MAMBA,
        recurrence(mamba, "selective_scan", lambda u, dt, *rest: (u, np.log(np.expm1(np.exp(np.clip(dt, -4, 2)))), *rest)),
    ),
    Mutant("mamba-step-bias", "mamba.step", "the step has no bias", MAMBA, inputs(**{"param.dt.bias": lambda b: 0 * b}), ("state-spaces/mamba#121",)),
    Mutant("mamba-step-twice", "mamba.step", "the bias of the step counts twice", MAMBA, inputs(**{"param.dt.bias": lambda b: 2 * b}), held_out=True),
    Mutant("mamba-b-and-c", "mamba.projections", "B and C are exchanged", MAMBA, exchanged("b.weight", "c.weight"), ("annotated-mamba#4",)),
    Mutant("mamba-x-and-z", "mamba.projections", "x and z are exchanged", MAMBA, exchanged("x.weight", "z.weight"), ("mamba-minimal#2",)),
    Mutant(
        "mamba-a",
        "mamba.decay",
        "A is A_log with its sign changed, without exp",
        MAMBA,
        recurrence(mamba, "selective_scan", lambda u, dt, a, *rest: (u, dt, np.log(np.maximum(a, 0.01)), *rest)),
    ),
    Mutant(
        "mamba-a-reversed", "mamba.decay", "the states are in reverse order", MAMBA, inputs(**{"param.A_log": lambda a: a[:, ::-1]}), held_out=True
    ),
    Mutant("mamba-conv", "mix.conv", "your convolution is reversed in time", MAMBA, inputs(**{"param.conv": lambda w: w[:, ::-1]})),
    Mutant(
        "mamba-conv-late",
        "mix.conv",
        "your convolution comes one token late",
        MAMBA,
        inputs(**{"param.conv": lambda w: np.concatenate([w[:, 1:], 0 * w[:, :1]], 1)}),
        held_out=True,
    ),
    Mutant(
        "mamba-no-norms",
        "mix.norm",
        "the step, B and C are not normed",
        MAMBA,
        unnormed_inside,
    ),
    Mutant("mamba-no-silu", "mix.activation", "there is no silu after the convolution", MAMBA, of("mamba", silu=kept)),
    Mutant("mamba-tanh", "mix.activation", "you have tanh where silu belongs", MAMBA, of("mamba", silu=activation.tanh), held_out=True),
    Mutant("shift-none", "mix.shift", "tokens are not shifted", SHIFTED, of(None, previous=lambda x, *rest: (x, previous(x, *rest)[1]))),
    Mutant("shift-mix", "mix.shift", "the two ends of the mix are exchanged", SHIFTED, of(None, lerp=lambda a, b, m: lerp(b, a, m))),
    Mutant(
        "shift-two",
        "mix.shift",
        "tokens are shifted by two",
        SHIFTED,
        of(None, previous=forward(previous, lambda y, x, *_: np.concatenate([0 * y[:, :1], y[:, :-1]], 1))),
        held_out=True,
    ),
    Mutant(
        "r4-bonus", "rwkv.bonus", "the present token has no bonus", R4, recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, w, 0 * u, *rest))
    ),
    Mutant(
        "r4-bonus-decay",
        "rwkv.bonus",
        "bonus and decay are exchanged",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, -abs(u), w, *rest)),
    ),
    Mutant(
        "r4-decay-once",
        "rwkv.decay",
        "your decay lacks the outer exp",
        R4,
        of("rwkv4", minus_exp=forward(activation.minus_exp, lambda y, x: -abs(x))),
    ),
    Mutant(
        "r4-early",
        "rwkv.decay",
        "the token before has already decayed",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, w, u - w, *rest)),
    ),
    Mutant(
        "r4-square",
        "rwkv.decay",
        "everything decays twice as fast",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, 2 * w, u, *rest)),
        held_out=True,
    ),
    Mutant("r4-gate", "mix.gate", "the gate is a silu", R4, of("rwkv4", gated=forward(activation.gated, lambda y, r, x: y * r))),
    Mutant(
        "r6-bonus",
        "rwkv.bonus",
        "the present token has no bonus",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, 0 * u, *rest)),
    ),
    Mutant(
        "r6-reads-after",
        "rwkv.bonus",
        "the state is read after the token is written",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, 0 * u + 1, *rest)),
    ),
    Mutant(
        "r6-bonus-exp",
        "rwkv.bonus",
        "the bonus is an exponential",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, np.exp(u), *rest)),
        held_out=True,
    ),
    Mutant("r6-decay", "rwkv.decay", "your decay lacks an exp", R6, of("rwkv6", minus_exp=forward(activation.minus_exp, lambda y, x: -abs(x) / 4))),
    Mutant(
        "r6-decay-late",
        "rwkv.decay",
        "the decay of the token before is used",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, *rest: (r, np.concatenate([w[:, :, :1], w[:, :, :-1]], 2), k, v, *rest)),
        held_out=True,
    ),
    Mutant("r6-scaled", "rwkv.scale", "r is divided by sqrt(D) and the norm's eps is another", R6, with_options(eps=0.1)),
    Mutant("r6-values", "rwkv.projections", "k and v are exchanged", ("rwkv4", "rwkv6"), exchanged("k.weight", "v.weight")),
    Mutant("r7-values", "rwkv.projections", "r and k are exchanged", R7, exchanged("r.weight", "k.weight")),
    Mutant("rwkv-gate-value", "rwkv.projections", "r and v are exchanged", SHIFTED, exchanged("r.weight", "v.weight"), held_out=True),
    Mutant("rwkv-norm", "mix.norm", "your norm is over all heads", ("rwkv6", "rwkv7"), of(None, head_norm=over_all_heads)),
    Mutant(
        "rwkv-no-norm",
        "mix.norm",
        "there is no norm over the heads",
        ("rwkv6", "rwkv7"),
        of(None, head_norm=unnormed),
        held_out=True,
    ),
    Mutant("r6-gate", "mix.gate", "the gate is on the other side", R6, backend(swiglu=lambda g, y: PLAIN.swiglu(y, g))),
    Mutant("r7-unnormed", "rwkv7.kappa", "kappa has not length one", R7, of("rwkv7", unit=lambda x, eps: x)),
    Mutant("r7-kappa", "rwkv7.kappa", "kappa lacks xi", R7, inputs(**{"param.xi": lambda x: 0 * x + 1})),
    Mutant(
        "r7-kappa-negated",
        "rwkv7.kappa",
        "kappa is normed over the whole width",
        R7,
        of("rwkv7", unit=forward(rwkv7.unit, lambda y, x: x / np.sqrt((x * x).sum((1, 3), keepdims=True)))),
        held_out=True,
    ),
    Mutant(
        "r7-decay", "rwkv.decay", "the e^(-1/2) of the decay is missing", R7, of("rwkv7", decay=forward(rwkv7.decay, lambda y, x: y * np.exp(0.5)))
    ),
    Mutant(
        "r7-decay-exp",
        "rwkv.decay",
        "your decay is that of RWKV-6",
        R7,
        of("rwkv7", decay=forward(rwkv7.decay, lambda y, x: -np.exp(np.minimum(x, -0.5)))),
        held_out=True,
    ),
    Mutant(
        "r7-not-removed",
        "rwkv7.removal",
        "nothing is taken out of the state",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, 0 * a, *rest)),
    ),
    Mutant(
        "r7-removed-whole",
        "rwkv7.removal",
        "everything under the key is taken out",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, 0 * a + 1, *rest)),
    ),
    Mutant(
        "r7-added",
        "rwkv7.removal",
        "what should be taken out is added",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, -a, *rest)),
        held_out=True,
    ),
    Mutant("r7-alpha", "rwkv7.key", "the key is not changed by a", R7, inputs(**{"param.alpha": lambda x: 0 * x})),
    Mutant("r7-bonus", "rwkv.bonus", "the bonus is missing", R7, inputs(**{"param.bonus": lambda x: 0 * x})),
    Mutant("r7-key", "rwkv7.key", "the key is multiplied by a", R7, inputs(**{"param.alpha": lambda x: 0 * x + 1}), held_out=True),
    Mutant("r7-gate", "mix.gate", "the gate has no sigmoid inside", R7, of("rwkv7", sigmoid=activation.tanh)),
    Mutant(
        "backwards",
        "mix.time",
        "time runs backward",
        hooked("mix"),
        lambda case, a: inputs(x=lambda x: x[:, ::-1])(case, a) if case.seg is None else None,
    ),
    Mutant(
        "rolled",
        "mix.time",
        "the layer sees the next token",
        hooked("mix"),
        lambda case, a: inputs(x=lambda x: np.roll(x, -1, 1))(case, a) if case.seg is None else None,
        held_out=True,
    ),
]


def scaled(x, w, b):
    return Op(lambda x, w, b: (x * w + b, (x, w)), lambda saved, dy: (dy * saved[1], (dy * saved[0]).sum((0, 1)), dy.sum((0, 1))))(x, w, b)
