"""Positions of several axes: those who tell them apart do as the loop, M-RoPE and axial have the numbers
of public code, the others refuse.
"""

import re
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from check import same
from generated import (
    EXACT,
    NAMES,
    config,
    every_choice,
    image,
    lists,
    logits,
    loop,
    of,
    subject,
    tokens,
    weights,
)
from loops import witness

from peref import model
from peref.encodings import files, get
from peref.errors import Misuse
from peref.laws import claimed as laws
from peref.laws.small import own_weights


def of_axes(several):
    """Each encoding that tells several axes apart, or that does not."""
    return [name for name in NAMES if (get(name).axes not in (None, 1)) == several]


@pytest.mark.parametrize("name", [n for n in of_axes(True) if get(n).embed])
def test_axes_are_added_as_in_the_loop(name):
    """Rows at whole and real places of all axes, each sequence its own; every option value."""
    for given in every_choice(name):
        for C in (3, 8, 14):
            cfg = config(name, pe=((name, given),), C=C)
            for i in (image(get(name).axes), image(get(name).axes) * 1.25 - 3):
                want = [loop(cfg)({}, i[:, b].tolist()) for b in range(2)]
                same(cfg.encoding(0).embed({}, i), np.array(want), 1e-14)


def test_sincos_2d_of_an_image_of_2_by_3():
    """MAE's order: sines of the column, its cosines, sines of the row, its cosines. DETR's is y first, sine
    and cosine in turn.
    """
    row, column = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    embed = get("sincos_2d").embed
    waves = [f(a[:, None] * [1, 0.01]) for a in (column, row) for f in (np.sin, np.cos)]
    i = np.stack([row, column])[:, None]
    same(embed({}, i, C=8)[0], np.concatenate(waves, -1), 1e-15)
    same(embed({}, np.arange(6), C=8, width=3), np.concatenate(waves, -1), 1e-15)
    detr = embed({}, i, C=8, first="rows", layout="interleaved")[0]
    same(detr, np.concatenate(waves, -1)[:, [4, 6, 5, 7, 0, 2, 1, 3]], 1e-15)
    same(embed({}, i, C=12, ladder="endpoint")[0][:, :3], np.sin(column[:, None] * [1, 1e-2, 1e-4]), 1e-15)


@pytest.mark.parametrize("name", [n for n in of_axes(True) if get(n).rotate])
def test_axes_turn_as_in_the_loop(name):
    """Angles at whole and real places of all axes, the same for every sequence and each its own; every
    option value.
    """
    A = get(name).axes
    for given in every_choice(name):
        for R in (4, 12):
            cfg = config(name, pe=((name, given),), D=12, R=R)
            p = own_weights(cfg)
            for i in (image(A), image(A) * 1.25 - 3):
                got, *gains = cfg.encoding(0).rotate(p, i, 16)
                want = [loop(cfg)(lists(p), i[:, b].tolist(), 16)[0] for b in range(2)]
                same(got, np.array(want), 1e-14)
                assert gains == [None, None]


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_in_pieces_padded_and_packed(name):
    """Decoding in any pieces, also inside the image, gives the rows of the whole, padding and documents
    those alone; the gradient is right.
    """
    laws.axes(subject(name))


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_the_same_for_every_sequence(name):
    """[A,T] and [A,1,T]; what could mean two things is refused."""
    cfg, x = config(name), tokens(3, 9)
    p = weights(cfg)
    one, A = image(4, 4)[: get(name).axes, :1], get(name).axes
    for form in (one[:, 0], np.arange(9) + np.arange(A)[:, None]):
        with pytest.raises(
            Misuse, match=rf"of {A} sequences or of {A} axes; give \[1, {A}, 9\] or \[{A}, 1, 9\]"
        ):
            logits(cfg, p, tokens(A, 9), positions=form)
    same(
        logits(cfg, p, tokens(4, 9), positions=one[:, 0]),
        logits(cfg, p, tokens(4, 9), positions=np.repeat(one, 4, 1)),
        0,
    )
    same(logits(cfg, p, x, positions=one), logits(cfg, p, x, positions=np.repeat(one, 3, 1)), 0)


