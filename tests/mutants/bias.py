"""Bugs in biases of distance."""

import math

import numpy as np

from mutants import Mutant
from mutants.anywhere import BOUNDED
from mutants.ways import (
    expected,
    hooked,
    moved_distances,
    patched,
    results,
    small,
    table,
    with_parameters,
)
from peref.encodings import files
from peref.model import PLAIN
from peref.tape import Op

ALL = hooked("bias")


def bias_of(name):
    """[H,N] of the distances from -1000 to 1000."""
    pe, p = small(name, causal=False, L=1001)
    return pe.bias(PLAIN, p, np.arange(-1000, 1001))


SIDED = tuple(n for n in ALL if (bias_of(n) != bias_of(n)[:, ::-1]).any())
FALLING = tuple(n for n in ALL if (np.diff(bias_of(n)[:, 1000:]) < 0).all())
KERPLE = with_parameters("r1", "r2")

EXP = Op(lambda x: (np.exp(x), np.exp(x)), lambda y, dy: (dy * y,))


def own(case):
    """Its encoding's own file, for `patched`."""
    return files()[case.encoding].removeprefix("peref.")


MUTANTS = [
    Mutant(
        "bias-one-side",
        "bias.sign",
        "keys of the future count as distance 0",
        ALL,
        lambda case, a: None if case.causal else moved_distances(lambda d: np.maximum(d, 0))(case, a),
    ),
    Mutant(
        "bias-future",
        "bias.sign",
        "your distances are j - i",
        SIDED,
        lambda case, a: (
            None if case.causal and case.encoding in BOUNDED else moved_distances(lambda d: -d)(case, a)
        ),
        ("huggingface/transformers#8518",),
    ),
    Mutant(
        "bias-absolute",
        "bias.sign",
        "past and future are alike",
        SIDED,
        lambda case, a: None if case.causal else moved_distances(abs)(case, a),
        held_out=True,
    ),
    Mutant(
        "bias-transposed",
        "bias.transposed",
        "keys go down and queries across",
        ALL,
        lambda case, a: results(lambda x: x.swapaxes(1, 2), "bias")(case, a) if case.level == "op" else None,
    ),
    Mutant("bias-negated", "bias.negated", "you add where you should subtract", ALL, table(lambda b, d: -b)),
    Mutant(
        "bias-growing",
        "bias.negated",
        "you reward distance",
        FALLING,
        table(lambda b, d: abs(b)),
        held_out=True,
    ),
    Mutant(
        "bias-one-more",
        "bias.off_by_one",
        "your distances are one too large",
        ALL,
        lambda case, a: (
            None if case.encoding in BOUNDED else moved_distances(lambda d: d + (d >= 0))(case, a)
        ),
        ("vllm-project/vllm#945",),
    ),
    Mutant(
        "bias-one-less",
        "bias.off_by_one",
        "your distances are one too small",
        ALL,
        moved_distances(lambda d: np.maximum(d - 1, np.minimum(d, 0))),
    ),
    Mutant(
        "bias-from-last",
        "bias.off_by_one",
        "distances count from the last key",
        FALLING,
        moved_distances(lambda d: d.max() - d + 1 if len(d) else d),
        held_out=True,
    ),
    Mutant(
        "bias-heads-reversed",
        "bias.heads",
        "your heads are in reverse order",
        ALL,
        table(lambda b, d: b[::-1]),
    ),
    Mutant(
        "bias-first-head",
        "bias.heads",
        "every head has the bias of the first",
        ALL,
        table(lambda b, d: np.broadcast_to(b[:1], b.shape) * 1.0),
    ),
    Mutant(
        "bias-heads-rolled",
        "bias.heads",
        "your heads are off by one",
        ALL,
        table(lambda b, d: np.roll(b, 1, 0)),
        held_out=True,
    ),
    Mutant(
        "bias-scaled",
        "bias.scale",
        "the bias is inside the softmax scale",
        ALL,
        table(lambda b, d: b * 8**-0.5),
        ("lucidrains/x-transformers#10",),
    ),
    Mutant(
        "bias-log2",
        "bias.scale",
        "the bias is in units of log 2",
        ALL,
        table(lambda b, d: b / math.log(2)),
        held_out=True,
    ),
    Mutant(
        "kerple-raw",
        "kerple.parameters",
        "your parameters are not made positive",
        KERPLE,
        lambda case, a: raw(case, a),
    ),
    Mutant(
        "kerple-exp",
        "kerple.parameters",
        "you take exp where softplus is meant",
        KERPLE,
        lambda case, a: raw(case, a, EXP),
        held_out=True,
    ),
    Mutant(
        "kerple-swapped",
        "kerple.parameters",
        "r1 and r2 have changed places",
        KERPLE,
        lambda case, a: swapped(case, a),
    ),
    Mutant(
        "kerple-squared",
        "kerple.formula",
        "your distances are squared",
        tuple(n for n in KERPLE if n in ALL),
        moved_distances(lambda d: d * abs(d)),
    ),
]


def raw(case, a, function=None):
    as_is = (lambda x: x) if function is None else function
    if "param.r1" not in a:
        return None
    return patched(own(case), softplus=as_is)(case, a)


def swapped(case, a):
    if "param.r1" not in a:
        return None
    return expected(case, {**a, "param.r1": a["param.r2"], "param.r2": a["param.r1"]})
