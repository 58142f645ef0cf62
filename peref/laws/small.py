"""What is held against the laws: an encoding with choices of its options, in small models of odd sizes.

Parameters are moved away from where they start, so that none hides, and nobody may write to them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from peref import model
from peref.compare import Differs, same
from peref.config import Config
from peref.encodings import Encoding, get, options
from peref.laws.gradient import frozen, gradient
from peref.settings import other_choices

EXACT = 1e-10
LENGTH = 16  # that frequencies are made for
LONG = 37  # tokens: longer than the distance at which shaw clips
VOCABULARY = 11
SIZES: dict[str, Any] = {"H": 6, "C": 30, "D": 4, "F": 14, "V": VOCABULARY, "L": LENGTH, "layers": 2}
REAL = np.array([0.0, 0.5, -1.25, 3.0, 3.0, 14.5, 7.0])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])  # padding; three documents
UNEVEN = np.array([np.arange(9), [4, 5, 7, 8, 9, 11, 12, 13, 15]])  # rows that have other distances too
POSITIONS = [np.arange(7), np.array([5, 0, 3, 3, 11, 2, 15])]

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """An encoding that is held against the laws."""

    name: str
    choices: tuple[Given, ...] = ({},)  # of its options; the first counts where a law is asked of one
    loop: Callable[..., Callable | None] | None = None  # (hook, **known) -> its scalar loop, if it has one
    sizes: Given = field(default_factory=dict)  # where SIZES do not fit

    @property
    def encoding(self) -> Encoding:
        return get(self.name)

    def config(self, given: Given | None = None, **sizes: Any) -> Config:
        """A small model; `given` are options, those of the first choice unless said."""
        pe = ((self.name, dict(self.choices[0] if given is None else given)),)
        return Config(**{"pe": pe, **SIZES, **self.sizes, **sizes})

    def fitting(self, given: Given, **sizes: Any) -> Config:
        """The same, `sizes` where none of its own are said."""
        return self.config(given, **{**sizes, **self.sizes})

    def model(self, given: Given | None = None, **sizes: Any) -> "Small":
        """Such a model with its parameters."""
        return Small(self.config(given, **sizes))

    def claims(self, given: Given | None = None) -> frozenset[str]:
        """The laws that it claims with these options."""
        return self.config(given).encoding(0).claims

    @property
    def axes(self) -> int:
        """How many numbers a position may be, 0 where none is looked at."""
        return self.encoding.axes or 0

    @property
    def learns(self) -> bool:
        """Whether it has parameters."""
        return bool(own_weights(self.config()))

    def each(self, check: "Callable[[Subject, Given], Any]", skip: int = 0) -> list[str]:
        """What check(self, given) returns of words with each choice of the options, but so many first ones; a
        difference says with which.
        """
        said: list[str] = []
        for given in self.choices[skip:]:
            try:
                said += check(self, given) or []
            except Differs as error:
                if not given:
                    raise
                words = " ".join(f"{option}={value}" for option, value in given.items())
                raise Differs(f"with {words}", error.reason, str(error)) from error
        return said

    def ways(self, given: Given) -> tuple[bool, ...]:
        """causal: true and, where that is claimed, false."""
        return (True, False) if "two_sided" in self.claims(given) else (True,)

    def of_loop(self, cfg: Config, hook: str, **more: Any) -> Callable | None:
        """The loop of a hook, with the facts of the model and the options that it asks for."""
        facts = {letter: getattr(cfg, letter) for letter in ("H", "G", "D", "R", "C", "L", "causal")}
        facts |= {"pairs": cfg.layer(0).layout}
        return self.loop(hook, **{**facts, **cfg.pe[0][1], **more}) if self.loop else None

    def real(self, *integers: Any) -> list[Any]:
        """These positions, and real ones where they are claimed."""
        return [*integers, REAL][: len(integers) + ("real_positions" in self.claims())]

    def far(self, count: int) -> list[Any]:
        """Positions of `count` tokens in order, out of order, and real ones where they are claimed."""
        mixed = np.random.default_rng(0).integers(0, 60, count)
        return [np.arange(count), mixed, *([mixed / 4 - 5] if "real_positions" in self.claims() else [])]


def each_alone(name: str) -> list[tuple[str, Any]]:
    """(option, value) for each value beside the default of each option."""
    each = {option: other_choices(*known) for option, known in options(get(name)).items()}
    return [(option, value) for option, values in each.items() for value in values]


def last_words(name: str) -> dict[str, Any]:
    """All options that are words, each at its last."""
    known = {n: one for n, one in options(get(name)).items() if isinstance(one[0], (str, bool))}
    return {n: other_choices(default, kind)[-1] for n, (default, kind) in known.items()}


def broken(words: str) -> Differs:
    """What a checker raises that has no two arrays to compare."""
    return Differs("", "value", words)


def weights(cfg: Config, seed: int = 0) -> dict[str, Any]:
    """Parameters with every table, bias and scale away from where it starts: read-only."""
    rng = np.random.default_rng(seed)
    p = model.init(cfg, seed, np.float64)
    return frozen({name: a + 0.3 * rng.standard_normal(a.shape) for name, a in p.items()})


def own_weights(cfg: Config) -> Any:
    """Those of the encoding in the first layer."""
    return model.of_encoding(cfg, weights(cfg), 0)


def tokens(B: int, T: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, B, T]).integers(0, VOCABULARY, (B, T))


def others(x: Any) -> Any:
    """Tokens of which none is the same."""
    return (x + 3) % VOCABULARY


@dataclass(frozen=True)
class Small:
    """A small model and its parameters."""

    cfg: Config
    given: Any = None  # its parameters, drawn where there are none

    @cached_property
    def p(self) -> Any:
        return weights(self.cfg) if self.given is None else self.given

    def logits(self, x: Any, **place: Any) -> Any:
        return model.logits(self.cfg, self.p, x, n=LENGTH, **place)

    def chunked(self, x: Any, cuts: tuple[int, ...], positions: Any = None, seg: Any = None) -> Any:
        """The logits of x, decoded in pieces that end at `cuts`."""
        memory, rows = None, []
        for cut in map(slice, (0, *cuts), (*cuts, x.shape[1])):
            i, there = (None if a is None else a[..., cut] for a in (positions, seg))
            y, memory = self.decode(x[:, cut], memory, positions=i, seg=there)
            rows.append(y)
        return np.concatenate(rows, 1)

    def decode(self, x: Any, memory: Any = None, **place: Any) -> tuple[Any, Any]:
        """Logits and cache; a new cache, whose frequencies are made for LENGTH, where none is given."""
        memory = model.cache(self.cfg, LENGTH) if memory is None else memory
        return model.decode(self.cfg, self.p, x, memory, **place)

    def gradients(self, x: Any, wrt: Sequence[int] | None = None, memory: Any = None, **place: Any) -> None:
        """Raises Differs unless those of the parameters are right, all or some; behind a cache where one is
        given.
        """

        def function(*arrays: Any) -> Any:
            m = Small(self.cfg, dict(zip(self.p, arrays, strict=True)))
            return m.logits(x, **place) if memory is None else m.decode(x, memory, **place)[0]

        gradient(function, list(self.p.values()), wrt=wrt, names=list(self.p))


def layer_input(cfg: Config, T: int, B: int = 2) -> tuple[Any, ...]:
    """x, q, k and v of a layer."""
    rng = np.random.default_rng([B, T])
    heads = [rng.standard_normal((B, h, T, cfg.D)) for h in (cfg.H, cfg.G or cfg.H, cfg.G or cfg.H)]
    return rng.standard_normal((B, T, cfg.C)), *heads


def place_of(cfg: Config, i: Any) -> model.At:
    return model.At.of(len(i), positions=i, causal=cfg.causal)


def image(A: int, B: int = 2, T: int = 9) -> Any:
    """Positions [A,B,T] as a prompt with an image has them: text, patches that share numbers, text again."""
    i = np.broadcast_to(np.arange(T), (A, B, T)).copy()
    for a in range(A):
        i[a, :, 2:7] = 2 + (np.arange(5) // (a + 1)) % (a + 2)
    i[:, :, 7:] += 3
    i[:, 1] += 4
    return i


def rows_elsewhere(s: Subject) -> Any:
    """UNEVEN, with an axis in front where [2,9] would be one row at two axes."""
    return UNEVEN[None] if s.encoding.axes == 2 else UNEVEN


def lists(x: Any) -> Any:
    """Arrays, also in a dict, as lists of plain numbers."""
    return {n: a.tolist() for n, a in x.items()} if isinstance(x, dict) else x.tolist()


def documents_alone(m: Small, x: Any, got: Any, how: str, i: Any = None) -> None:
    """Raises Differs unless `got`, the logits of x in SEGMENTS, at positions i, are those of each document by
    itself.
    """
    for row, a, b in ((0, 3, 9), (1, 0, 2), (1, 2, 7), (1, 7, 9)):
        here = None if i is None else i[..., row : row + 1, a:b]
        want = m.logits(x[row : row + 1, a:b], positions=here)
        which = f"a document, tokens {a} to {b - 1} in a row of three" if row else "3 tokens of padding"
        same(got[row : row + 1, a:b], want, EXACT, f"logits {'of' if row else 'behind'} {which}{how}")
