"""Products of matrices: one micro-kernel (tile.py), its right operand in panels, threads over blocks of rows.

C[M,N] = A[M,K] B[K,N]. A may have any strides, so A' needs no copy. B is cut into panels of COLUMNS columns,
each a run of contiguous rows: weights are packed into panels inside the call that uses them, an array whose
width is a whole number of panels serves as it is. K is taken in steps of DEPTH, so that a panel stays in the
first cache; the order of every sum is that of K, whatever the number of threads. Bound: the multiplier. A
tile does 2 ROWS COLUMNS operations for ROWS + COLUMNS numbers that it loads.

What comes from memory is called for a tile, or DEPTH, ahead, a line at each step of a sum: while it is waited
for no sum goes on, which was a fifth of the time at K = 128.

Tiles of A are read where they lie, but for the last, which may lack rows. With 8 lanes a step of K is too
short to wait for the second cache, and rows a power of two apart share few places of the first: so tiles of
A' are gathered first, a panel of B that lies as it is too, and B is packed where A has MANY rows, K or more.
"""

import numpy as np
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, reads, writes
from peref.backends.numba.host import COLUMNS, LANES, ROWS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.tile import add_prefetching, set_prefetching, tile_set
from peref.backends.numba.vector import copy, transpose_block

ROWS_AT_ONCE = (64 + ROWS - 1) // ROWS * ROWS  # rows that one thread takes at a time
DEPTH = 256
MANY = 512  # rows of A with which packing B pays where it could be read as it lies, with 8 lanes
LINE_BYTES = 64  # bytes of a line of the cache


@njit(**INNER)
def panels(N):
    return (N + COLUMNS - 1) // COLUMNS


