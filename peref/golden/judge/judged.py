"""Somebody's tensors held against the golden ones: which are right, where the others begin to be wrong, what
that looks like; and what was asked for and did not come so: outputs that are missing, another dtype, float64
with the digits of float32.

Not here: the report itself (report), how it is told (text, junit, html).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from peref.errors import Misuse, did_you_mean
from peref.golden.diagnosis.summary import Probable, Summary
from peref.golden.judge.causes import followed, in_order
from peref.golden.judge.report import Report
from peref.golden.judge.result import AGAIN, FULL_NAMES, MISSING, Result, listed_by
from peref.golden.judge.wire import has_no_dtype
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry, asked_in
from peref.golden.spec.files import Tensor, narrowed
from peref.golden.spec.rule import CLASSES, ROUNDOFF, Verdict, verdict_on

DTYPES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16"}
# right in float32, though float64 was asked for: by its numbers, or by its dtype
FEW_DIGITS = "only to float32 (angles or tables in float32, or digits lost on the way)"
NARROW_CAME = "only to float32, float32 came"


def check_tensors(
    book: Book,
    given: Mapping[str, Tensor],
    pick: Callable[[Entry], bool],
    *,
    dtypes: Iterable[str] = (),
    limit: str = "C",
    asked: str = "",
    errors: Mapping[str, str] | None = None,
    gradients: bool = True,
    single: Report | None = None,
    **more: Any,
) -> Report:
    """Tensors under the names of the golden files, case:tensor. Cases of which nothing came are not run;
    inputs, budgets and readings may come along.

    asked    the dtype that a function or program was asked for, "" for a file: it fails for another dtype,
             and for missing outputs of cases that it answered, gradients unless it has none (`gradients`)
    single   the report in float32, beside which this one in float64 is told
    errors, more: the other fields of the report

    Raises Misuse for a name that no case has.
    """
    results: list[Result] = []
    missing: list[tuple[str, str]] = []
    not_asked: list[str] = []
    not_run, errors, kinds = [], errors or {}, {name.upper() for name in dtypes}
    known = {f"{entry.id}:{name}" for entry in book.entries.values() for name in entry.outputs}
    echoed = {name for vectors in book.vectors for name in (*vectors.inputs, *vectors.expected)}
    for name in sorted(given.keys() - known - echoed):
        meant = did_you_mean(name, known, "names are CASE:TENSOR, see: golden show")
        raise Misuse(f"no golden tensor is called {name[:120]}{meant}")
    others = ROUNDOFF.keys() - kinds if kinds else ()
    for entry in filter(pick, book.entries.values()):
        every = {name: given.get(f"{entry.id}:{name}") for name in entry.outputs}
        came = {name: x for name, x in every.items() if x and x.dtype not in others}
        asked_for = [asked] if asked else [x.dtype for x in came.values()]
        if not all(asked_in(dtype, entry.id) for dtype in asked_for):
            not_asked.append(entry.id)
            continue
        results += judged_case(entry, came, limit, asked)
        if entry.id in errors:
            continue
        if not came:
            not_run.append(entry.id)
            continue
        lacking = [name for name in every if name not in came]
        missing += [(entry.id, name) for name in lacking]
        wrong = Verdict("FAIL", math.inf, MISSING)
        owed = [name for name in lacking if asked and (gradients or not name.startswith("vjp."))]
        results += [Result(entry, n, None, wrong, False, asked=asked, aside=MISSING) for n in owed]
    if single:
        results = beside_single(results, single, limit)
    told, probable, uncomputed = with_traps(results)
    more |= {"missing": tuple(missing), "gradients": gradients, "asked": asked, "uncomputed": uncomputed}
    more |= {"not_asked": tuple(not_asked), "given": len(given)}
    return Report(tuple(told), tuple(not_run), errors, probable=tuple(probable), **more)


def with_traps(results: Iterable[Result]) -> tuple[list[Result], list[Probable], dict[str, str]]:
    """The results in order, failures with what each looks like and what it follows from; what all of an
    encoding look like together; and, where they look like nothing, what of what was tried could not be
    computed.

    A derivative behind a wrong value looks like nothing of its own. The numbers of what is told together are
    right, or told elsewhere.
    """
    every = in_order(results)
    apart, results = [r for r in every if r.aside], [r for r in every if not r.aside]
    if all(r.passed for r in results):
        return [*results, *apart], [], {}
    cases = listed_by((r for r in results if not r.variant), lambda r: r.entry.id).values()
    passing = lambda some: {r.name: r.verdict.passes for r in some}
    summary = Summary((some[0].entry, {r.name: r.got for r in some}, passing(some)) for some in cases)
    trap_of: Any = lambda r: summary.of(r.entry, r.name, r.got)
    return [*followed(results, trap_of), *apart], summary.probable, summary.uncomputed


def beside_single(results: list[Result], single: Report, limit: str) -> list[Result]:
    """The results in float64, those set apart that are wrong in float32 too, or right to float32."""
    twins = {r.id: r for r in single.results}

    def placed(r: Result) -> Result:
        twin = twins.get(r.id)
        if r.passed or twin is None:
            return r
        if not twin.passed:
            return replace(r, aside=AGAIN)
        if r.got is None or r.dtype not in ("F64", "F32"):
            return r
        found = judged_tensor(r.entry, r.name, narrowed(r.got.wide, "F32"), limit, twin.variant)
        aside = NARROW_CAME if r.dtype == "F32" else FEW_DIGITS
        return replace(found, asked=r.asked, aside=aside) if found.passed else r

    return [placed(r) for r in results]


# ---------------------------------------------------------------- one case, one tensor


def judged_case(entry: Entry, came: Mapping[str, Tensor], limit: str, asked: str = "") -> list[Result]:
    """The verdicts on what came of a case, by the one reading that all of it agrees with: the norm where
    there is none, for mixed readings are none.
    """
    every = [
        [judged_tensor(entry, name, x, limit, reading, asked) for name, x in came.items()]
        for reading in entry.variants
    ]
    return next((found for found in every if all(r.passed or r.aside for r in found)), every[0])


def judged_tensor(
    entry: Entry, name: str, got: Tensor, limit: str, variant: str = "", asked: str = ""
) -> Result:
    """The verdict on one tensor, and where it does not pass what is wrong and where; of real numbers in
    another dtype than was asked for that too.

    What came wider is judged in the dtype asked for. Nothing tells a table in which dtype it is wanted, so a
    wider one is right there.
    """
    came, wider = got.dtype, asked and got.dtype in ("F64", "F32") and ROUNDOFF[got.dtype] < ROUNDOFF[asked]
    if wider:
        got = narrowed(got.wide, asked)
    want, budget = entry.want(name, variant), entry.budget(name, variant)
    verdict = verdict_on(got, want, *budget, entry.words["depth"])
    passed, first, said, aside = verdict.worst <= dict(CLASSES)[limit], None, [], ""
    if not passed:
        said += [f"wrong         {verdict.words}"] if verdict.words else []
        if verdict.used is not None:
            first, more = first_wrong(entry, name, got.wide, want, verdict.wrong(limit))
            said += more
    if asked and came != asked and want.dtype.kind == "f" and not (wider and untold(entry)):
        words = f"{FULL_NAMES.get(came, came.lower())} came, {FULL_NAMES[asked]} was asked for"
        if passed:
            verdict, passed, aside = Verdict("FAIL", math.inf, words), False, words
        else:
            said.append(f"dtype         {words}")
    kept = variant if passed or aside else ""
    return Result(entry, name, got, verdict, passed, first, tuple(said), None, "", kept, asked, aside)


def untold(entry: Entry) -> bool:
    """Whether outputs of a case may be of a wider dtype than was asked for."""
    return entry.words["level"] == "table" or not tells_dtype(entry)


def tells_dtype(entry: Entry) -> bool:
    """Whether an input of a case is in the dtype that is asked for."""
    return not all(has_no_dtype(name, entry.input(name)) for name in entry.words["inputs"])


def first_wrong(entry: Entry, name: str, c: Any, want: Any, wrong: Any) -> tuple[tuple[int, ...], list[str]]:
    """The first wrong element, and up to which token or distance everything is right."""
    axes = entry.words["axes"].get(name, "")
    at = tuple(int(n) for n in np.argwhere(wrong)[0])
    places = [f"{letter.lower()} {n}" for letter, n in zip(axes, at, strict=False)]
    places += [f"distance {entry.input('distances')[at[1]]:g}"] if axes == "HN" else []
    where = f"{name}{list(at)}" + (f" ({', '.join(places)})" if places else "")
    digits = 10 if f"{c[at]:.10g}" != f"{want[at]:.10g}" else 17
    said = [
        f"wrong         {np.count_nonzero(wrong):,} of {wrong.size:,} elements",
        f"first wrong   {where}: got {c[at]:.{digits}g}, want {want[at]:.{digits}g}",
    ]
    if padding_alone(entry, axes, wrong):
        said.append("right         all but rows of padding, where 0 is expected")
    elif until := (right_distances(entry, wrong) if axes == "HN" else right_tokens(entry, name, wrong)):
        said.append(f"right up to   {until}")
    return at, said


def padding_alone(entry: Entry, axes: str, wrong: Any) -> bool:
    """Whether nothing is wrong but rows of padding, of what has a row for each token."""
    seg = "seg_keys" if entry.words["level"] == "cross" and "G" in axes else "seg"
    if seg not in entry.words["inputs"] or axes[:1] != "B" or "T" not in axes:
        return False
    rows = wrong.any(tuple(n for n, letter in enumerate(axes) if letter not in "BT"))
    return not rows[entry.input(seg) != 0].any()


def right_tokens(entry: Entry, name: str, wrong: Any) -> str:
    """Up to which token everything is right, "" where there are none."""
    bad = entry.tokens_of(name, wrong)
    if not bad.size:
        return ""
    i = entry.input("positions") if "positions" in entry.words["inputs"] else np.zeros((0, 0))
    spell = lambda t: f"token {t}" + (f", position {i[t]:g}" if i.ndim == 1 else "")
    return f"{spell(bad[0] - 1)}; wrong from {spell(bad[0])} on" if bad[0] else "no token: the first is wrong"


def right_distances(entry: Entry, wrong: Any) -> str:
    """Up to which distance, on either side, all biases are right."""
    d, bad = np.abs(entry.input("distances")), wrong.any(0)
    first, right = d[bad].min(), d[~bad & (d < d[bad].min())]
    if not right.size:
        return f"no distance: {first:g} is wrong"
    return f"distance {right.max():g}; wrong from {first:g} on"
