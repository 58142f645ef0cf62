"""Causal attention in Triton, forward, after FlashAttention-2's algorithm 1: what a user of Triton would
write first. A peer, and never run yet.
"""

from typing import Any

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]


@triton.jit
def kernel(Q, K, V, O, scale, T, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Q, K, V, O are [heads,T,D]; a program has M queries of a head and goes through its keys, N at a
    time.
    """
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * T * D
    d = tl.arange(0, D)
    t = tile * M + tl.arange(0, M)
    q = tl.load(Q + base + t[:, None] * D + d[None, :], mask=t[:, None] < T, other=0.0)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, tl.minimum((tile + 1) * M, T), N):
        s = start + tl.arange(0, N)
        k = tl.load(K + base + s[None, :] * D + d[:, None], mask=s[None, :] < T, other=0.0)
        x = tl.dot(q, k) * (scale * 1.4426950408889634)
        x = tl.where((t[:, None] >= s[None, :]) & (s[None, :] < T), x, float("-inf"))
        new = tl.maximum(top, tl.max(x, 1))
        p = tl.exp2(x - new[:, None])
        shrink = tl.exp2(top - new)
        v = tl.load(V + base + s[:, None] * D + d[None, :], mask=s[:, None] < T, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        total = total * shrink + tl.sum(p, 1)
        top = new
    tl.store(
        O + base + t[:, None] * D + d[None, :],
        (acc / total[:, None]).to(O.dtype.element_ty),
        mask=t[:, None] < T,
    )


def attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """o [1,H,T,D] of contiguous q, k, v [1,H,T,D]; D a power of two, at least 16."""
    _, H, T, D = q.shape
    o = torch.empty_like(q)
    M, N = (128, 64) if D > 64 else (128, 128)
    kernel[(triton.cdiv(T, M), H)](
        q, k, v, o, D**-0.5, T, D=D, M=M, N=N, num_warps=8 if D > 64 else 4, num_stages=3
    )
    return o
