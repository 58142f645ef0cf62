"""Memory of a recorded step: one piece, and pieces of it at addresses that the order of requests decides.

Arrays made while a graph is recorded come from here and go back here, never to CuPy's pool: the pool would
give their memory to others while the graph still writes there (cupy#8318). Reuse inside is safe, for a graph
repeats the order in which the pieces were taken and given back.
"""

from typing import Any

from peref.errors import PerefError

POOL_UNIT = 512  # bytes: what CuPy's own pool rounds to


class Layout:
    """First fit in a line of `size` bytes: where each piece starts; `peak` is how far it ever reached."""

    def __init__(self, size: int):
        self.gaps, self.size, self.peak = [(0, size)], size, 0

    def take(self, size: int) -> tuple[int, int]:
        """(start, size) of a new piece. Raises PerefError where no gap is long enough."""
        size = -(-max(size, 1) // POOL_UNIT) * POOL_UNIT
        for k, (start, length) in enumerate(self.gaps):
            if length >= size:
                self.gaps[k : k + 1] = [(start + size, length - size)] if length > size else []
                self.peak = max(self.peak, start + size)
                return start, size
        raise PerefError(
            f"the recorded step asks for {size} bytes more than its {self.size}; it did not ask for them "
            "when it was measured"
        )

    def give(self, start: int, size: int) -> None:
        """Back, joined with the gaps on both sides."""
        at = sum(1 for gap, _ in self.gaps if gap < start)
        self.gaps.insert(at, (start, size))
        for k in (at, at - 1):
            if 0 <= k < len(self.gaps) - 1 and sum(self.gaps[k]) == self.gaps[k + 1][0]:
                self.gaps[k : k + 2] = [(self.gaps[k][0], self.gaps[k][1] + self.gaps[k + 1][1])]


class Piece:
    """Keeps one piece taken while any array is in it."""

    def __init__(self, layout: Layout, size: int, memory: Any = None):
        self.layout, self.memory = layout, memory
        self.place = layout.take(size)

    def __del__(self) -> None:
        if hasattr(self, "place"):
            self.layout.give(*self.place)


class Measure:
    """An allocator that takes from CuPy's pool and notes in `layout` how large an Arena must be for the
    same requests.
    """

    def __init__(self, xp: Any):
        self.xp, self.layout, self.pool = xp, Layout(1 << 62), xp.get_default_memory_pool()

    def malloc(self, size: int) -> Any:
        memory = self.pool.malloc(size)
        piece = Piece(self.layout, size, memory)
        return self.xp.cuda.MemoryPointer(
            self.xp.cuda.UnownedMemory(memory.ptr, piece.place[1], piece, self.xp.cuda.Device().id), 0
        )


class Arena:
    """An allocator over one piece of memory of `size` bytes, which it keeps."""

    def __init__(self, xp: Any, size: int):
        self.xp, self.layout, self.memory = (
            xp,
            Layout(size),
            xp.get_default_memory_pool().malloc(max(size, POOL_UNIT)),
        )

    def malloc(self, size: int) -> Any:
        piece = Piece(self.layout, size, self.memory)
        start, length = piece.place
        return self.xp.cuda.MemoryPointer(
            self.xp.cuda.UnownedMemory(self.memory.ptr + start, length, piece, self.xp.cuda.Device().id), 0
        )
