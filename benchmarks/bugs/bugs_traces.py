"""Bugs of caches: positions, masks, biases, features and states that do not go on as they should."""

import numpy as np

from .edits import bf16, bug, right
from .tape import V, join

TWICE = {"positions": lambda i: 2 * i}


def size(cache):
    return cache["k"].shape[2] if cache else 0


def restarts(me, first, stop, cache):
    """Positions of a call count from that of its first token in the whole text: 0."""
    i = me.i[..., first:stop]
    return i - i[..., :1]


def doubled(me, first, stop, cache):
    """The offset is added by the caller and by the cache."""
    return me.i[..., first:stop] + size(cache)


def late(me, first, stop, cache):
    return me.i[..., first:stop] + (1 if cache else 0)


def early(me, first, stop, cache):
    return me.i[..., first:stop] - (1 if cache else 0)


def frozen(me, first, stop, cache):
    """All tokens of a call have the position of its first."""
    i = me.i[..., first:stop]
    return i[..., :1] + 0 * i if cache else i


def slots(me, first, stop, cache):
    """The place in the cache is the position."""
    i = me.i[..., first:stop]
    return np.broadcast_to(np.arange(size(cache), size(cache) + stop - first), i.shape)


def kept(me, cache):
    return cache


def token_twice(me, x, i, seg, state):
    """A call that goes on from a cache first takes the last token of the call before once more."""
    if state:
        state = right(me).run(state["last"], i, seg, state)[1] | {"last": state["last"]}
    y, new = right(me).run(x, i, seg, {k: s for k, s in state.items() if k != "last"})
    return y, new | {"last": x[:, -1:]}


def positions(name, encoding, wrong, thread, accepts, idea, how, where=None):
    bug(name, encoding, "trace", wrong, thread, accepts, idea=idea, where=where, call_positions=how)


positions(
    "rope-restarts",
    "rope",
    "Each call counts its positions from 0.",
    "Blaizzy/mlx-vlm#1983",
    "cache.position_restarts",
    "restarts",
    restarts,
)
positions(
    "yarn-restarts",
    "yarn",
    "Decoding turns every token at position 0.",
    "RobertCsordas/moeut#6",
    "cache.position_restarts",
    "restarts",
    restarts,
)
positions(
    "mrope-restarts",
    "mrope",
    "The offset of the cache is lost in decoding.",
    "Blaizzy/mlx-vlm#1619",
    "cache.position_restarts",
    "restarts",
    restarts,
)
positions(
    "alibi-restarts",
    "alibi",
    "The new token's position is 0.",
    "keras-team/keras-hub#2861",
    "cache.position_restarts",
    "restarts",
    restarts,
)
positions(
    "transformer_xl-restarts",
    "transformer_xl",
    "Distances are of the segment alone, without its memory.",
    "lucidrains/x-transformers#103",
    "cache.position_restarts xl.distance",
    "restarts",
    restarts,
)
positions(
    "learned_bias-restarts",
    "learned_bias",
    "The bias is cut from its top left corner.",
    "lucidrains/x-transformers#153",
    "cache.position_restarts",
    "restarts",
    restarts,
)
positions(
    "rope-offset-doubled",
    "rope",
    "The cache's length is added twice.",
    "microsoft/onnxruntime-genai#2354",
    "position.off_by_one cache.position_restarts",
    "offset-doubled",
    doubled,
)
positions(
    "llama3-offset-doubled",
    "llama3",
    "position_ids have the offset already, and the layer adds it again.",
    "Comfy-Org/ComfyUI#15698",
    "position.off_by_one cache.position_restarts",
    "offset-doubled",
    doubled,
)
positions(
    "t5-offset-doubled",
    "t5",
    "The query's offset is added twice.",
    "huggingface/candle#899",
    "position.off_by_one cache.position_restarts",
    "offset-doubled",
    doubled,
)
positions(
    "fire-offset-doubled",
    "fire",
    "The query's position has the cache's length twice.",
    "keras-team/keras-hub#2932",
    "position.off_by_one cache.position_restarts",
    "offset-doubled",
    doubled,
)
positions(
    "rope-decode-late",
    "rope",
    "Decoding begins one position late.",
    "Physical-Intelligence/openpi#705",
    "position.off_by_one",
    "decode-late",
    late,
)
positions(
    "kerple_log-decode-late",
    "kerple_log",
    "New keys and queries stand one further.",
    "scouzi1966/maclocal-api#92",
    "position.off_by_one",
    "decode-late",
    late,
)
positions(
    "axial-decode-early",
    "axial",
    "Decoding repeats the last position.",
    "QwenLM/Qwen#401",
    "position.off_by_one",
    "decode-early",
    early,
)
positions(
    "dynamic_bias-decode-early",
    "dynamic_bias",
    "Decoding begins one position early.",
    "vllm-project/vllm#945",
    "position.off_by_one",
    "decode-early",
    early,
)
positions(
    "rope-window-frozen",
    "rope",
    "All tokens of a call have the position of its first.",
    "jundot/omlx#2363",
    "",
    "frozen",
    frozen,
)
positions(
    "pi-window-frozen",
    "pi",
    "A window of draft tokens is turned at one position.",
    "jundot/omlx#2363",
    "",
    "frozen",
    frozen,
)
positions(
    "rope-slots",
    "rope",
    "The place in the cache is taken for the position.",
    "vllm-project/vllm#54498",
    "position.counted cache.ring_positions",
    "slots",
    slots,
    TWICE,
)
positions(
    "alibi-slots-in-cache",
    "alibi",
    "Distances are of cache slots.",
    "PaddlePaddle/PaddleNLP#6496",
    "position.counted cache.ring_positions",
    "slots",
    slots,
    TWICE,
)

