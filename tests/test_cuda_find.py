"""`--backend cuda` where something is missing: one line that says which and what to install, never a
traceback and never another backend.
"""

import sys
from types import SimpleNamespace

import fake_cublas
import fake_cupy
import numpy as np
import pytest

from peref import backends
from peref.backends import find
from peref.cli import explain
from peref.errors import Misuse
from peref.train import environment


@pytest.fixture
def loaded(monkeypatch):
    """cuBLAS is wherever it is looked for."""
    monkeypatch.setattr(find.cublas, "__defaults__", (lambda path: fake_cublas.Library(),))


def refused(word, **given):
    """get("cuda") says `word`, in one line, and names another way."""
    with fake_cupy.installed(memory=True, **given) as cp:
        for change, to in given.get("runtime", {}).items():
            setattr(cp.cuda.runtime, change, to)
        with pytest.raises(Misuse, match=word) as error:
            backends.get("cuda")
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("or use --backend auto")


def test_without_cupy(monkeypatch):
    """Both extras are named; a CuPy that is only set to None counts as missing."""
    monkeypatch.setattr(find, "find_spec", lambda name: None)
    monkeypatch.setattr("peref.share.is_checkout", lambda package: False)
    newer, older = r"pip install 'peref\[cuda13x\]'", r"pip install 'peref\[cuda12x\]'"
    with pytest.raises(
        Misuse, match=rf"needs CuPy: {newer}, for a driver of CUDA 12 {older}; or use --backend auto"
    ):
        backends.get("cuda")


def test_without_a_driver():
    refused(
        "CuPy 14.0.0 is here but no NVIDIA driver that fits it .*cudaErrorInsufficientDriver", ready=False
    )


def test_with_too_little_memory():
    refused(
        "the GPU Emulated has 100 MiB of 16,384 MiB free, the cuda backend needs 512 MiB; end what else "
        "runs on it",
        free=100 << 20,
    )


def test_without_a_gpu_and_with_an_old_one():
    """A driver alone does not do, nor does a GPU without the instructions that the kernels use."""
    for change, word in (
        (
            lambda cp: setattr(cp.cuda.runtime, "getDeviceCount", lambda: 0),
            "a driver are here but no NVIDIA GPU",
        ),
        (
            lambda cp: setattr(cp.cuda, "Device", lambda: SimpleNamespace(id=0, compute_capability="75")),
            "of compute capability 7.5; .* needs 8.0",
        ),
    ):
        with fake_cupy.installed(memory=True) as cp:
            change(cp)
            with pytest.raises(Misuse, match=word):
                backends.get("cuda")


def test_without_a_compiler():
    """NVRTC, CUDA's headers, a CuPy that knows bfloat16: each is said with the wheel that brings it, and
    the last two only where they are needed.
    """

    def raised(error):
        raise error

    def no_header(cp):
        error = lambda code: cp.cuda.compiler.CompileException(f"cannot open {code.split()[1]}")
        cp.RawModule = lambda *, code, options=(): SimpleNamespace(
            compile=lambda: "#include" in code and raised(error(code))
        )

    cases = {
        "cuda": [
            (
                lambda cp: setattr(
                    cp.cuda.nvrtc, "getVersion", lambda: raised(RuntimeError("libnvrtc.so.13"))
                ),
                "CuPy 14.0.0 finds no NVRTC",
            ),
            (
                lambda cp: setattr(cp, "RawModule", lambda **k: raised(RuntimeError("no CUDA\nheaders"))),
                r"does nothing \(no CUDA headers\)",
            ),
        ],
        "cuda:bf16": [
            (no_header, r"cannot compile a kernel that includes cuda_bf16.h \(cannot open <cuda_bf16.h>\)"),
            (lambda cp: setattr(cp, "__version__", "13.6.0"), "CuPy 13.6.0 does not compute in bfloat16"),
        ],
    }
    for name, changes in cases.items():
        for change, said in changes:
            with fake_cupy.installed(memory=True) as cp:
                change(cp)
                with pytest.raises(Misuse, match=said) as error:
                    backends.get(name)
            assert "\n" not in str(error.value)
            assert str(error.value).endswith(
                "pip install 'cupy-cuda13x[ctk]>=14', or install the CUDA toolkit; or use --backend auto"
            )


