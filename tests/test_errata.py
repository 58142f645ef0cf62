"""docs/errata.md: every row that says "computed" is computed here, and what the row says comes out. Rows
and checks belong together by their ids.
"""

import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from check import same

import peref
from peref import model
from peref.config import Config
from peref.encodings import get
from peref.encodings.bias.alibi import fixed as slopes
from peref.errors import Misuse

ROOT = Path(__file__).resolve().parent.parent
CELLS = re.findall(
    r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "errata.md").read_text(), re.M
)
ROWS = {name: (said, right, known) for name, said, right, known in CELLS}
SOURCE = re.compile(r"arXiv:\d{4}\.\d{5}|\b(jquesnelle|ofirpress|huggingface)/\w+|\brun\b|extrapolation\.md")
NUMBER = re.compile(r"\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+")
CHECKS = {}


def row(name):
    """Marks the check of a row. It asserts what the row says and returns what must stand in it, numbers as
    they are printed.
    """

    def keep(function):
        assert CHECKS.setdefault(name, function) is function, f"{name} has two checks"
        return function

    return keep


def computed():
    return [name for name, (_, _, known) in ROWS.items() if known.startswith("computed")]


def unaccounted(right, printed):
    """Numbers of a row, with a point or of thousands, that its check does not give. What stands in
    backquotes is a name.
    """
    return set(NUMBER.findall(re.sub(r"`[^`]*`", "", right))) - set(NUMBER.findall(" ".join(printed)))


def test_every_row_is_computed_or_names_its_source():
    """Each id once; a row says "computed" if and only if it has a check here, and every other row says
    where it is from.
    """
    assert (
        len(ROWS)
        == len(CELLS)
        == len(re.findall(r"^\| [A-Z]\d+ ", (ROOT / "docs" / "errata.md").read_text(), re.M))
        > 80
    )
    assert set(computed()) == set(CHECKS)
    for name, (_, _, known) in ROWS.items():
        assert name in CHECKS or SOURCE.search(known), name


@pytest.mark.parametrize("name", ROWS)
def test_row(name):
    """What was computed stands in the row, and no other number does. A row that measures names who did."""
    said, right, known = ROWS[name]
    if name in CHECKS:
        printed = CHECKS[name]()
        for text in printed:
            assert text in f"{said} {right}", f"{name}: {text}"
        assert not unaccounted(right, printed)
    else:
        assert not known.startswith("computed")
        assert "measured" in known or not unaccounted(right, [])


def test_a_row_without_a_check_and_a_number_without_a_source_are_found(monkeypatch):
    """The tests above can fail."""
    monkeypatch.setitem(ROWS, "Z1", ("said", "right", "computed"))
    with pytest.raises(AssertionError):
        test_every_row_is_computed_or_names_its_source()
    with pytest.raises(AssertionError):
        test_row("Z1")
    assert unaccounted("a base of 20,452.23 and 0.5, of `v0.2`", ["0.5"]) == {"20,452.23"}


def test_ids_in_the_text_are_rows():
    """Of the list at the top and of rows that point to others."""
    for name in re.findall(r"\b([MAFLRK]\d+)\b", (ROOT / "docs" / "errata.md").read_text()):
        assert name in ROWS


# ---------------------------------------------------------------- what several checks need


def fits(*shapes):
    """Whether arrays of these shapes can be combined."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def frequencies(D, base):
    return base ** (-2 * np.arange(D // 2) / D)


def turned(x, position, layout="half"):
    """RoPE of one vector."""
    x = np.asarray(x, float).reshape(1, 1, 1, -1)
    return peref.rotate("rope", x, x, positions=[position], layout=layout)[0].ravel()


def extrapolation():
    """This project's table: encoding -> {length: bits per byte}, and the length trained for."""
    text = (ROOT / "docs" / "results" / "extrapolation.md").read_text()
    head, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| (encoding|\w+ \| \d)", line)
    ]
    lengths = [int(cell.replace(",", "")) for cell in head[1:] if cell[0].isdigit()]
    table = {name: dict(zip(lengths, map(float, bits[: len(lengths)]), strict=True)) for name, *bits in lines}
    return table, int(re.search(r"trained at (\d+)", text)[1])


