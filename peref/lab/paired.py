"""How sure a difference of two losses is that were measured on the same text.

Losses of one text are correlated, near places more than far ones, so blocks of neighbours are drawn again
instead of single numbers (block bootstrap, Kuensch 1989, Annals of Statistics 17(3)).
"""

from dataclasses import dataclass

import numpy as np

from peref.exact_match import NORMAL
from peref.rng import generator

RESAMPLES, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with the interval that holds it in CONFIDENCE of all cases."""

    mean: float
    low: float
    high: float

    @property
    def decides(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


def student(free: int) -> float:
    """The quantile of Student's t that NORMAL is of the normal distribution, to two terms of its expansion
    (Abramowitz and Stegun 1964, 26.7.5).
    """
    z = NORMAL
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)


def estimate(values: np.ndarray, block: int) -> Estimate:
    """The mean of `values` [N], neighbours in a text, drawn `block` at a time; N is cut to whole blocks.

    The interval is that of the percentiles, widened by sqrt(n/(n-1)) for n blocks, whose means drawn with
    replacement spread by as much too little, and by Student's t for n-1 over the normal quantile, as their
    spread is estimated too (Hesterberg 2015, arXiv:1411.5279, section 3). It needs at least two blocks.
    """
    n = len(values) // block
    means = values[: n * block].reshape(n, block).mean(1)
    mean = float(means.mean())
    drawn = means[generator(0, "paired", n).integers(0, n, (RESAMPLES, n))].mean(1)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) - mean
    wider = (n / (n - 1)) ** 0.5 * student(n - 1) / NORMAL
    return Estimate(mean, mean + wider * float(low), mean + wider * float(high))
