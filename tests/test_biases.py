"""Biases of distance and of place: what the papers and public programs say in numbers, and the slips that
are easily made.
"""

import math
from importlib import import_module

import numpy as np
import pytest
from check import Differs, apart, frozen, gradient, same
from generated import config, every_choice, filling, tokens, weights

import peref
from peref import backends, model
from peref.config import Config
from peref.encodings import bind, files, get
from peref.encodings.bias.alibi import fixed as slopes
from peref.encodings.bias.kerple_log import log_kernel
from peref.errors import Misuse
from peref.ops.activation import inverse_softplus, softplus
from peref.ops.place import At
from peref.tape import Tape

D9 = np.arange(-4, 5)


def bound(name, **given):
    """The encoding with H = 6 heads of width 4, unless said, and options."""
    facts = {"H": 6, "G": 6, "D": 4, "L": 16, "C": 24, "causal": True, "biased": False}
    return bind(get(name), {n: given.pop(n, a) for n, a in facts.items()}, given)


def table(name, d, p=None, **given):
    return bound(name, **given).bias(model.PLAIN, p or {}, d)


# ---------------------------------------------------------------- ALiBi


@pytest.mark.parametrize("max_bias", [8.0, 4.0])
@pytest.mark.parametrize("H", [1, 2, 3, 6, 8, 12, 16, 40, 71])
def test_alibi_slopes_by_the_rules_of_mpt_and_ggml(H, max_bias):
    """MPT takes every second slope of the next power of two first, ggml has two geometric series; with any
    max_bias they are one rule.
    """
    above = 2 ** math.ceil(math.log2(H))
    of_above = [2 ** (-max_bias * h / above) for h in range(1, above + 1)]
    mpt = of_above if above == H else (of_above[1::2] + of_above[::2])[:H]
    below = 2 ** math.floor(math.log2(H))
    m0, m1 = 2 ** (-max_bias / below), 2 ** (-max_bias / 2 / below)
    ggml = [m0 ** (h + 1) if h < below else m1 ** (2 * (h - below) + 1) for h in range(H)]
    same(np.array(slopes(H, max_bias)), np.array(mpt), 1e-15)
    same(np.array(slopes(H, max_bias)), np.array(ggml), 1e-14)


def test_alibi_of_8_heads_is_not_what_tutorials_have():
    """1/2 to 1/256: neither 2^(-h/H), .917 to .5, nor a first head of slope 1."""
    same(np.array(slopes(8)), 2.0 ** -np.arange(1, 9), 0)


def test_alibi_halves_are_the_masks_of_the_issue():
    """The first half of the heads is masked on the right, the rest on the left; each half has all slopes
    of H/2 heads.
    """
    d = np.arange(5)[:, None] - np.arange(5)
    right, left = np.triu(np.full((5, 5), -np.inf), 1), np.tril(np.full((5, 5), -np.inf), -1)
    got = table("alibi", D9, directions="halves", H=4)[:, d + 4]
    want = np.concatenate([-np.array(slopes(2))[:, None, None] * abs(d) + mask for mask in (right, left)])
    same(got, want, 1e-15)


def test_alibi_sides_are_two_triangles():
    """Slopes of the left for the past, of the right for the future, as in the issue: triu(right) +
    tril(left).
    """
    p = {"log_slopes": np.log(np.array([[0.5, 0.25, 0.125], [0.75, 1.5, 3.0]]))}
    d = np.arange(5)[:, None] - np.arange(5)
    past, future = (-np.exp(row)[:, None, None] * abs(d) for row in p["log_slopes"])
    same(table("alibi", D9, p, slopes="sides", H=3)[:, d + 4], np.triu(future) + np.tril(past), 1e-15)


@pytest.mark.parametrize("directions", ["both", "halves"])
@pytest.mark.parametrize("slopes", ["learned", "sides"])
def test_alibi_slopes_that_are_learned_start_at_the_fixed_ones(slopes, directions):
    """So a run may be turned from one to the other."""
    pe = bound("alibi", slopes=slopes, directions=directions)
    got = pe.bias(model.PLAIN, pe.init(np.random.default_rng(0)), D9)
    same(got, table("alibi", D9, directions=directions), 1e-14)


