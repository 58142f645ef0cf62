"""One head and one style for every HTML page that peref writes: no script, nothing from any address.
The style is page.css, which stands in each page.

The body is markup: text in it was escaped by whoever made it. Not here: what stands on a page
(golden/judge/html, golden/judge/tables, lab/pictures).
"""

from collections.abc import Iterable
from html import escape
from pathlib import Path

STYLE = "\n" + Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def html_page(title: str, body: str) -> str:
    """A whole page. Pictures may lie beside it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src 'self' file: data:\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table: texts for the head, cells as markup (`td`)."""
    first = "".join(f"<th>{escape(name).replace('_', '_<wbr>')}</th>" for name in head)
    lines = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><tr>{first}</tr>\n{lines}\n</table>"


def td(text: str) -> str:
    """A cell of a table, as HTML; the text is escaped."""
    return f"<td>{escape(text)}</td>"
