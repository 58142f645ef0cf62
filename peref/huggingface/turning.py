"""Does a model turn q and k at all? Its config.json may say so, say otherwise, or say nothing."""

from collections.abc import Mapping
from typing import Any, NoReturn

from peref.errors import Misuse
from peref.huggingface import facts
from peref.huggingface.facts import SAVED
from peref.huggingface.keys import Keys


def check_turns(public: Mapping[str, Any], top: Keys, kind: str) -> None:
    """Raises Misuse for a model that does not turn q and k, by what its file or its class says, and where
    neither says anything of it.
    """
    said = top.get("position_embedding_type", str) or ""
    alibi = top.get("alibi", bool) or top.get("use_alibi", bool)
    rotary = bool(facts.TURNS.search(said.lower()))
    turns = rotary or any(facts.TURNS.search(key) for key in (*public, *top.values))
    if said == "absolute" and turns and kind not in facts.NO_ROTATION:
        says = "'absolute', which classes with BERT's settings write whatever they compute"
        top.note("ignored", "position_embedding_type", f"{says}; the keys of a rotation count")
    elif said and not rotary:
        no_rotation(f"position_embedding_type {said!r}", facts.TYPES.get(said.lower()))
    if kind in facts.PLANES and top.get("position_encoding_2d", bool):
        what = f"position_encoding_2d of a {kind}: half of the channels turn by the place in the answer"
        raise Misuse(f"{what}; no encoding here does that")
    if alibi or (kind in facts.NO_ROTATION and not rotary):
        no_rotation(f"model_type {kind}", "alibi" if alibi else facts.NO_ROTATION[kind])
    if not turns and kind not in facts.LAYOUT:
        what = f"model_type {kind} is not known here, and nothing in the config says that it turns q and k"
        raise Misuse(f"{what}; expected rope_theta or the like; {SAVED}")


def no_rotation(what: str, other: str | None) -> NoReturn:
    said = f"its positions are those of the encoding {other}" if other else "no encoding here is that"
    raise Misuse(f"{what} turns nothing: {said}; expected a model with rotations")
