"""One step of a formula is another: the functions that may be exchanged, with one expression of their text
changed.

What people write in place of an operator, a function, a number, a comparison or a width is data here. A
changed function computes outputs alone: its derivative is left out.

Not here: how a function of the file is exchanged (engine), what a whole function may be (functions).
"""

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from peref.encodings import get, options
from peref.encodings.record import HOOKS
from peref.golden.diagnosis.answer import EVERYWHERE, Answer, Guess, NoProgram, flag_of, guess
from peref.golden.diagnosis.engine import exchangeable, family, part_of, with_parts
from peref.ops.activation import gelu
from peref.tape import Op

SURE, VAGUE = 0.95, 0.94  # less than what has words of its own; and whose flag is not
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


@dataclass(frozen=True)
class Place:
    """Where an expression may be another: who holds it, in which field and at which place of a list; itself,
    the smallest one around it that says enough, the statement, and the functions that it is an argument of,
    the nearest first.
    """

    holder: Any
    field: str
    n: int | None
    node: Any
    around: Any
    statement: Any
    within: tuple[str, ...] = ()

    def put(self, node: Any) -> None:
        if self.n is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.n] = node


def places(
    parent: Any, saves: bool, around: Any = None, statement: Any = None, within: tuple[str, ...] = ()
) -> Iterator[Place]:
    """`saves`: of what a function returns, all but the first is for its derivative."""
    if isinstance(parent, ast.stmt):
        around, statement, within = None, parent, ()
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        within = (parent.func.id, *within)
    if isinstance(parent, ast.Return) and saves and isinstance(parent.value, ast.Tuple):
        parent = ast.Tuple(parent.value.elts[:1])
    for field, value in ast.iter_fields(parent):
        for n, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or left_alone(parent, field, node):
                continue
            short = isinstance(node, ast.Constant | ast.Name | ast.UnaryOp)
            if isinstance(node, ast.expr):
                here = around or node if short else node
                yield Place(parent, field, n, node, here, statement, within)
                yield from places(node, saves, here, statement, within)
            else:
                yield from places(node, saves, around, statement, within)


def repeated_calls(tree: Any, saves: bool) -> dict[str, list[Place]]:
    """The functions that are called several times, none within another call of its own, with their calls."""
    found: dict[str, list[Place]] = {}
    for place in places(tree, saves):
        match place.node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                found.setdefault(name, []).append(place)
    inside = lambda some: {id(n) for one in some for n in list(ast.walk(one.node))[1:]}
    apart = lambda some: not inside(some) & {id(one.node) for one in some}
    return {name: some for name, some in found.items() if len(some) > 1 and apart(some)}


def set_by(statement: Any, node: Any) -> list[str]:
    """The names that a statement sets; of several those that the node is for."""
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    match statement:
        case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
            inside = (any(n is node for n in ast.walk(value)) for value in values)
            targets = [one for one, here in zip(names, inside, strict=True) if here]
    return [name for one in targets if one is not None for name in names_in(one)]


def names_in(node: Any) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]


def said_in(node: Any) -> list[str]:
    """The names in an expression and, as p.NAME, the parameters that it reads."""
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [*(f"p.{text}" for text in texts), *names_in(node)]


def left_alone(parent: Any, field: str, node: Any) -> bool:
    """Checks, loops, shapes and settings."""
    match parent, node:
        case (_, ast.Raise() | ast.Assert() | ast.arguments() | ast.JoinedStr() | ast.While()):
            return True
        case (_, ast.Expr() | ast.Call(func=ast.Name(id="namespace"))):
            return True
        case (_, ast.keyword(arg=arg)):
            return arg is None or arg in NO_EXPRESSIONS
        case (ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)), _) if field == "args":
            method = isinstance(parent.func, ast.Attribute) and name in ("cumsum", "sum", "mean", "swapaxes")
            return name in SETTLED or method
    return field in ("slice", "returns", "decorator_list", "annotation") or (
        field == "func" and isinstance(node, ast.Name)
    )


@dataclass(frozen=True)
class Variant:
    """A function with one expression changed: in words, what says which step that is (the names that its
    statement sets, those in it and around it, the functions that it is an argument of), what a derivative
    suffers that is changed so, and the function whose call it is.
    """

    words: str
    function: Any
    names: tuple[str, ...]
    kind: str = ""
    called: str = ""


