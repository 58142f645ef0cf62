"""Attention (attention.py, attention_backward.py): what is absent without elements, what is asked for
made.
"""

import math

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import beside, contiguous, divisible, fit, float32, shape_of
from peref.errors import Misuse
from peref.ops.shape import unbroadcast
from peref.tape import Op

NOTHING = np.zeros((1, 1, 1, 0), np.float32)
# backward has so many units at least, if its parts of the queries are not shorter than this
UNITS, SHORTEST = 8, 256


def sizes(q, k, v, at):
    """B, H, T, S and E of what fits together; k and v may be of one sequence."""
    (B, H, T, D), (many, G, S, _), (others, *_, E) = (
        shape_of(f"attention: {name}", x, 4) for name, x in (("q", q), ("k", k), ("v", v))
    )
    fit("attention: tokens of q and k, and of the place", (T, S), (at.T, at.S))
    fit("attention: widths of q and k", (D,), k.shape[3:])
    fit("attention: heads and tokens of k and v", (G, S), v.shape[1:3])
    divisible("attention", H, G)
    if not {many, others, len(at.spans)} <= {1, B}:
        raise Misuse(
            f"attention: {B} sequences of q, {many} of k, {others} of v, {len(at.spans)} of the place; "
            "expected as many as of q, or 1"
        )
    return B, H, T, S, E


def over_sequences(B, *arrays):
    """Arrays of B sequences from those of B or 1."""
    return [a if len(a) == B else np.broadcast_to(a, (B, *a.shape[1:])) for a in arrays]


def with_four_axes(table, term, row, column, at, B, H):
    """term, row and column with four axes, after a look at all sizes."""
    if table is not None:
        heads, N = shape_of("attention: the table", table, 2)
        fit(
            "attention: heads and distances, and the table",
            (H if heads > 1 else 1, len(at.distances)),
            (heads, N),
        )
    shapes = (B, H, at.T, at.S), (B, H, at.T, 1), (B, H, 1, at.S)
    for name, x, shape in zip(
        ("the term", "the row", "the column"), (term, row, column), shapes, strict=True
    ):
        beside(f"attention: {name}", x, shape)
    return [
        x if x is None or x.ndim == 4 else x.reshape((1,) * (4 - x.ndim) + x.shape)
        for x in (term, row, column)
    ]


def kernel_table(table, at, B, H):
    """The table for the kernels, [H,N] float32; the index [1 or B,T,S] where positions are not
    consecutive; and where slot 0 of query 0 is where they are.
    """
    if table is None:
        return np.zeros((1, 0), np.float32), np.zeros((1, 1, 0), np.int32), 0
    table = np.broadcast_to(table, (H, table.shape[1])).astype(np.float32, order="C")
    if at.consecutive:
        return table, np.zeros((1, 1, 0), np.int32), at.S - at.T - int(at.distances[0])
    index = at.index.astype(np.int32)
    beside("attention: positions of the place", index, (B, at.T, at.S))
    return table, index if index.ndim == 3 else index[None], 0


def in_lines(term, S):
    """A term whose rows lie one number beside the other, S of them."""
    if term is None:
        return NOTHING
    along = term.shape[3] == S and term.strides[3] == term.itemsize
    return term if along else np.ascontiguousarray(np.broadcast_to(term, (*term.shape[:3], S)))


def row_and_column(row, column, at):
    """row [.,.,T] and column [.,.,S] in float64; one that is absent beside the other is 0, both absent are
    empty.
    """
    if row is None and column is None:
        return np.zeros((1, 1, 1)), np.zeros((1, 1, 0))
    row, column = (np.zeros((1, 1, 1, 1)) if x is None else x.astype(np.float64) for x in (row, column))
    whole = lambda x, n: np.ascontiguousarray(np.broadcast_to(x, (*x.shape[:2], n)))
    return whole(row[..., 0], at.T), whole(column[:, :, 0], at.S)


def seen_between(at):
    """Which query sees a key of those between its first and its last, [1 or B,S,T]; no queries: all."""
    return (
        contiguous(at.see[:, 0].swapaxes(1, 2))[0] if at.everywhere is not None else np.zeros((1, 1, 0), bool)
    )


def limit_of(S, skip, term, *arrays):
    """How far below a row's maximum a logit does not matter: S weights of 2^-26 / S add up to a quarter of
    a float32 unit. -inf: all matter.
    """
    finite = skip and term is None and all(a is None or np.isfinite(a).all() for a in arrays)
    return np.float32(-math.log(2.0**26 * S) if finite else -math.inf)


