"""Sandwich: the inner product of two sinusoidal position embeddings, divided by a number of each head.

    b_h(d) = 1/c_h sum_k cos(d w_k)        w_k = base^(-2k/width), k = 0 .. width/2-1
    c_h = 8h/H, h = 1..H

Chi, Fan, Rudnicky, Ramadge 2022, arXiv:2212.10356, appendix E. Their bar d (128, whatever the width of a
head) is our width, their compression ratio our c_h; head 1 has the strongest bias. Nothing is learned. b_h(0)
= width/(2 c_h) is the same for a whole row of the logits, where softmax does not see it. The formula and the
order of the heads were confirmed from attention-gym, whose test repeats the program of appendix E; the paper
was not at hand.

form  "paper": as above. "nemo": NVIDIA NeMo's, which sums k = 1 .. width/2, so that no wave has the length 2
      pi, and subtracts width/2, so that b_h(0) = 0; its width is that of a head.

Not here: an earlier form of NeMo's without the cosine.
"""

from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.errors import Misuse
from peref.xp import namespace


def bias(be, p, d, *, H, width: int = 128, base: float = 10000.0, form: Literal["paper", "nemo"] = "paper"):
    """The sum of cosines over c_h, [H,N] in float64, of distances d [N]. Raises Misuse for options that are
    not positive, and for an odd width.
    """
    positive("sandwich", width=width, base=base)
    if width % 2:
        raise Misuse(
            f"sandwich: width is {width}; expected an even number, each frequency has a sine and a cosine"
        )
    xp = namespace(d)
    first, least = (0, 0) if form == "paper" else (1, width / 2)
    # [N], one wave at a time
    waves = sum(xp.cos(d * base ** (-2 * k / width)) for k in range(first, first + width // 2)) - least
    return waves * (H / (8 * xp.arange(1, H + 1, dtype=xp.float64)))[:, None]


ENCODING = Encoding(
    "arXiv:2212.10356",
    "b_h(d) = H/(8h) sum_k cos(d base^(-2k/width))",
    symbols={"k": "wave", "h": "head, from 1"},
    bias=bias,
    claims=EVERY_LAW_OF_DISTANCE,
)
