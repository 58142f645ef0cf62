"""The attestation says no more than a device said, and the script that makes it runs to its end where there is none."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import attest
import fake_cupy

ROOT = Path(__file__).resolve().parent.parent
KEPT = json.loads((ROOT / "tests" / "attest.json").read_text())


def test_every_kernel_has_its_line():
    """One for each file, none for a file that is gone; a claim has a device, a date and an error."""
    texts = attest.kernels()
    assert set(KEPT) == set(texts)
    for about in KEPT.values():
        assert {"sha256", "device", "date", "error"} <= set(about)
        assert len({value is None for key, value in about.items() if key in ("sha256", "device", "date", "error")}) == 1
    lines = attest.states(KEPT, texts)
    assert len(lines) == len(texts)
    print("\n".join(lines))


def test_what_a_line_says():
    """A text that changed by one letter is no longer verified."""
    ran = {"sha256": hashlib.sha256(b"text").hexdigest(), "device": "a GPU", "date": "2026-11-21", "error": 1e-6}
    assert attest.states({"a": ran}, {"a": "text", "b": "text"}) == [
        "a.cu                    verified on device: a GPU, 2026-11-21, error 1.0e-06",
        "b.cu                    never run on a device",
    ]
    assert attest.states({"a": ran}, {"a": "texT"}) == ["a.cu                    changed since the last device run: a GPU, 2026-11-21"]


def test_the_benchmark_runs_to_its_end_without_a_device(tmp_path):
    """Every phase, tiny and untimed: every row is there and none is an error, what is right is right, and nothing is attested."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--emulated", "--peers", "rows", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row for row in rows if isinstance(row.get("error"), str) or row.get("verdict") == "NO-GO"] == []
    assert {row["phase"][0] for row in rows} == set("012345")
    assert all(row["good"] for row in rows if row["phase"][0] == "3")
    assert len([row for row in rows if row["phase"][0] == "2"]) == 10
    assert not any({"us", "TFLOP_per_s", "TB_per_s"} & {key for key, value in row.items() if value is not None} for row in rows)
    table = (tmp_path / "table.md").read_text()
    assert "EMULATED: no time means anything" in table
    assert len(table.splitlines()) <= 60
    assert {about["device"] for about in json.loads((tmp_path / "attest.json").read_text()).values()} == {None}
    assert set(json.loads((tmp_path / "env.json").read_text())["kernels"]) == set(KEPT)


def test_the_table_says_what_misses(tmp_path, monkeypatch):
    """A ratio for each target whose two rows are there, with the suspect where it is too small; memory; what went wrong."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from on_gpu import report, session

    with fake_cupy.installed(memory=True):
        s = session.Session(tmp_path, 1.0, emulated=False)
        every = {name for _, ours, peer, *_ in report.targets(False) for name in (ours, peer)}
        s.rows = [{"phase": "4", "name": name, "us": 30.0 if "torch" in name or "jax" in name else 10.0} for name in every]
        s.rows += [{"phase": "3", "name": "gelu", "good": False}, {"phase": "2 go or no-go", "name": "one", "verdict": "GO"}]
        s.rows += [
            {"phase": "4", "name": name, "peak_bytes": n} for name, n in (("attention 64 x 8192 table", 10), ("torch sdpa 64 x 8192 mask", 250))
        ]
        lines = report.table(s).splitlines()
        s.errors = {"norm": {"error": 1e-7, "good": True}, "loss": {"error": 1.0, "good": False}}
        attested = report.attested(s)
    (step,) = [line for line in lines if line.startswith("| G13") and "eager" in line]
    assert step.endswith("| 3.00 | 6.0 | misses; suspect: nodes of the graph |")
    assert any(line.startswith("| G8") and line.endswith("| 3.00 | 1.2 |  |") for line in lines)
    assert "- one: GO" in lines
    assert any("25.0 times ours (must: 20)" in line for line in lines)
    assert lines[-1] == "wrong or failed: gelu"
    assert (attested["norm"]["device"], attested["norm"]["error"], attested["loss"]["device"]) == ("Emulated, compute capability 9.0", 1e-7, None)


def test_a_deadline_costs_rows_and_not_the_run(tmp_path):
    """With no time at all each item is a row that says so, and the report still comes."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--emulated", "--budget", "0", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert all("skipped" in row for row in rows if row["name"] != "environment")
    assert (tmp_path / "table.md").exists()
