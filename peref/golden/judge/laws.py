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
of the golden cases are. Two numbers are equal within LIMIT (u + v P) times the largest of their tensor, u the
unit roundoff, v the same but at most float32's, and P the largest position in the calls, for phases far out
lose digits, which are not kept in 16 bits; buckets are equal.

Not here: a cache itself, which the traces have; values (spec/cases).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref.compare import Differs, same
from peref.golden.compute.reference import inputs
from peref.golden.judge.wire import real_in
from peref.golden.spec.cases import Case, nested, rebuilt
from peref.golden.spec.files import DTYPE_NAMES
from peref.golden.spec.rule import ROUNDOFF
from peref.parameters import Arrays

LIMIT = 64
FAR, CUT = 1000, 4  # what is added to positions, and how many tokens come first
FIRST = slice(None, CUT)
CONTENT = ("x", "q", "k", "v")


class NotClaimed(Exception):
    """The function has no answer to a call of the law."""


@dataclass(frozen=True)
class Calls:
    """The function that is judged, for which law, and in which dtype it is given real numbers."""

    function: Callable
    id: str
    kind: Any = np.float64

    def __call__(self, case: Case, a: Arrays, *names: str) -> list[np.ndarray]:
        """The outputs of these names. Raises NotClaimed where there is no answer, Differs where one of them
        is missing.
        """
        words = case.words() | {"id": self.id, "inputs": sorted(a), "expected": list(names), "axes": {}}
        came = self.function(words, real_in(a, self.kind))
        if came is None:
            raise NotClaimed
        if lacking := [name for name in names if name not in came]:
            raise Differs("", "names", f"{', '.join(lacking)} did not come; None says: not implemented")
        return [np.asarray(came[name]) for name in names]

    def out(self, case: Case, a: Arrays, cut: Any = slice(None)) -> np.ndarray:
        """What a layer gives for inputs without cotangents, the rows of these tokens."""
        name = "out" if case.level == "attn" else "y"
        return at_tokens(self(case, part(a), name)[0], name, cut)


def law_verdict(words: dict[str, Any], function: Callable, kind: Any = np.float64) -> tuple[bool | None, str]:
    """Whether the law of these words holds for function(case, inputs), None where it does not claim it,
    and what was seen.
    """
    case = rebuilt(words | {"level": words["call"]}, {})
    try:
        LAWS[words["law"]](Calls(function, words["id"], kind), case, inputs(case))
    except NotClaimed:
        return None, "not claimed"
    except Differs as error:
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
    """Raises Differs unless they agree."""
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        raise Differs(what, "non-finite", "NaN or infinite numbers came out")
    unit = unit_of(got, want) if unit is None else unit
    tolerance = LIMIT * (unit + min(unit, ROUNDOFF["F32"]) * far)
    same(got.astype(np.float64), want.astype(np.float64), min(tolerance, 0.99), what)


def at_positions(case: Case, i: Any) -> Case:
    return replace(case, positions=tuple(np.asarray(i).tolist()))


def at_tokens(x: np.ndarray, name: str, cut: Any) -> np.ndarray:
    """Those of an input or output: x and y are [B,T,C], the others [B,heads,T,D]."""
    return x[:, cut] if name in ("x", "y") else x[:, :, cut]


def part(a: Arrays, cut: Any = slice(None)) -> Arrays:
    """The inputs at these tokens, without cotangents."""
    found = {name: x for name, x in a.items() if not name.startswith("cotangent.")}
    found |= {name: at_tokens(a[name], name, cut) for name in CONTENT if name in a}
    return found | {"positions": a["positions"][..., cut]}


# ---------------------------------------------------------------- rotations


def norm(call: Calls, case: Case, a: Arrays) -> None:
    for name, y in zip("qk", call(case, a, "q_rotated", "k_rotated"), strict=True):
        equal(dot(y, y) ** 0.5, dot(a[name], a[name]) ** 0.5, f"lengths of {name}", unit=unit_of(y))


def composition(call: Calls, case: Case, a: Arrays) -> None:
    i, j = np.arange(case.T), 3 + np.arange(case.T)[::-1] ** 2
    of = lambda at, q: call(at_positions(case, at), {**a, "q": q, "positions": at}, "q_rotated")[0]
    twice, once = of(j, of(i, a["q"])), of(i + j, a["q"])
    equal(twice, once, "q turned by m and by n, and by m + n", float((i + j).max()))


def adjoint(call: Calls, case: Case, a: Arrays) -> None:
    for name in "qk":
        y, back = call(case, a, f"{name}_rotated", f"vjp.{name}")
        what = f"<R {name}, g> and <{name}, R' g>"
        equal(dot(y, a[f"cotangent.{name}_rotated"]), dot(a[name], back), what, float(case.T), unit_of(y))


# ---------------------------------------------------------------- biases


