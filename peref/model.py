"""The transformer: logits, loss, decode over one flat dict of parameters (parameters.py), with a cache
(cache.py).

The same text (layers.py) trains, with parameters on a tape, evaluates and decodes, with bare arrays. Only
decode knows of a cache.
"""
# ruff: noqa: F401, F811  (who has a model has its parameters and its cache from here)

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.cache import Cache, cache
from peref.config import Config
from peref.errors import Misuse
from peref.layers import block, embed, head
from peref.ops.place import At
from peref.parameters import check, init, of_encoding, step_sizes
from peref.passes import Memory, Pass, start_pass
from peref.tape import Var
from peref.xp import Arrays, to_host

PLAIN = Backend()
LOGITS_AT_ONCE = 1 << 24


def check_tokens(cfg: Config, tokens: Any) -> Any:
    """Tokens [B,T] on the host. Raises Misuse where they are none, or outside the vocabulary."""
    host = to_host(tokens)
    if host.ndim != 2 or host.dtype.kind not in "iu" or host.size == 0:
        raise Misuse(f"tokens are {host.dtype}{list(host.shape)}; expected whole numbers [B,T], at least one")
    if not (int(host.min()) >= 0 and int(host.max()) < cfg.V):
        raise Misuse(f"tokens go from {host.min()} to {host.max()}; expected 0 to {cfg.V - 1}")
    return host


def check_targets(cfg: Config, tokens: Any, targets: Any) -> None:
    """Raises Misuse for targets of another shape than the tokens or outside the vocabulary."""
    host = to_host(targets)
    if host.shape != tuple(tokens.shape) or host.dtype.kind not in "iu":
        what = f"targets are {host.dtype}{list(host.shape)}; expected whole numbers {list(tokens.shape)}"
        raise Misuse(f"{what}, one for each token")
    if host.size and int(host.max()) >= cfg.V:
        what = f"targets go up to {host.max()}; expected at most {cfg.V - 1}"
        raise Misuse(f"{what}, or a negative number where nothing is asked")


def pass_over(
    cfg: Config, params: Arrays, tokens: Any, at: At, be: Backend, memory: Memory | None = None
) -> Pass:
    """A pass over tokens [B,T] at this place."""
    cfg.check_place(at, params["embed.weight"].dtype)
    at_one_place = len(tokens) == 1 or (at.i.ndim == 1 and at.seg is None)
    alone = tokens.shape[1] == 1 and at_one_place and Var not in set(map(type, params.values()))
    return start_pass(be, cfg, params, at, alone, memory)


def forward(
    cfg: Config,
    params: Arrays,
    tokens: Any,
    *,
    be: Backend = PLAIN,
    memory: Memory | None = None,
    end: Callable | None = None,
    at: At | None = None,
    **place: Any,
) -> Any:
    """As logits, of tokens that were checked, at the place `at`, made of `place` unless given. end(pass, x
    [B,T,C]) may make something else of what leaves the last layer.
    """
    this = pass_over(cfg, params, tokens, at or cfg.place(*tokens.shape, **place), be, memory)
    this = replace(this, adds_later=be.add_norm is not None)
    x = embed(this, tokens)  # [B,T,C]
    for layer in range(cfg.layers):
        x, _ = block(this, layer, x, None)  # [B,T,C]
    return (end or head)(this, x)  # [B,T,V]


def logits(cfg: Config, params: Arrays, tokens: Any, *, be: Backend = PLAIN, **place: Any) -> Any:
    """Logits [B,T,V] of whole sequences of tokens [B,T].

    `place`, all of it optional: positions [T], [B,T] or, of the axes that the encodings tell apart, [A,B,T]
    (ops/place.py); seg [B,T], the document of each token, 0 for padding; n, the length that frequencies are
    made for, T unless said. Raises Misuse for tokens outside the vocabulary.
    """
    check_tokens(cfg, tokens)
    return forward(cfg, params, tokens, be=be, **place)


def loss(
    cfg: Config, params: Arrays, tokens: Any, targets: Any, *, be: Backend = PLAIN, **place: Any
) -> tuple[Any, Any]:
    """Mean cross-entropy in nats over the targets [B,T] that are not negative, and that of each token [B,T].

    Raises Misuse for targets of another shape than the tokens or outside the vocabulary.
    """
    check_targets(cfg, tokens, targets)
    return be.cross_entropy(logits(cfg, params, tokens, be=be, **place), be.place(targets))


def losses(cfg: Config, params: Arrays, tokens: Any, targets: Any, *, be: Backend = PLAIN) -> np.ndarray:
    """The second of `loss`, on the host and off the tape: only LOGITS_AT_ONCE logits are held at a time.
    Raises as `loss` does.
    """
    check_tokens(cfg, tokens)
    check_targets(cfg, tokens, targets)
    placed, rows = be.place(targets).reshape(1, -1), max(1, LOGITS_AT_ONCE // cfg.V)

    def by_rows(this: Pass, x: Any) -> np.ndarray:
        x = x.reshape(1, -1, cfg.C)
        blocks = [slice(first, first + rows) for first in range(0, x.shape[1], rows)]
        found = [be.cross_entropy(head(this, x[:, block]), placed[:, block])[1] for block in blocks]
        return np.concatenate([to_host(a) for a in found], 1).reshape(targets.shape)

    return forward(cfg, params, tokens, be=be, end=by_rows)


def decode(
    cfg: Config,
    params: Arrays,
    tokens: Any,
    cache: Cache,
    *,
    be: Backend = PLAIN,
    positions: Any = None,
    seg: Any = None,
    memory: Memory | None = None,
) -> tuple[Any, Cache]:
    """Logits [B,T,V] of the next `tokens` [B,T] after those in `cache`, and the cache after them.

    positions [T], [B,T] or, of the axes that the encodings tell apart, [A,B,T] (ops/place.py) go on from the
    last unless said; seg [B,T] says which document each token belongs to, 0 is padding. For a causal model
    any split of the tokens over calls gives the rows of one call. `memory` is what a decoder behind an
    encoder attends to, the same in every call. Raises Misuse for tokens outside the vocabulary.
    """
    host = check_tokens(cfg, tokens)
    this = pass_over(cfg, params, host, cache.at(cfg, host, positions, seg), be, memory)
    x = embed(this, tokens)  # [B,T,C]
    layers: list[Any] = []
    for layer, old in enumerate(cache.layers):
        x, new = block(this, layer, x, old)  # [B,T,C]
        layers.append(new)
    return head(this, x), Cache(cache.n, this.at.j, this.at.seg, tuple(layers), len(tokens))
