"""Each tensor of a trace from those before it: theirs where they gave them, made here where they did not.

    embedded; of each layer those of trace.OF_LAYER; final, logits, loss

So an error counts once, where it is made, and does not grow with depth. It is the pass of the model, whose
notes go on with the tensors that are given. A weight that is not here, or of another shape, is NaN, and so is
all that is made of it: not known.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref import hooks
from peref.backends import Backend
from peref.config import Config
from peref.golden.compute.noise import bare, wrapped
from peref.layers import embed, head
from peref.member import Layer
from peref.model import PLAIN
from peref.ops.place import At
from peref.ops.shape import add
from peref.parameters import shapes_of
from peref.passes import Memory, Pass, start_pass
from peref.trace import OUTSIDE, Notes, next_tokens, one_layer
from peref.xp import Arrays

Way = Callable[["Steps", Any], Any]  # (steps, what the step gives) -> what it gives instead
Said = tuple[str, str, dict[str, Any]]  # what theirs does, what is right, what is changed (readings)
MADE_BY = {"o.weight": "output", **{f"{role}.weight": role for role in "qkv"}}  # what makes only this step
MADE_BY |= {f"cross.{role}": f"cross_{step}" for role, step in MADE_BY.items()}
MADE_BY |= {"router.weight": "router", **{f"{role}.weight": "ffn" for role in ("gate", "up", "down")}}
NOT_THERE = {"q_turned": "q", "k_turned": "k", "bias": "q", "normed": "input"}
NOT_THERE |= {"cross_normed": "residual", "ffn_normed": "cross_residual", "cross_residual": "residual"}
ATTENDED = ("bias", "scores", "probabilities", "heads")


@dataclass(frozen=True)
class Engine:
    """A model over tokens [B,T] at a place, behind an encoder with its `memory`, and what it does another
    way: steps, by their names, and what is made once a pass.
    """

    cfg: Config
    params: Arrays
    tokens: np.ndarray
    at: At
    ways: Mapping[str, Way] = field(default_factory=dict)
    once: Callable[[Pass], Pass] = lambda this: this
    memory: Memory | None = None

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the parameters."""
        return shapes_of(self.cfg)

    @cached_property
    def made(self) -> Pass:
        """Raises Misuse for what cannot be together."""
        B, T = self.tokens.shape
        self.cfg.place(B, T, self.at.i, self.at.seg)
        self.cfg.check_place(self.at, np.float64)
        params = {}
        for name, shape in self.shapes.items():
            known = name in self.params and self.params[name].shape == shape
            params[name] = self.params[name] if known else np.broadcast_to(np.nan, shape)
        return self.once(start_pass(PLAIN, self.cfg, params, self.at, memory=self.memory))


class Reached(Exception):
    """The last tensor that was asked for is there."""


