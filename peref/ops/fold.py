"""A line of tokens as overlapping pieces, and pieces as a line again: attention over a window in pieces costs no square."""

from peref.ops.join import stacked
from peref.tape import Op
from peref.xp import namespace


def laid_out(S, tokens, chunk, back):
    """How many pieces there are, which slots of S they are made of, and where on the padded line these lie."""
    behind = min(back, S - tokens)
    return -(-tokens // chunk), slice(S - tokens - behind, S), slice(back - behind, back + tokens)


def fold_forward(x, *, tokens, chunk, back):
    # [B,G,S,D]; the last `tokens` of S, `chunk` by `chunk`, each piece with the `back` slots before it; zeros where there are none
    xp = namespace(x)
    B, G, S, D = x.shape
    n, slots, place = laid_out(S, tokens, chunk, back)
    line = xp.zeros((B, G, back + n * chunk, D), x.dtype)
    line[:, :, place] = x[:, :, slots]  # 1
    pieces = [line[:, :, c * chunk : (c + 1) * chunk + back] for c in range(n)]  # 2
    return stacked(pieces, 1).reshape(B * n, G, chunk + back, D), (x.shape, tokens, chunk, back)


def fold_backward(saved, dy):
    (B, G, S, D), tokens, chunk, back = saved
    xp = namespace(dy)
    n, slots, place = laid_out(S, tokens, chunk, back)
    pieces = dy.reshape(B, n, G, chunk + back, D)
    line = xp.zeros((B, G, back + n * chunk, D), dy.dtype)
    for c in range(n):
        line[:, :, c * chunk : (c + 1) * chunk + back] += pieces[:, c]  # 2
    dx = xp.zeros((B, G, S, D), dy.dtype)
    dx[:, :, slots] = line[:, :, place]  # 1
    return (dx,)


fold = Op(fold_forward, fold_backward)


def unfold_forward(y, *, tokens, rows):  # [B n,H,chunk,D] -> [B,H,tokens,D]: pieces that do not overlap, B = rows
    _, H, chunk, D = y.shape
    line = y.reshape(rows, -1, H, chunk, D).swapaxes(1, 2).reshape(rows, H, -1, D)
    return line[:, :, :tokens], chunk


def unfold_backward(chunk, dy):
    return (fold_forward(dy, tokens=dy.shape[2], chunk=chunk, back=0)[0],)


unfold = Op(unfold_forward, unfold_backward)
