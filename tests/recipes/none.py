"""Golden cases of none."""

from recipes import cross, settings
from recipes.families import (
    HEADS_2,
    SMALL,
    SMALLER,
    attention,
    away,
    case,
    law,
    laws,
    reading,
    refusals,
    refused,
    usual,
)
from recipes.wholes import aligned

FULL = (*settings.FULL, "attn/heads-apart")
MUTANTS = settings.MUTANTS + cross.MUTANTS
TRAPS = settings.TRAPS | cross.TRAPS

SPEC = """
(arXiv:2305.19466). Nothing says where a token is, except the mask.
"""


RECIPES = [
    *usual("none", T=5),
    *attention("none"),
    case(
        "none",
        "attn",
        "window-1",
        "A window of 1: a query sees itself alone, and the output is v.",
        "mask.window",
        **SMALLER,
        window=1,
    ),
    case(
        "none",
        "attn",
        "longformer",
        "Two-sided, 2 keys on each side beside the query: 5 in all.",
        "mask.window",
        **SMALL,
        causal=False,
        window=3,
    ),
    case(
        "none",
        "attn",
        "heads-12",
        "12 query heads share 4 key-value heads, three to one.",
        "gqa.order",
        **SMALLER | {"H": 12, "G": 4},
    ),
    case(
        "none",
        "attn",
        "heads-apart",
        "Padding, documents, a window and groups of heads, all at once.",
        "mask.documents",
        **dict(away("none", "attn"))["-groups"],
    ),
    case(
        "none", "attn", "one-token", "A single token: its output is its value.", "basic", **SMALL | {"T": 1}
    ),
    case(
        "none",
        "attn",
        "two-sided-window",
        "A window of 3 that sees both sides: of 5 keys, or of 3 in all.",
        "ambiguous",
        **SMALLER,
        causal=False,
        window=3,
        variants=(
            reading("each", "|i - j| < 3, 2 keys on each side: Longformer's attention_window of 4"),
            reading("all", "3 keys in all, 1 on each side", facts={"window": 2}),
        ),
    ),
    *settings.CASES,
    *cross.CASES,
]

WHOLES = [*aligned("none", "128"), *settings.WHOLES]

REFUSED = [
    *refusals("none"),
    refused(
        "none",
        "attn",
        "window-0",
        "mask",
        "A window of no key: a query sees itself at least.",
        facts={"window": 0},
    ),
    refused(
        "none",
        "attn",
        "groups",
        "heads",
        "3 query heads cannot share 2 key-value heads.",
        facts={"G": 2},
        given=HEADS_2,
    ),
    refused(
        "none",
        "attn",
        "lengths",
        "shape",
        "Keys of 4 tokens beside values of 5.",
        given={"k": {"dtype": "F64", "shape": [1, 1, 4, 8]}},
    ),
    refused(
        "none",
        "attn",
        "mask-length",
        "mask",
        "A mask of 6 tokens for 5.",
        given={"seg": {"dtype": "I64", "values": [[1, 1, 1, 1, 1, 1]]}},
    ),
    refused(
        "none",
        "attn",
        "mask-rows",
        "mask",
        "A mask of two sequences for one.",
        given={"seg": {"dtype": "I64", "values": [[1] * 5] * 2}},
    ),
    refused(
        "none",
        "attn",
        "document-apart",
        "mask",
        "A document that goes on after another one.",
        given={"seg": {"dtype": "I64", "values": [[1, 2, 2, 1, 1]]}},
    ),
    refused(
        "none",
        "attn",
        "whole-numbers",
        "dtype",
        "Queries are whole numbers: nothing real can come out.",
        given={"q": {"dtype": "I64", "shape": [1, 3, 5, 8]}},
    ),
]

LAWS = [
    *laws("none"),
    law(
        "none",
        "attn",
        "order",
        "Nothing says where a token is: in another order they give the same, in that order.",
        causal=False,
    ),
    law("none", "attn", "softmax", "A number added to a whole row of scores changes nothing."),
]
