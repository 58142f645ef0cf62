"""A comparison as a table, sentences, CSV, panels and a page, all from the document that `compare` stores.

Not here: how it is measured (comparison.py), how pictures are drawn (pictures.py).
"""

import base64
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from peref.lab.paired import Estimate, estimate
from peref.lab.panels import Curve, Image, Panel
from peref.page import html_page, html_table, td

Document = dict[str, Any]
TOGETHER = 2  # windows that a bootstrap draws at a time: neighbours are correlated
BESIDE_LENGTHS = ("encoding", "against the best", "far context", "memory")


@dataclass(frozen=True)
class Told:
    """What is said of a comparison."""

    title: str
    head: list[str]
    rows: list[list[str]]
    sentences: list[str]
    csv: str
    panels: list[Panel | Image]


def labels_of(found: Document) -> list[str]:
    return list(dict.fromkeys(entry["label"] for entry in found["entries"]))


def cells_of(found: Document, label: str, length: str) -> np.ndarray:
    """Bits per byte of each cell of the text, [seeds,cells]; `length` may also be "cut"."""
    mine = [entry for entry in found["entries"] if entry["label"] == label]
    nats = [entry["cut"] if length == "cut" else entry["cells"][length] for entry in mine]
    return np.array(nats) / (found["lengths"][0] * math.log(2))


def by_length(found: Document, label: str) -> np.ndarray:
    """Bits per byte, [seeds,lengths]."""
    return np.stack([cells_of(found, label, str(n)).mean(1) for n in found["lengths"]], axis=1)


def best_of(found: Document) -> str:
    """The label with the fewest bits at the longest length."""
    return min(labels_of(found), key=lambda label: by_length(found, label)[:, -1].mean())


def against(found: Document, label: str, other: str) -> Estimate:
    """Bits per byte more than `other` at the longest length, at the same places of the text; the mean of the
    seeds, each beside the same one.
    """
    longest = str(found["lengths"][-1])
    more = cells_of(found, label, longest) - cells_of(found, other, longest)
    return estimate(more.mean(0), TOGETHER * window_of(found))


def far_context(found: Document, label: str) -> Estimate | None:
    """Bits per byte that the context farther back than the length trained for saves at the longest length:
    where there is such context, the loss with it cut off less that with all of it. None where the longest
    length is the one trained for.
    """
    cell, longest, L = found["lengths"][0], found["lengths"][-1], found["L"]
    saved = (cells_of(found, label, "cut") - cells_of(found, label, str(longest))).mean(0)
    far = saved.reshape(-1, window_of(found))[:, L // cell :]
    return estimate(far.ravel(), TOGETHER * far.shape[1]) if far.size else None


def window_of(found: Document) -> int:
    """Cells in a window of the longest length."""
    return found["lengths"][-1] // found["lengths"][0]


def rows_of_table(found: Document) -> Iterator[list[str]]:
    """The table, under BESIDE_LENGTHS with the lengths behind its first word."""
    best = best_of(found)
    for label in labels_of(found):
        bits = [f"{bit:.3f}" for bit in by_length(found, label).mean(0)]
        more = "" if label == best else interval(against(found, label, best))
        far = far_context(found, label)
        yield [label, *bits, more, interval(far) if far else "", kept_by(found, label)]


def kept_by(found: Document, label: str) -> str:
    """What decoding keeps of a token, and whatever their number."""
    memory = next(entry["memory"] for entry in found["entries"] if entry["label"] == label)
    return f"{memory['token']:,.0f} B/token" + (f" + {memory['state']:,.0f} B" if memory["state"] else "")


def head(found: Document) -> list[str]:
    return [BESIDE_LENGTHS[0], *(f"{n:,}" for n in found["lengths"]), *BESIDE_LENGTHS[1:]]


def interval(x: Estimate) -> str:
    return f"{x.mean:+.3f} ({x.low:+.3f} to {x.high:+.3f})"


def sentences(found: Document) -> Iterator[str]:
    """What the numbers allow to say, and how they came about."""
    best, longest, count = best_of(found), found["lengths"][-1], len(found["seeds"])
    for label in labels_of(found):
        if label != best:
            more = against(found, label, best)
            wide = (more.high - more.low) / 2
            said = f"{more.mean:.3f} +- {wide:.3f} bits/byte better than {label} at {longest:,}"
            yield (
                f"{best} is {said}." if more.decides else f"{best} and {label} do not differ at {longest:,}."
            )
    seeds = "one seed, so other first weights may order them otherwise" if count == 1 else f"{count} seeds"
    yield (
        f"Bits per byte of {found['bytes']:,} bytes of {found['text']}, held out of training, in windows "
        f"side by side; {seeds}. Each was trained at {found['L']:,}, {found['recipe']['steps']:,} steps of "
        f"{found['recipe']['batch']} x {found['L']:,} bytes."
    )
    yield (
        "Differences are of the same bytes; the interval of 95 % draws blocks of "
        f"{TOGETHER * longest:,} bytes again and says nothing of other seeds or texts."
    )
    yield (
        f"Far context: bits per byte that the context farther back than {found['L']:,} saves, of bytes that "
        f"have some: the loss in windows of {found['L']:,} that move by {found['L'] // 2:,}, less that in "
        f"windows of {longest:,}. Below 0 the context does harm; near 0 it is ignored."
    )


def as_csv(found: Document) -> str:
    """A line for each encoding, seed and length."""
    lines = [
        [label, seed, n, f"{bit:.6f}"]
        for label in labels_of(found)
        for seed, bits in zip(found["seeds"], by_length(found, label), strict=True)
        for n, bit in zip(found["lengths"], bits, strict=True)
    ]
    return csv_of(["encoding", "seed", "length", "bits_per_byte"], lines)


def csv_of(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *lines])
    return out.getvalue()