def small(name, **given):
    """A model and its weights, every table and scale away from where it starts."""
    cfg = Config(**{"pe": ((name, {}),), "H": 2, "C": 8, "F": 6, "V": 11, "L": 16, "layers": 2, **given})
    rng = np.random.default_rng(0)
    return cfg, {n: a + 0.3 * rng.standard_normal(a.shape) for n, a in model.init(cfg, 0, np.float64).items()}


def ramp(D, base, L):
    """YaRN's first and last pair of the ramp: those that turn 32 times and once over the training length."""
    pair = lambda rotations: D * math.log(L / (2 * math.pi * rotations)) / (2 * math.log(base))
    return math.floor(pair(32)), math.ceil(pair(1))


def mixed(x, position):
    """Even and odd channels put side by side, under the cosines of the half layout, as in R2."""
    angle = np.tile(position * frequencies(len(x), 10000.0), 2)
    return x * np.cos(angle) + np.concatenate([-x[1::2], x[::2]]) * np.sin(angle)


# ---------------------------------------------------------------- M


@row("M1")
def ntk_at_twice_the_length():
    base = 10000 * 2 ** (64 / 62)
    assert abs(base - 20700) > 200
    return [f"{base:,.2f}"]


@row("M2")
def a_larger_base_leaves_the_first_pair():
    ratio = frequencies(64, 10000 * 2 ** (64 / 62)) / frequencies(64, 10000.0)
    same(ratio[[0, -1]], np.array([1.0, 0.5]), 1e-12)
    return ["1 radian", "32 pairs", f"from 1 to {ratio[-1]:.1f}"]


@row("M3")
def the_first_head_is_the_steepest():
    assert slopes(8) == sorted(slopes(8), reverse=True)
    return [f"first head has {slopes(8)[0]}", f"last {slopes(8)[-1]}"]


@row("M4")
def yarn_leaves_high_frequencies_and_divides_low_ones():
    low, high = ramp(128, 10000, 4096)
    n, s = np.arange(64), 16
    keep = 1 - np.clip((n - low) / (high - low), 0, 1)
    ratio = keep + (1 - keep) / s
    assert (ratio[: low + 1] == 1).all()
    same(ratio[high:], np.full(64 - high, 1 / s), 0)
    assert (np.diff(ratio[low : high + 1]) < 0).all()
    ntk = float(s) ** (-2 * n / 126)
    assert abs(ratio - ntk).max() > 0.1
    return [f"0 to {low}", f"pair {high} on 1/{s}", f"{0.1 * math.log(s) + 1:.4f}"]


@row("M6")
def rotate_half_by_hand():
    x, quarter = np.array([[[[1.0, 2.0, 3.0, 4.0]]]]), np.full((1, 2), math.pi / 2)
    turn = model.PLAIN.turn
    same(turn(x, quarter, None, layout="half")[0, 0, 0], np.array([-3.0, -4.0, 1.0, 2.0]), 1e-15)
    same(turn(x, quarter, None, layout="interleaved")[0, 0, 0], np.array([-2.0, 1.0, -4.0, 3.0]), 1e-15)
    return ["[-x2, x1, -x4, x3]", "[-x3, -x4, x1, x2]"]


@row("M7")
def positions_of_a_batch():
    S, D = 5, 8
    assert not fits((2, 3, S, D), (1, 1, 2, S, D))
    assert np.broadcast_shapes((2, 2, S, D), (1, 1, 2, S, D)) == (1, 2, 2, S, D)
    return ["five axes"]


@row("M8")
def a_buffer_ends():
    assert fits((1, 2, 7, 7), (1, 2, 7, 7))
    assert not fits((1, 2, 9, 9), (1, 2, 8, 8))
    assert not fits((1, 2, 9, 4), (1, 1, 8, 4))
    return ["one token more does not fit"]


@row("M9")
def twelve_heads():
    twelve = slopes(12)
    assert twelve == slopes(8) + slopes(16)[::2][:4]
    assert max(twelve) == twelve[8]
    assert len({round(b / a, 6) for a, b in pairwise(twelve)}) > 1
    return [", ".join(f"{m:.4f}" for m in twelve[8:]), "The ninth head"]


@row("M10")
def t5_goes_further_than_rope():
    table, L = extrapolation()
    lost = {name: bits[2 * L] - bits[L] for name, bits in table.items()}
    assert lost["sinusoidal"] > lost["rope"] > lost["t5"]
    assert lost["alibi"] < 0.05 > lost["t5"]
    return ["T5 holds up better"]


