"""RoPE in both layouts, YaRN, ALiBi and T5 in NumPy alone, gradients and refusals too. Here: peref check
--impl numpy_adapter:run --dtype f32.
"""

import numpy as np


def run(case, a):
    """The outputs of a case, None for one that is not claimed. Raises ValueError for a call without
    meaning.
    """
    name, facts, o, level = case["encoding"], case["facts"], case["options"], case.get("call", case["level"])
    others = dict.fromkeys(("attention_factor", "mscale", "mscale_all_dim")) | dict(
        learned=False, ramp="code", slopes="fixed", directions="both"
    )
    others |= dict(form="static", extrapolation_factor=1.0)
    if (
        name not in ("rope", "yarn", "alibi", "t5")
        or level not in ("table", "op")
        or any(o.get(key, x) != x for key, x in others.items())
    ):
        return None
    i, R, H, m, parts = a["positions"], facts["R"], facts["H"], o.get("buckets"), 2 if facts["causal"] else 4
    good = {
        "finite positions, one a token, and heads": np.isfinite(i).all()
        and i.shape[-1] == facts["T"]
        and H > 0
    }
    good["real q and k"] = all(
        a[n].dtype.kind == "f" and a[n].shape == tuple(facts[x] for x in f"B{h}TD")
        for n, h in ("qH", "kG")
        if n in a
    )
    if "base" in o:  # a rotation
        good["an even width, a layout, a base"] = (
            R % 2 == 0 < R <= facts["D"] and facts["layout"] in ("half", "interleaved") and o["base"] > 0
        )
    if name == "yarn":
        L, slow, fast = facts["L"] if o["original"] is None else o["original"], o["beta_slow"], o["beta_fast"]
        good["base > 1, factor and length > 0, beta_fast >= beta_slow > 0"] = (
            o["base"] > 1 and min(o["factor"], L, slow) > 0 <= fast - slow
        )
    if name == "t5":
        good["whole positions, buckets"] = (
            i.dtype == int
            and a["param.table"].shape == (m, H)
            and m % parts == 0 < m // parts < o["max_distance"]
        )
    if wrong := [what for what, met in good.items() if not met]:
        raise ValueError(f"expected {'; '.join(wrong)}")
    return (rotation if "base" in o else bias)(name, level == "table", facts, o, a)


def turn(x, cos, sin, layout, gain):
    h, y = cos.shape[-1], x.copy()
    i, j = (slice(h), slice(h, 2 * h)) if layout == "half" else (slice(0, 2 * h, 2), slice(1, 2 * h, 2))
    y[..., i], y[..., j] = (
        gain * (x[..., i] * cos - x[..., j] * sin),
        gain * (x[..., i] * sin + x[..., j] * cos),
    )
    return y


def rotation(name, table, facts, o, a):
    R, gain, w = facts["R"], 1.0, o["base"] ** (-np.arange(0, facts["R"], 2) / facts["R"])
    if name == "yarn":
        pair = lambda turns: (
            R * np.log((o["original"] or facts["L"]) / (turns * 2 * np.pi)) / (2 * np.log(o["base"]))
        )
        low, high = (
            f(pair(o[end])) if o["truncate"] else pair(o[end])
            for f, end in ((np.floor, "beta_fast"), (np.ceil, "beta_slow"))
        )
        slow = np.clip((np.arange(R // 2) - max(low, 0)) / (min(high, R - 1) - max(low, 0) or 0.001), 0, 1)
        w, gain = slow * w / o["factor"] + (1 - slow) * w, 0.1 * np.log(max(o["factor"], 1)) + 1
    angle = a["positions"][..., None] * w
    if table:
        return {"angle": angle, "cos": np.cos(angle), "sin": np.sin(angle)} | {
            f"gain_{n}": np.full(angle.shape, gain) for n in "qk" if gain != 1
        }
    cos, sin = (
        f(angle[:, None] if angle.ndim == 3 else angle).astype(a["q"].dtype) for f in (np.cos, np.sin)
    )
    found = {f"{n}_rotated": turn(a[n], cos, sin, facts["layout"], gain) for n in "qk"}
    return found | {
        f"vjp.{n}": turn(a[x], cos, -sin, facts["layout"], gain)
        for n in "qk"
        if (x := f"cotangent.{n}_rotated") in a
    }


def bias(name, table, facts, o, a):
    i, H, causal, d = (
        a["positions"],
        facts["H"],
        facts["causal"],
        a["distances"] if table else a["positions"][:, None] - a["positions"],
    )
    back = np.zeros_like(d) if table else np.arange(len(i))[:, None] - np.arange(len(i))  # in slots
    see = (abs(back) < (facts["window"] or np.inf)) & (back >= (0 if causal else -np.inf))
    if name == "alibi":
        most, slopes = 2 ** int(np.log2(H)), lambda n: [2 ** (-o["max_bias"] * (h + 1) / n) for h in range(n)]
        return {"bias": -np.multiply.outer(slopes(most) + slopes(2 * most)[::2][: H - most], abs(d) * see)}
    m, n = (o["buckets"], np.maximum(d, 0)) if causal else (o["buckets"] // 2, abs(d))
    far = m // 2 + np.floor(
        np.log(np.maximum(n, 1) / (m // 2)) / np.log(o["max_distance"] / (m // 2)) * (m - m // 2) + 1e-9
    )
    row = np.where(n < m // 2, n, np.minimum(far, m - 1)).astype(int) + (0 if causal else m * (d < 0))
    back = np.stack(
        [
            np.bincount(row[see], dy[see], o["buckets"])
            for dy in a.get("cotangent.bias", np.zeros((H, *d.shape)))
        ],
        -1,
    )
    return {
        "bias": np.moveaxis(a["param.table"][row], -1, 0) * see,
        "vjp.param.table": back.astype(a["param.table"].dtype),
    }
