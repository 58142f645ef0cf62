"""Backend.branch: gradients of weights on a branch of a recorded step's graph.

Nothing in the chain of backward waits for them, and a small product occupies a part of the device: they run
beside the chain. Their bits are those that they have in it: the same kernels on the same numbers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PIECES_BESIDE = 6  # that may be under way: a longer branch keeps more memory


class Branch:
    """`inside`: whether a piece is being asked for now."""

    def __init__(self, xp: Any):
        self.xp, self.inside = xp, False

    @contextmanager
    def __call__(self) -> Iterator[Callable[[Callable[[], Any]], Any]]:
        """What runs a piece of work beside the current stream, which waits for all at the end. In the steps
        before the capture it runs there and then, and takes as much memory, which is measured.

        All that a piece reads, writes and takes in between is kept until the stream has waited for it: memory
        goes to others in the order in which Python gives it back.
        """
        cuda, main = self.xp.cuda, self.xp.cuda.get_current_stream()
        forks = main.is_capturing()
        side = cuda.Stream(non_blocking=True) if forks else main
        under_way: deque[tuple[Any, list[Any]]] = deque()

        def beside(make: Callable[[], Any]) -> Any:
            kept, allocate = [make], cuda.get_allocator()  # type: list[Any], Callable[[int], Any]

            def keeping(size: int) -> Any:
                kept.append(allocate(size))
                return kept[-1]

            if forks:
                side.wait_event(main.record())
            self.inside = True
            try:
                with side, cuda.using_allocator(keeping):
                    found = make()
            finally:
                self.inside = False
            under_way.append((side.record() if forks else None, kept))
            join(PIECES_BESIDE)
            return found

        def join(left: int) -> None:
            while len(under_way) > left:
                if event := under_way.popleft()[0]:
                    main.wait_event(event)

        yield beside
        join(0)
