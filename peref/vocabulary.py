"""How text becomes the tokens of a model: bytes, a tokenizer.json, or numbers that somebody else made.

A tokenizer.json is read by the `tokenizers` library (extra `models`). No special tokens are added.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref import share
from peref.errors import Damaged, Misuse
from peref.runs import Run

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens 0 to V - 1; `tokenizer` as the library has it, None where each is a byte or has no text."""

    V: int
    tokenizer: Any = None

    @property
    def of_bytes(self) -> bool:
        """Whether tokens are the 256 bytes themselves."""
        return self.tokenizer is None and self.V == 256

    @property
    def unit(self) -> str:
        """What one of them is called."""
        return "byte" if self.of_bytes else "token"

    @property
    def measure(self) -> str:
        """What losses are told in: by bytes models with other tokens can be compared."""
        return "bits/byte" if self.of_bytes or self.tokenizer else "bits/token"

    def tokens(self, text: bytes) -> np.ndarray:
        """The tokens [N] of a text; where none has a text, the numbers in it. Raises Misuse for what is no
        such text, and Damaged for a tokenizer that contradicts itself.
        """
        if self.of_bytes:
            return np.frombuffer(text, np.uint8)
        what = "UTF-8" if self.tokenizer else f"numbers of tokens, 0 to {self.V - 1} (no {TOKENIZER} here)"
        try:
            said = text.decode("utf-8")
            numbers = np.array(self._encoded(said) if self.tokenizer else said.split(), np.int64)
        except (ValueError, OverflowError) as error:
            came = text[:40].decode(errors="replace")
            raise Misuse(f"{came!r}: expected {what}") from error
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.V:
            wrong = numbers[(numbers < 0) | (numbers >= self.V)][0]
            raise Misuse(f"{wrong} is none of the {self.V:,} tokens of this model")
        return numbers

    def prompt(self, text: str) -> np.ndarray:
        """The tokens [N] of what is written on from. Raises Misuse as `tokens` does, and for none."""
        found = self.tokens(os.fsencode(text))
        if not found.size:
            raise Misuse("the prompt is empty; give it at least one token")
        return found

    def _encoded(self, said: str) -> list[int]:
        with damaged(f"{TOKENIZER} cannot cut this text into tokens"):
            return self.tokenizer.encode(said, add_special_tokens=False).ids

    def text(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of tokens; what is no UTF-8 in it is replaced."""
        numbers = [int(token) for token in tokens]
        if self.of_bytes:
            return bytes(numbers).decode(errors="replace")
        if self.tokenizer is None:
            return "".join(f"{n} " for n in numbers)
        return self.tokenizer.decode(numbers, skip_special_tokens=False)


def vocabulary_of(run: Run, V: int) -> Vocabulary:
    """That of a run's model. Raises Misuse where the library is missing, Damaged for an altered file."""
    data = run.public(TOKENIZER)
    return Vocabulary(V, None if data is None else tokenizer_of(data, run.folder))


def tokenizer_of(data: bytes, folder: Path) -> Any:
    """The tokenizer of a tokenizer.json in `folder`. Raises as vocabulary_of does."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        need = share.install("[models]")
        raise Misuse(f"{folder} has a {TOKENIZER}, which needs a library: {need}") from error
    with damaged(f"{folder}: its {TOKENIZER} cannot be read"):
        return Tokenizer.from_str(data.decode("utf-8"))


@contextmanager
def damaged(words: str) -> Iterator[None]:
    """Raises Damaged with these words for what the library raises inside. It raises nothing narrower than
    Exception, and a panic of its Rust is not even one.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Damaged(f"{words}: {error}; copy it anew") from error