def test_float32_needs_neither_header_nor_the_newest(loaded):
    """Only NVRTC."""
    with fake_cupy.installed(memory=True) as cp:
        cp.__version__, texts = "13.6.0", []
        cp.RawModule = lambda *, code, options=(): texts.append(code) or SimpleNamespace(compile=lambda: None)
        assert backends.get("cuda").name == "cuda"
    assert len(texts) == 1
    assert "#include" not in texts[0]


def test_without_cublas(monkeypatch):
    """It says where it looked; the wheel's name is that of the CUDA that CuPy was made for."""

    def nowhere(path):
        raise OSError("cannot open shared object file")

    for version, wheel in ((13000, "pip install nvidia-cublas,"), (12080, "pip install nvidia-cublas-cu12,")):
        with fake_cupy.installed(memory=True) as cp:
            cp.cuda.runtime.runtimeGetVersion = lambda version=version: version
            with pytest.raises(
                Misuse, match=rf"needs cuBLAS of CUDA {version // 1000}: {wheel} .*looked for .*cublas"
            ):
                find.cublas(cp, nowhere)


def test_cublas_is_looked_for_beside_cupy_and_in_the_toolkit(tmp_path, monkeypatch):
    """A wheel is taken before the toolkit, and the toolkit before what the system finds."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(
        find, "find_spec", lambda name: SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    )
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "toolkit"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    files = [
        tmp_path / "nvidia" / "cu13" / "lib" / "libcublas.so.13",
        tmp_path / "toolkit" / "lib64" / "libcublas.so.13",
    ]
    with fake_cupy.installed() as cp:
        assert find.cublas(cp, lambda path: path) == "libcublas.so.13"
        for file in reversed(files):
            file.parent.mkdir(parents=True)
            file.touch()
            assert find.cublas(cp, lambda path: path) == str(file)


def test_with_everything(loaded):
    """The backend fills most fields, says which it leaves plain, and names the device in a run's
    environment.
    """
    with fake_cupy.installed(memory=True):
        be = backends.get("cuda")
        assert {"attention", "linear", "matmul", "activated_linear", "update", "place", "step"} <= set(
            be.filled()
        )
        assert {*be.filled(), *be.plain(), "token"} == set(backends.Backend.__dataclass_fields__) - set(
            backends.NO_OPERATION
        ) | set(be.recurrences)
        assert not set(be.filled()) & set(be.plain())
        found = environment(be)
        assert (found["backend"], found["gpu"], found["cupy"], found["cuda"]) == (
            "cuda",
            "Emulated, compute capability 9.0",
            "14.0.0",
            13000,
        )
        assert len(found["kernels"]) == 16
        assert [backends.get(name).name for name in ("cuda:tf32", "cuda:bf16")] == ["cuda:tf32", "cuda:bf16"]
        assert environment(backends.get("cuda:tf32"))["backend"] == "cuda:tf32"


def test_what_it_does_not_compute_in():
    with pytest.raises(
        Misuse, match="the cuda backend computes in float32, not in float64; use --backend numpy"
    ):
        backends.get("cuda", dtype=np.dtype("float64"))
    with pytest.raises(Misuse, match="leave --threads out"):
        backends.get("cuda", threads=2)


def test_memory_that_runs_out_later_is_one_line_too():
    """CuPy's error is a MemoryError; the command line explains it."""
    kind, message, code = explain(MemoryError("Out of memory allocating 1,024 bytes"))
    assert (kind, code) == ("failed", 1)
    assert "not enough memory (Out of memory allocating 1,024 bytes); try a smaller --len" in message
