"""What `show` draws: the numbers by the hook that an encoding fills, the files, the command."""

import io
import json
import re
import sys
import xml.etree.ElementTree as tree
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from check import same, same_numbers

from peref import model
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.config import Config
from peref.encodings import get, names, options, symbols_of
from peref.encodings.score.deberta import distance_rows
from peref.lab import effects, responses
from peref.lab.effects import fresh
from peref.lab.panels import Curve, Image, Panel
from peref.lab.responses import Subject
from peref.ops.attention import probabilities, scores
from peref.settings import choose
from peref.share import install

NAMES = names()


def panels(name, *settings, L=64, trained=False):
    """Title -> panel."""
    found = effects.effects(replace(fresh(choose(name, settings), L), trained=trained))
    assert len({p.title for p in found}) == len(found)
    return {p.title: p for p in found}


def rotation(rotate, claims=("any_length",), L=64):
    """Title -> panel of a made-up encoding that fills rotate, at head width 8 and base 10000."""
    cfg = Config(pe=(("rope", {}),), C=8, H=1, L=L)
    encoding = replace(get("rope"), rotate=rotate, claims=frozenset(claims))
    return {p.title: p for p in effects.rotate_panels(Subject("made up", cfg, encoding, {}, {}))}


LADDER = 10.0 ** -np.arange(4)
turns = lambda i, w: i[:, None] * w


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("name", NAMES)
def test_every_encoding_has_something_to_show(name):
    """At least two panels of finite numbers, with words on the axes."""
    found = panels(name)
    assert len(found) >= 2, (
        f"{name} shows {list(found)}; lab/effects.py draws what its hook does: give it one more"
    )
    for title, panel in found.items():
        assert panel.title and panel.x and panel.y, f"{title}: name the panel and both axes"  # noqa: PT018
        for values in [panel.values] if isinstance(panel, Image) else [c.y for c in panel.curves]:
            assert np.isfinite(values).any(), f"{title}: nothing in it is finite; show another place"
            flat = np.ptp(values[np.isfinite(values)]) == 0 and not isinstance(panel, Panel)
            assert not flat, f"{title}: all its numbers are alike; show another place"
        for curve in panel.curves if isinstance(panel, Panel) else ():
            assert len(curve.x) == len(curve.y), f"{title}: give a curve as many x as y"


def test_a_bias_is_drawn_as_it_is():
    """ALiBi: straight lines with the slopes of eight heads, and the softmax of each; no buckets."""
    found = panels("alibi")
    bias, weight = found["bias over distance"], found["attention where all contents are equal"]
    d = np.arange(128)
    for h, (curve, share) in enumerate(zip(bias.curves, weight.curves, strict=True)):
        same(curve.y, -(2.0 ** -(h + 1)) * d, 1e-12)
        same(share.y, np.exp(-(2.0 ** -(h + 1)) * d) / np.exp(-(2.0 ** -(h + 1)) * d).sum(), 1e-12)
    assert (list(bias.marks), bias.note) == ([], "")


