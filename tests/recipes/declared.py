"""What a recipe says in words alone, without expected numbers: laws, and calls that must be refused.

Not here: how they are judged (peref/golden/judge).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peref.golden.compute.reference import inputs
from peref.golden.spec.cases import Case


@dataclass(frozen=True)
class Law:
    """A law, and the case whose settings and sizes it is evaluated with."""

    law: str
    case: Case
    slug: str

    @property
    def id(self) -> str:
        return f"{self.case.encoding}.law/{self.slug}"

    def words(self) -> dict[str, Any]:
        """As it stands in cases.json."""
        of = self.case.words()
        found = {
            "id": self.id,
            "level": "law",
            "law": self.law,
            "call": self.case.level,
            "flags": [f"law.{self.law}"],
        }
        return found | {key: of[key] for key in ("encoding", "why", "options", "facts")}


@dataclass(frozen=True)
class Refusal:
    """A good case, and what is wrong in the call: settings, facts and inputs that replace its own."""

    good: Case
    slug: str
    kind: str
    why: str
    options: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    # name -> {"dtype", "shape"} or {"dtype", "values"}, None: left out
    given: dict[str, Any] = field(default_factory=dict)
    or_else: str | None = None

    @property
    def id(self) -> str:
        return f"{self.good.encoding}.refuse/{self.slug}"

    def words(self) -> dict[str, Any]:
        """As it stands in cases.json."""
        good = self.good.words()
        arrays = {
            name: described(x, name)
            for name, x in inputs(self.good).items()
            if not name.startswith("cotangent.")
        } | self.given
        plain = lambda value: list(value) if isinstance(value, tuple) else value
        found = {
            "id": self.id,
            "encoding": self.good.encoding,
            "level": "refuse",
            "call": self.good.level,
            "kind": self.kind,
            "why": self.why,
            "flags": [f"refuse.{self.kind}"],
            "options": good["options"] | {key: plain(value) for key, value in self.options.items()},
            "facts": good["facts"] | self.facts,
            "inputs": {name: x for name, x in arrays.items() if x is not None},
            "result": "acceptable" if self.or_else else "refuse",
        }
        return found | ({"or": self.or_else} if self.or_else else {})


def described(x: np.ndarray, name: str) -> dict[str, Any]:
    """Positions by their values, all others by their shape."""
    dtype = {"f": "F64", "i": "I64"}[x.dtype.kind]
    return (
        {"dtype": dtype, "values": x.tolist()}
        if name in ("positions", "seg", "distances")
        else {"dtype": dtype, "shape": list(x.shape)}
    )
