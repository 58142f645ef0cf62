"""Which run, which text and which length a command means."""

from peref import data
from peref.cli.options import RUNS
from peref.config import Config
from peref.encodings import get
from peref.errors import Misuse
from peref.runs import Run, newest, open_run


def find_run(named: str | None, runs: str | None) -> tuple[Run, str]:
    """The run that is named, or the newest with a checkpoint; and how it was found."""
    if named is not None and runs is not None:
        raise Misuse(f"--runs {runs} says where to look for the newest run, but {named} names one; leave one of them out")
    if named is not None:
        return open_run(named), ""
    return newest(runs or RUNS), f" (the newest in {runs or RUNS})"


def text_of(run: Run, spec: str | None) -> data.Corpus:
    """The text at `spec`, or where the run's was when it began."""
    began_with = run.record["data"]["spec"]
    try:
        return data.corpus(began_with if spec is None else spec)
    except Misuse as error:
        if spec is not None:
            raise
        raise Misuse(f"{run.folder} was trained on {began_with}, which cannot be had: {error}; say with --data where it is now") from error


def reach(cfg: Config) -> int:
    """The length to evaluate at: four times that of training, where the encoding goes so far."""
    return 4 * cfg.L if all("any_length" in get(name).claims for name, _ in cfg.used) else cfg.L
