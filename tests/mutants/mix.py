"""Bugs in layers that stand where attention does."""

from dataclasses import replace
from importlib import import_module

import numpy as np

from mutants import Mutant
from mutants.ways import (
    asked,
    expected,
    forward,
    hooked,
    inputs,
    patched,
    with_names,
    with_option,
    with_parameters,
)
from peref.encodings import files
from peref.ops.norm import group_norm
from peref.ops.shape import merge_heads
from peref.ops.shift import lerp, previous
from peref.tape import Op

SHIFTED = with_names("previous", "lerp")


def of(name, **changes):
    """Something in the encoding's own file is another."""
    return lambda case, a: patched(f"encodings.mix.{case.encoding if name is None else name}", **changes)(
        case, a
    )


def exchanged(one, two):
    return lambda case, a: expected(
        case, {**a, f"param.{one}": a[f"param.{two}"], f"param.{two}": a[f"param.{one}"]}
    )


def recurrence(module, name, change):
    """The recurrence gets other arrays."""
    return patched(
        f"encodings.mix.{module.__name__.rpartition('.')[2]}", **{name: asked(getattr(module, name), change)}
    )


def over_all_heads(y, p, eps):
    return group_norm(merge_heads(y), p["norm.weight"], p["norm.bias"], groups=1, eps=eps)


def unnormed(y, p, eps):
    return scaled(merge_heads(y), p["norm.weight"], p["norm.bias"])


def forgetful(case, a):
    """Each chunk is a document of its own."""
    size = case.config.pe[0][1]["chunk"]
    if case.seg is not None or size >= case.T:
        return None
    return expected(
        case, a, None, replace(case.at, seg=np.broadcast_to(np.arange(case.T) // size + 1, (case.B, case.T)))
    )


def leaking(name):
    """The recurrence is told of no documents."""

    def run(case, a):
        f = getattr(import_module(files()[case.encoding]), name)
        return of(None, **{name: lambda *arrays, **more: f(*arrays[:-1], None, **more)})(case, a)

    return run


MUTANTS = [
    *(
        Mutant(
            f"documents-leak-{name}",
            "mask.documents",
            "the state goes on from one document to the next",
            with_names(name),
            leaking(name),
            held_out=True,
        )
        for name in ("retention", "wkv6", "wkv7", "selective_scan")
    ),
    Mutant(
        "chunk-forgets",
        "mix.chunk",
        "the state is lost where a chunk ends",
        with_option("chunk"),
        forgetful,
    ),
    Mutant(
        "skip-negated",
        "mix.skip",
        "D is subtracted",
        with_parameters("D"),
        inputs(**{"param.D": lambda d: -d}),
        held_out=True,
    ),
    Mutant(
        "shift-none",
        "mix.shift",
        "tokens are not shifted",
        SHIFTED,
        of(None, previous=lambda x, *rest: (x, previous(x, *rest)[1])),
    ),
    Mutant(
        "shift-mix",
        "mix.shift",
        "the two ends of the mix are exchanged",
        SHIFTED,
        of(None, lerp=lambda a, b, m: lerp(b, a, m)),
    ),
    Mutant(
        "shift-two",
        "mix.shift",
        "tokens are shifted by two",
        SHIFTED,
        of(None, previous=forward(previous, lambda y, x, *_: np.concatenate([0 * y[:, :1], y[:, :-1]], 1))),
        held_out=True,
    ),
    Mutant(
        "r6-values",
        "rwkv.projections",
        "k and v are exchanged",
        tuple(n for n in SHIFTED if n not in with_parameters("xi")),
        exchanged("k.weight", "v.weight"),
    ),
    Mutant(
        "rwkv-gate-value",
        "rwkv.projections",
        "r and v are exchanged",
        SHIFTED,
        exchanged("r.weight", "v.weight"),
        held_out=True,
    ),
    Mutant(
        "rwkv-norm",
        "mix.norm",
        "your norm is over all heads",
        with_names("head_norm"),
        of(None, head_norm=over_all_heads),
    ),
    Mutant(
        "rwkv-no-norm",
        "mix.norm",
        "there is no norm over the heads",
        with_names("head_norm"),
        of(None, head_norm=unnormed),
        held_out=True,
    ),
    Mutant(
        "backwards",
        "mix.time",
        "time runs backward",
        hooked("mix"),
        lambda case, a: inputs(x=lambda x: x[:, ::-1])(case, a) if case.seg is None else None,
    ),
    Mutant(
        "rolled",
        "mix.time",
        "the layer sees the next token",
        hooked("mix"),
        lambda case, a: inputs(x=lambda x: np.roll(x, -1, 1))(case, a) if case.seg is None else None,
        held_out=True,
    ),
]


def scaled(x, w, b):
    return Op(
        lambda x, w, b: (x * w + b, (x, w)),
        lambda saved, dy: (dy * saved[1], (dy * saved[0]).sum((0, 1)), dy.sum((0, 1))),
    )(x, w, b)
