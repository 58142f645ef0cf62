"""YaRN: slow pairs are interpolated, fast ones left alone, a ramp between; and attention is sharpened by a factor on q and k.

    w'_n = (1 - g_n) w_n / factor + g_n w_n        g_n: 1 for pairs that turn often within L tokens, 0 for those that do not
    q, k turned are multiplied by a = 0.1 ln(factor) + 1

Peng, Quesnelle, Fan, Shippole 2023, arXiv:2309.00071, sections 3.2 and 3.4. Their s, gamma, r, sqrt(1/t), alpha and beta are our factor, g,
turns, a, beta_slow and beta_fast; L is `original`, the length trained for unless said.

ramp       "code": g is straight in the index of the pair, between the pairs that turn beta_fast and beta_slow times (the authors' code, Hugging
           Face, vLLM, ggml; ops/frequency.py). "paper": straight in the number of turns, Definition 2. They differ: .846 and .633 for pair 24
           of 64 at base 10000 and L 4096. Where L is a few tokens, less than a turn of the fastest pair, the code's range may be reversed, and
           nothing is interpolated (ggml, which divides by no less than 0.001, interpolates all pairs after the first).
truncate   the code's ramp begins and ends at whole numbers; False in gpt-oss. The paper's ramp has no such ends.
attention_factor
           a itself, in place of the formula; without effect on the softmax scale.
mscale, mscale_all_dim
           DeepSeek's m and M: a = y(m) / y(M) with y(x) = 0.1 x ln(factor) + 1, which is 1 for equal ones, and the softmax scale is multiplied
           by y(M)^2, on all channels, turned or not. y is 1 where factor <= 1. Hugging Face's classes of other models read both and leave the
           softmax scale as it is: that is attention_factor = y(m) / y(M) here.
reading    what a is where m or M is absent or 0. "huggingface" (and vLLM's plain class): y(1), whatever the other says. "deepseek" (their code,
           vLLM's class for their models): y(m) / y(M), with 1 for an absent m and 0 for an absent M. At mscale=0.707, mscale_all_dim=0 and
           factor 40 they split into 1.3689 and 1.2608.

Hugging Face takes max_position_embeddings / original_max_position_embeddings where the factor is missing (for a time always,
huggingface/transformers#38224). Channels that do not turn get no a. attn_factor, another multiple of a (jquesnelle, vLLM), goes into
attention_factor. Not here: Dynamic-YaRN, a factor that follows the length; extrapolation_factor, which multiplies g and is 1 everywhere
(jquesnelle, vLLM).
"""

import math
from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, above, part, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import angle, gain, ladder, rising, slow_pairs, turns
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
    ramp: Literal["code", "paper"] = "code",
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
):
    L = L if original is None else original
    above("yarn", 1, base=base)
    positive("yarn", factor=factor, original=L, beta_slow=beta_slow)
    above("yarn", beta_slow, beta_fast=beta_fast)
    w = ladder(xp, R, base)
    if ramp == "code":
        g = 1 - slow_pairs(xp, R, L, base, beta_fast, beta_slow, truncate)
    elif truncate:
        g = rising(turns(w, L), beta_slow, beta_fast)
    else:
        raise Misuse("yarn: truncate is False, but ramp is paper, which has no ends to round; leave it out, or set ramp=code")
    return (1 - g) * w / factor + g * w


def sharpness(factor, m):
    """y(m) of the docstring."""
    return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0


def attention(
    *,
    factor: float = 4.0,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    reading: Literal["huggingface", "deepseek"] = "huggingface",
):
    """a, the gain of q and of k."""
    for option, m in (("mscale", mscale), ("mscale_all_dim", mscale_all_dim)):
        if m is not None and not m >= 0:
            raise Misuse(f"yarn: {option} is {m}; expected 0 or more")
    if attention_factor is not None:
        positive("yarn", attention_factor=attention_factor)
        return attention_factor
    if reading == "huggingface" and not (mscale and mscale_all_dim):
        return sharpness(factor, 1)
    return sharpness(factor, 1 if mscale is None else mscale) / sharpness(factor, mscale_all_dim or 0)


def scale(D, *, factor: float = 4.0, mscale_all_dim: float | None = None):
    return D**-0.5 * sharpness(factor, mscale_all_dim or 0) ** 2


@with_settings_of(frequencies, attention)
def rotate(p, i, n, **given):
    phi = angle(i, frequencies(namespace(i), n, **part(given, frequencies)))
    a = attention(**part(given, attention))
    return phi, gain(phi, a), gain(phi, a)


ENCODING = Encoding(
    "arXiv:2309.00071", "angle = i ((1-g) w / factor + g w), q and k times a", rotate=rotate, scale=scale, claims=EVERY_LAW_OF_DISTANCE
)
