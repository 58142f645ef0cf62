"""What some cases have in common and others have not: facts and options, and what their positions and tokens
are.
"""

from collections.abc import Callable, Sequence

import numpy as np

from peref.golden.spec.entries import Entry

SIZES = ("B", "H", "G", "T", "D", "C", "L", "R", "n", "F", "V", "layers")


def facts_of(entry: Entry) -> list[str]:
    """Facts and options of a case with their values, and in words what its positions and tokens are."""
    facts, inputs = entry.words["facts"], entry.words["inputs"]
    every = facts | {f"option {name}": x for name, x in entry.words["options"].items()}
    found = [f"{name} {x}" for name, x in every.items() if not isinstance(x, list | dict)]
    said = {
        "padding or packed documents": "seg" in inputs,
        "a rotary width below the head width": bool(facts.get("R")) and facts["R"] < facts["D"],
    }
    if "positions" in inputs:
        i = entry.input("positions")
        said |= {
            "positions of several sequences": i.ndim == 2,
            "positions of several axes": i.ndim == 3,
            "positions that are not 0, 1, 2, ...": (i != np.arange(i.shape[-1])).any(),
            "positions that are not whole": (i != np.rint(i)).any(),
            "negative positions": (i < 0).any(),
            "positions beyond the length trained for": i.max() >= facts["L"],
        }
    return found + [words for words, true in said.items() if true]


def shared_by(bad: Sequence[Entry], good: Sequence[Entry], of: Callable[[Entry], list[str]]) -> list[str]:
    """What all failing cases have, and none of the right ones; nothing where there are no right ones."""
    if not good:
        return []
    shared = set.intersection(*(set(of(entry)) for entry in bad)).difference(*map(of, good))
    return [one for one in of(bad[0]) if one in shared]


def shared_facts(bad: Sequence[Entry], good: Sequence[Entry]) -> list[str]:
    """The facts of these, but for sizes, which differ by chance."""
    return [one for one in shared_by(bad, good, facts_of) if one.split()[0] not in SIZES]
