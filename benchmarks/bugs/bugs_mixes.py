"""Bugs of layers in place of attention, forward."""

import numpy as np

from .edits import After, bug, right
from .right.mixes import lerp
from .right.terms import conv
from .tape import V, einsum, exp, join, relu, sigmoid, silu, softplus, sqrt, tanh

REVERSED = lambda me, z, tail, seg: conv(z, me.p["conv"][:, ::-1], tail, seg)

bug(
    "mamba-zoh-for-euler",
    "mamba",
    "op",
    "The paper's zero-order hold, where the code multiplies by dt.",
    "state-spaces/mamba#114",
    "mix.discretisation",
    write=lambda me, dt, A: (exp(dt * A) - 1) / A,
)
bug(
    "mamba-euler-for-zoh",
    "mamba",
    "op",
    "dt B, also where the paper's form is asked for.",
    "state-spaces/mamba#281",
    "mix.discretisation option",
    write=lambda me, dt, A: dt + np.zeros(A.shape),
)
bug(
    "mamba-no-dt-in-input",
    "mamba",
    "op",
    "The input enters the state without dt.",
    "johnma2006/mamba-minimal#2",
    "mix.discretisation mamba.step",
    write=lambda me, dt, A: dt * 0.0 + 1.0 + np.zeros(A.shape),
)
bug(
    "mamba-A-not-negated",
    "mamba",
    "op",
    "A = exp(A_log) without its minus: the state grows.",
    "state-spaces/mamba#19",
    "mamba.decay",
    A=lambda me: exp(me.p["A_log"]),
)
bug(
    "mamba-A-log-used",
    "mamba",
    "op",
    "-A_log is used without exp.",
    "state-spaces/mamba#129",
    "mamba.decay",
    A=lambda me: -me.p["A_log"],
)
bug(
    "mamba-no-softplus",
    "mamba",
    "op",
    "dt is not passed through softplus: its exponential is taken.",
    "state-spaces/mamba#281",
    "mamba.step",
    step=lambda me, low: exp(me.project("dt", low) + me.p["dt.bias"]),
)
bug(
    "mamba-bias-outside",
    "mamba",
    "op",
    "The bias of dt is added after the softplus.",
    "NVlabs/MambaVision#32",
    "mamba.step",
    step=lambda me, low: softplus(me.project("dt", low)) + me.p["dt.bias"],
)
bug(
    "mamba-bias-twice",
    "mamba",
    "op",
    "The bias of dt is added twice.",
    "modular/modular#5748",
    "mamba.step",
    step=lambda me, low: softplus(me.project("dt", low) + me.p["dt.bias"] * 2.0),
)
bug(
    "mamba-no-skip",
    "mamba",
    "op",
    "D u is not added.",
    "ge-xing/SegMamba#5",
    "mix.skip",
    idea="no-skip",
    skip=lambda me, o, u: o,
)
bug(
    "mamba-skip-of-x",
    "mamba",
    "op",
    "D multiplies the input before the activation.",
    "alxndrTL/mamba.py#10",
    "mix.skip mix.activation",
    run=lambda me, x, i, seg, state: (
        setattr(me, "skip", lambda o, u: o + me.conv(me.project("x", x), state.get("z"), seg) * me.p["D"]),
        right(me).run(x, i, seg, state),
    )[1],
)
bug(
    "mamba-BC-exchanged",
    "mamba",
    "op",
    "B and C are cut in the other order.",
    "state-spaces/mamba#524",
    "mamba.projections",
    low=After(lambda me, y: [y[0], y[2], y[1]]),
)
bug(
    "mamba-no-conv-silu",
    "mamba",
    "op",
    "No silu after the convolution.",
    "isyangshu/MambaMIL#21",
    "mix.activation",
    inner=lambda me, x, seg, state: (lambda z: (me.conv(z, state.get("z"), seg) + me.p["conv.bias"], z))(
        me.project("x", x)
    ),
)
bug(
    "mamba-conv-reversed",
    "mamba",
    "op",
    "The taps are applied as a true convolution.",
    "speechbrain/speechbrain#1608",
    "mix.conv",
    idea="conv-reversed",
    conv=REVERSED,
)
bug(
    "mamba-conv-late",
    "mamba",
    "op",
    "The convolution is one token late.",
    "r9y9/wavenet_vocoder#131",
    "mix.conv",
    conv=lambda me, z, tail, seg: right(me).conv(
        join([V(np.zeros((z.shape[0], 1, z.shape[2]), z.a.dtype)), z], 1)[:, :-1], tail, seg
    ),
)
bug(
    "mamba-conv-not-causal",
    "mamba",
    "op",
    "Padding on both sides: the convolution looks ahead.",
    "state-spaces/mamba#437",
    "mix.conv law.causal",
    conv=lambda me, z, tail, seg: (
        lambda p: right(me).conv(
            join([z, V(np.zeros((z.shape[0], p, z.shape[2]), z.a.dtype))], 1), tail, None
        )[:, p:]
    )(me.p["conv"].shape[1] // 2),
)
bug(
    "mamba-no-conv-bias",
    "mamba",
    "op",
    "The convolution's bias is not loaded.",
    "state-spaces/mamba#37",
    "",
    inner=lambda me, x, seg, state: (lambda z: (silu(me.conv(z, state.get("z"), seg)), z))(
        me.project("x", x)
    ),
)
bug(
    "mamba-gate-sigmoid",
    "mamba",
    "op",
    "The gate is a sigmoid, not a silu.",
    "ge-xing/SegMamba#5",
    "mix.gate",
    idea="gate-sigmoid",
    gated=lambda me, o, x: sigmoid(me.project("z", x)) * o,
)
bug(
    "mamba-xz-exchanged",
    "mamba",
    "op",
    "in_proj is read as z then x.",
    "state-spaces/mamba#598",
    "mamba.projections mix.gate",
    project=lambda me, name, x: right(me).project({"x": "z", "z": "x"}.get(name, name), x),
)
bug(
    "mamba-norms-ignored",
    "mamba",
    "op",
    "The norms of low, B and C are skipped.",
    "huggingface/transformers#35861",
    "option mix.norm",
    low=lambda me, u: [me.project(n, u) for n in ("down", "b", "c")],
)
bug(
    "mamba-documents-leak",
    "mamba",
    "op",
    "The state goes on from one packed document to the next.",
    "NovaSky-AI/SkyRL#2056",
    "mask.documents law.packed",
    idea="documents-state",
    keep=lambda me, seg, t: np.ones(me.B),
)
bug(
    "mamba-conv-leaks",
    "mamba",
    "op",
    "The convolution sees the document before.",
    "PrimeIntellect-ai/prime-rl#3001",
    "mask.documents law.packed mix.conv",
    idea="documents-conv",
    conv=lambda me, z, tail, seg: right(me).conv(z, tail, None),
)
bug(
    "mamba-state-per-4",
    "mamba",
    "op",
    "The state is lost at each chunk of four tokens.",
    "vllm-project/vllm#34587",
    "mix.chunk",
    idea="chunk-lost",
    hold=lambda me, h, t: h * (0.0 if t % 4 == 0 else 1.0),
)

bug(
    "retnet-gamma-linear",
    "retnet",
    "op",
    "The decays are spread evenly, for those of the paper.",
    "Jamie-Stirling/RetNet#26",
    "retnet.decay",
    decays=lambda me: (
        np.linspace(1 - 1 / 32, 1 - 1 / 512, me.H) if me.o["decays"] == "powers" else right(me).decays()
    ),
)
bug(
    "retnet-heads-from-1",
    "retnet",
    "op",
    "The decays are 1 - 2^(-6-h).",
    "Jamie-Stirling/RetNet#26",
    "retnet.decay",
    decays=lambda me: 1 - 2.0 ** (-6 - np.arange(me.H)),
)
bug(
    "retnet-no-decay",
    "retnet",
    "op",
    "The decay is 1.",
    "Jamie-Stirling/RetNet#37",
    "retnet.decay",
    decays=lambda me: np.ones(me.H),
)
bug(
    "retnet-unscaled",
    "retnet",
    "op",
    "k is not divided by sqrt(D).",
    "microsoft/torchscale#40",
    "retnet.scale",
    scale=lambda me: 1.0,
)
bug(
    "retnet-scaled-twice",
    "retnet",
    "op",
    "Both q and k are divided by sqrt(D).",
    "syncdoth/RetNet#7",
    "retnet.scale",
    idea="scale-twice",
    scale=lambda me: 1 / me.D,
)
bug(
    "retnet-rows-always",
    "retnet",
    "op",
    "o is always divided by the root of the decays.",
    "microsoft/torchscale#77",
    "option mix.norm",
    run=lambda me, *a: (
        lambda o: (setattr(me, "o", {**o, "rows": "recurrent"}), right(me).run(*a), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "retnet-paper-ladder",
    "retnet",
    "op",
    "Angles by base^(-2n/D) where the code has endpoints.",
    "microsoft/torchscale#54",
    "retnet.ladder option",
    turned=lambda me, x, i: (
        lambda o: (setattr(me, "o", {**o, "ladder": "paper"}), right(me).turned(x, i), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "retnet-half",
    "retnet",
    "op",
    "Halves are turned, not adjacent pairs.",
    "microsoft/torchscale#47",
    "rope.layout.half option",
    idea="layout",
    layout_of=lambda me: "half",
)
bug(
    "retnet-no-gate",
    "retnet",
    "op",
    "The gate is a sigmoid.",
    "fla-org/flash-linear-attention#1071",
    "mix.gate",
    idea="gate-sigmoid",
    gated=lambda me, g, o: sigmoid(g) * o,
)
bug(
    "retnet-norm-all",
    "retnet",
    "op",
    "One norm over all heads.",
    "BrianPulfer/vision-retention-networks#1",
    "mix.norm",
    norm=lambda me, o: (lambda y: y.reshape(*o.shape))(right(me).norm(o.reshape(*o.shape[:2], 1, -1))),
)
bug(
    "retnet-eps-0",
    "retnet",
    "op",
    "The norm has a fixed eps of 1e-6.",
    "microsoft/torchscale#81",
    "norm.eps mix.norm option",
    norm=lambda me, o: (
        lambda p: (setattr(me, "o", {**p, "eps": 1e-6}), right(me).norm(o), setattr(me, "o", p))[1]
    )(me.o),
)
bug(
    "retnet-self-decayed",
    "retnet",
    "op",
    "The present token is decayed once too.",
    "Jamie-Stirling/RetNet#34",
    "retnet.decay mix.time",
    scale=lambda me: (
        me.D**-0.5 * (1 - 2.0 ** (-5 - np.arange(me.H)))[None, :, None]
        if me.o["decays"] == "powers" and me.o["rows"] != "parallel"
        else right(me).scale()
    ),
)
bug(
    "retnet-chunk-lost",
    "retnet",
    "op",
    "The state between chunks of three is dropped.",
    "Jamie-Stirling/RetNet#10",
    "mix.chunk",
    idea="chunk-lost",
    hold=lambda me, S, t: S * (0.0 if t % 3 == 0 else 1.0),
)

bug(
    "rwkv4-exponent",
    "rwkv4",
    "op",
    "The token before has already decayed: exponent t - i.",
    "OpenGVLab/Vision-RWKV#21",
    "rwkv.decay",
    exponent=lambda me, back: back,
)
bug(
    "rwkv4-decay-not-exp",
    "rwkv4",
    "op",
    "The decay is used without exp.",
    "huggingface/transformers#22797",
    "rwkv.decay",
    rate=lambda me: me.p["decay"],
)
bug(
    "rwkv4-no-bonus",
    "rwkv4",
    "op",
    "The bonus of the present token is 0.",
    "BlinkDL/RWKV-LM#244",
    "rwkv.bonus",
    run=lambda me, *a: (me.p.__setitem__("bonus", me.p["bonus"] * 0.0), right(me).run(*a))[1],
)
bug(
    "rwkv4-mix-exchanged",
    "rwkv4",
    "op",
    "m and 1 - m change places in the token shift.",
    "BlinkDL/ChatRWKV#27",
    "mix.shift",
    mixed=lambda me, name, x, last: last * me.p["mix." + name] + x * (1 - me.p["mix." + name]),
)
bug(
    "rwkv4-no-shift",
    "rwkv4",
    "op",
    "The token before is not mixed in.",
    "BlinkDL/ChatRWKV#27",
    "mix.shift",
    idea="no-shift",
    shifted=lambda me, x, seg, state: x * 0.0,
)
bug(
    "rwkv4-gate-silu",
    "rwkv4",
    "op",
    "r passes through silu, not a sigmoid.",
    "huggingface/transformers#26963",
    "mix.gate",
    gated=lambda me, r, wkv: silu(r) * wkv,
)
bug(
    "rwkv4-documents-leak",
    "rwkv4",
    "op",
    "The shift takes the last token of the document before.",
    "fla-org/flash-linear-attention#422",
    "mask.documents law.packed mix.shift",
    idea="documents-shift",
    joined=lambda me, seg: np.ones(seg.shape, me.work),
)
bug(
    "rwkv6-decay-exp",
    "rwkv6",
    "op",
    "w = exp(d) in place of exp(-exp(d)).",
    "fla-org/flash-linear-attention#11",
    "rwkv.decay",
    decays=lambda me, z: exp(me.lora("decay", z, tanh)),
)
bug(
    "rwkv6-read-after-write",
    "rwkv6",
    "op",
    "The state takes the token before it is read.",
    "PicoCreator/RWKV-LM-LoRA#17",
    "mix.time rwkv.bonus",
    one=lambda me, S, r, k, v, w: (lambda N: (einsum("bhkv,bhk->bhv", N, r), N))(
        S * w.reshape(*w.shape, 1) + einsum("bhk,bhv->bhkv", k, v)
    ),
)
bug(
    "rwkv6-scaled",
    "rwkv6",
    "op",
    "r k is divided by sqrt(D), as a kernel's default does.",
    "fla-org/flash-linear-attention#77",
    "rwkv.scale",
    idea="rwkv-scaled",
    one=lambda me, S, r, k, v, w: right(me).one(S, r * me.D**-0.5, k, v, w),
)
bug(
    "rwkv6-eps",
    "rwkv6",
    "op",
    "The head norm's eps is 1e-5.",
    "OpenGVLab/Vision-RWKV#21",
    "norm.eps rwkv.scale mix.norm option",
    idea="rwkv-eps",
    eps=lambda me: 1e-5,
)
bug(
    "rwkv6-no-lora",
    "rwkv6",
    "op",
    "One shift for all, as in RWKV-5: the low-rank part of the mix is left out.",
    "ggml-org/llama.cpp#11445",
    "mix.shift",
    mixed=lambda me, x, last: {n: lerp(x, last, me.p["mix." + n + ".bias"]) for n in "rkvgw"},
)
bug(
    "rwkv6-kv-exchanged",
    "rwkv6",
    "op",
    "k and v change places.",
    "LeoLin4258/rwkvcn-docs#44",
    "rwkv.projections",
    idea="projections",
    project=lambda me, name, x: right(me).project({"k": "v", "v": "k"}.get(name, name), x),
)
bug(
    "rwkv6-bonus-state",
    "rwkv6",
    "op",
    "u k is written into the state as well.",
    "candle-org/MindAct#542",
    "rwkv.bonus",
    one=lambda me, S, r, k, v, w: (
        right(me).one(S, r, k, v, w)[0],
        right(me).one(S, r, k * (1 + me.p["bonus"]), v, w)[1],
    ),
)
bug(
    "rwkv6-gate-sigmoid",
    "rwkv6",
    "op",
    "The gate is a sigmoid.",
    "huggingface/transformers#26963",
    "mix.gate",
    idea="gate-sigmoid",
    gated=lambda me, g, y: sigmoid(g) * y,
)
bug(
    "rwkv7-no-unit",
    "rwkv7",
    "op",
    "kappa is not brought to length 1.",
    "ooples/AiDotNet.Tensors#895",
    "rwkv7.kappa",
    unit=lambda me, kappa: kappa,
)
bug(
    "rwkv7-unit-of-all",
    "rwkv7",
    "op",
    "kappa's length is taken over all heads.",
    "ooples/AiDotNet.Tensors#895",
    "rwkv7.kappa",
    unit=lambda me, kappa: (
        kappa / sqrt((kappa * kappa).sum(-1).sum(-1) + me.o["unit_eps"]).reshape(*kappa.shape[:2], 1, 1)
    ),
)
bug(
    "rwkv7-key-unchanged",
    "rwkv7",
    "op",
    "k is not changed by a.",
    "fla-org/flash-linear-attention#105",
    "rwkv7.key",
    key=lambda me, k, a: k,
)
bug(
    "rwkv7-kappa-of-changed-key",
    "rwkv7",
    "op",
    "kappa is made of the changed key.",
    "fla-org/flash-linear-attention#379",
    "rwkv7.kappa",
    kappa_key=lambda me, k, a: me.key(k, a),
)
bug(
    "rwkv7-decay-as-6",
    "rwkv7",
    "op",
    "The decay is that of RWKV-6, exp(-exp(d)).",
    "fla-org/flash-linear-attention#379",
    "rwkv.decay",
    decays=lambda me, z: exp(-exp(me.lora("decay", z, tanh))),
)
bug(
    "rwkv7-decay-no-root",
    "rwkv7",
    "op",
    "e^(-1/2) is left out of the decay.",
    "ooples/AiDotNet.Tensors#895",
    "rwkv.decay",
    decays=lambda me, z: exp(-sigmoid(me.lora("decay", z, tanh))),
)
bug(
    "rwkv7-added",
    "rwkv7",
    "op",
    "The removal is added.",
    "fla-org/flash-linear-attention#407",
    "rwkv7.removal",
    removed=After(lambda me, y: -y),
)
bug(
    "rwkv7-a-on-columns",
    "rwkv7",
    "op",
    "a is on the side of the state's other kappa.",
    "ooples/AiDotNet.Tensors#895",
    "rwkv7.removal",
    removed=lambda me, S, a, kappa: einsum("bhm,bhc->bhmc", kappa, einsum("bhl,bhlc->bhc", a * kappa, S)),
)
bug(
    "rwkv7-read-before-write",
    "rwkv7",
    "op",
    "The state is read before the token is written, as in RWKV-6.",
    "ooples/AiDotNet#1557",
    "mix.time",
    one=lambda me, S, r, *a: (right(me).one(S, r, *a)[0], einsum("bhmc,bhm->bhc", S, r)),
)
bug(
    "rwkv7-no-bonus",
    "rwkv7",
    "op",
    "The bonus after the norm is left out.",
    "fla-org/flash-linear-attention#105",
    "rwkv.bonus",
    bonus=lambda me, r, k, v: right(me).bonus(r, k, v) * 0.0,
)
bug(
    "rwkv7-eps",
    "rwkv7",
    "op",
    "The head norm's eps is 1e-5.",
    "fla-org/flash-linear-attention#399",
    "norm.eps rwkv.scale mix.norm option",
    idea="rwkv-eps",
    eps=lambda me: 1e-5,
)
bug(
    "rwkv7-gate-silu",
    "rwkv7",
    "op",
    "The gate passes through silu.",
    "fla-org/flash-linear-attention#346",
    "mix.gate",
    gated=lambda me, g, p: silu(g) * p,
)

bug(
    "s4d-no-conjugates",
    "s4d",
    "op",
    "The factor 2 of the conjugates is forgotten.",
    "srush/annotated-s4#58",
    "s4d.conjugates",
    read=After(lambda me, y: y * 0.5),
)
bug(
    "s4d-imaginary",
    "s4d",
    "op",
    "The imaginary part is added in place of subtracted.",
    "JuliaControl/ControlSystems.jl#932",
    "s4d.conjugates",
    read=lambda me, s: 2 * (s[0] * me.p["C"][..., 0] + s[1] * me.p["C"][..., 1]).sum(-1),
)
bug(
    "s4d-bilinear-for-zoh",
    "s4d",
    "op",
    "The bilinear form everywhere.",
    "srush/annotated-s4#58",
    "mix.discretisation option",
    steps=lambda me: (
        lambda o: (
            setattr(me, "o", {**o, "discretisation": "bilinear"}),
            right(me).steps(),
            setattr(me, "o", o),
        )[1]
    )(me.o),
)
bug(
    "s4d-euler-input",
    "s4d",
    "op",
    "b = dt, without the integral.",
    "state-spaces/mamba#121",
    "mix.discretisation",
    steps=lambda me: (lambda a, b: (a, (exp(me.p["log_dt"]).reshape(-1, 1) + b[0] * 0.0, b[1] * 0.0)))(
        *right(me).steps()
    ),
)
bug(
    "s4d-no-skip",
    "s4d",
    "op",
    "D x is not added.",
    "ge-xing/SegMamba#5",
    "mix.skip",
    idea="no-skip",
    skip=lambda me, u, x: u,
)
bug(
    "s4d-A-positive",
    "s4d",
    "op",
    "The real part of A has lost its minus.",
    "scipy/scipy#17922",
    "mamba.decay",
    modes=lambda me: (exp(me.p["log_A_real"]), me.p["A_imag"]),
)
bug(
    "s4d-relu",
    "s4d",
    "op",
    "relu in place of gelu.",
    "talmolab/track-mjx#88",
    "mix.activation",
    active=lambda me, u: relu(u),
)
bug(
    "s4d-gelu-exact",
    "s4d",
    "op",
    "gelu by the error function everywhere.",
    "huggingface/transformers#22797",
    "mix.activation option block.gelu_exact",
    active=lambda me, u: (
        lambda o: (setattr(me, "o", {**o, "gelu": "erf"}), right(me).active(u), setattr(me, "o", o))[1]
    )(me.o),
)
bug(
    "s4d-glu-exchanged",
    "s4d",
    "op",
    "The first half gates the second.",
    "AlphaGPU/leetgpu-challenges#84",
    "mix.gate",
    gated=lambda me, value, gate: sigmoid(value) * gate,
)
bug(
    "s4d-documents-leak",
    "s4d",
    "op",
    "The state goes on into the next document.",
    "PrimeIntellect-ai/prime-rl#3001",
    "mask.documents law.packed",
    idea="documents-state",
    keep=lambda me, seg, t: np.ones(me.B),
)
