"""train --from: the weights of another run, under another encoding or at another length."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same

from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.config import Config
from peref.encodings import names
from peref.evaluate import under, weights_of
from peref.member import kinds
from peref.runs import Run, open_run
from peref.warm_start import trained_on

SMALL = ["--batch", "2", "--steps", "2"]
OF_PARENT = ["--width", "16", "--heads", "2", "--layers", "1", "--len", "8", "--data", "text.txt"]


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Trains in an empty folder with these words; gives the run, or the error."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 60)

    def call(*words):
        capsys.readouterr()
        how = ["--json", "--backend", "numpy", *([] if words[0] == "--resume" else SMALL)]
        code = run_cli(["train", *how, *map(str, words)], Signals())
        said = json.loads(capsys.readouterr().out)
        assert (code == 0) == ("error" not in said)
        return open_run(said["run"]) if code == 0 else said["error"]["message"]

    return call


def test_a_run_begins_with_the_weights_of_another(train):
    """Bit for bit, with moments of 0, as its own first checkpoint; its text and dtype are the parent's."""
    parent = train(*OF_PARENT, "--pe", "rope", "--dtype", "float64")
    child = train("--from", parent.folder, "--pe", "yarn", "--set", "factor=4", "--len", "32")
    _, before, step = weights_of(parent)
    arrays, _ = child.checkpoint(0)
    assert {f"p/{name}" for name in before} == {name for name in arrays if name.startswith("p/")}
    for name, a in before.items():
        same(arrays[f"p/{name}"], a, 0, name)
    assert not any(a.any() for name, a in arrays.items() if not name.startswith("p/"))
    record = child.record
    file = parent.folder / "ckpt" / f"{step:08d}.safetensors"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    about = {"run": str(parent.folder.resolve()), "step": step, "sha256": digest, "drawn": [], "left": []}
    assert record["parent"] == about
    assert record["data"] == parent.record["data"]
    assert record["config"]["L"] == 32
    ((name, chosen),) = record["config"]["pe"]
    assert (name, chosen["original"], chosen["factor"]) == ("yarn", 8, 4)


def test_a_base_goes_with_the_weights(train, capsys):
    """Into training on and into evaluation alike, under another encoding; both say it."""
    parent = train(*OF_PARENT, "--pe", "rope", "--set", "base=500")
    child = train("--from", parent.folder, "--pe", "yarn", "--set", "factor=2")
    ((_, chosen),) = child.record["config"]["pe"]
    assert (chosen["base"], chosen["factor"]) == (500.0, 2.0)
    for words in (["train", "--from", parent.folder, *SMALL], ["eval", parent.folder, "--bytes", "32"]):
        assert run_cli([*map(str, words), "--pe", "yarn", "--backend", "numpy"], Signals()) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert re.search(r"encoding yarn \([^)]*\bbase=500\.0", said), said


def test_a_parent_that_removes_its_checkpoint_meanwhile(train, monkeypatch):
    """As one does that is being trained: the newest that is there then is taken, weights and digest."""
    parent, digest = train(*OF_PARENT, "--save-every", "1"), Run.digest
    assert parent.checkpoints == [1, 2]

    def late(run, step):
        run.set_aside(step) if step == 2 else None
        return digest(run, step)

    monkeypatch.setattr(Run, "digest", late)
    child = train("--from", parent.folder)
    arrays, _ = parent.checkpoint(1)
    assert (child.record["parent"]["step"], child.record["parent"]["sha256"]) == (1, digest(parent, 1))
    for name, a in child.checkpoint(0)[0].items():
        same(a, arrays[name], 0) if name.startswith("p/") else None


def test_a_run_knows_its_parent_by_what_it_holds_not_where_it_lies(train):
    parent = train(*OF_PARENT)
    shutil.copytree(parent.folder, "copy")
    here, there = train("--from", parent.folder), train("--from", "copy")
    assert here.identity == there.identity
    assert train("--from", here.folder).identity != here.identity


