"""Which cases are asked for, and which failures are expected: patterns, each of which must match something in
golden files.

A pattern with * and ? that matches nothing is a mistake of whoever wrote it, and what it should have done is
not done; so it is refused.

Not here: whether an expected failure failed (report).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from peref import share
from peref.encodings import names
from peref.errors import Misuse, did_you_mean, few
from peref.golden.judge import declared
from peref.golden.spec.book import Book, with_full
from peref.golden.spec.cases import EVERY_LEVEL, LEVELS, OF_MODEL
from peref.golden.spec.entries import Entry
from peref.store import read_bytes

# field of Pick -> its option, the names of a case that its patterns are for, where names can be found
ASKED: dict[str, tuple[str, Callable[[Entry], Sequence[str]], str]] = {
    "cases": ("--case", lambda entry: [entry.id], "see: {} golden show"),
    "groups": ("--group", lambda entry: [entry.group], "groups are called HOOK_LEVEL, such as rotate_op"),
    "flags": ("--flag", lambda entry: entry.words["flags"], "see: {} explain"),
    "levels": ("--level", lambda entry: [entry.words["level"]], f"they are {', '.join(EVERY_LEVEL)}"),
    "encodings": ("--pe", lambda entry: [entry.words["encoding"]], "see: {} list"),
}


@dataclass(frozen=True)
class Pick:
    """Which cases are asked for. Patterns with * and ?; empty is all."""

    cases: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()

    def __call__(self, entry: Entry) -> bool:
        asked = ((getattr(self, field), of) for field, (_, of, _) in ASKED.items())
        return all(not patterns or any(matches(one, of(entry)) for one in patterns) for patterns, of in asked)


def everything(book: Book) -> Iterable[Entry]:
    """Its cases, refusals and laws."""
    return chain(book.entries.values(), *declared.declared_entries(book).values())


def refuse_unknown(pick: Pick, book: Book) -> None:
    """Raises Misuse for a word of `pick` that no case of the book has, nor any refusal or law."""
    for field, (option, of, rest) in ASKED.items():
        for pattern in getattr(pick, field):
            if any(matches(pattern, of(entry)) for one in (book, book.of(None)) for entry in everything(one)):
                continue
            known = {name for entry in everything(with_full(book.of(None))) for name in of(entry)}
            if matches(pattern, known):
                raise Misuse(f"{option} {pattern}: only the full set has that; add --full")
            if option == "--case" and could_be_of_full(pattern):
                needing_full(book, f"{option} {pattern}", pattern)
            near = did_you_mean(pattern, sorted(known), rest.format(share.program()))
            part = pattern.strip("*")
            if option == "--flag" and (found := [f"'{name}'" for name in sorted(known) if part in name]):
                near = f"; did you mean {few(found)}? {rest.format(share.program())}"
            raise Misuse(f"{option} {pattern}: not in {book.folder}{near}")


def has_full(book: Book) -> bool:
    return bool(book.more) or any(entry.words["level"] in OF_MODEL for entry in book.entries.values())


def needing_full(book: Book, asked: str, name: str | None = None) -> Book:
    """`book` and the full set. Raises Misuse, for `asked`, where there is none; `name`, if given, is that of
    no case of the book, and may be none of the full set either.
    """
    both = with_full(book)
    if not has_full(both):
        why = (
            f"only the full set has that, and {book.folder} has the core alone; a checkout of peref "
            "has it, and packs it with `python cli.py golden archive FILE`: then give --golden FILE"
        )
        if name is None:
            raise Misuse(f"{asked}: {why}")
        known = sorted(entry.id for entry in everything(book.of(None)))
        raise Misuse(f"{asked}: not in {book.folder}{did_you_mean(name, known, f'perhaps {why}')}")
    return both


def expected_failures(path: Path, book: Book) -> tuple[list[str], list[str]]:
    """The patterns in an xfail file, in lines CASE:TENSOR, or the id of a refusal or law, with * and ?, then
    # and why; and those of them that match nothing here, and are let pass.

    A pattern is looked for in the golden files in use and, where it is not there, in those that come with
    peref, the full set included. Where no full set is at hand, as in an installation, a pattern that could be
    for a case of it is let pass: nothing here can tell. Raises Misuse for a line without a reason, a pattern
    that is there twice, and one that matches nothing.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(read_bytes(path).decode("utf-8", errors="replace").splitlines(), 1):
        pattern, _, reason = (part.strip() for part in line.partition("#"))
        where = f"{path}: line {number}"
        if not line.strip():
            continue
        if not pattern or not reason or " " in pattern:
            raise Misuse(f"{where} is {line[:80]!r}; expected CASE:TENSOR # why it is expected to fail")
        if pattern in found:
            raise Misuse(f"{where} is line {found[pattern]} once more, {pattern}; take one of them out")
        found[pattern] = number
    known, books, ours = tensors_of(book), [book], share.folder("golden")
    if not all(matches(pattern, known) for pattern in found):
        others = [] if book.folder.resolve() == ours.resolve() else [with_full(Book(ours))]
        books = [with_full(book), *others]
        known = set().union(*map(tensors_of, books))
    cannot_tell, cases = not any(map(has_full, books)), {name for one in books for name in one.entries}
    missed = [pattern for pattern in found if not matches(pattern, known)]
    for pattern in missed:
        if not cannot_tell or not could_be_of_full(pattern) or pattern.partition(":")[0] in cases:
            where = " and ".join(str(one.folder) for one in books)
            raise Misuse(
                f"{path}: line {found[pattern]}: {pattern} matches none of {len(known):,} names of tensors, "
                f"refusals and laws in {where}{did_you_mean(pattern, sorted(known), 'names are CASE:TENSOR')}"
            )
    return list(found), missed


def matches(pattern: str, known: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in known)


def tensors_of(book: Book) -> set[str]:
    """What an xfail file may name: CASE:TENSOR, and ids of refusals and laws, which have no tensors."""
    of = lambda entry: [f"{entry.id}:{name}" for name in entry.words.get("expected", ())] or [entry.id]
    return {name for entry in everything(book) for name in of(entry)}


def could_be_of_full(pattern: str) -> bool:
    """Whether a name of the full set could match: a part of the pattern matches ENCODING.LEVEL/, with which
    each begins. The full set may have cases of any level; which ones, an installation does not know.
    """
    begins = [f"{name}.{level}/" for name in names() for level in LEVELS]
    literal = re.split(r"[*?\[]", pattern)[0]
    begins = [one for one in begins if one.startswith(literal) or literal.startswith(one)]
    return any(fnmatchcase(one, pattern[:n]) for one in begins for n in range(len(pattern) + 1))
