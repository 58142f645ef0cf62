"""Corpora, batches and yardsticks: what is in them, what they are a function of, and what is refused."""

import hashlib
import lzma
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from check import same, same_numbers

from peref import data, share
from peref.errors import Damaged, Misuse, PerefError
from peref.rng import generator

TEXT = "".join(f"line {i}: the sea is {i * i} miles wide, é\n" for i in range(200)).encode()


def write(root, files):
    for name, body in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return root


def many(n=100):
    return {f"part{i % 3}/{i:03}.txt": f"file number {i}\n".encode() * (1 + i % 5) for i in range(n)}


def the_text(corpus):
    return corpus.train.tobytes() + corpus.valid.tobytes()


# --- random numbers


def test_a_generator_is_a_function_of_seed_stream_and_counters():
    def draw(*which):
        return generator(*which).integers(2**63, size=4).tolist()

    assert draw(1, "batch", 5) == draw(1, "batch", 5)
    places = [
        (0, "batch"),
        (0, "batch", 0),
        (0, "batch", 0, 0),
        (0, "batch", 1),
        (0, "batch", 0, 1),
        (0, "batch", 1, 0),
    ]
    places += [(0, "init"), (1, "batch"), (2**32, "batch"), (1, "batch", 0), (0, "batch", 2**32 - 1)]
    assert len({tuple(draw(*place)) for place in places}) == len(places)
    assert isinstance(generator(0, "init").bit_generator, np.random.Philox)


@pytest.mark.parametrize("place", [(-1, "batch"), (2**64, "batch"), (0, "batch", -1), (0, "batch", 2**32)])
def test_a_seed_or_counter_out_of_range_is_refused(place):
    with pytest.raises(Misuse, match="out of range"):
        generator(*place)


# --- the standard library


def test_stdlib_of_this_interpreter():
    corpus, again = data.corpus("stdlib"), data.corpus("stdlib")
    total = corpus.train.size + corpus.valid.size
    assert 5e6 < total < 20e6
    assert 0.01 < corpus.valid.size / total < 0.1
    assert (corpus.sha256, corpus.train.tobytes(), corpus.valid.tobytes()) == (
        again.sha256,
        again.train.tobytes(),
        again.valid.tobytes(),
    )
    assert corpus.train.dtype == corpus.valid.dtype == np.uint8
    assert not corpus.train.flags.writeable
    assert not corpus.valid.flags.writeable
    assert b"class OrderedDict(dict):" in the_text(corpus)  # collections/__init__.py is in one of the two
    data.check_length(corpus, 8192)


def test_what_the_stdlib_corpus_leaves_out_is_not_in_it():
    text, root = the_text(data.corpus("stdlib")), Path(sysconfig.get_paths()["stdlib"])
    assert (root / "inspect.py").read_bytes() in text
    for out in (
        "_sysconfigdata*.py",
        "config-*/*.py",
        "test/*dict.py",
        "*/test*/test_*.py",
        "pydoc_data/topics.py",
    ):
        for path in root.glob(out):
            assert path.read_bytes() not in text or not path.stat().st_size, path


def test_stdlib_leaves_out_what_differs_between_builds(tmp_path):
    root = write(tmp_path, {f"m{i:02}.py": f"x = {i}\n".encode() for i in range(30)})
    bare = data.stdlib(root)
    out = (
        *(
            "test/a.py",
            "unittest/test/a.py",
            "idlelib/idle_test/a.py",
            "lib2to3/tests/a.py",
            "site-packages/p/a.py",
            "dist-packages/a.py",
        ),
        *(
            "_sysconfigdata__linux_x86_64.py",
            "_sysconfig_vars.py",
            "config-3.11-x86_64/python-config.py",
            "__pycache__/a.py",
        ),
        *("lib-dynload/a.py", "pydoc_data/topics.py"),
        *("sitecustomize.py", "usercustomize.py", "data.txt", "m00.pyc", "empty.py"),
    )
    write(root, {name: b"" if name == "empty.py" else b"out = 1\n" for name in out})
    assert data.stdlib(root).sha256 == bare.sha256
    write(root, {"testing.py": b"kept = 1\n", "pkg/site.py": b"kept = 2\n"})
    assert the_text(data.stdlib(root)).count(b"kept") == 2


