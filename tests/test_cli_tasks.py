"""The command line of tasks and masked tokens: train, resume, evaluate, answer; and what is refused."""

import json
import re
from pathlib import Path

import pytest
from check import same_numbers

from peref import data, share
from peref.runs import newest
from peref.tasks import TASKS, Exercise

SMALL = ["--width", "16", "--heads", "2", "--layers", "1", "--backend", "numpy", "--steps", "4"]
REVERSE = ["--task", "reverse", "--encoder", "rope", "--pe", "alibi", "--len", "6", "--batch", "4", *SMALL]


@pytest.fixture
def cli(cli):
    """Runs a command line in an empty folder; gives exit code, stdout, stderr."""
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 60)
    return cli


def document(cli, *args):
    code, out, err = cli(*args, "--backend", "numpy", "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_task_is_trained_evaluated_and_answered(cli):
    """By the newest run of the task, whatever came after it; a prompt is a source."""
    code, out, err = cli("train", *REVERSE)
    assert code == 0, err
    for words in ("encoder       rope", "decoder       alibi", "of answers exactly right", "bits/token"):
        assert words in out
    assert "next          peref eval --task reverse --len 12" in out.replace("python cli.py", "peref")
    cli("train", *SMALL, "--len", 8, "--data", "text.txt")
    found = document(cli, "eval", "--task", "reverse", "--samples", 20)
    assert [row["length"] for row in found["rows"]] == [3, 6, 12]
    assert all(0 <= row["low"] <= row["exact"] <= row["high"] <= 1 for row in found["rows"])
    assert {row["samples"] for row in found["rows"]} == {20}
    one = document(cli, "generate", "--task", "reverse", "--prompt", "abcd")
    assert [answer["source"] for answer in one["answers"]] == ["abcd"]
    ten = document(cli, "generate", found["run"])["answers"]
    assert len(ten) == 10
    assert all(answer["exact"] == (answer["answer"] == answer["source"][::-1]) for answer in ten)
    right = sum(answer["exact"] for answer in ten)
    assert f"{right} of 10 exactly right" in cli("generate", found["run"], "--backend", "numpy")[1]


def test_a_decoder_alone_is_trained_evaluated_and_resumed(cli):
    """Of a task in a text the text may lie elsewhere by then; another one is refused."""
    words = ["--task", "passkey", "--pe", "rope", "--data", "text.txt", "--len", 48, *SMALL]
    code, out, err = cli("train", *words)
    assert code == 0, err
    assert "passkey: five digits hidden in a text; lengths of 45 to 48" in out
    assert "bits/token" in out
    found = document(cli, "eval", "--task", "passkey", "--samples", 10, "--len", 96)
    assert [row["length"] for row in found["rows"]] == [48, 96]
    assert all(len(row["by_depth"]) == 5 for row in found["rows"])
    assert found["effective"] == 0
    corpus = data.corpus("text.txt")
    assert found["sha256"] == Exercise("passkey", 48, True, corpus).sha256
    assert (found["config"]["L"], found["environment"]["code"]) == (48, share.code())
    out = cli("eval", found["run"], "--samples", 10, "--backend", "numpy")[1]
    effective = (
        "effective     not learned (the longest length with 95% exactly right there and at all shorter ones)"
    )
    for said in ("encoding      rope", "at 0%  at 25%", effective):
        assert said in out
    Path("text.txt").rename("moved.txt")
    assert document(cli, "eval", "--data", "moved.txt", "--samples", 10, "--len", 96) == found
    Path("text.txt").write_text("another\n" * 600)
    assert "is not the text that" in cli("eval", "--backend", "numpy")[2]
    Path("moved.txt").rename("text.txt")
    for held in document(cli, "generate", found["run"])["answers"]:
        assert held["source"].endswith("The pass key is ")
        assert held["exact"] == (held["answer"] == re.search(r"key is (\d+)\.", held["source"])[1])
    one = document(cli, "generate", "--prompt", "the cat sat")["answers"]
    assert [(len(one), one[0]["exact"])] == [(1, None)]
    code, _, err = cli("train", "--from", found["run"], "--len", 50, "--steps", 2, "--backend", "numpy")
    assert code == 0, err
    record = newest("runs", task="passkey").record
    assert (record["config"]["L"], record["data"]["longest"], record["parent"]["step"]) == (50, 50, 4)
    assert (record["recipe"]["batch"], record["recipe"]["steps"]) == (TASKS["passkey"].recipe["batch"], 2)


def test_a_decoder_alone_answers_letters_up_to_its_end_mark(cli):
    """A prompt is a source, as of an encoder and a decoder, whose weights --from does not take."""
    assert cli("train", "--task", "copy", "--pe", "none", "--len", 3, "--batch", 2, *SMALL)[0] == 0
    (one,) = document(cli, "generate", "--task", "copy", "--prompt", "abcd")["answers"]
    assert (one["source"], one["exact"]) == ("abcd", one["answer"] == "abcd")
    answers = document(cli, "generate", "--task", "copy")["answers"]
    assert [len(one["source"]) for one in answers] == [3] * 10
    cli("train", *REVERSE)
    assert "is an encoder and a decoder" in cli("train", "--from")[2]


def test_sizes_and_steps_of_a_task_are_its_own_unless_said(cli):
    code, _, err = cli(
        "train", "--task", "copy", "--pe", "rope", "--len", 4, "--backend", "numpy", "--steps", 1
    )
    assert code == 0, err
    record = newest("runs", task="copy").record
    task = TASKS["copy"]
    assert {key: record["config"][key] for key in task.model} == task.model
    assert record["recipe"]["batch"] == task.recipe["batch"]
    assert (record["config"]["L"], record["recipe"]["steps"]) == (9, 1)


def test_on_cupys_arrays_a_task_is_what_it_is_on_numpys(cli, cupy):
    """Loss of the training, share of right answers, answers."""
    found = {}
    for name in ("numpy", "cupy"):
        words = (["train", *REVERSE, "--dtype", "float64"], ["eval", "--samples", 9], ["generate"])
        on = ["--task", "reverse", "--runs", name, "--backend", name, "--json"]
        made, rows, wrote = (json.loads(cli(*one, *on)[1]) for one in words)
        assert {made["backend"], wrote["backend"]} == {name}
        found[name] = made["val"]["loss"], rows["rows"], wrote["answers"]
    same_numbers(found["cupy"][0], found["numpy"][0], 1e-12)
    assert found["cupy"][1:] == found["numpy"][1:]


@pytest.mark.parametrize("command", ["eval", "generate"])
def test_weights_of_a_task_that_give_no_finite_numbers_are_said_to_be_so(cli, command):
    """Each is finite, and yet no loss and no logits are; nothing is stored."""
    cli("train", *REVERSE)
    run = newest("runs")
    arrays, _ = run.checkpoint(4)
    big = {"p/decoder.norm.weight": 3e38, "p/decoder.embed.weight": 100.0}
    run.save(4, {name: (a * big.get(name, 1)).astype(a.dtype) for name, a in arrays.items()}, {})
    code, out, err = cli(command, "--task", "reverse", "--backend", "numpy")
    assert (code, out.partition("backend")[2].count("\n")) == (1, int(command == "eval"))
    assert "these weights give no finite numbers" in err
    assert err.count("\n") == 1
    assert not list((run.folder / "eval").iterdir())


def test_settings_of_the_encoder_are_the_encoders(cli):
    """And what is to be run next names the run where it is not among the usual ones."""
    code, out, err = cli(
        "train", *REVERSE, "--set", "encoder.base=500", "--set", "3.window=4", "--runs", "mine"
    )
    assert code == 2
    assert "0 to 0" in err
    code, out, err = cli("train", *REVERSE, "--set", "encoder.base=500", "--runs", "mine")
    assert code == 0, err
    record = json.loads(next(Path("mine").glob("*/run.json")).read_text())
    assert "500" in json.dumps(record["config"]["encoder"]["pe"])
    assert "eval mine/" in out


def test_an_encoder_fills_in_masks(cli):
    """And says what its bits are of; it does not generate."""
    code, out, err = cli("train", *SMALL, "--no-causal", "--pe", "rope", "--len", 8, "--data", "text.txt")
    assert code == 0, err
    assert "15% of them asked as masked tokens" in out
    assert "bits/masked byte" in out
    code, out, _ = cli("eval", "--len", 16, "--bytes", 100, "--backend", "numpy")
    assert code == 0
    assert "bits/masked byte" in out
    assert "masked tokens: 15% of the bytes are asked" in out
    assert cli("generate")[2] == "error: only a causal model generates; this one reads both ways\n"


REFUSED = {
    "no task": (["train", "--encoder", "rope"], "add --task reverse"),
    "an encoder of one sequence": (
        ["train", "--task", "mqar", "--encoder", "rope"],
        "the task mqar is one sequence, for a decoder alone; leave out the encoder",
    ),
    "too short": (["train", "--task", "passkey", "--len", "44"], "is 44; expected at least 45"),
    "a text of none": (["train", "--task", "copy", "--data", "text.txt"], "copy has no text"),
    "a text that is too short": (
        ["train", "--task", "passkey", "--len", "400", "--data", "text.txt"],
        "186 bytes held out, too few for length 400",
    ),
    "a decoder of both ways": (
        ["train", "--task", "copy", "--no-causal"],
        "leave out --valid-bytes, --causal",
    ),
    "few bytes": (["train", "--task", "mqar", "--model", "V=255"], "wants at least 256"),
    "another task": (["train", "--task", "revers", "--encoder", "rope"], "did you mean 'reverse'?"),
    "a text": (["train", *REVERSE, "--data", "text.txt"], "the task reverse has no text; leave out --data"),
    "bytes of a text": (["train", *REVERSE, "--valid-bytes", "9"], "leave out --valid-bytes, --causal"),
    "few letters": (
        ["train", *REVERSE, "--model", "V=10"],
        "V is 10; the letters of a task want at least 123",
    ),
    "a member that the encoder has not": (
        ["train", *REVERSE, "--set", "encoder.3.window=4"],
        "--encoder rope: --set encoder.3.window=4: the cycle rope has members 0 to 0",
    ),
    "no value": (
        ["train", *REVERSE, "--set", "encoder.window"],
        "--set encoder.window: expected encoder.NAME=VALUE, or encoder.INDEX.NAME=VALUE",
    ),
    "a value of the encoder's that does not fit": (
        ["train", *REVERSE, "--set", "encoder.window=0"],
        "--encoder rope: rope: window is 0; expected a number above 0",
    ),
    "an encoder of the past": (
        ["train", *REVERSE[:3], "retnet", *REVERSE[4:]],
        "--encoder retnet: retnet reads only the past",
    ),
    "masks of the past": (["train", "--no-causal", "--pe", "retnet"], "retnet reads only the past"),
    "a decoder alone": (["train", "--model", "cross=true"], "cross is True, but there is no encoder"),
    "no run of it": (["eval", "--task", "reverse"], "no run with a checkpoint of the task reverse"),
}


@pytest.mark.parametrize(("args", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_makes_no_folder(cli, tmp_path, args, word):
    code, _, err = cli(*args)
    assert code in (1, 2)
    assert word in err
    assert err.count("\n") == 1, err
    assert not (tmp_path / "runs").exists()


def test_options_of_a_text_are_refused_for_a_task_and_the_other_way_round(cli):
    cli("train", *REVERSE)
    (run,) = Path("runs").iterdir()
    for args, word in (
        (["eval", "--protocol", "sliding"], "leave out --protocol"),
        (["eval", "--bytes", 9], "leave out --bytes"),
        (["generate", "--tokens", 9, "--seed", 0], "leave out --tokens, --seed"),
        (["eval", "--len", 0], "--len"),
        (["generate", "--prompt", "abcdefg"], "a source has 7 letters; expected at most 6"),
        (["show", "alibi", "--run", run], "is an encoder and a decoder"),
        (["train", "--resume", run, "--task", "reverse"], "leave out --task"),
        (["eval", "--data", "text.txt"], "has no text; leave out --data"),
    ):
        code, _, err = cli(*args)
        assert code in (1, 2)
        assert word in err, (args, err)
    cli("train", *SMALL, "--len", 8, "--data", "text.txt")
    assert "--samples is for a run that was trained on a task" in cli("eval", "--samples", 3)[2]
