"""A stand-in for CuPy that needs no GPU: an array type that behaves as CuPy does where it hurts.

As CuPy:     refuses NumPy arrays, lists and implicit conversion; Python numbers and NumPy scalars are
             welcome. Reductions and full indexing give 0-d arrays, never NumPy scalars. Integer arrays as an
             index wrap around when out of range, silently (here: modulo). Only what CuPy has is here: a list
             of names, not whatever NumPy offers. No floating-point warnings. An array is no index of a list
             and no argument of range: it has no __index__.
Stricter:    np.exp(x) and np.add(x, y) raise (CuPy answers them), so that a reference asks for its namespace;
             lists are refused as an index; a[i] = v and a[i] += v with a repeated index raise (CuPy leaves
             the result undefined). add.at is there for whole numbers: floats it would add by atomics, in an
             order that changes from run to run.
Counted:     by `counts()`, since it was installed: calls (kernels that CuPy would launch; views cost none),
             allocations, copies, syncs (the host waits for all), waits (for one event) and graphs (launched);
             fake_device.py has the memory, the streams and the graphs.
Not here:    random numbers, linalg, kernels, the cost of anything, rounding that differs from NumPy's.
"""

import operator
import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
from fake_device import TOTAL, Device, MemoryPointer

NUMBER = (bool, int, float, complex, np.generic)
# how often these wait for the device, by CuPy's source
WAITING = {"nonzero": 1, "flatnonzero": 1, "argwhere": 1, "unique": 1, "bincount": 2}
# what a capture refuses, cupy#6290
CUBLAS = ("matmul", "dot", "einsum", "tensordot", "inner", "vdot", "__matmul__", "__imatmul__")


def operand(x):
    """The NumPy array or number behind an argument that may be an array; anything but a fake array or a
    number is refused.
    """
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, NUMBER):
        return x
    raise TypeError(
        f"cupy takes no {type(x).__module__}.{type(x).__name__} here; expected a cupy array or a number"
    )


def device(x):
    """The NumPy array behind an argument that must be an array of this library."""
    if isinstance(x, ndarray):
        return x._host
    raise TypeError(f"cupy takes no {type(x).__module__}.{type(x).__name__} here; expected a cupy array")


def plain(x):
    """An argument that stays on the host: an axis, a shape, a dtype; no array of any library."""
    if isinstance(x, (ndarray, np.ndarray)):
        raise TypeError(
            f"cupy takes no array here, got {type(x).__module__}.{type(x).__name__}; expected an axis, a "
            "shape or the like"
        )
    return tuple(map(plain, x)) if isinstance(x, (list, tuple)) else x


def held(host):
    """A fake array over a NumPy array."""
    x = object.__new__(ndarray)
    x._host = host
    return x


def wrap(x):
    """A result as CuPy gives it: arrays and scalars become arrays, tuples and lists of them likewise."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(wrap, x))
    return held(np.asarray(x)) if isinstance(x, (np.ndarray, *NUMBER)) else x


def made(function, args, rest=(), keywords=None):
    """A NumPy function on what is behind the arguments, counted; in a capture, written down."""
    name = getattr(function, "__name__", "")
    if name in CUBLAS and Device.now.streams[-1].is_capturing():
        raise NotImplementedError(
            f"{name}: calling cuBLAS API during stream capture is currently unsupported"
        )
    for _ in range(WAITING.get(name, 0)):
        Device.now.waits(name)
    return wrap(Device.now.made(function, args, rest, keywords))


def written(function, target, *args):
    """function(target, *args), which writes to its target."""
    now = Device.now
    if now.streams[-1].is_capturing():
        target, args = now.raw(target), now.raw(args)

    def act():
        with np.errstate(all="ignore"):
            function(target, *args)

    now.perform(act, [target])


def call(function, arrays, rest, keywords):
    """Run a NumPy function on what is behind the arguments. CuPy knows neither where= nor initial=, and
    never warns.
    """
    if refused := {"where", "initial"} & set(keywords):
        raise TypeError(f"cupy has no {refused.pop()}= here")
    out = keywords.get("out")
    arrays, rest = list(arrays), tuple(map(plain, rest))
    named = [k for k, v in keywords.items() if isinstance(v, ndarray) and k == "weights"]
    keywords = {k: plain(v) for k, v in keywords.items() if k != "out" and k not in named} | {
        k: keywords[k]._host for k in named
    }
    if out is None:
        return made(function, arrays, rest, keywords)
    written(lambda to, *a: function(*a, *rest, out=to, **keywords), device(out), *arrays)
    return out


def opened(key):
    """An index with the arrays in it as NumPy's."""
    keys = key if isinstance(key, tuple) else (key,)
    for k in keys:
        if isinstance(k, ndarray) or k is None or k is Ellipsis:
            continue
        if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer, slice)):
            raise IndexError(
                f"cupy takes no {type(k).__module__}.{type(k).__name__} as an index; expected a cupy array, "
                "int or slice"
            )
    return tuple(k._host if isinstance(k, ndarray) else k for k in keys)


