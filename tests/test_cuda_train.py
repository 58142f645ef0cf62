"""Runs on the cuda backend, its kernels run on the CPU: trained, stopped, resumed, evaluated and continued
as anywhere else.
"""

import io
from contextlib import redirect_stdout
from dataclasses import replace

import fake_cublas
import fake_cupy
import fake_device
import numpy as np
import pytest
from check import same, same_numbers
from emulated.twins import emulated
from test_train import CORPUS, SMALL, finish, kept, made, tiny, weights

from peref.backends import find
from peref.backends.cuda import open_device
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.errors import Diverged, Misuse
from peref.evaluate import Scoring, evaluate
from peref.model import cache, decode, init, logits
from peref.runs import Run

RECIPE = replace(SMALL, steps=6, save_every=6, valid_every=6)


def device(cp):
    return open_device(cp, fake_cublas.Library())


def test_a_run_is_that_of_the_plain_backend_and_goes_on_to_the_same_bits(tmp_path):
    """Losses agree to float32; stopped after three steps and resumed by another process, metrics and
    weights are those of one go.
    """
    with emulated() as cp:
        whole, run = (made(tmp_path, tiny("t5"), RECIPE, device(cp)) for _ in range(2))
        be = device(cp)
        finish(whole, be)
        assert [recording.graph is not None for recording in be.step.kept.values()] == [True]
        left = iter([False, True])
        finish(run, device(cp), stopping=lambda: next(left, False))
        assert run.checkpoints == [3]
        finish(run, device(cp))
        assert whole.record["environment"]["gpu"].startswith("Emulated")
    plain = made(tmp_path, tiny("t5"), RECIPE)
    finish(plain)
    assert run.metrics.read() == whole.metrics.read()
    same(weights(run), weights(whole), 0)
    for one, other in zip(whole.metrics.read(), plain.metrics.read(), strict=True):
        for what in ("loss", "norm"):
            same_numbers(one[what], other[what], 1e-5)


def test_a_bad_step_of_a_recorded_run_is_named(tmp_path):
    """The graph goes on for one step and changes nothing; the message is that of every backend. The weights
    are not finite before the step either, so nothing is saved.
    """
    recipe = replace(RECIPE, steps=9, save_every=9, valid_every=9)
    with emulated() as cp:
        run, be, count = made(tmp_path, tiny("rope"), recipe, device(cp)), device(cp), []

        def step(function, *arguments):
            count.append(1)
            if len(count) == 6:
                arguments[3]["0.up.weight"][0, 0] = np.nan
            return be.step(function, *arguments)

        with pytest.raises(Diverged, match="step 6: the loss is nan; no good step is saved"):
            finish(run, replace(be, step=step))
    assert run.checkpoints == []
    assert len(count) == 6 + 1
    assert [line["step"] for line in run.metrics.read()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["cuda", "cuda:bf16"])
def test_the_command_stops_at_a_bad_step(kind, tmp_path, monkeypatch, capsys):
    """`train --backend cuda` at a rate that throws the weights away: one line that names the step and what
    was not finite, the step before is saved, and its weights are finite.
    """
    monkeypatch.setattr(find.cublas, "__defaults__", (lambda path: fake_cublas.Library(),))
    (tmp_path / "text").write_bytes(CORPUS.train.tobytes())
    sizes = {
        "width": 16,
        "heads": 2,
        "layers": 1,
        "len": 16,
        "batch": 2,
        "valid-bytes": 70,
        "warmup": 0,
        "steps": 8,
        "save-every": 8,
    }
    given = [
        "--pe",
        "alibi",
        "--data",
        tmp_path / "text",
        "--runs",
        tmp_path / "runs",
        "--backend",
        kind,
        "--rate",
        "1e37",
        "--clip",
        "1e30",
    ]
    with emulated():
        code = run_cli(
            [
                "train",
                *map(str, given),
                *(word for name, n in sizes.items() for word in (f"--{name}", str(n))),
            ],
            Signals(),
        )
    said = capsys.readouterr()
    assert code == 1
    (line,) = [
        one
        for one in said.err.splitlines()
        if "error: step 2: the gradient of 0.down.weight is not finite" in one
    ]
    assert "step 1 is saved in" in line
    assert "Traceback" not in said.out + said.err
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run(folder)
    assert run.checkpoints == [1]
    assert all(np.isfinite(a).all() for a in run.checkpoint(1)[0].values())


