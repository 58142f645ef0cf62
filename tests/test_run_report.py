"""report: numbers of attention, what stands on the page, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from check import same, same_numbers

from peref.config import Config
from peref.encodings import get, names
from peref.evaluate import weights_of
from peref.lab import responses, run_report
from peref.ops.place import At
from peref.parameters import init
from peref.rng import generator
from peref.runs import open_run

TINY = ["--width", 16, "--heads", 2, "--layers", 2, "--steps", 3, "--batch", 2, "--backend", "numpy"]
ATTENDING = [name for name in names() if not get(name).mix]


@pytest.fixture
def cli(cli):
    """Runs a command line in a folder with a text; gives exit code, stdout, stderr."""
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 200)
    return cli


def trained(cli, *words):
    code, out, err = cli("train", *TINY, *words, "--json")
    assert code == 0, err
    return json.loads(out)["run"]


@pytest.mark.parametrize("name", ATTENDING)
def test_weights_by_unit_values_are_those_of_gradients(name):
    """Of every encoding that attends, also where outputs have a part that values do not move."""
    cfg = Config(L=16, layers=1, C=32, H=4, G=2, pe=((name, {}),))
    encoding, at, T = cfg.encoding(0), At.of(13, n=16), 13
    p = {n: np.asarray(a, float) for n, a in encoding.init(generator(0, "pe", 0)).items()}
    content, how = responses.random_content(cfg, encoding, T, 1), {"layout": cfg.layout}
    p = responses.stirred(p)
    found = responses.attention_weights(encoding, p, at, how, content)
    copies = {key: np.repeat(a, T, 0) for key, a in content.items()}
    same(found, responses.weights(encoding, p, at, range(T), how, **copies).swapaxes(0, 1), 1e-12)


def test_more_query_heads_share_a_key_value_head_than_it_has_channels():
    """As in Falcon-7B, 71 of 64 channels."""
    cfg, T = Config(pe=(("none", {}),), C=32, H=8, G=1, D=4, L=5), 5
    at, how, encoding = At.of(T, n=cfg.L), {"layout": cfg.layout}, cfg.encoding(0)
    content = responses.random_content(cfg, encoding, T, 1)
    found = responses.weights(encoding, {}, at, [T - 1], how, **content)[0]
    same(found, responses.attention_weights(encoding, {}, at, how, content)[:, -1], 1e-12)


@pytest.mark.parametrize("name", ["alibi", "retnet", "rwkv4"])
def test_rows_of_a_layer_are_those_of_all(name):
    """Whichever are asked for, also more than go at once; responses, which are to random directions, are
    shares of 1.
    """
    cfg = Config(L=16, layers=2, C=16, H=2, G=None, pe=((name, {}),))
    p, tokens = init(cfg, 0, np.float64), np.arange(1, 80)
    whole = [heads for _, heads in responses.layer_weights(cfg, p, tokens, range(79))]
    some = [heads for _, heads in responses.layer_weights(cfg, p, tokens, [0, 5, 78])]
    for all_rows, few in zip(whole, some, strict=True):
        if name == "alibi":
            same(np.nan_to_num(few), np.nan_to_num(all_rows[:, [0, 5, 78]]), 1e-12)
        same_numbers(np.nansum(all_rows, -1).ravel().tolist(), [1.0] * all_rows[..., 0].size, 1e-12)
        assert np.isnan(few[0, 1, 6:]).all()
        assert np.isfinite(few[0, 1, :6]).all()


def test_entropy_and_means_over_distance():
    """Equal weights of 4 keys have 2 bits; a mean is over queries that reach so far, in equal weights."""
    nan = np.nan
    weights = np.array([[1.0, nan, nan], [1, 3, nan], [2, 2, 4]])
    same_numbers(run_report.entropy(np.full((1, 4), 0.1)).tolist(), [2.0], 1e-12)
    same_numbers(run_report.entropy(weights)[1], 2 - 0.75 * np.log2(3), 1e-12)
    found = run_report.over_distance(weights, np.arange(3))
    same_numbers(found.tolist(), [(1 + 1.5 + 1.5) / 3, (0.5 + 0.75) / 2, 0.75], 1e-12)
    assert np.isnan(run_report.over_distance(weights[:0], np.arange(0))).all()
    both = run_report.mean_of([weights, np.array([[1.0, nan, nan], [nan, 1, nan], [nan, nan, 1]])])
    same_numbers(both[1, :2].tolist(), [0.125, 0.875], 1e-12)
    assert np.isnan(both[1, 2])


def test_a_page_of_two_runs(cli, request):
    """One file with a picture of both and one of each; the numbers are those of eval and of the weights."""
    runs = [trained(cli, "--pe", pe, "--len", 8, "--data", "text.txt") for pe in ("rope", "t5")]
    code, out, err = cli("report", *runs, "--bytes", 200, "--len", 32, "--backend", "numpy")
    assert code == 0, err
    page = Path("report.html").read_text()
    assert page.count("data:image/png;base64,") == page.count("<img") == 3
    assert "http" not in page.replace("http-equiv", "")
    for title in ("Learning", "By length", "By position", "Entropy of attention", "over distance"):
        assert title in page
    alts = re.findall('alt="([^"]*)"', page)
    assert "layer 0: bias over distance" in alts[2]
    assert "bias over distance" not in alts[1]
    request.getfixturevalue("undrawn")
    found = json.loads(cli("report", *runs, "--bytes", 200, "--len", 32, "--backend", "numpy", "--json")[1])
    alone = json.loads(cli("eval", runs[0], "--len", 32, "--bytes", 200, "--backend", "numpy", "--json")[1])
    assert [row["bpb"] for row in found["runs"][0]["rows"]] == [row["bpb"] for row in alone["rows"]]
    same_by = ("run", "step", "protocol", "corpus", "environment")
    wanted = alone | {"protocol": alone["protocol"]["name"]}
    assert all(found["runs"][0][key] == wanted[key] for key in same_by)
    assert f"corpus: {alone['corpus']}<br>" in page
    cfg, params, _ = weights_of(open_run(runs[1]))
    tokens = np.frombuffer(Path("text.txt").read_bytes(), np.uint8)[-620:][:32]
    bits = [
        np.mean([run_report.entropy(head) for head in heads], 0)
        for _, heads in responses.layer_weights(cfg, params, tokens, range(32))
    ]
    same_numbers(found["runs"][1]["entropy"]["beyond"], float(np.mean(bits, 0)[8:].mean()), 1e-6)
    assert f"{found['runs'][1]['entropy']['beyond']:.3f}" in out


def test_a_run_of_a_task_and_a_prompt_of_ones_own(cli, undrawn):
    """By answers instead of bits; a prompt inside the length has nothing beyond it. Names of runs alike are
    told apart.
    """
    run = trained(cli, "--task", "induction", "--pe", "retnet", "--len", 8)
    words = ["report", run, "--prompt", "a!b!", "-o", "x.html", "--backend", "numpy", "--json"]
    code, out, err = cli(*words)
    assert code == 0, err
    found = json.loads(out)
    assert [row["length"] for row in found["runs"][0]["rows"]] == [4, 8, 16]
    assert found["runs"][0]["entropy"]["beyond"] is None
    assert "response" in Path("x.html").read_text()
    other = trained(cli, "--task", "induction", "--pe", "retnet", "--len", 8, "--seed", 1)
    code, out, _ = cli("report", run, other, "--backend", "numpy", "--json")
    assert [one["name"] for one in json.loads(out)["runs"]] == ["retnet (1)", "retnet (2)"]


def test_a_name_that_is_html_is_text(cli, monkeypatch, undrawn):
    run = trained(cli, "--pe", "rope", "--len", 8, "--data", "text.txt")
    monkeypatch.setattr(Config, "named", "<b>\"'")
    code, _, err = cli("report", run, "--bytes", 100, "--backend", "numpy")
    assert code == 0, err
    page = Path("report.html").read_text().partition("<body>")[2]
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&quot;&#x27;") == 3  # in the table, over its own part, beside the picture


def test_what_is_not_drawn(cli, undrawn):
    rope = trained(cli, "--pe", "rope", "--len", 8, "--data", "text.txt")
    table = trained(cli, "--pe", "learned", "--len", 8, "--data", "text.txt")
    pair = trained(cli, "--task", "reverse", "--encoder", "rope", "--len", 4)
    task = trained(cli, "--task", "copy", "--len", 4)
    for words, said in (
        ([rope, "--heads", "0.2"], "expected 0.0 to 1.1"),
        ([rope, "--prompt", ""], "the prompt has 0 tokens"),
        ([table, "--len", 9], "learned ends at length 8"),
        ([table, "--prompt", "123456789"], "the prompt has 9 tokens; expected 1 to 8"),
        ([task, "--bytes", 50], "leave out --bytes"),
        ([rope, task], "report them apart"),
        ([rope, "--runs", "runs"], "leave one of them out"),
    ):
        code, _, err = cli("report", *words, "--backend", "numpy")
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    assert not Path("report.html").exists()
    code, out, err = cli("report", pair, "--backend", "numpy")
    assert code == 0, err
    assert Path("report.html").read_text().count("<img") == 1
    assert "rope before alibi" in out
    code, _, err = cli("report", table, "--bytes", 100, "--heads", "1.1", "--backend", "numpy")
    assert code == 0, err
    assert "layer 1, head 1" in Path("report.html").read_text()
