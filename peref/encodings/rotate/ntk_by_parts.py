"""NTK-by-parts, as released: slow pairs are interpolated, fast ones left alone, and those between have the
NTK-aware base.

    w'_n = c_n (b_n w_n / factor + (1 - b_n) v_n) + (1 - c_n) w_n        v_n = (base factor^(R/(R-2)))^(-2n/R)
    b_n rises from 0 to 1 between the pairs that turn beta[0] and beta[1] times within L tokens, c_n between
    gamma[0] and gamma[1]

bloc97 2023, LlamaPartNTKScaledRotaryEmbedding in jquesnelle/yarn, with its names beta and gamma; our b and c
are 1 - its masks. The ramps are straight lines over the index of the pair between whole numbers
(ops/frequency.py). L is `original`, the length trained for unless said.

ntk_factor, extrapolation_factor
      what the mask of NTK and that of RoPE are multiplied with: 1 - b_n becomes ntk_factor (1 - b_n), and 1 -
      c_n likewise. 1 in the release.

form  "static": the above. "dynamic": max(factor, n / L) in place of the factor, n the length that frequencies
      are made for, fixed when a cache is made; factor=1 is LlamaDynamicPartNTKScaledRotaryEmbedding, whose n
      is the largest length seen.

The NTK-by-parts of the paper, arXiv:2309.00071, section 3.2, Definition 2, is another: one ramp, straight in
the number of turns, and no NTK base. That is yarn with ramp=paper and attention_factor=1.
It needs two pairs: R = 2 is refused.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded, positive, with_settings_of
from peref.errors import Misuse
from peref.ops.frequency import Form, angle, ladder, ntk_base, slow_pairs, stretch
from peref.xp import namespace

Pair = tuple[float, ...]


def falling(option, given):
    """Raises Misuse unless `given`, the option of that name, is two numbers of turns, the larger first."""
    if len(given) != 2 or not given[0] > given[1] > 0:
        raise Misuse(
            f"ntk_by_parts: {option} is {given}; expected two numbers of turns, the larger first, such as "
            "16,2"
        )


def frequencies(
    xp,
    n,
    *,
    R,
    L,
    base: float = 10000.0,
    factor: float = 4.0,
    original: int | None = None,
    beta: Pair = (1.25, 0.75),
    gamma: Pair = (16.0, 2.0),
    ntk_factor: float = 1.0,
    extrapolation_factor: float = 1.0,
    form: Form = "static",
):
    """[R/2] in radians per token, for a text of n tokens. Raises Misuse for beta or gamma that do not fall,
    and for base not above 1.
    """
    L = L if original is None else original
    bounded("ntk_by_parts", ">", 1, base=base)
    positive("ntk_by_parts", factor=factor, original=L)
    factor = stretch(n, L, factor, form)
    falling("beta", beta)
    falling("gamma", gamma)
    bounded("ntk_by_parts", ">=", 0, ntk_factor=ntk_factor, extrapolation_factor=extrapolation_factor)
    w, v = ladder(xp, R, base), ladder(xp, R, ntk_base("ntk_by_parts", R, base, factor))
    b = 1 - ntk_factor * (1 - slow_pairs(xp, R, L, base, *beta))
    c = 1 - extrapolation_factor * (1 - slow_pairs(xp, R, L, base, *gamma))
    return c * (b * w / factor + (1 - b) * v) + (1 - c) * w


@with_settings_of(frequencies)
def rotate(p, i, n, **given):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains."""
    return angle(i, frequencies(namespace(i), n, **given)), None, None


ENCODING = Encoding(
    "arXiv:2309.00071",
    "angle = i (c (b w / factor + (1-b) v) + (1-c) w)",
    symbols={"b": "ramp of beta", "c": "ramp of gamma", "v": "frequency of ntk"},
    rotate=rotate,
    claims=EVERY_LAW_OF_DISTANCE,
)
