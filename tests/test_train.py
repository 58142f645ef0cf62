"""Training: a step is the gradient of its text; a run learns, ends with the same bits however often it was
interrupted, and stops when it must.
"""

import contextlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from check import apart, each_array, frozen, same, same_numbers

from peref import backends, records, runs, share, store
from peref.backends import Backend, blas
from peref.config import Config
from peref.data import batch, last_tenth
from peref.encodings import names
from peref.environment import environment
from peref.errors import Damaged, Diverged, Misuse, PerefError
from peref.evaluate import score
from peref.model import init, logits, loss
from peref.ops.activation import swiglu
from peref.ops.embedding import take
from peref.ops.linear import linear
from peref.ops.loss import cross_entropy
from peref.ops.shape import add
from peref.optim import adamw, decays, read_status, schedule
from peref.recipe import Recipe
from peref.tape import Op, Tape
from peref.train import create_run, one_step, train

WORDS = [b"the ", b"cat ", b"sat ", b"on ", b"a ", b"mat ", b"and ", b"ran "]
CORPUS = last_tenth(
    "words", "made here", b"".join(WORDS[k] for k in np.random.default_rng(0).integers(8, size=1000))
)
SMALL = Recipe(steps=7, batch=2, warmup=2, rate=1e-2, save_every=3, valid_every=2, valid_bytes=70)
NUMBERS = np.array([0.01, 1, SMALL.clip])
BE = Backend()


def tiny(pe="alibi", L=8, **given):
    return Config(pe=((pe, {}),), L=L, C=16, layers=1, H=2, **given)


def made(root, cfg=None, recipe=SMALL, be=BE):
    return create_run(root, cfg or tiny(), recipe, CORPUS, "words", be, ["train"])


def finish(run, be=BE, **given):
    """Every record of a run that is let go on to its end."""
    return list(train(run, CORPUS, be, **given))


def after(count):
    """A `stopping` that is true once, after so many steps."""
    left = iter([False] * (count - 1) + [True])
    return lambda: next(left, False)


def kept(run):
    """All that a repeated run repeats: name and bytes of the checkpoints, and metrics.jsonl."""
    found = {path.name: path.read_bytes() for path in sorted((run.folder / "ckpt").glob("*.safetensors"))}
    return found, (run.folder / "metrics.jsonl").read_bytes()


def result(run):
    """The last checkpoint and the metrics."""
    checkpoints, metrics = kept(run)
    assert run.finished
    return max(checkpoints.items()), metrics


