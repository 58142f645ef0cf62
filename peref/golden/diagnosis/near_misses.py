"""The near misses stored beside the cases: which of them came, and towards which of them an error points.

Not here: how they are made (tests/making).
"""

import numpy as np

from peref.golden.diagnosis.answer import Answer, Trap
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on


def of_probes(entry: Entry, name: str, got: Tensor) -> list[Trap]:
    """The near misses stored for this tensor whose every probe came, and which are not all right."""
    want, (a, b) = entry.want(name), entry.budget(name)
    if got.wide.shape != want.shape or a is None or b is None:
        return []
    found = []
    for miss in entry.words["near_miss"]:
        if miss["tensor"] == name:
            places, values = parsed_probes(miss["probes"])
            if len(places) and places.max() < want.size:
                part = lambda x, places=places: np.asarray(x).reshape(-1)[places]
                room = 2e-7 * np.abs(values) / 2.0**-24 / 4  # values have seven digits
                mine, budget = Tensor(got.dtype, part(got.bits)), (part(a) + np.abs(values), part(b) + room)
                if verdict_on(mine, values, *budget, entry.words["depth"]).passes:
                    found.append(Trap(miss["trap"], miss["words"]))
    return found


def likeness(answer: Answer) -> list[tuple[float, Trap]]:
    """How far the error at the probes of each near miss lies along the line to that near miss: the size of a
    cosine, largest first.

    An error the other way along the line is the same thing overdone: a number that should be doubled and is
    tripled.
    """
    found = []
    for miss in answer.entry.words["near_miss"]:
        name = miss["tensor"]
        if name in answer.wrong and (x := answer.wide(name)) is not None and answer.far(name):
            places, values = parsed_probes(miss["probes"])
            right = answer.want(name).reshape(-1)[places]
            mine, theirs = x.reshape(-1)[places] - right, values - right
            with np.errstate(all="ignore"):
                size = np.linalg.norm(mine) * np.linalg.norm(theirs)
                if np.isfinite(size) and size > 0:
                    cosine = float(mine @ theirs / size)
                    found.append((cosine if cosine > 0 else -0.9 * cosine, Trap(miss["trap"], miss["words"])))
    return sorted(found, key=lambda one: -one[0])


def parsed_probes(probes: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values."""
    pairs = [pair.split(":") for pair in probes.split()]
    return np.array([int(n) for n, _ in pairs], int), np.array([float(x) for _, x in pairs])
