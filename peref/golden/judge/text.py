"""What is said of failures, in the same words on the terminal, in JUnit and on a page: lines whose first 14
columns are their label.

Not here: what is wrong (report), the forms themselves (junit, html).
"""

from collections.abc import Iterator

from peref import share
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge.result import Result
from peref.golden.spec.rule import beyond


def failure_lines(r: Result, repeat: str = "") -> list[str]:
    """What is wrong with a tensor and where, what it looks like and the evidence, or in short what it
    follows from, why the case exists, `repeat`.
    """
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


def probable_lines(one: Probable) -> list[str]:
    """What all failures of an encoding say."""
    return [
        f"{one.trap.flag} in {', '.join(one.encodings)}: {one.trap.words}",
        f"evidence      {one.trap.evidence}",
        f"more          {share.program()} explain {one.trap.flag}",
    ]
