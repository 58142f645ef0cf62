"""Parameters that are kept in fewer bits, left out, exchanged, of another layer, with axes or rows in another
order.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from peref.config import Config
from peref.golden.spec.files import LOW
from peref.trace_diff.steps import Engine, Said


def owner(name: str) -> int:
    """The layer of a parameter, -1 for none."""
    first = name.partition(".")[0]
    return int(first) if first.isdecimal() else -1


def of_weights(engine: Engine, layer: int) -> Iterator[Said]:
    """All of them in fewer bits; those of a layer, or of none: left out, of another name, of another layer,
    with axes or rows in another order.
    """
    p = engine.params
    for dtype, low in LOW.items():
        kept = {name: low(a) for name, a in p.items()}
        yield f"the weights are kept in {dtype}", "they have more bits in the run", {"params": kept}
    mine = [name for name in p if owner(name) == layer]
    says, bare = "it is as it stands in the weights", lambda name: name.partition(".")[2]
    for name in mine:
        for words, a in edited(engine.cfg, name, p[name]):
            yield f"{name} {words}", says, {"params": {name: a}}
    for words, some in several_edited(engine, layer):
        yield words, "they are as they stand in the weights", {"params": some}
    for name in mine:
        for other in p:
            near = owner(other) in (layer, -1) or bare(name) == bare(other)
            if near and other != name and p[other].shape == p[name].shape:
                yield f"{name} is {other}", "it is its own", {"params": {name: p[other]}}


def edited(cfg: Config, name: str, a: Any) -> Iterator[tuple[str, Any]]:
    """A parameter in other forms."""
    if a.ndim == 1:
        yield "is left out", np.full(a.shape, 1.0 - cfg.norm_from_one if name.endswith(".weight") else 0.0)
        yield "has the opposite sign", -a
        yield "is in the opposite order", a[::-1]
        yield "is that of the next one", np.roll(a, -1)
        if name.endswith(".weight"):
            yield "is taken as 1 + weight", a + 1
            yield "is taken as the weight, not as 1 + weight", a - 1
        elif name.endswith(".sinks"):
            yield "is taken as weights, not as logits", np.log(np.abs(a))
            yield "is scaled as logits are", a * cfg.D**-0.5
    if a.ndim == 2 and a.shape[0] == a.shape[1]:
        yield "is transposed", a.T
    if a.ndim == 3:
        yield "has its last axes in another order", a.swapaxes(-1, -2).reshape(a.shape)
    if a.ndim > 1:
        yield "is read with its axes exchanged", a.T.reshape(a.shape)
    for words, order in head_rows(cfg, name.partition(".")[2]).items():
        yield words, a[:, order] if name.endswith("o.weight") else a[order]


def head_rows(cfg: Config, role: str) -> dict[str, np.ndarray]:
    """Orders of the rows of q, k, v, and of the columns of o, that somebody may take for theirs."""
    heads = {"q.weight": cfg.H, "o.weight": cfg.H, "k.weight": cfg.G, "v.weight": cfg.G}.get(role)
    if not heads:
        return {}
    dealt = lambda groups: np.arange(heads * cfg.D).reshape(-1, groups, cfg.D).swapaxes(0, 1).ravel()
    found = {
        "has its heads channel by channel": np.arange(heads * cfg.D).reshape(cfg.D, heads).T.ravel(),
        "has its heads in the opposite order": np.arange(heads * cfg.D).reshape(heads, -1)[::-1].ravel(),
    }
    if heads == cfg.H and 1 < cfg.G < cfg.H:
        found["has its heads in the order of places in their groups"] = dealt(cfg.H // cfg.G)
        found["has its heads in the order of the groups"] = dealt(cfg.G)
    return found


def several_edited(engine: Engine, layer: int) -> Iterator[tuple[str, Any]]:
    """Parameters that change together: those of two maps exchanged; rows of q and k reordered for another
    layout; parts of one matrix cut at other places.
    """
    cfg, p = engine.cfg, engine.params
    maps: dict[str, dict[str, Any]] = {}
    for name in (name for name in p if owner(name) == layer >= 0):
        role, _, part = name.partition(".")[2].rpartition(".")
        maps.setdefault(role, {})[part] = p[name]
    shapes = {role: {part: a.shape for part, a in of.items()} for role, of in maps.items()}
    renamed = lambda role, of: {f"{layer}.{role}.{part}": a for part, a in of.items()}
    for a, b in combinations(maps, 2):
        if shapes[a] == shapes[b] and a and b:
            yield f"{layer}.{a} and {layer}.{b} are exchanged", renamed(a, maps[b]) | renamed(b, maps[a])
    if {"gate", "up"} <= maps.keys() and maps["up"]["weight"].ndim == 2:
        both = [f"{layer}.gate.weight", f"{layer}.up.weight"]
        w = np.concatenate([p[name] for name in both])
        in_turn = w.reshape(2, -1, w.shape[1]).swapaxes(0, 1).reshape(w.shape)
        said = f"{layer}.gate and {layer}.up are"
        yield f"{said} rows in turn, taken as two halves", dict(zip(both, np.split(in_turn, 2), strict=True))
        yield f"{said} two halves, taken as rows in turn", dict(zip(both, (w[::2], w[1::2]), strict=True))
    if "q" in maps:
        yield from of_projections(cfg, {role: p[f"{layer}.{role}.weight"] for role in "qkv"}, maps, layer)


def of_projections(cfg: Config, w: Any, maps: Any, layer: int) -> Iterator[tuple[str, Any]]:
    """Rows of q and k in the order of another layout, or those of q, k and v cut out of one matrix."""
    H, G, D = cfg.H, cfg.G, cfg.D
    R = cfg.R or D // 2 * 2
    n = np.arange(R)
    for words, order in (
        ("from interleaved to half, as for a layout that this model does not have", np.r_[n[::2], n[1::2]]),
        ("from half to interleaved, as llama.cpp's conversion of Llama does", n.reshape(2, -1).T.ravel()),
    ):
        rows = np.r_[order, R:D]
        moved = lambda a, rows=rows: a.reshape(-1, D, *a.shape[1:])[:, rows].reshape(a.shape)
        for some in ("qk", "q", "k"):
            names = [f"{layer}.{role}.weight" for role in some]
            said = f"rows of {' and '.join(names)} are reordered {words}"
            weights = {f"{layer}.{role}.weight": moved(w[role]) for role in some}
            yield said, weights
            if all(f"{role}norm" in maps for role in some):
                norms = {f"{layer}.{role}norm.weight": moved(maps[f"{role}norm"]["weight"]) for role in some}
                yield f"{said}, with their norms", weights | norms
    stacked, C = np.concatenate([w[role] for role in "qkv"]), w["q"].shape[1]
    each = [w[role].reshape(G, -1, D, C) for role in "qkv"]
    grouped = np.split(stacked.reshape(G, -1, D, C), [H // G, H // G + 1], 1)
    behind = np.split(np.concatenate(each, 1).reshape(-1, C), [H * D, (H + G) * D])
    said = f"q, k and v of layer {layer} are cut out of one matrix"
    for words, parts in (
        ("as groups of heads, which it has one behind the other", grouped),
        ("one behind the other, which it has as groups of heads", behind),
    ):
        cut = {f"{layer}.{role}.weight": a.reshape(-1, C) for role, a in zip("qkv", parts, strict=True)}
        yield f"{said} {words}", cut