def softmax(call: Calls, case: Case, a: Arrays) -> None:
    scores, p = call(case, a, "scores", "probabilities")
    s = np.where(case.at.see, scores + np.arange(case.T)[:, None], -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    want = (s / s.sum(-1, keepdims=True)).astype(p.dtype)
    # an error of the largest score is one of every probability, relative
    far = float(np.abs(np.where(case.at.see, scores, 0)).max())
    equal(p, want, "probabilities and the softmax of the scores", far)


def fading(call: Calls, case: Case, a: Arrays) -> None:
    (b,), d = call(case, a, "bias"), a["distances"]
    order = np.argsort(np.abs(d), kind="stable")
    if not (b[:, d == 0] == 0).all():
        raise Differs("bias at distance 0", "value", f"{b[:, d == 0].ravel()[:3].tolist()}, expected 0")
    rising = np.diff(b[:, order].astype(np.float64), axis=1) > LIMIT * unit_of(b) * np.abs(b).max()
    if rising.any():
        h, n = np.argwhere(rising)[0]
        said = f"the bias rises from distance {d[order[n]]} to {d[order[n + 1]]}"
        raise Differs(f"head {h}", "value", said)


def buckets(call: Calls, case: Case, a: Arrays) -> None:
    """The table's row b holds b, so the bias is the bucket."""
    count, most, last = case.options.get("buckets", 32), case.options.get("max_distance", 128), case.T - 1
    table = np.tile(np.arange(count, dtype=np.float64)[:, None], (1, case.H))
    d = np.arange(0 if case.causal else -last, last + 1)
    (b,) = call(case, part(a) | {"param.table": table, "distances": d}, "bias")
    half = count if case.causal else count // 2
    e = half // 2
    for n in range(len(d)):
        far, ahead = abs(int(d[n])), d[n] < 0
        within = sum(most**k * e ** (half - e) <= far ** (half - e) * e**k for k in range(half - e)) - 1
        want = (far if far < e else e + within) + (half if ahead else 0)
        if not (b[:, n] == want).all():
            raise Differs("", "value", f"distance {d[n]} is in bucket {b[0, n]:g}, expected {want}")


# ---------------------------------------------------------------- outputs of layers


def shift(call: Calls, case: Case, a: Arrays) -> None:
    i = a["positions"]
    here, there = (call.out(at_positions(case, at), {**a, "positions": at}) for at in (i, i + FAR))
    equal(there, here, f"outputs at positions 0 on and {FAR} on", float(FAR))


def causal(call: Calls, case: Case, a: Arrays) -> None:
    other = a | {name: a[name].copy() for name in CONTENT if name in a}
    for name in other.keys() & set(CONTENT):
        at_tokens(other[name], name, slice(CUT, None))[...] *= -0.5
    what = f"outputs before token {CUT}, which is another one"
    equal(call.out(case, other, FIRST), call.out(case, a, FIRST), what)


def prefix(call: Calls, case: Case, a: Arrays) -> None:
    few, first = call.out(replace(case, T=CUT), part(a, FIRST)), call.out(case, a, FIRST)
    equal(few, first, f"outputs of the first {CUT} tokens alone and among {case.T}")


def packed_documents(call: Calls, case: Case, a: Arrays) -> None:
    rest = case.T - CUT
    seg = np.repeat([[1, 2]], [CUT, rest], axis=1).repeat(case.B, 0)
    i = np.concatenate([np.arange(CUT), np.arange(rest)])[None].repeat(case.B, 0)
    both = replace(case, seg=nested(seg.tolist()), positions=nested(i.tolist()))
    for n, cut in ((CUT, FIRST), (rest, slice(CUT, None))):
        alone = call.out(replace(case, T=n), part(a, cut) | {"positions": np.arange(n)})
        packed = call.out(both, {**a, "seg": seg, "positions": i}, cut)
        equal(packed, alone, f"document of {n} tokens in a packed sequence and alone")


def repeated_groups(call: Calls, case: Case, a: Arrays) -> None:
    each = {name: np.repeat(a[name], case.H // case.G, axis=1) for name in "kv"}
    few, many = call.out(case, a), call.out(replace(case, G=case.H), {**a, **each})
    equal(many, few, f"{case.G} key-value heads for {case.H} query heads, and each of them repeated")


def reordered_tokens(call: Calls, case: Case, a: Arrays) -> None:
    mixed = np.random.default_rng(0).permutation(case.T)
    there = call.out(case, part(a, mixed) | {"positions": a["positions"]})
    equal(there, call.out(case, a, mixed), "outputs of tokens in another order")


LAWS: dict[str, Callable[[Calls, Case, Arrays], None]] = {
    **{law.__name__: law for law in (norm, composition, adjoint, shift, softmax, fading, buckets, causal)},
    **{"prefix": prefix, "packed": packed_documents, "groups": repeated_groups, "order": reordered_tokens},
}
