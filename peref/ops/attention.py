"""Softmax attention in three steps, each public: scores, probabilities, weigh.

    logits = scale q k + table[distance] + term + row + column        over the keys a query sees
    out    = softmax(logits) v

`at` is the place of both (place.py), or of queries and keys of two sequences (cross.py), without a table. A
cell that is not seen is excluded; a row that sees nothing is 0 in both passes. Query head h reads key-value
head h // (H/G).
"""

from peref.ops.distance import collected, laid
from peref.ops.linear import matmul
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def grouped(x, G):
    """x [B,H,T,D] -> [B,G,(H/G)T,D]: the query heads of one key-value head under one another."""
    B, H, T, D = x.shape
    return x.reshape(B, G, H // G * T, D)


def plus_terms_forward(s, table, term, row, column, *, at):
    """s [B,H,T,S] with table[distance] + term + row + column added: table [H,N] over `at.distances`, term
    [B,H,T,S], row [B,H,T,1], column [B,H,1,S]. All but s may be None, and their axes may be 1. table, row and
    column may be of a wider dtype; row and column are summed in it, since they nearly cancel.
    """
    index = None
    if table is not None:
        index = at.index
        s = s + laid(table, index).astype(s.dtype)  # 1
    if term is not None:
        s = s + term  # 2
    if row is not None or column is not None:
        both = row + column if row is not None and column is not None else row if column is None else column
        s = s + both.astype(s.dtype)  # 3: the wide dtype sums them, for they cancel
    return s, ([None if a is None else (a.shape, a.dtype) for a in (table, term, row, column)], index)


def plus_terms_backward(saved, ds, wants):
    """The gradients of s, table, term, row and column, each in its own shape and dtype; None for what was
    absent or is not wanted. That of table [H,N] is the sum of ds [B,H,T,S] along each diagonal.
    """
    like, index = saved
    dtable = None
    dterm, drow, dcolumn = (  # 3, 2
        unbroadcast(ds, a[0]).astype(a[1], copy=False) if a and want else None
        for a, want in zip(like[1:], wants[2:], strict=True)
    )
    if like[0] and wants[1]:  # 1: the sum along each diagonal
        shape, dtype = like[0]
        dtable = unbroadcast(collected(ds, index, shape[1]), shape).astype(dtype)
    return ds, dtable, dterm, drow, dcolumn


NO_TERMS = (None, None, None, None)
plus_terms = Op(plus_terms_forward, plus_terms_backward, selective=True)


def masked_forward(s, see):
    """s [...] where `see`, bool of a shape that broadcasts; 0 elsewhere."""
    return namespace(s).where(see, s, 0), see


def masked_backward(see, dy):
    """dy [B,H,T,S] where a key is seen, 0 elsewhere."""
    return namespace(dy).where(see, dy, 0), None


masked = Op(masked_forward, masked_backward)


def added(table, term, row, column, *, at, B, H, dtype):
    """What these of `plus_terms` add to logits of their own, [B,H,T,S], 0 where a query does not look."""
    nothing = namespace(at.i).zeros((B, H, at.T, at.S), dtype)
    return masked(plus_terms(nothing, table, term, row, column, at=at), at.see)


def scores_forward(q, k, table, term, row, column, *, at, scale, softcap=None, matmul=matmul):
    """scale q k + table[distance] + term + row + column, [B,H,T,S]: the logits, before the mask. q [B,H,T,D],
    k [B,G,S,D]; the others as `plus_terms` takes them. softcap c: c tanh(scale q k / c) for scale q k.
    """
    B, H, T, _ = q.shape
    s = matmul(grouped(q, k.shape[1]) * scale, k.swapaxes(-1, -2)).reshape(B, H, T, k.shape[2])  # 1
    t = None if softcap is None else namespace(s).tanh(s / softcap)
    s, saved = plus_terms_forward(s if t is None else softcap * t, table, term, row, column, at=at)  # 2, 3
    return s, (q, k, t, saved, scale, matmul)


def scores_backward(saved, ds, wants):
    """The gradients of q [B,H,T,D], k [B,G,S,D], table, term, row and column; k's is summed over the heads
    that read it. None for what is absent or not wanted.
    """
    q, k, t, saved, scale, matmul = saved
    dq = dk = None
    ds, *rest = plus_terms_backward(saved, ds, (True, *wants[2:]))  # 3
    ds = ds if t is None else ds * (1 - t * t)  # 2
    ds = ds.reshape(ds.shape[0], k.shape[1], -1, ds.shape[3])
    if wants[0]:
        dq = matmul(ds, k).reshape(q.shape) * scale  # 1
    if wants[1]:
        dk = unbroadcast(matmul(ds.swapaxes(-1, -2), grouped(q, k.shape[1]) * scale), k.shape)  # 1
    return dq, dk, *rest


scores = Op(scores_forward, scores_backward, selective=True)


def probabilities_forward(s, *, at):
    """The softmax of the logits s [B,H,T,S] over the keys that `at` lets each query see. A cell that is not
    seen is 0, and so is a row that sees nothing.
    """
    xp = namespace(s)
    seen = xp.where(at.see, s, -xp.inf)  # 1
    top = seen.max(-1, keepdims=True)
    e = xp.exp(seen - xp.where(top == -xp.inf, 0, top))  # 2
    total = e.sum(-1, keepdims=True)
    p = e / xp.where(total == 0, 1, total)  # 3
    return p, p


def probabilities_backward(p, dp):
    """The gradient of the logits [B,H,T,S]: p (dp - sum over keys of p dp), so 0 in hidden cells and in rows
    that see nothing.
    """
    return (p * (dp - (p * dp).sum(-1, keepdims=True)),)  # 3, 2, 1


probabilities = Op(probabilities_forward, probabilities_backward)


def sunk_forward(s, sinks, *, at):
    """`probabilities` of the logits s [B,H,T,S] with one more in each row, sinks [H], whose weight goes
    nowhere: p [B,H,T,S].
    """
    xp = namespace(s)
    seen, sink = xp.where(at.see, s, -xp.inf), sinks[:, None, None].astype(s.dtype)  # 1
    top = xp.maximum(seen.max(-1, keepdims=True), sink)
    e, rest = xp.exp(seen - top), xp.exp(sink - top)  # 2
    total = e.sum(-1, keepdims=True) + rest
    p = e / total  # 3
    return p, (p, rest / total, sinks.dtype)


def sunk_backward(saved, dp):
    """The gradients of the logits [B,H,T,S] and of sinks [H], whose weight takes from every row."""
    p, rest, dtype = saved
    inner = (p * dp).sum(-1, keepdims=True)
    return p * (dp - inner), -(rest * inner).sum((0, 2, 3)).astype(dtype)  # 3, 2, 1


sunk = Op(sunk_forward, sunk_backward)


def weigh_forward(p, v, *, matmul=matmul):
    """p v [B,H,T,D], of the probabilities p [B,H,T,S] and the values v [B,G,S,D]."""
    B, H, T, _ = p.shape
    return matmul(grouped(p, v.shape[1]), v).reshape(B, H, T, v.shape[-1]), (p, v, matmul)


def weigh_backward(saved, dy):
    """The gradients of the probabilities p [B,H,T,S], dy v', and of v [B,G,S,D], p' dy summed over the heads
    that read it.
    """
    p, v, matmul = saved
    dy = grouped(dy, v.shape[1])
    dv = unbroadcast(matmul(grouped(p, v.shape[1]).swapaxes(-1, -2), dy), v.shape)
    return matmul(dy, v.swapaxes(-1, -2)).reshape(p.shape), dv


weigh = Op(weigh_forward, weigh_backward)


def unnoted(name, x):
    """x [...] itself: nobody reads along."""
    return x


def attention(q, k, v, *terms, at, scale, softcap=None, matmul=matmul, note=unnoted):
    """softmax(scale q k + table + term + row + column) v over the keys that `at` lets each query see,
    [B,H,T,D].

    q [B,H,T,D], k and v [B,G,S,D]. `terms`, each None where there is none, the last ones perhaps left out:
    table [H,N] belongs to the distances `at.distances`; term [B,H,T,S], row [B,H,T,1], column [B,H,1,S];
    sinks [H]: a further logit of each row, whose weight goes nowhere. softcap c: c tanh(scale q k / c) in
    place of scale q k. note(name, array) -> the same array is told "scores" and "probabilities" on the way.
    Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; grouped heads: Ainslie et al. 2023,
    arXiv:2305.13245; sinks: OpenAI 2025, gpt-oss, arXiv:2508.10925; softcap: Gemma Team 2024,
    arXiv:2408.00118, section 2.
    """
    *added, sinks = [*terms, *NO_TERMS, None][:5]
    s = note("scores", scores(q, k, *added, at=at, scale=scale, softcap=softcap, matmul=matmul))
    p = note("probabilities", probabilities(s, at=at) if sinks is None else sunk(s, sinks, at=at))
    return weigh(p, v, matmul=matmul)
