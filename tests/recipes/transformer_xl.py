"""Golden cases of transformer_xl."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import expected, inputs, patched, told, with_options

from peref.encodings.score import transformer_xl
from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, together, usual
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:1901.02860). `[u_h k_j + (q_i + w_h) r_d] / sqrt(D)` is added to q k/sqrt(D), d = i - j. r_d =
param.r.weight e_d, [H D,C], with rows h D to (h+1) D - 1 for head h. e_d has all sin(d f_n), then all cos(d
f_n), `f_n = base^(-2n/C)`, n = 0 .. C//2 - 1, and for an odd C a 0 at the end. u, w are param.u, param.w
[H,D]. `clamp_len`: d is clipped to -clamp_len .. clamp_len. `divided` "not": nothing is divided by sqrt(D),
not even q k.
"""


def program(p, q, k, x, i, see, o, f):
    H, C, D = f["H"], f["C"], f["D"]
    d = np.subtract.outer(i, i)
    d = d if o["clamp_len"] is None else np.clip(d, -o["clamp_len"], o["clamp_len"])
    angle = np.multiply.outer(d, o["base"] ** (-2 * np.arange(C // 2) / C))
    e = np.concatenate([np.sin(angle), np.cos(angle), np.zeros((*d.shape, C % 2))], -1)
    r = (e @ p["r.weight"].T).reshape(*d.shape, H, D)
    term = np.einsum("hd,hsd->hs", p["u"], k)[:, None] + np.einsum("htd,tshd->hts", q + p["w"][:, None], r)
    return term / (sqrt(D) if o["divided"] == "sqrt" else 1)


def softmax_scale(o, D):
    return 1.0 if o["divided"] == "not" else D**-0.5


MORE_FLAGS = {"positions": ("cache.position_restarts",)}

RECIPES = [
    *usual("transformer_xl", B=1, T=5, flags=basic("across_layers")),
    *attention("transformer_xl"),
    case(
        "transformer_xl",
        "op",
        "clamp-3",
        "Distances beyond 3 count as 3.",
        "bias.bucket.clamp",
        **SMALL,
        options={"clamp_len": 3},
    ),
    case(
        "transformer_xl",
        "op",
        "two-sided",
        "The sine of a distance has its sign.",
        "bias.sign",
        **SMALL,
        causal=False,
    ),
    case(
        "transformer_xl",
        "attn",
        "undivided",
        "Nothing is divided by sqrt(D), q k neither.",
        "basic",
        **SMALL,
        options={"divided": "not"},
    ),
    case("transformer_xl", "op", "odd", "An odd width: its last channel is 0.", "sin.order", **SMALL, C=9),
    *together(
        "transformer_xl",
        {"base": 100.0, "clamp_len": 3, "divided": "not"},
        {"base": 100.0, "clamp_len": 3},
        again={"op": (1, 3), "attn": (1, 3)},
        more=({"base": 100.0},),
    ),
]
FULL = (
    "*/together-*-groups",
    "*/together-[23]",
    "attn/spread",
    "attn/together-1",
    "attn/together-2*",
    "op/base-20000.0",
    "op/together-1-*",
)

WHOLES = [in_layers("transformer_xl", across_layers="own")]

TRAPS = {
    "xl.terms": trap(
        "MISSING_STEP",
        "u and w are exchanged or missing",
        "two of the four terms are wrong",
        "u is added to the query that meets keys, w to the one that meets distances",
    ),
    "xl.scale": trap(
        "SCALING",
        "a term is divided differently",
        "the terms are out of proportion",
        "sqrt(D) divides the sum of all four terms",
    ),
    "xl.distance": trap(
        "SIGN",
        "distances are reversed, negated or shifted",
        "past and future are exchanged, or every distance is one off",
        "r belongs to d = i - j; a relative shift that is one row off shows here",
    ),
}

MEANS = {
    "parameters": {"u": "xl.terms", "w": "xl.terms", "r.weight": "xl.distance"},
    "functions": {
        "sinusoids": "xl.distance",
        "asked": "xl.terms",
        "key_bias": "xl.terms",
        "key_bias.scale": "xl.scale",
        "gather": "xl.distance",
        "gather.scale": "xl.scale",
        "score": "xl.distance",
        "score.by": "xl.scale",
    },
}

TOGETHER = [{"clamp_len": 3}]

REFUSED = [
    *refusals("transformer_xl"),
    refused("transformer_xl", "attn", "clamp-0", "setting", "All distances at 0.", options={"clamp_len": 0}),
]

LAWS = [*laws("transformer_xl")]


# wrong implementations

XL = ("transformer_xl",)


def exchanged(one, two):
    """Two parameters have changed places."""
    return lambda case, a: (
        expected(case, {**a, f"param.{one}": a[f"param.{two}"], f"param.{two}": a[f"param.{one}"]})
        if f"param.{one}" in a
        else None
    )


SINUSOIDS = transformer_xl.sinusoids


MUTANTS = [
    Mutant("xl-u-and-w", "xl.terms", "u and w are exchanged", XL, exchanged("u", "w")),
    Mutant(
        "xl-no-u", "xl.terms", "the key has no liking of its own", XL, inputs(**{"param.u": lambda u: 0 * u})
    ),
    Mutant(
        "xl-no-w",
        "xl.terms",
        "the distance has no liking of its own",
        XL,
        inputs(**{"param.w": lambda w: 0 * w}),
        held_out=True,
    ),
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
        patched("encodings.score.transformer_xl", key_bias=told(transformer_xl.key_bias, scale=1.0)),
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
    Mutant(
        "xl-unclamped",
        "bias.bucket.clamp",
        "distances are not clamped",
        XL,
        with_options(lambda c: "clamp_len" in c.options, clamp_len=None),
    ),
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
            sinusoids=lambda d, C, base: SINUSOIDS(d, C, base)[
                :, np.argsort(np.arange(C) % max(C // 2, 1), kind="stable")
            ],
        ),
    ),
]

LATER = [
    Mutant(
        "l-xl-u-twice",
        "xl.terms",
        "the key's own term counts twice",
        ("transformer_xl",),
        inputs(**{"param.u": lambda u: 2 * u}),
    )
]
