"""The whole backward of a one-layer model, written out by hand as an explicit chain, gives what the tape
gives.

One residual stream, read from `chain` below:

    x0 = rows of embed.weight
    x1 = x0 + e                          e: the table of an embed encoding, absent for the others
    x2 = x1 + sublayer(norm1(x1))        sublayer: attention with one of the hooks inside, or mix
    x3 = x2 + feed_forward(norm2(x2))
    loss = cross_entropy(norm(x3) embed.weight')

Everything here calls op.forward and op.backward of single ops; sums and the tied head are accumulated by
hand. Each part is a pair of functions, forward(...) -> y, saved and backward(saved, dy, g) -> dx, that enters
the gradients of its parameters in g. Not here: a Tape, a Var, a call of an Op, except on the side that is
compared.
"""

import numpy as np
import pytest
from check import frozen, same

from peref import model
from peref.config import Config
from peref.encodings import HOOKS, get
from peref.encodings.attend import path
from peref.encodings.attend.shaw import scatter
from peref.encodings.mix.retnet import retention
from peref.encodings.score import forgetting
from peref.ops.activation import log_sigmoid, sigmoid, silu, swiglu
from peref.ops.attention import probabilities, scores, weigh
from peref.ops.distance import gather
from peref.ops.embedding import take
from peref.ops.linear import linear, matmul
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm, unit
from peref.ops.place import At
from peref.ops.scan import short_conv
from peref.ops.shape import merge_heads, split_heads, swap
from peref.ops.turn import turn
from peref.tape import Tape

B, T, H, G, D, C, F, V, L = 3, 7, 4, 2, 6, 9, 13, 17, 23
EPS = 1e-4
FACTOR = np.array(0.7)  # the gradient that arrives at the loss
AT = At.of(T)
FIRST_OF_AXES = (0, 1)


def turned_over(table):  # swap.forward, for a table [N,H] -> [H,N]
    return swap.forward(table, axes=FIRST_OF_AXES)


# ---------------------------------------------------------------- the parts that every model has


def norm_forward(p, name, x):
    return rms_norm.forward(x, p[f"{name}.weight"], eps=EPS)


def norm_backward(saved, dy, g, name):
    dx, g[f"{name}.weight"] = rms_norm.backward(saved, dy)
    return dx


def linear_forward(p, name, x):
    return linear.forward(x, p[f"{name}.weight"], None)


def linear_backward(saved, dy, g, name):
    dx, g[f"{name}.weight"], none = linear.backward(saved, dy)
    assert none is None
    return dx


def feed_forward_forward(p, x):
    gate, s_gate = linear_forward(p, "0.gate", x)  # 1
    up, s_up = linear_forward(p, "0.up", x)  # 2
    hidden, s_hidden = swiglu.forward(gate, up)  # 3
    y, s_down = linear_forward(p, "0.down", hidden)  # 4
    return y, (s_gate, s_up, s_hidden, s_down)


def feed_forward_backward(saved, dy, g):
    s_gate, s_up, s_hidden, s_down = saved
    dhidden = linear_backward(s_down, dy, g, "0.down")  # 4
    dgate, dup = swiglu.backward(s_hidden, dhidden)  # 3
    dx_up = linear_backward(s_up, dup, g, "0.up")  # 2
    return dx_up + linear_backward(s_gate, dgate, g, "0.gate")  # 1


def heads_forward(p, role, x, heads):  # [B,T,C] -> [B,heads,T,D]
    flat, saved = linear_forward(p, f"0.{role}", x)
    return split_heads.forward(flat, heads=heads)[0], saved


def heads_backward(saved, dy, g, role):
    (dflat,) = split_heads.backward(None, dy)
    return linear_backward(saved, dflat, g, f"0.{role}")


# ---------------------------------------------------------------- the attention sublayer, around one of the
# middles


def attention_sublayer(middle_forward, middle_backward):
    """The pair x -> W_o middle(W_q x, W_k x, W_v x, x); what a middle computes from x itself comes back as
    its last gradient.
    """

    def forward(p, x):
        q, s_q = heads_forward(p, "q", x, H)  # 1
        k, s_k = heads_forward(p, "k", x, G)  # 2
        v, s_v = heads_forward(p, "v", x, G)  # 3
        o, s_middle = middle_forward(p, q, k, v, x)  # 4
        flat, s_merge = merge_heads.forward(o)  # 5
        y, s_o = linear_forward(p, "0.o", flat)  # 6
        return y, (s_q, s_k, s_v, s_middle, s_merge, s_o)

    def backward(saved, dy, g):
        s_q, s_k, s_v, s_middle, s_merge, s_o = saved
        dflat = linear_backward(s_o, dy, g, "0.o")  # 6
        (do,) = merge_heads.backward(s_merge, dflat)  # 5
        dq, dk, dv, dx = middle_backward(s_middle, do, g)  # 4
        dx = dx + heads_backward(s_v, dv, g, "v")  # 3
        dx = dx + heads_backward(s_k, dk, g, "k")  # 2
        return dx + heads_backward(s_q, dq, g, "q")  # 1

    return forward, backward


