"""Which run, weights, text and length a command means."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref import data
from peref.backends import Backend
from peref.backends import get as get_backend
from peref.cli import text
from peref.cli.options import Given
from peref.config import Config
from peref.errors import Misuse
from peref.evaluate import config_of, model_of, weights_of
from peref.runs import Run, newest, open_run
from peref.settings import choose
from peref.tasks import TASKS, Exercise, Lesson
from peref.vocabulary import Vocabulary, vocabulary_of
from peref.xp import Arrays

OF_TEXT = ("protocol", "stride", "count", "tokens", "temperature", "top_k", "seed", "settings")


@dataclass(frozen=True)
class Trained:
    """A run with its newest weights. `how` says how it was found, where it was not named; exercise is that of
    a run of a task.
    """

    run: Run
    how: str
    cfg: Config
    params: Arrays
    step: int
    exercise: Exercise | None = None

    @property
    def dtype(self) -> Any:
        return self.params["embed.weight"].dtype

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary_of(self.run, self.cfg.V)


def backend_of(given: Given, dtype: Any, record: bool = True) -> Backend:
    """The one that the options `computing` name; perhaps compiled now, so ask when nothing else can be
    refused any more.
    """
    how = {"dtype": dtype, "threads": given.threads, "every_tile": given.every_tile, "record": record}
    return get_backend(given.backend, **how, say=given.note)


def named_or_newest(given: Given, named: str | None, option: str = "", **which: Any) -> tuple[Run, str]:
    """The run that is named, perhaps by an option, or the newest in the folder of the runs, and words about
    how it was found.
    """
    if named is None:
        return newest(given.runs, **which), f" (the newest in {given.runs})"
    if given.said("runs"):
        what = f"--runs {given.runs} says where to look for the newest run, but {option}{named} names one"
        raise Misuse(f"{what}; leave one of them out")
    return open_run(named), ""


def weights_found(run: Run, how: str = "", pe: str | None = None, pairs: bool = False) -> Trained:
    """A run with its weights. `pe` names the files of its encodings, if any; `pairs`: it may be an encoder
    and a decoder.
    """
    if pe is not None:
        choose(pe)
    (model_of if pairs else config_of)(run)
    return Trained(run, how, *weights_of(run))


def names_files(run: Run, pe: str | None) -> bool:
    """Whether --pe says where the files of the run's encodings are, as Run.cycle does, and no more; they are
    imported then.
    """
    if pe is None or not run.own:
        return False
    config = run.record["config"]
    cycle = [name for name, _ in config["pe"]]
    files = [name for name, about in run.own.items() if not about["package"]]
    return [name for name, _ in choose(pe)["pe"]] == (files if "encoder" in config else cycle)


def find_trained(given: Given, named: str | None, pairs: bool = False) -> Trained:
    """The run that is named, or the newest with a checkpoint, of the task that is named if any; `pairs`: of
    no task it may be an encoder and a decoder too. Raises Misuse where it is of another task, and for options
    that a task has no use for.
    """
    task, pe, spec = (vars(given).get(option) for option in ("task", "pe", "data"))
    run, how = named_or_newest(given, named, task=None if named else task)
    if task and run.task != task:
        raise Misuse(f"{run.folder} was trained on {run.task or 'text'}, not on the task {task}")
    if run.task is None:
        return weights_found(run, how, pe, pairs)
    unused = OF_TEXT if names_files(run, pe) else (*OF_TEXT, "pe")
    given.refuse(f"{run.folder} was trained on the task {run.task}", *unused)
    return Trained(run, how, *weights_of(run), exercise_of(run, spec))


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


def new_text(given: Given) -> tuple[data.Corpus, str]:
    """The text that --data names, else the default, and what a run calls it."""
    spec = data.DEFAULT if given.data is None else given.data
    return data.corpus(spec), data.lasting(spec)


def new_exercise(given: Given, longest: int | None, alone: bool) -> tuple[Exercise, str]:
    """The task that --task names, up to this length or its own, with the text that it hides something in, if
    any; and what a run calls it.
    """
    task = TASKS.get(given.task)
    if not (task and task.text) and given.data is not None:
        raise Misuse(f"the task {given.task} has no text; leave out --data")
    corpus, spec = new_text(given) if task and task.text else (None, given.task)
    if longest is None:
        longest = task.longest if task else 1
    return Exercise(given.task, longest, alone, corpus), spec


def read_by(run: Run, spec: str | None) -> Lesson:
    """What a run is trained on: its task, or its text, which is at `spec`, or where it was."""
    return exercise_of(run, spec) if run.task else run_text(run, spec)


def run_text(run: Run, spec: str | None) -> data.Corpus:
    """The text at `spec`, or where the run's was when it began, as tokens of its model."""
    corpus = raw_text(run, spec)
    known = vocabulary_of(run, model_of(run).V)
    if known.of_bytes:
        return corpus
    train, valid = (tokens_of(known, part)[0] for part in (corpus.train, corpus.valid))
    return replace(corpus, train=train, valid=valid)


def tokens_of(known: Vocabulary, part: np.ndarray) -> tuple[np.ndarray, float]:
    """The tokens of a text that may be cut anywhere, and how many there are in a byte."""
    if known.of_bytes:
        return part, 1.0
    said = part.tobytes().decode("utf-8", errors="ignore")  # the last character may be cut
    if known.tokenizer is None:  # and so may be the first and last number
        said = " ".join(said.split()[1:-1])
    tokens = known.tokens(said.encode())
    return tokens, tokens.size / len(said.encode()) if known.tokenizer else 1.0


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


def cycles(cfg: Config) -> dict[str, str]:
    """Encodings with their options, by what they are of."""
    if cfg.encoder:
        return {"encoder": text.cycle(cfg.encoder.pe), "decoder": text.cycle(cfg.decoder.pe)}
    return {"encoding": text.cycle(cfg.pe)}


def reach(cfg: Config, dtype: Any) -> int:
    """The length to evaluate at: four times that of training, where the encoding goes so far."""
    return int(min(4 * cfg.L, cfg.ends(dtype)[0]))
