"""Backend: the operations that may have a fast twin. The defaults are the reference.

`get` is the only place that imports numba or CuPy. A field that a backend leaves alone runs the plain op; a
field that it fills computes every call or refuses in words.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from peref.errors import Misuse, counted
from peref.ops.attention import attention, unnoted
from peref.ops.embedding import take
from peref.ops.experts import experts
from peref.ops.feed import activated_linear
from peref.ops.linear import linear, matmul
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.turn import turn
from peref.optim import adamw, update
from peref.share import program
from peref.tape import Op


def as_it_is(thing: Any) -> Any:
    return thing


def call(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


def no_branch() -> AbstractContextManager[Callable]:
    return nullcontext(call)


def of_blas() -> dict[str, Any]:
    """What the bits of NumPy's products depend on."""
    from peref.backends import blas

    return blas.built_with()


SECONDS_BETWEEN = 5.0  # two lines about what is left to compile
NO_OPERATION = ("name", "about", "skips", "note", "recurrences", "branch")  # fields that are no operation


@dataclass(frozen=True)
class Backend:
    """Where and how the work is done. Each field is called like its plain twin in `ops`."""

    name: str = "numpy"
    about: Callable[[], dict[str, Any]] = of_blas  # what its bits depend on, for a run's environment
    take: Callable = take
    linear: Callable = linear
    activated_linear: Callable = activated_linear
    experts: Callable = experts
    matmul: Callable = matmul
    rms_norm: Callable = rms_norm
    layer_norm: Callable = layer_norm
    turn: Callable = turn
    attention: Callable = attention
    cross_entropy: Callable = cross_entropy
    adamw: Callable = adamw
    update: Callable = update
    # (x, *(w, b)) -> linear of each, in one product
    linears: Callable | None = None
    # (x, y, w, b, eps, norm) -> x + y, and its norm, "rms" or "layer"
    add_norm: Callable | None = None
    # (angle, gain_q, gain_k) -> what turns q and k by them, (q, k, v, layout) -> q, k, v; None: `turn` does
    turning: Callable | None = None
    token: Callable | None = None  # (rotation, table, ...) -> what computes a layer for one token
    # the dict of parameters -> what a training step computes with: a narrower copy where the backend makes
    # one
    working: Callable = as_it_is
    # an array, perhaps on a tape -> what score, attend, features and mix are given of it: float32 of what is
    # narrower
    widen: Callable = as_it_is
    place: Callable = as_it_is  # an array, a dict of arrays or an At -> the same where this backend computes
    skips: bool = False  # attention leaves out tiles in which no weight can matter
    # (name, array) -> the same array: what a layer computes on its way, for who reads along (trace)
    note: Callable = unnoted
    # (function, *arguments) -> function(*arguments): one training step, perhaps recorded and replayed
    step: Callable = call
    # () -> a context with what calls a function beside the others (Tape.gradients), done when it ends
    branch: Callable = no_branch
    recurrences: Mapping[str, Callable] = field(default_factory=dict)  # twins of encodings' own: name -> twin

    def recurrence(self, name: str, plain: Op) -> Callable:
        """The twin of a recurrence, or of another op that encodings ask for by name (gather), or the
        plain one where this backend has none.
        """
        return self.recurrences.get(name, plain)

    def filled(self) -> list[str]:
        """Fields that are not the plain ones, and recurrences."""
        found = [
            f.name
            for f in fields(self)
            if f.name not in NO_OPERATION and getattr(self, f.name) is not f.default
        ]
        return found + sorted(self.recurrences)

    def plain(self) -> list[str]:
        """Fields left at their default: the plain ops, on whatever library the arrays are of. Where the
        default is None there is no such op: others do the work.
        """
        return [
            f.name
            for f in fields(self)
            if f.name not in NO_OPERATION and getattr(self, f.name) is f.default is not None
        ]


NAMES = ("numpy", "numba", "cupy", "cuda")
# and what products are cut to: a part of the name, for the bits depend on it
KNOWN = (*NAMES, "cuda:tf32", "cuda:bf16")
GPU = ("cupy", "cuda")  # how the names of those begin that compute on one


def resolved(name: str, dtype: Any) -> str:
    """The name of the backend that is meant: for "auto" numba or numpy."""
    if name != "auto":
        return name
    return "numba" if find_spec("numba") and str(dtype) == "float32" else "numpy"


def left_of(waiting: Sequence[str], say: Callable[[str], None]) -> Callable[[str], None]:
    """What is told of each kernel that is compiled, and says now and then how many of `waiting` are left."""
    left, last = set(waiting), time.monotonic()

    def done(name: str) -> None:
        nonlocal last
        left.discard(name)
        if left and time.monotonic() - last >= SECONDS_BETWEEN:
            last = time.monotonic()
            say(f"{counted(len(left), 'kernel')} of {len(waiting)} left to compile")

    return done


