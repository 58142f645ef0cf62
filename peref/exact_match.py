"""How many answers of a task are right from the first token to the last.

An answer that is written one token at a time, always the likeliest, is right where, behind every beginning of
the right answer, the likeliest token is the right one. So one pass over right answers says it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.config import Config
from peref.encoder_decoder import encode, predicted
from peref.evaluate import check_loss, in_units, lengths
from peref.generate import generate
from peref.model import PLAIN
from peref.parameters import check, half_of
from peref.tasks import BEGIN, DEPTHS, END, Exercise
from peref.xp import Arrays, to_host

AT_ONCE, MOST_TOKENS = 50, 25600  # samples and tokens in a pass
SURE = 0.95
NORMAL = 1.959963984540054  # the normal distribution has 95 % within so many standard deviations


def exact_match(
    cfg: Config, params: Arrays, exercise: Exercise, count: int, *, be: Backend = PLAIN
) -> dict[str, Any]:
    """Of `count` held-out samples of the longest length: the share of answers that are exactly right with its
    95 % interval, that of tokens, and the mean loss of a token in nats and bits; where a task is `deep` also
    the share at each of DEPTHS.

    The interval is Wilson's, 1927, JASA 22(158): it is no point where all answers are right.
    """
    hits: list[bool] = []
    tokens, asked, loss, size = 0, 0, 0.0, max(1, min(AT_ONCE, MOST_TOKENS // exercise.tokens))
    for first in range(0, count, size):
        held = (exercise.held_out(index) for index in range(first, min(first + size, count)))
        inputs, targets = exercise.asked(held)
        logits = predicted(cfg, params, inputs, be=be)
        nll, there = to_host(be.cross_entropy(logits, be.place(targets))[1]), targets >= 0
        hit = (to_host(logits).argmax(-1) == targets) | ~there
        hits += hit.all(1).tolist()
        tokens += int((hit & there).sum())
        asked, loss = asked + int(there.sum()), loss + float(nll[there].astype(np.float64).sum())
    share, z = sum(hits) / count, NORMAL**2 / count
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(z * share * (1 - share) + z * z / 4) / (1 + z)
    row: dict[str, Any] = {"length": exercise.longest, "samples": count, "exact": share}
    row |= {"low": max(middle - half, 0.0), "high": min(middle + half, 1.0), "tokens_right": tokens / asked}
    row["right"] = "".join(str(int(hit)) for hit in hits)
    if exercise.task.deep:
        parts = [hits[n :: len(DEPTHS)] for n in range(len(DEPTHS))]
        row["by_depth"] = [sum(one) / len(one) if one else None for one in parts]
    return row | in_units(loss / asked)


def each_length(
    at: Callable[[int], Any], params: Arrays, exercise: Exercise, longest: int, count: int, be: Backend
) -> Iterator[dict[str, Any]]:
    """exact_match at every length up to `longest`, of what `at` gives for so many tokens. Raises Misuse where
    the parameters do not fit that, Diverged where a loss is not finite.
    """
    placed = be.place(params)
    for n in lengths_of(exercise, longest):
        asked = replace(exercise, longest=n)
        check(cfg := at(asked.tokens), params)
        row = exact_match(cfg, placed, asked, count, be=be)
        check_loss(row)
        yield row


def lengths_of(exercise: Exercise, longest: int) -> list[int]:
    """As evaluate.lengths, of those that the task has."""
    return [n for n in lengths(exercise.longest, longest) if n >= exercise.task.shortest]


def effective_length(rows: list[dict[str, Any]], trained: int) -> int:
    """The longest length at which SURE of the answers are exactly right, as at all shorter ones; 0 where the
    length trained for is not reached. Shorter ones than half of that are not asked.
    """
    learned = takewhile(lambda row: row["exact"] >= SURE, rows)
    longest = max((row["length"] for row in learned), default=0)
    return longest if longest >= trained else 0


def in_words(effective: int) -> str:
    """An effective length."""
    return f"length {effective:,}" if effective else "not learned"


def answer(
    cfg: Config, params: Arrays, prompt: Sequence[int], most: int, *, be: Backend = PLAIN
) -> list[int]:
    """What is written behind a prompt, or of a pair as the answer to that source: always the likeliest token,
    to the end mark or `most` tokens. Raises Diverged for weights that give no finite numbers.
    """
    memory = None
    if cfg.encoder:
        memory = encode(cfg, params, np.array([prompt]), be=be)
        cfg, params, prompt = cfg.decoder, half_of(params, "decoder"), [BEGIN]
    found: list[int] = []
    for token in generate(cfg, params, prompt, most, temperature=0, be=be, memory=memory):
        found.append(token)
        if token == END:
            break
    return found
