"""Bugs in what is added to the embedding."""

import numpy as np

from mutants import Mutant
from mutants.ways import bfloat16, by, float16, hook, patched, positions, with_options
from peref.ops.embedding import take

SIN = ("sinusoidal",)


def rows(change):
    """The rows are changed: change(rows, positions)."""
    return hook("embed", lambda embed: lambda p, i: by(change, embed(p, i), i))


def other(option, *names):
    return with_options(**{option: lambda case: names[names.index(case.config.pe[0][1][option]) - 1]})


def swapped(e, i):
    """Cosines where sines were."""
    order = np.arange(e.shape[-1])
    even = len(order) // 2 * 2
    order[:even] = order[:even].reshape(-1, 2)[:, ::-1].ravel()
    return e[..., order]


def ladder(times):
    """Exponents `times` as large as 2k/C."""

    def made(e, i):
        C = e.shape[-1]
        w = 10000.0 ** (-times * np.arange((C + 1) // 2) / C)
        phase = np.asarray(i)[..., None] * w
        return np.stack([np.sin(phase), np.cos(phase)], -1).reshape(*np.shape(i), -1)[..., :C]

    return rows(made)


def lower(low):
    """Frequencies and phases of few digits."""

    def made(e, i):
        C = e.shape[-1]
        phase = low(np.asarray(i)[..., None] * low(10000.0 ** (-2 * np.arange((C + 1) // 2) / C)))
        return np.stack([np.sin(phase), np.cos(phase)], -1).reshape(*np.shape(i), -1)[..., :C]

    return rows(made)


def row(change):
    """Another row of the table: change(i, rows)."""
    return patched("encodings.embed.learned", take=lambda table, i: take(table, change(i, table.shape[0])))


MUTANTS = [
    Mutant(
        "sin-halves",
        "sin.order",
        "your sines and cosines stand in halves, or alternate where they should not",
        SIN,
        other("layout", "interleaved", "concatenated"),
        ("tensorflow/tensor2tensor#1925",),
    ),
    Mutant("sin-cos-first", "sin.order", "your cosines come before your sines", SIN, rows(swapped), ("kimiyoung/transformer-xl#119",)),
    Mutant("sin-reversed", "sin.order", "your channels run from slow to fast", SIN, rows(lambda e, i: e[..., ::-1]), held_out=True),
    Mutant(
        "sin-denominator",
        "sin.denominator",
        "your frequencies end at 1/base (half minus 1), or do not where they should",
        SIN,
        other("ladder", "paper", "endpoint"),
        ("huggingface/blog#2183",),
    ),
    Mutant("sin-exponent-k", "sin.denominator", "your exponent has k in place of 2k", SIN, ladder(1)),
    Mutant("sin-exponent-channel", "sin.denominator", "your exponent has four times the number of the pair", SIN, ladder(4), held_out=True),
    Mutant("sin-base-1000", "rope.base.ignored", "your base is another", SIN, with_options(base=1000.0)),
    Mutant("sin-base-500", "rope.base.ignored", "your base is 500", SIN, with_options(base=500.0), held_out=True),
    Mutant("sin-float16", "rope.phase.low_precision", "your table is made in float16", SIN, lower(float16)),
    Mutant("sin-bfloat16", "rope.phase.low_precision", "your table is made in bfloat16", SIN, lower(bfloat16), held_out=True),
    Mutant("learned-next", "position.off_by_one", "you read the row after", ("learned",), row(lambda i, L: (i + 1) % L)),
    Mutant("learned-before", "position.off_by_one", "you read the row before", ("learned",), row(lambda i, L: (i - 1) % L), held_out=True),
    Mutant("learned-repeats", "embed.rows", "your rows repeat", ("learned",), row(lambda i, L: i % 4)),
    Mutant("learned-reversed", "embed.rows", "you read the table from its end", ("learned",), row(lambda i, L: L - 1 - i)),
    Mutant(
        "learned-clamped",
        "embed.rows",
        "you clamp positions to a row before the last",
        ("learned",),
        row(lambda i, L: np.minimum(i, 4)),
        held_out=True,
    ),
    Mutant("rows-scaled", "embed.scale", "your rows are multiplied by sqrt(C)", ("sinusoidal", "learned"), rows(lambda e, i: e * e.shape[-1] ** 0.5)),
    Mutant(
        "rows-shrunk",
        "embed.scale",
        "your rows are divided by sqrt(C)",
        ("sinusoidal", "learned"),
        rows(lambda e, i: e * e.shape[-1] ** -0.5),
        held_out=True,
    ),
    Mutant("rows-of-0", "embed.rows", "every token gets the row of position 0", ("sinusoidal", "learned"), positions(lambda i: i * 0)),
]
