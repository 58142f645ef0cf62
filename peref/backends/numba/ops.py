"""The ops that the numba backend fills: each is called like its plain twin and computes every call in float32, or refuses in words."""

import math
from typing import Any

import numpy as np

from peref.backends.numba.host import kernels
from peref.errors import Misuse
from peref.ops.shape import unbroadcast
from peref.ops.turn import as_given, pairs
from peref.tape import Op

NOTHING = np.zeros((1, 1, 1, 0), np.float32)


def float32(what: str, *arrays: Any) -> None:
    for a in arrays:
        if a is not None and a.dtype != np.float32:
            raise Misuse(f"{what}: the numba backend computes in float32 and got {a.dtype}; use --backend numpy (peref.backends.get('numpy'))")


def fit(what: str, *shapes: Any) -> None:
    """Kernels do not look where an array ends."""
    if len({tuple(shape) for shape in shapes}) > 1:
        raise Misuse(f"{what}: sizes {' and '.join(str(list(shape)) for shape in shapes)} do not fit; expected equal ones")


# ---------------------------------------------------------------- products


def times(a: Any, b: Any) -> Any:
    """a [...,M,K] b [...,K,N], leading axes broadcast."""
    fit("a product", a.shape[-1:], b.shape[-2:-1])
    if b.shape[-1] == 1 and a.shape[-2] > 1 and a.strides[-1] != 4:  # C' = B' A': A' lies in rows
        return times(b.swapaxes(-1, -2), a.swapaxes(-1, -2)).swapaxes(-1, -2)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    c = np.empty((*lead, a.shape[-2], b.shape[-1]), np.float32)
    many = math.prod(lead)
    flat = (np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(many, *x.shape[-2:]) for x in (a, b))
    if c.shape[-1] == 1:
        a, b = map(np.ascontiguousarray, flat)
        kernels("token").column(c.reshape(many, -1), a, b.reshape(many, -1))
    else:
        kernels("matrix").multiply(c.reshape(many, *c.shape[-2:]), *flat)
    return c


def matmul_forward(a, b):
    float32("matmul", a, b)
    return times(a, b), (a, b)


def matmul_backward(saved, dy):
    a, b = saved
    return unbroadcast(times(dy, b.swapaxes(-1, -2)), a.shape), unbroadcast(times(a.swapaxes(-1, -2), dy), b.shape)


matmul = Op(matmul_forward, matmul_backward)


