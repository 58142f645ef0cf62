"""What all of them share: inputs, levels, attention, the mask, the cache. A bug replaces one of these
methods.
"""

import numpy as np

from .. import tape
from ..tape import V, einsum, exp, join, raw, where

AXIS = {
    "k": -2,
    "v": -2,
    "gate_key": -2,
    "w": -2,
    "z": -2,
}  # of the tokens, in what a cache keeps; else the last


class Encoding:
    """One case of one encoding, computed as an outside program would: in float64, or all in float32."""

    levels = ()

    def __init__(self, case, inputs, work):
        self.case, self.o, self.work = case, case["options"], work
        for name in ("B", "H", "G", "T", "D", "C", "L", "R", "n", "layout", "causal", "window"):
            setattr(self, name, case["facts"].get(name))
        self.calls = case["facts"].get("calls")
        self.i, self.seg = inputs.get("positions"), inputs.get("seg")
        self.distances = inputs.get("distances")
        plain = {"positions", "seg", "distances"}
        self.a = {
            k: V(np.asarray(x).astype(work)) for k, x in inputs.items() if k not in plain and "cotan" not in k
        }
        self.p = {k[6:]: x for k, x in self.a.items() if k.startswith("param.")}
        self.cotangents = {
            k[10:]: np.asarray(x).astype(work) for k, x in inputs.items() if k[:10] == "cotangent."
        }

    def answer(self):
        """Outputs, and the derivatives of what has a cotangent by every input that the case wants."""
        found = getattr(self, self.case["level"])()
        pairs = [(found[k], c) for k, c in self.cotangents.items() if isinstance(found[k], V)]
        names = [k[4:] for k in self.case["expected"] if k.startswith("vjp.")]
        back = (
            dict(zip(names, tape.gradients(pairs, [self.a[n] for n in names]), strict=True)) if pairs else {}
        )
        for name in names:
            found["vjp." + name] = back.get(name, np.zeros(self.a[name].shape))
        return {k: raw(found[k]) for k in self.case["expected"]}

    # How calls through a cache go on: what begins anew, which positions the new rows have.

    def begin(self, cache):
        return {}

    def call_positions(self, first, stop, cache):
        return self.i[..., first:stop]

    def call_length(self, call):
        return call["n"]


class Attention(Encoding):
    """Softmax attention, to which an encoding adds what it adds. Alone it has no position at all."""

    levels = ("attn", "trace")

    def reads(self):
        """The key-value head of each query head."""
        return np.arange(self.H) // (self.H // self.G)

    def scale(self):
        return self.D**-0.5

    def turned(self, x, i, n, side):
        return x

    def visible(self, query, key, qseg=None, kseg=None):
        """[B or 1, 1, queries, keys], by slots."""
        back = query[:, None] - key
        see = back >= 0 if self.causal else np.ones(back.shape, bool)
        if self.window is not None:
            see &= self.inside(back)
        see = see[None, None]
        if qseg is not None:
            see = see & self.together(qseg[:, None, :, None], kseg[:, None, None])
        return see

    def inside(self, back):
        return abs(back) < self.window

    def together(self, mine, theirs):
        return (mine == theirs) & (mine != 0)

    def new(self, name, first, stop):
        x = self.a[name]
        return x[:, first:stop] if name == "x" else x[:, :, first:stop]

    def kept(self, first, stop, i, n, cache):
        """What the cache keeps of new tokens."""
        found = dict(k=self.turned(self.new("k", first, stop), i, n, "k"), i=i)
        if "v" in self.a:
            found["v"] = self.new("v", first, stop)
        if self.seg is not None:
            found["seg"] = self.seg[..., first:stop]
        return found | self.features(first, stop, i, cache)

    def features(self, first, stop, i, cache):
        return {}

    def append(self, cache, new):
        if not cache:
            return new
        put = lambda k, x: join([cache[k], x], AXIS.get(k, -1)) if isinstance(x, V) else None
        return {k: put(k, x) or np.concatenate([cache[k], x], -1) for k, x in new.items()}

    def bias(self, q, i, keys, see):
        """What is added to the scaled scores, or None. The queries are the last rows of the cache."""

    def call(self, first, stop, n, cache):
        i = self.call_positions(first, stop, cache)
        keys = self.append(cache, self.kept(first, stop, i, n, cache))
        q = self.turned(self.new("q", first, stop), i, n, "q")
        S = keys["k"].shape[2]
        T = stop - first
        see = self.visible(
            self.query_slots(T, S),
            np.arange(S),
            keys["seg"][:, S - T :] if "seg" in keys else None,
            keys.get("seg"),
        )
        return self.attention(q, i, keys, see), keys

    def query_slots(self, T, S):
        return np.arange(S - T, S)

    def products(self, q, k):
        return einsum("bhtd,bhsd->bhts", q, k[:, self.reads()])

    def attention(self, q, i, keys, see):
        scores = self.products(q, keys["k"]) * self.scale()
        added = self.bias(q, i, keys, see)
        hidden = False
        if added is not None:
            hidden = see & (raw(added) == -np.inf)
            see = see & (raw(added) > -np.inf)
            scores = self.add(scores, where(see, added) if isinstance(added, V) else np.where(see, added, 0))
        p = self.softmax(scores, see)
        scores = where(hidden, -np.inf, where(see, scores))
        return dict(scores=scores, probabilities=p, out=self.mix(p, keys))

    def add(self, scores, added):
        return scores + added

    def mix(self, p, keys):
        return einsum("bhts,bhsd->bhtd", p, keys["v"][:, self.reads()])

    def softmax(self, scores, see):
        high = np.max(np.where(see, scores.a, -np.inf), -1, keepdims=True)
        e = where(see, exp(where(see, scores - np.where(high > -np.inf, high, 0), 0.0)))
        total = e.sum(-1)
        return e / (total + (total.a == 0)).reshape(*total.shape, 1)

    def attn(self):
        return self.call(0, self.T, self.n, {})[0]

    def trace(self):
        out, cache = [], {}
        for call in self.calls:
            if call["fresh"]:
                cache = self.begin(cache)
            found, cache = self.call(call["first"], call["stop"], self.call_length(call), cache)
            out.append(found["out"])
            cache = self.after(cache)
        return {"out": join(out, 2)}

    def after(self, cache):
        return cache


def across(x):
    """[B,...] or [...] of two last axes, with an axis for heads before them."""
    return x[..., None, :, :]


def apart(i, j):
    """d = i - j, rows queries."""
    return i[..., :, None] - j[..., None, :]
