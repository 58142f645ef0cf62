"""Bugs that many encodings can have: positions, masks, heads, scales."""

from dataclasses import replace

import numpy as np
from check import apart
from generated import with_its_parameters

from mutants import Mutant
from mutants.ways import (
    ANY,
    angles,
    by,
    expected,
    forward,
    hook,
    hooked,
    inputs,
    moved_distances,
    moved_positions,
    patched,
    place,
    results,
    table,
    told,
    with_case,
    with_parameters,
)
from peref.encodings import claims_of, get, options
from peref.golden.compute import operation
from peref.golden.diagnosis.answer import BROKEN

PLACED = tuple(name for name in ANY if get(name).hook and get(name).axes is not None)
LINE = PLACED
AXES = tuple(name for name in PLACED if get(name).axes not in (1, None))
ABSOLUTE = (*hooked("embed", "rotate"), *(n for n in hooked("score") if "shift" not in claims_of(get(n))))
BOUNDED = tuple(n for n in with_parameters("table") if "any_length" not in claims_of(get(n)))
SOFTMAX = ("none", *hooked("rotate", "bias", "score"))
EVERYWHERE = ("none", *hooked("rotate", "bias", "score", "attend"))
attn = lambda case: case.level == "attn" and case.hook != "attend"


def counted(i):
    return np.broadcast_to(np.arange(i.shape[-1]), i.shape[-1:] if i.ndim < 3 else i.shape)


def clipped(end):
    return moved_positions(lambda i: np.minimum(i, end), lambda i: i.max() > end)


def made_whole(change):
    """Positions, or where a table is asked for them the distances, become whole numbers."""

    def run(case, a):
        if case.at.i.dtype.kind != "f":
            return None
        if case.hook == "bias" and case.level == "table":
            return moved_distances(change)(case, a)
        return moved_positions(change)(case, a)

    return run


def tiled(order):
    def run(case, a):
        if case.level != "attn" or case.G == case.H or case.G == 1 or case.hook == "attend":
            return None
        heads = [order(h, case.H, case.G) for h in range(case.H)]
        return {
            n: x
            for n, x in expected(replace(case, G=case.H), {**a, **{n: a[n][:, heads] for n in "kv"}}).items()
            if n not in ("vjp.k", "vjp.v")
        }

    return run


def softmax(change):
    def run(case, a):
        return patched(
            "golden.compute.operation", only=attn, probabilities=forward(operation.probabilities, change)
        )(case, a)

    return run


def scaled(change):
    def run(case, a):
        pe = case.config.encoding(0)
        return (
            expected(case, a, replace(pe, scale=lambda D: change(pe.scale(D), D, case.C)))
            if attn(case)
            else None
        )

    return run


