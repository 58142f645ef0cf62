"""Rotations with rescaled frequencies: the numbers that papers and public code print, what depends on the
length, and learned frequencies.

What is generated for every encoding is in test_encodings.py.
"""

import math
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from check import frozen, gradient, same
from loops import attention as attention_loop
from loops import witness

import peref
from peref import model
from peref.config import Config
from peref.encodings import get, module, names, part, settings, with_settings_of
from peref.errors import Misuse
from peref.generate import generate
from peref.ops.frequency import correction_range, ladder, pair_that_turns
from peref.tape import Tape

SCALED = ("pi", "ntk", "dynamic_ntk", "ntk_by_parts", "yarn", "longrope", "llama3", "p_rope")
# R, base, L
LLAMA2, GPT_OSS, DEEPSEEK, QWEN = (128, 1e4, 4096), (64, 150000.0, 4096), (64, 1e4, 4096), (128, 1e6, 32768)


def frequencies(name, R, base=10000.0, L=4096, n=None, **given):
    """What the encoding's own function says, L being the length trained for."""
    function = module(name).frequencies
    facts = {"R": R, "L": L}
    wanted = {fact: facts[fact] for fact, a in settings(function).items() if a.default is a.empty}
    return function(np, L if n is None else n, **wanted, base=base, **given)


def ratios(name, R, base=10000.0, **rest):
    return frequencies(name, R, base, **rest) / ladder(np, R, base)


def base_of(w):
    """The base of a ladder, from its second frequency."""
    return float(w[1] ** -len(w))


def config(name, L=16, **given):
    return Config(pe=((name, given),), L=L, H=6, G=2, C=30, D=4, F=14, V=11, layers=2)


def weights(cfg):
    rng = np.random.default_rng(0)
    return frozen(
        {name: a + 0.3 * rng.standard_normal(a.shape) for name, a in model.init(cfg, 0, np.float64).items()}
    )


def tokens(B, T):
    return np.random.default_rng([B, T]).integers(0, 11, (B, T))


# ---------------------------------------------------------------- one function of frequencies for each file


@pytest.mark.parametrize("name", [name for name in names() if hasattr(module(name), "frequencies")])
def test_frequencies_are_the_angles_of_position_1(name):
    """`frequencies` is what rotate turns by; so a bound rotate at position 1 says them too, with the gains
    and the softmax scale beside.
    """
    for n in (16, 40):
        encoding = config(name).encoding(0)
        angle, *_ = encoding.rotate({}, np.array([1]), n)
        same(angle[0], frequencies(name, 4, L=16, n=n), 0)
        assert encoding.scale(4) > 0


def test_each_of_these_files_has_the_function():
    """And none takes it from another."""
    for name in ("rope", *SCALED):
        assert module(name).frequencies.__module__ == f"peref.encodings.rotate.{name}"


def test_settings_that_two_functions_share_are_named_once():
    """They come in the order of the functions, whatever is not among them is refused, and so are two
    defaults.
    """

    def first(n, *, R, factor: float = 2.0):
        return factor * R

    def second(*, factor: float = 2.0, kind: str = "a"):
        return kind

    @with_settings_of(first, second)
    def both(p, *, last: int = 1, **given):
        return p, last, given

    assert {n: a.default for n, a in settings(both).items() if n != "R"} == {
        "factor": 2.0,
        "kind": "a",
        "last": 1,
    }
    assert list(settings(both)) == ["R", "factor", "kind", "last"]
    assert both(0, R=3, last=5) == (0, 5, {"R": 3})
    assert part({"R": 3, "kind": "b"}, first) == {"R": 3}
    with pytest.raises(TypeError, match="has no setting fcator"):
        both(0, R=3, fcator=1.0)
    with pytest.raises(TypeError, match="factor has two defaults"):
        with_settings_of(first)(lambda p, *, factor=3.0, **given: p)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(
            ("pi", {"factor": 1.0}),
            ("ntk", {"factor": 1.0}),
            ("ntk", {"factor": 1.0, "form": "mixed"}),
            ("dynamic_ntk", {}),
            ("longrope", {}),
        ),
        *(
            ("ntk_by_parts", {"factor": 1.0}),
            ("yarn", {"factor": 1.0}),
            ("yarn", {"factor": 1.0, "ramp": "paper"}),
            ("llama3", {"factor": 1.0}),
        ),
        ("p_rope", {"fraction": 1.0}),
    ],
)
def test_without_scaling_it_is_rope(name, given):
    """Factor 1, or a text no longer than L."""
    same(frequencies(name, 64, **given), ladder(np, 64, 10000.0), 1e-15)


# ---------------------------------------------------------------- rope, pi


def test_a_larger_base_is_abf():
    """Xiong et al. 2023, arXiv:2309.16039: base 500000; the slowest pair of 64 goes from a wave of 54,410
    to one of 2,559,196 tokens.
    """
    longest = [2 * math.pi / frequencies("rope", 128, base)[-1] for base in (1e4, 5e5)]
    same(np.array(longest), np.array([54410.14, 2559195.52]), 1e-8)


