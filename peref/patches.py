"""How tokens are numbered where patches of images and videos stand within text: what mrope is given.

    text goes on by 1 on every axis; the tokens of a grid that begins at p have
    time p + floor(step a), height p + b, width p + c        a < t, b < h / merge, c < w / merge
    and what follows begins at the largest number so far, on any axis, + 1

Qwen2-VL has step 1 (Wang et al. 2024, arXiv:2409.12191). Qwen2.5-VL has, for a video alone,
tokens_per_second (2) times second_per_grid_ts. Qwen3-VL and Qwen3.5 give every frame of a video as a grid of
its own, t = 1, behind the text of its time.

Not here: finding grids among token ids; the position in a cache, which goes on at the last + 1.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from peref.errors import Misuse

Grid = tuple[int, int, int] | tuple[int, int, int, float]


def patch_positions(
    parts: Iterable[int | Grid], *, merge: int = 2, after: Literal["largest", "sides"] = "largest"
) -> np.ndarray:
    """Positions [3,1,T] of time, height and width, int64, as mrope takes them. parts: a number of tokens of
    text, or the grid (t, h, w) of an image or video in patches, in reading order, (t, h, w, step) where
    frames are `step` positions apart.

    merge  patches along each side that are one token
    after  what follows a grid begins at "largest", the largest number on any axis + 1 (the paper,
           transformers 4), or at "sides", max(h, w) / merge behind the grid's own begin (transformers
           5), which is less where time goes farther, and so has numbers twice

    Raises Misuse for sizes below 1, sides that merge does not divide and a step below 0.
    """
    found, begin = [np.zeros((3, 0), np.int64)], 0
    for part in parts:
        sizes, step = ((part,), 1.0) if isinstance(part, int) else (part[:3], float((*part, 1.0)[3]))
        t, *sides = sizes
        if min(sizes) < 1 or any(side % merge for side in sides) or not step >= 0:
            wanted = f"t, h, w and perhaps a step from 0 on, with h and w multiples of {merge}"
            raise Misuse(f"patch_positions: a part is {part}; expected a number of tokens, or {wanted}")
        new = np.indices((t, *(side // merge for side in sides))).reshape(len(sizes), -1)
        if sides:
            new[0] = np.floor(new[0] * step)
        found.append(begin + np.broadcast_to(new, (3, new.shape[1])))
        begin += max(sides) // merge if sides and after == "sides" else int(new.max()) + 1
    return np.concatenate(found, 1)[:, None]
