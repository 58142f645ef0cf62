"""Wrong implementations that were written when the diagnosis was finished, to see how it does with what it
was not made for.

They are no part of the table's other figures, no near miss is made of them, and nothing was changed because
of how they are named. They are by the same hand as the guesses of the diagnosis, so no stranger's either:
other parameters, and other traps of the flags there are.
"""

import numpy as np

from mutants import Mutant
from mutants.anywhere import EVERYWHERE, SOFTMAX, attn, scaled, seeing, softmax, tiled
from mutants.bias import bucketed, slopes
from mutants.gradient import LEARNED, gradients, grouped, many
from mutants.gradient import attn as at_attn
from mutants.mix import decay, recurrence
from mutants.rotate import LADDER, exponents, frequencies, rest, turning, with_option
from mutants.scalings import divided, fractioned
from mutants.ways import (
    ANY,
    angles,
    asked,
    backend,
    expected,
    forward,
    gains,
    hooked,
    inputs,
    moved_distances,
    moved_positions,
    patched,
    place,
    results,
    table,
    told,
    with_case,
    with_options,
)  # fmt: skip
from peref.encodings.attend import path, shaw
from peref.encodings.mix import rwkv6, s4d
from peref.encodings.score import forgetting
from peref.ops import activation, bias
from peref.ops.turn import turn

ROTATE, BIAS = hooked("rotate"), hooked("bias")
SLOPES = bias.slopes


def few_digits(x):
    """Ten bits after the point, as tensor cores have them."""
    m, e = np.frexp(x)
    return np.ldexp(np.rint(m * 2.0**11) / 2.0**11, e)


def last_row(g, name, case, a):
    mask = lambda x: x * (np.arange(len(x)) == len(x) - 1).reshape(-1, *[1] * (x.ndim - 1))
    return expected(
        case,
        {n: mask(x) if n in ("cotangent.out", "cotangent.y", "cotangent.term") else x for n, x in a.items()},
    )[f"vjp.{name}"]


def last_head(g, name, case, a):
    heads = case.H // case.G
    part = expected(
        case,
        {**a, "cotangent.out": a["cotangent.out"] * (np.arange(case.H) % heads == heads - 1)[:, None, None]},
    )
    return part[f"vjp.{name}"]


