"""What the benchmark scripts say beyond numbers: what ran outside of kernels, what counts as failed."""

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden_files import dumped

from peref.backends import Backend
from peref.evaluate import weights_of
from peref.model import losses
from peref.ops.linear import linear
from peref.parameters import init
from peref.porting import config_of, unload
from peref.runs import open_run
from peref.store import to_bfloat16
from peref.tape import Op, Tape

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def catalogue(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("catalogue")


# catalogue.py


def test_the_page_of_speed_has_the_ratios_of_the_catalogue():
    page = (BENCHMARKS.parent / "docs" / "speed.md").read_text()
    said = re.findall(r"^\| (\w+) \| (\d\.\d\d) \| (?:0\.4)? ?\| 0\.5 \|$", page, re.MULTILINE)
    rows = json.loads((BENCHMARKS / "results" / "catalogue.json").read_text())["rows"]
    measured = {row["pe"]: f"{row['relative']:.2f}" for row in rows if row["section"] == "speed"}
    assert {"transformer_xl", "mamba", "shaw", "path", "dape", "cope"} < set(dict(said))
    assert dict(said).items() <= measured.items()


@pytest.mark.parametrize(
    ("pe", "plain", "own"),
    [
        ("none", set(), set()),
        ("rwkv4", {"wkv4"}, {"activation.gated", "shift.lerp"}),
        ("path", {"short_conv", "probabilities"}, {"path.scores"}),
    ],
)
def test_a_trace_names_all_that_has_no_kernel(catalogue, pe, plain, own):
    """Here a backend that fills `linear` alone, with the plain op under another name, and the fields that
    every model uses.
    """
    always = {"take", "rms_norm", "activated_linear", "cross_entropy", "adamw"} | (
        {"attention"} if pe == "none" else set()
    )
    be = replace(Backend(), linear=lambda *arguments: linear(*arguments))
    trace, untouched = catalogue.Trace(be), (Op.__call__, Tape.record)
    steps = [catalogue.stepping(pe, catalogue.QUICK) for _ in range(2)]
    found = trace.of(steps[0])
    assert (Op.__call__, Tape.record) == untouched
    assert set(found["plain"]) - {"matmul"} == always | plain
    assert own <= set(found["shares"])
    assert set(found["plain"]) - {"matmul", "take"} <= set(found["shares"])
    assert trace.seconds[catalogue.KERNELS] > 0
    assert 0 < sum(found["shares"].values()) <= found["outside"] < 1
    assert steps[0](be) == (steps[1](be), steps[1](be))[1]  # tracing changed no number


def test_time_within_an_op_counts_once(catalogue):
    trace = catalogue.Trace(Backend())
    with trace.timed("outer"), trace.timed("inner"):
        sum(range(100000))
    assert trace.seconds["outer"] < trace.seconds["inner"]
    assert trace.inside == []


def answers(monkeypatch, catalogue, **said):
    metrics = type("Lines", (), {"read": lambda self: [{"loss": 5.0}, {"loss": 4.0}]})()
    run = type("Run", (), {"metrics": metrics})()
    monkeypatch.setattr(catalogue.runs, "open_run", lambda folder: run)
    made = {"run": "runs/x", "data": {"name": "sea", "sha256": 64 * "a"}}
    fine = {
        "train": made,
        "eval": {"rows": [{"length": 8, "bpb": 2.0}]},
        "generate": {"text": "a", "bytes": [97]},
    }
    monkeypatch.setattr(catalogue, "asked", lambda root, threads, what, *rest: (fine | said)[what])


def test_what_works(catalogue, monkeypatch, tmp_path):
    answers(monkeypatch, catalogue)
    row = {"section": "works", "pe": "alibi"} | catalogue.works("alibi", tmp_path, catalogue.QUICK, 1)
    assert (catalogue.failures(row), row["corpus"]) == ([], "sea (aaaaaaaaaaaa)")
    assert catalogue.works_cells(row) == ["alibi", "5.000", "4.000", "2.00", "1 bytes"]
    assert catalogue.failures(row | {"last": 5.0}) == ["the loss does not fall: 5.000 to 5.000"]
    assert catalogue.failures(row | {"last": float("nan")}) == ["the loss does not fall: 5.000 to nan"]


@pytest.mark.parametrize(
    ("what", "kind", "failed"),
    [
        ("train", "misuse", ["train: no"]),
        ("eval", "misuse", []),
        ("eval", "internal", ["eval: no"]),
        ("generate", "misuse", ["generate: no"]),
    ],
)
def test_only_eval_may_refuse_and_only_in_words(catalogue, monkeypatch, tmp_path, what, kind, failed):
    answers(monkeypatch, catalogue, **{what: {"error": {"kind": kind, "message": "no"}}})
    row = {"section": "works", "pe": "learned"} | catalogue.works("learned", tmp_path, catalogue.QUICK, 1)
    assert catalogue.failures(row) == failed
    if what == "eval":
        assert catalogue.works_cells(row)[3] == "refused: no"


# windows.py


@pytest.mark.parametrize(("took", "code"), [(0.5, 0), (1.5, 1)])
def test_windows_that_cost_time_fail_the_command(took, code, monkeypatch, capsys):
    """The ratio is that of the step with windows to the one without, whichever was first."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    windows, now = import_module("windows"), [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: 2 * now[0])
    step = lambda seconds: lambda: now.append(now.pop() + seconds)
    monkeypatch.setattr(windows, "time", clock)
    monkeypatch.setattr(windows, "stepping", lambda window, *rest: step(took if window else 1.0))
    monkeypatch.setattr(windows.measure, "hold", lambda threads: None)
    monkeypatch.setattr("sys.argv", ["windows.py", "--rounds", "3", "--shape", "2x8"])
    assert windows.main() == code
    said = capsys.readouterr().out
    assert f"wall  {took:.3f}  ({took:.3f} to {took:.3f}), without 1.000 s a step" in said
    assert f"CPU   {took:.3f}  ({took:.3f} to {took:.3f}), without 2.000 s a step" in said


# published.py, on a model of seconds

LONG = {"model_type": "llama", "vocab_size": 32768, "hidden_size": 16, "intermediate_size": 24}
LONG |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6}
LONG |= {"max_position_embeddings": 4096, "tie_word_embeddings": True}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """The benchmark, and in tmp_path/model what transformers would have saved, in two shards of bfloat16."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    cfg, folder = config_of(LONG), tmp_path / "model"
    folder.mkdir()
    tensors = {name: to_bfloat16(a)["bfloat16"] for name, a in unload(init(cfg, 3), cfg).items()}
    where = {name: f"model-0000{1 + ('layers' in name)}-of-00002.safetensors" for name in tensors}
    for shard in {*where.values()}:
        dumped(folder / shard, {name: ("BF16", a) for name, a in tensors.items() if where[name] == shard})
    index = json.dumps({"metadata": {}, "weight_map": where})
    (folder / "model.safetensors.index.json").write_text(index)
    (folder / "config.json").write_text(json.dumps(LONG))
    return import_module("published")


def test_import_and_loss_of_a_published_model_are_measured(bench, tmp_path):
    """Each in a process of its own. The loss is that of the plain ops; with all logits at once, 0.54 GB, the
    peak is 1.2.
    """
    found = {part: bench.apart(part, tmp_path) for part in ("import", "peref")}
    assert all(one["s"] > 0 and 0.02 < one["GB"] < 0.5 for one in found.values()), found
    (run,) = tmp_path.glob("run-*")
    cfg, params, _ = weights_of(open_run(run))
    tokens = bench.tokens_for(tmp_path)
    assert tokens.shape == (1, 4097)
    want = losses(cfg, params, tokens[:, :-1], tokens[:, 1:]).mean()
    assert abs(found["peref"]["loss"] - want) < 1e-4 * want


def test_a_published_model_passes_where_losses_are_alike_and_memory_is_half(
    bench, tmp_path, monkeypatch, capsys
):
    one = {"s": 1.0, "cpu": 1.0, "GB": 1.0, "loss": 2.0}
    for theirs, passes in (({"GB": 2.1}, True), ({"GB": 1.9}, False), ({"GB": 2.1, "loss": 2.001}, False)):
        monkeypatch.setattr(bench, "apart", lambda part, _, t=theirs: one | (t if part == "torch" else {}))
        assert bench.main(tmp_path) is passes
        assert "| peref | 1.0 | 1.0 | 1.00 | 2.000000 |" in capsys.readouterr().out


def test_a_published_model_beside_pytorch(bench, tmp_path):
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason=f"{library} is no dependency of the tests")
    assert bench.main(tmp_path)
