"""Bugs in rescaled frequencies, and in rotations of several axes."""

import math

import numpy as np

from mutants import Mutant
from mutants.ways import angles, gains, hook, patched, with_case, with_options
from peref.encodings.rotate import mrope
from peref.ops import frequency

SLOW = frequency.slow_pairs
AXIS_OF = mrope.axis_of
FACTORED = ("pi", "ntk", "ntk_by_parts", "yarn", "longrope", "llama3")
factor = lambda case: case.config.pe[0][1]["factor"]


def range_is(change):
    """The ramp's ends are change(low, high) of real numbers."""

    def ends(R, L, base, fast, slow, truncate=True):
        low, high = (frequency.pair_that_turns(times, R, L, base) for times in (fast, slow))
        low, high = change(low, high)
        low, high = max(low, 0), min(high, R - 1)
        return low, high + 0.001 if low == high else high

    return lambda case, a: patched("ops.frequency", correction_range=ends)(case, a)


def rise(change):
    """The ramp between its ends is change(t)."""
    return lambda case, a: patched(f"encodings.rotate.{case.encoding}", rising=lambda x, low, high: change(frequency.rising(x, low, high)))(case, a)


def long_one(change):
    """LongRoPE decides by change(n, L)."""
    return lambda case, a: with_case(n=lambda c: change(c.n, c.config.pe[0][1]["original"] or c.L))(case, a)


def scale_of(change):
    return hook("scale", lambda scale: lambda D: change(scale(D)))


