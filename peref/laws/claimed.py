"""Laws that an encoding claims or does not: a claimed one holds with every choice of its options, others
fail.

    LAW(s)         raises Differs where the claim is wrong
    not_LAW(s)     raises Differs where the law holds, or is not refused in words, although nobody claims it

Where calls have to be refused, the words of the refusals are returned.

Not here: laws of every encoding (everywhere).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref import model
from peref.compare import same
from peref.errors import Misuse
from peref.laws.small import (
    EXACT,
    REAL,
    SEGMENTS,
    Given,
    Subject,
    broken,
    image,
    others,
    tokens,
    told,
    weights,
)

HOLDS = "not claimed, but holds: claim it"


def refused(what: str, function: Callable, *given: Any, **more: Any) -> str:
    """What a call says that is refused. Raises Differs unless it raises Misuse."""
    try:
        function(*given, **more)
    except Misuse as words:
        return str(words)
    except Exception as error:
        raise broken(f"{what} raise {type(error).__name__}: {error}; expected Misuse, in words") from error
    raise broken(f"{what} are computed; {HOLDS}, or raise Misuse")


def with_claim(s: Subject, law: str, claimed: bool) -> list[Given]:
    """The choices of the options with which the law is claimed, or is not."""
    return [given for given in s.choices if (law in s.claims(given)) == claimed]


# ---------------------------------------------------------------- shift


def logits_moved(s: Subject, given: Given, by: int) -> tuple[Any, Any]:
    """Logits at positions 0 on, and at positions `by` on."""
    m, x = s.model(given, **{"L": 64} | dict(s.sizes)), tokens(2, 7)
    return m.logits(x), m.logits(x, positions=by + np.arange(7))


def shift(s: Subject) -> None:
    for given in with_claim(s, "shift", True):
        with told(given):
            here, there = logits_moved(s, given, 1000)
            same(there, here, EXACT, "logits at positions 1000 to 1006, against 0 to 6")


def not_shift(s: Subject) -> None:
    """Far away, if there is such a place: some hide it up to there."""
    for given in with_claim(s, "shift", False):
        with told(given):
            here, there = logits_moved(s, given, 1021 if "any_length" in s.claims(given) else 13)
            if not abs(there - here).max() > 1e-6:
                raise broken(f"logits at other positions are the same: {HOLDS}")


# ---------------------------------------------------------------- two_sided


def two_sided(s: Subject) -> None:
    """The last token reaches the first row; documents do not see one another."""
    if "two_sided" in s.claims():
        m, x = s.model(causal=False), tokens(2, 7)
        other = x.copy()
        other[:, -1] = others(other[:, -1])
        if not (abs(m.logits(other)[:, 0] - m.logits(x)[:, 0]).max() > 1e-9):
            raise broken("the last token does not reach the first row where causal is False")
        seg = np.array([[0, 1, 1, 1, 2, 2, 2]])
        got, want = m.logits(x[:1], seg=seg)[:, 1:4], m.logits(x[:1, 1:4])
        same(got, want, EXACT, "logits of a document between padding and another, both ways")


def not_two_sided(s: Subject) -> list[str]:
    return (
        [] if "two_sided" in s.claims() else [refused("models that read both ways", s.config, causal=False)]
    )


# ---------------------------------------------------------------- real_positions


def real_positions(s: Subject) -> None:
    """Half steps are places like any other, and whole numbers given as reals are the whole numbers."""
    if "real_positions" in s.claims():
        m, x = s.model(), tokens(2, 7)
        whole = m.logits(x, positions=np.arange(7.0))
        same(whole, m.logits(x), EXACT, "logits at positions 0.0, 1.0, ...")
        want = m.logits(x, positions=REAL)
        same(m.chunked(x, (3,), REAL), want, EXACT, "logits at real positions, cut at 3")


def not_real_positions(s: Subject) -> list[str]:
    if "real_positions" in s.claims():
        return []
    return [refused("real positions", s.model().logits, tokens(2, 7), positions=REAL)]


# ---------------------------------------------------------------- any_length


def any_length(s: Subject) -> None:
    """Four times the length trained for gives finite logits."""
    for given in with_claim(s, "any_length", True):
        with told(given):
            cfg = s.config(given)
            end, who = cfg.ends(np.float64)
            if end < np.inf:
                raise broken(f"any length is claimed, but {who} ends at {end}")
            if not np.isfinite(model.logits(cfg, weights(cfg), tokens(1, 4 * cfg.L))).all():
                raise broken(f"logits of {4 * cfg.L} tokens, four times L, are not finite")


def not_any_length(s: Subject) -> list[str]:
    """All is well up to where it ends, whole and in decoding; one further is refused."""
    said = []
    for given in with_claim(s, "any_length", False):
        with told(given):
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
                told_not = f"position {end} is refused, but not told that {end - 1} is the last: {wrong[0]}"
                raise broken(told_not)
            said += words
    return said


# ---------------------------------------------------------------- window


def window(s: Subject) -> None:
    """In one layer a query with window 3 reads itself and two before; decoding agrees with the whole."""
    if "window" not in s.claims():
        return
    m, x, other = s.model(window=3, layers=1), tokens(2, 9), tokens(2, 9)
    features = 2 if m.cfg.encoding(0).features else 0  # features may look back themselves
    other[:, 0] = others(other[:, 0])
    change = abs(m.logits(other) - m.logits(x)).max((0, 2))
    if not (change[:3] > 1e-9).all():
        raise broken("token 0 does not reach rows 0 to 2 with window 3")
    if not (change[3 + features :] < 1e-13).all():
        by = change[3 + features :].max()
        raise broken(f"token 0 reaches a row from {3 + features} on with window 3, by {by:.3g}")
    same(m.chunked(x, (2, 5, 6)), m.logits(x), EXACT, "logits with window 3, cut at 2, 5 and 6")


def not_window(s: Subject) -> list[str]:
    return [] if "window" in s.claims() else [refused("windows", s.config, window=3)]


# ---------------------------------------------------------------- text: positions of several axes


def alike(s: Subject) -> tuple[Any, Any]:
    """Logits at one number for a token, and at that number on every axis."""
    m, x, A = s.model(), tokens(2, 9), s.axes
    return m.logits(x), m.logits(x, positions=np.tile(np.arange(9), (A, 1, 1)))


def text(s: Subject) -> list[str]:
    """Whole, before an image and after it, where it goes on from a place whose axes agree."""
    if "text" not in s.claims():
        return []
    if s.axes < 2:
        raise broken(f"text is claimed, but a position is one number: axes is {s.encoding.axes}")
    one, each = alike(s)
    same(each, one, EXACT, f"logits at positions {s.encoding.axes} times the same, against one number")
    m, x, A = s.model(), tokens(2, 9), s.axes
    i = image(A)
    i[..., :2], i[..., 7:] = np.arange(2), [20, 21]
    whole, memory = m.logits(x, positions=i), m.decode(x[:, :2])[1]
    memory = m.decode(x[:, 2:7], memory, positions=i[..., 2:7])[1]
    said = refused("positions after an image that nobody gave", m.decode, x[:, 7:], memory)
    y, memory = m.decode(x[:, 7:8], memory, positions=np.array([20]))
    same(y, whole[:, 7:8], EXACT, "logits of the first text behind an image")
    same(m.decode(x[:, 8:], memory)[0], whole[:, 8:], EXACT, "logits of text that goes on from there")
    fresh = m.decode(x[:, 7:], memory, seg=np.full((2, 2), 5))[0]
    same(fresh, m.logits(x[:, 7:]), EXACT, "logits of a document that begins behind an image")
    return [said]


def not_text(s: Subject) -> list[str]:
    """One number is another place than that number on every axis; a cache refuses a mixture."""
    if "text" in s.claims() or s.axes < 2:
        return []
    one, each = alike(s)
    if not abs(each - one).max() > 1e-3:
        raise broken(f"one number is that number on every axis: {HOLDS}")
    m, x, A = s.model(), tokens(2, 9), s.axes
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
    i, seg = image(A), SEGMENTS
    whole = m.logits(x, positions=i)
    if not abs(whole - m.logits(x)).max() > 1e-3:
        raise broken(f"positions of {A} axes change nothing")
    for cuts in ((2,), (4,), (2, 7), tuple(range(1, 9))):
        same(m.chunked(x, cuts, i), whole, EXACT, f"logits of an image cut at {cuts}")
    for cuts in ((), (2, 5)):
        got = m.chunked(x, cuts, i, seg)
        want = m.logits(x[:1, 3:], positions=i[:, :1, 3:])
        same(got[:1, 3:], want, EXACT, "logits of an image behind padding")
        for a, b in ((0, 2), (2, 7), (7, 9)):
            alone = m.logits(x[1:, a:b], positions=i[:, 1:, a:b])
            same(got[1:, a:b], alone, EXACT, f"logits of tokens {a} to {b - 1}, a document of several axes")
    return []
