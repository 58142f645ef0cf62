"""Honest programs in 16 bits: float32 arithmetic whose intermediate numbers are kept in bfloat16 or float16.

between   what goes from one operation to the next, forward and backward, and the tables of biases and gains
flash     the weights of attention before they meet the values, and the derivative of the logits before it
          meets q and k; the rest in float32
eager     every result of every array operation; sums are added up in float32 and rounded once, as libraries
          do it
sums      eager, and every partial sum is rounded too

Angles and positions are float32 in all of them, or better: to keep those in 16 bits is a bug, and a well
known one. On the way float16 has the digits of float16 and the range of float32: what overflows there is
wrong by no rounding, and a program that lets it is rightly told so. `trace` takes the range of float16 too.
"""

from dataclasses import replace

import numpy as np
from mutants.ways import bfloat16

from peref.golden.compute.reference import expected
from peref.golden.compute.trace import trace_outputs
from peref.tape import Tape, Var

FLASH = ("probabilities_forward", "sunk_forward", "weigh_forward")


def eleven_bits(x):
    """The nearest number of 11 significant bits."""
    exponent = np.frexp(x)[1] - 11
    return np.ldexp(np.rint(np.ldexp(x, -exponent)), exponent)


LOW = {"BF16": bfloat16, "F16": eleven_bits}


def lowered(dtype):
    """The function that rounds real arrays to 16 bits and keeps them as float32."""
    return lambda x: (
        LOW[dtype](x).astype(np.float32)
        if getattr(x, "dtype", None) is not None and x.dtype.kind == "f"
        else x
    )


class Sixteen(np.ndarray):
    """An array whose results are rounded."""

    __module__ = "numpy"

    def __array_finalize__(self, other):
        self.low = getattr(other, "low", None)

    def __array_ufunc__(self, ufunc, method, *given, out=None, **more):
        low, kind = next(
            (x.low, type(x)) for x in (*given, *(out or ())) if isinstance(x, Sixteen) and x.low is not None
        )
        into = {} if out is None else {"out": tuple(map(plain, out))}
        got = getattr(ufunc, method)(
            *map(plain, given), **into, **{name: plain(x) for name, x in more.items()}
        )
        if method == "at":
            return None
        if out is not None:
            into["out"][0][...] = low(into["out"][0])
            return out[0]
        return rounding(low(got), low, kind)

    def __array_function__(self, function, types, args, kwargs):
        return rounding(super().__array_function__(function, types, args, kwargs), self.low, type(self))


class Summed(Sixteen):
    """One whose partial sums are rounded too."""

    __module__ = "numpy"

    def __array_ufunc__(self, ufunc, method, *given, out=None, **more):
        low = next(x.low for x in given if isinstance(x, Sixteen) and x.low is not None)
        if ufunc is np.add and method == "reduce" and out is None:
            return rounding(
                summed(plain(given[0]), more.get("axis", 0), more.get("keepdims", False), low), low, Summed
            )
        if ufunc is np.matmul and min(map(np.ndim, given)) > 1:
            a, b = map(plain, given)
            total = np.zeros((), np.float32)
            for n in range(a.shape[-1]):
                total = low(total + low(a[..., :, n : n + 1] * b[..., n : n + 1, :]))
            return rounding(total, low, Summed)
        return super().__array_ufunc__(ufunc, method, *given, out=out, **more)


def summed(x, axis, keepdims, low):
    for k in sorted(a % x.ndim for a in (range(x.ndim) if axis is None else np.atleast_1d(axis))):
        total = np.zeros_like(np.take(x, [0], k)) if x.shape[k] else x.sum(k, keepdims=True)
        for n in range(x.shape[k]):
            total = low(total + np.take(x, [n], k))
        x = total
    return x if keepdims else np.squeeze(x, None if axis is None else tuple(np.atleast_1d(axis)))


def plain(x):
    return x.view(np.ndarray) if isinstance(x, Sixteen) else x


