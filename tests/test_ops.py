"""Every op of the package: its derivative against finite differences, its contract, and its values against
loops over plain numbers.
"""

import math

import numpy as np
import pytest
from check import gradient, op_contract, same
from loops import attention as attention_loop
from loops import delta as delta_loop
from loops import loss as loss_loop
from loops import norm as norm_loop
from loops import turn as turn_loop
from registry import ops

from peref.encodings.attend.pyramid import fold, pool, tree, unfold
from peref.encodings.mix.mamba import selective_scan
from peref.encodings.mix.retnet import retention
from peref.encodings.mix.rwkv4 import wkv4
from peref.encodings.mix.rwkv6 import wkv6
from peref.encodings.mix.rwkv7 import wkv7
from peref.encodings.mix.s4d import diagonal_scan
from peref.errors import Misuse
from peref.ops.activation import gelu, swiglu, swiglu_clamped
from peref.ops.attention import attention, probabilities, scores, weigh
from peref.ops.cells import cut_of, pieces
from peref.ops.cross import Cross
from peref.ops.delta import delta
from peref.ops.gelu_exact import phi
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.place import At, positions_in, positions_of
from peref.ops.scan import short_conv
from peref.ops.shift import previous
from peref.ops.turn import turn

OPS = ops()
SEG = np.array([[0, 0, 1, 1, 1, 2, 2], [3, 3, 3, 3, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0]])
RUNS = np.array([[0, 0, 1, 1, -1], [-1, 2, 2, 2, 3]])


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def positive(*shape):
    return abs(random(*shape)) + 0.5


def qkv(B=2, H=6, G=2, T=5, S=7, D=4):
    return random(B, H, T, D), random(B, G, S, D), random(B, G, S, D, seed=1)


def table(H, at):
    return random(H, len(at.distances))


WHOLE, LATE = At.of(7), At(np.arange(2, 7), np.arange(7), 7)
BOTH = At(np.arange(2, 7), np.arange(7), 7, causal=False)
PACKED = At.of(7, seg=SEG)
REAL = At.of(7, positions=np.array([0.0, 0.5, 0.5, 2.0, 3.5, 3.0, 9.0]))
ONE_ROW = At.of(7, positions=np.array([[0, 5, 1, 2, 9, 3, 4]]))  # of all sequences
WINDOW, CHUNKS = At.of(7, window=3), At.of(7, seg=SEG).within(None, 2)
GLOBAL = At.of(7, seg=SEG, causal=False).within(2, None, 1)
ACROSS = Cross.of(5, 7, SEG[1:, :5], SEG[:2], 2)
LATE_GLOBAL = LATE.within(2, None, 2)
SHARE = {"threshold": 4.0, "eps": 1e-6}  # some queries are before it and some behind, whatever its multiplier
DECAY = np.log1p(-(2.0 ** -np.arange(2.0, 5.0)))
MODES = np.stack([0.8 * random(3, 2), 0.3 * random(3, 2, seed=1), random(3, 2, seed=2), random(3, 2, seed=3)])
q, k, v = qkv()
# the last has no reader
TREES = [tree(At.of(7), w=1, B=3), tree(LATE, w=2, B=3), tree(PACKED, w=1, B=3), tree(At.of(7), w=9, B=3)]


def of_wkv6(state=None, runs=None, T=5):
    """r, log w, k, v, u, the state and the runs of wkv6."""
    r, log_w, k = (random(2, 3, T, 4, seed=n) for n in range(3))
    return [r, -abs(log_w), k, random(2, 3, T, 6), random(3, 4), state, runs]


def of_wkv7(state=None, runs=None, T=5):
    """r, log w, k, v, kappa, a, the state and the runs of wkv7."""
    r, log_w, k, kappa, a = (random(2, 3, T, 4, seed=n) for n in range(5))
    kappa = kappa / np.sqrt((kappa * kappa).sum(-1, keepdims=True))
    return [r, -abs(log_w), k, random(2, 3, T, 6), kappa, 1 / (1 + np.exp(a)), state, runs]


def of_delta(state=None, runs=None, T=5, removes=True, decays=4):
    """r, g, k, v, a, the state and the runs of delta; `decays`: for each channel, 1: each head, 0: none."""
    r, g, k, a = (random(2, 3, T, 4, seed=n) for n in range(4))
    a = a / np.sqrt((a * a).sum(-1, keepdims=True)) if removes else None
    g = -abs(g[..., :decays]) if decays else None
    return [r, g, 0.5 * k, random(2, 3, T, 6), a, state, runs]


def of_experts(gated, biased):
    """x, w, the chosen and the maps with their biases: four experts, of whom the last is chosen by nobody."""
    chosen = np.array([[[0, 2], [2, 1], [0, 1]], [[1, 0], [0, 2], [0, 1]]])
    shapes = [(4, 6, 5), (4, 6), (4, 6, 5), (4, 6), (4, 5, 6), (4, 5)]
    maps = [random(*s, seed=n) if biased or n % 2 == 0 else None for n, s in enumerate(shapes)]
    return [random(2, 3, 5), random(2, 3, 2), chosen, *(maps if gated else [None, None, *maps[2:]])]


def selective(T=5):
    """x, delta, a_log, b, c, skip of a selective scan."""
    return (
        random(2, T, 3),
        2 * random(2, T, 3, seed=1),
        random(3, 4),
        random(2, T, 4),
        random(2, T, 4, seed=1),
        random(3),
    )


