"""data: the texts there are."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from peref.cli import options, text
from peref.cli.options import Document, Given
from peref.data import STDLIB, catalogue, stdlib
from peref.errors import Misuse


@options.command("data")
def command(given: Given) -> Document:
    """The texts to train on: those that come with peref, the default first, and this Python's own library."""
    corpora = [*map(asdict, catalogue().values()), of_python()]
    return {"corpora": corpora}, corpus_lines(corpora)


def corpus_lines(corpora: list[dict[str, Any]]) -> Iterator[str]:
    """The same for people."""
    for item in corpora:
        size = item["bytes"] and f"{item['bytes']:,} bytes"
        parts = {"text": item["title"], "size": size, "SHA-256": item["sha256"]}
        parts |= {key: item[key] for key in ("source", "licence")}
        yield text.block(item["name"], parts) + "\n"
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