def test_stdlib_has_the_same_text_whatever_its_line_ends(tmp_path):
    lines = {f"m{i:02}.py": f"x = {i}\ny = 1\n".encode() for i in range(30)}
    unix = data.stdlib(write(tmp_path / "unix", lines))
    assert (
        data.stdlib(
            write(tmp_path / "dos", {name: body.replace(b"\n", b"\r\n") for name, body in lines.items()})
        ).sha256
        == unix.sha256
    )


def test_an_interpreter_without_sources_is_told_the_alternatives(tmp_path):
    for root in (tmp_path, tmp_path / "python311.zip"):
        with pytest.raises(Misuse, match=r"without the sources.*--data sqlite, or --data PATH"):
            data.stdlib(root)


# --- splits


def test_a_split_by_path_holds_out_the_twentieth_part_of_the_files(tmp_path):
    files = many()
    corpus = data.corpus(str(write(tmp_path, files)))
    held = sorted(sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest())[:5])
    assert corpus.valid.tobytes() == b"\n".join(files[name] for name in held)
    assert corpus.train.tobytes() == b"\n".join(files[name] for name in sorted(files) if name not in held)


def test_a_small_folder_is_split_by_position(tmp_path):
    files = many(19)
    corpus = data.corpus(str(write(tmp_path, files)))
    whole = b"\n".join(files[name] for name in sorted(files))
    assert the_text(corpus) == whole
    assert corpus.valid.size == len(whole) // 10
    assert data.corpus(str(write(tmp_path, {"z.txt": b"the twentieth\n"}))).valid.tobytes() in [
        *files.values(),
        b"the twentieth\n",
    ]


def test_a_file_is_split_by_position(tmp_path):
    (tmp_path / "seas.txt").write_bytes(TEXT)
    corpus = data.corpus(str(tmp_path / "seas.txt"))
    assert the_text(corpus) == TEXT
    assert corpus.valid.size == len(TEXT) // 10
    assert corpus.name == "seas.txt"
    assert str(tmp_path / "seas.txt") in corpus.source


def test_the_digest_sees_content_split_and_paths_and_not_where_the_folder_stands(tmp_path):
    files = many()
    digests = [
        data.corpus(str(write(tmp_path / "a", files))).sha256,
        data.corpus(str(write(tmp_path / "elsewhere" / "b", files))).sha256,
    ]
    assert digests[0] == digests[1]
    first = sorted(files)[0]
    changes = [
        files | {first: b"File"},
        {("part0/zzz.txt" if name == first else name): body for name, body in files.items()},
    ]
    digests += [
        data.corpus(str(write(tmp_path / f"c{i}", change))).sha256 for i, change in enumerate(changes)
    ]
    assert len(set(digests)) == 3
    one, two, renamed = ("a", b"1"), ("b", b"2"), ("c", b"2")
    alike = [([one, two], []), ([one], [two]), ([], [one, two]), ([one], [renamed]), ([("a", b"1\n2")], [])]
    alike.append(([("a", b"1train\0b\0" + b"2")], []))
    assert len({data.assemble("", "", *parts).sha256 for parts in alike}) == len(alike)


def test_a_folder_without_its_hidden_and_binary_files(tmp_path):
    files = many()
    plain = data.corpus(str(write(tmp_path, files)))
    write(
        tmp_path,
        {
            ".hidden.txt": TEXT,
            ".git/config": TEXT,
            "part0/nul.bin": b"a\0b",
            "latin.txt": b"\xe9t\xe9",
            "empty.txt": b"",
        },
    )
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    mixed = data.corpus(str(tmp_path))
    assert mixed.sha256 == plain.sha256
    assert "100 text files, 2 binary files left out" in mixed.source


