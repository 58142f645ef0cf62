"""Each tensor of a trace from those before it: theirs where they gave them, made here where they did not.

    embedded, of each layer N: input, normed, q k v, q_turned k_turned, bias, scores, probabilities, heads,
    output, residual, ffn_normed, ffn, leaving; then final, logits, loss

So an error counts once, where it is made, and does not grow with depth. The functions are those of a pass
(layers.py, hooks.py), one step at a time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from peref import hooks
from peref.config import Config
from peref.golden.compute.noise import bare, wrapped
from peref.layers import (
    channel_mix,
    dense,
    embed,
    head,
    last_norm,
    leaving,
    linear,
    mixer,
    norm,
    of_experts,
    projected,
    settings_of_heads,
)
from peref.model import PLAIN
from peref.ops.attention import plus_terms, probabilities, scores, sunk, weigh
from peref.ops.place import At
from peref.ops.shape import add, merge_heads
from peref.ops.shift import previous
from peref.ops.temperature import tempered
from peref.passes import Pass, start_pass
from peref.trace import OF_LAYER
from peref.xp import Arrays

Way = Callable[..., Any]  # (steps, layer) -> what a step gives


@dataclass(frozen=True)
class Engine:
    """A model over tokens [B,T] at a place, and steps that it takes another way: name -> way."""

    cfg: Config
    params: Arrays
    tokens: np.ndarray | None  # None: of one layer alone
    at: At
    ways: Mapping[str, Way] = field(default_factory=dict)

    @cached_property
    def made(self) -> Pass:
        return start_pass(PLAIN, self.cfg, self.params, self.at)

    def but(self, **ways: Way) -> "Engine":
        """With these steps taken another way."""
        found = replace(self, ways={**self.ways, **ways})
        vars(found)["made"] = self.made  # the pass is the same
        return found


@dataclass
class Steps:
    """What an engine makes of the tensors `given`, each from those before it. `moved` rounds all that is
    computed (golden/compute/noise.py), and angles where `angles` says so.
    """

    engine: Engine
    given: Mapping[str, Any]
    moved: Callable | None = None
    angles: bool = False

    def __post_init__(self) -> None:
        self.here: Arrays = {}
        self.this = self.engine.made

    def __call__(self, name: str) -> Any:
        """A tensor: the given one, or what is made of those before it."""
        if name in self.given:
            x = self.given[name]
            return x if self.moved is None else wrapped(self.moved(x), self.moved)
        if name not in self.here:
            self.here[name] = self.make(name)
        return self.here[name]

    def make(self, name: str) -> Any:
        """A tensor made of those before it, whether it is given or not. Raises KeyError for a name that no
        step has, and where a parameter is missing.
        """
        layer, step = layer_and_step(name)
        if step not in ALL_STEPS:
            raise KeyError(name)
        return self.step(step, layer)

    def step(self, step: str, layer: int) -> Any:
        several = next((many for many, names in SEVERAL.items() if step in names), step)
        found = self.engine.ways.get(several, getattr(type(self), several))(self, layer)
        return found[SEVERAL[several].index(step)] if several in SEVERAL else found

    def of(self, layer: int, step: str) -> Any:
        return self(f"layers.{layer}.{step}")

    # ------------------------------------------------------------ the stream

    def embedded(self, _: int) -> Any:
        tokens = self.engine.tokens
        if tokens is None:
            raise KeyError("tokens")
        if self.moved is None:
            return embed(self.this, tokens)
        rows = wrapped(self.moved(self.this.params["embed.weight"][tokens.ravel()]), self.moved)
        this = replace(self.this, params={**self.this.params, "embed.weight": rows})
        return embed(this, np.arange(tokens.size).reshape(tokens.shape))

    def input(self, n: int) -> Any:
        return self.of(n - 1, "leaving") if n else self("embedded")

    def normed(self, n: int) -> Any:
        return self.entering(n, "norm1", "input")

    def entering(self, n: int, name: str, source: str) -> Any:
        """What a sublayer reads of another tensor of the layer."""
        x = self.of(n, source)
        return x if self.this.cfg.norm_place == "after" else norm(self.this, self.this.weights[n], name, x)

    def output(self, n: int) -> Any:
        if self.this.cfg.encoding(n).mix:
            return self.mixed(n)
        return linear(self.this, self.this.weights[n], "o", merge_heads(self.of(n, "heads")))

    def mixed(self, n: int) -> Any:
        """What a layer mixes, behind those that hand something on to it."""
        found, this = None, replace(self.this, across={})
        for layer in range(n + 1):
            if this.cfg.encoding(layer).mix:
                found = mixer(this, layer, self.of(layer, "normed"), None)[0]
        return found

    def residual(self, n: int) -> Any:
        y = leaving(self.this, self.this.weights[n], "after1", self.of(n, "output"))
        return add(self.of(n, "input"), y)

    def ffn_normed(self, n: int) -> Any:
        cfg = self.this.cfg
        if cfg.residual == "shared":
            return self.of(n, "normed")
        return self.entering(n, "norm2", "input" if cfg.residual == "parallel" else "residual")

    def ffn(self, n: int) -> Any:
        this, h = self.this, self.of(n, "ffn_normed")
        if this.cfg.activation == "channel_mix":
            return channel_mix(this, this.weights[n], h, previous(h, None, this.there.runs)[0])
        return (of_experts if this.cfg.layer(n).experts else dense)(this, this.weights[n], h)

    def leaving(self, n: int) -> Any:
        if self.this.cfg.activation == "none":
            return self.of(n, "residual")
        y = leaving(self.this, self.this.weights[n], "after2", self.of(n, "ffn"))
        return add(self.of(n, "residual"), y)

    def final(self, _: int) -> Any:
        return last_norm(self.this, self.of(self.this.cfg.layers - 1, "leaving"))

    def logits(self, _: int) -> Any:
        x = self("final")
        return head(replace(self.this, be=replace(PLAIN, note=lambda name, _: x)), x)

    def loss(self, _: int) -> Any:
        return self.this.be.cross_entropy(self("logits"), self.targets(0))[0]

    def targets(self, _: int) -> Any:
        """The next token of each, -1 where there is none: at the end of a document, and at padding."""
        tokens, seg = self.engine.tokens, self.engine.at.seg
        if tokens is None:
            raise KeyError("tokens")
        found = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), -1)], 1)
        if seg is None:
            return found
        return np.where((seg == np.roll(seg, -1, 1)) & (seg != 0), found, -1)

    # ------------------------------------------------------------ attention

    def projections(self, n: int) -> Any:
        """q, k, v."""
        return projected(self.this, n, self.of(n, "normed"))

    def learned(self, n: int) -> Any:
        """What the layer's heads are told. Raises KeyError where a parameter of theirs is missing."""
        found = settings_of_heads(self.this, n) | {"factor": self.step("factor", n)}
        layer = self.this.cfg.layer(n)
        wanted = {"sinks": layer.sinks, "cosine": layer.cosine, "temperature": layer.temperature == "ssmax"}
        for name in wanted:
            if wanted[name] and found.get(name) is None:
                raise KeyError(name)
        return found

    def factor(self, n: int) -> Any:
        """What queries are multiplied with, [T] or [B,T]; None where that is 1."""
        return self.this.tables[n].factor

    def rotation(self, n: int) -> Any:
        """Angles and gains, None where nothing turns."""
        found = self.this.tables[n].rotation
        if found is None or not self.angles:
            return found
        assert self.moved
        return (wrapped(self.moved(found[0]), self.moved), *found[1:])

    def turns(self, n: int) -> Any:
        """q and k as they meet: what makes them longer, then the rotation."""
        how = self.learned(n)
        q, k = hooks.cosines(self.this.be, self.of(n, "q"), self.of(n, "k"), how.get("cosine"))
        if how["factor"] is not None:
            q = tempered(q, how.get("temperature"), factor=how["factor"])
        return hooks.turn_heads(self.this.be, q, k, self.step("rotation", n), layout=how["layout"])

    def terms(self, n: int) -> Any:
        """What is added to the scaled logits: table, term, row, column."""
        this, pe, p = self.this, self.this.cfg.encoding(n), self.this.inside[n]
        q, k, table = self.of(n, "q_turned"), self.of(n, "k_turned"), this.tables[n].distances
        f = hooks.features(this.be, pe, p, self.of(n, "normed"), this.places[n])[0] if pe.features else {}
        return table, *hooks.score_terms(this.be, pe, p, q, k, f, this.places[n], table)

    def bias(self, n: int) -> Any:
        q = self.of(n, "q")
        zeros = np.zeros((*q.shape[:3], q.shape[2]))
        return plus_terms(wrapped(zeros, self.moved), *self.terms(n), at=self.this.places[n])

    def reads(self, n: int, x: Any) -> Any:
        """Keys or values [B,G,T,D], as the query heads read them."""
        return self.engine.ways["shared"](x) if "shared" in self.engine.ways else x

    def scale(self, n: int) -> float:
        return hooks.softmax_scale(self.this.cfg.encoding(n), self.this.cfg.D)

    def scores(self, n: int) -> Any:
        q, k = self.of(n, "q_turned"), self.reads(n, self.of(n, "k_turned"))
        cap, pe = self.this.cfg.layer(n).softcap, self.this.cfg.encoding(n)
        s = scores(q, k, None, None, None, None, at=None, scale=self.step("scale", n), softcap=cap)
        return s + self.of(n, "bias") if pe.bias or pe.score else s

    def see(self, n: int) -> Any:
        """Which key each query sees, bool, to be broadcast to [B,H,T,T]."""
        return self.this.places[n].see

    def probabilities(self, n: int) -> Any:
        s, sinks = self.of(n, "scores"), self.learned(n).get("sinks")
        at: Any = SimpleNamespace(see=self.step("see", n))
        return probabilities(s, at=at) if sinks is None else sunk(s, sinks, at=at)

    def heads(self, n: int) -> Any:
        this, pe = self.this, self.this.cfg.encoding(n)
        v = self.reads(n, self.of(n, "v"))
        if not pe.attend:
            return weigh(self.of(n, "probabilities"), v)
        q, k, x = (self.of(n, name) for name in ("q_turned", "k_turned", "normed"))
        p, at, beside = hooks.widened(this.be, this.inside[n]), this.places[n], []
        f = hooks.features(this.be, pe, p, x, at)[0]
        if pe.bias or pe.score:
            beside = [self.terms(n)]
        return hooks.attend_instead(this.be, pe, p, q, k, v, f, at, *beside)


SEVERAL = {"projections": ("q", "k", "v"), "turns": ("q_turned", "k_turned")}
ALL_STEPS = ("embedded", *OF_LAYER, "final", "logits", "loss")


def layer_and_step(name: str) -> tuple[int, str]:
    """The layer and the step of a tensor's name; layer -1 for what stands before and behind the layers."""
    first, _, rest = name.partition(".")
    if first != "layers":
        return -1, name
    layer, _, step = rest.partition(".")
    return int(layer) if layer.isdecimal() else -1, step


def plain(x: Any) -> np.ndarray:
    return np.asarray(bare(x))
