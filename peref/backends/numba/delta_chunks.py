"""The delta rule with one decay for each head, or none, a chunk of DELTA_CHUNK tokens at a time: formula and
names as in ops/delta.py, with A = -a.

    P = (R K') * D    N = (A K') * D    U = V + (into A) S + N U    Y = (into R) S + P U
    S <- over S + (out_of K)' U

D[t,i], i <= t, is what is left at token t of what token i wrote, into[t] of the state before the chunk,
out_of[i] at its end of token i, over of the state at its end. They are products of the decays of single
tokens, 0 across documents, so that nothing overflows or is subtracted, however low g is. P and N are used
below the diagonal, P on it too: U and Y are made row by row, so that no token sees a later one, be it NaN.

The gradient of g, again without a difference: of all pairs of a writer, or the state before, and a reader,
or the state after, that have the token's decay between them, the gradient of their product times it.

A unit is one sequence and head. State and arrays of tokens are padded with zeros to whole panels. Bound: the
multiplier, 2 K V + (K + V) DELTA_CHUNK multiply-adds a token forward and about twice that backward, half as
many again with `a`; with K and V of 32, reading and writing memory too.
"""

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, i8, reads, void, writes
from peref.backends.numba.blocks import across_lanes, by_rows, hand_back, matmul, padded, product, rounded
from peref.backends.numba.emit import I64, intrinsic_of, loop
from peref.backends.numba.host import COLUMNS, LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import exps, follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, scale

DELTA_CHUNK = 32


@intrinsic
def add_weighted(typingctx, c, c_at, a, a_at, a_step, b, b_at, b_step, count):
    """COLUMNS numbers of c += the sum of `count` rows of b, each times its number of a, in this order."""

    def body(e):
        B, (_, c_at, _, a_at, a_step, _, b_at, b_step, count) = e.b, e.args
        pair = lambda p: (p, B.gep(p, [ir.Constant(I64, LANES)]))
        to = pair(e.at(0, c_at))

        def step(n, *sums):
            by = e.splat(B.load(e.at(2, B.add(a_at, B.mul(n, a_step)))))
            row = pair(e.at(5, B.add(b_at, B.mul(n, b_step))))
            return [e.fma(by, e.load(p), total) for p, total in zip(row, sums, strict=True)]

        for p, total in zip(to, loop(e, count, 1, step, *map(e.load, to)), strict=True):
            e.store(total, p)

    return intrinsic_of(void, (c, i8, a, i8, i8, b, i8, i8, i8), body)


@njit(**INNER)
def add_earlier(c, p, x, rows, own):
    """c += p x, row after row, of p what is below the diagonal, and on it if own is 1; x may be c."""
    wide = c.shape[1]
    for j in range(0, wide, COLUMNS):
        for t in range(1 - own, rows):
            add_weighted(c, t * wide + j, p, t * DELTA_CHUNK, 1, x, j, wide, t + own)


@njit(**INNER)
def add_later(c, p, rows):
    """c += p' c, from the last row to the first, of p what is below the diagonal."""
    wide, last = c.shape[1], rows - 1
    for j in range(0, wide, COLUMNS):
        for t in range(last - 1, -1, -1):
            at, step = last * DELTA_CHUNK + t, -DELTA_CHUNK
            add_weighted(c, t * wide + j, p, at, step, c, last * wide + j, -wide, last - t)


@njit(**INNER)
def add_pairs(c, p, b, transposed):
    """c += p b, or p' b, for p of zeros above the diagonal, of which a tile of 8 rows skips what it can."""
    wide = c.shape[1]
    for m in range(0, DELTA_CHUNK, 8):
        at, of, K = (m, m, DELTA_CHUNK - m) if transposed else (0, 0, m + 8)
        product(c, m * wide, p, m * DELTA_CHUNK + at, transposed, 8, b, of * wide, K, True)


