"""Learned bias: one learned number per head for every distance, each layer its own.

    b_h(d) = table[h, d]            causal, table [H,L]
    b_h(d) = table[h, d + L - 1]    two-sided, table [H,2L-1]

The plainest relative encoding: Raffel et al. 2020, arXiv:1910.10683, without buckets. A distance beyond the table is refused, never clamped.
It learns D times as fast as the rest, for AdamW moves a number by about the rate and a table must reach several nats.
Not here: clipped distances (shaw has them), a table made by a small network (dynamic_bias), rows weighed by content (x-transformers'
RelativeProj).
"""

from peref.encodings import Encoding, logit_steps
from peref.errors import Misuse
from peref.ops.embedding import take
from peref.ops.shape import swap
from peref.xp import library


def init(rng, *, H, L, causal):
    return {"table": 0.02 * rng.standard_normal((H, L if causal else 2 * L - 1))}


def check(at, *, L, causal):
    within(at.distances, L, causal)


def within(d, L, causal):
    if d.dtype.kind not in "iu":
        raise Misuse("learned_bias: positions must be whole numbers, distances name entries of a table")
    first = 0 if causal else 1 - L
    if not (first <= int(d.min()) and int(d.max()) < L):
        raise Misuse(f"learned_bias: distances {int(d.min())} to {int(d.max())} were asked for; the table has {first} to {L - 1} and ends there")


def bias(be, p, d, *, L, causal):
    if library(d) == "numpy":  # what is on a device was checked on the host
        within(d, L, causal)
    return swap(take(swap(p["table"], axes=(0, 1)), d - (0 if causal else 1 - L)), axes=(0, 1))


ENCODING = Encoding(
    "arXiv:1910.10683",
    "b_h(d) = table[h, d]",
    init=init,
    bias=bias,
    check=check,
    steps=logit_steps,
    claims=frozenset({"shift", "two_sided", "window"}),
)
