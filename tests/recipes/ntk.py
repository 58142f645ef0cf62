"""Golden cases of ntk."""

from recipes.families import SMALL, attention, case, laws, reading, refusals, refused, rotation, usual

RECIPES = [
    *usual("ntk", B=1, T=5),
    *rotation("ntk"),
    *attention("ntk"),
    case("ntk", "table", "wide", "64 channels.", "rope.ntk.exponent", D=64, options={"factor": 2.0}),
    case("ntk", "table", "llama", "128 channels, factor 8: the base becomes 82684.62.", "rope.ntk.exponent", D=128, T=3, options={"factor": 8.0}),
    case(
        "ntk",
        "table",
        "kexue-wide",
        "The form in which every pair is rescaled, the last by the factor.",
        "option",
        D=64,
        T=3,
        options={"factor": 8.0, "form": "kexue"},
    ),
    case("ntk", "table", "mixed-b", "Mixed with b 0.5.", "option", options={"form": "mixed", "mixed_b": 0.5}),
    case("ntk", "op", "partial-of-ten", "The exponent R/(R-2) has the rotary width, 4 of 10.", "rope.ntk.exponent", **SMALL, D=10, R=4),
    case(
        "ntk",
        "table",
        "form",
        "Two forms of one idea have one name.",
        "ambiguous",
        variants=(
            reading("bloc97", "the first pair untouched, the last divided by the factor: bloc97, YaRN's paper"),
            reading("kexue", "every pair rescaled, the last by the factor: Su, vLLM's NTKScaling", form="kexue"),
        ),
    ),
]

REFUSED = [
    *refusals("ntk"),
    refused("ntk", "op", "factor-0", "setting", "A factor of 0 makes a base of 0.", options={"factor": 0.0}),
    refused("ntk", "op", "one-pair", "width", "With one pair the exponent R/(R-2) divides by 0.", facts={"R": 2}),
    refused("ntk", "op", "idle-option", "setting", "mixed_b belongs to the mixed form alone.", options={"mixed_b": 0.5}),
]

LAWS = [
    *laws("ntk"),
]
