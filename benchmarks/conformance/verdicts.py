"""The findings of docs/verdicts.md, each computed again without peref: plain Python's numbers beside the
library's.

    python benchmarks/conformance/verdicts.py [NAME ...]

A name is a function below. What a library gives is printed as "got", what its source or the paper says as
"want". Nothing here judges: the verdicts, and why, are in docs/verdicts.md.
"""

import math
import os
import sys


def say(what, got, want):
    print(f"  {what}\n      got   {got}\n      want  {want}")


def litgpt_yarn():
    """Which pairs YaRN divides: R 128, base 10000, factor 4, trained for 4096 tokens."""
    import torch
    from litgpt.model import build_rope_cache

    known = {"factor": 4.0, "beta_fast": 32, "beta_slow": 1}
    cos, sin = build_rope_cache(2, 128, extra_config=known | {"original_max_seq_len": 4096})
    plain = [10000.0 ** (-n / 64) for n in range(64)]
    ratio = [float(torch.atan2(sin[1, n], cos[1, n])) / plain[n] for n in range(64)]
    low, high = (128 * math.log(4096 / (2 * math.pi * turns)) / (2 * math.log(10000)) for turns in (32, 1))
    low, high = math.floor(low), math.ceil(high)
    for n in (0, 10, 33, 46, 63):
        turns, slow = 4096 * plain[n] / (2 * math.pi), min(max((n - low) / (high - low), 0.0), 1.0)
        want = slow / 4 + 1 - slow
        say(
            f"pair {n}, {turns:.3g} turns in 4096 tokens: its frequency over the unscaled one",
            f"{ratio[n]:.4f}",
            f"{want:.4f}",
        )
    say(
        "magnitude of cosine and sine",
        f"{float(torch.hypot(cos[1, 0], sin[1, 0])):.6f}",
        f"{0.1 * math.log(4) + 1:.6f}",
    )


def equinox_base():
    """Two modules of one width and two bases, in one process."""
    import equinox as eqx
    import numpy as np

    x = np.ones((4, 8), np.float32)
    for base in (10000.0, 500000.0):
        y = eqx.nn.RotaryPositionalEmbedding(8, base)(x)
        angle = base ** (-2 / 8)
        say(
            f"base {base:g}: token 1, channel 1 of ones",
            f"{float(y[1, 1]):.7f}",
            f"{math.cos(angle) - math.sin(angle):.7f}",
        )


def two_channels():
    """One pair of channels: a rotation, and tensor2tensor's sinusoids, whose one frequency is 1."""
    import torch
    from diffusers.models.embeddings import get_timestep_embedding
    from rotary_embedding_torch import RotaryEmbedding
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
    from x_transformers.x_transformers import RotaryEmbedding as Other

    for what, made, want in (
        (
            "rotary-embedding-torch, RotaryEmbedding(2): its frequencies",
            lambda: RotaryEmbedding(2).freqs.tolist(),
            [1.0],
        ),
        ("x-transformers, RotaryEmbedding(2): its frequencies", lambda: Other(2).inv_freq.tolist(), [1.0]),
        (
            "transformers, M2M100's rows of two channels: row 1",
            lambda: M2M100SinusoidalPositionalEmbedding.get_embedding(2, 2)[1].tolist(),
            None,
        ),
        (
            "diffusers, get_timestep_embedding of two channels: row 1",
            lambda: get_timestep_embedding(torch.arange(2), 2)[1].tolist(),
            None,
        ),
    ):
        try:
            got = made()
        except ZeroDivisionError as error:
            got = f"ZeroDivisionError: {error}"
        say(what, got, want or [math.sin(1), math.cos(1)])


def rotary_bfloat16():
    """A bfloat16 call, and a float32 call of the same module after it."""
    import torch
    from rotary_embedding_torch import RotaryEmbedding

    x = torch.ones(1, 1, 1024, 64)
    low = RotaryEmbedding(64).rotate_queries_or_keys(x.bfloat16())[0, 0].float()
    for t in (256, 257, 1001):
        say(
            f"bfloat16: token {t}, channel 0 of ones",
            f"{float(low[t, 0]):.4f}",
            f"{math.cos(t) - math.sin(t):.4f}",
        )
    made = RotaryEmbedding(64)
    made.rotate_queries_or_keys(x.bfloat16())
    say(
        "float32 by the same module afterwards: token 257, channel 0",
        f"{float(made.rotate_queries_or_keys(x)[0, 0, 257, 0]):.4f}",
        f"{math.cos(257) - math.sin(257):.4f}",
    )


def rotary_axial():
    """get_axial_freqs with offsets, after a call without, and plain rotation after a call with."""
    import torch
    from rotary_embedding_torch import RotaryEmbedding

    made = RotaryEmbedding(16)
    made.get_axial_freqs(4, 4)
    say(
        "first row, first column, offsets (10, 10), second call",
        float(made.get_axial_freqs(4, 4, offsets=(10, 10))[0, 0, 0]),
        10.0,
    )
    made = RotaryEmbedding(16)
    made.get_axial_freqs(4, 4, offsets=(10, 10))
    say(
        "token 0 of ones turned by the same module afterwards",
        float(made.rotate_queries_or_keys(torch.ones(1, 1, 4, 16))[0, 0, 0, 0]),
        1.0,
    )


