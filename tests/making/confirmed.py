"""One case computed, and given out only where array version, witness and finite differences agree and a
second run gives the same bits. Tables also agree with their formulas in 50 digits.

Not here: what a case computes (peref.golden.compute.operation), the files (make).
"""

from typing import Any

import check
import exact
import numpy as np
from check import apart
from making import composed, reorder
from making.witness import witnessed

from peref.compare import same
from peref.errors import PerefError
from peref.golden.compute import budgets
from peref.golden.compute.operation import watched
from peref.golden.compute.reference import expected, inputs
from peref.golden.compute.vectors import finite, with_budgets
from peref.golden.spec.cases import MODEL_LEVELS, OF_MODEL, Case, Variant
from peref.parameters import Arrays
from peref.rng import generator

WITNESS, GRADIENT, EXACT = 1e-12, 1e-8, 1e-12


class Disagrees(PerefError):
    """Two of the three ways to a number disagree, so nothing is written."""


def computed(case: Case, checked: bool = True) -> tuple[Arrays, Arrays]:
    """Inputs and expected tensors with their budgets, under their names in the case. Raises Disagrees."""
    a = inputs(case)
    want = finite(case, expected(case, a))
    try:
        if checked:
            again_in, again = inputs(case), expected(case, a)
            same(again_in, a, 0)
            same(again, want, 0)
            against_witness(case, a, want)
            against_exact(case, a, want)
            against_differences(case, a, want)
    except AssertionError as error:
        raise Disagrees(f"{case.id}: {error}") from error
    found = budgeted(case, a, want)
    for variant in case.variants[1:]:
        other = of_variant(case, variant, a, want, checked)
        found |= {
            f"{name.partition(':')[0]}@{variant.name}{''.join(name.partition(':')[1:])}": x
            for name, x in other.items()
        }
    return a, found


def budgeted(case: Case, a: Arrays, want: Arrays) -> Arrays:
    """What is expected with its budgets."""
    whole = case.level in OF_MODEL
    return with_budgets(want, reorder.budgets(case, a, want) if whole else budgets.budgets(case, a, want))


def read_as(case: Case, variant: Variant, a: Arrays) -> Arrays:
    """What another respected reading of the case gives."""
    got = expected(variant.of(case), a)
    return got | variant.rewrite(case, a, got) if variant.rewrite else got


def of_variant(case: Case, variant: Variant, a: Arrays, want: Arrays, checked: bool) -> Arrays:
    """What another respected reading of the case gives, with budgets. Raises Disagrees, also where it
    gives the same.
    """
    other = variant.of(case)
    got = expected(other, a)
    try:
        if checked:
            against_witness(other, a, got)
            against_exact(other, a, got)
            against_differences(other, a, got)
    except AssertionError as error:
        raise Disagrees(f"{case.id}, variant {variant.name}: {error}") from error
    found = budgeted(other, a, got)
    if variant.rewrite:
        if any(name.startswith("vjp.") for name in got):
            raise Disagrees(f"{case.id}, variant {variant.name}: it has gradients, which nothing checks")
        found |= variant.rewrite(case, a, got)
    if set(want) != {name for name in found if ":" not in name} or not any(
        apart(found[name], x) for name, x in want.items()
    ):
        raise Disagrees(f"{case.id}, variant {variant.name}: it is the norm, or has other tensors")
    return found


def against_witness(case: Case, a: Arrays, want: Arrays) -> None:
    """Each output is what the loops give: relative to the largest, with what a phase costs in float64."""
    reach = float(np.abs(case.at.i).max())
    outputs = {name: g for name, g in want.items() if not name.startswith("vjp.")}
    seen = composed.witnessed(case, a) if case.level in MODEL_LEVELS else witnessed(case, a)
    same(seen, outputs, WITNESS + 1e-15 * reach, "witness")


def against_exact(case: Case, a: Arrays, want: Arrays) -> None:
    """Each table whose formula the recipe has (exact) is what that gives in 50 digits; a phase of many
    radians may lose a rounding for each.
    """
    if case.level != "table" or not exact.known(case.encoding):
        return
    facts = {letter: getattr(case.config, letter) for letter in ("H", "R", "C", "L", "causal")}
    p = {name.removeprefix("param."): x.tolist() for name, x in a.items() if name.startswith("param.")}
    digits = exact.tables(case.encoding, case.hook, p, a, facts, dict(case.config.pe[0][1]), case.at.n)
    outputs = {name for name in want if not name.startswith("vjp.")}
    assert outputs == set(digits), f"50 digits give {sorted(digits)}, and there are {sorted(outputs)}"
    for name, (value, size, phase) in digits.items():
        g = want[name]
        assert g.shape == value.shape, f"50 digits: {name} is {g.shape}, expected {value.shape}"
        with np.errstate(invalid="ignore"):
            near = (g == value) | (np.abs(g - value) <= EXACT * size + 2.0**-51 * phase)
        if not near.all():
            at = tuple(int(n) for n in np.argwhere(~near)[0])
            raise AssertionError(f"50 digits: {name}{list(at)} is {g[at]!r}, expected {value[at]!r}")


def against_differences(case: Case, a: Arrays, want: Arrays) -> None:
    """Each product with the Jacobian is the derivative of the outputs along a random direction."""
    rng = generator(0, f"directions of {case.id}")
    judged = [name.removeprefix("cotangent.") for name in a if name.startswith("cotangent.")]
    # what is infinite stays so, and has no slope
    flat = lambda arrays: np.concatenate([np.where(np.isinf(x), 0, x).ravel() for x in arrays])
    dy, y = (
        flat([a[f"cotangent.{name}"] for name in judged]) if judged else None,
        flat([want[n] for n in judged]) if judged else None,
    )
    for name in watched(a) if judged else ():
        g = want[f"vjp.{name}"]

        def at(moved: Any, name: str = name) -> Any:
            got = expected(
                case, {k: x for k, x in {**a, name: moved}.items() if not k.startswith("cotangent.")}
            )
            return flat([got[n] for n in judged])

        check.agree(
            f"vjp.{name}", g, check.direction(rng, g), at, a[name], y, dy, GRADIENT, np.linalg.norm(g)
        )
