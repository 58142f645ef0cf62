"""The table of implementations in Markdown, and as one HTML file that loads nothing from anywhere.

What comes from reports is text and stays text: no character of it is markup.
"""

import html
import re
from collections.abc import Iterator, Sequence

from peref.golden.judge import matrix
from peref.golden.judge.matrix import WORST, Cell, Column
from peref.page import html_page, html_table, td

LEGEND = (
    "Each cell is the worst class of all tensors compared and how many of the golden cases were claimed. "
    "Gradients are among the tensors, except where a cell says outputs only; in part: not all outputs of the "
    "claimed cases came. A: within the error budget of a careful implementation; B and C: 16 and 64 times "
    "that, less accurate but not wrong; FAIL: beyond; ERROR: it raised or broke down; -: not claimed."
)


# title, text, and head and rows of a table; without a head there is none
Part = tuple[str, str, Sequence[str], Sequence[Sequence[str | Cell]]]


def chapters(found: list[Column]) -> Iterator[Part]:
    names = [c.name for c in found]
    yield f"Implementations against the golden files, specification {found[0].spec}", LEGEND, (), ()
    rows = matrix.table_rows(found)
    cells: list[list[str | Cell]] = [[*row, *(matrix.cell(c, row) for c in found)] for row in rows]
    yield "Encodings", "", ["encoding", "level", *names], cells
    if nobody := matrix.unclaimed(found):
        yield "Claimed by none", ", ".join(nobody), (), ()
    about = sorted({key for c in found for key in c.about})
    body = [[c.name, *(c.about.get(key, "") for key in about), *map(str, c.grades.values())] for c in found]
    yield "Reports", f"Golden files {found[0].golden[:16]}.", ["name", *about, *WORST], body
    wrong = []
    for name, one, count in matrix.first_failures(found):
        used = "not comparable" if one.get("used") is None else f"{one['used']:.3g}"
        tensor = f"{one['case']}:{one['tensor']}"
        wrong.append([name, tensor, one["dtype"].lower(), used, matrix.looks_like(one), str(count)])
    told = [(c.name, case, words) for c in found for case, words in {**c.errors, **c.broken}.items()]
    wrong += [[name, case, "", "", words, ""] for name, case, words in told]
    if wrong:
        text = (
            "One line for each case and dtype: its first wrong tensor, what that looks like, and how many "
            "tensors of the case fail."
        )
        head = ["name", "tensor", "dtype", "times the budget", "looks like", "tensors"]
        yield "Failures", text, head, wrong
    if flags := matrix.by_flag(found):
        said = lambda bad, n: f"{bad} of {n}" if n else "-"
        body = [[flag, *(said(*counts) for counts in some)] for flag, some in flags.items()]
        yield "Traps", "Cases with the flag that fail, of those compared.", ["flag", *names], body


def markdown(found: list[Column]) -> str:
    """All parts in Markdown."""
    row = lambda cells: f"| {' | '.join(cells)} |"
    lines = []
    for level, (title, text, head, body) in enumerate(chapters(found)):
        lines += [f"{'##' if level else '#'} {escaped(title)}", ""]
        lines += [escaped(text), ""] if text else []
        if head:
            lines += [row(map(escaped, head)), row(["---"] * len(head))]
            lines += [*(row(escaped(str(x)) for x in cells) for cells in body), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = " ".join(text.split())
    text = html.escape("".join(c for c in text if c.isprintable()), quote=False)
    return re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def matrix_page(found: list[Column]) -> str:
    """All parts as one HTML page."""
    lines, every = [], list(chapters(found))
    for level, (title, text, head, body) in enumerate(every):
        tag = "h2" if level else "h1"
        lines.append(f"<{tag}>{html.escape(title)}</{tag}>")
        lines += [f"<p>{html.escape(text)}</p>"] if text else []
        lines += [html_table(head, (map(table_cell, cells) for cells in body))] if head else []
    return html_page(every[0][0], "\n".join(lines))


def table_cell(x: str | Cell) -> str:
    """A cell, in the colour of its class; a line for each dtype where they differ."""
    if str(x) == "-":
        return '<td class="none">-</td>'
    if not isinstance(x, Cell):
        return td(x) if " " in x or ":" in x else f"<td><span>{html.escape(x)}</span></td>"
    words, count = str(x).rsplit(" (", 1)
    lines = "<br>".join(map(html.escape, words.split(", ")))
    return f'<td class="{x.worst}"><span>{lines} <small>{html.escape(f"({count}")}</small></span></td>'
