"""A JSON value held against a JSON schema: as much of draft 2020-12 as the schemas of golden/, of run.json
and of checkpoints use.

Not here: reading JSON; what no schema can say.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
TEXT, OBJECT, LIST = {"type": "string"}, {"type": "object"}, {"type": "array"}
COUNT, NUMBER, FLAG = {"type": "integer", "minimum": 0}, {"type": "number"}, {"type": "boolean"}
NAMES = LIST | {"items": TEXT}
JSON_TYPES: dict[str, tuple[Any, str]] = {  # "" is any
    "": (object, "anything"),
    "object": (dict, "an object"),
    "array": (list, "a list"),
    "string": (str, "text"),
    "boolean": (bool, "true or false"),
    "null": (type(None), "null"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
}
# keyword -> the type that it speaks of, whether a value keeps to it, what is expected
KEYWORDS: dict[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "type": ("", lambda x, kinds: any(of_type(x, kind) for kind in listed(kinds)), "{}"),
    "const": ("", lambda x, only: type(x) is type(only) and x == only, "{}"),
    "enum": ("", lambda x, known: x in known, "one of {}"),
    "pattern": ("string", lambda x, text: bool(re.search(text.replace("$", r"\Z"), x)), "text like {}"),
    "minLength": ("string", lambda x, least: len(x) >= least, "at least {} characters"),
    "maxLength": ("string", lambda x, most: len(x) <= most, "at most {} characters"),
    "minItems": ("array", lambda x, least: len(x) >= least, "at least {} of them"),
    "minProperties": ("object", lambda x, least: len(x) >= least, "at least {} of them"),
    "required": ("object", lambda x, names: set(names) <= set(x), "an object with {}"),
    "minimum": ("number", lambda x, least: x >= least, "at least {}"),
    "maximum": ("number", lambda x, most: x <= most, "at most {}"),
}
ABOUT = {"$schema", "$defs", "title", "description"}  # keywords that ask for nothing


def fields(needed: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The schema of an object that has these fields and may have more."""
    return {"type": "object", "required": list(needed), "properties": needed | more}


def listed(x: Any) -> list[Any]:
    """x in a list of its own, unless it is a list."""
    return x if isinstance(x, list) else [x]


def named(one: Any, word: str) -> str:
    """What a keyword asks for, as a message says it."""
    return JSON_TYPES[one][1] if word == "type" else one if isinstance(one, str) and one else brief(one)


def of_type(x: Any, name: str) -> bool:
    """Whether a value of JSON has the type that the schema calls `name`; true and false are no numbers."""
    return isinstance(x, JSON_TYPES[name][0]) and (name in ("boolean", "") or not isinstance(x, bool))


def misfit(x: Any, schema: Schema, at: str = "", root: Schema | None = None) -> str:
    """The first place where a value is not as a schema says, and what was expected; "" where it is.

    `at` is the place of `x` in the value, `root` the schema that this one is a part of.
    """
    root = schema if root is None else root
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    for word, rule in schema.items():
        if word in KEYWORDS:
            kind, keeps, expected = KEYWORDS[word]
            if of_type(x, kind) and not keeps(x, rule):
                names = ", ".join(named(one, word) for one in listed(rule))
                said = schema.get("description", expected.format(names))
                return f"{at or 'it'} is {brief(x)}; expected {said}"
        elif word == "oneOf":
            if sum(not misfit(x, one, at, root) for one in rule) != 1:
                return f"{at or 'it'} is {brief(x)}; expected one of {len(rule)} kinds of value"
        elif word not in ABOUT:
            for one, of, where in parts(x, schema, word, at):
                if of is False:
                    return f"{at or 'it'} has an unknown key, {brief(one)}"
                if said := misfit(one, of, where, root):
                    return said
    return ""


def parts(x: Any, schema: Schema, word: str, at: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of a value that a keyword speaks of, what each must be (False: not there), its place."""
    rule, dot = schema[word], f"{at}." if at else ""
    inside = x if isinstance(x, dict) else {}
    match word:
        case "items":
            yield from ((one, rule, f"{at}[{n}]") for n, one in enumerate(x if isinstance(x, list) else ()))
        case "prefixItems":
            pairs = enumerate(zip(x if isinstance(x, list) else (), rule, strict=False))
            yield from ((one, of, f"{at}[{n}]") for n, (one, of) in pairs)
        case "properties":
            yield from ((x[name], rule[name], f"{dot}{name}") for name in rule if name in inside)
        case "propertyNames":
            yield from ((name, rule, f"a name in {at or 'it'}") for name in inside)
        case "additionalProperties":
            more = [name for name in inside if name not in schema.get("properties", ())]
            yield from ((x[name] if rule else name, rule, f"{dot}{brief(name)}") for name in more)
        case _:
            raise ValueError(f"the schema asks for {word}, which is not known here")


def brief(x: Any) -> str:
    """A value as JSON, its beginning where it is long."""
    text = json.dumps(x)
    return text if len(text) <= 60 else f"{text[:56]} ..."
