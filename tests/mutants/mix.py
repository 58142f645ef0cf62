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


def stated(run):
    """Only where the state is asked for."""
    return lambda case, a: None if case.before is None else run(case, a)


def of_states(change):
    """What goes in as a cotangent of a last state."""
    return stated(
        lambda case, a: expected(
            case, {n: change(x) if n.startswith("cotangent.last.") else x for n, x in a.items()}
        )
    )


def first_states(change):
    """The gradient of what was handed in."""
    return stated(
        lambda case, a: (
            {n: change(x) if n.startswith("vjp.state.") else x for n, x in expected(case, a).items()}
            if case.before
            else None
        )
    )


def forgotten(case, a):
    """The state that is handed in is not read, and has no gradient."""
    if not case.before:
        return None
    first = [n for n in a if n.startswith("state.")]
    found = expected(case, {n: x for n, x in a.items() if n not in first})
    return found | {f"vjp.{n}": np.zeros_like(a[n]) for n in first}


def exchanged_axes(case, a):
    """s [B,H,V,K] in place of [B,H,K,V], in and out."""
    turned = lambda some: {
        n: np.swapaxes(x, -1, -2) if n.endswith(("state.s", "last.s")) and x.ndim == 4 else x
        for n, x in some.items()
    }
    return turned(expected(case, turned(a)))


def decayed(name, factor):
    """The last state of the recurrence is multiplied by factor(arrays, settings), once more."""

    def change(op):
        def once_more(*arrays, **settings):
            y, last = op(*arrays, **settings)
            with_it = [x.value if hasattr(x, "value") else x for x in arrays]
            return y, times(last, factor(with_it, settings))

        return once_more

    return stated(
        lambda case, a: of(None, **{name: change(getattr(import_module(files()[case.encoding]), name))})(
            case, a
        )
    )


times = Op(lambda x, m: (x * m, m), lambda m, dy: (dy * m, None))
MATRICES = with_names("retention") + with_names("wkv6") + with_names("wkv7")


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
        for name in ("retention", "wkv6", "wkv7", "selective_scan", "delta")
    ),
    Mutant(
        "chunk-forgets", "mix.chunk", "the state is lost where a chunk ends", with_option("chunk"), forgetful
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
        "state-gradient-dropped",
        "state.gradient",
        "the gradient of the last state is dropped",
        hooked("mix"),
        of_states(lambda x: 0 * x),
    ),
    Mutant(
        "state-gradient-half",
        "state.gradient",
        "the gradient of the last state counts once for each sequence",
        hooked("mix"),
        of_states(lambda x: x.sum(0, keepdims=True) + 0 * x),
        held_out=True,
    ),
    Mutant(
        "state-first-zero",
        "state.first",
        "the state handed in has no gradient",
        hooked("mix"),
        first_states(lambda x: 0 * x),
    ),
    Mutant(
        "state-first-once",
        "state.first",
        "the gradient of the state handed in is that of the first sequence",
        hooked("mix"),
        first_states(lambda x: x[:1] + 0 * x),
        held_out=True,
    ),
    Mutant(
        "state-forgotten", "cache.state_dropped", "the state handed in is not read", hooked("mix"), forgotten
    ),
    Mutant(
        "state-transposed",
        "state.transposed",
        "your state has values for rows and keys for columns",
        tuple(name for name in MATRICES if name.startswith("rwkv")),
        stated(exchanged_axes),
    ),
    *(
        Mutant(
            f"state-decayed-{name}",
            "state.decay",
            "your last state has decayed once more",
            with_names(name),
            decayed(name, factor),
            held_out=name == "wkv7",
        )
        for name, factor in (
            ("retention", lambda arrays, settings: np.exp(settings["log_decay"])[:, None, None]),
            ("wkv6", lambda arrays, settings: np.exp(arrays[1][:, :, -1, :, None])),
            ("wkv7", lambda arrays, settings: np.exp(arrays[1][:, :, -1, :, None])),
            (
                "delta",
                lambda arrays, settings: 1.0 if arrays[1] is None else np.exp(arrays[1][:, :, -1, :, None]),
            ),
            (
                "wkv4",
                lambda arrays, settings: np.stack([np.exp(arrays[2]), np.exp(arrays[2]), 1 + 0 * arrays[2]]),
            ),
        )
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
