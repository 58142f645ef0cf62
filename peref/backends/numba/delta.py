"""The delta rule with decay: formula and names as in ops/delta.py, units and states as wkv.py here says; `u`
is what a token puts in, v - S'' a. g is [B,H,T,K], [B,H,T,1], or [B,H,T,0] where nothing decays; a
[B,H,T,K], or [B,H,T,0] where nothing is taken out. Bound: the multiplier, 3 K V multiply-adds a token
forward, about three times that backward (with the states made again).
"""

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, f4, i8, reads, void, writes
from peref.backends.numba.emit import I64, VEC, constant, each, intrinsic_of
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.wkv import WKV_CHUNK, decay, row


@njit(**INNER)
def decays_at(g, w):
    """w [K] = exp(g), of each channel, of the head, or 1."""
    if len(g) == len(w):
        decay(g, w)
    elif len(g):
        decay(g, w[:1])
        w[1:] = w[0]
    else:
        w[:] = 1


@intrinsic
def write(typingctx, z, x, u, y, i, w, k, r, n):
    """Of row i, over n elements: z = w x + k u, y += r z; z may be x."""

    def body(e):
        B, (*_, i, w, k, r, n) = e.b, e.args
        w, k, r = e.splat(w), e.splat(k), e.splat(r)

        def step(at, mask):
            row_at = B.add(B.mul(i, n), at)
            places = e.at(1, row_at), e.at(2, at), e.at(3, at)
            x, u, y = (e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in places)
            z = e.fma(w, x, B.fmul(k, u))
            for found, to in ((z, e.at(0, row_at)), (e.fma(r, z, y), places[2])):
                e.store(found, to) if mask is None else e.store_some(found, to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (z, x, u, y, i8, f4, f4, f4, i8), body)


@intrinsic
def weighted_rows(typingctx, y, c, x, count, n):
    """y += the sum of c[i] times row i of x, over n elements, of which a row has as many."""

    def body(e):
        B, (*_, count, n) = e.b, e.args

        def step(k, mask):
            load = lambda p: e.load(p) if mask is None else e.load_some(p, mask, constant(0))
            to = e.at(0, k)
            old = load(to)
            start, loop, after = B.block, B.append_basic_block("row"), B.append_basic_block("rest")
            B.branch(loop)
            B.position_at_end(loop)
            i, total = B.phi(I64), B.phi(VEC)
            new = e.fma(e.splat(B.load(e.at(1, i))), load(e.at(2, B.add(k, B.mul(i, n)))), total)
            more = B.add(i, ir.Constant(I64, 1))
            for phi, first, later in ((i, ir.Constant(I64, 0), more), (total, old, new)):
                phi.add_incoming(first, start)
                phi.add_incoming(later, loop)
            B.cbranch(B.icmp_signed("<", more, count), loop, after)
            B.position_at_end(after)
            e.store(new, to) if mask is None else e.store_some(new, to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, c, x, i8, i8), body)


@intrinsic
def read_back(typingctx, d, x, u, dy, du, dr, dk, i, r, k, n):
    """Of row i, over n elements: d += r dy, du += k d, dr[i] = x dy, dk[i] = d u."""

    def body(e):
        B, (*_, i, r, k, n) = e.b, e.args
        r, k = e.splat(r), e.splat(k)

        def step(at, mask, of_r, of_k):
            row_at = B.add(B.mul(i, n), at)
            places = [e.at(0, row_at), e.at(1, row_at), *(e.at(j, at) for j in (2, 3, 4))]
            d, x, u, dy, du = (
                e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in places
            )
            d = e.fma(r, dy, d)
            for y, to in ((d, places[0]), (e.fma(k, d, du), places[4])):
                e.store(y, to) if mask is None else e.store_some(y, to, mask)
            return [e.fma(x, dy, of_r), e.fma(d, u, of_k)]

        for j, total in enumerate(each(e, n, step, constant(0), constant(0))):
            B.store(e.halve(total, B.fadd), e.at(5 + j, i))

    return intrinsic_of(void, (d, x, u, dy, du, dr, dk, i8, f4, f4, i8), body)


@intrinsic
def decay_back(typingctx, d, x, du, da, dg, i, a, w, n):
    """Of row i, over n elements: da[i] = -w x du, d -= a du, dg[i] = w x d, then d = w d."""

    def body(e):
        B, (*_, i, a, w, n) = e.b, e.args
        less, wide = e.splat(B.fneg(a)), e.splat(w)

        def step(at, mask, of_a, of_g):
            row_at = B.add(B.mul(i, n), at)
            places = e.at(0, row_at), e.at(1, row_at), e.at(2, at)
            d, x, du = (e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in places)
            d = e.fma(less, du, d)
            found = B.fmul(wide, d)
            e.store(found, places[0]) if mask is None else e.store_some(found, places[0], mask)
            return [e.fma(x, du, of_a), e.fma(x, d, of_g)]

        of_a, of_g = (e.halve(x, B.fadd) for x in each(e, n, step, constant(0), constant(0)))
        B.store(B.fmul(B.fneg(w), of_a), e.at(3, i))
        B.store(B.fmul(w, of_g), e.at(4, i))

    return intrinsic_of(void, (d, x, du, da, dg, i8, f4, f4, i8), body)


