"""LongRoPE: every pair has a divisor of its own, found by search, and texts longer than L have another list
of them.

    angle(i)[n] = i w_n / c_n
    c = long_factor for texts longer than L, else short_factor; q and k turned are multiplied by
    a = sqrt(1 + ln(factor) / ln(L))

Ding, Zhang, et al. 2024, arXiv:2402.13753, sections 3.1 and 3.3; a and the switch as in Phi-3 ("longrope",
once "su"). Their lambda, theta, s and n-hat are our c, w, factor and start_tokens; L is `original`, the
length trained for unless said. Long is n > L, not n = L: n is the length that frequencies are made for, fixed
when a cache is made, so that keys never meet queries of the other list. (Hugging Face decides at each call,
and its Phi-3 begins a new cache when a text grows over L; vLLM and llama.cpp take one list, that of the
longest text they will serve.)

short_factor, long_factor
           R/2 numbers each. Unless said 1 for short texts, and for long ones YaRN's ratios w_n / w'_n (code
           ramp, 32 and 1 turns), a seed of the published search, beside PI's and NTK's. (The released search
           starts from YaRN's alone, on a line in c between 1 and s, not in 1/c.)
factor     target length over L, for a and for the ratios above; a is 1 where factor <= 1. Hugging Face has
           max_position_embeddings / L.
attention_factor, short_mscale, long_mscale
           a itself, for both lists, or for one, before that (Phi-3.5-MoE has 1.2432 for both).
start_tokens
           how many positions, from 0, turn as in RoPE, without c and a (equation 3). Shifting positions then
           changes the result, and the law of shifts is not claimed. 0 in the released models.

YaRN's a, an alternative of the authors' code, is attention_factor = 0.1 ln(factor) + 1; its DynamicLongRoPE
class, whose factors grow with n, is 1 + (c - 1) (n/L - 1) / (factor - 1) as long_factor. Not here: the
search (lab/search.py), in the paper over c from 1 to 1.25 s in steps of .01, never falling from pair to pair,
and start_tokens of 0, 1, 2, 4, 8, 12, ... 32, 64, 128, 256 (table 4).

Equation 3 and table 4 were read in public notes that go through sections 2 and 3 line by line, the paper
itself was not at hand; a, which is not in these sections, is from public code. The authors' repository turns
start tokens so (rope/longrope.py) and searched their number in an early version (evolution/dim_mono_n), but
not in the release, where c ends at 1 + s.
"""

import math

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded, part, positive, with_settings_of
from peref.errors import Misuse, counted
from peref.ops.frequency import STRONGEST, angle, gain, ladder, slow_pairs
from peref.xp import namespace

Divisors = tuple[float, ...] | None


def frequencies(
    xp,
    n,
    *,
    R,
    L,
    base: float = 10000.0,
    factor: float = 4.0,
    original: int | None = None,
    short_factor: Divisors = None,
    long_factor: Divisors = None,
):
    """[R/2] in radians per token, for a text of n tokens. Raises Misuse for lists that do not have R/2
    numbers above 0.
    """
    L = L if original is None else original
    bounded("longrope", ">", 1, base=base, original=L)
    positive("longrope", factor=factor)
    for option, given in (("short_factor", short_factor), ("long_factor", long_factor)):
        if given is not None and (len(given) != R // 2 or not min(given) > 0):
            expected = f"expected {counted(R // 2, 'number')} above 0, one for each pair of channels"
            raise Misuse(f"longrope: {option} is {','.join(map(str, given))}; {expected}")
    given = long_factor if n > L else short_factor
    w = ladder(xp, R, base)
    if given is not None:
        return w / xp.asarray(given)
    slow = slow_pairs(xp, R, L, base, 32, 1)
    return w * (slow / factor + (1 - slow)) if n > L else w


def longrope_gain(
    n,
    *,
    L,
    factor: float = 4.0,
    original: int | None = None,
    attention_factor: float | None = None,
    short_mscale: float | None = None,
    long_mscale: float | None = None,
):
    """a, the gain of q and of k, a number. Raises Misuse for factors that are not positive or above
    STRONGEST.
    """
    L = L if original is None else original
    given = {"attention_factor": attention_factor, "short_mscale": short_mscale, "long_mscale": long_mscale}
    positive("longrope", **given)
    bounded("longrope", "<=", STRONGEST, **given)
    for a in (long_mscale if n > L else short_mscale, attention_factor):
        if a is not None:
            return a
    return math.sqrt(1 + math.log(factor) / math.log(L)) if factor > 1 else 1.0


@with_settings_of(frequencies, longrope_gain)
def rotate(p, i, n, *, R, base: float = 10000.0, start_tokens: int = 0, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T], and a, the gain of q and of k,
    None where it is 1; n is the length that chooses the divisors. Raises Misuse for start_tokens below 0.
    """
    bounded("longrope", ">=", 0, start_tokens=start_tokens)
    given |= {"R": R, "base": base}
    xp = namespace(i)
    phi = angle(i, frequencies(xp, n, **part(given, frequencies)))
    a = gain(phi, longrope_gain(n, **part(given, longrope_gain)))
    if start_tokens:
        first = ((i >= 0) & (i < start_tokens))[..., None]
        phi = xp.where(first, angle(i, ladder(xp, R, base)), phi)
        a = None if a is None else xp.where(first, 1.0, a)
    return phi, a, a


def claims(*, start_tokens: int = 0):
    """Every law of distance; start tokens, which turn by their own frequencies, break the shift."""
    return EVERY_LAW_OF_DISTANCE - ({"shift"} if start_tokens else set())


ENCODING = Encoding(
    "arXiv:2402.13753",
    "angle = i w / c, q and k times a; c by length",
    symbols={"c": "divisor of each pair", "a": "gain"},
    rotate=rotate,
    claims=claims,
)
