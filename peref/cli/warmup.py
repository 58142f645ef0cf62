"""warmup: compile the kernels of the numba backend ahead, so that no run has to."""

import sys
import time
from importlib.util import find_spec

import click

from peref import backends
from peref.cli import options, text
from peref.cli.progress import Progress


@click.command("warmup", cls=options.Command)
@options.as_json
def command(as_json: bool) -> None:
    """Compile all kernels of the numba backend in advance, and keep them for later runs."""
    began, out = time.perf_counter(), sys.stderr if as_json else sys.stdout
    if not find_spec("numba"):
        backends.get("numba")  # which says what to install
    from peref.backends.numba import ahead, host, kernel

    names = ahead.every()
    waiting = ahead.missing(names)
    with Progress(len(waiting), "kernels", every=1, plain=as_json) as bar:
        ahead.compile_ahead(waiting, lambda name: bar.to(bar.count + 1, name))
    seconds, folder = time.perf_counter() - began, kernel.FOLDER and str(kernel.FOLDER)
    if as_json:
        print(
            text.document(
                {
                    "kernels": names,
                    "compiled": waiting,
                    "folder": folder,
                    "lanes": host.LANES,
                    "seconds": seconds,
                }
            )
        )
        return
    kept = folder or "nowhere: the cache folder cannot be written, so every process compiles for itself"
    print(
        text.labelled("kernels", f"{len(names)}, {len(waiting)} of them compiled now, {host.LANES} lanes"),
        text.labelled("kept in", kept),
        sep="\n",
        file=out,
    )
    print(text.labelled("took", text.duration(seconds)), file=out)
