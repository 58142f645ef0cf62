"""Encodings trained alike and evaluated at doublings of the length, all on the same text or the
same samples of a task: the work of `compare`.

Losses are kept by cells of the text, half the length trained for, so that any two models are compared at the
same places. Not here: how sure a difference is (paired.py), tables and pages (comparison_report.py), what is
asked and how far it is (cli/compare.py).
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from peref import store
from peref.backends import Backend
from peref.cache import cache
from peref.config import SHAPES, Config, shaped
from peref.encodings import get, options
from peref.environment import environment
from peref.errors import Diverged, Misuse, counted
from peref.evaluate import Protocol, Scoring, check_evaluation, lengths, scored, under, weights_of
from peref.exact_match import each_length, effective_length, lengths_of
from peref.model import decode, logits
from peref.parameters import init
from peref.recipe import Recipe
from peref.runs import Run, open_run, runs_in
from peref.settings import choose
from peref.tasks import Exercise, Lesson
from peref.train import create_run, stepped, with_moments
from peref.warm_start import start, trained_on
from peref.xp import Arrays, fetch, to_host

WINDOWS = 16  # of the longest length that the text has at least
TRAINED_WITH = "rope"  # whose weights the scalings read


@dataclass(frozen=True)
class OnText:
    """The text or task that models are trained on, the name or path that it came from, how many bytes of the
    text that is held out, or samples of the task, they are evaluated on, and to which length.
    """

    command: ClassVar[str]  # whose results these are
    corpus: Lesson
    spec: str
    count: int
    longest: int

    @property
    def text(self) -> np.ndarray:
        assert not isinstance(self.corpus, Exercise)
        return self.corpus.valid[: self.count + 1]

    def file(self, run: Run, scaling: str = "") -> Path:
        """Where the result of a run is kept, perhaps under a scaling."""
        under = scaling and f"-{scaling}"
        return run.folder / "eval" / f"{self.command}-{self.longest}-{self.count}{under}.json"

    def kept(self, run: Run, environment: dict[str, Any], scaling: str = "") -> dict[str, Any] | None:
        """What was measured before on this text, under an environment that has all of this; or None."""
        with contextlib.suppress(*store.UNREADABLE):  # a damaged one is measured anew; Misuse: there is none
            result = json.loads(store.read_own(self.file(run, scaling)))
            same = result["environment"] | environment == result["environment"]
            return result if same and result["corpus"] == self.corpus.sha256 else None
        return None

    def keep(self, run: Run, result: dict[str, Any], be: Backend, scaling: str = "") -> dict[str, Any]:
        """The result with what it was measured on and by, as it is kept beside the run."""
        result = result | {"corpus": self.corpus.sha256, "environment": environment(be)}
        store.write_text(self.file(run, scaling), store.canonical(result), run.folder)
        return result


@dataclass(frozen=True)
class Plan(OnText):
    """What is compared, on what: every model has the shape that `fields` of Config say and this recipe, but
    for its encoding and seed.

    scalings    of RoPE, which read the weights trained with it; tuned: steps for which each is also trained
                on at the longest length, 0 for none
    """

    command = "compare"
    names: tuple[str, ...]
    fields: dict[str, Any]
    recipe: Recipe
    seeds: int
    scalings: tuple[str, ...]
    tuned: int

    @property
    def L(self) -> int:
        return self.task.longest if self.task else self.fields.get("L", Config.L)

    @property
    def task(self) -> Exercise | None:
        return self.corpus if isinstance(self.corpus, Exercise) else None

    @property
    def grid(self) -> list[int]:
        return lengths_of(self.task, self.longest) if self.task else lengths(self.L, self.longest)

    @property
    def cut(self) -> Protocol:
        """How a text is read with its context cut to the length trained for."""
        return Protocol(max(1, self.L // 2))

    def tokens(self, n: int) -> int:
        """What a model reads at length n."""
        return replace(self.task, longest=n).tokens if self.task else n

    def refuse(self) -> None:
        """Raises Misuse for what cannot be compared."""
        if self.longest < self.L:
            raise Misuse(f"--to is {self.longest}, below --len {self.L}; expected at least that")
        if not self.task:
            self.refuse_windows()
        if (self.scalings or self.tuned) and TRAINED_WITH not in self.names:
            raise Misuse(f"--scale reads weights trained with {TRAINED_WITH}; add it to --pe")
        if self.tuned and not self.scalings:
            raise Misuse("--finetune trains scalings of RoPE on; say which with --scale")
        for name in self.scalings:
            if "factor" not in options(get(name)):
                raise Misuse(f"--scale {name}: it has no factor to scale by")
        for entry in entries(self):
            tokens = self.tokens(self.longest)
            end, name = entry.at(tokens).ends(self.recipe.dtype)
            if end < tokens:
                what = f"--to is {self.longest}" + (f", which has {tokens} tokens" if self.task else "")
                raise Misuse(f"{name} ends at length {end}, and {what}; leave it out of --pe")

    def refuse_windows(self) -> None:
        """Raises Misuse where the text is not cut evenly, or too little for an interval."""
        if self.longest % self.grid[0]:
            raise Misuse(f"--to is {self.longest}; expected a multiple of {self.grid[0]}, half of --len")
        if self.count % self.longest:
            raise Misuse(f"--bytes is {self.count}; expected a multiple of --to, {self.longest}")
        if self.count < WINDOWS * self.longest:
            least = WINDOWS * self.longest
            raise Misuse(f"--bytes is {self.count}; expected at least {least}, {WINDOWS} times --to")


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
    model = lambda name: shaped(next(iter(SHAPES)), **plan.fields, **choose(name))
    for seed in range(plan.recipe.seed, plan.recipe.seed + plan.seeds):
        recipe = replace(plan.recipe, seed=seed)
        for name in plan.names:
            yield Contender(name, model(name), recipe)
        for name in plan.scalings:
            parent = Contender(TRAINED_WITH, model(TRAINED_WITH), recipe)
            yield replace(parent, label=f"{name}, as it is", scaling=name)
            if plan.tuned:
                longest = plan.tokens(plan.longest)
                stretch = (f"factor={longest / parent.cfg.L}",)
                cfg = trained_on(parent.cfg, name, stretch, {"L": longest})
                batch = max(1, recipe.batch * plan.L // plan.longest)  # as many tokens a step
                short = replace(recipe, steps=plan.tuned, batch=batch, warmup=plan.tuned // 10)
                yield Contender(f"{name}, {counted(plan.tuned, 'step')} more", cfg, short, parent=parent)


def mark(config: Any, recipe: Any, text: str, backend: str | None, parent: str | None) -> str:
    """A digest of all that a run is: model, recipe, digest of its text, backend, and that of the weights that
    it began with.
    """
    return hashlib.sha256(store.canonical([config, recipe, text, backend, parent]).encode()).hexdigest()[:12]


def shelf(root: Path) -> dict[str, Run]:
    """The runs of a folder by their marks; of those with one mark the one that was made under it."""
    known: dict[str, Run] = {}
    for run in runs_in(root):
        record = open_run(run.folder).record
        about = record["data"]["sha256"], record["environment"].get("backend")
        one = mark(record["config"], record["recipe"], *about, record.get("parent", {}).get("sha256"))
        if one not in known or run.folder.name.endswith(one):
            known[one] = run
    return known


def marked(entry: Contender, known: dict[str, Run], plan: OnText, backend: str) -> str:
    """The mark of the run of an entry; "" until its parent is finished."""
    parent = None
    if entry.parent:
        began = known.get(marked(entry.parent, known, plan, backend))
        if began is None or not began.finished:
            return ""
        parent = began.digest(began.checkpoints[-1])
    return mark(entry.cfg.to_json(), asdict(entry.recipe), plan.corpus.sha256, backend, parent)


def made(entry: Contender, root: Path, plan: OnText, be: Backend) -> Run:
    """The run of an entry, begun where there is none, whoever else does so now. Its parent is finished."""
    known = shelf(root)
    if run := known.get(one := marked(entry, known, plan, be.name)):
        return run
    weights = None
    if entry.parent:
        began = known[marked(entry.parent, known, plan, be.name)]
        _, params, step = weights_of(began)
        weights = start(began, params, step, entry.cfg, entry.recipe, anew=False)
    return create_run(root, entry.cfg, entry.recipe, plan.corpus, plan.spec, be, [], weights, one)


def measured(run: Run, plan: Plan, entry: Contender, be: Backend) -> dict[str, Any] | None:
    """The losses that this code measured before on this text, or None."""
    return plan.kept(run, environment(be), entry.scaling) if run.finished else None


def measure(
    run: Run, plan: Plan, entry: Contender, be: Backend, progress: Callable[[float], None]
) -> dict[str, Any]:
    """What there is to know of an entry at every length; kept beside the run. Raises Diverged where a loss is
    not finite.
    """
    _, params, step = weights_of(run)
    found = (answers_of if plan.task else losses_of)(plan, entry, params, be, progress)
    result = {
        "label": entry.label,
        "seed": entry.recipe.seed,
        "run": str(run.folder),
        "step": step,
        **found,
        "memory": memory(entry.at(entry.cfg.L), params),
        "config": entry.at(plan.tokens(plan.longest)).to_json(),
        "recipe": run.record["recipe"],
    }
    return plan.keep(run, result, be, entry.scaling)


def answers_of(
    plan: Plan, entry: Contender, params: Arrays, be: Backend, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Answers of a task that are exactly right, a row for each length."""
    assert plan.task
    rows: list[dict[str, Any]] = []
    for row in each_length(entry.at, params, plan.task, plan.longest, plan.count, be):
        rows.append(row)
        progress(sum(row["length"] for row in rows) / sum(plan.grid))
    return {"rows": rows, "effective": effective_length(rows, plan.L)}