# What is left of an earlier text.

for name, encoding, wrong, thread in (
    ("rope-not-cleared", "rope", "The keys of the text before are still there.", "Lightning-AI/litgpt#1647"),
    ("none-not-cleared", "none", "A new text goes on behind the old one.", "mudler/LocalAI#6747"),
    (
        "t5-not-cleared",
        "t5",
        "Each token is there twice: the cache is not cleared.",
        "ggml-org/llama.cpp#7859",
    ),
    (
        "forgetting-not-cleared",
        "forgetting",
        "Keys and gates of the text before remain.",
        "Simple-Efficient/RL-Factory#47",
    ),
):
    bug(name, encoding, "trace", wrong, thread, "cache.not_cleared", idea="not-cleared", begin=kept)
for name, encoding, wrong, thread in (
    (
        "mamba-state-stale",
        "mamba",
        "The recurrent state of the request before is not zeroed.",
        "Luce-Org/lucebox#210",
    ),
    ("rwkv6-state-stale", "rwkv6", "The state is not reset between texts.", "NVIDIA/TensorRT-LLM#14509"),
    ("retnet-state-stale", "retnet", "The state of the last text begins the next.", "Luce-Org/lucebox#210"),
    ("s4d-state-stale", "s4d", "A slot is used again with its state.", "vllm-project/vllm#53084"),
):
    bug(name, encoding, "trace", wrong, thread, "cache.not_cleared", idea="state-stale", begin=kept)
