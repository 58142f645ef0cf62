"""The second half of a feed-forward."""

from typing import Any

from peref.ops.activation import gelu, swiglu
from peref.ops.linear import linear
from peref.ops.shape import add


def activated_linear(up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
    """h w' + b + residual, [...,C]; h = silu(gate) up, or gelu(up) where gate is None.

    up and gate [...,F], w [C,F]; b [C] and residual [...,C] may be None.
    """
    y = linear(gelu(up) if gate is None else swiglu(gate, up), w, b)
    return y if residual is None else add(residual, y)
