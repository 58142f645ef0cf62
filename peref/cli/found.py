"""Which run, weights, text and length a command means."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from peref import data
from peref.backends import Backend
from peref.backends import get as get_backend
from peref.cli.completion import RUNS
from peref.config import Config
from peref.errors import Misuse
from peref.evaluate import config_of, model_of, weights_of
from peref.pair import Pair
from peref.runs import Run, newest, open_run
from peref.settings import choose
from peref.tasks import TASKS, Exercise
from peref.vocabulary import Vocabulary, vocabulary_of
from peref.xp import Arrays

OF_TEXT = {"protocol": "--protocol", "stride": "--stride", "count": "--bytes"}
OF_TEXT |= {"tokens": "--tokens", "temperature": "--temperature", "top_k": "--top-k", "seed": "--seed"}
OF_TEXT |= {"pe": "--pe", "settings": "--set"}


Say = Callable[[str, str], None]  # a name and what is said of it


@dataclass(frozen=True)
class TrainedOnTask:
    """As Trained, of a task; an encoder and a decoder, or a decoder alone."""

    run: Run
    how: str
    cfg: Config | Pair
    params: Arrays
    step: int
    exercise: Exercise


@dataclass(frozen=True)
class Trained:
    """A run with its newest weights. `how` says how it was found, where it was not named."""

    run: Run
    how: str
    cfg: Config
    params: Arrays
    step: int

    @property
    def dtype(self) -> Any:
        return self.params["embed.weight"].dtype

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.run, self.cfg.V)


def backend_of(
    given: SimpleNamespace, dtype: Any, say: Callable[[str], None], record: bool = True
) -> Backend:
    """The one that the options `computing` name; perhaps compiled now, so ask when nothing else can be
    refused any more.
    """
    how = {"dtype": dtype, "threads": given.threads, "every_tile": given.every_tile, "record": record}
    return get_backend(given.backend, **how, say=say)


def named_or_newest(named: str | None, runs: str | None, option: str = "", **which: Any) -> tuple[Run, str]:
    """The run that is named, perhaps by an option, or the newest in the folder `runs`, and words about how
    it was found.
    """
    if named is not None and runs is not None:
        what = f"--runs {runs} says where to look for the newest run, but {option}{named} names one"
        raise Misuse(f"{what}; leave one of them out")
    where = RUNS if runs is None else runs
    return (
        (open_run(named), "") if named is not None else (newest(where, **which), f" (the newest in {where})")
    )


def find_trained(named: str | None, runs: str | None, pe: str | None = None) -> Trained:
    """The run that is named, or the newest with a checkpoint. `pe` names the files of its encodings, if
    any.
    """
    run, how = named_or_newest(named, runs)
    if pe is not None:
        choose(pe)
    config_of(run)
    return Trained(run, how, *weights_of(run))


def find_task(given: SimpleNamespace, named: str | None) -> TrainedOnTask | None:
    """The run that is named, or the newest with a checkpoint, of the task that is named if any; None where it
    is of text. Raises Misuse where it is of another task, and for options that a task has no use for.
    """
    run, how = named_or_newest(named, given.runs, task=None if named else given.task)
    if given.task and run.task != given.task:
        raise Misuse(f"{run.folder} was trained on {run.task or 'text'}, not on the task {given.task}")
    if run.task is None:
        return None
    if said := [option for name, option in OF_TEXT.items() if getattr(given, name, None) not in (None, ())]:
        raise Misuse(f"{run.folder} was trained on the task {run.task}; leave out {', '.join(said)}")
    return TrainedOnTask(run, how, *weights_of(run), exercise_of(run, getattr(given, "data", None)))


def exercise_of(run: Run, spec: str | None = None) -> Exercise:
    """What a run of a task is trained on; of one that has a text that at `spec`, or where it was. Raises
    Misuse where that is another version of it, or another text.
    """
    task, alone = run.record["task"], "encoder" not in run.record["config"]
    reads = task["name"] in TASKS and TASKS[task["name"]].text
    if spec is not None and not reads:
        raise Misuse(f"{run.folder} was trained on the task {run.task}, which has no text; leave out --data")
    corpus = run_text(run, spec) if reads else None
    found = Exercise(task["name"], run.record["data"]["longest"], alone, corpus)
    if corpus and task["version"] == found.task.version and found.sha256 != run.record["data"]["sha256"]:
        raise Misuse(f"{corpus.name} is not the text that {run.folder} was trained on; give its --data")
    if found.sha256 != run.record["data"]["sha256"]:
        what = f"version {task['version']} of the task {found.name}, here is {found.task.version}"
        raise Misuse(f"{run.folder} was trained on {what}")
    return found


def run_text(run: Run, spec: str | None) -> data.Corpus:
    """The text at `spec`, or where the run's was when it began, as tokens of its model."""
    corpus = raw_text(run, spec)
    known = vocabulary_of(run, model_of(run).V)
    if known.of_bytes:
        return corpus
    tokens = lambda part: known.tokens(part.tobytes())
    return replace(corpus, train=tokens(corpus.train), valid=tokens(corpus.valid))


def raw_text(run: Run, spec: str | None) -> data.Corpus:
    """The same as bytes."""
    began_with = run.record["data"]["spec"]
    if spec is None and not began_with:
        raise Misuse(f"{run.folder} was imported, and has no text; say with --data which")
    try:
        return data.corpus(began_with if spec is None else spec)
    except Misuse as error:
        if spec is not None:
            raise
        gone = f"{run.folder} was trained on {began_with}, which cannot be had"
        raise Misuse(f"{gone}: {error}; say with --data where it is now") from error


def reach(cfg: Config, dtype: Any) -> int:
    """The length to evaluate at: four times that of training, where the encoding goes so far."""
    return int(min(4 * cfg.L, cfg.ends(dtype)[0]))
