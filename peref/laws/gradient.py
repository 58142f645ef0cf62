"""The derivative written by hand against finite differences, in float64, and arrays that nobody may write to.

Not here: which functions are asked (everywhere, claimed).
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from peref.compare import Differs, same
from peref.tape import Tape, Var
from peref.xp import library

OF_AN_OP = 8  # arrays of an op; a model's parameters are more
EPSILON = np.finfo(np.float64).eps
STEPS = [2.0**-k for k in range(8, 23)]
AGAIN = [2.0**-k for k in (14, 17, 20)]  # where to start again, finer, where nothing settled: a kink is near


def each_array(change: Callable, x: Any) -> Any:
    """`x` with every array inside (in tuples, lists, dicts and records) replaced by change(array)."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(each_array(change, a) for a in x))
    if isinstance(x, (tuple, list)):
        return type(x)(each_array(change, a) for a in x)
    if isinstance(x, dict):
        return {k: each_array(change, a) for k, a in x.items()}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        given = (f.name for f in dataclasses.fields(x) if f.init)
        return dataclasses.replace(x, **{name: each_array(change, getattr(x, name)) for name in given})
    return change(x) if isinstance(x, (np.ndarray, np.generic)) or library(x) == "cupy" else x


def locked(x: Any) -> Any:
    """Make every NumPy array inside `x` read-only, in place."""

    def lock(a: Any) -> Any:
        if isinstance(a, np.ndarray):
            a.setflags(write=False)
        return a

    each_array(lock, x)
    return x


def frozen(x: Any, dtype: Any = None) -> Any:
    """A read-only copy of every array inside `x`, the real ones as `dtype` when it is given."""

    def copy(a: Any) -> Any:
        kind = dtype if dtype is not None and is_real(a) else None
        return np.array(a, kind) if isinstance(a, np.ndarray) else a

    return locked(each_array(copy, x))


def guarded(name: str, function: Callable, *args: Any, **keywords: Any) -> Any:
    """Call; writing into a read-only array is a difference like any other."""
    try:
        return function(*args, **keywords)
    except ValueError as e:
        if "read-only" in str(e):
            raise Differs(name, "written", f"it writes into an array that is not its own: {e}") from e
        raise


def unchanged(name: str, arrays: Sequence[Any], before: Sequence[Any]) -> None:
    for k, (a, b) in enumerate(zip(arrays, before, strict=True)):
        if b is not None and getattr(b, "size", False):
            same(a, b, 0, f"{name}: array {k} after the call")


def title(function: Any) -> str:
    return getattr(getattr(function, "forward", function), "__name__", repr(function))


def is_real(a: Any) -> bool:
    return isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind == "f"


def first(y: Any) -> Any:
    """The differentiable one of what a call returns."""
    return y[0] if isinstance(y, tuple) else y


def gradient(
    function: Callable,
    arrays: Sequence[Any],
    settings: dict[str, Any] | None = None,
    *,
    wrt: Sequence[int] | None = None,
    tolerance: float = 1e-7,
    seed: int = 0,
    elementwise: bool = False,
    names: Sequence[str] | None = None,
) -> None:
    """The gradients that a tape gives for `function` agree with finite differences, in float64.

    function     an Op, or a Python function of arrays that calls ops; of several results the first counts
    wrt          which of `arrays`; all real ones unless said
    tolerance    for |<grad, t> - numeric| / max(|<grad, t>|, |numeric|, ||grad||). For a random direction t,
                 standard normal, <grad, t> has the standard deviation ||grad||: a small inner product is
                 compared on the
                 scale it could have had. A direction with |<grad, t>| < ||grad|| / 4 is drawn again, so a
                 gradient
                 wrong as a whole by one part in a thousand is an error of at least 1e-4 of that scale.
    elementwise  one direction for each element (small arrays only), errors on the scale of the largest
    names        what a message calls each array

    The incoming gradient is random. The numeric derivative is extrapolated from central differences until it
    agrees with itself, without a look at the analytic one. A gradient lost in the rounding of `function` is
    an error too, unless it is zero by both. Also checked: arrays, dy and saved are read-only and unchanged;
    the gradient of an array is the same to the last bit whichever others are watched (parts_of).
    """
    name, settings, rng = title(function), settings or {}, np.random.default_rng(seed)
    arrays = frozen(list(arrays), np.float64)
    called = [f"gradient of {one}" for one in names or ()]
    called = called or [f"{name}: array {k}" for k in range(len(arrays))]
    before = frozen(arrays)
    wrt = [k for k, a in enumerate(arrays) if is_real(a)] if wrt is None else list(wrt)
    if not wrt or any(not is_real(arrays[k]) or arrays[k].size == 0 for k in wrt):
        said = "are to be differentiated; expected at least one, real and not empty"
        raise Differs(name, "empty", f"arrays {wrt} {said}")
    y = first(guarded(name, function, *arrays, **settings))
    if not is_real(y) or y.size == 0 or not np.isfinite(y).all():
        said = f"its value is {type(y).__name__} of {getattr(y, 'dtype', None)}"
        raise Differs(name, "value", f"{said}; expected finite real numbers")
    dy = locked(np.array(rng.standard_normal(y.shape), y.dtype))
    got = taped(name, function, arrays, settings, wrt, dy)

    for k in wrt:
        x, g = arrays[k], got[k]
        if not np.isfinite(g).all():
            raise Differs(called[k], "value", f"{np.count_nonzero(~np.isfinite(g))} non-finite elements")

        def at(v: Any, k: int = k) -> Any:
            moved = [v if n == k else a for n, a in enumerate(arrays)]
            return np.asarray(first(guarded(name, function, *moved, **settings)), np.float64)

        if elementwise:
            for n, t in enumerate(np.eye(x.size)):
                t = t.reshape(x.shape)
                agree(f"{called[k]}, element {n}", g, t, at, x, y, dy, tolerance, np.abs(g).max())
        else:
            agree(called[k], g, direction(rng, g), at, x, y, dy, tolerance, float(np.linalg.norm(g)))

    for subset in parts_of(wrt, 1 if names or len(wrt) > OF_AN_OP else 2):
        alone = taped(name, function, arrays, settings, subset, dy)
        for k in subset:
            same(alone[k], got[k], 0, f"{called[k]} when {list(subset)} are watched")
    unchanged(name, arrays, before)