@njit(**INNER)
def chunk_rows(x, line, begin, out):
    """Rows begin.. of x [T,N] into out, zeros beyond and at padding."""
    padded(x, begin, out)
    for t in range(begin, min(len(line), begin + DELTA_CHUNK)):
        if line[t] < 0:
            out[t - begin] = 0


@njit(**INNER)
def decays_of(g, line, begin, end, D, into, out_of):
    """D, into and out_of of the tokens of a chunk; g [T,1] or [T,0]."""
    rows, left = end - begin, np.float32(1)
    D[:] = 0
    for t in range(rows):
        into[t] = g[begin + t, 0] if g.shape[1] else 0
    exps(into, into, 0, rows)
    for t in range(rows):
        w = into[t] if follows(line, begin + t) else np.float32(0)
        for i in range(t):
            D[t, i] = w * D[t - 1, i]
        D[t, t] = 1
        left *= w
        into[t] = left
    into[rows:] = 0
    out_of[:] = D[rows - 1]


@njit(**INNER)
def chunks_of_head(unit, y, puts, states, r, g, k, v, a, runs):
    T, H, n, wide = y.shape[1], y.shape[2], states.shape[3], states.shape[4]
    b, h = unit // H, unit % H
    line, removes = runs[b], a.shape[3] > 0
    R, K, A = np.empty((3, DELTA_CHUNK, n), np.float32)
    U, Y = np.empty((2, DELTA_CHUNK, wide), np.float32)
    P, N, D = np.empty((3, DELTA_CHUNK, DELTA_CHUNK), np.float32)
    (into, out_of), KT = np.empty((2, DELTA_CHUNK), np.float32), np.empty((n, DELTA_CHUNK), np.float32)
    for chunk in range(states.shape[2] - 1):
        begin, end = chunk * DELTA_CHUNK, min(T, (chunk + 1) * DELTA_CHUNK)
        rows = end - begin
        whole, before, after = rounded(rows, 8), states[b, h, chunk], states[b, h, chunk + 1]
        decays_of(g[b, h], line, begin, end, D, into, out_of)
        chunk_rows(r[b, h], line, begin, R)
        chunk_rows(k[b, h], line, begin, K)
        chunk_rows(v[b, h], line, begin, U)
        across_lanes(KT, K)
        matmul(P[:whole], R[:whole], KT, False, False)
        P *= D
        if removes:
            chunk_rows(a[b, h], line, begin, A)
            A *= np.float32(-1)
            matmul(N[:whole], A[:whole], KT, False, False)
            N *= D
            by_rows(A, into, A)
            matmul(U[:whole], A[:whole], before, False, True)
            add_earlier(U, N, U, rows, 0)
            hand_back(U, puts, b, h, begin, end)
        by_rows(R, into, R)
        matmul(Y[:whole], R[:whole], before, False, False)
        add_earlier(Y, P, U, rows, 1)
        by_rows(K, out_of, K)
        scale(after, 0, before, 0, into[rows - 1], n * wide)
        matmul(after, K[:whole], U[:whole], True, True)
        hand_back(Y, y, b, h, begin, end)


