"""What turned, read from what came: which two channels make up a pair, by which angles and gains, and which
pass.

A pair of channels that turns is a complex number times another: z' = c z, the same c for every head. For each
two channels of what came this is tried, and the mirror image z' = c conj(z) too; so pairs are found whatever
the layout, |c| is the gain and the argument of c the angle.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import Answer, Clue, Trap
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import rotation

WIDEST = 32  # heads in which every two channels are tried


def pairs_of(R: int, layout: str) -> list[tuple[int, int]]:
    half = R // 2
    return (
        [(n, n + half) for n in range(half)]
        if layout == "half"
        else [(2 * n, 2 * n + 1) for n in range(half)]
    )


def looseness(answer: Answer, name: str) -> float:
    return 300 * ROUNDOFF[answer.got[name].dtype] + 1e-6


def ratio(x: Any, y: Any, first: int, second: int, rows: bool, mirror: bool = False) -> tuple[Any, float]:
    """c of z' = c z, for each token, and how badly that fits; [B,H,T,D] each."""
    z, w = x[..., first] + 1j * x[..., second], y[..., first] + 1j * y[..., second]
    z = z.conj() if mirror else z
    over = (1,) if rows else (0, 1)
    c = (w * z.conj()).sum(over) / np.maximum((abs(z) ** 2).sum(over), 1e-30)
    left = w - (c[:, None] if rows else c) * z
    return c, float(np.sqrt((abs(left) ** 2).mean() / max((abs(w) ** 2).mean(), 1e-30)))


def several(x: Any, rows: bool) -> bool:
    """Whether more than one number turned by the same angle; of one alone any two channels make up a pair."""
    return bool(x.shape[1] * (1 if rows else x.shape[0]) > 1)


def pair_factors(answer: Answer, name: str) -> Any:
    """c of each pair, where what came is a rotation of the right pairs; [T,P] or [B,T,P], else None."""
    case, y = answer.case, answer.wide(name)
    if case is None or y is None:
        return None
    x, rows = answer.a[name.partition("_")[0]], case.at.i.ndim > 1
    if not several(x, rows):
        return None
    found = [ratio(x, y, *pair, rows) for pair in pairs_of(case.config.R, case.layout)]
    return (
        np.stack([c for c, _ in found], -1)
        if all(miss < looseness(answer, name) for _, miss in found)
        else None
    )


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
    """Which two channels make up a pair, and which pass."""
    case = answer.case
    name = next((n for n in ("q_rotated", "k_rotated") if n in answer.wrong), None)
    y = answer.wide(name) if name else None
    if case is None or name is None or y is None or case.D > WIDEST or not answer.far(name):
        return
    x, R, rows, most = (
        answer.a[name.partition("_")[0]],
        case.config.R,
        case.at.i.ndim > 1,
        looseness(answer, name),
    )
    if not several(x, rows):
        return
    same = [bool(np.abs(y[..., d] - x[..., d]).max() <= most * np.abs(x).max()) for d in range(case.D)]
    rest_wrong, turn_right = not all(same[R:]), pair_factors(answer, name) is not None
    if rest_wrong and turn_right and not any(fits_any(x, y, d, rows, most) for d in range(R, case.D)):
        yield Clue(
            Trap("rope.partial.passthrough", f"channels from {R} on should pass as they are and do not"), 1
        )
        return
    if turn_right:
        return
    right = {frozenset(pair) for pair in pairs_of(R, case.layout)}
    turns = [(d, e) for d in range(case.D) for e in range(d + 1, case.D) if not (same[d] and same[e])]
    if all(
        any(ratio(x, y, *pair, rows, mirror=mirror)[1] < most for mirror in (False, True))
        for pair in pairs_of(R, case.layout)
    ):
        yield Clue(Trap("rope.sign", "you reflect in place of turning: one minus is missing or too many"), 1)
        return
    plain = [pair for pair in turns if ratio(x, y, *pair, rows)[1] < most]
    if plain and not {frozenset(pair) for pair in plain} <= right:
        partial = R != case.D and all(e - d == case.D // 2 for d, e in plain)
        words = ", ".join(f"{d} with {e}" for d, e in plain[:4])
        yield Clue(
            Trap(
                "rope.partial.pairing" if partial else "rope.layout.half",
                f"you pair channels {words}; this case wants layout {case.layout}",
            ),
            1,
        )


def fits_any(x: Any, y: Any, d: int, rows: bool, most: float) -> bool:
    """Whether channel d turns with some other one."""
    alike = lambda e: np.abs(y[..., [d, e]] - x[..., [d, e]]).max() > most
    others = [e for e in range(x.shape[-1]) if e != d and alike(e)]
    return any(
        (found := ratio(x, y, d, e, rows))[1] < most and np.abs(np.angle(found[0])).max() > 1e-3
        for e in others
    )


def gained(answer: Answer) -> bool:
    """Whether a gain is wrong."""
    for name in answer.wrong:
        c = pair_factors(answer, name) if name.endswith("_rotated") else None
        right = gains_of(answer)["qk".index(name[0])] if c is not None else None
        if name.startswith("gain_") or (
            c is not None and np.abs(abs(c) - (1 if right is None else right)).min() > 1e-3
        ):
            return True
    return False


def given(answer: Answer) -> dict[str, Any]:
    """The parameters, under their bare names."""
    return {name.removeprefix("param."): x for name, x in answer.a.items() if name.startswith("param.")}


def gains_of(answer: Answer) -> tuple[Any, Any]:
    assert answer.case is not None
    return rotation_of(answer.case, answer)[1:]


def rotation_of(case: Case, answer: Answer) -> Any:
    """Angles and gains of a case."""
    return rotation(case.config.encoding(0), given(answer), case.at.i, case.at.n)
