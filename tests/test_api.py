"""Every public function of peref, peref.ops and peref.encodings says what it takes and gives, in the last two
with shapes and errors, help() prints it, and docs/api.md is made of it.

`python tests/test_api.py` writes docs/api.md, which leaves out backwards and hooks.
"""

import ast
import inspect
import pydoc
import re
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import peref
from peref.encodings import LAWS, Encoding, claims_of, get, names, options, shapes
from peref.tape import Op

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
START, END = "<!-- functions: python tests/test_api.py -->\n", "<!-- /functions -->\n"
ROOMS = ("peref.ops", "peref.encodings")
MODULES = [
    found.name
    for room in ROOMS
    for found in walk_packages(import_module(room).__path__, f"{room}.")
    if not found.ispkg
] + ["peref.encodings"]
SHAPE = re.compile(r"\[(?:[A-Z1-9.*]|\w+,)[^\]\n]*\]")  # [B,H,T,D], [...], [1], [*index.shape,...]
# what goes by position without an annotation and is no array
PLAIN = {
    "L",
    "R",
    "S",
    "at",
    "axis",
    "back",
    "base",
    "causal",
    "chunk",
    "factor",
    "fast",
    "form",
    "given",
    "kind",
}
PLAIN |= {
    "m",
    "matmul",
    "max_distance",
    "module",
    "n",
    "name",
    "npos",
    "option",
    "pairs",
    "parts",
    "rng",
    "s",
}
CHECKS = {"bounded", "positive", "within_reach"}  # of peref.encodings.values
PLAIN |= {"default", "slow", "times", "tokens", "truncate", "value", "self", "D", "dtype", "global_tokens"}


def ops_of(module):
    return {name: op for name, op in vars(module).items() if isinstance(op, Op)}


def public(module):
    """Name -> function or class that is defined there, lambdas left out."""
    return {
        name: f
        for name, f in vars(module).items()
        if (inspect.isfunction(inspect.unwrap(f)) or inspect.isclass(f))
        and f.__module__ == module.__name__
        and not name.startswith("_")
        and f.__name__ != "<lambda>"
    }


def with_methods(module):
    """Each of `public`, and of classes the public methods and properties that they define themselves."""
    for thing in public(module).values():
        yield thing
        for name, f in vars(thing).items() if inspect.isclass(thing) else ():
            f = getattr(f, "fget", getattr(f, "__func__", f))
            if inspect.isfunction(f) and not f.__name__.startswith(("_", "<")) and name[0] != "_":
                yield f


def takes_arrays(function):
    """Whether something that goes by position has no annotation, or Any, and no name of PLAIN."""
    return any(
        a.kind is a.POSITIONAL_OR_KEYWORD and a.annotation in (a.empty, Any) and name not in PLAIN
        for name, a in inspect.signature(function).parameters.items()
    )


def raised(function):
    """Names of the errors in the raise statements of a function, and Misuse where it has options checked."""
    nodes = [*ast.walk(ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))))]
    found = {n.exc.func.id for n in nodes if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)}
    calls = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return found | {"Misuse"} if calls & CHECKS else found


def lacking(function):
    """What the docstring of a function does not say, in words; "" where nothing is missing."""
    words = function.__doc__ or ""
    own = set(re.findall(r"[a-z]+", words.lower())) - set(function.__name__.lower().split("_"))
    if len(own) < 2:
        return "has no docstring" if not words else "has a docstring that repeats its name"
    if inspect.isclass(function):
        return ""
    if takes_arrays(function) and not SHAPE.search(words):
        return "takes arrays and says no shape, such as [B,H,T,D] or [...]"
    unsaid = {error for error in raised(function) if error not in words}
    return f"raises {', '.join(sorted(unsaid))} and does not say so" if unsaid else ""


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_says_what_it_takes_and_gives(name):
    """Backwards, hooks and methods too."""
    every = with_methods(import_module(name))
    found = [f"{name}.{f.__qualname__} {less}" for f in every if (less := lacking(f))]
    assert not found, "\n".join(found)


def test_every_public_function_of_peref_has_words():
    """Of its modules that stand in no room, methods too."""
    found = []
    for path in sorted(Path(peref.__file__).parent.glob("[!_]*.py")):
        every = with_methods(import_module(f"peref.{path.stem}"))
        found += [f"{path.stem}.{f.__qualname__}" for f in every if "docstring" in lacking(f)]
    assert not found, "\n".join(found)


