"""Golden cases of stick_breaking."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.ways import asked, forward, patched, told
from page import sigmoid

from peref.encodings.attend.stick_breaking import breaking, nearer, stick_weights
from peref.ops.activation import logistic, softplus
from peref.ops.attention import probabilities, scores
from peref.tape import Op
from recipes.families import SMALLER, attention, case, laws, refusals, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2410.17980). `w_ij = beta_ij times the product over l, j < l < i, of (1 - beta_il)` with `beta_ij =
sigmoid(q_i k_j / sqrt(D))`, where j and l are keys that query i sees, in the order of their slots and without
its own; out = sum of w v, so 0 where it sees no other. `current` "first": its own key is one of them, the
nearest: `j <= i` and `j < l <= i`. "rest": its own value is added with the weight `1 - sum of w`, the product
over all l of (1 - beta_il).
"""


def program(p, q, k, x, i, see, o, f, v):
    beta = sigmoid(np.einsum("htd,hsd->hts", q, k) / sqrt(q.shape[-1]))
    out = np.zeros_like(q)
    for t in range(len(see)):
        left = np.ones(len(q))
        for j in range(t, -1, -1):
            if see[t, j] and (j < t or o["current"] == "first"):
                out[:, t] += (left * beta[:, t, j])[:, None] * v[:, j]
                left = left * (1 - beta[:, t, j])
        if o["current"] == "rest":
            out[:, t] += left[:, None] * v[:, t]
    return out


CORE_ONLY = True

RECIPES = [
    *usual("stick_breaking", B=1, T=5, D=4, flags={"current": ("stick_breaking.current",)}),
    *attention("stick_breaking"),
    case(
        "stick_breaking",
        "attn",
        "longer",
        "Twelve tokens: what is left for far keys is a product of many factors.",
        "stick_breaking.order",
        "stick_breaking.product",
        "stick_breaking.share",
        **SMALLER | {"T": 12, "D": 4},
    ),
    *together("stick_breaking", {"current": "first"}, {"current": "rest"}, again={"attn": (1, 2)}),
    *together("stick_breaking", flag="basic", first=3, again={"attn": (3,)}, more=({},)),
]

TRAPS = {
    "stick_breaking.share": trap(
        "MISSING_STEP",
        "the weights are made otherwise than by breaking a stick",
        "rows sum to 1 where nothing in the text is worth reading, or to more",
        "sigmoid of the scaled logit, times what nearer keys left; no softmax and no division by the sum",
    ),
    "stick_breaking.order": trap(
        "SIGN",
        "the stick is broken from the far end",
        "the oldest tokens take all, and the nearest get what is left",
        "begin with the key before the query and go back: the product is over the keys between both",
    ),
    "stick_breaking.product": trap(
        "OFF_BY_ONE",
        "the product has a factor too many or too few",
        "every weight is too small or too large",
        "l from j + 1 to i - 1: without the key's own, and without keys that the query does not see",
    ),
    "stick_breaking.current": trap(
        "OFF_BY_ONE",
        "the query's own token is read where it is not, or not as it is",
        "a token that sees no other reads itself in place of nothing, or it takes a share before all others",
        "none: not at all; first: as the nearest key; rest: with what the others leave",
    ),
}

MEANS = {
    "options": {"current": "stick_breaking.current"},
    "functions": {
        "nearer": "stick_breaking.order",
        "stick_weights": "stick_breaking.share",
        "breaking": "stick_breaking.current",
        "own_cells": "stick_breaking.current",
        "scores.scale": "attn.scale",
    },
}

REFUSED = [*refusals("stick_breaking")]

LAWS = [*laws("stick_breaking")]


# wrong implementations

STICK = ("stick_breaking",)
changed = lambda only=None, **changes: patched("encodings.attend.stick_breaking", only, **changes)
weights = lambda change: forward(stick_weights, change)
current = lambda case: case.config.pe[0][1]["current"]


def open_to_all(s, *, at, current):
    """The weights, where keys that are not seen break theirs off too."""
    w = np.where(breaking(at, current), logistic(s) * np.exp(nearer(-softplus(s))), 0)
    return w, (w, logistic(s), True, None)


MUTANTS = [
    Mutant(
        "stick-softmax",
        "stick_breaking.share",
        "you have a softmax",
        STICK,
        changed(stick_weights=lambda s, at, current: probabilities(s, at=at)),
    ),
    Mutant(
        "stick-normed",
        "stick_breaking.share",
        "your weights are divided by their sum",
        STICK,
        changed(stick_weights=weights(lambda w, s: w / np.maximum(w.sum(-1, keepdims=True), 1e-9))),
    ),
    Mutant(
        "stick-minus",
        "stick_breaking.share",
        "beta and 1 - beta are exchanged",
        STICK,
        changed(stick_weights=asked(stick_weights, lambda s: (-s,))),
        held_out=True,
    ),
    Mutant(
        "stick-far-first",
        "stick_breaking.order",
        "your stick is broken from the first token on",
        STICK,
        changed(nearer=lambda x: x.cumsum(-1) - x),
    ),
    Mutant(
        "stick-no-product",
        "stick_breaking.product",
        "nothing is taken from keys farther back",
        STICK,
        changed(nearer=lambda x: 0 * x),
    ),
    Mutant(
        "stick-own-factor",
        "stick_breaking.product",
        "the key's own factor is in the product",
        STICK,
        changed(nearer=lambda x: x[..., ::-1].cumsum(-1)[..., ::-1]),
    ),
    Mutant(
        "stick-late",
        "stick_breaking.product",
        "the factor of the next key is left out",
        STICK,
        changed(nearer=lambda x: nearer(x) - np.append(x[..., 1:], 0 * x[..., :1], -1)),
        held_out=True,
    ),
    Mutant(
        "stick-hidden",
        "stick_breaking.product",
        "keys that the query does not see break off shares",
        STICK,
        changed(lambda case: current(case) != "rest", stick_weights=Op(open_to_all, stick_weights.backward)),
    ),
    Mutant(
        "stick-reads-itself",
        "stick_breaking.current",
        "every query reads its own token as the nearest key",
        STICK,
        changed(lambda case: current(case) == "none", breaking=lambda at, current: at.see),
    ),
    Mutant(
        "stick-rest-lost",
        "stick_breaking.current",
        "nobody takes the rest",
        STICK,
        changed(
            lambda case: current(case) == "rest",
            stick_weights=told(stick_weights, current="none"),
        ),
    ),
    Mutant(
        "stick-first-lost",
        "stick_breaking.current",
        "the query's own token takes the rest, not the first share",
        STICK,
        changed(
            lambda case: current(case) == "first",
            stick_weights=told(stick_weights, current="rest"),
        ),
        held_out=True,
    ),
    Mutant(
        "stick-unscaled",
        "attn.scale",
        "your logits are not scaled",
        STICK,
        changed(scores=told(scores, scale=1.0)),
    ),
]

LATER = [
    Mutant(
        "l-stick-half",
        "stick_breaking.share",
        "half a share is broken off",
        STICK,
        changed(stick_weights=weights(lambda w, s: w / 2)),
    )
]
