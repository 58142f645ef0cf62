"""compare: encodings trained alike, evaluated at the same places of a text, and what may be said of it."""

import csv
import json
import math
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from check import apart, same, same_numbers

from peref import backends, data, evaluate
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.config import Config
from peref.exact_match import exact_match
from peref.lab import comparison_report as report
from peref.lab.comparison import Contender, memory
from peref.lab.paired import estimate, student
from peref.model import loss
from peref.parameters import init
from peref.recipe import Recipe
from peref.runs import open_run
from peref.tasks import Exercise

SMALL = ["--len", 8, "--to", 32, "--bytes", 512, "--width", 16, "--heads", 2, "--layers", 1, "--steps", 3]
SCALINGS = ("pi", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3", "ntk_by_parts")
BESIDE = ["effective", "against the best", "memory"]
SMALL += ["--batch", 2, "--backend", "numpy", "--data", "text.txt"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = ["the cat ", "sat on ", "a mat\n", "and ran ", "off "]
    Path("text.txt").write_text("".join(words[n] for n in rng.integers(0, 5, 3000)))
    return tmp_path


@pytest.fixture
def compare(folder, capsys, undrawn):
    """Compares in an empty folder with these words; gives the document, or the error."""

    def call(*words, signals=None):
        capsys.readouterr()
        given = words if words[0] == "--again" else [*SMALL, *words]
        code = run_cli(["compare", "--json", *map(str, given)], signals or Signals())
        said = json.loads(capsys.readouterr().out)
        assert (code == 0) == ("error" not in said), said
        return said if code == 0 else said["error"]["message"]

    return call


def correlated(rng, size, rho=0.5):
    """Numbers of mean 0 of which neighbours are correlated."""
    found = rng.standard_normal(size + 50)
    for n in range(1, len(found)):
        found[n] += rho * found[n - 1]
    return found[50:]


def test_equal_models_do_not_differ():
    """In 95 of 100 texts of as many windows as there are by default: a model loses what the text asks of all,
    and something of its own. What differs by three standard errors does.
    """
    rng, cells, block = np.random.default_rng(0), 512, 32
    own = lambda: correlated(rng, cells)
    texts = (9 + 3 * own() for _ in range(400))
    pairs = (document({"a": text + own(), "b": text + own()}, L=8, longest=16) for text in texts)
    assert 0.02 < np.mean([report.against(found, "b", "a").decides for found in pairs]) < 0.08
    shift = 4 * 2 / cells**0.5  # the sum of its correlations makes a standard error of 2 / sqrt(cells)
    assert np.mean([estimate(own() + shift, block).low > 0 for _ in range(100)]) > 0.9


def test_single_numbers_taken_as_independent_would_decide_too_often():
    rng = np.random.default_rng(0)
    assert np.mean([estimate(correlated(rng, 512), 1).decides for _ in range(200)]) > 0.15


@pytest.mark.parametrize(("free", "t"), [(7, 2.3646), (15, 2.1314), (31, 2.0395)])
def test_quantiles_of_student(free, t):
    """Those of the tables of Abramowitz and Stegun, 26.10."""
    same_numbers(student(free), t, 0.004)


def test_a_model_whose_layers_take_turns_is_one_row(compare):
    found = compare("--pe", "none", "--layers", 2, "--cycle", "alibi,rope", "--cycle", "rope,alibi")
    assert [entry["label"] for entry in found["entries"]] == ["none", "alibi,rope", "rope,alibi"]
    cycles = [[pe for pe, _ in open_run(Path(e["run"])).record["config"]["pe"]] for e in found["entries"]]
    assert cycles == [["none"], ["alibi", "rope"], ["rope", "alibi"]]
    rows = list(csv.reader(Path("comparison/comparison.csv").read_text().splitlines()))
    assert {row[0] for row in rows[1:]} == {"none", "alibi,rope", "rope,alibi"}


def test_losses_are_those_of_eval(compare):
    """By cells of half the length trained for, at every doubling; also of a second seed."""
    found = compare("--pe", "rope,retnet", "--seeds", 2)
    assert [entry["label"] for entry in found["entries"]] == ["rope", "retnet"] * 2
    assert (found["lengths"], found["cut"]) == ([4, 8, 16, 32], "sliding, stride 4")
    corpus, be = data.corpus("text.txt"), backends.get("numpy")
    for entry in found["entries"]:
        cfg, params, _ = evaluate.weights_of(run := open_run(entry["run"]))
        assert run.record["recipe"]["seed"] == entry["seed"]
        for n in found["lengths"]:
            row, _, _ = evaluate.score(cfg, params, corpus.valid[:513], n, evaluate.Scoring(be=be))
            assert len(entry["cells"][str(n)]) == 128
            same_numbers(sum(entry["cells"][str(n)]) / 512, row["loss"], 1e-12)
        how = evaluate.Scoring(evaluate.Protocol(4), be)
        cut, _, _ = evaluate.score(cfg, params, corpus.valid[:513], 8, how)
        same_numbers(sum(entry["cut"]) / 512, cut["loss"], 1e-12)
    bits = report.by_length(found, "rope")
    assert bits.shape == (2, 4)
    curves = next(report.panels(found)).curves
    assert [(curve.label, curve.dots) for curve in curves[:3]] == [("rope", False), ("", True), ("", True)]
    same(np.array([curve.y for curve in curves[:3]]), np.array([bits.mean(0), *bits]), 1e-12)
    same_numbers(bits[1, 3], sum(found["entries"][2]["cells"]["32"]) / 512 / math.log(2), 1e-12)


def test_scalings_read_the_weights_of_rope_and_are_trained_on(compare):
    found = compare("--pe", "rope", "--scale", "pi,yarn", "--finetune", 2)
    labels = ["rope", "pi, as it is", "pi, 2 steps more", "yarn, as it is", "yarn, 2 steps more"]
    assert [entry["label"] for entry in found["entries"]] == labels
    rope, pi, tuned, *_ = found["entries"]
    assert pi["run"] == rope["run"]
    for n in ("4", "8"):  # a factor of 1
        assert pi["cells"][n] == rope["cells"][n]
    assert pi["cells"]["32"] != rope["cells"]["32"]
    record = open_run(tuned["run"]).record
    assert record["parent"]["run"] == str(Path(rope["run"]).resolve())
    assert (record["config"]["L"], record["config"]["pe"][0][1]["factor"]) == (32, 4)
    assert (record["recipe"]["steps"], record["recipe"]["batch"]) == (2, 1)
    cfg, params, _ = evaluate.weights_of(open_run(rope["run"]))
    under = evaluate.under(cfg, "pi", ("factor=4",))
    row, _, _ = evaluate.score(under, params, data.corpus("text.txt").valid[:513], 32)
    same_numbers(sum(pi["cells"]["32"]) / 512, row["loss"], 1e-9)


def test_at_the_length_trained_for_every_scaling_is_rope_and_beyond_it_none_is():
    """What the paper of YaRN calls dynamic NTK has no factor, and is at each length the row of NTK."""
    cfg = Config(pe=(("rope", {}),), L=8, C=16, layers=1, H=2)
    params = {name: 3 * a for name, a in init(cfg, 0, "float64").items()}
    text = np.random.default_rng(0).integers(0, 256, (1, 17))
    for n in (8, 16):
        bits = lambda cfg, n=n: float(loss(cfg, params, text[:, :n], text[:, 1 : n + 1])[0])
        rows = {name: bits(Contender(name, cfg, Recipe(), name).at(n)) for name in SCALINGS}
        for name, found in rows.items():
            assert bool(apart(found, bits(cfg), 1e-12)) == (n > 8), name
        same_numbers(bits(evaluate.under(cfg, "dynamic_ntk", ("factor=1",))), rows["ntk"], 1e-12)


def test_stopped_and_called_again_it_ends_with_the_same_numbers(compare):
    stopped = Signals()
    stopped.asked = signal.SIGTERM
    assert "goes on" in compare("--pe", "rope,alibi", signals=stopped)
    assert len(list(Path("runs").iterdir())) == 1
    found = compare("--pe", "rope,alibi")
    again = compare("--pe", "rope,alibi")
    whole = compare("--pe", "rope,alibi", "--runs", "others")
    assert found == again
    for one, other in zip(found["entries"], whole["entries"], strict=True):
        assert {**one, "run": ""} == {**other, "run": ""}
    assert len(list(Path("runs").iterdir())) == 2


def test_it_says_first_how_long_it_will_take(compare, capsys, monkeypatch):
    """By a measured step, and what the evaluation took, of what there is not yet."""
    compare("--pe", "rope")
    asked = []
    measured = lambda plan, entry, be: asked.append(entry.label) or (2.0, 5.0)
    monkeypatch.setattr("peref.lab.comparison.seconds", measured)
    assert run_cli(["compare", *map(str, SMALL), "--pe", "rope,alibi"], Signals()) == 0
    said = capsys.readouterr().out.splitlines()
    assert "2 models, about 11.0 s; runs in runs" in said[0]
    notes = [line for line in said if "  " not in line]  # tables and labels have two blanks
    assert 80 < max(map(len, notes)) <= 100
    assert asked == ["alibi"]


def test_a_run_that_was_trained_by_hand_is_found(compare, capsys):
    """By what it is; what compare makes itself has no time in its name."""
    words = [*SMALL[: SMALL.index("--to")], *SMALL[SMALL.index("--width") :], "--pe", "rope", "--warmup", 0]
    assert run_cli(["train", *map(str, words)], Signals()) == 0
    (by_hand,) = map(str, Path("runs").iterdir())
    rope, alibi = compare("--pe", "rope,alibi")["entries"]
    assert rope["run"] == by_hand
    again = compare("--pe", "alibi", "--runs", "others")["entries"][0]
    assert Path(again["run"]).name == Path(alibi["run"]).name


def test_another_recipe_text_or_code_is_measured_anew(compare, monkeypatch):
    first = compare("--pe", "rope")
    assert compare("--pe", "rope", "--rate", 0.001)["entries"][0]["run"] != first["entries"][0]["run"]
    file = next(Path(first["entries"][0]["run"], "eval").iterdir())
    stale = json.loads(file.read_text())
    stale["environment"]["code"], stale["cells"]["32"] = "another", [0.0]
    file.write_text(json.dumps(stale))
    assert compare("--pe", "rope")["entries"] == first["entries"]
    del stale["environment"]["code"]  # nor is one that does not say by which code
    file.write_text(json.dumps(stale))
    assert compare("--pe", "rope")["entries"] == first["entries"]
    file.write_text("{")
    assert compare("--pe", "rope")["entries"] == first["entries"]
    Path("text.txt").write_text(Path("text.txt").read_text()[::-1])
    assert compare("--pe", "rope")["entries"][0]["run"] != first["entries"][0]["run"]


def test_the_report_is_one_file_made_from_its_document(compare, undrawn):
    undrawn.undo()
    found = compare("--pe", "rope,none", "-o", "first")
    again = compare("--again", "first/comparison.json", "-o", "second")
    for name in ("report.html", "comparison.csv", "comparison.json", "comparison.png"):
        same(*(np.frombuffer(Path(f, name).read_bytes(), np.uint8) for f in ("first", "second")), 0, name)
    page = Path("first/report.html").read_text()
    assert page.count("<img") == page.count('src="data:image/png;base64,') == page.count("alt=") == 1
    assert "http" not in page.replace("http-equiv", "")
    assert "protocol: non-overlapping<br>cut: sliding, stride 4<br>" in page
    assert page.count('<div class="wide">') == 2  # table and picture scroll by themselves on a narrow screen
    assert ".wide { overflow-x: auto;" in page
    rows = list(csv.DictReader(Path("first/comparison.csv").read_text().splitlines()))
    assert len(rows) == 8
    bits = report.by_length(found, "none")[0]
    same_numbers([float(row["bits_per_byte"]) for row in rows[4:]], bits.tolist(), 1e-6)
    assert again["entries"] == found["entries"]


@pytest.mark.parametrize(
    "broken",
    [
        *("L", "lengths", "seeds", "entries", "recipe", "environment", "corpus"),
        *({"L": "x"}, {"lengths": []}, {"lengths": [0, 2, 4]}, {"seeds": 3}, {"entries": []}),
        *({"entries": [1]}, {"environment": 5}),
    ],
    ids=str,
)
def test_a_document_that_is_none(compare, broken):
    """A key that is missing, or has another kind of value."""
    found = document({"a": np.ones(16)})
    found["entries"][0]["cells"]["0"] = [1.0] * 16
    found = found | broken if isinstance(broken, dict) else {k: x for k, x in found.items() if k != broken}
    Path("x.json").write_text(json.dumps(found))
    said = "no table can be made of it" if isinstance(broken, dict) else f"'{broken}' is missing in it"
    assert f"x.json: not a comparison.json: {said}" in compare("--again", "x.json")


def test_a_document_without_losses_is_none(compare):
    found = document({"a": np.ones(16)})
    del found["entries"][0]["cells"]["4"]
    Path("x.json").write_text(json.dumps(found))
    assert "not a comparison.json: '4' is missing in it" in compare("--again", "x.json")


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_document_that_is_not_there_is_misuse(folder, capsys, name):
    assert run_cli(["compare", "--again", name], Signals()) == 2
    assert capsys.readouterr().err == f"error: {name}: no such file; expected a comparison.json\n"


def test_names_that_are_html_are_text():
    found = document({"<b>": np.ones(16), "a": np.ones(16)})
    assert "<b>" not in report.report_page(found, b"").partition("<table>")[2]


def test_a_task_has_its_own_table(compare):
    """Shares and effective lengths, found again like losses; depth where the task has one."""
    words = ["compare", "--json", "--task", "passkey", "--len", 48, "--to", 96, "--samples", 10, "--pe"]
    words += ["rope,none", "--scale", "pi", "--seeds", 2, *SMALL[6:]]
    assert run_cli([str(word) for word in words], Signals()) == 0
    found = json.loads(Path("comparison/comparison.json").read_text())
    assert (found["lengths"], found["samples"], found["L"]) == ([48, 96], 10, 48)
    assert [entry["label"] for entry in found["entries"]] == ["rope", "none", "pi, as it is"] * 2
    entry = found["entries"][0]
    run = open_run(entry["run"])
    cfg, params, _ = evaluate.weights_of(run)
    exercise = Exercise("passkey", 96, True, data.corpus("text.txt"))
    assert entry["rows"][1] == exact_match(cfg, params, exercise, 10, be=backends.get("numpy"))
    panels, said = list(report.panels(found)), list(report.sentences(found))
    assert (len(panels), report.head(found)) == (4, ["encoding", "48", "96", *BESIDE])
    assert next(report.rows_of_table(found))[:4] == ["rope", "0.000", "0.000", "not learned"]
    assert "Not learned by rope, none, pi, as it is." in said
    assert "1 layers" not in " ".join(said)
    again = compare("--again", "comparison/comparison.json", "-o", "second")
    assert any("Against the best" in one for one in said)
    assert again["entries"] == found["entries"]
    assert len(Path("second/comparison.csv").read_text().splitlines()) == 1 + 3 * 2 * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "copy", "--bytes", 512], "leave out --bytes"),
        (["--task", "copy", "--data", "text.txt"], "copy has no text"),
        (["--task", "copi"], "did you mean 'copy'"),
        (["--task", "copy", "--pe", "learned"], "which has 33 tokens"),
        (["--task", "passkey", "--scale", "pi", "--pe", "rope", "--finetune", 2], "leave out --finetune"),
        (["--samples", 5], "--samples is for --task"),
    ],
)
def test_what_a_task_has_no_use_for(folder, capsys, words, said):
    shape = [*SMALL[6:-2], "--len", 8, "--to", 16]
    assert run_cli(["compare", *map(str, [*shape, *words])], Signals()) == 2
    assert said in capsys.readouterr().err
    assert not Path("runs").exists()


