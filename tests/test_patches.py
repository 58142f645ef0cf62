"""The numbering of patches in text: against a count token by token, public code's numbers, and mrope."""

import math

import numpy as np
import pytest
from check import apart, same
from generated import tokens, weights
from making.catalogue import catalogue

import peref
from peref import model
from peref.config import Config
from peref.errors import Misuse
from peref.patches import patch_positions

VIDEO = (4, 4, 4)


def counted(parts, merge, after):
    """Token by token, (t, h, w) of each."""
    found, begin = [], 0
    for part in parts:
        if isinstance(part, int):
            found += [(begin + n,) * 3 for n in range(part)]
            begin += part
            continue
        frames, height, width, *step = part
        for a in range(frames):
            time = math.floor(a * (step[0] if step else 1))
            for b in range(height // merge):
                for c in range(width // merge):
                    found.append((begin + time, begin + b, begin + c))
        ahead = max(height, width) // merge
        begin = begin + ahead if after == "sides" else max(map(max, found)) + 1
    return [list(axis) for axis in zip(*found, strict=True)]


@pytest.mark.parametrize("after", ["largest", "sides"])
@pytest.mark.parametrize("merge", [1, 2, 3])
def test_tokens_are_counted_as_one_by_one(merge, after):
    """Text before, between and behind images and videos, with and without a step."""
    m = merge
    for parts in (
        [3],
        [(1, 2 * m, 3 * m)],
        [2, (1, 3 * m, m), (2, m, m), 4],
        [1, (5, m, 2 * m, 1.5), 2, (3, 2 * m, m, 0.25), 1],
        [(2, m, m, 0)],
    ):
        want = np.array(counted(parts, m, after))[:, None]
        same(patch_positions(parts, merge=m, after=after), want, 0)


def test_the_numbers_of_public_code():
    """What transformers 4.57.1 ("largest") and 5.23.0 ("sides") give for Qwen2-VL, four frames of 2 by 2
    tokens between texts of two; behind an image both are one.
    """
    t = [0, 1, *np.repeat([2, 3, 4, 5], 4)]
    h, w = [0, 1, *[2, 2, 3, 3] * 4], [0, 1, *[2, 3, 2, 3] * 4]
    for after, last in (("largest", [6, 7]), ("sides", [4, 5])):
        want = np.array([[*axis, *last] for axis in (t, h, w)])[:, None]
        same(patch_positions([2, VIDEO, 2], after=after), want, 0)
    image = [2, (1, 4, 8), 2]
    same(patch_positions(image), patch_positions(image, after="sides"), 0)


def test_golden_cases_have_this_numbering():
    for slug, parts in (
        ("qwen2-5-vl-video", [2, (3, 2, 4, 1.5), 2]),
        ("qwen3-vl-frames", [2, (1, 2, 4), 2, (1, 2, 4), 1]),
        ("text-around-an-image", [2, (1, 4, 6), 1]),
    ):
        (found,) = (case for case in catalogue() if case.encoding == "mrope" and case.slug == slug)
        same(np.asarray(found.at.i).reshape(3, 1, -1), patch_positions(parts), 0)


def test_mrope_takes_them():
    """In a call, and in a cache that goes on behind an image."""
    i = patch_positions([2, (1, 4, 4), 3])
    q = np.random.default_rng(0).standard_normal((1, 2, 9, 8))
    turned, _ = peref.rotate("mrope", q, q, positions=i)
    assert apart(turned, peref.rotate("mrope", q, q)[0], 1e-3)
    cfg = Config(pe=(("mrope", {}),), L=16, V=11, C=16, layers=1, H=2)
    p, x = weights(cfg), tokens(1, 9)
    want, memory = model.logits(cfg, p, x, positions=i, n=16), model.cache(cfg, 16)
    first, memory = model.decode(cfg, p, x[:, :7], memory, positions=i[..., :7])
    rest, _ = model.decode(cfg, p, x[:, 7:], memory)
    same(np.concatenate([first, rest], 1), want, 1e-11)


@pytest.mark.parametrize("part", [0, -1, (1, 2, 3), (0, 2, 2), (1, 2, 0), (2, 2, 2, -1), (2, 2, 2, math.nan)])
def test_what_is_no_part_is_refused(part):
    with pytest.raises(Misuse, match="expected a number of tokens, or t, h, w and perhaps a step from 0 on"):
        patch_positions([part])