def test_a_run_in_the_folder_of_the_text_does_not_change_it(tmp_path):
    """A folder with a run.json is a run, at any depth; the folder that is asked for is taken as it is."""
    plain = data.corpus(str(write(tmp_path / "text", many())))
    for place in ("runs/one", "part0/two"):
        write(
            tmp_path / "text",
            {f"{place}/run.json": b"{}", f"{place}/metrics.jsonl": b"1\n", f"{place}/eval/9.json": b"{}"},
        )
    assert data.corpus(str(tmp_path / "text")).sha256 == plain.sha256
    assert the_text(data.corpus(str(tmp_path / "text" / "runs" / "one"))) == b"{}\n1\n\n{}"


# --- what is refused


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the file is empty"),
        (b"abc\0d", "not a text file.*NUL at byte 3"),
        (b"ab\xff", "not a text file.*no UTF-8 at byte 2"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path, body, says):
    (tmp_path / "x").write_bytes(body)
    with pytest.raises(Misuse, match=says):
        data.corpus(str(tmp_path / "x"))


def test_a_folder_without_text_is_refused(tmp_path):
    write(tmp_path, {"a.bin": b"\0", ".hidden": TEXT, "empty": b""})
    with pytest.raises(Misuse, match=r"no text in this folder.*1 binary"):
        data.corpus(str(tmp_path))


def test_an_unknown_name_is_refused_with_what_was_meant():
    with pytest.raises(
        Misuse,
        match=(
            r"'tinyshakespear' is neither.*did you mean 'tinyshakespeare'\? known: sqlite, tinyshakespeare, "
            r"stdlib"
        ),
    ):
        data.corpus("tinyshakespear")
    for spec in ("", "no/such/file.txt"):
        with pytest.raises(Misuse, match="neither a file, nor a folder, nor a known corpus; known: sqlite"):
            data.corpus(spec)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(PerefError, match=r"nowhere: cannot read: No such file"):
        data.read_text(tmp_path / "nowhere")
    with pytest.raises(PerefError, match=r"nowhere: cannot list: No such file"):
        data.walk(tmp_path / "nowhere", bool)


def test_a_corpus_too_small_for_the_length_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"a" * 650)
    corpus = data.corpus(str(tmp_path / "x"))
    data.check_length(corpus, 64)
    with pytest.raises(
        Misuse,
        match=r"too small for length 65: training has 585 bytes and validation 65, each needs at least 66",
    ):
        data.check_length(corpus, 65)
    with pytest.raises(Misuse, match="training has 3 "):
        data.check_length(replace(corpus, train=corpus.train[:3]), 64)


# --- the texts that come with peref


def test_the_default_is_the_same_text_split_alike_on_every_machine():
    """Numbers of it can be compared: content, split and digest are pinned, and so are the yardsticks to a
    digit less than is printed.
    """
    corpus = data.corpus()
    assert (corpus.name, corpus.source) == ("sqlite", "SQLite amalgamation, version 3.52.0, 9.4 MB of C")
    assert (corpus.train.size, corpus.valid.size) == (8_497_909, 944_212)
    assert corpus.sha256 == "33538488bdaf8ab8c78f6664f0e8687887b8ae861577c7b76f08ee181cf6618c"
    assert b"May you do good and not evil." in corpus.train.tobytes()
    assert corpus.train.max() < 128
    marks = data.yardsticks(corpus.train, corpus.valid)
    for name, bits in {"unigram_bpb": 5.1605, "bigram_bpb": 3.9232, "xz_bpb": 1.4804}.items():
        same_numbers(marks.pop(name), bits, 2e-4)
    assert not marks


