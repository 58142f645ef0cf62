"""The promises of the fake CuPy, on which the word "it runs on CuPy too" rests where there is no GPU."""

import math
import sys

import fake_cupy
import numpy as np
import pytest
from check import same


@pytest.fixture
def x(cupy):
    return cupy.arange(12.0).reshape(3, 4)


def test_type_and_module():
    """Its arrays say cupy, and the module is there only while installed."""
    before = sys.modules.get("cupy")
    with fake_cupy.installed() as outer:
        assert sys.modules["cupy"] is outer
        with fake_cupy.installed() as inner:
            assert sys.modules["cupy"] is inner
        assert sys.modules["cupy"] is outer
        assert type(outer.ones(2)).__module__ == "cupy"
        assert type(outer.ones(2)) is outer.ndarray
    assert sys.modules.get("cupy") is before


def test_module_goes_when_a_test_fails():
    """An error inside puts back what was there."""
    before = sys.modules.get("cupy")
    with pytest.raises(ZeroDivisionError), fake_cupy.installed():
        1 / 0  # noqa: B018
    assert sys.modules.get("cupy") is before


STRANGERS = [np.ones(4), np.ones(()), [1.0] * 4, (1.0,) * 4, None, "x"]


@pytest.mark.parametrize("other", STRANGERS)
def test_strangers_are_refused(cupy, x, other):
    """Operators, functions and assignments take neither NumPy arrays (0-d ones too) nor lists."""
    for act in (
        lambda: x + other,
        lambda: other + x,
        lambda: x * other,
        lambda: x < other,
        lambda: x @ other,
        lambda: cupy.add(x, other),
        lambda: cupy.exp(other),
        lambda: cupy.maximum(other, x),
        lambda: cupy.where(x > 0, x, other),
        lambda: cupy.where(other, x, x),
        lambda: cupy.sum(other),
        lambda: cupy.matmul(x, other),
        lambda: cupy.einsum("ij,j->i", x, other),
        lambda: cupy.concatenate([x, other]),
        lambda: cupy.broadcast_to(other, (3, 4)),
        lambda: cupy.add.at(x, cupy.arange(2), other),
        lambda: x.__setitem__(0, other),
        lambda: x.__iadd__(other),
    ):
        with pytest.raises(TypeError):
            act()
    same(x.get(), np.arange(12.0).reshape(3, 4), 0)


@pytest.mark.parametrize("number", [2, 2.0, True, np.float32(2), np.float64(2), np.int64(2)])
def test_numbers_are_welcome(cupy, x, number):
    """Python numbers and NumPy scalars mix with arrays, on either side, with NumPy's promotion."""
    host = np.arange(12.0).reshape(3, 4)
    for dtype in (np.float32, np.float64):
        for got, want in (
            (x.astype(dtype) * number, host.astype(dtype) * number),
            (number - x.astype(dtype), number - host.astype(dtype)),
            (cupy.maximum(x.astype(dtype), number), np.maximum(host.astype(dtype), number)),
            (cupy.where(x > 3, number, x.astype(dtype)), np.where(host > 3, number, host.astype(dtype))),
        ):
            same(got.get(), want, 0)


def test_no_implicit_conversion(x):
    """NumPy gets nothing out of it: not by asarray, not by a function, not by a ufunc, not by assignment."""
    host = np.zeros((3, 4))
    for act in (
        lambda: np.asarray(x),
        lambda: np.array(x),
        lambda: np.exp(x),
        lambda: np.add(x, x),
        lambda: np.add(host, x),
        lambda: np.sum(x),
        lambda: np.concatenate([x, x]),
        lambda: np.where(host > 0, x, 0),
        lambda: np.zeros_like(x),
        lambda: host + x,
        lambda: host.__iadd__(x),
        lambda: host.__setitem__(slice(None), x),
        lambda: np.float32(x),
        lambda: host[x.astype(np.int64)],
    ):
        with pytest.raises((TypeError, IndexError)):
            act()


def test_explicit_transfer(cupy):
    """asarray takes NumPy arrays and lists, and copies; get and asnumpy bring back a copy."""
    host = np.arange(3.0)
    there = cupy.asarray(host)
    host[0] = 9
    assert there.tolist() == [0, 1, 2]
    back = there.get()
    back[0] = 9
    assert there.tolist() == [0, 1, 2]
    assert type(cupy.asnumpy(there)) is np.ndarray
    assert cupy.asarray([1, 2], np.float32).dtype == np.float32
    assert cupy.asarray(there) is there