CASES = {
    "ops.activation.gelu": [([3 * random(3, 5)], {})],
    "ops.activation.gated": [([3 * random(3, 5), random(3, 5, seed=1)], {})],
    "ops.activation.log_sigmoid": [([3 * random(3, 5)], {})],
    "ops.activation.minus_exp": [([random(3, 5)], {})],
    "ops.activation.sigmoid": [([3 * random(3, 5)], {})],
    "ops.activation.squashed": [([3 * random(3, 5)], {})],
    "ops.activation.relu2": [([3 * random(3, 5)], {})],
    "ops.activation.swiglu_clamped": [([3 * random(3, 5), 3 * random(3, 5, seed=1)], {"limit": 2.0})],
    "ops.experts.routed": [
        ([random(2, 5, 4)], {"k": k, "kind": kind, "normed": normed})
        for k in (1, 2, 4)
        for kind in ("softmax", "sigmoid")
        for normed in (False, True)
        if not (normed and k == 1)  # whose weight is 1
    ],
    "ops.experts.experts": [
        (of_experts(gated, biased), {"f": f, "on_input": on_input, **more})
        for gated, f, more in ((True, swiglu, {}), (True, swiglu_clamped, {"limit": 1.0}), (False, gelu, {}))
        for biased in (True, False)
        for on_input in (True, False)
    ],
    "ops.delta.delta": [
        (of_delta(state, runs, 5, removes, decays), {"chunk": chunk})
        for removes in (True, False)
        for decays in (4, 1, 0)
        for state, runs, chunk in ((None, None, 1), (random(2, 3, 4, 6), RUNS, 3), (None, RUNS, 9))
    ],
    "ops.delta.beta_times": [
        ([random(2, 3, 5, 4), 3 * random(2, 3, 5, 1)], {"most": most}) for most in (1.0, 2.0)
    ],
    "ops.delta.log_decay": [([abs(random(2, 3, 5, width)), random(3)], {}) for width in (4, 1)],
    "ops.activation.geglu": [([3 * random(3, 5), random(3, 5, seed=1)], {})],
    "ops.gelu_exact.gelu_exact": [([3 * random(3, 5)], {})],
    "ops.norm.from_one": [([random(5)], {})],
    "ops.scaled.scaled": [([random(2, 3, 5)], {"factor": 0.7})],
    "ops.scaled.softcapped": [([3 * random(2, 3, 5)], {"cap": 2.5})],
    "ops.activation.relu": [([3 * random(3, 5)], {"slope": 0.01}), ([3 * random(3, 5)], {})],
    "ops.activation.silu": [([3 * random(3, 5)], {})],
    "ops.activation.softplus": [([3 * random(3, 5)], {})],
    "ops.activation.swiglu": [([3 * random(3, 5), random(3, 5, seed=1)], {})],
    "ops.activation.tanh": [([2 * random(3, 5)], {})],
    "ops.attention.scores": [
        ([q, k, None, None, None, None], {"at": LATE, "scale": 0.3}),
        (
            [q, k, table(6, LATE), random(2, 6, 5, 7), random(2, 6, 5, 1), random(2, 6, 1, 7)],
            {"at": LATE, "scale": 0.3},
        ),
        (
            [3 * q, k, table(6, LATE), None, random(2, 6, 5, 1), None],
            {"at": LATE, "scale": 0.9, "softcap": 1.5},
        ),
        ([q, k, table(6, BOTH), random(1, 6, 5, 7), random(2, 1, 1, 1), None], {"at": BOTH, "scale": 1.0}),
        (
            [random(3, 6, 7, 4), random(3, 3, 7, 4), table(6, PACKED), None, None, random(1, 1, 1, 7)],
            {"at": PACKED, "scale": 0.5},
        ),
        (
            [random(2, 7, 7, 4), random(2, 7, 7, 4), table(7, REAL), None, None, None],
            {"at": REAL, "scale": 0.5},
        ),
        (
            [random(2, 7, 7, 4), random(2, 7, 7, 4), table(7, ONE_ROW), None, None, None],
            {"at": ONE_ROW, "scale": 0.5},
        ),
        (
            [random(2, 4, 7, 4), random(2, 4, 7, 4), table(4, WINDOW), None, None, None],
            {"at": WINDOW, "scale": 0.5},
        ),
    ],
    "ops.attention.plus_terms": [
        ([random(2, 6, 5, 7), table(6, LATE), *terms], {"at": LATE})
        for terms in (
            [None, None, None],
            [random(2, 6, 5, 7), random(2, 6, 5, 1), random(2, 6, 1, 7)],
            [random(1, 6, 5, 7), None, random(1, 1, 1, 7)],
        )
    ],
    "ops.attention.sunk": [
        ([random(3, 2, 7, 7), 2 * random(2)], {"at": at}) for at in (WHOLE, PACKED, WINDOW, CHUNKS, GLOBAL)
    ],
    "ops.cosine.of_length": [([random(3, 2, 7, 4), np.array([3.0, 5.0])], {})],
    "ops.temperature.tempered": [
        ([random(3, 2, 7, 4), random(2)], {"factor": np.arange(1.0, 8.0)}),
        ([random(3, 2, 7, 4), None], {"factor": np.arange(1.0, 22.0).reshape(3, 7)}),
    ],
    "ops.attention.probabilities": [([random(3, 2, 7, 7)], {"at": at}) for at in (WHOLE, PACKED, WINDOW)]
    + [([random(2, 3, 5, 7)], {"at": at}) for at in (BOTH, ACROSS)],
    "ops.attention.weigh": [([positive(2, 6, 5, 7), v], {})],
    "encodings.attend.pyramid.far": [
        (
            [random(3, 6, T, 4), *(random(1, 2, 21 + sum(map(len, pairs)), 4, seed=n) for n in (0, 1))],
            {"reads": reads, "scale": 0.5},
        )
        for T, (pairs, reads) in zip((7, 5, 7), TREES, strict=False)
    ],
    "encodings.attend.pyramid.pool": [([random(3, 2, 7, 4)], {"pairs": pairs}) for pairs, _ in TREES],
    "ops.cast.cast": [([random(2, 3)], {"dtype": np.float64})],
    "encodings.mix.s4d.diagonal_scan": [
        ([random(2, 5, 3), MODES, random(3), state, runs], {"chunk": chunk})
        for state in (None, random(2, 3, 4))
        for runs in (None, RUNS)
        for chunk in (1, 2, 9)
    ],
    "encodings.bias.kerple_log.log_kernel": [
        ([positive(3), positive(3, 1)[:, 0], d], {}) for d in (np.arange(-2, 5), positive(3, 5))
    ],
    # at d = 0 its slope is 0, not NaN
    "ops.bias.power": [([np.array([0.2, 0.5, 1.0]), np.arange(-2, 5)], {})],
    "ops.distance.gather": [
        ([random(2, 3, 5, 4), np.arange(35).reshape(5, 7) % 4], {"scale": 0.3}),
        ([random(2, 3, 5, 4), np.arange(70).reshape(2, 5, 7) % 4], {"scale": 0.3}),
    ],
    "encodings.score.cope.interpolate": [
        ([random(3, 2, 7, 4), random(3, 2, 7, 7)], {"at": at, "scale": 0.5})
        for at in (WHOLE, PACKED, WINDOW, GLOBAL)
    ],
    "encodings.score.dape.lay": [
        ([random(3, 4), np.arange(35).reshape(5, 7) % 4], {}),
        ([random(3, 5), np.arange(70).reshape(2, 5, 7) % 4], {}),
    ],
    "encodings.attend.shaw.scatter": [
        ([random(2, 3, 5, 7), np.arange(35).reshape(5, 7) % 4], {"rows": 4}),
        ([random(2, 3, 5, 7), np.arange(70).reshape(2, 5, 7) % 4 + 1], {"rows": 5}),
    ],
    "ops.embedding.take": [([random(7, 3), np.array([[1, 6, 1], [0, 1, 3]])], {})],
    "encodings.attend.pyramid.fold": [
        ([random(2, 3, 7, 4)], {"tokens": tokens, "chunk": chunk, "back": back})
        for tokens, chunk, back in (
            (7, 3, 2),
            (7, 3, 4),
            (5, 2, 0),
            (5, 5, 1),
            (1, 1, 3),
            (2, 2, 9),
            (7, 1, 6),
        )
    ],
    "encodings.attend.pyramid.unfold": [
        ([random(6, 3, 2, 4)], {"tokens": tokens, "rows": 2}) for tokens in (6, 5)
    ],
    "ops.frequency.angle": [
        ([np.arange(5), random(3)], {}),
        ([np.arange(14).reshape(2, 7) % 5, random(3)], {}),
    ],
    "ops.linear.linear": [
        ([random(2, 5, 3), random(4, 3), random(4)], {}),
        ([random(5, 3), random(4, 3), None], {}),
    ],
    "ops.linear.matmul": [([random(2, 1, 5, 3), random(4, 3, 6)], {}), ([random(5, 3), random(3, 6)], {})],
    "ops.loss.cross_entropy": [([random(2, 5, 7), np.array([[0, 6, -1, 2, 2], [3, -1, -1, 1, 5]])], {})],
    "ops.norm.group_norm": [([random(2, 5, 6), random(6), random(6, seed=1)], {"groups": 2, "eps": 1e-5})],
    "ops.norm.layer_norm": [
        ([random(2, 5, 7), random(7), random(7, seed=1)], {"eps": 1e-5}),
        ([random(5, 7), None, None], {"eps": 1e-5}),
    ],
    "ops.norm.rms_norm": [
        ([random(2, 5, 7), random(7)], {"eps": 1e-5}),
        ([random(5, 7), None], {"eps": 1e-5}),
    ],
    "ops.norm.unit": [([random(2, 5, 7)], {"eps": 1e-6})],
    "encodings.mix.retnet.retention": [
        (
            [random(2, 3, 5, 4), random(2, 3, 5, 4, seed=1), random(2, 3, 5, 6), state, runs],
            {"log_decay": DECAY, "chunk": chunk, "scale": 0.5},
        )
        for state in (None, random(2, 3, 4, 6))
        for runs in (None, RUNS)
        for chunk in (1, 2, 9)
    ],
    "ops.scan.short_conv": [
        ([random(2, 5, 3), random(3, 4), state, runs], {})
        for state in (None, random(2, 3, 3))
        for runs in (None, RUNS)
    ],
    "encodings.mix.mamba.selective_scan": [
        ([*selective(), state, runs], {"discretisation": discretisation, "chunk": chunk})
        for state in (None, random(2, 4, 3))
        for runs in (None, RUNS)
        for discretisation in ("euler", "zoh")
        for chunk in (1, 2, 9)
    ],
    "ops.shape.add": [
        ([random(2, 5, 3), random(2, 5, 3, seed=1)], {}),
        ([random(2, 5, 3), random(5, 1)], {}),
    ],
    "ops.shape.join": [
        ([random(2, 5, 3), random(2, 4, 3)], {"axis": 1}),
        ([random(2, 5), random(2, 3), random(2, 4)], {"axis": -1}),
    ],
    "ops.shape.merge_heads": [([random(2, 3, 5, 4)], {})],
    "ops.shape.repeat_heads": [([random(2, 3, 5, 4)], {"heads": 6})],
    "ops.shape.cut": [([random(2, 3, 5)], {"first": 1, "stop": 3, "axis": 1})],
    "ops.attention.masked": [([random(2, 3, 5), random(3, 5) > 0], {})],
    "ops.shape.only": [([random(1, 5, 3)], {})],
    "ops.shape.split_heads": [([random(2, 5, 12)], {"heads": 3}), ([random(5, 12)], {"heads": 3})],
    "ops.shape.swap": [([random(2, 5, 3)], {"axes": (0, 2)})],
    "ops.shift.lerp": [
        ([random(2, 5, 3), random(2, 5, 3, seed=1), random(*shape)], {}) for shape in ((3,), (2, 5, 3))
    ],
    "ops.shift.previous": [
        ([random(2, 5, 3), state, runs], {}) for state in (None, random(2, 1, 3)) for runs in (None, RUNS)
    ],
    "ops.turn.turn": [
        ([random(2, 3, 5, 10), random(5, 3), None], {"layout": "half"}),
        ([random(2, 3, 5, 10), random(5, 4), positive(5, 4)], {"layout": "interleaved"}),
        ([random(2, 3, 5, 6), random(2, 5, 3), positive(2, 5, 3)], {"layout": "half"}),
        ([random(2, 3, 5, 6), random(2, 5, 3), positive(1, 1)], {"layout": "interleaved"}),
        ([random(2, 6, 5, 6), random(2, 3, 5, 3), positive(5, 3)], {"layout": "half"}),
        ([random(2, 6, 5, 6), random(1, 6, 5, 2), positive(1, 2, 5, 2)], {"layout": "interleaved"}),
    ],
    "encodings.mix.rwkv4.wkv4": [
        ([3 * random(2, 5, 3), random(2, 5, 3, seed=1), -positive(3), random(3), state, runs], {})
        for state in (None, positive(2, 3, 3))
        for runs in (None, RUNS)
    ],
    "encodings.mix.rwkv6.wkv6": [
        (of_wkv6(state, runs), {"chunk": chunk})
        for state in (None, random(2, 3, 4, 6))
        for runs in (None, RUNS)
        for chunk in (1, 2, 9)
    ],
    "encodings.mix.rwkv7.wkv7": [
        (of_wkv7(state, runs), {"chunk": chunk})
        for state in (None, random(2, 3, 4, 6))
        for runs in (None, RUNS)
        for chunk in (1, 2, 9)
    ],
    "encodings.embed.sinusoidal.scaled": [
        ([random(1), random(2, 5, 3)], {}),
        ([random(1), random(5, 3)], {}),
    ],
    "encodings.bias.kerple_power.power_kernel": [
        ([positive(3), np.array([0.2, 0.5, 1.0]), np.arange(-2, 5)], {})
    ],
    "encodings.score.fire.share": [
        (
            [
                np.array([0.1]),
                np.array([1.1]),
                abs(np.arange(5)[:, None] - np.arange(-2, 5)),
                np.array([3, 0, 5, 7, 4]),
            ],
            SHARE,
        ),
        (
            [
                np.array([-2.0]),
                np.array([-1.1]),
                np.arange(70).reshape(2, 5, 7) % 6,
                np.arange(10).reshape(2, 5),
            ],
            SHARE,
        ),
    ],
    "encodings.attend.path.scores": [
        (
            [random(2, 4, 5, 3), random(2, 2, 7, 3), 0.5 * random(2, 2, 7, 3, seed=1), positive(2, 2, 7)],
            {"scale": 0.5, "block": block},
        )
        for block in (1, 3, 64)
    ],
    "encodings.attend.path.twice": [([random(2, 5)], {})],
    "encodings.attend.path.forgotten": [([random(2, 3, 7)], {"T": 4, "scale": 0.5})],
    "encodings.score.forgetting.gate_row": [([random(2, 3, 7)], {"T": 4})],
    "encodings.score.forgetting.gate_column": [([random(2, 3, 7)], {})],
    "ops.zones.by_zone": [
        ([np.arange(np.prod(shape)).reshape(shape) % 3, *(random(2, 3, 4, 5, seed=n) for n in range(3))], {})
        for shape in ((4, 5), (2, 1, 4, 5))
    ],
}
# arrays that stay float64
WIDE = {"ops.turn.turn": (1, 2), "encodings.mix.s4d.diagonal_scan": (1,)}
SPANS = [(name, k) for name in CASES for k in range(len(CASES[name]))]