Made = Callable[..., Variant]


def harm_of(node: Any, new: Any) -> str:
    """The end of a flag of derivatives: a sign, a part of a sum, another time, a factor; "" where it is none
    of these.
    """
    match node, new:
        case (ast.BinOp(op=ast.Add() | ast.Sub(), left=a, right=b), _) if new in (a, b):
            return "sum"
        case (ast.BinOp(op=ast.Mult() | ast.Div(), left=a, right=b), _) if new in (a, b):
            return "factor"
        case ast.Constant(), _:
            return "factor"
        case (ast.UnaryOp(), _) | (ast.BinOp(op=ast.Add() | ast.Sub()), ast.BinOp(op=ast.Add() | ast.Sub())):
            return "sign"
        case (ast.Subscript(), _) | (ast.Call(func=ast.Attribute(attr="cumsum")), _):
            return "time"
        case ast.Call(func=ast.Name(id=one)), ast.Call(func=ast.Name(id=other)) if one != other:
            return "time" if "sum" in one + other else ""  # of other tokens
    return ""


@cache
def variants(f: Any, parts: tuple[str, ...] = ()) -> list[Variant]:
    """A function, of an op the forward one, with each of its steps another; what it calls of its own file is
    changed too, but for other parts. None where its text is not there.
    """
    f = inspect.unwrap(f)
    if isinstance(f, Op):
        return variants(f.forward, parts)
    if not isinstance(f, FunctionType) or f.__code__.co_freevars:
        return []
    try:
        module = ast.parse(textwrap.dedent(inspect.getsource(f)))
    except OSError:
        return []
    tree: Any = module.body[0]
    tree.decorator_list = []
    made = partial(edited, module, f)
    steps = (one_step(tree, f, made), exchanged_names(tree, f, made), one_everywhere(tree, f, made))
    found = [*(one for some in steps for one in some), *in_helpers(f, parts)]
    return [replace(one, function=attempted(one.function)) for one in found]


def edited(module: Any, f: Any, puts: list[tuple[Place, Any]], shown: Any, right: str, *more: Any) -> Variant:
    """The function with these expressions in other places of its text: what is shown of it and in place of
    what, `more` as of Variant. The text is left as it was.
    """
    for place, node in puts:
        place.put(node)
    words = f"{ast.unparse(shown)} {right}, in {f.__name__.removesuffix('_forward')}"
    function = compiled(module, f)
    for place, _ in puts:
        place.put(place.node)
    return Variant(words, function, *more)


def one_step(tree: Any, f: Any, made: Made) -> Iterator[Variant]:
    """One expression is another."""
    known = names_known(tree, f)
    asked = asked_for_more(tree)
    for place in list(places(tree, saves_more(f))):
        right = f"stands where {ast.unparse(place.around)} belongs"
        sets = set_by(place.statement, place.node)
        near = names_in(place.statement) if len(known) <= MOST_NAMES else ()
        called = getattr(getattr(place.node, "func", None), "id", "")
        names = (*sets, *said_in(place.node), *place.within, *said_in(place.around))
        here = {name for name, line in known.items() if line < place.statement.lineno} - {*sets}
        here &= {*WHOLE_NUMBERS, *near} & (
            asked if isinstance(place.holder, ast.Attribute | ast.Subscript) else here
        )
        others_here = list(others(place.node, here))
        for name in taking_the_same(called, f):
            others_here.append(ast.Call(ast.Name(name, ast.Load()), place.node.args, place.node.keywords))
        if isinstance(place.holder, ast.keyword) and place.holder.arg in FACTORS:
            others_here += [ast.Constant(1.0), with_nodes("a * a", a=place.node)]
        for new in others_here:
            shown = new if place.around is place.node else place.around
            yield made([(place, new)], shown, right, names, harm_of(place.node, new), called)


def taking_the_same(name: str, f: Any) -> list[str]:
    """The other functions of its file that are given what one of this name is given."""
    own = ((n, g) for n, g in f.__globals__.items() if isinstance(g, FunctionType))
    given = {n: inspect.signature(g) for n, g in own if g.__module__ == f.__module__}
    return [n for n in given if n != name and given[n] == given.get(name)]


