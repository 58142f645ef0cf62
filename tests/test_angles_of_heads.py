"""Angles per head, [B,heads,T,R/2]: each head turns as it would alone, those of keys serve grouped queries,
also with numba and in decoding.
"""

import numpy as np
import pytest
from check import frozen, same
from generated import chunked, tokens, weights

from peref import backends, encodings, model, modules
from peref.backends.cuda.turn import turn as cuda_turn
from peref.config import Config
from peref.errors import Misuse
from peref.ops.turn import turn
from peref.tape import Tape

OWN = """
from peref.encodings import Encoding
from peref.xp import namespace


def rotate(p, i, n, *, G, R):
    xp = namespace(i)
    w = (1.0 + xp.arange(G)[:, None]) * 10.0 ** (-xp.arange(R // 2, dtype=xp.float64))
    return i.reshape(-1, 1, i.shape[-1], 1) * w[:, None], None, None


ENCODING = Encoding("none", "each key head turns at a speed of its own", rotate=rotate, claims=CLAIMS)
"""


@pytest.fixture
def own(tmp_path):
    """An encoding of one's own whose heads turn at speeds of their own."""
    path = tmp_path / "headed.py"
    path.write_text(
        OWN.replace("CLAIMS", repr(frozenset({"shift", "real_positions", "any_length", "window"})))
    )
    yield encodings.load(path)
    modules.forget("headed")


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("shape", [(2, 6, 5, 3), (1, 6, 5, 3), (2, 3, 5, 3), (1, 2, 5, 2), (2, 1, 5, 3)])
def test_each_head_turns_as_it_does_alone(shape, layout):
    """Forward and backward, in the plain op and in numba; fewer heads are each for some in a row."""
    x, angle, gain, dy = (
        drawn(2, 6, 5, 8),
        drawn(*shape),
        2 + drawn(*shape, seed=1),
        drawn(2, 6, 5, 8, seed=2),
    )
    alone = np.zeros_like(x)
    for h in range(6):
        mine = h * shape[1] // 6
        alone[:, h : h + 1] = turn(x[:, h : h + 1], angle[:, mine], gain[:, mine], layout=layout)
    found = []
    for op, dtype in ((turn, np.float64), (numba_turn(), np.float32)):
        tape = Tape()
        leaves = [tape.watch(a) for a in frozen([x.astype(dtype), angle, gain])]
        y = op(*leaves, layout=layout)
        grads = tape.gradients(y, dy.astype(dtype))
        found.append([y.value, *(grads[a] for a in leaves)])
    same(found[0][0], alone, 1e-14)
    for one, other in zip(*found, strict=True):
        same(other.astype(np.float64), one, 1e-5)


def numba_turn():
    pytest.importorskip("numba")
    return backends.get("numba", threads=1).turn


def test_a_model_whose_heads_turn_apart(own):
    """Grouped queries, in pieces, and token by token with numba."""
    cfg = Config(pe=((own, {}),), L=16, V=11, C=24, layers=2, H=6, G=3, D=4)
    p, x = weights(cfg), tokens(2, 9)
    want = model.logits(cfg, p, x, n=16)
    for i in (None, np.arange(9) + np.array([[0], [4]])):
        here = model.logits(cfg, p, x, n=16, positions=i)
        same(chunked(cfg, p, x, (2, 5), i), here, 1e-11)
    same(model.logits(cfg, p, x, n=16, positions=1000 + np.arange(9)), want, 1e-9)
    be = backends.get("numba", threads=1)
    small = {n: a.astype(np.float32) for n, a in p.items()}
    memory, rows = model.cache(cfg, 16), []
    for t in range(9):
        y, memory = model.decode(cfg, small, x[:1, t : t + 1], memory, be=be)
        rows.append(y)
    same(np.concatenate(rows, 1), want[:1].astype(np.float32), 1e-4)


def test_heads_that_do_not_share_out_are_refused():
    """In words, by each."""
    x, angle = drawn(1, 6, 5, 8), drawn(1, 4, 5, 3)
    for op in (turn, numba_turn(), cuda_turn):
        with pytest.raises(Misuse, match="turn: angles of 4 heads for 6; expected as many or a divisor of 6"):
            op(x.astype(np.float32), angle, None, layout="half")
