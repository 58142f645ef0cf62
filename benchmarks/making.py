"""CPU seconds and bytes of making the golden files of one encoding from nothing, for each.

    python benchmarks/making.py [NAME ...]

A new author waits for this. One thread computes, so what takes a minute of CPU time at most is done within a
minute on idle cores; more ends with exit code 1. On any machine the limits of bytes in tests/making/make.py
hold.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from peref.encodings import names

ROOT = Path(__file__).resolve().parents[1]
MOST = 60  # CPU seconds
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def made(name: str) -> tuple[float, int]:
    """CPU seconds of the command, and the bytes that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "tests.making", "--only", name, "-o", folder]
        environ = os.environ | ONE_THREAD
        subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, size


if __name__ == "__main__":
    slow = []
    for name in sys.argv[1:] or names():
        seconds, size = made(name)
        print(f"{name:20}{seconds:8.1f} s{size:12,} bytes", flush=True)
        slow += [name] if seconds > MOST else []
    sys.exit(f"more than {MOST} CPU seconds: {', '.join(slow)}" if slow else 0)
