"""Golden cases of mamba."""

from recipes.families import attention, basic, case, laws, reading, refusals, refused, usual

FEW = {"state_size": 3}
FLAGS = basic("state_size", "expand", "kernel", "dt_min", "dt_max") | {"chunk": ("mix.chunk",), "norms": ("mix.norm",)}

RECIPES = [
    *usual("mamba", small=FEW, flags=FLAGS, beside={"chunk": {"T": 37, "B": 1}, "norms": {"B": 1, "T": 5, "options": {"rank": 3}}}),
    *attention("mamba", FEW),
    case("mamba", "op", "short", "Two tokens, fewer than the convolution looks back.", "mix.conv", T=2, options=FEW),
    case(
        "mamba",
        "op",
        "large-steps",
        "Steps so large that Euler's and the exact rule part.",
        "mix.discretisation",
        options=FEW | {"dt_min": 1.0, "dt_max": 2.0},
    ),
    case(
        "mamba",
        "op",
        "large-steps-zoh",
        "The same by the exact rule.",
        "option",
        options=FEW | {"dt_min": 1.0, "dt_max": 2.0, "discretisation": "zoh"},
    ),
    case(
        "mamba",
        "op",
        "input",
        "How the input enters the state: the paper's formula and its code.",
        "ambiguous",
        T=5,
        options=FEW,
        variants=(
            reading("euler", "dt B u: the released code, on purpose"),
            reading("zoh", "(exp(dt A) - 1) / A B u: equation 4 of the paper", discretisation="zoh"),
        ),
    ),
]

REFUSED = [
    *refusals("mamba"),
    refused("mamba", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [
    *laws("mamba"),
]
