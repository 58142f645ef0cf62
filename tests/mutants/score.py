"""Bugs in terms of the logits that see content or absolute place."""

import numpy as np

from mutants import Mutant
from mutants.ways import asked, expected, forward, inputs, patched, place, told, with_options
from peref.encodings.score import cope, fire, forgetting, transformer_xl
from peref.ops import activation
from peref.ops.shape import add, join
from peref.tape import Op

INTERPOLATE, SHARE = cope.interpolate, fire.share
XL, FOX = ("transformer_xl",), ("forgetting",)


def exchanged(one, two):
    """Two parameters have changed places."""
    return lambda case, a: (
        expected(case, {**a, f"param.{one}": a[f"param.{two}"], f"param.{two}": a[f"param.{one}"]}) if f"param.{one}" in a else None
    )


def interpolated(change):
    """CoPE's interpolation is another: change(y, z, s, at, scale)."""

    def op(z, s, *, at, scale):
        y, saved = INTERPOLATE.forward(z, s, at=at, scale=scale)
        return change(y, z, s, at, scale), saved

    return patched("encodings.score.cope", interpolate=Op(op, INTERPOLATE.backward))


def count(s, at):
    g = np.where(at.see, activation.logistic(s), 0)
    return g, g[..., ::-1].cumsum(-1)[..., ::-1]


def read(z, p, scale):
    p = np.clip(p, 0, z.shape[-1] - 1)
    low, high = np.floor(p).astype(int), np.ceil(p).astype(int)
    t, row = p - low, lambda n: np.take_along_axis(z, n, -1)
    return ((1 - t) * row(low) + t * row(high)) * scale


def shared(change):
    """FIRE's share is another: change(c, m, d, i, threshold, eps)."""

    def op(c, m, d, i, *, threshold, eps):
        y, saved = SHARE.forward(c, m, d, i, threshold=threshold, eps=eps)
        return np.reshape(change(c, m, d, i, threshold, eps), y.shape), saved

    return patched("encodings.score.fire", share=Op(op, SHARE.backward))


def at_ties(side):
    """Where the two of FIRE's maximum are equal, side(1/2) of the derivative is m's."""
    return patched("encodings.score.fire", share=Op(SHARE.forward, lambda saved, dy: SHARE.backward((*saved[:3], side(saved[3]), *saved[4:]), dy)))


psi = lambda c, x: np.log1p(abs(c) * x)
SINUSOIDS = transformer_xl.sinusoids

