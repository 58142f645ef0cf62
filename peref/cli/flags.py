"""explain: what a flag of the golden files means."""

import click

from peref import share
from peref.cli import completion, options, text
from peref.errors import Misuse, did_you_mean
from peref.golden.spec.book import known_flags


@click.command("explain", cls=options.Command)
@click.argument("flag", required=False, metavar="[FLAG]", shell_complete=completion.flags)
@options.as_json
def command(flag: str | None, as_json: bool) -> None:
    """Explain the trap that FLAG stands for: what it is, its effect, the remedy, where it was seen.

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
    if flag not in flags:
        raise Misuse(
            f"there is no flag '{flag}'{did_you_mean(flag, flags, f'see: {share.program()} explain')}"
        )
    about = flags[flag]
    if as_json:
        print(text.document({"flag": flag, **about}))
        return
    print(f"{flag} ({str(about['kind']).lower()})")
    refs = about["refs"]
    assert isinstance(refs, list)
    for label, words in (
        ("what", about["title"]),
        ("effect", about["effect"]),
        ("remedy", about["fix"]),
        ("seen in", ", ".join(refs)),
    ):
        if words:
            print(text.labelled(f"  {label}", str(words)))
