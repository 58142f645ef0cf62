"""Compiled kernels on disk: nothing damaged is believed, nothing that others may write is read, and who has
the same code finds what is there.
"""

import json
import os
import pickle
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import peref
from benchmarks.faults import begin_fork, ended, flipped, kernel_cache, tried
from peref import backends, share
from peref.backends.numba import ahead, kept, kernel

posix = pytest.mark.skipif(os.name != "posix", reason="folders have modes and owners on POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is the custom of Linux")
PACKAGE = Path(peref.__file__).parent


def test_every_flipped_bit_is_noticed(tmp_path):
    """Of 200 places, the ends and the digest's own among them."""
    path = tmp_path / "a.kept"
    payload = random.Random(0).randbytes(2_000)
    kept.store.write_bytes(path, kept.digest_of(path, payload) + payload)
    assert kept.payload_of(path) == payload
    places = [0, 8 * kept.DIGEST - 1, 8 * kept.DIGEST, 8 * path.stat().st_size - 1]
    for bit in [*places, *random.Random(1).sample(range(16_000), 196)]:
        kernel_cache.flipped(path, [bit])
        assert kept.payload_of(path) is None, bit
        kernel_cache.flipped(path, [bit])
    assert kept.payload_of(path) == payload


@pytest.mark.skipif(kernel.FOLDER is None, reason=f"no kernel is kept here: {kernel.WHY_NOT}")
def test_every_kernel_is_kept():
    """numba keeps none with an address of this process in it, such as its own get_num_threads."""
    ahead.every()
    for one in kernel.KERNELS.values():
        if not one.kept():
            one.ready()
        assert one.kept(), one.name


@linux
def test_what_is_damaged_is_compiled_anew():
    """One case of each kind of the campaign that a process meets in its own way, and one that is believed."""
    of_each = {case.what: case for case in kernel_cache.cases(random.Random(2), 10)}
    assert len(of_each) == 2 + len(kernel_cache.DAMAGES)
    for what in ("1 flipped", "emptied", "anothers"):
        assert tried(kernel_cache.fault, of_each[what]) == ""
    (mutant,) = kernel_cache.MUTANTS.values()
    assert tried(kernel_cache.fault, of_each["emptied"], mutant).startswith("exit code")


def test_flips_find_that_no_digest_of_kernels_is_checked():
    folder = kernel_cache.made()[0]
    file = next(path for path in sorted(folder.rglob("*.kept")) if path.stem in kernel_cache.KERNELS)
    case = flipped.Case("kernel", str(file.relative_to(folder)), 999, 20)
    assert tried(flipped.fault, case) == ""
    assert tried(flipped.fault, case, flipped.MUTANTS["no digest of kernels"])


def test_what_is_kept_survives_a_power_cut_or_is_not_there(tmp_path, monkeypatch):
    """It is written by the one function that promises so, and with its digest."""
    path, written = tmp_path / "a.kept", []
    monkeypatch.setattr(kept.store, "write_bytes", lambda *given: written.append(given))
    made = SimpleNamespace(library=SimpleNamespace(has_dynamic_globals=False), _reduce=lambda: ("code",))
    kept.Kept(path).save_overload(None, made)
    ((where, data),) = written
    assert (where, pickle.loads(data[kept.DIGEST :])) == (path, ("code",))
    assert data[: kept.DIGEST] == kept.digest_of(path, data[kept.DIGEST :])
    assert [*tmp_path.iterdir()] == []


@linux
def test_another_clone_compiles_nothing(tmp_path):
    """Other paths, other times: the same code, so the same kernels, and nothing is said."""
    clone, (folder, wanted) = tmp_path / "clone" / "peref", kernel_cache.made()
    shutil.copytree(
        PACKAGE, clone, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
    )
    again = json.loads(kernel_cache.used(folder, root=clone.parent).stdout)
    assert again == [wanted, dict.fromkeys(kernel_cache.KERNELS, 1), []]