MUTANTS = [
    Mutant(
        "cope-floor",
        "cope.interpolation",
        "you round the count down in place of interpolating",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, np.floor(count(s, at)[1]), scale)),
    ),
    Mutant(
        "cope-exchanged",
        "cope.interpolation",
        "the two neighbours are exchanged",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, 2 * np.floor(count(s, at)[1]) + 1 - count(s, at)[1], scale)),
    ),
    Mutant(
        "cope-rounded",
        "cope.interpolation",
        "you round the count to the nearest row",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, np.rint(count(s, at)[1]), scale)),
        held_out=True,
    ),
    Mutant(
        "cope-not-itself",
        "cope.count",
        "the count leaves out the key itself",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, count(s, at)[1] - count(s, at)[0], scale)),
    ),
    Mutant(
        "cope-forward",
        "cope.count",
        "you count from the first key on",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, count(s, at)[0].cumsum(-1), scale)),
    ),
    Mutant(
        "cope-future",
        "cope.count",
        "keys of the future are counted",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, activation.logistic(s)[..., ::-1].cumsum(-1)[..., ::-1], scale)),
        held_out=True,
    ),
    Mutant(
        "cope-divided",
        "cope.scale",
        "q e is divided by sqrt(D), or is not where it should",
        ("cope",),
        with_options(divided=lambda case: "both" if case.config.pe[0][1]["divided"] == "qk" else "qk"),
    ),
    Mutant(
        "cope-wraps",
        "bias.bucket.clamp",
        "counts beyond the table begin again",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: read(z, count(s, at)[1] % z.shape[-1], scale)),
    ),
    Mutant("cope-twice", "cope.scale", "q e is divided by D", ("cope",), interpolated(lambda y, z, s, at, scale: y * 8**-0.5), held_out=True),
    Mutant("dape-no-leak", "dape.network", "your network has relu", ("dape",), patched("encodings.score.dape", LEAK=0.0)),
    Mutant("dape-leak", "dape.network", "your network leaks 0.2", ("dape",), patched("encodings.score.dape", LEAK=0.2), held_out=True),
    Mutant(
        "dape-silu", "dape.network", "your network has silu", ("dape",), patched("encodings.score.dape", relu=lambda x, slope: activation.silu(x))
    ),
    Mutant(
        "dape-no-bias", "dape.bias", "the static bias is not added beside the network", ("dape",), patched("encodings.score.dape", add=lambda b, y: y)
    ),
    Mutant(
        "dape-twice-bias",
        "dape.bias",
        "the static bias counts twice",
        ("dape",),
        patched("encodings.score.dape", add=lambda b, y: add(add(b, b), y)),
        held_out=True,
    ),
    Mutant(
        "dape-order",
        "dape.network",
        "bias and logits are joined in the other order",
        ("dape",),
        patched("encodings.score.dape", join=lambda a, b, axis: join(b, a, axis=axis)),
    ),
    Mutant(
        "fire-min",
        "fire.normaliser",
        "your normaliser is the smaller of the two",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) / (psi(c, np.minimum(abs(m * L), i)[..., None]) + eps)),
    ),
    Mutant(
        "fire-position",
        "fire.normaliser",
        "your normaliser has no threshold",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) / (psi(c, i[..., None] * 1.0) + eps)),
    ),
    Mutant(
        "fire-threshold",
        "fire.normaliser",
        "your threshold is another",
        ("fire",),
        with_options(threshold=lambda case: case.config.pe[0][1]["threshold"] / 4),
        held_out=True,
    ),
    Mutant(
        "fire-inside",
        "fire.formula",
        "eps stands inside the logarithm",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) / np.log1p(abs(c) * np.maximum(abs(m * L), i)[..., None] + eps)),
    ),
    Mutant(
        "fire-difference",
        "fire.formula",
        "a difference of logarithms stands where their quotient belongs",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) - psi(c, np.maximum(abs(m * L), i)[..., None])),
    ),
    Mutant(
        "fire-linear",
        "fire.formula",
        "there is no logarithm",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: abs(d) / (np.maximum(abs(m * L), i)[..., None] + eps)),
        held_out=True,
    ),
    Mutant("fire-silu", "fire.network", "your network has silu", ("fire",), patched("encodings.score.fire", relu=activation.silu)),
    Mutant(
        "fire-slots",
        "position.counted",
        "i is counted in slots",
        ("fire",),
        lambda case, a: place(i=np.arange(case.T))(case, a) if case.positions is not None or case.seg is not None else None,
    ),
    Mutant("fire-no-bias", "fire.network", "the first layer has no bias", ("fire",), inputs(**{"param.1.bias": lambda b: 0 * b}), held_out=True),
    Mutant("fire-left", "grad.tie", "your maximum hands m nothing where its two are equal", ("fire",), at_ties(np.floor)),
    Mutant("fire-right", "grad.tie", "your maximum hands m everything where its two are equal", ("fire",), at_ties(np.ceil), held_out=True),
    Mutant("xl-u-and-w", "xl.terms", "u and w are exchanged", XL, exchanged("u", "w")),
    Mutant("xl-no-u", "xl.terms", "the key has no liking of its own", XL, inputs(**{"param.u": lambda u: 0 * u})),
    Mutant("xl-no-w", "xl.terms", "the distance has no liking of its own", XL, inputs(**{"param.w": lambda w: 0 * w}), held_out=True),
    Mutant(
        "xl-unscaled",
        "xl.scale",
        "the term of the distance is not divided by sqrt(D)",
        XL,
        patched("encodings.score.transformer_xl", gather=told(transformer_xl.gather, scale=1.0)),
    ),
    Mutant(
        "xl-unscaled-u",
        "xl.scale",
        "the term of the key is not divided by sqrt(D)",
        XL,
        patched("encodings.score.transformer_xl", column=told(transformer_xl.column, scale=1.0)),
    ),
    Mutant(
        "xl-scaled-twice",
        "xl.scale",
        "the term of the distance is divided by D",
        XL,
        patched("encodings.score.transformer_xl", gather=told(transformer_xl.gather, scale=lambda s: s * s)),
        held_out=True,
    ),
    Mutant(
        "xl-future",
        "xl.distance",
        "your distances are j - i",
        XL,
        patched("encodings.score.transformer_xl", sinusoids=lambda d, C, base: SINUSOIDS(-d, C, base)),
    ),
    Mutant(
        "xl-shift",
        "xl.distance",
        "your relative shift is off by one",
        XL,
        patched("encodings.score.transformer_xl", sinusoids=lambda d, C, base: SINUSOIDS(d + 1, C, base)),
    ),
    Mutant("xl-unclamped", "bias.bucket.clamp", "distances are not clamped", XL, with_options(lambda c: "clamp_len" in c.options, clamp_len=None)),
    Mutant(
        "xl-unsigned",
        "bias.sign",
        "the future is the past mirrored",
        XL,
        patched("encodings.score.transformer_xl", sinusoids=lambda d, C, base: SINUSOIDS(abs(d), C, base)),
    ),
    Mutant(
        "xl-from-end",
        "xl.distance",
        "you did not reverse the distances",
        XL,
        patched("encodings.score.transformer_xl", sinusoids=lambda d, C, base: SINUSOIDS(d, C, base)[::-1]),
        held_out=True,
    ),
    Mutant(
        "xl-alternating",
        "sin.order",
        "your sinusoids alternate",
        XL,
        patched(
            "encodings.score.transformer_xl",
            sinusoids=lambda d, C, base: SINUSOIDS(d, C, base)[:, np.argsort(np.arange(C) % max(C // 2, 1), kind="stable")],
        ),
    ),
    Mutant(
        "fox-shifted",
        "forgetting.range",
        "a key's own gate is counted",
        FOX,
        lambda case, a: patched("encodings.score.forgetting", column=forward(forgetting.column, lambda y, f: y + f[:, :, None]))(case, a),
    ),
    Mutant(
        "fox-not-mine",
        "forgetting.range",
        "the query's own gate is not counted",
        FOX,
        patched("encodings.score.forgetting", row=forward(forgetting.row, lambda y, f: y - f[..., None])),
    ),
    Mutant(
        "fox-both",
        "forgetting.range",
        "gates are counted from the key to before the query",
        FOX,
        patched(
            "encodings.score.forgetting",
            column=forward(forgetting.column, lambda y, f: y + f[:, :, None]),
            row=forward(forgetting.row, lambda y, f: y - f[..., None]),
        ),
        held_out=True,
    ),
    Mutant(
        "fox-sigmoid",
        "forgetting.gate",
        "you add the gates, not their logarithms",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=activation.sigmoid),
    ),
    Mutant(
        "fox-sign",
        "forgetting.gate",
        "your gates remember where they should forget",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=asked(activation.log_sigmoid, lambda x: (-x,))),
    ),
    Mutant(
        "fox-softplus",
        "forgetting.gate",
        "you take softplus of the gates",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=activation.softplus),
        held_out=True,
    ),
    Mutant("fox-no-bias", "forgetting.gate", "the gate has no bias", FOX, inputs(**{"param.f.bias": lambda b: 0 * b})),
]
