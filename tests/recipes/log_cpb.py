"""Golden cases of log_cpb."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, with_options

from peref.encodings.bias.log_cpb import rows_and_columns, spaced
from peref.ops.activation import silu
from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2111.09883). `16 / (1 + e^-b)` of `b = W_2 relu(W_1 [f(r), f(c)] + a)`, where d is r (2w - 1) + c
with -w < c < w and w = `columns`, so `c = (d + w - 1) mod (2w - 1) - (w - 1)`: positions are row (2w - 1) +
column. f(x) = sign(x) log_8(1 + 8 |x| / m), m = `reach`, w - 1 where that is null, but at least 1. W_1 is
param.1.weight [`width`,2], a param.1.bias [width], W_2 param.2.weight [H,width].
"""


def exact(p, d, facts, o):
    w, reach = o["columns"], o["reach"] or max(o["columns"] - 1, 1)
    f = lambda x: mp.sign(x) * mp.log(1 + 8 * abs(x) / reach) / mp.log(8)
    heads = [[] for _ in range(facts["H"])]
    for x in d:
        r = mp.floor((x + w - 1) / (2 * w - 1))
        given = [f(r), f(x - r * (2 * w - 1))]
        hidden = [
            max(mp.fdot([mp.mpf(u) for u in row], given) + mp.mpf(a), mp.mpf(0))
            for row, a in zip(p["1.weight"], p["1.bias"], strict=True)
        ]
        for head, row in zip(heads, p["2.weight"], strict=True):
            terms = [mp.mpf(u) * z for u, z in zip(row, hidden, strict=True)]
            size = mp.fsum(abs(z) for z in terms) + 1
            head.append((16 / (1 + mp.exp(-mp.fsum(terms))), 40 * size, 0))  # its slope is at most 4
    return heads


def program(p, d, o, f):
    w = o["columns"]
    r = np.floor((d + w - 1) / (2 * w - 1))
    x = np.stack([r, d - r * (2 * w - 1)], -1)
    x = np.sign(x) * np.log(1 + 8 * abs(x) / (o["reach"] or max(w - 1, 1))) / np.log(8)
    return 16 / (1 + np.exp(-p["2.weight"] @ np.maximum(p["1.weight"] @ x.T + p["1.bias"][:, None], 0)))


CORE_ONLY = True
FEW = {"width": 6, "columns": 3}
WINDOW = (0, 1, 2, 5, 6, 7, 10, 11, 12)  # 3 rows of 3
TOGETHER = [{"reach": 5}]

RECIPES = [
    *usual(
        "log_cpb",
        B=1,
        T=5,
        H=4,
        G=2,
        D=4,
        small=FEW,
        flags=basic("width") | {"columns": ("cpb.axes", "option")},
    ),
    *attention("log_cpb", FEW),
    case(
        "log_cpb",
        "table",
        "window-3",
        "A window of 3 by 3: every pair of rows and columns between.",
        "cpb.axes",
        "cpb.spacing",
        **SMALL | {"T": 9},
        positions=WINDOW,
        causal=False,
        options=FEW,
    ),
    case(
        "log_cpb",
        "op",
        "window-4-trained-3",
        "A window of 4 columns, in shares of the one of 3 that it was trained in.",
        "cpb.axes",
        "cpb.spacing",
        **SMALL | {"T": 8},
        positions=(0, 1, 2, 3, 7, 8, 9, 10),
        causal=False,
        options=FEW | {"columns": 4, "reach": 2},
    ),
    case(
        "log_cpb",
        "table",
        "window-1",
        "One column: no columns lie between, and the share of a window is not by 0.",
        "cpb.spacing",
        **SMALL | {"T": 4},
        options=FEW | {"columns": 1},
    ),
    *together("log_cpb", {"width": 6, "columns": 2, "reach": 5}),
]

TRAPS = {
    "cpb.axes": trap(
        "SHAPE",
        "rows and columns between two patches are exchanged, or of another window",
        "the bias of a pair of patches is that of others",
        "d is r (2w - 1) + c with c between -w and w; r is the first input of the network, c the second",
    ),
    "cpb.spacing": trap(
        "SCALING",
        "rows and columns are spaced otherwise",
        "far patches are nearer, or near ones farther",
        "sign(x) log_8(1 + 8 |x| / reach), by the reach of the window trained in",
    ),
    "cpb.network": trap(
        "MISSING_STEP",
        "another network: its activation, or what its result goes through",
        "the bias has another shape",
        "relu after the first layer alone, then 16 sigmoid of the result",
    ),
}

MEANS = {
    "options": {"columns": "cpb.axes", "reach": "cpb.spacing", "width": "basic"},
    "parameters": {"*": "cpb.network", "1.weight": "cpb.axes"},
    "functions": {
        "rows_and_columns": "cpb.axes",
        "spaced": "cpb.spacing",
        "squashed": "cpb.network",
        "relu": "cpb.network",
    },
}

REFUSED = [
    *refusals("log_cpb"),
    refused("log_cpb", "op", "columns-0", "setting", "A window without columns.", options={"columns": 0}),
    refused("log_cpb", "op", "reach-0", "setting", "Shares of nothing.", options={"reach": 0}),
]

LAWS = [*laws("log_cpb")]


# wrong implementations

CPB = ("log_cpb",)
changed = lambda **changes: patched("encodings.bias.log_cpb", **changes)

MUTANTS = [
    Mutant(
        "cpb-transposed",
        "cpb.axes",
        "rows and columns are exchanged",
        CPB,
        changed(rows_and_columns=lambda d, w: rows_and_columns(d, w)[:, ::-1]),
    ),
    Mutant("cpb-columns", "cpb.axes", "your window has other columns", CPB, with_options(columns=5)),
    Mutant(
        "cpb-future",
        "bias.sign",
        "your distances are j - i",
        CPB,
        changed(rows_and_columns=lambda d, w: -rows_and_columns(d, w)),
    ),
    Mutant(
        "cpb-natural",
        "cpb.spacing",
        "your logarithms are not divided by that of 8",
        CPB,
        changed(spaced=lambda x, reach: spaced(x, reach) * np.log(8)),
    ),
    Mutant(
        "cpb-size",
        "cpb.spacing",
        "your shares are of the window's size, not of one less",
        CPB,
        changed(spaced=lambda x, reach: spaced(x, reach + 1)),
    ),
    Mutant(
        "cpb-linear", "cpb.spacing", "there is no logarithm", CPB, changed(spaced=lambda x, reach: x / reach)
    ),
    Mutant("cpb-silu", "cpb.network", "your network has silu", CPB, changed(relu=silu)),
    Mutant(
        "cpb-plain", "cpb.network", "there is no sigmoid", CPB, changed(squashed=lambda b: b), held_out=True
    ),
]
