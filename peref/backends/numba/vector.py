"""Vector instructions, written out as LLVM IR: the inner loops of every kernel.

Every intrinsic takes whole arrays (float32, any shape and strides) and offsets counted in elements from their first one: the array stays
alive as long as the kernel that uses it. Lengths may be anything; the last vector is masked. Sums have LANES lanes, added in a fixed order
at the end, so that the bits depend on nothing but the numbers. Of fast-math only fused multiply-add, which is written out. A NaN that goes
in comes out: maxima take it, comparisons are chosen so that it passes every clamp.
"""

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from peref.backends.numba.host import LANES, ROWS
from peref.ops.activation import GELU_CUBIC, GELU_OUTER

F32, I1, I32, I64 = ir.FloatType(), ir.IntType(1), ir.IntType(32), ir.IntType(64)
VEC, MASK, IVEC = ir.VectorType(F32, LANES), ir.VectorType(I1, LANES), ir.VectorType(I32, LANES)


def number(x: float) -> ir.Constant:
    return ir.Constant(VEC, [float(x)] * LANES)


def whole(x: int) -> ir.Constant:
    return ir.Constant(IVEC, [x] * LANES)


class Emit:
    """The builder of one intrinsic's body, with the few things that all of them do."""

    def __init__(self, context, builder, sig, args):
        self.context, self.b, self.sig, self.args = context, builder, sig, args

    def at(self, k: int, offset) -> ir.Value:
        """Pointer to element `offset` of the array argument k."""
        array = self.context.make_array(self.sig.args[k])(self.context, self.b, self.args[k])
        return self.b.gep(array.data, [offset])

    def fma(self, x, y, z):
        f = cgutils.get_or_insert_function(self.b.module, ir.FunctionType(VEC, [VEC, VEC, VEC]), f"llvm.fma.v{LANES}f32")
        return self.b.call(f, [x, y, z])

    def splat(self, x):
        one = self.b.insert_element(ir.Constant(VEC, ir.Undefined), x, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, ir.Constant(VEC, ir.Undefined), ir.Constant(IVEC, [0] * LANES))

    def load(self, pointer):
        value = self.b.load(self.b.bitcast(pointer, VEC.as_pointer()))
        value.align = 4
        return value

    def store(self, value, pointer, past_cache=False):
        """`past_cache`: to memory without reading it first; the pointer must be a multiple of 16 bytes."""
        stored = self.b.store(value, self.b.bitcast(pointer, VEC.as_pointer()))
        stored.align = 16 if past_cache else 4
        if past_cache:
            stored.set_metadata("nontemporal", self.b.module.add_metadata([ir.Constant(I32, 1)]))

    def mask(self, count):
        """Lanes 0 .. count-1, for an i64 count."""
        lane = ir.Constant(IVEC, list(range(LANES)))
        n = self.b.trunc(count, I32)
        one = self.b.insert_element(ir.Constant(IVEC, ir.Undefined), n, ir.Constant(I32, 0))
        return self.b.icmp_signed("<", lane, self.b.shuffle_vector(one, ir.Constant(IVEC, ir.Undefined), whole(0)))

    def load_some(self, pointer, mask, otherwise):
        p = self.b.bitcast(pointer, VEC.as_pointer())
        kind = ir.FunctionType(VEC, [p.type, I32, MASK, VEC])
        f = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
        return self.b.call(f, [p, ir.Constant(I32, 4), mask, otherwise])

    def store_some(self, value, pointer, mask):
        p = self.b.bitcast(pointer, VEC.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [VEC, p.type, I32, MASK])
        f = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        self.b.call(f, [value, p, ir.Constant(I32, 4), mask])

    def halve(self, x, join):
        """The lanes of x joined, the upper half with the lower one until one is left: a fixed order."""
        size = LANES
        while size > 1:
            size //= 2
            halves = (ir.Constant(ir.VectorType(I32, size), list(range(first, first + size))) for first in (0, size))
            x = join(*(self.b.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), half) for half in halves))
        return self.b.extract_element(x, ir.Constant(I32, 0))

    def larger(self, x, y):
        """The larger of two numbers or vectors; a NaN in x wins."""
        return self.b.select(self.b.fcmp_unordered(">", x, y), x, y)

    def exp(self, x):
        """exp of a vector to 1.5 units in the last place; below -87.3 it is 0, above 88.7 infinite, NaN stays."""
        b = self.b
        capped = b.select(b.fcmp_unordered("<", x, number(-87.5)), number(-87.5), x)
        capped = b.select(b.fcmp_ordered("<", x, number(-87.5)), capped, x)
        capped = b.select(b.fcmp_ordered(">", capped, number(89.0)), number(89.0), capped)
        y, bits = self.power(capped)
        half = b.ashr(bits, whole(1))  # 2^n in two steps: n may be 128
        for part in (half, b.sub(bits, half)):
            y = b.fmul(y, b.bitcast(b.shl(b.add(part, whole(127)), whole(23)), VEC))
        return b.select(b.fcmp_ordered("<", x, number(-87.3)), number(0.0), y)

    def exp_of_less(self, x):
        """The same for numbers that are not above 80: what is out of range ends as 0 or NaN by itself, and one step makes 2^n."""
        y, bits = self.power(x)
        y = self.b.fmul(y, self.b.bitcast(self.b.shl(self.b.add(bits, whole(127)), whole(23)), VEC))
        return self.b.select(self.b.fcmp_ordered("<", x, number(-87.3)), number(0.0), y)

    def power(self, x):
        """exp(r) and the whole number n of 2^n exp(r), |r| <= ln(2)/2.

        n by adding and taking off 1.5 2^23, ln 2 in two parts, exp(r) by its Taylor polynomial of degree 7.
        """
        big = number(1.5 * 2**23)
        shifted = self.fma(x, number(1 / math.log(2)), big)
        n = self.b.fsub(shifted, big)
        r = self.fma(n, number(-0.693359375), x)  # 355/512: few bits, so n times it is exact
        r = self.fma(n, number(0.693359375 - math.log(2)), r)
        y = number(1 / math.factorial(7))
        for k in range(6, -1, -1):
            y = self.fma(y, r, number(1 / math.factorial(k)))
        return y, self.b.sub(self.b.bitcast(shifted, IVEC), whole(0x4B400000))


