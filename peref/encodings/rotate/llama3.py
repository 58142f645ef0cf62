"""Llama 3 scaling: pairs with long waves are interpolated, those with short ones left alone, on a straight
line in frequency between.

    w'_n = (1 - t_n) w_n / factor + t_n w_n
    t_n = (L / lambda_n - low) / (high - low), within 0 .. 1;  lambda_n = 2 pi / w_n

Meta 2024, Llama 3.1 (factor 8) and 3.2 (factor 32), arXiv:2407.21783; the formula is that of their code
(llama-models, apply_scaling; "llama3" in Hugging Face). It is the NTK-by-parts of YaRN, arXiv:2309.00071,
section 3.2, with alpha = low = 1, beta = high = 4. Their low_freq_factor and high_freq_factor are low and
high here in the formula; L / lambda is the number of turns within L tokens. L is `original` (8192 in the
models), the length trained for unless said. The models have base=500000, which belongs to RoPE and is set
apart. Equal low and high, 1 and 1 in Llama 4 Scout (factor 16), are a jump: shorter waves are left alone,
longer ones divided. Hugging Face's line between divides by 0 then, and is masked out but for a wave of just L
/ low, which gets NaN; it is divided in vLLM, and here.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded, positive, with_settings_of
from peref.ops.frequency import angle, ladder, rising, turns
from peref.xp import namespace


def frequencies(
    xp,
    n,
    *,
    R,
    L,
    base: float = 10000.0,
    factor: float = 8.0,
    original: int | None = None,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
):
    """[R/2] in radians per token; n has no say. Raises Misuse where high_freq_factor is below
    low_freq_factor, and for what is not above 0.
    """
    L = L if original is None else original
    positive("llama3", base=base, factor=factor, original=L, low_freq_factor=low_freq_factor)
    bounded("llama3", ">=", low_freq_factor, high_freq_factor=high_freq_factor)
    w = ladder(xp, R, base)
    t = rising(turns(w, L), low_freq_factor, high_freq_factor)
    return (1 - t) * w / factor + t * w


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains."""
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2407.21783",
    "angle = i ((1-t) w / factor + t w), t by wavelength",
    symbols={"t": "1 for short wavelengths, 0 for long ones"},
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
