"""What can go wrong in a way that is not a bug here: each error says what, which value, what was expected
and what to do.
"""

import contextlib
import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path


class PerefError(Exception):
    """Base of every error raised on purpose. `kind` goes into --json output, `exit_code` to the shell."""

    kind = "failed"
    exit_code = 1


class Misuse(PerefError, ValueError):
    """The request itself is wrong: an unknown name, sizes that do not fit, an option nobody has."""

    kind = "misuse"
    exit_code = 2


class Damaged(PerefError):
    """A file is not what it claims to be."""

    kind = "damaged"


class Diverged(PerefError):
    """A loss, gradient or parameter is not finite."""

    kind = "diverged"


@contextlib.contextmanager
def theirs() -> Iterator[None]:
    """Around reading what a user hands to a comparison: where that is damaged the request is wrong; 1 is
    what a comparison found.
    """
    try:
        yield
    except Damaged as error:
        error.exit_code = Misuse.exit_code
        raise


def counted(n: int, one: str, many: str = "") -> str:
    """A number and the words that agree with it: 1 step, 2,048 steps; `many` where that is not `one` with
    an s.
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def in_runs(numbers: Iterable[int], most: int = 6) -> str:
    """Ascending whole numbers in words, runs of three and longer as 3 to 7; after `most` runs how many are
    left.
    """
    steady = groupby(enumerate(map(int, numbers)), lambda at: at[1] - at[0])
    runs = [[n for _, n in run] for _, run in steady]
    said = [f"{run[0]} to {run[-1]}" if run[2:] else ", ".join(map(str, run)) for run in runs]
    return few(said, most, sum(map(len, runs[most:])))


def few(names: Sequence[str], most: int = 3, rest: int | None = None) -> str:
    """The first of them, and how many more there are, or `rest`."""
    rest = len(names[most:]) if rest is None else rest
    return ", ".join(names[:most]) + (f" and {rest} more" if rest else "")


def printable(text: str) -> str:
    """`text` with "?" for what a terminal would obey, not show: others may have written it."""
    plain = "\n\t\N{SOFT HYPHEN}\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
    shown = lambda c: c.isprintable() or c in plain or unicodedata.category(c) == "Zs"  # blanks of any width
    return "".join(c if shown(c) else "?" for c in text)


def did_you_mean(name: str, known: Iterable[str], rest: str) -> str:
    """What follows a name that nobody knows: the one among `known` that is near, if any, and `rest`, the
    words that help further.
    """
    folded = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), folded, 1, 0.7)  # a typing error, not another word
    return f"; did you mean '{folded[near[0]]}'? {rest}" if near else f"; {rest}"


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn an OSError in the block into a PerefError that says what could not be done to `path`, and why."""
    try:
        yield
    except OSError as error:
        what = f"{path}: cannot {verb}: {error.strerror or error}"
        raise PerefError(f"{what}; check space, permissions and the folder") from error
