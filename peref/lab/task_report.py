"""A comparison on a task as a table, sentences, CSV and panels, from the document that `compare` stores.

Not here: how it is measured (comparison.py), the page (comparison_report.py).
"""

from typing import Any

import numpy as np

from peref.errors import counted
from peref.exact_match import SURE, in_words
from peref.lab.comparison_report import Document, Told, csv_of, interval, kept_by, labels_of
from peref.lab.paired import Estimate, estimate
from peref.lab.panels import Curve, Image, Panel
from peref.tasks import DEPTHS

WHOLE = [("y", 0.0, ""), ("y", 1.0, "")]  # a share is between


def rows_of(found: Document, label: str) -> list[list[dict[str, Any]]]:
    """The rows of an encoding, [seeds][lengths]."""
    return [entry["rows"] for entry in found["entries"] if entry["label"] == label]


def exact_of(found: Document, label: str) -> np.ndarray:
    """Shares of answers that are exactly right, [seeds,lengths]."""
    return np.array([[row["exact"] for row in rows] for rows in rows_of(found, label)])


def right_of(found: Document, label: str) -> np.ndarray:
    """The share of lengths at which each sample is right, means of the seeds, [samples]."""
    rows = [row["right"] for rows in rows_of(found, label) for row in rows]
    return np.array([[*map(int, right)] for right in rows]).mean(0)


def most_right(found: Document) -> str:
    """The label with most right answers over all lengths."""
    return max(labels_of(found), key=lambda label: exact_of(found, label).mean())


def against_most(found: Document, label: str) -> Estimate:
    """The share of right answers, over all lengths, that `label` has more than the one with most: of the same
    samples, which are independent of one another.
    """
    return estimate(right_of(found, label) - right_of(found, most_right(found)), 1)


def effective_of(found: Document, label: str) -> str:
    """The effective length of each seed."""
    each = [entry["effective"] for entry in found["entries"] if entry["label"] == label]
    return ", ".join(dict.fromkeys(map(in_words, each)))


def task_table(found: Document) -> list[list[str]]:
    """A line for each encoding: shares by length, with their interval where there is one seed."""
    lines, best = [], most_right(found)
    for label in labels_of(found):
        one, *others = rows_of(found, label)
        exact = exact_of(found, label).mean(0)
        around = [f" ({row['low']:.2f} to {row['high']:.2f})" for row in one]
        cells = [f"{a:.3f}" + ("" if others else b) for a, b in zip(exact, around, strict=True)]
        less = "" if label == best else interval(against_most(found, label))
        lines.append([label, *cells, effective_of(found, label), less, kept_by(found, label)])
    return lines


def task_sentences(found: Document) -> list[str]:
    """What is asked of whom, and what the words of the table mean."""
    entry, count = found["entries"][0], len(found["seeds"])
    cfg, recipe = entry["config"], found["recipe"]
    best = most_right(found)
    less = {label: against_most(found, label) for label in labels_of(found) if label != best}
    equal = [label for label, by in less.items() if not by.decides]
    failed = [label for label in labels_of(found) if "not learned" in effective_of(found, label)]
    return [
        f"{found['task']}: {found['words']}; a re-creation for small models. Shares of "
        f"{found['samples']:,} held-out samples of each length whose answer is right to the last token"
        + (f", means of {count} seeds." if count > 1 else ", with their interval of 95 %."),
        f"The effective length is the longest with {SURE:.0%} exactly right at it and at all shorter ones "
        f"here; not learned: less than that at {found['L']:,}, the length trained for, or below.",
        "Against the best: the share of right answers over all lengths less that of the encoding with most, "
        f"{best}, of the same samples; the interval of 95 % says nothing of other seeds"
        + (f". It does not tell {', '.join(equal)} from {best}." if equal else "."),
        f"Not learned by {', '.join(failed)}." if failed else "All learned it at the length trained for.",
        f"All models have {counted(cfg['layers'], 'layer')} of width {cfg['C']} with "
        f"{counted(cfg['H'], 'head')}, and were trained {counted(recipe['steps'], 'step')} of "
        f"{counted(recipe['batch'], 'sample')} at a peak rate of {recipe['rate']:g}. Such sizes and steps "
        "are chosen before for a task, not for an encoding.",
    ]


def task_csv(found: Document) -> str:
    """A line for each encoding, seed and length."""
    lines = []
    for label in labels_of(found):
        for seed, rows in zip(found["seeds"], rows_of(found, label), strict=True):
            for row in rows:
                shares = [f"{row[key]:.6f}" for key in ("exact", "low", "high", "tokens_right")]
                lines.append([label, seed, row["length"], *shares])
    return csv_of(["encoding", "seed", "length", "exact", "low", "high", "tokens_right"], lines)


def task_panels(found: Document) -> list[Panel | Image]:
    """Shares by length; where the answer stands somewhere, also by its depth, a panel each."""
    lengths, by_size = found["lengths"], []
    for label in labels_of(found):
        seeds = exact_of(found, label)
        by_size.append(Curve(lengths, seeds.mean(0), label, points=len(seeds) == 1))
        by_size += [Curve(lengths, shares, dots=True) for shares in seeds] if len(seeds) > 1 else []
    marks = [("x", float(found["L"]), ""), ("y", SURE, f"{SURE:.0%}"), *WHOLE]
    note = "line: trained for" + ("; a dot is a seed" if len(found["seeds"]) > 1 else "")
    drawn: list[Panel | Image] = [
        Panel("Exactly right, by length", "length", "share of answers", by_size, "x", marks, note)
    ]
    if "by_depth" in found["entries"][0]["rows"][0]:
        for label in labels_of(found):
            shares = [[row["by_depth"] for row in rows] for rows in rows_of(found, label)]
            means, depths = np.array(shares, float).mean(0), 100 * np.array(DEPTHS)
            of = [
                Curve(depths, row, f"length {n:,}", of=(k, len(lengths)), points=True)
                for k, (n, row) in enumerate(zip(lengths, means, strict=True))
            ]
            title, where = f"{label}: by depth", "where in it the answer stands (%)"
            drawn.append(Panel(title, where, "share of answers", of, marks=WHOLE))
    return drawn


def told_of_task(found: Document) -> Told:
    """All that is said of a comparison on a task."""
    head = ["encoding", *(f"{n:,}" for n in found["lengths"]), "effective", "against the best", "memory"]
    title = f"Which encoding learns {found['task']}, and at which lengths"
    return Told(title, head, task_table(found), task_sentences(found), task_csv(found), task_panels(found))
