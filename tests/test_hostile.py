"""Hostile files: tensors, words and sums that are not what they claim are refused in one line, by every
command that reads them; a bit is noticed.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import struct
from pathlib import Path

import pytest
from golden_files import cli, two_cases

from peref.errors import Damaged
from peref.golden.judge.process import tensors_written
from peref.golden.spec.book import Book
from peref.golden.spec.checksums import SUMS, Untrue, in_folder, parsed_sums, sha256sums
from peref.golden.spec.files import DEEPEST, read_tensors, strict_json, tensors

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of two small cases."""
    return two_cases(tmp_path_factory.mktemp("made") / "small")


@pytest.fixture
def small(made, tmp_path):
    """A copy of it, and the book of that."""
    shutil.copytree(made, tmp_path / "small")
    return Book(tmp_path / "small")


def refused(capsys, *args):
    """In one line that is no traceback."""
    code, text = cli(capsys, *args)
    assert code in (1, 2, 3), text
    assert text.startswith("error: "), text
    assert "internal error" not in text
    assert text.count("\n") == 1
    assert len(text) < 600


def everything(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


# ---------------------------------------------------------------- tensor files: of a candidate, of a runner,
# of a golden folder


def file_of(header, payload=b"\0" * 8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def one(name="x", **changes):
    return {name: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], **changes}}


def several(*described):
    return {
        f"x{n}": {"dtype": "F64", "shape": [1], "data_offsets": list(offsets)}
        for n, offsets in enumerate(described)
    }


GOOD = b'"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}'
HOSTILE = {
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "no header": struct.pack("<Q", 0),
    "header beyond the end": file_of(one(), length=10_000),
    "header of 2**63": file_of(one(), length=2**63),
    "header of all ones": file_of(one(), length=2**64 - 1),
    "header of 100 MB": struct.pack("<Q", 100_000_000) + b"{",
    "not JSON": file_of(b"{hello}"),
    "blank before it": file_of(b" {" + GOOD + b"}"),
    "a list": file_of(b"[1]"),
    "a number": file_of(b"1"),
    "bad UTF-8": file_of(b'{"\xff":1}'),
    "UTF-16": file_of("{}".encode("utf-16")),
    "text after the end": file_of(b"{" + GOOD + b"}{}"),
    "NUL after the end": file_of(b"{" + GOOD + b"}\0\0"),
    "a key twice": file_of(b"{" + GOOD + b"," + GOOD + b"}"),
    "a field twice": file_of(b'{"x":{"dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,8]}}'),
    "meta twice": file_of(b'{"__metadata__":{},"__metadata__":{},' + GOOD + b"}"),
    "NaN": file_of(b'{"x":{"dtype":"F64","shape":[NaN],"data_offsets":[0,8]}}'),
    "Infinity": file_of(b'{"x":{"dtype":"F64","shape":[Infinity],"data_offsets":[0,8]}}'),
    "minus Infinity": file_of(b'{"x":{"dtype":"F64","shape":[1],"data_offsets":[-Infinity,8]}}'),
    "1e999": file_of(b'{"x":{"dtype":"F64","shape":[1e999],"data_offsets":[0,8]}}'),
    "deep lists": file_of(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep objects": file_of(b'{"x":' * 50 + b"1" + b"}" * 50),
    "a number of 5,000 digits": file_of(
        b'{"x":{"dtype":"F64","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}'
    ),
    "path up": file_of(one("../../etc/passwd")),
    "path up inside": file_of(one("a/../b")),
    "path at the end": file_of(one("a/..")),
    "absolute path": file_of(one("/etc/passwd")),
    "backslashes": file_of(one("..\\..\\x")),
    "NUL in a name": file_of(one("x\0y")),
    "newline in a name": file_of(one("x\ny")),
    "blank in a name": file_of(one("x y")),
    "empty name": file_of(one("")),
    "a dot": file_of(one("./x")),
    "other letters": file_of(one("\u202ex")),
    "escape sequence": file_of(one("\x1b[2Jx")),
    "a name of 10,000 letters": file_of(one("x" * 10_000)),
    "unknown dtype": file_of(one(dtype="F128")),
    "dtype no text": file_of(one(dtype=["F64"])),
    "dtype null": file_of(one(dtype=None)),
    "shape negative": file_of(one(shape=[-1])),
    "shape real": file_of(one(shape=[1.0])),
    "shape true": file_of(one(shape=[True])),
    "shape text": file_of(one(shape="1")),
    "shape of text": file_of(one(shape=["1"])),
    "shape overflows": file_of(one(shape=[2**40, 2**40])),
    "shape beyond 2**53": file_of(one(shape=[2**60])),
    "shape wraps to the right size": file_of(one(shape=[2**32, 2**32, 1])),
    "forty axes": file_of(one(shape=[1] * 40)),
    "offsets backward": file_of(one(data_offsets=[8, 0])),
    "offsets negative": file_of(one(data_offsets=[-8, 0])),
    "offsets beyond": file_of(one(data_offsets=[8, 16])),
    "offsets real": file_of(one(data_offsets=[0.0, 8.0])),
    "offsets of three": file_of(one(data_offsets=[0, 8, 16])),
    "offsets null": file_of(one(data_offsets=None)),
    "offsets too short for the shape": file_of(one(data_offsets=[0, 4])),
    "overlap": file_of(several((0, 8), (4, 12)), b"\0" * 12),
    "the same bytes": file_of(several((0, 8), (0, 8))),
    "a hole": file_of(several((0, 8), (16, 24)), b"\0" * 24),
    "a hole in front": file_of(one(data_offsets=[8, 16]), b"\0" * 16),
    "bytes left over": file_of(one(), b"\0" * 16),
    "payload missing": file_of(one(), b""),
    "a field missing": file_of({"x": {"dtype": "F64", "shape": [1]}}),
    "a field too many": file_of(one(more=1)),
    "a tensor that is a number": file_of({"x": 1}),
    "a tensor that is null": file_of({"x": None}),
    "meta no object": file_of({"__metadata__": [1], **one()}),
    "meta of numbers": file_of({"__metadata__": {"a": 1}, **one()}),
}


