"""Laws that an encoding claims hold, and those that it does not claim fail or are refused: generated from
the registry.
"""

import re

import pytest
from generated import NAMES, config, every_choice, of, subject, without

from peref.encodings import claims_of, get
from peref.laws import claimed as laws
from peref.laws import everywhere


def claimed(name, given):
    """The laws that it claims with these options."""
    return config(name, pe=((name, given),)).encoding(0).claims


def said(law, name):
    """How it is refused, once with each choice of the options."""
    found = laws.ask(law, subject(name))
    assert len(found) == len(every_choice(name))
    return found


def choices(name):
    """Every choice of its options, and what it claims with them."""
    return [(given, claimed(name, given)) for given in every_choice(name)]


def test_options_may_change_what_is_claimed():
    """Those that do, found by asking each choice of each option."""
    found = {
        (name, *given) for name in NAMES for given, laws in choices(name) if laws != claims_of(get(name))
    }
    assert found == {
        ("longrope", "start_tokens", "original"),
        ("longrope", "start_tokens", "attention_factor", "original"),
        ("learned_bias", "max_distance"),
        ("pyramid", "position"),
    }
    assert claims_of(get("pyramid")) ^ claimed("pyramid", {"position": "level"}) == {"products"}
    assert claims_of(get("learned_bias")) ^ claimed("learned_bias", {"max_distance": 3}) == {"any_length"}
    assert claims_of(get("longrope")) ^ claimed("longrope", {"start_tokens": 4}) == {"shift"}


@pytest.mark.parametrize("name", NAMES)
def test_shift_holds_where_it_is_claimed_and_fails_elsewhere(name):
    """With every choice of its options: positions 1000 further on give the same logits. Not claiming it
    would hide a law that holds.
    """
    laws.ask("shift", subject(name))


@pytest.mark.parametrize("name", of("two_sided"))
def test_two_sided_is_claimed_and_holds(name):
    """The last token reaches the first row."""
    assert not laws.ask("two_sided", subject(name))


@pytest.mark.parametrize("name", sorted({*of("two_sided"), *of("window")}))
def test_gradients_in_all_that_is_claimed(name):
    """Both ways, with every choice of its options; in a window; at positions of several axes."""
    everywhere.gradients_of_claims(subject(name))


@pytest.mark.parametrize("name", without("two_sided"))
def test_two_sided_is_not_claimed_and_refused(name):
    """Config says so."""
    for words in said("two_sided", name):
        assert f"{name} reads only the past" in words


@pytest.mark.parametrize("name", of("real_positions"))
def test_real_positions_are_claimed_and_work(name):
    """Half steps are places like any other, and whole numbers given as reals are the whole numbers."""
    assert not laws.ask("real_positions", subject(name))


@pytest.mark.parametrize("name", without("real_positions"))
def test_real_positions_are_not_claimed_and_refused(name):
    """In words."""
    for words in said("real_positions", name):
        assert f"{name}: positions must be whole numbers" in words


@pytest.mark.parametrize("name", NAMES)
def test_any_length_works_where_it_is_claimed_and_is_refused_elsewhere(name):
    """With every choice of its options: four times the length trained for gives finite logits.

    Where it is not claimed all is well up to where it ends, whole and in decoding; one further is refused,
    and Config knows where that is.
    """
    for words in laws.ask("any_length", subject(name)):
        assert re.match(rf"{name}: .*\d+ and ends there", words)


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).score or get(name).attend])
def test_whether_more_than_products_of_q_and_k_is_seen(name):
    """Where not, q and k that are turned alike, by any rotation, are the same to it."""
    laws.ask("products", subject(name))


@pytest.mark.parametrize("name", of("window"))
def test_window_is_claimed_and_holds(name):
    """In one layer a query with window 3 reads itself and two before, no more; decoding and padding agree
    with the whole.
    """
    assert not laws.ask("window", subject(name))


@pytest.mark.parametrize("name", without("window"))
def test_window_is_not_claimed_and_refused(name):
    """Config says so."""
    for words in said("window", name):
        assert f"{name} has no attention that a window could limit" in words
