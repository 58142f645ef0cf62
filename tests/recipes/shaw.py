"""Golden cases of shaw."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import asked, inputs, patched, told, with_case
from page import softmax

from peref.encodings.attend import shaw
from peref.ops.shape import swap
from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:1803.02155). Scores `q (k_j + key[r])/sqrt(D)`, output the sum of p (v_j + value[r]), r = clip(j - i,
-`max_distance`, max_distance) + max_distance. param.key and param.value, [2 max_distance + 1,D], are shared
by the heads. Row 0 is the far past. `tables` "key": no value[r]; "key_query": no value[r] either, and k_j
key[r]/sqrt(D) is added to the scores. `across_heads` "own": param.key, param.value [H,...], one for each
query head.
"""


def program(p, q, k, x, i, see, o, f, v):
    H, _, D = q.shape
    m = o["max_distance"]
    r = np.clip(-np.subtract.outer(i, i), -m, m).astype(int) + m
    rows = lambda name: (
        p[name][:, r] if o["across_heads"] == "own" else np.broadcast_to(p[name][r], (H, *r.shape, D))
    )
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
    *usual(
        "shaw", B=1, flags=basic("max_distance", "across_heads") | {"tables": ("shaw.key",)}, beside=BESIDE
    ),
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
    *together(
        "shaw",
        {"max_distance": 2, "tables": "key", "across_heads": "own"},
        {"max_distance": 2, "tables": "key_query", "across_heads": "own"},
        {"max_distance": 17, "tables": "key"},
        {"max_distance": 17, "tables": "key_query"},
        again={"attn": (3, 4, 5)},
        more=({"max_distance": 4},),
    ),
]
FULL = ("*/together-4-*", "*/together-[1235]*", "attn/max-distance-32", "attn/spread")

TRAPS = {
    "shaw.rows": trap(
        "SIGN",
        "a distance reads the wrong row",
        "past and future are exchanged",
        "clip(j - i, -m, m) + m: row 0 is the far past; code with i - j has its tables upside down",
    ),
    "shaw.value": trap(
        "MISSING_STEP",
        "the vectors of the values are missing or wrong",
        "half of the encoding is lost",
        "sum p (v + value[r]) over the keys, with r as for the keys",
    ),
    "shaw.key": trap(
        "MISSING_STEP",
        "the vectors of the keys are missing, or scaled differently",
        "half of the encoding is lost",
        "q (k + key[r]) / sqrt(D): both terms are divided",
    ),
    "shaw.clip": trap(
        "RANGE",
        "distances are clipped at another bound",
        "the far rows are never used, or reads go beyond the table",
        "clip to -max_distance .. max_distance, both included",
    ),
}

MEANS = {
    "options": {"max_distance": "shaw.clip"},
    "parameters": {"key": "shaw.key", "value": "shaw.value"},
    "functions": {
        "attend.d": "shaw.rows",
        "attend.max_distance": "shaw.clip",
        "gather": "shaw.key",
        "gather.index": "shaw.rows",
        "scatter": "shaw.value",
        "scatter.index": "shaw.rows",
        "attend": "shaw.clip",
        "attend.term": "shaw.key",
    },
}

REFUSED = [
    *refusals("shaw"),
    refused(
        "shaw",
        "attn",
        "max-distance-0",
        "setting",
        "One row for every distance.",
        options={"max_distance": 0},
    ),
]

LAWS = [*laws("shaw")]


# wrong implementations

SHAW = ("shaw",)


def rows(change):
    """The row of a distance is change(r, rows)."""

    def run(case, a):
        count = a["param.key"].shape[-2]
        gather = asked(shaw.gather, lambda x, r: (x, np.clip(change(r, count), 0, count - 1)))
        scatter = asked(shaw.scatter, lambda x, r: (x, np.clip(change(r, count), 0, count - 1)))
        return patched("encodings.attend.shaw", gather=gather, scatter=scatter)(case, a)

    return run


MUTANTS = [
    Mutant(
        "shaw-causal",
        "mask.causal",
        "your mask looks at the past alone",
        ("shaw",),
        with_case(lambda c: not c.causal, causal=True),
    ),
    Mutant("shaw-future", "shaw.rows", "your distances are i - j", SHAW, rows(lambda r, n: n - 1 - r)),
    Mutant("shaw-next", "shaw.rows", "you read the row beside", SHAW, rows(lambda r, n: r + 1)),
    Mutant(
        "shaw-mirrored",
        "bias.sign",
        "the future has the rows of the past",
        SHAW,
        rows(lambda r, n: np.minimum(r, n - 1 - r)),
    ),
    Mutant(
        "shaw-other-key",
        "shaw.key",
        "the key of the query meets the vector, not the key that it looks at",
        SHAW,
        patched(
            "encodings.attend.shaw",
            lambda case: case.config.pe[0][1]["tables"] == "key_query",
            swap=lambda x, axes: x if axes == (2, 3) else swap(x, axes=axes),
        ),
    ),
    Mutant(
        "shaw-clips-earlier",
        "bias.bucket.clamp",
        "you clip one distance earlier",
        SHAW,
        rows(lambda r, n: np.clip(r, 1, n - 2)),
    ),
    Mutant(
        "shaw-before", "shaw.rows", "you read the row before", SHAW, rows(lambda r, n: r - 1), held_out=True
    ),
    Mutant(
        "shaw-no-value",
        "shaw.value",
        "the vectors of the values are missing",
        SHAW,
        inputs(**{"param.value": lambda x: 0 * x}),
    ),
    Mutant(
        "shaw-values-of-keys",
        "shaw.value",
        "keys and values share their vectors",
        SHAW,
        lambda case, a: inputs(**{"param.value": lambda x: a["param.key"]})(case, a),
    ),
    Mutant(
        "shaw-value-twice",
        "shaw.value",
        "the vectors of the values count twice",
        SHAW,
        inputs(**{"param.value": lambda x: 2 * x}),
        held_out=True,
    ),
    Mutant(
        "shaw-no-key",
        "shaw.key",
        "the vectors of the keys are missing",
        SHAW,
        inputs(**{"param.key": lambda x: 0 * x}),
    ),
    Mutant(
        "shaw-unscaled",
        "shaw.key",
        "the term of the vectors is not divided by sqrt(D)",
        SHAW,
        patched("encodings.attend.shaw", gather=told(shaw.gather, scale=1.0)),
    ),
    Mutant(
        "shaw-doubled",
        "shaw.key",
        "the term of the vectors counts twice",
        SHAW,
        patched("encodings.attend.shaw", gather=told(shaw.gather, scale=lambda s: 2 * s)),
        held_out=True,
    ),
    Mutant(
        "shaw-clips-early",
        "shaw.clip",
        "you clip distances one too early",
        SHAW,
        rows(lambda r, n: np.clip(r, n // 2 - 1, n // 2 + 1)),
    ),
    Mutant(
        "shaw-clips",
        "shaw.clip",
        "you clip distances too early",
        SHAW,
        rows(lambda r, n: np.clip(r, n // 2 - 2, n // 2 + 2)),
        held_out=True,
    ),
    Mutant(
        "shaw-logits-unscaled",
        "attn.scale",
        "your logits are not scaled",
        SHAW,
        patched(
            "encodings.attend.shaw", scores=told(shaw.scores, scale=1.0), gather=told(shaw.gather, scale=1.0)
        ),
    ),
]

LATER = [
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
]