def test_every_op_has_a_case_here():
    """An op cannot be added without being checked. One that is an encoding's own need not be here:
    test_encodings sees it at work.
    """
    assert set(CASES) <= set(OPS)
    assert {name for name in OPS if name.startswith("ops.")} <= set(CASES)


@pytest.mark.parametrize(("name", "case"), SPANS)
def test_gradient(name, case):
    """The backward of every op is its derivative, to 1e-7 in float64."""
    gradient(OPS[name], *CASES[name][case])


FLOAT64 = (
    "encodings.score.forgetting",
    "ops.bias.power",
    "ops.cast.cast",
    "ops.frequency.angle",
)  # what these give is float64, whatever they are given


@pytest.mark.parametrize(("name", "case"), [s for s in SPANS if not s[0].startswith(FLOAT64)])
def test_contract(name, case):
    """Nothing is written, dtype and library are kept, calls repeat."""
    op_contract(OPS[name], *CASES[name][case], wide=WIDE.get(name, ()))


def listed(x):
    return None if x is None else x.tolist()


@pytest.mark.parametrize(
    "at", [WHOLE, WINDOW, PACKED, At.of(7, causal=False), At.of(7, causal=False, window=2), LATE]
)
def test_attention_is_the_loop(at):
    """Softmax attention over what is seen, GQA, bias and term equal the loop; a row that sees nothing is
    0.
    """
    B, T = 3, at.T
    q, k, v = qkv(B, 6, 2, T, 7)
    bias, term = random(6, T, 7), random(B, 6, T, 7)
    got = attention(q, k, v, None, bias + term, at=at, scale=0.4)
    want = [
        attention_loop.attend(
            *(a[b].tolist() for a in (q, k, v)),
            0.4,
            bias.tolist(),
            term[b].tolist(),
            at.causal,
            at.window,
            listed(None if at.seg is None else at.seg[b]),
        )
        for b in range(B)
    ]
    same(got, np.array(want), 1e-13)


