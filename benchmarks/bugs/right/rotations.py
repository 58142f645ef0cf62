"""Rotations of q and k."""

import numpy as np

from .. import tape
from ..tape import V, join
from .base import Attention, across


def cosine(x):
    return tape.cos(x) if isinstance(x, V) else np.cos(x)


def sine(x):
    return tape.sin(x) if isinstance(x, V) else np.sin(x)


class Rope(Attention):
    levels = ("table", "op", "attn", "trace")

    def width(self):
        return self.R

    def original(self):
        return self.o.get("original") or self.L

    def factor(self, n):
        s = self.o["factor"]
        return max(s, n / self.original()) if self.o.get("form") == "dynamic" else s

    def base(self):
        return self.o["base"]

    def exponents(self):
        return np.arange(0, self.R, 2) / self.R

    def plain(self):
        return self.base() ** -self.exponents()

    def ladder(self, n):
        return self.p["frequency"] if self.o.get("learned") else self.plain()

    def places(self, i):
        return np.asarray(i).astype(self.work)

    def angles(self, i, n):
        w = self.ladder(n)
        i = self.places(i)[..., None]
        return w * i if isinstance(w, V) else i * w.astype(self.work)

    def gains(self, i, n):
        """Of q and of k, or None; what they are multiplied by."""

    def tables(self, i, n):
        angle = self.angles(i, n)
        return angle, cosine(angle), sine(angle)

    def table(self):
        angle, c, s = self.tables(self.i, self.n)
        found = {"angle": angle, "cos": c, "sin": s}
        for name, g in zip("qk", self.gains(self.i, self.n) or (1.0, 1.0), strict=True):
            found["gain_" + name] = np.broadcast_to(np.asarray(g, self.work), angle.shape)
        return found

    def pairs(self):
        R = self.width()
        if self.layout == "half":
            return np.arange(R // 2), np.arange(R // 2, R)
        return np.arange(0, R, 2), np.arange(1, R, 2)

    def turn(self, x, c, s, g, side="q"):
        first, second = self.pairs()
        a, b = x[..., first], x[..., second]
        y, z = self.formula(a, b, c, s)
        if g is not None:
            y, z = y * g, z * g
        rest = np.setdiff1d(np.arange(self.D), np.concatenate([first, second]))
        order = np.argsort(np.concatenate([first, second, rest]))
        return join([y, z, self.passed(x[..., rest])], -1)[..., order]

    def formula(self, a, b, c, s):
        return a * c - b * s, a * s + b * c

    def passed(self, x):
        return x

    def turned(self, x, i, n, side):
        _angle, c, s = self.tables(i, n)
        g = self.gains(i, n)
        lift = lambda y: across(y) if raw_ndim(y) > 2 else y
        g = None if g is None else np.asarray(g["qk".index(side)], self.work)
        return self.turn(x, lift(c), lift(s), lift(g) if g is not None and g.ndim else g, side)

    def op(self):
        return {f"{n}_rotated": self.turned(self.a[n], self.i, self.n, n) for n in "qk"}


def raw_ndim(x):
    return x.ndim


class Pi(Rope):
    def ladder(self, n):
        return self.plain() / self.factor(n)


class Ntk(Rope):
    def ladder(self, n):
        return self.plain() * self.stretch(self.o["factor"])

    def stretch(self, s):
        R, n, form = self.R, np.arange(self.R // 2), self.o["form"]
        if form == "bloc97":
            return float(s) ** (-2 * n / (R - 2))
        if form == "kexue":
            return float(s) ** (-2 * (n + 1) / R)
        b = 0.625 if self.o["mixed_b"] is None else self.o["mixed_b"]
        return np.exp(-np.log(s) / (R / 2) ** b * (n + 1) ** b)


class DynamicNtk(Rope):
    def ladder(self, n):
        return self.plain() * float(self.grown(n)) ** (-2 * np.arange(self.R // 2) / (self.R - 2))

    def grown(self, n):
        L, factor = self.original(), self.o["factor"]
        m = factor * L if self.o["form"] == "static" else max(n, L)
        if self.o["form"] == "steps":
            k = 0
            while m > 2**k * L:
                k += 1
            return 2 ** (k + 1) - 1
        return factor * m / L - (factor - 1)


class Llama3(Rope):
    def blend(self, turns):
        low, high = self.o["low_freq_factor"], self.o["high_freq_factor"]
        if low == high:
            return np.where(turns > low, 1.0, 0.0)
        return np.clip((turns - low) / (high - low), 0, 1)

    def ladder(self, n):
        w = self.plain()
        t = self.blend(self.original() * w / (2 * np.pi))
        return (1 - t) * w / self.o["factor"] + t * w


class Ramped(Rope):
    def pair(self, turns):
        return self.R * np.log(self.original() / (2 * np.pi * turns)) / (2 * np.log(self.base()))

    def ends(self, fast, slow):
        low, high = self.pair(fast), self.pair(slow)
        if self.o.get("truncate", True):
            low, high = np.floor(low), np.ceil(high)
        low, high = max(low, 0), min(high, self.R - 1)
        return low, high + 0.001 if low == high else high

    def ramp(self, fast, slow):
        low, high = self.ends(fast, slow)
        return np.clip((np.arange(self.R // 2) - low) / (high - low), 0, 1)


class NtkByParts(Ramped):
    def ladder(self, n):
        s, w = self.factor(n), self.plain()
        v = w * float(s) ** (-2 * np.arange(self.R // 2) / (self.R - 2))
        b = 1 - (1 - self.ramp(*self.o["beta"])) * self.o["ntk_factor"]
        c = 1 - (1 - self.ramp(*self.o["gamma"])) * self.o["extrapolation_factor"]
        return c * (b * w / s + (1 - b) * v) + (1 - c) * w


class Yarn(Ramped):
    def blend(self):
        fast, slow = self.o["beta_fast"], self.o["beta_slow"]
        if self.o["ramp"] == "paper":
            turns = self.original() * self.plain() / (2 * np.pi)
            return 1 - np.clip((turns - slow) / (fast - slow), 0, 1)
        return self.ramp(fast, slow)

    def ladder(self, n):
        w = self.plain()
        g = 1 - (1 - self.blend()) * self.o["extrapolation_factor"]
        return g * w / self.factor(n) + (1 - g) * w

    def y(self, x, n):
        s = self.factor(n)
        return 0.1 * x * np.log(s) + 1 if s > 1 else 1.0

    def gain(self, n):
        o = self.o
        if o["attention_factor"] is not None:
            return o["attention_factor"]
        m, every = o["mscale"], o["mscale_all_dim"]
        if m and every:
            return self.y(m, n) / self.y(every, n)
        if (m is None and every is None) or o["reading"] == "huggingface":
            return self.y(1, n)
        return self.y(m or 1, n) / self.y(every or 0, n)

    def gains(self, i, n):
        return self.gain(n), self.gain(n)

    def call(self, first, stop, n, cache):
        self.now = n
        return super().call(first, stop, n, cache)

    def scale(self):
        every = self.o["mscale_all_dim"]
        return self.D**-0.5 * (self.y(every, self.now) ** 2 if every else 1)


class LongRope(Ramped):
    def long(self, n):
        return n > self.original()

    def stretch(self, n):
        given = self.o["long_factor"] if self.long(n) else self.o["short_factor"]
        if given is not None:
            return np.asarray(given)
        g = self.ramp(32, 1)
        return 1 / (g / self.o["factor"] + 1 - g) if self.long(n) else np.ones(self.R // 2)

    def gain(self, n):
        own = self.o["long_mscale"] if self.long(n) else self.o["short_mscale"]
        if own is not None:
            return own
        if self.o["attention_factor"] is not None:
            return self.o["attention_factor"]
        s = self.o["factor"]
        return np.sqrt(1 + np.log(s) / np.log(self.original())) if s > 1 else 1.0

    def early(self, i):
        i = np.asarray(i)
        return ((i >= 0) & (i < self.o["start_tokens"]))[..., None]

    def angles(self, i, n):
        at = self.places(i)[..., None]
        w = np.where(self.early(i), self.plain(), self.plain() / self.stretch(n)).astype(self.work)
        return at * w

    def gains(self, i, n):
        g = np.where(self.early(i), 1.0, self.gain(n)) * np.ones(self.R // 2)
        return g, g


class PRope(Rope):
    def turning(self):
        return int(self.o["fraction"] * self.R // 2)

    def ladder(self, n):
        return np.where(np.arange(self.R // 2) < self.turning(), self.plain() / self.o["factor"], 0)


class XPos(Rope):
    def zeta(self):
        gamma = self.o["gamma"]
        return (2 * np.arange(self.R // 2) / self.R + gamma) / (1 + gamma)

    def power(self, i):
        return (np.asarray(i)[..., None] - self.o["centre"]) / self.o["scale_base"]

    def gains(self, i, n):
        power = self.power(i)
        return self.zeta() ** power, self.zeta() ** -power


RATIOS = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}


class MRope(Rope):
    def sections(self):
        if self.o["sections"] is not None:
            return self.o["sections"]
        ratio, P = RATIOS[self.o["order"]], self.R // 2
        exact = [r * P / sum(ratio) for r in ratio]
        found = [int(x) for x in exact]
        for n in sorted(range(3), key=lambda n: found[n] - exact[n])[: P - sum(found)]:
            found[n] += 1
        return found

    def axes(self):
        """The axis of each pair."""
        (t, h, w), n = self.sections(), np.arange(self.R // 2)
        if self.o["order"] == "chunked":
            return np.where(n < t, 0, np.where(n < t + h, 1, 2))
        if self.o["order"] == "interleaved":
            return np.where((n % 3 == 1) & (n < 3 * h), 1, np.where((n % 3 == 2) & (n < 3 * w), 2, 0))
        return np.where(n < h + w, 1 + n % 2, 0)

    def angles(self, i, n):
        i = self.places(i)
        w = self.ladder(n).astype(self.work)
        if i.ndim < 3:
            return i[..., None] * w
        return np.moveaxis(i[self.axes()], 0, -1) * w


class Axial(Rope):
    def parts(self, i):
        """Row and column."""
        i = np.asarray(i)
        return (i[0], i[1]) if i.ndim == 3 else (i // self.o["width"], i % self.o["width"])

    def ladders(self):
        b, R, n = self.base(), self.R, np.arange(self.R // 4)
        kind = self.o["ladder"]
        if kind == "pixel":
            w = np.pi * np.linspace(1, self.o["max_freq"] / 2, R // 4)
            return w, w
        if kind == "global":
            return b ** (-2 * n / R), b ** (-2 * (n + R // 4) / R)
        return b ** (-4 * n / R), b ** (-(4 * n + (2 if kind == "alternate" else 0)) / R)

    def angles(self, i, n):
        row, column = (np.asarray(x).astype(self.work) for x in self.parts(i))
        if self.o["ladder"] == "pixel":
            row, column = (2 * x / (self.o["width"] - 1) - 1 for x in (row, column))
        a, b = self.ladders()
        return np.concatenate(
            [row[..., None] * a.astype(self.work), column[..., None] * b.astype(self.work)], -1
        )
