"""Reverse-mode derivatives of NumPy arrays, for the outsiders' programs: what autograd is to theirs.

A number on the tape is a `V`. `through(x, f)` is x in the forward direction, and f of the gradient in the
backward one: most bugs of a backward pass are one such f.
"""

import heapq

import numpy as np


def raw(x):
    """The array of a number on the tape, or the array that came."""
    return x.a if isinstance(x, V) else np.asarray(x)


def fold(g, shape):
    """A gradient summed over what was broadcast to give it."""
    g = g.sum(tuple(range(g.ndim - len(shape))))
    return g.sum(tuple(n for n, size in enumerate(shape) if size == 1 != g.shape[n]), keepdims=True)


class V:
    """An array that knows what it was made of."""

    __array_priority__ = 1000
    count = 0

    def __init__(self, a, *made):
        self.a, self.made, V.count = np.asarray(a), made, V.count + 1
        self.at = V.count

    shape = property(lambda self: self.a.shape)
    ndim = property(lambda self: self.a.ndim)

    def __add__(self, o):
        return make(self.a + of(o, self), (self, lambda g: g), (o, lambda g: g))

    def __sub__(self, o):
        return make(self.a - of(o, self), (self, lambda g: g), (o, lambda g: -g))

    def __rsub__(self, o):
        return make(of(o, self) - self.a, (self, lambda g: -g), (o, lambda g: g))

    def __mul__(self, o):
        b = of(o, self)
        return make(self.a * b, (self, lambda g: g * b), (o, lambda g: g * self.a))

    def __truediv__(self, o):
        b = of(o, self)
        return make(self.a / b, (self, lambda g: g / b), (o, lambda g: -g * self.a / b / b))

    def __rtruediv__(self, o):
        b = of(o, self)
        return make(b / self.a, (self, lambda g: -g * b / self.a / self.a), (o, lambda g: g / self.a))

    def __neg__(self):
        return V(-self.a, (self, lambda g: -g))

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, key):
        def back(g):
            whole = np.zeros_like(self.a)
            np.add.at(whole, key, g)
            return whole

        return V(self.a[key], (self, back))

    def reshape(self, *shape):
        return V(self.a.reshape(*shape), (self, lambda g: g.reshape(self.shape)))

    def transpose(self, *axes):
        return V(self.a.transpose(axes), (self, lambda g: g.transpose(np.argsort(axes))))

    def sum(self, axis):
        def back(g):
            return np.broadcast_to(np.expand_dims(g, axis), self.shape)

        return V(self.a.sum(axis), (self, back))


def of(o, like):
    """A constant in the dtype of what it meets, so that float32 stays float32."""
    b = raw(o)
    return b if isinstance(o, V) else b.astype(like.a.dtype)


def make(a, *made):
    kept = [(x, lambda g, f=f, s=x.shape: fold(f(g), s)) for x, f in made if isinstance(x, V)]
    return V(a, *kept)


def unary(forward, slope):
    def apply(x):
        y = forward(x.a).astype(x.a.dtype)
        return V(y, (x, lambda g: g * slope(x.a, y).astype(x.a.dtype)))

    return apply


def logistic(x):
    return np.exp(-np.logaddexp(0, -x))


exp = unary(np.exp, lambda x, y: y)
log = unary(np.log, lambda x, y: 1 / x)
log1p = unary(np.log1p, lambda x, y: 1 / (1 + x))
expm1 = unary(np.expm1, lambda x, y: y + 1)
sqrt = unary(np.sqrt, lambda x, y: 0.5 / y)
tanh = unary(np.tanh, lambda x, y: 1 - y * y)
cos = unary(np.cos, lambda x, y: -np.sin(x))
sin = unary(np.sin, lambda x, y: np.cos(x))
absolute = unary(np.abs, lambda x, y: np.sign(x))
sigmoid = unary(logistic, lambda x, y: y * (1 - y))
softplus = unary(lambda x: np.logaddexp(0, x), lambda x, y: logistic(x))
logsigmoid = unary(lambda x: -np.logaddexp(0, -x), lambda x, y: logistic(-x))
relu = unary(lambda x: np.maximum(x, 0), lambda x, y: np.where(x > 0, 1, 0))
leaky = unary(lambda x: np.where(x < 0, x / 100, x), lambda x, y: np.where(x > 0, 1, 0.01))


def silu(x):
    return x * sigmoid(x)


def maximum(x, y):
    """The larger; where both are equal each has half of the derivative."""
    a, b = raw(x), raw(y)
    part = np.where(a > b, 1, np.where(a < b, 0, 0.5)).astype((x if isinstance(x, V) else y).a.dtype)
    return make(np.maximum(a, b).astype(part.dtype), (x, lambda g: g * part), (y, lambda g: g * (1 - part)))


def where(mask, x, y=0.0):
    like = raw(x if isinstance(x, V) else y).dtype
    a, b = raw(x).astype(like), raw(y).astype(like)
    return make(
        np.where(mask, a, b), (x, lambda g: np.where(mask, g, 0)), (y, lambda g: np.where(mask, 0, g))
    )


def einsum(spec, *xs):
    ins, out = spec.split("->")
    ins, like = ins.split(","), next(x for x in xs if isinstance(x, V))
    arrays = [of(x, like) for x in xs]

    def back(n):
        names = [out, *(s for m, s in enumerate(ins) if m != n)]
        return lambda g: np.einsum(
            f"{','.join(names)}->{ins[n]}", g, *(a for m, a in enumerate(arrays) if m != n)
        )

    return V(np.einsum(spec, *arrays), *((x, back(n)) for n, x in enumerate(xs) if isinstance(x, V)))


def join(xs, axis):
    like = next(x for x in xs if isinstance(x, V))
    arrays = [of(x, like) for x in xs]
    ends = np.cumsum([0, *(a.shape[axis] for a in arrays)])

    def back(n):
        return lambda g: np.take(g, np.arange(ends[n], ends[n + 1]), axis)

    return V(np.concatenate(arrays, axis), *((x, back(n)) for n, x in enumerate(xs) if isinstance(x, V)))


def stack(xs, axis):
    made = [(x, lambda g, n=n: np.take(g, n, axis)) for n, x in enumerate(xs)]
    return V(np.stack([x.a for x in xs], axis), *made)


def cumsum(x, axis):
    return V(np.cumsum(x.a, axis), (x, lambda g: np.flip(np.cumsum(np.flip(g, axis), axis), axis)))


def linear(x, weight):
    """W x along the last axis, W [outputs, inputs]."""
    y = x.a @ weight.a.T
    rows = lambda z: z.reshape(-1, z.shape[-1])
    return V(y, (x, lambda g: g @ weight.a), (weight, lambda g: rows(g).T @ rows(x.a)))


def through(x, back):
    """x itself; its gradient is back(gradient)."""
    return V(x.a, (x, back))


def detached(x):
    """x itself, without a gradient."""
    return V(raw(x))


def gradients(pairs, wanted):
    """The derivatives of the sum of cotangent times output, over the pairs of both, by each wanted."""
    found = {}
    nodes = {}

    def give(x, g):
        nodes[x.at] = x
        found[x.at] = found[x.at] + g if x.at in found else g

    for output, cotangent in pairs:
        give(output, cotangent)

    todo, known = [-at for at in nodes], set(nodes)
    heapq.heapify(todo)
    while todo:
        at = -heapq.heappop(todo)
        for x, f in nodes[at].made:
            give(x, f(found[at]))
            if x.at not in known:
                known.add(x.at)
                heapq.heappush(todo, -x.at)
    return [found.get(x.at, np.zeros_like(x.a)) for x in wanted]
