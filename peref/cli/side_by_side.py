"""Evaluations of several runs as one table, and whether their numbers can be compared.

Not here: how one is made (cli/evaluate.py), differences with their intervals (lab/comparison_report.py).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peref.cli import text

# what numbers that can be compared have in common, and how it is said
IN_COMMON: dict[str, Callable[[Any], str]] = {
    "corpus": lambda sha256: f"text {sha256[:12]}",
    "bytes": lambda count: f"{count:,} bytes",
    "protocol": lambda protocol: protocol["name"],
    "unit": str,
    "task": lambda name: f"answers of {name} that are exactly right",
    "samples": lambda count: f"{count:,} held-out samples a length",
}


def side_by_side(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The documents of evaluations, and what all of them are measured by; `differ` names what of that is not
    the same in all.
    """
    keys = [key for key in IN_COMMON if key in found[0]]
    same = {key: found[0][key] for key in keys if all(one[key] == found[0][key] for one in found)}
    return {"runs": found, "same": same, "differ": [key for key in keys if key not in same]}


def table_lines(table: dict[str, Any]) -> Iterator[str]:
    """For people."""
    runs = table["runs"]
    measure = "exact" if "task" in runs[0] else "bpb"
    grid = sorted({row["length"] for one in runs for row in one["rows"]})
    cells = []
    for one in runs:
        at = {row["length"]: text.number(row[measure], 4) for row in one["rows"]}
        names = ",".join(name for name, _ in one["pe"])
        cells.append([Path(one["run"]).name, names, f"{one['L']:,}", *(at.get(n, "") for n in grid)])
    yield ""
    yield text.table(["run", "encoding", "trained at", *(f"{n:,}" for n in grid)], cells)
    yield ""
    said = [IN_COMMON[key](value) for key, value in table["same"].items()]
    yield text.labelled("protocol", "; ".join(said))
    for key in table["differ"]:
        each = "; ".join(f"{IN_COMMON[key](one[key])} of {Path(one['run']).name}" for one in runs)
        yield text.labelled("NOTE", f"not the same {key}, so these numbers are not to be compared: {each}")
