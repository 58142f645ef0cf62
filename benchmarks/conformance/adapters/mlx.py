"""MLX (Apple), on the CPU: fast.rope in both layouts and for partial widths with an offset, a factor or
frequencies of the case; ALiBi; sinusoids.

fast.rope takes an offset and counts from there: other positions are not claimed, save single tokens, which
are given one by one. Gradients through mlx.core.vjp.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

PACKAGES = ("mlx",)
DTYPES = ("f32",)


def run(case, a):
    made = {"rope": rotation, "pi": rotation, "alibi": alibi, "sinusoidal": sinusoidal}.get(case["encoding"])
    return (
        made and made(case, a, case["options"], case["facts"])
        if case["level"] in ("table", "op", "attn")
        else None
    )


def rotation(case, a, o, facts):
    i = a["positions"]
    if (
        case["level"] != "op"
        or o.get("learned")
        or o.get("form") == "dynamic"
        or i.ndim != 1
        or i.dtype.kind != "i"
    ):
        return None
    made = nn.RoPE(
        facts["R"],
        traditional=facts["layout"] == "interleaved",
        base=o["base"],
        scale=1 / o.get("factor", 1.0),
    )
    counted = (i == np.arange(len(i))).all()

    def turn(x):
        return (
            made(x)
            if counted
            else mx.concatenate([made(x[:, :, t : t + 1], offset=int(p)) for t, p in enumerate(i)], axis=2)
        )

    found = {}
    for name in "qk":
        (y,), (g,) = mx.vjp(turn, [mx.array(a[name])], [mx.array(a[f"cotangent.{name}_rotated"])])
        found |= {f"{name}_rotated": np.array(y), f"vjp.{name}": np.array(g)}
    return found


def alibi(case, a, o, facts):
    if (o["slopes"], o["directions"], o["max_bias"]) != ("fixed", "both", 8.0):
        return None
    d = a.get("distances", a["positions"])
    if d.ndim != 1 or not (d == np.arange(len(d))).all() or case["level"] == "attn":
        return None
    bias = np.array(nn.ALiBi.create_alibi_matrix(len(d), len(d), facts["H"]))[0]
    if case["level"] == "table":
        return {"bias": bias[:, -1, ::-1].copy()}
    return {"bias": np.where(np.tri(len(d), dtype=bool), bias, 0) if facts["causal"] else bias}


def sinusoidal(case, a, o, facts):
    if (
        o["learned"]
        or (o["layout"], o["ladder"]) != ("concatenated", "endpoint")
        or facts["C"] % 2
        or a["positions"].ndim != 1
    ):
        return None
    rows = np.array(
        nn.SinusoidalPositionalEncoding(facts["C"], min_freq=1 / o["base"], scale=1.0)(
            mx.array(a["positions"].astype(np.float32))
        )
    )
    return (
        {"rows": rows} if case["level"] == "table" else {"y": np.asarray(mx.array(a["x"]) + mx.array(rows))}
    )
