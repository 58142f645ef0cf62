"""The script for a device runs to its end where there is none, and where a row hangs, dies, fails, is late
or wrong.
"""

import gc
import json
import re
import subprocess
import sys
import time
import weakref
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import fake_cublas
import fake_cupy
import numpy as np
import pytest
from check import same
from emulated.twins import emulated
from generated import filling

from peref.backends.cuda import launch, open_device

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "gpu.py"
FAULTY = """
import os, sys, time
from pathlib import Path
sys.path[:0] = [{benchmarks!r}, {root!r}]
from on_gpu.session import Session

s = Session(Path(sys.argv[2]), True, "2 ceilings", time.monotonic() + float(sys.argv[3]))
s.longest = 1
s.attempt("right", lambda: {{"good": True}})
s.attempt("hangs", lambda: time.sleep(100))
s.attempt("dies", os.abort)
s.attempt("raises", lambda: 1 / 0)
s.attempt("last", lambda: {{"good": True}})
os._exit(3)
"""


@pytest.fixture
def gpu(monkeypatch):
    """benchmarks/gpu.py as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("gpu")


def ran(out, *more):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--emulated", "--out", str(out), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_it_runs_to_its_end_without_a_device(tmp_path, gpu):
    """Every phase, tiny and untimed: every row is there and none is an error, what is right is right, and
    nothing is attested.
    """
    rows = ran(tmp_path, "--peers", "rows")
    assert [row for row in rows if isinstance(row.get("error"), str) or row.get("verdict") == "NO-GO"] == []
    assert {row["phase"][0] for row in rows} == set("0123456")
    assert [row["name"] for row in rows if row["phase"][0] == "4" and not row["good"]] == []
    assert len([row for row in rows if row["phase"][0] == "3"]) == 10
    assert [row["variants"] for row in rows if "variants" in row] == [2]
    assert [row["name"] for row in rows if row["name"].startswith("warm")] == [
        "warm 0 products",
        "warm 1 steps",
    ]
    assert (tmp_path / "ptxas.txt").read_text().count("optimizer.arena") == 2
    assert [row["name"] for row in rows if "skipped" in row and not row["name"].startswith("peers")] == []
    assert not any(
        {"us", "TFLOP_per_s", "TB_per_s"} & {key for key, value in row.items() if value is not None}
        for row in rows
    )
    names = [row["name"] for row in rows if row["phase"][0] == "4"]
    plain = names.index("cupy training")
    kernels = [name for name in names[plain + 1 :] if name != "attention that stops"]
    assert names[:plain] == [f"cupy {name}" for name in kernels[:plain]]
    (golden,) = [row for row in rows if row["name"] == "golden rope"]
    (laws,) = [row for row in rows if row["name"] == "laws rope"]
    assert golden["cases"] > 10
    (plain,) = [row for row in rows if row["name"] == "golden none"]
    assert (plain["cases"], plain["refused"]) == (21, 14)
    assert len(plain["because"]) == 4
    assert laws["held"] > 5
    assert {"turn.turn", "attention.forward"} <= set(golden["kernels"]) & set(laws["kernels"])
    from on_gpu import cases

    launches = {row["name"]: row["launches"] for row in rows if "launches" in row}
    assert launches == {
        f"launches of a step, {kind}": once + each for kind, (once, each) in gpu.report.LAUNCHES.items()
    }
    beside = {row["name"] for row in rows if row["name"].endswith(", and its plain text")}
    assert len(beside) == len([*cases.large(True, ())])
    table = (tmp_path / "table.md").read_text()
    assert "EMULATED: no time means anything" in table
    assert len(table.splitlines()) <= 60
    assert all(f"| G{n} |" in table for n in range(1, 17))
    assert {about["device"] for about in json.loads((tmp_path / "attest.json").read_text()).values()} == {
        None
    }
    kept = json.loads((ROOT / "tests" / "attest.json").read_text())
    assert set(json.loads((tmp_path / "env.json").read_text())["kernels"]) == set(kept)
    assert {file for row in rows for file in row.get("files", "").split()} == set(kept)


def test_a_deadline_costs_rows_and_not_the_run(tmp_path):
    """With no time at all each item is a row that says so, and the report still comes; what an earlier run
    found is put aside.
    """
    (tmp_path / "results.jsonl").write_text("{}\n")
    rows = ran(tmp_path, "--budget", "0")
    assert all("skipped" in row for row in rows if row["name"] != "environment")
    assert (
        "left out: compile optimizer, warm 0 products, warm 1 steps, copy, "
        in (tmp_path / "table.md").read_text()
    )
    assert (tmp_path / "earlier.jsonl").read_text() == "{}\n"


def test_a_row_that_goes_wrong_takes_no_other_with_it(tmp_path, monkeypatch, gpu):
    """It hangs, or ends its process, or leaves the device unusable: each is a row, and another process
    goes on behind it.
    """
    (tmp_path / "phase.py").write_text(FAULTY.format(benchmarks=str(ROOT / "benchmarks"), root=str(ROOT)))
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    s = gpu.session.Session(tmp_path, True)
    gpu.enter(s, "2 ceilings", 60, time.monotonic() + 60)
    gpu.own(s, 1)
    assert [(row["name"], row.get("good", row.get("error"))) for row in s.rows] == [
        ("right", True),
        ("hangs", "no answer within 1 s"),
        ("dies", "its process ended with -6: "),
        ("raises", "ZeroDivisionError: division by zero"),
        ("last", True),
        ("2 ceilings", "its process ended with 3: "),
    ]


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch, gpu):
    """Soon after its deadline, as a row, before any row of its own."""
    (tmp_path / "phase.py").write_text("import time; time.sleep(100)")
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    monkeypatch.setattr(gpu.session, "GRACE", 0.5)
    s = gpu.session.Session(tmp_path, True)
    began = time.monotonic()
    gpu.enter(s, "2 ceilings", 60, began)
    gpu.own(s, 1)
    assert [(row["name"], row["error"]) for row in s.rows] == [("2 ceilings", "its process did not end")]
    assert time.monotonic() - began < 90


PEER = """
import json, sys
from pathlib import Path
name, before = sys.argv[1], Path(__file__).with_name(sys.argv[1])
absent = {"name": "peers absent", "skipped": "not installed"}
print(json.dumps(absent if name == "absent" else {"name": f"{name} row", "error": "too large"}))
if name == "late" and not before.exists():
    before.touch()
    sys.exit("ended")
