"""Text, one token at a time, through the cache."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.cache import cache
from peref.config import Config
from peref.errors import Diverged, Misuse
from peref.model import PLAIN, decode
from peref.passes import Memory
from peref.rng import generator
from peref.xp import Arrays, to_host


def pick(logits: np.ndarray, temperature: float, top_k: int | None, rng: np.random.Generator) -> int:
    """A token from logits [V]: the largest at temperature 0, else drawn from softmax(logits / temperature)
    over the `top_k` largest.
    """
    if temperature == 0:
        return int(logits.argmax())
    with np.errstate(over="ignore"):  # a tiny temperature leaves the largest alone
        z = (logits.astype(np.float64) - logits.max()) / temperature
    if top_k is not None and top_k < len(z):
        z = np.where(z >= np.partition(z, -top_k)[-top_k], z, -np.inf)
    p = np.exp(z)
    return int(rng.choice(len(p), p=p / p.sum()))


def check_generation(
    cfg: Config, prompt: np.ndarray, count: int, temperature: float, top_k: int | None, seed: int, dtype: Any
) -> None:
    """Raises Misuse for what `generate` cannot do: an encoding that does not reach as far, a setting that
    makes no sense.
    """
    if prompt.ndim != 1 or not len(prompt):
        raise Misuse("the prompt is empty; give it at least one byte to go on from")
    if count < 0:
        raise Misuse(f"the number of tokens is {count}; expected 0 or more")
    if not 0 <= temperature < math.inf:
        raise Misuse(f"temperature is {temperature}; expected 0 or a positive number")
    if top_k is not None and top_k < 1:
        raise Misuse(f"top_k is {top_k}; expected at least 1, or none for all")
    generator(seed, "generate", 0)  # a seed out of range is refused here already
    if not cfg.causal:
        raise Misuse("only a causal model generates; this one reads both ways")
    total = len(prompt) + count
    end, name = cfg.ends(dtype)
    if total > end:
        what = f"{name} ends at length {end}; prompt and text would be {total} tokens"
        raise Misuse(f"{what}; ask for at most {max(int(end) - len(prompt), 0)}")


def generate(
    cfg: Config,
    params: Arrays,
    prompt: Any,
    count: int,
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
    be: Backend = PLAIN,
    memory: Memory | None = None,
) -> Iterator[int]:
    """Yield `count` tokens that follow `prompt`, a sequence of at least one token; `memory` is what a decoder
    behind an encoder attends to. A pure function of its arguments.

    Raises Misuse as check_generation does, and Diverged for weights that give no finite numbers.
    """
    prompt = np.asarray(prompt, dtype=np.int64)
    dtype = next((a.dtype for a in params.values()), np.float64)
    check_generation(cfg, prompt, count, temperature, top_k, seed, dtype)
    params = be.place(params)
    kept, new = cache(cfg, max(cfg.L, len(prompt) + count)), prompt
    for step in range(count):
        logits, kept = decode(cfg, params, new[None], kept, be=be, memory=memory)
        row = to_host(logits)[0, -1]
        if not np.isfinite(row).all():
            what = f"the logits of token {step + 1} are not finite: these weights give no finite numbers"
            raise Diverged(f"{what}; take an earlier state, or train again with a lower --rate")
        token = pick(row, temperature, top_k, generator(seed, "generate", step))
        yield token
        new = np.asarray([token])
