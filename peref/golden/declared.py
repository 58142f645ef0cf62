"""What is said in words alone, without expected numbers: calls that must be refused (negative.json), and laws (laws.json).

    {"schema": "peref/negative/1", "spec": ..., "cases": [...]}        refusals.py says what a case has
    {"schema": "peref/laws/1", "spec": ..., "cases": [...]}            laws.py

Both are made from REFUSED and LAWS of the recipes, and nothing is written unless peref itself refuses and holds each of them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from peref import store
from peref.encodings import names
from peref.errors import PerefError, explained
from peref.golden import SPEC_VERSION, laws, refusals
from peref.golden.book import Book
from peref.golden.entry import Entry, Group
from peref.golden.flags import FLAGS
from peref.golden.outside import of_tests
from peref.golden.report import Outcome, reference
from peref.golden.sums import Untrue

PARTS: dict[str, tuple[str, Callable, Callable]] = {  # file -> its list in a recipe, the verdict on one case, peref as the function that is judged
    "negative": ("REFUSED", refusals.verdict, refusals.ours),
    "laws": ("LAWS", laws.verdict, reference),
}
KINDS = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
WORDS = {"id", "encoding", "level", "call", "why", "flags", "options", "facts"}


class Untenable(PerefError):
    """peref computes what must be refused, or breaks a law."""

    kind = "disagrees"


def of_recipes(part: str) -> list[dict[str, Any]]:
    """The words of every refusal or law, from the recipes of a checkout. Raises ValueError for an id that is there twice."""
    recipes, found = of_tests("recipes"), {}
    for name in names():
        for one in getattr(recipes.module(name), PARTS[part][0], ()):
            if one.id in found:
                raise ValueError(f"two cases are {one.id}")
            found[one.id] = one.words()
    return list(found.values())


def write(folder: Path) -> dict[str, int]:
    """negative.json and laws.json in `folder`, every case of them checked on peref; how many cases each has. Raises Untenable."""
    found = {part: of_recipes(part) for part in PARTS}
    for part, (_, verdict, mine) in PARTS.items():
        for words in found[part]:
            held, said = verdict(words, mine)
            if held is not True:
                raise Untenable(f"{words['id']}: {said}")
    for part, cases in found.items():
        text = store.canonical({"schema": f"peref/{part}/1", "spec": SPEC_VERSION, "cases": []})
        lines = ",\n".join(store.canonical(words) for words in cases)
        with explained(folder, "make it"):
            folder.mkdir(parents=True, exist_ok=True)
        store.write_text(folder / f"{part}.json", text.replace('"cases":[]', f'"cases":[\n{lines}\n]') + "\n")
    return {part: len(cases) for part, cases in found.items()}


def read(book: Book) -> dict[str, list[Entry]]:
    """The cases of both files; none where a folder has no such file. Raises Untrue."""
    found: dict[str, list[Entry]] = {}
    for part in PARTS:
        group = Group(part, (), {}, {})
        cases = book.json(f"{part}.json").get("cases") if f"{part}.json" in book.data else []
        for words in cases if isinstance(cases, list) else [None]:
            if not isinstance(words, dict) or not set(words) >= WORDS or not set(words["flags"]) <= set(FLAGS):
                raise Untrue(f"{book.folder / f'{part}.json'}: not the words of golden cases: {str(words)[:80]}")
        found[part] = [Entry(words, group) for words in cases]
    return found


def differ(book: Book) -> list[str]:
    """What the files say otherwise than the recipes; nothing of the full set alone, which has no such files."""
    wrong = []
    for part, entries in read(book).items():
        if f"{part}.json" not in book.data:
            continue
        filed, made = ({one["id"]: store.canonical(one) for one in some} for some in ([e.words for e in entries], of_recipes(part)))
        wrong += [f"{name}: {part}.json and the recipes differ" for name in sorted(filed.keys() | made.keys()) if filed.get(name) != made.get(name)]
    return wrong


def outcomes(function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str) -> Iterator[Outcome]:
    """What function(case, inputs) does with each refusal and law that is picked."""
    for part, entries in read(book).items():
        for entry in filter(pick, entries):
            held, said = PARTS[part][1](entry.words, function, KINDS[dtype])
            yield Outcome(entry.words, held, said)
