"""Does a model turn q and k at all? Its config.json may say so, say otherwise, or say nothing."""

from collections.abc import Mapping
from typing import Any, NoReturn

from peref.errors import Misuse
from peref.huggingface import facts
from peref.huggingface.facts import SAVED
from peref.huggingface.keys import Keys
from peref.huggingface.rotation import Note


def check_turns(public: Mapping[str, Any], top: Keys, kind: str, notes: list[Note]) -> None:
    """Raises Misuse for a model that does not turn q and k, by what its file or its class says, and where
    neither says anything of it.
    """
    said, alibi = (
        top.get("position_embedding_type", str) or "",
        top.get("alibi", bool) or top.get("use_alibi", bool),
    )
    rotary = bool(facts.TURNS.search(said.lower()))
    turns = rotary or any(facts.TURNS.search(key) for key in (*public, *top.values))
    if said == "absolute" and turns and kind not in facts.NO_ROTATION:
        says = (
            "'absolute', which classes that have BERT's settings write whatever they compute; the keys of a "
            "rotation count"
        )
        notes.append(Note("ignored", top.at("position_embedding_type"), says))
    elif said and not rotary:
        no_rotation(f"position_embedding_type {said!r}", facts.TYPES.get(said.lower()))
    if kind in facts.PLANES and top.get("position_encoding_2d", bool):
        raise Misuse(
            f"position_encoding_2d of a {kind}: half of the channels turn by the place in the answer; no "
            "encoding here does that"
        )
    if alibi or (kind in facts.NO_ROTATION and not rotary):
        no_rotation(f"model_type {kind}", "alibi" if alibi else facts.NO_ROTATION[kind])
    if not turns and not any(kind in kinds.split() for kinds in facts.LAYOUTS.values()):
        says = (
            "is not known here, and nothing in the config says that it turns q and k; expected rope_theta "
            "or the like"
        )
        raise Misuse(f"model_type {kind} {says}; {SAVED}")


def no_rotation(what: str, other: str | None) -> NoReturn:
    positions = (
        "no encoding here is that" if other is None else f"its positions are those of the encoding {other}"
    )
    raise Misuse(f"{what} turns nothing: {positions}; expected a model with rotations")
