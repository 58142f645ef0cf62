"""Encodings trained alike and evaluated at doublings of the length, all on the same text: the work of
`compare`.

Losses are kept by cells of the text, half the length trained for, so that any two models are compared at the
same places. Not here: how sure a difference is (paired.py), tables and pages (comparison_report.py), what is
asked and how far it is (cli/compare.py).
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from peref import data, store
from peref.backends import Backend
from peref.cache import cache
from peref.config import SHAPES, Config, shaped
from peref.encodings import get, options
from peref.environment import environment
from peref.errors import Diverged, Misuse, counted
from peref.evaluate import Protocol, check_evaluation, lengths, scored, under, weights_of
from peref.model import decode
from peref.parameters import init
from peref.recipe import Recipe
from peref.runs import Run, open_run
from peref.settings import choose
from peref.train import create_run, stepped
from peref.warm_start import start, trained_on
from peref.xp import Arrays, fetch

WINDOWS = 16  # of the longest length that the text has at least
TRAINED_WITH = "rope"  # whose weights the scalings read


@dataclass(frozen=True)
class Plan:
    """What is compared, on what: every model has the shape that `fields` of Config say and this recipe, but
    for its encoding and seed.

    scalings    of RoPE, which read the weights trained with it; tuned: steps for which each is also trained
                on at the longest length, 0 for none
    """

    names: tuple[str, ...]
    fields: dict[str, Any]
    recipe: Recipe
    longest: int
    seeds: int
    scalings: tuple[str, ...]
    tuned: int
    corpus: data.Corpus
    spec: str
    count: int  # bytes of the text that is held out

    @property
    def L(self) -> int:
        return self.fields.get("L", Config.L)

    @property
    def grid(self) -> list[int]:
        return lengths(self.L, self.longest)

    @property
    def text(self) -> np.ndarray:
        return self.corpus.valid[: self.count + 1]

    def model(self, name: str) -> Config:
        """That of an encoding."""
        return shaped(next(iter(SHAPES)), **self.fields, **choose(name))

    def refuse(self) -> None:
        """Raises Misuse for what cannot be compared."""
        if self.longest < self.L:
            raise Misuse(f"--to is {self.longest}, below --len {self.L}; expected at least that")
        if self.longest % self.grid[0] or self.count % self.longest:
            what = f"--to {self.longest} is to be a multiple of {self.grid[0]}, half of --len"
            raise Misuse(f"{what}, and --bytes {self.count} one of --to")
        if self.count < WINDOWS * self.longest:
            least = WINDOWS * self.longest
            raise Misuse(f"--bytes is {self.count}; expected at least {least}, {WINDOWS} times --to")
        if (self.scalings or self.tuned) and TRAINED_WITH not in self.names:
            raise Misuse(f"--scale reads weights trained with {TRAINED_WITH}; add it to --pe")
        if self.tuned and not self.scalings:
            raise Misuse("--finetune trains scalings of RoPE on; say which with --scale")
        for name in self.scalings:
            if "factor" not in options(get(name)):
                raise Misuse(f"--scale {name}: it has no factor to scale by")
        for entry in entries(self):
            end, name = entry.at(self.longest).ends(self.recipe.dtype)
            if end < self.longest:
                raise Misuse(f"{name} ends at length {end}, and --to is {self.longest}; leave it out of --pe")


@dataclass(frozen=True)
class Contender:
    """A row of the table for one seed: a model trained with this config and recipe, perhaps from the weights
    of `parent`, evaluated under it or, without any training, under `scaling`.
    """

    label: str
    cfg: Config
    recipe: Recipe
    scaling: str = ""
    parent: "Contender | None" = None

    def at(self, n: int) -> Config:
        """The model that reads n tokens: a scaling stretches by n over the length trained for."""
        factor = max(1.0, n / self.cfg.L)
        return under(self.cfg, self.scaling, (f"factor={factor}",)) if self.scaling else self.cfg


def entries(plan: Plan) -> Iterator[Contender]:
    """Every row of the table, seed by seed, a parent before what is trained on from it."""
    for seed in range(plan.recipe.seed, plan.recipe.seed + plan.seeds):
        recipe = replace(plan.recipe, seed=seed)
        for name in plan.names:
            yield Contender(name, plan.model(name), recipe)
        for name in plan.scalings:
            parent = Contender(TRAINED_WITH, plan.model(TRAINED_WITH), recipe)
            yield replace(parent, label=f"{name}, as it is", scaling=name)
            if plan.tuned:
                stretch = (f"factor={plan.longest / plan.L}",)
                cfg = trained_on(parent.cfg, name, stretch, {"L": plan.longest})
                batch = max(1, recipe.batch * plan.L // plan.longest)  # as many tokens a step
                short = replace(recipe, steps=plan.tuned, batch=batch, warmup=plan.tuned // 10)
                yield Contender(f"{name}, {counted(plan.tuned, 'step')} more", cfg, short, parent=parent)


def found(entry: Contender, root: Path, plan: Plan, be: Backend) -> Run | None:
    """The run of an entry, by what it is: model, recipe, text, backend and the weights that it began with."""
    wanted = {"config": entry.cfg.to_json(), "recipe": asdict(entry.recipe)}
    parent = None
    if entry.parent:
        began = found(entry.parent, root, plan, be)
        if began is None or not began.finished:
            return None
        parent = began.digest(began.checkpoints[-1])
    for path in sorted(root.glob("*/run.json")):
        run = open_run(path.parent)
        record = run.record
        same = all(record[key] == value for key, value in wanted.items())
        same &= record["data"]["sha256"] == plan.corpus.sha256
        same &= record["environment"]["backend"] == be.name
        if same and record.get("parent", {}).get("sha256") == parent:
            return run
    return None


def made(entry: Contender, root: Path, plan: Plan, be: Backend) -> Run:
    """The run of an entry, begun where there is none. Its parent is finished."""
    if run := found(entry, root, plan, be):
        return run
    weights = None
    if entry.parent and (began := found(entry.parent, root, plan, be)):
        _, params, step = weights_of(began)
        weights = start(began, params, step, entry.cfg, entry.recipe, anew=False)
    return create_run(root, entry.cfg, entry.recipe, plan.corpus, plan.spec, be, [], weights)


def file_of(run: Run, plan: Plan, entry: Contender) -> Path:
    """Where the losses of an entry are kept."""
    mark = f"-{entry.scaling}" if entry.scaling else ""
    return run.folder / "eval" / f"compare-{plan.longest}-{plan.count}{mark}.json"


def measured(run: Run, plan: Plan, entry: Contender, be: Backend) -> dict[str, Any] | None:
    """The losses that this code measured before on this text, or None."""
    path = file_of(run, plan, entry)
    if not run.finished or not store.is_file(path):
        return None
    with contextlib.suppress(*store.UNREADABLE):  # a damaged one is measured anew
        result = json.loads(store.read_own(path))
        if result["environment"] == environment(be) and result["corpus"] == plan.corpus.sha256:
            return result
    return None


def measure(
    run: Run, plan: Plan, entry: Contender, be: Backend, progress: Callable[[float], None]
) -> dict[str, Any]:
    """The losses of an entry at every length, and with the context cut to the length trained for; kept beside
    the run. In nats, summed over cells of plan.grid[0] bytes. Raises Diverged where one is not finite.
    """
    _, params, step = weights_of(run)
    check_evaluation(entry.at(plan.longest), params, plan.text, plan.longest)
    placed, cell, L = be.place(params), plan.grid[0], plan.L
    cut, read = Protocol(max(1, L // 2)), 0

    def cells(n: int, protocol: Protocol) -> list[float]:
        found = np.zeros(plan.count)
        for _, first, stop, nll, _ in scored(entry.at(n), placed, plan.text, n, protocol=protocol, be=be):
            found[first:stop] = nll
            nonlocal read
            read += stop - first
            progress(read / (plan.count * (len(plan.grid) + 1)))
        if not np.isfinite(found).all():
            raise Diverged(
                f"{entry.label} at length {n}: a loss is not finite; train again with a lower --rate"
            )
        return found.reshape(-1, cell).sum(1).tolist()

    result = {
        "label": entry.label,
        "seed": entry.recipe.seed,
        "run": str(run.folder),
        "step": step,
        "corpus": plan.corpus.sha256,
        "cells": {str(n): cells(n, Protocol()) for n in plan.grid},
        "cut": cells(L, cut),
        "memory": memory(entry.at(L), params),
        "config": entry.at(plan.longest).to_json(),
        "recipe": run.record["recipe"],
        "environment": environment(be),
    }
    store.write_text(file_of(run, plan, entry), store.canonical(result), run.folder)
    return result


def memory(cfg: Config, params: Arrays) -> dict[str, float]:
    """Bytes that decoding keeps for each token, and whatever their number."""

    def size(kept: Any) -> int:
        if isinstance(kept, dict):
            return sum(map(size, kept.values()))
        return 0 if kept is None else getattr(kept, "whole", kept).nbytes

    half, sizes = cfg.L // 2, []
    for T in (half, 2 * half):
        _, after = decode(cfg, params, np.zeros((1, T), int), cache(cfg, T))
        sizes.append(sum(map(size, after.layers)))
    each = (sizes[1] - sizes[0]) / half
    return {"token": each, "state": sizes[0] - half * each}


def seconds(plan: Plan, entry: Contender, be: Backend) -> tuple[float, float]:
    """What a step of training takes, and a byte of evaluation at every length and cut, both measured."""
    cfg, recipe = entry.cfg, entry.recipe
    p = be.place(init(cfg, 0, recipe.dtype))
    m, v = (be.place({name: np.zeros(a.shape, a.dtype) for name, a in p.items()}) for _ in "mv")
    some = np.zeros((recipe.batch, cfg.L), int)
    batches = [(some, some)] * recipe.accumulate
    step, spent = 0.0, 0.0
    for _ in range(0 if entry.scaling else 2):  # the first may compile
        began = time.perf_counter()
        fetch(stepped(be, cfg, recipe.rule, p, m, v, batches, recipe.numbers(1)))()
        step = time.perf_counter() - began
    for n in plan.grid:
        began = time.perf_counter()
        for _ in scored(entry.at(n), p, plan.text[: n + 1], n, protocol=Protocol(), be=be):
            pass
        spent += (time.perf_counter() - began) / n
    return step, spent * (1 + 2 / len(plan.grid))
