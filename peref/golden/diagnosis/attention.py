"""Guesses at attention: who sees whom, which of scores, probabilities and output is wrong first, heads,
scale.

Not here: what is added to the logits (biases, options), how q and k turn (rotation).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import NEARLY, Answer, Clue, Guess, Trap, guess
from peref.hooks import softmax_scale


def with_case(**changes: Any) -> Any:
    """The case with other facts; what is callable is asked with the case, None leaves the case out."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.level != "attn":
            return None
        given = {
            name: change(answer.case) if callable(change) else change for name, change in changes.items()
        }
        return (
            None
            if all(getattr(answer.case, name) == x for name, x in given.items())
            else expected(replace(answer.case, **given), answer.a)
        )

    return gives


def placed(answer: Answer, **changes: Any) -> Any:
    """The same positions, where other cells are seen."""
    assert answer.case is not None
    at = replace(answer.case.at)
    vars(at).update(changes)
    return expected(answer.case, answer.a, None, at)


def strict(answer: Answer) -> Any:
    case = answer.case
    if case is None or case.level != "attn" or not case.causal:
        return None
    see = case.at.see & ~np.eye(case.T, dtype=bool)
    return {n: x for n, x in placed(answer, see=see).items() if n != "scores"}


def ahead(answer: Answer) -> Any:
    """A query sees the token after it too."""
    case = answer.case
    if case is None or case.level != "attn" or not case.causal or case.seg is not None:
        return None
    return {
        n: x
        for n, x in placed(answer, see=case.at.see | np.eye(case.T, k=1, dtype=bool)).items()
        if n != "scores"
    }


def in_segments(change: Any) -> Any:
    """Other segments for the mask; positions as they were."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.seg is None:
            return None
        return expected(answer.case, answer.a, None, replace(answer.case.at, seg=change(answer.case.at.seg)))

    return gives


def seen_all(answer: Answer) -> Any:
    """Every key of the sequence seen, distances as they were."""
    case = answer.case
    if case is None or case.seg is None or case.level != "attn":
        return None
    return placed(answer, see=np.broadcast_to(replace(case.at, seg=None).see, (case.B, 1, case.T, case.T)))


def heads(order: Any) -> Any:
    """Query head h reads key-value head order(h, H, G)."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        if case is None or case.level != "attn" or case.G == 1:
            return None
        reads = [order(h, case.H, case.G) for h in range(case.H)]
        many = {**answer.a, **{n: answer.a[n][:, reads] for n in "kv"}}
        return {
            n: x for n, x in expected(replace(case, G=case.H), many).items() if n not in ("vjp.k", "vjp.v")
        }

    return gives


def with_scale(change: Any) -> Any:
    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.level != "attn":
            return None
        pe = answer.case.config.encoding(0)
        return expected(
            answer.case, answer.a, replace(pe, scale=lambda D: change(softmax_scale(pe, D), answer.case))
        )

    return gives


