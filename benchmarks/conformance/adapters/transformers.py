"""Hugging Face transformers: the rotations of modeling_rope_utils through the model classes, and the biases
and sinusoids of several models.

layout half          GPT-NeoX's apply_rotary_pos_emb, which takes a partial width
layout interleaved   GLM's
cosines and sines    LlamaRotaryEmbedding with the rope_parameters of the case; GPT-NeoX's frequencies where
only a part turns
dynamic, longrope    the function of ROPE_INIT_FUNCTIONS with the n of the case as its seq_len; their state
                     over calls is not asked for here
mrope                Qwen2-VL's (chunked) and Qwen3-VL's (interleaved), or Qwen3.5's where a part turns
YaRN's softmax scale DeepSeek-V3's yarn_apply_mscale: Llama's class has none
ALiBi                MPT's tensor; T5's bias, M2M100's and Marian's sinusoids, attention of Llama's eager path
                     (its softmax is float32)
DeBERTa              v2's DisentangledSelfAttention, asked for what it adds to the logits
gated_deltanet, kda  the layers of Qwen3.5 and of Kimi Linear; Mamba-2 the mixer of its model. All without a
                     cache, so a state that is handed in is not asked for
"""

import sys

import torch
from through_torch import adapter, at_queries, counts, put, put_mamba, seen
from transformers import logging
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Config,
    DisentangledSelfAttention,
    make_log_bucket_position,
)
from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as turn_adjacent
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXConfig, GPTNeoXRotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as turn_halves
from transformers.models.llama.modeling_llama import (
    LlamaConfig,
    LlamaRotaryEmbedding,
    eager_attention_forward,
)
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.mamba.modeling_mamba import MambaConfig, MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Config, Mamba2Mixer
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding
from transformers.models.rwkv.modeling_rwkv import RwkvConfig, RwkvSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention, T5Config

fla = sys.modules.get("fla")
sys.modules["fla"] = None  # its kernels, which these layers take where it is installed, need a GPU
from transformers.models.kimi_linear.modeling_kimi_linear import (  # noqa: E402
    KimiLinearConfig,
    KimiLinearDeltaAttention,
)
from transformers.models.qwen3_5.modeling_qwen3_5 import (  # noqa: E402
    Qwen3_5GatedDeltaNet,
    Qwen3_5TextConfig,
    Qwen3_5TextRotaryEmbedding,
)

del sys.modules["fla"]
if fla:
    sys.modules["fla"] = fla

PACKAGES = ("transformers", "torch")
DTYPES = ("f32", "bf16")
logging.set_verbosity_error()  # of fields that no warning here is meant for


def compute(case, a):
    made = PARTS.get(case["encoding"])
    return made and made(case, a, case["options"], case["facts"])


def attention(case, a, q, k, bias=None, scale=None):
    """Llama's eager attention with an additive mask."""
    see, facts = seen(case, a), case["facts"]
    if not see.any(-1).all():
        return None  # a row that sees nothing is uniform there, on purpose
    hidden = torch.zeros(see.shape, dtype=q.dtype).masked_fill(~see, -torch.inf)
    group = torch.nn.Module()
    group.num_key_value_groups = facts["H"] // facts["G"]
    scale = facts["D"] ** -0.5 if scale is None else scale
    out, share = eager_attention_forward(
        group, q, k, a["v"], hidden if bias is None else hidden + bias, scale
    )
    return {"probabilities": share, "out": out.transpose(1, 2)}


# ---------------------------------------------------------------- rotations


