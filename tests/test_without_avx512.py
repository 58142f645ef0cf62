"""What is switched off for the repetition of tests really is off, and a switch that does nothing ends it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import without_avx512
from without_avx512 import AVX, AVX512, HERE, NOT_AGAIN, NOT_COMPUTING, computing, in_use, main, without

SWITCHES = ("NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "NUMBA_CPU_FEATURES")
FACTS = """
import json
from numpy.lib.introspect import opt_func_info
from without_avx512 import core, host, in_use
used = {one["current"] for function in opt_func_info().values() for one in function.values()}
wide = any("AVX512" in name or "X86_V4" in name for name in used)
print(json.dumps({"numpy": wide, "blas": core(), "lanes": host.LANES, "off": in_use()}))
"""


def facts(env):
    """What a process with these variables computes with; a warning of NumPy's would be an error."""
    command = [sys.executable, "-W", "error", "-c", FACTS]
    done = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_switched_off_is_off():
    """Functions of NumPy, OpenBLAS and the kernels; where there is no AVX-512 nothing is said to anybody."""
    plain = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    before = facts(plain)
    after = facts(plain | before["off"])
    assert (after["numpy"], after["lanes"], after["off"]) == (False, min(before["lanes"], 8), {})
    assert after["blas"] == ("Haswell" if "OPENBLAS_CORETYPE" in before["off"] else before["blas"])
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and "avx512f" in cpu.read_text().split():
        assert (before["numpy"], before["lanes"]) == (True, 16)
        assert set(SWITCHES) - {"OPENBLAS_CORETYPE"} <= set(before["off"])
        assert ("OPENBLAS_CORETYPE" in before["off"]) == ("openblas" in without_avx512.blas())


@pytest.mark.parametrize(("core", "off"), [("SkylakeX", True), ("Newer", True), ("", True), ("Zen", False)])
def test_a_blas_that_may_be_wide_is_switched_off(monkeypatch, core, off):
    """One of a name that nobody knew, or that cannot be seen: then the look that follows says so."""
    monkeypatch.setattr(without_avx512, "core", lambda: core)
    for wide, built in ((True, "scipy-openblas"), (True, "mkl"), (False, "scipy-openblas")):
        monkeypatch.setattr(without_avx512, "wide", lambda wide=wide: wide)
        monkeypatch.setattr(without_avx512, "blas", lambda built=built: built)
        assert ("OPENBLAS_CORETYPE" in in_use()) == (off and wide and "openblas" in built)


def test_a_numpy_without_any_has_nothing_to_switch_off(monkeypatch):
    """It leaves the list away then."""
    monkeypatch.setattr(np, "show_config", lambda mode: {"SIMD Extensions": {"baseline": ["NEON"]}})
    assert "NPY_DISABLE_CPU_FEATURES" not in in_use()


def test_features_are_switched_off_by_the_beginnings_of_their_names():
    every = "+64bit,-amx-avx512,+avx,-avx10.1,+avx10.2,+avx2,+avx512f,+fma,+sse2"
    assert without(every, AVX512) == "+64bit,-amx-avx512,+avx,-avx10.1,-avx10.2,+avx2,-avx512f,+fma,+sse2"
    assert without(every, AVX) == "+64bit,-amx-avx512,-avx,-avx10.1,-avx10.2,-avx2,-avx512f,-fma,+sse2"


@pytest.fixture
def called(monkeypatch):
    """Commands that are run, with what they were told; the first, which looks at the switches, answers so."""
    calls = []

    def play(off, code=0, out=b"\n"):
        def run(command, env, **more):
            calls.append((command, {name: env[name] for name in off}))
            return subprocess.CompletedProcess(command, code if len(calls) == 1 else 5, out, b"")

        monkeypatch.setattr(without_avx512, "in_use", lambda: off)
        monkeypatch.setattr(subprocess, "run", run)
        return calls

    return play


def test_it_hands_the_tests_that_compute_to_pytest(called):
    calls = called({"NPY_DISABLE_CPU_FEATURES": "A B"})
    assert main(["-n", "3"]) == 5
    assert [env for _, env in calls] == [{"NPY_DISABLE_CPU_FEATURES": "A B"}] * 2
    left_out = [f"--deselect={test}" for test in NOT_AGAIN]
    assert calls[1][0] == [sys.executable, "-m", "pytest", *left_out, "-n", "3", *computing()]


@pytest.mark.parametrize("answer", [{"out": b"NPY_DISABLE_CPU_FEATURES\n"}, {"code": 1}])
def test_a_switch_that_does_nothing_fails(called, capsys, answer):
    calls = called({"NPY_DISABLE_CPU_FEATURES": "A"}, **answer)
    assert main([]) == 1
    assert all("pytest" not in command for command, _ in calls)
    said = "AVX-512 is still in use, although these were set: NPY_DISABLE_CPU_FEATURES\n"
    assert said in capsys.readouterr().err


def test_another_blas_is_named(called, capsys, monkeypatch):
    called({})
    monkeypatch.setattr(without_avx512, "wide", lambda: True)
    monkeypatch.setattr(without_avx512, "blas", lambda: "mkl")
    main([])
    assert "NumPy's BLAS is mkl: whether it uses AVX-512 cannot be told" in capsys.readouterr().out


def test_nothing_is_repeated_where_there_is_none(called, capsys):
    calls = called({})
    assert (main([]), calls) == (0, [])
    assert "no AVX-512 is in use here" in capsys.readouterr().out


def test_what_is_left_out_is_there():
    """A new file of tests is repeated unless it is named."""
    every = {path.stem.removeprefix("test_") for path in HERE.glob("test_*.py")}
    assert set(NOT_COMPUTING) < every
    assert {Path(file).stem.removeprefix("test_") for file in computing()} == every - set(NOT_COMPUTING)
    assert {"laws", "numba", "golden", "without_avx512"} <= every - set(NOT_COMPUTING)
    for file, name in (test.split("::") for test in NOT_AGAIN):
        assert f"\ndef {name}(" in (HERE.parent / file).read_text(), name
