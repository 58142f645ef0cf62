"""NTK-aware scaling: RoPE with a larger base, so that the slowest pair is interpolated in full and the
fastest hardly or not at all.

    w'_n = w_n factor^(-2n/(R-2))        n = 0 .. R/2-1; w_n = base^(-2n/R)

bloc97 2023, a post; YaRN, arXiv:2309.00071, section 3.1, writes it as a base: b' = base factor^(R/(R-2)).
Their s, b and |D| are our factor, base and R. Pair 0 stays as it is, the last is divided by `factor`. It
needs two pairs: R = 2 is refused.

form     "bloc97": the above. "kexue": w_n factor^(-2(n+1)/R), Su, kexue.fm/archives/9706, vLLM's
         NTKScalingRotaryEmbedding: all pairs are rescaled, the last by `factor`. "mixed": w_n exp(-a (n+1)^b)
         with a = ln(factor) / (R/2)^b, from the same places; b = 1 is kexue, b = 0 is pi.
mixed_b  the b of "mixed", 0.625 unless said (the post's); without meaning in the other forms and refused
         there.

A factor that somebody computed from a length, such as HunYuan's alpha, goes in as it is.
Not here: a factor that follows the length (dynamic_ntk.py).
"""

import math
from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import angle, ladder, ntk_base
from peref.xp import namespace


def frequencies(
    xp,
    n,
    *,
    R,
    base: float = 10000.0,
    factor: float = 4.0,
    form: Literal["bloc97", "kexue", "mixed"] = "bloc97",
    mixed_b: float | None = None,
):
    """[R/2] in radians per token; n has no say. Raises Misuse for mixed_b with another form than "mixed", and
    for base or factor not above 0.
    """
    positive("ntk", base=base, factor=factor)
    if mixed_b is not None and form != "mixed":
        raise Misuse(
            f"ntk: mixed_b is {mixed_b}, but form is {form}, which has none; leave it out, or set form=mixed"
        )
    if form == "bloc97":
        return ladder(xp, R, ntk_base("ntk", R, base, factor))
    b = 1.0 if form == "kexue" else 0.625 if mixed_b is None else mixed_b
    bounded("ntk", ">=", 0, mixed_b=b)
    bounded("ntk", "<=", 100, mixed_b=b)
    return ladder(xp, R, base) * xp.exp(-math.log(factor) * xp.arange(1, R // 2 + 1) ** b / (R / 2) ** b)


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains."""
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2309.00071",
    "angle = i (base factor^(R/(R-2)))^(-2n/R)",
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
