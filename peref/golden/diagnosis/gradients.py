"""Guesses at a wrong derivative beside right outputs: a factor, a part of the sum, other heads or tokens, a
rotation that does not turn back.

A derivative is a sum over those who used the number. What each sequence and each query head adds is computed
by giving only its cotangent; the shares in which these parts came say which are missing.

Not here: steps of the backward pass (backward).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import NEARLY, WIDE, Answer, Clue, Guess, Trap, guess
from peref.golden.diagnosis.attention import GROUPINGS
from peref.golden.diagnosis.engine import DERIVATIVES, family, on_case
from peref.golden.diagnosis.pairs import rotation_of
from peref.golden.diagnosis.rotation import MAPS, Map
from peref.golden.diagnosis.tensor import agreeing, factor_in, of_time, order_along
from peref.golden.spec.cases import Case

turned_alone = lambda case: case.hook == "rotate" and case.level == "op"
shared_heads = lambda case: case.level == "attn" and case.H != case.G


def of_derivative(answer: Answer) -> Iterator[Guess | Clue]:
    """What is wrong about derivatives where every output is right; what shows in one of them weighs as little
    as there are others that are wrong.
    """
    if not answer.derivative:
        return
    if "grad.tie" in answer.entry.words["flags"]:
        words = f"{answer.wrong[0]} is wrong where two numbers are equal: half of it is of each"
        yield Clue(Trap("grad.tie", words), 1)
    for flag, words, weight in of_each(answer):
        yield Clue(Trap(flag, words), weight / len(answer.wrong), weight == 1)
    for one in (*of_factors(answer), *of_chains(answer)):
        yield replace(one, backward=True)


def zero_throughout(answer: Answer) -> list[str]:
    """The derivatives that are zero and should not be."""
    came = ((name, answer.wide(name)) for name in answer.wrong)
    return [name for name, x in came if x is not None and not x.any() and answer.want(name).any()]


def flag_of_none(answer: Answer) -> str:
    """The flag of derivatives that are zero: of all that is wrong, or of what is handed in alone."""
    return "state.first" if all(name.startswith("vjp.state.") for name in answer.wrong) else "grad.zero"


def is_scale_of_logits(answer: Answer, names: Iterable[str], c: float) -> bool:
    """Whether D or its root is on q and k alone: the scale of the logits."""
    powers = [answer.entry.words["facts"]["D"] ** e for e in (0.5, -0.5, 1.0, -1.0)]
    logits = answer.entry.words["level"] == "attn" and set(names) <= {"vjp.q", "vjp.k"}
    return logits and any(abs(c / power - 1) < 1e-4 for power in powers)


def factors_in(answer: Answer) -> dict[str, float]:
    """The derivatives that are the right ones times a number."""
    return {name: c for name in answer.wrong if (c := factor_in(answer, name)) is not None}


def of_each(answer: Answer) -> Iterator[tuple[str, str, float]]:
    """What shows in each derivative by itself: flag, words, and its weight, which is 1 of what is read off
    exactly.
    """
    factors, lost = factors_in(answer), zero_throughout(answer)
    for name in answer.wrong:
        x, g = answer.wide(name), answer.want(name)
        if x is None or not np.isfinite(x).all() or not g.any():
            continue
        c = factors.get(name, 0.0)
        if name in lost:
            yield flag_of_none(answer), f"{name} is zero throughout", 1
        elif abs(c + 1) < 1e-4:
            yield "grad.sign", f"{name}: its sign is the other one", 1
        elif is_scale_of_logits(answer, factors, c):
            words = "the scale of the logits is missing, or there twice"
            yield "grad.softmax", f"{name} is the golden tensor times {c:.6g}: {words}", 1
        elif not c:
            yield from of_one(answer, name, x, g)


def of_factors(answer: Answer) -> Iterator[Guess]:
    """A factor that the sizes of a case say, or another."""
    factors = factors_in(answer)
    facts = answer.entry.words["facts"]
    for name, c in factors.items():
        if abs(c + 1) >= 1e-4 and not is_scale_of_logits(answer, factors, c):
            known = {size: by for size, by in COUNTS.items() if abs(c / by(facts) - 1) < 1e-4}
            fixed: dict[str, Any] = {f"{c:.6g}": lambda facts, c=c: c}
            for size, by in (known or fixed).items():
                mine = f"{name} is the golden tensor times {c:.6g}"
                said = f"derivatives are the golden ones times {size}: {mine}"
                yield guess("grad.factor", said, of_counts(factors, by), 0.9, None if known else c)


COUNTS: dict[str, Callable[[dict[str, Any]], float]] = {
    "1/B": lambda f: 1 / f["B"],
    "1/T": lambda f: 1 / f["T"],
    "1/(B T)": lambda f: 1 / (f["B"] * f["T"]),
    "1/H": lambda f: 1 / f["H"],
    "H/G": lambda f: f["H"] / f["G"],
    "G/H": lambda f: f["G"] / f["H"],
}


def of_counts(names: Iterable[str], by: Callable[[dict[str, Any]], float]) -> Any:
    """Derivatives of these names times a number that the sizes of the case say."""
    times = lambda answer: by(answer.entry.words["facts"])
    return lambda answer: {n: times(answer) * answer.want(n) for n in names if n in answer.got}


SLOPES: dict[str, Callable[[Any], Any]] = {
    "an exponential": np.exp,
    "a softplus": lambda x: 1 / (1 + np.exp(-x)),
    "a sigmoid": lambda x: 1 / (2 + np.exp(x) + np.exp(-x)),
    "a hyperbolic tangent": lambda x: 1 - np.tanh(x) ** 2,
    "a logarithm": lambda x: 1 / x,
}


def of_chains(answer: Answer) -> Iterator[Guess]:
    """The derivative of a parameter lacks that of the function it is read through, or has it twice."""
    for name in (name for name in answer.wrong if name.startswith("vjp.param.")):
        powers = {"is missing": -1, "counts twice": 1}
        for (through, slope), (words, power) in product(SLOPES.items(), powers.items()):
            said = f"{name}: the derivative of {through} {words}"
            yield replace(guess("grad.factor", said, chained(name, slope, power), 0.95), vague=True)


def chained(name: str, slope: Callable[[Any], Any], power: int) -> Any:
    times = lambda answer: slope(answer.a[name.removeprefix("vjp.")]) ** power
    return lambda answer: {name: answer.want(name) * times(answer)} if name in answer.got else None


def of_one(answer: Answer, name: str, x: Any, g: Any) -> Iterator[tuple[str, str, float]]:
    """One derivative that is no multiple of the right one."""
    for letter, axis in ((one, n) for n, one in enumerate(answer.axes.get(name, "")) if one in "THG"):
        flag, words = ("grad.time", "tokens") if letter == "T" else ("grad.heads_permuted", "heads")
        order = order_along(axis, x, g)
        if len(set(order)) > 1:
            said = f"{name} has the derivatives of other {words}: {', '.join(map(str, order))}"
            yield flag, said, 1
            return
    if of_time(answer, name, x, g):
        yield "grad.time", f"{name} comes a token late or early", 1
        return
    case = answer.case
    if case is None or not (answer.far(name) or answer.got[name].dtype in WIDE):
        return
    if name.startswith("vjp.param.") and (rows := cut_off(answer, name, x, g)):
        yield "grad.zero", f"{name} is zero in {rows}, and right in all others", 1
    elif words := overwritten(answer, name):
        yield "grad.sum", f"{name}: {words}", 1
    elif words := of_parts(answer, name, x):
        yield "grad.sum", f"{name} has the parts of each {words}, expected 1 of each", 1
    elif answer.far(name):
        yield from of_rotation(answer, name, x, g) if case.hook == "rotate" else ()
        logits = case.level == "attn" and name in ("vjp.q", "vjp.k") and answer.right("vjp.v")
        if logits and case.hook not in ("attend", "score"):
            yield "grad.softmax", f"{name} is wrong, and the derivative of the values is right", 0.5


def cut_off(answer: Answer, name: str, x: Any, g: Any) -> str:
    """The rows or columns that are zero where all others are right, "" where it is not so."""
    for axis, what in enumerate(("rows", "columns")[: g.ndim]):
        rest = tuple(n for n in range(g.ndim) if n != axis)
        lost = np.flatnonzero(g.any(rest) & ~x.any(rest))
        kept = np.array(np.moveaxis(g, axis, 0))
        kept[lost] = 0
        if len(lost) and answer.near(name, np.moveaxis(kept, 0, axis)):
            return f"{what} {', '.join(map(str, lost))}"
    return ""


def of_rotation(answer: Answer, name: str, x: Any, g: Any) -> Iterator[tuple[str, str, float]]:
    """A rotation whose derivative stops at what passes, or turns in another direction."""
    case = answer.case
    if case is None or name not in ("vjp.q", "vjp.k"):
        return
    R, norm = case.config.R, lambda y: np.sqrt((y * y).sum(-1))
    if R != case.D and not x[..., R:].any() and agreeing(x[..., :R], g[..., :R]):
        yield "grad.passthrough", f"{name} is zero from channel {R} on", 1
    if case.level == "attn" and answer.right("vjp.v") and agreeing(norm(x), norm(g)):
        yield "grad.rotation", f"{name} has the right length and another direction in each token", 0.9


def of_parts(answer: Answer, name: str, x: Any) -> str:
    """In which shares what each sequence or each query head adds came, "" where it is no sum of these."""
    case = answer.case
    assert case is not None
    given = {n: y for n, y in answer.a.items() if n.startswith("cotangent.")}
    axes = [("sequence", 0, case.B)] if case.B > 1 and all(len(y) == case.B for y in given.values()) else []
    if case.level == "attn" and case.H > case.G:
        axes.append(("head of a group", 1, case.H // case.G))
    if case.level == "attn" and name.startswith("vjp.param."):
        axes.append(("head", 1, case.H))
    for what, axis, count in axes:
        parts = []
        for n in range(count):
            only = lambda y, n=n, axis=axis, count=count: (
                y * (np.arange(y.shape[axis]) % count == n).reshape(-1, *[1] * (y.ndim - 1 - axis))
            )
            parts.append(expected(case, {**answer.a, **{key: only(y) for key, y in given.items()}})[name])
        flat = np.stack([part.ravel() for part in parts], 1)
        shares = np.linalg.lstsq(flat, x.ravel(), rcond=None)[0]
        apart = np.ptp(shares) > NEARLY and np.linalg.matrix_rank(flat) == count
        if apart and answer.near(name, (flat @ shares).reshape(x.shape)):
            return f"{what} in shares {', '.join(f'{round(share, 3) + 0:g}' for share in shares)}"
    return ""


def overwritten(answer: Answer, name: str) -> str:
    """Whether each row of a table has the derivative of one of its uses alone, in words; "" where it has not.

    Which row each number of the output comes from is asked of the encoding itself: its table is replaced by
    the numbers of its rows.
    """
    case, table = answer.case, answer.a.get(name.removeprefix("vjp."))
    if case is None or table is None or table.ndim != 2:
        return ""
    output = "bias" if case.hook == "bias" else "rows" if case.level == "table" else "y"
    cotangent = answer.a.get(f"cotangent.{output}")
    if cotangent is None:
        return ""
    marks = np.arange(1.0, table.size + 1).reshape(table.shape)
    a = {**answer.a, name.removeprefix("vjp."): marks}
    made = expected(case, a)[output] - (answer.a["x"] if output == "y" else 0)
    made, cotangent = np.broadcast_arrays(made, cotangent)
    at, flat = np.rint(made).astype(int).ravel() - 1, cotangent.ravel()
    used = at >= 0
    if np.abs(made - np.rint(made)).max() > 1e-6 or at.max() >= table.size:
        return ""
    summed = np.zeros(table.size)
    np.add.at(summed, at[used], flat[used])
    if not np.allclose(summed.reshape(table.shape), answer.want(name)):
        return ""
    for words, order in (("last", slice(None)), ("first", slice(None, None, -1))):
        one = np.zeros(table.size)
        one[at[used][order]] = flat[used][order]
        if answer.near(name, one.reshape(table.shape)):
            use = f"a row that is used several times has the derivative of its {words} use alone"
            return f"{use}; add up all of them (+=, not =)"
    return ""


@family(turned_alone, DERIVATIVES)
def of_maps_back(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivative of a rotation is another map of the cotangent's pairs: no softmax can be blamed."""
    plain = ("", "it turns", Map())
    others = ("", "it is the inverse of what the other layout does", Map("other")), *MAPS, plain
    for sign, how, maps in (
        (-1, "", others),
        (1, ", and turns forward", others),
        (0, ", by no angle at all", (plain,)),
    ):
        for _, words, made in maps:
            for gain, what in ((1, ""), (0, ", without the gain"), (2, ", with the gain twice")):
                if (made, sign, gain) != (Map(), -1, 1):
                    said = f"the derivative of q and k is another map: {words}{how}{what}"
                    sure = 1.0 if made == Map() else 0.97
                    yield guess("grad.rotation", said, mapped_back(made, sign, gain), sure)


