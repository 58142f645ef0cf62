"""SwiGLU and GELU with their derivatives, number by number, as formulas on vectors: for feed.py and token.py.
Bound: exp and one division a number.
"""

from numba.extending import intrinsic

from peref.backends.numba.arrays import i8, void
from peref.backends.numba.emit import constant, each, intrinsic_of
from peref.ops.activation import GELU_CUBIC, GELU_OUTER


def pointwise(inputs, outputs, formula):
    """An intrinsic of arrays, at, n: outputs = formula(emit, *inputs) over n elements of contiguous
    arrays, all from element `at`.
    """
    count = len(inputs)

    def body(e):
        *_, at, n = e.args

        def step(k, mask):
            here = [e.at(j, e.b.add(at, k)) for j in range(count + len(outputs))]
            x = [e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in here[:count]]
            for y, p in zip(formula(e, *x), here[count:], strict=True):
                e.store(y, p) if mask is None else e.store_some(y, p, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (*inputs, *outputs, i8, i8), body)


def one_over_one_plus_exp(e, x):
    """1 / (1 + e^x), e^x not above e^80."""
    less = e.b.select(e.b.fcmp_ordered(">", x, constant(80)), constant(80), x)
    return e.b.fdiv(constant(1), e.b.fadd(constant(1), e.exp_of_less(less)))


def swiglu_lanes(e, gate, up):
    """logistic(gate), and gate logistic(gate) up."""
    s = one_over_one_plus_exp(e, e.b.fsub(constant(0), gate))
    return s, e.b.fmul(e.b.fmul(gate, s), up)


def gelu_lanes(e, x):
    """s = (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)), and x s."""
    cubic = e.fma(constant(GELU_CUBIC), e.b.fmul(x, x), constant(1))
    s = one_over_one_plus_exp(e, e.b.fmul(e.b.fmul(constant(-2 * GELU_OUTER), x), cubic))
    return s, e.b.fmul(x, s)


@intrinsic
def swiglu_row(typingctx, gate, up, y, at, n):
    """y = gate logistic(gate) up."""
    return pointwise([gate, up], [y], lambda e, g, u: [swiglu_lanes(e, g, u)[1]])


@intrinsic
def swiglu_row_backward(typingctx, gate, up, dy, dgate, dup, y, at, n):
    """Its gradients, dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s, and y once more."""

    def formula(e, g, u, d):
        s, y = swiglu_lanes(e, g, u)
        slope = e.fma(g, e.b.fsub(constant(1), s), constant(1))
        return [e.b.fmul(e.b.fmul(d, u), e.b.fmul(s, slope)), e.b.fmul(d, e.b.fmul(g, s)), y]

    return pointwise([gate, up, dy], [dgate, dup, y], formula)


@intrinsic
def gelu_row(typingctx, x, y, at, n):
    """y = x s."""
    return pointwise([x], [y], lambda e, x: [gelu_lanes(e, x)[1]])


@intrinsic
def gelu_row_backward(typingctx, x, dy, dx, y, at, n):
    """dx = dy (s + x s (1 - s) 2 z'), and y once more."""

    def formula(e, x, d):
        s, y = gelu_lanes(e, x)
        outer, cubic = constant(2 * GELU_OUTER), constant(3 * GELU_CUBIC)
        slope = e.b.fmul(outer, e.fma(cubic, e.b.fmul(x, x), constant(1)))
        return [e.b.fmul(d, e.fma(e.b.fmul(y, e.b.fsub(constant(1), s)), slope, s)), y]

    return pointwise([x, dy], [dx, y], formula)
