"""Tensor files and JSON that others wrote: nothing is believed before it is checked, and what is wrong is
said in one line.

Tensors are read by the safetensors library, which refuses what does not fit together: sizes, places, the
length of the file. What it lets pass (duplicate keys, names that are paths, blanks before the header, dtypes
that NumPy has not) is refused here before it sees the file.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from peref.errors import Damaged, Misuse
from peref.store import BFLOAT16, DTYPES, is_file, read_bytes, tensor_file, to_bfloat16

FORMATS = {name: np.dtype("<u2" if name == "BF16" else kind) for name, kind in DTYPES.items()}
DTYPE_NAMES = {kind: name for name, kind in FORMATS.items() if name != "BF16"}
LONGEST_HEADER = 16_000_000
DEEPEST = 20
MOST_AXES = 16
NAME = re.compile(r"(?!/)(?!.*(^|/)\.\.?(/|$))[!-\[\]-~]{1,500}")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file. `bits` are as they stand there, or wide already; bfloat16, which has no type in
    NumPy, is kept as uint16.
    """

    dtype: str
    bits: np.ndarray

    @property
    def wide(self) -> np.ndarray:
        """As float64, or as it is where it is no real number."""
        if self.dtype == "BF16" and self.bits.dtype == np.uint16:
            return (self.bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return self.bits.astype(np.float64) if self.dtype[0] == "F" else self.bits

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.wide if self.dtype == "BF16" else self.bits, dtype)


def narrowed(x: np.ndarray, dtype: str) -> Tensor:
    """Real numbers in one of the four real dtypes, to the nearest."""
    with np.errstate(over="ignore"):
        return Tensor(dtype, to_bfloat16(x)["bfloat16"] if dtype == "BF16" else x.astype(FORMATS[dtype]))


def as_kept(dtype: str, x: Any) -> np.ndarray:
    """Numbers as they are read again where they were kept in a real dtype."""
    return narrowed(np.asarray(x), dtype).wide


# what keeps numbers in 16 bits, by the name of the dtype
LOW = {name: partial(as_kept, dtype) for name, dtype in (("float16", "F16"), ("bfloat16", "BF16"))}


def encoded_tensors(found: Mapping[str, Tensor]) -> bytes:
    """A safetensors file of these tensors."""
    plain = {name: np.asarray(t.bits, order="C") for name, t in found.items()}
    brain = {name: plain[name].view(BFLOAT16) for name, t in found.items() if t.dtype == "BF16"}
    return b"".join(tensor_file(plain | brain, {}))


def strict_json(text: bytes, where: str) -> Any:
    """The value of a JSON text. Raises Damaged for duplicate keys, NaN and infinities, text after the end,
    depth without end and bad UTF-8.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
            raise ValueError(f"the key {twice[:60]!r} is there twice")
        return found

    def finite(word: str) -> float:
        if not math.isfinite(x := float(word)):
            raise ValueError(f"{word[:40]} is no JSON number, or beyond float64")
        return x

    try:
        numbers: Any = {"parse_constant": finite, "parse_float": finite}
        found = json.loads(text.decode("utf-8"), object_pairs_hook=once, **numbers)
        if depth([found]) > DEEPEST + 1:
            raise ValueError(f"nested deeper than {DEEPEST}")
        return found
    except RecursionError as error:
        raise Damaged(f"{where}: JSON that is nested too deeply") from error
    except ValueError as error:  # also of the decoding, and of numbers with thousands of digits
        raise Damaged(f"{where}: not the JSON that was expected: {error}") from error


def depth(value: Any) -> int:
    """How deep objects and lists lie in one another."""
    level, deep = [value], 0
    while level:
        inside = [one for of in level for one in (of.values() if isinstance(of, dict) else of)]
        level, deep = [one for one in inside if isinstance(one, (dict, list))], deep + 1
    return deep


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
            raise Damaged(f"{where}: {name} is {dtype} of shape {str(shape)[:80]}; expected {said}")
        found[name] = Tensor(dtype, np.frombuffer(payload[name], FORMATS[dtype]).reshape(shape))
    return found


def header_of(data: bytes, where: str) -> dict[str, Any]:
    """What the header of a safetensors file says of each tensor. Raises Damaged."""
    return {name: about for name, about in whole_header(data, where).items() if name != "__metadata__"}


def whole_header(data: bytes, where: str) -> dict[str, Any]:
    """The header of a safetensors file, what else was written into it under __metadata__. Raises Damaged."""
    length = int.from_bytes(data[:8], "little")
    if not len(data) - 8 >= length <= LONGEST_HEADER:
        said = f"it has {len(data):,} bytes, and the first of them say that its header has {length:,}"
        raise Damaged(f"{where}: not a safetensors file, or cut short: {said}")
    header = strict_json(data[8 : 8 + length], where)
    if data[8:9] != b"{":
        raise Damaged(f"{where}: its header does not begin with {{; not a safetensors file")
    return header


def read_tensors(path: Path, most: float = math.inf) -> dict[str, Tensor]:
    """Those of a file, or of all *.safetensors in a folder and the folders in it, whose names must differ.

    Raises Misuse where there is no such thing, and for a folder in it that is a link, whose files would be
    passed over; Damaged for a file that is not what it claims to be, or has more than `most` bytes.
    """
    if not path.is_dir():
        if is_file(path) and (size := path.stat().st_size) > most:
            raise Damaged(f"{path}: {size:,} bytes; at most {most:,} are read")
        return tensors(read_bytes(path), str(path))
    found: dict[str, Tensor] = {}
    inside = sorted(path.rglob("*"))
    if linked := [p for p in inside if p.is_symlink() and p.is_dir()]:
        raise Misuse(f"{linked[0]}: a link to a folder, which is not followed; give files or folders")
    for file in (p for p in inside if p.suffix == ".safetensors" and not p.is_dir()):
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
