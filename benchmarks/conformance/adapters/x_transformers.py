"""x-transformers (lucidrains): RoPE, interpolation, NTK, xPos, ALiBi, T5 buckets, dynamic bias, CoPE, the
forget gate, PoPE, sinusoids, learned rows.

Its pairs are adjacent channels; cases of the other layout come with their channels permuted. Its T5 bias has
a factor of its own, which is 1 here. Its xPos has the centre at half the length, ours at 0: only attention is
claimed. Where positions do not count from 0, ALiBi goes through forward_custom_pos; the other biases cannot.
Its sinusoids take the same positions for every sequence.
"""

import torch
from through_torch import adapter, at_queries, counts, plain_attention, put, rotated, seen, with_pairs
from torch import nn
from x_transformers.x_transformers import (
    AbsolutePositionalEmbedding,
    AlibiPositionalBias,
    CoPE,
    DataDependentAlibi,
    DynamicPositionBias,
    PolarEmbedding,
    RelativePositionBias,
    RotaryEmbedding,
    ScaledSinusoidalEmbedding,
    apply_polar_pos_emb,
    apply_rotary_pos_emb,
)

PACKAGES = ("x-transformers", "torch")
DTYPES = ("f32", "bf16")


def compute(case, a):
    made = PARTS.get(case["encoding"])
    return made and made(case, a, case["options"], case["facts"])


# ---------------------------------------------------------------- rotations


def rotation(case, a, o, facts):
    given = {"dim": facts["R"], "base": o["base"]}
    i = a["positions"]
    match case["encoding"]:
        case "pi" if o["form"] == "static":
            given |= {"interpolation_factor": o["factor"]}
        case "ntk" if o["form"] == "bloc97":
            given |= {"base_rescale_factor": o["factor"]}
        case "xpos" if o["gamma"] == 0.4 and case["level"] == "attn":
            given |= {"use_xpos": True, "scale_base": o["scale_base"]}
        case "rope" if not o["learned"]:
            pass
        case _:
            return None
    freqs, gain = RotaryEmbedding(**given)(i)
    if case["level"] == "table":
        angle = (freqs[0] if i.ndim == 1 else freqs)[..., ::2]
        return {"angle": angle, "cos": angle.cos(), "sin": angle.sin()}

    def turn(x, role):
        return apply_rotary_pos_emb(x, freqs, gain if role == "q" else gain**-1)

    return rotated(
        case, a, turn if facts["layout"] == "interleaved" else with_pairs(turn, "half", facts["R"])
    )


# ---------------------------------------------------------------- biases


def biased(case, a, bias, scale=None):
    """A bias [H,T,T] at the level that is asked for; its last row has the distances of a table."""
    if case["level"] == "table":
        return {"bias": bias[:, -1].flip(-1)}
    return (
        at_queries(case, a, bias)
        if case["level"] == "op"
        else plain_attention(case, a, a["q"], a["k"], a["v"], bias, scale)
    )


def usable(case, a):
    """Whether a bias by counting serves: distances 0, 1, ... in a table, positions that count elsewhere."""
    d = a.get("distances")
    return bool((d == torch.arange(len(d))).all()) if d is not None else counts(case, a)


def alibi(case, a, o, facts):
    if (o["slopes"], o["directions"], o["max_bias"]) != ("fixed", "both", 8.0):
        return None
    made = AlibiPositionalBias(facts["H"])
    if case["level"] == "table":
        d = a["distances"]
        return {"bias": made.forward_custom_pos(d, torch.zeros(1, dtype=d.dtype))[..., 0]}
    i = a["positions"]
    return biased(case, a, made(len(i), len(i)) if counts(case, a) else made.forward_custom_pos(i))


def t5(case, a, o, facts):
    made = RelativePositionBias(1, facts["causal"], o["buckets"], o["max_distance"], facts["H"])
    put(made.relative_attention_bias, "weight", a["param.table"])
    if case["level"] == "table":
        rows = made._relative_position_bucket(
            -a["distances"], facts["causal"], o["buckets"], o["max_distance"]
        )
        return {"bias": made.relative_attention_bias(rows).T * made.scale}
    scale = 1.0 if o["divided"] == "not" else facts["D"] ** -0.5
    return biased(case, a, made(facts["T"], facts["T"]), scale) if usable(case, a) else None


