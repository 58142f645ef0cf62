"""Golden cases of rope."""

from exact import base_of, everywhere, ladder
from mpmath import mp
from page import frequencies

from peref.golden.spec.cases import Case
from recipes.families import (
    FAR_FLAGS,
    HEADS_2,
    LONG,
    PARTIAL,
    REAL,
    SMALL,
    SMALLER,
    UNORDERED,
    attention,
    case,
    law,
    laws,
    positions,
    refusals,
    refused,
    rotation,
    together,
    usual,
)
from recipes.wholes import aligned, aligned_op, packed

SPEC = """
(arXiv:2104.09864). w is the ladder of section 1, from `base`. `learned`: w is param.frequency [P].
"""


def exact(p, places, facts, o, n):
    return everywhere(
        [mp.mpf(x) for x in p["frequency"]] if o["learned"] else ladder(facts["R"], base_of(o)), places
    )


@frequencies
def program(p, o, R, L, n, w):
    return p["frequency"] if o["learned"] else w


BORDERS = (255, 256, 257, 15962, 15963, 100000, 1000000)
NEGATIVE = (-3, -2, -1, 0, 1, 2, -300)

LOGITS = "llama"
TRAINED = "llama"
CACHED = ("llama", "cache.position_restarts")
MORE_FLAGS = {"block-gpt2": ("block.gelu_exact",)}

RECIPES = [
    *usual("rope"),
    *rotation("rope"),
    *attention("rope"),
    case(
        "rope",
        "table",
        "wide",
        "64 channels, base 500000.",
        "rope.base.ignored",
        D=64,
        options={"base": 500000.0},
    ),
    case(
        "rope",
        "op",
        "base-500000",
        "The base is not 10000.",
        "rope.base.ignored",
        **SMALL,
        options={"base": 500000.0},
    ),
    case(
        "rope",
        "table",
        "wider-than-256",
        "255, 256 and 257 are three positions; bfloat16 knows two of them.",
        "rope.phase.low_precision",
        positions=BORDERS,
        T=7,
    ),
    case(
        "rope",
        "op",
        "counted-260",
        "260 tokens from 0 on: made in the dtype of q, positions 256 and 257 are one in bfloat16.",
        "rope.phase.low_precision",
        B=1,
        H=1,
        G=1,
        T=260,
        D=4,
    ),
    case(
        "rope",
        "table",
        "negative",
        "Positions before 0 turn the other way.",
        "position.counted",
        positions=NEGATIVE,
    ),
    case(
        "rope",
        "table",
        "code-llama",
        "Base 1000000, 128 channels, positions far out.",
        "rope.base.ignored",
        D=128,
        T=3,
        positions=(1, 16384, 99999),
        options={"base": 1e6},
    ),
    case(
        "rope",
        "op",
        "offset-5",
        "Positions begin at 5, as after five cached tokens.",
        "position.counted",
        **SMALLER,
        positions=(5, 6, 7, 8, 9),
    ),
    case(
        "rope",
        "op",
        "negative",
        "Positions before 0 turn the other way.",
        "position.counted",
        **SMALL,
        positions=NEGATIVE,
    ),
    case(
        "rope",
        "op",
        "real",
        "Positions are real numbers, half and quarter steps.",
        "position.rounded",
        **SMALL,
        positions=REAL,
    ),
    case(
        "rope",
        "op",
        "two-of-ten",
        "One pair of ten channels: both layouts pair alike, and 8 channels pass.",
        *PARTIAL[1:],
        **SMALL,
        D=10,
        R=2,
    ),
    case("rope", "op", "four-of-ten", "4 of 10 channels turn.", *PARTIAL, **SMALL, D=10, R=4),
    case(
        "rope",
        "op",
        "eight-of-ten",
        "8 of 10 channels turn, in adjacent pairs.",
        *PARTIAL,
        "rope.layout.half",
        **SMALL,
        D=10,
        R=8,
        layout="interleaved",
    ),
    case(
        "rope",
        "op",
        "heads-12",
        "12 query heads share 2 key-value heads, T and D are 5 and 6.",
        "rope.one_of_two",
        B=1,
        H=12,
        G=2,
        T=5,
        D=6,
    ),
    case(
        "rope",
        "attn",
        "interleaved",
        "Pairs are adjacent channels, up to the output.",
        "rope.layout.half",
        **SMALL,
        layout="interleaved",
    ),
    case(
        "rope",
        "attn",
        "partial",
        "Half of the channels turn; the scale is that of the whole head.",
        *PARTIAL,
        **SMALL,
        R=4,
    ),
    case(
        "rope",
        "attn",
        "offset-5",
        "Positions begin at 5: the output is that of positions from 0, and the mask is of slots.",
        "mask.causal",
        **SMALLER,
        positions=(5, 6, 7, 8, 9),
    ),
    case("rope", "attn", "long", "Positions far out, and far apart.", *FAR_FLAGS, **SMALL, positions=LONG),
    case(
        "rope",
        "attn",
        "rows",
        "Each sequence has positions of its own.",
        "position.batch",
        H=2,
        G=1,
        positions=(UNORDERED, UNORDERED[::-1]),
    ),
]

