"""store: what is written comes back, in one step or not at all, and one altered bit is enough to refuse a
file.
"""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from check import same

from peref import store
from peref.errors import Damaged, Misuse, PerefError

ROOT = Path(store.__file__).parents[1]
ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "m": np.linspace(-1, 1, 3),
    "state": np.array([2**64 - 1, 5], dtype=np.uint64),
    "mask": np.array([True, False, True]),
    "tokens": np.array([0, 255], dtype=np.uint8),
    "step": np.array(-7, dtype=np.int64),
    "none": np.zeros((0, 3), dtype=np.float32),
}
META = {"step": 7, "rng": {"state": 2**127 + 1, "inc": 3}, "lr": 0.1, "name": "é"}


def same_bits(arrays, expected):
    """The payload of a NaN and the sign of a 0 too."""
    bits = lambda a: np.frombuffer(a.tobytes(), np.uint8)
    assert arrays.keys() == expected.keys()
    for name, a in expected.items():
        same(arrays[name], a, 0, name, empty=not a.size)
        same(bits(arrays[name]), bits(a), 0, name, empty=not a.size)


def write(path, arrays=ARRAYS, meta=META):
    store.save(path, arrays, meta)
    return path.read_bytes()


def raw(header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def test_round_trip(tmp_path):
    write(tmp_path / "a")
    arrays, meta = store.load_arrays(tmp_path / "a")
    assert list(arrays) == sorted(ARRAYS)
    same_bits(arrays, ARRAYS)
    assert meta == META
    arrays["w"] += 1  # what was loaded can be trained on


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,), (2, 3)])
def test_every_dtype_and_shape(tmp_path, dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    write(tmp_path / "a", {"x": array}, {})
    same_bits(store.load_arrays(tmp_path / "a")[0], {"x": array})


def test_nan_payloads_and_minus_zero_keep_their_bits(tmp_path):
    array = np.array([0x7FF8000000000123, 0xFFF0000000000000, 0x8000000000000000], dtype=np.uint64).view(
        np.float64
    )
    write(tmp_path / "a", {"x": array}, {})
    same_bits(store.load_arrays(tmp_path / "a")[0], {"x": array})


def test_layout_and_byte_order_do_not_matter(tmp_path):
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    wide = np.arange(24, dtype=np.float32).reshape(3, 8) / 2
    layouts = [plain, np.asfortranarray(plain), wide[:, ::2], plain.astype(">f4")]
    assert len({write(tmp_path / "a", {"x": layout}, {}) for layout in layouts}) == 1
    write(tmp_path / "t", {"x": plain.T[::-1]}, {})
    same_bits(store.load_arrays(tmp_path / "t")[0], {"x": plain.T[::-1]})


def test_any_safetensors_reader_opens_it_and_finds_one_metadata_key(tmp_path):
    data = write(tmp_path / "a")
    with safetensors.safe_open(tmp_path / "a", framework="np") as file:
        assert list(file.metadata()) == ["peref"]
        note = json.loads(file.metadata()["peref"])
    assert set(note) == {"format", "meta", "sha256"}
    assert (note["format"], note["meta"]) == (1, META)
    same_bits(safetensors.numpy.load(data), ARRAYS)


def test_the_bytes_are_those_of_the_library(tmp_path):
    """Every dtype, in its order."""
    kinds = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
    arrays = {f"{name}{kind}": np.ones((2, 3), kind) for name in "ba" for kind in kinds} | {'a"': np.ones(3)}
    for given in (arrays, ARRAYS, {}):
        theirs = safetensors.numpy.save(given, metadata={"note": '{"a":"\\u00e9"}'})
        assert b"".join(store.tensor_file(given, {"note": '{"a":"\\u00e9"}'})) == theirs


def test_the_digest_is_the_documented_one(tmp_path):
    write(tmp_path / "a", {"b": np.array([1, 2], np.uint8), "a": np.array(1.5)}, {"k": 1})
    sha = hashlib.sha256(b'{"format":1,"meta":{"k":1}}\n["a","float64",[]]\n')
    sha.update(b"\0\0\0\0\0\0\xf8\x3f" + b'["b","uint8",[2]]\n' + b"\1\2")
    assert sha.hexdigest().encode() in (tmp_path / "a").read_bytes()


def test_two_processes_write_the_same_bytes(tmp_path):
    code = (
        "import sys, numpy as np; from peref import store\n"
        "order = [int(word) for word in sys.argv[2:]]\n"
        "arrays = {f'p{i}': np.arange(i + 1, dtype='f8' if i % 2 else 'u1') for i in order}\n"
        "store.save(sys.argv[1], arrays, dict.fromkeys(arrays, 1))"
    )
    seen = set()
    for seed, order in (("0", range(9)), ("1", range(8, -1, -1)), ("2", range(9))):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed), *map(str, order)], check=True, env=env
        )
        seen.add((tmp_path / seed).read_bytes())
    assert len(seen) == 1
    assert len({write(tmp_path / "here") for _ in range(20)}) == 1


