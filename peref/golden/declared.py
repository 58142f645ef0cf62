"""What is said in words alone, without expected numbers: calls that must be refused, and laws. Both stand in
cases.json beside the cases.

refusals.py and laws.py say what one has, and judge it.
"""

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from peref.golden import laws, refusals
from peref.golden.book import Book
from peref.golden.entry import Entry
from peref.golden.report import Outcome, reference

# the verdict on one of them, peref as the function that is judged
PARTS: dict[str, tuple[Callable, Callable]] = {
    "refusals": (refusals.verdict, refusals.ours),
    "laws": (laws.verdict, reference),
}
KINDS = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


def read(book: Book) -> dict[str, list[Entry]]:
    """The refusals and the laws of all encodings."""
    return {
        part: list(chain.from_iterable(vectors.listed(part) for vectors in book.vectors)) for part in PARTS
    }


def outcomes(function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str) -> Iterator[Outcome]:
    """What function(case, inputs) does with each refusal and law that is picked."""
    for part, entries in read(book).items():
        for entry in filter(pick, entries):
            held, said = PARTS[part][0](entry.words, function, KINDS[dtype])
            yield Outcome(entry.words, held, said)


def broken(part: str, words: dict) -> str:
    """What peref itself does otherwise with a refusal or law, "" for nothing."""
    verdict, mine = PARTS[part]
    held, said = verdict(words, mine)
    return "" if held is True else said
