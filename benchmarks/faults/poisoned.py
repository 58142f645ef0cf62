"""Numbers that are not finite in weights, moments or gradients, one or many, between two steps: are they ever
saved, are they noticed in the next step at the latest, is anything removed for them, and does the run go on
from its last good step?
"""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.faults import (
    BACKENDS,
    CFG,
    SMALL,
    SOUND,
    Mutant,
    backend_of,
    begun,
    bits,
    stepped_to,
    undisturbed,
    without,
)
from peref import optim, store
from peref.errors import Diverged
from peref.parameters import init
from peref.runs import Run

COUNT = 300
MUTANTS: dict[str, Mutant] = {
    "no weight or moment is looked at": ("peref.runs.check_finite", "lambda arrays: None"),
    "no gradient is looked at": ("peref.train.read_status", "lambda status, p: (1.0, 1.0)"),
}


class Case(NamedTuple):
    """Which array of which kind, how many of its numbers from which place on, what is written there, after
    which step.
    """

    backend: str
    kind: str
    name: str
    place: float
    many: int
    value: float
    step: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """As many of weights as of first and second moments and of gradients, in any array of the model."""
    names = sorted(init(CFG, 0))
    values = [float("nan"), float("inf"), float("-inf")]
    found = []
    for n in range(count):
        of = draw.choice(BACKENDS), "pmvg"[n % 4], draw.choice(names)
        how = draw.random(), draw.choice([1, 1, 2, 1000]), draw.choice(values)
        found.append(Case(*of, *how, draw.randrange(1, SMALL.steps)))
    return found


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What goes wrong when the numbers are written between step `case.step` and the next."""
    run, be = begun(folder, backend=case.backend), backend_of(case.backend)
    before = {}

    def update(p, g, m, v, loss, rate, step, *rest, **given):
        if int(step) == case.step + 1:
            before.update(files(run))
            array = {"p": p, "m": m, "v": v, "g": g}[case.kind][case.name]
            first = int(case.place * array.size)
            array.flat[first : first + case.many] = case.value
        optim.update(p, g, m, v, loss, rate, step, *rest, **given)

    with without(mutant):
        try:
            stepped_to(run, SMALL.steps, replace(be, update=update))
            return "it was not noticed"
        except Diverged as error:
            said = str(error)
    if words := unsound(run):
        return words
    if (found := re.match(r"step (\d+): ", said)) is None or int(found[1]) > case.step + 1:
        return f"noticed too late: {said}"
    if lost := [name for name in before if name not in files(run)]:
        return f"removed: {', '.join(lost)}"
    # a bad gradient spoils nothing: the step before it can still be saved
    good = case.step if case.kind == "g" else max(map(int, before), default=0)
    if (f"step {good} is saved in" if good else "no good step is saved") not in said:
        return f"the message does not say how to go on from step {good}: {said}"
    stepped_to(run, SMALL.steps, be)
    return "" if bits(run) == bits(undisturbed(case.backend)) else "it ends with other bits"


def files(run: Run) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (run.folder / "ckpt").glob("*.safetensors")}


def unsound(run: Run) -> str:
    """Which checkpoint has a number that is not finite."""
    for step in run.checkpoints:
        arrays, _ = store.load_arrays(run.folder / "ckpt" / f"{step:08d}.safetensors")
        if bad := [name for name, a in arrays.items() if not np.isfinite(a).all()]:
            return f"step {step} is saved with {', '.join(bad)}"
    return ""


def part(case: Case) -> str:
    return {"p": "weights", "m": "first moments", "v": "second moments", "g": "gradients"}[case.kind]
