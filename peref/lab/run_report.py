"""Runs looked at: how they learned, what they lose by length and position, where they attend, also beyond the
length trained for, and what their encodings have learned; panels of all side by side, and of each.

Not here: the page and what is asked (cli/page_of_runs.py), how pictures are drawn (pictures.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref.config import Config
from peref.evaluate import in_units
from peref.lab.effects import effects, trained_subject
from peref.lab.panels import DISTANCE, Curve, Image, Panel
from peref.lab.responses import layer_weights
from peref.xp import Arrays

MOST_ROWS = 192  # of attention at most, evenly spaced
POINTS = 60  # of a learning curve
SHARE_RIGHT = "share exactly right"


@dataclass(frozen=True)
class Looked:
    """A run and what was measured of it.

    cfg         of a model; of an encoder and a decoder attention is not looked at
    measure     bits/byte or bits/token of a text, SHARE_RIGHT of a task; rows: of its evaluation by length
    measured    by run, step, text or task, protocol and environment
    queries     the places of the rows of attention; heads: name -> weights [rows,T], NaN where not seen
    """

    name: str
    cfg: Any
    params: Arrays
    metrics: list[dict[str, Any]]
    measure: str
    rows: list[dict[str, Any]]
    by_position: list[dict[str, Any]]
    trained: int
    measured: dict[str, Any]
    queries: np.ndarray
    heads: dict[str, np.ndarray]

    @property
    def key(self) -> str:
        """That of the measure in a row."""
        return "exact" if self.measure == SHARE_RIGHT else "bpb"


def attended(cfg: Config, params: Arrays, tokens: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Queries and heads of Looked, of all layers over these tokens."""
    queries = np.unique(np.linspace(0, len(tokens) - 1, MOST_ROWS).round().astype(int))
    found: dict[str, np.ndarray] = {}
    for names, heads in layer_weights(cfg, params, tokens, queries.tolist()):
        found |= dict(zip(names, heads, strict=True))
    return queries, found


# ---------------------------------------------------------------- side by side


def side_by_side_panels(runs: Sequence[Looked]) -> list[Panel | Image]:
    """All runs in each: learning curves, by length, by position, entropy, distance."""
    learned = [curve for run in runs for curve in learning(run)]
    lengths = [through([(row["length"], row[run.key]) for row in run.rows], run.name) for run in runs]
    middle = lambda b: 1 + (b["from"] * b["to"]) ** 0.5  # counted from 1
    placed = [run for run in runs if run.by_position]
    places = [through([(middle(b), b["bpb"]) for b in run.by_position], run.name) for run in placed]
    trained = [("x", float(L), "") for L in sorted({run.trained for run in runs})]
    y = runs[0].measure
    unit = "bits/token" if y == SHARE_RIGHT else y
    found: list[Panel | Image] = [
        Panel("Learning", "step", "bits a token", learned, note="lines: training; dots: validation"),
        Panel("By length", "length", y, lengths, "x", trained, "line: trained for"),
    ]
    if places:
        found.append(Panel("By position, at the longest", "position + 1", unit, places, "x", trained))
    if not (seeing := [run for run in runs if run.heads]):
        return found
    mean = lambda run: np.mean([entropy(a) for a in run.heads.values()], 0)
    entropies = [Curve(run.queries, mean(run), run.name) for run in seeing]
    found.append(entropy_panel("Entropy of attention, mean of all heads", entropies, trained))
    far: list[Curve] = []
    for run in seeing:
        far += distances(run, mean_of([*run.heads.values()]), run.name, dashed=len(runs) == 1)
    found.append(distance_panel("Attention over distance, mean of all heads", far))
    return found


def through(points: list[tuple[float, float]], name: str) -> Curve:
    x, y = np.array(points, float).T
    return Curve(x, y, name, points=True)


def learning(run: Looked) -> list[Curve]:
    """Training loss, means of equal parts, and what validations found."""
    trained = [line for line in run.metrics if "loss" in line]
    steps = np.array([line["step"] for line in trained])
    nats = np.array([line["loss"] for line in trained])
    parts = [part for part in np.array_split(np.arange(len(steps)), POINTS) if part.size]
    bits = [in_units(float(nats[part].mean()))["bpb"] for part in parts]
    valid = [(line["step"], line["valid"]["bpb"]) for line in run.metrics if "valid" in line]
    curve = Curve([steps[part].mean() for part in parts], np.array(bits), run.name)
    return [curve, *([Curve([step for step, _ in valid], [b for _, b in valid], dots=True)] if valid else [])]


# ---------------------------------------------------------------- attention