def test_alibi_halves_give_no_nan_anywhere():
    """Two-sided, with padding, documents and a row alone in its half: outputs and gradients are finite, a
    head sees only its side.
    """
    rng = np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((3, 4, 7, 5)) for _ in range(4))
    seg = np.array([[0, 0, 1, 1, 1, 2, 2], [3, 3, 3, 3, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0]])
    settings = {"slopes": "sides", "directions": "halves", "causal": False, "seg": seg}
    params = bound("alibi", H=4, slopes="sides", directions="halves").init(None)
    o, pull = peref.vjp(peref.attention, "alibi", q, k, v, params=params, **settings)
    assert np.isfinite(o).all()
    assert all(np.isfinite(a).all() for g in pull(do) for a in (g.values() if isinstance(g, dict) else [g]))
    same(o[0, :2, 2], v[0, :2, 2], 1e-15)  # the first of its document looks back at itself alone
    same(o[0, 2:, 4], v[0, 2:, 4], 1e-15)  # the last looks ahead at itself alone
    gradient(
        lambda q, a: peref.attention("alibi", q, k, v, params={"log_slopes": a}, **settings),
        [q, params["log_slopes"]],
    )


def test_alibi_learns_nothing_from_what_a_head_does_not_see():
    """Whatever the cotangent says there."""
    op = import_module(files()["alibi"]).slope_bias
    log_m, hidden = np.log([[0.5, 0.25]]), np.stack([D9 < 0, D9 > 0])
    _, saved = op.forward(log_m, 0 * D9, D9, hidden)
    dy = np.arange(1.0, 19).reshape(2, 9)
    want = -np.exp(log_m) * np.where(hidden, 0, dy * abs(D9)).sum(1)
    same(op.backward(saved, dy)[0], want, 1e-15)


def test_alibi_halves_on_the_kernels():
    """A table with -inf in it goes through the numba backend as through the plain one, tiles without a finite
    cell too.

    Four sums over 300 tokens, as test_numba has them of 512.
    """
    be, x = backends.get("numba", threads=1), np.random.default_rng(0).integers(0, 11, (2, 300))
    seg = np.concatenate([np.zeros((2, 17), int), np.ones((2, 150), int), np.full((2, 133), 2)], 1)
    cfg = Config(
        pe=(("alibi", {"directions": "halves", "slopes": "sides"}),),
        L=300,
        C=16,
        H=4,
        F=8,
        V=11,
        layers=1,
        causal=False,
    )
    p = model.init(cfg)

    def gradients(be, dtype):
        tape = Tape()
        leaves = tape.watch({n: a.astype(dtype) for n, a in p.items()})
        y, _ = model.loss(cfg, leaves, x, x, be=be, seg=seg)
        found = tape.gradients(y, dtype(1))
        return {
            n: np.asarray(a, float)
            for n, a in [("loss", y.value), *((n, found[a]) for n, a in leaves.items())]
        }

    same(gradients(be, np.float32), gradients(model.PLAIN, np.float64), 4 * 300**0.5 * 2.0**-24)


# ---------------------------------------------------------------- KERPLE


def test_kerple_log_by_hand():
    """-r1 log(1 + r2 |d|); 0 where the distance is, for every head."""
    got = log_kernel(np.array([1.0, 2.0]), np.array([1.0, 0.5]), np.array([-3, 0, 1, 7]))
    same(
        got,
        -np.array(
            [
                [math.log(4), 0, math.log(2), math.log(8)],
                [2 * math.log(2.5), 0, 2 * math.log(1.5), 2 * math.log(4.5)],
            ]
        ),
        1e-15,
    )


def test_kerple_power_from_the_smallest_to_the_largest_power():
    """|d|^0.01, ALiBi at 1, and the square at 2; the slope in the power is finite at 0, where |d|^p log
    |d| is 0.
    """
    op = import_module(files()["kerple_power"]).power_kernel
    r1, half, d = np.array([1.0, 0.5, 0.25]), np.array([0.005, 0.5, 1.0]), np.array([0, 1, 4])
    got, saved = op.forward(r1, half, d)
    same(got, -np.array([[0, 1, 4**0.01], [0, 0.5, 2], [0, 0.25, 4]]), 1e-15)
    dr1, dhalf, _ = op.backward(saved, np.array([[1.0, 0, 0]] * 3))
    same([dr1, dhalf], [np.zeros(3), np.zeros(3)], 0)
    _, dhalf, _ = op.backward(saved, np.array([[0, 0, 1.0]] * 3))
    same(dhalf, -2 * r1 * 4 ** (2 * half) * math.log(4), 1e-15)


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_kerple_starts_where_the_released_code_does(name):
    """Positive numbers in its ranges, read back from the free ones."""
    p = bound(name, H=2000).init(np.random.default_rng(0))
    r1 = softplus(p["r1"])
    r2 = softplus(p["r2"]) if name == "kerple_log" else 2 / (1 + np.exp(-p["r2"]))
    most = {"kerple_log": (2, 1), "kerple_power": (1, 2)}[name]
    for r, top in zip((r1, r2), most, strict=True):
        assert 0.0099 < r.min() < 0.02 * top
        assert 0.99 * top < r.max() <= top


