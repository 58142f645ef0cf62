"""What the wrappers ask of arrays before a kernel runs over them."""

import math
from typing import Any

from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.xp import namespace

THREADS = 256
PACK = 16  # bytes that kernels load and store at once, where arrays lie so
HELD, HELD_LONG, LONG_ROW = 2, 8, 128  # packs that a lane keeps of a row; the most of a short row
MOST_BLOCKS = 4096  # of kernels that go on in strides of the grid


def real(what: str, *arrays: Any) -> Any:
    """The one dtype of these arrays (None has no say), float32 or bfloat16, or Misuse."""
    found = {a.dtype.name: a.dtype for a in arrays if a is not None}
    if len(found) != 1 or not found.keys() <= {"float32", "bfloat16"}:
        raise Misuse(
            f"{what}: the cuda backend computes in float32 or bfloat16 and got "
            f"{' and '.join(sorted(found))}; use --backend cuda or numpy"
        )
    return next(iter(found.values()))


def fit(what: str, *shapes: Any) -> None:
    """Kernels do not look where an array ends."""
    if len({tuple(shape) for shape in shapes}) > 1:
        raise Misuse(
            f"{what}: sizes {' and '.join(str(list(shape)) for shape in shapes)} do not fit; expected equal "
            "ones"
        )


def stands(what: str, x: Any, shape: tuple[int, ...]) -> None:
    """x has this shape, or size 1 where it is repeated; else Misuse."""
    if x.ndim != len(shape) or any(a not in (1, n) for a, n in zip(x.shape, shape, strict=True)):
        fit(what, shape, x.shape)


def repeated(what: str, x: Any, shape: tuple[int, ...]) -> Any:
    """x, C-contiguous, repeated to this shape, or Misuse."""
    stands(what, x, shape)
    return namespace(x).ascontiguousarray(x if x.shape == shape else namespace(x).broadcast_to(x, shape))


def blocks(n: int, each: int = THREADS) -> int:
    """How many blocks n pieces of work make, `each` at a time."""
    return -(-n // each)


def strided(n: int) -> tuple[int]:
    """The grid of a kernel that goes through n pieces in strides."""
    return (min(blocks(n), MOST_BLOCKS),)


def packs(x: Any, n: int | None = None) -> int:
    """How many packs the n numbers of x are, or all of them."""
    return blocks((x.size if n is None else n) * x.dtype.itemsize, PACK)


def shared_out(x: Any, keeps: int) -> tuple[tuple[int], int, int]:
    """Grid and block for the rows of x [M,C], and how many warps have one, 1, 2, 4 .. 16: as many as it
    takes for each lane to keep all that it has.
    """
    row = packs(x, x.shape[1])
    W = next((n for n in (1, 2, 4, 8) if n * 32 * keeps >= row), 16)
    threads = max(THREADS, 32 * W)
    return (blocks(len(x), threads // (32 * W)),), threads, W


def kernel_for_rows(x: Any, short: str, long: str) -> tuple[str, tuple[int], int, int]:
    """The kernel for the rows of x [M,C], and what `shared_out` says of it: of short rows a lane keeps few
    packs, for then more are under way.
    """
    is_short = packs(x, x.shape[1]) <= LONG_ROW
    return short if is_short else long, *shared_out(x, HELD if is_short else HELD_LONG)


def flat(x: Any) -> Any:
    """x as contiguous rows, [M,C], also where M or C is 0."""
    return namespace(x).ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def one_line(x: Any) -> Any:
    return namespace(x).ascontiguousarray(x).reshape(-1)


def sum_parts(file: str, parts: Any, dtype: Any, **defines: int) -> Any:
    """parts [P,...] added over the first axis in order, [...] as `dtype`."""
    narrow = getattr(dtype, "name", dtype) == "bfloat16"
    out = namespace(parts).empty(parts.shape[1:], dtype if narrow else "float32")
    given = (None if narrow else out, out if narrow else None, parts, len(parts), out.size)
    launch(f"{file}.sum_parts", (blocks(out.size, 32),), THREADS, *given, real=out.dtype, **defines)
    return out.astype(dtype, copy=False)


def token_first(x: Any) -> Any:
    """x [B,H,T,D] as [B,T,H,D], C-contiguous: as the model makes it, and then not copied."""
    return namespace(x).ascontiguousarray(x.swapaxes(1, 2))


def strided_heads(x: Any) -> tuple[Any, tuple[int, int, int]]:
    """x [B,H,T,D] as an array that is C-contiguous, and in it the strides of batch, head and token; copied
    only where neither tokens nor heads come first.
    """
    _, H, T, D = x.shape
    by_token = x.swapaxes(1, 2)
    if not by_token.flags.c_contiguous and x.flags.c_contiguous:
        return x, (H * T * D, T * D, D)
    return namespace(x).ascontiguousarray(by_token), (T * H * D, D, H * D)