def say_fewer(asked: int, used: int, say: Callable[[str], None]) -> None:
    if used != asked:
        say(f"{counted(asked, 'thread was', 'threads were')} asked for, this machine offers {used}")


def get(
    name: str = "auto",
    *,
    dtype: Any = "float32",
    threads: int | None = None,
    every_tile: bool = False,
    record: bool = True,
    say: Callable[[str], None] = as_it_is,
) -> Backend:
    """The backend of that name; "auto" takes numba for float32 where it is installed, else numpy.

    cupy and cuda are taken where they are asked for. cupy is the plain ops on CuPy's arrays, in float32 or
    float64; cuda has kernels of its own for float32.
    cuda:tf32 cuts the factors of products to the 11 bits of TF32. cuda:bf16 trains with a copy of the weights
    in bfloat16, while weights, moments and sums stay float32.

    threads: how many numba computes with, all cores that are idle now unless said; with numpy those of its
    BLAS, which is left alone unless said. every_tile: attention leaves out no tile, whatever its weights, so
    that bits can be compared over lengths; the plain ops never do. record: whether cuda records a training
    step as one CUDA graph; without it every kernel is launched by hand, to the same bits. `say` is told what
    takes long or is not as asked.

    Raises Misuse for an unknown name, for numba where it is not installed, for cupy and cuda where CuPy, a
    driver, a GPU, memory or a library of CUDA's is missing, and for threads where none can be set.

    What this does to the whole process. numpy: its BLAS keeps the threads that were asked for. numba: glibc's
    malloc keeps what is freed, of what lies last up to a gigabyte, numba's number of threads is set for the
    calling thread, and `say` is told of kernels that are compiled later; while a kernel is compiled, numba's
    optimisation level and its class of a library of code are others, and garbage is rarely collected; the
    number of threads is another while tracemalloc traces. cuda: the garbage collector rests while a training
    step runs; cupy.asarray, cupy.array and CuPy's allocator of pinned memory are others while one is
    recorded. All but the first four are put back.
    """
    if name not in ("auto", *KNOWN):
        raise Misuse(f"unknown backend '{name}'; expected auto or one of: {', '.join(KNOWN)}")
    name = resolved(name, dtype)
    if name == "numpy":
        if threads is not None:
            from peref.backends import blas

            if (used := blas.set_threads(threads)) is None:
                raise Misuse(
                    "the BLAS that NumPy has here is neither OpenBLAS nor MKL and cannot be told how many "
                    "threads to use; leave --threads out and set its own variable before starting, or use "
                    "--backend numba"
                )
            say_fewer(threads, used, say)
        return Backend()
    if name.startswith(GPU) and threads is not None:
        raise Misuse(f"the {name} backend computes on the GPU and has no threads; leave --threads out")
    if name == "cupy":
        from peref.backends import cupy

        return cupy.here()
    if str(dtype) != "float32":
        raise Misuse(
            f"the {name} backend computes in float32, not in {dtype}; use --backend numpy "
            "(peref.backends.get('numpy'))"
        )
    if name.startswith("cuda"):
        from peref.backends import cuda

        return cuda.here(name, every_tile, record, say)
    from peref.backends import find

    find.check_numba()
    from peref.backends.numba import BACKEND, ahead, host, kept, kernel

    host.keep_memory()
    idle = host.idle_cores() if threads != 1 else 1
    used = host.use_threads(idle if threads is None else threads)
    if threads is not None:
        say_fewer(threads, used, say)
    if threads is not None and used > idle:
        asked, free = counted(used, "thread was", "threads were"), counted(idle, "core is", "cores are")
        say(f"{asked} asked for, {free} idle now; --threads {idle} may be faster, with the same bits")
    if threads is None and used < (all_cores := host.cores()):
        taken = f"{counted(used, 'core is', 'cores are')} used of {all_cores}"
        say(f"other programs are busy here, so {taken}; --threads {all_cores} takes all, with the same bits")
    kernel.TOLD[:] = [say]
    if damaged := kept.remove_damaged(kernel.FOLDER) if kernel.FOLDER else []:
        say(f"compiled anew, for what was kept of them was damaged: {', '.join(damaged)}")
    if waiting := ahead.missing(ahead.OFTEN):
        where = (
            "this is kept for the next time" if kernel.FOLDER else f"nothing can be kept: {kernel.WHY_NOT}"
        )
        say(
            f"compiling {counted(len(waiting), 'kernel')} that most models need, others as they are called; "
            f"{where} ({program()} warmup compiles all ahead)"
        )
        ahead.compile_ahead(waiting, left_of(waiting, say))
    return (
        replace(BACKEND, skips=False, attention=partial(BACKEND.attention, skip=False))
        if every_tile
        else BACKEND
    )
