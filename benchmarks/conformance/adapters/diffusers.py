"""diffusers (Hugging Face): get_1d_rotary_pos_embed with its linear and NTK factors, apply_rotary_emb in both
layouts, sinusoids.

Frequencies in float64 where the case is (freqs_dtype), though cosines and sines are float32 then. ntk_factor
is given the factor of the case.
"""

import torch
from diffusers.models.embeddings import (
    apply_rotary_emb,
    get_1d_rotary_pos_embed,
    get_1d_sincos_pos_embed_from_grid,
    get_timestep_embedding,
)
from through_torch import adapter, rotated

PACKAGES = ("diffusers", "torch")
DTYPES = ("f32", "bf16")


def compute(case, a):
    o, facts, i = case["options"], case["facts"], a["positions"]
    if case["encoding"] == "sinusoidal":
        return sinusoidal(case, a, o, facts)
    factors = {
        "rope": {},
        "pi": {"linear_factor": o.get("factor")},
        "ntk": {"ntk_factor": o.get("factor")},
    }.get(case["encoding"])
    if (
        factors is None
        or i.ndim != 1
        or o.get("learned")
        or o.get("form", "bloc97") not in ("bloc97", "static")
    ):
        return None
    R, half = facts["R"], facts["layout"] == "half"
    cos, sin = get_1d_rotary_pos_embed(
        R,
        i.double(),
        o["base"],
        use_real=True,
        repeat_interleave_real=not half,
        freqs_dtype=torch.float64,
        **factors,
    )
    if case["level"] == "table":
        return {"cos": cos[:, : R // 2], "sin": sin[:, : R // 2]} if half else None
    pairs = -2 if half else -1
    turn = lambda x, role: torch.cat(
        [apply_rotary_emb(x[..., :R], (cos, sin), use_real_unbind_dim=pairs), x[..., R:]], -1
    )
    return rotated(case, a, turn)


def sinusoidal(case, a, o, facts):
    if o["learned"] or o["layout"] != "concatenated" or a["positions"].ndim != 1:
        return None
    if o["ladder"] == "endpoint":
        rows = get_timestep_embedding(a["positions"], facts["C"], max_period=o["base"])
    elif facts["C"] % 2 or o["base"] != 10000:
        return None
    else:
        rows = get_1d_sincos_pos_embed_from_grid(facts["C"], a["positions"].double()).float()
    return {"rows": rows} if case["level"] == "table" else {"y": a["x"] + rows}


run = adapter(compute)
