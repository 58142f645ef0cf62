"""list: every encoding there is, and which work each backend does itself."""

from typing import Any

import click

from peref import backends
from peref.cli import options, text
from peref.config import Config
from peref.encodings import Encoding, get, names, wanted
from peref.encodings import options as options_of
from peref.errors import PerefError
from peref.rng import generator
from peref.settings import OF_ROTATIONS


@click.command("list")
@options.as_json
def command(as_json: bool) -> None:
    """Every encoding: hook, formula, options with defaults, parameters, paper; and what each backend does itself."""
    encodings, works = [describe(name) for name in names()], [fields_of(name) for name in backends.NAMES]
    if as_json:
        print(text.document({"encodings": encodings, "backends": works}))
        return
    cfg = Config()
    for item in encodings:
        print(f"{item['name']} ({item['hook'] or 'no hook'})")
        print(text.labelled("  formula", item["formula"]))
        if item["options"]:
            print(text.labelled("  options", "; ".join(option(name, o) for name, o in item["options"].items())))
        if item["parameters"]:
            print(text.labelled("  parameters", ", ".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in item["parameters"].items())))
        print(text.labelled("  paper", item["paper"]) + "\n")
    print(f"Shapes are those of a layer at length {cfg.L}, width {cfg.C}, {cfg.H} heads. Set an option with --set NAME=VALUE.\n")
    for item in works:
        what = ", ".join(item["fields"]) or "every operation is the plain one"
        print(text.labelled(f"{item['name']}", what if item["available"] else f"not here: {item['why']}"))


def describe(name: str) -> dict[str, Any]:
    """One encoding, as data."""
    encoding, cfg = get(name), Config(pe=((name, {}),))
    known = {key: {"default": default, "expects": wanted(kind)} for key, (default, kind) in options_of(encoding).items()}
    return {
        "name": name,
        "hook": encoding.hook or None,
        "formula": encoding.formula,
        "options": known | options_of_rotations(encoding),
        "parameters": {key: list(a.shape) for key, a in cfg.encoding(cfg.layers - 1).init(generator(0, "pe", 0)).items()},
        "paper": encoding.paper,
        "claims": sorted(encoding.claims),
    }


def options_of_rotations(encoding: Encoding) -> dict[str, Any]:
    """Options that every rotation has and Config keeps."""
    if not encoding.rotate:
        return {}
    kinds = Config.__annotations__
    return {key: {"default": getattr(Config, field), "expects": wanted(kinds[field])} for key, field in OF_ROTATIONS.items()}


def option(name: str, about: dict[str, Any]) -> str:
    return f"{name}={text.shown(about['default'])} ({about['expects']})"


def fields_of(name: str) -> dict[str, Any]:
    """Which fields a backend fills, or why it is not here."""
    try:
        be = backends.get(name)
        return {"name": name, "available": True, "fields": be.filled(), "plain": be.plain()}
    except PerefError as error:
        return {"name": name, "available": False, "fields": [], "plain": [], "why": str(error)}
