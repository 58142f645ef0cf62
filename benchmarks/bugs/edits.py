"""What a bug is: a right program with some of its methods exchanged, and what it is right to call it."""

from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np

from .right import RIGHT
from .tape import V, through

BUGS = {}


@dataclass(frozen=True)
class Bug:
    """`accepts` are the flags that are right as first name; none of them: "no known trap" is the right
    answer.

    `where`: options, facts and a function of positions with which it shows, for one that shows in no golden
    case that was there when it was written, which does not make it less of a bug.
    """

    name: str
    encoding: str
    levels: tuple
    wrong: str
    thread: str
    accepts: frozenset
    idea: str
    backward: bool
    dtypes: tuple
    where: dict
    methods: dict

    @property
    def link(self):
        repository, number = self.thread.split("#")
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def level(self):
        """The level that it is counted at, the last one asked."""
        return self.levels[-1]

    def made(self):
        kind = type(self.name, (RIGHT[self.encoding],), {})
        for name, method in self.methods.items():
            setattr(kind, name, method.of(kind, name) if isinstance(method, After) else method)
        return kind


class After:
    """In place of a method: the right one, and then f(self, what it gave)."""

    def __init__(self, f):
        self.f = f

    def of(self, kind, name):
        return lambda me, *given: self.f(me, getattr(super(kind, me), name)(*given))


def bug(
    name,
    encoding,
    levels,
    wrong,
    thread,
    accepts,
    idea=None,
    dtypes="f64 f32 f16 bf16",
    back=False,
    where=None,
    **methods,
):
    backward = back or any(isinstance(m, Backward) for m in methods.values())
    assert name not in BUGS, name
    BUGS[name] = Bug(
        name,
        encoding,
        tuple(levels.split()),
        wrong,
        thread,
        frozenset(accepts.split()),
        idea or name,
        backward,
        tuple(dtypes.split()),
        where or {},
        methods,
    )


class Backward(After):
    """An After that changes gradients alone."""


def right(me):
    """The right methods of a program that has wrong ones."""
    return super(type(me), me)


def grads(f):
    """The method's result as it is; the gradient that comes to it is f(self, gradient)."""
    return Backward(lambda me, y: through(y, lambda g: f(me, g)) if isinstance(y, V) else y)


def cut():
    """The method's result, detached from the graph."""
    return grads(lambda me, g: np.zeros_like(g))


def returned(pattern, f):
    """For `answer`: gradients of inputs that the pattern matches become f(self, gradient)."""

    def change(me, found):
        return {k: f(me, x) if k[:4] == "vjp." and fnmatch(k[4:], pattern) else x for k, x in found.items()}

    return Backward(change)


def bf16(x):
    """Rounded to bfloat16, in the dtype that it had."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.asarray(x).dtype)


def f16(x):
    return np.asarray(x, np.float16).astype(np.asarray(x).dtype)


def like(x, f):
    """f of the array, on the tape or off it, without a gradient of f."""
    return through(V(f(x.a), (x, lambda g: g)), lambda g: g) if isinstance(x, V) else f(np.asarray(x))
