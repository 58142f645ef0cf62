"""RoPE in both layouts, YaRN, ALiBi and T5 in NumPy alone, with their gradients. From here: peref check --impl numpy_adapter:run --dtype f32."""

import math

import numpy as np


def run(case, a):
    """The outputs of a case, None for one that is not claimed."""
    made = {"rope": rotation, "yarn": rotation, "alibi": bias, "t5": bias}.get(case["encoding"])
    return made(case["encoding"], case["level"] == "table", case["facts"], case["options"], a) if made and case["level"] in ("table", "op") else None


def frequencies(name, R, L, o):
    w = o["base"] ** (-np.arange(0, R, 2) / R)
    if name == "rope":
        return w, 1.0
    low, high = (R * math.log((o["original"] or L) / (t * 2 * math.pi)) / (2 * math.log(o["base"])) for t in (o["beta_fast"], o["beta_slow"]))
    low, high = (math.floor(low), math.ceil(high)) if o["truncate"] else (low, high)
    low, high = max(low, 0), min(high, R - 1)
    slow = np.clip((np.arange(R // 2) - low) / (high - low or 0.001), 0, 1)
    return slow * w / o["factor"] + (1 - slow) * w, 0.1 * math.log(o["factor"]) + 1 if o["factor"] > 1 else 1.0


def turn(x, cos, sin, layout, gain):
    h, y = cos.shape[-1], x.copy()
    i, j = (slice(h), slice(h, 2 * h)) if layout == "half" else (slice(0, 2 * h, 2), slice(1, 2 * h, 2))
    y[..., i], y[..., j] = gain * (x[..., i] * cos - x[..., j] * sin), gain * (x[..., i] * sin + x[..., j] * cos)
    return y


def rotation(name, table, facts, o, a):
    if o.get("learned") or o.get("ramp") == "paper" or any(o.get(key) is not None for key in ("attention_factor", "mscale", "mscale_all_dim")):
        return None
    w, gain = frequencies(name, facts["R"], facts["L"], o)
    angle = a["positions"][..., None] * w
    if table:
        return {"angle": angle, "cos": np.cos(angle), "sin": np.sin(angle)} | {f"gain_{n}": np.full(angle.shape, gain) for n in "qk" if gain != 1}
    angle = angle[:, None] if angle.ndim == 3 else angle
    cos, sin = np.cos(angle).astype(a["q"].dtype), np.sin(angle).astype(a["q"].dtype)
    found = {f"{n}_rotated": turn(a[n], cos, sin, facts["layout"], gain) for n in "qk"}
    back = {f"vjp.{n}": a[f"cotangent.{n}_rotated"] for n in "qk" if f"cotangent.{n}_rotated" in a}
    return found | {name: turn(dy, cos, -sin, facts["layout"], gain) for name, dy in back.items()}


def bias(name, table, facts, o, a):
    i, H, causal = a["positions"], facts["H"], facts["causal"]
    d = a["distances"] if table else i[:, None] - i
    see = np.ones(d.shape, bool) if table or not causal else np.tri(len(i), dtype=bool)
    if name == "alibi":
        most, slopes = 2 ** int(math.log2(H)), lambda n: [2 ** (-o["max_bias"] * (h + 1) / n) for h in range(n)]
        y = -np.multiply.outer(slopes(most) + slopes(2 * most)[::2][: H - most], abs(d) * see)
        return {"bias": y} if (o["slopes"], o["directions"]) == ("fixed", "both") else None
    m, n = (o["buckets"], np.maximum(d, 0)) if causal else (o["buckets"] // 2, abs(d))
    far = m // 2 + np.floor(np.log(np.maximum(n, 1) / (m // 2)) / math.log(o["max_distance"] / (m // 2)) * (m - m // 2) + 1e-9)
    row = np.where(n < m // 2, n, np.minimum(far, m - 1)).astype(int) + (0 if causal else m * (d < 0))
    back = np.zeros_like(a["param.table"])
    np.add.at(back, row[see], np.moveaxis(a.get("cotangent.bias", np.zeros((H, *d.shape))), 0, -1)[see])
    return {"bias": np.moveaxis(a["param.table"][row], -1, 0) * see, "vjp.param.table": back}