def test_pi_divides_positions():
    """2048 -> 1024 at factor 2; at factor 3, where rounding shows, positions / 3 and frequencies / 3 are
    the same angles.
    """
    i = np.array([1, 2, 1000, 2048, 1048575])
    rope, pi = get("rope").rotate, get("pi").rotate
    same(pi({}, np.array([2048]), 0, R=8, L=8, factor=2.0)[0], rope({}, np.array([1024]), 0, R=8)[0], 1e-15)
    same(pi({}, i, 0, R=8, L=8, factor=3.0)[0], rope({}, i / 3, 0, R=8)[0], 1e-15)


# ---------------------------------------------------------------- NTK


@pytest.mark.parametrize(("R", "factor", "base"), [(64, 2.0, 20452.228712), (128, 8.0, 82684.622641)])
def test_ntk_bases(R, factor, base):
    """10000 factor^(R/(R-2)), the authors' find_newbase_ntk; tutorials print about 20700 and 641,878 for
    these.
    """
    same(np.float64(base_of(frequencies("ntk", R, factor=factor))), np.float64(base), 1e-10)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, [1, 0.629961, 0.396850, 0.25]),
        ({"form": "kexue"}, [0.707107, 0.5, 0.353553, 0.25]),
        ({"form": "mixed"}, [0.558297, 0.407017, 0.314063, 0.25]),
        ({"form": "mixed", "mixed_b": 1.0}, [0.707107, 0.5, 0.353553, 0.25]),
        ({"form": "mixed", "mixed_b": 0.0}, [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_ntk_forms(given, want):
    """R 8, factor 4; bloc97, then vLLM's NTKScalingRotaryEmbedding (kexue.fm/archives/9706): b = 1 is
    kexue's first form, b = 0 is pi.
    """
    same(ratios("ntk", 8, factor=4.0, **given), np.array(want), 2e-6)


@pytest.mark.parametrize("given", [{}, {"form": "kexue"}, {"form": "mixed"}])
def test_ntk_divides_the_last_pair_by_the_factor(given):
    """In every form; only bloc97's leaves the first as it is."""
    r = ratios("ntk", 128, factor=8.0, **given)
    same(r[-1:], np.array([1 / 8]), 1e-14)
    assert (r[0] == 1) == (given == {})


# ---------------------------------------------------------------- dynamic NTK


@pytest.mark.parametrize(
    ("n", "base"),
    [(1, 1e4), (2047, 1e4), (2048, 1e4), (2049, 10009.920712), (4096, 30527.736749), (8192, 72195.860087)],
)
def test_dynamic_ntk_bases(n, base):
    """Hugging Face's _compute_dynamic_ntk_parameters: factor 2, L 2048, R 128."""
    same(
        np.float64(base_of(frequencies("dynamic_ntk", 128, L=2048, n=n, factor=2.0))), np.float64(base), 1e-10
    )


def test_dynamic_ntk_of_the_paper():
    """YaRN section 3.3: s = max(1, n / L) in the NTK-aware base, which is factor 1."""
    for n in (100, 2048, 3000, 8192):
        same(
            frequencies("dynamic_ntk", 128, L=2048, n=n),
            frequencies("ntk", 128, factor=max(1.0, n / 2048)),
            1e-14,
        )


def test_dynamic_ntk_static():
    """vLLM's DynamicNTKScalingRotaryEmbedding of 2023 to 2025: factor^2 - factor + 1, whatever the text;
    30527.74 for factor 2, that of 2 L.
    """
    for n in (1, 2048, 9999):
        w = frequencies("dynamic_ntk", 128, L=2048, n=n, factor=2.0, form="static")
        same(w, frequencies("dynamic_ntk", 128, L=2048, n=4096, factor=2.0), 1e-15)
        same(np.float64(base_of(w)), np.float64(30527.736749), 1e-10)


class HuggingFace:
    """The state that Hugging Face keeps (dynamic_frequency_update): which length its frequencies are made
    for.

    `lost`: in versions of 2026 the growth is stored under one name and read under another, for models without
    layer types.
    """

    def __init__(self, L, lost=False):
        self.L, self.lost, self.longest, self.made_for = L, lost, L, L

    def call(self, n):
        if n > self.longest:
            self.made_for = n
            self.longest = self.longest if self.lost else n
        if n < self.L and self.longest > self.L:
            self.made_for = self.longest = self.L
        return self.made_for


@pytest.mark.parametrize(
    ("lost", "made_for"),
    [
        (False, [2048, 2048, 2049, 4096, 4096, 4096, 2048, 3000, 4096]),
        (True, [2048, 2048, 2049, 4096, 3000, 3000, 3000, 3000, 4096]),
    ],
)
def test_hugging_face_s_dynamic_ntk_as_a_trace(lost, made_for):
    """Texts of 2047, 2048, 2049, 4096, 3000, 2048, 2047, 3000, 4096: what a text gets depends on those before
    it. Exactly L is not set back.

    Each state is ours at another n; a pure function gives 3000 the same at both places, and 2048 always RoPE.
    """
    lengths, state = [2047, 2048, 2049, 4096, 3000, 2048, 2047, 3000, 4096], HuggingFace(2048, lost)
    got = [state.call(n) for n in lengths]
    assert got == made_for
    bases = [base_of(frequencies("dynamic_ntk", 128, L=2048, n=n, factor=2.0)) for n in got]
    pure = [base_of(frequencies("dynamic_ntk", 128, L=2048, n=n, factor=2.0)) for n in lengths]
    assert bases[:4] == pure[:4]
    assert bases[5] > 19000 > 10001 > pure[5]
    assert pure[4] == pure[7]
    assert (bases[4] == bases[7]) == lost


def test_frequencies_follow_the_cache_and_not_its_filling():
    """Decoding in pieces across L gives the rows of the whole with the same n; another n gives others.
    Keys met one set of frequencies.
    """
    x = tokens(2, 12)
    for name, given in (
        ("dynamic_ntk", {"factor": 2.0}),
        ("longrope", {"long_factor": (1.5, 3.0)}),
        ("longrope", {"start_tokens": 3}),
    ):
        cfg = config(name, L=5, **given)
        p = weights(cfg)
        for n in (4, 5, 6, 12):
            whole = model.logits(cfg, p, x, n=n)
            memory, rows = model.cache(cfg, n), []
            for a, b in pairwise((0, 3, 5, 6, 12)):
                y, memory = model.decode(cfg, p, x[:, a:b], memory)
                rows.append(y)
            same(np.concatenate(rows, 1), whole, 1e-10)
        short, long = (model.logits(cfg, p, x, n=n) for n in (5, 6))
        assert abs(long - short).max() > 1e-3
        same(model.logits(cfg, p, x, n=4), short, 0)


def test_generate_fixes_the_length_beforehand():
    """The text that is asked for counts, not the one written so far: the first token already has the
    frequencies of the last.
    """
    cfg = config("dynamic_ntk", L=5, factor=3.0)
    p, prompt = weights(cfg), tokens(1, 4)[0]
    first = next(generate(cfg, p, prompt, 8, temperature=0))
    assert first == int(model.logits(cfg, p, prompt[None], n=12)[0, -1].argmax())


# ---------------------------------------------------------------- NTK by parts


def test_ntk_by_parts_of_llama():
    """jquesnelle's PartNTK at 128 channels, L 2048, factor 4: untouched up to pair 20 (16 turns),
    interpolated in full from 43 (0.75).
    """
    r = ratios("ntk_by_parts", 128, L=2048)
    same(r[:21], np.ones(21), 0)
    same(r[43:], np.full(21, 0.25), 1e-15)
    assert (np.diff(r[20:44]) < 0).all()
    ends = [pair_that_turns(times, 128, 2048, 1e4) for times in (16, 2, 1.25, 0.75)]
    same(np.array(ends), np.array([20.944482, 35.393921, 38.659841, 42.209421]), 1e-6)


# ---------------------------------------------------------------- YaRN


@pytest.mark.parametrize(
    ("sizes", "exact", "whole"),
    [
        (LLAMA2, (20.944482, 45.026881), (20, 46)),  # Llama 2
        (GPT_OSS, (8.092779, 17.398025), (8, 18)),  # gpt-oss, which does not truncate
        (DEEPSEEK, (10.472241, 22.513441), (10, 23)),  # DeepSeek V2, V3
        (QWEN, (23.595948, 39.650881), (23, 40)),  # Qwen 2.5
        ((16, 1e4, 64), (0, 2.016000), (0, 3)),  # the first end would be below 0
        ((64, 1e4, 2**20), (29.738161, 41.779360), (29, 42)),  # the second is beyond the last pair, 31
        ((4, 10.0, 2), (0, -0.994300), (0, 0.001)),  # a reversed range, and equal ends
    ],
)
def test_yarn_correction_ranges(sizes, exact, whole):
    """find_correction_range of the authors, Hugging Face (truncate) and vLLM, with 32 and 1 turns."""
    R, base, L = sizes
    same(np.array(correction_range(R, L, base, 32, 1, truncate=False)), np.array(exact, dtype=float), 1e-6)
    same(np.array(correction_range(R, L, base, 32, 1), dtype=float), np.array(whole, dtype=float), 1e-15)


def test_yarn_ramps_of_code_and_paper():
    """Pair 24 of Llama 2: .846 on a line in the index, .633 on a line in turns. Both leave the same pairs
    alone and interpolate the same in full.
    """
    share = {
        ramp: (ratios("yarn", 128, factor=16.0, ramp=ramp) - 1 / 16) / (15 / 16) for ramp in ("code", "paper")
    }
    same(np.array([share["code"][24], share["paper"][24]]), np.array([22 / 26, 0.632737]), 1e-6)
    for r in share.values():
        same(r[:21], np.ones(21), 1e-15)
        assert abs(r[46:]).max() < 1e-15
        assert (np.diff(r[20:46]) < 0).all()


def test_yarn_where_l_is_shorter_than_a_wave():
    """In 5 tokens no pair turns once, so all should be interpolated: the paper's ramp does that, the
    code's range is reversed and does nothing.
    """
    same(ratios("yarn", 128, L=5, ramp="paper"), np.full(64, 0.25), 1e-15)
    assert correction_range(128, 5, 1e4, 32, 1) == (0, -1)
    same(ratios("yarn", 128, L=5), np.ones(64), 0)


LENGTHS = [1024, 4096, 3000, 8192, 2048]


def jquesnelle(lengths, longest, original, finetuned):
    """The factor at each call of his dynamic classes, which remember the longest text: RoPE, or the factor
    of a finetuned model, up to `longest`.
    """
    factor, found = longest / original if finetuned else 1.0, []
    for n in lengths:
        if n > longest:
            longest, factor = n, n / original
        found.append(factor)
    return found


@pytest.mark.parametrize(("longest", "finetuned"), [(2048, False), (2048, True), (3000, True)])
@pytest.mark.parametrize("name", ["pi", "ntk_by_parts", "yarn"])
def test_a_dynamic_factor_is_jquesnelle_s_without_his_state(name, longest, finetuned):
    """Frequencies and gain for the longest text so far are those of its factor; up to L, of a model that
    was not tuned, those of RoPE.
    """
    for factor, n in zip(
        jquesnelle(LENGTHS, longest, 2048, finetuned), accumulate(LENGTHS, max), strict=True
    ):
        fixed, follows = ({"L": 2048, "n": n, "factor": f} for f in (factor, longest / 2048))
        same(frequencies(name, 128, **follows, form="dynamic"), frequencies(name, 128, **fixed), 1e-15)
        if n <= longest == 2048:
            same(frequencies(name, 128, **follows, form="dynamic"), frequencies("rope", 128), 1e-15)
    gain = (
        Config(pe=(("yarn", {"form": "dynamic", "factor": 1.0}),), L=2048, C=4, H=1)
        .encoding(0)
        .rotate({}, np.arange(2), 8192)[1]
    )
    same(gain, np.full((2, 2), 0.1 * math.log(4) + 1), 1e-15)


def test_a_softmax_scale_that_would_follow_the_length_is_refused():
    """mscale_all_dim with a factor that is not one number."""
    with pytest.raises(
        Misuse,
        match=(
            r"yarn: mscale_all_dim is 1\.0, but form is dynamic, whose factor is not one number; leave one "
            r"of them out"
        ),
    ):
        model.logits(cfg := config("yarn", form="dynamic", mscale_all_dim=1.0), model.init(cfg), tokens(1, 3))


def test_masks_that_are_weakened():
    """extrapolation_factor 0 interpolates every pair of yarn, and of ntk_by_parts leaves the first mix;
    there ntk_factor 0 interpolates as well.
    """
    same(ratios("yarn", 128, L=4096, extrapolation_factor=0.0), np.full(64, 0.25), 1e-15)
    same(
        ratios("ntk_by_parts", 128, L=4096, ntk_factor=0.0, extrapolation_factor=0.0),
        np.full(64, 0.25),
        1e-15,
    )
    mixed = ratios("ntk_by_parts", 128, L=4096, extrapolation_factor=0.0)
    same(mixed[:40], ratios("ntk", 128)[:40], 1e-13)
    half = ratios("yarn", 128, L=4096, extrapolation_factor=0.5)
    same(half, 0.25 + (ratios("yarn", 128, L=4096) - 0.25) / 2, 1e-15)


ABSENT = {"attention_factor": None, "mscale": None, "mscale_all_dim": None, "reading": "huggingface"}


@pytest.mark.parametrize(
    ("factor", "given", "a"),
    [
        (16.0, {}, 1.277259),  # the paper's s = 16 and 32
        (32.0, {}, 1.346574),
        (1.0, {}, 1.0),
        (0.5, {}, 1.0),
        (40.0, {}, 1.368888),
        (40.0, {"attention_factor": 1.0}, 1.0),
        (40.0, {"attention_factor": 1.1, "mscale": 0.707, "mscale_all_dim": 0.707}, 1.1),
        (40.0, {"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),  # DeepSeek V2
        (40.0, {"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),  # DeepSeek V3
        (40.0, {"mscale": 1.0, "mscale_all_dim": 0.707}, 1.085726),
        (40.0, {"mscale": 0.707, "mscale_all_dim": 0.0}, 1.368888),  # where implementations part
        (40.0, {"mscale": 0.707, "mscale_all_dim": 0.0, "reading": "deepseek"}, 1.260804),
        (40.0, {"mscale": 0.707}, 1.368888),
        (40.0, {"mscale": 0.707, "reading": "deepseek"}, 1.260804),
        (40.0, {"mscale_all_dim": 0.707}, 1.368888),
        (40.0, {"mscale_all_dim": 0.707, "reading": "deepseek"}, 1.085726),
    ],
)
def test_yarn_attention_factor(factor, given, a):
    """Order of precedence in Hugging Face and vLLM: attention_factor, then both mscales, then 0.1 ln s +
    1.
    """
    same(
        np.float64(module("yarn").yarn_gain(4096, L=4096, factor=factor, **ABSENT | given)),
        np.float64(a),
        1e-6,
    )


@pytest.mark.parametrize(("m", "times"), [(1.0, 1.873854), (0.707, 1.589626), (None, 1.0), (0.0, 1.0)])
def test_deepseek_softmax_scale(m, times):
    """DeepSeek V3 and V2, modeling_deepseek.py: softmax_scale = D^-0.5 mscale^2, D = 192 channels turned
    and not.
    """
    encoding = Config(pe=(("yarn", {"factor": 40.0, "mscale_all_dim": m}),), C=192, H=1, R=64).encoding(0)
    same(np.float64(encoding.scale(192)), np.float64(192**-0.5 * times), 1e-6)


def test_the_softmax_scale_of_options_reaches_attention():
    """Every logit, also of channels that do not turn and ungained, and only there is a gain: the loop with
    its own scale.
    """
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, 7, 6)) for _ in range(3))
    given = {"factor": 40.0, "original": 64, "base": 10.0, "mscale": 1.0, "mscale_all_dim": 0.707}
    got = peref.attention("yarn", q, k, v, rotary_dim=4, **given)
    _, gain, _ = witness("yarn", "rotate", R=4, L=7, **given)({}, range(7), 7)
    a = gain[0][0]
    turned = {}
    for letter, x in (("q", q), ("k", k)):
        turned[letter] = peref.rotate("yarn", x, x, rotary_dim=4, **given)[0][0]
        same(turned[letter][..., 4:], x[0, ..., 4:], 0)
        same((turned[letter][..., :4] ** 2).sum(-1), a**2 * (x[0, ..., :4] ** 2).sum(-1), 1e-14)
    scale = 6**-0.5 * (0.1 * 0.707 * math.log(40) + 1) ** 2
    same(
        got[0],
        np.array(attention_loop.attend(turned["q"].tolist(), turned["k"].tolist(), v[0].tolist(), scale)),
        1e-13,
    )
    assert (
        abs(
            got
            - peref.attention(
                "yarn", q, k, v, rotary_dim=4, **given | {"mscale_all_dim": None, "attention_factor": a}
            )
        ).max()
        > 1e-3
    )


def test_the_softmax_scale_of_options_decides_where_w_q_starts_and_how_it_learns():
    """W_q starts smaller and learns slower by what the scale is larger."""
    plain, sharp = (config("yarn", factor=40.0, mscale_all_dim=m) for m in (None, 1.0))
    times = (0.1 * math.log(40) + 1) ** 2
    a, b = (model.init(cfg, 5, np.float64) for cfg in (plain, sharp))
    same(b["0.q.weight"] * times, a["0.q.weight"], 1e-15)
    same(b["0.k.weight"], a["0.k.weight"], 0)
    assert model.step_sizes(plain) == {}
    sizes = model.step_sizes(sharp)
    assert set(sizes) == {f"{layer}.q.{kind}" for layer in (0, 1) for kind in ("weight", "bias")}
    same(np.array(list(sizes.values())), np.full(4, 1 / times), 1e-15)


# ---------------------------------------------------------------- LongRoPE


def test_longrope_switches_strictly_above_l():
    """n = L takes the short list, L + 1 the long one (Hugging Face: seq_len >
    original_max_position_embeddings).
    """
    lists = {"short_factor": (1.0, 1.1), "long_factor": (1.5, 3.0)}
    for n, divisors in ((1, (1, 1.1)), (4096, (1, 1.1)), (4097, (1.5, 3.0)), (10**6, (1.5, 3.0))):
        same(ratios("longrope", 4, n=n, **lists), 1 / np.array(divisors), 1e-15)


def test_longrope_without_lists():
    """Short texts are RoPE's, long ones have YaRN's frequencies; the gain is LongRoPE's for both."""
    same(ratios("longrope", 128, n=4096, factor=16.0), np.ones(64), 0)
    same(frequencies("longrope", 128, n=4097, factor=16.0), frequencies("yarn", 128, factor=16.0), 1e-15)


@pytest.mark.parametrize(
    ("n", "given", "a"),
    [
        (4096, {"factor": 16.0}, 1.154701),
        (4097, {"factor": 16.0}, 1.154701),
        (4097, {"factor": 32.0}, 1.190238),  # Phi-3-mini-128k
        (4097, {"factor": 1.0}, 1.0),
        (4097, {"factor": 0.5}, 1.0),
        (4097, {"factor": 32.0, "attention_factor": 1.243163}, 1.243163),
        (4096, {"factor": 32.0, "long_mscale": 1.3}, 1.190238),
        (4097, {"factor": 32.0, "long_mscale": 1.3, "attention_factor": 1.2}, 1.3),
        (4096, {"factor": 32.0, "short_mscale": 1.1, "attention_factor": 1.2}, 1.1),
    ],
)
def test_longrope_attention_factor(n, given, a):
    """sqrt(1 + ln s / ln 4096), for both lists, unless said: 1.1547005 for s = 16."""
    given = {"attention_factor": None, "short_mscale": None, "long_mscale": None} | given
    same(np.float64(module("longrope").longrope_gain(n, L=4096, **given)), np.float64(a), 1e-6)


@pytest.mark.parametrize("given", [{}, {"start_tokens": 3}])
@pytest.mark.parametrize("n", [16, 17])
def test_longrope_lists_are_the_loop(n, given):
    """Divisors that are all different, at any positions."""
    lists = {"short_factor": (1.0, 1.25, 1.5), "long_factor": (1.0, 2.5, 6.0)}
    cfg = Config(pe=(("longrope", lists | given),), L=16, C=6, H=1)
    for i in (
        np.arange(7),
        np.array([5, 0, 3, 3, 11, 2, 1048575]),
        np.array([0.0, 0.5, -1.25, 2.75, 3.0, 14.5, 7.0]),
    ):
        want = witness("longrope", "rotate", R=6, L=16, **lists, **given)({}, i.tolist(), n)
        same(cfg.encoding(0).rotate({}, i, n), tuple(map(np.array, want)), 1e-14)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"long_factor": (1.0, 2.0, 3.0)},
            "longrope: long_factor is 1.0,2.0,3.0; expected 2 numbers above 0, one for each pair of channels",
        ),
        ({"short_factor": (1.0, 0.0)}, "longrope: short_factor is 1.0,0.0; expected 2 numbers above 0"),
        ({"long_factor": (1.0, -2.0)}, "longrope: long_factor is 1.0,-2.0; expected 2 numbers above 0"),
    ],
)
def test_longrope_lists_that_do_not_fit(given, words):
    """Both are looked at whichever is used, with the length that is expected."""
    cfg = config("longrope", **given)
    with pytest.raises(Misuse, match=words):
        model.logits(cfg, model.init(cfg), tokens(1, 3))


