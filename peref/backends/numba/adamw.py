"""AdamW in one pass over parameters and moments, a STRETCH at a time (rows.py). Bound: memory, seven
numbers read or written for each parameter.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import STRETCH, stretches
from peref.backends.numba.threads import in_parallel


@njit(**INNER)
def adamw_stretch(k, p, g, m, v, shrink, rate, first, second, beta1, beta2, eps, decay):
    # without a sign, so that none is asked for its place from the end, which kept the loop from vectors
    for n in range(np.uint64(k * STRETCH), np.uint64(min(len(p), (k + 1) * STRETCH))):
        e = g[n] * shrink
        m[n] += (np.float32(1) - beta1) * (e - m[n])
        v[n] += (np.float32(1) - beta2) * (e * e - v[n])
        p[n] -= rate * (m[n] / first / (np.sqrt(v[n] / second) + eps) + decay * p[n])


@kernel(writes(1), c_reads(1), writes(1), writes(1), f4, f4, f4, f4, f4, f4, f4, f4)
def adamw(p, g, m, v, shrink, rate, first, second, beta1, beta2, eps, decay):
    """One step in place, of g times shrink; first and second are 1 - beta^step."""
    given = (p, g, m, v, shrink, rate, first, second, beta1, beta2, eps, decay)
    in_parallel(adamw_stretch, stretches(len(p)), given)
