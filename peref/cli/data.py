"""data: the texts there are."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from peref.cli import options, text
from peref.data import STDLIB, catalogue, stdlib
from peref.errors import Misuse


@click.command("data", cls=options.Command)
@options.as_json
def command(as_json: bool) -> None:
    """The texts to train on: those that come with peref, the default first, and this Python's own library."""
    corpora = [*map(asdict, catalogue().values()), of_python()]
    text.emit(as_json, {"corpora": corpora}, corpus_lines(corpora))


def corpus_lines(corpora: list[dict[str, Any]]) -> Iterator[str]:
    """The same for people."""
    for item in corpora:
        yield item["name"]
        yield text.labelled("  text", item["title"])
        if item["bytes"] is not None:
            yield text.labelled("  size", f"{item['bytes']:,} bytes")
            yield text.labelled("  SHA-256", item["sha256"])
        yield text.labelled("  source", item["source"])
        yield text.labelled("  licence", item["licence"]) + "\n"
    yield text.labelled("or", "train --data PATH: any text file, or a folder of them")


def of_python() -> dict[str, Any]:
    """The standard library in the words of the catalogue; the digest is of its files with their paths."""
    about = {"name": STDLIB, "source": "this Python; another version has another text", "licence": "PSF-2.0"}
    try:
        corpus = stdlib()
    except Misuse as error:
        return about | {"title": str(error), "bytes": None, "sha256": None}
    size = corpus.train.size + corpus.valid.size
    return about | {"title": corpus.source, "bytes": size, "sha256": corpus.sha256}
