"""Golden cases of rerope."""

import numpy as np
from mutants import Mutant
from mutants.ways import patched
from page import softmax, turned_scores

from peref.encodings.attend.rerope import window_of
from peref.ops.zones import attend_in_zones
from recipes.families import SMALLER, attention, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(https://kexue.fm/archives/9708). `s = q R(e) k / sqrt(D)`, where R(e) turns pair n of q by `e base^(-2n/R)`,
in layout and width of the facts; out = softmax(s) v. With d = i - j and w = `near`, which if null is max(1,
floor(L/8)): e = d where d < w, else `w + leak (d - w)`.
"""


def program(p, q, k, x, i, see, o, f, v):
    d = np.subtract.outer(i, i)
    w = max(1, f["L"] // 8) if o["near"] is None else o["near"]
    s = turned_scores(q, k, np.where(d < w, d, w + o["leak"] * (d - w)), o, f)
    return np.einsum("hts,hsd->htd", softmax(s, see), v)


CORE_ONLY = True
SHARP = {"trace": {"near": 2}}
TOGETHER = [{"near": 3}, {"near": 2, "leak": 0.25}]

RECIPES = [
    *usual("rerope", B=1, D=4, beside={"base": {"B": 1, "options": {"near": 3}}}),
    *attention("rerope", {"near": 3}),
    case(
        "rerope",
        "attn",
        "leaky",
        "Distances go on in sixteenths behind the window, as in the code of the leaky form.",
        "rerope.leak",
        "rerope.far",
        **SMALLER | {"T": 9, "D": 4},
        options={"near": 3, "leak": 0.0625},
    ),
    case(
        "rerope",
        "attn",
        "ends",
        "Nothing is farther than 4: keys beyond it do not turn.",
        "rerope.window",
        "rerope.far",
        "attn.scale",
        **SMALLER | {"T": 9, "D": 4},
        options={"near": 4},
    ),
    *together(
        "rerope",
        {"near": 3, "leak": 0.25, "base": 100.0},
        {"base": 100.0, "leak": 0.5},
        again={"attn": (1, 2)},
    ),
]

TRAPS = {
    "rerope.window": trap(
        "RANGE",
        "the window is another one",
        "distances that were met in training are left out, or those that were not are used",
        "distances below near are themselves; null is an eighth of the length trained for",
    ),
    "rerope.far": trap(
        "MISSING_STEP",
        "far queries or keys turn by a wrong place",
        "far keys stand anywhere, and the farther the text the worse",
        "beyond the window turn q by near + leak (i - near) and k by leak j; where leak is 0, k not at all",
    ),
    "rerope.leak": trap(
        "SCALING",
        "the step beyond the window is another, or begins elsewhere",
        "distances jump at the window",
        "near + leak (d - near): at the window both forms agree",
    ),
}

MEANS = {
    "options": {"near": "rerope.window", "leak": "rerope.leak"},
    "functions": {"window_of": "rerope.window", "far_places": "rerope.far", "window_zones": "rerope.window"},
}

REFUSED = [
    *refusals("rerope"),
    refused("rerope", "attn", "near-0", "setting", "A window of nothing.", options={"near": 0}),
    refused("rerope", "attn", "leak-below-0", "setting", "Farther keys come nearer.", options={"leak": -0.5}),
]

LAWS = [*laws("rerope")]


# wrong implementations

REROPE = ("rerope",)
window = lambda by: patched("encodings.attend.rerope", window_of=lambda L, near: window_of(L, near) + by)
far = lambda places: patched("encodings.attend.rerope", far_places=places)

MUTANTS = [
    Mutant("rerope-early", "rerope.window", "your window is one shorter", REROPE, window(-1)),
    Mutant("rerope-late", "rerope.window", "your window is one longer", REROPE, window(1), held_out=True),
    Mutant("rerope-none", "rerope.far", "distances do not end", REROPE, far(lambda i, j, w, leak: (i, j))),
    Mutant(
        "rerope-keys-turned",
        "rerope.far",
        "far keys turn by their own place",
        REROPE,
        far(lambda i, j, w, leak: (w + leak * (i - w), j)),
    ),
    Mutant(
        "rerope-queries-turned",
        "rerope.far",
        "queries of far keys turn by their own place",
        REROPE,
        far(lambda i, j, w, leak: (i, leak * j)),
        held_out=True,
    ),
    Mutant(
        "rerope-no-offset",
        "rerope.leak",
        "the small steps begin at distance 0",
        REROPE,
        far(lambda i, j, w, leak: (w + leak * i, leak * j)),
    ),
    Mutant(
        "rerope-unscaled",
        "attn.scale",
        "your logits are not scaled",
        REROPE,
        patched(
            "encodings.attend.rerope",
            attend_in_zones=lambda *given, scale, **more: attend_in_zones(*given, scale=1.0, **more),
        ),
    ),
]

LATER = [
    Mutant(
        "l-rerope-from-0",
        "rerope.far",
        "far queries stand at 0 as their keys do",
        REROPE,
        far(lambda i, j, w, leak: (leak * (i - w), leak * j)),
    )
]