def dynamic(case, a, o, facts):
    if not usable(case, a) or (o["activation"], o["output"]) != ("silu", "plain"):
        return None
    made = DynamicPositionBias(
        o["width"],
        heads=facts["H"],
        depth=o["depth"],
        log_distance=o["distance"] == "log",
        norm=o["norm"] == "layer",
    )
    linears = [m for m in made.modules() if isinstance(m, nn.Linear)]
    norms = [m for m in made.modules() if type(m).__name__ == "LayerNorm"]
    if norms:
        return None  # the first of its norms has no bias
    for n, linear in enumerate(linears, 1):
        put(linear, "weight", a[f"param.{n}.weight"])
        put(linear, "bias", a.get(f"param.{n}.bias", torch.zeros(facts["H"])))
    T = len(a["distances"]) if case["level"] == "table" else facts["T"]
    return biased(case, a, made(T, T))


# ---------------------------------------------------------------- terms that see content


def cope(case, a, o, facts):
    if o["gates"] != "logits" or (o["divided"] != "qk" and case["level"] == "attn"):
        return None
    q, k = a["q"], a["k"].repeat_interleave(facts["H"] // facts["G"], dim=1)
    made = CoPE(facts["D"], facts["H"], len(a["param.table"]))
    put(made, "pos_emb", a["param.table"])
    see = seen(case, a)
    logits = (q @ k.transpose(-1, -2) * facts["D"] ** -0.5).masked_fill(~see, -torch.finfo(q.dtype).max)
    term = made(q, logits)
    term = torch.where(see, term if o["divided"] == "qk" else term * facts["D"] ** -0.5, 0)
    return {"term": term} if case["level"] == "op" else plain_attention(case, a, a["q"], a["k"], a["v"], term)


def forgetting(case, a, o, facts):
    if "seg" in a:
        return None  # it sums the gates of all documents
    made = DataDependentAlibi(facts["C"], facts["H"])
    put(made.to_forget_gates[0], "weight", a["param.f.weight"])
    put(made.to_forget_gates[0], "bias", a["param.f.bias"])
    term = made(a["x"])
    if case["level"] == "op":
        return {"term": torch.where(seen(case, a), term, 0)}
    return plain_attention(case, a, a["q"], a["k"], a["v"], term)


def pope(case, a, o, facts):
    made = PolarEmbedding(facts["D"], facts["G"], base=o["base"])
    put(made, "learned_bias", a["param.delta"][:, None] % -(2 * torch.pi))  # it wants them from -2 pi to 0
    i = a["positions"]
    freqs, bias = made(i)
    freqs = freqs[:, None]  # [B or 1,1,T,D]
    q, k = apply_polar_pos_emb(a["q"], freqs), apply_polar_pos_emb(a["k"], freqs + bias)
    scale = (facts["D"] if o["divided_by"] == "sqrt_D" else 2 * facts["D"]) ** -0.5
    return {"out": plain_attention(case, a, q, k, a["v"], scale=scale)["out"]}


# ---------------------------------------------------------------- added to the embedding


def sinusoidal(case, a, o, facts):
    if (o["layout"], o["ladder"]) != ("concatenated", "paper") or facts["C"] % 2 or a["positions"].ndim > 1:
        return None
    made = ScaledSinusoidalEmbedding(facts["C"], o["base"])
    put(made, "scale", a["param.scale"]) if o["learned"] else nn.init.ones_(made.scale)
    return embedded(case, a, made(a["positions"][None], a["positions"]))


def learned(case, a, o, facts):
    made = AbsolutePositionalEmbedding(facts["C"], facts["L"], l2norm_embed=o["unit"])
    put(made.emb, "weight", a["param.table"] / made.scale)
    return embedded(case, a, made(a["positions"][None], a["positions"]))


def embedded(case, a, rows):
    return {"rows": rows} if case["level"] == "table" else {"y": a["x"] + rows}


PARTS = {
    "rope": rotation,
    "pi": rotation,
    "ntk": rotation,
    "xpos": rotation,
    "alibi": alibi,
    "t5": t5,
    "dynamic_bias": dynamic,
    "cope": cope,
}
PARTS |= {"pope": pope, "forgetting": forgetting, "sinusoidal": sinusoidal, "learned": learned}
run = adapter(compute)