@row("M11")
def a_learned_table_has_no_further_row():
    cfg, p = small("learned")
    model.logits(cfg, p, np.zeros((1, 16), int))
    with pytest.raises(Misuse, match="rows 0 to 15 and ends there"):
        model.logits(cfg, p, np.zeros((1, 32), int))
    return ["no row for position L"]


@row("M13")
def alibi_counts_distance():
    b = peref.bias("alibi", heads=8, tokens=501)
    same(b[:, 500, [500, 499, 0]], -np.array(slopes(8))[:, None] * np.array([0.0, 1.0, 500.0]), 1e-13)
    return ["500 slopes"]


@row("M14")
def symmetric_alibi_cannot_tell_left_from_right():
    cfg, p = small("alibi", causal=False)
    x = np.array([[3, 1, 4, 1, 5, 9, 2]])
    same(model.logits(cfg, p, x[:, ::-1]), model.logits(cfg, p, x)[:, ::-1], 1e-12)
    return ["reversed tokens give reversed outputs"]


# ---------------------------------------------------------------- A


@row("A2")
def a_learned_bias_ends():
    cfg, p = small("learned_bias")
    with pytest.raises(Misuse, match="0 to 15 and ends there"):
        model.logits(cfg, p, np.zeros((1, 17), int))
    return ["of 16 learned distances the last is 15"]


@row("A3")
def the_sign_of_the_exponent():
    wrong, right = 1 / frequencies(8, 10000.0), frequencies(8, 10000.0)
    return [", ".join(f"{round(a)}" for a in wrong), ", ".join(f"{a:.3g}" for a in right)]


@row("A4")
def a_logit_is_the_sum_over_pairs():
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    z = lambda x, n: (x[::2] + 1j * x[1::2]) * np.exp(1j * n * frequencies(8, 10000.0))
    pairs = (z(q, 7) * z(k, 3).conj()).real
    same(np.array(turned(q, 7, "interleaved") @ turned(k, 3, "interleaved")), pairs.sum(), 1e-13)
    assert abs(pairs[0] - pairs.sum()) > 0.1
    return ["sum over all pairs"]


@row("A5")
def what_a_rotation_preserves():
    q = np.array([1.0, 0.0])
    same(np.linalg.norm(turned(q, 3)), np.float64(1.0), 1e-15)
    same(turned(q, 9) @ turned(q, 9), np.float64(1.0), 1e-15)
    return [f"cos 3 = {turned(q, 3) @ turned(q, 0):.4f}"]


@row("A6")
def the_rope_cell_stops():
    x = np.zeros((1, 4, 64))
    first, positions = x.reshape(1, 4, 32, 2)[..., 0], np.arange(len(x))
    cos = np.cos(positions[:, None] * np.ones(64))[..., None]
    assert not fits(first.shape, cos.shape)
    return [f"cosines are {cos.shape}", f"{first.shape}", f"there is {len(positions)} of them instead of 4"]


@row("A7")
def the_yarn_cell_stops():
    assert not fits((4096, 32), (4096, 64, 1))
    return ["(4096, 64, 1) beside (4096, 32)"]


@row("A8")
def the_rule_that_is_not_yarn_jumps_at_the_border(alpha=0.8, beta=1.2, L=2048):
    """Neighbours score alike on both sides of the border and differently across it; under YaRN alike
    everywhere.
    """
    rule = lambda n: (alpha if n <= L else beta) * n
    q, k = (
        np.array([0.3, -1.0, 0.7, 2.0, 1.1, 0.4, -0.6, 0.9]),
        np.array([1.0, 0.2, -0.5, 0.8, 0.1, -1.2, 0.6, 0.3]),
    )
    score = lambda i, j: float(turned(q, i) @ turned(k, j))
    below = [score(rule(n), rule(n - 1)) for n in (5, 1000, L)]
    above = [score(rule(n), rule(n - 1)) for n in (L + 2, L + 100, 4000)]
    across = score(rule(L + 1), rule(L))
    same(np.array(below), np.full(3, score(alpha, 0)), 1e-9)
    same(np.array(above), np.full(3, score(beta, 0)), 1e-9)
    assert min(abs(across - below[0]), abs(across - above[0])) > 0.1
    same(np.float64(across), np.float64(score(rule(L + 1) - rule(L), 0)), 1e-9)

    low, high = ramp(8, 10000.0, L)
    keep = 1 - np.clip((np.arange(4) - max(low, 0)) / (min(high, 7) - max(low, 0)), 0, 1)
    # YaRN for 4 times the length: the same at every position
    w = frequencies(8, 10000.0) * (keep + (1 - keep) / 4)
    at = lambda x, n: model.PLAIN.turn(x.reshape(1, 1, 1, 8), (n * w)[None], None, layout="half").ravel()
    yarn = [at(q, n) @ at(k, n - 1) for n in (5, L, L + 1, L + 2, 4000)]
    same(np.array(yarn), np.full(5, yarn[0]), 1e-9)
    here, there = rule(L), rule(L + 1)
    return [
        f"alpha {alpha}, beta {beta} and {L} tokens",
        f"from {here:.1f} to {there:.1f}",
        f"if {there - here:.0f} tokens",
    ]


