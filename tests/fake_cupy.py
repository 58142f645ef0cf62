"""A stand-in for CuPy that needs no GPU: an array type that behaves as CuPy does where it hurts.

As CuPy:     refuses NumPy arrays, lists and implicit conversion; Python numbers and NumPy scalars are welcome. Reductions and full indexing
             give 0-d arrays, never NumPy scalars. Integer arrays as an index wrap around when out of range, silently (here: modulo). Only
             what CuPy has is here: a list of names, not whatever NumPy offers. No floating-point warnings. An array is no index of a
             list and no argument of range: it has no __index__.
Stricter:    np.exp(x) and np.add(x, y) raise (CuPy answers them), so that a reference asks for its namespace; lists are refused as an
             index; a[i] = v and a[i] += v with a repeated index raise (CuPy leaves the result undefined), add.at(a, i, v) is the way.
Not here:    random numbers, linalg, streams, kernels, the cost of anything, rounding that differs from NumPy's.
"""

import operator
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np

NUMBER = (bool, int, float, complex, np.generic)


def operand(x):
    """The NumPy array or number behind an argument that may be an array; anything but a fake array or a number is refused."""
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, NUMBER):
        return x
    raise TypeError(f"cupy takes no {type(x).__module__}.{type(x).__name__} here; expected a cupy array or a number")


def device(x):
    """The NumPy array behind an argument that must be an array of this library."""
    if isinstance(x, ndarray):
        return x._host
    raise TypeError(f"cupy takes no {type(x).__module__}.{type(x).__name__} here; expected a cupy array")


def plain(x):
    """An argument that stays on the host: an axis, a shape, a dtype; no array of any library."""
    if isinstance(x, (ndarray, np.ndarray)):
        raise TypeError(f"cupy takes no array here, got {type(x).__module__}.{type(x).__name__}; expected an axis, a shape or the like")
    return tuple(map(plain, x)) if isinstance(x, (list, tuple)) else x