def test_results_are_arrays(cupy, x):
    """Reductions, full indexing and operators give 0-d arrays, never NumPy scalars."""
    for y in (x.sum(), cupy.sum(x), x.max(), x.mean(), x[1, 2], x[0][0], x.sum() * 2, -x.sum(), x.argmax(),
              cupy.exp(1.0), x.any(), cupy.allclose(x, x), x[0, 0] == 0, cupy.float64(1) + x.sum(),
              cupy.einsum("ij->", x)):  # fmt: skip
        assert type(y) is cupy.ndarray
        assert y.shape == ()


def test_numbers_come_out_on_request(x):
    """float, int, bool and item read one element; more than one is an error."""
    assert (float(x[1, 2]), int(x[1, 2]), bool(x[1, 2]), x[1, 2].item(), math.sqrt(x[1, 0])) == (
        6.0,
        6,
        True,
        6.0,
        2.0,
    )
    with pytest.raises(ValueError):
        float(x)
    with pytest.raises(ValueError):
        bool(x)


def test_an_array_is_no_python_index(cupy):
    """range and lists do not take an array of CuPy's."""
    with pytest.raises(TypeError):
        range(cupy.asarray(3))
    with pytest.raises(TypeError):
        [1, 2, 3][cupy.asarray(1)]


def test_not_hashable(x):
    """An array is no key."""
    with pytest.raises(TypeError):
        hash(x)


@pytest.mark.parametrize(
    "key",
    [
        1,
        -1,
        slice(1, None),
        None,
        Ellipsis,
        (slice(None), 2),
        (Ellipsis, 0),
        (1, 2),
        (None, slice(None), None, 1),
        np.int64(2),
    ],
)
def test_indexing(x, key):
    """Host integers, slices, None and Ellipsis index as in NumPy, and give views."""
    host = np.arange(12.0).reshape(3, 4)
    same(x[key].get(), host[key], 0)
    x[key] += 1
    host[key] += 1
    same(x.get(), host, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda i, b: i,
        lambda i, b: (slice(None), i),
        lambda i, b: (Ellipsis, i),
        lambda i, b: (i, i),
        lambda i, b: (None, i),
        lambda i, b: b,
        lambda i, b: (b[:, 0], 1),
        lambda i, b: b[:, 0],
        lambda i, b: i[0],
    ],
)
def test_indexing_with_arrays(cupy, x, make):
    """Whole numbers and masks index as in NumPy, when they are arrays of the same library."""
    host = np.arange(12.0).reshape(3, 4)
    i, b = np.array([2, 0]), host % 5 < 2
    same(x[make(cupy.asarray(i), cupy.asarray(b))].get(), host[make(i, b)], 0)


@pytest.mark.parametrize(
    "key", [np.array([0, 1]), [0, 1], (slice(None), np.array([0])), np.zeros((3, 4), bool), True, 1.0]
)
def test_index_refused(x, key):
    """NumPy arrays and lists are no index."""
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError):
        x[key] = 0


def test_out_of_range(cupy, x):
    """An array index out of range wraps around in silence; a host integer is an error."""
    assert x[cupy.asarray([3, -4]), cupy.asarray([4, 5])].tolist() == [0, 9]
    assert cupy.take(x, cupy.asarray([5]), axis=1).tolist() == [[1], [5], [9]]
    assert cupy.take_along_axis(x, cupy.asarray([[6]] * 3), axis=1).tolist() == [[2], [6], [10]]
    with pytest.raises(IndexError):
        x[3]


def test_repeated_index_in_assignment(cupy, x):
    """a[i] = v and a[i] += v with a repeated index raise; one value for all, add.at of whole numbers and
    maximum.at are well defined.
    """
    i = cupy.asarray([0, 2, 0])
    with pytest.raises(ValueError, match="repeated"):
        x[i] = x
    with pytest.raises(ValueError, match="repeated"):
        x[i] += 1
    with pytest.raises(ValueError, match="repeated"):
        x[cupy.asarray([0, 3])] += 1  # the same after wrapping around
    x[i] = 7
    assert x[:, 0].tolist() == [7, 4, 7]
    x[cupy.asarray([2, 0])] += 1
    assert x[:, 0].tolist() == [8, 4, 8]
    whole = x.astype(int)
    cupy.add.at(whole, i, cupy.ones((3, 4), int))
    assert whole[:, 0].tolist() == [10, 4, 9]
    cupy.add.at(whole, (slice(None), i), 1)
    assert whole[:, 0].tolist() == [12, 6, 11]
    cupy.maximum.at(x, i, 9)
    assert x[:, 0].tolist() == [9, 4, 9]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_floats_are_not_added_in_any_order(cupy, dtype):
    """add.at and subtract.at of floats raise: atomics add in another order in each run, and bfloat16 has
    none.
    """
    pytest.importorskip("ml_dtypes")
    to, i = cupy.zeros(3, dtype), cupy.asarray([0, 2, 0])
    for ufunc in (cupy.add, cupy.subtract):
        with pytest.raises(TypeError, match="its bits depend on who comes first"):
            ufunc.at(to, i, 1)