@kernel(writes(4), writes(4), writes(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs)
def chunked_delta(y, puts, states, r, g, k, v, a, runs):
    """y and u [B,T,H,V]; states [B,H,chunks+1,K',V'], the first given, in whole panels, zeros beyond K and V;
    g is [B,H,T,1], or [B,H,T,0] where nothing decays, a [B,H,T,K], or [B,H,T,0] where nothing is taken out.
    """
    in_parallel(chunks_of_head, y.shape[0] * y.shape[2], (y, puts, states, r, g, k, v, a, runs))


@njit(**INNER)
def chunks_of_head_backward(unit, dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs):
    T, H, n, wide = dv.shape[1], dv.shape[2], states.shape[3], states.shape[4]
    b, h = unit // H, unit % H
    dS, line, removes = ds[b, h], runs[b], a.shape[3] > 0
    R, K, A, far, dR, dK, dA = np.zeros((7, DELTA_CHUNK, n), np.float32)
    U, dY, dU = np.empty((3, DELTA_CHUNK, wide), np.float32)
    P, N, D, dP, dN = np.empty((5, DELTA_CHUNK, DELTA_CHUNK), np.float32)
    KT, UT = np.empty((n, DELTA_CHUNK), np.float32), np.empty((wide, DELTA_CHUNK), np.float32)
    ST = np.empty((wide, n), np.float32)
    into, out_of, reads_of, ones = np.ones((4, DELTA_CHUNK), np.float32)
    for chunk in range(states.shape[2] - 2, -1, -1):
        begin, end = chunk * DELTA_CHUNK, min(T, (chunk + 1) * DELTA_CHUNK)
        rows, S = end - begin, states[b, h, chunk]
        decays_of(g[b, h], line, begin, end, D, into, out_of)
        chunk_rows(r[b, h], line, begin, R)
        chunk_rows(k[b, h], line, begin, K)
        chunk_rows(dy[b, h], line, begin, dY)
        chunk_rows(puts[b, :, h], line, begin, U)
        across_lanes(KT, K)
        matmul(P, R, KT, False, False)
        P *= D
        by_rows(K, out_of, far)
        matmul(dU, far, dS, False, False)
        add_pairs(dU, P, dY, True)
        if removes:
            chunk_rows(a[b, h], line, begin, A)
            A *= np.float32(-1)
            matmul(N, A, KT, False, False)
            N *= D
            add_later(dU, N, rows)
        hand_back(dU, dv, b, h, begin, end)
        passed = into[rows - 1] * dot(S, 0, dS, 0, n * wide)
        across_lanes(UT, U)
        matmul(dP, dY, UT, False, False)
        across_lanes(ST, dS)
        matmul(dK, U, ST, False, False)
        across_lanes(ST, S)
        matmul(dR, dY, ST, False, False)
        scale(dS, 0, dS, 0, into[rows - 1], n * wide)
        by_rows(R, into, far)
        matmul(dS, far, dY, True, True)
        if removes:
            matmul(dN, dU, UT, False, False)
            matmul(dA, dU, ST, False, False)
            by_rows(A, into, far)
            matmul(dS, far, dU, True, True)
        by_rows(dR, into, dR)
        by_rows(dK, out_of, dK)
        by_rows(dA, into, dA)
        for t in range(rows):
            reads_of[t] = dot(R, t * n, dR, t * n, n) + dot(A, t * n, dA, t * n, n)
            out_of[t] = dot(K, t * n, dK, t * n, n)
        P *= dP
        dP *= D
        add_pairs(dR, dP, K, False)
        add_pairs(dK, dP, R, True)
        hand_back(dR, dr, b, h, begin, end)
        if removes:
            N *= dN
            P += N
            dN *= D
            for t in range(DELTA_CHUNK):
                dN[t, t] = 0
            add_pairs(dA, dN, K, False)
            add_pairs(dK, dN, A, True)
            dA *= np.float32(-1)
            hand_back(dA, da, b, h, begin, end)
        hand_back(dK, dk, b, h, begin, end)
        for t in range(rows - 1 if g.shape[3] else -1, -1, -1):
            passed += reads_of[t]
            for i in range(t):
                out_of[i] += P[t, i]
            dg[b, begin + t, h, 0] = passed + dot(out_of, 0, ones, 0, t)


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), writes(4), writes(4)),
    *(reads(4), reads(4), c_reads(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs),
)
def chunked_delta_backward(dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs):
    """The gradients [B,T,H,...] of r, g, k, v and a; ds [B,H,K',V'] of the last state, then of the first."""
    in_parallel(
        chunks_of_head_backward,
        dv.shape[0] * dv.shape[2],
        (dr, dg, dk, dv, da, ds, dy, puts, states, r, g, k, v, a, runs),
    )
