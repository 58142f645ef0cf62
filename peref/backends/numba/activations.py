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


def logistic(e, x):
    return e.b.fdiv(constant(1), e.b.fadd(constant(1), e.exp(e.b.fsub(constant(0), x))))


def gelu_parts(e, x):
    """x^2, and tanh of GELU's inner polynomial as 1 - 2 / (1 + exp(2 z))."""
    square = e.b.fmul(x, x)
    twice = e.b.fmul(e.b.fmul(constant(2 * GELU_OUTER), x), e.fma(constant(GELU_CUBIC), square, constant(1)))
    return square, e.b.fsub(constant(1), e.b.fdiv(constant(2), e.b.fadd(constant(1), e.exp(twice))))


@intrinsic
def swiglu_row(typingctx, gate, up, y, at, n):
    """y = gate logistic(gate) up."""
    formula = lambda e, g, u: [e.b.fmul(e.b.fmul(g, logistic(e, g)), u)]
    return pointwise([gate, up], [y], formula)


@intrinsic
def swiglu_row_backward(typingctx, gate, up, dy, dgate, dup, at, n):
    """Its gradients: dgate = dy up s (1 + gate (1 - s)), dup = dy gate s."""

    def formula(e, g, u, d):
        s = logistic(e, g)
        slope = e.fma(g, e.b.fsub(constant(1), s), constant(1))
        return [e.b.fmul(e.b.fmul(d, u), e.b.fmul(s, slope)), e.b.fmul(d, e.b.fmul(g, s))]

    return pointwise([gate, up, dy], [dgate, dup], formula)


@intrinsic
def gelu_row(typingctx, x, y, at, n):
    """y = x (1 + t) / 2, t the tanh."""
    formula = lambda e, x: [e.b.fmul(e.b.fmul(constant(0.5), x), e.b.fadd(constant(1), gelu_parts(e, x)[1]))]
    return pointwise([x], [y], formula)


@intrinsic
def gelu_row_backward(typingctx, x, dy, dx, at, n):
    """dx = dy (1 + t + x (1 - t^2) z') / 2."""

    def formula(e, x, d):
        square, t = gelu_parts(e, x)
        inner = e.b.fmul(constant(GELU_OUTER), e.fma(constant(3 * GELU_CUBIC), square, constant(1)))
        bell = e.b.fmul(x, e.fma(e.b.fsub(constant(0), t), t, constant(1)))
        return [e.b.fmul(e.b.fmul(constant(0.5), d), e.fma(bell, inner, e.b.fadd(constant(1), t)))]

    return pointwise([x, dy], [dx], formula)
