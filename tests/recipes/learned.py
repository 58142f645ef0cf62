"""Golden cases of learned."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.ways import moved_positions, patched

from peref.ops.embedding import take
from recipes.families import UNORDERED, case, laws, positions, refusals, refused, rows, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:1705.03122). Row i of param.table [L,C], with `unit` divided by sqrt(|row|^2 + 1e-24). A position
without a row is refused, never clamped.
"""


def exact(p, i, facts, o):
    rows = [[mp.mpf(x) for x in p["table"][int(place)]] for place in i]
    if o["unit"]:
        rows = [[x / mp.sqrt(mp.fsum(y * y for y in row)) for x in row] for row in rows]
    return [[(x, abs(x), 0) for x in row] for row in rows]


def program(p, i, o, f):
    rows = p["table"][i]
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True) + 1e-24) if o["unit"] else rows


LOGITS = "gpt2"
TRAINED = "gpt2"
CACHED = ("gpt2", "cache.position_restarts")

NOT_FLAGS = ("cache.position_offset",)  # its table ends before

RECIPES = [
    *usual("learned"),
    *rows("learned"),
    case(
        "learned",
        "op",
        "rows",
        "Each sequence has positions of its own; rows that are used twice add up in the gradient.",
        "position.batch",
        positions=(UNORDERED, UNORDERED[::-1]),
    ),
    case(
        "learned",
        "table",
        "last-row",
        "The last row is 15 of 16.",
        "rope.table.clip",
        T=3,
        positions=(15, 0, 15),
    ),
    *together("learned", {"unit": True}),
]

TRAPS = {
    "embed.rows": trap(
        "RANGE",
        "a wrong row of the table, or one row for all",
        "tokens are in the wrong places, or all in one place",
        "take row i for position i, and refuse a position without a row",
    )
}

REFUSED = [
    *refusals("learned"),
    refused(
        "learned",
        "table",
        "beyond",
        "position",
        "The table has rows 0 to 15: there is none for 16, and the last is not it.",
        given=positions(0, 1, 2, 3, 16),
    ),
    refused(
        "learned",
        "table",
        "negative",
        "position",
        "There is no row -1, and the last is not it.",
        given=positions(-1, 0, 1, 2, 3),
    ),
]

LAWS = [*laws("learned")]


# wrong implementations


def row(change):
    """Another row of the table: change(i, rows)."""
    return patched("encodings.embed.learned", take=lambda table, i: take(table, change(i, table.shape[0])))


MUTANTS = [
    Mutant(
        "clips-14",
        "rope.table.clip",
        "your table has one row too few",
        ("learned",),
        moved_positions(lambda i: np.minimum(i, 14), lambda i: i.max() > 14),
    ),
    Mutant(
        "learned-next",
        "position.off_by_one",
        "you read the row after",
        ("learned",),
        row(lambda i, L: (i + 1) % L),
    ),
    Mutant(
        "learned-before",
        "position.off_by_one",
        "you read the row before",
        ("learned",),
        row(lambda i, L: (i - 1) % L),
        held_out=True,
    ),
    Mutant("learned-repeats", "embed.rows", "your rows repeat", ("learned",), row(lambda i, L: i % 4)),
    Mutant(
        "learned-reversed",
        "embed.rows",
        "you read the table from its end",
        ("learned",),
        row(lambda i, L: L - 1 - i),
    ),
    Mutant(
        "learned-clamped",
        "embed.rows",
        "you clamp positions to a row before the last",
        ("learned",),
        row(lambda i, L: np.minimum(i, 4)),
        held_out=True,
    ),
]
