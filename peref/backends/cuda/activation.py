"""SwiGLU and GELU (kernels/activation.cu)."""

from peref.backends.cuda.arrays import THREADS, fit, one_line, packs, real, strided
from peref.backends.cuda.launch import launch
from peref.ops.activation import GELU_CUBIC, GELU_OUTER
from peref.tape import Op
from peref.xp import namespace


def swiglu_forward(gate, up):
    dtype = real("swiglu", gate, up)
    fit("swiglu: gate and up", gate.shape, up.shape)
    g, u = one_line(gate), one_line(up)
    y = namespace(g).empty_like(g)
    launch("activation.swiglu_forward", strided(packs(g)), THREADS, y, g, u, g.size, real=dtype)
    return y.reshape(gate.shape), (g, u)


def swiglu_backward(saved, dy):
    g, u = saved
    dgate, dup = (namespace(g).empty_like(g) for _ in range(2))
    launch(
        "activation.swiglu_backward",
        strided(packs(g)),
        THREADS,
        dgate,
        dup,
        one_line(dy),
        g,
        u,
        g.size,
        real=g.dtype,
    )
    return dgate.reshape(dy.shape), dup.reshape(dy.shape)


swiglu = Op(swiglu_forward, swiglu_backward)


def gelu_forward(x):
    dtype, a = real("gelu", x), one_line(x)
    y = namespace(a).empty_like(a)
    launch(
        "activation.gelu_forward",
        strided(packs(a)),
        THREADS,
        y,
        a,
        a.size,
        GELU_OUTER,
        GELU_CUBIC,
        real=dtype,
    )
    return y.reshape(x.shape), a


def gelu_backward(x, dy):
    dx = namespace(x).empty_like(x)
    launch(
        "activation.gelu_backward",
        strided(packs(x)),
        THREADS,
        dx,
        one_line(dy),
        x,
        x.size,
        GELU_OUTER,
        GELU_CUBIC,
        real=x.dtype,
    )
    return (dx.reshape(dy.shape),)


gelu = Op(gelu_forward, gelu_backward)
