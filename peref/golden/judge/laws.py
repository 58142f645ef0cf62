"""What must hold of an encoding whatever its numbers are: no expected values, two or three calls that are
held against one another.

    norm         a rotation changes no length: |R_m q| = |q|
    composition  R_m R_n = R_(m+n): turned twice is turned by the sum
    adjoint      <R q, g> = <q, R' g>: the gradient turns back
    shift        a number added to every position changes nothing in the output of attention
    softmax      probabilities are the softmax of the scores over what a query sees, so a number added to a
                 whole row changes nothing
    fading       a bias is 0 at distance 0 and does not rise with it
    buckets      rows of the table go up with distance, from 0 to the last, by the definition in whole numbers
    causal       tokens that come later change nothing that came before
    prefix       the first tokens alone give the first rows of all: what a cache holds is what a longer text
                 computes
    packed       documents side by side in a sequence give what each gives alone
    groups       key-value heads repeated for each of their query heads change nothing
    order        without positions and mask, tokens in another order give outputs in that order

Each is evaluated on a function(case, inputs) -> outputs, as `check --impl` has it; inputs are drawn as those
of the golden cases are. Two numbers are equal within LIMIT u (1 + P) times the largest of their tensor, u the
unit roundoff (float32's below float32) and P the largest position in the calls, for phases far out lose
digits; buckets are equal.

Not here: a cache itself, which the traces have; values (spec/cases).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref.golden.compute.reference import inputs
from peref.golden.judge.wire import real_in
from peref.golden.spec.cases import Case
from peref.golden.spec.files import DTYPE_NAMES
from peref.golden.spec.rule import ROUNDOFF
from peref.parameters import Arrays

LIMIT = 64
FAR, CUT = 1000, 4  # what is added to positions, and how many tokens come first
CONTENT = ("x", "q", "k", "v")


class NotClaimed(Exception):
    """The function has no answer to a call of the law."""


class LawBroken(Exception):
    """The law does not hold."""


@dataclass(frozen=True)
class Calls:
    """The function that is judged, and in which dtype it is given real numbers."""

    function: Callable
    kind: Any = np.float64

    def __call__(self, case: Case, a: Arrays, *names: str) -> list[np.ndarray]:
        """The outputs of these names. Raises NotClaimed where one is missing."""
        words = case.words() | {"inputs": sorted(a), "expected": list(names), "axes": {}}
        came = self.function(words, real_in(a, self.kind))
        if came is None or any(name not in came for name in names):
            raise NotClaimed
        return [np.asarray(came[name]) for name in names]


def law_verdict(words: dict[str, Any], function: Callable, kind: Any = np.float64) -> tuple[bool | None, str]:
    """Whether the law of these words holds for function(case, inputs), None where it does not claim it,
    and what was seen.
    """
    options = {
        key: tuple(value) if isinstance(value, list) else value for key, value in words["options"].items()
    }
    slug = words["id"].partition("/")[2]
    case = Case(words["encoding"], words["call"], slug, words["why"], (), options, **words["facts"])
    try:
        LAWS[words["law"]](Calls(function, kind), case)
    except NotClaimed:
        return None, "not claimed"
    except LawBroken as error:
        return False, str(error)
    except Exception as error:
        return False, f"raised {type(error).__name__}: {error}"
    return True, "holds"


def unit_of(*arrays: np.ndarray) -> float:
    return max(ROUNDOFF.get(DTYPE_NAMES.get(x.dtype, ""), ROUNDOFF["F32"]) for x in arrays)


def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Over the last axis, in float64."""
    return np.asarray((x.astype(np.float64) * y).sum(-1))


