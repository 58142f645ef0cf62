"""YaRN: slow pairs are interpolated, fast ones left alone, a ramp between; and attention is sharpened by a
factor on q and k.

    w'_n = (1 - g_n) w_n / factor + g_n w_n
    g_n: 1 for pairs that turn often within L tokens, 0 for those that do not
    q, k turned are multiplied by a = 0.1 ln(factor) + 1

Peng, Quesnelle, Fan, Shippole 2023, arXiv:2309.00071, sections 3.2 and 3.4. Their s, gamma, r, sqrt(1/t),
alpha and beta are our factor, g, turns, a, beta_slow and beta_fast; L is `original`, the length trained for
unless said.

ramp       "code": g is straight in the index of the pair, between the pairs that turn beta_fast and beta_slow
           times (the authors' code, Hugging Face, vLLM, ggml; ops/frequency.py). "paper": straight in the
           number of turns, Definition 2. They differ: .846 and .633 for pair 24 of 64 at base 10000 and L
           4096. Where L is a few tokens, less than a turn of the fastest pair, the code's range may be
           reversed, and nothing is interpolated.
           Equal beta_fast and beta_slow, 1 and 1 in Kimi-K2, leave the code one border: rounded it lies
           between two pairs, which is a jump, unrounded the ramp is 0.001 pairs long. The paper's line
           between them has no length then: refused.
truncate   the code's ramp begins and ends at whole numbers; False in gpt-oss. The paper's ramp has no such
           ends.
attention_factor
           a itself, in place of the formula; without effect on the softmax scale. mscale is without effect
           beside it.
extrapolation_factor
           what g is multiplied with (the authors' code, vLLM, ggml's ext_factor, which at 0 leaves a at 1
           too). 1 everywhere.
form       "static": the above. "dynamic": max(factor, n / L) in place of the factor, in a too; n is the
           length that frequencies are made for, fixed when a cache is made. factor=1 is the paper's Dynamic
           Scaling, section 3.3, s = max(1, n / L), and the authors' Dynamic-YaRN; factor above 1 is theirs
           for a model tuned to that factor (finetuned=True). Theirs keeps a state: n is the largest length
           seen.
mscale, mscale_all_dim
           DeepSeek's m and M: a = y(m) / y(M) with y(x) = 0.1 x ln(factor) + 1, which is 1 for equal ones,
           and the softmax scale is multiplied by y(M)^2, on all channels, turned or not. y is 1 where factor
           <= 1. Hugging Face's classes of other models read both and leave the softmax scale as it is: that
           is attention_factor = y(m) / y(M) here.
reading    what a is where m or M is absent or 0. "huggingface" (and vLLM's plain class): y(1), whatever the
           other says. "deepseek" (their code, vLLM's class for their models): y(m) / y(M), with 1 for an
           absent m and 0 for an absent M. At mscale=0.707, mscale_all_dim=0 and factor 40 they split into
           1.3689 and 1.2608. "deepseek" is refused where it can say nothing: without m and M, and beside
           attention_factor.

Hugging Face takes max_position_embeddings / original_max_position_embeddings where the factor is missing (for
a time always, huggingface/transformers#38224). Channels that do not turn get no a. attn_factor, another
multiple of a (jquesnelle, vLLM), goes into attention_factor. A softmax scale that follows the length is
nobody's: mscale_all_dim with form=dynamic is refused. Not here: ggml's ramp over no less than 0.001 pairs,
another where the range is reversed alone; no model is trained for so few tokens.
"""

import math
from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded, part, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import STRONGEST, Form, angle, gain, ladder, rising, slow_pairs, stretch, turns
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
    extrapolation_factor: float = 1.0,
    form: Form = "static",
):
    """w' [R/2] in radians per token, for a text of n tokens. Raises Misuse where beta_fast is below
    beta_slow, for ramp "paper" with truncate False, and for base not above 1.
    """
    L = L if original is None else original
    bounded("yarn", ">", 1, base=base)
    positive("yarn", factor=factor, original=L, beta_slow=beta_slow)
    bounded("yarn", ">=" if ramp == "code" else ">", beta_slow, beta_fast=beta_fast)
    bounded("yarn", ">=", 0, extrapolation_factor=extrapolation_factor)
    s = stretch(n, L, factor, form)
    w = ladder(xp, R, base)
    if ramp == "code":
        g = 1 - slow_pairs(xp, R, L, base, beta_fast, beta_slow, truncate)
    elif truncate:
        g = rising(turns(w, L), beta_slow, beta_fast)
    else:
        raise Misuse(
            "yarn: truncate is False, but ramp is paper, which has no ends to round; leave it out, or set "
            "ramp=code"
        )
    g = extrapolation_factor * g
    return (1 - g) * w / s + g * w


def sharpness(s, m):
    """y(m) of the docstring, of the factor s."""
    return 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1.0


def yarn_gain(
    n,
    *,
    L,
    factor: float = 4.0,
    original: int | None = None,
    form: Form = "static",
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    reading: Literal["huggingface", "deepseek"] = "huggingface",
):
    """a, the gain of q and of k. Raises Misuse for options that contradict one another, and for a gain that
    is not above 0 or too large.
    """
    bounded("yarn", ">=", 0, mscale=mscale, mscale_all_dim=mscale_all_dim)
    positive("yarn", attention_factor=attention_factor)
    bounded(
        "yarn",
        "<=",
        STRONGEST,
        attention_factor=attention_factor,
        mscale=mscale,
        mscale_all_dim=mscale_all_dim,
    )
    if form == "dynamic" and mscale_all_dim:
        raise Misuse(
            f"yarn: mscale_all_dim is {mscale_all_dim}, but form is dynamic, whose factor is not one "
            "number; leave one of them out"
        )
    if reading == "deepseek" and (attention_factor is not None or mscale is mscale_all_dim is None):
        raise Misuse(
            "yarn: reading is deepseek, but there is no mscale or mscale_all_dim to be read, or "
            "attention_factor outranks them; leave it out"
        )
    if attention_factor is not None:
        return attention_factor
    s = stretch(n, L if original is None else original, factor, form)
    if reading == "huggingface" and not (mscale and mscale_all_dim):
        return sharpness(s, 1)
    return sharpness(s, 1 if mscale is None else mscale) / sharpness(s, mscale_all_dim or 0)


def scale(D, *, factor: float = 4.0, mscale_all_dim: float | None = None):
    """D**-0.5, times the square of the sharpness that mscale_all_dim asks for (DeepSeek)."""
    return D**-0.5 * sharpness(factor, mscale_all_dim or 0) ** 2


@with_settings_of(frequencies, yarn_gain)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T], and a, the gain of q and of k,
    None where it is 1. Sections 3.2 and 3.4 of the paper.
    """
    phi = angle(i, frequencies(namespace(i), n, **part(given, frequencies)))
    a = yarn_gain(n, **part(given, yarn_gain))
    return phi, gain(phi, a), gain(phi, a)


ENCODING = Encoding(
    "arXiv:2309.00071",
    "angle = i ((1-g) w / factor + g w), q and k times a",
    symbols={
        "g": "1 for pairs that turn often within L tokens, 0 for slow ones",
        "a": "gain, 0.1 ln(factor) + 1",
    },
    rotate=rotate,
    scale=scale,
    claims=EVERY_LAW_OF_DISTANCE,
)