def of_attention(answer: Answer) -> Iterator[Guess | Clue]:
    """All that may be wrong about a mask, heads and scale."""
    case = answer.case
    if case is None or answer.derivative or not answer.wrong:
        return
    if case.seg is not None:
        yield guess("mask.documents", "documents and padding see one another", in_segments(lambda seg: None))
        yield guess(
            "mask.documents",
            "padding is masked, documents are not told apart",
            in_segments(lambda seg: (seg > 0).astype(int)),
        )
        yield guess("mask.documents", "documents and padding see one another", seen_all)
    if case.level != "attn":
        return
    yield guess(
        "mask.causal",
        f"your mask is {'not causal' if case.causal else 'causal'}",
        with_case(causal=lambda c: not c.causal),
    )
    yield guess("mask.causal", "a token does not see itself", strict)
    yield guess("mask.causal", "a token sees the one after it", ahead)
    if case.window:
        for more in (1, -1, 2, -2):
            words = f"your window is {case.window + more}, this case has {case.window}"
            yield guess(
                "mask.window",
                words,
                with_case(window=lambda c, more=more: c.window and max(c.window + more, 1)),
            )
        yield guess("mask.window", "your window is not there", with_case(window=None))
    yield guess(
        "gqa.order",
        "query head h reads key-value head h mod G, expected h // (H/G)",
        heads(lambda h, H, G: h % G),
    )
    yield guess(
        "gqa.order",
        "the order of your key-value heads is reversed",
        heads(lambda h, H, G: G - 1 - h // (H // G)),
    )
    for step in range(1, case.G):
        words = f"your key-value heads are off by {'one' if step == 1 else step}"
        yield guess("gqa.order", words, heads(lambda h, H, G, step=step: (h // (H // G) - step) % G))
    values = lambda c: expected(c.case, {**c.a, "v": c.a["k"]}) if c.case and c.case.level == "attn" else None
    yield guess("basic", "you add keys in place of values", values)
    yield from of_scale(answer)
    yield from of_steps(answer)


def of_scale(answer: Answer) -> Iterator[Guess]:
    """What q k is multiplied with, found from the scores; without them from a few usual ones."""
    case = answer.case
    assert case is not None
    x, g = answer.wide("scores"), answer.want("scores") if "scores" in answer.entry.outputs else None
    scale = softmax_scale(case.config.encoding(0), case.D)
    if x is not None and g is not None and "scores" in answer.wrong:
        rest = with_scale(lambda s, case: 0.0)(answer)["scores"]
        there = np.isfinite(x) & np.isfinite(g) & np.isfinite(rest)
        c = factor(x[there] - rest[there], g[there] - rest[there])
        if c is not None and abs(c - 1) > NEARLY:
            yield guess(
                "attn.scale",
                f"your logits are scaled by {c * scale:.6g}, expected {scale:.6g}",
                fixed(c * scale, case),
            )
    for words, change in (
        ("are not scaled", lambda s, case: 1.0),
        ("are scaled by D**-0.5", lambda s, case: case.D**-0.5),
    ):
        yield guess("attn.scale", f"your logits {words}", with_scale(change))


def fixed(value: float, mine: Any) -> Any:
    """That scale: as a power of D or C where it is one here, so that it is another elsewhere."""
    for change in (
        lambda s, c: c.C**-0.5,
        lambda s, c: 1 / c.C,
        lambda s, c: c.D**-0.5,
        lambda s, c: 1 / c.D,
        lambda s, c: (c.D / 1) ** -0.25,
    ):
        if abs(change(0, mine) / value - 1) < 1e-5:
            return with_scale(change)
    return with_scale(lambda s, case: value * s / softmax_scale(mine.config.encoding(0), mine.D))


def factor(x: Any, g: Any) -> float | None:
    below = float((g * g).sum())
    c = float((x * g).sum()) / below if below else np.nan
    return c if np.isfinite(c) else None


def of_steps(answer: Answer) -> Iterator[Clue]:
    """Who sees whom in the probabilities, and where all is right before them, whether their rows are a
    softmax.
    """
    case, p = answer.case, answer.wide("probabilities")
    assert case is not None
    if p is None:
        yield from of_blind(answer)
    if p is None or answer.right("probabilities"):
        if answer.right("probabilities") and "out" in answer.wrong and answer.wide("out") is not None:
            yield from of_values(answer)
        return
    g = answer.want("probabilities")
    see = np.broadcast_to(case.at.see, g.shape)
    unsure = see & (g < 1e-6)
    with np.errstate(invalid="ignore"):
        more, less = (p != 0) & ~see, (p == 0) & see & ~unsure
    t, s = np.arange(case.T)[:, None], np.arange(case.T)
    if np.isnan(p).any():
        if case.seg is not None:
            yield Clue(Trap("mask.padding", "a row that sees nothing is not 0"), 1)
        return
    if more.any() or less.any():
        seg = np.ones((case.B, case.T), int) if case.seg is None else case.at.seg
        blind = ~see.any(-1, keepdims=True)
        across = (seg[:, None, :, None] != seg[:, None, None, :]) | (seg == 0)[:, None, None, :]
        if (more & blind).any() and not (more & ~blind).any() and not less.any():
            yield Clue(Trap("mask.padding", "a row that sees nothing is not 0"), 1)
        elif (more & across).any() and not (more & ~across & (s <= t)).any():
            yield Clue(Trap("mask.documents", "cells of other documents or of padding are seen"), 0.8)
        elif case.window and not (more & (s > t) & case.causal).any() and not (less & (t == s)).any():
            yield Clue(Trap("mask.window", "keys at the edge of the window are seen, or are not"), 0.8)
        elif case.causal and (more & (s > t)).any():
            yield Clue(Trap("mask.causal", "the future is seen"), 0.8)
        elif less.any():
            yield Clue(Trap("mask.causal", "cells that should be seen are not"), 0.6)
    elif answer.right("scores") and answer.far("probabilities"):
        rows = p.sum(-1)[see.any(-1)]
        words = (
            "your scores are right and your weights are not; a row of them adds up to "
            f"{rows.ravel()[np.argmax(abs(rows.ravel() - 1))]:.4g}"
        )
        yield Clue(Trap("attn.softmax", words), 1)


def of_blind(answer: Answer) -> Iterator[Clue]:
    """Where there are no probabilities: rows of the output that see nothing are not 0, and all others are
    right.
    """
    case, out = answer.case, answer.wide("out")
    if case is None or out is None or case.seg is None:
        return
    blind = np.broadcast_to(~case.at.see.any(-1)[..., None], out.shape)
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(out - answer.want("out")) <= 1e-3 * np.abs(answer.want("out")).max())
    if off.any() and not (off & ~blind).any():
        yield Clue(
            Trap(
                "mask.padding",
                f"a row that sees nothing is {'not finite' if not np.isfinite(out[off]).any() else 'not 0'}",
            ),
            1,
        )


def of_values(answer: Answer) -> Iterator[Clue]:
    """The weights are right and what they weigh is not."""
    case, out = answer.case, answer.wide("out")
    assert case is not None
    assert out is not None
    p, v = answer.want("probabilities"), answer.a["v"]
    size = np.abs(answer.want("out")).max() + 1e-30
    each = [
        [np.abs(p[:, h] @ v[:, m] - out[:, h]).max() < 1e-3 * size for m in range(case.G)]
        for h in range(case.H)
    ]
    if case.G > 1 and all(any(row) for row in each):
        yield Clue(
            Trap(
                "gqa.order",
                f"query heads read values of heads {', '.join(str(row.index(True)) for row in each)}",
            ),
            0.9,
        )
