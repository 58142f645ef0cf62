"""SelfExtend: normal attention to neighbours, grouped attention to the others.

    P_g = floor(P / G), the query's shifted by w_n - floor(w_n / G); neighbours are those with i - j < w_n

Jin et al. 2024, arXiv:2401.01325. w_n is neighbor_window, a quarter of L unless given, G is
group_size.
"""

import math

from loops import zones


def attend(
    p, q, k, v, x, i, L, R, window=None, pairs="half", base=10000.0, neighbor_window=None, group_size=8
):
    w_n, G = neighbor_window if neighbor_window is not None else max(1, L // 4), group_size

    def e(t, s):
        if i[t] - i[s] < w_n:
            return i[t] - i[s]
        return math.floor(i[t] / G) + w_n - math.floor(w_n / G) - math.floor(i[s] / G)

    return zones.attend(q, k, v, e, window, R, base, pairs)
