"""Which backend there is, what it is told, and where compiled kernels go."""

import ctypes.util
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from check import same

import peref
from peref import backends
from peref.backends import blas, find
from peref.backends.numba import ahead, host, kept, kernel
from peref.config import Config
from peref.environment import environment
from peref.errors import Misuse
from peref.model import init
from peref.recipe import Recipe
from peref.train import one_step


def test_auto_takes_numba_for_float32_and_numpy_for_float64():
    """The kernels are written for float32."""
    assert backends.get().name == backends.get("auto", dtype="float32").name == "numba"
    assert backends.get("auto", dtype="float64").name == "numpy"
    filled = backends.get("numpy").filled()
    assert not filled, f"the reference fills {filled}; leave the fields at their defaults"
    assert "attention" in backends.get("numba").filled()


def test_refusals(monkeypatch):
    """An unknown name, threads that a backend has no say over, a package that is not there: never a silent
    fallback.
    """
    known = "numpy, numba, cupy, cuda, cuda:tf32, cuda:bf16"
    with pytest.raises(Misuse, match=f"unknown backend 'cuba'; expected auto or one of: {known}"):
        backends.get("cuba")
    with pytest.raises(Misuse, match="computes in float32, not in float64; use --backend numpy"):
        backends.get("numba", dtype="float64")
    for module in (backends, find):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert backends.get().name == "numpy"
    with pytest.raises(Misuse, match="pip install numba"):
        backends.get("numba")


def test_threads_of_numpy_are_those_of_its_blas(monkeypatch):
    """Set by its own call, never more than there are cores; a BLAS without such a call is refused."""
    before, said = blas.threads(), []
    if before is None:
        pytest.skip(reason="NumPy's BLAS is neither OpenBLAS nor MKL here")
    try:
        for asked in (1, os.cpu_count(), 10_000):
            backends.get("numpy", threads=asked, say=said.append)
            assert blas.threads() == environment(backends.get("numpy"))["threads"] <= os.cpu_count()
            assert blas.threads() == min(asked, len(os.sched_getaffinity(0)))
        assert [text for text in said if "10,000 threads were asked for" in text] == said[-1:]
    finally:
        blas.set_threads(before)
    monkeypatch.setattr(
        blas, "libraries", lambda: iter(["/nowhere/libopenblas.so", ctypes.util.find_library("c")])
    )
    assert blas.threads() is None
    with pytest.raises(Misuse, match="neither OpenBLAS nor MKL and cannot be told"):
        backends.get("numpy", threads=2)


