"""Guesses at rotations: which channels pair up and how, which pass, by which angles and gains.

A pair of channels that turns is a complex number times another: z' = c z, the same c for every head. For each two channels of what came this is
tried, and the mirror image z' = c conj(z) too; so pairs are found whatever the layout, and |c| is the gain, the argument of c the angle.

Not here: frequencies that an option or another ladder gives (knobs), positions (places).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peref.golden.diagnose.came import Came, Clue, Guess, Trap, guess
from peref.golden.levels import expected
from peref.golden.rule import UNIT
from peref.model import PLAIN

WIDEST = 32  # heads in which every two channels are tried


def pairs_of(R: int, layout: str) -> list[tuple[int, int]]:
    half = R // 2
    return [(n, n + half) for n in range(half)] if layout == "half" else [(2 * n, 2 * n + 1) for n in range(half)]


def looseness(came: Came, name: str) -> float:
    return 300 * UNIT[came.got[name].dtype] + 1e-6


def ratio(x: Any, y: Any, first: int, second: int, rows: bool, mirror: bool = False) -> tuple[Any, float]:
    """c of z' = c z, for each token, and how badly that fits; [B,H,T,D] each."""
    z, w = x[..., first] + 1j * x[..., second], y[..., first] + 1j * y[..., second]
    z = z.conj() if mirror else z
    over = (1,) if rows else (0, 1)
    c = (w * z.conj()).sum(over) / np.maximum((abs(z) ** 2).sum(over), 1e-30)
    left = w - (c[:, None] if rows else c) * z
    return c, float(np.sqrt((abs(left) ** 2).mean() / max((abs(w) ** 2).mean(), 1e-30)))


def turned(came: Came, name: str) -> Any:
    """c of each pair, where what came is a rotation of the right pairs; [T,P] or [B,T,P], else None."""
    case, y = came.case, came.wide(name)
    if case is None or y is None:
        return None
    x, rows = came.a[name.partition("_")[0]], case.at.i.ndim > 1
    found = [ratio(x, y, *pair, rows) for pair in pairs_of(case.config.R, case.layout)]
    return np.stack([c for c, _ in found], -1) if all(miss < looseness(came, name) for _, miss in found) else None


def cosines(came: Came) -> Any:
    """Cosines and sines of every pair and token [..., 2P], without gains; None where they cannot be read."""
    angle, cos, sin = (came.wide(name) for name in ("angle", "cos", "sin"))
    if cos is not None and sin is not None:
        return np.concatenate([cos, sin], -1)
    if angle is not None:
        return np.concatenate([np.cos(angle), np.sin(angle)], -1)
    for name in ("q_rotated", "k_rotated"):
        c = turned(came, name) if name in came.wrong else None
        if c is not None:
            c = c / np.maximum(abs(c), 1e-30)
            return np.concatenate([c.real, c.imag], -1)
    return None


def with_angles(change: Any) -> Any:
    """The case with change(angle, gain_q, gain_k) in place of the three."""

    def gives(came: Came) -> Any:
        if came.case is None or came.case.hook != "rotate":
            return None
        pe = came.case.config.encoding(0)
        return expected(came.case, came.a, replace(pe, rotate=lambda p, i, n: change(*pe.rotate(p, i, n))))  # type: ignore[misc]

    return gives


