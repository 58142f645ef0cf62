"""The loss, CHUNK rows at a time (rows.py): largest logit, exponentials with their sum, and the division,
each a walk over a row in the first cache.

Bound: the exponentials; backward, which only scales what forward kept, memory.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, i8, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import ROW_CHUNK, row_chunks
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import copy, exp_sum, scale, scale_bias_max


@njit(**INNER)
def cross_entropy_chunk(chunk, p, nll, logits, targets, zeros):
    M, V = logits.shape
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        copy(p, m * V, logits, m * V, V)
        top = scale_bias_max(p, m * V, V, np.float32(1), zeros, 0, np.float32(-np.inf))
        at_target = p[m, max(targets[m], 0)] - top
        total = exp_sum(p, m * V, V, top)
        nll[m] = np.log(total) - at_target if targets[m] >= 0 else np.float32(0)
        scale(p, m * V, p, m * V, np.float32(1) / total, V)


@kernel(writes(2), writes(1), c_reads(2), c_reads(1, i8))
def cross_entropy(p, nll, logits, targets):
    """p = softmax of each row, nll = -log p[target], 0 where the target is negative."""
    in_parallel(
        cross_entropy_chunk, row_chunks(len(p)), (p, nll, logits, targets, np.zeros(p.shape[1], np.float32))
    )


@njit(**INNER)
def cross_entropy_backward_chunk(chunk, d, p, targets, by):
    M, V = p.shape
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        share = by if targets[m] >= 0 else np.float32(0)
        scale(d, m * V, p, m * V, share, V)
        d[m, max(targets[m], 0)] -= share


@kernel(writes(2), c_reads(2), c_reads(1, i8), f4)
def cross_entropy_backward(d, p, targets, by):
    in_parallel(cross_entropy_backward_chunk, row_chunks(len(p)), (d, p, targets, by))
