"""Bugs of rows added to the embedding and of biases by distance, forward."""

import numpy as np

from .edits import After, bf16, bug, like, right
from .right.biases import raised
from .tape import V, exp, relu, sigmoid, silu, softplus
from .tape import log1p as tape_log1p

# Sinusoids.

bug(
    "sinusoidal-halves-for-alternating",
    "sinusoidal",
    "table op",
    "All sines, then all cosines, where they should alternate.",
    "allenai/allennlp#2993",
    "sin.order",
    order=lambda me, s, c: (
        right(me).order(s, c)
        if me.o["layout"] != "interleaved"
        else np.concatenate([s, c[..., : me.C // 2]], -1)
    ),
)
bug(
    "sinusoidal-alternating-for-halves",
    "sinusoidal",
    "table",
    "Sines and cosines alternate where they should be halves.",
    "tatp22/multidim-positional-encoding#20",
    "sin.order",
    order=lambda me, s, c: (
        right(me).order(s, c)
        if me.o["layout"] == "interleaved" or me.C % 2
        else np.stack([s, c], -1).reshape(*s.shape[:-1], me.C)
    ),
)
bug(
    "sinusoidal-cosine-first",
    "sinusoidal",
    "table op",
    "Cosines come first.",
    "tensorflow/tensor2tensor#1925",
    "sin.order",
    order=lambda me, s, c: right(me).order(c[..., : s.shape[-1]], s),
)
bug(
    "sinusoidal-endpoint-always",
    "sinusoidal",
    "table",
    "The exponent's divisor is half_dim - 1 everywhere.",
    "huggingface/blog#2183",
    "sin.denominator",
    ladder=lambda me: (lambda k, h: me.o["base"] ** (-k / max(h - 1, 1)))(
        np.arange((me.C + 1) // 2 if me.o["layout"] == "interleaved" else me.C // 2), me.C // 2
    ),
)
bug(
    "sinusoidal-exponent-of-channel",
    "sinusoidal",
    "table op",
    "Each channel has an exponent of its own: 2i/C of channel i.",
    "SamLynnEvans/Transformer#25",
    "sin.denominator",
    rows=lambda me, i: (
        right(me).rows(i)
        if me.o["learned"] or me.o["layout"] != "interleaved"
        else V(
            (
                lambda c: np.where(
                    c % 2 == 0,
                    np.sin(me.places(i)[..., None] * me.o["base"] ** (-2.0 * c / me.C)),
                    np.cos(me.places(i)[..., None] * me.o["base"] ** (-2.0 * c / me.C)),
                )
            )(np.arange(me.C)).astype(me.work)
        )
    ),
)
bug(
    "sinusoidal-cos-one-on",
    "sinusoidal",
    "table",
    "The cosine's exponent is that of its own channel, one further than the sine's.",
    "maxjcohen/transformer#62",
    "sin.denominator",
    rows=lambda me, i: (
        right(me).rows(i)
        if me.o["learned"] or me.o["layout"] != "interleaved"
        else V(
            (
                lambda c: np.where(
                    c % 2 == 0,
                    np.sin(me.places(i)[..., None] * me.o["base"] ** (-c / me.C)),
                    np.cos(me.places(i)[..., None] * me.o["base"] ** (-c / me.C)),
                )
            )(np.arange(me.C)).astype(me.work)
        )
    ),
)
bug(
    "sinusoidal-floor-division",
    "sinusoidal",
    "table",
    "-ln(base) / C // 2 by precedence: all frequencies collapse.",
    "zju3dv/LoFTR#41",
    "sin.denominator",
    ladder=After(lambda me, w: np.exp(np.arange(len(w)) * 2 * np.floor(-np.log(me.o["base"]) / me.C / 2))),
)
bug(
    "sinusoidal-base-1000",
    "sinusoidal",
    "table op",
    "10000 is mistyped as 1000.",
    "maxjcohen/transformer#62",
    "rope.base.ignored option sin.denominator",
    ladder=lambda me: (
        lambda o: (setattr(me, "o", {**o, "base": 1000.0}), right(me).ladder(), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "sinusoidal-base-fixed",
    "sinusoidal",
    "table",
    "The base is 10000 whatever was set.",
    "tensorflow/tensor2tensor#1591",
    "option rope.base.ignored",
    idea="base-ignored-embed",
    ladder=lambda me: (
        lambda o: (setattr(me, "o", {**o, "base": 10000.0}), right(me).ladder(), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "sinusoidal-one-row-for-all",
    "sinusoidal",
    "op",
    "The row of the last position is added to every token.",
    "DiffPoseTalk/DiffPoseTalk#20",
    "embed.rows position.counted",
    places=After(lambda me, i: i[..., -1:] + 0 * i),
)
bug(
    "sinusoidal-one-late",
    "sinusoidal",
    "op",
    "Positions begin at 1, as after a padding index.",
    "facebookresearch/fairseq#4648",
    "position.off_by_one embed.rows",
    idea="one-late",
    places=After(lambda me, i: i + 1),
)
bug(
    "sinusoidal-scaled",
    "sinusoidal",
    "op",
    "The rows are multiplied by sqrt(C).",
    "lucidrains/x-transformers#252",
    "embed.scale",
    idea="embed-scaled",
    rows=After(lambda me, y: y * np.sqrt(me.C)),
)
bug(
    "sinusoidal-scale-dropped",
    "sinusoidal",
    "table",
    "The learned scale is not applied.",
    "lucidrains/x-transformers#252",
    "option embed.scale",
    rows=lambda me, i: (
        lambda o: (setattr(me, "o", {**o, "learned": False}), right(me).rows(i), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "sinusoidal-bf16",
    "sinusoidal",
    "table",
    "Frequencies are cast to bfloat16.",
    "InternLM/InternLM#237",
    "rope.phase.low_precision",
    idea="phase-precision-embed",
    ladder=After(lambda me, w: bf16(w.astype(float))),
)
bug(
    "sinusoidal-no-positions",
    "sinusoidal",
    "table op",
    "Rows are counted from 0, whatever positions were given.",
    "tensorflow/tensor2tensor#177",
    "position.counted",
    idea="positions-ignored",
    places=After(lambda me, i: np.broadcast_to(np.arange(i.shape[-1]), i.shape).astype(i.dtype)),
)

# Learned rows.

bug(
    "learned-two-late",
    "learned",
    "table op",
    "Row i + 2, as in OPT's table with two rows more.",
    "huggingface/transformers#20761",
    "embed.rows position.off_by_one",
    index=After(lambda me, i: (i + 2) % me.L),
)
bug(
    "learned-clamped-early",
    "learned",
    "table",
    "Rows beyond half of the table are clamped.",
    "huggingface/transformers#15292",
    "embed.rows rope.table.clip",
    index=After(lambda me, i: np.minimum(i, me.L // 2)),
)
bug(
    "learned-one-row",
    "learned",
    "op",
    "The same row is added to all tokens.",
    "DiffPoseTalk/DiffPoseTalk#20",
    "embed.rows",
    index=After(lambda me, i: i[..., :1] + 0 * i),
)
bug(
    "learned-counted",
    "learned",
    "table op",
    "Rows 0, 1, 2, ... whatever positions are given, so left padding shifts them.",
    "ndif-team/nnsight#673",
    "position.counted embed.rows",
    idea="positions-ignored",
    index=After(lambda me, i: np.broadcast_to(np.arange(i.shape[-1]), i.shape)),
)
bug(
    "learned-first-of-batch",
    "learned",
    "op",
    "All sequences read the rows of the first.",
    "PaddlePaddle/PaddleNLP#6616",
    "position.batch",
    idea="first-of-batch",
    index=After(lambda me, i: i if i.ndim < 2 else np.broadcast_to(i[:1], i.shape)),
)
bug(
    "learned-scaled",
    "learned",
    "op",
    "Rows are multiplied by sqrt(C) with the token embedding.",
    "huggingface/transformers#19240",
    "embed.scale",
    idea="embed-scaled",
    rows=After(lambda me, y: y * np.sqrt(me.C)),
)
bug(
    "learned-unit-ignored",
    "learned",
    "table",
    "Rows are not brought to length 1 where that is asked.",
    "lucidrains/x-transformers#252",
    "option embed.scale",
    rows=lambda me, i: me.gather(me.p["table"], me.index(i)),
)

# ALiBi.

bug(
    "alibi-exponent-from-0",
    "alibi",
    "table op",
    "The first head has slope 1: exponents from h = 0.",
    "paiml/aprender#2143",
    "alibi.slopes.exponent",
    powers=lambda me, H: [2 ** (-me.o["max_bias"] * h / H) for h in range(H)],
)
bug(
    "alibi-exponent-1",
    "alibi",
    "table",
    "2^(-h/H): the 8 is missing.",
    "jinmang2/AdvancedTransformers#4",
    "alibi.slopes.exponent",
    powers=lambda me, H: [2 ** (-h / H) for h in range(1, H + 1)],
)
bug(
    "alibi-uniform",
    "alibi",
    "table op",
    "One geometric row for any number of heads.",
    "ml-explore/mlx#3071",
    "alibi.slopes.non_pow2",
    slopes_of=lambda me, H: np.array(me.powers(H)),
)
bug(
    "alibi-extras-even",
    "alibi",
    "table",
    "The extra slopes are every second from the second on.",
    "NVIDIA/TensorRT-LLM#1611",
    "alibi.slopes.non_pow2",
    more=lambda me, most: me.powers(2 * most)[1::2],
)
bug(
    "alibi-extras-first",
    "alibi",
    "table",
    "The extra slopes are the first of twice that many, without skipping.",
    "huggingface/transformers#28380",
    "alibi.slopes.non_pow2",
    more=lambda me, most: me.powers(2 * most),
)
bug(
    "alibi-sorted",
    "alibi",
    "attn",
    "The slopes are sorted.",
    "baichuan-inc/Baichuan2#225",
    "alibi.slopes.non_pow2 bias.heads",
    slopes_of=After(lambda me, m: np.sort(m)[::-1]),
)
bug(
    "alibi-heads-reversed",
    "alibi",
    "table op",
    "The last head has the steepest slope.",
    "antofuller/CROMA#12",
    "bias.heads",
    idea="heads-reversed",
    slopes_of=After(lambda me, m: m[::-1]),
)
bug(
    "alibi-one-slope",
    "alibi",
    "op",
    "All heads share the first slope.",
    "Dao-AILab/flash-attention#796",
    "bias.heads",
    idea="one-head-for-all",
    slopes_of=After(lambda me, m: m[:1] + 0 * m),
)
bug(
    "alibi-added",
    "alibi",
    "table op",
    "The bias grows with the distance: the sign is wrong.",
    "meta-pytorch/attention-gym#86",
    "bias.negated",
    idea="bias-negated",
    values=After(
        lambda me, b: -b if isinstance(b, V) or np.isfinite(b).all() else np.where(np.isfinite(b), -b, b)
    ),
)
bug(
    "alibi-inside-scale",
    "alibi",
    "attn",
    "The bias is added before the division by sqrt(D), as in Falcon.",
    "NVIDIA/TensorRT-Model-Connect#32",
    "bias.scale",
    idea="bias-inside",
    add=lambda me, s, b: s + b * me.D**-0.5,
)
bug(
    "alibi-distance-from-1",
    "alibi",
    "op",
    "The token itself is one away.",
    "vllm-project/vllm#945",
    "bias.off_by_one",
    idea="distance-one-more",
    distance=lambda me, d: abs(d) + 1,
)
bug(
    "alibi-position-of-key",
    "alibi",
    "attn",
    "m times the key's position, and scores are compared.",
    "ofirpress/attention_with_linear_biases#9",
    "",
    apart=lambda me, i, j: (me.i.max() - j)[..., None, :] + 0 * right(me).apart(i, j),
)
bug(
    "alibi-max-bias-8",
    "alibi",
    "table",
    "max_bias is 8 whatever was set.",
    "mosaicml/llm-foundry#186",
    "option alibi.slopes.exponent",
    powers=lambda me, H: [2 ** (-8.0 * h / H) for h in range(1, H + 1)],
)
bug(
    "alibi-future-clamped",
    "alibi",
    "attn",
    "Keys in the future get bias 0 in an encoder.",
    "ofirpress/attention_with_linear_biases#5",
    "bias.sign option mask.causal",
    idea="future-clamped",
    distance=lambda me, d: np.maximum(d, 0),
)
bug(
    "alibi-bf16-distances",
    "alibi",
    "table",
    "Slope times distance is computed in bfloat16.",
    "huggingface/transformers#17866",
    "rope.phase.low_precision",
    idea="bias-precision",
    dtypes="f64 f32",
    values=After(lambda me, b: like(b, bf16)),
)
bug(
    "alibi-learned-not-exp",
    "alibi",
    "table",
    "The logarithms of learned slopes are used as slopes.",
    "lucidrains/x-transformers#147",
    "option alibi.slopes.exponent",
    values=lambda me, d: (
        right(me).values(d)
        if me.o["slopes"] != "learned"
        else me.column(me.p["log_slopes"][0], d) * -abs(d).astype(me.work)
    ),
)
bug(
    "alibi-slots",
    "alibi",
    "op attn",
    "Distances are of slots, whatever positions were given.",
    "PaddlePaddle/PaddleNLP#6495",
    "position.counted",
    idea="positions-ignored",
    apart=lambda me, i, j: right(me).apart(np.arange(j.shape[-1])[-i.shape[-1] :], np.arange(j.shape[-1])),
)
bug(
    "alibi-halves-slopes-of-all",
    "alibi",
    "table",
    "Both halves of the heads go on in one row of slopes.",
    "lucidrains/x-transformers#88",
    "alibi.slopes.non_pow2 option alibi.slopes.exponent bias.heads",
    values=lambda me, d: (
        right(me).values(d)
        if me.o["directions"] != "halves"
        else np.where(np.isfinite(right(me).values(d)), -me.column(me.slopes_of(me.H), d) * abs(d), -np.inf)
    ),
)

# T5.

bug(
    "t5-log2-floats",
    "t5",
    "table",
    "The bucket's logarithm is taken in float16.",
    "mindspore-lab/mindone#670",
    "bias.bucket.border",
    far=lambda me, n, m, e: np.minimum(
        m - 1,
        e
        + np.floor(
            (
                np.log(np.minimum(n / e, 60000).astype(np.float16))
                / np.float16(np.log(me.o["max_distance"] / e))
                * np.float16(m - e)
            ).astype(float)
        ).astype(int),
    ),
)
bug(
    "t5-ceil",
    "t5",
    "table op",
    "The logarithm is rounded up.",
    "huggingface/candle#727",
    "bias.bucket.border",
    far=lambda me, n, m, e: np.minimum(
        m - 1, e + np.ceil(np.log(n / e) / np.log(me.o["max_distance"] / e) * (m - e)).astype(int)
    ),
)
bug(
    "t5-border-one-more",
    "t5",
    "table",
    "The logarithm is taken of n - 1, counted from 0.",
    "lucidrains/x-transformers#10",
    "bias.bucket.border",
    far=lambda me, n, m, e: right(me).far(np.maximum(n - 1, e), m, e),
)
bug(
    "t5-not-clamped",
    "t5",
    "table",
    "Far distances go on beyond the last bucket and wrap.",
    "ml-explore/mlx-examples#113",
    "bias.bucket.clamp",
    far=lambda me, n, m, e: (
        (e + np.floor(np.log(n / e) / np.log(me.o["max_distance"] / e) * (m - e) + 1e-9).astype(int)) % m
    ),
)
bug(
    "t5-max-distance-fixed",
    "t5",
    "table",
    "max_distance is 128 whatever was set.",
    "huggingface/candle#1312",
    "option bias.bucket.border bias.bucket.clamp",
    far=lambda me, n, m, e: (
        lambda o: (setattr(me, "o", {**o, "max_distance": 128}), right(me).far(n, m, e), setattr(me, "o", o))[
            1
        ]
    )(me.o),
)
bug(
    "t5-bidirectional-in-decoder",
    "t5",
    "table op",
    "The decoder's buckets are halved for two sides.",
    "huggingface/transformers#8518",
    "t5.bidirectional",
    sides=lambda me, d: (abs(d), me.o["buckets"] // 2, me.o["buckets"] // 2 * (d < 0)),
)
bug(
    "t5-causal-in-encoder",
    "t5",
    "attn",
    "The encoder counts the future as 0, with all buckets for the past.",
    "dmlc/gluon-nlp#1470",
    "t5.bidirectional",
    sides=lambda me, d: (np.maximum(d, 0), me.o["buckets"], 0),
)
bug(
    "t5-sides-exchanged",
    "t5",
    "table op",
    "The past has the upper half of the buckets.",
    "pytorch/text#1830",
    "t5.bidirectional bias.sign",
    sides=lambda me, d: right(me).sides(d) if me.causal else right(me).sides(-d),
)
bug(
    "t5-sign",
    "t5",
    "attn",
    "key minus query is taken as query minus key.",
    "pytorch/text#1831",
    "bias.sign",
    idea="bias-sign",
    apart=lambda me, i, j: -right(me).apart(i, j),
)
bug(
    "t5-scaled",
    "t5",
    "attn",
    "q k is divided by sqrt(D).",
    "pytorch/text#1812",
    "attn.scale",
    idea="t5-scale",
    scale=lambda me: me.D**-0.5,
)
bug(
    "t5-bias-scaled",
    "t5",
    "attn",
    "The bias is multiplied by sqrt(D), for a kernel that divides.",
    "huggingface/transformers#47014",
    "bias.scale",
    idea="bias-outside",
    add=lambda me, s, b: s + b * me.D**0.5,
)
bug(
    "t5-heads-reversed",
    "t5",
    "op",
    "The table's heads are read backwards.",
    "OpenNMT/CTranslate2#1713",
    "bias.heads",
    idea="heads-reversed",
    gather=After(lambda me, b: b[..., ::-1]),
)
bug(
    "t5-table-reshaped",
    "t5",
    "table op",
    "[buckets, H] is reshaped to [H, buckets] where it should be transposed.",
    "jinmang2/AdvancedTransformers#8",
    "bias.heads bias.rows",
    gather=lambda me, rows: (
        me.p["table"].reshape(me.H, -1)[:, rows].transpose(*range(1, np.ndim(rows) + 1), 0)
    ),
)
bug(
    "t5-transposed",
    "t5",
    "op",
    "Rows are keys, columns queries.",
    "heykeetae/Self-Attention-GAN#11",
    "bias.transposed",
    idea="bias-transposed",
    op=After(lambda me, y: {"bias": y["bias"].transpose(0, 2, 1)}),
)

# Learned biases, KERPLE, Sandwich, MLP.

bug(
    "learned_bias-reversed",
    "learned_bias",
    "table op",
    "The table is read from the other end.",
    "microsoft/Swin-Transformer#281",
    "bias.rows bias.sign",
    rows=After(lambda me, r: me.p["table"].shape[1] - 1 - r),
)
bug(
    "learned_bias-one-on",
    "learned_bias",
    "table op",
    "Row d + 1.",
    "huggingface/transformers#9164",
    "bias.rows bias.off_by_one",
    idea="row-one-on",
    rows=After(lambda me, r: np.minimum(r + 1, me.p["table"].shape[1] - 1)),
)
bug(
    "learned_bias-sign",
    "learned_bias",
    "attn",
    "j - i in place of i - j.",
    "lucidrains/bottleneck-transformer-pytorch#8",
    "bias.sign",
    idea="bias-sign",
    apart=lambda me, i, j: -right(me).apart(i, j),
)
bug(
    "learned_bias-clip-early",
    "learned_bias",
    "table",
    "Distances are cut one too early.",
    "google-research/google-research#892",
    "bias.rows bias.bucket.clamp",
    rows=lambda me, d: (
        right(me).rows(d)
        if me.o["max_distance"] is None
        else right(me).rows(np.clip(d, 1 - me.o["max_distance"], me.o["max_distance"] - 1))
    ),
)
bug(
    "learned_bias-one-head",
    "learned_bias",
    "op",
    "The first head's row serves all.",
    "microsoft/Swin-Transformer#14",
    "bias.heads",
    idea="one-head-for-all",
    gather=After(lambda me, b: b[[0] * me.H]),
)
bug(
    "learned_bias-transposed",
    "learned_bias",
    "op",
    "The bias is indexed [key, query].",
    "JingyunLiang/SwinIR#61",
    "bias.transposed bias.sign",
    idea="bias-transposed",
    op=After(lambda me, y: {"bias": y["bias"].transpose(0, 2, 1)}),
)
bug(
    "learned_bias-inside-scale",
    "learned_bias",
    "attn",
    "The bias is divided by sqrt(D) with the scores.",
    "microsoft/Swin-Transformer#348",
    "bias.scale",
    idea="bias-inside",
    add=lambda me, s, b: s + b * me.D**-0.5,
)
bug(
    "kerple_log-no-softplus",
    "kerple_log",
    "table op",
    "The raw parameters are used, without softplus.",
    "chijames/KERPLE#2",
    "kerple.parameters",
    positive=lambda me, name: me.p[name],
)
bug(
    "kerple_log-exchanged",
    "kerple_log",
    "table",
    "r1 and r2 change places.",
    "NVIDIA-NeMo/Speech#8896",
    "kerple.parameters",
    positive=lambda me, name: softplus(me.p[{"r1": "r2", "r2": "r1"}[name]]),
)
bug(
    "kerple_log-log2",
    "kerple_log",
    "table",
    "The logarithm is of base 2.",
    "chijames/KERPLE#2",
    "kerple.formula",
    logarithm=lambda me, x: tape_log1p(x) * (1 / np.log(2)),
)
bug(
    "kerple_log-added",
    "kerple_log",
    "attn",
    "The bias is added, not subtracted.",
    "chijames/KERPLE#2",
    "bias.negated",
    idea="bias-negated",
    values=After(lambda me, b: -b),
)
bug(
    "kerple_log-exp-for-softplus",
    "kerple_log",
    "op",
    "exp keeps the parameters positive in place of softplus.",
    "chijames/KERPLE#2",
    "kerple.parameters",
    positive=lambda me, name: exp(me.p[name]),
)
bug(
    "kerple_power-squared",
    "kerple_power",
    "table op",
    "The exponent is 2 for all heads.",
    "chijames/KERPLE#2",
    "kerple.formula kerple.parameters",
    second=lambda me: 2 * sigmoid(me.p["r2"]) * 0.0 + 2.0,
)
bug(
    "kerple_power-no-two",
    "kerple_power",
    "table",
    "The exponent is a sigmoid without the 2.",
    "NVIDIA-NeMo/Speech#8896",
    "kerple.parameters kerple.formula",
    second=lambda me: sigmoid(me.p["r2"]),
)
bug(
    "kerple_power-inside",
    "kerple_power",
    "table",
    "(r1 |d|)^r2 in place of r1 |d|^r2.",
    "chijames/KERPLE#2",
    "kerple.formula",
    values=lambda me, d: (
        -exp(me.column(me.second(), d) * 0.0)
        * raised(abs(d).astype(me.work), me.column(me.second(), d))
        * exp(
            me.column(me.second(), d) * np.log(np.logaddexp(0, me.p["r1"].a)).reshape(-1, *[1] * np.ndim(d))
        )
    ),
)
bug(
    "sandwich-heads-from-0",
    "sandwich",
    "table op",
    "h counts from 0, shifted to avoid a division by zero.",
    "NVIDIA-NeMo/Speech#8896",
    "sandwich.formula",
    shares=lambda me: me.H / (8 * np.maximum(np.arange(me.H), 1)),
)
bug(
    "sandwich-8h-over-H",
    "sandwich",
    "table",
    "The sum is multiplied by 8h/H.",
    "NVIDIA-NeMo/Speech#8896",
    "sandwich.formula",
    shares=lambda me: 8 * np.arange(1, me.H + 1) / me.H,
)
bug(
    "sandwich-width-of-head",
    "sandwich",
    "table",
    "The waves are those of half the width.",
    "NVIDIA-NeMo/Speech#8896",
    "sandwich.formula option",
    waves=lambda me: right(me).waves()[::2],
)
bug(
    "sandwich-sine",
    "sandwich",
    "op",
    "Sines in place of cosines.",
    "kimiyoung/transformer-xl#119",
    "sandwich.formula",
    values=lambda me, d: (
        me.column(me.shares(), d).astype(me.work)
        * (
            np.sin(d.astype(me.work)[..., None] * me.waves().astype(me.work)).sum(-1)
            - (me.o["width"] / 2 if me.o["form"] == "nemo" else 0)
        )
    ),
)
bug(
    "dynamic_bias-relu",
    "dynamic_bias",
    "table op",
    "relu between the layers, for silu.",
    "lucidrains/x-transformers#88",
    "dynamic_bias.network option",
    active=lambda me, x: relu(x),
)
bug(
    "dynamic_bias-active-last",
    "dynamic_bias",
    "table",
    "The activation comes after the last layer too.",
    "microsoft/Swin-Transformer#224",
    "dynamic_bias.network",
    last=lambda me, y: right(me).last(silu(y)),
)
bug(
    "dynamic_bias-log-unsigned",
    "dynamic_bias",
    "table",
    "ln(1 + |d|) has lost the sign of d.",
    "minyoungpark1/swin_transformer_v2_jax#1",
    "dynamic_bias.network bias.sign",
    given=lambda me, d: np.log1p(abs(d).astype(me.work)) if me.o["distance"] == "log" else d.astype(me.work),
)
bug(
    "dynamic_bias-log2",
    "dynamic_bias",
    "table",
    "log2(1 + |d|) / log2(8), as in Swin V2.",
    "microsoft/Swin-Transformer#224",
    "dynamic_bias.network",
    given=After(lambda me, x: x / np.log(8) if me.o["distance"] == "log" else x),
)
bug(
    "dynamic_bias-distance-negated",
    "dynamic_bias",
    "attn",
    "j - i goes into the network.",
    "wandb/senpai#747",
    "bias.sign dynamic_bias.network",
    idea="bias-sign",
    apart=lambda me, i, j: -right(me).apart(i, j),
)
bug(
    "dynamic_bias-16-missing",
    "dynamic_bias",
    "table",
    "The sigmoid of the output is not multiplied by 16.",
    "microsoft/Swin-Transformer#224",
    "dynamic_bias.network option bias.scale",
    last=lambda me, y: sigmoid(y) if me.o["output"] == "sigmoid" else y,
)
