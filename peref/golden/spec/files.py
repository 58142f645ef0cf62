"""Tensor files and JSON that others wrote: nothing is believed before it is checked, and what is wrong is
said in one line.

The payload is read by the safetensors library. What that library lets pass (duplicate keys, names that are
paths, blanks before the header) is refused here before it sees the file, and so is every number that does not
fit the length of the file.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from peref.errors import Damaged, Misuse, counted
from peref.store import is_file, read_bytes

FORMATS = {
    "F64": (np.float64, 8),
    "F32": (np.float32, 4),
    "F16": (np.float16, 2),
    "BF16": (np.uint16, 2),
    "I64": (np.int64, 8),
    "I32": (np.int32, 4),
    "I16": (np.int16, 2),
    "I8": (np.int8, 1),
    "U64": (np.uint64, 8),
    "U32": (np.uint32, 4),
    "U16": (np.uint16, 2),
    "U8": (np.uint8, 1),
    "BOOL": (np.bool_, 1),
}
DTYPE_NAMES = {np.dtype(kind): name for name, (kind, _) in FORMATS.items() if name != "BF16"}
NUMPY_DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16}  # by their names on the command line
LONGEST_HEADER = 16_000_000
LONGEST_NAME = 500
DEEPEST = 20


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file. `bits` are as they stand there; bfloat16 has no type in NumPy and is kept as
    uint16.
    """

    dtype: str
    bits: np.ndarray

    @property
    def wide(self) -> np.ndarray:
        """As float64, or as it is where it is no real number."""
        if self.dtype == "BF16":
            return (self.bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return self.bits.astype(np.float64) if self.dtype[0] == "F" else self.bits


def strict_json(text: bytes, where: str) -> Any:
    """The value of a JSON text. Raises Damaged for duplicate keys, NaN and infinities, text after the end,
    depth without end and bad UTF-8.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the key {twice[:60]!r} is there twice")
        return found

    def no_constant(word: str) -> Any:
        raise ValueError(f"{word} is no JSON number")

    def finite(word: str) -> float:
        if not math.isfinite(x := float(word)):
            raise ValueError("a number beyond float64")
        return x

    try:
        found = json.loads(
            text.decode("utf-8"), object_pairs_hook=once, parse_constant=no_constant, parse_float=finite
        )
        refuse_deep([found], DEEPEST + 1)
        return found
    except RecursionError as error:
        raise Damaged(f"{where}: JSON that is nested too deeply") from error
    except ValueError as error:  # also of the decoding, and of numbers with thousands of digits
        raise Damaged(f"{where}: not the JSON that was expected: {error}") from error


def refuse_deep(value: dict | list, left: int) -> None:
    """Raises ValueError for what is nested deeper than `left`."""
    if not left:
        raise ValueError(f"nested deeper than {DEEPEST}")
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, (dict, list)):
            refuse_deep(one, left - 1)


def plain_name(name: Any) -> bool:
    """Whether a tensor may be called so: printable ASCII without blanks, no path out of anything."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_NAME
        and name.isascii()
        and name.isprintable()
        and not re.search(r"[ \\]|^/|(^|/)\.\.?(/|$)", name)
    )


def whole_number(x: Any) -> bool:
    return type(x) is int and 0 <= x < 2**53


Header = dict[str, tuple[str, tuple[int, ...], int, int]]


