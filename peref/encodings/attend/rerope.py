"""ReRoPE: RoPE whose distances end at a window, so that no text is longer than those of training; Leaky
ReRoPE, where they go on in small steps.

    s_ij = q_i R(e) k_j / sqrt(D)        e = d where d < near, else near + leak (d - near)
    o = softmax(s) v                     R(e) turns pair n by e base^(-2n/R)

It learns nothing of its own and is meant for weights that were trained with RoPE.

near  their w, window; none: an eighth of the length trained for, 512 of Llama 2's 4096 in the code.
leak  their 1/k, 1/scaling_factor; 0: ReRoPE, 1: RoPE. Their code of the leaky form has 1/16.
base  of RoPE's frequencies; which channels turn is the model's, as where a rotation stands.

Su 2023, https://kexue.fm/archives/9708 and https://github.com/bojone/rerope. Two products serve all cells:
beyond the window q turns by near + leak (i - near) and k by leak j. Both patches also multiply queries by
max(1, ln(i + 1) / ln L), a setting of layers here: temperature=logn. They compare |i - j| with the window, so
that keys that lie far ahead would turn as those far behind; they are causal, and so is this. Not here: a
window of another size in each layer or head; the inverse form, small steps near and whole ones far.
"""

from peref.encodings import Encoding, bounded, positive, with_settings_of
from peref.ops.attention import NO_TERMS
from peref.ops.frequency import ladder
from peref.ops.zones import attend_in_zones, over_cells
from peref.xp import namespace


def init(rng, *, base: float = 10000.0, near: int | None = None, leak: float = 0.0):
    """No parameters. Raises Misuse for a base or window that is not positive, or a negative leak."""
    positive("rerope", base=base, near=near)
    bounded("rerope", ">=", 0, leak=leak)
    return {}


def window_of(L: int, near: int | None) -> int:
    """The window: `near`, or an eighth of L."""
    return max(L // 8, 1) if near is None else near


def far_places(i, j, w, leak):
    """Where queries at i [...] and keys at j [...] stand that are w or more apart: their distance is then w +
    leak (d - w).
    """
    return w + leak * (i - w), leak * j


def window_zones(i, j, *, L, near: int | None = None, leak: float = 0.0):
    """The zone of each cell, and where queries at i [...] and keys at j [...] stand in each zone."""
    w, (a, b) = window_of(L, near), over_cells(i, j)
    far = far_places(i, j, w, leak)
    return a - b >= w, (i, far[0]), (j, far[1])


@with_settings_of(window_zones)
def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, D, R, pairs, base: float = 10000.0, **given):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]: two score matrices, near and far, of which the distance
    of each cell takes one.
    """
    (zone, i, j), w = window_zones(at.i, at.j, **given), ladder(namespace(at.i), R, base)
    return attend_in_zones(be, q, k, v, terms, at, zone, i, j, w, pairs=pairs, scale=D**-0.5)


ENCODING = Encoding(
    "https://kexue.fm/archives/9708",
    "q R(e) k / sqrt(D), e = d below near, then near + leak (d - near)",
    symbols={
        "R": "rotation of RoPE",
        "e": "distance as it turns",
        "near": "window",
        "leak": "step beyond it",
    },
    init=init,
    attend=attend,
    claims=frozenset({"shift", "real_positions", "any_length", "window"}),
)