def weights(run, kind="p"):
    arrays, _ = store.load_arrays(run.folder / "ckpt" / f"{run.checkpoints[-1]:08d}.safetensors")
    return {name[2:]: a for name, a in arrays.items() if name.startswith(f"{kind}/")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a run of tiny("alibi") leaves that nothing happened to."""
    run = made(tmp_path_factory.mktemp("undisturbed"))
    finish(run)
    return result(run)


# one step


def by_hand(cfg, p, inputs, targets):
    """Loss and gradients of one micro-batch."""
    tape = Tape()
    leaves = tape.watch(p)
    y, _ = loss(cfg, leaves, inputs, targets)
    found = tape.gradients(y, np.ones_like(y.value))
    return float(y.value), {name: found[leaf] for name, leaf in leaves.items()}


def zeros(p):
    return {name: np.zeros_like(a) for name, a in p.items()}


def step_of(batches, recipe, seed=0, be=BE):
    """Loss, norm, p, m, v after one step from new float64 weights, at rate 0.01."""
    cfg = tiny()
    p = init(cfg, seed, "float64")
    m, v = zeros(p), zeros(p)
    word = one_step(be, cfg, recipe.rule, p, m, v, batches, np.array([0.01, 1, recipe.clip]))
    return *read_status(word, p), p, m, v


def parts(count, size=2):
    return [batch(CORPUS.train, 5, 1, batch=size, length=8, part=part) for part in range(count)]


def test_a_step_takes_the_mean_gradient_of_its_micro_batches():
    """Loss, norm, weights and moments after accumulate=2 are those of AdamW with the mean of two
    gradients, taken one by one.
    """
    recipe, cfg = replace(SMALL, clip=1e9), tiny()
    mean, norm, *got = step_of(parts(2), recipe)
    p = init(cfg, 0, "float64")
    m, v = zeros(p), zeros(p)
    (one, g), (two, h) = (by_hand(cfg, p, *b) for b in parts(2))
    g = {name: (g[name] + h[name]) / 2 for name in p}
    for name, a in p.items():
        rest = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "decay": 0.1 if decays(name, a) else 0.0}
        adamw(a, g[name], m[name], v[name], np.asarray(0.01), np.asarray(1), **rest)
    same_numbers(mean, (one + two) / 2, 1e-14)
    same_numbers(norm, np.sqrt(sum((a**2).sum() for a in g.values())), 1e-12)
    for actual, expected in zip(got, (p, m, v), strict=True):
        same(actual, expected, 1e-12)


def test_two_micro_batches_are_one_batch_of_both():
    """accumulate=2 with batch=b and accumulate=1 with the same 2b windows give the same step."""
    whole = [tuple(np.concatenate(both) for both in zip(*parts(2), strict=True))]
    (mean, norm, *got), (expected_mean, expected_norm, *expected) = (
        step_of(b, SMALL) for b in (parts(2), whole)
    )
    same_numbers(mean, expected_mean, 1e-12)
    same_numbers(norm, expected_norm, 1e-12)
    same(got[1:], expected[1:], 1e-12)
    same(got[0], expected[0], 1e-6)  # g / sqrt(g^2) of a gradient that is nearly 0


def test_a_long_gradient_is_cut_to_the_clip_and_a_short_one_left_alone():
    """With clip below the norm the step sees g clip / norm; the norm reported is the one before."""
    _, norm, _, m, v = step_of(parts(1), replace(SMALL, clip=1e9))
    _, again, _, short, square = step_of(parts(1), replace(SMALL, clip=norm / 4))
    assert again == norm
    same(short, {name: a / 4 for name, a in m.items()}, 1e-12)
    same(square, {name: a / 16 for name, a in v.items()}, 1e-12)
    same(
        step_of(parts(1), replace(SMALL, clip=norm * 1.001))[2:],
        step_of(parts(1), replace(SMALL, clip=1e9))[2:],
        0,
    )


# a run


@pytest.mark.parametrize("name", names())
def test_the_loss_falls(name, tmp_path):
    """Thirty steps of a tiny model at length 32 bring the loss from that of a guess among 256 bytes below
    40 % of it.
    """
    run = made(
        tmp_path,
        tiny(name, L=32),
        Recipe(steps=30, batch=2, warmup=5, rate=2e-2, save_every=30, valid_every=30, valid_bytes=330),
    )
    losses = [event["loss"] for event in finish(run) if event["event"] == "step"]
    assert len(losses) == 30
    guess = np.log(256)
    words = f"{name} does not learn: {losses}; look at its gradients and at the sizes that its init draws"
    assert losses[0] > 0.9 * guess, words
    assert max(losses[-5:]) < 0.4 * guess, words
    assert run.metrics.read()[-1]["valid"]["loss"] < 0.4 * guess, words


ONE_OF_EACH_HOOK = ("none", "sinusoidal", "rope", "alibi", "forgetting", "shaw", "mamba")


@pytest.mark.parametrize("name", ONE_OF_EACH_HOOK)
def test_the_loss_falls_on_the_kernels(name, tmp_path):
    """As it does on the plain ops, stopped in between and resumed; the bits are those of a run that was
    let go.
    """
    be = backends.get("numba", threads=1)
    recipe = Recipe(
        steps=30,
        batch=2,
        warmup=5,
        rate=2e-2,
        save_every=30,
        valid_every=30,
        valid_bytes=330,
        accumulate=1 + (name == "rope"),
    )
    whole, run = (made(tmp_path, tiny(name, L=32), recipe, be) for _ in range(2))
    losses = [event["loss"] for event in finish(whole, be) if event["event"] == "step"]
    assert losses[0] > 0.9 * np.log(256)
    assert max(losses[-5:]) < 0.4 * np.log(256)
    assert finish(run, be, stopping=after(7))[-1] == {"event": "stopped", "step": 7}
    finish(run, be)
    assert result(run) == result(whole)


def test_the_records_of_a_run(tmp_path):
    """A start, every step with what it measured and whether it is saved, and the end with the last
    validation.
    """
    start, *steps, done = finish(made(tmp_path))
    assert start == {
        "event": "start",
        "step": 0,
        "steps": 7,
        "parameters": sum(a.size for a in init(tiny()).values()),
    }
    assert [e["step"] for e in steps] == [1, 2, 3, 4, 5, 6, 7]
    assert [e["saved"] for e in steps] == [False, False, True, False, False, True, True]
    assert ["valid" in e for e in steps] == [False, True, False, True, False, True, True]
    assert all(e["event"] == "step" and e["tokens_per_s"] > 0 for e in steps)
    assert done == {"event": "done", "step": 7, "valid": steps[-1]["valid"]}


def test_metrics_hold_only_what_a_repeated_run_repeats(tmp_path, undisturbed):
    """metrics.jsonl has a line a step with step, loss, rate, norm and sometimes validation; a second run
    writes the same bytes.
    """
    run = made(tmp_path)
    finish(run)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    for line in lines:
        validated = {"valid"} if line["step"] in (2, 4, 6, 7) else set()
        assert set(line) == {"step", "loss", "rate", "norm"} | validated
        assert line["rate"] == schedule(line["step"], peak=1e-2, warmup=2, steps=7, floor=0.1)
        assert not validated or set(line["valid"]) == {"loss", "bpb"}
    assert result(run) == undisturbed


def test_the_first_line_is_the_first_step(tmp_path):
    """The first step trains on accumulate batches, parts 0 and 1 of step 1, from the weights of the seed."""
    recipe = replace(SMALL, steps=1, accumulate=2, seed=3, dtype="float64", clip=1e9)
    run = made(tmp_path, recipe=recipe)
    finish(run)
    batches = [batch(CORPUS.train, 3, 1, batch=2, length=8, part=part) for part in (0, 1)]
    assert apart(*(inputs for inputs, _ in batches))
    p = init(tiny(), 3, "float64")
    m, v = zeros(p), zeros(p)
    mean, norm = read_status(one_step(BE, tiny(), recipe.rule, p, m, v, batches, recipe.numbers(1)), p)
    (line,) = run.metrics.read()
    assert (line["loss"], line["norm"]) == (mean, norm)
    for kind, expected in (("p", p), ("m", m), ("v", v)):
        same(weights(run, kind), expected, 0)


def test_validation_scores_the_saved_weights_on_the_beginning_of_the_text(tmp_path):
    """The last validation is the loss of the last checkpoint on valid_bytes of the validation text at the
    length trained for.
    """
    run = made(tmp_path)
    done = finish(run)[-1]
    row, *_ = score(tiny(), weights(run), CORPUS.valid[:71], 8)
    assert done["valid"] == {"loss": row["loss"], "bpb": row["bpb"]}
    assert row["tokens"] == 70


def test_float64(tmp_path):
    """A float64 run keeps weights and moments in float64, and begins as the float32 run of its seed does."""
    run = made(tmp_path, recipe=replace(SMALL, dtype="float64"))
    finish(run)
    other = made(tmp_path)
    finish(other)
    for kind in "pmv":
        assert {a.dtype.name for a in weights(run, kind).values()} == {"float64"}
        assert {a.dtype.name for a in weights(other, kind).values()} == {"float32"}
    first, second = run.metrics.read()[0]["loss"], other.metrics.read()[0]["loss"]
    same_numbers(first, second, 1e-5)
    assert first != second


# going on


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in names()), *((name, "float64") for name in ONE_OF_EACH_HOOK)],
)
def test_a_stopped_run_goes_on_to_the_same_bits(name, dtype, tmp_path):
    """Stopped after step 2, one of each hook after 1, 3 and 4, and resumed each time, a run leaves the
    checkpoint and metrics of one that was let go.
    """
    stops = ((1, 1), (2, 3), (1, 4)) if name in ONE_OF_EACH_HOOK else ((2, 2),)
    recipe = replace(SMALL, steps=stops[-1][1] + 1, dtype=dtype)
    whole, run = (made(tmp_path, tiny(name), recipe) for _ in range(2))
    finish(whole)
    for count, at in stops:
        *_, step, last = finish(run, stopping=after(count))
        assert last == {"event": "stopped", "step": at}
        assert step["saved"]
        assert run.checkpoints[-1] == at
    start, *_ = finish(run)
    assert start["step"] == at
    assert result(run) == result(whole)


@pytest.mark.parametrize("form", ["accumulate", "cycle", "gpt2"])
def test_so_does_a_run_with_other_settings(form, tmp_path):
    """Accumulated gradients, a cycle of encodings and the older shape of model resume to the same bits
    too.
    """
    cfg = Config(pe=(("rope", {}), ("retnet", {})), L=8, C=16, layers=2, H=2) if form == "cycle" else tiny()
    if form == "gpt2":
        cfg = tiny("learned", norm="layer", activation="gelu", biases=True, tied=False)
    recipe = replace(SMALL, steps=4, accumulate=2 if form == "accumulate" else 1)
    whole, run = (made(tmp_path, cfg, recipe) for _ in range(2))
    finish(whole)
    finish(run, stopping=after(2))
    finish(run)
    assert result(run) == result(whole)


def test_stopping_at_the_last_step_is_the_end(tmp_path, undisturbed):
    """A stop asked for during the last step changes nothing: the run is done."""
    run = made(tmp_path)
    assert finish(run, stopping=after(7))[-1]["event"] == "done"
    assert result(run) == undisturbed


def test_a_finished_run_has_nothing_to_do(tmp_path):
    """Training a finished run again yields start and done, with the validation of its metrics, and changes
    no file.
    """
    run = made(tmp_path)
    *_, done = finish(run)
    before = kept(run)
    assert [e["event"] for e in finish(run)] == ["start", "done"]
    assert finish(run)[-1] == done
    assert kept(run) == before


@pytest.mark.parametrize("count", range(1, 9))
def test_an_abandoned_run_goes_on_to_the_same_bits(count, tmp_path, undisturbed):
    """A run abandoned after any number of records frees its lock and, resumed, ends as if nothing had
    happened.
    """
    run = made(tmp_path)
    loop = train(run, CORPUS, BE)
    for _ in range(count):
        next(loop)
    loop.close()
    assert [e["event"] for e in finish(run)][-1] == "done"
    assert result(run) == undisturbed


class Crash(BaseException):
    """As a power cut: nothing in the package expects it."""


def crashing(function, count):
    """`function`, until the call of that number."""
    calls = iter(range(1, 1 << 20))

    def call(*args, **given):
        if next(calls) == count:
            raise Crash
        return function(*args, **given)

    return call


@pytest.mark.parametrize("count", [1, 4, 23, 55])
def test_a_crash_with_half_the_weights_written_is_undone(count, tmp_path, undisturbed):
    """A step that breaks off between two tensors leaves nothing: the resumed run repeats it from the last
    checkpoint.
    """
    run = made(tmp_path)
    with pytest.raises(Crash):
        finish(run, Backend(adamw=crashing(adamw, count)))
    finish(run)
    assert result(run) == undisturbed


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("file", ["ckpt", "metrics.jsonl", "timing.jsonl"])
def test_a_crash_between_metrics_and_checkpoint_is_undone(file, count, tmp_path, undisturbed, monkeypatch):
    """Metrics without their checkpoint are cut back, and a checkpoint without its timing is one to go on
    from.
    """
    run = made(tmp_path)
    of, method = (runs.Run, "save") if file == "ckpt" else (records.Lines, "append")
    inner, crash = getattr(of, method), crashing(getattr(of, method), count)
    with monkeypatch.context() as patch:
        meant = lambda self: file == "ckpt" or self.path.name == file
        patch.setattr(
            of, method, lambda self, *given, **more: (crash if meant(self) else inner)(self, *given, **more)
        )
        with pytest.raises(Crash):
            finish(run)
    finish(run)
    assert result(run) == undisturbed


def test_a_torn_last_line_is_cut_off(tmp_path, undisturbed):
    """Half a line after the newest checkpoint's, as a crash leaves it, is gone after resuming."""
    run = made(tmp_path)
    finish(run, stopping=after(4))
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"loss":5.1,"ra')
    finish(run)
    assert result(run) == undisturbed


def test_a_damaged_checkpoint_costs_only_steps(tmp_path, undisturbed):
    """A run whose newest checkpoint was altered says so, goes on from the one before, and ends with the
    same bits.
    """
    run, said = made(tmp_path), []
    finish(run, stopping=after(5))
    path = run.folder / "ckpt" / "00000005.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    start, *_ = finish(run, say=said.append)
    assert start["step"] == 3
    assert len(said) == 1
    assert "00000005.safetensors" in said[0]
    assert result(run) == undisturbed


# stopping when it must


def going_bad(op, call, *, forward=False, backward=False):
    """`op` with NaN in its value, or in its first gradient, at one call of that function."""
    calls = {"forward": iter(range(1, 1 << 20)), "backward": iter(range(1, 1 << 20))}

    def bad_forward(*args, **given):
        y, *rest = op.forward(*args, **given)
        return (y * np.float32(np.nan if forward and next(calls["forward"]) == call else 1), *rest)

    def bad_backward(*args):
        first, *rest = op.backward(*args)
        return (first * np.float32(np.nan if backward and next(calls["backward"]) == call else 1), *rest)

    return replace(op, forward=bad_forward, backward=bad_backward)


def gated_by(op):
    """activated_linear with another op in place of swiglu."""
    return lambda up, gate, w, b, residual: add(residual, linear(op(gate, up), w, b))


BAD = {
    "the loss is nan": lambda step: Backend(cross_entropy=going_bad(cross_entropy, step, forward=True)),
    "the gradient of embed.weight is not finite": lambda step: Backend(
        take=going_bad(take, step, backward=True)
    ),
    "the gradient of 0.gate.weight is not finite": lambda step: Backend(
        activated_linear=gated_by(going_bad(swiglu, step, backward=True))
    ),
}


@pytest.mark.parametrize("word", BAD)
@pytest.mark.parametrize("step", [2, 5])
def test_the_bad_step_never_reaches_the_weights(word, step, tmp_path):
    """A loss or gradient that is not finite stops the run in its step, names the tensor, and saves the step
    before, bit by bit.

    With the cause gone the run goes on to the bits of an undisturbed one.
    """
    recipe = replace(SMALL, valid_every=7, save_every=4)
    run, stopped, whole = (made(tmp_path, recipe=recipe) for _ in range(3))
    with pytest.raises(
        Diverged, match=rf"^step {step}: {word}.*; step {step - 1} is saved in .*, or begin a new run with"
    ) as error:
        finish(run, BAD[word](step))
    assert str(run.folder) in str(error.value)
    finish(stopped, stopping=after(step - 1))
    assert run.checkpoints[-1] == step - 1
    assert kept(run) == kept(stopped)
    with run.lock():
        pass
    finish(run)
    finish(whole)
    assert result(run) == result(whole)


def test_a_first_step_that_is_bad_saves_nothing(tmp_path, undisturbed):
    """Before step 1 there is nothing that the seed does not say: no checkpoint is written, and the message
    claims none.
    """
    run = made(tmp_path)
    with pytest.raises(Diverged, match="step 1: the loss is nan; no good step is saved; begin a new run"):
        finish(run, BAD["the loss is nan"](1))
    assert kept(run) == ({}, b"")
    finish(run)
    assert result(run) == undisturbed


@pytest.mark.parametrize("word", BAD)
def test_a_bad_step_writes_to_nothing(word):
    """p, m and v keep their bits, and a good step after it leaves them and the word alone too. A bad
    second micro-batch is a bad step.
    """
    cfg = tiny()
    for call, count in ((1, 1), (2, 2)):
        arrays = p, _, _ = init(cfg), *(each_array(lambda a: a + 0.5, zeros(init(cfg))) for _ in "mv")
        before = frozen(arrays)
        told = np.zeros(3)
        for be in (BAD[word](call), BE):
            with np.errstate(all="ignore"):
                found = one_step(be, cfg, SMALL.rule, *arrays, parts(count), NUMBERS, told)
            with pytest.raises(Diverged, match=word):
                read_status(found, p)
            same(arrays, before, 0)


def test_a_poisoned_checkpoint_is_not_saved_and_not_gone_on_from(tmp_path, undisturbed):
    """Run.save refuses it. One that an earlier peref wrote is set aside for the one before."""
    run, said = made(tmp_path), []
    finish(run, stopping=after(4))
    path = run.folder / "ckpt" / "00000004.safetensors"
    arrays, meta = store.load_arrays(path)
    arrays["m/0.up.weight"][0, 1] = np.nan
    before = kept(run)
    with pytest.raises(Diverged, match=r"^m/0\.up\.weight is nan at \[0, 1\]"):
        run.save(5, arrays, {}, keep=1)
    assert kept(run) == before
    store.save(path, arrays, meta)
    start, *_ = finish(run, say=said.append)
    assert start["step"] == 3
    assert re.search(r"4\.safetensors: m/0\.up\.weight is nan at \[0, 1\]; moved to .*/bad/", said[0])
    assert result(run) == undisturbed


def test_too_high_a_rate_is_divergence_and_no_warning(tmp_path):
    """A rate of 1e30 ends in Diverged, whether a step or the validation after it finds out; the last
    checkpoint is finite.
    """
    run = made(tmp_path, recipe=replace(SMALL, rate=1e30, save_every=1, valid_every=7))
    with pytest.raises(Diverged, match=r"^step \d: .* begin a new run with a lower --rate"):
        finish(run)
    assert all(np.isfinite(a).all() for a in weights(run).values())


def test_a_validation_loss_that_is_not_finite_stops_the_run(tmp_path):
    """It is Diverged, not a number that JSON cannot hold; the metrics end with the step before."""
    nan = Op(
        lambda *a: (lambda y, saved, each: (y, saved, each * np.nan))(*cross_entropy.forward(*a)),
        cross_entropy.backward,
        extra=True,
    )
    run = made(tmp_path, recipe=replace(SMALL, valid_every=5))
    with pytest.raises(
        Diverged, match=r"^step 5: the validation loss is nan; step 3 is saved in .*, with a finite loss"
    ):
        finish(run, Backend(cross_entropy=nan))
    assert [line["step"] for line in run.metrics.read()] == [1, 2, 3, 4]
    assert run.checkpoints == [3]


# one writer, one text, one machine


def test_the_lock_is_held_while_training(tmp_path):
    """From its first record to its last, and no longer, a run in training is in use."""
    run = made(tmp_path)
    loop = train(run, CORPUS, BE)
    with run.lock():
        pass
    for _ in range(4):
        next(loop)
        with pytest.raises(PerefError, match="in use by pid"), run.lock():
            pass
        with pytest.raises(PerefError, match="in use by pid"):
            next(train(run, CORPUS, BE))
    loop.close()
    with run.lock():
        pass


def test_another_text_is_refused(tmp_path):
    """A run goes on only with the text it began with, and is not touched otherwise."""
    run = made(tmp_path)
    finish(run, stopping=after(2))
    before, other = kept(run), last_tenth("words", "made here", CORPUS.train.tobytes())
    with pytest.raises(
        Misuse,
        match=rf"was trained on another text \(SHA-256 {CORPUS.sha256[:12]}, this is {other.sha256[:12]}\)",
    ):
        next(train(run, other, BE))
    assert kept(run) == before


def test_another_machine_is_mentioned(tmp_path, monkeypatch):
    """Where what the bits depend on is not as the run began, it says what differs, old and new, and goes
    on; else it is silent.
    """
    run, said = made(tmp_path), []
    finish(run, stopping=after(2), say=said.append)
    assert said == []
    finish(run, Backend(name="other"), stopping=after(1), say=said.append)
    assert len(said) == 1
    assert (
        said[0]
        == "this run began elsewhere: backend numpy -> other; it goes on, but perhaps not to the same bits"
    )
    threads = blas.threads() or share.blas_threads()
    monkeypatch.setattr("peref.backends.blas.threads", lambda: 77)
    monkeypatch.setattr(share, "code", lambda: "0123456789abcdef")
    began = run.record["environment"]["code"]
    assert finish(run, say=said.append)[-1]["event"] == "done"
    (said,) = said[1:]
    assert f"elsewhere: code {began} -> 0123456789abcdef, threads {threads} -> 77; " in said


def test_what_the_bits_depend_on():
    """NumPy's BLAS and its threads for products by NumPy; compiler, kernels and width for those of numba,
    whose threads change nothing.
    """
    plain = environment(BE)
    assert set(plain) == {
        "peref",
        "code",
        "numpy",
        "python",
        "machine",
        "backend",
        "skips",
        "blas",
        "threads",
    }
    about = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    assert plain["blas"] == f"{about['name']} {about['version']}"
    pytest.importorskip("numba", reason="the rest is about numba")
    from peref.backends.numba import BACKEND, host, kernel

    fast = environment(BACKEND)
    assert set(fast) == set(plain) - {"blas", "threads"} | {"numba", "kernels", "lanes"}
    assert (fast["kernels"], fast["lanes"]) == (kernel.digest(), host.LANES)


def test_a_warm_up_longer_than_the_run_is_mentioned(tmp_path):
    """Where the peak rate is reached, if only in the last step, nothing is said."""
    said = []
    finish(made(tmp_path, recipe=replace(SMALL, steps=2, warmup=2)), say=said.append)
    assert said == []
    finish(made(tmp_path, recipe=replace(SMALL, steps=2, warmup=5)), say=said.append)
    assert said == ["the peak rate is never reached: warm-up is 5 steps of 2"]


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path):
    """Before the metrics are touched, naming the tensor, whichever part of the checkpoint it is in."""
    run = made(tmp_path)
    finish(run, stopping=after(3))
    arrays, _ = run.checkpoint(3)
    name = "m/0.up.weight"
    for change, word in (
        ({name: arrays[name][:, :-1]}, r"0\.up\.weight is \["),
        ({"v/more": arrays[name]}, "the weights have more"),
    ):
        run.save(3, arrays | change, {})
        before = kept(run)
        with pytest.raises(Misuse, match=word):
            finish(run)
        assert kept(run) == before


