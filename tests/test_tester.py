"""The checkers catch what they are for: each test here hands them something wrong."""

import numpy as np
import pytest
from check import Differs, gradient, op_contract, same

from peref.errors import PerefError
from peref.laws.gradient import STEPS, derivative
from peref.ops.activation import relu
from peref.tape import Op
from peref.xp import namespace


def scale_forward(x, w):
    return x * w, (x, w)  # [T,C], [C]


def scale_backward(saved, dy):
    x, w = saved
    return dy * w, (dy * x).sum(0)


scale = Op(scale_forward, scale_backward)


def root_forward(x):
    xp = namespace(x)
    y = xp.sqrt(xp.exp(x) + 1)
    return y, (x, y)


def root_backward(saved, dy):
    x, y = saved
    return (dy * namespace(x).exp(x) / (2 * y),)


root = Op(root_forward, root_backward)


def bent_forward(x):
    return abs(x), x  # a kink at 0


def bent_backward(x, dy):
    return (dy * namespace(x).sign(x),)


bent = Op(bent_forward, bent_backward)


def changed(op, factor=None, **rest):
    """The op with its gradients spoilt by `factor`, or with another forward or backward."""
    if factor is not None:
        rest["backward"] = lambda saved, dy: tuple(factor(g) for g in op.backward(saved, dy))
    return Op(**{"forward": op.forward, "backward": op.backward, **rest})


def spoilt(g, value, place=0):
    g = g.copy()
    g.reshape(-1)[place] = value
    return g


@pytest.fixture
def arrays(rng):
    return rng.standard_normal((7, 5)), rng.standard_normal(5)


def test_a_kink_near_by_is_stepped_around():
    """Points at which the usual steps go over the kink; a derivative wrong by a thousandth is still seen."""
    near = np.array([3e-5, -7e-5, 0.5, 1e-4])
    gradient(bent, [near])
    with pytest.raises(Differs, match="tolerance"):
        gradient(changed(bent, lambda g: 1.001 * g), [near])


def test_right_ops_pass(arrays):
    """Nothing is reported where nothing is wrong, whole or by element."""
    gradient(scale, arrays)
    gradient(root, arrays[:1], tolerance=1e-9)
    gradient(scale, arrays, elementwise=True)
    gradient(lambda x, w: root(scale(root(x), w)), arrays)
    op_contract(scale, arrays)
    op_contract(root, arrays[:1])


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("factor", [1.001, 0.999, -1, 0])
def test_gradient_wrong_by_one_part_in_a_thousand(arrays, factor, elementwise):
    """A gradient wrong as a whole is found, for each array and each seed."""
    for seed in range(20):
        for wrt in ([0], [1]):
            with pytest.raises(Differs, match="tolerance"):
                gradient(
                    changed(scale, lambda g: g * factor), arrays, wrt=wrt, seed=seed, elementwise=elementwise
                )


@pytest.mark.parametrize("near", [1e-2, 1e-3, 1e-4, 1e-5])
def test_gradient_beside_a_kink(rng, near):
    """A bend of the function nearer than the coarse steps does not spoil the numbers, and a wrong gradient
    beside it is found.
    """
    x = np.append(rng.standard_normal(50), [near, -near])
    gradient(relu, [x])
    for factor in (1.001, 0.999, -1, 0):
        with pytest.raises(Differs, match="tolerance"):
            gradient(changed(relu, lambda g, by=factor: by * g), [x])


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_gradient_wrong_at_any_size(arrays, size):
    """The scale of an array hides nothing."""
    gradient(lambda x, w: scale(x, w), (arrays[0] * size, arrays[1]), wrt=[1])
    with pytest.raises(Differs):
        gradient(changed(scale, lambda g: g * 1.001), (arrays[0] * size, arrays[1]), wrt=[1])


def test_gradient_wrong_in_one_element(arrays):
    """One element wrong by one part in a thousand is found."""
    for seed in range(20):
        with pytest.raises(Differs, match="array 0"):
            gradient(changed(scale, lambda g: spoilt(g, g.flat[2] * 1.001, 2)), arrays, seed=seed)


def test_gradient_that_is_nan(arrays):
    """A NaN is no gradient."""
    with pytest.raises(Differs, match="1 non-finite"):
        gradient(changed(scale, lambda g: spoilt(g, np.nan)), arrays)


def test_gradient_of_a_nan(arrays):
    """A value that is NaN is not differentiated."""
    with pytest.raises(Differs, match="finite"):
        gradient(scale, (spoilt(arrays[0], np.nan), arrays[1]))


def test_gradient_of_nothing():
    """No real array, or one without elements, is nothing to check."""
    with pytest.raises(Differs, match="not empty"):
        gradient(scale, (np.arange(3), np.arange(3)))
    with pytest.raises(Differs, match="not empty"):
        gradient(scale, (np.zeros((0, 3)), np.ones(3)), wrt=[0])


def test_gradient_lost_in_rounding(arrays):
    """Where finite differences cannot decide, the check says so and does not pass."""
    for small, large in ((1e-9, 1e9), (1e-9, 1), (1e-13, 1), (0, 1e9)):
        far = Op(lambda x, s=small, c=large: (x * s + c, None), lambda saved, dy, s=small: (dy * s * 2,))
        with pytest.raises(Differs, match="too small to be checked"):
            gradient(far, arrays[:1])


