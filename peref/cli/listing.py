"""list: every encoding there is."""

from typing import Any

import click

from peref import modules
from peref.cli import options, text
from peref.config import Config
from peref.encodings import SHOWN, Encoding, get, names, origin, shapes, wanted
from peref.encodings import options as options_of
from peref.errors import Misuse
from peref.member import encodings_of
from peref.settings import OF_ROTATIONS, choose


@click.command("list", cls=options.Command)
@options.encoding_option("These alone; ./FILE.py is one of your own.", metavar="NAME[,NAME...]")
@options.as_json
def command(pe: str | None, as_json: bool) -> None:
    """List every encoding: hook, formula, options with their defaults, parameters, paper.

    Those of installed packages stand behind the built-in ones, and say so.
    """
    named = lambda pe: [one for name, _ in choose(pe)["pe"] for one in encodings_of(name)]
    which, refused = from_packages() if pe is None else (named(pe), {})
    encodings = [describe(name) for name in which]
    if as_json:
        print(text.document({"encodings": encodings, "refused": refused}))
        return
    for item in encodings:
        print(f"{item['name']} ({item['hook'] or 'no hook'})")
        text.print_labelled("  formula", item["formula"])
        if item["options"]:
            text.print_labelled(
                "  options", "; ".join(option(name, o) for name, o in item["options"].items())
            )
        if item["parameters"]:
            text.print_labelled(
                "  parameters",
                ", ".join(
                    f"{name}[{','.join(map(str, shape))}]" for name, shape in item["parameters"].items()
                ),
            )
        print(text.labelled("  paper", item["paper"]) + ("" if item["from"] else "\n"))
        if item["from"]:
            print(text.labelled("  from", item["from"]) + "\n")
    for name, why in refused.items():
        print(text.labelled(f"{name}", f"not here: {why}") + "\n")
    print(
        f"Shapes are those of a layer at length {SHOWN['L']}, width {SHOWN['C']}, {SHOWN['H']} heads. Set an "
        "option with --set NAME=VALUE."
    )


def from_packages() -> tuple[list[str], dict[str, str]]:
    """Every name, those of installed packages last; of the latter that cannot be used: name -> why."""
    found, refused = names(), {}
    for name in sorted({entry.name for entry in modules.offered()}):
        try:
            if name in names():
                what = f"'{name}', which is the name of a built-in encoding"
                raise Misuse(f"{modules.package_of(name)} offers {what}")
            get(name)
            found.append(name)
        except Misuse as error:
            refused[name] = str(error)
    return found, refused


def describe(name: str) -> dict[str, Any]:
    """One encoding, as data."""
    encoding = get(name)
    known = {
        key: {"default": default, "expects": wanted(kind)}
        for key, (default, kind) in options_of(encoding).items()
    }
    return {
        "name": name,
        "hook": encoding.hook or None,
        "formula": encoding.formula,
        "options": known | options_of_rotations(encoding),
        "parameters": shapes(encoding),
        "paper": encoding.paper,
        "claims": sorted(encoding.claims),
        "from": (found.package or found.path) if (found := origin(name)) else None,
    }


def options_of_rotations(encoding: Encoding) -> dict[str, Any]:
    """Options that every rotation has and Config keeps."""
    if not encoding.rotate:
        return {}
    kinds = Config.__annotations__
    return {
        key: {"default": getattr(Config, field), "expects": wanted(kinds[field])}
        for key, field in OF_ROTATIONS.items()
    }


def option(name: str, about: dict[str, Any]) -> str:
    return f"{name}={text.shown(about['default'])} ({about['expects']})"