def rotary_xpos():
    """The last query against all keys: at once, and with cached keys."""
    import torch
    from rotary_embedding_torch import RotaryEmbedding

    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 8, 8)
    whole = RotaryEmbedding(8, use_xpos=True)
    a, b = whole.rotate_queries_and_keys(q, k)
    c, d = RotaryEmbedding(8, use_xpos=True).rotate_queries_with_cached_keys(q[:, :, -1:], k)
    say(
        "logits of query 7 for keys 0 to 2",
        (c @ d.mT)[0, 0, 0, :3].tolist(),
        (a @ b.mT)[0, 0, 7, :3].tolist(),
    )


def diffusers_ntk():
    """The last of 64 pairs with a factor of 8."""
    import numpy as np
    import torch
    from diffusers.models.embeddings import get_1d_rotary_pos_embed

    angle = torch.angle(
        get_1d_rotary_pos_embed(128, np.array([1]), ntk_factor=8.0, freqs_dtype=torch.float64)
    )[0]
    say("base that the frequencies have", f"{float(angle[1]) ** -64:.2f}", f"{10000 * 8 ** (128 / 126):.2f}")
    say("last frequency over the unscaled one", f"{float(angle[-1]) / 10000 ** (-126 / 128):.6f}", "0.125000")


def transformers_mpt():
    """MPT with alibi_bias_max 8 and 4."""
    import torch
    from transformers import MptConfig, MptModel

    found = []
    for most in (8, 4):
        torch.manual_seed(0)
        config = MptConfig(
            d_model=16,
            n_heads=4,
            n_layers=1,
            max_seq_len=16,
            vocab_size=10,
            attn_config={"alibi_bias_max": most},
        )
        found.append(MptModel(config).eval()(torch.arange(8)[None]).last_hidden_state)
    say(
        "largest difference of the outputs",
        float((found[0] - found[1]).detach().abs().max()),
        "more than 0: the slopes are 1/4 ... 1/256, or 1/2 ... 1/16",
    )


