"""Golden cases of cope."""

from math import floor, sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import inputs, patched, with_options
from page import sigmoid

from peref.encodings.score import cope
from peref.ops import activation
from peref.tape import Op
from recipes.families import SMALL, attention, basic, case, laws, reading, refusals, refused, together, usual
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:2405.18719). `q_i e[p] / sqrt(D)`. p is the sum, over the keys l from j to i that are seen, of
sigmoid(q_i k_l / sqrt(D)), at most `npos` - 1 (npos null: L + 1). e = param.table [npos,D], linear between
rows: n = floor(p), t = p - n, (1 - t) e[n] + t e[n+1]. Where p is an integer, `npos` - 1 too, it is e[n],
and the gates get no gradient from it. `divided` "qk": q e is not divided. `gates` "key": k_l in the sigmoid
is W x_l, W = param.k.weight [H D,C], for each query head.
"""


def program(p, q, k, x, i, see, o, f):
    H, T, D = q.shape
    e = p["table"]
    assert len(e) == (f["L"] + 1 if o["npos"] is None else o["npos"])
    of = k if o["gates"] == "logits" else (x @ p["k.weight"].T).reshape(T, H, D).transpose(1, 0, 2)
    gate = sigmoid(np.einsum("htd,hsd->hts", q, of) / sqrt(D)) * see
    term = np.zeros((H, T, T))
    for h, t, s in np.ndindex(H, T, T):
        count = min(gate[h, t, s:].sum(), len(e) - 1)
        n = floor(count)
        row = (1 - (count - n)) * e[n] + (count - n) * e[min(n + 1, len(e) - 1)]
        term[h, t, s] = q[h, t] @ row / (sqrt(D) if o["divided"] == "both" else 1)
    return term


NOT_FLAGS = ("cache.features_dropped",)

RECIPES = [
    *usual(
        "cope",
        B=1,
        T=5,
        flags=basic("across_layers"),
        beside={"gates": {"B": 1, "T": 5, "C": 5, "D": 4, "options": {"npos": 6}}},
    ),
    *attention("cope"),
    case(
        "cope",
        "attn",
        "npos-3",
        "A table of 3 rows: most counts end at the last.",
        "bias.bucket.clamp",
        **SMALL,
        options={"npos": 3},
    ),
    case(
        "cope",
        "attn",
        "divided-qk",
        "The term is not divided by sqrt(D), up to the output.",
        "option",
        **SMALL,
        options={"divided": "qk"},
    ),
    case(
        "cope",
        "op",
        "divided",
        "Whether the term is divided by sqrt(D).",
        "ambiguous",
        **SMALL,
        variants=(
            reading("both", "with q k: the code's default"),
            reading("qk", "q k alone: the paper's listing, --cope-nodiv", divided="qk"),
        ),
    ),
    *together(
        "cope",
        {"npos": 3, "gates": "key", "divided": "qk"},
        again={"op": (2, 4), "attn": (1, 3)},
        more=({"npos": 3}, {"npos": 3, "gates": "key"}, {"npos": 3, "divided": "qk"}),
    ),
]
FULL = ("*/together-*-groups", "attn/together-1-*")

WHOLES = [in_layers("cope", across_layers="shared")]

TRAPS = {
    "cope.interpolation": trap(
        "MISSING_STEP",
        "the row is rounded, or its neighbours are exchanged",
        "counts lose their fractions, and gates get no gradient",
        "(1 - t) e[n] + t e[n+1] for a count n + t",
    ),
    "cope.count": trap(
        "OFF_BY_ONE",
        "the count leaves out the key, or includes the future",
        "every key is one place off",
        "sum the gates from the key to the query, both included, and limit the sum to npos - 1",
    ),
    "cope.scale": trap(
        "SCALING",
        "q e is not divided as it should be",
        "positions count sqrt(D) times too much or too little",
        "divide q e by sqrt(D) if `divided` is both, and not if it is qk",
    ),
}

MEANS = {
    "options": {"divided": "cope.scale"},
    "functions": {
        "interpolate": "cope.interpolation",
        "interpolate.s": "cope.count",
        "interpolate.scale": "cope.scale",
        "scores": "cope.count",
        "logistic": "cope.count",
        "counted": "cope.count",
        "counted.t": "cope.interpolation",
        "counted.low": "cope.interpolation",
    },
}

TOGETHER = [{"npos": 3}]

REFUSED = [
    *refusals("cope"),
    refused("cope", "attn", "npos-0", "setting", "A table without rows.", options={"npos": 0}),
]

LAWS = [*laws("cope")]


# wrong implementations

INTERPOLATE = cope.interpolate


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
        interpolated(
            lambda y, z, s, at, scale: read(z, 2 * np.floor(count(s, at)[1]) + 1 - count(s, at)[1], scale)
        ),
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
        interpolated(
            lambda y, z, s, at, scale: read(z, activation.logistic(s)[..., ::-1].cumsum(-1)[..., ::-1], scale)
        ),
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
    Mutant(
        "cope-twice",
        "cope.scale",
        "q e is divided by D",
        ("cope",),
        interpolated(lambda y, z, s, at, scale: y * 8**-0.5),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-cope-negated",
        "cope.scale",
        "q e is doubled",
        ("cope",),
        inputs(**{"param.table": lambda e: 2 * e}),
    )
]
