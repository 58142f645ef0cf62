"""Biases by distance."""

import numpy as np

from ..tape import V, exp, linear, log1p, relu, sigmoid, silu, softplus, sqrt, where
from .base import Attention, apart


class Bias(Attention):
    """What biases share; each has values(d), [H, ...] of distances [...]."""

    levels = ("table", "op", "attn", "trace")

    def apart(self, i, j):
        return apart(i, j)

    def table(self):
        return {"bias": self.values(self.distances)}

    def op(self):
        see = self.visible(np.arange(self.T), np.arange(self.T))[0]
        b = self.values(self.apart(self.i, self.i))
        return {"bias": where(see, b) if isinstance(b, V) else np.where(see, b, 0)}

    def bias(self, q, i, keys, see):
        b = self.values(self.apart(i, keys["i"]))
        return b if b.ndim == 3 else self.batch(b)

    def batch(self, b):
        return b.transpose(1, 0, 2, 3)

    def column(self, x, d):
        """[H] as [H, 1, ...]."""
        return x.reshape(-1, *[1] * np.ndim(d))


class Alibi(Bias):
    def powers(self, H):
        return [2 ** (-self.o["max_bias"] * h / H) for h in range(1, H + 1)]

    def slopes_of(self, H):
        most = 2 ** int(np.log2(H)) if H else 0
        return np.array(self.powers(most) + self.more(most)[: H - most])

    def more(self, most):
        return self.powers(2 * most)[::2]

    def distance(self, d):
        return abs(d)

    def values(self, d):
        b = self.falling(d)
        if self.o["directions"] != "halves":
            return b
        past = self.column(np.arange(self.H) < self.H - self.H // 2, d)
        near = np.where(past, d >= 0, d <= 0)
        return where(near, b, -np.inf) if isinstance(b, V) else np.where(near, b, -np.inf)

    def falling(self, d):
        far, H = self.distance(d).astype(self.work), self.H
        if self.o["slopes"] == "learned":
            return -exp(self.column(self.p["log_slopes"][0], d)) * far
        if self.o["slopes"] == "sides":
            m = [exp(self.column(self.p["log_slopes"][n], d)) for n in (0, 1)]
            return -(m[0] * np.where(d >= 0, far, 0) + m[1] * np.where(d < 0, far, 0))
        if self.o["directions"] == "halves":
            m = np.concatenate([self.slopes_of(H - H // 2), self.slopes_of(H // 2)])
            return -self.column(m.astype(self.work), d) * far
        return -self.column(self.slopes_of(H).astype(self.work), d) * far


class KerpleLog(Bias):
    def values(self, d):
        r1, r2 = self.column(self.positive("r1"), d), self.column(self.positive("r2"), d)
        far = abs(d).astype(self.work)
        if self.o["exponent"] == "learned":
            far = raised(far, self.column(2 * sigmoid(self.p["r3"]), d))
        return -r1 * self.logarithm(r2 * far)

    def positive(self, name):
        return softplus(self.p[name])

    def logarithm(self, x):
        return log1p(x)


def raised(far, power):
    """far^power; 0 and without a derivative at 0."""
    return where(far > 0, exp(power * np.log(np.where(far > 0, far, 1))))


class KerplePower(Bias):
    def values(self, d):
        return -self.column(self.first(), d) * raised(abs(d).astype(self.work), self.column(self.second(), d))

    def first(self):
        return softplus(self.p["r1"])

    def second(self):
        return 2 * sigmoid(self.p["r2"])


class LearnedBias(Bias):
    def rows(self, d):
        m = self.o["max_distance"]
        most = self.L - 1 if m is None else m
        if m is not None:
            d = np.clip(d, 0 if self.causal else -m, m)
        return np.maximum(d, 0) if self.causal else d + most

    def values(self, d):
        return self.gather(self.rows(d))

    def gather(self, rows):
        return self.p["table"][:, rows]


class T5(Bias):
    def scale(self):
        return self.D**-0.5 if self.o["divided"] == "qk" else 1.0

    def far(self, n, m, e):
        """The bucket of distances n >= e, in whole numbers."""
        most = self.o["max_distance"]
        begins = []
        for k in range(m - e):
            low, high = e, most
            while low < high:
                middle = (low + high) // 2
                if most**k * e ** (m - e) <= middle ** (m - e) * e**k:
                    high = middle
                else:
                    low = middle + 1
            begins.append(low)
        return e + np.searchsorted(begins, n, side="right") - 1

    def sides(self, d):
        """Distance, buckets for it, and what is added for the future."""
        if self.causal:
            return np.maximum(d, 0), self.o["buckets"], 0
        m = self.o["buckets"] // 2
        return abs(d), m, m * (d < 0)

    def bucket(self, d):
        n, m, future = self.sides(d)
        e = m // 2
        return np.where(n < e, n, self.far(np.maximum(n, e), m, e)) + future

    def values(self, d):
        b = self.gather(self.bucket(d))
        return b.transpose(b.ndim - 1, *range(b.ndim - 1))

    def gather(self, rows):
        return self.p["table"][rows]


class Sandwich(Bias):
    def waves(self):
        k, width = np.arange(self.o["width"] // 2), self.o["width"]
        return self.o["base"] ** (-2.0 * (k + (self.o["form"] == "nemo")) / width)

    def shares(self):
        return self.H / (8 * np.arange(1, self.H + 1))

    def values(self, d):
        s = np.cos(d.astype(self.work)[..., None] * self.waves().astype(self.work)).sum(-1)
        if self.o["form"] == "nemo":
            s = s - self.o["width"] / 2
        return self.column(self.shares(), d).astype(self.work) * s


class DynamicBias(Bias):
    def given(self, d):
        d = d.astype(self.work)
        return np.sign(d) * np.log1p(abs(d)) if self.o["distance"] == "log" else d

    def active(self, x):
        return relu(x) if self.o["activation"] == "relu" else silu(x)

    def norm(self, u, k):
        u = u - u.sum(-1).reshape(*u.shape[:-1], 1) / u.shape[-1]
        var = (u * u).sum(-1).reshape(*u.shape[:-1], 1) / u.shape[-1]
        return u / sqrt(var + self.norm_eps()) * self.p[f"norm{k}.weight"] + self.p[f"norm{k}.bias"]

    def norm_eps(self):
        return 1e-5

    def values(self, d):
        y = V(self.given(d)[..., None])
        for k in range(1, self.o["depth"] + 1):
            y = linear(y, self.p[f"{k}.weight"]) + self.p[f"{k}.bias"]
            y = self.active(self.norm(y, k) if self.o["norm"] == "layer" else y)
        y = self.last(linear(y, self.p[f"{self.o['depth'] + 1}.weight"]))
        return y.transpose(y.ndim - 1, *range(y.ndim - 1))

    def last(self, y):
        return 16 * sigmoid(y) if self.o["output"] == "sigmoid" else y