def in_quarters(y, x, angle, gain):
    """Pairs within each half of the channels that turn."""
    n = angle.shape[-1]
    phi = angle[:, None] if angle.ndim == 3 else angle
    first = [c for c in range(2 * n) if c % n < n // 2] if n > 1 else [0]
    second = [c + max(n // 2, 1) for c in first]
    y = np.array(x)
    y[..., first] = x[..., first] * np.cos(phi) - x[..., second] * np.sin(phi)
    y[..., second] = x[..., first] * np.sin(phi) + x[..., second] * np.cos(phi)
    return y


def peeking(case, a):
    """A query sees the next key."""
    if not attn(case) or not case.causal or case.hook == "bias" or case.seg is not None:
        return None
    return expected(case, a, None, seeing(case.at, case.at.see | np.eye(case.T, k=1, dtype=bool)))


def with_rope_base(base):
    return lambda case, a: None if case.config.pe[0][1].get("base") == base else with_option(case, a, base)


swapped = lambda n: [k ^ 1 if (k ^ 1) < n else k for k in range(n)]


def bias_take(t, rows):
    from peref.ops.embedding import take

    return take(t, rows)


MUTANTS = [
    Mutant(
        "l-early-3",
        "position.off_by_one",
        "your positions begin at -3",
        (*ROTATE, "sinusoidal"),
        moved_positions(lambda i: i - 3),
    ),
    Mutant(
        "l-clips-777",
        "rope.table.clip",
        "your table ends at 777",
        (*ROTATE, "sinusoidal"),
        moved_positions(lambda i: np.minimum(i, 776), lambda i: i.max() > 776),
    ),
    Mutant(
        "l-wraps-3000",
        "rope.table.wrap",
        "positions modulo 3000",
        ROTATE,
        moved_positions(lambda i: i % 3000, lambda i: i.max() >= 3000),
    ),
    Mutant(
        "l-wraps-sign",
        "rope.table.wrap",
        "positions in 16 bits with a sign",
        ROTATE,
        moved_positions(lambda i: (i + 32768) % 65536 - 32768, lambda i: i.max() > 32767),
    ),
    Mutant(
        "l-ceils",
        "position.rounded",
        "positions are rounded up",
        ROTATE,
        moved_positions(np.ceil, lambda i: i.dtype.kind == "f"),
    ),
    Mutant(
        "l-rows-swapped",
        "position.batch",
        "sequences have one another's positions",
        ROTATE,
        moved_positions(lambda i: i[::-1], lambda i: i.ndim == 2),
    ),
    Mutant(
        "l-window-3-more",
        "mask.window",
        "your window is three keys too wide",
        SOFTMAX,
        with_case(lambda c: attn(c) and c.window, window=lambda c: c.window + 3),
    ),
    Mutant("l-peeks", "mask.causal", "a token sees the next one", SOFTMAX, peeking),
    Mutant(
        "l-padding-joined",
        "mask.documents",
        "padding belongs to the first document",
        EVERYWHERE,
        lambda case, a: (
            place(seg=np.where(case.at.seg == 0, 1, case.at.seg))(case, a)
            if case.seg is not None and case.level == "attn"
            else None
        ),
    ),
    Mutant(
        "l-keys-only",
        "gqa.order",
        "your key heads are off by one, your value heads are not",
        SOFTMAX,
        lambda case, a: inputs(lambda c: c.level == "attn" and c.G > 1, k=lambda k: np.roll(k, -1, 1))(
            case, a
        ),
    ),
    Mutant(
        "l-gqa-last",
        "gqa.order",
        "every query head reads the last key-value head",
        SOFTMAX,
        tiled(lambda h, H, G: G - 1),
    ),
    Mutant(
        "l-scale-quarter",
        "attn.scale",
        "your logits are scaled by D**-0.25",
        tuple(n for n in SOFTMAX),
        scaled(lambda s, D, C: D**-0.25),
    ),
    Mutant(
        "l-scale-D", "attn.scale", "your logits are scaled by 1/D", SOFTMAX, scaled(lambda s, D, C: 1 / D)
    ),
    Mutant(
        "l-softmax-2",
        "attn.softmax",
        "your softmax has powers of 2",
        SOFTMAX,
        softmax(lambda p, s: np.nan_to_num((q := p ** np.log(2)) / q.sum(-1, keepdims=True))),
    ),
    Mutant(
        "l-half",
        "basic",
        "what you return is half as large",
        tuple(n for n in ANY if n != "none"),
        results(lambda x: x / 2, "out", "y", "term", "bias", "rows", "q_rotated"),
    ),
    Mutant(
        "l-transposed",
        "basic",
        "time and channels change places",
        SOFTMAX,
        lambda case, a: results(lambda x: x.swapaxes(2, 3), "out")(case, a) if attn(case) else None,
    ),
    Mutant(
        "l-zero-kv",
        "grad.zero",
        "the derivative of k and v is zero",
        ANY,
        gradients(lambda g, *_: 0 * g, "k", "v"),
    ),
    Mutant(
        "l-tripled",
        "grad.factor",
        "the derivative of your parameters counts three times",
        LEARNED,
        gradients(lambda g, *_: 3 * g, "param"),
    ),
    Mutant(
        "l-last-row",
        "grad.sum",
        "only the last sequence teaches",
        LEARNED,
        many(gradients(last_row, "param")),
    ),
    Mutant(
        "l-last-head",
        "grad.sum",
        "only the last head of a group teaches k and v",
        SOFTMAX,
        grouped(gradients(last_head, "k", "v")),
    ),
    Mutant(
        "l-heads-of-k",
        "grad.heads_permuted",
        "heads of the derivative are off by one",
        SOFTMAX,
        at_attn(gradients(lambda g, *_: np.roll(g, -1, 1), "q")),
    ),
    Mutant(
        "l-grad-early",
        "grad.time",
        "the derivative comes one token early",
        ("none", *hooked("mix", "attend")),
        gradients(lambda g, *_: np.roll(g, -1, -2), "v", "x"),
    ),
    Mutant(
        "l-scale-twice",
        "grad.softmax",
        "the derivative of your logits has the scale twice",
        SOFTMAX,
        at_attn(gradients(lambda g, n, c, a: g * c.D**-0.5, "q", "k")),
    ),
    Mutant(
        "l-layout-quarters",
        "rope.layout.half",
        "you pair channels within each half",
        ROTATE,
        turning(forward(turn, lambda y, *g: in_quarters(y, *g))),
    ),
    Mutant("l-exponent-3", "rope.exponent", "your exponent is 3n/R", LADDER, exponents(lambda e, R: 1.5 * e)),
    Mutant(
        "l-exponent-before",
        "rope.exponent",
        "your exponents begin at -2/R",
        LADDER,
        exponents(lambda e, R: e - 2),
    ),
    Mutant("l-base-5000", "rope.base.ignored", "your base is 5000", ROTATE, with_rope_base(5000.0)),
    Mutant("l-base-77777", "rope.base.ignored", "your base is 77777", ROTATE, with_rope_base(77777.0)),
    Mutant(
        "l-neighbours",
        "rope.frequencies",
        "neighbouring frequencies are exchanged",
        ROTATE,
        angles(lambda phi, i: phi[..., swapped(phi.shape[-1])]),
    ),
    Mutant(
        "l-fast-dropped",
        "rope.frequencies",
        "your fastest pair does not turn",
        LADDER,
        frequencies(lambda w: np.where(w == w.max(), 0, w)),
    ),
    Mutant(
        "l-digits",
        "rope.phase.low_precision",
        "your angles have ten bits",
        ROTATE,
        angles(lambda phi, i: few_digits(phi)),
    ),
    Mutant(
        "l-gain-root",
        "rope.yarn.mscale_missing",
        "your magnitude is its root",
        ("yarn", "longrope"),
        gains(lambda q, k: tuple(None if g is None else np.sqrt(g) for g in (q, k))),
    ),
    Mutant(
        "l-rest-negated",
        "rope.partial.passthrough",
        "channels that should pass have the other sign",
        ROTATE,
        rest(lambda y: -y),
    ),
    Mutant(
        "l-factor-more",
        "rope.factor.twice",
        "your factor is half as large again",
        ("pi", "ntk", "ntk_by_parts", "yarn", "llama3"),
        with_options(factor=lambda c: 1.5 * c.config.pe[0][1]["factor"]),
    ),
    Mutant(
        "l-pi-up",
        "rope.pi.factor",
        "your divided positions are rounded up",
        ("pi",),
        lambda case, a: divided(case, a, np.ceil),
    ),
    Mutant(
        "l-dynamic-48",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK is for 48 tokens",
        ("dynamic_ntk",),
        with_case(n=48),
    ),
    Mutant(
        "l-parts-gamma",
        "rope.parts.ramp",
        "your second ramp is elsewhere",
        ("ntk_by_parts",),
        with_options(gamma=(8.0, 3.0)),
    ),
    Mutant(
        "l-ramp-betas",
        "rope.yarn.ramp",
        "your ramp has other ends",
        ("yarn",),
        with_options(beta_fast=48.0, beta_slow=0.5),
    ),
    Mutant(
        "l-llama3-low",
        "rope.llama3.blend",
        "your upper border is 3",
        ("llama3",),
        with_options(high_freq_factor=3.0),
    ),
    Mutant(
        "l-p-two-more",
        "rope.p.fraction",
        "two pairs less turn",
        ("p_rope",),
        lambda case, a: fractioned(case, a, -2),
    ),
    Mutant("l-xpos-gamma", "rope.xpos.gain", "your gamma is 0.7", ("xpos",), with_options(gamma=0.7)),
    Mutant("l-axial-7", "rope.axial.axes", "the width of your image is 7", ("axial",), with_options(width=7)),
    Mutant(
        "l-heads-exchanged",
        "bias.heads",
        "neighbouring heads are exchanged",
        BIAS,
        table(lambda b, d: b[swapped(len(b))]),
    ),
    Mutant(
        "l-bias-scaled",
        "bias.scale",
        "the bias counts two and a half times",
        BIAS,
        table(lambda b, d: 2.5 * b),
    ),
    Mutant(
        "l-two-more",
        "bias.off_by_one",
        "your distances are two too large",
        ("alibi", "kerple_log", "kerple_power", "sandwich", "t5"),
        moved_distances(lambda d: d + 2 * (d >= 0)),
    ),
    Mutant(
        "l-slopes-6",
        "alibi.slopes.exponent",
        "your max_bias is 6",
        ("alibi",),
        slopes(lambda H, most=8.0: SLOPES(H, 6.0)),
    ),
    Mutant(
        "l-buckets-end",
        "bias.bucket.clamp",
        "distances beyond 100 are in bucket 0",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(abs(d) > 100, 0, b)),
    ),
    Mutant(
        "l-rows-by-two",
        "bias.rows",
        "you read every other row",
        ("learned_bias",),
        backend(take=lambda t, d: bias_take(t, 2 * d % t.shape[0])),
    ),
    Mutant(
        "l-kerple-r2",
        "kerple.parameters",
        "r2 is read without softplus, negated",
        ("kerple_log", "kerple_power"),
        inputs(**{"param.r2": lambda r: -r}),
    ),
    Mutant("l-sandwich-64", "sandwich.formula", "your width is 64", ("sandwich",), with_options(width=64)),
    Mutant(
        "l-cope-negated",
        "cope.scale",
        "q e is doubled",
        ("cope",),
        inputs(**{"param.table": lambda e: 2 * e}),
    ),
    Mutant(
        "l-fire-threshold",
        "fire.normaliser",
        "your threshold is larger",
        ("fire",),
        with_options(threshold=lambda c: 3 * c.config.pe[0][1]["threshold"]),
    ),
    Mutant(
        "l-xl-u-twice",
        "xl.terms",
        "the key's own term counts twice",
        ("transformer_xl",),
        inputs(**{"param.u": lambda u: 2 * u}),
    ),
    Mutant(
        "l-fox-half",
        "forgetting.gate",
        "your gates are halved",
        ("forgetting",),
        patched(
            "encodings.score.forgetting", log_sigmoid=forward(forgetting.log_sigmoid, lambda y, x: y / 2)
        ),
    ),
    Mutant(
        "l-dape-leak",
        "dape.network",
        "your network leaks 0.1",
        ("dape",),
        patched("encodings.score.dape", LEAK=0.1),
    ),
    Mutant(
        "l-shaw-half",
        "shaw.key",
        "the vectors of the keys count half",
        ("shaw",),
        patched("encodings.attend.shaw", gather=told(shaw.gather, scale=lambda s: s / 2)),
    ),
    Mutant(
        "l-shaw-value-off",
        "shaw.value",
        "the vectors of the values are negated",
        ("shaw",),
        inputs(**{"param.value": lambda x: -x}),
    ),
    Mutant(
        "l-path-beta",
        "path.beta",
        "your beta is half as large again",
        ("path",),
        patched("encodings.attend.path", twice=forward(path.twice, lambda y, x: 1.5 * y)),
    ),
    Mutant(
        "l-pyramid-3",
        "pyramid.window",
        "your window is three keys too wide",
        ("pyramid",),
        with_options(local=lambda c: 3 + (c.config.pe[0][1]["local"] or max(c.L // 8, 1))),
    ),
    Mutant(
        "l-pyramid-sharp",
        "pyramid.gate",
        "your gate is twice as sharp",
        ("pyramid",),
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (2 * x,))),
    ),
    Mutant(
        "l-ret-decay", "retnet.decay", "everything decays twice as fast", ("retnet",), decay(lambda d: 2 * d)
    ),
    Mutant(
        "l-mamba-step",
        "mamba.step",
        "your step is larger by one before softplus",
        ("mamba",),
        inputs(**{"param.dt.bias": lambda b: b + 1}),
    ),
    Mutant(
        "l-skip-thrice",
        "mix.skip",
        "D counts three times",
        ("s4d", "mamba"),
        inputs(**{"param.D": lambda d: 3 * d}),
    ),
    Mutant(
        "l-s4d-c",
        "s4d.conjugates",
        "the imaginary part of C counts twice",
        ("s4d",),
        inputs(**{"param.C": lambda c: c * np.array([1, 2])}),
    ),
    Mutant(
        "l-s4d-gate",
        "mix.gate",
        "the gate has tanh",
        ("s4d",),
        patched("encodings.mix.s4d", gated=forward(s4d.gated, lambda y, g, x: x * np.tanh(g))),
    ),
    Mutant(
        "l-conv-early",
        "mix.conv",
        "your convolution is rolled",
        ("mamba",),
        inputs(**{"param.conv": lambda w: np.roll(w, 1, 1)}),
    ),
    Mutant(
        "l-bonus",
        "rwkv.bonus",
        "the bonus has the other sign",
        ("rwkv4", "rwkv6", "rwkv7"),
        inputs(**{"param.bonus": lambda u: -u}),
    ),
    Mutant(
        "l-r6-decay",
        "rwkv.decay",
        "everything decays half as fast",
        ("rwkv6",),
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, *more: (r, w / 2, k, v, *more)),
    ),
    Mutant(
        "l-r7-alpha",
        "rwkv7.key",
        "alpha counts twice",
        ("rwkv7",),
        inputs(**{"param.alpha": lambda x: 2 * x}),
    ),
    Mutant(
        "l-r7-xi",
        "rwkv7.kappa",
        "xi is in reverse order",
        ("rwkv7",),
        inputs(**{"param.xi": lambda x: x[::-1]}),
    ),
]
