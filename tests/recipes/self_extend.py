"""Golden cases of self_extend."""

import numpy as np
from mutants import Mutant
from mutants.ways import patched
from page import softmax, turned_scores

from peref.encodings.attend.self_extend import neighbors_of
from peref.ops.zones import attend_in_zones
from recipes.families import SMALLER, attention, away, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2401.01325). `s = q R(e) k / sqrt(D)`, where R(e) turns pair n of q by `e base^(-2n/R)`, in layout and
width of the facts; out = softmax(s) v. With d = i - j, g = `group_size` and w = `neighbor_window`, which if
null is max(1, floor(L/4)): e = d where d < w, else `floor(i/g) + w - floor(w/g) - floor(j/g)`.
"""


def program(p, q, k, x, i, see, o, f, v):
    d, g = np.subtract.outer(i, i), o["group_size"]
    w = max(1, f["L"] // 4) if o["neighbor_window"] is None else o["neighbor_window"]
    grouped = np.subtract.outer(np.floor(i / g), np.floor(i / g)) + w - w // g
    return np.einsum("hts,hsd->htd", softmax(turned_scores(q, k, np.where(d < w, d, grouped), o, f), see), v)


CORE_ONLY = True
SHARP = {"trace": {"neighbor_window": 2, "group_size": 2}}
FAR = {"neighbor_window": 3, "group_size": 2}
TOGETHER = [FAR, {"neighbor_window": 1, "group_size": 3}]
SIZES = {"B": 1, "T": 9, "D": 4}

RECIPES = [
    *usual(
        "self_extend",
        B=1,
        D=4,
        flags={"group_size": ("self_extend.group",)},
        beside={"base": SIZES | {"options": FAR}, "group_size": SIZES | {"options": {"neighbor_window": 5}}},
    ),
    *attention("self_extend", FAR),
    case(
        "self_extend",
        "attn",
        "uneven",
        "The group size does not divide the window: what is added to the queries' groups is rounded.",
        "self_extend.shift",
        "self_extend.group",
        "self_extend.window",
        "attn.scale",
        **SMALLER | {"T": 9, "D": 4},
        options={"neighbor_window": 3, "group_size": 2},
    ),
    case(
        "self_extend",
        "attn",
        "heads-apart",
        "Groups of positions that are far apart, padding, a window and groups of heads, all at once.",
        "self_extend.group",
        **dict(away("self_extend", "attn"))["-groups"] | {"positions": ((1, 15, 0, 9),)},
        options={"base": 100.0, "group_size": 2},
    ),
    *together(
        "self_extend",
        {"neighbor_window": 2, "group_size": 3, "base": 100.0},
        {"base": 100.0, "group_size": 2},
    ),
]

TRAPS = {
    "self_extend.window": trap(
        "OFF_BY_ONE",
        "the neighbours are others",
        "a key at the border has a grouped distance in place of its own, or the other way round",
        "neighbours are the keys with i - j < neighbor_window; null is a quarter of the length trained for",
    ),
    "self_extend.group": trap(
        "SCALING",
        "groups are of another size, begin elsewhere, or a group is not one place",
        "far keys stand at places that were never met in training",
        "floor(position / group_size), of queries and of keys, counted from position 0",
        "ggml-org/llama.cpp#4886",
        "datamllab/LongLM#35",
    ),
    "self_extend.shift": trap(
        "MISSING_STEP",
        "what is added to the groups of queries is missing or not rounded",
        "distances jump at the window, more the larger it is",
        "add w - floor(w / g) to floor(i / g), in a prefill as in decoding",
    ),
}

MEANS = {
    "options": {"neighbor_window": "self_extend.window", "group_size": "self_extend.group"},
    "functions": {
        "neighbors_of": "self_extend.window",
        "group": "self_extend.group",
        "group_shift": "self_extend.shift",
        "group_zones": "self_extend.window",
    },
}

REFUSED = [
    *refusals("self_extend"),
    refused(
        "self_extend", "attn", "group-size-0", "setting", "Groups of nothing.", options={"group_size": 0}
    ),
    refused(
        "self_extend",
        "attn",
        "neighbor-window-0",
        "setting",
        "Not even the query is near.",
        options={"neighbor_window": 0},
    ),
]

LAWS = [*laws("self_extend")]


# wrong implementations

SELF = ("self_extend",)
changed = lambda **changes: patched("encodings.attend.self_extend", **changes)
window = lambda by: changed(neighbors_of=lambda L, given: neighbors_of(L, given) + by)

MUTANTS = [
    Mutant("self-extend-early", "self_extend.window", "your window is one shorter", SELF, window(-1)),
    Mutant(
        "self-extend-late", "self_extend.window", "your window is one longer", SELF, window(1), held_out=True
    ),
    Mutant(
        "self-extend-scaled",
        "self_extend.group",
        "positions are divided and not rounded",
        SELF,
        changed(group=lambda i, g: i / g),
    ),
    Mutant(
        "self-extend-ceil",
        "self_extend.group",
        "groups are rounded up",
        SELF,
        changed(group=lambda i, g: -(-i // g)),
    ),
    Mutant(
        "self-extend-next",
        "self_extend.group",
        "positions are counted from 1 before they are grouped",
        SELF,
        changed(group=lambda i, g: (i + 1) // g),
        held_out=True,
    ),
    Mutant(
        "self-extend-unshifted",
        "self_extend.shift",
        "the groups of queries are not shifted",
        SELF,
        changed(group_shift=lambda w, g: 0),
    ),
    Mutant(
        "self-extend-exact",
        "self_extend.shift",
        "w - w / g is not rounded",
        SELF,
        changed(group_shift=lambda w, g: w - w / g),
    ),
    Mutant(
        "self-extend-by-window",
        "self_extend.shift",
        "queries are shifted by the whole window",
        SELF,
        changed(group_shift=lambda w, g: w),
        held_out=True,
    ),
    Mutant(
        "self-extend-unscaled",
        "attn.scale",
        "your logits are not scaled",
        SELF,
        changed(attend_in_zones=lambda *given, scale, **more: attend_in_zones(*given, scale=1.0, **more)),
    ),
]

LATER = [
    Mutant(
        "l-self-extend-nearest",
        "self_extend.group",
        "groups are rounded to the nearest",
        SELF,
        changed(group=lambda i, g: (i + g // 2) // g),
    )
]
