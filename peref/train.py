"""The training loop, as a generator of records. It knows nothing of encodings and draws no bars.

A step is a pure function of (weights, AdamW's moments, seed, step), so a resumed run needs no hidden state
and ends with the same bits.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from peref import runs
from peref.backends import Backend, resolved
from peref.config import Config
from peref.encoder_decoder import predicted
from peref.encodings import origin
from peref.environment import differences, environment
from peref.errors import Damaged, Diverged, Misuse, counted
from peref.evaluate import Scoring, differing, model_of, parts_of, score
from peref.exact_match import exact_match
from peref.memory import check_training
from peref.model import check_targets, check_tokens
from peref.optim import read_status
from peref.parameters import init, step_sizes
from peref.positions import draw_of
from peref.recipe import Recipe
from peref.rng import generator
from peref.tape import Tape
from peref.tasks import Exercise, Lesson
from peref.warm_start import Start
from peref.xp import Arrays, fetch, library, namespace, to_host

TESTED = 100  # held-out sources in a validation of a task


def check_recipe(cfg: Config, recipe: Recipe, corpus: Lesson, backend: str) -> None:
    """Raises Misuse for what cannot be trained: a length that the encoding does not reach, a model that the
    text or the task is not for, a decoder without its encoder, and what does not fit into the memory that
    `backend`, a name, computes in.
    """
    if cfg.cross and not cfg.encoder:
        raise Misuse("cross is True, but there is no encoder; train a pair on a task")
    end, name = cfg.ends(recipe.dtype)
    if end < cfg.L:
        what = f"{name} ends at length {end} in {recipe.dtype}, and the length to train on is {cfg.L}"
        raise Misuse(f"{what}; ask for at most {end}")
    check_positions(cfg, recipe)
    corpus.refuse(cfg)
    meant = resolved(backend, recipe.dtype)
    if not meant.startswith("cuda"):
        for one in filter(None, (cfg.encoder, cfg)):
            check_training(one, recipe.dtype, recipe.batch, recipe.accumulate, meant)


def check_positions(cfg: Config, recipe: Recipe) -> None:
    """Raises Misuse where positions cannot be drawn as the recipe says."""
    if recipe.positions is None:
        return
    (_, N), (end, name), what = draw_of(recipe.positions), cfg.ends(recipe.dtype), recipe.positions
    if cfg.encoder:
        raise Misuse(f"positions is {what}, but a task counts them; leave it out")
    if cfg.axes is None and all(cfg.layer(n).temperature == "none" for n in range(cfg.layers)):
        raise Misuse(f"positions is {what}, but {cfg.named} looks at no position; leave it out")
    if N < cfg.L:
        raise Misuse(f"positions is {what}; expected at least the length to train on, {cfg.L}")
    if end < N:
        raise Misuse(f"positions is {what}, but {name} ends at {end} in {recipe.dtype}; ask for at most that")


def lesson(cfg: Config, recipe: Recipe, corpus: Lesson, step: int, part: int) -> tuple[Any, ...]:
    """Inputs and targets of a micro-batch, and where positions are drawn their place. A pure function of its
    arguments.
    """
    asked = corpus.lesson(cfg, recipe, step, part)
    if cfg.encoder or recipe.positions is None:
        return asked
    (draw, N), rng = draw_of(recipe.positions), generator(recipe.seed, "positions", step, part)
    B, T = asked[0].shape
    return *asked, cfg.place(B, T, draw(rng, B, T, N), n=N)


def create_run(
    root: Any,
    cfg: Config,
    recipe: Recipe,
    corpus: Lesson,
    data: str,
    be: Backend,
    argv: list[str],
    start: Start | None = None,
    key: str = "",
) -> runs.Run:
    """A new run folder, once everything that can be refused has been. `data` is the name or path that
    `corpus` came from, `start` the weights to begin with instead of new ones, `key` as in runs.create.
    """
    check_recipe(cfg, recipe, corpus, be.name)
    with np.errstate(all="ignore"):
        p = be.place(start.params if start else init(cfg, recipe.seed, recipe.dtype))
        some = np.zeros((1, min(cfg.L, 2)), int)
        trial = predicted(cfg, p, (some, some + 1, some) if cfg.encoder else some, be=be)
    if not np.isfinite(to_host(trial)).all():
        what = "the logits of the new model are not finite"
        raise Misuse(f"{what}; check the options of {cfg.both_cycles} and the norms' eps")
    record = {
        "config": cfg.to_json(),
        "recipe": asdict(recipe),
        "steps": recipe.steps,
        "environment": environment(be),
        "argv": argv,
        **corpus.about(data),
    }
    own = {name: found for name in cfg.encodings if (found := origin(name))}
    files, first = {f"encodings/{name}.py": found.source for name, found in own.items()}, None
    if own:
        record["encodings"] = {name: found.about for name, found in own.items()}
    if start:
        record |= start.record
        files |= start.files
        first = as_stored(with_moments(start.params))
    length = f"{corpus.name}{corpus.longest}" if isinstance(corpus, Exercise) else f"L{cfg.L}"
    named = ["-".join(name for name, _ in cfg.both_cycles), length, f"s{recipe.seed}"]
    return runs.create(root, named, record, files, first, key)


def stepped(be: Backend, cfg: Config, rule: dict[str, float], *given: Any) -> Any:
    """one_step of the same arguments, by Backend.step. Raises Misuse for tokens that cfg has not: the step
    itself does not ask.
    """
    _, _, _, batches, *_ = given
    for inputs, targets, *_ in batches:
        tokens = inputs[-1] if cfg.encoder else inputs
        check_tokens(cfg, tokens)
        check_targets(cfg, tokens, targets)
    return be.step(one_step, be, cfg, rule, *given)


def one_step(
    be: Backend,
    cfg: Config,
    rule: dict[str, float],
    p: Arrays,
    m: Arrays,
    v: Arrays,
    batches: list[Any],
    numbers: Any,
    status: Any = None,
) -> Any:
    """Gradients of `batches`, then AdamW in place on p, m, v. Returns `status`, in which loss and norm are:
    optim.read_status reads it.

    `rule` and `numbers` are a Recipe's. Nothing waits for the device. Where the loss or a gradient is not
    finite, or `status` tells of an earlier step's, p, m and v stay as they are.
    """
    total: Any = None
    g: Arrays = {}
    computed = be.working(p)
    for inputs, targets, *place in batches:
        tape = Tape()
        leaves = tape.watch(computed)
        y, each = be.cross_entropy(predicted(cfg, leaves, inputs, *place, be=be), be.place(targets))
        xp = namespace(y.value)
        with be.branch() as beside:
            found = tape.gradients(y, xp.ones_like(y.value), beside=beside)
        new = {name: found[leaf] for name, leaf in leaves.items()}
        if len(batches) > 1 and computed is not p:  # sums are as wide as the parameters
            new = {name: a.astype(p[name].dtype) for name, a in new.items()}
        g = {name: g[name] + a for name, a in new.items()} if g else new
        mean = y.value.astype(xp.float64) if y.dtype.itemsize >= 4 else each.mean(dtype=xp.float64)
        total = mean if total is None else total + mean
    if len(batches) > 1:
        g, total = {name: a / len(batches) for name, a in g.items()}, total / len(batches)
    status, numbers = xp.zeros(3, xp.float64) if status is None else status, be.place(numbers)
    rate, count, clip = (numbers[k] for k in range(3))
    be.update(p, g, m, v, total, rate, count, clip, status, sizes=step_sizes(cfg), adamw=be.adamw, **rule)
    return status


def with_moments(params: Arrays) -> dict[str, Arrays]:
    """Weights "p", and moments "m" and "v" that are 0."""
    zeros = {name: np.zeros_like(a) for name, a in params.items()}
    return {"p": params, "m": zeros, "v": {name: a.copy() for name, a in zeros.items()}}


def as_stored(parts: dict[str, Arrays]) -> Arrays:
    """Weights and moments by their names in a checkpoint."""
    return {f"{kind}/{name}": to_host(a) for kind, part in parts.items() for name, a in part.items()}


def begin(
    run: runs.Run, cfg: Config, recipe: Recipe, say: Callable[[str], None]
) -> tuple[int, dict[str, Arrays]]:
    """Step, weights and moments to go on from: those of the newest checkpoint that verifies, or new ones.

    Raises Misuse where they do not fit cfg. Damaged metrics do not stop a run, and `say` is told: the steps
    after an older checkpoint, up to which they are whole, are done again, or else the lines that can be read
    remain.
    """
    new = init(cfg, recipe.seed, recipe.dtype)
    first: tuple[int, dict[str, Arrays]] | None = None
    said = ""
    for step, arrays, meta in run.good_checkpoints(say):
        stored = parts_of(run, cfg, arrays)
        parts = {kind: {name: part[name] for name in new} for kind, part in stored.items()}
        first = first or (step, parts)
        try:
            run.metrics.truncate(meta["metrics_bytes"], meta.get("metrics_sha256"))
        except Damaged as error:
            said = said or str(error)
        else:
            if said:
                say(f"{said}. It is whole up to step {step}, from where the run goes on")
            return step, parts
    if not first:
        if "parent" in run.record:
            what = f"{run.folder} has lost the weights that it began with"
            raise Damaged(f"{what}; begin a new run with --from {run.record['parent']['run']}")
        run.metrics.truncate(0)
        return 0, with_moments(new)
    count, copy = run.metrics.mend(first[0])
    kept = counted(count, "line that remains", "lines that remain")
    what = f"The run goes on from step {first[0]} with the {kept}; the others ARE LOST"
    say(f"{said}. {what}, and those that remain may be wrong. As it was found it is in {copy}")
    return first


def check_run(
    run: runs.Run, corpus: Lesson, be: Backend, say: Callable[[str], None]
) -> tuple[Config, Recipe]:
    """What a run's record says of model and training. Raises Misuse unless `corpus` is its text; `say` is
    told of what differs from when it began, and of a peak rate that is never reached.
    """
    cfg, record = model_of(run), run.record
    recipe = Recipe.from_json(record["recipe"])
    for words in differing(run):
        raise Misuse(f"{words}; a run goes on with what it began with")
    text = record["data"]["sha256"]
    if corpus.sha256 != text:
        digests = f"SHA-256 {text[:12]}, this is {corpus.sha256[:12]}"
        raise Misuse(f"{run.folder} was trained on another text ({digests}); give its --data")
    if differs := differences(record["environment"], environment(be)):
        say(f"this run began elsewhere: {differs}; it goes on, but perhaps not to the same bits")
    if recipe.warmup > recipe.steps:
        say(f"the peak rate is never reached: warm-up is {recipe.warmup} steps of {recipe.steps}")
    return cfg, recipe


def onwards(run: runs.Run, good: int) -> str:
    """How to go on after a divergence; `good` is the last good step on disk, 0 for none."""
    new = "begin a new run with a lower --rate or a lower --clip"
    if not good:
        return f"no good step is saved; {new}"
    saved = f"step {good} is saved in {run.folder}, with a finite loss"
    return f"{saved}: go on from it with --resume, or {new}"


def train(
    run: runs.Run,
    corpus: Lesson,
    be: Backend,
    *,
    say: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Train from wherever the run stands to its last step, yielding {"event": "start" | "step" | "stopped" |
    "done", ...}.

    `stopping` is asked after every step; once it is true the step is saved and "stopped" is the last record.
    Holds the run's lock. Raises Diverged on a loss or gradient that is not finite, with the last good step
    saved, and on such a validation loss, weight or moment. On a GPU weights and moments are looked at before
    each validation and save alone.
    """
    cfg, recipe = check_run(run, corpus, be, say)
    with run.lock():
        done, parts = begin(run, cfg, recipe, say)
        parts, status = {kind: be.place(part) for kind, part in parts.items()}, be.place(np.zeros(3))
        p = parts["p"]
        count = sum(a.size for a in p.values())
        yield {"event": "start", "step": done, "steps": recipe.steps, "parameters": count}

        def validated(p: Arrays, step: int) -> dict[str, float]:
            """The validation loss of the weights p after `step`, of a task also the share of answers that are
            exactly right. Raises Diverged for a loss that is not finite.
            """
            with np.errstate(all="ignore"):
                if isinstance(corpus, Exercise):
                    row = exact_match(cfg, p, corpus, TESTED, be=be)
                else:
                    text = corpus.valid[: recipe.valid_bytes + 1]
                    row, _, _ = score(cfg, p, text, cfg.L, Scoring(be=be))
            if not math.isfinite(row["loss"]):
                raise Diverged(f"step {step}: the validation loss is {row['loss']}; {onwards(run, saved)}")
            return {key: row[key] for key in ("loss", "bpb", "exact") if key in row}

        def last_good(step: int) -> int:
            """The last good step on disk, 0 for none: `step`, saved now unless it was, with nothing removed
            for it, where its weights are finite and give a finite loss, else one before. What is on disk of
            a later one goes to ckpt/bad/, for --resume would go on from it.
            """
            if step and saved != step:
                with contextlib.suppress(Diverged):
                    validated(p, step)
                    run.save(step, as_stored(parts), {}, keep=len(run.checkpoints) + 1)
            for good, arrays, _ in run.good_checkpoints(say):
                if not good:  # what a run with a parent begins with
                    break
                with contextlib.suppress(Diverged):
                    validated(be.place(parts_of(run, cfg, arrays)["p"]), good)
                    return good
                run.set_aside(good)
            return 0

        def launch(step: int) -> Callable[[], np.ndarray]:
            """Begin a step; calling the result waits for its status."""
            batches = [lesson(cfg, recipe, corpus, step, part) for part in range(recipe.accumulate)]
            with np.errstate(all="ignore"):  # what is not finite is found and named by the status
                numbers = recipe.numbers(step)
                return fetch(stepped(be, cfg, recipe.rule, *parts.values(), batches, numbers, status))

        tokens = recipe.batch * recipe.accumulate * cfg.L
        valid, spent, saved, stop = None, 0.0, done, False
        device, ahead = library(status) == "cupy", None
        for step in range(done + 1, recipe.steps + 1):
            validates = step % recipe.valid_every == 0 or step == recipe.steps
            saves = step % recipe.save_every == 0 or step == recipe.steps
            before = time.perf_counter()
            arrived = ahead or launch(step)
            # A device begins the next step before the status of this one is waited for, but where somebody
            # looks at the weights of this one.
            ahead = launch(step + 1) if device and not (stop or validates or saves) else None
            try:
                mean, norm = read_status(arrived(), p)
                if not ahead:
                    runs.check_finite(as_stored(parts))
            except Diverged as error:
                raise Diverged(f"step {step}: {error}; {onwards(run, last_good(step - 1))}") from error
            spent += time.perf_counter() - before
            rate = float(recipe.numbers(step)[0])
            line: dict[str, Any] = {"step": step, "loss": mean, "rate": rate, "norm": norm}
            if validates:
                valid = line["valid"] = validated(p, step)
            run.metrics.append(line)
            speed = (step - done) * tokens / spent
            stop = stop or stopping()
            if saves or (stop and not ahead):
                run.save(step, as_stored(parts), {})
                figures = {"tokens_per_s": speed, "seconds": spent, "time": time.time()}
                run.timing.append({"step": step, **figures})
                saved = step
            yield {"event": "step", **line, "tokens_per_s": speed, "saved": saved == step}
            if stop and saved == step < recipe.steps:
                yield {"event": "stopped", "step": step}
                return
        yield {"event": "done", "step": recipe.steps, "valid": valid or last_valid(run)}


def last_valid(run: runs.Run) -> dict[str, float] | None:
    """The newest validation in the metrics."""
    return next((line["valid"] for line in reversed(run.metrics.read()) if "valid" in line), None)
