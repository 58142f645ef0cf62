"""Golden cases of yarn."""

import math
from math import log, pi

from exact import base_of, between, everywhere, ladder, length, slow, stretch
from mpmath import mp
from mutants import Mutant
from mutants.ways import hook, patched, with_options
from page import factor_of, frequencies, ramp

from peref.ops import frequency
from recipes.families import (
    SMALL,
    attention,
    case,
    laws,
    reading,
    refusals,
    refused,
    rotation,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import aligned_op

SPEC = """
(arXiv:2309.00071). `g w_n/factor + (1 - g) w_n`, where g is the ramp of ntk_by_parts between `beta_fast` and
`beta_slow` turns, the latter no larger (`truncate` false: its ends are not rounded). `ramp` "paper": g falls
linearly in the turns L w_n/(2 pi), from 1 at beta_slow to 0 at beta_fast, which must be larger. g then
becomes `1 - extrapolation_factor (1 - g)`. It has `form`, "dynamic" only where `mscale_all_dim` is absent or
0. The gain of q and of k is `attention_factor` if it is given, else `0.1 ln(factor) + 1` (1 for factor <= 1).
With `mscale` m and `mscale_all_dim` M the latter is `y(m)/y(M)`, `y(x) = 0.1 x ln(factor) + 1` (1 for factor
<= 1), and the softmax scale is multiplied by y(M)^2, with y(0) = 1 where M is absent. `reading` says what the
gain is where m or M is absent or 0: "huggingface", y(1); "deepseek", y(m)/y(M) with y(1) for an absent m,
y(0) for an absent M, and a given 0 as it is.
"""


def magnitude(s, o):
    y = lambda m: mp.mpf(1) if s <= 1 else 1 + m * mp.log(s) / 10
    m, M = (None if o[key] is None else mp.mpf(o[key]) for key in ("mscale", "mscale_all_dim"))
    if o["attention_factor"] is not None:
        return mp.mpf(o["attention_factor"])
    if o["reading"] == "huggingface" and not (m and M):
        return y(1)
    return y(1 if m is None else m) / y(M or 0)


def exact(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), stretch(facts, o, n)
    w = ladder(R, base)
    if o["ramp"] == "code":
        far = slow(R, base, L, o["beta_fast"], o["beta_slow"], o["truncate"])
    else:
        far = [1 - between(L * x / (2 * mp.pi), mp.mpf(o["beta_slow"]), mp.mpf(o["beta_fast"])) for x in w]
    far = [1 - mp.mpf(o["extrapolation_factor"]) * (1 - g) for g in far]
    return everywhere([x * (1 - g) + x / s * g for x, g in zip(w, far, strict=True)], places, magnitude(s, o))


@frequencies
def program(p, o, R, L, n, w):
    s, fast, slow = factor_of(o, L, n), o["beta_fast"], o["beta_slow"]
    if o["ramp"] == "code":
        g = ramp(R, L, o["base"], fast, slow, o["truncate"])
    else:
        g = 1 - ((L * w / (2 * pi) - slow) / (fast - slow)).clip(0, 1)
    g = 1 - o["extrapolation_factor"] * (1 - g)
    y = lambda x: 0.1 * x * log(s) + 1 if s > 1 else 1.0
    m, M = o["mscale"], o["mscale_all_dim"]
    gain = y(1) if not (m and M) else y(m) / y(M)
    if o["reading"] == "deepseek":
        gain = y(1 if m is None else m) / y(M or 0)
    return g * w / s + (1 - g) * w, gain if o["attention_factor"] is None else o["attention_factor"]


def softmax_scale(o, D):
    M = o["mscale_all_dim"] or 0
    return D**-0.5 * ((0.1 * M * log(o["factor"]) + 1) ** 2 if M and o["factor"] > 1 else 1)


GPT_OSS = {"base": 150000.0, "factor": 32.0, "truncate": False}
DEEPSEEK = {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707}
ALL_DIM_0 = {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.0}

BESIDE = {name: {"D": 128, "T": 3, "L": 4096} for name in ("beta_fast", "beta_slow", "truncate")}
BESIDE |= {"reading": {"options": ALL_DIM_0}, "form": {"n": 80, "T": 3}}


# too many for the core, which has the first
FAR = {"base": 3.0, "original": 11, "factor": 2.0, "extrapolation_factor": 0.5}
ALL_DIM = {"mscale": 0.707, "mscale_all_dim": 0.5}
FAR |= {"beta_fast": 1.2, "beta_slow": 0.6}
TOGETHER_CASES = [
    *together(
        "yarn",
        FAR | ALL_DIM | {"form": "dynamic", "truncate": False, "mscale_all_dim": 0.0, "reading": "deepseek"},
        FAR | ALL_DIM | {"truncate": False},
        FAR | ALL_DIM | {"form": "dynamic", "ramp": "paper", "mscale_all_dim": 0.0, "reading": "deepseek"},
        FAR | {"form": "dynamic", "truncate": False, "attention_factor": 1.5},
        FAR | ALL_DIM | {"ramp": "paper"},
        FAR | {"ramp": "paper", "attention_factor": 1.5, "mscale_all_dim": 0.5},
        FAR | {"mscale": 0.707},
        again={"op": (3, 4, 7, 8, 10), "attn": (2, 3, 7, 8, 9)},
        more=(
            FAR | ALL_DIM | {"form": "dynamic", "mscale_all_dim": 0.0, "reading": "deepseek"},
            FAR | {"form": "dynamic", "attention_factor": 1.5},
            FAR | ALL_DIM,
        ),
        H=1,
        D=10,
        R=8,
    )
]

RECIPES = [
    *usual("yarn", flags={"form": ("rope.ntk.static_as_dynamic",)}, B=1, T=5, beside=BESIDE),
    *rotation("yarn"),
    *attention("yarn"),
    case(
        "yarn",
        "table",
        "llama-2",
        "Llama 2: width 128, length 4096, the ramp goes from pair 20 to 46.",
        "rope.yarn.ramp",
        D=128,
        T=3,
        L=4096,
    ),
    case(
        "yarn",
        "table",
        "dynamic",
        "Dynamic-YaRN for 80 tokens, trained for 16: factor and magnitude are those of 80/16.",
        "rope.ntk.static_as_dynamic",
        T=3,
        n=80,
        options={"form": "dynamic", "factor": 1.0},
    ),
    case(
        "yarn",
        "table",
        "factor-1",
        "A factor of 1 scales nothing, magnitude included.",
        "basic",
        options={"factor": 1.0},
    ),
    case(
        "yarn",
        "attn",
        "magnitude",
        "The magnitude is on q and on k, so on logits it counts twice; no other channel has it.",
        "rope.yarn.mscale_missing",
        **SMALL,
        options={"factor": 40.0},
        R=4,
        L=64,
    ),
    case(
        "yarn",
        "table",
        "mscale",
        "mscale over mscale_all_dim.",
        "rope.yarn.mscale_override",
        options={"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0},
    ),
    case(
        "yarn",
        "attn",
        "softmax-scale",
        "mscale_all_dim is in the softmax scale, on channels that turn and on those that do not.",
        "rope.yarn.mscale_override",
        **SMALL,
        options={"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
        R=4,
    ),
    case(
        "yarn",
        "table",
        "gpt-oss",
        "64 channels, base 150000, ends 8.0928 and 17.398 left unrounded.",
        "rope.yarn.ramp",
        D=64,
        T=3,
        L=4096,
        options=GPT_OSS,
    ),
    case(
        "yarn",
        "table",
        "gpt-oss-rounded",
        "The same with rounded ends, 8 and 18.",
        "rope.yarn.ramp",
        D=64,
        T=3,
        L=4096,
        options=GPT_OSS | {"truncate": True},
    ),
    case(
        "yarn",
        "table",
        "deepseek",
        "64 channels, factor 40, mscale over an equal mscale_all_dim: ends 10 and 23, magnitude 1.",
        "rope.yarn.ramp",
        D=64,
        T=3,
        L=4096,
        options=DEEPSEEK,
    ),
    case(
        "yarn",
        "attn",
        "deepseek",
        "Equal mscale and mscale_all_dim: no magnitude, but the softmax scale times 1.5896.",
        "rope.yarn.mscale_override",
        **SMALL,
        L=64,
        options=DEEPSEEK,
    ),
    case(
        "yarn",
        "table",
        "qwen",
        "128 channels, base 1000000, length 32768: ends 23 and 40.",
        "rope.yarn.ramp",
        D=128,
        T=3,
        L=32768,
        options={"base": 1e6},
    ),
    case(
        "yarn",
        "table",
        "low-below-0",
        "16 channels, length 64: the ramp begins before the first pair.",
        "rope.yarn.ramp",
        D=16,
        L=64,
    ),
    case(
        "yarn",
        "table",
        "high-beyond",
        "64 channels, length 2**20: the ramp ends at 42, beyond the last pair, 31.",
        "rope.yarn.ramp",
        D=64,
        T=3,
        L=2**20,
    ),
    case(
        "yarn",
        "table",
        "ends-equal",
        "Both ends are pair 0 and the ramp is 0.001 wide.",
        "rope.yarn.ramp",
        D=8,
        L=4,
    ),
    case(
        "yarn",
        "table",
        "paper-ramp",
        "The ramp of the paper, straight in turns: 0.633 for pair 24 where the code has 0.846.",
        "rope.yarn.ramp",
        D=128,
        T=3,
        L=4096,
        options={"ramp": "paper"},
    ),
    case(
        "yarn",
        "table",
        "attention-factor-1",
        "An explicit magnitude of 1 outranks the formula: there are no gains.",
        "basic",
        options={"factor": 40.0, "attention_factor": 1.0},
    ),
    case(
        "yarn",
        "op",
        "attention-factor-1",
        "An explicit magnitude of 1: q and k turn ungained.",
        "rope.yarn.mscale_override",
        **SMALL,
        options={"factor": 40.0, "attention_factor": 1.0},
    ),
    case(
        "yarn",
        "table",
        "mscale-all-dim-0",
        "mscale 0.707 over mscale_all_dim 0, as Hugging Face reads it: 1.3689.",
        "rope.yarn.mscale_missing",
        options=ALL_DIM_0,
    ),
    case(
        "yarn",
        "table",
        "mscale-all-dim-0-deepseek",
        "The same as DeepSeek's code reads it: 1.2608.",
        "rope.yarn.mscale_override",
        options=ALL_DIM_0 | {"reading": "deepseek"},
    ),
    case(
        "yarn",
        "op",
        "wide",
        "16 channels, length 64, adjacent pairs.",
        "rope.yarn.ramp",
        "rope.yarn.mscale_missing",
        **SMALL,
        D=16,
        L=64,
        layout="interleaved",
    ),
    case(
        "yarn",
        "table",
        "ramp",
        "The ramp of the paper and that of its code differ.",
        "ambiguous",
        D=128,
        T=3,
        L=4096,
        variants=(
            reading("code", "straight in the index of the pair: the authors' code, Hugging Face, vLLM, ggml"),
            reading("paper", "straight in the number of turns: Definition 2", ramp="paper"),
        ),
    ),
    case(
        "yarn",
        "table",
        "magnitude",
        "mscale 0.707 over an mscale_all_dim of 0.",
        "ambiguous",
        T=5,
        options=ALL_DIM_0,
        variants=(
            reading(
                "huggingface", "0 means absent, so 0.1 ln s + 1 = 1.3689: Hugging Face, vLLM's plain class"
            ),
            reading(
                "deepseek",
                "y(0.707) / y(0) = 1.2608: DeepSeek's code, vLLM's class for its models",
                reading="deepseek",
            ),
        ),
    ),
    TOGETHER_CASES[0],
]

WHOLES = [aligned_op("yarn", "64"), *TOGETHER_CASES[1:]]

TRAPS = {
    "rope.yarn.ramp": trap(
        "SCALING",
        "the ramp of YaRN begins or ends in the wrong place",
        "pairs of middle speed are scaled too much or too little: right within the length trained for, and "
        "worse the longer the text",
        "over the index of the pair, the ramp rises from the pair that turns beta_fast times within L "
        "(rounded down, at least 0) to the pair that turns beta_slow times (rounded up, at most R-1); the "
        "slow pairs after it are divided by the factor",
    ),
    "rope.yarn.mscale_missing": trap(
        "MISSING_STEP",
        "YaRN without its magnitude",
        "attention is too flat, and quality falls with length",
        "multiply the cosines and sines of both q and k by it",
        "vllm-project/vllm#46280",
        "ml-explore/mlx-lm#1507",
    ),
    "rope.yarn.mscale_twice": trap(
        "SCALING",
        "the magnitude is squared",
        "attention is too sharp",
        "multiply q by it once and k by it once",
        "sgl-project/sglang#33558",
    ),
    "rope.yarn.mscale_override": trap(
        "OPTION",
        "mscale and mscale_all_dim are ignored or combined differently",
        "attention has another temperature",
        "their quotient is the magnitude",
        "vllm-project/vllm#48351",
    ),
}

MEANS = {
    "options": {
        "form": "rope.ntk.static_as_dynamic",
        "ramp": "rope.yarn.ramp",
        "beta_fast": "rope.yarn.ramp",
        "beta_slow": "rope.yarn.ramp",
        "truncate": "rope.yarn.ramp",
        "extrapolation_factor": "rope.yarn.ramp",
        "original": "rope.yarn.ramp",
        "attention_factor": "rope.yarn.mscale_override",
        "mscale": "rope.yarn.mscale_override",
        "mscale_all_dim": "rope.yarn.mscale_override",
        "reading": "rope.yarn.mscale_override",
    },
    "functions": {
        "ramp": "rope.yarn.ramp",
        "frequencies": "rope.yarn.ramp",
        "stretch": "rope.ntk.static_as_dynamic",
        "yarn_gain": "rope.yarn.mscale_override",
        "sharpness": "rope.yarn.mscale_missing",
        "turns": "rope.yarn.ramp",
    },
    "gains": {
        "missing": "rope.yarn.mscale_missing",
        "twice": "rope.yarn.mscale_twice",
        "exchanged": "rope.yarn.mscale_missing",
    },
}

TOGETHER = [
    *(
        {"original": 64, "base": 10.0},
        {"original": 64, "base": 10.0, "ramp": "paper"},
        {"original": 64, "base": 10.0, "truncate": False},
    ),
    *(
        {"factor": 0.5},
        {"factor": 1.0},
        {"original": 1048576},
        {"original": 4},
        {"attention_factor": 1.0},
        {"attention_factor": 1.5, "mscale": 2.0},
    ),
    *(
        {"mscale": 0.707, "mscale_all_dim": m, "reading": r}
        for m in (1.0, 0.0, None)
        for r in ("huggingface", "deepseek")
    ),
    {"mscale_all_dim": 0.5, "reading": "deepseek"},
    {"mscale": 0.0, "reading": "deepseek"},
    *(
        {"original": 8, "base": 10.0, "factor": 1.0, "form": "dynamic"},
        {"original": 8, "form": "dynamic", "mscale": 2.0, "reading": "deepseek"},
    ),
    {"extrapolation_factor": 0.0},
]
NEEDED = {"reading": {"mscale": 0.707}}
WITHOUT = ("truncate", "reading")

REFUSED = [
    *refusals("yarn"),
    refused(
        "yarn", "op", "factor-0", "setting", "Frequencies cannot be divided by 0.", options={"factor": 0.0}
    ),
    refused(
        "yarn",
        "op",
        "no-original-length",
        "setting",
        "Without the length trained for there is no ramp.",
        options={"original": 0},
    ),
    refused(
        "yarn",
        "op",
        "ends-reversed",
        "setting",
        "beta_fast is the larger number of turns.",
        options={"beta_fast": 1.0, "beta_slow": 32.0},
    ),
    refused(
        "yarn",
        "op",
        "base-1",
        "setting",
        "With base 1 all pairs turn alike and the ramp divides by ln 1.",
        options={"base": 1.0},
    ),
    refused(
        "yarn",
        "op",
        "attention-factor-0",
        "setting",
        "A magnitude of 0 leaves nothing of q and k.",
        options={"attention_factor": 0.0},
    ),
    refused(
        "yarn",
        "op",
        "dynamic-softmax-scale",
        "setting",
        "A factor that follows the length has no one softmax scale.",
        options={"form": "dynamic", "mscale_all_dim": 1.0},
    ),
    refused(
        "yarn",
        "op",
        "ends-of-the-paper",
        "setting",
        "The paper's ramp has no ends that could be left unrounded.",
        options={"ramp": "paper", "truncate": False},
    ),
]

LAWS = [*laws("yarn")]


# wrong implementations

SLOW = frequency.slow_pairs


def range_is(change):
    """The ramp's ends are change(low, high) of real numbers."""

    def ends(R, L, base, fast, slow, truncate=True):
        low, high = (frequency.pair_that_turns(times, R, L, base) for times in (fast, slow))
        low, high = change(low, high)
        low, high = max(low, 0), min(high, R - 1)
        return low, high + 0.001 if low == high else high

    return lambda case, a: patched("ops.frequency", correction_range=ends)(case, a)


def scale_of(change):
    return hook("scale", lambda scale: lambda D: change(scale(D)))


MUTANTS = [
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
            patched("encodings.rotate.yarn", slow_pairs=lambda *g: 1 - SLOW(*g))(case, a)
            if case.config.pe[0][1]["ramp"] == "code"
            else None
        ),
    ),
    Mutant(
        "ramp-of-paper",
        "rope.yarn.ramp",
        "your ramp is that of the paper, or of the code where the paper's is asked for",
        ("yarn",),
        with_options(
            lambda c: c.config.pe[0][1]["truncate"],
            ramp=lambda case: "paper" if case.config.pe[0][1]["ramp"] == "code" else "code",
        ),
    ),
    Mutant(
        "ramp-betas",
        "rope.yarn.ramp",
        "your ramp has other ends",
        ("yarn",),
        with_options(beta_fast=16.0, beta_slow=2.0),
        held_out=True,
    ),
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
]

LATER = [
    Mutant(
        "l-ramp-betas",
        "rope.yarn.ramp",
        "your ramp has other ends",
        ("yarn",),
        with_options(beta_fast=48.0, beta_slow=0.5),
    )
]
