"""What is said of the tensor that differs: where it is wrong, what its numbers have to do with the right
ones, which readings give it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peref.errors import counted, in_runs
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import Verdict
from peref.trace_diff.readings import Reading

MOST_SHOWN = 3
OF_A_LAYER = re.compile(r"(.*?)(?:layers\.)?\b(\d+)\.(.+)")  # what stands before, the layer, the step
UNRELATED = "no simple relation to what it must be was found"


@dataclass(frozen=True)
class Differing:
    """The first tensor that differs: its verdict, where it is wrong, which readings give it, and where
    none does what is known of it and what to do. `judged`: the dtype that it is judged as computed in.
    """

    name: str
    dtype: str
    judged: str
    verdict: Verdict
    where: str
    readings: tuple[Reading, ...] = ()
    evidence: str = ""
    known: tuple[str, ...] = ()
    others: str = ""
    cure: str = ""

    @property
    def in_dtype(self) -> str:
        judged = "" if self.judged == self.dtype else f", judged as {self.judged.lower()}"
        return f"{self.dtype.lower()}{judged}"

    def lines(self) -> list[str]:
        """Where it is wrong, what it looks like and why, what to do; the first 14 columns are a label."""
        shown, more = self.readings[:MOST_SHOWN], len(self.readings[MOST_SHOWN:])
        alike = [f"{one.does}; {one.says}" for one in shown]
        alike += [f"{counted(more, 'more reading gives', 'more readings give')} the same"] if more else []
        cure = self.cure or f"look at what computes {self.name}"
        cure = "make it what the config says" if self.readings else cure
        said = [
            ("wrong", self.where),
            *(("or" if n else "looks like", words) for n, words in enumerate(alike)),
            *(("known", words) for words in self.known),
            ("evidence", self.evidence),
            ("layers", self.others),
            ("what to do", f"{cure}, then trace and diff again: what comes after it was not judged"),
        ]
        return [f"{label:14}{words}" for label, words in said if words]

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        looks = [{"does": one.does, "says": one.says} for one in self.readings]
        words = {"name": self.name, "dtype": self.dtype, "judged": self.judged, "where": self.where}
        rest = {"evidence": self.evidence, "known": self.known, "layers": self.others}
        return words | {"looks_like": looks} | rest


def about_shape(axes: list[str], want: np.ndarray, got: np.ndarray) -> tuple[list[str], str]:
    """Which shape came in place of which and why, as far as that can be told; what to do, "" where not."""
    came, asked = list(got.shape), list(want.shape)
    said = f"its shape is {came}; expected {asked}, [{','.join(axes)}]"
    if sorted(came) == sorted(asked) and len(set(asked)) == len(asked):
        return [f"{said}; transpose it by {[came.index(n) for n in asked]} before it is written"], ""
    if len(came) != len(asked):
        return [said], ""
    k = next(k for k, (m, n) in enumerate(zip(came, asked, strict=True)) if m != n)
    axis, more, only = axes[k], came[k] - asked[k], f"write the first {asked[k]} alone"
    if axis == "B":
        return [said, f"it has {counted(came[k], 'sequence')}, a trace one"], "write that one alone"
    if axis == "G" and came[k] % asked[k] == 0:
        each = f"each key-value head is there {came[k] // asked[k]} times, for the query heads that read it"
        return [said, each], "write it once"
    if axis == "V" and more > 0:
        return [said, f"it has {more} columns more than the vocabulary has tokens"], only
    if axis in "TS" and axis in axes[:k] and more > 0:
        return [said, f"it has {counted(more, 'key')} more than there are tokens, as a cache has"], only
    if axis not in "TS":
        return [said], ""
    cure = "give yours the tokens in the JSON beside the reference"
    return [said, tokens_apart(k, want, got)], f"{cure}, or trace those that yours reads (--tokens)"


def tokens_apart(k: int, want: np.ndarray, got: np.ndarray) -> str:
    """How many tokens more or fewer came along axis k; where, if the others are alike."""
    more, few = got.shape[k] - want.shape[k], min(got.shape[k], want.shape[k])
    long, short = (got, want) if more > 0 else (want, got)
    said = f"it has {counted(abs(more), 'token')} {'more' if more > 0 else 'fewer'} than the reference"
    for front in range(abs(more) + 1):
        rows = np.moveaxis(long, k, 0)[front : front + few]
        if rows.shape == (same := np.moveaxis(short, k, 0)).shape and about_alike(rows, same):
            at_start = f"{front} at the start, where tokenizers put a token of their own" if front else ""
            at_end = f"{abs(more) - front} at the end" if front < abs(more) else ""
            return f"{said}: {' and '.join(filter(None, (at_start, at_end)))}; the others are alike"
    return said


def about_alike(x: np.ndarray, y: np.ndarray) -> bool:
    """To a few percent, not by the rule."""
    return bool(np.abs(x - y).max(initial=0) <= 0.02 * np.abs(y).max(initial=1e-30))


def where_wrong(verdict: Verdict, axes: list[str], limit: str) -> str:
    """From which token, in which heads and channels it is wrong."""
    if verdict.used is None:
        return verdict.words
    wrong, said, tokens = verdict.wrong(limit), list[str](), ["token", "key"]
    for k, axis in enumerate(axes):
        hit, size = np.flatnonzero(wrong.any(tuple(n for n in range(wrong.ndim) if n != k))), wrong.shape[k]
        what = {"H": "head", "G": "key-value head", "B": "sequence", "V": "token number"}.get(axis, "channel")
        if axis in "TS":
            what = tokens.pop(0)
            on = len(hit) == size - hit[0]
            places = f"from {what} {hit[0]} on" if on else f"at {what} {in_runs(hit)} of {size}"
            said.append(f"at every {what}" if len(hit) == size else places)
        elif len(hit) < size:
            said.append(f"in {what} {in_runs(hit)} of {size}")
        elif axis in "HG" and size > 1:
            said.append(f"in all {counted(size, what)}")
    share = counted(int(wrong.sum()), "number")
    return f"{', '.join(said) or 'it differs'} ({share} of {wrong.size:,})"


def relations_of(got: np.ndarray, want: np.ndarray, axes: list[str], keep: Any) -> list[str]:
    """What theirs has to do with what it must be; `keep`: where it is no padding."""
    got, want = np.where(keep, got, 0), np.where(keep, want, 0)
    if not got.any():
        return ["all of it is 0"]
    if (unreal := ~np.isfinite(got)).any():
        return [f"{counted(int(unreal.sum()), 'number is', 'numbers are')} NaN or infinite"]
    found, large = list[str](), np.abs(want) > 1e-6 * np.abs(want).max()
    ratios = got[large] / want[large]
    middle = float(np.median(ratios))
    deviation = float(np.abs(ratios - middle).max())
    apart = float(np.abs(got - want).max() / np.abs(want).max())
    if apart < 1e-4:  # nor is rounding a factor
        found.append(f"it is off by {apart:.1g} of its largest number at most")
    elif deviation <= 0.02 * abs(middle) and deviation < abs(middle - 1):
        found.append(f"it is {middle:.6g} times what it must be")
    elif middle < 0 and np.corrcoef(got.ravel(), -want.ravel())[0, 1] > 0.999:
        found.append("it has the opposite sign")
    for k, axis in enumerate(axes):
        if axis in "TSBHG" and got.shape[k] > 2:
            x, y = np.moveaxis(got, k, 0), np.moveaxis(want, k, 0)
            found += [f"along axis {axis} it is moved by 1"] if about_alike(x[1:], y[:-1]) else []
            found += [f"along axis {axis} it is moved by -1"] if about_alike(x[:-1], y[1:]) else []
            found += [f"axis {axis} is in the opposite order"] if about_alike(x[::-1], y) else []
    return [*found, *of_channels(got, want)]


def of_channels(got: np.ndarray, want: np.ndarray) -> list[str]:
    """Channels in another order, and those that are 0."""
    if got.ndim < 2 or got.shape[-1] < 2:
        return []
    flat, right, found = got.reshape(-1, got.shape[-1]), want.reshape(-1, want.shape[-1]), list[str]()
    if flat.shape[-1] <= 512:
        apart = np.abs(flat[:, :, None] - right[:, None, :]).max(0)
        order = apart.argmin(1)
        near = (apart.min(1) <= 0.01 * (np.abs(right).max() or 1.0)).all()
        if near and len(set(order.tolist())) == len(order) and (order != np.arange(len(order))).any():
            shown = ", ".join(map(str, order[:8])) + (", ..." if len(order) > 8 else "")
            found.append(f"its channels are those of the reference in another order: {shown}")
    zero = np.flatnonzero(~flat.any(0))
    if len(zero) and right[:, zero].any():
        found.append(f"channel {in_runs(zero)} is 0 throughout")
    return found


def collapsed(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Names of tensors in few words: a step's of all layers once, and as a whole what is missing of the
    `known` as a whole: every gradient, all of layer 3, scores of layers 0 to 2.
    """
    left, said, steps = set(names), dict[str, list[int]](), list(known)
    of_layer: dict[tuple[str, int], list[str]] = {}
    for name in steps:
        if found := OF_A_LAYER.match(name):
            of_layer.setdefault((found[1], int(found[2])), []).append(name)
    for front in ("gradient.", "gradient.parameter."):
        group = [name for name in steps if name.startswith(front)]
        if group and left.issuperset(group):
            said[f"every {front[:-1]}".replace(".", " of a ")] = []
            left -= {*group}
    for name in names:
        found = OF_A_LAYER.match(name)
        key = (found[1], int(found[2])) if found else ("", -1)
        if found and len(of_layer.get(key, ())) > 1 and left.issuperset(of_layer[key]):
            said.setdefault(f"all of {key[0]}", []).append(key[1])
            left -= {*of_layer[key]}
        elif found and name in left:
            said.setdefault(f"{key[0]}{found[3]} of ", []).append(key[1])
        elif name in left:
            said[name] = []
    return [f"{words}{in_layers(layers)}" if layers else words for words, layers in said.items()]


def in_layers(layers: list[int]) -> str:
    """Layer 3, layers 0 to 2."""
    return f"layer{'s' * bool(layers[1:])} {in_runs(sorted(layers))}"


def kept_in(tensor: Tensor) -> str:
    """The narrowest dtype that holds all numbers of a tensor: a file may be wider than its engine."""
    x = tensor.wide[np.isfinite(tensor.wide)]
    if tensor.dtype not in ("F64", "F32") or np.count_nonzero(x) < 16:
        return tensor.dtype
    with np.errstate(all="ignore"):
        single, half = x.astype(np.float32), x.astype(np.float16)
    if not (single == x).all():
        return "F64"
    return "BF16" if not (single.view(np.uint32) & 0xFFFF).any() else "F16" if (half == x).all() else "F32"
