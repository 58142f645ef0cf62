"""Many arrays made one: as NumPy joins them, and on a device never so many at once that CuPy moves their
addresses there.
"""

import fake_cupy
import numpy as np
import pytest
from check import same

from peref.ops.join import joined, stacked


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 8, 9, 65, 130])
def test_the_same_as_at_once(rng, count, axis):
    """In order, whatever their number; nothing is copied to the device."""
    parts = [rng.standard_normal((2, 3)) for _ in range(count)]
    with fake_cupy.installed() as cp:
        there = [cp.asarray(a) for a in parts]
        before = fake_cupy.counts()["copies"]
        for ours, numpys in ((joined, np.concatenate), (stacked, np.stack)):
            same(ours(parts, axis), numpys(parts, axis), 0)
            same(ours(there, axis).get(), numpys(parts, axis), 0)
        assert fake_cupy.counts()["copies"] == before


def test_more_than_eight_at_once_are_a_copy():
    """What the fake CuPy is asked here is what CuPy does; eight are none, nor are nine large ones."""
    with fake_cupy.installed() as cp:
        small, large = cp.ones(2), cp.ones(1 << 18)
        for arrays, copies in (([small] * 8, 0), ([small] * 9, 1), ([large] * 9, 0)):
            before = fake_cupy.counts().get("copies", 0)
            cp.concatenate(arrays)
            assert fake_cupy.counts().get("copies", 0) - before == copies
