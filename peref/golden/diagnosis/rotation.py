"""Guesses at rotations: pairs, signs, angles of few digits, frequencies in another order, gains, and other
maps of a pair.

Not here: how pairs and angles are read from what came (pairs), frequencies of options or other ladders
(options, functions), positions (positions).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import GENERAL, NEARLY, SHOWN, Answer, Clue, Guess, Trap, flag_of, guess
from peref.golden.diagnosis.engine import Row, computed, family, guesses, on_case, rows, tabled
from peref.golden.diagnosis.pairs import cosines, gains_of, pair_factors, pairs_of, rotation_of
from peref.golden.diagnosis.tensor import order_by
from peref.golden.spec.cases import Case
from peref.golden.spec.files import LOW
from peref.golden.spec.rule import ROUNDOFF
from peref.hooks import rotation, turn_heads
from peref.model import PLAIN

FEW = "rope.phase.low_precision"
UNTOLD = 0.79  # what a clue weighs that shows what is wrong, and not what was done: less than SHOWN
MISSING, TWICE, EXCHANGED = (("gains", which, "basic") for which in ("missing", "twice", "exchanged"))


def in_few(words: str, change: Any = lambda low: low) -> dict[str, Any]:
    """Words with the name of each format -> change(what rounds to it)."""
    return {f"{words} {name}": change(low) for name, low in LOW.items()}


other_of = lambda case: "interleaved" if case.layout == "half" else "half"
turns = lambda case: case.hook == "rotate" and case.level != "table"
turned_at_all = lambda case: case.hook == "rotate"
of_one_number = lambda case: case.hook == "rotate" and case.at.i.ndim != 3
is_partial = lambda case: case.hook == "rotate" and case.config.R != case.D


# ---------------------------------------------------------------- maps of pairs


@dataclass(frozen=True)
class Map:
    """What is done with the pairs of a head in place of turning them.

    pairs   which channels pair up: "same" as asked, the "other" layout, "outer" (first and last), "quarters"
            (within each half), "head" (n and n + D/2)
    table   the layout that angles lie in, that of the pairs where None
    matrix  what cos and sin are multiplied with: a cos, b sin of the first, c sin, d cos of the second
    order   where the two components go: "" as they are, "swapped", "halves", "adjacent"
    inside  the second component is made from the first when that has turned already
    times   how often a pair turns: not at all where 0
    """

    pairs: str = "same"
    table: str | None = None
    matrix: tuple[float, float, float, float] = (1, -1, 1, 1)
    order: str = ""
    inside: bool = False
    times: int = 1

    def __call__(self, case: Case, x: Any, phi: Any, gain: Any) -> Any:
        phi, gain = self.times * phi, None if gain is None else gain**self.times
        R, half = case.config.R, case.config.R // 2
        layout = other_of(case) if self.pairs == "other" else case.layout
        pairs = np.array(pairs_of(R, layout))
        if self.pairs == "outer":
            pairs = np.array([(n, R - 1 - n) for n in range(half)])
        if self.pairs == "quarters":
            first = [c for c in range(R) if c % half < half // 2] if half > 1 else [0]
            pairs = np.array([(c, c + max(half // 2, 1)) for c in first])
        if self.pairs == "head":
            pairs = np.array([(n, n + case.D // 2) for n in range(half)])
        first, second = pairs.T
        cos, sin = np.cos(phi), np.sin(phi)
        if gain is not None:
            cos, sin = cos * gain, sin * gain
        if cos.ndim == 3:
            cos, sin = cos[:, None], sin[:, None]
        at = [first, second] if self.table else [np.arange(half)] * 2
        lie = (lambda c: c % half) if self.table == "half" else (lambda c: c // 2)
        c, s = ([z[..., lie(n) if self.table else n] for n in at] for z in (cos, sin))
        m, y = self.matrix, np.array(x, float)
        one = m[0] * x[..., first] * c[0] + m[1] * x[..., second] * s[0]
        two = m[2] * (one if self.inside else x[..., first]) * s[1] + m[3] * x[..., second] * c[1]
        out = np.array(pairs_of(R, {"halves": "half", "adjacent": "interleaved"}.get(self.order, layout))).T
        out = pairs.T if self.order not in ("halves", "adjacent") else out
        y[..., out[0]], y[..., out[1]] = (two, one) if self.order == "swapped" else (one, two)
        return y


def with_map(made: Map, who: str = "qk") -> Any:
    """q and k, or one of them, go through another map."""

    def make(case: Case, answer: Answer) -> Any:
        phi, *gains = rotation_of(case, answer)
        q, k = turn_heads(PLAIN, answer.a["q"], answer.a["k"], (phi, *gains), layout=case.layout)
        right, phi = {"q": q, "k": k}, np.asarray(phi)
        new = {
            n: made(case, answer.a[n], phi, g) if n in who else right[n]
            for n, g in zip("qk", gains, strict=True)
        }
        if case.level == "op":
            return {f"{n}_rotated": x for n, x in new.items()}
        pe = replace(case.config.encoding(0), rotate=None)
        return answer.computing(case, answer.forward.a | new, pe)

    return on_case(make, lambda case: turns(case) and fitting(made, case))


def fitting(made: Map, case: Case) -> bool:
    """Whether this map is another than the right one."""
    if made.pairs == "head":
        return is_partial(case) and case.layout == "half"
    R = case.config.R
    other = made.order == {"half": "adjacent", "interleaved": "halves"}[case.layout]
    return replace(made, order="") != Map() or made.order == "swapped" or (other and R > 2)


TERMS = "a c", "b s", "a s", "b c"


def summed(m: tuple[float, ...]) -> str:
    """What a pair becomes: a c - b s, a s + b c."""
    terms = [f"{'-' if x < 0 else '+'} {y}" * bool(x) for x, y in zip(m, TERMS, strict=True)]
    return ", ".join(" ".join(filter(None, some)).removeprefix("+ ") for some in (terms[:2], terms[2:]))


OF_OUTPUT = tuple(-x for x in Map.matrix)  # which is any output's sign, and no rotation's
SIGNS: list[Any] = [m for m in product((1, -1), repeat=4) if m not in (Map.matrix, OF_OUTPUT)]
SIGNS += [(1, 0, 1, 1), (1, -1, 0, 1), (1, 0, 0, 1), (0, -1, 1, 0)]
MAPS = (  # flag, words, map: of a pair (a, b) with cosine c and sine s
    ("rope.layout.half", "you pair the first channel with the last", Map("outer")),
    ("rope.layout.half", "you pair channels within each half", Map("quarters")),
    ("rope.partial.pairing", "your pairs are split at half of the head", Map("head")),
    *(
        ("rope.layout.mixed", f"{words} {which}", Map(pairs, table))
        for pairs, which in (("same", "pair up as asked"), ("other", "pair up as in the other layout"))
        for table, words in (
            ("half", "your frequencies are laid out in halves, channels"),
            ("interleaved", "your frequencies are laid out for adjacent pairs, channels"),
        )
    ),
    *(
        ("rope.layout.half", f"{words} when they have turned", made)
        for words, made in (
            ("channels lie in halves", Map(order="halves")),
            ("channels lie in adjacent pairs", Map(order="adjacent")),
            ("adjacent channels pair up, and lie in halves", Map("other", order="halves")),
            ("halves pair up, and lie in adjacent pairs", Map("other", order="adjacent")),
            ("the two channels of a pair change places", Map(order="swapped")),
        )
    ),
    *(
        ("rope.sign", f"(a, b) becomes ({summed(m)}){pairing}", Map(pairs, None, m))
        for pairs, pairing in (("same", ""), ("other", ", channels paired as in the other layout"))
        for m in SIGNS
    ),
    ("rope.sign", "the second channel is made from the first when that has turned already", Map(inside=True)),
    ("rope.one_of_two", "channels turn twice", Map(times=2)),
)
STILL = Map(times=0)
WHOSE = (("", "qk"), (" (q alone)", "q"), (" (k alone)", "k"))


@family(turns)
def of_maps(answer: Answer, case: Any) -> Iterator[Guess]:
    """Other maps of a pair; those of q or k alone where only one of them is wrong, or attention is."""
    wrong = {name[0] for name in answer.wrong if name.endswith("_rotated")}
    whose = [(words, who) for words, who in WHOSE if not wrong or set(who) == wrong]
    for words, who in whose:
        for flag, what, made in MAPS:
            found = guess(flag, f"{what}{words}", with_map(made, who), 1.0 if who == "qk" else 0.98)
            yield replace(found, vague=made.inside)  # an order of steps, and no sign
        if who != "qk":
            said = f"you pair channels of {who} as the other layout does"
            yield guess("rope.layout.half", said, with_map(Map("other"), who), 0.99)
            said = f"{who} does not turn, and has no gain"
            yield guess("rope.one_of_two", said, with_map(STILL, who), 0.99)


# ---------------------------------------------------------------- angles and gains


def at_width(cut: bool) -> Any:
    """The angles of the whole head, cut to the rotary width or not."""

    def change(case: Case, rotate: Any, *place: Any) -> Any:
        wide, most = replace(case, R=case.D).config.encoding(0), case.config.R // 2 if cut else None
        return tuple(x if x is None else x[..., :most] for x in rotation(wide, *place))

    return change


def of_frequencies(change: Any) -> Any:
    """The frequencies, which are the angles at position 1, are changed; for one number a token."""

    def rotate(case: Case, rotate: Any, p: Any, i: Any, n: int) -> Any:
        w = change(np.asarray(rotate(p, np.array([1]), n)[0])[0])
        return np.asarray(i)[..., None] * w, *rotate(p, i, n)[1:]

    return rotate


def in_tables(low: Any) -> Any:
    """Angles and gains of which low keeps the cosines and sines."""

    def change(phi: Any, *gains: Any) -> Any:
        cos, sin = low(np.cos(phi)), low(np.sin(phi))
        size = np.hypot(cos, sin)
        return np.arctan2(sin, cos), *(size if g is None else size * g for g in gains)

    return change


UNITS_OF_ANGLES = {"2 pi times": 2 * np.pi, "1/(2 pi) of": 0.5 / np.pi}
UNITS_OF_ANGLES |= {"pi/180 of": np.pi / 180, "180/pi times": 180 / np.pi}
DEALT: dict[str, Any] = {
    "run from slow to fast": lambda x: x[..., ::-1],
    "are those of the next pair": lambda x: np.roll(x, 1, -1),
    "are those of the pair before": lambda x: np.roll(x, -1, -1),
}
of_all = lambda f, given: (x if x is None else f(x) for x in given)
TURNS: dict[Any, dict[str, Any]] = {
    ("rope.sign", "turn"): {
        "you turn the other way: the sign of the sine": lambda phi, *g: (-phi, *g),
        "your sines and cosines are exchanged": lambda phi, *g: (np.pi / 2 - phi, *g),
    },
    ("basic", "turn", GENERAL): {"there is no position in it: nothing turns": lambda phi, *g: (0 * phi, *g)},
    ("rope.frequencies", "turn"): {
        **{f"your frequencies {w}": lambda phi, *g, f=f: (*of_all(f, (phi, *g)),) for w, f in DEALT.items()},
        **{f"your frequencies {w}, gains apart": lambda phi, *g, f=f: (f(phi), *g) for w, f in DEALT.items()},
        **{
            f"your frequencies are {w} what they should be": lambda phi, *g, c=c: (c * phi, *g)
            for w, c in UNITS_OF_ANGLES.items()
        },
    },
    (FEW, "turn"): in_few("your angles were", lambda low: lambda phi, *g: (low(phi), *g)),
    (FEW, "turn", 1.0, True): in_few("your cosines and sines were", in_tables),
    (FEW, "at"): in_few("your positions were"),
    (MISSING, "gains"): {
        "the gain (magnitude) is missing": lambda g, h: (1 + 0 * g, 1 + 0 * h),
        "the gain is on q alone": lambda g, h: (g, 1 + 0 * h),
        "the gain is on k alone": lambda g, h: (1 + 0 * g, h),
    },
    (TWICE, "gains"): {
        "the gain (magnitude) counts twice": lambda g, h: (g * g, h * h),
        "the gain counts twice on q, and on k not at all": lambda g, h: (g * g, 1 + 0 * h),
    },
    (EXCHANGED, "gains"): {
        "the gains of q and k are exchanged": lambda g, h: (h, g),
        "k has the gain of q": lambda g, h: (g, g),
        "q has the gain of k": lambda g, h: (h, h),
        "you divide by the gain": lambda g, h: (1 / g, 1 / h),
    },
}
THE_OTHER_WAY = "your angles are right and you turn the other way: the minus is on the wrong half of a pair"
OTHER_WIDTHS: dict[Any, dict[str, Any]] = {
    ("rope.partial.exponent_head_dim", "rotate"): {
        "your frequencies come from the head width, not the rotary width": at_width(True)
    },
    ("rope.partial.pairing", "rotate"): {"you turn every channel of the head": at_width(False)},
}
OF_ANGLES = (
    *tabled(TURNS),
    Row("rope.sign", THE_OTHER_WAY, {"turn": lambda phi, *g: (-phi, *g)}, turns),
    *tabled(OTHER_WIDTHS, is_partial),
    *rows(FEW, "rotate", in_few("your frequencies were", of_frequencies), of_one_number),
)


def in_layout(layout: str) -> Any:
    """Whatever the case asks for; where it asks for that, nothing changes, which speaks for it."""

    def make(case: Case, answer: Answer) -> Any:
        other = replace(case, layout=layout)
        return answer.computing(other, answer.a, other.config.encoding(0))

    return on_case(make, turns)


@family(turned_at_all)
def of_turning(answer: Answer, case: Any) -> Iterator[Guess | Clue]:
    """All that may be wrong about a rotation."""
    other = other_of(case)
    words = f"you pair channels as layout {other} does, whatever the case asks for"
    yield guess("rope.layout.half", words, in_layout(other))
    words = "you pair channels as the other layout does: halves where adjacent ones are asked for, and so on"
    yield guess("rope.layout.half", words, computed(turns, facts=lambda c: {"layout": other_of(c)}), 0.99)
    yield from guesses(OF_ANGLES, answer)
    yield from of_maps(answer)
    yield from of_angles(answer, case)
    if any(g is not None for g in gains_of(answer)):
        yield from of_power(answer)


def of_angles(answer: Answer, case: Case) -> Iterator[Guess | Clue]:
    """What the angles say that came, from a table or from what was turned."""
    seen = cosines(answer)
    if seen is None:
        return
    theta = np.asarray(rotation_of(case, answer)[0])
    half = seen.shape[-1] // 2
    z, right = seen[..., :half] + 1j * seen[..., half:], np.exp(1j * theta)
    if z.shape != right.shape:
        return
    most = 300 * ROUNDOFF[next(answer.got[name].dtype for name in answer.wrong)] + 1e-6
    same = lambda n, m: np.abs(z[..., n] - right[..., m]).max() < most * (1 + np.abs(theta[..., m]).max())
    kept = [bool(same(n, n)) for n in range(half)]
    if all(kept):
        if wrong_gains(answer) or any(name.startswith("gain_") for name in answer.wrong):
            words = f"your angles are right, and {another(answer)}"
            yield Clue(Trap(flag_of(answer, *whose_gain(answer)), words), UNTOLD)
        return
    off = np.abs(np.angle(z / right)) / np.maximum(np.abs(theta), 1e-30)
    if off.max() < 2.0**-7 and any(answer.far(name) for name in answer.wrong):
        words = f"your angles are off by up to one part in {1 / off.max():.0f}: digits are missing"
        yield Clue(Trap(FEW, words), 0.6)
        return
    order = order_by(half, same)
    if len(set(order)) > 1:
        halves = order == list(np.roll(range(half), half // 2))
        axes = case.config.encoding(0).axes not in (1, None)
        other = flag_of(answer, "options", "width", "rope.frequencies")
        words = f"your frequencies are in another order: {', '.join(map(str, order))}"
        change = lambda phi, *g: (phi[..., order] if phi.shape[-1] == half else phi, *g)
        flag = other if halves and axes and half > 2 else "rope.frequencies"
        yield guess(flag, words, computed(turn=change), 0.9)
    still = [bool(np.abs(z[..., n] - 1).max() < most) for n in range(half)]
    moving = any(k and not s for s, k in zip(still, kept, strict=True))
    if all(s or k for s, k in zip(still, kept, strict=True)) and moving:
        lost = ", ".join(str(n) for n in range(half) if not kept[n])
        words = f"pairs {lost} do not turn: slow frequencies are dropped"
        yield Clue(Trap("rope.frequencies", words), SHOWN, True)


def wrong_gains(answer: Answer) -> dict[str, tuple[Any, Any]]:
    """The gains that came and are wrong, with the right ones: of "q" and "k"."""
    found = {}
    for letter, right in zip("qk", gains_of(answer), strict=True):
        x, name = answer.wide(f"gain_{letter}"), f"{letter}_rotated"
        if x is None and name in answer.wrong and (c := pair_factors(answer, name)) is not None:
            x = abs(c)
        g = 1.0 if right is None else right
        if x is not None and np.isfinite(x).all() and np.abs(x / g - 1).max() > NEARLY:
            found[letter] = x, g + np.zeros_like(x)
    return found


def whose_gain(answer: Answer, which: Any = MISSING) -> tuple[str, ...]:
    """What the flag of a gain is asked by: that of the encoding's own function where it has one."""
    return ("functions", "magnitude", flag_of(answer, *which))


