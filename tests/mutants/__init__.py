"""Wrong implementations, on purpose: each is the reference with one bug in it, most of them bugs that
somebody had.

A mutant is a record: what it is called, the trap that it falls into (a flag), which encodings have it, and a
function that computes a case wrongly. Those of one encoding stand in its recipe, as MUTANTS; here are those
that several have, by hook, and what both are made with. Held-out ones are never used to make near-miss
probes: the diagnosis is scored on them as on a stranger's bug. They are the same traps written another way,
with other numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Any

import recipes

FILES = ("anywhere", "embed", "rotate", "scalings", "bias", "mix", "delta")


@dataclass(frozen=True)
class Mutant:
    """One bug."""

    name: str
    flag: str
    words: str  # what the implementation does, said to its author: "your ..."
    of: tuple[str, ...]  # encodings
    run: Callable[[Any, Any], Any]  # (case, inputs) -> tensors, or None where the bug cannot show
    refs: tuple[str, ...] = ()
    held_out: bool = False

    def wrong(self, case: Any, a: Any) -> dict[str, Any] | None:
        """The tensors that it gives for a case of one of its encodings."""
        return self.run(case, a)


def mutants() -> list[Mutant]:
    of = lambda file: import_module(f"mutants.{file}").MUTANTS
    own = [m for name in recipes.files() for m in getattr(recipes.module(name), "MUTANTS", ())]
    found = [m for file in FILES for m in of(file)] + own + of("gradient")
    names = [m.name for m in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two mutants are called {next(n for n in names if names.count(n) > 1)}")
    return found


def some_of(every: int) -> list[tuple[Mutant, str]]:
    """One mutant in so many, each with one of its encodings, drawn by digests of their names: what is added
    changes nothing of the others.
    """
    digest = lambda words: int(sha256(words.encode()).hexdigest(), 16)
    drawn = [m for m in mutants() if digest(m.name) % every == 0]
    return [(m, min(m.of, key=lambda encoding, m=m: digest(f"{m.name} in {encoding}"))) for m in drawn]
