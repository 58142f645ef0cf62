"""Each tensor of somebody's trace against what theirs before it make (steps), by the tolerance rule.

a and b of the rule (golden/spec/rule.py) are measured there, by rounding all that is computed at random.
Where the weights are not here, the reference's own numbers stand in, and more is allowed the deeper a tensor
lies.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref.config import Config
from peref.golden.compute.noise import NoisyTape, bare, rounding
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import CLASSES, ROUNDOFF, Verdict, verdict_on
from peref.passes import Memory
from peref.rng import generator
from peref.trace import OF_LAYER, trace
from peref.trace_diff.evidence import kept_in
from peref.trace_diff.steps import Engine, follow, group_of, layer_and_step, taken
from peref.xp import Arrays

PASSES, MOVED_BY = 4, 2.0**-30
OF_PARAMETER = "gradient.parameter."
HIDDEN = -1e8  # a logit below it is a mask's
BEYOND_ROUNDING = 0.1  # of the largest number: beyond it nothing is rounding


@dataclass
class Traces:
    """Both traces, and the model of the first; of an encoder and a decoder one of them, `front` before the
    names of its tensors, the `memory` that the second attends to, and the `whole` of both, whose gradients it
    has.
    """

    ours: dict[str, Tensor]
    came: dict[str, Tensor]
    words: dict[str, Any]
    limit: str
    params: Arrays
    notes: tuple[str, ...] = ()
    front: str = ""
    memory: Memory | None = None
    whole: "Traces | None" = None

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

    # ------------------------------------------------------------ theirs

    @cached_property
    def theirs(self) -> Arrays:
        """Their tensors, wide, padding replaced by the reference's; those of another shape are left out."""
        found = {}
        for name in self.order:
            if name in self.came:
                x, want = self.came[name].wide, self.ours[name].wide
                if np.squeeze(x).shape == np.squeeze(want).shape:
                    found[name] = np.where(self.rows(name), x.reshape(want.shape), want)
        return found

    def rows(self, name: str) -> np.ndarray:
        """Which numbers of a tensor are not padding, of its shape."""
        shape, seg = self.ours[name].bits.shape, self.engine.at.seg
        keep = np.ones(shape, bool)
        if seg is None or name.startswith(OF_PARAMETER):
            return keep
        for k in (k for k, axis in enumerate(self.axes[name]) if axis == "T"):
            keep &= (seg != 0).reshape([n if one in (0, k) else 1 for one, n in enumerate(shape)])
        return keep

    def seen(self, name: str, engine: Engine) -> np.ndarray:
        """Which numbers of a tensor say something: no padding, and of logits none that nothing sees."""
        keep, (layer, step) = self.rows(name), layer_and_step(name)
        return keep & engine.made.places[layer].see if step in ("scores", "bias") else keep

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

    def made(self, engine: Engine, names: list[str], given: Arrays | None = None) -> Arrays:
        """What an engine makes of theirs, or of those that are given, under names of one layer; what is not
        known is left out.
        """
        given = self.theirs if given is None else given
        found = follow(engine, given, self.group(names[0]), wanted=names)
        made = {name: taken(found, given, name) for name in names}
        made = {name: np.broadcast_to(x, self.theirs[name].shape) for name, x in made.items()}
        nan = {name: np.isnan(x) for name, x in made.items()}
        known = lambda name: not (nan[name].all() or (nan[name] & np.isfinite(self.theirs[name])).any())
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
        a, b = self.bounds(engine, close, made)
        return found | {name: self.rule(name, made[name], a[name], b[name], engine) for name in close}

    def bounds(self, engine: Engine, names: list[str], made: Arrays) -> tuple[Arrays, Arrays]:
        """a and b of the rule, of tensors of one layer."""
        a = self.movement(engine, names, made)
        unknown = follow(engine, self.theirs, self.group(names[0]), angles=lambda x: x * np.nan, wanted=names)
        if not (turned := [name for name in names if np.isnan(taken(unknown, self.theirs, name)).any()]):
            return a, a
        b = self.movement(engine, turned, made, angles=True)
        return a, a | {name: np.maximum(a[name], x) for name, x in b.items()}

    def doubtful(self, name: str, verdict: Verdict) -> bool:
        """Whether a float32 or wider tensor is further off than an honest engine's mostly is."""
        return ROUNDOFF[self.dtype(name)] <= ROUNDOFF["F32"] and verdict.worst > dict(CLASSES)["A"]

    def close(self, name: str, made: np.ndarray) -> bool:
        got = self.theirs[name]
        both = np.isfinite(made) & np.isfinite(got) & self.seen(name, self.engine)
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
        of, words = self.whole or self, (self.whole or self).words
        cfg, tokens = Config.from_json(words["config"]), np.asarray(words["tokens"])
        noise = at_random("gradients")
        place = (words.get(key) for key in ("positions", "seg", "n"))
        how: dict[str, Any] = {"gradients": True, "at": cfg.place(*tokens.shape, *place)}
        how["source"] = np.asarray(words["encoder_tokens"]) if "encoder_tokens" in words else None
        once = lambda: trace(cfg, of.params, tokens, tape=NoisyTape(noise), **how)
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
        keep = self.seen(name, engine)
        if step == "scores":
            see, hidden = engine.made.places[layer].see, got < HIDDEN
            if (hidden & ~see).any():  # dumped behind the mask
                keep, want = self.rows(name) & (see | ~hidden), np.where(see, want, -np.inf)
        got, want, a, b = (np.where(keep, x, 0.0) for x in (got, want, a, b))
        S = self.memory.x.shape[1] if self.memory and step.startswith("cross_") else self.engine.at.T
        sums = {"scores": cfg.D, "probabilities": S, "heads": S}  # on the way
        sums |= {"output": cfg.H * cfg.D, "ffn": cfg.F or 1, "q_turned": 1, "k_turned": 1, "residual": 1}
        many = sums.get(step.removeprefix("cross_"), cfg.C) or 1
        return verdict_on(Tensor(self.dtype(name), got), want, a, b, float(many))

    def consistent(self, name: str) -> bool:
        """Whether the weights make of the reference's tensors the reference's."""
        mine = replace(self, came=self.ours, limit="C")
        verdict = mine.judged(mine.engine, [name]).get(name) if self.group(name) > -2 else None
        return verdict is None or verdict.worst <= mine.most


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
