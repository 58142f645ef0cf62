"""Products of matrices by cuBLAS, called through ctypes: CuPy refuses its own binding while a stream is
captured, this one does not ask.

    C = op(A) op(B) + beta C
    row-major, [M,K] [K,N]; transposed views as they are; batches at one stride; float32, TF32 by option, or
    bfloat16

Sums are taken in float32; the mode that is set forbids to add their parts in bfloat16, which cuBLAS else may.
cuBLAS knows columns, not rows: a row-major matrix is its transpose there, so C' = op(B)' op(A)' is what is
asked for.
The workspace is ours, so that a captured product allocates nothing and repeats its bits (cuBLAS
documentation, section 2.1.4). Not here: derivatives (products.py), where the library is (find.py).
"""

import ctypes
import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

from peref.backends.cuda.branch import Branch
from peref.errors import Misuse, PerefError

WORKSPACE = 32 << 20  # bytes, what NVIDIA recommends for Hopper
REAL = {"float32": 0, "bfloat16": 14}  # cudaDataType_t
FLOAT32, TF32 = 68, 77  # cublasComputeType_t: CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32
AS_STORED, TRANSPOSED = 0, 1  # cublasOperation_t
DEFAULT = -1  # cublasGemmAlgo_t
FULL_SUMS = 16  # cublasMath_t: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, with CUBLAS_DEFAULT_MATH
STATUS = {
    1: "not initialized",
    3: "no memory left",
    7: "invalid value",
    8: "this GPU cannot",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}
ONE, ZERO = (ctypes.byref(ctypes.c_float(x)) for x in (1.0, 0.0))  # alpha and beta
P, I, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
SIGNATURES = {
    "cublasCreate_v2": [P],
    "cublasDestroy_v2": [P],
    "cublasSetMathMode": [P, I],
    "cublasSetStream_v2": [P, P],
    "cublasSetWorkspace_v2": [P, P, ctypes.c_size_t],
    "cublasGemmStridedBatchedEx": [P, I, I, I, I, I, P, P, I, I, L, P, I, I, L, P, P, I, I, L, I, I, I],
}


def leading(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, int] | None:
    """How cuBLAS reads the last two axes of a row-major view, strides in numbers: as they are or transposed,
    and its leading dimension; None: it must be copied.
    """
    (rows, columns), (down, right) = shape[-2:], steps[-2:]
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return AS_STORED, max(down, columns) if rows > 1 else columns
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return TRANSPOSED, max(right, rows) if columns > 1 else rows
    return None


