"""Right forward, wrong derivative."""

from dataclasses import replace

import numpy as np

from mutants import Mutant
from mutants.ways import ANY, backend, backward, expected, hooked, patched, with_parameters
from peref.encodings import get
from peref.golden.compute import operation
from peref.ops.embedding import take

SOFTMAX = ("none", *hooked("rotate", "bias", "score", "attend"))
LEARNED = tuple(n for n in with_parameters() if not get(n).rotate)
TABLES = tuple(n for n in with_parameters("table") if n in hooked("embed", "bias"))


def gradients(change, *names):
    """The derivatives of these inputs, or of every parameter, are change(derivative, name, case, inputs)."""

    def run(case, a):
        found = expected(case, a)
        meant = [
            n
            for n in found
            if n.startswith("vjp.")
            and (n.removeprefix("vjp.") in names or ("param" in names and n.startswith("vjp.param.")))
        ]
        return (
            {**found, **{n: change(found[n], n.removeprefix("vjp."), case, a) for n in meant}}
            if meant
            else None
        )

    return run


def first_head(g, name, case, a):
    """Only the first query head of each group hands its derivative on."""
    heads = case.H // case.G
    if heads == 1:
        return g
    part = expected(
        case, {**a, "cotangent.out": a["cotangent.out"] * (np.arange(case.H) % heads == 0)[:, None, None]}
    )
    return part[f"vjp.{name}"]


def first_row(g, name, case, a):
    """Only the first sequence hands its derivative on."""
    mask = lambda x: x * (np.arange(len(x)) == 0).reshape(-1, *[1] * (x.ndim - 1))
    return expected(
        case,
        {n: mask(x) if n in ("cotangent.out", "cotangent.y", "cotangent.term") else x for n, x in a.items()},
    )[f"vjp.{name}"]