def transformers_truncate():
    """gpt-oss's frequencies (truncate false) from rope_parameters by layer type, as Gemma 3 has them."""
    from transformers import Gemma3TextConfig, LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = {
        "rope_type": "yarn",
        "factor": 32.0,
        "rope_theta": 150000.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    }
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "head_dim": 64, "max_position_embeddings": 131072}
    flat, _ = ROPE_INIT_FUNCTIONS["yarn"](LlamaConfig(rope_parameters=given, **sizes))
    both = {"full_attention": given, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    nested, _ = ROPE_INIT_FUNCTIONS["yarn"](
        Gemma3TextConfig(rope_parameters=both, **sizes), layer_type="full_attention"
    )
    low, high = (64 * math.log(4096 / (turns * 2 * math.pi)) / (2 * math.log(150000)) for turns in (32, 1))
    ramp, w = (17 - low) / (high - low), 150000 ** (-34 / 64)
    say("frequency of pair 17, nested", float(nested[17]), w * ((1 - ramp) + ramp / 32))
    say("frequency of pair 17, flat", float(flat[17]), w * ((1 - ramp) + ramp / 32))


def transformers_patches():
    """Numbers of time: text of 2, four frames of 2 by 2 tokens, 0.5 s apart in Qwen2.5-VL, and text of 2."""
    from types import MethodType, SimpleNamespace

    import torch
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    kinds, grid = torch.tensor([[0, 0, *[2] * 16, 0, 0]]), torch.tensor([[4, 4, 4]])
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    for model, given in ((Qwen2VLModel, {}), (Qwen2_5_VLModel, {"second_per_grid_ts": torch.tensor([0.5])})):
        it = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
        it.get_vision_position_ids = MethodType(model.get_vision_position_ids, it)
        ids, delta = model.get_rope_index(it, torch.zeros_like(kinds), kinds, None, grid, **given)
        want = [0, 1, *[2 + frame for frame in range(4) for _ in range(4)], 6, 7]
        say(f"{model.__name__}", ids[0, 0].tolist(), want)
        say("where decoding goes on", int(delta) + len(want), 8)


def transformers_dynamic():
    """The base of dynamic NTK, factor 2, trained for 2048, as one module sees texts of different length."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    given = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = LlamaConfig(
        hidden_size=512, num_attention_heads=4, max_position_embeddings=2048, rope_parameters=given
    )
    made = LlamaRotaryEmbedding(config)
    for n in (2048, 2049, 4096, 3000, 2048, 2047):
        made(torch.zeros(1), torch.arange(n)[None])
        want = 10000 * (2 * max(n, 2048) / 2048 - 1) ** (128 / 126)
        say(f"after a text of {n}", f"{float(made.inv_freq[1]) ** -64:.1f}", f"{want:.1f}")


def x_transformers_bfloat16():
    """A module cast to bfloat16."""
    import torch
    from x_transformers.x_transformers import DynamicPositionBias, RotaryEmbedding

    angle, _ = RotaryEmbedding(64).bfloat16()(torch.arange(1024))
    for i in (256, 257, 1001):
        say(f"angle of pair 0 at position {i}", float(angle[0, i, 0]), float(i))
    try:
        got = DynamicPositionBias(32, heads=4, depth=2).bfloat16()(4, 4).dtype
    except RuntimeError as error:
        got = f"RuntimeError: {error}"
    say("DynamicPositionBias", got, "torch.bfloat16")


def x_transformers_padding():
    """Scaled sinusoids of a text behind two tokens of padding, beside another: its angles of pair 0."""
    import torch
    from x_transformers.x_transformers import ScaledSinusoidalEmbedding

    made = ScaledSinusoidalEmbedding(2)
    try:
        rows = made(torch.zeros(2, 4, 2), seq_start_pos=torch.tensor([0, 2])) / made.scale
        got = torch.atan2(rows[1, :, 0], rows[1, :, 1]).tolist()
    except RuntimeError as error:
        got = f"RuntimeError: {error}"
    say("tokens 0 to 3", got, [-2.0, -1.0, 0.0, 1.0])


def x_transformers_forgetting():
    """The gate between a query and the key before it, from sums of log gates in bfloat16."""
    import torch
    from x_transformers.x_transformers import DataDependentAlibi

    torch.manual_seed(0)
    made, x = DataDependentAlibi(16, 4), torch.randn(1, 512, 16)
    with torch.no_grad():
        want, got = made(x)[0, :, 511, 510], made.bfloat16()(x.bfloat16())[0, :, 511, 510].float()
    say(
        "term of query 511 and key 510, four heads",
        [round(v, 5) for v in got.tolist()],
        [round(v, 5) for v in want.tolist()],
    )


def x_transformers_pope():
    """What a phase above 0 becomes, and its gradient; and the scale of logits that are 2D wide, D 4."""
    import torch
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import PolarEmbedding, apply_polar_pos_emb

    made = PolarEmbedding(4, 1)
    made.learned_bias.data[:] = torch.tensor([0.5, -0.5, 7.0, -7.0])
    freqs, bias = made(torch.arange(2))
    bias.sum().backward()
    say("phases 0.5, -0.5, 7, -7", [round(v, 5) for v in bias.flatten().tolist()], [0.5, -0.5, 7.0, -7.0])
    say("their gradient", made.learned_bias.grad.flatten().tolist(), [1.0] * 4)
    q = apply_polar_pos_emb(torch.zeros(1, 1, 2, 4), freqs)
    k = apply_polar_pos_emb(torch.zeros(1, 1, 2, 4), freqs + torch.zeros(1, 1, 1, 4))
    _, found = Attend(heads=1)(q, k, torch.ones(1, 1, 2, 4))
    turned = [math.cos(10000 ** (-c / 4)) for c in range(4)]
    by = lambda width: math.log(2) ** 2 * sum(turned) / math.sqrt(width)
    say("logit of query 1 and key 0, with D", float(found.pre_softmax_attn[0, 0, 1, 0]), by(4))
    say("logit of query 1 and key 0, with 2D", float(found.pre_softmax_attn[0, 0, 1, 0]), by(8))


def timm_sincos():
    """Eight channels of row 1, column 2 in an image of 2 by 3."""
    from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed

    w = [1.0, 0.01]
    one = lambda a: [math.sin(a * v) for v in w] + [math.cos(a * v) for v in w]
    for interleaved in (False, True):
        rows = build_sincos2d_pos_embed([2, 3], 8, interleave_sin_cos=interleaved)
        words = f"interleave_sin_cos={interleaved}; want: row, then column, each sines and then cosines"
        say(words, [round(v, 5) for v in rows[5].tolist()], [round(v, 5) for v in one(1) + one(2)])


def transformers_kimi_gate():
    """The log decay of KDA where the gate is nearly shut, A 1, float32."""
    import torch
    from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearConfig, KimiLinearForgetGate

    gate = KimiLinearForgetGate(KimiLinearConfig(hidden_size=1, linear_num_heads=1, linear_head_dim=1))
    for value in (gate.A_log, gate.f_a_proj.weight, gate.f_b_proj.weight):
        torch.nn.init.zeros_(value)
    for x in (-5.0, -15.0, -17.0, -20.0):
        torch.nn.init.constant_(gate.dt_bias, x)
        say(f"gate {x}", float(gate(torch.zeros(1, 1, 1)).detach()), -math.log1p(math.exp(x)))


FINDINGS = [f for name, f in list(globals().items()) if callable(f) and name not in ("say",)]


def main():
    """Those that are named, else all; one whose library is not here is told."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for finding in FINDINGS:
        if not sys.argv[1:] or finding.__name__ in sys.argv[1:]:
            print(f"{finding.__name__}: {finding.__doc__}")
            try:
                finding()
            except ModuleNotFoundError as error:
                print(f"  not run: {error}")


if __name__ == "__main__":
    main()
