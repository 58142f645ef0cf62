"""Golden cases of sinusoidal."""

from recipes.families import REAL, UNORDERED, case, laws, reading, refusals, refused, rows, usual

T2T = {"layout": "concatenated", "ladder": "endpoint"}

RECIPES = [
    *usual("sinusoidal"),
    *rows("sinusoidal"),
    case("sinusoidal", "table", "tensor2tensor", "All sines, then all cosines, and frequencies that end at 1/10000.", "sin.order", C=8, options=T2T),
    case("sinusoidal", "table", "tensor2tensor-odd", "The same with 7 channels: the last is 0.", "sin.order", C=7, options=T2T),
    case("sinusoidal", "table", "tensor2tensor-two", "2 channels: one frequency, whose divisor must not be 0.", "sin.order", C=2, options=T2T),
    case("sinusoidal", "table", "paper-8", "8 channels: frequencies 1, 0.1, 0.01, 0.001.", "sin.order", C=8),
    case("sinusoidal", "table", "offset-2", "Positions begin at 2, beyond the row of padding.", "position.counted", T=5, positions=(2, 3, 4, 5, 6)),
    case("sinusoidal", "table", "real", "Positions are real numbers.", "position.rounded", positions=REAL),
    case("sinusoidal", "op", "rows", "Each sequence has positions of its own.", "position.batch", positions=(UNORDERED, UNORDERED[::-1])),
    case(
        "sinusoidal",
        "table",
        "halves",
        "With sines and cosines in halves, codes have two ladders.",
        "ambiguous",
        T=5,
        C=8,
        options=T2T,
        variants=(
            reading("endpoint", "10000^(-k/(h-1)), which ends at 1/10000: tensor2tensor, fairseq"),
            reading("paper", "10000^(-2k/C): Transformer-XL, x-transformers", ladder="paper"),
        ),
    ),
]

REFUSED = [
    *refusals("sinusoidal"),
    refused("sinusoidal", "table", "base-0", "setting", "Powers of 0 are no frequencies.", options={"base": 0.0}),
    refused(
        "sinusoidal",
        "op",
        "whole-numbers",
        "dtype",
        "Embeddings are whole numbers: the sum is not.",
        given={"x": {"dtype": "I64", "shape": [1, 5, 24]}},
    ),
]

LAWS = [
    *laws("sinusoidal"),
]