def equal(got: np.ndarray, want: np.ndarray, what: str, far: float = 0.0, unit: float | None = None) -> None:
    """Raises Broken unless they agree."""
    if got.shape != want.shape:
        raise LawBroken(f"{what}: shapes {list(got.shape)} and {list(want.shape)}")
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        raise LawBroken(f"{what}: NaN or infinite numbers came out")
    apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    unit = unit_of(got, want) if unit is None else unit
    most = LIMIT * unit * (1 + far) * float(np.abs(want).max(initial=0))
    if not apart.max(initial=0) <= most:
        at = tuple(int(n) for n in np.unravel_index(apart.argmax(), apart.shape))
        raise LawBroken(
            f"{what}: at {list(at)} {got[at]:.8g} and {want[at]:.8g}, {apart[at]:.3g} apart, at most "
            f"{most:.3g} expected"
        )


def at_positions(case: Case, i: Any) -> Case:
    return replace(case, positions=tuple(np.asarray(i).tolist()))


def output(case: Case) -> str:
    return "out" if case.level == "attn" else "y"


# ---------------------------------------------------------------- rotations


def norm(call: Calls, case: Case) -> None:
    a = inputs(case)
    for name, y in zip("qk", call(case, a, "q_rotated", "k_rotated"), strict=True):
        equal(dot(y, y) ** 0.5, dot(a[name], a[name]) ** 0.5, f"lengths of {name}", unit=unit_of(y))


def composition(call: Calls, case: Case) -> None:
    i, j = np.arange(case.T), 3 + np.arange(case.T)[::-1] ** 2
    a = inputs(case)
    of = lambda at, q: call(at_positions(case, at), {**a, "q": q, "positions": at}, "q_rotated")[0]
    twice, once = of(j, of(i, a["q"])), of(i + j, a["q"])
    equal(twice, once, "q turned by m and by n, and by m + n", float((i + j).max()))


def adjoint(call: Calls, case: Case) -> None:
    a = inputs(case)
    for name in "qk":
        y, back = call(case, a, f"{name}_rotated", f"vjp.{name}")
        what = f"<R {name}, g> and <{name}, R' g>"
        equal(dot(y, a[f"cotangent.{name}_rotated"]), dot(a[name], back), what, float(case.T), unit_of(y))


# ---------------------------------------------------------------- biases


