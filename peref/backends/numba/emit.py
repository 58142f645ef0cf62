"""How an intrinsic is written: LLVM IR for vectors of the host's width, with what all of them do in one
place.

Every intrinsic takes whole arrays (float32, any shape and strides) and offsets counted in elements from their
first one: the array stays alive as long as the kernel that uses it. Lengths may be anything; the last vector
is masked. Sums have LANES lanes, added in a fixed order at the end, so that the bits depend on nothing but
the numbers. Of fast-math only fused multiply-add, which is written out. A NaN that goes in comes out: maxima
take it, comparisons are chosen so that it passes every clamp.
"""

import math

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate

from peref.backends.numba.host import LANES

REACH = math.log(2) / 2
EXP = cheb2poly(chebinterpolate(lambda z: np.exp(REACH * z), 6)) / REACH ** np.arange(7)  # of r, ascending
LANE_REACH = REACH / LANES
# of (exp(r) - 1) / r for numbers LANES times as small, which is 1 + r/2 + r^2/6 + ...
NEAR = chebinterpolate(
    lambda z: 1 + LANE_REACH * z / 2 + (LANE_REACH * z) ** 2 / 6 + (LANE_REACH * z) ** 3 / 24, 2
)
NEAR = cheb2poly(NEAR) / LANE_REACH ** np.arange(3)

F32, I1, I32, I64 = ir.FloatType(), ir.IntType(1), ir.IntType(32), ir.IntType(64)
PTR = ir.IntType(8).as_pointer()
VEC, MASK, IVEC = ir.VectorType(F32, LANES), ir.VectorType(I1, LANES), ir.VectorType(I32, LANES)


def constant(x: float) -> ir.Constant:
    return ir.Constant(VEC, [float(x)] * LANES)


