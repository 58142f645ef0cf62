"""What is refused before a kernel runs, and the shapes that kernels take."""

import math
from typing import Any

import numpy as np

from peref.errors import Misuse, counted
from peref.xp import CACHE_LINE, empty_at_line

CACHED = 1 << 25  # bytes of weights: more come from memory, at a speed that hides how they lie
FEW = 8  # rows below which a tile of the matrix kernel would be mostly empty


def place(thing: Any) -> Any:
    """Weights that may stay in a cache, in arrays that begin at a line of it; all else as it is."""
    if not isinstance(thing, dict) or sum(a.nbytes for a in thing.values()) > CACHED:
        return thing
    return {name: a if a.ctypes.data % CACHE_LINE == 0 else at_line(a) for name, a in thing.items()}


def at_line(a):
    new = empty_at_line(a.shape, a)
    new[...] = a
    return new


def float32(what: str, *arrays: Any) -> None:
    for a in arrays:
        if a is not None and a.dtype != np.float32:
            raise Misuse(
                f"{what}: the numba backend computes in float32 and got {a.dtype}; use --backend numpy "
                "(peref.backends.get('numpy'))"
            )
        if a is not None and not a.flags.aligned:
            where = f"its address and strides {list(a.strides)}"
            raise Misuse(f"{what}: an array does not lie at multiples of 4 bytes ({where}); give a copy")


def fit(what: str, *shapes: Any) -> None:
    """Kernels do not look where an array ends."""
    if shapes.count(shapes[0]) < len(shapes) and len({tuple(shape) for shape in shapes}) > 1:
        raise Misuse(
            f"{what}: sizes {' and '.join(str(list(shape)) for shape in shapes)} do not fit; expected equal "
            "ones"
        )


def shape_of(what: str, x: Any, axes: int) -> Any:
    if x.ndim != axes:
        raise Misuse(f"{what}: {list(x.shape)} has {counted(x.ndim, 'axis', 'axes')}; expected {axes}")
    return x.shape


def beside(what: str, x: Any, shape: Any) -> None:
    """x may stand beside an array of this shape: its last axes are as long, or 1."""
    if x is not None and (
        x.ndim > len(shape) or not all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False))
    ):
        raise Misuse(f"{what}: {list(x.shape)} does not fit; expected {list(shape)}, where axes may be 1")


def divisible(what: str, H: int, G: int) -> None:
    if not G or H % G:
        raise Misuse(f"{what}: {counted(H, 'head')} of q over {G} of k; expected a multiple")


def whole_numbers(what: str, x: Any) -> Any:
    """Whole numbers as the kernels take them, in one line."""
    if x.dtype.kind not in "iu":
        raise Misuse(f"{what}: {x.dtype}{list(x.shape)}; expected whole numbers")
    return np.ascontiguousarray(x, np.int64).reshape(-1)


def as_rows(x):
    """[...,C] as [M,C], also where M or C is 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def contiguous_rows(x):
    """x as contiguous rows, [M,C]."""
    return as_rows(np.ascontiguousarray(x))


def one_line(x):
    return np.ascontiguousarray(x).reshape(-1)


def line_of(runs, B, T):
    fit("runs", (B, T), (B, T) if runs is None else runs.shape)
    return np.zeros((B, T), np.int64) if runs is None else np.ascontiguousarray(runs, np.int64)


def contiguous(*arrays):
    return [np.ascontiguousarray(a) for a in arrays]


def handed(shape, state, at):
    """An array for the states of every chunk or token, [..., at, ...]: zeros, and what was handed in
    first.
    """
    states = np.zeros(shape, np.float32)
    if state is not None:
        states[at] = state
    return states


def arriving(dlast, state):
    """The gradient of the last state in room of its own, zeros where none arrives; kernels put that of the
    first in its place.
    """
    return np.zeros(state.shape, np.float32) if dlast is None else np.array(dlast, np.float32, order="C")
