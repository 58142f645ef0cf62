"""Every op of the package: its derivative against finite differences, its contract, and its values against loops over plain numbers."""

import numpy as np
import pytest
from check import gradient, op_contract, same
from loops import attention as attention_loop
from loops import loss as loss_loop
from loops import norm as norm_loop
from loops import rope as rope_loop
from registry import ops

from peref.errors import Misuse
from peref.ops.attention import attention, probabilities, scores, weigh
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.place import At, positions_in
from peref.ops.scan import retention, short_conv
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
WINDOW = At.of(7, window=3)
DECAY = np.log1p(-(2.0 ** -np.arange(2.0, 5.0)))
q, k, v = qkv()

CASES = {
    "ops.activation.gelu": [([3 * random(3, 5)], {})],
    "ops.activation.log_sigmoid": [([3 * random(3, 5)], {})],
    "ops.activation.sigmoid": [([3 * random(3, 5)], {})],
    "ops.activation.silu": [([3 * random(3, 5)], {})],
    "ops.activation.swiglu": [([3 * random(3, 5), random(3, 5, seed=1)], {})],
    "ops.attention.scores": [
        ([q, k, None, None, None, None], {"at": LATE, "scale": 0.3}),
        ([q, k, table(6, LATE), random(2, 6, 5, 7), random(2, 6, 5, 1), random(2, 6, 1, 7)], {"at": LATE, "scale": 0.3}),
        ([q, k, table(6, BOTH), random(1, 6, 5, 7), random(2, 1, 1, 1), None], {"at": BOTH, "scale": 1.0}),
        ([random(3, 6, 7, 4), random(3, 3, 7, 4), table(6, PACKED), None, None, random(1, 1, 1, 7)], {"at": PACKED, "scale": 0.5}),
        ([random(2, 7, 7, 4), random(2, 7, 7, 4), table(7, REAL), None, None, None], {"at": REAL, "scale": 0.5}),
        ([random(2, 4, 7, 4), random(2, 4, 7, 4), table(4, WINDOW), None, None, None], {"at": WINDOW, "scale": 0.5}),
    ],
    "ops.attention.probabilities": [([random(3, 2, 7, 7)], {"at": at}) for at in (WHOLE, PACKED, WINDOW)] + [([random(2, 3, 5, 7)], {"at": BOTH})],
    "ops.attention.weigh": [([positive(2, 6, 5, 7), v], {})],
    "ops.distance.gather": [
        ([random(2, 3, 5, 4), np.arange(35).reshape(5, 7) % 4], {"scale": 0.3}),
        ([random(2, 3, 5, 4), np.arange(70).reshape(2, 5, 7) % 4], {"scale": 0.3}),
    ],
    "ops.distance.scatter": [
        ([random(2, 3, 5, 7), np.arange(35).reshape(5, 7) % 4], {"rows": 4}),
        ([random(2, 3, 5, 7), np.arange(70).reshape(2, 5, 7) % 4], {"rows": 5}),
    ],
    "ops.embedding.take": [([random(7, 3), np.array([[1, 6, 1], [0, 1, 3]])], {})],
    "ops.linear.linear": [([random(2, 5, 3), random(4, 3), random(4)], {}), ([random(5, 3), random(4, 3), None], {})],
    "ops.linear.matmul": [([random(2, 1, 5, 3), random(4, 3, 6)], {}), ([random(5, 3), random(3, 6)], {})],
    "ops.loss.cross_entropy": [([random(2, 5, 7), np.array([[0, 6, -1, 2, 2], [3, -1, -1, 1, 5]])], {})],
    "ops.norm.layer_norm": [([random(2, 5, 7), random(7), random(7, seed=1)], {"eps": 1e-5}), ([random(5, 7), None, None], {"eps": 1e-5})],
    "ops.norm.rms_norm": [([random(2, 5, 7), random(7)], {"eps": 1e-5}), ([random(5, 7), None], {"eps": 1e-5})],
    "ops.norm.unit": [([random(2, 5, 7)], {"eps": 1e-6})],
    "ops.scan.retention": [
        ([random(2, 3, 5, 4), random(2, 3, 5, 4, seed=1), random(2, 3, 5, 6), state, runs], {"log_decay": DECAY, "chunk": chunk, "scale": 0.5})
        for state in (None, random(2, 3, 4, 6))
        for runs in (None, RUNS)
        for chunk in (1, 2, 9)
    ],
    "ops.scan.short_conv": [([random(2, 5, 3), random(3, 4), state, runs], {}) for state in (None, random(2, 3, 3)) for runs in (None, RUNS)],
    "ops.shape.add": [([random(2, 5, 3), random(2, 5, 3, seed=1)], {}), ([random(2, 5, 3), random(5, 1)], {})],
    "ops.shape.add_position": [([random(2, 5, 3), random(5, 3)], {}), ([random(2, 5, 3), random(2, 5, 3, seed=1)], {})],
    "ops.shape.join": [([random(2, 5, 3), random(2, 4, 3)], {"axis": 1}), ([random(2, 5), random(2, 3)], {"axis": -1})],
    "ops.shape.merge_heads": [([random(2, 3, 5, 4)], {})],
    "ops.shape.split_heads": [([random(2, 5, 12)], {"heads": 3})],
    "ops.shape.swap": [([random(2, 5, 3)], {"axes": (0, 2)})],
    "ops.turn.turn": [
        ([random(2, 3, 5, 10), random(5, 3), None], {"layout": "half"}),
        ([random(2, 3, 5, 10), random(5, 4), positive(5, 4)], {"layout": "interleaved"}),
        ([random(2, 3, 5, 6), random(2, 5, 3), positive(2, 5, 3)], {"layout": "half"}),
        ([random(2, 3, 5, 6), random(2, 5, 3), positive(1, 1)], {"layout": "interleaved"}),
    ],
    "encodings.attend.path.scores": [
        ([random(2, 4, 5, 3), random(2, 2, 7, 3), 0.5 * random(2, 2, 7, 3, seed=1), positive(2, 2, 7)], {"scale": 0.5, "block": block})
        for block in (1, 3, 64)
    ],
    "encodings.attend.path.twice": [([random(2, 5)], {})],
    "encodings.score.forgetting.row": [([random(2, 3, 7)], {"T": 4})],
    "encodings.score.forgetting.column": [([random(2, 3, 7)], {})],
}
WIDE = {"ops.turn.turn": (1, 2), "ops.shape.add_position": (1,)}  # arrays that stay float64
SPANS = [(name, k) for name in CASES for k in range(len(CASES[name]))]


