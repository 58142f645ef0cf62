"""Golden cases of shaw."""

from math import sqrt

import numpy as np
from page import softmax

from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, usual
from recipes.traps import trap

SPEC = """
(arXiv:1803.02155). Scores `q (k_j + key[r])/sqrt(D)`, output sum of p (v_j + value[r]), r = clip(j - i,
-`max_distance`, max_distance) + max_distance; param.key, param.value [2 max_distance + 1,D], shared by the
heads. Row 0 is the far past. `tables` "key": no value[r]; "key_query": nor it, and k_j key[r]/sqrt(D) is
added to the scores. `across_heads` "own": param.key, param.value [H,...], one for each query head.
"""


def program(p, q, k, x, i, see, o, f, v):
    H, _, D = q.shape
    m = o["max_distance"]
    r = np.clip(-np.subtract.outer(i, i), -m, m).astype(int) + m
    rows = lambda name: p[name][:, r] if o["across_heads"] == "own" else np.broadcast_to(p[name][r], (H, *r.shape, D))
    s = np.einsum("htd,htsd->hts", q, k[:, None] + rows("key"))
    if o["tables"] == "key_query":
        s = s + np.einsum("hsd,htsd->hts", k, rows("key"))
    w = softmax(s / sqrt(D), see)
    return np.einsum("hts,htsd->htd", w, v[:, None] + (rows("value") if o["tables"] == "both" else 0))


CLIPPED = {"B": 1, "T": 5, "D": 4, "options": {"max_distance": 2}}
BESIDE = {"max_distance": {"B": 1}, "tables": {"B": 1, "T": 5, "D": 4}, "across_heads": CLIPPED}

TRAINED = "gpt2"
CACHED = ("gpt2", "cache.position_restarts")
MORE_FLAGS = {"block-gpt2": ("block.gelu_exact",), "positions": ("cache.position_restarts",)}

RECIPES = [
    *usual("shaw", B=1, flags=basic("max_distance", "across_heads") | {"tables": ("shaw.key",)}, beside=BESIDE),
    *attention("shaw", {"max_distance": 3}),
    case(
        "shaw",
        "attn",
        "clip-2",
        "Two-sided, clipped at 2: both ends of both tables are used.",
        "bias.bucket.clamp",
        "bias.sign",
        **SMALL,
        causal=False,
        options={"max_distance": 2},
    ),
]

TRAPS = {
    "shaw.rows": trap(
        "SIGN",
        "another row for a distance",
        "past for future",
        "clip(j - i, -m, m) + m: row 0 is the far past; code with i - j has its tables upside down",
    ),
    "shaw.value": trap(
        "MISSING_STEP",
        "vectors of values missing or others",
        "half of the encoding is lost",
        "sum over keys of p (v + value[r]), r as for the keys",
    ),
    "shaw.key": trap(
        "MISSING_STEP",
        "vectors of keys missing or scaled otherwise",
        "half of the encoding is lost",
        "q (k + key[r]) / sqrt(D): both are divided",
    ),
    "shaw.clip": trap(
        "RANGE",
        "distances clipped elsewhere",
        "far rows are never used, or rows beside the table are read",
        "clip to -max_distance .. max_distance, both included",
    ),
}

REFUSED = [
    *refusals("shaw"),
    refused("shaw", "attn", "max-distance-0", "setting", "One row for every distance.", options={"max_distance": 0}),
]

LAWS = [
    *laws("shaw"),
]
