"""Options that several commands have, and options whose defaults are those of a dataclass."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce, update_wrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import click
from click.shell_completion import CompletionItem

from peref import share
from peref.backends import EXPERIMENTAL, KNOWN
from peref.cli import completion
from peref.cli.completion import RUNS, Items, beginning
from peref.config import Config
from peref.data import known
from peref.encodings import names, spelled
from peref.recipe import Recipe
from peref.tasks import TASKS

ON_A_GPU = f"cupy is NumPy's text on a GPU; cuda has kernels of its own ({EXPERIMENTAL})."
NEWEST = "\0newest"  # --resume without a value: what no argument can be


class Size(click.ParamType):
    """A whole number from 1 on; checked here and not only in Config, so that the message names the option
    and not the letter.
    """

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        with contextlib.suppress(ValueError):
            if (number := int(value)) >= 1:
                return number
        self.fail(f"{value!r} is not a whole number of at least 1", param, ctx)


class Folder(click.ParamType):
    """A path that is not empty: Path("") would be the folder one is in."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value or self.fail("it is empty; expected a folder", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        return [CompletionItem(incomplete, type="dir")]


class Encodings(click.ParamType):
    """A name, or several with commas between them, in upper or lower case."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return ",".join(spelled(name.strip()) for name in value.split(","))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        before, comma, last = incomplete.rpartition(",")
        if "/" in last or last.startswith("."):
            return [CompletionItem(incomplete, type="file")]
        before += comma
        return beginning(before + last.lower(), [before + name for name in names()])


class Command(click.Command):
    """Its options may stand in sections; an argument that nobody expects is perhaps an encoding without
    --pe.
    """

    allow_extra_args = True  # invoke() refuses them

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        rest = "Other options" if any(hasattr(param, "section") for param in self.params) else "Options"
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
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
            takes = any("--pe" in param.opts for param in self.params) and spelled(word) in names()
            hint = f"for this encoding, use: {ctx.command_path} --pe {spelled(word)}" if takes else ""
            raise click.UsageError(f"unexpected argument '{word}'; {hint or f'expected: {usage}'}", ctx)
        return super().invoke(ctx)


def spelled_as(name: str, known: Iterable[str]) -> str:
    """The one of these that is `name` but for the case of its letters, else `name`."""
    known = list(known)
    return name if name in known else next((one for one in known if one.lower() == name.lower()), name)


def one_of(known: Iterable[str]) -> Callable[..., Any]:
    """A callback for an option whose value is one of these names, in upper or lower case."""
    return lambda ctx, param, name: name and spelled_as(name, known)


def lowered(ctx: click.Context, param: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """A callback for patterns of cases, groups and flags, which have no capitals."""
    return tuple(pattern.lower() for pattern in patterns)


def text_named(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """A callback for --data: a path that is there is that path."""
    return spelled_as(name, known()) if name and not Path(name).exists() else name


def section(title: str, *options: Callable) -> Callable:
    """Decorates a Command with options that stand under a title in its help."""

    def decorate(function: Any) -> Callable:
        before = len(getattr(function, "__click_params__", ()))
        all_of(*options)(function)
        for param in function.__click_params__[before:]:
            param.section = title
        return function

    return decorate


def together(function: Callable) -> Callable:
    """Decorates a command that takes its options as attributes of one object, behind the context if any."""
    return update_wrapper(lambda *ctx, **given: function(*ctx, SimpleNamespace(**given)), function)


def patterns(name: str, dest: str, help: str, **more: Any) -> Callable:
    """An option that may be said several times, without capitals."""
    settings: dict[str, Any] = {"metavar": "PATTERN", "callback": lowered} | more
    return click.option(name, dest, multiple=True, help=help, **settings)


def flag(*names_and_help: str) -> Callable:
    """An option without a value: its names, then its help."""
    return click.option(*names_and_help[:-1], is_flag=True, help=names_and_help[-1])


def size_option(*names_and_help: str) -> Callable:
    """An option for a Size: its names, then its help."""
    return click.option(*names_and_help[:-1], type=SIZE, help=names_and_help[-1])


def file_option(*names: str, help: str, metavar: str = "FILE", **more: Any) -> Callable:
    return click.option(*names, metavar=metavar, shell_complete=completion.complete_file, help=help, **more)


def encoding_option(
    help: str, dest: str = "pe", metavar: str = "NAME[+NAME][,NAME...]", option: str = "--pe", **more: Any
) -> Callable:
    return click.option(option, dest, type=ENCODINGS, metavar=metavar, help=help, **more)


def data_option(help: str) -> Callable:
    how: dict[str, Any] = {"callback": text_named, "shell_complete": completion.complete_text}
    return click.option("--data", metavar="NAME|PATH", **how, help=help)


def golden_folder(help: str) -> Callable:
    return click.option("--golden", "folder", type=Folder(), help=help)


def least_class(help: str) -> Callable:
    grades = click.Choice(["A", "B", "C"])
    return click.option("--class", "limit", type=grades, default="C", help=help)


def most_shown(help: str) -> Callable:
    return click.option("--show", "most", type=SIZE, default=5, help=help)


SIZE = Size()
ENCODINGS = Encodings()
as_json = flag("--json", "as_json", "Print one JSON document on stdout, and nothing else there.")
runs_folder = click.option(
    "--runs", type=Folder(), help=f"The folder that holds the runs.  [default: {RUNS}]"
)
pe_option = encoding_option(
    "Use the same weights under another encoding; of a run with an encoding of your own, its file."
)
set_option = click.option(
    "--set",
    "settings",
    metavar="[INDEX.][ENCODING.]NAME=VALUE",
    multiple=True,
    shell_complete=completion.settings,
    help=f"An option of the encoding, or a setting of its layers; `{share.program()} list` shows them.",
)


def all_of(*options: Callable) -> Callable:
    """Decorates a command with these options, in this order."""
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def name_option(option: str, known: Iterable[str], help: str, **more: Any) -> Callable:
    """An option whose value is one of these names, in upper or lower case."""
    complete = lambda ctx, param, incomplete: beginning(incomplete, known)
    return click.option(
        option, metavar="NAME", callback=one_of(known), shell_complete=complete, help=help, **more
    )


# what computes, and how: `backend`, `threads`, `every_tile`
computing = all_of(
    name_option(
        "--backend",
        ("auto", *KNOWN),
        f"What computes: auto, {', '.join(KNOWN)}. {ON_A_GPU}",
        **{"default": "auto"},
    ),
    size_option(
        "--threads", "Threads of numba, or of NumPy's BLAS.  [default: all idle cores; what the BLAS takes]"
    ),
    flag("--every-tile", "Compute every tile of attention, even one whose weights all round to zero."),
)


RECORDS: dict[str, type] = {"model": Config, "recipe": Recipe}


class Setting(click.Option):
    """An option for one field of Config or Recipe, under the name `<of>_<field>` and of its kind; unset it
    is None, and the field's own default counts.
    """

    def __init__(self, declarations: list[str], of: str, field: str, said: str = "", **rest: Any) -> None:
        self.of, self.field, self.said = of, field, said
        hint = get_type_hints(RECORDS[of])[field]
        number = next((kind for kind in (float, int) if kind in (hint, *get_args(hint))), None)
        if number:
            rest["type"] = SIZE if of == "model" and number is int else number
        elif hint is not bool:
            rest.setdefault("metavar", "NAME")
        super().__init__([*declarations, f"{of}_{field}"], default=None, **rest)

    def get_help_extra(self, ctx: click.Context) -> Any:
        default = getattr(RECORDS[self.of], self.field)
        words = {"None": "", "True": "yes", "False": "no"}
        text = self.said or words.get(str(default), str(default))
        return {"default": text} if text else {}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Items:
        return beginning(incomplete, completion.choices(get_type_hints(RECORDS[self.of])[self.field]))


def setting(of: str, declarations: str, field: str, help: str, **rest: Any) -> Callable:
    """Decorates a command with a Setting."""
    return click.option(*declarations.split(), cls=Setting, of=of, field=field, help=help, **rest)


of_model, of_recipe = partial(setting, "model"), partial(setting, "recipe")


def picked(of: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Config or Recipe that somebody set."""
    mine = {name: v for name, v in given.items() if name.startswith(f"{of}_") and v is not None}
    return {name.removeprefix(f"{of}_"): v for name, v in mine.items()}


def task_option(help: str) -> Callable:
    return name_option("--task", TASKS, help)


# that commands on a run have: another encoding for it, and what computes
of_a_run = all_of(pe_option, set_option, runs_folder, computing, as_json)
