"""Op, Var and Tape: what is recorded, what is checked, what is let go."""

import gc
import weakref

import numpy as np
import pytest
from check import same

from peref.tape import Op, Tape, Var, value

double = Op(lambda x: (2 * x, None), lambda saved, dy: (2 * dy,))
add = Op(lambda a, b: (a + b, None), lambda saved, dy: (dy, dy))
times = Op(lambda a, b: (a * b, (a, b)), lambda saved, dy: (dy * saved[1], dy * saved[0]))
power = Op(lambda x, *, n: (x**n, (x, n)), lambda saved, dy: (dy * saved[1] * saved[0] ** (saved[1] - 1),))


@pytest.fixture
def tape():
    return Tape()


def test_bare_arrays_just_run():
    """Without a Var nothing is recorded and an array comes out."""
    same(double(np.ones(3)), np.full(3, 2.0), 0)


def test_var_says_what_it_is(tape):
    """A Var has value, shape, ndim and dtype, and no arithmetic."""
    x = tape.watch(np.zeros((2, 3), np.float32))
    assert (x.shape, x.ndim, x.dtype, repr(x)) == ((2, 3), 2, np.float32, "Var(float32[2, 3])")
    assert value(x) is x.value
    assert value(None) is None
    with pytest.raises(TypeError):
        x + x


def test_chain_and_settings(tape, rng):
    """Gradients go back through the calls; settings go by keyword."""
    x, dy = rng.standard_normal((3, 5)), rng.standard_normal((3, 5))
    a = tape.watch(x)
    y = power(double(a), n=3)
    same(y.value, (2 * x) ** 3, 1e-15)
    same(tape.gradients(y, dy)[a], dy * 24 * x**2, 1e-15)


def test_fan_out_accumulates_into_a_new_array(tape, rng):
    """A value used several times gets the sum; no gradient that was handed over is written into."""
    x, dy = rng.standard_normal(5), rng.standard_normal(5)
    before = dy.copy()
    a = tape.watch(x)
    y = add(add(a, a), times(a, a))
    got = tape.gradients(y, dy)[a]
    same(got, dy * (2 + 2 * x), 1e-15)
    same(dy, before, 0)
    assert not np.shares_memory(got, dy)


def test_same_leaf_twice_in_one_call(tape):
    """Both gradients of one call arrive."""
    a = tape.watch(np.array([3.0]))
    same(tape.gradients(times(a, a), np.ones(1))[a], np.array([6.0]), 0)


def test_dict_of_leaves(tape):
    """A dict of parameters is watched by name."""
    p = tape.watch({"w": np.ones(2), "b": np.ones(2)})
    got = tape.gradients(add(p["w"], p["b"]), np.array([1.0, 2.0]))
    assert list(got) == [p["w"], p["b"]]


def test_unused_leaf_gets_zeros(tape):
    """A leaf that y does not depend on has the gradient zero, in its own shape and dtype."""
    a, b = tape.watch(np.ones(3)), tape.watch(np.ones((2, 2), np.float32))
    add(b, b)
    same(tape.gradients(double(a), np.ones(3))[b], np.zeros((2, 2), np.float32), 0)


def test_gradients_are_taken_once(tape):
    """A second time y is not on the tape, which is said, also where more is by then: all would be zeros."""
    x = tape.watch(np.ones(3))
    y = double(x)
    tape.gradients(y, np.ones(3))
    for _ in range(2):
        with pytest.raises(ValueError, match="were taken, and the tape emptied; run forward again"):
            tape.gradients(y, np.ones(3))
        double(x)


def test_leaf_itself(tape):
    """The gradient of a leaf with respect to itself is dy."""
    a = tape.watch(np.ones(3))
    same(tape.gradients(a, np.arange(3.0))[a], np.arange(3.0), 0)


