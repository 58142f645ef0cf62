"""T5's bucketed relative bias.

    b_h(d) = E[bucket(d)][h]        added to q . k, which is not divided by sqrt(D)

Raffel et al. 2019, arXiv:1910.10683, section 2.1; the buckets are only in the authors' code. Of nb buckets
the first e = nb // 2 hold one distance each, the others grow with the logarithm up to max_distance:

    e + floor((nb - e) ln(n/e) / ln(max_distance/e)), at most nb - 1

In whole numbers the floor is the largest k with max_distance^k e^(nb-e) <= n^(nb-e) e^k. Not causal: half the
buckets for each direction, the second half for keys in the future. Causal: every future distance counts as 0.
"""


def bucket(d, causal, buckets, max_distance):
    if d != int(d):
        raise ValueError(f"distance {d} is not a whole number")
    d = int(d)
    if causal:
        nb, first, n = buckets, 0, max(d, 0)
    else:
        nb = buckets // 2
        first, n = (nb if d < 0 else 0), abs(d)
    e = nb // 2
    if n < e:
        return first + n
    k = 0
    while e + k < nb - 1 and max_distance ** (k + 1) * e ** (nb - e) <= n ** (nb - e) * e ** (k + 1):
        k += 1
    return first + e + k


def bias(p, d, causal, buckets=32, max_distance=128):
    rows = [p["table"][bucket(x, causal, buckets, max_distance)] for x in d]
    return [[row[h] for row in rows] for h in range(len(p["table"][0]))]


def scale(D, divided="not"):
    return 1 / D**0.5 if divided == "qk" else 1
