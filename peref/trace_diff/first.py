"""Where somebody's trace begins to differ from the reference's, and what that is.

Each tensor is judged by the tolerance rule (golden/spec/rule.py) against what theirs before it make (steps):
a and b of the rule are measured there, by rounding all that is computed at random. Where the weights are not
here, the reference's own numbers stand in, and more is allowed the deeper a tensor lies. The first that is
beyond the class asked for is diagnosed: the readings (readings.py) that give what came, those first that go
on giving what came in the tensors after it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from peref.config import Config
from peref.errors import Damaged, Misuse, PerefError, counted
from peref.evaluate import weights_of
from peref.golden.compute.noise import rounding
from peref.golden.spec.files import Tensor, read_tensors, strict_json
from peref.golden.spec.rule import CLASSES, ROUNDOFF, Verdict, verdict_on
from peref.porting import load, names_of
from peref.porting.files import CONFIG, published
from peref.rng import generator
from peref.runs import open_run
from peref.store import is_file, read_bytes
from peref.trace_diff.readings import BROKEN, Reading, owner, readings
from peref.trace_diff.steps import OF_LAYER, Engine, Steps, layer_and_step, plain
from peref.xp import Arrays

TRACE_FORMAT = "peref trace 1"
PASSES, MOVED_BY = 4, 2.0**-30
HIDDEN = -1e8  # a logit below it is a mask's
BEYOND_ROUNDING = 0.1  # of the largest number: beyond it nothing is rounding
MOST_SHOWN, CLOSER = 3, 8
MOST_FOLLOWED = 12  # readings whose consequences are followed


@dataclass(frozen=True)
class Differing:
    """The first tensor that differs: its verdict, where it is wrong, which readings give it, and what is
    known of it where none does.
    """

    name: str
    dtype: str
    verdict: Verdict
    where: str
    readings: tuple[Reading, ...] = ()
    evidence: str = ""
    known: tuple[str, ...] = ()
    others: str = ""

    def lines(self) -> list[str]:
        """Where it is wrong, what it looks like and why, what to do; the first 14 columns are a label."""
        found = [f"wrong         {self.where}"] if self.where else []
        for n, one in enumerate(self.readings[:MOST_SHOWN]):
            found.append(f"{'or' if n else 'looks like':14}{one.does}; {one.says}")
        if more := len(self.readings[MOST_SHOWN:]):
            found.append(
                f"or            {counted(more, 'more reading gives', 'more readings give')} the same"
            )
        found += [f"known         {one}" for one in self.known]
        found += [f"evidence      {self.evidence}"] if self.evidence else []
        found += [f"layers        {self.others}"] if self.others else []
        cure = "make it what the config says" if self.readings else f"look at what computes {self.name}"
        return [
            *found,
            f"what to do    {cure}, then trace and diff again: what comes after it was not judged",
        ]

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        looks = [{"does": one.does, "says": one.says} for one in self.readings]
        words = {"name": self.name, "dtype": self.dtype, "where": self.where, "looks_like": looks}
        return words | {"evidence": self.evidence, "known": self.known, "layers": self.others}


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
            layer, step = layer_and_step(name)
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


def first_difference(
    path: Path, second: Path, words: Mapping[str, Any], limit: str = "C", run: str | None = None
) -> Walk:
    """Theirs at `second` held against the trace at `path`, of which `words` is the JSON.

    Raises Misuse where they have no tensor in common, Damaged for what is no trace.
    """
    ours, came = read_tensors(path), read_tensors(second)
    return Traces(ours, came, dict(words), limit, *weights_of_trace(words, path)).walk()


def weights_of_trace(words: Mapping[str, Any], path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """The parameters of the model that was traced as float64, and what is to be said where they are not to be
    had.
    """
    source = words.get("source")
    for place in () if source is None else (Path(source), path.parent / source):
        if not is_file(place / "run.json") and not is_file(place / CONFIG):
            continue
        try:
            params = (
                weights_of(open_run(place))[1] if is_file(place / "run.json") else published_in(place, words)
            )
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
    """Both traces, and the model of the first."""

    ours: dict[str, Tensor]
    came: dict[str, Tensor]
    words: dict[str, Any]
    limit: str
    params: Arrays
    notes: tuple[str, ...] = ()

    @cached_property
    def engine(self) -> Engine:
        w, cfg = self.words, Config.from_json(self.words["config"])
        tokens = None if w["tokens"] is None else np.asarray(w["tokens"])
        B, T = (1, w["n"]) if tokens is None else tokens.shape
        positions, seg = (
            None if (a := w.get(one)) is None else np.asarray(a) for one in ("positions", "seg")
        )
        at = cfg.place(B, T, positions, seg, w.get("n"))
        return Engine(cfg, self.params, tokens, at)

    @cached_property
    def axes(self) -> dict[str, list[str]]:
        return {one["name"]: one["axes"] for one in self.words["tensors"]}

    @cached_property
    def order(self) -> list[str]:
        """Names of the reference in the order of computation; then gradients, from the loss backwards."""
        known = [one["name"] for one in self.words["tensors"] if one["name"] in self.ours]
        forward = [name for name in known if not name.startswith("gradient.")]
        place = {f"gradient.{name}": -n for n, name in enumerate(forward)}
        layers = [n for n, name in enumerate(forward) if name.endswith(".input")]

        def backwards(name: str) -> tuple[float, int]:
            if name in place:
                return place[name], 0
            layer = owner(name.removeprefix("gradient.parameter."))
            if layer < 0:
                return (-len(forward), 1) if "embed" in name else (place.get("gradient.final", 0), 1)
            return (-layers[layer] if layer < len(layers) else -len(forward)), 1

        return forward + sorted((name for name in known if name.startswith("gradient.")), key=backwards)

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
        if self.asked is None or name.startswith("gradient.parameter."):
            return None
        axes, keep = self.axes[name], np.ones((), bool)
        for k, axis in enumerate(axes):
            if axis == "T" and len(self.asked.T) == self.ours[name].bits.shape[k]:
                shape = [1] * len(axes)
                shape[k] = self.asked.shape[1]
                if "B" in axes:
                    shape[axes.index("B")] = len(self.asked)
                elif len(self.asked) > 1:
                    continue
                keep = keep & self.asked.reshape(shape)
        return keep

    @cached_property
    def usual(self) -> str:
        """The dtype that most of their tensors were computed in."""
        computed = [n for n in self.theirs if n not in ("embedded", "layers.0.input")]
        kinds = sorted((kept_in(self.came[name]) for name in computed), key=ROUNDOFF.__getitem__)
        return kinds[len(kinds) // 2] if kinds else "F64"

    def dtype(self, name: str) -> str:
        return max(kept_in(self.came[name]), self.usual, key=ROUNDOFF.__getitem__)

    def before(self, name: str) -> Arrays:
        """Theirs that are computed before a tensor."""
        names = self.order[: self.order.index(name)]
        return {one: self.theirs[one] for one in names if one in self.theirs}

    # ------------------------------------------------------------ the verdict on one

    def walk(self) -> Walk:
        missing = tuple(name for name in self.order if name not in self.came)
        if len(missing) == len(self.order):
            names = ", ".join(self.order[:3])
            raise Misuse(f"they have no tensor in common; the reference has {names}, ...")
        agree, doubtful = list[str](), list[tuple[str, Verdict]]()
        for name in self.order:
            if name not in self.came:
                continue
            verdict = self.verdict(name)
            if not verdict.worst <= dict(CLASSES)[self.limit]:
                if self.params and not self.consistent(name):
                    said = "the weights in the run are not those of the trace; they are left out"
                    return replace(self, params={}, notes=(*self.notes, said)).walk()
                return Walk(tuple(agree), missing, self.diagnosed(name, verdict), self.notes)
            fine = ROUNDOFF[self.dtype(name)] <= ROUNDOFF["F32"] and self.expected(name)[1]
            if fine and verdict.worst > dict(CLASSES)["A"]:
                doubtful.append((name, verdict))
            agree.append(name)
        found = next(filter(None, (self.explained(*one) for one in doubtful[:MOST_FOLLOWED])), None)
        before = agree[: agree.index(found.name)] if found else agree
        return Walk(tuple(before), missing, found, self.notes)

    def explained(self, name: str, verdict: Verdict) -> Differing | None:
        """What explains a tensor that the class asked for lets pass, far better than rounding does."""
        strict = replace(self, limit="A")
        found = strict.diagnosed(name, verdict)
        given = self.before(name)
        closer = [
            one for one in found.readings if self.used(name, one.engine, given) * CLOSER < verdict.worst
        ]
        return replace(found, readings=tuple(closer)) if closer else None

    def used(self, name: str, engine: Engine, given: Arrays) -> float:
        made = np.broadcast_to(plain(Steps(engine, given).make(name)), self.theirs[name].shape)
        return self.judged(name, engine, made, given).worst

    def expected(self, name: str) -> tuple[np.ndarray, bool]:
        """What a tensor must be, and whether theirs before it say so or the reference."""
        want = self.ours[name].wide
        if name.startswith("gradient."):
            return want, False
        try:
            made = plain(self.reference.make(name))
        except BROKEN:
            return want, False
        if made.shape != want.shape:
            made = np.broadcast_to(made, want.shape) if made.ndim == want.ndim else made[0]
        return made, True

    @cached_property
    def reference(self) -> Steps:
        """Ours, made of theirs."""
        return Steps(self.engine, self.theirs)

    def verdict(self, name: str) -> Verdict:
        """The rule's verdict on theirs, against what they must be."""
        if name not in self.theirs:
            return verdict_on(self.came[name], self.ours[name].wide, None, None, 1)
        want, local = self.expected(name)
        return self.judged(name, self.engine, want, self.theirs, local)

    def judged(self, name: str, engine: Engine, want: Any, given: Arrays, local: bool = True) -> Verdict:
        """The same, against what an engine makes of those that are given."""
        a, b = self.budgets(name, engine, want, given, local)
        got, want, a, b = self.fair(name, engine, want, a, b)
        return verdict_on(Wide(self.dtype(name), got), want, a, b, self.products(name))

    def fair(self, name: str, engine: Engine, want: Any, a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
        """What is compared: no padding, and of logits none that the mask hides."""
        got = self.theirs[name]
        layer, step = layer_and_step(name)
        keep = self.rows(name)
        keep = np.ones(want.shape, bool) if keep is None else np.broadcast_to(keep, want.shape)
        if step in ("scores", "bias"):
            see = np.broadcast_to(engine.made.places[layer].see, want.shape)
            keep = keep & see
            if step == "scores":
                hidden = got < HIDDEN
                if (hidden & ~see).any():  # dumped behind the mask
                    keep = keep | (~see & ~hidden)
                    want = np.where(see, want, -np.inf)
        zero = lambda x: np.where(keep, x, 0.0)
        return zero(got), zero(want), zero(a), zero(b)

    def budgets(
        self, name: str, engine: Engine, want: np.ndarray, given: Arrays, local: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """a and b of the rule: how far a number moves, per relative rounding, without and with angles."""
        size = np.where(np.isfinite(want), np.abs(want), 0.0)
        if not local:
            row = np.sqrt((size * size).mean(-1, keepdims=True)) if size.ndim else size
            deep = 1 + 2 * self.order.index(name) / len(OF_LAYER)
            found = np.where(size > 0, deep * np.maximum(size, 3 * row), 0)
            return found, found
        a = np.maximum(size, movement(name, engine, want, given, False))
        if not engine.cfg.encoding(max(layer_and_step(name)[0], 0)).rotate:
            return a, a
        return a, np.maximum(a, movement(name, engine, want, given, True))

    def products(self, name: str) -> float:
        """How many are summed on the way."""
        cfg, (_, step), T = self.engine.cfg, layer_and_step(name), self.engine.at.T
        widths = {"scores": cfg.D, "probabilities": T, "heads": T, "output": cfg.H * cfg.D, "ffn": cfg.F or 1}
        return float({**widths, "q_turned": 1, "k_turned": 1, "residual": 1}.get(step, cfg.C) or 1)

    # ------------------------------------------------------------ what it is

    def diagnosed(self, name: str, verdict: Verdict) -> Differing:
        dtype = self.dtype(name) if name in self.theirs else self.came[name].dtype
        if name not in self.theirs:
            return Differing(name, dtype, verdict, "", (), "", (self.about_shape(name),))
        want = self.expected(name)[0]
        where = self.where(name, verdict)
        if name.startswith("gradient."):
            known = ("the forward pass agrees, and every gradient between this one and the loss",)
            return Differing(name, dtype, verdict, where, (), "", (*known, *self.facts(name, want)))
        fitting = [one for one in self.fitting(name) if self.keeps(name, one.engine)][:MOST_FOLLOWED]
        followed = [(self.followed(name, one.engine), one) for one in fitting]
        if not followed:
            return Differing(
                name, dtype, verdict, where, (), "", self.unknown(name, want), self.elsewhere(name)
            )
        most = max(count for count, _ in followed)
        best = tuple(one for count, one in followed if count == most)
        if best[
            1:
        ]:  # those that rounding explains as well, and those that do not go against other layers either
            given = self.before(name)
            used = [self.used(name, one.engine, given) for one in best]
            best = tuple(one for one, n in zip(best, used, strict=True) if n <= max(1.0, CLOSER * min(used)))
            best = tuple(one for one in best if self.keeps(name, one.engine, everywhere=True)) or best
        after = f" and in {counted(most, 'tensor')} after it in this layer" if most else ""
        evidence = f"the reference with this change gives what came in {name}{after}"
        return Differing(name, dtype, verdict, where, best, evidence, (), self.elsewhere(name))

    def consistent(self, name: str) -> bool:
        """Whether the weights make of the reference's tensors the reference's."""
        given = {one: self.ours[one].wide for one in self.order}
        try:
            made, want = plain(Steps(self.engine, given).make(name)), self.ours[name].wide
        except BROKEN:
            return True
        with np.errstate(all="ignore"):
            apart = np.abs(made - want)
        rows = self.rows(name)
        apart = np.where(np.isfinite(apart), apart, 0) * (1 if rows is None else rows)
        return bool(apart.max(initial=0) <= 1e-3 * np.abs(want[np.isfinite(want)]).max(initial=1e-30))

    def fitting(self, name: str) -> Iterator[Reading]:
        """The readings that give a tensor; of those that compute the same the first."""
        given = self.before(name)
        span = [name, *self.span(name)]
        layers = sorted(
            {layer_and_step(one)[0] for one in span}, key=lambda n: (n != layer_and_step(name)[0], n)
        )
        found: list[Reading] = []
        for one in readings(self.engine, layers, {layer_and_step(one)[1] for one in span}):
            known = any(same_engine(one.engine, other.engine) for other in found)
            if not known and self.gives(name, one.engine, given):
                found.append(one)
                yield one
        yield from self.same_as(name, given)

    def gives(
        self, name: str, engine: Engine, given: Arrays, other: str = "", order: tuple[int, ...] | None = None
    ) -> bool | None:
        """Whether an engine makes of those that are given what came under a name, or as `other`, its numbers
        perhaps in the order of other axes; None where it cannot.
        """
        got = self.theirs[name]
        try:
            with np.errstate(all="ignore"):
                made = plain(Steps(engine, given).make(other or name))
                made = made if order is None else made.transpose(order).reshape(made.shape)
                made = np.broadcast_to(made, got.shape)
                both = np.isfinite(made) & np.isfinite(got)
                apart = np.abs(np.where(both, made - got, 0)).max(initial=0)
                if not apart <= BEYOND_ROUNDING * np.abs(np.where(both, made, 0)).max(initial=0):
                    return False
                verdict = self.judged(name, engine, made, given, not other and order is None)
        except (PerefError, *BROKEN):
            return None
        return verdict.worst <= dict(CLASSES)[self.limit]

    def same_as(self, name: str, given: Arrays) -> Iterator[Reading]:
        """Another tensor under this name: one of theirs, or a later one of the layer."""
        got, layer = self.theirs[name], layer_and_step(name)[0]
        for other, x in given.items():
            if x.shape == got.shape and layer_and_step(other)[0] == layer and np.array_equal(x, got):
                yield Reading(f"it is {other} once more", f"{name} is {self.says(name)}", self.engine)
        for step in OF_LAYER if layer >= 0 else ():
            other = f"layers.{layer}.{step}"
            if other != name and other not in given and self.gives(name, self.engine, given, other):
                does = f"it is what {other} must be: dumped at another place"
                yield Reading(does, f"{name} is {self.says(name)}", self.engine)

        axes = self.axes[name]
        for order in permutations(range(got.ndim)):
            if list(order) != sorted(order) and self.gives(name, self.engine, given, "", order):
                does = f"its numbers lie in the order [{','.join(axes[k] for k in order)}]"
                says = f"it is [{','.join(axes)}]; copy what you transpose before it is written"
                yield Reading(does, says, self.engine)
                return

    def says(self, name: str) -> str:
        return next((one.get("says", "") for one in self.words["tensors"] if one["name"] == name), "")

    def keeps(self, name: str, engine: Engine, everywhere: bool = False) -> bool:
        """Whether a reading goes on giving what agreed before this tensor, in its layer or everywhere."""
        earlier = [one for one in self.order[: self.order.index(name)] if one in self.theirs]
        mine = [one for one in earlier if everywhere or layer_and_step(one)[0] == layer_and_step(name)[0]]
        return not any(self.gives(one, engine, self.before(one)) is False for one in mine)

    def followed(self, name: str, engine: Engine) -> int:
        """How many tensors of the layer after this one a reading goes on to give."""
        layer, count = layer_and_step(name)[0], 0
        for other in self.order[self.order.index(name) + 1 :]:
            if layer_and_step(other)[0] != layer:
                break
            if other in self.theirs:
                if (fits := self.gives(other, engine, self.before(other))) is False:
                    break
                count += bool(fits)
        return count

    def elsewhere(self, name: str) -> str:
        """In which other layers the same step is wrong and right."""
        layer, step = layer_and_step(name)
        if layer < 0:
            return ""
        right, wrong = list[int](), [layer]
        for n in range(self.engine.cfg.layers):
            other = f"layers.{n}.{step}"
            if n != layer and other in self.theirs and other in self.ours:
                with np.errstate(all="ignore"):
                    fits = self.verdict(other).worst <= dict(CLASSES)[self.limit]
                (right if fits else wrong).append(n)
        if len(wrong) + len(right) == 1:
            return ""
        listed = lambda some: ", ".join(map(str, sorted(some))) or "none"
        return f"{step} is wrong in layers {listed(wrong)}; right, by theirs before it, in {listed(right)}"

    # ------------------------------------------------------------ what is known

    def about_shape(self, name: str) -> str:
        axes, want = self.axes.get(name, []), list(self.ours[name].bits.shape)
        got = list(self.came[name].bits.shape)
        words = f"its shape is {got}; expected {want}, [{','.join(axes)}]"
        if sorted(got) == sorted(want) and len(set(want)) == len(want):
            words += f"; transpose it by {[got.index(n) for n in want]} before it is written"
        return words

    def where(self, name: str, verdict: Verdict) -> str:
        """From which token, in which heads and channels it is wrong."""
        if verdict.used is None:
            return verdict.words
        wrong, axes = verdict.wrong(self.limit), self.axes.get(name, [])
        said, tokens = [], 0
        for k, axis in enumerate(axes):
            hit = np.flatnonzero(wrong.any(tuple(n for n in range(wrong.ndim) if n != k)))
            size = wrong.shape[k]
            if axis == "T":
                tokens += 1
                what = ("token", "key")[tokens - 1] if tokens < 3 else axis
                if len(hit) == size:
                    said.append(f"at every {what}")
                elif len(hit) == size - hit[0]:
                    said.append(f"from {what} {hit[0]} on")
                else:
                    said.append(f"at {what} {listed_places(hit)} of {size}")
            elif axis in ("H", "G", "B") and size > 1:
                what = {"H": "head", "G": "key-value head", "B": "sequence"}[axis]
                if len(hit) < size:
                    said.append(f"in {what} {listed_places(hit)} of {size}")
                elif axis != "B":
                    said.append(f"in all {counted(size, what)}")
            elif len(hit) < size and size > 1:
                said.append(f"in channel {listed_places(hit)} of {size}")
        share = counted(int(wrong.sum()), "number")
        return f"{', '.join(said) or 'it differs'} ({share} of {wrong.size:,})"

    def unknown(self, name: str, want: np.ndarray) -> tuple[str, ...]:
        """What is known where no reading gives it."""
        step = layer_and_step(name)[1]
        missed = self.span(name)
        between = f"; between lie {', '.join(missed)}, which theirs does not have" if missed else ""
        found = [f"no known reading of {step}{between}"]
        found += self.facts(name, want)
        cfg = self.engine.cfg
        if step == "logits" and cfg.tied:
            found.append("a guess: the head is missing or as it was initialised; it is tied to embed.weight")
        return tuple(found)

    def span(self, name: str) -> list[str]:
        """What lies between theirs and a tensor, which has to be made."""
        tried = Steps(self.engine, self.before(name))
        with contextlib.suppress(*BROKEN):
            tried.make(name)
        return list(tried.here)

    def facts(self, name: str, want: np.ndarray) -> list[str]:
        """What theirs has to do with what it must be."""
        got = self.theirs[name]
        found = []
        keep = self.rows(name)
        if keep is not None:
            got, want = np.where(keep, got, 0), np.where(keep, want, 0)
        if not got.any():
            return ["all of it is 0"]
        if (unreal := ~np.isfinite(got)).any():
            return [f"{counted(int(unreal.sum()), 'number is', 'numbers are')} NaN or infinite"]
        ratios = (
            got[np.abs(want) > 1e-6 * np.abs(want).max()] / want[np.abs(want) > 1e-6 * np.abs(want).max()]
        )
        middle = float(np.median(ratios))
        if np.abs(ratios - middle).max() <= 0.02 * abs(middle):
            found.append(f"it is {middle:.6g} times what it must be")
        elif middle < 0 and np.corrcoef(got.ravel(), -want.ravel())[0, 1] > 0.999:
            found.append("it has the opposite sign")
        close = lambda x, y: bool(np.abs(x - y).max(initial=0) <= 0.02 * np.abs(y).max(initial=1e-30))
        for k, axis in enumerate(self.axes.get(name, [])):
            if axis in "TBHG" and got.shape[k] > 2:
                for by in (1, -1):
                    a = np.take(got, range(max(by, 0), got.shape[k] + min(by, 0)), k)
                    b = np.take(want, range(max(-by, 0), want.shape[k] + min(-by, 0)), k)
                    if close(a, b):
                        found.append(f"along axis {axis} it is moved by {by}")
                if close(np.flip(got, k), want):
                    found.append(f"axis {axis} is in the opposite order")
        if got.ndim > 1 and got.shape[-1] > 1:
            flat, right = got.reshape(-1, got.shape[-1]), want.reshape(-1, want.shape[-1])
            sizes = np.abs(right).max() or 1.0
            apart = np.abs(flat[:, :, None] - right[:, None, :]).max(0) if flat.shape[-1] <= 512 else None
            if apart is not None:
                order = apart.argmin(1)
                near = (apart.min(1) <= 0.01 * sizes).all() and len(set(order.tolist())) == len(order)
                if near and (order != np.arange(len(order))).any():
                    found.append(f"its channels are those of the reference in another order: {shown(order)}")
            zero = np.flatnonzero(~flat.any(0))
            if len(zero) and right[:, zero].any():
                found.append(f"channel {listed_places(zero)} is 0 throughout")
        return found or ["no simple relation to what it must be was found"]


def same_engine(a: Engine, b: Engine) -> bool:
    """Whether two engines differ in nothing but how they were found."""
    same = a.params is b.params and a.at is b.at and a.tokens is b.tokens
    return same and not a.ways and not b.ways and a.cfg == b.cfg


class Wide(Tensor):
    """Numbers that are wide already, judged by the dtype that they were kept in."""

    @property
    def wide(self) -> np.ndarray:
        return self.bits


def movement(name: str, engine: Engine, want: np.ndarray, given: Arrays, angles: bool) -> np.ndarray:
    """How far each number moves, per relative rounding, when all that is computed is rounded at random."""
    rng, square = generator(0, f"rounding of {name}"), np.zeros(want.shape)
    for _ in range(PASSES):
        noisy = Steps(engine, given, rounding(rng, MOVED_BY), angles)
        with np.errstate(all="ignore"):
            moved = np.broadcast_to(plain(noisy.make(name)), want.shape) - want
            square += np.where(np.isfinite(moved), moved / MOVED_BY, 0) ** 2
    own = np.sqrt(square / PASSES)
    usual = np.median(own, -1, keepdims=True) if own.ndim else own
    return 3 * np.where(own > 0, np.maximum(own, usual), 0)


def kept_in(tensor: Tensor) -> str:
    """The narrowest dtype that holds all numbers of a tensor: a file may be wider than its engine."""
    if tensor.dtype not in ("F64", "F32"):
        return tensor.dtype
    x = tensor.wide
    x = x[np.isfinite(x)]
    if np.count_nonzero(x) < 16:
        return tensor.dtype
    with np.errstate(all="ignore"):
        narrow = x.astype(np.float32)
        if not (narrow == x).all():
            return "F64"
        if not (narrow.view(np.uint32) & 0xFFFF).any():
            return "BF16"
        return "F16" if (narrow.astype(np.float16) == narrow).all() else "F32"


def listed_places(places: Any, most: int = 6) -> str:
    """Numbers of places: runs as 3 to 7, a few more, and how many there are."""
    runs: list[list[int]] = []
    for n in map(int, places):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    said = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    more = f" and {len(said) - most} more" if len(said) > most else ""
    return ", ".join(said[:most]) + more


def shown(order: np.ndarray) -> str:
    return ", ".join(map(str, order[:8])) + (", ..." if len(order) > 8 else "")