"""


def test_peers_go_on_where_a_run_ended(tmp_path, monkeypatch, gpu):
    """What came to its end is not asked again, whatever its rows say; what had no time, failed or was not
    installed is.
    """
    (tmp_path / "peers.py").write_text(PEER)
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    s, asked, child = gpu.session.Session(tmp_path, True), [], gpu.Child
    monkeypatch.setattr(
        gpu, "Child", lambda command, *a, **k: (asked.append(command[2]), child(command, *a, **k))[1]
    )
    s.row("peers unasked", skipped="no time left")
    for _ in range(3):
        gpu.enter(s, "6 peers", 60, time.monotonic() + 60)
        gpu.peers(s, ["done", "late", "absent", *(["unasked"] if asked else [])])
    assert asked == ["done", "late", "absent", "late", "absent", "unasked", "absent"]
    assert gpu.report.table(s).splitlines()[-2:] == [
        "left out: peers absent, peers absent, peers absent",
        "wrong or failed: done row, late row, late row, unasked row",
    ]


READIES = """
import sys, time
from pathlib import Path
name, here = sys.argv[1], Path(__file__).parent
if name == "never":
    time.sleep(100)
(here / name).touch()
while not (here / "one").exists() or not (here / "two").exists():  # both get ready at once
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
with (here / "timed").open("a") as file:
    file.write(f"{name} begins ")
    file.flush()
    time.sleep(0.3)
    file.write("and ends;")
