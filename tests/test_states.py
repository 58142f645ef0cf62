"""The state of a recurrence carries a gradient: what arrives through the last one, and what the one handed in
gets. By finite differences, from piece to piece of a text, and in the twins of the kernels.
"""

import numpy as np
import pytest
from check import gradient, same

import peref
from peref import hooks
from peref.backends import cuda
from peref.encodings import SHOWN, bind, get, names
from peref.errors import Misuse
from peref.ops.place import At
from peref.tape import Op

B, T, C, H, D = 2, 7, 6, 2, 4
CUT = 4
SEG = np.array([[1, 1, 1, 1, 1, 2, 2], [1, 1, 0, 2, 2, 2, 0]])
MIXES = [name for name in names() if get(name).hook == "mix"]


def joined_forward(*arrays):
    """All of them in one line, 0 for what is infinite: the unit of an empty sum."""
    line = np.concatenate([a.ravel() for a in arrays])
    return np.where(np.isinf(line), 0, line), ([a.shape for a in arrays], np.isfinite(line))


def joined_backward(saved, dy):
    shapes, there = saved
    parts = np.split(np.where(there, dy, 0), np.cumsum([np.prod(shape) for shape in shapes])[:-1])
    return tuple(a.reshape(shape) for a, shape in zip(parts, shapes, strict=True))


joined = Op(joined_forward, joined_backward)


def bound(name):
    """The encoding in a layer of these sizes, its options at their defaults."""
    return bind(
        get(name), SHOWN | {"H": H, "D": D, "C": C, "L": T} | {"layer": 0, "layers": 1, "earlier": 0}, {}
    )


def layer(name, seed=0):
    """Its parameters, off where they start, and a layer's input."""
    rng = np.random.default_rng(seed)
    p = {n: np.asarray(a, float) for n, a in bound(name).init(rng).items()}
    p = {n: a + 0.3 * rng.standard_normal(a.shape) for n, a in p.items()}
    return p, rng.standard_normal((B, T, C)), rng


def mixed(name, x, p, state, first=0, **more):
    positions = range(first, first + x.shape[1])
    return peref.mix(name, x, heads=H, head_width=D, positions=positions, params=p, state=state, **more)


def calls(name, twins=None):
    """(name, op, arrays, settings) of each recurrence in a layer that goes on from a state."""
    found = []
    p, x, rng = layer(name)
    state = mixed(name, rng.standard_normal((B, 3, C)), p, {})[1]

    class Asked(dict):
        def get(self, key, plain=None):
            def call(*arrays, **settings):
                found.append((key, plain, arrays, settings))
                return plain(*arrays, **settings)

            return call

    be = peref.backends.Backend(recurrences=Asked())
    hooks.mixed_from(be, bound(name), p, x, At.of(T, seg=SEG), state)
    return found


@pytest.mark.parametrize("name", MIXES)
def test_every_recurrence_takes_the_gradient_of_its_last_state(name):
    for _, op, arrays, settings in calls(name):
        assert op.state, op
        gradient(lambda *a, op=op, s=settings: joined(*op(*a, **s)), arrays)


@pytest.mark.parametrize("name", MIXES)
def test_the_twins_take_it_or_refuse_it(name):
    """Those of this layer's recurrences that have twins."""
    from peref.backends.numba import BACKEND

    rng = np.random.default_rng(1)
    for key, op, arrays, settings in calls(name):
        if key not in BACKEND.recurrences:
            continue
        y, saved, last = op.forward(*arrays, **settings)
        dy, dlast = rng.standard_normal(y.shape), rng.standard_normal(last.shape)
        want = op.backward(saved, dy, dlast)
        low = [
            a if a is None or a.dtype.kind != "f" or n in wide(key) else np.float32(a)
            for n, a in enumerate(arrays)
        ]
        twin = BACKEND.recurrences[key]
        y, saved, last = twin.forward(*low, **settings)
        got = twin.backward(saved, np.float32(dy), np.float32(dlast))
        for n, (g, w) in enumerate(zip(got, want, strict=True)):
            assert (g is None) == (w is None)
            if g is not None:
                same(np.float64(g), w, 1e-4, f"{key}: gradient {n}")
        if key in cuda.BACKEND.recurrences:
            with pytest.raises(Misuse, match="take no gradient of the last state"):
                cuda.BACKEND.recurrences[key].backward(None, dy, dlast)


def wide(key):
    """Arrays that stay float64."""
    return (1,) if key == "diagonal_scan" else ()


@pytest.mark.parametrize("seg", [None, SEG], ids=["one", "packed"])
@pytest.mark.parametrize("name", MIXES)
def test_a_text_in_pieces_has_the_gradient_of_the_whole(name, seg):
    """What the second piece hands back through the state is what the first one lacks."""
    p, x, rng = layer(name)
    past = mixed(name, rng.standard_normal((B, 3, C)), p, {})[1]
    dy = rng.standard_normal((B, T, C))
    piece = lambda cut: {
        "seg": None if seg is None else seg[:, cut],
        "params": p,
        "heads": H,
        "head_width": D,
    }

    def pulled(cut, state):
        (y, last), pull = peref.vjp(
            peref.mix, name, x=x[:, cut], state=state, positions=range(T)[cut], **piece(cut)
        )
        return y, last, pull

    y, last, pull = pulled(slice(0, T), past)
    dlast = {n: rng.standard_normal(a.shape) for n, a in last.items()}
    dx, dp, dpast = pull(dy, dlast)
    y1, between, first = pulled(slice(0, CUT), past)
    y2, end, second = pulled(slice(CUT, T), between)
    same(np.concatenate([y1, y2], 1), y, 1e-12)
    same(end, last, 1e-12)
    dx2, dp2, dbetween = second(dy[:, CUT:], dlast)
    dx1, dp1, dfirst = first(dy[:, :CUT], dbetween)
    same(np.concatenate([dx1, dx2], 1), dx, 1e-11)
    same({n: a + dp2[n] for n, a in dp1.items()}, dp, 1e-11)
    same(dfirst, dpast, 1e-11)
    # and without it the first piece is wrong
    nothing = {n: 0 * a for n, a in dbetween.items()}
    with pytest.raises(AssertionError):
        same(first(dy[:, :CUT], nothing)[0], dx[:, :CUT], 1e-3)


@pytest.mark.parametrize("name", MIXES)
def test_the_gradient_of_the_first_state_is_that_of_finite_differences(name):
    p, x, rng = layer(name)
    past = mixed(name, rng.standard_normal((B, 3, C)), p, {})[1]

    def of_all(x, *state):
        y, last = mixed(name, x, p, dict(zip(past, state, strict=True)), 3)
        return joined(y, *last.values())

    gradient(of_all, [x, *past.values()])


def test_a_state_that_does_not_fit_is_refused():
    p, x, _ = layer("retnet")
    state = mixed("retnet", x, p, {})[1]
    with pytest.raises(Misuse, match=r"state given to retnet: S \[2, 2, 4, 8\]; expected: s \[2, 2, 4, 8\]"):
        mixed("retnet", x, p, {"S": state["s"]})
    with pytest.raises(Misuse, match="is float32 beside others of float64"):
        mixed("retnet", x, p, {"s": np.float32(state["s"])})
    pull = peref.vjp(peref.mix, "retnet", x=x, heads=H, head_width=D, params=p, state={})[1]
    with pytest.raises(
        Misuse, match=r"pull was given float64\[2, 7, 6\]; expected .*, s float64\[2, 2, 4, 8\]"
    ):
        pull(x)