def losses_of(
    plan: Plan, entry: Contender, params: Arrays, be: Backend, progress: Callable[[float], None]
) -> dict[str, Any]:
    """The losses of a text at every length, and with the context cut to the length trained for, in nats,
    summed over cells of plan.grid[0] bytes.
    """
    check_evaluation(entry.at(plan.longest), params, plan.text, plan.longest)
    placed, cell, done = be.place(params), plan.grid[0], 0

    def cells(n: int, protocol: Protocol) -> list[float]:
        found = np.zeros(plan.count)
        for _, first, stop, nll, _ in scored(entry.at(n), placed, plan.text, n, Scoring(protocol, be)):
            found[first:stop] = nll
            nonlocal done
            done += stop - first
            progress(done / (plan.count * (len(plan.grid) + 1)))
        if not np.isfinite(found).all():
            what = f"{entry.label} at length {n}: a loss is not finite"
            raise Diverged(f"{what}; train again with a lower --rate")
        return found.reshape(-1, cell).sum(1).tolist()

    return {"cells": {str(n): cells(n, Protocol()) for n in plan.grid}, "cut": cells(plan.L, plan.cut)}


def memory(cfg: Config, params: Arrays) -> dict[str, float]:
    """Bytes that decoding keeps for each token, and whatever their number."""

    def size(kept: Any) -> int:
        if isinstance(kept, dict):
            return sum(map(size, kept.values()))
        return 0 if kept is None else getattr(kept, "buffer", kept).nbytes

    half, sizes = cfg.L // 2, []
    for T in (half, 2 * half):
        _, after = decode(cfg, params, np.zeros((1, T), int), cache(cfg, T))
        sizes.append(sum(map(size, after.layers)))
    each = (sizes[1] - sizes[0]) / half
    return {"token": each, "state": sizes[0] - half * each}


def seconds(plan: Plan, entry: Contender, be: Backend) -> tuple[float, float]:
    """What a step of training takes, and the evaluation of all, both measured."""
    cfg, recipe = entry.cfg, entry.recipe
    p, m, v = map(be.place, with_moments(init(cfg, 0, recipe.dtype)).values())
    some = np.zeros((recipe.batch, cfg.L), int)
    batches = [(some, some)] * recipe.accumulate
    step, spent = 0.0, 0.0
    for _ in range(0 if entry.scaling else 2):  # the first may compile
        began = time.perf_counter()
        fetch(stepped(be, cfg, recipe.rule, p, m, v, batches, recipe.numbers(1)))()
        step = time.perf_counter() - began
    for n in plan.grid:
        length = plan.tokens(n)
        began = time.perf_counter()
        to_host(logits(entry.at(length), p, np.zeros((1, length), int), be=be))
        spent += (time.perf_counter() - began) * (plan.count if plan.task else plan.count / n)
    return step, spent if plan.task else spent * (1 + 2 / len(plan.grid))