bug(
    "rwkv7-shift-stale",
    "rwkv7",
    "trace",
    "The state is reset, the token of the shift is not.",
    "ooples/AiDotNet#1557",
    "cache.not_cleared",
    begin=lambda me, s: {"x": s["x"]} if s else {},
)
bug(
    "mamba-conv-stale",
    "mamba",
    "trace",
    "The state is reset, the rows of the convolution are not.",
    "vllm-project/vllm#56196",
    "cache.not_cleared",
    begin=lambda me, s: {"z": s["z"]} if s else {},
)
bug(
    "sinusoidal-offset-stale",
    "sinusoidal",
    "trace",
    "The offset of the text before is added to a new call's rows.",
    "facebookresearch/fairseq#4648",
    "cache.not_cleared cache.position_restarts position.off_by_one embed.rows",
    call_positions=lambda me, first, stop, past: me.i[..., first:stop] + past,
)
bug(
    "learned-rows-restart",
    "learned",
    "trace",
    "Each call reads the table from row 0.",
    "EleutherAI/gpt-neox#650",
    "cache.position_restarts",
    idea="rows-restart",
    call_positions=restarts,
)
bug(
    "sinusoidal-rows-restart",
    "sinusoidal",
    "trace",
    "Each decoding step gets the row of position 0.",
    "OpenNMT/OpenNMT-py#1244",
    "cache.position_restarts",
    idea="rows-restart",
    call_positions=restarts,
)
bug(
    "learned-decode-late",
    "learned",
    "trace",
    "Decoding reads one row further.",
    "huggingface/transformers#36537",
    "position.off_by_one embed.rows",
    call_positions=lambda me, first, stop, past: np.minimum(me.i[..., first:stop] + (past > 0), me.L - 1),
)

# Masks.

for name, encoding, wrong, thread in (
    (
        "none-mask-top-left",
        "none",
        "The causal mask of a chunk is aligned with the first key.",
        "onnx/onnx#8068",
    ),
    (
        "rope-mask-top-left",
        "rope",
        "is_causal of a chunk sees the beginning of the text alone.",
        "pytorch/executorch#21749",
    ),
    (
        "alibi-mask-top-left",
        "alibi",
        "Query t of a chunk sees keys up to t.",
        "gittensor-ai-lab/sparkinfer#3",
    ),
    ("xpos-mask-top-left", "xpos", "The mask of a chunk begins at key 0.", "huggingface/candle#3743"),
):
    bug(
        name,
        encoding,
        "trace",
        wrong,
        thread,
        "mask.top_left",
        idea="top-left",
        query_slots=lambda me, T, S: np.arange(T),
    )
for name, encoding, wrong, thread in (
    (
        "none-chunk-not-causal",
        "none",
        "A chunk through the cache has no causal mask.",
        "ROCm/rocm-libraries#10999",
    ),
    ("mrope-chunk-not-causal", "mrope", "Tokens of a chunk see later ones of it.", "tinygrad/tinygrad#15182"),
):
    bug(
        name,
        encoding,
        "trace",
        wrong,
        thread,
        "law.causal mask.top_left mask.causal",
        idea="chunk-not-causal",
        query_slots=lambda me, T, S: np.full(T, S - 1),
    )
bug(
    "none-chunk-alone",
    "none",
    "trace",
    "A chunk attends to itself alone: the cache is written and not read.",
    "paiml/realizar#94",
    "cache.state_dropped mask.top_left",
    idea="cache-ignored",
    append=lambda me, cache, new: new,
)
bug(
    "rope-chunk-alone",
    "rope",
    "trace",
    "Every call begins with an empty cache.",
    "AI-Hypercomputer/maxtext#1272",
    "cache.state_dropped mask.top_left",
    idea="cache-ignored",
    append=lambda me, cache, new: new,
)
bug(
    "none-query-not-in-cache",
    "none",
    "trace",
    "The new tokens' own keys are not seen until the next call.",
    "openvinotoolkit/openvino#37648",
    "mask.window mask.top_left",
    query_slots=lambda me, T, S: np.arange(S - T, S) - (1 if S > T else 0),
)


def rolled(me, cache, new):
    """A rolling cache that drops keys before the call's first tokens have seen them."""
    whole = right(me).append(cache, new)
    if me.window is None or not cache:
        return whole
    drop = max(whole["k"].shape[2] - max(me.window, new["k"].shape[2]), 0)
    return {k: x[:, :, drop:] if k in ("k", "v") else x[..., drop:] for k, x in whole.items()}


