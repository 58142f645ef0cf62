"""What a training step asks of a device, counted on the fake CuPy: it never waits, and each asks for as much
as the one before.
"""

from dataclasses import replace

import fake_cupy
import numpy as np
import pytest
from check import same
from test_train import BAD, CORPUS, SMALL, finish, made, parts, result, tiny, zeros

from peref import backends
from peref.errors import Diverged
from peref.model import init
from peref.train import one_step, train

HOOKED = ("none", "rope", "alibi", "t5", "learned", "forgetting", "shaw", "retnet")  # for each hook, and more


def asked(cfg, count=1, size=2):
    """What each of three steps asks of the device, of `count` batches of `size` sequences."""
    be, each = backends.get("cupy"), []
    p, m, v, word = (be.place(a) for a in (init(cfg), zeros(init(cfg)), zeros(init(cfg)), np.zeros(3)))
    for step in (1, 2, 3):
        before = fake_cupy.counts()
        be.step(one_step, be, cfg, SMALL.rule, p, m, v, parts(count, size), SMALL.numbers(step), word)
        each.append({key: n - before.get(key, 0) for key, n in fake_cupy.counts().items()})
    return each


@pytest.mark.parametrize("name", HOOKED)
def test_a_step_never_waits_and_asks_for_as_much_as_the_last(cupy, name):
    """No sync and the same calls, also of a larger batch; a second layer asks for no more than a whole
    step with one.

    That no other encoding waits is held by the captures of test_cuda_graph.py, which refuse what does.
    """
    _, second, third = asked(tiny(name))
    assert second == third
    assert not third.get("syncs")
    assert not third.get("waits")
    assert asked(tiny(name), size=4)[2] == third
    assert asked(replace(tiny(name), layers=2))[2]["calls"] <= 2 * third["calls"]


def test_a_run_waits_only_where_it_writes_to_disk(cupy, tmp_path):
    """Between saves and validations the host waits for one event a step, that of the step before."""
    recipe = replace(SMALL, steps=9, save_every=9, valid_every=9)
    seen = []
    for event in train(made(tmp_path, recipe=recipe), CORPUS, backends.get("cupy")):
        seen.append(
            (event.get("step"), fake_cupy.counts().get("syncs", 0), fake_cupy.counts().get("waits", 0))
        )
    steps = seen[1:-1]
    assert [step for step, _, _ in steps] == list(range(1, 10))
    assert {syncs for _, syncs, _ in steps[:7]} == {steps[0][1]}
    assert [waits for _, _, waits in steps] == list(range(1, 10))


def test_metrics_and_checkpoints_are_those_of_a_step_that_waits(cupy, tmp_path):
    """Reading one step late loses nothing: every line and checkpoint is there, resumed or not, with the
    bits of the same run in one go.
    """
    be = backends.get("cupy")
    whole, run = (made(tmp_path, recipe=replace(SMALL, save_every=7, valid_every=7), be=be) for _ in range(2))
    finish(whole, be)
    left = iter([False, True])
    finish(run, be, stopping=lambda: next(left, False))
    assert run.checkpoints == [3]  # asked for after step 2, while step 3 was under way
    finish(run, be)
    assert [line["step"] for line in run.metrics.read()] == list(range(1, 8))
    assert result(run) == result(whole)


@pytest.mark.parametrize("word", BAD)
@pytest.mark.parametrize("step", [2, 5])
def test_a_bad_step_never_reaches_the_weights_of_a_device(word, step, cupy, tmp_path):
    """Found one step later, when the next step has run too: neither changed anything, and the step before
    is saved, bit by bit.
    """
    recipe = replace(SMALL, valid_every=7, save_every=7)
    run = made(tmp_path, recipe=recipe, be=backends.get("cupy"))
    stopped = made(tmp_path, recipe=replace(recipe, save_every=1), be=backends.get("cupy"))
    calls = []

    def counted(function, *arguments):
        calls.append(1)
        return function(*arguments)

    bad = replace(BAD[word](step), place=backends.get("cupy").place, step=counted)
    with pytest.raises(Diverged, match=rf"^step {step}: {word}.*; step {step - 1} is saved in "):
        finish(run, bad)
    assert len(calls) == step + 1
    assert run.checkpoints == [step - 1]
    assert [line["step"] for line in run.metrics.read()] == list(range(1, step))
    for event in train(stopped, CORPUS, backends.get("cupy")):
        if event.get("step") == step - 1 > 0:
            break
    same(run.checkpoint(step - 1)[0], stopped.checkpoint(step - 1)[0], 0)
