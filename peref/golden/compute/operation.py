"""What a case computes: its inputs, its outputs, and for random cotangents the products with the Jacobian.

    table   embed: rows    rotate: angle, cos, sin, gain_q, gain_k    bias: bias [H,N] at each of the
            `distances`
    op      embed: y       rotate: q_rotated, k_rotated    bias: bias [H,T,T]    score: term [B,H,T,T]    mix:
            y, the layer's output, 0 at padding; of a case with `before`, from state.NAME (where it is not 0)
            to the last state, last.NAME
    attn    scores and probabilities [B,H,T,T], 0 where a query does not look, and out [B,H,T,D]; of `attend`
            only out

vjp.NAME is the gradient of sum(cotangent.OUTPUT * OUTPUT) with respect to the input NAME, over the outputs
that have a cotangent. Inputs are k/128 with |k| <= 255, parameters have 8 significant bits: bfloat16,
float16, float32 and float64 hold both exactly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref import hooks
from peref.backends import Backend
from peref.encodings import Encoding, settings
from peref.golden.spec.cases import Case
from peref.model import PLAIN
from peref.ops.attention import added, masked, probabilities, scores, sunk, weigh
from peref.ops.place import At
from peref.ops.shape import only
from peref.parameters import Arrays, learned_settings
from peref.rng import generator
from peref.tape import Tape, Var, value

WITH_AXES = {  # under the letters of their axes, as the package has them; P pairs
    "BHTD": ("q", "q_rotated", "out"),
    "BGTD": ("k", "v", "k_rotated"),
    "BHTS": ("term", "scores", "probabilities"),
    "BTC": ("x", "y"),
    "TC": ("rows",),
    "TP": ("angle", "cos", "sin", "gain_q", "gain_k"),
    "BT": ("tokens", "targets"),
    "BTV": ("logits",),
}
AXES = {name: letters for letters, names in WITH_AXES.items() for name in names}
DIFFERENTIATED = {  # level -> outputs that have a cotangent where they depend on an input
    "table": ("rows", "angle", "bias"),
    "op": ("y", "q_rotated", "k_rotated", "bias", "term"),
    "attn": ("out",),
}


def axes_of(case: Case, tensor: str) -> str:
    """The letters of a tensor's axes, "" where none are known."""
    name = tensor.removeprefix("vjp.")
    if name == "bias":
        return "HN" if case.level == "table" else "HTS"
    found = AXES.get(name, "")
    if name in ("angle", "cos", "sin") and turns_apart(case.config.encoding(0)):
        found = f"G{found}"
    return f"B{found}" if name in ("rows", "angle", "cos", "sin") and case.at.i.ndim == 2 else found


def turns_apart(pe: Encoding) -> bool:
    """Whether each head of the keys turns by angles of its own, [1,G,T,R/2] or of sequences [B,G,T,R/2]."""
    return pe.rotate is not None and "G" in settings(pe.init)


def rounded(x: Any) -> np.ndarray:
    """The nearest number of 8 significant bits, in steps of at least 2**-14."""
    x = np.asarray(x, np.float64)
    exponent = np.maximum(np.frexp(x)[1] - 1, -7) - 7
    return np.asarray(np.ldexp(np.rint(np.ldexp(x, -exponent)), exponent))


def needs(case: Case) -> str:
    """Which of x, q, k, v it takes."""
    pe, level = case.config.encoding(0), case.level
    found = "x" if pe.features or pe.mix or (pe.embed and level != "table") else ""
    if level in ("attn", "trace") and not (pe.mix or pe.embed):
        return found + "qkv"
    return found + "qk" * (level == "op" and case.hook in ("rotate", "score"))


def on_grid(rng: Any, shape: Any) -> np.ndarray:
    """k/128, |k| <= 255."""
    return np.asarray(rng.integers(-255, 256, shape) / 128)


def place_inputs(case: Case) -> Arrays:
    """Where its tokens are."""
    found: Arrays = {"positions": np.array(case.at.i)}
    return found if case.seg is None else found | {"seg": np.array(case.at.seg)}


def given_inputs(case: Case, rng: Any, off: float) -> Arrays:
    """All but cotangents; parameters are so far off where init puts them."""
    found = place_inputs(case)
    if case.hook == "bias" and case.level == "table":
        found["distances"] = np.array(case.at.distances)
    found |= {name: on_grid(rng, [getattr(case, letter) for letter in AXES[name]]) for name in needs(case)}
    learned = learned_settings(case.layer, case.H, case.L) if case.level in ("attn", "trace") else {}
    for name, a in (case.config.encoding(0).init(rng) | learned).items():
        found[f"param.{name}"] = rounded(np.asarray(a, np.float64) + off * rng.standard_normal(np.shape(a)))
    if case.before:
        x = on_grid(rng, [case.B, case.before, case.C])
        pe, p = case.config.encoding(0), parameters_in(found)
        last = hooks.mixed_from(PLAIN, pe, p, x, At.of(case.before), {})[1]
        found |= {f"state.{name}": rounded(a) for name, a in last.items()}
    return found


def operation_inputs(case: Case) -> Arrays:
    """All that goes in, cotangents included."""
    rng, tape = generator(0, case.id), Tape()
    found = given_inputs(case, rng, case.off)
    outputs = operate(case, found | {name: tape.watch(found[name]) for name in watched(found)})
    for name, y in outputs.items():
        if isinstance(y, Var) and (name in DIFFERENTIATED[case.level] or name.startswith("last.")):
            found[f"cotangent.{name}"] = on_grid(rng, y.shape)
    return found