PRODUCTS = """
import os, sys, time
from pathlib import Path
import numpy as np
from peref.cli import run
from peref.cli.signals import Signals

def workers():
    "How often each thread but the first has gone to sleep, once all sleep."
    while True:
        said = [task.joinpath("status").read_text() for task in Path("/proc/self/task").iterdir()
                if task.name != str(os.getpid())]
        facts = [dict(line.split(":", 1) for line in text.splitlines()) for text in said]
        if all(one["State"].split()[0] == "S" for one in facts):
            return [int(one["voluntary_ctxt_switches"]) for one in facts]
        time.sleep(0.01)

code = run(sys.argv[1:], Signals())
a = np.ones((700, 700), np.float32)
before = workers()
for _ in range(9):
    a @ a
print(code, sum(workers()) - sum(before))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or blas.threads() is None,
    reason="two cores of a Linux and an OpenBLAS or MKL are needed to see a thread at work",
)
@pytest.mark.parametrize(("began", "asked"), [(1, 2), (2, 1), (2, 2), (1, 1)])
def test_so_many_threads_multiply(began, asked, tmp_path):
    """Whatever the BLAS began with, after `train --threads N` so many threads work at NumPy's products: one
    of its own that works wakes up, and goes to sleep again.
    """
    (tmp_path / "text").write_bytes(b"so it was " * 99)
    words = ["train", "--pe", "none", "--width", 8, "--heads", 1, "--layers", 1, "--len", 8, "--batch", 1]
    words += ["--steps", 1, "--data", "text", "--json", "--backend", "numpy", "--threads", asked]
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS, *map(str, words)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": str(began), "MKL_NUM_THREADS": str(began)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    code, woken = map(int, done.stdout.splitlines()[-1].split())
    assert (code, woken > 0) == (0, asked == 2)


def test_busy_cores_are_left_alone(monkeypatch):
    """As many threads as cores are idle, at least one, and all where nobody can say; it is said."""
    cores = os.cpu_count()
    assert host.idle_cores(lambda: 0) == cores
    assert host.idle_cores(lambda: 1) == max(1, cores - 1)
    assert host.idle_cores(lambda: 1000) == 1
    looks = iter([0, 9, 0, 9, 0, 9, 0])
    assert host.idle_cores(lambda: next(looks)) == cores
    assert host.idle_cores(lambda: int("no number")) == cores
    said, before = [], host.use_threads(None)
    try:
        for idle in (1, before):
            monkeypatch.setattr(host, "idle_cores", lambda idle=idle: idle)
            backends.get("numba", say=said.append)
            assert host.numba.get_num_threads() == idle
        assert len([text for text in said if "other programs are busy" in text]) == (before > 1)
    finally:
        host.use_threads(before)


def test_threads_never_more_than_there_are(monkeypatch):
    """Asking for more is said and not done."""
    monkeypatch.setattr(host, "idle_cores", host.cores)
    said = []
    before = host.use_threads(None)
    try:
        backends.get("numba", threads=10_000, say=said.append)
        assert any("10,000 threads were asked for" in text for text in said)
        assert host.use_threads(1) == 1
        backends.get("numba")
        assert host.numba.get_num_threads() == before  # what another call asked for is not remembered
    finally:
        host.use_threads(before)


def test_more_threads_than_cores_are_idle(monkeypatch):
    """Taken, for they were asked for, and said; silent where they are idle, or where one is asked for."""
    before = host.use_threads(None)
    if before < 2:
        pytest.skip(reason="numba may use one thread here")
    try:
        for idle, threads, told in (
            (1, 2, "2 threads were asked for, 1 core is idle now"),
            (2, 2, None),
            (1, 1, None),
        ):
            said = []
            monkeypatch.setattr(host, "idle_cores", lambda idle=idle: idle)
            backends.get("numba", threads=threads, say=said.append)
            assert host.numba.get_num_threads() == threads
            assert [text.partition(";")[0] for text in said if "idle" in text] == ([told] if told else [])
    finally:
        host.use_threads(before)


def start(cache, code):
    """`code` in a process of its own whose cache folder is `cache`."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False
    )