@pytest.mark.parametrize("name", [n for n in of_axes(True) if n in of("text")])
def test_text_is_claimed_and_holds(name):
    """One number is that number on every axis: whole, before an image and after it, where it goes on from
    a place whose axes agree.
    """
    (words,) = laws.text(subject(name), {})
    assert re.search(r"axes differ, as in an image; give the positions .* one beyond the largest", words)


@pytest.mark.parametrize("name", [n for n in of_axes(True) if n not in of("text")])
def test_text_is_not_claimed_and_fails(name):
    """One number is another place than that number on every axis; a cache refuses a mixture."""
    for words in laws.not_text(subject(name), {}):
        assert f"with {name} give positions of as many axes throughout" in words


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_on_the_fake_cupy(name, cupy):
    """Positions of several axes go to the device with the rest."""
    cfg, x = config(name), tokens(2, 9)
    p, i = weights(cfg), image(get(name).axes)
    be = replace(
        model.PLAIN,
        place=lambda thing: thing.moved(cupy.asarray) if isinstance(thing, model.At) else cupy.asarray(thing),
    )
    there = {n: cupy.asarray(a) for n, a in p.items()}
    memory = model.decode(cfg, there, x[:, :4], model.cache(cfg, 16), be=be, positions=i[..., :4])[1]
    same(
        model.decode(cfg, there, x[:, 4:], memory, be=be, positions=i[..., 4:])[0],
        cupy.asarray(logits(cfg, p, x, positions=i)[:, 4:]),
        EXACT,
    )


@pytest.mark.parametrize("name", [n for n in of_axes(False) if get(n).axes])
def test_axes_that_cannot_be_told_apart(name):
    """An encoding that wants one number for each token refuses three in words."""
    (words,) = laws.axes(subject(name))
    assert re.match(
        r"positions are int64\[3, 2, 9\]; expected numbers \[9\] or \[2, 9\], "
        rf".*; {name} cannot tell 3 axes apart",
        words,
    )


AXES = {
    (128, "chunked", None): "t" * 16 + "h" * 24 + "w" * 24,  # Qwen2-VL: mrope_section 16, 24, 24
    (128, "interleaved", None): "thw" * 20 + "tttt",  # Qwen3-VL: 24, 20, 20
    # Qwen3.5: height has 1, 4, ..., 31 and width 2, 5, ..., 29
    (64, "interleaved", (11, 11, 10)): "thw" * 10 + "th",
    (128, "alternate", None): "hw" * 22 + "t" * 20,  # ERNIE 4.5 VL: mrope_section 22, 22, 20 of h, w, t
    (8, "chunked", (2, 1, 1)): "tthw",
    (8, "interleaved", (2, 1, 1)): "thwt",
    (4, "interleaved", (1, 1, 0)): "th",
    (10, "alternate", (2, 2, 1)): "hwhtt",
}


@pytest.mark.parametrize(("R", "order", "sections"), AXES)
def test_mrope_sections_of_public_models(R, order, sections):
    """Which axis each pair turns by; each keeps the frequency of its own number. As the loop has it."""
    i, w = np.array([[2], [3], [5]])[:, None], 10000.0 ** (-2 * np.arange(R // 2) / R)
    angle, *_ = get("mrope").rotate({}, i, 0, R=R, order=order, sections=sections)
    same(angle, (np.array([dict(t=2, h=3, w=5)[a] for a in AXES[R, order, sections]]) * w)[None, None], 1e-15)
    of = witness("mrope", "rotate", R=R, order=order, sections=sections)
    same(angle, np.array([of({}, [[2], [3], [5]], 0)[0]]), 1e-15)
    same(
        get("mrope").rotate({}, np.array([7]), 0, R=R, order=order, sections=sections)[0], 7 * w[None], 1e-15
    )


def test_mrope_sections_unless_said():
    """In the ratio 2:3:3, and 6:5:5 interleaved, rounded so that they add up, for any width; interleaved
    they can always be had.
    """
    of = import_module(files()["mrope"])
    assert [of.shares(n, (2, 3, 3)) for n in (1, 2, 3, 4, 8, 16, 32, 64)] == [
        *((0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 2, 1), (2, 3, 3), (4, 6, 6), (8, 12, 12), (16, 24, 24))
    ]
    for pairs in range(1, 300):
        for order, ratio in of.RATIOS.items():
            s = of.shares(pairs, ratio)
            assert tuple(of.axis_of(pairs, order, None).count(a) for a in range(3)) == s
            assert max(abs(n - pairs * r / sum(ratio)) for n, r in zip(s, ratio, strict=True)) < 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sections": (2, 3, 3)}, "sections are 2,3,3; expected three numbers from 0 on that add up to 2"),
        ({"sections": (1, 1)}, "sections are 1,1; expected three numbers"),
        ({"sections": (3, -1, 0)}, "sections are 3,-1,0; expected three numbers from 0 on"),
        (
            {"sections": (0, 1, 1), "order": "interleaved"},
            "sections are 0,1,1; interleaved that means 1,1,0, h and w have every third pair at most",
        ),
        (
            {"sections": (1, 0, 1), "order": "alternate"},
            "sections are 1,0,1; alternate that means 1,1,0, h has as many pairs as w or one more",
        ),
    ],
)
def test_mrope_sections_that_cannot_be(given, words):
    """They add up to the pairs; interleaved no axis gets more than it can, where public code says nothing."""
    cfg = config("mrope", pe=(("mrope", given),))
    with pytest.raises(Misuse, match=f"^mrope: {words}"):
        logits(cfg, weights(cfg), tokens(1, 3))


