"""Guesses at rotations: pairs, signs, angles of few digits, frequencies in another order.

Not here: gains (gains), how pairs and angles are read from what came (pairs), frequencies of options or
other ladders (options, parts), positions (positions).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Clue, Guess, Trap, guess
from peref.golden.diagnosis.gains import another, flag_of_gain
from peref.golden.diagnosis.pairs import cosines, gained, rotation_of
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import around, rotation
from peref.model import PLAIN


def with_angles(change: Any) -> Any:
    """The case with change(angle, gain_q, gain_k) in place of the three; None where frequencies are learned,
    whose angles are on the tape.
    """

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.hook != "rotate" or answer.parameters:
            return None
        pe = answer.case.config.encoding(0)
        other = around(pe, "rotate", lambda rotate, *place: change(*rotate(*place)))
        return expected(answer.case, answer.a, other)

    return gives


def at_width(cut: bool) -> Any:
    """The angles of the whole head, cut to the rotary width or not."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        if case is None or case.hook != "rotate" or case.config.R == case.D:
            return None
        whole, half = replace(case, R=case.D).config.encoding(0), case.config.R // 2 if cut else None
        wide = lambda _, *place: tuple(x if x is None else x[..., :half] for x in rotation(whole, *place))
        return expected(case, answer.a, around(case.config.encoding(0), "rotate", wide))

    return gives


def mixed(answer: Answer) -> Any:
    """Angles laid out in halves, pairs that are adjacent."""
    case = answer.case
    if case is None or case.level != "op":
        return None
    angle = rotation_of(case, answer)[0]
    both = np.concatenate([angle, angle], -1)
    both = both[:, None] if both.ndim == 3 else both
    found = {}
    for name in "qk":
        x, R = answer.a[name], case.config.R
        mate = np.stack([-x[..., 1:R:2], x[..., 0:R:2]], -1).reshape(x[..., :R].shape)
        found[f"{name}_rotated"] = np.concatenate(
            [x[..., :R] * np.cos(both) + mate * np.sin(both), x[..., R:]], -1
        )
    return found


def one_of_two(times_q: float, times_k: float) -> Any:
    """Other multiples of the angle for q and for k: what is missing is turned before, what is too much is
    turned back.
    """

    def gives(answer: Answer) -> Any:
        case = answer.case
        if case is None or case.level == "table":
            return None
        angle = rotation_of(case, answer)[0]
        before = lambda x, times: PLAIN.turn(x, (times - 1) * np.asarray(angle), None, layout=case.layout)
        return expected(
            case, {**answer.a, "q": before(answer.a["q"], times_q), "k": before(answer.a["k"], times_k)}
        )

    return gives


def of_turning(answer: Answer) -> Iterator[Guess | Clue]:
    """All that may be wrong about a rotation."""
    case = answer.case
    if case is None or case.hook != "rotate" or answer.derivative:
        return
    other = "interleaved" if case.layout == "half" else "half"
    swap = lambda c: (
        expected(replace(c.case, layout="interleaved" if c.case.layout == "half" else "half"), c.a)
        if c.case.level != "table"
        else None
    )
    yield guess(
        "rope.layout.half", f"you pair channels as layout {other} does, this case wants {case.layout}", swap
    )
    always = lambda c: expected(replace(c.case, layout=other), c.a) if c.case.level != "table" else None
    yield guess(
        "rope.layout.half",
        f"you pair channels as layout {other} does, whatever the case asks for (here {case.layout})",
        always,
    )
    yield guess(
        "rope.layout.mixed", "your frequencies are laid out in halves, your pairs are adjacent", mixed
    )
    yield guess(
        "basic", "there is no position in it: nothing turns", with_angles(lambda phi, *g: (0 * phi, *g))
    )
    yield guess(
        "rope.sign", "you turn the other way: the sign of the sine", with_angles(lambda phi, *g: (-phi, *g))
    )
    turned = lambda c: (
        with_angles(lambda phi, *g: (-phi, *g))(c) if c.entry.words["level"] != "table" else None
    )
    yield guess(
        "rope.sign",
        "your angles are right and you turn the other way: the minus is on the wrong half of a pair",
        turned,
    )
    yield guess(
        "rope.sign",
        "your sines and cosines are exchanged",
        with_angles(lambda phi, *g: (np.pi / 2 - phi, *g)),
    )
    yield guess(
        "rope.partial.exponent_head_dim",
        "your frequencies come from the head width, not the rotary width",
        at_width(True),
    )
    yield guess("rope.partial.pairing", "you turn every channel of the head", at_width(False))
    for words, q, k in (
        ("you turn q and not k", 1, 0),
        ("you turn k and not q", 0, 1),
        ("you turn k twice", 1, 2),
        ("you turn q twice", 2, 1),
    ):
        yield guess("rope.one_of_two", words, one_of_two(q, k))
    for words, change in (
        ("run from slow to fast", lambda x: x[..., ::-1]),
        ("are those of the next pair", lambda x: np.roll(x, 1, -1)),
        ("are those of the pair before", lambda x: np.roll(x, -1, -1)),
    ):
        new = lambda phi, g, h, change=change: (
            change(phi),
            *(None if x is None else change(x) for x in (g, h)),
        )
        yield guess("rope.frequencies", f"your frequencies {words}", with_angles(new))
        yield guess(
            "rope.frequencies",
            f"your frequencies {words}, gains apart",
            with_angles(lambda phi, *g, change=change: (change(phi), *g)),
        )
    for words, low in (("float16", float16), ("bfloat16", bfloat16)):
        yield guess(
            "rope.phase.low_precision",
            f"your angles were {words}",
            with_angles(lambda phi, *g, low=low: (low(phi), *g)),
        )
        yield guess("rope.phase.low_precision", f"your positions were {words}", with_positions(low))
        slow = lambda c, low=low: with_frequencies(c, low)
        yield guess("rope.phase.low_precision", f"your frequencies were {words}", slow)
    yield from of_angles(answer)