def test_longrope_start_tokens_are_rope_s():
    """Tokens 0, 1, 2 as without scaling and gain, those from 3 on with both; shifting then is no symmetry
    any more, and is one without them.
    """
    cfg = config("longrope", L=5, start_tokens=3)
    p, x = weights(cfg), tokens(2, 7)
    angle, gain, _ = cfg.encoding(0).rotate({}, np.arange(7), 7)
    same(angle[:3], get("rope").rotate({}, np.arange(3), 7, R=4)[0], 0)
    same(gain[:3], np.ones((3, 2)), 0)
    assert (gain[3:] > 1).all()
    assert abs(model.logits(cfg, p, x, positions=5 + np.arange(7)) - model.logits(cfg, p, x)).max() > 1e-3
    cfg = config("longrope", L=5)
    same(model.logits(cfg, p, x, positions=5 + np.arange(7)), model.logits(cfg, p, x), 1e-10)


# ---------------------------------------------------------------- Llama 3


def test_llama_3_1_ratios():
    """Factor 8, 1, 4, 8192, base 500000, 128 channels: unchanged up to pair 28, six between, an eighth
    from 35 on.
    """
    r = ratios("llama3", 128, 5e5, original=8192, L=131072)
    same(r[:29], np.ones(29), 0)
    same(r[29:35], np.array([0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211]), 1e-6)
    same(r[35:], np.full(29, 0.125), 0)


