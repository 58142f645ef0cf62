"""What is said in words alone, without expected numbers: calls that must be refused, and laws. Both stand in
cases.json beside the cases.

Not here: how each is judged (refusals, laws).
"""

from collections.abc import Callable, Iterator

from peref.golden.compute.reference import direct_call, reference
from peref.golden.judge import laws, refusals
from peref.golden.judge.result import Outcome
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import FORMATS

# the verdict on one of them, peref as the function that is judged
VERDICTS: dict[str, tuple[Callable, Callable]] = {
    "refusals": (refusals.refusal_verdict, direct_call),
    "laws": (laws.law_verdict, reference),
}


def declared_entries(book: Book) -> dict[str, list[Entry]]:
    """The refusals and the laws of all encodings."""
    of_all = lambda part: [entry for vectors in book.vectors for entry in vectors.listed(part)]
    return {part: of_all(part) for part in VERDICTS}


def outcomes(function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str) -> Iterator[Outcome]:
    """What function(case, inputs) does with each refusal and law that is picked; none is tried in bfloat16,
    in which NumPy does not compute.
    """
    for part, entries in declared_entries(book).items():
        for entry in filter(pick, entries):
            held, said = None, "not tried in bfloat16"
            if dtype != "bf16":
                held, said = VERDICTS[part][0](entry.words, function, FORMATS[dtype.upper()])
            yield Outcome(entry.words, held, said)


def peref_breaks(part: str, words: dict) -> str:
    """What peref itself does otherwise with a refusal or law, "" for nothing."""
    verdict, mine = VERDICTS[part]
    held, said = verdict(words, mine)
    return "" if held is True else said
