"""Dual chunk attention.

    P_k = j mod s        P_q^Intra = i mod s        P_q^Succ = [s, s+1, ..., s+w-1, c-1, ..., c-1]
    P_q^Inter = [c-1, ..., c-1]        P_q - P_k, by whether the chunks are the same, neighbours, or neither

An et al. 2024, arXiv:2402.17463. s is the length of a chunk, w the local window, c = s + w our
chunk_size. ends "code": c in place of c-1, and P_q^Inter is P_q^Succ of the last place of a chunk, as in
ChunkLlama.
"""

import math

from loops import zones


def attend(
    p,
    q,
    k,
    v,
    x,
    i,
    L,
    R,
    window=None,
    pairs="half",
    base=10000.0,
    chunk_size=None,
    local_window=None,
    ends="code",
):
    c = chunk_size if chunk_size is not None else 3 * L // 4
    s = c - (local_window if local_window is not None else L // 16)
    top = c if ends == "code" else c - 1
    inter = min(2 * s - 1, c) if ends == "code" else c - 1

    def e(t, j):
        apart = math.floor(i[t] / s) - math.floor(i[j] / s)
        place = i[t] - s * math.floor(i[t] / s)
        P_k = i[j] - s * math.floor(i[j] / s)
        if apart <= 0:
            return place - P_k
        if apart >= 2:
            return inter - P_k
        return min(place + s, top) - P_k

    return zones.attend(q, k, v, e, window, R, base, pairs)