def located(keys, shape):
    """An opened index as NumPy takes it: integers in arrays wrapped around, and a last Ellipsis so that a
    full index is 0-d.
    """
    array = lambda k: isinstance(k, np.ndarray)
    spent = [
        k.ndim if array(k) and k.dtype == bool else int(k is not None and k is not Ellipsis) for k in keys
    ]
    found, axis = [], 0
    for k, n in zip(keys, spent, strict=True):
        if array(k) and k.dtype.kind in "iu":
            if axis < len(shape) and shape[axis] == 0 and k.size:
                raise IndexError("an axis of size 0 has no elements to index")
            k = k % shape[axis] if k.size and axis < len(shape) else k
        found.append(k)
        axis += len(shape) - sum(spent) if k is Ellipsis else n
    return tuple(found) if any(k is Ellipsis for k in found) else (*found, Ellipsis)


def masks(keys):
    return any(isinstance(k, np.ndarray) and k.dtype == bool for k in keys)


class Flags:
    """Of the layout alone."""

    def __init__(self, host):
        self.c_contiguous, self.f_contiguous = host.flags.c_contiguous, host.flags.f_contiguous


class ndarray:
    """An array of the fake CuPy. What it holds is its own business."""

    __module__ = "cupy"
    __slots__ = ("_host",)
    __array_ufunc__ = None  # a NumPy array on the left hands over to us, and we refuse it; np.exp(x) raises
    __hash__ = None

    def __init__(self, shape, dtype=float, memptr=None):
        self._host = Device.now.empty((shape,) if isinstance(shape, int) else tuple(shape), dtype, memptr)

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
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: Flags(self._host))
    base = property(lambda self: self._host.base)
    T = property(lambda self: wrap(self._host.T))
    device = property(lambda self: SimpleNamespace(id=0))
    real = property(lambda self: made(np.real, (self._host,)))
    imag = property(lambda self: made(np.imag, (self._host,)))
    data = property(
        lambda self: MemoryPointer(SimpleNamespace(ptr=self._host.ctypes.data, host=self._host), 0)
    )

    def get(self, stream=None, order="C", out=None, blocking=True):
        return Device.now.download(
            self._host, np.empty(self.shape, self.dtype) if out is None else out, blocking
        )

    def set(self, host, stream=None):
        if (host.shape, host.dtype) != (self.shape, self.dtype):
            raise ValueError(f"{host.dtype}{host.shape} cannot be set to {self.dtype}{self.shape}")
        Device.now.upload(host, self._host)

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    __float__ = lambda self: float(self.item())
    __int__ = lambda self: int(self.item())
    __complex__ = lambda self: complex(self.item())
    __bool__ = lambda self: bool(self.get())
    __len__ = lambda self: len(self._host)
    __repr__ = lambda self: f"cupy.{self._host!r}"

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key):
        keys = opened(key)
        if masks(keys):
            Device.now.waits("an index that is a mask")
        return made(lambda host, keys: host[located(keys, host.shape)], (self._host, keys))

    def __setitem__(self, key, v):
        def assign(host, keys, v):
            where = located(keys, host.shape)
            if np.size(v) != 1 and any(isinstance(k, np.ndarray) and k.dtype != bool for k in where):
                cells = np.arange(host.size).reshape(host.shape)[where]
                if len(np.unique(cells)) < cells.size:
                    raise ValueError(
                        "an index is repeated in an assignment: undefined in cupy; use peref.ops.rows"
                    )
            host[where] = v

        v, keys = operand(v), opened(key)
        if masks(keys) and np.size(v) != 1:
            Device.now.waits("an assignment by a mask")
        written(assign, self._host, keys, v)


