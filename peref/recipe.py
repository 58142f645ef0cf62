"""Recipe: how to train, as data. With Config and the corpus, all that a run depends on; a value that
cannot work is refused here, in words.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np

from peref.encodings import fitting
from peref.errors import Misuse
from peref.optim import schedule
from peref.positions import draw_of

RANGES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (  # of settings, and what is expected of them
    ("steps batch accumulate save_every valid_every valid_bytes", lambda x: x >= 1, "at least 1"),
    ("rate eps clip", lambda x: 0 < x < math.inf, "a positive number"),
    ("floor decay", lambda x: 0 <= x <= 1, "a number from 0 to 1"),
    ("beta1 beta2", lambda x: 0 <= x < 1, "a number from 0 to 1"),
    ("warmup", lambda x: x >= 0, "a number of steps, or 0 for none"),
    ("seed", lambda x: 0 <= x < 2**64, "0 or more, of at most 64 bits"),
)


@dataclass(frozen=True)
class Recipe:
    """How to train. A field is annotated with what `train --help` says of it.

    batch       sequences in a micro-batch; accumulate: micro-batches in a step
    rate        peak learning rate, reached after `warmup` steps and falling by a cosine to floor * rate at
                `steps`
    decay       decoupled, on linear maps only; clip: the longest global gradient taken as it is
    positions   random:N or pose:N, drawn (positions.py); none: counted from 0
    """

    steps: Annotated[int, "Optimizer steps."] = 500
    batch: Annotated[int, "Batch size: sequences in a micro-batch."] = 8
    accumulate: Annotated[int, "Gradient accumulation: micro-batches in a step."] = 1
    rate: Annotated[float, "Peak learning rate."] = 3e-3
    warmup: Annotated[int, "Warm-up steps, up to the peak learning rate."] = 50
    floor: Annotated[float, "Final learning rate, as a fraction of the peak."] = 0.1
    beta1: Annotated[float, "AdamW: decay rate of the first moment."] = 0.9
    beta2: Annotated[float, "AdamW: decay rate of the second moment."] = 0.95
    eps: Annotated[float, "AdamW: epsilon."] = 1e-8
    decay: Annotated[float, "Weight decay, of linear layers only."] = 0.1
    clip: Annotated[float, "Gradient-norm clip."] = 1.0
    seed: Annotated[int, "Random seed, of weights and batches."] = 0
    dtype: Annotated[Literal["float32", "float64"], "float32 or float64."] = "float32"
    save_every: Annotated[int, "Steps between checkpoints."] = 50
    valid_every: Annotated[int, "Steps between validations."] = 100
    valid_bytes: Annotated[int, "Bytes of held-out text in each validation."] = 65536
    positions: Annotated[
        str | None, "Draw positions: random:N (sorted, below N) or pose:N (counted, with one skip, below N)."
    ] = None

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            object.__setattr__(self, name, fitting(name, getattr(self, name), kind))
        for names, fits, expected in RANGES:
            for name in names.split():
                if not fits(value := getattr(self, name)):
                    whose = "AdamW's " * (name == "eps")
                    raise Misuse(f"{whose}{name} is {value}; expected {expected}")
        if self.positions is not None:
            draw_of(self.positions)

    @property
    def rule(self) -> dict[str, float]:
        """What AdamW takes, the same in every step."""
        return {name: getattr(self, name) for name in ("decay", "beta1", "beta2", "eps")}

    def numbers(self, step: int) -> np.ndarray:
        """Learning rate, step and clip: what a recorded step reads from device memory. [3], float64."""
        rate = schedule(step, peak=self.rate, warmup=self.warmup, steps=self.steps, floor=self.floor)
        return np.array([rate, step, self.clip])

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Recipe":
        """The recipe of a run.json. Raises Misuse for a setting that this version does not know."""
        if unknown := set(data) - {f.name for f in fields(cls)}:
            what = f"unknown settings of a run: {', '.join(sorted(unknown))}"
            raise Misuse(f"{what}; was this written by a newer peref?")
        return cls(**data)
