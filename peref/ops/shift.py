"""The token before, and what lies between two arrays: the token shift of RWKV. `runs` as in scan.py."""

from peref.ops.scan import follows
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def previous_forward(x, state, runs):
    """Row t of x [B,T,C] is row t-1, [B,T,C], and the last row, [B,1,C], for the next call: state [B,1,C] is
    the last row of the call before, None for 0; runs [B,T] or None. 0 at the first token of a run.
    """
    xp = namespace(x)
    first, last = xp.zeros_like(x[:, :1]) if state is None else state, x[:, -1:]
    y, share = xp.concatenate([first, x[:, :-1]], 1), None
    if runs is not None:
        share = follows(runs)[..., None]
        y, last = xp.where(share, y, 0), xp.where(runs[:, -1:, None] >= 0, last, 0)
    return y, (share, None if runs is None else runs[:, -1:, None] >= 0, state is not None), last


def previous_backward(saved, dy, dlast=None):
    """The gradients of x [B,T,C], dy one row earlier, and of the state [B,1,C] or None; dlast [B,1,C] is that
    of the row handed on.
    """
    share, alive, stateful = saved
    xp = namespace(dy)
    dy = dy if share is None else xp.where(share, dy, 0)
    end = xp.zeros_like(dy[:, :1]) if dlast is None else dlast if alive is None else xp.where(alive, dlast, 0)
    return xp.concatenate([dy[:, 1:], end], 1), dy[:, :1] if stateful else None, None


previous = Op(previous_forward, previous_backward, state=True)


def lerp_forward(a, b, m):
    """a + (b - a) m: a where m is 0, b where it is 1: a and b [...,C], m [C] or [...,C]."""
    return a + (b - a) * m, (a, b, m)


def lerp_backward(saved, dy):
    """The gradients of a, dy (1 - m), of b, dy m, both [...,C], and of m in its shape, dy (b - a)."""
    a, b, m = saved
    db = dy * m
    return dy - db, db, unbroadcast(dy * (b - a), m.shape)


lerp = Op(lerp_forward, lerp_backward)