"""


def test_peers_get_ready_together_and_are_timed_alone(tmp_path, monkeypatch, gpu):
    """One that does not get ready is ended before any is timed."""
    (tmp_path / "peers.py").write_text(READIES)
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    monkeypatch.setattr(gpu, "READY", 3)
    s = gpu.session.Session(tmp_path, True)
    gpu.enter(s, "6 peers", 60, time.monotonic() + 60)
    gpu.peers(s, ["one", "never", "two"])
    assert (tmp_path / "timed").read_text() == "one begins and ends;two begins and ends;"
    assert [(row["name"], row.get("error")) for row in s.rows] == [
        ("peers never", "not ready within 3 s"),
        ("peers one", None),
        ("peers two", None),
    ]


def test_plain_ops_that_are_not_those_of_numpy_are_found(tmp_path, gpu):
    """An exponential that is 1e-9 off, in float64: of attention, and of a training step."""
    from on_gpu import cases, correct

    case = next(cases.heads(True))
    with ExitStack() as stack:
        s = gpu.session.opened(tmp_path, True, stack)
        found = lambda: [correct.checked(s, s.plain(), case, np.float64, 1e-11), correct.same_training(s)]
        assert [one["good"] for one in found()] == [True, True]
        exp = s.xp.exp
        s.xp.exp = lambda *given, **named: exp(given[0] * (1 + 1e-9), *given[1:], **named)
        assert [one["good"] for one in found()] == [False, False]


SANITIZER = """#!/bin/sh
echo "========= Invalid __global__ read of size 4 bytes"
echo "========= ERROR SUMMARY: 1 error"
case "$*" in --tool\\ memcheck\\ --error-exitcode\\ 9\\ *sanitizer.py*) exit 9 ;; *) exit 0 ;; esac
"""


def test_a_finding_of_the_sanitizer_is_a_row(tmp_path, monkeypatch, gpu):
    """Of each check, with its last words; where the tool is not installed, each row says so."""
    from on_gpu import sanitizer

    monkeypatch.setenv("PATH", str(tmp_path))
    s = gpu.session.Session(tmp_path, False, "4 correctness", time.monotonic() + 60)
    with sanitizer.beside(s):
        pass
    assert [row["skipped"] for row in s.rows] == ["compute-sanitizer is not installed"] * 4
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(SANITIZER)
    tool.chmod(0o755)
    s.phase, s.rows = "again", []
    with sanitizer.beside(s):
        s.row("beside", good=True)
    assert s.rows.pop(0)["name"] == "beside"
    assert [(row["name"].split()[1], row["good"]) for row in s.rows] == [
        ("memcheck", False),
        ("synccheck", True),
        ("racecheck", True),
        ("initcheck", True),
    ]
    assert {row["said"] for row in s.rows} == {"ERROR SUMMARY: 1 error"}
    assert (tmp_path / "sanitizer.txt").read_text().count("Invalid __global__ read") == 4


@pytest.mark.parametrize("found", [False, True])
def test_what_the_sanitizer_found_before_its_time_was_over_is_told(tmp_path, gpu, found):
    from on_gpu.sanitizer import told

    lines = ["========= COMPUTE-SANITIZER", *(["========= Barrier error detected."] if found else [])]
    code = f"import time; print({chr(10).join(lines)!r}, flush=True); time.sleep(60)"
    s = SimpleNamespace(out=tmp_path, left=lambda: 0.0)
    with (tmp_path / "said").open("w+b") as output:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=output)
        while (tmp_path / "said").read_bytes().count(b"\n") < len(lines):
            time.sleep(0.01)
        row = told(s, "synccheck", process, output)
    said = "========= Barrier error detected."
    assert row == ({"said": said, "good": False} if found else {"skipped": "no time left"})
    assert (said in (tmp_path / "sanitizer.txt").read_text()) == found


def test_the_sanitizer_sees_attention_both_ways(tmp_path, monkeypatch, gpu):
    """All that there is without wgmma; then, but of racecheck, attention in bfloat16 with it, of every
    width, and not what was compiled without. AdamW in both types.
    """
    from on_gpu import correct, sanitizer

    seen, updated, made = [], [], MagicMock(wraps=launch.compiled)
    monkeypatch.setattr(launch, "compiled", made)

    def pulled(be, function, arrays, settings, place, dtype):
        seen.append((launch.has_wgmma(sys.modules["cupy"], 0), arrays[0].shape[-1], np.dtype(dtype).name))

    monkeypatch.setattr(correct, "pulled", pulled)
    monkeypatch.setattr(correct, "updating", lambda s, kind: updated.append(kind))
    monkeypatch.setattr(sanitizer, "wide_heads", lambda emulated, of=sanitizer.wide_heads: of(False))
    for wgmma in (False, True):
        sanitizer.tiny(tmp_path, True, wgmma)
    without, first = [one[1:] for one in seen if not one[0]], [one[0] for one in seen].index(True)
    assert {one[0] for one in seen[:first]} == {False}
    assert {one for one in seen if one[0]} == {(True, width, "bfloat16") for width in (32, 64, 128)}
    assert {(width, name) for width in (32, 64, 128) for name in ("float32", "bfloat16")} <= {*without}
    assert updated == ["cuda", "cuda:bf16"]
    assert made.cache_clear.call_count == 2
    s = gpu.session.Session(tmp_path, False, "4 correctness", time.monotonic() + 60)
    asked, process = [], SimpleNamespace(wait=lambda seconds: 0, returncode=0, kill=lambda: None)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name: name)
    monkeypatch.setattr(
        sanitizer.subprocess, "Popen", lambda command, **rest: asked.append(command) or process
    )
    with sanitizer.beside(s):
        pass
    assert [command[2] for command in asked if sanitizer.MMA in command] == ["racecheck"]
    assert len(asked) == 4


def test_the_sanitizer_has_products_added_to_zeros(gpu):
    """But to what they are added to anyway, where there is such."""
    from on_gpu.sanitizer import onto_zeros

    added, a, b = onto_zeros(lambda self, a, b, out: out), np.ones((2, 3)), np.ones((3, 4))
    same(added(SimpleNamespace(xp=np), a.astype("f4"), b.astype("f4")), np.zeros((2, 4), "f4"), 0)
    assert added(None, a.astype("f4"), b.astype("f4"), a) is a


def attested(session, gpu, edit, cases):
    """The kernel files that a device would vouch for after these cases, with kernels changed by `edit`."""
    from on_gpu import correct

    session.xp.emulated.edit, session.xp.emulated.changed, session.rows = edit, 0, []
    for case in cases:
        work = partial(correct.checked, session, session.backend(), case, np.float32, None)
        session.attempt(case[1], work, files=case[0])
    assert edit is None or session.xp.emulated.changed
    session.emulated = False
    found = {file for file, about in gpu.report.attested(session).items() if about["sha256"]}
    session.emulated = True
    return found


def test_a_wrong_kernel_costs_its_own_file(tmp_path, gpu):
    """Of attention the backward where the backward is wrong; a file of which a kernel was not launched, or
    which an operation of its own did not launch, is not vouched for.
    """
    from on_gpu import cases

    turning, attending = [*cases.rows(True)][4:7], [*cases.heads(True)][:2]
    made = launch.compiled
    with ExitStack() as stack:
        s = gpu.session.opened(tmp_path, True, stack, seconds=600)
        both = lambda edit: attested(s, gpu, edit, [*turning, *attending])
        assert both(None) == {"turn", "attention", "attention_backward"}
        made.cache_clear()
        assert both(("? x.delta[", "? 0.9f * x.delta[")) == {"turn", "attention"}
        assert attested(s, gpu, None, turning[:2]) == set()
        elsewhere = ("turn", *next(cases.products(True))[1:])
        assert attested(s, gpu, None, [*turning, elsewhere]) == set()


SWAPPED = ("bf16_pair(of_p[0], of_p[1])", "bf16_pair(of_p[1], of_p[0])")  # two weights change places


@pytest.mark.parametrize(("kind", "good"), [("cuda", True), ("cuda:bf16", False)])
def test_an_update_that_leaves_wrong_narrow_weights_is_found(kind, good, tmp_path, gpu):
    """By the row in bfloat16, which is right without the mistake."""
    from on_gpu import correct

    made = launch.compiled
    with ExitStack() as stack:
        s = gpu.session.opened(tmp_path, True, stack)
        assert correct.updating(s, kind)["good"]
        made.cache_clear()
        s.xp.emulated.edit = SWAPPED
        assert correct.updating(s, kind)["good"] is good


@pytest.mark.parametrize(("kind", "verdict"), [("cuda:tf32", "GO"), ("cuda:bf16", "NO-GO")])
def test_a_replay_that_is_another_step_is_found(kind, verdict, tmp_path, monkeypatch, gpu):
    """Of one that keeps the narrow weights of the step before."""
    from on_gpu import gonogo

    from peref.backends.cuda import optimizer

    launched = optimizer.launch

    def forgetful(kernel, grid, block, *given, **rest):
        if kernel == "optimizer.arena" and s.xp.cuda.get_current_stream().is_capturing():
            given = (*given[:3], None, *given[4:])
        launched(kernel, grid, block, *given, **rest)

    with ExitStack() as stack:
        s = gpu.session.opened(tmp_path, True, stack)
        monkeypatch.setattr(optimizer, "launch", forgetful)
        assert gonogo.replayed(s, kind)["verdict"] == verdict


def test_every_peer_is_known(gpu):
    """Those that the script asks for are those that there are."""
    from on_gpu import peers

    assert sorted(gpu.TOGETHER + gpu.ALONE) == sorted(peers.RUN)


def test_the_kernel_of_attention_that_is_timed_is_the_one_asked_for(monkeypatch, gpu):
    """PyTorch chooses when it runs, long after the peer was made ready."""
    from on_gpu import peers

    torch, chosen, seen, acts = MagicMock(), [], [], []

    @contextmanager
    def sdpa_kernel(kind):
        chosen.append(kind)
        yield
        chosen.pop()

    torch.nn.functional.scaled_dot_product_attention.side_effect = lambda *a, **k: seen.append(tuple(chosen))
    kinds = SimpleNamespace(FLASH_ATTENTION="flash", CUDNN_ATTENTION="cudnn", EFFICIENT_ATTENTION="efficient")
    there = {"torch": torch, "torch.nn": torch.nn}
    there["torch.nn.attention"] = SimpleNamespace(SDPBackend=kinds, sdpa_kernel=sdpa_kernel)
    for name, module in there.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(peers, "torched", lambda: (torch, "cuda"))
    monkeypatch.setattr(peers, "on_events", lambda torch, act, **rest: acts.append(act) or dict)
    monkeypatch.setattr(peers, "WAITING", [])
    peers.attention()
    for act in acts:
        act()
    assert seen == [("flash",), ("cudnn",), ("efficient",)] * 2


def test_a_graph_of_a_peer_keeps_what_it_reads(gpu):
    """Or its weights' memory is another's by the time it is replayed."""
    from on_gpu import peers

    class Weights:
        pass

    torch, weights = MagicMock(), Weights()
    alive, act = weakref.ref(weights), lambda weights=weights: None
    replay = peers.captured(torch, act)
    del act, weights
    gc.collect()
    replay()
    assert alive() is not None
    assert torch.cuda.CUDAGraph.return_value.replay.call_count == 1


def test_what_a_process_started_ends_with_it(gpu):
    """A peer whose own children hold its output is ended with them, in time."""
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; print(1, flush=True); "
        "time.sleep(100)'])"
    )
    child, before = gpu.Child([sys.executable, "-c", code]), time.monotonic()
    while not child.said()[0]:
        assert time.monotonic() - before < 90
        time.sleep(0.01)
    assert child.ended(0.1) == (None, "1\n", "")
    assert time.monotonic() - before < 90


def test_without_a_device_one_line_says_so(tmp_path):
    """No traceback, and no row."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert "the cuda backend" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results.jsonl").exists()