def each(emit: Emit, n, body, *carried):
    """body(offset, mask or None, *carried) -> carried, over n elements in vectors, the last one masked. Returns what is carried out."""
    b = emit.b
    whole_part = b.and_(n, ir.Constant(I64, -LANES))
    start, head, loop, after, tail, end = b.block, *(b.append_basic_block(name) for name in ("head", "loop", "after", "tail", "end"))
    b.branch(head)
    b.position_at_end(head)
    k = b.phi(I64)
    k.add_incoming(ir.Constant(I64, 0), start)
    state = [b.phi(c.type) for c in carried]
    for phi, c in zip(state, carried, strict=True):
        phi.add_incoming(c, start)
    b.cbranch(b.icmp_signed("<", k, whole_part), loop, after)
    b.position_at_end(loop)
    new = body(k, None, *state)
    k.add_incoming(b.add(k, ir.Constant(I64, LANES)), b.block)
    for phi, c in zip(state, new, strict=True):
        phi.add_incoming(c, b.block)
    b.branch(head)
    b.position_at_end(after)
    left = b.sub(n, whole_part)
    b.cbranch(b.icmp_signed(">", left, ir.Constant(I64, 0)), tail, end)
    b.position_at_end(tail)
    last = body(whole_part, emit.mask(left), *state)
    from_tail = b.block
    b.branch(end)
    b.position_at_end(end)
    out = [b.phi(c.type) for c in carried]
    for phi, a, c in zip(out, state, last, strict=True):
        phi.add_incoming(a, after)
        phi.add_incoming(c, from_tail)
    return out


def made(result, kinds, body):
    """What an intrinsic returns: its signature, and the code that `body`, given an Emit, writes; body returns the result's value or None."""

    def codegen(context, builder, sig, args):
        out = body(Emit(context, builder, sig, args))
        return context.get_dummy_value() if out is None else out

    return result(*kinds), codegen


i8, f4, void = types.int64, types.float32, types.void


