"""Signals at random steps of a run, and readers of its output that are there, gone, full or slow: is every
step that was done saved, is the exit code right, does the run go on to the bits of an undisturbed one?
"""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.faults import SOUND, TEXT, Mutant, started

STEPS = 300
PATIENCE = 60  # seconds
TRAIN = f"""train --pe alibi --width 32 --heads 2 --layers 2 --len 64 --batch 4 --valid-bytes 500
--backend numpy --data text.txt --steps {STEPS} --save-every 250 --valid-every 1000""".split()
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
READERS = ("reads", "leaves first", "leaves after", "left before", "never reads", "full disk", "closed")
COUNT = 72
MUTANTS: dict[str, Mutant] = {
    "the handler writes whatever may come": ("peref.cli.signals.tell", "lambda line: os.write(2, line)"),
    "a progress line may fail": (
        "peref.cli.progress.Progress.show",
        "lambda self, write, *what: write(*what)",
    ),
    "only two signals are minded": ("peref.cli.signals.SIGNAL_WORDS", "{2: 'interrupted', 15: 'terminated'}"),
    "who does not read is waited for": ("peref.cli.progress.takes", "lambda stream: True"),
    "the last line waits for who reads": ("peref.cli.takes", "lambda stream: True"),
}


class Case(NamedTuple):
    """A signal, or none; who reads stdout and stderr; after which step."""

    number: int
    reader: str
    step: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every signal with every reader, and a reader that leaves without a signal, at random steps."""
    kinds = [(number, reader) for reader in READERS for number in SIGNALS] + [(0, "left before")]
    return [Case(*kinds[n % len(kinds)], draw.randint(20, STEPS - 60)) for n in range(count)]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is lost of a run that is stopped so."""
    (folder / "text.txt").write_bytes(TEXT)
    output, reader = opened(case.reader, folder)

    def at_home() -> None:
        """No signal is ignored, as it is under nohup and in the background."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if case.reader == "closed":
            os.close(2)

    # before the first step it may fail, or wait
    ours = subprocess.DEVNULL if case.reader in ("full disk", "never reads") else output
    process = started(folder, *TRAIN, mutant=mutant, stdout=ours, stderr=output, preexec_fn=at_home)
    os.close(output)
    try:
        stop(case, folder, process, reader)
        code = process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "it did not end"
    finally:
        leave(reader)
    (run,) = (folder / "runs").iterdir()
    done, expected = steps_of(folder), {128 + (case.number or signal.SIGPIPE)}
    if case.reader == "leaves first":  # a line of progress may come before the signal
        expected.add(128 + signal.SIGPIPE)
    if not (run / "ckpt" / f"{done:08d}.safetensors").is_file():
        return f"exit code {code}; step {done} is done and not saved"
    if code not in expected:
        return f"exit code {code}; expected {sorted(expected)}"
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if started(folder, "train", "--resume", "--backend", "numpy", **quiet).wait():
        return "it does not go on"
    return "" if digests(folder) == undisturbed() else "it ends with other bits"


def opened(kind: str, folder: Path) -> tuple[int, Any]:
    """Where the output goes, and who reads it: a process, an end of a pipe, or None."""
    if kind in ("full disk", "closed"):
        return os.open("/dev/full" if kind == "full disk" else os.devnull, os.O_WRONLY), None
    read, write = os.pipe()
    if kind == "never reads":  # nor has before: there is no room
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(write, bytes(1 << 16)):
                pass
        os.set_blocking(write, True)
    if kind in ("never reads", "left before"):
        return write, read
    tee = subprocess.Popen(["tee", str(folder / "log")], stdin=read, stdout=subprocess.DEVNULL)
    os.close(read)
    return write, tee


def stop(case: Case, folder: Path, process: subprocess.Popen, reader: Any) -> None:
    """Wait for the step, then do what the case says."""
    end = time.monotonic() + PATIENCE
    while steps_of(folder) < case.step and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    if case.reader == "left before":
        os.close(reader)
    if case.reader == "leaves first":
        leave(reader)
    if case.number:
        process.send_signal(case.number)
    if case.reader == "leaves after":
        leave(reader)


def leave(reader: Any) -> None:
    """Whoever reads is gone when this returns."""
    if isinstance(reader, subprocess.Popen):
        reader.kill()
        reader.wait()


def steps_of(folder: Path) -> int:
    found = [*folder.glob("runs/[!.]*/metrics.jsonl")]
    return found[0].read_bytes().count(b"\n") if found else 0


def digests(folder: Path) -> list[str]:
    (run,) = (folder / "runs").iterdir()
    paths = run / "metrics.jsonl", run / "ckpt" / f"{STEPS:08d}.safetensors"
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@cache
def undisturbed() -> list[str]:
    """What a run leaves that nothing happens to."""
    with TemporaryDirectory(prefix="peref-faults-") as folder:
        (Path(folder) / "text.txt").write_bytes(TEXT)
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        assert started(Path(folder), *TRAIN, **quiet).wait() == 0
        return digests(Path(folder))
