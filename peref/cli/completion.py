"""What a shell offers after TAB: encodings and their options, runs, texts, golden cases, files.

Switched on by what `_PEREF_COMPLETE=bash_source peref` prints (zsh_source, fish_source). These are click's
own scripts, mended where one takes `=` or a comma for the end of what is completed.

Not here: commands (app), options and those with a click.Choice, which click completes by itself.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

import click
from click import shell_completion as shells
from click.shell_completion import CompletionItem

from peref import data, share
from peref.config import OF_FIELDS, Config
from peref.encodings import names
from peref.errors import Misuse, PerefError
from peref.member import kinds
from peref.modules import names_joined
from peref.runs import newest, open_run

RUNS = "runs"  # the folder that runs are in unless --runs says another
Items: TypeAlias = "list[CompletionItem[str]]"  # before click 8.5 it takes no [str]
Completer = Callable[[click.Context, str], Items]  # what is offered for a word that is begun


def beginning(incomplete: str, words: Iterable[str]) -> Items:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def among(*words: str) -> Completer:
    return lambda ctx, incomplete: beginning(incomplete, words)


def files(ctx: click.Context, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="dir")]


def encodings(ctx: click.Context, incomplete: str) -> Items:
    """The last of those with , or + between them, or a file."""
    last = names_joined(incomplete.rpartition(",")[2])[-1]
    before = incomplete.removesuffix(last)
    if "/" in last or last.startswith("."):
        return files(ctx, incomplete)
    return beginning(before + last.lower(), [before + name for name in names()])


def assignments(known: Mapping[str, Any], incomplete: str) -> Items:
    """NAME= of what has an annotation, perhaps behind an index; after the = the words that fit."""
    index, dot, _ = incomplete.partition(".")
    before = f"{index}." if dot and index.isdecimal() else ""
    values = choices if "=" in incomplete else lambda kind: [""]
    offered = [f"{before}{name}={value}" for name in known for value in values(known[name])]
    return beginning(incomplete, offered)


def fields_of_models(ctx: click.Context, incomplete: str) -> Items:
    return assignments(OF_FIELDS, incomplete)


def settings(ctx: click.Context, incomplete: str) -> Items:
    """Options of the encodings on the line, else of those of the run, else of that of train."""
    if named := ctx.params.get("pe") or ctx.params.get("name"):
        members = named.split(",")
    elif {"run", "named"} & ctx.params.keys():
        given = [*(ctx.params.get("named") or ()), *filter(None, [ctx.params.get("run")])]
        run = open_run(given[0]) if given else newest(ctx.params.get("runs") or RUNS)
        members = [name for name, _ in run.record["config"]["pe"]]
    else:
        members = [name for name, _ in Config.pe]
    known = {option: kind for name in members for option, kind in kinds(name).items()}
    return assignments(known, incomplete)


def choices(kind: Any) -> list[str]:
    """The words among what an annotation allows."""
    if get_origin(kind) is Literal:
        return list(map(str, get_args(kind)))
    words = {bool: ["true", "false"], type(None): ["none"]}
    return words[kind] if kind in words else [word for part in get_args(kind) for word in choices(part)]


def runs(ctx: click.Context, incomplete: str) -> Items:
    """Run folders, the newest first, in the folder that is begun or in that of the runs; else any folder."""
    place = Path(incomplete).parent if "/" in incomplete else Path(RUNS)
    found = sorted((str(path.parent) for path in place.glob("*/run.json")), reverse=True)
    return beginning(incomplete, found) or folders(ctx, incomplete)


def corpora(ctx: click.Context, incomplete: str) -> Items:
    """Those with a name, and files."""
    return files(ctx, incomplete) + beginning(incomplete, data.known())


def entries(ctx: click.Context) -> Any:
    """The cases of the golden files of the command."""
    from peref.golden.spec.book import Book  # here, for most commands need none of it

    return Book(Path(ctx.params.get("folder") or share.folder("golden"))).entries


def cases(ctx: click.Context, incomplete: str) -> Items:
    return beginning(incomplete, entries(ctx))


def things(ctx: click.Context, incomplete: str) -> Items:
    """ENCODING.LEVEL"""
    return beginning(incomplete.lower(), dict.fromkeys(case.partition("/")[0] for case in entries(ctx)))


def groups(ctx: click.Context, incomplete: str) -> Items:
    return beginning(incomplete, sorted({entry.group for entry in entries(ctx).values()}))


def flags(ctx: click.Context, incomplete: str) -> Items:
    from peref.golden.spec.book import known_flags

    return beginning(incomplete, known_flags())


@shells.add_completion_class
class Bash(shells.BashComplete):
    """Its readline ends a word at = and at :, and wants what comes after; click wants the whole."""

    source_template = shells.BashComplete.source_template.replace(
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
        self.typed = words[-1]
        return words[:-1], self.typed

    def format_completion(self, item: "CompletionItem[str]") -> str:
        begun = self.typed[: max(self.typed.rfind("="), self.typed.rfind(":")) + 1]
        return f"{item.type},{item.value.removeprefix(begun)}"


@shells.add_completion_class
class Zsh(shells.ZshComplete):
    """No space after NAME=."""

    source_template = shells.ZshComplete.source_template.replace(
        'completions+=("$key")', '[[ "$key" == *= ]] && compadd -U -S "" -- "$key" || completions+=("$key")'
    )


@shells.add_completion_class
class Fish(shells.FishComplete):
    """Only the first comma parts the kind of a word from the word."""

    source_template = shells.FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def answer(group: click.Group, instruction: str) -> int:
    """What a shell asks for: its script (bash_source), or words (bash_complete), none where a file cannot
    be read.
    """
    failed = 0
    with contextlib.suppress(PerefError, OSError):
        failed = shells.shell_complete(group, {}, "peref", share.COMPLETE, instruction)
    if failed:
        raise Misuse(f"{share.COMPLETE} is {instruction!r}; expected bash_source, zsh_source or fish_source")
    return 0
