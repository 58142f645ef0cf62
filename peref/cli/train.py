"""train: from a text to a run folder, with a bar on the way."""

import contextlib
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from peref import data, share
from peref import train as loop
from peref.backends import Backend
from peref.cli import completion, options, text
from peref.cli.completion import RUNS
from peref.cli.found import Say, backend_of, exercise_of, find_trained, named_or_newest, reach, run_text
from peref.cli.options import NEWEST, of_model, of_recipe, picked, section
from peref.cli.progress import Progress, aside
from peref.cli.signals import Interrupted, Signals
from peref.config import SHAPES, Config, shaped
from peref.errors import Damaged, Misuse, counted
from peref.evaluate import in_units, model_of, weights_of
from peref.masking import CHOSEN
from peref.pair import Pair
from peref.recipe import Recipe
from peref.runs import Run
from peref.settings import choose, model_fields
from peref.tasks import OF_PAIRS, TASKS, Exercise
from peref.warm_start import Start, start, trained_on

OF_ENCODER = "encoder."  # how a --set for it begins
CHANGED = {"drawn": "drawn anew", "left": "left out"}
EVERY = 50  # steps between two plain lines
FIRST_SHAPE = next(iter(SHAPES))
SHAPE_WORDS = f"{' or '.join(SHAPES)}.  [default: {FIRST_SHAPE}]"
FIRST_CYCLE = ",".join(name for name, _ in Config.pe)
# what may be said again when a run goes on
FREE = ("data", "backend", "threads", "every_tile", "no_record", "runs", "resume", "as_json")


