"""A linear map of activated channels: the second half of a feed-forward, and of a gated layer.

    y = h W' + b + residual        h = gelu(up), or silu(gate) up where there is a gate
    dh = dy W,  dup and dgate from dh;  h is made once more, for the gradient of W (matrix.multiply)

Rows go BLOCK at a time: the activation before the product and its derivative after it work on what lies in
the cache of the core, so h and dh are never written out and read again, and h need not be kept for backward.
Bound: the multiplier, as matrix.py; exp is a tenth of the time.
"""

import numpy as np
from numba import njit

from peref.backends.numba.activations import gelu_row, gelu_row_backward, swiglu_row, swiglu_row_backward
from peref.backends.numba.arrays import c_reads, reads, writes
from peref.backends.numba.few import dots
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.matrix import ROWS_AT_ONCE, as_any, pack, panels, product_rows
from peref.backends.numba.threads import in_parallel


@njit(**INNER)
def activated(h, up, gate):
    """The first rows of h from as many of up; an absent gate has none."""
    if len(gate):
        swiglu_row(gate, up, h, 0, up.size)
    else:
        gelu_row(up, h, 0, up.size)


@njit(**INNER)
def in_panels(b):
    """b [K,N] in panels; the caller's loop over them is serial, for a weight is small beside the rows."""
    out = np.empty((panels(b.shape[1]) * len(b), COLUMNS), np.float32)
    for p in range(panels(b.shape[1])):
        pack(b, p, out)
    return out


@njit(**INNER)
def forward_block(unit, y, up, gate, panelled, b, residual):
    M, F = up.shape
    first, n = unit * ROWS_AT_ONCE, min(ROWS_AT_ONCE, M - unit * ROWS_AT_ONCE)
    h, out = np.empty((n, F), np.float32), y[first : first + n]
    activated(h, up[first : first + n], gate[first : first + n])
    product_rows(out, as_any(h), as_any(panelled), F * COLUMNS)
    for m in range(n):
        for c in range(len(b)):
            out[m, c] += b[c]
        if len(residual):
            for c in range(out.shape[1]):
                out[m, c] += residual[first + m, c]


@kernel(writes(2), c_reads(2), c_reads(2), reads(2), c_reads(1), c_reads(2))
def activated_linear_forward(y, up, gate, w, b, residual):
    """y [M,C] of up and gate [M,F] with w [F,C]; gate, b and residual have no elements where there are
    none.
    """
    in_parallel(
        forward_block, (len(up) + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE, (y, up, gate, in_panels(w), b, residual)
    )


@kernel(writes(2), c_reads(2), c_reads(2), c_reads(2), c_reads(1), c_reads(2))
def activated_linear_few(y, up, gate, w, b, residual):
    """The same for few rows, with w [C,F] as it lies (few.py)."""
    F = up.shape[1]
    h = np.empty((len(up), F), np.float32)
    activated(h, up, gate)
    for m in range(len(up)):
        dots(y[m], w, 0, h, m * F, F, len(w))
        for c in range(len(b)):
            y[m, c] += b[c]
        if len(residual):
            for c in range(len(w)):
                y[m, c] += residual[m, c]


@njit(**INNER)
def backward_block(unit, dup, dgate, h, dy, up, gate, panelled):
    (M, F), C = up.shape, dy.shape[1]
    first, n = unit * ROWS_AT_ONCE, min(ROWS_AT_ONCE, M - unit * ROWS_AT_ONCE)
    stop = first + n
    dh = np.empty((n, F), np.float32)
    product_rows(dh, as_any(dy[first:stop]), as_any(panelled), C * COLUMNS)
    x, dx, out = up[first:stop], dup[first:stop], h[first:stop]
    if len(gate):
        swiglu_row_backward(gate[first:stop], x, dh, dgate[first:stop], dx, out, 0, n * F)
    else:
        gelu_row_backward(x, dh, dx, out, 0, n * F)


@kernel(writes(2), writes(2), writes(2), c_reads(2), c_reads(2), c_reads(2), reads(2))
def activated_linear_backward(dup, dgate, h, dy, up, gate, w):
    """dup, dgate and h [M,F] from dy [M,C] with w [C,F]."""
    in_parallel(
        backward_block,
        (len(up) + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE,
        (dup, dgate, h, dy, up, gate, in_panels(w)),
    )
