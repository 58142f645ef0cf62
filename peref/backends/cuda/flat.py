"""Where parameters live: all of one kind in one line of memory, in chunks of one tensor each, so that one
launch updates them all.
"""

import re
from typing import Any

import numpy as np

from peref.xp import namespace

# q, k and v of a layer are one product (products.linears), and lie side by side
TOGETHER = re.compile(r"\b([qkv])\.(weight|bias)$")
ALIGNED = 256  # numbers; a tensor begins at a multiple of it, what is left over is 0 and stays 0


def by_place(name: str) -> str:
    """What names are sorted by."""
    return TOGETHER.sub(lambda m: f"qkv.{m[2]}.{'qkv'.index(m[1])}", name)


class Flat(dict):
    """Arrays by name, views of `line` [chunks,ALIGNED] float32 in which they stand in the order of their
    names, but for q, k and v; owner[chunk] is a tensor's number in the order of names.
    """

    def __init__(self, arrays: dict[str, Any], xp: Any):
        self.shapes = {name: a.shape for name, a in arrays.items()}
        names = sorted(arrays)
        counts = {name: -(-arrays[name].size // ALIGNED) for name in sorted(names, key=by_place)}
        ends = np.cumsum([0, *counts.values()])
        self.starts = {name: int(start) * ALIGNED for name, start in zip(counts, ends, strict=False)}
        self.chunks = np.repeat(
            np.asarray([names.index(name) for name in counts], np.int32), list(counts.values())
        )
        host = np.zeros((int(ends[-1]), ALIGNED), np.float32)
        for name, a in arrays.items():
            self.of(host, name)[...] = a
        self.line, self.owner = xp.asarray(host), xp.asarray(self.chunks)
        self.narrow: Any = None  # the line in bfloat16, which optimizer.update keeps
        self.rules: dict[Any, Any] = {}
        super().__init__((name, self.of(self.line, name)) for name in arrays)

    def of(self, line: Any, name: str) -> Any:
        """The part of a line of this layout that belongs to a tensor, in its shape: a view."""
        start, shape = self.starts[name], self.shapes[name]
        return line.reshape(-1)[start : start + int(np.prod(shape, dtype=np.int64))].reshape(shape)

    def rule(self, values: dict[str, float]) -> Any:
        """A number for each tensor as one for each chunk, [chunks] on the device; made once for the same
        numbers.
        """
        key = tuple(values[name] for name in sorted(self.shapes))
        if key not in self.rules:
            self.rules[key] = namespace(self.line).asarray(np.asarray(key, np.float32)[self.chunks])
        return self.rules[key]
