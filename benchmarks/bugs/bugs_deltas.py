"""Bugs of the delta rule and its kin: decays, writes, heads, projections, norms, chunks and states."""

import numpy as np

from .edits import After, bf16, bug, cut, like, right
from .right.terms import conv
from .tape import exp, join, linear, log, sigmoid, silu, softplus, sqrt

FLA = "fla-org/flash-linear-attention"


def late(me, S, q, k, v, b, decay):
    """The value under k is taken out of the state before it decays."""
    u = me.change(S, k, v, b)
    S = me.decayed(S, decay) + me.written(k, u)
    return me.read(S, q), S


def decays_last(me, S, q, k, v, b, decay):
    S = me.decayed(S + me.written(k, me.change(S, k, v, b)), decay)
    return me.read(S, q), S


def reads_first(me, S, q, k, v, b, decay):
    o = me.read(me.decayed(S, decay), q)
    return o, right(me).one(S, q, k, v, b, decay)[1]


def kda_gate(me, x):
    return linear(me.project("f.down", x), me.p["f.up.weight"]) + me.p["dt.bias"]


def kda_output_gate(me, x):
    return me.heads(linear(me.project("g.down", x), me.p["g.up.weight"]), me.H)


def gla_gate(me, x):
    return linear(me.project("g.down", x), me.p["g.up.weight"]) + me.p["g.bias"]


for name in ("gated_deltanet", "kda"):
    bug(
        f"{name}-error-before-decay",
        name,
        "op",
        "The error is taken against the state before it decays.",
        f"{FLA}#885",
        "delta.order",
        one=late,
    )
    bug(
        f"{name}-decays-last",
        name,
        "op",
        "The state decays after it was written.",
        f"{FLA}#885",
        "delta.order",
        one=decays_last,
    )
    bug(
        f"{name}-a-log-sign",
        name,
        "op",
        "g = exp(A_log) softplus(.) without its minus: the state grows.",
        "MoonshotAI/FlashKDA#7",
        "delta.decay",
        rate=lambda me: exp(me.p["A_log"]),
    )
    bug(
        f"{name}-a-log-used",
        name,
        "op",
        "A_log is used without exp.",
        "MoonshotAI/FlashKDA#7",
        "delta.decay",
        rate=lambda me: -me.p["A_log"],
    )
    bug(
        f"{name}-bias-after-softplus",
        name,
        "op",
        "The bias of dt is added after the softplus.",
        "ml-explore/mlx-lm#1792",
        "delta.decay",
        step=lambda me, z: softplus(z) + me.p["dt.bias"],
    )
    bug(
        f"{name}-no-dt-bias",
        name,
        "op",
        "The bias of dt is not loaded.",
        "NVIDIA/TensorRT-LLM#17793",
        "delta.decay",
        step=lambda me, z: softplus(z),
    )
    bug(
        f"{name}-no-softplus",
        name,
        "op",
        "The step is the exponential, as softplus is for small steps.",
        "meta-pytorch/attention-gym#351",
        "delta.decay",
        step=lambda me, z: exp(z + me.p["dt.bias"]),
    )

bug(
    "kda-bias-of-head",
    "kda",
    "op",
    "One bias of dt is read for each head: that of as many first channels.",
    "ml-explore/mlx-lm#1792",
    "delta.decay",
    step=lambda me, z: softplus(z + me.p["dt.bias"][np.repeat(np.arange(me.H), me.D)]),
)
bug(
    "kda-bounded-gate",
    "kda",
    "op",
    "The gate is -5 sigmoid(exp(A_log) z), that of models with a lower bound.",
    "MoonshotAI/FlashKDA#3",
    "delta.decay",
    log_decay=lambda me, x: (lambda z: sigmoid(z * exp(me.p["A_log"]).reshape(me.H, 1)) * -5.0)(
        me.heads(kda_gate(me, x), me.H)
    ),
)
bug(
    "kda-gate-silu",
    "kda",
    "op",
    "The output gate is a silu, as in Gated DeltaNet.",
    "qiuzh20/gated_attention#1",
    "mix.gate",
    gated=lambda me, o, x: silu(kda_output_gate(me, x)) * o,
)


