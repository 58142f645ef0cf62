"""Transformer-XL beyond what every encoding is asked: the memory of the paper, the code's shift, clamped
distances, biases tied or not.
"""

import numpy as np
import pytest
from check import frozen, gradient, same
from generated import config, layer_input, lists, logits, loop, tokens, weights

import peref
from peref import model

EXACT = 1e-12


def shifted(x):
    """The code's _rel_shift of x [Q,K]: a column of zeros in front, read as [K+1,Q], the first row
    dropped.
    """
    Q, K = x.shape
    return np.concatenate([np.zeros((Q, 1)), x], 1).reshape(K + 1, Q)[1:].reshape(Q, K)


def published(cfg, p, segments, mem_len, same_length):
    """The logits of each segment of one sequence by the recurrence of section 3.2: hidden states are kept,
    keys and values are taken of them anew.

    Distances as in the code: r of klen - 1 down to 0, then the shift. same_length is its mask, in which each
    query sees mem_len keys.
    """
    unit = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + cfg.eps) * p[f"{name}.weight"]
    memory, out = [np.zeros((0, cfg.C))] * cfg.layers, []
    for segment in segments:
        x = p["embed.weight"][segment]
        for n in range(cfg.layers):
            of = lambda role, h, n=n: (h @ p[f"{n}.{role}.weight"].T).reshape(len(h), cfg.H, cfg.D)
            cat = np.concatenate([memory[n], x])
            memory[n] = cat[max(0, len(cat) - mem_len) :]
            qlen, klen = len(x), len(cat)
            q, k, v = (
                of("q", unit(x, f"{n}.norm1")),
                of("k", unit(cat, f"{n}.norm1")),
                of("v", unit(cat, f"{n}.norm1")),
            )
            angle = np.arange(klen - 1, -1, -1.0)[:, None] / 10000.0 ** (np.arange(0.0, cfg.C, 2.0) / cfg.C)
            r = of("pe.r", np.concatenate([np.sin(angle), np.cos(angle)], -1))
            mask = np.triu(np.ones((qlen, klen)), 1 + klen - qlen)
            if same_length:
                mask += np.tril(np.ones((qlen, klen)), -(qlen - (klen - mem_len) if klen > mem_len else qlen))
            o = np.zeros((qlen, cfg.H, cfg.D))
            for h in range(cfg.H):
                ac = (q[:, h] + p["pe.0.u"][h]) @ k[:, h].T
                bd = shifted((q[:, h] + p["pe.0.w"][h]) @ r[:, h].T)
                a = np.where(mask > 0, -np.inf, (ac + bd) / np.sqrt(cfg.D))
                a = np.exp(a - a.max(1, keepdims=True))
                o[:, h] = a / a.sum(1, keepdims=True) @ v[:, h]
            x = x + o.reshape(qlen, -1) @ p[f"{n}.o.weight"].T
            gate, up = (unit(x, f"{n}.norm2") @ p[f"{n}.{role}.weight"].T for role in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ p[f"{n}.down.weight"].T
        out.append(unit(x, "norm") @ p["embed.weight"].T)
    return np.concatenate(out)


@pytest.mark.parametrize(("window", "same_length"), [(None, False), (3, True)])
def test_segments_with_a_cache_are_the_published_recurrence(window, same_length):
    """Two segments and a third, through two layers: all that came before, or with a window the code's
    memory of constant length.
    """
    cfg = config("transformer_xl", G=6, window=window)
    p, x = weights(cfg), tokens(2, 9)
    memory, rows = model.cache(cfg), []
    for start in (0, 3, 6):
        y, memory = model.decode(cfg, p, x[:, start : start + 3], memory)
        rows.append(y)
    want = [published(cfg, p, np.split(row, 3), 3 if window else 100, same_length) for row in x]
    same(np.concatenate(rows, 1), np.stack(want), EXACT)
    alone = [published(cfg, p, [row[3:6]], 100, False) for row in x]
    assert abs(rows[1] - np.stack(alone)).max() > 1e-3  # without the memory it is something else


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("clamp_len", [1, 5, 100])
def test_clamped_distances_are_the_loop(clamp_len, causal):
    """From above and, where a query looks at the future, from below; a clamp beyond every distance is
    none.
    """
    cfg = config("transformer_xl", pe=(("transformer_xl", {"clamp_len": clamp_len}),), causal=causal)
    p, (_, q, k, _) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, 11)
    for i in (np.arange(11), np.array([3, 0, 7, 7, 2, 40, 41, 9, 1, 12, 30])):
        at = model.At.of(11, positions=i, causal=causal)
        term, _, column = cfg.encoding(0).score(model.PLAIN, p, q, k, {}, at)
        want = np.array(loop(cfg)(lists(p), *(lists(a[1]) for a in (q, k, q)), lists(i)), float)
        same((term + column)[1][:, at.see], want[:, at.see], EXACT)


def test_biases_tied_or_each_layer_s_own():
    """One u and one w on disk, or one for each layer; the projection of the distances always belongs to a
    layer.
    """
    names = lambda cfg: {n for n in model.init(cfg) if "pe." in n}
    tied, own = (
        config("transformer_xl", pe=(("transformer_xl", {"across_layers": which}),))
        for which in ("shared", "own")
    )
    assert names(tied) == {"pe.0.u", "pe.0.w", "0.pe.r.weight", "1.pe.r.weight"}
    assert names(own) == {f"{layer}.pe.{n}" for layer in (0, 1) for n in ("u", "w", "r.weight")}
    p, x = dict(weights(tied)), tokens(2, 7)
    y = logits(tied, p, x)
    u, w = p.pop("pe.0.u"), p.pop("pe.0.w")
    same(logits(own, p | {f"{n}.pe.{name}": a for n in (0, 1) for name, a in (("u", u), ("w", w))}, x), y, 0)
    q = weights(own)
    gradient(lambda *a: logits(own, dict(zip(q, a, strict=True)), x), list(q.values()))


def test_a_million_tokens_apart_in_float32():
    """Sinusoids of distances are made in float64, so that far ones are as exact as near ones."""
    cfg = config("transformer_xl", layers=1)
    p, (_, q, k, _) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, 3)
    at = model.At.of(3, positions=np.array([0, 524288, 1048575]))
    as_ = lambda dtype: cfg.encoding(0).score(
        model.PLAIN, frozen(p, dtype), q.astype(dtype), k.astype(dtype), {}, at
    )[0]
    same(as_(np.float32), as_(np.float64).astype(np.float32), 2e-6)


def test_without_a_layer_input_the_width_is_that_of_the_heads(rng):
    """peref.attention needs no x: C = H D, unless x says another."""
    q, k, v = (rng.standard_normal((2, 3, 5, 4)) for _ in range(3))
    p = {
        "u": rng.standard_normal((3, 4)),
        "w": rng.standard_normal((3, 4)),
        "r.weight": rng.standard_normal((12, 12)),
    }
    x = np.zeros((2, 5, 12))
    same(
        peref.attention("transformer_xl", q, k, v, params=p),
        peref.attention("transformer_xl", q, k, v, params=p, x=x),
        0,
    )
