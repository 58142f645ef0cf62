"""The files of a published model in a folder: config.json, and tensors in one *.safetensors or in the shards
that an index lists. Tensors are mapped: nothing of them is read before it is used.

Not here: what they mean (config, tensors).
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from peref.errors import Damaged, Misuse, explained
from peref.huggingface import load_json
from peref.store import DTYPES
from peref.vocabulary import TOKENIZER

CONFIG, TENSORS = "config.json", "model.safetensors"
INDEX = f"{TENSORS}.index.json"
READABLE = ("F64", "F32", "F16", "BF16", "BOOL", "U8", "I64")  # the last three are of buffers


@dataclass(frozen=True)
class Published:
    """A model as it lies in a folder: its config.json, its tensors as they stand in the files (BFLOAT16 where
    NumPy has no such dtype), and the files that these are in.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    files: tuple[str, ...]

    def sha256(self) -> dict[str, str]:
        """Of each file, and of the tokenizer where there is one."""
        found = {}
        for name in (CONFIG, *self.files, TOKENIZER):
            if (path := self.folder / name).is_file():
                with explained(path, "read"), path.open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return found


def published(folder: str | Path) -> Published:
    """The model in `folder`. Raises Misuse where a file is missing or of another kind, and Damaged for one
    that is cut short or altered.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise Misuse(f"{folder}: no {CONFIG} here; expected the folder of a published model")
    files, listed = files_of(folder)
    tensors: dict[str, np.ndarray] = {}
    for name in files:
        for tensor, a in mapped(folder / name).items():
            if tensor in tensors:
                raise Damaged(f"{folder / name}: {tensor} is in another file too")
            tensors[tensor] = a
    if lacking := sorted(listed - tensors.keys()):
        raise Damaged(f"{folder / INDEX} lists {lacking[0]}, which is in no file; copy the model anew")
    return Published(folder, load_json(folder / CONFIG), tensors, files)


def files_of(folder: Path) -> tuple[tuple[str, ...], set[str]]:
    """The files with tensors, and the tensors that an index lists. Raises Misuse where one is missing."""
    listed: dict[str, Any] = {}
    if (folder / INDEX).is_file():
        listed = load_json(folder / INDEX, "the index of the shards of a model").get("weight_map", {})
        beside = lambda name: isinstance(name, str) and Path(name).name == name
        if not listed or not all(map(beside, listed.values())):
            raise Damaged(f"{folder / INDEX}: no weight_map from tensors to files beside it")
    found = {path.name for path in folder.glob("*.safetensors")}
    names = sorted(set(listed.values()) or ({TENSORS} if TENSORS in found else found))
    if not names:
        pickled = any(folder.glob("*.bin"))
        what = "pickled weights (*.bin) are not read; save them as safetensors" if pickled else "none is here"
        raise Misuse(f"{folder}: expected tensors in *.safetensors; {what}")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise Misuse(f"{folder / missing[0]} is missing, which {INDEX} lists; copy it there too")
    return tuple(names), set(listed)


def mapped(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, in read-only memory that is the file."""
    try:
        # opening checks sizes, places and the length of the file
        with explained(path, "read"), safetensors.safe_open(path, framework="numpy"):
            raw = np.memmap(path, np.uint8, "r")
    except safetensors.SafetensorError as error:
        raise Damaged(f"{path}: {error}; cut short, or damaged: copy it anew") from error
    begin = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header, found = json.loads(raw[8:begin].tobytes()), {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] not in READABLE:
            known = "float32, float16, bfloat16 and float64 are read"
            raise Misuse(f"{path}: {name} is {about['dtype']}, a quantised tensor; {known}")
        first, last = (begin + at for at in about["data_offsets"])
        found[name] = raw[first:last].view(DTYPES[about["dtype"]]).reshape(about["shape"])
    return found
