"""Nothing but peref/hooks.py calls a hook of an encoding: read from the source text of the package."""

import ast
from pathlib import Path

import numpy as np
import pytest
from check import same
from generated import config

from peref import hooks
from peref.encodings import HOOKS
from peref.hooks import around, rotation

PEREF = Path(hooks.__file__).parent
ALL = {*HOOKS, "features"}
ASKED = {"scale", "check"}  # other functions of an encoding, where they are called


def uses(text):
    """Lines where a hook is taken: called, given away or named. Asking whether there is one is no use."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    of_module = lambda x: getattr(x, "id", "") in modules

    def asked(node):
        """Whether only the truth of a value counts."""
        up = parents[node]
        match up:
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return True
            case ast.If(test=test) | ast.IfExp(test=test) | ast.Assert(test=test) if test is node:
                return True
            case ast.comprehension(ifs=ifs):
                return node in ifs
            case ast.BoolOp():
                return asked(up)
            case ast.GeneratorExp(elt=elt) if elt is node:
                return isinstance(call := parents[up], ast.Call) and ast.unparse(call.func) in ("any", "all")
        return False

    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=attr, ctx=ast.Load()) if attr in ALL:
                if not of_module(value) and not asked(node):
                    found.append(f"{node.lineno}: {ast.unparse(node)}")
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in ASKED and not of_module(
                value
            ):
                found.append(f"{node.lineno}: {ast.unparse(node.func)}")
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]) if name in ALL:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_only_one_file_calls_hooks():
    """Everything else asks that file, for what a hook does or for its table."""
    files = sorted(PEREF.rglob("*.py"))
    found = {path.relative_to(PEREF).as_posix(): uses(path.read_text()) for path in files}
    assert {line.rpartition(".")[2] for line in found.pop("hooks.py")} == ALL | ASKED
    assert len(found) > 200
    others = [f"{name}:{line}" for name, lines in found.items() for line in lines]
    assert not others, "\n".join(["ask peref/hooks.py for it; nothing else calls a hook:", *others])


@pytest.mark.parametrize(
    "text",
    [
        "pe.rotate(p, i, n)",
        "cfg.encoding(0).embed(p, i)",
        "f = pe.bias",
        "f = pe.bias or other",
        "g(pe.mix)",
        "getattr(pe, 'score')(be, p)",
        "[pe.attend][0](be)",
        "table = pe.bias(be, p, d) if pe.bias else None",
        "partial(pe.features, be)",
        "cfg.encoding(0).scale(8)",
    ],
)
def test_a_use_is_found(text):
    """However it is written."""
    assert len(uses(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "if pe.mix or pe.attend: pass",
        "x = 1 if not pe.features else 2",
        "any(get(name).rotate for name in names)",
        "sum(get(name).rotate is not None for name in names)",
        "[name for name in names if get(name).embed]",
        "from peref import direct\ndirect.rotate('rope', q, k)",
    ],
)
def test_a_question_is_no_use(text):
    """Nor is a function of a module that has the name of a hook."""
    assert uses(text) == []


def test_something_done_around_a_hook():
    """The function is given the hook and what the hook is given; the encoding itself stays as it is."""
    pe, i = config("rope").encoding(0), np.arange(3)
    angle = rotation(pe, {}, i, 3)[0]
    doubled = around(pe, "rotate", lambda rotate, p, i, n: rotate(p, 2 * i, n))
    moved = around(doubled, "rotate", lambda rotate, *place: (rotate(*place)[0] + 1, None, None))
    same(rotation(doubled, {}, i, 3)[0], 2 * angle, 1e-15)
    same(rotation(moved, {}, i, 3)[0], 2 * angle + 1, 1e-15)
    same(rotation(pe, {}, i, 3)[0], angle, 0)
