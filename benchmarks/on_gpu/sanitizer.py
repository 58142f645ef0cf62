"""Beside phase 4, of which nothing is timed: compute-sanitizer, where it is installed, over every kernel on
the tiny cases. It sees what the emulation does not: masks of collectives, a missing __syncwarp, loads that
are not aligned, memory that nobody wrote. Its tools run side by side; sanitizer.txt has what they said.

    compute-sanitizer --tool memcheck python benchmarks/on_gpu/sanitizer.py FOLDER [--no-wgmma]

First come all kernels as GPUs other than Hopper's have them, then attention by wgmma, where it is not left
out.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from on_gpu import session
from on_gpu.cases import wide_heads
from peref.backends.cuda import attention, cublas, launch

TOOL = "compute-sanitizer"
CHECKS = ("memcheck", "synccheck", "racecheck", "initcheck")
MMA = "--no-wgmma"
FOUND = "9"  # its exit status where it found something


def onto_zeros(multiply: Any) -> Any:
    """Products added to zeros: initcheck does not see what cuBLAS's kernels for Hopper store by the tensor
    copy engine, and says of all that they wrote that nobody has.
    """

    def added(self: Any, a: Any, b: Any, out: Any = None) -> Any:
        shape = cublas.planned(a.dtype, a.shape, a.strides, b.shape, b.strides)[0]
        return multiply(self, a, b, self.xp.zeros(shape, a.dtype) if out is None else out)

    return added


def tiny(out: Path, emulated: bool, wgmma: bool) -> None:
    """Forward and backward of each case, in each type; the plain ops are not asked. With wgmma it is
    attention in bfloat16 alone, else all of it without.
    """
    from on_gpu import correct
    from on_gpu.ceilings import bf16

    launch.compiled.cache_clear()  # of the other way
    with ExitStack() as stack:
        s = session.opened(out, emulated, stack)
        if not emulated:
            s.xp.cuda.set_allocator(None)  # of CuPy's pool an array could leave its end behind unseen
        made = mock.patch.object(cublas.Cublas, "__call__", onto_zeros(cublas.Cublas.__call__))
        stack.enter_context(made)
        for where in (launch, attention) if not wgmma else ():
            stack.enter_context(mock.patch.object(where, "has_wgmma", return_value=False))
        attending = [*correct.heads(True), *wide_heads(emulated)]
        rest = [case for some in (correct.rows, correct.recurrences, correct.products) for case in some(True)]
        every = [("cuda", np.float32, attending + rest), ("cuda:tf32", np.float32, attending)]
        every += [("cuda", bf16(), attending + rest)]
        for name, dtype, cases in [("cuda", bf16(), attending)] if wgmma else every:
            be = s.backend(name)
            for case in cases:
                if case[0]:
                    correct.pulled(be, *case[2:5], be.place, dtype)
        for kind in () if wgmma else ("cuda", "cuda:bf16"):
            correct.updating(s, kind)


def told(
    s: session.Session, check: str, process: subprocess.Popen[bytes], output: IO[bytes]
) -> dict[str, Any]:
    """What a tool found, when it has come to its end, or no time is left: then its errors so far."""
    try:
        process.wait(max(1.0, s.left()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    output.seek(0)
    said = output.read().decode(errors="replace")
    with (s.out / "sanitizer.txt").open("a") as file:
        file.write(f"== {check}\n{said}\n")
    if process.returncode == -signal.SIGKILL:
        errors = re.findall(r"^========= (?!COMPUTE-SANITIZER).*", said, re.M)
        return {"said": errors[0][-200:], "good": False} if errors else {"skipped": "no time left"}
    summary = re.findall(r"\S+ SUMMARY: .*", said) or said.strip().splitlines()[-1:]
    return {"said": "; ".join(summary)[-200:], "good": process.returncode == 0}


@contextmanager
def beside(s: session.Session) -> Iterator[None]:
    """All checks beside what is done inside, and a row for each behind it, or why not; emulated, the cases
    run by themselves. They end with the process of the phase.
    """
    work = [sys.executable, __file__, str(s.out), *(["--emulated"] if s.emulated else [])]
    asked = {check: [TOOL, "--tool", check, "--error-exitcode", FOUND, *work] for check in CHECKS}
    # it does not know that bar.arrive, by which warpgroups hand tiles over, orders what was written before
    asked["racecheck"].append(MMA)
    asked = {"emulated": work} if s.emulated else asked
    there = s.emulated or shutil.which(TOOL)
    with ExitStack() as stack:
        started = {}
        for check, command in asked.items() if there and s.left() > 0 else ():
            output = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.kill)
            started[check] = (process, output)
        yield
        s.longest = 2 * session.LONGEST
        for check in asked:
            if there:
                s.attempt(f"sanitizer {check}", lambda check=check: told(s, check, *started[check]))
            else:
                s.row(f"sanitizer {check}", skipped=f"{TOOL} is not installed")


if __name__ == "__main__":
    for wgmma in (False,) if MMA in sys.argv else (False, True):
        tiny(Path(sys.argv[1]), "--emulated" in sys.argv, wgmma)