def by_the_command(folder, *more):
    """Of a training by the command: how many graphs it recorded, its notes, and what it kept."""
    (folder / "text").write_bytes(CORPUS.train.tobytes())
    sizes = "--width 16 --heads 2 --layers 1 --len 8 --batch 2 --valid-bytes 70 --steps 5 --warmup 2"
    given = ["--data", folder / "text", "--backend", "cuda", "--runs", folder / "runs", *sizes.split()]
    out = io.StringIO()
    with emulated(), pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setattr(find.cublas, "__defaults__", (lambda path: fake_cublas.Library(),))
        assert run_cli(["train", *map(str, given), *more], Signals()) == 0
        graphs = fake_cupy.counts().get("graphs", 0)
    said = {word: [] for word in ("backend", "note")}
    for line in out.getvalue().splitlines():
        said.setdefault(line.partition(" ")[0], []).append(line)
    (line,) = said["backend"]
    assert line.split(maxsplit=1)[1] == "cuda"
    return graphs, said["note"], kept(Run(next((folder / "runs").iterdir())))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What comes of it as it is."""
    return by_the_command(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize("how", ["recorded", "broken off", "not recorded"])
def test_the_command_ends_however_its_steps_are_run(how, recorded, tmp_path, monkeypatch):
    """A recording that fails is one line, with --no-record there is none; the weights are the same."""
    assert recorded[:2] == (3, [])
    if how == "broken off":
        monkeypatch.setattr(fake_device.Stream, "begin_capture", lambda stream: 1 / 0)
    graphs, notes, same_weights = by_the_command(tmp_path, *["--no-record"] * (how == "not recorded"))
    assert graphs == (3 if how == "recorded" else 0)
    assert len(notes) == (how == "broken off")
    assert all("kernel by kernel: ZeroDivisionError" in note for note in notes)
    assert same_weights == recorded[2]


@pytest.mark.parametrize("name", ["rope", "t5", "retnet", "mamba", "s4d", "rwkv4", "rwkv6", "rwkv7"])
def test_evaluation_and_decoding(name):
    """Rows of the table, and decoding in pieces, on weights that were placed as a run's are."""
    cfg, p = tiny(name), init(tiny(name))
    text = np.frombuffer(CORPUS.valid.tobytes()[:40], np.uint8)
    x = text[None, :8].astype(np.int64)
    plain = list(evaluate(cfg, p, text, 16))
    with emulated() as cp:
        be = device(cp)
        rows = list(evaluate(cfg, p, text, 16, Scoring(be=be)))
        there = be.place(p)
        memory, pieces = cache(cfg), []
        for part in (slice(0, 3), slice(3, 4), slice(4, 8)):
            y, memory = decode(cfg, there, x[:, part], memory, be=be)
            pieces.append(y.get())
        assert fake_cupy.counts()["calls"]
    for one, other in zip(rows, plain, strict=True):
        same_numbers(one["loss"], other["loss"], 1e-5)
    same(np.concatenate(pieces, 1), logits(cfg, p, x), 1e-4)


def test_narrower_products(tmp_path):
    """Losses near those of float32, but not the same; weights and checkpoints stay float32; two
    micro-batches are summed in float32.
    """
    pytest.importorskip("ml_dtypes")
    recipe, found = replace(RECIPE, steps=4, save_every=4, valid_every=4, accumulate=2), {}
    with emulated() as cp:
        for name in ("cuda", "cuda:tf32", "cuda:bf16"):
            run = made(tmp_path, tiny("rope"), recipe, device(cp))
            finish(run, open_device(cp, fake_cublas.Library(), name))
            found[name] = np.array([line["loss"] for line in run.metrics.read()])
            assert {a.dtype.name for a in weights(run).values()} == {"float32"}
            assert found[name][-1] < found[name][0]
    assert 0 < abs(found["cuda:tf32"] - found["cuda"]).max() < 1e-3
    assert 1e-5 < abs(found["cuda:bf16"] - found["cuda"]).max() < 0.05


def test_weights_of_another_dtype_are_refused():
    """In words, by the first kernel that they meet."""
    cfg = tiny("rope")
    with emulated() as cp:
        be = device(cp)
        p = be.place(init(cfg, dtype="float64"))
        with pytest.raises(Misuse, match="the cuda backend computes in float32 or bfloat16 and got float64"):
            logits(cfg, p, np.zeros((1, 4), int), be=be)
