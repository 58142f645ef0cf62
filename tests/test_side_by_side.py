"""eval of several runs: one table, one document, and what makes their numbers not to be compared."""

import json
from pathlib import Path

import pytest

TINY = ["--width", 16, "--heads", 2, "--layers", 1, "--steps", 2, "--batch", 2, "--backend", "numpy"]


@pytest.fixture
def cli(cli):
    """Runs a command line in a folder with two texts; gives exit code, stdout, stderr."""
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 60)
    Path("other.txt").write_text("a dog and a hog sat in the fog\n" * 60)
    return cli


def trained(cli, *words):
    code, out, err = cli("train", *TINY, *words, "--json")
    assert code == 0, err
    return json.loads(out)["run"]


def table_of(cli, *words):
    code, out, err = cli("eval", *words, "--backend", "numpy")
    assert code == 0, err
    return out, json.loads(cli("eval", *words, "--backend", "numpy", "--json")[1])


def test_a_row_each_with_the_numbers_of_eval_alone(cli):
    """A length that one of them was not evaluated at stays empty; the protocol is under the table."""
    runs = [trained(cli, "--pe", pe, "--len", L, "--data", "text.txt") for pe, L in (("rope", 8), ("t5", 16))]
    out, found = table_of(cli, *runs, "--bytes", 100)
    assert (found["differ"], list(found)) == ([], ["runs", "same", "differ"])
    for run, one in zip(runs, found["runs"], strict=True):
        alone = json.loads(cli("eval", run, "--bytes", 100, "--backend", "numpy", "--json")[1])
        assert one == alone
        assert Path(one["file"]).is_file()
    head, *rows = out.partition("\n\n")[2].splitlines()
    assert head.split() == ["run", "encoding", "trained", "at", "4", "8", "16", "32", "64"]
    assert rows[0].split()[1:3] == ["rope", "8"]
    assert rows[0].split()[3:] == [f"{row['bpb']:.4f}" for row in found["runs"][0]["rows"]]
    assert "100 bytes; non-overlapping; bits/byte" in out
    assert "NOTE" not in out


def test_what_differs_is_told(cli):
    """Texts, strides that follow the length trained for, bytes of a text that ends, and masked bytes."""
    first = trained(cli, "--pe", "rope", "--len", 8, "--data", "text.txt")
    other = trained(cli, "--pe", "rope", "--len", 8, "--data", "other.txt")
    longer = trained(cli, "--pe", "rope", "--len", 16, "--data", "text.txt")
    masked = trained(cli, "--pe", "rope", "--len", 8, "--data", "text.txt", "--no-causal")
    for words, key in (
        ([first, other], ["corpus"]),
        ([first, longer, "--protocol", "sliding"], ["protocol"]),
        ([first, masked], ["unit"]),
        ([first, longer], []),
    ):
        out, found = table_of(cli, *words, "--bytes", 100)
        assert found["differ"] == key
        assert out.count("NOTE") == len(key)
    Path("short.txt").write_text("a dog\n" * 150)
    short = trained(cli, "--pe", "rope", "--len", 8, "--data", "short.txt")
    assert table_of(cli, first, short, "--bytes", 100)[1]["differ"] == ["corpus", "bytes"]


def test_what_is_refused_is_refused_before_anything_is_evaluated(cli):
    first = trained(cli, "--pe", "rope", "--len", 8, "--data", "text.txt")
    table = trained(cli, "--pe", "learned", "--len", 8, "--data", "text.txt")
    task = trained(cli, "--task", "reverse", "--encoder", "rope", "--len", 4)
    for words, said in (
        ([first, first], "is named twice"),
        ([first, table, "--len", 16], "learned"),
        ([first, task], "evaluate them apart"),
        ([first, table, "--runs", "runs"], "leave one of them out"),
    ):
        code, _, err = cli("eval", *words, "--backend", "numpy")
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    assert not list(Path(first, "eval").iterdir())


def test_tasks_side_by_side(cli):
    of = ["--task", "reverse", "--encoder", "rope", "--len", 4]
    runs = [trained(cli, *of, "--pe", pe) for pe in ("alibi", "rope")]
    out, found = table_of(cli, *runs, "--samples", 5)
    assert [row["exact"] for row in found["runs"][1]["rows"]] == [float(x) for x in line_of(out, 1)]
    assert "answers of reverse that are exactly right; 5 held-out samples a length" in out


def line_of(out, n):
    return out.partition("\n\n")[2].splitlines()[1 + n].split()[3:]