def test_a_run_json_sealed_anew_with_other_sizes_is_refused(tmp_path):
    """Its checkpoints are those of another run, and stay where they are."""
    run, wide = made(tmp_path / "a"), made(tmp_path / "b", replace(tiny(), C=32, D=16, F=96))
    finish(run, stopping=after(3))
    before = kept(run)
    (run.folder / "run.json").write_bytes((wide.folder / "run.json").read_bytes())
    with pytest.raises(Damaged, match="belongs to another run"):
        finish(run)
    assert kept(run) == before


@pytest.mark.parametrize("keep", [None, 0, 1, 2])
def test_lost_metrics_do_not_stop_a_run(keep, tmp_path, undisturbed):
    """Deleted or shortened, it is said how many lines remain; weights go on to the same bits and the lines
    after are the same.
    """
    run, said = made(tmp_path), []
    finish(run, stopping=after(4))
    path = run.folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if keep is None:
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:keep]) + lines[keep][:5])
    finish(run, say=said.append)
    remain = "1 line that remains" if keep == 1 else f"{keep or 0} lines that remain"
    assert re.search(
        rf"metrics\.jsonl: .*goes on from step 4 with the {remain}; the others ARE LOST.*bad/metrics", said[0]
    )
    assert (
        path.read_bytes().splitlines()
        == [lines[k].rstrip() for k in range(keep or 0)] + undisturbed[1].splitlines()[4:]
    )
    assert weights(run).keys() == init(tiny()).keys()
    step, arrays, _ = next(run.good_checkpoints(said.append), None)
    whole = made(tmp_path / "whole")
    finish(whole)
    assert step == 7
    same(arrays, whole.checkpoint(7)[0], 0)


