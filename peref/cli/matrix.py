"""matrix: many reports in one table."""

from pathlib import Path

import click

from peref import store
from peref.cli import options, text
from peref.errors import Misuse
from peref.golden import matrix, tables

FORMS = {".md": tables.markdown, ".html": tables.page}


@click.command("matrix")
@click.argument("reports", nargs=-1, metavar="REPORT...")
@click.option("-o", "--out", metavar="FILE", help="Write FILE.md or FILE.html in place of Markdown on stdout.")
@options.as_json
def command(reports: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """One table of implementations by encoding, from reports that `check --report json:FILE` wrote.

    A report is named by its file, or by the name under "implementation" in it.
    """
    if out is not None and Path(out).suffix not in FORMS:
        raise Misuse(f"-o {out}: expected a file that ends in {' or '.join(FORMS)}")
    found = matrix.columns([Path(path) for path in reports])
    if out is not None:
        store.write_text(out, FORMS[Path(out).suffix](found))
    if as_json:
        print(text.document(matrix.data(found)))
    elif out is None:
        print(tables.markdown(found), end="")
    else:
        print(f"{out}: {len(found)} implementations, {len(matrix.rows(found))} encodings and levels")
