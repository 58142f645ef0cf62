"""Golden cases of mrope."""

from itertools import chain
from math import floor

import numpy as np
from exact import base_of, ladder
from mpmath import mp
from mutants import Mutant
from mutants.ways import angles, patched, with_options

from peref.encodings.rotate import mrope
from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap
from recipes.wholes import aligned

SPEC = """
(arXiv:2409.12191). `angle[n] = i_a(n) w_n`; the ladder runs over all pairs. `order` "chunked": the first
`sections`[0] pairs take time, the next ones height, the last ones width; "interleaved": pair n takes height
if n mod 3 = 1 and n < 3 sections[1], width if n mod 3 = 2 and n < 3 sections[2], and time otherwise;
"alternate": of the first sections[1] + sections[2] pairs, even ones take height and odd ones width, and the
rest take time. A single number for a token is used on each axis. Unless given, the sections are 2:3:3,
interleaved 6:5:5, alternate 10:11:11, by largest remainder; of equal remainders time comes first, then
height.
"""


def exact(p, places, facts, o, n):
    pairs = facts["R"] // 2
    ratio = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}[o["order"]]
    s = o["sections"]
    if s is None:
        shares = [mp.mpf(pairs * r) / sum(ratio) for r in ratio]
        s = [int(mp.floor(x)) for x in shares]
        for axis in sorted(range(3), key=lambda k: s[k] - shares[k])[: pairs - sum(s)]:
            s[axis] += 1
    if o["order"] == "chunked":
        axis = [0] * s[0] + [1] * s[1] + [2] * s[2]
    elif o["order"] == "alternate":
        axis = [1, 2] * s[2] + [1] * (s[1] - s[2]) + [0] * s[0]
    else:
        axis = [
            1 if k % 3 == 1 and k < 3 * s[1] else 2 if k % 3 == 2 and k < 3 * s[2] else 0
            for k in range(pairs)
        ]
    w = ladder(facts["R"], base_of(o))
    return [
        ([place[axis[k] if len(place) > 1 else 0] * w[k] for k in range(pairs)], None) for place in places
    ]


def axis_of_pairs(o, pairs):
    ratio = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}[o["order"]]
    s = o["sections"]
    if s is None:
        exact = [pairs * r / sum(ratio) for r in ratio]
        s = [floor(x) for x in exact]
        for a in sorted(range(3), key=lambda a: s[a] - exact[a])[: pairs - sum(s)]:
            s[a] += 1
    if o["order"] == "chunked":
        return list(chain(*([a] * s[a] for a in range(3))))
    if o["order"] == "interleaved":
        return [
            1 if n % 3 == 1 and n < 3 * s[1] else 2 if n % 3 == 2 and n < 3 * s[2] else 0
            for n in range(pairs)
        ]
    return [1 + n % 2 if n < s[1] + s[2] else 0 for n in range(pairs)]