@click.command("train", cls=options.Command)
@section(
    "Encoding",
    options.encoding_option(
        "The encoding, or a cycle over the layers; + between those that stand in one layer; "
        f"`{share.program()} list` shows all, "
        f"./FILE.py is one of your own.  [default: {FIRST_CYCLE}]"
    ),
    options.set_option,
    click.option(
        "--from",
        "parent",
        metavar="[RUN]",
        is_flag=False,
        flag_value=NEWEST,
        shell_complete=completion.runs,
        help="Begin with the weights and the model of RUN, or of the newest run, but for what other options "
        "say.",
    ),
    click.option(
        "--new-parameters", is_flag=True, default=None, help="With --from: draw anew what does not fit."
    ),
    options.encoding_option(
        "Put an encoder with this encoding, which reads both ways, before the decoder; with --task. "
        "--set encoder.NAME=VALUE is for it.",
        dest="encoder",
        option="--encoder",
    ),
)
@section(
    "Model",
    options.name_option("--shape", SHAPES, f"Defaults for the settings below: {SHAPE_WORDS}"),
    of_model("--layers", "layers", "Number of layers."),
    of_model("--width", "C", "Width of the model (hidden size)."),
    of_model("--heads", "H", "Number of query heads."),
    of_model("--kv-heads", "G", "Number of key-value heads.", said="half the heads"),
    of_model("--head-width", "D", "Width of each head.", said="width / heads"),
    of_model("--ff", "F", "Width of the feed-forward layers.", said="8/3 of the width, 4 for gelu"),
    of_model("--activation", "activation", "Activation of the feed-forward layers: swiglu, gelu, relu."),
    of_model("--norm", "norm", "Normalization: rms or layer."),
    click.option(
        "--model",
        metavar="NAME=VALUE",
        multiple=True,
        shell_complete=completion.fields_of_models,
        help="Any field of the model, as docs/cli.md lists them: norm_place=after, residual=parallel.",
    ),
    of_model("--norm-eps", "eps", "Epsilon of the normalization."),
    of_model("--biases/--no-biases", "biases", "Biases in every linear layer except the head."),
    of_model(
        "--qkv-bias/--no-qkv-bias", "qkv_bias", "Biases in the projections to q, k and v.", said="as --biases"
    ),
    of_model("--qk-norm/--no-qk-norm", "qk_norm", "RMSNorm over each head of q and k."),
    of_model("--tied/--untied", "tied", "Whether the head shares the weights of the token embedding."),
    of_model(
        "--causal/--no-causal",
        "causal",
        "Whether a token sees the past alone. Those that see both sides learn to fill in masked bytes.",
    ),
    of_model(
        "--window", "window", "Sliding window: the keys that a query sees, itself included.", said="all"
    ),
)
@section(
    "Training",
    of_model(
        "--len", "L", "Sequence length in tokens (bytes); of copy and reverse, letters of the longest source."
    ),
    options.task_option(f"Train on a task instead of text: {', '.join(TASKS)}."),
    options.data_option(f"A name from `data`, a text file or a folder of them.  [default: {data.DEFAULT}]"),
    of_recipe("--steps", "steps", "Optimizer steps."),
    of_recipe("--batch", "batch", "Batch size: sequences in a micro-batch."),
    of_recipe("--accumulate", "accumulate", "Gradient accumulation: micro-batches in a step."),
    of_recipe("--rate", "rate", "Peak learning rate."),
    of_recipe("--warmup", "warmup", "Warm-up steps, up to the peak learning rate."),
    of_recipe("--floor", "floor", "Final learning rate, as a fraction of the peak."),
    of_recipe("--beta1", "beta1", "AdamW: decay rate of the first moment."),
    of_recipe("--beta2", "beta2", "AdamW: decay rate of the second moment."),
    of_recipe("--eps", "eps", "AdamW: epsilon."),
    of_recipe("--decay", "decay", "Weight decay, of the linear layers alone."),
    of_recipe("--clip", "clip", "Gradient-norm clip."),
    of_recipe("--seed", "seed", "Random seed, of weights and batches."),
    of_recipe("--dtype", "dtype", "float32 or float64."),
    of_recipe(
        "--positions",
        "positions",
        "Draw positions: random:N (sorted, below N) or pose:N (counted, with one skip, below N).",
        said="counted from 0",
        metavar="HOW:N",
    ),
)
@section(
    "Validation",
    of_recipe("--valid-every", "valid_every", "Steps between validations."),
    of_recipe("--valid-bytes", "valid_bytes", "Bytes of held-out text in each validation."),
)
@section(
    "Computing", options.computing, options.flag("--no-record", "cuda: replay no CUDA graph; changes no bit.")
)
@section(
    "Output",
    options.runs_folder,
    of_recipe("--save-every", "save_every", "Steps between checkpoints."),
    click.option(
        "--resume",
        metavar="[RUN]",
        is_flag=False,
        flag_value=NEWEST,
        shell_complete=completion.runs,
        help="Go on with RUN, or with the newest unfinished run.",
    ),
    options.as_json,
)
@click.pass_context
@options.together
def command(ctx: click.Context, given: SimpleNamespace) -> None:
    """Train a small language model with an encoding, or go on with a run that was interrupted."""
    began = time.perf_counter()
    signals: Signals = ctx.obj
    out = sys.stderr if given.as_json else sys.stdout
    say = lambda name, what: aside(text.labelled(name, what), out)
    # the loop looks at every loss and gradient itself, and names the one that is not finite
    with np.errstate(all="ignore"), never_empty(Path(RUNS if given.runs is None else given.runs)):
        work = begin(given, say) if given.resume is None else go_on(ctx, given, say)
        try:
            with signals.gently():
                done = follow(work, given, signals, say)
        except Interrupted as end:
            again = text.command("train", "--resume", work.run.folder, *files_of(work.run))
            details = {"run": str(work.run.folder), **end.details}
            raise Interrupted(end.number, f"{end}; go on with: {again}", **details) from None
        except Exception:
            if given.resume is None and not work.run.begun:
                shutil.rmtree(work.run.folder, ignore_errors=True)  # there is nothing to go on with
            raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    figures = {**done, "peak_rss": peak, "seconds": time.perf_counter() - began}
    text.emit(given.as_json, figures, figure_lines(figures, next_command(work, given)))


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


