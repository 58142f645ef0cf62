"""Corpora -> bytes -> batches. A token is a byte (V = 256), so every loss divided by ln 2 is in bits per
byte.

A corpus is one of
    NAME        a text that comes with peref, by its name in data/corpora.toml; size and SHA-256 are verified
                at every reading
    stdlib      the source text of the running interpreter's standard library: another in each version of
                Python
    PATH        a text file, or a folder of text files. Where a path has the name of a known corpus, write
                ./PATH

What is held out for validation:
    by position     the last 10 % of the bytes: one file, also of those that come with peref; a folder of
                    fewer than 20
    by path         the 5 % of the files (rounded up) whose relative paths have the smallest SHA-256: stdlib,
                    a folder of 20 files or more
Files stand in the order of their relative paths (with "/") and are joined by a newline; empty files are left
out, and so are folders that hold a run.json: a run does not change the text that it was trained on.

Not here: evaluation (evaluate.py).
"""

import hashlib
import lzma
import os
import platform
import sysconfig
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref import share
from peref.errors import Damaged, Misuse, counted, did_you_mean, explained
from peref.masking import VOCABULARY, masked_tokens
from peref.rng import generator

DEFAULT, STDLIB = "sqlite", "stdlib"
MANY = 20  # a folder of so many files is split by path; one file in so many is held out

# Not in the stdlib corpus, by file or folder name at any depth: tests; installed packages; local hooks;
# pydoc_data, prose that is generated at release, in one file so large that it would be most of the part it
# falls into.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib-dynload"}
LEFT_OUT |= {"sitecustomize.py", "usercustomize.py", "pydoc_data"}
OF_THE_BUILD = ("_sysconfig", "config-")

Files = list[tuple[str, bytes]]  # relative path with "/", content


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text in two parts that never meet. `sha256` identifies both: content, split, and where files are
    split by path their paths.
    """

    name: str
    source: str  # where it is from, for people
    sha256: str
    train: np.ndarray  # [N] uint8, read-only
    valid: np.ndarray  # [N] uint8, read-only
    held: str = ""  # which part of it that is

    def about(self, spec: str) -> dict[str, Any]:
        """What a run notes down of it, which came from `spec`, a name or path."""
        sizes = {"train": len(self.train), "valid": len(self.valid)}
        return {"data": {"name": self.name, "spec": spec, "sha256": self.sha256, **sizes}}

    def refuse(self, cfg: Any) -> None:
        """Raises Misuse for a model, a Config, that cannot be trained on it."""
        if not cfg.causal and cfg.V != VOCABULARY:
            raise Misuse(f"V is {cfg.V}; masked tokens of text are bytes, and want {VOCABULARY}")
        if cfg.V < VOCABULARY and self.train.dtype == np.uint8:  # tokens are checked where they are made
            raise Misuse(f"V is {cfg.V}; a text has bytes, and wants at least {VOCABULARY}")
        check_length(self, cfg.L)

    def lesson(self, cfg: Any, recipe: Any, step: int, part: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows of a micro-batch and the token that follows each, or where a model reads both ways what
        is masked: inputs and targets [B,T].
        """
        windows = batch(self.train, recipe.seed, step, batch=recipe.batch, length=cfg.L, part=part)
        if cfg.causal:
            return windows
        return masked_tokens(windows[0], generator(recipe.seed, "mask", step, part))


@dataclass(frozen=True)
class Entry:
    """A text that comes with peref."""

    name: str
    title: str  # what it is, for people
    file: str  # its file name in data/, compressed with xz
    bytes: int  # of the text itself, and so is the digest
    sha256: str
    source: str
    licence: str


def catalogue() -> dict[str, Entry]:
    """The texts that come with peref, by name, from data/corpora.toml."""
    text = (share.folder("data") / "corpora.toml").read_text(encoding="utf-8")
    return {name: Entry(name=name, **fields) for name, fields in tomllib.loads(text).items()}


def known() -> list[str]:
    """The names that `--data` takes."""
    return [*catalogue(), STDLIB]


def lasting(spec: str, here: Path = Path()) -> str:
    """A spec that was said in the folder `here`, as it is understood in any."""
    return spec if spec in known() else str((here / spec).resolve())


def corpus(spec: str = DEFAULT) -> Corpus:
    """The corpus that `--data spec` means: a name of the catalogue, "stdlib", or a path (see the top of this
    file).

    Raises Misuse where there is no such corpus, it is empty or is not text; Damaged where a text that comes
    with peref is not what the catalogue says; PerefError where it cannot be read.
    """
    if spec == STDLIB:
        return stdlib()
    if entry := catalogue().get(spec):
        return last_tenth(spec, entry.title, unpacked(entry, share.folder("data") / entry.file))
    path = Path(spec)
    with explained(path, "look at"):
        file, folder = bool(spec) and path.is_file(), bool(spec) and path.is_dir()
    if file:
        return last_tenth(path.name, str(path), text_of(path))
    if folder:
        return folder_texts(path)
    near = did_you_mean(spec, known(), f"known: {', '.join(known())}")
    raise Misuse(f"--data {spec!r} is neither a file, nor a folder, nor a known corpus{near}")


