"""Positions of training that are drawn instead of counted, so that a model meets those of longer texts.

    random:N  a sorted sample of 0 to N - 1 without repetition, one for the micro-batch
    pose:N    counted from 0, but from a token of the first half on with a skip: of each sequence its own, so
              that it ends before N

Ruoss et al. 2023, arXiv:2305.16843 (random); Zhu et al. 2023, arXiv:2309.10400 (pose: positional skip-wise
training, with two chunks). Drawn as their code draws: one sample for a batch
(google-deepmind/randomized_positional_encodings), a first chunk of 1 to (T + 1) // 2 tokens that begins at 0
and any skip alike (dwzhu-pku/PoSE, train_pose.py). Frequencies are made for the length N. Not here: the skip
of text between PoSE's chunks, which are neighbours here; drawn positions in evaluation, which Ruoss et al.
have too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref.errors import Misuse
from peref.ops.place import LARGEST_POSITION


def sampled(rng: Any, B: int, T: int, N: int) -> np.ndarray:
    """T of the positions 0 to N - 1, ascending, [T]."""
    return np.sort(rng.choice(N, T, replace=False))


def skipped(rng: Any, B: int, T: int, N: int) -> np.ndarray:
    """Positions of two chunks with a skip between them, [1,B,T]."""
    first = rng.integers(1, (T + 1) // 2 + 1, (1, B, 1))
    return np.arange(T) + rng.integers(0, N - T + 1, (1, B, 1)) * (np.arange(T) >= first)


SAMPLERS: dict[str, Callable] = {"random": sampled, "pose": skipped}


def draw_of(text: str) -> tuple[Callable, int]:
    """What draws, and N, of "random:N" or "pose:N". Raises Misuse for another text."""
    how, _, end = text.partition(":")
    if how not in SAMPLERS or not (end.isascii() and end.isdecimal() and 0 < int(end) <= LARGEST_POSITION):
        known = " or ".join(f"{name}:N" for name in SAMPLERS)
        raise Misuse(f"positions is {text!r}; expected {known}, N a length")
    return SAMPLERS[how], int(end)
