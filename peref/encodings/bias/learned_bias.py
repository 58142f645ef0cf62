"""Learned bias: one learned number per head for every distance, each layer its own.

    b_h(d) = table[h, d]            causal, table [H,L]
    b_h(d) = table[h, d + L - 1]    two-sided, table [H,2L-1]

The plainest relative encoding: Raffel et al. 2020, arXiv:1910.10683, without buckets. A distance beyond the
table is refused. It learns D times as fast as the rest, for AdamW moves a number by about the rate and a
table must reach several nats.

max_distance  None, or farther distances share the last entry of their side, as Shaw's vectors do
              (arXiv:1803.02155, section 3.2): the table is [H,max_distance+1] or [H,2max_distance+1], and any
              length has entries. A causal model then puts the future with distance 0.

Swin v1's table of a window of w by w patches (Liu et al. 2021, arXiv:2103.14030) is this one: at positions
row (2w - 1) + column, two-sided, with max_distance=2w(w - 1). Its entries, (2w - 1)^2 for each head, are in
the order of ours.

Not here: a table made by a small network (dynamic_bias, log_cpb), rows weighed by content (x-transformers'
RelativeProj), which is no function of distance.
"""

from peref.encodings import Encoding, logit_steps, positive
from peref.errors import Misuse
from peref.ops.shape import swap
from peref.xp import library, namespace


def ends(L, causal, max_distance):
    """The first and the last distance of the table."""
    last = L - 1 if max_distance is None else max_distance
    return 0 if causal else -last, last


def init(rng, *, H, L, causal, max_distance: int | None = None):
    """The table [H,entries], small at random. Raises Misuse for a max_distance that is not positive."""
    positive("learned_bias", max_distance=max_distance)
    first, last = ends(L, causal, max_distance)
    return {"table": 0.02 * rng.standard_normal((H, last - first + 1))}


def check(at, dtype, *, L, causal, max_distance: int | None = None):
    """Raises Misuse for a distance that the table has no entry for."""
    within(at.distances, L, causal, max_distance)


def within(d, L, causal, max_distance):
    """Raises Misuse unless the distances d [N] are whole numbers that have an entry in the table."""
    if d.dtype.kind not in "iu":
        raise Misuse("learned_bias: positions must be whole numbers, distances name entries of a table")
    first, last = ends(L, causal, max_distance)
    if max_distance is None and not (first <= int(d.min()) and int(d.max()) <= last):
        raise Misuse(
            f"learned_bias: distances {int(d.min())} to {int(d.max())} were asked for; the table has "
            f"{first} to {last} and ends there"
        )


def bias(be, p, d, *, L, causal, max_distance: int | None = None):
    """table[h, d - first], [H,N], of distances d [N]. Raises Misuse as `check` does, for d on the host."""
    if library(d) == "numpy":  # what is on a device was checked on the host
        within(d, L, causal, max_distance)
    first, last = ends(L, causal, max_distance)
    return swap(
        be.take(swap(p["table"], axes=(0, 1)), namespace(d).clip(d, first, last) - first), axes=(0, 1)
    )


def claims(*, max_distance: int | None = None):
    """Shift, two_sided and window; with a max_distance, beyond which distances share entries, any_length."""
    more = set() if max_distance is None else {"any_length"}
    return frozenset({"shift", "two_sided", "window"} | more)


ENCODING = Encoding(
    "arXiv:1910.10683",
    "b_h(d) = table[h, d]",
    symbols={"table": "learned, a number for each head and distance"},
    init=init,
    bias=bias,
    check=check,
    steps=logit_steps,
    claims=claims,
)