def test_mrope_text_after_an_image_of_2_by_3():
    """It starts at s; its patches have t = s, h = s, s+1 and w = s, s+1, s+2, so text goes on at s + 3:
    not at the slot, which is s + 6.
    """
    s = 4
    patches = np.array([[s] * 6, np.repeat([s, s + 1], 3), np.tile([s, s + 1, s + 2], 2)])
    assert patches.max() + 1 == s + 3
    cfg, x = config("mrope"), tokens(1, s + 8)
    p = weights(cfg)
    i = np.concatenate([np.tile(np.arange(s), (3, 1)), patches, np.tile([s + 3, s + 4], (3, 1))], 1)
    memory = model.cache(cfg, 16)
    rows = []
    for cut, positions in (
        (slice(0, s), None),
        (slice(s, s + 6), patches),
        (slice(s + 6, s + 7), np.array([s + 3])),
        (slice(s + 7, s + 8), None),
    ):
        y, memory = model.decode(cfg, p, x[:, cut], memory, positions=positions)
        rows.append(y)
    same(np.concatenate(rows, 1), logits(cfg, p, x, positions=i), EXACT)
    assert abs(rows[-1] - logits(cfg, p, x)[:, -1:]).max() > 1e-4


@pytest.mark.parametrize(
    ("ladder", "rows", "columns"),
    [
        ("restart", [1, 0.01], [1, 0.01]),
        ("global", [1, 0.1], [0.01, 0.001]),
        ("alternate", [1, 0.01], [0.1, 0.001]),
        ("pixel", [np.pi, 5 * np.pi], [np.pi, 5 * np.pi]),
    ],
)
def test_axial_ladders_of_width_8(ladder, rows, columns):
    """Two pairs for rows, two for columns. Pixels of an image of 16 x 16 lie from -1 to 1, as linspace(-1,
    1, 16) has them.
    """
    rotate = get("axial").rotate
    place = np.linspace(-1, 1, 16)[[3, 10]] if ladder == "pixel" else [3, 10]
    want = np.concatenate([place[0] * np.array(rows), place[1] * np.array(columns)])
    same(rotate({}, np.array([[3], [10]])[:, None], 0, R=8, ladder=ladder)[0][0, 0], want, 1e-14)
    same(rotate({}, np.array([3 * 16 + 10]), 0, R=8, ladder=ladder)[0][0], want, 1e-14)


def test_axial_moves_with_rows_and_columns():
    """A number added to all rows and another to all columns changes nothing: of two axes the shift is a
    law, with every ladder.
    """
    for given in every_choice("axial"):
        cfg, x = config("axial", pe=(("axial", given),), D=8), tokens(2, 9)
        p, i = weights(cfg), image(2)
        same(
            logits(cfg, p, x, positions=i + np.array([100, 37])[:, None, None]),
            logits(cfg, p, x, positions=i),
            EXACT,
        )


def test_an_image_turns_widths_that_both_axes_share():
    """A model is refused when it is made, and a call of one's own before it computes."""
    with pytest.raises(Misuse, match="axial: rotary width is 6; expected a multiple of 4"):
        config("axial", D=8, R=6)