def test_answers_are_compared_sample_by_sample():
    """The one with most over all lengths is the best; right at the same samples is no difference."""
    rights = {"a": ("1100", "1000"), "b": ("1100", "0000"), "c": ("0011", "0001")}
    rows = {
        label: [{"right": 99 * r, "exact": r.count("1") / 4} for r in both] for label, both in rights.items()
    }
    found = {"task": "x", "entries": [{"label": label, "rows": of} for label, of in rows.items()]}
    assert report.best_of(found) == "a"
    less = {label: report.against(found, label, "a") for label in rows}
    same_numbers([less["b"].mean, less["c"].mean], [-1 / 8, 0.0], 1e-12)
    assert (less["b"].decides, less["c"].decides) == (True, False)
    # independent differences of standard deviation s: 1.96 s / sqrt(396) each way
    same_numbers((less["b"].high - less["b"].low) / 2, 1.96 * 0.2165 / 396**0.5, 0.05)
    same_numbers((less["c"].high - less["c"].low) / 2, 1.96 * 0.7906 / 396**0.5, 0.05)


def document(nats, cut=None, L=2, longest=4):
    """A document of these losses at the longest length, by label; cells are of one byte."""
    lengths = [1, L, longest]
    entries = [
        {"label": label, "cells": {str(n): list(a) for n in lengths}, "memory": {"token": 1, "state": 0}}
        | {"cut": list(a if cut is None else cut), "run": "x", "seed": 0}
        for label, a in nats.items()
    ]
    about = {"bytes": 8, "text": "t", "corpus": "c", "environment": {}, "recipe": {"steps": 1, "batch": 1}}
    return {"L": L, "lengths": lengths, "seeds": [0], "entries": entries, **about}


