"""Golden cases of alibi."""

import numpy as np
from exact import plain
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, results
from page import slopes

from recipes.families import (
    LONG,
    SMALL,
    SMALLER,
    SPREAD,
    attention,
    case,
    distances,
    law,
    laws,
    reading,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import aligned, in_layers, packed, small

SPEC = """
(arXiv:2108.12409). `-m_h |d|`. If H is a power of two, `m_h = 2^(-max_bias h/H)`, h = 1 .. H. Otherwise the
slopes are those of the power of two below, then every second one (first, third, ...) of twice that many.
`slopes` "learned": m = exp(param.log_slopes[0]); "sides": row 0 for d >= 0, row 1 for d < 0. `directions`
"halves": the first H - H//2 heads see only d >= 0, the others only d <= 0, and each part has the slopes of
its own number of heads. Where a head does not see a cell that the mask leaves, the bias and the score are
minus infinity and the probability is 0; cells that the mask hides hold 0 as everywhere.
"""


def exact(p, d, facts, o):
    H, most = facts["H"], mp.mpf(o["max_bias"])

    def slopes(heads):
        below = 1
        while 2 * below <= heads:
            below *= 2
        of = lambda count, h: mp.power(2, -most * h / count)
        return [of(below, h) for h in range(1, below + 1)] + [
            of(2 * below, 2 * e + 1) for e in range(heads - below)
        ]

    ahead = H // 2 if o["directions"] == "halves" else 0
    m = slopes(H - ahead) + (slopes(ahead) if ahead else [])
    rows = []
    for h in range(H):
        sides = [mp.exp(mp.mpf(row[h])) for row in p["log_slopes"]] if "log_slopes" in p else [m[h]]
        hides = lambda x, h=h: bool(ahead) and (x < 0 if h < H - ahead else x > 0)
        rows.append([-mp.inf if hides(x) else -sides[-1 if x < 0 else 0] * abs(x) for x in d])
    return plain(rows)


def program(p, d, o, f):
    H = f["H"]
    first = H - H // 2 if o["directions"] == "halves" else H
    m = np.array(slopes(first, o["max_bias"]) + (slopes(H - first, o["max_bias"]) if first < H else []))[
        :, None
    ]
    if o["slopes"] != "fixed":
        m = np.exp(p["log_slopes"])
        m = np.where(d < 0, m[-1][:, None], m[0][:, None])
    b = -m * abs(d)
    h = np.arange(H)[:, None]
    return (
        np.where((h < first) & (d < 0) | (h >= first) & (d > 0), -np.inf, b)
        if o["directions"] == "halves"
        else b
    )


def uniform(case, a, outputs):
    """The paper's sentence, taken for any number of heads."""
    slopes = np.array([2.0 ** (-8 * h / case.H) for h in range(1, case.H + 1)])
    return {"bias": -slopes[:, None] * np.abs(a["distances"])}


def in_order(case, a, outputs):
    """The authors' slopes, the largest first."""
    rows = np.argsort(outputs["bias"][:, -1], kind="stable")
    return {"bias": outputs["bias"][rows]}


def by_key(first):
    """m_h (j - first(T)) in place of -m_h (i - j): each row has another number added to it."""

    def rewrite(case, a, outputs):
        slope = -outputs["bias"][:, -1:, :1] / (case.T - 1)
        return {"bias": np.where(case.at.see, slope * (np.arange(case.T) - first(case.T)), 0.0)}

    return rewrite


SHARP = {"cached": {"max_bias": 2.0}}  # slopes that are steep within nine tokens
TRAINED = "gpt2"
CACHED = ("gpt2", "cache.position_restarts")

RECIPES = [
    *usual("alibi", once={"directions": "heads"}, without=("across_layers",), T=5),
    *distances("alibi", heads="alibi.slopes.non_pow2"),
    *attention("alibi"),
    case(
        "alibi", "table", "heads-1", "One head: its slope is 1/256.", "alibi.slopes.exponent", T=5, H=1, G=1
    ),
    case(
        "alibi",
        "table",
        "heads-3",
        "3 heads: two slopes of two heads, then the first of four.",
        "alibi.slopes.non_pow2",
        T=5,
        H=3,
        G=1,
    ),
    case(
        "alibi",
        "table",
        "heads-8",
        "8 heads: 1/2 to 1/256, the first is the most local.",
        "basic",
        T=5,
        H=8,
        G=1,
    ),
    case(
        "alibi",
        "table",
        "heads-40",
        "40 heads: 32, then every other of 64.",
        "alibi.slopes.non_pow2",
        T=5,
        H=40,
        G=1,
    ),
    case("alibi", "table", "max-bias-4", "Half of the exponent.", "option", options={"max_bias": 4.0}),
    case(
        "alibi",
        "table",
        "sides",
        "A slope for the past and one for the future.",
        "bias.sign",
        T=7,
        H=3,
        G=1,
        causal=False,
        options={"slopes": "sides"},
    ),
    case(
        "alibi",
        "attn",
        "halves-two-sided",
        "Half of the heads see the past, the rest the future.",
        "mask.causal",
        **SMALLER | {"H": 4},
        causal=False,
        options={"directions": "halves"},
    ),
    case(
        "alibi",
        "table",
        "sparse",
        "Distances up to a million, where bfloat16 and float16 lose whole numbers.",
        "alibi.slopes.exponent",
        **SMALL,
        positions=LONG,
    ),
    case(
        "alibi",
        "attn",
        "heads-12",
        "12 query heads share 4 key-value heads, each with its own slope.",
        "alibi.slopes.non_pow2",
        **SMALLER | {"H": 12, "G": 4},
    ),
    case(
        "alibi",
        "attn",
        "offset-5",
        "Positions begin at 5: nothing changes.",
        "mask.causal",
        **SMALLER,
        positions=(5, 6, 7, 8, 9),
    ),
    case(
        "alibi",
        "attn",
        "rows",
        "Each sequence has positions of its own.",
        "position.batch",
        H=2,
        G=1,
        positions=(SPREAD, tuple(range(7))),
    ),
    case(
        "alibi",
        "table",
        "slopes-12",
        "The paper has slopes for powers of two; for 12 heads sources differ.",
        "ambiguous",
        T=9,
        H=12,
        G=1,
        variants=(
            reading(
                "authors",
                "8 slopes of 8 heads, then every other of 16, unsorted: the authors' code, BLOOM, MPT, "
                "ggml, FasterTransformer",
            ),
            reading(
                "paper",
                "2^(-8h/12): the sentence of the paper, taken for any number of heads (MLX until 2026)",
                rewrite=uniform,
            ),
            reading("sorted", "the slopes of the authors' code, the largest first", rewrite=in_order),
        ),
    ),
    case(
        "alibi",
        "op",
        "row-constant",
        "A number added to a whole row of the bias is not seen by softmax, and codes add different ones.",
        "ambiguous",
        H=3,
        G=1,
        variants=(
            reading("distance", "-m (i - j): the paper's formula"),
            reading(
                "key", "m j, the position of the key: the authors' code, BLOOM", rewrite=by_key(lambda T: 0)
            ),
            reading("last", "m (j - (T - 1)): MPT", rewrite=by_key(lambda T: T - 1)),
        ),
    ),
    case(
        "alibi",
        "op",
        "window-sides",
        "Positions go back within a window, and each side has slopes of its own.",
        "position.counted",
        **SMALLER,
        window=3,
        positions=(-2, 3, 3, 9, 1),
        options={"slopes": "sides"},
    ),
    *together(
        "alibi",
        {"max_bias": 4.0, "directions": "halves"},
        {"max_bias": 4.0},
        {"slopes": "sides", "directions": "halves"},
        {"slopes": "learned", "directions": "halves"},
        again={"attn": (1, 5, 6)},
        more=({"slopes": "sides"}, {"slopes": "learned"}),
        H=3,
    ),
]
FULL = ("*/together-[12]", "*/together-[13456]-*", "op/spread", "op/together-3")

WHOLES = [
    in_layers("alibi", slopes="learned", across_layers="shared"),
    *small("alibi"),
    packed("alibi"),
    *aligned("alibi", "128"),
]

TRAPS = {
    "alibi.slopes.non_pow2": trap(
        "RANGE",
        "the slopes for a number of heads that is not a power of two",
        "some heads see too far, others not far enough",
        "append every other slope of the next power of two, as the authors' code does",
        "ml-explore/mlx#343",
        "NVIDIA/TensorRT-LLM#1611",
    ),
    "alibi.slopes.exponent": trap(
        "SCALING",
        "the slopes are not 2^(-max_bias h/H) from h = 1",
        "heads see too near or too far",
        "the first slope is 2^(-max_bias/H), the last 2^(-max_bias)",
    ),
}

MEANS = {
    "options": {"max_bias": "alibi.slopes.exponent"},
    "heads": {"*": "alibi.slopes.exponent", "not a power of two": "alibi.slopes.non_pow2"},
    "functions": {"fixed": "alibi.slopes.exponent", "fixed.whole": "alibi.slopes.non_pow2"},
}

NEEDED = {"across_layers": {"slopes": "learned"}}

REFUSED = [*refusals("alibi"), refused("alibi", "op", "heads-0", "heads", "No heads.", facts={"H": 0})]

LAWS = [
    *laws("alibi"),
    law(
        "alibi",
        "attn",
        "softmax",
        "-m (i - j) and + m j differ by a number for each row: scores differ, probabilities must not.",
    ),
    law("alibi", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
    law("alibi", "table", "fading", "Both sides alike.", slug="fading-two-sided", H=6, causal=False),
]


# wrong implementations


def with_slopes(of):
    """Other slopes where they are fixed: of(H, max_bias)."""
    fixed = lambda case: case.config.pe[0][1]["slopes"] == "fixed"
    return patched("encodings.bias.alibi", only=fixed, fixed=of)


def spread(H, most, first=1):
    return [2.0 ** (-most * (h + first) / H) for h in range(H)]


def of_next(H, most=8.0):
    whole = 1 << (H.bit_length() - 1)
    return spread(whole, most) + spread(2 * whole, most)[: H - whole]


def of_smaller(H, most=8.0):
    whole = 1 << (H.bit_length() - 1)
    return [*spread(whole, most), *spread(whole, most)][:H]


MUTANTS = [
    Mutant(
        "slopes-from-0",
        "alibi.slopes.exponent",
        "your first slope is 1",
        ("alibi",),
        with_slopes(
            lambda H, most=8.0: spread(H, most, 0) if not H & (H - 1) else [2 * s for s in slopes(H, most)]
        ),
        ("aprender#2143",),
    ),
    Mutant(
        "slopes-of-8",
        "alibi.slopes.exponent",
        "your slopes are 1/2 to the h whatever the number of heads",
        ("alibi",),
        with_slopes(
            lambda H, most=8.0: spread(8, most)[:H] if H <= 8 else [2.0 ** -(h + 1) for h in range(H)]
        ),
    ),
    Mutant(
        "slopes-base",
        "alibi.slopes.exponent",
        "your max_bias is another",
        ("alibi",),
        with_slopes(lambda H, most=8.0: slopes(H, most * 0.75)),
        held_out=True,
    ),
    Mutant(
        "slopes-straight",
        "alibi.slopes.non_pow2",
        "you use the formula where H is no power of two",
        ("alibi",),
        with_slopes(lambda H, most=8.0: spread(H, most)),
        ("ml-explore/mlx#343", "NVIDIA/TensorRT-LLM#1611"),
    ),
    Mutant(
        "slopes-sorted",
        "alibi.slopes.non_pow2",
        "your slopes are sorted",
        ("alibi",),
        with_slopes(lambda H, most=8.0: sorted(slopes(H, most), reverse=True)),
        ("Baichuan2#225",),
    ),
    Mutant(
        "slopes-next",
        "alibi.slopes.non_pow2",
        "you take the first slopes of the next power of two, not every other",
        ("alibi",),
        with_slopes(of_next),
        held_out=True,
    ),
    Mutant(
        "slopes-again",
        "alibi.slopes.non_pow2",
        "your slopes begin anew",
        ("alibi",),
        with_slopes(of_smaller),
        held_out=True,
    ),
    Mutant(
        "slopes-halved",
        "alibi.slopes.exponent",
        "your slopes are halved",
        ("alibi",),
        results(lambda b: b / 2, "bias"),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-slopes-6",
        "alibi.slopes.exponent",
        "your max_bias is 6",
        ("alibi",),
        with_slopes(lambda H, most=8.0: slopes(H, 6.0)),
    )
]
