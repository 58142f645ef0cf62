"""A config.json and the objects in it: reading the file, numbers out of it, errors and notes with places."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from peref.encodings import LARGEST_OPTION, SMALLEST_OPTION
from peref.errors import Damaged, Misuse, explained
from peref.huggingface.facts import DIFFERS, MEANS, OWN, TEXT

WORDS = {dict: "an object", list: "a list", str: "a word", bool: "true or false", int: "a number"}


def load_json(path: Path, what: str = "the config.json of a model") -> dict[str, Any]:
    """The JSON object in a file. Raises PerefError, naming it, for a file that cannot be read and Damaged
    for what is no JSON object; `what` is expected there.
    """
    with explained(path, "read"):
        text = path.read_bytes()
    return json_object(text, path, what)


def json_object(text: bytes, path: Path, what: str = "the config.json of a model") -> dict[str, Any]:
    """The JSON object in the bytes of a file, as load_json."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = error or type(error).__name__
        raise Damaged(f"{path}: not JSON: {why}; expected {what}") from error
    if not isinstance(found, dict):
        raise Damaged(f"{path}: holds a {type(found).__name__}; expected an object, {what}")
    return found


class Note(NamedTuple):
    """Something to know of a key: one of the kinds in the docstring of the package, the key with its
    place, words.
    """

    kind: str
    key: str
    says: str


@dataclass
class Keys:
    """One object of the file, of a model of the class `kind`. Remembers what was asked for, so that the rest
    can be named.
    """

    values: Mapping[str, Any]
    where: str = ""  # its place in the file, "" for the top
    notes: list[Note] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    kind: str = ""

    def note(self, kind: str, key: str, says: str) -> None:
        self.notes.append(Note(kind, self.at(key), says))

    def differs(self, key: str, what: str, **said: Any) -> None:
        """A note on what others do, in the words of DIFFERS."""
        self.note("differs", key, DIFFERS[what].format(**said))

    def at(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, *kinds: type) -> Any:
        """The value, None where it is absent or null. Raises Misuse for one of another kind."""
        self.asked.add(key)
        value = self.values.get(key)
        odd = isinstance(value, bool) and bool not in kinds
        if value is not None and (odd or not isinstance(value, kinds)):
            raise Misuse(f"{self.at(key)} is {brief(value)}; expected {WORDS[kinds[0]]}")
        return value

    def number(self, key: str) -> float | None:
        value = self.get(key, int, float)
        if value and not SMALLEST_OPTION <= abs(value) <= LARGEST_OPTION:
            raise Misuse(f"{self.at(key)} is {brief(value)}; expected a finite number such as a model has")
        return None if value is None else float(value)

    def size(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and (value < 1 or value != int(value)):
            what = f"{self.at(key)} is {brief(self.values[key])}"
            raise Misuse(f"{what}; expected a whole number of at least 1")
        return None if value is None else int(value)

    def numbers(self, key: str, what: str) -> tuple[float, ...]:
        """A list of them, `what` they are."""
        given = self.get(key, list)
        each = Keys({str(n): value for n, value in enumerate(given or ())}, self.at(key))
        found = tuple(x for name in each.values if (x := each.number(name)) is not None)
        if not found or len(found) < len(given):
            has = f"{self.where} has no {key}" if given is None else f"{self.at(key)} is {brief(given)}"
            raise Misuse(f"{has}; expected a list of {what}")
        return found

    def own(self, key: str, what: str = "number") -> Any:
        """What a key says, or what the class has where it is not there, with a note that says so."""
        found = getattr(self, what)(key)
        if found is None and (found := OWN[key].get(self.kind)) is not None:
            shown = digits(found) if isinstance(found, int | float) else found
            shown = MEANS.get(key, "{}").format(shown)
            self.note("assumed", key, f"absent; {shown}, as the class has it")
        return found

    def rest(self) -> Iterator[tuple[str, Any]]:
        """What is on and nobody asked for."""
        for key, value in self.values.items():
            if key not in self.asked and value is not None and value is not False:
                yield key, value

    def needed(self, key: str, of: str) -> float:
        if (value := self.number(key)) is None:
            raise Misuse(f"{self.where or 'the config'} has no {key}, which rope_type {of} needs")
        return value

    def first(self, keys: tuple[str, ...], what: str = "number") -> tuple[str, Any]:
        """The first of these keys that is there, with its value."""
        found = ((key, getattr(self, what)(key)) for key in keys)
        return next((one for one in found if one[1] is not None), ("", None))


def text_of(public: Mapping[str, Any]) -> Keys:
    """That part of a config.json that is about text."""
    top = Keys(public)
    while "num_attention_heads" not in top.values and (
        inner := next((key for key in TEXT if isinstance(top.values.get(key), dict)), None)
    ):
        top = Keys(top.values[inner], top.at(inner))
    return top


def brief(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:56] + " ..."


def digits(number: float) -> str:
    """As it is written in a file: 32768 and not 32768.0."""
    return str(int(number)) if number == int(number) else f"{number:.6g}"