def figure_lines(figures: dict[str, Any], then: str) -> Iterator[str]:
    """What came of it, for people."""
    speed, seconds = f"{figures['tokens_per_s']:,.0f} tokens/s", text.duration(figures["seconds"])
    yield text.labelled("validation", f"loss {in_bits(figures['val'], 4, unit_of(figures))}")
    yield text.labelled("figures", f"{speed}, peak memory {text.size(figures['peak_rss'])}, {seconds} in all")
    yield text.labelled("run", figures["run"])
    yield text.labelled("next", then)


@dataclass(frozen=True)
class Work:
    """A run, its text or task, the yardsticks of a text, and what computes."""

    run: Run
    corpus: data.Corpus | Exercise
    marks: dict[str, float]
    be: Backend


def begin(given: SimpleNamespace, say: Say) -> Work:
    """A new run."""
    said, more = picked("model", vars(given)), model_fields(given.model)
    if twice := sorted(said.keys() & more.keys()):
        raise Misuse(f"--model {twice[0]} and an option of its own say it twice; leave out one of them")
    if given.parent is not None:
        return begin_from(given, said | more, say)
    if given.new_parameters:
        raise Misuse("--new-parameters draws anew what weights of a run do not have; add --from RUN")
    settings = [one for one in given.settings if given.encoder is None or not one.startswith(OF_ENCODER)]
    said |= more | choose(FIRST_CYCLE if given.pe is None else given.pe, settings)
    if given.task is not None or given.encoder is not None:
        return begin_task(given, said, say)
    cfg = shaped(FIRST_SHAPE if given.shape is None else given.shape, **said)
    spec = data.DEFAULT if given.data is None else given.data
    recipe = Recipe(**picked("recipe", vars(given)))
    return begin_on(given, cfg, recipe, data.corpus(spec), data.lasting(spec), say)


def begin_from(given: SimpleNamespace, said: dict[str, Any], say: Say) -> Work:
    """A new run with the weights of another, but for the fields that are said."""
    others = {"--shape": given.shape, "--task": given.task, "--encoder": given.encoder}
    if unused := [option for option, value in others.items() if value is not None]:
        raise Misuse(f"--from takes the model of a run; leave out {', '.join(unused)}")
    named = None if given.parent == NEWEST else given.parent
    parent = find_trained(named, None if named else given.runs, given.pe)
    fields, usual = said, {"dtype": parent.dtype.name}
    corpus: data.Corpus | Exercise
    if parent.run.task:
        of_text_alone(given, fields)
        exercise = exercise_of(parent.run, given.data)
        corpus = replace(exercise, longest=fields.get("L", exercise.longest))
        fields, usual = fields | {"L": corpus.tokens}, exercise.task.recipe | usual
    else:
        corpus = run_text(parent.run, given.data)
    cfg = trained_on(parent.cfg, given.pe, given.settings, fields)
    recipe = Recipe(**usual | picked("recipe", vars(given)))
    try:
        weights = start(parent.run, parent.params, parent.step, cfg, recipe, anew=bool(given.new_parameters))
    except Misuse:
        if parent.step in parent.run.checkpoints:
            raise
        return begin_from(given, said, say)  # whoever trains has saved newer ones and removed this one
    spec = parent.run.record["data"]["spec"] if given.data is None else data.lasting(given.data)
    return begin_on(given, cfg, recipe, corpus, spec, say, weights)


def begin_on(
    given: SimpleNamespace,
    cfg: Config | Pair,
    recipe: Recipe,
    corpus: data.Corpus | Exercise,
    spec: str,
    say: Say,
    weights: Start | None = None,
) -> Work:
    """A new run on a text, which is at `spec`, or on a task."""
    loop.check_recipe(cfg, recipe, corpus, given.backend)
    be = backend_of(given, recipe.dtype, partial(say, "note"), not given.no_record)
    marks = yardsticks_of(corpus)
    runs = RUNS if given.runs is None else given.runs
    run = loop.create_run(runs, cfg, recipe, corpus, spec, be, sys.argv[1:], weights)
    return Work(run, corpus, marks, be)


def of_text_alone(given: SimpleNamespace, said: dict[str, Any]) -> None:
    """Raises Misuse for options that a task has no use for."""
    unused = given.recipe_valid_bytes, said.get("causal"), said.get("cross")
    if any(value is not None for value in unused):
        raise Misuse("a task says itself who sees what; leave out --valid-bytes, --causal and cross")


