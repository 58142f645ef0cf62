"""Golden cases of dynamic_bias."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, with_options
from page import silu

from peref.ops import activation
from recipes.families import (
    SMALL,
    attention,
    basic,
    case,
    distances,
    laws,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:2108.00154). `W_m y`, m = `depth` + 1, of `y_k = silu(W_k y_(k-1) + a_k)`, k = 1 .. depth. y_0 is the
one number d or, with `distance` "log", sign(d) ln(1 + |d|). W_k is param.k.weight: [`width`,1] the first,
[H,width] the last, [width,width] those between; a_k is param.k.bias [width]. `activation` "relu" replaces
silu. `norm` "layer": before the activation, over the width, `(u - mean)/sqrt(mean of (u - mean)^2 + 1e-5)`
times param.normk.weight plus param.normk.bias. `output` "sigmoid": `16 / (1 + e^-b)` of the result b.
"""


def exact(p, d, facts, o):
    bend = lambda x: max(x, mp.mpf(0)) if o["activation"] == "relu" else x / (1 + mp.exp(-x))
    of = lambda name: (
        [[mp.mpf(x) for x in row] for row in p[name]]
        if name.endswith(".weight") and isinstance(p[name][0], list)
        else [mp.mpf(x) for x in p[name]]
    )
    layers = [(of(f"{n}.weight"), of(f"{n}.bias")) for n in range(1, o["depth"] + 1)]
    norms = [
        (of(f"norm{n}.weight"), of(f"norm{n}.bias")) if o["norm"] == "layer" else None
        for n in range(1, o["depth"] + 1)
    ]
    last = of(f"{o['depth'] + 1}.weight")
    columns = []
    for x in d:
        y = [mp.sign(x) * mp.log(1 + abs(x)) if o["distance"] == "log" else x]
        for (W, b), norm in zip(layers, norms, strict=True):
            y = [mp.fdot(row, y) + c for row, c in zip(W, b, strict=True)]
            if norm:
                mean = mp.fsum(y) / len(y)
                root = mp.sqrt(mp.fsum((z - mean) ** 2 for z in y) / len(y) + mp.mpf(1e-5))
                y = [(z - mean) / root * g + c for z, g, c in zip(y, *norm, strict=True)]
            y = [bend(z) for z in y]
        columns.append(
            [(mp.fdot(row, y), mp.fsum(abs(u * z) for u, z in zip(row, y, strict=True)) + 1) for row in last]
        )
    if o["output"] == "sigmoid":  # its slope is at most 4
        columns = [[(16 / (1 + mp.exp(-b)), 4 * size) for b, size in column] for column in columns]
    return [[(column[h][0], 10 * column[h][1], 0) for column in columns] for h in range(facts["H"])]


def program(p, d, o, f):
    y = (np.sign(d) * np.log(1 + abs(d)) if o["distance"] == "log" else d)[:, None] * 1.0
    for k in range(1, o["depth"] + 1):
        y = y @ p[f"{k}.weight"].T + p[f"{k}.bias"]
        if o["norm"] == "layer":
            off = y - y.mean(-1, keepdims=True)
            y = (
                off / np.sqrt((off**2).mean(-1, keepdims=True) + 1e-5) * p[f"norm{k}.weight"]
                + p[f"norm{k}.bias"]
            )
        y = silu(y) if o["activation"] == "silu" else np.maximum(y, 0)
    b = (y @ p[f"{o['depth'] + 1}.weight"].T).T
    return 16 / (1 + np.exp(-b)) if o.get("output") == "sigmoid" else b


FEW = {"width": 6}
FLAGS = basic("width") | {name: ("dynamic_bias.network", "option") for name in ("activation", "output")}

SHARP = {"trace": {"norm": "layer"}}  # a bias that does not grow on, beside which a key more or less counts

RECIPES = [
    *usual(
        "dynamic_bias",
        without=("across_layers",),
        flags=FLAGS,
        B=1,
        T=5,
        small=FEW,
        beside={"width": {"options": {"depth": 1}}},
    ),
    *distances("dynamic_bias", FEW, sides=("bias.transposed",)),
    *attention("dynamic_bias", FEW),
    case(
        "dynamic_bias",
        "table",
        "log-two-sided",
        "The logarithm keeps the sign: past and future differ.",
        "bias.sign",
        **SMALL,
        causal=False,
        options=FEW | {"distance": "log"},
    ),
    *together(
        "dynamic_bias",
        {
            "width": 6,
            "depth": 1,
            "norm": "layer",
            "distance": "log",
            "activation": "relu",
            "output": "sigmoid",
        },
        {"width": 6, "depth": 1},
        again={"attn": (3, 4, 5)},
        more=(
            FEW | {"norm": "layer", "activation": "relu"},
            FEW | {"norm": "layer", "distance": "log"},
            FEW | {"norm": "layer", "output": "sigmoid"},
        ),
    ),
]
FULL = ("*/together-[1345]-*", "*/together-[25]", "op/spread")

WHOLES = [in_layers("dynamic_bias", across_layers="shared")]

TRAPS = {
    "dynamic_bias.network": trap(
        "MISSING_STEP",
        "another network: its activation, norm or distance",
        "the bias has another shape",
        "apply the activation after each layer but the last, and `norm` before it; the input is d, or "
        "sign(d) ln(1 + |d|) if `distance` is log",
    )
}

MEANS = {
    "options": {
        "distance": "dynamic_bias.network",
        "norm": "dynamic_bias.network",
        "depth": "dynamic_bias.network",
        "activation": "dynamic_bias.network",
        "output": "dynamic_bias.network",
    },
    "parameters": {"*": "dynamic_bias.network"},
    "functions": {
        "silu": "dynamic_bias.network",
        "bias": "dynamic_bias.network",
        "squashed": "dynamic_bias.network",
    },
}

REFUSED = [
    *refusals("dynamic_bias"),
    refused("dynamic_bias", "op", "depth-0", "setting", "A network without layers.", options={"depth": 0}),
]

LAWS = [*laws("dynamic_bias")]


# wrong implementations

MUTANTS = [
    Mutant(
        "network-relu",
        "dynamic_bias.network",
        "your network has relu",
        ("dynamic_bias",),
        patched("encodings.bias.dynamic_bias", silu=activation.relu),
    ),
    Mutant(
        "network-gelu",
        "dynamic_bias.network",
        "your network has gelu",
        ("dynamic_bias",),
        patched("encodings.bias.dynamic_bias", silu=activation.gelu),
        held_out=True,
    ),
    Mutant(
        "network-log",
        "dynamic_bias.network",
        "your distances are logarithms, or are not",
        ("dynamic_bias",),
        with_options(
            distance=lambda case: "log" if case.config.pe[0][1]["distance"] == "linear" else "linear"
        ),
    ),
    Mutant(
        "network-normed",
        "dynamic_bias.network",
        "there is no norm in it",
        ("dynamic_bias",),
        lambda case, a: (
            with_options(norm="none")(case, {n: x for n, x in a.items() if "norm" not in n})
            if case.config.pe[0][1]["norm"] == "layer"
            else None
        ),
    ),
]
