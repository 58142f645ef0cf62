"""A case of any level: which module computes it. Everything that takes cases asks here.

table, op, attn: levels    block, model: stack    step: training    trace: trace
"""

from typing import Any

from peref.golden import diagnose, levels, stack, trace, training, whole
from peref.golden.cases import Case

Arrays = dict[str, Any]
OTHER = {"block": stack, "model": stack, "step": training, "trace": trace}


def inputs(case: Case) -> Arrays:
    """All that goes in, cotangents included."""
    return OTHER.get(case.level, levels).inputs(case)


def expected(case: Case, a: Arrays, *more: Any) -> Arrays:
    """Outputs and products with the Jacobian. `more`: of table, op, attn and trace an encoding and a
    place, of the others a backend.
    """
    return OTHER.get(case.level, levels).expected(case, a, *more)


def rebuilt(words: dict[str, Any], inputs: Arrays) -> Case:
    """The case that these words of cases.json describe."""
    if words["level"] in whole.LEVELS:
        return whole.rebuilt(words, inputs, diagnose.nested)
    return diagnose.rebuilt(words, inputs)
