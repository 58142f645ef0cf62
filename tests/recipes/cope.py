"""Golden cases of cope."""

from math import floor, sqrt

import numpy as np
from page import sigmoid

from recipes.families import SMALL, attention, basic, case, laws, reading, refusals, refused, usual
from recipes.traps import trap

SPEC = """
(arXiv:2405.18719). `q_i e[p] / sqrt(D)`, p = the sum over keys l from j to i that are seen of sigmoid(q_i
k_l / sqrt(D)), at most `npos` - 1 (npos null: L + 1), e = param.table [npos,D], between rows straight: n =
floor(p), t = p - n, (1 - t) e[n] + t e[n+1]; where p is whole it is e[n] and the gates have no gradient of
it. `divided` "qk": q e is not divided. `gates` "key": k_l in the sigmoid is W x_l, W = param.k.weight [H
D,C], of each query head.
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
    *usual("cope", B=1, T=5, flags=basic("across_layers"), beside={"gates": {"B": 1, "T": 5, "C": 5, "D": 4, "options": {"npos": 6}}}),
    *attention("cope"),
    case("cope", "attn", "npos-3", "A table of 3 rows: most counts end at the last.", "bias.bucket.clamp", **SMALL, options={"npos": 3}),
    case("cope", "attn", "divided-qk", "The term is not divided by sqrt(D), up to the output.", "option", **SMALL, options={"divided": "qk"}),
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
]

TRAPS = {
    "cope.interpolation": trap(
        "MISSING_STEP",
        "a row that is rounded, or neighbours exchanged",
        "counts lose their fractions, and gates have no gradient",
        "(1 - t) e[n] + t e[n+1] for a count n + t",
    ),
    "cope.count": trap(
        "OFF_BY_ONE",
        "a count without the key, or of the future",
        "every key is one place off",
        "sum the gates from the key to the query, both included, and cut at npos - 1",
    ),
    "cope.scale": trap(
        "SCALING",
        "q e divided otherwise",
        "positions count sqrt(D) times too much or too little",
        "divide q e by sqrt(D) with `divided` both, not with qk",
    ),
}

REFUSED = [
    *refusals("cope"),
    refused("cope", "attn", "npos-0", "setting", "A table without rows.", options={"npos": 0}),
]

LAWS = [
    *laws("cope"),
]
