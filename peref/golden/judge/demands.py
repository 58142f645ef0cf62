"""What was asked for and did not come so: outputs that are missing, another dtype, float64 with the digits of
float32.

Not here: whether numbers are right (report), how it is told (text).
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from peref.golden.judge.report import Report, judged_tensor
from peref.golden.judge.result import AGAIN, FULL_NAMES, MISSING, Result
from peref.golden.judge.wire import PLACES, narrowed
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import ROUNDOFF, Verdict

# right in float32, though float64 was asked for: by its numbers, or by its dtype
FEW_DIGITS = "only to float32, your angles or tables are float32"
NARROW_CAME = "only to float32, float32 came"


def wider(dtype: str, asked: str) -> bool:
    return dtype in ("F64", "F32") and ROUNDOFF[dtype] < ROUNDOFF[asked]


def as_asked(got: Tensor, asked: str) -> Tensor:
    """What came wider than it was asked for, in the dtype in which it is judged."""
    if not wider(got.dtype, asked):
        return got
    with np.errstate(over="ignore"):
        return Tensor(asked, narrowed(got.wide, asked.lower()))


def demanded(
    results: list[Result],
    missing: Mapping[str, list[str]],
    came: Mapping[str, Tensor],
    asked: str,
    vjp: bool,
) -> list[Result]:
    """The results, and failures of what a function or program was asked for and did not give: outputs of
    cases that it answered, gradients unless it has none by declaration, and the dtype.
    """
    entries = {r.entry.id: r.entry for r in results}
    wrong = Verdict("FAIL", math.inf, MISSING)
    return [in_dtype(r, came[r.id].dtype, asked) for r in results] + [
        Result(entries[case], name, asked, wrong, False, asked=asked, aside=MISSING)
        for case, names in missing.items()
        for name in names
        if vjp or not name.startswith("vjp.")
    ]


def in_dtype(r: Result, came: str, asked: str) -> Result:
    """A result that fails where real numbers came in another dtype than was asked for.

    Nothing tells a table in which dtype it is wanted, so a wider one is right there.
    """
    r = replace(r, asked=asked)
    real = r.entry.want(r.name).dtype.kind == "f"
    if came == asked or not real or (wider(came, asked) and untold(r.entry)):
        return r
    words = f"{FULL_NAMES.get(came, came.lower())} came, {FULL_NAMES[asked]} was asked for"
    if not r.passed:
        return replace(r, said=(*r.said, f"dtype         {words}"))
    return replace(r, verdict=Verdict("FAIL", math.inf, words), passed=False, aside=words)


def untold(entry: Entry) -> bool:
    """Whether the inputs of a case do not say in which dtype its outputs are wanted."""
    real = (entry.input(name).dtype.kind == "f" for name in entry.words["inputs"] if name not in PLACES)
    return entry.words["level"] == "table" or not any(real)


def beside_single(
    results: list[Result], single: Report, given: Mapping[str, Tensor], limit: str
) -> list[Result]:
    """The results in float64, those set apart that are wrong in float32 too, or right to float32."""
    twins = {r.id: r for r in single.results}

    def placed(r: Result) -> Result:
        twin = twins.get(r.id)
        if r.passed or twin is None:
            return r
        if not twin.passed:
            return replace(r, aside=AGAIN)
        if r.aside == MISSING or r.dtype not in ("F64", "F32"):
            return r
        with np.errstate(over="ignore"):
            narrow = Tensor("F32", given[r.id].wide.astype(np.float32))
        found = judged_tensor(r.entry, r.name, narrow, limit, False, twin.variant)
        aside = NARROW_CAME if r.dtype == "F32" else FEW_DIGITS
        return replace(found, asked=r.asked, aside=aside) if found.passed else r

    return [placed(r) for r in results]