def mapped_back(made: Map, sign: int, gain: int) -> Any:
    def make(case: Case, answer: Answer) -> Any:
        if answer.parameters:
            return None
        phi, *gains = rotation_of(case, answer)
        found = {}
        for name, g in zip("qk", gains, strict=True):
            power = None if g is None or not gain else g**gain
            found[f"vjp.{name}"] = made(
                case, answer.a[f"cotangent.{name}_rotated"], sign * np.asarray(phi), power
            )
        return found

    return on_case(make, turned_alone)


@family(shared_heads, DERIVATIVES)
def of_groups(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivatives of query heads go to other key-value heads than they read."""
    for words, order in GROUPINGS.items():
        said = f"derivatives of keys and values are dealt as if {words}"
        shares = lambda h, g, H, G, order=order: order(h, H, G) == g
        yield guess("grad.heads_permuted", said, scattered(shares), 0.98)
    words = "derivatives of keys and values go to every head"
    yield guess("grad.sum", words, scattered(lambda h, g, H, G: 1), 0.98)


def scattered(shares: Any) -> Any:
    def make(case: Case, answer: Answer) -> Any:
        H, G = case.H, case.G
        many = {n: np.repeat(answer.a[n], H // G, 1) for n in "kv"}
        found = expected(replace(case, G=H), answer.a | many)
        weights = np.array([[float(shares(h, g, H, G)) for h in range(H)] for g in range(G)])
        return {f"vjp.{n}": np.einsum("gh,bhtd->bgtd", weights, found[f"vjp.{n}"]) for n in "kv"}

    return on_case(make, shared_heads)