def test_released_numbers_of_kerple_can_be_given():
    """The softplus of its inverse is the number, small or large."""
    r = np.array([1e-8, 0.01, 1.0, 40.0, 800.0])
    same(softplus(inverse_softplus(r)) / r, np.ones(5), 1e-14)


def test_kerple_log_with_an_exponent():
    """3-para-log: with 1 it is the logarithmic kernel, with another that of a power; NeMo's numbers, r2 =
    0, are no bias.
    """
    p = bound("kerple_log").init(np.random.default_rng(0))
    d = np.array([-3, 0, 1, 7, 100])
    same(
        table("kerple_log", d, p | {"r3": np.zeros(6)}, exponent="learned"), table("kerple_log", d, p), 1e-14
    )
    r3 = np.linspace(-2, 2, 6)
    got, r1, r2, r = (
        table("kerple_log", d, p | {"r3": r3}, exponent="learned"),
        softplus(p["r1"]),
        softplus(p["r2"]),
        2 / (1 + np.exp(-r3)),
    )
    same(
        got,
        np.array(
            [[-a * math.log(1 + b * abs(x) ** c) for x in d] for a, b, c in zip(r1, r2, r, strict=True)]
        ),
        1e-14,
    )
    assert not table("kerple_log", d, p | {"r2": np.full(6, -np.inf), "r3": r3}, exponent="learned").any()


# ---------------------------------------------------------------- learned bias


def test_learned_bias_clipped():
    """Far distances share the last entry of their side; one as long as the text is the one without; the
    future of a causal model is distance 0.
    """
    p = {"table": np.arange(42.0).reshape(6, 7)}
    same(
        table("learned_bias", D9, p, causal=False, max_distance=3)[1],
        np.array([7.0, 7, 8, 9, 10, 11, 12, 13, 13]),
        0,
    )
    same(
        table("learned_bias", D9, {"table": p["table"][:, :3]}, max_distance=2)[1],
        np.array([7.0, 7, 7, 7, 7, 8, 9, 9, 9]),
        0,
    )
    whole = {"table": np.random.default_rng(0).standard_normal((6, 31))}
    d = np.arange(-15, 16)
    same(
        table("learned_bias", d, whole, causal=False, max_distance=15),
        table("learned_bias", d, whole, causal=False),
        0,
    )


def test_t5_divided():
    """The scale of other public models; x-transformers' bias is sqrt(D) times its table."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 9, 4)) for _ in range(3))
    p = {"table": rng.standard_normal((32, 2))}
    same(
        peref.attention("t5", q, k, v, params=p, divided="qk"),
        peref.attention("t5", q / 2, k, v, params=p),
        1e-14,
    )


def test_alibi_of_other_codes_by_learned_slopes():
    """Falcon divides the bias by the root of D with q k; x-transformers leaves heads without one."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 4, 7, 16)) for _ in range(3))
    m, at = np.array(slopes(4)), At.of(7)
    falcon = peref.attention(
        "alibi", q, k, v, slopes="learned", params={"log_slopes": np.log([m * 16**-0.5])}
    )
    inside = model.PLAIN.attention(q, k, v, -m[:, None] * at.distances / 4, at=at, scale=1 / 4)
    same(falcon, inside, 1e-14)
    with np.errstate(divide="ignore"):
        bare = np.log([m * [1, 1, 0, 0]])
    o, pull = peref.vjp(peref.attention, "alibi", q, k, v, slopes="learned", params={"log_slopes": bare})
    same(o[:, 2:], peref.attention("none", q[:, 2:], k[:, 2:], v[:, 2:]), 1e-15)
    same(o[:, :2], peref.attention("alibi", q, k, v)[:, :2], 1e-15)
    assert (pull(v)[3]["log_slopes"][0, 2:] == 0).all()


