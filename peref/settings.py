"""What --pe, --set and --model say, as fields of Config."""

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

from peref.config import OF_FIELDS
from peref.encodings import fitting, name_of
from peref.errors import Misuse, did_you_mean
from peref.member import by_hooks, kinds, nobody_has, settings_of
from peref.modules import is_path, names_joined

# settings of layers that are the whole model's where no member is named -> the field that keeps them
OF_ROTATIONS = {"layout": "layout", "rotary_dim": "R"}
CONSTANTS = {"true": True, "false": False, "none": None}


def value_of(text: str, kind: Any = None) -> Any:
    """What the text after --set NAME= means: itself where the annotation `kind` has it as a choice, such as
    "none"; one of CONSTANTS, JSON where it is JSON (4, 0.5, null), a list where commas part JSON, else the
    text.
    """
    if text in get_args(kind):
        return text
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    for reading in (text, f"[{text}]") if "," in text else (text,):
        with contextlib.suppress(ValueError):  # not JSON, or a number of thousands of digits
            return json.loads(reading)
    return text


def choose(pe: str, given: Iterable[str] = (), of: str = "") -> dict[str, Any]:
    """Config fields for the command line's --pe NAME[+NAME...][,NAME...] and its --set
    [INDEX.][ENCODING.]NAME=VALUE, before which `of` stands. A name may be a path.

    NAME is an option of the encoding or a setting of its layers (member.py). Without an index it goes to
    every member of the cycle that has it. Raises Misuse for a name or an option nobody has.
    """
    cycle: list[tuple[str, dict[str, Any]]] = [(member_named(word), {}) for word in pe.split(",")]
    found: dict[str, Any] = {}
    for item in given:
        key, equals, text = item.removeprefix(of).partition("=")
        if not equals or not key.rpartition(".")[2]:
            expected = f"{of}NAME=VALUE, or {of}INDEX.NAME=VALUE for one member of a cycle"
            raise Misuse(f"--set {item}: expected {expected}")
        first, dot, option = key.partition(".")
        if dot and first.isdecimal():
            if int(first) >= len(cycle):
                raise Misuse(f"--set {item}: the cycle {pe} has members 0 to {len(cycle) - 1}")
            members = [cycle[int(first)]]
        else:
            members, option = cycle, key
        turning = [m for m in cycle if "layout" in settings_of(m[0])]
        if option in OF_ROTATIONS and turning and all(m in members for m in turning):
            kind = OF_FIELDS[OF_ROTATIONS[option]]
            found[OF_ROTATIONS[option]] = fitting(option, value_of(text, kind), kind)
            continue
        having = [(m, key) for m in members for key in meant(option, m[0])]
        if not having:
            raise Misuse(nobody_has(option, [name for name, _ in members]))
        for (name, chosen), key in having:
            chosen[key] = value_of(text, kinds(name)[key])
    return found | {"pe": tuple(cycle)}


def member_named(given: str) -> str:
    """The member of a cycle that names and paths with + between them mean. Raises Misuse for what is none."""
    words = [word.strip() for word in names_joined(given)]
    for word in words[1:]:
        if is_path(word) and not word.startswith(".") and not os.path.isfile(word):
            what = "a path with a + in it begins with ./, as ./c++/mine.py"
            raise Misuse(f"{word}: no such file; expected a file of Python; {what}")
    return by_hooks("+".join(map(name_of, words)))


def model_fields(given: Iterable[str]) -> dict[str, Any]:
    """Config fields for the command line's --model NAME=VALUE. Raises Misuse for a name that none has, for
    one that is there twice, and for the cycle, which --pe says.
    """
    found: dict[str, Any] = {}
    known = list(OF_FIELDS)
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or name in found:
            raise Misuse(f"--model {item}: expected NAME=VALUE, each name once")
        if name not in known:
            has = f"its fields are: {', '.join(known)}"
            raise Misuse(f"--model {item}: a model has no field '{name}'{did_you_mean(name, known, has)}")
        kind = OF_FIELDS[name]
        found[name] = fitting(name, value_of(text, kind), kind)
    return found


def meant(option: str, name: str) -> list[str]:
    """What [ENCODING.]NAME is called in a member: without its encoding that of each. Raises Misuse where it
    is a setting of the layer too.
    """
    known = kinds(name)
    found = [key for key in known if option in (key, f"{name}.{key}") or key.partition(".")[2] == option]
    if option in found[1:]:
        raise Misuse(f"--set {option}: of {name} that may be {' or '.join(found)}; say {found[0]}=VALUE")
    return found


def other_choices(default: Any, kind: Any) -> tuple[Any, ...]:
    """Values that an option may have beside its default: all of a choice, twice a number, half of a share,
    which ends at 1.
    """
    if isinstance(default, bool):
        return (not default,)
    if get_origin(kind) is Literal:
        return tuple(v for v in get_args(kind) if v != default)
    if type(default) in (int, float) and default:
        return (default / 2 if 0.5 < default < 1 else 2 * default,)
    return ()
