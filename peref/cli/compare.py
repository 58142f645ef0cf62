"""compare: encodings trained alike and evaluated beyond their length, as a table and a report."""

import json
import signal
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from peref import data, share, store
from peref import train as loop
from peref.backends import Backend
from peref.cli import options, text
from peref.cli.completion import RUNS
from peref.cli.evaluate import BYTES, SAMPLES
from peref.cli.found import backend_of
from peref.cli.options import of_model, of_recipe, picked
from peref.cli.progress import Progress
from peref.cli.signals import Interrupted, Signals
from peref.cli.train import text_of_task
from peref.config import Config
from peref.environment import environment
from peref.errors import Misuse, counted
from peref.lab import comparison
from peref.lab import comparison_report as lab
from peref.lab.comparison import Contender, Plan
from peref.recipe import Recipe
from peref.schema import misfit
from peref.tasks import TASKS, Exercise

BRIEF, LONGER = 250, 8
OF_REPORT = ("again", "output", "as_json")
COMPARED = "none,sinusoidal,rope,alibi,t5"
OF_DOCUMENT = {"lengths": "array", "L": "integer", "seeds": "array", "entries": "array"}
DOCUMENT = {
    "type": "object",
    "required": [*OF_DOCUMENT, "recipe", "environment", "corpus"],
    "properties": {key: {"type": kind} for key, kind in OF_DOCUMENT.items()},
}


@click.command("compare", cls=options.Command)
@options.encoding_option(
    f"The encodings to compare, with commas between them.  [default: {COMPARED}]", metavar="NAME[,NAME...]"
)
@options.encoding_option(
    "Also a model whose layers take turns, as with train --pe; may be said several times.",
    dest="cycles",
    metavar="NAME,NAME[,NAME...]",
    option="--cycle",
    multiple=True,
)
@options.task_option(f"Compare on a task instead of text: {', '.join(TASKS)}.")
@of_model("--len", "L", "The length to train for.")
@options.size_option("--to", "longest", f"The longest length to evaluate.  [default: {LONGER} times --len]")
@options.size_option("--seeds", "Models of each encoding, from other first weights.  [default: 1]")
@click.option(
    "--scale",
    metavar="NAME[,NAME...]",
    type=options.ENCODINGS,
    help="Scalings that also read the weights trained with rope, as pi, ntk, dynamic_ntk, yarn, llama3.",
)
@options.size_option("--finetune", "Steps for which each scaling is also trained on, at the longest length.")
@of_model("--layers", "layers", "Number of layers.")
@of_model("--width", "C", "Width of the model (hidden size).")
@of_model("--heads", "H", "Number of query heads.")
@of_recipe("--steps", "steps", "Optimizer steps.", said=str(BRIEF))
@of_recipe("--batch", "batch", "Batch size: sequences in a step.")
@of_recipe("--rate", "rate", "Peak learning rate.")
@of_recipe("--seed", "seed", "The first random seed.")
@options.data_option(f"A name from `data`, a text file or a folder of them.  [default: {data.DEFAULT}]")
@click.option("--bytes", "count", type=int, help=f"Bytes of held-out text to read.  [default: {BYTES}]")
@options.size_option("--samples", f"Held-out samples of a task, at each length.  [default: {SAMPLES}]")
@options.file_option(
    "-o", "--output", metavar="FOLDER", help="The folder for the report.  [default: comparison]"
)
@options.file_option("--again", help="Make the report again from its comparison.json; nothing is trained.")
@options.runs_folder
@options.computing
@options.as_json
@click.pass_context
@options.together
def command(ctx: click.Context, given: SimpleNamespace) -> None:
    """Train encodings alike where that has not been done, evaluate all at every doubling of the length, and
    write a table, report.html, pictures and CSV. Stopped and called again, it goes on.
    """
    if find_spec("matplotlib") is None:
        raise Misuse(f"the report has pictures, which need matplotlib: {share.install('[plot]')}")
    folder = Path(given.output or "comparison")
    if given.again is not None:
        given_here = lambda name: ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
        others = [p for p in ctx.command.params if p.name and p.name not in OF_REPORT]
        if idle := [p.opts[0] for p in others if given_here(p.name)]:
            raise Misuse(f"--again makes a report from its document alone; leave out {', '.join(idle)}")
        found = read(Path(given.again))
    else:
        plan = plan_of(given)
        found = compared(plan, given, ctx.obj, Path(RUNS if given.runs is None else given.runs))
    paths = write_report(folder, found)
    lines = ["", text.table(lab.head(found), list(lab.rows_of_table(found))), "", *lab.sentences(found), ""]
    lines += [text.labelled("report", paths["report"])]
    text.emit(given.as_json, {"files": paths, **found}, lines)


