"""train: from a text to a run folder, with a bar on the way."""

import contextlib
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from peref import data, share
from peref import train as loop
from peref.backends import Backend
from peref.cli import completion, found, options, text
from peref.cli.options import NEWEST, Document, Given, computing, of_model, of_recipe, option, section
from peref.cli.progress import Progress
from peref.cli.signals import Interrupted
from peref.config import SHAPES, Config, shaped
from peref.errors import Damaged, Misuse, counted
from peref.evaluate import in_units, model_of, weights_of
from peref.masking import CHOSEN
from peref.recipe import Recipe
from peref.runs import Run, newest, open_run
from peref.settings import choose, model_fields
from peref.tasks import OF_PAIRS, TASKS, Exercise, Lesson
from peref.warm_start import start, trained_on

OF_ENCODER = "encoder."  # how a --set for it begins
CHANGED = {"drawn": "drawn anew", "left": "left out"}
EVERY = 50  # steps between two plain lines
FIRST_SHAPE = next(iter(SHAPES))
FIRST_CYCLE = ",".join(name for name, _ in Config.pe)
# what may be said again when a run goes on
FREE = ("data", "backend", "threads", "every_tile", "no_record", "runs", "resume", "as_json")
Marks = dict[str, float]  # yardsticks, by name
Work = tuple[Run, Lesson, Marks, Backend]
# model, recipe, what is trained on and where that is, perhaps the weights to begin with
New = tuple[Any, ...]
RUN_OR_NEWEST: dict[str, Any] = {"metavar": "[RUN]", "is_flag": False, "flag_value": NEWEST}


@options.command("train")
@section(
    "Encoding",
    options.encoding_option(
        "--pe",
        "An encoding, or several with commas, a cycle over the layers; + joins those of one layer. "
        f"`{share.program()} list` shows all, ./FILE.py is one of your own.  [default: {FIRST_CYCLE}]",
    ),
    options.set_option,
    option(
        "--from parent",
        "Start with weights, model and text of RUN, or of the newest run; other options override these.",
        options.RUN,
        **RUN_OR_NEWEST,
    ),
    option("--new-parameters", "With --from: initialize again what does not fit.", bool),
    options.encoding_option(
        "--encoder",
        "With --task: put an encoder with this encoding, which reads both ways, before the decoder. "
        "--set encoder.NAME=VALUE is for it.",
    ),
)
@section(
    "Model",
    option(
        "--shape",
        f"Defaults for the settings below: {' or '.join(SHAPES)}.",
        options.one_of(SHAPES),
        default=FIRST_SHAPE,
    ),
    *map(of_model, ("layers", "C", "H", "G", "D", "F", "activation", "norm")),
    option(
        "--model",
        "Any field of the model, as docs/cli.md lists them: norm_place=after, residual=parallel.",
        options.Kind("NAME=VALUE", completion.fields_of_models),
        multiple=True,
    ),
    *map(of_model, ("eps", "biases", "qkv_bias", "qk_norm", "tied")),
    of_model(
        "causal",
        "Whether a token sees only the past. Else the model learns to fill in masked bytes.",
    ),
    of_model("window"),
)
@section(
    "Training",
    of_model("L", "Sequence length in tokens (bytes); of copy and reverse, letters of the longest source."),
    options.task_option(f"Train on a task instead of text: {', '.join(TASKS)}."),
    options.data_option(f"A name from `data`, a text file or a folder of them.  [default: {data.DEFAULT}]"),
    *map(of_recipe, ("steps", "batch", "accumulate", "rate", "warmup", "floor", "beta1", "beta2", "eps")),
    *map(of_recipe, ("decay", "clip", "seed", "dtype")),
    of_recipe("positions", metavar="HOW:N"),
)
@section("Validation", of_recipe("valid_every"), of_recipe("valid_bytes"))
@section("Computing", computing, option("--no-record", "cuda: use no CUDA graphs; changes no number.", bool))
@section(
    "Output",
    options.runs_folder,
    of_recipe("save_every"),
    option("--resume", "Go on with RUN, or with the newest unfinished run.", options.RUN, **RUN_OR_NEWEST),
)
def command(given: Given) -> Document:
    """Train a small language model with an encoding, or go on with a run that was interrupted."""
    began = time.perf_counter()
    # the loop looks at every loss and gradient itself, and names the one that is not finite
    with np.errstate(all="ignore"), never_empty(Path(given.runs)):
        work = begin(given) if given.resume is None else go_on(given)
        run, corpus, *_ = work
        try:
            with given.signals.gently():
                done = follow(*work, given)
        except Interrupted as end:
            again = text.command("train", "--resume", run.folder, *files_of(run))
            details = {"run": str(run.folder), **end.details}
            raise Interrupted(end.number, f"{end}; go on with: {again}", **details) from None
        except Exception:
            if given.resume is None and not run.begun:
                shutil.rmtree(run.folder, ignore_errors=True)  # there is nothing to go on with
            raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    figures = {**done, "peak_rss": peak, "seconds": time.perf_counter() - began}
    speed, took = f"{figures['tokens_per_s']:,.0f} tokens/s", text.duration(figures["seconds"])
    said = {
        "validation": f"loss {in_bits(figures['val'], 4, unit_of(figures))}",
        "figures": f"{speed}, peak memory {text.size(peak)}, {took} in all",
        "run": figures["run"],
        "next": next_command(run, corpus, given),
    }
    return figures, said


