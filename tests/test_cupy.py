"""`--backend cupy`, the plain ops on CuPy's arrays, on the fake CuPy: it gives what numpy gives."""

import json
from dataclasses import replace
from types import SimpleNamespace

import fake_cupy
import numpy as np
import pytest
from check import each_array, same
from test_train import BE, CORPUS, SMALL, finish, made, parts, result, tiny, weights, zeros

from peref import backends, memory
from peref.backends import find
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.config import Config
from peref.encodings import names
from peref.environment import environment
from peref.errors import Misuse
from peref.evaluate import Scoring, evaluate
from peref.generate import generate
from peref.model import cache, decode, init, logits
from peref.optim import read_status
from peref.train import check_recipe, one_step

CLOSE = {"float32": 1e-5, "float64": 1e-12}
EITHER = pytest.mark.parametrize("dtype", CLOSE)
EVERY = pytest.mark.parametrize("name", names())


def here(x):
    return each_array(lambda a: a.get(), x)


# the whole path


@EVERY
@EITHER
def test_steps(cupy, name, dtype):
    """Three steps of two micro-batches with AdamW, gradients cut to the clip: loss, norm, weights, moments.

    Nothing waits. AdamW's eps is large: a rounding of a gradient that is nearly 0 is no step of full length.
    """
    cfg, be = tiny(name), backends.get("cupy", dtype=dtype)
    first = init(cfg, 0, dtype)
    states = [each_array(np.array, (first, zeros(first), zeros(first))) for _ in range(2)]
    moved = tuple(map(be.place, states[0]))
    words = be.place(np.zeros(3)), np.zeros(3)
    before = fake_cupy.counts().get("syncs", 0)
    for step in (1, 2, 3):
        numbers = np.array([0.01 * step, step, 0.1])
        for one, state, word in ((be, moved, words[0]), (BE, states[1], words[1])):
            one.step(one_step, one, cfg, SMALL.rule | {"eps": 1e-3}, *state, parts(2), numbers, word)
    assert fake_cupy.counts().get("syncs", 0) == before, f"{name} waits: it asks a device array for a number"
    assert read_status(words[1], first)[1] > 0.1
    same(here(words[0]), words[1], CLOSE[dtype])
    for got, want in zip(moved, states[1], strict=True):
        same(here(got), want, CLOSE[dtype])


@EVERY
@EITHER
def test_evaluation_decoding_and_generation(cupy, name, dtype):
    """Rows of the table, logits of pieces through the cache, and the text that is drawn."""
    cfg, be, p = tiny(name), backends.get("cupy", dtype=dtype), init(tiny(name), 1, dtype)
    text = np.frombuffer(CORPUS.valid.tobytes()[:40], np.uint8)
    each = lambda one: [list(row.values()) for row in evaluate(cfg, p, text, 8, Scoring(be=one))]
    rows, plain = each(be), each(BE)
    for got, want in zip(rows, plain, strict=True):
        same(np.array(got[:5], float), np.array(want[:5], float), CLOSE[dtype])
    x, memory_, pieces = text[None, :8].astype(np.int64), cache(cfg), []
    for part in (slice(0, 3), slice(3, 4), slice(4, 8)):
        y, memory_ = decode(cfg, be.place(p), x[:, part], memory_, be=be)
        pieces.append(here(y))
    same(np.concatenate(pieces, 1), logits(cfg, p, x), 10 * CLOSE[dtype])
    got, want = (list(generate(cfg, p, text[:3], 5, be=one)) for one in (be, BE))
    assert got == want