MUTANTS = [
    Mutant(
        "factor-ignored",
        "rope.factor.ignored",
        "your frequencies are not scaled",
        FACTORED,
        with_options(factor=1.0),
        ("huggingface/transformers#38224", "ggml-org/llama.cpp#8676"),
    ),
    Mutant(
        "factor-twice",
        "rope.factor.twice",
        "the factor is applied twice",
        FACTORED,
        with_options(factor=lambda case: factor(case) ** 2),
        ("vllm-project/vllm#30384",),
    ),
    Mutant(
        "factor-halved",
        "rope.factor.twice",
        "the factor is half as large",
        FACTORED,
        with_options(factor=lambda case: factor(case) / 2),
        held_out=True,
    ),
    Mutant(
        "pi-multiplied", "rope.pi.factor", "your positions are multiplied by the factor", ("pi",), with_options(factor=lambda case: 1 / factor(case))
    ),
    Mutant("pi-whole", "rope.pi.factor", "your positions are divided as whole numbers", ("pi",), lambda case, a: divided(case, a, np.floor)),
    Mutant("pi-rounded", "rope.pi.factor", "your divided positions are rounded", ("pi",), lambda case, a: divided(case, a, np.rint), held_out=True),
    Mutant(
        "ntk-exponent-1",
        "rope.ntk.exponent",
        "your base is scaled by factor to the R/(R-1)",
        ("ntk", "dynamic_ntk"),
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (R / (R - 1))),
    ),
    Mutant(
        "ntk-exponent-none",
        "rope.ntk.exponent",
        "your base is multiplied by the factor",
        ("ntk", "dynamic_ntk", "ntk_by_parts"),
        lambda case, a: based(case, a, lambda R, b, s: b * s),
    ),
    Mutant(
        "ntk-exponent-head",
        "rope.ntk.exponent",
        "your exponent has the width of two heads",
        ("ntk", "dynamic_ntk", "ntk_by_parts"),
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (2 * R / (2 * R - 2))),
        held_out=True,
    ),
    Mutant(
        "ntk-form",
        "rope.ntk.form",
        "your form of NTK is another",
        ("ntk",),
        with_options(form=lambda case: {"bloc97": "kexue", "kexue": "bloc97", "mixed": "kexue"}[case.config.pe[0][1]["form"]]),
    ),
    Mutant(
        "ntk-interpolates",
        "rope.ntk.form",
        "you interpolate every pair",
        ("ntk",),
        lambda case, a: patched("encodings.rotate.ntk", frequencies=lambda xp, n, *, R, base, factor, **rest: frequency.ladder(np, R, base) / factor)(
            case, a
        ),
        held_out=True,
    ),
    Mutant(
        "dynamic-static",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK scales by a fixed factor",
        ("dynamic_ntk",),
        with_case(n=64),
        ("vllm-project/vllm#5093",),
    ),
    Mutant(
        "dynamic-below",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK also scales below the length trained for",
        ("dynamic_ntk",),
        lambda case, a: below(case, a),
        ("huggingface/transformers#25104",),
    ),
    Mutant(
        "dynamic-never",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK never scales",
        ("dynamic_ntk",),
        with_case(lambda c: c.n and c.n > c.L, n=lambda case: case.L),
        held_out=True,
    ),
    Mutant(
        "dynamic-one-late",
        "rope.ntk.static_as_dynamic",
        "your dynamic NTK counts one token too many",
        ("dynamic_ntk",),
        with_case(n=lambda case: case.n + 1),
    ),
    Mutant(
        "factor-fixed",
        "rope.ntk.static_as_dynamic",
        "your factor does not follow the length",
        ("pi", "ntk_by_parts", "yarn"),
        with_options(lambda c: c.config.pe[0][1]["form"] == "dynamic", form="static"),
    ),
    Mutant(
        "parts-swapped",
        "rope.parts.ramp",
        "beta and gamma have changed places",
        ("ntk_by_parts",),
        with_options(beta=lambda case: case.config.pe[0][1]["gamma"], gamma=lambda case: case.config.pe[0][1]["beta"]),
    ),
    Mutant(
        "parts-one-ramp",
        "rope.parts.ramp",
        "you have one ramp where there are two",
        ("ntk_by_parts",),
        with_options(beta=lambda case: case.config.pe[0][1]["gamma"]),
    ),
    Mutant("parts-wide", "rope.parts.ramp", "your ramp ends elsewhere", ("ntk_by_parts",), with_options(gamma=(32.0, 1.0)), held_out=True),
    Mutant(
        "ramp-unfloored",
        "rope.yarn.ramp",
        "your ramp begins and ends at real numbers",
        ("yarn",),
        range_is(lambda low, high: (low, high)),
        ("vllm-project/vllm#27722",),
    ),
    Mutant(
        "ramp-inward",
        "rope.yarn.ramp",
        "your ramp's ends are rounded inward",
        ("yarn",),
        range_is(lambda low, high: (math.ceil(low), math.floor(high))),
    ),
    Mutant(
        "ramp-flipped",
        "rope.yarn.ramp",
        "your ramp interpolates the fast pairs",
        ("yarn",),
        lambda case, a: (
            patched("encodings.rotate.yarn", slow_pairs=lambda *g: 1 - SLOW(*g))(case, a) if case.config.pe[0][1]["ramp"] == "code" else None
        ),
    ),
    Mutant(
        "ramp-of-paper",
        "rope.yarn.ramp",
        "your ramp is that of the paper, or of the code where the paper's is asked for",
        ("yarn",),
        with_options(lambda c: c.config.pe[0][1]["truncate"], ramp=lambda case: "paper" if case.config.pe[0][1]["ramp"] == "code" else "code"),
    ),
    Mutant("ramp-betas", "rope.yarn.ramp", "your ramp has other ends", ("yarn",), with_options(beta_fast=16.0, beta_slow=2.0), held_out=True),
    Mutant(
        "ramp-length",
        "rope.yarn.ramp",
        "your ramp has another original length",
        ("yarn",),
        with_options(original=lambda case: 4 * (case.config.pe[0][1]["original"] or case.L)),
        ("huggingface/transformers#38224",),
        held_out=True,
    ),
    Mutant(
        "mscale-ignored",
        "rope.yarn.mscale_override",
        "mscale, mscale_all_dim and attention_factor are ignored",
        ("yarn",),
        with_options(mscale=None, mscale_all_dim=None, attention_factor=None, reading="huggingface"),
        ("vllm-project/vllm#48351", "ml-explore/mlx-lm#1507"),
    ),
    Mutant(
        "mscale-one",
        "rope.yarn.mscale_override",
        "mscale_all_dim is ignored",
        ("yarn",),
        with_options(mscale_all_dim=None),
        ("sgl-project/sglang#22711",),
        held_out=True,
    ),
    Mutant(
        "mscale-not-in-scale",
        "rope.yarn.mscale_override",
        "the softmax scale lacks the magnitude",
        ("yarn",),
        lambda case, a: scale_of(lambda s: case.D**-0.5)(case, a) if case.level == "attn" else None,
        ("onnxruntime/mobius#548",),
    ),
    Mutant(
        "mscale-log10",
        "rope.yarn.mscale_missing",
        "your magnitude has the decimal logarithm",
        ("yarn", "longrope"),
        gains(lambda q, k: tuple(None if g is None else 1 + (g - 1) / math.log(10) for g in (q, k))),
        held_out=True,
    ),
    Mutant(
        "long-at-length",
        "rope.longrope.switch",
        "you take the long factors from L on, not beyond",
        ("longrope",),
        long_one(lambda n, L: n + 1),
        ("unslothai/unsloth#10681",),
    ),
    Mutant(
        "long-never",
        "rope.longrope.switch",
        "you always take the short factors",
        ("longrope",),
        long_one(lambda n, L: min(n, L)),
        ("ggml-org/llama.cpp#8995",),
    ),
    Mutant("long-always", "rope.longrope.switch", "you always take the long factors", ("longrope",), long_one(lambda n, L: L + 100), held_out=True),
    Mutant("llama3-hard", "rope.llama3.blend", "there is nothing between your two borders", ("llama3",), rise(np.rint)),
    Mutant("llama3-flipped", "rope.llama3.blend", "your blend is the other way round", ("llama3",), rise(lambda t: 1 - t)),
    Mutant(
        "llama3-borders",
        "rope.llama3.blend",
        "your borders are elsewhere",
        ("llama3",),
        with_options(low_freq_factor=lambda c: c.config.pe[0][1]["low_freq_factor"] / 2, high_freq_factor=8.0),
        held_out=True,
    ),
    Mutant(
        "llama3-length",
        "rope.llama3.blend",
        "your original length is another",
        ("llama3",),
        with_options(original=lambda case: 2 * (case.config.pe[0][1]["original"] or case.L)),
    ),
    Mutant("p-more", "rope.p.fraction", "one pair more turns", ("p_rope",), lambda case, a: fractioned(case, a, 1)),
    Mutant("p-last", "rope.p.fraction", "your slow pairs turn and the fast ones do not", ("p_rope",), angles(lambda phi, i: phi[..., ::-1])),
    Mutant("p-none-still", "rope.p.fraction", "every pair turns", ("p_rope",), with_options(fraction=1.0)),
    Mutant("p-less", "rope.p.fraction", "one pair less turns", ("p_rope",), lambda case, a: fractioned(case, a, -1), held_out=True),
    Mutant("xpos-both-rise", "rope.xpos.gain", "the gain of k is not the inverse of that of q", ("xpos",), gains(lambda q, k: (q, q))),
    Mutant("xpos-exchanged", "rope.xpos.gain", "the gains of q and k are exchanged", ("xpos",), gains(lambda q, k: (k, q))),
    Mutant(
        "xpos-centre",
        "rope.xpos.gain",
        "your gains are centred elsewhere",
        ("xpos",),
        with_options(centre=lambda case: case.config.pe[0][1]["centre"] + case.T // 2),
    ),
    Mutant("xpos-base", "rope.xpos.gain", "your scale base is 256", ("xpos",), with_options(scale_base=256.0), held_out=True),
    Mutant(
        "mrope-order",
        "rope.mrope.sections",
        "your sections are chunked, or interleaved where they should not",
        ("mrope",),
        with_options(
            lambda c: c.config.pe[0][1]["sections"] is None,
            order=lambda case: "chunked" if case.config.pe[0][1]["order"] == "interleaved" else "interleaved",
        ),
    ),
    Mutant("mrope-restarts", "rope.mrope.sections", "your frequencies begin anew in each section", ("mrope",), lambda case, a: restarted(case, a)),
    Mutant(
        "mrope-sections",
        "rope.mrope.sections",
        "your sections are in reverse order",
        ("mrope",),
        lambda case, a: patched("encodings.rotate.mrope", axis_of=lambda *given: AXIS_OF(*given)[::-1])(case, a),
        held_out=True,
    ),
    Mutant(
        "axial-exchanged",
        "rope.axial.axes",
        "rows and columns are exchanged",
        ("axial",),
        angles(lambda phi, i: np.roll(phi, phi.shape[-1] // 2, -1)),
    ),
    Mutant("axial-width", "rope.axial.axes", "the width of your image is another", ("axial",), with_options(width=3)),
    Mutant("axial-wide", "rope.axial.axes", "the width of your image is 5", ("axial",), with_options(width=5), held_out=True),
    Mutant(
        "axial-ladder",
        "rope.axial.ladder",
        "your ladder is another one",
        ("axial",),
        with_options(
            ladder=lambda case: {"restart": "global", "global": "alternate", "alternate": "pixel", "pixel": "restart"}[case.config.pe[0][1]["ladder"]]
        ),
    ),
    Mutant(
        "axial-ladder-other",
        "rope.axial.ladder",
        "your ladder is a third one",
        ("axial",),
        with_options(
            ladder=lambda case: {"restart": "alternate", "global": "restart", "alternate": "global", "pixel": "global"}[
                case.config.pe[0][1]["ladder"]
            ]
        ),
        held_out=True,
    ),
]


def divided(case, a, cut):
    """Positions divided first and made whole."""
    return patched("encodings.rotate.pi", angle=lambda i, w: frequency.angle(cut(i / factor(case)), w * factor(case)))(case, a)


def based(case, a, base_of):
    return patched(f"encodings.rotate.{case.encoding}", ntk_base=lambda name, R, base, s: base_of(R, base, s))(case, a)


def below(case, a):
    """The length at hand, also where it is below the length trained for."""
    o = case.config.pe[0][1]
    L, n = o["original"] or case.L, case.n
    if o["form"] != "dynamic" or n > L:
        return None
    s = o["factor"] * (n / 2) / L - (o["factor"] - 1)
    if s <= 0:
        return None
    return patched("encodings.rotate.dynamic_ntk", ntk_base=lambda name, R, base, _: frequency.ntk_base(name, R, base, s))(case, a)


def fractioned(case, a, more):
    R, o = case.config.R, case.config.pe[0][1]
    turned = int(o["fraction"] * R // 2) + more
    return with_options(fraction=turned / (R // 2))(case, a) if 0 <= turned <= R // 2 else None


def restarted(case, a):
    o, R = case.config.pe[0][1], case.config.R
    axes = AXIS_OF(R // 2, o["order"], o["sections"])
    own = np.array([axes[:n].count(axis) for n, axis in enumerate(axes)])
    change = lambda phi, i: phi * o["base"] ** (-2 * (own - np.arange(R // 2)) / R)
    return angles(change)(case, a)