@contextlib.contextmanager
def never_empty(folder: Path) -> Iterator[None]:
    """A folder that is made inside is gone afterwards if nothing is in it."""
    new = not folder.exists()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if new:
                folder.rmdir()


def begin(given: Given) -> Work:
    """A new run."""
    said, more = given.fields("model"), model_fields(given.model)
    if twice := sorted(said.keys() & more.keys()):
        raise Misuse(f"--model {twice[0]} and an option of its own say it twice; leave out one of them")
    said |= more
    if given.parent is not None:
        cfg, recipe, corpus, spec, *weights = from_weights(given, said)
    elif given.new_parameters:
        raise Misuse("--new-parameters draws anew what weights of a run do not have; add --from RUN")
    else:
        settings = [one for one in given.settings if given.encoder is None or not one.startswith(OF_ENCODER)]
        said |= choose(FIRST_CYCLE if given.pe is None else given.pe, settings)
        new = on_text if given.task is given.encoder is None else on_task
        cfg, recipe, corpus, spec, *weights = new(given, said)
    loop.check_recipe(cfg, recipe, corpus, given.backend)
    be = found.backend_of(given, recipe.dtype, not given.no_record)
    marks = yardsticks_of(corpus)  # before there is a run: they take long, and may be interrupted
    run = loop.create_run(given.runs, cfg, recipe, corpus, spec, be, sys.argv[1:], *weights)
    return run, corpus, marks, be


def from_weights(given: Given, said: dict[str, Any]) -> New:
    """With the weights of another run, but for the fields that are said."""
    given.refuse("--from takes the model of a run", "shape", "task", "encoder")
    run = newest(given.runs) if given.parent == NEWEST else open_run(given.parent)
    parent = found.weights_found(run, pe=given.pe)
    fields, usual, corpus = said, {"dtype": parent.dtype.name}, found.read_by(run, given.data)
    if isinstance(corpus, Exercise):
        of_text_alone(given, fields)
        corpus = replace(corpus, longest=fields.get("L", corpus.longest))
        fields, usual = fields | {"L": corpus.tokens}, corpus.task.recipe | usual
    cfg = trained_on(parent.cfg, given.pe, given.settings, fields)
    recipe = Recipe(**usual | given.fields("recipe"))
    try:
        weights = start(run, parent.params, parent.step, cfg, recipe, anew=given.new_parameters)
    except Misuse:
        if parent.step in run.checkpoints:
            raise
        return from_weights(given, said)  # whoever trains has saved newer ones and removed this one
    spec = run.record["data"]["spec"] if given.data is None else data.lasting(given.data)
    return cfg, recipe, corpus, spec, weights


def on_text(given: Given, said: dict[str, Any]) -> New:
    cfg = shaped(given.shape, **said)
    return cfg, Recipe(**given.fields("recipe")), *found.new_text(given)


def of_text_alone(given: Given, said: dict[str, Any]) -> None:
    """Raises Misuse for options that a task has no use for."""
    unused = given.recipe_valid_bytes, said.get("causal"), said.get("cross")
    if any(value is not None for value in unused):
        raise Misuse("a task says itself who sees what; leave out --valid-bytes, --causal and cross")


def on_task(given: Given, said: dict[str, Any]) -> New:
    """Of an encoder and a decoder, or of a decoder alone."""
    if given.task is None:
        raise Misuse("an encoder is trained on a task; add --task reverse")
    of_text_alone(given, said)
    exercise, spec = found.new_exercise(given, said.pop("L", None), alone=given.encoder is None)
    usual = exercise.task.recipe if exercise.alone else OF_PAIRS
    recipe, said = Recipe(**usual | given.fields("recipe")), said | {"L": exercise.tokens}
    cfg = shaped(given.shape, **exercise.task.model | said) if exercise.alone else pair_of(given, said)
    return cfg, recipe, exercise, spec


