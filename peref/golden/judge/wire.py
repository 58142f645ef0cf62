"""A case on its way to another program: its inputs as a file, its words as lines that need no JSON parser."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from peref.golden.spec.files import DTYPE_NAMES, NUMPY_DTYPES, Tensor, index_of

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


def real_in(inputs: Mapping[str, np.ndarray], kind: Any) -> dict[str, np.ndarray]:
    """Inputs of which real ones are in a dtype of NumPy, and places as they are."""
    real = lambda name, x: x.dtype.kind == "f" and name not in PLACES
    return {name: x.astype(kind) if real(name, x) else x.copy() for name, x in inputs.items()}


def encoded_inputs(inputs: Mapping[str, np.ndarray], dtype: str) -> bytes:
    """A safetensors file of the inputs, real ones in `dtype`: the numbers are on a grid that every dtype
    holds.

    Written here because that library has no bfloat16 for NumPy. Wide numbers come first, so each tensor
    begins at a multiple of its width.
    """
    found = {}
    for name, x in inputs.items():
        real = x.dtype.kind == "f" and name not in PLACES
        found[name] = Tensor(dtype.upper(), narrowed(x, dtype)) if real else Tensor(DTYPE_NAMES[x.dtype], x)
    return encoded_tensors(found)


def encoded_tensors(found: Mapping[str, Tensor]) -> bytes:
    """A safetensors file of these tensors."""
    header, payload = {}, b""
    for name, t in sorted(found.items(), key=lambda item: (-item[1].bits.itemsize, item[0])):
        place = [len(payload), len(payload) + t.bits.nbytes]
        header[name] = {"dtype": t.dtype, "shape": list(t.bits.shape), "data_offsets": place}
        payload += np.ascontiguousarray(t.bits).tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload


def narrowed(x: np.ndarray, dtype: str) -> np.ndarray:
    """In `dtype`, bfloat16 as its bits, to the nearest."""
    if dtype == "bf16":
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, np.uint16)
    return x.astype(NUMPY_DTYPES[dtype])


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
