"""Biases of distance in mpmath: rows over the heads of (value, size, phase) for each distance."""

from mpmath import mp

EDGE = mp.mpf(10) ** -30  # far more than 50 digits lose, far less than two logarithms of whole numbers are apart


def plain(rows):
    return [[(x, abs(x), 0) for x in row] for row in rows]


def softplus(x):
    return mp.log(1 + mp.exp(mp.mpf(x)))


def alibi(p, d, facts, o):
    H, most = facts["H"], mp.mpf(o["max_bias"])

    def slopes(heads):
        below = 1
        while 2 * below <= heads:
            below *= 2
        of = lambda count, h: mp.power(2, -most * h / count)
        return [of(below, h) for h in range(1, below + 1)] + [of(2 * below, 2 * e + 1) for e in range(heads - below)]

    ahead = H // 2 if o["directions"] == "halves" else 0
    m = slopes(H - ahead) + (slopes(ahead) if ahead else [])
    rows = []
    for h in range(H):
        sides = [mp.exp(mp.mpf(row[h])) for row in p["log_slopes"]] if "log_slopes" in p else [m[h]]
        hides = lambda x, h=h: bool(ahead) and (x < 0 if h < H - ahead else x > 0)
        rows.append([-mp.inf if hides(x) else -sides[-1 if x < 0 else 0] * abs(x) for x in d])
    return plain(rows)


def t5(p, d, facts, o):
    m = o["buckets"] if facts["causal"] else o["buckets"] // 2
    e, last = m // 2, mp.mpf(o["max_distance"])

    def bucket(x):
        n = max(x, 0) if facts["causal"] else abs(x)
        k = int(n) if n < e else min(m - 1, e + int(mp.floor((m - e) * mp.log(n / e) / mp.log(last / e) + EDGE)))
        return k if facts["causal"] or x >= 0 else k + m

    return plain([[mp.mpf(p["table"][bucket(x)][h]) for x in d] for h in range(facts["H"])])


def learned_bias(p, d, facts, o):
    last = facts["L"] - 1 if o["max_distance"] is None else o["max_distance"]
    first = 0 if facts["causal"] else -last
    return plain([[mp.mpf(p["table"][h][min(max(int(x), first), last) - first]) for x in d] for h in range(facts["H"])])


def kerple_log(p, d, facts, o):
    power = [2 / (1 + mp.exp(-mp.mpf(x))) for x in p["r3"]] if o["exponent"] == "learned" else [1] * len(p["r1"])
    far = lambda x, r: mp.power(abs(x), r) if x else 0
    return plain([[-softplus(r1) * mp.log(1 + softplus(r2) * far(x, r)) for x in d] for r1, r2, r in zip(p["r1"], p["r2"], power, strict=True)])


def kerple_power(p, d, facts, o):
    power = lambda free: 2 / (1 + mp.exp(-mp.mpf(free)))
    return plain([[-softplus(r1) * (mp.power(abs(x), power(r2)) if x else 0) for x in d] for r1, r2 in zip(p["r1"], p["r2"], strict=True)])


def sandwich(p, d, facts, o):
    width, first = o["width"], 0 if o["form"] == "paper" else 1
    w = [mp.power(mp.mpf(o["base"]), mp.mpf(-2 * k) / width) for k in range(first, first + width // 2)]
    waves = [(sum(mp.cos(x * f) for f in w) - (width // 2 if first else 0), sum(abs(x) * f for f in w)) for x in d]
    share = [mp.mpf(facts["H"]) / (8 * h) for h in range(1, facts["H"] + 1)]
    return [[(value * c, width * c, phase * c) for value, phase in waves] for c in share]


def dynamic_bias(p, d, facts, o):
    bend = lambda x: max(x, mp.mpf(0)) if o["activation"] == "relu" else x / (1 + mp.exp(-x))
    of = lambda name: (
        [[mp.mpf(x) for x in row] for row in p[name]] if name.endswith(".weight") and isinstance(p[name][0], list) else [mp.mpf(x) for x in p[name]]
    )
    layers = [(of(f"{n}.weight"), of(f"{n}.bias")) for n in range(1, o["depth"] + 1)]
    norms = [(of(f"norm{n}.weight"), of(f"norm{n}.bias")) if o["norm"] == "layer" else None for n in range(1, o["depth"] + 1)]
    last = of(f"{o['depth'] + 1}.weight")
    columns = []
    for x in d:
        y = [mp.sign(x) * mp.log(1 + abs(x)) if o["distance"] == "log" else x]
        for (W, b), norm in zip(layers, norms, strict=True):
            y = [mp.fdot(row, y) + c for row, c in zip(W, b, strict=True)]
            if norm:
                mean = mp.fsum(y) / len(y)
                root = mp.sqrt(mp.fsum((z - mean) ** 2 for z in y) / len(y) + mp.mpf(1e-5))
                y = [(z - mean) / root * g + c for z, g, c in zip(y, *norm, strict=True)]
            y = [bend(z) for z in y]
        columns.append([(mp.fdot(row, y), mp.fsum(abs(u * z) for u, z in zip(row, y, strict=True)) + 1) for row in last])
    if o["output"] == "sigmoid":  # its slope is at most 4
        columns = [[(16 / (1 + mp.exp(-b)), 4 * size) for b, size in column] for column in columns]
    return [[(column[h][0], 10 * column[h][1], 0) for column in columns] for h in range(facts["H"])]
