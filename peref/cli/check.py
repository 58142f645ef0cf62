"""check: somebody's tensors, function or program held against the golden files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from peref import share, store
from peref.cli import completion, options, text
from peref.cli.narrow import narrowed
from peref.cli.options import FILE, Document, Given, option
from peref.errors import Misuse, theirs
from peref.golden.judge import html, junit, selection
from peref.golden.judge.function import names_of
from peref.golden.judge.implementation import check_function, check_program, first_contact, owing
from peref.golden.judge.isolated import function_of
from peref.golden.judge.judged import DTYPES, check_tensors
from peref.golden.judge.report import Report, merged, report_data
from peref.golden.judge.runner import SECONDS
from peref.golden.judge.selection import Pick
from peref.golden.judge.start import start_of
from peref.golden.judge.text import also_words, compared_words, failure_blocks, rest_words, summary_blocks
from peref.golden.judge.wire import LARGEST_OUTPUT
from peref.golden.spec.book import Book
from peref.golden.spec.checksums import FILES, versioned
from peref.golden.spec.files import Tensor, read_tensors
from peref.golden.spec.rule import CLASSES
from peref.store import is_file

WRITERS: dict[str, Callable[[Report, Book], str]] = {
    "junit": junit.junit_xml,
    "html": html.report_page,
    "json": lambda *found: text.document(report_data(*found)) + "\n",
}


def form_of(item: str) -> tuple[Callable[[Report, Book], str], str]:
    """What writes a report of this kind, and where to."""
    kind, _, path = item.partition(":")
    if kind not in WRITERS or not path:
        raise ValueError(f"'{item}'; expected junit:FILE, json:FILE or html:FILE")
    return WRITERS[kind], path


@options.command("check")
@options.argument("output", FILE, metavar="[OUT.safetensors]", required=False)
@option(
    "--impl=MODULE:FUNCTION",
    "Call function(case, inputs) for each case instead of reading a file. What it is given and returns: "
    "docs/checking.md.",
)
@option(
    "--for thing",
    "With --impl: ask for this alone, such as rope.op. The function takes inputs, facts and options by "
    "name, those that its signature names.",
    options.Kind("ENCODING.LEVEL", completion.things, str.lower),
)
@option("--in-process", "With --impl: call it in this process, for a debugger.", bool)
@options.encoding_option(
    "--start=NAME", "Print a NumPy function of this encoding to start from, for --for; check nothing."
)
@option("--cmd=COMMAND program", "Ask this program for each case, in JSON lines over stdin and stdout.", FILE)
@option(
    "--timeout=SECONDS",
    "How long --cmd or --impl may take to answer.",
    click.FloatRange(0.1),
    default=SECONDS,
)
@options.golden_folder("Golden files to check against.  [default: those that come with peref]")
@option(
    "--full",
    "Also use the full set (block, model, step, more of op and attn). A file with names from it does so by "
    "itself.",
    bool,
)
@option("--case cases", "Only these cases, such as 'rope.op/*'.", options.CASES, multiple=True)
@option("--group groups", "Only these groups, such as rotate_op.", options.GROUPS, multiple=True)
@narrowed
@option(
    "--dtype dtypes",
    "Only tensors of this dtype; with --impl and --cmd, the dtype of the inputs that they are given.  "
    "[default: f32 and f64 with --impl, f64 with --cmd]",
    [*DTYPES],
    multiple=True,
)
@option("--no-vjp", "Yours has no gradients: do not count them as missing.", bool)
@options.least_class("The least accurate class that passes.")
@options.most_shown("How many failures to show in full.")
@option(
    "--xfail",
    "Expected failures, in lines CASE:TENSOR # why. One that passes counts as a failure.",
    FILE,
)
@option(
    "--report written",
    "Also write junit:FILE, json:FILE or html:FILE.",
    options.Kind("KIND:FILE", read=form_of),
    multiple=True,
)
def command(given: Given) -> Document:
    """Check tensors against the golden files.

    Exit codes: 0 all is right, 1 something is wrong, 3 no golden files, 4 the program broke, 5 nothing was
    compared.

    OUT.safetensors, or a folder of such files, holds tensors under the names of the golden files,
    CASE:TENSOR, as many of them as you have. Missing ones are not compared; inputs and budgets may be among
    them.
    """
    refuse_contradictions(given)
    book = Book(share.folder("golden") if given.folder is None else Path(given.folder))
    if given.start is not None:
        start = start_of(given.start, book.only((given.start,)))
        return {"encoding": given.start, "text": start}, [start.removesuffix("\n")]
    with theirs():
        tensors = {} if given.output is None else given_tensors(Path(given.output), given.folder, book)
    if given.full or set(given.levels) & set(selection.OF_MODEL):
        book = selection.needing_full(book, "--full" if given.full else f"--level {' '.join(given.levels)}")
    for name in {name.partition(":")[0] for name in tensors}:
        if name not in book.entries and selection.could_be_of_full(name):
            book = selection.needing_full(book, f"{given.output}: {name}", name)
    encoding, _, level = (given.thing or "").partition(".")
    if given.output is None and given.xfail is None:  # what they name may be of any encoding
        book = book.only((encoding,) if encoding else given.encodings)
    known_names = None if given.thing is None else names_of(book, given.thing)
    if given.thing is not None:
        given.encodings, given.levels = (encoding,), (level,)
    pick = Pick(given.cases, given.groups, given.flags, given.levels, given.encodings)
    selection.refuse_unknown(pick, book)
    known: list[str] = []
    unknown: list[str] = []
    if given.xfail is not None:
        known, unknown = selection.expected_failures(Path(given.xfail), book)
    dtypes, how = tuple(dict.fromkeys(given.dtypes)), {"limit": given.limit, "gradients": not given.no_vjp}
    if given.output is not None:
        reports = [check_tensors(book, tensors, pick, dtypes=dtypes, **how)]
    elif given.impl is not None:
        with function_of(given.impl, known_names, given.timeout, given.in_process) as function:
            reports = [check_function(function, book, pick, dtype, **how) for dtype in dtypes]
            reports = [owing(one, reports) for one in reports] or first_contact(function, book, pick, **how)
    else:
        how["seconds"] = given.timeout
        reports = [check_program(given.program, book, pick, dtype, **how) for dtype in dtypes or ("f64",)]
    repeat = repeating(given)
    report = merged(reports, known=tuple(known), unknown=tuple(unknown), repeat=repeat)
    for form, path in given.written:
        store.write_text(path, form(report, book))
    data = report_data(report, book) if given.as_json else {}
    return data, report_lines(report, book, given.most), report.exit_code


def refuse_contradictions(given: Given) -> None:
    """Raises Misuse for options that do not go together."""
    if sum(x is not None for x in (given.output, given.impl, given.program, given.start)) != 1:
        raise Misuse("give either a file of tensors, or --impl MODULE:FUNCTION, or --cmd COMMAND, or --start")
    if given.impl is None and (said := given.said("thing", "in_process")):
        raise Misuse(f"{said[0]} is about a function; name it with --impl MODULE:FUNCTION")
    if given.thing and (given.encodings or given.levels):
        raise Misuse(f"--for {given.thing} says encoding and level; leave out --pe and --level")


def given_tensors(output: Path, folder: str | None, book: Book) -> dict[str, Tensor]:
    """Somebody's tensors. Raises Misuse for golden files that are held against themselves."""
    whole, one = versioned(output), output.parent if output.name in FILES else output
    inside = folder is None or output.resolve().is_relative_to(book.folder.resolve())
    if inside and (whole or all(is_file(one / name) for name in FILES[:2])):
        what = f"{output} holds golden files, the reference's own numbers, which agree with themselves"
        place = output if whole else folder
        use = text.command("check", "OUT.safetensors", *(["--golden", place] if place else []))
        raise Misuse(f"{what}; give the tensors that you computed: {use}")
    return read_tensors(output, LARGEST_OUTPUT)


