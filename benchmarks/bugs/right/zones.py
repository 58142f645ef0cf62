"""Attention that turns by other places than i - j where the key is far, PoPE, and DeBERTa's two terms."""

import numpy as np

from ..tape import cos, einsum, linear, sin, softplus
from .base import Attention, apart
from .terms import Term, heads


class Zones(Attention):
    """Each has between(i, j): how far a query turns towards a key, [...,T,S] whole or real numbers."""

    def attention(self, q, i, keys, see):
        e = self.between(i[..., :, None], keys["i"][..., None, :])
        e = np.broadcast_to(e, (self.B, *e.shape[-2:]))
        self.angle = (e[..., None] * self.frequencies()).astype(self.work)  # [B,T,S,n]
        return super().attention(q, i, keys, see)

    def frequencies(self):
        return self.o["base"] ** (-2.0 * np.arange(self.R // 2) / self.R)

    def products(self, q, k):
        k, n = k[:, self.reads()], self.R // 2
        first, second = (
            (slice(n), slice(n, 2 * n)) if self.layout == "half" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
        )
        qa, qb, ka, kb = (x[..., part] for x in (q, k) for part in (first, second))
        turn = lambda x, y, wave: einsum("bhtn,bhsn,btsn->bhts", x, y, wave)
        c, s = np.cos(self.angle), np.sin(self.angle)
        near = turn(qa, ka, c) + turn(qb, kb, c) + turn(qa, kb, s) - turn(qb, ka, s)
        rest = einsum("bhtd,bhsd->bhts", q[..., 2 * n :], k[..., 2 * n :])
        return near + rest


class Rerope(Zones):
    def near(self):
        return max(1, self.L // 8) if self.o["near"] is None else self.o["near"]

    def between(self, i, j):
        return np.where(i - j < self.near(), i - j, self.far(i, j))

    def far(self, i, j):
        w = self.near()
        return w + self.o["leak"] * (i - j - w)


class SelfExtend(Zones):
    def neighbours(self):
        return max(1, self.L // 4) if self.o["neighbor_window"] is None else self.o["neighbor_window"]

    def group(self, i):
        return np.floor(i / self.o["group_size"])

    def shift(self):
        w, g = self.neighbours(), self.o["group_size"]
        return w - np.floor(w / g)

    def between(self, i, j):
        return np.where(i - j < self.neighbours(), i - j, self.group(i) + self.shift() - self.group(j))


class DualChunk(Zones):
    def sizes(self):
        """The chunk that was trained for, and the length of those here."""
        m = 3 * self.L // 4 if self.o["chunk_size"] is None else self.o["chunk_size"]
        local = self.L // 16 if self.o["local_window"] is None else self.o["local_window"]
        return m, m - local

    def last(self):
        """Where queries end for the chunk before, and stand for those before that."""
        m, c = self.sizes()
        return (m - 1, m - 1) if self.o["ends"] == "paper" else (m, min(2 * c - 1, m))

    def successive(self, i):
        return np.minimum(i % self.sizes()[1] + self.sizes()[1], self.last()[0])

    def between(self, i, j):
        c = self.sizes()[1]
        chunks = i // c - j // c
        far = np.where(chunks == 1, self.successive(i), self.last()[1])
        return np.where(chunks <= 0, i % c, far) - j % c


class Pope(Attention):
    def magnitude(self, x):
        return softplus(x)

    def frequencies(self):
        return self.o["base"] ** (-np.arange(self.D) / self.D)

    def phase(self):
        """[H,D], what is taken from the phase of each channel."""
        return self.p["delta"][self.reads()]

    def attention(self, q, i, keys, see):
        d = apart(i, keys["i"])
        d = np.broadcast_to(d, (self.B, *d.shape[-2:]))
        self.angle = (d[..., None] * self.frequencies()).astype(self.work)
        return super().attention(q, i, keys, see)

    def products(self, q, k):
        q, k = self.magnitude(q), self.magnitude(k)[:, self.reads()]
        delta = self.phase()
        c, s = np.cos(self.angle), np.sin(self.angle)
        turned = lambda wave, part: einsum("bhtc,bhsc,btsc,hc->bhts", q, k, wave, part)
        return turned(c, cos(delta)) + turned(s, sin(delta))

    def scale(self):
        return (2 * self.D if self.o["divided_by"] == "sqrt_2D" else self.D) ** -0.5


class Deberta(Term):
    def scale(self):
        return (3 * self.D) ** -0.5

    def bucket(self, n):
        m = self.o["buckets"] // 2
        reach = np.log((self.o["max_distance"] - 1) / m)
        far = m + self.rounded((m - 1) * np.log(np.maximum(n, 1) / m) / reach)
        return np.where(n <= m, n, far)

    def rounded(self, x):
        return np.ceil(x - 1e-9)

    def distance(self, i, j):
        return apart(i, j)

    def rows(self, i, j):
        d, size = self.distance(i, j), self.o["buckets"]
        found = np.sign(d) * self.bucket(abs(d))
        return (np.clip(found, -size, size - 1) + size).astype(int)

    def vectors(self):
        """What queries and keys meet, [rows,H,D] each."""
        table = self.p["table"].reshape(1, *self.p["table"].shape)
        K = linear(table, self.p["key.weight"])
        Q = linear(table, self.p["query.weight"]) + self.p["query.bias"]
        return heads(K, self.H)[0], heads(Q, self.H)[0]

    def share(self):
        return (3 * self.D) ** -0.5

    def bias(self, q, i, keys, see):
        r = self.rows(i, keys["i"])
        r = np.broadcast_to(r, (self.B, *r.shape[-2:]))
        K, Q = self.vectors()
        b, h, t, s = np.ix_(*map(np.arange, (self.B, self.H, *r.shape[1:])))
        r = r[:, None]
        of_queries = einsum("bhtd,hnd->bhtn", q, K)[b, h, t, r]
        of_keys = einsum("bhsd,hnd->bhsn", keys["k"][:, self.reads()], Q)[b, h, s, r]
        return self.terms(of_queries, of_keys) * self.share()

    def terms(self, of_queries, of_keys):
        return of_queries + of_keys