def test_constants_get_nothing(tape):
    """A bare array beside a Var gets no gradient."""
    a = tape.watch(np.ones(3))
    got = tape.gradients(times(a, np.full(3, 4.0)), np.ones(3))
    assert list(got) == [a]
    same(got[a], np.full(3, 4.0), 0)


def test_none_arguments(tape):
    """Absent arrays are None, and so is their gradient."""
    maybe = Op(
        lambda a, b: (a if b is None else a + b, b is None), lambda no_b, dy: (dy, None if no_b else dy)
    )
    a = tape.watch(np.ones(3))
    same(tape.gradients(maybe(a, None), np.arange(3.0))[a], np.arange(3.0), 0)
    same(maybe(np.ones(3), None), np.ones(3), 0)


def test_gradient_of_none_leaves_zeros(tape):
    """A backward may return None for a watched array."""
    stop = Op(lambda a: (a + 0, None), lambda saved, dy: (None,))
    a = tape.watch(np.ones(3))
    same(tape.gradients(stop(a), np.ones(3))[a], np.zeros(3), 0)


def test_extra(tape):
    """By-products come beside y, bare, and carry no gradient."""
    running = Op(
        lambda x: (x.cumsum(), None, {"last": x.sum()}),
        lambda saved, dy: (dy[::-1].cumsum()[::-1],),
        extra=True,
    )
    y, last = running(np.arange(4.0))
    same(y, np.array([0.0, 1, 3, 6]), 0)
    assert last["last"] == 6
    a = tape.watch(np.arange(4.0))
    y, last = running(a)
    assert isinstance(y, Var)
    assert last["last"] == 6
    same(tape.gradients(y, np.ones(4))[a], np.array([4.0, 3, 2, 1]), 0)


def test_selective_is_told_who_asks(tape):
    """backward of a selective op gets one bool per array: whether it is on the tape."""
    asked = []
    op = Op(
        times.forward,
        lambda saved, dy, wants: asked.append(wants) or times.backward(saved, dy),
        selective=True,
    )
    a = tape.watch(np.ones(3))
    tape.gradients(op(np.ones(3), op(a, np.ones(3))), np.ones(3))
    assert asked == [(False, True), (True, False)]


def test_gradients_that_nobody_reads_may_be_made_beside_the_others(tape):
    """Those of leaves that one call alone has, and that are no result."""
    asked = []

    def backward(saved, dy, aside=None):
        return *times.backward(saved, dy)[:1], aside(slice(1, None), lambda: times.backward(saved, dy)[1])

    op = Op(times.forward, backward, aside=True)
    one, two, three, four = (tape.watch(np.full(3, float(n))) for n in range(1, 5))
    y = op(op(op(one, two), op(two, three)), four)
    beside = lambda make: asked.append(make()) or asked[-1]
    found = tape.gradients((y, four), (np.ones(3), np.ones(3)), beside=beside)
    assert [found[a].tolist() for a in (one, two, three, four)] == [[48] * 3, [48] * 3, [16] * 3, [13] * 3]
    assert asked == [found[three]]


def test_branches_nobody_uses_are_not_run(tape):
    """backward is called only for what y depends on."""
    called = []
    watched = lambda name: Op(double.forward, lambda saved, dy: called.append(name) or (2 * dy,))
    a = tape.watch(np.ones(3))
    watched("beside it")(a)
    y = watched("before it")(a)
    watched("after it")(y)
    tape.gradients(y, np.ones(3))
    assert called == ["before it"]


def test_two_tapes_in_one_call(tape):
    """A call belongs to one tape."""
    with pytest.raises(ValueError, match="two tapes"):
        add(tape.watch(np.ones(3)), Tape().watch(np.ones(3)))


def test_y_of_another_tape(tape):
    """Gradients are asked of the tape that y is on; a bare array, which depends on nothing, is on none."""
    for y in (Tape().watch(np.ones(3)), np.ones(3)):
        with pytest.raises(ValueError, match="not on this tape"):
            tape.gradients(y, np.ones(3))


