"""Check and measure the cuda backend on this machine's GPU, beside its peers, in two runs of at most ten
minutes each.

    pip install -e '.[cuda13x]' ml_dtypes torch
    # jax where it is to be a peer; triton comes with torch
    python benchmarks/gpu.py --only own --out benchmarks/results/gpu
    python benchmarks/gpu.py --only peers --out benchmarks/results/gpu
    python benchmarks/gpu.py --emulated --out /tmp/gpu
    # no device: the same to its end, tiny, on the CPU, without times

Phases: 0 environment, 1 compiling, 2 ceilings, 3 go or no-go, 4 correctness with the sanitizer beside it,
5 our times, 6 peers, 7 report. Each but the report is a process of its own (of the peers, each peer) with a
deadline. Peers are made ready side by side, while nothing is timed, and timed one after another. A row that
does not fit, fails, hangs or ends its process is a row that says so, and those behind it are taken up by
another process. results.jsonl has every row as soon as it is known, that of an earlier run becomes
earlier.jsonl; then env.json, ptxas.txt, sanitizer.txt, table.md (against the targets and what was expected),
attest.json (to become tests/attest.json), log.txt. --only peers asks the peers that no run came to the end
of yet, in this folder; without --only, what a run of ten minutes has time for.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from on_gpu import report, session  # noqa: E402
from on_gpu.peers import READY as READY_LINE  # noqa: E402
from on_gpu.phase import TITLES  # noqa: E402

HERE = Path(__file__).resolve().parent / "on_gpu"
SECONDS = (20, 60, 25, 50, 140, 200)  # of the phases of our own
# in the order in which they are timed: those that targets are held against come first
TOGETHER = (
    *("steps", "attention", "rows", "compiled-rows", "flex", "compiled-small", "compiled-large"),
    *("compiled-graph-small", "compiled-graph-large", "triton"),
)
ALONE = ("start", "jax")  # the one is a matter of the CPU, the other chooses among products by their times
READY, TURN = 130, 60  # seconds in which a peer must be ready to be timed, and must have been
RESERVE = 30  # seconds kept for what goes on after its deadline until it is ended, and for the report


def enter(s: session.Session, phase: str, seconds: float, end: float) -> None:
    """A phase begins, and has so many seconds, or what is left; of an emulation all that is left."""
    s.phase, now = phase, time.monotonic()
    s.until = end if s.emulated else min(now + seconds, end)
    s.say(f"== {phase}, {s.left():.0f} s")


@dataclass
class Child:
    """A process of ours, and what it says; live: it says it as it goes."""

    command: list[str]
    live: bool = False
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        out, err = self.files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=None if self.live else out,
            stderr=err,
            env=os.environ | self.more,
            start_new_session=True,
        )

    def said(self) -> list[str]:
        return [os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace") for file in self.files]

    def waits(self) -> bool:
        """Whether it is ready to be told to go on, or at its end."""
        return self.process.poll() is not None or READY_LINE in self.said()[0].splitlines()

    def ended(self, seconds: float) -> tuple[int | None, str, str]:
        """How it ended once it went on, None where it had to be ended with all that it started, and what
        it said.
        """
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        out, err = self.said()
        for file in self.files:
            file.close()
        return code, out, err.strip()[-300:]


def own(s: session.Session, number: int) -> None:
    """A phase, by as many processes as it takes: one that ends early is followed by another, behind the
    row that it had begun.
    """
    begun = s.out / "begun"
    while True:
        begun.write_text("")
        command = [
            sys.executable,
            str(HERE / "phase.py"),
            str(number),
            str(s.out),
            f"{s.left():.1f}",
            *(["--emulated"] if s.emulated else []),
        ]
        code, _, said = Child(command, live=True).ended(s.left() + 3 * session.GRACE)
        s.read()
        if code == 0:
            return
        if code == session.AGAIN:
            continue
        if number == 0:
            raise SystemExit(said)
        name = begun.read_text()
        known = not name or any(row["phase"] == s.phase and row["name"] == name for row in s.rows)
        s.row(
            s.phase if known else name,
            error="its process did not end" if code is None else f"its process ended with {code}: {said}",
        )
        if known:
            return


def peers(s: session.Session, names: list[str]) -> None:
    """Each in a process of its own that makes itself ready, is told to go on when those before it are done,
    and prints a row for each result, and one more when it came to its end; then it is not asked again.
    """
    children = {}
    for name in names:
        if s.found(f"peers {name}", "complete"):
            continue
        if s.left() <= 1:
            s.row(f"peers {name}", skipped="no time left")
            continue
        command = [sys.executable, str(HERE / "peers.py"), name, *(["--tiny"] if s.emulated else [])]
        more = {"OMP_NUM_THREADS": "1"} if s.emulated else {}
        if len(names) > 1:  # so many of each, where as many as there are cores is PyTorch's choice
            more["TORCHINDUCTOR_COMPILE_THREADS"] = "4"
        children[name] = Child(command, more=more)
    begun, seconds = time.monotonic(), min(READY, s.left())
    while time.monotonic() < begun + seconds and not all(child.waits() for child in children.values()):
        time.sleep(0.1)
    late = [name for name, child in children.items() if not child.waits()]
    for name in [*late, *(name for name in children if name not in late)]:  # the late are ended before all
        code, said, wrong = children[name].ended(0 if name in late else max(1.0, min(TURN, s.left())))
        told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        for one in told:
            s.row(one["name"], **{key: value for key, value in one.items() if key != "name"})
        if code != 0:
            late_by = f"not ready within {seconds:.0f} s" if name in late else "no answer in the time left"
            s.row(f"peers {name}", error=late_by if code is None else wrong)
        elif all(one["name"] != f"peers {name}" for one in told):  # where it is not installed it said so
            s.row(f"peers {name}", complete=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=520, help="seconds for all of it")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what is found")
    parser.add_argument("--emulated", action="store_true", help="without a device: tiny sizes, no times")
    parser.add_argument(
        "--peers",
        default=",".join(TOGETHER + ALONE),
        help="which, of these, with commas between them  [default: all]",
    )
    parser.add_argument(
        "--only",
        choices=["own", "peers"],
        help="the phases up to 5, or the peers; the report comes in any case",
    )
    a = parser.parse_args()
    end = time.monotonic() + max(0.0, a.budget - RESERVE)
    a.out.mkdir(parents=True, exist_ok=True)
    if a.only != "peers" and (kept := a.out / "results.jsonl").exists():
        kept.replace(a.out / "earlier.jsonl")
        (a.out / "ptxas.txt").unlink(missing_ok=True)
    s = session.Session(a.out, a.emulated)
    if a.only != "peers":
        for number, (phase, seconds) in enumerate(zip(TITLES, SECONDS, strict=True)):
            enter(s, phase, seconds, end)
            own(s, number)
    if a.only != "own":
        enter(s, "6 peers", float("inf"), end)
        # tiny, there is one size
        asked = [name for name in a.peers.split(",") if not (s.emulated and name.endswith("-large"))]
        for names in (TOGETHER, *((name,) for name in ALONE)):
            peers(s, [name for name in names if name in asked])
    (a.out / "begun").unlink(missing_ok=True)
    s.phase = "7 report"
    report.report(s)


if __name__ == "__main__":
    main()
