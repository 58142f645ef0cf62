"""Self-Extend: RoPE with exact distances to near keys, and beyond them with positions that a group of tokens
shares.

    s_ij = q_i R(e) k_j / sqrt(D)        o = softmax(s) v
    e = d                                                   where d < w
        floor(i/g) + w - floor(w/g) - floor(j/g)            elsewhere
    R(e) turns pair n by e base^(-2n/R)

It learns nothing of its own and is meant for weights that were trained with RoPE over L tokens; with it they
read (L - w) g + w.

neighbor_window  their w_n, w; none: a quarter of the length trained for, 1024 of 4096.
group_size       their G, g.
base             of RoPE's frequencies; which channels turn is the model's, as where a rotation stands.

Jin et al. 2024, arXiv:2401.01325. The authors' code
(https://github.com/datamllab/LongLM, group_size_2 and group_size_1) has w - w/g, not rounded down, where it
computes a whole text, and w - w//g where its flash path decodes: they differ where g does not divide w; here
as in the paper. It can also multiply queries by max(1, ln(i + 1) / ln scale_base): temperature=logn here.
llama.cpp's group attention (--grp-attn-n, --grp-attn-w) is another one: it divides positions in the cache, a
block of w tokens at a time, and what was divided stays so. Not here: positions that look at what lies ahead.
"""

from peref.encodings import Encoding, positive, with_settings_of
from peref.ops.attention import NO_TERMS
from peref.ops.frequency import ladder
from peref.ops.zones import attend_in_zones, over_cells
from peref.xp import namespace


def init(rng, *, base: float = 10000.0, neighbor_window: int | None = None, group_size: int = 8):
    """No parameters. Raises Misuse for options that are not positive."""
    positive("self_extend", base=base, neighbor_window=neighbor_window, group_size=group_size)
    return {}


def neighbors_of(L: int, neighbor_window: int | None) -> int:
    """w: as given, or a quarter of L."""
    return max(L // 4, 1) if neighbor_window is None else neighbor_window


def group(i, g):
    """The number of the group of g tokens that stands at i [...]."""
    return i // g


def group_shift(w: int, g: int) -> int:
    """What is added to the groups of queries, so that the first distance beyond w - 1 is about w."""
    return w - w // g


def group_zones(i, j, *, L, neighbor_window: int | None = None, group_size: int = 8):
    """The zone of each cell, and where queries at i [...] and keys at j [...] stand in each zone."""
    w, (a, b) = neighbors_of(L, neighbor_window), over_cells(i, j)
    far = group(i, group_size) + group_shift(w, group_size), group(j, group_size)
    return a - b >= w, (i, far[0]), (j, far[1])


@with_settings_of(group_zones)
def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, D, R, pairs, base: float = 10000.0, **given):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]: two score matrices, near and grouped, of which the
    distance of each cell takes one.
    """
    (zone, i, j), w = group_zones(at.i, at.j, **given), ladder(namespace(at.i), R, base)
    return attend_in_zones(be, q, k, v, terms, at, zone, i, j, w, pairs=pairs, scale=D**-0.5)


ENCODING = Encoding(
    "arXiv:2401.01325",
    "q R(e) k / sqrt(D), e = d below w, then i//g + w - w//g - j//g",
    symbols={"R": "rotation of RoPE", "e": "distance as it turns", "w": "neighbor_window", "g": "group_size"},
    init=init,
    attend=attend,
    claims=frozenset({"real_positions", "any_length", "window"}),
)
