"""The types of the arguments of kernels and of what they are made from: numbers, and float32 arrays unless
said.
"""

from numba import types

i4, i8, f4, f8 = types.int32, types.int64, types.float32, types.float64
flag, void = types.boolean, types.void


def reads(ndim, kind=f4):
    """An array that is only read, of any strides."""
    return types.Array(kind, ndim, "A", readonly=True)


def c_reads(ndim, kind=f4):
    """Likewise, contiguous."""
    return types.Array(kind, ndim, "C", readonly=True)


def writes(ndim, kind=f4):
    """One that is written to, contiguous."""
    return types.Array(kind, ndim, "C")
