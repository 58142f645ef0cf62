"""What is said of a report, in the same words on the terminal, in JUnit and on a page.

Not here: what is wrong (report), the forms themselves (junit, html).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from peref import share
from peref.errors import counted, few
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge.report import OUT_OF_RANGE, Report, classes_of, repeated, untried_words, verdict_in
from peref.golden.judge.result import MISSING, OTHER_DTYPE, Result
from peref.golden.judge.unexplained import Unexplained
from peref.golden.spec.rule import beyond


@dataclass(frozen=True)
class Block:
    """What is said of one thing: a word such as FAIL, what it is of, what is wrong in short, and lines whose
    first 14 columns are their label.
    """

    word: str
    of: str
    short: str
    lines: list[str]

    def __str__(self) -> str:
        head = f"{self.word} {self.of}{'  ' * bool(self.short)}{self.short}"
        return "\n  ".join([head, *self.lines])


def again(repeat: str, case: str, words: str = "") -> list[str]:
    """The line with the command that shows a case of which these words are said."""
    return [f"repeat        {repeated(repeat, case, words)}"] if repeat else []


def failure_lines(r: Result, repeat: str = "") -> list[str]:
    """What is wrong with a tensor and where, what it looks like and the evidence, or in short what it
    follows from, why the case exists, `repeat`.
    """
    if r.aside:
        return [f"wrong         {r.aside}", *kind_lines(r.aside, [r], repeat)]
    found, flags = list(r.said), r.entry.words["flags"]
    if r.follows:
        found.append(f"{'same as' if r.trap else 'follows from':13} {r.follows}")
    else:
        more = f"  (more: {share.program()} explain {r.trap.flag})" if r.trap and r.trap.flag else ""
        found.append(f"looks like    {r.trap.words if r.trap else 'no known trap'}{more}")
        found += [f"evidence      {r.trap.evidence}"] if r.trap and r.trap.evidence else []
        found.append(f"why this case {r.entry.words['why']}")
        found += [f"catches       {', '.join(flags)}"] if flags else []
    return [*found, *again(repeat, r.entry.id)]


def failure_block(r: Result, repeat: str = "") -> Block:
    short = f"{r.dtype.lower()}  {beyond(r.verdict)}"
    return Block("FAIL", f"{r.entry.id}  {r.name}", short, failure_lines(r, repeat))


def kind_lines(kind: str, results: list[Result], repeat: str = "") -> list[str]:
    """What is said of failures of a kind."""
    found = [f"which         {listed(r.name for r in results)}"]
    if kind == MISSING:
        found.append(
            "wanted        all outputs of a case that you answer, gradients too. Answer None (a program: "
            "skip) for a case that you do not implement; say --no-vjp where you have no gradients (a "
            'program: "vjp":false)'
        )
    if kind.endswith(OTHER_DTYPE):
        found.append("wanted        the same cases in every dtype; --dtype f64 asks for float64 alone")
    return [*found, *again(repeat, results[0].entry.id, kind)]


def failure_blocks(report: Report, most: int | None = None) -> Iterator[Block]:
    """Each failure; of each sort at most so many, where that is said."""
    repeat = report.repeat
    for word, label, told in (("ERROR", "raised", report.errors), ("BROKEN", "program", report.crashes)):
        for name, words in list(told.items())[:most]:
            yield Block(word, name, "", [f"{label:13} {words}", *again(repeat, name, words)])
    for kind, some in report.kinds.items():
        tensors, cases = {(r.entry.id, r.name) for r in some}, {r.entry.id for r in some}
        of = f"{counted(len(tensors), 'tensor')} of {counted(len(cases), 'case')}"
        yield Block("FAIL", of, kind, kind_lines(kind, some, repeat))
    yield from (failure_block(r, repeat) for r in report.told[:most])


def summary_blocks(report: Report, most: int | None = None) -> Iterator[Block]:
    """What failures say together; laws, refusals and expectations that do not hold, at most so many."""
    if len(report.told) > 1:
        yield from map(probable_block, report.probable)
    yield from map(unexplained_block, report.unexplained)
    for o in report.broken[:most]:
        lines = [f"{o.words['level']:13} {o.said}", f"why this case {o.words['why']}"]
        yield Block("FAIL", o.id, "", lines + again(report.repeat, o.id))
    for pattern in report.stale:
        yield Block("STALE", f"{pattern} is expected to fail, and passes: take it out of the file", "", [])


def probable_block(one: Probable) -> Block:
    """What all failures of an encoding say."""
    word = "PROBABLE" if one.confirmed else "GUESS"
    more = f"{share.program()} explain {one.trap.flag}"
    lines = [f"evidence      {one.trap.evidence}", f"more          {more}"]
    return Block(word, f"{one.trap.flag} in {', '.join(one.encodings)}: {one.trap.words}", "", lines)


def unexplained_block(one: Unexplained) -> Block:
    """What is known where no trap fits."""
    head = f"{one.encoding}: no known bug gives what came; what is known"
    return Block("UNEXPLAINED", head, "", [f"{label:13} {words}" for label, words in one.known.items()])


def also_words(report: Report) -> list[str]:
    """What happened besides comparing."""
    return [
        *([f"{counted(len(report.errors), 'case')} raised"] if report.errors else []),
        *([f"the program broke {counted(len(report.crashes), 'time')}"] if report.crashes else []),
        *([f"{counted(len(report.skipped), 'case')} skipped"] if report.skipped else []),
        *([f"{len(report.expected)} failed as expected"] if report.expected else []),
        *(f"listed as expected to fail, but not in these golden files: {name}" for name in report.unknown),
    ]


def rest_words(report: Report) -> list[str]:
    """How many laws and refusals hold, and how much was not run."""
    found = [f"{counted(len(report.not_run), 'case')} not run", *untried_words(report)]
    found += [f"{len(report.not_asked)} {OUT_OF_RANGE}"] if report.not_asked else []
    for level, *what in (
        ("refuse", "refused as it must be", "refused as they must be"),
        ("law", "law holds", "laws hold"),
    ):
        held = [o.held for o in report.outcomes if o.words["level"] == level and o.held is not None]
        found[:0] = [f"{sum(held)} of {counted(len(held), *what)}"] if held else []
    return found


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names, each once, and how many more there are."""
    return few(sorted(set(names), key=lambda name: (name.startswith("vjp."), name)), most)


def compared_words(report: Report) -> str:
    """What was compared, how it came out in each dtype, and what was not there to be compared."""
    tensors = {(r.entry.id, r.name) for r in report.results if r.got}
    cases = {case for case, _ in tensors}
    said = f"{counted(len(tensors), 'tensor')} of {counted(len(cases), 'case')} compared"
    by_dtype = report.in_dtypes()
    if len(by_dtype) == 1 and not (report.raised_wide or report.unanswered):
        ((name, some),) = by_dtype.items()
        said += f" in {name}{in_classes(some)}"
    else:
        parts = [dtype_words(name, some) for name, some in by_dtype.items()]
        if report.raised_wide:
            error = next(iter(report.raised_wide.values())).partition(":")[0]
            parts.append(f"float64: {counted(len(report.raised_wide), 'case')} raised {error}")
        parts += [f"{name}: {counted(len(x), 'case')} not answered" for name, x in report.unanswered.items()]
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
