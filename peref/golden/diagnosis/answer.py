"""What somebody's implementation answered for one case, and how a guess at the bug is held against it.

A guess is a function of a case that gives what somebody with the bug would have: where its numbers came, it
explains them. Guesses have parameters that are fitted on one case (a table that ends at N, a base, an
offset), and are then tried on all others: the right one fits everywhere.

Not here: the guesses (one module each), which of them is named (ranking).
"""

import math
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from peref.errors import PerefError
from peref.golden.compute.budgets import STEP, moved
from peref.golden.compute.noise import rounding, wrapped
from peref.golden.compute.reference import expected
from peref.golden.spec.cases import FACTS, OPERATIONS, Case, rebuilt
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import LOW, Tensor
from peref.golden.spec.rule import ROUNDOFF, Verdict, limits, verdict_on
from peref.parameters import Arrays
from peref.rng import generator

# a case that cannot be changed so: refused, beyond what numbers hold, rows that are not there. An error of
# any other kind is a mistake in a guess, and is not hidden
BROKEN = (PerefError, ArithmeticError, ValueError, IndexError, np.exceptions.ComplexWarning)
NEARLY = 0.005  # a factor or a setting so near to the right one is no other: something else is inaccurate
GENERAL = 0.89  # how much a bug that says little is worth: less than one that is named by its own flag
INVENTED = 0.8  # and one with a number that was fitted and that nobody would write: less than any other
SHOWN = 0.8  # what clues must weigh for all that failed to show a bug
ROUNDINGS = 2  # random draws that the budget of a guess is measured by: limits are a hundred times the larger
WIDE = ("F64", "F32")  # dtypes of more than 16 bits
COARSE = 2.0**-5  # what bfloat16 throughout may cost; less than that is no sign of a bug by itself


class NoProgram(ValueError):
    """A text that was changed to guess at a bug and computes nothing: it is left out, counted and told."""


@dataclass(frozen=True)
class Trap:
    """What it looks like, and the flag that explains it, "" where there is none."""

    flag: str
    words: str
    evidence: str = ""  # of a whole run: what speaks for it


@dataclass(frozen=True)
class Guess:
    """A bug, and what it gives for a case: tensors, or None where it cannot show. `sure` is how much it is
    worth where it fits. `invented`: a number in it was fitted, and is none that somebody would write.
    `backward`: it is one at derivatives alone. `vague`: its flag is that of much else besides.
    """

    trap: Trap
    gives: Callable[["Answer"], Arrays | None]
    sure: float = 1.0
    invented: bool = False
    backward: bool = False
    vague: bool = False


def guess(
    flag: str,
    words: str,
    gives: Callable[["Answer"], Arrays | None],
    sure: float = 1.0,
    fitted: float | None = None,
) -> Guess:
    """A guess; `fitted` is the number in it that was fitted, where there is one."""
    if fitted is None or rounded_near(fitted) is not None:
        return Guess(Trap(flag, words), gives, sure)
    return Guess(Trap(flag, words), gives, min(sure, INVENTED), True)


def rounded_near(x: float) -> float | None:
    """The number that somebody wrote, where a fit gave x: one of two digits, 1 divided by one, or a power of
    2; None where there is none so near.
    """
    if not np.isfinite(x) or x == 0:
        return None if x else 0.0
    two = lambda y: float(f"{y:.2g}")
    known = (two(x), 1 / two(1 / x), math.copysign(2.0 ** round(math.log2(abs(x))), x))
    return next((y for y in known if abs(x - y) <= 1e-4 * abs(x)), None)


@dataclass(frozen=True)
class Clue:
    """A bug that a case speaks for without numbers of its own: who sees whom, which channels are wrong.
    `proves`: it was read off to all its digits what was done, and not only that something is wrong.
    """

    trap: Trap
    weight: float
    proves: bool = False


def unmoved(at: Any, case: Any) -> Any:
    return at


