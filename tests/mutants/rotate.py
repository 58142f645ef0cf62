"""Bugs in what turns queries and keys."""

from dataclasses import replace

import numpy as np

from mutants import Mutant
from mutants.ways import (
    angles,
    backward,
    bfloat16,
    by,
    expected,
    float16,
    forward,
    gains,
    hooked,
    patched,
    small,
    with_case,
    with_names,
    with_option,
)
from peref.hooks import rotation
from peref.model import PLAIN
from peref.ops.turn import join_pairs, turn

ALL = hooked("rotate")
LENGTH = 64
gain_of = lambda name: small(name)[0].rotate(small(name)[1], np.arange(5), LENGTH)[1]
GAINED = tuple(n for n in ALL if gain_of(n) is not None)
MAGNIFIED = tuple(n for n in GAINED if np.ptp(gain_of(n)) == 0)  # one gain for all positions and pairs
# the whole ladder has another base, or each frequency is changed for itself
BASED = tuple(n for n in with_names("ntk_base") if n not in with_option("gamma"))
LADDER = tuple(n for n in with_names("ladder") if n in ALL and n not in BASED)
part = lambda case: case.config.R != case.D
other = lambda case: "interleaved" if case.layout == "half" else "half"


def turning(change):
    """The op that turns is another: change(turn) -> function(x, angle, gain, *, layout)."""

    def run(case, a):
        if case.level == "table":
            return None
        return patched("golden.compute.operation", PLAIN=replace(PLAIN, turn=change))(case, a)

    return run


def mixed_forward(y, x, angle, gain):
    """Frequencies laid out in halves, pairs that are adjacent: what was read in one convention and applied
    in the other.
    """
    half = angle.shape[-1]
    both = np.concatenate([angle, angle], -1)
    both = both[:, None] if both.ndim == 3 else both
    part = x[..., : 2 * half]
    turned = np.stack([-part[..., 1::2], part[..., 0::2]], -1).reshape(part.shape)
    return np.concatenate([part * np.cos(both) + turned * np.sin(both), x[..., 2 * half :]], -1)


def only(of):
    """Of q and k only one is turned; the op is called for q first."""

    def change():
        count = [0]

        def call(x, angle, gain, *, layout):
            count[0] += 1
            return turn(
                x, angle if count[0] % 2 == of else by(lambda phi: 0 * phi, angle), gain, layout=layout
            )

        return call

    return lambda case, a: (
        None
        if case.level == "table"
        else patched("golden.compute.operation", PLAIN=replace(PLAIN, turn=change()))(case, a)
    )


