"""Golden cases of attention from one sequence to another: they belong to no encoding and stand with those of
none.
"""

import numpy as np
from mutants import Mutant
from mutants.ways import inputs

from peref.golden.compute.cross import place_of
from peref.golden.compute.reference import expected
from recipes.families import case
from recipes.traps import trap

SIZES = {"B": 2, "H": 4, "G": 2, "D": 6, "causal": False}


def cross(slug, why, *flags, **given):
    return case("none", "cross", slug, why, *flags, **SIZES | given)


CASES = [
    cross(
        "more-keys",
        "5 queries see all of 8 keys of another sequence, those behind their own number too.",
        "cross.causal",
        "cross.mask_of_queries",
        "gqa.order",
        "attn.scale",
        T=5,
        S=8,
    ),
    cross(
        "more-queries",
        "7 queries see all of 4 keys: the last 3 have no slot there.",
        "cross.causal",
        T=7,
        S=4,
    ),
    cross(
        "padded",
        "Keys padded on the right in one sequence, on the left in the other, and queries without padding.",
        "cross.key_padding",
        T=3,
        S=6,
        seg_keys=((1, 1, 1, 1, 0, 0), (0, 0, 1, 1, 1, 1)),
    ),
    cross(
        "packed",
        "Two documents in each row: a query sees the keys of its own. Queries of a document without keys, "
        "and padding, give 0.",
        "cross.documents",
        "cross.key_padding",
        "mask.padding",
        T=6,
        S=7,
        seg=((1, 1, 1, 2, 2, 0), (0, 3, 3, 1, 1, 2)),
        seg_keys=((1, 1, 2, 2, 2, 0, 0), (1, 1, 1, 1, 3, 3, 0)),
    ),
]

TRAPS = {
    "cross.causal": trap(
        "MASK",
        "attention to another sequence has the causal mask",
        "early queries see only the first keys, and the first word of an answer knows nothing of the end",
        "no mask but padding and documents: every query sees every key of the other sequence",
    ),
    "cross.mask_of_queries": trap(
        "MASK",
        "keys of another sequence have the mask of the queries",
        "keys beyond the number of queries are hidden, or it fails where the lengths differ",
        "mask by the segments of the keys; T and S are independent",
    ),
    "cross.key_padding": trap(
        "MASK",
        "padding of the other sequence is seen",
        "what an answer is depends on how far its source was padded",
        "hide the keys whose segment is 0",
    ),
    "cross.documents": trap(
        "MASK",
        "queries see the keys of other documents",
        "an answer reads the source of another",
        "a query sees the keys whose segment has its number",
    ),
}


def only(run):
    """A mutant of this level alone."""
    return lambda one, a: run(one, a) if one.level == "cross" else None


def seeing(change):
    """Another mask: change(what is seen [B,1,T,S], slots of queries [T,1], of keys [S], place)."""

    def run(one, a):
        at = place_of(one)
        see = change(at.see, np.arange(at.T)[:, None], np.arange(at.S), at)
        return expected(one, a, see=np.broadcast_to(see, at.see.shape))

    return only(run)


def there(at):
    """Keys that are no padding, [B,1,1,S]."""
    return (at.keys != 0)[:, None, None, :]


def uniform(one, a):
    found, none = expected(one, a), ~place_of(one).see.any(-1, keepdims=True)
    if not none.any():
        return None
    p = np.where(none, 1 / one.S, found["probabilities"])
    v = np.repeat(a["v"], one.H // one.G, 1)
    return {"probabilities": p, "out": np.where(none, p @ v, found["out"])}


def tiled(one, a):
    heads = [h % one.G for h in range(one.H)]
    bare = {name: x for name, x in a.items() if not name.startswith("cotangent.")}
    return expected(one, bare | {name: a[name][:, heads] for name in "kv"})


def mutant(name, flag, words, run, held_out=False):
    return Mutant(name, flag, words, ("none",), run, held_out=held_out)


MUTANTS = [
    mutant(
        "cross-causal",
        "cross.causal",
        "your queries see the keys of another sequence up to their own slot",
        seeing(lambda see, t, s, at: see & (s <= t)),
    ),
    mutant(
        "cross-causal-from-the-end",
        "cross.causal",
        "your queries stand for the last slots of the other sequence, and see those before",
        seeing(lambda see, t, s, at: see & (s <= at.S - at.T + t)),
        held_out=True,
    ),
    mutant(
        "cross-as-many-keys",
        "cross.mask_of_queries",
        "your queries see as many keys of the other sequence as there are queries",
        seeing(lambda see, t, s, at: see & (s < at.T)),
    ),
    mutant(
        "cross-own-slot",
        "cross.mask_of_queries",
        "your queries do not see the keys behind the last query's slot, counted from the end",
        seeing(lambda see, t, s, at: see & (s >= at.S - at.T)),
        held_out=True,
    ),
    mutant(
        "cross-padding-seen",
        "cross.key_padding",
        "padding of the other sequence is seen",
        seeing(lambda see, t, s, at: see | ~there(at)),
    ),
    mutant(
        "cross-all-seen",
        "cross.key_padding",
        "everything in the other sequence is seen",
        seeing(lambda see, t, s, at: see | True),
        held_out=True,
    ),
    mutant(
        "cross-documents",
        "cross.documents",
        "your queries see every document of the other sequence",
        seeing(lambda see, t, s, at: there(at) & (at.seg != 0)[:, None, :, None]),
    ),
    mutant(
        "cross-first-document",
        "cross.documents",
        "all your queries see the first document of the other sequence",
        seeing(lambda see, t, s, at: (at.keys == 1)[:, None, None, :] & (at.seg != 0)[:, None, :, None]),
        held_out=True,
    ),
    mutant("cross-uniform", "mask.padding", "a query that sees nothing sees all alike", only(uniform)),
    mutant(
        "cross-tiled-heads",
        "gqa.order",
        "query head h reads key-value head h mod G of the other sequence",
        only(tiled),
    ),
    mutant(
        "cross-no-scale",
        "attn.scale",
        "q k across is not scaled",
        only(lambda one, a: inputs(q=lambda q: q * one.D**0.5)(one, a)),
    ),
]
