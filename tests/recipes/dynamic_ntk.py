"""Golden cases of dynamic_ntk."""

from itertools import count

from exact import base_of, everywhere, length, stretched
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, with_case
from page import frequencies, scaled

from peref.golden.spec.cases import Case
from peref.ops import frequency
from recipes.families import (
    SMALL,
    attention,
    case,
    laws,
    reading,
    refusals,
    refused,
    rotation,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import FEW_HEADS, length_fixed

SPEC = """
(arXiv:2309.00071, 3.3). As ntk with the factor `s = factor m/L - (factor - 1)`, m = max(n, L), and L =
`original` where it is given. `form` "static": m = factor L. "steps": `s = 2^(k+1) - 1`, where k is the
least integer from 0 on with `m <= 2^k L`, and factor is 1.
"""


def exact(p, places, facts, o, n):
    L, s = length(facts, o), mp.mpf(o["factor"])
    m = s * L if o["form"] == "static" else max(mp.mpf(n), L)
    if o["form"] == "steps":
        by = next(mp.mpf(2) ** (k + 1) - 1 for k in range(64) if m <= 2**k * L)
    else:
        by = s * m / L - (s - 1)
    return everywhere(stretched(facts["R"], base_of(o), by), places)


@frequencies
def program(p, o, R, L, n, w):
    m = o["factor"] * L if o["form"] == "static" else max(n, L)
    if o["form"] == "steps":
        return scaled(w, R, 2 ** (1 + next(k for k in count() if m <= 2**k * L)) - 1)
    return scaled(w, R, o["factor"] * m / L - (o["factor"] - 1))


LLAMA = {"D": 128, "T": 3, "L": 2048, "options": {"factor": 2.0}}

OF_LENGTH = {"base": 100.0, "factor": 4.0}  # a low base, so that frequencies matter within a few tokens
LENGTHS = (
    (0, 4, True, 5),
    (4, 6, False, 6),
    (6, 9, False, 9),
    (9, 14, True, 9),
    (14, 18, True, 5),
    (18, 19, False, 5),
)
WHOLES = [
    length_fixed("dynamic_ntk", "rope.ntk.cache_mixed_bases", OF_LENGTH),
    Case(
        "dynamic_ntk",
        "trace",
        "length-as-hugging-face",
        "What Hugging Face keeps as a state: the length grows with the text, keys stay as they turned when "
        "they came; a new text shorter than "
        "the length trained for sets it back, one of exactly that length does not.",
        ("rope.ntk.long_then_short", "rope.ntk.static_as_dynamic"),
        OF_LENGTH,
        positions=(*range(9), *range(5), *range(5)),
        L=5,
        T=19,
        calls=LENGTHS,
        **FEW_HEADS | {"D": 8},
    ),
]

RECIPES = [
    *usual("dynamic_ntk", B=1, T=5, beside={name: {"n": 50} for name in ("factor", "form")}),
    *rotation("dynamic_ntk"),
    *attention("dynamic_ntk"),
    case(
        "dynamic_ntk",
        "table",
        "longer",
        "Made for 50 tokens, trained for 16.",
        "rope.ntk.static_as_dynamic",
        n=50,
    ),
    case(
        "dynamic_ntk",
        "table",
        "at-length",
        "Made for 16 tokens, trained for 16: nothing is scaled yet.",
        "rope.ntk.static_as_dynamic",
        n=16,
    ),
    case(
        "dynamic_ntk",
        "table",
        "one-beyond",
        "Made for 17 tokens, trained for 16.",
        "rope.ntk.static_as_dynamic",
        n=17,
    ),
    case(
        "dynamic_ntk",
        "table",
        "one-below",
        "Made for 15 tokens, trained for 16: as at 16.",
        "rope.ntk.static_as_dynamic",
        n=15,
    ),
    case(
        "dynamic_ntk",
        "table",
        "llama-4096",
        "128 channels, trained for 2048, made for 4096, factor 2: base 30527.74.",
        "rope.ntk.static_as_dynamic",
        **LLAMA,
        n=4096,
    ),
    case(
        "dynamic_ntk",
        "table",
        "llama-2049",
        "One token beyond 2048, factor 2: base 10009.92.",
        "rope.ntk.static_as_dynamic",
        **LLAMA,
        n=2049,
    ),
    case(
        "dynamic_ntk",
        "table",
        "llama-8192",
        "Made for 8192, factor 2: base 72195.86.",
        "rope.ntk.static_as_dynamic",
        **LLAMA,
        n=8192,
    ),
    case(
        "dynamic_ntk",
        "op",
        "longer",
        "q and k turn by the frequencies of 50 tokens.",
        "rope.ntk.static_as_dynamic",
        **SMALL,
        n=50,
    ),
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
            reading(
                "static", "by factor times the length trained for, whatever the text: vLLM", form="static"
            ),
        ),
    ),
    *together(
        "dynamic_ntk",
        {"base": 100.0, "original": 8, "factor": 3.0},
        {"base": 100.0, "original": 36, "form": "steps"},
        {"base": 100.0, "original": 8, "factor": 3.0, "form": "static"},
        {"base": 100.0, "original": 8},
        {"base": 100.0, "original": 8, "form": "static"},
        again={"op": (2, 4, 5), "attn": (1, 2, 4, 5)},
        H=1,
    ),
]
FULL = ("*/together-*-groups",)

