"""What --pe and --set say, as fields of Config."""

import contextlib
import json
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

from peref.config import Config
from peref.encodings import fitting, get, name_of, options, resolve
from peref.errors import Misuse, did_you_mean

# options of every encoding that fills rotate -> the field that keeps them
OF_ROTATIONS = {"layout": "layout", "rotary_dim": "R"}
CONSTANTS = {"true": True, "false": False, "none": None}


def value_of(text: str) -> Any:
    """What the text after --set NAME= means: one of CONSTANTS, JSON where it is JSON (4, 0.5, null), a list
    where commas part JSON, else itself.
    """
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    for reading in (text, f"[{text}]") if "," in text else (text,):
        with contextlib.suppress(ValueError):  # not JSON, or a number of thousands of digits
            return json.loads(reading)
    return text


def choose(pe: str, given: Iterable[str] = ()) -> dict[str, Any]:
    """Config fields for the command line's --pe NAME[,NAME...] and its --set [INDEX.]NAME=VALUE. A name may
    be a path.

    Without an index an option goes to every member of the cycle that has it. Raises Misuse for a name or an
    option nobody has.
    """
    cycle: list[tuple[str, dict[str, Any]]] = [(name_of(name.strip()), {}) for name in pe.split(",")]
    for name, _ in cycle:
        get(name)
    found: dict[str, Any] = {}
    for item in given:
        key, equals, text = item.partition("=")
        if not equals:
            raise Misuse(f"--set {item}: expected NAME=VALUE, or INDEX.NAME=VALUE for one member of a cycle")
        first, dot, option = key.partition(".")
        if dot and first.isdecimal():
            if int(first) >= len(cycle):
                raise Misuse(f"--set {item}: the cycle {pe} has members 0 to {len(cycle) - 1}")
            members = [cycle[int(first)]]
        else:
            members, option = cycle, key
        if option in OF_ROTATIONS and any(get(name).rotate for name, _ in members):
            if members is not cycle and sum(get(name).rotate is not None for name, _ in cycle) > 1:
                raise Misuse(
                    f"--set {item}: {option} belongs to the whole model, whose weights it arranges; leave "
                    "out the index"
                )
            field = OF_ROTATIONS[option]
            found[field] = fitting(option, value_of(text), get_type_hints(Config)[field])
            continue
        having = [m for m in members if option in resolve(m[0], {})]
        if not having:
            raise Misuse(nobody_has(option, [name for name, _ in members]))
        for name, chosen in having:
            word = text in get_args(options(get(name))[option][1])  # such as "none", where that is a choice
            chosen[option] = text if word else value_of(text)
    return found | {"pe": tuple(cycle)}


def nobody_has(option: str, members: list[str]) -> str:
    """What to say of an option that none of these encodings has."""
    rotations = [*OF_ROTATIONS] if any(get(name).rotate for name in members) else []
    known = list(dict.fromkeys([*(key for name in members for key in resolve(name, {})), *rotations]))
    has = (
        f"{'its' if len(members) == 1 else 'their'} options are: {', '.join(known)}"
        if known
        else "there are no options"
    )
    return f"encoding '{','.join(members)}' has no option '{option}'{did_you_mean(option, known, has)}"