def dealt_out(g, name, case, a):
    """Query head h hands its derivative to key-value head h mod G."""
    more = {n: np.repeat(a[n], case.H // case.G, 1) for n in "kv"}
    found = expected(replace(case, G=case.H), a | more)[f"vjp.{name}"]
    return np.stack([found[:, n :: case.G].sum(1) for n in range(case.G)], 1)


def unread(g, *_):
    """The first row has none."""
    return g * (np.arange(len(g)) > 0).reshape(-1, *[1] * (g.ndim - 1))


def unchained(slope, *names):
    """The derivative of the function that a parameter is read through is left out."""
    return gradients(lambda g, n, case, a: g / slope(a[n]), *names)


many = lambda run: (
    lambda case, a: (
        run(case, a) if case.B > 1 and case.level != "table" and case.hook not in ("embed", "bias") else None
    )
)
grouped = lambda run: lambda case, a: run(case, a) if case.level == "attn" and case.H > case.G else None
attn = lambda run: lambda case, a: run(case, a) if case.level == "attn" else None

MUTANTS = [
    Mutant(
        "grad-zero",
        "grad.zero",
        "the derivative of your parameters is zero",
        LEARNED,
        gradients(lambda g, *_: 0 * g, "param"),
    ),
    Mutant(
        "grad-zero-inputs",
        "grad.zero",
        "the derivative of your inputs is zero",
        ANY,
        gradients(lambda g, *_: 0 * g, "q", "x"),
        held_out=True,
    ),
    Mutant(
        "grad-negated",
        "grad.sign",
        "the derivative of your parameters has the other sign",
        LEARNED,
        gradients(lambda g, *_: -g, "param"),
    ),
    Mutant(
        "grad-negated-inputs",
        "grad.sign",
        "the derivative of your inputs has the other sign",
        ANY,
        gradients(lambda g, *_: -g, "k", "x"),
        held_out=True,
    ),
    Mutant(
        "grad-mean",
        "grad.factor",
        "the derivative is a mean where it is a sum",
        LEARNED,
        gradients(lambda g, n, case, a: g / (case.B * case.T), "param"),
    ),
    Mutant(
        "grad-doubled",
        "grad.factor",
        "the derivative counts twice",
        ANY,
        gradients(lambda g, *_: 2 * g, "q", "x"),
        ("karpathy/llm.c#801",),
        held_out=True,
    ),
    Mutant(
        "grad-first-row",
        "grad.sum",
        "the derivative of a parameter is that of the first sequence",
        LEARNED,
        many(gradients(first_row, "param")),
    ),
    Mutant(
        "grad-first-head",
        "grad.sum",
        "of grouped heads only the first hands its derivative to k and v",
        SOFTMAX,
        grouped(gradients(first_head, "k", "v")),
        held_out=True,
    ),
    Mutant(
        "grad-dealt-out",
        "grad.heads_permuted",
        "derivatives of grouped heads go to key-value head h mod G",
        SOFTMAX,
        grouped(gradients(dealt_out, "k", "v")),
        held_out=True,
    ),
    Mutant(
        "grad-row-missing",
        "grad.zero",
        "the first row of your table has no derivative",
        TABLES,
        gradients(unread, "param.table"),
        held_out=True,
    ),
    Mutant(
        "grad-unchained-exp",
        "grad.factor",
        "the derivative of an exponential is left out",
        with_parameters("A_log"),
        unchained(np.exp, "param.A_log"),
        held_out=True,
    ),
    Mutant(
        "grad-unchained-softplus",
        "grad.factor",
        "the derivative of a softplus is left out",
        with_parameters("r1"),
        unchained(lambda x: 1 / (1 + np.exp(-x)), "param.r1"),
        held_out=True,
    ),
    Mutant(
        "grad-assigned",
        "grad.sum",
        "a row of your table has the derivative of its last use alone: = where += is meant",
        TABLES,
        lambda case, a: assigned(case, a),
    ),
    Mutant(
        "grad-assigned-first",
        "grad.sum",
        "a row of your table has the derivative of its first use alone",
        TABLES,
        lambda case, a: assigned(case, a, -1),
        held_out=True,
    ),
    Mutant(
        "grad-heads",
        "grad.heads_permuted",
        "the derivative's heads are permuted",
        SOFTMAX,
        attn(gradients(lambda g, *_: g[:, ::-1], "q")),
        ("karpathy/llm.c#801",),
    ),
    Mutant(
        "grad-heads-rolled",
        "grad.heads_permuted",
        "the derivative's heads are off by one",
        SOFTMAX,
        attn(gradients(lambda g, *_: np.roll(g, 1, 1), "q")),
        held_out=True,
    ),
    Mutant(
        "grad-late",
        "grad.time",
        "the derivative comes one token late",
        ("none", *hooked("mix", "attend")),
        gradients(lambda g, *_: np.roll(g, 1, -2), "v", "x"),
    ),
    Mutant(
        "grad-reversed",
        "grad.time",
        "the derivative runs backward in time",
        ("none", *hooked("mix", "attend")),
        gradients(lambda g, *_: g[..., ::-1, :], "v", "x"),
        held_out=True,
    ),
    Mutant(
        "grad-softmax",
        "grad.softmax",
        "the derivative of your softmax lacks its mean",
        SOFTMAX,
        lambda case, a: without_mean(case, a),
    ),
    Mutant(
        "grad-unscaled",
        "grad.softmax",
        "the derivative of your logits lacks the scale",
        SOFTMAX,
        attn(gradients(lambda g, n, case, a: g * case.D**0.5, "q", "k")),
        held_out=True,
    ),
]


def without_mean(case, a):
    if case.level != "attn" or case.hook == "attend":
        return None
    return patched(
        "golden.compute.operation", probabilities=backward(operation.probabilities, lambda g, p, dp: [p * dp])
    )(case, a)


def assigned(case, a, step=1):
    """Rows taken from a table, with a derivative that is assigned where it should be added."""

    def change(gradients, saved, dy):
        shape, index = saved
        wrong = np.zeros(shape)
        flat, rows = np.broadcast_to(index, dy.shape[:-1]).ravel()[::step], dy.reshape(-1, shape[-1])[::step]
        wrong[flat] = rows
        return [wrong, None]

    other = backward(take, change)
    if case.hook == "embed":
        return patched(f"encodings.embed.{case.encoding}", take=other)(case, a)
    return backend(take=other)(case, a)
