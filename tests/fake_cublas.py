"""A stand-in for the cuBLAS library: the functions that the binding calls, on the fake CuPy's memory, by the
letter of NVIDIA's contract.

Column-major: element (i, j) of a matrix of leading dimension ld stands at i + j ld. With transpose the
operand is stored the other way round. alpha and beta are addresses, on the host or, in that pointer mode, on
the device. Setting a stream takes the workspace away. What it refuses, cuBLAS refuses: a leading dimension
below the number of stored rows, sizes below zero, a batch of outputs at stride 0.
Stricter: products of a capture that may run side by side must have two workspaces.
"""

import ctypes
from types import SimpleNamespace

import numpy as np
from fake_device import Device, at_address

OK, INVALID = 0, 7


def real(kind):
    if kind == 14:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({0: np.float32}[kind])


def number(pointer, mode):
    """What alpha or beta points to."""
    if mode == 1:
        return float(at_address(pointer, (1,), np.float32)[0])
    return (
        pointer._obj.value
        if hasattr(pointer, "_obj")
        else ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))[0]
    )


def columns(pointer, kind, rows, cols, ld):
    """A stored column-major matrix as NumPy sees it, [rows,cols]."""
    dtype = real(kind)
    line = at_address(pointer, ((cols - 1) * ld + rows,), dtype)
    return np.ndarray((rows, cols), dtype, line, 0, (dtype.itemsize, ld * dtype.itemsize))


class Library:
    """Keeps what was asked of it: `asked` the calls, `handles` stream, workspace and pointer mode of each
    handle.
    """

    def __init__(self):
        self.asked, self.handles = [], {}
        self.users = {}  # of each workspace the last capture that used it, and its node
        names = (
            "cublasCreate_v2",
            "cublasDestroy_v2",
            "cublasSetStream_v2",
            "cublasSetWorkspace_v2",
            "cublasSetPointerMode_v2",
        )
        for name in (*names, "cublasSetMathMode", "cublasGemmStridedBatchedEx"):
            setattr(self, name, self.noted(name, getattr(self, name[6:].removesuffix("_v2").lower())))

    def noted(self, name, function):
        def call(*given):
            self.asked.append(name)
            return function(*given)

        return call

    def create(self, handle):
        handle._obj.value = len(self.handles) + 1
        self.handles[handle._obj.value] = SimpleNamespace(stream=0, workspace=None, mode=0, math=0)
        return OK

    def destroy(self, handle):
        return OK if self.handles.pop(handle.value, None) else 1

    def setstream(self, handle, stream):
        self.handles[handle.value].stream, self.handles[handle.value].workspace = stream, None
        return OK

    def setworkspace(self, handle, pointer, size):
        self.handles[handle.value].workspace = pointer, size
        return OK

    def setpointermode(self, handle, mode):
        self.handles[handle.value].mode = mode
        return OK

    def setmathmode(self, handle, mode):
        if mode not in (0, 1, 2, 3, 16, 17, 18, 19):
            return INVALID
        self.handles[handle.value].math = mode
        return OK

    def gemmstridedbatchedex(
        self, handle, ta, tb, m, n, k, alpha, A, ka, lda, sa, B, kb, ldb, sb, beta, C, kc, ldc, sc,
        count, compute, algo,
    ):  # fmt: skip
        state = self.handles[handle.value]
        if (
            min(m, n, k, count) < 0
            or lda < max(1, k if ta else m)
            or ldb < max(1, n if tb else k)
            or ldc < max(1, m)
            or (count > 1 and sc < ldc * n)
        ):
            return INVALID
        stream = Device.now.streams[-1]
        if state.stream != stream.ptr:
            raise RuntimeError(
                "cuBLAS works on another stream than CuPy: nothing orders the two, and a capture does not "
                "see it"
            )
        if stream.is_capturing() and state.workspace is None:
            raise RuntimeError("cuBLAS allocates a workspace inside the capture")
        last = self.users.get(state.workspace)
        if last and last[0] is stream.capture and last[1] not in stream.behind():
            raise RuntimeError("two products that may run side by side have one workspace")
        if real(kc).itemsize < 4 and state.math != 16:
            raise RuntimeError(
                "cuBLAS may add parts of a sum in the narrow type of the result: cublasSetMathMode was not "
                "asked for 16"
            )
        a_, b_ = number(alpha, state.mode), number(beta, state.mode)
        size_a, size_b = real(ka).itemsize, real(kb).itemsize

        def act():
            for z in range(count):
                a = columns(A + z * sa * size_a, ka, k if ta else m, m if ta else k, lda)
                b = columns(B + z * sb * size_b, kb, n if tb else k, k if tb else n, ldb)
                c = columns(C + z * sc * real(kc).itemsize, kc, m, n, ldc)
                a, b = (a.T if ta else a).astype(np.float32), (b.T if tb else b).astype(np.float32)
                if compute == 77:
                    a, b = tf32(a), tf32(b)
                found = np.float32(a_) * (a @ b)
                c[...] = found if b_ == 0 else found + np.float32(b_) * c.astype(np.float32)

        line = at_address(C, ((count - 1) * sc + (n - 1) * ldc + m,), real(kc))
        Device.now.perform(act, [line])
        if stream.is_capturing():
            self.users[state.workspace] = stream.capture, len(stream.capture.nodes) - 1
        return OK


def tf32(x):
    """Rounded to the ten bits of a TF32 mantissa."""
    return (
        ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
        if x.flags.c_contiguous
        else tf32(np.ascontiguousarray(x))
    )
