"""Compiling before somebody waits for it: which kernels, in as many processes as there are cores."""

import contextlib
import json
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from numba.core import config

from peref.backends.numba.kept import file_of
from peref.backends.numba.kernel import FOLDER, KERNELS, digest, kernels

OFTEN = (  # what training the default model calls, what takes longest to compile first
    *(
        "attention_backward.backward",
        "attention.forward",
        "feed.activated_linear_backward",
        "feed.activated_linear_forward",
        "matrix.multiply",
        "norms.rms_norm_backward",
    ),
    *(
        "cross_entropy.cross_entropy",
        "embedding.take",
        "adamw.adamw",
        "norms.rms_norm",
        "cross_entropy.cross_entropy_backward",
    ),
    "embedding.take_backward",
)
CHILD = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
digest, sys.path[:] = json.loads(sys.argv[1])
from peref.backends.numba import ahead, kernel
if kernel.digest() == digest:
    ahead.compile_now(map(str.strip, sys.stdin), lambda name: print(name, flush=True))
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


def compile_now(names: Iterable[str], done: Callable[[str], None]) -> None:
    """Here, one after the other; `done` is told the name of each."""
    for name in names:
        kernels(name.partition(".")[0])
        KERNELS[name].ready()
        done(name)


def compile_ahead(names: Sequence[str], done: Callable[[str], None]) -> None:
    """In as many processes as there are cores, into FOLDER; where there is none each process must compile for
    itself, when a kernel is called. `done` as above.

    Each process is told the next name when it has done one. What a process leaves undone is compiled when it
    is called.
    """
    jobs = min(config.NUMBA_DEFAULT_NUM_THREADS, len(names))
    if FOLDER is None:
        return
    if jobs < 2:
        compile_now(names, done)
        return
    children, queue = [], iter(names)
    for _ in range(jobs):
        command = [sys.executable, "-c", CHILD, json.dumps([digest(), sys.path])]
        children.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )
        tell(children[-1], queue)
    try:
        with selectors.DefaultSelector() as waiting:
            for child in children:
                waiting.register(child.stdout, selectors.EVENT_READ, child)  # type: ignore[arg-type]
            while waiting.get_map():
                for key, _ in waiting.select():
                    if line := key.fileobj.readline():  # type: ignore[union-attr]
                        done(line.strip())
                        tell(key.data, queue)
                    else:
                        waiting.unregister(key.fileobj)
    finally:
        for child in children:
            with child:
                child.kill()


def tell(child: subprocess.Popen, queue: Iterator[str]) -> None:
    """The next name for a child, or that there is none."""
    with contextlib.suppress(BrokenPipeError):  # it has ended
        if name := next(queue, None):
            child.stdin.write(f"{name}\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
        else:
            child.stdin.close()  # type: ignore[union-attr]
