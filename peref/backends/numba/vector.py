"""Sums over rows of numbers, and what attention does with a row of logits.

A row is walked once, LANES numbers at a time. Bound: exp, at about 13 multiply-adds a vector; the others, the
first cache.
"""

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from peref.backends.numba.arrays import f4, i8, void
from peref.backends.numba.emit import I32, I64, IVEC, MASK, VEC, constant, each, intrinsic_of, loop
from peref.backends.numba.host import LANES


@intrinsic
def dot(typingctx, a, a_at, b, b_at, n):
    """The sum of a b over n elements."""

    def body(e):
        _, a_at, _, b_at, n = e.args

        def step(k, mask, total):
            p, q = e.at(0, e.b.add(a_at, k)), e.at(2, e.b.add(b_at, k))
            if mask is None:
                return [e.fma(e.load(p), e.load(q), total)]
            return [e.fma(e.load_some(p, mask, constant(0)), e.load_some(q, mask, constant(0)), total)]

        return e.halve(each(e, n, step, constant(0))[0], e.b.fadd)

    return intrinsic_of(f4, (a, i8, b, i8, i8), body)


@intrinsic
def copy(typingctx, y, y_at, x, x_at, n):
    """y = x over n elements."""

    def body(e):
        _, y_at, _, x_at, n = e.args

        def step(k, mask):
            to, p = e.at(0, e.b.add(y_at, k)), e.at(2, e.b.add(x_at, k))
            e.store(e.load(p), to) if mask is None else e.store_some(
                e.load_some(p, mask, constant(0)), to, mask
            )
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, x, i8, i8), body)


@intrinsic
def fill(typingctx, y, y_at, value, n):
    """y = value over n elements."""

    def body(e):
        _, y_at, value, n = e.args
        value = e.splat(value)

        def step(k, mask):
            to = e.at(0, e.b.add(y_at, k))
            e.store(value, to) if mask is None else e.store_some(value, to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, f4, i8), body)


@intrinsic
def pad(typingctx, y, y_at, x, x_at, n, wide):
    """y = x over n elements and 0 in the next, up to `wide`, a multiple of LANES."""

    def body(e):
        b, (_, y_at, _, x_at, n, wide) = e.b, e.args

        def step(k):
            here = e.load_some(e.at(2, b.add(x_at, k)), e.mask(b.sub(n, k)), constant(0))
            e.store(here, e.at(0, b.add(y_at, k)))
            return []

        loop(e, wide, LANES, step)

    return intrinsic_of(void, (y, i8, x, i8, i8, i8), body)


@intrinsic
def scale(typingctx, y, y_at, x, x_at, by, n):
    """y = x by over n elements; y and x may be one array."""

    def body(e):
        _, y_at, _, x_at, by, n = e.args
        by = e.splat(by)

        def step(k, mask):
            to, p = e.at(0, e.b.add(y_at, k)), e.at(2, e.b.add(x_at, k))
            if mask is None:
                e.store(e.b.fmul(by, e.load(p)), to)
            else:
                e.store_some(e.b.fmul(by, e.load_some(p, mask, constant(0))), to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, x, i8, f4, i8), body)


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
                y = e.fma(e.load_some(p, mask, constant(0)), by, e.load_some(q, mask, constant(0)))
                e.store_some(y, p, mask)
                y = e.b.select(mask, y, top)
            return [e.larger(y, top)]

        return e.halve(each(e, n, step, e.splat(m))[0], e.larger)

    return intrinsic_of(f4, (s, i8, i8, f4, t, i8, f4), body)


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
                y = e.b.select(mask, y, constant(0))
            return [e.b.fadd(total, y)]

        return e.halve(each(e, n, step, constant(0))[0], e.b.fadd)

    return intrinsic_of(f4, (s, i8, i8, f4), body)


@intrinsic
def diagonals(typingctx, y, y_at, x, x_at, row, count, n):
    """y += the sum of `count` rows of x, over n elements: rows are `row` apart. y is float64; a sum is
    made in float32 first.
    """

    def body(e):
        B, (_, y_at, _, x_at, row, count, n) = e.b, e.args
        double = ir.VectorType(ir.DoubleType(), LANES)

        def step(k, mask):
            start, loop, after = B.block, B.append_basic_block("row"), B.append_basic_block("rest")
            B.branch(loop)
            B.position_at_end(loop)
            r, total = B.phi(I64), B.phi(VEC)
            p = e.at(2, B.add(B.add(x_at, k), B.mul(r, row)))
            new, more = (
                B.fadd(total, e.load(p) if mask is None else e.load_some(p, mask, constant(0))),
                B.add(r, ir.Constant(I64, 1)),
            )
            for phi, first, later in ((r, ir.Constant(I64, 0), more), (total, constant(0), new)):
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
                    B.module,
                    ir.FunctionType(double, [to.type, I32, MASK, double]),
                    f"llvm.masked.load.v{LANES}f64.p0",
                )
                there = cgutils.get_or_insert_function(
                    B.module,
                    ir.FunctionType(ir.VoidType(), [double, to.type, I32, MASK]),
                    f"llvm.masked.store.v{LANES}f64.p0",
                )
                eight = ir.Constant(I32, 8)
                old = B.call(here, [to, eight, mask, ir.Constant(double, [0.0] * LANES)])
                B.call(there, [B.fadd(old, B.fpext(new, double)), to, eight, mask])
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, x, i8, i8, i8, i8), body)


def columns_of(e, rows):
    """LANES vectors of a block's rows -> of its columns."""
    half = LANES // 2
    for _ in range(half.bit_length()):  # each turns the bits of (row, lane) by one place
        rows = [
            e.b.shuffle_vector(one, two, ir.Constant(IVEC, [k for n in part for k in (n, LANES + n)]))
            for one, two in zip(rows[:half], rows[half:], strict=True)
            for part in (range(half), range(half, LANES))
        ]
    return rows


@intrinsic
def transpose_block(typingctx, y, y_at, y_row, x, x_at, x_row):
    """y = x' for LANES x LANES numbers, rows y_row and x_row apart."""

    def body(e):
        b, (_, y_at, y_row, _, x_at, x_row) = e.b, e.args
        at = lambda k, at, row, n: e.at(k, b.add(at, b.mul(ir.Constant(I64, n), row)))
        rows = [e.load(at(3, x_at, x_row, n)) for n in range(LANES)]
        for n, x in enumerate(columns_of(e, rows)):
            e.store(x, at(0, y_at, y_row, n))

    return intrinsic_of(void, (y, i8, i8, x, i8, i8), body)


@intrinsic
def transpose_some(typingctx, y, y_at, y_row, x, x_at, x_row, rows, columns):
    """y = x' for x [rows,columns], at most LANES x LANES; no other number is read or written."""

    def body(e):
        b, (_, y_at, y_row, _, x_at, x_row, rows, columns) = e.b, e.args

        def places(k, at, row, many, wide):
            """Of each of LANES rows of an array where it is, and which lanes of it are meant."""
            none, mask = ir.Constant(MASK, [0] * LANES), e.mask(wide)
            for n in range(LANES):
                line = ir.Constant(I64, n)
                there = b.select(b.icmp_signed("<", line, many), mask, none)
                yield e.at(k, b.add(at, b.mul(line, row))), there

        lines = [e.load_some(p, there, constant(0)) for p, there in places(3, x_at, x_row, rows, columns)]
        for x, (p, there) in zip(columns_of(e, lines), places(0, y_at, y_row, columns, rows), strict=True):
            e.store_some(x, p, there)

    return intrinsic_of(void, (y, i8, i8, x, i8, i8, i8, i8), body)
