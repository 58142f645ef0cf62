"""Where somebody's trace begins to differ from the reference's, and what gives what came there.

Each tensor is judged by the tolerance rule (golden/spec/rule.py) against what theirs before it make (steps):
a and b of the rule are measured there, by rounding all that is computed at random. Where the weights are not
here, the reference's own numbers stand in, and more is allowed the deeper a tensor lies. The first that is
beyond the class asked for is diagnosed: the readings (readings.py) that give what came, those first that go
on giving what came in the tensors after it.

Not here: what is said of a tensor besides (evidence.py).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np

from peref.config import Config
from peref.errors import Damaged, Misuse, PerefError, counted
from peref.evaluate import weights_of
from peref.golden.compute.noise import NoisyTape, bare, rounding
from peref.golden.spec.files import Tensor, read_tensors, strict_json
from peref.golden.spec.rule import CLASSES, ROUNDOFF, Verdict, verdict_on
from peref.pair import model_from_json
from peref.parameters import half_of
from peref.passes import Memory
from peref.porting import load, names_of, ours_of
from peref.porting.files import CONFIG, published
from peref.rng import generator
from peref.runs import open_run
from peref.store import is_file, read_bytes
from peref.trace import OF_LAYER, halves, trace
from peref.trace_diff.evidence import (
    UNRELATED,
    Differing,
    about_shape,
    kept_in,
    relations_of,
    where_wrong,
)
from peref.trace_diff.readings import Reading, readings
from peref.trace_diff.steps import Engine, first_layer, follow, group_of, layer_and_step, taken
from peref.xp import Arrays

TRACE_FORMAT = "peref trace 1"
PASSES, MOVED_BY = 4, 2.0**-30
OF_PARAMETER = "gradient.parameter."
HIDDEN = -1e8  # a logit below it is a mask's
BEYOND_ROUNDING = 0.1  # of the largest number: beyond it nothing is rounding
CLOSER = 8
MOST_FOLLOWED = 12  # readings whose consequences are followed


@dataclass(frozen=True)
class Walk:
    """What came of two traces: how many tensors agree before the first that differs, which of the reference
    are missing in theirs, and what else is to be said.
    """

    agree: tuple[str, ...]
    missing: tuple[str, ...]
    found: Differing | None
    notes: tuple[str, ...] = ()

    def lacking(self) -> list[str]:
        """What is missing, a line of a layer's once: scores of 6 layers."""
        steps: dict[str, int] = {}
        for name in self.missing:
            layer, step = layer_and_step(name.removeprefix("encoder."))
            steps[step if layer >= 0 else name] = steps.get(step, 0) + (layer >= 0)
        return [f"{step} of {counted(n, 'layer')}" if n else step for step, n in steps.items()]


def said_of_trace(path: Path) -> dict[str, Any] | None:
    """What the JSON beside a trace says of it; None where the tensors at `path` are no trace."""
    beside = path.with_suffix(".json")
    if path.suffix != ".safetensors" or not is_file(beside):
        return None
    found = strict_json(read_bytes(beside), str(beside))
    if not isinstance(found, dict) or not str(found.get("format", "")).startswith("peref trace"):
        return None
    if found["format"] != TRACE_FORMAT:
        raise Misuse(f"{beside}: format is {found['format']!r}; this peref reads {TRACE_FORMAT!r}")
    if lacking := {"config", "tokens", "tensors"} - found.keys():
        raise Damaged(f"{beside}: no {min(lacking)} in it; expected the JSON that trace wrote")
    return found


def first_difference(path: Path, second: Path, words: Mapping[str, Any], limit: str = "C") -> Walk:
    """Theirs at `second` held against the trace at `path`, of which `words` is the JSON.

    Raises Misuse where they have no tensor in common or one of theirs is not of floats, Damaged for what is
    no trace.
    """
    ours, came = read_tensors(path), read_tensors(second)
    came |= renamed(came, words)
    for name in (one for one in ours if one in came and came[one].dtype not in ROUNDOFF):
        asked = f"expected one of {', '.join(ROUNDOFF)}; write it in the dtype that it was computed in"
        raise Misuse(f"{second}: {name} has dtype {came[name].dtype}; {asked}")
    params, notes = weights_of_trace(words, path)
    if "encoder" in words["config"]:
        return walk_of_both(ours, came, words, limit, params, notes)
    return Traces(ours, came, dict(words), limit, params, notes).walk()