def test_a_first_step_moves_the_weights_of_the_parent(train):
    parent = train(*OF_PARENT)
    child = train("--from", parent.folder, "--rate", "1e-9")
    _, before, _ = weights_of(parent)
    _, after, _ = weights_of(child)
    for name, a in before.items():
        same(after[name], a, 1e-6, name)
    assert any((after[name] != a).any() for name, a in before.items())


def test_what_does_not_fit_is_named_or_drawn_anew(train):
    parent = train(*OF_PARENT, "--pe", "learned")
    said = train("--from", parent.folder, "--len", "16")
    assert "pe.0.table (is [8, 16] there, [16, 16] here)" in said
    assert "--new-parameters" in said
    child = train("--from", parent.folder, "--len", "16", "--new-parameters")
    assert (child.record["parent"]["drawn"], child.record["parent"]["left"]) == (["pe.0.table"], [])
    _, before, _ = weights_of(parent)
    arrays, _ = child.checkpoint(0)
    same(arrays["p/embed.weight"], before["embed.weight"], 0, "embed.weight")
    assert "pe.0.table (is [8, 16] there, not here)" in train("--from", parent.folder, "--pe", "none")
    dropped = train("--from", parent.folder, "--pe", "none", "--new-parameters")
    assert (dropped.record["parent"]["drawn"], dropped.record["parent"]["left"]) == ([], ["pe.0.table"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "gpt2"], "leave out --shape"),
        (["--task", "reverse", "--encoder", "rope"], "leave out --task, --encoder"),
        (["--width", "32"], "and 8 more"),
        (["--set", "factor=2"], "has no option 'factor'"),
    ],
)
def test_what_cannot_be_is_said_and_leaves_no_run(train, words, said):
    parent = train(*OF_PARENT)
    assert said in train("--from", parent.folder, *words)
    assert [path.name for path in Path("runs").iterdir()] == [parent.folder.name]
    assert "add --from RUN" in train("--new-parameters")


def test_a_run_that_lost_its_first_weights_draws_no_others(train):
    parent = train(*OF_PARENT)
    child = train("--from", parent.folder)
    ends = (child.folder / "ckpt" / "00000002.safetensors").read_bytes()
    (child.folder / "ckpt" / "00000002.safetensors").unlink()
    again = train("--resume", child.folder)
    assert not isinstance(again, str), again
    again = again.folder / "ckpt" / "00000002.safetensors"
    assert again.read_bytes() == ends
    shutil.rmtree(child.folder / "ckpt")
    assert f"begin a new run with --from {parent.folder.resolve()}" in train("--resume", child.folder)


ORIGINAL = [name for name in names() if "original" in kinds(name)]


@pytest.mark.parametrize("name", ORIGINAL)
def test_a_scaling_stretches_from_the_length_of_the_parent(name):
    """Its frequencies at the new length are those of the parent's weights under it, evaluated there."""
    cfg = Config(L=64, pe=(("rope", {}),))
    given = tuple(f"{k}=4" for k in ("factor",) if k in kinds(name))
    longer = trained_on(cfg, name, given, {"L": 256})
    evaluated = under(cfg, name, given)
    i = np.arange(256)
    for n in (64, 256):
        found = [c.encoding(0).rotate({}, i, n) for c in (longer, evaluated)]
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                same(a, b, 0, f"{name} at {n}")
    ((_, chosen),) = longer.pe
    assert chosen["original"] == 64
    assert trained_on(longer, None, (), {"L": 512}).pe == longer.pe
    assert trained_on(cfg, name, (*given, "original=32"), {"L": 256}).pe[0][1]["original"] == 32
    assert trained_on(cfg, name, given, {}) == evaluated


def test_a_temperature_keeps_the_length_of_the_parent():
    cfg = Config(L=64, pe=(("rope", {"temperature": "logn"}), ("rope", {})))
    (_, first), (_, second) = trained_on(cfg, None, (), {"L": 256}).pe
    assert first["temperature_length"] == 64
    assert "temperature_length" not in second
    assert replace(cfg, L=256).layer(0).temperature_length == 256
