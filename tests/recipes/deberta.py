"""Golden cases of deberta."""

from math import ceil, log

import numpy as np
from mutants import Mutant
from mutants.ways import expected, inputs, patched, told

from peref.encodings.score.deberta import distance_rows, gather
from recipes.families import PACKED, SPREAD, away, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2006.03654). `(q_i K[r] + k_j Q[r]) / sqrt(3D)` is added to q k/sqrt(3D). K = param.table
param.key.weight', Q = param.table param.query.weight' + param.query.bias, param.table [2 `buckets`,C]; rows
h D to (h+1) D - 1 of the weights and of the bias are of head h. With m = `buckets`/2 and n = |i - j|, n
stays where n <= m and else becomes m + ceil((m - 1) ln(n/m) / ln((`max_distance` - 1)/m)); r is n with the
sign of i - j, clipped to -buckets .. buckets - 1, plus buckets. No edge may move by rounding: what is
rounded up within 1e-9 of a whole number is that number.
"""


def row_of(d, buckets, most):
    n, m = abs(d), buckets // 2
    if n > m:
        n = m + ceil((m - 1) * log(n / m) / log((most - 1) / m) - 1e-9)
    return min(max(n if d > 0 else -n, -buckets), buckets - 1) + buckets


def program(p, q, k, x, i, see, o, f):
    H, D = f["H"], f["D"]
    r = np.vectorize(lambda d: row_of(d, o["buckets"], o["max_distance"]))(np.subtract.outer(i, i))
    K = (p["table"] @ p["key.weight"].T).reshape(-1, H, D)[r]
    Q = (p["table"] @ p["query.weight"].T + p["query.bias"]).reshape(-1, H, D)[r]
    return (np.einsum("htd,tshd->hts", q, K) + np.einsum("hsd,tshd->hts", k, Q)) / np.sqrt(3 * D)


def softmax_scale(o, D):
    return (3 * D) ** -0.5


CORE_ONLY = True
FEW = {"buckets": 4, "max_distance": 7}
SMALL = {"B": 1, "T": 5, "D": 2, "C": 3, "H": 2, "G": 1}
# distances on both sides of max_distance - 1, and in every bucket
BORDERS = (0, 42, 84, 129)
FAR = (0, 1, 3, 7, 20, 26, 46)
# both options show at once: 34 rather than 32 buckets, and distances beyond the buckets of one
WIDE = {"buckets": 34, "max_distance": 24}
APART = ((-2, 33, 3, 9, 1), (4, -1, 37, 0, 0))

RECIPES = [
    *usual("deberta", without=("buckets", "max_distance"), **SMALL),
    case(
        "deberta",
        "attn",
        "packed",
        "Two packed documents and padding: nothing crosses, positions restart, a row that sees nothing is 0.",
        "mask.padding",
        "mask.documents",
        **SMALL | {"B": 2, "T": 7, "H": 4, "G": 2},
        seg=PACKED,
        options=FEW,
    ),
    case(
        "deberta",
        "attn",
        "spread",
        "Positions repeat and leave gaps: they are data and not a count.",
        "position.counted",
        **SMALL | {"T": 7},
        positions=SPREAD,
        options=FEW,
    ),
    case(
        "deberta",
        "attn",
        "heads-alone",
        "Every query head has a key-value head of its own.",
        "gqa.order",
        **SMALL | {"H": 3, "G": 3},
        options=FEW,
    ),
    case(
        "deberta",
        "attn",
        "two-sided-window-3",
        "A query sees 2 keys on each side, and itself.",
        "mask.window",
        "mask.causal",
        **SMALL,
        causal=False,
        window=3,
        options=FEW,
    ),
    case(
        "deberta",
        "op",
        "buckets",
        "Distances in buckets of one, in wider ones and beyond the last, on both sides.",
        "deberta.bucket",
        "deberta.rows",
        **SMALL | {"T": 7, "H": 4, "G": 2},
        positions=FAR,
        causal=False,
        options={"buckets": 8, "max_distance": 20},
    ),
    case(
        "deberta",
        "attn",
        "borders",
        "Distances that fall into other buckets where max_distance is one more or one less.",
        "deberta.bucket",
        **SMALL | {"T": len(BORDERS)},
        positions=BORDERS,
    ),
    *(
        case(
            "deberta",
            level,
            "borders-apart",
            "Distances of both signs whose bucket max_distance decides, with padding and groups of heads.",
            "deberta.bucket",
            **dict(away("deberta", level))["-groups"] | {"D": 2, "C": 3, "positions": ((9, 20, -1, 19),)},
            options=WIDE,
        )
        for level in ("op", "attn")
    ),
    *together("deberta", WIDE, again={"op": (), "attn": ()}, D=2, C=3, positions=APART),
]

TRAPS = {
    "deberta.bucket": trap(
        "OPTION",
        "distances fall into other buckets",
        "far distances read the rows of others",
        "each its own up to m = buckets/2, then m + ceil((m - 1) ln(n/m) / ln((max_distance - 1)/m))",
    ),
    "deberta.rows": trap(
        "SIGN",
        "a distance reads the wrong row of the table",
        "past and future are exchanged, or the farthest rows are never used",
        "clip(bucket with the sign of i - j, -buckets, buckets - 1) + buckets, for K and for Q alike",
    ),
    "deberta.terms": trap(
        "MISSING_STEP",
        "one of the two terms of distance is missing, or K and Q are exchanged",
        "half of the encoding is lost",
        "queries meet K = table key.weight', keys meet Q = table query.weight' + query.bias",
    ),
    "deberta.scale": trap(
        "SCALING",
        "a term is divided differently",
        "the terms are out of proportion",
        "all three terms, q k too, are divided by sqrt(3 D)",
    ),
}

MEANS = {
    "options": {"buckets": "deberta.bucket", "max_distance": "deberta.bucket"},
    "parameters": {
        "table": "deberta.rows",
        "key.weight": "deberta.terms",
        "query.weight": "deberta.terms",
        "query.bias": "deberta.terms",
    },
    "functions": {
        "bucket_ends": "deberta.bucket",
        "distance_rows": "deberta.rows",
        "gather": "deberta.terms",
        "gather.scale": "deberta.scale",
    },
}

REFUSED = [
    *refusals("deberta"),
    refused("deberta", "op", "buckets-5", "setting", "Sides of 2.5 buckets.", options={"buckets": 5}),
    refused(
        "deberta",
        "op",
        "max-distance-2",
        "setting",
        "The last distance is not beyond the buckets of one.",
        options=FEW | {"max_distance": 3},
    ),
]

LAWS = [*laws("deberta")]


# wrong implementations

DEBERTA = ("deberta",)
changed = lambda **changes: patched("encodings.score.deberta", **changes)


def rows(change):
    """change(d, buckets, max_distance) -> the rows."""
    return changed(
        distance_rows=lambda d, buckets, most, place=None: np.asarray(change(d, buckets, most)).clip(
            0, 2 * buckets - 1
        )
    )


def rounded_down(d, buckets, most):
    n, m = abs(d), buckets // 2
    far = m + np.floor((m - 1) * np.log(np.maximum(n, 1) / m) / np.log((most - 1) / m)).astype(int)
    return np.sign(d) * np.where(n <= m, n, far) + buckets


def exchanged(case, a):
    weights = {"param.key.weight": a["param.query.weight"], "param.query.weight": a["param.key.weight"]}
    return expected(case, a | weights)


MUTANTS = [
    Mutant("deberta-floor", "deberta.bucket", "your buckets are rounded down", DEBERTA, rows(rounded_down)),
    Mutant(
        "deberta-end",
        "deberta.bucket",
        "your last bucket ends at max_distance",
        DEBERTA,
        rows(lambda d, buckets, most: distance_rows(d, buckets, most + 1)),
    ),
    Mutant(
        "deberta-clipped",
        "deberta.bucket",
        "you have no wider buckets",
        DEBERTA,
        rows(lambda d, buckets, most: d + buckets),
        held_out=True,
    ),
    Mutant(
        "deberta-future",
        "deberta.rows",
        "your distances are j - i",
        DEBERTA,
        rows(lambda d, buckets, most: distance_rows(-d, buckets, most)),
    ),
    Mutant(
        "deberta-symmetric",
        "deberta.rows",
        "both sides end at buckets - 1",
        DEBERTA,
        rows(lambda d, buckets, most: distance_rows(d, buckets, most).clip(1, None)),
    ),
    Mutant("deberta-exchanged", "deberta.terms", "K and Q are exchanged", DEBERTA, exchanged),
    Mutant(
        "deberta-c2p",
        "deberta.terms",
        "keys meet no distance",
        DEBERTA,
        inputs(**{"param.query.weight": lambda w: 0 * w, "param.query.bias": lambda b: 0 * b}),
    ),
    Mutant(
        "deberta-p2c",
        "deberta.terms",
        "queries meet no distance",
        DEBERTA,
        inputs(**{"param.key.weight": lambda w: 0 * w}),
        held_out=True,
    ),
    Mutant(
        "deberta-scale",
        "deberta.scale",
        "the terms of distance are divided by sqrt(D)",
        DEBERTA,
        changed(gather=told(gather, scale=lambda s: s * 3**0.5)),
    ),
]