def test_the_table_says_what_misses(tmp_path, gpu):
    """A ratio for each target whose two rows are there, with the suspect where it is too small or too
    slow; memory; what went wrong.
    """

    def both(file, error):
        kernels = [f"{file}.{name}" for name in launch.declared(file)]
        return {"good": error < 1, "forward": {"kernels": kernels, "error": error, "good": error < 1}}

    s = gpu.session.Session(tmp_path, emulated=False)
    every = {name for t in gpu.report.targets(False) for name in (t.ours, t.peer)}
    s.rows = [
        {"phase": "4", "name": name, "us": 30.0 if "torch" in name or "jax" in name else 10.0}
        for name in every
    ]
    s.rows += [
        {"phase": "3", "name": "gelu", "good": False},
        {"phase": "3 go or no-go", "name": "one", "verdict": "GO"},
    ]
    s.rows += [{"phase": "3 go or no-go", "name": "4 us per graph node", "us": 1.25}]
    s.rows += [
        {"phase": "4", "name": name, "peak_bytes": n}
        for name, n in (("attention 64 x 8192 table", 10), ("torch sdpa 64 x 8192 mask", 250))
    ]
    s.rows += [
        {"phase": "0", "name": "environment", "gpu": "a GPU"},
        {"phase": "4", "name": "adamw", "us": 70.0},
    ]
    s.rows += [
        {"phase": "3", "name": name, "files": files, **found}
        for name, files, found in (
            ("rms_norm", "norm", both("norm", 1e-7)),
            ("rms_norm bf16", "norm", both("norm", 1e-3)),
            ("retention", "retention", both("retention", 1e-7)),
            ("retention tf32", "retention", both("retention", 5e-4)),
            ("cross-entropy", "loss", both("loss", 1.0)),
            ("swiglu", "activation", both("activation", 1e-7)),
            ("gelu", "activation", {"error": "it failed"}),
            ("take", "embedding", both("embedding", 1e-7)),
            ("take bf16", "embedding", {"skipped": "no time left"}),
        )
    ]
    s.rows += [{"phase": "4", "name": "attention 64 x 131072 ALiBi", "us": 2e5}]
    s.rows += [
        {"phase": "3", "name": name, "same_bits": equal, "good": equal}
        for name, equal in (("loss curve", True), ("wkv7", False))
    ]
    s.rows += [
        {"phase": "5", "name": "take, and its plain text", "times_as_fast": 2.96},
        {"phase": "5", "name": "wkv7, and its plain text", "times_as_fast": 40.0},
        {"phase": "5", "name": "launches of a step, tf32", "launches": 344, "parts": 43, "sets": 1},
        {"phase": "5", "name": "wkv4, and its plain text", "us": 1234.5, "error": "no answer within 60 s"},
        {"phase": "4", "name": "golden none", "because": ["the kernels of cuda have no sinks; use cupy"]},
    ]
    lines = gpu.report.table(s).splitlines()
    beside = "43 sums of parts by cuBLAS beside them, 1 of them set memory"
    tf32, bf16 = (once + 6 * each for once, each in gpu.report.LAUNCHES.values())
    assert f"- launches of a step of 6 layers, tf32: 301, {beside} (expected: {tf32})" in lines
    assert "- kernels whose plain text did not come to its end: wkv4 1,234 us" in lines
    assert "- refused by the backend: golden none (no sinks)" in lines
    assert f"- launches of a step of 6 layers, bf16: not counted (expected: {bf16})" in lines
    assert any(line.endswith("(below 3 a kernel goes): take 2.96 GOES, wkv7 40.00") for line in lines)
    (step,) = [line for line in lines if line.startswith("| G13") and "eager" in line]
    assert step.endswith("| 3.00 | 6 | misses; suspect: nodes of the graph |")
    assert any(line.startswith("| G8") and line.endswith("| 3.00 | 1.2 |  |") for line in lines)
    assert any(
        line.startswith("| G11 | adamw | 70.0 | 33 | 54 | 1.30 | 60 |") and "misses" in line for line in lines
    )
    assert "- one: GO" in lines
    assert "- 4 us per graph node: us 1.25" in lines
    assert any("25.0 times ours (must: 20)" in line for line in lines)
    assert "- attention at 131072 (must: runs): ALiBi 200,000 us, table not measured" in lines
    assert "- run twice for equal bits (must: all): 1 of 2 rows; not: wkv7" in lines
    assert lines[-1] == "wrong or failed: gelu, cross-entropy, gelu, wkv7, wkv4, and its plain text"
    attested = gpu.report.attested(s)
    assert (attested["norm"]["device"], attested["norm"]["error"], attested["norm"]["error_bf16"]) == (
        "a GPU",
        1e-7,
        1e-3,
    )
    assert (attested["retention"]["error"], attested["retention"]["error_tf32"]) == (1e-7, 5e-4)
    assert [attested[file]["device"] for file in ("loss", "activation", "embedding", "turn")] == [None] * 4