def softmax_forward(q, k, v, table=None, term=None, row=None, column=None, *, scale=D**-0.5):
    s, s_scores = scores.forward(q, k, table, term, row, column, at=AT, scale=scale)  # 1
    w, s_softmax = probabilities.forward(s, at=AT)  # 2
    o, s_weigh = weigh.forward(w, v)  # 3
    return o, (s_scores, s_softmax, s_weigh)


def softmax_backward(saved, do, *asked):  # -> dv, then dq, dk, dtable, dterm, drow, dcolumn
    s_scores, s_softmax, s_weigh = saved
    dw, dv = weigh.backward(s_weigh, do)  # 3
    (ds,) = probabilities.backward(s_softmax, dw)  # 2
    wants = [name in ("q", "k", *asked) for name in ("q", "k", "table", "term", "row", "column")]
    return dv, *scores.backward(s_scores, ds, wants)  # 1


# embed: nothing happens inside attention


def plain_forward(p, q, k, v, x):
    return softmax_forward(q, k, v)


def plain_backward(saved, do, g):
    dv, dq, dk, *_ = softmax_backward(saved, do)
    return dq, dk, dv, 0


# rotate: q and k turn, v does not


def rotate_forward(p, q, k, v, x):
    angle = AT.i[:, None] * 10000.0 ** (-2 * np.arange(2) / 4)  # R is 4: two pairs of channels turn
    q, s_q = turn.forward(q, angle, None, layout="interleaved")  # 1
    k, s_k = turn.forward(k, angle, None, layout="interleaved")  # 2
    o, s_softmax = softmax_forward(q, k, v)  # 3
    return o, (s_q, s_k, s_softmax)


def rotate_backward(saved, do, g):
    s_q, s_k, s_softmax = saved
    dv, dq, dk, *_ = softmax_backward(s_softmax, do)  # 3
    dk, *_ = turn.backward(s_k, dk, (True, False, False))  # 2
    dq, *_ = turn.backward(s_q, dq, (True, False, False))  # 1
    return dq, dk, dv, 0


# bias: a table over distances joins the logits; T5's is learned and belongs to no layer, and its scale is 1


def alibi_forward(p, q, k, v, x):
    slopes = 2.0 ** -np.array([2, 4, 6, 8])
    return softmax_forward(q, k, v, -slopes[:, None] * np.arange(T))


def t5_forward(p, q, k, v, x):
    # of distances 0 to 6: three of one distance each, three logarithmic ones up to 5
    bucket = np.array([0, 1, 2, 3, 4, 5, 5])
    rows, s_take = take.forward(p["pe.0.table"], bucket)  # 1
    table, s_swap = turned_over(rows)  # 2
    o, s_softmax = softmax_forward(q, k, v, table, scale=1.0)  # 3
    return o, (s_take, s_swap, s_softmax)


def t5_backward(saved, do, g):
    s_take, s_swap, s_softmax = saved
    dv, dq, dk, dtable, *_ = softmax_backward(s_softmax, do, "table")  # 3
    (drows,) = swap.backward(s_swap, dtable)  # 2
    g["pe.0.table"], _ = take.backward(s_take, drows)  # 1
    return dq, dk, dv, 0


# score: the prefix sum of log gates joins the logits, once for the query (row), once, negative, for the key
# (column)


def score_forward(p, q, k, v, x):
    f, s_f = linear.forward(x, p["0.pe.f.weight"], p["0.pe.f.bias"])  # 1
    f, s_swap = swap.forward(f, axes=(1, 2))  # 2  [B,H,T]
    log_f, s_log = log_sigmoid.forward(f)  # 3
    row, s_row = forgetting.gate_row.forward(log_f, T=T)  # 4
    column, s_column = forgetting.gate_column.forward(log_f)  # 5
    o, s_softmax = softmax_forward(q, k, v, None, None, row, column)  # 6
    return o, (s_f, s_swap, s_log, s_row, s_column, s_softmax)