def pair_of(given: Given, said: dict[str, Any]) -> Config:
    """The encoder and the decoder that the options mean."""
    of_both = {name: value for name, value in said.items() if name not in ("R", "layout")}
    decoder = shaped(given.shape, **said | {"cross": True})
    mine = [one for one in given.settings if one.startswith(OF_ENCODER)]
    try:
        before = choose(given.encoder, mine, OF_ENCODER)
        return replace(decoder, encoder=shaped(given.shape, **of_both | before | {"causal": False}))
    except Misuse as error:
        raise Misuse(f"--encoder {given.encoder}: {error}") from None


def go_on(given: Given) -> Work:
    """The run that --resume means. Raises Misuse for settings that a run fixes."""
    named = None if given.resume == NEWEST else given.resume
    run, _ = found.named_or_newest(given, named, "--resume ", having_checkpoint=False, unfinished=True)
    free = {"pe"} if found.names_files(run, given.pe) else set()
    if fixed := given.said(but={*FREE} | free):
        what = f"a run goes on with the settings it began with; leave out {', '.join(fixed)}"
        raise Misuse(f"{what}, or begin a new run without --resume")
    model_of(run)
    if run.finished and verifies(run):
        raise already_finished(run)
    corpus = found.read_by(run, given.data)
    dtype = Recipe.from_json(run.record["recipe"]).dtype
    return run, corpus, yardsticks_of(corpus), found.backend_of(given, dtype, not given.no_record)


def already_finished(run: Run) -> Misuse:
    if not run.record["steps"]:  # what was imported
        what, use = "train on from it with", text.command("train", "--from", run.folder, "--data", "TEXT")
        if model_of(run).encoder:
            what, use = "use it with", text.command("generate", run.folder, "--prompt", "TEXT")
        return Misuse(f"{run.folder} was imported, not trained here; {what}: {use}")
    look = text.command("eval", run.folder, *files_of(run))
    return Misuse(f"{run.folder} is finished, at step {run.record['steps']}; evaluate it with: {look}")


def yardsticks_of(corpus: Lesson) -> Marks:
    """What there is to beat; of a task, and of a tokenizer's tokens, nothing."""
    if isinstance(corpus, Exercise) or corpus.train.dtype != np.uint8:
        return {}
    return data.yardsticks(corpus.train, corpus.valid)


def files_of(run: Run) -> list[str]:
    """What a command on the run says of the files of its encodings."""
    return [] if all(about["package"] for about in run.own.values()) else ["--pe", run.cycle]


def verifies(run: Run) -> bool:
    """Whether the last checkpoint verifies; a run whose last one was damaged can go on from the one
    before.
    """
    try:
        return bool(weights_of(run))
    except Damaged:
        return False


def follow(run: Run, corpus: Lesson, marks: Marks, be: Backend, given: Given) -> dict[str, Any]:
    """Train, saying how it goes; the figures at the end. Raises Interrupted once the last step is saved
    after a signal.
    """
    bar: Progress  # from the step on at which the run stands
    records = loop.train(run, corpus, be, say=given.note, stopping=lambda: bar.stopping())
    start = next(records)
    if start["step"] == start["steps"]:  # by somebody else, since it was looked at without the lock
        raise already_finished(run)
    introduce(run, corpus, marks, be, start, given)
    speed, steps, valid, unit = 0.0, start["steps"], None, unit_of(run.record)
    with given.progress(steps, "step", start=start["step"], every=EVERY) as bar:
        for record in records:
            valid = record.get("valid", valid)
            if record["event"] == "step":
                speed, nats = record["tokens_per_s"], record["loss"]
                bar.to(record["step"], f"loss {in_bits(in_units(nats), 3, unit)}, {speed:,.0f} tokens/s")
                if "valid" in record and record["step"] < steps:
                    bar.line(f"step {record['step']:,}: validation loss {in_bits(valid, 4, unit)}")
            elif record["event"] == "stopped":
                said = f"stopped after step {record['step']:,} of {steps:,}, which is saved"
                number = given.signals.asked or signal.SIGPIPE
                raise Interrupted(number, said, step=record["step"], steps=steps)
    done = {"run": str(run.folder), "step": steps, "steps": steps, "val": valid}
    done |= {"yardsticks": marks, "tokens_per_s": speed, "parameters": start["parameters"]}
    done |= {"backend": be.name, "plain": be.plain()}
    return done | {key: run.record[key] for key in ("data", "config")}


