"""A cuda op under emulation beside its plain twin: outputs and every gradient, with a random cotangent."""

from contextlib import contextmanager

import fake_cupy
import numpy as np
from check import each_array

from emulated.device import Fault, attach
from peref.ops.place import At
from peref.tape import Tape

CLOSE, TF32, BF16 = 1e-5, 1e-3, 1e-2  # relative Frobenius, against float64


# an edit that changes nothing, compiled as edits are
SAME = ("#define KERNEL extern", "#define  KERNEL extern")


@contextmanager
def emulated(seed=1, edit=None, capability="90"):
    """The fake CuPy with kernels that run; new memory is poison."""
    with fake_cupy.installed(memory=True, capability=capability) as cupy:
        cupy.emulated = attach(cupy, seed, edit)
        yield cupy


def sent(cupy, x):
    return (
        x.moved(cupy.asarray)
        if isinstance(x, At)
        else each_array(lambda a: cupy.asarray(a) if isinstance(a, np.ndarray) else a, x)
    )


def cotangent(y):
    return np.random.default_rng([99, *y.shape]).standard_normal(y.shape) if y.shape else np.asarray(0.7)


def pulled(function, arrays, settings, dy=None, send=lambda x: x):
    """y and the gradient of every real array, as NumPy arrays; dy: the cotangent to use."""
    tape = Tape()
    args = [
        tape.watch(send(a))
        if isinstance(a, np.ndarray) and a.dtype.kind not in "iub"
        else None
        if a is None
        else send(a)
        for a in arrays
    ]
    y = function(*args, **{k: send(s) for k, s in settings.items()})
    y = y[0] if isinstance(y, tuple) else y
    dy = cotangent(y).astype(y.dtype) if dy is None else dy.astype(y.dtype)
    found = tape.gradients(y, send(dy))
    return [y.value, *(found[a] for a in args if hasattr(a, "slot"))], dy


def distance(got, want):
    """|got - want| / |want| in the Frobenius norm; of two zeros 0."""
    size = np.linalg.norm(want)
    return np.linalg.norm(got - want) / size if size else np.linalg.norm(got)


def errors(
    fast, plain, arrays, settings=None, *, dtype=np.float32, wide=(), seeds=(1, 2), edit=None, host=()
):
    """Relative errors of y and of each gradient; two orders of threads must give the same bits.

    Arrays whose places are in `wide` stay float64. Both get the same numbers, those that `dtype` can hold,
    and the same cotangent.
    """
    settings, runs = settings or {}, []
    held = [
        a if k in wide or not (isinstance(a, np.ndarray) and a.dtype.kind == "f") else a.astype(dtype)
        for k, a in enumerate(arrays)
    ]
    exact = [
        a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind not in "iub" else a for a in held
    ]
    for seed in seeds:
        with emulated(seed, edit) as cupy:
            got, dy = pulled(
                fast, held, {k: s for k, s in settings.items()}, send=lambda x, c=cupy: sent(c, x)
            )
            runs.append([a.get() for a in got])
            assert cupy.emulated.launched
            assert edit is None or cupy.emulated.changed, "nothing was changed"
    want, _ = pulled(plain, exact, settings, dy=dy.astype(np.float64))
    for one in runs[1:]:
        for a, b in zip(runs[0], one, strict=True):
            if a.tobytes() != b.tobytes():
                raise Fault("the result depends on the order of threads")
    for g, w in zip(runs[0], want, strict=True):
        assert g.shape == w.shape
    return [distance(g.astype(np.float64), w) for g, w in zip(runs[0], want, strict=True)]


def twins(fast, plain, arrays, settings=None, *, tolerance=CLOSE, zero=(), **rest):
    """Holds the errors under the tolerance; `zero`: gradients that are 0 but for rounding, held against
    the cotangent elsewhere.
    """
    found = errors(fast, plain, arrays, settings, **rest)
    for k, error in enumerate(found):
        if k not in zero:
            assert error <= tolerance, f"{k}: {error:.2e}, allowed {tolerance:.0e}; all: {found}"
    return found
