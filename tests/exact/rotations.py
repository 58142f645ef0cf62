"""Angles and gains of every rotation, in mpmath: a list over positions of (angles of the pairs, (gains of q, gains of k) or None)."""

from mpmath import mp


def ladder(R, base):
    return [mp.power(base, mp.mpf(-2 * k) / R) for k in range(R // 2)]


def everywhere(w, places, gain=None):
    """The same frequencies, and one gain, at every position."""
    gains = None if gain is None or gain == 1 else ([gain] * len(w),) * 2
    return [([place[0] * x for x in w], gains) for place in places]


def base_of(o):
    return mp.mpf(o["base"])


def length(facts, o):
    return mp.mpf(facts["L"] if o["original"] is None else o["original"])


def rope(p, places, facts, o, n):
    return everywhere([mp.mpf(x) for x in p["frequency"]] if o["learned"] else ladder(facts["R"], base_of(o)), places)


def stretch(facts, o, n):
    s = mp.mpf(o["factor"])
    return max(s, n / length(facts, o)) if o["form"] == "dynamic" else s


def pi(p, places, facts, o, n):
    return everywhere([w / stretch(facts, o, n) for w in ladder(facts["R"], base_of(o))], places)


def stretched(R, base, factor):
    """Pair k is divided by factor^(2k/(R-2)): the first not at all, the last by the factor."""
    return [w / mp.power(factor, mp.mpf(2 * k) / (R - 2)) for k, w in enumerate(ladder(R, base))]


def ntk(p, places, facts, o, n):
    R, s = facts["R"], mp.mpf(o["factor"])
    if o["form"] == "bloc97":
        return everywhere(stretched(R, base_of(o), s), places)
    b = mp.mpf(1 if o["form"] == "kexue" else 0.625 if o["mixed_b"] is None else o["mixed_b"])
    a = mp.log(s) / mp.power(mp.mpf(R) / 2, b)
    return everywhere([w * mp.exp(-a * mp.power(k + 1, b)) for k, w in enumerate(ladder(R, base_of(o)))], places)


def dynamic_ntk(p, places, facts, o, n):
    L, s = length(facts, o), mp.mpf(o["factor"])
    m = s * L if o["form"] == "static" else max(mp.mpf(n), L)
    if o["form"] == "steps":
        by = next(mp.mpf(2) ** (k + 1) - 1 for k in range(64) if m <= 2**k * L)
    else:
        by = s * m / L - (s - 1)
    return everywhere(stretched(facts["R"], base_of(o), by), places)


def between(x, low, high):
    """0 up to low, 1 from high on."""
    return min(max((x - low) / (high - low), mp.mpf(0)), mp.mpf(1))


def slow(R, base, L, fast, slow_, rounded=True):
    """1 for pairs slower than `slow_` turns within L, 0 for those faster than `fast`, over the index of the pair between."""
    which = lambda times: mp.log(L / (2 * mp.pi * mp.mpf(times))) / mp.log(base) * R / 2
    low, high = which(fast), which(slow_)
    if rounded:
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mp.mpf(0)), min(high, mp.mpf(R - 1))
    high += mp.mpf(0.001) if low == high else 0
    return [between(mp.mpf(k), low, high) for k in range(R // 2)]


def ntk_by_parts(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), stretch(facts, o, n)
    w, v = ladder(R, base), stretched(R, base, s)
    b = [1 - mp.mpf(o["ntk_factor"]) * (1 - x) for x in slow(R, base, L, *o["beta"])]
    c = [1 - mp.mpf(o["extrapolation_factor"]) * (1 - x) for x in slow(R, base, L, *o["gamma"])]
    return everywhere([c[k] * (b[k] * w[k] / s + (1 - b[k]) * v[k]) + (1 - c[k]) * w[k] for k in range(R // 2)], places)


def yarn(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), stretch(facts, o, n)
    w = ladder(R, base)
    if o["ramp"] == "code":
        far = slow(R, base, L, o["beta_fast"], o["beta_slow"], o["truncate"])
    else:
        far = [1 - between(L * x / (2 * mp.pi), mp.mpf(o["beta_slow"]), mp.mpf(o["beta_fast"])) for x in w]
    far = [1 - mp.mpf(o["extrapolation_factor"]) * (1 - g) for g in far]
    return everywhere([x * (1 - g) + x / s * g for x, g in zip(w, far, strict=True)], places, magnitude(s, o))


def magnitude(s, o):
    y = lambda m: mp.mpf(1) if s <= 1 else 1 + m * mp.log(s) / 10
    m, M = (None if o[key] is None else mp.mpf(o[key]) for key in ("mscale", "mscale_all_dim"))
    if o["attention_factor"] is not None:
        return mp.mpf(o["attention_factor"])
    if o["reading"] == "huggingface" and not (m and M):
        return y(1)
    return y(1 if m is None else m) / y(M or 0)


def longrope(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), mp.mpf(o["factor"])
    w, far = ladder(R, base), n > L
    given = o["long_factor" if far else "short_factor"]
    turned = w if given is None else [x / mp.mpf(c) for x, c in zip(w, given, strict=True)]
    if given is None and far:
        turned = [x * (1 - g) + x / s * g for x, g in zip(w, slow(R, base, L, 32, 1), strict=True)]
    own = o["long_mscale" if far else "short_mscale"]
    known = [mp.mpf(a) for a in (own, o["attention_factor"]) if a is not None]
    a = known[0] if known else mp.sqrt(1 + mp.log(s) / mp.log(L)) if s > 1 else mp.mpf(1)
    found = []
    for place in places:
        first = 0 <= place[0] < o["start_tokens"]
        gains = None if a == 1 else ([mp.mpf(1) if first else a] * len(w),) * 2
        found.append(([place[0] * x for x in (w if first else turned)], gains))
    return found


def llama3(p, places, facts, o, n):
    L, s, low, high = length(facts, o), mp.mpf(o["factor"]), mp.mpf(o["low_freq_factor"]), mp.mpf(o["high_freq_factor"])
    found = []
    for w in ladder(facts["R"], base_of(o)):
        wave = 2 * mp.pi / w
        t = (L / wave - low) / (high - low) if low < high else mp.mpf(0)
        found.append(w if wave < L / high else w / s if wave > L / low else (1 - t) * w / s + t * w)
    return everywhere(found, places)


def p_rope(p, places, facts, o, n):
    R, s = facts["R"], mp.mpf(o["factor"])
    turning = int(o["fraction"] * R // 2)
    return everywhere([w / s if k < turning else mp.mpf(0) for k, w in enumerate(ladder(R, base_of(o)))], places)


def xpos(p, places, facts, o, n):
    R, gamma = facts["R"], mp.mpf(o["gamma"])
    z = [(mp.mpf(2 * k) / R + gamma) / (1 + gamma) for k in range(R // 2)]
    found = []
    for place in places:
        power = (place[0] - mp.mpf(o["centre"])) / mp.mpf(o["scale_base"])
        up = [mp.power(x, power) for x in z]
        found.append(([place[0] * w for w in ladder(R, base_of(o))], (up, [1 / x for x in up])))
    return found


def mrope(p, places, facts, o, n):
    pairs = facts["R"] // 2
    ratio = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}[o["order"]]
    s = o["sections"]
    if s is None:
        shares = [mp.mpf(pairs * r) / sum(ratio) for r in ratio]
        s = [int(mp.floor(x)) for x in shares]
        for axis in sorted(range(3), key=lambda k: s[k] - shares[k])[: pairs - sum(s)]:
            s[axis] += 1
    if o["order"] == "chunked":
        axis = [0] * s[0] + [1] * s[1] + [2] * s[2]
    elif o["order"] == "alternate":
        axis = [1, 2] * s[2] + [1] * (s[1] - s[2]) + [0] * s[0]
    else:
        axis = [1 if k % 3 == 1 and k < 3 * s[1] else 2 if k % 3 == 2 and k < 3 * s[2] else 0 for k in range(pairs)]
    w = ladder(facts["R"], base_of(o))
    return [([place[axis[k] if len(place) > 1 else 0] * w[k] for k in range(pairs)], None) for place in places]


def axial(p, places, facts, o, n):
    R, base, width = facts["R"], base_of(o), mp.mpf(o["width"])
    M = R // 4
    rows = {
        "restart": lambda m: (mp.power(base, mp.mpf(-4 * m) / R),) * 2,
        "global": lambda m: (mp.power(base, mp.mpf(-2 * m) / R), mp.power(base, mp.mpf(-2 * (m + M)) / R)),
        "alternate": lambda m: (mp.power(base, mp.mpf(-4 * m) / R), mp.power(base, mp.mpf(-4 * m - 2) / R)),
        "pixel": lambda m: (mp.pi * (1 + (mp.mpf(o["max_freq"]) / 2 - 1) * (mp.mpf(m) / (M - 1) if M > 1 else 0)),) * 2,
    }[o["ladder"]]
    found = []
    for place in places:
        row, column = place if len(place) == 2 else (mp.floor(place[0] / width), place[0] - width * mp.floor(place[0] / width))
        if o["ladder"] == "pixel":
            row, column = (2 * x / max(width - 1, 1) - 1 for x in (row, column))
        found.append(([row * rows(m)[0] for m in range(M)] + [column * rows(m)[1] for m in range(M)], None))
    return found