def binary(function, swapped=False):
    def method(self, other):
        a, b = self._host, operand(other)
        return made(function, (b, a) if swapped else (a, b))

    return method


def inplace(function):
    def method(self, other):
        other = operand(other)
        if function is operator.__imatmul__:
            made(operator.__matmul__, (self._host, other))
        written(function, self._host, other)
        return self

    return method


def unary(function):
    return lambda self: made(function, (self._host,))


def delegated(name):
    def method(self, *args, **keywords):
        if name == "fill":
            return written(lambda a, x: a.fill(x), self._host, operand(*args))

        def function(a, *rest, **given):
            return getattr(a, name)(*rest, **given)

        function.__name__ = name
        if name in ("clip", "take", "dot", "searchsorted"):
            return call(function, (self._host, *map(operand, args)), (), keywords)
        return call(function, (self._host,), args, keywords)

    return method


ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
COMPARISONS = "eq ne lt le gt ge"
SIGNS = "neg pos abs invert"
METHODS = """
    all any argmax argmin argsort astype clip conj copy cumprod cumsum diagonal dot fill flatten max mean min
    nonzero prod ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take trace transpose
    var view"""

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

CONSTANTS = """
    float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ complex64 complex128 dtype
    pi e inf nan newaxis finfo iinfo floating integer inexact"""
MAKERS = "arange empty eye full identity indices linspace ones tri zeros"
ELEMENTWISE = """
    abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or bitwise_xor
    cbrt ceil conj conjugate copysign cos cosh deg2rad divide equal exp exp2 expm1 floor floor_divide fmax
    fmin fmod greater greater_equal hypot invert isfinite isinf isnan left_shift less less_equal log log10
    log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative
    not_equal positive power reciprocal remainder right_shift rint sign signbit sin sinh sqrt square subtract
    tan tanh true_divide trunc"""
FIRST = """
    all amax amin angle any argmax argmin argsort argwhere around array_split bincount broadcast_to copy
    count_nonzero cumprod cumsum diag diagonal diff empty_like expand_dims flatnonzero flip full_like imag max
    mean min moveaxis nan_to_num nonzero ones_like pad prod ravel real repeat reshape roll round sort split
    squeeze std sum swapaxes tile trace transpose tril triu unique var zeros_like"""
PAIRS = "allclose array_equal dot inner isclose kron matmul outer searchsorted take_along_axis tensordot vdot"
SEQUENCES = "column_stack concatenate hstack stack vstack"
ALL = "broadcast_arrays meshgrid"
HOST = "can_cast issubdtype isscalar may_share_memory ndim promote_types result_type shape size"


def within_reach(hosts):
    """Arrays to be joined: of more than 8 small ones of one dtype CuPy moves the addresses to the device
    (_routines_manipulation.pyx).
    """
    if (
        len(hosts) > 8
        and len({a.dtype for a in hosts}) == 1
        and sum(a.nbytes for a in hosts) < len(hosts) << 21
    ):
        addresses = np.array([a.ctypes.data for a in hosts])
        Device.now.upload(addresses, Device.now.empty(addresses.shape, addresses.dtype))
    return hosts


def scatter(ufunc):
    def at(a, key, v):
        """a[key] = ufunc(a[key], v) for every index, repeated ones too. CuPy adds floats in any order, and
        knows no bfloat16 here.
        """
        if ufunc in (np.add, np.subtract) and device(a).dtype.kind not in "biu":
            raise TypeError(
                f"{ufunc.__name__}.at of {a.dtype}: its bits depend on who comes first; sum by peref.ops.rows"
            )
        written(
            lambda host, keys, v: ufunc.at(host, located(keys, host.shape), v),
            device(a),
            opened(key),
            operand(v),
        )

    return at


