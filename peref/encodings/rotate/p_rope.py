"""p-RoPE: only the fast pairs turn; the slow ones carry meaning without position.

    angle(i)[n] = i base^(-2n/R) / factor   for n < k,  0 from k on        k = int(fraction R // 2)

Barbero, Vitvitskyi, Perivolaropoulos, Pascanu, Velickovic 2024, arXiv:2410.06205, section 6.1 and the code in
its appendix. Their p (rope_percentage) is our fraction, their head_dim our R; 0.75 did best in their table 2.
"proportional" in Hugging Face, where Gemma 4 has 0.25. k is what that expression gives in floating point, as
published: 9 for fraction=0.3 and R=64.

Unlike RoPE on a part of the channels (rope with rotary_dim), exponents and pairs are those of the whole
width: in layout "half" channel n pairs with n + R/2. Their width is the head's, so leave rotary_dim alone to
have theirs. factor is Hugging Face's, 1 unless said.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import angle, ladder
from peref.xp import namespace


def frequencies(xp, n, *, R, base: float = 10000.0, fraction: float = 0.75, factor: float = 1.0):
    """[R/2] in radians per token, 0 for the slow rest; n has no say. Raises Misuse for a fraction that is not
    from 0 to 1.
    """
    positive("p_rope", base=base, factor=factor)
    if not 0 <= fraction <= 1:
        raise Misuse(
            f"p_rope: fraction is {fraction}; expected a number from 0, nothing turns, to 1, every pair does"
        )
    return xp.where(xp.arange(R // 2) < int(fraction * R // 2), ladder(xp, R, base) / factor, 0.0)


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains. Those of pairs from k
    on are 0.
    """
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2410.06205",
    "angle = i base^(-2n/R) for n < fraction R/2, else 0",
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