def rounding(x, low, kind=Sixteen):
    """Arrays in `x` as such that round."""
    if isinstance(x, (tuple, list)):
        return type(x)(rounding(one, low, kind) for one in x)
    if not isinstance(x, (np.ndarray, np.floating)):
        return x
    found = np.asarray(x).view(kind)
    found.low = low
    return found


class LowTape(Tape):
    """Recorded calls hand on rounded numbers; `only` some of them; while `exact`, none. `within`
    operations arrays are of that type.
    """

    def __init__(self, low, *, only=None, within=None):
        super().__init__()
        self.low, self.only, self.within, self.exact = low, only, within, False

    def record(self, op, saved, arrays, *results):
        low = (
            self.low
            if not self.exact and (self.only is None or op.forward.__name__ in self.only)
            else lambda x: x
        )
        wrap = (
            (lambda x: rounding(x, self.low, self.within)) if self.within and not self.exact else lambda x: x
        )
        slots = [x.slot if isinstance(x, Var) else None for x in arrays]

        def backward(saved, dy, *more):
            got = op.backward(
                saved, wrap(dy), *(x if isinstance(x, tuple) or x is None else wrap(x) for x in more)
            )
            return tuple(
                None if g is None or s is None else wrap(low(plain(g)).astype(s.dtype))
                for g, s in zip(got, slots, strict=True)
            )

        backward.__name__ = op.forward.__name__
        return super().record(
            replace(op, backward=backward), saved, arrays, *(wrap(low(plain(y))) for y in results)
        )


def with_tables(pe, tape):
    """The encoding with gains and biases in 16 bits, and angles as they are."""
    low = lambda x: x if isinstance(x, Var) else tape.low(plain(x))

    def rotate(*given):
        tape.exact = True
        angle, *gains = pe.rotate(*given)
        tape.exact = False
        return (angle, *map(low, gains))

    found = replace(pe, rotate=rotate) if pe.rotate else pe
    return replace(found, bias=lambda *given: low(pe.bias(*given))) if pe.bias else found


def between(case, a, low):
    tape = LowTape(low)
    return expected(case, a, with_tables(case.config.encoding(0), tape), tape=tape)


def flash(case, a, low):
    return expected(case, a, tape=LowTape(low, only=FLASH)) if case.level == "attn" else {}


def eager(case, a, low, kind=Sixteen):
    tape = LowTape(low, within=kind)
    given = {
        name: rounding(x, low, kind) if x.dtype.kind == "f" and name not in ("positions", "distances") else x
        for name, x in a.items()
    }
    return expected(case, given, with_tables(case.config.encoding(0), tape), tape=tape)


def sums(case, a, low):
    return eager(case, a, low, Summed)


def trace(case, a, dtype):
    """The y of a trace all of whose numbers are of `dtype`, those of the state between two calls too."""
    low = lambda x: x.astype(dtype).astype(np.float32) if x.dtype.kind == "f" else x
    given = {
        name: rounding(x.astype(np.float32), low, Summed) for name, x in a.items() if name != "positions"
    }
    with np.errstate(all="ignore"):
        y = trace_outputs(case, a | given, tape=LowTape(low, within=Summed))["y"]
    return plain(y).astype(dtype)


VARIANTS = {"between": between, "flash": flash, "eager": eager, "sums": sums}


def computed(case, a, name, dtype, variants=VARIANTS):
    """Every tensor that this program gives for inputs `a`, as 16-bit numbers in float32."""
    low = lowered(dtype)
    given = {
        key: x.astype(np.float32) if x.dtype.kind == "f" and key not in ("positions", "distances") else x
        for key, x in a.items()
    }
    with np.errstate(all="ignore"):
        got = variants[name](case, given, low) or {}
    return {
        key: low(plain(np.asarray(x)).astype(np.float32)) if np.asarray(x).dtype.kind == "f" else x
        for key, x in got.items()
    }
