"""Position interpolation: RoPE with every position divided, so that a longer text turns no further than a
short one did.

    angle(i)[n] = (i / factor) base^(-2n/R)

Chen, Wong, Chen, Tian 2023, arXiv:2306.15595, section 2.2; kaiokendev at the same time. Their x L/L' is our i
/ factor. Hugging Face's "linear", which divides the frequencies as here. A factor below 1 is no error: it
spreads positions.

form  "static": the above. "dynamic": max(factor, n / L) in place of the factor; n is the length that
      frequencies are made for, fixed when a cache is made, L `original`, the length trained for unless said.
      factor=1 is jquesnelle's dynamic scaling without NTK, which keeps a state: its n is the largest length
      seen. `original` is without effect on "static".
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive, with_settings_of
from peref.ops.frequency import Form, angle, ladder, stretch
from peref.xp import namespace


def frequencies(
    xp,
    n,
    *,
    R,
    L,
    base: float = 10000.0,
    factor: float = 4.0,
    original: int | None = None,
    form: Form = "static",
):
    """[R/2] in radians per token, for a text of n tokens. Raises Misuse for base, factor or length not above
    0.
    """
    L = L if original is None else original
    positive("pi", base=base, factor=factor, original=L)
    return ladder(xp, R, base) / stretch(n, L, factor, form)


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains. n has a say with
    form=dynamic alone.
    """
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2306.15595",
    "angle = (i / factor) base^(-2n/R)",
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