def watched(given: Arrays) -> list[str]:
    """The inputs that have a gradient."""
    return [name for name in given if name in ("x", "q", "k", "v") or name.startswith(("param.", "state."))]


def named_in(a: Arrays, kind: str) -> Arrays:
    """Those of the inputs whose names begin so ("param.", "state."), under what follows."""
    return {name.removeprefix(kind): x for name, x in a.items() if name.startswith(kind)}


def parameters_in(a: Arrays) -> Arrays:
    """The parameters among inputs, under their own names."""
    return named_in(a, "param.")


def operate(
    case: Case, a: Arrays, pe: Encoding | None = None, at: At | None = None, be: Backend | None = None
) -> Arrays:
    """The outputs for inputs `a`, arrays or on a tape; `pe` and `at` in place of the case's own where
    given. `be` computes, PLAIN unless given; where it has the arrays elsewhere, `at` is there too.
    """
    be = PLAIN if be is None else be  # asked for here: mutants put another in its place
    pe, at = case.config.encoding(0) if pe is None else pe, case.at if at is None else at
    p, (x, q, k, v) = parameters_in(a), map(a.get, "xqkv")
    match case.hook, case.level:
        case "embed", "table":
            return {"rows": hooks.position_rows(pe, p, at.i)}
        case "embed", _:
            return {"y": hooks.with_position(pe, p, x, at.i)}
        case "rotate", "table":
            angle, *gains = hooks.rotation(pe, p, at.i, at.n)
            return turned_by(only(angle) if turns_apart(pe) and at.i.ndim == 1 else angle, *gains)
        case "rotate", "op":
            turned = hooks.turn_heads(be, q, k, hooks.rotation(pe, p, at.i, at.n), layout=case.layout)
            return dict(zip(("q_rotated", "k_rotated"), turned, strict=True))
        case "bias", "table":
            return {"bias": hooks.distance_table(be, pe, p, at.distances)}
        case "bias", "op":
            table = hooks.distance_table(be, pe, p, at.distances)
            dtype = value(table).dtype
            return {"bias": only(added(table, None, None, None, at=at, B=1, H=case.H, dtype=dtype))}
        case "score", "op":
            terms = hooks.score_terms(be, pe, p, q, k, hooks.features(be, pe, p, x, at)[0], at)
            return {"term": added(None, *terms, at=at, B=case.B, H=case.H, dtype=value(q).dtype)}
        case "mix", _:
            y, last = hooks.mixed_from(be, pe, p, x, at, named_in(a, "state."))
            # what a layer says of padding means nothing
            found = {"y": y if at.seg is None else masked(y, at.seg[..., None] != 0)}
            return found | ({} if case.before is None else {f"last.{n}": one for n, one in last.items()})
    return attended(case, pe, p, x, q, k, v, at, be)


def turned_by(angle: Any, gain_q: Any, gain_k: Any) -> Arrays:
    """The table of a rotation: gains only where there are some."""
    gains = {"gain_q": gain_q, "gain_k": gain_k}
    found = {"angle": angle, "cos": np.cos(value(angle)), "sin": np.sin(value(angle))}
    return found | {name: value(gain) for name, gain in gains.items() if gain is not None}


def attended(
    case: Case, pe: Encoding, p: Arrays, x: Any, q: Any, k: Any, v: Any, at: At, be: Backend
) -> Arrays:
    """Attention, and what is seen of it on the way where it is a softmax of the plain ops."""
    found: Arrays = {}

    def in_steps(q: Any, k: Any, v: Any, *terms: Any, at: At, **settings: Any) -> Any:
        *added, sinks = terms
        logits = scores(q, k, *added, at=at, **settings)
        share = probabilities(logits, at=at) if sinks is None else sunk(logits, sinks, at=at)
        found.update(scores=np.where(at.see, value(logits), 0), probabilities=value(share))
        return weigh(share, v)

    be = replace(PLAIN, attention=in_steps) if be is PLAIN and not pe.attend else be
    how = case.layer.of_heads(p, case.layer.factor(at.i))
    out, _ = hooks.attend_heads(be, pe, p, q, k, v, x, at, **how)
    return found | {"out": out}


def operation_outputs(
    case: Case, a: Arrays, pe: Encoding | None = None, at: At | None = None, tape: Tape | None = None
) -> Arrays:
    """Outputs and products with the Jacobian, for inputs with their cotangents, where there are any; on
    `tape` where one is given.
    """
    return with_gradients(lambda a: operate(case, a, pe, at), a, tape)


def with_gradients(compute: Callable[[Arrays], Arrays], a: Arrays, tape: Tape | None = None) -> Arrays:
    """What compute(a) gives, bare, and the gradients of inputs for the cotangents in `a`."""
    tape = Tape() if tape is None else tape
    leaves = watched(a) if any(name.startswith("cotangent.") for name in a) else []
    on_tape = {name: tape.watch(a[name]) for name in leaves}
    outputs = compute({**a, **on_tape})
    found = {name: np.asarray(value(y)) for name, y in outputs.items()}
    judged = [name for name in outputs if f"cotangent.{name}" in a]
    if judged:
        y = tuple(outputs[name] for name in judged)
        dy = tuple(np.asarray(a[f"cotangent.{name}"], outputs[name].dtype) for name in judged)
        gradients = tape.gradients(y, dy)
        found |= {f"vjp.{name}": gradients[leaf] for name, leaf in on_tape.items()}
    return found