def at_width(case, cut):
    """The angles of the whole head, cut to the rotary width, or not."""
    whole = replace(case, R=case.D).config.encoding(0).rotate
    return lambda p, i, n: tuple(
        x if x is None else x[..., : case.config.R // 2 if cut else None] for x in whole(p, i, n)
    )


def of_whole(cut):
    def run(case, a):
        if not part(case) or case.level == "table":
            return None
        return expected(case, a, replace(case.config.encoding(0), rotate=at_width(case, cut)))

    return run


def rest(change):
    """What happens to the channels that pass."""

    def run(case, a):
        if not part(case) or case.level == "table":
            return None
        R = case.config.R
        return turning(forward(turn, lambda y, *_: np.concatenate([y[..., :R], change(y[..., R:])], -1)))(
            case, a
        )

    return run


def paired_at_half(case, a):
    """Frequencies right, pairs split at half of the head."""
    if not part(case) or case.level == "table" or case.layout == "interleaved":
        return None

    def change(y, x, angle, gain):
        n, h = angle.shape[-1], x.shape[-1] // 2
        phi = angle[:, None] if angle.ndim == 3 else angle
        cos, sin, first, second = np.cos(phi), np.sin(phi), x[..., :n], x[..., h : h + n]
        y = np.array(x)
        y[..., :n], y[..., h : h + n] = first * cos - second * sin, first * sin + second * cos
        return y

    return turning(forward(turn, change))(case, a)


def exponents(change):
    """The exponents of the ladder: change(2n, R)."""

    def run(case, a):
        with_ladder = lambda xp, R, base: base ** (-change(2.0 * np.arange(R // 2), R) / R)
        return patched(f"encodings.rotate.{case.encoding}", ladder=with_ladder)(case, a)

    return run


def frequencies(change):
    """What happens to the frequencies of the ladder."""

    def run(case, a):
        return patched(
            f"encodings.rotate.{case.encoding}",
            ladder=lambda xp, R, base: change(base ** (-2 * np.arange(R // 2) / R)),
        )(case, a)

    return run


def k_turned_back(case, a):
    """Twice as far back before, and then forward."""
    if case.level == "table":
        return None
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    phi = np.asarray(rotation(case.config.encoding(0), p, case.at.i, case.at.n)[0])
    return expected(case, a | {"k": turn(a["k"], -2 * phi, None, layout=case.layout)})


MUTANTS = [
    Mutant(
        "layout-other",
        "rope.layout.half",
        "you pair channels as the other layout does",
        ALL,
        with_case(layout=other),
        ("huggingface/transformers#25199", "huggingface/transformers#39687"),
    ),
    Mutant(
        "layout-outer",
        "rope.layout.half",
        "you pair the first channel with the last",
        ALL,
        turning(forward(turn, lambda y, x, angle, gain: outer(x, angle))),
        held_out=True,
    ),
    Mutant(
        "layout-mixed",
        "rope.layout.mixed",
        "your frequencies are laid out in halves, your pairs are adjacent",
        ALL,
        turning(forward(turn, mixed_forward)),
    ),
    Mutant("sign-of-sine", "rope.sign", "you turn the other way", ALL, angles(lambda phi, i: -phi)),
    Mutant(
        "sine-for-cosine",
        "rope.sign",
        "your sines and cosines are exchanged",
        ALL,
        angles(lambda phi, i: np.pi / 2 - phi),
    ),
    Mutant(
        "reflects",
        "rope.sign",
        "you reflect in place of turning: one minus is missing",
        ALL,
        turning(forward(turn, lambda y, x, angle, gain: reflected(y, angle))),
        held_out=True,
    ),
    Mutant("k-back", "rope.sign", "you turn k the other way, q is right", ALL, k_turned_back, held_out=True),
    Mutant(
        "turns-in-place-of-radians",
        "rope.frequencies",
        "your frequencies are multiplied by 2 pi",
        ALL,
        angles(lambda phi, i: 2 * np.pi * phi),
        held_out=True,
    ),
    Mutant("only-q", "rope.one_of_two", "you turn q and not k", ALL, only(1)),
    Mutant("only-k", "rope.one_of_two", "you turn k and not q", ALL, only(0)),
    Mutant(
        "k-twice",
        "rope.one_of_two",
        "you turn k twice, once when it is made and once when it is read",
        ALL,
        turning(
            lambda x, angle, gain, *, layout: turn(
                x,
                angle if x.shape[1] % 2 == 0 and x.shape[1] > 2 else by(lambda phi: 2 * phi, angle),
                gain,
                layout=layout,
            )
        ),
        held_out=True,
    ),
    Mutant(
        "width-of-head",
        "rope.partial.exponent_head_dim",
        "your frequencies come from the head width, not the rotary width",
        ALL,
        of_whole(True),
        ("pie-project/pie#603", "vllm-project/vllm#43770"),
    ),
    Mutant("turns-all", "rope.partial.pairing", "you turn every channel of the head", ALL, of_whole(False)),
    Mutant(
        "pairs-at-half",
        "rope.partial.pairing",
        "your pairs are split at half of the head",
        ALL,
        paired_at_half,
        ("labscommunity/cascadia#69",),
    ),
    Mutant(
        "rest-zero",
        "rope.partial.passthrough",
        "channels that should pass are zero",
        ALL,
        rest(lambda y: 0 * y),
    ),
    Mutant(
        "rest-reversed",
        "rope.partial.passthrough",
        "channels that should pass change places",
        ALL,
        rest(lambda y: y[..., ::-1]),
    ),
    Mutant(
        "rest-doubled",
        "rope.partial.passthrough",
        "channels that should pass are scaled",
        ALL,
        rest(lambda y: 1.25 * y),
        held_out=True,
    ),
    Mutant(
        "phase-float16",
        "rope.phase.low_precision",
        "your angles were float16",
        ALL,
        angles(lambda phi, i: float16(phi)),
        ("EleutherAI/gpt-neox#1003",),
    ),
    Mutant(
        "phase-bfloat16",
        "rope.phase.low_precision",
        "your angles were bfloat16",
        ALL,
        angles(lambda phi, i: bfloat16(phi)),
        ("huggingface/transformers#29285", "Modalities/modalities#462"),
    ),
    Mutant(
        "frequency-bfloat16",
        "rope.phase.low_precision",
        "your frequencies were bfloat16",
        LADDER,
        frequencies(bfloat16),
        ("huggingface/transformers#25681",),
    ),
    Mutant(
        "frequency-float16",
        "rope.phase.low_precision",
        "your frequencies were float16",
        LADDER,
        frequencies(float16),
        held_out=True,
    ),
    Mutant(
        "base-10000",
        "rope.base.ignored",
        "your base is 10000 whatever was configured",
        ALL,
        lambda case, a: (
            None if case.config.pe[0][1].get("base", 10000.0) == 10000.0 else with_base(case, a, 10000.0)
        ),
    ),
    Mutant(
        "base-1000000",
        "rope.base.ignored",
        "your base is 1000000 whatever was configured",
        ALL,
        lambda case, a: with_base(case, a, 1000000.0),
    ),
    Mutant(
        "base-300",
        "rope.base.ignored",
        "your base is 300 whatever was configured",
        ALL,
        lambda case, a: with_base(case, a, 300.0),
        held_out=True,
    ),
    Mutant(
        "exponent-halved",
        "rope.exponent",
        "your exponent is n/R in place of 2n/R",
        LADDER,
        exponents(lambda e, R: e / 2),
    ),
    Mutant(
        "exponent-next",
        "rope.exponent",
        "your exponents begin at 2/R in place of 0",
        LADDER,
        exponents(lambda e, R: e + 2),
    ),
    Mutant(
        "exponent-to-1",
        "rope.exponent",
        "your frequencies end at 1/base",
        LADDER,
        exponents(lambda e, R: e * R / max(R - 2, 1)),
        held_out=True,
    ),
    Mutant(
        "flushed",
        "rope.frequencies",
        "your slow frequencies are zero",
        LADDER,
        frequencies(lambda w: np.where(w < 0.05, 0, w)),
    ),
    Mutant(
        "ladder-reversed",
        "rope.frequencies",
        "your frequencies run from slow to fast",
        ALL,
        angles(lambda phi, i: phi[..., ::-1]),
    ),
    Mutant(
        "ladder-rolled",
        "rope.frequencies",
        "your frequencies are those of the next pair",
        ALL,
        angles(lambda phi, i: np.roll(phi, 1, -1)),
        held_out=True,
    ),
    Mutant(
        "turns-back",
        "grad.rotation",
        "your derivative turns forward, not back",
        ALL,
        turning(backward(turn, lambda g, saved, dy: [undone(saved, dy), *g[1:]])),
        ("karpathy/llm.c#801",),
    ),
    Mutant(
        "gradient-passes",
        "grad.rotation",
        "your derivative does not turn at all",
        ALL,
        turning(backward(turn, lambda g, saved, dy: [dy, *g[1:]])),
    ),
    Mutant(
        "gradient-stops",
        "grad.passthrough",
        "your derivative forgets the channels that pass",
        ALL,
        lambda case, a: (
            turning(
                backward(
                    turn,
                    lambda g, saved, dy: [
                        np.concatenate(
                            [g[0][..., : 2 * saved[2].shape[-1]], 0 * dy[..., 2 * saved[2].shape[-1] :]], -1
                        ),
                        *g[1:],
                    ],
                )
            )(case, a)
            if part(case)
            else None
        ),
    ),
    Mutant(
        "gradient-ungained",
        "grad.rotation",
        "your derivative forgets the gain",
        GAINED,
        turning(
            backward(
                turn,
                lambda g, saved, dy: [
                    turn.backward((*saved[:4], None, saved[5], None, saved[7]), dy, (True, False, False))[0],
                    *g[1:],
                ],
            )
        ),
        held_out=True,
    ),
    Mutant(
        "gain-missing",
        "rope.yarn.mscale_missing",
        "the gain (magnitude) is missing",
        GAINED,
        gains(lambda q, k: (None, None)),
        ("vllm-project/vllm#46280",),
    ),
    Mutant(
        "gain-twice",
        "rope.yarn.mscale_twice",
        "the gain (magnitude) counts twice",
        GAINED,
        gains(lambda q, k: tuple(None if g is None else g * g for g in (q, k))),
        ("sgl-project/sglang#33558",),
    ),
    Mutant(
        "gain-on-q",
        "rope.yarn.mscale_missing",
        "the gain is on q alone",
        GAINED,
        gains(lambda q, k: (q, None)),
        held_out=True,
    ),
]


def outer(x, angle):
    n = angle.shape[-1]
    phi = angle[:, None] if angle.ndim == 3 else angle
    y, first, second = np.array(x), x[..., :n], x[..., 2 * n - 1 : n - 1 : -1]
    y[..., :n], y[..., 2 * n - 1 : n - 1 : -1] = (
        first * np.cos(phi) - second * np.sin(phi),
        first * np.sin(phi) + second * np.cos(phi),
    )
    return y


def reflected(y, angle):
    n = 2 * angle.shape[-1]
    return np.concatenate([y[..., :n] * np.where(np.arange(n) < n // 2, 1, -1), y[..., n:]], -1)


def undone(saved, dy):
    """The forward rotation where its transpose belongs."""
    _, _, cos, sin, g, angle, _, layout = saved
    half = angle.shape[-1]
    da, db = (
        (dy[..., :half], dy[..., half : 2 * half])
        if layout == "half"
        else (dy[..., 0 : 2 * half : 2], dy[..., 1 : 2 * half : 2])
    )
    g = 1 if g is None else g
    return join_pairs(g * (da * cos - db * sin), g * (da * sin + db * cos), dy[..., 2 * half :], layout)


def with_base(case, a, base):
    if base == case.config.pe[0][1]["base"]:
        return None
    return expected(replace(case, options={**case.options, "base": base}), a)