def wrap(x):
    """A result as CuPy gives it: arrays and scalars become arrays, tuples and lists of them likewise."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(wrap, x))
    return ndarray(np.asarray(x)) if isinstance(x, (np.ndarray, *NUMBER)) else x


def call(function, arrays, rest, keywords):
    """Run a NumPy function on what is behind the arguments. CuPy knows neither where= nor initial=, and never warns."""
    if refused := {"where", "initial"} & set(keywords):
        raise TypeError(f"cupy has no {refused.pop()}= here")
    out = keywords.get("out")
    keywords = {k: v._host if isinstance(v, ndarray) and k in ("out", "weights") else plain(v) for k, v in keywords.items()}
    with np.errstate(all="ignore"):
        got = function(*arrays, *map(plain, rest), **keywords)
    return wrap(got) if out is None else out


def located(key, shape):
    """An index as NumPy takes it: arrays unwrapped, integers in them wrapped around, and a last Ellipsis so that a full index is 0-d."""
    keys = key if isinstance(key, tuple) else (key,)
    spent = [k.ndim if isinstance(k, ndarray) and k.dtype == bool else int(k is not None and k is not Ellipsis) for k in keys]
    found, axis = [], 0
    for k, n in zip(keys, spent, strict=True):
        if isinstance(k, ndarray):
            if k.dtype.kind in "iu":
                if axis < len(shape) and shape[axis] == 0 and k.size:
                    raise IndexError("an axis of size 0 has no elements to index")
                k = k._host % shape[axis] if k.size and axis < len(shape) else k._host
            else:
                k = k._host
        elif isinstance(k, (bool, np.bool_)) or not (k is None or k is Ellipsis or isinstance(k, (int, np.integer, slice))):
            raise IndexError(f"cupy takes no {type(k).__module__}.{type(k).__name__} as an index; expected a cupy array, int or slice")
        found.append(k)
        axis += len(shape) - sum(spent) if k is Ellipsis else n
    return tuple(found) if any(k is Ellipsis for k in found) else (*found, Ellipsis)


class ndarray:
    """An array of the fake CuPy. What it holds is its own business."""

    __module__ = "cupy"
    __slots__ = ("_host",)
    __array_ufunc__ = None  # a NumPy array on the left hands over to us, and we refuse it; np.exp(x) raises
    __hash__ = None

    def __init__(self, host):
        self._host = host

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to a NumPy array is not allowed; use .get()")

    def __array_function__(self, *args):
        raise TypeError("a NumPy function was given a cupy array; use the functions of its own namespace")

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    T = property(lambda self: wrap(self._host.T))
    flags = property(lambda self: self._host.flags)
    data = property(lambda self: SimpleNamespace(ptr=self._host.ctypes.data))
    device = property(lambda self: SimpleNamespace(id=0))
    real = property(lambda self: wrap(self._host.real))
    imag = property(lambda self: wrap(self._host.imag))

    def get(self):
        return self._host.copy()

    def item(self):
        return self._host.item()

    def tolist(self):
        return self._host.tolist()

    __float__ = lambda self: float(self.item())
    __int__ = lambda self: int(self.item())
    __complex__ = lambda self: complex(self.item())
    __bool__ = lambda self: bool(self._host)
    __len__ = lambda self: len(self._host)
    __repr__ = lambda self: f"cupy.{self._host!r}"

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key):
        return wrap(self._host[located(key, self.shape)])

    def __setitem__(self, key, v):
        where, v = located(key, self.shape), operand(v)
        if np.size(v) != 1 and any(isinstance(k, np.ndarray) and k.dtype != bool for k in where):
            cells = np.arange(self.size).reshape(self.shape)[where]
            if len(np.unique(cells)) < cells.size:
                raise ValueError("an index is repeated in an assignment: undefined in cupy; use add.at")
        self._host[where] = v


def binary(function, swapped=False):
    def method(self, other):
        a, b = self._host, operand(other)
        with np.errstate(all="ignore"):
            return wrap(function(b, a) if swapped else function(a, b))

    return method


def inplace(function):
    def method(self, other):
        with np.errstate(all="ignore"):
            function(self._host, operand(other))
        return self

    return method


def unary(function):
    return lambda self: wrap(function(self._host))


def delegated(name):
    def method(self, *args, **keywords):
        function = getattr(self._host, name)
        if name in ("clip", "take", "dot", "searchsorted", "fill"):
            return call(function, map(operand, args), (), keywords)
        return call(function, (), args, keywords)

    return method


ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
COMPARISONS = "eq ne lt le gt ge"
SIGNS = "neg pos abs invert"
METHODS = """all any argmax argmin argsort astype clip conj copy cumprod cumsum diagonal dot fill flatten max mean min nonzero prod ravel
    repeat reshape round searchsorted sort squeeze std sum swapaxes take trace transpose var view"""

for name in ARITHMETIC.split():
    dunder = getattr(operator, f"__{name}__")
    setattr(ndarray, f"__{name}__", binary(dunder))
    setattr(ndarray, f"__r{name}__", binary(dunder, swapped=True))
    setattr(ndarray, f"__i{name}__", inplace(getattr(operator, f"__i{name}__")))
for name in COMPARISONS.split():
    setattr(ndarray, f"__{name}__", binary(getattr(operator, f"__{name}__")))
for name in SIGNS.split():
    setattr(ndarray, f"__{name}__", unary(getattr(operator, f"__{name}__")))
for name in METHODS.split():
    setattr(ndarray, name, delegated(name))

CONSTANTS = """float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ complex64 complex128 dtype pi e inf nan
    newaxis finfo iinfo floating integer inexact"""
MAKERS = "arange empty eye full identity indices linspace ones tri zeros"
ELEMENTWISE = """abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or bitwise_xor cbrt
    ceil conj conjugate copysign cos cosh deg2rad divide equal exp exp2 expm1 floor floor_divide fmax fmin fmod greater
    greater_equal hypot invert isfinite isinf isnan left_shift less less_equal log log10 log1p log2 logaddexp logical_and
    logical_not logical_or logical_xor maximum minimum mod multiply negative not_equal positive power reciprocal remainder
    right_shift rint sign signbit sin sinh sqrt square subtract tan tanh true_divide trunc"""
FIRST = """all amax amin angle any argmax argmin argsort argwhere around array_split bincount broadcast_to copy count_nonzero cumprod cumsum
    diag diagonal diff empty_like expand_dims flatnonzero flip full_like imag max mean min moveaxis nan_to_num nonzero ones_like pad prod
    ravel real repeat reshape roll round sort split squeeze std sum swapaxes tile trace transpose tril triu unique var zeros_like"""
PAIRS = "allclose array_equal dot inner isclose kron matmul outer searchsorted take_along_axis tensordot vdot"
SEQUENCES = "column_stack concatenate hstack stack vstack"
ALL = "broadcast_arrays meshgrid"
HOST = "can_cast issubdtype isscalar may_share_memory ndim promote_types result_type shape size"


def scatter(ufunc):
    def at(a, key, v):
        """a[key] = ufunc(a[key], v) for every index, repeated ones too."""
        ufunc.at(device(a), located(key, a.shape), operand(v))

    return at


def module():
    """The fake module: the names that CuPy has and a reference may use."""
    m = ModuleType("cupy", __doc__)
    m.ndarray = ndarray

    def offer(names, function):
        for name in names.split():
            setattr(m, name, function(getattr(np, name)))

    offer(CONSTANTS, lambda f: f)
    offer(MAKERS, lambda f: lambda *a, **k: call(f, (), a, k))
    offer(ELEMENTWISE, lambda f: lambda *a, **k: call(f, map(operand, a), (), k))
    offer(FIRST, lambda f: lambda x, *a, **k: call(f, (device(x),), a, k))
    offer(PAIRS, lambda f: lambda x, y, *a, **k: call(f, (device(x), device(y)), a, k))
    offer(SEQUENCES, lambda f: lambda xs, *a, **k: call(f, (list(map(device, xs)),), a, k))
    offer(ALL, lambda f: lambda *a, **k: call(f, map(device, a), (), k))
    offer(HOST, lambda f: lambda *a: f(*(x._host if isinstance(x, ndarray) else x for x in a)))
    for name in ("add", "subtract", "maximum", "minimum"):
        getattr(m, name).at = scatter(getattr(np, name))

    def asarray(x, dtype=None):
        """An explicit transfer: NumPy arrays and lists are welcome here, and are copied; an array already here is itself."""
        if isinstance(x, ndarray):
            return x if dtype is None or x.dtype == dtype else x.astype(dtype)
        return ndarray(np.array(x, dtype))

    def contiguous(x, dtype=None):
        x = asarray(x, dtype)
        return x if x.flags.c_contiguous else x.copy()

    m.asarray, m.ascontiguousarray = asarray, contiguous
    m.array = lambda x, dtype=None: asarray(x, dtype).copy()
    m.asnumpy = lambda x: x.get()
    m.where = lambda c, x, y: call(np.where, (device(c), operand(x), operand(y)), (), {})
    m.clip = lambda x, a_min, a_max: call(np.clip, (device(x), *(b if b is None else operand(b) for b in (a_min, a_max))), (), {})
    m.take = lambda x, i, axis=None: call(np.take, (device(x), operand(i)), (), {"axis": axis, "mode": "wrap"})
    m.take_along_axis = lambda x, i, axis: call(np.take_along_axis, (device(x), device(i) % x.shape[axis]), (), {"axis": axis})
    m.einsum = lambda rule, *a, **k: call(np.einsum, (plain(rule), *map(device, a)), (), k)
    transform = lambda f: lambda x, *a, **k: call(f, (device(x),), a, k)
    m.fft = SimpleNamespace(**{name: transform(getattr(np.fft, name)) for name in ("fft", "ifft", "rfft", "irfft")})

    def missing(name):
        raise AttributeError(f"the fake cupy has no {name!r}; where CuPy has it, add it to tests/fake_cupy.py")

    m.__getattr__ = missing
    return m


@contextmanager
def installed():
    """`import cupy` gives the fake module inside, and what it gave before outside."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = fake = module()
    try:
        yield fake
    finally:
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before
