"""Position interpolation: RoPE with every position divided, so that a longer text turns no further than a short one did.

    angle(i)[n] = (i / factor) base^(-2n/R)

Chen, Wong, Chen, Tian 2023, arXiv:2306.15595, section 2.2; kaiokendev at the same time. Their x L/L' is our i / factor. Hugging Face's
"linear", which divides the frequencies as here. A factor below 1 is no error: it spreads positions.
Not here: a factor that follows the length at hand (jquesnelle's dynamic scaling without NTK).
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive, with_settings_of
from peref.ops.frequency import angle, ladder
from peref.xp import namespace


def frequencies(xp, n, *, R, base: float = 10000.0, factor: float = 4.0):
    positive("pi", base=base, factor=factor)
    return ladder(xp, R, base) / factor


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding("arXiv:2306.15595", "angle = (i / factor) base^(-2n/R)", rotate=rotate, claims=EVERY_LAW_OF_DISTANCE)