def score_backward(saved, do, g):
    s_f, s_swap, s_log, s_row, s_column, s_softmax = saved
    dv, dq, dk, _, _, drow, dcolumn = softmax_backward(s_softmax, do, "row", "column")  # 6
    (dlog_f,) = forgetting.gate_column.backward(s_column, dcolumn)  # 5
    dlog_f = dlog_f + forgetting.gate_row.backward(s_row, drow)[0]  # 4
    (df,) = log_sigmoid.backward(s_log, dlog_f)  # 3
    (df,) = swap.backward(s_swap, df)  # 2
    dx, g["0.pe.f.weight"], g["0.pe.f.bias"] = linear.backward(s_f, df)  # 1
    return dq, dk, dv, dx


# attend: Shaw's vector of each clipped distance joins the key, by way of q, and the value, by way of the
# weights


def shaw_forward(p, q, k, v, x, m=2):
    d, index = AT.distances, AT.index
    r = (np.clip(-d, -m, m) + m)[index]
    key, s_swap = turned_over(p["0.pe.key"])  # 1
    of_rows, s_rows = matmul.forward(q, key)  # 2
    term, s_gather = gather.forward(of_rows, r, scale=D**-0.5)  # 3
    s, s_scores = scores.forward(q, k, None, term, None, None, at=AT, scale=D**-0.5)  # 4
    w, s_softmax = probabilities.forward(s, at=AT)  # 5
    o, s_weigh = weigh.forward(w, v)  # 6
    per_row, s_scatter = scatter.forward(w, r, rows=2 * m + 1)  # 7
    of_values, s_values = matmul.forward(per_row, p["0.pe.value"])  # 8
    return o + of_values, (s_swap, s_rows, s_gather, s_scores, s_softmax, s_weigh, s_scatter, s_values)  # 9


def shaw_backward(saved, do, g):
    s_swap, s_rows, s_gather, s_scores, s_softmax, s_weigh, s_scatter, s_values = saved
    dper_row, g["0.pe.value"] = matmul.backward(s_values, do)  # 9, 8
    dw, _ = scatter.backward(s_scatter, dper_row)  # 7
    dw_v, dv = weigh.backward(s_weigh, do)  # 9, 6
    (ds,) = probabilities.backward(s_softmax, dw + dw_v)  # 5
    dq, dk, _, dterm, _, _ = scores.backward(s_scores, ds, (True, True, False, True, False, False))  # 4
    dof_rows, _ = gather.backward(s_gather, dterm)  # 3
    dq_rows, dkey = matmul.backward(s_rows, dof_rows)  # 2
    (g["0.pe.key"],) = swap.backward(s_swap, dkey)  # 1
    return dq + dq_rows, dk, dv, 0


# attend: PaTH's w and beta of every token, from x; w through a low-rank map, a short convolution and a SiLU


def path_forward(p, q, k, v, x):
    down, s_down = linear_forward(p, "0.pe.down", x)  # 1
    low, s_up = linear_forward(p, "0.pe.up", down)  # 2
    line, s_conv, _ = short_conv.forward(low, p["0.pe.conv"], None, None)  # 3
    bent, s_silu = silu.forward(line)  # 4
    split, s_split = split_heads.forward(bent, heads=G)  # 5
    w, s_unit = unit.forward(split, eps=path.EPS)  # 6

    beta, s_beta = linear.forward(x, p["0.pe.beta.weight"], p["0.pe.beta.bias"])  # 7
    half, s_sigmoid = sigmoid.forward(beta)  # 8
    beta, s_swap = swap.forward(2 * half, axes=(1, 2))  # 9  [B,G,T]

    s, s_scores = path.scores.forward(q, k, w, beta, scale=D**-0.5)  # 10
    a, s_softmax = probabilities.forward(s, at=AT)  # 11
    o, s_weigh = weigh.forward(a, v)  # 12
    return o, (
        s_down,
        s_up,
        s_conv,
        s_silu,
        s_split,
        s_unit,
        s_beta,
        s_sigmoid,
        s_swap,
        s_scores,
        s_softmax,
        s_weigh,
    )