def test_what_is_expected_belongs_to_the_device(tmp_path, gpu):
    """Of one that copies at half the rate of an H200 and multiplies as fast; a step is bound by both."""
    s = gpu.session.Session(tmp_path, emulated=False)
    s.rows = [
        {"phase": "2", "name": "copy", "TB_per_s": 2.15},
        {"phase": "2", "name": "gemm bf16", "TFLOP_per_s": 788.0},
        {"phase": "5", "name": "rms_norm", "us": 1000.0},
    ]
    lines = gpu.report.table(s).splitlines()
    assert (
        "- times an H200's: memory 2.00, products 1.00; floor, expected and at most are multiplied with it"
        in lines
    )
    rows = {line.split(" | ")[1]: line.split(" | ")[3:7] for line in lines if line.startswith("| G")}
    assert rows["rms_norm"] == ["500", "500", "2.00", ""]
    (step,) = [line for line in lines if line.startswith("| G12") and "1,065" in line]
    assert "| 2,700 |" in step


def test_what_changed_is_listed(gpu):
    """Paths, and what a copy without golden/full lacks as a number."""
    from on_gpu.ceilings import changed

    assert changed("") == []
    said = [" M peref/xp.py", *(f" D golden/full/{n}.json" for n in range(3)), " D golden/core.json"]
    assert changed("\n".join(said).strip()) == [
        "M peref/xp.py",
        "D golden/core.json",
        "3 missing in golden/full",
    ]
    assert changed("\n".join(f"M {n}" for n in range(12)))[9:] == ["M 9", "2 more"]


