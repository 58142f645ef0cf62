"""Guesses at attention: who sees whom, which of scores, probabilities and output is wrong first, heads,
scale.

Not here: what is added to the logits (biases, options), how q and k turn (rotation).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import NEARLY, SHOWN, Answer, Clue, Guess, Trap, flag_of_scale, guess
from peref.golden.diagnosis.engine import Row, attends, computed, family, guesses, rows
from peref.golden.diagnosis.rotation import in_few
from peref.golden.diagnosis.tensor import factor_in, factor_of
from peref.golden.spec.cases import Case
from peref.hooks import softmax_scale

packed = lambda case: case.seg is not None
sees_past = lambda case: attends(case) and case.causal
in_window = lambda case: attends(case) and case.window
in_groups = lambda case: attends(case) and case.G > 1
has_sinks = lambda case: attends(case) and case.options.get("sinks")
DOCUMENTS, BOTH = "mask.documents", "documents and padding see one another"


def seen_all(see: Any, t: Any, s: Any, case: Any) -> Any:
    """Every key of the sequence, distances as they were."""
    open_ = (s <= t) | (not case.causal)
    near = abs(t - s) < (case.window or np.inf)
    return np.broadcast_to(open_ & near, (case.B, 1, case.T, case.T))


def reading(order: Any, which: str = "kv") -> dict[str, Any]:
    """Query head h reads key-value head order(h, H, G)."""
    right = lambda h, H, G: h // (H // G)

    def inputs(a: Any, case: Any) -> Any:
        reads = {n: order if n in which else right for n in "kv"}
        return {n: a[n][:, [f(h, case.H, case.G) for h in range(case.H)]] for n, f in reads.items()}

    without = lambda found, answer: {n: x for n, x in found.items() if n not in ("vjp.k", "vjp.v")}
    return {"facts": lambda c: {"G": c.H}, "inputs": inputs, "outputs": without}


GROUPINGS = {
    "query head h reads key-value head h mod G, expected h // (H/G)": lambda h, H, G: h % G,
    "the order of your key-value heads is reversed": lambda h, H, G: G - 1 - h // (H // G),
    "every query head reads the first key-value head": lambda h, H, G: 0,
    "every query head reads the last key-value head": lambda h, H, G: G - 1,
}
off_by = lambda n: lambda h, H, G: (h // (H // G) - n) % G
GROUPINGS |= {f"your key-value heads are off by {'one' if n == 1 else n}": off_by(n) for n in range(1, 4)}


def softmax(change: Any) -> Any:
    """change(probabilities, logits where they are seen else -inf, case) -> weights; no derivatives."""

    def outputs(found: Any, answer: Answer) -> Any:
        case = answer.case
        if case is None or "scores" not in found:
            return None
        s = np.where(case.at.see, found["scores"], -np.inf)
        with np.errstate(all="ignore"):
            p = np.nan_to_num(change(found["probabilities"], s, case), nan=0.0)
        v = np.repeat(answer.a["v"], case.H // case.G, 1)
        return {"scores": found["scores"], "probabilities": p, "out": p @ v}

    return outputs


raised = lambda x: np.exp(x - x.max(-1, keepdims=True))
to_one = lambda e: e / e.sum(-1, keepdims=True)
with_one = lambda e: e / (1 + e.sum(-1, keepdims=True))
seen_as_0 = lambda s: np.where(np.isfinite(s), s, 0)
SOFTMAX = {
    "your softmax has powers of 2": lambda p, s, c: to_one(p ** np.log(2)),
    "your softmax has one added to its sum": lambda p, s, c: with_one(np.exp(s)),
    "your softmax has one added to its sum, its largest logit taken off before": lambda p, s, c: with_one(
        raised(s)
    ),
    "your softmax goes over queries": lambda p, s, c: to_one(raised(s.swapaxes(2, 3))).swapaxes(2, 3),
    "your softmax goes over heads": lambda p, s, c: np.moveaxis(to_one(raised(np.moveaxis(s, 1, 3))), 3, 1),
    "masked cells count with a logit of 0": lambda p, s, c: to_one(raised(seen_as_0(s))) * np.isfinite(s),
    "masked cells are seen with a logit of 0": lambda p, s, c: to_one(raised(seen_as_0(s))),
    "the mean is missing: you have exponentials alone": lambda p, s, c: raised(s),
}
two_sided = lambda case: attends(case) and not case.causal
one_text = lambda case: sees_past(case) and not packed(case)
SEGMENTS = {  # as the mask has them; positions as they were
    BOTH: lambda seg: None,
    "padding is masked, documents are not told apart": lambda seg: (seg > 0) + 0,
    "padding is seen": lambda seg: np.where(seg == 0, seg.max(), seg),
    "padding belongs to the first document": lambda seg: np.where(seg == 0, 1, seg),
    "each sequence has the documents of the first": lambda seg: 0 * seg + seg[:1],
    "each sequence has the documents of the next": lambda seg: np.roll(seg, -1, 0),
}
WINDOWS = {
    f"your window is {abs(n)} too {'wide' if n > 0 else 'narrow'}": lambda at, c, n=n: {
        "window": max(at.window + n, 1)
    }
    for n in (1, -1, 2, -2, 3)
} | {"your window is not there": lambda at, c: {"window": None}}
BLOCKS = {
    "your window is a block": lambda see, t, s, c: see & (s // c.window == t // c.window),
    "your window is for the past alone": lambda see, t, s, c: (
        (t - s < c.window) & ((s <= t) | (not c.causal))
    ),
}
SCALES = {
    "your logits are not scaled": lambda s, case: 1.0,
    "your logits are scaled by 1/D": lambda s, case: 1 / case.D,
    "your logits are multiplied by sqrt(D)": lambda s, case: case.D**0.5,
    "your logits are scaled by C**-0.5": lambda s, case: case.C**-0.5,
    "your logits are scaled by R**-0.5": lambda s, case: (case.config.R or case.D) ** -0.5,
    "the scale of your logits counts twice": lambda s, case: s * s,
}
BY_ROOT = {"your logits are scaled by D**-0.5": lambda s, case: case.D**-0.5}
ROUNDED_STEPS = {
    **in_few("your weights were", lambda low: lambda p, s, c: low(p)),
    **in_few("your logits were", lambda low: lambda p, s, c: to_one(raised(low(s)))),
    **in_few("your exponentials were", lambda low: lambda p, s, c: to_one(low(raised(s)))),
}
OF_ROUNDED = {words: softmax(change) for words, change in ROUNDED_STEPS.items()}
OF_FEW_DIGITS = tuple(rows("attn.softmax", "outputs", OF_ROUNDED, attends, 0.98, True))
SEEN = tuple(
    Row("mask.causal", words, {"see": change}, when)
    for words, change, when in (
        ("your mask is causal", lambda see, t, s, c: see & (s <= t), two_sided),
        ("a token does not see itself", lambda see, t, s, c: see & (s != t), sees_past),
        ("a token sees the one after it", lambda see, t, s, c: see | (s == t + 1), one_text),
        ("a token sees what is after it alone", lambda see, t, s, c: s >= t, sees_past),
    )
)
sunk = lambda change: {"inputs": lambda a, c: {"param.sinks": change(a["param.sinks"], c)}}
WHO_SEES = (
    *(
        Row(DOCUMENTS, words, {"place": lambda at, c, change=change: {"seg": change(at.seg)}}, packed)
        for words, change in SEGMENTS.items()
    ),
    Row(DOCUMENTS, BOTH, {"see": seen_all}, lambda c: attends(c) and packed(c)),
    Row("mask.causal", "your mask is not causal", {"facts": lambda c: {"causal": False}}, sees_past),
    Row("mask.causal", "your mask is causal", {"facts": lambda c: {"causal": True}}, two_sided),
    *SEEN,
    *rows("mask.window", "see", BLOCKS, in_window),
    *rows("mask.window", "place", WINDOWS, in_window),
    Row("sinks.ignored", "your heads have no sinks", sunk(lambda s, c: s - np.inf), has_sinks),
    Row("sinks.scaled", "your sinks are scaled as logits are", sunk(lambda s, c: s * c.D**-0.5), has_sinks),
    *(
        Row("gqa.order", words + alone, reading(order, which), in_groups)
        for which, alone in (("kv", ""), ("k", " (keys alone)"), ("v", " (values alone)"))
        for words, order in GROUPINGS.items()
    ),
    Row("basic", "you add keys in place of values", {"inputs": lambda a, c: {"v": a["k"]}}, attends),
    *rows("attn.softmax", "outputs", {words: softmax(change) for words, change in SOFTMAX.items()}, attends),
    *rows(("options", "mscale_all_dim", "attn.scale"), "scale", BY_ROOT),
    *rows("attn.scale", "scale", SCALES),
)


@family()
def of_attention(answer: Answer, case: Any) -> Iterator[Guess | Clue]:
    """All that may be wrong about a mask, heads and scale."""
    yield from guesses(WHO_SEES if answer.rounded else (*WHO_SEES, *OF_FEW_DIGITS), answer)
    if case.level == "attn":
        yield from of_scale(answer, case)
        yield from of_steps(answer, case)


def of_scale(answer: Answer, case: Case) -> Iterator[Guess | Clue]:
    """What q k is multiplied with, found from the scores."""
    x = answer.wide("scores")
    if x is None or "scores" not in answer.wrong:
        return
    scale, g = softmax_scale(case.config.encoding(0), case.D), answer.want("scores")
    rest = computed(scale=lambda s, case: 0.0)(answer)["scores"]
    there = np.isfinite(x) & np.isfinite(g) & np.isfinite(rest)
    c = factor_of(x[there] - rest[there], g[there] - rest[there])
    if c is not None and abs(c - 1) > NEARLY:
        words = f"your logits are scaled by {c * scale:.6g}, expected {scale:.6g}"
        if answer.near("scores", rest + c * (g - rest)):
            yield Clue(Trap("attn.scale", words), SHOWN, True)
        yield guess("attn.scale", words, computed(scale=of_sizes(c * scale, scale, case)), 0.99)
    if (c := factor_in(answer, "scores")) is not None:
        words = f"your logits are the golden ones times {c:.6g}, with all that is added to them"
        yield guess(flag_of_scale(answer, "attn.scale"), words, computed(outputs=logits_times(c)), 0.97)


def logits_times(c: float) -> Any:
    of_logits = softmax(lambda p, s, case: to_one(raised(c * s)))

    def outputs(found: Any, answer: Answer) -> Any:
        made = of_logits(found, answer)
        return made and made | {"scores": c * made["scores"]}

    return outputs


def of_sizes(value: float, scale: float, mine: Any) -> Any:
    """That scale: as a power of D or C where it is one here, so that it is another elsewhere."""
    for power in (-0.25, -0.5, -1.0):
        for size in "DC":
            if abs(getattr(mine, size) ** power - value) < 1e-5 * abs(value):
                return lambda s, c, size=size, power=power: getattr(c, size) ** power
    return lambda s, case: value * s / scale


def of_steps(answer: Answer, case: Case) -> Iterator[Clue]:
    """Who sees whom in the probabilities, and where all is right before them, whether their rows are a
    softmax.
    """
    p, room = weights_of(answer, case)
    if answer.wide("probabilities") is None:
        yield from of_blind(answer, case)
    read = "probabilities" not in answer.got
    if p is None or answer.right("probabilities") or (read and not answer.far("out")):
        return
    g = answer.want("probabilities")
    see = np.broadcast_to(case.at.see, g.shape)
    unsure = see & (g < (np.maximum(1e-6, 1e3 * room) if read else 1e-6))
    with np.errstate(invalid="ignore"):
        more, less = (p != 0) & ~see, (p == 0) & see & ~unsure
    t, s = np.arange(case.T)[:, None], np.arange(case.T)
    blind = ~see.any(-1, keepdims=True)
    if np.isnan(p).any():
        if case.seg is not None:
            proves = not (np.isnan(p) & ~blind).any()
            yield Clue(Trap("mask.padding", "a row that sees nothing is not 0"), 1, proves)
    elif (more.any() or less.any()) and not (read and (p < 0).any()):
        documents = np.ones((case.B, case.T), int) if case.seg is None else case.at.seg
        across = documents[:, None, :, None] != documents[:, None, None, :]
        across = across | (documents == 0)[:, None, None, :]
        if (more & blind).any() and not (more & ~blind).any() and not less.any():
            yield Clue(Trap("mask.padding", "a row that sees nothing is not 0"), 1, True)
        elif (more & across).any() and not (more & ~across & (s <= t)).any():
            yield Clue(Trap(DOCUMENTS, "cells of other documents or of padding are seen"), 0.8)
        elif case.window and not (more & (s > t) & case.causal).any() and not (less & (t == s)).any():
            yield Clue(Trap("mask.window", "keys at the edge of the window are seen, or are not"), 0.8)
        elif case.causal and (more & (s > t)).any():
            yield Clue(Trap("mask.causal", "the future is seen"), 0.8)
        elif less.any():
            yield Clue(Trap("mask.causal", "cells that should be seen are not"), 0.6)
    elif (answer.right("scores") and answer.far("probabilities")) or add_up_otherwise(p, g, room):
        sums = p.sum(-1)[np.broadcast_to(see.any(-1), p.shape[:3])].ravel()
        words = "your scores are right and your weights are not; " if answer.right("scores") else ""
        words += "a row of them adds up to " if words else "a row of your weights adds up to "
        yield Clue(Trap("attn.softmax", f"{words}{sums[np.argmax(abs(sums - 1))]:.4g}"), 1)


def add_up_otherwise(p: Any, g: Any, room: Any) -> bool:
    """Whether most rows of weights add up to something else than those that are right."""
    return bool((np.abs(p.sum(-1) - g.sum(-1)) > np.maximum(NEARLY, room.sum(-1))).mean() > 0.5)


def weights_of(answer: Answer, case: Case) -> tuple[Any, Any]:
    """The probabilities [B,H,T,S], and how far off they may be. Where none came those that make the output of
    the values: what it was rounded by may be that of a weight, and less than that is none. None where there
    are more values than channels, or no combination of values makes it.
    """
    p, out = answer.wide("probabilities"), answer.wide("out")
    if p is not None:
        return p, answer.room("probabilities")
    if out is None or case.hook == "attend" or not np.isfinite(out).all():
        return None, None
    v, room = np.repeat(answer.a["v"], case.H // case.G, 1), answer.room("out")
    back = np.linalg.pinv(v)
    p, least = out @ back, np.maximum(room @ np.abs(back), 1e-9)
    left = v.shape[2] <= v.shape[3] and np.abs(p @ v - out) <= room + room @ np.abs(back @ v)
    p[np.abs(p) <= least] = 0
    return (p, least) if np.all(left) else (None, None)


def of_blind(answer: Answer, case: Case) -> Iterator[Clue]:
    """Where there are no probabilities: rows of the output that see nothing are not 0, and all others are
    right.
    """
    out = answer.wide("out")
    if out is None or case.seg is None:
        return
    blind = np.broadcast_to(~case.at.see.any(-1)[..., None], out.shape)
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(out - answer.want("out")) <= 1e-3 * np.abs(answer.want("out")).max())
    if off.any() and not (off & ~blind).any():
        what = "not 0" if np.isfinite(out[off]).any() else "not finite"
        yield Clue(Trap("mask.padding", f"a row that sees nothing is {what}"), 1, True)