def test_a_file_of_another_kind_is_said_to_be_one():
    with pytest.raises(Damaged, match="x: not a safetensors file, or cut short: it has 10 bytes"):
        tensors(struct.pack("<Q", 100_000_000) + b"{}", "x")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name, tmp_path, capsys):
    """In one line, by `check` and by `diff`; nothing is written anywhere."""
    path = tmp_path / "in" / "x.safetensors"
    path.parent.mkdir()
    path.write_bytes(HOSTILE[name])
    with pytest.raises(Damaged, match=r"x\.safetensors: "):
        read_tensors(path)
    with pytest.raises(Damaged, match=r"x\.safetensors: "):
        tensors_written(path, 1 << 30)
    for args in (["diff", path, path], ["diff", path.parent, path]):
        refused(capsys, *args)
    assert everything(tmp_path) == ["in", "in/x.safetensors"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_in_a_golden_folder_is_refused(name, small):
    """Also where all digests are right."""
    for part in ("inputs", "expected"):
        (small.folder / "rope" / f"{part}.safetensors").write_bytes(HOSTILE[name])
    signed_again(small.folder)
    before = everything(small.folder.parent)
    with pytest.raises(Untrue):
        _ = Book(small.folder).entries
    assert everything(small.folder.parent) == before


def test_check_refuses_them_too(capsys, tmp_path, made):
    """A few of them, as a candidate."""
    for name in list(HOSTILE)[::9]:
        (tmp_path / "x.safetensors").write_bytes(HOSTILE[name])
        refused(capsys, "check", tmp_path / "x.safetensors", "--golden", made)
    refused(capsys, "check", tmp_path / "absent.safetensors", "--golden", made)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(capsys, "check", tmp_path / "loop", "--golden", made)


def test_a_good_file_is_none():
    assert list(tensors(file_of(b"{" + GOOD + b"}   "), "x")) == ["x"]
    assert list(tensors(file_of({"__metadata__": {"a": "b"}, **one("rope.op/default:q")}), "x")) == [
        "rope.op/default:q"
    ]
    assert tensors(
        file_of({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"\x80\x3f\x00\xc0"), "x"
    )["x"].wide.tolist() == [1.0, -2.0]


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 60
    assert len(CRAFTED) >= 40


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a":1,"a":2}',
        b"NaN",
        b"[1e999]",
        b"\xff",
        b"[" * (DEEPEST + 2) + b"]" * (DEEPEST + 2),
        b"1" * 5000,
    ],
)
def test_hostile_json_is_refused(text):
    with pytest.raises(Damaged):
        strict_json(text, "x")