@pytest.mark.parametrize("given", [{"window": 3}, {"chunk": 3}, {"window": 2, "global_tokens": 2}])
def test_what_a_cache_keeps_of_a_layer(cupy, given):
    """Keys are chosen on the device too, of sequences that begin anywhere."""
    cfg, be = replace(tiny("rope"), pe=(("rope", given),)), backends.get("cupy", dtype="float64")
    p, x = init(cfg, 1, "float64"), np.random.default_rng(0).integers(0, cfg.V, (2, 8))
    seg = np.array([[1] * 8, [0, 0, 2, 2, 2, 2, 2, 2]])
    memory_, pieces = cache(cfg), []
    for part in (slice(0, 3), slice(3, 4), slice(4, 6), slice(6, 8)):
        y, memory_ = decode(cfg, be.place(p), x[:, part], memory_, be=be, seg=seg[:, part])
        pieces.append(here(y))
    same(np.concatenate(pieces, 1), logits(cfg, p, x, seg=seg, n=cfg.L), 1e-12)


@EITHER
def test_a_run_is_that_of_numpy_and_goes_on_to_the_same_bits(cupy, dtype, tmp_path):
    """Stopped after three steps and resumed, a run ends with the bits of one go, near those of numpy."""
    recipe = replace(SMALL, dtype=dtype, eps=1e-3, save_every=7, valid_every=7)
    be = backends.get("cupy", dtype=dtype)
    plain, whole, run = (made(tmp_path, recipe=recipe, be=one) for one in (BE, be, be))
    finish(plain)
    finish(whole, be)
    left = iter([False, True])
    finish(run, be, stopping=lambda: next(left, False))
    assert run.checkpoints == [3]
    finish(run, backends.get("cupy", dtype=dtype))
    assert result(run) == result(whole)
    same(weights(run), weights(plain), CLOSE[dtype])
    for got, want in zip(run.metrics.read(), plain.metrics.read(), strict=True):
        same(np.array([got["loss"], got["norm"]]), np.array([want["loss"], want["norm"]]), CLOSE[dtype])


def command(*words):
    return run_cli([*map(str, words)], Signals())


@EITHER
def test_every_command_that_computes(cupy, dtype, tmp_path, capsys, monkeypatch):
    """train, --resume, eval and generate name the backend and give what numpy gives; list has it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(CORPUS.train.tobytes())
    sizes = f"--width 16 --heads 2 --layers 1 --len 8 --batch 2 --valid-bytes 70 --steps 4 --dtype {dtype}"
    found = {}
    for name in ("numpy", "cupy"):
        on = ["--backend", name, "--json"]
        documents = []
        for words in (
            ["train", "--data", "text", *sizes.split(), "--runs", name],
            ["eval", "--len", 16, "--runs", name],
            ["generate", "--tokens", 5, "--runs", name],
        ):
            assert command(*words, *on) == 0
            documents.append(json.loads(capsys.readouterr().out))
        made, rows, wrote = documents
        assert {made["backend"], rows["backend"], wrote["backend"]} == {name}
        found[name] = np.array([made["val"]["loss"], *(row["loss"] for row in rows["rows"])]), wrote["bytes"]
    same(found["cupy"][0], found["numpy"][0], CLOSE[dtype])
    assert found["cupy"][1] == found["numpy"][1]
    (run,) = (tmp_path / "cupy").iterdir()
    (run / "ckpt" / "00000004.safetensors").unlink()
    assert command("train", "--resume", run, "--backend", "cupy") == 0
    said = capsys.readouterr()
    assert "\nbackend       cupy\n" in said.out
    assert "this run began elsewhere" not in said.out + said.err


def test_the_backend(cupy):
    """Nothing but place is its own; a run's environment has the device and no kernels."""
    be = backends.get("cupy", dtype="float64", every_tile=True, record=False)
    assert (be.name, be.filled()) == ("cupy", ["place"])
    found = environment(be)
    assert (found["backend"], found["gpu"], found["cupy"]) == (
        "cupy",
        "Emulated, compute capability 9.0",
        "14.0.0",
    )
    assert "kernels" not in found
    assert be.place(None) is None
    at = be.place(backends.cupy.At.of(3))
    assert be.place(at) is at


# what is missing


def raised(error):
    raise error