def test_differences_that_rounding_holds_still():
    """Two steps so fine that a slope is the same number of roundings are no surer than coarser ones: FIRE's c
    in a model, whose slopes these are.
    """
    coarse = [
        401.82615912653926,
        401.82531404031607,
        401.82510379516145,
        401.8250507087373,
        401.8250354320685,
    ]
    middle = [401.82503084906784, 401.82503084906784, 401.8250430704029, 401.82503084906784]
    fine = [401.82503084906784, 401.8251775050885, 401.82556858781027, 401.8241997982841, 401.8234176328406]
    slopes = [1e-6 * slope for slope in (*coarse, *middle, *fine, fine[-1])]
    found, doubt, _ = derivative(dict(zip(STEPS, slopes, strict=True)).__getitem__, 7.2e-4, 2.2e-14)
    assert 0 < doubt < 1e-6 * found
    assert abs(found - 0.0004018250327432) < doubt


def test_gradient_that_is_zero(arrays):
    """An array without influence has the gradient zero, and anything else is wrong."""
    none = Op(lambda x, w: (x + (w - w).sum(), w), lambda w, dy: (dy, w * 0))
    gradient(none, arrays)
    with pytest.raises(Differs):
        gradient(changed(none, lambda g: g + 1e-6), arrays, wrt=[1])


def test_function_without_ops(arrays):
    """A function that leaves the tape is not differentiated."""
    with pytest.raises(Differs, match="by way of any op"):
        gradient(lambda x, w: arrays[0] * 2, arrays)


def wants_backward(saved, dy, wants):
    x, w = saved
    return dy * w if wants[0] else None, (dy * x).sum(0) * (1 if wants[0] else 2) if wants[1] else None


def test_backward_that_depends_on_wants(arrays):
    """Skipping one gradient must not change another."""
    with pytest.raises(Differs, match=r"when \[1\] are watched"):
        gradient(changed(scale, backward=wants_backward, selective=True), arrays)


def writes_first(x, w):
    x *= w
    return x, (x, w)


def writes_saved(saved, dy):
    saved[0][...] = 0
    return scale_backward(saved, dy)


def writes_dy(saved, dy):
    dy *= 2
    return scale_backward(saved, dy)


@pytest.mark.parametrize(
    "wrong", [{"forward": writes_first}, {"backward": writes_saved}, {"backward": writes_dy}]
)
@pytest.mark.parametrize("checker", [gradient, op_contract])
def test_op_that_writes_into_what_is_not_its_own(arrays, checker, wrong):
    """Arguments, saved and dy are read-only."""
    with pytest.raises(Differs, match="not its own"):
        checker(changed(scale, **wrong), arrays)


def unlocks_first(x, w):
    x.setflags(write=True)
    x += 1
    return x * w, (x, w)


def test_op_that_unlocks_its_argument(arrays):
    """What goes around the lock is found by its effect."""
    with pytest.raises(Differs, match="after the call"):
        op_contract(changed(scale, forward=unlocks_first), arrays)


def test_op_that_returns_float64_for_float32(arrays):
    """dtype in is dtype out, forward and backward."""
    with pytest.raises(Differs, match="forward gives float64"):
        op_contract(changed(scale, forward=lambda x, w: (x * w * np.float64(1), (x, w))), arrays)
    with pytest.raises(Differs, match="gradient 0 is float64"):
        op_contract(changed(scale, lambda g: g.astype(np.float64)), arrays)


def test_op_that_mixes_numpy_into_cupy(arrays):
    """A NumPy function or array inside an op is found on the fake CuPy."""
    for wrong in (
        lambda x, w: (np.multiply(x, w), (x, w)),
        lambda x, w: (x * w + np.zeros(5, x.dtype), (x, w)),
    ):
        with pytest.raises(Differs, match="on the fake CuPy: TypeError"):
            op_contract(changed(scale, forward=wrong), arrays)
    with pytest.raises(Differs, match="actual is of numpy, expected of cupy"):
        op_contract(changed(scale, lambda g: g if isinstance(g, np.ndarray) else g.get()), arrays)


def test_op_whose_gradients_do_not_fit(arrays):
    """Number, shape and place of gradients are checked, and that there is one."""
    for wrong, reason in (
        (lambda saved, dy: scale_backward(saved, dy)[:1], "1 gradients for 2"),
        (lambda saved, dy: (dy, dy), "gradient 1 is"),
        (lambda saved, dy: (None, None), "no gradient at all"),
        (lambda saved, dy: list(scale_backward(saved, dy)), "expected a tuple"),
    ):
        with pytest.raises(Differs, match=reason):
            op_contract(changed(scale, backward=wrong), arrays)
    with pytest.raises(Differs, match="should be None"):
        op_contract(scale, (arrays[0], np.arange(1, 6)))


