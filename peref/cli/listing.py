"""list: every encoding there is."""

from collections.abc import Iterator
from typing import Any

from peref import modules
from peref.cli import options, text
from peref.cli.options import Document, Given
from peref.config import Config
from peref.encodings import SHOWN, claims_of, get, names, origin, rotates, shapes, wanted
from peref.encodings import options as options_of
from peref.errors import Misuse
from peref.member import SETTINGS, encodings_of, settings_of
from peref.settings import OF_ROTATIONS, choose


@options.command("list")
@options.encoding_option("--pe=NAME[,NAME...]", "These alone; ./FILE.py is one of your own.")
def command(given: Given) -> Document:
    """List every encoding: hook, formula, options with their defaults, parameters, paper; and the settings of
    layers.

    Those of installed packages stand behind the built-in ones, and say so.
    """
    named = lambda pe: [one for name, _ in choose(pe)["pe"] for one in encodings_of(name)]
    which, refused = from_packages() if given.pe is None else (named(given.pe), {})
    encodings = [describe(name) for name in which]
    of_layers = {name: wanted(kind) for name, kind in SETTINGS.items()}
    data = {"encodings": encodings, "settings": of_layers, "refused": refused}
    return data, encoding_lines(encodings, of_layers, refused)


def encoding_lines(
    encodings: list[dict[str, Any]], of_layers: dict[str, str], refused: dict[str, str]
) -> Iterator[str]:
    """The same for people."""
    for item in encodings:
        known = item["options"].items()
        parts = {
            "formula": item["formula"],
            "options": "; ".join(f"{n}={text.shown(x['default'])} ({x['expects']})" for n, x in known),
            "parameters": ", ".join(f"{n}[{','.join(map(str, s))}]" for n, s in item["parameters"].items()),
            "paper": item["paper"],
            "from": item["from"],
        }
        yield text.block(f"{item['name']} ({item['hook'] or 'no hook'})", parts) + "\n"
    for name, why in refused.items():
        yield text.labelled(name, f"not here: {why}") + "\n"
    yield text.labelled("settings", "; ".join(f"{name} ({kind})" for name, kind in of_layers.items())) + "\n"
    yield text.folded(
        "A setting belongs to a layer; docs/cli.md says what each is. Set one, or an option, with --set "
        "NAME=VALUE; of one member of a cycle with --set INDEX.NAME=VALUE. Shapes are those of a layer at "
        f"length {SHOWN['L']}, width {SHOWN['C']}, {SHOWN['H']} heads."
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
    known = {key: as_option(default, kind) for key, (default, kind) in options_of(encoding).items()}
    if rotates(encoding):  # options of whatever turns, which Config keeps
        kinds = Config.__annotations__
        known |= {key: as_option(getattr(Config, field), kinds[field]) for key, field in OF_ROTATIONS.items()}
    return {
        "name": name,
        "hook": encoding.hook or None,
        "formula": encoding.formula,
        "options": known,
        "settings": list(settings_of(name)),
        "parameters": shapes(encoding),
        "paper": encoding.paper,
        "claims": sorted(claims_of(encoding)),
        "from": (found.package or found.path) if (found := origin(name)) else None,
    }


def as_option(default: Any, kind: Any) -> dict[str, Any]:
    return {"default": default, "expects": wanted(kind)}