def as_rows(x):
    """[...,C] as [M,C], also where M or C is 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


FEW = 8  # rows below which a tile of the matrix kernel would be mostly empty


def linear_forward(x, w, b):
    float32("linear", x, w, b)
    fit("linear: channels of x and columns of w", x.shape[-1:], w.shape[1:])
    rows = as_rows(x)
    if len(rows) < FEW:
        y = np.empty((len(rows), len(w)), np.float32)
        kernels("token").few(y, np.ascontiguousarray(rows), np.ascontiguousarray(w))
    else:
        y = times(rows, w.T)
    if b is not None:
        y += b
    return y.reshape(*x.shape[:-1], len(w)), (x, w, b is not None)


def linear_backward(saved, dy):
    x, w, biased = saved
    dy = as_rows(dy)
    return times(dy, w).reshape(x.shape), times(dy.T, as_rows(x)), dy.sum(0) if biased else None


linear = Op(linear_forward, linear_backward)


def filled(like, *arrays):
    """Contiguous; in place of None one of the same number of axes without elements."""
    return [np.zeros((0,) * n, np.float32) if a is None else np.ascontiguousarray(a) for n, a in zip(like, arrays, strict=True)]


def activated_linear_forward(up, gate, w, b, residual):
    float32("activated_linear", up, gate, w, b, residual)
    fit("activated_linear: up and gate", up.shape, up.shape if gate is None else gate.shape)
    fit("activated_linear: channels of up and columns of w", up.shape[-1:], w.shape[1:])
    shape = (*up.shape[:-1], len(w))
    fit("activated_linear: y and residual", shape, shape if residual is None else residual.shape)
    up, gate = as_rows(up), None if gate is None else as_rows(gate)
    absent = gate is None, b is None, residual is None
    up, gate, b, residual = filled((2, 2, 1, 2), up, gate, b, None if residual is None else as_rows(residual))
    y = np.empty((len(up), len(w)), np.float32)
    if len(up) < FEW:
        kernels("feed").few(y, up, gate, np.ascontiguousarray(w), b, residual)
    else:
        kernels("feed").forward(y, up, gate, w.T, b, residual)
    return y.reshape(shape), (up, gate, w, absent)


def activated_linear_backward(saved, dy):
    up, gate, w, (no_gate, no_bias, no_residual) = saved
    flat_dy = np.ascontiguousarray(as_rows(dy))
    dup, dgate, h = np.empty_like(up), np.empty_like(gate), np.empty_like(up)
    kernels("feed").backward(dup, dgate, h, flat_dy, up, gate, w)
    shape = (*dy.shape[:-1], w.shape[1])
    gradients = dup.reshape(shape), None if no_gate else dgate.reshape(shape), times(flat_dy.T, h)
    return *gradients, None if no_bias else flat_dy.sum(0), None if no_residual else dy


activated_linear = Op(activated_linear_forward, activated_linear_backward)


# ---------------------------------------------------------------- attention


def read(table, at):
    """The table for the kernels, [H,N] float32, ascending in slots where positions are consecutive; the index [1 or B,T,S] where they are not;
    and where slot 0 of query 0 is."""
    if table is None:
        return np.zeros((1, 0), np.float32), np.zeros((1, 1, 0), np.int32), 0
    table = table.astype(np.float32)
    if at.consecutive:
        first = int(at.distances[0]) + len(at.distances) - 1
        return np.ascontiguousarray(table[:, ::-1]), np.zeros((1, 1, 0), np.int32), first - (at.S - at.T)
    index = at.index.astype(np.int32)
    return np.ascontiguousarray(table), index if index.ndim == 3 else index[None], 0


def wide(row, column):
    """row and column as float64 [.,.,.]; one that is absent beside the other is 0, both absent are empty."""
    if row is None and column is None:
        return np.zeros((1, 1, 1)), np.zeros((1, 1, 0))
    row, column = (np.zeros((1, 1, 1, 1)) if x is None else x.astype(np.float64) for x in (row, column))
    return np.ascontiguousarray(row[..., 0]), np.ascontiguousarray(column[:, :, 0])


def limit_of(S, skip, term, *arrays):
    """How far below a row's maximum a logit does not matter: S weights of 2^-26 / S add up to a quarter of a float32 unit. -inf: all matter."""
    finite = skip and term is None and all(a is None or np.isfinite(a).all() for a in arrays)
    return np.float32(-math.log(2.0**26 * S) if finite else -math.inf)


def attention_forward(q, k, v, table, term, row, column, *, at, scale, skip):
    float32("attention", q, k, v, term)
    (B, H, T, _), E = q.shape, v.shape[3]
    o, lse = np.empty((B, T, H, E), np.float32), np.empty((B, H, T), np.float32)
    added = (*read(table, at), NOTHING if term is None else term, *wide(row, column), at.spans, np.float32(scale))
    added = (*added, limit_of(k.shape[2], skip, term, k, v, table, row, column))
    kernels("attention").forward(o, lse, q, k, v, *added)
    like = [None if a is None else (a.shape, a.dtype) for a in (table, term, row, column)]
    return o.swapaxes(1, 2), (q, k, v, o, lse, added, like, at.consecutive)


def attention_backward(saved, dy, wants):
    q, k, v, o, lse, added, like, consecutive = saved
    (B, H, T, _), S = q.shape, k.shape[2]
    asked = [a is not None and want for a, want in zip(like, wants[3:], strict=True)]
    dq, dk, dv = (np.empty_like(a.swapaxes(1, 2), order="C") for a in (q, k, v))
    dtable = np.zeros((B, H, like[0][0][1] if asked[0] else 0))
    dterm = np.zeros((B, H, T, S if asked[1] else 0), np.float32)
    drow, dcolumn = np.zeros((B, H, T if asked[2] else 0)), np.zeros((B, H, S if asked[3] else 0))
    kernels("attention").backward(dq, dk, dv, dtable, dterm, drow, dcolumn, dy.swapaxes(1, 2), o, q, k, v, lse, *added)
    table = dtable.sum(0)[:, :: -1 if consecutive else 1]
    found = [table, dterm, drow[..., None], dcolumn[:, :, None]]
    given = [unbroadcast(g, a[0]).astype(a[1]) if want else None for g, a, want in zip(found, like, asked, strict=True)]
    return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2), *given


