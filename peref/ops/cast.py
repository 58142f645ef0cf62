"""An array in another dtype, and its gradient in the dtype that the array had."""

from typing import Any

from peref.tape import Op


def cast_forward(x, *, dtype):
    """x [...] in `dtype`; the gradient comes back in the dtype of x."""
    return x.astype(dtype), x.dtype


def cast_backward(was, dy):
    """dy [...] in the dtype that the array had."""
    return (dy.astype(was),)


cast = Op(cast_forward, cast_backward)


def in_dtype(x: Any, dtype: Any) -> Any:
    """x [...] in `dtype`: itself where it has that dtype already, or is None."""
    return x if x is None or x.dtype == dtype else cast(x, dtype=dtype)
