"""The micro-kernel of all products: a tile of ROWS x COLUMNS sums stays in registers while K is walked.

For each k it loads one row of B, two vectors, and ROWS numbers of A, each spread over a vector: ROWS + 2
loads for 2 ROWS multiply-adds. Numbers of A are spread one after the other, since AVX2 has registers for two
at a time beside the sums and B. Bound: the multiplier, from K of about 32 on; below that, reading and writing
C.

A short tile has SHORT_ROWS rows: where ROWS is 6, a multiple of 8 rows is that of some whole and at most two
short tiles.
"""

from llvmlite import ir
from numba.extending import intrinsic

from peref.backends.numba.arrays import i8, void
from peref.backends.numba.emit import I64, PTR, VEC, constant, intrinsic_of, one_at_a_time
from peref.backends.numba.host import LANES, ROWS

SHORT_ROWS = ROWS - 2


def tile(rows, c, a, b, add, *more, onto=False):
    """`more`: where to call for what, or, `onto`, an array whose tile the sums are added to."""

    def body(e):
        B, (_, c_at, c_row, _, a_at, a_row, a_column, _, b_at, b_row, K, *then) = e.b, e.args
        row_of = lambda k, at, r, stride: e.at(k, B.add(at, B.mul(ir.Constant(I64, r), stride)))
        to = [row_of(0, c_at, r, c_row) for r in range(rows)]
        to = [*to, *(B.gep(p, [ir.Constant(I64, LANES)]) for p in to)]
        if then and not onto:
            for p in to:
                e.call_for(p, to_write=1)
        of_a, of_b = [row_of(3, a_at, r, a_row) for r in range(rows)], e.at(7, b_at)
        first = [e.load(p) if add else constant(0) for p in to]
        start, loop, done = B.block, B.append_basic_block("loop"), B.append_basic_block("done")
        B.cbranch(B.icmp_signed(">", K, ir.Constant(I64, 0)), loop, done)
        B.position_at_end(loop)
        k, sums = B.phi(I64), [B.phi(VEC) for _ in to]
        row = B.gep(of_b, [B.mul(k, b_row)])
        right = e.load(row), e.load(B.gep(row, [ir.Constant(I64, LANES)]))
        column = B.mul(k, a_column)
        if then and not onto:
            address, by = then
            e.call_for(B.inttoptr(B.add(address, B.mul(k, by)), PTR))
        new = list(sums)
        for r, p in enumerate(of_a):
            left = e.splat(B.load(B.gep(p, [column])))
            for n, x in zip((r, rows + r), right, strict=True):
                new[n] = e.fma(left, x, sums[n])
        k1 = B.add(k, ir.Constant(I64, 1))
        for phi, x0, x in zip([k, *sums], [ir.Constant(I64, 0), *first], [k1, *new], strict=True):
            phi.add_incoming(x0, start)
            phi.add_incoming(x, loop)
        again = B.cbranch(B.icmp_signed("<", k1, K), loop, done)
        again.set_metadata("llvm.loop", one_at_a_time(B.module))
        B.position_at_end(done)
        out = [B.phi(VEC) for _ in to]
        for phi, x0, x in zip(out, first, new, strict=True):
            phi.add_incoming(x0, start)
            phi.add_incoming(x, loop)
        if onto:
            _, t_at, t_row = then
            of = [row_of(11, t_at, r, t_row) for r in range(rows)]
            of = [*of, *(B.gep(p, [ir.Constant(I64, LANES)]) for p in of)]
            out = [B.fadd(x, e.load(p)) for x, p in zip(out, of, strict=True)]
        for p, x in zip(to, out, strict=True):
            e.store(x, p)

    return intrinsic_of(void, (c, i8, i8, a, i8, i8, i8, b, i8, i8, i8, *more), body)


@intrinsic
def tile_set(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C = A B for ROWS x K times K x COLUMNS: A with any strides, rows of B and C contiguous. K may be 0."""
    return tile(ROWS, c, a, b, False)


@intrinsic
def tile_add(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C += A B, likewise."""
    return tile(ROWS, c, a, b, True)


@intrinsic
def short_set(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C = A B for SHORT_ROWS x K times K x COLUMNS."""
    return tile(SHORT_ROWS, c, a, b, False)


@intrinsic
def short_add(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K):
    """C += A B, likewise."""
    return tile(SHORT_ROWS, c, a, b, True)


@intrinsic
def tile_onto(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, t, t_at, t_row):
    """C = A B + T for ROWS x K times K x COLUMNS; rows of T are contiguous."""
    return tile(ROWS, c, a, b, False, t, i8, i8, onto=True)


@intrinsic
def short_onto(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, t, t_at, t_row):
    """C = A B + T for SHORT_ROWS x K times K x COLUMNS."""
    return tile(SHORT_ROWS, c, a, b, False, t, i8, i8, onto=True)


@intrinsic
def set_prefetching(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, then, by):
    """The same as tile_set, of what lies in memory: C is called for before the sum begins, and at each step a
    line for another tile, at the address `then` and on in steps of `by` bytes. Nothing need be there.
    """
    return tile(ROWS, c, a, b, False, i8, i8)


@intrinsic
def add_prefetching(typingctx, c, c_at, c_row, a, a_at, a_row, a_column, b, b_at, b_row, K, then, by):
    """The same as tile_add, likewise."""
    return tile(ROWS, c, a, b, True, i8, i8)