def exchanged_names(tree: Any, f: Any, made: Made) -> Iterator[Variant]:
    """Two names of a statement have changed places."""
    known = names_known(tree, f)
    statements: list[Any] = [n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.Return) and n.value]
    for statement in statements:
        held = [n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)]
        some = sorted({*held} & known.keys() - asked_for_more(statement.value))
        right = f"stands where {ast.unparse(statement)} belongs"
        place = Place(statement, "value", None, statement.value, None, statement)
        for a, b in combinations(some, 2) if len(held) > 2 and len(some) <= MOST_NAMES // 2 else ():
            new = deepcopy(statement.value)
            for n in ast.walk(new):
                if isinstance(n, ast.Name):
                    n.id = {a: b, b: a}.get(n.id, n.id)
            yield made([(place, new)], statement, right, (*set_by(statement, None), a, b))


def asked_for_more(tree: Any) -> set[str]:
    """The names that are asked for something that numbers have not: x.ndim, x[0]."""
    every = (n.value for n in ast.walk(tree) if isinstance(n, ast.Attribute | ast.Subscript))
    return {n.id for n in every if isinstance(n, ast.Name)}


def names_known(tree: Any, f: Any) -> dict[str, int]:
    """The numbers that a function has names for, and after which line: arguments, and what a statement sets.
    Names of an inner function are left out, and choices: what is compared with a text or handed on as **NAME.
    """
    if f.__name__.endswith("_backward"):
        return {}
    known = {one.arg: 0 for one in (*tree.args.args, *tree.args.kwonlyargs)}
    choices = set[str]()
    for n in ast.walk(tree):
        match n:
            case ast.Assign() | ast.AugAssign() | ast.For() if is_number(getattr(n, "value", n)):
                for name in set_by(n, None):
                    known[name] = min(known.get(name, n.lineno), n.lineno)
            case ast.Compare(comparators=[ast.Constant(value=str()), *_]) | ast.keyword(arg=None):
                choices |= {*names_in(n)}
    return {name: line for name, line in known.items() if name not in NO_NUMBERS | choices}


def one_everywhere(tree: Any, f: Any, made: Made) -> Iterator[Variant]:
    """A function that is called several times is another in each of its calls."""
    for name, some in repeated_calls(tree, saves_more(f)).items():
        templates = [list(of_call(one.node, name)) for one in some]
        for new in zip(*templates, strict=True) if len({*map(len, templates)}) == 1 else ():
            right = f"and so on stands wherever {name} belongs"
            yield made(list(zip(some, new, strict=True)), new[0], right, (name,))


def in_helpers(f: Any, parts: tuple[str, ...]) -> Iterator[Variant]:
    """A function of its own file that it calls is another."""
    for name in (name for name in f.__code__.co_names if name not in parts):
        helper = f.__globals__.get(name)
        own = getattr(helper, "forward", helper)
        if isinstance(own, FunctionType) and own.__module__ == f.__module__:
            for one in variants(helper, (*parts, name)):
                other = replace(helper, forward=one.function) if helper is not own else one.function
                outer = among(f.__code__, {**f.__globals__, name: other}, f)
                yield replace(one, names=(*one.names, name), function=outer)


def saves_more(f: Any) -> bool:
    """Whether what a function returns after the first is for its derivative."""
    return bool(f.__name__.endswith("_forward"))


def among(code: Any, names: dict[str, Any], f: Any) -> Any:
    """A function of this code, with these names and the defaults of f."""
    new = FunctionType(code, names, f.__name__, f.__defaults__)
    new.__kwdefaults__ = f.__kwdefaults__
    return new