def walk_of_both(
    ours: dict[str, Tensor],
    came: dict[str, Tensor],
    words: Mapping[str, Any],
    limit: str,
    params: Arrays,
    notes: tuple[str, ...],
) -> Walk:
    """The encoder's tensors, then, behind what theirs made, the decoder's and all gradients. Raises Misuse
    where that is not there.
    """
    front, config, about = "encoder.", dict(words["config"]), {one["name"]: one for one in words["tensors"]}
    if f"{front}final" not in came:
        raise Misuse(f"theirs has no {front}final, of which the decoder's keys and values are; dump it too")
    inner = lambda some: {n.removeprefix(front): x for n, x in some.items() if n.startswith(front)}
    first = {"config": config.pop("encoder"), "tokens": words["encoder_tokens"]}
    first["tensors"] = [one | {"name": name} for name, one in inner(about).items()]
    p, q = (half_of(params, part) if params else {} for part in ("encoder", "decoder"))
    encoder = Traces(inner(ours), inner(came), first, limit, p, notes, front)
    walk = encoder.walk()
    agree, missing = ([f"{front}{name}" for name in some] for some in (walk.agree, walk.missing))
    rest = {name: one for name, one in about.items() if not name.startswith(front)}
    if walk.found or came.keys().isdisjoint(rest):
        found = walk.found and replace(walk.found, name=f"{front}{walk.found.name}")
        missing += [name for name in rest if name not in came]
        return Walk((*agree,), (*missing,), found, walk.notes)
    memory = Memory(encoder.theirs["final"], np.ones((1, encoder.engine.at.T), int))
    second = {**words, "config": config, "tensors": [*rest.values()]}
    mine = {name: ours[name] for name in rest}
    walk = Traces(mine, came, second, limit, q, walk.notes, memory=memory, whole=(words, params)).walk()
    return replace(walk, agree=(*agree, *walk.agree), missing=(*missing, *walk.missing))


def renamed(came: dict[str, Tensor], words: Mapping[str, Any]) -> dict[str, Tensor]:
    """Gradients of parameters under public names, which the traced model was imported with, under ours."""
    found: dict[str, Tensor] = {}
    theirs = {name.removeprefix(OF_PARAMETER): x for name, x in came.items() if name.startswith(OF_PARAMETER)}
    for dtype in {x.dtype for x in theirs.values()} if words.get("names") else ():
        bits = {name: x.bits for name, x in theirs.items() if x.dtype == dtype}
        mine = ours_of(bits, model_from_json(words["config"]), words["names"])
        found |= {f"{OF_PARAMETER}{name}": Tensor(dtype, a) for name, a in mine.items()}
    return found