bug(
    "none-window-late",
    "none",
    "trace",
    "Old keys are dropped before the first tokens of a chunk have seen them.",
    "ollama/ollama#15591",
    "cache.window_late",
    idea="window-late",
    append=rolled,
)
bug(
    "rope-window-late",
    "rope",
    "trace",
    "The rolling cache is trimmed to the window before the call.",
    "eole-nlp/eole#182",
    "cache.window_late",
    idea="window-late",
    append=rolled,
)
bug(
    "alibi-ring-place",
    "alibi",
    "trace",
    "A key's place in the ring is taken for its position.",
    "JustVugg/colibri#830",
    "cache.ring_positions",
    apart=lambda me, i, j: right(me).apart(i, j if me.window is None else np.arange(j.shape[-1]) % me.window),
)
bug(
    "rope-cache-window-more",
    "rope",
    "trace",
    "In decoding the window has one key more.",
    "microsoft/onnxruntime-genai#2334",
    "mask.window",
    inside=lambda me, back: abs(back) <= me.window,
)
bug(
    "none-window-forgotten-in-cache",
    "none",
    "trace",
    "Decoding sees all that is in the cache.",
    "ModelTC/LightLLM#1312",
    "mask.window",
    inside=lambda me, back: back == back,
)

# Biases in a cache.

for name, encoding, wrong, thread in (
    (
        "t5-dropped-on-decode",
        "t5",
        "As soon as there is a cache no bias is added.",
        "NVIDIA/TensorRT-LLM#13870",
    ),
    ("alibi-dropped-on-decode", "alibi", "Decoding runs without ALiBi.", "keras-team/keras-hub#2977"),
    (
        "kerple_power-dropped-on-decode",
        "kerple_power",
        "The cached path leaves the bias out.",
        "NVIDIA/TensorRT-LLM#13919",
    ),
    ("fire-dropped-on-decode", "fire", "The kernel for decoding has no bias.", "meta-pytorch/torchtune#2325"),
    (
        "sandwich-dropped-on-decode",
        "sandwich",
        "No bias once the scores are not square.",
        "keras-team/keras-hub#2862",
    ),
):
    bug(
        name,
        encoding,
        "trace",
        wrong,
        thread,
        "t5.bias.dropped_on_decode",
        idea="bias-dropped",
        bias=lambda me, q, i, keys, see: (
            None if q.shape[2] < keys["k"].shape[2] else right(me).bias(q, i, keys, see)
        ),
    )


def first_rows(me, i, j):
    """The first rows of the bias, not the last, for the queries of a call."""
    return right(me).apart(j[..., : i.shape[-1]], j)


bug(
    "t5-first-rows",
    "t5",
    "trace",
    "The first rows of the bias are cut for the new tokens, not the last.",
    "huggingface/candle#899",
    "t5.bias.dropped_on_decode cache.position_restarts",
    idea="bias-first-rows",
    apart=first_rows,
)
bug(
    "learned_bias-first-rows",
    "learned_bias",
    "trace",
    "bias[:, :T, :S] in place of its last T rows.",
    "lucidrains/x-transformers#153",
    "t5.bias.dropped_on_decode cache.position_restarts",
    idea="bias-first-rows",
    apart=first_rows,
)
bug(
    "alibi-of-new-tokens",
    "alibi",
    "trace",
    "The bias is built for the new tokens and padded with zeros for the cached.",
    "vllm-project/vllm#1009",
    "t5.bias.dropped_on_decode",
    values=lambda me, d: right(me).values(np.where(np.arange(d.shape[-1]) < d.shape[-1] - d.shape[-2], 0, d)),
)

# Frequencies that change while keys are cached.

