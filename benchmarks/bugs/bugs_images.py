"""Bugs of encodings of patches: rows and columns."""

import numpy as np

from .edits import After, bug
from .tape import linear, relu, silu

bug(
    "sincos_2d-rows-first",
    "sincos_2d",
    "table",
    "The half of the rows comes first, or that of the columns where rows should.",
    "facebookresearch/mae#18",
    "sin.axes position.axes",
    order=After(lambda me, axes: axes[::-1]),
)
bug(
    "sincos_2d-transposed-grid",
    "sincos_2d",
    "table",
    "The grid is flattened the other way: a number is column height + row.",
    "huggingface/transformers#41380",
    "sin.axes position.axes",
    places=After(lambda me, places: places[::-1]),
)
bug(
    "sincos_2d-alternating",
    "sincos_2d",
    "table",
    "Sines and cosines alternate where they stand in halves, or the other way round.",
    "facebookresearch/mae#63",
    "sin.order",
    waves=lambda me, sin, cos: (
        np.stack([sin, cos], -1).reshape(*sin.shape[:-1], -1)
        if me.o["layout"] == "concatenated"
        else np.concatenate([sin, cos], -1)
    ),
)
bug(
    "sincos_2d-counted-from-1",
    "sincos_2d",
    "table",
    "Rows and columns count from 1, as DETR's cumsum does.",
    "open-mmlab/mmdetection#3850",
    "position.off_by_one position.counted",
    places=After(lambda me, places: (places[0] + 1, places[1] + 1)),
)
bug(
    "sincos_2d-half-outside",
    "sincos_2d",
    "table",
    "Half a patch is taken off after the coordinates were scaled.",
    "IDEA-Research/DN-DETR#51",
    "position.off_by_one",
    places=After(lambda me, places: (places[0] - 0.5, places[1] - 0.5)),
)
bug(
    "sincos_2d-precedence",
    "sincos_2d",
    "table",
    "-ln(base) / C // 2 is rounded down to -1: every frequency but the first is far too low.",
    "zju3dv/LoFTR#41",
    "sin.denominator",
    ladder=lambda me, h: np.exp(-2.0 * np.arange(h)),
)
bug(
    "sincos_2d-width-ignored",
    "sincos_2d",
    "table",
    "The image is taken for a square of 14 by 14.",
    "facebookresearch/mae#151",
    "sin.axes",
    places=lambda me, i: tuple(
        np.asarray(a).astype(me.work) for a in ((i[0], i[1]) if np.ndim(i) == 3 else (i // 14, i % 14))
    ),
)
bug(
    "sincos_2d-one-axis",
    "sincos_2d",
    "op",
    "The number of the patch is used for both axes.",
    "xplip/pixel#7",
    "sin.axes position.axes",
    places=lambda me, i: (
        (np.asarray(i[0]).astype(me.work),) * 2 if np.ndim(i) == 3 else (np.asarray(i).astype(me.work),) * 2
    ),
)
bug(
    "log_cpb-transposed",
    "log_cpb",
    "table",
    "Columns come before rows.",
    "leondgarse/keras_cv_attention_models#26",
    "cpb.axes",
    between=After(lambda me, rc: rc[::-1]),
)
bug(
    "log_cpb-stride",
    "log_cpb",
    "table",
    "A row is 2w - 2 entries.",
    "microsoft/Swin-Transformer#367",
    "cpb.axes",
    between=lambda me, d: (lambda r, s: (r, d - r * s))(
        np.floor((d + me.o["columns"] - 1) / max(2 * me.o["columns"] - 2, 1)), max(2 * me.o["columns"] - 2, 1)
    ),
)
bug(
    "log_cpb-not-scaled-by-8",
    "log_cpb",
    "table",
    "Shares are not multiplied by 8, nor is the logarithm divided by that of 8.",
    "microsoft/Swin-Transformer#329",
    "cpb.spacing",
    spaced=lambda me, x: np.sign(x) * np.log2(1 + abs(x) / me.reach()),
)
bug(
    "log_cpb-log-9",
    "log_cpb",
    "table",
    "The logarithm is divided by that of 9, the largest numerator.",
    "microsoft/Swin-Transformer#224",
    "cpb.spacing",
    spaced=lambda me, x: np.sign(x) * np.log2(1 + 8 * abs(x) / me.reach()) / np.log2(9),
)
bug(
    "log_cpb-trained-window-ignored",
    "log_cpb",
    "op",
    "Shares are of the window at hand, not of the one trained in.",
    "microsoft/Swin-Transformer#385",
    "cpb.spacing option",
    reach=lambda me: max(me.o["columns"] - 1, 1),
)
bug(
    "log_cpb-no-sigmoid",
    "log_cpb",
    "table",
    "The table is used without 16 sigmoid.",
    "pytorch/vision#6246",
    "cpb.network",
    squashed=lambda me, b: b,
)
bug(
    "log_cpb-silu",
    "log_cpb",
    "table",
    "The network has silu in place of relu.",
    "open-mmlab/mmpretrain#1029",
    "cpb.network",
    network=lambda me, x: linear(silu(linear(x, me.p["1.weight"]) + me.p["1.bias"]), me.p["2.weight"]),
)
bug(
    "log_cpb-no-bias",
    "log_cpb",
    "table",
    "The bias of the first layer is not loaded.",
    "open-mmlab/mmpretrain#1029",
    "cpb.network",
    network=lambda me, x: linear(relu(linear(x, me.p["1.weight"])), me.p["2.weight"]),
)
bug(
    "log_cpb-mirrored",
    "log_cpb",
    "table",
    "Rows and columns are those of the key minus the query's.",
    "microsoft/Swin-Transformer#281",
    "cpb.axes bias.sign",
    between=After(lambda me, rc: tuple(-x for x in rc)),
)
