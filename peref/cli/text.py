"""Text for people and JSON for programs: tables, numbers, lines with a name in front."""

import json
import math
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import printable

WIDTH = 100
LABEL = 14
Column = str | tuple[str, int] | Callable[[Any], str]  # of a table, as row_table takes it


def finite(value: Any) -> Any:
    """`value` with None in place of NaN and infinities, for which JSON has no word."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value


def document(value: Mapping[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(finite(value), indent=2, allow_nan=False)


def columns() -> int:
    """How long lines may be: WIDTH, and no longer than the terminal is wide, where stdout is one."""
    return min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout and sys.stdout.isatty() else WIDTH


def folded(text: str, first: str = "", later: int = 0) -> str:
    """`text` behind `first`, in lines that begin with so many blanks."""
    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, columns(), initial_indent=first, subsequent_indent=" " * later, **how)


def labelled(name: str, text: str) -> str:
    """`text` behind its name, wrapped under itself."""
    return folded(printable(text), name.ljust(LABEL), LABEL)


def block(title: str, parts: Mapping[str, Any]) -> str:
    """Words under a title, each behind its name; None and "" are left out."""
    return "\n".join([title, *(labelled(f"  {name}", str(words)) for name, words in parts.items() if words)])


def emit(as_json: bool, data: Mapping[str, Any], lines: Iterable[str] | Mapping[str, str]) -> None:
    """What a command found, on stdout: one JSON document for programs, or lines for people, each perhaps with
    its name.
    """
    if isinstance(lines, Mapping):
        lines = [labelled(name, words) for name, words in lines.items()]
    for line in [document(data)] if as_json else map(printable, lines):
        print(line)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, all set to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    line = lambda row: "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return "\n".join(map(line, (head, *rows)))


def row_table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, Column]) -> str:
    """A line for each row: under each head a word of the row by its key, a number by key and digits, or what
    a function makes of the row.
    """

    def cell(row: Mapping[str, Any], of: Column) -> str:
        if callable(of):
            return of(row)
        return str(row[of]) if isinstance(of, str) else number(row[of[0]], of[1])

    return table([*columns], [[cell(row, of) for of in columns.values()] for row in rows])


def number(value: float | None, digits: int) -> str:
    """Fixed digits, thousands apart; scientific where that would be long, but for a count, which has 0
    digits; "-" for none.
    """
    if value is None:
        return "-"
    if not digits:
        return f"{value:,}"
    return f"{value:,.{digits}f}" if abs(value) < 1e7 else f"{value:.3e}"


def size(count: float) -> str:
    """Bytes, in the unit that suits."""
    for unit, above in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= above:
            return f"{count / above:.2f} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    """As 12.3 s, 4 min 05 s or 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def shown(value: Any) -> str:
    """The value of an option as --set takes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def cycle(pe: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The encodings of a model with their options, but for those that are none, and so found from others."""
    from peref.member import SETTINGS

    said = lambda given: {k: v for k, v in given.items() if v is not None or k in SETTINGS}
    options = lambda given: ", ".join(f"{k}={shown(v)}" for k, v in said(given).items())
    return ", ".join(f"{name} ({options(given)})" if given else name for name, given in pe)


def chosen(backend: str, asked: str) -> str:
    """The backend, and whether that was left to us."""
    return f"{backend} (chosen by auto)" if asked == "auto" else backend


def command(*words: str | Path) -> str:
    """A command line that can be copied into a shell."""
    return f"{share.program()} {shlex.join(map(str, words))}"