def test_llama_3_2_ratios():
    """Factor 32 and 64 channels: pairs 15, 16, 17 between."""
    r = ratios("llama3", 64, 5e5, original=8192, factor=32.0)
    same(r[14:19], np.array([1, 0.605573, 0.303743, 0.103448, 1 / 32]), 1e-5)


def test_llama_3_is_the_paper_s_ramp():
    """YaRN's Definition 2 with alpha 1 and beta 4."""
    paper = frequencies("yarn", 128, 5e5, L=8192, factor=8.0, ramp="paper", beta_slow=1.0, beta_fast=4.0)
    same(frequencies("llama3", 128, 5e5, L=8192), paper, 1e-15)


# ---------------------------------------------------------------- p-RoPE


@pytest.mark.parametrize(
    ("R", "fraction", "k"),
    [(16, 0.25, 2), (64, 0.3, 9), (512, 0.25, 64), (64, 0.75, 24), (64, 0.0, 0), (64, 1.0, 32)],
)
def test_p_rope_turns_the_first_pairs(R, fraction, k):
    """int(p head_dim // 2) of them, with the exponents of the whole width; 64 of Gemma 4's 512 channels
    (Hugging Face's proportional).
    """
    w = frequencies("p_rope", R, fraction=fraction)
    same(w, np.where(np.arange(R // 2) < k, ladder(np, R, 10000.0), 0), 0)
    same(frequencies("p_rope", R, fraction=fraction, factor=4.0), w / 4, 0, empty=False)


def test_p_rope_is_not_partial_rope():
    """A quarter of 16 channels: proportional pairs (0, 8), (1, 9) at exponents of 16; partial pairs (0,
    2), (1, 3) at exponents of 4.
    """
    x = np.eye(16)[None, None]
    x = np.broadcast_to(x, (1, 1, 16, 16)).copy()
    i = np.full(16, 3.0)
    moved = lambda y: {n for n in range(16) if abs(y[0, 0, n, n] - 1) > 1e-9}
    proportional = peref.rotate("p_rope", x, x, positions=i, fraction=0.25)[0]
    partial = peref.rotate("rope", x, x, positions=i, rotary_dim=4)[0]
    assert (moved(proportional), moved(partial)) == ({0, 1, 8, 9}, {0, 1, 2, 3})
    same(
        proportional[0, 0, 1, [1, 9]],
        np.array([math.cos(3 * 10000 ** (-2 / 16)), math.sin(3 * 10000 ** (-2 / 16))]),
        1e-14,
    )
    same(
        partial[0, 0, 1, [1, 3]],
        np.array([math.cos(3 * 10000 ** (-2 / 4)), math.sin(3 * 10000 ** (-2 / 4))]),
        1e-14,
    )
    with pytest.raises(Misuse, match="rotary width is 19; expected an even number"):  # int(64 * 0.3)
        Config(pe=(("rope", {}),), C=64, H=1, R=19)


def test_p_rope_between_none_and_rope():
    """p = 0 is no position, p = 1 is RoPE."""
    x, given = tokens(2, 7), dict(weights(config("rope")))
    for name, fraction in (("none", 0.0), ("rope", 1.0)):
        same(
            model.logits(config("p_rope", fraction=fraction), given, x),
            model.logits(config(name), given, x),
            1e-13,
        )


# ---------------------------------------------------------------- learned frequencies


def test_learned_frequencies_start_at_the_ladder():
    """One set in every layer, float64 exact; the model is RoPE's at first, and W_q's neighbours start as
    they do without.
    """
    cfg, plain = config("rope", learned=True, base=500.0), config("rope", base=500.0)
    p = model.init(cfg, 3, np.float64)
    assert [(name, a.shape) for name, a in p.items() if ".pe." in name] == [
        ("0.pe.frequency", (2,)),
        ("1.pe.frequency", (2,)),
    ]
    same(p["1.pe.frequency"], ladder(np, 4, 500.0), 0)
    rest = {name: a for name, a in p.items() if ".pe." not in name}
    same(rest, model.init(plain, 3, np.float64), 0)
    same(model.logits(cfg, p, tokens(2, 7)), model.logits(plain, rest, tokens(2, 7)), 0)


def test_learned_frequencies_learn_in_proportion_to_the_length():
    """A step moves the last angle of a training sequence by about the rate. They do not decay."""
    cfg = config("rope", learned=True, L=50)
    assert model.step_sizes(cfg) == {"0.pe.frequency": 1 / 50, "1.pe.frequency": 1 / 50}
    assert model.step_sizes(config("rope")) == {}
    model.check(cfg, model.init(cfg))
    with pytest.raises(Misuse, match=r"no 0\.pe\.frequency"):
        model.check(cfg, model.init(config("rope")))


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize(
    "positions", [None, np.array([5, 0, 3, 3, 11, 2, 15]), np.stack([np.arange(7), 4 + np.arange(7)])]
)
def test_gradient_of_learned_frequencies(first, positions):
    """To 1e-7 in float64, each one by itself, also for a second chunk, whose keys in the cache are
    constants.
    """
    cfg, x = config("rope", learned=True), tokens(2, 7)
    p, names = weights(cfg), ["0.pe.frequency", "1.pe.frequency"]
    of = lambda cut: None if positions is None else positions[..., cut]
    memory = model.cache(cfg, 16)
    if first:
        memory = model.decode(cfg, p, x[:, :first], memory, positions=of(slice(first)))[1]

    def function(*arrays):
        return model.decode(
            cfg,
            p | dict(zip(names, arrays, strict=True)),
            x[:, first:],
            memory,
            positions=of(slice(first, None)),
        )[0]

    gradient(function, [p[name] for name in names], elementwise=True)


def test_learned_frequencies_decode_pad_and_pack():
    """Pieces give the rows of the whole; padding and documents equal the documents alone, in values and
    gradients.
    """
    cfg, x = config("rope", learned=True), tokens(2, 9)
    p = weights(cfg)
    seg = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    whole, memory, rows = model.logits(cfg, p, x, seg=seg), model.cache(cfg), []
    for a, b in pairwise((0, 2, 5, 9)):
        y, memory = model.decode(cfg, p, x[:, a:b], memory, seg=seg[:, a:b])
        rows.append(y)
    same(np.concatenate(rows, 1), whole, 1e-10)
    same(whole[:1, 3:], model.logits(cfg, p, x[:1, 3:]), 1e-10)

    def found(x, **place):
        tape = Tape()
        leaves = tape.watch(p)
        y, _ = model.loss(cfg, leaves, x, np.where(place["seg"] == 0, -1, x) if place else x, **place)
        got = tape.gradients(y, np.float64(0.7))
        return {name: got[leaf] for name, leaf in leaves.items()}

    same(found(x[:1], seg=seg[:1]), found(x[:1, 3:]), 1e-10)


def test_learned_frequencies_in_float32_and_on_the_fake_cupy(cupy):
    """Angles are float64 all the same; the gradient has the parameter's dtype; the other library gives the
    same.
    """
    cfg, x = config("rope", learned=True), tokens(2, 7)
    wide = weights(cfg)
    p = frozen(wide, np.float32)
    tape = Tape()
    leaves = tape.watch(p)
    angle, _, _ = cfg.encoding(0).rotate(model.of_encoding(cfg, leaves, 0), np.arange(7), 7)
    assert (angle.dtype, leaves["0.pe.frequency"].dtype) == (np.float64, np.float32)
    y, _ = model.loss(cfg, leaves, x, x)
    got = tape.gradients(y, np.float32(1))
    assert got[leaves["0.pe.frequency"]].dtype == np.float32

    be = replace(
        model.PLAIN,
        place=lambda thing: thing.moved(cupy.asarray) if isinstance(thing, model.At) else cupy.asarray(thing),
    )
    both = []
    for backend, given, move in (
        (model.PLAIN, wide, lambda a: a),
        (be, {n: cupy.asarray(a) for n, a in wide.items()}, cupy.asarray),
    ):
        tape = Tape()
        leaves = tape.watch(given)
        y, _ = model.loss(cfg, leaves, x, x, be=backend)
        g = tape.gradients(y, move(np.float64(0.7)))
        both.append({n: g[leaf] for n, leaf in leaves.items()})
    same(both[1], {n: cupy.asarray(a) for n, a in both[0].items()}, 1e-12)


def test_learned_frequencies_go_by_name_in_one_call():
    """peref.rotate takes them as params, and pulls their gradient."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((1, 2, 5, 4)), rng.standard_normal((1, 2, 5, 4))
    w = np.array([1.0, 0.25])
    (got, _), pull = peref.vjp(peref.rotate, "rope", q, k, learned=True, params={"frequency": w})
    same(got[..., 0, :], q[..., 0, :], 0)
    dq, _, dp = pull(np.ones_like(q), np.zeros_like(k))
    assert (dq.shape, dp["frequency"].shape) == (q.shape, (2,))
    with pytest.raises(Misuse, match=r"parameters given to rope: none; expected: frequency \[2\]"):
        peref.rotate("rope", q, k, learned=True, params={})


# ---------------------------------------------------------------- on the fake CuPy, whatever the options


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(
            ("ntk", {"form": "kexue"}),
            ("ntk", {"form": "mixed"}),
            ("dynamic_ntk", {"original": 5, "factor": 2.0}),
        ),
        *(
            ("yarn", {"ramp": "paper"}),
            ("yarn", {"truncate": False, "mscale_all_dim": 1.0}),
            ("p_rope", {"factor": 2.0}),
        ),
        *(
            ("yarn", {"form": "dynamic", "original": 5, "factor": 1.0}),
            ("kerple_log", {"exponent": "learned"}),
            ("learned", {"unit": True}),
        ),
        *(
            ("learned_bias", {"max_distance": 3}),
            ("longrope", {"short_factor": (1.0, 1.5)}),
            ("longrope", {"original": 5, "start_tokens": 3}),
            ("longrope", {"original": 5}),
        ),
    ],
)
def test_options_on_the_fake_cupy(name, given, cupy):
    """The same numbers in the other library, with gains and lists; test_encodings has the defaults."""
    cfg, x = config(name, **given), tokens(2, 7)
    p = weights(cfg)
    be = replace(
        model.PLAIN,
        place=lambda thing: thing.moved(cupy.asarray) if isinstance(thing, model.At) else cupy.asarray(thing),
    )
    there = model.logits(cfg, {n: cupy.asarray(a) for n, a in p.items()}, x, be=be)
    same(there, cupy.asarray(model.logits(cfg, p, x)), 1e-12)
