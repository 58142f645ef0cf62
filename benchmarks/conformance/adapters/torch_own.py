"""torch's own functions: attention with a mask of numbers (scaled_dot_product_attention), embedding and
complex products.

No encoding is in torch; what is added to the logits, and the angles, are made here in the dtype of the case.
What is checked is that torch's fused attention and its gradients agree with ours in every mask, group of
heads and bias.
"""

import math

import torch
from through_torch import adapter, counts, seen
from torch.nn import functional as F

PACKAGES = ("torch",)
DTYPES = ("f64", "f32", "bf16")


def compute(case, a):
    made = PARTS.get(case["encoding"])
    return made and made(case, a, case["options"], case["facts"])


def attention(case, a, q, k, bias=None, scale=None):
    """Fused attention; a row that sees nothing is 0, as torch has it."""
    see = seen(case, a)
    T = q.shape[2]
    real = torch.zeros(1, 1, T, T, dtype=q.dtype) if bias is None else bias.to(q.dtype)
    mask = torch.where(see, real, torch.tensor(-torch.inf, dtype=q.dtype))
    out = F.scaled_dot_product_attention(
        q, k, a["v"], attn_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return {"out": out}


def none(case, a, o, facts):
    if o or "cycle" in facts:
        return None  # settings of a layer
    return attention(case, a, a["q"], a["k"])


def distances(a):
    """[1,T,T] or [B,1,T,T]."""
    i = a["positions"]
    d = i[..., :, None] - i[..., None, :]
    return d[:, None] if d.ndim == 3 else d[None]


def alibi(case, a, o, facts):
    if case["level"] != "attn" or (o["slopes"], o["directions"]) != ("fixed", "both"):
        return None
    H, most = facts["H"], 2 ** int(math.log2(facts["H"]))
    slope = lambda n: [2 ** (-o["max_bias"] * (h + 1) / n) for h in range(n)]
    slopes = torch.tensor(slope(most) + slope(2 * most)[::2][: H - most], dtype=torch.float64)
    return attention(case, a, a["q"], a["k"], -slopes[:, None, None] * distances(a).abs())


def learned(case, a, o, facts):
    rows = F.embedding(a["positions"], a["param.table"])
    rows = F.normalize(rows, dim=-1) if o["unit"] else rows
    return {"rows": rows} if case["level"] == "table" else {"y": a["x"] + rows}


def rope(case, a, o, facts):
    """The rotation as a product of complex numbers."""
    i, R = a["positions"], facts["R"]
    if i.ndim > 2:
        return None
    w = a.get("param.frequency", torch.tensor(o["base"]).double() ** (-torch.arange(0, R, 2).double() / R))
    angle = i[..., None].double() * w.double()
    if case["level"] == "table":
        return {
            "angle": angle.to(w.dtype if o["learned"] else torch.float64),
            "cos": angle.cos(),
            "sin": angle.sin(),
        }
    wide = torch.float64 if a["q"].dtype == torch.float64 else torch.float32
    unit = torch.polar(torch.ones_like(angle), angle).to(
        torch.complex128 if wide == torch.float64 else torch.complex64
    )
    unit = unit if i.ndim == 1 else unit[:, None]

    def turn(x):
        part = x[..., :R].to(wide)
        pairs = (
            part.unflatten(-1, (-1, 2))
            if facts["layout"] == "interleaved"
            else part.unflatten(-1, (2, -1)).transpose(-1, -2)
        )
        y = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * unit)
        y = y.flatten(-2) if facts["layout"] == "interleaved" else y.transpose(-1, -2).flatten(-2)
        return torch.cat([y.to(x.dtype), x[..., R:]], -1)

    q, k = turn(a["q"]), turn(a["k"])
    return {"q_rotated": q, "k_rotated": k} if case["level"] == "op" else attention(case, a, q, k)


def t5(case, a, o, facts):
    if case["level"] != "attn" or not counts(case, a):
        return None
    buckets, e = o["buckets"], o["buckets"] // (2 if facts["causal"] else 4)
    d = distances(a)
    n = d.clamp(min=0) if facts["causal"] else d.abs()
    if int(n.max()) >= e:
        return None  # only the exact buckets: the others are other libraries' business
    row = n if facts["causal"] else n + buckets // 2 * (d < 0)
    scale = 1.0 if o["divided"] == "not" else facts["D"] ** -0.5
    return attention(
        case, a, a["q"], a["k"], F.embedding(row[0], a["param.table"]).permute(2, 0, 1)[None], scale
    )


PARTS = {"none": none, "alibi": alibi, "learned": learned, "rope": rope, "t5": t5}
run = adapter(compute)
