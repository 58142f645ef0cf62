"""Why a tensor differs: the readings (readings.py) that give what came, those first that go on giving what
came in the tensors after it.

Not here: what is said of a tensor besides (evidence.py).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, permutations
from typing import Any

import numpy as np

from peref.errors import counted
from peref.golden.spec.rule import CLASSES, Verdict
from peref.trace_diff.evidence import (
    UNRELATED,
    Differing,
    about_shape,
    collapsed,
    in_layers,
    relations_of,
    where_wrong,
)
from peref.trace_diff.fitted import fitted
from peref.trace_diff.gradients import relations_of_gradient
from peref.trace_diff.readings import Reading, readings
from peref.trace_diff.steps import Engine, first_layer, follow, layer_and_step, taken
from peref.trace_diff.verdicts import Traces
from peref.xp import Arrays

CLOSER = 8
MOST_FOLLOWED = 12  # readings whose consequences are followed


def small_error(t: Traces, name: str, verdict: Verdict) -> Differing | None:
    """What explains a tensor that the class asked for lets pass, far better than rounding does."""
    found = diagnosed(t, name, verdict, "A")
    closer = tuple(one for one in found.readings if explains(t, one.engine, name, verdict))
    return replace(found, readings=closer) if closer else None


def explains(t: Traces, engine: Engine, name: str, verdict: Verdict) -> bool:
    """Whether another engine gives a tensor far better than the reference does."""
    made = t.judged(engine, [name], near=True)
    return name in made and made[name].worst * CLOSER < verdict.worst


def diagnosed(t: Traces, name: str, verdict: Verdict, limit: str) -> Differing:
    """The tensor that is beyond class `limit`: where, and what gives it within that class."""
    axes, came = t.axes.get(name, []), t.came[name].dtype
    if name not in t.theirs:
        said, cure = about_shape(axes, t.ours[name].wide, t.came[name].wide)
        return Differing(name, came, came, verdict, "", known=tuple(said), cure=cure)
    found = Differing(name, came, t.dtype(name), verdict, where_wrong(verdict, axes, limit))
    made = {} if t.group(name) < -1 else t.made(t.engine, [name])
    facts = relations_of(t.theirs[name], made.get(name, t.ours[name].wide), axes, t.rows(name))
    if t.group(name) < -1:
        known = "the forward pass agrees, and every gradient between this one and the loss"
        named = [*relations_of_gradient(t, name)][:1]
        return replace(found, known=(known, *(named or facts or [UNRELATED])))
    lie = lying_between(t, name)
    given, count = best(t, name, lie, dict(CLASSES)[limit])
    found = replace(found, readings=given, others=elsewhere(t, name, given))
    if given:
        after = f" and in {counted(count, 'tensor')} after it in this layer" if count else ""
        evidence = f"the reference with this change gives what came in {t.front}{name}{after}"
        return replace(found, evidence=evidence)
    step = layer_and_step(name)[1]
    of_lie = f"; between lie {', '.join(collapsed(lie, t.order))}, which theirs does not have" if lie else ""
    known = f"no known reading of {step}{of_lie}"
    guess = "a guess: the head is missing or as it was initialised; it is tied to embed.weight"
    tied = (guess,) if step == "logits" and t.engine.cfg.tied and not (facts or lie) else ()
    return replace(found, known=(known, *(facts or [UNRELATED]), *tied))


def best(t: Traces, name: str, lie: list[str], most: float) -> tuple[tuple[Reading, ...], int]:
    """The readings that give a tensor and most after it in its layer; of how many."""
    layer = t.group(name)
    names = [one for one in t.order if one in t.theirs and t.group(one) == layer]
    at, right, found = names.index(name), t.engine.cfg, list[tuple[int, float, Reading, Arrays]]()
    for one in giving(t, name, lie, most):
        made = t.made(one.engine, names)
        judged = t.judged(one.engine, names, True, made)
        used = [judged[other].worst if other in judged else math.nan for other in names]
        alike = [r for *_, r, other in found if same_tensors(made, other)]
        again = any(r.family == one.family or right != r.engine.cfg == one.engine.cfg for r in alike)
        if again or any(n > most for n in used[:at]):
            continue
        broken = next((n for n in range(at + 1, len(names)) if used[n] > most), len(names))
        found.append((sum(n <= most for n in used[at + 1 : broken]), used[at], one, made))
        if len(found) == MOST_FOLLOWED:
            break
    longest = max((count for count, *_ in found), default=0)
    some = [(used, one) for count, used, one, _ in found if count == longest]
    if some[1:]:  # those that rounding explains as well, and that do not go against other layers either
        least = max(1.0, CLOSER * min(used for used, _ in some))
        some = [(used, one) for used, one in some if not used > least]
        some = [(used, one) for used, one in some if keeps(t, one.engine, layer, most)] or some
    return tuple(one for _, one in some), longest


def keeps(t: Traces, engine: Engine, layer: int, most: float) -> bool:
    """Whether a reading gives what agreed in the layers before."""
    before = [one for one in t.order if one in t.theirs and -2 < t.group(one) < layer]
    judged = (t.judged(engine, list(names), near=True) for _, names in groupby(before, t.group))
    return not any(one.worst > most for some in judged for one in some.values())


def giving(t: Traces, name: str, lie: list[str], most: float) -> Iterator[Reading]:
    """The readings that give a tensor."""
    span = [name, *lie]
    layers = sorted({layer_and_step(one)[0] for one in span})
    layers.sort(key=lambda n: n != layer_and_step(name)[0])
    near, right = math.inf, t.made(t.engine, [name])
    sees = lambda engine: (at.see for at in engine.made.places)
    for one in readings(t.engine, layers, {layer_and_step(one)[1] for one in span}):
        made = t.made(one.engine, [name])
        masks = map(np.array_equal, sees(one.engine), sees(t.engine))
        if not made or (same_tensors(made, right) and all(masks)):
            continue
        worst = t.judged(one.engine, [name], True, made)[name].worst
        near = min(near, worst)
        if worst <= most:
            yield one
    for one in same_as(t, name, most):
        near = 0.0
        yield one
    if right and near > dict(CLASSES)["A"]:
        yield from fitted(t, name, layers, most)


def same_as(t: Traces, name: str, most: float) -> Iterator[Reading]:
    """A later tensor of the layer under this name, or axes exchanged."""
    got, layer, axes = t.theirs[name], t.group(name), t.axes[name]
    before = replace(t, came={one: t.came[one] for one in t.order[: t.order.index(name)] if one in t.came})
    says = next((one.get("says", "") for one in t.words["tensors"] if one["name"] == name), "")

    def gives(other: str, order: Any) -> bool:
        if t.ours[other].bits.shape != got.shape:
            return False
        found = follow(t.engine, before.theirs, layer, wanted=[other])
        made = {other: taken(found, before.theirs, other)}
        laid = lambda x: x.transpose(order).reshape(got.shape)
        if not t.close(name, laid(made[other])):
            return False
        far = before.bounds(t.engine, [other], made)
        a, b = (laid(one[other]) for one in far)
        return t.rule(name, laid(made[other]), a, b, t.engine).worst <= most

    of_layer = [one for one in t.order if t.group(one) == layer == layer_and_step(one)[0]]
    for other in of_layer:
        if other not in (name, *before.theirs) and gives(other, range(got.ndim)):
            does = f"it is what {t.front}{other} must be: dumped at another place"
            yield Reading(does, f"{name} is {says}", t.engine)
    for order in permutations(range(got.ndim)):
        long = [k for k in order if got.shape[k] > 1]
        if long != sorted(long) and gives(name, order):
            does = f"its numbers lie in the order [{','.join(axes[k] for k in order)}]"
            says = f"it is [{','.join(axes)}]; copy what you transpose before it is written"
            yield Reading(does, says, t.engine)
            return


def lying_between(t: Traces, name: str) -> list[str]:
    """What lies between theirs and a tensor, and has to be made: what makes it unknown where it is."""
    layer = t.group(name)
    first = first_layer(t.engine.cfg, t.theirs, layer) or -1
    if not t.made(t.engine, [name]):
        return []
    unknown = lambda one: {**t.theirs, one: np.full(t.ours[one].bits.shape, np.nan)}
    missing = [one for one in t.order[: t.order.index(name)] if one not in t.theirs]
    missing = [one for one in missing if first <= t.group(one)]
    return [one for one in missing if t.group(one) < layer or not t.made(t.engine, [name], unknown(one))]


def elsewhere(t: Traces, name: str, given: tuple[Reading, ...]) -> str:
    """In which other layers the same step is wrong and right. What the class asked for lets pass and class A
    does not may be either, and is wrong where the reading explains it.
    """
    layer, step = layer_and_step(name)
    found: dict[str, list[int]] = {"wrong": [layer], "right": [], "unknown": []}
    for n in range(t.engine.cfg.layers if layer >= 0 else 0):
        other = f"layers.{n}.{step}"
        if n != layer and other in t.theirs:
            verdict = t.judged(t.engine, [other]).get(other) or t.beside(other)
            beyond = not verdict.worst <= t.most
            named = any(explains(t, one.engine, other, verdict) for one in given[:1])
            small = t.params and t.doubtful(other, verdict)
            found["wrong" if beyond or named else "unknown" if small else "right"].append(n)
    if sum(map(len, found.values())) == 1:
        return ""
    hows = ("wrong in", "right, by theirs before it, in", "off by little, maybe rounding, in")
    said = [f"{how} {in_layers(some)}" for how, some in zip(hows, found.values(), strict=True) if some]
    return f"{step} is {'; '.join(said)}"


def same_tensors(a: Arrays, b: Arrays) -> bool:
    near = lambda x, y: np.allclose(x, y, 1e-9, 0, equal_nan=True)
    return a.keys() == b.keys() and all(near(a[name], b[name]) for name in a)