@row("A9")
def the_rule_has_no_weights(alpha=0.8, beta=1.2, L=2048):
    factor = np.where(np.arange(4096) <= L, alpha, beta)
    assert set(factor) == {alpha, beta}
    return [f"{factor[L]} at {L} and {factor[L + 1]} at {L + 1}"]


@row("A10")
def a_factor_above_one_turns_faster(beta=1.2):
    first, last = turned([1.0, 0.0], beta * 4095), turned([1.0, 0.0], 4914)
    same(first, last, 1e-9)
    return [f"with {beta} position 4095 gets the angle of {beta * 4095:.0f}", "1 and 32"]


@row("A11")
def no_head_of_alibi_has_slope_one():
    d = np.arange(8)[:, None] - np.arange(8)
    future = -abs(d)[d < 0]
    assert (future < 0).all()
    assert 1.0 not in slopes(8)
    return [f"{slopes(8)[0]} down to {slopes(8)[-1]}", f"all {len(future)} future cells"]


@row("A15")
def backslashes_read_as_escapes():
    read = {
        word: word.encode().decode("unicode_escape")
        for word in (r"\theta", r"\alpha", r"\beta", r"\frac", r"\text")
    }
    assert [ord(s[0]) for s in read.values()] == [9, 7, 8, 12, 9]  # tab, bell, backspace, form feed, tab
    assert [s[1:] for s in read.values()] == ["heta", "lpha", "eta", "rac", "ext"]
    return [f"`{word}`" for word in read]


# ---------------------------------------------------------------- F


@row("F3")
def heads_attend_to_heads(B=2, L=5, H=3, D=4):
    q = np.zeros((B, L, H, D))
    return [f"B, L, H, D of {B}, {L}, {H}, {D} the scores are {(q @ q.swapaxes(-1, -2)).shape}"]


@row("F4")
def a_fixed_map_of_the_encoding():
    e = lambda p: get("sinusoidal").embed({}, np.array([p]), C=8)[0]
    k, w = 3, frequencies(8, 10000.0)
    M = np.zeros((8, 8))
    for n in range(4):
        M[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = [
            [np.cos(k * w[n]), np.sin(k * w[n])],
            [-np.sin(k * w[n]), np.cos(k * w[n])],
        ]
    for p in (0, 1, 50, 1000):
        same(M @ e(p), e(p + k), 1e-11)
    return ["the same for every p"]


@row("F5")
def a_sinusoid_has_no_end():
    table = get("sinusoidal").embed({}, np.array([0.0, 0.5, 1_000_000.0]), C=8)
    same(table[1, :2], np.array([np.sin(0.5), np.cos(0.5)]), 1e-15)
    same((table**2).sum(1), np.full(3, 4.0), 1e-12)
    return [f"{0.5} and {1_000_000:,}"]


@row("F6")
def an_odd_width():
    sines = len(np.arange(0, 7, 2))
    room = len(np.arange(7)[1::2])
    assert not fits((10, sines), (10, room))
    assert get("sinusoidal").embed({}, np.arange(10), C=7).shape == (10, 7)
    return [f"at width 7, {sines} into {room}"]


@row("F7")
def a_table_is_small():
    assert 1000 * 512 < 512 * 2048 / 2
    return [f"{1000 * 512 * 4:,} bytes"]


@row("F9")
def equal_sums_say_less():
    assert sum((1, 2)) == sum((2, 1))
    assert (1, 2) != (2, 1)
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 5, 4))
    order = [4, 0, 1, 2, 3]
    o, moved = (
        peref.attention("none", q, *(a[:, :, i] for a in (k, v)), causal=False) for i in (range(5), order)
    )
    same(moved, o, 1e-14)
    return ["(1, 2) and (2, 1)"]


