"""What people write in place of an expression: of an operator, a function, a number, a comparison, a name or
brackets. ELEMENTARY runs inside changed formulas.

Not here: which expressions of a text are changed, and how (variants).
"""

import ast
from collections.abc import Iterator
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


def numbers(x: Any) -> tuple[Any, ...]:
    """What may stand in place of a number."""
    if isinstance(x, bool) or not isinstance(x, int | float):
        return ()
    half = x // 2 if isinstance(x, int) and x % 2 == 0 else x / 2
    return tuple(y for y in dict.fromkeys((x + 1, x - 1, 2 * x, half)) if y != x)


def with_nodes(template: str, **nodes: Any) -> Any:
    """An expression whose names are other expressions."""

    class Filling(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> Any:
            return nodes.get(node.id, node)

    return Filling().visit(ast.parse(template, mode="eval").body)


def others(node: Any, known: set[str]) -> Iterator[Any]:
    """The expressions that may stand in place of one."""
    yield from rebracketed(node)
    match node:
        case ast.BinOp(left=a, right=b):
            yield from (with_nodes(t, a=a, b=b) for t in OPERATORS.get(type(node.op), ()))
        case ast.UnaryOp(op=ast.USub(), operand=a):
            yield a
        case ast.Compare(comparators=[ast.Constant(value=str() | None)]):
            return  # a choice: options are asked elsewhere
        case ast.Compare(left=a, ops=[op], comparators=[b]):
            yield from (with_nodes(t, a=a, b=b) for t in OPERATORS.get(type(op), ()))
        case ast.IfExp(body=a, orelse=b):
            yield from (a, b)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            yield from of_call(node, name)
        case ast.Subscript(value=a, slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp())):
            yield a
        case ast.Subscript(value=a, slice=ast.Slice(lower=None, upper=None, step=ast.Constant())):
            yield from (a, with_nodes("a[1::2]", a=a))
        case ast.Constant(value=value):
            yield from map(ast.Constant, numbers(value))
        case ast.Name(id=name, ctx=ast.Load()) if name in ELEMENTARY:
            yield from (ast.Name(other, ast.Load()) for other in ELEMENTARY if other != name)
        case ast.List([a, b, *more], ast.Load()) | ast.Tuple([a, b, *more], ast.Load()):
            if is_number(a) and is_number(b):
                yield type(node)([b, a, *more], ast.Load())
        case ast.Name(id=name, ctx=ast.Load()) if name in known:
            yield from (with_nodes(t, x=node) for t in NEAR_BY if name in WHOLE_NUMBERS)
            yield from (ast.Name(other, ast.Load()) for other in sorted(known - {name}))


def rebracketed(node: Any) -> Iterator[Any]:
    """The same operators and functions with brackets elsewhere: a (b + c) for a b + c, f(a) b for f(a b)."""
    sums = ast.Add | ast.Sub
    put = lambda a, op, b: ast.BinOp(a, op, b)
    match node:
        case ast.BinOp(ast.BinOp(a, one, b), two, c) if isinstance(one, sums) != isinstance(two, sums):
            yield put(a, one, put(b, two, c))
            if isinstance(two, sums):
                yield put(put(a, two, c), one, b)
        case ast.BinOp(a, one, ast.BinOp(b, two, c)) if isinstance(one, sums) != isinstance(two, sums):
            yield put(put(a, one, b), two, c)
    match node:
        case ast.Call(f, [ast.BinOp(a, op, b)], more):
            yield from (put(ast.Call(f, [a], more), op, b), put(a, op, ast.Call(f, [b], more)))
        case ast.BinOp(ast.Call(f, [a], more), op, b) if not is_method(f):
            yield ast.Call(f, [put(a, op, b)], more)
        case ast.BinOp(b, op, ast.Call(f, [a], more)) if not is_method(f):
            yield ast.Call(f, [put(b, op, a)], more)
        case ast.Call(f, [ast.Call(ast.Name("add") as add, [a, b], [])], more):
            yield ast.Call(add, [ast.Call(f, [a], more), b], [])


def of_call(node: Any, name: str) -> Iterator[Any]:
    a, b, c = [*node.args, None, None, None][:3]
    given = {"a": a, "b": b, "c": c, "x": node, "o": node.func.value if is_method(node.func) else None}
    if not any(isinstance(one, ast.Starred) for one in node.args):
        if isinstance(a, ast.BinOp):
            yield from (a.left, a.right)
        for template in FUNCTIONS.get(name, ()):
            used = {n.id for n in ast.walk(ast.parse(template)) if isinstance(n, ast.Name)}
            if all(given[letter] is not None for letter in used & given.keys()):
                yield with_nodes(template, **given)
        if name == "linear" and len(node.args) == 3:
            yield ast.Call(node.func, [*node.args[:2], ast.Constant(None)], node.keywords)
        if name not in NO_FUNCTIONS | FUNCTIONS.keys() and isinstance(node.func, ast.Name) and is_number(a):
            yield a
            if is_number(b):
                yield b
                yield ast.Call(node.func, [b, a, *node.args[2:]], node.keywords)


def is_method(f: Any) -> bool:
    """Whether a function is that of an array, whose argument is an axis."""
    return isinstance(f, ast.Attribute) and not (isinstance(f.value, ast.Name) and f.value.id in LIBRARIES)


def is_number(node: Any) -> bool:
    """Whether an argument may be one: it is no text, none of what names no numbers, and no function."""
    match node:
        case (
            None | ast.Constant(value=str() | None) | ast.Lambda() | ast.Dict() | ast.List() | ast.JoinedStr()
        ):
            return False
        case ast.Compare() | ast.Call(func=ast.Name(id="namespace")):
            return False
        case ast.Name(id=name):
            return name not in NO_NUMBERS
    return True