def path_backward(saved, do, g):
    s_down, s_up, s_conv, s_silu, s_split, s_unit, s_beta, s_sigmoid, s_swap, s_scores, s_softmax, s_weigh = (
        saved
    )
    da, dv = weigh.backward(s_weigh, do)  # 12
    (ds,) = probabilities.backward(s_softmax, da)  # 11
    dq, dk, dw, dbeta = path.scores.backward(s_scores, ds)  # 10

    (dbeta,) = swap.backward(s_swap, dbeta)  # 9
    (dbeta,) = sigmoid.backward(s_sigmoid, 2 * dbeta)  # 9, 8
    dx_beta, g["0.pe.beta.weight"], g["0.pe.beta.bias"] = linear.backward(s_beta, dbeta)  # 7

    (dsplit,) = unit.backward(s_unit, dw)  # 6
    (dbent,) = split_heads.backward(s_split, dsplit)  # 5
    (dline,) = silu.backward(s_silu, dbent)  # 4
    dlow, g["0.pe.conv"], _, _ = short_conv.backward(s_conv, dline)  # 3
    ddown = linear_backward(s_up, dlow, g, "0.pe.up")  # 2
    return dq, dk, dv, dx_beta + linear_backward(s_down, ddown, g, "0.pe.down")  # 1


# ---------------------------------------------------------------- mix: retention in place of the whole
# attention sublayer


