"""Tasks: sequences to answer. A sample is a function of (task, seed, index, longest), and of the text where
the task hides something in one. All are re-creations for small models.

copy        the letters of a source again
reverse     the last letter first
induction   the letter that followed the only mark before: an induction head with one question (Olsson et
            al. 2022, arXiv:2209.11895; Fu et al. 2022, arXiv:2212.14052)
mqar        of each key its value, many times (multi-query associative recall: Arora et al. 2023,
            arXiv:2312.04927); here a pair in 8 tokens, at most 64, letters between the questions
passkey     five digits that stand somewhere in a text (Mohtashami, Jaggi 2023, arXiv:2305.16300, with a
            sentence instead of theirs)

A decoder alone reads one sequence and is asked its answer; copy and reverse also go to an encoder and a
decoder, as a source (letters and an end mark; padding behind it has segment 0) and an answer behind a begin
mark. At each place the next token is asked, at the last of an answer the end mark.

Not here: what learns them (train.py), how many answers are right (exact_match.py).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from peref.data import Corpus
from peref.errors import Misuse, did_you_mean
from peref.masking import VOCABULARY
from peref.rng import generator

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
PADDING, BEGIN, END = 0, 2, 3  # as tokens; 2 and 3 are ASCII's begin and end of a text
MARK = ord("!")
KEYS, VALUES = np.arange(128, 192), np.arange(192, 256)
TOKENS_A_PAIR = 8
NEEDLE, QUESTION, DIGITS = b"\nThe pass key is %d.\n", b"\nThe pass key is ", 5
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of what is looked for, in held-out samples

Asked = tuple[Any, Any]  # tokens, and what is asked at each, -1 nothing


def induction(rng: Any, n: int, text: Any, depth: float) -> Asked:
    """Letters with a mark, which is also the last token."""
    tokens = rng.choice(LETTERS, n)
    place = round(depth * (n - 3))
    tokens[[place, -1]] = MARK
    return tokens, [-1] * (n - 1) + [tokens[place + 1]]


def mqar(rng: Any, n: int, *_: Any) -> Asked:
    """Keys with their values behind them, then each key once more among letters."""
    count = min(max(1, n // TOKENS_A_PAIR), len(KEYS))
    keys, values = rng.permutation(KEYS)[:count], rng.choice(VALUES, count)
    tokens, targets = rng.choice(LETTERS, n).astype(int), np.full(n, -1)
    tokens[: 2 * count] = np.stack([keys, values], 1).ravel()
    asked = rng.permutation(np.arange(2 * count, n))[:count]
    tokens[asked], targets[asked] = keys, values
    return tokens, targets


def passkey(rng: Any, n: int, text: np.ndarray, depth: float) -> Asked:
    """A text with the key in it, and the question, answered up to the last digit."""
    key = int(rng.integers(10 ** (DIGITS - 1), 10**DIGITS))
    needle, digits = NEEDLE % key, b"%d" % key
    room = n - len(needle) - len(QUESTION) - (DIGITS - 1)
    first = int(rng.integers(0, len(text) - room + 1))
    place = round(depth * room)
    hay = text[first : first + room].tobytes()
    tokens = hay[:place] + needle + hay[place:] + QUESTION + digits
    return [*tokens[:-1]], [-1] * (n - DIGITS) + [*digits]


class Task(NamedTuple):
    """What is answered. A change of what it makes of a seed and an index changes its version.

    words     of the answer
    sequence  (rng, n, text, depth 0 to 1) -> tokens and targets of a decoder alone; where there is an
              `answer`, letters and their answer are that
    model     fields of Config, recipe: of Recipe, that suit a decoder alone
    longest   the length to train at unless said; shortest: the least there is
    answer    of letters [N] at most N, where an encoder and a decoder can be asked as well
    deep      whether what is looked for stands somewhere, and text: in a text
    """

    version: int
    words: str
    sequence: Callable[..., Asked] | None
    model: dict[str, Any]
    recipe: dict[str, Any]
    longest: int = 32
    shortest: int = 1
    answer: Callable[[Any], Any] | None = None
    deep: bool = False
    text: bool = False


SMALL: dict[str, Any] = {"layers": 2, "C": 64, "H": 2}
SHORT: dict[str, Any] = {"steps": 2000, "batch": 32}
THOROUGH = SHORT | {"steps": 3000}
OF_PAIRS = SHORT  # of Recipe, for an encoder and a decoder
SHORTEST_KEY = len(NEEDLE % 10 ** (DIGITS - 1)) + len(QUESTION) + DIGITS - 1
SAME, REVERSED = (lambda letters: letters), (lambda letters: letters[::-1])
TASKS = {
    "copy": Task(1, "the letters of the source again", None, SMALL, THOROUGH, answer=SAME),
    "reverse": Task(1, "the letters of the source, last first", None, SMALL, THOROUGH, answer=REVERSED),
    "induction": Task(1, "the letter behind the only other mark", induction, SMALL, SHORT, 64, 3, deep=True),
    "mqar": Task(1, "of each key the value that stood behind it", mqar, SMALL, THOROUGH, 32, 3),
    "passkey": Task(
        1, "five digits hidden in a text", passkey, SMALL, THOROUGH, 128, SHORTEST_KEY, deep=True, text=True
    ),
}


def padded(rows: Iterable[Any], width: int, fill: int) -> np.ndarray:
    """These rows, each with `fill` behind it, [B,width]."""
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], int)


@dataclass(frozen=True)
class Exercise:
    """A task of length up to `longest`, to train on: for a decoder `alone`, else for an encoder and a
    decoder. `corpus` is the text of those that hide something in one.
    """

    name: str
    longest: int = 32
    alone: bool = False
    corpus: Corpus | None = None

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            known = "expected one of: " + ", ".join(TASKS)
            raise Misuse(f"unknown task '{self.name}'{did_you_mean(self.name, TASKS, known)}")
        if not self.alone and self.task.answer is None:
            raise Misuse(f"the task {self.name} is one sequence, for a decoder alone; leave out the encoder")
        if (self.corpus is not None) != self.task.text:
            what = "hides something in a text; give one" if self.task.text else "has no text; leave it out"
            raise Misuse(f"the task {self.name} {what}")
        least = self.task.shortest
        if self.longest < least:
            what = "a source" if self.task.answer else f"the task {self.name}"
            raise Misuse(f"the length of {what} is {self.longest}; expected at least {least}")
        if self.corpus and len(self.corpus.valid) < self.longest:
            there = len(self.corpus.valid)
            raise Misuse(f"{self.corpus.name} has {there} bytes held out, too few for length {self.longest}")

    @property
    def task(self) -> Task:
        """The task of this name."""
        return TASKS[self.name]

    @property
    def tokens(self) -> int:
        """How many a model reads at once."""
        if not self.alone:
            return self.longest + 1
        return 2 * self.longest + 1 if self.task.answer else self.longest

    @property
    def sha256(self) -> str:
        """Of all that decides a sample beside seed and index."""
        said = f"{self.name} {self.task.version} {self.longest}" + " alone" * self.alone
        said += f" {self.corpus.sha256}" if self.corpus else ""
        return hashlib.sha256(said.encode()).hexdigest()

    def about(self, spec: str) -> dict[str, Any]:
        """What a run notes down of it; `spec` is its name, or the name or path of its text."""
        data = {"name": self.name, "spec": spec, "sha256": self.sha256, "longest": self.longest}
        return {"data": data, "task": {"name": self.name, "version": self.task.version}}

    def refuse(self, cfg: Any) -> None:
        """Raises Misuse for a model, a Config, that cannot be trained on it."""
        least = VOCABULARY if self.alone else int(LETTERS.max()) + 1
        if least > cfg.V:
            what = "a task has bytes, and" if self.alone else "the letters of a task"
            raise Misuse(f"V is {cfg.V}; {what} want{'s' * self.alone} at least {least}")
        if not cfg.causal:
            raise Misuse("causal is False, but a task is answered token by token; leave it out")

    def lesson(self, cfg: Any, recipe: Any, step: int, part: int) -> tuple[Any, np.ndarray]:
        """What is `asked` in a micro-batch."""
        first = ((step - 1) * recipe.accumulate + part) * recipe.batch
        return self.asked(self.sample(recipe.seed, first + row) for row in range(recipe.batch))

    def sample(self, seed: int, index: int) -> Any:
        """A source, letters [N] with N from 1 to `longest`; for a decoder alone tokens and what is asked."""
        rng = generator(seed, f"task {self.name}", index)
        n = int(rng.integers(self.task.shortest, self.longest + 1))
        return self.drawn(rng, n, self.corpus and self.corpus.train, rng.random() if self.alone else 0.0)

    def held_out(self, index: int) -> Any:
        """As sample, of length `longest`, from a stream of random numbers of its own."""
        rng = generator(0, f"task {self.name} held out", self.longest, index)
        return self.drawn(rng, self.longest, self.corpus and self.corpus.valid, DEPTHS[index % len(DEPTHS)])

    def drawn(self, rng: Any, n: int, text: Any, depth: float) -> Any:
        """As sample, of length n."""
        if self.task.sequence:
            return self.task.sequence(rng, n, text, depth)
        letters = rng.choice(LETTERS, n)
        if not self.alone:
            return letters
        question, wanted = self.of_letters(letters)
        return [*question, *wanted[:-1]], [-1] * n + wanted

    def question(self, tokens: Any, targets: Any) -> tuple[list[int], list[int]]:
        """What a decoder alone reads of a sample up to its first question, and the answer to that."""
        at, before = next(n for n, one in enumerate(targets) if one >= 0), [*map(int, tokens)]
        wanted: list[int] = []
        while at < len(targets) and targets[at] >= 0 and (not wanted or before[at] == wanted[-1]):
            wanted, at = [*wanted, int(targets[at])], at + 1
        return before[: at - len(wanted) + 1], wanted

    def of_letters(self, letters: Any) -> tuple[list[int], list[int]]:
        """What is read of letters before the first token of their answer, and that up to its end mark."""
        assert self.task.answer
        if not self.alone and len(letters) > self.longest:
            raise Misuse(f"a source has {len(letters)} letters; expected at most {self.longest}")
        return [*letters, BEGIN if self.alone else END], [*self.task.answer(letters), END]

    def asked(self, samples: Iterable[Any]) -> tuple[Any, np.ndarray]:
        """What a model reads of samples, tokens [B,T], or of a pair (source, seg, tokens), seg being 0 at
        padding and tokens the answers behind their begin mark; and targets [B,T], what follows each of these,
        -1 where nothing is asked.
        """
        read, wanted = zip(*(samples if self.alone else map(self.of_letters, samples)), strict=True)
        source, targets = padded(read, self.tokens, PADDING), padded(wanted, self.tokens, -1)
        if self.alone:
            return source, targets
        tokens = padded([[BEGIN, *answer[:-1]] for answer in wanted], self.tokens, PADDING)
        return (source, (source != PADDING).astype(int), tokens), targets


Lesson = Corpus | Exercise  # what is trained on