for name in ("deltanet", "gated_deltanet", "kda"):
    bug(
        f"{name}-beta-twice",
        name,
        "op",
        "k is multiplied with beta besides: beta stands twice.",
        f"{FLA}#623",
        "delta.beta",
        one=lambda me, S, q, k, v, b, decay: right(me).one(S, q, k, v, b * b, decay),
    )
    bug(
        f"{name}-no-sigmoid",
        name,
        "op",
        "beta is W_b x without the sigmoid.",
        f"{FLA}#642",
        "delta.beta",
        beta=lambda me, x: me.project("b", x) * me.o["max_beta"],
    )
    bug(
        f"{name}-no-unit",
        name,
        "op",
        "q and k are not brought to length one.",
        "huggingface/transformers#40842",
        "delta.unit",
        unit=lambda me, x: x,
    )
    bug(
        f"{name}-unit-mean",
        name,
        "op",
        "q and k are divided by the root of the mean of squares: their length is sqrt(D).",
        "1bit-MONSTER/1bit-MONSTER#2134",
        "delta.unit delta.scale",
        unit=lambda me, x: (
            x / sqrt((x * x).sum(-1) / x.shape[-1] + me.o["unit_eps"]).reshape(*x.shape[:-1], 1)
        ),
    )
    bug(
        f"{name}-no-scale",
        name,
        "op",
        "q is not divided by sqrt(D).",
        "NeuraLegion/shainet#176",
        "delta.scale",
        scale=lambda me: 1.0,
    )
    bug(
        f"{name}-value-not-subtracted",
        name,
        "op",
        "What stands under k is not taken out: linear attention with beta.",
        f"{FLA}#623",
        "delta.order delta.beta",
        change=lambda me, S, k, v, b: v * b.reshape(*b.shape, 1),
    )
    bug(
        f"{name}-reads-before",
        name,
        "op",
        "q reads the state before the token is written.",
        f"{FLA}#885",
        "delta.order mix.time",
        one=reads_first,
    )
    bug(
        f"{name}-no-conv-silu",
        name,
        "op",
        "No silu after the convolutions.",
        "isyangshu/MambaMIL#21",
        "mix.activation",
        short=lambda me, r, x, seg, state: (
            lambda z: (me.conv(r, z, state.get(r), seg), join([state[r], z], 1) if r in state else z)
        )(me.project(r, x)),
    )
    bug(
        f"{name}-conv-reversed",
        name,
        "op",
        "The taps are applied in the other order.",
        "speechbrain/speechbrain#1608",
        "mix.conv",
        conv=lambda me, r, z, tail, seg: conv(z, me.p[r + ".conv"][:, ::-1], tail, seg),
    )
    bug(
        f"{name}-state-dropped",
        name,
        "trace",
        "Every pass begins with a state of zero, wherever it begins.",
        "gittensor-ai-lab/sparkinfer#1071",
        "cache.state_dropped",
        after=lambda me, old, new: {k: z for k, z in new.items() if k != "s"},
    )
    bug(
        f"{name}-tail-dropped",
        name,
        "trace",
        "The rows before a call are not kept for the convolutions.",
        "huggingface/transformers#35154",
        "cache.tail_dropped",
        after=lambda me, old, new: {"s": new["s"]},
    )
    bug(
        f"{name}-chunk-border",
        name,
        "op",
        "The state is lost where a chunk of 3 ends.",
        "huggingface/transformers#46190",
        "mix.chunk",
        hold=lambda me, S, t: S * (0.0 if t and t % 3 == 0 else 1.0),
    )
    bug(
        f"{name}-norm-mean",
        name,
        "op",
        "The norm of the heads subtracts the mean.",
        "radixark/Megatron-LM#14",
        "norm.mean mix.norm",
        normed=lambda me, o: right(me).normed(o - (o.sum(-1) / o.shape[-1]).reshape(*o.shape[:-1], 1)),
    )
    bug(
        f"{name}-norm-offset",
        name,
        "op",
        "The norm's weight is taken for an offset from one.",
        "NeuraLegion/shainet#176",
        "mix.norm",
        normed=lambda me, o: o / me.root(o) * (me.p["norm.weight"] + 1.0),
    )
    bug(
        f"{name}-dbeta-cut",
        name,
        "op",
        "beta has no gradient.",
        f"{FLA}#6",
        "grad.zero",
        back=True,
        beta=cut(),
    )

