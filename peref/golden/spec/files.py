"""Tensor files and JSON that others wrote: nothing is believed before it is checked, and what is wrong is
said in one line.

Tensors are read by the safetensors library, which refuses what does not fit together: sizes, places, the
length of the file. What it lets pass (duplicate keys, names that are paths, blanks before the header, dtypes
that NumPy has not) is refused here before it sees the file.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from peref.errors import Damaged, Misuse
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
DEEPEST = 20
MOST_AXES = 16
NAME = re.compile(r"(?!/)(?!.*(^|/)\.\.?(/|$))[!-\[\]-~]{1,500}")


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
        refuse_deep(found)
        return found
    except RecursionError as error:
        raise Damaged(f"{where}: JSON that is nested too deeply") from error
    except ValueError as error:  # also of the decoding, and of numbers with thousands of digits
        raise Damaged(f"{where}: not the JSON that was expected: {error}") from error


def refuse_deep(value: Any) -> None:
    """Raises ValueError for what is nested deeper than DEEPEST."""
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for some in inside for one in some if isinstance(one, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested deeper than {DEEPEST}")


def tensors(data: bytes, where: str, header: dict[str, Any] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in the order of their names; `header` is its own. Raises Damaged."""
    header = header_of(data, where) if header is None else header
    try:
        payload = {name: about["data"] for name, about in safetensors.deserialize(data)}
    except safetensors.SafetensorError as error:
        raise Damaged(f"{where}: {error}; cut short, altered, or not a safetensors file") from error
    found = {}
    for name, about in sorted(header.items()):
        dtype, shape = about["dtype"], about["shape"]
        if not NAME.fullmatch(name):
            said = "at most 500 characters of printable ASCII without blanks, and no path"
            raise Damaged(f"{where}: a tensor is called {name[:80]!r}; expected {said}")
        if dtype not in FORMATS or len(shape) > MOST_AXES or len(about) > 3:
            said = f"a dtype of {', '.join(FORMATS)}, at most {MOST_AXES} axes, and nothing else"
            raise Damaged(f"{where}: {name} is {str(about)[:80]}; expected {said}")
        kind = FORMATS[dtype][0]
        bits: Any = np.frombuffer(payload[name], kind) if payload[name] else np.zeros(0, kind)
        found[name] = Tensor(dtype, bits.reshape(shape))
    return found


def header_of(data: bytes, where: str) -> dict[str, Any]:
    """What the header of a safetensors file says of each tensor. Raises Damaged."""
    length = int.from_bytes(data[:8], "little")
    if not len(data) - 8 >= length <= LONGEST_HEADER:
        said = f"{len(data)} bytes, which begin with a header of {length}"
        raise Damaged(f"{where}: {said}; cut short, or not a safetensors file")
    header = strict_json(data[8 : 8 + length], where)
    if data[8:9] != b"{":
        raise Damaged(f"{where}: its header does not begin with {{; not a safetensors file")
    return {name: about for name, about in header.items() if name != "__metadata__"}


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


def index_of(data: bytes, file: str, header: dict[str, Any] | None = None) -> list[str]:
    """A line for each tensor: file, name, dtype, bytes, where they begin, number of axes, axes."""
    header = header_of(data, file) if header is None else header
    begin, lines = 8 + int.from_bytes(data[:8], "little"), []
    for name, about in sorted(header.items()):
        (first, stop), shape = about["data_offsets"], about["shape"]
        line = (file, name, about["dtype"], stop - first, begin + first, len(shape), *shape)
        lines.append(" ".join(map(str, line)))
    return lines
