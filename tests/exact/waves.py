"""What is added to the embedding, in mpmath: rows over the positions of (value, size, phase) for each channel."""

from mpmath import mp


def learned(p, i, facts, o):
    rows = [[mp.mpf(x) for x in p["table"][int(place)]] for place in i]
    if o["unit"]:
        rows = [[x / mp.sqrt(mp.fsum(y * y for y in row)) for x in row] for row in rows]
    return [[(x, abs(x), 0) for x in row] for row in rows]


def sinusoidal(p, i, facts, o):
    C, base = facts["C"], mp.mpf(o["base"])
    h = C // 2
    if o["ladder"] == "paper":
        w = [mp.power(base, mp.mpf(-2 * k) / C) for k in range(h + C % 2)]
    else:
        w = [mp.power(base, mp.mpf(-k) / max(h - 1, 1)) for k in range(h + C % 2)]
    rows = []
    for place in i:
        waves = [[(f(place * x), 1, abs(place * x)) for x in w] for f in (mp.sin, mp.cos)]
        if o["layout"] == "interleaved":
            rows.append([wave[k] for k in range(len(w)) for wave in waves][:C])
        else:
            rows.append(waves[0][:h] + waves[1][:h] + [(mp.mpf(0), 1, 0)] * (C % 2))
    if o["learned"]:
        a = mp.mpf(p["scale"][0])
        return [[(a * value, abs(a) * size, abs(a) * phase) for value, size, phase in row] for row in rows]
    return rows
