"""Bugs of attention itself, of score terms and of attention of another form, forward."""

import numpy as np

from .edits import After, bf16, bug, like, right
from .right.terms import conv, heads
from .tape import (
    V,
    absolute,
    cumsum,
    einsum,
    exp,
    linear,
    log,
    maximum,
    relu,
    sigmoid,
    sqrt,
    stack,
    tanh,
    where,
)

# Attention: scale, softmax, heads, masks.

bug(
    "none-no-scale",
    "none",
    "attn",
    "q k is not divided by sqrt(D).",
    "ethen8181/machine-learning#13",
    "attn.scale",
    idea="no-scale",
    scale=lambda me: 1.0,
)
bug(
    "rope-scale-of-model",
    "rope",
    "attn",
    "The scale is of the model's width, not of the head's.",
    "lucidrains/vit-pytorch#65",
    "attn.scale",
    scale=lambda me: (me.D * me.H) ** -0.5,
)
bug(
    "alibi-scale-twice",
    "alibi",
    "attn",
    "q is scaled, and so are the scores.",
    "NVIDIA/Megatron-LM#848",
    "attn.scale",
    idea="scale-twice",
    scale=lambda me: 1 / me.D,
)
bug(
    "none-softmax-over-queries",
    "none",
    "attn",
    "The softmax runs over the queries.",
    "labmlai/annotated_deep_learning_paper_implementations#282",
    "attn.softmax",
    softmax=lambda me, s, see: (
        right(me)
        .softmax(s.transpose(0, 1, 3, 2), np.broadcast_to(see, s.shape).transpose(0, 1, 3, 2))
        .transpose(0, 1, 3, 2)
    ),
)
bug(
    "rope-softmax-before-mask",
    "rope",
    "attn",
    "The mask zeroes probabilities after the softmax.",
    "stevezheng23/sequence_labeling_tf#70",
    "attn.softmax",
    softmax=lambda me, s, see: where(see, right(me).softmax(s, np.ones_like(see))),
)
bug(
    "none-softmax-plus-one",
    "none",
    "attn",
    "The denominator has 1 more.",
    "Dao-AILab/flash-attention#1819",
    "attn.softmax",
    softmax=lambda me, s, see: (lambda e: e / (e.sum(-1) + 1.0).reshape(*e.shape[:-1], 1))(
        where(see, exp(where(see, s, 0.0)))
    ),
)
bug(
    "none-padding-uniform",
    "none",
    "attn",
    "Rows that see nothing are uniform: -1e9 in place of minus infinity.",
    "pytorch/pytorch#131060",
    "mask.padding",
    idea="padding-uniform",
    softmax=lambda me, s, see: right(me).softmax(s, np.where(see.any(-1, keepdims=True), see, True)),
)
bug(
    "rope-padding-nan",
    "rope",
    "attn",
    "Rows that see nothing are NaN.",
    "pytorch/pytorch#103749",
    "mask.padding",
    idea="padding-nan",
    softmax=After(lambda me, p: like(p, lambda a: np.where(a.sum(-1, keepdims=True) == 0, np.nan, a))),
)
bug(
    "t5-padding-uniform",
    "t5",
    "attn",
    "A padded query looks at all keys alike.",
    "tracel-ai/burn#4697",
    "mask.padding",
    idea="padding-uniform",
    softmax=lambda me, s, see: right(me).softmax(s, np.where(see.any(-1, keepdims=True), see, True)),
)
bug(
    "none-heads-tiled",
    "none",
    "attn",
    "Key-value heads are tiled, not repeated.",
    "onnx/onnx#7274",
    "gqa.order",
    idea="gqa-tiled",
    reads=lambda me: np.arange(me.H) % me.G,
)
bug(
    "rope-heads-tiled",
    "rope",
    "attn",
    "Head h reads key-value head h % G.",
    "apple/axlearn#842",
    "gqa.order",
    idea="gqa-tiled",
    reads=lambda me: np.arange(me.H) % me.G,
)
bug(
    "alibi-heads-tiled",
    "alibi",
    "attn",
    "Tile in place of repeat for k and v.",
    "microsoft/onnxscript#2408",
    "gqa.order",
    idea="gqa-tiled",
    reads=lambda me: np.arange(me.H) % me.G,
)
bug(
    "none-values-tiled",
    "none",
    "attn",
    "k is repeated, v is tiled.",
    "jxiw/M1#4",
    "gqa.order",
    mix=lambda me, p, keys: einsum("bhts,bhsd->bhtd", p, keys["v"][:, np.arange(me.H) % me.G]),
)
bug(
    "rope-first-kv-head",
    "rope",
    "attn",
    "All query heads read the first key-value head.",
    "state-spaces/mamba#462",
    "gqa.order",
    reads=lambda me: np.zeros(me.H, int),
)
bug(
    "none-window-one-more",
    "none",
    "attn",
    "The window reaches window keys back, beside the query's own.",
    "huggingface/transformers#39408",
    "mask.window",
    idea="window-more",
    inside=lambda me, back: abs(back) <= me.window,
)
bug(
    "rope-window-one-less",
    "rope",
    "attn",
    "The window has one key too few.",
    "sgl-project/sglang#26147",
    "mask.window",
    idea="window-less",
    inside=lambda me, back: abs(back) < me.window - 1,
)
bug(
    "alibi-window-one-more",
    "alibi",
    "attn",
    "window_size = (window, 0) is inclusive.",
    "huggingface/transformers#40163",
    "mask.window",
    idea="window-more",
    inside=lambda me, back: abs(back) <= me.window,
)
bug(
    "none-window-ignored",
    "none",
    "attn",
    "The window is not applied.",
    "huggingface/candle#3698",
    "mask.window",
    idea="window-ignored",
    inside=lambda me, back: back == back,
)
bug(
    "none-window-past-only",
    "none",
    "attn",
    "In an encoder the window cuts the past alone.",
    "mit-han-lab/streaming-vlm#18",
    "mask.window",
    inside=lambda me, back: back < me.window,
)
bug(
    "none-strictly-causal",
    "none",
    "attn",
    "The diagonal is masked too.",
    "Project-MONAI/GenerativeModels#314",
    "mask.window mask.causal",
    visible=lambda me, *a: right(me).visible(*a) & (a[0][:, None] != a[1] if me.causal else True),
)
bug(
    "rope-causal-in-encoder",
    "rope",
    "attn",
    "The causal mask is on in an encoder.",
    "magenta/magenta#1486",
    "mask.causal",
    idea="causal-always",
    visible=lambda me, *a: right(me).visible(*a) & (a[0][:, None] >= a[1]),
)
bug(
    "alibi-causal-in-encoder",
    "alibi",
    "attn",
    "ALiBi's mask is causal whatever was asked for.",
    "lucidrains/x-transformers#88",
    "mask.causal",
    idea="causal-always",
    visible=lambda me, *a: right(me).visible(*a) & (a[0][:, None] >= a[1]),
)
bug(
    "none-future-seen",
    "none",
    "attn",
    "There is no causal mask.",
    "magenta/magenta#1486",
    "mask.causal law.causal mask.top_left",
    idea="no-mask",
    visible=lambda me, *a: (
        lambda c: (setattr(me, "causal", False), right(me).visible(*a), setattr(me, "causal", c))[1]
    )(me.causal),
)
bug(
    "none-documents-mixed",
    "none",
    "attn",
    "Packed documents see one another.",
    "huggingface/nanoVLM#204",
    "mask.documents",
    idea="documents",
    together=lambda me, a, b: (a != 0) & (b != 0),
)
bug(
    "rope-documents-mixed",
    "rope",
    "attn",
    "Positions restart, and the mask does not.",
    "alex-hh/profam#495",
    "mask.documents",
    idea="documents",
    together=lambda me, a, b: (a != 0) & (b != 0),
)
bug(
    "t5-documents-mixed",
    "t5",
    "attn",
    "One causal mask over all documents of a row.",
    "ServiceNow/Fast-LLM#177",
    "mask.documents",
    idea="documents",
    together=lambda me, a, b: (a != 0) & (b != 0),
)
bug(
    "none-padding-seen",
    "none",
    "attn",
    "Padding keys are seen by padding queries: equal numbers, 0 too.",
    "mosaicml/llm-foundry#1464",
    "mask.padding mask.documents",
    together=lambda me, a, b: a == b,
)
bug(
    "alibi-probabilities-f16",
    "alibi",
    "attn",
    "Probabilities are stored in float16 before they meet v.",
    "ggml-org/llama.cpp#7859",
    "",
    idea="probabilities-16",
    dtypes="f64 f32",
    softmax=After(lambda me, p: like(p, lambda a: a.astype(np.float16).astype(a.dtype))),
)
bug(
    "none-probabilities-bf16",
    "none",
    "attn",
    "The softmax is computed in bfloat16.",
    "Dao-AILab/flash-attention#2083",
    "",
    idea="probabilities-16",
    dtypes="f64 f32",
    softmax=After(lambda me, p: like(p, bf16)),
)