def test_ours_is_known_where_the_plain_text_is_not(tmp_path, gpu):
    """It raises, or would take an hour: the row has our time all the same."""
    from on_gpu import timings

    with fake_cupy.installed() as cp:
        s = gpu.session.Session(tmp_path, False, "5 our times", time.monotonic() + 60, cp)
        s.attempt("raises", lambda: timings.beside(s, {"us": 7.0}, lambda: 1 / 0))
        s.attempt("next", lambda: 1 / 0)
    assert [(row.get("us"), row["error"]) for row in s.rows] == [
        (7.0, "ZeroDivisionError: division by zero"),
        (None, "ZeroDivisionError: division by zero"),
    ]


def test_kernels_of_cublas_are_told_apart(tmp_path, monkeypatch, gpu):
    """By their names in the graph, where edges are no nodes."""
    from on_gpu import timings

    text = """digraph dot {
subgraph cluster_1 {
"graph_1_node_0"[style="bold" shape="octagon" label="0
forward
"];
"graph_1_node_1"[style="bold" shape="octagon" label="1
_ZN8cublasLt19splitKreduce_kernelILi32E
"];
"graph_1_node_2"[style="solid" shape="invtrapezium"label="2
MEMSET
(0,1,4)
"];
"graph_1_node_0" -> "graph_1_node_1"[headlabel=0];
"graph_1_node_1" -> "graph_1_node_2";
}
}
"""
    graph = SimpleNamespace(debug_dot_str=lambda: text)
    be = SimpleNamespace(step=SimpleNamespace(kept={1: SimpleNamespace(graph=graph)}))
    monkeypatch.setattr(timings, "stepping", lambda *given: (lambda: None, 0))
    assert timings.launches(None, be, 1, 1) == {"launches": 3, "parts": 1, "sets": 1}