bug(
    "dynamic_ntk-by-cache-length",
    "dynamic_ntk",
    "trace",
    "Each call turns with the base of the length so far.",
    "huggingface/transformers#25104",
    "rope.ntk.cache_mixed_bases",
    call=lambda me, first, stop, n, cache: right(me).call(first, stop, size(cache) + stop - first, cache),
)
bug(
    "dynamic_ntk-not-reset",
    "dynamic_ntk",
    "trace",
    "The longest length so far decides for the next text too.",
    "huggingface/transformers#25306",
    "rope.ntk.long_then_short",
    call_length=lambda me, c: (setattr(me, "most", max(getattr(me, "most", 0), c["n"])), me.most)[1],
)
bug(
    "dynamic_ntk-first-length",
    "dynamic_ntk",
    "trace",
    "The length of the first call decides for all.",
    "huggingface/transformers#27033",
    "rope.ntk.static_as_dynamic rope.ntk.long_then_short rope.ntk.cache_mixed_bases",
    call_length=lambda me, c: me.calls[0]["n"],
)
bug(
    "longrope-by-cache-length",
    "longrope",
    "trace",
    "Short factors at first, long ones when the text has grown.",
    "openvinotoolkit/openvino#37682",
    "rope.longrope.cache_mixed",
    call=lambda me, first, stop, n, cache: right(me).call(
        first, stop, min(n, size(cache) + stop - first), cache
    ),
)
bug(
    "longrope-query-long",
    "longrope",
    "trace",
    "Queries turn by the long factors, keys by the short.",
    "huggingface/optimum-intel#1504",
    "rope.longrope.cache_mixed",
    turned=lambda me, x, i, n, side: right(me).turned(
        x, i, n if side == "q" else min(n, me.original()), side
    ),
)
bug(
    "dynamic_ntk-query-longer",
    "dynamic_ntk",
    "trace",
    "Keys are cached by the original base, queries turn by the grown one.",
    "huggingface/transformers#27227",
    "rope.ntk.cache_mixed_bases",
    turned=lambda me, x, i, n, side: right(me).turned(x, i, n if side == "q" else me.original(), side),
)
bug(
    "xpos-centre-moves",
    "xpos",
    "trace",
    "The gains are centred at half of the length so far: cached keys have another centre.",
    "lucidrains/x-transformers#233",
    "rope.xpos.gain",
    power=lambda me, i: (np.asarray(i)[..., None] - (int(np.max(i)) + 1) // 2) / me.o["scale_base"],
)


def again(me, cache, new):
    """Keys that are cached turned are turned once more when they are read."""
    if cache:
        cache = {**cache, "k": right(me).turned(cache["k"], cache["i"], me.n, "k")}
    return right(me).append(cache, new)


bug(
    "rope-turned-again",
    "rope",
    "trace",
    "Cached keys are turned again at every call.",
    "cactus-compute/cactus#792",
    "rope.one_of_two",
    idea="turned-again",
    append=again,
)
bug(
    "llama3-turned-again",
    "llama3",
    "trace",
    "Cached keys come out of the cache turned, and are turned.",
    "huggingface/transformers#24653",
    "rope.one_of_two",
    idea="turned-again",
    append=again,
)
bug(
    "rope-cached-raw",
    "rope",
    "trace",
    "Keys go into the cache before they turn, and are never turned.",
    "huggingface/transformers#24653",
    "rope.one_of_two",
    append=lambda me, cache, new: right(me).append(cache, new),
    kept=lambda me, first, stop, i, n, cache: (
        {**right(me).kept(first, stop, i, n, cache), "k": me.new("k", first, stop)}
        if cache
        else right(me).kept(first, stop, i, n, cache)
    ),
)

# Features beside keys, states, tails.

bug(
    "forgetting-gates-dropped",
    "forgetting",
    "trace",
    "Gates of cached tokens are lost: 0.",
    "fla-org/flash-linear-attention#355",
    "cache.features_dropped",
    append=lambda me, cache, new: right(me).append(
        {**cache, "forget": cache["forget"] * 0.0} if cache else cache, new
    ),
)
bug(
    "forgetting-gates-restart",
    "forgetting",
    "trace",
    "The cumulative sum begins anew in each call.",
    "flashinfer-ai/flashinfer#2768",
    "cache.features_dropped forgetting.range",
    range=lambda me, c, f, T: (
        lambda S: right(me).range(
            join([c[..., : S - T], c[..., S - T :] - c[..., S - T - 1 : S - T]], 2) if S > T else c, f, T
        )
    )(f.shape[2]),
)
bug(
    "path-keys-not-rewritten",
    "path",
    "trace",
    "Maps of cached tokens are lost: cached keys are not moved by them.",
    "fla-org/flash-linear-attention#859",
    "cache.features_dropped",
    append=lambda me, cache, new: right(me).append(
        {**cache, "beta": cache["beta"] * 0.0} if cache else cache, new
    ),
)
bug(
    "cope-new-keys-only",
    "cope",
    "trace",
    "Counts run over the keys of the call alone.",
    "lucidrains/x-transformers#268",
    "cope.count cache.features_dropped",
    gates=lambda me, q, keys, see: right(me).gates(
        q, keys, see & (np.arange(see.shape[-1]) >= see.shape[-1] - q.shape[2])
    ),
)


for name, encoding, wrong, thread, keep in (
    (
        "mamba-state-dropped",
        "mamba",
        "previous_states is always zero.",
        "huggingface/transformers#46084",
        "z",
    ),
    ("retnet-state-dropped", "retnet", "Each call begins with a state of zeros.", "syncdoth/RetNet#10", ""),
    (
        "rwkv6-state-dropped",
        "rwkv6",
        "The wkv state is not handed on.",
        "fla-org/flash-linear-attention#285",
        "x",
    ),
    ("rwkv7-state-dropped", "rwkv7", "The final state is not returned.", "ooples/AiDotNet#1557", "x"),
    ("s4d-state-dropped", "s4d", "A call begins at zero.", "state-spaces/mamba#127", ""),
    (
        "rwkv4-state-dropped",
        "rwkv4",
        "Sums of the tokens before are lost.",
        "huggingface/transformers#22797",
        "x",
    ),
):
    bug(
        name,
        encoding,
        "trace",
        wrong,
        thread,
        "cache.state_dropped",
        idea="state-dropped",
        after=lambda me, old, new, keep=keep: {k: x for k, x in new.items() if k in keep},
    )
for name, encoding, wrong, thread, drop in (
    (
        "mamba-tail-dropped",
        "mamba",
        "The convolution sees zeros at the start of a call.",
        "huggingface/transformers#46873",
        "z",
    ),
    (
        "rwkv4-tail-dropped",
        "rwkv4",
        "The token shift sees zero at the start of a call.",
        "ggml-org/llama.cpp#11445",
        "x",
    ),
    (
        "rwkv6-tail-dropped",
        "rwkv6",
        "The last row of a call is not kept for the shift.",
        "ggml-org/llama.cpp#11445",
        "x",
    ),
    ("rwkv7-tail-dropped", "rwkv7", "x of the call before is not kept.", "BlinkDL/ChatRWKV#27", "x"),
):
    bug(
        name,
        encoding,
        "trace",
        wrong,
        thread,
        "cache.tail_dropped",
        idea="tail-dropped",
        after=lambda me, old, new, drop=drop: {k: x for k, x in new.items() if k != drop},
    )
bug(
    "path-tail-dropped",
    "path",
    "trace",
    "The short convolution sees zeros at the start of a call.",
    "fla-org/flash-linear-attention#285",
    "cache.tail_dropped",
    idea="tail-dropped",
    conv=lambda me, z, tail, seg: right(me).conv(z, None, seg),
)
bug(
    "mamba-tail-of-call",
    "mamba",
    "trace",
    "After a call shorter than the convolution its tail has only that call's rows.",
    "vllm-project/vllm#56196",
    "cache.tail_dropped",
    after=lambda me, old, new: {**new, "z": new["z"] if "z" not in old else new["z"][:, old["z"].shape[1] :]},
)
bug(
    "rwkv6-state-not-updated",
    "rwkv6",
    "trace",
    "Decoding reads the state of the prompt and does not write it.",
    "vllm-project/vllm#53084",
    "cache.state_dropped",
    idea="state-kept-old",
    after=lambda me, old, new: {**new, "S": old["S"]} if old else new,
)
bug(
    "s4d-state-not-updated",
    "s4d",
    "trace",
    "The state stays that of the first call.",
    "LMCache/LMCache#5004",
    "cache.state_dropped",
    idea="state-kept-old",
    after=lambda me, old, new: old or new,
)
bug(
    "mamba-token-twice",
    "mamba",
    "trace",
    "The last token of a restored prefix is put into the state once more.",
    "LMCache/LMCache#5249",
    "",
    run=token_twice,
)
bug(
    "retnet-positions-restart",
    "retnet",
    "trace",
    "The angles of each call begin at 0.",
    "microsoft/torchscale#77",
    "cache.position_restarts",
    idea="mix-restarts",
    call_positions=lambda me, first, stop, state: me.i[..., first:stop] - me.i[..., first : first + 1],
)
bug(
    "retnet-state-not-decayed",
    "retnet",
    "trace",
    "The state is not decayed between calls.",
    "Jamie-Stirling/RetNet#34",
    "retnet.decay cache.state_dropped",
    after=lambda me, old, new: {**new, "S": new["S"] * (1 / me.decays())[:, None, None].astype(me.work)},
)
bug(
    "rwkv7-state-bf16",
    "rwkv7",
    "trace",
    "The state is stored in bfloat16 between calls.",
    "vllm-project/tpu-inference#2408",
    "",
    idea="state-16",
    dtypes="f64 f32",
    after=lambda me, old, new: {**new, "S": V(bf16(new["S"].a))},
)
bug(
    "mamba-state-f16",
    "mamba",
    "trace",
    "The state is stored in float16 between calls.",
    "NVIDIA/TensorRT-LLM#14509",
    "",
    idea="state-16",
    dtypes="f64 f32",
    after=lambda me, old, new: {**new, "h": V(new["h"].a.astype(np.float16).astype(me.work))},
)
bug(
    "rope-cache-bf16",
    "rope",
    "trace",
    "Keys and values are cached in bfloat16.",
    "ggml-org/llama.cpp#7859",
    "",
    idea="kv-16",
    dtypes="f64 f32",
    after=lambda me, cache: {**cache, "k": V(bf16(cache["k"].a)), "v": V(bf16(cache["v"].a))},
)


bug(
    "shaw-restarts",
    "shaw",
    "trace",
    "r is made of the new tokens' own numbers.",
    "OpenNMT/CTranslate2#849",
    "cache.position_restarts",
    idea="score-restarts",
    call_positions=restarts,
)
bug(
    "dape-restarts",
    "dape",
    "trace",
    "The static bias of a cached call starts from 0.",
    "chijames/KERPLE#2",
    "cache.position_restarts",
    idea="score-restarts",
    call_positions=restarts,
)
bug(
    "cope-not-cleared",
    "cope",
    "trace",
    "Keys of the text before are counted.",
    "lucidrains/x-transformers#268",
    "cache.not_cleared",
    idea="not-cleared",
    begin=kept,
)
bug(
    "p_rope-decode-late",
    "p_rope",
    "trace",
    "Decoded tokens are one position late.",
    "microsoft/onnxruntime-genai#2354",
    "position.off_by_one",
    idea="decode-late",
    call_positions=late,
)
bug(
    "ntk_by_parts-frozen",
    "ntk_by_parts",
    "trace",
    "All drafts of a call are turned at its first position.",
    "jundot/omlx#2363",
    "",
    idea="frozen",
    call_positions=frozen,
)
