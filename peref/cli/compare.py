"""compare: encodings trained alike and evaluated beyond their length, as a table and a report."""

from pathlib import Path
from typing import Any

import numpy as np

from peref import store
from peref import train as loop
from peref.backends import Backend
from peref.cli import options, text
from peref.cli.evaluate import BYTES, SAMPLES
from peref.cli.found import backend_of, new_exercise, new_text
from peref.cli.options import SIZE, Document, Given, of_model, of_recipe, option
from peref.cli.progress import Progress
from peref.cli.show import drawing
from peref.config import Config
from peref.data import DEFAULT
from peref.environment import environment
from peref.errors import Misuse, counted, theirs
from peref.evaluate import Protocol
from peref.huggingface import load_json
from peref.lab import comparison
from peref.lab import comparison_report as lab
from peref.lab.comparison import Contender, Plan
from peref.recipe import Recipe
from peref.tasks import TASKS

BRIEF, LONGER = 250, 8
OF_REPORT = ("again", "output", "as_json")
COMPARED = "none,sinusoidal,rope,alibi,t5"


@options.command("compare")
@options.encoding_option(
    "--pe=NAME[,NAME...]", "The encodings to compare, with commas between them.", default=[COMPARED]
)
@options.encodings_option(
    "--cycle=NAME,NAME[,NAME...] cycles",
    "Also compare a model whose layers cycle through these, as with train --pe; repeatable.",
)
@options.task_option(f"Compare on a task instead of text: {', '.join(TASKS)}.")
@of_model("L", "The length to train for.")
@option("--to longest", f"The longest length to evaluate.  [default: {LONGER} times --len]", SIZE)
@option("--seeds", "Models of each encoding, each with a random seed of its own.", SIZE, default=1)
@options.encoding_option(
    "--scale=NAME[,NAME...]",
    "Also evaluate the weights trained with rope under these: pi, ntk, dynamic_ntk, yarn, llama3, ...",
)
@option("--finetune", "Also train on with each scaling, for so many steps at the longest length.", SIZE)
@of_model("layers")
@of_model("C")
@of_model("H")
@of_recipe("steps", said=str(BRIEF))
@of_recipe("batch", "Batch size: sequences in a step.")
@of_recipe("rate")
@of_recipe("seed", "The first random seed.")
@options.data_option(f"A name from `data`, a text file or a folder of them.  [default: {DEFAULT}]")
@option("--bytes count", "Bytes of held-out text to read.", SIZE, default=BYTES)
@option("--samples", "Held-out samples of a task, at each length.", SIZE, default=SAMPLES)
@option("-o --output", "The folder for the report.", options.DIR, default="comparison")
@option("--again", "Make the report again from its comparison.json; nothing is trained.", options.FILE)
@options.runs_folder
@options.computing
def command(given: Given) -> Document:
    """Train encodings alike where that has not been done, evaluate all at every doubling of the length, and
    write a table, report.html, pictures and CSV. Stopped and called again, it goes on.
    """
    drawing()  # refused at once where there is none
    if given.again is not None:
        given.refuse("--again makes a report from its document alone", but=OF_REPORT)
        found = read(Path(given.again))
    else:
        found = compared(plan_of(given), given)
    paths = write_report(Path(given.output), found)
    table, notes = text.table(lab.head(found), list(lab.rows_of_table(found))), lab.sentences(found)
    lines = ["", table, "", *map(text.folded, notes), ""]
    return {"files": paths, **found}, [*lines, text.labelled("report", paths["report"])]


