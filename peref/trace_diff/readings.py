"""What an engine may have computed instead, made from what the config says: another config (other_config), a
step made another way (other_steps), other parameters (other_weights).

Not a list of bugs that somebody had: each reading is a model with one thing changed, and computes. What
Config and layers refuse in words cannot be, and is no reading; any other error is one of peref.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from peref.errors import Misuse
from peref.trace import OF_LAYER, OUTSIDE
from peref.trace_diff.other_config import of_encodings, of_fields, of_other_members, of_place, of_settings
from peref.trace_diff.other_steps import of_ends, of_rows, of_streams, of_tables
from peref.trace_diff.other_weights import of_weights
from peref.trace_diff.steps import Engine, Said

LAYERS_WITH_PARAMETERS = 2  # that are tried, of those that may be wrong


@dataclass(frozen=True)
class Reading:
    """`does`: what theirs does; `says`: what the config, or the reference, does; the engine that does it, and
    which of FAMILIES it is of.
    """

    does: str
    says: str
    engine: Engine
    family: int = -1


def other_engine(engine: Engine, cfg: Any = (), params: Any = (), at: Any = (), **rest: Any) -> Engine:
    """With other fields of these. Raises Misuse for an engine that cannot be."""
    place = replace(engine.at, **dict(at)) if at else engine.at
    other = replace(engine.cfg, **dict(cfg)) if cfg else engine.cfg
    found = replace(engine, cfg=other, at=place, params={**engine.params, **dict(params)}, **rest)
    if not cfg:
        vars(found)["shapes"] = engine.shapes
    assert found.made
    return found


ATTENDING = {"q_turned", "k_turned", "bias", "scores", "probabilities", "heads"}
MIXING = {"ffn", "output", *ATTENDING}
ALL_STEPS = {*OF_LAYER, *OUTSIDE}
# The likely and simple ones first: what gives them; of which layers ("members": each kind of layer in the
# cycle, "layers": some that may be wrong, "model": none); the steps that they change
FAMILIES: tuple[tuple[Callable[[Engine, int], Iterator[Said]], str, set[str]], ...] = (
    (of_other_members, "members", {"q", "k", "v", *MIXING}),
    (of_encodings, "members", {"q", "k", *MIXING}),
    (of_settings, "members", MIXING),
    (of_place, "model", {"embedded", "loss", *MIXING}),
    (of_fields, "model", ALL_STEPS),
    (of_tables, "members", ATTENDING),
    (of_rows, "members", set(OF_LAYER)),
    (of_streams, "members", set(OF_LAYER)),
    (of_weights, "layers", ALL_STEPS),
    (of_ends, "model", set(OUTSIDE)),
)


def readings(engine: Engine, layers: list[int], steps: set[str]) -> Iterator[Reading]:
    """All that change one of these steps of these layers; -1 is what stands before and behind them."""
    first = {layer % len(engine.cfg.pe): layer for layer in layers[::-1] if layer >= 0}
    scopes = {"model": [-1], "members": [*first.values()], "layers": layers[:LAYERS_WITH_PARAMETERS]}
    for number, (family, scope, changes) in enumerate(FAMILIES):
        for layer in scopes[scope] if changes & steps else ():
            for does, says, change in family(engine, layer):
                if "ways" in change and not steps & change["ways"].keys():
                    continue
                with contextlib.suppress(Misuse):
                    made = other_engine(engine, **change)
                    more = without(engine, made) if scope == "model" else ""
                    yield Reading(f"{does}{more}", says, made, number)


def without(engine: Engine, other: Engine) -> str:
    """In words, which parameters another engine has not."""
    gone = dict.fromkeys(name.partition(".")[2] for name in engine.params if name not in other.made.params)
    return f", without {', '.join(gone)}" if gone else ""
