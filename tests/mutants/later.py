"""Wrong implementations that were written when the diagnosis was finished, to see how it does with what it
was not made for.

They are no part of the table's other figures, no near miss is made of them, and nothing was changed because
of how they are named. They are by the same hand as the guesses of the diagnosis, so no stranger's either:
other parameters, and other traps of the flags there are. Those of one encoding stand in its recipe, as LATER.
"""

import numpy as np
import recipes

from mutants import Mutant
from mutants.anywhere import BOUNDED, EVERYWHERE, SOFTMAX, attn, scaled, seeing, softmax, tiled
from mutants.gradient import LEARNED, gradients, grouped, many
from mutants.gradient import attn as at_attn
from mutants.rotate import LADDER, MAGNIFIED, exponents, frequencies, rest, turning, with_base
from mutants.scalings import FACTORED
from mutants.ways import (
    ANY,
    angles,
    expected,
    forward,
    gains,
    hooked,
    inputs,
    moved_distances,
    moved_positions,
    place,
    results,
    table,
    with_case,
    with_option,
    with_options,
    with_parameters,
)  # fmt: skip
from peref.ops.turn import turn

ROTATE, BIAS = hooked("rotate"), hooked("bias")


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
    return lambda case, a: None if case.config.pe[0][1].get("base") == base else with_base(case, a, base)


swapped = lambda n: [k ^ 1 if (k ^ 1) < n else k for k in range(n)]


MUTANTS = [
    Mutant(
        "l-early-3",
        "position.off_by_one",
        "your positions begin at -3",
        (*ROTATE, *(n for n in hooked("embed") if n not in BOUNDED)),
        moved_positions(lambda i: i - 3),
    ),
    Mutant(
        "l-clips-777",
        "rope.table.clip",
        "your table ends at 777",
        (*ROTATE, *(n for n in hooked("embed") if n not in BOUNDED)),
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
        MAGNIFIED,
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
        tuple(n for n in FACTORED if n not in with_option("long_factor")),
        with_options(factor=lambda c: 1.5 * c.config.pe[0][1]["factor"]),
    ),
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
        tuple(n for n in BIAS if n not in (*BOUNDED, *with_parameters("1.weight"))),
        moved_distances(lambda d: d + 2 * (d >= 0)),
    ),
    Mutant(
        "l-kerple-r2",
        "kerple.parameters",
        "r2 is read without softplus, negated",
        tuple(n for n in BIAS if n in with_parameters("r2")),
        inputs(**{"param.r2": lambda r: -r}),
    ),
    Mutant(
        "l-skip-thrice",
        "mix.skip",
        "D counts three times",
        with_parameters("D"),
        inputs(**{"param.D": lambda d: 3 * d}),
    ),
    Mutant(
        "l-bonus",
        "rwkv.bonus",
        "the bonus has the other sign",
        with_parameters("bonus"),
        inputs(**{"param.bonus": lambda u: -u}),
    ),
]
MUTANTS += [m for name in recipes.files() for m in getattr(recipes.module(name), "LATER", ())]
