"""linear, matmul and activated_linear with their derivatives, over one way to multiply matrices
(cublas.Cublas). Their plain twins: ops/linear.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from peref.ops.shape import unbroadcast
from peref.tape import Op, at_once
from peref.xp import namespace


@dataclass(frozen=True)
class Products:
    linear: Op
    linears: Callable
    matmul: Op
    activated_linear: Callable


def as_rows(x: Any) -> Any:
    """x [...,C] as [M,C], C-contiguous."""
    return namespace(x).ascontiguousarray(x).reshape(-1, x.shape[-1])


def side_by_side(weights: tuple[Any, ...]) -> Any:
    """Views [N,C] of one line of memory, each behind the one before, as one matrix [sum of N,C]; else
    None.
    """
    first, at = weights[0], weights[0].data.ptr
    for w in weights:
        if w.base is None or w.base is not first.base or w.data.ptr != at or w.dtype != first.dtype:
            return None
        at += w.nbytes
    rows = sum(map(len, weights))
    return namespace(first).ndarray((rows, first.shape[1]), first.dtype, first.data)


def one_matrix(parts: list[Any]) -> Any:
    """Parts [...,N] that are neighbouring columns of one matrix, all of its columns: this [M,sum of N]; else
    None.
    """
    first, at = parts[0], parts[0].data.ptr
    width = sum(d.shape[-1] for d in parts)
    for d in parts:
        if d.base is None or d.base is not first.base or d.data.ptr != at or d.strides != first.strides:
            return None
        at += d.shape[-1] * d.itemsize
    rows = math.prod(first.shape[:-1])
    whole = namespace(first).ndarray((*first.shape[:-1], width), first.dtype, first.data)
    return whole.reshape(rows, width) if whole.strides == first.strides else None


def products(multiply: Callable, gelu: Op, swiglu: Op) -> Products:
    """The four over `multiply` (a, b, out=None) -> a b (+ out)."""

    def onto_forward(x, w, b, residual):  # x w' + b + residual: [...,C], [N,C], [N] or None, [...,N] or None
        xp, shape = namespace(x, w), (*x.shape[:-1], len(w))
        out = None
        if residual is not None:
            out = xp.empty(shape, x.dtype)
            out[...] = residual if b is None else residual + b  # faster than its copy()
            out = out.reshape(-1, len(w))
        elif b is not None:
            out = xp.broadcast_to(b, shape).copy().reshape(-1, len(w))
        x = as_rows(x)
        return multiply(x, w.T, out).reshape(shape), (x, w, shape, b is not None, residual is not None)

    def onto_backward(saved, dy, wants, aside=at_once):
        x, w, shape, biased, added = saved
        flat = as_rows(dy)
        dw = aside(slice(1, 2), lambda: multiply(flat.T, x)) if wants[1] else None
        dx = multiply(flat, w).reshape(*shape[:-1], w.shape[1]) if wants[0] else None
        return dx, dw, flat.sum(0) if biased and wants[2] else None, dy if added and wants[3] else None

    def linear_forward(x, w, b):
        return onto_forward(x, w, b, None)

    def linear_backward(saved, dy, wants, aside=at_once):
        return onto_backward(saved, dy, (*wants, False), aside)[:3]

    def several_forward(x, *maps):  # x w' + b of each w [N,C], b [N] or None behind one another: [...,N] each
        weights, biases = maps[::2], maps[1::2]
        whole, shapes = side_by_side(weights), [(*x.shape[:-1], len(w)) for w in weights]
        flat = as_rows(x)
        if whole is not None and len({w.shape for w in weights}) == 1:
            y = multiply(flat, whole.reshape(len(weights), *weights[0].shape).swapaxes(1, 2))
        else:
            y = [multiply(flat, w.T) for w in weights]
        made = [
            (one if b is None else one + b).reshape(s) for one, b, s in zip(y, biases, shapes, strict=True)
        ]
        return made[0], (flat, weights, whole, shapes, [b is not None for b in biases]), *made[1:]

    def several_backward(saved, *arrived, aside=at_once):
        x, weights, whole, shapes, biased = saved
        xp = namespace(x)
        dys = [xp.zeros(s, x.dtype) if dy is None else dy for dy, s in zip(arrived, shapes, strict=True)]
        joint = None if whole is None else one_matrix(dys)
        if joint is None:
            dx: Any = None
            for d, w in zip(dys, weights, strict=True):
                dx = multiply(as_rows(d), w, dx)
            dws = [multiply(as_rows(d).T, x) for d in dys]
        else:
            dw = aside(slice(1, None), lambda: multiply(joint.T, x))
            dx = multiply(joint, whole)
            dws = xp.split(dw, list(accumulate(map(len, weights[:-1]))))
        dbs = [as_rows(d).sum(0) if there else None for d, there in zip(dys, biased, strict=True)]
        of_maps = (g for pair in zip(dws, dbs, strict=True) for g in pair)
        return dx.reshape(*shapes[0][:-1], x.shape[1]), *of_maps

    several = Op(several_forward, several_backward, state=True, aside=True)

    def linears(x: Any, *maps: tuple[Any, Any]) -> Any:
        """x [...,C] through several maps (w [N,C], b [N] or None): [...,N] of each."""
        return several(x, *(a for pair in maps for a in pair))

    def matmul_forward(a, b):
        return multiply(a, b), (a, b)

    def matmul_backward(saved, dy, wants):
        a, b = saved
        da = unbroadcast(multiply(dy, b.swapaxes(-1, -2)), a.shape) if wants[0] else None
        return da, unbroadcast(multiply(a.swapaxes(-1, -2), dy), b.shape) if wants[1] else None

    onto = Op(onto_forward, onto_backward, selective=True, aside=True)

    def activated_linear(up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
        """As ops.feed.activated_linear; bias and residual are what the product is added to."""
        return onto(gelu(up) if gate is None else swiglu(gate, up), w, b, residual)

    linear = Op(linear_forward, linear_backward, selective=True, aside=True)
    return Products(linear, linears, Op(matmul_forward, matmul_backward, selective=True), activated_linear)
