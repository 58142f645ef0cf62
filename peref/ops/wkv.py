"""What the recurrences of RWKV-6 and RWKV-7 share: the decays of a chunk. They come as log w; `runs` as in
scan.py.
"""

from peref.ops.linear import transposed
from peref.ops.scan import breaks
from peref.xp import namespace

# exp of it is 0, so a log w below it can stand for it: large ones would drown the others in their sum
FORGOTTEN = -1000.0


def chunks(log_w, runs, chunk):
    """For each chunk of M tokens: its slice; which pairs share a state [B,1,M,M]; who goes on with the one
    handed in [B,1,M,1]; the sums of log w before and up to each token [B,H,M,K], in float64; the decays
    from each token to the end [B,H,M,K] and over the whole [B,H,K,1].
    """
    xp, T = namespace(log_w), log_w.shape[2]
    runs = xp.zeros((1, T), int) if runs is None else runs
    for start in range(0, T, chunk):
        cut = slice(start, min(start + chunk, T))
        pairs, begin, end, reaches = breaks(xp, runs, cut)
        c = xp.maximum(log_w[:, :, cut], FORGOTTEN).cumsum(2, dtype=xp.float64)
        before, total = xp.concatenate([xp.zeros_like(c[:, :, :1]), c[:, :, :-1]], 2), c[:, :, -1:]
        out_of = (xp.exp(total - c) * end[:, None, :, None]).astype(log_w.dtype)
        over = transposed((xp.exp(total) * reaches[:, None, :, None]).astype(log_w.dtype))
        yield cut, pairs[:, None], begin[:, None, :, None], before, c, out_of, over