# CoPE.

bug(
    "cope-softmax-gates",
    "cope",
    "op",
    "Gates are summed from the first key, not from the key to the query.",
    "lucidrains/x-transformers#268",
    "cope.count",
    count=lambda me, g: cumsum(g, -1),
)
bug(
    "cope-key-left-out",
    "cope",
    "op",
    "The key's own gate is left out.",
    "lucidrains/x-transformers#268",
    "cope.count",
    count=lambda me, g: right(me).count(g) - g,
)
bug(
    "cope-future-counts",
    "cope",
    "attn",
    "Gates of the future are summed too.",
    "lucidrains/x-transformers#268",
    "cope.count",
    gates=lambda me, q, keys, see: right(me).gates(q, keys, np.ones_like(see)),
)
bug(
    "cope-rounded",
    "cope",
    "op",
    "The count is rounded down: no interpolation.",
    "lucidrains/x-transformers#268",
    "cope.interpolation",
    between=lambda me, a, b, t: a,
)
bug(
    "cope-neighbours-exchanged",
    "cope",
    "op",
    "The weights of the two rows change places.",
    "lucidrains/x-transformers#268",
    "cope.interpolation",
    between=lambda me, a, b, t: a * t + b * (1 - t),
)
bug(
    "cope-npos-one-more",
    "cope",
    "op",
    "The count is cut one row early, at npos - 2.",
    "lucidrains/x-transformers#268",
    "cope.count",
    where={"options": {"npos": 3}},
    cut=lambda me, p: (
        where(p.a < me.o["npos"] - 2, p, float(me.o["npos"] - 2)) if me.o["npos"] else right(me).cut(p)
    ),
)
bug(
    "cope-undivided",
    "cope",
    "op",
    "q e is not divided by sqrt(D).",
    "lucidrains/x-transformers#268",
    "cope.scale",
    share=lambda me: 1.0,
)
bug(
    "cope-gates-unscaled",
    "cope",
    "attn",
    "The gates' q k is not divided.",
    "lucidrains/x-transformers#268",
    "cope.scale",
    gates=lambda me, q, keys, see: where(
        see, sigmoid(einsum("bhtd,bhsd->bhts", q, keys["k"][:, me.reads()]))
    ),
)