def softmax(call: Calls, case: Case) -> None:
    a = inputs(case)
    scores, p = call(case, a, "scores", "probabilities")
    s = np.where(case.at.see, scores + np.arange(case.T)[:, None], -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    want = (s / s.sum(-1, keepdims=True)).astype(p.dtype)
    # an error of the largest score is one of every probability, relative
    far = float(np.abs(np.where(case.at.see, scores, 0)).max())
    equal(p, want, "probabilities and the softmax of the scores", far)


def fading(call: Calls, case: Case) -> None:
    a = inputs(case)
    (b,) = call(case, a, "bias")
    d = a["distances"]
    order = np.argsort(np.abs(d), kind="stable")
    if not (b[:, d == 0] == 0).all():
        raise LawBroken(f"the bias at distance 0 is {b[:, d == 0].ravel()[:3].tolist()}, expected 0")
    rising = np.diff(b[:, order].astype(np.float64), axis=1) > LIMIT * unit_of(b) * np.abs(b).max()
    if rising.any():
        h, n = np.argwhere(rising)[0]
        raise LawBroken(f"head {h}: the bias rises from distance {d[order[n]]} to {d[order[n + 1]]}")


def buckets(call: Calls, case: Case) -> None:
    """The table's row b holds b, so the bias is the bucket."""
    count, most, last = case.options.get("buckets", 32), case.options.get("max_distance", 128), case.T - 1
    table = np.tile(np.arange(count, dtype=np.float64)[:, None], (1, case.H))
    d = np.arange(0 if case.causal else -last, last + 1)
    a = inputs(case) | {"param.table": table, "distances": d}
    (b,) = call(case, {name: x for name, x in a.items() if not name.startswith("cotangent.")}, "bias")
    half = count if case.causal else count // 2
    e = half // 2
    for n in range(len(d)):
        far, ahead = abs(int(d[n])), d[n] < 0
        within = sum(most**k * e ** (half - e) <= far ** (half - e) * e**k for k in range(half - e)) - 1
        want = (far if far < e else e + within) + (half if ahead else 0)
        if not (b[:, n] == want).all():
            raise LawBroken(f"distance {d[n]} is in bucket {b[0, n]:g}, expected {want}")


# ---------------------------------------------------------------- outputs of layers


def shift(call: Calls, case: Case) -> None:
    a = inputs(case)
    i = a["positions"]
    here, there = (
        call(at_positions(case, at), {**a, "positions": at}, output(case))[0] for at in (i, i + FAR)
    )
    equal(there, here, f"outputs at positions 0 on and {FAR} on", float(FAR))


def part(a: Arrays, cut: Any) -> Arrays:
    """What stands at these tokens. x [B,T,C]; q, k, v [B,heads,T,D]."""
    found = {name: x for name, x in a.items() if not name.startswith("cotangent.")}
    found |= {name: at_tokens(a[name], name, cut) for name in CONTENT if name in a}
    return found | {"positions": a["positions"][..., cut]}


def at_tokens(x: np.ndarray, name: str, cut: Any) -> np.ndarray:
    """Those of an input or output: x and y are [B,T,C], the others [B,heads,T,D]."""
    return x[:, cut] if name in ("x", "y") else x[:, :, cut]


def causal(call: Calls, case: Case) -> None:
    a = part(inputs(case), slice(None))
    b = dict(a)
    for name in CONTENT:
        if name in a:
            b[name] = a[name].copy()
            at_tokens(b[name], name, slice(CUT, None))[...] *= -0.5
    first, other = (
        at_tokens(call(case, one, output(case))[0], output(case), slice(None, CUT)) for one in (a, b)
    )
    equal(other, first, f"outputs before token {CUT}, which is another one")


def prefix(call: Calls, case: Case) -> None:
    a = inputs(case)
    (whole,) = call(case, part(a, slice(None)), output(case))
    (few,) = call(replace(case, T=CUT), part(a, slice(None, CUT)), output(case))
    first = at_tokens(whole, output(case), slice(None, CUT))
    equal(few, first, f"outputs of the first {CUT} tokens alone and among {case.T}")


def packed_documents(call: Calls, case: Case) -> None:
    a = inputs(case)
    seg = np.repeat([[1, 2]], [CUT, case.T - CUT], axis=1).repeat(case.B, 0)
    i = np.concatenate([np.arange(CUT), np.arange(case.T - CUT)])[None].repeat(case.B, 0)
    both = replace(case, seg=tuple(map(tuple, seg.tolist())), positions=tuple(map(tuple, i.tolist())))
    (whole,) = call(both, part(a, slice(None)) | {"seg": seg, "positions": i}, output(case))
    for cut in (slice(None, CUT), slice(CUT, None)):
        n = len(range(case.T)[cut])
        (alone,) = call(replace(case, T=n), part(a, cut) | {"positions": np.arange(n)}, output(case))
        packed = at_tokens(whole, output(case), cut)
        equal(packed, alone, f"document of {n} tokens in a packed sequence and alone")


def repeated_groups(call: Calls, case: Case) -> None:
    a = part(inputs(case), slice(None))
    each = {name: np.repeat(a[name], case.H // case.G, axis=1) for name in "kv"}
    few, many = call(case, a, "out")[0], call(replace(case, G=case.H), {**a, **each}, "out")[0]
    equal(many, few, f"{case.G} key-value heads for {case.H} query heads, and each of them repeated")


def reordered_tokens(call: Calls, case: Case) -> None:
    a = part(inputs(case), slice(None))
    mixed = np.random.default_rng(0).permutation(case.T)
    (here,) = call(case, a, "out")
    (there,) = call(case, part(a, mixed) | {"positions": a["positions"]}, "out")
    equal(there, at_tokens(here, "out", mixed), "outputs of tokens in another order")


LAWS: dict[str, Callable[[Calls, Case], None]] = {
    "norm": norm,
    "composition": composition,
    "adjoint": adjoint,
    "shift": shift,
    "softmax": softmax,
    "fading": fading,
    "buckets": buckets,
    "causal": causal,
    "prefix": prefix,
    "packed": packed_documents,
    "groups": repeated_groups,
    "order": reordered_tokens,
}
