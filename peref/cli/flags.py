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
        print(
            text.document({"flags": flags})
            if as_json
            else "\n".join(text.labelled(f"{name}  ", str(f["title"])) for name, f in flags.items())
        )
        return
    flag = options.spelled_as(flag, flags)
    found = {flag: flags[flag]} if flag in flags else {n: f for n, f in flags.items() if begins(n, flag)}
    if not found:
        raise Misuse(
            f"there is no flag '{flag}'{did_you_mean(flag, flags, f'see: {share.program()} explain')}"
        )
    if as_json:
        print(text.document({"flag": flag, **flags[flag]} if flag in flags else {"flags": found}))
    else:
        print("\n\n".join(explained(name, about) for name, about in found.items()))


def begins(name: str, prefix: str) -> bool:
    return name.startswith(prefix.lower().removesuffix("*"))


def explained(name: str, about: dict) -> str:
    """A flag in five lines."""
    parts = {"what": "title", "effect": "effect", "remedy": "fix"}
    lines = [text.labelled(f"  {label}", str(about[key])) for label, key in parts.items()]
    refs = [text.labelled("  seen in", ", ".join(about["refs"]))] if about["refs"] else []
    return "\n".join([f"{name} ({str(about['kind']).lower()})", *lines, *refs])
