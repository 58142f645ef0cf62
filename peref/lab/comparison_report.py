"""A comparison on a text or a task as a table, sentences, CSV, panels and a page, all from the document that
`compare` stores.

Not here: how it is measured (comparison.py), how pictures are drawn (pictures.py).
"""

import base64
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import product
from typing import Any

import numpy as np

from peref.errors import counted
from peref.exact_match import SURE, in_words
from peref.lab.paired import Estimate, estimate
from peref.lab.panels import Curve, Panel
from peref.page import html_page, html_table, td
from peref.tasks import DEPTHS

Document = dict[str, Any]
NEIGHBOURS = 2  # windows that a bootstrap draws at a time: neighbours are correlated
SHARE = "share of answers"


def labels_of(found: Document) -> list[str]:
    return list(dict.fromkeys(entry["label"] for entry in found["entries"]))


def of_label(found: Document, label: str, key: str) -> list[Any]:
    """What the entries of each seed have under a key."""
    return [entry[key] for entry in found["entries"] if entry["label"] == label]


def cells_of(found: Document, label: str, length: str) -> np.ndarray:
    """Bits per byte of each cell of the text, [seeds,cells]; `length` may also be "cut"."""
    nats = of_label(found, label, "cut" if length == "cut" else "cells")
    nats = nats if length == "cut" else [cells[length] for cells in nats]
    return np.array(nats) / (found["lengths"][0] * math.log(2))


def by_length(found: Document, label: str) -> np.ndarray:
    """Bits per byte, or shares of answers that are exactly right, [seeds,lengths]."""
    if "task" in found:
        return np.array([[row["exact"] for row in rows] for rows in of_label(found, label, "rows")])
    return np.stack([cells_of(found, label, str(n)).mean(1) for n in found["lengths"]], 1)


def best_of(found: Document) -> str:
    """The label with the fewest bits at the longest length, or most right answers over all lengths."""
    if "task" in found:
        return max(labels_of(found), key=lambda label: by_length(found, label).mean())
    return min(labels_of(found), key=lambda label: by_length(found, label)[:, -1].mean())


def against(found: Document, label: str, other: str) -> Estimate:
    """How much more `label` has than `other`; the mean of the seeds, each beside the same one.

    Bits per byte at the longest length, at the same places of the text; or right answers, a share over all
    lengths, of the same samples, which are independent of one another.
    """
    if "task" in found:
        return estimate(right_of(found, label) - right_of(found, other), 1)
    longest = str(found["lengths"][-1])
    more = cells_of(found, label, longest) - cells_of(found, other, longest)
    return estimate(more.mean(0), NEIGHBOURS * window_of(found))


def right_of(found: Document, label: str) -> np.ndarray:
    """The share of lengths at which each sample is right, means of the seeds, [samples]."""
    return np.mean([[*map(int, row["right"])] for rows in of_label(found, label, "rows") for row in rows], 0)


