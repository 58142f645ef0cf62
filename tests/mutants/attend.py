"""Bugs in attention that is no sum of logits."""

import numpy as np

from mutants import Mutant
from mutants.ways import asked, backend, forward, inputs, patched, told, with_options
from peref.encodings.attend import path, pyramid, shaw
from peref.model import PLAIN
from peref.ops import activation
from peref.ops.shape import swap

SHAW, PATH, PYRAMID = ("shaw",), ("path",), ("pyramid",)


def rows(change):
    """The row of a distance is change(r, rows)."""

    def run(case, a):
        count = a["param.key"].shape[-2]
        gather = asked(shaw.gather, lambda x, r: (x, np.clip(change(r, count), 0, count - 1)))
        scatter = asked(shaw.scatter, lambda x, r: (x, np.clip(change(r, count), 0, count - 1)))
        return patched("encodings.attend.shaw", gather=gather, scatter=scatter)(case, a)

    return run


MUTANTS = [
    Mutant(
        "pyramid-local",
        "mask.window",
        "your window is one key too wide",
        PYRAMID,
        with_options(lambda case: "local" in case.options, local=lambda case: case.options["local"] + 1),
    ),
    Mutant("shaw-future", "shaw.rows", "your distances are i - j", SHAW, rows(lambda r, n: n - 1 - r)),
    Mutant("shaw-next", "shaw.rows", "you read the row beside", SHAW, rows(lambda r, n: r + 1)),
    Mutant("shaw-mirrored", "bias.sign", "the future has the rows of the past", SHAW, rows(lambda r, n: np.minimum(r, n - 1 - r))),
    Mutant(
        "shaw-other-key",
        "shaw.key",
        "the key of the query meets the vector, not the key that it looks at",
        SHAW,
        patched(
            "encodings.attend.shaw",
            lambda case: case.config.pe[0][1]["tables"] == "key_query",
            swap=lambda x, axes: x if axes == (2, 3) else swap(x, axes=axes),
        ),
    ),
    Mutant("shaw-clips-earlier", "bias.bucket.clamp", "you clip one distance earlier", SHAW, rows(lambda r, n: np.clip(r, 1, n - 2))),
    Mutant("shaw-before", "shaw.rows", "you read the row before", SHAW, rows(lambda r, n: r - 1), held_out=True),
    Mutant("shaw-no-value", "shaw.value", "the vectors of the values are missing", SHAW, inputs(**{"param.value": lambda x: 0 * x})),
    Mutant(
        "shaw-values-of-keys",
        "shaw.value",
        "keys and values share their vectors",
        SHAW,
        lambda case, a: inputs(**{"param.value": lambda x: a["param.key"]})(case, a),
    ),
    Mutant(
        "shaw-value-twice", "shaw.value", "the vectors of the values count twice", SHAW, inputs(**{"param.value": lambda x: 2 * x}), held_out=True
    ),
    Mutant("shaw-no-key", "shaw.key", "the vectors of the keys are missing", SHAW, inputs(**{"param.key": lambda x: 0 * x})),
    Mutant(
        "shaw-unscaled",
        "shaw.key",
        "the term of the vectors is not divided by sqrt(D)",
        SHAW,
        patched("encodings.attend.shaw", gather=told(shaw.gather, scale=1.0)),
    ),
    Mutant(
        "shaw-doubled",
        "shaw.key",
        "the term of the vectors counts twice",
        SHAW,
        patched("encodings.attend.shaw", gather=told(shaw.gather, scale=lambda s: 2 * s)),
        held_out=True,
    ),
    Mutant("shaw-clips-early", "shaw.clip", "you clip distances one too early", SHAW, rows(lambda r, n: np.clip(r, n // 2 - 1, n // 2 + 1))),
    Mutant("shaw-clips", "shaw.clip", "you clip distances too early", SHAW, rows(lambda r, n: np.clip(r, n // 2 - 2, n // 2 + 2)), held_out=True),
    Mutant("path-beta-1", "path.beta", "your beta is not doubled", PATH, patched("encodings.attend.path", twice=lambda x: x)),
    Mutant(
        "path-beta-half",
        "path.beta",
        "your beta is tripled",
        PATH,
        patched("encodings.attend.path", twice=forward(path.twice, lambda y, x: 3 * x)),
        held_out=True,
    ),
    Mutant("path-beta-tanh", "path.beta", "your beta is a tanh", PATH, patched("encodings.attend.path", sigmoid=activation.tanh)),
    Mutant("path-unnormed", "path.w", "your w has not length one", PATH, patched("encodings.attend.path", unit=lambda x, eps: x)),
    Mutant("path-no-silu", "path.w", "there is no silu before the norm", PATH, patched("encodings.attend.path", silu=lambda x: x)),
    Mutant(
        "path-sigmoid",
        "path.w",
        "you have sigmoid where silu belongs",
        PATH,
        patched("encodings.attend.path", silu=activation.sigmoid),
        held_out=True,
    ),
    Mutant("path-no-conv", "path.w", "the short convolution is reversed in time", PATH, inputs(**{"param.conv": lambda w: w[:, ::-1]})),
    Mutant(
        "path-late",
        "path.order",
        "the map of the next token is used",
        PATH,
        patched("encodings.attend.path", scores=asked(path.scores, lambda q, k, w, b: (q, k, np.roll(w, -1, 2), np.roll(b, -1, 2)))),
    ),
    Mutant(
        "path-early",
        "path.order",
        "the map of the token before is used",
        PATH,
        patched("encodings.attend.path", scores=asked(path.scores, lambda q, k, w, b: (q, k, np.roll(w, 1, 2), np.roll(b, 1, 2)))),
        held_out=True,
    ),
    Mutant(
        "path-none",
        "path.order",
        "maps of the tokens between are left out",
        PATH,
        patched("encodings.attend.path", scores=asked(path.scores, lambda q, k, w, b: (q, k, w, b * (np.arange(b.shape[-1]) % 2)))),
    ),
    Mutant("path-unscaled", "attn.scale", "your logits are not scaled", PATH, patched("encodings.attend.path", scores=told(path.scores, scale=1.0))),
    Mutant(
        "shaw-logits-unscaled",
        "attn.scale",
        "your logits are not scaled",
        SHAW,
        patched("encodings.attend.shaw", scores=told(shaw.scores, scale=1.0), gather=told(shaw.gather, scale=1.0)),
    ),
    Mutant(
        "pyramid-wide",
        "pyramid.window",
        "your window is one key too wide",
        PYRAMID,
        with_options(local=lambda case: 1 + (case.config.pe[0][1]["local"] or max(case.L // 8, 1))),
    ),
    Mutant(
        "pyramid-wider",
        "pyramid.window",
        "your window is two keys too wide",
        PYRAMID,
        with_options(local=lambda case: 2 + (case.config.pe[0][1]["local"] or max(case.L // 8, 1))),
        held_out=True,
    ),
    Mutant(
        "pyramid-no-count",
        "pyramid.blocks",
        "a block weighs as one key",
        PYRAMID,
        patched("encodings.attend.pyramid", math=type("m", (), {"log": staticmethod(lambda x: 0.0)})),
    ),
    Mutant(
        "pyramid-count-log2",
        "pyramid.blocks",
        "a block's weight is its level",
        PYRAMID,
        patched("encodings.attend.pyramid", math=type("m", (), {"log": staticmethod(lambda x: 1.0)})),
        held_out=True,
    ),
    Mutant(
        "pyramid-sums",
        "pyramid.blocks",
        "blocks are sums, not means",
        PYRAMID,
        patched("encodings.attend.pyramid", pool=forward(pyramid.pool, lambda y, x: doubled(y, x))),
    ),
    Mutant(
        "pyramid-gate",
        "pyramid.gate",
        "the gate is the other way round",
        PYRAMID,
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (-x,))),
    ),
    Mutant(
        "pyramid-half",
        "pyramid.gate",
        "the gate is a half",
        PYRAMID,
        patched("encodings.attend.pyramid", sigmoid=asked(activation.sigmoid, lambda x: (0 * x,))),
    ),
    Mutant(
        "pyramid-tanh", "pyramid.gate", "the gate is a tanh", PYRAMID, patched("encodings.attend.pyramid", sigmoid=activation.tanh), held_out=True
    ),
    Mutant(
        "pyramid-near",
        "pyramid.gate",
        "only the window is read",
        PYRAMID,
        patched("encodings.attend.pyramid", blend=forward(pyramid.blend, lambda y, near, *rest: near * 1.0)),
    ),
    Mutant(
        "pyramid-unscaled",
        "attn.scale",
        "the logits of the window are not scaled",
        PYRAMID,
        backend(attention=lambda *given, scale, **rest: PLAIN.attention(*given, scale=1.0, **rest)),
    ),
]


def doubled(y, x):
    """What lies beyond the tokens is a block of two and more."""
    y = y.copy()
    y[:, :, x.shape[0] * x.shape[2] :] *= 2
    return y
