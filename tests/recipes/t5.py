"""Golden cases of t5."""

import math

import numpy as np
from exact import EDGE, plain
from mpmath import mp
from mutants import Mutant
from mutants.anywhere import scaled
from mutants.ways import float16, patched, with_options

from peref.encodings.bias import t5
from recipes.families import SMALL, attention, case, distances, law, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:1910.10683). param.table[bucket(d), h], [`buckets`,H]. The softmax scale is 1, with `divided` "qk" it
is D**-0.5. Let m = `buckets` (two-sided: half of them) and e = m/2. The first e buckets hold one distance
each. A distance n >= e is in bucket e + k, where k is the largest number below m - e with `max_distance^k
e^(m-e) <= n^(m-e) e^k`, in integers. Causal: the future counts as distance 0. Two-sided: d < 0 is m buckets
further on.
"""


def exact(p, d, facts, o):
    m = o["buckets"] if facts["causal"] else o["buckets"] // 2
    e, last = m // 2, mp.mpf(o["max_distance"])

    def bucket(x):
        n = max(x, 0) if facts["causal"] else abs(x)
        k = (
            int(n)
            if n < e
            else min(m - 1, e + int(mp.floor((m - e) * mp.log(n / e) / mp.log(last / e) + EDGE)))
        )
        return k if facts["causal"] or x >= 0 else k + m

    return plain([[mp.mpf(p["table"][bucket(x)][h]) for x in d] for h in range(facts["H"])])


def program(p, d, o, f):
    m, far = o["buckets"] if f["causal"] else o["buckets"] // 2, o["max_distance"]
    e = m // 2

    def bucket(d):
        n = max(d, 0) if f["causal"] else abs(d)
        k = max((k for k in range(m - e) if far**k * e ** (m - e) <= n ** (m - e) * e**k), default=0)
        return (n if n < e else e + k) + (m if d < 0 and not f["causal"] else 0)

    return p["table"][[bucket(int(one)) for one in d]].T


def softmax_scale(o, D):
    return 1.0 if o["divided"] == "not" else D**-0.5


BORDERS = (0, 76, 112, 113)
FEW_SEEN = {"B": 1, "H": 4, "G": 2, "D": 4, "T": 4, "window": 3}
FEW_HEADS = {"B": 1, "H": 2, "G": 1}

LOGITS = "gpt2"
TRAINED = "llama"
CACHED = ("llama", "cache.position_restarts")
MORE_FLAGS = {"model": ("model.shared_gradient",), "chunks": ("t5.bias.dropped_on_decode",)}
NOT_FLAGS = ("cache.bias_dropped",)  # it has a flag of its own for that

RECIPES = [
    *usual(
        "t5",
        B=1,
        without=("divided",),
        beside={name: FEW_HEADS | {"T": 300, "L": 300} for name in ("buckets", "max_distance")},
    ),
    *distances("t5", far_flags=("bias.bucket.border", "bias.bucket.clamp"), sides=("bias.transposed",)),
    *attention("t5"),
    case(
        "t5",
        "table",
        "far-two-sided",
        "Two-sided, up to 1000 on either side: the last buckets serve them.",
        "bias.bucket.clamp",
        **FEW_HEADS,
        T=3,
        positions=(0, 127, 1000),
        causal=False,
    ),
    case(
        "t5",
        "table",
        "beyond",
        "Distances 127, 128, 1000 and 1048575: the last bucket serves them all.",
        "bias.bucket.clamp",
        **FEW_HEADS,
        T=7,
        positions=(0, 112, 113, 127, 128, 1000, 1048575),
    ),
    case(
        "t5",
        "table",
        "32-100",
        "Distance 40 is in bucket 24: a logarithm to base 2 in float32 says 23.",
        "bias.bucket.border",
        **FEW_HEADS,
        T=101,
        L=101,
        options={"max_distance": 100},
    ),
    case(
        "t5",
        "table",
        "128-200",
        "Distance 80, two-sided, is in bucket 48: a logarithm to base 2 in float32 is wrong.",
        "bias.bucket.border",
        **FEW_HEADS,
        T=82,
        L=82,
        causal=False,
        options={"buckets": 128, "max_distance": 200},
    ),
    case(
        "t5",
        "table",
        "64-256",
        "Distance 110 is in bucket 51: in float16 it is 50.",
        "bias.bucket.border",
        **FEW_HEADS,
        T=112,
        L=112,
        options={"buckets": 64, "max_distance": 256},
    ),
    case(
        "t5",
        "table",
        "32-512",
        "Distance 267 is in bucket 28: in float16 it is 29.",
        "bias.bucket.border",
        **FEW_HEADS,
        T=8,
        L=8,
        positions=(0, 1, 3, 145, 266, 267, 268, 412),
        options={"max_distance": 512},
    ),
    case(
        "t5",
        "attn",
        "wide",
        "Nothing divides q k: 16 channels and the scale is 1.",
        "attn.scale",
        **SMALL,
        D=16,
    ),
    case(
        "t5",
        "attn",
        "divided",
        "q k is divided by the root of D, the bias is not.",
        "option",
        **SMALL,
        options={"divided": "qk"},
    ),
    *(
        case(
            "t5",
            level,
            "borders",
            "Distances that fall into other buckets where max_distance is one more or one less.",
            "bias.bucket.border",
            **SMALL | {"T": len(BORDERS)},
            positions=BORDERS,
        )
        for level in ("op", "attn")
    ),
    *(
        case(
            "t5",
            level,
            slug,
            "Distances that fall into other buckets where max_distance is one more or one less.",
            "bias.bucket.border",
            **FEW_SEEN,
            positions=(0, 23, 24, 47),
            options={"buckets": 34, "max_distance": 40} | given,
        )
        for level, slug, given in (
            ("op", "borders-few", {}),
            ("attn", "borders-few", {}),
            ("attn", "borders-qk", {"divided": "qk"}),
        )
    ),
    *together("t5", {"buckets": 8, "max_distance": 7, "divided": "qk"}, {"buckets": 64, "max_distance": 256}),
]
FULL = ("*/borders-few", "attn/borders-qk", "attn/together-1-groups")

TRAPS = {
    "bias.bucket.border": trap(
        "OFF_BY_ONE",
        "a distance is in the bucket next to its own",
        "the error looks small: one row of a table for another",
        "compute the buckets in integers, or in float64",
        "huggingface/candle#727",
        "lucidrains/x-transformers#10",
    ),
    "bias.bucket.clamp": trap(
        "RANGE",
        "large distances point beyond the table",
        "reads go beyond the end of the table",
        "the last bucket serves all distances from max_distance on",
        "huggingface/candle#1312",
    ),
    "t5.bias.dropped_on_decode": trap(
        "CACHE",
        "there is no bias once there is a cache",
        "right in the prefill, wrong from the first generated token on",
        "with a cache of S keys, add the last rows of the bias over all S, not those of the new tokens alone",
        "NVIDIA/TensorRT-LLM#13870",
    ),
    "model.shared_gradient": trap(
        "MISSING_STEP",
        "a table that layers share has the gradient of only one of them",
        "the table learns too slowly",
        "add up the gradients of all layers that read the table",
    ),
    "law.buckets": trap(
        "LAW",
        "the buckets were computed with a rounded logarithm",
        "a distance at a border has the bias of its neighbour",
        "compare powers of integers instead of logarithms",
        "huggingface/candle#727",
        "mindspore-lab/mindone#670",
    ),
    "t5.bidirectional": trap(
        "OPTION",
        "the buckets are divided differently between past and future",
        "past and future share rows, or half of the table is never read",
        "two-sided: half of the buckets for each side, those of d = i - j < 0 (the future) after the "
        "others; causal: all for the past, the future counts as 0",
    ),
}

MEANS = {
    "options": {"max_distance": "bias.bucket.clamp", "buckets": "t5.bidirectional"},
    "functions": {
        "bucket": "t5.bidirectional",
        "edges": "bias.bucket.border",
        "bucket.far": "bias.bucket.border",
        "bucket.near": "bias.bucket.border",
    },
}

REFUSED = [
    *refusals("t5"),
    refused(
        "t5",
        "op",
        "odd-buckets",
        "setting",
        "Two-sided, half of the buckets are for the future: 31 have no half.",
        options={"buckets": 31},
        causal=False,
    ),
    refused("t5", "op", "buckets-0", "setting", "No bucket for any distance.", options={"buckets": 0}),
    refused(
        "t5",
        "op",
        "max-distance",
        "setting",
        "16 exact buckets leave nothing between 16 and a last distance of 8.",
        options={"max_distance": 8},
    ),
]

LAWS = [
    *laws("t5"),
    law("t5", "attn", "softmax", "A number added to a whole row of scores changes nothing."),
    law("t5", "table", "buckets", "32 buckets, 128 the last distance: the usual ones.", T=300, L=300),
    law(
        "t5",
        "table",
        "buckets",
        "Two-sided: 16 for each side.",
        slug="buckets-two-sided",
        T=300,
        L=300,
        causal=False,
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 40 is in 24: a logarithm to base 2 in float32 says 23.",
        slug="buckets-32-100",
        T=150,
        options={"max_distance": 100},
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 80, two-sided: a logarithm to base 2 in float32 is wrong.",
        slug="buckets-128-200",
        T=250,
        causal=False,
        options={"buckets": 128, "max_distance": 200},
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 110 is in 51: in float16 it is 50.",
        slug="buckets-64-256",
        T=300,
        options={"buckets": 64, "max_distance": 256},
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 267 is in 28: in float16 it is 29.",
        slug="buckets-32-512",
        T=600,
        options={"max_distance": 512},
    ),
]


# wrong implementations


def by_log(round_, most=None):
    def change(right, d, m, causal, max_distance):
        e, n = m // 2, np.maximum(d, 0) if causal else abs(d)
        far = e + round_(np.log(np.maximum(n, 1) / e) / math.log((most or max_distance) / e) * (m - e))
        row = np.where(n < e, n, np.minimum(far, m - 1)).astype(int)
        return row if causal else row + np.where(d < 0, m, 0)

    return bucketed(change)


BUCKET = t5.bucket  # as it is before it is replaced


def bucketed(change):
    """Buckets are change(bucket, d, m, two-sided)."""

    def wrong(d, *, causal, buckets, max_distance, place=None):
        return np.clip(
            change(
                BUCKET(d, causal=causal, buckets=buckets, max_distance=max_distance),
                d,
                buckets if causal else buckets // 2,
                causal,
                max_distance,
            ),
            0,
            buckets - 1,
        )

    return patched("encodings.bias.t5", bucket=wrong)


MUTANTS = [
    Mutant(
        "scaled", "attn.scale", "your logits are scaled by D**-0.5", ("t5",), scaled(lambda s, D, C: D**-0.5)
    ),
    Mutant(
        "bucket-rounded",
        "bias.bucket.border",
        "your logarithm is rounded, not cut off",
        ("t5",),
        by_log(np.rint),
        ("huggingface/candle#727",),
    ),
    Mutant("bucket-up", "bias.bucket.border", "your logarithm is rounded up", ("t5",), by_log(np.ceil)),
    Mutant(
        "bucket-half-float",
        "bias.bucket.border",
        "your logarithm is float16",
        ("t5",),
        by_log(lambda x: np.floor(float16(x))),
        ("mindone#670",),
    ),
    Mutant(
        "bucket-next",
        "bias.bucket.border",
        "your exact buckets end one too early",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: b + ((b % m) == m // 2 - 1)),
        held_out=True,
    ),
    Mutant(
        "bucket-wraps",
        "bias.bucket.clamp",
        "far distances wrap round",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(abs(d) >= most, b - m // 2, b)),
        ("huggingface/candle#1312",),
    ),
    Mutant(
        "bucket-short",
        "bias.bucket.clamp",
        "your last distance is 64",
        ("t5",),
        lambda case, a: (
            with_options(max_distance=64)(case, a) if case.config.pe[0][1]["max_distance"] > 64 else None
        ),
    ),
    Mutant(
        "bucket-not-last",
        "bias.bucket.clamp",
        "the last bucket is never used",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(b % m == m - 1, b - 1, b)),
        held_out=True,
    ),
    Mutant(
        "bucket-one-sided",
        "t5.bidirectional",
        "two-sided, all buckets are for one side",
        ("t5",),
        lambda case, a: None if case.causal else bucketed(lambda b, d, m, causal, most: b % m)(case, a),
        ("gluon-nlp#1470",),
    ),
    Mutant(
        "bucket-halved",
        "t5.bidirectional",
        "causal, half of the buckets are kept for the future",
        ("t5",),
        lambda case, a: (
            patched("encodings.bias.t5", bucket=lambda d, *, causal, **o: BUCKET(d, causal=False, **o))(
                case, a
            )
            if case.causal
            else None
        ),
    ),
    Mutant(
        "bucket-other-side",
        "t5.bidirectional",
        "the past has the buckets of the future",
        ("t5",),
        lambda case, a: (
            None if case.causal else bucketed(lambda b, d, m, causal, most: (b + m) % (2 * m))(case, a)
        ),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-buckets-end",
        "bias.bucket.clamp",
        "distances beyond 100 are in bucket 0",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(abs(d) > 100, 0, b)),
    )
]