ONE = """
import sys
from peref.backends.numba import kernel
kernel.kernels("embedding")
made = kernel.KERNELS["embedding.take"]
print("here", flush=True)
sys.stdin.readline()
print(sum(made.ready().stats.cache_misses.values()), "numba.np.arrayobj" in sys.modules)
"""


@linux
def test_processes_that_need_the_same_kernel_share_the_work(tmp_path):
    """It is compiled by one of them; the others wait and take that, and do not load what it compiled with."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environ}
    together = [subprocess.Popen([sys.executable, "-c", ONE], **pipes) for _ in range(3)]
    assert [one.stdout.readline() for one in together] == ["here\n"] * 3
    for one in together:
        one.stdin.write("\n")
        one.stdin.flush()
    assert sorted(one.communicate()[0] for one in together) == ["0 False\n", "0 False\n", "1 True\n"]


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (kernel, "features", lambda: "+another"),
        (kernel.llvm, "get_host_cpu_name", lambda: "another"),
        (kernel.platform, "machine", lambda: "another"),
        (kernel.config, "CPU_NAME", "another"),
        (kernel.config, "BOUNDSCHECK", 1),
        (kernel.sys.implementation, "cache_tag", "cpython-0"),
        (kernel.sys, "abiflags", "d"),
    ],
)
def test_the_folder_follows_the_machine(monkeypatch, module, name, other):
    """Another processor, Python or setting of the compiler has kernels of its own."""
    before = kernel.target()
    monkeypatch.setattr(module, name, other)
    assert kernel.target() != before


def closed(top):
    """A cache folder as it should be, and a kernel's folder in it."""
    folder, why = kept.own_folder("some-kernels")
    assert (folder, why) == (top / "numba" / "some-kernels", "")
    return folder


@pytest.fixture
def top(monkeypatch, tmp_path):
    """The cache folder of this test."""
    monkeypatch.setattr(kept.share, "cache_folder", lambda: tmp_path / "peref")
    return tmp_path / "peref"


@posix
def test_nobody_else_may_look_or_write(top):
    """All folders that are made, whatever the umask says."""
    before = os.umask(0)
    try:
        folder = closed(top)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (top, top / "numba", folder)] == [0o700] * 3


@posix
@pytest.mark.parametrize("which", ["top", "numba", "kernels"])
@pytest.mark.parametrize("change", ["open to its group", "open to all", "a link", "a file", "another's"])
def test_a_folder_that_others_may_write_is_no_cache(top, monkeypatch, which, change):
    """Nothing is read from it nor put into it, and words say what to do."""
    folder = {"top": top, "numba": top / "numba", "kernels": closed(top)}[which]
    if change == "another's":
        seen = os.stat_result((stat.S_IFDIR | 0o700, 1, 1, 1, kept.USER + 1, 1, 1, 1, 1, 1))
        real = Path.lstat
        monkeypatch.setattr(Path, "lstat", lambda path: seen if path == folder else real(path))
    elif change.startswith("open"):
        folder.chmod(0o770 if change == "open to its group" else 0o777)
    else:
        moved = folder.rename(folder.with_name("moved"))
        folder.symlink_to(moved) if change == "a link" else folder.write_text("a file")
    found, why = kept.own_folder("some-kernels")
    assert found is None
    assert str(folder) in why
    assert ("chmod" in why) == change.startswith("open"), why


@posix
def test_what_nobody_used_for_a_month_goes_when_another_folder_is_made(top):
    """Not what is newer, what others may write, a link or where it leads; and not before one is made."""
    numba = closed(top).parent
    names = ["unused", "used", "open", "elsewhere"]
    for name in names:
        (numba / name).mkdir(0o700)
        (numba / name / "a.kept").touch()
    (numba / "open").chmod(0o777)
    (numba / "elsewhere").rename(top / "elsewhere")
    (numba / "link").symlink_to(top / "elsewhere")
    (numba / "a-file").touch()
    long_ago = kept.time.time() - kept.UNUSED - 60
    for path in numba.iterdir():
        if path.name not in ("used", "some-kernels"):
            os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    closed(top)
    assert (numba / "unused").is_dir()
    assert kept.own_folder("others") == (numba / "others", "")
    left = sorted(path.name for path in numba.iterdir())
    assert left == ["a-file", "link", "open", "others", "some-kernels", "used"]
    assert (top / "elsewhere" / "a.kept").exists()