# FIRE.

bug(
    "fire-min-for-max",
    "fire",
    "op",
    "min in place of max at the threshold.",
    "ReaLLMASIC/ReaLLM-Forge#134",
    "fire.normaliser",
    normaliser=lambda me, i: (
        -maximum(-absolute(me.p["m"] * me.o["threshold"]), -i.astype(me.work)[..., :, None])
    ),
)
bug(
    "fire-no-threshold",
    "fire",
    "op",
    "The query's position alone is the normaliser.",
    "meta-pytorch/torchtune#2325",
    "fire.normaliser",
    normaliser=lambda me, i: maximum(me.p["m"] * 0.0 + 1.0, i.astype(me.work)[..., :, None]),
)
bug(
    "fire-eps-inside",
    "fire",
    "op",
    "eps is added inside the logarithm.",
    "meta-pytorch/torchtune#2325",
    "fire.normaliser fire.formula",
    relative=lambda me, i, j: (
        me.psi(abs(i[..., :, None] - j[..., None, :]).astype(me.work))
        / me.psi(me.normaliser(i) + me.o["eps"])
    ),
)
bug(
    "fire-subtracts",
    "fire",
    "attn",
    "The logarithms are subtracted, not divided.",
    "ReaLLMASIC/ReaLLM-Forge#134",
    "fire.formula fire.normaliser",
    quotient=lambda me, a, b: a - b,
)
bug(
    "fire-linear",
    "fire",
    "op",
    "The distance goes in without the logarithm.",
    "meta-pytorch/torchtune#2325",
    "fire.formula",
    psi=lambda me, far: far * absolute(me.p["c"]) if isinstance(far, V) else absolute(me.p["c"]) * far,
)
bug(
    "fire-no-abs-c",
    "fire",
    "op",
    "c is used with its sign.",
    "ReaLLMASIC/ReaLLM-Forge#134",
    "fire.formula",
    psi=lambda me, far: log(
        absolute(me.p["c"] * far + 1) if not isinstance(far, V) else absolute(far * me.p["c"] + 1)
    ),
)
bug(
    "fire-gelu",
    "fire",
    "op",
    "tanh in the network, for relu.",
    "meta-pytorch/torchtune#2325",
    "fire.network",
    active=lambda me, y: tanh(y),
)
bug(
    "fire-relu-last",
    "fire",
    "attn",
    "relu after the last layer too.",
    "ReaLLMASIC/ReaLLM-Forge#134",
    "fire.network",
    network=After(lambda me, y: relu(y)),
)
bug(
    "fire-key-normaliser",
    "fire",
    "attn",
    "The key's position normalises, not the query's.",
    "meta-pytorch/torchtune#2325",
    "fire.normaliser",
    where={"options": {"threshold": 1.0}},
    relative=lambda me, i, j: me.quotient(
        me.psi(abs(i[..., :, None] - j[..., None, :]).astype(me.work)),
        me.psi(maximum(absolute(me.p["m"] * me.o["threshold"]), j.astype(me.work)[..., None, :])),
    ),
)

