"""Calls that must be refused: peref refuses each, in words and for that reason alone; who computes
something is found out.
"""

import json
from importlib import import_module

import numpy as np
import pytest

from peref.encodings import names
from peref.errors import Misuse
from peref.golden.compute.reference import direct_call
from peref.golden.judge.refusals import WRONGS, Refused, materialised, refusal_verdict

EVERY = {r.id: r for name in names() for r in import_module(f"recipes.{name}").REFUSED}


def words_of(name):
    """As they come out of a file."""
    return json.loads(json.dumps(EVERY[name].words(), allow_nan=False))


@pytest.mark.parametrize("name", EVERY)
def test_peref_refuses(name):
    """With Misuse; and what stands beside the wrong thing is right, for without it the call is computed."""
    refusal, words = EVERY[name], words_of(name)
    with pytest.raises(Misuse):
        direct_call(words, materialised(words))
    good = refusal.good.words()
    arrays = {key: x for key, x in words["inputs"].items() if key not in refusal.given}
    known = type(refusal)(refusal.good, "good", refusal.kind, refusal.why).words()
    assert arrays.items() <= known["inputs"].items()
    assert direct_call({**words, "options": good["options"], "facts": good["facts"]}, materialised(known))


def test_ids_and_words():
    """Every encoding refuses something; each id is there once, with a reason and a kind."""
    assert {r.good.encoding for r in EVERY.values()} | {"rwkv4"} >= set(names())
    assert len(EVERY) == sum(len(import_module(f"recipes.{name}").REFUSED) for name in names())
    for name, refusal in EVERY.items():
        words = words_of(name)
        assert words["kind"] in WRONGS, name
        assert words["why"].endswith("."), name
        assert (words["result"] == "refuse") == (refusal.or_else is None)


def says(error):
    def function(case, a):
        raise error

    return function


def test_what_counts_as_a_refusal():
    """Exceptions for wrong values do, accidents do not, None claims nothing, numbers are a failure."""
    words = words_of("rope.refuse/odd-width")
    for error in (
        ValueError("odd"),
        TypeError("odd"),
        AssertionError(),
        IndexError("5"),
        RuntimeError("sizes"),
        Refused("width"),
    ):
        assert refusal_verdict(words, says(error))[0] is True
    for error in (
        KeyError("x"),
        AttributeError("x"),
        NotImplementedError(),
        ZeroDivisionError(),
        RecursionError(),
    ):
        held, said = refusal_verdict(words, says(error))
        assert (held, "an accident" in said) == (False, True)
    assert refusal_verdict(words, lambda case, a: None)[0] is None
    held, said = refusal_verdict(words, lambda case, a: {"q_rotated": a["q"]})
    assert (held, said) == (
        False,
        "computed q_rotated in place of refusing: An odd rotary width: the last channel has no partner.",
    )


def test_acceptable_to_give_it_back():
    """A width of 0 turns nothing: unchanged is as good as an error, changed is not."""
    words = words_of("rope.refuse/zero-width")
    assert (words["result"], words["or"]) == ("acceptable", "unchanged")
    assert refusal_verdict(words, lambda case, a: {"q_rotated": a["q"], "k_rotated": a["k"]})[0] is True
    assert refusal_verdict(words, lambda case, a: {"q_rotated": -a["q"], "k_rotated": a["k"]})[0] is False
    assert refusal_verdict(words, lambda case, a: {})[0] is False


def test_inputs_as_arrays():
    """Values that JSON cannot say, shapes that are filled."""
    a = materialised(words_of("rope.refuse/nan-position"))
    assert np.isnan(a["positions"][2])
    assert (a["q"] == 0.5).all()
    assert a["q"].shape == (1, 3, 5, 8)
    assert materialised(words_of("rope.refuse/whole-numbers"))["q"].dtype == np.int64
    assert "x" not in materialised(words_of("forgetting.refuse/no-input"))
