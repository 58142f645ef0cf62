"""warmup: compile the kernels of the numba backend ahead, so that no run has to."""

import time
from typing import Any

from peref.backends import find
from peref.cli import options, text
from peref.cli.options import Document, Given


@options.command("warmup")
def command(given: Given) -> Document:
    """Compile all kernels of the numba backend in advance, and keep them for later runs."""
    began = time.perf_counter()
    find.check_numba()
    from peref.backends.numba import ahead, host, kernel

    names = ahead.every()
    waiting = ahead.missing(names)
    with given.progress(len(waiting), "kernels", every=1) as bar:
        ahead.compile_ahead(waiting, lambda name: bar.to(bar.count + 1, name))
    done: dict[str, Any] = {"kernels": names, "compiled": waiting, "lanes": host.LANES}
    done |= {"folder": kernel.FOLDER and str(kernel.FOLDER), "seconds": time.perf_counter() - began}
    nowhere = f"nowhere, so every process compiles for itself: {kernel.WHY_NOT}"
    said = {
        "kernels": f"{len(names)}, {len(waiting)} of them compiled now, {host.LANES} lanes",
        "kept in": done["folder"] or nowhere,
        "took": text.duration(done["seconds"]),
    }
    return done, said