TRAPS = {
    "rope.ntk.cache_mixed_bases": trap(
        "CACHE",
        "cached keys were turned with another base than the query",
        "every distance to a cached key is wrong",
        "fix the length when the cache is made, or turn cached keys again",
        "huggingface/transformers#25104",
        "vllm-project/vllm#52665",
    ),
    "rope.ntk.long_then_short": trap(
        "CACHE",
        "the length of an earlier text decides the frequencies of the next",
        "the result depends on what was computed before",
        "reset the length where a new text begins",
        "huggingface/transformers#25306",
        "huggingface/transformers#27226",
    ),
}

MEANS = {
    "options": {
        "original": "rope.ntk.static_as_dynamic",
        "form": "rope.ntk.static_as_dynamic",
        "n": "rope.ntk.static_as_dynamic",
    },
    "functions": {"ntk_base": "rope.ntk.exponent", "frequencies": "rope.ntk.static_as_dynamic"},
}

TOGETHER = [
    {"factor": 2.0, "form": "static"},
    {"original": 5, "factor": 3.0},
    {"original": 5, "form": "steps"},
]
WITHOUT = ("factor",)

REFUSED = [
    *refusals("dynamic_ntk"),
    refused(
        "dynamic_ntk", "op", "factor-negative", "setting", "A negative factor.", options={"factor": -1.0}
    ),
    refused(
        "dynamic_ntk",
        "op",
        "one-pair",
        "width",
        "With one pair the exponent R/(R-2) divides by 0.",
        facts={"R": 2},
    ),
]

LAWS = [*laws("dynamic_ntk")]


# wrong implementations


def below(case, a):
    """The length at hand, also where it is below the length trained for."""
    o = case.config.pe[0][1]
    L, n = o["original"] or case.L, case.n
    if o["form"] != "dynamic" or n > L:
        return None
    s = o["factor"] * (n / 2) / L - (o["factor"] - 1)
    if s <= 0:
        return None
    return patched(
        "encodings.rotate.dynamic_ntk", ntk_base=lambda name, R, base, _: frequency.ntk_base(name, R, base, s)
    )(case, a)


MUTANTS = [
    Mutant(
        "dynamic-static",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK scales by a fixed factor",
        ("dynamic_ntk",),
        with_case(n=64),
        ("vllm-project/vllm#5093",),
    ),
    Mutant(
        "dynamic-below",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK also scales below the length trained for",
        ("dynamic_ntk",),
        lambda case, a: below(case, a),
        ("huggingface/transformers#25104",),
    ),
    Mutant(
        "dynamic-never",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK never scales",
        ("dynamic_ntk",),
        with_case(lambda c: c.n and c.n > c.L, n=lambda case: case.L),
        held_out=True,
    ),
    Mutant(
        "dynamic-one-late",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK counts one token too many",
        ("dynamic_ntk",),
        with_case(n=lambda case: case.n + 1),
    ),
]

LATER = [
    Mutant(
        "l-dynamic-48",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK is for 48 tokens",
        ("dynamic_ntk",),
        with_case(n=48),
    )
]