def plan_of(given: SimpleNamespace) -> Plan:
    """What the options ask for. Raises Misuse for what cannot be compared."""
    named = (*(given.pe or COMPARED).split(","), *given.cycles)
    if twice := {name for name in named if named.count(name) > 1}:
        raise Misuse(f"{', '.join(sorted(twice))} is named twice; a comparison has each once")
    how: dict[str, Any] = {"names": named, "seeds": 1 if given.seeds is None else given.seeds}
    how |= {"scalings": tuple(given.scale.split(",")) if given.scale else (), "tuned": given.finetune or 0}
    said, fields = picked("recipe", vars(given)), picked("model", vars(given))
    plan = (plan_of_text if given.task is None else plan_of_task)(given, how, said, fields)
    plan.refuse()
    for entry in comparison.entries(plan):
        loop.check_recipe(entry.cfg, entry.recipe, plan.corpus, given.backend)
    return plan


def plan_of_text(
    given: SimpleNamespace, how: dict[str, Any], said: dict[str, Any], fields: dict[str, Any]
) -> Plan:
    if given.samples is not None:
        raise Misuse("--samples is for --task; leave it out")
    spec = data.DEFAULT if given.data is None else given.data
    longest = LONGER * fields.get("L", Config.L) if given.longest is None else given.longest
    short = {"steps": BRIEF, "warmup": min(Recipe.warmup, said.get("steps", BRIEF) // 5)}
    return Plan(
        fields=fields,
        recipe=Recipe(**short | said),
        longest=longest,
        corpus=data.corpus(spec),
        spec=data.lasting(spec),
        count=BYTES if given.count is None else given.count,
        **how,
    )


def plan_of_task(
    given: SimpleNamespace, how: dict[str, Any], said: dict[str, Any], fields: dict[str, Any]
) -> Plan:
    if unused := [o for o, value in {"--bytes": given.count, "--finetune": given.finetune}.items() if value]:
        raise Misuse(f"--task compares answers of samples; leave out {', '.join(unused)}")
    corpus, spec = text_of_task(given)
    task = TASKS.get(given.task)
    exercise = Exercise(given.task, fields.get("L", task.longest if task else 1), True, corpus)
    return Plan(
        fields=exercise.task.model | fields | {"L": exercise.tokens},
        recipe=Recipe(**exercise.task.recipe | said),
        longest=LONGER * exercise.longest if given.longest is None else given.longest,
        corpus=exercise,
        spec=spec,
        count=SAMPLES if given.samples is None else given.samples,
        **how,
    )


def compared(plan: Plan, given: SimpleNamespace, signals: Signals, root: Path) -> dict[str, Any]:
    """Train and evaluate what is missing; the document that the report is made from."""
    out = sys.stderr if given.as_json else sys.stdout
    say = lambda name, what: print(text.labelled(name, what), file=out, flush=True)
    be = backend_of(given, plan.recipe.dtype, partial(say, "note"))
    work = list(comparison.entries(plan))
    with np.errstate(all="ignore"):
        costs = [cost(entry, root, plan, be) for entry in work]
        whole = sum(map(sum, costs))
        say("work", f"{counted(len(work), 'model')}, about {text.duration(whole)}; runs in {root}")
        with signals.gently(), Progress(round(whole), "s", plain=given.as_json) as bar:
            meter = Meter(bar, signals)
            results = [
                one(entry, plan, root, be, meter.of(*of)) for entry, of in zip(work, costs, strict=True)
            ]
    about: dict[str, Any] = {"bytes": plan.count, "text": plan.corpus.name}
    if plan.task:
        about = {"task": plan.task.name, "words": plan.task.task.words, "samples": plan.count}
    return {
        "L": plan.L,
        "lengths": plan.grid,
        **about,
        "corpus": plan.corpus.sha256,
        "seeds": sorted({result["seed"] for result in results}),
        "recipe": results[0]["recipe"],
        "environment": environment(be),
        "entries": results,
    }


class Meter:
    """A bar of seconds over all work, and whether a signal asks to stop."""

    def __init__(self, bar: Progress, signals: Signals) -> None:
        self.bar, self.signals = bar, signals
        self.done, self.costs = 0.0, (0.0, 0.0)

    def of(self, training: float, evaluating: float) -> "Meter":
        """The same, of the next entry, which takes so many seconds."""
        self.done, self.costs = self.done + sum(self.costs), (training, evaluating)
        return self

    def stopping(self) -> bool:
        return bool(self.signals.asked) or self.bar.deaf

    def at(self, trained: float, evaluated: float, words: str) -> None:
        """So much of both is done, 0 to 1. Raises Interrupted after a signal."""
        if self.stopping():
            said = "stopped; what is done is kept, and the same command goes on"
            raise Interrupted(self.signals.asked or signal.SIGPIPE, said)
        seconds = self.done + trained * self.costs[0] + evaluated * self.costs[1]
        self.bar.to(round(seconds), words)


def cost(entry: Contender, root: Path, plan: Plan, be: Backend) -> tuple[float, float]:
    """Seconds of training and of evaluation that are left of an entry, by a measured step and byte."""
    run = comparison.found(entry, root, plan, be)
    if run and comparison.measured(run, plan, entry, be):
        return 0.0, 0.0
    step, evaluation = comparison.seconds(plan, entry, be)
    done = (run.checkpoints or [0])[-1] if run else 0
    return step * (entry.recipe.steps - done), evaluation


def one(entry: Contender, plan: Plan, root: Path, be: Backend, meter: Meter) -> dict[str, Any]:
    """Train and evaluate one entry, as far as that has not been done. Raises Interrupted after a signal."""
    run, words = comparison.made(entry, root, plan, be), f"{entry.label}, seed {entry.recipe.seed}"
    if result := comparison.measured(run, plan, entry, be):
        return result
    if not run.finished:
        began, steps = (run.checkpoints or [0])[-1], entry.recipe.steps
        for record in loop.train(run, plan.corpus, be, say=meter.bar.line, stopping=meter.stopping):
            if record["event"] == "stopped" or (record["event"] == "step" and not meter.stopping()):
                meter.at((record["step"] - began) / (steps - began), 0.0, words)
    return comparison.measure(run, plan, entry, be, lambda share: meter.at(1.0, share, words))


def read(path: Path) -> dict[str, Any]:
    """The document of an earlier report. Raises Misuse for what is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Misuse(f"{path}: cannot be read as JSON ({error}); expected a comparison.json") from error
    if said := misfit(found, DOCUMENT):
        raise Misuse(f"{path}: not a comparison.json: {said}")
    try:
        lab.report_page(found, b"")
    except (IndexError, *store.UNREADABLE) as error:
        what = f"{type(error).__name__}: {error}"
        raise Misuse(f"{path}: not a comparison.json: no table can be made of it ({what})") from error
    return found


def write_report(folder: Path, found: dict[str, Any]) -> dict[str, str]:
    """The files of the report, by what they are."""
    from peref.lab.pictures import draw

    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "comparison.png"
    what = found["task"] if "task" in found else found["text"]
    about = [f"{what}, trained at {found['L']:,}; {counted(len(found['seeds']), 'seed')}"]
    draw(picture, lab.title(found), about, list(lab.panels(found)))
    store.write_text(folder / "comparison.json", store.canonical(found) + "\n")
    store.write_text(folder / "comparison.csv", lab.as_csv(found))
    store.write_text(folder / "report.html", lab.report_page(found, picture.read_bytes()))
    names = {"report": "report.html", "csv": "comparison.csv", "json": "comparison.json"}
    return {"picture": str(picture)} | {what: str(folder / name) for what, name in names.items()}
