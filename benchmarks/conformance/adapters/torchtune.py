"""torchtune: RotaryPositionalEmbeddings and Llama3ScaledRoPE (adjacent pairs), Qwen2's (halves), rows of a
cache.

Where positions do not fit a cache (real, negative, or beyond 8192) nothing is claimed. torchtune 0.6.1 is the
last release, and as a package it wants a torchao that does not import beside torch 2.13; its position
embeddings want torch alone and are loaded from their files.
"""

from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location

from through_torch import adapter, rotated, rows


def loaded(path):
    """One file of the installed package as a module."""
    spec = spec_from_file_location(
        path.replace("/", "_"), distribution("torchtune").locate_file(f"torchtune/{path}.py")
    )
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Llama3ScaledRoPE = loaded("models/llama3_1/_position_embeddings").Llama3ScaledRoPE
Qwen2RotaryPositionalEmbeddings = loaded(
    "models/qwen2/_positional_embeddings"
).Qwen2RotaryPositionalEmbeddings
RotaryPositionalEmbeddings = loaded("modules/position_embeddings").RotaryPositionalEmbeddings

PACKAGES = ("torchtune", "torch")
DTYPES = ("f32", "bf16")


def compute(case, a):
    o, facts, i = case["options"], case["facts"], a["positions"]
    if case["encoding"] not in ("rope", "llama3") or i.ndim > 2 or not rows(a) or o.get("learned"):
        return None
    half = facts["layout"] == "half" and case["level"] != "table"
    given = {"dim": facts["R"], "max_seq_len": int(i.max()) + 1, "base": o["base"]}
    if case["encoding"] == "llama3":
        if half or facts["R"] != facts["D"]:
            return None
        edges = {key: o[key] for key in ("low_freq_factor", "high_freq_factor")}
        made = Llama3ScaledRoPE(
            **given, scale_factor=o["factor"], old_context_len=o["original"] or facts["L"], **edges
        )
    elif facts["R"] != facts["D"]:
        return None
    else:
        made = (Qwen2RotaryPositionalEmbeddings if half else RotaryPositionalEmbeddings)(**given)
    if case["level"] == "table":
        return {"cos": made.cache[i][..., 0], "sin": made.cache[i][..., 1]}
    ids = i if i.ndim == 2 else i[None]
    return rotated(case, a, lambda x, role: made(x.transpose(1, 2), input_pos=ids).transpose(1, 2))


run = adapter(compute)