def test_every_op_has_a_case_here():
    """An op cannot be added without being checked. One that is an encoding's own need not be here: test_encodings sees it at work."""
    assert set(CASES) <= set(OPS)
    assert {name for name in OPS if name.startswith("ops.")} <= set(CASES)


@pytest.mark.parametrize(("name", "case"), SPANS)
def test_gradient(name, case):
    """The backward of every op is its derivative, to 1e-7 in float64."""
    gradient(OPS[name], *CASES[name][case])


@pytest.mark.parametrize(("name", "case"), [s for s in SPANS if not s[0].startswith("encodings.score.forgetting")])
def test_contract(name, case):
    """Nothing is written, dtype and library are kept, calls repeat."""
    op_contract(OPS[name], *CASES[name][case], wide=WIDE.get(name, ()))


def listed(x):
    return None if x is None else x.tolist()


@pytest.mark.parametrize("at", [WHOLE, WINDOW, PACKED, At.of(7, causal=False), At.of(7, causal=False, window=2), LATE])
def test_attention_is_the_loop(at):
    """Softmax attention over what is seen, GQA, bias and term equal the loop; a row that sees nothing is 0."""
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


def test_row_and_column_add_up_wide():
    """Row and column meet in their own dtype: sums near 1e6 that cancel leave a float32 result right to float32."""
    q, k, v = (a.astype(np.float32) for a in qkv(T=7))
    c = -1e6 + random(2, 6, 7).cumsum(-1)
    got = attention(q, k, v, None, None, c[..., None], -c[:, :, None], at=WHOLE, scale=0.5)
    want = attention(*(a.astype(np.float64) for a in (q, k, v)), None, c[..., None] - c[:, :, None], at=WHOLE, scale=0.5)
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
    same(layer_norm(x, w, b, eps=1e-5), np.array([norm_loop.layer(r, w.tolist(), b.tolist(), 1e-5) for r in x.tolist()]), 1e-14)


def test_cross_entropy_is_the_loop():
    """The mean over the targets that are asked for."""
    x, t = random(6, 5), np.array([0, 4, -1, 2, 2, -1])
    same(cross_entropy(x, t)[0], np.float64(loss_loop.cross_entropy(x[t >= 0].tolist(), t[t >= 0].tolist())), 1e-14)


