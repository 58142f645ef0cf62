"""train: from a text to a run folder, with a bar on the way."""

import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from peref import data, share
from peref import train as loop
from peref.backends import Backend
from peref.backends import get as get_backend
from peref.cli import completion, options, text
from peref.cli.completion import RUNS, beginning
from peref.cli.found import reach, run_text
from peref.cli.options import NEWEST, picked, section, setting
from peref.cli.progress import Progress, aside
from peref.cli.signals import Interrupted, Signals
from peref.config import SHAPES, Config, shaped
from peref.errors import Damaged, Misuse, counted
from peref.evaluate import config_of, weights_of
from peref.recipe import Recipe
from peref.runs import Run, newest, open_run
from peref.settings import choose

EVERY = 50  # steps between two plain lines
FIRST_SHAPE = next(iter(SHAPES))
FIRST_CYCLE = ",".join(name for name, _ in Config.pe)
COMPUTING = ("backend", "threads", "every_tile", "no_record")
FREE = ("data", *COMPUTING, "runs", "resume", "as_json")  # what may be said again when a run goes on


SIZED: Any = {"type": options.SIZE, "metavar": "INTEGER"}


@click.command("train", cls=options.Command)
@section(
    "Encoding",
    click.option(
        "--pe",
        type=options.ENCODINGS,
        metavar="NAME[,NAME...]",
        help=f"The encoding, or a cycle of encodings over the layers; `{share.program()} list` shows all, "
        f"./FILE.py is one of your own.  [default: {FIRST_CYCLE}]",
    ),
    options.set_option,
)
@section(
    "Model",
    click.option(
        "--shape",
        metavar="NAME",
        callback=options.one_of(SHAPES),
        shell_complete=lambda ctx, param, incomplete: beginning(incomplete, SHAPES),
        help=f"Defaults for the settings below: {' or '.join(SHAPES)}.  [default: {FIRST_SHAPE}]",
    ),
    setting("--layers", "model", "layers", "Number of layers.", **SIZED),
    setting("--width", "model", "C", "Width of the model (hidden size).", **SIZED),
    setting("--heads", "model", "H", "Number of query heads.", **SIZED),
    setting("--kv-heads", "model", "G", "Number of key-value heads.", **SIZED, said="half the heads"),
    setting("--head-width", "model", "D", "Width of each head.", **SIZED, said="width / heads"),
    setting(
        "--ff",
        "model",
        "F",
        "Width of the feed-forward layers.",
        **SIZED,
        said="8/3 of the width, 4 for gelu",
    ),
    setting(
        "--activation",
        "model",
        "activation",
        "Activation of the feed-forward layers: swiglu or gelu.",
        metavar="NAME",
    ),
    setting("--norm", "model", "norm", "Normalization: rms or layer.", metavar="NAME"),
    setting("--norm-eps", "model", "eps", "Epsilon of the normalization.", type=float),
    setting("--biases/--no-biases", "model", "biases", "Biases in every linear layer except the head."),
    setting(
        "--qkv-bias/--no-qkv-bias",
        "model",
        "qkv_bias",
        "Biases in the projections to q, k and v.",
        said="as --biases",
    ),
    setting("--qk-norm/--no-qk-norm", "model", "qk_norm", "RMSNorm over each head of q and k."),
    setting(
        "--tied/--untied", "model", "tied", "Whether the head shares the weights of the token embedding."
    ),
    setting(
        "--window",
        "model",
        "window",
        "Sliding window: the keys that a query sees, itself included.",
        **SIZED,
        said="all",
    ),
)
@section(
    "Training",
    setting("--len", "model", "L", "Sequence length in tokens (bytes).", **SIZED),
    options.data_option(f"A name from `data`, a text file or a folder of them.  [default: {data.DEFAULT}]"),
    setting("--steps", "recipe", "steps", "Optimizer steps.", type=int),
    setting("--batch", "recipe", "batch", "Batch size: sequences in a micro-batch.", type=int),
    setting(
        "--accumulate", "recipe", "accumulate", "Gradient accumulation: micro-batches in a step.", type=int
    ),
    setting("--rate", "recipe", "rate", "Peak learning rate.", type=float),
    setting("--warmup", "recipe", "warmup", "Warm-up steps, up to the peak learning rate.", type=int),
    setting("--floor", "recipe", "floor", "Final learning rate, as a fraction of the peak.", type=float),
    setting("--beta1", "recipe", "beta1", "AdamW: decay rate of the first moment.", type=float),
    setting("--beta2", "recipe", "beta2", "AdamW: decay rate of the second moment.", type=float),
    setting("--eps", "recipe", "eps", "AdamW: epsilon.", type=float),
    setting("--decay", "recipe", "decay", "Weight decay, of the linear layers alone.", type=float),
    setting("--clip", "recipe", "clip", "Gradient-norm clip.", type=float),
    setting("--seed", "recipe", "seed", "Random seed, of weights and batches.", type=int),
    setting("--dtype", "recipe", "dtype", "float32 or float64.", metavar="NAME"),
)
@section(
    "Validation",
    setting("--valid-every", "recipe", "valid_every", "Steps between validations.", type=int),
    setting("--valid-bytes", "recipe", "valid_bytes", "Bytes of held-out text in each validation.", type=int),
)
@section(
    "Computing",
    options.computing,
    click.option("--no-record", is_flag=True, help="cuda: replay no CUDA graph; changes no bit."),
)
@section(
    "Output",
    options.runs_folder,
    setting("--save-every", "recipe", "save_every", "Steps between checkpoints.", type=int),
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
def command(ctx: click.Context, **given: Any) -> None:
    """Train a small language model with an encoding, or go on with a run that was interrupted."""
    began = time.perf_counter()
    signals: Signals = ctx.obj
    out = sys.stderr if given["as_json"] else sys.stdout

    def say(name: str, what: str) -> None:
        aside(text.labelled(name, what), out)

    def backend_for(dtype: str) -> Backend:
        name, threads, every_tile, no_record = (given[key] for key in COMPUTING)
        settings = {"threads": threads, "every_tile": every_tile, "record": not no_record}
        return get_backend(name, dtype=dtype, **settings, say=partial(say, "note"))

    # the loop looks at every loss and gradient itself, and names the one that is not finite
    with np.errstate(all="ignore"):
        if given["resume"] is None:
            run, corpus, marks, be = begin(given, backend_for)
        else:
            run, corpus, marks, be = go_on(ctx, given, backend_for)
        try:
            with signals.gently():
                done = follow(run, corpus, be, marks, given, signals, say)
        except Interrupted as signal:
            again = text.command("train", "--resume", run.folder, *files_of(run))
            raise Interrupted(
                signal.number, f"{signal}; go on with: {again}", **{"run": str(run.folder), **signal.details}
            ) from None
    figures = {
        **done,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        "seconds": time.perf_counter() - began,
    }
    if given["as_json"]:
        print(text.document(figures))
        return
    val = figures["val"]
    say("validation", f"loss {val['loss']:.4f}, {val['bpb']:.4f} bits/byte")
    speed, memory = (
        f"{figures['tokens_per_s']:,.0f} tokens/s",
        f"peak memory {text.size(figures['peak_rss'])}",
    )
    say("figures", f"{speed}, {memory}, {text.duration(figures['seconds'])} in all")
    say("run", str(run.folder))
    say("next", next_command(run, corpus, given))


def begin(
    given: dict[str, Any], backend_for: Callable[[str], Backend]
) -> tuple[Run, data.Corpus, dict[str, float], Backend]:
    """A new run, its text and the yardsticks of that."""
    chosen = choose(FIRST_CYCLE if given["pe"] is None else given["pe"], given["settings"])
    cfg = shaped(
        FIRST_SHAPE if given["shape"] is None else given["shape"], **picked("model", given), **chosen
    )
    recipe = Recipe(**picked("recipe", given))
    spec = data.DEFAULT if given["data"] is None else given["data"]
    corpus = data.corpus(spec)
    loop.check_recipe(cfg, recipe, corpus, given["backend"])
    be = backend_for(recipe.dtype)
    marks = data.yardsticks(corpus.train, corpus.valid)
    if spec not in data.known():
        spec = str(Path(spec).resolve())
    runs = RUNS if given["runs"] is None else given["runs"]
    return loop.create_run(runs, cfg, recipe, corpus, spec, be, sys.argv[1:]), corpus, marks, be


def go_on(
    ctx: click.Context, given: dict[str, Any], backend_for: Callable[[str], Backend]
) -> tuple[Run, data.Corpus, dict[str, float], Backend]:
    """The run that --resume means, its text and the yardsticks of that. Raises Misuse for settings that a
    run fixes.
    """
    if given["resume"] == NEWEST:
        run = newest(
            RUNS if given["runs"] is None else given["runs"], having_checkpoint=False, unfinished=True
        )
    elif given["runs"] is not None:
        raise Misuse(
            f"--runs says where to look for the newest run, but --resume names {given['resume']}; leave one "
            "of them out"
        )
    else:
        run = open_run(given["resume"])
    free = (*FREE, "pe") if given["pe"] is not None and names_files(run, given["pe"]) else FREE
    fixed = [
        p.opts[0]
        for p in ctx.command.params
        if given.get(str(p.name)) not in (None, ()) and p.name not in free
    ]
    if fixed:
        raise Misuse(
            f"a run goes on with the settings it began with; leave out {', '.join(fixed)}, or begin a new "
            "run without --resume"
        )
    config_of(run)
    if run.finished and verifies(run):
        raise Misuse(
            f"{run.folder} is finished, at step {run.record['steps']}; evaluate it with: "
            f"{text.command('eval', run.folder, *files_of(run))}"
        )
    corpus = run_text(run, given["data"])
    be = backend_for(run.record["recipe"]["dtype"])
    return run, corpus, data.yardsticks(corpus.train, corpus.valid), be


def names_files(run: Run, pe: str) -> bool:
    """Whether `pe` is the cycle of the run, said again because files of encodings are in it."""
    return bool(run.own) and [name for name, _ in choose(pe)["pe"]] == [
        name for name, _ in run.record["config"]["pe"]
    ]


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


def follow(
    run: Run,
    corpus: data.Corpus,
    be: Backend,
    marks: dict[str, float],
    given: dict[str, Any],
    signals: Signals,
    say: Callable[[str, str], None],
) -> dict[str, Any]:
    """Train, saying how it goes; the figures at the end. Raises Interrupted once the last step is saved
    after a signal.
    """
    records = loop.train(
        run, corpus, be, say=lambda warning: say("note", warning), stopping=lambda: bool(signals.asked)
    )
    start = next(records)
    introduce(run, corpus, be, marks, start, given["backend"], say)
    speed, steps, valid = 0.0, start["steps"], None
    with Progress(steps, "step", start=start["step"], every=EVERY, plain=given["as_json"]) as bar:
        for record in records:
            if record["event"] == "step":
                speed = record["tokens_per_s"]
                bar.to(
                    record["step"],
                    f"loss {record['loss']:.4f}, {bits(record['loss']):.3f} bits/byte, {speed:,.0f} tokens/s",
                )
                if "valid" in record and record["step"] < steps:
                    valid = record["valid"]
                    bar.line(
                        f"step {record['step']:,}: validation loss {valid['loss']:.4f}, {valid['bpb']:.4f} "
                        "bits/byte"
                    )
            elif record["event"] == "stopped":
                step = record["step"]
                raise Interrupted(
                    signals.asked,
                    f"stopped after step {step:,} of {steps:,}, which is saved",
                    step=step,
                    steps=steps,
                )
            elif record["event"] == "done":
                valid = record["valid"]
    shared = {
        "run": str(run.folder),
        "step": steps,
        "steps": steps,
        "val": valid,
        "yardsticks": marks,
        "tokens_per_s": speed,
    }
    shared |= {"parameters": start["parameters"], "backend": be.name, "plain": be.plain()}
    return shared | {"data": run.record["data"], "config": run.record["config"]}


def bits(nats: float) -> float:
    return nats / float(np.log(2))


def introduce(
    run: Run,
    corpus: data.Corpus,
    be: Backend,
    marks: dict[str, float],
    start: dict[str, Any],
    asked: str,
    say: Callable[[str, str], None],
) -> None:
    """What runs, on what, where, and what there is to beat."""
    cfg, recipe = Config.from_json(run.record["config"]), Recipe.from_json(run.record["recipe"])
    heads = f"{counted(cfg.H, 'head')} of {cfg.D}" + (
        f" ({cfg.G} key-value)" if cfg.G not in (None, cfg.H) else ""
    )
    shape = (
        f"{counted(cfg.layers, 'layer')}, width {cfg.C}, {heads}, feed-forward {cfg.F}, {cfg.norm} norm, "
        f"{cfg.activation}"
    )
    say("model", f"{start['parameters']:,} parameters: {shape}, {'tied' if cfg.tied else 'untied'} head")
    say("encoding", text.cycle(cfg.pe))
    a_step = f"{recipe.batch} x {cfg.L}" + (f" x {recipe.accumulate}" if recipe.accumulate > 1 else "")
    tokens = f"{counted(recipe.batch * recipe.accumulate * cfg.L, 'token')} a step ({a_step})"
    say(
        "training",
        f"{counted(recipe.steps, 'step')}, {tokens}, rate {recipe.rate:g}, seed {recipe.seed}, "
        f"{recipe.dtype}",
    )
    say("backend", text.chosen(be.name, asked))
    say(
        "data",
        f"{corpus.name}: {corpus.source}; {text.size(corpus.train.size)} to train on, "
        f"{text.size(corpus.valid.size)} held out",
    )
    say(
        "yardsticks",
        f"unigram {marks['unigram_bpb']:.3f}, bigram {marks['bigram_bpb']:.3f}, xz -9 {marks['xz_bpb']:.3f} "
        "bits/byte",
    )
    say("run", f"{run.folder}" + (f", going on after step {start['step']:,}" if start["step"] else ""))


def next_command(run: Run, corpus: data.Corpus, given: dict[str, Any]) -> str:
    """The evaluation that suits the run that has just ended."""
    length = reach(Config.from_json(run.record["config"]), run.record["recipe"]["dtype"])
    newest_here = given["resume"] is None and given["runs"] is None
    length = length if length < corpus.valid.size else run.record["config"]["L"]
    return text.command("eval", *([] if newest_here else [run.folder]), "--len", str(length), *files_of(run))
