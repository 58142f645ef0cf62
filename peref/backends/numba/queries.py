"""What attention does with a tile of logits: rows are keys, lanes are queries.

So what each query has for itself, its running maximum, its sums, the keys it sees, lies in vectors: nothing
is joined across lanes, and no row has a remainder. `low` and `high` [QUERIES] are the slots that a query
sees, from the first to one beyond the last; all see rows inner..outer of the tile, and only the others are
masked. Bound: exp, at about 7 multiply-adds a vector.
"""

from llvmlite import ir
from numba.extending import intrinsic

from peref.backends.numba.arrays import i8, void
from peref.backends.numba.emit import I32, I64, IVEC, constant, intrinsic_of, loop, whole_number
from peref.backends.numba.host import LANES

QUERIES = 32
PARTS = range(0, QUERIES, LANES)  # of a row, a vector each


def lanes_of(e, k):
    """The array argument k [QUERIES] in vectors."""
    return [e.load(e.at(k, ir.Constant(I64, part))) for part in PARTS]


def into_lanes(e, found, k):
    """Vectors into the array argument k [QUERIES]."""
    for part, x in zip(PARTS, found, strict=True):
        e.store(x, e.at(k, ir.Constant(I64, part)))


def in_row(e, k, at, row, j):
    """Pointers to the vectors of row j of the array argument k, whose first row begins at element `at`."""
    first = e.b.add(at, e.b.mul(j, row))
    return [e.at(k, e.b.add(first, ir.Constant(I64, part))) for part in PARTS]


def over_rows(e, low, high, key, inner, outer, count, body, *carried):
    """body(j, seen, *carried) -> carried for rows 0 .. count - 1, the first of which is of slot `key`. seen
    is None from row `inner` to `outer`, elsewhere a mask for each vector.
    """
    b = e.b
    firsts, stops = ([b.bitcast(x, IVEC) for x in lanes_of(e, k)] for k in (low, high))

    def masks(j):
        one = b.insert_element(
            ir.Constant(IVEC, ir.Undefined), b.trunc(b.add(key, j), I32), ir.Constant(I32, 0)
        )
        slot = b.shuffle_vector(one, ir.Constant(IVEC, ir.Undefined), whole_number(0))
        return [
            b.and_(b.icmp_signed("<=", first, slot), b.icmp_signed("<", slot, stop))
            for first, stop in zip(firsts, stops, strict=True)
        ]

    nothing = ir.Constant(I64, 0)
    for first, stop, whole in ((nothing, inner, False), (inner, outer, True), (outer, count, False)):

        def step(k, *state, first=first, whole=whole):
            j = b.add(first, k)
            return body(j, None if whole else masks(j), *state)

        carried = loop(e, b.sub(stop, first), 1, step, *carried)
    return carried


def unless_hidden(e, seen, part, x, otherwise):
    return x if seen is None else e.b.select(seen[part], x, constant(otherwise))


@intrinsic
def top_lanes(typingctx, s, at, key, inner, outer, count, low, high, top):
    """s = -inf in place where a query does not see the key; top [QUERIES] = the largest of a query's and what
    it has, NaN if one is.
    """

    def body(e):
        _, at, key, inner, outer, count, _, _, _ = e.args

        def step(j, seen, *tops):
            new = []
            row = in_row(e, 0, at, ir.Constant(I64, QUERIES), j)
            for part, (p, most) in enumerate(zip(row, tops, strict=True)):
                y = unless_hidden(e, seen, part, e.load(p), float("-inf"))
                if seen is not None:
                    e.store(y, p)
                new.append(e.larger(y, most))
            return new

        into_lanes(e, over_rows(e, 6, 7, key, inner, outer, count, step, *lanes_of(e, 8)), 8)

    return intrinsic_of(void, (s, i8, i8, i8, i8, i8, low, high, top), body)


@intrinsic
def exp_lanes(typingctx, s, at, count, new, top, total, less):
    """s = exp(s - new) in place for `count` rows, their sum added to total, which is multiplied first with
    less = exp(top - new); top = new. A query whose new is -inf has weights of 0. All but s [QUERIES].
    """

    def body(e):
        _, at, count, _, _, _, _ = e.args
        b, row = e.b, ir.Constant(I64, QUERIES)
        most = lanes_of(e, 3)
        lowest = constant(float("-inf"))
        off = [b.select(b.fcmp_ordered("==", x, lowest), constant(0), x) for x in most]
        by = [e.exp_of_less(b.fsub(x, y)) for x, y in zip(lanes_of(e, 4), off, strict=True)]

        def step(j, *sums):
            new = []
            for p, m, total in zip(in_row(e, 0, at, row, j), off, sums, strict=True):
                y = e.exp_of_less(b.fsub(e.load(p), m))
                e.store(y, p)
                new.append(b.fadd(total, y))
            return new

        sums = loop(e, count, 1, step, *(constant(0) for _ in PARTS))
        into_lanes(e, [e.fma(old, x, some) for old, x, some in zip(lanes_of(e, 5), by, sums, strict=True)], 5)
        into_lanes(e, most, 4)
        into_lanes(e, by, 6)

    return intrinsic_of(void, (s, i8, i8, new, top, total, less), body)


@intrinsic
def slope_lanes(typingctx, s, at, key, inner, outer, count, low, high, z, z_at, z_row, less, off):
    """s = exp(s - less), then z = s (z - off), in place, both 0 where a query does not see the key: P and
    dS, of the log of each query's sum and of <dO, O>, both [QUERIES]. Rows of z are z_row apart.
    """

    def body(e):
        _, at, key, inner, outer, count, _, _, _, z_at, z_row, _, _ = e.args
        b, below, mean = e.b, lanes_of(e, 11), lanes_of(e, 12)

        def step(j, seen):
            row = in_row(e, 0, at, ir.Constant(I64, QUERIES), j)
            places = zip(row, in_row(e, 8, z_at, z_row, j), below, mean, strict=True)
            for part, (p, d, m, o) in enumerate(places):
                y = e.exp_of_less(b.fsub(e.load(p), m))
                z = b.fmul(y, b.fsub(e.load(d), o))
                e.store(unless_hidden(e, seen, part, y, 0), p)
                e.store(unless_hidden(e, seen, part, z, 0), d)
            return []

        over_rows(e, 6, 7, key, inner, outer, count, step)

    return intrinsic_of(void, (s, i8, i8, i8, i8, i8, low, high, z, i8, i8, less, off), body)
