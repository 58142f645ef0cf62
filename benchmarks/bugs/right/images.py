"""Encodings of patches of an image: rows and columns."""

import numpy as np

from ..tape import V, linear, relu, sigmoid
from .biases import Bias
from .mixes import Embed


class Sincos2d(Embed):
    def places(self, i):
        """Row and column, [T] or [B,T] each."""
        i = np.asarray(i)
        row, column = (i[0], i[1]) if i.ndim == 3 else (i // self.o["width"], i % self.o["width"])
        return row.astype(self.work), column.astype(self.work)

    def ladder(self, h):
        k = np.arange(h)
        return self.o["base"] ** (-k / (max(h - 1, 1) if self.o["ladder"] == "endpoint" else max(h, 1)))

    def order(self, row, column):
        return (row, column) if self.o["first"] == "rows" else (column, row)

    def waves(self, sin, cos):
        if self.o["layout"] == "interleaved":
            return np.stack([sin, cos], -1).reshape(*sin.shape[:-1], -1)
        return np.concatenate([sin, cos], -1)

    def rows(self, i):
        row, column = self.places(i)
        w = self.ladder(self.C // 4).astype(self.work)
        found = [
            self.waves(np.sin(a), np.cos(a)) for x in self.order(row, column) for a in [x[..., None] * w]
        ]
        return V(np.concatenate([*found, np.zeros((*row.shape, self.C % 4), self.work)], -1))


class LogCpb(Bias):
    def between(self, d):
        w = self.o["columns"]
        r = np.floor((d + w - 1) / (2 * w - 1))
        return r, d - r * (2 * w - 1)

    def reach(self):
        return self.o["reach"] or max(self.o["columns"] - 1, 1)

    def spaced(self, x):
        return np.sign(x) * np.log2(1 + 8 * abs(x) / self.reach()) / np.log2(8)

    def network(self, x):
        return linear(relu(linear(x, self.p["1.weight"]) + self.p["1.bias"]), self.p["2.weight"])

    def squashed(self, b):
        return 16 * sigmoid(b)

    def values(self, d):
        d = np.asarray(d)
        given = np.stack([self.spaced(x) for x in self.between(d)], -1).astype(self.work)
        b = self.squashed(self.network(V(given.reshape(-1, 2))))
        return b.transpose(1, 0).reshape(-1, *d.shape)
