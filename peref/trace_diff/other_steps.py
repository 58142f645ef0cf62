"""A step made another way: other angles and tables, left out, taken at another place, from another tensor."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from peref import hooks
from peref.config import Config
from peref.encodings import get, options
from peref.golden.diagnosis.attention import GROUPINGS, ROUNDED_STEPS, SEEN, SOFTMAX
from peref.golden.diagnosis.biases import BIASES
from peref.golden.diagnosis.engine import WRAPS, applies, hooked, placed
from peref.golden.diagnosis.rotation import FEW, OF_ANGLES
from peref.golden.spec.cases import Case
from peref.layers import inner, linear, norm
from peref.member import Layer, encodings_of
from peref.model import PLAIN
from peref.ops.activation import logistic
from peref.ops.attention import NO_TERMS, probabilities, scores, weigh
from peref.ops.gelu_exact import gelu_exact
from peref.ops.norm import rms_norm
from peref.ops.scaled import softcapped
from peref.ops.shape import split_heads
from peref.parameters import norms_of
from peref.passes import Pass, start_pass
from peref.trace import OF_LAYER
from peref.trace_diff.steps import Engine, Said, Steps, Way

# mistakes in angles, biases and masks that golden cases are told, with a flag that says what is wrong
of_hooks = lambda row: row.flag != "basic" and row.change.keys() <= {*WRAPS, "see", "parts"}
OF_CASES = [*filter(of_hooks, (*OF_ANGLES, *BIASES, *SEEN))]
PRECISE = "it is computed in float32 or wider, and rounded afterwards"
has_rotation = lambda cfg, kind: kind.pe.rotate is not None
norms_heads = lambda cfg: cfg.unit_heads or (cfg.qk_norm and cfg.qk_norm_over == "head")
attends = lambda cfg, kind: not (kind.pe.mix or kind.pe.attend)  # by a softmax
TEMPERATURES: dict[str, Callable] = {  # of (the factor at positions, these, the factor there)
    "is of the position after": lambda f, i, factor: f(i + 1),
    "is of the position before": lambda f, i, factor: f(np.maximum(i - 1, 0)),
    "divides": lambda f, i, factor: 1 / factor,
    "is there twice": lambda f, i, factor: factor * factor,
    "is that of the last token": lambda f, i, factor: 0 * factor + factor[..., -1:],
}


def as_cases(engine: Engine, layer: int) -> Iterator[Case]:
    """Attention of a layer as golden cases have it, one for each of its encodings."""
    cfg, kind, (name, given) = engine.cfg, engine.cfg.layer(layer), engine.cfg.pe[layer % len(engine.cfg.pe)]
    facts: dict[str, Any] = {fact: getattr(cfg, fact) for fact in (*"HGDCLR", "causal", "layout")}
    for one in encodings_of(name) if attends(cfg, kind) else ():
        own = {o: given[key] for o in options(get(one)) for key in (o, f"{one}.{o}") if key in given}
        case = Case(one, "attn", "", "", options=own, seg=engine.at.seg, **facts)
        vars(case)["at"] = engine.made.places[layer]
        yield case


def as_in_case(change: dict[str, Any], case: Case, this: Pass) -> Pass:
    """A pass with what is changed in a golden case changed in all layers that it is of."""
    cfg = this.cfg.with_encodings(lambda pe: hooked(pe, change, case) or pe)
    new = start_pass(PLAIN, cfg, this.params, this.at, memory=this.memory)
    places, tables = [placed(change, at, case) or at for at in new.places], list(new.tables)
    for n, (at, was) in enumerate(zip(places, new.places, strict=True)):
        if at is not was:  # where others are seen there are other distances
            distances = hooks.place_tables(PLAIN, cfg.layer(n).pe, new.inside[n], at)[1]
            tables[n] = tables[n]._replace(distances=distances)
    return replace(new, places=places, tables=tables)


def of_tables(engine: Engine, layer: int) -> Iterator[Said]:
    """Other angles, gains, biases and masks, and other factors on queries."""
    kind, i = engine.cfg.layer(layer), engine.at.i
    for case in as_cases(engine, layer):
        for row in OF_CASES:
            if applies(case, row.change) and row.when(case):
                once = {"once": partial(as_in_case, row.change, case)}
                says = PRECISE if row.flag == FEW else "see what the config says of it"
                yield f"layer {layer}: {row.words}", says, once

    def with_factor(f: Callable) -> Callable:
        now = lambda factor: None if factor is None else f(kind.factor, i, factor)
        return lambda this: replace(this, tables=[t._replace(factor=now(t.factor)) for t in this.tables])

    for words, f in TEMPERATURES.items() if kind.temperature != "none" else ():
        says = f"it is {kind.temperature} at the positions of the trace (peref explain temperature)"
        yield f"layer {layer}: the temperature {words}", says, {"once": with_factor(f)}


def turned(t: Steps, x: Any, role: int = 0) -> Any:
    return hooks.turn_heads(PLAIN, x, x, t.rotation, layout=t.kind.layout)[role]


def last_turned(role: int) -> Way:
    """The last channels turn, not the first."""
    back = lambda t: -2 * t.rotation[0].shape[-1]
    return lambda t, x: np.roll(turned(t, np.roll(t("qk"[role]), -back(t), -1), role), back(t), -1)


def unnormed(role: str) -> Way:
    """q or k as it is projected."""
    heads = lambda t: t.this.cfg.H if role == "q" else t.this.cfg.G
    return lambda t, x: split_heads(linear(t.this, t.weights, role, t("normed")), heads=heads(t))


def normed_behind(role: str) -> Way:
    """q or k, turned already, normed."""

    def way(t: Steps, x: Any) -> Any:
        x = norm(t.this, t.weights, f"{role}norm", x, "rms") if t.this.cfg.qk_norm else x
        return rms_norm(x, None, eps=t.this.cfg.eps) if t.this.cfg.unit_heads else x

    return way


def logits_of(t: Steps, k: Any, softcap: float | None) -> Any:
    """What scores are of these keys, with what is added."""
    return scores(t("q_turned"), k, *NO_TERMS, at=None, scale=t.scale, softcap=softcap) + t("bias")


def uncapped(t: Steps) -> Any:
    return logits_of(t, t("k_turned"), None)


def reading_heads(order: Callable) -> dict[str, Way]:
    """Query heads that read other key-value heads; order(h, H, G)."""
    heads = lambda H, G: [order(h, H, G) for h in range(H)]
    other = lambda t, x: x[:, heads(t.this.cfg.H, t.this.cfg.G)]
    return {
        "scores": lambda t, x: logits_of(t, other(t, t("k_turned")), t.kind.softcap),
        "heads": lambda t, x: weigh(t("probabilities"), other(t, t("v"))),
    }


def another_softmax(change: Callable) -> dict[str, Way]:
    """change(probabilities, logits where they are seen else -inf, None) -> probabilities."""
    seen = lambda t: np.where(t.see, t("scores"), -np.inf)
    return {"probabilities": lambda t, x: np.nan_to_num(change(x, seen(t), None), nan=0.0)}


def biased_across(t: Steps, x: Any) -> Any:
    d, where = np.unique(t.this.at.i[:, None] - np.arange(x.shape[-1]), return_inverse=True)
    table = hooks.distance_table(PLAIN, t.kind.pe, t.this.inside[t.n], d)
    return x if table is None else x + table[:, where.reshape(x.shape[2:])]


def causal_across(t: Steps, x: Any) -> Any:
    see: Any = SimpleNamespace(see=np.tri(*x.shape[-2:], dtype=bool))
    return probabilities(t("cross_scores"), at=see)


def capped_behind_mask(t: Steps, x: Any) -> Any:
    cap: Any = t.kind.softcap
    e = np.exp(np.where(t.see, softcapped(uncapped(t), cap=cap), -cap))
    return e / e.sum(-1, keepdims=True)


def merged(t: Steps, x: Any) -> Any:
    """Heads merged without exchanging heads and tokens."""
    return linear(t.this, t.weights, "o", t("heads").reshape(*t("normed").shape[:2], -1))


def gate(f: Callable) -> dict[str, Way]:
    """Another function of a feed-forward's gate."""

    def way(t: Steps, x: Any) -> Any:
        of_gate, up = inner(t.this, t.weights, t("ffn_normed"))
        return linear(t.this, t.weights, "down", f(of_gate) * up)

    return {"ffn": way}


