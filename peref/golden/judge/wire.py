"""A case on its way to another program: its inputs as a file, its words as lines that need no JSON parser."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from peref.golden.spec.files import DTYPE_NAMES, Tensor, encoded_tensors, index_of, narrowed

PLACES = ("positions", "seg", "seg_keys", "distances")  # inputs that are places: they keep their dtype


LARGEST_OUTPUT = 1 << 30  # bytes of a file of tensors
LEAST_ROOM = 1 << 20  # for headers, and for what is small in any case
NO_AXES = ("L", "n")  # facts that are lengths of the past or of frequencies, not of an output


def room(case: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> int:
    """Bytes that the outputs of a case can have at most, in float64: none has more numbers than batch times
    heads times the square of the longest axis that facts or inputs have.
    """
    facts = {name: x for name, x in case.get("facts", {}).items() if type(x) is int and name not in NO_AXES}
    longest = max([1, *facts.values(), *(n for x in inputs.values() for n in np.shape(x))])
    numbers = facts.get("B", 1) * facts.get("H", 1) * longest * longest
    return min(LEAST_ROOM + 8 * max(1, len(case.get("expected", ()))) * numbers, LARGEST_OUTPUT)


def has_no_dtype(name: str, x: np.ndarray) -> bool:
    """Whether an input is the same in whatever dtype a case is asked."""
    return x.dtype.kind != "f" or name in PLACES


def real_in(inputs: Mapping[str, np.ndarray], kind: Any) -> dict[str, np.ndarray]:
    """Inputs of which real ones are in a dtype of NumPy, and places as they are."""
    return {name: x.copy() if has_no_dtype(name, x) else x.astype(kind) for name, x in inputs.items()}


def encoded_inputs(inputs: Mapping[str, np.ndarray], dtype: str) -> bytes:
    """A safetensors file of the inputs, real ones in `dtype`: the numbers are on a grid that every dtype
    holds. Wide numbers come first, so each tensor begins at a multiple of its width.
    """
    given = {name: narrowed(x, dtype.upper()) for name, x in inputs.items() if not has_no_dtype(name, x)}
    given |= {name: Tensor(DTYPE_NAMES[x.dtype], x) for name, x in inputs.items() if has_no_dtype(name, x)}
    return encoded_tensors(given)


def request_text(request: Mapping[str, Any], data: bytes) -> str:
    """The same request for programs without JSON: a word, blanks, values. A list is its length and its
    members, an object its length and the name and value of each.

    id encoding level dtype out          one value
    fact NAME VALUE, option NAME VALUE   numbers in decimal, none, true, false, or a word
    want NAME
    input NAME DTYPE BYTES OFFSET RANK DIMS...     OFFSET from the start of the file `in`
    """
    lines = [f"{key} {request[key]}" for key in ("id", "encoding", "level", "dtype", "out")]
    for key, word in (("facts", "fact"), ("options", "option")):
        lines += [f"{word} {name} {as_words(value)}" for name, value in sorted(request[key].items())]
    lines += [f"want {name}" for name in request["want"]]
    lines += [f"input {line.partition(' ')[2]}" for line in index_of(data, "in")]
    return "\n".join([*lines, "end\n"])


def as_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join([str(len(value)), *(f"{name} {as_words(x)}" for name, x in sorted(value.items()))])
    if isinstance(value, (list, tuple)):
        return " ".join([str(len(value)), *map(as_words, value)])
    said = str(value) or "none"
    return said.lower() if value is None or isinstance(value, bool) else said
