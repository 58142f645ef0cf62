"""An adapter in NumPy alone: RoPE in both layouts, YaRN, ALiBi and T5, tables and operations with their gradients.

From this folder: peref check --impl numpy_adapter:run --dtype f32. A case that it does not claim gives None.
"""

import math

import numpy as np


def run(case, a):
    if case["level"] not in ("table", "op") or (case["encoding"] not in ANGLES and case["encoding"] not in BIASES):
        return None
    return (rotated if case["encoding"] in ANGLES else biased)(case, case["facts"], case["options"], a)


def rope(R, L, o, a):
    return a.get("param.frequency", o["base"] ** (-np.arange(0, R, 2) / R)), 1.0


def yarn(R, L, o, a):
    if o["ramp"] != "code" or o["attention_factor"] or o["mscale"] or o["mscale_all_dim"]:
        return None, None
    w, L, s = o["base"] ** (-np.arange(0, R, 2) / R), o["original"] or L, o["factor"]
    low, high = (R * math.log(L / (turns * 2 * math.pi)) / (2 * math.log(o["base"])) for turns in (o["beta_fast"], o["beta_slow"]))
    low, high = (math.floor(low), math.ceil(high)) if o["truncate"] else (low, high)
    low, high = max(low, 0), min(high, R - 1)
    ramp = np.clip((np.arange(R // 2) - low) / (high - low or 0.001), 0, 1)
    return ramp * w / s + (1 - ramp) * w, 0.1 * math.log(s) + 1 if s > 1 else 1.0


def turned(x, cos, sin, layout, gain):
    h = cos.shape[-1]
    i, j = (slice(0, h), slice(h, 2 * h)) if layout == "half" else (slice(0, 2 * h, 2), slice(1, 2 * h, 2))
    y = x.copy()
    y[..., i], y[..., j] = gain * (x[..., i] * cos - x[..., j] * sin), gain * (x[..., i] * sin + x[..., j] * cos)
    return y


def rotated(case, facts, o, a):
    w, gain = ANGLES[case["encoding"]](facts["R"], facts["L"], o, a)
    if w is None or "param.frequency" in a:
        return None
    angle = a["positions"][..., None] * w
    if case["level"] == "table":
        gains = {} if gain == 1 else {name: np.full(angle.shape, gain) for name in ("gain_q", "gain_k")}
        return {"angle": angle, "cos": np.cos(angle), "sin": np.sin(angle), **gains}
    angle = angle[:, None] if angle.ndim == 3 else angle
    c, s = (f(angle).astype(a["q"].dtype) for f in (np.cos, np.sin))
    found = {f"{n}_rotated": turned(a[n], c, s, facts["layout"], gain) for n in "qk"}
    return found | {f"vjp.{n}": turned(a[f"cotangent.{n}_rotated"], c, -s, facts["layout"], gain) for n in "qk"}


def alibi(d, facts, o, a):
    if (o["slopes"], o["heads"]) != ("fixed", "alike"):
        return None, None
    H, most = facts["H"], 2 ** int(math.log2(facts["H"]))
    slope = lambda n: [2 ** (-o["max_bias"] * (h + 1) / n) for h in range(n)]
    return -np.array(slope(most) + slope(2 * most)[::2][: H - most])[:, None] * abs(d), None


def t5(d, facts, o, a):
    nb = o["buckets"] if facts["causal"] else o["buckets"] // 2
    n, e = (np.maximum(d, 0), nb // 2) if facts["causal"] else (abs(d), nb // 2)
    far = e + np.floor(np.log(np.maximum(n, 1) / e) / math.log(o["max_distance"] / e) * (nb - e) + 1e-9)
    row = np.where(n < e, n, np.minimum(far, nb - 1)).astype(int) + (0 if facts["causal"] else nb * (d < 0))
    return a["param.table"][row].T, row


def biased(case, facts, o, a):
    i = a["positions"]
    d = a["distances"] if case["level"] == "table" else (i[:, None] - i).ravel()
    bias, row = BIASES[case["encoding"]](d, facts, o, a)
    if bias is None:
        return None
    T = len(i)
    see = np.ones(len(d), bool) if case["level"] == "table" else np.tri(T, dtype=bool).ravel() | (not facts["causal"])
    found = {"bias": bias * see if case["level"] == "table" else (bias * see).reshape(-1, T, T)}
    if row is not None:
        found["vjp.param.table"] = np.zeros_like(a["param.table"])
        np.add.at(found["vjp.param.table"], row[see], a["cotangent.bias"].reshape(len(bias), -1).T[see])
    return found


ANGLES, BIASES = {"rope": rope, "yarn": yarn}, {"alibi": alibi, "t5": t5}