def test_what_is_expected_is_what_the_page_says(gpu):
    """docs/cuda.md: launches of a step, and every time of the table."""
    page = (ROOT / "docs" / "cuda.md").read_text()
    assert all(f"{once + 6 * each} " in page for once, each in gpu.report.LAUNCHES.values())
    expected = {t.expected for t in gpu.report.targets(False) if t.expected}
    rows = [line.split("|")[2] for line in page.splitlines() if "µs |" in line]
    said = {int(n.replace(",", "")) for row in rows for n in re.findall(r"[\d,]+(?= µs|;)", row)}
    assert said == expected
    for part in ("own", "peers"):
        assert f"\npython benchmarks/gpu.py --out DIR --only {part}\n" in page


def test_what_is_compiled_ahead_is_what_is_launched(gpu):
    """With the same options in the same order: CuPy would else compile it a second time, in minutes that
    other rows need.
    """
    from on_gpu import compiling

    made = []
    one = SimpleNamespace(compile=lambda: None, get_function=lambda name: one)
    device = lambda number=0: SimpleNamespace(id=number, compute_capability="90")
    xp = type(
        "xp",
        (),
        {
            "RawModule": staticmethod(lambda *, code, options: made.append((code, options)) or one),
            "cuda": SimpleNamespace(Device=device, nvrtc=SimpleNamespace(getVersion=lambda: (13, 2))),
        },
    )
    for defines in launch.VARIANTS["attention"]:
        compiling.described(xp, "attention", defines)
    assert any("-arch=sm_90a" in options for _, options in made)
    ahead = made.copy()
    for defines in launch.VARIANTS["attention"]:
        launch.compiled(xp, "attention", "forward", frozenset(defines.items()))
    assert made[len(ahead) :] == ahead


def test_what_the_sanitizer_runs_is_compiled_ahead(tmp_path, monkeypatch, gpu):
    """Attention in bfloat16 without wgmma too: four tools would else compile it side by side, in its time."""
    from on_gpu import compiling

    asked = []
    noted = lambda xp, file, defines: asked.append((file, defines, launch.has_wgmma(xp, 0)))
    monkeypatch.setattr(compiling, "described", noted)
    for kind, some in compiling.groups(False):
        if kind == "mma":
            compiling.warmed(tmp_path, True, kind, some)
    narrow = [defines for defines in launch.VARIANTS["attention"] if "BF16" in defines]
    assert asked == [("attention", defines, False) for defines in narrow]


def test_a_variant_that_does_not_compile_is_a_row(tmp_path, gpu):
    """Of its file alone, and the table counts it."""
    from on_gpu import compiling

    made, refused = Future(), Future()
    made.set_result(["norm.norm_forward {}: 32 registers, 0 bytes of local memory\n"])
    refused.set_exception(RuntimeError("an operand is missing"))
    with fake_cupy.installed() as cp:
        s = gpu.session.Session(tmp_path, True, "1 compiling", time.monotonic() + 60, cp)
        for file, variants in (("loss", [made, refused]), ("norm", [made])):
            s.attempt(f"compile {file}", partial(compiling.kept, s, variants, 0.0))
    assert [row.get("error", row.get("variants")) for row in s.rows] == [
        "RuntimeError: an operand is missing",
        1,
    ]
    assert "- compiled side by side: 1 of 2 kernel files, 1 variant, in " in gpu.report.table(s)