def test_op_that_remembers(arrays):
    """The second call gives the bits of the first."""
    calls = []
    with pytest.raises(Differs, match="called again"):
        op_contract(
            changed(scale, forward=lambda x, w: (x * w + len(calls) + (calls.append(1) or 0), (x, w))), arrays
        )


def test_one_wrong_element_in_a_million(rng):
    """The worst element counts, and its place is named."""
    expected = rng.uniform(1, 2, (1000, 1000))
    with pytest.raises(Differs, match=r"x: worst at \[123, 456\].*tolerance 1e-07"):
        same(spoilt(expected, expected[123, 456] + 1e-6, 123456), expected, 1e-7, "x")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
def test_non_finite_cells(dtype):
    """NaN and inf must be where they are expected, with their sign."""
    right = np.array([1, np.nan, np.inf, -np.inf, 0], dtype)
    same(right, right, 0)
    for place, value in ((0, np.nan), (1, 1), (2, -np.inf), (2, np.nan), (3, 0), (4, np.inf)):
        for pair in ((spoilt(right, value, place), right), (right, spoilt(right, value, place))):
            with pytest.raises(Differs, match=rf"1 of 5 cells differ, first at \[{place}\]") as error:
                same(*pair, 0.5)
            assert error.value.reason == "non-finite"


def test_a_product_marked_invalid_is_judged_by_its_value():
    """NumPy's warning about it comes by chance (pyproject.toml) and is no error; a NaN is one."""
    y = np.array([[np.inf]]) @ np.zeros((1, 1))
    with pytest.raises(Differs, match="non-finite"):
        same(y, np.zeros((1, 1)), 0.5)


def test_overflow_of_the_difference():
    """Values so far apart that their difference is infinite differ."""
    with pytest.raises(Differs, match="error inf"):
        same(np.array([1e308]), np.array([-1e308]), 0.5)


@pytest.mark.parametrize(
    ("actual", "expected", "reason"),
    [
        (np.zeros((0, 3)), np.zeros((0, 3)), "empty"),
        ({}, {}, "empty"),
        ([], (), "empty"),
        ([None], [None], "empty"),
        (np.ones(3, np.float32), np.ones(3), "dtype"),
        (np.ones(3, np.int32), np.ones(3, np.int64), "dtype"),
        (np.ones(3), np.ones((3, 1)), "shape"),
        (np.ones(()), np.ones(1), "shape"),
        (1.0, 1.0, "library"),
        (np.ones(3), None, "names"),
        (None, np.ones(3), "names"),
        ({"a": np.ones(3)}, np.ones(3), "names"),
        ({"a": np.ones(3)}, [np.ones(3)], "names"),
        ({"a": np.ones(3)}, {"a": np.ones(3), "b": np.ones(3)}, "names"),
        ({"a": np.ones(3), "b": np.ones(3)}, {"a": np.ones(3)}, "names"),
        ([np.ones(3)], [np.ones(3), np.ones(3)], "names"),
        (np.array([50000, 2]), np.array([50001, 2]), "value"),
        (np.array([True]), np.array([False]), "value"),
        (np.zeros(2), np.array([1e-300, 0]), "value"),
    ],
)
def test_what_differs(actual, expected, reason):
    """Each step of the comparison has its own reason, and neither side of it is trusted."""
    with pytest.raises(Differs) as error:
        same(actual, expected, 0.1, "x")
    assert error.value.reason == reason
    assert error.value.name == "x"
    assert isinstance(error.value, PerefError)


def test_library_is_compared(cupy):
    """Equal values of two libraries differ."""
    same(cupy.ones(3), cupy.ones(3), 0)
    with pytest.raises(Differs, match="actual is of cupy, expected of numpy"):
        same(cupy.ones(3), np.ones(3), 0)


def test_names_in_dicts():
    """The message has the path of the member that differs, and names what is missing."""
    with pytest.raises(Differs, match=r"^model\.a\.1: worst at \[0\]"):
        same({"a": [None, np.zeros(3)]}, {"a": [None, np.ones(3)]}, 0, "model")
    with pytest.raises(Differs, match="missing: b; unexpected: c"):
        same({"a": np.ones(1), "c": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)}, 0)


def test_declared_empty():
    """Only what is declared empty may be, and it must be."""
    same(np.zeros((0, 3)), np.zeros((0, 3)), 0, empty=True)
    with pytest.raises(Differs, match="declared empty"):
        same(np.ones(3), np.ones(3), 0, empty=True)


@pytest.mark.parametrize("tolerance", [np.nan, np.inf, -1, 1])
def test_tolerance_that_cannot_fail_or_pass(tolerance):
    """A tolerance is a number from 0 to below 1."""
    with pytest.raises(ValueError, match="tolerance"):
        same(np.ones(3), np.ones(3), tolerance)


def test_scale_is_that_of_the_tensor():
    """The error is relative to the largest expected element, absolute where all are zero."""
    same(np.array([1000.0, 0.09]), np.array([1000.0, 0.0]), 1e-4)
    with pytest.raises(Differs, match=r"error 0\.00011,"):
        same(np.array([1000.0, 0.11]), np.array([1000.0, 0.0]), 1e-4)
    same(np.array([1e-5]), np.zeros(1), 1e-4)
