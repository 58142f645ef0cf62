"""Products of matrices and the second half of a feed-forward (matrix.py, feed.py; few rows and one column:
few.py).
"""

import math
from typing import Any

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import FEW, as_rows, contiguous_rows, fit, float32
from peref.errors import Misuse
from peref.ops.shape import unbroadcast
from peref.tape import Op


def batched(a: Any, b: Any) -> Any:
    """a [...,M,K] b [...,K,N], leading axes broadcast."""
    fit("a product", a.shape[-1:], b.shape[-2:-1])
    if b.shape[-1] == 1 and a.shape[-2] > 1 and a.strides[-1] != 4:  # C' = B' A': A' lies in rows
        return batched(b.swapaxes(-1, -2), a.swapaxes(-1, -2)).swapaxes(-1, -2)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    c = np.empty((*lead, a.shape[-2], b.shape[-1]), np.float32)
    many = math.prod(lead)
    flat = (
        (np.broadcast_to(x, (*lead, *x.shape[-2:])) if lead else x).reshape(many, *x.shape[-2:])
        for x in (a, b)
    )
    if c.shape[-1] == 1:
        a, b = map(np.ascontiguousarray, flat)
        kernels("few").column_products(c.reshape(many, -1), a, b.reshape(many, -1))
    else:
        whole = c.reshape(many, *c.shape[-2:])
        kernels("matrix").multiply(whole, *flat, whole[:0])
    return c


def matmul_forward(a, b):
    float32("matmul", a, b)
    lead = zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)
    if min(a.ndim, b.ndim) < 2 or not all(n == m or 1 in (n, m) for n, m in lead):
        raise Misuse(
            f"matmul: {list(a.shape)} and {list(b.shape)} do not fit; expected matrices, leading axes equal "
            "or 1"
        )
    return batched(a, b), (a, b)


def matmul_backward(saved, dy):
    a, b = saved
    return unbroadcast(batched(dy, b.swapaxes(-1, -2)), a.shape), unbroadcast(
        batched(a.swapaxes(-1, -2), dy), b.shape
    )


matmul = Op(matmul_forward, matmul_backward)


def linear_forward(x, w, b):
    float32("linear", x, w, b)
    fit("linear: channels of x and columns of w", x.shape[-1:], w.shape[1:])
    fit("linear: rows of w, and b", w.shape[:1], w.shape[:1] if b is None else b.shape)
    rows = as_rows(x)
    if len(rows) < FEW:
        y = np.empty((len(rows), len(w)), np.float32)
        kernels("few").linear(y, np.ascontiguousarray(rows), np.ascontiguousarray(w))
    else:
        y = batched(rows, w.T)
    if b is not None:
        y += b
    return y.reshape(*x.shape[:-1], len(w)), (x, w, b is not None)


def linear_backward(saved, dy, arrived=None):
    x, w, biased = saved
    dy = as_rows(dy)
    dx = np.empty((1, len(dy), w.shape[1]), np.float32)
    more = dx[:0] if arrived is None else contiguous_rows(arrived)[None]
    kernels("matrix").multiply(dx, dy[None], w[None], more)
    return dx.reshape(x.shape), batched(dy.T, as_rows(x)), dy.sum(0) if biased else None


linear = Op(linear_forward, linear_backward, adds=True)


def filled(like, *arrays):
    """Contiguous; in place of None one of the same number of axes without elements."""
    return [
        np.zeros((0,) * n, np.float32) if a is None else np.ascontiguousarray(a)
        for n, a in zip(like, arrays, strict=True)
    ]


def activated_linear_forward(up, gate, w, b, residual):
    float32("activated_linear", up, gate, w, b, residual)
    fit("activated_linear: up and gate", up.shape, up.shape if gate is None else gate.shape)
    fit("activated_linear: channels of up and columns of w", up.shape[-1:], w.shape[1:])
    fit("activated_linear: rows of w, and b", w.shape[:1], w.shape[:1] if b is None else b.shape)
    shape = (*up.shape[:-1], len(w))
    fit("activated_linear: y and residual", shape, shape if residual is None else residual.shape)
    up, gate = as_rows(up), None if gate is None else as_rows(gate)
    absent = gate is None, b is None, residual is None
    up, gate, b, residual = filled((2, 2, 1, 2), up, gate, b, None if residual is None else as_rows(residual))
    y = np.empty((len(up), len(w)), np.float32)
    if len(up) < FEW:
        kernels("feed").activated_linear_few(y, up, gate, np.ascontiguousarray(w), b, residual)
    else:
        kernels("feed").activated_linear_forward(y, up, gate, w.T, b, residual)
    return y.reshape(shape), (up, gate, w, absent)


def activated_linear_backward(saved, dy):
    up, gate, w, (no_gate, no_bias, no_residual) = saved
    flat_dy = np.ascontiguousarray(as_rows(dy))
    dup, dgate, h = np.empty_like(up), np.empty_like(gate), np.empty_like(up)
    kernels("feed").activated_linear_backward(dup, dgate, h, flat_dy, up, gate, w)
    shape = (*dy.shape[:-1], w.shape[1])
    dw = np.ascontiguousarray(batched(h.T, flat_dy).T)  # h is the longer: its rows are read once
    gradients = dup.reshape(shape), None if no_gate else dgate.reshape(shape), dw
    return *gradients, None if no_bias else flat_dy.sum(0), None if no_residual else dy


activated_linear = Op(activated_linear_forward, activated_linear_backward)
