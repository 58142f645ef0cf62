"""CoPE beyond what every encoding is asked: where the count saturates, where it is whole, what it is with
gates that are all open.
"""

from importlib import import_module

import numpy as np
import pytest
from check import gradient, same
from generated import chunked, config, layer_input, lists, logits, loop, tokens, weights

from peref import backends, model
from peref.encodings import files

COPE, NUMBA = import_module(files()["cope"]), backends.get("numba")
BOTH = [(COPE.interpolate, np.float64), (NUMBA.recurrences["interpolate"], np.float32)]


def term(cfg, p, q, k, at):
    return cfg.encoding(0).score(model.PLAIN, p, q, k, {}, at)[0]


@pytest.mark.parametrize("divided", ["both", "qk"])
@pytest.mark.parametrize("npos", [1, 3])
def test_a_saturated_count_is_the_loop(npos, divided):
    """Counts of up to 11 keys in a table of one or three rows; decoding and gradients too."""
    cfg = config("cope", pe=(("cope", {"npos": npos, "divided": divided}),))
    p, x = weights(cfg), tokens(2, 9)
    own, (_, q, k, _) = model.of_encoding(cfg, p, 0), layer_input(cfg, 11)
    at = model.At.of(11)
    want = np.array(loop(cfg)(lists(own), *(lists(a[1]) for a in (q, k, q)), [*range(11)]), float)
    same(term(cfg, own, q, k, at)[1][:, at.see], want[:, at.see], 1e-13)
    same(chunked(cfg, p, x, (2, 5, 6)), logits(cfg, p, x), 1e-10)
    gradient(lambda *a: logits(cfg, dict(zip(p, a, strict=True)), x), list(p.values()))


def test_with_every_gate_open_it_is_a_relative_position(rng):
    """g = 1 counts every key, the query's own and the key's: p = i - j + 1, so s_ij = q_i e[i - j + 1]."""
    z, at = rng.standard_normal((1, 1, 5, 6)), model.At.of(5)
    got = COPE.interpolate(z, np.full((1, 1, 5, 5), 50.0), at=at, scale=1.0)[0, 0]
    for i in range(5):
        for j in range(i + 1):
            assert got[i, j] == z[0, 0, i, i - j + 1]


def test_what_is_not_seen_counts_nothing(rng):
    """Whatever stands in a masked cell, NaN too: future, other documents, padding, beyond the window.
    Neither a value nor a gradient comes of it.
    """
    z, s, dy = (
        rng.standard_normal((2, 1, 7, 8)),
        rng.standard_normal((2, 1, 7, 7)),
        rng.standard_normal((2, 1, 7, 7)),
    )
    for at in (
        model.At.of(7),
        model.At.of(7, window=3),
        model.At.of(7, seg=np.array([[0, 0, 1, 1, 1, 2, 2], [0] * 7])),
    ):
        see = np.broadcast_to(at.see, s.shape)
        spoilt = np.where(see, s, np.nan)
        y, saved = COPE.interpolate.forward(z, s, at=at, scale=1.0)
        y_spoilt, saved_spoilt = COPE.interpolate.forward(z, spoilt, at=at, scale=1.0)
        same(y_spoilt[see], y[see], 0)
        masked = np.where(see, dy, 0)
        dz, ds = COPE.interpolate.backward(saved_spoilt, masked)
        same([dz, ds], list(COPE.interpolate.backward(saved, masked)), 0)
        assert not ds[~see].any()


@pytest.mark.parametrize(("op", "dtype"), BOTH)
def test_at_a_whole_number_no_gradient_reaches_the_gates(op, dtype):
    """Two gates of a half make p = 1, where both neighbours are row 1: the code's autograd gives 0 there.
    A quarter more has a slope.
    """
    z = np.array([[[[0.0, 1.0, 5.0], [0.0, 1.0, 5.0]]]], dtype)
    close = 8 * np.finfo(dtype).eps
    # gates 1/2 and 1/2, or 3/4 and 3/4: p = 1, or 3/2 on the way from row 1 to row 2
    for logit, slope in ((0.0, 0.0), (np.log(3.0), 4.0)):
        y, saved = op.forward(z, np.full((1, 1, 2, 2), logit, dtype), at=model.At.of(2), scale=1.0)
        g = 1 / (1 + np.exp(-logit))
        same(y[0, 0, 1, 0], dtype(1.0 if logit == 0 else 3.0), close)
        dz, ds = op.backward(saved, np.array([[[[0.0, 0.0], [1.0, 0.0]]]], dtype))
        same(ds[0, 0, 1], np.full(2, slope * g * (1 - g), dtype), close)
        same(dz[0, 0, 1], np.array([0.0, 1.0, 0.0] if logit == 0 else [0.0, 0.5, 0.5], dtype), close)


