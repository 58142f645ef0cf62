"""The training loop, as a generator of records. It knows nothing of encodings and draws no bars.

A step is a pure function of (weights, AdamW's moments, seed, step), so a resumed run needs no hidden state and ends with the same bits.
"""

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any, Literal, get_type_hints

import numpy as np

from peref import __version__, runs, share
from peref.backends import Backend
from peref.config import Config
from peref.data import Corpus, batch, check_length
from peref.encodings import fitting
from peref.errors import Damaged, Diverged, Misuse
from peref.evaluate import score
from peref.model import check_targets, check_tokens, logits, loss
from peref.optim import read, schedule
from peref.parameters import Arrays, check, init, step_sizes
from peref.tape import Tape
from peref.xp import fetch, library, namespace, to_host


@dataclass(frozen=True)
class Recipe:
    """How to train; with Config and the corpus, all that a run depends on.

    batch       sequences in a micro-batch; accumulate: micro-batches in a step
    rate        peak learning rate, reached after `warmup` steps and falling by a cosine to floor * rate at `steps`
    decay       decoupled, on linear maps only; clip: the longest global gradient taken as it is
    """

    steps: int = 500
    batch: int = 8
    accumulate: int = 1
    rate: float = 3e-3
    warmup: int = 50
    floor: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    save_every: int = 50
    valid_every: int = 100
    valid_bytes: int = 65536

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            object.__setattr__(self, name, fitting(name, getattr(self, name), kind))
        for name in ("steps", "batch", "accumulate", "save_every", "valid_every", "valid_bytes"):
            if getattr(self, name) < 1:
                raise Misuse(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("rate", "eps", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                whose = "AdamW's " if name == "eps" else ""
                raise Misuse(f"{whose}{name} is {getattr(self, name)}; expected a positive number")
        for name in ("floor", "beta1", "beta2", "decay"):
            if not 0 <= getattr(self, name) <= 1 or (name.startswith("beta") and getattr(self, name) == 1):
                raise Misuse(f"{name} is {getattr(self, name)}; expected a number from 0 to 1")
        if self.warmup < 0:
            raise Misuse(f"warmup is {self.warmup}; expected a number of steps, or 0 for none")
        if not 0 <= self.seed < 2**64:
            raise Misuse(f"seed is {self.seed}; expected 0 or more, of at most 64 bits")

    @property
    def rule(self) -> dict[str, float]:
        """What AdamW takes, the same in every step."""
        return {name: getattr(self, name) for name in ("decay", "beta1", "beta2", "eps")}

    def numbers(self, step: int) -> np.ndarray:
        """Learning rate, step and clip: what a recorded step reads from device memory. [3], float64."""
        rate = schedule(step, peak=self.rate, warmup=self.warmup, steps=self.steps, floor=self.floor)
        return np.array([rate, step, self.clip])

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Recipe":
        if unknown := set(data) - {f.name for f in fields(cls)}:
            raise Misuse(f"unknown settings of a run: {', '.join(sorted(unknown))}; was this written by a newer peref?")
        return cls(**data)


def environment(be: Backend) -> dict[str, Any]:
    """What the bits of a run depend on besides its settings."""
    return {
        "peref": __version__,
        "code": share.code(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": be.name,
        "skips": be.skips,
        **(of_kernels() if be.name == "numba" else of_device() if be.name.startswith("cuda") else of_blas()),
    }


def of_blas() -> dict[str, Any]:
    """The library that NumPy's matrix products are computed by, and with how many threads: these decide in which order it adds."""
    about: Any = np.show_config(mode="dicts")
    blas = about.get("Build Dependencies", {}).get("blas", {})
    return {"blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(), "threads": share.blas_threads()}


def of_kernels() -> dict[str, Any]:
    """What the kernels are made from, by and for; how many threads run them changes no bit."""
    from peref.backends.numba import host

    return {"numba": version("numba"), "kernels": host.digest(), "lanes": host.LANES}


def of_device() -> dict[str, Any]:
    """The device, and what computes on it."""
    from peref.backends.cuda import find, launch

    return {**find.about(), "kernels": launch.digest()}


def moved(began: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two environments, in words; "" for nothing."""
    keys = [key for key in {**here, **began} if began.get(key) != here.get(key)]
    return ", ".join(f"{key} {began.get(key, 'unknown')} -> {here.get(key, 'none')}" for key in keys)


def check_request(cfg: Config, recipe: Recipe, corpus: Corpus) -> None:
    """Raises Misuse for what cannot be trained: a model that reads both ways, a length that the encoding or the text does not reach."""
    if not cfg.causal:
        raise Misuse("next-token training needs a causal model; causal=False would let it read the answer")
    end, name = cfg.ends(recipe.dtype)
    if end < cfg.L:
        raise Misuse(f"{name} ends at length {end} in {recipe.dtype}, and the length to train on is {cfg.L}; ask for at most {end}")
    check_length(corpus, cfg.L)


def create(root: Any, cfg: Config, recipe: Recipe, corpus: Corpus, data: str, be: Backend, argv: list[str]) -> runs.Run:
    """A new run folder, once everything that can be refused has been. `data` is the name or path that `corpus` came from."""
    check_request(cfg, recipe, corpus)
    with np.errstate(all="ignore"):
        trial = logits(cfg, be.place(init(cfg, recipe.seed, recipe.dtype)), np.zeros((1, min(cfg.L, 2)), int), be=be)
    if not np.isfinite(to_host(trial)).all():
        raise Misuse(f"the logits of the new model are not finite; check the options of {cfg.pe} and eps {cfg.eps}")
    record = {
        "config": cfg.to_json(),
        "recipe": asdict(recipe),
        "steps": recipe.steps,
        "data": {"name": corpus.name, "spec": data, "sha256": corpus.sha256, "train": len(corpus.train), "valid": len(corpus.valid)},
        "environment": environment(be),
        "argv": argv,
    }
    named = ["-".join(name for name, _ in cfg.pe), f"L{cfg.L}", f"s{recipe.seed}"]
    return runs.create(root, named, record)


def stepped(be: Backend, cfg: Config, rule: dict[str, float], p: Arrays, m: Arrays, v: Arrays, batches: list[Any], numbers: Any, word: Any) -> Any:
    """one_step by Backend.step. Raises Misuse for tokens that cfg has not: a recorded step, when it is replayed, asks no more."""
    for inputs, targets in batches:
        check_tokens(cfg, inputs)
        check_targets(cfg, inputs, targets)
    return be.step(one_step, be, cfg, rule, p, m, v, batches, numbers, word)


def one_step(
    be: Backend, cfg: Config, rule: dict[str, float], p: Arrays, m: Arrays, v: Arrays, batches: list[Any], numbers: Any, word: Any = None
) -> Any:
    """Gradients of `batches`, then AdamW in place on p, m, v. Returns `word`, in which loss and norm are: optim.read reads it.

    `rule` and `numbers` are a Recipe's. Nothing waits for the device. Where the loss or a gradient is not finite, or `word` tells
    of an earlier step's, p, m and v stay as they are.
    """
    total: Any = None
    g: Arrays = {}
    computed = be.working(p)
    for inputs, targets in batches:
        tape = Tape()
        leaves = tape.watch(computed)
        y, each = loss(cfg, leaves, inputs, targets, be=be)
        xp = namespace(y.value)
        found = tape.gradients(y, xp.ones_like(y.value))
        new = {name: found[leaf] for name, leaf in leaves.items()}
        if len(batches) > 1 and computed is not p:  # sums are as wide as the parameters
            new = {name: a.astype(p[name].dtype) for name, a in new.items()}
        g = {name: g[name] + a for name, a in new.items()} if g else new
        mean = y.value.astype(xp.float64) if y.dtype.itemsize >= 4 else each.mean(dtype=xp.float64)
        total = mean if total is None else total + mean
    if len(batches) > 1:
        g, total = {name: a / len(batches) for name, a in g.items()}, total / len(batches)
    word, numbers = xp.zeros(3, xp.float64) if word is None else word, be.place(numbers)
    be.update(p, g, m, v, total, numbers[0], numbers[1], numbers[2], word, sizes=step_sizes(cfg), adamw=be.adamw, **rule)
    return word


def flat(p: Arrays, m: Arrays, v: Arrays) -> dict[str, np.ndarray]:
    """As one checkpoint holds them."""
    return {f"{kind}/{name}": to_host(a) for kind, arrays in (("p", p), ("m", m), ("v", v)) for name, a in arrays.items()}


def begin(run: runs.Run, cfg: Config, recipe: Recipe, say: Callable[[str], None]) -> tuple[int, Arrays, Arrays, Arrays]:
    """Step, weights and moments to go on from: those of the newest checkpoint that verifies, or new ones.

    Raises Misuse where they do not fit cfg. Lines that metrics.jsonl has lost do not stop a run; `say` is told.
    """
    found = run.newest_checkpoint(say)
    if found is None:
        run.truncate_metrics(0)
        p = init(cfg, recipe.seed, recipe.dtype)
        return 0, p, {n: np.zeros_like(a) for n, a in p.items()}, {n: np.zeros_like(a) for n, a in p.items()}
    step, arrays, meta = found
    parts = [{name[2:]: a for name, a in arrays.items() if name.startswith(f"{kind}/")} for kind in "pmv"]
    for part in parts:
        check(cfg, part)
    try:
        run.truncate_metrics(meta["metrics_bytes"])
    except Damaged as error:
        kept = run.mend_metrics(step)
        say(f"{error}. The run goes on from step {step} with the {kept} lines that remain; the earlier ones ARE LOST")
    order = list(init(cfg, recipe.seed, recipe.dtype))
    p, m, v = ({name: part[name] for name in order} for part in parts)
    return step, p, m, v


def train(
    run: runs.Run,
    corpus: Corpus,
    be: Backend,
    *,
    say: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[dict[str, Any]]:
    """Train from wherever the run stands to its last step, yielding {"event": "start" | "step" | "stopped" | "done", ...}.

    `stopping` is asked after every step; once it is true the step is saved and "stopped" is the last record. Holds the run's lock.
    Raises Diverged on a loss or gradient that is not finite, with the last good step saved, and on such a validation loss.
    """
    record = run.record
    cfg, recipe = Config.from_json(record["config"]), Recipe.from_json(record["recipe"])
    if corpus.sha256 != record["data"]["sha256"]:
        raise Misuse(
            f"{run.folder} was trained on another text (SHA-256 {record['data']['sha256'][:12]}, this is {corpus.sha256[:12]}); give its --data"
        )
    if differs := moved(record["environment"], environment(be)):
        say(f"this run began elsewhere: {differs}; it goes on, but perhaps not to the same bits")
    if recipe.warmup > recipe.steps:
        say(f"the peak rate is never reached: warm-up is {recipe.warmup} steps of {recipe.steps}")
    with run.lock():
        done, p, m, v = begin(run, cfg, recipe, say)
        p, m, v, word = be.place(p), be.place(m), be.place(v), be.place(np.zeros(3))
        yield {"event": "start", "step": done, "steps": recipe.steps, "parameters": sum(a.size for a in p.values())}
        valid, spent, tokens = None, 0.0, recipe.batch * recipe.accumulate * cfg.L
        text, saved = corpus.valid[: recipe.valid_bytes + 1], done
        under_way: list[tuple[int, float, Callable]] = []  # steps whose word was not read: one where a device may still be at it, else none
        behind = 1 if library(word) == "cupy" else 0
        validates = lambda step: step % recipe.valid_every == 0 or step == recipe.steps
        saves = lambda step: step % recipe.save_every == 0 or step == recipe.steps
        for step in range(done + 1, recipe.steps + 1):
            before = time.perf_counter()
            numbers = recipe.numbers(step)
            batches = [batch(corpus.train, recipe.seed, step, batch=recipe.batch, length=cfg.L, part=part) for part in range(recipe.accumulate)]
            with np.errstate(all="ignore"):  # what is not finite is found and named by its word
                under_way.append((step, float(numbers[0]), fetch(stepped(be, cfg, recipe.rule, p, m, v, batches, numbers, word))))
            stop = False
            while under_way and (len(under_way) > behind or stop or saves(step) or validates(step)):
                at, rate, arrived = under_way.pop(0)
                try:
                    mean, norm = read(arrived(), p)
                except Diverged as error:
                    if saved < at - 1:
                        run.save(at - 1, flat(p, m, v), {})
                    last = f"step {at - 1} is saved in {run.folder}" if at > 1 else "no step is saved yet"
                    raise Diverged(f"step {at}: {error}; {last}; try a lower --rate or a lower --clip") from error
                spent += time.perf_counter() - before
                line: dict[str, Any] = {"step": at, "loss": mean, "rate": rate, "norm": norm}
                if validates(at):
                    with np.errstate(all="ignore"):
                        row, _, _ = score(cfg, p, text, cfg.L, be=be)
                    if not math.isfinite(row["loss"]):
                        last = f"step {saved} is the last one saved in {run.folder}" if saved else "no step is saved yet"
                        raise Diverged(f"step {at}: the validation loss is {row['loss']}; {last}; try a lower --rate")
                    valid = line["valid"] = {"loss": row["loss"], "bpb": row["bpb"]}
                run.append_metrics(line)
                speed = (at - done) * tokens / spent
                stop = stop or stopping()
                if saves(at) or (stop and at == step):
                    run.save(at, flat(p, m, v), {})
                    run.append_timing({"step": at, "tokens_per_s": speed, "seconds": spent, "time": time.time()})
                    saved = at
                yield {"event": "step", **line, "tokens_per_s": speed, "saved": saved == at}
                before = time.perf_counter()
            if stop and step < recipe.steps:
                yield {"event": "stopped", "step": step}
                return
        yield {"event": "done", "step": recipe.steps, "valid": valid or last_valid(run)}


def last_valid(run: runs.Run) -> dict[str, float] | None:
    """The newest validation in the metrics."""
    return next((line["valid"] for line in reversed(run.read_metrics()) if "valid" in line), None)