def program(p, i, o, f):
    n = np.arange(f["R"] // 2)
    w = o["base"] ** (-2 * n / f["R"])
    i = i if i.ndim == 3 else np.stack([i] * 3)
    return np.stack([i[a] * w[k] for k, a in enumerate(axis_of_pairs(o, f["R"] // 2))], -1), None, None


IMAGE = (((0, 0, 1, 1),), ((0, 0, 5, 7),), ((0, 1, 2, 9),))
AROUND = (((0, 1, 2, 2, 2, 2, 2, 2, 5),), ((0, 1, 2, 2, 2, 3, 3, 3, 5),), ((0, 1, 2, 3, 4, 2, 3, 4, 5),))
# patch_positions([2, (3, 2, 4, 1.5), 2]) and ([2, (1, 2, 4), 2, (1, 2, 4), 1]), tests/test_patches.py
STEPPED = (
    ((0, 1, 2, 2, 3, 3, 5, 5, 6, 7),),
    ((0, 1, 2, 2, 2, 2, 2, 2, 6, 7),),
    ((0, 1, 2, 3, 2, 3, 2, 3, 6, 7),),
)
FRAMES = (((0, 1, 2, 2, 4, 5, 6, 6, 8),), ((0, 1, 2, 2, 4, 5, 6, 6, 8),), ((0, 1, 2, 3, 4, 5, 6, 7, 8),))
QWEN3 = {"sections": (24, 20, 20), "order": "interleaved", "base": 5e6}

RECIPES = [
    *usual(
        "mrope",
        B=1,
        T=5,
        beside={"order": {"B": 1, "T": 4, "positions": IMAGE, "options": {"sections": (2, 1, 1)}}},
    ),
    *rotation("mrope"),
    *attention("mrope"),
    case(
        "mrope",
        "table",
        "qwen2-vl",
        "Sections 16, 24, 24 of 64 pairs, one block after another.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options={"sections": (16, 24, 24), "base": 1e6},
    ),
    case(
        "mrope",
        "table",
        "qwen3-vl",
        "Sections 24, 20, 20 of 64 pairs, dealt out in turn.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options=QWEN3,
    ),
    case(
        "mrope",
        "table",
        "qwen3-5",
        "Sections 11, 11, 10 of 32 pairs, dealt out in turn: a quarter of the 256 channels turns.",
        "position.axes",
        D=256,
        R=64,
        T=4,
        B=1,
        positions=IMAGE,
        options={"sections": (11, 11, 10), "order": "interleaved", "base": 1e7},
    ),
    case(
        "mrope",
        "table",
        "ernie",
        "Sections 20, 22, 22: height and width alternate, time has the slow pairs.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options={"sections": (20, 22, 22), "order": "alternate", "base": 5e5},
    ),
    case(
        "mrope",
        "op",
        "interleaved-axes",
        "Sections 2, 1, 1 dealt out in turn.",
        "position.axes",
        **SMALL | {"T": 4},
        positions=IMAGE,
        options={"order": "interleaved", "sections": (2, 1, 1)},
    ),
    case(
        "mrope",
        "op",
        "chunked-axes",
        "Sections 2, 1, 1 one after another.",
        "position.axes",
        **SMALL | {"T": 4},
        positions=IMAGE,
        options={"sections": (2, 1, 1)},
    ),
    case(
        "mrope",
        "op",
        "text-around-an-image",
        "Text, an image of 2 by 3, and text that goes on at the largest number + 1.",
        "position.axes",
        **SMALL | {"T": 9},
        positions=AROUND,
    ),
    case(
        "mrope",
        "table",
        "qwen2-5-vl-video",
        "Text, three frames of 1 by 2 tokens 1.5 positions apart, and text behind the largest number.",
        "position.axes",
        B=1,
        T=10,
        positions=STEPPED,
    ),
    case(
        "mrope",
        "table",
        "qwen3-vl-frames",
        "Text around two frames, each a grid of its own.",
        "position.axes",
        B=1,
        T=9,
        positions=FRAMES,
        options={"order": "interleaved"},
    ),
    *together(
        "mrope",
        {"base": 100.0, "order": "interleaved"},
        {"base": 100.0, "order": "alternate"},
        {"base": 100.0, "order": "interleaved", "sections": (3, 1, 0)},
        {"base": 100.0, "order": "alternate", "sections": (2, 1, 1)},
        {"base": 100.0, "sections": (1, 1, 2)},
        {"base": 100.0},
        again={"attn": (1, 2, 6)},
        H=1,
        D=12,
        R=8,
    ),
]
FULL = ("*/together-*-groups", "attn/together-[235]*", "op/partial-interleaved", "op/together-[13456]")
WHOLES = [*aligned("mrope", "64")]

TRAPS = {
    "rope.mrope.sections": trap(
        "LAYOUT",
        "the sections of M-RoPE are in another order, or each has a ladder of its own",
        "each axis has the frequencies of another",
        "one ladder over all R/2 pairs; `order` and `sections` say which axis a pair takes its position from",
    )
}

MEANS = {
    "options": {"sections": "rope.mrope.sections", "order": "rope.mrope.sections"},
    "functions": {"axis_of": "rope.mrope.sections", "shares": "rope.mrope.sections"},
}

REFUSED = [
    *refusals("mrope"),
    refused(
        "mrope",
        "op",
        "sections-sum",
        "setting",
        "Sections of 5 pairs for 4.",
        options={"sections": (1, 2, 2)},
    ),
    refused(
        "mrope",
        "op",
        "sections-interleaved",
        "setting",
        "Interleaved, height has every third pair at most.",
        options={"order": "interleaved", "sections": (0, 4, 0)},
    ),
    refused(
        "mrope",
        "op",
        "two-axes",
        "shape",
        "Two axes where three are told apart.",
        given={"positions": {"dtype": "I64", "values": [[[0, 1, 2, 3, 4]]] * 2}},
    ),
]

LAWS = [*laws("mrope")]


# wrong implementations

AXIS_OF = mrope.axis_of


def restarted(case, a):
    o, R = case.config.pe[0][1], case.config.R
    axes = AXIS_OF(R // 2, o["order"], o["sections"])
    own = np.array([axes[:n].count(axis) for n, axis in enumerate(axes)])
    change = lambda phi, i: phi * o["base"] ** (-2 * (own - np.arange(R // 2)) / R)
    return angles(change)(case, a)


MUTANTS = [
    Mutant(
        "mrope-order",
        "rope.mrope.sections",
        "your sections are chunked, or interleaved where they should not",
        ("mrope",),
        with_options(
            lambda c: c.config.pe[0][1]["sections"] is None,
            order=lambda case: "chunked" if case.config.pe[0][1]["order"] == "interleaved" else "interleaved",
        ),
    ),
    Mutant(
        "mrope-restarts",
        "rope.mrope.sections",
        "your frequencies begin anew in each section",
        ("mrope",),
        lambda case, a: restarted(case, a),
    ),
    Mutant(
        "mrope-sections",
        "rope.mrope.sections",
        "your sections are in reverse order",
        ("mrope",),
        lambda case, a: patched("encodings.rotate.mrope", axis_of=lambda *given: AXIS_OF(*given)[::-1])(
            case, a
        ),
        held_out=True,
    ),
]
