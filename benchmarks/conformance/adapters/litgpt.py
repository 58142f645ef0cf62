"""LitGPT (Lightning AI): build_rope_cache with its scalings and apply_rope, pairs in halves.

Its cache begins at position 0; other positions are rows of a longer one, as its input_pos selects them. Where
positions do not fit a cache (real, negative, or beyond 8192) nothing is claimed. The softmax scale of YaRN is
its attention's: D^-0.5 times the square of yarn_get_mscale.
"""

import torch
from litgpt.model import apply_rope, apply_rope_interleave, build_rope_cache, yarn_get_mscale
from through_torch import adapter, plain_attention, rows

PACKAGES = ("litgpt", "torch")
DTYPES = ("f32", "bf16")


def of_all(o):
    """YaRN without what the authors' code alone has."""
    return (o["form"], o["extrapolation_factor"]) == ("static", 1.0)


def extra(case, o, facts):
    """Its extra_config; None where there is none for the case."""
    match case["encoding"]:
        case "rope" if not o["learned"]:
            return {}
        case "pi" if o["form"] == "static":
            return {"factor": o["factor"]}
        case "llama3":
            edges = {key: o[key] for key in ("factor", "low_freq_factor", "high_freq_factor")}
            return edges | {"original_max_seq_len": o["original"] or facts["L"]}
        case "yarn" if (o["ramp"], o["reading"], o["attention_factor"]) == (
            "code",
            "huggingface",
            None,
        ) and of_all(o):
            given = {
                key: o[key]
                for key in ("factor", "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim")
            }
            return given | {"original_max_seq_len": o["original"] or facts["L"]}
    return None


def compute(case, a):
    if case["encoding"] not in ("rope", "pi", "llama3", "yarn"):
        return None
    o, facts, i = case["options"], case["facts"], a["positions"]
    given = extra(case, o, facts)
    if given is None or not rows(a):
        return None
    R = facts["R"]
    cos, sin = (
        x[i] for x in build_rope_cache(int(i.max()) + 1, R, base=o["base"], extra_config=given or None)
    )
    if case["level"] == "table":
        gain = (cos[..., : R // 2] ** 2 + sin[..., : R // 2] ** 2).sqrt()
        plain = {"cos": cos[..., : R // 2] / gain, "sin": sin[..., : R // 2] / gain}
        return plain | {name: gain for name in ("gain_q", "gain_k") if name in case["expected"]}
    cos, sin = (x if x.ndim == 3 else x[None] for x in (cos, sin))
    turn = apply_rope if facts["layout"] == "half" else apply_rope_interleave
    if facts["layout"] == "interleaved" and case["level"] == "op":
        return None  # it leaves the channels in the other order
    q, k = (torch.cat([turn(x[..., :R], cos, sin), x[..., R:]], -1) for x in (a["q"], a["k"]))
    if case["level"] == "op":
        return {"q_rotated": q, "k_rotated": k}
    sharper = (
        yarn_get_mscale(given["factor"], given["mscale_all_dim"]) if given.get("mscale_all_dim") else 1.0
    )
    return plain_attention(case, a, q, k, a["v"], scale=facts["D"] ** -0.5 * sharper**2)


run = adapter(compute)
