"""check: somebody's tensors, or somebody's function, held against the golden files."""

from pathlib import Path

import click

from peref import share, store
from peref.cli import options, text
from peref.errors import Misuse
from peref.golden import declared, reports
from peref.golden.book import Book, opened
from peref.golden.files import read_tensors
from peref.golden.outside import function_of
from peref.golden.report import DTYPES, Pick, Report, check, lines, run_function


@click.command("check")
@click.argument("output", required=False, metavar="[OUT.safetensors]")
@click.option("--impl", metavar="MODULE:FUNCTION", help="Call function(case, inputs) for each case in place of reading a file.")
@click.option("--golden", "folder", type=options.Folder(), help="Golden files to check against.  [default: those that come with peref]")
@click.option("--core", "only_core", is_flag=True, help="Leave out the full set (aligned, block, model, step).")
@click.option("--case", "cases", multiple=True, metavar="PATTERN", help="Only these cases, such as 'rope.op/*'.")
@click.option("--group", "groups", multiple=True, metavar="PATTERN", help="Only these groups, such as rotate_op.")
@click.option("--flag", "flags", multiple=True, metavar="PATTERN", help="Only cases with such a flag, as 'rope.layout.*'.")
@click.option("--level", "levels", multiple=True, metavar="LEVEL", help="Only this level: table, op, attn, trace, block, model, step, refuse or law.")
@click.option("--pe", "encodings", multiple=True, metavar="NAME", help="Only this encoding.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(DTYPES)), help="Only tensors of this dtype; with --impl what it is given.")
@click.option("--class", "limit", type=click.Choice(["A", "B", "C"]), default="C", show_default=True, help="The class that passes.")
@click.option("--show", "most", type=options.SIZE, default=5, show_default=True, help="Failures that are told in full.")
@click.option("--xfail", metavar="FILE", help="Lines CASE:TENSOR # why: these are expected to fail, and a failure if they do not.")
@click.option("--report", "written", multiple=True, metavar="KIND:FILE", help="Also write junit:FILE or json:FILE.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    output: str | None,
    impl: str | None,
    folder: str | None,
    only_core: bool,
    cases: tuple[str, ...],
    groups: tuple[str, ...],
    flags: tuple[str, ...],
    levels: tuple[str, ...],
    encodings: tuple[str, ...],
    dtypes: tuple[str, ...],
    limit: str,
    most: int,
    xfail: str | None,
    written: tuple[str, ...],
    as_json: bool,
) -> None:
    """Hold tensors against the golden files: exit 0 all right, 1 something wrong, 3 no golden files, 5 nothing compared.

    OUT.safetensors has tensors under the names of the golden files, CASE:TENSOR, as many of them as you have. What is missing is not run.
    """
    if (output is None) == (impl is None):
        raise Misuse("give either a file of tensors or --impl MODULE:FUNCTION")
    forms = {"junit": reports.junit, "json": lambda *found: text.document(reports.data(*found)) + "\n"}
    for item in written:
        kind, _, path = item.partition(":")
        if kind not in forms or not path:
            raise Misuse(f"--report {item}: expected junit:FILE or json:FILE")
    known = {} if xfail is None else reports.patterns(Path(xfail))
    book = (Book if only_core else opened)(share.folder("golden") if folder is None else Path(folder))
    pick = Pick(cases, groups, flags, levels, encodings)
    if impl is None:
        assert output is not None
        report = check(book, read_tensors(Path(output)), pick, dtypes=dtypes, limit=limit)
        words = ["check", output]
    else:
        if len(dtypes) > 1:
            raise Misuse("--impl takes one --dtype at a time")
        function = function_of(impl)
        given, errors = run_function(function, book, pick, *(dtypes or ("f64",)))
        judged = list(declared.outcomes(function, book, pick, *(dtypes or ("f64",))))
        some = any(o.held is not None for o in judged)
        report = check(book, given, pick, limit=limit) if given or not (errors or some) else Report()
        report.outcomes = judged
        report.errors |= errors
        report.not_run = [name for name in report.not_run if name not in errors]
        words = ["check", "--impl", impl]
    report.known, report.stale = tuple(known), reports.stale(report, known)
    for item in written:
        kind, _, path = item.partition(":")
        store.write_text(path, forms[kind](report, book))
    if folder is not None:
        words += ["--golden", folder]
    if only_core:
        words.append("--core")
    words += [word for dtype in dtypes for word in ("--dtype", dtype)]
    if as_json:
        print(text.document(reports.data(report, book)))
    else:
        tell(report, book, text.command(*words), most)
    ctx.exit(report.exit_code)


def tell(report: Report, book: Book, repeat: str, most: int) -> None:
    """For people: failures, then one line."""
    for name, words in list(report.errors.items())[:most]:
        print(f"ERROR {name}\n  raised        {words}\n  repeat        {repeat} --case {name}\n")
    for result in report.failed[:most]:
        print("\n".join(lines(result, repeat, share.program())) + "\n")
    if len(report.failed) > most:
        print(f"and {len(report.failed) - most} more; --show {len(report.failed)} tells them all\n")
    for o in report.broken[:most]:
        print(f"FAIL {o.id}\n  {o.words['level']:13} {o.said}\n  why this case {o.words['why']}\n  repeat        {repeat} --case {o.id}\n")
    for pattern in report.stale:
        print(f"STALE {pattern} is expected to fail, and passes: take it out of the file\n")
    grades = ", ".join(f"{name} {count}" for name, count in report.by_class().items() if count)
    cases = len({r.entry.id for r in report.results})
    raised = f", {len(report.errors)} cases raised" if report.errors else ""
    raised += f", {len(report.expected)} failed as expected" if report.expected else ""
    rest = f"{len(report.not_run)} cases not run; spec {book.version}"
    for level, what in (("refuse", "refused as they must be"), ("law", "laws hold")):
        held = [o.held for o in report.outcomes if o.words["level"] == level and o.held is not None]
        rest = f"{sum(held)} of {len(held)} {what}, {rest}" if held else rest
    verdict = "FAIL" if report.exit_code else "pass"
    print(f"{verdict}: {len(report.results)} tensors of {cases} cases compared ({grades}){raised}, {rest}")