@row("F10")
def the_matrix_is_the_transpose():
    d = np.arange(4)[None] - np.arange(4)[:, None]
    printed = [[0, -1, -2, -3], [1, 0, -1, -2]]
    assert d.T[:2].tolist() == printed
    return [", ".join(map(str, printed)), ", ".join(map(str, d[:2].tolist()))]


@row("F11")
def axes_of_the_relative_scores(B=2, H=3, L=5, D=4):
    relative = np.zeros((B, L, H, D)) @ np.zeros((L, D, L))
    assert relative.shape == (B, L, H, L)
    assert not fits(relative.shape, (B, H, L, L))
    assert fits((B, L, L, L), (B, L, L, L))
    return ["(B, L, H, L) beside (B, H, L, L)"]


@row("F13")
def a_table_of_vectors_is_small():
    p = get("shaw").init(np.random.default_rng(0), H=1, D=64, max_distance=32)
    return [f"{1000 * 1000 * 512 * 4:,} bytes", f"{p['key'].size * 4:,} bytes"]


@row("F14")
def rows_of_the_table():
    return [
        f"there are {len(get('shaw').init(np.random.default_rng(0), H=1, D=4, max_distance=32)['key'])} rows"
    ]


@row("F15")
def different_distances():
    return [f"only {len(model.At.of(1000, causal=False).distances):,} different distances"]


@row("F16")
def cached_keys_stay():
    for name in ("shaw", "t5", "alibi", "transformer_xl"):
        cfg, p = small(name)
        x = np.array([[3, 1, 4, 1, 5, 9, 2]])
        _, before = model.decode(cfg, p, x[:, :6], model.cache(cfg))
        y, after = model.decode(cfg, p, x[:, 6:], before)
        for old, new in zip(before.layers, after.layers, strict=True):
            same(new["k"].rows[:, :, :6], old["k"].rows, 0)
        same(y[:, 0], model.logits(cfg, p, x)[:, 6], 1e-12)
    return ["Keys are kept as they are"]


@row("F17")
def index_zero_is_the_far_past(k=32):
    assert np.clip(np.array([-1000, -k, 0]), -k, k).tolist() == [-k, -k, 0]
    return [f"(-{k} clipped, plus {k})"]


@row("F18")
def beyond_the_clip_is_the_last_row():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 3, 4))
    settings = {"max_distance": 32, "seed": 1}
    far = [
        peref.attention("shaw", q, k, v, positions=[0, 1000 - d, 1000], **settings)[0, 0, 2]
        for d in (33, 500)
    ]
    same(far[0], far[1], 0)
    nearer = peref.attention("shaw", q, k, v, positions=[0, 1000 - 31, 1000], **settings)[0, 0, 2]
    assert abs(nearer - far[0]).max() > 1e-4
    other = v.copy()
    other[0, 0, 1] += 1
    assert (
        abs(
            peref.attention("shaw", q, k, other, positions=[0, 500, 1000], **settings)[0, 0, 2] - far[1]
        ).max()
        > 0.1
    )
    return ["33 and 500 tokens back use the row of 32"]


@row("F19")
def half_a_table():
    assert not fits((5, 8), (5, 4))
    assert fits((5, 2), (5, 1))
    return ["every D but 2"]


@row("F20")
def no_factor_of_the_distance():
    q, k = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert q @ k == 0
    return ["have product 0", f"sin 1 = {turned(q, 7) @ turned(k, 6):.4f}"]


@row("F21")
def the_root_of_64():
    rng = np.random.default_rng(0)
    spread = (rng.standard_normal((20000, 64)) * rng.standard_normal((20000, 64))).sum(1).std()
    assert abs(spread - 8) < 0.2
    return [f"{math.sqrt(64):.0f} times too large"]


# ---------------------------------------------------------------- L