def stdlib(root: Path | None = None) -> Corpus:
    """The source text of the standard library under `root` (the running interpreter's), without what differs
    between builds of one version.

    Line ends are made "\\n" (installers for Windows may differ). Raises Misuse where the interpreter came
    without its sources.
    """
    root = root or Path(sysconfig.get_paths()["stdlib"])
    kept = lambda name: name not in LEFT_OUT and not name.startswith(OF_THE_BUILD)
    names = walk(root, kept) if root.is_dir() else []
    files = [(name, read_text(root / name).replace(b"\r\n", b"\n")) for name in names if name.endswith(".py")]
    files = [(name, body) for name, body in files if body]
    if len(files) < MANY:
        has = f"{counted(len(files), 'usable file')} in {root}"
        what = f"this interpreter came without the sources of its standard library ({has})"
        raise Misuse(f"{what}; choose another text: --data {DEFAULT}, or --data PATH")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return by_path(STDLIB, f"standard library of {python}, {len(files)} files", files)


def folder_texts(root: Path) -> Corpus:
    """All text files under a folder, recursively. Hidden files are left out; so are binary ones, and `source`
    says how many.

    Raises Misuse where no text remains.
    """
    text = lambda body: None if why_not_text(body) else body
    found = [(name, text(read_text(root / name))) for name in walk(root, lambda name: name[0] != ".")]
    files = [(name, body) for name, body in found if body]
    binary = sum(body is None for _, body in found)
    source = f"{root}, {counted(len(files), 'text file')}, {counted(binary, 'binary file')} left out"
    if not files:
        why = f"{source}; empty and hidden files do not count"
        raise Misuse(f"--data {str(root)!r}: no text in this folder ({why})")
    name = root.resolve().name
    if len(files) < MANY:
        return last_tenth(name, source, joined_text(files))
    return by_path(name, source, files)


def text_of(path: Path) -> bytes:
    """The content of one text file. Raises Misuse where it is empty or binary."""
    body = read_text(path)
    if not body:
        raise Misuse(f"--data {str(path)!r}: the file is empty")
    if why := why_not_text(body):
        raise Misuse(f"--data {str(path)!r}: not a text file ({why}); expected UTF-8 without NUL bytes")
    return body


def why_not_text(body: bytes) -> str:
    """Empty for UTF-8 without NUL bytes, else what is wrong and at which byte."""
    if (at := body.find(0)) >= 0:
        return f"NUL at byte {at}"
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"no UTF-8 at byte {error.start}"
    return ""


def unpacked(entry: Entry, path: Path) -> bytes:
    """The text in the file `path`. Raises Damaged where there is none or size or SHA-256 are not the
    catalogue's.
    """
    try:
        body = lzma.decompress(read_text(path)) if path.exists() else b""
        found = f"{len(body)} bytes with SHA-256 {hashlib.sha256(body).hexdigest()}"
    except lzma.LZMAError as error:
        found = f"no whole xz file ({error})"
    if found != (expected := f"{entry.bytes} bytes with SHA-256 {entry.sha256}"):
        what = f"{path} is damaged: expected {expected} once decompressed, got {found}"
        raise Damaged(f"{what}; reinstall peref or restore the checkout, or choose another text with --data")
    return body


def walk(root: Path, keep: Callable[[str], bool]) -> list[str]:
    """Sorted relative paths (with "/") of the regular files under `root`, through folders and to files whose
    names `keep` accepts.

    Links to folders are not followed, and folders of runs are passed over. Raises PerefError for a folder
    that cannot be listed.
    """

    def refuse(error: OSError) -> None:
        with explained(Path(error.filename), "list"):
            raise error

    found = []
    for place, folders, names in os.walk(root, onerror=refuse):
        if "run.json" in names and Path(place) != root:
            folders.clear()
            continue
        folders[:] = filter(keep, folders)
        found += [path for name in filter(keep, names) if (path := Path(place, name)).is_file()]
    return sorted(path.relative_to(root).as_posix() for path in found)


def read_text(path: Path) -> bytes:
    """The bytes of a file. Raises PerefError where it cannot be read."""
    with explained(path, "read"):
        return path.read_bytes()