def with_positions(change: Any) -> Any:
    """The angles are those of change(positions)."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.hook != "rotate":
            return None
        pe = answer.case.config.encoding(0)
        other = around(pe, "rotate", lambda rotate, p, i, n: rotate(p, change(np.asarray(i, float)), n))
        return expected(answer.case, answer.a, other)

    return gives


def with_frequencies(answer: Answer, change: Any) -> Any:
    """The frequencies, which are the angles at position 1, are changed; for one number a token."""
    if answer.case is None or answer.case.hook != "rotate" or answer.case.at.i.ndim == 3 or answer.parameters:
        return None

    def changed(rotate: Any, p: Any, i: Any, n: Any) -> Any:
        w = np.asarray(rotate(p, np.array([1]), n)[0])[0]
        return np.asarray(i)[..., None] * change(w), *rotate(p, i, n)[1:]

    return expected(answer.case, answer.a, around(answer.case.config.encoding(0), "rotate", changed))


def of_angles(answer: Answer) -> Iterator[Guess | Clue]:
    """What the angles say that came, from a table or from what was turned."""
    seen, case = cosines(answer), answer.case
    if seen is None or case is None:
        return
    theta = np.asarray(rotation_of(case, answer)[0])
    half = seen.shape[-1] // 2
    z, right = seen[..., :half] + 1j * seen[..., half:], np.exp(1j * theta)
    if z.shape != right.shape:
        return
    most = 300 * ROUNDOFF[next(answer.got[name].dtype for name in answer.wrong)] + 1e-6
    alike = lambda n, m: np.abs(z[..., n] - right[..., m]).max() < most * (1 + np.abs(theta[..., m]).max())
    if all(alike(n, n) for n in range(half)):
        if gained(answer):
            yield Clue(Trap(flag_of_gain(answer), f"your angles are right, and {another(answer)}"), 0.96)
        return
    off = np.abs(np.angle(z / right)) / np.maximum(np.abs(theta), 1e-30)
    if off.max() < 2.0**-7 and any(answer.far(name) for name in answer.wrong):
        words = f"your angles are off by up to one part in {1 / off.max():.0f}: digits are missing"
        yield Clue(Trap("rope.phase.low_precision", words), 0.6)
        return
    order = [next((m for m in [n, *range(half)] if alike(n, m)), None) for n in range(half)]
    if None not in order and order != list(range(half)) and len(set(order)) > 1:
        halves = [m for m in order if m is not None] == list(np.roll(range(half), half // 2))
        axes = case.config.encoding(0).axes not in (1, None)
        flag = "rope.axial.axes" if halves and axes and half > 2 else "rope.frequencies"
        words = f"your frequencies are in another order: {', '.join(map(str, order))}"
        yield guess(
            flag,
            words,
            with_angles(lambda phi, *g: (phi[..., order] if phi.shape[-1] == half else phi, *g)),
            0.9,
        )
    still = [bool(np.abs(z[..., n] - 1).max() < most) for n in range(half)]
    kept = [bool(alike(n, n)) for n in range(half)]
    if (
        all(s or k for s, k in zip(still, kept, strict=True))
        and not all(kept)
        and any(k and not s for s, k in zip(still, kept, strict=True))
    ):
        words = (
            f"pairs {', '.join(str(n) for n in range(half) if not kept[n])} do not turn: slow frequencies "
            "are dropped"
        )
        yield Clue(Trap("rope.frequencies", words), 0.8)


def float16(x: Any) -> Any:
    """To float16, infinite beyond 65504 as there, and back."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


def bfloat16(x: Any) -> Any:
    """To the nearest bfloat16, ties to even, and back."""
    bits = x.astype(np.float32).view(np.uint32)
    return (
        (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16)
        .astype(np.uint32)
        .view(np.float32)
        .astype(np.float64)
    )
