"""A block, a model, training and a trace once more, composed of the loops over plain numbers in tests/loops.

What these levels add to one operation (norms, linear maps, residual sums, feed-forward, loss, AdamW) is in
loops.block, loops.loss and loops.adamw; the encodings inside are the loops that witness them at the lower
levels. A trace is computed as one piece, without a cache. Gradients are no loops' work: they are confirmed by
finite differences, and the gradients of ten training steps are taken as the tape gives them.
"""

import math
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from loops.adamw import adamw
from loops.block import block, logits, normed, plus
from loops.loss import cross_entropy
from making import witness

from peref.golden.compute import training
from peref.golden.compute.operation import parameters_in
from peref.golden.spec.cases import Case
from peref.member import LEARNED
from peref.model import step_sizes
from peref.optim import decays

Rows = list[Any]


def witnessed(case: Case, a: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a case."""
    if case.level == "trace":
        return trace(case, a)
    p = {name: x.tolist() for name, x in parameters_in(a).items()}
    if case.level == "step":
        return trained(case, a)
    if case.level == "block":
        y = np.zeros((case.B, case.T, case.C))
        for b, cut, i in witness.documents(case):
            y[b, cut] = layer(case, 0, p, a["x"][b, cut].tolist(), i, {})
        return {"y": y}
    if case.calls:  # in one piece, whatever the calls
        return {"logits": model(case, p, a["tokens"], a["tokens"])["logits"]}
    return model(case, p, a["tokens"], a["targets"])


def of_layer(case: Case, number: int, p: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a layer, and those of its encoding, under their bare names."""
    own = {name.removeprefix(f"{number}."): x for name, x in p.items() if name.startswith(f"{number}.")}
    inside = {name.removeprefix("pe."): x for name, x in own.items() if name.startswith("pe.")}
    return own, inside | {name.removeprefix("pe.0."): x for name, x in p.items() if name.startswith("pe.0.")}


def layer(case: Case, number: int, p: Any, x: Rows, i: Rows, across: dict[str, Any]) -> Rows:
    """x [T][C] after one layer. `across` is what layers hand on."""
    own, inside = of_layer(case, number, p)
    cfg = case.config
    stored = lambda name, x: (np.array(x) + 1).tolist() if is_scale(name) and cfg.norm_from_one else x
    own = {name: stored(name, x) for name, x in own.items()}
    facts = {name: getattr(cfg, name) for name in ("norm", "activation", "eps", "residual")}
    facts |= {"factor": cfg.residual_factor, "limit": cfg.activation_limit}
    facts |= {"experts": cfg.layer(number).experts and vars(cfg)}
    if units := cfg.unit_heads and cfg.encoding(number).rotate:
        own |= {f"{role}norm.weight": [1.0] * case.D for role in "qk"}
    if case.hook == "mix":
        handed = dict(across)

        def mixed(h: Rows) -> Rows:
            if hands := getattr(import_module(f"loops.{case.encoding}"), "across", None):
                across.update(across or hands(inside, h))
            return witness.loop_of(case, **handed)(inside, h, i)

        return block(own, x, mixed, case.D, mixes=True, **facts)
    plain = replace(case, encoding="none", options={}) if case.hook == "embed" else replace(case, block={})
    if case.cycle:  # the layer alone, as if it were the whole cycle
        plain = replace(plain, cycle=(case.cycle[number % len(case.cycle)],))
    loop = witness.loop_of(plain)
    inside |= {name: own[name] for name in LEARNED if name in own}
    attended = lambda q, k, v, h: witness.one(plain, loop, inside, {"q": q, "k": k, "v": v, "x": h}, i)["out"]
    return block(own, x, attended, case.D, qk_norm=cfg.qk_norm or units, **facts)


def is_scale(name: str) -> bool:
    """Whether it is the weight of a norm."""
    return name.endswith(".weight") and ("norm" in name or name.startswith("after"))


def model(case: Case, p: Any, tokens: Any, targets: Any) -> dict[str, np.ndarray]:
    """Logits and loss."""
    stored = lambda name, x: (np.array(x) + 1).tolist() if is_scale(name) and "." not in name[:-7] else x
    p = {name: stored(name, x) for name, x in p.items()} if case.config.norm_from_one else p
    cfg, found, asked = case.config, np.zeros((case.B, case.T, case.V)), []
    for b, cut, i in witness.documents(case):
        x = [[cfg.embed_factor * z for z in p["embed.weight"][token]] for token in tokens[b, cut]]
        if cfg.encoding(0).embed:
            one = replace(case, encoding=cfg.named, cycle=(), block={}) if case.cycle else case
            x = plus(x, witness.loop_of(one)(of_layer(case, 0, p)[1], i))
        if cfg.embed_norm:
            x = normed(p, "embed_norm", x, cfg.norm, cfg.eps)
        across: dict[str, Any] = {}
        for number in range(cfg.layers):
            x = layer(case, number, p, x, i, across)
        rows = logits(p, x, cfg.norm, cfg.eps, cfg.logit_factor, cfg.logit_softcap)
        found[b, cut] = rows
        asked += list(zip(rows, targets[b, cut].tolist(), strict=True))
    loss = cross_entropy(*zip(*asked, strict=True), ignore=-1)
    return {"logits": found, "loss": np.array(loss)}


def trained(case: Case, a: Any) -> dict[str, np.ndarray]:
    """Losses by the loops, weights number by number from all gradients so far."""
    r, first = case.recipe, parameters_in(a)
    times = step_sizes(case.config)
    p, history = first, {name: [] for name in first}
    losses, norms, rates = [], [], []
    for tokens, targets in zip(a["tokens"], a["targets"], strict=True):
        t = len(losses) + 1
        losses.append(model(case, {name: x.tolist() for name, x in p.items()}, tokens, targets)["loss"])
        g = training.loss_gradient(case, p, tokens, targets, training.PLAIN)[1]
        norms.append(math.sqrt(math.fsum(z * z for x in g.values() for z in x.ravel().tolist())))
        half = (1 + math.cos(math.pi * (t - r["warmup"]) / (r["steps"] - r["warmup"]))) / 2
        rates.append(
            r["rate"] * (t / r["warmup"] if t <= r["warmup"] else r["floor"] + (1 - r["floor"]) * half)
        )
        p = {}
        for name, x in first.items():
            size = times.get(name, 1.0)
            history[name].append(g[name] * min(1.0, r["clip"] / norms[-1]))
            series = np.stack(history[name], -1).reshape(x.size, t).tolist()
            eta, lam = [z * size for z in rates], r["decay"] / size if decays(name, x) else 0.0
            numbers = zip(x.ravel().tolist(), series, strict=True)
            new = [adamw(theta, gs, eta, r["beta1"], r["beta2"], r["eps"], lam)[0] for theta, gs in numbers]
            p[name] = np.array(new).reshape(x.shape)
    found = {
        name: np.array(x, np.float64) for name, x in (("losses", losses), ("norms", norms), ("rates", rates))
    }
    return found | {f"final.{name}": x for name, x in p.items()}


def trace(case: Case, a: Any) -> dict[str, np.ndarray]:
    """The rows between two fresh calls in one piece, without a cache; a row turns by the length of its own
    call.
    """
    p = {name.removeprefix("param."): x.tolist() for name, x in a.items() if name.startswith("param.")}
    starts = [first for first, _, fresh, _ in case.calls if fresh]
    pieces: dict[str, list[Any]] = {}
    for begin, end in pairwise([*starts, case.T]):
        calls = [(first - begin, stop - begin, n) for first, stop, _, n in case.calls if begin <= first < end]
        loop = by_call(witness.loop_of(case), calls) if case.hook == "rotate" else witness.loop_of(case)
        for b in range(case.B):
            i = case.at.i[..., begin:end]
            part = {
                name: (a[name][b, begin:end] if name == "x" else a[name][b][:, begin:end]).tolist()
                for name in "xqkv"
                if name in a
            }
            for name, rows in witness.one(
                case, loop, p, part, (i[:, b] if i.ndim == 3 else i[b] if i.ndim == 2 else i).tolist()
            ).items():
                if name in ("out", "y"):
                    pieces.setdefault(name, [[] for _ in range(case.B)])[b].append(np.array(rows, np.float64))
    return {
        name: np.stack([np.concatenate(found, 0 if name == "y" else 1) for found in rows])
        for name, rows in pieces.items()
    }


def by_call(loop: Any, calls: list[tuple[int, int, int]]) -> Any:
    """A rotation whose rows have the length n of their own call."""

    joined = lambda parts: [row for part in parts for row in part]

    def rotate(p: Any, i: Rows, n: int) -> tuple[Any, ...]:
        several = isinstance(i[0], list)
        found = [
            loop(p, [axis[first:stop] for axis in i] if several else i[first:stop], n)
            for first, stop, n in calls
        ]
        angle, *gains = zip(*found, strict=True)
        if isinstance(angle[0][0][0], list):  # heads turn apart
            whole = [joined(parts) for parts in zip(*angle, strict=True)]
        else:
            whole = joined(angle)
        return whole, *(None if gain[0] is None else joined(gain) for gain in gains)

    return rotate
