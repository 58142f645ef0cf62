"""What the tests generated from the registry share: a small model of any encoding, each choice of its options, its loop, the places it takes."""

import re
from pathlib import Path
from typing import get_args

import numpy as np
from check import frozen
from loops import witness

from peref import model
from peref.config import Config
from peref.encodings import get, names, options
from peref.errors import Misuse

NAMES = names()
TESTS = Path(__file__).parent
EXACT = 1e-10


def of(law):
    return [name for name in NAMES if law in get(name).claims]


def without(law):
    return [name for name in NAMES if law not in get(name).claims]


def config(name, **given):
    """A small model whose sizes are all different; an attention layer groups two heads over each key."""
    sizes = {"H": 6, "C": 30, "D": 4, "F": 14, "V": 11, "L": 16, "layers": 2}
    return Config(**{"pe": ((name, {}),), **sizes, **given})


def weights(cfg, seed=0):
    """Parameters with every table, bias and scale away from where it starts, so that none hides: read-only."""
    rng = np.random.default_rng(seed)
    p = model.init(cfg, seed, np.float64)
    return frozen({name: a + 0.3 * rng.standard_normal(a.shape) for name, a in p.items()})


def tokens(B, T, seed=0):
    return np.random.default_rng([seed, B, T]).integers(0, 11, (B, T))


def run(cfg, p, x, **place):
    return model.logits(cfg, p, x, n=16, **place)


def chunked(cfg, p, x, cuts, positions=None, seg=None):
    """The logits of x, decoded in pieces that end at `cuts`."""
    memory, rows, start = model.cache(cfg, 16), [], 0
    for stop in (*cuts, x.shape[1]):
        cut = slice(start, stop)
        here = None if positions is None else positions[..., cut]
        y, memory = model.decode(cfg, p, x[:, cut], memory, positions=here, seg=None if seg is None else seg[:, cut])
        rows.append(y)
        start = stop
    return np.concatenate(rows, 1)


LONG = 37  # longer than the distance at which shaw clips
POSITIONS = [np.arange(7), np.array([5, 0, 3, 3, 11, 2, 15])]
REAL = np.array([0.0, 0.5, -1.25, 3.0, 3.0, 14.5, 7.0])


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
    needed, known = NEEDED.get(name, {}), options(get(name))
    alone = [{**needed.get(option, {}), option: value} for option, (default, kind) in known.items() for value in beside(default, kind)]
    words = {option: beside(default, kind)[-1] for option, (default, kind) in known.items() if isinstance(default, (str, bool))}
    at_once = {option: word for option, word in words.items() if option not in WITHOUT.get(name, ())}
    return [{}, *alone, *TOGETHER.get(name, []), *([at_once] if len(at_once) > 1 else [])]


def beside(default, kind):
    """Values that an option may have besides its default: all of a choice, twice a number, half of a share, which ends at 1."""
    if isinstance(default, bool):
        return (not default,)
    if isinstance(default, str):
        return tuple(word for word in get_args(kind) if word != default)
    if type(default) in (int, float):
        return (default / 2 if 0.5 < default < 1 else 2 * default,)
    return ()


def every_way(name):
    """Each choice of the options, causal and, where that is claimed, two-sided."""
    return [(given, causal) for given in every_choice(name) for causal in ((True, False) if name in of("two_sided") else (True,))]


def everywhere(name, *more):
    """Positions in order, out of order, and real ones where they are claimed."""
    return [*POSITIONS, *more, *([REAL] if name in of("real_positions") else [])]


def everywhere_long(name):
    """As everywhere(), for LONG tokens."""
    out_of_order = np.random.default_rng(0).integers(0, 60, LONG)
    return [np.arange(LONG), out_of_order, *([out_of_order / 4 - 5] if name in of("real_positions") else [])]


def loop(cfg, **more):
    """The scalar loop of the encoding of `cfg`, with the facts of the model and the options that it asks for."""
    name, given = cfg.pe[0]
    facts = {letter: getattr(cfg, letter) for letter in ("H", "G", "D", "R", "C", "L", "causal")}
    return witness(name, get(name).hook, **facts, **given, **more)


def lists(x):
    """Arrays, also in a dict, as lists of plain numbers."""
    return {n: a.tolist() for n, a in x.items()} if isinstance(x, dict) else x.tolist()


def place_of(cfg, i):
    return model.At.of(len(i), positions=i, causal=cfg.causal)


def layer_input(cfg, T, B=2):
    """x, q, k and v of a layer."""
    rng = np.random.default_rng([B, T])
    heads = [rng.standard_normal((B, h, T, cfg.D)) for h in (cfg.H, cfg.G or cfg.H, cfg.G or cfg.H)]
    return rng.standard_normal((B, T, cfg.C)), *heads


def widths(name, given):
    """The rotary widths up to 8 that it takes; any other it refuses in words that name the width."""
    found = []
    for R in (2, 4, 6, 8):
        try:
            cfg = config(name, pe=((name, given),), D=8, R=R)
            cfg.encoding(0).rotate(model.of_encoding(cfg, weights(cfg), 0), np.arange(3), 16)
            found.append(R)
        except Misuse as refusal:
            if not re.match(rf"{name}: (the )?rotary width is {R}; expected", str(refusal)):
                raise
    assert 4 in found
    return found
