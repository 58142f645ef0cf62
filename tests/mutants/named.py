"""Which trap is named for each mutant, given all that a check of its encoding brings in float32, and what is
named for honest code.

The diagnosis gets what `check` has: every tensor of every case at the levels table, op and attn, the right
ones too. Where a mutant says that its bug cannot show in a case, the case is right. Honest code is the
reference in arithmetic of few digits (honest/coarse.py), which fails and is no trap.
"""

from collections import defaultdict

import numpy as np
from honest import coarse
from making.catalogue import operations

from peref.golden.diagnosis.answer import BROKEN, Answer
from peref.golden.diagnosis.ranking import diagnosed, weighed
from peref.golden.spec.cases import OPERATIONS
from peref.golden.spec.files import narrowed


def by_encoding():
    """Encoding -> its cases at the levels that a mutant is run on."""
    found = defaultdict(list)
    for case in operations():
        if case.level in OPERATIONS:
            found[case.encoding].append(case)
    return found


def tensors(entry, given, dtype="F32"):
    """Those of the case's outputs that are real numbers."""
    real = (name for name in given if name in entry.outputs and entry.want(name).dtype.kind == "f")
    with np.errstate(all="ignore"):
        return {name: narrowed(np.asarray(given[name]).view(np.ndarray), dtype) for name in real}


def came_of(mutant, cases, book, dtype="F32"):
    """What comes from somebody with this bug."""
    found = []
    for case in cases:
        entry = book.entries[case.id]
        try:
            with np.errstate(all="ignore"):
                given = mutant.wrong(case, entry.inputs())
        except BROKEN:
            continue  # this case cannot be computed so
        given = {n: entry.want(n) for n in entry.outputs} if given is None else given
        found.append(Answer(entry, tensors(entry, given, dtype)))
    return found


def said_of(mutant, encoding, cases, book, dtype="F32"):
    """The traps that are named, the likeliest first; none where nothing fails."""
    return [one for one in weighed(came_of(mutant, cases[encoding], book, dtype)) if one.trap.flag]


def flags_of(mutant, encoding, cases, book):
    """Their flags."""
    return [one.trap.flag for one in said_of(mutant, encoding, cases, book)]


def of_later(book, mutants):
    """How many of these are named rightly, and of how many that fail somewhere."""
    cases, right, count = by_encoding(), 0, 0
    for mutant in mutants:
        for encoding in mutant.of:
            answer = came_of(mutant, cases[encoding], book)
            if any(one.wrong for one in answer):
                flags = [one.trap.flag for one in weighed(answer) if one.trap.flag]
                right, count = right + (flags[:1] == [mutant.flag]), count + 1
    return right, count


def of_honest(book, encodings=None):
    """What is named for honest code: [(case or encoding, tensor, flag)], and of how many encodings and
    failing tensors.
    """
    named, count, failing = [], 0, 0
    for encoding, cases in by_encoding().items():
        if encodings is not None and encoding not in encodings:
            continue
        for rounding in coarse.ROUNDINGS:
            answer = []
            for case in cases:
                entry = book.entries[case.id]
                with np.errstate(all="ignore"):
                    answer.append(
                        Answer(entry, tensors(entry, coarse.computed(case, entry.inputs(), rounding)))
                    )
            count += 1
            named += [(encoding, rounding, one.trap.flag) for one in weighed(answer)[:1]]
            for one in answer:
                for name in one.wrong:
                    failing += 1
                    if trap := diagnosed(one.entry, name, one.got[name]):
                        named.append((one.entry.id, name, trap.flag))
    return named, count, failing
