"""M-RoPE: a token has a time, a height and a width, and each pair of channels turns by one of the three.

    angle(i)[n] = i_a(n) base^(-2n/R)        n = 0 .. R/2-1, i = (t, h, w), a(n) the axis of pair n

The frequencies run on over all pairs, no axis begins anew. Text has t = h = w, for which one number may
stand, and is then RoPE.

order  "chunked": the first s_t pairs take t, the next s_h take h, the last s_w take w (Qwen2-VL, Qwen2.5-VL);
       "interleaved": pair n takes h where n % 3 = 1 and n < 3 s_h, w where n % 3 = 2 and n < 3 s_w, and t
       elsewhere (Qwen3-VL; Huang et al. 2025, arXiv:2510.23095); "alternate": of the first s_h + s_w pairs
       even ones take h and odd ones w, the rest t (ERNIE 4.5 VL, whose config has s_h, s_w, s_t in this
       order).
sections  s_t, s_h, s_w, which add up to R/2. Unless said 2:3:3 for chunked, which is Qwen2-VL's 16,24,24 of
          64, 6:5:5 for interleaved,
       Qwen3-VL's 24,20,20, and 10:11:11 for alternate, ERNIE's 20,22,22; rounded by largest remainder.
       Qwen3.5 interleaves 11,11,10, with a rotary_dim of 64 in heads of 256.
       Interleaved, no axis but t can have more than every third pair, and alternating h and w have the same
       number or h one more: public code gives the rest to another axis without a word, here such sections are
       refused with those that they mean.

Wang et al. 2024, arXiv:2409.12191, section 2.1; sections and orders as vLLM and Hugging Face have them (their
doubled sections over cos and sin of width R are ours over pairs). Qwen2-VL's base is 1000000. Not here: how
tokens of text, images and videos are numbered (peref/patches.py).
"""

from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.errors import Misuse
from peref.xp import namespace

RATIOS = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}


def shares(pairs: int, ratio: tuple[int, ...]) -> tuple[int, ...]:
    """`pairs` divided in this ratio: rounded down, what is left to the largest remainders, the first of
    equal ones first.
    """
    total = sum(ratio)
    left = pairs - sum(pairs * r // total for r in ratio)
    favoured = sorted(range(len(ratio)), key=lambda a: -(pairs * ratio[a] % total))[:left]
    return tuple(pairs * r // total + (a in favoured) for a, r in enumerate(ratio))


def axis_of(pairs: int, order: str, sections: tuple[int, ...] | None) -> list[int]:
    """The axis of each pair: 0 time, 1 height, 2 width. Raises Misuse for sections that are not three numbers
    from 0 on with the sum `pairs`.
    """
    s = shares(pairs, RATIOS[order]) if sections is None else sections
    said = ",".join(map(str, s))
    if len(s) != 3 or min(s) < 0 or sum(s) != pairs:
        raise Misuse(
            f"mrope: sections are {said}; expected three numbers from 0 on that add up to {pairs}, half the "
            "rotary width"
        )
    if order == "chunked":
        return [a for a in range(3) for _ in range(s[a])]
    if order == "interleaved":
        axes, most = (
            [n % 3 if n < 3 * s[n % 3] else 0 for n in range(pairs)],
            "h and w have every third pair at most",
        )
    else:
        axes, most = (
            [1 + n % 2 if n < s[1] + s[2] else 0 for n in range(pairs)],
            "h has as many pairs as w or one more",
        )
    found = tuple(axes.count(a) for a in range(3))
    if found != s:
        raise Misuse(
            f"mrope: sections are {said}; {order} that means {','.join(map(str, found))}, {most}; say so"
        )
    return axes


def rotate(
    p,
    i,
    n,
    *,
    R,
    base: float = 10000.0,
    order: Literal["chunked", "interleaved", "alternate"] = "chunked",
    sections: tuple[int, ...] | None = None,
):
    """The angles in radians, [...,T,R/2] in float64, of positions i [3,B,T], or [...,T] where all three are
    one; no gains. Raises Misuse for a base that is not positive.
    """
    positive("mrope", base=base)
    xp, axis = namespace(i), axis_of(R // 2, order, sections)
    w = base ** (-2 * xp.arange(R // 2, dtype=xp.float64) / R)
    of_pair = i[..., None] if i.ndim < 3 else xp.stack([i[a] for a in axis], -1)  # [...,T,1 or R/2]
    return of_pair.astype(xp.float64) * w, None, None


ENCODING = Encoding(
    "arXiv:2409.12191",
    "angle = (t, h or w) base^(-2n/R)",
    symbols={"t": "position in time", "h": "height", "w": "width"},
    rotate=rotate,
    axes=3,
    claims=EVERY_LAW_OF_DISTANCE | {"text"},
)