MISSING = {
    "a driver": (lambda cp: None, {"ready": False}, "CuPy 14.0.0 is here but no NVIDIA driver that fits it"),
    "a GPU": (
        lambda cp: setattr(cp.cuda.runtime, "getDeviceCount", lambda: 0),
        {},
        "a driver are here but no NVIDIA GPU",
    ),
    "memory": (
        lambda cp: None,
        {"free": 100 << 20},
        "has 100 MiB of 16,384 MiB free, the cupy backend needs 512 MiB",
    ),
    "NVRTC": (
        lambda cp: setattr(cp.cuda.nvrtc, "getVersion", lambda: raised(RuntimeError("libnvrtc"))),
        {},
        "finds no NVRTC",
    ),
    "headers": (
        lambda cp: setattr(
            cp, "ones", lambda shape: raised(cp.cuda.compiler.CompileException("no cuda_fp16.h"))
        ),
        {},
        "cannot multiply matrices .no cuda_fp16.h.; pip install .cupy-cuda13x.ctk.",
    ),
    "cuBLAS": (
        lambda cp: setattr(
            cp.ndarray, "__matmul__", lambda a, b: raised(ImportError('Failure finding\n"libcublas.so.13"'))
        ),
        {},
        (
            'CuPy 14.0.0 cannot multiply matrices .Failure finding "libcublas.so.13".; pip install '
            ".cupy-cuda13x.ctk."
        ),
    ),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_is_one_line(what, monkeypatch):
    """Never another backend in its place."""
    change, given, said = MISSING[what]
    monkeypatch.setattr(fake_cupy.ndarray, "__matmul__", fake_cupy.ndarray.__matmul__)  # put back afterwards
    with fake_cupy.installed(**given) as cp:
        change(cp)
        with pytest.raises(Misuse, match=said) as error:
            backends.get("cupy")
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("or use --backend auto")


def test_without_cupy(monkeypatch, capsys, tmp_path):
    """From every command, with exit code 2."""
    monkeypatch.setattr(find, "find_spec", lambda name: None)
    (tmp_path / "text").write_bytes(CORPUS.train.tobytes())
    code = command(
        "train", "--data", tmp_path / "text", "--len", 8, "--runs", tmp_path / "runs", "--backend", "cupy"
    )
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    newer, older = (find.share.install(f"[cuda{major}x]") for major in (13, 12))
    assert said.err == (
        f"error: the cupy backend needs CuPy: {newer}, for a driver of CUDA 12 {older}; or use --backend "
        "auto\n"
    )
    assert not (tmp_path / "runs").exists()


def test_threads_are_refused():
    with pytest.raises(
        Misuse, match="the cupy backend computes on the GPU and has no threads; leave --threads out"
    ):
        backends.get("cupy", threads=2)


# memory


CFG, RECIPE = Config(pe=(("alibi", {}),), L=64), replace(SMALL, accumulate=10**6)
OF_TOKENS = 2 * 64 * (4 * (memory.activations(CFG) + CFG.layers * CFG.H * 64) + memory.TOKEN)
NEEDED = {  # bytes, and who asks
    "training": (
        16 * memory.parameter_count(CFG) + OF_TOKENS,
        lambda: check_recipe(CFG, RECIPE, CORPUS, "cupy"),
    ),
    "attention": (
        2 * CFG.H * 900 * 900 * 4,
        lambda: next(evaluate(CFG, init(CFG), CORPUS.train, 900, Scoring(be=backends.get("cupy")))),
    ),
}


@pytest.mark.parametrize("what", NEEDED)
def test_what_does_not_fit_on_the_gpu_is_refused(cupy, what, monkeypatch):
    """Counted as for numpy, but in the device's memory, where what CuPy's pool holds unused is free too."""
    (needed, ask), there = NEEDED[what], 10**9
    monkeypatch.setattr(memory, "free", lambda: 0)
    monkeypatch.setattr(find, "LEAST_MEMORY", 0)
    cupy.cuda.runtime.memGetInfo = lambda: (there - 1000, 10**10)
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 1000)
    there = needed
    ask()
    there = needed - 1
    with pytest.raises(Misuse, match=r"needs at least \d.* GB are free on the GPU"):
        ask()
