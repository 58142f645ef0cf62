"""Ways to be wrong: a function of these makes the `run` of a mutant."""

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib import import_module
from unittest import mock

import numpy as np
from generated import config, weights

from peref.encodings import files, get, names, options
from peref.golden.compute.reference import expected
from peref.model import PLAIN, of_encoding
from peref.tape import Op

ANY = tuple(names())


def hooked(*hooks):
    """Every encoding that fills one of these hooks."""
    return tuple(name for name in ANY if get(name).hook in hooks)


def with_names(*wanted):
    """Every encoding whose file has all of these names, which `patched` replaces there."""
    has = lambda name: all(hasattr(import_module(files()[name]), one) for one in wanted)
    return tuple(filter(has, ANY))


def with_option(option):
    return tuple(name for name in ANY if option in options(get(name)))


def with_parameters(*wanted):
    """Every encoding that has all of these parameters, or any where none is named, at its defaults."""
    has = lambda found: found >= set(wanted) if wanted else bool(found)
    return tuple(name for name in ANY if has(parameters_of(name)))


@cache
def parameters_of(name):
    return set(small(name)[1])


def small(name, **given):
    """The encoding at its defaults in a small model, and its parameters."""
    cfg = config(name, layers=1, **given)
    return cfg.encoding(0), of_encoding(cfg, weights(cfg), 0)


def patched(where=None, only=None, **changes):
    """Names of the module `where` have other values while it computes; a change may take the old value:
    old=lambda f: ...
    """

    def run(case, a):
        if only is not None and not only(case):
            return None
        module = import_module(f"peref.{where}")
        with ExitStack() as stack:
            for name, value in changes.items():
                stack.enter_context(mock.patch.object(module, name, value))
            return expected(case, a)

    return run


def backend(**changes):
    """A field of the backend does something else."""

    def run(case, a):
        with mock.patch("peref.golden.compute.operation.PLAIN", replace(PLAIN, **changes)):
            return expected(case, a)

    return run


def with_case(only=None, **changes):
    """The case has other settings; what is callable is asked with the case."""

    def run(case, a):
        if only is not None and not only(case):
            return None
        return expected(replace(case, **{n: v(case) if callable(v) else v for n, v in changes.items()}), a)

    return run


def with_options(only=None, **given):
    """Options have other values, those of the case left as they are."""

    def run(case, a):
        if only is not None and not only(case):
            return None
        return expected(
            replace(
                case, options={**case.options, **{n: v(case) if callable(v) else v for n, v in given.items()}}
            ),
            a,
        )

    return run


def moved_positions(change, only=None):
    """Positions are changed."""

    def run(case, a):
        if only is not None and not only(case.at.i):
            return None
        i = change(case.at.i)
        return expected(case, a, None, replace(case.at, i=i, j=i))

    return run


def place(only=None, **changes):
    """The place is another one."""
    return lambda case, a: (
        None if only is not None and not only(case) else expected(case, a, None, replace(case.at, **changes))
    )


def hook(name, change):
    """A hook of the encoding, in other words: change(old) -> new."""
    return lambda case, a: expected(
        case, a, replace(pe := case.config.encoding(0), **{name: change(getattr(pe, name))})
    )


def angles(change):
    """The angles of a rotation are changed."""
    return hook(
        "rotate", lambda rotate: lambda p, i, n: (by(change, (found := rotate(p, i, n))[0], i), *found[1:])
    )


def by(change, x, *more):
    """A change of what may be on a tape, by an op whose derivative is taken as 1 times the ratio."""
    return through(lambda y: change(y, *more))(x)


def through(change):
    """An op that computes change(x), with the derivative of a straight line through 0 and x."""

    def forward(x):
        y = change(x)
        with np.errstate(all="ignore"):
            return y, np.where(x == 0, 1.0, y / np.where(x == 0, 1, x))

    return Op(forward, lambda ratio, dy: (dy * ratio,))


def gains(change):
    """The gains of q and k: change(gain_q, gain_k) -> both."""
    return hook("rotate", lambda rotate: lambda p, i, n: ((found := rotate(p, i, n))[0], *change(*found[1:])))


def table(change):
    """The bias of each distance: change(table, d)."""
    return hook("bias", lambda bias: lambda be, p, d: by(change, bias(be, p, d), d))


def moved_distances(change):
    """The distances that a bias is asked for."""
    return hook("bias", lambda bias: lambda be, p, d: bias(be, p, change(d)))


def inputs(only=None, **changes):
    """Inputs are changed before they are used."""

    def run(case, a):
        if not all(name in a for name in changes) or (only is not None and not only(case)):
            return None
        return expected(case, {**a, **{name: change(a[name]) for name, change in changes.items()}})

    return run


def parameters(**changes):
    """Parameters are read otherwise."""
    return inputs(**{f"param.{name}": change for name, change in changes.items()})


def results(change, *wanted):
    """What comes out is changed: the tensors of these names, or of these beginnings where they end in a
    star.
    """

    def run(case, a):
        found = expected(case, a)
        meant = [
            n for n in found if any(n == w or (w.endswith("*") and n.startswith(w[:-1])) for w in wanted)
        ]
        return {**found, **{n: change(found[n]) for n in meant}} if meant else None

    return run


def backward(op, change):
    """The pair `op` with another derivative: change(gradients, saved, dy) -> gradients."""

    def wrong(saved, dy, *wants):
        return tuple(change(list(op.backward(saved, dy, *wants)), saved, dy))

    return replace(op, backward=wrong)


def forward(op, change):
    """The pair with another result: change(y, *arrays) -> y."""

    def wrong(*arrays, **settings):
        y, *rest = op.forward(*arrays, **settings)
        return (change(y, *arrays), *rest)

    wrong.__name__ = op.forward.__name__
    return replace(op, forward=wrong)


def asked(op, change):
    """The pair with other arguments: change(*arrays) -> arrays."""
    return replace(op, forward=lambda *arrays, **settings: op.forward(*change(*arrays), **settings))


def told(op, **settings):
    """The pair with other settings; a callable one takes the old value."""
    new = lambda given: {**given, **{n: v(given.get(n)) if callable(v) else v for n, v in settings.items()}}
    return replace(op, forward=lambda *arrays, **given: op.forward(*arrays, **new(given)))


def bfloat16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return (
        (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16)
        .astype(np.uint32)
        .view(np.float32)
        .astype(np.float64)
    )


def float16(x):
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float16).astype(np.float64)
