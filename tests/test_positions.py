"""Positions of training that are drawn: what is drawn, who may have it, and that runs repeat."""

from dataclasses import replace

import numpy as np
import pytest
from check import same, same_numbers
from test_train import BE, CORPUS, NUMBERS, SMALL, after, finish, kept, made, parts, result, tiny, zeros

from peref.config import Config
from peref.data import batch
from peref.encodings import get, names
from peref.errors import Misuse
from peref.evaluate import Scoring, score
from peref.model import init, loss
from peref.optim import read_status
from peref.positions import draw_of
from peref.recipe import Recipe
from peref.rng import generator
from peref.tape import Tape
from peref.tasks import Exercise
from peref.train import check_recipe, lesson, one_step

HOW = {"random:64": (8,), "pose:64": (2, 8)}


def drawn(text, T, B=400, seed=0):
    """The positions of B sequences, [B,T]; random has one draw for a batch."""
    draw, N = draw_of(text)
    if text.startswith("pose"):
        return draw(generator(seed, "positions"), B, T, N)[0]
    return np.stack([draw(generator(seed, "positions", n), B, T, N) for n in range(B)])


def test_random_positions_are_a_sorted_sample():
    """Ascending, below N, each as often as any other; N = T leaves nothing to draw."""
    i = drawn("random:12", 5, 2000)
    assert i.shape == (2000, 5)
    assert (np.diff(i) > 0).all()
    same_numbers(np.bincount(i.ravel(), minlength=12) / 2000, np.full(12, 5 / 12), 0.1)
    same(drawn("random:5", 5, 3), np.tile(np.arange(5), (3, 1)), 0)


def test_pose_counts_and_skips_once():
    """From 0, in ones but for one skip behind 1 to (T + 1) // 2 tokens, each length and skip as often as any
    other, up to the last position below N.
    """
    i = drawn("pose:12", 7, 4000)
    steps = np.diff(i)
    assert (i[:, 0] == 0).all()
    assert ((steps > 1).sum(1) <= 1).all()
    skip = i[:, -1] - 6
    same_numbers(np.bincount(skip, minlength=6) / 4000, np.full(6, 1 / 6), 0.15)
    first = steps[skip > 0].argmax(1) + 1
    same_numbers(np.bincount(first, minlength=5)[1:] / len(first), np.full(4, 1 / 4), 0.15)
    assert first.max() == 4
    for T in (1, 2):
        assert (drawn("pose:9", T)[:, 0] == 0).all()
        assert drawn("pose:9", T).max() == (T > 1) * 8


@pytest.mark.parametrize("how", HOW)
def test_a_step_is_the_gradient_of_its_text_at_these_positions(how):
    """What lesson draws comes from seed, step and micro-batch, and frequencies are made for N; the text is
    that of counted positions.
    """
    cfg, recipe = tiny("dynamic_ntk"), replace(SMALL, positions=how, seed=5)
    inputs, targets, at = lesson(cfg, recipe, CORPUS, 1, 1)
    same([inputs, targets], list(batch(CORPUS.train, 5, 1, batch=2, length=8, part=1)), 0)
    assert at.i.shape == HOW[how]
    assert at.n == 64
    draw, N = draw_of(how)
    same(at.i, draw(generator(5, "positions", 1, 1), 2, 8, N).reshape(at.i.shape), 0)
    p = init(cfg, 0, "float64")
    tape = Tape()
    y, _ = loss(cfg, tape.watch(p), inputs, targets, positions=at.i, n=64)
    m, v = zeros(p), zeros(p)
    found = read_status(one_step(BE, cfg, SMALL.rule, p, m, v, [(inputs, targets, at)], NUMBERS), p)
    same_numbers(found[0], y.value, 1e-12)
    counted = one_step(
        BE, cfg, SMALL.rule, init(cfg, 0, "float64"), zeros(p), zeros(p), parts(2)[1:], NUMBERS
    )
    assert abs(counted[0] - found[0]) > 1e-6


