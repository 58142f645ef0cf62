"""What people write in place of an operator, a function, a number or a name: data, and code that runs inside
changed formulas.

Not here: how it is put into a text (variants).
"""

import ast
from typing import Any

import numpy as np

from peref.ops.activation import gelu

OPERATORS: dict[type, tuple[str, ...]] = {  # a, b: its operands
    ast.Add: ("a - b", "a", "b"),
    ast.Sub: ("a + b", "a", "b", "b - a"),
    ast.Mult: ("a / b", "a", "b", "(1 - a) * b", "a * (1 - b)"),
    ast.Div: ("a * b", "a", "b / a", "a // b", "1 / b"),
    ast.Pow: ("a", "a ** -b", "a * b", "b ** a", "1.0"),
    ast.FloorDiv: ("a / b", "a // b + 1", "a"),
    ast.MatMult: ("b @ a",),
    ast.USub: ("a",),
    ast.Lt: ("a <= b", "a > b"),
    ast.LtE: ("a < b", "a >= b"),
    ast.Gt: ("a >= b", "a < b"),
    ast.GtE: ("a > b", "a <= b"),
    ast.Eq: ("a != b",),
}
ELEMENTARY: dict[str, Any] = {  # what may be handed to a function in place of another
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: gelu(x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "exp": np.exp,
    "minus_exp": lambda x: -np.exp(x),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "identity": lambda x: x,
}
SIGMOID, SOFTPLUS = "1 / (1 + np.exp(-a))", "np.log1p(np.exp(a))"
ACTIVATED = ("a", "np.tanh(a)", SIGMOID, SOFTPLUS, "np.maximum(a, 0)", f"a * {SIGMOID}")
LARGER, SMALLER = ("np.minimum(a, b)", "a", "b", "a + b", "np.maximum(a, 0)"), ("np.maximum(a, b)", "a", "b")
FUNCTIONS: dict[str, tuple[str, ...]] = {  # a, b, c: what it is given; x: the call; o: whose method it is
    "log": ("np.log2(a)", "np.log10(a)", "np.log(a + 1)", "a", "np.sqrt(a)", "x + 1"),
    "log1p": ("np.log(a + 1e-6)", "np.log(a)", "np.log2(1 + a)", "np.log10(1 + a)", "a", "np.sqrt(a)"),
    "exp": ("a", "1 + a", SOFTPLUS, SIGMOID, "np.exp(-a)", "2.0 ** a", "x - 1"),
    "expm1": ("np.exp(a)", "a"),
    "cos": ("np.sin(a)", "a"),
    "sin": ("np.cos(a)", "a"),
    "sqrt": ("a", "a * a"),
    "abs": ("a", "-a", "a * a", "np.maximum(a, 0)"),
    "sign": ("np.abs(x)", "1"),
    "tanh": ("a", SIGMOID, "np.maximum(a, 0)"),
    "maximum": LARGER,
    "max": LARGER,
    "minimum": SMALLER,
    "min": SMALLER,
    "floor": ("np.ceil(a)", "np.rint(a)", "a"),
    "ceil": ("np.floor(a)", "np.rint(a)", "a"),
    "int": ("int(np.ceil(a))", "int(np.rint(a))", "x + 1"),
    "arange": ("x + 1", "x - 1", "x[::-1]"),
    "cumsum": ("x - o", "o[..., ::-1].cumsum(-1)[..., ::-1]", "o"),
    "clip": ("o", "a", "np.minimum(a, c)", "np.maximum(a, b)"),
    "swapaxes": ("o",),
    "sum": ("o.mean(-1, keepdims=True)",),
    "mean": ("0 * x",),
    **dict.fromkeys(
        ("silu", "gelu", "relu", "sigmoid", "softplus", "logistic"),
        (*ACTIVATED, "np.exp(a)", "np.abs(a)", "np.maximum(a, 0.01)"),
    ),
    "log_sigmoid": ("a", "np.tanh(a)", SIGMOID, f"-{SOFTPLUS}", "-np.exp(-np.exp(a))", "-np.exp(a)"),
    "minus_exp": ("a", f"-{SOFTPLUS}", f"-{SIGMOID}", f"np.log({SIGMOID})", "np.log1p(-np.exp(-np.exp(a)))"),
}
WHOLE_NUMBERS = {*"RDCHLnTGNw", "last", "start_tokens", "max_distance", "buckets"}
NEAR_BY = ("x + 1", "x - 1", "2 * x", "x // 2")
MOST_NAMES = 12  # of a function whose names are exchanged for one another within a statement
NO_NUMBERS = {"xp", "be", "p", "at", "state", "across", "runs", "matmul", "given"}
NO_NUMBERS |= {"dtype", "steps", "out", "parts", "place", "after"}
NO_FUNCTIONS = {"range", "zip", "enumerate", "map", "tuple", "len", "str", "slice", "dict", "list"}
LIBRARIES = {"xp", "np", "math"}
SETTLED = {"namespace", "positive", "bounded", "astype", "zeros", "zeros_like", "like", "place", "reshape"}
FACTORS = {"scale", "factor"}  # arguments that may be left out, or count twice
NO_EXPRESSIONS = {"axis", "keepdims", "dtype", "place", "chunk", "matmul", "axes", "order"}
