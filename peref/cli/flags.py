"""explain: what a flag of the golden files means."""

from peref import share
from peref.cli import completion, options, text
from peref.cli.options import Document, Given
from peref.errors import Misuse, did_you_mean
from peref.golden.spec.book import known_flags


@options.command("explain")
@options.argument("flag", options.Kind("FLAG|PREFIX", completion.flags), required=False)
def command(given: Given) -> Document:
    """Explain the trap that FLAG stands for, or all whose names begin with PREFIX: what it is, its effect,
    the remedy, where it was seen.

    Without FLAG, list all flags.
    """
    flags = known_flags()
    if given.flag is None:
        return {"flags": flags}, {f"{name}  ": str(about["title"]) for name, about in flags.items()}
    flag = options.spelled_as(given.flag, flags)
    prefix = flag.lower().removesuffix("*")
    found = {name: about for name, about in flags.items() if name.startswith(prefix)}
    found = {flag: flags[flag]} if flag in flags else found
    if not found:
        near = did_you_mean(flag, flags, f"see: {share.program()} explain")
        raise Misuse(f"there is no flag '{flag}'{near}")
    data = {"flag": flag, **flags[flag]} if flag in flags else {"flags": found}
    return data, ["\n\n".join(explained(name, about) for name, about in found.items())]


def explained(name: str, about: dict) -> str:
    """A flag in five lines."""
    parts = {"what": about["title"], "effect": about["effect"], "remedy": about["fix"]}
    parts |= {"seen in": ", ".join(about["refs"])}
    return text.block(f"{name} ({str(about['kind']).lower()})", parts)
