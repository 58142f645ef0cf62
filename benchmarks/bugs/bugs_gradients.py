"""Bugs of the backward pass: the values are right, derivatives are not."""

import numpy as np

from .edits import After, Backward, bug, cut, grads, returned, right
from .tape import V, einsum, log, through


def forwards(me, x, c, s, g, side="q"):
    """The cotangent is turned by the angle, as in the forward direction."""
    y = right(me).turn(x, c, s, g, side)
    return V(y.a, (x, lambda d: right(me).turn(V(d), c, s, g, side).a))


def not_at_all(me, x, c, s, g, side="q"):
    return V(right(me).turn(x, c, s, g, side).a, (x, lambda d: d))


def without_gain(me, x, c, s, g, side="q"):
    y = right(me).turn(x, c, s, g, side)
    return V(y.a, (x, lambda d: right(me).turn(V(d), c, -s, None, side).a))


def inverse_gain(me, x, c, s, g, side="q"):
    return V(
        right(me).turn(x, c, s, g, side).a,
        (x, lambda d: right(me).turn(V(d), c, -s, None if g is None else 1 / g, side).a),
    )


def rest_dropped(me, x):
    return through(x, lambda d: d * 0)


# Rotations.

bug(
    "rope-no-backward",
    "rope",
    "op",
    "The fused rotation has no backward: no gradient reaches q and k.",
    "huggingface/candle#3568",
    "grad.zero",
    idea="turn-no-backward",
    turned=cut(),
)
bug(
    "llama3-no-backward",
    "llama3",
    "attn",
    "The rotation is detached from the graph.",
    "paiml/aprender#2092",
    "grad.zero",
    idea="turn-no-backward",
    turned=cut(),
)
bug(
    "axial-no-backward",
    "axial",
    "op",
    "The 2-D kernel is called outside of autograd.",
    "baidu-baige/LoongForge#106",
    "grad.zero",
    idea="turn-no-backward",
    turned=cut(),
)
bug(
    "rope-backward-forwards",
    "rope",
    "op",
    "The backward pass turns forward: the sine is not negated.",
    "huggingface/candle#3612",
    "grad.rotation",
    idea="turn-forwards",
    back=True,
    turn=forwards,
)
bug(
    "yarn-backward-forwards",
    "yarn",
    "attn",
    "The gradient is turned by the angle, not by minus the angle.",
    "PaddlePaddle/Paddle#54985",
    "grad.rotation",
    idea="turn-forwards",
    back=True,
    turn=forwards,
)
bug(
    "mrope-backward-forwards",
    "mrope",
    "op",
    "The same kernel serves forward and backward.",
    "ngxson/llama.cpp#59",
    "grad.rotation",
    idea="turn-forwards",
    back=True,
    turn=forwards,
)
bug(
    "pi-backward-not-turned",
    "pi",
    "op",
    "The cotangent is handed on without being turned.",
    "huggingface/candle#3612",
    "grad.rotation",
    idea="turn-none",
    back=True,
    turn=not_at_all,
)
bug(
    "yarn-backward-no-gain",
    "yarn",
    "op",
    "The magnitude is missing in the backward pass.",
    "sgl-project/sglang#33558",
    "grad.rotation",
    idea="turn-no-gain",
    back=True,
    turn=without_gain,
)
bug(
    "longrope-backward-no-gain",
    "longrope",
    "op",
    "The backward pass has cosines without the attention factor.",
    "deepspeedai/DeepSpeed#8052",
    "grad.rotation",
    idea="turn-no-gain",
    back=True,
    turn=without_gain,
)
bug(
    "xpos-backward-inverse",
    "xpos",
    "op",
    "The backward pass divides by the gain.",
    "lucidrains/x-transformers#117",
    "grad.rotation",
    back=True,
    turn=inverse_gain,
)
bug(
    "rope-rest-no-gradient",
    "rope",
    "op",
    "Channels beyond the rotary width get no gradient.",
    "HKUSTDial/flash-sparse-attention#109",
    "grad.passthrough",
    idea="rest-dropped",
    back=True,
    passed=rest_dropped,
)
bug(
    "llama3-rest-no-gradient",
    "llama3",
    "attn",
    "Gradients of the channels that pass are lost.",
    "huggingface/transformers#48652",
    "grad.passthrough",
    idea="rest-dropped",
    where={"facts": {"R": 2}},
    back=True,
    passed=rest_dropped,
)
bug(
    "rope-k-no-gradient",
    "rope",
    "attn",
    "k is turned in place and detached.",
    "paiml/aprender#2203",
    "grad.zero",
    answer=returned("k", lambda me, g: g * 0),
)
bug(
    "rope-q-sign",
    "rope",
    "op",
    "The gradient of q has the other sign.",
    "JuliaSmoothOptimizers/JSOSolvers.jl#165",
    "grad.sign",
    idea="grad-sign",
    answer=returned("q", lambda me, g: -g),
)
bug(
    "rope-frequency-no-gradient",
    "rope",
    "table",
    "Learned frequencies get no gradient: the table is a buffer.",
    "lucidrains/rotary-embedding-torch#11",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.frequency", lambda me, g: g * 0),
)
bug(
    "rope-frequency-mean",
    "rope",
    "table",
    "The gradient of the frequencies is a mean over the tokens.",
    "nntrainer/nntrainer#4023",
    "grad.factor",
    idea="grad-mean",
    answer=returned("param.frequency", lambda me, g: g / me.T),
)