@pytest.mark.parametrize("name", list(data.catalogue()))
def test_a_text_that_comes_with_peref(name, tmp_path):
    """Its file is the text that the catalogue and data/README.md describe; the same file under --data is
    the same corpus.
    """
    entry, folder = data.catalogue()[name], share.folder("data")
    body = lzma.decompress((folder / entry.file).read_bytes())
    assert (len(body), hashlib.sha256(body).hexdigest()) == (entry.bytes, entry.sha256)
    (tmp_path / "text").write_bytes(body)
    assert data.corpus(name).sha256 == data.corpus(str(tmp_path / "text")).sha256
    assert "public domain" in entry.licence
    assert "https://" in entry.source
    size = (folder / entry.file).stat().st_size
    assert (
        f"| `{entry.file}` | {size:,} bytes | {entry.bytes:,} bytes | `{entry.sha256}` |"
        in (folder / "README.md").read_text()
    )


def test_the_texts_are_small_and_the_default_is_one_of_them():
    entries = data.catalogue()
    assert data.known() == [*entries, "stdlib"]
    assert data.known()[0] == data.DEFAULT
    assert 5e6 <= entries[data.DEFAULT].bytes <= 10e6
    assert sum((share.folder("data") / e.file).stat().st_size for e in entries.values()) <= 2.5e6


def test_a_damaged_text_is_told_in_one_line(tmp_path):
    """Cut short, another byte anywhere, another text: all are noticed, with what to do."""
    entry, path = (
        data.Entry("seas", "Seas", "seas.xz", len(TEXT), hashlib.sha256(TEXT).hexdigest(), "", ""),
        tmp_path / "seas.xz",
    )
    whole = lzma.compress(TEXT)
    path.write_bytes(whole)
    assert data.unpacked(entry, path) == TEXT
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in (0, 7, len(whole) // 2, len(whole) - 1)
    ]
    others = [lzma.compress(body) for body in (TEXT[:-1], TEXT[:-1] + b"!", TEXT + b"!", b"")]
    for wrong in (b"", whole[:-1], whole[:100], TEXT, *flipped, *others):
        path.write_bytes(wrong)
        with pytest.raises(
            Damaged,
            match=rf"seas\.xz is damaged: expected {len(TEXT)} bytes with SHA-256 .* once decompressed, got ",
        ) as error:
            data.unpacked(entry, path)
        assert "reinstall peref or restore the checkout" in str(error.value)
        assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(Damaged, match=r"once decompressed, got 0 bytes .*reinstall peref"):
        data.unpacked(entry, path)


def test_the_texts_are_read_from_an_installed_wheel(tmp_path):
    """Laid out as pyproject says: all that is in data/ is carried, and the default text is the checkout's."""
    root = Path(data.__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    carried = {path: to for path, to in project["wheel"]["force-include"].items() if path.startswith("data/")}
    assert set(carried) == {
        "data/corpora.toml",
        "data/README.md",
        *(f"data/{e.file}" for e in data.catalogue().values()),
    }
    assert "data" in project["sdist"]["include"]
    shutil.copytree(root / "peref", tmp_path / "peref", ignore=shutil.ignore_patterns("__pycache__"))
    for path, to in carried.items():
        (tmp_path / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, tmp_path / to)
    code = (
        "from peref import data, share; assert not share.is_checkout(); print(data.__file__, "
        "data.corpus().sha256)"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "peref" / "data.py"), data.corpus().sha256]


def test_where_files_are(tmp_path):
    assert (share.folder("data") / "corpora.toml").is_file()
    checkout = tmp_path / "checkout" / "peref"
    write(
        tmp_path,
        {
            "checkout/pyproject.toml": b"",
            "checkout/golden/x": b"",
            "checkout/peref/x": b"",
            "wheel/peref/_share/golden/x": b"",
        },
    )
    write(tmp_path, {"wheel/pyproject.toml": b"another package's litter", "wheel/golden/x": b""})
    wheel = tmp_path / "wheel" / "peref"
    assert share.is_checkout(checkout)
    assert not share.is_checkout(wheel)
    assert share.folder("golden", checkout) == tmp_path / "checkout" / "golden"
    assert share.folder("golden", wheel) == wheel / "_share" / "golden"
    for package in (checkout, wheel):
        with pytest.raises(PerefError, match=r"'data'.*is missing: expected"):
            share.folder("data", package)


