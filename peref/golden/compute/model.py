"""Levels block and model: one layer, or all of them between the embedding and the loss.

    block   inputs x [B,T,C] and the layer's parameters; y, 0 at padding; vjp of x and of every parameter for
            cotangent.y
    model   inputs tokens and targets [B,T] (negative: not asked) and all parameters; logits [B,T,V], 0 at
            padding; loss, the mean over the targets asked; vjp of every parameter for cotangent.loss, one
            number that is not 1: the gradient of cotangent.loss * loss; or for cotangent.logits [B,T,V] in
            its place. With `calls` in the facts the logits alone, of tokens that come in these calls through
            a cache

Parameters have their names on disk (peref/parameters.py) after "param.". Linear maps stand where init puts
them, all other parameters beside it.

Not here: training (training), decoding (trace).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref import model
from peref.backends import Backend
from peref.golden.compute.operation import on_grid, parameters_in, place_inputs, rounded, with_gradients
from peref.golden.spec.cases import Case
from peref.layers import block
from peref.model import PLAIN
from peref.ops.attention import masked
from peref.parameters import Arrays
from peref.passes import start_pass
from peref.rng import generator


def model_inputs(case: Case) -> Arrays:
    """All that goes in, cotangents included."""
    rng = generator(0, case.id)
    found = place_inputs(case)
    if case.level == "block":
        x, found["cotangent.y"] = (on_grid(rng, (case.B, case.T, case.C)) for _ in "xy")
        found["x"] = np.rint(x * case.shrink * 2**14) / 2**14
    else:
        found |= drawn_tokens(case, rng, (case.B, case.T))
        if case.calls:
            del found["targets"]
        elif case.judged == "loss":
            found["cotangent.loss"] = np.asarray(rng.integers(129, 256) / 128)
        else:
            found["cotangent.logits"] = on_grid(rng, (case.B, case.T, case.V))
    return found | drawn_parameters(case, rng)


def drawn_tokens(case: Case, rng: Any, shape: tuple[int, ...]) -> Arrays:
    """Tokens and targets, a third of the targets not asked, nor any at padding."""
    tokens, targets = rng.integers(0, case.V, shape), rng.integers(0, case.V, shape)
    flat = targets.reshape(-1, case.B * case.T)
    for batch in flat:
        batch[rng.permutation(batch.size)[: batch.size // 3]] = -1
    if case.seg is not None:
        targets[..., np.array(case.seg) == 0] = -1
    return {"tokens": tokens, "targets": targets}


def drawn_parameters(case: Case, rng: Any) -> Arrays:
    """Those of the layer, or of the model, on the grid."""
    drawn = model.init(case.config, int(rng.integers(2**32)), np.float64)
    found = {}
    for name, a in drawn.items():
        if case.level != "block" or name.startswith(("0.", "pe.")):
            plain = name.endswith(".weight") and a.ndim == 2 and "pe." not in name
            found[f"param.{name}"] = rounded(a if plain else a + 0.3 * rng.standard_normal(a.shape))
    return found


def run_model(case: Case, a: Arrays, be: Backend = PLAIN) -> Arrays:
    """The outputs for inputs `a`, arrays or on a tape."""
    cfg, p, at = case.config, parameters_in(a), case.at
    without_padding = lambda y: y if at.seg is None else masked(y, at.seg[..., None] != 0)
    if case.level == "block":
        return {"y": without_padding(block(start_pass(be, cfg, p, at), 0, a["x"], None)[0])}
    positions = None if case.positions is None else at.i
    logits = model.logits(cfg, p, a["tokens"], be=be, positions=positions, seg=at.seg, n=at.n)
    loss, _ = be.cross_entropy(logits, a["targets"])
    return {"logits": without_padding(logits), "loss": loss}


def in_calls(case: Case, a: Arrays, be: Backend, decode: Callable = model.decode) -> Arrays:
    """The logits of all rows, fed in the calls of the case through the cache of the model."""
    rows, old = [], model.cache(case.config)
    for first, stop, fresh, n in case.calls:
        old = model.cache(case.config, n) if fresh else old
        y, old = decode(case.config, parameters_in(a), a["tokens"][:, first:stop], old, be=be)
        rows.append(y)
    return {"logits": np.concatenate(rows, 1)}


def model_outputs(case: Case, a: Arrays, be: Backend = PLAIN) -> Arrays:
    """Outputs and products with the Jacobian, for inputs with their cotangents."""
    if case.level == "model" and case.calls:
        return in_calls(case, a, be)
    return with_gradients(lambda a: run_model(case, a, be), a)
