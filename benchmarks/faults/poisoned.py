"""A number that is not finite in a weight or a moment, between two steps: is it ever saved, is it noticed in
the next step at the latest, is anything removed for it, and does the run go on from its last good step?
"""

import random
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.faults import SMALL, SOUND, Mutant, begun, bits, stepped_to, undisturbed, without
from peref import optim, store
from peref.backends import Backend
from peref.errors import Diverged
from peref.runs import Run

COUNT = 90
MUTANTS: dict[str, Mutant] = {"nothing is looked at": ("peref.runs.check_finite", "lambda arrays: None")}


class Case(NamedTuple):
    """Which array, where in it, what is written there, and after which step."""

    kind: str
    name: str
    place: float
    value: float
    step: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """As many of weights as of first and of second moments."""
    names = ["embed.weight", "0.q.weight", "0.norm1.weight", "0.up.weight", "0.o.weight", "norm.weight"]
    kinds = ["pmv"[n % 3] for n in range(count)]
    values = [float("nan"), float("inf"), float("-inf")]
    return [
        Case(k, draw.choice(names), draw.random(), draw.choice(values), draw.randrange(1, SMALL.steps))
        for k in kinds
    ]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What goes wrong when the number is written between step `case.step` and the next."""
    run = begun(folder)
    before = {}

    def update(p, g, m, v, loss, rate, step, *rest, **given):
        if int(step) == case.step + 1:
            before.update(files(run))
            array = {"p": p, "m": m, "v": v}[case.kind][case.name]
            array.flat[int(case.place * array.size)] = case.value
        optim.update(p, g, m, v, loss, rate, step, *rest, **given)

    with without(mutant):
        try:
            stepped_to(run, SMALL.steps, Backend(update=update))
            return "it was not noticed"
        except Diverged as error:
            said = str(error)
    if words := unsound(run):
        return words
    if (found := re.match(r"step (\d+): ", said)) is None or int(found[1]) > case.step + 1:
        return f"noticed too late: {said}"
    if lost := [name for name in before if name not in files(run)]:
        return f"removed: {', '.join(lost)}"
    good = max(map(int, before), default=0)
    if (f"step {good} is saved in" if good else "no good step is saved") not in said:
        return f"the message does not say how to go on from step {good}: {said}"
    stepped_to(run, SMALL.steps)
    return "" if bits(run) == bits(undisturbed()) else "it ends with other bits"


def files(run: Run) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (run.folder / "ckpt").glob("*.safetensors")}


def unsound(run: Run) -> str:
    """Which checkpoint has a number that is not finite."""
    for step in run.checkpoints:
        arrays, _ = store.load_arrays(run.folder / "ckpt" / f"{step:08d}.safetensors")
        if bad := [name for name, a in arrays.items() if not np.isfinite(a).all()]:
            return f"step {step} is saved with {', '.join(bad)}"
    return ""