def begin_task(given: SimpleNamespace, said: dict[str, Any], say: Say) -> Work:
    """A new run on a task, of an encoder and a decoder, or of a decoder alone."""
    if given.task is None:
        raise Misuse("an encoder is trained on a task; add --task reverse")
    of_text_alone(given, said)
    corpus, spec = text_of_task(given)
    longest = said.pop("L", TASKS[given.task].longest if given.task in TASKS else 1)
    exercise = Exercise(given.task, longest, given.encoder is None, corpus)
    usual = exercise.task.recipe if exercise.alone else OF_PAIRS
    recipe = Recipe(**usual | picked("recipe", vars(given)))
    shape = FIRST_SHAPE if given.shape is None else given.shape
    if exercise.alone:
        model: Config | Pair = shaped(shape, **exercise.task.model | said | {"L": exercise.tokens})
    else:
        model = pair_of(given, exercise, shape, said)
    return begin_on(given, model, recipe, exercise, spec, say)


def text_of_task(given: SimpleNamespace) -> tuple[data.Corpus | None, str]:
    """The text that a task hides something in, if any, and what a run calls it."""
    if given.task in TASKS and TASKS[given.task].text:
        spec = data.DEFAULT if given.data is None else given.data
        return data.corpus(spec), data.lasting(spec)
    if given.data is not None:
        raise Misuse(f"the task {given.task} has no text; leave out --data")
    return None, given.task


def pair_of(given: SimpleNamespace, exercise: Exercise, shape: str, said: dict[str, Any]) -> Pair:
    """The encoder and the decoder that the options mean."""
    turning = {name: said.pop(name) for name in ("R", "layout") if name in said}
    said |= {"L": exercise.tokens}
    decoder = shaped(shape, **said | turning | {"cross": True})
    mine = [one for one in given.settings if one.startswith(OF_ENCODER)]
    try:
        before = choose(given.encoder, mine, OF_ENCODER)
        return Pair(shaped(shape, **said | before | {"causal": False}), decoder)
    except Misuse as error:
        raise Misuse(f"--encoder {given.encoder}: {error}") from None


def go_on(ctx: click.Context, given: SimpleNamespace, say: Say) -> Work:
    """The run that --resume means. Raises Misuse for settings that a run fixes."""
    named = None if given.resume == NEWEST else given.resume
    run, _ = named_or_newest(named, given.runs, "--resume ", having_checkpoint=False, unfinished=True)
    free = {*FREE}
    free |= {"pe"} if given.pe is not None and names_files(run, given.pe) else set()
    set_here = {name for name, value in vars(given).items() if value not in (None, ())}
    if fixed := [p.opts[0] for p in ctx.command.params if p.name in set_here.difference(free)]:
        what = f"a run goes on with the settings it began with; leave out {', '.join(fixed)}"
        raise Misuse(f"{what}, or begin a new run without --resume")
    model_of(run)
    if run.finished and verifies(run):
        look = text.command("eval", run.folder, *files_of(run))
        raise Misuse(f"{run.folder} is finished, at step {run.record['steps']}; evaluate it with: {look}")
    corpus = run_text(run, given.data) if run.task is None else exercise_of(run, given.data)
    be = backend_of(
        given, Recipe.from_json(run.record["recipe"]).dtype, partial(say, "note"), not given.no_record
    )
    return Work(run, corpus, yardsticks_of(corpus), be)


def yardsticks_of(corpus: data.Corpus | Exercise) -> dict[str, float]:
    """What there is to beat; of a task, and of a tokenizer's tokens, nothing."""
    if isinstance(corpus, Exercise) or corpus.train.dtype != np.uint8:
        return {}
    return data.yardsticks(corpus.train, corpus.valid)


def names_files(run: Run, pe: str) -> bool:
    """Whether `pe` is the cycle of the run, said again because files of encodings are in it."""
    began = [name for name, _ in run.record["config"]["pe"]]
    return bool(run.own) and [name for name, _ in choose(pe)["pe"]] == began


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


