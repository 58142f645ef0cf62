"""Golden cases of learned."""

from recipes.families import UNORDERED, case, laws, positions, refusals, refused, rows, usual

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
    case("learned", "table", "last-row", "The last row is 15 of 16.", "rope.table.clip", T=3, positions=(15, 0, 15)),
]

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
    refused("learned", "table", "negative", "position", "There is no row -1, and the last is not it.", given=positions(-1, 0, 1, 2, 3)),
]

LAWS = [
    *laws("learned"),
]
