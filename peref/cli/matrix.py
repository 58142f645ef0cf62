"""matrix: many reports in one table."""

from pathlib import Path

import click

from peref import store
from peref.cli import completion, options, text
from peref.errors import Misuse, counted
from peref.golden.judge import matrix, tables

FORMS = {".md": tables.markdown, ".html": tables.matrix_page}


@click.command("matrix", cls=options.Command)
@click.argument("reports", nargs=-1, metavar="REPORT...", shell_complete=completion.complete_file)
@options.file_option("-o", "--out", help="Write FILE, .md or .html, instead of Markdown to stdout.")
@options.as_json
def command(reports: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Make one table, implementations by encoding, of reports that `check --report json:FILE` wrote.

    A report is named after its file, or by the name under "implementation" in it.
    """
    if out is not None and Path(out).suffix not in FORMS:
        raise Misuse(f"-o {out}: expected a file that ends in {' or '.join(FORMS)}")
    found = matrix.read_reports([Path(path) for path in reports])
    rows = counted(len(matrix.table_rows(found)), "row")
    said = f"{out}: {counted(len(found), 'implementation')}, {rows} of encodings and levels"
    if out is not None:
        store.write_text(out, FORMS[Path(out).suffix](found))
    text.emit(as_json, matrix.matrix_data(found), [said if out else tables.markdown(found).rstrip("\n")])