def of_power(answer: Answer) -> Iterator[Guess | Clue]:
    """A power or a multiple of the right gains, else any others."""
    seen = wrong_gains(answer)
    if not seen:
        return
    missing, twice = (flag_of(answer, *whose_gain(answer, which)) for which in (MISSING, TWICE))
    letter, (x, g) = next(iter(seen.items()))
    telling = np.abs(np.log(g)) > NEARLY
    with np.errstate(all="ignore"):
        powers, factors = np.log(x[telling]) / np.log(g[telling]), x / g
    whose = "gains are" if len(seen) == 2 else f"gain of {letter} is"
    put = lambda change: computed(
        gains=lambda *gains: [change(g) if n in seen else g for n, g in zip("qk", gains, strict=True)]
    )
    if telling.any() and np.ptp(powers) < NEARLY * (1 + abs(powers[0])):
        p = float(np.median(powers))
        p = round(p) if abs(p - round(p)) < 1e-5 else p
        if abs(p) > NEARLY:
            words = f"your {whose} the right one to the power of {p:.6g}"
            yield guess(twice if p > 1 else missing, words, put(lambda g: g**p), 0.9, fitted=p)
    if np.ptp(factors) < NEARLY:
        c = float(np.median(factors))
        words = f"your {whose} the right one times {c:.6g}"
        yield guess(missing, words, put(lambda g: c * g), 0.85, fitted=c)


def another(answer: Answer) -> str:
    """The first gain that is wrong, in words."""
    for letter, (x, g) in wrong_gains(answer).items():
        at = tuple(int(n) for n in np.argwhere(np.abs(x / g - 1) > NEARLY)[0])
        words = f"the gain (magnitude) of {letter} is another: {x[at]:.6g} at token {at[-2]}"
        return f"{words}, expected {g[at]:.6g}"
    return "the gain (magnitude) is another"