@pytest.mark.parametrize("at", [WHOLE, WINDOW, PACKED, At.of(7, causal=False), LATE])
@pytest.mark.parametrize("cells", [1, 15, 1000])
def test_pieces_have_every_cell_that_is_seen_once(at, cells):
    """Whatever the size of a piece, and none is without a cell."""
    see, times = np.broadcast_to(at.see, (3, 1, at.T, at.S)), np.zeros((3, 1, at.T, at.S), int)
    for cut in pieces(at, 3, cells):
        times[cut] += 1
        assert see[cut].any()
        alike = at.see[None, None] if at.see.ndim == 2 else at.see
        same(alike[cut_of(alike, cut)], see[cut], 0)
    assert (times[see] == 1).all()
    assert times.max() == 1


def test_phi_is_that_of_the_standard_library():
    """To a few units in the last place, and 0 and 1 beyond."""
    x = np.concatenate([np.linspace(-10, 10, 2001), [1e-300, 1e150, -1e150]])
    same(phi(x), np.array([math.erfc(-a / math.sqrt(2)) / 2 for a in x]), 3e-15)


def test_row_and_column_add_up_wide():
    """Row and column meet in their own dtype: sums near 1e6 that cancel leave a float32 result right to
    float32.
    """
    q, k, v = (a.astype(np.float32) for a in qkv(T=7))
    c = -1e6 + random(2, 6, 7).cumsum(-1)
    got = attention(q, k, v, None, None, c[..., None], -c[:, :, None], at=WHOLE, scale=0.5)
    want = attention(
        *(a.astype(np.float64) for a in (q, k, v)), None, c[..., None] - c[:, :, None], at=WHOLE, scale=0.5
    )
    same(got, want.astype(np.float32), 1e-6)


def test_a_masked_nan_in_the_logits_stays_out_and_a_seen_one_shows():
    """A cell that is not seen has no say, whatever is in it; a NaN that is seen comes out as NaN."""
    s = random(1, 1, 3, 3)
    s[..., 0, 2] = np.nan
    assert np.isfinite(probabilities(s, at=At.of(3))).all()
    s[..., 2, 0] = np.nan
    assert np.isnan(probabilities(s, at=At.of(3))[0, 0, 2]).all()


def test_large_scores_do_not_overflow():
    """Logits of 1e4 give a softmax, not a NaN, in float32."""
    p = probabilities(np.float32(1e4) * random(1, 2, 5, 5).astype(np.float32), at=At.of(5))
    same(p.sum(-1), np.ones((1, 2, 5), np.float32), 1e-6)


def test_norms_are_the_loops():
    """RMSNorm and LayerNorm equal the loops."""
    x, w, b = random(3, 5), random(5), random(5, seed=1)
    same(rms_norm(x, w, eps=1e-5), np.array([norm_loop.rms(r, w.tolist(), 1e-5) for r in x.tolist()]), 1e-14)
    same(
        layer_norm(x, w, b, eps=1e-5),
        np.array([norm_loop.layer(r, w.tolist(), b.tolist(), 1e-5) for r in x.tolist()]),
        1e-14,
    )


def test_cross_entropy_is_the_loop():
    """The mean over the targets that are asked for."""
    x, t = random(6, 5), np.array([0, 4, -1, 2, 2, -1])
    same(
        cross_entropy(x, t)[0],
        np.float64(loss_loop.cross_entropy(x[t >= 0].tolist(), t[t >= 0].tolist())),
        1e-14,
    )


def test_cross_entropy_with_nothing_asked_is_zero():
    """No target, no loss, no gradient, no NaN."""
    y, saved, nll = cross_entropy.forward(random(2, 5), np.array([-1, -1]))
    same(
        [y, nll, cross_entropy.backward(saved, np.float64(1.0))[0]],
        [np.float64(0), np.zeros(2), np.zeros((2, 5))],
        0,
    )


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_turn_is_the_loop(layout):
    """Pairs turn as in the loop; channels beyond R pass, also beside a gain."""
    x, angle = random(2, 3, 5, 10), 9 * random(5, 3)
    want = [
        [
            [turn_loop.turned(x[b, h, t].tolist(), angle[t].tolist(), layout) for t in range(5)]
            for h in range(3)
        ]
        for b in range(2)
    ]
    same(turn(x, angle, None, layout=layout), np.array(want), 1e-14)
    with_gain = turn(x, angle, np.full((5, 3), 2.0), layout=layout)
    same(with_gain[..., :6], 2 * turn(x, angle, None, layout=layout)[..., :6], 1e-15)
    same(with_gain[..., 6:], x[..., 6:], 0)


def test_the_two_layouts_are_one_rotation_of_permuted_channels():
    """half(x[P]) = interleaved(x)[P] with P = 0, 2, ..., 1, 3, ..."""
    x, angle, P = random(2, 3, 5, 8), random(5, 4), [0, 2, 4, 6, 1, 3, 5, 7]
    same(
        turn(x[..., P], angle, None, layout="half"), turn(x, angle, None, layout="interleaved")[..., P], 1e-15
    )


