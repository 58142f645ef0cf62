"""A case above one operation: a block, a model, ten steps of training, or a trace through a cache.

    block   one layer, pre-norm, the encoding inside: x [B,T,C] -> y [B,T,C]
    model   tokens -> logits and loss, and the gradient of the loss or of the logits; or, in calls through a
            cache, the logits alone
    step    ten steps of AdamW: losses, norms of the gradients, rates, final weights
    trace   attention, or what stands in its place, fed in uneven chunks through a cache

Shapes of models are those of Config: "llama" (RMSNorm, SwiGLU, tied, no biases) and "gpt2" (LayerNorm, GELU,
a head of its own, biases).

Not here: what each computes (compute), which there are (tests/recipes/wholes.py).
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from peref.config import SHAPES, Config, shaped
from peref.golden.spec.cases import MODEL_LEVELS, Case, nested
from peref.model import step_sizes

RECIPE = {"rate": 0.06, "warmup": 3, "steps": 10, "floor": 0.5}
RECIPE |= {"beta1": 0.9, "beta2": 0.95, "eps": 0.1, "decay": 0.3, "clip": 3.0}
MODEL_FACTS = ("shape", "layers", "V", "F", "qk_norm", "shrink")  # facts of a model beside those of a layer


@dataclass(frozen=True)
class ModelCase(Case):
    """As Case, with the sizes of a model.

    block    settings of Config that its shape does not say
    shrink   inputs are k/128 times this, to the nearest of steps of 2**-14
    recipe   of AdamW, see training
    calls    of a trace or a model: (first row, one beyond the last, fresh, n) for each call; fresh: the cache
             is empty before it
    scales   of a trace: its x are k/128 times the first in its first call, times the second in later ones,
             to the nearest of steps of 2**-14
    judged   the output of a model that has a cotangent
    """

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

    @cached_property
    def config(self) -> Config:
        """Of the whole model; a trace has none and takes that of one layer."""
        if self.level == "trace":
            return Case.config.func(self)  # type: ignore[attr-defined]
        qk_norm = {} if self.hook == "mix" else {"qk_norm": self.qk_norm}
        more = {"layers": self.layers, "V": self.V, "F": self.F}
        return shaped(self.shape, **self.layer_settings | more | qk_norm | self.block)

    @property
    def depth(self) -> int:
        """0 but for a trace: the budget of the others is measured with all their sums in it."""
        return super().depth if self.level == "trace" else 0

    def words(self) -> dict[str, Any]:
        found = super().words()
        facts = found["facts"]
        if self.calls:
            keys = ("first", "stop", "fresh", "n")
            facts["calls"] = [dict(zip(keys, call, strict=True)) for call in self.calls]
        if self.level == "trace":
            return found
        facts |= {name: getattr(self, name) for name in MODEL_FACTS}
        facts |= {"block": dict(self.block)} if self.block else {}
        if self.level == "step":
            facts |= {"recipe": dict(self.recipe), "times": step_sizes(self.config)}
        facts |= {name: getattr(self.config, name) for name in (*SHAPES["llama"], "qkv_bias", "eps")}
        return found


def rebuilt(words: dict[str, Any], inputs: dict[str, np.ndarray]) -> Case:
    """The case of any level that these words of cases.json describe."""
    kind, facts = ModelCase if words["level"] in MODEL_LEVELS else Case, words["facts"]
    given = {one.name: nested(facts[one.name]) for one in fields(kind) if one.name in facts}
    places = ("positions", "seg", "seg_keys")
    given |= {name: nested(inputs[name].tolist()) for name in places if name in inputs}
    if "calls" in facts:
        given["calls"] = tuple((c["first"], c["stop"], c["fresh"], c["n"]) for c in facts["calls"])
    slug, options = words["id"].partition("/")[2], nested(words["options"])
    return kind(words["encoding"], words["level"], slug, words["why"], options=options, **given)
