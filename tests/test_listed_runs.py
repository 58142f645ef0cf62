"""The command runs: what it lists, what it removes, and what it leaves alone."""

import json
from pathlib import Path

import pytest

from benchmarks.faults import copied
from peref.records import sealed
from peref.runs import open_run

SMALL = ["--width", "16", "--heads", "2", "--layers", "1", "--backend", "numpy", "--steps", "2", "--json"]


@pytest.fixture
def cli(cli):
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 60)
    return cli


@pytest.fixture
def trained(cli):
    """Two runs of text, the second from the first, and one of a task."""
    made = []
    for words in (
        ["--pe", "rope", "--len", "8", "--data", "text.txt"],
        ["--from", "--len", "16"],
        ["--task", "reverse", "--encoder", "rope", "--pe", "alibi", "--len", "6", "--batch", "2"],
    ):
        code, out, err = cli("train", *SMALL, *words)
        assert code == 0, out + err
        made.append(json.loads(out)["run"])
    return made


def test_what_is_listed(cli, trained):
    code, out, _ = cli("runs", "--json")
    assert code == 0
    rows = {row["run"]: row for row in json.loads(out)["runs"]}
    assert sorted(rows) == sorted(trained)
    first, second, task = (rows[name] for name in trained)
    assert (first["encoding"], first["length"], first["step"], first["steps"]) == ("rope", 8, 2, 2)
    assert first["val"] == open_run(first["run"]).metrics.read()[-1]["valid"]
    assert first["size"] == sum(path.stat().st_size for path in Path(first["run"]).rglob("*"))
    assert (first["parent"], second["parent"]) == (None, str(Path(trained[0]).resolve()))
    assert (task["data"], task["encoding"]) == ("reverse", "alibi")
    code, out, _ = cli("runs", trained[0])
    assert code == 0
    assert trained[0] in out
    assert trained[1] not in out


def test_a_damaged_run_is_told_beside_the_others(cli, trained):
    Path(trained[0], "run.json").write_text("{}")
    code, out, _ = cli("runs")
    assert code == 0
    assert "damaged" in out
    assert trained[1] in out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"L": "x"}, 'config.L is "x"; expected a whole number'),
        ({"L": None}, "config.L is null"),
        ({}, "4/12"),
    ],
)
def test_a_strange_record_with_a_right_seal_is_told_beside_the_others(cli, tmp_path, change, said):
    """Of a record without a length that is left out."""
    run = copied(4, tmp_path)
    record = run.record
    del record["config"]["L"]
    record["config"] |= change
    (run.folder / "run.json").write_text(sealed(record))
    code, out, err = cli("runs", run.folder)
    assert (code, said in out) == (0, True), out + err


def test_runs_are_removed_whole_and_no_others(cli, trained):
    code, out, _ = cli("runs", "--remove", trained[0], trained[2])
    assert code == 0, out
    assert out.split() == ["removed", trained[0], "removed", trained[2]]
    assert [str(path) for path in Path("runs").iterdir()] == [trained[1]]


def test_a_link_to_a_run_is_not_removed(cli, trained):
    """Nor is anything beside it: the link would be gone, and the run still there."""
    Path("link").symlink_to(trained[0])
    code, _, err = cli("runs", "--remove", trained[1], "link")
    assert (code, "link is a link to" in err) == (2, True)
    assert Path("link").is_symlink()
    assert all(Path(run).is_dir() for run in trained)


@pytest.mark.parametrize("last", ["text.txt", "runs", "gone"])
def test_nothing_is_removed_where_one_is_no_run(cli, trained, last):
    code, _, err = cli("runs", "--remove", *trained, last)
    assert code in (1, 2)
    assert f"error: {last}" in err
    assert len(list(Path("runs").iterdir())) == 3


def test_a_run_in_use_stays(cli, trained):
    with open_run(trained[0]).lock():
        code, _, err = cli("runs", "--remove", trained[0])
    assert (code, "in use by pid" in err) == (1, True)
    assert Path(trained[0], "ckpt").is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--remove"], "by name"), (["x", "--runs", "y"], "leave it out"), (["x"], "no run.json")],
)
def test_what_is_misuse(cli, words, said):
    code, _, err = cli("runs", *words)
    assert code == 2
    assert said in err


def test_an_empty_folder_has_none(cli):
    assert cli("runs") == (0, "runs: no run\n", "")
