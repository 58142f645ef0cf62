"""What kernels are given beside the large arrays: repeated where it has size 1, as NumPy does, and refused
where it does not fit. No kernel looks where an array ends: it would read another sequence's numbers, or
what lies behind.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from emulated.twins import emulated, pulled, sent, twins
from test_cuda_recurrences import OPS, WIDE, arrays, of
from test_ops import random

from peref.backends.cuda import reach
from peref.backends.cuda.attention import attention
from peref.backends.cuda.retention import retention
from peref.backends.cuda.turn import turn
from peref.backends.cuda.wkv import wkv4
from peref.encodings.mix.retnet import retention as plain_retention
from peref.encodings.mix.rwkv4 import wkv4 as plain_wkv4
from peref.errors import Misuse
from peref.ops.attention import attention as plain_attention
from peref.ops.place import At
from peref.ops.turn import turn as plain_turn

T = 9
QKV = [random(2, 2, T, 4, seed=n) for n in range(3)]
ONE = np.array([[1] * 4 + [2] * 5])
PLACE = {"at": At.of(T), "scale": 0.5}
REPEATED = At.of(T, positions=np.arange(T)[None] // 2)
RETENTION = {"log_decay": np.log([0.9, 0.8]), "chunk": 4, "scale": 0.5}
MEANS = [random(2, T, 4), random(2, T, 4, seed=1), -abs(random(4)), random(4)]


@pytest.mark.parametrize(
    ("fast", "plain", "arrays", "settings"),
    [
        (attention, plain_attention, [*QKV, None], {"at": At.of(T, seg=ONE), "scale": 0.5}),
        (attention, plain_attention, [*QKV, random(1, T)], PLACE),
        (attention, plain_attention, [*QKV, None, random(1, 2, 1, T)], PLACE),
        (turn, plain_turn, [QKV[0], random(1, 2), None], {"layout": "half"}),
        (turn, plain_turn, [QKV[0], random(2, 1, 2), 1 + random(T, 2)], {"layout": "half"}),
        (retention, plain_retention, [*QKV, None, ONE - 1], RETENTION),
        (wkv4, plain_wkv4, [*MEANS, None, ONE - 1], {}),
    ],
    ids=["documents", "table", "term", "an angle", "angles and gains", "runs of retention", "runs of wkv4"],
)
def test_what_has_size_one_is_repeated(fast, plain, arrays, settings):
    """For every sequence, head or token."""
    twins(fast, plain, arrays, settings, seeds=(1,), wide=(1, 2) if fast is turn else ())


def test_positions_of_one_sequence_are_those_of_all():
    """Read through an index, forward and backward."""
    table, apart = random(2, len(REPEATED.distances)), At.of(T, positions=np.arange(T) // 2)
    exact = lambda *arrays, at: plain_attention(*arrays, at=apart, scale=0.5)
    twins(
        lambda *arrays, at: attention(*arrays, at=at, scale=0.5),
        exact,
        [*QKV, table],
        {"at": REPEATED},
        seeds=(1,),
    )


F = [a.astype(np.float32) for a in QKV]
TWICE = At.of(T, positions=np.stack([np.arange(T) // 2] * 3))


@pytest.mark.parametrize(
    ("op", "arrays", "settings", "said"),
    [
        (attention, [*F, None], {"at": At.of(T, seg=ONE.repeat(3, 0)), "scale": 0.5}, "[2, 9] and [3, 9]"),
        (attention, [*F, random(3, T)], PLACE, "[2, 9] and [3, 9]"),
        (
            attention,
            [*F, random(2, T - 1)],
            PLACE,
            "the table has 8 numbers for each head; expected one for each of 9 distances",
        ),
        (attention, [*F, random(2, 5)], {"at": TWICE, "scale": 0.5}, "[2, 9, 9] and [3, 9, 9]"),
        (
            attention,
            [*F, None, random(3, 2, T, T).astype(np.float32)],
            PLACE,
            "[2, 2, 9, 9] and [3, 2, 9, 9]",
        ),
        (turn, [F[0], random(T - 1, 2), None], {"layout": "half"}, "[9, 2] and [8, 2]"),
        (turn, [F[0], random(3, T, 2), None], {"layout": "half"}, "[2, 9, 2] and [3, 9, 2]"),
        (turn, [F[0], random(T, 3), None], {"layout": "half"}, "3 angles for heads that are 4 wide"),
        (retention, [*F, None, ONE.repeat(3, 0)], RETENTION, "[2, 9] and [3, 9]"),
        (retention, [*F, random(1, 2, 4, 4), None], RETENTION, "[2, 2, 4, 4] and [1, 2, 4, 4]"),
        (retention, [*F, None, None], RETENTION | {"log_decay": np.log([0.9])}, "[2] and [1]"),
    ],
)
def test_what_does_not_fit_is_refused(op, arrays, settings, said):
    with emulated() as cupy:
        with pytest.raises(Misuse, match=re.escape(said)):
            op(
                *sent(
                    cupy, [a if a is None or a.dtype.kind == "i" else a.astype(np.float32) for a in arrays]
                ),
                **{k: sent(cupy, s) for k, s in settings.items()},
            )
        assert not cupy.emulated.launched


def test_many_sequences_and_heads_are_no_grid_that_no_device_has(monkeypatch):
    """Only the first axis of a grid goes beyond 65,535."""
    grids, wide = {}, SimpleNamespace(B=4000, H=32)
    monkeypatch.setattr(reach, "launch", lambda kernel, grid, *rest, **how: grids.update({kernel: grid}))
    q = np.empty((wide.B, 1, wide.H, 2), np.float32)
    reach.reach(np, q, q, np.empty((wide.H, 1), np.float32), 64)
    reach.kept(q, q, None, None, (None,) * 12 + (1, 0, 1.0), (None, None, 0.0, 64))
    assert set(grids) == {"reach.lengths", "reach.running", "reach.starting", "reach.stopping"}
    assert all(n <= 65535 for grid in grids.values() for n in grid[1:])


@pytest.mark.parametrize("name", OPS)
def test_of_no_token_every_gradient_is_zero(name):
    """Kernels run all the same: what they leave alone would be whatever was in memory."""
    given = [
        a.astype(np.float32) if a is not None and k not in WIDE.get(name, ()) else a
        for k, a in enumerate(arrays(name, 0, 5, 3, True, None))
    ]
    fast, _, settings, _ = of(name)
    with emulated() as cupy:
        y, *found = pulled(fast, given, settings, send=lambda x: sent(cupy, x))[0]
        assert y.size == 0
        assert sum(a.size for a in found)
        assert all((a.get() == 0).all() for a in found)
