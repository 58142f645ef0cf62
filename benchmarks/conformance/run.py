"""Other people's libraries against the golden files: every adapter, a report for each, and one table.

    pip install -e '.[conformance]'
    python benchmarks/conformance/run.py [NAME ...] [--reports FOLDER]

and in a second environment, for LitGPT wants a huggingface-hub below 1.4 and transformers one above:

    pip install -e '.[conformance-litgpt]'
    python benchmarks/conformance/run.py litgpt

Writes reports/NAME.json, one for each adapter in adapters/ whose library is here (others are named and left
as they are), with the versions, the specification and the date; then matrix.md and matrix.html from all
reports in the folder that are of these golden files (others are named). Two minutes on one core. What the
numbers mean, and who is right where they differ, is in docs/verdicts.md.

An adapter is a module with run(case, inputs), as `check --impl` takes it, PACKAGES, whose versions are
recorded, and DTYPES. Exit code 0 also where something fails: the failures are the result. 2 for an adapter
that nobody has.
"""

import argparse
import datetime
import importlib
import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from peref import share, store  # noqa: E402
from peref.cli import text  # noqa: E402
from peref.errors import Misuse, did_you_mean  # noqa: E402
from peref.golden.judge import matrix, tables  # noqa: E402
from peref.golden.judge.implementation import run_function  # noqa: E402
from peref.golden.judge.judged import check_tensors  # noqa: E402
from peref.golden.judge.report import Report, merged  # noqa: E402
from peref.golden.judge.report import report_data as report_data  # noqa: E402
from peref.golden.judge.selection import Pick  # noqa: E402
from peref.golden.spec.book import Book  # noqa: E402


def names():
    """Every adapter there is."""
    return sorted(path.stem for path in (HERE / "adapters").glob("*.py") if path.stem != "__init__")


def report_of(module, book, dtypes):
    """One report over these dtypes, each tensor with its own; what is probable is said once, of the first
    dtype that shows it.
    """
    reports, raised = [], {}
    for dtype in dtypes:
        given, errors = (
            given_in_bfloat16(module, book)
            if dtype == "bf16"
            else run_function(module.run, book, Pick(), dtype)
        )
        new = {case: f"{dtype}: {words}" for case, words in errors.items() if case not in raised}
        raised |= new
        reports.append(check_tensors(book, given, Pick(), errors=new) if given else Report(errors=new))
    return merged(reports)


def given_in_bfloat16(module, book):
    """As run_function: NumPy has no bfloat16, so the bits come from the adapter itself."""
    from through_torch import in_bfloat16

    found, errors, function = {}, {}, in_bfloat16(module.compute)
    for entry in book.entries.values():
        given = {
            name: x.astype("float32") if x.dtype.kind == "f" and name not in ("positions", "distances") else x
            for name, x in entry.inputs().items()
        }
        try:
            found |= {
                f"{entry.id}:{name}": y for name, y in (function(dict(entry.words), given) or {}).items()
            }
        except Exception as error:
            errors[entry.id] = f"{type(error).__name__}: {error}"
    return found, errors


def about(name, module):
    """What the report says of the implementation."""
    versions = ", ".join(f"{package} {version(package)}" for package in module.PACKAGES)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "name": name,
        "versions": versions,
        "dtypes": ", ".join(module.DTYPES),
        "date": date,
        "python": platform.python_version(),
    }


def compact(data):
    """The report with a line for each tensor; why a case exists stands in the golden files."""
    results = [
        {key: x for key, x in one.items() if key != "why" and x not in (None, [])}
        for one in text.finite(data.pop("results"))
    ]
    head = text.document(data)[: -len("\n}")]
    return head + ',\n  "results": [\n' + ",\n".join(json.dumps(one) for one in results) + "\n  ]\n}\n"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(names())}")
    parser.add_argument("--reports", type=Path, default=HERE / "reports", metavar="FOLDER")
    parser.add_argument("--golden", type=Path, default=None, metavar="FOLDER")
    given = parser.parse_args(words)
    for name in given.names:
        if name not in names():
            raise Misuse(
                "no adapter is called "
                f"{name!r}{did_you_mean(name, names(), f'there are: {chr(44).join(names())}')}"
            )
    book = Book(given.golden or share.folder("golden"))
    given.reports.mkdir(parents=True, exist_ok=True)
    for name in given.names or names():
        try:
            module = importlib.import_module(f"adapters.{name}")
            said = about(name, module)
        except (ImportError, PackageNotFoundError) as error:
            print(f"{name}: not run, {error}")
            continue
        report = report_of(module, book, module.DTYPES)
        data = {"implementation": said} | report_data(report, book)
        store.write_text(given.reports / f"{name}.json", compact(data))
        grades = ", ".join(f"{grade} {n}" for grade, n in report.by_class().items() if n)
        print(
            f"{name}: {len(report.results)} tensors of {len({r.entry.id for r in report.results})} cases "
            f"({grades}), {len(report.errors)} raised"
        )
    there = [matrix.read_report(path) for path in sorted(given.reports.glob("*.json"))]
    for old in (c for c in there if c.golden != book.digest):
        print(
            f"{old.name}: left out of the table, its report is of other golden files ({old.golden[:16]}); "
            "run it again"
        )
    found = [c for c in there if c.golden == book.digest]
    if not found:
        return 0
    for form, path in ((tables.markdown, "matrix.md"), (tables.matrix_page, "matrix.html")):
        store.write_text(given.reports.parent / path, form(found))
    rows = len(matrix.table_rows(found))
    print(f"{given.reports.parent / 'matrix.md'}: {len(found)} implementations, {rows} encodings and levels")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Misuse as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
