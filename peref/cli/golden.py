"""golden: verify and show the golden files, pack them, and make vectors for one's own shape."""

import contextlib
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from peref import share
from peref.cli import completion, options, text
from peref.cli.narrow import narrowed
from peref.cli.options import Document, Given, option, size_option
from peref.encodings import get
from peref.errors import Misuse, counted, did_you_mean
from peref.golden.compute.vectors import make_vectors
from peref.golden.judge.rebuild import differing
from peref.golden.judge.selection import Pick, could_be_of_full, everything, needing_full, refuse_unknown
from peref.golden.spec.book import Book, changed, open_book, with_full
from peref.golden.spec.cases import yours
from peref.golden.spec.checksums import FULL, SUMS, pack, to_archive
from peref.golden.spec.entries import Entry
from peref.settings import choose


@click.group("golden", cls=options.Subcommands)
def command() -> None:
    """Golden vectors: the files that `check` and `diff` compare with."""


def folder_of(given: str | None) -> Path:
    return share.folder("golden") if given is None else Path(given)


@command.command("archive", short_help="Pack golden files into one file.")
@options.argument("file", options.FILE, metavar="FILE")
@options.golden_folder("The folder.  [default: the full set of the checkout]")
def archive_command(given: Given) -> Document:
    """Pack golden files, every digest checked, into one FILE: a tar with the same bytes each time, which
    verify and check take like a folder.
    """
    file, folder = given.file, given.folder
    if folder is None:
        folder = str(needing_full(Book(folder_of(None)), "golden archive").folder / FULL)
    book = Book(Path(folder))
    files = to_archive(book.folder)
    size = pack(files, Path(file))
    done: dict[str, Any] = {"file": file, "cases": len(book.entries), "files": len(files), "bytes": size}
    said = f"{counted(done['cases'], 'case')} in {counted(done['files'], 'file')}, {text.size(size)}: {file}"
    return done, [said]


@command.command("verify", short_help="Check that golden files are as they were made.")
@options.argument("folder", options.Kind("FOLDER|ARCHIVE", completion.files), required=False)
@option("--against=OLD", "Also list the cases that differ from those in this folder.", options.DIR)
@option("--rebuild", "Also compute every case anew, and compare.", bool)
@options.encoding_option("--pe=./FILE.py own", "The file of your own encoding, to rebuild.")
def verify_command(given: Given) -> Document:
    """Check every digest, word and tensor of golden files.

    Exit codes: 0 they are as they were made, 1 --against or --rebuild finds a change, 3 they are not.
    """
    book = open_book(folder_of(given.folder))
    encodings = {vectors.words["encoding"] for vectors in book.vectors}
    found: dict[str, Any] = {"folder": str(book.folder), "spec": book.version, "cases": len(book.entries)}
    found["encodings"] = len(encodings)
    if given.against is not None:
        found |= changed(open_book(Path(given.against)), book)
    if given.rebuild:
        if given.own is not None:
            choose(given.own)
        for name in encodings:
            try:
                get(name)
            except Misuse as error:
                use = f"one of your own takes its file: --rebuild --pe ./{name}.py"
                raise Misuse(f"{error}; {use}") from error
        with given.progress(len(book.entries), "cases") as bar:
            found["differ"] = differing(book, lambda _: bar.add(1))
    keys = ("added", "removed", "changed", "differ")
    of = f"{counted(found['cases'], 'case')} of {counted(found['encodings'], 'encoding')}"
    end = f"{book.folder}: {of}, every digest right; spec {book.version}"
    said = [*(f"{key}: {name}" for key in keys for name in found.get(key, ())), end]
    return found, said, int(any(found.get(key) for key in keys[1:]))


@command.command("show", short_help="Print one case whole, or a list of cases.")
@options.argument("case", options.Kind("CASE|PREFIX", completion.cases), required=False)
@narrowed
@options.golden_folder("The folder.  [default: those that come with peref]")
def show_command(given: Given) -> Document:
    """Print one CASE with all its numbers; or list the cases, refusals and laws whose id begins with PREFIX,
    each with its reason.
    """
    book = Book(folder_of(given.folder))
    asked = given.encodings or [f"{(given.case or '').partition('.')[0].lower()}*"]
    case = given.case and options.spelled_as(given.case, book.only(asked).entries)
    if case not in book.only(asked).entries:
        book = with_full(book)
    known = {entry.id: entry for entry in everything(book.only(asked))}
    case = case and options.spelled_as(case, known)
    if case and could_be_of_full(case) and not any(name.startswith(case.lower()) for name in known):
        book = needing_full(book, case, case)
    book = book.only(asked)
    pick = Pick((), (), given.flags, given.levels, given.encodings)
    if case in known and pick == Pick():
        entry = known[case]
        tensors = {}
        if not {"kind", "law"} & entry.words.keys():
            tensors = {name: entry.input(name) for name in entry.words["inputs"]}
            tensors |= {name: entry.want(name) for name in entry.outputs}
        data = {**entry.words, "tensors": {name: x.tolist() for name, x in tensors.items()}}
        return data, case_lines(entry, tensors)
    refuse_unknown(pick, book)
    found = [e for e in known.values() if pick(e) and e.id.startswith((case or "").lower())]
    if not found and pick != Pick():
        raise Misuse("no case has all that was asked for; leave out one of PREFIX, --flag, --level and --pe")
    if not found:
        near = did_you_mean(case or "", known, f"see: {share.program()} golden show")
        raise Misuse(f"there is no case '{case}'{near}")
    cases = [{"id": e.id, "why": e.words["why"], "flags": e.words["flags"]} for e in found]
    return {"cases": cases}, (f"{c['id']}  {c['why']}" for c in cases)