def test_edges_of_buckets_are_found_in_the_numbers():
    """T5's published ones; a table with a row for each distance has none; in words neighbours are drawn
    together.
    """
    found = panels("t5", trained=True)["bias over distance"]
    edges = [*range(1, 17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert [where for _, where, _ in panels("t5", L=512, trained=True)["bias over distance"].marks] == edges
    assert (
        panels("t5", L=512, trained=True)["bias over distance"].note
        == f"32 buckets, the later ones starting at 1 to 16, {', '.join(map(str, edges[16:]))}"
    )
    assert "buckets" in found.note
    assert effects.edges(panels("learned_bias", trained=True)["bias over distance"].values) == []


def test_of_a_learned_table_the_rows_are_drawn_and_not_their_start():
    """T5's published buckets over distance; a table with a row for each distance or position is a straight
    line; what is computed is no table.
    """
    rows, shared = panels("t5", L=512).values()
    edges = [*range(1, 17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    same_numbers(rows.curves[0].y, np.searchsorted(edges, np.arange(1024), side="right"), 0)
    same_numbers(shared.curves[0].y, np.diff([0, *edges, 1024]), 0)
    for name in ("learned_bias", "learned"):
        rows, shared = panels(name).values()
        same_numbers(rows.curves[0].y, np.arange(64), 0)
        same_numbers(shared.curves[0].y, np.ones(64, int), 0)
    for name in ("alibi", "kerple_log", "sinusoidal"):
        assert not any("row of" in title for title in panels(name))


def test_bytes_beside_a_map_are_told_apart():
    """Each has a label of its own, of one character or of two digits."""
    labels = [responses.byte_label(n) for n in range(256)]
    assert len(set(labels)) == 256
    assert {len(label) for label in labels} == {1, 2}


def test_axes_that_count_have_whole_ticks():
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    figure = pictures.Figure()
    ax, other, table = figure.subplots(1, 3)
    pictures.image(ax, Image("", "token", "head", np.eye(2)))
    pictures.curves(other, Panel("", "pair n", "", [Curve(np.arange(3), np.arange(3))]))
    pictures.curves(table, panels("learned")["how many positions share a row"])
    for axis in (ax.xaxis, ax.yaxis, other.xaxis, table.xaxis, table.yaxis):
        assert all(tick == round(tick) for tick in axis.get_ticklocs())


WORDS = "nothing is added or and times by for else across the heads present token wavelength angle e Re"
WORDS += " sin cos log ln exp max sqrt sum softmax sigmoid clip diag below then min mod"


@pytest.mark.parametrize("name", NAMES)
def test_every_symbol_of_a_formula_is_explained(name):
    """By the encoding or by the usual letters; all that an encoding explains is in its formula."""
    encoding = get(name)
    found, stem = symbols_of(encoding), lambda word: word.partition("_")[0]
    said = {*found, *map(stem, found), *options(encoding), *WORDS.split()}
    for word in re.findall(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*", encoding.formula):
        assert {word, *word.split("_")} & said, f"{word} of {encoding.formula}: give it words in symbols"
    assert set(encoding.symbols) <= set(found)


def test_symbols_say_what_they_are_in_their_formula():
    """i without j is no query's; x of m(x) is no embedding; h_(t-1) is the state, no head."""
    said = {name: symbols_of(get(name)) for name in NAMES}
    for name in ("learned", "sinusoidal", "rope", "yarn"):
        assert said[name]["i"] == "position of the token"
    for name in ("cope", "shaw", "xpos"):
        assert said[name]["i"] == "position of the query"
    assert said["learned"]["x"] == "embedding of a token"
    assert "embedding" not in said["pope"]["x"]
    assert "h" not in said["mamba"]
    assert "H" not in said["path"]


def test_a_table_of_noise_is_no_heap_of_curves():
    """Where neighbours differ as any two entries do, a row of colours for each head; smooth and stepped
    tables stay curves.
    """
    some = ("learned_bias", "t5", "sandwich", "alibi")
    drawn = {name: panels(name, trained=True)["bias over distance"] for name in some}
    assert {name: isinstance(p, Image) for name, p in drawn.items()} == {
        "learned_bias": True,
        "t5": False,
        "sandwich": False,
        "alibi": False,
    }
    table = fresh(choose("learned_bias", []), 64).p["table"]
    same(drawn["learned_bias"].values, table[:, 63:] if table.shape[1] > 64 else table, 0)


def test_the_axis_that_turns_each_pair_is_shown():
    """M-RoPE: 16, 24 and 24 pairs of one ladder in turn; axial: a ladder for the rows, one for the
    columns; RoPE has one axis and no such panel.
    """
    found = panels("mrope")["which axis turns a pair"]
    assert [np.isfinite(c.y).sum() for c in found.curves] == [16, 24, 24]
    same(np.nansum([c.y for c in found.curves], 0), 10000.0 ** (-2 * np.arange(64) / 128), 1e-12)
    rows, columns = panels("axial")["which axis turns a pair"].curves
    same(columns.y[32:], rows.y[:32], 1e-14)
    assert "which axis turns a pair" not in panels("rope")


def test_an_unscaled_rotation_is_the_ladder_alone():
    """One curve each; wavelengths are 2 pi over frequencies; no ratio, no gain; the score falls from 1."""
    found = panels("rope", "base=500000")
    ladder = 500000.0 ** (-2 * np.arange(64) / 128)
    (frequency,), (wave,) = found["frequencies"].curves, found["wavelengths"].curves
    same(frequency.y, ladder, 1e-12)
    same(wave.y, 2 * np.pi / ladder, 1e-12)
    assert len(found) == 3
    (score,) = found["score of a key equal to the query"].curves
    same(score.y, np.cos(turns(np.arange(64), ladder)).mean(1), 1e-12)


def test_a_scaled_rotation_stands_beside_the_unscaled_one():
    """Both ladders, their ratio, the gain in words and in the score."""
    found = rotation(lambda p, i, n: (turns(i, LADDER / 4), 1.5 + 0 * i[:, None], np.array([[2.0]])))
    plain, scaled = found["frequencies"].curves
    same([plain.y, scaled.y], [LADDER, LADDER / 4], 1e-12)
    same(found["frequency, scaled to unscaled"].curves[0].y, np.full(4, 0.25), 1e-12)
    score = found["score of a key equal to the query"]
    assert "3.0000" in score.note
    same(score.curves[1].y, 3 * np.cos(turns(np.arange(64), LADDER / 4)).mean(1), 1e-12)
    assert "gain in the score" not in found


def test_frequencies_that_depend_on_the_length_are_drawn_twice():
    """For L and four times L, where the encoding goes so far."""
    rotate = lambda p, i, n: (turns(i, LADDER * 64 / n), None, None)
    assert [c.label for c in rotation(rotate)["frequencies"].curves] == [
        "unscaled, base 10,000",
        "made for length 64",
        "made for length 256",
    ]
    same(rotation(rotate)["frequency, scaled to unscaled"].curves[1].y, np.full(4, 0.25), 1e-12)
    assert len(rotation(rotate, claims=())["frequencies"].curves) == 1


def test_pairs_that_do_not_turn_are_counted():
    """They have no wavelength."""
    found = rotation(lambda p, i, n: (turns(i, LADDER * [1, 1, 1, 0]), None, None))
    assert found["wavelengths"].note == "1 of 4 pairs does not turn"
    assert np.isnan(found["wavelengths"].curves[1].y[3])


def test_gains_over_distance_and_angles_that_are_no_multiple():
    """A gain of its own for each pair is drawn by distance; an angle that does not grow evenly as an
    image.
    """
    z = np.array([0.9, 0.95, 0.99, 1.0])
    found = rotation(lambda p, i, n: (turns(i, LADDER), z ** i[:, None], z ** -i[:, None]))
    same(found["gain in the score"].curves[0].y, 0.9 ** np.arange(64), 1e-12)
    found = rotation(lambda p, i, n: (turns(i // 8, LADDER), None, None))
    same(found["cosine of the angle of each pair"].values, np.cos(turns(np.arange(64) // 8, LADDER)).T, 1e-12)
    assert "frequencies" not in found


@pytest.mark.parametrize("name", ["none", "alibi", "t5"])
def test_weights_are_those_of_the_softmax(name):
    """Found by a backward pass, with grouped heads, each row and head its own."""
    cfg = Config(pe=((name, {}),), C=12, H=6, G=3, L=16)
    encoding, at = cfg.encoding(0), model.At.of(5)
    p = {n: np.float64(a) for n, a in encoding.init(np.random.default_rng(0)).items()}
    content = responses.random_content(cfg, encoding, 5, 1)
    table = encoding.bias(model.PLAIN, p, at.distances) if encoding.bias else None
    logits = scores(content["q"], content["k"], table, None, None, None, at=at, scale=encoding.scale(cfg.D))
    same(
        responses.attention_weights(encoding, p, at, {"layout": "half"}, content),
        probabilities(logits, at=at)[0],
        1e-14,
    )


def test_what_starts_as_nothing_is_shown_with_other_parameters():
    """A score that adds zeros is drawn again with its parameters away from zero, and says so."""
    cfg = Config(pe=(("forgetting", {}),), C=8, H=2, L=16)
    encoding = replace(
        get("forgetting"),
        features=None,
        init=lambda rng: {"a": np.zeros((2, 1, 1))},
        score=lambda be, p, q, k, f, at: (p["a"] * np.ones((1, 2, at.T, at.S)), None, None),
    )
    found = responses.score_panels(Subject("x", cfg, encoding, {"a": np.zeros((2, 1, 1))}, {}))
    assert responses.STIRRED in found[0].note
    assert found[0].curves[0].y.any()


APART = "how far two distances are told apart"


def test_of_a_random_start_is_drawn_what_holds_for_every_start():
    """DeBERTa: distances of one bucket are one; Shaw: those from 16 on; FIRE: the farther apart two are, the
    more; with 1,024 samples no mean is far from 0. CoPE starts as nothing and says so; of a trained model
    its own parameters are drawn.
    """
    L = 144  # beyond the 128 from which DeBERTa's distances are one
    drawn = {name: panels(name, L=L) for name in ("deberta", "shaw", "fire", "dynamic_bias", "cope")}
    for name, rows in (
        ("deberta", distance_rows(np.arange(L), 32, 128)),
        ("shaw", np.minimum(np.arange(L), 16)),
    ):
        same_numbers((drawn[name][APART].values > 1e-6).astype(int), (rows[:, None] != rows).astype(int), 0)
    fire = drawn["fire"][APART].values
    assert (np.diff(fire[0]) > 0).all()
    assert (np.diff(fire[:, -1]) < 0).all()
    for found in drawn.values():
        (curve,) = found["weight over distance, random parameters"].curves
        assert (np.abs(curve.y[1:]) < 0.5 * curve.spread[1:]).all()
        assert not any("one random content" in title or "last token" in title for title in found)
        assert "random parameters" in found[APART].note
    assert "starts as nothing" in drawn["cope"][APART].note
    for name in (*drawn, "path"):
        assert APART not in panels(name, trained=True)
    assert {"attention of the last token", APART} <= {*panels("path"), *panels("forgetting")}


def test_what_tells_no_distances_apart_says_so():
    """DAPE by itself sees contents alone: over many starts it adds alike at every distance, and nothing on
    the mean, but the more, the larger the logit is; what does not start at random says nothing of it.
    """
    found = panels("dape")
    (far,), (large,) = (
        found[f"what is added over {x}, random parameters"].curves for x in ("distance", "the logit")
    )
    assert (
        "by itself it tells no distances apart"
        in found["what is added over distance, random parameters"].note
    )
    assert np.ptp(far.spread) < 0.1 * np.mean(far.spread)
    assert (np.abs(far.y) < 0.2 * far.spread).all()
    assert (np.abs(large.y) < 0.5 * large.spread).all()
    assert (np.diff(large.x) > 0).all()
    assert min(large.spread[0], large.spread[-1]) > 1.2 * large.spread[len(large.x) // 2]
    assert not any("one random content" in title or "last token" in title for title in found)
    assert APART not in panels("alibi")
    assert APART not in panels("pope")


def test_a_response_comes_from_the_past_alone():
    """Of a mixing layer: the last token's own is 1, what stands after a token does not reach it."""
    found = panels("retnet")
    assert found["response to a change of an earlier input"].curves[0].y[0] == 1
    share = found["how far back the response comes from"].curves[0].y
    assert (np.diff(share) >= 0).all()
    same_numbers(share[-1], 1.0, 1e-6)
    cfg = Config(pe=(("retnet", {}),), C=8, H=2, L=16)
    p, x = (
        model.of_encoding(cfg, model.init(cfg, 0, np.float64), 0),
        np.random.default_rng(0).standard_normal((2, 5, 8)),
    )
    rows = responses.sensitivity(cfg.encoding(0), p, x, model.At.of(5), [1, 3], {})
    assert (rows[0, 2:] == 0).all()
    assert (rows[0, :2] > 0).all()
    assert (rows[1, 4:] == 0).all()
    assert (rows[1, :4] > 0).all()


def test_maps_of_a_model_are_rows_of_weights_for_every_layer():
    """Grouped heads, a cycle of hooks; the first row looks at itself; tokens are named; a window is kept."""
    cfg = Config(pe=(("alibi", {}), ("retnet", {}), ("path", {})), C=16, H=4, G=2, layers=3, L=16)
    params = model.init(cfg)
    found = responses.maps(cfg, params, np.frombuffer(b"a b\n\xc3", np.uint8))
    assert [len(row) for row in found] == [4, 1, 4]
    assert found[0][0].ticks == ["a", "\u2423", "b", "\u23ce", "c3"]
    for row in found:
        for one in row:
            same(np.nansum(one.values, 1), np.ones(5), 1e-5)
            same(one.values[0, 0], one.values.dtype.type(1), 1e-6)
            assert np.isnan(one.values[np.triu_indices(5, 1)]).all()
    narrow = replace(cfg, pe=(("alibi", {}),), window=2)
    one = responses.maps(narrow, model.init(narrow), np.arange(5))[2][3].values
    same(np.isfinite(one), np.tri(5) - np.tri(5, k=-2) > 0, 0)


# ---------------------------------------------------------------- files


@pytest.fixture
def show(tmp_path, monkeypatch, capsys):
    """Runs `show` in an empty folder; gives exit code, stdout, stderr."""
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    monkeypatch.chdir(tmp_path)

    def call(*args):
        capsys.readouterr()
        code = run_cli(["show", *map(str, args)], Signals())
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.mark.filterwarnings("error")
def test_heads_that_look_ahead_have_no_curve():
    """Half of the heads sees the future alone: at every distance of the past but 0 their bias is minus
    infinity, and nobody complains.
    """
    rows = [curve.y for curve in panels("alibi", "directions=halves")["bias over distance"].curves]
    assert all(np.isfinite(y).all() for y in rows[:4])
    assert all(np.isneginf(y[1:]).all() for y in rows[4:])


def test_words_stand_beside_what_is_drawn():
    """The names of several heads are outside the axes, whatever the curves are; with few curves they are
    inside, on none of their points.
    """
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    noise = np.random.default_rng(0).standard_normal((8, 99))
    heads = Panel(
        "", "", "", [Curve(np.arange(99), row, f"head {h}", of=(h, 8)) for h, row in enumerate(noise)]
    )
    few = [
        panels(name)[title]
        for name, title in (
            ("pi", "frequencies"),
            ("yarn", "wavelengths"),
            ("p_rope", "frequency, scaled to unscaled"),
        )
    ]
    for panel in (heads, *few):
        figure = pictures.Figure(figsize=(4.6, 3.5), layout="constrained")
        ax = figure.subplots()
        pictures.curves(ax, panel)
        figure.draw_without_rendering()
        words = ax.get_legend().get_window_extent()
        points = np.concatenate(
            [ax.transData.transform(line.get_xydata()) for line in ax.lines[: len(panel.curves)]]
        )
        assert not [x for x, y in points if words.contains(x, y)], panel.title
        assert (words.x0 >= ax.get_window_extent().x1) == (panel is heads)


@pytest.mark.parametrize(("more", "count"), [("x" * 30, 10), ("", 5)], ids=["long names", "five"])
def test_names_that_would_hide_curves_stand_under_the_words_of_the_axis(more, count):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    figure = pictures.Figure(figsize=(4.6, 3.5), layout="constrained")
    ax = figure.subplots()
    pictures.curves(ax, Panel("", "x", "y", [Curve([1, 2], [n, n], f"{n} {more}") for n in range(count)]))
    figure.draw_without_rendering()
    names_box = ax.get_legend().get_window_extent()
    assert names_box.y0 >= 0
    assert names_box.y1 <= ax.xaxis.label.get_window_extent().y0


def test_of_curves_alike_the_lightest_is_seen_on_white():
    """By the contrast that WCAG 2.1 (1.4.11) asks of graphics, 3 to 1."""
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    for k in range(8):
        c = np.array(pictures.shade(Curve([0], [0], of=(k, 8)))[:3])
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) >= 3


def test_thirteen_curves_are_told_apart():
    """Colours come again dotted, and the picture grows by the names under it: the panels keep their size."""
    imread = pytest.importorskip("matplotlib.image", reason="pictures need the extra plot").imread
    from peref.lab import pictures

    ax = pictures.Figure().subplots()
    lines = [Curve(np.arange(2), np.arange(2) + n, f"{n} " + "x" * 30) for n in range(13)]
    panel = Panel("", "x", "y", lines)
    pictures.curves(ax, panel)
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 13
    tall = []
    for count in (3, 13):
        picture = pictures.drawn(".png", "name", ["about"], [replace(panel, curves=lines[:count])])
        tall.append(imread(io.BytesIO(picture)).shape[0])
    assert tall[1] - tall[0] > 10 * 7.5 / 72 * 130


def test_words_are_within_the_picture():
    """A long name over one panel, and tokens beside maps: along all of its edges it is white."""
    imread = pytest.importorskip("matplotlib.image", reason="pictures need the extra plot").imread
    from peref.lab import pictures

    words = [*"for_i_in_range(n):_gpq_j_x_=_f(i)_+_f(i_-_1)_y"]
    maps = [[Image("layer 0, head 0", "", "", np.tri(len(words)), ticks=words, top=1.0)]] * 4
    two = [Panel(name, "x", "y", [Curve(np.arange(5), np.arange(5))]) for name in "ab"]
    name = "Which encoding learns induction, and at which lengths"
    for panels, under in ((two[:1], []), (two, maps)):
        picture = pictures.drawn(".png", name, ["about"], panels, under)
        pixels = imread(io.BytesIO(picture))[..., :3]
        assert all((edge == 1).all() for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]))


@pytest.mark.parametrize("inches", [3.0, 9.2])
def test_lines_are_as_wide_as_the_picture(inches):
    """Of all options of every encoding none goes beyond it, and none has room for the next word; every
    word is there.
    """
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    figure = pictures.Figure(figsize=(inches, 1))
    wide = lambda line: (
        figure.text(0, 0, line, fontsize=pictures.CAPTION).get_window_extent().width / figure.dpi
    )
    for name in names():
        text = "options:        " + ", ".join(
            f"{option}={default}" for option, (default, _) in options(get(name)).items()
        )
        lines = pictures.wrapped(text, inches)
        assert " ".join(lines) == text
        assert all(wide(line) <= 1.02 * inches for line in lines), name
        assert all(wide(f"{line} {after.split()[0]}") > 0.98 * inches for line, after in pairwise(lines)), (
            name
        )


@pytest.mark.parametrize(("centred", "least"), [(True, -3.0), (False, 0.0)])
def test_the_colours_of_an_image_part_at_0_where_it_is_centred(centred, least):
    """Else they begin there."""
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    ax = pictures.Figure().subplots()
    pictures.image(ax, Image("title", "x", "y", np.array([[-1.0, 0.0, 3.0]]), centred))
    norm = ax.images[0].norm
    assert (norm.vmin, norm.vmax, norm(0.0)) == (least, 3.0, 0.5 if centred else 0.0)


def test_a_png_and_an_svg(show):
    """What is asked for, under the name that is printed, the same bytes again."""
    assert show("alibi", "--len", 32) == (0, "alibi.png\n", "")
    first = Path("alibi.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert show("alibi", "--len", 32)[0] == 0
    assert Path("alibi.png").read_bytes() == first
    for again in (1, 2):
        assert show("t5", "--len", 32, "--set", "buckets=8", "-o", f"{again}.svg")[0] == 0
    assert tree.parse("1.svg").getroot().tag.endswith("svg")
    assert Path("1.svg").read_bytes() == Path("2.svg").read_bytes()
    assert show("t5", "--len", 32, "--set", "buckets=10", "-o", "2.svg")[0] == 0
    assert Path("1.svg").read_bytes() != Path("2.svg").read_bytes()


def test_a_random_start_is_called_one(show, undrawn):
    """Over the panels, for a mixer too; not where every start is the same."""
    for name, random in (("shaw", True), ("gla", True), ("alibi", False), ("rope", False)):
        assert show(name, "--len", 32, "-o", "start.svg")[0] == 0
        assert ("with random parameters" in Path("start.svg").read_text()) is random


def test_a_run_shows_its_weights_and_its_attention(show, undrawn, tmp_path):
    """Of the first layer, of the first with the name, of the one that is named; over the prompt."""
    text = tmp_path / "words.txt"
    text.write_text("def f(x):\n    return x\n" * 400)
    tiny = [
        "--width",
        "16",
        "--heads",
        "2",
        "--layers",
        "3",
        "--len",
        "48",
        "--batch",
        "2",
        "--valid-bytes",
        "200",
        "--backend",
        "numpy",
    ]
    assert (
        run_cli(["train", *tiny, "--steps", "2", "--pe", "rope,alibi,retnet", "--data", str(text)], Signals())
        == 0
    )
    (run,) = Path("runs").iterdir()
    more = ["--layers", "1", "--steps", "1", "--pe", "rope", "--data", str(text), "--runs", "others"]
    assert run_cli(["train", *tiny, *more], Signals()) == 0
    (one_run,) = Path("others").iterdir()
    short = ["--prompt", "def f"]
    code, out, _ = show("--run", run, *short, "--json")
    (one,) = json.loads(out)["pictures"]
    maps = ["layer 0, head 0", "layer 0, head 1", "layer 1, head 0", "layer 1, head 1", "layer 2, response"]
    assert (code, one["name"], one["path"], one["panels"][-5:]) == (0, "rope", "rope.png", maps)
    assert (
        json.loads(show("alibi", "--run", run, *short, "--json")[1])["pictures"][0]["panels"][0]
        == "bias over distance"
    )
    assert (
        json.loads(show("--run", run, "--layer", 2, *short, "--json")[1])["pictures"][0]["name"] == "retnet"
    )
    warning = "BUT THE WEIGHTS WERE TRAINED UNDER"
    for args, words in ((["pi"], f"{warning} rope"), (["--set", "base=500"], f"{warning} other options")):
        assert show(*args, "--run", one_run, *short, "-o", "other.svg")[0] == 0
        assert words in Path("other.svg").read_text()
    undrawn.undo()
    assert show("--run", one_run, "-o", "same.svg")[0] == 0
    assert warning not in Path("same.svg").read_text()
    for args, words in (
        (
            ["alibi", "--layer", "0"],
            "layer 0 of the run has rope, not alibi; the layers are: rope, alibi, retnet",
        ),
        (["--layer", "3"], "layers 0 to 2"),
        (["--prompt", "x" * 65], "--prompt has 65 bytes"),
        (["--prompt", ""], "--prompt has 0 bytes"),
        (["--len", "16"], "--len is that of the run"),
        (["t5"], "the weights have"),
    ):
        code, _, err = show(*args, "--run", run)
        assert code == 2
        assert re.fullmatch(r"error: .*\n", err)
        assert words in err


@pytest.mark.parametrize("name", ["rope+alibi", "path+forgetting", "kerple_log+dape", "sinusoidal+t5"])
def test_several_encodings_in_one_layer_are_shown_each(name):
    """By its own name what it does alone, then the attention of all; the bias and the rotation are those that
    they are alone.
    """
    found = panels(name)
    assert {title.partition(":")[0] for title in found if ":" in title} == set(name.split("+"))
    assert "attention of the last token" in found
    for title, panel in found.items():
        for values in [panel.values] if isinstance(panel, Image) else [c.y for c in panel.curves]:
            assert np.isfinite(values).any(), title
    if name == "rope+alibi":
        alone, mine = panels("alibi")["bias over distance"], found["alibi: bias over distance"]
        for one, other in zip(mine.curves, alone.curves, strict=True):
            same(one.y, other.y, 0)
        frequencies = found["rope: frequencies"].curves[0].y
        same(frequencies, 10000.0 ** (-2 * np.arange(len(frequencies)) / (2 * len(frequencies))), 1e-12)


def test_a_run_whose_layers_have_several_encodings_and_settings(show, undrawn, tmp_path):
    """Its attention is drawn with the window, the chunk and the sinks of each layer."""
    text = tmp_path / "text"
    text.write_text("def f(x):\n    return x\n" * 400)
    tiny = [
        "--width",
        "16",
        "--heads",
        "2",
        "--layers",
        "2",
        "--len",
        "48",
        "--batch",
        "2",
        "--backend",
        "numpy",
    ]
    tiny += ["--valid-bytes", "200", "--steps", "1", "--data", str(text), "--pe", "rope+alibi,none"]
    settings = ["0.window=3", "0.sinks=true", "1.chunk=4", "1.temperature=ssmax"]
    assert run_cli(["train", *tiny, *[x for one in settings for x in ("--set", one)]], Signals()) == 0
    (run,) = Path("runs").iterdir()
    code, out, _ = show("--run", run, "--prompt", "def f(x)", "--json")
    (one,) = json.loads(out)["pictures"]
    assert (code, one["name"], one["path"]) == (0, "rope+alibi", "rope+alibi.png")
    assert one["panels"][0] == "rope: frequencies"
    assert "layer 1: attention of the last token" in one["panels"]
    code, out, _ = show("--run", run, "--prompt", "def f(x)", "--layer", "0", "--json")
    assert not [title for title in json.loads(out)["pictures"][0]["panels"] if title.startswith("layer 1: ")]
    assert one["panels"][-4:] == [f"layer {layer}, head {head}" for layer in (0, 1) for head in (0, 1)]
    assert show("rope,alibi")[2].startswith("error: rope,alibi is a cycle; show one of its members")


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    """One line, and nothing is written."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)
    for args in (["show", "alibi"], ["show", "--all"]):
        assert run_cli(args, Signals()) == 2
        assert (
            capsys.readouterr().err
            == f"error: pictures need matplotlib: {install('[plot]')}; every other command works without it\n"
        )
    assert [*tmp_path.iterdir()] == []
