"""check: somebody's tensors, function or program held against the golden files."""

from pathlib import Path

import click

from peref import share, store
from peref.cli import completion, options, text
from peref.errors import Misuse, counted, theirs
from peref.golden.judge import html, junit, selection
from peref.golden.judge.function import names_of
from peref.golden.judge.implementation import check_function, check_program, first_contact, merged
from peref.golden.judge.isolated import function_of
from peref.golden.judge.report import DTYPES, Report, check_tensors, report_data
from peref.golden.judge.runner import LARGEST_OUTPUT, SECONDS
from peref.golden.judge.selection import Pick
from peref.golden.judge.start import start_of
from peref.golden.judge.text import compared_words, failure_block, kind_block, known_lines, probable_lines
from peref.golden.spec.book import Book
from peref.golden.spec.cases import LEVELS
from peref.golden.spec.checksums import versioned
from peref.golden.spec.files import read_tensors

LEVEL_NAMES = (*LEVELS, "refuse", "law")


@click.command("check", cls=options.Command)
@click.argument(
    "output", required=False, metavar="[OUT.safetensors]", shell_complete=completion.complete_file
)
@click.option(
    "--impl",
    metavar="MODULE:FUNCTION",
    help="Call function(case, inputs) for each case instead of reading a file. What it is given and returns: "
    "docs/checking.md.",
)
@click.option(
    "--for",
    "thing",
    metavar="ENCODING.LEVEL",
    callback=lambda ctx, param, name: name and name.lower(),
    help="With --impl: ask for this alone, such as rope.op. The function takes inputs, facts and options by "
    "name, those that its signature names.",
)
@click.option(
    "--in-process",
    is_flag=True,
    help="With --impl: call the function in this process, for a debugger.",
)
@click.option(
    "--start",
    metavar="NAME",
    type=options.ENCODINGS,
    help="Print a function of this encoding to start from, in NumPy, for --for; check nothing.",
)
@click.option(
    "--cmd",
    "program",
    metavar="COMMAND",
    shell_complete=completion.complete_file,
    help="Ask this program for each case, in JSON lines over stdin and stdout.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=SECONDS,
    show_default=True,
    help="Seconds that --cmd or --impl has for an answer.",
)
@click.option(
    "--golden",
    "folder",
    type=options.Folder(),
    help="Golden files to check against.  [default: those that come with peref]",
)
@click.option(
    "--full",
    is_flag=True,
    help="Also use the full set (block, model, step, aligned); names from it in a file do so by themselves.",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="PATTERN",
    callback=options.lowered,
    shell_complete=completion.cases,
    help="Only these cases, such as 'rope.op/*'.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="PATTERN",
    callback=options.lowered,
    shell_complete=completion.complete_group,
    help="Only these groups, such as rotate_op.",
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="PATTERN",
    callback=options.lowered,
    shell_complete=completion.flags,
    help="Only cases with such a flag, as 'rope.layout.*'.",
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="LEVEL",
    shell_complete=lambda ctx, param, incomplete: completion.beginning(incomplete, LEVEL_NAMES),
    help=f"Only this level: {', '.join(LEVEL_NAMES[:-1])} or {LEVEL_NAMES[-1]}.",
)
@click.option(
    "--pe", "encodings", multiple=True, metavar="NAME", type=options.ENCODINGS, help="Only this encoding."
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(list(DTYPES)),
    help="Only tensors of this dtype; with --impl and --cmd, the dtype of the inputs that they are given.  "
    "[default: f32 and f64 with --impl, f64 with --cmd]",
)
@click.option("--no-vjp", is_flag=True, help="There are no gradients: their absence is no failure.")
@click.option(
    "--class",
    "limit",
    type=click.Choice(["A", "B", "C"]),
    default="C",
    show_default=True,
    help="The least accurate class that passes.",
)
@click.option(
    "--show",
    "most",
    type=options.SIZE,
    default=5,
    show_default=True,
    help="How many failures to show in full.",
)
@click.option(
    "--xfail",
    metavar="FILE",
    shell_complete=completion.complete_file,
    help="Lines CASE:TENSOR # why: these are expected to fail; one that passes counts as a failure.",
)
@click.option(
    "--report",
    "written",
    multiple=True,
    metavar="KIND:FILE",
    help="Also write junit:FILE, json:FILE or html:FILE.",
)
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    output: str | None,
    impl: str | None,
    thing: str | None,
    in_process: bool,
    start: str | None,
    program: str | None,
    timeout: float,
    folder: str | None,
    full: bool,
    cases: tuple[str, ...],
    groups: tuple[str, ...],
    flags: tuple[str, ...],
    levels: tuple[str, ...],
    encodings: tuple[str, ...],
    dtypes: tuple[str, ...],
    no_vjp: bool,
    limit: str,
    most: int,
    xfail: str | None,
    written: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check tensors against the golden files.

    Exit codes: 0 all is right, 1 something is wrong, 3 no golden files, 4 the program broke, 5 nothing was
    compared.

    OUT.safetensors, or a folder of such files, holds tensors under the names of the golden files,
    CASE:TENSOR, as many of them as you have. Missing ones are not compared; inputs and budgets may be among
    them.
    """
    if sum(x is not None for x in (output, impl, program, start)) != 1:
        raise Misuse("give either a file of tensors, or --impl MODULE:FUNCTION, or --cmd COMMAND, or --start")
    for option, chosen in (("--for", thing), ("--in-process", in_process)):
        if chosen and impl is None:
            raise Misuse(f"{option} is about a function; name it with --impl MODULE:FUNCTION")
    if thing and (encodings or levels):
        raise Misuse(f"--for {thing} says encoding and level; leave out --pe and --level")
    forms = {
        "junit": junit.junit_xml,
        "html": html.report_page,
        "json": lambda *found: text.document(report_data(*found)) + "\n",
    }
    for item in written:
        kind, _, path = item.partition(":")
        if kind not in forms or not path:
            raise Misuse(f"--report {item}: expected junit:FILE, json:FILE or html:FILE")
    book = Book(share.folder("golden") if folder is None else Path(folder))
    if start is not None:
        print(start_of(start, book), end="")
        return
    if (
        output is not None
        and versioned(Path(output))
        and (folder is None or Path(output).resolve() == book.folder.resolve())
    ):
        use = text.command("check", "OUT.safetensors", "--golden", output)
        raise Misuse(
            f"{output} holds golden files, which agree with themselves; give the tensors that you computed: "
            f"{use}"
        )
    with theirs():
        given = {} if output is None else read_tensors(Path(output), LARGEST_OUTPUT)
    if full or set(levels) & set(selection.OF_FULL):
        book = selection.needing_full(book, "--full" if full else f"--level {' '.join(levels)}")
    for name in {name.partition(":")[0] for name in given} - book.entries.keys():
        if selection.could_be_of_full(name):
            book = selection.needing_full(book, f"{output}: {name}")
    known_names = None if thing is None else names_of(book, thing)
    if thing is not None:
        encodings, levels = (thing.partition(".")[0],), (thing.partition(".")[2],)
    pick = Pick(cases, groups, flags, levels, encodings)
    selection.refuse_unknown(pick, book)
    known = {} if xfail is None else selection.expected_failures(Path(xfail), book)
    words = ["check", *([output] if output else ["--impl", impl] if impl else ["--cmd", program])]
    words += ["--golden", folder] if folder is not None else []
    words += ["--for", thing] if thing is not None else []
    words += ["--full"] if full else []
    words += ["--no-vjp"] if no_vjp else []
    repeat = text.command(*words, *(word for dtype in dtypes for word in ("--dtype", dtype)))
    if output is not None:
        reports = [check_tensors(book, given, pick, dtypes=dtypes, limit=limit, gradients=not no_vjp)]
    elif impl is not None:
        with function_of(impl, known_names, timeout, in_process) as function:
            reports = [check_function(function, book, pick, dtype, limit, not no_vjp) for dtype in dtypes]
            reports = reports or first_contact(function, book, pick, limit, not no_vjp)
    else:
        assert program is not None
        reports = [
            check_program(program, book, pick, dtype, limit, timeout, not no_vjp)
            for dtype in dtypes or ("f64",)
        ]
    report = merged(reports, tuple(known), repeat)
    for item in written:
        kind, _, path = item.partition(":")
        store.write_text(path, forms[kind](report, book))
    if as_json:
        print(text.document(report_data(report, book)))
    else:
        tell(report, book, most)
    ctx.exit(report.exit_code)


def tell(report: Report, book: Book, most: int) -> None:
    """For people: failures, then one line."""
    repeat = report.repeat
    for name, words in list(report.errors.items())[:most]:
        print(f"ERROR {name}\n  raised        {words}\n  repeat        {repeat} --case {name}\n")
    for name, words in list(report.crashes.items())[:most]:
        print(
            f"BROKEN {name}\n"
            f"  program       {words}\n"
            f"  repeat        {repeat}{f' --case {name}' if name in book.entries else ''}\n"
        )
    for kind, some in report.kinds.items():
        print("\n".join(kind_block(kind, some, repeat)) + "\n")
    for result in report.told[:most]:
        print("\n".join(failure_block(result, repeat)) + "\n")
    if len(report.told) > most:
        print(f"and {len(report.told) - most} more; --show {len(report.told)} tells them all\n")
    for one in report.probable if len(report.told) > 1 else ():
        print("PROBABLE " + "\n  ".join(probable_lines(one)) + "\n")
    for unknown in report.unexplained:
        print("UNEXPLAINED " + "\n  ".join(known_lines(unknown)) + "\n")
    for o in report.broken[:most]:
        print(
            f"FAIL {o.id}\n"
            f"  {o.words['level']:13} {o.said}\n"
            f"  why this case {o.words['why']}\n"
            f"  repeat        {repeat} --case {o.id}\n"
        )
    for pattern in report.stale:
        print(f"STALE {pattern} is expected to fail, and passes: take it out of the file\n")
    for entry, variant in {r.entry.id: (r.entry, r.variant) for r in report.results if r.variant}.values():
        print(
            f"NOTE {entry.id} agrees with {variant}: {entry.variants[variant]}\n"
            f"     the norm here is {entry.variants['']}\n"
        )
    for name, words in list(report.raised_wide.items())[:1]:
        print(f"NOTE {name} raised in float64: {words}\n")
    raised = f", {counted(len(report.errors), 'case')} raised" if report.errors else ""
    raised += f", the program broke {counted(len(report.crashes), 'time')}" if report.crashes else ""
    raised += f", {counted(len(report.skipped), 'case')} skipped" if report.skipped else ""
    raised += f", {len(report.expected)} failed as expected" if report.expected else ""
    rest = f"{counted(len(report.not_run), 'case')} not run; spec {book.version}"
    for level, *what in (
        ("refuse", "refused as it must be", "refused as they must be"),
        ("law", "law holds", "laws hold"),
    ):
        held = [o.held for o in report.outcomes if o.words["level"] == level and o.held is not None]
        rest = f"{sum(held)} of {counted(len(held), *what)}, {rest}" if held else rest
    said = compared_words(report) + raised
    print(f"{'FAIL' if report.exit_code else 'pass'}: {said}{';' if ';' in said else ','} {rest}")