@row("L2")
def a_causal_model_tells_order():
    """The row of the cat: the same in both sentences without a mask, another with one."""
    x, other = np.array([[0, 1, 2, 3, 0, 4]]), np.array([[0, 4, 2, 3, 0, 1]])
    apart = {}
    for causal in (False, True):
        cfg, p = small("none", causal=causal)
        apart[causal] = abs(model.logits(cfg, p, x)[0, 1] - model.logits(cfg, p, other)[0, 5]).max()
    assert apart[False] < 1e-12
    assert apart[True] > 1e-3
    return ["a different past at each place"]


@row("L3")
def a_score_is_not_symmetric():
    s = np.array([[1, 2], [3, 4]]) @ np.array([[1, 0], [0, 1]]).T
    return [f"they are {s[0, 1]} and {s[1, 0]}"]


@row("L4")
def what_a_distance_is_worth_depends_on_the_query():
    """Of Shaw's key table at one distance, for two queries; a learned bias has one number."""
    key = get("shaw").init(np.random.default_rng(0), H=1, D=4, max_distance=2)["key"]
    q = np.random.default_rng(1).standard_normal((2, 4))
    worth = q @ key[0] / 2
    assert abs(worth[0] - worth[1]) > 1e-3
    assert (
        peref.bias("learned_bias", heads=1, tokens=3)[0, 2, 1]
        == peref.bias("learned_bias", heads=1, tokens=3)[0, 1, 0]
    )
    return ["depends on the query"]


@row("L5")
def distances_never_seen(L=512, N=1024):
    d = np.arange(N)[:, None] - np.arange(N)
    never, all_ = int((d >= L).sum()), int((d >= 0).sum())
    assert abs(never / all_ - 1 / 4) < 0.001
    return [f"with {N} tokens after training at {L} a quarter of all pairs, {never:,} of {all_:,}"]


@row("L6")
def the_lost_factor_of_eight():
    wrong = 2 ** (-np.arange(1, 9) / 8)
    gentle, right = wrong[-1] * 100, slopes(8)[-1] * 100
    return [
        f"{wrong[0]:.3f} to {wrong[-1]:.1f}",
        f"{slopes(8)[0]} to {slopes(8)[-1]:.4f}",
        f"subtracts {gentle:.0f} where it should subtract {right:.2f}",
    ]


@row("L7")
def the_future_has_the_largest_bias():
    b = np.clip(np.arange(5)[None] - np.arange(5)[:, None], None, 0)
    assert (b[np.triu_indices(5, 1)] == 0).all()
    assert (b[np.tril_indices(5, -1)] < 0).all()
    return ["the largest of all biases"]


@row("L10")
def the_first_wavelength():
    (length,) = {2 * math.pi / frequencies(8, base)[0] for base in (10000.0, 500000.0, 1e6)}
    return [f"2 pi = {length:.4f} tokens"]


# ---------------------------------------------------------------- R


@row("R1")
def ntk_at_eight_times_the_length():
    base = 10000 * 8 ** (128 / 126)
    assert base < 641878 / 7
    return [f"{base:,.2f}", f"{10000 * 8**2:,}"]


@row("R2")
def mixed_layouts_are_no_rotation():
    x, k = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 0.0, -2.0])
    places = (1, 5, 17)
    length = [np.linalg.norm(mixed(x, p)) / np.linalg.norm(x) for p in places]
    score = [mixed(x, p + 2) @ mixed(k, p) for p in places]
    for layout in ("half", "interleaved"):
        same(
            np.array([turned(x, p + 2, layout) @ turned(k, p, layout) for p in places]),
            np.full(3, turned(x, 2, layout) @ k),
            1e-13,
        )
        same(
            np.array([np.linalg.norm(turned(x, p, layout)) for p in places]),
            np.full(3, np.linalg.norm(x)),
            1e-13,
        )
    same(mixed(x[:2], 5), turned(x[:2], 5), 1e-15)
    listed = lambda numbers: "{:.3f}, {:.3f} and {:.3f}".format(*numbers)
    return [listed(length), listed(score), "positions 1, 5 and 17"]


@row("R3")
def the_example_lines_up_heads_with_tokens():
    assert not fits((2, 100, 32, 128), (100, 128))
    assert fits((2, 32, 100, 128), (1, 1, 100, 128))
    return ["(2, 100, 32, 128)", "(100, 128)"]


