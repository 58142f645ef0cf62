"""What cannot fit into memory is refused before anything is made, and nothing else is."""

import contextlib
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from generated import NAMES, config, tokens

from peref import memory
from peref.backends import Backend
from peref.config import Config, shaped
from peref.encodings import get
from peref.errors import Misuse
from peref.evaluate import Scoring, evaluate
from peref.model import init
from peref.ops.attention import attention
from peref.recipe import Recipe
from peref.train import one_step

MB = 1_000_000


def sizes(cfg):
    return sum(a.size for a in init(cfg).values())


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_never_counted_too_high(name):
    """Two layers, and a cycle that ends in its middle."""
    for cfg in (
        config(name),
        *([] if get(name).embed else [config(name, pe=((name, {}), ("none", {})), layers=5)]),
    ):
        counted, there = memory.parameter_count(cfg), sizes(cfg)
        assert 0 < counted <= there, (
            f"{name}: memory.parameter_count counts {counted} of {there} numbers; it may not say more"
        )


SOME = (("none", {}), ("none", {"experts": 3, "F": 9}), ("none", {"F": 11}))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"tied": False, "H": 4, "G": 1, "D": 3},
        {"layers": 3, "F": 7},
        {"experts": 5, "shared_expert": True, "F": 6},
        {"pe": SOME, "layers": 6, "shared_expert": True},
    ],
)
def test_parameters_without_biases_or_an_encoding_are_all_counted(given):
    """But the routers of experts."""
    cfg = Config(**{"pe": (("none", {}),), "C": 20} | given)
    routers = sum(a.size for name, a in init(cfg).items() if "router" in name)
    assert memory.parameter_count(cfg) == sizes(cfg) - routers