def parameters(case, o, facts):
    """rope_parameters in the words of a config.json; None for what it has not."""
    L, known = o.get("original") or facts["L"], {"rope_theta": o["base"]}
    match case["encoding"]:
        case "rope" if not o["learned"]:
            return known | {"rope_type": "default"}
        case "pi" if o["form"] == "static":
            return known | {"rope_type": "linear", "factor": o["factor"]}
        case "dynamic_ntk" if o["form"] == "dynamic":
            return known | {"rope_type": "dynamic", "factor": o["factor"]}
        case "llama3":
            edges = {key: o[key] for key in ("factor", "low_freq_factor", "high_freq_factor")}
            return known | {"rope_type": "llama3", "original_max_position_embeddings": L, **edges}
        case "yarn" if (o["ramp"], o["reading"], o["form"], o["extrapolation_factor"]) == (
            "code",
            "huggingface",
            "static",
            1,
        ):
            given = {
                key: o[key]
                for key in (
                    "factor",
                    "beta_fast",
                    "beta_slow",
                    "truncate",
                    "attention_factor",
                    "mscale",
                    "mscale_all_dim",
                )
            }
            return known | {
                "rope_type": "yarn",
                "original_max_position_embeddings": L,
                **{k: v for k, v in given.items() if v is not None},
            }
        case "p_rope" if facts["R"] == facts["D"]:
            return known | {
                "rope_type": "proportional",
                "partial_rotary_factor": o["fraction"],
                "factor": o["factor"],
            }
        case "longrope" if not o["start_tokens"] and o["short_mscale"] is None and o["long_mscale"] is None:
            given = {
                "rope_type": "longrope",
                "original_max_position_embeddings": L,
                "factor": o["factor"],
                "attention_factor": o["attention_factor"],
            }
            factors = {
                "short_factor": o["short_factor"] or [1.0] * (facts["R"] // 2),
                "long_factor": o["long_factor"] or yarn_divisors(facts, o, L),
            }
            return known | given | factors
        case "mrope" if o["order"] != "alternate":
            return known | {"rope_type": "default", "mrope_section": list(sections(facts["R"] // 2, o))}
    return None


def yarn_divisors(facts, o, L):
    """What the case has for long texts where it has no factors of its own: the ratios by which YaRN
    divides, from its function here.
    """
    given = {
        "rope_type": "yarn",
        "rope_theta": o["base"],
        "factor": o["factor"],
        "original_max_position_embeddings": L,
    }
    config = LlamaConfig(
        hidden_size=facts["R"],
        num_attention_heads=1,
        head_dim=facts["R"],
        max_position_embeddings=L,
        rope_parameters=given,
    )
    plain = LlamaConfig(
        hidden_size=facts["R"],
        num_attention_heads=1,
        head_dim=facts["R"],
        rope_parameters={"rope_type": "default", "rope_theta": o["base"]},
    )
    return (
        LlamaRotaryEmbedding(plain).inv_freq.double() / LlamaRotaryEmbedding(config).inv_freq.double()
    ).tolist()


def sections(pairs, o):
    """Those of the case, else the shares that its catalogue has: 2:3:3 chunked, 6:5:5 interleaved, by
    largest remainder.
    """
    if o["sections"]:
        return o["sections"]
    ratio = (2, 3, 3) if o["order"] == "chunked" else (6, 5, 5)
    floors = [pairs * r // sum(ratio) for r in ratio]
    favoured = sorted(range(3), key=lambda n: -(pairs * ratio[n] % sum(ratio)))[: pairs - sum(floors)]
    return tuple(n + (k in favoured) for k, n in enumerate(floors))


def rotation(case, a, o, facts):
    given = parameters(case, o, facts)
    if given is None:
        return None
    part = facts["R"] != facts["D"]
    sectioned = case["encoding"] == "mrope" and o["order"] == "interleaved"
    parted = ("rope", "pi", "yarn", "llama3", "dynamic_ntk", "longrope")
    if part and not sectioned and case["encoding"] not in parted:
        return None
    sizes = {
        "hidden_size": facts["H"] * facts["D"],
        "num_attention_heads": facts["H"],
        # of "dynamic" it is the length trained for
        "max_position_embeddings": (given["rope_type"] == "dynamic" and o.get("original")) or facts["L"],
    }
    if part:
        given |= {"partial_rotary_factor": facts["R"] / facts["D"]}
    if part and sectioned:
        rotary = Qwen3_5TextRotaryEmbedding(
            Qwen3_5TextConfig(rope_parameters=given, head_dim=facts["D"], **sizes)
        )
    elif part:
        config = GPTNeoXConfig(rope_parameters=given, **sizes)
        rotary = GPTNeoXRotaryEmbedding(config)
    else:
        config = LlamaConfig(rope_parameters=given, head_dim=facts["D"], **sizes)
        kind = {
            ("mrope", "chunked"): Qwen2VLRotaryEmbedding,
            ("mrope", "interleaved"): Qwen3VLTextRotaryEmbedding,
        }
        rotary = kind.get((case["encoding"], o.get("order")), LlamaRotaryEmbedding)(config)
    if given["rope_type"] in ("dynamic", "longrope"):
        rotary.inv_freq, rotary.attention_scaling = ROPE_INIT_FUNCTIONS[given["rope_type"]](
            config, seq_len=facts["n"]
        )
        rotary.rope_type = "default"  # frequencies stay those of n
    i = a["positions"]
    real = a.get("q", torch.zeros(1, dtype=torch.float32))
    ids = i.reshape(-1, i.shape[-1])
    if case["encoding"] == "mrope":
        ids = i if i.ndim == 3 else ids.expand(3, *ids.shape)
    cos, sin = rotary(real, ids)
    if case["level"] == "table":
        half = cos.shape[-1] // 2
        shape = (*(i.shape[-2:] if i.ndim > 1 else i.shape), half)
        gain = torch.full(shape, float(rotary.attention_scaling))
        plain = {"cos": cos[..., :half].reshape(shape) / gain, "sin": sin[..., :half].reshape(shape) / gain}
        return plain | ({} if rotary.attention_scaling == 1 else {"gain_q": gain, "gain_k": gain})
    q, k = (turn_halves if facts["layout"] == "half" else turn_adjacent)(a["q"], a["k"], cos, sin)
    if case["level"] == "op":
        return {"q_rotated": q, "k_rotated": k}
    return attention(case, a, q, k, scale=yarn_apply_mscale(given, facts["D"] ** -0.5))


# ---------------------------------------------------------------- biases, rows, none


def alibi(case, a, o, facts):
    if (o["slopes"], o["directions"]) != ("fixed", "both") or not facts["causal"]:
        return None
    if case["level"] == "table":
        d = a["distances"]
        if not bool((d == torch.arange(len(d))).all()):
            return None
        return {"bias": build_mpt_alibi_tensor(facts["H"], len(d), o["max_bias"])[:, 0].flip(-1)}
    if not counts(case, a) or case["level"] == "op":
        return None  # it leaves out what is the same for a whole row; softmax does not see that
    bias = build_mpt_alibi_tensor(facts["H"], facts["T"], o["max_bias"]).to(a["q"].dtype)
    return attention(case, a, a["q"], a["k"], bias)


def t5(case, a, o, facts):
    words = {
        "relative_attention_num_buckets": o["buckets"],
        "relative_attention_max_distance": o["max_distance"],
        "is_decoder": facts["causal"],
    }
    config = T5Config(num_heads=facts["H"], d_kv=facts["D"], d_model=facts["H"] * facts["D"], **words)
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    put(layer.relative_attention_bias, "weight", a["param.table"])
    if case["level"] == "table":
        rows = layer._relative_position_bucket(
            -a["distances"], not facts["causal"], o["buckets"], o["max_distance"]
        )
        return {"bias": layer.relative_attention_bias(rows).T}
    if not counts(case, a) or o["divided"] != "not":
        return None
    bias = layer.compute_bias(facts["T"], facts["T"])
    return (
        at_queries(case, a, bias[0])
        if case["level"] == "op"
        else attention(case, a, a["q"], a["k"], bias, 1.0)
    )


def sinusoidal(case, a, o, facts):
    i = a["positions"]
    if o["learned"] or o["layout"] != "concatenated" or o["base"] != 10000 or int(i.max()) > 10000:
        return None
    if o["ladder"] == "endpoint":
        rows = M2M100SinusoidalPositionalEmbedding.get_embedding(int(i.max()) + 1, facts["C"])[i]
    else:
        made = MarianSinusoidalPositionalEmbedding(int(i.max()) + 1, facts["C"])
        rows = made.create_weight()[i]
    return {"rows": rows} if case["level"] == "table" else {"y": a["x"] + rows}


def none(case, a, o, facts):
    if o or "cycle" in facts:
        return None  # settings of a layer, which whole models have and this function has not
    return attention(case, a, a["q"], a["k"])


def rwkv4(case, a, o, facts):
    if "seg" in a:
        return None
    C = facts["C"]
    layer = RwkvSelfAttention(RwkvConfig(hidden_size=C, attention_hidden_size=C, num_hidden_layers=2))
    for name, role in (("key", "k"), ("value", "v"), ("receptance", "r")):
        put(getattr(layer, name), "weight", a[f"param.{role}.weight"])
        put(layer, f"time_mix_{name}", a[f"param.mix.{role}"][None, None])
    put(layer.output, "weight", a["param.o.weight"])
    put(layer, "time_decay", a["param.decay"])
    put(layer, "time_first", a["param.bonus"])
    return {"y": layer(a["x"])[0]}


def mamba(case, a, o, facts):
    if (o["discretisation"], o["norms"]) != ("euler", "none") or "seg" in a:
        return None
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    sizes = {
        "hidden_size": facts["C"],
        "state_size": o["state_size"],
        "expand": o["expand"],
        "conv_kernel": o["kernel"],
    }
    layer = MambaMixer(MambaConfig(**sizes, time_step_rank=p["down.weight"].shape[0]), layer_idx=0)
    put_mamba(layer, p)
    return {"y": layer(a["x"])}


# ---------------------------------------------------------------- the second catalogue


def deberta(case, a, o, facts):
    i = a["positions"]
    if i.ndim > 1 or i.is_floating_point():
        return None
    words = {"max_relative_positions": o["max_distance"], "position_buckets": o["buckets"]}
    H, width = facts["H"], facts["H"] * facts["D"]
    config = DebertaV2Config(
        hidden_size=width,
        num_attention_heads=H,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        hidden_dropout_prob=0.0,
        **words,
    )
    layer = DisentangledSelfAttention(config)
    put(layer.pos_key_proj, "weight", a["param.key.weight"])
    put(layer.pos_key_proj, "bias", torch.zeros(width, dtype=a["q"].dtype))
    put(layer.pos_query_proj, "weight", a["param.query.weight"])
    put(layer.pos_query_proj, "bias", a["param.query.bias"])
    apart = make_log_bucket_position(i[:, None] - i, o["buckets"], o["max_distance"])
    q, k = (x.repeat_interleave(H // x.shape[1], 1).flatten(0, 1) for x in (a["q"], a["k"]))
    term = layer.disentangled_attention_bias(q, k, apart, a["param.table"], 3).view(-1, H, *apart.shape)
    if case["level"] == "op":
        return {"term": torch.where(seen(case, a), term, 0)}
    return attention(case, a, a["q"], a["k"], term, (3 * facts["D"]) ** -0.5)


def layer_of_deltas(case, a, o, facts):
    """Gated DeltaNet or KDA with the parameters of the case, in the order in which the layers stack them."""
    kind, p = case["encoding"], {n.removeprefix("param."): x for n, x in a.items() if n.startswith("param.")}
    if (o["max_beta"], o["unit_eps"]) != (1.0, 1e-6) or "seg" in a:
        return None
    H, D = facts["H"], facts["D"]
    sizes = {
        "hidden_size": facts["C"],
        "linear_conv_kernel_dim": o["kernel"],
        "rms_norm_eps": o["eps"],
        "layer_types": ["linear_attention"],
        "num_hidden_layers": 1,
    }
    if kind == "gated_deltanet":
        sizes |= {"linear_num_key_heads": H, "linear_num_value_heads": H * o["value_heads"]}
        sizes |= {"linear_key_head_dim": D, "linear_value_head_dim": D * o["value_factor"]}
        layer = Qwen3_5GatedDeltaNet(Qwen3_5TextConfig(**sizes), 0)
        put(layer.in_proj_qkv, "weight", torch.cat([p[f"{r}.weight"] for r in "qkv"]))
        maps = {"in_proj_z": "z", "in_proj_b": "b", "in_proj_a": "a", "out_proj": "o", "norm": "norm"}
        put(layer, "A_log", p["A_log"])
        put(layer, "dt_bias", p["dt.bias"])
    else:
        layer = KimiLinearDeltaAttention(KimiLinearConfig(linear_num_heads=H, linear_head_dim=D, **sizes), 0)
        maps = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "b_proj": "b", "o_proj": "o", "o_norm": "norm"}
        maps |= {"g_a_proj": "g.down", "g_b_proj": "g.up"}
        maps |= {"forget_gate.f_a_proj": "f.down", "forget_gate.f_b_proj": "f.up"}
        put(layer.forget_gate, "A_log", p["A_log"].view(1, 1, -1, 1))
        put(layer.forget_gate, "dt_bias", p["dt.bias"])
    for its, mine in maps.items():
        put(layer.get_submodule(its), "weight", p[f"{mine}.weight"])
    put(layer.conv1d, "weight", torch.cat([p[f"{r}.conv"] for r in "qkv"])[:, None])
    return {"y": layer(a["x"])}


def mamba2(case, a, o, facts):
    if "seg" in a:
        return None
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    inside = o["expand"] * facts["H"] * facts["D"]
    config = Mamba2Config(
        hidden_size=inside,  # the input is narrower: its maps are those of the case
        expand=1,
        num_heads=o["expand"] * facts["H"],
        head_dim=facts["D"],
        state_size=o["state_size"],
        n_groups=o["groups"],
        conv_kernel=o["kernel"],
        layer_norm_epsilon=o["eps"],
        chunk_size=4,
    )
    layer = Mamba2Mixer(config, 0)
    put(layer.in_proj, "weight", torch.cat([p[f"{r}.weight"] for r in ("z", "x", "b", "c", "dt")]))
    put(layer.conv1d, "weight", torch.cat([p[f"{r}.conv"] for r in "xbc"])[:, None])
    put(layer.conv1d, "bias", torch.cat([p[f"{r}.conv.bias"] for r in "xbc"]))
    for its, mine in {"A_log": "A_log", "D": "D", "dt_bias": "dt.bias"}.items():
        put(layer, its, p[mine])
    put(layer.norm, "weight", p["norm.weight"])
    put(layer.out_proj, "weight", p["o.weight"])
    return {"y": layer(a["x"])}


ROTATIONS = ("rope", "pi", "dynamic_ntk", "llama3", "yarn", "p_rope", "longrope", "mrope")
PARTS = dict.fromkeys(ROTATIONS, rotation) | {
    "alibi": alibi,
    "t5": t5,
    "sinusoidal": sinusoidal,
    "none": none,
    "rwkv4": rwkv4,
    "mamba": mamba,
    "mamba2": mamba2,
    "gated_deltanet": layer_of_deltas,
    "kda": layer_of_deltas,
    "deberta": deberta,
}
run = adapter(compute)
