"""Loss by length and by position, with the protocol that makes the number mean something.

Every length reads the same text. "non-overlapping" cuts it into windows side by side; "sliding" moves a
window by `stride` and scores only the tokens that are new in it, so that each has at least length - stride
tokens before it. Each token is scored once in both.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from peref import modules, share
from peref.backends import Backend
from peref.config import Config
from peref.encodings import origin
from peref.errors import Diverged, Misuse, counted
from peref.masking import masked_tokens
from peref.member import fills, said_of, shared_by, turning
from peref.memory import check_attention
from peref.model import PLAIN, losses
from peref.parameters import check
from peref.recipe import Recipe
from peref.rng import generator
from peref.runs import Run
from peref.settings import choose
from peref.xp import Arrays

TOKENS_AT_ONCE = 4096


@dataclass(frozen=True)
class Protocol:
    """How text becomes windows. `stride` is None for windows side by side."""

    stride: int | None = None

    def __str__(self) -> str:
        return "non-overlapping" if self.stride is None else f"sliding, stride {self.stride}"

    def windows(self, size: int, length: int) -> Iterator[tuple[int, int, int]]:
        """(start, stop, first scored) of each window over `size` tokens, the last perhaps shorter."""
        stride = length if self.stride is None else self.stride
        if not 1 <= stride <= length:
            raise Misuse(f"stride is {stride}; expected 1 to the length {length}")
        scored = 0
        for start in range(0, size, stride):
            stop = min(start + length, size)
            yield start, stop, scored
            scored = stop
            if stop == size:
                return


@dataclass(frozen=True)
class Scoring:
    """How a text is scored: in which windows, by what, who is told of the tokens that are done, and how many
    tokens a byte has.
    """

    protocol: Protocol = Protocol()
    be: Backend = PLAIN
    progress: Callable[[int], None] = lambda tokens: None
    per_byte: float = 1.0


def in_units(nats: float, per_byte: float = 1.0) -> dict[str, float]:
    """A mean loss in nats per token and, with so many tokens in a byte, in bits per byte."""
    return {"loss": nats, "bpb": per_byte * nats / math.log(2)}


def scored(
    cfg: Config, params: Arrays, text: np.ndarray, length: int, how: Scoring
) -> Iterator[tuple[int, int, int, np.ndarray, np.ndarray]]:
    """Of each window over `text` [N+1] bytes where it starts, where its first new token is, where it stops,
    and of the new ones the losses in nats and whether they are asked, which masked tokens alone may not be.
    """
    cuts = list(how.protocol.windows(len(text) - 1, length))
    at_once = max(1, TOKENS_AT_ONCE // length)
    while cuts:
        start, stop, _ = cuts[0]
        group = [c for c in cuts[:at_once] if c[1] - c[0] == stop - start]
        cuts = cuts[len(group) :]
        rows = np.stack([text[a : b + 1] for a, b, _ in group]).astype(np.int64)
        inputs, targets = rows[:, :-1], rows[:, 1:]
        if not cfg.causal:
            inputs, targets = masked_tokens(inputs, generator(0, "mask held out", length, start))
        nll = losses(cfg, params, inputs, targets, be=how.be).astype(np.float64)
        for (a, b, first), row, asked in zip(group, nll, targets >= 0, strict=True):
            yield a, first, b, row[first - a :], asked[first - a :]


def score(
    cfg: Config, params: Arrays, text: np.ndarray, length: int, how: Scoring = Scoring()
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Score `text` [N+1] tokens in windows of `length`: the row of the table,
    and per position the summed loss and count, both [length].

    A model that reads both ways is asked masked tokens, the same in every evaluation at that length, and the
    bytes below are those. loss is in nats per token, bpb in bits per byte; stderr, in bits per byte, takes
    the n windows as independent: with w_k the part of the tokens that window k scores, sqrt(n/(n-1) sum_k
    (w_k (loss_k - loss))^2). Windows of one size make that s/sqrt(n).
    """
    total, count, means = np.zeros(length), np.zeros(length), []
    for start, first, stop, nll, asked in scored(cfg, params, text, length, how):
        new = slice(first - start, stop - start)
        total[new] += nll * asked
        count[new] += asked
        means.append((nll[asked].mean(), asked.sum()))
        how.progress(stop - first)
    mean = float(total.sum() / count.sum())
    loss_of, weight = np.array(means).T
    share, n = weight / weight.sum(), len(means)
    row: dict[str, Any] = {"length": length} | in_units(mean, how.per_byte)
    row |= {"ppl": math.exp(min(mean, 700.0)), "stderr": None}
    if n > 1:
        error = float(np.sqrt(n / (n - 1) * ((share * (loss_of - mean)) ** 2).sum()))
        row["stderr"] = in_units(error, how.per_byte)["bpb"]
    return row | {"windows": n, "tokens": int(count.sum())}, total, count


