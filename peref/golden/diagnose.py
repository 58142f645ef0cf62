"""What a wrong tensor looks like: its axes permuted, a factor, a shift, or what the reference gives when one thing about the case is changed.

A trap is named only when the candidate agrees with it by the rule, class C at least, and the golden numbers differ from it by more than that. Honest
code that is merely inaccurate is near the golden numbers and is never asked about.

Not here: deciding whether something is wrong (rule).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from peref.encodings import get, options
from peref.errors import PerefError
from peref.golden.book import Entry
from peref.golden.cases import Case, other_choices
from peref.golden.files import Tensor
from peref.golden.levels import Arrays, expected
from peref.golden.near import read
from peref.golden.rule import CLASSES, judged


@dataclass(frozen=True)
class Trap:
    """What it looks like, and the flag that explains it, "" where there is none."""

    flag: str
    words: str


def rebuilt(words: dict[str, Any], inputs: Arrays) -> Case:
    """The case that these words of cases.json describe."""
    seg = nested(inputs["seg"].tolist()) if "seg" in inputs else None
    given = {name: nested(x) for name, x in words["options"].items()}
    slug, positions = words["id"].partition("/")[2], nested(inputs["positions"].tolist())
    return Case(words["encoding"], words["level"], slug, words["why"], (), given, positions, seg, **words["facts"])


def nested(x: Any) -> Any:
    """Lists, also in lists, as tuples."""
    return tuple(map(nested, x)) if isinstance(x, list) else x


def diagnosed(entry: Entry, name: str, got: Tensor, probes: bool = True) -> Trap | None:
    """The first trap that gives what came, None where none does; `probes` False: near misses are not asked."""
    want, (a, b) = entry.want(name), entry.budget(name)
    if want.dtype.kind != "f" or got.dtype[0] not in "FB" or got.dtype == "BOOL":
        return None
    c = got.wide
    near = lambda other: judged(got, other, a, b, entry.words["depth"]).worst <= CLASSES[-1][1]
    if c.size and not np.isfinite(c).all():
        return Trap("mask.padding", "NaN or infinity came out; the first is named above") if "seg" in entry.words["inputs"] else None
    found = of_numbers(c, want, entry.words["axes"].get(name, ""), got, a, b, entry)
    if name.startswith("vjp."):
        found = of_derivative(entry, got, found, near)
    found = found or (of_variants(entry, name, near) if c.shape == want.shape else None)
    return found or next(iter(of_probes(entry, name, got) if probes else []), None)


def of_probes(entry: Entry, name: str, got: Tensor) -> list[Trap]:
    """The near misses stored for this tensor whose every probe came, and which are not all right."""
    want, (a, b) = entry.want(name), entry.budget(name)
    if got.wide.shape != want.shape or a is None or b is None:
        return []
    found = []
    for miss in entry.words["near_miss"]:
        if miss["tensor"] == name:
            places, values = read(miss["probes"])
            if len(places) and places.max() < want.size:
                part = lambda x, places=places: np.asarray(x).reshape(-1)[places]
                room = 2e-7 * np.abs(values) / 2.0**-24 / 4  # values have seven digits
                came = judged(Tensor(got.dtype, part(got.bits)), values, part(a) + np.abs(values), part(b) + room, entry.words["depth"])
                if came.worst <= CLASSES[-1][1]:
                    found.append(Trap(miss["trap"], miss["words"]))
    return found


def likeness(entry: Entry, name: str, got: Tensor) -> list[tuple[float, Trap]]:
    """How far the error at the probes of each near miss points where the near miss does: a cosine, largest first."""
    want, found = entry.want(name), []
    if got.wide.shape != want.shape:
        return []
    for miss in entry.words["near_miss"]:
        if miss["tensor"] == name:
            places, values = read(miss["probes"])
            mine, theirs = got.wide.reshape(-1)[places] - want.reshape(-1)[places], values - want.reshape(-1)[places]
            size = np.linalg.norm(mine) * np.linalg.norm(theirs)
            if np.isfinite(size) and size > 0:
                found.append((float(mine @ theirs / size), Trap(miss["trap"], miss["words"])))
    return sorted(found, key=lambda one: -one[0])


LIKE = 0.6  # a cosine from which on an error is called alike
ASKED = 3  # failing tensors for which the reference computes its variants: it takes time


def likely(failures: Iterable[tuple[Entry, str, Tensor]]) -> list[Trap]:
    """The traps that all failing tensors of one implementation speak for, the likeliest first.

    A near miss that came exactly counts most, what shows in the numbers or is computed by the reference next, an error in its direction least.
    Derivatives are asked where no output is wrong: what is wrong about an output shows in them too.
    """
    votes: dict[str, float] = {}
    words: dict[str, Trap] = {}
    failing = list(failures)
    failing = [one for one in failing if not one[1].startswith("vjp.")] or failing
    said = [(1.0 / len(exact), trap) for one in failing if (exact := of_probes(*one)) for trap in exact]
    if not said:
        known = [trap for one in failing[:ASKED] if (trap := diagnosed(*one, probes=False)) and trap.flag]
        alike = [found for one in failing for found in likeness(*one)[:3] if found[0] > LIKE]
        said = [(10.0, trap) for trap in known] + [(cosine**2, trap) for cosine, trap in alike]
    for weight, trap in said:
        votes[trap.flag] = votes.get(trap.flag, 0.0) + weight
        words.setdefault(trap.flag, trap)
    return [words[flag] for flag in sorted(votes, key=lambda flag: -votes[flag])]


def of_numbers(c: Any, want: Any, axes: str, got: Tensor, a: Any, b: Any, entry: Entry) -> Trap | None:
    """What shows in the numbers alone."""
    depth = entry.words["depth"]
    limit = CLASSES[-1][1]
    if c.size == want.size and c.ndim == want.ndim > 1:
        for order in permutations(range(c.ndim)):
            if order != tuple(range(c.ndim)) and tuple(c.shape[n] for n in order) == want.shape:
                turned = Tensor(got.dtype, got.bits.transpose(order))
                if judged(turned, want, a, b, depth).worst <= limit:
                    letters = axes or "".join(map(str, range(c.ndim)))
                    return Trap(
                        "", f"its axes are in another order: expected {letters}, came {''.join(letters[order.index(n)] for n in range(c.ndim))}"
                    )
    if c.shape != want.shape or not want.any():
        return None
    if not c.any():
        return Trap("", "it is zero throughout")
    factor = float(np.vdot(want, c) / np.vdot(want, want))
    if abs(factor) > 1e-6 and a is not None and judged(got, want * factor, a * abs(factor), b * abs(factor), depth).worst <= limit:
        return Trap("", "its sign is the other one" if abs(factor + 1) < 1e-6 else f"it is the golden tensor times {factor:.6g}")
    if "T" in axes and a is not None:
        n = axes.index("T")
        ahead, behind = (slice(1, None), slice(None, -1))
        cut = lambda x, where: x[(slice(None),) * n + (where,)]
        for mine, theirs, words in ((ahead, behind, "late"), (behind, ahead, "early")):
            part = Tensor(got.dtype, cut(got.bits, mine))
            if part.bits.size and judged(part, cut(want, theirs), cut(a, theirs), cut(b, theirs), depth).worst <= limit:
                return Trap("", f"every row comes one token {words}")
    return None


def of_derivative(entry: Entry, got: Tensor, found: Trap | None, near: Callable[[Any], bool]) -> Trap | None:
    """The flag of what `found` says of a derivative; or that a cotangent came out as it went in."""
    flags = {"it is zero": "grad.zero", "its sign": "grad.sign", "it is the golden": "grad.factor", "every row": "grad.time"}
    if found:
        return replace(found, flag=next((flag for start, flag in flags.items() if found.words.startswith(start)), ""))
    for name, x in entry.inputs().items():
        if name.startswith("cotangent.") and x.shape == got.wide.shape and near(x):
            return Trap("grad.passthrough", f"it is {name}, as that went in")
    return None


def of_variants(entry: Entry, name: str, near: Callable[[Any], bool]) -> Trap | None:
    """What the reference gives when one thing is changed."""
    a = entry.inputs()
    try:
        case = rebuilt(entry.words, a)
        case.config.encoding(0)
    except (PerefError, ValueError, TypeError, KeyError):
        return None  # an encoding that this peref has not, or no longer so
    for trap, other in variants(case, a):
        try:
            with np.errstate(all="ignore"):
                changed = other().get(name)
        except (PerefError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            continue  # this case cannot be changed so
        if changed is not None and changed.shape == entry.want(name).shape and near(changed):
            return trap
    return None


def variants(case: Case, a: Arrays) -> Iterator[tuple[Trap, Callable[[], Arrays]]]:
    """Each trap, and how to fall in."""
    pe = case.config.encoding(0)
    with_case = lambda **changes: lambda: expected(replace(case, **changes), a)
    with_pe = lambda **changes: lambda: expected(case, a, replace(pe, **changes))
    with_positions = lambda i: lambda: expected(case, a, None, replace(case.at, i=i, j=i))
    i = case.at.i
    if case.hook == "rotate" and pe.rotate:
        rotate = pe.rotate
        angles = lambda change: lambda p, i, n: tuple(x if x is None or k else change(x) for k, x in enumerate(rotate(p, i, n)))
        gains = lambda change: lambda p, i, n: (rotate(p, i, n)[0], *(x if x is None else change(x) for x in rotate(p, i, n)[1:]))
        other = "interleaved" if case.layout == "half" else "half"
        yield Trap("rope.layout.half", f"you pair channels as layout {other} does, this case wants {case.layout}"), with_case(layout=other)
        yield Trap("rope.sign", "you turn the other way: the sign of the sine"), with_pe(rotate=angles(lambda x: -x))
        if case.config.R != case.D:
            whole = replace(case, R=case.D).config.encoding(0).rotate
            assert whole is not None
            cut = lambda p, i, n: tuple(x if x is None else x[..., : case.config.R // 2] for x in whole(p, i, n))
            yield Trap("rope.partial.exponent_head_dim", "your frequencies come from the head width, not the rotary width"), with_pe(rotate=cut)
            yield Trap("rope.partial.pairing", "you turn every channel of the head"), with_pe(rotate=whole)
        yield Trap("rope.yarn.mscale_missing", "the gain (magnitude) is missing"), with_pe(rotate=gains(np.ones_like))
        yield Trap("rope.yarn.mscale_twice", "the gain (magnitude) counts twice"), with_pe(rotate=gains(lambda x: x * x))
        for words, low in (("float16", float16), ("bfloat16", bfloat16)):
            yield Trap("rope.phase.low_precision", f"your angles were {words}"), with_pe(rotate=angles(low))
    if case.hook == "bias" and pe.bias:
        bias = pe.bias
        yield Trap("bias.sign", "your distances are j - i"), with_pe(bias=lambda be, p, d: bias(be, p, -d))
    for end in (2047, 1023, 4095, 511):
        yield Trap("rope.table.clip", f"your table ends at position {end + 1} and positions are clipped to it"), with_positions(np.minimum(i, end))
        yield Trap("rope.table.wrap", f"your positions are modulo {end + 1}"), with_positions(i % (end + 1))
    yield Trap("position.off_by_one", "your positions are one too large"), with_positions(i + 1)
    yield Trap("position.off_by_one", "your positions are one too small"), with_positions(i - 1)
    yield Trap("position.counted", "you count positions from 0 and do not use those given"), with_positions(np.arange(case.T))
    if i.dtype.kind == "f":
        yield Trap("position.rounded", "you round positions down to whole numbers"), with_positions(np.floor(i))
    if i.ndim == 2:
        yield Trap("position.batch", "you use the first sequence's positions for all"), with_positions(np.broadcast_to(i[:1], i.shape))
    if i.ndim == 3:
        for n in range(len(i)):
            yield Trap("position.axes", f"you use axis {n} of the positions for all"), with_positions(np.broadcast_to(i[n : n + 1], i.shape))
        yield Trap("position.axes", "the axes of your positions are in reverse order"), with_positions(i[::-1])
    if case.level == "attn":
        yield Trap("mask.causal", f"your mask is {'not causal' if case.causal else 'causal'}"), with_case(causal=not case.causal)
        if case.seg is not None:
            yield Trap("mask.documents", "documents and padding see one another"), lambda: expected(case, a, None, replace(case.at, seg=None))
        for window in [case.window + 1, case.window - 1, None] if case.window else []:
            yield Trap("mask.window", f"your window is {window or 'all keys'}, this case has {case.window}"), with_case(window=window)
        tile = [h % case.G for h in range(case.H)]
        tiled = {**a, **{name: a[name][:, tile] for name in "kv"}}
        yield Trap("gqa.order", "query head h reads key-value head h mod G, expected h // (H/G)"), lambda: expected(replace(case, G=case.H), tiled)
        yield Trap("attn.scale", "your logits are not scaled"), with_pe(scale=lambda D: 1.0)
        yield Trap("attn.scale", "your logits are scaled by D**-0.5"), with_pe(scale=lambda D: D**-0.5)
    known = options(get(case.encoding))
    for option, (default, kind) in known.items():
        for value in dict.fromkeys([default, *other_choices(default, kind)]):
            if value != case.options.get(option, default):
                flag = "rope.base.ignored" if option == "base" else "option"
                words = f"the option {option} looks like {value}, this case has {case.options.get(option, default)}"
                yield Trap(flag, words), with_case(options={**case.options, option: value})


def float16(x: Any) -> Any:
    """To float16, infinite beyond 65504 as there, and back."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


def bfloat16(x: Any) -> Any:
    """To the nearest bfloat16, ties to even, and back."""
    bits = x.astype(np.float32).view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32).astype(np.float64)
