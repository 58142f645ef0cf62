"""The delta rule and its kin: layers with a state of keys by values."""

import numpy as np

from ..tape import V, einsum, exp, join, linear, log, sigmoid, silu, softplus, sqrt, stack
from .mixes import Mix
from .terms import conv


class Kin(Mix):
    """What they share; each has parts(x, ...): q, k, v [B,T,N,...], beta [B,T,N] or None, the logarithm of
    the decay [B,T,N,1 or D] or None.
    """

    def short(self, r, x, seg, state):
        """silu(conv(W_r x)), and what a cache keeps of it."""
        z = self.project(r, x)
        kept = join([state[r], z], 1) if r in state else z
        return silu(self.conv(r, z, state.get(r), seg)), kept

    def conv(self, r, z, tail, seg):
        return conv(z, self.p[r + ".conv"], tail, seg)

    def heads(self, x, N):
        return x.reshape(*x.shape[:2], N, -1)

    def scale(self):
        return self.D**-0.5

    def run(self, x, i, seg, state):
        (q, k, v, beta, g), kept = self.parts(x, seg, state)
        S, out = state.get("s"), []
        if S is None:
            S = V(np.zeros((self.B, v.shape[2], k.shape[3], v.shape[3]), self.work))
        for t in range(x.shape[1]):
            S = self.hold(S, t) * self.keep(seg, t)[:, None, None, None]
            b = None if beta is None else beta[:, t]
            decay = None if g is None else exp(g[:, t]).reshape(*g.shape[:1], *g.shape[2:], 1)
            o, S = self.one(S, q[:, t], k[:, t], v[:, t], b, decay)
            out.append(o)
        return self.leave(stack(out, 1), x, v), kept | {"s": S}

    def one(self, S, q, k, v, b, decay):
        S = self.decayed(S, decay)
        S = S + self.written(k, self.change(S, k, v, b))
        return self.read(S, q), S

    def decayed(self, S, decay):
        return S if decay is None else S * decay

    def change(self, S, k, v, b):
        """What is written under k."""
        return (v - self.read(S, k)) * b.reshape(*b.shape, 1)

    def written(self, k, u):
        return einsum("bnk,bnv->bnkv", k, u)

    def read(self, S, q):
        return einsum("bnkv,bnk->bnv", S, q)

    def hold(self, S, t):
        return S

    def leave(self, o, x, v):
        o = self.gated(self.normed(o), x)
        return self.project("o", o.reshape(*o.shape[:2], -1))

    def normed(self, o):
        return o / self.root(o) * self.p["norm.weight"]

    def root(self, o):
        size = (o * o).sum(-1) / o.shape[-1] + self.o["eps"]
        return sqrt(size).reshape(*o.shape[:-1], 1)

    def gated(self, o, x):
        return o


class DeltaNet(Kin):
    def parts(self, x, seg, state):
        made = {r: self.short(r, x, seg, state) for r in "qkv"}
        q, k = (self.unit(self.heads(made[r][0], self.H)) for r in "qk")
        N = self.value_heads()
        v = self.heads(made["v"][0], N)
        kept = {r: z for r, (_, z) in made.items()}
        of = self.reads(N)
        return (q[:, :, of] * self.scale(), k[:, :, of], v, self.beta(x), self.log_decay(x)), kept

    def value_heads(self):
        return self.H

    def reads(self, N):
        """The head of q and k of each head of v."""
        return np.arange(N) // (N // self.H)

    def unit(self, x):
        return x / sqrt((x * x).sum(-1) + self.o["unit_eps"]).reshape(*x.shape[:-1], 1)

    def beta(self, x):
        return sigmoid(self.project("b", x)) * self.o["max_beta"]

    def log_decay(self, x):
        return None


class GatedDeltaNet(DeltaNet):
    def value_heads(self):
        return self.H * self.o["value_heads"]

    def log_decay(self, x):
        g = self.rate() * self.step(self.project("a", x))
        return g.reshape(*g.shape, 1)

    def rate(self):
        return -exp(self.p["A_log"])

    def step(self, z):
        return softplus(z + self.p["dt.bias"])

    def gated(self, o, x):
        return silu(self.heads(self.project("z", x), o.shape[2])) * o


class Kda(DeltaNet):
    def log_decay(self, x):
        z = linear(self.project("f.down", x), self.p["f.up.weight"])
        return self.heads(self.step(z), self.H) * self.rate().reshape(self.H, 1)

    def rate(self):
        return -exp(self.p["A_log"])

    def step(self, z):
        return softplus(z + self.p["dt.bias"])

    def gated(self, o, x):
        z = linear(self.project("g.down", x), self.p["g.up.weight"])
        return sigmoid(self.heads(z, self.H)) * o


class Gla(Kin):
    def parts(self, x, seg, state):
        q, k, v = (self.heads(self.project(r, x), self.H) for r in "qkv")
        return (q * self.scale(), k, v, None, self.heads(self.log_alpha(x), self.H)), {}

    def log_alpha(self, x):
        z = linear(self.project("g.down", x), self.p["g.up.weight"]) + self.p["g.bias"]
        return log(sigmoid(z)) / self.normalizer()

    def normalizer(self):
        return self.o["normalizer"]

    def change(self, S, k, v, b):
        return v

    def gated(self, o, x):
        return silu(self.heads(self.project("z", x), self.H)) * o


class Mamba2(Kin):
    def parts(self, x, seg, state):
        made = {r: self.short(r, x, seg, state) for r in "xbc"}
        N, G = self.o["expand"] * self.H, self.o["groups"]
        u = self.heads(made["x"][0], N)
        B, C = (self.heads(made[r][0], G)[:, :, self.reads(N, G)] for r in "bc")
        dt = self.step(self.project("dt", x))
        g = dt * self.rate()
        kept = {r: z for r, (_, z) in made.items()}
        return (C, B, u, dt, g.reshape(*g.shape, 1)), kept

    def conv(self, r, z, tail, seg):
        return conv(z, self.p[r + ".conv"], tail, seg) + self.p[r + ".conv.bias"]

    def reads(self, N, G):
        return np.arange(N) // (N // G)

    def step(self, z):
        return softplus(z + self.p["dt.bias"])

    def rate(self):
        return -exp(self.p["A_log"])

    def change(self, S, k, v, b):
        return v * b.reshape(*b.shape, 1)

    def leave(self, o, x, v):
        o = self.skip(o, v)
        o = o.reshape(*o.shape[:2], -1)
        return self.project("o", self.through_norm(o, silu(self.project("z", x))))

    def skip(self, o, u):
        return o + u * self.p["D"].reshape(-1, 1)

    def through_norm(self, o, gate):
        return self.normed(o * gate)

    def normed(self, o):
        parts = self.heads(o, self.norm_groups())
        return (parts / self.root(parts)).reshape(*o.shape) * self.p["norm.weight"]

    def norm_groups(self):
        return self.o["groups"]