@pytest.mark.parametrize("name", filling("bias"))
def test_far_distances_in_float32(name):
    """At distances up to 1,048,575 a float32 table is the float64 one, rounded once; but for a network,
    which is float32 throughout.
    """
    d = np.array([1, 1000, 131071, 1048574, 1048575])
    for given in every_choice(name):
        pe = bound(name, L=2**20, **given)
        p = frozen(pe.init(np.random.default_rng(0)), np.float32)
        narrow, wide = pe.bias(model.PLAIN, p, d), pe.bias(model.PLAIN, frozen(p, np.float64), d)
        assert narrow.dtype == (np.float32 if p else np.float64)
        if name in ("dynamic_bias", "log_cpb"):
            same(narrow, wide.astype(np.float32), 1e-5)
        else:
            seen = np.isfinite(wide)
            same(np.isfinite(narrow), seen, 0)
            same(narrow[seen] / wide[seen], np.ones(seen.sum()), 2.0**-23)


# ---------------------------------------------------------------- Sandwich


def test_sandwich_is_the_program_of_appendix_e():
    """Inner products of 128-wide sinusoidal embeddings over compression ratios 8/H .. 8: the first head
    has the strongest bias.
    """
    m, w = np.arange(50)[:, None], 10000.0 ** (-2 * np.arange(64) / 128)
    embeddings = np.concatenate([np.sin(m * w), np.cos(m * w)], -1)
    ratio = np.arange(1, 7) * 8 / 6
    want = (embeddings @ embeddings.T) / ratio[:, None, None]
    got = table("sandwich", np.arange(50))
    same(got, want[:, :, 0], 1e-13)
    same(got[:, 0], 64 / ratio, 1e-15)
    assert (got[0] - got[0, 0]).min() < (got[5] - got[5, 0]).min() < 0


def test_sandwich_s_constant_cancels_in_the_softmax():
    """Subtracting width/2 changes no output; that NeMo leaves out the shortest wave and has one longer
    does.
    """
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 9, 4)) for _ in range(3))
    paper = peref.attention("sandwich", q, k, v)
    shifted = bound("sandwich", H=2).bias(model.PLAIN, {}, np.arange(9)) - np.array([[16.0], [8.0]])
    same(model.PLAIN.attention(q, k, v, shifted, at=At.of(9), scale=0.5), paper, 1e-13)
    with pytest.raises(Differs):
        same(peref.attention("sandwich", q, k, v, form="nemo"), paper, 1e-3)
    same(table("sandwich", np.zeros(1, int), form="nemo"), np.zeros((6, 1)), 0)


# ---------------------------------------------------------------- dynamic bias


def test_dynamic_bias_has_the_parameters_of_its_model():
    """1 -> 32 -> 32 -> H, the shapes of x-transformers' network at width 128, less the last numbers added."""
    p = bound("dynamic_bias").init(np.random.default_rng(0))
    shapes = {
        "1.weight": (32, 1),
        "1.bias": (32,),
        "2.weight": (32, 32),
        "2.bias": (32,),
        "3.weight": (6, 32),
    }
    assert {n: a.shape for n, a in p.items()} == shapes


def test_dynamic_bias_tells_past_from_future():
    """The sign of the distance goes in, also of its logarithm."""
    p = bound("dynamic_bias").init(np.random.default_rng(0))
    for distance in ("linear", "log"):
        b = table("dynamic_bias", D9, p, distance=distance)
        assert abs(b - b[:, ::-1]).max() > 0.1


# ---------------------------------------------------------------- DAPE


def test_dape_with_a_silent_network_is_the_bias_beside_it():
    """W_2 zero leaves ALiBi, or KERPLE; else it does something."""
    for other in ("alibi", "kerple_log"):
        cfg, alone = config(f"{other}+dape", layers=1), config(other, layers=1)
        p, x = weights(cfg), tokens(2, 9)
        silent = p | {"0.pe.dape.2.weight": 0 * p["0.pe.dape.2.weight"]}
        mine = {n.replace(f"{other}.", ""): a for n, a in p.items() if ".dape." not in n}
        want = model.logits(alone, mine, x)
        same(model.logits(cfg, silent, x), want, 1e-13)
        assert abs(model.logits(cfg, p, x) - want).max() > 0.01


def test_dape_without_another_sees_the_logits_alone():
    """W_1 has a column for each head, beside a bias two; what turns is turned before it is looked at."""
    width = lambda name: weights(config(name))["0.pe.dape.1.weight" if "+" in name else "0.pe.1.weight"].shape
    assert (width("dape"), width("alibi+dape"), width("rope+dape")) == ((32, 6), (32, 12), (32, 6))
    cfg, x = config("rope+dape", layers=1), tokens(2, 9)
    p = weights(cfg)
    assert apart(model.logits(cfg, p, x, positions=3 * np.arange(9)), model.logits(cfg, p, x), 1e-3)