attend = Op(attention_forward, attention_backward, selective=True)


def attention(q, k, v, table=None, term=None, row=None, column=None, *, at, scale, skip=True):
    """As ops.attention.attention, without anything of size T x S. skip=False visits every tile that somebody sees (attention.py)."""
    return attend(q, k, v, table, term, row, column, at=at, scale=scale, skip=skip)


# ---------------------------------------------------------------- rows


def flat(x):
    """x as contiguous rows, [M,C]."""
    return as_rows(np.ascontiguousarray(x))


def rms_norm_forward(x, w, *, eps):
    float32("rms_norm", x, w)
    fit("rms_norm: channels of x, and w", x.shape[-1:], x.shape[-1:] if w is None else w.shape)
    a, scale = flat(x), np.ones(x.shape[-1], np.float32) if w is None else line(w)
    y, r = np.empty_like(a), np.empty(len(a), np.float32)
    normed = kernels("token").few_normed if len(a) < FEW else kernels("rows").rms_norm
    normed(y, r, a, scale, np.float32(eps))
    return y.reshape(x.shape), (a, r, scale, w is not None)


def rms_norm_backward(saved, dy):
    x, r, w, scaled = saved
    dx, dw = np.empty_like(x), np.empty_like(w)
    kernels("rows").rms_norm_backward(dx, dw, flat(dy), x, r, w)
    return dx.reshape(dy.shape), dw if scaled else None


rms_norm = Op(rms_norm_forward, rms_norm_backward)


def layer_norm_forward(x, w, b, *, eps):
    float32("layer_norm", x, w, b)
    fit("layer_norm: channels of x, w and b", x.shape[-1:], *(a.shape for a in (w, b) if a is not None))
    a, C = flat(x), x.shape[-1]
    scale, offset = np.ones(C, np.float32) if w is None else line(w), np.zeros(C, np.float32) if b is None else line(b)
    y, u, r = np.empty_like(a), np.empty_like(a), np.empty(len(a), np.float32)
    kernels("rows").layer_norm(y, u, r, a, scale, offset, np.float32(eps))
    return y.reshape(x.shape), (u, r, scale, w is not None, b is not None)


def layer_norm_backward(saved, dy):
    u, r, w, scaled, biased = saved
    dx, dw, db = np.empty_like(u), np.empty_like(w), np.empty_like(w)
    kernels("rows").layer_norm_backward(dx, dw, db, flat(dy), u, r, w)
    return dx.reshape(dy.shape), dw if scaled else None, db if biased else None


layer_norm = Op(layer_norm_forward, layer_norm_backward)


def line(x):
    return np.ascontiguousarray(x).reshape(-1)


def swiglu_forward(gate, up):
    float32("swiglu", gate, up)
    fit("swiglu: gate and up", gate.shape, up.shape)
    g, u = line(gate), line(up)
    y = np.empty_like(g)
    kernels("rows").swiglu(y, g, u)
    return y.reshape(gate.shape), (g, u)


def swiglu_backward(saved, dy):
    dgate, dup = np.empty_like(saved[0]), np.empty_like(saved[1])
    kernels("rows").swiglu_backward(dgate, dup, line(dy), *saved)
    return dgate.reshape(dy.shape), dup.reshape(dy.shape)


swiglu = Op(swiglu_forward, swiglu_backward)


def gelu_forward(x):
    float32("gelu", x)
    a = line(x)
    y = np.empty_like(a)
    kernels("rows").gelu(y, a)
    return y.reshape(x.shape), a


def gelu_backward(x, dy):
    dx = np.empty_like(x)
    kernels("rows").gelu_backward(dx, line(dy), x)
    return (dx.reshape(dy.shape),)


gelu = Op(gelu_forward, gelu_backward)