USE = """
from peref import backends
from peref.backends.numba import ahead, kernel
ahead.OFTEN = ("embedding.take", "adamw.adamw")  # which take least
print(kernel.FOLDER)
backends.get("numba", threads=1, say=print)
print(sum(1 for _ in kernel.FOLDER.glob("*.kept")) if kernel.FOLDER else "")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is the custom of Linux")
def test_kernels_are_kept_and_a_first_use_says_so(tmp_path):
    """Under the digest of their sources, in the user's cache folder, so a read-only install works; only
    the first use speaks.
    """
    first = start(tmp_path, USE)
    assert first.returncode == 0, first.stderr
    folder, said, *left, kept = first.stdout.splitlines()
    assert folder == str(tmp_path / "peref" / "numba" / f"{kernel.digest()}-{kernel.target()}")
    assert said.startswith("compiling 2 kernels that most models need")
    assert all("left" in line for line in left)  # a slow machine says how many
    assert int(kept) == 2
    assert {path.stem for path in Path(folder).glob("*.kept")} == {"embedding.take", "adamw.adamw"}
    assert start(tmp_path, USE).stdout.splitlines() == [folder, kept]


def test_this_process_compiles_and_one_more_for_each_further_core(monkeypatch, tmp_path):
    """The first goes through the names from the start, the second from the end, the third from the second
    on; whatever one of them has done is told.
    """
    names, popen, told = ["embedding.take", "adamw.adamw", "norms.rms_norm"], mock.MagicMock(), []
    find_in = partial(kept.file_of, tmp_path)
    popen.return_value.wait.side_effect = lambda: find_in(names[2]).touch()
    here = lambda given, after: [find_in(name).touch() or after() for name in given[:2]]
    for name, other in (("FOLDER", tmp_path), ("KERNELS", {}), ("compile_now", here)):
        monkeypatch.setattr(ahead, name, other)
    monkeypatch.setattr(ahead.subprocess, "Popen", popen)
    monkeypatch.setattr(ahead.config, "NUMBA_DEFAULT_NUM_THREADS", 3)
    ahead.compile_ahead(names, told.append)
    assert told == names
    orders = [json.loads(call.args[0][-1])[2] for call in popen.call_args_list]
    assert orders == [names[::-1], [*names[1:], names[0]]]
    assert popen.return_value.kill.call_count == 2


def test_a_kernel_that_another_process_compiles_or_has_compiled_is_left_to_it(monkeypatch, tmp_path):
    kernel.kernels("embedding")
    made, compiled = kernel.KERNELS["embedding.take"], []
    path = kept.file_of(tmp_path, made.name)
    monkeypatch.setattr(kernel, "FOLDER", tmp_path)
    monkeypatch.setattr(made, "compiled", None)
    monkeypatch.setattr(made, "made", lambda: compiled.append("embedding.take"))
    with kept.locked(path):
        made.ahead()
    assert compiled == []
    made.ahead()
    assert compiled == ["embedding.take"]
    path.touch()
    made.ahead()
    assert compiled == ["embedding.take"]


def test_locks_are_taken_in_one_order(monkeypatch, tmp_path):
    """That of this process first, or two threads could wait for each other."""
    kernel.kernels("embedding")
    owned = lambda path, wait: nullcontext(seen.append(kernel.ONE_AT_A_TIME._is_owned()))
    seen = []
    monkeypatch.setattr(kernel, "FOLDER", tmp_path)
    monkeypatch.setattr(kernel, "locked", owned)
    kernel.KERNELS["embedding.take"].ahead()
    assert seen == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is the custom of Linux")
def test_a_process_that_compiles_ends_with_the_one_it_compiles_for(tmp_path):
    """Once it has done the kernel that it is at."""
    told = json.dumps([kernel.digest(), 0, ["embedding.take", "adamw.adamw"], sys.path])
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", ahead.CHILD, told], env=environ, check=True)
    assert [path.stem for path in tmp_path.rglob("*.kept")] == ["embedding.take"]


def test_what_is_compiled_first_is_what_training_the_default_model_and_rope_calls(monkeypatch):
    """No more and no less."""
    cfg, recipe, called = Config(C=16, F=8, L=64, pe=(("rope", {}),)), Recipe(), set()
    run = kernel.Kernel.__call__
    monkeypatch.setattr(
        kernel.Kernel, "__call__", lambda self, *arguments: (called.add(self.name), run(self, *arguments))[1]
    )
    p, x = init(cfg), np.zeros((8, 64), int)
    m, v = ({name: np.zeros_like(a) for name, a in p.items()} for _ in range(2))
    one_step(backends.get("numba"), cfg, recipe.rule, p, m, v, [(x, x)], recipe.numbers(1))
    assert called == set(ahead.OFTEN)


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is the custom of Linux")
def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path):
    """Every process then compiles for itself, and says that nothing is kept."""
    (tmp_path / "peref").write_text("a file where the folder should be")
    done = start(tmp_path, USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "None"
    assert "nothing can be kept" in done.stdout


def refuse(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["gone", "full"])
def test_a_cache_folder_that_fails_later_is_no_obstacle(monkeypatch, tmp_path, fails):
    """It has gone since the process began, or the disk is full: the kernel is compiled for this process."""
    kernel.kernels("embedding")
    made, folder = kernel.KERNELS["embedding.take"], tmp_path / "kernels"
    monkeypatch.setattr(kernel, "FOLDER", folder)
    monkeypatch.setattr(made, "compiled", None)
    if fails == "full":
        folder.mkdir()
        monkeypatch.setattr("peref.store.os.write", refuse)
    table = np.arange(20, dtype=np.float32).reshape(10, 2)
    same(backends.get("numba").take(table, np.arange(9)), table[:9], 0)
    assert made.compiled


READ_ONLY = """
from pathlib import Path
import numpy as np
import peref
from peref import backends
from peref.backends.numba import ahead, kernel
ahead.OFTEN = ()
try:
    (Path(peref.__file__).parent / "probe").touch()
    print("writable")
