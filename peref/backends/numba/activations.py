"""SwiGLU and GELU with their derivatives, number by number: as formulas on vectors, which feed.py and
token.py use too, and for whole arrays, a STRETCH at a time (rows.py). Bound: exp and one division a number;
memory where the arrays are not in the cache.
"""

from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, i8, void, writes
from peref.backends.numba.emit import constant, each, intrinsic_of
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import STRETCH, stretches
from peref.backends.numba.threads import in_parallel
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


@njit(**INNER)
def swiglu_stretch(k, y, gate, up):
    swiglu_row(gate, up, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), c_reads(1), c_reads(1))
def swiglu(y, gate, up):
    in_parallel(swiglu_stretch, stretches(len(y)), (y, gate, up))


@njit(**INNER)
def swiglu_backward_stretch(k, dgate, dup, dy, gate, up):
    swiglu_row_backward(gate, up, dy, dgate, dup, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(1), writes(1), c_reads(1), c_reads(1), c_reads(1))
def swiglu_backward(dgate, dup, dy, gate, up):
    in_parallel(swiglu_backward_stretch, stretches(len(dy)), (dgate, dup, dy, gate, up))


@njit(**INNER)
def gelu_stretch(k, y, x):
    gelu_row(x, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), c_reads(1))
def gelu(y, x):
    in_parallel(gelu_stretch, stretches(len(y)), (y, x))


@njit(**INNER)
def gelu_backward_stretch(k, dx, dy, x):
    gelu_row_backward(x, dy, dx, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(1), c_reads(1), c_reads(1))
def gelu_backward(dx, dy, x):
    in_parallel(gelu_backward_stretch, stretches(len(dy)), (dx, dy, x))
