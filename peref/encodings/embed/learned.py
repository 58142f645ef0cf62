"""Learned absolute positions: one row of a table for each position, added to the embedding.

    x_i + table[i]        table [L,C]

Gehring et al. 2017, arXiv:1705.03122, section 3.1; GPT-2, BERT. A position that has no row is refused, never
clamped. Rows that start at 2 (RoBERTa, OPT) are L rows and positions from 2 on; x-transformers' factor C^-0.5
goes into the table.

unit  Each row is divided by its length (x-transformers' l2norm_embed, which then has no factor); rows of the
      table may have any.
"""

from peref.encodings import Encoding
from peref.errors import Misuse
from peref.ops.embedding import take
from peref.ops.norm import unit as over_length
from peref.xp import library

EPS = 1e-24  # keeps a row of zeros as it is


def init(rng, *, L, C):
    """The table [L,C], small at random."""
    return {"table": 0.02 * rng.standard_normal((L, C))}


def check(at, dtype, *, L):
    """Raises Misuse for a position without a row."""
    within(at.i, L)


def within(i, L):
    """Raises Misuse unless the positions i [...] are whole numbers from 0 to L-1."""
    if i.dtype.kind not in "iu":
        raise Misuse("learned: positions must be whole numbers, they name rows of a table")
    if i.size and not (int(i.min()) >= 0 and int(i.max()) < L):
        raise Misuse(
            f"learned: positions {int(i.min())} to {int(i.max())} were asked for; the table has rows 0 to "
            f"{L - 1} and ends there"
        )


def embed(p, i, *, L, unit: bool = False):
    """The row of each position, [...,T,C], of i [...,T]; with unit each divided by its length. Raises Misuse
    as `check` does, where i is on the host.
    """
    if library(i) == "numpy":  # what is on a device was checked on the host
        within(i, L)
    rows = take(p["table"], i)
    return over_length(rows, eps=EPS) if unit else rows


ENCODING = Encoding(
    "arXiv:1705.03122",
    "x + table[i]",
    symbols={"table": "learned rows [L,C]"},
    init=init,
    embed=embed,
    check=check,
    claims=frozenset({"two_sided", "window"}),
)
