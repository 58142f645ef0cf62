"""Attention from one sequence to another: the op against its loop and on the kernels, and what is refused."""

import numpy as np
import pytest
from check import apart, same
from loops.cross import across
from test_numba import NUMBA, both
from test_ops import random

from peref.backends.cuda.attention import attention as on_cuda
from peref.errors import Misuse
from peref.ops.attention import attention
from peref.ops.cross import Cross

SEG, KEYS = [[1, 1, 2, 0], [4, 3, 3, 1]], [[0, 1, 1, 2, 2, 2, 0], [3, 3, 1, 1, 1, 1, 1]]
PLACES = {
    "more keys": Cross.of(4, 7, B=2),
    "more queries": Cross.of(7, 4, B=2),
    "documents": Cross.of(4, 7, SEG, KEYS, 2),
    "padded keys": Cross.of(4, 7, None, [[1] * 5 + [0] * 2] * 2, 2),
}


def arrays(at, H=6, G=2, D=4):
    B = len(at.seg)
    return random(B, H, at.T, D), random(B, G, at.S, D, seed=1), random(B, G, at.S, D, seed=2)


@pytest.mark.parametrize("name", PLACES)
def test_it_is_the_loop_and_so_are_its_kernels(name):
    """Outputs to 1e-13, those of numba and all gradients to float32's; spans are what is seen."""
    at = PLACES[name]
    q, k, v = arrays(at)
    rows = zip(*(a.tolist() for a in (q, k, v)), at.seg.tolist(), at.keys.tolist(), strict=True)
    want = np.array([across(*row[:3], 0.4, *row[3:])[2] for row in rows])
    same(attention(q, k, v, at=at, scale=0.4), want, 1e-13)
    slots = np.arange(at.S)
    first, stop = at.spans[..., :1], at.spans[..., 1:]
    same(((slots >= first) & (slots < stop)) + 0, at.see[:, 0] + 0, 0)
    both("attention", [q, k, v], {"at": at, "scale": 0.4})


def test_over_many_tiles_on_the_kernels():
    """More keys than two tiles and fewer queries than one, and the other way round."""
    for T, S in ((3, 300), (300, 3)):
        at = Cross.of(T, S, [[1] * (T - 1) + [2]], [[1] * (S - 1) + [2]])
        both("attention", list(arrays(at)), {"at": at, "scale": 0.5})


def test_a_mask_that_were_another_is_noticed():
    """Documents, padding and what is behind a query's own slot all count in these inputs."""
    at = PLACES["documents"]
    q, k, v = arrays(at)
    y = attention(q, k, v, at=at, scale=0.4)
    for other in (Cross.of(4, 7, B=2), Cross.of(4, 7, SEG, KEYS[::-1], 2)):
        assert apart(attention(q, k, v, at=other, scale=0.4), y)


def test_what_is_refused():
    """In words: segments of another shape, a document in two pieces, a table of distances, cuda."""
    with pytest.raises(Misuse, match=r"seg is int64\[1, 3\]; expected whole numbers \[1, 4\]"):
        Cross.of(4, 7, [[1, 1, 1]])
    with pytest.raises(Misuse, match="seg of the keys has a document in two pieces"):
        Cross.of(1, 3, None, [[1, 2, 1]])
    at = PLACES["more keys"]
    q, k, v = arrays(at)
    for op in (attention, NUMBA.attention):
        a = [x.astype(np.float32) for x in (q, k, v, random(6, 4))]
        with pytest.raises(Misuse, match="tokens of two sequences have no distance"):
            op(*a, at=at, scale=0.4)
    with pytest.raises(Misuse, match="the kernels of cuda have no keys of another sequence"):
        on_cuda(q, k, v, at=at, scale=0.4)
