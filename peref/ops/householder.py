"""Logits with the Householder-like maps of the tokens between key and query: s_ij = q_i' H_i ... H_(j+1) k_j, H_t = I - beta_t w_t w_t'.

Walking a query back over the keys, u <- H_t u, takes one step per key. Blocks of M keys do it with matrices: with W, K the block's rows,

    C = tril(U W') inverse(I + tril(beta W W', -1))        S = U K' - C tril(beta W K', -1)        U <- U - C beta W

where row t of C holds w_m u at the moment that H_m acts.
"""

from peref.ops.attention import grouped
from peref.ops.join import joined
from peref.ops.linear import matmul, unit_lower_inverse
from peref.tape import Op
from peref.xp import namespace

BLOCK = 64


def transposed(x):
    return x.swapaxes(-1, -2)


def scores_forward(q, k, w, beta, *, scale, block=BLOCK, matmul=matmul):  # [B,H,T,D], [B,G,S,D], [B,G,S,D], [B,G,S]
    xp = namespace(q)
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    u = grouped(q, G) * scale  # [B,G,(H/G)T,D]
    slot = xp.broadcast_to(xp.arange(S - T, S), (H // G, T)).reshape(-1, 1)
    out, steps = [], []
    for start in reversed(range(0, S, block)):
        cut = slice(start, min(start + block, S))
        K, W, b = k[:, :, cut], w[:, :, cut], beta[:, :, cut, None]
        ww, wk, seen = matmul(W, transposed(W)), matmul(W, transposed(K)), slot >= xp.arange(cut.start, cut.stop)
        inverse = unit_lower_inverse(xp.tril(b * ww, -1), matmul)  # 1
        across = xp.tril(b * wk, -1)  # 2
        c = matmul(xp.where(seen, matmul(u, transposed(W)), 0), inverse)  # 3
        out.append(matmul(u, transposed(K)) - matmul(c, across))  # 4
        steps.append((cut, u, K, W, b, ww, wk, seen, inverse, across, c))
        u = u - matmul(c, b * W)  # 5
    return joined(out[::-1], -1).reshape(B, H, T, S), (q.shape, k.shape, beta.shape, steps, scale, matmul)


def scores_backward(saved, dy):
    q_shape, k_shape, beta_shape, steps, scale, matmul = saved
    xp = namespace(dy)
    dy = grouped(dy, k_shape[1])
    dk, dw, dbeta = (xp.zeros(shape, dy.dtype) for shape in (k_shape, k_shape, beta_shape))
    du = xp.zeros_like(steps[0][1])
    for cut, u, K, W, b, ww, wk, seen, inverse, across, c in reversed(steps):
        ds = dy[..., cut]
        dbw = -matmul(transposed(c), du)  # 5
        dc = -matmul(ds, transposed(across)) - matmul(du, transposed(b * W))  # 4, 5
        da = matmul(dc, transposed(inverse))  # 3
        dlow = xp.tril(-matmul(transposed(c), da), -1)  # 3, 1
        da = xp.where(seen, da, 0)  # 3
        dacross = xp.tril(-matmul(transposed(c), ds), -1)  # 4, 2
        dk[:, :, cut] = matmul(transposed(ds), u) + matmul(transposed(b * dacross), W)  # 4, 2
        both = b * dlow + transposed(b * dlow)
        dw[:, :, cut] = matmul(transposed(da), u) + matmul(both, W) + matmul(b * dacross, K) + b * dbw  # 3, 1, 2, 5
        dbeta[:, :, cut] = (dlow * ww).sum(-1) + (dacross * wk).sum(-1) + (dbw * W).sum(-1)  # 1, 2, 5
        du = du + matmul(ds, K) + matmul(da, W)  # 4, 3
    return du.reshape(q_shape) * scale, dk, dw, dbeta


scores = Op(scores_forward, scores_backward)