MUTANTS = [
    Mutant(
        "option-ignored",
        "option",
        "an option is ignored",
        tuple(n for n in ANY if options(get(n))),
        lambda case, a: defaults(case, a),
    ),
    Mutant(
        "counts",
        "position.counted",
        "you count positions from 0 and do not use those given",
        LINE,
        moved_positions(counted),
    ),
    Mutant(
        "counts-within-batch",
        "position.counted",
        "you count slots, whatever the positions",
        LINE,
        lambda case, a: (
            expected(replace(case, positions=tuple(range(case.T)), seg=None), a)
            if case.level != "attn"
            else None
        ),
        held_out=True,
    ),
    Mutant(
        "one-late",
        "position.off_by_one",
        "your positions are one too large",
        ABSOLUTE,
        moved_positions(lambda i: i + 1),
    ),
    Mutant(
        "one-early",
        "position.off_by_one",
        "your positions are one too small",
        tuple(n for n in ABSOLUTE if n not in BOUNDED),
        moved_positions(lambda i: i - 1),
    ),
    Mutant(
        "two-late",
        "position.off_by_one",
        "your positions begin at 2",
        ABSOLUTE,
        moved_positions(lambda i: i + 2),
        refs=("facebookresearch/fairseq#4648",),
        held_out=True,
    ),
    Mutant(
        "first-row",
        "position.batch",
        "you use the first sequence's positions for all",
        LINE,
        moved_positions(lambda i: np.broadcast_to(i[:1], i.shape), lambda i: i.ndim == 2),
    ),
    Mutant(
        "last-row",
        "position.batch",
        "you use the last sequence's positions for all",
        LINE,
        moved_positions(lambda i: np.broadcast_to(i[-1:], i.shape), lambda i: i.ndim == 2),
        held_out=True,
    ),
    Mutant(
        "floors", "position.rounded", "you round positions down to whole numbers", LINE, made_whole(np.floor)
    ),
    Mutant(
        "rounds",
        "position.rounded",
        "you round positions to whole numbers",
        LINE,
        made_whole(np.rint),
        held_out=True,
    ),
    Mutant(
        "first-axis",
        "position.axes",
        "you use the first axis of the positions for all",
        AXES,
        moved_positions(lambda i: np.broadcast_to(i[:1], i.shape), lambda i: i.ndim == 3),
    ),
    Mutant(
        "axes-reversed",
        "position.axes",
        "the axes of your positions are in reverse order",
        AXES,
        moved_positions(lambda i: i[::-1], lambda i: i.ndim == 3),
    ),
    Mutant(
        "axes-rolled",
        "position.axes",
        "the axes of your positions are rolled",
        AXES,
        moved_positions(lambda i: np.roll(i, 1, 0), lambda i: i.ndim == 3),
        held_out=True,
    ),
    Mutant(
        "clips-2048",
        "rope.table.clip",
        "your table ends at position 2048 and positions are clipped to it",
        hooked("embed", "rotate"),
        clipped(2047),
        refs=("fla-org/flash-linear-attention#1177",),
    ),
    Mutant(
        "clips-4096",
        "rope.table.clip",
        "your table ends at position 4096 and positions are clipped to it",
        hooked("embed", "rotate"),
        clipped(4095),
    ),
    Mutant(
        "clips-100000",
        "rope.table.clip",
        "your table ends at position 100000",
        hooked("embed", "rotate"),
        clipped(99999),
        held_out=True,
    ),
    Mutant(
        "wraps-2048",
        "rope.table.wrap",
        "your positions are modulo 2048",
        hooked("rotate"),
        moved_positions(lambda i: i % 2048, lambda i: i.max() > 2048),
    ),
    Mutant(
        "wraps-65536",
        "rope.table.wrap",
        "your positions are kept in 16 bits",
        hooked("rotate"),
        moved_positions(lambda i: i % 65536, lambda i: i.max() > 65536),
    ),
    Mutant(
        "wraps-1000",
        "rope.table.wrap",
        "your positions are modulo 1000",
        hooked("rotate"),
        moved_positions(lambda i: i % 1000, lambda i: i.max() > 1000),
        held_out=True,
    ),
    Mutant(
        "mask-other",
        "mask.causal",
        "your mask looks at the past alone, or at both sides where it should not",
        SOFTMAX,
        with_case(attn, causal=lambda case: not case.causal),
    ),
    Mutant(
        "mask-strict",
        "mask.causal",
        "a token does not see itself",
        SOFTMAX,
        lambda case, a: patched(
            "golden.compute.operation",
            only=lambda c: attn(c) and c.causal,
            probabilities=told(
                operation.probabilities, at=lambda at: seeing(at, at.see & ~np.eye(at.T, dtype=bool))
            ),
        )(case, a),
        held_out=True,
    ),
    Mutant(
        "window-more",
        "mask.window",
        "your window is one key too wide",
        SOFTMAX,
        with_case(lambda c: attn(c) and c.window, window=lambda case: case.window + 1),
        refs=("huggingface/transformers#39408",),
    ),
    Mutant(
        "window-less",
        "mask.window",
        "your window is one key too narrow",
        SOFTMAX,
        with_case(lambda c: attn(c) and c.window, window=lambda case: case.window - 1),
    ),
    Mutant(
        "window-none",
        "mask.window",
        "your window is not there",
        SOFTMAX,
        with_case(lambda c: attn(c) and c.window, window=None),
        held_out=True,
    ),
    Mutant(
        "documents-seen",
        "mask.documents",
        "documents and padding see one another",
        EVERYWHERE,
        lambda case, a: unmasked(case, a),
    ),
    Mutant(
        "state-kept",
        "mask.documents",
        "a new document goes on with the state of the one before",
        hooked("mix"),
        place(lambda c: c.seg is not None, seg=None),
    ),
    Mutant(
        "documents-merged",
        "mask.documents",
        "padding is masked, documents are not told apart",
        EVERYWHERE,
        lambda case, a: (
            expected(case, a, None, replace(case.at, seg=(case.at.seg > 0).astype(int)))
            if case.seg is not None and case.level == "attn"
            else None
        ),
        held_out=True,
    ),
    Mutant(
        "padding-nan",
        "mask.padding",
        "a row that sees nothing is NaN",
        EVERYWHERE,
        lambda case, a: unseen(case, a, np.nan),
        refs=("huggingface/transformers#17866",),
    ),
    Mutant(
        "padding-uniform",
        "mask.padding",
        "a row that sees nothing is uniform",
        SOFTMAX,
        lambda case, a: uniform(case, a),
    ),
    Mutant(
        "gqa-tiled",
        "gqa.order",
        "query head h reads key-value head h mod G, expected h // (H/G)",
        SOFTMAX,
        tiled(lambda h, H, G: h % G),
        refs=("ggml-org/llama.cpp#2376",),
    ),
    Mutant(
        "gqa-reversed",
        "gqa.order",
        "the order of your key-value heads is reversed",
        SOFTMAX,
        tiled(lambda h, H, G: G - 1 - h // (H // G)),
        held_out=True,
    ),
    Mutant(
        "heads-rolled",
        "gqa.order",
        "your key-value heads are off by one",
        EVERYWHERE,
        lambda case, a: inputs(
            lambda c: c.level == "attn" and c.G > 1,
            k=lambda k: np.roll(k, 1, 1),
            v=lambda v: np.roll(v, 1, 1),
        )(case, a),
    ),
    Mutant(
        "unscaled",
        "attn.scale",
        "your logits are not scaled",
        tuple(n for n in SOFTMAX if get(n).scale(4) != 1),
        scaled(lambda s, D, C: 1.0),
    ),
    Mutant(
        "scaled-by-width",
        "attn.scale",
        "your logits are scaled by the model's width",
        SOFTMAX,
        scaled(lambda s, D, C: C**-0.5),
        held_out=True,
    ),
    Mutant(
        "softmax-queries",
        "attn.softmax",
        "your softmax runs over the queries",
        SOFTMAX,
        softmax(lambda p, s: np.nan_to_num(p / p.sum(2, keepdims=True))),
    ),
    Mutant(
        "softmax-unnormed",
        "attn.softmax",
        "your weights do not add up to 1",
        SOFTMAX,
        softmax(lambda p, s: p * 1.01),
    ),
    Mutant(
        "softmax-plus-one",
        "attn.softmax",
        "your softmax has a sink",
        SOFTMAX,
        softmax(lambda p, s: p / (1 + np.exp(-s.max(-1, keepdims=True)))),
        held_out=True,
    ),
    Mutant(
        "heads-in-time",
        "basic",
        "heads and time change places",
        SOFTMAX,
        lambda case, a: results(lambda x: x.swapaxes(1, 2), "out")(case, a) if attn(case) else None,
    ),
    Mutant(
        "turned-in-time",
        "basic",
        "heads and time of what you turned change places",
        hooked("rotate"),
        results(lambda x: x.swapaxes(1, 2), "q_rotated", "k_rotated"),
    ),
    Mutant("nothing-done", "basic", "there is no position in it", PLACED, lambda case, a: without(case, a)),
    Mutant(
        "twice",
        "basic",
        "what you return is twice as large",
        tuple(n for n in ANY if n != "none"),
        lambda case, a: results(lambda x: 2 * x, "out", "y", "term", "bias", "rows", "q_rotated")(case, a),
        held_out=True,
    ),
    Mutant(
        "values-of-keys",
        "basic",
        "you add keys in place of values",
        EVERYWHERE,
        lambda case, a: expected(case, {**a, "v": a["k"]}) if case.level == "attn" else None,
    ),
]


def defaults(case, a):
    """One option has its default: the first with which a number changes."""
    for name in case.options:
        other = replace(case, options={n: v for n, v in case.options.items() if n != name})
        # without the option there may be no derivative
        for given in (a, {n: x for n, x in a.items() if not n.startswith("cotangent.")}):
            try:
                got, want = expected(with_its_parameters(other, given), given), expected(case, given)
            except BROKEN:
                continue
            if any(apart(got[n], want[n], 1e-9) for n in want if n in got):
                return got
    return None


def unmasked(case, a):
    """Distances as they were, and every key of the sequence seen."""
    if case.seg is None or case.level != "attn":
        return None
    if case.encoding in BOUNDED:  # which has no entry for what lies between two documents
        see = np.broadcast_to(replace(case.at, seg=None).see, (case.B, 1, case.T, case.T))
        pe = case.config.encoding(0)
        return expected(
            case,
            a,
            replace(pe, bias=lambda be, p, d: pe.bias(be, p, np.clip(d, 0, case.L - 1))),
            seeing(case.at, see),
        )
    return expected(case, a, None, replace(case.at, seg=None))


def seeing(at, see):
    """The same place, where other cells are seen."""
    found = replace(at)
    vars(found)["see"] = see
    return found


def unseen(case, a, value):
    if case.seg is None or case.level != "attn":
        return None
    found = expected(case, a)
    nothing = (case.at.seg == 0)[:, None, :, None]
    return {
        **found,
        **{n: np.where(nothing, value, x) for n, x in found.items() if n in ("out", "probabilities")},
    }


def uniform(case, a):
    if case.seg is None or not attn(case):
        return None
    found = expected(case, a)
    nothing = (case.at.seg == 0)[:, None, :, None]
    mean = np.repeat(a["v"], case.H // case.G, 1).mean(2, keepdims=True)
    return {
        **found,
        "out": np.where(nothing, mean, found["out"]),
        "probabilities": np.where(nothing, 1 / case.T, found["probabilities"]),
    }


def without(case, a):
    """The encoding is not there."""
    if case.hook == "rotate":
        return angles(lambda phi, i: 0 * phi)(case, a)
    if case.hook == "embed":
        return hook("embed", lambda embed: lambda p, i: by(lambda e: 0 * e, embed(p, i)))(case, a)
    if case.hook == "bias":
        return table(lambda b, d: 0 * b)(case, a)
    if case.hook == "score" and case.level == "attn":
        return expected(case, a, replace(case.config.encoding(0), score=None, features=None))
    return None
