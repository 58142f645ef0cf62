"""Two files or folders of tensors, held against one another; the first is the reference.

    golden    by the tolerance rule, with the budgets NAME:a and NAME:b that stand beside NAME in the first
    allclose  max |a - b| / max |a| of a tensor is at most a tolerance (compare.same)
    bits      same dtype, same shape, same bits

Raises Misuse where the golden rule is asked for and the first has no budgets.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peref.compare import Differs, same
from peref.errors import Damaged, Misuse
from peref.golden.judge.judged import check_tensors
from peref.golden.judge.report import OUT_OF_RANGE, Report
from peref.golden.judge.result import FULL_NAMES
from peref.golden.judge.selection import Pick
from peref.golden.spec.book import Book
from peref.golden.spec.checksums import versioned
from peref.golden.spec.entries import asked_in
from peref.golden.spec.files import Tensor, read_tensors, strict_json
from peref.golden.spec.rule import CLASSES, ROUNDOFF, beyond, verdict_on
from peref.store import is_file, read_bytes

RULES = ("golden", "allclose", "bits")


@dataclass(frozen=True)
class Difference:
    """What differs, by name; how many tensors agree; names of the first that are not compared: the second has
    them not, or in a dtype in which they are not asked; by the golden rule the dtypes in which it was judged,
    those of the second; names of what agrees and has NaN in both.
    """

    rule: str
    differ: dict[str, str]
    agree: int
    missing: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    nan: tuple[str, ...] = ()


def depths(path: Path) -> dict[str, float]:
    """Case -> depth, from every cases.json that stands beside the tensors."""
    folder = path if path.is_dir() else path.parent
    found: dict[str, float] = {}
    beside = [folder / "cases.json"] if path.is_file() else sorted(folder.rglob("cases.json"))
    for file in filter(is_file, beside):
        words = strict_json(read_bytes(file), str(file))
        try:
            found |= {case["id"]: float(case["depth"]) for case in words["cases"]}
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{file}: not the words of golden cases") from error
    return found


def compare_files(
    first: Path, second: Path, rule: str | None = None, tolerance: float = 1e-6, limit: str = "C"
) -> Difference:
    """Everything that differs between the tensors at `first` and at `second`. Without a rule it is golden
    where the first has budgets.
    """
    if not 0 <= tolerance < 1:
        raise Misuse(f"--tolerance is {tolerance}; expected at least 0 and below 1")
    a, b = read_tensors(first), read_tensors(second)
    budgets = {name: (a[f"{name}:a"], a[f"{name}:b"]) for name in a if {f"{name}:a", f"{name}:b"} <= a.keys()}
    if rule == "golden" and not budgets:
        said = f"{first} has no budgets (NAME:a, NAME:b), which the golden rule needs"
        raise Misuse(f"{said}; use --rule allclose or --rule bits")
    rule = rule or ("golden" if budgets else "allclose")
    golden, deep = rule == "golden", depths(first) if rule == "golden" else {}
    wanted = [name for name in sorted(a) if not golden or name in budgets or not name.endswith((":a", ":b"))]
    held = lambda name: name in b and not (golden and not asked_in(b[name].dtype, name.partition(":")[0]))
    missing, both = ([name for name in wanted if held(name) == there] for there in (False, True))
    missing = [name for name in missing if not golden or name in budgets]  # inputs need not be given back
    differ = {name: f"only in {first}" for name in missing if not golden}
    differ |= {name: f"only in {second}" for name in sorted(b.keys() - a.keys())}
    if not both and (golden or not differ):
        left = f"; {OUT_OF_RANGE}" if any(name in b for name in missing) else ""
        raise Misuse(f"{first} and {second} have no tensor in common to compare{left}")
    for name in both:
        if golden and name in budgets:
            size, phase = (x.wide for x in budgets[name])
            verdict = verdict_on(b[name], a[name].wide, size, phase, deep.get(name.rpartition(":")[0], 0))
            words = "" if verdict.worst <= dict(CLASSES)[limit] else verdict.words or beyond(verdict)
        else:  # the golden rule wants what has no budget to be equal
            words = difference(a[name], b[name], rule, 0.0 if golden else tolerance)
        differ |= {name: words} if words else {}
    agree = sum(name not in differ for name in both)
    nan = tuple(name for name in both if name not in differ and has_nan(a[name]))
    if not golden:
        return Difference(rule, differ, agree, nan=nan)
    dtypes = {FULL_NAMES.get(b[name].dtype, b[name].dtype) for name in both if name in budgets}
    return Difference(rule, differ, agree, tuple(missing), tuple(sorted(dtypes)), nan)


def has_nan(t: Tensor) -> bool:
    return t.dtype in ROUNDOFF and bool(np.isnan(t.wide).any())


def diagnosed_failures(
    found: Difference, first: Path, second: Path, limit: str = "C"
) -> tuple[Path | None, Report]:
    """Where FIRST lies in a folder of golden files: that folder, and what `check` says of the tensors that
    both have.
    """
    folder = next((place for place in (first, *first.resolve().parents[:3]) if versioned(place)), None)
    if found.rule != "golden" or not found.differ or folder is None:
        return None, Report()
    mine, theirs = read_tensors(first), read_tensors(second)
    book = Book(folder).of({name.partition(".")[0] for name in mine})
    outputs = {f"{entry.id}:{name}" for entry in book.entries.values() for name in entry.outputs}
    given = {name: theirs[name] for name in outputs & mine.keys() & theirs.keys()}
    return folder, check_tensors(book, given, Pick(), limit=limit)


def difference(a: Tensor, b: Tensor, rule: str, tolerance: float) -> str:
    """What differs between two tensors, "" for nothing."""
    if rule == "bits":
        if (a.dtype, a.bits.shape) != (b.dtype, b.bits.shape):
            return f"{a.dtype}{list(a.bits.shape)} and {b.dtype}{list(b.bits.shape)}"
        return "" if a.bits.tobytes() == b.bits.tobytes() else "other bits"
    try:
        same(b.wide, a.wide, tolerance, empty=not a.bits.size)
    except Differs as error:
        return str(error)
    return ""