def follow(work: Work, given: SimpleNamespace, signals: Signals, say: Say) -> dict[str, Any]:
    """Train, saying how it goes; the figures at the end. Raises Interrupted once the last step is saved
    after a signal.
    """
    run, be = work.run, work.be
    bar: Progress  # from the step on at which the run stands
    stopping = lambda: bool(signals.asked) or bar.deaf
    records = loop.train(run, work.corpus, be, say=partial(say, "note"), stopping=stopping)
    start = next(records)
    introduce(work, start, given.backend, say)
    speed, steps, valid, unit = 0.0, start["steps"], None, unit_of(run.record)
    with Progress(steps, "step", start=start["step"], every=EVERY, plain=given.as_json) as bar:
        for record in records:
            valid = record.get("valid", valid)
            if record["event"] == "step":
                speed, nats = record["tokens_per_s"], record["loss"]
                bar.to(record["step"], f"loss {in_bits(in_units(nats), 3, unit)}, {speed:,.0f} tokens/s")
                if "valid" in record and record["step"] < steps:
                    bar.line(f"step {record['step']:,}: validation loss {in_bits(valid, 4, unit)}")
            elif record["event"] == "stopped":
                said = f"stopped after step {record['step']:,} of {steps:,}, which is saved"
                raise Interrupted(signals.asked or signal.SIGPIPE, said, step=record["step"], steps=steps)
    done = {"run": str(run.folder), "step": steps, "steps": steps, "val": valid}
    done |= {"yardsticks": work.marks, "tokens_per_s": speed, "parameters": start["parameters"]}
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


def introduce(work: Work, start: dict[str, Any], asked: str, say: Say) -> None:
    """What runs, on what, where, and what there is to beat."""
    run, corpus, marks = work.run, work.corpus, work.marks
    cfg, recipe = model_of(run), Recipe.from_json(run.record["recipe"])
    decoder = cfg.decoder if isinstance(cfg, Pair) else cfg
    shape = f"{start['parameters']:,} parameters: {sizes_of(decoder)}"
    say("model", shape + (f"; an encoder like it of {cfg.encoder.layers}" if isinstance(cfg, Pair) else ""))
    if isinstance(cfg, Pair):
        say("encoder", text.cycle(cfg.encoder.pe))
    say("decoder" if isinstance(cfg, Pair) else "encoding", text.cycle(decoder.pe))
    if parent := run.record.get("parent"):
        changed = [f"{counted(len(parent[k]), 'tensor')} {w}" for k, w in CHANGED.items() if parent[k]]
        say("weights", ", ".join([f"{parent['run']}, step {parent['step']:,}", *changed]))
    a_step = f"{recipe.batch} x {cfg.L}" + (f" x {recipe.accumulate}" if recipe.accumulate > 1 else "")
    tokens = f"{counted(recipe.batch * recipe.accumulate * cfg.L, 'token')} a step ({a_step})"
    how = f"rate {recipe.rate:g}, seed {recipe.seed}, {recipe.dtype}"
    masked = f", {CHOSEN:.0%} of them asked as masked tokens" if not decoder.causal else ""
    drawn = f", positions {recipe.positions}" if recipe.positions else ""
    say("training", f"{counted(recipe.steps, 'step')}, {tokens}{masked}{drawn}, {how}")
    say("backend", text.chosen(work.be.name, asked))
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


def next_command(work: Work, given: SimpleNamespace) -> str:
    """The evaluation that suits the run that has just ended."""
    run, trained = work.run, work.run.record["config"]["L"]
    where = [] if given.resume is None and given.runs is None else [run.folder]
    if isinstance(work.corpus, Exercise):
        which: list[Any] = where or ["--task", work.corpus.name]
        return text.command("eval", *which, "--len", str(2 * work.corpus.longest))
    length = reach(Config.from_json(run.record["config"]), Recipe.from_json(run.record["recipe"]).dtype)
    length = length if length < work.corpus.valid.size else trained
    return text.command("eval", *where, "--len", str(length), *files_of(run))
