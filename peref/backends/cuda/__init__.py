"""The CUDA backend: kernels over CuPy's arrays, the plain ops' drop-in in float32 and bfloat16."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.backends.cuda import activation, attention, embedding, find, loss, norm, optimizer, retention, turn
from peref.backends.cuda.cublas import Cublas
from peref.backends.cuda.flat import Flat
from peref.backends.cuda.graph import Steps
from peref.backends.cuda.products import products
from peref.ops.place import At

BACKEND = Backend(
    name="cuda",
    take=embedding.take,
    rms_norm=norm.rms_norm,
    layer_norm=norm.layer_norm,
    swiglu=activation.swiglu,
    gelu=activation.gelu,
    turn=turn.turn,
    attention=attention.attention,
    retention=retention.retention,
    cross_entropy=loss.cross_entropy,
    adamw=optimizer.adamw,
    update=optimizer.update,
)


def place(thing: Any, xp: Any) -> Any:
    """An array, an At or a dict of arrays on the device; parameters, all float32, in one line of memory (flat.py). What is there stays."""
    if isinstance(thing, At):
        return thing if thing.host else thing.moved(xp.asarray)
    if isinstance(thing, dict):
        if thing and all(isinstance(a, np.ndarray) and a.dtype == np.float32 for a in thing.values()):
            return Flat(thing, xp)
        return {name: place(a, xp) for name, a in thing.items()}
    return thing if thing is None else xp.asarray(thing)


def opened(xp: Any, library: Any, *, tf32: bool = False, say: Callable[[str], None] = lambda text: None) -> Backend:
    """The backend on the device that CuPy (`xp`) stands on, with cuBLAS as ctypes loads it: with a handle, and with steps that are recorded."""
    made = products(Cublas(xp, library, tf32=tf32), activation.gelu, activation.swiglu)
    cut: dict[str, Any] = {"attention": partial(attention.attention, tf32=True), "retention": partial(retention.retention, tf32=True)} if tf32 else {}
    whole = replace(BACKEND, **cut, linear=made.linear, matmul=made.matmul, activated_linear=made.activated_linear)
    return replace(whole, place=lambda thing: place(thing, xp), step=Steps(xp, say))


def here(say: Callable[[str], None]) -> Backend:
    """The backend on this machine. Raises Misuse, in one line, for what it needs and is not here."""
    xp = find.cupy()
    find.check_device(xp)
    return opened(xp, find.cublas(xp), say=say)
