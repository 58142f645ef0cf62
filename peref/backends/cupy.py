"""The plain ops on CuPy's arrays, float32 and float64: the reference on a GPU, the oracle for its kernels.

Nothing is filled but `place`: the same text computes, for it asks each array which library made it (xp.py).
"""

from functools import partial
from typing import Any

from peref.backends import Backend, find
from peref.ops.cross import Cross
from peref.ops.place import At


def place(thing: Any, xp: Any) -> Any:
    """An array, an At, a Cross or a dict of arrays on CuPy's (`xp`) device. What is there stays."""
    if isinstance(thing, (At, Cross)):
        return thing if thing.host else thing.moved(xp.asarray)
    if isinstance(thing, dict):
        return {name: place(a, xp) for name, a in thing.items()}
    return thing if thing is None else xp.asarray(thing)


def here() -> Backend:
    """The backend on this machine. Raises Misuse, in one line, for what it needs and is not here."""
    xp = find.cupy("cupy")
    find.check_memory(xp, "cupy")
    find.check_compiler(xp, half=False)
    find.check_products(xp)
    return Backend("cupy", partial(find.about, "cupy"), place=partial(place, xp=xp))