def test_a_long_row_is_measured_a_few_times(gpu):
    """A span of a second: one to warm up, then three. A short one: thirty at least, more where there is
    time, at most 200.
    """
    asked = []

    def span(us):
        asked.append(us)
        return us

    ran = lambda us, more: (gpu.session.spans_of(lambda: span(us), 30, lambda: more, each=2), asked.clear())[
        0
    ]
    assert ran(1.5e6, True) == {"us": 7.5e5, "low": 7.5e5, "high": 7.5e5, "n": 3}
    assert [ran(us, more)["n"] for us, more in ((1e5, True), (1e4, True), (10.0, False), (10.0, True))] == [
        30,
        30,
        30,
        200,
    ]
    gpu.session.spans_of(lambda: span(1.5e6), 30)
    assert len(asked) <= 2 * 3
    asked.clear()
    gpu.session.spans_of(lambda: span(2e3), 30)
    assert 30 < len(asked) <= 2 * 30
    brief = lambda us: gpu.session.spans_of(lambda: span(us), 3, few=1, enough=gpu.session.BRIEF)
    for us, most in ((5e6, 2), (4e5, 4), (10.0, 6)):
        asked.clear()
        brief(us)
        assert len(asked) <= most


def test_numbers_beyond_a_tile_repeat(tmp_path, monkeypatch, gpu):
    """The host draws a tile; the device lays it side by side, the last one in part."""
    from on_gpu import ceilings

    monkeypatch.setattr(ceilings, "TILE", 5)
    with fake_cupy.installed() as cp:
        x = (
            ceilings.random(gpu.session.Session(tmp_path, True, xp=cp), 3, 4, dtype=np.float32, seed=1)
            .get()
            .ravel()
        )
    same(x, np.resize(x[:5], 12), 0)
    assert len(set(x[:5])) == 5


def test_a_table_as_a_mask_is_the_same_function(gpu):
    """SDPA with the mask gives what our attention gives with the table; later keys get nothing, the entry
    0 is every query's own key.
    """
    torch = pytest.importorskip("torch")
    from on_gpu.peers import table_mask

    from peref.backends import Backend
    from peref.ops.place import At

    q, k, v, table = (
        np.random.default_rng(n).standard_normal(shape)
        for n, shape in enumerate([(1, 2, 7, 4)] * 3 + [(2, 7)])
    )
    y = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), attn_mask=table_mask(torch, torch.tensor(table))
    )
    same(y.numpy(), Backend().attention(q, k, v, table, at=At.of(7), scale=0.5), 1e-12)


def test_memory_is_that_of_one_set(tmp_path, gpu):
    """However many sets of arrays are timed in turn, the figure is the peak with one: temporaries are not
    shared out among results.
    """
    import fake_cublas
    from on_gpu.timings import replaying

    with fake_cupy.installed(memory=True) as cp:
        s = gpu.session.Session(tmp_path, True, xp=cp, library=fake_cublas.Library())
        be, found = s.backend(), []
        for count in (1, 2):
            arrays = [(cp.ones(1 << 16, np.float32),) for _ in range(count)]
            found.append(replaying(s, be, lambda be, x: (x + 1) * 2, arrays)["peak_bytes"])
    assert found[0] == found[1] == 2 * 4 << 16


def test_golden_files_find_a_wrong_backend(gpu):
    """The plain ops on CuPy agree with the files and keep the laws; with a scale that is a hundredth off
    they do not.
    """
    from on_gpu.golden import compared, lawful
    from test_cuda_graph import quick

    from peref.golden.spec.book import Book

    book = Book(ROOT / "golden")
    with fake_cupy.installed(memory=True) as cp:
        be = quick(cp)
        for name in ("alibi", "forgetting", "mamba"):
            found = compared(be, book, name)
            assert found["good"], found
            assert found["tensors"] > 20
            assert lawful(be, book, name)["good"]
        wrong = replace(be, attention=lambda *a, scale, **rest: be.attention(*a, scale=1.01 * scale, **rest))
        assert compared(wrong, book, "alibi")["FAIL"] > 5
        moved = replace(be, turn=lambda x, angle, gain, **rest: be.turn(x, angle * 1.01, gain, **rest))
        assert not compared(moved, book, "rope")["good"]
        assert not lawful(
            replace(be, turn=lambda x, angle, gain, **rest: be.turn(x, angle**2 + 1, gain, **rest)),
            book,
            "rope",
        )["good"]


# which the run above looks at
@pytest.mark.parametrize("name", [name for name in filling("mix") if name != "retnet"])
def test_golden_files_of_the_recurrences(name, gpu):
    """Each agrees with its kernels in class A, gradients too; so they will be looked at on a device."""
    from on_gpu.golden import compared

    from peref.golden.spec.book import Book

    with emulated() as cp:
        found = compared(open_device(cp, fake_cublas.Library()), Book(ROOT / "golden"), name)
    assert found["good"], found
    assert found["A"] == found["tensors"] > 40