def case_lines(entry: Entry, tensors: dict[str, np.ndarray]) -> Iterator[str]:
    """A case with its numbers; a refusal or law in words."""
    words = entry.words
    shown = ("why", "flags", "call", "kind", "result", "law", "options", "facts")
    parts = {label: settings_line(words[label]) for label in shown if label in words}
    if "kind" in words:
        parts["inputs"] = settings_line(words["inputs"])
    yield text.block(entry.id, parts)
    for name, x in tensors.items():
        if name in (next(iter(words["inputs"]), ""), next(iter(entry.outputs), "")):
            yield "\ninputs" if name in words["inputs"] else "\nexpected"
        yield f"  {entry.id}:{name}  {x.dtype}{list(x.shape)} {words['axes'].get(name, '')}"
        yield np.array2string(x, threshold=sys.maxsize, floatmode="unique", max_line_width=text.columns())


def settings_line(value: object) -> str:
    """Settings and flags in a line."""
    if isinstance(value, dict):
        return ", ".join(f"{k}={text.shown(v)}" for k, v in value.items()) or "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def ranges(given: str, T: int) -> tuple[int, ...]:
    """Positions of 0:64,4096:4160. Raises Misuse unless they are T in all, and no range is empty."""
    form = re.fullmatch(r"\d{1,10}:\d{1,10}(,\d{1,10}:\d{1,10})*", given, re.ASCII)
    parts = [range(*map(int, part.split(":"))) for part in given.split(",")] if form else []
    if not parts or not all(part and part.stop <= 2**31 for part in parts):
        what = f"half-open ranges of whole numbers up to {2**31}, none empty, such as 0:64,4096:4160"
        raise Misuse(f"--positions {given}: expected {what}")
    if (count := sum(map(len, parts))) != T:
        raise Misuse(f"--positions {given}: {counted(count, 'position')} in all; expected T, {T}")
    return tuple(chain(*parts))


def refuse_to_replace(folder: Path) -> None:
    """Raises Misuse for vectors that are there already, unless somebody at a terminal says yes."""
    if not (folder / SUMS).is_file():
        return
    with contextlib.suppress(click.Abort):
        if sys.stdin and sys.stdin.isatty() and click.confirm(f"{folder} is there; replace it?", err=True):
            return
    raise Misuse(f"{folder} is there already and is left as it is; delete it, or choose another folder")


@command.command("vectors", short_help="Make vectors for a shape of your own.")
@options.encoding_option("--pe=NAME name", "The encoding.", required=True)
@option("--shape=B,H,G,T,D", "Sequences, query heads, key-value heads, tokens, head width.", required=True)
@option("--positions=RANGES", "Half-open ranges, T positions in all, as 0:64,4096:4160.  [default: 0:T]")
@size_option("--len L", "The length trained for.  [default: T]")
@size_option("--width C", "The model's width, for encodings that look at the layer's input.  [default: H D]")
@option("--two-sided", "Let attention see the future.", bool)
@size_option("--window", "Keys that a query sees, itself included.")
@option("-o --output", "The folder to make.", options.DIR, required=True)
@options.set_option
def vectors_command(given: Given) -> Document:
    """Inputs, expected values and budgets for a shape and settings of your own; then: check
    OUT.safetensors --golden FOLDER.
    """
    sizes = given.shape.split(",")
    if len(sizes) != 5 or not all(s.isdecimal() and int(s) for s in sizes):
        raise Misuse(f"--shape {given.shape}: expected five whole numbers B,H,G,T,D, such as 1,32,8,128,128")
    chosen = choose(given.name, given.settings)
    if len(chosen["pe"]) != 1:
        raise Misuse(f"--pe {given.name}: vectors are of one encoding")
    facts = dict(zip("BHGTD", map(int, sizes), strict=True))
    T, C = facts["T"], given.C or facts["H"] * facts["D"]
    facts |= {"L": given.L or T, "n": T, "C": C, "causal": not given.two_sided, "window": given.window}
    facts |= {key: chosen[key] for key in ("R", "layout") if key in chosen}
    place = ranges(given.positions, T) if given.positions is not None else None
    cases = yours(chosen["pe"][0][0], dict(chosen["pe"][0][1]), positions=place, **facts)
    refuse_to_replace(Path(given.output) / cases[0].encoding)
    files, ids = make_vectors(Path(given.output), cases), [case.id for case in cases]
    size = sum(map(len, files.values()))
    done = {"folder": given.output, "cases": sorted(ids), "files": len(files), "bytes": size}
    said = [
        f"{', '.join(ids)}: {text.size(size)} in {given.output}",
        f"names and places of the tensors are in {given.output}/{cases[0].encoding}/index.txt; then run",
        text.command("check", "OUT.safetensors", "--golden", given.output),
    ]
    return done, said
