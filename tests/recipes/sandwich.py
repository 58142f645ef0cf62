"""Golden cases of sandwich."""

from recipes.families import LONG, SMALL, attention, case, distances, laws, reading, refusals, refused, usual

RECIPES = [
    *usual("sandwich", B=1, T=5),
    *distances("sandwich"),
    *attention("sandwich"),
    case(
        "sandwich",
        "attn",
        "narrow",
        "Sums of 2 cosines, so that logits are small: a number added below the fraction of softmax shows.",
        "attn.softmax",
        **SMALL | {"T": 5},
        options={"width": 4},
    ),
    case("sandwich", "table", "sparse", "Distances up to a million: phases lose digits.", "rope.phase.low_precision", **SMALL, positions=LONG),
    case(
        "sandwich",
        "table",
        "sum",
        "Two sums of cosines have this name.",
        "ambiguous",
        T=9,
        H=3,
        G=1,
        variants=(
            reading("paper", "k from 0 to 63, so that distance 0 has 64 / c_h: the paper's appendix"),
            reading("nemo", "k from 1 to 64, less 64: NeMo", form="nemo"),
        ),
    ),
]

REFUSED = [
    *refusals("sandwich"),
    refused(
        "sandwich", "op", "odd-width", "setting", "Each frequency has a sine and a cosine: an odd width has one without.", options={"width": 127}
    ),
]

LAWS = [
    *laws("sandwich"),
]
