"""The delta rule with a decay for each channel: formula and names as in ops/delta.py; `u` is what a token
puts in, v - S'' a. a is [B,H,T,K], or [B,H,T,0] where nothing is taken out. With one decay for each head see
delta_chunks.py.

A unit is one sequence and head and walks over its tokens one by one, as in wkv.py, whose CHUNK it keeps. The
state lies transposed, [V,K], in whole vectors, zeros beyond V and K: LANES rows are taken at once, so that
what a token has for each channel is read once for all of them, and their sums over channels are folded
together. What a token adds to its own y is (k r) u, apart from the state before: of a token that stands alone
y then has the direction of u but for one rounding, also where k r is next to 0, and a norm of y leaves that.

Bound: the multiplier, 4 K V multiply-adds a token forward and 12 K V backward (with the states made again),
less where nothing is taken out; from K V of about 4,096 on the second cache.
"""

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, i8, reads, void, writes
from peref.backends.numba.blocks import hand_back, padded
from peref.backends.numba.emit import I64, constant, intrinsic_of, loop
from peref.backends.numba.few import folded
from peref.backends.numba.host import LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import exps, follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot
from peref.backends.numba.wkv import WKV_CHUNK


def in_rows(e, y, of_token, t, rows, n, body):
    """y += for each row j the sum over channels of what body(offset in an array [rows,n], j, what token t
    has of the arrays `of_token`) gives. y and these are numbers of arguments, with a row for each token.
    """
    B = e.b
    first = B.mul(t, n)

    def block(j):
        row_of = [B.add(j, ir.Constant(I64, m)) for m in range(LANES)]
        starts = [B.mul(m, n) for m in row_of]

        def step(k, *sums):
            given = [e.load(e.at(x, B.add(first, k))) for x in of_token]
            each = zip(starts, row_of, sums, strict=True)
            return [body(B.add(start, k), m, *given, total) for start, m, total in each]

        (found,) = folded(e, loop(e, n, LANES, step, *[constant(0)] * LANES))
        to = e.at(y, B.add(B.mul(t, rows), j))
        e.store(B.fadd(e.load(to), found), to)
        return []

    loop(e, rows, LANES, block)


@intrinsic
def add_product(typingctx, y, s, x, t, rows, n):
    """y += s x of token t, s [rows,n]."""

    def body(e):
        in_rows(e, 0, [2], *e.args[3:], lambda at, j, x, total: e.fma(e.load(e.at(1, at)), x, total))

    return intrinsic_of(void, (y, s, x, i8, i8, i8), body)


@intrinsic
def advance(typingctx, s, u, y, w, k, r, t, rows, n):
    """y += s diag(w) r of token t, then s = s diag(w) + u k', s [rows,n]."""

    def body(e):
        B, (t, rows, n) = e.b, e.args[6:]
        first = B.mul(t, rows)

        def step(at, j, w, k, r, total):
            put, place = e.splat(B.load(e.at(1, B.add(first, j)))), e.at(0, at)
            left = B.fmul(w, e.load(place))
            e.store(e.fma(put, k, left), place)
            return e.fma(left, r, total)

        in_rows(e, 2, [3, 4, 5], t, rows, n, step)

    return intrinsic_of(void, (s, u, y, w, k, r, i8, i8, i8), body)


@intrinsic
def remake(typingctx, s, u, w, k, t, rows, n):
    """State t + 1 of s from state t, as advance makes it."""

    def body(e):
        B, (t, rows, n) = e.b, e.args[4:]
        size, of_row, of_channel = B.mul(rows, n), B.mul(t, rows), B.mul(t, n)
        before = B.mul(t, size)
        after = B.add(before, size)

        def channels(i):
            w, k = (e.load(e.at(x, B.add(of_channel, i))) for x in (2, 3))

            def step(j):
                at = B.add(B.mul(j, n), i)
                put = e.splat(B.load(e.at(1, B.add(of_row, j))))
                found = e.fma(put, k, B.fmul(w, e.load(e.at(0, B.add(before, at)))))
                e.store(found, e.at(0, B.add(after, at)))
                return []

            loop(e, rows, 1, step)
            return []

        loop(e, n, LANES, channels)

    return intrinsic_of(void, (s, u, w, k, i8, i8, i8), body)


@intrinsic
def walk_back(typingctx, d, x, dr, dk, da, dg, dy, u, du, r, w, k, a, removes, t, rows, n):
    """Through token t, from the gradient d of the state after it to that of state t of x, with du known."""

    def body(e):
        B, (removes, t, rows, n) = e.b, e.args[13:]
        of_x, of_row, of_channel = B.mul(t, B.mul(rows, n)), B.mul(t, rows), B.mul(t, n)

        def channels(i):
            of_token = B.add(of_channel, i)
            r, w, k, a = (e.load(e.at(x, of_token)) for x in (9, 10, 11, 12))
            less = B.fneg(a)

            def step(j, of_r, of_k, of_g, of_a=None):
                at, own = B.add(B.mul(j, n), i), B.add(of_row, j)
                dy, u, du = (e.splat(B.load(e.at(x, own))) for x in (6, 7, 8))
                left = B.fmul(w, e.load(e.at(1, B.add(of_x, at))))
                d = e.fma(r, dy, e.load(e.at(0, at)))
                of_r, of_k = e.fma(e.fma(k, u, left), dy, of_r), e.fma(d, u, of_k)
                d = d if of_a is None else e.fma(less, du, d)
                e.store(B.fmul(w, d), e.at(0, at))
                found = of_r, of_k, e.fma(left, d, of_g)
                return found if of_a is None else (*found, e.fma(left, du, of_a))

            def rows_of(count):
                found = loop(e, rows, 1, step, *[constant(0)] * count)
                for x, one in zip((2, 3, 5, 4), found, strict=False):
                    e.store(B.fneg(one) if x == 4 else one, e.at(x, of_token))

            with B.if_else(B.icmp_signed(">", removes, ir.Constant(I64, 0))) as (some, none):
                with some:
                    rows_of(4)
                with none:
                    rows_of(3)
            return []

        loop(e, n, LANES, channels)

    return intrinsic_of(void, (d, x, dr, dk, da, dg, dy, u, du, r, w, k, a, i8, i8, i8, i8), body)