@row("R4")
def channels_or_pairs(D=8):
    i = np.arange(0, D, 2)
    right, wrong = 10000.0 ** (-i / D), 10000.0 ** (-2 * i / D)
    same(right, frequencies(D, 10000.0), 1e-15)
    return [
        ", ".join(f"{a:.3g}" for a in right),
        ", ".join(np.format_float_positional(a, 6, trim="-") for a in wrong),
    ]


@row("R6")
def one_over_n():
    wrong = [2 ** (-8 / n) for n in range(1, 9)]
    assert wrong == sorted(wrong)
    assert wrong[1] / wrong[0] > 2 * wrong[7] / wrong[6]
    return [f"{wrong[0]}, {wrong[1]}, ... up to {wrong[7]}"]


@row("R7")
def zero_on_the_diagonal():
    b = peref.bias("alibi", heads=8, tokens=5)
    assert not b[:, np.arange(5), np.arange(5)].any()
    assert (b[:, *np.tril_indices(5, -1)] < 0).all()
    return ["0 on the diagonal"]


@row("R11")
def the_last_of_twelve():
    assert min(slopes(12)) == slopes(12)[7]
    assert min(slopes(8)) == slopes(8)[-1]
    return [f"the eighth is the most global, {slopes(12)[7]:.4f}", f"the last has {slopes(12)[-1]:.4f}"]


@row("R12")
def not_every_relative_encoding_goes_on():
    table, L = extrapolation()
    assert table["rope"][4 * L] > table["rope"][L] + 0.5
    assert max(abs(table[name][4 * L] - table[name][L]) for name in ("alibi", "t5")) < 0.1
    return ["for RoPE"]


# ---------------------------------------------------------------- K


@row("K1")
def interpolation():
    return [f"2048 of 4096 becomes {2048 * 2048 // 4096}"]


@row("K2")
def slopes_in_code():
    def of(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    for H in range(1, 72):
        whole = 2 ** math.floor(math.log2(H))
        same(np.array(of(whole) + of(2 * whole)[::2][: H - whole]), np.array(slopes(H)), 1e-13)
    return ["from 1 to 71"]


@row("K3")
def a_score_of_the_difference():
    q, k = np.random.default_rng(0).standard_normal((2, 8))
    for layout in ("half", "interleaved"):
        scores = [turned(q, m, layout) @ turned(k, m + 3, layout) for m in (0, 1, 5, 100)]
        same(np.array(scores), np.full(4, q @ turned(k, 3, layout)), 1e-12)
    return ["R(n - m)"]


@row("K4")
def split_and_stacked():
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 8))
    angle = np.arange(5)[:, None] * frequencies(8, 10000.0)
    a, b = x[..., ::2], x[..., 1::2]
    stacked = np.stack([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)
    same(stacked.reshape(x.shape), peref.rotate("rope", x, x, layout="interleaved")[0], 1e-14)
    return ["interleaved"]


@row("K5")
def alibi_attention():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 8, 5, 4))
    s = q @ k.swapaxes(-1, -2) * 4**-0.5
    s = np.where(np.triu(np.ones((5, 5), bool), 1), -np.inf, s)
    s = s - np.array(slopes(8))[:, None, None] * abs(
        np.clip(np.arange(5)[None] - np.arange(5)[:, None], None, 0)
    )
    e = np.exp(s - s.max(-1, keepdims=True))
    same(e / e.sum(-1, keepdims=True) @ v, peref.attention("alibi", q, k, v), 1e-14)
    return ["bias and mask"]


@row("K6")
def sinusoid_tables():
    w = np.exp(np.arange(0, 8, 2) * (-math.log(10000.0) / 8))
    table = np.zeros((20, 8))
    table[:, ::2], table[:, 1::2] = np.sin(np.arange(20)[:, None] * w), np.cos(np.arange(20)[:, None] * w)
    same(table, get("sinusoidal").embed({}, np.arange(20), C=8), 1e-13)
    return ["even width"]


@row("K7")
def the_ntk_function():
    base = 10000.0 * 8.0 ** (128 / (128 - 2))
    same(frequencies(128, base)[-1] / frequencies(128, 10000.0)[-1], np.float64(1 / 8), 1e-12)
    return [f"8 times 4096 is {8 * 4096 // 1024}k"]


@row("K8")
def each_frequency_twice():
    listed = np.array([10000.0 ** (-2 * (i // 2) / 8) for i in range(8)])
    same(listed, np.repeat(frequencies(8, 10000.0), 2), 1e-15)
    return ["each is listed twice"]
