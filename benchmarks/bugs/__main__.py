"""Run the exam: `python -m benchmarks.bugs [--only PATTERN] [--dtype f64] [-o FILE]`.

First the right programs, which must pass, then every bug, in each dtype asked; what was found is printed as a
table and, with -o, written as JSON. How it is counted stands in the docstring of the folder.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from .ask import answer
from .bugs import BUGS
from .later import also_right
from .right import RIGHT

LEVELS = ("table", "op", "attn", "trace")


def asked(job):
    return answer(*job)


def counted(bug, found):
    """The answer, and whether it was the right one."""
    if "error" in found:
        return found | {"noticed": True, "right": False, "right_with_later_flags": False}
    noticed = found["failed"] > 0
    first = found["first"]
    right = noticed and (first in bug.accepts if bug.accepts else first is None)
    return found | {
        "noticed": noticed,
        "right": right,
        "right_with_later_flags": right or (noticed and also_right(bug.name, first)),
    }


def share(part, whole):
    return f"{part:4} of {whole:4} {100 * part / whole:6.1f} %" if whole else "   -"


def row(title, results):
    probable = [(b, f) for b, f in results if f.get("confirmed")]
    return (
        f"{title:<22} {share(sum(f['noticed'] for _, f in results), len(results)):<24}"
        f"{share(sum(f['right'] for _, f in results), len(results)):<24}"
        f"{share(sum(f['right_with_later_flags'] for _, f in results), len(results)):<24}"
        f"{share(sum(f['confirmed'][0] in b.accepts for b, f in probable), len(probable)):<24}"
        f"{share(sum(called_rightly(b, f) for b, f in probable), len(probable))}"
    )


def called_rightly(bug, found):
    """Whether what is called PROBABLE, more than a guess, is right, flags that came later included."""
    return found["confirmed"][0] in bug.accepts or also_right(bug.name, found["confirmed"][0])


def table(results, dtype):
    """Lines: noticed, right first name, and right of what is called probable; the last two also with the
    flags that came later.
    """
    yield (
        f"{dtype:<22} {'noticed':<24}{'first name right':<24}{'with later flags':<24}"
        f"{'probable right':<24}with later flags"
    )
    yield row("all", results)
    for level in LEVELS:
        yield row(level, [(b, f) for b, f in results if b.level == level])
    yield row("forward", [(b, f) for b, f in results if not b.backward])
    yield row("backward", [(b, f) for b, f in results if b.backward])
    yield row("nameless bugs", [(b, f) for b, f in results if not b.accepts])


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bugs", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only bugs of such names")
    parser.add_argument(
        "--dtype",
        action="append",
        choices=("f64", "f32", "f16", "bf16"),
        help="default: f64; may be repeated",
    )
    parser.add_argument("-o", metavar="FILE", type=Path, help="also write what was found as JSON")
    options = parser.parse_args()
    bugs = [b for b in BUGS.values() if fnmatch(b.name, options.only)]
    whole = {
        "bugs": {
            b.name: {
                "encoding": b.encoding,
                "levels": b.levels,
                "backward": b.backward,
                "wrong": b.wrong,
                "link": b.link,
                "accepts": sorted(b.accepts),
            }
            for b in bugs
        },
        "found": {},
        "right": {},
    }
    with ProcessPoolExecutor(2) as pool:
        for dtype in options.dtype or ["f64"]:
            began = time.monotonic()
            names = sorted({b.encoding for b in bugs})
            alarms = dict(
                zip(
                    names, pool.map(asked, [("right", n, RIGHT[n].levels, dtype) for n in names]), strict=True
                )
            )
            false = {n: a for n, a in alarms.items() if a.get("failed", 1)}
            print(
                f"{dtype}: right programs of {len(names)} encodings, "
                f"{sum(a.get('compared', 0) for a in alarms.values())} tensors,",
                end=" ",
            )
            print(f"{len(false)} with a false alarm {', '.join(false)}", flush=True)
            due = [b for b in bugs if dtype in b.dtypes]
            answers = pool.map(asked, [(b.name, b.encoding, b.levels, dtype) for b in due])
            results = []
            whole["right"][dtype], whole["found"][dtype] = alarms, {}
            for bug, found in zip(due, answers, strict=True):
                results.append((bug, counted(bug, found)))
                whole["found"][dtype][bug.name] = results[-1][1]
                if options.o and (len(results) % 20 == 0 or bug is due[-1]):
                    options.o.write_text(json.dumps(whole, indent=1) + "\n")
            print("\n".join(table(results, dtype)))
            print(f"{time.monotonic() - began:.0f} s\n", flush=True)
    sys.exit(any(a.get("failed", 1) for alarms in whole["right"].values() for a in alarms.values()))


if __name__ == "__main__":
    main()