def test_retention_forms_agree():
    """Recurrent (chunk 1), chunked with a ragged end, and parallel (one chunk) are one function, with and
    without breaks and state.
    """
    arrays = random(2, 3, 5, 4), random(2, 3, 5, 4, seed=1), random(2, 3, 5, 6)
    for state in (None, random(2, 3, 4, 6)):
        for runs in (None, RUNS):
            forms = [
                retention(*arrays, state, runs, log_decay=DECAY, chunk=chunk, scale=0.5)
                for chunk in (1, 2, 3, 5, 64)
            ]
            for form in forms[1:]:
                same(form, forms[0], 1e-14)


@pytest.mark.parametrize(("op", "arrays"), [(wkv6, of_wkv6), (wkv7, of_wkv7), (delta, of_delta)])
@pytest.mark.parametrize("state", [None, random(2, 3, 4, 6)])
def test_wkv_forms_agree(op, arrays, state):
    """Recurrent (chunk 1), chunked with a ragged end, and parallel (one chunk) are one function with one
    gradient, also with breaks and state.
    """
    for runs in (None, np.repeat(RUNS, 3, 1)[:, :13]):
        given = arrays(state, runs, T=13)
        forms = []
        for chunk in (1, 2, 5, 13, 64):
            y, saved, last = op.forward(*given, chunk=chunk)
            forms.append([y, last, *op.backward(saved, random(*y.shape))])
        for form in forms[1:]:
            same(form, forms[0], 1e-13)


@pytest.mark.parametrize("op", [wkv4, wkv6, wkv7, delta])
def test_wkv_forgets_where_a_run_ends(op):
    """Each run is the sequence alone, run 0 with the state handed in; padding gives zeros and hands on
    what an empty call would.
    """
    state = positive(2, 3, 3) if op is wkv4 else random(2, 3, 4, 6)
    if op is wkv4:
        given, over, settings = (
            [random(2, 5, 3), random(2, 5, 3, seed=1), -positive(3), random(3)],
            {0, 1},
            {},
        )
    else:
        given, settings = {wkv6: of_wkv6, wkv7: of_wkv7, delta: of_delta}[op]()[:-2], {"chunk": 2}
        over = {n for n, a in enumerate(given) if a.ndim == 4}
    time = 1 if op is wkv4 else 2
    y, last = op(*given, state, RUNS, **settings)
    for row, runs in enumerate(RUNS):
        for run in set(runs.tolist()):
            where = np.flatnonzero(runs == run)
            alone = [a[row : row + 1].take(where, time) if n in over else a for n, a in enumerate(given)]
            want, end = op(*alone, state[row : row + 1] if run == 0 else None, None, **settings)
            same(y[row : row + 1].take(where, time), want if run >= 0 else np.zeros_like(want), 1e-14)
            if where[-1] == 4 and run >= 0:
                same(last[row : row + 1], end, 1e-14)
    empty = np.zeros((3, 3)) + np.array([0, 0, -np.inf])[:, None] if op is wkv4 else np.zeros((3, 4, 6))
    same(last[0], empty, 0)


def test_wkv6_takes_any_decay():
    """A token that forgets everything, and one that forgets nothing, in one chunk: no overflow in float32,
    and the recurrence's numbers.
    """
    r, log_w, k, v, u, *rest = of_wkv6(T=7)
    log_w = log_w * np.array([1e30, 1, 0, 100, 0, 1e-9, 3])[:, None]
    wide = wkv6(r, log_w, k, v, u, *rest, chunk=1)
    same(wkv6(r, log_w, k, v, u, *rest, chunk=7), wide, 1e-12)
    narrow = wkv6(*(a.astype(np.float32) for a in (r, log_w, k, v, u)), *rest, chunk=7)
    same(narrow, [a.astype(np.float32) for a in wide], 1e-6)


def test_wkv6_loses_no_gradient_in_rounding():
    """Where every token forgets nearly all, log w has a gradient e^-15 beside those of r and k; float32
    still has it right.
    """
    r, log_w, k, v, u, *rest = of_wkv6(T=16)
    arrays, dy, found = [r, -14 - abs(log_w), k, v, u], random(2, 3, 16, 6, seed=9), []
    for dtype in (np.float32, np.float64):
        saved = wkv6.forward(*(a.astype(dtype) for a in arrays), *rest, chunk=16)[1]
        found.append(wkv6.backward(saved, dy.astype(dtype))[1])
    assert abs(found[1]).max() < 1e-4
    same(found[0].astype(np.float64), found[1], 1e-5)


@pytest.mark.parametrize("decays", [4, 1, 0])
@pytest.mark.parametrize("removes", [True, False])
def test_delta_is_the_loop(removes, decays):
    """And hands on its last state, from one that is handed in."""
    *given, _, _ = of_delta(T=7, removes=removes, decays=decays)
    state = random(2, 3, 4, 6)
    y, last = delta(*given, state, None, chunk=4)
    for b, h in np.ndindex(2, 3):
        want, end = delta_loop.delta(*(None if a is None else a[b, h].tolist() for a in (*given, state)))
        same((y[b, h], last[b, h]), (np.array(want), np.array(end)), 1e-13)


# of the largest number of each array; over eight seeds, 8,192 tokens and chunks of 1, 32 and 128, 4.4e-6 was
# the worst measured
DELTA_BOUND = 1e-5
DELTA_DECAYS = np.array([0.0, -2.0, -3.0, -20.0])


def far_from_float64(T, chunks, removes, decays=1, seed=0, op=delta):
    """How far y, the last state and all gradients are from float64 with chunks of 16 tokens, relative to the
    largest number of each, the worst for each chunk and log decay [chunks,4]: keys of length one, beta up to
    2, a state handed in and a gradient that comes through the last; `decays` as of_delta has it.
    """
    rng, B = np.random.default_rng(seed), len(DELTA_DECAYS)
    unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True))
    r, k, v = (rng.standard_normal((B, 2, T, 8)) for _ in "rkv")
    beta = 2 / (1 + np.exp(-rng.standard_normal((B, 2, T, 1))))
    r, k, ends = unit(r), unit(k), rng.standard_normal((2, B, 2, 8, 8))
    g = np.broadcast_to(DELTA_DECAYS[:, None, None, None], (B, 2, T, decays))
    arrays, dy = [r, g, beta * k, v, k if removes else None, ends[0]], rng.standard_normal(v.shape)

    def computed(op, dtype, chunk):
        given = (None if a is None else a.astype(dtype) for a in arrays)
        y, saved, last = op.forward(*given, None, chunk=chunk)
        gradients = op.backward(saved, dy.astype(dtype), ends[1].astype(dtype))
        return [y, last, *(x for x in gradients if x is not None)]

    most, exact = lambda x: abs(x).max((1, 2, 3)), computed(delta, np.float64, 16)
    found = [computed(op, np.float32, chunk) for chunk in chunks]
    return np.array(
        [np.max([most(x - y) / most(y) for x, y in zip(f, exact, strict=True)], 0) for f in found]
    )


@pytest.mark.parametrize("decays", [8, 1])
@pytest.mark.parametrize("removes", [True, False])
def test_delta_keeps_float32_whatever_the_decay(removes, decays):
    """Forward and backward, of the gradient of g too, which is e^-20 beside the others."""
    assert far_from_float64(200, (1, 3, 32, 128), removes, decays).max() <= DELTA_BOUND