def mix_forward(p, x):
    q, s_q = heads_forward(p, "pe.q", x, H)  # 1
    k, s_k = heads_forward(p, "pe.k", x, H)  # 2
    v, s_v = heads_forward(p, "pe.v", x, H)  # 3
    angle = AT.i[:, None] * 10000.0 ** (-np.arange(D // 2) / (D // 2 - 1))
    q, s_turn_q = turn.forward(q, angle, None, layout="interleaved")  # 4
    k, s_turn_k = turn.forward(k, angle, None, layout="interleaved")  # 5
    log_decay = np.log1p(-(2.0 ** (-5 - np.arange(H))))
    o, s_scan, _ = retention.forward(q, k, v, None, None, log_decay=log_decay, chunk=3, scale=D**-0.5)  # 6
    o, s_norm = layer_norm.forward(o, None, None, eps=1e-5)  # 7
    flat, s_merge = merge_heads.forward(o)  # 8
    gate, s_gate = linear_forward(p, "0.pe.g", x)  # 9
    gated, s_gated = swiglu.forward(gate, flat)  # 10
    y, s_o = linear_forward(p, "0.pe.o", gated)  # 11
    return y, (s_q, s_k, s_v, s_turn_q, s_turn_k, s_scan, s_norm, s_merge, s_gate, s_gated, s_o)


def mix_backward(saved, dy, g):
    s_q, s_k, s_v, s_turn_q, s_turn_k, s_scan, s_norm, s_merge, s_gate, s_gated, s_o = saved
    dgated = linear_backward(s_o, dy, g, "0.pe.o")  # 11
    dgate, dflat = swiglu.backward(s_gated, dgated)  # 10
    dx = linear_backward(s_gate, dgate, g, "0.pe.g")  # 9
    (do,) = merge_heads.backward(s_merge, dflat)  # 8
    do, _, _ = layer_norm.backward(s_norm, do)  # 7
    dq, dk, dv, _, _ = retention.backward(s_scan, do)  # 6
    dk, *_ = turn.backward(s_turn_k, dk, (True, False, False))  # 5
    dq, *_ = turn.backward(s_turn_q, dq, (True, False, False))  # 4
    dx = dx + heads_backward(s_v, dv, g, "pe.v")  # 3
    dx = dx + heads_backward(s_k, dk, g, "pe.k")  # 2
    return dx + heads_backward(s_q, dq, g, "pe.q")  # 1


# ---------------------------------------------------------------- embed: what is added before the layer


def nothing_forward(p):
    return 0, None


def nothing_backward(saved, de, g):
    pass


def sinusoidal_forward(p):
    angle = AT.i[:, None] * 10000.0 ** (-(np.arange(C) // 2 * 2) / C)
    return np.where(np.arange(C) % 2, np.cos(angle), np.sin(angle)), None


def learned_forward(p):
    return take.forward(p["pe.0.table"], AT.i)


def learned_backward(saved, de, g):
    g["pe.0.table"], _ = take.backward(saved, de.sum(0))  # every sequence has the same positions


# ---------------------------------------------------------------- the chain


PLAIN = attention_sublayer(plain_forward, plain_backward)
NOTHING = nothing_forward, nothing_backward

CASES = {  # encoding -> its options, what it adds to the embedding, the sublayer around it
    "sinusoidal": ({}, (sinusoidal_forward, nothing_backward), PLAIN),
    "learned": ({}, (learned_forward, learned_backward), PLAIN),
    "rope": ({}, NOTHING, attention_sublayer(rotate_forward, rotate_backward)),
    "alibi": ({}, NOTHING, attention_sublayer(alibi_forward, plain_backward)),
    "t5": ({"buckets": 6, "max_distance": 5}, NOTHING, attention_sublayer(t5_forward, t5_backward)),
    "forgetting": ({}, NOTHING, attention_sublayer(score_forward, score_backward)),
    "shaw": ({"max_distance": 2}, NOTHING, attention_sublayer(shaw_forward, shaw_backward)),
    "path": ({"rank": 5}, NOTHING, attention_sublayer(path_forward, path_backward)),
    "retnet": ({"value_factor": 3, "chunk": 3}, NOTHING, (mix_forward, mix_backward)),
}


def chain(name, p, tokens, targets):
    """The loss and the gradient of every parameter."""
    _, (embed_forward, embed_backward), (sublayer_forward, sublayer_backward) = CASES[name]
    g = {}

    x0, s_take = take.forward(p["embed.weight"], tokens)  # 1
    e, s_embed = embed_forward(p)
    x1 = x0 + e  # 2
    h1, s_norm1 = norm_forward(p, "0.norm1", x1)  # 3
    y1, s_sublayer = sublayer_forward(p, h1)  # 4
    x2 = x1 + y1  # 5
    h2, s_norm2 = norm_forward(p, "0.norm2", x2)  # 6
    y2, s_feed = feed_forward_forward(p, h2)  # 7
    x3 = x2 + y2  # 8
    h3, s_norm = norm_forward(p, "norm", x3)  # 9
    z, s_head = linear.forward(h3, p["embed.weight"], None)  # 10
    loss, s_loss, _ = cross_entropy.forward(z, targets)  # 11

    dz, _ = cross_entropy.backward(s_loss, FACTOR)  # 11
    dh3, dhead, _ = linear.backward(s_head, dz)  # 10
    dx3 = norm_backward(s_norm, dh3, g, "norm")  # 9
    dx2, dy2 = dx3, dx3  # 8: a sum hands its gradient to both
    dh2 = feed_forward_backward(s_feed, dy2, g)  # 7
    dx2 = dx2 + norm_backward(s_norm2, dh2, g, "0.norm2")  # 6: x2 was used twice
    dx1, dy1 = dx2, dx2  # 5
    dh1 = sublayer_backward(s_sublayer, dy1, g)  # 4
    dx1 = dx1 + norm_backward(s_norm1, dh1, g, "0.norm1")  # 3: x1 was used twice
    dx0, de = dx1, dx1  # 2
    embed_backward(s_embed, de, g)
    drows, _ = take.backward(s_take, dx0)  # 1
    g["embed.weight"] = drows + dhead  # the head is tied
    return loss, g


@pytest.mark.parametrize("name", CASES)
def test_the_chain_by_hand_is_the_tape(name):
    """Loss and gradient of every parameter of a one-layer model, by hand and from the tape, agree to
    1e-12; the loss is that of bare arrays.
    """
    rotary = {"R": 4, "layout": "interleaved"} if name == "rope" else {}
    kept = {} if name == "retnet" else {"G": G}
    cfg = Config(
        pe=((name, CASES[name][0]),), layers=1, H=H, D=D, C=C, F=F, V=V, L=L, eps=EPS, **kept, **rotary
    )
    rng = np.random.default_rng(5)
    p = frozen(
        {key: a + 0.3 * rng.standard_normal(a.shape) for key, a in model.init(cfg, 3, np.float64).items()}
    )
    tokens, targets = rng.integers(0, V, (B, T)), rng.integers(0, V, (B, T))
    targets[0, 2] = -1  # nothing is asked there

    loss, by_hand = chain(name, p, tokens, targets)

    tape = Tape()
    leaves = tape.watch(p)
    on_tape, _ = model.loss(cfg, leaves, tokens, targets)
    found = tape.gradients(on_tape, FACTOR)

    same(loss, on_tape.value, 1e-12, "loss")
    same(on_tape.value, model.loss(cfg, p, tokens, targets)[0], 0, "loss on bare arrays")
    same({key: found[leaf] for key, leaf in leaves.items()}, by_hand, 1e-12)
    assert all(np.any(a) for a in by_hand.values())


def test_every_hook_has_a_chain():
    """The encodings above fill each of the six hooks."""
    hooks = {get(name).hook for name in CASES}
    assert hooks == set(HOOKS)