def last_tenth(name: str, source: str, body: bytes) -> Corpus:
    """Held out: the last 10 % of the bytes (rounded down)."""
    cut = len(body) - len(body) // 10
    return assemble(name, source, [("", body[:cut])], [("", body[cut:])], "last tenth")


def by_path(name: str, source: str, files: Files) -> Corpus:
    """Held out: the 5 % of the files (rounded up) whose paths have the smallest SHA-256. `files` are in
    order of their paths.
    """
    marks = {path: hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest() for path, _ in files}
    held = set(sorted(marks, key=lambda path: marks[path])[: -(-len(files) // MANY)])
    train, valid = ([f for f in files if (f[0] in held) == aside] for aside in (False, True))
    return assemble(name, source, train, valid, f"files, one in {MANY}")


def assemble(name: str, source: str, train: Files, valid: Files, held: str = "") -> Corpus:
    """A corpus of two lists of files. Its digest covers which part each file is in, its path, its size and
    its content.
    """
    digest = hashlib.sha256()
    for part, files in (("train", train), ("valid", valid)):
        for path, body in files:
            digest.update(f"{part}\0{path}\0{len(body)}\0".encode("utf-8", "surrogateescape") + body)
    parts = [np.frombuffer(joined_text(files), np.uint8) for files in (train, valid)]
    return Corpus(name, source, digest.hexdigest(), parts[0], parts[1], held)


def joined_text(files: Files) -> bytes:
    """Their contents with a newline between two files."""
    return b"\n".join(body for _, body in files)


def check_length(corpus: Corpus, length: int) -> None:
    """Raises Misuse unless a window of `length` inputs and one target more fits into both parts."""
    if min(corpus.train.size, corpus.valid.size) <= length:
        unit = "byte" if corpus.train.dtype == np.uint8 else "token"
        has = f"training has {counted(corpus.train.size, unit)} and validation {corpus.valid.size}"
        what = f"corpus {corpus.name!r} is too small for length {length}: {has}"
        raise Misuse(f"{what}, each needs at least {length + 1}; choose a shorter length or a larger text")


def batch(
    tokens: np.ndarray, seed: int, step: int, *, batch: int, length: int, part: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Random windows of `tokens` [N] and the tokens that follow each: inputs [B,T], targets [B,T], both
    int64.

    inputs = tokens[o:o+T], targets = tokens[o+1:o+T+1], with o uniform over the N - T places that fit. A pure
    function of its arguments; `part` numbers the micro-batches of one step. Raises Misuse where nothing fits.
    """
    if batch < 1 or length < 1:
        raise Misuse(f"a batch of {counted(batch, 'window')} of length {length}: expected at least 1 of each")
    if tokens.size <= length:
        what = f"a text of {counted(tokens.size, 'byte')} is too small for length {length}"
        raise Misuse(f"{what}: it needs at least {length + 1}")
    start = generator(seed, "batch", step, part).integers(tokens.size - length, size=(batch, 1))  # [B,1]
    at = start + np.arange(length)  # [B,T]
    return tokens[at].astype(np.int64), tokens[at + 1].astype(np.int64)


def yardsticks(train: np.ndarray, valid: np.ndarray) -> dict[str, float]:
    """What a model has to beat on the validation text, in bits per byte.

    unigram_bpb, bigram_bpb   byte counts c of the training text, add-one smoothed: (c(b) + 1) / (c() + 256),
                              (c(a,b) + 1) / (c(a) + 256); the first byte, which follows nothing, is scored by
                              the unigram in both
    xz_bpb                    8 * size of `xz -9` of the validation text alone / its size

    train, valid [N] uint8. Raises Misuse where the validation text is empty.
    """
    if not valid.size:
        raise Misuse("the validation text is empty: nothing to measure")
    one = np.bincount(train, minlength=256) + 1.0  # [V]
    two = np.bincount(byte_pairs(train), minlength=256 * 256).reshape(256, 256) + 1.0  # [V,V]
    one = -np.log2(one / one.sum())
    two = -np.log2(two / two.sum(1, keepdims=True))
    unigram = one[valid].mean()
    bigram = (one[valid[0]] + two.ravel()[byte_pairs(valid)].sum()) / valid.size
    # a dictionary as large as the text gives the size that 64 MB do, without the 700 MB that these take
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(4096, min(valid.size, 1 << 26))}]
    xz = 8 * len(lzma.compress(valid.tobytes(), filters=filters)) / valid.size
    return {"unigram_bpb": float(unigram), "bigram_bpb": float(bigram), "xz_bpb": xz}


def byte_pairs(tokens: np.ndarray) -> np.ndarray:
    """256 a + b for each byte a and the byte b after it: [N] uint8 -> [N-1] uint16."""
    return tokens[:-1] * np.uint16(256) + tokens[1:]