def test_in_place_keeps_the_array(x):
    """In-place operators write where the array is."""
    view, same_array = x[0], x
    x *= 2
    x += x[1]
    assert x is same_array
    assert view.tolist() == [8, 12, 16, 20]


def test_what_cupy_does_not_have(cupy, x):
    """Names outside the list, and arguments that CuPy does not know, raise."""
    for name in ("vectorize", "errstate", "linalg", "random", "nosuch"):
        with pytest.raises(AttributeError, match=name):
            getattr(cupy, name)
    with pytest.raises(AttributeError):
        cupy.add.reduceat  # noqa: B018
    with pytest.raises(AttributeError):
        x.setflags(write=False)
    for act in (
        lambda: x.sum(where=x > 0),
        lambda: x.max(initial=0),
        lambda: cupy.exp(x, where=x > 0),
        lambda: cupy.sum(x, axis=cupy.asarray(0)),
        lambda: cupy.arange(cupy.asarray(3)),
        lambda: cupy.zeros(cupy.asarray(3)),
    ):
        with pytest.raises(TypeError):
            act()


def test_no_warnings(cupy, x):
    """Nothing warns of overflow, of division by zero or of invalid values."""
    assert not cupy.isfinite(x / 0).any()
    assert float((cupy.exp(x * 1e4) * 0)[2, 3]) != 0
    x /= 0
    assert cupy.isnan(cupy.log(-x)).any()


@pytest.mark.parametrize(
    "act",
    [
        lambda m, x, i: m.cumsum(m.log1p(x), axis=1),
        lambda m, x, i: m.concatenate([x, x[:1]], 0),
        lambda m, x, i: m.stack([x, m.tanh(x)], axis=-1),
        lambda m, x, i: m.einsum("tc,sc->ts", x, x),
        lambda m, x, i: m.matmul(x, x.T),
        lambda m, x, i: m.tril(x, -1) + m.triu(m.ones_like(x)),
        lambda m, x, i: m.clip(x, 2, None),
        lambda m, x, i: x.clip(2, 5),
        lambda m, x, i: m.broadcast_to(x[:, None], (3, 2, 4)),
        lambda m, x, i: m.searchsorted(x[0], x),
        lambda m, x, i: m.bincount(i, weights=x[0, :3], minlength=5),
        lambda m, x, i: m.take_along_axis(x, m.argsort(-x, axis=1), axis=1),
        lambda m, x, i: m.moveaxis(x.swapaxes(0, 1)[None], 0, -1),
        lambda m, x, i: m.sum(x, axis=(0, 1), keepdims=True),
        lambda m, x, i: m.arange(3, dtype=m.float32) * m.pi + m.zeros(3),
        lambda m, x, i: m.meshgrid(i, i, indexing="ij")[0],
        lambda m, x, i: m.repeat(x, 2, axis=1).reshape(3, 2, -1).transpose(1, 0, 2),
        lambda m, x, i: m.pad(x, ((1, 0), (0, 2))),
        lambda m, x, i: m.fft.irfft(m.fft.rfft(x, 8), 8),
        lambda m, x, i: m.exp(x, out=m.empty_like(x)),
        lambda m, x, i: divmod(7, 2)[0] // (x + 1) % 3,
        lambda m, x, i: abs(-x) ** 2 @ x.T.copy(),
        lambda m, x, i: (x > 3) & ~(x == 5) | (x != x),
    ],
)
def test_values_are_those_of_numpy(cupy, act):
    """The same text gives the same values, dtype and shape."""
    host, i = np.arange(12.0).reshape(3, 4), np.array([0, 2, 0])
    got, want = act(cupy, cupy.asarray(host), cupy.asarray(i)), act(np, host, i)
    assert type(got) is cupy.ndarray
    same(got.get(), want, 0)


def test_every_name_is_in_cupy():
    """Where CuPy is installed (it needs no GPU for this): the fake offers nothing that it has not."""
    real = pytest.importorskip("cupy", exc_type=ImportError)
    with fake_cupy.installed() as fake:
        names = [n for n in vars(fake) if not n.startswith("__")]
    assert len(names) > 150
    assert [n for n in names if not hasattr(real, n)] == []
    assert [
        n
        for n in (*fake_cupy.METHODS.split(), "get", "item", "tolist", "nbytes")
        if not hasattr(real.ndarray, n)
    ] == []