def compiled(module: Any, f: Any) -> Any:
    """The function of a text that was changed, among the names of the right one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of programs that are none any more
        code = compile(ast.fix_missing_locations(module), f.__code__.co_filename, "exec")
    made = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == f.__name__)
    return among(made, {**ELEMENTARY, **f.__globals__, "np": np}, f)


ILL_TYPED = (TypeError, AttributeError, KeyError)


def attempted(f: Any) -> Any:
    """A function whose text was changed. Raises NoProgram where it is none any more."""

    @wraps(f)
    def call(*given: Any, **more: Any) -> Any:
        try:
            return f(*given, **more)
        except ILL_TYPED as error:
            raise NoProgram(f"{f.__name__} with a changed text: {error}") from error

    return call


def remade(f: Any, change: Any) -> Any:
    """change(function) in place of a part, of an op's forward pass. It raises ValueError where it gives what
    could not stand for what the right one gives.
    """
    if isinstance(f, Op):
        return replace(f, forward=remade(f.forward, change))
    g = change(f)

    @wraps(f)
    def call(*given: Any, **more: Any) -> Any:
        right, y = f(*given, **more), g(*given, **more)
        if not saves_more(f):
            return in_form(y, right)
        if not isinstance(y, tuple):
            raise ValueError("of another kind")
        return in_form(y[0], right[0]), *y[1:]

    return call


def in_form(y: Any, right: Any) -> Any:
    """y in the form of what is right. Raises ValueError where it is of another."""
    if isinstance(right, tuple | list) and isinstance(y, tuple | list):
        return type(right)(in_form(a, b) for a, b in zip(y, right, strict=True))
    if isinstance(right, dict) and isinstance(y, dict) and right.keys() <= y.keys():
        return {name: in_form(y[name], x) for name, x in right.items()}
    if isinstance(right, np.ndarray | np.generic) and right.dtype.kind in "fiuc":
        if np.asarray(y).dtype.kind not in "fiucb":
            raise ValueError("of no numbers")
        return np.broadcast_to(y, right.shape).astype(right.dtype)
    if isinstance(right, float) and isinstance(y, int | float | np.number):
        return float(y)
    if isinstance(right, dict) or type(y) is not type(right):
        raise ValueError("of another kind")
    return y


@family()
def of_formulas(answer: Answer, case: Any) -> Iterator[Guess]:
    """A step of a part is another; what it sets or has in it may have a flag of its own."""
    parts = exchangeable(answer)
    for name in parts:
        f, flag = part_of(case, name), flag_of(answer, "functions", TOPIC.get(name, name), "")
        for one in variants(f, parts) if flag else ():
            own = next(filter(None, flags_of_step(answer, name, one.names)), "")
            own = own or flag_of(answer, "functions", one.called, "") if one.called in parts else own
            gives = forwards(name, f, lambda _, one=one: one.function)
            vague = not own and of_several(answer, name)
            sure = VAGUE if vague else SURE
            found = guess(own or flag, f"your formula is another: {one.words}", gives, sure)
            yield replace(found, vague=vague)


def flags_of_step(answer: Answer, part: str, names: Iterable[str]) -> Iterator[str]:
    """The flags of what says which step of a part it is. A hook is all that an encoding does: there a
    parameter, an option or another part says it too.
    """
    assert answer.case is not None
    encoding, parts = get(answer.case.encoding), exchangeable(answer)
    for name in names:
        yield flag_of(answer, "functions", f"{part}.{name}", "")
        if part in HOOKS and name.startswith("p."):
            yield flag_of(answer, "parameters", name[2:], "")
        if part in HOOKS and name in parts:
            yield flag_of(answer, "functions", name, "")
        if part in HOOKS and ("options", name) not in EVERYWHERE and name in options(encoding):
            yield flag_of(answer, "options", name, "")


def of_several(answer: Answer, part: str) -> bool:
    """Whether a part does what several flags are of: a hook of an encoding that has several, or a
    recurrence.
    """
    means = answer.entry.vectors.words["means"]
    several = len({flag for flags in means.values() for flag in flags.values()}) > 1
    inside = any(name.startswith(f"{part}.") for name in means.get("recurrence", ()))
    return (part in HOOKS and several) or inside


TOPIC = {"rising": "ramp", "slow_pairs": "ramp"}  # what several functions make together


def forwards(name: str, f: Any, change: Any) -> Any:
    """What the reference gives with change(f) for this part, without derivatives."""
    gives = with_parts(**{name: remade(f, change)})
    return lambda answer: gives(answer.forward)
