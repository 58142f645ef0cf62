"""A learned bias for every distance.

    b_h(d) = B[h][d], 0 <= d < L (causal)        b_h(d) = B[h][d + L - 1], -L < d < L (not causal)

The scalar, unclipped case of Shaw, Uszkoreit, Vaswani 2018, arXiv:1803.02155; as a table per head it is T5's
(Raffel et al. 2019, arXiv:1910.10683, section 2.1) with one bucket per distance. A distance outside the table
is an error or, with a max_distance k, clip(d, -k, k) is its (Shaw's equation 4), from 0 where it is causal; a
row then has k + 1 or 2 k + 1 entries.
"""


def bias(p, d, causal, L, max_distance=None):
    if max_distance is not None:
        first = 0 if causal else -max_distance
        return [[row[min(max(int(x), first), max_distance) - first] for x in d] for row in p["table"]]
    first = 0 if causal else 1 - L
    for x in d:
        if x != int(x) or not first <= x < L:
            raise ValueError(f"distance {x} is outside the table {first} .. {L - 1}")
    return [[row[int(x) - first] for x in d] for row in p["table"]]
