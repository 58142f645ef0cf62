"""Added to the embedding, and in place of attention."""

import numpy as np

from .. import tape
from ..tape import (
    V,
    absolute,
    einsum,
    exp,
    expm1,
    join,
    linear,
    maximum,
    sigmoid,
    silu,
    softplus,
    sqrt,
    stack,
    tanh,
    where,
)
from .base import Encoding
from .rotations import Rope
from .terms import conv, same


class Embed(Encoding):
    levels = ("table", "op", "trace")

    def table(self):
        return {"rows": self.rows(self.i)}

    def op(self):
        return {"y": self.a["x"] + self.rows(self.i)}

    def trace(self):
        out, past = [], 0
        for call in self.calls:
            past = self.began(past) if call["fresh"] else past
            i = self.call_positions(call["first"], call["stop"], past)
            out.append(self.a["x"][:, call["first"] : call["stop"]] + self.rows(i))
            past += call["stop"] - call["first"]
        return {"y": join(out, 1)}

    def began(self, past):
        return 0


class Sinusoidal(Embed):
    def ladder(self):
        h = self.C // 2
        k = np.arange((self.C + 1) // 2 if self.o["layout"] == "interleaved" else h)
        if self.o["ladder"] == "endpoint":
            return self.o["base"] ** (-k / max(h - 1, 1))
        return self.o["base"] ** (-2.0 * k / self.C)

    def order(self, s, c):
        C = self.C
        if self.o["layout"] == "interleaved":
            y = np.zeros((*s.shape[:-1], C), self.work)
            y[..., 0::2], y[..., 1::2] = s, c[..., : C // 2]
            return y
        return np.concatenate([s, c, np.zeros((*s.shape[:-1], C % 2), self.work)], -1)

    def places(self, i):
        return np.asarray(i).astype(self.work)

    def rows(self, i):
        angle = self.places(i)[..., None] * self.ladder().astype(self.work)
        y = self.order(np.sin(angle), np.cos(angle))
        return self.p["scale"] * y if self.o["learned"] else V(y)


class Learned(Embed):
    def index(self, i):
        return np.asarray(i)

    def rows(self, i):
        t = self.gather(self.p["table"], self.index(i))
        return t / sqrt((t * t).sum(-1) + 1e-24).reshape(*t.shape[:-1], 1) if self.o["unit"] else t

    def gather(self, table, i):
        return table[i]


class Mix(Encoding):
    """y of x, row after row; `state` is what a cache hands from call to call."""

    levels = ("op", "trace")

    def op(self):
        return {"y": self.padded(self.run(self.a["x"], self.i, self.seg, {})[0])}

    def padded(self, y):
        return y if self.seg is None else y * (self.seg != 0)[..., None]

    def trace(self):
        out, state = [], {}
        for call in self.calls:
            first, stop = call["first"], call["stop"]
            state = self.begin(state) if call["fresh"] else state
            y, new = self.run(
                self.a["x"][:, first:stop], self.call_positions(first, stop, state), None, state
            )
            state = self.after(state, new)
            out.append(y)
        return {"y": join(out, 1)}

    def after(self, old, new):
        return new

    def keep(self, seg, t):
        """1 where the row before is of the same document, in [B]."""
        return np.ones(self.B) if seg is None else self.joined(seg)[:, t]

    def joined(self, seg):
        return same(seg, 1).astype(self.work)

    def shifted(self, x, seg, state):
        """x_(t-1); 0 before the first of a document."""
        tail = state.get("x", V(np.zeros((self.B, 1, x.shape[2]), self.work)))
        y = join([tail, x], 1)[:, :-1]
        return y if seg is None else y * self.joined(seg)[..., None]

    def cut(self, x):
        """[B,T,H D] as [B,T,H,D]."""
        return x.reshape(*x.shape[:2], self.H, -1)

    def lora(self, name, z, f=None, bias=True):
        y = linear(z, self.p[name + ".down.weight"])
        y = linear(f(y) if f else y, self.p[name + ".up.weight"])
        return y + self.p[name + ".bias"] if bias else y

    def head_norm(self, y, eps):
        """[B,T,H,D], each head by itself; then weight and bias."""
        D = y.shape[-1]
        y = y - (y.sum(-1) / D).reshape(*y.shape[:-1], 1)
        y = y / sqrt((y * y).sum(-1) / D + eps).reshape(*y.shape[:-1], 1)
        y = y.reshape(*y.shape[:2], -1)
        return y * self.p["norm.weight"] + self.p["norm.bias"]

    def project(self, name, x):
        return linear(x, self.p[name + ".weight"])


class Mamba(Mix):
    def inner(self, x, seg, state):
        z = self.project("x", x)
        return silu(self.conv(z, state.get("z"), seg) + self.p["conv.bias"]), z

    def conv(self, z, tail, seg):
        return conv(z, self.p["conv"], tail, seg)

    def low(self, u):
        found = [self.project(name, u) for name in ("down", "b", "c")]
        if self.o["norms"] == "rms":
            found = [
                self.rms(y, self.p[name + ".norm"]) for y, name in zip(found, ("down", "b", "c"), strict=True)
            ]
        return found

    def rms(self, y, weight):
        return y / sqrt((y * y).sum(-1) / y.shape[-1] + 1e-6).reshape(*y.shape[:-1], 1) * weight

    def step(self, low):
        return softplus(self.project("dt", low) + self.p["dt.bias"])

    def A(self):
        return -exp(self.p["A_log"])

    def write(self, dt, A):
        """G, by which B u goes into the state; dt [B,T,E,1]."""
        if self.o["discretisation"] == "zoh":
            return expm1(dt * A) / A
        return dt + np.zeros(A.shape)

    def decay(self, dt, A):
        return exp(dt * A)

    def skip(self, o, u):
        return o + u * self.p["D"]

    def gated(self, o, x):
        return silu(self.project("z", x)) * o

    def run(self, x, i, seg, state):
        u, z = self.inner(x, seg, state)
        low, B, C = self.low(u)
        dt = self.step(low)
        dt = dt.reshape(*dt.shape, 1)
        A = self.A()
        w, G = self.decay(dt, A), self.write(dt, A)
        put = G * B.reshape(B.shape[0], B.shape[1], 1, B.shape[2]) * u.reshape(*u.shape, 1)
        h, out = state.get("h"), []
        for t in range(x.shape[1]):
            held = None if h is None else self.hold(h, t) * self.keep(seg, t)[:, None, None] * w[:, t]
            h = put[:, t] if held is None else held + put[:, t]
            out.append(einsum("ben,bn->be", h, C[:, t]))
        y = self.project("o", self.gated(self.skip(stack(out, 1), u), x))
        tail = z if "z" not in state else join([state["z"], z], 1)
        return y, {"h": h, "z": tail}

    def hold(self, h, t):
        """The state as the next token finds it."""
        return h


class Retnet(Mix):
    def turned(self, x, i):
        D, n = self.D, np.arange(self.D // 2)
        w = (
            self.o["base"] ** (-n / max(D / 2 - 1, 1))
            if self.o["ladder"] == "endpoint"
            else self.o["base"] ** (-2.0 * n / D)
        )
        angle = np.asarray(i).astype(self.work)[..., None, None] * w.astype(self.work)
        rope = object.__new__(Rope)
        rope.R = rope.D = D
        rope.layout = self.layout_of()
        return rope.turn(x, np.cos(angle), np.sin(angle), None)

    def layout_of(self):
        return self.o["layout"]

    def decays(self):
        h, H = np.arange(self.H), self.H
        if self.o["decays"] == "spread":
            return 1 - 2.0 ** (-5 - 4 * h / max(H - 1, 1))
        return 1 - 2.0 ** (-5 - h)

    def scale(self):
        return self.D**-0.5

    def norm(self, o):
        if self.o["norm"] == "group":
            o = o - (o.sum(-1) / o.shape[-1]).reshape(*o.shape[:-1], 1)
        return o / sqrt((o * o).sum(-1) / o.shape[-1] + self.o["eps"]).reshape(*o.shape[:-1], 1)

    def gated(self, g, o):
        return silu(g) * o

    def run(self, x, i, seg, state):
        q, k, v, g = (self.project(n, x) for n in "qkvg")
        q, k, v = self.turned(self.cut(q), i), self.turned(self.cut(k), i), self.cut(v)
        g_h = self.decays().astype(self.work)
        S, z, c, out = (
            state.get("S"),
            state.get("z"),
            state.get("c", np.zeros((self.B, self.H), self.work)),
            [],
        )
        for t in range(x.shape[1]):
            keep = self.keep(seg, t)[:, None].astype(self.work)
            put = einsum("bhd,bhe->bhde", k[:, t], v[:, t])
            S = put if S is None else self.hold(S, t) * (keep * g_h)[..., None, None] + put
            z = k[:, t] if z is None else self.hold(z, t) * (keep * g_h)[..., None] + k[:, t]
            c = c * keep * g_h + 1
            o = einsum("bhd,bhde->bhe", q[:, t], S) * self.scale()
            root = np.sqrt(c)
            if self.o["rows"] == "recurrent":
                o = o / root[..., None]
            if self.o["rows"] == "parallel":
                total = absolute(einsum("bhd,bhd->bh", q[:, t], z)) * self.scale()
                o = o / maximum(total, root).reshape(*root.shape, 1)
            out.append(o)
        o = self.norm(stack(out, 1))
        y = self.project("o", self.gated(g, o.reshape(*o.shape[:2], -1)))
        return y, {"S": S, "z": z, "c": c}

    def hold(self, S, t):
        return S


class Rwkv4(Mix):
    def mixed(self, name, x, last):
        m = self.p["mix." + name]
        return x * m + last * (1 - m)

    def exponent(self, back):
        """How often a token that many before has decayed."""
        return back - 1

    def rate(self):
        return exp(self.p["decay"])

    def gated(self, r, wkv):
        return sigmoid(r) * wkv

    def run(self, x, i, seg, state):
        last = self.shifted(x, seg, state)
        r, k, v = (self.project(n, self.mixed(n, x, last)) for n in "rkv")
        if "k" in state:
            k, v = join([state["k"], k], 1), join([state["v"], v], 1)
        T, S = x.shape[1], k.shape[1]
        back = np.arange(S - T, S)[:, None] - np.arange(S)
        see = (back >= 0)[None] if seg is None else (back >= 0) & (seg[:, :, None] == seg[:, None])
        logits = where((back > 0)[..., None], -self.rate() * self.exponent(back)[..., None], self.p["bonus"])
        logits = logits + k.reshape(k.shape[0], 1, *k.shape[1:])
        high = np.where(see[..., None], logits.a, -np.inf).max(2, keepdims=True)
        e = where(see[..., None], exp(where(see[..., None], logits - high, 0.0)))
        wkv = einsum("btsc,bsc->btc", e, v) / e.sum(2)
        return self.project("o", self.gated(r, wkv)), {"x": x[:, -1:], "k": k, "v": v}


def lerp(a, b, m):
    return a + (b - a) * m


class Rwkv6(Mix):
    def mixed(self, x, last):
        half = lerp(x, last, self.p["mix.x"])
        return {n: lerp(x, last, self.lora("mix." + n, half, tanh)) for n in "rkvgw"}

    def decays(self, z):
        return exp(-exp(self.lora("decay", z, tanh)))

    def bonus(self, r, u, k):
        return (r * u * k).sum(-1)

    def eps(self):
        return self.o["eps"]

    def gated(self, g, y):
        return silu(g) * y

    def run(self, x, i, seg, state):
        z = self.mixed(x, self.shifted(x, seg, state))
        r, k, v, g = (self.project(n, z[n]) for n in "rkvg")
        w = self.cut(self.decays(z["w"]))
        r, k, v = self.cut(r), self.cut(k), self.cut(v)
        S, out = state.get("S"), []
        S = V(np.zeros((self.B, self.H, self.D, self.D), self.work)) if S is None else S
        for t in range(x.shape[1]):
            S = self.hold(S, t) * self.keep(seg, t)[:, None, None, None]
            o, S = self.one(S, r[:, t], k[:, t], v[:, t], w[:, t])
            out.append(o)
        y = self.head_norm(stack(out, 1), self.eps())
        return self.project("o", self.gated(g, y)), {"x": x[:, -1:], "S": S}

    def one(self, S, r, k, v, w):
        b = self.bonus(r, self.p["bonus"], k)
        o = einsum("bhkv,bhk->bhv", S, r) + b.reshape(*b.shape, 1) * v
        return o, S * w.reshape(*w.shape, 1) + einsum("bhk,bhv->bhkv", k, v)

    def hold(self, S, t):
        return S


class Rwkv7(Mix):
    def decays(self, z):
        return exp(-(np.exp(-0.5) * sigmoid(self.lora("decay", z, tanh))))

    def unit(self, kappa):
        return kappa / sqrt((kappa * kappa).sum(-1) + self.o["unit_eps"]).reshape(*kappa.shape[:-1], 1)

    def key(self, k, a):
        return k * (1 + (a - 1) * self.p["alpha"])

    def rates(self, z):
        return sigmoid(self.lora("a", z))

    def eps(self):
        return self.o["eps"]

    def bonus(self, r, k, v):
        b = (r * self.p["bonus"] * k).sum(-1)
        return (b.reshape(*b.shape, 1) * v).reshape(*v.shape[:2], -1)

    def run(self, x, i, seg, state):
        last = self.shifted(x, seg, state)
        z = {n: lerp(x, last, self.p["mix." + n]) for n in "rwkvag"}
        r, k, v = (self.project(n, z[n]) for n in "rkv")
        a, w, g = self.rates(z["a"]), self.decays(z["w"]), self.lora("gate", z["g"], sigmoid, False)
        kappa = self.unit(self.cut(self.p["xi"] * self.kappa_key(k, a)))
        k = self.key(k, a)
        r, k, v, a, w = (self.cut(y) for y in (r, k, v, a, w))
        S, out = state.get("S"), []
        S = V(np.zeros((self.B, self.H, self.D, self.D), self.work)) if S is None else S
        for t in range(x.shape[1]):
            S = self.hold(S, t) * self.keep(seg, t)[:, None, None, None]
            S, o = self.one(S, r[:, t], k[:, t], v[:, t], w[:, t], a[:, t], kappa[:, t])
            out.append(o)
        p = self.head_norm(stack(out, 1), self.eps()) + self.bonus(r, k, v)
        return self.project("o", self.gated(g, p)), {"x": x[:, -1:], "S": S}

    def gated(self, g, p):
        return g * p

    def kappa_key(self, k, a):
        return k

    def one(self, S, r, k, v, w, a, kappa):
        S = S * w.reshape(*w.shape, 1) - self.removed(S, a, kappa) + einsum("bhm,bhc->bhmc", k, v)
        return S, einsum("bhmc,bhm->bhc", S, r)

    def removed(self, S, a, kappa):
        return einsum("bhm,bhc->bhmc", a * kappa, einsum("bhl,bhlc->bhc", kappa, S))

    def hold(self, S, t):
        return S


class S4d(Mix):
    """Complex numbers are pairs (real, imaginary)."""

    def modes(self):
        return -exp(self.p["log_A_real"]), self.p["A_imag"]

    def steps(self):
        re, im = self.modes()
        dt = exp(self.p["log_dt"]).reshape(-1, 1)
        x, y = re * dt, im * dt
        if self.o["discretisation"] == "bilinear":
            b = divided((1.0, 0.0), (1 - 0.5 * x, -0.5 * y))
            a = times((1 + 0.5 * x, 0.5 * y), b)
            return a, (b[0] * dt, b[1] * dt)
        e, b = exp(x), phi(x, y)
        return (e * tape.cos(y), e * tape.sin(y)), (b[0] * dt, b[1] * dt)

    def read(self, s):
        C = self.p["C"]
        return 2 * (s[0] * C[..., 0] - s[1] * C[..., 1]).sum(-1)

    def skip(self, u, x):
        return u + x * self.p["D"]

    def active(self, u):
        if self.o["gelu"] == "tanh":
            return 0.5 * u * (1 + tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u * u * u)))
        return 0.5 * u * (1 + erf(u * 0.5**0.5))

    def run(self, x, i, seg, state):
        a, b = self.steps()
        s, out = state.get("s"), []
        for t in range(x.shape[1]):
            put = tuple(p * x[:, t].reshape(self.B, -1, 1) for p in b)
            if s is None:
                s = put
            else:
                keep = self.keep(seg, t)[:, None, None]
                s = times(a, tuple(p * keep for p in self.hold(s, t)))
                s = (s[0] + put[0], s[1] + put[1])
            out.append(self.read(s))
        g = self.active(self.skip(stack(out, 1), x))
        y = self.gated(self.project("o", g) + self.p["o.bias"], self.project("g", g) + self.p["g.bias"])
        return y, {"s": s}

    def gated(self, value, gate):
        return value * sigmoid(gate)

    def hold(self, s, t):
        return s


def times(x, y):
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def divided(x, y):
    size = y[0] * y[0] + y[1] * y[1]
    return (y[0] * x[0] + y[1] * x[1]) / size, (y[0] * x[1] - y[1] * x[0]) / size


def phi(x, y):
    """(e^z - 1)/z and its derivative, by their series where z is small."""
    z = x.a + 1j * y.a
    small = abs(z) < 0.5
    far, near = np.where(small, 1, z), np.where(small, z, 0)
    value, slope, term = np.zeros_like(z), np.zeros_like(z), np.ones_like(z)
    for k in range(24):  # the sums of z^k/(k+1)! and of (k+1) z^k/(k+2)!
        value = value + term / (k + 1)
        slope = slope + term / (k + 2)
        term = term * near / (k + 1)
    value = np.where(small, value, (np.exp(far) - 1) / far)
    slope = np.where(small, slope, (np.exp(far) - value) / far)
    real, imag = slope.real.astype(x.a.dtype), slope.imag.astype(x.a.dtype)
    re = V(value.real.astype(x.a.dtype), (x, lambda g: g * real), (y, lambda g: -g * imag))
    return re, V(value.imag.astype(x.a.dtype), (x, lambda g: g * imag), (y, lambda g: g * real))


def erf(u):
    from math import erf as one

    return tape.unary(np.vectorize(one), lambda x, y: 2 / np.sqrt(np.pi) * np.exp(-x * x))(u)