@pytest.mark.parametrize(("op", "dtype"), BOTH)
def test_a_logit_that_is_not_finite(rng, op, dtype):
    """NaN reaches the keys whose counts hold it, and row 0; a gate of -inf counts nothing."""
    z, s = rng.standard_normal((1, 1, 4, 5)).astype(dtype), rng.standard_normal((1, 1, 4, 4)).astype(dtype)
    s[0, 0, 3, 1] = np.nan
    y, saved = op.forward(z, s, at=model.At.of(4), scale=1.0)
    assert np.isnan(y[0, 0, 3]).tolist() == [True, True, False, False]
    assert np.isfinite(y[0, 0, :3]).all()
    dz, ds = op.backward(saved, np.ones(s.shape, dtype))
    assert np.isnan(dz[0, 0, 3]).tolist() == [True, False, False, False, False]
    assert np.isnan(ds[0, 0, 3]).tolist() == [False, True, False, False]
    s[0, 0, 3, 1] = -np.inf
    y, saved = op.forward(z, s, at=model.At.of(4), scale=1.0)
    assert y[0, 0, 3, 1] == y[0, 0, 3, 2]
    assert op.backward(saved, np.ones(s.shape, dtype))[1][0, 0, 3, 1] == 0


def test_of_no_sequence_nothing_comes():
    op = NUMBA.recurrences["interpolate"]
    z, s = np.zeros((0, 2, 3, 4), np.float32), np.zeros((0, 2, 3, 3), np.float32)
    y, saved = op.forward(z, s, at=model.At.of(3), scale=1.0)
    assert [x.shape for x in (y, *op.backward(saved, y))] == [s.shape, z.shape, s.shape]


def test_long_counts_are_right_in_float32():
    """A sum of 4,000 gates: the position is as good as the gates are, which a sum in float32 would not be."""
    rng = np.random.default_rng(0)
    s, z = rng.standard_normal((1, 1, 1, 4000)), rng.standard_normal((1, 1, 1, 4001))
    at = model.At(np.array([3999]), np.arange(4000), 4000)
    want = COPE.interpolate(z, s.astype(np.float32).astype(np.float64), at=at, scale=1.0)
    got = COPE.interpolate(z.astype(np.float32), s.astype(np.float32), at=at, scale=1.0)
    same(got, want.astype(np.float32), 2e-5 / abs(want).max())
    g = (1 / (1 + np.exp(-s.astype(np.float32))))[..., ::-1]
    assert abs(g.cumsum(-1) - g.cumsum(-1, dtype=np.float64)).max() > 2e-5


def test_the_table_starts_at_zero_and_may_be_shared():
    """Then the model is one without positions; rows: L + 1 unless said."""
    cfg = config("cope", L=16)
    p = model.init(cfg, 0, np.float64)
    assert p["0.pe.table"].shape == (17, 4)
    same(
        logits(cfg, p, tokens(2, 9)),
        logits(config("none"), {n: a for n, a in p.items() if "pe." not in n}, tokens(2, 9)),
        1e-15,
    )
    one = config("cope", pe=(("cope", {"across_layers": "shared", "npos": 5}),))
    assert {n: a.shape for n, a in model.init(one).items() if "pe." in n} == {"pe.0.table": (5, 4)}


def test_keys_of_the_gates_are_made_where_gates_ask_for_them():
    """The default needs nothing of a token beyond its key: nothing is kept of it, and a golden case has no
    x.
    """
    kept = {
        gates: config("cope", pe=(("cope", {"gates": gates}),)).encoding(0).features
        for gates in ("logits", "key")
    }
    assert kept["logits"] is None
    assert kept["key"] is not None
