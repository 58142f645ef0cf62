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
from peref.laws.gradient import gradient
from peref.laws.small import (
    EXACT,
    REAL,
    Given,
    Subject,
    broken,
    chunked,
    image,
    logits,
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
    cfg, x = s.config(given, **{"L": 64} | dict(s.sizes)), tokens(2, 7)
    p = weights(cfg)
    return logits(cfg, p, x), logits(cfg, p, x, positions=by + np.arange(7))


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
    """The last token reaches the first row; gradients are right, and documents do not see one another."""
    if "two_sided" in s.claims():
        cfg, x = s.config(causal=False), tokens(2, 7)
        p, other = weights(cfg), x.copy()
        other[:, -1] = others(other[:, -1])
        if not (abs(logits(cfg, p, other)[:, 0] - logits(cfg, p, x)[:, 0]).max() > 1e-9):
            raise broken("the last token does not reach the first row where causal is False")
        gradient(lambda *a: logits(cfg, dict(zip(p, a, strict=True)), x), list(p.values()), names=list(p))
        seg = np.array([[0, 1, 1, 1, 2, 2, 2]])
        want = logits(cfg, p, x[:1, 1:4])
        same(
            logits(cfg, p, x[:1], seg=seg)[:, 1:4],
            want,
            EXACT,
            "logits of a document between padding and another, both ways",
        )


def two_sided_choices(s: Subject) -> None:
    """What it learns of the future too: its own parameters, with every choice of the options."""
    for given in (
        with_claim(s, "two_sided", True)[1:] if s.encoding.hook in ("bias", "score", "attend") else []
    ):
        with told(given):
            cfg, x = s.config(given, causal=False, layers=1), tokens(2, 7)
            p = weights(cfg)
            if own := [n for n, key in enumerate(p) if "pe." in key]:
                function = lambda *a, p=p, cfg=cfg, x=x: logits(cfg, dict(zip(p, a, strict=True)), x)
                gradient(function, list(p.values()), wrt=own, names=list(p))


def not_two_sided(s: Subject) -> list[str]:
    return (
        [] if "two_sided" in s.claims() else [refused("models that read both ways", s.config, causal=False)]
    )


# ---------------------------------------------------------------- real_positions


def real_positions(s: Subject) -> None:
    """Half steps are places like any other, and whole numbers given as reals are the whole numbers."""
    if "real_positions" in s.claims():
        cfg, x = s.config(), tokens(2, 7)
        p = weights(cfg)
        same(
            logits(cfg, p, x, positions=np.arange(7.0)),
            logits(cfg, p, x),
            EXACT,
            "logits at positions 0.0, 1.0, ...",
        )
        same(
            chunked(cfg, p, x, (3,), REAL),
            logits(cfg, p, x, positions=REAL),
            EXACT,
            "logits at real positions, cut at 3",
        )


def not_real_positions(s: Subject) -> list[str]:
    if "real_positions" in s.claims():
        return []
    cfg = s.config()
    return [refused("real positions", logits, cfg, weights(cfg), tokens(2, 7), positions=REAL)]


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
            cfg = s.config(given)
            p, x, (end, who) = weights(cfg), tokens(1, 2), cfg.ends(np.float64)
            if not (end < np.inf and who == s.name):
                raise broken(f"its reach says that it never ends: {HOLDS}")
            if not np.isfinite(logits(cfg, p, x, positions=np.array([0, end - 1]))).all():
                raise broken(f"logits at position {end - 1}, the last one, are not finite")
            memory = model.decode(cfg, p, x[:, :1], model.cache(cfg))[1]
            what = f"positions from {end} on, where it ends,"
            words = [refused(what, logits, cfg, p, x, positions=np.array([0, end]))]
            words += [refused(what, model.decode, cfg, p, x[:, 1:], memory, positions=np.array([end]))]
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
    cfg, x = s.config(window=3, layers=1), tokens(2, 9)
    p, other = weights(cfg), tokens(2, 9)
    features = 2 if cfg.encoding(0).features else 0  # features may look back themselves
    other[:, 0] = others(other[:, 0])
    change = abs(logits(cfg, p, other) - logits(cfg, p, x)).max((0, 2))
    if not (change[:3] > 1e-9).all():
        raise broken("token 0 does not reach rows 0 to 2 with window 3")
    if not (change[3 + features :] < 1e-13).all():
        by = change[3 + features :].max()
        raise broken(f"token 0 reaches a row from {3 + features} on with window 3, by {by:.3g}")
    same(chunked(cfg, p, x, (2, 5, 6)), logits(cfg, p, x), EXACT, "logits with window 3, cut at 2, 5 and 6")
    gradient(lambda *a: logits(cfg, dict(zip(p, a, strict=True)), x), list(p.values()), names=list(p))


def not_window(s: Subject) -> list[str]:
    return [] if "window" in s.claims() else [refused("windows", s.config, window=3)]


# ---------------------------------------------------------------- text: positions of several axes


def several(s: Subject) -> bool:
    return axes_of(s) > 1


def axes_of(s: Subject) -> int:
    """How many numbers a position may be, 0 where none is looked at."""
    return s.encoding.axes or 0


def alike(s: Subject) -> tuple[Any, Any]:
    """Logits at one number for a token, and at that number on every axis."""
    cfg, x, A = s.config(), tokens(2, 9), axes_of(s)
    p = weights(cfg)
    return logits(cfg, p, x), logits(cfg, p, x, positions=np.tile(np.arange(9), (A, 1, 1)))


def text(s: Subject) -> list[str]:
    """Whole, before an image and after it, where it goes on from a place whose axes agree."""
    if "text" not in s.claims():
        return []
    if not several(s):
        raise broken(f"text is claimed, but a position is one number: axes is {s.encoding.axes}")
    one, each = alike(s)
    same(each, one, EXACT, f"logits at positions {s.encoding.axes} times the same, against one number")
    cfg, x, A = s.config(), tokens(2, 9), axes_of(s)
    p, i = weights(cfg), image(A)
    i[..., :2], i[..., 7:] = np.arange(2), [20, 21]
    whole, memory = logits(cfg, p, x, positions=i), model.decode(cfg, p, x[:, :2], model.cache(cfg, 16))[1]
    memory = model.decode(cfg, p, x[:, 2:7], memory, positions=i[..., 2:7])[1]
    said = refused("positions after an image that nobody gave", model.decode, cfg, p, x[:, 7:], memory)
    y, memory = model.decode(cfg, p, x[:, 7:8], memory, positions=np.array([20]))
    same(y, whole[:, 7:8], EXACT, "logits of the first text behind an image")
    same(
        model.decode(cfg, p, x[:, 8:], memory)[0],
        whole[:, 8:],
        EXACT,
        "logits of text that goes on from there",
    )
    fresh = model.decode(cfg, p, x[:, 7:], memory, seg=np.full((2, 2), 5))[0]
    same(fresh, logits(cfg, p, x[:, 7:]), EXACT, "logits of a document that begins behind an image")
    return [said]


def not_text(s: Subject) -> list[str]:
    """One number is another place than that number on every axis; a cache refuses a mixture."""
    if "text" in s.claims() or not several(s):
        return []
    one, each = alike(s)
    if not abs(each - one).max() > 1e-3:
        raise broken(f"one number is that number on every axis: {HOLDS}")
    cfg, x, A = s.config(), tokens(2, 9), axes_of(s)
    p, i = weights(cfg), image(A)
    memory = model.decode(cfg, p, x[:, :4], model.cache(cfg, 16), positions=i[..., :4])[1]
    plain = model.decode(cfg, p, x[:, :4], model.cache(cfg, 16))[1]
    mixtures = ((memory, None), (memory, np.arange(5)), (plain, i[..., 4:]))
    what = "one number and several in a cache"
    return [refused(what, model.decode, cfg, p, x[:, 4:], cache, positions=then) for cache, then in mixtures]


def axes(s: Subject) -> list[str]:
    """Several axes change the logits; padding, documents and pieces agree. One of one axis refuses three."""
    cfg, x = s.config(), tokens(2, 9)
    p, A = weights(cfg), axes_of(s)
    if A == 0:
        return []
    if A == 1:
        return [refused("three axes of positions", logits, cfg, p, x, positions=image(3))]
    i, seg = image(A), np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    whole = logits(cfg, p, x, positions=i)
    if not abs(whole - logits(cfg, p, x)).max() > 1e-3:
        raise broken(f"positions of {A} axes change nothing")
    for cuts in ((2,), (4,), (2, 7), tuple(range(1, 9))):
        same(chunked(cfg, p, x, cuts, i), whole, EXACT, f"logits of an image cut at {cuts}")
    for cuts in ((), (2, 5)):
        got = chunked(cfg, p, x, cuts, i, seg)
        same(
            got[:1, 3:],
            logits(cfg, p, x[:1, 3:], positions=i[:, :1, 3:]),
            EXACT,
            "logits of an image behind padding",
        )
        for a, b in ((0, 2), (2, 7), (7, 9)):
            alone = logits(cfg, p, x[1:, a:b], positions=i[:, 1:, a:b])
            same(got[1:, a:b], alone, EXACT, f"logits of tokens {a} to {b - 1}, a document of several axes")
    function = lambda *a: logits(cfg, dict(zip(p, a, strict=True)), x, positions=i, seg=seg)
    gradient(function, list(p.values()), names=list(p))
    return []
