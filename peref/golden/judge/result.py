"""What became of one tensor, and of one refusal or law.

Not here: how it is found out (report, causes, declared), how it is told (text).
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from peref.golden.diagnosis.answer import Trap
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import Verdict

FULL_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
MISSING = "missing"
OTHER_DTYPE = "though in another dtype"
IN_FLOAT64 = "in float64: "  # what was raised there alone
AGAIN = "as in float32"  # it fails there too, and is told there


def listed_by(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The items by key(item), as they come."""
    found: dict[Any, list[Any]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


@dataclass(frozen=True)
class Result:
    """One tensor that was compared, with all that can be said of it where it does not pass."""

    entry: Entry
    name: str
    got: Tensor | None  # as it is judged; None: missing
    verdict: Verdict
    passed: bool
    first: tuple[int, ...] | None = None
    said: tuple[str, ...] = ()
    trap: Trap | None = None
    follows: str = ""  # from what it follows, in words; "" for a root
    variant: str = ""  # which of the acceptable readings it agrees with, "" for the norm
    asked: str = ""  # the dtype that was asked for, "" where none was
    aside: str = ""  # one of many of a kind, which are told together: what they are; "" for none

    @property
    def dtype_asked(self) -> str:
        """The dtype that it counts under."""
        return self.asked or self.dtype

    @property
    def dtype(self) -> str:
        return self.got.dtype if self.got else self.asked

    @property
    def id(self) -> str:
        return f"{self.entry.id}:{self.name}"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "case": self.entry.id,
            "tensor": self.name,
            "dtype": self.dtype,
            "asked": self.asked or None,
            "class": self.verdict.grade,
            "used": self.verdict.worst,
            "passed": self.passed,
            "came": self.got is not None,
            "variant": self.variant or None,
            "first_wrong": None if self.first is None else list(self.first),
            "trap": self.trap and asdict(self.trap) | {"flag": self.trap.flag or None},
            "follows": self.follows or None,
            "aside": self.aside or None,
            "why": self.entry.words["why"],
            "flags": self.entry.words["flags"],
            "said": list(self.said),
        }


@dataclass(frozen=True)
class Outcome:
    """What came of a refusal or law."""

    words: dict[str, Any]
    held: bool | None  # None: not claimed, or the program broke down there
    said: str

    @property
    def id(self) -> str:
        return self.words["id"]

    def data(self) -> dict[str, Any]:
        """For JSON."""
        about = {"case": self.id, "level": self.words["level"]}
        return about | {"held": self.held, "said": self.said, "why": self.words["why"]}
