"""Golden cases of dape."""

from recipes.families import PACKED, attention, basic, case, laws, refusals, refused, usual

FEW = {"width": 5}
OVER = {"over-alibi": ("alibi.slopes.exponent",), "over-fire": ("dape.network",), "over-none": ("dape.network",)}

RECIPES = [
    *usual("dape", B=1, T=5, small=FEW, flags=OVER | basic("width"), beside={"over": {"B": 1, "T": 5, "D": 4}}),
    *attention("dape", FEW),
    case(
        "dape",
        "attn",
        "alibi",
        "Over ALiBi's bias, with padding: the mask comes after the network.",
        "mask.padding",
        seg=PACKED,
        H=3,
        G=1,
        D=4,
        options=FEW | {"over": "alibi"},
    ),
]

REFUSED = [
    *refusals("dape"),
    refused("dape", "attn", "width-0", "setting", "A network without a hidden channel.", options={"width": 0}),
]

LAWS = [
    *laws("dape"),
]