def module(memory=False, ready=True, free=TOTAL, capability="90"):
    """The fake module: the names that CuPy has and a reference may use."""
    m = ModuleType("cupy", __doc__)
    m.ndarray, m.__version__ = ndarray, "14.0.0"
    now = Device(memory)
    m.cuda = now.offered(ready, free, capability)
    m.__spec__ = ModuleSpec("cupy", None)
    m.is_available = lambda: ready
    # emulated/device.py has one whose kernels run
    m.RawModule = lambda *, code, options=(): SimpleNamespace(compile=lambda: None)
    pool = {"malloc": now.malloc, "free_all_blocks": lambda: None, "free_bytes": lambda: 0}
    m.get_default_memory_pool = lambda: SimpleNamespace(**pool)
    m.get_default_pinned_memory_pool = lambda: SimpleNamespace(malloc=now.pin)

    def offer(names, function):
        for name in names.split():
            setattr(m, name, function(getattr(np, name)))

    offer(CONSTANTS, lambda f: f)
    offer(MAKERS, lambda f: lambda *a, **k: call(f, (), a, k))
    offer(ELEMENTWISE, lambda f: lambda *a, **k: call(f, map(operand, a), (), k))
    offer(FIRST, lambda f: lambda x, *a, **k: call(f, (device(x),), a, k))
    offer(PAIRS, lambda f: lambda x, y, *a, **k: call(f, (device(x), device(y)), a, k))
    offer(SEQUENCES, lambda f: lambda xs, *a, **k: call(f, (within_reach(list(map(device, xs))),), a, k))
    offer(ALL, lambda f: lambda *a, **k: call(f, map(device, a), (), k))
    offer(HOST, lambda f: lambda *a: f(*(x._host if isinstance(x, ndarray) else x for x in a)))
    for name in ("add", "subtract", "maximum", "minimum"):
        getattr(m, name).at = scatter(getattr(np, name))

    def asarray(x, dtype=None):
        """An explicit transfer: NumPy arrays and lists are welcome here, and are copied; an array already
        here is itself.
        """
        if isinstance(x, ndarray):
            return x if dtype is None or x.dtype == dtype else x.astype(dtype)
        x = np.asarray(x, dtype)
        if not x.ndim:
            # the number is part of the kernel: no copy, and a graph keeps it
            return made(np.full, ((), x[()], x.dtype))
        to = Device.now.empty(x.shape, x.dtype)
        Device.now.upload(x, to)
        return held(to)

    def contiguous(x, dtype=None):
        x = asarray(x, dtype)
        return x if x.flags.c_contiguous else x.copy()

    m.asarray, m.ascontiguousarray = asarray, contiguous
    m.copyto = lambda to, x: written(lambda a, b: np.copyto(a, b, "same_kind"), device(to), operand(x))
    m.array = lambda x, dtype=None: asarray(x, dtype).copy()
    m.asnumpy = lambda x: x.get()
    m.where = lambda c, x, y: call(np.where, (device(c), operand(x), operand(y)), (), {})
    m.clip = lambda x, a_min, a_max: call(
        np.clip, (device(x), *(b if b is None else operand(b) for b in (a_min, a_max))), (), {}
    )
    m.take = lambda x, i, axis=None: call(
        np.take, (device(x), operand(i)), (), {"axis": axis, "mode": "wrap"}
    )
    m.take_along_axis = lambda x, i, axis: made(
        lambda x, i: np.take_along_axis(x, i % x.shape[axis], axis), (device(x), device(i))
    )
    m.einsum = lambda rule, *a, **k: call(np.einsum, (plain(rule), *map(device, a)), (), k)
    transform = lambda f: lambda x, *a, **k: call(f, (device(x),), a, k)
    m.fft = SimpleNamespace(
        **{name: transform(getattr(np.fft, name)) for name in ("fft", "ifft", "rfft", "irfft")}
    )

    def missing(name):
        raise AttributeError(
            f"the fake cupy has no {name!r}; where CuPy has it, add it to tests/fake_cupy.py"
        )

    m.__getattr__ = missing
    return m


def counts():
    """What was asked of the device so far, as a dict."""
    return dict(Device.now.counts)


@contextmanager
def installed(**given):
    """`import cupy` gives the fake module inside, and what it gave before outside.

    memory: its arrays have addresses, are poison until written and after they are freed, and streams capture.
    ready: there is a driver and a device, of which `free` bytes are free, of this compute capability.
    """
    before, device = sys.modules.get("cupy"), Device.now
    sys.modules["cupy"] = fake = module(**given)
    try:
        yield fake
    finally:
        Device.now = device
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before