@njit(**INNER)
def advance_delta(S, r, w, k, v, a, out, u, y):
    """out = diag(w) S + k u', u [V] = v - (diag(w) S)' a, y [V] = out' r; out may be S, a becomes -w a."""
    V = len(u)
    row(v, u)
    y[:] = 0
    if len(a):
        for i in range(len(w)):
            a[i] *= -w[i]
        weighted_rows(u, a, S, len(a), V)
    for i in range(len(k)):
        write(out, S, u, y, i, w[i], k[i], r[i], V)


@njit(**INNER)
def delta_head(unit, y, states, r, g, k, v, a, runs):
    (_, T, H, V), K = y.shape, r.shape[3]
    b, h = unit // H, unit % H
    S, out, u = states[b, h, 0].copy(), np.zeros(V, np.float32), np.zeros(V, np.float32)
    rt, wt, kt = np.zeros(K, np.float32), np.zeros(K, np.float32), np.zeros(K, np.float32)
    at = np.zeros(a.shape[3], np.float32)
    for t in range(T):
        if not follows(runs[b], t):
            S[:] = 0
        out[:] = 0
        if runs[b, t] >= 0:
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(a[b, h, t], at)
            decays_at(g[b, h, t], wt)
            advance_delta(S, rt, wt, kt, v[b, h, t], at, S, u, out)
        row(out, y[b, t, h])
        if (t + 1) % WKV_CHUNK == 0 or t == T - 1:
            states[b, h, t // WKV_CHUNK + 1] = S


@kernel(writes(4), writes(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs)
def delta(y, states, r, g, k, v, a, runs):
    """y [B,T,H,V]; states as in wkv6."""
    in_parallel(delta_head, y.shape[0] * y.shape[2], (y, states, r, g, k, v, a, runs))


@njit(**INNER)
def delta_backward_head(unit, dr, dg, dk, dv, da, ds, dy, states, r, g, k, v, a, runs):
    (_, T, H, V), K, G = dv.shape, r.shape[3], g.shape[3]
    b, h = unit // H, unit % H
    S, W, D = np.zeros((WKV_CHUNK + 1, K, V), np.float32), np.zeros((WKV_CHUNK, K), np.float32), ds[b, h]
    nothing, U, du = (
        np.zeros((K, V), np.float32),
        np.zeros((WKV_CHUNK, V), np.float32),
        np.zeros(V, np.float32),
    )
    rt, kt, dyt = np.zeros(K, np.float32), np.zeros(K, np.float32), np.zeros(V, np.float32)
    at, found, zero = np.zeros(a.shape[3], np.float32), np.zeros((4, K), np.float32), np.float32(0)
    for chunk in range((T - 1) // WKV_CHUNK, -1, -1):
        begin, end = chunk * WKV_CHUNK, min(T, (chunk + 1) * WKV_CHUNK)
        S[0] = states[b, h, chunk]
        for t in range(begin, end):
            m = t - begin
            if runs[b, t] < 0:
                S[m + 1] = 0
                continue
            row(k[b, h, t], kt)
            row(a[b, h, t], at)
            decays_at(g[b, h, t], W[m])
            before = S[m] if follows(runs[b], t) else nothing
            advance_delta(before, rt, W[m], kt, v[b, h, t], at, S[m + 1], U[m], dyt)  # no y is needed here
        for t in range(end - 1, begin - 1, -1):
            m = t - begin
            if runs[b, t] < 0:
                D[:] = 0
                continue
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(a[b, h, t], at)
            row(dy[b, h, t], dyt)
            du[:] = 0
            for i in range(K):
                read_back(D, S[m + 1], U[m], dyt, du, found[0], found[1], i, rt[i], kt[i], V)
            before = S[m] if follows(runs[b], t) else nothing
            for i in range(K):
                decay_back(D, before, du, found[2], found[3], i, at[i] if len(at) else zero, W[m, i], V)
            row(found[0], dr[b, t, h])
            row(found[1], dk[b, t, h])
            row(found[2], da[b, t, h])
            row(du, dv[b, t, h])
            for i in range(K if G else 0):
                dg[b, t, h, min(i, G - 1)] += found[3, i]
            if not follows(runs[b], t):
                D[:] = 0


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), writes(4), writes(4)),
    *(reads(4), c_reads(5), reads(4), reads(4), reads(4), reads(4), reads(4), longs),
)
def delta_backward(dr, dg, dk, dv, da, ds, dy, states, r, g, k, v, a, runs):
    """As wkv6_backward; dg and da are [B,T,H,...] of g and a."""
    in_parallel(
        delta_backward_head,
        dv.shape[0] * dv.shape[2],
        (dr, dg, dk, dv, da, ds, dy, states, r, g, k, v, a, runs),
    )
