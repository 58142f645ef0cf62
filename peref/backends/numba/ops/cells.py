"""Cells of attention that are laid out (cells.py): entries by an index, sums by an index, softmax, CoPE's
counts.
"""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import contiguous_rows, fit, float32, shape_of
from peref.errors import Misuse
from peref.tape import Op


def named(what, index, B, T, rows):
    """The index of the kernels, [1 or B,T,S], after a look at it."""
    at = index[None] if index.ndim == 2 else index
    many, _, S = shape_of(f"{what}: the index", at, 3)
    fit(f"{what}: sequences and queries, and the index", (B if many > 1 else 1, T, S), at.shape)
    if at.dtype.kind not in "iu" or (at.size and not (at.min() >= 0 and at.max() < rows)):
        raise Misuse(f"{what}: the index is {at.dtype}, {at.min()} to {at.max()}; expected rows of {rows}")
    return np.ascontiguousarray(at, np.uint32)


def laid_out(x, at, by):
    B, H, T, _ = x.shape
    y = np.empty((B * H * T, at.shape[2]), np.float32)
    kernels("cells").gather(y, contiguous_rows(x), at, np.float32(by))
    return y.reshape(B, H, T, -1)


def added_up(cells, at, rows, by):
    B, H, T, _ = cells.shape
    found = np.empty((B * H * T, rows), np.float32)
    kernels("cells").scatter(found, contiguous_rows(cells), at, np.float32(by))
    return found.reshape(B, H, T, rows)


def gather_forward(x, index, *, scale):
    float32("gather", x)
    B, _, T, rows = shape_of("gather: x", x, 4)
    at = named("gather", index, B, T, rows)
    return laid_out(x, at, scale), (at, rows, scale)


def gather_backward(saved, dy):
    at, rows, scale = saved
    return added_up(dy, at, rows, scale), None


def scatter_forward(cells, index, *, rows):
    float32("scatter", cells)
    B, _, T, S = shape_of("scatter: the cells", cells, 4)
    at = named("scatter", index, B, T, rows)
    fit("scatter: keys of the cells, and of the index", (S,), at.shape[2:])
    return added_up(cells, at, rows, 1), at


def scatter_backward(at, dy):
    return laid_out(dy, at, 1), None


def where_seen(x, at, otherwise):
    """x [B,H,T,S], with another number where a query does not see a key between those that it sees."""
    return x if at.everywhere is None else np.where(at.see, x, np.float32(otherwise))


def rows_seen(what, s, at):
    """The rows of logits s [B,H,T,S], -inf where they are not seen, after a look at the place."""
    float32(what, s)
    B, _, T, S = shape_of(f"{what}: the logits", s, 4)
    sequences = B if len(at.spans) > 1 else 1
    fit(f"{what}: the logits, and the place", (sequences, T, S), (len(at.spans), at.T, at.S))
    return contiguous_rows(where_seen(s, at, -np.inf))


def probabilities_forward(s, *, at):
    rows = rows_seen("probabilities", s, at)
    p = np.empty_like(rows)
    kernels("cells").probabilities(p, rows, at.spans)
    return p.reshape(s.shape), p


def probabilities_backward(p, dp):
    ds = np.empty_like(p)
    kernels("cells").probabilities_backward(ds, p, contiguous_rows(dp))
    return (ds.reshape(dp.shape),)


def interpolate_forward(z, s, *, at, scale):
    float32("interpolate", z)
    rows = rows_seen("interpolate", s, at)
    fit("interpolate: sequences, heads and queries", z.shape[:3], s.shape[:3])
    y, of = np.empty_like(rows), contiguous_rows(z)
    kernels("cells").interpolate(y, of, rows, at.spans, np.float32(scale))
    return where_seen(y.reshape(s.shape), at, 0), ((z.shape, s.shape), of, rows, at, np.float32(scale))


def interpolate_backward(saved, dy):
    shapes, of, rows, at, by = saved
    dz, ds = np.empty_like(of), np.empty_like(rows)
    dy = contiguous_rows(where_seen(dy, at, 0))
    kernels("cells").interpolate_backward(dz, ds, of, rows, at.spans, dy, by)
    return dz.reshape(shapes[0]), ds.reshape(shapes[1])


gather, scatter = Op(gather_forward, gather_backward), Op(scatter_forward, scatter_backward)
probabilities = Op(probabilities_forward, probabilities_backward)
interpolate = Op(interpolate_forward, interpolate_backward)