def as_expected(case: Case, a: Arrays, pe: Any, place: Any = unmoved) -> Arrays | None:
    """What the reference gives at place(the place of a case, the case), None where that is none."""
    at = place(case.at, case)
    return None if at is None else expected(case, a, pe, at)


@dataclass
class Answer:
    """The tensors that came for one case; how it is computed (as_expected), where not as the reference does,
    and what becomes of angles and gains before they are used; what could not be computed of what was tried: a
    kind -> which.
    """

    entry: Entry
    got: dict[str, Tensor]
    verdicts: dict[str, bool] = field(default_factory=dict)  # name -> whether it passes
    computing: Callable[..., Arrays | None] = as_expected
    turned: Callable[[Any], Any] = lambda angles_and_gains: angles_and_gains
    uncomputed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    moves: dict[tuple[Guess, bool], list[Arrays]] = field(default_factory=dict)  # drawn, once for each guess

    def __post_init__(self) -> None:
        for name, x in self.got.items():
            if name not in self.verdicts:
                budget, depth = self.entry.budget(name), self.entry.words["depth"]
                self.verdicts[name] = verdict_on(x, self.want(name), *budget, depth).passes

    @cached_property
    def wrong(self) -> list[str]:
        """Real tensors that fail; derivatives only where no output does: what is wrong about an output
        shows in them too.
        """
        real = lambda name: self.want(name).dtype.kind == "f" and self.got[name].dtype in ROUNDOFF
        bad = [name for name, right in self.verdicts.items() if not right and real(name)]
        return [name for name in bad if not name.startswith("vjp.")] or bad

    @property
    def derivative(self) -> bool:
        """Whether only derivatives are wrong."""
        return bool(self.wrong) and self.wrong[0].startswith("vjp.")

    @property
    def of_right_outputs(self) -> bool:
        """Whether derivatives are wrong of outputs that came and are right."""
        return self.derivative and any(self.right(name) for name in self.got if not name.startswith("vjp."))

    @cached_property
    def case(self) -> Case | None:
        """The case, None for a level or an encoding that cannot be computed anew."""
        known = {*FACTS, "before"}
        return None if self.entry.words["facts"].keys() - known else self.again(OPERATIONS)

    @cached_property
    def trace(self) -> Case | None:
        """The case where it is a trace that can be computed anew."""
        return self.again(("trace",))

    def again(self, levels: tuple[str, ...]) -> Case | None:
        if self.entry.words["level"] not in levels:
            return None
        try:
            case = rebuilt(self.entry.words, self.a)
            case.config.encoding(0)
        except PerefError:
            return None
        return case

    @cached_property
    def a(self) -> Arrays:
        return self.entry.inputs()

    @cached_property
    def forward(self) -> "Answer":
        """The same without cotangents: no derivative is computed for it."""
        one = self.by(self.computing)
        one.a = {name: x for name, x in self.a.items() if not name.startswith("cotangent.")}
        return one

    def by(self, computing: Callable[..., Arrays | None], **more: Any) -> "Answer":
        """The same, computed otherwise."""
        one = replace(self, computing=computing, **more)
        one.a, one.case, one.wrong, one.trace = self.a, self.case, self.wrong, self.trace
        return one

    @property
    def parameters(self) -> Arrays:
        return {name: x for name, x in self.a.items() if name.startswith("param.")}

    def has_parameters_of(self, case: Case) -> bool:
        """Whether the parameters of another case are among those of this one, here at least as large."""
        given = self.parameters
        made = case.config.encoding(0).init(np.random.default_rng(0))
        needs = {f"param.{name}": np.shape(x) for name, x in made.items()}
        fits = lambda shape, x: len(shape) == x.ndim and all(map(operator.le, shape, x.shape))
        return needs.keys() <= given.keys() and all(fits(needs[name], given[name]) for name in needs)

    def want(self, name: str) -> np.ndarray:
        return self.entry.want(name)

    def wide(self, name: str) -> np.ndarray | None:
        """What came, None where it did not or has another shape."""
        x = self.got.get(name)
        return x.wide if x is not None and x.wide.shape == self.want(name).shape else None

    def right(self, name: str) -> bool:
        """Whether it came and passes."""
        return self.verdicts.get(name, False)

    @cached_property
    def unreal(self) -> Trap | None:
        """NaN or infinities that came, where they are all that is wrong: no formula can be read off them."""
        found = None
        for name in self.wrong:
            x, verdict = self.wide(name), self.held_against(name, self.want(name))
            if x is None or verdict.used is None or (verdict.wrong("C") & np.isfinite(x)).any():
                return None
            at = tuple(map(int, np.argwhere(verdict.wrong("C"))[0]))
            rest = ", and all that is finite is right" if np.isfinite(x).any() else ""
            words = f"{'NaN' if np.isnan(x[at]) else 'infinities'} came{rest}"
            found = found or Trap("", words, f"first at {name}{list(at)} of {self.entry.id}")
        return found

    def far(self, name: str) -> bool:
        """Whether it is farther from what is expected than arithmetic of few digits makes it: by more than
        a part of the terms it is the sum of.
        """
        x, want, a = self.wide(name), self.want(name), self.entry.budget(name)[0]
        with np.errstate(invalid="ignore"):
            return x is None or a is None or not bool((np.abs(x - want) <= COARSE * a).all())

    @cached_property
    def rounded(self) -> bool:
        """Whether all that came in float64 or float32 is numbers of 16 bits, most of them near the right
        ones: then few digits may be all that is wrong.
        """
        some = [name for name, x in self.got.items() if x.dtype in WIDE]
        kept = lambda x: any(np.array_equal(low(x), x, equal_nan=True) for low in LOW.values())
        near = lambda x, want: np.abs(x - want) <= COARSE * np.abs(want)
        with np.errstate(all="ignore"):
            return bool(some) and all(
                (x := self.wide(name)) is not None and kept(x) and near(x, self.want(name)).mean() > 0.5
                for name in some
            )

    def room(self, name: str) -> Any:
        """How far what came may be from what its program means: what rounding at every step costs; 0 where it
        did not come.
        """
        a, b = self.entry.budget(name)
        if name not in self.got or a is None or b is None:
            return np.zeros(self.want(name).shape)
        return limits(self.got[name].dtype, self.want(name), a, b, self.entry.words["depth"])[1]

    def near(self, name: str, x: Any) -> bool:
        """Whether what came agrees with x by the rule."""
        return self.held_against(name, x).passes

    def held_against(self, name: str, x: Any, off: Any = None) -> Verdict:
        """What came beside x, with the budget that numbers of its size need; NaN and infinities where x has
        them. `off`: how far rounding moves x, where that was measured.
        """
        want, (a, b) = self.want(name), self.entry.budget(name)
        x = np.asarray(x)
        alike = x.shape == want.shape and self.wide(name) is not None
        if not alike or a is None or b is None or not np.isfinite(x).any():
            return Verdict("FAIL", math.inf)
        with np.errstate(all="ignore"):
            larger = np.where(np.isfinite(x), np.maximum(np.abs(x) - np.abs(want), 0), 0)
            b = b * (1 + np.where(a > 0, larger / a, 0))
        b = b if off is None else np.fmax(b, off)
        return verdict_on(self.got[name], x, a + larger, b, self.entry.words["depth"])

    def misfit(self, guess: Guess) -> float:
        """The mean square of what the wrong tensors that a guess gives use of class A: in 16 bits several
        guesses give what came, and one is nearest.
        """
        given = self.given(guess) or {}
        held = [self.held_by(guess, given, name) for name in self.wrong if name in given]
        used = [np.ravel(one.used) for one in held if one.used is not None]
        return float((np.concatenate(used) ** 2).mean()) if used else 0.0

    @np.errstate(all="ignore")
    def held_by(self, guess: Guess, given: Arrays, name: str, learnt: bool = False) -> Verdict:
        """What came beside what a guess gives. A program with a bug rounds as its own formula does: where
        what came is nearer to the guess than to what is right, the budget of the guess counts, if by this
        budget the right numbers would still be wrong.
        """
        x, mine, want = np.asarray(given[name]), self.wide(name), self.want(name)
        verdict = self.held_against(name, x)
        if verdict.passes or self.computing is not as_expected or mine is None or x.shape != want.shape:
            return verdict
        nearer = np.abs(mine - x).max(initial=0) <= np.abs(mine - want).max(initial=0) / 2
        if not (nearer and np.isfinite(mine).all()):
            return verdict
        if (guess, learnt) not in self.moves:
            self.moves[guess, learnt] = list(self.drawn(guess, learnt))
        drawn = [y[name] for y in self.moves[guess, learnt] if name in y]
        most = np.abs(np.array(drawn) - x).max(0) / STEP if drawn else 0.0
        right, own = (self.held_against(name, y, most) for y in (want, x))
        return verdict if right.passes else own

    def drawn(self, guess: Guess, learnt: bool) -> Iterator[Arrays]:
        """What a guess gives where all that is computed on the way is rounded at random."""
        fine = rounding(generator(0, f"rounding of {self.entry.id}").standard_normal, STEP)
        off = lambda angles_and_gains: wrapped(tuple(map(fine, angles_and_gains)), fine)

        def at_random(case: Case, a: Arrays, pe: Any, place: Any = unmoved) -> Arrays | None:
            at = place(case.at, case)
            return None if at is None else moved(case, a, pe, at, fine)

        other = self.by(at_random, turned=off)
        yield from (other.given(guess, learnt) or {} for _ in range(ROUNDINGS))

    def fits(self, guess: Guess) -> float | None:
        """The share of wrong tensors that the guess gives, less one where it makes something wrong that
        came right; None where it says nothing.
        """
        given = self.given(guess)
        if given is None:
            return None
        off = lambda some, of=given, *how: (
            not all(self.held_by(guess, of, name, *how).passes for name in some if name in of)
        )
        real = [name for name in self.got if self.want(name).dtype.kind == "f"]
        learnt = [name for name in real if name.startswith("vjp.")]
        outputs = [name for name in real if name not in learnt]
        if not self.wrong:
            told = learnt if guess.backward else outputs
            return -float(off(told))
        some = [name for name in self.wrong if name in given]
        if not some:
            return None
        share = sum(self.held_by(guess, given, name).passes for name in some) / len(self.wrong)
        if share and not self.derivative:
            kept = [name for name in learnt if self.right(name)]
            share -= 0.5 * off([name for name in outputs if self.right(name)])
            share -= 0.1 * off(kept, (kept and self.given(guess, True)) or {}, True)
        return share

    def given(self, guess: Guess, learnt: bool = False) -> Arrays | None:
        """What a guess gives, `learnt`: derivatives too; None where it cannot be computed."""
        of = self if learnt or self.derivative or guess.backward else self.forward
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)  # the root of a negative number
                return guess.gives(of)
        except BROKEN as error:
            if isinstance(error, NoProgram):
                self.uncomputed["changed formula"].add(guess.trap.words)
            return None

    @property
    def axes(self) -> dict[str, str]:
        return self.entry.words["axes"]


EVERYWHERE = {("options", "base"): "rope.base.ignored", ("heads", "*"): "bias.heads"}


def flag_of(answer: Answer, part: str, name: str = "*", other: str = "option") -> str:
    """The flag of this option, parameter or function, of the heads; `other` where the encoding says
    nothing of it.
    """
    means = answer.entry.vectors.words["means"].get(part, {})
    fitting = (flag for pattern, flag in means.items() if fnmatchcase(name, pattern))
    return means.get(name) or next(fitting, None) or EVERYWHERE.get((part, name), other)


def flag_of_scale(answer: Answer, other: str) -> str:
    """The flag of a factor of what an encoding adds to the logits by content; `other` where it has none."""
    known = answer.entry.vectors.words["flags"]
    own = (flag for flag in known if flag.endswith(".scale") and flag not in ("attn.scale", "bias.scale"))
    return next(own, other)
