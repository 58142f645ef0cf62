"""Mistakes planted in the text of the CUDA kernels are caught: an index, a barrier, a race, an end."""

import numpy as np
import pytest
from emulated.device import Fault
from emulated.twins import CLOSE, errors
from test_ops import random

from peref.backends.cuda import attention, embedding, loss, norm
from peref.ops import attention as plain_attention
from peref.ops import embedding as plain_embedding
from peref.ops import loss as plain_loss
from peref.ops import norm as plain_norm
from peref.ops.place import At

AT = At.of(70)
ATTENTION = [random(1, 2, 70, 33), random(1, 2, 70, 33, seed=2), random(1, 2, 70, 33, seed=1), random(2, 70)]
RUNS = {
    "attention": (attention.attention, plain_attention.attention, ATTENTION, {"at": AT, "scale": 0.2}),
    "norm": (norm.layer_norm, plain_norm.layer_norm, [1 + random(131, 1, 70), random(70), random(70, seed=1)], {"eps": 1e-5}),
    "loss": (loss.cross_entropy, plain_loss.cross_entropy, [5 * random(9, 33), np.arange(9) * 3 - 1], {}),
    "embedding": (embedding.take, plain_embedding.take, [random(5, 33), np.arange(300) % 4], {}),
}
SYNC = "    __syncthreads();\n"
LOADED = "load_band(band, at, h, tile, s, LOOP - 1);\n"
PLANTED = {
    "another distance": ("attention", "near[KEYS ? l - mine - r : mine + r - l]", "near[KEYS ? l - mine - r : mine + r - l + 1]"),
    "another distance for the keys": ("attention", "near[KEYS ? l - mine - r : mine + r - l]", "near[KEYS ? l - mine - r - 1 : mine + r - l]"),
    "another diagonal of the gradient": ("attention", "int l = r - (int)threadIdx.x + LOOP - 1;", "int l = r - (int)threadIdx.x + LOOP;"),
    "another head's keys": ("attention", "g = h / (H / G)", "g = (h + 1) % G"),
    "the row above": ("attention", "return lane() / 4 + c / 2 * 8;", "return lane() / 4 + c / 2 * 7;"),
    "one key too many": ("attention", "r < rows && c < width", "r <= rows && c < width"),
    "a tile read before all is there": ("attention", LOADED + SYNC, LOADED),
    "a tile overwritten while it is read": ("attention", "of_v, LD);\n" + SYNC, "of_v, LD);\n"),
    "diagonals read before they are there": ("attention", "of_k, LD);\n      __syncthreads();\n      int n", "of_k, LD);\n      int n"),
    "a barrier that some do not reach": ("attention", LOADED + SYNC, LOADED + "if (threadIdx.x)\n" + SYNC),
    "no sum over the warp": ("norm", "middle = warp_sum(total) / C;", "middle = total / C;"),
    "shares read before they are there": ("norm", "of_b[warp()][lane()] = sum_b;\n  __syncthreads();\n", "of_b[warp()][lane()] = sum_b;\n"),
    "one share too few": ("norm", "p < P; p++", "p < P - 1; p++"),
    "one column too many": ("norm", "if (warp() || c >= C) return;", "if (warp()) return;"),
    "the largest of the lane": ("loss", "sum * expf(top - all)", "sum"),
    "rows counted before all have": ("loss", "shares[threadIdx.x / 32] = x;\n  __syncthreads();", "shares[threadIdx.x / 32] = x;"),
    "all add to one share": ("embedding", "shares[warp()][lane() + 32 * k] = sums[k]", "shares[0][lane() + 32 * k] = sums[k]"),
    "a warp's last places left out": ("embedding", "m < stop; m += 32", "m + 32 <= stop; m += 32"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught(name):
    """By a number that is wrong, by numbers that follow the order of threads, or by the guard that it runs into."""
    run, old, new = PLANTED[name]
    fast, plain, arrays, settings = RUNS[run]
    try:
        found = errors(fast, plain, arrays, settings, edit=(old, new))
    except Fault:
        return
    assert not np.max(found) <= 100 * CLOSE, f"nobody sees that {name}"


@pytest.mark.parametrize("name", RUNS)
def test_without_a_mistake_nothing_is_caught(name):
    """The same runs, as they are."""
    assert max(errors(*RUNS[name])) <= CLOSE
