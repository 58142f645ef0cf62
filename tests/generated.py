"""What the tests generated from the registry share: a small model of any encoding, each choice of its options, its loop, the places it takes."""

from importlib import import_module

from peref.config import Config
from peref.encodings import get, names
from peref.laws.loops import filled
from peref.laws.small import (
    EXACT,
    LONG,
    REAL,
    SIZES,
    Subject,
    chunked,
    each_alone,
    image,
    last_words,
    layer_input,
    lists,
    place_of,
    run,
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
    "loop",
    "of",
    "place_of",
    "run",
    "subject",
    "tokens",
    "weights",
    "without",
]

NAMES = names()


def of(law):
    return [name for name in NAMES if law in get(name).claims]


def without(law):
    return [name for name in NAMES if law not in get(name).claims]


def filling(*hooks):
    """Each encoding that fills one of these hooks."""
    return [name for name in NAMES if get(name).hook in hooks]


TOGETHER = {  # settings of options that have no value to start from, or none that means anything alone
    "dynamic_ntk": [{"factor": 2.0, "form": "static"}, {"original": 5, "factor": 3.0}, {"original": 5, "form": "steps"}],
    "cope": [{"npos": 3}],
    "learned_bias": [{"max_distance": 3}],
    "llama3": [{"original": 64, "base": 100.0}],
    "longrope": [
        *(
            {"original": 8},
            {"original": 8, "base": 2.0},
            {"factor": 0.5},
            {"start_tokens": 4, "original": 8},
            {"start_tokens": 4, "attention_factor": 1.0, "original": 8},
        ),
        *({"attention_factor": 1.5}, {"short_mscale": 1.5, "attention_factor": 0.5}, {"long_mscale": 1.5, "attention_factor": 0.5, "original": 8}),
    ],
    "mamba": [{"rank": 3}],
    "ntk": [{"form": "mixed", "mixed_b": b} for b in (0.0, 1.0, 0.25)],
    "ntk_by_parts": [
        {"original": 8, "factor": 1.0, "form": "dynamic"},
        {"ntk_factor": 0.5, "extrapolation_factor": 0.0, "factor": 3.0},
        {"original": 64, "base": 100.0},
        {"beta": (3.0, 0.5), "gamma": (8.0, 1.5)},
    ],
    "pi": [{"original": 8, "factor": 1.0, "form": "dynamic"}],
    "path": [{"rank": None}, {"rank": None, "gate": "forget"}, {"kernel": None}],
    "pyramid": [{"local": 3}],
    "retnet": [{"rows": rows, "norm": "rms", "eps": 0.5, "chunk": 3} for rows in ("recurrent", "parallel")],
    "rwkv7": [{"decay_rank": 3, "a_rank": 4, "v_rank": 5, "gate_rank": 6}],
    "transformer_xl": [{"clamp_len": 3}],
    "xpos": [{"centre": -3.0}],
    "yarn": [
        *({"original": 64, "base": 10.0}, {"original": 64, "base": 10.0, "ramp": "paper"}, {"original": 64, "base": 10.0, "truncate": False}),
        *(
            {"factor": 0.5},
            {"factor": 1.0},
            {"original": 1048576},
            {"original": 4},
            {"attention_factor": 1.0},
            {"attention_factor": 1.5, "mscale": 2.0},
        ),
        *({"mscale": 0.707, "mscale_all_dim": m, "reading": r} for m in (1.0, 0.0, None) for r in ("huggingface", "deepseek")),
        {"mscale_all_dim": 0.5, "reading": "deepseek"},
        {"mscale": 0.0, "reading": "deepseek"},
        *({"original": 8, "base": 10.0, "factor": 1.0, "form": "dynamic"}, {"original": 8, "form": "dynamic", "mscale": 2.0, "reading": "deepseek"}),
        {"extrapolation_factor": 0.0},
    ],
}


NEEDED = {  # what an option is refused without
    "alibi": {"across_layers": {"slopes": "learned"}},
    "yarn": {"reading": {"mscale": 0.707}},
}


WITHOUT = {"yarn": ("truncate", "reading"), "dynamic_ntk": ("factor",)}  # what the last words of the others leave no meaning


def every_choice(name):
    """Each option at its default and at each other value it may have, those of TOGETHER, and all options that are words at their last at once."""
    needed = NEEDED.get(name, {})
    alone = [{**needed.get(option, {}), option: value} for option, value in each_alone(name)]
    at_once = {option: word for option, word in last_words(name).items() if option not in WITHOUT.get(name, ())}
    return [{}, *alone, *TOGETHER.get(name, []), *([at_once] if len(at_once) > 1 else [])]


def subject(name, **sizes):
    """The encoding with every choice of its options and its scalar loop, for the checkers of peref.laws."""

    def loop(hook, **known):
        return filled(import_module(f"loops.{name}"), hook, **known)

    return Subject(name, tuple(every_choice(name)), loop, sizes)


def config(name, **given):
    """A small model whose sizes are all different; an attention layer groups two heads over each key."""
    return Config(**{"pe": ((name, {}),), **SIZES, **given})


def loop(cfg, **more):
    """The scalar loop of the encoding of `cfg`, with the facts of the model and the options that it asks for."""
    name = cfg.pe[0][0]
    return subject(name).of_loop(cfg, get(name).hook, **more)
