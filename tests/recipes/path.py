"""Golden cases of path."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import asked, forward, inputs, patched, told
from page import conv, sigmoid, silu, softmax

from peref.encodings.attend import path
from peref.ops import activation
from recipes.families import (
    SMALLER,
    attention,
    basic,
    case,
    laws,
    reading,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap

SPEC = """
(arXiv:2505.16381). `s_ij = q_i' H_i H_(i-1) ... H_(j+1) k_j / sqrt(D)` for j < i and `q_i' k_i / sqrt(D)`
for j = i, with `H_t = I - beta_t w_t w_t'` of the key-value head. out = softmax(s) v. w and beta come from
the layer's input x. First z = W_up W_down x, with param.down.weight [`rank`,C] and param.up.weight [G
D,rank]; if `rank` is null, z = param.w.weight x, [G D,C]. Then u = silu(conv(z)), with conv as below and
param.conv [G D,`kernel`]; if `kernel` is null, u = z. Then w_t = u_t / sqrt(|u_t|^2 + 1e-6), over the D
channels of each head. beta_t = 2 sigmoid(param.beta.weight x_t + param.beta.bias), [G,C] and [G]. `gate`
"forget": the sum over l from j+1 to i of ln sigmoid(param.f.weight x_l + param.f.bias), [H,C] and [H], is
added to s_ij, one for each query head; "scaled": that sum divided by sqrt(D).
"""


def program(p, q, k, x, i, see, o, f, v):
    H, G, T, D = f["H"], f["G"], len(x), f["D"]
    z = x @ p["w.weight"].T if o["rank"] is None else x @ p["down.weight"].T @ p["up.weight"].T
    u = (z if o["kernel"] is None else silu(conv(z, p["conv"]))).reshape(T, G, D)
    w = u / np.sqrt((u**2).sum(-1, keepdims=True) + 1e-6)
    beta = 2 * sigmoid(x @ p["beta.weight"].T + p["beta.bias"])
    out = np.zeros_like(q)
    for h in range(H):
        g = h // (H // G)
        for t in range(T):
            row, s, kept = q[h, t], np.zeros(t + 1), 0.0
            for j in range(t, -1, -1):
                s[j] = row @ k[h, j] / sqrt(D) + kept
                row = row - (row @ w[j, g]) * beta[j, g] * w[j, g]
                if o["gate"] != "none":
                    kept += np.log(sigmoid(x[j] @ p["f.weight"][h] + p["f.bias"][h])) / (
                        sqrt(D) if o["gate"] == "scaled" else 1
                    )
            out[h, t] = softmax(s, see[t, : t + 1]) @ v[h, : t + 1]
    return out


FEW = {"rank": 4}
MORE_FLAGS = {"chunks": ("cache.tail_dropped",)}

RECIPES = [
    *usual(
        "path",
        B=1,
        T=5,
        flags=basic("rank", "kernel"),
        beside={"gate": {"options": {"rank": 4}}, "rank": {"C": 4}},
    ),
    *attention("path", {"rank": 4}),
    case(
        "path",
        "attn",
        "long-kernel",
        "A convolution over more tokens than there are.",
        "basic",
        **SMALLER | {"T": 3},
        options={"rank": 4, "kernel": 5},
    ),
    case(
        "path",
        "attn",
        "blocks",
        "70 tokens: more than the 64 that implementations take at once.",
        "path.order",
        **SMALLER | {"H": 1, "T": 70},
        C=4,
        D=4,
    ),
    case(
        "path",
        "attn",
        "gate",
        "Whether the sum of the forget gates is divided by sqrt(D) with the products.",
        "ambiguous",
        **SMALLER,
        options={"rank": 4, "gate": "forget"},
        variants=(
            reading("forget", "it is not, as in the forgetting transformer"),
            reading("scaled", "it is: fla", gate="scaled"),
        ),
    ),
    case(
        "path",
        "attn",
        "no-convolution",
        "Neither convolution nor SiLU makes w, as fla has it with use_w_shortconv off.",
        "path.w",
        **SMALLER | {"C": 4},
        options={"rank": 4, "kernel": None},
    ),
    case(
        "path",
        "attn",
        "full-rank",
        "One full matrix makes w, as fla has it where heads are grouped.",
        "path.w",
        **SMALLER,
        options={"rank": None},
    ),
    *together("path", {"rank": 4, "kernel": 2, "gate": "forget"}, {"rank": 4, "kernel": 2, "gate": "scaled"}),
]
FULL = (
    "*/together-1*",
    "*/together-2-*",
    "attn/gate-forget",
    "attn/gate-scaled",
    "attn/kernel-6",
    "attn/rank-64",
)

TRAPS = {
    "path.beta": trap(
        "SCALING",
        "another beta",
        "the maps are too weak or too strong: beta 1 is a projection, 2 a reflection",
        "2 sigmoid(W x + b), which is between 0 and 2",
    ),
    "path.w": trap(
        "MISSING_STEP",
        "w does not have length one, or is made differently",
        "the maps stretch instead of turning",
        "the low-rank map, the convolution, silu; then divide by sqrt(|w|^2 + 1e-6) in each head",
    ),
    "path.order": trap(
        "OFF_BY_ONE",
        "the product between key and query has the wrong tokens or the wrong order",
        "each query meets keys that were mapped wrongly",
        "q_i' H_i H_(i-1) ... H_(j+1) k_j: with the map of the query's token, without that of the key's",
    ),
}

MEANS = {
    "parameters": {"beta.*": "path.beta", "conv": "path.w", "down.*": "path.w", "up.*": "path.w"},
    "functions": {
        "silu": "path.w",
        "unit": "path.w",
        "sigmoid": "path.beta",
        "twice": "path.beta",
        "features": "path.w",
        "features.beta": "path.beta",
        "forgotten": "path.order",
        "scores": "path.order",
        "scores.scale": "attn.scale",
    },
}

TOGETHER = [{"rank": None}, {"rank": None, "gate": "forget"}, {"kernel": None}]

REFUSED = [
    *refusals("path"),
    refused("path", "attn", "kernel-0", "setting", "A convolution over no token.", options={"kernel": 0}),
]

LAWS = [*laws("path")]


# wrong implementations

PATH = ("path",)


MUTANTS = [
    Mutant(
        "path-beta-1",
        "path.beta",
        "your beta is not doubled",
        PATH,
        patched("encodings.attend.path", twice=lambda x: x),
    ),
    Mutant(
        "path-beta-half",
        "path.beta",
        "your beta is tripled",
        PATH,
        patched("encodings.attend.path", twice=forward(path.twice, lambda y, x: 3 * x)),
        held_out=True,
    ),
    Mutant(
        "path-beta-tanh",
        "path.beta",
        "your beta is a tanh",
        PATH,
        patched("encodings.attend.path", sigmoid=activation.tanh),
    ),
    Mutant(
        "path-unnormed",
        "path.w",
        "your w has not length one",
        PATH,
        patched("encodings.attend.path", unit=lambda x, eps: x),
    ),
    Mutant(
        "path-no-silu",
        "path.w",
        "there is no silu before the norm",
        PATH,
        patched("encodings.attend.path", silu=lambda x: x),
    ),
    Mutant(
        "path-sigmoid",
        "path.w",
        "you have sigmoid where silu belongs",
        PATH,
        patched("encodings.attend.path", silu=activation.sigmoid),
        held_out=True,
    ),
    Mutant(
        "path-no-conv",
        "path.w",
        "the short convolution is reversed in time",
        PATH,
        inputs(**{"param.conv": lambda w: w[:, ::-1]}),
    ),
    Mutant(
        "path-late",
        "path.order",
        "the map of the next token is used",
        PATH,
        patched(
            "encodings.attend.path",
            scores=asked(path.scores, lambda q, k, w, b: (q, k, np.roll(w, -1, 2), np.roll(b, -1, 2))),
        ),
    ),
    Mutant(
        "path-early",
        "path.order",
        "the map of the token before is used",
        PATH,
        patched(
            "encodings.attend.path",
            scores=asked(path.scores, lambda q, k, w, b: (q, k, np.roll(w, 1, 2), np.roll(b, 1, 2))),
        ),
        held_out=True,
    ),
    Mutant(
        "path-none",
        "path.order",
        "maps of the tokens between are left out",
        PATH,
        patched(
            "encodings.attend.path",
            scores=asked(path.scores, lambda q, k, w, b: (q, k, w, b * (np.arange(b.shape[-1]) % 2))),
        ),
    ),
    Mutant(
        "path-unscaled",
        "attn.scale",
        "your logits are not scaled",
        PATH,
        patched("encodings.attend.path", scores=told(path.scores, scale=1.0)),
    ),
]

LATER = [
    Mutant(
        "l-path-beta",
        "path.beta",
        "your beta is half as large again",
        ("path",),
        patched("encodings.attend.path", twice=forward(path.twice, lambda y, x: 1.5 * y)),
    )
]