except OSError:
    x = np.zeros((1, 3), np.float32)
    y = backends.get("numba", threads=1).rms_norm(x, x[0], eps=1.0)
    print(peref.__file__, *y[0], *kernel.FOLDER.glob("*.kept"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is the custom of Linux")
def test_a_read_only_install_works(tmp_path):
    """A package that nobody may write to: kernels go to the user's cache folder, and nothing appears
    beside the sources.
    """
    package, libc = tmp_path / "installed" / "peref", ctypes.CDLL(None)
    shutil.copytree(Path(peref.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    paths = sorted([package, *package.rglob("*")])
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(package.parent)}
    # root may write anywhere; what it starts may not without CAP_DAC_OVERRIDE (1), which PR_CAPBSET_DROP
    # (24) takes from it
    command = {
        "args": [sys.executable, "-c", READ_ONLY],
        "env": environ,
        "preexec_fn": lambda: libc.prctl(24, 1, 0, 0, 0),
    }
    done = subprocess.run(**command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout == "writable\n":
        pytest.skip(reason="this user may write to what is read-only")
    where, *row, kept = done.stdout.split()
    assert (Path(where).parent, row) == (package, ["0.0"] * 3)
    assert Path(kept).is_relative_to(tmp_path / "cache")
    assert sorted([package, *package.rglob("*")]) == paths


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (kernel, "LANES", 2 * kernel.LANES),
        *((module, "__version__", "0") for module in (kernel.numba, kernel.llvmlite, kernel.np)),
    ],
)
def test_the_digest_follows_the_compiler(monkeypatch, module, name, other):
    """Another width, numba, llvmlite or NumPy means other machine code."""
    before = kernel.digest()
    monkeypatch.setattr(module, name, other)
    assert kernel.digest() != before


def test_the_digest_follows_the_sources(monkeypatch, tmp_path):
    """Each of them: kernels, and what is written into them of GELU."""
    sources, before = kernel.sources(), kernel.digest()
    assert {"attention.py", "activation.py", "emit.py", "host.py"} <= {path.name for path in sources}
    for n, path in enumerate(sources):
        other = tmp_path / path.name
        other.write_bytes(path.read_bytes() + b"#")
        monkeypatch.setattr(
            kernel, "sources", lambda n=n, other=other: [*sources[:n], other, *sources[n + 1 :]]
        )
        assert kernel.digest() != before
    monkeypatch.undo()
    assert kernel.digest() == before


def test_kernels_take_nothing_from_elsewhere():
    """What a file of kernels imports of the package lies beside it, is among the sources, or keeps what
    was compiled.
    """
    known = {f"peref.ops.{path.stem}" for path in kernel.sources() if path.parent.name == "ops"}
    neither = {Path(module.__file__) for module in (kernel, kept)}
    for path in set(Path(kernel.__file__).parent.glob("[!_]*.py")) - neither:
        for module in re.findall(r"^(?:from|import) (peref[\w.]*)", path.read_text(), re.M):
            assert module in known or module.startswith("peref.backends.numba"), (path.name, module)


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="no glibc: malloc cannot be told to keep memory"
)
def test_freed_memory_is_kept():
    """Arrays as large as some that were freed cost no page faults, once malloc has been told."""
    text = """
        import resource, numpy
        from peref.backends.numba import host
        def faults():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            held = [numpy.ones(n << 20, numpy.float32) for n in (2, 2, 2, 2, 10)]
            del held
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        told = []
        for tell in (lambda: None, host.keep_memory):
            tell()
            faults()
            told.append(faults())
        print(*told)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], check=True, capture_output=True, text=True
    ).stdout
    before, after = map(int, out.split())
    assert after < before / 10


TRACED = """
import tracemalloc
import numba, numpy as np
from peref import backends
from peref.ops.place import At
be = backends.get("numba", threads=2)
q = np.ones((2, 2, 300, 8), np.float32)
run = lambda: be.attention(q, q, q, at=At.of(300), scale=0.5)
plain = run()
tracemalloc.start()
traced = run()
peak = tracemalloc.get_traced_memory()[1]
tracemalloc.stop()
assert (traced == plain).all()
print(peak > q.nbytes, numba.get_num_threads())
"""


def test_memory_is_traced_on_one_thread():
    """tracemalloc wants the interpreter's lock for every piece of memory, and who called the kernel has
    it: a second thread would wait for ever.
    """
    environ = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, env=environ, timeout=300, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["True 2"], done.stderr


def test_who_traces_computes_with_as_many_threads_afterwards(monkeypatch):
    """Also where a kernel fails."""
    seen, before = [], host.numba.get_num_threads()

    def compiled(fails):
        seen.append(host.numba.get_num_threads())
        if fails:
            raise MemoryError

    made = kernel.Kernel.__new__(kernel.Kernel)
    made.compiled = compiled
    for tracing, threads in ((True, 1), (False, before)):
        monkeypatch.setattr(kernel, "is_tracing", lambda tracing=tracing: tracing)
        made(False)
        with pytest.raises(MemoryError):
            made(True)
        assert seen[-2:] == [threads] * 2
        assert host.numba.get_num_threads() == before
