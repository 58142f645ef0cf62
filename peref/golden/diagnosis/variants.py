"""A function with one expression of its text changed, in every way that people write it.

A changed function computes outputs alone: its derivative is left out.

Not here: what people write (written), how a function of an encoding's file is exchanged (engine).
"""

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from itertools import combinations
from traceback import walk_tb
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from peref.golden.diagnosis import written
from peref.golden.diagnosis.answer import NoProgram
from peref.tape import Op


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
            return arg is None or arg in written.NO_EXPRESSIONS
        case (ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)), _) if field == "args":
            method = isinstance(parent.func, ast.Attribute) and name in ("cumsum", "sum", "mean", "swapaxes")
            return name in written.SETTLED or method
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
    return [replace(one, function=attempted(one.function)) for one in changed_texts(f, parts)]


@cache
def changed_texts(f: Any, parts: tuple[str, ...]) -> list[Variant]:
    """The same, as they were written."""
    f = inspect.unwrap(f)
    if isinstance(f, Op):
        return changed_texts(f.forward, parts)
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
    return [*(one for some in steps for one in some), *in_helpers(f, parts)]


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
        near = names_in(place.statement) if len(known) <= written.MOST_NAMES else ()
        called = getattr(getattr(place.node, "func", None), "id", "")
        names = (*sets, *said_in(place.node), *place.within, *said_in(place.around))
        here = {name for name, line in known.items() if line < place.statement.lineno} - {*sets}
        here &= {*written.WHOLE_NUMBERS, *near} & (
            asked if isinstance(place.holder, ast.Attribute | ast.Subscript) else here
        )
        others_here = list(written.others(place.node, here))
        for name in taking_the_same(called, f):
            others_here.append(ast.Call(ast.Name(name, ast.Load()), place.node.args, place.node.keywords))
        if isinstance(place.holder, ast.keyword) and place.holder.arg in written.FACTORS:
            others_here += [ast.Constant(1.0), written.with_nodes("a * a", a=place.node)]
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
        for a, b in combinations(some, 2) if len(held) > 2 and len(some) <= written.MOST_NAMES // 2 else ():
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
            case ast.Assign() | ast.AugAssign() | ast.For() if written.is_number(getattr(n, "value", n)):
                for name in set_by(n, None):
                    known[name] = min(known.get(name, n.lineno), n.lineno)
            case ast.Compare(comparators=[ast.Constant(value=str()), *_]) | ast.keyword(arg=None):
                choices |= {*names_in(n)}
    return {name: line for name, line in known.items() if name not in written.NO_NUMBERS | choices}


def one_everywhere(tree: Any, f: Any, made: Made) -> Iterator[Variant]:
    """A function that is called several times is another in each of its calls."""
    for name, some in repeated_calls(tree, saves_more(f)).items():
        templates = [list(written.of_call(one.node, name)) for one in some]
        for new in zip(*templates, strict=True) if len({*map(len, templates)}) == 1 else ():
            right = f"and so on stands wherever {name} belongs"
            yield made(list(zip(some, new, strict=True)), new[0], right, (name,))


def in_helpers(f: Any, parts: tuple[str, ...]) -> Iterator[Variant]:
    """A function of its own file that it calls is another."""
    for name in (name for name in f.__code__.co_names if name not in parts):
        helper = f.__globals__.get(name)
        own = getattr(helper, "forward", helper)
        if isinstance(own, FunctionType) and own.__module__ == f.__module__:
            for one in changed_texts(helper, (*parts, name)):
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
    return among(made, {**written.ELEMENTARY, **f.__globals__, "np": np}, f)


NOT_A_PROGRAM = (TypeError, AttributeError, KeyError, NameError)  # ran into by a text that was changed
PACKAGE = __name__.rpartition(".")[0]


def attempted(f: Any) -> Any:
    """A function whose text was changed. Raises NoProgram where the text is none any more; a mistake of the
    diagnosis stays what it is.
    """

    @wraps(f)
    def call(*given: Any, **more: Any) -> Any:
        try:
            return f(*given, **more)
        except NOT_A_PROGRAM as error:
            if of_diagnosis(error):
                raise
            raise NoProgram(f"{f.__name__} with a changed text: {error}") from error

    return call


def of_diagnosis(error: Exception) -> bool:
    """Whether code of the diagnosis ran into an error that came out of a changed function: its own call of
    it, behind which nothing ran, or something that it handed in.
    """
    ran = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)][1:]
    return not ran or any(name.startswith(PACKAGE) and name != written.__name__ for name in ran)
