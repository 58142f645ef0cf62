"""The scan of Mamba: formula and names as in encodings/mix/mamba.py, units as recurrences.py says.

Forward keeps every SELECTIVE_CHUNK-th state, backward makes those between again. A unit has its channels in
rows of WIDTH, as whole vectors: `lines` are rows of one token, a state is [N,WIDTH]. Channels that are too
many are 0 there, with a factor of -1. Bound: the exponentials, one for each number of the state, twice in
backward and forward together.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numpy.polynomial.chebyshev import cheb2poly, chebinterpolate

from peref.backends.numba.activations import pointwise
from peref.backends.numba.arrays import c_reads, f4, flag, i8, void, writes
from peref.backends.numba.emit import I64, constant, intrinsic_of, loop
from peref.backends.numba.host import LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import WIDTH, blocks, exps, follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import copy

SELECTIVE_CHUNK = 16
VECTORS = range(0, WIDTH, LANES)  # of a row, a vector each
DT, X, Y, DX, DDT, SLOPE = range(6)  # of lines; dy is in Y
# log(1 + u) = 2 z (1 + w/3 + w^2/5 + ...), z = u / (2 + u), w = z^2, which is at most 1/9: the sum by the
# polynomial of degree 5 through the Chebyshev points in w, ascending, 1e-10 off
MIDDLE = 1 / 18
ATANH = cheb2poly(chebinterpolate(lambda r: np.arctanh(z := np.sqrt(MIDDLE * (1 + r))) / z, 5))


@intrinsic
def softplus(typingctx, x, y, at, n):
    """y = max(x, 0) + log(1 + exp(-|x|))."""

    def formula(e, x):
        b = e.b
        u = e.exp(b.fsub(constant(0), e.larger(x, b.fsub(constant(0), x))))
        z = b.fdiv(u, b.fadd(constant(2), u))
        r = e.fma(b.fmul(z, z), constant(1 / MIDDLE), constant(-1))
        total = constant(ATANH[-1])
        for c in ATANH[-2::-1]:
            total = e.fma(total, r, constant(c))
        return [e.fma(b.fadd(z, z), total, e.larger(x, constant(0)))]

    return pointwise([x], [y], formula)


def vectors_of(e, k, at):
    """Pointers to the vectors of a row of the array argument k that begins at element `at`."""
    return [e.at(k, e.b.add(at, ir.Constant(I64, part))) for part in VECTORS]


def line(e, k, number):
    """The vectors of a line."""
    return [e.load(p) for p in vectors_of(e, k, ir.Constant(I64, number * WIDTH))]


def into_line(e, found, k, number):
    for x, p in zip(found, vectors_of(e, k, ir.Constant(I64, number * WIDTH)), strict=True):
        e.store(x, p)


def spread(e, k, at):
    """One number of the array argument k in a vector."""
    return e.splat(e.b.load(e.at(k, at)))


@intrinsic
def step_forward(typingctx, new, new_at, z, z_at, h, h_at, A, gain, gain_row, lines, keep, b, c, at, N):
    """z = keep exp(step A), new = z h + gain b x, and line Y = the sum of c new over the numbers of a state.
    Rows of gain are gain_row apart; those of a token in b and c begin at element `at`.
    """

    def body(e):
        B, (_, new_at, _, z_at, _, h_at, _, _, gain_row, _, keep, _, _, at, N) = e.b, e.args
        step, x, keep = line(e, 9, DT), line(e, 9, X), e.splat(keep)

        def row(n, *sums):
            first = B.mul(n, I64(WIDTH))
            bn, cn = spread(e, 11, B.add(at, n)), spread(e, 12, B.add(at, n))
            rows = ((0, B.add(new_at, first)), (2, B.add(z_at, first)), (4, B.add(h_at, first)), (6, first))
            rows = (*rows, (7, B.mul(n, gain_row)))
            found = []
            for to, decays, before, a, g, s, u, total in zip(
                *(vectors_of(e, k, begin) for k, begin in rows), step, x, sums, strict=True
            ):
                decay = B.fmul(keep, e.exp_of_less(B.fmul(s, e.load(a))))
                after = e.fma(decay, e.load(before), B.fmul(bn, B.fmul(e.load(g), u)))
                e.store(decay, decays)
                e.store(after, to)
                found.append(e.fma(cn, after, total))
            return found

        into_line(e, loop(e, N, 1, row, *(constant(0) for _ in VECTORS)), 9, Y)

    kinds = (new, i8, z, i8, h, i8, A, gain, i8, lines, f4, b, c, i8, i8)
    return intrinsic_of(void, kinds, body)


@intrinsic
def step_backward(
    typingctx, d, dA, db, dc, sums_at, h, h_at, z, z_at, A, zoh, gain, gain_row, euler, lines, b, c, at, N
):
    """The derivative of `step_forward`. d is that of its new state, then that of the one before, which begins
    at element h_at of h, the new one behind it. Adds to dA, fills db and dc from element sums_at, and lines
    DX and DDT. zoh is 1/A, euler 0, where gain is (z - 1)/A; they are 0 and 1 where it is the step.
    """

    def body(e):
        B, (*_, at, N) = e.b, e.args
        _, _, _, _, sums_at, _, h_at, _, z_at, _, _, _, gain_row, euler = e.args[:14]
        step, x, dy = line(e, 14, DT), line(e, 14, X), line(e, 14, Y)
        new_at, euler = B.add(h_at, B.mul(N, I64(WIDTH))), e.splat(euler)

        def row(n, *sums):
            first, here, found = B.mul(n, I64(WIDTH)), B.add(at, n), []
            bn, cn, of_b, of_c = spread(e, 15, here), spread(e, 16, here), constant(0), constant(0)
            rows = ((0, first), (1, first), (5, B.add(h_at, first)), (5, B.add(new_at, first)))
            rows = (*rows, (7, B.add(z_at, first)), (9, first), (10, first), (11, B.mul(n, gain_row)))
            for d, da, old, new, decay, a, q, g, s, u, out, dx, dstep in zip(
                *(vectors_of(e, k, begin) for k, begin in rows),
                step,
                x,
                dy,
                sums[::2],
                sums[1::2],
                strict=True,
            ):
                g, a = e.load(g), e.load(a)
                dh = e.fma(cn, out, e.load(d))
                of_c = e.fma(out, e.load(new), of_c)
                gained, back = B.fmul(dh, g), B.fmul(dh, e.load(decay))
                of_b = e.fma(gained, u, of_b)
                e.store(back, d)
                dgain = B.fmul(bn, B.fmul(dh, u))
                of_zoh = B.fmul(dgain, e.load(q))
                dz = e.fma(of_zoh, e.fma(g, a, constant(1)), B.fmul(back, e.load(old)))
                e.store(e.fma(dz, s, B.fsub(e.load(da), B.fmul(of_zoh, g))), da)
                found += [e.fma(bn, gained, dx), e.fma(dz, a, e.fma(dgain, euler, dstep))]
            for k, total in ((2, of_b), (3, of_c)):
                B.store(e.halve(total, B.fadd), e.at(k, B.add(sums_at, n)))
            return found

        sums = loop(e, N, 1, row, *(constant(0) for _ in VECTORS for _ in range(2)))
        into_line(e, sums[::2], 14, DX)
        into_line(e, sums[1::2], 14, DDT)

    kinds = (d, dA, db, dc, i8, h, i8, z, i8, A, zoh, gain, i8, f4, lines, b, c, i8, i8)
    return intrinsic_of(void, kinds, body)


@njit(**INNER)
def widened(x, first, W, other):
    """Channels first .. first + W of x [N,E], then `other`: [N,WIDTH]."""
    y = np.empty((len(x), WIDTH), np.float32)
    for n in range(len(x)):
        for j in range(WIDTH):
            y[n, j] = x[n, first + j] if j < W else other
    return y


@njit(**INNER)
def put_back(x, first, W, y):
    """Back into channels first .. first + W of x [N,E]."""
    for n in range(len(x)):
        for j in range(W):
            x[n, first + j] = y[n, j]


@njit(**INNER)
def of_token(lines, G, A, step, x, at, W, zoh):
    """Into lines what a token has from element `at` of step and x, and into G what b x is multiplied with:
    [N,WIDTH], or one row for all. Returns how far apart its rows are.
    """
    copy(lines, DT * WIDTH, step, at, W)
    copy(lines, X * WIDTH, x, at, W)
    if not zoh:
        copy(G, 0, lines, DT * WIDTH, WIDTH)
        return 0
    for n in range(len(A)):
        for j in range(WIDTH):
            G[n, j] = math.expm1(lines[DT, j] * A[n, j]) / A[n, j]
    return WIDTH


scan_reads = (c_reads(3), c_reads(3), c_reads(2), c_reads(3), c_reads(3), c_reads(1), longs, flag)


@njit(**INNER)
def selective_scan_channels(unit, y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    (_, T, E), N = y.shape, len(A)
    s, first = unit // blocks(E), unit % blocks(E) * WIDTH
    W = min(E - first, WIDTH)
    a, h, lines = (
        widened(A, first, W, np.float32(-1)),
        widened(starts[s, 0], first, W, np.float32(0)),
        np.zeros((6, WIDTH), np.float32),
    )
    Z, G = np.empty_like(h), np.empty_like(h)
    for t in range(T):
        at = (s * T + t) * E + first
        softplus(delta, step, at, W)
        lines[Y] = 0
        if runs[s, t] < 0:
            h[:] = 0
        else:
            apart = of_token(lines, G, a, step, x, at, W, zoh)
            keep = np.float32(follows(runs[s], t))
            step_forward(h, 0, Z, 0, h, 0, a, G, apart, lines, keep, b, c, (s * T + t) * N, N)
        for j in range(W):
            y[s, t, first + j] = lines[Y, j] + skip[first + j] * x[s, t, first + j]
        if (t + 1) % SELECTIVE_CHUNK == 0 or t == T - 1:
            put_back(starts[s, t // SELECTIVE_CHUNK + 1], first, W, h)


@kernel(writes(3), writes(3), writes(4), *scan_reads)
def selective_scan(y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """y, step [B,T,E]; starts [B,chunks+1,N,E], the first as given, then the state after each chunk; A
    [N,E]; x is 0 at padding.
    """
    in_parallel(
        selective_scan_channels,
        len(y) * blocks(y.shape[2]),
        (y, step, starts, x, delta, A, b, c, skip, runs, zoh),
    )


@njit(**INNER)
def selective_scan_backward_channels(
    unit, dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh
):
    (B, T, E), N = dy.shape, len(A)
    s, part = unit // blocks(E), unit % blocks(E)
    first, size = part * WIDTH, N * WIDTH
    W = min(E - first, WIDTH)
    a, d, lines = (
        widened(A, first, W, np.float32(-1)),
        widened(dh[s], first, W, np.float32(0)),
        np.zeros((6, WIDTH), np.float32),
    )
    H, Z = (
        np.empty((SELECTIVE_CHUNK + 1, N, WIDTH), np.float32),
        np.empty((SELECTIVE_CHUNK, N, WIDTH), np.float32),
    )
    G, da, of_zoh = np.empty_like(a), np.zeros_like(a), np.zeros_like(a)
    for n in range(N if zoh else 0):
        for j in range(WIDTH):
            of_zoh[n, j] = np.float32(1) / a[n, j]
    for chunk in range((T - 1) // SELECTIVE_CHUNK, -1, -1):
        begin, end = chunk * SELECTIVE_CHUNK, min(T, (chunk + 1) * SELECTIVE_CHUNK)
        copy(H, 0, widened(starts[s, chunk], first, W, np.float32(0)), 0, size)
        for t in range(begin, end):
            m, at, token = t - begin, (s * T + t) * E + first, (s * T + t) * N
            if runs[s, t] < 0:
                H[m + 1] = 0
                continue
            apart = of_token(lines, G, a, step, x, at, W, zoh)
            keep = np.float32(follows(runs[s], t))
            step_forward(
                H, (m + 1) * size, Z, m * size, H, m * size, a, G, apart, lines, keep, b, c, token, N
            )
        for t in range(end - 1, begin - 1, -1):
            m, at, token = t - begin, (s * T + t) * E + first, (s * T + t) * N
            if runs[s, t] < 0:
                d[:] = 0
                continue
            copy(lines, Y * WIDTH, dy, at, W)
            apart = of_token(lines, G, a, step, x, at, W, zoh)
            sums, euler = part * B * T * N + token, np.float32(not zoh)
            step_backward(
                d,
                da,
                db,
                dc,
                sums,
                H,
                m * size,
                Z,
                m * size,
                a,
                of_zoh,
                G,
                apart,
                euler,
                lines,
                b,
                c,
                token,
                N,
            )
            for j in range(W):
                lines[SLOPE, j] = delta[s, t, first + j] - step[s, t, first + j]
            exps(lines, lines, SLOPE * WIDTH, W)  # the derivative of softplus
            for j in range(W):
                dx[s, t, first + j] = lines[DX, j] + skip[first + j] * lines[Y, j]
                ddelta[s, t, first + j] = lines[DDT, j] * lines[SLOPE, j]
    put_back(dA[s], first, W, da)
    put_back(dh[s], first, W, d)


@kernel(
    writes(3),
    writes(3),
    writes(4),
    writes(4),
    writes(3),
    writes(3),
    c_reads(3),
    c_reads(3),
    c_reads(4),
    *scan_reads,
)
def selective_scan_backward(dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """dx, ddelta [B,T,E]; db, dc [blocks,B,T,N]; dA [B,N,E]: zeros. dh
    [B,N,E]: of the last state, then of that handed in.
    """
    in_parallel(
        selective_scan_backward_channels,
        len(dy) * blocks(dy.shape[2]),
        (dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh),
    )
