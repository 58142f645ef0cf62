"""Golden cases of dape."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import patched
from page import share, slopes, softplus

from peref.ops import activation
from peref.ops.shape import add, join
from recipes.families import PACKED, attention, basic, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2405.14722). `b + W_2 leaky(W_1 [s; b] + a)` over the heads of a cell. s = q k/sqrt(D) of all H heads
comes first, then b of all heads. b is a static bias, `over`: kerple_log with param.r1, param.r2; alibi;
fire with threshold 512, eps 1e-6, leaky in place of relu and parameters param.fire.*; none: there is no b,
and W_1 sees s alone. leaky(z) is z, or z/100 below 0. W_1 is param.1.weight [`width`,2H], a param.1.bias
[width], W_2 param.2.weight [H,width]. Cells that are not seen have no influence.
"""


def program(p, q, k, x, i, see, o, f):
    s, d = np.einsum("htd,hsd->hts", q, k) / sqrt(f["D"]), np.subtract.outer(i, i)
    leaky = lambda z: np.where(z > 0, z, z / 100)
    b = np.zeros((0, *d.shape))
    if o["over"] == "kerple_log":
        r1, r2 = (softplus(p[name])[:, None, None] for name in ("r1", "r2"))
        b = -r1 * np.log(1 + r2 * abs(d))
    elif o["over"] == "alibi":
        b = -np.array(slopes(f["H"], 8.0))[:, None, None] * abs(d)
    elif o["over"] == "fire":
        u = share(p["fire.c"], p["fire.m"], i, 512, 1e-6)[..., None]
        b = (leaky(u @ p["fire.1.weight"].T + p["fire.1.bias"]) @ p["fire.2.weight"].T).transpose(2, 0, 1)
    inside = np.einsum("wh,hts->wts", p["1.weight"], np.concatenate([s, b])) + p["1.bias"][:, None, None]
    return (b if len(b) else 0) + np.einsum("hw,wts->hts", p["2.weight"], leaky(inside))


FEW = {"width": 5}
OVER = {
    "over-alibi": ("alibi.slopes.exponent",),
    "over-fire": ("dape.network",),
    "over-none": ("dape.network",),
}

MORE_FLAGS = {"positions": ("cache.position_restarts",)}

RECIPES = [
    *usual(
        "dape", B=1, T=5, small=FEW, flags=OVER | basic("width"), beside={"over": {"B": 1, "T": 5, "D": 4}}
    ),
    *attention("dape", FEW),
    case(
        "dape",
        "attn",
        "alibi",
        "Over ALiBi's bias, with padding: the mask comes after the network.",
        "mask.padding",
        seg=PACKED,
        H=3,
        G=1,
        D=4,
        options=FEW | {"over": "alibi"},
    ),
    *together("dape", {"over": "fire", "width": 5}, {"over": "alibi", "width": 5}),
    *together("dape", {"over": "none", "width": 5}, first=3, flag="basic"),
    *together("dape", {"over": "kerple_log", "width": 5}, first=4),
]

TRAPS = {
    "dape.network": trap(
        "MISSING_STEP",
        "another network across the heads",
        "every cell gets a wrong correction",
        "W_2 leaky(W_1 [s; b] + a) with slope 0.01, before the mask: first the scores of all heads, then "
        "their biases",
    ),
    "dape.bias": trap(
        "MISSING_STEP",
        "the static bias beside the network is missing, or added twice",
        "only the network sees the distance",
        "s + b + network: b is an input of the network and is also added",
    ),
}

MEANS = {
    "parameters": {
        "r1": "kerple.parameters",
        "r2": "kerple.parameters",
        "r3": "kerple.parameters",
        "1.*": "dape.network",
        "2.*": "dape.network",
    },
    "functions": {"network": "dape.network", "network.b": "dape.bias", "relu": "dape.network"},
    "terms": {"missing": "dape.network", "scaled": "dape.network", "shifted": "dape.bias"},
}

REFUSED = [
    *refusals("dape"),
    refused(
        "dape", "attn", "width-0", "setting", "A network without a hidden channel.", options={"width": 0}
    ),
]

LAWS = [
    *laws("dape"),
]


# wrong implementations

MUTANTS = [
    Mutant(
        "dape-no-leak",
        "dape.network",
        "your network has relu",
        ("dape",),
        patched("encodings.score.dape", LEAK=0.0),
    ),
    Mutant(
        "dape-leak",
        "dape.network",
        "your network leaks 0.2",
        ("dape",),
        patched("encodings.score.dape", LEAK=0.2),
        held_out=True,
    ),
    Mutant(
        "dape-silu",
        "dape.network",
        "your network has silu",
        ("dape",),
        patched("encodings.score.dape", relu=lambda x, slope: activation.silu(x)),
    ),
    Mutant(
        "dape-no-bias",
        "dape.bias",
        "the static bias is not added beside the network",
        ("dape",),
        patched("encodings.score.dape", add=lambda b, y: y),
    ),
    Mutant(
        "dape-twice-bias",
        "dape.bias",
        "the static bias counts twice",
        ("dape",),
        patched("encodings.score.dape", add=lambda b, y: add(add(b, b), y)),
        held_out=True,
    ),
    Mutant(
        "dape-order",
        "dape.network",
        "bias and logits are joined in the other order",
        ("dape",),
        patched("encodings.score.dape", join=lambda a, b, axis: join(b, a, axis=axis)),
    ),
]

LATER = [
    Mutant(
        "l-dape-leak",
        "dape.network",
        "your network leaks 0.1",
        ("dape",),
        patched("encodings.score.dape", LEAK=0.1),
    ),
]
