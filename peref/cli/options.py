"""Options that several commands have, and options whose defaults are those of a dataclass."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from peref.backends import EXPERIMENTAL, KNOWN
from peref.config import Config
from peref.data import DEFAULT
from peref.recipe import Recipe

ON_A_GPU = f"cupy is NumPy's text on a GPU; cuda has kernels of its own ({EXPERIMENTAL})."
RUNS = "runs"
NEWEST = "\0newest"  # --resume without a value: what no argument can be


class Size(click.ParamType):
    """A whole number from 1 on; checked here and not only in Config, so that the message names the option and not the letter."""

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


SIZE = Size()
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else there.")
runs_folder = click.option("--runs", type=Folder(), help=f"Where the run folders are.  [default: {RUNS}]")
data_option = click.option(
    "--data",
    metavar="NAME|PATH",
    help=f"A name from `data`, a text file or a folder of them.  [default: {DEFAULT}]",
)
set_option = click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="An option of the encoding; see `list`.")


def computing(command: Callable) -> Callable:
    """What computes, and how: `backend`, `threads`, `every_tile`."""
    for option in (
        click.option("--every-tile", is_flag=True, help="Leave out no tile of attention, also where every weight is below a rounding."),
        click.option("--threads", type=SIZE, help="How many threads the numba backend computes with.  [default: all idle cores]"),
        click.option(
            "--backend",
            metavar="NAME",
            default="auto",
            show_default=True,
            help=f"What computes: auto, {', '.join(KNOWN)}. {ON_A_GPU}",
        ),
    ):
        command = option(command)
    return command


RECORDS: dict[str, type] = {"model": Config, "recipe": Recipe}


class Setting(click.Option):
    """An option for one field of Config or Recipe, under the name `<of>_<field>`; unset it is None, and the field's own default counts."""

    def __init__(self, declarations: list[str], of: str, field: str, said: str = "", **rest: Any) -> None:
        self.of, self.field, self.said = of, field, said
        super().__init__([*declarations, f"{of}_{field}"], default=None, **rest)

    def get_help_extra(self, ctx: click.Context) -> Any:
        default = getattr(RECORDS[self.of], self.field)
        words = {"None": "", "True": "yes", "False": "no"}
        text = self.said or words.get(str(default), str(default))
        return {"default": text} if text else {}


def setting(declarations: str, of: str, field: str, help: str, **rest: Any) -> Callable:
    """Decorates a command with a Setting."""
    return click.option(*declarations.split(), cls=Setting, of=of, field=field, help=help, **rest)


def picked(of: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Config or Recipe that somebody set."""
    return {name.removeprefix(f"{of}_"): v for name, v in given.items() if name.startswith(f"{of}_") and v is not None}
