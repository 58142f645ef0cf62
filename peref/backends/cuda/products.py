"""linear, matmul and activated_linear with their derivatives, over one way to multiply matrices
(cublas.Cublas). Their plain twins: ops/linear.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


@dataclass(frozen=True)
class Products:
    linear: Op
    matmul: Op
    activated_linear: Callable


def as_rows(x: Any) -> Any:
    """x [...,C] as [M,C], C-contiguous."""
    return namespace(x).ascontiguousarray(x).reshape(-1, x.shape[-1])


def products(multiply: Callable, gelu: Op, swiglu: Op) -> Products:
    """The three over `multiply` (a, b, out=None) -> a b (+ out)."""

    def onto_forward(x, w, b, residual):  # x w' + b + residual: [...,C], [N,C], [N] or None, [...,N] or None
        xp, shape = namespace(x, w), (*x.shape[:-1], len(w))
        out = None
        if residual is not None:
            out = xp.ascontiguousarray(residual if b is None else residual + b).reshape(-1, len(w))
            out = out.copy() if b is None else out
        elif b is not None:
            out = xp.broadcast_to(b, shape).copy().reshape(-1, len(w))
        x = as_rows(x)
        return multiply(x, w.T, out).reshape(shape), (x, w, shape, b is not None, residual is not None)

    def onto_backward(saved, dy, wants):
        x, w, shape, biased, added = saved
        flat = as_rows(dy)
        dx = multiply(flat, w).reshape(*shape[:-1], w.shape[1]) if wants[0] else None
        dw = multiply(flat.T, x) if wants[1] else None
        return dx, dw, flat.sum(0) if biased and wants[2] else None, dy if added and wants[3] else None

    def linear_forward(x, w, b):
        return onto_forward(x, w, b, None)

    def linear_backward(saved, dy, wants):
        return onto_backward(saved, dy, (*wants, False))[:3]

    def matmul_forward(a, b):
        return multiply(a, b), (a, b)

    def matmul_backward(saved, dy, wants):
        a, b = saved
        da = unbroadcast(multiply(dy, b.swapaxes(-1, -2)), a.shape) if wants[0] else None
        return da, unbroadcast(multiply(a.swapaxes(-1, -2), dy), b.shape) if wants[1] else None

    onto = Op(onto_forward, onto_backward, selective=True)

    def activated_linear(up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
        """As ops.feed.activated_linear; bias and residual are what the product is added to."""
        return onto(gelu(up) if gate is None else swiglu(gate, up), w, b, residual)

    linear = Op(linear_forward, linear_backward, selective=True)
    return Products(linear, Op(matmul_forward, matmul_backward, selective=True), activated_linear)
