"""One tensor that was compared: the verdict, where it is wrong, what that looks like, what it follows from.

Not here: how it is found out (report, order), how it is told (told).
"""

from dataclasses import dataclass
from typing import Any

from peref.golden.book import Entry
from peref.golden.diagnose import Trap
from peref.golden.rule import Verdict


@dataclass(frozen=True)
class Result:
    """One tensor that was compared, with all that can be said of it where it does not pass."""

    entry: Entry
    name: str
    dtype: str
    verdict: Verdict
    passed: bool
    first: tuple[int, ...] | None = None
    said: tuple[str, ...] = ()
    trap: Trap | None = None
    follows: str = ""  # from what it follows, in words; "" for a root
    variant: str = ""  # which of the acceptable readings it agrees with, "" for the norm

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "case": self.entry.id,
            "tensor": self.name,
            "dtype": self.dtype,
            "class": self.verdict.grade,
            "used": self.verdict.worst,
            "passed": self.passed,
            "variant": self.variant or None,
            "first_wrong": None if self.first is None else list(self.first),
            "trap": None
            if self.trap is None
            else {"flag": self.trap.flag or None, "words": self.trap.words, "evidence": self.trap.evidence},
            "follows": self.follows or None,
            "why": self.entry.words["why"],
            "flags": self.entry.words["flags"],
            "said": list(self.said),
        }
