"""flash-linear-attention: its references in plain torch, which need no GPU: PaTH and forgetting attention,
retention, RWKV-6, RWKV-7, DeltaNet, Gated DeltaNet, KDA, GLA, Mamba-2 (as simple GLA), the rotation.

Each computes the inner operation; projections, shifts, convolutions and norms around it are torch's, with the
parameters of the case. The rotation is rotary_embedding_ref with its RotaryEmbedding's frequencies. They
compute in float32 throughout.
"""

import math

import torch
from fla.modules.rotary.ops import RotaryEmbedding, rotary_embedding_ref
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.forgetting_attn.naive import naive_forgetting_attn
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.kda.gate import naive_kda_gate
from fla.ops.kda.naive import naive_recurrent_kda
from fla.ops.path_attn.naive import naive_path_attn
from fla.ops.retention.naive import naive_retention
from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
from through_torch import adapter, counts, rotated
from torch.nn import functional as F

PACKAGES = ("flash-linear-attention", "fla-core", "torch")
DTYPES = ("f32",)


def compute(case, a):
    made = PARTS.get(case["encoding"])
    if made is None or "seg" in a:
        return None
    return made(case, a, case["options"], case["facts"])


def rotation(case, a, o, facts):
    i = a["positions"]
    if o["learned"] or i.ndim > 2:
        return None
    made = RotaryEmbedding(facts["R"], o["base"])
    angle = i[..., None].float() * made.inv_freq
    if case["level"] == "table":
        return {"angle": angle, "cos": angle.cos(), "sin": angle.sin()}
    cos, sin = angle.cos(), angle.sin()
    turn = lambda x, role: rotary_embedding_ref(
        x.transpose(1, 2), cos, sin, facts["layout"] == "interleaved"
    ).transpose(1, 2)
    return rotated(case, a, turn)


def by_token(x):
    return x.transpose(1, 2)


def forgetting(case, a, o, facts):
    if case["level"] != "attn":
        return None
    g = F.logsigmoid(F.linear(a["x"], a["param.f.weight"], a["param.f.bias"]))
    return {
        "out": by_token(
            naive_forgetting_attn(*(by_token(a[name]) for name in "qkv"), g, window_size=facts["window"])
        )
    }


def path(case, a, o, facts):
    if o["gate"] == "forget" and case["id"] != "path.attn/gate":
        return None  # its gate is divided with the logits; where a case leaves that open it is asked
    if facts["window"] is not None:
        return None
    x, G = a["x"], facts["G"]
    maps = ["param.w.weight"] if "param.w.weight" in a else ["param.down.weight", "param.up.weight"]
    low = x
    for name in maps:
        low = F.linear(low, a[name])
    if o["kernel"] is not None:
        line = F.conv1d(
            F.pad(by_token(low), (o["kernel"] - 1, 0)), a["param.conv"][:, None], groups=low.shape[-1]
        )
        low = F.silu(by_token(line))
    w = low.unflatten(-1, (G, facts["D"]))
    w = w * torch.rsqrt((w * w).sum(-1, keepdim=True) + 1e-6)
    beta = 2 * torch.sigmoid(F.linear(x, a["param.beta.weight"], a["param.beta.bias"]))
    gate = (
        torch.zeros(*x.shape[:2], facts["H"])
        if o["gate"] == "none"
        else F.logsigmoid(F.linear(x, a["param.f.weight"], a["param.f.bias"]))
    )
    return {
        "out": by_token(
            naive_path_attn(*(by_token(a[name]) for name in "qkv"), w, beta, gate, facts["D"] ** -0.5)
        )
    }


def heads(x, facts):
    return by_token(x.unflatten(-1, (facts["H"], -1)))