def checked_header(data: bytes, where: str) -> Header:
    """Name -> dtype, shape, first and one beyond the last byte in the file. Raises Damaged for anything
    that is not as the format says.
    """
    if len(data) < 8:
        raise Damaged(
            f"{where}: {len(data)} bytes; a safetensors file begins with 8 that say how long its header is"
        )
    length = int.from_bytes(data[:8], "little")
    if length > LONGEST_HEADER or length > len(data) - 8:
        raise Damaged(
            f"{where}: a header of {length} bytes in a file of {len(data)}; cut short, or not a safetensors "
            "file"
        )
    if data[8:9] != b"{":
        raise Damaged(f"{where}: its header does not begin with {{; not a safetensors file")
    header = strict_json(data[8 : 8 + length], where)
    if not isinstance(header, dict):
        raise Damaged(f"{where}: its header is no JSON object")
    meta = header.pop("__metadata__", {})
    if not isinstance(meta, dict) or not all(isinstance(text, str) for text in meta.values()):
        raise Damaged(f"{where}: __metadata__ is not an object of texts")
    found, payload = {}, len(data) - 8 - length
    for name, about in header.items():
        if not plain_name(name):
            raise Damaged(
                f"{where}: a tensor is called {name[:80]!r}; expected printable ASCII without blanks, and "
                "no path"
            )
        if not isinstance(about, dict) or set(about) != {"dtype", "shape", "data_offsets"}:
            raise Damaged(f"{where}: {name} is not described by dtype, shape and data_offsets")
        dtype, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
        if not isinstance(dtype, str) or dtype not in FORMATS:
            raise Damaged(f"{where}: {name} has dtype {str(dtype)[:40]!r}; this reads {', '.join(FORMATS)}")
        if not isinstance(shape, list) or len(shape) > 16 or not all(map(whole_number, shape)):
            raise Damaged(f"{where}: {name} has shape {str(shape)[:80]}; expected whole numbers from 0 on")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(whole_number, offsets)):
            raise Damaged(f"{where}: {name} has data_offsets {str(offsets)[:80]}; expected two whole numbers")
        first, stop = offsets
        if stop - first != math.prod(shape) * FORMATS[dtype][1] or stop > payload:
            raise Damaged(
                f"{where}: {name}, {dtype}{shape}, is said to lie at bytes {first} to {stop} of {payload}; "
                "that does not fit"
            )
        found[name] = (dtype, tuple(shape), 8 + length + first, 8 + length + stop)
    end = 8 + length
    for name, (_, _, first, stop) in sorted(found.items(), key=lambda item: item[1][2:]):
        if first != end:
            raise Damaged(
                f"{where}: {name} "
                f"{'overlaps the tensor before it' if first < end else 'has a hole before it'}"
            )
        end = stop
    if end != len(data):
        raise Damaged(
            f"{where}: {counted(len(data) - end, 'byte that belongs', 'bytes that belong')} to no tensor"
        )
    return found


def tensors(data: bytes, where: str, header: Header | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in the order of their names; `header` where it was checked
    before. Raises Damaged.
    """
    header = checked_header(data, where) if header is None else header
    try:
        payload = {name: about["data"] for name, about in safetensors.deserialize(data)}
    except safetensors.SafetensorError as error:
        raise Damaged(f"{where}: {error}") from error
    found = {}
    for name in sorted(header):
        dtype, shape, *_ = header[name]
        bits: Any = (
            np.frombuffer(payload[name], FORMATS[dtype][0])
            if len(payload[name])
            else np.zeros(0, FORMATS[dtype][0])
        )
        found[name] = Tensor(dtype, bits.reshape(shape))
    return found


def read_tensors(path: Path, most: float = math.inf) -> dict[str, Tensor]:
    """Those of a file, or of all *.safetensors in a folder and the folders in it, whose names must differ.

    Raises Misuse where there is no such thing and Damaged for a file that is not what it claims to be, or has
    more than `most` bytes.
    """
    if not path.is_dir():
        if is_file(path) and (size := path.stat().st_size) > most:
            raise Damaged(f"{path}: {size:,} bytes; at most {most:,} are read")
        return tensors(read_bytes(path), str(path))
    found: dict[str, Tensor] = {}
    for file in sorted(p for p in path.rglob("*.safetensors") if is_file(p)):
        for name, tensor in read_tensors(file, most).items():
            if name in found:
                raise Damaged(f"{file}: {name} is also in another file of {path}")
            found[name] = tensor
    if not found:
        raise Misuse(f"{path}: no tensors in this folder; expected *.safetensors")
    return found


def index_of(header: Header, file: str) -> list[str]:
    """A line for each tensor: file, name, dtype, bytes, where they begin, number of axes, axes."""
    lines = []
    for name, (dtype, shape, first, stop) in sorted(header.items()):
        lines.append(" ".join(map(str, (file, name, dtype, stop - first, first, len(shape), *shape))))
    return lines