@pytest.mark.parametrize("how", HOW)
def test_a_run_goes_on_to_the_same_bits(how, tmp_path):
    """Stopped and resumed it draws what it would have drawn; it is another run than one that counts, and
    says in run.json which.
    """
    recipe = replace(SMALL, positions=how, accumulate=2)
    whole, run = (made(tmp_path, tiny("rope"), recipe) for _ in range(2))
    finish(whole)
    finish(run, stopping=after(2))
    finish(run)
    assert result(run) == result(whole)
    assert run.record["recipe"]["positions"] == how
    assert Recipe.from_json(run.record["recipe"]) == recipe
    other = made(tmp_path, tiny("rope"), replace(recipe, positions=None))
    finish(other)
    assert kept(other)[1] != kept(whole)[1]


def test_evaluation_counts(tmp_path):
    """The validation loss is that of counted positions."""
    run = made(tmp_path, tiny("rope"), replace(SMALL, positions="random:64"))
    *_, done = finish(run)
    p = {name: run.checkpoint(7)[0][f"p/{name}"] for name in init(tiny("rope"), 0)}
    row, _, _ = score(tiny("rope"), p, CORPUS.valid[:71], 8, Scoring(be=BE))
    assert done["valid"]["loss"] == row["loss"]


def test_a_run_without_the_setting_is_read_as_one_that_counts(tmp_path):
    run = made(tmp_path)
    record = {name: value for name, value in run.record["recipe"].items() if name != "positions"}
    assert Recipe.from_json(record) == SMALL


@pytest.mark.parametrize("name", names())
def test_who_may_have_them(name):
    """Every encoding that looks at positions and reaches the last; the others are refused in words."""
    cfg, pe = tiny(name), get(name)
    recipe = replace(SMALL, positions="random:64")
    if pe.axes is None:
        with pytest.raises(Misuse, match=f"{name} looks at no position; leave it out"):
            check_recipe(cfg, recipe, CORPUS, "numpy")
        return
    if "any_length" not in cfg.encoding(0).claims and cfg.ends("float32")[0] < 64:
        with pytest.raises(Misuse, match=rf"random:64, but {name} ends at \d+ in float32"):
            check_recipe(cfg, recipe, CORPUS, "numpy")
        return
    check_recipe(cfg, recipe, CORPUS, "numpy")
    p = init(cfg, 0, "float64")
    for how in HOW:
        given = [lesson(cfg, replace(SMALL, positions=how), CORPUS, 1, 0)]
        status = one_step(BE, cfg, SMALL.rule, dict(p), zeros(p), zeros(p), given, NUMBERS)
        assert np.isfinite(read_status(status, p)).all()


def test_a_temperature_looks_at_positions():
    cfg = Config(pe=(("none", {"temperature": "logn"}),), L=8, C=16, layers=1, H=2)
    check_recipe(cfg, replace(SMALL, positions="pose:64"), CORPUS, "numpy")


@pytest.mark.parametrize(
    "text", ["random", "pose:", "skip:64", "random:0", "pose:-1", "random:1.5", "pose:²"]
)
def test_what_names_no_draw_is_refused(text):
    with pytest.raises(Misuse, match=f"positions is '{text}'; expected random:N or pose:N, N a length"):
        Recipe(positions=text)


def test_what_cannot_be_drawn_is_refused():
    """A length below that of training, and a task."""
    with pytest.raises(Misuse, match="positions is pose:7; expected at least the length to train on, 8"):
        check_recipe(tiny("rope"), replace(SMALL, positions="pose:7"), CORPUS, "numpy")
    pair = tiny("rope", cross=True, L=6, encoder=tiny("rope", causal=False, L=6))
    with pytest.raises(Misuse, match="positions is pose:64, but a task counts them; leave it out"):
        check_recipe(pair, replace(SMALL, positions="pose:64"), Exercise("reverse", 5), "numpy")


def test_masked_tokens_have_them_too():
    cfg = tiny("rope", causal=False)
    *asked, at = lesson(cfg, replace(SMALL, positions="pose:64"), CORPUS, 3, 1)
    same(asked, list(lesson(cfg, SMALL, CORPUS, 3, 1)), 0)
    assert at.i.shape == (2, 8)
