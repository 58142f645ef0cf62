"""One head and one style for every HTML page that peref writes: no script, nothing from any address.

The body is markup: text in it was escaped by whoever made it. Not here: what stands on a page
(golden/judge/html, golden/judge/tables, lab/pictures).
"""

from collections.abc import Iterable
from html import escape

STYLE = """
:root { color-scheme: light dark; --line: #8886; --head: #f4f4f4; --A: #2a7d46; --B: #7d7a2a; --C: #b3701c;
  --FAIL: #b3261e; --ERROR: #8040b0; }
@media (prefers-color-scheme: dark) {
  :root { --head: #222; }
  img { filter: invert(.93) hue-rotate(180deg); }
}
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; overflow-wrap: anywhere; }
body > :not(table) { max-width: 80em; }
h1 { font-size: 1.4em; margin-bottom: 0; }
h2 { font-size: 1.1em; margin: 2em 0 .5em; }
.small, .none { opacity: .7; }
.chips span { display: inline-block; margin: 1em .5em 0 0; padding: .1em .7em; border-radius: 1em;
  border: 1px solid var(--line); }
b.A, b.B, b.C, b.FAIL { color: #fff; border-radius: .3em; padding: 0 .45em; font-size: .85em; }
b.A { background: var(--A); }
b.B { background: var(--B); }
b.C { background: var(--C); }
b.FAIL { background: var(--FAIL); }
section { margin: .8em 0; }
.failure { border: 1px solid var(--line); border-left: .3em solid var(--FAIL); border-radius: .3em;
  padding: .6em 1em; }
.failure span { opacity: .7; margin-left: .8em; }
pre { white-space: pre-wrap; margin: .4em 0; font-size: .9em; }
.failure pre span { opacity: 1; margin: 0; display: block; padding-left: 14ch; text-indent: -14ch; }
details { border-bottom: 1px solid var(--line); padding: .3em 0; } summary { cursor: pointer; }
table { border-collapse: collapse; font-size: .9em; margin: .5em 0; }
td, th { border: 1px solid var(--line); padding: .15em .5em; text-align: left; vertical-align: top;
  font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--head); }
td span { white-space: nowrap; }
td.A { background: color-mix(in srgb, var(--A) 30%, transparent); }
td.B { background: color-mix(in srgb, var(--B) 30%, transparent); }
td.C { background: color-mix(in srgb, var(--C) 35%, transparent); }
td.FAIL { background: color-mix(in srgb, var(--FAIL) 35%, transparent); }
td.ERROR { background: color-mix(in srgb, var(--ERROR) 35%, transparent); }
img { max-width: 100%; border: 1px solid var(--line); }
nav a { margin-right: .8em; white-space: nowrap; }
"""


def html_page(title: str, body: str) -> str:
    """A whole page. Pictures may lie beside it."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src 'self' file:\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table: texts for the head, cells as markup (`td`)."""
    first = "".join(f"<th>{escape(name).replace('_', '_<wbr>')}</th>" for name in head)
    lines = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><tr>{first}</tr>\n{lines}\n</table>"


def td(text: str) -> str:
    return f"<td>{escape(text)}</td>"