def whole_number(x: int) -> ir.Constant:
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
        f = cgutils.get_or_insert_function(
            self.b.module, ir.FunctionType(VEC, [VEC, VEC, VEC]), f"llvm.fma.v{LANES}f32"
        )
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
        return self.b.icmp_signed(
            "<", lane, self.b.shuffle_vector(one, ir.Constant(IVEC, ir.Undefined), whole_number(0))
        )

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

    def call_for(self, pointer, to_write=0):
        """Have the line of `pointer` brought into the second cache, where nobody waits for it. No pointer is
        refused.
        """
        kind = ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32])
        f = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(f, [self.b.bitcast(pointer, PTR), I32(to_write), I32(2), I32(1)])

    def halve(self, x, join):
        """The lanes of x joined, the upper half with the lower one until one is left: a fixed order."""
        size = LANES
        while size > 1:
            size //= 2
            halves = (
                ir.Constant(ir.VectorType(I32, size), list(range(first, first + size))) for first in (0, size)
            )
            x = join(*(self.b.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), half) for half in halves))
        return self.b.extract_element(x, ir.Constant(I32, 0))

    def larger(self, x, y):
        """The larger of two numbers or vectors, as x86's one instruction: x where either is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", y, x), y, x)

    def exp(self, x):
        """exp of a vector to 1.5 units in the last place; below -87.3 it is 0, above 88.7 infinite, NaN
        stays.
        """
        b = self.b
        capped = b.select(b.fcmp_unordered("<", x, constant(-87.5)), constant(-87.5), x)
        capped = b.select(b.fcmp_ordered("<", x, constant(-87.5)), capped, x)
        capped = b.select(b.fcmp_ordered(">", capped, constant(89.0)), constant(89.0), capped)
        y, bits = self.power(capped)
        half = b.ashr(bits, whole_number(1))  # 2^n in two steps: n may be 128
        for part in (half, b.sub(bits, half)):
            y = b.fmul(y, b.bitcast(b.shl(b.add(part, whole_number(127)), whole_number(23)), VEC))
        return b.select(b.fcmp_ordered("<", x, constant(-87.3)), constant(0.0), y)

    def exp_of_less(self, x):
        """The same for numbers that are not above 80: what is out of range ends as 0 or NaN by itself, and
        one step makes 2^n.
        """
        if LANES < 8:
            y, bits = self.power(x, exact=False)
            y = self.b.fmul(
                y, self.b.bitcast(self.b.shl(self.b.add(bits, whole_number(127)), whole_number(23)), VEC)
            )
        else:
            y = self.power_of_lane(x)
        return self.b.select(self.b.fcmp_ordered("<", x, constant(-87.3)), constant(0.0), y)

    def power_of_lane(self, x):
        """exp(x) as 2^(n / LANES) exp(r), |r| <= ln(2) / (2 LANES): the first from a table of LANES numbers,
        one in each lane, with n times a LANEth of an exponent's unit added to its bits; exp(r) - 1 by r times
        a polynomial of degree 2, 4e-8 off with 8 lanes and 2e-9 with 16.
        """
        places = 24 - LANES.bit_length()
        powers = np.exp2(np.arange(LANES) / LANES).astype(np.float32).view(np.int32)
        table = ir.Constant(IVEC, [int(bits) - (lane << places) for lane, bits in enumerate(powers)])
        big = constant(1.5 * 2**23)
        shifted = self.fma(x, constant(LANES / math.log(2)), big)
        r = self.fma(self.b.fsub(shifted, big), constant(-math.log(2) / LANES), x)
        n = self.b.bitcast(shifted, IVEC)
        name = "llvm.x86.avx2.permd" if LANES == 8 else "llvm.x86.avx512.permvar.si.512"
        pick = cgutils.get_or_insert_function(self.b.module, ir.FunctionType(IVEC, [IVEC, IVEC]), name)
        y = self.b.add(self.b.call(pick, [table, n]), self.b.shl(n, whole_number(places)))
        y, more = self.b.bitcast(y, VEC), constant(NEAR[-1])
        for c in NEAR[-2::-1]:
            more = self.fma(more, r, constant(c))
        return self.fma(self.b.fmul(y, r), more, y)

    def power(self, x, exact=True):
        """exp(r) and the whole number n of 2^n exp(r), |r| <= ln(2)/2.

        n by adding and taking off 1.5 2^23; exp(r) by the polynomial of degree 6 through the Chebyshev
        points, 3e-9 off. n ln(2) is `exact` in two parts; in one it is off by n 2e-9, less than a twentieth
        of what rounding x has cost.
        """
        big = constant(1.5 * 2**23)
        shifted = self.fma(x, constant(1 / math.log(2)), big)
        n = self.b.fsub(shifted, big)
        if exact:
            r = self.fma(n, constant(-0.693359375), x)  # 355/512: few bits, so n times it is exact
            r = self.fma(n, constant(0.693359375 - math.log(2)), r)
        else:
            r = self.fma(n, constant(-math.log(2)), x)
        y = constant(EXP[-1])
        for c in EXP[-2::-1]:
            y = self.fma(y, r, constant(c))
        return y, self.b.sub(self.b.bitcast(shifted, IVEC), whole_number(0x4B400000))


def one_at_a_time(module):
    """Metadata of a loop that LLVM does not unroll, which gains nothing here and takes long."""
    unrolled = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    found = module.add_metadata([unrolled])
    found.operands = (found, unrolled)  # a loop's metadata begins with itself
    return found


def loop(emit: Emit, count, step, body, *carried):
    """body(at, *carried) -> carried, for at = 0, step, ... below count. Returns what is carried out."""
    b = emit.b
    start, head, inside, after = b.block, *(b.append_basic_block(name) for name in ("head", "loop", "after"))
    b.branch(head)
    b.position_at_end(head)
    at, *state = phis = [b.phi(kind) for kind in (I64, *(c.type for c in carried))]
    for phi, c in zip(phis, (ir.Constant(I64, 0), *carried), strict=True):
        phi.add_incoming(c, start)
    b.cbranch(b.icmp_signed("<", at, count), inside, after)
    b.position_at_end(inside)
    new = body(at, *state)
    for phi, c in zip(phis, (b.add(at, ir.Constant(I64, step)), *new), strict=True):
        phi.add_incoming(c, b.block)
    b.branch(head).set_metadata("llvm.loop", one_at_a_time(b.module))
    b.position_at_end(after)
    return state


def each(emit: Emit, n, body, *carried):
    """body(offset, mask or None, *carried) -> carried, over n elements in vectors, the last one masked.
    Returns what is carried out.
    """
    b = emit.b
    whole_part = b.and_(n, ir.Constant(I64, -LANES))
    state = loop(emit, whole_part, LANES, lambda k, *state: body(k, None, *state), *carried)
    after, tail, end = b.block, b.append_basic_block("tail"), b.append_basic_block("end")
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


def intrinsic_of(result, kinds, body):
    """What an intrinsic returns: its signature, and the code that `body`, given an Emit, writes; body
    returns the result's value or None.
    """

    def codegen(context, builder, sig, args):
        out = body(Emit(context, builder, sig, args))
        return context.get_dummy_value() if out is None else out

    return result(*kinds), codegen