def test_what_the_program_is_called(tmp_path):
    """A command that is printed works where it was printed: in a checkout, from beside it, and with the
    installed command.
    """
    write(tmp_path, {"checkout/pyproject.toml": b"", "checkout/peref/x": b"", "wheel/peref/_share/x": b""})
    checkout, wheel = tmp_path / "checkout" / "peref", tmp_path / "wheel" / "peref"
    assert share.program(checkout, ["cli.py", "train"]) == "python cli.py"
    assert share.program(checkout, ["../a b/cli.py"]) == "python '../a b/cli.py'"
    assert share.program(checkout, ["/venv/bin/peref"]) == "peref"
    assert share.program(wheel, [str(wheel / "__main__.py")]) == "python -m peref"
    assert share.program(checkout, ["/venv/bin/pytest"]) == share.program(checkout, []) == "python cli.py"
    assert share.program(wheel, ["/venv/bin/peref"]) == share.program(wheel, []) == "peref"


def test_what_to_install_can_be_pasted_into_any_shell(tmp_path, monkeypatch):
    """Quoted, for zsh takes brackets for a pattern; from the checkout, wherever one stands; and nobody
    else writes it.
    """
    write(
        tmp_path, {"my checkout/pyproject.toml": b"", "my checkout/peref/x": b"", "wheel/peref/_share/x": b""}
    )
    checkout, wheel = tmp_path / "my checkout" / "peref", tmp_path / "wheel" / "peref"
    assert share.install("", wheel) == "pip install peref"
    assert share.install("[plot]", wheel) == "pip install 'peref[plot]'"
    assert share.install("[plot]", checkout) == f"pip install -e '{tmp_path}/my checkout[plot]'"
    monkeypatch.chdir(checkout.parent)
    assert share.install("[plot]", checkout) == "pip install -e '.[plot]'"
    assert share.install("numba", wheel) == share.install("numba", checkout) == "pip install numba"
    assert share.install("cupy-cuda13x[ctk]>=14") == "pip install 'cupy-cuda13x[ctk]>=14'"
    for path in share.PACKAGE.rglob("*.py"):
        assert path.name == "share.py" or "pip install" not in path.read_text(), path


def test_the_digest_of_the_code_sees_every_source(tmp_path):
    """Content and place of every .py file, and nothing else."""
    digests = [share.code(write(tmp_path / "a", {"x.py": b"1", "sub/y.py": b"2"}))]
    more = {"x.py": b"1", "sub/y.py": b"2", "x.txt": b"", "__pycache__/x.pyc": b""}
    assert share.code(write(tmp_path / "c", more)) == digests[0]
    digests += [
        share.code(write(tmp_path / f"b{n}", files))
        for n, files in enumerate([{"x.py": b"1", "sub/y.py": b"3"}, {"x.py": b"1", "y.py": b"2"}])
    ]
    assert len(set(digests)) == 3
    assert re.fullmatch("[0-9a-f]{16}", share.code())


def test_the_threads_of_the_blas(monkeypatch):
    """What the environment says, the more special name first; else the cores of this process."""
    assert share.blas_threads({"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2"}) == 2
    assert share.blas_threads({"OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": "3"}) == 3
    assert share.blas_threads({"MKL_NUM_THREADS": "4,2"}) == "4,2"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 5, 6}, raising=False)
    assert share.blas_threads({}) == 3


def test_the_cache_folder(tmp_path):
    home, elsewhere = Path.home(), str(tmp_path)
    assert share.cache_folder("linux", {}) == home / ".cache" / "peref"
    assert share.cache_folder("linux", {"XDG_CACHE_HOME": "relative"}) == home / ".cache" / "peref"
    for environ in ({}, {"HOME": ""}):
        assert share.cache_folder("linux", environ | {"XDG_CACHE_HOME": elsewhere}) == tmp_path / "peref"
    assert (
        share.cache_folder("darwin", {"XDG_CACHE_HOME": elsewhere}) == home / "Library" / "Caches" / "peref"
    )


