"""What a shell offers after TAB: encodings and their options, runs, texts, golden cases, files.

Switched on by what `_PEREF_COMPLETE=bash_source peref` prints (zsh_source, fish_source). These are click's
own scripts, mended where one takes `=` or a comma for the end of what is completed.

Not here: commands (app), options and those with a click.Choice, which click completes by itself.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
)

from peref import data, share
from peref.config import Config
from peref.errors import Misuse, PerefError
from peref.member import kinds
from peref.runs import newest, open_run

RUNS = "runs"  # the folder that runs are in unless --runs says another
Items = list[CompletionItem[str]]


def beginning(incomplete: str, words: Iterable[str]) -> Items:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="file")]


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """NAME= of the options that the encodings have, perhaps behind an index; after the = the words that
    fit.
    """
    index, dot, _ = incomplete.partition(".")
    before = f"{index}." if dot and index.isdecimal() else ""
    values = choices if "=" in incomplete else lambda kind: [""]
    known = known_options(ctx)
    return beginning(
        incomplete, [f"{before}{name}={value}" for name in known for value in values(known[name])]
    )


def fields_of_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """NAME= of the fields of a model; after the = the words that fit."""
    values = choices if "=" in incomplete else lambda kind: [""]
    known = {name: kind for name, kind in get_type_hints(Config).items() if name != "pe"}
    return beginning(incomplete, [f"{name}={value}" for name in known for value in values(known[name])])


def known_options(ctx: click.Context) -> dict[str, Any]:
    """Option -> annotation, of the encodings on the line, else those of the run, else that of train."""
    if named := ctx.params.get("pe") or ctx.params.get("name"):
        members = named.split(",")
    elif {"run", "named"} & ctx.params.keys():
        given = [*(ctx.params.get("named") or ()), *filter(None, [ctx.params.get("run")])]
        run = open_run(given[0]) if given else newest(ctx.params.get("runs") or RUNS)
        members = [name for name, _ in run.record["config"]["pe"]]
    else:
        members = [name for name, _ in Config.pe]
    found: dict[str, Any] = {}
    for name in members:
        found |= kinds(name)
    return found


def choices(kind: Any) -> list[str]:
    """The words among what an annotation allows."""
    if get_origin(kind) is Literal:
        return list(map(str, get_args(kind)))
    words = {bool: ["true", "false"], type(None): ["none"]}
    return words[kind] if kind in words else [word for part in get_args(kind) for word in choices(part)]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Run folders, the newest first, in the folder that is begun or in that of the runs; else any folder."""
    place = Path(incomplete).parent if "/" in incomplete else Path(RUNS)
    found = sorted((str(path.parent) for path in place.glob("*/run.json")), reverse=True)
    return beginning(incomplete, found) or [CompletionItem(incomplete, type="dir")]


def complete_text(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Those with a name, and files."""
    return complete_file(ctx, param, incomplete) + beginning(incomplete, data.known())


def cases(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return beginning(incomplete, book(ctx).entries)


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    return beginning(incomplete, sorted({entry.group for entry in book(ctx).entries.values()}))


def book(ctx: click.Context) -> Any:
    """The golden files of the command."""
    from peref.golden.spec.book import Book  # here, for most commands need none of it

    return Book(Path(ctx.params.get("folder") or share.folder("golden")))


def flags(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    from peref.golden.spec.book import known_flags

    return beginning(incomplete, known_flags())


@add_completion_class
class Bash(BashComplete):
    """Its readline ends a word at = and at :, and wants what comes after; click wants the whole."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete]:
            if words and (words[-1].endswith(("=", ":")) or (word and not word.strip("=:"))):
                words[-1] += word
            else:
                words.append(word)
        self.whole = words[-1]
        return words[:-1], self.whole

    def format_completion(self, item: CompletionItem[str]) -> str:
        begun = self.whole[: max(self.whole.rfind("="), self.whole.rfind(":")) + 1]
        return f"{item.type},{item.value.removeprefix(begun)}"


@add_completion_class
class Zsh(ZshComplete):
    """No space after NAME=."""

    source_template = ZshComplete.source_template.replace(
        'completions+=("$key")', '[[ "$key" == *= ]] && compadd -U -S "" -- "$key" || completions+=("$key")'
    )


@add_completion_class
class Fish(FishComplete):
    """Only the first comma parts the kind of a word from the word."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def answer(group: click.Group, instruction: str) -> int:
    """What a shell asks for: its script (bash_source), or words (bash_complete), none where a file cannot
    be read.
    """
    failed = 0
    with contextlib.suppress(PerefError, OSError):
        failed = shell_complete(group, {}, "peref", share.COMPLETE, instruction)
    if failed:
        raise Misuse(f"{share.COMPLETE} is {instruction!r}; expected bash_source, zsh_source or fish_source")
    return 0
