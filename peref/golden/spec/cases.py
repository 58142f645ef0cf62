"""What a case is: one computation, with the reason why it exists. Its level says of what:

    table   what the encoding says of positions or distances alone
    op      the encoding, applied; attn: attention with it; cross: attention to another sequence
    block   one layer, pre-norm, the encoding inside: x [B,T,C] -> y [B,T,C]
    model   tokens -> logits and loss, and the gradient of the loss or of the logits; or, in calls through a
            cache, the logits alone
    step    ten steps of AdamW: losses, norms of the gradients, rates, final weights
    trace   attention, or what stands in its place, fed in uneven chunks through a cache

Shapes of models are those of Config: "llama" (RMSNorm, SwiGLU, tied, no biases) and "gpt2" (LayerNorm, GELU,
a head of its own, biases).

Not here: what a case computes (compute); which cases golden/ has, which the recipes say
(tests/recipes/NAME.py, tests/recipes/wholes.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref.config import SHAPES, Config, shaped
from peref.encodings import get
from peref.member import Layer, turning
from peref.model import step_sizes
from peref.ops.place import At

OPERATIONS = ("table", "op", "attn", "cross")
OF_MODEL = ("block", "model", "step")  # in the full set alone, which has cases of op and attn too
MODEL_LEVELS = (*OF_MODEL, "trace")
LEVELS = (*OPERATIONS, *MODEL_LEVELS)
EVERY_LEVEL = (*LEVELS, "refuse", "law")  # of refusals and laws too, which have no tensors
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
MODEL_FACTS = ("shape", "layers", "V", "F", "qk_norm", "shrink")  # facts of a model beside those of a layer
RECIPE = {"rate": 0.06, "warmup": 3, "steps": 10, "floor": 0.5}
RECIPE |= {"beta1": 0.9, "beta2": 0.95, "eps": 0.1, "decay": 0.3, "clip": 3.0}


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
    package. Of levels above one operation:

    block    settings of Config that its shape does not say
    shrink   inputs are k/128 times this, to the nearest of steps of 2**-14
    recipe   of AdamW, see training
    calls    of a trace or a model: (first row, one beyond the last, fresh, n) for each call; fresh: the cache
             is empty before it
    scales   of a trace: its x are k/128 times the first in its first call, times the second in later ones,
             to the nearest of steps of 2**-14
    judged   the output of a model that has a cotangent
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
    shape: str = "llama"
    layers: int = 1
    V: int = 17
    F: int = 14
    qk_norm: bool = False
    block: dict[str, Any] = field(default_factory=dict)
    shrink: float = 1.0
    recipe: dict[str, Any] = field(default_factory=lambda: dict(RECIPE))
    calls: tuple[tuple[int, int, bool, int], ...] = ()
    scales: tuple[float, float] = (1.0, 1.0)
    judged: str = "loss"

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
        """The whole model; of an operation or a trace, a model with one such layer among two."""
        if self.level not in OF_MODEL:
            return Config(**self.layer_settings, layers=2)
        qk_norm = {} if self.hook == "mix" else {"qk_norm": self.qk_norm}
        more = {"layers": self.layers, "V": self.V, "F": self.F}
        return shaped(self.shape, **self.layer_settings | more | qk_norm | self.block)

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
        """How many products are summed on the way to one number, about. 0 of a model: its budget is measured
        with all its sums in it.
        """
        short = self.level == "op" and self.hook in ("embed", "rotate", "bias")
        if short or self.level in ("table", *OF_MODEL):
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
        if self.calls:
            keys = ("first", "stop", "fresh", "n")
            facts["calls"] = [dict(zip(keys, call, strict=True)) for call in self.calls]
        if self.level in OF_MODEL:
            facts |= {name: getattr(self, name) for name in MODEL_FACTS}
            facts |= {"block": dict(self.block)} if self.block else {}
            facts |= {name: getattr(self.config, name) for name in (*SHAPES["llama"], "qkv_bias", "eps")}
        if self.level == "step":
            facts |= {"recipe": dict(self.recipe), "times": step_sizes(self.config)}
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


def rebuilt(words: dict[str, Any], inputs: dict[str, np.ndarray]) -> Case:
    """The case of any level that these words of cases.json describe."""
    facts, places = words["facts"], ("positions", "seg", "seg_keys")
    given = {one.name: nested(facts[one.name]) for one in fields(Case) if one.name in facts}
    given |= {name: nested(inputs[name].tolist()) for name in places if name in inputs}
    if "calls" in facts:
        given["calls"] = tuple((c["first"], c["stop"], c["fresh"], c["n"]) for c in facts["calls"])
    slug, options = words["id"].partition("/")[2], nested(words["options"])
    return Case(words["encoding"], words["level"], slug, words["why"], options=options, **given)


def plain_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: list(x) if isinstance(x, tuple) else x for name, x in given.items()}


def nested(x: Any) -> Any:
    """Lists, also in lists and objects, as tuples."""
    if isinstance(x, dict):
        return {name: nested(one) for name, one in x.items()}
    return tuple(map(nested, x)) if isinstance(x, list) else x
