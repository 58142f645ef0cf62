"""Retention in chunks: a state of constant size per sequence and head, and within a chunk one tile of
RETENTION_CHUNK x RETENTION_CHUNK.

    A = (Q K') * within        O = A V + (into Q) S        S <- over S + (out_of K)' V

with the decays of retnet.py: within between tokens of a chunk, into from the state to each, out_of from each
to the end, over for all. They follow from runs and from g^n, tabled once in float64. Backward walks the
chunks in reverse over the states that forward kept. Sequences and heads are independent, so the bits do not
depend on the number of threads. Bound: the multiplier, on tiles that fit the first cache.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, i8, reads, writes
from peref.backends.numba.blocks import across_lanes, by_rows, matmul, padded, rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.threads import in_parallel

RETENTION_CHUNK = 64


@njit(**INNER)
def chunk_decays(powers, runs, first, rows, within, into, out_of):
    """The decays of one chunk of one sequence and head; returns `over`. powers[n] = g^n; runs [T], as
    ops/place.py has them.
    """
    before = runs[first - 1] if first else 0
    last = runs[first + rows - 1]
    for n in range(rows):
        r = runs[first + n]
        for m in range(RETENTION_CHUNK):
            within[n, m] = powers[n - m] if m <= n and r >= 0 and runs[first + m] == r else np.float32(0)
        into[n] = powers[n + 1] if r == before and before >= 0 else np.float32(0)
        out_of[n] = powers[rows - 1 - n] if r == last and last >= 0 else np.float32(0)
    within[rows:] = 0
    into[rows:] = 0
    out_of[rows:] = 0
    return powers[rows] if last == before and before >= 0 else np.float32(0)


@njit(**INNER)
def retention_head(unit, o, states, q, k, v, runs, powers, scale):
    _, H, T, D = q.shape
    E = v.shape[3]
    d, e = rounded(D, COLUMNS), rounded(E, COLUMNS)
    b, h = unit // H, unit % H
    Q, K, V = (
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
    )
    KT, A, O = (
        np.empty((d, RETENTION_CHUNK), np.float32),
        np.empty((RETENTION_CHUNK, RETENTION_CHUNK), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
    )
    within, into, out_of = (
        np.empty((RETENTION_CHUNK, RETENTION_CHUNK), np.float32),
        np.empty(RETENTION_CHUNK, np.float32),
        np.empty(RETENTION_CHUNK, np.float32),
    )
    for n in range((T + RETENTION_CHUNK - 1) // RETENTION_CHUNK):
        first = n * RETENTION_CHUNK
        rows = min(RETENTION_CHUNK, T - first)
        over = chunk_decays(powers[h], runs[b], first, rows, within, into, out_of)
        padded(q[b, h], first, Q)
        padded(k[b, h], first, K)
        padded(v[b, h], first, V)
        Q *= scale
        across_lanes(KT, K)
        matmul(A, Q, KT, False, False)
        A *= within
        matmul(O, A, V, False, False)
        by_rows(Q, into, Q)
        matmul(O, Q, states[b, h, n], False, True)
        for r in range(rows):
            for c in range(E):
                o[b, first + r, h, c] = O[r, c]
        by_rows(K, out_of, K)
        states[b, h, n + 1] = states[b, h, n] * over
        matmul(states[b, h, n + 1], K, V, True, True)


@kernel(writes(4), writes(5), reads(4), reads(4), reads(4), c_reads(2, i8), c_reads(2), f4)
def retention(o, states, q, k, v, runs, powers, scale):
    """o [B,T,H,E]; states [B,H,chunks+1,D',E'], the first given, padded with zeros; q, k [B,H,T,D], v
    [B,H,T,E]; powers [H,RETENTION_CHUNK+1].
    """
    in_parallel(retention_head, len(q) * q.shape[1], (o, states, q, k, v, runs, powers, scale))


@njit(**INNER)
def retention_backward_head(unit, dq, dk, dv, ds, do, states, q, k, v, runs, powers, scale):
    _, H, T, D = q.shape
    E = v.shape[3]
    d, e = rounded(D, COLUMNS), rounded(E, COLUMNS)
    b, h = unit // H, unit % H
    Q, K, V, G = (
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
    )
    KT, VT, A, Z = (
        np.empty((d, RETENTION_CHUNK), np.float32),
        np.empty((e, RETENTION_CHUNK), np.float32),
        np.empty((RETENTION_CHUNK, RETENTION_CHUNK), np.float32),
        np.empty((RETENTION_CHUNK, RETENTION_CHUNK), np.float32),
    )
    dQ, dK, dV = (
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, d), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
    )
    within, into, out_of = (
        np.empty((RETENTION_CHUNK, RETENTION_CHUNK), np.float32),
        np.empty(RETENTION_CHUNK, np.float32),
        np.empty(RETENTION_CHUNK, np.float32),
    )
    S, ST, scaled = (
        ds[b, h].copy(),
        np.empty((e, d), np.float32),
        np.empty((RETENTION_CHUNK, e), np.float32),
    )
    q_into, k_out_of = np.empty((RETENTION_CHUNK, d), np.float32), np.empty((RETENTION_CHUNK, d), np.float32)
    for n in range((T + RETENTION_CHUNK - 1) // RETENTION_CHUNK - 1, -1, -1):
        first = n * RETENTION_CHUNK
        rows = min(RETENTION_CHUNK, T - first)
        over = chunk_decays(powers[h], runs[b], first, rows, within, into, out_of)
        padded(q[b, h], first, Q)
        padded(k[b, h], first, K)
        padded(v[b, h], first, V)
        padded(do[b, :, h], first, G)
        Q *= scale
        across_lanes(KT, K)
        across_lanes(VT, V)
        matmul(A, Q, KT, False, False)
        A *= within
        matmul(Z, G, VT, False, False)
        Z *= within
        by_rows(K, out_of, k_out_of)
        matmul(dV, k_out_of, S, False, False)  # through the state
        matmul(dV, A, G, True, True)  # within the chunk
        across_lanes(ST, S)
        matmul(dK, V, ST, False, False)
        by_rows(dK, out_of, dK)
        matmul(dK, Z, Q, True, True)
        across_lanes(ST, states[b, h, n])
        by_rows(G, into, scaled)
        matmul(dQ, scaled, ST, False, False)
        matmul(dQ, Z, K, False, True)
        for r in range(rows):
            for c in range(D):
                dq[b, first + r, h, c] = dQ[r, c] * scale
                dk[b, first + r, h, c] = dK[r, c]
            for c in range(E):
                dv[b, first + r, h, c] = dV[r, c]
        by_rows(Q, into, q_into)
        S *= over
        matmul(S, q_into, G, True, True)
    ds[b, h] = S


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), reads(4), c_reads(5)),
    *(reads(4), reads(4), reads(4), c_reads(2, i8), c_reads(2), f4),
)
def retention_backward(dq, dk, dv, ds, do, states, q, k, v, runs, powers, scale):
    """dq, dk [B,T,H,D], dv [B,T,H,E]; ds [B,H,D',E']: of the last state, then of the first; do [B,T,H,E]."""
    in_parallel(
        retention_backward_head,
        len(q) * q.shape[1],
        (dq, dk, dv, ds, do, states, q, k, v, runs, powers, scale),
    )