def test_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "a"
    data = write(path, {name: ARRAYS[name] for name in ("w", "mask", "step", "none")}, {"step": 7})
    accepted = []
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            store.load_arrays(path)
        except Damaged:
            continue
        accepted.append(bit)
    assert accepted == []
    path.write_bytes(data)
    store.load_arrays(path)


def test_every_shorter_or_longer_file_is_refused(tmp_path):
    path = tmp_path / "a"
    data = write(path)
    for wrong in [data[:n] for n in range(len(data))] + [data + b"\0", data + data, b"\0" + data]:
        path.write_bytes(wrong)
        with pytest.raises(Damaged, match="a: "):
            store.load_arrays(path)


PLAIN = '{"format":1,"meta":{},"sha256":""}'
HOSTILE = {
    "garbage": b"\xff" * 64,
    "text": b"not a checkpoint at all, but long enough",
    "huge header": (2**62).to_bytes(8, "little") + b"{}",
    "deep header": raw(b"[" * 200_000),
    "no metadata": safetensors.numpy.save({"x": np.zeros(2)}),
    "foreign metadata": safetensors.numpy.save({"x": np.zeros(2)}, {"format": "pt"}),
    "null metadata": raw(b'{"__metadata__":null}'),
    "a list": raw([]),
    "empty text": safetensors.numpy.save({}, {"peref": ""}),
    "a number": safetensors.numpy.save({}, {"peref": "1"}),
    "deep text": safetensors.numpy.save({}, {"peref": "[" * 200_000}),
    "many digits": safetensors.numpy.save(
        {}, {"peref": '{"format":1,"meta":{"k":' + "9" * 5000 + '},"sha256":""}'}
    ),
    "nan": safetensors.numpy.save({}, {"peref": '{"format":1,"meta":{"k":NaN},"sha256":""}'}),
    "infinite format": safetensors.numpy.save({}, {"peref": '{"format":1e999,"meta":{},"sha256":""}'}),
    "text as format": safetensors.numpy.save({}, {"peref": '{"format":"one","meta":{},"sha256":""}'}),
    "meta a list": safetensors.numpy.save({}, {"peref": '{"format":1,"meta":[1],"sha256":""}'}),
    "no digest": safetensors.numpy.save({}, {"peref": '{"format":1,"meta":{}}'}),
    "bfloat16": raw(
        {"__metadata__": {"peref": PLAIN}, "x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}},
        b"12",
    ),
    "huge shape": raw(
        {"__metadata__": {"peref": PLAIN}, "x": {"dtype": "U8", "shape": [0, 2**63], "data_offsets": [0, 0]}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_ours_is_refused_without_a_traceback_of_somebody_else(tmp_path, name):
    (tmp_path / "a").write_bytes(HOSTILE[name])
    with pytest.raises(Damaged, match="a: ") as caught:
        store.load_arrays(tmp_path / "a")
    assert not isinstance(caught.value, store.TooNew)


def test_a_rewritten_header_is_noticed_though_the_tensors_are_intact(tmp_path):
    data = write(tmp_path / "a")
    length = int.from_bytes(data[:8], "little")
    (tmp_path / "a").write_bytes(
        raw(json.dumps(json.loads(data[8 : 8 + length])).encode(), data[8 + length :])
    )
    with pytest.raises(Damaged, match="intact tensors"):
        store.load_arrays(tmp_path / "a")


def test_content_swapped_under_an_honest_header_is_noticed(tmp_path):
    """The bytes are what the writer makes of this content, so only the digest can tell."""
    note = json.loads(safetensors_note(write(tmp_path / "a")))
    changed = {**ARRAYS, "w": ARRAYS["w"] + 1}
    (tmp_path / "a").write_bytes(safetensors.numpy.save(changed, {"peref": store.canonical(note)}))
    with pytest.raises(Damaged, match="another SHA-256"):
        store.load_arrays(tmp_path / "a")


def safetensors_note(data):
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["peref"]


def test_a_later_format_says_so(tmp_path):
    (tmp_path / "a").write_bytes(
        safetensors.numpy.save({}, {"peref": '{"format":2,"anything":[],"sha256":"?"}'})
    )
    with pytest.raises(store.TooNew, match="format 2; this peref reads up to 1"):
        store.load_arrays(tmp_path / "a")
    assert issubclass(store.TooNew, Damaged)


def test_a_missing_file_or_a_folder_is_misuse(tmp_path):
    missing = tmp_path / "missing"
    for read, path, words in (
        (store.load_arrays, missing, "missing: no such file"),
        (store.read_bytes, missing, "missing: no such file"),
        (store.read_bytes, tmp_path, ": a folder, pipe or device, not a file"),
    ):
        with pytest.raises(Misuse, match=words):
            read(path)


def test_an_unreadable_file_is_explained(tmp_path, monkeypatch):
    write(tmp_path / "a")

    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(PerefError, match=r"a: cannot open: Input/output error"):
        store.load_arrays(tmp_path / "a")


@pytest.mark.parametrize("name", ["", "__metadata__", "é", "a\nb", "\ud800"])
def test_names_that_cannot_be_stored(tmp_path, name):
    with pytest.raises(Misuse, match="tensor name"):
        store.save(tmp_path / "a", {name: np.zeros(2)}, {})


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "longdouble", "U3", "O", "M8[s]"])
def test_dtypes_that_cannot_be_stored(tmp_path, dtype):
    with pytest.raises(Misuse, match="'x' has dtype"):
        store.save(tmp_path / "a", {"x": np.zeros(2, dtype)}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1, 2}, b"x", np.float32(1), {"a": 1, 2: 3}])