@posix
def test_who_uses_a_folder_keeps_it(top):
    """Each process sets its time."""
    folder = closed(top)
    os.utime(folder, (0, 0))
    assert closed(top) == folder
    kept.own_folder("others")
    assert folder.is_dir()


@posix
def test_what_a_killed_process_leaves_goes_when_another_begins(top, monkeypatch):
    """Also where it was killed while it tried whether it can write."""
    folder = closed(top)

    def killed():
        monkeypatch.setattr(Path, "unlink", lambda path: os._exit(9))
        kept.own_folder("some-kernels")

    assert ended(begin_fork(killed)) == 9
    (left,) = folder.iterdir()
    assert closed(top) == folder
    assert [*folder.iterdir()] == [], left


@posix
def test_a_file_of_somebody_else_is_not_read(top, monkeypatch):
    """Though its digest is right."""
    path = closed(top) / "a.kept"
    path.write_bytes(kept.digest_of(path, b"text") + b"text")
    assert kept.payload_of(path) == b"text"
    monkeypatch.setattr(kept, "USER", kept.USER + 1)
    assert kept.payload_of(path) is None


@pytest.mark.parametrize("home", ["none", "relative", "empty"])
def test_without_a_home_nothing_is_kept(monkeypatch, home):
    real = share.cache_folder

    def cache_folder():
        if home == "none":
            raise RuntimeError("Could not determine home directory.")
        return real("linux", {"HOME": ""}) if home == "empty" else Path(".cache/peref")

    monkeypatch.setattr(kept.share, "cache_folder", cache_folder)
    found, why = kept.own_folder("some-kernels")
    assert found is None
    assert ("HOME is empty" if home == "empty" else "home") in why


@linux
def test_a_folder_of_numbas_own_changes_nothing(monkeypatch, tmp_path):
    """NUMBA_CACHE_DIR is for others: our kernels are where they are."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder, wanted = kernel_cache.made()
    found = json.loads(kernel_cache.used(folder).stdout)
    assert found == [wanted, dict.fromkeys(kernel_cache.KERNELS, 1), []]
    assert [*tmp_path.iterdir()] == []


def test_what_is_left_is_said_meanwhile(monkeypatch):
    """Now and then, and not when nothing is left."""
    said, clock = [], iter([0.0, 4.0, 5.0, 5.0, 9.0])
    monkeypatch.setattr(backends.time, "monotonic", lambda: next(clock))
    done = backends.left_of(["a", "b", "c", "d"], said.append)
    for name in "abcd":
        done(name)
    assert said == ["2 kernels of 4 left to compile"]


def test_a_kernel_that_is_compiled_when_it_is_called_says_so(monkeypatch, tmp_path):
    """Once; where nobody reads it any more, it is compiled all the same."""
    monkeypatch.setattr(kernel, "FOLDER", tmp_path)
    kernel.kernels("embedding")
    take, told = kernel.KERNELS["embedding.take"], []
    monkeypatch.setattr(kernel.Kernel, "ready", lambda self: told.append)

    def nobody(text):
        raise BrokenPipeError

    monkeypatch.setattr(kernel, "TOLD", [told.append, nobody])
    monkeypatch.setattr(take, "compiled", None)
    take("an argument")
    assert told == ["compiling embedding.take, which is kept for the next time", "an argument"]
    kept.file_of(tmp_path, take.name).touch()
    take("another")
    assert told[2:] == ["another"]
