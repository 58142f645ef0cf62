"""Bugs in what is added to the embedding."""

from mutants import Mutant
from mutants.ways import by, hook, hooked, moved_positions


def other_rows(change):
    """The rows are changed: change(rows, positions)."""
    return hook("embed", lambda embed: lambda p, i: by(change, embed(p, i), i))


MUTANTS = [
    Mutant(
        "rows-scaled",
        "embed.scale",
        "your rows are multiplied by sqrt(C)",
        hooked("embed"),
        other_rows(lambda e, i: e * e.shape[-1] ** 0.5),
    ),
    Mutant(
        "rows-shrunk",
        "embed.scale",
        "your rows are divided by sqrt(C)",
        hooked("embed"),
        other_rows(lambda e, i: e * e.shape[-1] ** -0.5),
        held_out=True,
    ),
    Mutant(
        "rows-of-0",
        "embed.rows",
        "every token gets the row of position 0",
        hooked("embed"),
        moved_positions(lambda i: i * 0),
    ),
]
