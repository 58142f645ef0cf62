"""runs: one folder, one writer, and after any accident a state from which the run goes on as if nothing
had happened.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from check import same

from peref import runs, store
from peref.errors import Damaged, Misuse, PerefError

ROOT = Path(runs.__file__).parents[1]
PATIENCE = 300  # seconds, on a loaded machine
CONFIG = {"pe": [["alibi", {}]], "L": 512}
ABOUT = {"data": {"name": "a", "spec": "a.txt", "sha256": "ab"}, "environment": {}, "recipe": {}}
RECORD = {"config": CONFIG, "steps": 100, "seeds": [0, 1], "argv": ["cli.py", "train"], **ABOUT}
ARRAYS = {"w": np.arange(3.0)}


def child(code, *argv):
    """A Python that runs `code`, says a line on stdout, and lives until its stdin closes."""
    code = "import sys; from pathlib import Path; from peref import runs\n" + code
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, argv)], env=env, **pipes)


HOLD = "with runs.open_run(sys.argv[1]).lock(): print('held', flush=True); sys.stdin.read()"
RELEASED = "with runs.open_run(sys.argv[1]).lock(): pass\nprint('held', flush=True); sys.stdin.read()"


def end(process):
    process.kill()
    process.communicate()


@pytest.fixture
def run(tmp_path):
    return runs.create(tmp_path / "runs", ["alibi", "L512", "s0"], RECORD)


def at(monkeypatch, seconds):
    monkeypatch.setattr(
        runs, "_stamp", lambda _: runs.time.strftime("%Y-%m-%d-%H%M%S", runs.time.gmtime(seconds))
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# create, open_run


def test_the_name_says_when_what_and_which_config(tmp_path, monkeypatch):
    monkeypatch.setattr(runs.time, "time", lambda: 1_795_275_012.9)
    digest = hashlib.sha256(b'{"L":512,"pe":[["alibi",{}]]}').hexdigest()[:4]
    run = runs.create(
        tmp_path, ["alibi", "L512", "s0"], {**RECORD, "config": {"pe": [["alibi", {}]], "L": 512}}
    )
    assert run.folder == tmp_path / f"2026-11-21-153012-alibi-L512-s0-{digest}"
    assert names(run.folder) == ["ckpt", "eval", "lock", "metrics.jsonl", "run.json", "timing.jsonl"]


def test_the_record_comes_back_and_the_file_is_canonical(run):
    assert run.record == RECORD == runs.open_run(str(run.folder)).record
    text = (run.folder / "run.json").read_text()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) + "\n"
    assert set(json.loads(text)) == {*RECORD, "sha256"}


def test_a_collision_gets_the_next_number(tmp_path, monkeypatch):
    at(monkeypatch, 0)
    made = [runs.create(tmp_path, ["a"], RECORD).folder.name for _ in range(3)]
    assert made == [made[0], made[0] + "-2", made[0] + "-3"]


def test_of_all_who_make_a_run_of_a_key_one_does(tmp_path):
    """And all are given it; nothing else is left."""
    with ThreadPoolExecutor(8) as pool:
        make = lambda n: runs.create(tmp_path, ["alibi"], RECORD, first=ARRAYS, key="ab")
        made = list(pool.map(make, range(16)))
    assert set(made) == {runs.Run(tmp_path / "alibi-ab")}
    assert names(tmp_path) == ["alibi-ab"]
    assert made[0].checkpoints == [0]


def test_create_is_durable_before_it_returns(tmp_path, monkeypatch):
    synced, inner = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), inner(fd))
    )
    runs.create(tmp_path / "new" / "runs", ["a"], RECORD)
    above, new, *_, file, made, root = map(Path, synced)
    assert (above, new) == (tmp_path, tmp_path / "new")  # which got names of folders
    assert (file.parent, made.parent, root) == (made, root, tmp_path / "new" / "runs")
    assert file.name.startswith(".tmp-")
    assert made.name.startswith(".tmp-")


@pytest.mark.parametrize(
    "record", [{}, {"config": 1}, {"steps": 1}, {**RECORD, "steps": 1.5}, {**RECORD, "sha256": ""}]
)
def test_a_record_says_what_a_run_needs(tmp_path, record):
    with pytest.raises(Misuse, match="no record of a run: "):
        runs.create(tmp_path, ["a"], record)
    assert names(tmp_path) == []


@pytest.mark.parametrize("part", ["../x", "a/b", "a b", "é", "\0", "x" * 200])
def test_a_name_stays_in_the_root(tmp_path, part):
    with pytest.raises(Misuse, match="cannot name a run folder"):
        runs.create(tmp_path, [part], RECORD)
    assert names(tmp_path) == []


def test_a_record_that_is_not_json_leaves_no_folder(tmp_path):
    with pytest.raises(Misuse, match="cannot be JSON"):
        runs.create(tmp_path, ["a"], {**RECORD, "x": float("nan")})
    assert names(tmp_path) == []


def test_a_root_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PerefError, match="cannot make a run folder"):
        runs.create(tmp_path / "file" / "runs", ["a"], RECORD)


def test_every_flipped_bit_of_run_json_is_noticed(run):
    path = run.folder / "run.json"
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(Damaged, match=r"run\.json: "):
            runs.open_run(run.folder)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"1", b"{", b"[" * 100_000, b'{"sha256":"","x":NaN}'])
def test_a_damaged_run_json_is_damaged(run, data):
    (run.folder / "run.json").write_bytes(data)
    with pytest.raises(Damaged, match=r"run\.json: "):
        runs.open_run(run.folder)


def test_a_reformatted_run_json_is_damaged(run):
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    with pytest.raises(Damaged, match="it was altered"):
        runs.open_run(run.folder)


def test_a_folder_that_is_no_run(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Misuse, match=r"not a run folder.*python cli\.py train"):
            runs.open_run(folder)


def test_what_a_kill_left_of_a_run_is_no_run_and_is_swept(tmp_path, monkeypatch):
    """A run has its name once it is whole. What a dead process left goes when the next run is made; what a
    living one makes, on this machine or under its lock, stays.
    """

    def crash(*args):
        raise KeyboardInterrupt

    process = child("")
    process.communicate()
    dead, held, mine = (
        tmp_path / f".tmp-{pid}-{name}"
        for pid, name in ((process.pid, "a"), (process.pid, "b"), (os.getpid(), "c"))
    )
    for folder in (dead, held, mine):
        folder.mkdir()
    (tmp_path / f".tmp-{process.pid}-link").symlink_to(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_text", crash)
        with pytest.raises(KeyboardInterrupt):
            runs.create(tmp_path, ["a"], RECORD)
    left = sorted(path.name for path in (dead, held, mine, tmp_path / f".tmp-{process.pid}-link"))
    assert names(tmp_path) == [name for name in left if name != dead.name and name != held.name]
    held.mkdir()
    with runs.Run(held).lock():
        run = runs.create(tmp_path, ["a"], RECORD)
    assert held.exists()
    assert runs.newest(tmp_path, having_checkpoint=False) == run


# lock


def test_a_second_process_is_told_who_the_first_is(run):
    first = child(HOLD, run.folder)
    try:
        assert first.stdout.readline() == "held\n"
        second = child(HOLD, run.folder)
        _, said = second.communicate(timeout=PATIENCE)
        assert second.returncode != 0
        assert f"{run.folder}: in use by pid {first.pid} on {socket.gethostname()}; " in said
        with pytest.raises(PerefError, match=f"in use by pid {first.pid} on") as caught, run.lock():
            pass
        assert caught.value.exit_code == 1
        first.communicate("", timeout=PATIENCE)
        assert first.returncode == 0
    finally:
        end(first)
    with run.lock():
        assert (run.folder / "lock").read_text() == f"pid {os.getpid()} on {socket.gethostname()}\n"


@pytest.mark.parametrize("before", [RELEASED, HOLD])
def test_who_has_had_the_lock_is_not_named_for_who_is_just_taking_it(run, before):
    """One who lives on, and one who was killed."""
    first = child(before, run.folder)
    try:
        assert first.stdout.readline() == "held\n"
        if before == HOLD:
            end(first)
        me = f"pid {os.getpid()} on {socket.gethostname()}"
        with (run.folder / "lock").open("r+") as taken, ThreadPoolExecutor() as pool:
            fcntl.flock(taken, fcntl.LOCK_EX)
            told = pool.submit(lambda: run.owner)
            time.sleep(0.05)
            taken.write(f"{me}\n")
            taken.flush()
            assert told.result() == me
    finally:
        end(first)


def test_who_only_looks_who_has_the_lock_keeps_nobody_from_it(run):
    with run.lock():
        pass
    with (run.folder / "lock").open() as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        timer = threading.Timer(0.05, fcntl.flock, (looks, fcntl.LOCK_UN))
        timer.start()
        with run.lock():
            timer.join()


def test_the_lock_dies_with_its_owner(run):
    first = child(HOLD, run.folder)
    assert first.stdout.readline() == "held\n"
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    with run.lock():
        pass


def test_of_many_starters_one_wins(run):
    starters = [child(HOLD, run.folder) for _ in range(6)]
    try:
        losers = []
        deadline = time.monotonic() + PATIENCE
        while len(losers) < 5 and time.monotonic() < deadline:
            losers = [p for p in starters if p.poll() is not None]
            time.sleep(0.01)  # for them to compute in
        (winner,) = [p for p in starters if p not in losers]
        assert winner.stdout.readline() == "held\n"
        said = [p.communicate()[1] for p in losers]
        assert all("in use by pid" in text or "just starting" in text for text in said)
    finally:
        for process in starters:
            end(process)


def test_a_longer_name_in_the_lock_leaves_no_tail(run):
    (run.folder / "lock").write_text("pid 123456789 on a-machine-with-a-long-name" * 9 + "\n")
    with run.lock():
        assert (run.folder / "lock").read_text() == f"pid {os.getpid()} on {socket.gethostname()}\n"


def test_the_lock_is_held_once_within_a_process_and_freed_by_an_error(run):
    with run.lock(), pytest.raises(PerefError, match=f"pid {os.getpid()} "), run.lock():
        pass
    with pytest.raises(ZeroDivisionError), run.lock():
        raise ZeroDivisionError
    with run.lock():
        pass


def test_an_error_inside_the_lock_is_not_dressed_up(run):
    with pytest.raises(FileNotFoundError), run.lock():
        raise FileNotFoundError("somebody else's")


def test_empty_folders_that_a_copy_left_out_are_made_again(run):
    """A checkpoint can be saved in a run whose ckpt/ and eval/ are gone; a file in the place of one is
    left alone and told.
    """
    shutil.rmtree(run.folder / "ckpt")
    shutil.rmtree(run.folder / "eval")
    with run.lock():
        run.save(1, ARRAYS, {})
    assert run.checkpoints == [1]
    (run.folder / "eval").rmdir()
    (run.folder / "eval").write_text("mine")
    with pytest.raises(Damaged, match="eval: a file, where a folder belongs"), run.lock():
        pass
    assert (run.folder / "eval").read_text() == "mine"


@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("ckpt", lambda run: run.save(2, ARRAYS, {})),
        ("ckpt", lambda run: run.checkpoint(1)),
        ("ckpt", lambda run: run.set_aside(1)),
        ("ckpt/bad", lambda run: run.set_aside(1)),
        ("bad", lambda run: run.metrics.mend(1)),
        ("ckpt", lambda run: store.sweep(run.folder / "ckpt", run.folder)),
        ("eval", lambda run: store.check_writable(run.folder / "eval", run.folder)),
        ("eval", lambda run: store.write_text(run.folder / "eval" / "a.json", "", run.folder)),
    ],
)
def test_a_folder_that_becomes_a_link_under_the_lock_is_not_followed(run, tmp_path, part, call):
    """Nothing is read, written, moved or removed where it leads."""
    run.save(1, ARRAYS, {})
    outside = tmp_path / "outside"
    shutil.copytree(run.folder / "ckpt", outside)
    process = child("")
    process.communicate()
    (outside / f".tmp-{process.pid}-a").touch()
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    with run.lock():
        if (run.folder / part).exists():
            (run.folder / part).rename(tmp_path / "as-it-was")
        (run.folder / part).symlink_to(outside)
        with pytest.raises(PerefError, match=r"Not a directory|Too many levels"):
            call(run)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def test_the_lock_sweeps_up_after_the_dead(run):
    process = child("")
    process.communicate()
    folders = (run.folder, run.folder / "ckpt", run.folder / "eval")
    for folder in folders:
        (folder / f".tmp-{process.pid}-a").touch()
        (folder / f".tmp-{os.getpid()}-a").touch()
    with run.lock():
        for folder in folders:
            assert [name for name in names(folder) if name.startswith(".tmp")] == [f".tmp-{os.getpid()}-a"]


# checkpoints


def test_a_checkpoint_comes_back_with_its_step_and_the_length_of_the_metrics(run):
    run.metrics.append({"step": 1})
    path = run.save(1000, ARRAYS, {"rng": 5})
    assert path == run.folder / "ckpt" / "00001000.safetensors"
    said = []
    step, arrays, meta = next(run.good_checkpoints(said.append), None)
    assert (step, meta, said) == (
        1000,
        {
            "rng": 5,
            "run": run.identity,
            "step": 1000,
            "metrics_bytes": len('{"step":1}\n'),
            "metrics_sha256": hashlib.sha256(b'{"step":1}\n').hexdigest(),
        },
        [],
    )
    same(arrays["w"], ARRAYS["w"], 0)


def test_the_metrics_are_on_disk_before_the_checkpoint_that_counts_them(run, monkeypatch):
    synced, inner = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), inner(fd))
    )
    run.save(1, ARRAYS, {})
    assert synced[0] == "metrics.jsonl"
    assert synced[1].startswith(".tmp-")
    assert synced[2:] == ["ckpt"]


def test_pruning_is_numeric(run):
    steps = [9, 10, 100, 99_999_999, 100_000_000]
    for step in steps:
        run.save(step, ARRAYS, {}, keep=9)
    assert run.checkpoints == steps
    run.save(100_000_001, ARRAYS, {}, keep=2)
    assert run.checkpoints == [100_000_000, 100_000_001]


def test_pruning_keeps_the_newest(run):
    for step in (9, 10, 100):
        run.save(step, ARRAYS, {})
    assert run.checkpoints == [10, 100]
    run.save(101, ARRAYS, {}, keep=1)
    assert run.checkpoints == [101]


def test_pruning_spares_what_was_just_saved_below_the_others(run):
    for step in (50, 60):
        run.save(step, ARRAYS, {})
    run.save(5, ARRAYS, {}, keep=1)
    assert run.checkpoints == [5, 60]


def test_nothing_is_pruned_when_the_save_fails(run, monkeypatch):
    for step in (1, 2):
        run.save(step, ARRAYS, {})

    def full(a, b, **folders):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PerefError, match="No space left on device"):
        run.save(3, ARRAYS, {}, keep=1)
    assert names(run.folder / "ckpt") == ["00000001.safetensors", "00000002.safetensors"]


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (5, 0), (5, -1)])
def test_a_save_that_could_not_be_found_or_kept_is_misuse(run, step, keep):
    with pytest.raises(Misuse, match="use a step >= 0 and keep >= 1"):
        run.save(step, ARRAYS, {}, keep=keep)
    assert run.checkpoints == []


def test_other_files_are_not_checkpoints(run):
    for name in (
        "9.safetensors",
        "000000010.safetensors",
        "abcdefgh.safetensors",
        "00000001.txt",
        ".tmp-1-a",
        "0000000١.safetensors",
    ):
        (run.folder / "ckpt" / name).touch()
    assert run.checkpoints == []
    assert next(run.good_checkpoints(print), None) is None


def test_a_damaged_checkpoint_is_set_aside_and_the_older_one_is_taken(run):
    for step in (1, 2):
        run.save(step, ARRAYS, {})
    broken = run.folder / "ckpt" / "00000002.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1] + b"\xff")
    data, said = broken.read_bytes(), []
    assert next(run.good_checkpoints(said.append), None)[0] == 1
    (text,) = said
    aside = run.folder / "ckpt" / "bad" / "00000002.safetensors"
    assert str(broken) in text
    assert f"moved to {aside}" in text
    assert aside.read_bytes() == data
    assert run.checkpoints == [1]

    run.save(2, ARRAYS, {})  # damaged once more: the first evidence is not overwritten
    broken.write_bytes(b"again")
    assert next(run.good_checkpoints(said.append), None)[0] == 1
    assert names(aside.parent) == ["00000002.safetensors", "00000002.safetensors.2"]
    assert aside.read_bytes() == data


def test_setting_aside_survives_a_power_cut(run, monkeypatch):
    run.save(1, ARRAYS, {}).write_bytes(b"")
    synced, inner = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), inner(fd))
    )
    next(run.good_checkpoints([].append), None)
    assert synced == ["ckpt", "bad", "ckpt"]  # bad/ is new; and never gone from both


def test_a_renamed_checkpoint_is_not_trusted(run):
    run.save(1, ARRAYS, {})
    shutil.copy(run.folder / "ckpt" / "00000001.safetensors", run.folder / "ckpt" / "00000005.safetensors")
    said = []
    assert next(run.good_checkpoints(said.append), None)[0] == 1
    assert "holds step 1" in said[0]


def test_all_damaged_is_none_and_all_are_kept(run):
    for step in (1, 2):
        run.save(step, ARRAYS, {}).write_bytes(b"")
    said = []
    assert next(run.good_checkpoints(said.append), None) is None
    assert len(said) == len(names(run.folder / "ckpt" / "bad")) == 2


def test_a_checkpoint_of_a_later_peref_is_not_moved(run, monkeypatch):
    path = run.save(1, ARRAYS, {})
    monkeypatch.setattr(store, "FORMAT", 0)
    with pytest.raises(store.TooNew):
        next(run.good_checkpoints(print), None)
    assert path.exists()


def test_a_checkpoint_of_another_run_is_refused_and_not_moved(run, tmp_path):
    other = runs.create(tmp_path / "runs", ["alibi"], {**RECORD, "config": {"pe": [["rope", {}]], "L": 512}})
    run.save(1, ARRAYS, {})
    path = other.save(2, ARRAYS, {})
    shutil.copy(path, run.folder / "ckpt")
    for call in (lambda: next(run.good_checkpoints(print), None), lambda: run.checkpoint(2)):
        with pytest.raises(Damaged, match=r"00000002\.safetensors: belongs to another run"):
            call()
    assert run.checkpoints == [1, 2]


def test_a_run_that_is_repeated_has_the_same_identity(run, tmp_path):
    """How, where and from which path it was begun does not count, so its checkpoints are the same bytes;
    all else does.
    """
    text = ABOUT["data"]
    first = runs.create(tmp_path, ["a"], {**RECORD, "data": text, "environment": {"numpy": "1"}})
    alike = {
        **RECORD,
        "data": {**text, "spec": "/b.txt"},
        "environment": {"numpy": "2"},
        "argv": ["train", "--runs", "b"],
    }
    assert runs.create(tmp_path, ["b"], alike).identity == first.identity
    for change in (
        {"steps": 101},
        {"config": CONFIG | {"L": 1}},
        {"recipe": {"seed": 1}},
        {"data": text | {"sha256": "c"}},
    ):
        assert runs.create(tmp_path, ["c"], {**alike, **change}).identity != first.identity


def test_a_folder_that_may_not_be_listed_is_not_empty(run, monkeypatch):
    """Of checkpoints, and of runs."""
    inner, closed = os.listdir, []

    def listdir(path="."):
        if Path(path) in closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return inner(path)

    monkeypatch.setattr(os, "listdir", listdir)
    for folder in (run.folder / "ckpt", run.folder.parent):
        closed[:] = [folder]
        with pytest.raises(PerefError, match=f"^{re.escape(str(folder))}: cannot list: Permission denied"):
            runs.newest(run.folder.parent)


# metrics, timing


def test_lines_are_canonical_and_come_back(run):
    run.metrics.append({"step": 1, "loss": 0.1})
    run.metrics.append({"step": 2, "loss": 1e-17})
    run.timing.append({"step": 1, "seconds": 0.5})
    assert (run.folder / "metrics.jsonl").read_bytes() == b'{"loss":0.1,"step":1}\n{"loss":1e-17,"step":2}\n'
    assert (run.folder / "timing.jsonl").read_bytes() == b'{"seconds":0.5,"step":1}\n'
    assert run.metrics.read() == [{"step": 1, "loss": 0.1}, {"step": 2, "loss": 1e-17}]


def test_one_line_is_one_appending_write(run, monkeypatch):
    writes, inner, opened, inner_open = [], os.write, [], os.open
    monkeypatch.setattr(os, "write", lambda fd, data: (writes.append(bytes(data)), inner(fd, data))[1])
    monkeypatch.setattr(
        os, "open", lambda *given, **how: (opened.append(given), inner_open(*given, **how))[1]
    )
    run.metrics.append({"step": 1})
    assert writes == [b'{"step":1}\n']
    name, flags, _ = opened[-1]
    assert name == "metrics.jsonl"
    assert flags & os.O_APPEND


def test_a_value_json_cannot_hold_leaves_the_file_alone(run):
    with pytest.raises(Misuse, match="cannot be JSON"):
        run.metrics.append({"loss": float("nan")})
    assert run.metrics.read() == []


def test_a_full_disk_leaves_no_part_of_a_line(run, monkeypatch):
    run.metrics.append({"step": 1})
    inner = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: inner(fd, data[:3]))
    with pytest.raises(PerefError, match="No space left on device"):
        run.metrics.append({"step": 2})
    assert (run.folder / "metrics.jsonl").read_bytes() == b'{"step":1}\n'


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path):
    def train(run, first, last):
        for step in range(first, last + 1):
            run.metrics.append({"step": step, "loss": 1 / step})
            if step % 4 == 0:
                run.save(step, ARRAYS, {})

    whole, broken = (runs.create(tmp_path, [part], RECORD) for part in ("whole", "broken"))
    train(whole, 1, 12)
    train(broken, 1, 7)
    with (broken.folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"loss":0.12')
    step, _, meta = next(broken.good_checkpoints(print), None)
    broken.metrics.truncate(meta["metrics_bytes"])
    assert [record["step"] for record in broken.metrics.read()] == [1, 2, 3, 4]
    train(broken, step + 1, 12)
    for name in ("metrics.jsonl", "ckpt/00000008.safetensors", "ckpt/00000012.safetensors"):
        assert (whole.folder / name).read_bytes() == (broken.folder / name).read_bytes()


def test_truncation_is_synced(run, monkeypatch):
    run.metrics.append({"step": 1})
    sizes, inner = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (sizes.append(os.fstat(fd).st_size), inner(fd)))
    run.metrics.truncate(0)
    assert sizes == [0]


@pytest.mark.parametrize("length", [-1, 5, 12, 1000, 10**15])
def test_metrics_are_cut_only_where_a_line_ends(run, length):
    run.metrics.append({"step": 1})
    with pytest.raises(Damaged, match=f"up to byte {length} it is not what"):
        run.metrics.truncate(length)
    assert run.metrics.read() == [{"step": 1}]


@pytest.mark.parametrize("torn", [b'{"st', b'{"step":2}', b"\0\0\0\0", b"\xff"])
def test_a_torn_last_line_is_not_read(run, torn):
    run.metrics.append({"step": 1})
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert run.metrics.read() == [{"step": 1}]


@pytest.mark.parametrize("line", [b'{"st', b"", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_any_other_unreadable_line_is_damage(run, line):
    run.metrics.append({"step": 1})
    with (run.folder / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    run.metrics.append({"step": 3})
    with pytest.raises(Damaged, match=r"metrics\.jsonl: line 2 is not a record"):
        run.metrics.read()


def test_mended_metrics_have_the_readable_lines_up_to_a_step(run):
    for step in (1, 2, 3, 4):
        run.metrics.append({"step": step})
    path = run.folder / "metrics.jsonl"
    found = path.read_bytes().replace(b'{"step":2}', b'{"st') + b'[]\n{"step":2}\n{"step":3'
    path.write_bytes(found)
    for name in ("metrics.jsonl", "metrics.jsonl.2"):
        assert run.metrics.mend(3) == (2, run.folder / "bad" / name)
        assert path.read_bytes() == b'{"step":1}\n{"step":3}\n'
    assert (run.folder / "bad" / "metrics.jsonl").read_bytes() == found


# finished, newest


def test_finished_is_a_checkpoint_of_the_last_step(run):
    assert not run.finished
    run.save(99, ARRAYS, {})
    assert not run.finished
    run.save(100, ARRAYS, {})
    assert run.finished


def test_newest_goes_by_the_time_in_the_name(tmp_path, monkeypatch):
    made = []
    for part, seconds in (("z", 1000), ("a", 3000), ("m", 2000)):
        at(monkeypatch, seconds)
        made.append(runs.create(tmp_path, [part], RECORD))
    assert runs.newest(tmp_path, having_checkpoint=False) == made[1]
    os.utime(made[0].folder / "run.json", (9e9, 9e9))  # a copy or a backup restored it
    assert runs.newest(tmp_path, having_checkpoint=False) == made[1]


def test_within_a_second_newest_goes_by_the_file_and_then_by_the_number(tmp_path, monkeypatch):
    at(monkeypatch, 1000)
    late, early = (runs.create(tmp_path, [part], RECORD) for part in ("a", "z"))
    for run, when in ((late, 2_000), (early, 1_000)):
        os.utime(run.folder / "run.json", ns=(when, when))
    assert runs.newest(tmp_path, having_checkpoint=False) == late
    made = [runs.create(tmp_path / "same", ["a"], RECORD) for _ in range(11)]
    for run in made:
        os.utime(run.folder / "run.json", ns=(1_000, 1_000))
    assert made[-1].folder.name.endswith("-11")
    assert runs.newest(tmp_path / "same", having_checkpoint=False) == made[-1]


def test_a_renamed_run_is_not_newest_for_its_name(tmp_path, monkeypatch):
    old, new = runs.create(tmp_path, ["old"], RECORD), runs.create(tmp_path, ["new"], RECORD)
    old.folder.rename(tmp_path / "zzz-my-best")
    os.utime(tmp_path / "zzz-my-best" / "run.json", (1000, 1000))
    assert runs.newest(tmp_path, having_checkpoint=False) == new


def test_newest_with_a_checkpoint_and_newest_unfinished(tmp_path, monkeypatch):
    made = []
    for n, step in enumerate([50, 60, 100, None]):
        at(monkeypatch, 1000 + n)
        made.append(runs.create(tmp_path, ["r"], RECORD))
        if step:
            made[-1].save(step, ARRAYS, {})
    assert runs.newest(tmp_path) == made[2]
    assert runs.newest(tmp_path, having_checkpoint=False) == made[3]
    assert runs.newest(tmp_path, unfinished=True) == made[1]
    assert runs.newest(tmp_path, having_checkpoint=False, unfinished=True) == made[3]


def test_newest_says_where_it_looked_and_what_makes_a_run(tmp_path, run):
    for root, choice, kind in (
        (tmp_path / "missing", {"having_checkpoint": False}, "no run in"),
        (run.folder.parent, {}, "no run with a checkpoint in"),
        (run.folder.parent, {"unfinished": True}, "no unfinished run with a checkpoint in"),
    ):
        with pytest.raises(
            Misuse, match=f"^{re.escape(str(root))}: {kind} this folder; `python cli.py train` makes one"
        ):
            runs.newest(root, **choice)


def test_newest_does_not_pass_over_a_damaged_run_in_silence(tmp_path, run):
    run.save(1, ARRAYS, {})
    (run.folder / "run.json").write_bytes(b"{}")
    for unfinished in (False, True):
        with pytest.raises(Damaged, match=r"run\.json"):
            runs.newest(run.folder.parent, unfinished=unfinished)


def test_newest_ignores_folders_that_are_no_runs(tmp_path, run):
    (run.folder.parent / "9999-01-01-000000-half-made").mkdir()
    assert runs.newest(run.folder.parent, having_checkpoint=False) == run