def by_buckets(total: np.ndarray, count: np.ndarray, per_byte: float = 1.0) -> list[dict[str, Any]]:
    """Mean loss in buckets of positions that double: 0, 1, 2-3, 4-7, ..."""
    edges = [0, *(1 << k for k in range((len(total) - 1).bit_length())), len(total)]
    rows = []
    for a, b in pairwise(edges):
        if n := int(count[a:b].sum()):
            mean = in_units(float(total[a:b].sum() / n), per_byte)
            rows.append({"from": a, "to": b - 1, **mean, "tokens": n})
    return rows


def lengths(trained: int, longest: int) -> list[int]:
    """Half the training length, then from that in doublings to `longest`, which is always there."""
    grid = {max(1, trained // 2), *(trained << k for k in range(longest.bit_length())), longest}
    return sorted(length for length in grid if length <= longest)


def weights_of(run: Run) -> tuple[Any, Arrays, int]:
    """Config, parameters and step of the newest checkpoint. Raises Misuse where there is none or it is not
    of that Config, Damaged for one that does not verify.
    """
    steps = run.checkpoints
    if not steps:
        again = f"`{share.program()} train --resume {run.folder}`"
        raise Misuse(f"{run.folder} has no checkpoint yet; let {again} go on for a while")
    cfg = model_of(run)
    try:
        arrays, _ = run.checkpoint(steps[-1])
    except Misuse:
        if run.checkpoints[-1:] == steps[-1:]:
            raise
        return weights_of(run)  # whoever trains has saved newer ones and removed this one
    return cfg, parts_of(run, cfg, arrays)["p"], steps[-1]


def parts_of(run: Run, cfg: Config, arrays: Arrays) -> dict[str, Arrays]:
    """The weights and both moments of a checkpoint, as "p", "m" and "v". Raises Misuse unless all are of
    `cfg` and the run's dtype.
    """
    dtype = np.dtype(Recipe.from_json(run.record["recipe"]).dtype)
    parts: dict[str, Arrays] = {"p": {}, "m": {}, "v": {}}
    for name, a in arrays.items():
        kind, _, name = name.partition("/")
        parts.get(kind, {})[name] = a
        if kind not in parts or a.dtype != dtype:
            raise Misuse(f"the checkpoint has {kind}/{name} in {a.dtype}; expected p/, m/ and v/ in {dtype}")
    for kind, part in parts.items():
        if kind == "p" or part or run.record["steps"]:  # what was imported has no moments
            check(cfg, part)
    return parts


def config_of(run: Run) -> Config:
    """As model_of, where it is one sequence's. Raises Misuse for an encoder and a decoder."""
    cfg = model_of(run)
    if cfg.encoder:
        what = "is an encoder and a decoder, which this command does not take; trace and generate do"
        raise Misuse(f"{run.folder} {what}")
    return cfg


def model_of(run: Run) -> Config:
    """What the run's record says of the model.

    Raises Misuse where it has an encoding of a file that nobody has named: a run imports none by itself.
    """
    for name, about in run.own.items():
        if not about["package"] and not modules.loaded(name):
            gone = "" if about["path"] in run.cycle else " (gone; the run keeps a copy)"
            said = f"{run.folder} was trained with '{name}' of {about['path']}{gone}"
            raise Misuse(f"{said}; say that the file may be imported: --pe {run.cycle}")
    return Config.from_json(run.record["config"])


def differing(run: Run) -> list[str]:
    """Words about each encoding of the run that is not what it was when the run began."""
    found = []
    for name, about in run.own.items():
        here = origin(name)
        if here and here.sha256 != about["sha256"]:
            digests = f"SHA-256 {about['sha256'][:12]}, now {here.sha256[:12]}"
            what = f"{here.package or here.path} is not the {name} that {run.folder} began with ({digests})"
            found.append(f"{what}; that is kept in {run.kept(name)}")
    return found


def under(cfg: Config, pe: str | None, given: tuple[str, ...]) -> Config:
    """`cfg` with another encoding, or other options of its own, for the same weights. Raises Misuse for what
    is unknown.

    What the layers of `cfg` were given stays where the other encoding has it too: settings, and options other
    than the default, such as a base.
    """
    if pe is None and not given:
        return cfg
    chosen = choose(pe or ",".join(name for name, _ in cfg.pe), given)
    before = cfg.pe * (len(chosen["pe"]) if len(cfg.pe) == 1 else 1)  # a cycle of one is that of every layer
    own = [said_of(name, given) for name, given in before]
    if any(own):
        if len(own) != len(chosen["pe"]):
            what = f"the layers of {cfg.named} have options or settings of their own"
            turned = next((name for name, _ in chosen["pe"] if turning(name)), "")
            names = ",".join(turned if turned and turning(was) else was for was, _ in before)
            use = f"give {counted(len(own), 'name')}, such as {names}"
            raise Misuse(f"{what}; {use}, so that each keeps its own")
        each = zip(before, own, chosen["pe"], strict=True)
        kept = ((name, shared_by(was, said, name) | dict(new)) for (was, _), said, (name, new) in each)
        chosen["pe"] = tuple(kept)
    rotates = any(turning(name) for name, _ in chosen["pe"])
    attends = any(not fills(name, "mix") for name, _ in chosen["pe"])
    rotary = {"R": cfg.R, "layout": cfg.layout} if rotates else {"R": None, "layout": Config.layout}
    return replace(cfg, **rotary | {"G": cfg.G if attends else None} | chosen)


def check_evaluation(
    cfg: Config, params: Arrays, text: np.ndarray, longest: int, named: str = "the validation text"
) -> None:
    """Raises Misuse for what `evaluate` cannot do: weights that do not fit, a length that the encoding or
    the text, in a message `named`, does not reach.
    """
    check(cfg, params)
    if longest < 1:
        raise Misuse(f"length is {longest}; expected at least 1")
    end, name = cfg.ends(params["embed.weight"].dtype)
    if longest > end:
        raise Misuse(f"{name} ends at length {end}, and length is {longest}; ask for at most {end}")
    if len(text) <= longest:
        unit = "byte" if cfg.V == 256 else "token"
        what = f"{named} has {counted(len(text), unit)}, too few for length {longest}"
        raise Misuse(f"{what}; expected at least {longest + 1}")


def check_loss(row: dict[str, Any]) -> None:
    """Raises Diverged where the loss of a row of the table is not finite."""
    if not math.isfinite(row["loss"]):
        what = f"at length {row['length']} the loss is {row['loss']}: these weights give no finite numbers"
        raise Diverged(f"{what} there; evaluate an earlier state, or train again with a lower --rate")


def evaluate(
    cfg: Config, params: Arrays, text: np.ndarray, longest: int, how: Scoring = Scoring()
) -> Iterator[dict[str, Any]]:
    """One row per length, from half the training length to `longest`; the last also has "by_position".

    text [N+1] is the same for all. Raises Misuse as check_evaluation does, and for what does not fit into
    memory, and Diverged where a loss is not finite.
    """
    check_evaluation(cfg, params, text, longest)
    if not cfg.causal and how.protocol.stride is not None:
        raise Misuse("masked tokens are asked in windows side by side; leave the sliding window out")
    if how.be.attention is PLAIN.attention:
        check_attention(cfg, params["embed.weight"].dtype, longest, how.be.name)
    params = how.be.place(params)
    for length in lengths(cfg.L, longest):
        row, total, count = score(cfg, params, text, length, how)
        check_loss(row)
        yield row if length < longest else row | {"by_position": by_buckets(total, count, how.per_byte)}


def stored(
    how: Scoring, corpus_sha256: str, text: np.ndarray, step: int, cfg: Config, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """What eval writes beside a run that was trained on this text: the numbers and all that they depend on. A
    token of a tokenizer is not a byte.
    """
    base = next((row["bpb"] for row in rows if row["length"] == cfg.L), None)
    ratio = lambda row: {"ratio": None if base is None else row["bpb"] / base}
    by_position = [bucket for row in rows for bucket in row.get("by_position", [])]  # the last row's
    return {
        "protocol": {"name": str(how.protocol), **asdict(how.protocol)},
        "corpus": corpus_sha256,
        "bytes": round((len(text) - 1) / how.per_byte),
        "tokens_per_byte": how.per_byte,
        "step": step,
        "pe": cfg.to_json()["pe"],
        "causal": cfg.causal,
        "rows": [{k: v for k, v in row.items() if k != "by_position"} | ratio(row) for row in rows],
        "by_position": by_position,
        "trained_on": corpus_sha256,
        "L": cfg.L,
        "backend": how.be.name,
        "config": cfg.to_json(),
    }
