"""How options and arguments are declared: kinds of values, options that several commands have, and those for
the fields of Config and Recipe; and what a command is given of them.
"""

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from peref import share
from peref.backends import KNOWN
from peref.cli import completion, text
from peref.cli.app import Group
from peref.cli.completion import RUNS, Completer, Items, among
from peref.cli.progress import Progress, aside
from peref.cli.signals import takes
from peref.config import Config
from peref.data import known
from peref.encodings import names, spelled
from peref.errors import Misuse
from peref.recipe import Recipe
from peref.settings import choose
from peref.tasks import TASKS

NEWEST = "\0newest"  # --resume without a value: what no argument can be


class Kind(click.ParamType):
    """A kind of value: its name in the help; what is offered for one that is begun; and what reads it, or
    raises ValueError.
    """

    def __init__(
        self, name: str, complete: Completer = lambda ctx, begun: [], read: Callable[[Any], Any] = str
    ) -> None:
        self.name, self.complete, self.read = name, complete, read

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        return self.complete(ctx, incomplete)


def whole_number(least: int | None, value: Any) -> int:
    """Checked here and not only in Config, so that the message names the option and not the letter."""
    with contextlib.suppress(ValueError):
        if least is None or int(value) >= least:
            return int(value)
    raise ValueError(f"{value!r} is not a whole number" + ("" if least is None else f" of at least {least}"))


def not_empty(what: str) -> Callable[[str], str]:
    """Path("") would be the folder one is in."""

    def read(path: str) -> str:
        if not path:
            raise ValueError(f"it is empty; expected a {what}")
        return path

    return read


def spelled_as(name: str, known: Iterable[str]) -> str:
    """The one of these that is `name` but for the case of its letters, else `name`."""
    known = list(known)
    return name if name in known else next((one for one in known if one.lower() == name.lower()), name)


def one_of(known: Iterable[str], metavar: str = "NAME") -> Kind:
    """One of these names, in upper or lower case."""
    return Kind(metavar, among(*known), lambda name: spelled_as(name, known))


def several(value: str) -> str:
    """Encodings with commas between them, in upper or lower case."""
    return ",".join(spelled(name.strip()) for name in value.split(","))


