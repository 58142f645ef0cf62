"""The table of implementations in Markdown, and as one HTML file that loads nothing from anywhere.

What comes from reports is text and stays text: no character of it is markup.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peref.golden.judge.matrix import (
    WORST,
    Cell,
    Column,
    by_flag,
    cell,
    first_failures,
    looks_like,
    table_rows,
    unclaimed,
)
from peref.page import html_page, html_table, td

LEGEND = (
    "Each cell is the worst class of all tensors compared and how many of the golden cases were claimed. "
    "Gradients are among the tensors, except where a cell says outputs only; in part: not all outputs of the "
    "claimed cases came. A: within the error budget of a careful implementation; B and C: 16 and 64 times "
    "that, less accurate but not wrong; FAIL: beyond; ERROR: it raised; -: not claimed."
)


@dataclass(frozen=True)
class Part:
    """A part of the page; without a head it has no table."""

    title: str
    text: str = ""
    head: Sequence[str] = ()
    body: Sequence[Sequence[str | Cell]] = ()


def parts(found: list[Column]) -> Iterator[Part]:
    names = [c.name for c in found]
    yield Part(f"Implementations against the golden files, specification {found[0].spec}", LEGEND)
    cells: list[list[str | Cell]] = [[*row, *(cell(c, row) for c in found)] for row in table_rows(found)]
    yield Part("Encodings", "", ["encoding", "level", *names], cells)
    if nobody := unclaimed(found):
        yield Part("Claimed by none", ", ".join(nobody))
    about = sorted({key for c in found for key in c.about})
    body = [[c.name, *(c.about.get(key, "") for key in about), *map(str, c.grades.values())] for c in found]
    yield Part("Reports", f"Golden files {found[0].golden[:16]}.", ["name", *about, *WORST], body)
    wrong = []
    for name, one, count in first_failures(found):
        used = "not comparable" if one.get("used") is None else f"{one['used']:.3g}"
        tensor = f"{one['case']}:{one['tensor']}"
        wrong.append([name, tensor, one["dtype"].lower(), used, looks_like(one), str(count)])
    wrong += [[c.name, case, "", "", words, ""] for c in found for case, words in c.errors.items()]
    if wrong:
        text = (
            "One line for each case and dtype: its first wrong tensor, what that looks like, and how many "
            "tensors of the case fail."
        )
        head = ["name", "tensor", "dtype", "times the budget", "looks like", "tensors"]
        yield Part("Failures", text, head, wrong)
    if flags := by_flag(found):
        said = lambda bad, n: f"{bad} of {n}" if n else "-"
        body = [[flag, *(said(*counts) for counts in some)] for flag, some in flags.items()]
        yield Part("Traps", "Cases with the flag that fail, of those compared.", ["flag", *names], body)


def markdown(found: list[Column]) -> str:
    """All parts in Markdown."""
    row = lambda cells: f"| {' | '.join(cells)} |"
    lines = []
    for level, part in enumerate(parts(found)):
        lines += [f"{'##' if level else '#'} {escaped(part.title)}", ""]
        lines += [escaped(part.text), ""] if part.text else []
        if part.head:
            lines += [row(map(escaped, part.head)), row(["---"] * len(part.head))]
            lines += [*(row(escaped(str(x)) for x in cells) for cells in part.body), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = " ".join(text.split())
    text = html.escape("".join(c for c in text if c.isprintable()), quote=False)
    return re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def matrix_page(found: list[Column]) -> str:
    """All parts as one HTML page."""
    body, every = [], list(parts(found))
    for level, part in enumerate(every):
        tag = "h2" if level else "h1"
        body.append(f"<{tag}>{html.escape(part.title)}</{tag}>")
        body += [f"<p>{html.escape(part.text)}</p>"] if part.text else []
        body += [html_table(part.head, (map(table_cell, cells) for cells in part.body))] if part.head else []
    return html_page(every[0].title, "\n".join(body))


def table_cell(x: str | Cell) -> str:
    """A cell, in the colour of its class; a line for each dtype where they differ."""
    if str(x) == "-":
        return '<td class="none">-</td>'
    if not isinstance(x, Cell):
        return td(x) if " " in x or ":" in x else f"<td><span>{html.escape(x)}</span></td>"
    words, count = str(x).rsplit(" (", 1)
    lines = "<br>".join(map(html.escape, words.split(", ")))
    return f'<td class="{x.worst}"><span>{lines} <small>{html.escape(f"({count}")}</small></span></td>'
