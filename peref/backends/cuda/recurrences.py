"""What the recurrences over tokens share (kernels/state.cuh). `chunk` and `matmul`, which say how the
plain ops share out their work, are without effect here: the kernels walk token by token.
"""

from typing import Any

from peref.backends.cuda.arrays import blocks, fit, spread, summed
from peref.xp import namespace

COLUMNS, THREADS, AREA = 16, 128, 512  # as in the kernels: AREA numbers of the rows in a piece
# bytes of shared memory: the states of a piece, one sum over columns
KEPT, SHARE = AREA // 8 * THREADS * 4, 4 * AREA * 4


def pieces(T: int, width: int) -> int:
    return blocks(T, AREA // width)


def line_of(runs: Any, B: int, T: int) -> Any:
    """`runs` as the kernels read it, or None."""
    if runs is None:
        return None
    return spread("runs, and sequences and tokens", runs, (B, T)).astype("int64", copy=False)


def wide(state: Any, shape: tuple[int, ...]) -> Any:
    """The state handed in, in float32, or None."""
    if state is None:
        return None
    fit("the state", shape, state.shape)
    return namespace(state).ascontiguousarray(state).astype("float32", copy=False)


def total(file: str, parts: Any, dtype: Any, **defines: int) -> Any:
    """parts [P,...] added over the first axis in order."""
    return parts[0].astype(dtype, copy=False) if len(parts) == 1 else summed(file, parts, dtype, **defines)