def repeating(given: Given) -> str:
    """The command that gives the report, without the choice of cases."""
    options = {"--impl": given.impl, "--cmd": given.program, "--golden": given.folder, "--for": given.thing}
    words = [given.output] if given.output else []
    words += [word for option, value in options.items() if value is not None for word in (option, value)]
    words += ["--full"] * given.full + ["--no-vjp"] * given.no_vjp
    words += ["--class", given.limit] if given.limit != CLASSES[-1][0] else []
    return text.command("check", *words, *(word for dtype in given.dtypes for word in ("--dtype", dtype)))


def report_lines(report: Report, book: Book, most: int) -> Iterator[str]:
    """For people: failures, then one line."""
    for block in failure_blocks(report, most):
        yield f"{block}\n"
    if len(report.told) > most:
        yield f"and {len(report.told) - most} more; --show {len(report.told)} tells them all\n"
    for block in summary_blocks(report, most):
        yield f"{block}\n"
    for entry, variant in {r.entry.id: (r.entry, r.variant) for r in report.results if r.variant}.values():
        yield f"NOTE {entry.id} agrees with {variant}: {entry.variants[variant]}"
        yield f"     the norm here is {entry.variants['']}\n"
    for name, words in list(report.raised_wide.items())[:1]:
        yield f"NOTE {name} raised in float64: {words}\n"
    said = ", ".join([compared_words(report), *also_words(report)])
    rest = ", ".join(rest_words(report))
    end = f"{said}{';' if ';' in said else ','} {rest}; spec {book.version}"
    yield f"{'FAIL' if report.exit_code else 'pass'}: {end}"