# refused before there is a folder


@pytest.mark.parametrize(
    ("cfg", "word"),
    [
        (lambda: tiny(cross=True), "cross is True, but there is no encoder"),
        (lambda: tiny(causal=False, V=300), "V is 300; masked tokens of text are bytes"),
        (lambda: tiny(L=1000), "too small for length 1000"),
        (lambda: Config(pe=(("rope", {"base": -1.0}),), L=8, C=16, layers=1, H=2), "base is -1.0"),
        (lambda: Config(pe=(("t5", {"max_distance": 3}),), L=8, C=16, layers=1, H=2), "max_distance=3"),
        (
            lambda: Config(pe=(("alibi", {}), ("rope", {"base": 0.0})), L=8, C=16, layers=2, H=2),
            "base is 0.0",
        ),
    ],
)
def test_what_cannot_be_trained_makes_no_folder(cfg, word, tmp_path):
    """A model that cannot train, also one whose options only its hooks refuse, is Misuse before anything
    is written.
    """
    with pytest.raises(Misuse, match=word):
        made(tmp_path / "runs", cfg())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_model_that_is_not_finite_makes_no_folder(tmp_path, monkeypatch):
    """Were the bounds of the options wider."""
    monkeypatch.setattr("peref.encodings.SMALLEST_OPTION", 0.0)
    cfg = Config(pe=(("retnet", {"base": 1e-320}),), L=8, C=16, layers=1, H=2)
    with pytest.raises(Misuse, match=r"logits of the new model are not finite.*'base': 1e-320"):
        made(tmp_path / "runs", cfg)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"save_every": 0}, "save_every is 0"),
        ({"valid_every": 0}, "valid_every is 0"),
        ({"valid_bytes": 0}, "valid_bytes is 0"),
        ({"rate": 0.0}, "rate is 0"),
        ({"rate": float("inf")}, "rate is inf"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"clip": -1.0}, "clip is -1"),
        ({"eps": 0.0}, "AdamW's eps is 0"),
        ({"floor": 1.5}, "floor is 1.5"),
        ({"decay": -0.1}, "decay is -0.1"),
        ({"beta1": 1.0}, "beta1 is 1"),
        ({"beta2": float("nan")}, "beta2 is nan"),
        ({"warmup": -1}, "warmup is -1"),
        ({"seed": -1}, "^seed is -1; expected 0 or more"),
        ({"seed": 2**64}, "^seed is 18446744073709551616"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"batch": True}, "batch is True"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, word):
    """Each is Misuse and says which setting has which value."""
    with pytest.raises(Misuse, match=word):
        Recipe(**given)