def batched(shape: tuple[int, ...], steps: tuple[int, ...], lead: tuple[int, ...]) -> int | None:
    """The stride, in numbers, between the matrices of a view broadcast over `lead`; 0: all are one; None
    where no one stride reaches them all.
    """
    given = (1,) * (len(lead) + 2 - len(shape)) + shape[:-2]
    steps = (0,) * (len(lead) + 2 - len(shape)) + steps[:-2]
    axes = [(n, 0 if one == 1 else step) for n, one, step in zip(lead, given, steps, strict=True) if n != 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


@lru_cache(maxsize=4096)
def planned(
    dtype: Any, a: tuple[int, ...], down: tuple[int, ...], b: tuple[int, ...], right: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[Any, ...] | None]:
    """The shape of a product of arrays of these shapes and strides (bytes), and what cuBLAS is told: sizes,
    b, a and the result; None where something must be copied or goes one by one.

    Raises Misuse for what does not fit.
    """
    if dtype.name not in REAL:
        raise Misuse(
            f"product: the cuda backend multiplies float32 or bfloat16 matrices, got {dtype}; use --backend "
            "cuda or numpy"
        )
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise Misuse(f"product: sizes {list(a)} and {list(b)} do not fit; expected [...,M,K] and [...,K,N]")
    lead, (M, K), N, kind = shape_of(a[:-2], b[:-2]), a[-2:], b[-1], REAL[dtype.name]
    down, right = (tuple(step // dtype.itemsize for step in steps) for steps in (down, right))
    reads = [leading(x, steps) for x, steps in ((a, down), (b, right))]
    apart = [batched(x, steps, lead) for x, steps in ((a, down), (b, right))]
    if None in reads or None in apart:
        return (*lead, M, N), None
    (flip_a, lda), (flip_b, ldb) = reads  # type: ignore[misc]
    sizes, result = (flip_b, flip_a, N, M, K), (kind, N, M * N, math.prod(lead))
    return (*lead, M, N), (sizes, (kind, ldb, apart[1]), (kind, lda, apart[0]), result)


class Cublas:
    """One handle with a workspace of its own, on CuPy's current stream. `library` is cuBLAS as ctypes
    loads it.
    """

    def __init__(self, xp: Any, library: Any, *, tf32: bool = False):
        self.xp, self.library, self.compute = xp, library, TF32 if tf32 else FLOAT32
        for name, kinds in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = kinds, I
        self.handle = P()
        self.ask("cublasCreate_v2", ctypes.byref(self.handle), handle=False)
        self.ask("cublasSetMathMode", FULL_SUMS)
        self.branch = Branch(xp)
        self.workspaces = [xp.cuda.alloc(WORKSPACE) for _ in range(2)]  # the second is the branch's
        self.told: tuple[int, bool] | None = None

    def ask(self, name: str, *given: Any, handle: bool = True) -> None:
        """Raises PerefError, in words, when cuBLAS says no."""
        status = getattr(self.library, name)(*([self.handle] if handle else []), *given)
        if status:
            raise PerefError(
                f"{name} failed: {STATUS.get(status, 'unknown status')} ({status}); the arguments were "
                f"{given}"
            )

    def follow(self) -> None:
        """Work on CuPy's current stream. Setting a stream takes the workspace away, so it is given again."""
        now = self.xp.cuda.get_current_stream().ptr, self.branch.inside
        if now != self.told:
            self.ask("cublasSetStream_v2", now[0])
            self.ask("cublasSetWorkspace_v2", self.workspaces[now[1]].ptr, WORKSPACE)
            self.told = now

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        """a [...,M,K] b [...,K,N] -> [...,M,N], leading axes broadcast; added to `out`, C-contiguous and
        of that shape, where it is given.
        """
        dtype = a.dtype
        if dtype != b.dtype or (out is not None and out.dtype != dtype):
            raise Misuse(
                f"product: the cuda backend multiplies matrices of one type, got {a.dtype} and {b.dtype}; "
                "use --backend cuda or numpy"
            )
        shape, told = planned(dtype, a.shape, a.strides, b.shape, b.strides)
        beta = ZERO if out is None else ONE
        if out is None:
            out = (self.xp.empty if a.shape[-1] else self.xp.zeros)(shape, dtype)
        elif out.shape != shape or not out.flags.c_contiguous:
            raise Misuse(f"product: out is {list(out.shape)}; expected C-contiguous {list(shape)}")
        if out.size and a.shape[-1]:
            self.follow()
            self.into(a, b, out, told, beta)
        return out

    def into(self, a: Any, b: Any, out: Any, told: Any, beta: Any) -> None:
        if told is None:
            self.in_pieces(a, b, out, beta)
            return
        sizes, left, right, result = told
        compute = self.compute if left[0] == 0 else FLOAT32
        # fmt: off
        self.ask(
            "cublasGemmStridedBatchedEx", *sizes, ONE, b.data.ptr, *left, a.data.ptr, *right, beta,
            out.data.ptr, *result, compute, DEFAULT,
        )
        # fmt: on

    def in_pieces(self, a: Any, b: Any, out: Any, beta: Any) -> None:
        """Of what cuBLAS cannot read a copy; where no one stride reaches all, the first axis in a loop."""
        size, lead = a.dtype.itemsize, out.shape[:-2]
        steps = lambda x: tuple(step // size for step in x.strides)
        a, b = (x if leading(x.shape, steps(x)) else self.xp.ascontiguousarray(x) for x in (a, b))
        apart = None in [batched(x.shape, steps(x), lead) for x in (a, b)]
        pick = lambda x, n: x if x.ndim < out.ndim else x[n if x.shape[0] > 1 else 0]
        for one, other, to in (
            [(pick(a, n), pick(b, n), out[n]) for n in range(lead[0])] if apart else [(a, b, out)]
        ):
            told = planned(a.dtype, one.shape, one.strides, other.shape, other.strides)[1]
            self.into(one, other, to, told, beta)


def shape_of(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes of both, broadcast. Raises Misuse where they do not fit."""
    longest = max(len(one), len(other))
    pairs = list(zip(*((1,) * (longest - len(s)) + tuple(s) for s in (one, other)), strict=True))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise Misuse(f"product: leading axes {list(one)} and {list(other)} do not fit")
    return tuple(n if m == 1 else m for m, n in pairs)