def tile(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, add):
    def body(e):
        B, (_, c_at, c_row, _, a_at, a_row, a_column, _, b_at, b_row, K) = e.b, e.args
        row_of = lambda k, at, r, stride: e.at(k, B.add(at, B.mul(ir.Constant(I64, r), stride)))
        to = [row_of(0, c_at, r, c_row) for r in range(ROWS)]
        to = [*to, *(B.gep(p, [ir.Constant(I64, LANES)]) for p in to)]
        first = [e.load(p) if add else number(0) for p in to]
        of_a, of_b = [row_of(3, a_at, r, a_row) for r in range(ROWS)], e.at(7, b_at)
        start, loop, done = B.block, B.append_basic_block("loop"), B.append_basic_block("done")
        B.cbranch(B.icmp_signed(">", K, ir.Constant(I64, 0)), loop, done)
        B.position_at_end(loop)
        k, sums = B.phi(I64), [B.phi(VEC) for _ in to]
        row = B.gep(of_b, [B.mul(k, b_row)])
        right = e.load(row), e.load(B.gep(row, [ir.Constant(I64, LANES)]))
        column = B.mul(k, a_column)
        left = [e.splat(B.load(B.gep(p, [column]))) for p in of_a]
        new = [e.fma(left[n % ROWS], right[n // ROWS], s) for n, s in enumerate(sums)]
        k1 = B.add(k, ir.Constant(I64, 1))
        for phi, x0, x in zip([k, *sums], [ir.Constant(I64, 0), *first], [k1, *new], strict=True):
            phi.add_incoming(x0, start)
            phi.add_incoming(x, loop)
        B.cbranch(B.icmp_signed("<", k1, K), loop, done)
        B.position_at_end(done)
        out = [B.phi(VEC) for _ in to]
        for phi, x0, x in zip(out, first, new, strict=True):
            phi.add_incoming(x0, start)
            phi.add_incoming(x, loop)
        for p, x in zip(to, out, strict=True):
            e.store(x, p)

    return made(void, (c, i8, i8, a, i8, i8, i8, b, i8, i8, i8), body)


@intrinsic
def tile_set(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C = A B for ROWS x K times K x COLUMNS: A with any strides, rows of B and C contiguous. K may be 0."""
    return tile(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, False)


@intrinsic
def tile_add(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C += A B, likewise."""
    return tile(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, True)


@intrinsic
def scale_bias_max(typingctx, s, at, n, scale, t, t_at, m):
    """s = s scale + t over n elements, in place; returns the largest of them and m, NaN if one is."""

    def body(e):
        _, at, n, scale, _, t_at, m = e.args
        by = e.splat(scale)

        def step(k, mask, top):
            p, q = e.at(0, e.b.add(at, k)), e.at(4, e.b.add(t_at, k))
            if mask is None:
                y = e.fma(e.load(p), by, e.load(q))
                e.store(y, p)
            else:
                y = e.fma(e.load_some(p, mask, number(0)), by, e.load_some(q, mask, number(0)))
                e.store_some(y, p, mask)
                y = e.b.select(mask, y, top)
            return [e.larger(y, top)]

        return e.halve(each(e, n, step, e.splat(m))[0], e.larger)

    return made(f4, (s, i8, i8, f4, t, i8, f4), body)


@intrinsic
def exp_sum(typingctx, s, at, n, m):
    """s = exp(s - m) over n elements, in place; returns their sum. m is the largest of them."""

    def body(e):
        _, at, n, m = e.args
        by = e.splat(m)

        def step(k, mask, total):
            p = e.at(0, e.b.add(at, k))
            y = e.exp_of_less(e.b.fsub(e.load(p) if mask is None else e.load_some(p, mask, by), by))
            if mask is None:
                e.store(y, p)
            else:
                e.store_some(y, p, mask)
                y = e.b.select(mask, y, number(0))
            return [e.b.fadd(total, y)]

        return e.halve(each(e, n, step, number(0))[0], e.b.fadd)

    return made(f4, (s, i8, i8, f4), body)


@intrinsic
def slopes(typingctx, s, at, z, z_at, n, scale, t, t_at, less, off):
    """s = exp(s scale + t - less), then z = s (z - off), over n elements, in place: P and dS of a row, whose log-sum is `less`."""

    def body(e):
        _, at, _, z_at, n, scale, _, t_at, less, off = e.args
        by, below, mean = e.splat(scale), e.splat(less), e.splat(off)

        def step(k, mask):
            places = e.at(0, e.b.add(at, k)), e.at(2, e.b.add(z_at, k)), e.at(6, e.b.add(t_at, k))
            x, d, bias = (e.load(p) if mask is None else e.load_some(p, mask, number(0)) for p in places)
            y = e.exp_of_less(e.b.fsub(e.fma(x, by, bias), below))
            for out, p in ((y, places[0]), (e.b.fmul(y, e.b.fsub(d, mean)), places[1])):
                e.store(out, p) if mask is None else e.store_some(out, p, mask)
            return []

        each(e, n, step)

    return made(void, (s, i8, z, i8, i8, f4, t, i8, f4, f4), body)


@intrinsic
def dot(typingctx, a, a_at, b, b_at, n):
    """The sum of a b over n elements."""

    def body(e):
        _, a_at, _, b_at, n = e.args

        def step(k, mask, total):
            p, q = e.at(0, e.b.add(a_at, k)), e.at(2, e.b.add(b_at, k))
            if mask is None:
                return [e.fma(e.load(p), e.load(q), total)]
            return [e.fma(e.load_some(p, mask, number(0)), e.load_some(q, mask, number(0)), total)]

        return e.halve(each(e, n, step, number(0))[0], e.b.fadd)

    return made(f4, (a, i8, b, i8, i8), body)


@intrinsic
def copy(typingctx, y, y_at, x, x_at, n):
    """y = x over n elements."""

    def body(e):
        _, y_at, _, x_at, n = e.args

        def step(k, mask):
            to, p = e.at(0, e.b.add(y_at, k)), e.at(2, e.b.add(x_at, k))
            e.store(e.load(p), to) if mask is None else e.store_some(e.load_some(p, mask, number(0)), to, mask)
            return []

        each(e, n, step)

    return made(void, (y, i8, x, i8, i8), body)


@intrinsic
def diagonals(typingctx, y, y_at, x, x_at, row, count, n):
    """y += the sum of `count` rows of x, over n elements: rows are `row` apart. y is float64; a sum is made in float32 first."""

    def body(e):
        B, (_, y_at, _, x_at, row, count, n) = e.b, e.args
        double = ir.VectorType(ir.DoubleType(), LANES)

        def step(k, mask):
            start, loop, after = B.block, B.append_basic_block("row"), B.append_basic_block("rest")
            B.branch(loop)
            B.position_at_end(loop)
            r, total = B.phi(I64), B.phi(VEC)
            p = e.at(2, B.add(B.add(x_at, k), B.mul(r, row)))
            new, more = B.fadd(total, e.load(p) if mask is None else e.load_some(p, mask, number(0))), B.add(r, ir.Constant(I64, 1))
            for phi, first, later in ((r, ir.Constant(I64, 0), more), (total, number(0), new)):
                phi.add_incoming(first, start)
                phi.add_incoming(later, loop)
            B.cbranch(B.icmp_signed("<", more, count), loop, after)
            B.position_at_end(after)
            to = B.bitcast(e.at(0, B.add(y_at, k)), double.as_pointer())
            if mask is None:
                old = B.load(to)
                old.align = 8
                B.store(B.fadd(old, B.fpext(new, double)), to).align = 8
            else:
                here = cgutils.get_or_insert_function(
                    B.module, ir.FunctionType(double, [to.type, I32, MASK, double]), f"llvm.masked.load.v{LANES}f64.p0"
                )
                there = cgutils.get_or_insert_function(
                    B.module, ir.FunctionType(ir.VoidType(), [double, to.type, I32, MASK]), f"llvm.masked.store.v{LANES}f64.p0"
                )
                eight = ir.Constant(I32, 8)
                old = B.call(here, [to, eight, mask, ir.Constant(double, [0.0] * LANES)])
                B.call(there, [B.fadd(old, B.fpext(new, double)), to, eight, mask])
            return []

        each(e, n, step)

    return made(void, (y, i8, x, i8, i8, i8, i8), body)


def pointwise(typingctx, inputs, outputs, n, formula):
    """Outputs = formula(emit, *inputs) over n elements of contiguous arrays, all from element `at`: arguments are arrays, at, n."""
    count = len(inputs)

    def body(e):
        *_, at, n = e.args

        def step(k, mask):
            here = [e.at(j, e.b.add(at, k)) for j in range(count + len(outputs))]
            x = [e.load(p) if mask is None else e.load_some(p, mask, number(0)) for p in here[:count]]
            for y, p in zip(formula(e, *x), here[count:], strict=True):
                e.store(y, p) if mask is None else e.store_some(y, p, mask)
            return []

        each(e, n, step)

    return made(void, (*inputs, *outputs, i8, i8), body)


def logistic(e, x):
    return e.b.fdiv(number(1), e.b.fadd(number(1), e.exp(e.b.fsub(number(0), x))))


def gelu_parts(e, x):
    """x^2, and tanh of GELU's inner polynomial as 1 - 2 / (1 + exp(2 z))."""
    square = e.b.fmul(x, x)
    twice = e.b.fmul(e.b.fmul(number(2 * GELU_OUTER), x), e.fma(number(GELU_CUBIC), square, number(1)))
    return square, e.b.fsub(number(1), e.b.fdiv(number(2), e.b.fadd(number(1), e.exp(twice))))


@intrinsic
def swiglu_row(typingctx, gate, up, y, at, n):
    """y = gate logistic(gate) up."""
    formula = lambda e, g, u: [e.b.fmul(e.b.fmul(g, logistic(e, g)), u)]
    return pointwise(typingctx, [gate, up], [y], n, formula)


@intrinsic
def swiglu_row_backward(typingctx, gate, up, dy, dgate, dup, at, n):
    """Its gradients: dgate = dy up s (1 + gate (1 - s)), dup = dy gate s."""

    def formula(e, g, u, d):
        s = logistic(e, g)
        slope = e.fma(g, e.b.fsub(number(1), s), number(1))
        return [e.b.fmul(e.b.fmul(d, u), e.b.fmul(s, slope)), e.b.fmul(d, e.b.fmul(g, s))]

    return pointwise(typingctx, [gate, up, dy], [dgate, dup], n, formula)


@intrinsic
def gelu_row(typingctx, x, y, at, n):
    """y = x (1 + t) / 2, t the tanh."""
    formula = lambda e, x: [e.b.fmul(e.b.fmul(number(0.5), x), e.b.fadd(number(1), gelu_parts(e, x)[1]))]
    return pointwise(typingctx, [x], [y], n, formula)


@intrinsic
def gelu_row_backward(typingctx, x, dy, dx, at, n):
    """dx = dy (1 + t + x (1 - t^2) z') / 2."""

    def formula(e, x, d):
        square, t = gelu_parts(e, x)
        inner = e.b.fmul(number(GELU_OUTER), e.fma(number(3 * GELU_CUBIC), square, number(1)))
        bell = e.b.fmul(x, e.fma(e.b.fsub(number(0), t), t, number(1)))
        return [e.b.fmul(e.b.fmul(number(0.5), d), e.fma(bell, inner, e.b.fadd(number(1), t)))]

    return pointwise(typingctx, [x, dy], [dx], n, formula)


def turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, past_cache):
    def body(e):
        _, x_at, _, y_at, _, _, at, n = e.args

        def step(k, mask):
            a, b = e.b.add(x_at, k), e.b.add(y_at, k)
            places = e.at(0, a), e.at(0, e.b.add(a, n)), e.at(4, e.b.add(at, k)), e.at(5, e.b.add(at, k))
            one, two, c, s = (e.load(p) if mask is None else e.load_some(p, mask, number(0)) for p in places)
            first = e.b.fsub(e.b.fmul(one, c), e.b.fmul(two, s))
            second = e.b.fadd(e.b.fmul(one, s), e.b.fmul(two, c))
            for out, p in ((first, e.at(2, b)), (second, e.at(2, e.b.add(b, n)))):
                if mask is None:
                    e.store(out, p, past_cache)
                else:
                    e.store_some(out, p, mask)
            return []

        each(e, n, step)

    return made(void, (x, i8, y, i8, cos, sin, i8, i8), body)


@intrinsic
def turn_halves(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """y_a = x_a cos - x_b sin, y_b = x_a sin + x_b cos for n pairs: b stands n after a in x and y, cos and sin begin at `at`."""
    return turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, False)


@intrinsic
def turn_halves_past_cache(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """The same, written straight to memory, which is not read first. y begins at a multiple of 16 bytes, so does y_at; `written` must follow."""
    return turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, True)


@intrinsic
def written(typingctx):
    """What was written past the cache is there for all threads."""

    def body(e):
        e.b.fence("seq_cst")

    return made(void, (), body)
