"""The CUDA backend: kernels over CuPy's arrays, the plain ops' drop-in in float32 and bfloat16."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from peref.backends import Backend, call, cupy, find
from peref.backends.cuda import (
    activation,
    attention,
    embedding,
    launch,
    loss,
    norm,
    optimizer,
    retention,
    scans,
    turn,
    wkv,
)
from peref.backends.cuda.cublas import Cublas
from peref.backends.cuda.flat import Flat
from peref.backends.cuda.graph import Steps
from peref.backends.cuda.products import products
from peref.errors import Misuse
from peref.ops.cast import in_dtype
from peref.share import install


def experts(*arrays: Any, **settings: Any) -> Any:
    """Raises Misuse: which tokens an expert gets is known only once the router has computed."""
    raise Misuse("experts: the cuda backend has no kernels for them; use --backend cupy or numba")


def of_device() -> dict[str, Any]:
    """The device, and the kernels that compute on it."""
    return find.about("cuda") | {"kernels": launch.sources_digest()}


BACKEND = Backend(
    name="cuda",
    about=of_device,
    skips=True,
    experts=experts,
    take=embedding.take,
    rms_norm=norm.rms_norm,
    layer_norm=norm.layer_norm,
    add_norm=norm.add_norm,
    turn=turn.turn,
    turning=turn.turning,
    attention=attention.attention,
    cross_entropy=loss.cross_entropy,
    adamw=optimizer.adamw,
    update=optimizer.update,
    recurrences={
        "retention": retention.retention,
        "wkv4": wkv.wkv4,
        "wkv6": wkv.wkv6,
        "wkv7": wkv.wkv7,
        "diagonal_scan": scans.diagonal_scan,
        "selective_scan": scans.selective_scan,
        "short_conv": scans.short_conv,
    },
)


def place(thing: Any, xp: Any) -> Any:
    """As cupy.place; parameters, all float32, in one line of memory (flat.py)."""
    narrow = lambda a: isinstance(a, np.ndarray) and a.dtype == np.float32
    flat = isinstance(thing, dict) and thing and all(map(narrow, thing.values()))
    return Flat(thing, xp) if flat else cupy.place(thing, xp)


def halved(p: Flat) -> dict[str, Any]:
    """The same parameters in bfloat16: from one conversion of all, which the update then keeps up to date."""
    import ml_dtypes  # NumPy's bfloat16, and CuPy's: only cuda:bf16 needs it

    if p.narrow is None:
        p.narrow = p.line.astype(ml_dtypes.bfloat16)
    return {name: p.of(p.narrow, name) for name in p}


def open_device(
    xp: Any,
    library: Any,
    name: str = "cuda",
    *,
    every_tile: bool = False,
    record: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Backend:
    """The backend on the device that CuPy (`xp`) stands on, with a handle of cuBLAS as ctypes loads it.

    Training steps are recorded where `record` says so.
    """
    tf32 = name == "cuda:tf32"
    multiply = Cublas(xp, library, tf32=tf32)
    own: dict[str, Any] = {"place": lambda thing: place(thing, xp), "skips": not every_tile}
    own |= vars(products(multiply, activation.gelu, activation.swiglu))
    own["step"] = Steps(xp, multiply.branch, say) if record else call
    if name == "cuda:bf16":
        own |= {"working": halved, "widen": partial(in_dtype, dtype=np.dtype(np.float32))}
    if tf32:
        own["recurrences"] = {**BACKEND.recurrences, "retention": partial(retention.retention, tf32=True)}
    if tf32 or every_tile:
        own["attention"] = partial(attention.attention, tf32=tf32, skip=not every_tile)
    return replace(BACKEND, name=name, **own)


def here(name: str, every_tile: bool, record: bool, say: Callable[[str], None]) -> Backend:
    """The backend on this machine. Raises Misuse, in one line, for what it needs and is not here."""
    xp = find.cupy("cuda")
    find.check_capability(xp, "cuda")
    find.check_memory(xp, "cuda")
    if name == "cuda:bf16" and not find_spec("ml_dtypes"):
        raise Misuse(
            f"the cuda:bf16 backend needs NumPy's bfloat16: {install('ml_dtypes')}; or use --backend cuda"
        )
    find.check_compiler(xp, half=name == "cuda:bf16")
    launch.ahead(xp, launch.BF16 if name == "cuda:bf16" else {})
    return open_device(xp, find.cublas(xp), name, every_tile=every_tile, record=record, say=say)