def cross_entropy_forward(logits, targets):
    float32("cross_entropy", logits)
    a, t = flat(logits), np.ascontiguousarray(targets, np.int64).reshape(-1)
    if t.size and t.max() >= a.shape[1]:
        raise Misuse(f"cross_entropy: a target is {t.max()}; expected less than the vocabulary of {a.shape[1]}")
    p, nll = np.empty_like(a), np.empty(len(a), np.float32)
    kernels("rows").cross_entropy(p, nll, a, t)
    count = max(int((t >= 0).sum()), 1)
    return np.float32(nll.sum(dtype=np.float64) / count), (p, t, count, logits.shape), nll.reshape(targets.shape)


def cross_entropy_backward(saved, dy):
    p, t, count, shape = saved
    d = np.empty_like(p)
    kernels("rows").cross_entropy_backward(d, p, t, np.float32(dy / count))
    return d.reshape(shape), None


cross_entropy = Op(cross_entropy_forward, cross_entropy_backward, extra=True)


def take_forward(table, index):
    float32("take", table)
    if table.ndim != 2:
        raise Misuse(f"take: the table is {list(table.shape)}; expected rows, [V,C]")
    t, n = flat(table), np.ascontiguousarray(index, np.int64).reshape(-1)
    if n.size and not (n.min() >= 0 and n.max() < len(t)):
        raise Misuse(f"take: rows {n.min()} to {n.max()} of a table that has {len(t)}")
    if len(n) < FEW:
        y = t[n]
    else:
        y = np.empty((len(n), t.shape[1]), np.float32)
        kernels("rows").take(y, t, n)
    return y.reshape(*index.shape, -1), (t.shape, n)


def take_backward(saved, dy):
    shape, n = saved
    dtable = np.empty(shape, np.float32)
    starts = np.concatenate([[0], np.bincount(n, minlength=shape[0]).cumsum()])
    kernels("rows").take_backward(dtable, flat(dy), np.argsort(n, kind="stable"), starts)
    return dtable, None


take = Op(take_forward, take_backward)


def cos_sin(angle, gain):
    """Made in float64, gained, and cast once."""
    g = 1.0 if gain is None else np.broadcast_to(gain, np.broadcast_shapes(gain.shape, angle.shape))
    return tuple(np.ascontiguousarray(f(angle) * g, np.float32) for f in (np.cos, np.sin))


def turned(x, angle, gain, layout, sign):
    """x turned by sign times the angles, and gained."""
    B, H, T, D = x.shape
    cos, sin = cos_sin(angle, gain)
    y = np.empty((B, T, H, D), np.float32)
    lead = (1,) * (3 - cos.ndim)
    kernels("rows").turn(y, x, cos.reshape(lead + cos.shape), (sign * sin).reshape(lead + sin.shape), layout == "half")
    return y.swapaxes(1, 2)


def turn_forward(x, angle, gain, *, layout):
    float32("turn", x)
    y = turned(x, angle, gain, layout, 1)
    return y, (x, y, angle, gain, layout)


def turn_backward(saved, dy, wants):
    x, y, angle, gain, layout = saved
    half = angle.shape[-1]
    (da, db), (ya, yb) = pairs(dy, half, layout), pairs(y, half, layout)
    dx = turned(dy, angle, gain, layout, -1) if wants[0] else None
    dangle = as_given(db * ya - da * yb, angle) if wants[1] else None
    dgain = None
    if wants[2] and gain is not None:
        plain = pairs(turned(x, angle, None, layout, 1), half, layout)
        dgain = as_given(da * plain[0] + db * plain[1], gain)
    return dx, dangle, dgain


turn = Op(turn_forward, turn_backward, selective=True)


# ---------------------------------------------------------------- one token

NO_VECTOR, NO_MATRIX = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
NO_TURN = (NO_VECTOR,) * 4
NONE = [NO_MATRIX if n == 16 else NO_VECTOR for n in range(22)]  # of all weights that may be absent one is a matrix, the gate


def laid(rotation, table, at):
    """The first and one beyond the last slot that the query sees, cos and sin for q and for k, and what `table` [H,N] adds for these slots."""
    first, stop = at.spans[0, 0].tolist()
    turns = [a.reshape(-1) for gain in rotation[1:] for a in cos_sin(rotation[0], gain)] if rotation else NO_TURN
    if table is None:
        return first, stop, *turns, NO_MATRIX
    if at.consecutive:
        nearest = at.S - int(at.distances[0])  # slot s is at distance S - 1 - s, and distances[0] stands in column 0
        seen = table[:, nearest - stop : nearest - first][:, ::-1]
    else:
        seen = table[:, at.index.reshape(-1)[first:stop]]
    return first, stop, *turns, np.ascontiguousarray(seen, np.float32)


