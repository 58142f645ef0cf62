"""Guesses at positions: counted, rounded, another row's or axis's, shifted; and for tables the position whose
row each token has.

Where a table of rows or angles can be read from what came, the place of every token is looked for among the
whole numbers. How these places differ from the right ones says what is done with positions: all those beyond
N are N, or all are modulo N, or all are so many too large.

Not here: the channels that a rotation pairs (pairs, rotation).
"""

import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from peref.golden.compute.operation import parameters_in, turns_apart
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import EITHER, computed, family, guesses, on_case, rows, tabled
from peref.golden.diagnosis.pairs import cosines
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import position_rows, rotation

FARTHEST = 1 << 21  # positions that are looked through
LOOKED_THROUGH = 1 << 16


def rounded_by(cut: Any) -> Any:
    """Positions, or where a table is asked for them the distances, become whole numbers."""
    at_distances, at_places = computed(distance=cut), computed(i=lambda i, case: cut(i))
    of_distances = lambda case: case.hook == "bias" and case.level == "table"
    make = lambda case, answer: (at_distances if of_distances(case) else at_places)(answer)
    return on_case(make, lambda case: case.at.i.dtype.kind == "f")


from_nought = lambda i, case: np.broadcast_to(np.arange(case.T), i.shape[-1:] if i.ndim < 3 else i.shape)
slots = lambda c: {"positions": tuple(range(c.T)), "seg": None}
begins = lambda i: i.min(-1, keepdims=True)
given = lambda c: c.positions is not None
of_sequences = lambda c: c.at.i.ndim == 2
row_of_all = lambda n: lambda i, c: np.broadcast_to(i[n], i.shape) if n < len(i) else None
SHIFTS = {"one too large": 1, "one too small": -1, "2 too large": 2, "2 too small": -2}
COUNTED = {
    "you count positions from 0 and do not use those given": from_nought,
    "positions count from the first one given": lambda i, c: i - begins(i),
}
OF_SLOTS = {"you count slots, whatever positions and documents are given": slots}
NEGATIVE: dict[Any, dict[str, Any]] = {
    ("rope.sign", "i"): {"negative positions lose their sign": lambda i, c: np.abs(i)},
    ("rope.table.clip", "i"): {"negative positions count as 0": lambda i, c: np.maximum(i, 0)},
    ("rope.table.wrap", "i"): {
        f"negative positions {words}": lambda i, c, by=by: np.where(i < 0, i + by(i, c), i)
        for words, by in (
            ("are taken modulo 2^32", lambda i, c: 2**32),
            ("count from the end of a table", lambda i, c: c.L),
            ("count from the end of the text", lambda i, c: i.max() + 1),
        )
    },
}
OTHER_SEQUENCES = {
    **{
        f"you use the {which} sequence's positions for all": row_of_all(n)
        for which, n in {"first": 0, "second": 1, "third": 2, "last": -1}.items()
    },
    "each sequence has the positions of the next": lambda i, c: np.roll(i, -1, 0),
    "each sequence has the positions of the one before": lambda i, c: np.roll(i, 1, 0),
    "the positions of the sequences are in reverse order": lambda i, c: i[::-1],
}
SHIFTED = {
    f"your positions are {words}{where}": lambda i, c, n=n, of=of: i + n * of(i)
    for where, of in (("", lambda i: 1), (" where they do not begin at 0", lambda i: begins(i) > 0))
    for words, n in SHIFTS.items()
}
POSITIONS_READ = (
    *rows("position.counted", "i", COUNTED, given),
    *rows("position.counted", "facts", OF_SLOTS, lambda c: given(c) and c.level != "attn"),
    *tabled(NEGATIVE, lambda c: (c.at.i < 0).any()),
    *rows("position.batch", "i", OTHER_SEQUENCES, of_sequences),
    *rows("position.off_by_one", "i", SHIFTED, lambda c: c.hook not in ("bias", "mix")),
)


@family(lambda case: case.config.encoding(0).axes is not None, EITHER)
def of_places(answer: Answer, case: Any) -> Iterator[Guess]:
    """What may be done with positions whatever the encoding."""
    i = case.at.i
    yield from guesses(POSITIONS_READ, answer)
    if i.dtype.kind == "f":
        cuts = {"down to": np.floor, "to": np.rint, "up to": np.ceil, "towards 0 to": np.trunc}
        for words, cut in cuts.items():
            yield guess("position.rounded", f"you round positions {words} whole numbers", rounded_by(cut))
    if i.ndim == 3:
        orders = {f"you use axis {a} of the positions for all": [a] * len(i) for a in range(len(i))}
        for order in list(permutations(range(len(i))))[1:]:
            orders[f"the axes of your positions are in the order {', '.join(map(str, order))}"] = [*order]
        for words, axes in orders.items():
            one = lambda i, case, axes=axes: i[axes] if i.ndim == 3 else None
            yield guess("position.axes", words, computed(i=one))
    for words, cut in (("divided as whole numbers", np.floor), ("divided and rounded", np.rint)):
        if "factor" in case.config.pe[0][1]:
            flag = flag_of(answer, "options", "1/factor", "rope.factor.twice")
            by = lambda i, case, cut=cut: (f := case.config.pe[0][1]["factor"]) * cut(i / f)
            yield guess(flag, f"your positions are {words}", computed(i=by))
    if case.hook in ("embed", "rotate"):
        yield from of_search(answer, case)