def plan_of(given: Given) -> Plan:
    """What the options ask for. Raises Misuse for what cannot be compared."""
    named = (*given.pe.split(","), *given.cycles)
    if twice := {name for name in named if named.count(name) > 1}:
        raise Misuse(f"{', '.join(sorted(twice))} is named twice; a comparison has each once")
    said, fields = given.fields("recipe"), given.fields("model")
    what: dict[str, Any] = {"names": named, "seeds": given.seeds, "tuned": given.finetune or 0}
    what |= {"scalings": tuple(given.scale.split(",")) if given.scale else ()}
    if given.task is None:
        given.refuse("--samples is for --task", "samples")
        what["corpus"], what["spec"] = new_text(given)
        length, what["count"], what["fields"] = fields.get("L", Config.L), given.count, fields
        said = {"steps": BRIEF, "warmup": min(Recipe.warmup, said.get("steps", BRIEF) // 5)} | said
    else:
        given.refuse("--task compares answers of samples", "count", "finetune")
        exercise, what["spec"] = new_exercise(given, fields.get("L"), alone=True)
        length, what["count"], what["corpus"] = exercise.longest, given.samples, exercise
        what["fields"] = exercise.task.model | fields | {"L": exercise.tokens}
        said = exercise.task.recipe | said
    longest = LONGER * length if given.longest is None else given.longest
    plan = Plan(**what, recipe=Recipe(**said), longest=longest)
    plan.refuse()
    for entry in comparison.entries(plan):
        loop.check_recipe(entry.cfg, entry.recipe, plan.corpus, given.backend)
    return plan


def compared(plan: Plan, given: Given) -> dict[str, Any]:
    """Train and evaluate what is missing; the document that the report is made from."""
    root, be = Path(given.runs), backend_of(given, plan.recipe.dtype)
    work = list(comparison.entries(plan))
    with np.errstate(all="ignore"):
        costs = [cost(entry, root, plan, be) for entry in work]
        total = sum(map(sum, costs))
        given.say("work", f"{counted(len(work), 'model')}, about {text.duration(total)}; runs in {root}")
        with given.signals.gently(), given.progress(round(total), "seconds") as bar:
            both = zip(work, costs, strict=True)
            results = [one(entry, plan, root, be, bar, left) for entry, left in both]
    about: dict[str, Any] = {"bytes": plan.count, "text": plan.corpus.name}
    about |= {"protocol": str(Protocol()), "cut": str(plan.cut)}
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


def cost(entry: Contender, root: Path, plan: Plan, be: Backend) -> tuple[float, float]:
    """Seconds of training and of evaluation that are left of an entry, by a measured step and byte."""
    known = comparison.shelf(root)
    run = known.get(comparison.marked(entry, known, plan, be.name))
    if run and comparison.measured(run, plan, entry, be):
        return 0.0, 0.0
    step, evaluation = comparison.seconds(plan, entry, be)
    done = (run.checkpoints or [0])[-1] if run else 0
    return step * (entry.recipe.steps - done), evaluation


def one(entry: Contender, plan: Plan, root: Path, be: Backend, bar: Progress, left: Any) -> dict[str, Any]:
    """Train and evaluate one entry, as far as that has not been done, which takes the seconds of `cost`.
    Raises Interrupted after a signal.
    """
    run, words = comparison.made(entry, root, plan, be), f"{entry.label}, seed {entry.recipe.seed}"
    start, (training, evaluation) = bar.count, left

    def at(trained: float, evaluated: float) -> None:
        bar.stop_if_asked()
        bar.to(round(start + trained * training + evaluated * evaluation), words)

    if result := comparison.measured(run, plan, entry, be):
        return result
    if not run.finished:
        began, steps = (run.checkpoints or [0])[-1], entry.recipe.steps
        for record in loop.train(run, plan.corpus, be, say=bar.line, stopping=bar.stopping):
            if record["event"] == "stopped" or (record["event"] == "step" and not bar.stopping()):
                at((record["step"] - began) / (steps - began), 0.0)
    return comparison.measure(run, plan, entry, be, lambda done: at(1.0, done))


def read(path: Path) -> dict[str, Any]:
    """The document of an earlier report. Raises Misuse for what is none."""
    if path.is_dir() or not path.exists():
        raise Misuse(f"{path}: no such file; expected a comparison.json")
    with theirs():
        found = load_json(path, "a comparison.json")
    try:
        with np.errstate(divide="raise"):
            lab.report_page(found, b"")
    except KeyError as error:
        raise Misuse(f"{path}: not a comparison.json: {error} is missing in it") from error
    except (AttributeError, ArithmeticError, IndexError, *store.UNREADABLE) as error:
        what = f"{type(error).__name__}: {error}"
        raise Misuse(f"{path}: not a comparison.json: no table can be made of it ({what})") from error
    return found


def write_report(folder: Path, found: dict[str, Any]) -> dict[str, str]:
    """The files of the report, by what they are."""
    folder.mkdir(parents=True, exist_ok=True)
    what = found["task"] if "task" in found else found["text"]
    about = [f"{what}, trained at {found['L']:,}; {counted(len(found['seeds']), 'seed')}"]
    picture = drawing().drawn(".png", lab.title(found), about, list(lab.panels(found)))
    store.write_bytes(folder / "comparison.png", picture)
    store.write_text(folder / "comparison.json", store.canonical(found) + "\n")
    store.write_text(folder / "comparison.csv", lab.as_csv(found))
    store.write_text(folder / "report.html", lab.report_page(found, picture))
    names = {one: f"comparison.{one}" for one in ("csv", "json")}
    names |= {"picture": "comparison.png", "report": "report.html"}
    return {what: str(folder / name) for what, name in names.items()}