def only_one(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The value of an option that may be given once: click would take the last and say nothing."""
    if len(given) > 1 and not ctx.resilient_parsing:
        wanted = param.make_metavar(ctx)
        joined = " or ".join(mark.join(given) for mark in ",+" if mark in wanted)
        raise click.BadParameter(
            f"given {len(given)} times; expected one {wanted}, such as {joined or given[0]}"
        )
    return given[-1] if given else None


def text_named(name: str) -> str:
    """A text; a path that is there is that path."""
    return name if not name or Path(name).exists() else spelled_as(name, known())


INTEGER, SIZE, INDEX = (Kind("INTEGER", read=partial(whole_number, n)) for n in (None, 1, 0))
DIR = Kind("FOLDER", completion.folders, not_empty("folder"))
FILE = Kind("FILE", completion.files, not_empty("file"))
RUN = Kind("RUN", completion.runs)
ENCODINGS = Kind("NAME[+NAME][,NAME...]", completion.encodings, several)
CORPUS = Kind("NAME|PATH", completion.corpora, text_named)
CASES = Kind("PATTERN", completion.cases, str.lower)  # what these begin with has no capitals
GROUPS = Kind("PATTERN", completion.groups, str.lower)
FLAGS = Kind("PATTERN", completion.flags, str.lower)


class Choice(click.Choice):
    """One of these names, in upper or lower case; shown as they are."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return spelled_as(str(choice), self.choices)


def typed(kind: Any) -> dict[str, Any]:
    """bool is an option without a value, a list are the values that there are."""
    if kind is bool:
        return {"is_flag": True}
    if isinstance(kind, list):
        return {"type": Choice(kind)}
    return {"type": INTEGER if kind is int else kind}


def option(names: str, help: str, kind: Any = None, **more: Any) -> Callable:
    """Declares an option: its names with blanks between them, the last perhaps that of the attribute; behind
    one and = perhaps what the help calls a value.
    """
    plain, metavars = zip(*(name.partition("=")[::2] for name in names.split()), strict=True)
    return click.option(*plain, help=help, **{"metavar": "".join(metavars) or None} | typed(kind) | more)


def argument(name: str, kind: Any, **more: Any) -> Callable:
    return click.argument(name, **typed(kind) | more)


def all_of(*options: Callable) -> Callable:
    """Decorates a command with these options, in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def section(title: str, *options: Callable) -> Callable:
    """Decorates a command with options that stand under a title in its help."""

    def decorate(function: Any) -> Callable:
        before = len(getattr(function, "__click_params__", ()))
        all_of(*options)(function)
        for param in function.__click_params__[before:]:
            param.section = title
        return function

    return decorate


RECORDS: dict[str, type] = {"model": Config, "recipe": Recipe}
# fields of Config whose options are called otherwise; and the defaults, in words, of those that follow others
OPTION_OF = dict(C="width", H="heads", G="kv-heads", D="head-width", F="ff", L="len", eps="norm-eps")
FOLLOWING = {"G": "half the heads", "D": "width / heads", "F": "8/3 of the width, 4 for gelu"}
FOLLOWING |= {"qkv_bias": "as --biases", "window": "all", "positions": "counted from 0"}


def setting(of: str, field: str, help: str = "", said: str = "", metavar: str = "NAME") -> Callable:
    """Declares an option for one field of Config or Recipe, under the name `<of>_<field>` and of its kind;
    unset it is None, and the field's own default counts. `help` and the default in words, `said`, are the
    field's unless given.
    """
    default, hint = getattr(RECORDS[of], field), get_type_hints(RECORDS[of], include_extras=True)[field]
    hint, *words = (hint.__origin__, *hint.__metadata__) if get_origin(hint) is Annotated else (hint, help)
    name = (OPTION_OF if of == "model" else {}).get(field, field.replace("_", "-"))
    kind: Any = next((kind for kind in (float, int) if kind in (hint, *get_args(hint))), None)
    if kind is int and of == "model":
        kind = SIZE
    if bool in (hint, *get_args(hint)):
        name += "/--untied" if field == "tied" else f"/--no-{name}"
    elif kind is None:
        kind = one_of(completion.choices(hint), metavar)
    usual = {"None": FOLLOWING.get(field, ""), "True": "yes", "False": "no"}
    said = said or usual.get(str(default), str(default))
    help = (help or words[0]) + (f"  [default: {said}]" if said else "")
    return option(f"--{name} {of}_{field}", help, kind, default=None)


of_model, of_recipe = partial(setting, "model"), partial(setting, "recipe")

size_option = partial(option, kind=SIZE)
encodings_option = partial(option, kind=ENCODINGS, multiple=True)
encoding_option = partial(encodings_option, callback=only_one)
data_option = partial(option, "--data", kind=CORPUS)
task_option = partial(option, "--task", kind=one_of(TASKS))
golden_folder = partial(option, "--golden folder", kind=DIR)
least_class = partial(option, "--class limit", kind=["A", "B", "C"], default="C")
most_shown = partial(option, "--show most", kind=SIZE, default=5)
json_option = option("--json as_json", "Print one JSON document on stdout, and nothing else there.", bool)
runs_folder = option("--runs", "The folder that holds the runs.", DIR, default=RUNS)
set_option = option(
    "--set settings",
    f"An option of the encoding, or a setting of its layers; `{share.program()} list` shows them.",
    Kind("[INDEX.][ENCODING.]NAME=VALUE", completion.settings),
    multiple=True,
)
# what computes, and how: `backend`, `threads`, `every_tile`
computing = all_of(
    option(
        "--backend",
        f"What computes: auto, {', '.join(KNOWN)}. "
        "cupy runs the NumPy code on a GPU; cuda has its own kernels.",
        one_of(("auto", *KNOWN)),
        default="auto",
    ),
    size_option(
        "--threads", "Threads of numba, or of NumPy's BLAS.  [default: all idle cores; what the BLAS takes]"
    ),
    option(
        "--every-tile", "Compute every tile of attention, even one whose weights all round to zero.", bool
    ),
)


def import_files(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> None:
    """Imports the files of encodings that are named, for a run imports none by itself."""
    if (named := only_one(ctx, param, given)) and not ctx.resilient_parsing:
        choose(named)


# of commands on a run that do not take another encoding for it
own_encodings = encodings_option(
    "--pe own", "Of a run with an encoding of your own, its file.", callback=import_files, expose_value=False
)
# that commands on a run have: another encoding for it, and what computes
of_a_run = all_of(
    encoding_option(
        "--pe",
        "Use the same weights under another encoding; of a run with an encoding of your own, its file.",
    ),
    set_option,
    runs_folder,
    computing,
)


# what a command returns: a document for programs, the same in lines for people, and perhaps an exit code
Lines = Iterable[str] | Mapping[str, str]
Document = tuple[Mapping[str, Any], Lines] | tuple[Mapping[str, Any], Lines, int]


class Given(SimpleNamespace):
    """What a command was given: its options and arguments by their names, and its context."""

    def __init__(self, ctx: click.Context) -> None:
        super().__init__(**ctx.params, ctx=ctx, signals=ctx.obj)
        self.stream = sys.stderr if self.as_json else sys.stdout

    def say(self, name: str, words: str) -> None:
        """A line about what goes on."""
        aside(text.labelled(name, words), self.stream)

    def note(self, words: str) -> None:
        """As say; where a signal ends nothing, it waits for nobody to read it."""
        if not self.signals.gentle or takes(self.stream):
            self.say("note", words)

    def progress(self, total: int, unit: str, **how: Any) -> Progress:
        return Progress(total, unit, plain=self.as_json, signals=self.signals, **how)

    def fields(self, of: str) -> dict[str, Any]:
        """Those of Config ("model") or Recipe ("recipe") that were said."""
        mine = {name.partition("_")[2]: x for name, x in vars(self).items() if name.startswith(f"{of}_")}
        return {field: x for field, x in mine.items() if x is not None}

    def said(self, *names: str, but: Collection[str] = ()) -> list[str]:
        """The options among these, or among all but some, that stand on the command line."""
        params = [param for param in self.ctx.command.params if param.name not in but]
        options = {p.name: p.opts[0] if isinstance(p, click.Option) else p.name.upper() for p in params}
        here = lambda name: self.ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
        return [options[name] for name in names or options if name in options and here(name)]

    def refuse(self, why: str, *names: str, but: Collection[str] = ()) -> None:
        """Raises Misuse where one of these options stands on the command line."""
        if said := self.said(*names, but=but):
            raise Misuse(f"{why}; leave out {', '.join(said)}")


class Command(click.Command):
    """A function of what was Given, which returns a Document. Its options may stand in sections; an argument
    that nobody expects is perhaps an encoding without --pe.
    """

    allow_extra_args = True  # invoke() refuses them

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        last = vars(self.params[-1]) if self.params else {}
        json_option(self)
        vars(self.params[-1]).update({key: last[key] for key in last.keys() & {"section"}})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        rest = "Other options" if any(hasattr(param, "section") for param in self.params) else "Options"
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) and record[1]:  # the usage has the arguments
                sections.setdefault(getattr(param, "section", rest), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        taking = [p for p in self.params if isinstance(p, click.Option) and not p.is_flag]
        if ctx.resilient_parsing and any({*p.opts} & {*args[-1:]} for p in taking):
            args = [*args, ""]  # to be completed: without a value click would forget the arguments too
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        for word in ctx.args:
            usage = " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])
            name = spelled(word)
            takes = any("--pe" in param.opts and param.expose_value for param in self.params)
            known = takes and (name in names() or name.endswith(".py"))
            hint = f"for this encoding, use: {ctx.command_path} --pe {name}" if known else ""
            raise click.UsageError(f"unexpected argument '{word}'; {hint or f'expected: {usage}'}", ctx)
        if self.callback:
            document, lines, *code = self.callback(given := Given(ctx))
            text.emit(given.as_json, document, lines)
            ctx.exit(*code)


class Subcommands(Group):
    """A group of these."""

    command_class = Command


command = partial(click.command, cls=Command)