def test_a_recipe_is_plain_data(tmp_path):
    """run.json holds every setting, resolved; it reads back as the same recipe, and an unknown setting is
    refused.
    """
    run = made(tmp_path)
    assert Recipe.from_json(run.record["recipe"]) == SMALL
    assert Config.from_json(run.record["config"]) == tiny()
    assert run.record["steps"] == 7
    assert run.record["data"] == {
        "name": "words",
        "spec": "words",
        "sha256": CORPUS.sha256,
        "train": len(CORPUS.train),
        "valid": len(CORPUS.valid),
    }
    with pytest.raises(Misuse, match="unknown settings of a run: momentum"):
        Recipe.from_json({**run.record["recipe"], "momentum": 0.9})


def test_a_run_that_was_altered_is_not_trained(tmp_path):
    """A changed run.json is Damaged, and the checkpoints stay."""
    run = made(tmp_path)
    path = run.folder / "run.json"
    path.write_text(path.read_text().replace('"clip":1.0', '"clip":2.0'))
    with pytest.raises(Damaged), contextlib.closing(train(run, CORPUS, BE)) as loop:
        next(loop)


def test_a_softmax_scale_of_one_trains_as_if_it_were_in_w_q():
    """T5's scale 1 with its smaller W_q takes the steps of the usual scale with the usual W_q: logits stay
    equal to rounding.
    """
    cfg, recipe = (
        Config(pe=(("t5", {}),), L=16, C=16, H=4, layers=1, V=17),
        Recipe(steps=5, warmup=0, dtype="float64", eps=1e-30, clip=1e30),
    )
    usual = replace(cfg, pe=(("t5", {"scale": cfg.D**-0.5}),))
    x = np.random.default_rng(0).integers(0, 17, (3, 16))
    found = []
    for one in (cfg, usual):
        p = init(cfg, 0, np.float64)
        if one is usual:
            p["0.q.weight"] = p["0.q.weight"] * cfg.D**0.5
        m, v = ({n: np.zeros_like(a) for n, a in p.items()} for _ in range(2))
        for step in range(1, 6):
            one_step(Backend(), one, recipe.rule, p, m, v, [(x, x)], np.array([1e-2, step, recipe.clip]))
        found.append(logits(one, p, x))
    same(found[0], found[1], 1e-9)
