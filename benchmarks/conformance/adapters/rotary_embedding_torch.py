"""rotary-embedding-torch (lucidrains): RoPE with fixed and learned frequencies, position interpolation, NTK,
xPos, axial pixels.

Its pairs are adjacent channels; cases of the other layout come with their channels permuted. Position
interpolation is inside get_seq_pos, so that only positions that count from 0 reach it. Its xPos has the
centre at half the length, ours at 0: attention, where it has no say, is claimed.
"""

from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from through_torch import adapter, counts, put, rotated, with_pairs

PACKAGES = ("rotary-embedding-torch", "torch")
DTYPES = ("f32", "bf16")


def settings(case, a):
    """Of RotaryEmbedding; None for what it has not."""
    o, R = case["options"], case["facts"]["R"]
    match case["encoding"]:
        case "rope":
            return {"dim": R, "theta": o["base"]}
        case "pi" if counts(case, a) and o["form"] == "static":
            return {"dim": R, "theta": o["base"], "interpolate_factor": o["factor"]}
        case "ntk" if o["form"] == "bloc97":
            return {"dim": R, "theta": o["base"], "theta_rescale_factor": o["factor"]}
        case "xpos" if case["level"] == "attn" and counts(case, a) and o["gamma"] == 0.4:
            return {"dim": R, "theta": o["base"], "use_xpos": True, "xpos_scale_base": o["scale_base"]}
        case "axial" if o["ladder"] == "pixel" and case["level"] == "table":
            return {"dim": R // 2, "freqs_for": "pixel", "max_freq": o["max_freq"]}
    return None


def compute(case, a):
    given = settings(case, a)
    if given is None:
        return None
    rotary, facts = RotaryEmbedding(**given, cache_if_possible=False), case["facts"]
    if "param.frequency" in a:
        put(rotary, "freqs", a["param.frequency"])
    if case["encoding"] == "axial":
        return pixels(case, a, rotary)
    if case["level"] == "table":
        i = rotary.get_seq_pos(len(a["positions"])) if case["encoding"] == "pi" else a["positions"]
        angle = rotary(i)[..., ::2]
        return {"angle": angle, "cos": angle.cos(), "sin": angle.sin()}

    def turn(x, role):
        if case["encoding"] == "xpos":
            return rotary.rotate_queries_and_keys(x, x)[role == "k"]
        if counts(case, a):
            return rotary.rotate_queries_or_keys(x)
        freqs = rotary(a["positions"])
        return apply_rotary_emb(freqs if freqs.ndim == 2 else freqs[:, None], x)

    return rotated(
        case, a, turn if facts["layout"] == "interleaved" else with_pairs(turn, "half", facts["R"])
    )


def pixels(case, a, rotary):
    """get_axial_freqs of an image `width` wide, where the tokens of the case stand."""
    width = case["options"]["width"]
    i = a["positions"]
    if i.ndim != 1 or i.is_floating_point() or int(i.max()) >= width * width:
        return None
    angle = rotary.get_axial_freqs(width, width)[i // width, i % width][:, ::2]
    return {"angle": angle, "cos": angle.cos(), "sin": angle.sin()}


run = adapter(compute)