def attention_forward(q, k, v, table, term, row, column, sinks, *, at, scale, softcap, skip):
    float32("attention", q, k, v, term, sinks)
    B, H, T, S, E = sizes(q, k, v, at)
    like = [None if a is None else (a.shape, a.dtype) for a in (table, term, row, column)]
    term, row, column = with_four_axes(table, term, row, column, at, B, H)
    o, lse = np.empty((B, T, H, E), np.float32), np.empty((B, H, T), np.float32)
    limit = limit_of(S, skip, term, table, row, column)
    seen = at.spans, np.float32(scale), limit
    bias = (
        *kernel_table(table, at, B, H),
        in_lines(term, S),
        *row_and_column(row, column, at),
        seen_between(at),
    )
    general = bool(softcap or any(bias[n].size for n in (1, 3, 5, 6)))  # all but the table and the row
    run, more = kernels("attention").forward, (bias[0], bias[2])  # the table, where its slot 0 is
    if general:
        run, more = kernels("attention").forward_general, (np.float32(softcap or 0), *bias)
    run(o, lse, q, *over_sequences(B, k, v), *seen, *more)
    less = None
    if sinks is not None:  # a further logit: what the others weigh, and the log of their sum
        fit("attention: heads and sinks", (H,), sinks.shape)
        whole = np.logaddexp(np.where(lse == np.inf, -np.inf, lse), sinks[:, None])
        o *= np.exp(np.where(lse == np.inf, -np.inf, lse) - whole).swapaxes(1, 2)[..., None]
        less, lse = np.exp(sinks[:, None] - whole), np.where(lse == np.inf, lse, whole)
    return o.swapaxes(1, 2), (q, k, v, o, lse, seen, more, general, like, less)


def attention_backward(saved, dy, wants):
    q, k, v, o, lse, seen, more, general, like, less = saved
    (B, H, T, D), (_, G, S, E), shapes = q.shape, v.shape, (k.shape, v.shape)
    k, v = over_sequences(B, k, v)
    asked = [a is not None and want for a, want in zip(like, wants[3:7], strict=True)]
    parts = max(1, min(-(-UNITS // max(1, B * G)), -(-T // SHORTEST)))
    dq, dk, dv = (
        np.empty((B, T, H, D), np.float32),
        np.empty((parts, B, S, G, D), np.float32),
        np.empty((parts, B, S, G, E), np.float32),
    )
    dtable, dterm = (
        np.zeros((parts, B, H, like[0][0][1] if asked[0] else 0)),
        np.zeros((B, H, T, S if asked[1] else 0), np.float32),
    )
    drow, dcolumn = np.zeros((B, H, T if asked[2] else 0)), np.zeros((parts, B, H, S if asked[3] else 0))
    if less is not None:
        seen = *seen[:2], np.float32(-math.inf)
    run = kernels("attention_backward").backward
    if general:
        run, more = kernels("attention_backward").backward_general, (dterm, drow, dcolumn, *more)
    run(dq, dk, dv, dtable, dy.swapaxes(1, 2), o, q, k, v, lse, *seen, *more)
    dk, dv = (x[0] if parts == 1 else x.sum(0) for x in (dk, dv))
    found = [dtable.sum((0, 1)), dterm, drow[..., None], dcolumn.sum(0)[:, :, None]]
    given = [
        unbroadcast(g, a[0]).astype(a[1]) if want else None
        for g, a, want in zip(found, like, asked, strict=True)
    ]
    dk, dv = (unbroadcast(d.swapaxes(1, 2), shape) for d, shape in zip((dk, dv), shapes, strict=True))
    dsinks = None
    if less is not None and wants[7]:
        inner = (dy * o.swapaxes(1, 2)).sum(-1)  # [B,H,T]
        dsinks = -(less * inner).sum((0, 2), dtype=np.float64).astype(np.float32)
    return dq.swapaxes(1, 2), dk, dv, *given, dsinks


attend = Op(attention_forward, attention_backward, selective=True)


def attention(
    q, k, v, table=None, term=None, row=None, column=None, sinks=None, *, at, scale, softcap=None, skip=True
):
    """As ops.attention.attention, without anything of size T x S but the index of a table, where positions
    are not consecutive, a copy of a term whose keys do not lie beside each other, and which keys are seen
    beside global tokens.

    skip=False visits every tile that somebody sees (attention.py).
    """
    how = {"at": at, "scale": scale, "softcap": softcap, "skip": skip}
    return attend(q, k, v, table, term, row, column, sinks, **how)
