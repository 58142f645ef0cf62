"""Attention without anything of size T x S (kernels/attention.cu, attention_backward.cu), but where
positions are not consecutive: their table is read through an index, and its gradient made from that of the
logits.
"""

import math
from typing import Any

from peref.backends.cuda.arrays import THREADS, blocks, fit, real, repeated, stands, sum_parts, token_first
from peref.backends.cuda.launch import begin_compiling, has_wgmma, launch, variant
from peref.backends.cuda.reach import kept, reach
from peref.backends.cuda.tiles import BLOCK, OWN_ROWS, PAD, kind_of, width_of
from peref.errors import Misuse, counted
from peref.ops.cross import Cross
from peref.ops.shape import unbroadcast
from peref.tape import Op, Var
from peref.xp import namespace

FORWARD, BACKWARD = 16384, 8192  # BYTES of the kernels
LONG = 512  # queries from which on it pays to read all keys once, to know where to stop
# rows of the table in a block of by_index; pieces at most, of so many places
ROOM, PIECES, PLACES = 1024, 256, 4096
LINES = 64  # of the table's gradient, each of one block for a head


def attention_bytes(width: int, size: int, own: int, tiles: int, others: int, tile: int) -> int:
    """Shared memory of a kernel whose blocks have `own` rows, with `tiles` tiles of its side, `others` of
    the other, of at most `tile` bytes and as many rows.
    """
    return (tiles * own + others * min(own, tile // size // width)) * (width + PAD) * size


def forward_tiles(width: int, size: int, more: bool, wgmma: bool) -> tuple[int, int, int, int]:
    """Queries of a block of the forward pass, keys of a tile, threads, bytes of shared memory."""
    if wgmma:  # a warpgroup for each 64 queries, one that loads, and two stages of keys and values
        groups, span = 3 if width == 64 and not more else 2, 64 if width == 32 else 128
        own = groups * OWN_ROWS
        return own, span, (groups + 1) * BLOCK, (own + 4 * span) * width * size
    own = 2 * OWN_ROWS if size == 2 and width >= 64 and not more else OWN_ROWS
    return own, min(own, FORWARD // size // width), BLOCK, attention_bytes(width, size, own, 1, 2, FORWARD)


def strides(term: Any, shape: tuple[int, ...]) -> list[int]:
    """Of a contiguous array that stands beside one of `shape`, 0 along axes of size 1."""
    found, step = [], 1
    for n in reversed(term.shape):
        found.append(step if n > 1 else 0)
        step *= n
    return found[::-1]


def in_float64(x: Any, shape: tuple[int, ...]) -> Any:
    xp = namespace(x)
    return xp.ascontiguousarray(
        xp.broadcast_to(x.reshape(*x.shape[:2], -1).astype("float64", copy=False), shape)
    )


def added(
    q: Any, k: Any, v: Any, table: Any, term: Any, row: Any, column: Any, at: Any, scale: float
) -> tuple[Any, ...]:
    """What the kernels take after q, k and v: what is added to the logits, the sizes and the place."""
    xp, (B, H, T, D), (G, S), E = namespace(q), q.shape, k.shape[1:3], v.shape[3]
    host, index, nearest, N = at.host or at, None, 0, 0
    if table is not None:
        N = table.shape[1]
        table = repeated("attention: heads of q and rows of the table", table, (H, N))
        table = table.astype("float32", copy=False)
        if len(host.distances) > N:
            raise Misuse(
                f"attention: the table has {N} numbers for each head; expected one for each of "
                f"{len(host.distances)} distances"
            )
        if host.consecutive:
            nearest = int(host.distances[0])
        else:
            index = at.index[0] if at.index.ndim == 3 and len(at.index) == 1 else at.index
            fit("attention: sequences, queries and slots of positions", (B, T, S)[-index.ndim :], index.shape)
            index = xp.ascontiguousarray(index).astype("int32", copy=False)
    row = None if row is None else in_float64(row, (B, H, T))
    column = None if column is None else in_float64(column, (B, H, S))
    if term is not None:
        stands("attention: logits and term", term, (B, H, T, S))
        term = xp.ascontiguousarray(term)
    seg = at.seg
    if seg is not None:
        seg = repeated("attention: sequences and slots of k, and seg", seg, (B, S))
        seg = seg.astype("int64", copy=False)
    apart = [0] * 4 if term is None else strides(term, (B, H, T, S))
    by_sequence = T * S if index is not None and index.ndim == 3 else 0
    sizes = (H, G, T, S, D, E, N, nearest, at.causal, at.window or 0, by_sequence, *apart, scale)
    return table, index, term, row, column, seg, *sizes


def attention_forward(q, k, v, table, term, row, column, *, at, scale, tf32, skip):
    dtype, (B, H, T, D), (G, S), E = real("attention", q, k, v, term), q.shape, k.shape[1:3], v.shape[3]
    width, xp = width_of("attention", D, E), namespace(q, k, v)
    fit("attention: q and k", (B, at.T, at.S, D), (k.shape[0], T, S, k.shape[3]))
    fit("attention: k and v", k.shape[:3], v.shape[:3])
    if H % G:
        raise Misuse(f"attention: {counted(H, 'head')} of q over {G} of k; expected a multiple")
    tokens = [token_first(x) for x in (q, k, v)]
    rest = added(q, k, v, table, term, row, column, at, scale)
    o, lse = xp.empty((B, T, H, E), dtype), xp.empty((B, H, T), "float32")
    kind = kind_of(width, dtype, tf32)
    bare = table is not None and rest[1] is None and all(a is None for a in (term, row, column))
    more = {"MORE": 1} if any(a is not None for a in rest[1:6]) else {}
    wgmma, stop = dtype.itemsize == 2 and has_wgmma(xp, xp.cuda.Device().id), None
    own, span, block, shared = forward_tiles(width, dtype.itemsize, bool(more), wgmma)
    if skip and bare and at.causal and T >= LONG:
        stop = (*reach(xp, tokens[1], tokens[2], rest[0], span), span)
    given = (o, lse, *tokens, *rest, *(stop or (None, None, 0.0))[:3])
    how = {"real": dtype, "shared": shared, **kind, **more}
    launch("attention.forward", (blocks(T, own) * B, H), block, *given, **how)
    like = [None if a is None else (a.shape, a.dtype) for a in (table, term, row, column)]
    return o.swapaxes(1, 2), (tokens, o, lse, rest, stop, like, kind)


def attention_gradients(
    xp: Any, given: Any, B: int, dtype: Any, kind: Any, wants: Any, N: int, starts: Any, stops: Any
) -> Any:
    """dq, dk, dv, dterm [B,H,T,S], drow [B,H,T], dcolumn [B,H,S] and the shares of the table's gradient
    [lines,H,N], each None where it is not wanted; of dk and dv both or none.
    """
    q, k, v = given[3:6]
    (_, T, H, _), (S, G), width, size = q.shape, k.shape[1:3], kind["WIDTH"], dtype.itemsize
    more = {"MORE": 1} if any(a is not None for a in given[7:12]) or any(wants[2:5]) else {}
    wide = width * size > 256  # float32 heads: blocks make half of dk and dv, with one tile of the other side
    own = 2 * OWN_ROWS if size == 2 and width <= 64 and not more else OWN_ROWS
    shared = attention_bytes(width, size, own, 2, 2 if wide else 4, BACKWARD)
    if wants[5]:  # the warps' diagonals, twice
        shared += 2 * 16 * (own + 4 * min(own, BACKWARD // size // width))
    pieces = blocks(T, own) * B
    lines = min(pieces, LINES) if wants[5] else pieces
    made = [
        xp.empty_like(q) if wants[0] else None,
        *((xp.empty_like(k), xp.empty_like(v)) if wants[1] else (None, None)),
        xp.zeros((B, H, T, S), dtype) if wants[2] else None,
        xp.empty((B, H, T), "float64") if wants[3] else None,
        xp.empty((B, H, S), "float64") if wants[4] else None,
        xp.empty((lines, H, N), "float32") if wants[5] else None,
    ]
    keys = blocks(S, own) * B * G * (1 + wide) if wants[1] else 0
    queries = lines * H * any((wants[0], *wants[2:4], wants[5]))
    how = {"real": dtype, "shared": shared, **kind, **more}
    rest = (*given, starts, stops, B, keys, lines)
    launch("attention_backward.gradients", (keys + queries,), BLOCK, *made, *rest, **how)
    return made


def summed_by(x: Any, index: Any, N: int) -> Any:
    """[H,N] float32: x [B,H,T,S] added where index [T,S] or [B,T,S] is the same."""
    (B, H), M = x.shape[:2], math.prod(x.shape[2:])
    P = max(1, min(PIECES // B, blocks(M, PLACES)))
    parts = namespace(x).empty((B * P, H, N), "float32")
    given = (x, index, H, N, M, M if index.ndim == 3 else 0, P)
    launch("by_index.shares", (B * P, H, blocks(N, ROOM)), THREADS, parts, *given, real=x.dtype)
    return sum_parts("by_index", parts, "float32")


def attention_backward(saved, dy, wants):
    (q, k, v), o, lse, rest, stop, like, kind = saved
    (B, T, H, E), xp, dtype = o.shape, namespace(o), o.dtype
    table, term, row, column = (a is not None and want for a, want in zip(like, wants[3:], strict=True))
    index, N = rest[1], like[0][0][1] if table else 0
    y, delta = token_first(dy), xp.empty((B, H, T), "float32")
    rows = B * H * T
    grid, sizes = (blocks(rows, THREADS // 8),), (rows, H, T, E)
    launch("attention_backward.inner", grid, THREADS, delta, y, o, *sizes, real=dtype, **kind)
    given, by_index = (y, delta, lse, q, k, v, *rest), table and index is not None
    starts, stops = (None, None) if stop is None else kept(q, k, lse, delta, rest, stop)
    wanted = (wants[0], wants[1] or wants[2] or column, term or by_index, row, column, table and not by_index)
    dq, dk, dv, dterm, drow, dcolumn, parts = attention_gradients(
        xp, given, B, dtype, kind, wanted, N, starts, stops
    )
    found: list[Any] = [
        None,
        dterm.astype("float32", copy=False) if term else None,
        drow[..., None] if row else None,
        dcolumn[:, :, None] if column else None,
    ]
    if by_index:
        found[0] = summed_by(dterm, index, N)
    elif table:
        found[0] = sum_parts("attention_backward", parts, "float32", **kind)
    added = (
        None if g is None else unbroadcast(g, a[0]).astype(a[1], copy=False)
        for g, a in zip(found, like, strict=True)
    )
    return *(None if g is None else g.swapaxes(1, 2) for g in (dq, dk, dv)), *added


attend = Op(attention_forward, attention_backward, selective=True)


def attention(
    q,
    k,
    v,
    table=None,
    term=None,
    row=None,
    column=None,
    sinks=None,
    *,
    at,
    scale,
    softcap=None,
    tf32=False,
    skip=True,
):
    """As ops.attention.attention, for heads up to 128 wide, without sinks, softcap, chunks, global tokens and
    keys of another sequence.
    tf32: products of float32 numbers cut to 11 bits, for speed. skip=False: it goes through every key that
    somebody sees, also where no weight can matter.
    """
    lacks = {"sinks": sinks, "softcap": softcap, "chunk": at.parts, "global_tokens": at.everywhere}
    lacks |= {"keys of another sequence": True if isinstance(at, Cross) else None}
    for what, there in lacks.items():
        if there is not None:
            raise Misuse(f"attention: the kernels of cuda have no {what}; use --backend cupy or numba")
    if isinstance(q, Var):  # what backward will need is compiled beside what forward needs
        width = width_of("attention", max(q.shape[-1], v.shape[-1]))
        kind = variant(kind_of(width, q.dtype, tf32), q.dtype.name == "bfloat16")
        begin_compiling(namespace(q.value), "attention_backward", kind)
    return attend(q, k, v, table, term, row, column, at=at, scale=scale, tf32=tf32, skip=skip)
