"""Laws that an encoding claims or does not: with every choice of its options a claimed one holds, and others
fail.

    LAW(s, given)       raises Differs where the claim is wrong
    not_LAW(s, given)   raises Differs where the law holds, or is not refused in words, although nobody claims
                        it

Where calls have to be refused, the words of the refusals are returned; `ask` asks the one or the other.

Not here: laws of every encoding (everywhere).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref import hooks, model
from peref.compare import same
from peref.errors import Misuse
from peref.laws import small
from peref.laws.small import EXACT, Given, Small, Subject, broken, image, tokens

HOLDS = "not claimed, but holds: claim it"
NEAR, SPREAD = np.arange(7), np.array([0, 1, 2, 5, 13, 29, 42])


def refused(what: str, function: Callable, *given: Any, **more: Any) -> str:
    """What a call says that is refused. Raises Differs unless it raises Misuse."""
    try:
        function(*given, **more)
    except Misuse as words:
        return str(words)
    except Exception as error:
        raise broken(f"{what} raise {type(error).__name__}: {error}; expected Misuse, in words") from error
    raise broken(f"{what} are computed; {HOLDS}, or raise Misuse")


def moved(s: Subject, given: Given, by: int, i: Any = NEAR) -> tuple[Any, Any]:
    """Logits at positions i, and at those `by` later."""
    m, x = Small(s.fitting(given, L=64)), tokens(2, 7)
    return m.logits(x, positions=i), m.logits(x, positions=by + i)


def shift(s: Subject, given: Given) -> None:
    here, there = moved(s, given, 1000)
    same(there, here, EXACT, "logits at positions 1000 to 1006, against 0 to 6")


def not_shift(s: Subject, given: Given) -> None:
    """Far away, near one another and far apart, if there is such a place: some hide it up to there."""
    here, there = moved(s, given, *((1021, SPREAD) if "any_length" in s.claims(given) else (13,)))
    if not abs(there - here).max() > 1e-6:
        raise broken(f"logits at other positions are the same: {HOLDS}")


def two_sided(s: Subject, given: Given) -> None:
    """The last token reaches the first row; documents do not see one another."""
    m, x = s.model(given, causal=False), tokens(2, 7)
    other = x.copy()
    other[:, -1] = small.others(other[:, -1])
    if not (abs(m.logits(other)[:, 0] - m.logits(x)[:, 0]).max() > 1e-9):
        raise broken("the last token does not reach the first row where causal is False")
    got = m.logits(x[:1], seg=np.array([[0, 1, 1, 1, 2, 2, 2]]))[:, 1:4]
    same(got, m.logits(x[:1, 1:4]), EXACT, "logits of a document between padding and another, both ways")


def not_two_sided(s: Subject, given: Given) -> list[str]:
    return [refused("models that read both ways", s.config, given, causal=False)]


def real_positions(s: Subject, given: Given) -> None:
    """Half steps are places like any other, and whole numbers given as reals are the whole numbers."""
    m, x = s.model(given), tokens(2, 7)
    same(m.logits(x, positions=np.arange(7.0)), m.logits(x), EXACT, "logits at positions 0.0, 1.0, ...")
    want = m.logits(x, positions=small.REAL)
    same(m.chunked(x, (3,), small.REAL), want, EXACT, "logits at real positions, cut at 3")


def not_real_positions(s: Subject, given: Given) -> list[str]:
    return [refused("real positions", s.model(given).logits, tokens(2, 7), positions=small.REAL)]


def any_length(s: Subject, given: Given) -> None:
    """Four times the length trained for gives finite logits."""
    cfg = s.config(given)
    end, who = cfg.ends(np.float64)
    if end < np.inf:
        raise broken(f"any length is claimed, but {who} ends at {end}")
    if not np.isfinite(model.logits(cfg, small.weights(cfg), tokens(1, 4 * cfg.L))).all():
        raise broken(f"logits of {4 * cfg.L} tokens, four times L, are not finite")


def not_any_length(s: Subject, given: Given) -> list[str]:
    """All is well up to where it ends, whole and in decoding; one further is refused."""
    m, x = s.model(given), tokens(1, 2)
    end, who = m.cfg.ends(np.float64)
    if not (end < np.inf and who == s.name):
        raise broken(f"its reach says that it never ends: {HOLDS}")
    if not np.isfinite(m.logits(x, positions=np.array([0, end - 1]))).all():
        raise broken(f"logits at position {end - 1}, the last one, are not finite")
    memory = model.decode(m.cfg, m.p, x[:, :1], model.cache(m.cfg))[1]
    what = f"positions from {end} on, where it ends,"
    words = [refused(what, m.logits, x, positions=np.array([0, end]))]
    words += [refused(what, m.decode, x[:, 1:], memory, positions=np.array([end]))]
    if wrong := [one for one in words if str(end - 1) not in one]:
        raise broken(f"position {end} is refused, but not told that {end - 1} is the last: {wrong[0]}")
    return words


def window(s: Subject, given: Given) -> None:
    """In one layer a query with window 3 reads itself and two before; decoding agrees with the whole."""
    x, other = tokens(2, 9), tokens(2, 9)
    other[:, 0] = small.others(other[:, 0])
    models = [s.model(given, window=size, layers=1) for size in (2, 3)]
    nearer, change = (abs(m.logits(other) - m.logits(x)).max((0, 2)) for m in models)
    m = models[-1]
    # features may look back themselves, whatever the window
    beyond = min(8, 1 + np.count_nonzero(nearer >= 1e-13)) if m.cfg.encoding(0).features else 3
    if not (change[:3] > 1e-9).all():
        raise broken("token 0 does not reach rows 0 to 2 with window 3")
    if not (change[beyond:] < 1e-13).all():
        by = change[beyond:].max()
        raise broken(f"token 0 reaches a row from {beyond} on with window 3, by {by:.3g}")
    same(m.chunked(x, (2, 5, 6)), m.logits(x), EXACT, "logits with window 3, cut at 2, 5 and 6")


def not_window(s: Subject, given: Given) -> list[str]:
    return [refused("windows", s.config, given, window=3)]


# ---------------------------------------------------------------- text: positions of several axes


def alike(s: Subject, given: Given) -> tuple[Any, Any]:
    """Logits at one number for a token, and at that number on every axis."""
    m, x, A = s.model(given), tokens(2, 9), s.axes
    return m.logits(x), m.logits(x, positions=np.tile(np.arange(9), (A, 1, 1)))


def text(s: Subject, given: Given) -> list[str]:
    """Whole, before an image and after it, where it goes on from a place whose axes agree."""
    if s.axes < 2:
        raise broken(f"text is claimed, but a position is one number: axes is {s.encoding.axes}")
    one, each = alike(s, given)
    same(each, one, EXACT, f"logits at positions {s.encoding.axes} times the same, against one number")
    m, x, A = s.model(given), tokens(2, 9), s.axes
    i = image(A)
    i[..., :2], i[..., 7:] = np.arange(2), [20, 21]
    full, memory = m.logits(x, positions=i), m.decode(x[:, :2])[1]
    memory = m.decode(x[:, 2:7], memory, positions=i[..., 2:7])[1]
    said = refused("positions after an image that nobody gave", m.decode, x[:, 7:], memory)
    y, memory = m.decode(x[:, 7:8], memory, positions=np.array([20]))
    same(y, full[:, 7:8], EXACT, "logits of the first text behind an image")
    same(m.decode(x[:, 8:], memory)[0], full[:, 8:], EXACT, "logits of text that goes on from there")
    fresh = m.decode(x[:, 7:], memory, seg=np.full((2, 2), 5))[0]
    same(fresh, m.logits(x[:, 7:]), EXACT, "logits of a document that begins behind an image")
    return [said]


def not_text(s: Subject, given: Given) -> list[str]:
    """One number is another place than that number on every axis; a cache refuses a mixture."""
    if s.axes < 2:
        return []
    one, each = alike(s, given)
    if not abs(each - one).max() > 1e-3:
        raise broken(f"one number is that number on every axis: {HOLDS}")
    m, x, A = s.model(given), tokens(2, 9), s.axes
    i = image(A)
    memory = m.decode(x[:, :4], positions=i[..., :4])[1]
    plain = m.decode(x[:, :4])[1]
    mixtures = ((memory, None), (memory, np.arange(5)), (plain, i[..., 4:]))
    what = "one number and several in a cache"
    return [refused(what, m.decode, x[:, 4:], cache, positions=then) for cache, then in mixtures]


def axes(s: Subject) -> list[str]:
    """Several axes change the logits; padding, documents and pieces agree. One of one axis refuses three."""
    m, x, A = s.model(), tokens(2, 9), s.axes
    if A == 0:
        return []
    if A == 1:
        return [refused("three axes of positions", m.logits, x, positions=image(3))]
    i = image(A)
    full = m.logits(x, positions=i)
    if not abs(full - m.logits(x)).max() > 1e-3:
        raise broken(f"positions of {A} axes change nothing")
    for cuts in ((2,), (4,), (2, 7), tuple(range(1, 9))):
        same(m.chunked(x, cuts, i), full, EXACT, f"logits of an image cut at {cuts}")
    for cuts in ((), (2, 5)):
        how = f", positions of several axes, cut at {cuts}"
        small.documents_alone(m, x, m.chunked(x, cuts, i, small.SEGMENTS), how, i)
    return []


# ---------------------------------------------------------------- products: what is seen of q and k


def both_turned(s: Subject, given: Given) -> tuple[Any, Any]:
    """Attention of q and k, and of both after one rotation of all their channels."""
    cfg = s.config(given, layers=1)
    x, q, k, v = small.layer_input(cfg, 7)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((cfg.D, cfg.D)))[0]
    pe, p, at = cfg.encoding(0), small.own_weights(cfg), small.place_of(cfg, np.arange(7))
    attended = lambda q, k: hooks.attend_heads(model.PLAIN, pe, p, q, k, v, x, at, layout="half")[0]
    return attended(q, k), attended(q @ turn, k @ turn)


def products(s: Subject, given: Given) -> None:
    """q and k that are turned alike give the same attention."""
    as_is, turned = both_turned(s, given)
    same(turned, as_is, EXACT, "attention of q and k that are turned alike, against that of q and k")


def not_products(s: Subject, given: Given) -> None:
    as_is, turned = both_turned(s, given)
    if not abs(turned - as_is).max() > 1e-3:
        raise broken(f"q and k that are turned alike give the same: {HOLDS}")


CLAIMED: dict[str, tuple[Callable[[Subject, Given], Any], Callable[[Subject, Given], Any]]] = {
    "shift": (shift, not_shift),
    "two_sided": (two_sided, not_two_sided),
    "real_positions": (real_positions, not_real_positions),
    "any_length": (any_length, not_any_length),
    "window": (window, not_window),
    "text": (text, not_text),
    "products": (products, not_products),
}


def ask(law: str, s: Subject) -> list[str]:
    """What is refused as it must be, with all choices of the options. Raises Differs where the law does not
    hold though it is claimed, or holds though it is not.
    """
    holds, fails = CLAIMED[law]
    return s.each(lambda s, given: (holds if law in s.claims(given) else fails)(s, given))
