"""A config.json and the objects in it: reading the file, numbers out of it, errors that say where."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peref.encodings import LARGEST_OPTION, SMALLEST_OPTION
from peref.errors import Damaged, Misuse, explained


def load_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises PerefError, naming it, for a file that cannot be read and Damaged
    for what is no JSON object.
    """
    with explained(path, "read"):
        text = path.read_bytes()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(
            f"{path}: not JSON: {error or type(error).__name__}; expected the config.json of a model"
        ) from error
    if not isinstance(found, dict):
        raise Damaged(
            f"{path}: holds a {type(found).__name__}; expected an object, the config.json of a model"
        )
    return found


@dataclass
class Keys:
    """One object of the file. Remembers what was asked for, so that the rest can be named."""

    values: Mapping[str, Any]
    where: str = ""  # its place in the file, "" for the top
    read: set[str] = field(default_factory=set)

    def at(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, *kinds: type) -> Any:
        """The value, None where it is absent or null. Raises Misuse for one of another kind."""
        self.read.add(key)
        value = self.values.get(key)
        if value is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            said = {
                dict: "an object",
                list: "a list",
                str: "a word",
                bool: "true or false",
                int: "a number",
                float: "a number",
            }
            raise Misuse(
                f"{self.at(key)} is {brief(value)}; expected "
                f"{' or '.join(dict.fromkeys(said[k] for k in kinds))}"
            )
        return value

    def number(self, key: str) -> float | None:
        value = self.get(key, int, float)
        if value is None:
            return None
        if not (value == 0 or SMALLEST_OPTION <= abs(value) <= LARGEST_OPTION):
            raise Misuse(f"{self.at(key)} is {brief(value)}; expected a finite number such as a model has")
        return float(value)

    def size(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and (value < 1 or value != int(value)):
            raise Misuse(
                f"{self.at(key)} is {brief(self.values[key])}; expected a whole number of at least 1"
            )
        return None if value is None else int(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        given = self.get(key, list)
        if given is None:
            raise Misuse(
                f"{self.where} has no {key}; expected a list of numbers, one for each pair of channels"
            )
        each = Keys({str(n): value for n, value in enumerate(given)}, self.at(key))
        found = tuple(each.number(name) for name in each.values)
        if not found or None in found:
            raise Misuse(
                f"{self.at(key)} is {brief(given)}; expected a list of numbers, one for each pair of channels"
            )
        return tuple(x for x in found if x is not None)

    def needed(self, key: str, of: str) -> float:
        if (value := self.number(key)) is None:
            raise Misuse(f"{self.where or 'the config'} has no {key}, which rope_type {of} needs")
        return value

    def first(self, keys: tuple[str, ...], what: str = "number") -> tuple[str, Any]:
        """The first of these keys that is there, with its value."""
        return next(
            ((key, value) for key in keys if (value := getattr(self, what)(key)) is not None), ("", None)
        )


def brief(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:56] + " ..."


def digits(number: float) -> str:
    """As it is written in a file: 32768 and not 32768.0."""
    return str(int(number)) if number == int(number) else f"{number:.6g}"
