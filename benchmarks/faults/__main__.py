"""The command of the campaigns, `python -m benchmarks.faults --help`. Exit code 0 when no case has a fault
and every mutant has one.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.faults import CODE, ROOT, Mutant, noticed, tried

FILE = ROOT / "benchmarks" / "results" / "faults.json"
AIMS = {
    "storage": "8 kinds of error or kill, each at every call",
    "power": "a cut after every call",
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
    after = before[-1].get("until", "") if before else ""
    run, drawn = gone_on(asked.name, seed, after, asked.count, asked.minutes)
    record = partial(add, asked.name, run) if asked.record else lambda: None
    record()
    missed = 0
    for mutant in sorted(to_find(asked.name).keys() - found_in(before)):
        found = noticed(campaign_of(asked.name).fault, drawn, to_find(asked.name)[mutant])
        print(f"mutant, {mutant}: {'noticed' if found else 'NOT NOTICED'}", flush=True)
        run["mutants"] += [mutant] * found
        missed += not found
        record()
    return int(run["faults"] > 0 or missed > 0)


def campaign_of(name: str) -> Any:
    return import_module(f"benchmarks.faults.{name}")


def to_find(name: str) -> dict[str, Mutant]:
    return campaign_of(name).MUTANTS


def found_in(runs: list[dict[str, Any]]) -> set[str]:
    """The mutants that any of them has noticed."""
    return {mutant for run in runs for mutant in run["mutants"]}


def add(name: str, run: dict[str, Any]) -> None:
    """Record a run, or more of what it came to."""
    known = recorded()
    known[name] = [one for one in known.get(name, []) if one["seed"] != run["seed"]] + [run]
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def recorded() -> Runs:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def gone_on(
    name: str, seed: int, after: str, count: int | None, minutes: float
) -> tuple[dict[str, Any], list[Any]]:
    """What the cases of a seed came to, and the cases. Of a campaign whose cases are EVERY one that there is
    it goes on with those whose digest is beyond `after`, and then from the first: those that are new lie
    anywhere.
    """
    campaign, code = campaign_of(name), CODE()
    size = getattr(campaign, "size", lambda case: 1)
    part = getattr(campaign, "part", lambda case: "cases")
    end = time.monotonic() + 60 * minutes
    count, every = campaign.COUNT if count is None else count, getattr(campaign, "EVERY", False)
    drawn = campaign.cases(random.Random(0 if every else seed), 0 if every else count)
    whole = sum(map(size, drawn))
    if every:
        drawn = sorted(drawn, key=lambda case: (digest_of(case) <= after, digest_of(case)))[:count]
    run: dict[str, Any] = {"seed": seed, "code": code, "faults": 0, "mutants": []}
    run |= {"of": whole, "until": after} if every else {}
    done: Counter[str] = Counter()
    for case in drawn:
        if time.monotonic() > end:
            break
        done[part(case)] += size(case)
        if words := tried(campaign.fault, case):
            run["faults"] += 1
            print(f"FAULT  {case}: {words}", flush=True)
        if every:
            run["until"] = digest_of(case)
    print(f"{done.total():,} cases, {run['faults']} with a fault, seed {seed}", flush=True)
    return run | {"done": dict(sorted(done.items()))}, drawn


def digest_of(case: Any) -> str:
    return hashlib.sha256(repr(case).encode()).hexdigest()[:16]


def table(known: Runs) -> str:
    """What has been done, added up over all runs, as docs/reliability.md has it."""
    lines = ["| campaign | goal | cases done | failed | mutants found |", "|---|---|---|--:|--:|"]
    for name, aim in AIMS.items():
        runs = known.get(name, [])
        done: Counter[str] = Counter()
        for run in runs:
            done.update(run["done"])
        parts = ", ".join(f"{part} {count:,}" for part, count in sorted(done.items()) if len(done) > 1)
        in_order = [run for run in runs if "of" in run]
        known_of = sum(sum(run["done"].values()) for run in in_order)
        said = f"{done.total():,}"
        if in_order:
            said = f"{known_of:,} of {in_order[-1]['of']:,}, and {done.total() - known_of:,} before"
        said += f": {parts}" if parts else ""
        faulty = [n for n, run in enumerate(runs) if run["faults"]]
        since = sum(sum(run["done"].values()) for run in runs[faulty[-1] + 1 :]) if faulty else 0
        faults = f"{sum(run['faults'] for run in runs):,}" + (f"; none in {since:,} since" if faulty else "")
        mutants = f"{len(found_in(runs))} of {len(to_find(name))}"
        lines.append(f"| `{name}` | {aim} | {said} | {faults} | {mutants} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
