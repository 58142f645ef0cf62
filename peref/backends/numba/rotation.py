"""Pairs of channels turned. Bound: memory; what is too large to stay in the cache is written past it."""

from numba.extending import intrinsic

from peref.backends.numba.emit import each, i8, made, number, void


def turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, past_cache):
    def body(e):
        _, x_at, _, y_at, _, _, at, n = e.args

        def step(k, mask):
            a, b = e.b.add(x_at, k), e.b.add(y_at, k)
            places = e.at(0, a), e.at(0, e.b.add(a, n)), e.at(4, e.b.add(at, k)), e.at(5, e.b.add(at, k))
            one, two, c, s = (e.load(p) if mask is None else e.load_some(p, mask, number(0)) for p in places)
            first = e.b.fsub(e.b.fmul(one, c), e.b.fmul(two, s))
            second = e.b.fadd(e.b.fmul(one, s), e.b.fmul(two, c))
            for out, p in ((first, e.at(2, b)), (second, e.at(2, e.b.add(b, n)))):
                if mask is None:
                    e.store(out, p, past_cache)
                else:
                    e.store_some(out, p, mask)
            return []

        each(e, n, step)

    return made(void, (x, i8, y, i8, cos, sin, i8, i8), body)


@intrinsic
def turn_halves(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """y_a = x_a cos - x_b sin, y_b = x_a sin + x_b cos for n pairs: b stands n after a in x and y, cos and sin begin at `at`."""
    return turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, False)


@intrinsic
def turn_halves_past_cache(typingctx, x, x_at, y, y_at, cos, sin, at, n):
    """The same, written straight to memory, which is not read first. y begins at a multiple of 16 bytes, so does y_at; `written` must follow."""
    return turned(typingctx, x, x_at, y, y_at, cos, sin, at, n, True)


@intrinsic
def written(typingctx):
    """What was written past the cache is there for all threads."""

    def body(e):
        e.b.fence("seq_cst")

    return made(void, (), body)
