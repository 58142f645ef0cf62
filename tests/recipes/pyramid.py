"""Golden cases of pyramid."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import asked, backend, forward, patched, with_options
from page import sigmoid, softmax

from peref.encodings.attend import pyramid
from peref.model import PLAIN
from peref.ops import activation
from recipes.families import SMALL, attention, case, laws, refusals, refused, together, usual
from recipes.traps import trap
from recipes.wholes import moved

SPEC = """
(defined here). `g softmax(q k_j/sqrt(D)) v` over the last w tokens, plus `(1 - g)` softmax(q K_b/sqrt(D) +
ln n_b) V_b over blocks of all tokens before them. These tokens are cut into blocks as their number is
written in base 2, largest first; K_b and V_b are the means of the keys and values of a block, and n_b is
its number of tokens. w = `local`, at least 1; L // 8 unless said otherwise. g = sigmoid(param.gate.weight x
+ param.gate.bias), [H,C] and [H], of the query, and 1 where nothing lies before. `position` "level":
param.level[l] [32,D] is added to K_b of 2^l tokens; "centre": q and k are turned as in rope with `base`, in
pairs (n, n + D/2) of all D channels, and K_b, the mean of unturned keys, is turned by the mean of its
positions.
"""


def program(p, q, k, x, i, see, o, f, v):
    H, T, D = q.shape
    w = max(f["L"] // 8, 1) if o["local"] is None else o["local"]
    gate = sigmoid(x @ p["gate.weight"].T + p["gate.bias"])
    n = np.arange(D // 2)

    def turned(y, at):  # y [...,D] by one position
        a, b, angle = y[..., n], y[..., n + D // 2], at * o["base"] ** (-2 * n / D)
        return np.concatenate(
            [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1
        )

    place = turned if o["position"] == "centre" else lambda y, at: y
    out = np.zeros_like(q)
    for h, t in np.ndindex(H, T):
        ask, first = place(q[h, t], i[t]), max(t - w + 1, 0)
        near = (
            softmax(np.array([ask @ place(k[h, j], i[j]) / sqrt(D) for j in range(first, t + 1)]), True)
            @ v[h, first : t + 1]
        )
        begin, logits, values = 0, [], []
        for level in reversed(range(first.bit_length())):
            size = 2**level
            if first & size:
                block = slice(begin, begin + size)
                begin += size
                key = k[h, block].mean(0) + (p["level"][level] if o["position"] == "level" else 0)
                logits.append(ask @ place(key, i[block].mean()) / sqrt(D) + np.log(size))
                values.append(v[h, block].mean(0))
        g = gate[t, h] if first else 1
        out[h, t] = g * near + ((1 - g) * softmax(np.array(logits), True) @ np.array(values) if first else 0)
    return out


NOT_FLAGS = ("mask.top_left", "cache.features_dropped", "cache.keys_lost")

TINY = {"B": 1, "H": 1, "G": 1, "T": 5, "D": 2, "n": 37}

RECIPES = [
    *usual("pyramid", B=1, T=5, beside={"base": {"T": 11, "options": {"local": 2, "position": "centre"}}}),
    *attention("pyramid", spread="pyramid.blocks"),
    case(
        "pyramid",
        "attn",
        "levels",
        "13 tokens and a window of 2: blocks of 8, 4, 2 and 1.",
        "mask.window",
        **SMALL | {"T": 13},
        options={"local": 2},
    ),
    case(
        "pyramid",
        "attn",
        "levels-centre",
        "The same with keys of blocks turned by their centres.",
        "option",
        **SMALL | {"T": 13},
        options={"local": 2, "position": "centre"},
    ),
    case(
        "pyramid",
        "attn",
        "levels-level",
        "The same with a vector for each level.",
        "option",
        **SMALL | {"T": 11},
        D=4,
        options={"local": 2, "position": "level"},
    ),
    case(
        "pyramid",
        "attn",
        "levels-apart",
        "What a level adds to the means of keys, in 4 query heads that read 2.",
        "basic",
        **TINY | {"H": 4, "G": 2},
        options={"position": "level", "local": 1},
    ),
    *(
        case("pyramid", "attn", slug, f"Nothing turns, and the window is {said}.", "basic", **TINY, options=o)
        for slug, said, o in (
            ("unturned", "that of the length trained for", {}),
            ("unturned-3", "3 tokens", {"local": 3}),
        )
    ),
    *together(
        "pyramid",
        {"position": "level", "local": 3},
        {"position": "centre", "base": 100.0, "local": 3},
        {"position": "level"},
        {"position": "centre", "base": 100.0},
        flag="basic",
        again={"attn": (4,)},
    ),
]
FULL = (
    "*/together-*-groups",
    "*/together-2-*",
    "*/together-[13]*",
    "attn/base-20000.0",
    "attn/levels-apart",
    "attn/position-centre",
    "attn/position-level",
    "attn/unturned*",
)

WHOLES = [moved("pyramid", "moved-centre", position="centre", base=100.0)]

TRAPS = {
    "pyramid.window": trap(
        "OFF_BY_ONE",
        "a window of another size",
        "tokens count twice or not at all",
        "w keys, including the query's own; the blocks end just before them",
    ),
    "pyramid.blocks": trap(
        "MISSING_STEP",
        "blocks have the wrong weight, or sums instead of means",
        "distant text counts too little or too much",
        "take means of keys and values, and add ln n to the logit of a block of n",
    ),
    "pyramid.gate": trap(
        "SIGN",
        "another gate",
        "near and far are out of proportion",
        "g near + (1 - g) far, where g = sigmoid(W x + b) of the query, and 1 without blocks",
    ),
}

MEANS = {
    "options": {"local": "pyramid.window"},
    "parameters": {"gate.*": "pyramid.gate", "level": "pyramid.blocks"},
    "functions": {
        "sigmoid": "pyramid.gate",
        "blend": "pyramid.gate",
        "pool": "pyramid.blocks",
        "far": "pyramid.blocks",
        "tree": "pyramid.window",
        "tree.level": "pyramid.blocks",
        "attend": "pyramid.window",
    },
}

TOGETHER = [{"local": 3}]

REFUSED = [
    *refusals("pyramid"),
    refused(
        "pyramid",
        "attn",
        "local-0",
        "setting",
        "A window of no key: a query sees itself at least.",
        options={"local": 0},
    ),
]

LAWS = [*laws("pyramid")]


# wrong implementations

PYRAMID = ("pyramid",)


def doubled(y, x):
    """What lies beyond the tokens is a block of two and more."""
    y = y.copy()
    y[:, :, x.shape[0] * x.shape[2] :] *= 2
    return y


MUTANTS = [
    Mutant(
        "pyramid-local",
        "mask.window",
        "your window is one key too wide",
        PYRAMID,
        with_options(lambda case: "local" in case.options, local=lambda case: case.options["local"] + 1),
    ),
    Mutant(
        "pyramid-wide",
        "pyramid.window",
        "your window is one key too wide",
        PYRAMID,
        with_options(local=lambda case: 1 + (case.config.pe[0][1]["local"] or max(case.L // 8, 1))),
    ),
    Mutant(
        "pyramid-wider",
        "pyramid.window",
        "your window is two keys too wide",
        PYRAMID,
        with_options(local=lambda case: 2 + (case.config.pe[0][1]["local"] or max(case.L // 8, 1))),
        held_out=True,
    ),
    Mutant(
        "pyramid-no-count",
        "pyramid.blocks",
        "a block weighs as one key",
        PYRAMID,
        patched("encodings.attend.pyramid", math=type("m", (), {"log": staticmethod(lambda x: 0.0)})),
    ),
    Mutant(
        "pyramid-count-log2",
        "pyramid.blocks",
        "a block's weight is its level",
        PYRAMID,
        patched("encodings.attend.pyramid", math=type("m", (), {"log": staticmethod(lambda x: 1.0)})),
        held_out=True,
    ),
    Mutant(
        "pyramid-sums",
        "pyramid.blocks",
        "blocks are sums, not means",
        PYRAMID,
        patched("encodings.attend.pyramid", pool=forward(pyramid.pool, lambda y, x: doubled(y, x))),
    ),
    Mutant(
        "pyramid-gate",
        "pyramid.gate",
        "the gate is the other way round",
        PYRAMID,
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (-x,))),
    ),
    Mutant(
        "pyramid-half",
        "pyramid.gate",
        "the gate is a half",
        PYRAMID,
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (0 * x,))),
    ),
    Mutant(
        "pyramid-tanh",
        "pyramid.gate",
        "the gate is a tanh",
        PYRAMID,
        patched("encodings.attend.pyramid", sigmoid=activation.tanh),
        held_out=True,
    ),
    Mutant(
        "pyramid-near",
        "pyramid.gate",
        "only the window is read",
        PYRAMID,
        patched("encodings.attend.pyramid", blend=forward(pyramid.blend, lambda y, near, *rest: near * 1.0)),
    ),
    Mutant(
        "pyramid-unscaled",
        "attn.scale",
        "the logits of the window are not scaled",
        PYRAMID,
        backend(attention=lambda *given, scale, **rest: PLAIN.attention(*given, scale=1.0, **rest)),
    ),
]

LATER = [
    Mutant(
        "l-pyramid-3",
        "pyramid.window",
        "your window is three keys too wide",
        ("pyramid",),
        with_options(local=lambda c: 3 + (c.config.pe[0][1]["local"] or max(c.L // 8, 1))),
    ),
    Mutant(
        "l-pyramid-sharp",
        "pyramid.gate",
        "your gate is twice as sharp",
        ("pyramid",),
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (2 * x,))),
    ),
]
