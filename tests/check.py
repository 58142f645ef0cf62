"""What every other test checks with. Each function but `apart` raises AssertionError; none returns a bool.

same(actual, expected, tolerance)            two arrays, or dicts of arrays, agree (peref.compare)
same_numbers(actual, expected, tolerance)    the same of plain numbers, and of lists and dicts of them
apart(actual, expected, tolerance)           in what two arrays differ that should, or None
gradient(function, arrays)                   the derivative written by hand agrees with finite differences
op_contract(op, arrays, settings)            an op keeps the promises that the tape and the backends rely on
"""

import fake_cupy
import numpy as np

from peref.compare import Differs, same
from peref.laws.gradient import (
    agree,
    direction,
    each_array,
    frozen,
    gradient,
    guarded,
    is_real,
    locked,
    title,
    unchanged,
)
from peref.ops.cross import Cross
from peref.ops.place import At
from peref.xp import library

__all__ = [
    "Differs",
    "agree",
    "apart",
    "direction",
    "each_array",
    "frozen",
    "gradient",
    "op_contract",
    "same",
    "same_numbers",
]


def same_numbers(actual, expected, tolerance, name=""):
    """Two numbers, or lists or dicts of them, agree: `same` of the arrays that they make."""
    same(made_array(actual), made_array(expected), tolerance, name)


def made_array(x):
    if isinstance(x, dict):
        return {name: made_array(value) for name, value in x.items()}
    return None if x is None else np.asarray(x)


def apart(actual, expected, tolerance=0):
    """In what two arrays differ, whatever their dtypes, or None: where a test asks that something shows."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    try:
        same(actual.astype(expected.dtype), expected, tolerance, empty=not expected.size)
    except Differs as found:
        return found
    return None


def op_contract(op, arrays, settings=None, *, host=(), wide=(), seed=0):
    """An op keeps what the tape and the backends rely on, in float64 and in float32.

    It writes to none of its arguments, to dy and to saved; called again it gives the same bits; dtype in is
    dtype out; its gradients are as many as its arrays, of their shape and dtype, None for whole numbers and
    absent ones; on the fake CuPy it stays on it and gives the same values. Settings that hold arrays go to
    the fake CuPy too, except those named in `host`; the arrays whose places are in `wide` (angles, tables
    over positions) stay float64 throughout.
    """
    name, settings, rng = title(op), settings or {}, np.random.default_rng(seed)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        args = [frozen(a, np.float64 if k in wide else dtype) for k, a in enumerate(arrays)]
        keywords = frozen(settings)
        before = frozen(args)
        y, extra, saved = forward(name, op, args, keywords)
        if library(y) != "numpy":
            raise Differs(name, "library", f"forward gives {type(y).__name__}; expected a NumPy array")
        if any(map(is_real, args)) and y.dtype != dtype:
            raise Differs(name, "dtype", f"forward gives {y.dtype} for {np.dtype(dtype)}")
        dy = locked(np.array(rng.standard_normal(y.shape), y.dtype))
        dy_before, wants = frozen(dy), tuple(map(is_real, args))
        got = backward(name, op, saved, dy, wants)
        well_made(name, got, args)
        unchanged(name, [*args, dy], [*before, dy_before])
        again = forward(name, op, args, keywords)
        same([again[0], *backward(name, op, again[2], dy, wants)], [y, *got], 0, f"{name} called again")

        with fake_cupy.installed() as cp:
            send = lambda x: (
                x.moved(cp.asarray) if isinstance(x, (At, Cross)) else each_array(to_device(cp), x)
            )
            back = lambda x: each_array(cp.asarray, x)
            try:
                moved = {k: v if k in host else send(v) for k, v in keywords.items()}
                fake_y, fake_extra, fake_saved = forward(name, op, send(args), moved)
                fake_got = backward(name, op, fake_saved, send(dy), wants)
            except (TypeError, ValueError, IndexError, AttributeError) as e:
                raise Differs(name, "library", f"on the fake CuPy: {type(e).__name__}: {e}") from e
            same([fake_y, *fake_got], back([y, *got]), tolerance, f"{name} on the fake CuPy")
            same(
                [fake_y, fake_extra],
                [back(y), back(extra)],
                tolerance,
                f"{name} on the fake CuPy, with its by-products",
            )


def to_device(cp):
    return lambda one: cp.asarray(one) if isinstance(one, np.ndarray) else one


def forward(name, op, args, keywords):
    """y, by-products or None, saved (read-only)."""
    result = guarded(name, op.forward, *args, **keywords)
    count = 2 + (op.extra or op.state)
    if not isinstance(result, tuple) or len(result) != count:
        raise Differs(name, "names", f"forward returns {type(result).__name__}; expected a tuple of {count}")
    y, saved, *extra = result
    return locked(y), extra[0] if extra else None, locked(saved)


def backward(name, op, saved, dy, wants):
    got = (
        guarded(name, op.backward, saved, dy, wants)
        if op.selective
        else guarded(name, op.backward, saved, dy)
    )
    if not isinstance(got, tuple):
        raise Differs(name, "names", f"backward returns {type(got).__name__}; expected a tuple")
    return got


def well_made(name, got, args):
    """One gradient for each array, of its shape and dtype, None for those that cannot have one."""
    if len(got) != len(args):
        raise Differs(name, "names", f"backward returns {len(got)} gradients for {len(args)} arrays")
    if all(g is None for g in got):
        raise Differs(name, "empty", "backward gives no gradient at all")
    for k, (g, a) in enumerate(zip(got, args, strict=True)):
        if g is None:
            continue
        if not is_real(a):
            raise Differs(
                name, "names", f"gradient {k} should be None: its array is {getattr(a, 'dtype', None)}"
            )
        if library(g) != "numpy":
            raise Differs(name, "library", f"gradient {k} is a {type(g).__name__}; expected a NumPy array")
        if (g.dtype, g.shape) != (a.dtype, a.shape):
            raise Differs(
                name,
                "dtype" if g.dtype != a.dtype else "shape",
                f"gradient {k} is {g.dtype}{g.shape}, array {a.dtype}{a.shape}",
            )
