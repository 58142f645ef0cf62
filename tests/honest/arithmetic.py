"""The reference in another arithmetic: an array type whose sums, products and functions are computed
another honest way, in one precision.
"""

from dataclasses import replace

import numpy as np

from peref.golden.compute.reference import expected
from peref.tape import Tape, Var


def in_order(x, axis, keepdims=False, backward=False):
    """A sum that adds one number after the other, in the precision of the array."""
    axes = range(x.ndim) if axis is None else (axis,) if np.ndim(axis) == 0 else axis
    for k in sorted((a % x.ndim for a in axes), reverse=True):
        parts = np.moveaxis(x, k, 0)
        total = np.zeros(parts.shape[1:], x.dtype)
        for part in parts[::-1] if backward else parts:
            total = total + part
        x = total[(slice(None),) * k + (None,)] if keepdims else total
    return x


def product_in_order(a, b):
    """A product of matrices, one rank after the other."""
    total = np.zeros((), a.dtype)
    for n in reversed(range(a.shape[-1])):
        total = total + a[..., :, n : n + 1] * b[..., n : n + 1, :]
    return total


PLAIN = {}
OTHER_FUNCTIONS = {
    np.exp: lambda x: np.exp2(x * x.dtype.type(np.log2(np.e))) if x.dtype.kind == "f" else np.exp(x),
    np.divide: lambda a, b: a * (1 / b),
    np.cos: lambda x: np.sin(x + x.dtype.type(np.pi / 2)) if np.abs(x).max(initial=0) < 4 else np.cos(x),
    np.tanh: lambda x: np.sign(x) * (1 - 2 / (np.exp(2 * np.abs(x)) + 1)),
    np.sqrt: lambda x: np.power(x, x.dtype.type(0.5)),
    np.square: lambda x: x * x,
    np.power: lambda a, b: np.where(a > 0, np.exp2(b * np.log2(np.where(a > 0, a, 1))), np.power(a, b)),
}


class Other(np.ndarray):
    """An array that computes otherwise."""

    __module__ = "numpy"

    def __array_finalize__(self, other):
        self.how = getattr(other, "how", None)

    def __array_ufunc__(self, ufunc, method, *given, out=None, **more):
        how = next(x.how for x in (*given, *(out or ())) if isinstance(x, Other) and x.how is not None)
        if method == "at":  # into the first of them, which so must not be a copy
            getattr(ufunc, method)(*map(bare_of, given), **more)
            return None
        plain = [how.low(bare_of(x)) for x in given]
        into = {} if out is None else {"out": tuple(bare_of(x) for x in out)}
        more = {name: bare_of(x) for name, x in more.items()}
        if more.get("dtype") is not None and np.dtype(more["dtype"]).kind == "f":
            more["dtype"] = None if how.throughout else more["dtype"]
        if (
            method == "reduce"
            and ufunc is np.add
            and how.order
            and plain[0].dtype.kind == "f"
            and set(more) <= {"axis", "dtype", "keepdims", "out"}
        ):
            got = in_order(
                plain[0].astype(more.get("dtype") or plain[0].dtype),
                more.get("axis", 0),
                more.get("keepdims", False),
                True,
            )
        elif (
            ufunc is np.matmul and how.order and plain[0].dtype.kind == "f" and min(x.ndim for x in plain) > 1
        ):
            got = product_in_order(*plain)
        elif (
            method == "__call__"
            and ufunc in how.functions
            and not more
            and all(getattr(x, "dtype", np.dtype(float)).kind == "f" for x in plain)
        ):
            like = np.result_type(*plain)
            got = how.functions[ufunc](*[np.asarray(x, like) for x in plain])
        else:
            got = getattr(ufunc, method)(*plain, **into, **more)
            return as_other(how.low(got), how) if out is None else out[0]
        if out is not None:
            into["out"][0][...] = got
            return out[0]
        return as_other(got, how)

    def __array_function__(self, function, types, args, kwargs):
        return as_other(super().__array_function__(function, types, args, kwargs), self.how)


def bare_of(x):
    return x.view(np.ndarray) if isinstance(x, Other) else x


def as_other(x, how):
    if isinstance(x, (tuple, list)):
        return type(x)(as_other(one, how) for one in x)
    if not isinstance(x, (np.ndarray, np.floating)):
        return x
    found = np.asarray(x).view(Other)
    found.how = how
    return found


class How:
    """throughout: whatever is float64 on the way becomes the dtype of the inputs. order: sums one after
    the other, from the end.
    """

    def __init__(self, dtype, *, throughout=False, order=False, functions=None):
        self.dtype, self.throughout, self.order, self.functions = dtype, throughout, order, functions or PLAIN

    def low(self, x):
        if self.throughout and getattr(x, "dtype", None) == np.float64 and self.dtype == np.float32:
            return x.astype(np.float32)
        return x


class OtherTape(Tape):
    """Recorded calls hand on such arrays, whatever they made inside."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def record(self, op, saved, arrays, *results):
        def backward(saved, dy, *more):
            got = op.backward(saved, as_other(dy, self.how), *as_other(more, self.how))
            slots = [x.slot if isinstance(x, Var) else None for x in arrays]
            return tuple(
                None if g is None or s is None else as_other(bare_of(g).astype(s.dtype), self.how)
                for g, s in zip(got, slots, strict=True)
            )

        backward.__name__ = op.forward.__name__
        other = (as_other(self.how.low(bare_of(y)), self.how) for y in results)
        return super().record(replace(op, backward=backward), saved, arrays, *other)


def there(at, how):
    """The same place, whose numbers compute otherwise."""
    found = replace(at, i=as_other(at.i, how), j=as_other(at.j, how))
    known = {"consecutive": at.consecutive, "see": at.see, "spans": at.spans, "runs": at.runs}
    if at.i.ndim < 3:
        known |= {"distances": as_other(at.distances, how), "index": at.index}
    vars(found).update(known)
    return found


def wide(dtype):
    return np.dtype(dtype) == np.float64


ARITHMETICS = {
    "reference": lambda dtype: None,
    "float32 throughout": lambda dtype: How(dtype, throughout=True),
    "sums in order": lambda dtype: How(dtype, throughout=not wide(dtype), order=True),
    "other functions": lambda dtype: How(dtype, throughout=not wide(dtype), functions=OTHER_FUNCTIONS),
}


def computed(case, a, name, dtype):
    """Every expected tensor of the case for inputs `a`, in the arithmetic of that name and float64 or
    float32 inputs.
    """
    how = ARITHMETICS[name](np.dtype(dtype))
    real = lambda key, x: (
        x.astype(dtype) if x.dtype.kind == "f" and key not in ("positions", "distances") else x
    )
    given = {key: real(key, x) for key, x in a.items()}
    if how is None:
        return expected(case, given)
    found = expected(
        case,
        {key: as_other(x, how) if x.dtype.kind == "f" else x for key, x in given.items()},
        at=there(case.at, how),
        tape=OtherTape(how),
    )
    return {key: how.low(bare_of(x)) for key, x in found.items()}