def test_a_run_that_has_its_old_option_is_told_what_to_do():
    """In words, by its own file."""
    with pytest.raises(
        Misuse, match="no option 'over' any more; name the other encoding beside it, as in --pe"
    ):
        Config.from_json({"pe": [["dape", {"over": "alibi", "width": 32}]]})


def test_dape_s_network_never_sees_the_mask():
    """It sees every pair's own numbers: a term is finite where nothing is seen, and what is there changes
    no row that does not look.
    """
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((2, 6, 9, 4)) for _ in range(2))
    pe = bound("dape")
    p, at = pe.init(rng), At.of(9, seg=np.array([[0, 0, 1, 1, 1, 1, 2, 2, 2], [0] * 9]))
    term = pe.score(model.PLAIN, p, q, k, {}, at)[0]
    assert np.isfinite(term).all()
    later = k.copy()
    later[:, :, 5:] += 100
    other = pe.score(model.PLAIN, p, q, later, {}, at)[0]
    same(other[..., :5], term[..., :5], 0)


# ---------------------------------------------------------------- FIRE


def fire(i, p, T=None, **given):
    """b(i, j) of the last T queries (all unless said) at positions i, [1,H,T,S]."""
    at = At(i[len(i) - (T or len(i)) :], i, len(i))
    return bound("fire", **given).score(model.PLAIN, p, None, None, {}, at)[0]


@pytest.fixture
def learned(rng):
    p = bound("fire").init(rng)
    return p | {"c": np.array([0.3]), "m": np.array([1.1])}


def test_fire_by_hand_on_both_sides_of_the_threshold(learned):
    """Threshold 4 times 1.1: queries 0 to 4 share one normaliser, 5 to 8 have their own; max, not min; a
    quotient; eps outside the logarithm.
    """
    got = fire(np.arange(9), learned, threshold=4.0)
    for i in range(9):
        for j in range(i + 1):
            u = math.log(0.3 * (i - j) + 1) / (math.log(0.3 * max(4.4, i) + 1) + 1e-6)
            y = np.maximum(learned["1.weight"][:, 0] * u + learned["1.bias"], 0)
            same(got[0, :, i, j], learned["2.weight"] @ y, 1e-13)


def test_fire_goes_by_the_position_of_the_query(learned):
    """Past the threshold a shift changes it, before it none does; decoding from position 5 on is the rows
    of the whole.
    """
    same(fire(5 + np.arange(9), learned), fire(np.arange(9), learned), 1e-13)
    assert (
        abs(fire(5 + np.arange(9), learned, threshold=4.0) - fire(np.arange(9), learned, threshold=4.0)).max()
        > 1e-3
    )
    same(
        fire(np.arange(9), learned, T=4, threshold=4.0),
        fire(np.arange(9), learned, threshold=4.0)[:, :, 5:],
        1e-14,
    )


def test_fire_s_threshold_is_learned(learned):
    """The gradient of every parameter, m and c among them, with queries on both sides; and two more ways
    to write one threshold.
    """
    order = [*learned]
    for i in (np.arange(9), 5 + np.arange(9), np.array([0.0, 0.5, 7.25, 3.0, 12.5])):
        gradient(
            lambda *a, i=i: fire(i, dict(zip(order, a, strict=True)), threshold=4.0), [*learned.values()]
        )
    far = fire(5 + np.arange(9), learned, threshold=4.0)
    same(fire(5 + np.arange(9), learned | {"m": np.array([-1.1])}, threshold=4.0), far, 0)
    same(fire(5 + np.arange(9), learned | {"m": np.array([0.55])}, threshold=8.0), far, 1e-14)


def test_fire_a_few_queries_at_a_time(learned, monkeypatch):
    """The same, and the same gradients, from blocks of two queries."""
    whole = fire(np.arange(9), learned, threshold=4.0)
    monkeypatch.setattr(import_module("peref.encodings.score.fire"), "AT_ONCE", 20)
    same(fire(np.arange(9), learned, threshold=4.0), whole, 1e-14)
    names, given = [*learned], [*learned.values()]
    gradient(lambda *a: fire(np.arange(9), dict(zip(names, a, strict=True)), threshold=4.0), given)


def test_fire_refuses_positions_of_several_axes(learned):
    """A distance needs one number for a token."""
    at = At.of(4, positions=np.zeros((3, 2, 4), int))
    with pytest.raises(Misuse, match="one position for each token"):
        bound("fire").score(model.PLAIN, learned, None, None, {}, at)