def mean_of(heads: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the shares of all heads, NaN where none sees."""
    parts = np.stack([normalised(a) for a in heads])
    return np.where(np.isnan(parts).all(0), np.nan, np.nan_to_num(parts).mean(0))


def entropy_of(run: Looked) -> dict[str, float | None]:
    """Mean bits of all heads, of queries inside the length trained for and of those beyond, None for none."""
    inside = run.queries < run.cfg.L
    bits = np.mean([entropy(a) for a in run.heads.values()], 0) if run.heads else np.zeros(0)
    parts = {"inside": bits[inside], "beyond": bits[~inside]}
    return {name: float(part.mean()) if part.size else None for name, part in parts.items()}


def normalised(weights: np.ndarray) -> np.ndarray:
    """Each row as parts of 1."""
    total = np.nansum(np.abs(weights), 1, keepdims=True)
    return np.abs(weights) / np.maximum(total, np.finfo(float).tiny)


def entropy(weights: np.ndarray) -> np.ndarray:
    """Bits of each row: 2 to this power keys of equal weight would have the same."""
    p = normalised(weights)
    return -np.nansum(np.where(p > 0, p * np.log2(np.where(p > 0, p, 1.0)), 0.0), 1)


def over_distance(weights: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The mean weight of the key d tokens before a query, over queries that have one, as a multiple of equal
    weights, so that queries with few keys do not count for more; NaN where none has.
    """
    key = queries[:, None] - np.arange(weights.shape[1])  # [rows,d]
    rows = normalised(weights) * np.isfinite(weights).sum(1, keepdims=True)
    back = np.where(key < 0, np.nan, np.take_along_axis(rows, np.maximum(key, 0), 1))
    count = np.isfinite(back).sum(0)
    return np.where(count > 0, np.nansum(back, 0) / np.maximum(count, 1), np.nan)


def distances(run: Looked, weights: np.ndarray, name: str, dashed: bool = True) -> list[Curve]:
    """Of queries inside the length trained for, and of those beyond, if any."""
    d, inside = np.arange(weights.shape[1]), run.queries < run.cfg.L
    parts = [(over_distance(weights[of], run.queries[of]), of is inside) for of in (inside, ~inside)]
    label = lambda first: f"{name}, {'inside' if first else 'beyond'}"
    return [Curve(d, y, label(first), plain=dashed and first) for y, first in parts if np.isfinite(y).any()]


def distance_panel(title: str, curves: Sequence[Curve]) -> Panel:
    note = "inside, beyond: queries within, beyond the length trained for"
    return Panel(title, DISTANCE, "weight / equal weight", curves, "y", [("y", 1.0, "")], note)


def entropy_panel(title: str, curves: Sequence[Curve], marks: Any) -> Panel:
    q = max((np.asarray(curve.x) for curve in curves), key=len)
    equal = Curve(q, np.log2(q + 1.0), "equal weights of all before", plain=True)
    return Panel(title, "position of the query", "bits", [*curves, equal], "", marks, "line: trained for")


# ---------------------------------------------------------------- one run


def panels_of(run: Looked, heads: Sequence[str]) -> list[Panel | Image]:
    """Attention of these heads, over distance, its entropy, and what the encoding has learned."""
    found: list[Panel | Image] = []
    for name in heads:
        weights = run.heads[name]
        rows = np.linspace(0, len(weights) - 1, weights.shape[1]).round().astype(int)
        few = f"; {len(weights)} queries" if len(weights) < len(rows) else ""
        note = f"trained for {run.cfg.L:,}{few}"
        found.append(Image(name, "key", "query", weights[rows], note=note))
        found.append(distance_panel(f"{name}: over distance", distances(run, weights, "query")))
    marks = [("x", float(run.cfg.L), "")]
    bits = lambda k, name: Curve(run.queries, entropy(run.heads[name]), name, of=(k, len(heads)))
    curves = [bits(k, name) for k, name in enumerate(heads)]
    return [*found, entropy_panel("Entropy of attention", curves, marks), *learned_panels(run)]


def learned_panels(run: Looked) -> list[Panel | Image]:
    """What the encoding of each layer does with the parameters that it has learned, if it has any."""
    found: list[Panel | Image] = []
    before: list[dict[str, bytes]] = []
    for layer in range(run.cfg.layers):
        subject = trained_subject(run.cfg, run.params, layer)
        mine = {name: a.tobytes() for name, a in subject.p.items()}
        if mine and mine not in before:  # which layers may share
            before.append(mine)
            found += [replace(panel, title=f"layer {layer}: {panel.title}") for panel in effects(subject)]
    return found