HEX = "0" * 64
BAD_SUMS = [
    "",
    "x\n",
    f"{HEX}  a",
    f"{HEX}  ../a\n",
    f"{HEX}  /a\n",
    f"{HEX}  a/../../b\n",
    f"{HEX} a\n",
    f"{HEX}  a\n{HEX}  a\n",
    f"{HEX[:-1]}A  a\n",
]
BAD_SUMS += [
    f"{HEX}  a\\b\n",
    f"{HEX}  a b\n",
    f"{HEX}  ./a\n",
    f"{HEX}  a//b\n",
    f"{HEX}  a\n\n",
    f"{HEX}  a\r\n",
    f"{HEX}  \xe4\n",
    f"{HEX[1:]}  a\n",
]


@pytest.mark.parametrize("text", BAD_SUMS)
def test_hostile_sums_are_refused(text):
    with pytest.raises(Untrue):
        parsed_sums(text.encode(), "x")


def test_a_flipped_bit_anywhere_is_noticed(small):
    """Every bit of the files of one encoding, sums included; of the words, which are long, every seventh."""
    files = sorted(p for p in (small.folder / "alibi").iterdir())
    digests = parsed_sums((small.folder / "alibi" / SUMS).read_bytes(), "x")
    for path in files:
        data = bytearray(path.read_bytes())
        for bit in range(0, 8 * len(data), 7 if path.name == "cases.json" else 1):
            data[bit // 8] ^= 1 << bit % 8
            if path.name == SUMS:
                with contextlib.suppress(Untrue):
                    assert parsed_sums(bytes(data), "x") != digests
            else:
                assert hashlib.sha256(data).hexdigest() != digests[path.name]
            if bit % 4999 == 0:
                path.write_bytes(data)
                with pytest.raises(Untrue):
                    Book(small.folder)
            data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    assert Book(small.folder).data == small.data


def signed_again(folder):
    """SHA256SUMS for what now stands in the folders, as somebody hostile would make it."""
    for place in (p for p in folder.iterdir() if p.is_dir()):
        (place / SUMS).write_bytes(
            sha256sums({p.name: p.read_bytes() for p in place.iterdir() if p.name != SUMS})
        )


# ---------------------------------------------------------------- golden folders


def no_words(folder):
    (folder / "rope" / "cases.json").write_text("{}")


def words_changed(**changes):
    def change(folder):
        path = folder / "rope" / "cases.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def other_index(folder):
    path = folder / "rope" / "index.txt"
    path.write_text(path.read_text().replace(" 2 ", " 3 ", 1))


def case_changed(**changes):
    def change(folder):
        path = folder / "rope" / "cases.json"
        words = json.loads(path.read_text())
        words["cases"][0] |= changes
        path.write_text(json.dumps(words))

    return change


def twice(folder):
    path = folder / "rope" / "cases.json"
    words = json.loads(path.read_text())
    words["cases"] *= 2
    path.write_text(json.dumps(words))


def changed_text(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


def reversed_lines(path):
    path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")


def later_version(folder):
    (folder / "SPEC_VERSION").write_text("7.0.0\n")


def no_version(folder):
    (folder / "SPEC_VERSION").unlink()


def nothing_left(folder):
    for name in ("rope", "alibi"):
        shutil.rmtree(folder / name)


def exchanged(folder):
    (folder / "rope").rename(folder / "t5")


CRAFTED = {
    "no words": no_words,
    "of another encoding": words_changed(encoding="alibi"),
    "a folder with another name": exchanged,
    "an empty folder": lambda folder: (folder / "t5").mkdir(),
    "a folder with blanks": lambda folder: (folder / "rope").rename(folder / "r ope"),
    "other index": other_index,
    "id outside": case_changed(id="../../x"),
    "no reason": case_changed(why=""),
    "unknown flag": case_changed(flags=["nobody.knows"]),
    "more inputs": case_changed(inputs=["absent"]),
    "more outputs": case_changed(expected=["absent"]),
    "numbers for names": case_changed(expected=[1]),
    "a field more": case_changed(extra=1),
    "depth no number": case_changed(depth="3"),
    "depth huge": case_changed(depth=10**400),
    "depth negative": case_changed(depth=-1),
    "depth true": case_changed(depth=True),
    "axes of numbers": case_changed(axes={"q_rotated": 4}),
    "axes too few": case_changed(axes={"q_rotated": "BT"}),
    "axes of nothing": case_changed(axes={"absent": "BT"}),
    "axes a list": case_changed(axes=["BT"]),
    "flags a text": case_changed(flags="basic"),
    "flags of lists": case_changed(flags=[["basic"]]),
    "facts a list": case_changed(facts=[]),
    "options null": case_changed(options=None),
    "id with an escape": case_changed(id="rope.op/\x1b[2J"),
    "id of 100,000": case_changed(id="rope.op/" + "x" * 100_000),
    "two cases alike": twice,
    "index cut": lambda folder: (folder / "rope/index.txt").write_text(""),
    "index other offset": lambda folder: changed_text(folder / "rope/index.txt", " F64 ", " F32 "),
    "index in other order": lambda folder: reversed_lines(folder / "rope/index.txt"),
    "words no JSON": lambda folder: (folder / "rope/cases.json").write_text("{'a': 1}"),
    "words with NaN": lambda folder: (folder / "rope/cases.json").write_text('{"cases": [NaN]}'),
    "words twice": lambda folder: (folder / "rope/cases.json").write_text('{"cases": [], "cases": []}'),
    "words of UTF-16": lambda folder: (folder / "rope/cases.json").write_bytes("{}".encode("utf-16")),
    "words a number of 5,000 digits": lambda folder: (folder / "rope/cases.json").write_text("9" * 5000),
    "cases null": lambda folder: (folder / "rope/cases.json").write_text('{"cases": null}'),
    "a case null": lambda folder: (folder / "rope/cases.json").write_text('{"cases": [null]}'),
    "flags null": words_changed(flags=None),
    "another schema": words_changed(schema="peref/cases/1"),
    "a word more": words_changed(more=1),
    "a refusal null": words_changed(refusals=[None]),
    "a refusal of a number": words_changed(refusals=[{"id": 1}]),
    "a law of nothing": words_changed(laws=[{}]),
    "laws an object": words_changed(laws={}),
    "no digests": lambda folder: (folder / "rope" / SUMS).unlink(),
    "version of letters": lambda folder: (folder / "SPEC_VERSION").write_text("0.x.0\n"),
    "version of 5,000 digits": lambda folder: (folder / "SPEC_VERSION").write_text("9" * 5000),
    "version with bytes": lambda folder: (folder / "SPEC_VERSION").write_bytes(b"\xff\xfe"),
    "later version": later_version,
    "no version": no_version,
    "nothing left": nothing_left,
    "words a list": lambda folder: (folder / "rope/cases.json").write_text("[]"),
    "words deep": lambda folder: (folder / "rope/cases.json").write_text("[" * 100_000),
    "tensors cut": lambda folder: (folder / "rope/inputs.safetensors").write_bytes(b"\0" * 8),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_folder_is_refused(name, small, capsys):
    """Also where all digests are right, and in one line."""
    CRAFTED[name](small.folder)
    if name not in ("no digests", "an empty folder"):
        signed_again(small.folder)
    with pytest.raises(Untrue):
        _ = Book(small.folder).entries
    before = everything(small.folder.parent)
    refused(capsys, "golden", "verify", small.folder)
    assert everything(small.folder.parent) == before


LINKS = {
    "out of the folder": ("rope/index.txt", lambda path, outside: path.symlink_to(path.rename(outside))),
    "to itself": ("rope/index.txt", lambda path, _: (path.unlink(), path.symlink_to(path.name))),
    "to nothing": ("rope/more", lambda path, outside: path.symlink_to(outside)),
    "to the folder it is in": ("rope/more", lambda path, _: path.symlink_to(path.parent)),
    "an encoding": ("rope", lambda path, outside: path.symlink_to(path.rename(outside))),
    "an encoding to itself": ("more", lambda path, _: path.symlink_to(path.name)),
    "the version to itself": ("SPEC_VERSION", lambda path, _: (path.unlink(), path.symlink_to(path.name))),
    "hard": ("rope/index.txt", lambda path, outside: os.link(path, outside)),
}


@pytest.mark.parametrize("name", LINKS)
def test_golden_files_are_no_links(name, small, capsys, tmp_path):
    """And have no second name; nor are they found where links go in a circle."""
    inside, change = LINKS[name]
    change(small.folder / inside, tmp_path / "elsewhere")
    with pytest.raises(Untrue, match=f"^{re.escape(str(small.folder / inside))}: "):
        Book(small.folder)
    refused(capsys, "golden", "verify", small.folder)


def test_nothing_at_a_place_is_told_with_what_belongs_there(capsys, tmp_path):
    code, said = cli(capsys, "golden", "verify", tmp_path / "nowhere")
    assert code == 3
    for words in (
        "nowhere: nothing is there",
        "SPEC_VERSION and a folder for each encoding",
        "golden archive",
    ):
        assert words in said, said
    os.mkfifo(tmp_path / "pipe")
    code, said = cli(capsys, "golden", "verify", tmp_path / "pipe")
    assert (code, "pipe: is no folder; expected a folder with SPEC_VERSION" in said) == (3, True), said


def test_a_folder_that_may_not_be_looked_into(small, monkeypatch):
    """Is no absence; and it is said as of a file. Root may look everywhere, so the system is asked."""
    look = os.stat

    def refusing(path, *args, **how):
        if Path(path).name == "core":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, *args, **how)

    monkeypatch.setattr("os.stat", refusing)
    with pytest.raises(Untrue, match="core: cannot look at: Permission denied"):
        Book(small.folder)


def test_a_folder_that_is_a_loop_of_links(capsys, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(Untrue, match="loop: cannot look at: Too many levels"):
        Book(tmp_path / "loop")
    refused(capsys, "golden", "verify", tmp_path / "loop")


def test_our_own_files_may_have_several_names(small, monkeypatch, tmp_path):
    """For installers link what they install; and a link may lead to the folder."""
    os.link(small.folder / "rope" / "index.txt", tmp_path / "elsewhere")
    monkeypatch.setattr("peref.share.folder", lambda name: small.folder)
    assert Book(small.folder).data == small.data
    (tmp_path / "link").symlink_to(small.folder)
    assert Book(tmp_path / "link").data == small.data


def test_a_file_more_or_less_is_noticed(small):
    (small.folder / "rope" / "more.txt").write_text("x")
    with pytest.raises(Untrue, match=r"more\.txt: not in SHA256SUMS"):
        Book(small.folder)
    (small.folder / "rope" / "more.txt").unlink()
    (small.folder / "rope" / "index.txt").unlink()
    with pytest.raises(Untrue, match=r"index\.txt: missing"):
        Book(small.folder)


@pytest.mark.parametrize("part", ["core", "full"])
def test_a_flipped_bit_in_the_committed_files_is_noticed(part, tmp_path):
    """Five of every file; of one file of each name, sums too, three are written to disk and read by what
    every command reads with.
    """
    folder = tmp_path / part
    shutil.copytree(GOLDEN / part, folder)
    shutil.copy(GOLDEN / "SPEC_VERSION", tmp_path)
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    assert in_folder(folder).keys() == {"SPEC_VERSION", *(p.relative_to(folder).as_posix() for p in paths)}
    kinds = set({p.name: p for p in paths}.values())
    assert {p.name for p in kinds} == {
        "cases.json",
        "expected.safetensors",
        "index.txt",
        "inputs.safetensors",
        SUMS,
    }
    for path in paths:
        data, digests = bytearray(path.read_bytes()), parsed_sums((path.parent / SUMS).read_bytes(), "x")
        for n, bit in enumerate((0, 8 * len(data) - 1, len(data) * 3, len(data) * 5, 1)):
            data[bit // 8] ^= 1 << bit % 8
            if path in kinds and n < 3:
                path.write_bytes(data)
                with pytest.raises(Untrue, match=r"SHA-256|SHA256SUMS"):
                    in_folder(folder)
            if path.name != SUMS:
                assert hashlib.sha256(data).hexdigest() != digests[path.name]
            data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    assert in_folder(folder)


def test_a_flipped_bit_of_the_version_is_noticed(tmp_path):
    """Of the version and of its digest, every one; an older folder, without a digest, is read."""
    shutil.copytree(GOLDEN / "core" / "sincos_2d", tmp_path / "sincos_2d")
    for name in ("SPEC_VERSION", SUMS):
        shutil.copy(GOLDEN / name, tmp_path)
    assert in_folder(tmp_path)
    for name in ("SPEC_VERSION", SUMS):
        data = bytearray((tmp_path / name).read_bytes())
        for bit in range(8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8
            (tmp_path / name).write_bytes(data)
            with pytest.raises(Untrue):
                in_folder(tmp_path)
            data[bit // 8] ^= 1 << bit % 8
        (tmp_path / name).write_bytes(data)
    (tmp_path / SUMS).unlink()
    assert in_folder(tmp_path)
