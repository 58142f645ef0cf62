"""Level trace: attention, or what stands in its place, fed in uneven chunks through a cache.

Inputs are whole rows of tokens: q, k, v and x where the encoding looks at it. The calls in the case's facts
say which rows come in one call, whether the cache is empty before it, and the length n that frequencies are
made for then. out (y of a layer, or of an embedding) has the rows of all calls. A call sees the rows since
the last fresh one, no others; keys stay in the cache as they turned when they came.

Where n is the same throughout, a call gives the rows of one call with all tokens, which is what the witness
computes. There are no gradients: decoding has none, and those of a whole sequence are in level attn. Budgets
have a number for each element, as at the lower levels: what comes out is still the sum of one operation, and
in bfloat16 one number for the tensor would let its small elements be anything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref import hooks
from peref.backends import Backend
from peref.encodings import Encoding
from peref.golden.compute.operation import given_inputs, parameters_in, watched
from peref.golden.spec.cases import Case
from peref.model import PLAIN
from peref.ops.place import At
from peref.ops.shape import cut
from peref.parameters import Arrays
from peref.rng import generator
from peref.tape import Tape, value
from peref.xp import to_host


def trace_inputs(case: Case) -> Arrays:
    found = given_inputs(case, generator(0, case.id), 1 if case.hook == "bias" else 0.3)
    if "x" in found:
        scale = np.where(np.arange(case.T)[:, None] < case.calls[0][1], *case.scales)
        found["x"] = np.rint(found["x"] * scale * 2**14) / 2**14
    return found


Before = Callable[[int, Encoding, At, Any], tuple[Encoding, At, Any]]


def trace_outputs(
    case: Case,
    a: Arrays,
    pe: Encoding | None = None,
    at: At | None = None,
    tape: Tape | None = None,
    before: Before | None = None,
    be: Backend = PLAIN,
) -> Arrays:
    """The rows of all calls, by `be`, which has the inputs; `pe` and the positions of `at` in place of the
    case's own where given; on `tape` where one is given. before(number of the call, encoding, place, cache)
    gives these three as the call has them.
    """
    pe, at = case.config.encoding(0) if pe is None else pe, case.at if at is None else at
    a = a if tape is None else {name: tape.watch(x) if name in watched(a) else x for name, x in a.items()}
    p = parameters_in(a)
    rows: list[Any] = []
    old: Any = {}
    begin = 0
    for number, (first, stop, fresh, n) in enumerate(case.calls):
        if fresh:
            old, begin = {}, first
        there = replace(at, i=at.i[..., first:stop], j=at.j[..., begin:stop], n=n)
        if at.parts is not None or at.everywhere is not None:
            there = there.seen_within(*case.layer.sees)
        mine, there, old = (pe, there, old) if before is None else before(number, pe, there, old)
        there = be.place(there)
        x = cut(a["x"], first=first, stop=stop, axis=1) if "x" in a else None
        if pe.embed:
            y = hooks.with_position(mine, p, x, there.i)
        elif pe.mix:
            y, old = hooks.mixed(be, mine, p, x, there, old)
        else:
            q, k, v = (cut(a[name], first=first, stop=stop, axis=2) for name in "qkv")
            how = case.layer.of_heads(p, case.layer.factor(there.i))
            y, old = hooks.attend_heads(be, mine, p, q, k, v, x, there, old, **how)
        rows.append(to_host(value(y)))
    name, axis = ("y", 1) if pe.embed or pe.mix else ("out", 2)
    return {name: np.concatenate(rows, axis)}
