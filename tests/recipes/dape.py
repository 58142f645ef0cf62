"""Golden cases of dape."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import patched

from peref.golden.compute import operation
from peref.golden.spec.cases import Case
from peref.ops import activation
from peref.ops.shape import join
from peref.tape import value
from recipes.families import PACKED, attention, basic, case, laws, refusals, refused, together, usual
from recipes.traps import trap
from recipes.wholes import CHUNKS, FEW_HEADS, in_calls

SPEC = """
(arXiv:2405.14722). `W_2 leaky(W_1 [s; b] + a)` over the heads of a cell. s = q k/sqrt(D) of all H heads
comes first, then b of all heads: the bias of another encoding in the layer, as in alibi+dape, which is added
to the scores besides. Without one W_1 sees s alone. leaky(z) is z, or z/100 below 0. W_1 is param.1.weight
[`width`,2H or H], a param.1.bias [width], W_2 param.2.weight [H,width]. Cells that are not seen have no
influence.
"""


def program(p, q, k, x, i, see, o, f, b=None):
    s = np.einsum("htd,hsd->hts", q, k) / sqrt(f["D"])
    leaky = lambda z: np.where(z > 0, z, z / 100)
    every = s if b is None else np.concatenate([s, b])
    inside = np.einsum("wh,hts->wts", p["1.weight"], every) + p["1.bias"][:, None, None]
    return np.einsum("hw,wts->hts", p["2.weight"], leaky(inside))


FEW = {"width": 5}


def beside(other, *flags, **given):
    """Together with the bias of another encoding."""
    return case(
        "dape",
        "attn",
        f"beside-{other.replace('_', '-')}",
        f"In a layer with {other}: the network sees its bias too, which is added besides.",
        "dape.bias",
        *flags,
        cycle=((f"{other}+dape", {"dape.width": 5}),),
        **{"H": 3, "G": 1, "D": 4} | given,
    )


RECIPES = [
    *usual("dape", B=1, T=5, small=FEW, flags=basic("width")),
    *attention("dape", FEW),
    beside("alibi", "mask.padding", seg=PACKED),
    beside("kerple_log", "dape.network", B=1, T=5),
    *together("dape", FEW, flag="basic", first=5),
]
FULL = ("*/together-*-groups", "attn/together-*", "op/width-64")

WHOLES = [
    Case(
        "dape",
        "trace",
        "beside-alibi",
        "The network sees the bias over all keys, those of earlier calls included.",
        ("cache.position_restarts", "cache.bias_dropped", "cache.ignored", "mask.top_left"),
        cycle=(("alibi+dape", {"dape.width": 5}),),
        calls=in_calls(CHUNKS),
        T=9,
        **FEW_HEADS,
    )
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
    "parameters": {"1.*": "dape.network", "2.*": "dape.network"},
    "functions": {
        "score": "dape.network",
        "network": "dape.network",
        "network.b": "dape.bias",
        "relu": "dape.network",
        "hidden": "dape.network",
        "hidden.b": "dape.bias",
    },
}

REFUSED = [
    *refusals("dape"),
    refused(
        "dape", "attn", "width-0", "setting", "A network without a hidden channel.", options={"width": 0}
    ),
]

LAWS = [*laws("dape")]


# wrong implementations


def added(times):
    """The bias beside the network is added so often."""

    def run(case, a):
        if not case.cycle:
            return None
        usual = operation.scores
        changed = lambda q, k, table, *terms, **how: usual(q, k, times * value(table), *terms, **how)
        return patched("golden.compute.operation", scores=changed)(case, a)

    return run


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
        "the bias beside your network is not added to the scores",
        ("dape",),
        added(0),
    ),
    Mutant(
        "dape-twice-bias",
        "dape.bias",
        "the bias beside your network counts twice",
        ("dape",),
        added(2),
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
    )
]
