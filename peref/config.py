"""Config: everything that decides what a model computes. A combination that cannot work is refused here,
in words.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np

from peref.encodings import HOOKS, Encoding, fitting, get
from peref.errors import Misuse, counted, did_you_mean
from peref.hooks import longest
from peref.member import FEEDING, Layer, Layout, bound, by_hooks, encodings_of, fills, settled, turning
from peref.ops.place import At, given_place

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"norm": "rms", "activation": "swiglu", "biases": False, "tied": True},
    "gpt2": {"norm": "layer", "activation": "gelu", "biases": True, "tied": False},
}

# fields that are called otherwise in words
CALLED = {"G": "key-value heads are", "R": "rotary width is", "eps": "the norms' eps is"}
POSITIVE = ("eps", "embed_factor", "residual_factor", "logit_factor", "logit_softcap", "activation_limit")
LARGEST_SIZE = 2**53  # a size beyond it would leave the 64 bits of places and products of sizes

ALONE = get("none")
Activation = Literal[
    "swiglu", "geglu", "swiglu_clamped", "gelu", "gelu_exact", "relu", "relu2", "channel_mix", "none"
]
QKV = Literal["q", "k", "v", "qk", "qv", "kv"]
InnerMaps = Literal["gate", "up", "down", "gate_up", "gate_down", "up_down"]
OF_EXPERTS = ("experts_chosen", "router", "router_normed", "router_bias", "router_scales", "shared_expert")
UNUSUAL = (  # no option of a command is for these
    *("norm_place", "norm_from_one", "residual", "activation_limit", "experts", *OF_EXPERTS, "head_bias"),
    *("qk_norm_over", "unit_heads", "embed_factor", "embed_norm", "residual_factor", "logit_factor"),
    "logit_softcap",
)
# what stands before the layers and behind them
AROUND = ("embed_factor", "embed_norm", "tied", "head_bias", "logit_factor", "logit_softcap")
Cycle = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True)
class Config:
    """The shape of a model; letters as in the legend of the package. Fields left None are filled in from the
    others. Those that are options of `train` are annotated with what its help says of them.

    pe          the cycle of encodings over the layers, (name, options) pairs; options may also be
                settings of these layers (member.py), for which R, layout, window, F and experts are the
                default
    G           key-value heads: H/2 for attention (H where H is odd); mixing layers have none
    D           head width: C/H
    F           feed-forward width: 8C/3 rounded up to a multiple of 32 where it is gated, else 4C
    R           rotary width, the first channels of a head that turn: D
    layout      which channels of q and k are a pair: "half" or "interleaved"
    activation  of the feed-forward: swiglu, geglu and swiglu_clamped are gated, gelu and geglu are the
                tanh form, gelu_exact is by erf, relu2 the square of relu; channel_mix is RWKV's feed-forward,
                which reads the token before as well (layers.channel_mix); none: there is no feed-forward
    norm_place  "before" a sublayer, "after" it, on what it adds to the stream, or "both"
    norm_from_one
                norms multiply by 1 + weight
    residual    "sequential": the feed-forward reads what attention has added to; "parallel": both read what
                enters the layer; "shared": and share its norm
    activation_limit
                where the gate and the other half of swiglu_clamped (gpt-oss's) end: 7
    experts     how many feed-forwards of width F a router chooses from (ops/experts.py); none: there is one.
                As F, of the layers whose member does not say otherwise
    experts_chosen
                how many of them a token goes through: 2
    router      what their weights are: the "softmax" over all of them, or the "sigmoid" of each
    router_normed
                these weights are divided by their sum over the chosen
    router_scales
                what is multiplied with a weight: an expert's "output", or its "input" (Llama 4)
    shared_expert
                one more, of width F, that every token goes through, in the layers that have some
    biases      on every linear map but the head and the router, and in LayerNorm
    qkv_bias, o_bias, ff_bias, norm_bias
                of some of them: as biases unless said; "qk" or "gate_up" are those of q and k, or of gate and
                up, alone. head_bias: on the head, router_bias: on the router
    qk_norm     RMSNorm over each head of q and k, before they turn; qk_norm_over="width": over all their
                heads at once
    unit_heads  where q and k turn, each head of them is divided by its root mean square first (Llama 4)
    embed_factor, residual_factor, logit_factor
                what the embedding, all that is added to the stream, and the logits are multiplied with
    embed_norm  a norm of what enters the first layer
    logit_softcap
                c tanh(logits / c) in place of the logits; none: not
    cross       after its own attention a layer attends to the output of an encoder, with a norm and maps of
                its own and without an encoding
    window      keys a query sees, itself included: i - window < j <= i, and two-sided |i - j| < window, which
                are 2 window - 1; None: all. Longformer's attention_window W, arXiv:2004.05150, is W/2 keys on
                each side beside the query: window = W/2 + 1 with causal=False. flash-attention's window_size
                (left, right) does not count the query: left = window - 1
    encoder     what reads another sequence both ways, for the layers to attend to: then this is its decoder,
                with the same C, V and embedding (encoder_decoder.py). The head of an encoder is not used
    """

    pe: Cycle = (("alibi", {}),)
    L: int = 512
    V: int = 256
    C: Annotated[int, "Width of the model (hidden size)."] = 128
    layers: Annotated[int, "Number of layers."] = 4
    H: Annotated[int, "Number of query heads."] = 4
    G: Annotated[int, "Number of key-value heads."] = None  # type: ignore[assignment]
    D: Annotated[int, "Width of each head."] = None  # type: ignore[assignment]
    F: Annotated[int, "Width of the feed-forward layers."] = None  # type: ignore[assignment]
    R: int = None  # type: ignore[assignment]
    layout: Layout = "half"
    norm: Annotated[Literal["rms", "layer"], "Normalization: rms or layer."] = "rms"
    norm_place: Literal["before", "after", "both"] = "before"
    norm_from_one: bool = False
    residual: Literal["sequential", "parallel", "shared"] = "sequential"
    activation: Annotated[Activation, "Activation: swiglu, gelu, relu; docs/cli.md has all."] = "swiglu"
    activation_limit: float = None  # type: ignore[assignment]
    experts: int | None = None
    experts_chosen: int = None  # type: ignore[assignment]
    router: Literal["softmax", "sigmoid"] = "softmax"
    router_normed: bool = True
    router_bias: bool = False
    router_scales: Literal["output", "input"] = "output"
    shared_expert: bool = False
    biases: Annotated[bool, "Biases in every linear layer except the head."] = False
    qkv_bias: Annotated[bool | QKV, "Biases in the projections to q, k and v."] = None  # type: ignore[assignment]
    o_bias: bool = None  # type: ignore[assignment]
    ff_bias: bool | InnerMaps = None  # type: ignore[assignment]
    norm_bias: bool = None  # type: ignore[assignment]
    head_bias: bool = False
    qk_norm: Annotated[bool, "RMSNorm over each head of q and k."] = False
    qk_norm_over: Literal["head", "width"] = "head"
    unit_heads: bool = False
    embed_factor: float = 1.0
    embed_norm: bool = False
    residual_factor: float = 1.0
    logit_factor: float = 1.0
    logit_softcap: float | None = None
    eps: Annotated[float, "Epsilon of the normalization."] = 1e-5
    tied: Annotated[bool, "Whether the head shares the weights of the token embedding."] = True
    causal: bool = True
    cross: bool = False
    window: Annotated[int | None, "Sliding window: the keys that a query sees, itself included."] = None
    encoder: "Config | None" = None

    def __post_init__(self) -> None:
        for name, kind in OF_FIELDS.items():
            if (given := getattr(self, name)) is not getattr(Config, name):
                self._fill(name, fitting(name, given, kind))
        for name in ("L", "V", "C", "layers", "H", "G", "D", "F", "window", "experts", "experts_chosen"):
            if (given := getattr(self, name)) is not None and not 1 <= given <= LARGEST_SIZE:
                wanted = "at least 1" if given < 1 else f"at most {LARGEST_SIZE}"
                raise Misuse(f"{name} is {given}; expected {wanted}")
        encoder = self.encoder
        if encoder is not None and (not isinstance(encoder, Config) or encoder.encoder is not None):
            raise Misuse(f"encoder is {encoder!r:.60}; expected a Config that has none itself")
        if not self.pe:
            raise Misuse("a model needs at least one encoding; 'none' adds nothing")
        said = [repr(pair) for pair in cycle_pairs(self.pe)]  # long cycles have few members that differ
        first = dict(zip(said, self.pe, strict=True))
        members = {text: (by_hooks(name), given) for text, (name, given) in first.items()}
        distinct = {text: (name, settled(name, dict(given))) for text, (name, given) in members.items()}
        self._fill("pe", tuple(distinct[text] for text in said))
        if idle := self.pe[self.layers :]:
            rest = ",".join(name for name, _ in idle)
            what = f"the cycle {self.named} is longer than the model (layers {self.layers})"
            raise Misuse(f"{what}, so no layer would take {rest}; leave it out")
        for name in POSITIVE:
            if (given := getattr(self, name)) is not None and not 0 < given < math.inf:
                raise Misuse(f"{CALLED.get(name, f'{name} is')} {given}; expected a number above 0")
        self._fill_block()
        later = {name for name, _ in self.pe[1:]}
        for n, layer in self._members:
            if layer.pe.embed and (name := self.pe[n][0]) in later:
                what = f"{name} is added once, before the first layer"
                raise Misuse(f"{what}; it can stand in the first member of a cycle, and in no other")
        if self.encoder is not None:
            self._check_encoder(self.encoder)

    def _fill(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _fill_block(self) -> None:
        """What a layer is made of, beside its encoding. Raises Misuse for what would play no part."""
        attends = self.cross or any(not fills(name, "mix") for name, _ in self.pe)
        rotates = any(turning(name) for name, _ in self.pe)
        feeds = self.activation != "none"
        counts = {given.get("experts", self.experts) for _, given in self.pe} - {None}
        if self.D is None and self.C % self.H:
            what = f"width {self.C} does not divide by {self.H} heads"
            raise Misuse(f"{what}; change one, or set the head width")
        self._fill("D", self.C // self.H if self.D is None else self.D)
        named, nothing, each = self.named, "this model has nothing for it", dict.fromkeys
        heads = {"G": self.H // (2 - self.H % 2), "qk_norm": False}
        rows = -(-8 * self.C // 3 // 32) * 32 if self.gated else 4 * self.C
        # which settings play a part where this is so, and what they are where nothing is said
        table: list[tuple[Any, str, dict[str, Any]]] = [
            (attends, f"{named} has no attention layer", heads | each(("qkv_bias", "o_bias"), self.biases)),
            (rotates, f"{named} turns nothing", {"R": self.D, "layout": "half", "unit_heads": False}),
            (feeds, nothing, {"F": rows, "ff_bias": self.biases, "residual": "sequential"}),
            (feeds and counts, nothing, {"experts": None}),
            (counts, nothing, each(OF_EXPERTS) | {"experts_chosen": min({2, *counts})}),
            (self.activation == "swiglu_clamped", nothing, {"activation_limit": 7.0}),
            (self.norm == "layer", nothing, {"norm_bias": self.biases}),
            (self.qk_norm, nothing, {"qk_norm_over": "head"}),
        ]
        for used, why, unsaid in table:
            for name, value in unsaid.items():
                given, default = getattr(self, name), getattr(Config, name)
                if used and given is None:
                    self._fill(name, value)
                elif not used and given != default and (given or default):
                    raise Misuse(f"{CALLED.get(name, f'{name} is')} {given}, but {why}; leave it unset")
        for name, options in () if feeds else self.pe:
            if said := options.keys() & FEEDING:
                raise Misuse(f"{name}: {min(said)} is {options[min(said)]}, but there is no feed-forward")
        if counts and self.activation == "channel_mix":
            raise Misuse(f"experts is {max(counts)}, but activation is channel_mix, of which there is one")
        if not self.gated and "gate" in str(self.ff_bias):
            raise Misuse(f"ff_bias is {self.ff_bias}, but {self.activation} has no gate")
        if self.residual == "shared" and self.norm_place == "after":
            what = "residual is shared, but norm_place is after"
            raise Misuse(f"{what}: there is no norm to share; use parallel")
        if self.cross and self.residual != "sequential":
            raise Misuse(f"cross is True, but residual is {self.residual}; use sequential")
        if counts and self.experts_chosen > min(counts):
            raise Misuse(f"experts_chosen is {self.experts_chosen}; expected at most experts, {min(counts)}")
        if attends and self.H % self.G:
            few, many = counted(self.G, "key-value head"), counted(self.H, "query head")
            raise Misuse(f"{many} cannot share {few}; expected a divisor of {self.H}")
        for R in set[Any]([self.R, *(given.get("rotary_dim") for _, given in self.pe)]) - {None}:
            check_rotary_width(R, self.D)

    def _check_encoder(self, encoder: "Config") -> None:
        if encoder.causal or encoder.cross:
            raise Misuse("an encoder reads both ways and itself alone; set causal=False and cross=False")
        if not (self.causal and self.cross):
            raise Misuse("a decoder reads the past and its encoder; set causal=True and cross=True")
        for name in "CV":
            theirs, ours = getattr(encoder, name), getattr(self, name)
            if theirs != ours:
                what = f"{name} is {theirs} in the encoder and {ours} in the decoder"
                raise Misuse(f"{what}; expected the same")

    @property
    def unusual(self) -> dict[str, Any]:
        """What is other than in most models, of the settings that no option of a command is for."""
        usual = {name: getattr(Config, name) for name in UNUSUAL}
        usual |= dict.fromkeys(("o_bias", "ff_bias", "norm_bias"), self.biases)
        given = {name: getattr(self, name) for name in usual}
        return {name: one for name, one in given.items() if one not in (usual[name], None)}

    @property
    def gated(self) -> bool:
        """Whether the feed-forward has a gate."""
        return self.activation in ("swiglu", "geglu", "swiglu_clamped")

    @property
    def encodings(self) -> list[str]:
        """The names of all encodings in it, each once."""
        return list(dict.fromkeys(one for name, _ in self.both_cycles for one in encodings_of(name)))

    @property
    def named(self) -> str:
        """The names of the cycle, after those of its encoder."""
        mine = ",".join(name for name, _ in self.pe)
        return f"{self.encoder.named} before {mine}" if self.encoder else mine

    @property
    def both_cycles(self) -> Cycle:
        """The members of its encoder's cycle, where it has one, and of its own."""
        return (*(self.encoder.pe if self.encoder else ()), *self.pe)

    @cached_property
    def decoder(self) -> "Config":
        """The same without its encoder."""
        return replace(self, encoder=None)

    def _layers(self) -> Iterator[Callable[[], Layer]]:
        """What gives each layer in turn, with its facts and options filled in."""
        facts = {name: getattr(self, name) for name in ("H", "G", "D", "R", "C", "L", "causal", "layers")}
        model = {name: getattr(self, name) for name in ("layout", "window", *FEEDING)}
        earlier: Counter[str] = Counter()
        for layer in range(self.layers):
            name, given = self.pe[layer % len(self.pe)]
            yield partial(bound, name, given, facts | {"layer": layer}, dict(earlier), model)
            earlier.update(encodings_of(name))

    @cached_property
    def _members(self) -> list[tuple[int, Layer]]:
        """Each distinct member of the cycle as bound for a layer that takes it, behind the layer's number."""
        each = zip(self.pe, enumerate(self._layers()), strict=False)
        distinct = {id(pair): layer for pair, layer in each}
        return [(n, layer()) for n, layer in distinct.values()]

    @cached_property
    def _bound(self) -> tuple[Layer, ...]:
        known = dict(self._members)
        return tuple(known.get(n) or layer() for n, layer in enumerate(self._layers()))

    def layer(self, layer: int) -> Layer:
        """One layer, with all its settings filled in."""
        return self._bound[layer]

    def encoding(self, layer: int) -> Encoding:
        """The encoding of one layer, with its facts and options filled in."""
        return self._bound[layer].pe

    def with_encodings(self, change: Callable[[Encoding], Encoding]) -> "Config":
        """The same with change(its encoding) in each layer."""
        found = replace(self)
        vars(found)["_bound"] = tuple(replace(layer, pe=change(layer.pe)) for layer in self._bound)
        return found

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each layer the first whose settings are the same, functions of its encoding with all that was
        filled in; their parameters may still differ.
        """
        of = lambda pe: [getattr(pe, name) for name in (*HOOKS, "features", "scale")]
        settings = [repr((replace(layer, pe=ALONE), of(layer.pe))) for layer in self._bound]
        return tuple(map(settings.index, settings))

    @property
    def axes(self) -> int | None:
        """How many numbers a position may be, besides one; None: any, no encoding looks at them."""
        found = {layer.pe.axes for _, layer in self._members} - {None}
        return (found.pop() if len(found) == 1 else 1) if found else None

    @property
    def text(self) -> bool:
        """Whether one number for a token, where positions have several axes, is that number on every axis."""
        return all("text" in layer.pe.claims for _, layer in self._members if layer.pe.axes)

    def place(self, B: int, T: int, positions: Any = None, seg: Any = None, n: int | None = None) -> At:
        """The place of B whole sequences of T tokens; n: what frequencies are made for, T unless said."""
        positions, seg = given_place(B, T, positions, seg, self.axes, self.named)
        return At.of(T, positions=positions, seg=seg, n=n, causal=self.causal, window=self.window)

    def check_place(self, at: At, dtype: Any) -> None:
        """Raises Misuse for a place, in NumPy, that an encoding cannot compute in `dtype` or has nothing
        for.
        """
        for _, layer in self._members:
            layer.check_place(at, dtype)

    def ends(self, dtype: Any) -> tuple[float, str]:
        """The longest sequence, from position 0, that can be computed in `dtype`, and the name of the
        encoding that ends there.
        """
        found = [(longest(layer.pe, self.L, dtype), self.pe[n][0]) for n, layer in self._members]
        first = min(found + ([self.encoder.ends(dtype)] if self.encoder else []))
        return first if first[0] < math.inf else (math.inf, "")

    def to_json(self) -> dict[str, Any]:
        """As plain data, every field resolved; `from_json` reads it back."""
        plain = lambda value: list(value) if isinstance(value, tuple) else value
        pe = [[name, {option: plain(value) for option, value in given.items()}] for name, given in self.pe]
        found = {field.name: getattr(self, field.name) for field in fields(self)} | {"pe": pe}
        encoder = found.pop("encoder")
        return found | ({"encoder": encoder.to_json()} if encoder else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any], what: str = "a model") -> "Config":
        """Raises Misuse for unknown fields and for values that do not fit, in words about `what`."""
        known = {f.name for f in fields(cls)}
        if not isinstance(data, Mapping):
            raise Misuse(f"{what} is {data!r:.40}; expected its fields by name")
        if unknown := set(data) - known:
            fields_of = f"unknown fields of {what}: {', '.join(sorted(unknown))}"
            raise Misuse(f"{fields_of}; was this written by a newer peref?")
        if "pe" not in data:
            raise Misuse(f"{what} without pe, its cycle of encodings; was this written by peref?")
        if "encoder" in data:
            encoder = data["encoder"]
            if isinstance(encoder, Mapping) and "encoder" in encoder:
                raise Misuse("a model whose encoder has an encoder; was this written by peref?")
            data = {**data, "encoder": cls.from_json(encoder, "the encoder of a model")}
        return cls(**data)


OF_FIELDS = get_type_hints(Config)  # it takes longer than to look at a value
del OF_FIELDS["pe"], OF_FIELDS["encoder"]


def check_rotary_width(R: int, D: int) -> None:
    """Raises Misuse unless the first R of D channels can turn in pairs."""
    if not isinstance(R, int | np.integer) or R % 2 or not 0 < R <= D:
        wanted = f"an even number from 2 to the head width {D}, channels turn in pairs"
        raise Misuse(f"rotary width is {R!r}; expected {wanted}")


def cycle_pairs(pe: Any) -> Cycle:
    """`pe` itself where it is a cycle of (name, options) pairs, or Misuse."""
    for pair in pe if isinstance(pe, (tuple, list)) else (pe,):
        match pair:
            case [str(), Mapping() as options] if all(isinstance(option, str) for option in options):
                continue
        example = "(('alibi', {'max_bias': 8.0}), ('none', {}))"
        raise Misuse(f"pe is {pe!r}; expected pairs of a name and its options, such as {example}")
    return pe


def shaped(shape: str, **given: Any) -> Config:
    """A Config of one of the named shapes ("llama", "gpt2"); fields given outrank the shape's. Raises
    Misuse for an unknown shape or field.
    """
    if shape not in SHAPES:
        meant = did_you_mean(shape, SHAPES, f"expected one of: {', '.join(SHAPES)}")
        raise Misuse(f"unknown shape '{shape}'{meant}")
    known = {"pe", "encoder", *OF_FIELDS}
    if unknown := set(given) - known:
        raise Misuse(f"a model has no field {sorted(unknown)[0]}; its fields are: {', '.join(sorted(known))}")
    return Config(**{**SHAPES[shape], **given})