@njit(**INNER)
def factors(g, b, h, begin, end, w):
    """w = exp(g)."""
    padded(g[b, h], begin, w)
    for t in range(end - begin):
        exps(w, w, t * w.shape[1], g.shape[3])


@njit(**INNER)
def delta_head(unit, y, puts, states, r, g, k, v, a, runs):
    T, H, rows, n = y.shape[1], y.shape[2], states.shape[3], states.shape[4]
    b, h = unit // H, unit % H
    S, line = states[b, h, 0].copy(), runs[b]
    R, W, K, A = np.zeros((4, WKV_CHUNK, n), np.float32)
    U, Y = np.zeros((2, WKV_CHUNK, rows), np.float32)
    for chunk in range(states.shape[2] - 1):
        begin, end = chunk * WKV_CHUNK, min(T, (chunk + 1) * WKV_CHUNK)
        padded(r[b, h], begin, R)
        padded(k[b, h], begin, K)
        padded(a[b, h], begin, A)
        padded(v[b, h], begin, U)
        factors(g, b, h, begin, end, W)
        Y[:] = 0
        for t in range(begin, end):
            m = t - begin
            if not follows(line, t):
                S[:] = 0
            if line[t] >= 0:
                if a.shape[3]:
                    for i in range(n):
                        A[m, i] *= -W[m, i]
                    add_product(U, S, A, m, rows, n)
                own = dot(R, m * n, K, m * n, n)
                for j in range(rows):
                    Y[m, j] = own * U[m, j]
                advance(S, U, Y, W, K, R, m, rows, n)
        hand_back(Y, y, b, h, begin, end)
        hand_back(U, puts, b, h, begin, end)
        states[b, h, chunk + 1] = S


@kernel(writes(4), writes(4), writes(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs)
def delta(y, puts, states, r, g, k, v, a, runs):
    """y and u [B,T,H,V]; states as in wkv6, but [V',K']: transposed, whole vectors, zeros beyond V and K."""
    in_parallel(delta_head, y.shape[0] * y.shape[2], (y, puts, states, r, g, k, v, a, runs))


@njit(**INNER)
def delta_backward_head(unit, dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs):
    T, H, rows, n = dv.shape[1], dv.shape[2], states.shape[3], states.shape[4]
    b, h = unit // H, unit % H
    S, D, line = np.empty((WKV_CHUNK, rows, n), np.float32), ds[b, h], runs[b]
    R, W, K, A = np.zeros((4, WKV_CHUNK, n), np.float32)
    U, dY, dU = np.zeros((3, WKV_CHUNK, rows), np.float32)
    dR, dW, dK, dA = found = np.zeros((4, WKV_CHUNK, n), np.float32)
    for chunk in range(states.shape[2] - 2, -1, -1):
        begin, end = chunk * WKV_CHUNK, min(T, (chunk + 1) * WKV_CHUNK)
        padded(r[b, h], begin, R)
        padded(k[b, h], begin, K)
        padded(a[b, h], begin, A)
        padded(dy[b, h], begin, dY)
        padded(puts[b, :, h], begin, U)
        factors(g, b, h, begin, end, W)
        S[0] = states[b, h, chunk]
        for t in range(begin, end):
            m = t - begin
            if not follows(line, t):
                S[m] = 0
            if line[t] >= 0 and t + 1 < end:
                remake(S, U, W, K, m, rows, n)
        found[:] = 0
        dU[:] = 0
        for t in range(end - 1, begin - 1, -1):
            m = t - begin
            if line[t] >= 0:
                own = dot(R, m * n, K, m * n, n)
                for j in range(rows):
                    dU[m, j] = own * dY[m, j]
                add_product(dU, D, K, m, rows, n)
                walk_back(D, S, dR, dK, dA, dW, dY, U, dU, R, W, K, A, a.shape[3], m, rows, n)
            if not follows(line, t):
                D[:] = 0
        hand_back(dR, dr, b, h, begin, end)
        hand_back(dK, dk, b, h, begin, end)
        hand_back(dA, da, b, h, begin, end)
        hand_back(dU, dv, b, h, begin, end)
        hand_back(dW, dg, b, h, begin, end)


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), writes(4), writes(4)),
    *(reads(4), c_reads(4), c_reads(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs),
)
def delta_backward(dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs):
    """As wkv6_backward; dg and da are [B,T,H,...] of g and a, ds is like a state here."""
    in_parallel(
        delta_backward_head,
        dv.shape[0] * dv.shape[2],
        (dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs),
    )
