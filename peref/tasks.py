"""Tasks: sequences to answer, made of numbers alone. A sample is a function of (task, seed, index, longest).

    source    letters and an end mark; padding behind it has segment 0
    answer    a begin mark and what the task makes of the letters; at each place the next one is asked, at the
              last the end mark

Here: reverse. Another task is one more entry of TASKS. Not here: what learns them (train.py), how many
answers are right (exact_match.py).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from peref.errors import Misuse, did_you_mean
from peref.rng import generator

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
PADDING, BEGIN, END = 0, 2, 3  # as tokens; 2 and 3 are ASCII's begin and end of a text


class Task(NamedTuple):
    """What is answered. A change of what it makes of a seed and an index changes its version; `recipe` are
    fields of Recipe that suit it.
    """

    version: int
    words: str
    answer: Callable[[Any], Any]  # of letters [N], at most N of them
    recipe: dict[str, Any]


TASKS = {
    "reverse": Task(
        1,
        "the letters of the source, last first",
        lambda letters: letters[::-1],
        {"steps": 2000, "batch": 32},
    ),
}


class Batch(NamedTuple):
    """Sources and their answers, all [B, longest + 1]."""

    source: np.ndarray
    seg: np.ndarray  # of the source, 0 is padding
    tokens: np.ndarray  # the answer behind its begin mark
    targets: np.ndarray  # what follows each token; -1 where nothing is asked


@dataclass(frozen=True)
class Exercise:
    """A task with sources of 1 to `longest` letters, to train on."""

    name: str
    longest: int = 32

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            known = "expected one of: " + ", ".join(TASKS)
            raise Misuse(f"unknown task '{self.name}'{did_you_mean(self.name, TASKS, known)}")
        if self.longest < 1:
            raise Misuse(f"the length of a source is {self.longest}; expected at least 1")

    @property
    def task(self) -> Task:
        return TASKS[self.name]

    @property
    def sha256(self) -> str:
        """Of all that decides a sample beside seed and index."""
        return hashlib.sha256(f"{self.name} {self.task.version} {self.longest}".encode()).hexdigest()

    def sample(self, seed: int, index: int) -> np.ndarray:
        """The letters of a source, [N] with N from 1 to `longest`."""
        rng = generator(seed, f"task {self.name}", index)
        return rng.choice(LETTERS, int(rng.integers(1, self.longest + 1)))

    def held_out(self, index: int) -> np.ndarray:
        """The letters of a source to test with, [longest], from a stream of random numbers of its own."""
        return generator(0, f"task {self.name} held out", self.longest, index).choice(LETTERS, self.longest)

    def batch(self, sources: Iterable[Any]) -> Batch:
        """These letters with their answers."""
        rows = list(sources)
        if (most := max(map(len, rows))) > self.longest:
            raise Misuse(f"a source has {most} letters; expected at most {self.longest}")
        found = Batch(*(np.full((len(rows), self.longest + 1), fill) for fill in (PADDING, 0, PADDING, -1)))
        for letters, source, seg, tokens, targets in zip(rows, *found, strict=True):
            n, answer = len(letters), self.task.answer(letters)
            source[: n + 1], seg[: n + 1] = [*letters, END], 1
            tokens[: len(answer) + 1], targets[: len(answer) + 1] = [BEGIN, *answer], [*answer, END]
        return found

    def drawn_batch(self, seed: int, number: int, size: int) -> Batch:
        """The samples of batch `number`, counted from 0."""
        return self.batch(self.sample(seed, number * size + row) for row in range(size))
