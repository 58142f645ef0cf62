"""Options at the ends of what they may be, generated over all encodings: each is computed to finite logits, or refused in words."""

from itertools import combinations, product
from typing import Literal, get_args, get_origin

import numpy as np
import pytest

from peref import model
from peref.config import Config
from peref.encodings import get, names, options
from peref.errors import Misuse

H, D, L, T = 4, 8, 16, 21
TOKENS = np.random.default_rng(3).integers(0, 11, (1, T))


def shape(name, given):
    return Config(pe=((name, given),), L=L, V=11, C=16, layers=2, H=H, D=D, F=8)


def logits(name, given):
    cfg = shape(name, given)
    p = {key: a.astype(np.float32) for key, a in model.init(cfg, 1).items()}
    return model.logits(cfg, p, TOKENS)


def real(name):
    """Options that are real numbers or lists of them -> the length of the list, 0 for a number."""
    found = {}
    for option, (default, kind) in options(get(name)).items():
        kinds = [kind, *get_args(kind)]
        if any(get_origin(k) is tuple and float in get_args(k) for k in kinds):
            found[option] = D // 2 if default is None else len(default)
        elif float in kinds:
            found[option] = 0
    return found


def of(name, option, x):
    """The value x as the option wants it."""
    n = real(name)[option]
    return (x,) * n if n else x


def choices(name):
    """Each word that one of its options may be, the others at their defaults."""
    return [{}, *({option: word} for option, (_, kind) in options(get(name)).items() if get_origin(kind) is Literal for word in get_args(kind))]


EVERY = [(name, option) for name in names() for option in real(name)]


def finite_or_refused(name, given):
    try:
        y = logits(name, given)
    except Misuse:
        return
    assert np.isfinite(y).all(), given


@pytest.mark.parametrize(("name", "option"), EVERY)
@pytest.mark.parametrize("x", [1e-320, 1e-31, 1e31, 1e308])
def test_what_cannot_be_computed_with_is_refused(name, option, x):
    """In words that name the option, and either sign."""
    for number in (x, -x):
        with pytest.raises(Misuse, match=f"option {option} of {name} is {number}".replace("+", r"\+")):
            shape(name, {option: of(name, option, number)})


@pytest.mark.parametrize(("name", "option"), EVERY)
def test_the_ends_of_what_is_taken(name, option):
    """Beside every choice of the other options; a warning of NumPy is an error here."""
    for other, x in product(choices(name), (1e-30, 1e-6, 0.0, -1.0, 1e6, 1e30)):
        if option not in other:
            finite_or_refused(name, {**other, option: of(name, option, x)})


@pytest.mark.parametrize("name", sorted({name for name, _ in EVERY}))
def test_two_at_their_ends(name):
    for one, two in combinations(real(name), 2):
        for x, y in product((1e-30, 1e30), repeat=2):
            finite_or_refused(name, {one: of(name, one, x), two: of(name, two, y)})


def test_a_whole_number_too_large_for_a_real_one():
    for number in (10**31, 10**400):
        with pytest.raises(Misuse, match=r"option base is|option base of rope is"):
            shape("rope", {"base": number})
    with pytest.raises(Misuse, match="option original of pi is"):
        shape("pi", {"original": 10**400})