@pytest.mark.parametrize("dy", [np.ones(4), np.ones((3, 1)), np.ones(3, np.float32), np.ones(())])
def test_dy_that_does_not_fit(tape, dy):
    """dy has the shape and dtype of y."""
    with pytest.raises(ValueError, match=r"expected the shape and dtype of y, float64\[3\]"):
        tape.gradients(double(tape.watch(np.ones(3))), dy)


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda saved, dy: (dy, dy), "returned 2 gradients for 1 array"),
        (lambda saved, dy: (), "returned 0 gradients for 1 array"),
        (lambda saved, dy: (dy[:1],), r"gradient 0 is float64\[1\], its array is float64\[3\]"),
        (lambda saved, dy: (dy.astype(np.float32),), r"gradient 0 is float32\[3\]"),
    ],
)
def test_gradients_that_do_not_fit(tape, backward, message):
    """Count, shape and dtype are checked as gradients are made, and the op is named."""

    def careless(x):
        return x * 1, None

    with pytest.raises(TypeError, match=f"backward of careless.*{message}"):
        tape.gradients(Op(careless, backward)(tape.watch(np.ones(3))), np.ones(3))


class Kept:
    """Something that can be watched as it goes."""

    def __init__(self, x):
        self.x = x


def test_saved_is_freed_as_it_is_used(tape):
    """When backward of an earlier call runs, what the later ones saved is gone."""
    alive, seen = [], []

    def forward(x):
        saved = Kept(x)
        alive.append(weakref.ref(saved))
        return x * 1, saved

    def backward(saved, dy):
        seen.append([r() is not None for r in alive])
        return (dy,)

    op = Op(forward, backward)
    a = tape.watch(np.ones(3))
    y = op(op(op(a)))
    gc.disable()
    try:
        tape.gradients(y, np.ones(3))
    finally:
        gc.enable()
    assert seen == [[True, True, True], [True, True, False], [True, False, False]]
    assert [r() for r in alive] == [None, None, None]
    assert tape.entries == []


def test_tape_holds_no_values(tape):
    """A value that no op saved is freed once nobody uses it, though the tape goes on."""
    a = tape.watch(np.ones(3))
    middle = double(a)
    gone = weakref.ref(middle.value)
    y = double(middle)
    del middle
    assert gone() is None
    same(tape.gradients(y, np.ones(3))[a], np.full(3, 4.0), 0)


def test_two_uses_of_one_tape(tape):
    """After gradients the tape is empty and its leaves serve again."""
    a = tape.watch(np.ones(3))
    for _ in range(2):
        same(tape.gradients(double(a), np.ones(3))[a], np.full(3, 2.0), 0)


def test_long_chains_need_no_recursion(tape):
    """Ten thousand calls in a row are no problem."""
    a = y = tape.watch(np.ones(1))
    for _ in range(10000):
        y = add(y, np.zeros(1))
    same(tape.gradients(y, np.ones(1))[a], np.ones(1), 0)


def test_on_cupy(tape, cupy):
    """The tape carries arrays of any library."""
    a, b = tape.watch(cupy.arange(3.0)), tape.watch(cupy.ones(2))
    got = tape.gradients(times(a, a), cupy.ones(3))
    same(got[a], 2 * cupy.arange(3.0), 0)
    same(got[b], cupy.zeros(2), 0)


def test_adds_is_handed_what_arrived(tape):
    """backward of an op that adds is handed the gradient that arrived at its first array, and once only."""
    handed = []

    def backward(saved, dy, arrived=None):
        handed.append(arrived)
        return (2 * dy if arrived is None else 2 * dy + arrived,)

    op = Op(double.forward, backward, adds=True)
    a = tape.watch(np.ones(3))
    y = times(times(op(a), op(a)), double(a))
    same(tape.gradients(y, np.ones(3))[a], np.full(3, 24.0), 0)
    same(handed[0], np.full(3, 8.0), 0)
    same(handed[1], np.full(3, 16.0), 0)
