"""Guesses at tables: what is added to the embedding, and biases of distance: factors, other heads, other
distances, other rows, few digits.

Not here: positions (positions), formulas and options (options).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import GENERAL, NEARLY, Answer, Clue, Guess, Trap, flag_of, guess
from peref.golden.diagnosis.attention import weights_of
from peref.golden.diagnosis.engine import Row, computed, family, guesses, part_of, tabled
from peref.golden.diagnosis.rotation import FEW, in_few
from peref.golden.diagnosis.tensor import agreeing, factor_of, order_along
from peref.golden.spec.cases import Case

LIKELY = 0.7  # what a factor of one case says, which may be another in the next
embeds, biased = (lambda case: case.hook == "embed"), (lambda case: case.hook == "bias")
BIAS_OFF, HEADS, NEGATED = "bias.off_by_one", "bias.heads", "bias.negated"
BUCKET = ("functions", "bucket")


def of_table(change: Any) -> Any:
    """The learned table is another array."""
    return lambda a, case: {"param.table": change(a["param.table"], case)} if "param.table" in a else None


relaid = lambda x, case: x.reshape(x.shape[::-1]).T


def along(x: Any, case: Any) -> int:
    """The axis of distances: heads go across in one table and down in another."""
    return x.shape.index(case.H) ^ 1


def buckets(asked: bool, change: Any) -> Any:
    """The buckets of a model that is causal or not, for other distances; where buckets there are."""

    def parts(case: Any) -> Any:
        f = part_of(case, "bucket")
        return f and {"bucket": lambda d, *, causal, **more: f(change(d), causal=asked, **more)}

    return parts


def rows_in_order(order: Any, x: Any, case: Any) -> Any:
    """The rows of the table where order(0, 1, ...) has them."""
    axis = along(x, case)
    return np.take(x, order(np.arange(x.shape[axis])), axis)


seen = lambda change: lambda b: np.where(np.isfinite(b), change(b), b)  # what is hidden stays so
ROW_ORDERS = {
    "the rows of your table are read in reverse order, from its end": lambda n: n[::-1],
    "every distance has the row before its own": lambda n: np.maximum(n - 1, 0),
    "every distance has the row after its own": lambda n: np.minimum(n + 1, n[-1]),
    "every distance has the row before its own, the first the last": lambda n: np.roll(n, 1),
    "every distance has the row after its own, the last the first": lambda n: np.roll(n, -1),
}
BUCKETS_READ = (  # words, whether the case is causal, whether buckets are, of which distances
    ("half of your buckets are kept for the future, as in a two-sided model", True, False, np.asarray),
    ("you have the buckets of a causal model: the future counts as distance 0", False, True, np.asarray),
    ("you have the buckets of a causal model, alike for past and future", False, True, abs),
    ("the halves of your table for past and future are exchanged", False, False, np.negative),
    ("the buckets of the future are those of the past", False, False, abs),
)


def sloped(power: Any) -> Any:
    """Slopes 2^(-max_bias power(h, H)) of the heads h = 1 ... H."""
    return lambda f, H, max_bias=8.0: [2.0 ** (-max_bias * power(h, H)) for h in range(1, H + 1)]


POWERS_ALONE = "your slopes are 2^(-max_bias h/H), h = 1 .. H, which is for powers of two alone"
OTHER_SLOPES = (
    ("not a power of two", POWERS_ALONE, sloped(lambda h, H: h / H)),
    ("not a power of two", "your slopes fall from head to head", lambda f, *given: sorted(f(*given))[::-1]),
    ("from 0", "your slopes are 2^(-max_bias h/H) from h = 0 on", sloped(lambda h, H: (h - 1) / H)),
)
with_slopes = lambda made: lambda case: (f := part_of(case, "fixed")) and {"fixed": partial(made, f)}
of_side = lambda causal, case: biased(case) and case.causal == causal
BIAS_TABLES: dict[Any, dict[str, Any]] = {
    ("basic", "table", GENERAL): {"there is no position in it: the bias is 0": seen(lambda b: 0 * b)},
    ("bias.sign", "distance"): {
        "your distances are j - i": lambda d: -d,
        "past and future are alike": abs,
        "keys of the future count as distance 0": lambda d: np.maximum(d, 0),
        "keys of the past count as distance 0": lambda d: np.minimum(d, 0),
    },
    ("bias.sign", "sized"): {
        "your bias changes its sign where keys are in the future": lambda b, c: b * np.sign(c.at.distances)
    },
    (BIAS_OFF, "distance"): {
        "your distances are one too large": lambda d: d + (d >= 0),
        "your distances are one too large on both sides": lambda d: d + np.where(d < 0, -1, 1),
        "your distances are one too large, those of the future one too small": lambda d: d + 1,
        "your distances are one too small": lambda d: np.maximum(d - 1, np.minimum(d, 0)),
        "your distances are one too small on both sides": lambda d: d - np.sign(d),
        "your distances are one too small, those of the future one too large": lambda d: d - 1,
        "your distances are two too large": lambda d: d + 2 * (d >= 0),
        "your distances are counted from the last key": lambda d: d.max() - d if len(d) else d,
        "your distances are counted from the last key, from 1": lambda d: d.max() - d + 1 if len(d) else d,
    },
    (("functions", "formula", "bias.scale"), "distance", 0.9): {
        "your distances are squared": lambda d: d * abs(d),
        "your distances are roots": lambda d: np.sign(d) * np.sqrt(abs(d)),
        "your distances are logarithms": lambda d: np.sign(d) * np.log1p(abs(d)),
    },
    (NEGATED, "table"): {
        "your bias has the other sign": seen(np.negative),
        "your bias is positive: distance is rewarded": seen(abs),
    },
    (HEADS, "table"): {
        "your heads are in reverse order": lambda b: b[::-1],
        "every head has the bias of the first": lambda b: 0 * b + b[:1],
        "every head has the bias of the last": lambda b: 0 * b + b[-1:],
        "neighbouring heads are exchanged": lambda b: b[[min(h ^ 1, len(b) - 1) for h in range(len(b))]],
        "even heads come first, then odd ones": lambda b: np.concatenate([b[::2], b[1::2]]),
        "each head has the mean of all": lambda b: 0 * b + b.mean(0),
        **{f"your heads are off by {n}": lambda b, n=n: np.roll(b, -n, 0) for n in (1, -1, 2, -2)},
    },
    ("bias.scale", "table"): {
        "your bias counts half": lambda b: b / 2,
        "your bias counts twice": lambda b: 2 * b,
        "your bias is an exponential": np.exp,
    },
    (("functions", "formula", "bias.scale"), "table"): {
        "your bias is divided by ln 2, as for powers of 2": lambda b: b / np.log(2),
        "your bias is multiplied by ln 2": lambda b: b * np.log(2),
    },
    ("bias.scale", "sized"): {
        "your bias is inside the softmax scale": lambda b, case: b * case.D**-0.5,
        "your bias is multiplied by sqrt(D)": lambda b, case: b * case.D**0.5,
    },
    ("bias.scale", "sized", 0.85): {
        "your bias is divided by the length trained for": lambda b, case: b / case.L
    },
    (FEW, "table", 0.97, True): in_few("your bias was"),
    (FEW, "distance", 0.97): in_few("your distances were", lambda low: lambda d: low(np.asarray(d, float))),
    ("bias.rows", "inputs"): {
        **{words: of_table(partial(rows_in_order, order)) for words, order in ROW_ORDERS.items()},
        "your table is read with heads and rows exchanged": of_table(lambda x, c: x.T.reshape(x.shape)),
        "your table has heads and rows exchanged and is laid out anew": of_table(relaid),
    },
}
BIASES = (
    *tabled(BIAS_TABLES),
    *(
        Row(("heads", which, ""), words, {"parts": with_slopes(made)}, biased)
        for which, words, made in OTHER_SLOPES
    ),
    *(
        Row((*BUCKET, ""), words, {"parts": buckets(asked, change)}, partial(of_side, causal))
        for words, causal, asked, change in BUCKETS_READ
    ),
)


def flipped(e: Any) -> Any:
    """The first quarter of the channels changes places with the second, the third with the fourth."""
    h, y = e.shape[-1] // 4, np.array(e)
    y[..., : 4 * h] = (
        e[..., : 4 * h].reshape(*e.shape[:-1], 2, 2, h)[..., ::-1, :].reshape(*e.shape[:-1], 4 * h)
    )
    return y


ROW_TABLES: dict[Any, dict[str, Any]] = {
    ("basic", "rows", GENERAL): {"nothing is added: there is no position in it": lambda e: 0 * e},
    (("options", "layout", "sin.order"), "rows"): {
        "sines and cosines have changed places": lambda e: e.reshape(*e.shape[:-1], -1, 2)[..., ::-1].reshape(
            e.shape
        ),
        "sines and cosines have changed places in each half": lambda e: flipped(e),
        "your channels lie in halves": lambda e: np.concatenate([e[..., ::2], e[..., 1::2]], -1),
        "your channels alternate": lambda e: np.stack(np.split(e, 2, -1), -1).reshape(e.shape),
        "your channels are in reverse order": lambda e: e[..., ::-1],
    },
    (("options", "first", "sin.order"), "rows"): {
        "the halves of your channels have changed places": lambda e: np.roll(e, e.shape[-1] // 2, -1)
    },
    ("embed.scale", "rows"): {
        "your rows are divided by sqrt(C)": lambda e: e * e.shape[-1] ** -0.5,
        "your rows are multiplied by sqrt(C)": lambda e: e * e.shape[-1] ** 0.5,
    },
    (FEW, "rows", 0.97, True): in_few("your rows were"),
}
ROWS_ADDED = tuple(tabled(ROW_TABLES))


@family(embeds)
def of_rows(answer: Answer, case: Any) -> Iterator[Guess]:
    """What is added to the embedding: rows that are multiplied, channels that change places."""
    name = answer.wrong[0]
    x, g = answer.wide(name), answer.want(name)
    if x is None:
        return
    x, g = (x, g) if name == "rows" else (x - answer.a["x"], g - answer.a["x"])
    c = factor_of(x, g)
    if c is not None and abs(c) > 1e-6 and abs(c - 1) > NEARLY:
        words = f"your rows are the golden ones times {c:.6g}"
        yield guess("embed.scale", words, computed(rows=lambda e: c * e), fitted=c)
    yield from guesses(ROWS_ADDED, answer)
    if name != "rows":
        tokens = computed(
            outputs=lambda found, one: {"y": found["y"] + one.a["x"] * (one.a["x"].shape[-1] ** 0.5 - 1)}
        )
        yield guess("embed.scale", "your tokens are multiplied by sqrt(C) before rows are added", tokens)
    order = order_along(-1, x, g)
    if len(set(order)) > 1:
        words = f"your channels are in another order: {', '.join(map(str, order))}"
        flag = flag_of(answer, "options", "layout", "sin.order")
        yield guess(flag, words, computed(rows=lambda e: e[..., order]), 0.99)


@family(biased)
def of_biases(answer: Answer, case: Any) -> Iterator[Guess | Clue]:
    """A bias of distance."""
    yield from guesses(BIASES, answer)
    if case.level == "op" and answer.near("bias", answer.want("bias").swapaxes(1, 2)):
        other = lambda c: {"bias": c.want("bias").swapaxes(1, 2)} if c.entry.words["level"] == "op" else None
        yield guess("bias.transposed", "keys go down and queries across", other)
    x, g, d = table_read(answer, case)
    if x is None or not len(d):
        return
    c = factor_of(x, g)
    if c is not None and abs(c) > 1e-9 and abs(c + 1) > 1e-6 and abs(c - 1) > NEARLY:
        words = f"your bias is the golden one times {c:.6g}"
        flag = NEGATED if c < 0 else "bias.scale"
        if np.abs(x - c * g).max() < 1e-4 * np.abs(x).max():
            yield Clue(Trap(flag, words), LIKELY)
        yield guess(flag, words, computed(table=lambda b: c * b), 0.9, fitted=c)
    yield from of_heads(answer, x, g)
    if "param.table" in answer.a:
        yield from of_table_rows(answer, case, x, g, d)


def table_read(answer: Answer, case: Case) -> Any:
    """What came and what is right for each distance: [H,N], [H,N] and [N]; None where no table can be read.
    Attention gives it from its scores, or from the logarithms of its weights but for a number of each row,
    which is taken such that distance 0 has what it should.
    """
    d, index = np.asarray(case.at.distances), case.at.index
    if case.level == "table":
        return answer.wide("bias"), answer.want("bias"), d
    if case.level == "op":
        x, g = answer.wide("bias"), answer.want("bias")
        see, off = np.ones((1, 1, *g.shape[1:]), bool) & case.at.see, answer.room("bias")
    else:
        rest = computed(table=lambda b: 0 * b)(answer.forward)["scores"]
        x, g, (p, room) = answer.wide("scores"), answer.want("scores") - rest, weights_of(answer, case)
        see, off = np.broadcast_to(case.at.see, g.shape), 0.0
        if x is not None:
            x, off = x - rest, answer.room("scores")
        elif p is not None:
            own = np.arange(case.T)
            with np.errstate(all="ignore"):
                x, off = np.log(p) - rest, room / p
                x, off = x - (x - g)[..., own, own][..., None], off + off[..., own, own][..., None]
            see = see & (off < NEARLY)
    if x is None or not np.isfinite(np.where(see, x, 0)).all() or not np.isfinite(np.where(see, g, 0)).all():
        return None, None, d
    sizes = case.B, case.H, case.T, case.T
    x, g, see, off = (np.broadcast_to(y, sizes) for y in (x, g, see, off))
    cells = np.broadcast_to(index if index.ndim == 2 else index[:, None], x.shape)
    found, kept = [], []
    for n in range(len(d)):
        there = see & (cells == n)
        if there.any((0, 2, 3)).all():
            rows = [(x[:, h][there[:, h]], g[:, h][there[:, h]]) for h in range(case.H)]
            loose = 1e-6 * (1 + np.abs(x[there]).max()) + 2 * off[there].max()
            if max(np.ptp(mine) for mine, _ in rows) > loose:
                return None, None, d
            found.append([(mine[0], right[0]) for mine, right in rows])
            kept.append(n)
    table = np.array(found).reshape(len(kept), case.H, 2)
    return table[..., 0].T, table[..., 1].T, d[kept]


def of_heads(answer: Answer, x: Any, g: Any) -> Iterator[Clue]:
    """Each head has the bias of another one, or a multiple of its own: other slopes, or other strengths."""
    H, power = len(g), 1 << (len(g).bit_length() - 1)
    kept = power < H and agreeing(x[:power], g[:power])
    flag = (kept and flag_of(answer, "heads", "not a power of two", "")) or flag_of(answer, "heads")
    order, factors = order_along(0, x, g), np.array([factor_of(x[h], g[h]) or np.nan for h in range(H)])
    one_way = order == [*range(H)][::-1] or len({(m - h) % H for h, m in enumerate(order)}) == 1
    apart = flag != HEADS and np.ptp(factors) > NEARLY and agreeing(x, factors[:, None] * g)
    if order and (one_way or len(set(order)) == 1 or not apart):
        yield Clue(Trap(HEADS, f"your heads have the biases of heads {', '.join(map(str, order))}"), 0.7)
    elif apart:
        words = f"your heads have {', '.join(f'{c:.4g}' for c in factors)} times their slopes"
        yield Clue(Trap(flag, words), 1)


def of_table_rows(answer: Answer, case: Case, x: Any, g: Any, d: Any) -> Iterator[Clue]:
    """Which row of the learned table each distance has, in place of its own."""
    table = answer.a["param.table"]
    rows = table if table.shape[1] == len(g) else table.T
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
        said = f"{words}: buckets are divided otherwise between past and future"
        yield Clue(Trap(flag_of(answer, *BUCKET), said), 0.99)
    elif (~far).any() and not (off & ~far).any():
        yield Clue(Trap("bias.bucket.clamp", f"{words}, beyond the last edge"), 0.9)
    elif changed_places(mine, right):
        said = f"{words}: your edges are right, and each bucket has the row of another"
        yield Clue(Trap("bias.rows", said), 0.9)
    else:
        yield Clue(Trap("bias.bucket.border", f"{words}: edges of the buckets are elsewhere"), 0.7)


def changed_places(mine: Any, right: Any) -> bool:
    """Whether each row stands for one other: most of them moved, and no two distances of a bucket came
    apart or together.
    """
    pairs = set(zip(right.tolist(), mine.tolist(), strict=True))
    apart = len(pairs) == len({r for r, _ in pairs}) == len({m for _, m in pairs})
    return apart and len(pairs) > 4 and sum(r != m for r, m in pairs) > len(pairs) / 2