def test_what_peref_has_itself_says_so_too():
    assert not [f"peref.{name} {less}" for name in peref.__all__ if (less := lacking(getattr(peref, name)))]


def without(x):
    return x


def named_again(x):
    """Named again."""


def no_shape(x, *, scale):
    """The array times the scale, as a new array."""


def no_error(x):
    """Twice x [...], where it has no negative number."""
    raise ValueError("negative")


def all_of_it(x, *, scale):
    """scale x, [B,T,C]: x [B,T,C]. Raises ValueError for a scale of 0."""
    if not scale:
        raise ValueError("scale is 0")


def no_array(name: str) -> str:
    """The path of the file that has this name."""


@pytest.mark.parametrize(
    ("function", "less"),
    [
        (without, "has no docstring"),
        (named_again, "repeats its name"),
        (no_shape, "says no shape"),
        (no_error, "raises ValueError and does not say so"),
        (all_of_it, ""),
        (no_array, ""),
    ],
)
def test_what_is_missing_is_found(function, less):
    assert less in lacking(function) if less else not lacking(function)


# ---------------------------------------------------------------- help()


def helped(thing):
    return " ".join(pydoc.render_doc(thing, renderer=pydoc.plaintext).split())


@pytest.mark.parametrize("name", names())
def test_help_of_an_encoding(name):
    """Formula, options, shapes of parameters, claims and paper; of the dataclass nothing."""
    encoding = get(name)
    said = helped(encoding)
    for words in (
        encoding.formula,
        encoding.paper,
        *options(encoding),
        *(LAWS[law] for law in claims_of(encoding)),
    ):
        assert words in said, words
    for parameter, shape in shapes(encoding).items():
        assert f"{parameter} {shape}" in said
    assert "dataclass" not in said
    assert "__init__" not in said


@pytest.mark.parametrize("name", MODULES)
def test_help_of_an_op(name):
    """That of its forward, under how it is called, of which pydoc leaves out the middle where it is long."""
    for op in ops_of(import_module(name)).values():
        said = helped(op)
        assert repr(op).split("(")[0] + "(" in said
        assert " ".join(op.forward.__doc__.split()) in said


def test_the_classes_say_what_they_are():
    assert Encoding.__doc__.startswith("One way to tell")
    assert Op.__doc__.startswith("A function of arrays and the derivative")


# ---------------------------------------------------------------- the page


def entry(name, thing):
    """How a function is called, and its docstring under it."""
    signature = "" if inspect.isclass(thing) else str(inspect.signature(getattr(thing, "forward", thing)))
    for package in ("typing.", "collections.abc.", "peref.encodings.record.", "peref.tape."):
        signature = signature.replace(package, "")
    how = {"subsequent_indent": "        ", "break_long_words": False, "break_on_hyphens": False}
    first = textwrap.fill(name + signature, 110, **how)
    return f"{first}\n{textwrap.indent(inspect.getdoc(thing), '    ')}\n"


def section(name, things):
    return f"### {name}\n\n```text\n{chr(10).join(entry(n, f) for n, f in things.items())}```\n"


def page():
    """The functions of peref, then those of its encodings and ops, module by module."""
    parts = [section("peref", {name: getattr(peref, name) for name in sorted(peref.__all__)})]
    for name in sorted(MODULES):
        module = import_module(name)
        if hasattr(module, "ENCODING"):  # docs/encodings.md has these, and help(peref.get(name))
            continue
        ops = ops_of(module)
        pairs = {f for op in ops.values() for f in (op.forward, op.backward)}
        own = {n: op for n, op in ops.items() if op.forward.__module__ == name}
        rest = {n: f for n, f in public(module).items() if f not in pairs}
        if inspected := {
            n: f for n, f in (own | rest).items() if inspect.getdoc(f) and n not in peref.__all__
        }:
            parts.append(section(name, inspected))
    return "\n".join(parts)


def test_the_page_is_up_to_date():
    assert PAGE.read_text().partition(START)[2].partition(END)[0] == page(), "run: python tests/test_api.py"


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(head + START + page() + END + rest.partition(END)[2])
