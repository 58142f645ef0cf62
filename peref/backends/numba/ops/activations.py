"""SwiGLU and GELU (activations.py)."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import fit, float32, one_line
from peref.tape import Op


def swiglu_forward(gate, up):
    float32("swiglu", gate, up)
    fit("swiglu: gate and up", gate.shape, up.shape)
    g, u = one_line(gate), one_line(up)
    y = np.empty_like(g)
    kernels("activations").swiglu(y, g, u)
    return y.reshape(gate.shape), (g, u)


def swiglu_backward(saved, dy):
    dgate, dup = np.empty_like(saved[0]), np.empty_like(saved[1])
    kernels("activations").swiglu_backward(dgate, dup, one_line(dy), *saved)
    return dgate.reshape(dy.shape), dup.reshape(dy.shape)


swiglu = Op(swiglu_forward, swiglu_backward)


def gelu_forward(x):
    float32("gelu", x)
    a = one_line(x)
    y = np.empty_like(a)
    kernels("activations").gelu(y, a)
    return y.reshape(x.shape), a


def gelu_backward(x, dy):
    dx = np.empty_like(x)
    kernels("activations").gelu_backward(dx, one_line(dy), x)
    return (dx.reshape(dy.shape),)


gelu = Op(gelu_forward, gelu_backward)