NORM_BEHIND: dict[str, Way] = {role: unnormed(role) for role in "qk"}
NORM_BEHIND |= {f"{role}_turned": normed_behind(role) for role in "qk"}


class Rows(NamedTuple):
    """Ways to compute steps, by what theirs does, in layers that are so; and what is right."""

    when: Callable[[Config, Layer], Any]
    says: str
    ways: dict[str, dict[str, Way]]


OTHER_WAYS = (
    Rows(
        has_rotation,
        "q and k turn, the first channels of each head",
        {
            "v turns as well": {"heads": lambda t, x: weigh(t("probabilities"), turned(t, t("v")))},
            "the last channels of a head turn": {"q_turned": last_turned(0), "k_turned": last_turned(1)},
        },
    ),
    Rows(
        lambda cfg, kind: has_rotation(cfg, kind) and norms_heads(cfg),
        "QK-norm comes before q and k turn",
        {"QK-norm stands behind the rotation": NORM_BEHIND},
    ),
    Rows(
        lambda cfg, kind: attends(cfg, kind) and cfg.G > 1,
        "query head h reads key-value head h // (H/G)",
        {words: reading_heads(order) for words, order in GROUPINGS.items()},
    ),
    Rows(
        attends,
        "probabilities are the softmax of the scores over the keys that a token sees",
        {words: another_softmax(change) for words, change in (SOFTMAX | ROUNDED_STEPS).items()},
    ),
    Rows(
        lambda cfg, kind: attends(cfg, kind) and kind.pe.score is not None,
        "what the encoding says is added to the scaled logits",
        {
            "what is added to the logits is scaled too": {
                "scores": lambda t, x: x + (t.scale - 1) * t("bias")
            },
            "what is added to the logits is left out": {"bias": lambda t, x: 0 * x},
            "what is added to the logits has the opposite sign": {"bias": lambda t, x: -x},
            "what is added to the logits counts twice": {"bias": lambda t, x: 2 * x},
        },
    ),
    Rows(
        lambda cfg, kind: cfg.cross,
        "attention to the encoder has the softmax scale of the layer, no bias, and sees every key",
        {
            "attention to the encoder is scaled by D^-0.5": {
                "cross_scores": lambda t, x: x * t.this.cfg.D**-0.5 / t.scale
            },
            "attention to the encoder has the bias of attention to itself": {"cross_scores": biased_across},
            "attention to the encoder has a causal mask": {"cross_probabilities": causal_across},
        },
    ),
    Rows(
        lambda cfg, kind: kind.softcap,
        "it is of the scaled logits, before what is added and before the mask",
        {
            "the softcap stands behind the mask": {"probabilities": capped_behind_mask},
            "the softcap is behind what is added": {
                "scores": lambda t, x: softcapped(uncapped(t), cap=t.kind.softcap)
            },
            "the softcap has tanh without its factor": {"scores": lambda t, x: x / t.kind.softcap},
        },
    ),
    Rows(
        lambda cfg, kind: not kind.pe.mix,
        "channels of a head stand side by side, one head behind the other",
        {"heads are merged without exchanging heads and tokens": {"output": merged}},
    ),
    Rows(
        lambda cfg, kind: cfg.gated and not kind.experts,
        "the function of the gate is the config's activation",
        {
            "the gate is a sigmoid": gate(logistic),
            "the gate is a relu": gate(lambda x: np.maximum(x, 0)),
            "the gate is a tanh": gate(np.tanh),
            "the gate is left linear": gate(lambda x: x),
            "the gate is gelu by erf": gate(gelu_exact),
            "the gate is x sigmoid(1.702 x)": gate(lambda x: x * logistic(1.702 * x)),
        },
    ),
)
ADDED = (  # what a sublayer gives, the norm behind it, the stream after it
    ("output", "after1", "residual"),
    ("cross_output", "after_cross", "cross_residual"),
    ("ffn", "after2", "leaving"),
)
ENDS: dict[str, dict[str, Way]] = {
    "the last norm is left out": {"final": lambda t, x: t("leaving")},
    "the head reads the stream without the last norm": {"logits": lambda t, x: t.logits(t("leaving"))},
    "the loss is summed, not a mean": {"loss": lambda t, x: t.cross_entropies()[1].sum()},
    "the loss is a mean over all tokens": {"loss": lambda t, x: t.cross_entropies()[1].mean()},
    "the loss is of the same token, not of the next": {"loss": lambda t, x: t.cross_entropies(0)[0]},
}


