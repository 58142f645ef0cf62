"""Whether a module that is not built in holds an encoding that can be bound; if not, in which line."""

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from peref.encodings.record import FACTS, FUNCTIONS, HOOKS, LAWS, PLAIN_FIELDS, Encoding, claims_of, settings
from peref.encodings.values import fitting, options_of
from peref.errors import Misuse, did_you_mean

# how many arrays and records a function is called with, before its settings
ARGUMENTS = {"init": 1, "embed": 2, "rotate": 3, "bias": 3, "score": 6, "attend": 7, "mix": 6, "features": 5}
ARGUMENTS |= {"scale": 1, "check": 2, **dict.fromkeys(PLAIN_FIELDS, 0)}
# and those it may take besides: what other encodings of its layer add to the logits
MORE = {"attend": 1, "score": 1}
# what may stand in place of a function
IN_PLACE = dict.fromkeys(PLAIN_FIELDS, (set, frozenset, list, tuple)) | {"steps": (Mapping,)}


def check_module(module: Any) -> None:
    """Raises Misuse unless the module's ENCODING is an Encoding that can be bound."""
    encoding = getattr(module, "ENCODING", None)
    text = ast.parse(module.__loader__.get_data(module.__file__))
    first = next((node.lineno for node in text.body if "ENCODING" in written(node)), 1)
    here = f"{module.__file__}, line {first}"
    if not isinstance(encoding, Encoding):
        said = "there is no ENCODING" if encoding is None else f"ENCODING is a {type(encoding).__name__}"
        raise Misuse(f"{here}: {said}; expected ENCODING = Encoding(...), the record of peref.encodings")
    hooks = [hook for hook in HOOKS if getattr(encoding, hook)]
    if len(hooks) != 1:
        filled = " and ".join(hooks) or "no hook"
        raise Misuse(f"{here}: ENCODING fills {filled}; expected one of: {', '.join(HOOKS)}")
    if unknown := sorted(set(claims_of(encoding)) - set(LAWS)):
        near = did_you_mean(unknown[0], LAWS, f"the laws are: {', '.join(LAWS)}")
        raise Misuse(f"{here}: ENCODING claims '{unknown[0]}'{near}")
    check_functions(encoding, here)


def check_functions(encoding: Encoding, here: str) -> None:
    """Raises Misuse unless each function takes what it is called with, and facts and options are such."""
    defaults: dict[str, Any] = {}
    for name in FUNCTIONS:
        function = getattr(encoding, name)
        if function is None or isinstance(function, IN_PLACE.get(name, ())):
            continue
        if not callable(function):
            plain = "a dict or " if name == "steps" else "a set or " if name in PLAIN_FIELDS else ""
            wanted = f"{plain}a function"
            raise Misuse(f"{here}: {name} of ENCODING is a {type(function).__name__}; expected {wanted}")
        code = getattr(inspect.unwrap(function), "__code__", None)
        line = f"{code.co_filename}, line {code.co_firstlineno}" if code else here
        parameters = inspect.signature(function).parameters.values()
        takes = sum(a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD) for a in parameters)
        if not 0 <= takes - ARGUMENTS.get(name, takes) <= MORE.get(name, 0):
            called = f"it is called with {ARGUMENTS[name]}"
            raise Misuse(f"{line}: {name} takes {takes} arguments before its settings (after a *); {called}")
        for setting, a in settings(function).items():
            is_fact, is_option = setting in FACTS, a.default is not a.empty
            if not is_fact and not is_option:
                has = f"{setting} is no fact of a model ({', '.join(FACTS)})"
                raise Misuse(f"{line}: {has}; an option has a default")
            if is_option and (is_fact or defaults.setdefault(setting, a.default) != a.default):
                why = "is a fact of the model" if is_fact else "has two defaults"
                raise Misuse(f"{line}: {setting} {why}; give the option another name")
        try:
            for option, (default, kind) in options_of(function).items():
                fitting(option, default, kind)
        except (Misuse, NameError, TypeError) as error:  # an annotation may mean nothing
            raise Misuse(f"{line}: {error}; the annotation of an option says what it may be") from error


def written(node: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [target.id for target in targets if isinstance(target, ast.Name)]
