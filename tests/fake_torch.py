"""A stand-in for PyTorch on NumPy arrays: as much of it as the examples of docs/checking.md call.

What decides their digits is PyTorch's: a result has the widest dtype of the real tensors, all arguments are
brought to it first, and bfloat16 is computed in float32 and rounded after each step. Not PyTorch's: the last
bit of pow, cos and sin, and a Python number beside bfloat16, which is rounded to it here.
"""

import types
from itertools import pairwise

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 by it)
import numpy as np

float32 = "torch.float32"


def numpy_dtype(dtype):
    return np.dtype(dtype.removeprefix("torch."))


class Tensor:
    """Values, and what they were made from: pairs of a tensor and the map from dy to its gradient."""

    def __init__(self, x, *made_from):
        self.x, self.made_from, self.ndim, self.shape = x, made_from, x.ndim, x.shape
        self.dtype = f"torch.{x.dtype.name}"

    def numpy(self):
        return self.x

    requires_grad_ = detach = cpu = lambda self: self

    def to(self, dtype):
        return Tensor(self.x.astype(numpy_dtype(dtype)), (self, lambda dy: dy.astype(self.x.dtype)))

    def float(self):
        return self.to(float32)

    def bfloat16(self):
        return self.to("torch.bfloat16")

    def cos(self):
        return computed(np.cos, [self])

    def sin(self):
        return computed(np.sin, [self])

    def __neg__(self):
        return computed(np.negative, [self])

    def __rpow__(self, number):
        return computed(np.power, [number, self])

    def __truediv__(self, number):
        return computed(np.divide, [self, number])

    def __mul__(self, other):
        return computed(np.multiply, [self, other], lambda dy: dy * other.x, lambda dy: dy * self.x)

    def __add__(self, other):
        return computed(np.add, [self, other], lambda dy: dy, lambda dy: dy)

    def __sub__(self, other):
        return computed(np.subtract, [self, other], lambda dy: dy, lambda dy: -dy)

    def __getitem__(self, key):
        def backward(dy):
            dx = np.zeros(self.shape, dy.dtype)
            dx[key] = dy
            return dx

        return Tensor(self.x[key], (self, backward))

    def chunk(self, count, axis):
        return [self[..., part] for part in slices([self.shape[axis] // count] * count)]

    def flatten(self, first):
        joined = self.x.reshape(*self.shape[:first], -1)
        return Tensor(joined, (self, lambda dy: dy.reshape(self.shape)))


def computed(function, given, *backwards):
    """function of tensors and numbers; each tensor's gradient in its dtype, where there is a map to it."""
    tensors = [a.x.dtype for a in given if isinstance(a, Tensor) and a.x.dtype.kind != "i"]
    dtype = max(tensors, key=lambda dtype: dtype.itemsize)
    wide = np.promote_types(dtype, np.float32)
    arrays = [np.asarray(a.x if isinstance(a, Tensor) else a).astype(dtype).astype(wide) for a in given]
    return Tensor(function(*arrays).astype(dtype), *zip(given, backwards, strict=False))


def slices(widths):
    return [slice(start, end) for start, end in pairwise(np.cumsum([0, *widths]))]


def cat(tensors, axis):
    assert axis == -1
    parts = slices([t.shape[-1] for t in tensors])
    made_from = [(t, lambda dy, part=part: dy[..., part]) for t, part in zip(tensors, parts, strict=True)]
    return Tensor(np.concatenate([t.x for t in tensors], -1), *made_from)


def stack(tensors, axis):
    made_from = [(t, lambda dy, n=n: np.take(dy, n, axis)) for n, t in enumerate(tensors)]
    return Tensor(np.stack([t.x for t in tensors], axis), *made_from)


def grad(outputs, inputs, dys):
    """The gradient of each input, summed over all ways to it."""
    found = [Tensor(np.zeros_like(x.x)) for x in inputs]

    def walk(y, dy):
        for x, dx in zip(inputs, found, strict=True):
            if x is y:
                dx.x += dy
        for before, backward in y.made_from:
            walk(before, backward(dy))

    for y, dy in zip(outputs, dys, strict=True):
        walk(y, dy.x)
    return found


class Module:
    def register_buffer(self, name, x):
        setattr(self, name, x)

    def bfloat16(self):
        vars(self).update({n: x.bfloat16() for n, x in vars(self).items()})
        return self

    def __call__(self, *args):
        return self.forward(*args)


def arange(start, stop, step, dtype="torch.int64"):
    return Tensor(np.arange(start, stop, step, numpy_dtype(dtype)))


from_numpy, cos, sin = Tensor, Tensor.cos, Tensor.sin
autograd, nn = types.SimpleNamespace(grad=grad), types.SimpleNamespace(Module=Module)
