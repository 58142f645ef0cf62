"""matrix: many reports in one table."""

from pathlib import Path

from peref import store
from peref.cli import options
from peref.cli.options import Document, Given
from peref.errors import Misuse, counted
from peref.golden.judge import matrix, tables

FORMS = {".md": tables.markdown, ".html": tables.matrix_page}


@options.command("matrix")
@options.argument("reports", options.FILE, nargs=-1, metavar="REPORT...")
@options.option("-o --out", "Write FILE, .md or .html, instead of Markdown to stdout.", options.FILE)
def command(given: Given) -> Document:
    """Make one table, implementations by encoding, of reports that `check --report json:FILE` wrote.

    A report is named after its file, or by the name under "implementation" in it.
    """
    out = given.out
    if out and Path(out).suffix not in FORMS:
        raise Misuse(f"-o {out}: expected a file that ends in {' or '.join(FORMS)}")
    found = matrix.read_reports([Path(path) for path in given.reports])
    rows = counted(len(matrix.table_rows(found)), "row")
    said = f"{out}: {counted(len(found), 'implementation')}, {rows} of encodings and levels"
    if out:
        store.write_text(out, FORMS[Path(out).suffix](found))
    return matrix.matrix_data(found), [said if out else tables.markdown(found).rstrip("\n")]
