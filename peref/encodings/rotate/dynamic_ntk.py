"""Dynamic NTK: the base grows with the length of the text, and within the length trained for it is RoPE.

    base' = base s^(R/(R-2))        s = factor m / L - (factor - 1),  m = max(n, L)

emozilla 2023, a post; YaRN, arXiv:2309.00071, section 3.3, where s = max(1, n / L), which is factor = 1.
Their l', L and |D| are our n, L (`original`, the length trained for unless said) and R. Hugging Face's
"dynamic" takes max_position_embeddings for L.

This is a pure function of n, the length that frequencies are made for, fixed when a cache is made; keys in a
cache have turned by one set of frequencies. Hugging Face keeps a state instead: n is the largest length seen;
a longer text makes new frequencies, and keys cached before stay as they were; a text shorter than L (not one
of exactly L) sets it back. tests/test_scalings.py follows that state, and transformers 5.23.0, run beside it,
behaves so.

form  "dynamic": the above. "static": m = factor L whatever the text, so s = factor^2 - factor + 1: vLLM,
      under the name dynamic too. In its versions we read last m is the longest text that the server takes,
      which is n here. "steps": s = 2^(k+1) - 1 with the least whole k >= 0 for which n <= 2^k L: 1, 3, 7,
      ...: Qwen's first generation (use_dynamic_ntk), at whose prompt s is fixed. It has no factor, which must
      be 1.

It needs two pairs: R = 2 is refused.
"""

import math
from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import angle, ladder, ntk_base
from peref.xp import namespace


def frequencies(
    xp,
    n,
    *,
    R,
    L,
    base: float = 10000.0,
    factor: float = 1.0,
    original: int | None = None,
    form: Literal["dynamic", "static", "steps"] = "dynamic",
):
    """[R/2] in radians per token, for a text of n tokens. Raises Misuse for form "steps" with a factor, and
    for base, factor or length not above 0.
    """
    L = L if original is None else original
    positive("dynamic_ntk", base=base, factor=factor, original=L)
    if form == "steps" and factor != 1:
        raise Misuse(f"dynamic_ntk: factor is {factor}, but form is steps, which has none; leave it out")
    m = factor * L if form == "static" else max(n, L)
    s = 2.0 ** (math.ceil(math.log2(m / L)) + 1) - 1 if form == "steps" else factor * m / L - (factor - 1)
    return ladder(xp, R, ntk_base("dynamic_ntk", R, base, s))


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains. n is the length that
    the base grows with.
    """
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2309.00071",
    "angle = i (base s^(R/(R-2)))^(-2n/R), s = max(1, factor length / L - factor + 1)",
    symbols={"s": "how much the base is stretched"},
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
