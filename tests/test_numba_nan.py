"""What must not disappear in a kernel: a NaN goes where it goes in the plain op, and float64 is refused."""

import numpy as np
import pytest
from check import same
from registry import operation
from test_numba import CLOSE, FIELDS, NUMBA, PLAIN, arrays, fullest, given
from test_ops import CASES, random

from peref.errors import Misuse
from peref.ops.place import At
from peref.tape import Tape

RECURRENCES = ("delta", "diagonal_scan", "retention", "selective_scan", "short_conv", "wkv4", "wkv6", "wkv7")
ALL = At.of(5, causal=False)
COMPOSED = {
    "activated_linear": [random(9, 5), random(9, 5, seed=1), random(3, 5), random(3), random(9, 3)],
    "attention": [*arrays(1, 2, 1, 5, 5, 4, ALL), random(1, 2, 5, 5), random(1, 2, 5, 1), random(1, 2, 1, 5)],
}
# angles and gains, factors, sums over positions: in float64
WIDE = {"turn": (1, 2), "diagonal_scan": (1,), "attention": (3, 5, 6)}
SETTINGS = {"attention": {"at": ALL, "scale": 0.5}}


def real(a):
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def not_finite(be, field, arrays, settings, dy):
    """Which cells of the value, and of each gradient, are not finite."""
    tape = Tape()
    wide = WIDE.get(field, ())
    args = [
        tape.watch(given(a, np.float64 if n in wide else np.float32)) if real(a) else a
        for n, a in enumerate(arrays)
    ]
    with np.errstate(all="ignore"):
        y = operation(be, field)(*args, **settings)
        y = y[0] if isinstance(y, tuple) else y
        found = tape.gradients(y, dy(y.shape))
    return [~np.isfinite(a) for a in (y.value, *(found[a] for a in args if hasattr(a, "slot")))]


