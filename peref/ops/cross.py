"""Cross: which keys of one sequence the queries of another see. There is no past between the two, nor a
distance.

A query sees every key whose segment has its number; padding, 0, sees nothing and is not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref.errors import Misuse
from peref.ops.place import check_documents


@dataclass(frozen=True)
class Cross:
    """T queries and S keys of another sequence, for ops.attention; made by `Cross.of`.

    seg     [B,T], keys [B,S]: the segments of both, as At has them
    host    the same in NumPy, where these arrays live on a device
    """

    seg: Any
    keys: Any
    host: "Cross | None" = None
    everywhere = parts = None  # there are no global tokens and no chunks
    consecutive = False

    @classmethod
    def of(cls, T: int, S: int, seg: Any = None, keys: Any = None, B: int = 1) -> "Cross":
        """Segments [B,T] of the queries and [B,S] of the keys; None: all are 1. Raises Misuse for other
        shapes and for keys of one segment in two pieces.
        """
        given: list[Any] = []
        for name, a, n in (("seg", seg, T), ("seg of the keys", keys, S)):
            a = np.ones((B, n), int) if a is None else np.asarray(a)
            if a.shape != (B, n) or a.dtype.kind not in "iu":
                raise Misuse(f"{name} is {a.dtype}{list(a.shape)}; expected whole numbers [{B}, {n}]")
            given.append(a)
        check_documents("seg of the keys", given[1])
        return cls(*given)

    @property
    def T(self) -> int:
        """How many queries there are."""
        return self.seg.shape[1]

    @property
    def S(self) -> int:
        """How many keys there are."""
        return self.keys.shape[1]

    def moved(self, asarray: Callable) -> "Cross":
        """The same with its arrays in another library; `asarray` takes a NumPy array there."""
        return replace(self, seg=asarray(self.seg), keys=asarray(self.keys), host=self)

    @cached_property
    def see(self) -> Any:
        """Which key each query sees, bool [B,1,T,S]."""
        mine = self.seg[:, None, :, None]
        return (mine == self.keys[:, None, None, :]) & (mine != 0)

    @cached_property
    def spans(self) -> np.ndarray:
        """The first key that a query sees and one beyond the last, [B,T,2] in NumPy; it sees all between."""
        if self.host is not None:
            return self.host.spans
        found = np.zeros((*self.seg.shape, 2), np.int64)
        for seg, keys, span in zip(self.seg, self.keys, found, strict=True):
            numbers, first, count = np.unique(keys, return_index=True, return_counts=True)
            n = np.minimum(np.searchsorted(numbers, seg), len(numbers) - 1)
            seen = (numbers[n] == seg) & (seg != 0)
            span[:] = np.where(seen, [first[n], first[n] + count[n]], 0).T
        return found

    @property
    def distances(self) -> Any:
        """Raises Misuse: there are none."""
        raise Misuse("tokens of two sequences have no distance; attention across takes no table of biases")

    index = distances