WHOLES = [
    Case(
        *("rope", "block", "qk-norm", "q and k are normed over each head, with weights, before they turn."),
        *(("block.qk_norm_order",),),
        qk_norm=True,
    ),
    packed("rope"),
    Case(
        *("rope", "block", "window-partial", "A window, adjacent pairs and a partial rotation in one layer."),
        *(("mask.window", "rope.layout.half"),),
        T=9,
        R=4,
        layout="interleaved",
        window=3,
    ),
    packed("rope", "model"),
    *aligned("rope", "64", "128", "48-tokens"),
    aligned_op("rope", "64", H=8),
    aligned_op("rope", "interleaved", layout="interleaved"),
    aligned_op("rope", "partial", R=32),
    aligned_op("rope", "128", D=128),
    *together("rope", {"base": 100.0}, {"learned": True}, again={"op": (2,), "attn": (1, 2)}, H=1),
]
FULL = ("attn/rows", "op/eight-of-ten")

REFUSED = [
    *refusals("rope"),
    refused(
        "rope",
        "op",
        "zero-width",
        "width",
        "Nothing turns: an error, or everything as it came.",
        facts={"R": 0},
        or_else="unchanged",
    ),
    refused("rope", "op", "layout", "setting", "There is no such layout.", facts={"layout": "thirds"}),
    refused("rope", "op", "base-0", "setting", "Powers of 0 are no frequencies.", options={"base": 0.0}),
    refused(
        "rope",
        "op",
        "inf-position",
        "position",
        "A position is infinite.",
        given=positions(0.0, 1.0, 2.0, 3.0, "inf"),
    ),
    refused(
        "rope",
        "op",
        "more-positions",
        "shape",
        "6 positions for 5 tokens.",
        given=positions(0, 1, 2, 3, 4, 5),
    ),
    refused(
        "rope",
        "op",
        "head-widths",
        "shape",
        "Keys are narrower than queries.",
        given={"k": {"dtype": "F64", "shape": [1, 1, 5, 6]}},
    ),
    refused(
        "rope",
        "op",
        "whole-numbers",
        "dtype",
        "Queries are whole numbers: turned ones are not.",
        given={"q": {"dtype": "I64", "shape": [1, 3, 5, 8]}},
    ),
    refused(
        "rope",
        "attn",
        "groups",
        "heads",
        "3 query heads cannot share 2 key-value heads.",
        facts={"G": 2},
        given=HEADS_2,
    ),
]

LAWS = [
    *laws("rope"),
    law(
        "rope",
        "op",
        "norm",
        "Adjacent channels: a rotation changes no length.",
        slug="norm-interleaved",
        layout="interleaved",
    ),
    law(
        "rope",
        "op",
        "composition",
        "Adjacent channels, turned twice.",
        slug="composition-interleaved",
        layout="interleaved",
    ),
    law("rope", "op", "norm", "Half of the channels turn, and no length changes.", slug="norm-partial", R=4),
]