def far_context(found: Document, label: str) -> Estimate | None:
    """Bits per byte that the context farther back than the length trained for saves at the longest length:
    where there is such context, the loss with it cut off less that with all of it. None where the longest
    length is the one trained for.
    """
    cell, longest, L = found["lengths"][0], found["lengths"][-1], found["L"]
    saved = (cells_of(found, label, "cut") - cells_of(found, label, str(longest))).mean(0)
    far = saved.reshape(-1, window_of(found))[:, L // cell :]
    return estimate(far.ravel(), NEIGHBOURS * far.shape[1]) if far.size else None


def window_of(found: Document) -> int:
    """Cells in a window of the longest length."""
    return found["lengths"][-1] // found["lengths"][0]


def interval(x: Estimate) -> str:
    return f"{x.mean:+.3f} ({x.low:+.3f} to {x.high:+.3f})"


def effective_of(found: Document, label: str) -> str:
    """The effective length of each seed."""
    return ", ".join(dict.fromkeys(map(in_words, of_label(found, label, "effective"))))


def title(found: Document) -> str:
    learns = f"learns {found['task']}, and at which lengths" if "task" in found else "extrapolates"
    return f"Which encoding {learns}"


def head(found: Document) -> list[str]:
    beside = ["effective", "against the best"] if "task" in found else ["against the best", "far context"]
    return ["encoding", *(f"{n:,}" for n in found["lengths"]), *beside, "memory"]


def rows_of_table(found: Document) -> Iterator[list[str]]:
    """A line for each encoding under `head`; shares have their interval where there is one seed."""
    best = best_of(found)
    for label in labels_of(found):
        memory = of_label(found, label, "memory")[0]
        cells = [f"{mean:.3f}" for mean in by_length(found, label).mean(0)]
        beside = ["" if label == best else interval(against(found, label, best))]
        if "task" in found:
            one, *others = of_label(found, label, "rows")
            around = [f" ({row['low']:.2f} to {row['high']:.2f})" * (not others) for row in one]
            cells = [a + b for a, b in zip(cells, around, strict=True)]
            beside.insert(0, effective_of(found, label))
        else:
            far = far_context(found, label)
            beside.append(interval(far) if far else "")
        state = f" + {memory['state']:,.0f} B" if memory["state"] else ""
        yield [label, *cells, *beside, f"{memory['token']:,.0f} B/token{state}"]


def sentences(found: Document) -> Iterator[str]:
    """What is said under the table."""
    return of_task(found) if "task" in found else of_text(found)


def of_text(found: Document) -> Iterator[str]:
    """What the numbers allow to say, and how they came about."""
    best, longest, count = best_of(found), found["lengths"][-1], len(found["seeds"])
    for label in labels_of(found):
        if label != best:
            more = against(found, label, best)
            wide = (more.high - more.low) / 2
            said = f"{more.mean:.3f} +- {wide:.3f} bits/byte better than {label} at {longest:,}"
            alike = f"{best} and {label} do not differ at {longest:,}."
            yield f"{best} is {said}." if more.decides else alike
    seeds = "one seed, so other first weights may order them otherwise" if count == 1 else f"{count} seeds"
    yield (
        f"Bits per byte of {found['bytes']:,} bytes of {found['text']}, held out of training, in windows "
        f"side by side; {seeds}. Each was trained at {found['L']:,}, {found['recipe']['steps']:,} steps of "
        f"{found['recipe']['batch']} x {found['L']:,} bytes."
    )
    yield (
        "Differences are of the same bytes; the interval of 95 % draws blocks of "
        f"{NEIGHBOURS * longest:,} bytes again and says nothing of other seeds or texts."
    )
    yield (
        f"Far context: bits per byte that the context farther back than {found['L']:,} saves, of bytes that "
        f"have some: the loss in windows of {found['L']:,} that move by {found['L'] // 2:,}, less that in "
        f"windows of {longest:,}. Below 0 the context does harm; near 0 it is ignored."
    )


def of_task(found: Document) -> Iterator[str]:
    """What is asked of whom, and what the words of the table mean."""
    cfg, recipe = found["entries"][0]["config"], found["recipe"]
    count, labels = len(found["seeds"]), labels_of(found)
    best = best_of(found)
    equal = [label for label in labels if label != best and not against(found, label, best).decides]
    failed = [label for label in labels if "not learned" in effective_of(found, label)]
    yield (
        f"{found['task']}: {found['words']}; a re-creation for small models. Shares of "
        f"{found['samples']:,} held-out samples of each length whose answer is right to the last token"
        + (f", means of {count} seeds." if count > 1 else ", with their interval of 95 %.")
    )
    yield (
        f"The effective length is the longest with {SURE:.0%} exactly right at it and at all shorter ones "
        f"here; not learned: less than that at {found['L']:,}, the length trained for, or below."
    )
    yield (
        "Against the best: the share of right answers over all lengths less that of the encoding with most, "
        f"{best}, of the same samples; the interval of 95 % says nothing of other seeds"
        + (f". It does not tell {', '.join(equal)} from {best}." if equal else ".")
    )
    yield f"Not learned by {', '.join(failed)}." if failed else "All learned it at the length trained for."
    yield (
        f"All models have {counted(cfg['layers'], 'layer')} of width {cfg['C']} with "
        f"{counted(cfg['H'], 'head')}, and were trained {counted(recipe['steps'], 'step')} of "
        f"{counted(recipe['batch'], 'sample')} at a peak rate of {recipe['rate']:g}. Such sizes and steps "
        "are chosen before for a task, not for an encoding."
    )


def as_csv(found: Document) -> str:
    """A line for each encoding, seed and length."""
    keys = ["exact", "low", "high", "tokens_right"] if "task" in found else ["bits_per_byte"]
    lines = []
    for label in labels_of(found):
        bits = by_length(found, label)
        for (k, seed), (m, n) in product(enumerate(found["seeds"]), enumerate(found["lengths"])):
            row = of_label(found, label, "rows")[k][m] if "task" in found else {"bits_per_byte": bits[k, m]}
            lines.append([label, seed, n, *(f"{row[key]:.6f}" for key in keys)])
    return csv_of(["encoding", "seed", "length", *keys], lines)


def csv_of(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *lines])
    return out.getvalue()


