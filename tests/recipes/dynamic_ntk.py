"""Golden cases of dynamic_ntk."""

from recipes.families import SMALL, attention, case, laws, reading, refusals, refused, rotation, usual

LLAMA = {"D": 128, "T": 3, "L": 2048, "options": {"factor": 2.0}}

RECIPES = [
    *usual("dynamic_ntk", B=1, T=5, beside={name: {"n": 50} for name in ("factor", "form")}),
    *rotation("dynamic_ntk"),
    *attention("dynamic_ntk"),
    case("dynamic_ntk", "table", "longer", "Made for 50 tokens, trained for 16.", "rope.ntk.static_as_dynamic", n=50),
    case("dynamic_ntk", "table", "at-length", "Made for 16 tokens, trained for 16: nothing is scaled yet.", "rope.ntk.static_as_dynamic", n=16),
    case("dynamic_ntk", "table", "one-beyond", "Made for 17 tokens, trained for 16.", "rope.ntk.static_as_dynamic", n=17),
    case("dynamic_ntk", "table", "one-below", "Made for 15 tokens, trained for 16: as at 16.", "rope.ntk.static_as_dynamic", n=15),
    case(
        "dynamic_ntk",
        "table",
        "llama-4096",
        "128 channels, trained for 2048, made for 4096, factor 2: base 30527.74.",
        "rope.ntk.static_as_dynamic",
        **LLAMA,
        n=4096,
    ),
    case("dynamic_ntk", "table", "llama-2049", "One token beyond 2048, factor 2: base 10009.92.", "rope.ntk.static_as_dynamic", **LLAMA, n=2049),
    case("dynamic_ntk", "table", "llama-8192", "Made for 8192, factor 2: base 72195.86.", "rope.ntk.static_as_dynamic", **LLAMA, n=8192),
    case("dynamic_ntk", "op", "longer", "q and k turn by the frequencies of 50 tokens.", "rope.ntk.static_as_dynamic", **SMALL, n=50),
    case(
        "dynamic_ntk",
        "table",
        "growth",
        "What grows with the text: the base, or nothing.",
        "ambiguous",
        n=50,
        options={"factor": 4.0},
        variants=(
            reading("dynamic", "by the length that frequencies are made for: Hugging Face"),
            reading("static", "by factor times the length trained for, whatever the text: vLLM", form="static"),
        ),
    ),
]

REFUSED = [
    *refusals("dynamic_ntk"),
    refused("dynamic_ntk", "op", "factor-negative", "setting", "A negative factor.", options={"factor": -1.0}),
    refused("dynamic_ntk", "op", "one-pair", "width", "With one pair the exponent R/(R-2) divides by 0.", facts={"R": 2}),
]

LAWS = [
    *laws("dynamic_ntk"),
]
