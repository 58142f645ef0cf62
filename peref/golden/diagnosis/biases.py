"""Guesses at tables: what is added to the embedding, and biases of distance: factors, other heads, other
distances, other rows.

Not here: positions (positions), formulas and options (options).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import NEARLY, Answer, Clue, Guess, Trap, flag_of, guess
from peref.golden.diagnosis.positions import at_distances
from peref.hooks import around
from peref.tape import Op


def changed(change: Any) -> Any:
    """An op that computes change(x), with the derivative of a straight line through 0 and x."""

    def forward(x: Any) -> Any:
        y = change(x)
        return y, np.where(x == 0, 1.0, y / np.where(x == 0, 1, x))

    return Op(forward, lambda ratio, dy: (dy * ratio,))


def with_rows(change: Any) -> Any:
    """The case with change(rows) of what is added to the embedding."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.hook != "embed":
            return None
        pe = answer.case.config.encoding(0)
        other = around(pe, "embed", lambda embed, *given: changed(change)(embed(*given)))
        return expected(answer.case, answer.a, other)

    return gives


def with_table(change: Any) -> Any:
    """The case with change(table) of the biases [H,N]."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.hook != "bias":
            return None
        pe = answer.case.config.encoding(0)
        other = around(pe, "bias", lambda bias, *given: changed(change)(bias(*given)))
        return expected(answer.case, answer.a, other)

    return gives


def with_buckets(step: int) -> Any:
    """Every distance has the row that many on, or the last there is."""

    def gives(answer: Answer) -> Any:
        if answer.case is None:
            return None
        table = answer.a["param.table"]
        return expected(
            answer.case,
            {**answer.a, "param.table": table[np.clip(np.arange(len(table)) + step, 0, len(table) - 1)]},
        )

    return gives


def with_rows_reversed(answer: Answer) -> Any:
    """The learned table is read from its end: the entry of one distance for another, in every head."""
    if answer.case is None or answer.case.hook != "bias":
        return None
    table = answer.a["param.table"]
    axis = table.shape.index(answer.case.H) ^ 1  # heads go across in T5, down in learned_bias
    found = expected(answer.case, {**answer.a, "param.table": np.flip(table, axis)})
    return {n: np.flip(x, axis) if n == "vjp.param.table" else x for n, x in found.items()}


def factor_of(x: Any, g: Any) -> float | None:
    """c of x = c g in the least squares, None where that is no number."""
    there = np.isfinite(x) & np.isfinite(g)
    below = float((g[there] ** 2).sum())
    c = float((x[there] * g[there]).sum()) / below if below else np.nan
    return c if np.isfinite(c) else None


def of_rows(answer: Answer) -> Iterator[Guess]:
    """What is added to the embedding: rows that are multiplied, channels that change places."""
    case = answer.case
    if case is None or case.hook != "embed" or answer.derivative or not answer.wrong:
        return
    name = answer.wrong[0]
    x, g = answer.wide(name), answer.want(name)
    if x is None:
        return
    x, g = (x, g) if name == "rows" else (x - answer.a["x"], g - answer.a["x"])
    c = factor_of(x, g)
    if c is not None and abs(c) > 1e-6 and abs(c - 1) > NEARLY:
        yield guess("embed.scale", f"your rows are the golden ones times {c:.6g}", with_rows(lambda e: c * e))
    yield guess("basic", "nothing is added: there is no position in it", with_rows(lambda e: 0 * e))
    flat, goal = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    room = 1e-4 * np.abs(goal).max()
    order = [
        next((m for m in [n, *range(len(goal.T))] if np.abs(flat[:, n] - goal[:, m]).max() < room), None)
        for n in range(len(goal.T))
    ]
    if None not in order and len(set(order)) > 1:
        yield guess(
            "sin.order",
            f"your channels are in another order: {', '.join(map(str, order))}",
            with_rows(lambda e: e[..., order]),
        )


def of_biases(answer: Answer) -> Iterator[Guess | Clue]:
    """A bias of distance."""
    case = answer.case
    if case is None or case.hook != "bias" or answer.derivative or not answer.wrong:
        return
    name = answer.wrong[0]
    x, g = answer.wide(name), answer.want(name)
    learned = "param.table" in answer.a
    yield guess("basic", "there is no position in it: the bias is 0", with_table(lambda b: 0 * b))
    for words, change in (
        ("your distances are j - i", lambda d: -d),
        ("past and future are alike", abs),
        ("keys of the future count as distance 0", lambda d: np.maximum(d, 0)),
    ):
        if not case.causal:
            yield guess("bias.sign", words, at_distances(change))
    for words, change in (
        ("one too large", lambda d: d + (d >= 0)),
        ("one too large", lambda d: d + np.where(d < 0, -1, 1)),
        ("one too large", lambda d: d + 1),
        ("one too small", lambda d: np.maximum(d - 1, np.minimum(d, 0))),
        ("one too small", lambda d: d - 1),
        ("counted from the last key", lambda d: d.max() - d if len(d) else d),
        ("counted from the last key", lambda d: d.max() - d + 1 if len(d) else d),
    ):
        yield guess(
            "bias.rows" if learned and "last" in words else "bias.off_by_one",
            f"your distances are {words}",
            at_distances(change),
        )
    yield guess("bias.negated", "your bias has the other sign", with_table(lambda b: -b))
    yield guess("bias.negated", "your bias is positive: distance is rewarded", with_table(abs))
    if learned:
        yield guess(
            "bias.rows", "the rows of your table are read in reverse order, from its end", with_rows_reversed
        )
    if learned and "max_distance" in case.config.pe[0][1]:
        for words, step in (("before", -1), ("after", 1)):
            yield guess("bias.rows", f"every distance has the bucket {words} its own", with_buckets(step))
    if x is None or name != "bias":
        yield guess(
            "bias.scale", "your bias is inside the softmax scale", with_table(lambda b: b * case.D**-0.5)
        )
        return
    c = factor_of(x, g)
    if c is not None and abs(c) > 1e-9 and abs(c + 1) > 1e-6 and abs(c - 1) > NEARLY:
        yield guess(
            "bias.negated" if c < 0 else "bias.scale",
            f"your bias is the golden one times {c:.6g}",
            with_table(lambda b: c * b),
        )
    if case.level == "op" and x.shape[1] == x.shape[2] and answer.near("bias", g.swapaxes(1, 2)):
        turned = lambda c: {"bias": c.want("bias").swapaxes(1, 2)} if c.entry.words["level"] == "op" else None
        yield guess("bias.transposed", "keys go down and queries across", turned)
    yield from of_heads(answer, x, g)
    if learned:
        yield from of_table_rows(answer, x)


def of_heads(answer: Answer, x: Any, g: Any) -> Iterator[Guess | Clue]:
    """Each head has the bias of another one, or a multiple of its own."""
    H, size = len(g), np.abs(g).max() + 1e-30
    alike = lambda h, m: np.abs(x[h] - g[m]).max() < 1e-4 * size
    order: Any = [next((m for m in [h, *range(H)] if alike(h, m)), None) for h in range(H)]
    if None not in order and order != list(range(H)):
        words = f"your heads have the biases of heads {', '.join(map(str, order))}"
        shift = {(m - h) % H for h, m in enumerate(order)}
        if order == list(range(H))[::-1] and H > 2:
            yield guess("bias.heads", "your heads are in reverse order", with_table(lambda b: b[::-1]))
        elif len(shift) == 1 and H > 2:
            yield guess("bias.heads", words, with_table(lambda b: np.roll(b, -shift.copy().pop(), 0)))
        elif len(set(order)) == 1:
            yield guess(
                "bias.heads",
                words,
                with_table(lambda b: np.broadcast_to(b[order[0] : order[0] + 1], b.shape) * 1.0),
            )
        elif slopes := list(of_slopes(answer, x, g)):
            yield from slopes
        else:
            yield Clue(Trap("bias.heads", words), 0.7)
    else:
        yield from of_slopes(answer, x, g)


def of_slopes(answer: Answer, x: Any, g: Any) -> Iterator[Clue]:
    """Each head has a multiple of its own bias, not all the same: other slopes, or other strengths."""
    case = answer.case
    assert case is not None
    flag, H = flag_of(answer, "heads"), len(g)
    if flag == "bias.heads":
        return
    factors = np.array([np.nan if (c := factor_of(x[h], g[h])) is None else c for h in range(H)])
    apart = [np.abs(x[h] - c * g[h]).max() > 1e-4 * np.abs(x[h]).max() for h, c in enumerate(factors)]
    if np.isnan(factors).any() or any(apart) or np.ptp(factors) < NEARLY:
        return
    words = f"your heads have {', '.join(f'{c:.4g}' for c in factors)} times their slopes"
    if flag.startswith("alibi."):
        m, h = case.config.pe[0][1]["max_bias"], np.arange(H)
        far = np.abs(np.asarray(case.at.distances, float)).max()
        mine = slopes_of(x) / far
        whole = 1 << (H.bit_length() - 1)
        kept = np.abs(factors[:whole] - 1).max() < 1e-4
        in_order = (
            np.allclose(np.sort(mine), np.sort(slopes_of(g) / far), rtol=1e-4) and (np.diff(mine) <= 0).all()
        )
        plain = np.allclose(mine, 2.0 ** (-m * (h + 1) / H), rtol=1e-4)
        if whole != H and (kept or in_order or plain):
            flag = "alibi.slopes.non_pow2"
        if plain:
            words = f"your slopes are 2^(-{m:g} h/{H}), h = 1 .. {H}, which is for powers of two alone"
        elif np.allclose(mine, 2.0 ** (-m * h / H), rtol=1e-4):
            words = f"your slopes are 2^(-{m:g} h/{H}) from h = 0 on"
    elif not flag.startswith("alibi.") and np.allclose(sorted(slopes_of(x)), sorted(slopes_of(g)), rtol=1e-4):
        flag = "bias.heads"
    yield Clue(Trap(flag, words), 1)


def slopes_of(x: Any) -> Any:
    """How far each head's bias reaches."""
    return np.abs(x.reshape(len(x), -1)).max(1)


