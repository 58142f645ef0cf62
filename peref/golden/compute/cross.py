"""Level cross: attention from T queries of one sequence to S keys of another, without an encoding.

Inputs q [B,H,T,D], k and v [B,G,S,D], seg [B,T] and seg_keys [B,S]: the documents of both, 0 is padding.
Outputs are those of level attn; vjp of q, k and v for cotangent.out.
"""

from typing import Any

import numpy as np

from peref.golden.compute.operation import on_grid, with_gradients
from peref.golden.spec.cases import Case
from peref.ops.attention import probabilities, scores, weigh
from peref.ops.cross import Cross
from peref.parameters import Arrays
from peref.rng import generator
from peref.tape import Tape, value


def cross_inputs(case: Case) -> Arrays:
    """All that goes in, cotangents included."""
    rng, place = generator(0, case.id), place_of(case)
    q, *kv = ((case.B, heads, n, case.D) for heads, n in ((case.H, case.T), *[(case.G, place.S)] * 2))
    found: Arrays = {"seg": place.seg, "seg_keys": place.keys}
    found |= {name: on_grid(rng, shape) for name, shape in zip("qkv", (q, *kv), strict=True)}
    return found | {"cotangent.out": on_grid(rng, q)}


def place_of(case: Case) -> Cross:
    seg, keys = (None if a is None else np.array(a) for a in (case.seg, case.seg_keys))
    assert case.S
    return Cross.of(case.T, case.S, seg, keys, case.B)


def cross_outputs(
    case: Case, a: Arrays, pe: Any = None, at: Any = None, tape: Tape | None = None, see: Any = None
) -> Arrays:
    """Outputs and products with the Jacobian, on `tape` where one is given. `see` [B,1,T,S], in place of what
    is seen. There is neither an encoding nor a place.
    """
    place = place_of(case)
    if see is not None:
        vars(place)["see"] = see

    def attended_across(a: Arrays) -> Arrays:
        logits = scores(a["q"], a["k"], None, None, None, None, at=place, scale=case.D**-0.5)
        share = probabilities(logits, at=place)
        found = {"scores": np.where(place.see, value(logits), 0), "probabilities": value(share)}
        return found | {"out": weigh(share, a["v"])}

    return with_gradients(attended_across, a, tape)