def test_cross_entropy_with_nothing_asked_is_zero():
    """No target, no loss, no gradient, no NaN."""
    y, saved, nll = cross_entropy.forward(random(2, 5), np.array([-1, -1]))
    same([y, nll, cross_entropy.backward(saved, np.float64(1.0))[0]], [np.float64(0), np.zeros(2), np.zeros((2, 5))], 0)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_turn_is_the_loop(layout):
    """Pairs turn as in the loop; channels beyond R pass, also beside a gain."""
    x, angle = random(2, 3, 5, 10), 9 * random(5, 3)
    want = [[[rope_loop.turned(x[b, h, t].tolist(), angle[t].tolist(), layout) for t in range(5)] for h in range(3)] for b in range(2)]
    same(turn(x, angle, None, layout=layout), np.array(want), 1e-14)
    with_gain = turn(x, angle, np.full((5, 3), 2.0), layout=layout)
    same(with_gain[..., :6], 2 * turn(x, angle, None, layout=layout)[..., :6], 1e-15)
    same(with_gain[..., 6:], x[..., 6:], 0)


def test_the_two_layouts_are_one_rotation_of_permuted_channels():
    """half(x[P]) = interleaved(x)[P] with P = 0, 2, ..., 1, 3, ..."""
    x, angle, P = random(2, 3, 5, 8), random(5, 4), [0, 2, 4, 6, 1, 3, 5, 7]
    same(turn(x[..., P], angle, None, layout="half"), turn(x, angle, None, layout="interleaved")[..., P], 1e-15)


def test_retention_forms_agree():
    """Recurrent (chunk 1), chunked with a ragged end, and parallel (one chunk) are one function, with and without breaks and state."""
    arrays = random(2, 3, 5, 4), random(2, 3, 5, 4, seed=1), random(2, 3, 5, 6)
    for state in (None, random(2, 3, 4, 6)):
        for runs in (None, RUNS):
            forms = [retention(*arrays, state, runs, log_decay=DECAY, chunk=chunk, scale=0.5) for chunk in (1, 2, 3, 5, 64)]
            for form in forms[1:]:
                same(form, forms[0], 1e-14)


def test_short_conv_is_the_sum():
    """Tap K-1 takes the token itself, tap 0 the oldest; nothing comes over the start of a run, nor into padding."""
    x, w = random(1, 6, 2), random(2, 3)
    runs = np.array([[-1, 1, 1, 1, 2, 2]])
    got, _ = short_conv(x, w, None, runs)
    want = np.zeros((1, 6, 2))
    for t, taps in ((1, 1), (2, 2), (3, 3), (4, 1), (5, 2)):
        for back in range(taps):
            want[0, t] += x[0, t - back] * w[:, 2 - back]
    same(got, want, 1e-15)


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
        same(At.of(7, causal=False, window=2).see[3], np.array([False, False, True, True, True, False, False]), 0)

    @pytest.mark.parametrize("at", [WHOLE, LATE, BOTH, PACKED, WINDOW, At.of(7, causal=False, window=2), At.of(7, seg=SEG, causal=False)])
    def test_spans_are_what_is_seen(self, at):
        """First slot and one beyond the last, for what has no holes."""
        first, stop = at.spans[..., :1], at.spans[..., 1:]
        slot = np.arange(at.S)
        same(
            np.broadcast_to((first <= slot) & (slot < stop), (3, at.T, at.S)),
            np.broadcast_to(at.see if at.seg is None else at.see[:, 0], (3, at.T, at.S)),
            0,
        )

    def test_a_long_consecutive_sequence_costs_no_square(self):
        """Distances and spans of a million tokens are lines."""
        at = At.of(1_000_000)
        assert at.distances.shape == (1_000_000,)
        assert at.spans.shape == (1, 1_000_000, 2)

    @pytest.mark.parametrize("at", [WHOLE, LATE, BOTH, PACKED, REAL, WINDOW, At.of(7, causal=False, window=2), At.of(7, seg=SEG, causal=False)])
    def test_distances_are_those_of_the_cells_that_are_seen(self, at):
        """d[index] is i - j wherever a query sees a key."""
        d, index = at.distances, at.index
        apart = np.broadcast_to(at.i[..., :, None] - at.j[..., None, :], (3, at.T, at.S))
        see = np.broadcast_to(at.see if at.seg is None else at.see[:, 0], apart.shape)
        same(np.broadcast_to(d[index], apart.shape)[see], apart[see], 0)
        assert (np.diff(d) > 0).all()

    def test_distances_with_nothing_seen_are_still_a_table(self):
        """Padding alone asks for distance 0."""
        same(At.of(2, seg=np.zeros((1, 2), int)).distances, np.zeros(1, int), 0)

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
