"""What turned, read from what came: which channels each one is made of, by which angles and gains, and which
pass.

A pair of channels that turns is a complex number times another: z' = c z, the same c for every head; |c| is
the gain and the argument of c the angle. Where what came is no such thing, a map is fitted: for each channel
that came the two channels whose sum, with factors of each token's own, it is.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import Answer, Clue, Trap
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import rotation

WIDEST = 32  # heads in which every two channels are tried


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


def several(x: Any, rows: bool, most: int = 1) -> bool:
    """Whether more than `most` numbers turned by the same angle; of one any two channels make up a pair."""
    return bool(x.shape[1] * (1 if rows else x.shape[0]) > most)


def pair_factors(answer: Answer, name: str) -> Any:
    """c of each pair, where what came is a rotation of the right pairs; [T,P] or [B,T,P], else None."""
    case, y = answer.case, answer.wide(name)
    if case is None or y is None:
        return None
    x, rows = answer.a[name.partition("_")[0]], case.at.i.ndim > 1
    if not several(x, rows):
        return None
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


def made_of(x: Any, y: Any, rows: bool, most: float) -> dict[int, list[tuple[int, int]]]:
    """Channel of y -> the pairs of channels of x whose sum it is, with two factors for each token."""
    axes = (0, 2, 1, 3) if rows else (2, 0, 1, 3)
    flat = lambda z: z.transpose(axes).reshape(*(z.shape[:1] if rows else ()), z.shape[2], -1, z.shape[3])
    x, y = flat(x), flat(y)
    within, across, whole = (np.swapaxes(u, -1, -2) @ v for u, v in ((x, x), (x, y), (y, y)))
    size = np.diagonal(whole, axis1=-2, axis2=-1)
    found: dict[int, list[tuple[int, int]]] = {}
    for a, b in combinations(range(x.shape[-1]), 2):
        aa, ab, bb = within[..., a, a, None], within[..., a, b, None], within[..., b, b, None]
        ay, by = across[..., a, :], across[..., b, :]
        told = (bb * ay**2 - 2 * ab * ay * by + aa * by**2) / np.maximum(aa * bb - ab**2, 1e-30)
        left = np.sqrt(np.maximum(size - told, 0).sum(tuple(range(size.ndim - 1))))
        fits = left < most * np.sqrt(size.sum(tuple(range(size.ndim - 1)))) + 1e-30
        for e in np.flatnonzero(fits):
            found.setdefault(int(e), []).append((a, b))
    return found


def of_channels(answer: Answer) -> Iterator[Clue]:
    """Which channels what came is made of, and which pass."""
    case = answer.case
    name = next((n for n in ("q_rotated", "k_rotated") if n in answer.wrong), None)
    y = answer.wide(name) if name else None
    if case is None or name is None or y is None or case.D > WIDEST or not answer.far(name):
        return
    x, R, rows = answer.a[name.partition("_")[0]], case.config.R, case.at.i.ndim > 1
    most = looseness(answer, name)
    if not several(x, rows) or not np.isfinite(y).all():
        return
    same = [bool(np.abs(y[..., d] - x[..., d]).max() <= most * np.abs(x).max()) for d in range(case.D)]
    # squares of what is left lose half of the digits
    made = made_of(x, y, rows, np.sqrt(most) / 30) if several(x, rows, 3) else {}
    right = {d: pair for pair in pairs_of(R, case.layout) for d in pair}
    rest = [d for d in range(R, case.D) if not same[d]]
    turns = [d for d in rest if made.get(d) and not all(d in pair for pair in made[d])]
    turn_right = pair_factors(answer, name) is not None
    if rest and turn_right and not any(len(made.get(d, ())) == 1 for d in rest):
        words = f"channels from {R} on should pass as they are and do not"
        yield Clue(Trap("rope.partial.passthrough", words), 1)
    if turn_right or turns:
        return
    off = {
        d: some[0] for d, some in made.items() if len(some) == 1 and not same[d] and some[0] != right.get(d)
    }
    if off and len(off) >= R // 2 and all(made.get(d) for d in range(R)):
        partial = R != case.D and all(b - a == case.D // 2 for a, b in off.values())
        d = min(off)
        words = f"channel {d} of what came is made of channels {off[d][0]} and {off[d][1]}"
        words += f", expected {right[d][0]} and {right[d][1]}" if d in right else f", expected {d} alone"
        yield Clue(Trap("rope.partial.pairing" if partial else "rope.layout.half", words), 1)


def given(answer: Answer) -> dict[str, Any]:
    """The parameters, under their bare names."""
    return {name.removeprefix("param."): x for name, x in answer.a.items() if name.startswith("param.")}


def gains_of(answer: Answer) -> tuple[Any, Any]:
    assert answer.case is not None
    return rotation_of(answer.case, answer)[1:]


def rotation_of(case: Case, answer: Answer) -> Any:
    """Angles and gains of a case."""
    return rotation(case.config.encoding(0), given(answer), case.at.i, case.at.n)
