"""Mixed RoPE, for images: every pair of channels turns by column and row at once, by frequencies that each
head learns.

    angle(i)[h,n] = column w[h,0,n] + row w[h,1,n]        n = 0 .. R/2-1

Positions are (row, column), of two axes; one number i is split as (i // width, i % width), the patches of an
image of that width in reading order. Heads are those of keys, each for the queries that read it.

w starts as a ladder of R/4 lengths base^(-4m/R) in a direction that is drawn for each head, phi, and as the
same across it: w[h,:,m] = base^(-4m/R) (cos phi, sin phi), w[h,:,R/4+m] = base^(-4m/R) (-sin phi, cos phi).

Heo, Park, Han, Yun 2024, arXiv:2403.13298, confirmed from copies of the released code; the base is 10,
theirs, and their pairs are adjacent (layout interleaved). They keep the frequencies of all layers in one
array, here each layer has its own. Not here: a class token, which does not turn; frequencies that heads share
(axial).
"""

import math

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.tape import Op
from peref.xp import namespace


def mixed_angle_forward(column, row, w):
    """column w[:,0] + row w[:,1]: places [T] or [B,T], w [heads,2,R/2] -> [1 or B,heads,T,R/2] in float64."""
    xp = namespace(column, w)
    places = [a.reshape(-1, 1, a.shape[-1], 1).astype(xp.float64) for a in (column, row)]  # [1 or B,1,T,1]
    wide = w.astype(xp.float64)[:, :, None]  # [heads,2,1,R/2]
    return places[0] * wide[:, 0] + places[1] * wide[:, 1], (places, w.dtype)


def mixed_angle_backward(saved, dy):
    """The gradient of w [heads,2,R/2], dy times column and row, summed over batch and tokens; places have
    none.
    """
    places, dtype = saved
    return None, None, namespace(dy).stack([(dy * a).sum((0, 2)) for a in places], 1).astype(dtype)


mixed_angle = Op(mixed_angle_forward, mixed_angle_backward)


def init(rng, *, G, R, base: float = 10.0):
    """w [G,2,R/2], radians a patch. Raises Misuse for a base that is not positive, and for a rotary width
    that is no multiple of 4.
    """
    positive("rope_mixed", base=base)
    if R % 4:
        raise Misuse(f"rope_mixed: rotary width is {R}; expected a multiple of 4")
    size = base ** (-4 * np.arange(R // 4) / R)
    phi = rng.uniform(0.0, 2 * math.pi, (G, 1))
    along, across = (
        np.stack([np.cos(a), np.sin(a)], 1) * size for a in (phi, phi + math.pi / 2)
    )  # [G,2,R/4]
    return {"w": np.concatenate([along, across], -1)}


def rotate(p, i, n, *, width: int = 16):
    """The angles in radians, [1 or B,G,T,R/2] in float64, of positions i [2,B,T] or, split by `width`,
    [...,T]; no gains. Raises Misuse for a width that is not positive.
    """
    positive("rope_mixed", width=width)
    row, column = (i[0], i[1]) if i.ndim == 3 else (i // width, i % width)
    return mixed_angle(column, row, p["w"]), None, None


ENCODING = Encoding(
    "arXiv:2403.13298",
    "angle_h = column w[h,0] + row w[h,1]",
    symbols={
        "angle_h": "of one head",
        "w": "learned, for each head, axis and pair",
        "row": "i // width",
        "column": "i mod width",
    },
    init=init,
    rotate=rotate,
    axes=2,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window"}),
)