# Forgetting, DAPE.

bug(
    "forgetting-sigmoid",
    "forgetting",
    "op",
    "The gate is added without its logarithm.",
    "NISCHALPI/xLSTM-and-mLSTM#3",
    "forgetting.gate",
    gate=lambda me, z: sigmoid(z),
)
bug(
    "forgetting-negated",
    "forgetting",
    "op",
    "softplus(z) in place of -softplus(-z).",
    "anthony-chaudhary/fak#10761",
    "forgetting.gate bias.negated",
    gate=lambda me, z: -right(me).gate(z),
)
bug(
    "forgetting-key-included",
    "forgetting",
    "op",
    "The key's own gate is summed too.",
    "flashinfer-ai/flashinfer#2768",
    "forgetting.range",
    range=lambda me, c, f, T: right(me).range(c, f, T) + f.reshape(*f.shape[:2], 1, -1),
)
bug(
    "forgetting-query-left-out",
    "forgetting",
    "attn",
    "The query's own gate is left out.",
    "flashinfer-ai/flashinfer#2768",
    "forgetting.range",
    range=lambda me, c, f, T: right(me).range(c, f, T) - f[..., f.shape[2] - T :].reshape(*f.shape[:2], T, 1),
)
bug(
    "forgetting-key-left-out",
    "forgetting",
    "attn",
    "The key's and the query's gates: the sum runs from j + 2.",
    "flashinfer-ai/flashinfer#2768",
    "forgetting.range",
    range=lambda me, c, f, T: (
        lambda S: (
            right(me).range(c, f, T)
            - where(
                np.arange(S)[None, :] < np.arange(S - T, S)[:, None],
                f[..., np.minimum(np.arange(S) + 1, S - 1)].reshape(*f.shape[:2], 1, S),
            )
        )
    )(f.shape[2]),
)
bug(
    "forgetting-scaled",
    "forgetting",
    "attn",
    "The gates are divided by sqrt(D), as in PaTH's kernel.",
    "fla-org/flash-linear-attention#384",
    "bias.scale forgetting.gate",
    range=After(lambda me, b: b * me.D**-0.5),
)
bug(
    "forgetting-local-sums",
    "forgetting",
    "op",
    "The cumulative sum begins anew every four tokens.",
    "flashinfer-ai/flashinfer#2768",
    "forgetting.range",
    range=lambda me, c, f, T: (
        lambda S: right(me).range(stack([f[..., (s // 4) * 4 : s + 1].sum(-1) for s in range(S)], 2), f, T)
    )(f.shape[2]),
)
bug(
    "dape-bias-missing",
    "dape",
    "attn",
    "Only the network's output is added.",
    "chijames/KERPLE#2",
    "dape.bias",
    both=lambda me, b, y: y,
)
bug(
    "dape-relu",
    "dape",
    "op",
    "relu for the leaky one.",
    "chijames/KERPLE#2",
    "dape.network",
    active=lambda me, z: relu(z),
)
bug(
    "dape-order",
    "dape",
    "attn",
    "Biases come first into the network, then scores.",
    "jadore801120/attention-is-all-you-need-pytorch#120",
    "dape.network",
    order=lambda me, s, b: [b, s],
)
bug(
    "dape-slope",
    "dape",
    "op",
    "The leaky slope is 0.2.",
    "chijames/KERPLE#2",
    "dape.network",
    active=lambda me, z: where(z.a < 0, z * 0.2, z),
)
bug(
    "dape-scores-unscaled",
    "dape",
    "op",
    "The network sees undivided scores.",
    "cneuralnetwork/solving-ml-papers#1",
    "dape.network attn.scale",
    scale=lambda me: 1.0,
)

# Transformer-XL.

bug(
    "transformer_xl-shift-one",
    "transformer_xl",
    "op",
    "The relative shift is one row off.",
    "labmlai/annotated_deep_learning_paper_implementations#185",
    "xl.distance",
    distance=After(lambda me, d: d + 1),
)
bug(
    "transformer_xl-reversed",
    "transformer_xl",
    "op",
    "Distances run the other way: the table is not flipped.",
    "lucidrains/x-transformers#103",
    "xl.distance",
    distance=After(lambda me, d: -d),
)
bug(
    "transformer_xl-absolute",
    "transformer_xl",
    "attn",
    "|d| in an encoder: both sides are one.",
    "ZhengkunTian/OpenTransformer#25",
    "xl.distance",
    distance=After(lambda me, d: abs(d)),
)
bug(
    "transformer_xl-place-undivided",
    "transformer_xl",
    "op",
    "The place term is not divided.",
    "phlippe/uvadlc_notebooks#72",
    "xl.scale",
    share=lambda me: 1.0,
)
bug(
    "transformer_xl-uw-exchanged",
    "transformer_xl",
    "op",
    "u and w change places.",
    "kimiyoung/transformer-xl#132",
    "xl.terms",
    u=lambda me: me.p["w"],
    w=lambda me: me.p["u"],
)
bug(
    "transformer_xl-no-w",
    "transformer_xl",
    "attn",
    "w is missing in the place term.",
    "zihangdai/xlnet#97",
    "xl.terms",
    w=lambda me: me.p["w"] * 0.0,
)
bug(
    "transformer_xl-no-u",
    "transformer_xl",
    "op",
    "u is missing in the content term.",
    "CyberZHG/keras-xlnet#22",
    "xl.terms",
    u=lambda me: me.p["u"] * 0.0,
)
bug(
    "transformer_xl-alternating",
    "transformer_xl",
    "op",
    "Sines and cosines alternate in e_d.",
    "kimiyoung/transformer-xl#119",
    "sin.order",
    halves=lambda me, s, c: (
        np.stack([s, c], -1).reshape(*s.shape[:-1], -1)[..., : s.shape[-1]],
        np.stack([s, c], -1).reshape(*s.shape[:-1], -1)[..., s.shape[-1] :],
    ),
)
bug(
    "transformer_xl-clamp-ignored",
    "transformer_xl",
    "op",
    "clamp_len is not applied.",
    "kimiyoung/transformer-xl#132",
    "option xl.distance",
    distance=lambda me, i, j: i[..., :, None] - j[..., None, :],
)
bug(
    "transformer_xl-heads-last",
    "transformer_xl",
    "op",
    "The projection of e_d is cut [D, H], not [H, D].",
    "jadore801120/attention-is-all-you-need-pytorch#120",
    "bias.heads",
    row=lambda me, i, j: (
        lambda r: (
            lambda y: (
                y.transpose(y.ndim - 1, *range(y.ndim - 2), y.ndim - 2)
                if y.ndim == 4
                else y.transpose(0, 4, 1, 2, 3)
            )
        )(r.reshape(*r.shape[:-1], me.D, me.H))
    )(linear(V(me.waves(me.distance(i, j))), me.p["r.weight"])),
)

# Shaw, PaTH.

bug(
    "shaw-upside-down",
    "shaw",
    "attn",
    "i - j in place of j - i: the tables are upside down.",
    "lucidrains/bottleneck-transformer-pytorch#8",
    "shaw.rows",
    rows=lambda me, i, j: me.clip(i[..., :, None] - j[..., None, :]),
)
bug(
    "shaw-values-missing",
    "shaw",
    "attn",
    "The values' table is not used, as in relative_key.",
    "OpenNMT/OpenNMT-py#1244",
    "shaw.value",
    valued=lambda me, p, value: einsum("bhts,bhtsd->bhtd", p, value) * 0.0,
)
bug(
    "shaw-keys-unscaled",
    "shaw",
    "attn",
    "The relative term is not divided by sqrt(D).",
    "facebookresearch/fairseq#2225",
    "shaw.key attn.scale",
    keyed=lambda me, q, key: einsum("bhtd,bhtsd->bhts", q, key),
)
bug(
    "shaw-clip-early",
    "shaw",
    "attn",
    "Distances are clipped at max_distance - 1.",
    "google-research/google-research#893",
    "shaw.clip",
    clip=lambda me, r: np.clip(r, 1 - me.o["max_distance"], me.o["max_distance"] - 1) + me.o["max_distance"],
)
bug(
    "shaw-not-clipped",
    "shaw",
    "attn",
    "Distances are not clipped: they wrap in the table.",
    "huggingface/transformers#9164",
    "shaw.clip",
    clip=lambda me, r: (r + me.o["max_distance"]) % (2 * me.o["max_distance"] + 1),
)
bug(
    "shaw-value-rows-reversed",
    "shaw",
    "attn",
    "The values' rows run the other way.",
    "mead-ml/mead-baseline#425",
    "shaw.value shaw.rows",
    value_rows=lambda me, r: 2 * me.o["max_distance"] - r,
)
bug(
    "shaw-key-for-value",
    "shaw",
    "attn",
    "The keys' table is added to the values.",
    "spectraldoy/music-transformer#6",
    "shaw.value",
    shared=lambda me, name, r: right(me).shared("key", r),
)
bug(
    "path-beta-1",
    "path",
    "attn",
    "beta is a sigmoid without the 2.",
    "fla-org/flash-linear-attention#384",
    "path.beta",
    beta=lambda me, z: sigmoid(z),
)
bug(
    "path-w-not-unit",
    "path",
    "attn",
    "w is not brought to length 1.",
    "fla-org/flash-linear-attention#99",
    "path.w",
    features=lambda me, *a: (
        lambda f: {
            **f,
            "w": f["w"]
            * sqrt(
                (heads(silu_conv(me, f["z"]), me.G) * heads(silu_conv(me, f["z"]), me.G)).sum(-1) + 1e-6
            ).reshape(*f["w"].shape[:-1], 1),
        }
    )(right(me).features(*a)),
)
bug(
    "path-no-silu",
    "path",
    "attn",
    "No activation after the convolution.",
    "isyangshu/MambaMIL#21",
    "mix.activation path.w",
    features=lambda me, *a: (
        lambda f, w: {**f, "w": w / sqrt((w * w).sum(-1) + 1e-6).reshape(*w.shape[:-1], 1)}
    )(right(me).features(*a), heads(conv_of(me, right(me).features(*a)["z"]), me.G)),
)
bug(
    "path-key-map-too",
    "path",
    "attn",
    "The key's own map is applied to it as well.",
    "fla-org/flash-linear-attention#885",
    "path.order",
    attention=lambda me, q, i, keys, see: right(me).attention(
        q, i, {**keys, "k": me.moved(keys["k"], keys["w"], keys["beta"])}, see
    ),
)
bug(
    "path-added",
    "path",
    "attn",
    "I + beta w w' in place of I - beta w w'.",
    "fla-org/flash-linear-attention#623",
    "path.beta path.order",
    moved=lambda me, k, w, beta: right(me).moved(k, w, -beta),
)
bug(
    "path-conv-reversed",
    "path",
    "attn",
    "The taps of the convolution are reversed.",
    "tensorflow/models#10062",
    "mix.conv",
    idea="conv-reversed",
    conv=lambda me, z, tail, seg: reversed_conv(z, me.p["conv"], tail, seg),
)
bug(
    "path-gate-unscaled",
    "path",
    "attn",
    "The forget gate is never scaled, also where the kernel scales it.",
    "fla-org/flash-linear-attention#384",
    "option",
    gate_scale=lambda me: 1.0,
)


def conv_of(me, z):
    return z if me.o["kernel"] is None else me.conv(z, None, me.seg)


def silu_conv(me, z):
    u = conv_of(me, z)
    return u if me.o["kernel"] is None else u * sigmoid(u)


def reversed_conv(z, taps, tail, seg):

    return conv(z, taps[:, ::-1], tail, seg)