def of_search(answer: Answer, case: Case) -> Iterator[Guess]:
    """What the places at which the tokens seem to be say."""
    j, i = seeming(answer), case.at.i
    if j is None or i.ndim == 3 or (i == j).all():
        return
    learned = any(name.startswith("param.") for name in answer.a) and case.hook == "embed"
    own = lambda flag: flag if not learned or flag in answer.entry.vectors.words["flags"] else "embed.rows"
    off = i != j
    lost, end = i[off] - j[off], j[off]
    beyond = (i[off] > end).all() and (i[~off] <= end[0]).all()
    if len(set(end.tolist())) == 1 and beyond and end[0] > max(i.min(), 0):
        words = f"your table ends at position {end[0] + 1:g} and positions are clipped to it"
        if (i % (end[0] + 1) == j).all():
            words += ", or taken modulo its length: those of this case do not tell"
        yield guess(own("rope.table.clip"), words, computed(i=lambda i, case: np.minimum(i, end[0])))
    if (lost == np.rint(lost)).all() and (lost > 0).all():
        size = math.gcd(*map(int, lost))
        if size > max(j.max(), 1):
            words = f"your positions are modulo {size}"
            yield guess(own("rope.table.wrap"), words, computed(i=lambda i, case: i % size))
    if len(set(lost.tolist())) == 1 and off.all():
        words = f"your positions are {abs(lost[0]):g} too {'small' if lost[0] > 0 else 'large'}"
        yield guess("position.off_by_one", words, computed(i=lambda i, case: i - lost[0]))
    first, total = j.ravel()[0], (i + j).ravel()
    if (j == first).all() and learned:
        words = f"every token gets the row of position {first:g}"
        yield guess("embed.rows", words, computed(i=lambda i, case: 0 * i + first))
    if (total == total[0]).all():
        words = "you count positions from the end"
        yield guess(own("rope.sign"), words, computed(i=lambda i, case: total[0] - i))


def seeming(answer: Answer) -> Any:
    """The position whose row or angles each token has, None where one has none."""
    seen, case = observed(answer), answer.case
    if seen is None or case is None:
        return None
    i, dtype = case.at.i, next(answer.got[name].dtype for name in answer.wrong)
    flat, goal = seen.reshape(-1, seen.shape[-1]), np.ravel(i)
    # of cosines and sines as they are stored; far positions may have lost digits before
    sure = 8 * ROUNDOFF[dtype] + 1e-5
    room = lambda j: sure + 2 * ROUNDOFF["F64" if dtype == "F64" else "F32"] * np.abs(j)
    fits = np.abs(flat - row_of(case, answer.a, goal)).max(-1) <= room(goal)
    best, found, open_ = np.ones(len(goal)), goal.copy(), np.flatnonzero(~fits)
    last = min(int(goal.max()) + 64, FARTHEST)
    rows = answer.a.get("param.table")
    last, first = (len(rows) - 1, 0) if rows is not None and case.hook == "embed" else (last, -16)
    for start in range(first, last + 1, LOOKED_THROUGH):
        j = np.arange(start, min(start + LOOKED_THROUGH, last + 1))
        made = row_of(case, answer.a, j) if len(open_) else None
        for t in open_:
            share = np.abs(flat[t] - made).max(-1) / room(j)
            if share.min() < best[t]:
                best[t], close = share.min(), j[share <= share.min() + 1e-3]
                found[t] = close[np.argmin(np.abs(close - goal[t]))]
        open_ = open_[best[open_] * room(found[open_]) > sure]
    return found.reshape(i.shape) if (best[np.flatnonzero(~fits)] < 1).all() else None


def row_of(case: Any, a: Any, j: Any) -> Any:
    """What the encoding makes of positions j [N]: rows, or cosines and sines, [N,K]."""
    pe, p = case.config.encoding(0), parameters_in(a)
    if case.hook == "embed":
        return np.asarray(position_rows(pe, p, j))
    angle = np.asarray(rotation(pe, p, j, case.at.n)[0])
    return np.concatenate([np.cos(angle), np.sin(angle)], -1)


def observed(answer: Answer) -> Any:
    """The same of each token, from what came: [T,K] or [B,T,K]; None where it cannot be read, or each head
    has its own.
    """
    case = answer.case
    if case is None or case.at.i.ndim == 3 or not answer.wrong or answer.derivative:
        return None
    if turns_apart(case.config.encoding(0)):
        return None
    if case.hook != "embed":
        return cosines(answer)
    rows, y = answer.wide("rows"), answer.wide("y")
    if rows is not None or y is None:
        return rows
    return y - answer.a["x"] if case.at.i.ndim == 2 else (y - answer.a["x"]).mean(0)
