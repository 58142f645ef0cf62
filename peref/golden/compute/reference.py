"""What peref itself gives for a case of any level. Everything that takes cases asks here.

table, op, attn: operation    cross: cross    block, model: model    step: training    trace: trace
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref import direct
from peref.encodings import get
from peref.golden.compute.cross import cross_inputs, cross_outputs
from peref.golden.compute.model import model_inputs, model_outputs
from peref.golden.compute.operation import operation_inputs, operation_outputs, parameters_in
from peref.golden.compute.trace import trace_inputs, trace_outputs
from peref.golden.compute.training import training_inputs, training_outputs
from peref.golden.spec.cases import Case, nested, rebuilt
from peref.member import turning
from peref.parameters import Arrays

Computed = Callable[..., Arrays]
LEVEL: dict[str, tuple[Computed, Computed]] = {  # what makes the inputs of a case, and what its outputs
    **dict.fromkeys(("table", "op", "attn"), (operation_inputs, operation_outputs)),
    "cross": (cross_inputs, cross_outputs),
    "block": (model_inputs, model_outputs),
    "model": (model_inputs, model_outputs),
    "step": (training_inputs, training_outputs),
    "trace": (trace_inputs, trace_outputs),
}


def inputs(case: Case) -> Arrays:
    """All that goes in, cotangents included."""
    return LEVEL[case.level][0](case)


def expected(case: Case, a: Arrays, *more: Any, **named: Any) -> Arrays:
    """Outputs and products with the Jacobian. `more`: of table, op, attn, cross and trace an encoding and a
    place, of the others a backend.
    """
    return LEVEL[case.level][1](case, a, *more, **named)


def reference(case: dict[str, Any], inputs: Arrays) -> Arrays:
    """peref itself as a function that is judged, in the dtype of the inputs: check --impl
    peref.golden.compute.reference:reference.
    """
    if case["level"] == "refuse":
        return direct_call(case, inputs)
    return expected(rebuilt(case, inputs), inputs)


def direct_call(case: dict[str, Any], a: dict[str, Any]) -> Any:
    """peref itself as such a function: the calls that a user would make where there are such, else a
    model's layer.
    """
    f, name, hook = case["facts"], case["encoding"], get(case["encoding"]).hook
    given: dict[str, Any] = {key: nested(value) for key, value in case["options"].items()}
    p = parameters_in(a)
    where: dict[str, Any] = {"positions": a.get("positions"), "params": p, "L": f["L"], **given}
    if hook == "rotate" and case["call"] == "op":
        q, k = direct.rotate(name, a["q"], a["k"], layout=f["layout"], rotary_dim=f["R"], n=f["n"], **where)
        return {"q_rotated": q, "k_rotated": k}
    if case["call"] == "attn":
        where |= {key: f[key] for key in ("causal", "window", "n")} | {"x": a.get("x"), "seg": a.get("seg")}
        where |= {"layout": f["layout"], "rotary_dim": f["R"]} if turning(name) else {}
        return {"out": direct.attention(name, a["q"], a["k"], a["v"], **where)}
    dtype = direct.real({"x": a["x"]}) if "x" in a else np.dtype(np.float64)
    again = rebuilt(case | {"level": case["call"]}, a)
    direct.parameters(name, again.config.encoding(0), p, 0, dtype)
    return expected(again, a)
