"""What every other test checks with. Each function raises AssertionError; none returns a bool.

same(actual, expected, tolerance)    two arrays, or dicts of arrays, agree (peref.compare)
gradient(function, arrays)           the derivative written by hand agrees with finite differences
op_contract(op, arrays, settings)    an op keeps the promises that the tape and the backends rely on
"""

import dataclasses
from itertools import combinations

import fake_cupy
import numpy as np

from peref.compare import Differs, same
from peref.ops.place import At
from peref.tape import Tape, Var
from peref.xp import library

__all__ = ["Differs", "each_array", "frozen", "gradient", "op_contract", "same"]

EPSILON = np.finfo(np.float64).eps
STEPS = [2.0**-k for k in range(5, 23)]
AGAIN = [2.0**-k for k in (14, 17, 20)]  # where to start again, finer, when nothing has settled: there is a kink nearby


def each_array(change, x):
    """`x` with every array inside (in tuples, lists, dicts and records) replaced by change(array)."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(each_array(change, a) for a in x))
    if isinstance(x, (tuple, list)):
        return type(x)(each_array(change, a) for a in x)
    if isinstance(x, dict):
        return {k: each_array(change, a) for k, a in x.items()}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return dataclasses.replace(x, **{f.name: each_array(change, getattr(x, f.name)) for f in dataclasses.fields(x) if f.init})
    return change(x) if isinstance(x, (np.ndarray, np.generic)) or library(x) == "cupy" else x


def locked(x):
    """Make every NumPy array inside `x` read-only, in place."""

    def lock(a):
        if isinstance(a, np.ndarray):
            a.setflags(write=False)
        return a

    each_array(lock, x)
    return x


def frozen(x, dtype=None):
    """A read-only copy of every array inside `x`, the real ones as `dtype` when it is given."""

    def copy(a):
        return np.array(a, dtype if dtype is not None and a.dtype.kind == "f" else a.dtype) if isinstance(a, np.ndarray) else a

    return locked(each_array(copy, x))


def run(name, function, *args, **keywords):
    """Call; writing into a read-only array is a difference like any other."""
    try:
        return function(*args, **keywords)
    except ValueError as e:
        if "read-only" in str(e):
            raise Differs(name, "written", f"it writes into an array that is not its own: {e}") from e
        raise


def unchanged(name, arrays, before):
    for k, (a, b) in enumerate(zip(arrays, before, strict=True)):
        if b is not None and getattr(b, "size", 0):
            same(a, b, 0, f"{name}: array {k} after the call")


def title(function):
    return getattr(getattr(function, "forward", function), "__name__", repr(function))


def is_real(a):
    return isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind == "f"


def first(y):
    """The differentiable one of what a call returns."""
    return y[0] if isinstance(y, tuple) else y


def gradient(function, arrays, settings=None, *, wrt=None, tolerance=1e-7, seed=0, elementwise=False):
    """The gradients that a tape gives for `function` agree with finite differences, in float64.

    function     an Op, or a Python function of arrays that calls ops; of several results the first is differentiated
    wrt          which of `arrays`; all real ones unless said
    tolerance    for |<grad, t> - numeric| / max(|<grad, t>|, |numeric|, ||grad||). For a random direction t, standard normal, <grad, t> has
                 the standard deviation ||grad||: a small inner product is compared on the scale it could have had. A direction with
                 |<grad, t>| < ||grad|| / 4 is drawn again, so a gradient wrong as a whole by one part in a thousand is an error of at
                 least 1e-4 of that scale.
    elementwise  one direction for each element (small arrays only), errors on the scale of the largest element

    The incoming gradient is random. The numeric derivative is extrapolated from central differences until it agrees with itself, without
    a look at the analytic one. A gradient lost in the rounding of `function` is an error too, unless it is zero by both.
    Also checked: arrays, dy and saved are read-only and unchanged; the gradient of an array is the same to the last bit whichever
    others are watched.
    """
    name, settings, rng = title(function), settings or {}, np.random.default_rng(seed)
    arrays = frozen(list(arrays), np.float64)
    before = frozen(arrays)
    wrt = [k for k, a in enumerate(arrays) if is_real(a)] if wrt is None else list(wrt)
    if not wrt or any(not is_real(arrays[k]) or arrays[k].size == 0 for k in wrt):
        raise Differs(name, "empty", f"arrays {wrt} are to be differentiated; expected at least one, real and not empty")
    y = first(run(name, function, *arrays, **settings))
    if not is_real(y) or y.size == 0 or not np.isfinite(y).all():
        raise Differs(name, "value", f"its value is {type(y).__name__} of {getattr(y, 'dtype', None)}; expected finite real numbers")
    dy = locked(np.array(rng.standard_normal(y.shape), y.dtype))
    got = taped(name, function, arrays, settings, wrt, dy)

    for k in wrt:
        x, g = arrays[k], got[k]
        if not np.isfinite(g).all():
            raise Differs(name, "value", f"the gradient of array {k} has {np.count_nonzero(~np.isfinite(g))} non-finite elements")

        def at(v, k=k):
            moved = [v if n == k else a for n, a in enumerate(arrays)]
            return np.asarray(first(run(name, function, *moved, **settings)), np.float64)

        if elementwise:
            for n in range(x.size):
                t = np.zeros(x.shape)
                t.flat[n] = 1
                agree(f"{name}: array {k}, element {n}", g, t, at, x, y, dy, tolerance, np.abs(g).max())
        else:
            agree(f"{name}: array {k}", g, direction(rng, g), at, x, y, dy, tolerance, np.linalg.norm(g))

    for count in {1, 2, len(wrt) - 1} - {0, len(wrt)}:
        for subset in combinations(wrt, count):
            alone = taped(name, function, arrays, settings, subset, dy)
            for k in subset:
                same(alone[k], got[k], 0, f"{name}: gradient of array {k} when {list(subset)} are watched")
    unchanged(name, arrays, before)


def taped(name, function, arrays, settings, wrt, dy):
    """{k: gradient} for the arrays in `wrt`, from a tape."""
    tape = Tape()
    leaves = {k: tape.watch(arrays[k]) for k in wrt}
    y = first(run(name, function, *(leaves.get(k, a) for k, a in enumerate(arrays)), **settings))
    if not isinstance(y, Var):
        raise Differs(name, "value", f"its value does not depend on arrays {list(wrt)} by way of any op")
    locked([saved for _, saved, *_ in tape.entries])
    got = run(name, tape.gradients, y, dy)
    return {k: got[v] for k, v in leaves.items()}


def direction(rng, g):
    """Random, and not nearly at a right angle to g."""
    for _ in range(100):
        t = rng.standard_normal(g.shape)
        if not abs(np.vdot(g, t)) < np.linalg.norm(g) / 4:
            break
    return t


def agree(name, g, t, at, x, y, dy, tolerance, size):
    """<g, t> is the derivative of <f(x + h t), dy> at h = 0; errors on the scale `size` of g."""
    analytic = float(np.vdot(g, t))
    slope = lambda h: float(np.vdot(at(locked(x + h * t)) - at(locked(x - h * t)), dy)) / (2 * h)
    numeric, doubt, step = derivative(slope, size)
    error, scale, unit = abs(analytic - numeric), max(size, abs(analytic), abs(numeric)), float(np.abs(dy).sum())
    rounding = 16 * EPSILON * float(np.abs(np.asarray(y) * dy).sum()) / step
    zero = size <= 64 * EPSILON * unit
    text = f"analytic {analytic:.12g}, numeric {numeric:.12g} (sure to {doubt:.1g})"
    if not (rounding <= (1e-6 * unit if zero else 1e-5 * scale)):
        raise Differs(name, "value", f"{text}: too small to be checked beside the rounding of the function, {rounding:.1g}")
    if not (error <= rounding + (0 if zero else tolerance * scale)):
        raise Differs(name, "value", f"{text}: error {error / scale:.3g}, tolerance {tolerance:.3g}")


def derivative(slope, size):
    """Ridders' method: slope(h), even in h, taken to h = 0; from finer steps again where coarse ones do not agree.

    They agree on the scale `size` of the gradient: a tiny element must not need steps that drown in rounding.

    The value, its distance from its neighbours in the table, the h of its row.
    """
    best, doubt, step, above = np.nan, np.inf, STEPS[-1], []
    for h in STEPS:
        if h in AGAIN:
            if doubt <= 1e-9 * max(size, abs(best)):
                break
            above = []
        row = [slope(h)]
        for n, old in enumerate(above):
            row.append(row[n] + (row[n] - old) / (4 ** (n + 1) - 1))
            apart = max(abs(row[-1] - row[-2]), abs(row[-1] - old))
            if apart < doubt:
                best, doubt, step = row[-1], apart, h
        above = row if np.isfinite(row[0]) else []  # outside the domain of the function: start again from a smaller step
        if len(row) > 2 and doubt <= 1e-12 * abs(best):
            break
    return best, doubt, step


def op_contract(op, arrays, settings=None, *, host=(), wide=(), seed=0):
    """An op keeps what the tape and the backends rely on, in float64 and in float32.

    It writes to none of its arguments, to dy and to saved; called again it gives the same bits; dtype in is dtype out; its gradients are
    as many as its arrays, of their shape and dtype, None for whole numbers and absent ones; on the fake CuPy it stays on it and gives
    the same values. Settings that hold arrays go to the fake CuPy too, except those named in `host`; the arrays whose places are in `wide`
    (angles, tables over positions) stay float64 throughout.
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
            send = lambda x: x.moved(cp.asarray) if isinstance(x, At) else each_array(to_device(cp), x)
            back = lambda x: each_array(cp.asarray, x)
            try:
                moved = {k: v if k in host else send(v) for k, v in keywords.items()}
                fake_y, fake_extra, fake_saved = forward(name, op, send(args), moved)
                fake_got = backward(name, op, fake_saved, send(dy), wants)
            except (TypeError, ValueError, IndexError, AttributeError) as e:
                raise Differs(name, "library", f"on the fake CuPy: {type(e).__name__}: {e}") from e
            same([fake_y, *fake_got], back([y, *got]), tolerance, f"{name} on the fake CuPy")
            same([fake_y, fake_extra], [back(y), back(extra)], tolerance, f"{name} on the fake CuPy, with its by-products")


def to_device(cp):
    return lambda one: cp.asarray(one) if isinstance(one, np.ndarray) else one


def forward(name, op, args, keywords):
    """y, by-products or None, saved (read-only)."""
    result = run(name, op.forward, *args, **keywords)
    if not isinstance(result, tuple) or len(result) != 2 + op.extra:
        raise Differs(name, "names", f"forward returns {type(result).__name__}; expected a tuple of {2 + op.extra}")
    y, saved, *extra = result
    return locked(y), extra[0] if extra else None, locked(saved)


def backward(name, op, saved, dy, wants):
    got = run(name, op.backward, saved, dy, wants) if op.selective else run(name, op.backward, saved, dy)
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
            raise Differs(name, "names", f"gradient {k} should be None: its array is {getattr(a, 'dtype', None)}")
        if library(g) != "numpy":
            raise Differs(name, "library", f"gradient {k} is a {type(g).__name__}; expected a NumPy array")
        if (g.dtype, g.shape) != (a.dtype, a.shape):
            raise Differs(name, "dtype" if g.dtype != a.dtype else "shape", f"gradient {k} is {g.dtype}{g.shape}, array {a.dtype}{a.shape}")