@pytest.mark.parametrize("removes", [True, False])
def test_delta_keeps_float32_over_long_texts(removes):
    """The chunks between are in benchmarks/delta.py."""
    assert far_from_float64(8192, (1, 16, 128), removes).max() <= DELTA_BOUND


def test_delta_takes_any_decay():
    """Tokens that forget all, and some, and nothing, in one chunk, also -inf: the recurrence's numbers."""
    given = of_delta(T=7)
    given[1] = given[1] * np.array([1e30, 1, 0, 100, np.inf, 1e-9, 3])[:, None]
    wide, dy = delta(*given, chunk=1), random(2, 3, 7, 6, seed=9)
    same(delta(*given, chunk=7), wide, 1e-12)
    narrow = [None if a is None else a.astype(np.float32) for a in given]
    y, saved, last = delta.forward(*narrow, chunk=7)
    same((y, last), [a.astype(np.float32) for a in wide], 1e-5)
    assert all(np.isfinite(x).all() for x in delta.backward(saved, dy.astype(np.float32)) if x is not None)


def test_wkv4_is_stable():
    """Keys of a thousand overflow nothing, one token alone gives its value, and a weight e^-800 beside
    another leaves the other alone.
    """
    v, log_w, u = random(1, 6, 2), np.array([-0.5, -20.0]), random(2)
    for k in (1000 * random(1, 6, 2), np.full((1, 6, 2), -1000.0), np.full((1, 6, 2), 1000.0)):
        y, saved, last = wkv4.forward(k, v, log_w, u, None, None)
        same(y[:, 0], v[:, 0], 1e-15)
        assert all(np.isfinite(a).all() for a in (y, last, *wkv4.backward(saved, np.ones_like(y))[:4]))
    k = np.array([0.0, 800, 0, 0, 0, 0])[None, :, None] * np.ones(2)
    same(wkv4(k, v, np.zeros(2), u, None, None)[0][:, 1:], np.repeat(v[:, 1:2], 5, 1), 1e-15)


def test_previous_restarts_with_the_run():
    """The state stands before run 0, zeros before every other run and in padding; what is handed on is the
    last token's own.
    """
    x, state = random(2, 5, 3), random(2, 1, 3)
    y, last = previous(x, state, RUNS)
    want = np.zeros_like(x)
    want[0, 0], want[0, 1], want[0, 3] = state[0, 0], x[0, 0], x[0, 2]
    want[1, 2], want[1, 3] = x[1, 1], x[1, 2]
    same([y, last], [want, np.stack([np.zeros((1, 3)), x[1, -1:]])], 0)


def test_diagonal_scan_forms_agree():
    """Recurrent (chunk 1), chunked with a ragged end, and one convolution are one function, y and last
    state, with and without breaks and state.
    """
    for state in (None, random(2, 3, 4)):
        for runs in (None, RUNS):
            forms = [
                diagonal_scan(random(2, 5, 3), MODES, random(3), state, runs, chunk=chunk)
                for chunk in (1, 2, 3, 5, 64)
            ]
            for form in forms[1:]:
                same(form, forms[0], 1e-14)


def test_diagonal_scan_is_the_recurrence():
    """Token by token in complex numbers; a new run starts from nothing, padding reads and writes nothing."""
    u, skip, state = random(2, 5, 3), random(3), random(2, 3, 4)
    got, last = diagonal_scan(u, MODES, skip, state, RUNS, chunk=2)
    a, w = MODES[0] + 1j * MODES[1], MODES[2] + 1j * MODES[3]
    for b in range(2):
        s, run = state[b, :, :2] + 1j * state[b, :, 2:], 0
        for t in range(5):
            s = (a * s if RUNS[b, t] == run else 0 * a) + u[b, t, :, None] if RUNS[b, t] >= 0 else 0 * a
            run = RUNS[b, t]
            same(got[b, t], (w * s).real.sum(1) + skip * u[b, t] * (run >= 0), 1e-14)
        same(last[b], np.concatenate([s.real, s.imag], 1), 1e-14)


def test_a_padded_fft_is_the_convolution_and_one_that_wraps_is_not():
    """The form in which S4D is published: transforms of twice the length, which need not be a power of
    two.
    """
    T, u, skip = 37, random(2, 37, 3), random(3)
    kernel = (
        (MODES[2] + 1j * MODES[3])[..., None] * (MODES[0] + 1j * MODES[1])[..., None] ** np.arange(T)
    ).real.sum(1)
    got, _ = diagonal_scan(u, MODES, skip, None, None, chunk=8)

    def by_fft(n):
        y = np.fft.irfft(np.fft.rfft(u, n, 1) * np.fft.rfft(kernel.T, n, 0), n, 1)[:, :T]
        return y + skip * u

    same(got, by_fft(2 * T), 1e-12)
    assert abs(got - by_fft(T)).max() > 0.1


def test_selective_scan_forms_agree():
    """Any chunk gives the same, y and last state, with and without breaks and state."""
    for discretisation in ("euler", "zoh"):
        for state in (None, random(2, 4, 3)):
            for runs in (None, RUNS):
                settings = [{"discretisation": discretisation, "chunk": chunk} for chunk in (1, 2, 3, 64)]
                forms = [selective_scan(*selective(), state, runs, **how) for how in settings]
                for form in forms[1:]:
                    same(form, forms[0], 1e-14)


def test_selective_scan_is_the_sum_over_the_past():
    """The form without a state: a lower triangle of weights, in which only differences of sums of D_t
    stand in exponentials.
    """
    x, delta, a_log, b, c, skip = selective(9)
    step, A = np.logaddexp(delta, 0), -np.exp(a_log)
    for discretisation in ("euler", "zoh"):
        gain = step[..., None] if discretisation == "euler" else np.expm1(step[..., None] * A) / A
        apart = step.cumsum(1)[:, :, None] - step.cumsum(1)[:, None]  # [B,T,S,E]
        # [B,T,S,E,N]
        weight = np.where(
            np.tri(9, dtype=bool)[..., None, None], np.exp(np.maximum(apart, 0)[..., None] * A), 0
        )
        want = (
            np.einsum("btn,btsen,bsen,bsn,bse->bte", c, weight, np.broadcast_to(gain, (2, 9, 3, 4)), b, x)
            + skip * x
        )
        same(
            selective_scan(x, delta, a_log, b, c, skip, None, None, discretisation=discretisation, chunk=4)[
                0
            ],
            want,
            1e-13,
        )


def test_selective_scan_where_steps_are_extreme():
    """A step that underflows leaves the state as it is, a huge one forgets it; nothing overflows, in
    float32 too.
    """
    for dtype in (np.float32, np.float64):
        x, _, a_log, b, c, skip = (a.astype(dtype) for a in selective(3))
        delta = np.broadcast_to(np.array([-1000, 1000, -1000], dtype)[:, None], (2, 3, 3))
        for discretisation in ("euler", "zoh"):
            (y, saved, last) = selective_scan.forward(
                x, delta, a_log, b, c, skip, None, None, discretisation=discretisation, chunk=2
            )
            assert all(np.isfinite(g).all() for g in [y, last, *selective_scan.backward(saved, y)[:6]])
            same(y[:, 0], skip * x[:, 0], 0)
            alone = selective_scan(
                x[:, 1:2],
                delta[:, 1:2],
                a_log,
                b[:, 1:2],
                c[:, 1:2],
                skip,
                None,
                None,
                discretisation=discretisation,
                chunk=2,
            )
            same(last, alone[1], 1e-6)