def spoilt(a):
    a = np.array(a)
    a.flat[a.size * 9 // 16] = np.nan
    return a


def usual(shape):
    return np.array(random(*shape), np.float32) if shape else np.float32(0.7)


def cases():
    """Those of the plain ops in which all is seen: no token of another run, no target that does not count,
    chunks of one token.
    """
    for field, name in FIELDS.items():
        for given_, settings in CASES[name]:
            hides = "at" in settings and not settings["at"].see.all()
            broken = field in RECURRENCES and given_[-1] is not None
            if settings.get("chunk", 1) == 1 and not hides and not broken:
                yield (
                    field,
                    [abs(a) if field == "cross_entropy" and not real(a) else a for a in given_],
                    settings,
                )
    for field, given_ in COMPOSED.items():
        yield field, given_, SETTINGS.get(field, {})


@pytest.mark.parametrize(
    ("field", "arrays", "settings"), list(cases()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_nan_goes_where_it_goes_in_the_plain_op(field, arrays, settings):
    """One in each array that is given, and one in what comes back: the same cells of the value and of every
    gradient are not finite.

    A recurrence passes it on in every chunk or state that it takes together, and these are its own: there the
    same results have some.
    """
    spoils = [
        ([spoilt(a) if n == m else a for n, a in enumerate(arrays)], usual)
        for m in range(len(arrays))
        if real(arrays[m])
    ]
    for given_, dy in [*spoils, (arrays, lambda shape: spoilt(usual(shape)))]:
        fast, plain = (not_finite(be, field, given_, settings, dy) for be in (NUMBA, PLAIN))
        assert any(cells.any() for cells in plain)
        for k, (got, want) in enumerate(zip(fast, plain, strict=True)):
            if field in RECURRENCES:
                assert got.any() or not want.any(), k
            else:
                same(got, want, 0, str(k))
        assert any(cells.any() for cells in fast)


DOCUMENTS = np.repeat([[0, 1, 2], [3, 4, 0], [0, 0, 0]], 24, 1)
PLACES = {
    "causal": At.of(72),
    "a window": At.of(72, window=20, causal=False),
    "documents": At.of(72, seg=DOCUMENTS),
    "later queries": At(np.arange(30, 72), np.arange(72), 72),
    "global tokens": At.of(72).seen_within(20, None, 3, False),
    "of documents": At.of(72, seg=DOCUMENTS, causal=False).seen_within(5, None, 2, False),
    "beside chunks": At.of(72).seen_within(None, 10, 2, False),
    "of any positions": At.of(72, positions=np.arange(72) // 2).seen_within(9, None, 1, False),
}
K, V, TABLE, TERM, COLUMN = 1, 2, 3, 4, 6


def value_and_gradients(be, arrays, at):
    tape = Tape()
    args = [None if a is None else tape.watch(a) for a in arrays]
    with np.errstate(all="ignore"):
        y = be.attention(*args, at=at, scale=0.3)
        found = tape.gradients(y, usual(y.shape))
    return [y.value, *(found[a] for a in args if a is not None)]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("at", PLACES.values(), ids=list(PLACES))
def test_what_a_query_does_not_see_does_not_reach_it(at, odd):
    """In a key, a value, a distance, a column, and in all cells of a term that are not seen: what the plain
    op has as a number is that number, in the value and in every gradient; and what is seen comes out.

    0 times a hidden value that is not finite is NaN in the plain op too, and so is, backward, 0 times a key.
    """
    see = np.broadcast_to(at.see, (3, 1, at.T, at.S))
    fine = [random(3, 2, at.T, 8), random(3, 1, at.S, 8, seed=2), random(3, 1, at.S, 8, seed=1)]
    fine += [random(2, len(at.distances)), random(3, 2, at.T, at.S), None, random(3, 2, 1, at.S)]
    spoilt_at = {K: (0, 0, 40), V: (1, 0, 30), TABLE: (0, len(at.distances) // 2), COLUMN: (0, 1, 0, 40)}
    spoilt_at[TERM] = np.broadcast_to(~see, fine[TERM].shape)
    for place, cells in spoilt_at.items():
        arrays = [
            a if a is None or n in WIDE["attention"] else a.astype(np.float32) for n, a in enumerate(fine)
        ]
        with np.errstate(over="ignore"):
            arrays[place][cells] = odd
        got, want = (value_and_gradients(be, arrays, at) for be in (NUMBA, PLAIN))
        for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            number = np.isfinite(theirs)
            same(np.where(number, mine, 0), np.where(number, theirs, 0), CLOSE, f"{place}: {n}")
        if place == V:
            assert not np.isfinite(got[0][1, :, see[1, 0, :, 30]]).any()
        else:
            same(np.isfinite(got[0]), np.isfinite(want[0]), 0, str(place))


def test_a_nan_in_adamw_stays():
    """In the gradient: in the parameter and in both moments, there and nowhere else."""
    g = spoilt(random(5, 7).astype(np.float32))
    p, m, v = (np.ones((5, 7), np.float32) for _ in range(3))
    NUMBA.adamw(p, g, m, v, np.asarray(0.01), np.asarray(1), beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1)
    for a in (p, m, v):
        same(np.isnan(a), np.isnan(g), 0)


@pytest.mark.parametrize("field", [*FIELDS, *COMPOSED])
def test_float64_is_refused(field):
    """Whichever array it is, naming the backend that takes it."""
    arrays, settings = (
        (COMPOSED[field], SETTINGS.get(field, {})) if field in COMPOSED else fullest(CASES[FIELDS[field]])
    )
    narrow = [
        a.astype(np.float32) if real(a) and n not in WIDE.get(field, ()) else a for n, a in enumerate(arrays)
    ]
    for n, a in enumerate(arrays):
        if real(a) and n not in WIDE.get(field, ()):
            with pytest.raises(Misuse, match=r"float32 and got float64; use --backend numpy"):
                operation(NUMBA, field)(*narrow[:n], a.astype(np.float64), *narrow[n + 1 :], **settings)


def test_float64_parameters_are_refused_by_adamw():
    """The gradient and moments too."""
    rest = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1}
    for n in range(4):
        four = [np.ones(3, np.float64 if k == n else np.float32) for k in range(4)]
        with pytest.raises(Misuse, match=r"float32 and got float64; use --backend numpy"):
            NUMBA.adamw(*four, np.asarray(0.01), np.asarray(1), **rest)
