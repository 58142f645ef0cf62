"""The cells of attention a few at a time: what is kept of a cell on the way, and made again on the way
back, then stays near the processor.
"""

from collections.abc import Iterator
from typing import Any


def pieces(at: Any, B: int, cells: int) -> Iterator[tuple[Any, ...]]:
    """Cuts of an array [B,H,T,S], about `cells` of each head: one sequence, every head, some queries, the
    keys that one of these sees.

    Where the arrays live on a device, which has no use for small pieces, all queries.
    """
    spans, rows = at.spans, max(cells // at.S, 1) if at.host is None else at.T
    for n in range(B):
        for t in range(0, at.T, rows):
            some = spans[n % len(spans), t : t + rows]
            some = some[some[:, 0] < some[:, 1]]
            if len(some):
                yield n, slice(None), slice(t, t + rows), slice(int(some[:, 0].min()), int(some[:, 1].max()))


def cut_of(x: Any, cut: tuple[Any, ...]) -> tuple[Any, ...]:
    """That cut of x [B or 1,H or 1,T,S], which may be alike for all sequences."""
    return cut[0] % len(x), *cut[1:]
