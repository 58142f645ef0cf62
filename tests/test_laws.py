"""Laws: peref keeps each of them in float64 and float32, and for each there is a wrong implementation that
breaks it.
"""

import json
from importlib import import_module

import numpy as np
import pytest

from peref.encodings import get, names
from peref.golden.compute.reference import reference
from peref.golden.judge.laws import LAWS, law_verdict

EVERY = {law.id: law for name in names() for law in import_module(f"recipes.{name}").LAWS}


def words_of(name):
    """As they come out of a file."""
    return json.loads(json.dumps(EVERY[name].words(), allow_nan=False))


def rounded(function, kind):
    """A function whose inputs and outputs are of a dtype, and which computes at least in float32."""
    if kind != np.float16:
        return function
    in_dtype = lambda a, of, to: {n: x.astype(to) if x.dtype == of else x for n, x in a.items()}
    return lambda case, a: in_dtype(function(case, in_dtype(a, kind, np.float32)), np.float32, kind)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", names())
def test_peref_keeps_them(name, kind):
    for law in import_module(f"recipes.{name}").LAWS:
        assert law_verdict(words_of(law.id), rounded(reference, kind), kind) == (True, "holds"), law.id


def test_ids_and_laws():
    """Each id is there once, every law is somebody's, every encoding that is no table of rows has some."""
    assert len(EVERY) == sum(len(import_module(f"recipes.{name}").LAWS) for name in names())
    assert {law.law for law in EVERY.values()} == set(LAWS) == set(BREAKS)
    rows = {name for name in names() if get(name).hook == "embed"}
    assert {law.case.encoding for law in EVERY.values()} - rows == set(names()) - rows
    assert all(law.case.why.endswith(".") for law in EVERY.values())


def told(**facts):
    """The reference on a case with other facts."""
    return lambda case, a: reference({**case, "facts": case["facts"] | facts}, a)


def at(change):
    """The reference at other positions."""
    return lambda case, a: reference(case, {**a, "positions": change(a["positions"])})


def off(change):
    """The reference's outputs, changed."""
    return lambda case, a: change(reference(case, a), a)


def in_float32(case, a):
    """T5's logarithm to base 2, one unit of float32 too low as some libraries have it, not by this one's
    luck.
    """
    options, d = case["options"], a["distances"]
    e = options["buckets"] // 2
    low = np.nextafter(np.log2(np.maximum(d, 1) / e).astype(np.float32), np.float32(-np.inf))
    far = low / np.float32(np.log2(options["max_distance"] / e)) * np.float32(e)
    row = np.where(d < e, d, np.minimum(e + far.astype(int), 2 * e - 1))
    return {"bias": a["param.table"][row].T}


def tiled(case, a):
    """Query head h reads key-value head h mod G."""
    of = [h % case["facts"]["G"] for h in range(case["facts"]["H"])]
    return told(G=case["facts"]["H"])(case, {**a, **{name: a[name][:, of] for name in "kv"}})


BREAKS = {  # law -> id, a wrong implementation, what is said of it
    "norm": ("rope.law/norm", off(lambda y, a: y | {"q_rotated": y["q_rotated"] * 1.0001}), "lengths of q"),
    "composition": ("rope.law/composition", at(lambda i: i + 1), "turned by m and by n"),
    "adjoint": ("rope.law/adjoint", off(lambda y, a: y | {"vjp.k": -y["vjp.k"]}), "<R k, g>"),
    "shift": ("rope.law/shift", at(lambda i: np.minimum(i, 1003)), "outputs at positions 0 on and 1000 on"),
    "softmax": (
        "alibi.law/softmax",
        off(lambda y, a: y | {"scores": y["scores"] * 1.001}),
        "softmax of the scores",
    ),
    "fading": ("alibi.law/fading", off(lambda y, a: {"bias": -y["bias"]}), "rises from distance 0 to 1"),
    "buckets": ("t5.law/buckets-32-100", in_float32, "distance 40 is in bucket 23, expected 24"),
    "causal": (
        "forgetting.law/causal",
        off(lambda y, a: {"out": y["out"] + a["v"].mean()}),
        "outputs before token 4",
    ),
    "prefix": (
        "alibi.law/prefix",
        off(lambda y, a: {"out": y["out"] / y["out"].shape[2]}),
        "first 4 tokens alone",
    ),
    "packed": (
        "rope.law/packed",
        lambda case, a: reference(case, {n: x for n, x in a.items() if n != "seg"}),
        "packed sequence and alone",
    ),
    "groups": ("rope.law/groups", tiled, "2 key-value heads for 6"),
    "order": (
        "none.law/order",
        off(lambda y, a: {"out": y["out"] * (1 + a["positions"][:, None])}),
        "another order",
    ),
}


@pytest.mark.parametrize("law", BREAKS)
def test_a_wrong_implementation_breaks_it(law):
    """And what is said names it; the right one of the same case passes."""
    name, wrong, said = BREAKS[law]
    assert EVERY[name].law == law
    for kind in (np.float64, np.float32):
        held, words = law_verdict(words_of(name), wrong, kind)
        assert (held, said in words) == (False, True), words


def test_far_positions_excuse_no_more_than_float32_loses():
    """In float16 64 roundings times the position would be more than the numbers themselves."""
    name, wrong, _ = BREAKS["composition"]
    assert law_verdict(words_of(name), rounded(wrong, np.float16), np.float16)[0] is False


def test_nothing_is_claimed_and_nothing_is_right():
    """None is not claimed; NaN, shapes, exceptions and outputs that are missing break a law."""
    words = words_of("rope.law/norm")
    assert law_verdict(words, lambda case, a: None) == (None, "not claimed")
    for some in ({"k_rotated": np.ones(1)}, {}):
        held, said = law_verdict(words, lambda case, a, some=some: some)
        assert (held, "q_rotated" in said, "k_rotated" in said) == (False, True, not some), said
    held, said = law_verdict(words, off(lambda y, a: y | {"q_rotated": y["q_rotated"] * np.nan}))
    assert (held, "NaN" in said) == (False, True)
    held, said = law_verdict(words, off(lambda y, a: y | {"q_rotated": y["q_rotated"][:, :, 1:]}))
    assert (held, "actual is [" in said) == (False, True)
    held, said = law_verdict(words, lambda case, a: 1 / 0)
    assert (held, said) == (False, "raised ZeroDivisionError: division by zero")


def test_t5_in_float16_breaks_its_laws():
    """Each of the knife-edge settings is there for a rounding that falls on the wrong side."""

    def in_float16(case, a):
        options, d = case["options"], a["distances"]
        e = options["buckets"] // 2
        half = lambda x: np.float16(x).astype(float)
        log = lambda x: np.float16(np.log(half(x)))  # the nearest one, whatever the library
        share = log(np.maximum(d, 1) / np.float16(e)) / log(options["max_distance"] / e) * np.float16(e)
        return {"bias": a["param.table"][np.where(d < e, d, np.minimum(e + share.astype(int), 2 * e - 1))].T}

    for name in ("t5.law/buckets-64-256", "t5.law/buckets-32-512"):
        assert law_verdict(words_of(name), in_float16)[0] is False
