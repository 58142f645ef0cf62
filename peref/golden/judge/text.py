"""What is said of failures, in the same words on the terminal, in JUnit and on a page: lines whose first 14
columns are their label.

Not here: what is wrong (report), the forms themselves (junit, html).
"""

from collections.abc import Iterable, Iterator

from peref import share
from peref.errors import counted
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge.report import Report, classes_of, verdict_in
from peref.golden.judge.result import FULL_NAMES, MISSING, Result
from peref.golden.judge.unexplained import Unexplained
from peref.golden.spec.rule import beyond


def failure_lines(r: Result, repeat: str = "") -> list[str]:
    """What is wrong with a tensor and where, what it looks like and the evidence, or in short what it
    follows from, why the case exists, `repeat`.
    """
    if r.aside:
        return [f"wrong         {r.aside}", *kind_lines(r.aside, [r], repeat)]
    found = list(r.said)
    if r.follows:
        found.append(f"{'same as' if r.trap else 'follows from':13} {r.follows}")
        return [*found, f"repeat        {repeat} --case {r.entry.id}"] if repeat else found
    if r.trap:
        more = f"  (more: {share.program()} explain {r.trap.flag})" if r.trap.flag else ""
        found.append(f"looks like    {r.trap.words}{more}")
        found += [f"evidence      {r.trap.evidence}"] if r.trap.evidence else []
    else:
        found.append("looks like    no known trap")
    found.append(f"why this case {r.entry.words['why']}")
    if r.entry.words["flags"]:
        found.append(f"catches       {', '.join(r.entry.words['flags'])}")
    return [*found, f"repeat        {repeat} --case {r.entry.id}"] if repeat else found


def failure_block(r: Result, repeat: str = "") -> Iterator[str]:
    """The block of a failure on the terminal."""
    yield f"FAIL {r.entry.id}  {r.name}  {r.dtype.lower()}  {beyond(r.verdict)}"
    yield from (f"  {line}" for line in failure_lines(r, repeat))


def kind_lines(kind: str, results: list[Result], repeat: str = "") -> list[str]:
    """What is said of failures of a kind."""
    found = [f"which         {listed(r.name for r in results)}"]
    if kind == MISSING:
        found.append(
            "wanted        all outputs of a case that you answer, gradients too. Answer None for a case that "
            "you do not implement; say --no-vjp where you have no gradients"
        )
    return [*found, f"repeat        {repeat} --case {results[0].entry.id}"] if repeat else found


def kind_block(kind: str, results: list[Result], repeat: str) -> Iterator[str]:
    """The block of failures of a kind on the terminal."""
    tensors, cases = {(r.entry.id, r.name) for r in results}, {r.entry.id for r in results}
    yield f"FAIL {counted(len(tensors), 'tensor')} of {counted(len(cases), 'case')}  {kind}"
    yield from (f"  {line}" for line in kind_lines(kind, results, repeat))


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names, each once, and how many more there are."""
    found = sorted(set(names), key=lambda name: (name.startswith("vjp."), name))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def compared_words(report: Report) -> str:
    """What was compared, how it came out in each dtype, and what was not there to be compared."""
    tensors = {(r.entry.id, r.name) for r in report.came}
    said = (
        f"{counted(len(tensors), 'tensor')} of {counted(len({case for case, _ in tensors}), 'case')} compared"
    )
    by_dtype = report.in_dtypes()
    if len(by_dtype) == 1 and not report.raised_wide:
        ((name, some),) = by_dtype.items()
        said += f" in {FULL_NAMES.get(name, name)}{in_classes(some)}"
    else:
        parts = [dtype_words(FULL_NAMES.get(name, name), some) for name, some in by_dtype.items()]
        if report.raised_wide:
            error = next(iter(report.raised_wide.values())).partition(":")[0]
            parts.append(f"float64: {counted(len(report.raised_wide), 'case')} raised {error}")
        said += f": {'; '.join(parts)}" if parts else ""
    if report.owed:
        said += f", {len(report.owed)} missing ({listed(name for _, name in report.owed)})"
    return said + (", outputs only" if report.outputs_only else "")


def dtype_words(name: str, results: list[Result]) -> str:
    """How all of one dtype came out."""
    verdict = verdict_in(results)
    if verdict in ("right", "wrong", "incomplete"):
        return f"{verdict} in {name}{in_classes(results)}"
    count = sum(bool(r.aside) for r in results)
    return f"{name}: " + (f"{count} of {len(results)} " if count < len(results) else "") + verdict


def in_classes(results: list[Result]) -> str:
    grades = ", ".join(f"{name} {count}" for name, count in classes_of(results).items() if count)
    return f" ({grades})" if grades else ""


def probable_lines(one: Probable) -> list[str]:
    """What all failures of an encoding say."""
    words = one.trap.words if one.confirmed else f"a guess: {one.trap.words}"
    return [
        f"{one.trap.flag} in {', '.join(one.encodings)}: {words}",
        f"evidence      {one.trap.evidence}",
        f"more          {share.program()} explain {one.trap.flag}",
    ]


def known_lines(one: Unexplained) -> list[str]:
    """What is known where no trap fits."""
    head = f"{one.encoding}: no known bug gives what came; what is known"
    return [head, *(f"{label:13} {words}" for label, words in one.known.items())]