def test_what_is_said_of_a_difference_and_of_far_context():
    """In bits; of the far context only where there is some."""
    rng = np.random.default_rng(0)
    nats = rng.standard_normal(64) + 9
    found = document({"a": nats, "b": nats + math.log(2)}, cut=nats + np.tile([5, 5, 2, 2], 16) * math.log(2))
    assert report.best_of(found) == "a"
    more = report.against(found, "b", "a")
    same_numbers([more.mean, more.low, more.high], [1.0] * 3, 1e-12)
    assert next(report.sentences(found)) == "a is 1.000 +- 0.000 bits/byte better than b at 4."
    same_numbers(report.far_context(found, "a").mean, 2.0, 1e-12)
    equal = document({"a": nats, "b": nats[::-1]})
    assert next(report.sentences(equal)) == f"{report.best_of(equal)} and " + (
        f"{'b' if report.best_of(equal) == 'a' else 'a'} do not differ at 4."
    )


@pytest.mark.parametrize(("name", "token", "state"), [("rope", 128, 0), ("retnet", 0, 4 * 8 * 16 * 4)])
def test_what_decoding_keeps(name, token, state):
    """Keys and values of a token, or a state; float32."""
    cfg = Config(L=32, layers=1, C=32, H=4, G=None if name == "retnet" else 2, pe=((name, {}),))
    found = memory(cfg, init(cfg))
    assert (found["token"], found["state"]) == (token, state)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", 4], "below --len 8"),
        (["--to", 33], "--to is 33; expected a multiple of 4, half of --len"),
        (["--bytes", 1601], "--bytes is 1601; expected a multiple of --to, 32"),
        (["--bytes", 256], "at least 512, 16 times --to"),
        (["--pe", "alibi", "--scale", "pi"], "add it to --pe"),
        (["--pe", "rope", "--scale", "alibi"], "no factor"),
        (["--finetune", 3], "say which with --scale"),
        (["--pe", "rope,rope"], "rope is named twice"),
        (["--pe", "rope", "--cycle", "rope"], "rope is named twice"),
        (["--cycle", "rope,alibbi"], "alibbi"),
        (["--pe", "learned"], "learned ends at length 8"),
        (["--again", "text.txt"], "expected a comparison.json"),
        (["--again", "text.txt", "--pe", "rope", "--seeds", 2], "leave out --pe, --seeds"),
        (["--pe", "ropes"], "rope"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_trained(compare, words, said):
    assert said in compare(*words)
    assert not Path("runs").exists()


def test_without_what_draws_nothing_is_trained(compare, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "need matplotlib" in compare("--pe", "rope")
    assert not Path("runs").exists()