class Steps(Notes):
    """The tensors that an engine makes, and goes on with those that are `given`. `moved` rounds all that is
    computed (golden/compute/noise.py), and `angles` the angles. With `wanted`, in the order of computation,
    nothing is made that these do not need: it may be anything.
    """

    def __init__(
        self,
        engine: Engine,
        given: Arrays,
        moved: Callable | None = None,
        angles: Callable | None = None,
        wanted: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.engine, self.given, self.moved, self.wanted = engine, given, moved, wanted
        self.this, self.n = engine.made, -1
        if memory := engine.memory:
            self.this = replace(self.this, memory=memory._replace(x=self.noisy(memory.x)))
        if angles:
            turned = lambda found: found and (wrapped(angles(found[0]), moved), *found[1:])
            tables = [one._replace(rotation=turned(one.rotation)) for one in self.this.tables]
            self.this = replace(self.this, tables=tables)

    @property
    def weights(self) -> Arrays:
        """Of the layer that is computed."""
        return self.this.weights[self.n]

    @property
    def kind(self) -> Layer:
        return self.this.cfg.layer(self.n)

    @property
    def scale(self) -> float:
        return hooks.softmax_scale(self.kind.pe, self.this.cfg.D)

    @property
    def rotation(self) -> Any:
        """Angles and gains."""
        return self.this.tables[self.n].rotation

    @property
    def see(self) -> Any:
        """Which key each query sees, bool, to be broadcast to [B,H,T,T]."""
        return self.this.places[self.n].see

    def __call__(self, step: str) -> Any:
        """What the layer that is computed goes on with; of a step that it has not, what that would be of."""
        name = step if step in OUTSIDE else f"layers.{self.n}.{step}"
        return self.noisy(self.given[name]) if name in self.given else taken(self.tensors, self.given, name)

    def noisy(self, x: Any) -> Any:
        return wrapped(self.moved(x), self.moved) if self.moved else x

    def note(self, name: str, x: Any) -> Any:
        if self.wanted and name in self.given and name not in self.wanted:
            return self.noisy(self.given[name])
        step = layer_and_step(name)[1]
        if step in self.engine.ways:
            x = self.engine.ways[step](self, x)
        self.tensors[name] = x
        if self.wanted and name == self.wanted[-1]:
            raise Reached
        return self.noisy(self.given[name]) if name in self.given else x

    def idle(self, *steps: str) -> bool:
        """Whether nobody asks what this layer makes of these steps: the last is given, and none is wanted."""
        names = [f"layers.{self.n}.{step}" for step in steps]
        return bool(self.wanted) and names[-1] in self.given and {*names}.isdisjoint(self.wanted)

    def of_layer(self, this: Pass, layer: int) -> Backend:
        """As of Notes; maps, attention and experts that nobody asks for give zeros."""
        be, zeros = super().of_layer(this, layer), lambda *shape: np.broadcast_to(0.0, shape)
        asked = {role: not self.idle(step) for role, step in MADE_BY.items() if role in self.weights}
        of_idle = {id(self.weights[role]) for role, on in asked.items() if not on}
        of_idle -= {id(self.weights[role]) for role, on in asked.items() if on}  # one may stand for another

        def linear(x: Any, w: Any, *more: Any) -> Any:
            return zeros(*x.shape[:-1], len(w)) if id(w) in of_idle else be.linear(x, w, *more)

        def attention(q: Any, *given: Any, **how: Any) -> Any:
            front = "cross_" if how["at"] is this.beside else ""
            idle = self.idle(*(f"{front}{step}" for step in ATTENDED))
            return zeros(*q.shape) if idle else be.attention(q, *given, **how)

        def activated_linear(up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
            if residual is not None and self.idle("ffn"):  # an encoding's own map has no residual
                return add(residual, be.note("ffn", zeros()))
            return be.activated_linear(up, gate, w, b, residual)

        def experts(x: Any, *given: Any, **how: Any) -> Any:
            return zeros(*x.shape) if self.idle("ffn") else be.experts(x, *given, **how)

        return replace(
            be, linear=linear, attention=attention, activated_linear=activated_linear, experts=experts
        )

    def run(self, layer: int) -> None:
        """Compute a layer, -1 or the number of layers for what stands before and behind them."""
        cfg, first = self.engine.cfg, first_layer(self.engine.cfg, self.given, layer)
        if first > 0:
            self.n, enters = first - 1, (f"layers.{first - 1}.leaving", f"layers.{first}.input")
            x = self.noisy(next(self.given[name] for name in enters if name in self.given))
        else:
            be = replace(PLAIN, take=lambda *given: self.noisy(PLAIN.take(*given)))
            x = self.note("embedded", embed(replace(self.this, be=be), self.engine.tokens))
        for n in range(max(first, 0), min(layer + 1, cfg.layers)):
            self.n = n
            x = one_layer(self.this, self, n, x)
        if layer == cfg.layers:
            self.note("logits", head(replace(self.this, be=replace(PLAIN, note=self.note)), x))
            self.note("loss", self.cross_entropies()[0])

    def logits(self, x: Any) -> Any:
        """The head on x [B,T,C], without the last norm."""
        return head(replace(self.this, be=replace(PLAIN, note=lambda name, _: x)), x)

    def cross_entropies(self, late: int = 1) -> tuple[Any, Any]:
        """The mean, and that of each token: of the next one, or so many later, of its document."""
        targets = next_tokens(self.engine.tokens, self.engine.at.seg, late)
        return PLAIN.cross_entropy(self("logits"), targets)[:2]


def follow(engine: Engine, given: Arrays, layer: int, **how: Any) -> Arrays:
    """What an engine makes in a layer (Steps.run) of the tensors `given`, each from those before it, by name;
    `how` as Steps has it. Raises Misuse for an engine that cannot be.
    """
    steps = Steps(engine, given, **how)
    with contextlib.suppress(Reached):
        steps.run(layer)
    return {name: np.asarray(bare(x)) for name, x in steps.tensors.items()}


def taken(made: Arrays, given: Arrays, name: str) -> Any:
    """What is made under a name; of a step that an engine has not, what it goes on with."""
    if name in made:
        return made[name]
    front, _, step = name.rpartition(".")
    other = f"{front}.{NOT_THERE[step]}"
    x = given[other] if other in given else taken(made, given, other)
    return np.zeros((*x.shape[:3], x.shape[2])) if step == "bias" else x


def first_layer(cfg: Config, given: Arrays, layer: int) -> int:
    """The layer from which on another has to be computed: what enters it is given."""
    if any(cfg.encoding(n).mix for n in range(min(layer + 1, cfg.layers))):  # they hand things on
        return min(layer, 0)
    enters = lambda n: f"layers.{n - 1}.leaving" in given or (n < layer and f"layers.{n}.input" in given)
    return next((n for n in range(layer, 0, -1) if enters(n)), min(layer, 0))


def group_of(cfg: Config, name: str) -> int:
    """Which layer computes a tensor, as Steps.run counts them."""
    layer = layer_and_step(name)[0]
    return layer if layer >= 0 or name == "embedded" else cfg.layers


def layer_and_step(name: str) -> tuple[int, str]:
    """The layer and the step of a tensor's name; layer -1 for what stands before and behind the layers."""
    first, _, rest = name.partition(".")
    if first != "layers":
        return -1, name
    layer, _, step = rest.partition(".")
    return int(layer) if layer.isdecimal() else -1, step