# Attention.


def gathered(f):
    """f of the gradient of k as the query heads see it, [B,H,S,D], in q k."""
    return lambda me, q, k: einsum("bhtd,bhsd->bhts", q, through(k[:, me.reads()], lambda d: f(me, d)))


def first_of_group(me, d):
    return d * (np.arange(me.H) % (me.H // me.G) == 0)[:, None, None]


bug(
    "none-group-first",
    "none",
    "attn",
    "The gradient of k is that of the first query head of each group.",
    "fla-org/flash-linear-attention#384",
    "grad.sum",
    idea="group-first",
    back=True,
    products=gathered(first_of_group),
)
bug(
    "rope-group-last",
    "rope",
    "attn",
    "Query heads of a group overwrite each other's gradient of k.",
    "marin-community/levanter#449",
    "grad.sum",
    idea="group-first",
    back=True,
    products=gathered(
        lambda me, d: d * (np.arange(me.H) % (me.H // me.G) == me.H // me.G - 1)[:, None, None]
    ),
)
bug(
    "alibi-group-mean",
    "alibi",
    "attn",
    "The gradients of k and v are means over the group.",
    "XunhaoLai/native-sparse-attention-triton#27",
    "grad.factor",
    idea="group-mean",
    answer=returned("[kv]", lambda me, g: g * me.G / me.H),
)
bug(
    "none-group-tiled",
    "none",
    "attn",
    "The gradient of k goes back to heads as if they had been tiled.",
    "XunhaoLai/native-sparse-attention-triton#27",
    "grad.heads_permuted gqa.order",
    back=True,
    products=lambda me, q, k: (
        lambda kk: einsum(
            "bhtd,bhsd->bhts",
            q,
            V(
                kk.a,
                (
                    k,
                    lambda d: sum(
                        (np.eye(me.G)[h % me.G][None, :, None, None] * d[:, h : h + 1] for h in range(me.H)),
                        0 * k.a,
                    ),
                ),
            ),
        )
    )(k[:, me.reads()]),
)
bug(
    "none-value-heads-permuted",
    "none",
    "attn",
    "dv is written [B,S,G,D] and read [B,G,S,D].",
    "ooples/AiDotNet.Tensors#49",
    "grad.heads_permuted",
    answer=returned("v", lambda me, g: g.transpose(0, 2, 1, 3).reshape(g.shape)),
)


def softmax_grad(f):
    def softmax(me, s, see):
        p = right(me).softmax(s, see).a
        return V(p, (s, lambda d: np.where(see, f(me, p, d), 0).astype(p.dtype)))

    return softmax


bug(
    "none-softmax-no-mean",
    "none",
    "attn",
    "The softmax's derivative is p dp, without its mean.",
    "wkcn/mobula#3",
    "grad.softmax",
    idea="softmax-no-mean",
    back=True,
    softmax=softmax_grad(lambda me, p, d: p * d),
)
bug(
    "rope-softmax-no-mean",
    "rope",
    "attn",
    "The row sums of p dp are not taken off.",
    "HKUSTDial/flash-sparse-attention#109",
    "grad.softmax",
    idea="softmax-no-mean",
    back=True,
    softmax=softmax_grad(lambda me, p, d: p * d),
)
bug(
    "t5-softmax-mean-only",
    "t5",
    "attn",
    "dp is centred by a plain mean.",
    "wkcn/mobula#3",
    "grad.softmax",
    back=True,
    softmax=softmax_grad(lambda me, p, d: p * (d - d.mean(-1, keepdims=True))),
)
bug(
    "alibi-softmax-plain",
    "alibi",
    "attn",
    "p (1 - p) dp: the diagonal of the Jacobian alone.",
    "Oneflow-Inc/oneflow#8136",
    "grad.softmax",
    back=True,
    softmax=softmax_grad(lambda me, p, d: p * (1 - p) * d),
)
bug(
    "none-scale-forgotten",
    "none",
    "attn",
    "dq and dk lack the softmax scale.",
    "Dao-AILab/flash-attention#2651",
    "grad.softmax",
    idea="scale-in-backward",
    answer=returned("[qk]", lambda me, g: g / me.scale()),
)
bug(
    "rope-scale-twice",
    "rope",
    "attn",
    "dq has the softmax scale twice.",
    "NVIDIA/Megatron-LM#151",
    "grad.softmax grad.factor",
    idea="scale-in-backward",
    answer=returned("q", lambda me, g: g * me.scale()),
)
bug(
    "none-qk-exchanged",
    "none",
    "attn",
    "dq and dk are made of each other's cotangents: dS is not transposed.",
    "ooples/AiDotNet.Tensors#49",
    "",
    back=True,
    products=lambda me, q, k: (
        lambda kk: V(
            einsum("bhtd,bhsd->bhts", q, kk).a,
            (q, lambda d: np.einsum("bhts,bhsd->bhtd", d, kk.a)),
            (kk, lambda d: np.einsum("bhst,bhtd->bhsd", d, q.a)),
        )
    )(k[:, me.reads()]),
)
bug(
    "rope-v-no-gradient",
    "rope",
    "attn",
    "v gets no gradient.",
    "nntrainer/nntrainer#4272",
    "grad.zero",
    idea="input-no-gradient",
    answer=returned("v", lambda me, g: g * 0),
)
bug(
    "none-q-no-gradient",
    "none",
    "attn",
    "Scores are computed outside of the graph.",
    "paiml/aprender#2203",
    "grad.zero",
    idea="input-no-gradient",
    answer=returned("[qk]", lambda me, g: g * 0),
)
bug(
    "alibi-q-sign",
    "alibi",
    "attn",
    "dq is negated.",
    "growingnet/gromo#115",
    "grad.sign",
    idea="grad-sign",
    answer=returned("q", lambda me, g: -g),
)
bug(
    "none-batch-mean",
    "none",
    "attn",
    "Gradients are means over the batch.",
    "NVIDIA/TransformerEngine#3216",
    "grad.factor",
    idea="grad-mean",
    answer=returned("[qkv]", lambda me, g: g / 2),
)

# Tables.


def overwritten(name, axis):
    """The gradient of a gathered table: the last one that wrote, in place of the sum."""

    def gather(me, *given):
        y = getattr(right(me), name)(*given)
        table, rows = me.p["table"], given[-1]

        def back(d):
            g = np.zeros_like(table.a)
            if axis:
                g[:, rows] = d
            else:
                g[rows] = d
            return g

        return V(y.a, (table, back))

    return gather


def first_of(n, axis):
    def keep(me, g):
        g = g.copy()
        np.moveaxis(g, axis, 0)[n:] = 0
        return g

    return keep


bug(
    "learned-overwritten",
    "learned",
    "op",
    "Rows read twice keep one of their gradients: = in place of +=.",
    "pytorch/pytorch#1631",
    "grad.sum",
    idea="table-overwritten",
    back=True,
    gather=overwritten("gather", 0),
)
bug(
    "t5-overwritten",
    "t5",
    "op",
    "A bucket keeps the gradient of the last pair that read it.",
    "pytorch/pytorch#146299",
    "grad.sum",
    idea="table-overwritten",
    back=True,
    gather=overwritten("gather", 0),
)
bug(
    "learned_bias-overwritten",
    "learned_bias",
    "op",
    "A distance keeps one pair's gradient.",
    "ooples/AiDotNet.Tensors#894",
    "grad.sum",
    idea="table-overwritten",
    back=True,
    gather=overwritten("gather", 1),
)
bug(
    "t5-bias-no-gradient",
    "t5",
    "attn",
    "The bias is a captured buffer without a gradient.",
    "meta-pytorch/attention-gym#20",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.table", lambda me, g: g * 0),
)
bug(
    "learned_bias-no-gradient",
    "learned_bias",
    "attn",
    "The kernel returns no gradient of the bias.",
    "HKUSTDial/flash-sparse-attention#62",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.table", lambda me, g: g * 0),
)
bug(
    "t5-first-of-batch",
    "t5",
    "attn",
    "The bias's gradient is of the first sequence alone.",
    "pytorch/pytorch#136076",
    "grad.sum",
    idea="batch-not-summed",
    back=True,
    bias=lambda me, q, i, keys, see: (
        lambda b: V(
            np.broadcast_to(b.a, (q.shape[0], *b.shape[-3:])),
            (b, lambda d: d[0] if b.ndim == 3 else d * (np.arange(len(d)) == 0)[:, None, None, None]),
        )
    )(right(me).bias(q, i, keys, see)),
)
bug(
    "learned-mean",
    "learned",
    "table",
    "The table's gradient is a mean over how often a row was read.",
    "PaddlePaddle/Paddle#17662",
    "grad.factor",
    idea="grad-mean",
    answer=returned("param.table", lambda me, g: g / me.T),
)
bug(
    "learned-row-0-frozen",
    "learned",
    "table op",
    "Row 0 is the padding row and gets no gradient.",
    "huggingface/transformers#5285",
    "grad.sum grad.zero",
    answer=returned("param.table", lambda me, g: np.where(np.arange(len(g))[:, None] == 0, 0, g)),
)
bug(
    "sinusoidal-scale-one-token",
    "sinusoidal",
    "table",
    "The scale's gradient is of the last token.",
    "DiffPoseTalk/DiffPoseTalk#20",
    "grad.sum",
    back=True,
    rows=lambda me, i: (
        right(me).rows(i)
        if not me.o["learned"]
        else (
            lambda y: V(
                y.a, (me.p["scale"], lambda d: (d[-1] * y.a[-1] / me.p["scale"].a).sum(keepdims=True))
            )
        )(right(me).rows(i))
    ),
)
bug(
    "alibi-slopes-no-chain",
    "alibi",
    "table",
    "The gradient of log slopes lacks the slope itself.",
    "lucidrains/x-transformers#147",
    "",
    answer=returned("param.log_slopes", lambda me, g: g / np.exp(me.p["log_slopes"].a)),
)
bug(
    "alibi-slopes-sign",
    "alibi",
    "table",
    "The slopes' gradient has lost the bias's minus.",
    "lucidrains/x-transformers#147",
    "grad.sign",
    idea="grad-sign",
    answer=returned("param.log_slopes", lambda me, g: -g),
)
bug(
    "kerple_log-no-softplus-chain",
    "kerple_log",
    "table op",
    "The softplus is skipped in the backward pass.",
    "chijames/KERPLE#2",
    "",
    answer=After(
        lambda me, y: {
            k: x / (1 / (1 + np.exp(-me.a[k[4:]].a))) if k in ("vjp.param.r1", "vjp.param.r2") else x
            for k, x in y.items()
        }
    ),
    back=True,
)
bug(
    "kerple_power-nan-at-0",
    "kerple_power",
    "op",
    "0^p ln 0 is NaN in the gradient of the exponent.",
    "chijames/KERPLE#2",
    "",
    idea="nan-gradient",
    answer=returned("param.r2", lambda me, g: g * np.nan),
)
bug(
    "kerple_power-r1-no-gradient",
    "kerple_power",
    "table",
    "r1 is clamped in place and detached.",
    "intel/intel-xpu-backend-for-triton#4002",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.r1", lambda me, g: g * 0),
)
bug(
    "dynamic_bias-mean",
    "dynamic_bias",
    "op",
    "The first layer's bias gets a mean over all pairs.",
    "pytorch/pytorch#134802",
    "grad.factor",
    idea="grad-mean",
    answer=returned("param.1.bias", lambda me, g: g / me.T**2),
)
bug(
    "dynamic_bias-last-no-gradient",
    "dynamic_bias",
    "table",
    "Only the first layer learns.",
    "facebookresearch/fairseq#4270",
    "grad.zero",
    answer=returned("param.2.*", lambda me, g: g * 0),
)

# Score terms and the rest.


def first_sequence(me, q, i, keys, see):
    """The term, with the content bias u of each sequence by itself; only that of the first has a gradient."""
    k, u, r = keys["k"][:, me.reads()], me.p["u"], me.row(i, keys["i"])
    own = V(np.broadcast_to(u.a, (q.shape[0], *u.shape)), (u, lambda d: d[0]))
    content = einsum("bhd,bhsd->bhs", own, k).reshape(q.shape[0], me.H, 1, k.shape[2])
    qw = q + me.w().reshape(me.H, 1, me.D)
    place = einsum("bhtd,htsd->bhts" if r.ndim == 4 else "bhtd,bhtsd->bhts", qw, r)
    return (content + place) * me.share()


def ungated(me, name, x):
    """The last map, whose weight's gradient is made with what came before the gate."""
    y = right(me).project(name, x)
    if name != "o":
        return y
    w = me.p["o.weight"]
    flat = lambda z: z.reshape(-1, z.shape[-1])
    return V(y.a, (x, lambda d: d @ w.a), (w, lambda d: flat(d).T @ flat(me.before)))


bug(
    "cope-gates-detached",
    "cope",
    "op",
    "No gradient goes through the gates.",
    "lucidrains/x-transformers#268",
    "grad.sum grad.zero",
    gates=cut(),
)
bug(
    "cope-cumsum-not-reversed",
    "cope",
    "op",
    "The backward of the sum over keys runs the wrong way.",
    "lucidrains/x-transformers#268",
    "grad.time",
    back=True,
    count=lambda me, g: V(right(me).count(g).a, (g, lambda d: np.flip(np.cumsum(np.flip(d, -1), -1), -1))),
)
bug(
    "fire-m-no-gradient",
    "fire",
    "op",
    "The threshold's multiplier gets no gradient.",
    "ReaLLMASIC/ReaLLM-Forge#134",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.m", lambda me, g: g * 0),
)
bug(
    "fire-tie-to-m",
    "fire",
    "op",
    "At a tie the threshold has the whole derivative.",
    "ooples/AiDotNet.Tensors#49",
    "grad.tie",
    back=True,
    normaliser=lambda me, i: (
        lambda y, a: V(
            y.a,
            (
                me.p["m"],
                lambda d: (
                    (d * np.sign(me.p["m"].a) * me.settings()[0] * (a >= i[..., :, None]))
                    .sum(keepdims=True)
                    .reshape(1)
                ),
            ),
        )
    )(right(me).normaliser(i), np.abs(me.p["m"].a * me.settings()[0])),
)
bug(
    "fire-c-numerator-only",
    "fire",
    "op",
    "c gets the gradient of the numerator alone.",
    "meta-pytorch/torchtune#2325",
    "grad.sum",
    relative=lambda me, i, j: me.quotient(
        me.psi(abs(i[..., :, None] - j[..., None, :]).astype(me.work)),
        log(me.normaliser(i) * abs(me.p["c"].a) + 1),
    ),
    back=True,
)
bug(
    "forgetting-cumsum-not-reversed",
    "forgetting",
    "op",
    "The cumulative sum is its own backward.",
    "flashinfer-ai/flashinfer#2768",
    "grad.time",
    back=True,
    features=lambda me, *a: (lambda f: {"forget": V(f.a, (f, lambda d: flipped(d)))})(
        right(me).features(*a)["forget"]
    ),
)
bug(
    "forgetting-query-side",
    "forgetting",
    "attn",
    "Only c_i has a gradient, not c_j.",
    "fla-org/flash-linear-attention#77",
    "grad.sum",
    back=True,
    range=lambda me, c, f, T: (lambda B, H, S: c[..., S - T :].reshape(B, H, T, 1) - c.a.reshape(B, H, 1, S))(
        *c.shape
    ),
)
bug(
    "forgetting-x-no-gradient",
    "forgetting",
    "attn",
    "The gates' input is detached.",
    "fla-org/flash-linear-attention#422",
    "grad.zero",
    idea="input-no-gradient",
    answer=returned("x", lambda me, g: g * 0),
)
bug(
    "dape-scores-detached",
    "dape",
    "op",
    "The network's input is detached: q and k get none of its gradient.",
    "paiml/aprender#2203",
    "grad.zero",
    order=lambda me, s, b: [through(s, lambda d: d * 0), b],
    back=True,
)
bug(
    "transformer_xl-w-no-gradient",
    "transformer_xl",
    "op",
    "w is not registered as a parameter.",
    "kimiyoung/transformer-xl#132",
    "grad.zero",
    idea="param-no-gradient",
    answer=returned("param.w", lambda me, g: g * 0),
)
bug(
    "transformer_xl-u-first-sequence",
    "transformer_xl",
    "attn",
    "u's gradient is of the first sequence.",
    "marin-community/levanter#449",
    "grad.sum",
    idea="batch-not-summed",
    back=True,
    bias=first_sequence,
)
bug(
    "transformer_xl-unshifted-gradient",
    "transformer_xl",
    "op",
    "The gradient of the rows is not shifted back.",
    "labmlai/annotated_deep_learning_paper_implementations#218",
    "grad.time",
    back=True,
    row=Backward(lambda me, y: through(y, lambda d: np.roll(d, 1, -2))),
)
bug(
    "shaw-keys-overwritten",
    "shaw",
    "attn",
    "A clipped distance keeps one pair's gradient.",
    "pytorch/pytorch#1528",
    "grad.sum",
    idea="table-overwritten",
    back=True,
    shared=lambda me, name, r: (
        right(me).shared(name, r)
        if name != "key" or me.o["across_heads"] == "own"
        else (lambda y: V(y.a, (me.p["key"], lambda d: wrote(me.p["key"].a, r, d))))(
            right(me).shared(name, r)
        )
    ),
)
bug(
    "shaw-values-no-gradient",
    "shaw",
    "attn",
    "The values' table gets no gradient.",
    "facebookresearch/fairseq#4270",
    "grad.zero",
    idea="param-no-gradient-2",
    answer=returned("param.value", lambda me, g: g * 0),
)
bug(
    "path-beta-sign",
    "path",
    "attn",
    "beta's gradient has the other sign.",
    "fla-org/flash-linear-attention#384",
    "grad.sign",
    idea="grad-sign",
    answer=returned("param.beta.*", lambda me, g: -g),
)
bug(
    "path-w-one-path",
    "path",
    "attn",
    "w learns through k - (k w) w only where it stands outside.",
    "fla-org/flash-linear-attention#384",
    "grad.sum",
    back=True,
    moved=lambda me, k, w, beta: (lambda a: k - a.reshape(*a.shape, 1) * w)((k * w.a).sum(-1) * beta),
)

bug(
    "mamba-z-no-gradient",
    "mamba",
    "op",
    "The gate's gradient is an empty buffer.",
    "state-spaces/mamba#342",
    "grad.zero",
    idea="param-no-gradient-2",
    answer=returned("param.z.weight", lambda me, g: g * 0),
)
bug(
    "mamba-x-no-gradient",
    "mamba",
    "op",
    "The fallback scan does not carry gradients to its input.",
    "purohit10saurabh/mamba-ssm-macos#7",
    "grad.zero",
    idea="input-no-gradient",
    answer=returned("x", lambda me, g: g * 0),
)
bug(
    "mamba-scan-forwards",
    "mamba",
    "op",
    "The reverse scan drops what later tokens owe to the state.",
    "state-spaces/mamba#368",
    "grad.time",
    idea="scan-cut",
    back=True,
    hold=lambda me, h, t: through(h, lambda d: d * 0),
)
bug(
    "mamba-A-no-chain",
    "mamba",
    "op",
    "A_log gets the gradient of A.",
    "alxndrTL/mamba.py#65",
    "",
    answer=returned("param.A_log", lambda me, g: g / -np.exp(me.p["A_log"].a)),
)
bug(
    "mamba-conv-gradient-reversed",
    "mamba",
    "op",
    "The taps' gradients are written in reverse.",
    "state-spaces/mamba#598",
    "grad.time mix.conv",
    answer=returned("param.conv", lambda me, g: g[:, ::-1]),
)
bug(
    "mamba-D-not-summed",
    "mamba",
    "op",
    "D's gradient is divided by the number of tokens.",
    "state-spaces/mamba#520",
    "grad.factor",
    idea="grad-mean",
    answer=returned("param.D", lambda me, g: g / me.T),
)
bug(
    "retnet-gate-ungated",
    "retnet",
    "op",
    "The output weight's gradient is made with the value before the gate.",
    "fla-org/flash-linear-attention#1071",
    "",
    back=True,
    project=ungated,
    gated=lambda me, g, o: (setattr(me, "before", o.a), right(me).gated(g, o))[1],
)
bug(
    "retnet-scan-cut",
    "retnet",
    "op",
    "Gradients do not go through the state.",
    "fla-org/flash-linear-attention#145",
    "grad.time",
    idea="scan-cut",
    back=True,
    hold=lambda me, S, t: through(S, lambda d: d * 0),
)
bug(
    "rwkv4-decay-sign",
    "rwkv4",
    "op",
    "The decay's gradient has the other sign.",
    "BlinkDL/RWKV-LM#284",
    "grad.sign",
    idea="grad-sign",
    answer=returned("param.decay", lambda me, g: -g),
)
bug(
    "rwkv4-shift-no-gradient",
    "rwkv4",
    "op",
    "The token before gets no gradient.",
    "BlinkDL/RWKV-LM#188",
    "grad.time grad.sum",
    idea="shift-detached",
    shifted=cut(),
)
bug(
    "rwkv4-bonus-no-gradient",
    "rwkv4",
    "op",
    "The bonus is detached.",
    "fla-org/flash-linear-attention#11",
    "grad.zero",
    idea="param-no-gradient-2",
    answer=returned("param.bonus", lambda me, g: g * 0),
)
bug(
    "rwkv6-shift-late",
    "rwkv6",
    "op",
    "The shift's gradient goes to the token itself.",
    "intel/ipex-llm#10032",
    "grad.time",
    back=True,
    shifted=lambda me, x, seg, state: (lambda y: V(y.a, (x, lambda d: d)))(right(me).shifted(x, seg, state)),
)
bug(
    "rwkv6-scan-cut",
    "rwkv6",
    "op",
    "The state is detached at every token.",
    "fla-org/flash-linear-attention#77",
    "grad.time",
    idea="scan-cut",
    back=True,
    hold=lambda me, S, t: through(S, lambda d: d * 0),
)
bug(
    "rwkv6-decay-no-gradient",
    "rwkv6",
    "op",
    "The decay's low-rank part gets no gradient.",
    "fla-org/flash-linear-attention#11",
    "grad.zero",
    idea="param-no-gradient-2",
    answer=returned("param.decay.*", lambda me, g: g * 0),
)
bug(
    "rwkv7-kappa-norm-detached",
    "rwkv7",
    "op",
    "The length of kappa is a constant in the backward pass.",
    "fla-org/flash-linear-attention#76",
    "",
    back=True,
    unit=lambda me, kappa: (
        kappa / V(np.sqrt((kappa.a**2).sum(-1) + me.o["unit_eps"])).reshape(*kappa.shape[:-1], 1)
    ),
)
bug(
    "rwkv7-a-no-gradient",
    "rwkv7",
    "op",
    "a gets no gradient.",
    "fla-org/flash-linear-attention#379",
    "grad.zero",
    idea="param-no-gradient-2",
    answer=returned("param.a.*", lambda me, g: g * 0),
)
bug(
    "rwkv7-removal-detached",
    "rwkv7",
    "op",
    "The removal's own dependence on the state is left out of the reverse scan.",
    "fla-org/flash-linear-attention#885",
    "grad.time grad.sum",
    back=True,
    removed=lambda me, S, a, kappa: right(me).removed(V(S.a), a, kappa),
)
bug(
    "s4d-conjugate-gradient",
    "s4d",
    "op",
    "The adjoint scan lacks a conjugation: the imaginary part's gradient is negated.",
    "JuliaControl/ControlSystems.jl#932",
    "grad.sign",
    idea="grad-sign-imaginary",
    answer=returned("param.A_imag", lambda me, g: -g),
)
bug(
    "s4d-factor-2-gradient",
    "s4d",
    "op",
    "The factor 2 of the conjugates is missing in the backward pass.",
    "srush/annotated-s4#58",
    "grad.factor",
    read=grads(lambda me, g: g * 0.5),
)
bug(
    "s4d-scan-cut",
    "s4d",
    "op",
    "Gradients do not go through the state.",
    "alxndrTL/mamba.py#65",
    "grad.time",
    idea="scan-cut",
    back=True,
    hold=lambda me, s, t: tuple(through(p, lambda d: d * 0) for p in s),
)


def flipped(d):
    """Backward of a cumulative sum was its reverse; what went through the reverse goes through a plain
    one.
    """
    suffix = np.diff(np.concatenate([d, np.zeros_like(d[..., :1])], -1), axis=-1) * -1
    return np.cumsum(suffix, -1)


def wrote(table, r, d):
    g = np.zeros_like(table)
    d = d.sum(-4) if d.ndim == 4 else d.sum(1)
    g[r] = d
    return g