@njit(**INNER)
def pack(b, p, out):
    """Panel p of b [K,N] into rows p K.. of out [panels K,COLUMNS], zeros beyond N."""
    K, N = b.shape
    first, apart = p * COLUMNS, b.strides[1] // 4
    width = min(COLUMNS, N - first)
    turned = K // LANES * LANES if b.strides[0] == 4 and width == COLUMNS else 0
    for k in range(0, turned, LANES):
        for n in range(0, COLUMNS, LANES):
            transpose_block(out, (p * K + k) * COLUMNS + n, COLUMNS, b, (first + n) * apart + k, apart)
    for k in range(turned, K):
        if apart == 1:
            copy(out, (p * K + k) * COLUMNS, b, k * (b.strides[0] // 4) + first, width)
        else:
            for n in range(width):
                out[p * K + k, n] = b[k, first + n]
        for n in range(width, COLUMNS):
            out[p * K + k, n] = 0


@intrinsic
def as_any(typingctx, x):
    """x to be read, of no known strides: all that take it are compiled once, whatever they are given, and
    LLVM makes no code of its own to gather contiguous rows.
    """

    def codegen(context, builder, sig, args):
        context.nrt.incref(builder, sig.return_type, args[0])
        return args[0]

    return x.copy(layout="A", readonly=True)(x), codegen


@njit(**INNER)
def tiles_of_rows(a, first, k, depth):
    """The rows of A from `first` on in `depth` columns from k on, as tiles [depth,ROWS] one below the other;
    the last row fills up.
    """
    M = len(a)
    tiles = (M - first + ROWS - 1) // ROWS
    out = np.empty((tiles * depth, ROWS), np.float32)
    # a column of A' lies in a line: by vectors, whose last numbers the next column overwrites
    by_vectors = max(0, (M - first - LANES) // ROWS + 1) if LANES == 8 and a.strides[0] == 4 else 0
    for n in range(depth - 1):
        at = first + (k + n) * (a.strides[1] // 4)
        for t in range(by_vectors):
            copy(out, (t * depth + n) * ROWS, a, at + t * ROWS, LANES)
    for t in range(tiles):
        for n in range(max(0, depth - 1) if t < by_vectors else 0, depth):
            for r in range(ROWS):
                out[t * depth + n, r] = a[min(first + t * ROWS + r, M - 1), k + n]
    return as_any(out)


@njit(**INNER)
def prefetched(p, a, a_at, b, b_at, panel, row, depth):
    """What the tiles of panel p call for while they sum: of the first the tile of A below (every line of it
    up to 340 columns, beyond that every other one or fewer), or of A' the rows that follow; of others the
    rows of B that follow, from the panel before. An address for the first tile, and in bytes how far apart
    those of tiles and of steps are. It is never read, and may lie beyond the array.
    """
    if p:
        return b.ctypes.data + 4 * (b_at - panel + depth * row), LINE_BYTES, 4 * row
    a_row, a_column = a.strides
    if a_column == 4:
        tile = ROWS * a_row
        return a.ctypes.data + 4 * a_at + tile, tile, (tile + depth - 1) // depth
    return a.ctypes.data + 4 * a_at + depth * a_column, ROWS * a_row, a_column


@njit(**INNER)
def strip(c, c_at, c_row, a, a_at, step, a_row, a_column, count, b, b_at, b_row, K, add, prefetch):
    """C (+)= A B for `count` tiles, one below the other; those of A are `step` apart. `prefetch`:
    what `prefetched` gives.
    """
    first, apart, by = prefetch
    for t in range(count):
        to, of, then = c_at + t * ROWS * c_row, a_at + t * step, first + t * apart
        if add:
            add_prefetching(c, to, c_row, a, of, a_row, a_column, b, b_at, b_row, K, then, by)
        else:
            set_prefetching(c, to, c_row, a, of, a_row, a_column, b, b_at, b_row, K, then, by)


@njit(**INNER)
def product_rows(c, a, b, panel):
    """C = A B for rows that are few; panel p of B starts at element p panel. A and B `as_any`."""
    (M, K), N = a.shape, c.shape[1]
    whole, tiles = M // ROWS, (M + ROWS - 1) // ROWS
    a_row, a_column, b_row = a.strides[0] // 4, a.strides[1] // 4, b.strides[0] // 4
    out = np.empty((ROWS, COLUMNS), np.float32)
    gathers = LANES == 8 and panel == COLUMNS and M > 8 * ROWS
    right = as_any(np.empty((DEPTH, COLUMNS), np.float32)) if gathers else b
    row = COLUMNS if gathers else b_row
    for k in range(0, max(K, 1), DEPTH):  # where K is 0, sums of nothing
        depth, of = min(DEPTH, K - k), k * a_column
        lie = 0 if LANES == 8 and a_column != 1 else whole
        copied = tiles_of_rows(a, lie * ROWS, k, depth)
        for p in range(panels(N)):
            n, at = p * COLUMNS, p * panel + k * b_row
            inside = whole
            if n + COLUMNS > N:
                inside = 0
                if lie:
                    lie = 0
                    copied = tiles_of_rows(a, lie * ROWS, k, depth)  # a literal 0 would compile it again
            add, prefetch = k > 0, prefetched(p, a, of, b, at, panel, b_row, depth)
            if gathers:
                for i in range(depth):
                    copy(right, i * COLUMNS, b, at + i * b_row, COLUMNS)
                at = 0
            left, begin, step, apart, beside = copied, 0, ROWS * depth, 1, ROWS
            if lie:
                left, begin, step, apart, beside = a, of, ROWS * a_row, a_row, a_column
            strip(c, n, N, left, begin, step, apart, beside, inside, right, at, row, depth, add, prefetch)
            for t in range(inside, tiles):
                tile_set(out, 0, COLUMNS, copied, (t - lie) * ROWS * depth, 1, ROWS, right, at, row, depth)
                place(c, t * ROWS, min((t + 1) * ROWS, M), n, out, k == 0)


@njit(**INNER)
def place(c, first, stop, n, out, new):
    """The part of a tile that lies inside C, set or added."""
    for m in range(first, stop):
        for k in range(min(COLUMNS, c.shape[1] - n)):
            c[m, n + k] = out[m - first, k] + (0 if new else c[m, n + k])


@njit(**INNER)
def pack_one(unit, b, packed):
    many = panels(b.shape[2])
    pack(b[unit // many], unit % many, packed[unit // many])


@njit(**INNER)
def multiply_one(unit, c, a, b, more, panel):
    M = a.shape[1]
    blocks = (M + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE
    i, first = unit // blocks, unit % blocks * ROWS_AT_ONCE
    stop = min(M, first + ROWS_AT_ONCE)
    product_rows(c[i, first:stop], as_any(a[i, first:stop]), as_any(b[i]), panel)
    if len(more):
        for m in range(first, stop):
            to, of = c[i, m], more[i, m]
            for n in range(len(to)):
                to[n] += of[n]


@kernel(writes(3), reads(3), reads(3), c_reads(3))
def multiply(c, a, b, more):
    """c [n,M,N] = a [n,M,K] b [n,K,N] + more [n,M,N], which has no elements where there is none. b in whole
    panels with contiguous rows is read as it is, but for many rows of a with 8 lanes, else packed.
    """
    n, M, K = a.shape
    N = b.shape[2]
    as_it_is = N % COLUMNS == 0 and b.strides[2] == 4 and b.strides[1] > 0
    as_it_is = as_it_is and (LANES != 8 or M < K or M < MANY)
    panel = COLUMNS if as_it_is else K * COLUMNS
    packed = np.empty((0 if as_it_is else n, panels(N) * K, COLUMNS), np.float32)
    in_parallel(pack_one, len(packed) * panels(N), (b, packed))
    in_parallel(
        multiply_one,
        n * ((M + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE),
        (c, a, b if as_it_is else packed, more, panel),
    )
