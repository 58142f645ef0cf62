"""Golden cases of learned_bias."""

import numpy as np
from exact import plain
from mpmath import mp
from mutants import Mutant
from mutants.ways import backend, moved_distances

from peref.ops.embedding import take
from recipes.families import (
    SMALL,
    attention,
    away,
    case,
    distances,
    laws,
    positions,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap

SPEC = """
(arXiv:1910.10683). param.table[h, d], [H,L]; two-sided param.table[h, d + L - 1], [H,2L-1]. `max_distance`
m: d is clipped to 0 .. m, two-sided to -m .. m, and m replaces L - 1.
"""


def exact(p, d, facts, o):
    last = facts["L"] - 1 if o["max_distance"] is None else o["max_distance"]
    first = 0 if facts["causal"] else -last
    return plain(
        [[mp.mpf(p["table"][h][min(max(int(x), first), last) - first]) for x in d] for h in range(facts["H"])]
    )


def program(p, d, o, f):
    last = f["L"] - 1 if o["max_distance"] is None else o["max_distance"]
    return p["table"][:, np.clip(d, 0, last) if f["causal"] else np.clip(d, -last, last) + last]


NOT_FLAGS = ("cache.not_cleared",)  # it has no row for what is then before the past

RECIPES = [
    *usual("learned_bias", B=1, T=5),
    *distances("learned_bias", reach=60, sides=("bias.transposed",)),
    *attention("learned_bias"),
    case(
        "learned_bias",
        "table",
        "last-row",
        "Distances 0 and 15 of a table of 16.",
        "bias.bucket.clamp",
        T=2,
        positions=(0, 15),
    ),
    case(
        "learned_bias",
        "table",
        "max-distance-3",
        "Two-sided, clipped: distances from 3 on, and from -3 on, share the last entry of their side.",
        "bias.bucket.clamp",
        "bias.sign",
        **SMALL,
        causal=False,
        options={"max_distance": 3},
    ),
    case(
        "learned_bias",
        "attn",
        "heads-apart",
        "Positions with gaps, padding, a window and groups of heads, all at once.",
        "bias.bucket.clamp",
        **dict(away("learned_bias", "attn"))["-groups"] | {"positions": (0, 2, 3, 7)},
        options={"max_distance": 3},
    ),
    *together("learned_bias", {"max_distance": 3}, again={"attn": ()}),
    *together("learned_bias", {}, first=2, causal=False),
]
FULL = ("attn/heads-apart", "attn/together-*-groups")

TRAPS = {
    "bias.rows": trap(
        "RANGE",
        "a wrong row of a learned table",
        "a distance has the number of another distance",
        "take row d; two-sided tables begin with the farthest future: row d + L - 1",
    )
}

MEANS = {
    "options": {"max_distance": "bias.bucket.clamp"},
    "functions": {"bias": "bias.rows", "ends": "bias.rows"},
}

TOGETHER = [{"max_distance": 3}]

REFUSED = [
    *refusals("learned_bias"),
    refused(
        "learned_bias",
        "op",
        "beyond",
        "position",
        "The table ends at distance 15: there is none for 16.",
        given=positions(0, 1, 2, 3, 16),
    ),
    refused(
        "learned_bias",
        "op",
        "max-distance-0",
        "setting",
        "A table of one entry says nothing.",
        options={"max_distance": 0},
    ),
]

LAWS = [*laws("learned_bias")]


# wrong implementations

MUTANTS = [
    Mutant(
        "table-first",
        "bias.rows",
        "the table of learned biases is read from its end",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, t.shape[0] - 1 - d)),
    ),
    Mutant(
        "table-clamped",
        "bias.rows",
        "far distances share a row",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, np.minimum(d, 3))),
    ),
    Mutant(
        "table-short",
        "bias.bucket.clamp",
        "the farthest distance has the entry of the one before",
        ("learned_bias",),
        moved_distances(lambda d: np.minimum(d, 14)),
    ),
    Mutant(
        "table-cut-early",
        "bias.bucket.clamp",
        "the last entry for far distances is never used",
        ("learned_bias",),
        lambda case, a: (
            moved_distances(lambda d: np.clip(d, 1 - m, m - 1))(case, a)
            if (m := case.config.pe[0][1]["max_distance"])
            else None
        ),
    ),
    Mutant(
        "table-rolled",
        "bias.rows",
        "you read the row beside",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, (d + 1) % t.shape[0])),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-rows-by-two",
        "bias.rows",
        "you read every other row",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, 2 * d % t.shape[0])),
    )
]