def parts_of(wrt: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Each alone, each two where `most` is 2 (of an op's few arrays), and all but one."""
    counts = {*range(1, most + 1), len(wrt) - 1} - {0, len(wrt)}
    return [subset for count in sorted(counts) for subset in combinations(wrt, count)]


def taped(
    name: str, function: Callable, arrays: Sequence[Any], settings: Any, wrt: Sequence[int], dy: Any
) -> dict[int, Any]:
    """{k: gradient} for the arrays in `wrt`, from a tape."""
    tape = Tape()
    leaves = {k: tape.watch(arrays[k]) for k in wrt}
    y = first(guarded(name, function, *(leaves.get(k, a) for k, a in enumerate(arrays)), **settings))
    if not isinstance(y, Var):
        raise Differs(name, "value", f"its value does not depend on arrays {list(wrt)} by way of any op")
    locked([saved for _, saved, *_ in tape.entries])
    got = guarded(name, tape.gradients, y, dy)
    return {k: got[v] for k, v in leaves.items()}


def direction(rng: Any, g: Any) -> Any:
    """Random, and not nearly at a right angle to g."""
    for _ in range(100):
        t = rng.standard_normal(g.shape)
        if not abs(np.vdot(g, t)) < np.linalg.norm(g) / 4:
            break
    return t


def agree(
    name: str, g: Any, t: Any, at: Callable, x: Any, y: Any, dy: Any, tolerance: float, size: float
) -> None:
    """<g, t> is the derivative of <f(x + h t), dy> at h = 0; errors on the scale `size` of g."""
    analytic = float(np.vdot(g, t))
    slope = lambda h: float(np.vdot(at(locked(x + h * t)) - at(locked(x - h * t)), dy)) / (2 * h)
    noise = 16 * EPSILON * float(np.abs(np.asarray(y) * dy).sum())
    numeric, doubt, step = derivative(slope, size, noise)
    error, scale = abs(analytic - numeric), max(size, abs(analytic), abs(numeric))
    unit = float(np.abs(dy).sum())
    rounding = noise / step
    zero = size <= 64 * EPSILON * unit
    text = f"analytic {analytic:.12g}, central difference {numeric:.12g} (sure to {doubt:.1g})"
    if not (rounding <= (1e-6 * unit if zero else 1e-5 * scale)):
        said = f"too small to be checked beside the rounding of the function, {rounding:.1g}"
        raise Differs(name, "value", f"{text}: {said}")
    if not (error <= rounding + (0 if zero else tolerance * scale)):
        raise Differs(name, "value", f"{text}: error {error / scale:.3g}, tolerance {tolerance:.3g}")


def derivative(slope: Callable[[float], float], size: float, noise: float) -> tuple[float, float, float]:
    """Ridders' method: slope(h), even in h, taken to h = 0; again from finer steps where others disagree.

    They agree on the scale `size` of the gradient: a tiny element must not need steps that drown in rounding.
    Those that agree because rounding, noise / h, holds them still are not surer than that.

    The value, its distance from its neighbours in the table or its rounding, the h of its row.
    """
    best, doubt, settled, step = np.nan, np.inf, np.inf, STEPS[-1]
    above: list[float] = []
    for h in STEPS:
        if h in AGAIN:
            if settled <= 1e-9 * max(size, abs(best)):
                break
            above = []
        row = [slope(h)]
        for n, old in enumerate(above):
            row.append(row[n] + (row[n] - old) / (4 ** (n + 1) - 1))
            apart = max(abs(row[-1] - row[-2]), abs(row[-1] - old))
            settled = min(settled, apart)
            if max(apart, noise / h) < doubt:
                best, doubt, step = row[-1], max(apart, noise / h), h
        above = row if np.isfinite(row[0]) else []  # outside the function's domain: again from a smaller step
        if len(row) > 2 and settled <= 1e-10 * max(size, abs(best)):
            break
    return best, doubt, step
