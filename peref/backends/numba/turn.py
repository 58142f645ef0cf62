"""Pairs of channels turned, of CHUNK tokens of all heads at a time (rows.py), in one pass: x [B,H,T,D] is
read where it lies and y [B,T,H,D] written.

Halves with contiguous channels go by vectors. Bound: memory; what is too large to stay in the cache is
written past it.
"""

from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, flag, i8, reads, void, writes
from peref.backends.numba.emit import constant, each, intrinsic_of
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import ROW_CHUNK, row_chunks
from peref.backends.numba.threads import in_parallel

LARGE = 1 << 22  # numbers of an array that will be out of the cache before somebody reads it


def turn_units(x, y, cos, sin, past_cache):
    def body(e):
        _, x_at, _, y_at, _, _, at, n = e.args

        def step(k, mask):
            a, b = e.b.add(x_at, k), e.b.add(y_at, k)
            places = e.at(0, a), e.at(0, e.b.add(a, n)), e.at(4, e.b.add(at, k)), e.at(5, e.b.add(at, k))
            one, two, c, s = (
                e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in places
            )
            first = e.b.fsub(e.b.fmul(one, c), e.b.fmul(two, s))
            second = e.b.fadd(e.b.fmul(one, s), e.b.fmul(two, c))
            for out, p in ((first, e.at(2, b)), (second, e.at(2, e.b.add(b, n)))):
                if mask is None:
                    e.store(out, p, past_cache)
                else:
                    e.store_some(out, p, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (x, i8, y, i8, cos, sin, i8, i8), body)


@intrinsic
def turn_halves(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """y_a = x_a cos - x_b sin, y_b = x_a sin + x_b cos for n pairs: b stands n after a in x and y, cos and
    sin begin at `at`.
    """
    return turn_units(x, y, cos, sin, past_cache=False)


@intrinsic
def turn_halves_past_cache(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """The same, written straight to memory, which is not read first. y begins at a multiple of 16 bytes,
    so does y_at; `written` must follow.
    """
    return turn_units(x, y, cos, sin, past_cache=True)


@intrinsic
def written(typingctx):
    """What was written past the cache is there for all threads."""

    def body(e):
        e.b.fence("seq_cst")

    return intrinsic_of(void, (), body)


@njit(**INNER)
def turn_chunk(unit, y, x, cos, sin, half, past_cache):
    _, H, T, D = x.shape
    R2 = cos.shape[2]
    by_vectors = half and x.strides[3] == 4
    b, first = unit // row_chunks(T), unit % row_chunks(T) * ROW_CHUNK
    c = min(b, len(cos) - 1)
    for t in range(first, min(T, first + ROW_CHUNK)):  # heads of a token often lie beside each other
        for h in range(H):
            to, at = ((b * T + t) * H + h) * D, (c * T + t) * R2
            here = b * (x.strides[0] // 4) + h * (x.strides[1] // 4) + t * (x.strides[2] // 4)
            if by_vectors and past_cache:
                turn_halves_past_cache(x, here, y, to, cos, sin, at, R2)
            elif by_vectors:
                turn_halves(x, here, y, to, cos, sin, at, R2)
            else:
                for n in range(R2):
                    one, two = (n, n + R2) if half else (2 * n, 2 * n + 1)
                    u, v = x[b, h, t, one], x[b, h, t, two]
                    y[b, t, h, one] = u * cos[c, t, n] - v * sin[c, t, n]
                    y[b, t, h, two] = u * sin[c, t, n] + v * cos[c, t, n]
            for d in range(2 * R2, D):
                y[b, t, h, d] = x[b, h, t, d]
    if past_cache:
        written()


@kernel(writes(4), reads(4), c_reads(3), c_reads(3), flag)
def turn(y, x, cos, sin, half):
    """Pairs of channels of x [B,H,T,D] turned into y [B,T,H,D]; cos and sin [1 or B,T,R/2] hold the gain too.

    half says which channels pair up. In one pass; halves with contiguous channels go by vectors, and past
    the cache where y would not stay in it.
    """
    past_cache = y.size > LARGE and x.shape[3] % 4 == 0 and cos.shape[2] % 4 == 0 and y.ctypes.data % 16 == 0
    in_parallel(turn_chunk, len(x) * row_chunks(x.shape[2]), (y, x, cos, sin, half, past_cache))
