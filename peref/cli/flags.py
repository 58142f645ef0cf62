"""explain: what a flag of the golden files means."""

import click

from peref import share
from peref.cli import completion, options, text
from peref.errors import Misuse, did_you_mean
from peref.golden.spec.book import known_flags


@click.command("explain", cls=options.Command)
@click.argument("flag", required=False, metavar="[FLAG|PREFIX]", shell_complete=completion.flags)
@options.as_json
def command(flag: str | None, as_json: bool) -> None:
    """Explain the trap that FLAG stands for, or all whose names begin with PREFIX: what it is, its effect,
    the remedy, where it was seen.

    Without FLAG, list all flags.
    """
    flags = known_flags()
    if flag is None:
        titles = (text.labelled(f"{name}  ", str(about["title"])) for name, about in flags.items())
        text.emit(as_json, {"flags": flags}, titles)
        return
    flag = options.spelled_as(flag, flags)
    found = {flag: flags[flag]} if flag in flags else {n: f for n, f in flags.items() if begins(n, flag)}
    if not found:
        near = did_you_mean(flag, flags, f"see: {share.program()} explain")
        raise Misuse(f"there is no flag '{flag}'{near}")
    data = {"flag": flag, **flags[flag]} if flag in flags else {"flags": found}
    text.emit(as_json, data, ["\n\n".join(explained(name, about) for name, about in found.items())])


def begins(name: str, prefix: str) -> bool:
    return name.startswith(prefix.lower().removesuffix("*"))


def explained(name: str, about: dict) -> str:
    """A flag in five lines."""
    parts = {"what": "title", "effect": "effect", "remedy": "fix"}
    lines = [text.labelled(f"  {label}", str(about[key])) for label, key in parts.items()]
    refs = [text.labelled("  seen in", ", ".join(about["refs"]))] if about["refs"] else []
    return "\n".join([f"{name} ({str(about['kind']).lower()})", *lines, *refs])
