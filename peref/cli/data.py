"""data: the texts there are, and `data get` to fetch one."""

from typing import Any

import click

from peref import download, share
from peref.cli import options, text
from peref.cli.progress import Progress
from peref.data import stdlib
from peref.errors import Misuse


@click.group("data", invoke_without_command=True)
@options.as_json
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """The texts to train on: which are here. `data get NAME` fetches one."""
    if ctx.invoked_subcommand:
        return
    corpora, folder = [of_python(), *download.present()], share.downloads()
    if as_json:
        print(text.document({"corpora": corpora, "folder": str(folder)}))
        return
    for item in corpora:
        print(item["name"])
        if item["bytes"] is not None:
            print(text.labelled("  size", text.size(item["bytes"])))
        print(text.labelled("  here", item["path"] or item.get("why") or f"no; fetch it with: {text.command('data', 'get', item['name'])}"))
        for key in ("citation", "licence", "address"):
            if item[key]:
                print(text.labelled(f"  {key}", item[key]))
        print()
    print(text.labelled("folder", f"{folder}, where fetched texts go"))
    print(text.labelled("or", "train --data PATH: any text file, or a folder of them"))


def of_python() -> dict[str, Any]:
    """The default text in the words of the catalogue."""
    empty = dict.fromkeys(("bytes", "citation", "address", "sha256", "path"))
    about: dict[str, Any] = {"name": "stdlib", "licence": "PSF-2.0", **empty}
    try:
        corpus = stdlib()
    except Misuse as error:
        return about | {"why": str(error)}
    return about | {"bytes": corpus.train.size + corpus.valid.size, "sha256": corpus.sha256, "path": corpus.source}


@command.command("get")
@click.argument("name")
@options.as_json
@click.pass_context
def get(ctx: click.Context, name: str, as_json: bool) -> None:
    """Fetch the text NAME, verify it, and print where it is."""
    as_json = as_json or (ctx.parent is not None and ctx.parent.params["as_json"])
    bar: Progress | None = None

    def progress(done: int, total: int) -> None:
        nonlocal bar
        bar = bar or Progress(total, "bytes", start=done, scaled=True, plain=as_json)
        bar.to(done)

    try:
        path = download.get(name, progress=progress)
    finally:
        if bar:
            bar.__exit__()
    if as_json:
        print(text.document({"name": name, "path": str(path)}))
    else:
        print(path)
