"""Backend: the operations that may have a fast twin. The defaults are the reference.

`get` is the only place that imports numba or CuPy. A field that a backend leaves alone runs the plain op; a field that it fills computes
every call or refuses in words.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from peref.errors import Misuse
from peref.ops.activation import gelu, swiglu
from peref.ops.attention import attention
from peref.ops.embedding import take
from peref.ops.linear import linear, matmul
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.scan import retention, short_conv
from peref.ops.turn import turn
from peref.optim import adamw


def as_it_is(thing: Any) -> Any:
    return thing


def call(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


@dataclass(frozen=True)
class Backend:
    """Where and how the work is done. Each field is called like its plain twin in `ops`."""

    name: str = "numpy"
    take: Callable = take
    linear: Callable = linear
    matmul: Callable = matmul
    rms_norm: Callable = rms_norm
    layer_norm: Callable = layer_norm
    swiglu: Callable = swiglu
    gelu: Callable = gelu
    turn: Callable = turn
    attention: Callable = attention
    short_conv: Callable = short_conv
    retention: Callable = retention
    cross_entropy: Callable = cross_entropy
    adamw: Callable = adamw
    place: Callable = as_it_is  # an array, a dict of arrays or an At -> the same where this backend computes
    step: Callable = call  # (function, *arguments) -> function(*arguments): one training step, perhaps recorded and replayed

    def filled(self) -> list[str]:
        """Fields that are not the plain ones."""
        return [f.name for f in fields(self) if f.name != "name" and getattr(self, f.name) is not f.default]


NAMES = ("numpy", "numba")


def get(name: str = "auto") -> Backend:
    """The backend of that name; "auto" takes the best one there is. Raises Misuse for an unknown one."""
    if name == "numba":
        from peref.backends.numba import BACKEND

        return BACKEND
    if name in ("auto", "numpy"):
        return Backend()
    raise Misuse(f"unknown backend '{name}'; expected auto or one of: {', '.join(NAMES)}")