def in_bits(loss: Any, digits: int, unit: str = "byte") -> str:
    exact = f", {loss['exact']:.0%} of answers exactly right" if "exact" in loss else ""
    return f"{loss['loss']:.4f}, {loss['bpb']:.{digits}f} bits/{unit}{exact}"


def unit_of(record: dict[str, Any]) -> str:
    """What a loss is of."""
    if "longest" in record["data"] or record["config"].get("V", 256) != 256:
        return "token"
    return "byte" if record["config"]["causal"] else "masked byte"


def introduce(
    run: Run, corpus: Lesson, marks: Marks, be: Backend, start: dict[str, Any], given: Given
) -> None:
    """What runs, on what, where, and what there is to beat."""
    say = given.say
    cfg, recipe = model_of(run), Recipe.from_json(run.record["recipe"])
    decoder = cfg.decoder
    like_it = f"; an encoder like it of {cfg.encoder.layers}" if cfg.encoder else ""
    say("model", f"{start['parameters']:,} parameters: {sizes_of(decoder)}{like_it}")
    for label, words in found.cycles(cfg).items():
        say(label, words)
    if parent := run.record.get("parent"):
        changed = [f"{counted(len(parent[k]), 'tensor')} {w}" for k, w in CHANGED.items() if parent[k]]
        say("weights", ", ".join([f"{parent['run']}, step {parent['step']:,}", *changed]))
    a_step = f"{recipe.batch} x {cfg.L}" + (f" x {recipe.accumulate}" if recipe.accumulate > 1 else "")
    tokens = f"{counted(recipe.batch * recipe.accumulate * cfg.L, 'token')} a step ({a_step})"
    how = f"rate {recipe.rate:g}, seed {recipe.seed}, {recipe.dtype}"
    masked = f", {CHOSEN:.0%} of them asked as masked tokens" if not decoder.causal else ""
    drawn = f", positions {recipe.positions}" if recipe.positions else ""
    say("training", f"{counted(recipe.steps, 'step')}, {tokens}{masked}{drawn}, {how}")
    say("backend", text.chosen(be.name, given.backend))
    if isinstance(corpus, Exercise):
        what = f"{corpus.task.words}; lengths of {corpus.task.shortest:,} to {corpus.longest:,}"
        say("task", f"{corpus.name}: {what}, tested on {loop.TESTED} held-out ones of {corpus.longest:,}")
    else:
        size = text.size if corpus.train.dtype == np.uint8 else lambda n: counted(n, "token")
        sizes = f"{size(corpus.train.size)} to train on, {size(corpus.valid.size)} held out"
        say("data", f"{corpus.name}: {corpus.source}; {sizes}")
    if marks and decoder.causal:
        bpb = {"unigram": "unigram_bpb", "bigram": "bigram_bpb", "xz -9": "xz_bpb"}
        beat = ", ".join(f"{name} {marks[key]:.3f}" for name, key in bpb.items())
        say("yardsticks", f"{beat} bits/byte")
    say("run", f"{run.folder}" + (f", going on after step {start['step']:,}" if start["step"] else ""))


def sizes_of(cfg: Config) -> str:
    """The sizes of a model, and what is other than in most."""
    shared = f" ({cfg.G} key-value)" if cfg.G not in (None, cfg.H) else ""
    heads = f"{counted(cfg.H, 'head')} of {cfg.D}{shared}"
    feeds = f"feed-forward {cfg.F}, {cfg.norm} norm, {cfg.activation}" if cfg.F else "no feed-forward"
    shape = f"{counted(cfg.layers, 'layer')}, width {cfg.C}, {heads}, {feeds}"
    shape += "".join(f", {name} {value}" for name, value in cfg.unusual.items())
    return f"{shape}, {'tied' if cfg.tied else 'untied'} head"


def next_command(run: Run, corpus: Lesson, given: Given) -> str:
    """The evaluation that suits the run that has just ended."""
    where: list[Any] = [run.folder] if given.said("resume", "runs") else []
    if isinstance(corpus, Exercise):
        which = where or ["--task", corpus.name]
        return text.command("eval", *which, "--len", str(2 * corpus.longest), *files_of(run))
    cfg = Config.from_json(run.record["config"])
    length = found.reach(cfg, Recipe.from_json(run.record["recipe"]).dtype)
    length = length if length < corpus.valid.size else cfg.L
    return text.command("eval", *where, "--len", str(length), *files_of(run))