def retention(case, a, o, facts):
    if not counts(case, a) or (o["rows"], o["decays"]) != ("none", "powers"):
        return None
    x, D = a["x"], facts["D"]
    n = torch.arange(D // 2)
    w = o["base"] ** (-n / max(D // 2 - 1, 1) if o["ladder"] == "endpoint" else -2 * n / D)
    angle = torch.arange(facts["T"])[:, None] * w
    turn = lambda y: by_token(
        rotary_embedding_ref(by_token(y), angle.cos(), angle.sin(), o["layout"] == "interleaved")
    )
    q, k, v = (heads(F.linear(x, a[f"param.{role}.weight"]), facts) for role in "qkv")
    y = naive_retention(turn(q), turn(k), v)
    y = (
        F.layer_norm(y, y.shape[-1:], eps=o["eps"])
        if o["norm"] == "group"
        else F.rms_norm(y, y.shape[-1:], eps=o["eps"])
    )
    gated = F.silu(F.linear(x, a["param.g.weight"])) * by_token(y).flatten(2)
    return {"y": F.linear(gated, a["param.o.weight"])}


def rwkv6(case, a, o, facts):
    x, p = a["x"], {name.removeprefix("param."): y for name, y in a.items() if name.startswith("param.")}
    before = F.pad(x, (0, 0, 1, -1)) - x
    lora = lambda name, y: (
        p[f"{name}.bias"]
        + F.linear(torch.tanh(F.linear(y, p[f"{name}.down.weight"])), p[f"{name}.up.weight"])
    )
    halfway = x + before * p["mix.x"]
    shifted = lambda role: x + before * lora(f"mix.{role}", halfway)
    r, k, v, g = (F.linear(shifted(role), p[f"{role}.weight"]) for role in "rkvg")
    w = -torch.exp(lora("decay", shifted("w")))
    r, k, v, w = (heads(y, facts) for y in (r, k, v, w))
    y, _ = naive_recurrent_rwkv6(r, k, v, w, p["bonus"], scale=1.0)
    y = F.group_norm(
        by_token(y).flatten(2).flatten(0, 1), facts["H"], p["norm.weight"], p["norm.bias"], o["eps"]
    ).view_as(g)
    return {"y": F.linear(F.silu(g) * y, p["o.weight"])}


def rwkv7(case, a, o, facts):
    """The recurrence with a diagonal and a rank of one, whose scale K^-0.5 is taken back; the unit keys
    are torch's normalize, as in its layer.
    """
    x, p = a["x"], {name.removeprefix("param."): y for name, y in a.items() if name.startswith("param.")}
    before = F.pad(x, (0, 0, 1, -1)) - x
    shifted = lambda role: x + before * p[f"mix.{role}"]
    lora = lambda name, y, inside: (
        F.linear(inside(F.linear(y, p[f"{name}.down.weight"])), p[f"{name}.up.weight"])
        + p.get(f"{name}.bias", 0)
    )
    r, k, v = (F.linear(shifted(role), p[f"{role}.weight"]) for role in "rkv")
    rate, g = torch.sigmoid(lora("a", shifted("a"), torch.clone)), lora("gate", shifted("g"), torch.sigmoid)
    w = -math.exp(-0.5) * torch.sigmoid(lora("decay", shifted("w"), torch.tanh))
    kappa = F.normalize(heads(k * p["xi"], facts), dim=-1)
    r, k, v, w, rate = (heads(y, facts) for y in (r, k * (1 + (rate - 1) * p["alpha"]), v, w, rate))
    y, _ = dplr_recurrence(r * facts["D"] ** 0.5, k, v, -kappa, kappa * rate, w)
    y = F.group_norm(
        by_token(y).flatten(2).flatten(0, 1), facts["H"], p["norm.weight"], p["norm.bias"], o["eps"]
    ).view_as(g)
    own = (r * p["bonus"][:, None] * k).sum(-1, keepdim=True) * v
    return {"y": F.linear(g * (y + by_token(own).flatten(2)), p["o.weight"])}


# ---------------------------------------------------------------- the delta family


def lined(a, p, roles):
    """silu(conv(W x)) for each of the roles, [B,T,E], and the tails that are handed on."""
    found, last = [], {}
    for role in roles:
        line, taps = F.linear(a["x"], p[f"{role}.weight"]), p[f"{role}.conv"]
        tail = a.get(f"state.{role}", line.new_zeros(len(line), taps.shape[1] - 1, len(taps)))
        whole = torch.cat([tail, line], 1)
        last[f"last.{role}"] = whole[:, line.shape[1] :]
        y = F.conv1d(by_token(whole), taps[:, None], p.get(f"{role}.conv.bias"), groups=len(taps))
        found.append(F.silu(by_token(y)))
    return found, last


def delta(case, a, o, facts):
    """What stands around each recurrence is torch's, as in the layers of the same names."""
    p = {name.removeprefix("param."): y for name, y in a.items() if name.startswith("param.")}
    name, x, D, last = case["encoding"], a["x"], facts["D"], {}
    wide = lambda y, width=D: y.unflatten(-1, (-1, width))  # [B,T,heads,width]
    V = D * o.get("value_factor", 1)
    start = {"initial_state": a.get("state.s"), "output_final_state": True}
    unit = lambda y: y * torch.rsqrt((y * y).sum(-1, keepdim=True) + o["unit_eps"])
    if name == "gla":
        q, k, v = (wide(F.linear(x, p[f"{role}.weight"]), D if role in "qk" else V) for role in "qkv")
        low = F.linear(F.linear(x, p["g.down.weight"]), p["g.up.weight"], p["g.bias"])
        y, s = naive_recurrent_gla(q, k, v, wide(F.logsigmoid(low) / o["normalizer"]), **start)
    elif name == "mamba2":
        (u, b, c), last = lined(a, p, "xbc")
        dt = F.softplus(F.linear(x, p["dt.weight"]) + p["dt.bias"])
        u = wide(u)
        of_heads = lambda y: wide(y, o["state_size"]).repeat_interleave(u.shape[2] // o["groups"], 2)
        y, s = naive_recurrent_simple_gla(
            of_heads(c), of_heads(b), dt[..., None] * u, -dt * p["A_log"].exp(), 1.0, **start
        )
        y = y + p["D"][:, None] * u
    else:
        (q, k, v), last = lined(a, p, "qkv")
        v = wide(v, V)
        q, k = (unit(wide(y)).repeat_interleave(o.get("value_heads", 1), 2) for y in (q, k))
        beta = o["max_beta"] * torch.sigmoid(F.linear(x, p["b.weight"]))
        if name == "deltanet":
            y, s = delta_rule_recurrence(*map(by_token, (q, k, v, beta)), **start)
            y = by_token(y)
        elif name == "gated_deltanet":
            g = -p["A_log"].exp() * F.softplus(F.linear(x, p["a.weight"]) + p["dt.bias"])
            y, s = naive_recurrent_gated_delta_rule(q, k, v, beta, g, **start)
        else:
            low = F.linear(F.linear(x, p["f.down.weight"]), p["f.up.weight"])
            y, s = naive_recurrent_kda(
                q, k, v, naive_kda_gate(wide(low), p["A_log"], p["dt.bias"]), beta, **start
            )
    if name == "mamba2":
        y = wide(y.flatten(2) * F.silu(F.linear(x, p["z.weight"])), y[0, 0].numel() // o["groups"])
        y = F.rms_norm(y, y.shape[-1:], eps=o["eps"]).flatten(2) * p["norm.weight"]
    else:
        y = F.rms_norm(y, y.shape[-1:], p["norm.weight"], o["eps"]).flatten(2)
        if name == "kda":
            y = y * torch.sigmoid(F.linear(F.linear(x, p["g.down.weight"]), p["g.up.weight"]))
        elif name != "deltanet":
            y = y * F.silu(F.linear(x, p["z.weight"]))
    asked = {"last.s": s, **last} if "before" in facts else {}
    return {"y": F.linear(y, p["o.weight"])} | asked


PARTS = {
    **dict.fromkeys(("deltanet", "gated_deltanet", "gla", "kda", "mamba2"), delta),
    "rope": rotation,
    "forgetting": forgetting,
    "path": path,
    "retnet": retention,
    "rwkv6": rwkv6,
    "rwkv7": rwkv7,
}
run = adapter(compute)
