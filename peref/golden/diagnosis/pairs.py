"""What turned, read from what came: by which angles and gains, and which channels pass.

A pair of channels that turns is a complex number times another: z' = c z, the same c for every head; |c| is
the gain and the argument of c the angle.

Not here: other pairs and maps (rotation).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.compute.operation import parameters_in
from peref.golden.diagnosis.answer import Answer, Clue, Trap
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import rotation


def pairs_of(R: int, layout: str) -> list[tuple[int, int]]:
    half = R // 2
    step, gap = (1, half) if layout == "half" else (2, 1)
    return [(step * n, step * n + gap) for n in range(half)]


def looseness(answer: Answer, name: str) -> float:
    return 300 * ROUNDOFF[answer.got[name].dtype] + 1e-6


def ratio(x: Any, y: Any, first: int, second: int, rows: bool) -> tuple[Any, float]:
    """c of z' = c z, for each token, and how badly that fits; [B,H,T,D] each."""
    z, w = x[..., first] + 1j * x[..., second], y[..., first] + 1j * y[..., second]
    over = (1,) if rows else (0, 1)
    c = (w * z.conj()).sum(over) / np.maximum((abs(z) ** 2).sum(over), 1e-30)
    left = w - (c[:, None] if rows else c) * z
    return c, float(np.sqrt((abs(left) ** 2).mean() / max((abs(w) ** 2).mean(), 1e-30)))


def pair_factors(answer: Answer, name: str) -> Any:
    """c of each pair, where what came is a rotation of the right pairs; [T,P] or [B,T,P], else None."""
    case, y = answer.case, answer.wide(name)
    if case is None or y is None:
        return None
    x, rows = answer.a[name.partition("_")[0]], case.at.i.ndim > 1
    if x.shape[1] * (1 if rows else x.shape[0]) < 2:
        return None  # of one number that turned any two channels make up a pair
    found = [ratio(x, y, *pair, rows) for pair in pairs_of(case.config.R, case.layout)]
    fits = all(miss < looseness(answer, name) for _, miss in found)
    return np.stack([c for c, _ in found], -1) if fits else None


def cosines(answer: Answer) -> Any:
    """Cosines and sines of every pair and token [..., 2P], without gains; None where they cannot be read."""
    angle, cos, sin = (answer.wide(name) for name in ("angle", "cos", "sin"))
    if cos is not None and sin is not None:
        return np.concatenate([cos, sin], -1)
    if angle is not None:
        with np.errstate(invalid="ignore"):
            return np.concatenate([np.cos(angle), np.sin(angle)], -1)
    for name in ("q_rotated", "k_rotated"):
        c = pair_factors(answer, name) if name in answer.wrong else None
        if c is not None:
            c = c / np.maximum(abs(c), 1e-30)
            return np.concatenate([c.real, c.imag], -1)
    return None


def of_channels(answer: Answer) -> Iterator[Clue]:
    """Whether the right channels turn, and some of the others do not pass as they are."""
    case = answer.case
    name = next((n for n in ("q_rotated", "k_rotated") if n in answer.wrong), None)
    if case is None or name is None or not answer.far(name) or pair_factors(answer, name) is None:
        return
    x, y, R = answer.a[name.partition("_")[0]], answer.wide(name), case.config.R
    if R < case.D and np.abs(y - x)[..., R:].max() > looseness(answer, name) * np.abs(x).max():
        words = f"channels from {R} on should pass as they are and do not"
        yield Clue(Trap("rope.partial.passthrough", words), 1)


def gains_of(answer: Answer) -> tuple[Any, Any]:
    assert answer.case is not None
    return rotation_of(answer.case, answer)[1:]


def rotation_of(case: Case, answer: Answer) -> Any:
    """Angles and gains of a case."""
    return answer.turned(rotation(case.config.encoding(0), parameters_in(answer.a), case.at.i, case.at.n))
