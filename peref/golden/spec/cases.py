"""What a case is: one computation, with the reason why it exists.

Not here: models (models), what a case computes (compute); which cases golden/ has, which the recipes say
(tests/recipes/NAME.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref.config import Config
from peref.encodings import get
from peref.member import Layer, turning
from peref.ops.place import At

OPERATIONS = ("table", "op", "attn", "cross")
MODEL_LEVELS = ("block", "model", "step", "trace")
LEVELS = (*OPERATIONS, *MODEL_LEVELS)
LEVELS_OF_HOOK = {  # the first is the one nearest to the formula
    "": ("attn",),
    "embed": ("table", "op"),
    "rotate": ("table", "op", "attn"),
    "bias": ("table", "op", "attn"),
    "score": ("op", "attn"),
    "attend": ("attn",),
    "mix": ("op",),
}
FACTS = ("B", "H", "G", "T", "D", "C", "L", "R", "n", "layout", "causal", "window")


@dataclass(frozen=True)
class Variant:
    """One of several readings of respected sources: other options or facts, or other outputs for the same
    inputs.

    rewrite(case, inputs, outputs) -> outputs; no gradient may be among them.
    """

    name: str
    words: str
    options: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    rewrite: Callable | None = None

    def of(self, case: "Case") -> "Case":
        """The case as this variant reads it."""
        return replace(case, options=case.options | self.options, variants=(), **self.facts)


@dataclass(frozen=True)
class Case:
    """One computation. Sizes differ from one another, so that swapped axes show; letters are those of the
    package.
    """

    encoding: str
    level: str
    slug: str
    why: str
    flags: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    positions: Any = None  # nested tuples, 0, 1, ... where None
    seg: Any = None
    B: int = 2
    H: int = 6
    G: int = 2
    T: int = 7
    D: int = 8
    C: int = 10
    L: int = 16
    R: int | None = None
    n: int | None = 16
    layout: str = "half"
    causal: bool = True
    window: int | None = None
    # members of a model's cycle in place of the encoding, (name, options and settings) each; such a case
    # belongs to no encoding and stands with those of none
    cycle: tuple[tuple[str, dict[str, Any]], ...] = ()
    # of a recurrence: so many tokens stood before, whose state is handed in; then the last one is asked too
    before: int | None = None
    variants: tuple[Variant, ...] = ()  # where sources differ: the first is the norm, and is the case itself
    # keys of another sequence: how many, and their segments; level cross alone has them
    S: int | None = None
    seg_keys: Any = None
    # positions for the budgets, where at those of the case every rounding would break a tie
    untied: Any = None
    off: float = 0.3  # how far its parameters are from where they begin, a standard deviation

    @property
    def hook(self) -> str:
        return get(self.encoding).hook

    @property
    def id(self) -> str:
        return f"{self.encoding}.{self.level}/{self.slug}"

    @property
    def members(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """The cycle of a model's encodings, with their options and the settings of their layers."""
        return self.cycle or ((self.encoding, dict(self.options)),)

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Those of Config that its hook has a meaning for."""
        names = ["H", "D", "C", "L", "causal", *(["G", "window"] if self.hook != "mix" else [])]
        names += ["R", "layout"] if turning(self.encoding) else []
        return {"pe": self.members} | {name: getattr(self, name) for name in names}

    @cached_property
    def config(self) -> Config:
        """A model with one such layer among two."""
        return Config(**self.layer_settings, layers=2)

    @property
    def layer(self) -> Layer:
        """Its layer, of a model the first."""
        return self.config.layer(0)

    @cached_property
    def at(self) -> At:
        """The place of its tokens, as its layer sees them."""
        i = None if self.positions is None else np.array(self.positions)
        seg = None if self.seg is None else np.array(self.seg)
        at = At.of(self.T, positions=i, seg=seg, n=self.n, causal=self.causal, window=self.window)
        return self.layer.place(at)

    @property
    def depth(self) -> int:
        """How many products are summed on the way to one number, about."""
        if self.level == "table" or (self.level == "op" and self.hook in ("embed", "rotate", "bias")):
            return 0
        return self.C + self.D + self.T

    def words(self) -> dict[str, Any]:
        """As it stands in cases.json."""
        facts: dict[str, Any] = {letter: getattr(self, letter) for letter in FACTS}
        facts |= {"R": self.config.R} if turning(self.encoding) else {}
        facts |= {} if self.before is None else {"before": self.before}
        facts |= {"S": self.S} if self.level == "cross" else {}
        if self.cycle:
            facts["cycle"] = [[name, plain_options(given)] for name, given in self.config.pe]
        known = {v.name: v.words for v in self.variants}
        return {
            "id": self.id,
            "encoding": self.encoding,
            "level": self.level,
            "why": self.why,
            "flags": sorted(self.flags),
            "options": {} if self.cycle else plain_options(self.config.pe[0][1]),
            "facts": facts,
            "depth": self.depth,
        } | ({"acceptable": {"norm": self.variants[0].name, "variants": known}} if known else {})


def sized(name: str, level: str, slug: str, why: str, flags: tuple[str, ...] = (), **given: Any) -> Case:
    """A case with the sizes that suit the hook: a layer in place of attention has H heads of D and is
    small.
    """
    if get(name).hook == "mix":
        given = {"H": 3, "D": 4, "C": 5} | given
    return Case(name, level, slug, why, flags, **given)


def yours(name: str, given: dict[str, Any], **facts: Any) -> list[Case]:
    """A case of every level for settings and sizes of the user's."""
    why = "Made for a shape and settings of your own."
    levels = LEVELS_OF_HOOK[get(name).hook]
    return [replace(Case(name, level, "yours", why), options=given, **facts) for level in levels]


def plain_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: list(x) if isinstance(x, tuple) else x for name, x in given.items()}


def nested(x: Any) -> Any:
    """Lists, also in lists and objects, as tuples."""
    if isinstance(x, dict):
        return {name: nested(one) for name, one in x.items()}
    return tuple(map(nested, x)) if isinstance(x, list) else x
