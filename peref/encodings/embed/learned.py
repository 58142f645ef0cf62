"""Learned absolute positions: one row of a table for each position, added to the embedding.

    x_i + table[i]        table [L,C]

Gehring et al. 2017, arXiv:1705.03122, section 3.1; GPT-2, BERT. A position that has no row is refused, never clamped.
Rows that start at 2 (RoBERTa, OPT) are L rows and positions from 2 on; x-transformers' factor C^-0.5 goes into the table. Not here: rows of
unit length (its l2norm_embed).
"""

from peref.encodings import Encoding
from peref.errors import Misuse
from peref.ops.embedding import take
from peref.xp import library


def init(rng, *, L, C):
    return {"table": 0.02 * rng.standard_normal((L, C))}


def check(at, *, L):
    within(at.i, L)


def within(i, L):
    if i.dtype.kind not in "iu":
        raise Misuse("learned: positions must be whole numbers, they name rows of a table")
    if i.size and not (int(i.min()) >= 0 and int(i.max()) < L):
        raise Misuse(f"learned: positions {int(i.min())} to {int(i.max())} were asked for; the table has rows 0 to {L - 1} and ends there")


def embed(p, i, *, L):
    if library(i) == "numpy":  # what is on a device was checked on the host
        within(i, L)
    return take(p["table"], i)


ENCODING = Encoding("arXiv:1705.03122", "x + table[i]", init=init, embed=embed, check=check, claims=frozenset({"two_sided", "window"}))
