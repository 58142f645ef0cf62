"""Compiling before somebody waits for it: which kernels, in as many processes as there are cores."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from numba.core import config

from peref.backends.numba.kept import file_of
from peref.backends.numba.kernel import FOLDER, KERNELS, digest, kernels

# What training the default model calls, and a rotation. A process compiles once what its kernels share, and
# every second one begins at the end (in_turn): so attention, which takes half of the time, is here, all else
# there.
OFTEN = (
    *("attention_backward.backward", "attention.forward"),
    *("embedding.take", "embedding.take_backward", "adamw.adamw"),
    *("cross_entropy.cross_entropy_backward", "cross_entropy.cross_entropy"),
    *("norms.rms_norm", "norms.rms_norm_backward", "turn.turn"),
    *("matrix.multiply", "feed.activated_linear_forward", "feed.activated_linear_backward"),
)
CHILD = """
import gc, json, os, signal, sys
gc.disable()
signal.signal(signal.SIGINT, signal.SIG_IGN)
digest, parent, names, sys.path[:] = json.loads(sys.argv[1])
from peref.backends.numba import ahead, kernel
if kernel.digest() == digest:
    ahead.compile_now(names, lambda: os.getppid() == parent or sys.exit())
"""


def every() -> list[str]:
    """The names of all kernels, those of OFTEN first."""
    for path in Path(__file__).parent.glob("[!_]*.py"):
        kernels(path.stem)
    return [*OFTEN, *sorted(set(KERNELS) - set(OFTEN))]


def missing(names: Iterable[str]) -> list[str]:
    """Those that have yet to be compiled."""
    ready = {name for name, kernel in KERNELS.items() if kernel.compiled}
    return [name for name in names if name not in ready and not (FOLDER and file_of(FOLDER, name).exists())]


def compile_now(names: Iterable[str], after: Callable[[], object]) -> None:
    """Those that no other process has compiled or compiles now; `after` is called after each."""
    for name in names:
        kernels(name.partition(".")[0])
        KERNELS[name].ahead()
        after()


def in_turn(names: Sequence[str], process: int) -> list[str]:
    """The order in which a process goes through them: the first from the start, the second from the end, the
    third from the second on.
    """
    order, first = names[:: -1 if process % 2 else 1], process // 2
    return [*order[first:], *order[:first]]


def compile_ahead(names: Sequence[str], done: Callable[[str], None]) -> None:
    """In as many processes as there are cores, of which this is one, into FOLDER; where there is none each
    process must compile for itself, when a kernel is called. `done` is told the name of each.

    What another process leaves undone is compiled here, or when it is called; an error of a kernel that is
    compiled here is raised.
    """
    if FOLDER is None:
        return
    left, children = {*names}, []

    def look() -> None:
        for name in sorted(left - {*missing(left)}):
            left.remove(name)
            done(name)

    try:
        for process in range(1, min(config.NUMBA_DEFAULT_NUM_THREADS, len(names))):
            told = json.dumps([digest(), os.getpid(), in_turn(names, process), sys.path])
            nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            children.append(subprocess.Popen([sys.executable, "-c", CHILD, told], **nowhere))
        compile_now(names, look)
        for child in children:
            child.wait()
            look()
    finally:
        for child in children:
            with child:
                child.kill()
