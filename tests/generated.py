"""What the tests generated from the registry share: a small model of any encoding, each choice of its
options, its loop, the places it takes.
"""

from importlib import import_module

import numpy as np
from recipes import module

from peref.config import Config
from peref.encodings import claims_of, get, names
from peref.errors import Misuse
from peref.laws.loops import filled
from peref.laws.small import (
    EXACT,
    LONG,
    REAL,
    SIZES,
    Small,
    Subject,
    each_alone,
    image,
    last_words,
    layer_input,
    lists,
    place_of,
    tokens,
    weights,
)

__all__ = [
    "EXACT",
    "LONG",
    "NAMES",
    "REAL",
    "chunked",
    "config",
    "every_choice",
    "filling",
    "image",
    "layer_input",
    "lists",
    "logits",
    "loop",
    "of",
    "place_of",
    "subject",
    "tokens",
    "weights",
    "with_its_parameters",
    "without",
]

NAMES = names()


def of(law):
    return [name for name in NAMES if law in claims_of(get(name))]


def without(law):
    return [name for name in NAMES if law not in claims_of(get(name))]


def filling(*hooks):
    """Each encoding that fills one of these hooks."""
    return [name for name in NAMES if get(name).hook in hooks]


def every_choice(name):
    """Each option at its default and at each other value it may have, all that are words at their last at
    once, and what the recipe adds.

    TOGETHER    settings of options that have no value to start from, or none that means anything alone
    NEEDED      what an option is refused without
    WITHOUT     options that the last words of the others leave no meaning
    """
    recipe = module(name)
    needed = getattr(recipe, "NEEDED", {})
    alone = [{**needed.get(option, {}), option: value} for option, value in each_alone(name)]
    at_once = {
        option: word
        for option, word in last_words(name).items()
        if option not in getattr(recipe, "WITHOUT", ())
    }
    return [{}, *alone, *getattr(recipe, "TOGETHER", ()), *([at_once] if len(at_once) > 1 else [])]


def subject(name, **sizes):
    """The encoding with every choice of its options and its scalar loop, for the checkers of peref.laws."""

    def loop(hook, **known):
        return filled(import_module(f"loops.{name}"), hook, **known)

    return Subject(name, tuple(every_choice(name)), loop, sizes)


def config(name, **given):
    """A small model whose sizes are all different; an attention layer groups two heads over each key."""
    return Config(**{"pe": ((name, {}),), **SIZES, **given})


def logits(cfg, p, x, **place):
    return Small(cfg, p).logits(x, **place)


def with_its_parameters(case, a):
    """The case. Raises Misuse where it needs parameters that are not among its inputs."""
    needed = case.config.encoding(0).init(np.random.default_rng(0))
    if lacking := [name for name in needed if f"param.{name}" not in a]:
        raise Misuse(f"{case.id} lacks the parameters {', '.join(lacking)}")
    return case


def chunked(cfg, p, x, cuts, positions=None, seg=None):
    """The logits of x, decoded in pieces that end at `cuts`."""
    return Small(cfg, p).chunked(x, cuts, positions, seg)


def loop(cfg, **more):
    """The scalar loop of the encoding of `cfg`, with the facts of the model and the options that it asks
    for.
    """
    name = cfg.pe[0][0]
    return subject(name).of_loop(cfg, get(name).hook, **more)
