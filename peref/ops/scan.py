"""State over tokens: where it breaks, and the short convolution, which takes the state handed in and returns
the last one.

`runs` [B,T] says where the state is forgotten (ops/place.py): tokens of equal number share it, 0 goes on with
the state handed in, -1 is padding. None: one run.
"""

from typing import Any

from peref.ops.join import stacked
from peref.ops.shape import add
from peref.tape import Op
from peref.xp import namespace


def short_conv_forward(x, w, state, runs):
    """y_t = sum over m of w[:, K-1-m] x_(t-m), for each channel by itself, [B,T,C], and the last K-1 inputs,
    [B,K-1,C], for the next call: x [B,T,C], w [C,K], state [B,K-1,C] or None, runs [B,T] or None.
    """
    xp = namespace(x)
    (B, T, C), K = x.shape, w.shape[1]
    past = xp.zeros((B, K - 1, C), x.dtype) if state is None else state
    now = xp.zeros((B, T), int) if runs is None else runs
    run = xp.concatenate([xp.zeros((B, K - 1), int), now], 1)  # columns of the state handed in are of run 0
    line = xp.concatenate([past, x], 1)
    shares = [((run[:, k : k + T] == now) & (now >= 0))[..., None] for k in range(K)]
    y = xp.zeros_like(x)
    for k, share in enumerate(shares):
        y = y + xp.where(share, line[:, k : k + T], 0) * w[:, k]
    kept = ((run[:, T:] == run[:, -1:]) & (run[:, -1:] >= 0))[..., None]
    return y, (line, w, shares, kept, state is not None), xp.where(kept, line[:, T:], 0)


def short_conv_backward(saved, dy, dlast=None):
    """The gradients of x [B,T,C], w [C,K] and the state [B,K-1,C] or None; dlast [B,K-1,C] is that of the
    inputs handed on.
    """
    line, w, shares, kept, stateful = saved
    xp = namespace(dy)
    T, K = dy.shape[1], w.shape[1]
    dline, dw = xp.zeros_like(line), []
    for k, share in enumerate(shares):
        dtap = xp.where(share, dy, 0)
        dline[:, k : k + T] += dtap * w[:, k]
        dw.append((dtap * line[:, k : k + T]).sum((0, 1)))
    if dlast is not None:
        dline[:, T:] += xp.where(kept, dlast, 0)
    return dline[:, K - 1 :], stacked(dw, 1), dline[:, : K - 1] if stateful else None, None


short_conv = Op(short_conv_forward, short_conv_backward, state=True)


def initial_taps(rng: Any, channels: int, kernel: int) -> Any:
    """Where the weights of a short convolution start, [channels,kernel]."""
    return kernel**-0.5 * rng.uniform(-1.0, 1.0, (channels, kernel))


def convolved(be: Any, p: Any, role: str, x: Any, state: Any, runs: Any) -> Any:
    """The short convolution of W x, with its bias where there is one, [B,T,E], and its last state: x [B,T,C],
    W p["ROLE.weight"] [E,C], taps p["ROLE.conv"] [E,K], bias p["ROLE.conv.bias"] [E].
    """
    line = be.linear(x, p[f"{role}.weight"], None)
    line, last = be.recurrence("short_conv", short_conv)(line, p[f"{role}.conv"], state.get(role), runs)
    bias = p.get(f"{role}.conv.bias")
    return line if bias is None else add(line, bias), last


def follows(runs):
    """Whether each token goes on with the state of the one before it, the first with the one handed in;
    bool [B,T].
    """
    xp = namespace(runs)
    return (runs == xp.concatenate([xp.zeros_like(runs[:, :1]), runs[:, :-1]], 1)) & (runs >= 0)


def breaks(xp, runs, cut):
    """Of the tokens in the slice `cut`, bool: which pairs share a state [B,M,M], which go on with the one
    handed to them and which hand theirs on [B,M], whether it goes through all of them [B,1].
    """
    r = runs[:, cut]
    first = runs[:, cut.start - 1 : cut.start] if cut.start else xp.zeros((len(runs), 1), int)
    last, alive = r[:, -1:], r >= 0
    return (
        (r[:, :, None] == r[:, None, :]) & alive[:, :, None],
        (r == first) & alive,
        (r == last) & alive,
        (last == first) & alive[:, -1:],
    )
