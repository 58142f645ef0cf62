"""Tasks and masked tokens: samples that never change, what is asked of them, exact match, and runs that learn
them and resume with the same bits.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from check import apart, same, same_numbers
from test_train import BE, CORPUS, SMALL, after, finish, result, tiny

from peref import model
from peref.config import Config
from peref.data import batch
from peref.encoder_decoder import answered
from peref.errors import Misuse
from peref.evaluate import Protocol, Scoring, evaluate, score, weights_of
from peref.exact_match import answer, effective_length, exact_match, lengths_of
from peref.generate import generate
from peref.lab.responses import byte_label
from peref.masking import masked_tokens
from peref.recipe import Recipe
from peref.rng import generator
from peref.tasks import BEGIN, END, Exercise
from peref.train import create_run, lesson, train

REVERSE, MQAR = Exercise("reverse", 5), Exercise("mqar", 20, alone=True)
PASSKEY = Exercise("passkey", 50, alone=True, corpus=CORPUS)
LETTERS = {"C": 16, "H": 2, "layers": 1, "L": 6}


def pair_of(**given):
    made = lambda name, **more: Config(pe=((name, {}),), **LETTERS | given | more)
    return made("alibi", cross=True, encoder=made("rope", causal=False))


def words(letters):
    return bytes(map(int, letters)).decode()


# ---------------------------------------------------------------- samples


def test_samples_stay_what_they_were():
    """Version 1 of reverse: these letters for these seeds and indices."""
    assert [
        words(REVERSE.sample(seed, index)) for seed, index in ((0, 0), (0, 1), (1, 0), (0, 2**31))
    ] == FROZEN
    assert [words(REVERSE.held_out(index)) for index in (0, 1)] == HELD_OUT


FROZEN = ["nhxvu", "jv", "y", "bebfc"]
HELD_OUT = ["puvxr", "hbuzl"]


def test_a_batch_asks_each_letter_and_the_end():
    inputs, targets = REVERSE.asked([b"abc", b"zyxwv"])
    source, seg, tokens, targets = (a.tolist() for a in (*inputs, targets))
    a, z = 97, 122
    assert source == [[a, a + 1, a + 2, 3, 0, 0], [z, z - 1, z - 2, z - 3, z - 4, 3]]
    assert seg == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert tokens == [[2, a + 2, a + 1, a, 0, 0], [2, z - 4, z - 3, z - 2, z - 1, z]]
    assert targets == [[a + 2, a + 1, a, 3, -1, -1], [z - 4, z - 3, z - 2, z - 1, z, 3]]


def test_batches_are_samples_one_after_another():
    """No sample twice: batch n has the samples from n times its size on, also over micro-batches."""
    recipe = Recipe(batch=3, accumulate=2, seed=4)
    for step, part, first in ((1, 0, 0), (1, 1, 3), (2, 0, 6)):
        inputs, targets = lesson(pair_of(), recipe, REVERSE, step, part)
        want, asked = REVERSE.asked(REVERSE.sample(4, index) for index in range(first, first + 3))
        for a, b in zip((*inputs, targets), (*want, asked), strict=True):
            same(a, b, 0)


def test_lengths_go_from_1_to_the_longest():
    lengths = [len(REVERSE.sample(0, index)) for index in range(300)]
    assert {*lengths} == {1, 2, 3, 4, 5}
    assert all(40 < lengths.count(n) < 80 for n in range(1, 6))
    assert {len(REVERSE.held_out(index)) for index in range(20)} == {5}


def alone(name, longest):
    return Exercise(name, longest, alone=True, corpus=CORPUS if name == "passkey" else None)


ALONE = [("copy", 4), ("reverse", 4), ("induction", 9), ("mqar", 17), ("passkey", 60)]


@pytest.mark.parametrize(("name", "longest"), ALONE)
def test_what_is_asked_of_a_decoder_alone(name, longest):
    """By what the words of each task say, of every sample; the first are the frozen ones of version 1."""
    exercise = alone(name, longest)
    tokens, targets = exercise.asked([exercise.held_out(n) for n in range(40)])
    assert tokens.shape == targets.shape == (40, exercise.tokens)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert answers_of(name, row) == {n: t for n, t in enumerate(wanted) if t >= 0}
    assert shown(tokens[1]) + " " + shown([t for t in targets[1] if t >= 0]) == FROZEN_ALONE[name]
    drawn, _ = exercise.asked(exercise.sample(3, index) for index in (2, 3))
    assert shown(drawn[1]) == FROZEN_DRAWN[name]
    same(exercise.asked([exercise.sample(3, 3)])[0][0], drawn[1], 0)
    assert exercise.task.version == 1


def answers_of(name, row):
    """Place -> answer, read from the tokens alone."""
    if name in ("copy", "reverse"):
        letters = row[: row.index(2)]
        said = letters if name == "copy" else letters[::-1]
        assert row[len(letters) + 1 :] == said
        return dict(enumerate([*said, 3], len(letters)))
    if name == "induction":
        assert row.count(33) == 2
        return {len(row) - 1: row[row.index(33) + 1]}
    if name == "mqar":
        value = {row[n]: row[n + 1] for n in range(0, 4, 2)}
        assert all(128 <= k < 192 <= v for k, v in value.items())
        return {n: value[token] for n, token in enumerate(row) if n >= 4 and token in value}
    text = bytes(row).decode()
    key = re.search(r"\nThe pass key is (\d{5})\.\n", text)[1]
    assert text.endswith(f"\nThe pass key is {key[:4]}")
    return dict(enumerate(key.encode(), len(row) - 5))


def shown(tokens):
    return "".join(map(byte_label, map(int, tokens)))


FROZEN_ALONE = {
    "copy": "ywls02ywls ywls03",
    "reverse": "jjmh02hmjj hmjj03",
    "induction": "es!oppuz! o",
    "mqar": "9ae48fff8fsyebtq9aysinb ffe4",
    "passkey": "cat␣⏎The␣pass␣key␣is␣23565.⏎mat␣sat␣sat⏎The␣pass␣key␣is␣2356 23565",
}
FROZEN_DRAWN = {
    "copy": "xlvv02xlvv",
    "reverse": "cdp02pdc0000",
    "induction": "!bdfb!000000",
    "mqar": "8dd48dbftrxhwujzs000000",
    "passkey": "t␣ran␣mat␣⏎The␣pass␣key␣is␣49866.⏎⏎The␣pass␣key␣is␣49860000000000",
}


def test_the_depth_of_a_needle():
    """Of held-out samples in equal steps from the first place to the last, of the others anywhere; its text
    is that of the corpus: the held-out part for the former.
    """
    places = [bytes(map(int, PASSKEY.held_out(n)[0])).index(b"\nThe") for n in range(5)]
    assert places == [0, 1, 2, 4, 5]  # of 5 bytes of text, where 2.5 is rounded to even
    held = bytes(map(int, PASSKEY.held_out(4)[0]))[:5]
    assert held in CORPUS.valid.tobytes()
    marks = [alone("induction", 9).held_out(n)[0].tolist().index(33) for n in range(5)]
    assert marks == [0, 2, 3, 4, 6]
    drawn = [bytes(map(int, PASSKEY.sample(0, n)[0])).index(b"\nThe") for n in range(90)]
    assert {*drawn} == {0, 1, 2, 3, 4, 5}


def test_exact_match_by_depth_and_the_effective_length():
    """Of a model that knows the answer where it is in the first half alone; 0 where the length trained for
    fails, whatever is beyond.
    """
    row = exact_match(tiny("rope", L=50), model.init(tiny("rope", L=50), 0, np.float64), PASSKEY, 7)
    assert row["by_depth"] == [0.0] * 5
    rows = lambda *shares: [{"length": 4 << n, "exact": x} for n, x in enumerate(shares)]
    assert effective_length(rows(1.0, 0.95, 0.96, 0.94, 1.0), 8) == 16
    assert effective_length(rows(1.0, 0.94, 1.0), 8) == 0
    assert effective_length(rows(0.9, 1.0, 1.0), 8) == 0
    assert effective_length(rows(1.0, 1.0), 8) == 8
    assert lengths_of(alone("passkey", 60), 120) == [60, 120]


def test_the_first_question_of_a_sample():
    """What stands before it, and its answer: a number, letters and their end, or one value of many."""
    tokens, targets = PASSKEY.held_out(1)
    before, key = PASSKEY.question(tokens, targets)
    assert bytes(before).endswith(b"The pass key is ")
    assert bytes(key) == re.search(rb"key is (\d+)\.", bytes(before))[1]
    before, letters = alone("copy", 4).question(*alone("copy", 4).held_out(0))
    assert before == [*letters[:-1], BEGIN]
    for n in range(20):
        before, value = alone("mqar", 32).question(*alone("mqar", 32).held_out(n))
        assert value == [before[before.index(before[-1]) + 1]]


# ---------------------------------------------------------------- masks


def test_masked_tokens_are_chosen_as_published():
    """15 % of each window, of them 80 % the mask, 10 % another byte, 10 % as they are; nothing else moves."""
    tokens = np.random.default_rng(0).integers(1, 256, (400, 200))
    inputs, targets = masked_tokens(tokens, generator(3, "mask", 1, 0))
    chosen = targets >= 0
    assert (chosen.sum(1) == 30).all()
    assert ((inputs == tokens) | chosen).all()
    same(targets[chosen], tokens[chosen], 0)
    shares = [(inputs[chosen] == 0).mean(), (inputs[chosen] == tokens[chosen]).mean()]
    same_numbers(shares[0], 0.8, 0.02)
    same_numbers(shares[1], 0.1 + 0.1 / 255, 0.02 / 0.1)
    assert abs(chosen.mean(0) - 0.15).max() < 0.1  # every place
    again = masked_tokens(tokens, generator(3, "mask", 1, 0))
    same(again[0], inputs, 0)
    assert apart(masked_tokens(tokens, generator(3, "mask", 2, 0))[0], inputs, 0)
    assert (masked_tokens(tokens[:, :2], generator(0, "mask", 1))[1] >= 0).sum(1).tolist() == [1] * 400


def test_a_lesson_of_both_ways_is_that_of_one_way_with_masks():
    cfg, recipe = tiny("rope", causal=False), replace(SMALL, seed=2)
    inputs, targets = lesson(cfg, recipe, CORPUS, 3, 1)
    text, _ = batch(CORPUS.train, 2, 3, batch=2, length=8, part=1)
    want = masked_tokens(text, generator(2, "mask", 3, 1))
    same([inputs, targets], list(want), 0)


def test_an_encoder_is_scored_on_masked_tokens_alone():
    """The mean over them, counted by position; the same twice, and of windows side by side only."""
    cfg = tiny("rope", causal=False)
    p, text = model.init(cfg, 0, np.float64), CORPUS.valid[:81]
    row, total, count = score(cfg, p, text, 8)
    assert row["tokens"] == count.sum() == 10  # one of each window of 8
    rows = text[:80].reshape(10, 8).astype(np.int64)
    inputs, targets = masked_tokens(rows, generator(0, "mask held out", 8, 0))
    loss, each = model.loss(cfg, p, inputs, targets)
    same_numbers(row["loss"], float(loss), 1e-13)
    same(total, each.sum(0), 1e-13)
    assert score(cfg, p, text, 8)[0] == row
    with pytest.raises(Misuse, match="masked tokens are asked in windows side by side"):
        list(evaluate(cfg, p, text, 8, Scoring(Protocol(4))))
    with pytest.raises(Misuse, match="only a causal model generates; this one reads both ways"):
        next(generate(cfg, p, [97], 3))


# ---------------------------------------------------------------- runs


def made(root, form, steps=4, **given):
    recipe = replace(SMALL, steps=steps, **given)
    if form == "masked":
        return create_run(root, tiny("rope", causal=False), recipe, CORPUS, "words", BE, ["train"]), CORPUS
    if form == "task":
        return create_run(root, pair_of(), recipe, REVERSE, "reverse", BE, ["train"]), REVERSE
    exercise = MQAR if form == "alone" else PASSKEY
    cfg = tiny("rope", L=exercise.tokens)
    return create_run(root, cfg, recipe, exercise, "words", BE, ["train"]), exercise


@pytest.mark.parametrize("form", ["masked", "task", "alone", "in a text"])
def test_a_stopped_run_goes_on_to_the_same_bits(form, tmp_path):
    """Also with two micro-batches in a step; the record says what it learns."""
    (whole, corpus), (run, _) = (made(tmp_path, form, accumulate=2) for _ in range(2))
    done = list(train(whole, corpus, BE))[-1]
    for count in (1, 2):
        *_, last = train(run, corpus, BE, stopping=after(count))
        assert last["event"] == "stopped"
    list(train(run, corpus, BE))
    assert result(run) == result(whole)
    assert ("exact" in done["valid"]) == (form != "masked")
    assert run.task == {"masked": None, "task": "reverse", "alone": "mqar", "in a text": "passkey"}[form]


@pytest.mark.parametrize("form", ["masked", "task"])
def test_the_loss_falls(form, tmp_path):
    run, corpus = made(tmp_path, form, steps=60, batch=8, valid_every=60)
    losses = [record["loss"] for record in train(run, corpus, BE) if record["event"] == "step"]
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


def test_another_exercise_is_refused(tmp_path):
    run, _ = made(tmp_path, "task")
    with pytest.raises(Misuse, match="was trained on another text"):
        finish(run)
    with pytest.raises(Misuse, match="was trained on another text"):
        list(train(run, replace(REVERSE, longest=4), BE))


def test_exact_match_is_that_of_answers_written_token_by_token(tmp_path):
    """Of a run that has half learned two letters: some answers are right, and the same ones; the interval is
    Wilson's.
    """
    two = Exercise("reverse", 2)
    recipe = replace(SMALL, steps=500, batch=16, rate=1e-2, valid_every=500, save_every=500)
    run = create_run(tmp_path, pair_of(C=32, L=3), recipe, two, "reverse", BE, ["train"])
    list(train(run, two, BE))
    pair, p, _ = weights_of(run)
    row = exact_match(pair, p, two, 60)
    held = [two.held_out(index) for index in range(60)]
    inputs, targets = two.asked(held)
    right = sum(answer(pair, p, [*letters, END], 3) == [*letters[::-1], END] for letters in held)
    assert 0 < right < 60, right
    assert row["exact"] == right / 60
    n, share, z = 60, right / 60, 1.96
    root = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    same_numbers(row["low"], (share + z * z / (2 * n) - root) / (1 + z * z / n), 1e-4)
    same_numbers(row["high"], (share + z * z / (2 * n) + root) / (1 + z * z / n), 1e-4)
    logits = answered(pair, p, *inputs)
    loss, _ = model.PLAIN.cross_entropy(logits, targets)
    same_numbers(row["loss"], float(loss), 1e-5)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Exercise("revers", 4), "unknown task 'revers'; did you mean 'reverse'"),
        (lambda: Exercise("reverse", 0), "the length of a source is 0; expected at least 1"),
        (lambda: REVERSE.asked([b"abcdef"]), "a source has 6 letters; expected at most 5"),
    ],
)
def test_what_is_refused(call, word):
    with pytest.raises(Misuse, match=word):
        call()
