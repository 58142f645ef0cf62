"""Bugs of attention that turns otherwise where keys are far, of PoPE, and of DeBERTa's two terms."""

import numpy as np

from .edits import After, bug, cut, right
from .tape import absolute, relu

CHUNKS = "vllm-project/vllm#6139"
EXTEND = "ggml-org/llama.cpp#6921"

bug(
    "rerope-window-inclusive",
    "rerope",
    "attn",
    "The window has one token more: the step begins a token late.",
    "microsoft/onnxruntime#25927",
    "rerope.window",
    near=After(lambda me, w: w + 1),
)
bug(
    "rerope-window-of-text",
    "rerope",
    "attn",
    "The window is a quarter of the length trained for.",
    "sgl-project/sglang#1106",
    "rerope.window",
    near=lambda me: max(1, me.L // 4),
)
bug(
    "rerope-far-from-0",
    "rerope",
    "attn",
    "Beyond the window the step counts from position 0.",
    "ZhengkunTian/OpenTransformer#28",
    "rerope.far rerope.leak",
    far=lambda me, i, j: me.o["leak"] * (i - j),
)
bug(
    "rerope-leak-whole",
    "rerope",
    "attn",
    "The step is added to the window from the query on, not from where the window ends.",
    "ZhengkunTian/OpenTransformer#28",
    "rerope.leak",
    far=lambda me, i, j: me.near() + me.o["leak"] * (i - j),
)
bug(
    "self_extend-window-inclusive",
    "self_extend",
    "attn",
    "Neighbours are the keys up to a distance of neighbor_window, that one too.",
    "microsoft/onnxruntime#25927",
    "self_extend.window",
    between=lambda me, i, j: np.where(
        i - j <= me.neighbours(), i - j, me.group(i) + me.shift() - me.group(j)
    ),
)
bug(
    "self_extend-no-shift",
    "self_extend",
    "attn",
    "Groups of queries are not shifted to where the neighbours end.",
    EXTEND,
    "self_extend.shift",
    shift=lambda me: 0.0,
)
bug(
    "self_extend-shift-not-rounded",
    "self_extend",
    "attn",
    "The shift is w - w/g, not rounded.",
    EXTEND,
    "self_extend.shift",
    shift=lambda me: me.neighbours() - me.neighbours() / me.o["group_size"],
)
bug(
    "self_extend-difference-grouped",
    "self_extend",
    "attn",
    "The distance is divided, not both positions.",
    EXTEND,
    "self_extend.group",
    between=lambda me, i, j: np.where(
        i - j < me.neighbours(), i - j, np.floor((i - j) / me.o["group_size"]) + me.shift()
    ),
)
bug(
    "self_extend-group-rounded",
    "self_extend",
    "attn",
    "Groups are rounded to the nearest.",
    EXTEND,
    "self_extend.group",
    group=lambda me, i: np.rint(i / me.o["group_size"]),
)
bug(
    "dual_chunk-whole-chunks",
    "dual_chunk",
    "attn",
    "Chunks have the size that was trained for: local_window is not taken off.",
    CHUNKS,
    "dual_chunk.length",
    sizes=lambda me: (right(me).sizes()[0],) * 2,
)
bug(
    "dual_chunk-one-less",
    "dual_chunk",
    "attn",
    "Queries end one place earlier, as in the paper where the code is asked for, or the other way round.",
    CHUNKS,
    "dual_chunk.last option",
    last=lambda me: (lambda m, c: (m, min(2 * c - 1, m)) if me.o["ends"] == "paper" else (m - 1, m - 1))(
        *me.sizes()
    ),
)
bug(
    "dual_chunk-no-successive",
    "dual_chunk",
    "attn",
    "The chunk before is read as those before it.",
    "vllm-project/vllm#21694",
    "dual_chunk.before",
    successive=lambda me, i: np.zeros_like(i) + me.last()[1],
)
bug(
    "dual_chunk-successive-unbounded",
    "dual_chunk",
    "attn",
    "Queries of the chunk before go on beyond the size that was trained for.",
    CHUNKS,
    "dual_chunk.before",
    successive=lambda me, i: i % me.sizes()[1] + me.sizes()[1],
)
bug(
    "dual_chunk-keys-whole",
    "dual_chunk",
    "attn",
    "Keys turn by their position, not by their place in the chunk.",
    "vllm-project/flash-attention#60",
    "dual_chunk.length",
    between=lambda me, i, j: right(me).between(i, j) + j % me.sizes()[1] - j,
)
bug(
    "pope-no-delta",
    "pope",
    "attn",
    "The learned phase is left out.",
    "ZhengkunTian/OpenTransformer#28",
    "pope.delta",
    phase=lambda me: right(me).phase() * 0.0,
)
bug(
    "pope-delta-sign",
    "pope",
    "attn",
    "The learned phase has the other sign.",
    "ZhengkunTian/OpenTransformer#28",
    "pope.delta",
    phase=lambda me: -right(me).phase(),
)
bug(
    "pope-relu",
    "pope",
    "attn",
    "Magnitudes are relu in place of softplus.",
    "state-spaces/mamba#281",
    "pope.magnitude",
    magnitude=lambda me, x: relu(x),
)
bug(
    "pope-absolute",
    "pope",
    "attn",
    "Magnitudes are absolute values.",
    "state-spaces/mamba#281",
    "pope.magnitude",
    magnitude=lambda me, x: absolute(x),
)
bug(
    "pope-pairs",
    "pope",
    "attn",
    "Frequencies are RoPE's: one for two channels.",
    "shenweichen/DeepCTR#379",
    "pope.frequency",
    frequencies=lambda me: me.o["base"] ** (-2.0 * (np.arange(me.D) // 2) / me.D),
)
bug(
    "pope-delta-cut",
    "pope",
    "attn",
    "The learned phase has no gradient.",
    "huggingface/candle#3568",
    "grad.zero",
    phase=cut(),
)
bug(
    "deberta-p2c-sign",
    "deberta",
    "op",
    "Keys read the row of j - i.",
    "nntrainer/nntrainer#3982",
    "deberta.rows",
    bias=lambda me, q, i, keys, see: mirrored(me, q, i, keys, see),
)
bug(
    "deberta-distance-sign",
    "deberta",
    "op",
    "Both read the row of j - i.",
    "microsoft/DeBERTa#162",
    "deberta.rows",
    distance=After(lambda me, d: -d),
)
bug(
    "deberta-c2p-alone",
    "deberta",
    "op",
    "Keys meet no distance.",
    "microsoft/DeBERTa#47",
    "deberta.terms",
    terms=lambda me, of_queries, of_keys: of_queries + of_keys * 0.0,
)
bug(
    "deberta-p2c-alone",
    "deberta",
    "op",
    "Queries meet no distance.",
    "microsoft/DeBERTa#47",
    "deberta.terms",
    terms=lambda me, of_queries, of_keys: of_queries * 0.0 + of_keys,
)
bug(
    "deberta-terms-by-root-d",
    "deberta",
    "op",
    "The terms of distance are divided by sqrt(D).",
    "keras-team/keras-hub#435",
    "deberta.scale",
    share=lambda me: me.D**-0.5,
)
bug(
    "deberta-scores-by-root-d",
    "deberta",
    "attn",
    "q k is divided by sqrt(D), its terms by sqrt(3 D).",
    "keras-team/keras-hub#435",
    "deberta.scale",
    scale=lambda me: me.D**-0.5,
)
bug(
    "deberta-floor",
    "deberta",
    "op",
    "Buckets are rounded down.",
    "nntrainer/nntrainer#3931",
    "deberta.bucket",
    rounded=lambda me, x: np.floor(x + 1e-9),
)
bug(
    "deberta-no-buckets",
    "deberta",
    "op",
    "Distances are clipped, as in the first version: there are no buckets.",
    "huggingface/transformers#10018",
    "deberta.bucket",
    bucket=lambda me, n: n,
)
bug(
    "deberta-query-bias",
    "deberta",
    "op",
    "The bias of the vectors that keys meet is not loaded.",
    "huggingface/transformers#5929",
    "deberta.terms",
    vectors=lambda me: without_bias(me),
)


def mirrored(me, q, i, keys, see):
    """The term of queries as it is, that of keys with distances of the other sign."""
    part = lambda only: setattr(me, "terms", only) or right(me).bias(q, i, keys, see)
    mine = part(lambda a, b: a + b * 0.0)
    me.distance = lambda i, j: -right(me).distance(i, j)
    theirs = part(lambda a, b: a * 0.0 + b)
    del me.distance, me.terms
    return mine + theirs


def without_bias(me):
    K, Q = right(me).vectors()
    return K, Q - me.p["query.bias"].reshape(me.H, 1, me.D)