def of_table_rows(answer: Answer, x: Any) -> Iterator[Clue]:
    """Which row of the learned table each distance has, in place of its own."""
    case, table, g = answer.case, answer.a["param.table"], answer.want("bias")
    assert case is not None
    if case.level != "table":
        return
    rows, d = table if table.shape[1] == len(g) else table.T, np.asarray(case.at.distances)
    row = lambda y: np.argmin(np.abs(y.T[:, None] - rows[None]).max(-1), 1)
    mine, right = row(x), row(g)
    off = mine != right
    if np.abs(x.T - rows[mine]).max() > 1e-4 * np.abs(rows).max() or not off.any():
        return
    first = d[off][np.argmin(abs(d[off]))]
    words = f"distance {first:g} has row {mine[d == first][0]}, expected {right[d == first][0]}"
    if "buckets" not in case.config.pe[0][1]:
        yield Clue(Trap("bias.rows", words), 0.5)
        return
    m = len(rows) // (1 if case.causal else 2)
    sides = not case.causal and ((mine - right)[off] % m == 0).all()
    far = abs(d) >= abs(d)[right % m == m - 1].min(initial=10**9)
    halved = case.causal and mine.max() < len(rows) // 2 <= right.max()
    if sides or halved:
        yield Clue(
            Trap("t5.bidirectional", f"{words}: buckets are divided otherwise between past and future"), 1.1
        )
    elif not (off & ~far).any():
        yield Clue(Trap("bias.bucket.clamp", f"{words}, beyond the last edge"), 0.9)
    elif changed_places(mine, right):
        yield Clue(
            Trap("bias.rows", f"{words}: your edges are right, and each bucket has the row of another"), 0.9
        )
    else:
        yield Clue(Trap("bias.bucket.border", f"{words}: edges of the buckets are elsewhere"), 0.7)


def changed_places(mine: Any, right: Any) -> bool:
    """Whether each row stands for one other: most of them moved, and no two distances of a bucket came
    apart or together.
    """
    pairs = set(zip(right.tolist(), mine.tolist(), strict=True))
    apart = len(pairs) == len({r for r, _ in pairs}) == len({m for _, m in pairs})
    return apart and len(pairs) > 4 and sum(r != m for r, m in pairs) > len(pairs) / 2
