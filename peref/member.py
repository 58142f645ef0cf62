"""A member of the cycle: an encoding, its options, and the settings of its layers, which are

    window      keys a query sees, as Config's; none: all
    rotary_dim  channels of a head that turn, as Config's R
    layout      which of these are a pair, as Config's
    scale       what q k is multiplied with, instead of what the encoding says

Those that are not given are the model's, or the encoding's. Layers take what means something to them: where
nothing turns there is no layout, where a mix stands in place of attention nothing at all.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from peref.encodings import Encoding, bind, fitting, get, options, positive, resolve

Layout = Literal["half", "interleaved"]
SETTINGS: dict[str, Any] = {"window": int | None, "rotary_dim": int, "layout": Layout, "scale": float}


@dataclass(frozen=True)
class Layer:
    """One layer as a pass reads it. pe has its facts, options and scale filled in."""

    pe: Encoding
    layout: Layout
    window: int | None


def settings_of(pe: Encoding) -> dict[str, Any]:
    """Setting -> annotation, of a layer with this encoding."""
    attending = () if pe.mix else ("window",)
    turning = ("rotary_dim", "layout") if pe.rotate else ()
    scaled = () if pe.mix or pe.attend else ("scale",)
    return {name: SETTINGS[name] for name in (*attending, *turning, *scaled)}


def kinds(name: str) -> dict[str, Any]:
    """Setting or option -> annotation: all that a member of this name may be given."""
    pe = get(name)
    return {option: kind for option, (_, kind) in options(pe).items()} | settings_of(pe)


def settled(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Every option, and the settings that are in `given`, checked. Raises Misuse for what there is not, and
    for values that do not fit.
    """
    known = settings_of(get(name))
    found = resolve(name, {key: value for key, value in given.items() if key not in known})
    mine = {key: fitting(key, value, known[key]) for key, value in given.items() if key in known}
    positive(name, **{key: value for key, value in mine.items() if key != "layout"})
    return found | mine


def bound(
    name: str, given: dict[str, Any], facts: dict[str, Any], layout: Layout, window: int | None
) -> Layer:
    """The layer of a member with these facts; layout and window are the model's."""
    pe = bind(get(name), facts | {"R": given.get("rotary_dim", facts["R"])}, given)
    if "scale" in given:
        pe = replace(pe, scale=partial(given_scale, scale=given["scale"]))
    return Layer(pe, given.get("layout", layout), given.get("window", window))


def given_scale(D: int, *, scale: float) -> float:
    return scale