def panels(found: Document) -> Iterator[Panel]:
    """By length; bits per byte also by position at the longest length, shares by where the answer stands, if
    it stands somewhere.
    """
    lengths, trained, by_size = found["lengths"], [("x", float(found["L"]), "")], []
    dots = "; a dot is a seed" if len(found["seeds"]) > 1 else ""
    for label in labels_of(found):
        seeds = by_length(found, label)
        by_size.append(Curve(lengths, seeds.mean(0), label, points=len(seeds) == 1))
        by_size += [Curve(lengths, one, dots=True) for one in seeds] if len(seeds) > 1 else []
    how: dict[str, Any] = {"curves": by_size, "log": "x", "note": f"line: trained for{dots}"}
    if "task" not in found:
        yield Panel("By length", "length (bytes)", "bits/byte", marks=trained, **how)
        yield by_position(found, trained)
        return
    ends = [("y", 0.0, ""), ("y", 1.0, "")]  # a share is between
    marks = [*trained, ("y", SURE, f"{SURE:.0%}"), *ends]
    yield Panel("Exactly right, by length", "length", SHARE, marks=marks, **how)
    if "by_depth" in found["entries"][0]["rows"][0]:
        for label in labels_of(found):
            shares = [[row["by_depth"] for row in rows] for rows in of_label(found, label, "rows")]
            means, depths = np.array(shares, float).mean(0), 100 * np.array(DEPTHS)
            of = [
                Curve(depths, row, f"length {n:,}", of=(k, len(lengths)), points=True)
                for k, (n, row) in enumerate(zip(lengths, means, strict=True))
            ]
            yield Panel(f"{label}: by depth", "where in it the answer stands (%)", SHARE, of, marks=ends)


def by_position(found: Document, marks: Sequence[Any]) -> Panel:
    cell, longest, curves = found["lengths"][0], found["lengths"][-1], []
    for label in labels_of(found):
        cells = cells_of(found, label, str(longest)).mean(0).reshape(-1, window_of(found)).mean(0)
        curves.append(Curve((np.arange(len(cells)) + 0.5) * cell, cells, label))
    title, note = f"By position at length {longest:,}", f"means of {cell:,} bytes; line: trained for"
    return Panel(title, "position (bytes)", "bits/byte", curves, marks=marks, note=note)


def embedded(png: bytes, alt: str) -> str:
    """A picture within a page."""
    data = base64.b64encode(png).decode()
    return f'<div class="wide"><img src="data:image/png;base64,{data}" alt="{escape(alt)}"></div>'


def measured_with(facts: Iterable[str]) -> str:
    """What the numbers of a page depend on, folded away."""
    lines = "<br>".join(map(escape, facts))
    return f"<details><summary>Measured with</summary><p>{lines}</p></details>"


def report_page(found: Document, picture: bytes) -> str:
    """One file: table, sentences, picture as PNG within it, what all of it depends on."""
    drawn = "; ".join(panel.title for panel in panels(found))
    alt = f"{drawn}; of {', '.join(labels_of(found))}. The numbers are in the table."
    facts = [f"{key}: {value}" for key, value in sorted(found["environment"].items())]
    facts += [f"{key}: {found[key]}" for key in ("protocol", "cut") if key in found]
    facts += [f"text: SHA-256 {found['corpus']}", *(f"run: {entry['run']}" for entry in found["entries"])]
    body = [
        f"<h1>{escape(title(found))}</h1>",
        f'<div class="wide">{html_table(head(found), (map(td, row) for row in rows_of_table(found)))}</div>',
        *(f"<p>{escape(words)}</p>" for words in sentences(found)),
        embedded(picture, alt),
        measured_with(facts),
    ]
    return html_page("peref compare", "\n".join(body))
