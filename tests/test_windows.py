"""Windows of an image: the table of Swin v1 is learned_bias, the network of Swin v2 log_cpb, both at
positions row (2w - 1) + column.
"""

import numpy as np
import pytest
from check import same
from generated import config, weights

from peref.model import PLAIN
from peref.ops.place import At


def places(w):
    """Row and column of each patch of a window of w by w in reading order, and the positions they have."""
    row, column = np.repeat(np.arange(w), w), np.tile(np.arange(w), w)
    return row, column, row * (2 * w - 1) + column


@pytest.mark.parametrize("w", [2, 3, 4, 7])
def test_the_table_of_swin_v1_is_learned_bias(w):
    """Its index counts rows and columns between from 1 - w on, rows of 2w - 1 entries; all are used."""
    row, column, i = places(w)
    most = 2 * w * (w - 1)
    cfg = config("learned_bias", pe=(("learned_bias", {"max_distance": most}),), causal=False)
    p = {"table": np.random.default_rng(w).standard_normal((cfg.H, (2 * w - 1) ** 2))}
    assert cfg.encoding(0).init(np.random.default_rng(0))["table"].shape == p["table"].shape
    at = At.of(w * w, positions=i, causal=False)
    got = np.asarray(cfg.encoding(0).bias(PLAIN, p, at.distances))[:, at.index]
    rows, columns = (a[:, None] - a for a in (row, column))
    index = (rows + w - 1) * (2 * w - 1) + columns + w - 1
    same(got, p["table"][:, index], 0)
    assert len(np.unique(index)) == (2 * w - 1) ** 2


@pytest.mark.parametrize(("w", "reach"), [(2, None), (4, None), (7, 3)])
def test_swin_v2_sees_rows_and_columns(w, reach):
    """log_cpb of every pair of patches is the network of their rows and columns, never of a neighbour's."""
    row, column, i = places(w)
    given = {"columns": w, "reach": reach, "width": 5}
    cfg = config("log_cpb", pe=(("log_cpb", given),), causal=False)
    p = {n.removeprefix("0.pe."): a for n, a in weights(cfg).items() if n.startswith("0.pe.")}
    at = At.of(w * w, positions=i, causal=False)
    got = np.asarray(cfg.encoding(0).bias(PLAIN, p, at.distances))[:, at.index]
    x = np.stack([a[:, None] - a for a in (row, column)], -1)
    x = np.sign(x) * np.log2(1 + 8 * abs(x) / (reach or w - 1)) / 3
    y = np.maximum(x @ p["1.weight"].T + p["1.bias"], 0) @ p["2.weight"].T
    same(got, np.moveaxis(16 / (1 + np.exp(-y)), -1, 0), 1e-13)