def panels(found: Document) -> list[Panel | Image]:
    """Bits per byte by length, and by position at the longest."""
    lengths, L, longest = found["lengths"], found["L"], found["lengths"][-1]
    by_size, by_place = [], []
    for label in labels_of(found):
        seeds = by_length(found, label)
        by_size.append(Curve(lengths, seeds.mean(0), label, points=len(seeds) == 1))
        by_size += [Curve(lengths, bits, dots=True) for bits in seeds] if len(seeds) > 1 else []
        cells = cells_of(found, label, str(longest)).mean(0).reshape(-1, window_of(found)).mean(0)
        by_place.append(Curve((np.arange(len(cells)) + 0.5) * lengths[0], cells, label))
    dots = "; a dot is a seed" if len(found["seeds"]) > 1 else ""
    trained = [("x", float(L), "")]
    return [
        Panel("By length", "length (bytes)", "bits/byte", by_size, "x", trained, f"line: trained for{dots}"),
        Panel(
            f"By position at length {longest:,}",
            "position (bytes)",
            "bits/byte",
            by_place,
            marks=trained,
            note=f"means of {lengths[0]:,} bytes; line: trained for",
        ),
    ]


def told(found: Document) -> Told:
    """All that is said of a comparison on a text."""
    rows, said = list(rows_of_table(found)), list(sentences(found))
    return Told("Which encoding extrapolates", head(found), rows, said, as_csv(found), panels(found))


def embedded(png: bytes, alt: str) -> str:
    """A picture within a page."""
    data = base64.b64encode(png).decode()
    return f'<div class="wide"><img src="data:image/png;base64,{data}" alt="{escape(alt)}"></div>'


def report_page(found: Document, said: Told, pictures: Sequence[bytes]) -> str:
    """One file: table, sentences, pictures as PNG within it, what all of it depends on."""
    drawn = "; ".join(panel.title for panel in said.panels)
    alt = f"{drawn}; of {', '.join(labels_of(found))}. The numbers are in the table."
    images = [embedded(png, alt) for png in pictures]
    wide = f'<div class="wide">{html_table(said.head, [map(td, row) for row in said.rows])}</div>'
    facts = [f"{key}: {value}" for key, value in sorted(found["environment"].items())]
    facts += [f"text: SHA-256 {found['corpus']}", *(f"run: {entry['run']}" for entry in found["entries"])]
    body = [
        f"<h1>{escape(said.title)}</h1>",
        wide,
        *(f"<p>{escape(words)}</p>" for words in said.sentences),
        *images,
        f"<details><summary>Measured with</summary><p>{'<br>'.join(map(escape, facts))}</p></details>",
    ]
    return html_page("peref compare", "\n".join(body))
