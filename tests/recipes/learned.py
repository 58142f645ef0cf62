"""Golden cases of learned."""

from recipes.families import laws, positions, refusals, refused, rows, usual

RECIPES = [
    *usual("learned"),
    *rows("learned"),
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
