"""Calls that have no meaning and must be refused: words and shapes alone, no expected numbers.

A refusal is a case of level "refuse". `call` is the level that is called; options, facts and inputs are those
of a good call with one thing wrong. An input is {"dtype", "shape"}, filled with 0.5 (whole numbers with 1),
or {"dtype", "values"}, where "nan" and "inf" stand for what JSON cannot say.

    kind     what is wrong: a KINDS word. It is told, and not compared: shape or width, two people may see it
             differently
    result   "refuse"; or "acceptable" with `or`: "unchanged": refused, or given back as it came

An implementation refuses by raising ValueError, TypeError, IndexError, AssertionError or RuntimeError, or, in
another process, by saying so (Refused). One that answers None does not claim the case. Whatever else it
raises is an accident and no refusal.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peref import direct
from peref.encodings import get
from peref.golden.cases import Case
from peref.golden.diagnose import nested
from peref.golden.files import SIZES
from peref.golden.levels import expected, inputs

KINDS = ("setting", "width", "heads", "shape", "position", "mask", "dtype")
NUMBERS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


class Refused(Exception):
    """What a runner in another process says in place of an exception."""

    def __init__(self, kind: str = "", words: str = "refused"):
        super().__init__(words)
        self.kind = kind


@dataclass(frozen=True)
class Refusal:
    """A good case, and what is wrong in the call: settings, facts and inputs that replace its own."""

    good: Case
    slug: str
    kind: str
    why: str
    options: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    # name -> {"dtype", "shape"} or {"dtype", "values"}, None: left out
    given: dict[str, Any] = field(default_factory=dict)
    or_else: str | None = None

    @property
    def id(self) -> str:
        return f"{self.good.encoding}.refuse/{self.slug}"

    def words(self) -> dict[str, Any]:
        """As it stands in cases.json."""
        good = self.good.words()
        arrays = {
            name: described(x, name)
            for name, x in inputs(self.good).items()
            if not name.startswith("cotangent.")
        } | self.given
        plain = lambda value: list(value) if isinstance(value, tuple) else value
        found = {
            "id": self.id,
            "encoding": self.good.encoding,
            "level": "refuse",
            "call": self.good.level,
            "kind": self.kind,
            "why": self.why,
            "flags": [f"refuse.{self.kind}"],
            "options": good["options"] | {key: plain(value) for key, value in self.options.items()},
            "facts": good["facts"] | self.facts,
            "inputs": {name: x for name, x in arrays.items() if x is not None},
            "result": "acceptable" if self.or_else else "refuse",
        }
        return found | ({"or": self.or_else} if self.or_else else {})


def described(x: np.ndarray, name: str) -> dict[str, Any]:
    """Positions by their values, all others by their shape."""
    dtype = {"f": "F64", "i": "I64"}[x.dtype.kind]
    return (
        {"dtype": dtype, "values": x.tolist()}
        if name in ("positions", "seg", "distances")
        else {"dtype": dtype, "shape": list(x.shape)}
    )


def materialised(words: dict[str, Any]) -> dict[str, np.ndarray]:
    """The inputs of a refusal as arrays."""
    found: dict[str, np.ndarray] = {}
    for name, x in words["inputs"].items():
        dtype = SIZES[x["dtype"]][0]
        if "shape" in x:
            found[name] = np.full(x["shape"], 0.5 if x["dtype"][0] == "F" else 1, dtype)
        else:
            found[name] = np.array(numbers(x["values"]), dtype)
    return found


def numbers(x: Any) -> Any:
    return (
        [numbers(one) for one in x] if isinstance(x, list) else NUMBERS.get(x, x) if isinstance(x, str) else x
    )


def verdict(words: dict[str, Any], function: Callable, kind: Any = np.float64) -> tuple[bool | None, str]:
    """Whether function(case, inputs) refuses as it must, None where it does not claim the case, and what
    it did.
    """
    real = lambda name, x: (
        x.astype(kind) if x.dtype.kind == "f" and name not in ("positions", "distances") else x
    )
    a = {name: real(name, x) for name, x in materialised(words).items()}
    try:
        came = function(dict(words), a)
    except Exception as error:
        meant = isinstance(error, Refused | ValueError | TypeError | IndexError | AssertionError)
        if meant or type(error) is RuntimeError:  # what derives from that, a stack that overflows, is none
            return True, f"refused: {error}"
        return False, f"raised {type(error).__name__}, which is an accident and no refusal: {error}"
    if came is None:
        return None, "not claimed"
    if words.get("or") == "unchanged" and same_as_it_came(came, a):
        return True, "gave back what came, which is acceptable"
    return False, f"computed {', '.join(sorted(came)) or 'nothing'} in place of refusing: {words['why']}"


def same_as_it_came(came: dict[str, Any], a: dict[str, Any]) -> bool:
    outputs = {
        name.removesuffix("_rotated"): np.asarray(y)
        for name, y in came.items()
        if not name.startswith("vjp.")
    }
    return bool(outputs) and all(
        name in a and y.shape == a[name].shape and (y == a[name]).all() for name, y in outputs.items()
    )


def ours(case: dict[str, Any], a: dict[str, Any]) -> Any:
    """peref itself as such a function: the calls that a user would make where there are such, else a
    model's layer.
    """
    f, name, hook = case["facts"], case["encoding"], get(case["encoding"]).hook
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in case["options"].items()
    }
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    where: dict[str, Any] = {"positions": a.get("positions"), "params": p, "L": f["L"], **given}
    if hook == "rotate" and case["call"] == "op":
        q, k = direct.rotate(name, a["q"], a["k"], layout=f["layout"], rotary_dim=f["R"], n=f["n"], **where)
        return {"q_rotated": q, "k_rotated": k}
    if case["call"] == "attn":
        where |= {key: f[key] for key in ("causal", "window", "n")} | {"x": a.get("x"), "seg": a.get("seg")}
        where |= {"layout": f["layout"], "rotary_dim": f["R"]} if hook == "rotate" else {}
        return {"out": direct.attention(name, a["q"], a["k"], a["v"], **where)}
    dtype = direct.real({"x": a["x"]}) if "x" in a else np.dtype(np.float64)
    place: dict[str, Any] = {key: nested(a[key].tolist()) for key in ("positions", "seg") if key in a}
    again = Case(name, case["call"], "refused", case["why"], (), given, **place, **f)
    direct.parameters(name, again.config.encoding(0), p, 0, dtype)
    return expected(again, a)
