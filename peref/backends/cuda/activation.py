"""SwiGLU and GELU (kernels/activation.cu)."""

from typing import Any

from peref.backends.cuda.arrays import THREADS, fit, one_line, packs, real, strided
from peref.backends.cuda.launch import launch
from peref.ops.activation import GELU_CUBIC, GELU_OUTER
from peref.tape import Op
from peref.xp import namespace


def number_by_number(kernel: str, count: int, arrays: tuple[Any, ...], *numbers: float) -> list[Any]:
    """`count` arrays that a kernel makes of these, all [n], and of some numbers."""
    (x, *_), xp = arrays, namespace(arrays[0])
    made = [xp.empty_like(x) for _ in range(count)]
    launch(kernel, strided(packs(x)), THREADS, *made, *arrays, x.size, *numbers, real=x.dtype)
    return made


def swiglu_forward(gate, up):
    real("swiglu", gate, up)
    fit("swiglu: gate and up", gate.shape, up.shape)
    given = one_line(gate), one_line(up)
    (y,) = number_by_number("activation.swiglu_forward", 1, given)
    return y.reshape(gate.shape), given


def swiglu_backward(saved, dy):
    dgate, dup = number_by_number("activation.swiglu_backward", 2, (one_line(dy), *saved))
    return dgate.reshape(dy.shape), dup.reshape(dy.shape)


swiglu = Op(swiglu_forward, swiglu_backward)


def gelu_forward(x):
    real("gelu", x)
    a = one_line(x)
    (y,) = number_by_number("activation.gelu_forward", 1, (a,), GELU_OUTER, GELU_CUBIC)
    return y.reshape(x.shape), a


def gelu_backward(x, dy):
    (dx,) = number_by_number("activation.gelu_backward", 1, (one_line(dy), x), GELU_OUTER, GELU_CUBIC)
    return (dx.reshape(dy.shape),)


gelu = Op(gelu_forward, gelu_backward)
