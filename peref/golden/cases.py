"""Which cases there are, and why each exists.

Every encoding has a case of its own at every level that its hook has, and one for each other choice of an option, from the registry alone.
What needs a particular place, shape or setting is a recipe: for all encodings of a hook that claim what it needs, or for one by name in BY_NAME.

Not here: what a case computes (levels).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

import numpy as np

from peref.config import Config
from peref.encodings import get, names, options
from peref.ops.place import At

LEVELS = {  # hook -> the levels that its encodings have, the first is the one nearest to the formula
    "": ("attn",),
    "embed": ("table", "op"),
    "rotate": ("table", "op", "attn"),
    "bias": ("table", "op", "attn"),
    "score": ("op", "attn"),
    "attend": ("attn",),
    "mix": ("op",),
}
LONG = (0, 1, 2047, 2048, 4096, 131071, 1048575)
UNORDERED = (5, 0, 3, 3, 11, 2, 15)
SPREAD = (0, 2, 3, 3, 5, 11, 15)
REAL = (0.0, 0.5, 1.25, 3.0, 3.0, 14.5, 7.0)
PACKED = ((0, 0, 1, 1, 1, 2, 2), (1, 1, 1, 2, 2, 2, 0))
FACTS = ("B", "H", "G", "T", "D", "C", "L", "R", "n", "layout", "causal", "window")


@dataclass(frozen=True)
class Case:
    """One computation. Sizes differ from one another, so that swapped axes show; letters are those of the package."""

    encoding: str
    level: str
    slug: str
    why: str
    flags: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    positions: Any = None  # nested tuples, 0, 1, ... where None
    seg: Any = None
    B: int = 2
    H: int = 6
    G: int = 2
    T: int = 7
    D: int = 8
    C: int = 10
    L: int = 16
    R: int | None = None
    n: int | None = 16
    layout: str = "half"
    causal: bool = True
    window: int | None = None

    @property
    def hook(self) -> str:
        return get(self.encoding).hook

    @property
    def group(self) -> str:
        return f"{self.hook or 'none'}_{self.level}"

    @property
    def id(self) -> str:
        return f"{self.encoding}.{self.level}/{self.slug}"

    @cached_property
    def config(self) -> Config:
        """A model with one such layer among two."""
        sizes: dict[str, Any] = {"H": self.H, "D": self.D, "C": self.C, "L": self.L, "layers": 2}
        if self.hook != "mix":
            sizes |= {"G": self.G, "window": self.window}
        if self.hook == "rotate":
            sizes |= {"R": self.R, "layout": self.layout}
        return Config(pe=((self.encoding, dict(self.options)),), causal=self.causal, **sizes)

    @cached_property
    def at(self) -> At:
        """The place of its tokens."""
        i = None if self.positions is None else np.array(self.positions)
        seg = None if self.seg is None else np.array(self.seg)
        return At.of(self.T, positions=i, seg=seg, n=self.n, causal=self.causal, window=self.window)

    @property
    def depth(self) -> int:
        """How many products are summed on the way to one number, about."""
        if self.level == "table" or (self.level == "op" and self.hook in ("embed", "rotate", "bias")):
            return 0
        return self.C + self.D + self.T

    def words(self) -> dict[str, Any]:
        """As it stands in cases.json."""
        facts: dict[str, Any] = {letter: getattr(self, letter) for letter in FACTS}
        if self.hook == "rotate":
            facts["R"] = self.config.R
        return {
            "id": self.id,
            "encoding": self.encoding,
            "level": self.level,
            "why": self.why,
            "flags": sorted(self.flags),
            "options": {k: list(v) if isinstance(v, tuple) else v for k, v in self.config.pe[0][1].items()},
            "facts": facts,
            "depth": self.depth,
        }


def sized(name: str, level: str, slug: str, why: str, flags: tuple[str, ...] = (), **given: Any) -> Case:
    """A case with the sizes that suit the hook: a layer in place of attention has H heads of D and is small."""
    if get(name).hook == "mix":
        given = {"H": 3, "D": 4, "C": 5} | given
    return Case(name, level, slug, why, flags, **given)


def other_choices(default: Any, kind: Any) -> tuple[Any, ...]:
    """Values that an option may have beside its default: all of a choice, twice a number, half of a share, which ends at 1."""
    if isinstance(default, bool):
        return (not default,)
    if get_origin(kind) is Literal:
        return tuple(v for v in get_args(kind) if v != default)
    if type(default) in (int, float) and default:
        return (default / 2 if 0.5 < default < 1 else 2 * default,)
    return ()


def of_registry(name: str) -> Iterator[Case]:
    """The default of every level, and every choice of every option at the level nearest to the formula."""
    levels = LEVELS[get(name).hook]
    for level in levels:
        yield sized(name, level, "default", "Every option at its default: if this fails, the set-up is wrong.", ("basic",))
    few: dict[str, Any] = {"H": 3, "G": 1} if get(name).hook in ("score", "attend") else {}
    for option, (default, kind) in options(get(name)).items():
        for value in other_choices(default, kind):
            slug = f"{option}-{value}".lower().replace("_", "-")
            yield sized(
                name, levels[0], slug, f"The option {option} is {value}, by default it is {default}.", ("option",), **few, options={option: value}
            )


def of_rotation(name: str) -> Iterator[Case]:
    """Layouts, widths and places of what turns."""
    claims, e = get(name).claims, get(name)
    few: dict[str, Any] = {"B": 1, "H": 3, "G": 1}
    yield sized(name, "op", "interleaved", "Pairs are adjacent channels (2i, 2i+1).", ("rope.layout.half",), **few, layout="interleaved")
    why = "Only the first 4 of 8 channels turn: frequencies and pairs come from that width, the others pass untouched and ungained."
    partial_flags = ("rope.partial.exponent_head_dim", "rope.partial.pairing", "rope.partial.passthrough")
    yield sized(name, "op", "partial", why, partial_flags, **few, R=4)
    yield sized(name, "op", "partial-interleaved", why, (*partial_flags, "rope.layout.half"), **few, R=4, layout="interleaved")
    yield sized(
        name, "op", "unordered", "Positions repeat and go back: they are data and not a count.", ("position.counted",), **few, positions=UNORDERED
    )
    rows = (UNORDERED, UNORDERED[::-1])
    yield sized(name, "op", "rows", "Each sequence has positions of its own.", ("position.batch",), H=3, G=1, positions=rows)
    if "any_length" in claims and e.reach is None:
        why = "Positions far out: tables end, wrap round and lose digits there."
        flags = ("rope.phase.low_precision", "rope.table.clip", "rope.table.wrap")
        for level in ("table", "op"):
            yield sized(name, level, "long", why, flags, **few, positions=LONG)
    if "real_positions" in claims:
        yield sized(name, "table", "real", "Positions are real numbers.", ("position.rounded",), positions=REAL)
    if e.axes not in (1, None):
        line = [tuple((k * t) % (3 + k) for t in range(7)) for k in range(1, (e.axes or 1) + 1)]
        image = tuple((row, row[::-1]) for row in line)
        yield sized(name, "op", "axes", "A position is several numbers, one for each axis.", ("position.axes",), positions=image)


def of_bias(name: str) -> Iterator[Case]:
    """Numbers of heads, and distances up to where every table ends."""
    claims = get(name).claims
    for H in (12, 7):
        why = f"{H} heads: no power of two."
        yield sized(name, "table", f"heads-{H}", why, ("alibi.slopes.non_pow2",), H=H, G=1)
    far = {"T": 300, "L": 300, "H": 3, "G": 1}
    yield sized(name, "table", "far", "Every distance from 0 to 299.", ("bias.bucket.border", "bias.bucket.clamp"), **far)
    if "two_sided" in claims:
        why = "Distances -149 to 149: the future is not the past mirrored, unless the formula says so."
        yield sized(name, "table", "two-sided", why, ("bias.sign",), **far | {"T": 150}, causal=False)
        yield sized(name, "op", "two-sided", why, ("bias.sign", "bias.transposed"), causal=False)
    if "real_positions" in claims:
        yield sized(name, "table", "real", "Distances are real numbers.", ("position.rounded",), positions=REAL)
    why = "Positions repeat and leave gaps: distances are of positions, the mask is of slots."
    yield sized(name, "op", "spread", why, ("position.counted",), positions=SPREAD)


def of_attention(name: str, level: str) -> Iterator[Case]:
    """Masks and groups of heads."""
    e = get(name)
    why = "Two packed documents and padding: nothing crosses, positions restart, a row that sees nothing is 0."
    yield sized(name, level, "packed", why, ("mask.padding", "mask.documents"), seg=PACKED, **({} if e.hook == "mix" else {"H": 3, "G": 1}))
    if e.hook == "mix":
        return
    yield sized(name, level, "heads-alone", "Every query head has a key-value head of its own.", ("gqa.order",), B=1, T=5, H=3, G=3)
    if "window" in e.claims and e.hook != "attend":
        yield sized(name, level, "window-3", "A query sees 3 keys, itself included.", ("mask.window",), B=1, T=5, H=3, G=1, window=3)
    if "two_sided" in e.claims:
        yield sized(name, level, "two-sided", "Every query sees every key.", ("mask.causal",), B=1, T=5, H=3, G=1, causal=False)


BY_NAME: dict[str, list[tuple[str, str, str, tuple[str, ...], dict[str, Any]]]] = {  # name -> level, slug, why, flags, what is given
    "rope": [
        ("table", "wide", "64 channels, base 500000.", ("rope.base.ignored",), {"D": 64, "options": {"base": 500000.0}}),
        ("op", "base-500000", "The base is not 10000.", ("rope.base.ignored",), {"options": {"base": 500000.0}}),
    ],
    "pi": [
        (
            "op",
            "factor-3",
            "A factor that is no power of two: a rounding shows.",
            ("rope.pi.factor",),
            {"options": {"factor": 3.0}, "positions": LONG},
        )
    ],
    "ntk": [("table", "wide", "64 channels.", ("rope.ntk.exponent",), {"D": 64, "options": {"factor": 2.0}})],
    "dynamic_ntk": [
        (*("table", "longer", "Made for 50 tokens, trained for 16.", ("rope.ntk.static_as_dynamic",)), {"n": 50}),
        (*("table", "at-length", "Made for 16 tokens, trained for 16: nothing is scaled yet.", ("rope.ntk.static_as_dynamic",)), {"n": 16}),
        (*("table", "one-beyond", "Made for 17 tokens, trained for 16.", ("rope.ntk.static_as_dynamic",)), {"n": 17}),
    ],
    "yarn": [
        (
            "table",
            "llama-2",
            "Llama 2: width 128, length 4096, the ramp goes from pair 20 to 46.",
            ("rope.yarn.ramp",),
            {"D": 128, "T": 3, "L": 4096},
        ),
        ("table", "factor-1", "A factor of 1 scales nothing, magnitude included.", ("rope.yarn.mscale_twice",), {"options": {"factor": 1.0}}),
        (
            *(
                "attn",
                "magnitude",
                "The magnitude is on q and on k, so on logits it counts twice; no other channel has it.",
                ("rope.yarn.mscale_missing",),
            ),
            {"options": {"factor": 40.0}, "R": 4, "L": 64},
        ),
        (
            *("table", "mscale", "mscale over mscale_all_dim.", ("rope.yarn.mscale_override",)),
            {"options": {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0}},
        ),
    ],
    "longrope": [
        ("table", "one-beyond", "Made for 17 tokens, trained for 16: the factors for long text.", ("rope.longrope.switch",), {"n": 17}),
        ("table", "at-length", "Made for 16 tokens, trained for 16: the factors for short text.", ("rope.longrope.switch",), {"n": 16}),
    ],
    "llama3": [
        ("table", "borders", "Width 128, length 8192: both borders of the blend lie inside.", ("rope.llama3.blend",), {"D": 128, "T": 3, "L": 8192})
    ],
}


def of_name(name: str) -> Iterator[Case]:
    levels, e = LEVELS[get(name).hook], get(name)
    yield from of_registry(name)
    if e.hook == "rotate":
        yield from of_rotation(name)
    if e.hook == "bias":
        yield from of_bias(name)
    if e.hook == "embed":
        yield sized(name, "table", "unordered", "Positions repeat and go back.", ("position.counted",), positions=UNORDERED)
        yield sized(name, "table", "odd", "An odd width.", ("sin.order",), C=9)
        if "any_length" in e.claims:
            yield sized(name, "table", "long", "Positions far out.", ("rope.phase.low_precision", "rope.table.clip"), positions=LONG)
    if e.hook in ("", "bias", "rotate", "score", "attend", "mix"):
        yield from of_attention(name, levels[-1])
    for level, slug, why, flags, given in BY_NAME.get(name, []):
        yield sized(name, level, slug, why, flags, **given)


def catalogue() -> list[Case]:
    """Every case of the core. An id is there once."""
    found: dict[str, Case] = {}
    for name in names():
        for case in of_name(name):
            if case.id in found:
                raise ValueError(f"two cases are {case.id}")
            found[case.id] = case
    return list(found.values())


def yours(name: str, given: dict[str, Any], **facts: Any) -> list[Case]:
    """A case of every level for settings and sizes of the user's."""
    why = "Made for a shape and settings of your own."
    return [replace(Case(name, level, "yours", why), options=given, **facts) for level in LEVELS[get(name).hook]]