def weights_of_trace(words: Mapping[str, Any], path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """The parameters of the model that was traced as float64, and what is to be said where they are not to be
    had.
    """
    source = words.get("source")
    for place in () if source is None else (Path(source), path.parent / source):
        run = is_file(place / "run.json")
        if run or is_file(place / CONFIG):
            try:
                params = weights_of(open_run(place))[1] if run else published_in(place, words)
            except PerefError as error:
                return {}, (f"the weights were not read: {error}",)
            return {name: np.asarray(a, np.float64) for name, a in params.items()}, ()
    here = f"{source} is not here" if source else "the trace names no run"
    return {}, (f"{here}: what its weights make is compared with the reference's own numbers",)


def published_in(folder: Path, words: Mapping[str, Any]) -> Arrays:
    """The parameters in the folder of a published model: of the one layer that was traced, or all."""
    model, alone = published(folder), words["tokens"] is None
    layer = layer_and_step(words["tensors"][0]["name"])[0] if alone else None
    cfg = Config.from_json(words["config"])
    return load(model.tensors, cfg, names_of(model.config), dtype=np.dtype(np.float64), layer=layer)


@dataclass
class Traces:
    """Both traces, and the model of the first; of an encoder and a decoder one of them, `front` before the
    names of its tensors, the `memory` that the second attends to, and what is said of both, with their
    parameters, whose gradients it has.
    """

    ours: dict[str, Tensor]
    came: dict[str, Tensor]
    words: dict[str, Any]
    limit: str
    params: Arrays
    notes: tuple[str, ...] = ()
    front: str = ""
    memory: Memory | None = None
    whole: tuple[Mapping[str, Any], Arrays] | None = None

    @cached_property
    def engine(self) -> Engine:
        w, params = self.words, dict(self.params)
        if w["tokens"] is None:  # of one layer alone: what enters the first is not known
            params.pop("embed.weight", None)
        tokens = np.zeros((1, w["n"]), int) if w["tokens"] is None else np.asarray(w["tokens"])
        cfg, (B, T) = Config.from_json(w["config"]), tokens.shape
        at = cfg.place(B, T, w.get("positions"), w.get("seg"), w.get("n"))
        engine = Engine(cfg, params, tokens, at, memory=self.memory)
        return replace(engine, params=engine.made.params)

    @cached_property
    def most(self) -> float:
        return dict(CLASSES)[self.limit]

    @cached_property
    def axes(self) -> dict[str, list[str]]:
        return {one["name"]: one["axes"] for one in self.words["tensors"]}

    @cached_property
    def order(self) -> list[str]:
        """Names of the reference in the order of computation; then gradients, from the loss backwards."""
        return [name for name in self.axes if name in self.ours]

    @cached_property
    def asked(self) -> np.ndarray | None:
        """[B,T], false for padding; None where there is none."""
        return None if self.engine.at.seg is None else self.engine.at.seg != 0

    # ------------------------------------------------------------ theirs

    @cached_property
    def theirs(self) -> Arrays:
        """Their tensors, wide, padding replaced by the reference's; those of another shape are left out."""
        found = {}
        for name in self.order:
            if name in self.came:
                x, want = self.came[name].wide, self.ours[name].wide
                if np.squeeze(x).shape == np.squeeze(want).shape:
                    keep = self.rows(name)
                    x = x.reshape(want.shape)
                    found[name] = x if keep is None else np.where(keep, x, want)
        return found

    def rows(self, name: str) -> Any:
        """Which numbers of a tensor are not padding; None: all."""
        if self.asked is None or name.startswith(OF_PARAMETER):
            return None
        axes, keep = self.axes[name], np.ones((), bool)
        for k in (k for k, axis in enumerate(axes) if axis == "T"):
            of_tokens = [n if one in (0, k) else 1 for one, n in enumerate(self.ours[name].bits.shape)]
            keep = keep & self.asked.reshape(of_tokens)
        return keep

    @cached_property
    def usual(self) -> str:
        """The dtype that most of their tensors were computed in."""
        computed = [n for n in self.theirs if n not in ("embedded", "layers.0.input")]
        kinds = sorted((kept_in(self.came[name]) for name in computed), key=ROUNDOFF.__getitem__)
        return kinds[len(kinds) // 2] if kinds else "F64"

    def dtype(self, name: str) -> str:
        return max(kept_in(self.came[name]), self.usual, key=ROUNDOFF.__getitem__)

    def group(self, name: str) -> int:
        """Which layer computes a tensor (steps.group_of); -2 for gradients."""
        return -2 if name.startswith("gradient.") else group_of(self.engine.cfg, name)

    # ------------------------------------------------------------ the verdict

    @np.errstate(all="ignore")  # what theirs has, and what a reading makes of it, may be anything
    def walk(self) -> Walk:
        missing = tuple(name for name in self.order if name not in self.came)
        if len(missing) == len(self.order):
            first = ", ".join(self.order[:3])
            raise Misuse(f"they have no tensor in common; the reference has {first}, ...")
        agree, doubtful = list[str](), list[tuple[str, Verdict]]()
        for group, some in groupby((name for name in self.order if name in self.came), self.group):
            names = list(some)
            judged = self.judged(self.engine, [name for name in names if group > -2 and name in self.theirs])
            for name in names:
                verdict = judged.get(name) or self.beside(name)
                if not verdict.worst <= self.most:
                    if self.params and not self.consistent(name):
                        said = "the weights in the run are not those of the trace; they are left out"
                        return replace(self, params={}, notes=(*self.notes, said)).walk()
                    return Walk(tuple(agree), missing, self.diagnosed(name, verdict), self.notes)
                fine = name in judged and ROUNDOFF[self.dtype(name)] <= ROUNDOFF["F32"]
                if fine and verdict.worst > dict(CLASSES)["A"]:
                    doubtful.append((name, verdict))
                agree.append(name)
        found = next(filter(None, (self.explained(*one) for one in doubtful[:MOST_FOLLOWED])), None)
        before = agree[: agree.index(found.name)] if found else agree
        return Walk(tuple(before), missing, found, self.notes)

    def explained(self, name: str, verdict: Verdict) -> Differing | None:
        """What explains a tensor that the class asked for lets pass, far better than rounding does."""
        found = replace(self, limit="A").diagnosed(name, verdict)
        used = lambda one: self.judged(one.engine, [name])[name].worst
        closer = tuple(one for one in found.readings if used(one) * CLOSER < verdict.worst)
        return replace(found, readings=closer) if closer else None

    def made(self, engine: Engine, names: list[str], given: Arrays | None = None) -> Arrays:
        """What an engine makes of theirs, or of those that are given, under names of one layer; what is not
        known is left out.
        """
        given = self.theirs if given is None else given
        found = follow(engine, given, self.group(names[0]), wanted=names)
        made = {name: taken(found, given, name) for name in names}
        made = {name: np.broadcast_to(x, self.theirs[name].shape) for name, x in made.items()}
        known = lambda name: not (np.isnan(made[name]) & np.isfinite(self.theirs[name])).any()
        return {name: x for name, x in made.items() if known(name)}

    def judged(
        self, engine: Engine, names: list[str], near: bool = False, made: Arrays | None = None
    ) -> dict[str, Verdict]:
        """The rule's verdict on theirs, all of one layer, against what an engine makes of theirs before each;
        of none that it cannot make. `near`: what is far off is not judged in full.
        """
        made = made or (self.made(engine, names) if names else {})
        found = {name: Verdict("FAIL", math.inf) for name in made}
        close = [name for name in made if not near or self.close(name, made[name])]
        if not close:
            return found
        b = a = self.movement(engine, close, made)
        unknown = follow(engine, self.theirs, self.group(close[0]), angles=lambda x: x * np.nan, wanted=close)
        if turned := [name for name in close if np.isnan(taken(unknown, self.theirs, name)).any()]:
            b = a | self.movement(engine, turned, made, angles=True)
        rule = lambda name: self.rule(name, made[name], a[name], np.maximum(a[name], b[name]), engine)
        return found | {name: rule(name) for name in close}

    def close(self, name: str, made: np.ndarray) -> bool:
        got, (layer, step) = self.theirs[name], layer_and_step(name)
        both = np.isfinite(made) & np.isfinite(got)
        if step in ("scores", "bias") and layer >= 0:  # nor is it asked what nothing sees
            both &= self.engine.made.places[layer].see
        apart = np.abs(np.where(both, made - got, 0)).max(initial=0)
        return bool(apart <= BEYOND_ROUNDING * np.abs(np.where(both, made, 0)).max(initial=0))

    def movement(self, engine: Engine, names: list[str], made: Arrays, angles: bool = False) -> Arrays:
        """How far each number moves, per relative rounding, when all that is computed is rounded at random,
        and angles or not; its own size at least.
        """
        layer = self.group(names[0])
        rounded = at_random(f"layer {layer}")
        noise = lambda x: x if np.isnan(x).all() else rounded(x)  # nor is what is not known moved

        def once() -> Arrays:
            of_angles = noise if angles else None
            found = follow(engine, self.theirs, layer, moved=noise, angles=of_angles, wanted=names)
            return {name: taken(found, self.theirs, name) for name in names}

        return moved_by(once, {name: made[name] for name in names})

    def beside(self, name: str) -> Verdict:
        """The rule's verdict on theirs against the reference's own."""
        want = self.ours[name].wide
        if name not in self.theirs:
            return verdict_on(self.came[name], want, None, None, 1)
        verdict = self.loose(name, want)
        doubtful = self.group(name) == -2 and verdict.worst > self.most and self.close(name, want)
        return self.loose(name, want, self.of_gradients[name]) if self.params and doubtful else verdict

    @cached_property
    def of_gradients(self) -> Arrays:
        """How far each gradient moves (movement) when all that is computed, both ways, is rounded at random:
        more than their size says where what is summed cancels, p (g - sum p g) in a softmax that is peaked.
        """
        words, params = self.whole or (self.words, self.params)
        cfg, tokens, noise = (
            model_from_json(words["config"]),
            np.asarray(words["tokens"]),
            at_random("gradients"),
        )
        place = (words.get(key) for key in ("positions", "seg", "n"))
        how: dict[str, Any] = {"gradients": True, "at": halves(cfg)[""].place(*tokens.shape, *place)}
        how["source"] = np.asarray(words["encoder_tokens"]) if "encoder_tokens" in words else None
        once = lambda: trace(cfg, params, tokens, tape=NoisyTape(noise), **how)
        return moved_by(once, {name: x.wide for name, x in self.ours.items() if name.startswith("gradient.")})

    def loose(self, name: str, want: np.ndarray, moved: Any = 0.0) -> Verdict:
        """The rule's verdict on theirs, where more is allowed the deeper a tensor lies; at least `moved`."""
        size = np.where(np.isfinite(want), np.abs(want), 0.0)
        row = np.sqrt((size * size).mean(-1, keepdims=True)) if size.ndim else size
        weight = f"{name.removesuffix('bias')}weight"  # that of a bias of keys is rounding alone
        if name.startswith(OF_PARAMETER) and name.endswith(".bias") and weight in self.ours:
            row = np.maximum(row, np.sqrt((self.ours[weight].wide ** 2).mean()))
        deep = 1 + 2 * self.order.index(name) / len(OF_LAYER)
        far = np.maximum(np.where(size > 0, deep * np.maximum(size, 3 * row), 0), moved)
        return self.rule(name, want, far, far, self.engine)

    def rule(self, name: str, want: Any, a: Any, b: Any, engine: Engine) -> Verdict:
        """What is compared: no padding, and of logits none that the mask hides."""
        got, (layer, step), cfg = self.theirs[name], layer_and_step(name), self.engine.cfg
        keep = self.rows(name)
        keep = np.ones(want.shape, bool) if keep is None else np.broadcast_to(keep, want.shape)
        if step in ("scores", "bias"):
            see = np.broadcast_to(engine.made.places[layer].see, want.shape)
            hidden = got < HIDDEN
            if step == "scores" and (hidden & ~see).any():  # dumped behind the mask
                keep, want = keep & (see | ~hidden), np.where(see, want, -np.inf)
            else:
                keep = keep & see
        got, want, a, b = (np.where(keep, x, 0.0) for x in (got, want, a, b))
        S = self.memory.x.shape[1] if self.memory and step.startswith("cross_") else self.engine.at.T
        sums = {"scores": cfg.D, "probabilities": S, "heads": S}  # on the way
        sums |= {"output": cfg.H * cfg.D, "ffn": cfg.F or 1, "q_turned": 1, "k_turned": 1, "residual": 1}
        many = sums.get(step.removeprefix("cross_"), cfg.C) or 1
        return verdict_on(Wide(self.dtype(name), got), want, a, b, float(many))

    def consistent(self, name: str) -> bool:
        """Whether the weights make of the reference's tensors the reference's."""
        mine = replace(self, came=self.ours, limit="C")
        verdict = mine.judged(mine.engine, [name]).get(name) if self.group(name) > -2 else None
        return verdict is None or verdict.worst <= mine.most

    # ------------------------------------------------------------ what gives it

    def diagnosed(self, name: str, verdict: Verdict) -> Differing:
        axes, came = self.axes.get(name, []), self.came[name].dtype
        if name not in self.theirs:
            known = about_shape(axes, self.ours[name].bits.shape, self.came[name].bits.shape)
            return Differing(name, came, came, verdict, "", known=(known,))
        found = Differing(name, came, self.dtype(name), verdict, where_wrong(verdict, axes, self.limit))
        made = {} if self.group(name) < -1 else self.made(self.engine, [name])
        facts = relations_of(self.theirs[name], made.get(name, self.ours[name].wide), axes, self.rows(name))
        if self.group(name) < -1:
            known = "the forward pass agrees, and every gradient between this one and the loss"
            return replace(found, known=(known, *(facts or [UNRELATED])))
        found, between = replace(found, others=self.elsewhere(name)), self.between(name)
        best, count = self.best(name, between)
        if best:
            after = f" and in {counted(count, 'tensor')} after it in this layer" if count else ""
            evidence = f"the reference with this change gives what came in {self.front}{name}{after}"
            return replace(found, readings=best, evidence=evidence)
        step, lie = layer_and_step(name)[1], ", ".join(between)
        lie = f"; between lie {lie}, which theirs does not have" if lie else ""
        known = f"no known reading of {step}{lie}"
        guess = "a guess: the head is missing or as it was initialised; it is tied to embed.weight"
        tied = (guess,) if step == "logits" and self.engine.cfg.tied and not facts else ()
        return replace(found, known=(known, *(facts or [UNRELATED]), *tied))

    def best(self, name: str, between: list[str]) -> tuple[tuple[Reading, ...], int]:
        """The readings that give a tensor and most after it in its layer; of how many."""
        layer = self.group(name)
        names = [one for one in self.order if one in self.theirs and self.group(one) == layer]
        at, right, found = names.index(name), self.engine.cfg, list[tuple[int, float, Reading, Arrays]]()
        for one in self.fitting(name, between):
            made = self.made(one.engine, names)
            judged = self.judged(one.engine, names, True, made)
            used = [judged[other].worst if other in judged else math.nan for other in names]
            alike = [r for *_, r, other in found if same_tensors(made, other)]
            again = any(r.family == one.family or right != r.engine.cfg == one.engine.cfg for r in alike)
            if again or any(n > self.most for n in used[:at]):
                continue
            broken = next((n for n in range(at + 1, len(names)) if used[n] > self.most), len(names))
            found.append((sum(n <= self.most for n in used[at + 1 : broken]), used[at], one, made))
            if len(found) == MOST_FOLLOWED:
                break
        most = max((count for count, *_ in found), default=0)
        best = [(used, one) for count, used, one, _ in found if count == most]
        if best[1:]:  # those that rounding explains as well, and that do not go against other layers either
            least = max(1.0, CLOSER * min(used for used, _ in best))
            best = [(used, one) for used, one in best if not used > least]
            best = [(used, one) for used, one in best if self.keeps(one.engine, layer)] or best
        return tuple(one for _, one in best), most

    def keeps(self, engine: Engine, layer: int) -> bool:
        """Whether a reading gives what agreed in the layers before."""
        before = [one for one in self.order if one in self.theirs and -2 < self.group(one) < layer]
        judged = (self.judged(engine, list(names), near=True) for _, names in groupby(before, self.group))
        return not any(one.worst > self.most for some in judged for one in some.values())

    def fitting(self, name: str, between: list[str]) -> Iterator[Reading]:
        """The readings that give a tensor."""
        span = [name, *between]
        layers = sorted({layer_and_step(one)[0] for one in span})
        layers.sort(key=lambda n: n != layer_and_step(name)[0])
        right, sees = self.made(self.engine, [name]), lambda engine: (at.see for at in engine.made.places)
        for one in readings(self.engine, layers, {layer_and_step(one)[1] for one in span}):
            made = self.made(one.engine, [name])
            masks = map(np.array_equal, sees(one.engine), sees(self.engine))
            if not made or (same_tensors(made, right) and all(masks)):
                continue
            if self.judged(one.engine, [name], True, made)[name].worst <= self.most:
                yield one
        yield from self.same_as(name)

    def same_as(self, name: str) -> Iterator[Reading]:
        """A later tensor of the layer under this name, or axes exchanged."""
        got, layer, axes = self.theirs[name], layer_and_step(name)[0], self.axes[name]
        before = {one: self.theirs[one] for one in self.order[: self.order.index(name)] if one in self.theirs}
        says = next((one.get("says", "") for one in self.words["tensors"] if one["name"] == name), "")
        made = follow(self.engine, before, self.group(name))
        gives = lambda x: (
            x.shape == got.shape and self.close(name, x) and self.loose(name, x).worst <= self.most
        )
        for step in OF_LAYER if layer >= 0 else ():
            other = f"layers.{layer}.{step}"
            if other in made and other not in (name, *before) and gives(made[other]):
                does = f"it is what {self.front}{other} must be: dumped at another place"
                yield Reading(does, f"{name} is {says}", self.engine)
        for order in permutations(range(got.ndim)):
            long = [k for k in order if got.shape[k] > 1]
            if long != sorted(long) and gives(made[name].transpose(order).reshape(got.shape)):
                does = f"its numbers lie in the order [{','.join(axes[k] for k in order)}]"
                says = f"it is [{','.join(axes)}]; copy what you transpose before it is written"
                yield Reading(does, says, self.engine)
                return

    def between(self, name: str) -> list[str]:
        """What lies between theirs and a tensor, and has to be made: what makes it unknown where it is."""
        layer = self.group(name)
        first = first_layer(self.engine.cfg, self.theirs, layer) or -1
        if not self.made(self.engine, [name]):
            return []
        unknown = lambda one: {**self.theirs, one: np.full(self.ours[one].bits.shape, np.nan)}
        missing = [one for one in self.order[: self.order.index(name)] if one not in self.theirs]
        missing = [one for one in missing if first <= self.group(one)]
        return [
            one
            for one in missing
            if self.group(one) < layer or not self.made(self.engine, [name], unknown(one))
        ]

    def elsewhere(self, name: str) -> str:
        """In which other layers the same step is wrong and right."""
        layer, step = layer_and_step(name)
        right, wrong = list[int](), [layer]
        for n in range(self.engine.cfg.layers if layer >= 0 else 0):
            other = f"layers.{n}.{step}"
            if n != layer and other in self.theirs:
                verdict = self.judged(self.engine, [other]).get(other) or self.beside(other)
                (right if verdict.worst <= self.most else wrong).append(n)
        if len(wrong) + len(right) == 1:
            return ""
        listed = lambda some: ", ".join(map(str, sorted(some))) or "none"
        return f"{step} is wrong in layers {listed(wrong)}; right, by theirs before it, in {listed(right)}"


def at_random(of: str) -> Any:
    """What rounds numbers by MOVED_BY, drawn anew for `of`."""
    rng = generator(0, f"rounding of {of}")
    # evenly between two bounds, in float32: random numbers cost more than all that is computed
    even = lambda shape: np.multiply(rng.random(shape, np.float32) - 0.5, 12**0.5, dtype=np.float64)
    return rounding(even, MOVED_BY)


def moved_by(once: Callable[[], Arrays], made: Arrays) -> Arrays:
    """How far each number of `made` moves, per relative rounding, where `once` computes all of it rounded;
    its own size at least.
    """
    square = {name: np.zeros(x.shape) for name, x in made.items()}
    for _ in range(PASSES):
        noisy = once()
        for name, x in made.items():
            off = (bare(noisy[name]) - x) / MOVED_BY
            square[name] += np.where(np.isfinite(off), off, 0) ** 2
    found = {}
    for name, x in made.items():
        own, size = np.sqrt(square[name] / PASSES), np.abs(x)
        usual = np.median(own, -1, keepdims=True) if own.ndim else own
        moved = 3 * np.where(own > 0, np.maximum(own, usual), 0)
        found[name] = np.maximum(np.where(np.isfinite(size), size, 0), moved)
    return found


def same_tensors(a: Arrays, b: Arrays) -> bool:
    near = lambda x, y: np.allclose(x, y, 1e-9, 0, equal_nan=True)
    return a.keys() == b.keys() and all(near(a[name], b[name]) for name in a)


class Wide(Tensor):
    """Numbers that are wide already, judged by the dtype that they were kept in."""

    @property
    def wide(self) -> np.ndarray:
        return self.bits
