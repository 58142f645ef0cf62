"""timm: rotation by row and column with learned frequencies, sinusoids of two axes, and Swin v2's continuous
bias with its cosine attention.

rope_mixed   get_mixed_freqs and apply_rot_embed_cat, whose pairs are adjacent; cases of the other layout come
             with their channels permuted
sincos_2d    build_sincos2d_pos_embed, at the places that a case asks for; what it calls interleaved is the
             layout concatenated here, and its own default (sines of both axes, then cosines) is neither
log_cpb      WindowAttention's network on its table; the window is of as many rows as a case needs, and
             pretrained_window_size says how far it reaches
cosine       WindowAttention itself, of none.attn/cosine-window; the projections around it are left out
"""

import torch
from through_torch import adapter, at_queries, plain_attention, put, rotated, with_pairs
from timm.layers.pos_embed_sincos import apply_rot_embed_cat, build_sincos2d_pos_embed, get_mixed_freqs
from timm.models.swin_transformer_v2 import WindowAttention
from torch import nn

PACKAGES = ("timm", "torch")
DTYPES = ("f32", "bf16")


def compute(case, a):
    made = PARTS.get(case["encoding"])
    return made and made(case, a, case["options"], case["facts"])


def rows_and_columns(i, width):
    """Of positions [2,B,T], or of numbers [T] or [B,T] that count the places of an image."""
    return (i[0], i[1]) if i.ndim == 3 else (i // width, i % width)


def mixed(case, a, o, facts):
    row, column = rows_and_columns(a["positions"], o["width"])
    w = a["param.w"].transpose(0, 1)  # [2,G,R/2]
    if row.ndim > 1:
        w, row, column = w[:, None], row[:, None], column[:, None]
    table = get_mixed_freqs(w, column, row, dtype=torch.float32)  # [G,T,2R]
    sin, cos = (part[..., ::2] for part in table.chunk(2, -1))
    if case["level"] == "table":
        return {"cos": cos, "sin": sin}
    R = facts["R"]

    def turn(x, role):
        by = table.repeat_interleave(x.shape[1] // facts["G"], -3)
        return torch.cat([apply_rot_embed_cat(x[..., :R], by), x[..., R:]], -1)

    return rotated(case, a, turn if facts["layout"] == "interleaved" else with_pairs(turn, "half", R))


def sincos(case, a, o, facts):
    i = a["positions"]
    if (o["ladder"], o["layout"]) != ("paper", "concatenated") or facts["C"] % 4:
        return None
    if i.is_floating_point() or int(i.min()) < 0:
        return None
    row, column = rows_and_columns(i, o["width"])
    sizes = [int(row.max()) + 1, int(column.max()) + 1]
    columns = o["first"] == "columns"
    words = {"reverse_coord": columns, "interleave_sin_cos": True}
    grid = build_sincos2d_pos_embed(sizes, facts["C"], o["base"], **words)
    number = column * sizes[0] + row if columns else row * sizes[1] + column
    rows = grid[number]
    return {"rows": rows} if case["level"] == "table" else {"y": a["x"] + rows}


# ---------------------------------------------------------------- Swin v2


def window(a, o, facts, rows):
    """Its attention in a window of so many rows, with the network of the case."""
    reach = (o["reach"] or max(o["columns"] - 1, 1)) + 1
    sizes = {"window_size": (rows, o["columns"]), "pretrained_window_size": (reach, reach)}
    made = WindowAttention(facts["H"] * facts["D"], num_heads=facts["H"], qkv_bias=False, **sizes)
    made.relative_coords_table = made.relative_coords_table.to(a["param.1.weight"].dtype)
    put(made.cpb_mlp[0], "weight", a["param.1.weight"])
    put(made.cpb_mlp[0], "bias", a["param.1.bias"])
    put(made.cpb_mlp[2], "weight", a["param.2.weight"])
    return made


def log_cpb(case, a, o, facts):
    i = a["positions"]
    d = a.get("distances", i[..., :, None] - i[..., None, :])
    if d.is_floating_point() or d.ndim > 2:
        return None
    w = o["columns"]
    made = window(a, o, facts, int(d.abs().max() + w) // (2 * w - 1) + 1)
    middle = len(made.relative_coords_table.view(-1, 2)) // 2
    bias = 16 * torch.sigmoid(made.cpb_mlp(made.relative_coords_table).view(-1, facts["H"]))[middle + d]
    bias = bias.movedim(-1, 0)  # [H,N] or [H,T,T]
    if case["level"] == "table":
        return {"bias": bias}
    if case["level"] == "op":
        return at_queries(case, a, bias)
    return plain_attention(case, a, a["q"], a["k"], a["v"], bias)


class Given(nn.Module):
    """In place of the projection to q, k and v."""

    def __init__(self, y):
        super().__init__()
        self.y = y

    def forward(self, x):
        return self.y


def cosine(case, a, o, facts):
    if case["id"] != "none.attn/cosine-window":
        return None
    (_, o), H = facts["cycle"][0], facts["H"]
    made = window(a, {"reach": None} | o, facts, facts["T"] // o["columns"])
    put(made, "logit_scale", a["param.cosine"][:, None, None])
    q, k, v = (a[name].repeat_interleave(H // a[name].shape[1], 1) for name in "qkv")
    flat = lambda x: x.transpose(1, 2).flatten(2)
    made.qkv, made.proj, share = Given(torch.cat([flat(x) for x in (q, k, v)], -1)), nn.Identity(), []
    made.softmax.register_forward_hook(lambda _, given, y: share.extend((given[0], y)))
    out = made(flat(q)).unflatten(-1, (H, -1)).transpose(1, 2)
    return dict(zip(("scores", "probabilities", "out"), (*share, out), strict=True))


PARTS = {"rope_mixed": mixed, "sincos_2d": sincos, "log_cpb": log_cpb, "none": cosine}
run = adapter(compute)