def token(x, weights, keys, values, rotation, table, *, at, made, scale, norm, eps, layout):
    """One layer of the model for one token x [1,1,C], whose key and value go into slot at.S - 1 of keys and values [1,G,room,D].

    weights are in the order of model.names_of, None where the model has none; rotation: (angle, gain_q, gain_k) or None; table [H,N] of
    distances or None. `made` keeps what layers share for the call.
    """
    key = (laid, id(rotation), id(table))
    if key not in made:
        made[key] = rotation, table, laid(rotation, table, at)
    first, stop, *place = made[key][2]
    y, layer = x.reshape(-1).copy(), kernels("token").layer
    place = (y, keys[0], values[0], at.S - 1, first, stop, *place, np.float32(scale), layout == "half", np.float32(eps), norm == "layer")
    try:
        layer(*place, *(none if a is None else a for a, none in zip(weights, NONE, strict=True)))
    except TypeError:  # not as the kernel takes them: refused in words, or made so
        float32("token", x, keys, values, *weights)
        layer(*place, *(none if a is None else np.ascontiguousarray(a) for a, none in zip(weights, NONE, strict=True)))
    return y.reshape(x.shape)


# ---------------------------------------------------------------- state over tokens


def retention_forward(q, k, v, state, runs, *, log_decay, chunk, scale, matmul=None):
    """As ops.scan.retention; the result does not depend on `chunk`, which is the kernel's own here, and products are its own too."""
    float32("retention", q, k, v, state)
    kernel = kernels("scan")
    (B, H, T, D), E = q.shape, v.shape[3]
    wide, high = (-(-n // kernel.COLUMNS) * kernel.COLUMNS for n in (E, D))
    states = np.zeros((B, H, -(-T // kernel.CHUNK) + 1, high, wide), np.float32)
    if state is not None:
        states[:, :, 0, :D, :E] = state
    line = np.zeros((B, T), np.int64) if runs is None else np.ascontiguousarray(runs, np.int64)
    powers = np.exp(log_decay[:, None] * np.arange(kernel.CHUNK + 1)).astype(np.float32)
    o = np.empty((B, T, H, E), np.float32)
    kernel.retention(o, states, q, k, v, line, powers, np.float32(scale))
    return o.swapaxes(1, 2), (q, k, v, states, line, powers, scale, state is not None), states[:, :, -1, :D, :E].copy()


def retention_backward(saved, dy):
    q, k, v, states, line, powers, scale, stateful = saved
    D, E = q.shape[3], v.shape[3]
    dq, dk, dv = (np.empty_like(a.swapaxes(1, 2), order="C") for a in (q, k, v))
    ds = np.empty_like(states[:, :, 0], order="C")
    kernels("scan").retention_backward(dq, dk, dv, ds, dy.swapaxes(1, 2), states, q, k, v, line, powers, np.float32(scale))
    return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2), ds[:, :, :D, :E] if stateful else None, None


retention = Op(retention_forward, retention_backward, extra=True)


# ---------------------------------------------------------------- optimizer


def adamw(p, g, m, v, rate, step, shrink=None, *, beta1, beta2, eps, decay):
    """As optim.adamw, in place on p, m and v."""
    float32("adamw", p, g, m, v)
    if not all(a.flags.c_contiguous for a in (p, m, v)):
        raise Misuse("adamw: parameters and moments are changed in place and must be C-contiguous; make them so with numpy.ascontiguousarray")
    if shrink is not None:
        if not shrink > 0:
            return
        g = g * np.float32(shrink) if shrink < 1 else g
    first, second = 1 - beta1 ** float(step), 1 - beta2 ** float(step)
    numbers = (np.float32(x) for x in (rate, first, second, beta1, beta2, eps, decay))
    kernels("rows").adamw(p.reshape(-1), line(g), m.reshape(-1), v.reshape(-1), *numbers)
