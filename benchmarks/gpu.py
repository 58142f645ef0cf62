"""Check and measure the cuda backend on this machine's GPU, beside its peers, in one run of at most ten minutes.

    pip install -e '.[cuda13x]' ml_dtypes torch            # jax where it is to be a peer
    python benchmarks/gpu.py --budget 520 --out benchmarks/results/gpu
    python benchmarks/gpu.py --emulated --out /tmp/gpu      # no device: the same to its end, tiny, on the CPU, without times

Phases: 0 environment, 1 ceilings, 2 go or no-go, 3 correctness, 4 our times, 5 and 6 peers (each in a process of its own), 7 report. Each has a
deadline; what does not fit is a row that says so. results.jsonl has every row as soon as it is known; then env.json, table.md (ratios against the
targets), attest.json (to become tests/attest.json), log.txt. --only peers appends them to an earlier run's rows.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from on_gpu import session  # noqa: E402

CHEAP = ("attention", "rows", "steps")
DEAR = ("compiled-steps", "flex", "compiled-rows", "jax")


def peers(s: session.Session, names: list[str], longest: float) -> None:
    """Each in a process of its own that prints a row for each result."""
    for name in names:
        if s.left() <= 1:
            s.row(f"peers {name}", skipped="no time left")
            continue
        command = [sys.executable, str(Path(__file__).parent / "on_gpu" / "peers.py"), name, *(["--tiny"] if s.emulated else [])]
        try:
            env = os.environ | ({"OMP_NUM_THREADS": "1"} if s.emulated else {})
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=min(longest, s.left()), env=env)
            said, left = done.stdout, "" if not done.returncode else done.stderr.strip()[-300:]
        except subprocess.TimeoutExpired as error:
            said, left = (error.stdout or b"").decode(), f"no answer within {error.timeout:.0f} s"
        for line in said.splitlines():
            if line.startswith("{"):
                one = json.loads(line)
                s.row(one.pop("name"), **one)
        if left:
            s.row(f"peers {name}", error=left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=520, help="seconds for all of it")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what is found")
    parser.add_argument("--emulated", action="store_true", help="without a device: tiny sizes, no times")
    parser.add_argument("--peers", default=",".join(CHEAP + DEAR), help="which, of these, with commas between them  [default: all]")
    parser.add_argument("--only", choices=["own", "peers"], help="the phases up to 4, or 5 and 6; the report comes in any case")
    a = parser.parse_args()
    with ExitStack() as stack:
        s = session.opened(a.out, a.budget, a.emulated, stack)
        from on_gpu import ceilings, correct, gonogo, report, timings

        if a.only == "peers" and (kept := a.out / "results.jsonl").exists():
            s.rows = [json.loads(line) for line in kept.read_text().splitlines()]
        if a.only != "peers":
            for phase, seconds, run in (
                ("0 environment", 10, ceilings.environment),
                ("1 ceilings", 25, ceilings.ceilings),
                ("2 go or no-go", 60, gonogo.decide),
                ("3 correctness", 110, correct.correctness),
                ("4 our times", 80, timings.timings),
            ):
                s.enter(phase, seconds)
                run(s)
        if a.only != "own":
            s.enter("5 cheap peers", 90)
            peers(s, [name for name in CHEAP if name in a.peers.split(",")], 45)
            s.enter("6 dear peers", 190)
            peers(s, [name for name in DEAR if name in a.peers.split(",")], 60)
        s.enter("7 report", 30)
        report.report(s)


if __name__ == "__main__":
    main()