def at_width(cut: bool) -> Any:
    """The angles of the whole head, cut to the rotary width or not."""

    def gives(came: Came) -> Any:
        case = came.case
        if case is None or case.hook != "rotate" or case.config.R == case.D:
            return None
        whole = replace(case, R=case.D).config.encoding(0).rotate
        assert whole is not None
        rotate = lambda p, i, n: tuple(x if x is None else x[..., : case.config.R // 2 if cut else None] for x in whole(p, i, n))
        return expected(case, came.a, replace(case.config.encoding(0), rotate=rotate))

    return gives


def mixed(came: Came) -> Any:
    """Angles laid out in halves, pairs that are adjacent."""
    case = came.case
    if case is None or case.level != "op":
        return None
    angle, *gains = case.config.encoding(0).rotate(given(came), case.at.i, case.at.n)  # type: ignore[misc]
    both = np.concatenate([angle, angle], -1)
    both = both[:, None] if both.ndim == 3 else both
    found = {}
    for name in "qk":
        x, R = came.a[name], case.config.R
        mate = np.stack([-x[..., 1:R:2], x[..., 0:R:2]], -1).reshape(x[..., :R].shape)
        found[f"{name}_rotated"] = np.concatenate([x[..., :R] * np.cos(both) + mate * np.sin(both), x[..., R:]], -1)
    return found


def one_of_two(times_q: float, times_k: float) -> Any:
    """Other multiples of the angle for q and for k: what is missing is turned before, what is too much is turned back."""

    def gives(came: Came) -> Any:
        case = came.case
        if case is None or case.level == "table":
            return None
        angle = case.config.encoding(0).rotate(given(came), case.at.i, case.at.n)[0]  # type: ignore[misc]
        before = lambda x, times: PLAIN.turn(x, (times - 1) * np.asarray(angle), None, layout=case.layout)
        return expected(case, {**came.a, "q": before(came.a["q"], times_q), "k": before(came.a["k"], times_k)})

    return gives


def given(came: Came) -> dict[str, Any]:
    """The parameters, under their bare names."""
    return {name.removeprefix("param."): x for name, x in came.a.items() if name.startswith("param.")}


def of_turning(came: Came) -> Iterator[Guess | Clue]:
    """All that may be wrong about a rotation."""
    case = came.case
    if case is None or case.hook != "rotate" or came.derivative:
        return
    other = "interleaved" if case.layout == "half" else "half"
    swap = lambda c: expected(replace(c.case, layout="interleaved" if c.case.layout == "half" else "half"), c.a) if c.case.level != "table" else None
    yield guess("rope.layout.half", f"you pair channels as layout {other} does, this case wants {case.layout}", swap)
    yield guess("rope.layout.mixed", "your frequencies are laid out in halves, your pairs are adjacent", mixed)
    yield guess("basic", "there is no position in it: nothing turns", with_angles(lambda phi, *g: (0 * phi, *g)))
    yield guess("rope.sign", "you turn the other way: the sign of the sine", with_angles(lambda phi, *g: (-phi, *g)))
    yield guess("rope.sign", "your sines and cosines are exchanged", with_angles(lambda phi, *g: (np.pi / 2 - phi, *g)))
    yield guess("rope.partial.exponent_head_dim", "your frequencies come from the head width, not the rotary width", at_width(True))
    yield guess("rope.partial.pairing", "you turn every channel of the head", at_width(False))
    for words, q, k in (("you turn q and not k", 1, 0), ("you turn k and not q", 0, 1), ("you turn k twice", 1, 2), ("you turn q twice", 2, 1)):
        yield guess("rope.one_of_two", words, one_of_two(q, k))
    if any(x is not None for x in gains_of(came)):
        yield guess("rope.yarn.mscale_missing", "the gain (magnitude) is missing", with_angles(lambda phi, g, h: (phi, None, None)))
        yield guess("rope.yarn.mscale_missing", "the gain is on q alone", with_angles(lambda phi, g, h: (phi, g, None)))
        yield guess("rope.yarn.mscale_missing", "the gain is on k alone", with_angles(lambda phi, g, h: (phi, None, h)))
        square = lambda g: None if g is None else g * g
        yield guess("rope.yarn.mscale_twice", "the gain (magnitude) counts twice", with_angles(lambda phi, g, h: (phi, square(g), square(h))))
        yield guess("rope.xpos.gain", "the gains of q and k are exchanged", with_angles(lambda phi, g, h: (phi, h, g)))
        yield guess("rope.xpos.gain", "k has the gain of q", with_angles(lambda phi, g, h: (phi, g, g)))
    for words, low in (("float16", float16), ("bfloat16", bfloat16)):
        yield guess("rope.phase.low_precision", f"your angles were {words}", with_angles(lambda phi, *g, low=low: (low(phi), *g)))
        slow = lambda c, low=low: with_frequencies(c, low)
        yield guess("rope.phase.low_precision", f"your frequencies were {words}", slow)
    yield from of_channels(came)
    yield from of_angles(came)


def gains_of(came: Came) -> tuple[Any, Any]:
    assert came.case is not None
    return came.case.config.encoding(0).rotate(given(came), came.case.at.i, came.case.at.n)[1:]  # type: ignore[misc]


def gained(came: Came) -> bool:
    """Whether a gain is wrong."""
    for name in came.wrong:
        c = turned(came, name) if name.endswith("_rotated") else None
        right = gains_of(came)["qk".index(name[0])] if c is not None else None
        if name.startswith("gain_") or (c is not None and np.abs(abs(c) - (1 if right is None else right)).max() > 1e-3):
            return True
    return False


def with_frequencies(came: Came, change: Any) -> Any:
    """The frequencies, which are the angles at position 1, are changed; for one number a token."""
    if came.case is None or came.case.hook != "rotate" or came.case.at.i.ndim == 3:
        return None
    pe = came.case.config.encoding(0)

    def rotate(p: Any, i: Any, n: Any) -> Any:
        w = np.asarray(pe.rotate(p, np.array([1]), n)[0])[0]  # type: ignore[misc]
        return np.asarray(i)[..., None] * change(w), *pe.rotate(p, i, n)[1:]  # type: ignore[misc]

    return expected(came.case, came.a, replace(pe, rotate=rotate))


def of_channels(came: Came) -> Iterator[Clue]:
    """Which two channels make up a pair, and which pass."""
    case = came.case
    name = next((n for n in came.wrong if n.endswith("_rotated")), None)
    y = came.wide(name) if name else None
    if case is None or name is None or y is None or case.D > WIDEST:
        return
    x, R, rows, most = came.a[name.partition("_")[0]], case.config.R, case.at.i.ndim > 1, looseness(came, name)
    same = [bool(np.abs(y[..., d] - x[..., d]).max() <= most * np.abs(x).max()) for d in range(case.D)]
    rest_wrong, turn_right = not all(same[R:]), turned(came, name) is not None
    if rest_wrong and turn_right and not any(fits_any(x, y, d, rows, most) for d in range(R, case.D)):
        yield Clue(Trap("rope.partial.passthrough", f"channels from {R} on should pass as they are and do not"), 1)
        return
    if turn_right:
        return
    right = {frozenset(pair) for pair in pairs_of(R, case.layout)}
    turns = [(d, e) for d in range(case.D) for e in range(d + 1, case.D) if not (same[d] and same[e])]
    plain = [pair for pair in turns if ratio(x, y, *pair, rows)[1] < most]
    mirrored = [pair for pair in turns if ratio(x, y, *pair, rows, mirror=True)[1] < most]
    reflects = bool(mirrored) and {frozenset(pair) for pair in mirrored} <= right and len(mirrored) >= len(plain)
    if plain and not reflects and not {frozenset(pair) for pair in plain} <= right:
        partial = R != case.D and all(e - d == case.D // 2 for d, e in plain)
        words = ", ".join(f"{d} with {e}" for d, e in plain[:4])
        yield Clue(Trap("rope.partial.pairing" if partial else "rope.layout.half", f"you pair channels {words}; this case wants layout {case.layout}"), 1)
    elif reflects:
        yield Clue(Trap("rope.sign", "you reflect in place of turning: one minus is missing or too many"), 1)


def fits_any(x: Any, y: Any, d: int, rows: bool, most: float) -> bool:
    """Whether channel d turns with some other one."""
    alike = lambda e: np.abs(y[..., [d, e]] - x[..., [d, e]]).max() > most
    others = [e for e in range(x.shape[-1]) if e != d and alike(e)]
    return any((found := ratio(x, y, d, e, rows))[1] < most and np.abs(np.angle(found[0])).max() > 1e-3 for e in others)


def of_angles(came: Came) -> Iterator[Guess | Clue]:
    """What the angles say that came, from a table or from what was turned."""
    seen, case = cosines(came), came.case
    if seen is None or case is None:
        return
    theta = np.asarray(case.config.encoding(0).rotate(given(came), case.at.i, case.at.n)[0])  # type: ignore[misc]
    half = seen.shape[-1] // 2
    z, right = seen[..., :half] + 1j * seen[..., half:], np.exp(1j * theta)
    if z.shape != right.shape:
        return
    most = 300 * UNIT[next(came.got[name].dtype for name in came.wrong)] + 1e-6
    alike = lambda n, m: np.abs(z[..., n] - right[..., m]).max() < most * (1 + np.abs(theta[..., m]).max())
    if all(alike(n, n) for n in range(half)):
        if gained(came):
            yield Clue(Trap("rope.yarn.mscale_missing", "your angles are right, and the gain (magnitude) is another"), 0.95)
        return
    off = np.abs(np.angle(z / right)) / np.maximum(np.abs(theta), 1e-30)
    if off.max() < 2.0**-7:
        words = f"your angles are off by up to one part in {1 / off.max():.0f}: digits are missing"
        yield Clue(Trap("rope.phase.low_precision", words), 0.6)
        return
    order = [next((m for m in [n, *range(half)] if alike(n, m)), None) for n in range(half)]
    if None not in order and order != list(range(half)) and len(set(order)) > 1:
        halves = [m for m in order if m is not None] == list(np.roll(range(half), half // 2))
        axes = case.config.encoding(0).axes not in (1, None) or case.config.encoding(0).pairs > 1
        flag = "rope.axial.axes" if halves and axes and half > 2 else "rope.frequencies"
        words = f"your frequencies are in another order: {', '.join(map(str, order))}"
        yield guess(flag, words, with_angles(lambda phi, *g: (phi[..., order] if phi.shape[-1] == half else phi, *g)), 0.9)
    still = [bool(np.abs(z[..., n] - 1).max() < most) for n in range(half)]
    kept = [bool(alike(n, n)) for n in range(half)]
    if all(s or k for s, k in zip(still, kept, strict=True)) and not all(kept) and any(k and not s for s, k in zip(still, kept, strict=True)):
        words = f"pairs {', '.join(str(n) for n in range(half) if not kept[n])} do not turn: slow frequencies are dropped"
        yield Clue(Trap("rope.frequencies", words), 0.8)


def float16(x: Any) -> Any:
    """To float16, infinite beyond 65504 as there, and back."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


def bfloat16(x: Any) -> Any:
    """To the nearest bfloat16, ties to even, and back."""
    bits = x.astype(np.float32).view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32).astype(np.float64)


