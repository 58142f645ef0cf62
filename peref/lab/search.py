"""LongRoPE's search: divisors of RoPE's frequencies with which trained weights read a longer text best.

A candidate is a divisor for each pair of channels, from 1 to 1 + factor in steps of GRID, never falling from
pair to pair. The first are those of PI, NTK and YaRN; others are changed from these until there are
POPULATION. Each round has the PARENTS with the least loss so far, MUTATIONS of them, and CROSSOVERS of two.

Ding, Zhang, et al. 2024, arXiv:2402.13753, section 3.2. The numbers, and how a candidate is changed and
crossed, are those of the authors' program (microsoft/LongRoPE, evolution/algorithms/dim_mono.py). That starts
from YaRN alone; as there, start_tokens and the gain are not searched.

Not here: which run and text, what is shown and kept (cli/search.py).
"""

import contextlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.config import Config
from peref.evaluate import Scoring, check_loss, scored, under
from peref.hooks import rotation
from peref.lab.comparison import TRAINED_WITH
from peref.member import encodings_of, kinds
from peref.records import Lines
from peref.rng import generator
from peref.store import UNREADABLE, read_own
from peref.xp import Arrays

POPULATION, ROUNDS, PARENTS, MUTATIONS, CROSSOVERS = 64, 40, 32, 16, 16
RATE, TRIES = 0.3, 20  # of a pair to be drawn anew; of a candidate that is no other's
GRID = 0.01
METHOD, BESIDE = "longrope", (TRAINED_WITH, "pi", "ntk", "ntk_by_parts", "yarn")
BEYOND = 2.0**20  # a position beyond all start_tokens
Candidate = tuple[int, ...]  # divisors in units of GRID


@dataclass(frozen=True)
class Reader:
    """Weights trained with RoPE, under `cfg`, that read `text` [N+1] in windows of `length` under another
    encoding; `settings` of longrope, as --set says them. The loss of a candidate is of `count` windows, and
    kept in a file.
    """

    cfg: Config
    params: Arrays
    text: np.ndarray
    length: int
    count: int
    settings: tuple[str, ...]
    kept: Lines
    be: Backend

    def cycle(self, name: str) -> str:
        """What the layers are read by, `name` in place of rope."""
        instead = {TRAINED_WITH: name}
        read = lambda member: "+".join(instead.get(one, one) for one in encodings_of(member))
        return ",".join(read(member) for member, _ in self.cfg.pe)

    def under(self, name: str, *more: str) -> Config:
        """`name` with more settings; another encoding than longrope has those that it knows."""
        has = lambda one: name == METHOD or one.partition("=")[0].rpartition(".")[2] in kinds(name)
        return under(self.cfg, self.cycle(name), (*filter(has, self.settings), *more))

    def nats(self, cfg: Config, first: int, count: int) -> np.ndarray:
        """Per token, of so many windows from this one on, [count]."""
        part = self.text[first * self.length : (first + count) * self.length + 1]
        each = scored(cfg, self.params, part, self.length, Scoring(be=self.be))
        means = np.array([nll.mean() for *_, nll, _ in each])
        check_loss({"length": self.length, "loss": float(means.mean())})
        return means

    def known(self) -> dict[tuple[int, Candidate], float]:
        """The losses that are kept, by part of the text and candidate."""
        found = {}
        with contextlib.suppress(*UNREADABLE):  # from a torn line on they are asked again
            for line in read_own(self.kept.path).splitlines():
                part, one, loss = json.loads(line)["evaluated"]
                found[part, tuple(one)] = float(loss)
        return found

    def loss(self, part: int, one: Candidate) -> float:
        """Of the part of the text for the search, 0, or for the choice, 1; and keeps it."""
        cfg = self.under(METHOD, said(one))
        loss = float(self.nats(cfg, part * self.count, self.count).mean())
        self.kept.append({"evaluated": [part, one, loss]})
        return loss


def said(one: Candidate) -> str:
    """For --set."""
    return "long_factor=" + ",".join(f"{n * GRID:.2f}" for n in one)


def evaluations(rounds: int) -> int:
    """How many candidates there are at most."""
    return POPULATION + rounds * (MUTATIONS + CROSSOVERS)


def first_candidates(cfg: Config, factor: float, longest: int) -> list[Candidate]:
    """Of PI, NTK and YaRN, for a model `cfg` with longrope that reads `longest` tokens."""
    layer = next(n for n in range(cfg.layers) if METHOD in encodings_of(cfg.pe[n % len(cfg.pe)][0]))
    w, slower = (rotation(cfg.encoding(layer), {}, np.array([BEYOND]), n)[0][0] for n in (1, longest))
    ntk = factor ** (np.arange(len(w)) / max(1, len(w) - 1))
    wanted = [np.full(len(w), factor), ntk, w / slower]
    return [tuple(np.rint(divisors / GRID).astype(int).tolist()) for divisors in wanted]


def search(
    loss_of: Callable[[Candidate], float], first: list[Candidate], factor: float, seed: int, rounds: int
) -> list[Candidate]:
    """All candidates, the one with the least loss first; each is asked once."""
    rng, most = generator(seed, f"{METHOD} search"), round((1 + factor) / GRID)
    found = {one: loss_of(one) for one in first}

    def add(one: Candidate | None) -> None:
        if one:
            found[one] = loss_of(one)

    def best() -> list[Candidate]:
        return sorted(found, key=lambda one: (found[one], one))

    for n in range(POPULATION - len(found)):
        add(mutated(rng, first[n % len(first)], found, most))
    for _ in range(rounds):
        parents = best()[:PARENTS]
        for n in rng.integers(0, len(parents), MUTATIONS):
            add(mutated(rng, parents[n], found, most))
        for pair in rng.integers(0, len(parents), (CROSSOVERS, 2)):
            better, other = (parents[n] for n in sorted(pair))
            add(crossed(rng, better, other, found) or mutated(rng, better, found, most))
    return best()


def mutated(rng: Any, one: Candidate, known: Collection[Candidate], most: int) -> Candidate | None:
    """Some divisors drawn anew between their neighbours', until that is no candidate yet; None where it does
    not become one.
    """
    new = [round(1 / GRID), *one, most]  # with what is below the first and above the last
    for _ in range(TRIES):
        for n in range(1, len(new) - 1):
            if rng.random() < RATE:
                new[n] = int(rng.integers(new[n - 1], new[n + 1] + 1))
        if (child := tuple(new[1:-1])) not in known:
            return child
    return None


def crossed(rng: Any, one: Candidate, other: Candidate, known: Collection[Candidate]) -> Candidate | None:
    """Some divisors of `one` are those of `other`, as many as make it a candidate that is none yet; None
    where it does not become one.
    """
    new = [*one]
    for n in [*range(len(one))] * TRIES:
        if rng.random() < RATE / 2:
            new[n] = other[n]
            if new == sorted(new) and tuple(new) not in known:
                return tuple(new)
    return None