def test_meta_that_json_cannot_hold(tmp_path, value):
    with pytest.raises(Misuse, match="cannot be JSON"):
        store.save(tmp_path / "a", {}, {"k": value})
    assert list(tmp_path.iterdir()) == []


def test_canonical_text():
    assert store.canonical({"b": (1, 2.5), "a": None, "é": True}) == '{"a":null,"b":[1,2.5],"\\u00e9":true}'
    assert store.canonical({9: 0, 10: 0}) == '{"10":0,"9":0}' == store.canonical({"9": 0, "10": 0})


def test_integer_keys_can_be_read_back(tmp_path):
    write(tmp_path / "a", {}, {"loss": {9: 1, 10: 2}})
    assert store.load_arrays(tmp_path / "a")[1] == {"loss": {"9": 1, "10": 2}}


@pytest.fixture
def calls(monkeypatch):
    """The order in which the disk is asked for things; each entry of `fail` is raised instead of the call
    of that name.
    """
    seen, fail = [], {}

    def wrap(name, describe):
        inner = getattr(os, name)

        def call(*args, **kwargs):
            word = describe(*args)
            seen.append(word)
            if word in fail:
                raise fail[word]
            return inner(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    def kind(fd):
        return "folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file"

    wrap("write", lambda fd, data: "write")
    wrap("fsync", lambda fd: f"fsync {kind(fd)}")
    wrap("replace", lambda *names: "replace")
    return seen, fail


def test_the_order_that_survives_a_power_cut(tmp_path, calls):
    write(tmp_path / "a")
    store.write_text(tmp_path / "b", "text")
    after = ["fsync file", "replace", "fsync folder"]
    assert calls[0] == ["write"] * len(ARRAYS) + after + ["write"] + after  # the empty one has no bytes


def test_the_temporary_file_is_complete_and_beside_the_target_before_it_is_renamed(tmp_path, monkeypatch):
    seen, inner = [], os.replace

    def replace(a, b, **folders):
        (temp,) = tmp_path.iterdir()
        seen.append((a, temp.name, temp.read_bytes()))
        inner(a, b, **folders)

    monkeypatch.setattr(os, "replace", replace)
    data = write(tmp_path / "a")
    ((renamed, temp, before),) = seen
    assert (renamed, before) == (temp, data)
    assert temp.startswith(f".tmp-{os.getpid()}-")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("where", ["write", "fsync file", "replace"])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "I/O error"), KeyboardInterrupt()],
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, calls, where, error):
    old = write(tmp_path / "a")
    calls[1][where] = error
    with pytest.raises(PerefError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        store.save(tmp_path / "a", {}, {"new": 1})
    if isinstance(error, OSError):
        assert f"{tmp_path / 'a'}: cannot write: {error.strerror}" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == old


def test_a_folder_that_cannot_be_synced_is_said_to_hold_the_new_file(tmp_path, calls):
    write(tmp_path / "a")
    calls[1]["fsync folder"] = OSError(errno.EIO, "I/O error")
    with pytest.raises(PerefError, match="in place"):
        store.save(tmp_path / "a", {}, {"new": 1})
    assert store.load_arrays(tmp_path / "a") == ({}, {"new": 1})


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole, inner = write(tmp_path / "a"), os.write
    monkeypatch.setattr(os, "write", lambda fd, data: inner(fd, data[:7]))
    assert write(tmp_path / "b") == whole


def test_a_missing_folder_is_explained(tmp_path):
    with pytest.raises(
        PerefError, match="No such file or directory; check space, permissions and the folder"
    ):
        store.save(tmp_path / "no" / "a", {}, {})


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    """A writer that is killed at any moment leaves a file that loads."""
    path = tmp_path / "a"
    code = (
        "import itertools, sys, numpy as np; from peref import store\n"
        "for n in itertools.count(): store.save(sys.argv[1], {'x': np.full(1000, n)}, {'n': n})"
    )
    for _ in range(3):
        store.save(path, {"x": np.full(1000, -1)}, {"n": -1})
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        while store.load_arrays(path)[1]["n"] < 5:
            assert child.poll() is None
        child.kill()
        child.wait()
        arrays, meta = store.load_arrays(path)
        assert set(arrays["x"].tolist()) == {meta["n"]}
        store.sweep(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_device_or_a_pipe_is_written_to_and_stays(tmp_path):
    """As `--report json:/dev/null` may name one, and a root that may replace it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    store.write_text(pipe, "all of it")
    assert (reader.communicate()[0], pipe.is_fifo()) == ("all of it", True)
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    with pytest.raises(PerefError, match="No space left"):
        store.write_text(link, "none of it")
    assert (link.is_symlink(), Path("/dev/full").is_char_device()) == (True, True)


def test_write_text_is_utf8(tmp_path):
    store.write_text(tmp_path / "a", "é\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\n"


def test_sweep_removes_what_dead_processes_left(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = tmp_path / f".tmp-{child.pid}-abcd"
    kept = [
        tmp_path / name
        for name in (f".tmp-{os.getpid()}-abcd", ".tmp-1-abcd", ".tmp-x-abcd", ".tmp-", f"tmp-{child.pid}-a")
    ]
    for path in [dead, *kept]:
        path.touch()
    assert store.sweep(tmp_path) == [dead]
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_sweep_leaves_a_process_of_somebody_else(tmp_path, monkeypatch):
    def refuse(pid, signal):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    (tmp_path / ".tmp-12-a").touch()
    assert store.sweep(tmp_path) == []


def test_what_may_not_be_looked_at_is_no_absence(tmp_path, monkeypatch):
    """A folder closed to us is not an empty one."""

    def refuse(path, *args, **given):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    assert store.names_in(tmp_path / "missing") == []
    assert not store.is_file(tmp_path / "missing" / "a")
    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "stat", refuse)
    for call, verb in ((store.names_in, "list"), (store.is_file, "look at"), (store.read_bytes, "look at")):
        with pytest.raises(
            PerefError, match=f"^{re.escape(str(tmp_path))}: cannot {verb}: Permission denied"
        ):
            call(tmp_path)


def test_whether_a_folder_can_be_written(tmp_path):
    """It leaves nothing behind but a folder that was missing."""
    store.check_writable(tmp_path / "new", tmp_path)
    assert [*tmp_path.rglob("*")] == [tmp_path / "new"]
    (tmp_path / "file").touch()
    with pytest.raises(PerefError, match="file: cannot write in it: Not a directory"):
        store.check_writable(tmp_path / "file", tmp_path)
