"""What the recurrences over tokens share (kernels/state.cuh). `chunk` and `matmul`, which say how the
plain ops share out their work, are without effect here: the kernels walk token by token.
"""

from typing import Any

from peref.backends.cuda.arrays import blocks, fit, repeated, sum_parts
from peref.errors import Misuse
from peref.xp import namespace

STATE_COLUMNS, STATE_THREADS, AREA = 16, 128, 512  # as in the kernels: AREA numbers of the rows in a piece
# bytes of shared memory: the states of a piece, one sum over columns
KEPT, SHARE = AREA // 8 * STATE_THREADS * 4, 4 * AREA * 4


def pieces(T: int, width: int) -> int:
    return blocks(T, AREA // width)


def line_of(runs: Any, B: int, T: int) -> Any:
    """`runs` as the kernels read it, or None."""
    if runs is None:
        return None
    return repeated("runs, and sequences and tokens", runs, (B, T)).astype("int64", copy=False)


def state_in_float32(state: Any, shape: tuple[int, ...]) -> Any:
    """The state handed in, in float32, or None."""
    if state is None:
        return None
    fit("the state", shape, state.shape)
    return namespace(state).ascontiguousarray(state).astype("float32", copy=False)


def total(file: str, parts: Any, dtype: Any, **defines: int) -> Any:
    """parts [P,...] added over the first axis in order."""
    return parts[0].astype(dtype, copy=False) if len(parts) == 1 else sum_parts(file, parts, dtype, **defines)


def without_last(what: str, dlast: Any) -> None:
    """Raises Misuse where a gradient arrives through the last state."""
    if dlast is not None:
        raise Misuse(
            f"{what}: the cuda kernels take no gradient of the last state; use --backend cupy or numba"
        )