def test_short_conv_is_the_sum():
    """Tap K-1 takes the token itself, tap 0 the oldest; nothing comes over the start of a run, nor into
    padding.
    """
    x, w = random(1, 6, 2), random(2, 3)
    runs = np.array([[-1, 1, 1, 1, 2, 2]])
    got, _ = short_conv(x, w, None, runs)
    want = np.zeros((1, 6, 2))
    for t, taps in ((1, 1), (2, 2), (3, 3), (4, 1), (5, 2)):
        for back in range(taps):
            want[0, t] += x[0, t - back] * w[:, 2 - back]
    same(got, want, 1e-15)


def test_fold_is_what_it_says():
    """Piece c has slot first + c chunk + m - back at place m, zeros outside; what does not overlap unfolds
    to what it was.
    """
    x = random(2, 3, 7, 4)
    for tokens, chunk, back in ((7, 3, 2), (5, 2, 4), (1, 1, 3), (6, 6, 0)):
        got, count = fold(x, tokens=tokens, chunk=chunk, back=back), -(-tokens // chunk)
        for b, c, m in np.ndindex(2, count, chunk + back):
            slot = 7 - tokens + c * chunk + m - back
            same(got[b * count + c, :, m], x[b, :, slot] if 0 <= slot < 7 else np.zeros((3, 4)), 0)
    same(unfold(fold(x, tokens=7, chunk=3, back=0), tokens=7, rows=2), x, 0)


@pytest.mark.parametrize(
    ("at", "w"),
    [
        (At.of(37), 1),
        (At.of(37), 5),
        (At(np.arange(30, 37), np.arange(37), 37), 3),
        (PACKED, 1),
        (PACKED, 2),
        (LATE, 1),
    ],
)
def test_blocks_cover_the_prefix_once(at, w):
    """The blocks that a query reads are aligned, at most one of each level, and hold each token of its
    document that lies w slots or more before it once and nothing else.
    """
    B = 1 if at.seg is None else len(at.seg)
    pairs, reads = tree(at, w=w, B=B)
    # row of the table -> its members
    index = pool(np.eye(B * at.S).reshape(B, at.S, B * at.S)[:, None], pairs=pairs)[0, 0]
    seg = np.ones((B, at.S), int) if at.seg is None else at.seg
    got = np.zeros((B * at.T, B * at.S))
    for level, (t, row) in enumerate(reads):
        assert len(set(t.tolist())) == len(t) > 0
        assert set((index[row] > 0).sum(1).tolist()) == {2**level}
        got[t] += index[row] * 2**level
    want = np.zeros((B, at.T, B, at.S))
    for b, t, s in np.ndindex(B, at.T, at.S):
        mine = at.S - at.T + t
        want[b, t, b, s] = seg[b, s] == seg[b, mine] != 0 and s <= mine - w
    same(got, want.reshape(got.shape), 0)
    for level, left in enumerate(pairs):
        starts = np.argmax(index[left] > 0, 1)
        document = np.maximum.accumulate(
            np.where(np.diff(seg, axis=1, prepend=-1).ravel() != 0, np.arange(B * at.S), 0)
        )
        assert ((starts - document[starts]) % 2 ** (level + 1) == 0).all()


class TestAt:
    """Where and with whom every token is."""

    def test_positions_restart_with_the_segment(self):
        """Padding and documents count from 0."""
        same(positions_in(SEG[:2]), np.array([[0, 1, 0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 0]]), 0)

    def test_a_query_sees_its_own_past_and_document(self):
        """By slots, never by positions."""
        tied = At.of(3, positions=np.zeros(3, int))
        same(tied.see, np.tril(np.ones((3, 3), bool)), 0)
        same(PACKED.see[1, 0, 5], np.array([False, False, False, False, True, True, False]), 0)
        assert not PACKED.see[0, 0, :2].any()
        same(WINDOW.see[5], np.array([False, False, False, True, True, True, False]), 0)
        same(
            At.of(7, causal=False, window=2).see[3],
            np.array([False, False, True, True, True, False, False]),
            0,
        )

    @pytest.mark.parametrize(
        "at",
        [
            WHOLE,
            LATE,
            BOTH,
            PACKED,
            WINDOW,
            At.of(7, causal=False, window=2),
            At.of(7, seg=SEG, causal=False),
        ],
    )
    def test_spans_are_what_is_seen(self, at):
        """First slot and one beyond the last, for what has no holes."""
        first, stop = at.spans[..., :1], at.spans[..., 1:]
        slot = np.arange(at.S)
        same(
            np.broadcast_to((first <= slot) & (slot < stop), (3, at.T, at.S)),
            np.broadcast_to(at.see if at.seg is None else at.see[:, 0], (3, at.T, at.S)),
            0,
        )

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize(("window", "chunk"), [(2, None), (None, 3), (4, 3)])
    def test_global_tokens_see_and_are_seen(self, causal, window, chunk):
        """The first two of each document, by loops over slots; spans go from the first to the last key that
        is seen, and to nothing at padding.
        """
        for seg in (SEG, np.ones((1, 7), int)):
            at = At.of(7, seg=seg, causal=causal).within(window, chunk, 2)
            slot = positions_in(seg)
            for b, row in enumerate(seg):
                for t in range(7):
                    far = lambda s, t=t, b=b, slot=slot: (
                        (window and abs(t - s) >= window)
                        or (chunk and slot[b, s] // chunk != slot[b, t] // chunk)
                    )
                    sees = [
                        bool(row[t] == row[s] != 0 and (s <= t or not causal))
                        and not (far(s) and min(slot[b, s], slot[b, t]) >= 2)
                        for s in range(7)
                    ]
                    assert at.see[b, 0, t].tolist() == sees, (row, t)
                    cells = np.flatnonzero(sees)
                    want = [cells[0], cells[-1] + 1] if len(cells) else [0, 0]
                    assert at.spans[b, t].tolist() == want, (row, t)

    def test_global_tokens_in_a_cache(self):
        """The rows of the whole; their keys are kept with those near the end; distances reach the first."""
        whole = At.of(7).within(2, None, 2)
        same(LATE_GLOBAL.see, whole.see[:, :, 2:], 0)
        assert LATE_GLOBAL.S == 7
        same(LATE_GLOBAL.kept(7), np.array([[0, 1, 6]]), 0)
        far = At(np.arange(7, 9), np.arange(9), 16).within(2, None, 2)
        same(far.j, np.array([0, 1, 6, 7, 8]), 0)
        assert far.see.tolist() == [[[[True, True, True, True, False], [True, True, False, True, True]]]]
        same(LATE_GLOBAL.distances, np.arange(7), 0)

    def test_a_long_consecutive_sequence_costs_no_square(self):
        """Distances and spans of a million tokens are lines."""
        at = At.of(1_000_000)
        assert at.distances.shape == (1_000_000,)
        assert at.spans.shape == (1, 1_000_000, 2)

    @pytest.mark.parametrize(
        "at",
        [
            WHOLE,
            LATE,
            BOTH,
            PACKED,
            REAL,
            WINDOW,
            At.of(7, causal=False, window=2),
            At.of(7, seg=SEG, causal=False),
            GLOBAL,
        ],
    )
    def test_distances_are_those_of_the_cells_that_are_seen(self, at):
        """d[index] is i - j wherever a query sees a key."""
        d, index = at.distances, at.index
        apart = np.broadcast_to(at.i[..., :, None] - at.j[..., None, :], (3, at.T, at.S))
        see = np.broadcast_to(at.see if at.seg is None else at.see[:, 0], apart.shape)
        same(np.broadcast_to(d[index], apart.shape)[see], apart[see], 0)
        assert (np.diff(d) > 0).all()

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("window", [None, 3])
    def test_documents_and_padding_are_read_by_diagonal(self, causal, window):
        """Where positions go up in ones in each document; distances then are no more than those of the
        cells that are seen, and nothing is a square for each sequence.
        """
        for seed in range(20):
            rng = np.random.default_rng(seed)
            seg = np.sort(rng.integers(0, 4, (3, 9)))[:, :: 1 - 2 * (seed % 2)]
            i = positions_in(seg) + rng.integers(0, 50, (3, 1))
            i = np.where(seg == 0, rng.integers(0, 50, i.shape), i)
            at = At(i[:, seed % 5 :], i, 9, causal, window, seg)
            apart, see = at.i[..., :, None] - at.j[..., None, :], at.see[:, 0]
            same(at.distances, np.unique(apart[see]) if see.any() else np.zeros(1, int), 0)
            assert at.consecutive
            assert at.index.shape == (at.T, 9)
            same(np.broadcast_to(at.distances[at.index], see.shape)[see], apart[see], 0)

    def test_what_is_read_by_diagonal(self):
        """A number left out inside a document is not; one between documents, or in padding, does not
        matter.
        """
        seg, j = np.array([[0, 0, 1, 1, 1, 2, 2]]), np.array([[3, 3, 5, 6, 7, 0, 1]])
        assert At.of(7, positions=j, seg=seg).consecutive
        assert At.of(7, positions=j.astype(np.uint8), seg=seg).consecutive
        assert At.of(7, positions=np.stack([np.arange(7), 5 + np.arange(7)])).consecutive
        assert not At.of(7, positions=j).consecutive
        assert not At.of(7, positions=j[0]).consecutive
        assert not At.of(7, positions=j * 1.0, seg=seg).consecutive
        assert not At(np.array([255, 0], np.uint8), np.array([255, 0], np.uint8), 2).consecutive
        for k in (2, 3, 4, 5, 6):
            other = j.copy()
            other[0, k] += 1
            assert not At.of(7, positions=other, seg=seg).consecutive

    def test_distances_with_nothing_seen_are_still_a_table(self):
        """Padding alone asks for distance 0."""
        same(At.of(2, seg=np.zeros((1, 2), int)).distances, np.zeros(1, int), 0)

    def test_positions_of_several_axes(self):
        """[A,1,T] and [A,T] are the same in every sequence, [1,B,T] is [B,T]; what is seen, where it ends
        and segments are as ever.
        """
        i = np.arange(42).reshape(3, 2, 7)
        for given, want in (
            (i, i),
            (i[:, :1], np.repeat(i[:, :1], 2, 1)),
            (i[:, 0], np.repeat(i[:, :1], 2, 1)),
            (i[:1], i[0]),
            (i[0], i[0]),
        ):
            same(positions_of(given, 2, 7, 3), want, 0)
            same(positions_of(given, 2, 7, None), want, 0)
        for seg in (None, SEG[:2]):
            at, plain = At.of(7, positions=i, seg=seg, window=3), At.of(7, seg=seg, window=3)
            assert (at.T, at.S, at.consecutive) == (7, 7, False)
            same([at.see, at.spans], [plain.see, plain.spans], 0)

    def test_on_a_device_it_is_the_same_place(self, cupy):
        """What decides a shape is asked on the host; what is computed with lies on the device."""
        for at in (LATE, PACKED, REAL, WINDOW):
            there = at.moved(cupy.asarray)
            same([there.distances, there.index], [cupy.asarray(at.distances), cupy.asarray(at.index)], 0)
            same(there.see, cupy.asarray(at.see), 0)
            if at.seg is not None:
                same(there.runs, cupy.asarray(at.runs), 0)

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: At.of(3, window=0), "window is 0"),
            (lambda: At.of(3, positions=[0.0, np.nan, 1.0]), "finite"),
            (lambda: At.of(3, seg=[[1, 2, 1]]), r"two pieces: \[1, 2, 1\]"),
            (lambda: At.of(3, seg=[1, 1, 1]), r"expected \[B, 3\]"),
            (lambda: At(np.arange(4), np.arange(3), 4).checked(), "do not fit"),
            (lambda: At.of(3, positions=np.zeros((3, 2, 3))).distances, "got 3"),
            (
                lambda: At.of(3, positions=np.zeros((1, 3, 2, 3))),
                r"positions are \[1, 3, 2, 3\]; expected \[T\], \[B,T\] or",
            ),
            (
                lambda: positions_of(["a", "b"], 2, 2),
                r"positions are <U1\[2\]; expected numbers \[2\] or \[2, 2\], one for each token",
            ),
            (
                lambda: positions_of(np.zeros((3, 2)), None, 2, 3),
                r"float64\[3, 2\]; expected numbers \[2\], one for",
            ),
            (
                lambda: positions_of(np.zeros((3, 2)), 4, 2, 2, "axial"),
                r"expected numbers \[2\] or \[4, 2\] or \[2, 4, 2\], .* axial cannot tell 3 axes",
            ),
            (
                lambda: positions_of(np.zeros((3, 4, 1)), 4, 2, 3),
                r"float64\[3, 4, 1\]; expected numbers \[2\] or \[4, 2\] or \[3, 4, 2\], one for",
            ),
            (
                lambda: positions_of(np.zeros((1, 2)), 4, 2, None),
                r"float64\[1, 2\]; expected numbers \[2\] or \[4, 2\] or \[A, 4, 2\]",
            ),
            (
                lambda: positions_of(np.zeros((3, 2)), 3, 2, 3),
                r"\[3, 2\], of 3 sequences or of 3 axes; give \[1, 3, 2\] or \[3, 1, 2\]",
            ),
        ],
    )
    def test_refusals(self, make, words):
        """What cannot be a place is refused in words."""
        with pytest.raises(Misuse, match=words):
            make()


def test_the_three_steps_of_attention_are_the_whole():
    """scores, probabilities and weigh, each public, make attention."""
    s = scores(q, k, None, None, None, None, at=LATE, scale=0.3)
    same(weigh(probabilities(s, at=LATE), v), attention(q, k, v, at=LATE, scale=0.3), 0)
