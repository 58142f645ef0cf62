"""Score terms, and attention of another form."""

import numpy as np

from ..tape import (
    V,
    absolute,
    cumsum,
    einsum,
    join,
    leaky,
    linear,
    log,
    logsigmoid,
    maximum,
    relu,
    sigmoid,
    silu,
    sqrt,
    stack,
    where,
)
from .base import Attention, apart
from .biases import Alibi, KerpleLog


class Term(Attention):
    levels = ("op", "attn", "trace")

    def op(self):
        keys = self.kept(0, self.T, self.i, self.n, {})
        see = self.visible(np.arange(self.T), np.arange(self.T), self.seg, self.seg)
        term = self.bias(self.a["q"], self.i, keys, see)
        return {"term": where(see, term + np.zeros((self.B, self.H, self.T, self.T)), 0.0)}


def heads(x, count):
    """[B,T,H D] as [B,H,T,D]."""
    B, T, C = x.shape
    return x.reshape(B, T, count, C // count).transpose(0, 2, 1, 3)


class Cope(Term):
    def features(self, first, stop, i, cache):
        if self.o["gates"] != "key":
            return {}
        return {"gate_key": heads(linear(self.new("x", first, stop), self.p["k.weight"]), self.H)}

    def gates(self, q, keys, see):
        k = keys.get("gate_key")
        k = keys["k"][:, self.reads()] if k is None else k
        return where(see, sigmoid(einsum("bhtd,bhsd->bhts", q, k) * self.D**-0.5))

    def count(self, g):
        """The sum over keys from j on."""
        total = cumsum(g, -1)
        return total[..., -1:] - total + g

    def cut(self, p):
        npos = self.L + 1 if self.o["npos"] is None else self.o["npos"]
        return where(p.a < npos - 1, p, float(npos - 1))

    def bias(self, q, i, keys, see):
        p = self.cut(self.count(self.gates(q, keys, see)))
        low = np.floor(p.a).astype(int)
        t = where(p.a > low, p - low)
        z = einsum("bhtd,nd->bhtn", q, self.p["table"]) * self.share()
        b, h, m = np.ix_(*map(np.arange, p.shape[:3]))
        at = lambda n: z[b[..., None], h[..., None], m[..., None], n]
        return self.between(at(low), at(np.minimum(low + 1, z.shape[-1] - 1)), t)

    def between(self, lower, upper, t):
        return lower * (1 - t) + upper * t

    def share(self):
        return 1.0 if self.o["divided"] == "qk" else self.D**-0.5


class Fire(Term):
    threshold, eps, prefix = "threshold", "eps", ""

    def psi(self, far):
        """ln(|c| far + 1)."""
        c = absolute(self.p[self.prefix + "c"])
        return log(c * far + 1) if not isinstance(far, V) else log(far * c + 1)

    def normaliser(self, i):
        floor = absolute(self.p[self.prefix + "m"] * self.settings()[0])
        return maximum(floor, i.astype(self.work)[..., :, None])

    def settings(self):
        return self.o["threshold"], self.o["eps"]

    def relative(self, i, j):
        far = abs(apart(i, j)).astype(self.work)
        return self.quotient(self.psi(far), self.psi(self.normaliser(i)))

    def quotient(self, a, b):
        return a / (b + self.settings()[1])

    def network(self, u):
        n = self.prefix
        y = linear(u.reshape(*u.shape, 1), self.p[n + "1.weight"]) + self.p[n + "1.bias"]
        return linear(self.active(y), self.p[n + "2.weight"])

    def active(self, y):
        return relu(y)

    def bias(self, q, i, keys, see):
        y = self.network(self.relative(i, keys["i"]))
        return y.transpose(2, 0, 1) if y.ndim == 3 else y.transpose(0, 3, 1, 2)


class Forgetting(Term):
    def features(self, first, stop, i, cache):
        z = linear(self.new("x", first, stop), self.p["f.weight"]) + self.p["f.bias"]
        return {"forget": self.gate(z).transpose(0, 2, 1)}

    def gate(self, z):
        return logsigmoid(z)

    def bias(self, q, i, keys, see):
        c = cumsum(keys["forget"], -1)
        T = q.shape[2]
        return self.range(c, keys["forget"], T)

    def range(self, c, f, T):
        B, H, S = c.shape
        return c[..., S - T :].reshape(B, H, T, 1) - c.reshape(B, H, 1, S)


class Dape(Term):
    """Alone, or beside the bias of another encoding of its layer, as the fact cycle says."""

    def __init__(self, case, inputs, work):
        super().__init__(case, inputs, work)
        (name, settings), *_ = case["facts"].get("cycle") or [["dape", self.o]]
        self.other = {"alibi+dape": Alibi, "kerple_log+dape": KerpleLog}.get(name)
        if self.other:
            theirs, own = name.split("+")
            of = lambda d, who: {k[len(who) + 1 :]: x for k, x in d.items() if k.startswith(who + ".")}
            self.o, self.theirs = of(settings, own), (of(settings, theirs), of(self.p, theirs))
            self.p = of(self.p, own)

    def static(self, i, keys):
        if self.other is None:
            return None
        one = object.__new__(self.other)
        one.__dict__.update(self.__dict__)
        one.o, one.p = self.theirs
        b = one.values(apart(i, keys["i"]))
        b = b if isinstance(b, V) else V(b)
        return b if b.ndim == 3 else b.transpose(1, 0, 2, 3)

    def network(self, z):
        z = z.transpose(0, 2, 3, 1)
        y = linear(self.active(linear(z, self.p["1.weight"]) + self.p["1.bias"]), self.p["2.weight"])
        return y.transpose(0, 3, 1, 2)

    def active(self, z):
        return leaky(z)

    def order(self, s, b):
        return [s, b]

    def bias(self, q, i, keys, see):
        s, b = self.products(q, keys["k"]) * self.scale(), self.static(i, keys)
        b = None if b is None else b + np.zeros(s.shape)
        y = self.network(join([part for part in self.order(s, b) if part is not None], 1))
        return y if b is None else self.both(b, y)

    def both(self, b, y):
        return b + y


class TransformerXl(Term):
    def scale(self):
        return 1.0 if self.o["divided"] == "not" else self.D**-0.5

    def share(self):
        return self.scale()

    def distance(self, i, j):
        d, m = apart(i, j), self.o["clamp_len"]
        return d if m is None else np.clip(d, -m, m)

    def waves(self, d):
        w = self.o["base"] ** (-2 * np.arange(self.C // 2) / self.C)
        angle = d.astype(self.work)[..., None] * w.astype(self.work)
        pad = np.zeros((*d.shape, self.C % 2), self.work)
        return np.concatenate([*self.halves(np.sin(angle), np.cos(angle)), pad], -1)

    def halves(self, s, c):
        return s, c

    def row(self, i, j):
        r = linear(V(self.waves(self.distance(i, j))), self.p["r.weight"])
        r = r.reshape(*r.shape[:-1], self.H, self.D)
        return r.transpose(2, 0, 1, 3) if r.ndim == 4 else r.transpose(0, 3, 1, 2, 4)

    def bias(self, q, i, keys, see):
        k = keys["k"][:, self.reads()]
        content = einsum("hd,bhsd->bhs", self.u(), k).reshape(q.shape[0], self.H, 1, k.shape[2])
        r, qw = self.row(i, keys["i"]), q + self.w().reshape(self.H, 1, self.D)
        place = einsum("bhtd,htsd->bhts" if r.ndim == 4 else "bhtd,bhtsd->bhts", qw, r)
        return (content + place) * self.share()

    def u(self):
        return self.p["u"]

    def w(self):
        return self.p["w"]


class Shaw(Attention):
    def clip(self, r):
        m = self.o["max_distance"]
        return np.clip(r, -m, m) + m

    def rows(self, i, j):
        return self.clip(-apart(i, j))

    def shared(self, name, r):
        """[.., heads or 1, T, S, D]"""
        t = self.p[name]
        if self.o["across_heads"] == "own":
            y = t[:, r]
            return y if r.ndim == 2 else y.transpose(1, 0, 2, 3, 4)
        y = t[r]
        return y.reshape(*r.shape[:-2], 1, *r.shape[-2:], self.D)

    def attention(self, q, i, keys, see):
        k, r = keys["k"][:, self.reads()], self.rows(i, keys["i"])
        key = self.whole(self.shared("key", r), q, k)
        s = self.products(q, keys["k"]) * self.scale() + self.keyed(q, key)
        if self.o["tables"] == "key_query":
            s = s + einsum("bhsd,bhtsd->bhts", k, key) * self.scale()
        p = self.softmax(s, see)
        out = self.mix(p, keys)
        if self.o["tables"] == "both":
            out = out + self.valued(p, self.whole(self.shared("value", self.value_rows(r)), q, k))
        return {"out": out}

    def value_rows(self, r):
        return r

    def keyed(self, q, key):
        return einsum("bhtd,bhtsd->bhts", q, key) * self.scale()

    def valued(self, p, value):
        return einsum("bhts,bhtsd->bhtd", p, value)

    def whole(self, x, q, k):
        return x + np.zeros((*q.shape[:3], k.shape[2], self.D))


class Path(Attention):
    """PaTH: the product of Householder maps between key and query."""

    def features(self, first, stop, i, cache):
        x = self.new("x", first, stop)
        z = self.mapped(x)
        seg = None if self.seg is None else self.seg[:, first:stop]
        u = z if self.o["kernel"] is None else silu(self.conv(z, cache.get("z"), seg))
        w = heads(u, self.G)
        w = w / sqrt((w * w).sum(-1) + self.unit()).reshape(*w.shape[:-1], 1)
        beta = self.beta(linear(x, self.p["beta.weight"]) + self.p["beta.bias"]).transpose(0, 2, 1)
        found = {"w": w, "beta": beta, "z": z}
        if self.o["gate"] != "none":
            f = logsigmoid(linear(x, self.p["f.weight"]) + self.p["f.bias"]).transpose(0, 2, 1)
            found["forget"] = f * self.gate_scale()
        return found

    def gate_scale(self):
        return self.D**-0.5 if self.o["gate"] == "scaled" else 1.0

    def unit(self):
        return 1e-6

    def beta(self, z):
        return 2 * sigmoid(z)

    def mapped(self, x):
        if self.o["rank"] is None:
            return linear(x, self.p["w.weight"])
        return linear(linear(x, self.p["down.weight"]), self.p["up.weight"])

    def conv(self, z, tail, seg):
        return conv(z, self.p["conv"], tail, seg)

    def attention(self, q, i, keys, see):
        k, w, beta = keys["k"], keys["w"], keys["beta"]
        B, _G, S, _D = k.shape
        T, rows, reads = q.shape[2], [], self.reads()
        past = None
        for s in range(S):
            if past is not None:
                past = self.moved(past, w[:, :, s : s + 1], beta[:, :, s : s + 1])
            own = k[:, :, s : s + 1]
            past = own if past is None else join([past, own], 2)
            if s >= S - T:
                row = einsum("bhd,bhsd->bhs", q[:, :, s - S + T], past[:, reads])
                rows.append(join([row, V(np.zeros((B, self.H, S - 1 - s), self.work))], 2))
        scores = stack(rows, 2) * self.scale()
        if "forget" in keys:
            c = cumsum(keys["forget"], -1)
            scores = scores + (c[..., S - T :].reshape(B, self.H, T, 1) - c.reshape(B, self.H, 1, S))
        return {"out": self.mix(self.softmax(scores, see), keys)}

    def moved(self, k, w, beta):
        along = (k * w).sum(-1) * beta
        return k - along.reshape(*along.shape, 1) * w


def conv(z, taps, tail=None, seg=None):
    """A causal convolution of each channel of z [B,T,C] by itself, taps [C,K]; the last is for the
    present.
    """
    B, T, C = z.shape
    K = taps.shape[1]
    tail = V(np.zeros((B, K - 1, C), z.a.dtype)) if tail is None else tail
    have = tail.shape[1]
    if have < K - 1:
        tail, have = join([V(np.zeros((B, K - 1 - have, C), z.a.dtype)), tail], 1), K - 1
    whole = join([tail, z], 1)
    y = 0
    for m in range(K):
        part = whole[:, have - m : have - m + T] * taps[:, K - 1 - m]
        if seg is not None:
            part = part * same(seg, m)[..., None]
        y = part + y
    return y


def same(seg, m):
    """Whether the token m before is of the same document."""
    found = np.zeros(seg.shape, bool)
    found[:, m:] = seg[:, m:] == seg[:, : seg.shape[1] - m]
    return found
