"""An adapter in PyTorch: RoPE in both layouts, YaRN, ALiBi and T5; every gradient is autograd's.

From this folder: peref check --impl torch_adapter:run --dtype f32. A case that it does not claim gives None,
a call without meaning a ValueError.
"""

import math

import torch


def run(case, arrays):
    facts, options, name, level = (
        case["facts"],
        case["options"],
        case["encoding"],
        case.get("call", case["level"]),
    )
    if level not in ("table", "op") or name not in ("rope", "yarn", "alibi", "t5"):
        return None
    a = {name: torch.from_numpy(x.copy()) for name, x in arrays.items()}
    for what, met in needs(name, facts, options, a):
        if not met:
            raise ValueError(f"expected {what}")
    leaves = [name for name in a if name in "qk" or name.startswith("param.")]
    for leaf in leaves:
        a[leaf].requires_grad_()
    found = (rotation if name in ("rope", "yarn") else bias)(name, level, facts, options, a)
    if found is None:
        return None
    pairs = [(found[output], a[f"cotangent.{output}"]) for output in found if f"cotangent.{output}" in a]
    if pairs:
        torch.autograd.backward(*zip(*pairs, strict=True))
    return {name: y.detach().numpy() for name, y in found.items()} | {
        f"vjp.{leaf}": a[leaf].grad.numpy() for leaf in leaves if pairs
    }


def needs(name, facts, o, a):
    """What a call must have, and whether it has. The first that it has not is told."""
    i, R, D, H = a["positions"], facts["R"], facts["D"], facts["H"]
    yield "finite positions, one for each token", bool(i.isfinite().all()) and i.shape[-1] == facts["T"]
    yield "heads", H > 0
    for n, heads in (("q", H), ("k", facts["G"])):
        yield (
            f"{n} real, [{facts['B']},{heads},{facts['T']},{D}]",
            n not in a or (a[n].is_floating_point() and a[n].shape == (facts["B"], heads, facts["T"], D)),
        )
    if name in ("rope", "yarn"):
        yield "an even rotary width, 2 to the head's", R % 2 == 0 and 2 <= R <= D
        yield "the layout half or interleaved", facts["layout"] in ("half", "interleaved")
        yield "a base above 0", o["base"] > 0
    if name == "yarn":
        yield "a base above 1", o["base"] > 1
        yield "a factor above 0", o["factor"] > 0
        yield "a length trained for", o["original"] is None or o["original"] > 0
        yield "beta_fast of at least beta_slow, above 0", o["beta_fast"] >= o["beta_slow"] > 0
    if name == "t5":
        parts = 2 if facts["causal"] else 4
        yield "whole positions", not i.is_floating_point()
        yield f"a multiple of {parts} buckets", o["buckets"] > 0 and o["buckets"] % parts == 0
        yield "a max_distance beyond the exact buckets", o["max_distance"] > o["buckets"] // parts
        yield "a table [buckets,H]", a["param.table"].shape == (o["buckets"], H)


def frequencies(name, R, L, o):
    w = o["base"] ** (-torch.arange(0, R, 2, dtype=torch.float64) / R)
    if name == "rope":
        return w, 1.0
    pair = lambda turns: (
        R * math.log((o["original"] or L) / (turns * 2 * math.pi)) / (2 * math.log(o["base"]))
    )
    low, high = pair(o["beta_fast"]), pair(o["beta_slow"])
    low, high = (math.floor(low), math.ceil(high)) if o["truncate"] else (low, high)
    low, high = max(low, 0), min(high, R - 1)
    slow = ((torch.arange(R // 2, dtype=torch.float64) - low) / (high - low or 0.001)).clamp(0, 1)
    return slow * w / o["factor"] + (1 - slow) * w, 0.1 * math.log(o["factor"]) + 1 if o[
        "factor"
    ] > 1 else 1.0


def rotation(name, level, facts, o, a):
    plain = name == "rope" or (o["ramp"], o["form"], o["extrapolation_factor"]) == ("code", "static", 1.0)
    if name == "yarn" and (
        not plain or any(o[key] is not None for key in ("attention_factor", "mscale", "mscale_all_dim"))
    ):
        return None
    w, gain = frequencies(name, facts["R"], facts["L"], o)
    angle = a["positions"].double()[..., None] * a.get("param.frequency", w)
    if level == "table":
        gains = (
            {}
            if gain == 1
            else {"gain_q": torch.full_like(angle, gain), "gain_k": torch.full_like(angle, gain)}
        )
        return {"angle": angle, "cos": angle.cos(), "sin": angle.sin(), **gains}
    angle = angle[:, None] if angle.ndim == 3 else angle  # [B,1,T,R/2] or [T,R/2]
    return {
        f"{n}_rotated": turn(a[n], angle.cos().to(a[n]), angle.sin().to(a[n]), facts["layout"], gain)
        for n in "qk"
    }


def turn(x, cos, sin, layout, gain):
    turned, rest = x.tensor_split([2 * cos.shape[-1]], -1)
    x1, x2 = turned.chunk(2, -1) if layout == "half" else (turned[..., ::2], turned[..., 1::2])
    y1, y2 = gain * (x1 * cos - x2 * sin), gain * (x1 * sin + x2 * cos)
    y = torch.cat([y1, y2], -1) if layout == "half" else torch.stack([y1, y2], -1).flatten(-2)
    return torch.cat([y, rest], -1)


def bias(name, level, facts, o, a):
    i, H = a["positions"], facts["H"]
    d = a["distances"] if level == "table" else i[:, None] - i
    if name == "t5":
        y = a["param.table"][bucket(d, facts["causal"], o)].movedim(-1, 0)
    elif (o["slopes"], o["directions"]) == ("fixed", "both"):
        most = 2 ** int(math.log2(H))
        slope = lambda n: [2 ** (-o["max_bias"] * (h + 1) / n) for h in range(n)]
        every = torch.tensor(slope(most) + slope(2 * most)[::2][: H - most], dtype=torch.float64)
        y = -every.view(-1, *[1] * d.ndim) * d.abs()
    else:
        return None
    # a key that is not there yet counts 0
    return {"bias": y.tril() if level == "op" and facts["causal"] else y}


def bucket(d, causal, o):
    m = o["buckets"] if causal else o["buckets"] // 2
    n, e = d.clamp(min=0) if causal else d.abs(), m // 2
    # a hair: borders are exact
    far = e + ((n.clamp(min=1) / e).double().log() / math.log(o["max_distance"] / e) * (m - e) + 1e-9).floor()
    return torch.where(n < e, n, far.clamp(max=m - 1).long()) + (0 if causal else m * (d < 0))