# --- batches


def test_a_batch_is_windows_and_what_follows_them():
    tokens = np.arange(251, dtype=np.uint8)
    inputs, targets = data.batch(tokens, 3, 5, batch=7, length=11)
    assert inputs.shape == targets.shape == (7, 11)
    assert inputs.dtype == targets.dtype == np.int64
    same(inputs, inputs[:, :1] + np.arange(11), 0)
    same(targets, inputs + 1, 0)


def test_a_batch_is_a_pure_function_of_seed_step_and_part():
    tokens = np.arange(2**16, dtype=np.uint32)

    def offsets(seed, step, part=0):
        return tuple(data.batch(tokens, seed, step, batch=5, length=3, part=part)[0][:, 0])

    last = offsets(1, 9)
    for step in range(9):
        offsets(1, step)
    assert offsets(1, 9) == last
    assert len({offsets(*which) for which in [(1, 9), (1, 10), (2, 9), (1, 9, 1), (1, 10, 1), (9, 1)]}) == 6


def test_every_window_is_equally_likely():
    tokens = np.arange(13, dtype=np.uint8)
    starts = data.batch(tokens, 0, 0, batch=10_000, length=3)[0][:, 0]
    counts = np.bincount(starts)
    assert counts.size == 13 - 3  # the first and the last that fit, none beyond
    assert abs(counts - 1000).max() < 150  # five standard deviations


def test_the_smallest_text_that_fits_and_the_one_that_does_not():
    inputs, targets = data.batch(np.arange(4), 0, 0, batch=2, length=3)
    assert inputs.tolist() == [[0, 1, 2]] * 2
    assert targets.tolist() == [[1, 2, 3]] * 2
    with pytest.raises(Misuse, match="a text of 3 bytes is too small for length 3: it needs at least 4"):
        data.batch(np.arange(3), 0, 0, batch=2, length=3)
    for sizes in ({"batch": 0, "length": 3}, {"batch": 2, "length": 0}):
        with pytest.raises(Misuse, match="expected at least 1"):
            data.batch(np.arange(9), 0, 0, **sizes)


# --- yardsticks


def test_yardsticks_against_a_count_over_plain_numbers():
    train, valid = b"abracadabra, abracadabra", b"cab \xff abba"
    unigram = [-math.log2((train.count(bytes([b])) + 1) / (len(train) + 256)) for b in valid]
    bigram = unigram[:1]
    for a, b in pairwise(valid):
        seen = [(train[i], train[i + 1]) for i in range(len(train) - 1)]
        bigram.append(-math.log2((seen.count((a, b)) + 1) / (sum(first == a for first, _ in seen) + 256)))
    got = data.yardsticks(np.frombuffer(train, np.uint8), np.frombuffer(valid, np.uint8))
    want = {
        "unigram_bpb": sum(unigram) / len(valid),
        "bigram_bpb": sum(bigram) / len(valid),
        "xz_bpb": 8 * len(lzma.compress(valid, format=lzma.FORMAT_XZ, preset=9)) / len(valid),
    }
    same_numbers(got, want, 1e-12)


def test_yardsticks_know_structure_and_stay_finite():
    cycle = np.tile(np.arange(16, dtype=np.uint8), 4000)
    marks = data.yardsticks(cycle, cycle[:16000])
    same_numbers(marks["unigram_bpb"], 4.0, 0.0025)
    assert marks["bigram_bpb"] < 0.1
    assert marks["xz_bpb"] < 0.1
    strange = data.yardsticks(cycle[:0], np.array([250], np.uint8))
    assert strange["unigram_bpb"] == strange["bigram_bpb"] == 8
    with pytest.raises(Misuse, match="empty"):
        data.yardsticks(cycle, cycle[:0])
