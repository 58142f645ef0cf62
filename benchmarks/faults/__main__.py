"""The command of the campaigns, `python -m benchmarks.faults --help`. Exit code 0 when no case has a fault
and every mutant has one.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from importlib import import_module
from typing import Any

from benchmarks.faults import CODE, ROOT, noticed, tried

FILE = ROOT / "benchmarks" / "results" / "faults.json"
AIMS = {
    "storage": "8 kinds of fault and kill at every call",
    "power": "cuts all over the trace",
    "flipped": "every bit",
    "fuzzed": "1,000,000 in process, 20,000 by commands",
    "killed": "1,000 kills",
    "stopped": "500 signals",
    "poisoned": "300",
    "shared": "16 writers; 16 workers, 50 kills",
    "repeated": "every encoding, 1 to 8 threads",
    "linked": "180",
    "metrics": "78",
    "sealed": "800",
    "kernel_cache": "98",
}
Runs = dict[str, list[dict[str, Any]]]  # of each campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description="go on with a campaign")
    parser.add_argument("name", nargs="?", help="none: print the table of what has been done")
    parser.add_argument("--seed", type=int, help="[the next that is not recorded]")
    parser.add_argument("--count", type=int, help="about how many cases")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after so many")
    parser.add_argument("--record", action="store_true", help=f"add the counts to {FILE.relative_to(ROOT)}")
    asked = parser.parse_args()
    if asked.name is None:
        print(table(recorded()))
        return 0
    before = recorded().get(asked.name, [])
    seed = max((run["seed"] for run in before), default=-1) + 1 if asked.seed is None else asked.seed
    run, failed = gone_on(asked.name, seed, sum(run["cases"] for run in before), asked.count, asked.minutes)
    if asked.record:
        known = recorded()
        known.setdefault(asked.name, []).append(run)
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return int(failed)


def recorded() -> Runs:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def gone_on(
    name: str, seed: int, first: int, count: int | None, minutes: float
) -> tuple[dict[str, Any], bool]:
    """What the cases of a seed and the mutants came to, and whether that is a failure. Of a campaign whose
    cases are EVERY one that there is, in an order that is always the same, it goes on with the `first`.
    """
    campaign, code = import_module(f"benchmarks.faults.{name}"), CODE()
    size = getattr(campaign, "size", lambda case: 1)
    part = getattr(campaign, "part", lambda case: "cases")
    end = time.monotonic() + 60 * minutes
    count, every = campaign.COUNT if count is None else count, getattr(campaign, "EVERY", False)
    drawn = campaign.cases(random.Random(0 if every else seed), 0 if every else count)
    whole = sum(map(size, drawn))
    if every:
        random.Random(0).shuffle(drawn)
        drawn = drawn[first : first + count]
    done: Counter[str] = Counter()
    faults = met = 0
    for met, case in enumerate(drawn, 1):
        if time.monotonic() > end:
            met -= 1
            break
        done[part(case)] += size(case)
        if words := tried(campaign.fault, case):
            faults += 1
            print(f"FAULT  {case}: {words}", flush=True)
    print(f"{done.total():,} cases, {faults} with a fault, seed {seed}", flush=True)
    found = {each: noticed(campaign.fault, drawn, mutant) for each, mutant in campaign.MUTANTS.items()}
    for each, said in found.items():
        print(f"mutant, {each}: {'noticed' if said else 'NOT NOTICED'}")
    run = {"seed": seed, "code": code, "done": dict(sorted(done.items())), "faults": faults, "cases": met}
    run |= {"of": whole} if every else {}
    run["mutants"] = f"{sum(found.values())} of {len(found)}"
    return run, bool(faults) or not all(found.values())


def table(known: Runs) -> str:
    """What has been done, added up over all runs, as docs/reliability.md has it."""
    lines = ["| campaign | aimed at | done | with a fault | mutants found |", "|---|---|---|--:|--:|"]
    for name, aim in AIMS.items():
        runs = known.get(name, [])
        done: Counter[str] = Counter()
        for run in runs:
            done.update(run["done"])
        parts = ", ".join(f"{part} {count:,}" for part, count in sorted(done.items()) if len(done) > 1)
        of = f" of {runs[-1]['of']:,}" if runs and "of" in runs[-1] else ""
        said = f"{done.total():,}{of}" + (f": {parts}" if parts else "")
        faults = f"{sum(run['faults'] for run in runs):,}" if runs else ""
        lines.append(f"| `{name}` | {aim} | {said} | {faults} | {runs[-1]['mutants'] if runs else ''} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
