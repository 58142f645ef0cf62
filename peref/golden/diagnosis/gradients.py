"""Guesses at a wrong derivative beside right outputs: a factor, a part of the sum, other heads or tokens, a
rotation that does not turn back.

A derivative is a sum over those who used the number. What each sequence and each query head adds is computed
by giving only its cotangent; the shares in which these parts came say which are missing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import NEARLY, Answer, Clue, Trap
from peref.golden.diagnosis.engine import computed


def of_derivative(answer: Answer) -> Iterator[Clue]:
    """What is wrong about derivatives where every output is right."""
    if not answer.derivative:
        return
    factors: dict[str, float] = {}
    for name in answer.wrong:
        x, g = answer.wide(name), answer.want(name)
        if x is None or not np.isfinite(x).all() or not g.any():
            continue
        if not x.any():
            yield Clue(Trap("grad.zero", f"{name} is zero throughout"), 1)
            continue
        c = float(np.vdot(g, x) / np.vdot(g, g))
        if abs(c) > 1e-6 and abs(c - 1) > NEARLY and answer.near(name, c * g):
            factors[name] = c
        else:
            yield from of_one(answer, name, x, g)
    yield from of_factors(answer, factors)


def of_factors(answer: Answer, factors: dict[str, float]) -> Iterator[Clue]:
    """What the factors say: D or its root on q and k alone is the scale of the logits."""
    logits = {"vjp.q", "vjp.k"}
    D = answer.entry.words["facts"]["D"]
    powers = [D**e for e in (0.5, -0.5, 1.0, -1.0)]
    for name, c in factors.items():
        if abs(c + 1) < 1e-4:
            yield Clue(Trap("grad.sign", f"{name}: its sign is the other one"), 1)
        elif (
            set(factors) <= logits
            and answer.entry.words["level"] == "attn"
            and any(abs(c / power - 1) < 1e-4 for power in powers)
        ):
            yield Clue(
                Trap(
                    "grad.softmax",
                    f"{name} is the golden tensor times {c:.6g}: the scale of the logits is missing, or is "
                    "there twice",
                ),
                1,
            )
        else:
            yield Clue(Trap("grad.factor", f"{name} is the golden tensor times {c:.6g}"), 1)


def of_one(answer: Answer, name: str, x: Any, g: Any) -> Iterator[Clue]:
    """One derivative that is no multiple of the right one."""
    letters = answer.axes.get(name, "")
    for letter, flag, words in (
        ("T", "grad.time", "tokens"),
        ("H", "grad.heads_permuted", "heads"),
        ("G", "grad.heads_permuted", "heads"),
    ):
        if letter in letters and (order := permuted(answer, name, x, g, letters.index(letter))):
            yield Clue(
                Trap(flag, f"{name} has the derivatives of other {words}: {', '.join(map(str, order))}"), 1
            )
            return
        if letter == "T" and letter in letters and shifted(answer, name, x, g, letters.index(letter)):
            yield Clue(Trap(flag, f"{name} comes a token late or early"), 1)
            return
    case = answer.case
    if case is None or not answer.far(name):
        return
    if words := overwritten(answer, name):
        yield Clue(Trap("grad.sum", f"{name}: {words}"), 1)
        return
    if case.hook == "rotate":
        yield from of_rotation(answer, name, x, g)
    if parts := list(of_parts(answer, name, x)):
        yield from parts
    elif (
        case.level == "attn"
        and name in ("vjp.q", "vjp.k")
        and answer.right("vjp.v")
        and case.hook != "attend"
    ):
        yield Clue(Trap("grad.softmax", f"{name} is wrong, and the derivative of the values is right"), 0.5)


def permuted(answer: Answer, name: str, x: Any, g: Any, axis: int) -> list[int]:
    """Which slice of the right derivative each slice is, [] where they are none, or each its own."""
    x, g = np.moveaxis(x, axis, 0), np.moveaxis(g, axis, 0)
    size = 1e-4 * (np.abs(g).max() + 1e-30)
    order = [
        next((m for m in [n, *range(len(g))] if np.abs(x[n] - g[m]).max() <= size), None)
        for n in range(len(g))
    ]
    known = [m for m in order if m is not None]
    return (
        known if len(known) == len(order) and known != list(range(len(order))) and len(set(known)) > 1 else []
    )


def shifted(answer: Answer, name: str, x: Any, g: Any, axis: int) -> bool:
    """Whether it comes a token late or early, whatever stands in the place that is left."""
    x, g = np.moveaxis(x, axis, 0), np.moveaxis(g, axis, 0)
    size = 1e-4 * (np.abs(g).max() + 1e-30)
    return bool(
        len(g) > 2 and any(np.abs(a - b).max() <= size for a, b in ((x[1:], g[:-1]), (x[:-1], g[1:])))
    )


def of_rotation(answer: Answer, name: str, x: Any, g: Any) -> Iterator[Clue]:
    """A rotation whose derivative turns forward, or not, or stops at what passes."""
    case, cotangent = answer.case, answer.a.get(f"cotangent.{name.removeprefix('vjp.')}_rotated")
    assert case is not None
    R = case.config.R
    if (
        name in ("vjp.q", "vjp.k")
        and R != case.D
        and not x[..., R:].any()
        and np.abs(x[..., :R] - g[..., :R]).max() < 1e-4 * np.abs(g).max()
    ):
        yield Clue(Trap("grad.passthrough", f"{name} is zero from channel {R} on"), 1)
    if cotangent is not None and answer.near(name, cotangent):
        yield Clue(
            Trap("grad.rotation", f"{name} is the cotangent as it went in: it does not turn at all"), 1
        )
    for words, change in (
        ("turns forward, not back", lambda phi, *h: (-phi, *h)),
        ("does not turn at all", lambda phi, *h: (0 * phi, *h)),
        ("lacks the gain", lambda phi, *h: (phi, None, None)),
        ("does not turn and has no gain", lambda phi, *h: (0 * phi, None, None)),
        ("has the gain twice", lambda phi, *h: (phi, *(None if one is None else one * one for one in h))),
    ):
        if (
            case.level == "op"
            and (made := computed(turn=change)(answer)) is not None
            and name in made
            and answer.near(name, made[name])
        ):
            yield Clue(Trap("grad.rotation", f"{name} {words}"), 1)
            return
    if case.level == "attn" and name in ("vjp.q", "vjp.k") and answer.right("vjp.v"):
        norm = lambda y: np.sqrt((y * y).sum(-1))
        if np.abs(norm(x) - norm(g)).max() < 1e-4 * norm(g).max():
            yield Clue(
                Trap("grad.rotation", f"{name} has the right length and another direction in each token"), 0.9
            )


def of_parts(answer: Answer, name: str, x: Any) -> Iterator[Clue]:
    """In which shares what each sequence and each query head adds came."""
    case = answer.case
    assert case is not None
    given = {n: y for n, y in answer.a.items() if n.startswith("cotangent.")}
    axes = [("sequence", 0, case.B)] if case.B > 1 and all(len(y) == case.B for y in given.values()) else []
    if case.level == "attn" and case.H > case.G:
        axes.append(("head", 1, case.H // case.G))
    for what, axis, count in axes:
        parts = []
        for n in range(count):
            only = lambda y, n=n, axis=axis, count=count: (
                y * (np.arange(y.shape[axis]) % count == n).reshape(-1, *[1] * (y.ndim - 1 - axis))
            )
            parts.append(expected(case, {**answer.a, **{key: only(y) for key, y in given.items()}})[name])
        flat = np.stack([part.ravel() for part in parts], 1)
        shares = np.linalg.lstsq(flat, x.ravel(), rcond=None)[0]
        if (
            answer.near(name, (flat @ shares).reshape(x.shape))
            and np.ptp(shares) > NEARLY
            and np.linalg.matrix_rank(flat) == count
        ):
            has = ", ".join(f"{share:.3g}" for share in shares)
            yield Clue(
                Trap("grad.sum", f"{name} has the parts of each {what} in shares {has}, expected 1 of each"),
                1,
            )
            return


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
    whole = np.zeros(table.size)
    np.add.at(whole, at[used], flat[used])
    if not np.allclose(whole.reshape(table.shape), answer.want(name)):
        return ""
    for words, order in (("last", slice(None)), ("first", slice(None, None, -1))):
        one = np.zeros(table.size)
        one[at[used][order]] = flat[used][order]
        if answer.near(name, one.reshape(table.shape)):
            return (
                f"a row that is used several times has the derivative of its {words} use alone; add up all "
                "of them (+=, not =)"
            )
    return ""