bug(
    "gated_deltanet-heads-tiled",
    "gated_deltanet",
    "op",
    "Heads of v read heads of q and k in turn, h mod H.",
    "ggml-org/llama.cpp#21732",
    "delta.heads",
    reads=lambda me, N: np.arange(N) % me.H,
)
bug(
    "gated_deltanet-ba-exchanged",
    "gated_deltanet",
    "op",
    "The projections of beta and of the decay are exchanged.",
    "AI-Hypercomputer/maxtext#2672",
    "delta.projections",
    project=lambda me, name, x: right(me).project({"a": "b", "b": "a"}.get(name, name), x),
)
bug(
    "gated_deltanet-gate-sigmoid",
    "gated_deltanet",
    "op",
    "The output gate is a sigmoid.",
    "qiuzh20/gated_attention#1",
    "mix.gate",
    gated=lambda me, o, x: sigmoid(me.heads(me.project("z", x), o.shape[2])) * o,
)
bug(
    "gated_deltanet-gate-first",
    "gated_deltanet",
    "op",
    "The gate is applied before the norm.",
    "qiuzh20/gated_attention#1",
    "mix.gate mix.norm",
    leave=lambda me, o, x, v: (lambda y: me.project("o", y.reshape(*y.shape[:2], -1)))(
        me.normed(me.gated(o, x))
    ),
)
bug(
    "gated_deltanet-readout-scaled",
    "gated_deltanet",
    "op",
    "What is read is divided by sqrt(V), which q already is by sqrt(D): the norm hides all but its eps.",
    "ml-explore/mlx-lm#1798",
    "delta.scale",
    scale=lambda me: me.D**-1.0,
)
bug(
    "gated_deltanet-decay-bf16",
    "gated_deltanet",
    "op",
    "The decay is kept in bfloat16.",
    f"{FLA}#461",
    "",
    dtypes="f64 f32",
    log_decay=After(lambda me, g: like(g, bf16)),
)
bug(
    "gated_deltanet-da-log-cut",
    "gated_deltanet",
    "op",
    "A_log has no gradient.",
    "ml-explore/mlx-lm#1870",
    "grad.zero",
    back=True,
    rate=cut(),
)
bug(
    "gla-normalizer-ignored",
    "gla",
    "op",
    "The logarithm of the sigmoid is not divided by the normalizer.",
    f"{FLA}#1272",
    "gla.decay",
    normalizer=lambda me: 1.0,
)
bug(
    "gla-sigmoid-divided",
    "gla",
    "op",
    "The input of the sigmoid is divided by the normalizer, not its logarithm.",
    "vllm-project/vllm#14940",
    "gla.decay",
    log_alpha=lambda me, x: log(sigmoid(gla_gate(me, x) / me.normalizer())),
)
bug(
    "gla-no-bias",
    "gla",
    "op",
    "The bias of the gate is not loaded.",
    "vllm-project/vllm#14940",
    "gla.decay",
    log_alpha=lambda me, x: log(sigmoid(gla_gate(me, x) - me.p["g.bias"])) / me.normalizer(),
)
bug(
    "gla-decays-last",
    "gla",
    "op",
    "The state decays after it was written.",
    f"{FLA}#885",
    "delta.order",
    one=decays_last,
)
bug(
    "gla-no-scale",
    "gla",
    "op",
    "q is not divided by sqrt(D).",
    "NeuraLegion/shainet#176",
    "delta.scale",
    scale=lambda me: 1.0,
)
bug(
    "gla-gate-sigmoid",
    "gla",
    "op",
    "The output gate is a sigmoid.",
    "qiuzh20/gated_attention#1",
    "mix.gate",
    gated=lambda me, o, x: sigmoid(me.heads(me.project("z", x), me.H)) * o,
)
bug(
    "gla-dg-dropped",
    "gla",
    "op",
    "The decay is taken for one that no data decide: it has no gradient.",
    f"{FLA}#469",
    "grad.zero",
    back=True,
    log_alpha=cut(),
)
bug(
    "gla-state-dropped",
    "gla",
    "trace",
    "Every pass begins with a state of zero.",
    "vllm-project/vllm#51562",
    "cache.state_dropped",
    after=lambda me, old, new: {},
)


