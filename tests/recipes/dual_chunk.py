"""Golden cases of dual_chunk."""

import numpy as np
from mutants import Mutant
from mutants.ways import patched
from page import softmax, turned_scores

from peref.encodings.attend.dual_chunk import chunk_lengths, query_places
from peref.ops.zones import attend_in_zones
from recipes.families import SMALLER, attention, case, laws, reading, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2402.17463). `s = q R(e) k / sqrt(D)`, where R(e) turns pair n of q by `e base^(-2n/R)`, in layout and
width of the facts; out = softmax(s) v. m = `chunk_size`, which if null is floor(3 L/4), l = `local_window`,
floor(L/16) if null, and c = m - l. a = floor(i/c) - floor(j/c) chunks lie between query and key; e = p - (j
mod c), where p is i mod c for a <= 0, `min(i mod c + c, m)` for a = 1, and `min(2c - 1, m)` for a >= 2.
`ends` "paper": `min(i mod c + c, m - 1)` for a = 1, and m - 1 for a >= 2.
"""


def program(p, q, k, x, i, see, o, f, v):
    m = 3 * f["L"] // 4 if o["chunk_size"] is None else o["chunk_size"]
    c = m - (f["L"] // 16 if o["local_window"] is None else o["local_window"])
    inside, apart = i - c * np.floor(i / c), np.subtract.outer(np.floor(i / c), np.floor(i / c))
    last, far = (m - 1, m - 1) if o["ends"] == "paper" else (m, min(2 * c - 1, m))
    P = np.where(apart <= 0, inside[:, None], np.minimum(inside + c, last)[:, None])
    e = np.where(apart >= 2, far, P) - inside
    return np.einsum("hts,hsd->htd", softmax(turned_scores(q, k, e, o, f), see), v)


CORE_ONLY = True
CHUNKS = {"chunk_size": 4, "local_window": 1}
SHARP = {"trace": CHUNKS}
TOGETHER = [
    CHUNKS,
    {"chunk_size": 6, "local_window": 4},
    {"chunk_size": 5, "local_window": 2, "ends": "paper"},
]
BESIDE = {"B": 1, "T": 7, "D": 4, "options": CHUNKS}

RECIPES = [
    *usual("dual_chunk", B=1, D=4, beside={"base": BESIDE}, without=("ends",)),
    *attention("dual_chunk", CHUNKS),
    case(
        "dual_chunk",
        "attn",
        "three-chunks",
        "Queries meet their own chunk, the one before it within and beyond the local window, and one before.",
        "dual_chunk.length",
        "dual_chunk.last",
        "dual_chunk.before",
        "attn.scale",
        **SMALLER | {"T": 9, "D": 4},
        options={"chunk_size": 6, "local_window": 2},
    ),
    case(
        "dual_chunk",
        "attn",
        "last",
        "The largest place of a query: chunk_size in the authors' code, one less in their paper.",
        "ambiguous",
        **SMALLER | {"T": 9, "D": 4},
        options=CHUNKS,
        variants=(
            reading("code", "chunk_size: ChunkLlama, vLLM"),
            reading("paper", "chunk_size - 1: the paper", ends="paper"),
        ),
    ),
    *together(
        "dual_chunk",
        {"chunk_size": 5, "local_window": 3, "ends": "paper", "base": 100.0},
        {"base": 100.0, "ends": "paper"},
        {"base": 100.0, "chunk_size": 4},
        again={"attn": (1, 2, 4)},
        more=({"chunk_size": 5, "local_window": 3, "base": 100.0},),
    ),
]

TRAPS = {
    "dual_chunk.length": trap(
        "RANGE",
        "chunks have another length",
        "tokens stand in the wrong chunk, and keys turn by wrong places",
        "a chunk has chunk_size - local_window tokens, and keys turn by their place in it, j mod c",
        "vllm-project/vllm#6139",
    ),
    "dual_chunk.before": trap(
        "MISSING_STEP",
        "queries stand wrongly for the chunk before their own",
        "order is lost across the border of chunks, where tokens are nearest",
        "turn the query by i mod c + c, at most chunk_size, for keys of the chunk before",
    ),
    "dual_chunk.last": trap(
        "OFF_BY_ONE",
        "queries end at another place, or stand wrongly for far chunks",
        "far keys are nearer or farther than they were trained with",
        "min(2c - 1, chunk_size) for chunks before that, whatever the place of the query in its own",
    ),
}

MEANS = {
    "options": {
        "chunk_size": "dual_chunk.length",
        "local_window": "dual_chunk.length",
        "ends": "dual_chunk.last",
    },
    "functions": {
        "chunk_lengths": "dual_chunk.length",
        "query_places": "dual_chunk.before",
        "query_places.farthest": "dual_chunk.last",
    },
}

REFUSED = [
    *refusals("dual_chunk"),
    refused(
        "dual_chunk",
        "attn",
        "no-chunk",
        "setting",
        "The local window is as long as all of it: no token is left for a chunk.",
        options={"chunk_size": 4, "local_window": 4},
    ),
]

LAWS = [*laws("dual_chunk")]


# wrong implementations

DUAL = ("dual_chunk",)
changed = lambda **changes: patched("encodings.attend.dual_chunk", **changes)


def lengths(change):
    return changed(chunk_lengths=lambda *given: change(*chunk_lengths(*given)))


def places(change):
    """change(i, size, c, own, before, far) -> the three places."""
    return changed(query_places=lambda i, size, c, ends: change(i, size, c, *query_places(i, size, c, ends)))


MUTANTS = [
    Mutant(
        "dual-chunk-whole",
        "dual_chunk.length",
        "your chunks have chunk_size tokens",
        DUAL,
        lengths(lambda size, c: (size, size)),
    ),
    Mutant(
        "dual-chunk-longer",
        "dual_chunk.length",
        "your chunks are one longer",
        DUAL,
        lengths(lambda size, c: (size, c + 1)),
        held_out=True,
    ),
    Mutant(
        "dual-chunk-own",
        "dual_chunk.before",
        "queries stand for the chunk before as for their own",
        DUAL,
        places(lambda i, size, c, own, before, far: (own, own, far)),
    ),
    Mutant(
        "dual-chunk-no-local-window",
        "dual_chunk.before",
        "the chunk before is as far as all others",
        DUAL,
        places(lambda i, size, c, own, before, far: (own, far, far)),
    ),
    Mutant(
        "dual-chunk-unclamped",
        "dual_chunk.before",
        "places of queries do not end at chunk_size",
        DUAL,
        places(lambda i, size, c, own, before, far: (own, own + c, far)),
        held_out=True,
    ),
    Mutant(
        "dual-chunk-far-before",
        "dual_chunk.last",
        "far chunks are as far as the one before",
        DUAL,
        places(lambda i, size, c, own, before, far: (own, before, before)),
    ),
    Mutant(
        "dual-chunk-one-more",
        "dual_chunk.last",
        "your last place is one too large",
        DUAL,
        changed(query_places=lambda i, size, c, ends: query_places(i, size + 1, c, ends)),
    ),
    Mutant(
        "dual-chunk-one-less",
        "dual_chunk.last",
        "your last place is one too small",
        DUAL,
        changed(query_places=lambda i, size, c, ends: query_places(i, size - 1, c, ends)),
        held_out=True,
    ),
    Mutant(
        "dual-chunk-unscaled",
        "attn.scale",
        "your logits are not scaled",
        DUAL,
        changed(attend_in_zones=lambda *given, scale, **more: attend_in_zones(*given, scale=1.0, **more)),
    ),
]

LATER = [
    Mutant(
        "l-dual-chunk-of-size",
        "dual_chunk.last",
        "far chunks are seen from i mod c + chunk_size",
        DUAL,
        places(lambda i, size, c, own, before, far: (own, before, own + size)),
    )
]
