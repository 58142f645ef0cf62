"""Dual chunk attention (DCA): a text in chunks of c tokens; RoPE within a chunk, to the chunk before as far
as a local window, and at one distance to all that lies further back.

    s_ij = q_i R(a - j mod c) k_j / sqrt(D)        o = softmax(s) v        c = chunk_size - local_window
    a = i mod c                                    in the same chunk
        min(i mod c + c, last)                     of a query to the chunk before its own
        min(2c - 1, last)                          to chunks before that
    R(e) turns pair n by e base^(-2n/R)

A key turns once, whoever reads it, by its place in its chunk. It learns nothing of its own and is meant for
weights that were trained with RoPE.

chunk_size    none: three quarters of the length trained for
local_window  less than chunk_size; none: a sixteenth of the length trained for
ends          last = chunk_size with "code"; with "paper" chunk_size - 1, and the farthest chunks see it even
              where 2c - 1 is less
base          of RoPE's frequencies; which channels turn is the model's, as where a rotation stands.

An et al. 2024, arXiv:2402.17463; Yang et al. 2025 (Qwen2.5-1M), arXiv:2501.15383. The
paper's s, w and c are our c, local_window and chunk_size. Its P_q ends at c - 1, its code
(https://github.com/HKUNLP/ChunkLlama) and vLLM's DualChunkRotaryEmbedding end at c, one more. Qwen2.5-1M has
chunk_size 262144 and local_window 8192. vLLM also multiplies keys by a factor of the text's length where
original_max_position_embeddings is set, ChunkLlama divides positions by its scaling_factor. Not here: either
of these; sparse attention within the parts; what a query sees of chunks ahead.
"""

from typing import Literal

from peref.encodings import Encoding, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.attention import NO_TERMS
from peref.ops.frequency import ladder
from peref.ops.zones import attend_in_zones, over_cells
from peref.xp import namespace

Ends = Literal["code", "paper"]


def chunk_lengths(L: int, chunk_size: int | None, local_window: int | None) -> tuple[int, int]:
    """chunk_size and c. Raises Misuse where there is no c above 0."""
    size = L * 3 // 4 if chunk_size is None else chunk_size
    local = L // 16 if local_window is None else local_window
    if size <= local:
        raise Misuse(
            f"dual_chunk: chunk_size is {size} and local_window {local}; expected more for the first, their "
            "difference is the length of a chunk"
        )
    return size, size - local


def init(rng, *, L, base: float = 10000.0, chunk_size: int | None = None, local_window: int | None = None):
    """No parameters. Raises Misuse for options that are not positive, or for a local window that leaves no
    chunk.
    """
    positive("dual_chunk", base=base, chunk_size=chunk_size, local_window=local_window)
    chunk_lengths(L, chunk_size, local_window)
    return {}


def query_places(i, size, c, ends):
    """Where queries at i [...] stand for keys of their own chunk, of the one before, of those before that:
    three of [...].
    """
    xp, inside = namespace(i), i % c
    last = size if ends == "code" else size - 1
    farthest = min(2 * c - 1, last) if ends == "code" else last
    return inside, xp.minimum(inside + c, last), xp.full_like(inside, farthest)


def chunk_zones(
    i, j, *, L, chunk_size: int | None = None, local_window: int | None = None, ends: Ends = "code"
):
    """The zone of each cell, where queries at i [...] stand in each, and where keys at j [...] do in all."""
    size, c = chunk_lengths(L, chunk_size, local_window)
    a, b = over_cells(i // c, j // c)
    return namespace(i).clip(a - b, 0, 2), query_places(i, size, c, ends), (j % c,)


@with_settings_of(chunk_zones)
def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, D, R, pairs, base: float = 10000.0, **given):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]: three score matrices, of which the zone of each cell
    takes one. `terms` are what other encodings of the layer add to the logits.
    """
    (zone, i, j), w = chunk_zones(at.i, at.j, **given), ladder(namespace(at.i), R, base)
    return attend_in_zones(be, q, k, v, terms, at, zone, i, j, w, pairs=pairs, scale=D**-0.5)


ENCODING = Encoding(
    "arXiv:2402.17463",
    "q R(a - j mod c) k / sqrt(D), a = i mod c, then min(i mod c + c, last), then min(2c - 1, last)",
    symbols={
        "R": "rotation of RoPE",
        "a": "where the query stands for a key of its chunk, of the one before, and farther back",
        "c": "chunk_size - local_window",
        "last": "chunk_size",
    },
    init=init,
    attend=attend,
    claims=frozenset({"real_positions", "any_length", "window"}),
)