@pytest.mark.parametrize(
    ("shape", "more"), [("llama", {}), ("gpt2", {}), ("llama", {"experts": 4, "shared_expert": True})]
)
def test_a_step_takes_no_less_than_is_counted(shape, more, monkeypatch):
    """As the plain ops make it in float64, which say to tracemalloc what they take; attention in each
    layer, where it is most of it.
    """
    cfg = shaped(shape, pe=(("none", {}),), V=11, C=32, layers=3, L=64, H=8, **more)
    recipe, x = Recipe(batch=8, dtype="float64"), tokens(8, 64)
    p = init(cfg, 0, np.float64)
    m, v = ({name: np.zeros_like(a) for name, a in p.items()} for _ in range(2))
    tracemalloc.start()
    try:
        one_step(Backend(), cfg, recipe.rule, p, m, v, [(x, x)], recipe.numbers(1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    weights, tokens_ = (
        4 * memory.parameter_count(cfg) * 8,
        x.size * (memory.TOKEN + 8 * (memory.activations(cfg) + 3 * 8 * 64)),
    )
    monkeypatch.setattr(memory, "free", lambda: weights + peak)
    memory.check_training(cfg, "float64", 8, 1, "numpy")
    monkeypatch.setattr(memory, "free", lambda: weights + tokens_ - 1)
    with pytest.raises(Misuse, match="this training needs at least"):
        memory.check_training(cfg, "float64", 8, 1, "numpy")
    memory.check_training(cfg, "float64", 8, 1, "numba")


def test_attention_takes_no_less_than_is_counted(monkeypatch):
    """Of one window that is evaluated, as the plain ops make it."""
    cfg, text = Config(pe=(("alibi", {}),), L=16, V=11, C=8, H=4, F=8, layers=1), tokens(1, 301)[0]
    params, needed = init(cfg), 2 * 4 * 300 * 300 * 4
    tracemalloc.start()
    try:
        list(evaluate(cfg, params, text, 300))
        assert tracemalloc.get_traced_memory()[1] > needed
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(memory, "free", lambda: needed - 1)
    with pytest.raises(Misuse, match="attention over 300 tokens by the numpy backend needs at least"):
        next(evaluate(cfg, params, text, 300))
    of_its_own = replace(Backend(), attention=lambda *a, **b: attention(*a, **b))
    assert next(evaluate(cfg, params, text, 300, Scoring(be=of_its_own)))
    retnet = replace(cfg, pe=(("retnet", {}),), G=None)
    assert next(evaluate(retnet, init(retnet), text, 300))


def group(folder, limit, used, cached, shared, version, swap=None):
    """A cgroup, as Linux shows it; of swap its limit and what it has."""
    folder.mkdir(parents=True, exist_ok=True)
    old = version == 1
    (folder / f"memory.{'limit_in_bytes' if old else 'max'}").write_text(f"{limit}\n")
    (folder / f"memory.{'usage_in_bytes' if old else 'current'}").write_text(f"{used}\n")
    lines = f"total_cache {cached}\ntotal_shmem {shared}\n" if old else f"file {cached}\nshmem {shared}\n"
    (folder / "memory.stat").write_text(f"anon 7\n{lines}")
    names = ("memsw.limit_in_bytes", "memsw.usage_in_bytes") if old else ("swap.max", "swap.current")
    for name, said in zip(names, swap, strict=True) if swap else ():
        (folder / f"memory.{name}").write_text(f"{said}\n")


def test_what_is_free(tmp_path):
    """What Linux says; without Linux what the machine has."""
    proc, absent = tmp_path / "meminfo", tmp_path / "absent"
    proc.write_text("MemTotal: 100 kB\nMemAvailable: 7 kB\nSwapFree: 2 kB\n")
    assert memory.free(proc, absent, absent) == 9 * 1024
    proc.write_text("nothing\n")
    assert memory.free(proc, absent, absent) == memory.free(absent, absent, absent) > 1e6


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_group_has_already_is_not_free(tmp_path, version):
    """But for what only caches files; the group above counts too, one without a limit does not."""
    proc, own, root = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    proc.write_text("MemAvailable: 100000 kB\nSwapFree: 0 kB\n")
    own.write_text("5:cpu:/a/b\n4:memory:/a/b\n" if version == 1 else "0::/a/b\n")
    top, free = root / "memory" if version == 1 else root, lambda: memory.free(proc, own, root)
    assert free() == 100_000 * 1024
    group(top / "a/b", 5000, 3000, 600, 100, version)
    assert free() == 5000 - 3000 + 500
    group(top / "a/b", 5000, 6000, 0, 0, version)
    assert free() == 0
    group(top / "a/b", "max", 3000, 0, 0, version)
    group(top / "a", 4000, 3900, 0, 0, version)
    assert free() == 100
    own.write_text(own.read_text().replace("/a/b", "/../../elsewhere"))
    assert free() == 100_000 * 1024
    group(top, 8000, 1000, 0, 0, version)  # of a container, which sees its own at the root
    assert free() == 7000


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_may_swap_as_much_as_it_and_the_machine_have(tmp_path, version):
    """Nothing that fits is refused; nor does the memory that is left hide a group that has no room."""
    proc, own, root = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    proc.write_text("MemAvailable: 100 kB\nSwapFree: 3 kB\n")
    own.write_text("4:memory:/a\n" if version == 1 else "0::/a\n")
    place = (root / "memory" if version == 1 else root) / "a"
    for swap, expected in {None: 3072, ("max", 0): 3072, (1500, 1000): 500, (1000, 1500): 0}.items():
        group(place, 5000, 4000, 0, 0, version, swap)
        assert memory.free(proc, own, root) == 1000 + expected


@pytest.fixture
def limited():
    """A real group of Linux's, which 400 MB are the limit of, and how a process gets into it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip(reason="only root of a Linux may make a cgroup")
    for top, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        folder = Path("/sys/fs/cgroup", top, f"peref-test-{os.getpid()}")
        try:
            folder.mkdir()
            (folder / limit).write_text(str(400 * MB))
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        yield partial((folder / "cgroup.procs").write_text, "0")
        folder.rmdir()
        return
    pytest.skip(reason="no cgroup with a limit of memory can be made here")


def test_in_a_real_group(limited, tmp_path):
    """What a process beside it has is not free, a file that was written and can be given up is. Almost all
    that is said to be free can be had, and a training that needs more is refused.
    """
    here = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "preexec_fn": limited}
    tried = """
import os, sys
from pathlib import Path
import numpy as np
from peref import memory
from peref.config import Config
from peref.errors import Misuse
Path("file").write_bytes(bytes(80_000_000)); os.sync()
free = memory.free()
asked = Config(pe=(("alibi", {}),), V=2, L=1, C=16, H=1, layers=1, F=int(sys.argv[1]) // (4 * 4 * 3 * 16))
try:
    memory.check_training(asked, "float32", 1, 1, "numba")
except Misuse as error:
    print(free, error)
else:
    print(free, np.ones(free * 97 // 100, np.uint8).nbytes)
"""
    needed = str(260 * MB)
    alone = subprocess.run([sys.executable, "-c", tried, needed], check=True, **here).stdout.split()
    assert 300 * MB < int(alone[0]) < 400 * MB
    assert int(alone[1]) == int(alone[0]) * 97 // 100
    holds = "import sys; x = bytearray(b'1') * 250_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, **here) as beside:
        beside.stdout.readline()
        said = subprocess.run([sys.executable, "-c", tried, needed], check=True, **here).stdout
    free, error = said.split(maxsplit=1)
    assert 240 * MB < int(alone[0]) - int(free) < 265 * MB
    assert "this training needs at least 0.3 GB of memory" in error
    assert "0.1 GB are free here" in error


def test_a_training_is_refused_by_what_it_needs(monkeypatch):
    """Just so much is enough, a byte less is not; where nobody says how much there is nothing is refused."""
    cfg, recipe, said = Config(), Recipe(), []
    needed = 16 * memory.parameter_count(cfg) + 8 * 512 * (4 * memory.activations(cfg) + memory.TOKEN)
    for free in (needed, needed - 1, None):
        monkeypatch.setattr(memory, "free", lambda free=free: free)
        try:
            memory.check_training(cfg, recipe.dtype, recipe.batch, recipe.accumulate, "numba")
            said.append("")
        except Misuse as error:
            said.append(str(error))
    assert said == ["", said[1], ""]
    assert "needs at least 0.1 GB of memory, 0.0 GB for 771,200 parameters" in said[1]