def of_rows(engine: Engine, layer: int) -> Iterator[Said]:
    """A step made another way, in the layers where that means something."""
    where = lambda rows, way: lambda t, x: way(t, x) if rows.when(t.this.cfg, t.kind) else x
    for rows in (rows for rows in OTHER_WAYS if rows.when(engine.cfg, engine.cfg.layer(layer))):
        for words, ways in rows.ways.items():
            some = {step: where(rows, way) for step, way in ways.items()}
            yield f"layer {layer}: {words}", rows.says, {"ways": some}


def of_streams(engine: Engine, layer: int) -> Iterator[Said]:
    """An earlier tensor in the place of another, the sum of two others, the norm of another."""
    has = norms_of(engine.cfg)
    taken = lambda one: lambda t, x: t(one)
    plus = lambda one, y, sign: lambda t, x: t(one) + sign * t(y)
    normed = lambda name, way: lambda t, x: norm(t.this, t.weights, name, way(t, x))
    ways: list[tuple[str, str, Way]] = []
    steps = [step for step in OF_LAYER if engine.cfg.cross or not step.startswith("cross_")]
    alike = lambda step: [one for one in steps if OF_LAYER[one][0] == OF_LAYER[step][0]]
    for step in steps:
        earlier = alike(step)[: alike(step).index(step)]
        ways += [(step, one, taken(one)) for one in earlier]
        if step == "ffn_normed" and "norm2" in has:
            # the norms of input and residual are Config's residual
            others = [one for one in earlier if one not in ("input", "residual")]
            ways += [(step, f"the norm of {one}", normed("norm2", taken(one))) for one in others]
        for y, name, before in ADDED:
            for one in earlier if step == before else ():
                ways += [(step, f"{one} + {y}", plus(one, y, 1)), (step, f"{one} - {y}", plus(one, y, -1))]
                behind = (step, f"the norm of {one} + {y}", normed(name, plus(one, y, 1)))
                ways += [behind] if name in has else []
    for step, words, way in ways:
        yield f"layer {layer}: {step} is {words}", f"it is {OF_LAYER[step][1]}", {"ways": {step: way}}


def of_ends(engine: Engine, _: int) -> Iterator[Said]:
    """What stands before the first layer and behind the last."""
    for words, ways in ENDS.items():
        yield words, "see the config", {"ways": ways}
    for words, by in (("late", 1), ("early", -1)):
        change = {"tokens": np.roll(engine.tokens, by, 1)}
        yield f"tokens are embedded one place too {words}", "they are those of the trace", change
    e = engine.params["embed.weight"]
    if not engine.cfg.tied:
        yield "the head is embed.weight", "it is head.weight", {"params": {"head.weight": e}}
    unit = {"embed.weight": e / np.linalg.norm(e, axis=1, keepdims=True)}
    yield "rows of embed.weight are scaled to length 1", "they are as they stand", {"params": unit}
