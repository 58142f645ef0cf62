"""Bugs of rotations, forward."""

import numpy as np

from .edits import After, bf16, bug, f16, like, right
from .tape import join

HALF = lambda me: (np.arange(me.width() // 2), np.arange(me.width() // 2, me.width()))
ADJACENT = lambda me: (np.arange(0, me.width(), 2), np.arange(1, me.width(), 2))


# Layouts: which channels are a pair.

bug(
    "rope-interleaved-for-half",
    "rope",
    "op",
    "Adjacent channels are turned whatever layout was asked for.",
    "NeuraLegion/shainet#111",
    "rope.layout.half",
    idea="layout",
    pairs=ADJACENT,
)
bug(
    "rope-half-for-interleaved",
    "rope",
    "attn",
    "Halves are turned whatever layout was asked for.",
    "huggingface/transformers#25199",
    "rope.layout.half",
    idea="layout",
    pairs=HALF,
)
bug(
    "mrope-half-only",
    "mrope",
    "op",
    "The layout is not handed on: halves always.",
    "xLLM-AI/xllm#853",
    "rope.layout.half",
    idea="layout",
    pairs=HALF,
)
bug(
    "yarn-interleaved-only",
    "yarn",
    "op",
    "DeepSeek's adjacent pairs, for weights with halves too.",
    "InternLM/lmdeploy#2639",
    "rope.layout.half",
    idea="layout",
    pairs=ADJACENT,
)
bug(
    "rope-layouts-exchanged",
    "rope",
    "op",
    "The flag is read the wrong way round: is_neox where not is_neox is meant.",
    "EleutherAI/gpt-neox#834",
    "rope.layout.half",
    idea="layout-flag",
    pairs=lambda me: HALF(me) if me.layout == "interleaved" else ADJACENT(me),
)


def frequencies_of_halves(me, a, b, c, s):
    """Cosines laid out [w, w] for channels that lie as adjacent pairs."""
    if me.layout == "half":
        return right(me).formula(a, b, c, s)
    P = c.shape[-1]
    e, o = (2 * np.arange(P)) % P, (2 * np.arange(P) + 1) % P
    return a * c[..., e] - b * s[..., e], a * s[..., o] + b * c[..., o]


def frequencies_of_pairs(me, a, b, c, s):
    """Each cosine twice in turn for channels that lie as halves."""
    if me.layout != "half":
        return right(me).formula(a, b, c, s)
    P = c.shape[-1]
    e, o = np.arange(P) // 2, (np.arange(P) + P) // 2
    return a * c[..., e] - b * s[..., e], a * s[..., o] + b * c[..., o]


bug(
    "rope-cos-cat-adjacent",
    "rope",
    "op",
    "cos is cat(freqs, freqs) while adjacent channels are turned.",
    "rasbt/LLMs-from-scratch#838",
    "rope.layout.mixed",
    idea="layout-mixed",
    formula=frequencies_of_halves,
)
bug(
    "rope-cos-repeat-half",
    "rope",
    "op",
    "cos is repeat_interleave(freqs, 2) while halves are turned.",
    "rasbt/LLMs-from-scratch#747",
    "rope.layout.mixed",
    idea="layout-mixed",
    formula=frequencies_of_pairs,
)
bug(
    "llama3-cos-cat-adjacent",
    "llama3",
    "op",
    "The scaled frequencies are laid out for halves, the pairs are adjacent.",
    "karpathy/llama2.c#286",
    "rope.layout.mixed",
    idea="layout-mixed",
    formula=frequencies_of_halves,
)


def regrouped(me, x, c, s, g, side="q"):
    """Even and odd channels turned, and stacked as halves."""
    y = right(me).turn(x, c, s, g, side)
    if me.layout == "half":
        return y
    R = me.width()
    return y[..., np.concatenate([np.arange(0, R, 2), np.arange(1, R, 2), np.arange(R, me.D)])]


bug(
    "rope-stacked-as-halves",
    "rope",
    "op",
    "Adjacent pairs are turned rightly and the results concatenated, not woven.",
    "ooples/AiDotNet#2074",
    "rope.layout.half rope.layout.mixed",
    turn=regrouped,
)
bug(
    "rope-half-output-woven",
    "rope",
    "op",
    "Halves are turned rightly and the results stacked on the last axis and flattened.",
    "huggingface/nanotron#427",
    "rope.layout.half rope.layout.mixed",
    turn=lambda me, x, c, s, g, side="q": (
        right(me).turn(x, c, s, g, side)
        if me.layout != "half"
        else right(me).turn(x, c, s, g, side)[
            ..., np.concatenate([np.stack(HALF(me), 1).ravel(), np.arange(me.width(), me.D)])
        ]
    ),
)

# Signs.

bug(
    "rope-other-way",
    "rope",
    "op",
    "The turn goes by minus the angle.",
    "karpathy/nanochat#489",
    "rope.sign",
    idea="rope-sign",
    formula=lambda me, a, b, c, s: (a * c + b * s, b * c - a * s),
)
bug(
    "rope-no-minus",
    "rope",
    "op",
    "rotate_half lacks its minus sign.",
    "EleutherAI/gpt-neox#222",
    "rope.sign",
    idea="rope-reflect",
    formula=lambda me, a, b, c, s: (a * c + b * s, a * s + b * c),
)
bug(
    "rope-sin-cos-exchanged",
    "rope",
    "table op",
    "The table's two halves are unpacked as cos, sin in place of sin, cos.",
    "NVIDIA/ngpt#10",
    "rope.sign",
    idea="sin-for-cos",
    tables=After(lambda me, y: (y[0], y[2], y[1])),
)
bug(
    "axial-sin-cos-exchanged",
    "axial",
    "op",
    "Sine and cosine of the 2-D table change places.",
    "huggingface/transformers#48105",
    "rope.sign",
    idea="sin-for-cos",
    tables=After(lambda me, y: (y[0], y[2], y[1])),
)
bug(
    "yarn-other-way",
    "yarn",
    "attn",
    "sin is negated for q and k, so that distances are negated.",
    "karpathy/nanochat#264",
    "rope.sign",
    idea="rope-sign",
    tables=After(lambda me, y: (y[0], y[1], -y[2])),
)
bug(
    "rope-k-other-way",
    "rope",
    "attn",
    "k turns by minus the angle, q rightly: the sum of positions in place of the difference.",
    "bkitano/llama-from-scratch#8",
    "rope.sign",
    idea="rope-sign-k",
    turn=lambda me, x, c, s, g, side="q": right(me).turn(x, c, s if side == "q" else -s, g, side),
)
bug(
    "rope-no-sine-terms",
    "rope",
    "op",
    "Only the products with cosines are kept.",
    "NVIDIA/ngpt#10",
    "rope.sign",
    idea="rope-cos-only",
    formula=lambda me, a, b, c, s: (a * c, b * c),
)

# Q, K or neither.

bug(
    "rope-q-only",
    "rope",
    "op",
    "k is not turned.",
    "CStanKonrad/long_llama#8",
    "rope.one_of_two",
    idea="one-of-two",
    turned=lambda me, x, i, n, side: right(me).turned(x, i, n, side) if side == "q" else x,
)
bug(
    "llama3-k-only",
    "llama3",
    "attn",
    "q is not turned.",
    "deepspeedai/DeepSpeed#8052",
    "rope.one_of_two",
    idea="one-of-two",
    turned=lambda me, x, i, n, side: right(me).turned(x, i, n, side) if side == "k" else x,
)
bug(
    "axial-never",
    "axial",
    "op",
    "No rotation is applied at all.",
    "1bit-MONSTER/1bit-MONSTER#1417",
    "rope.one_of_two",
    idea="no-rotation",
    turned=lambda me, x, i, n, side: x,
)
bug(
    "rope-k-twice",
    "rope",
    "attn",
    "k is turned by the model and once more by the attention kernel.",
    "cactus-compute/cactus#792",
    "rope.one_of_two",
    idea="turned-twice",
    turned=lambda me, x, i, n, side: right(me).turned(
        x if side == "q" else right(me).turned(x, i, n, side), i, n, side
    ),
)
bug(
    "mrope-q-twice",
    "mrope",
    "op",
    "q is turned twice.",
    "jundot/omlx#2363",
    "rope.one_of_two",
    idea="turned-twice",
    turned=lambda me, x, i, n, side: right(me).turned(
        x if side == "k" else right(me).turned(x, i, n, side), i, n, side
    ),
)

# The ladder of frequencies.

bug(
    "rope-base-10000",
    "rope",
    "table op",
    "The base is 10000 whatever was configured.",
    "google/gemma.cpp#986",
    "rope.base.ignored option",
    idea="base-ignored",
    base=lambda me: 10000.0,
)
bug(
    "mrope-base-10000",
    "mrope",
    "op",
    "rope_theta of the text config is not read.",
    "vllm-project/vllm#9503",
    "rope.base.ignored option",
    idea="base-ignored",
    where={"options": {"base": 500000.0}},
    base=lambda me: 10000.0,
)
bug(
    "llama3-base-10000",
    "llama3",
    "table",
    "The base falls back to 10000 where the config says 500000.",
    "lyogavin/airllm#369",
    "rope.base.ignored option",
    idea="base-ignored",
    base=lambda me: 10000.0,
)
bug(
    "yarn-base-10000",
    "yarn",
    "table",
    "Frequencies and ramp with base 10000.",
    "sgl-project/SpecForge#265",
    "rope.base.ignored option",
    idea="base-ignored",
    base=lambda me: 10000.0,
)
bug(
    "axial-base-10000",
    "axial",
    "op",
    "The vision config's base is not read.",
    "Blaizzy/mlx-vlm#2196",
    "rope.base.ignored option",
    idea="base-ignored",
    where={"options": {"base": 100.0}},
    base=lambda me: 10000.0,
)
bug(
    "xpos-base-10000",
    "xpos",
    "op",
    "The base is a constant of the kernel.",
    "karpathy/llama2.c#356",
    "rope.base.ignored option",
    idea="base-ignored",
    where={"options": {"base": 1000000.0}},
    base=lambda me: 10000.0,
)
bug(
    "rope-exponent-n",
    "rope",
    "table op",
    "Exponents n/R in place of 2n/R.",
    "shenweichen/DeepCTR#379",
    "rope.exponent",
    exponents=lambda me: np.arange(me.R // 2) / me.R,
)
bug(
    "rope-exponent-from-1",
    "rope",
    "table",
    "Exponents 2(n - 1)/R: the first pair turns faster than 1.",
    "bkitano/llama-from-scratch#8",
    "rope.exponent",
    exponents=lambda me: (np.arange(0, me.R, 2) - 2) / me.R,
)
bug(
    "rope-exponent-endpoint",
    "rope",
    "table",
    "The ladder ends at 1/base: the divisor is R/2 - 1.",
    "huggingface/blog#2183",
    "rope.exponent",
    exponents=lambda me: np.arange(me.R // 2) / max(me.R // 2 - 1, 1),
)
bug(
    "rope-exponent-twice",
    "rope",
    "table op",
    "2 * arange(0, R, 2) / R: every exponent is doubled.",
    "jadore801120/attention-is-all-you-need-pytorch#32",
    "rope.exponent",
    exponents=lambda me: 2 * np.arange(0, me.R, 2) / me.R,
)
bug(
    "rope-exponent-plus",
    "rope",
    "table",
    "base^(2n/R) in place of base^(-2n/R).",
    "kimiyoung/transformer-xl#119",
    "rope.exponent rope.frequencies",
    idea="rope-exponent-sign",
    plain=lambda me: me.base() ** me.exponents(),
)
bug(
    "rope-reversed",
    "rope",
    "op",
    "The frequencies run from the slowest to the fastest.",
    "huggingface/diffusers#12538",
    "rope.frequencies",
    plain=After(lambda me, w: w[::-1]),
)
bug(
    "rope-last-pair-still",
    "rope",
    "op",
    "arange(0, R - 2, 2) and a padded zero: the slowest pair does not turn.",
    "huggingface/transformers#48101",
    "rope.frequencies",
    plain=After(lambda me, w: np.where(np.arange(len(w)) == len(w) - 1, 0, w)),
)
bug(
    "rope-degrees",
    "rope",
    "table",
    "Angles are converted to turns: 2 pi times too small.",
    "goodfire-ai/spd#88",
    "",
    idea="angle-unit",
    angles=After(lambda me, a: a / (2 * np.pi)),
)
bug(
    "rope-learned-ignored",
    "rope",
    "table",
    "The learned frequencies are a buffer that the checkpoint does not overwrite.",
    "lucidrains/rotary-embedding-torch#11",
    "option",
    plain=lambda me: right(me).plain(),
    ladder=lambda me, n: me.plain(),
)

# Partial rotation.

bug(
    "rope-partial-head-width",
    "rope",
    "op",
    "The exponents are made from the width of the head.",
    "pie-project/pie#603",
    "rope.partial.exponent_head_dim",
    idea="partial-exponent",
    exponents=lambda me: np.arange(0, me.R, 2) / me.D,
)
bug(
    "pi-partial-head-width",
    "pi",
    "op",
    "Frequencies over the head's width, scaled afterwards.",
    "huggingface/transformers#48652",
    "rope.partial.exponent_head_dim",
    idea="partial-exponent",
    exponents=lambda me: np.arange(0, me.R, 2) / me.D,
)
bug(
    "yarn-partial-head-width",
    "yarn",
    "op",
    "YaRN's frequencies and ramp over the head's width.",
    "vllm-project/vllm#43770",
    "rope.partial.exponent_head_dim rope.yarn.ramp",
    idea="partial-exponent",
    exponents=lambda me: np.arange(0, me.R, 2) / me.D,
)
bug(
    "rope-partial-pairs-of-head",
    "rope",
    "op",
    "Pairs (n, n + D/2) where they should be (n, n + R/2).",
    "pie-project/pie#602",
    "rope.partial.pairing",
    idea="partial-pairing",
    pairs=lambda me: (
        (np.arange(me.R // 2), np.arange(me.R // 2) + me.D // 2) if me.layout == "half" else right(me).pairs()
    ),
)
bug(
    "llama3-partial-pairs-of-head",
    "llama3",
    "op",
    "Pairs are split at half of the head.",
    "apple/coreai-models#66",
    "rope.partial.pairing",
    idea="partial-pairing",
    pairs=lambda me: (
        (np.arange(me.R // 2), np.arange(me.R // 2) + me.D // 2) if me.layout == "half" else right(me).pairs()
    ),
)
bug(
    "rope-partial-rest-zero",
    "rope",
    "op",
    "Channels beyond the rotary width come out as zeros.",
    "microsoft/onnxruntime#22417",
    "rope.partial.passthrough",
    idea="partial-rest",
    passed=lambda me, x: x * 0.0,
)
bug(
    "yarn-partial-rest-scaled",
    "yarn",
    "op",
    "The magnitude multiplies the channels that pass, too.",
    "sgl-project/sglang#22711",
    "rope.partial.passthrough",
    idea="partial-rest",
    turn=lambda me, x, c, s, g, side="q": (
        right(me).turn(x, c, s, g, side)
        if g is None or me.R == me.D
        else join([right(me).turn(x, c, s, g, side)[..., : me.R], x[..., me.R :] * (np.ravel(g)[0])], -1)
    ),
)
bug(
    "rope-partial-last",
    "rope",
    "op",
    "The last R channels of the head turn in place of the first.",
    "labscommunity/cascadia#69",
    "rope.partial.pairing rope.partial.passthrough",
    pairs=After(lambda me, p: (p[0] + me.D - me.R, p[1] + me.D - me.R)),
)
bug(
    "mrope-partial-ignored",
    "mrope",
    "op",
    "The rotary share is dropped: the ladder spans the head and all channels turn.",
    "AI-Hypercomputer/maxtext#4615",
    "rope.partial.exponent_head_dim rope.partial.pairing rope.partial.passthrough",
    idea="partial-ignored",
    __init__=lambda me, case, inputs, work: (right(me).__init__(case, inputs, work), setattr(me, "R", me.D))[
        0
    ],
)
bug(
    "p_rope-partial-reading",
    "p_rope",
    "op",
    "Read as partial rotation: exponents and pairs of the turning share alone.",
    "jagmarques/nexusquant#12",
    "rope.p.fraction rope.partial.pairing rope.exponent rope.partial.exponent_head_dim",
    pairs=lambda me: (
        (np.arange(me.turning()), np.arange(me.turning()) + me.turning())
        if me.layout == "half"
        else (2 * np.arange(me.turning()), 2 * np.arange(me.turning()) + 1)
    ),
    tables=After(lambda me, y: tuple(x[..., : me.turning()] for x in y)),
)
bug(
    "p_rope-exponent-of-share",
    "p_rope",
    "table",
    "The exponents are of the turning share of the width.",
    "zml/zml#660",
    "rope.p.fraction rope.exponent rope.partial.exponent_head_dim",
    plain=lambda me: me.base() ** -(np.arange(me.R // 2) / max(me.turning(), 1)),
)
bug(
    "p_rope-rounds",
    "p_rope",
    "table",
    "The number of turning pairs is rounded up, not down.",
    "vllm-project/vllm#30389",
    "rope.p.fraction",
    turning=lambda me: int(np.ceil(me.o["fraction"] * me.R / 2)),
)
bug(
    "p_rope-slow-turn",
    "p_rope",
    "op",
    "The slow pairs turn and the fast ones rest.",
    "vllm-project/vllm#30384",
    "rope.p.fraction rope.frequencies",
    ladder=lambda me, n: np.where(
        np.arange(me.R // 2) >= me.R // 2 - me.turning(), me.plain() / me.o["factor"], 0
    ),
)
bug(
    "p_rope-all-turn",
    "p_rope",
    "table op",
    "The share is ignored: all pairs turn.",
    "google/gemma.cpp#986",
    "rope.p.fraction",
    turning=lambda me: me.R // 2,
)

# Precision and places.

bug(
    "rope-angles-bf16",
    "rope",
    "table op",
    "Angles are multiplied out in bfloat16.",
    "EleutherAI/gpt-neox#1003",
    "rope.phase.low_precision",
    idea="phase-precision",
    angles=After(lambda me, a: like(a, bf16)),
)
bug(
    "rope-frequencies-f16",
    "rope",
    "op",
    "The buffer of frequencies is cast to float16 with the model.",
    "huggingface/transformers#29496",
    "rope.phase.low_precision",
    idea="phase-precision",
    ladder=After(lambda me, w: like(w, f16)),
)
bug(
    "rope-positions-bf16",
    "rope",
    "op",
    "Positions are counted in bfloat16: 257 is 256.",
    "EleutherAI/gpt-neox#1016",
    "rope.phase.low_precision position.rounded",
    idea="position-precision",
    places=After(lambda me, i: bf16(i)),
)
bug(
    "llama3-angles-f16",
    "llama3",
    "table",
    "The angles pass through float16.",
    "sgl-project/sglang-jax#1472",
    "rope.phase.low_precision",
    idea="phase-precision",
    angles=After(lambda me, a: f16(a)),
)
bug(
    "yarn-frequencies-bf16",
    "yarn",
    "table op",
    "model.to(bfloat16) casts inv_freq.",
    "Modalities/modalities#462",
    "rope.phase.low_precision",
    idea="phase-precision",
    ladder=After(lambda me, w: bf16(w)),
)
bug(
    "mrope-angles-bf16",
    "mrope",
    "op",
    "Angles in the dtype of the activations.",
    "huggingface/transformers#29285",
    "rope.phase.low_precision",
    idea="phase-precision",
    angles=After(lambda me, a: bf16(a)),
)
bug(
    "rope-cosines-bf16",
    "rope",
    "op",
    "The cached cosines and sines are bfloat16 and serve float32 inputs.",
    "KellerJordan/modded-nanogpt#39",
    "rope.phase.low_precision",
    idea="cache-16",
    dtypes="f64 f32",
    tables=After(lambda me, y: (y[0], like(y[1], bf16), like(y[2], bf16))),
)
bug(
    "llama3-cosines-f16",
    "llama3",
    "attn",
    "The cached cosines and sines are float16.",
    "huggingface/transformers#25681",
    "rope.phase.low_precision",
    idea="cache-16",
    dtypes="f64 f32",
    tables=After(lambda me, y: (y[0], f16(y[1]), f16(y[2]))),
)
bug(
    "rope-positions-whole",
    "rope",
    "table op",
    "Fractional positions are cast to integers for the table.",
    "huggingface/candle#3520",
    "position.rounded",
    idea="position-whole",
    places=After(lambda me, i: np.floor(i)),
)
bug(
    "yarn-positions-whole",
    "yarn",
    "table",
    "Positions become int32 before they meet the frequencies.",
    "ml-explore/mlx-lm#1076",
    "position.rounded",
    idea="position-whole",
    places=After(lambda me, i: np.trunc(i)),
)
bug(
    "rope-table-wraps",
    "rope",
    "table op",
    "Positions are taken modulo the length of the table.",
    "fla-org/flash-linear-attention#1177",
    "rope.table.wrap",
    places=After(lambda me, i: np.mod(i, me.L)),
)
bug(
    "rope-table-clips",
    "rope",
    "op",
    "Positions beyond the table read its last row.",
    "vllm-project/vllm#9490",
    "rope.table.clip",
    idea="table-clip",
    places=After(lambda me, i: np.minimum(i, me.L - 1)),
)
bug(
    "llama3-negative-clipped",
    "llama3",
    "attn",
    "Negative positions are clamped to 0.",
    "turboderp-org/exllamav2#606",
    "rope.table.clip",
    idea="table-clip-negative",
    where={"positions": lambda i: i - 5},
    places=After(lambda me, i: np.maximum(i, 0)),
)
bug(
    "rope-counted",
    "rope",
    "op attn",
    "Positions are counted from 0, whatever was given.",
    "NVIDIA/Megatron-LM#453",
    "position.counted",
    idea="positions-ignored",
    places=After(lambda me, i: np.broadcast_to(np.arange(i.shape[-1]), i.shape).astype(i.dtype)),
)
bug(
    "pi-counted",
    "pi",
    "attn",
    "The table's first rows are used: position ids are not passed on.",
    "epfLLM/Megatron-LLM#23",
    "position.counted",
    idea="positions-ignored",
    where={"positions": lambda i: 2 * i},
    places=After(lambda me, i: np.broadcast_to(np.arange(i.shape[-1]), i.shape).astype(i.dtype)),
)
bug(
    "rope-first-of-batch",
    "rope",
    "op",
    "All sequences of a batch turn by the first one's positions.",
    "unslothai/unsloth#4078",
    "position.batch",
    idea="first-of-batch",
    places=After(lambda me, i: i if i.ndim < 2 else np.broadcast_to(i[:1], i.shape)),
)
bug(
    "llama3-first-of-batch",
    "llama3",
    "attn",
    "cache_position serves all rows of the batch.",
    "unslothai/unsloth#3795",
    "position.batch",
    idea="first-of-batch",
    places=After(lambda me, i: i if i.ndim < 2 else np.broadcast_to(i[:1], i.shape)),
)
bug(
    "rope-one-late",
    "rope",
    "table op",
    "Positions begin at 1.",
    "maxjcohen/transformer#62",
    "position.off_by_one",
    idea="one-late",
    places=After(lambda me, i: i + 1),
)
bug(
    "axial-one-late",
    "axial",
    "table",
    "Rows and columns are counted from 1.",
    "Meituan-AutoML/VisionLLaMA#4",
    "position.off_by_one",
    idea="one-late",
    parts=After(lambda me, p: (p[0] + 1, p[1] + 1)),
)
bug(
    "rope-heads-for-tokens",
    "rope",
    "op",
    "cos is unsqueezed at the wrong axis: the head's number is the position.",
    "deepspeedai/DeepSpeed#8052",
    "position.counted basic",
    turned=lambda me, x, i, n, side: (
        right(me).turned(x.transpose(0, 2, 1, 3), np.arange(x.shape[1]), n, side).transpose(0, 2, 1, 3)
    ),
)

# Linear and NTK scaling.

bug(
    "pi-ignored",
    "pi",
    "table op",
    "The factor is not read: plain RoPE.",
    "intel/ipex-llm#9086",
    "rope.factor.ignored option",
    idea="factor-ignored",
    ladder=lambda me, n: me.plain(),
)
bug(
    "pi-multiplied",
    "pi",
    "table",
    "Positions are multiplied by the factor.",
    "goodfire-ai/spd#88",
    "rope.pi.factor",
    ladder=lambda me, n: me.plain() * me.factor(n),
)
bug(
    "pi-whole",
    "pi",
    "table op",
    "position // factor: neighbours share an angle.",
    "kaiokendev/cutoff-len-is-context-len#1",
    "rope.pi.factor position.rounded",
    places=After(lambda me, i: np.floor(i / me.o["factor"]) * me.o["factor"]),
)
bug(
    "pi-twice",
    "pi",
    "op",
    "Both positions and frequencies are divided.",
    "vllm-project/vllm#30384",
    "rope.factor.twice",
    idea="factor-twice",
    ladder=lambda me, n: me.plain() / me.factor(n) ** 2,
)
bug(
    "pi-dynamic-static",
    "pi",
    "table",
    "The dynamic form is treated as the static one.",
    "vllm-project/vllm#5093",
    "rope.ntk.static_as_dynamic option",
    idea="dynamic-as-static",
    factor=lambda me, n: me.o["factor"],
)
bug(
    "pi-first-pair-spared",
    "pi",
    "table",
    "The fastest pair is left out of the interpolation.",
    "togethercomputer/stripedhyena#10",
    "",
    ladder=After(lambda me, w: np.where(np.arange(len(w)) == 0, w * me.o["factor"], w)),
)
bug(
    "ntk-ignored",
    "ntk",
    "op",
    "rope_scaling is parsed and never read.",
    "lablup/mlxcel#1355",
    "rope.factor.ignored option",
    idea="factor-ignored",
    stretch=lambda me, s: np.ones(me.R // 2),
)
bug(
    "ntk-exponent-r",
    "ntk",
    "table",
    "base * s, without the power R/(R - 2).",
    "huggingface/transformers#24653",
    "rope.ntk.exponent",
    stretch=lambda me, s: (
        s ** (-2 * np.arange(me.R // 2) / me.R) if me.o["form"] == "bloc97" else right(me).stretch(s)
    ),
)
bug(
    "ntk-exponent-head",
    "ntk",
    "op",
    "The power is D/(D - 2) of the head's width.",
    "lucidrains/rotary-embedding-torch#29",
    "rope.ntk.exponent",
    stretch=lambda me, s: (
        float(s) ** (-2 * np.arange(me.R // 2) * me.D / (me.R * (me.D - 2)))
        if me.o["form"] == "bloc97"
        else right(me).stretch(s)
    ),
)
bug(
    "ntk-kexue-for-bloc97",
    "ntk",
    "table op",
    "Every pair is scaled, the first one too, as in the kexue form.",
    "apache/tvm#18576",
    "rope.ntk.form option",
    stretch=lambda me, s: (
        float(s) ** (-2 * (np.arange(me.R // 2) + 1) / me.R)
        if me.o["form"] == "bloc97"
        else right(me).stretch(s)
    ),
)
bug(
    "ntk-alpha-minus-one",
    "ntk",
    "table",
    "alpha - 1 is used in place of alpha.",
    "turboderp/exllama#272",
    "",
    stretch=lambda me, s: right(me).stretch(s - 1),
)
bug(
    "ntk-as-linear",
    "ntk",
    "table",
    "The factor divides all frequencies: linear interpolation.",
    "huggingface/transformers#24653",
    "rope.ntk.form",
    stretch=lambda me, s: np.full(me.R // 2, 1 / s),
)
bug(
    "dynamic_ntk-static",
    "dynamic_ntk",
    "table op",
    "The length is taken as factor times the original, always.",
    "vllm-project/vllm#5093",
    "rope.ntk.static_as_dynamic option",
    idea="dynamic-as-static",
    grown=lambda me, n: (
        right(me).grown(n) if me.o["form"] == "steps" else me.o["factor"] ** 2 - (me.o["factor"] - 1)
    ),
)
bug(
    "dynamic_ntk-below-original",
    "dynamic_ntk",
    "table",
    "Short texts are scaled too: n is not held at the original length.",
    "vllm-project/vllm#52665",
    "rope.ntk.static_as_dynamic",
    grown=lambda me, n: (
        right(me).grown(n)
        if me.o["form"] != "dynamic"
        else max(me.o["factor"] * n / me.original() - (me.o["factor"] - 1), 0.1)
    ),
)
bug(
    "dynamic_ntk-no-minus",
    "dynamic_ntk",
    "table",
    "factor m/L without less (factor - 1).",
    "QwenLM/Qwen#401",
    "rope.ntk.static_as_dynamic rope.factor.twice",
    grown=lambda me, n: (
        me.o["factor"] * max(n, me.original()) / me.original()
        if me.o["form"] == "dynamic"
        else right(me).grown(n)
    ),
)
bug(
    "dynamic_ntk-by-tokens",
    "dynamic_ntk",
    "op",
    "The number of tokens at hand decides, not the length the cache is made for.",
    "huggingface/transformers#27226",
    "rope.ntk.static_as_dynamic",
    grown=lambda me, n: right(me).grown(me.T),
)
bug(
    "dynamic_ntk-exponent-head",
    "dynamic_ntk",
    "op",
    "The exponent of the base is of the head's width.",
    "apache/tvm#18102",
    "rope.ntk.exponent",
    where={"facts": {"n": 96, "R": 4}},
    ladder=lambda me, n: (
        me.plain() * float(me.grown(n)) ** (-2 * np.arange(me.R // 2) * me.D / (me.R * (me.D - 2)))
    ),
)
bug(
    "dynamic_ntk-steps-linear",
    "dynamic_ntk",
    "table",
    "The form in steps grows like the smooth one.",
    "QwenLM/Qwen#401",
    "option rope.ntk.form rope.ntk.static_as_dynamic",
    grown=lambda me, n: (
        right(me).grown(n) if me.o["form"] != "steps" else 2 * max(n, me.original()) / me.original() - 1
    ),
)

# By parts and YaRN.

bug(
    "ntk_by_parts-one-ramp",
    "ntk_by_parts",
    "table",
    "The second ramp, back to plain RoPE, is left out.",
    "jquesnelle/yarn#62",
    "rope.parts.ramp",
    ladder=lambda me, n: (
        lambda w, s: (lambda b: b * w / s + (1 - b) * w * s ** (-2 * np.arange(me.R // 2) / (me.R - 2)))(
            1 - (1 - me.ramp(*me.o["beta"])) * me.o["ntk_factor"]
        )
    )(me.plain(), me.factor(n)),
)
bug(
    "ntk_by_parts-pairs-exchanged",
    "ntk_by_parts",
    "table op",
    "beta and gamma change places.",
    "turboderp-org/exllamav3#259",
    "rope.parts.ramp",
    ramp=lambda me, a, b: right(me).ramp(*(me.o["gamma"] if [a, b] == list(me.o["beta"]) else me.o["beta"])),
)
bug(
    "ntk_by_parts-no-ntk",
    "ntk_by_parts",
    "table",
    "Linear interpolation is blended with plain RoPE, without NTK between.",
    "onnxruntime/mobius#548",
    "rope.parts.ramp",
    ladder=lambda me, n: (lambda w, s, c: c * w / s + (1 - c) * w)(
        me.plain(), me.factor(n), 1 - (1 - me.ramp(*me.o["gamma"])) * me.o["extrapolation_factor"]
    ),
)
bug(
    "yarn-no-magnitude",
    "yarn",
    "table op",
    "The attention factor is left at 1.",
    "vllm-project/vllm#46280",
    "rope.yarn.mscale_missing",
    gains=lambda me, i, n: (1.0, 1.0),
)
bug(
    "yarn-magnitude-twice",
    "yarn",
    "op",
    "The magnitude is multiplied in twice.",
    "sgl-project/sglang#33558",
    "rope.yarn.mscale_twice",
    gain=After(lambda me, g: g * g),
)
bug(
    "yarn-magnitude-q-only",
    "yarn",
    "op",
    "Only q is scaled by the magnitude.",
    "ml-explore/mlx-lm#1507",
    "rope.yarn.mscale_missing",
    gains=After(lambda me, g: (g[0], 1.0)),
)
bug(
    "yarn-factor-ignored-attention",
    "yarn",
    "table op",
    "An attention_factor in the config is not read.",
    "vllm-project/vllm#48351",
    "rope.yarn.mscale_override option",
    gain=lambda me, n: right(me).gain(n) if me.o["attention_factor"] is None else me.y(1, n),
)
bug(
    "yarn-mscale-pair-ignored",
    "yarn",
    "table",
    "mscale and mscale_all_dim are not read.",
    "vllm-project/vllm#48623",
    "rope.yarn.mscale_override option",
    gain=lambda me, n: me.y(1, n) if me.o["attention_factor"] is None else me.o["attention_factor"],
)
bug(
    "yarn-mscale-product",
    "yarn",
    "table",
    "The product of the two magnitudes in place of the quotient.",
    "turboderp-org/exllamav3#259",
    "rope.yarn.mscale_override",
    gain=lambda me, n: (
        me.y(me.o["mscale"], n) * me.y(me.o["mscale_all_dim"], n)
        if me.o["mscale"] and me.o["mscale_all_dim"]
        else right(me).gain(n)
    ),
)
bug(
    "yarn-softmax-scale",
    "yarn",
    "attn",
    "mscale_all_dim does not reach the softmax scale.",
    "onnxruntime/mobius#548",
    "attn.scale rope.yarn.mscale_override",
    scale=lambda me: me.D**-0.5,
)
bug(
    "yarn-softmax-scale-once",
    "yarn",
    "attn",
    "The softmax scale takes y(M), not its square.",
    "NVIDIA/TensorRT-LLM#16379",
    "attn.scale rope.yarn.mscale_override",
    scale=lambda me: me.D**-0.5 * (me.y(me.o["mscale_all_dim"], me.now) if me.o["mscale_all_dim"] else 1),
)
bug(
    "yarn-log10",
    "yarn",
    "table op",
    "0.1 log10(factor) + 1: the wrong logarithm.",
    "vllm-project/vllm#48351",
    "rope.yarn.mscale_missing rope.yarn.mscale_override",
    y=lambda me, x, n: 0.1 * x * np.log10(me.factor(n)) + 1 if me.factor(n) > 1 else 1.0,
)
bug(
    "yarn-new-length",
    "yarn",
    "table",
    "The ramp is made with the new length, factor times the original.",
    "huggingface/transformers#38224",
    "rope.yarn.ramp",
    original=After(lambda me, L: L * me.o["factor"]),
)
bug(
    "yarn-ramp-reversed",
    "yarn",
    "table",
    "The fast pairs are divided and the slow ones left.",
    "huggingface/transformers#40320",
    "rope.yarn.ramp",
    blend=After(lambda me, g: 1 - g),
)
bug(
    "yarn-not-rounded",
    "yarn",
    "table op",
    "The ends of the ramp are never rounded.",
    "vllm-project/vllm#27722",
    "rope.yarn.ramp option",
    ends=lambda me, fast, slow: (max(me.pair(fast), 0), min(me.pair(slow), me.R - 1)),
)
bug(
    "yarn-always-rounded",
    "yarn",
    "table",
    "truncate: false is not handed on.",
    "sgl-project/sglang#14270",
    "option rope.yarn.ramp",
    ends=lambda me, fast, slow: (
        lambda o: (
            setattr(me, "o", {**o, "truncate": True}),
            right(me).ends(fast, slow),
            setattr(me, "o", o),
        )[1]
    )(me.o),
)
bug(
    "yarn-ramp-cut-at-pairs",
    "yarn",
    "table",
    "The end of the ramp is held at R/2 - 1, not at R - 1.",
    "vllm-project/vllm#28244",
    "rope.yarn.ramp",
    ends=After(lambda me, e: (e[0], min(e[1], max(me.R // 2 - 1, e[0] + 0.001)))),
)
bug(
    "yarn-betas-exchanged",
    "yarn",
    "table op",
    "beta_fast and beta_slow change places.",
    "apache/tvm#18576",
    "rope.yarn.ramp",
    blend=lambda me: (
        lambda o: (
            setattr(me, "o", {**o, "beta_fast": o["beta_slow"], "beta_slow": o["beta_fast"]}),
            right(me).blend(),
            setattr(me, "o", o),
        )[1]
    )(me.o),
)
bug(
    "yarn-paper-for-code",
    "yarn",
    "table",
    "The ramp runs in turns, as in the paper, not in pairs, as in the code.",
    "jquesnelle/yarn#60",
    "rope.yarn.ramp option",
    blend=lambda me: (
        1
        - np.clip(
            (me.original() * me.plain() / (2 * np.pi) - me.o["beta_slow"])
            / (me.o["beta_fast"] - me.o["beta_slow"]),
            0,
            1,
        )
    ),
)
bug(
    "yarn-extrapolation-ignored",
    "yarn",
    "table",
    "extrapolation_factor is dropped in conversion.",
    "ikawrakow/ik_llama.cpp#2003",
    "option",
    ladder=lambda me, n: (lambda w, g: g * w / me.factor(n) + (1 - g) * w)(me.plain(), me.blend()),
)
bug(
    "yarn-ramp-two-steps",
    "yarn",
    "table",
    "The ramp runs over channels, 0, 2, 4, ..., in place of pairs.",
    "jquesnelle/yarn#65",
    "rope.yarn.ramp",
    ramp=lambda me, fast, slow: (lambda e: np.clip((2 * np.arange(me.R // 2) - e[0]) / (e[1] - e[0]), 0, 1))(
        me.ends(fast, slow)
    ),
)
bug(
    "longrope-magnitude-below-1",
    "longrope",
    "table op",
    "The magnitude is sqrt(1 + ln s) without ln L.",
    "ml-explore/mlx-lm#660",
    "rope.yarn.mscale_missing rope.yarn.mscale_override",
    gain=lambda me, n: (
        np.sqrt(1 + np.log(me.o["factor"]))
        if me.o["attention_factor"] is None and me.o["short_mscale"] is None
        else right(me).gain(n)
    ),
)
bug(
    "yarn-as-linear",
    "yarn",
    "op",
    "The type yarn falls through to linear scaling.",
    "vllm-project/vllm-ascend#5201",
    "rope.yarn.ramp",
    blend=lambda me: np.ones(me.R // 2),
)
bug(
    "yarn-factor-ignored",
    "yarn",
    "op",
    "factor is recomputed from two equal lengths and is 1.",
    "huggingface/transformers#38224",
    "rope.factor.ignored option",
    idea="factor-ignored",
    factor=lambda me, n: 1.0,
)

# Llama 3, LongRoPE.

bug(
    "llama3-ignored",
    "llama3",
    "table op",
    "rope_scaling is not applied.",
    "sbryngelson/ANEForge#58",
    "rope.factor.ignored option",
    idea="factor-ignored",
    ladder=lambda me, n: me.plain(),
)
bug(
    "llama3-linear-in-wavelength",
    "llama3",
    "table",
    "The blend runs straight in the wavelength.",
    "ml-explore/mlx-examples#907",
    "rope.llama3.blend",
    blend=lambda me, turns: np.clip(
        (me.original() / turns - me.original() / me.o["low_freq_factor"])
        / (me.original() / me.o["high_freq_factor"] - me.original() / me.o["low_freq_factor"]),
        0,
        1,
    ),
)
bug(
    "llama3-no-blend",
    "llama3",
    "table op",
    "The middle band is divided like the slow one.",
    "huggingface/transformers#32330",
    "rope.llama3.blend",
    blend=lambda me, turns: np.where(turns > me.o["high_freq_factor"], 1.0, 0.0),
)
bug(
    "llama3-bands-exchanged",
    "llama3",
    "op",
    "Fast pairs are divided, slow ones left alone.",
    "jmaczan/tiny-vllm#1",
    "rope.llama3.blend",
    blend=After(lambda me, t: 1 - t),
)
bug(
    "llama3-middle-twice",
    "llama3",
    "table",
    "The middle band is divided once before it is blended.",
    "huggingface/transformers#32330",
    "rope.llama3.blend rope.factor.twice",
    ladder=lambda me, n: (
        lambda w, t: np.where(
            (t > 0) & (t < 1),
            ((1 - t) * w / me.o["factor"] + t * w) / me.o["factor"],
            (1 - t) * w / me.o["factor"] + t * w,
        )
    )(me.plain(), me.blend(me.original() * me.plain() / (2 * np.pi))),
)
bug(
    "llama3-no-two-pi",
    "llama3",
    "table",
    "The wavelength is 1/w, without 2 pi.",
    "zml/zml#230",
    "rope.llama3.blend",
    blend=lambda me, turns: right(me).blend(turns * 2 * np.pi),
)
bug(
    "llama3-factor-8",
    "llama3",
    "table",
    "The factor is a constant 8, for models with 32 too.",
    "ggml-org/llama.cpp#8676",
    "option rope.factor.ignored",
    idea="factor-constant",
    ladder=lambda me, n: (
        lambda o: (setattr(me, "o", {**o, "factor": 8.0}), right(me).ladder(n), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "longrope-always-short",
    "longrope",
    "table op",
    "The short factors serve all lengths.",
    "ggml-org/llama.cpp#8995",
    "rope.longrope.switch",
    long=lambda me, n: False,
)
bug(
    "longrope-always-long",
    "longrope",
    "op",
    "The long factors serve short texts too.",
    "lablup/mlxcel#1358",
    "rope.longrope.switch",
    long=lambda me, n: True,
)
bug(
    "longrope-at-length",
    "longrope",
    "table",
    "The long factors begin at exactly the original length.",
    "unslothai/unsloth#10681",
    "rope.longrope.switch",
    long=lambda me, n: n >= me.original(),
)
bug(
    "longrope-multiplied",
    "longrope",
    "table",
    "Frequencies are multiplied by the factors.",
    "microsoft/onnxruntime-genai#1161",
    "rope.longrope.switch rope.factor.twice rope.pi.factor",
    idea="longrope-inverse",
    stretch=After(lambda me, c: 1 / c),
)
bug(
    "longrope-no-magnitude",
    "longrope",
    "op",
    "Cosines are not multiplied by the attention factor.",
    "openvinotoolkit/openvino#37682",
    "rope.yarn.mscale_missing",
    gain=lambda me, n: 1.0,
)
bug(
    "longrope-magnitude-short-1",
    "longrope",
    "table",
    "The magnitude is applied to long texts alone.",
    "ggml-org/llama.cpp#24875",
    "rope.yarn.mscale_missing rope.longrope.switch",
    gain=lambda me, n: right(me).gain(n) if me.long(n) else 1.0,
)
bug(
    "longrope-magnitude-of-yarn",
    "longrope",
    "table",
    "YaRN's magnitude 0.1 ln s + 1 in place of its own.",
    "huggingface/transformers#33129",
    "rope.yarn.mscale_missing rope.yarn.mscale_override",
    gain=lambda me, n: (
        (0.1 * np.log(me.o["factor"]) + 1)
        if me.o["attention_factor"] is None and me.o["short_mscale"] is None
        else right(me).gain(n)
    ),
)
bug(
    "longrope-start-ignored",
    "longrope",
    "table op",
    "The first tokens turn like all others.",
    "trymirai/lalamo#325",
    "option",
    early=After(lambda me, e: e & False),
)

# xPos, M-RoPE, axial.

bug(
    "xpos-same-gain",
    "xpos",
    "table op",
    "k is scaled like q, not inversely.",
    "lucidrains/x-transformers#117",
    "rope.xpos.gain",
    gains=After(lambda me, g: (g[0], g[0])),
)
bug(
    "xpos-inverse-exchanged",
    "xpos",
    "op",
    "q takes the inverse gain and k the gain.",
    "lucidrains/rotary-embedding-torch#3",
    "rope.xpos.gain",
    gains=After(lambda me, g: (g[1], g[0])),
)
bug(
    "xpos-no-gain",
    "xpos",
    "table",
    "The gains are left out: plain RoPE.",
    "lucidrains/x-transformers#241",
    "rope.xpos.gain rope.yarn.mscale_missing",
    gains=lambda me, i, n: (1.0, 1.0),
)
bug(
    "xpos-centred",
    "xpos",
    "table op",
    "The gains are centred at half of the text for each call.",
    "lucidrains/x-transformers#233",
    "rope.xpos.gain",
    power=lambda me, i: (np.asarray(i)[..., None] - np.asarray(i).shape[-1] // 2) / me.o["scale_base"],
)
bug(
    "xpos-zeta-of-head",
    "xpos",
    "op",
    "zeta is made from the head's width.",
    "microsoft/torchscale#81",
    "rope.xpos.gain",
    zeta=lambda me: (2 * np.arange(me.R // 2) / me.D + me.o["gamma"]) / (1 + me.o["gamma"]),
)
bug(
    "xpos-scale-base-ignored",
    "xpos",
    "table",
    "scale_base is 512 whatever was set.",
    "lucidrains/local-attention#14",
    "option rope.xpos.gain",
    power=lambda me, i: (np.asarray(i)[..., None] - me.o["centre"]) / 512.0,
)
bug(
    "mrope-chunked-for-interleaved",
    "mrope",
    "table op",
    "Sections are always taken in chunks.",
    "alibaba/MNN#4133",
    "rope.mrope.sections",
    idea="mrope-order",
    axes=lambda me: (
        lambda o: (
            setattr(me, "o", {**o, "sections": me.sections(), "order": "chunked"}),
            right(me).axes(),
            setattr(me, "o", o),
        )[1]
    )(me.o),
)
bug(
    "mrope-interleaved-for-chunked",
    "mrope",
    "op",
    "Interleaved sections for a model with chunks.",
    "Blaizzy/mlx-vlm#576",
    "rope.mrope.sections",
    idea="mrope-order",
    axes=lambda me: (
        lambda o: (
            setattr(me, "o", {**o, "sections": me.sections(), "order": "interleaved"}),
            right(me).axes(),
            setattr(me, "o", o),
        )[1]
    )(me.o),
)
bug(
    "mrope-height-width-exchanged",
    "mrope",
    "table op",
    "Height and width change places.",
    "sgl-project/sglang#34446",
    "position.axes rope.mrope.sections",
    idea="axes-exchanged",
    axes=After(lambda me, a: np.array([0, 2, 1])[a]),
)
bug(
    "mrope-time-only",
    "mrope",
    "op",
    "All pairs take the first axis: images are one row of tokens.",
    "sgl-project/sglang#35345",
    "position.axes",
    axes=After(lambda me, a: a * 0),
)
bug(
    "mrope-ladder-restarts",
    "mrope",
    "table",
    "The ladder begins anew in each section.",
    "mflux-community/mflux#483",
    "rope.mrope.sections",
    plain=lambda me: (
        me.base()
        ** -(
            2
            * np.concatenate([np.arange(s) for s in (np.bincount(me.axes(), minlength=3))])[: me.R // 2]
            / me.R
        )
    ),
)
bug(
    "mrope-interleaved-no-bound",
    "mrope",
    "table",
    "Pairs go round time, height, width to the end: sections do not bound them.",
    "ollama/ollama#12807",
    "rope.mrope.sections",
    axes=lambda me: np.arange(me.R // 2) % 3 if me.o["order"] == "interleaved" else right(me).axes(),
)
bug(
    "mrope-bound-not-tripled",
    "mrope",
    "table",
    "The bound of interleaved sections is section, not 3 section.",
    "alibaba/rtp-llm#1086",
    "rope.mrope.sections",
    axes=lambda me: (
        (lambda n, s: np.where((n % 3 == 1) & (n < s[1]), 1, np.where((n % 3 == 2) & (n < s[2]), 2, 0)))(
            np.arange(me.R // 2), me.sections()
        )
        if me.o["order"] == "interleaved"
        else right(me).axes()
    ),
)
bug(
    "mrope-sections-constant",
    "mrope",
    "op",
    "The sections are those of one model, whatever the config says.",
    "InfiniTensor/InfiniCore#1350",
    "rope.mrope.sections option",
    sections=lambda me: [me.R // 2 - 2 * (me.R // 8), me.R // 8, me.R // 8],
)
bug(
    "axial-columns-first",
    "axial",
    "table op",
    "The first half of the pairs takes the column.",
    "Meituan-AutoML/VisionLLaMA#4",
    "rope.axial.axes position.axes",
    idea="axes-exchanged",
    parts=After(lambda me, p: (p[1], p[0])),
)
bug(
    "axial-height-for-width",
    "axial",
    "table",
    "Tokens are cut into rows with the number of rows, not of columns.",
    "baaivision/EVA#93",
    "rope.axial.axes",
    parts=lambda me, i: (
        right(me).parts(i)
        if np.ndim(i) == 3
        else (np.asarray(i) // (me.o["width"] + 1), np.asarray(i) % (me.o["width"] + 1))
    ),
)
bug(
    "axial-global-for-restart",
    "axial",
    "table op",
    "One ladder runs over rows and columns.",
    "meta-pytorch/torchtune#1973",
    "rope.axial.ladder option",
    ladders=lambda me: (
        (
            lambda o: (setattr(me, "o", {**o, "ladder": "global"}), right(me).ladders(), setattr(me, "o", o))[
                1
            ]
        )(me.o)
        if me.o["ladder"] == "restart"
        else right(me).ladders()
    ),
)
bug(
    "axial-exponent-full",
    "axial",
    "op",
    "Each axis has exponents 2m/R, as in one dimension.",
    "PaddlePaddle/PaddleMIX#990",
    "rope.axial.ladder rope.exponent",
    ladders=lambda me: (
        (me.base() ** (-2 * np.arange(me.R // 4) / me.R),) * 2
        if me.o["ladder"] == "restart"
        else right(me).ladders()
    ),
)
bug(
    "axial-flat",
    "axial",
    "op",
    "The flat index is the position on both axes.",
    "UbiquitousLearning/mllm#369",
    "rope.axial.axes position.axes",
    parts=lambda me, i: (np.asarray(i), np.asarray(i)) if np.ndim(i) < 3 else right(me).parts(i),
)
bug(
    "axial-pixel-range",
    "axial",
    "table",
    "Pixels run from 0 to 1, not from -1 to 1.",
    "lucidrains/rotary-embedding-torch#3",
    "rope.axial.ladder rope.axial.axes",
    parts=After(
        lambda me, p: (
            p if me.o["ladder"] != "pixel" else tuple((np.asarray(x) + me.o["width"] - 1) / 2 for x in p)
        )
    ),
)