bug(
    "mamba2-groups-tiled",
    "mamba2",
    "op",
    "Heads read the groups of B and C in turn, h mod G.",
    "ggml-org/llama.cpp#21732",
    "delta.heads",
    reads=lambda me, N, G: np.arange(N) % G,
)
bug(
    "mamba2-norm-whole",
    "mamba2",
    "op",
    "The norm is over all channels, not over those of a group.",
    "state-spaces/mamba#910",
    "mix.norm",
    norm_groups=lambda me: 1,
)
bug(
    "mamba2-norm-of-heads",
    "mamba2",
    "op",
    "The norm is over each head.",
    "huggingface/transformers#35943",
    "mix.norm",
    norm_groups=lambda me: me.o["expand"] * me.H,
)
bug(
    "mamba2-norm-before-gate",
    "mamba2",
    "op",
    "The norm comes before the gate.",
    "ml-explore/mlx#2602",
    "mix.gate mix.norm",
    through_norm=lambda me, o, gate: me.normed(o) * gate,
)
bug(
    "mamba2-norm-weight-missing",
    "mamba2",
    "op",
    "The norm's weight is not applied.",
    "1bit-MONSTER/1bit-MONSTER#1154",
    "mix.norm",
    normed=lambda me, o: right(me).normed(o) / me.p["norm.weight"],
)
bug(
    "mamba2-no-dt-in-input",
    "mamba2",
    "op",
    "The input enters the state without dt.",
    "johnma2006/mamba-minimal#2",
    "mamba.step delta.beta mix.discretisation",
    change=lambda me, S, k, v, b: v,
)
bug(
    "mamba2-a-log-sign",
    "mamba2",
    "op",
    "A = exp(A_log) without its minus.",
    "state-spaces/mamba#19",
    "delta.decay mamba.decay",
    rate=lambda me: exp(me.p["A_log"]),
)
bug(
    "mamba2-bias-after-softplus",
    "mamba2",
    "op",
    "The bias of dt is added after the softplus.",
    "NVlabs/MambaVision#32",
    "delta.decay mamba.step",
    step=lambda me, z: softplus(z) + me.p["dt.bias"],
)
bug(
    "mamba2-bc-exchanged",
    "mamba2",
    "op",
    "B and C are cut in the other order.",
    "state-spaces/mamba#524",
    "delta.projections mamba.projections",
    short=lambda me, r, x, seg, state: right(me).short({"b": "c", "c": "b"}.get(r, r), x, seg, {}),
)
bug(
    "mamba2-no-skip",
    "mamba2",
    "op",
    "D u is not added.",
    "ge-xing/SegMamba#5",
    "mix.skip",
    skip=lambda me, o, u: o,
)
bug(
    "mamba2-conv-state",
    "mamba2",
    "trace",
    "The rows before a call are not kept for the convolutions.",
    "huggingface/transformers#35154",
    "cache.tail_dropped",
    after=lambda me, old, new: {"s": new["s"]},
)
bug(
    "mamba2-state-dropped",
    "mamba2",
    "trace",
    "The state begins at zero in every call.",
    "huggingface/transformers#35154",
    "cache.state_dropped",
    after=lambda me, old, new: {k: z for k, z in new.items() if k != "s"},
)
bug(
    "mamba2-no-conv-bias",
    "mamba2",
    "op",
    "The biases of the convolutions are not loaded.",
    "state-spaces/mamba#37",
    "mix.conv",
    conv=lambda me, r, z, tail, seg: conv(z, me.p[r + ".conv"], tail, seg),
)
