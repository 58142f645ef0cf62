"""What a wrong gradient has to do with the tensors and gradients that are right: mistakes in derivatives that
are written by hand.

Not here: other factors, signs, shifts (evidence); what a forward pass computes instead (readings).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.model import PLAIN
from peref.trace_diff.steps import layer_and_step
from peref.trace_diff.verdicts import Traces

ALIKE = 1e-3  # of the largest number


def relations_of_gradient(t: Traces, name: str) -> Iterator[str]:
    """Of one that is wrong, `name`; the likely first."""
    got, want, of = t.theirs[name], t.ours[name].wide, name.removeprefix("gradient.")
    above = {one: t.theirs[one] for one in t.order[: t.order.index(name)] if one in t.theirs}
    n, D = max(t.engine.at.T - 1, 1), t.engine.cfg.D
    for factor, words in (
        (D**0.5, "the root of the head width"),
        (D**-0.5, "one over the root of the head width"),
        (n, "the number of tokens that are predicted"),
        (1 / n, "one over the number of tokens that are predicted"),
        (n / (n + 1), "as of a mean over one token more than are predicted"),
    ):
        if within_rounding(got - want, (factor - 1) * want):
            yield f"it is {factor:.6g} times what it must be, {words}"
    yield from of_steps(t, of, above, got)
    yield from of_norm(t, above.get(of), got - want)
    if of == "parameter.embed.weight" and t.engine.cfg.tied and not t.memory:
        yield from of_tied(np.isin(np.arange(len(want)), t.engine.tokens), got, want)
    parts = {"it is what": got, "it lacks what": want - got, "it has besides what": got - want}
    for one in (one for one in above if one.startswith("gradient.")):
        yield from (f"{words} {one} is" for words, x in parts.items() if within_rounding(x, above[one]))


def within_rounding(x: Any, y: Any) -> bool:
    """To what rounding leaves, y not 0."""
    return x.shape == y.shape and bool(np.abs(x - y).max() <= ALIKE * np.abs(y).max() > 0)


def of_steps(t: Traces, of: str, above: dict[str, Any], got: Any) -> Iterator[str]:
    """The softmax without its sum, a rotation that is not transposed."""
    (layer, step), front = layer_and_step(of), of.rpartition(".")[0]
    p, dp = f"{front}.probabilities", f"gradient.{front}.probabilities"
    if step == "scores" and p in above and dp in above and within_rounding(got, above[p] * above[dp]):
        yield "it is the probabilities times their gradient: the sum of these over the keys is not taken off"
    turned = above.get(f"gradient.{of}_turned")
    rotation = t.engine.made.tables[layer].rotation if step in ("q", "k") and layer >= 0 else None
    if rotation is not None and turned is not None:
        gain = rotation[1 + (step == "k")]
        if within_rounding(got, PLAIN.turn(turned, rotation[0], gain, layout=t.engine.cfg.layout)):
            yield "it is turned on, not back: the derivative of a rotation is its transpose"


def of_norm(t: Traces, x: Any, off: Any) -> Iterator[str]:
    """What is normed: `off` lies along it."""
    if x is None or x.shape != off.shape or x.ndim < 2:
        return
    if t.engine.cfg.norm == "layer":
        x, off = (a - a.mean(-1, keepdims=True) for a in (x, off))
    along = (off * x).sum(-1, keepdims=True) / np.maximum((x * x).sum(-1, keepdims=True), 1e-30)
    if within_rounding(off, along * x):
        yield "it is off along the tensor itself, token by token: what a norm divides by is no constant"


def of_tied(used: Any, got: Any, want: Any) -> Iterator[str]:
    """The embedding that is the head too; `used`: which tokens are read."""
    beyond = np.abs(got - want) > ALIKE * np.abs(want).max()
    if not got[~used].any():
        yield "it is 0 in rows of tokens that are not read: what it gets as the head is missing"
    elif not beyond[~used].any():
        yield "it is right in rows of tokens that are not read: what it gets as the embedding is wrong"
