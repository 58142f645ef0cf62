"""Pyramid's own promises, beside those that test_encodings has for every encoding."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from check import gradient, same
from generated import (
    EXACT,
    LONG,
    chunked,
    config,
    layer_input,
    lists,
    logits,
    loop,
    place_of,
    tokens,
    weights,
)
from loops import pyramid

from peref import model
from peref.encodings.attend.pyramid import tree
from peref.errors import Misuse
from peref.ops.attention import attention, probabilities, scores, weigh
from peref.tape import Tape


def parts(T, w, seed=0, B=2, **given):
    """A bound encoding, its parameters, q, k, v, gates."""
    cfg = config("pyramid", pe=(("pyramid", {"local": w, **given}),))
    p, (x, q, k, v) = model.of_encoding(cfg, weights(cfg, seed), 0), layer_input(cfg, T, B)
    return cfg.encoding(0), p, q, k, v, cfg.encoding(0).features(model.PLAIN, p, x, model.At.of(T), {})[0]


@pytest.mark.parametrize("w", [1, 2, 3, 8, 36, 37, 10**15])
def test_it_is_the_loop_for_every_window(w):
    """One key, more keys than tokens, and what lies between."""
    for position in ("none", "level", "centre"):
        cfg = config("pyramid", pe=(("pyramid", {"local": w, "position": position}),))
        p, (x, q, k, v) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, LONG)
        f, i = (
            cfg.encoding(0).features(model.PLAIN, p, x, model.At.of(LONG), {})[0],
            np.random.default_rng(w).permutation(LONG),
        )
        want = loop(cfg)(lists(p), *(lists(a[1]) for a in (q, k, v, x)), lists(i))
        same(cfg.encoding(0).attend(model.PLAIN, p, q, k, v, f, place_of(cfg, i))[1], np.array(want), 1e-12)


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize(
    "given",
    [{"local": w} for w in (1, 3, 8)] + [{"position": position} for position in ("level", "centre")],
    ids=str,
)
def test_gradients_and_decoding_of_every_option(given, first):
    """As for the defaults; also packed, and with real positions."""
    cfg, x = config("pyramid", pe=(("pyramid", given),)), tokens(2, 9)
    p = weights(cfg)
    memory = model.decode(cfg, p, x[:, :first], model.cache(cfg, 16))[1] if first else model.cache(cfg, 16)
    gradient(
        lambda *a: model.decode(cfg, dict(zip(p, a, strict=True)), x[:, first:], memory)[0], list(p.values())
    )
    for seg in (None, np.array([[0, 0, 1, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 2, 7]])):
        for i in (None, np.arange(9) / 4 - 1):
            same(chunked(cfg, p, x, (1, 4, 5), i, seg), logits(cfg, p, x, positions=i, seg=seg), EXACT)
    same(logits(cfg, p, x, positions=5 + np.arange(9)), logits(cfg, p, x), EXACT)


@pytest.mark.parametrize("w", [1, 3, 4])
def test_on_constant_blocks_it_is_full_attention(w):
    """Keys and values that are equal within each block that is read: with the share of the softmax that
    the window has as its gate, the mixture is softmax attention over all tokens. Every row whose first
    i-w+1 tokens are cut into such blocks.
    """
    T, size = 29, 4
    encoding, p, q, k, v, _ = parts(T, w)
    k, v = (np.repeat(a[:, :, ::size], size, 2)[:, :, :T] for a in (k, v))
    at = model.At.of(T)
    s = scores(q, k, None, None, None, None, at=at, scale=4**-0.5)
    weight = probabilities(s, at=at)
    near = np.arange(T)[:, None] - np.arange(T) < w
    got = encoding.attend(model.PLAIN, p, q, k, v, {"gate": (weight * near).sum(-1)}, at)
    want = weigh(weight, v)
    rows = [i for i in range(T) if all(n <= size for _, n in pyramid.cut(i - w + 1))]
    assert len(rows) > 6
    same(got[:, :, rows], want[:, :, rows], 1e-13)
    k, v = (np.broadcast_to(a[:, :, :1], a.shape) for a in (k, v))
    same(
        encoding.attend(model.PLAIN, p, q, k, v, {"gate": (weight * near).sum(-1)}, at),
        np.broadcast_to(v[:, [0, 0, 1, 1, 2, 2]], q.shape),
        1e-13,
    )


def test_rows_before_the_window_are_plain_attention():
    """Until there is a token outside the window nothing else is read, and the gate has no say."""
    encoding, p, q, k, v, f = parts(7, 5)
    at = model.At.of(7)
    got, want = encoding.attend(model.PLAIN, p, q, k, v, f, at), attention(q, k, v, at=at, scale=4**-0.5)
    same(got[:, :, :5], want[:, :, :5], 1e-14)
    assert abs(got[:, :, 5:] - want[:, :, 5:]).max() > 1e-3


@pytest.mark.parametrize("w", [1, 5])
def test_a_binary_counter_remembers_enough(w):
    """Token by token with w keys and no more blocks than the number of tokens has digits."""
    encoding, p, q, k, v, f = parts(100, w, B=1)
    got = encoding.attend(model.PLAIN, p, q, k, v, f, model.At.of(100))
    want, most = pyramid.steps(*(lists(a) for a in (q[0, 4], k[0, 2], v[0, 2], f["gate"][0, 4])), w)
    same(got[0, 4], np.array(want), 1e-13)
    assert most == max(n.bit_count() for n in range(101 - w)) <= (100 - w).bit_length()


@pytest.mark.parametrize("w", [1, 16, 64])
def test_the_work_grows_with_n_times_window_plus_log_n(w):
    """Logits of the window branch and of the summaries and means, counted; per token no more than 2 w (64
    where w is small) + log2 N + 2.
    """
    for N in (1000, 8000, 64000):
        cells = []

        def counting(q, k, v, *rest, at, scale, cells=cells):
            cells.append(len(q) * q.shape[2] * k.shape[2])
            return q

        q = np.zeros((1, 1, N, 1))
        encoding = config("pyramid", pe=(("pyramid", {"local": w}),)).encoding(0)
        encoding.attend(
            replace(model.PLAIN, attention=counting), {}, q, q, q, {"gate": q[..., 0]}, model.At.of(N)
        )
        pairs, reads = tree(model.At.of(N), w=w, B=1)
        work = sum(cells) + sum(len(t) for t, _ in reads) + sum(map(len, pairs))
        assert w * N < work <= N * (2 * max(w, 32) + np.log2(N) + 2) + 2 * max(w, 32) ** 2


def test_nothing_of_size_n_squared_is_made():
    """Forward and backward of 16,384 tokens in a tenth of the memory that one float32 array of their
    square would take.
    """
    N = 16384
    q = np.ones((1, 1, N, 2), np.float32)
    encoding, tape = config("pyramid", pe=(("pyramid", {"local": 16}),)).encoding(0), Tape()
    tracemalloc.start()
    try:
        y = encoding.attend(model.PLAIN, {}, *map(tape.watch, (q, q, q)), {"gate": q[..., 0]}, model.At.of(N))
        tape.gradients(y, q)
        assert tracemalloc.get_traced_memory()[1] < 4 * N * N / 10
    finally:
        tracemalloc.stop()


def test_centre_turns_whole_pairs():
    """An odd head width is refused."""
    with pytest.raises(Misuse, match="pyramid: position=centre turns pairs of channels"):
        logits(
            cfg := config("pyramid", pe=(("pyramid", {"position": "centre"}),), D=5),
            weights(cfg),
            tokens(1, 3),
        )
