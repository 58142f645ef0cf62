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
from itertools import pairwise
from typing import Any

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
P, I, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
SIGNATURES = {
    "cublasCreate_v2": [P],
    "cublasDestroy_v2": [P],
    "cublasSetMathMode": [P, I],
    "cublasSetStream_v2": [P, P],
    "cublasSetWorkspace_v2": [P, P, ctypes.c_size_t],
    "cublasGemmStridedBatchedEx": [P, I, I, I, I, I, P, P, I, I, L, P, I, I, L, P, P, I, I, L, I, I, I],
}


def leading(a: Any, size: int) -> tuple[int, int] | None:
    """How cuBLAS reads the last two axes of a row-major view: as they are or transposed, and its leading
    dimension; None: it must be copied.
    """
    rows, columns = a.shape[-2:]
    down, right = (step // size for step in a.strides[-2:])
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return AS_STORED, max(down, columns) if rows > 1 else columns
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return TRANSPOSED, max(right, rows) if columns > 1 else rows
    return None


def batched(a: Any, lead: tuple[int, ...], size: int) -> int | None:
    """The stride, in numbers, between the matrices of `a` broadcast over `lead`; 0: all are one; None
    where no one stride reaches them all.
    """
    given = (1,) * (len(lead) + 2 - a.ndim) + tuple(a.shape[:-2])
    steps = (0,) * (len(lead) + 2 - a.ndim) + tuple(step // size for step in a.strides[:-2])
    axes = [(n, 0 if one == 1 else step) for n, one, step in zip(lead, given, steps, strict=True) if n != 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(axes)):
        return None
    return axes[-1][1] if axes else 0


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
        self.workspace = xp.cuda.alloc(WORKSPACE)
        self.stream: int | None = None

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
        stream = self.xp.cuda.get_current_stream().ptr
        if stream != self.stream:
            self.ask("cublasSetStream_v2", stream)
            self.ask("cublasSetWorkspace_v2", self.workspace.ptr, WORKSPACE)
            self.stream = stream

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        """a [...,M,K] b [...,K,N] -> [...,M,N], leading axes broadcast; added to `out`, C-contiguous and
        of that shape, where it is given.
        """
        dtype = a.dtype
        if dtype != b.dtype or dtype.name not in REAL or (out is not None and out.dtype != dtype):
            raise Misuse(
                f"product: the cuda backend multiplies float32 or bfloat16 matrices, got {a.dtype} and "
                f"{b.dtype}; use --backend cuda or numpy"
            )
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
            raise Misuse(
                f"product: sizes {list(a.shape)} and {list(b.shape)} do not fit; expected [...,M,K] and "
                "[...,K,N]"
            )
        lead = shape_of(a.shape[:-2], b.shape[:-2])
        (M, K), N = a.shape[-2:], b.shape[-1]
        if out is None:
            out, beta = (self.xp.empty if K else self.xp.zeros)((*lead, M, N), dtype), 0.0
        else:
            if tuple(out.shape) != (*lead, M, N) or not out.flags.c_contiguous:
                raise Misuse(f"product: out is {list(out.shape)}; expected C-contiguous {[*lead, M, N]}")
            beta = 1.0
        if out.size and K:
            self.follow()
            self.into(a, b, out, lead, beta)
        return out

    def into(self, a: Any, b: Any, out: Any, lead: tuple[int, ...], beta: float) -> None:
        size = a.dtype.itemsize
        a, b = (x if leading(x, size) else self.xp.ascontiguousarray(x) for x in (a, b))
        steps = [batched(x, lead, size) for x in (a, b)]
        if None in steps:  # no one stride: the first axis in a loop
            for n in range(lead[0]):
                one, other = (x if x.ndim < len(lead) + 2 else x[n if x.shape[0] > 1 else 0] for x in (a, b))
                self.into(one, other, out[n], lead[1:], beta)
            return
        (flip_a, lda), (flip_b, ldb) = leading(a, size), leading(b, size)  # type: ignore[misc]
        M, N = out.shape[-2:]
        count, kind = out.size // (M * N), REAL[a.dtype.name]
        alpha, beta_ = ctypes.c_float(1.0), ctypes.c_float(beta)
        left, right = (b.data.ptr, kind, ldb, steps[1]), (a.data.ptr, kind, lda, steps[0])
        result = (out.data.ptr, kind, N, M * N, count, self.compute if kind == 0 else FLOAT32, DEFAULT)
        sizes = (flip_b, flip_a, N, M, a.shape[-1])
        self.ask(
            "cublasGemmStridedBatchedEx",
            *sizes,
            ctypes.byref(alpha),
            *left,
            *right,
            ctypes.byref(beta_),
            *result,
        )


def shape_of(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The leading axes of both, broadcast. Raises Misuse where they do not fit."""
    longest = max(len(one), len(other))
    pairs = list(zip(*((1,) * (longest - len(s)) + tuple(s) for s in (one, other)), strict=True))
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        raise Misuse(f"product: leading axes {list(one)} and {list(other)} do not fit")
    return tuple(n if m == 1 else m for m, n in pairs)
