"""A layer without an encoding, or with those of the fact cycle, and the settings that any layer may have."""

import numpy as np

from ..tape import exp, raw, sqrt, tanh, where
from .base import Attention
from .biases import Alibi
from .images import LogCpb
from .rotations import Rope


class Layer(Attention):
    def __init__(self, case, inputs, work):
        super().__init__(case, inputs, work)
        (names, self.o), *_ = case["facts"].get("cycle") or [["none", self.o]]
        self.window = self.o.get("window", self.window)
        self.R, self.layout = self.o.get("rotary_dim", self.R or self.D), self.o.get("layout", self.layout)
        self.turning = self.beside(Rope, "rope", names)
        self.other = self.beside(Alibi, "alibi", names) or self.beside(LogCpb, "log_cpb", names)

    def beside(self, kind, name, names):
        """Another encoding of this layer, None where it has no such one."""
        if name not in names.split("+"):
            return None
        one = object.__new__(kind)
        one.__dict__.update(self.__dict__)
        one.o = {key.removeprefix(f"{name}."): x for key, x in self.o.items()}
        return one

    def bias(self, q, i, keys, see):
        return self.other and self.other.bias(q, i, keys, see)

    def scale(self):
        return self.o.get("scale", 1.0 if "cosine" in self.p else super().scale())

    def factor(self, i):
        """What queries at positions i are multiplied by, as [...,T,1]."""
        kind, L = self.o.get("temperature", "none"), self.o.get("temperature_length", self.L)
        b = self.o.get("temperature_slope", 0.1)
        f = {
            "none": lambda: np.ones(i.shape),
            "llama4": lambda: 1 + b * np.log1p((i + 1) // L),
            "ministral3": lambda: 1 + b * np.log1p(i // L),
            "logn": lambda: np.maximum(1, np.log(i + 1) / np.log(L)),
            "ssmax": lambda: np.log(i + 1),
        }[kind]()
        return f.astype(self.work)[..., None]

    def turned(self, x, i, n, side):
        if "cosine" in self.p:
            norm = sqrt((x * x).sum(-1))
            x = x / where(raw(norm) > 1e-12, norm, 1e-12).reshape(*norm.shape, 1)
        if "cosine" in self.p and side == "q":
            s = self.p["cosine"]
            x = x * exp(where(raw(s) < np.log(100), s, np.log(100.0))).reshape(self.H, 1, 1)
        x = self.turning.turned(x, i, n, side) if self.turning else x
        if side != "q" or "temperature" not in self.o:
            return x
        f = self.factor(np.asarray(i, float))
        x = x * (f if f.ndim == 2 else f[:, None])
        return x * self.p["temperature"].reshape(self.H, 1, 1) if "temperature" in self.p else x

    def products(self, q, k):
        z = super().products(q, k)
        cap = self.o.get("softcap")
        return z if cap is None else tanh(z * (self.scale() / cap)) * (cap / self.scale())

    def visible(self, query, key, qseg=None, kseg=None):
        """Chunks and global tokens are counted from the first token of each document."""
        see = super().visible(query, key, qseg, kseg)
        chunk, g = self.o.get("chunk"), self.o.get("global_tokens", 0)
        if chunk is None and not g:
            return see
        first = lambda seg: np.array([[list(row).index(s) for s in row] for row in seg])
        t, s = (query[None], key[None])
        if kseg is not None:
            t, s = t - first(kseg)[:, query], s - first(kseg)
        t, s = t[:, None, :, None], s[:, None, None, :]
        if chunk is not None:
            see = see & (t // chunk == s // chunk)
        if not g:
            return see
        window, self.window = self.window, None
        every = super().visible(query, key, qseg, kseg)
        self.window = window
        return see | (every & ((t < g) | (s < g)))

    def softmax(self, scores, see):
        if "sinks" not in self.p:
            return super().softmax(scores, see)
        sink = self.p["sinks"].reshape(self.H, 1, 1)
        high = np.maximum(np.max(np.where(see, raw(scores), -np.inf), -1, keepdims=True), raw(sink))
        e = where(see, exp(where(see, scores - high, 0.0)))
        total = e.sum(-1)
        return e / (total.reshape(*total.shape, 1) + exp(sink - high))
