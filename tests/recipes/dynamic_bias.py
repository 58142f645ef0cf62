"""Golden cases of dynamic_bias."""

from recipes.families import SMALL, attention, basic, case, distances, laws, refusals, refused, usual

FEW = {"width": 6}
FLAGS = basic("width") | {name: ("dynamic_bias.network", "option") for name in ("activation", "output")}

RECIPES = [
    *usual(
        "dynamic_bias",
        without=("across_layers",),
        flags=FLAGS,
        B=1,
        T=5,
        small=FEW,
        beside={"width": {"options": {"depth": 1}}},
    ),
    *distances("dynamic_bias", FEW),
    *attention("dynamic_bias", FEW),
    case(
        "dynamic_bias",
        "table",
        "log-two-sided",
        "The logarithm keeps the sign: past and future differ.",
        "bias.sign",
        **SMALL,
        causal=False,
        options=FEW | {"distance": "log"},
    ),
]

REFUSED = [
    *refusals("dynamic_bias"),
    refused("dynamic_bias", "op", "depth-0", "setting", "A network without layers.", options={"depth": 0}),
]

LAWS = [
    *laws("dynamic_bias"),
]
