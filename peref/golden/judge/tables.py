"""The table of implementations in Markdown, and as one HTML file that loads nothing from anywhere.

What comes from reports is text and stays text: no character of it is markup.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from peref.golden.judge.matrix import Cell, Column, by_flag, cell, first_failures, table_rows, unclaimed
from peref.page import html_page, html_table, td

LEGEND = (
    "Each cell is the worst class of all tensors compared and how many of the golden cases were claimed. "
    "Gradients are among the tensors, except where a cell says outputs only; in part: not all outputs of the "
    "claimed cases came. A: within the error budget of a careful implementation; B and C: 16 and 64 times "
    "that, less accurate but not wrong; FAIL: beyond; ERROR: it raised; -: not claimed."
)

Table = tuple[list[str], Sequence[Sequence[str | Cell]]]


def parts(found: list[Column]) -> Iterator[tuple[str, str, Table | None]]:
    """Title, text and table of each part of the page."""
    where = table_rows(found)
    yield f"Implementations against the golden files, specification {found[0].spec}", LEGEND, None
    yield (
        "Encodings",
        "",
        (
            ["encoding", "level", *(c.name for c in found)],
            [[*row, *(cell(c, row) for c in found)] for row in where],
        ),
    )
    if nobody := unclaimed(found):
        yield "Claimed by none", ", ".join(nobody), None
    about = sorted({key for c in found for key in c.about})
    counts = lambda c: [str(n) for n in c.grades.values()]
    yield (
        *("Reports", f"Golden files {found[0].golden[:16]}."),
        (
            ["name", *about, "A", "B", "C", "FAIL", "ERROR"],
            [[c.name, *(c.about.get(key, "") for key in about), *counts(c)] for c in found],
        ),
    )
    wrong = [
        [name, f"{one.case}:{one.tensor}", one.dtype.lower(), used_text(one.used), one.words, str(n)]
        for name, one, n in first_failures(found)
    ]
    wrong += [[c.name, case, "", "", words, ""] for c in found for case, words in c.errors.items()]
    if wrong:
        yield (
            *(
                "Failures",
                (
                    "One line for each case and dtype: its first wrong tensor, what that looks like, and "
                    "how many tensors of the case fail."
                ),
            ),
            (["name", "tensor", "dtype", "times the budget", "looks like", "tensors"], wrong),
        )
    flags = [
        [flag, *(f"{bad} of {n}" if n else "-" for bad, n in counts)]
        for flag, counts in by_flag(found).items()
    ]
    if flags:
        yield (
            "Traps",
            "Cases with the flag that fail, of those compared.",
            (["flag", *(c.name for c in found)], flags),
        )


def used_text(x: float | None) -> str:
    return "not comparable" if x is None else f"{x:.3g}"


def markdown(found: list[Column]) -> str:
    """All parts in Markdown."""
    lines = []
    for level, (title, text, table) in enumerate(parts(found)):
        lines += [f"{'##' if level else '#'} {escaped(title)}", ""]
        lines += [escaped(text), ""] if text else []
        if table:
            head, body = table
            lines += [
                markdown_row(map(escaped, head)),
                markdown_row(["---"] * len(head)),
                *(markdown_row(escaped(str(x)) for x in cells) for cells in body),
                "",
            ]
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = " ".join(text.split())
    text = html.escape("".join(c for c in text if c.isprintable()), quote=False)
    return re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def matrix_page(found: list[Column]) -> str:
    """All parts as one HTML page."""
    body = []
    for level, (title, text, table) in enumerate(parts(found)):
        tag = "h2" if level else "h1"
        body.append(f"<{tag}>{html.escape(title)}</{tag}>")
        body += [f"<p>{html.escape(text)}</p>"] if text else []
        if table:
            head, lines = table
            body.append(html_table(head, (map(table_cell, cells) for cells in lines)))
    return html_page(next(parts(found))[0], "\n".join(body))


def table_cell(x: str | Cell) -> str:
    """A cell, in the colour of its class; a line for each dtype where they differ."""
    if str(x) == "-":
        return '<td class="none">-</td>'
    if not isinstance(x, Cell):
        return td(x) if " " in x or ":" in x else f"<td><span>{html.escape(x)}</span></td>"
    words, count = str(x).rsplit(" (", 1)
    lines = "<br>".join(map(html.escape, words.split(", ")))
    return f'<td class="{x.worst}"><span>{lines} <small>{html.escape(f"({count}")}</small></span></td>'
