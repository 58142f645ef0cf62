"""Random numbers that are a function of (seed, stream, counters) and of nothing else: resuming needs no
hidden state.
"""

from typing import Any
from zlib import crc32

import numpy as np

from peref.errors import Misuse


def generator(seed: int, stream: str, *counters: int) -> np.random.Generator:
    """A fresh Philox generator for one purpose (`stream`) at one place (`counters`: a step, a layer, ...).

    Different (seed, stream, counters) are independent, and (1,), (1, 0) are different counters: the stream
    and the counters are numpy's spawn key, the seed its entropy. Raises Misuse unless 0 <= seed < 2**64 and 0
    <= counter < 2**32 (then nothing runs into its neighbour).
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise Misuse(f"seed {seed!r} is out of range: expected a whole number, 0 <= seed < 2**64")
    for counter in counters:
        if not 0 <= counter < 2**32:
            what = f"random stream {stream!r}: counter {counter} is out of range"
            raise Misuse(f"{what}: expected 0 <= counter < 2**32")
    key = (crc32(stream.encode()), *map(int, counters))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(int(seed), spawn_key=key)))


class NoNumbers(np.ndarray):
    """A shape that takes no memory, also times a factor."""

    def __mul__(self, factor: Any) -> Any:
        return self

    __rmul__ = __mul__


class Blank:
    """Stands in for a random generator where only shapes are asked for."""

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        """Zeros of this shape, which take no memory."""
        return np.broadcast_to(0.0, shape).view(NoNumbers)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        """`low` everywhere, in the shape `size`; `high` has no say."""
        return np.full(() if size is None else size, low)
