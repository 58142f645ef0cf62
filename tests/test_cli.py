"""The commands as people and programs meet them: output, exit codes, --json, signals, crashes and
resuming, misuse.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from check import apart, same_numbers

import peref
from peref import backends, data, records, runs
from peref.cli import explain, main
from peref.cli import run as run_cli
from peref.cli.app import COMMANDS, group
from peref.cli.evaluate import by_place
from peref.cli.options import Given
from peref.cli.signals import SIGNAL_WORDS, Interrupted, Signals
from peref.config import Config
from peref.encodings import HOOKS, names, wanted
from peref.errors import Diverged, Misuse, counted
from peref.member import SETTINGS
from peref.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 300  # seconds; on a loaded machine kernels may have to be compiled first
TINY = [
    "--width",
    "16",
    "--heads",
    "2",
    "--layers",
    "1",
    "--len",
    "16",
    "--batch",
    "2",
    "--valid-bytes",
    "200",
]
LONG = [*TINY, "--steps", "400", "--save-every", "20", "--valid-every", "50"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of some kilobytes of text."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    words = random.Random(0)
    path.write_text("".join(words.choice("def return lambda self, x = y\n") for _ in range(6000)))
    return path


@pytest.fixture
def trained(cli, text):
    """The cli, after a run of six steps."""
    code, _, err = cli("train", *TINY, "--steps", 6, "--data", text)
    assert code == 0, err
    return cli


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def start(folder, *args, ignored=(), **rest):
    """The root shim in a process of its own that is told to ignore these signals and no others, whatever the
    tests were started by.
    """

    def told():
        for number in SIGNAL_WORDS:
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, ROOT / "cli.py", *map(str, args)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=told,
        **rest,
    )


def finish(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in out + err, err
    return process.returncode, out, err


def the_run(folder):
    (found,) = (folder / "runs").iterdir()
    return found


def wait_for(condition, process=None):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.002)


def lines_of(folder):
    """How many steps a run has noted down so far."""
    found = [*folder.glob("runs/[!.]*/metrics.jsonl")]
    return found[0].read_bytes().count(b"\n") if found else -1


def bits(folder):
    """What a repeated run repeats: metrics and checkpoints, by name."""
    found = the_run(folder)
    paths = [found / "metrics.jsonl", *sorted((found / "ckpt").glob("*.safetensors"))]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, text):
    """Metrics and checkpoints of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, _, err = finish(start(folder, "train", *LONG, "--data", text))
    assert code == 0, err
    return bits(folder)


# ---------------------------------------------------------------- the main job


def test_train_says_what_runs_and_what_came_of_it(cli, text):
    code, out, err = cli(
        "train", *TINY, "--pe", "rope", "--set", "base=500", "--steps", 6, "--valid-every", 3, "--data", text
    )
    assert code == 0
    for pattern in (
        r"^model +[\d,]+ parameters: 1 layer, width 16, 2 heads of 8 \(1 key-value\)",
        r"^encoding +rope \(base=500\.0, learned=False\)",
        r"^training +6 steps, 32 tokens a step \(2 x 16\)",
        r"^backend +\w+ \(chosen by auto\)",
        r"^data +words\.txt: ",
        r"^yardsticks +unigram \d\.\d+, bigram \d\.\d+, xz -9 \d\.\d+ bits/byte",
        r"^run +runs/\d{4}-\d\d-\d\d-\d{6}-rope-L16-s0-",
        r"^validation +loss \d\.\d+, \d\.\d+ bits/byte",
        r"^figures +[\d,]+ tokens/s, peak memory [\d.]+ [MG]B, (\d+ min )?[\d.]+ s in all",
        r"^next +python cli\.py eval --len 64$",
    ):
        assert re.search(pattern, out, re.M), (pattern, out)
    assert "step 3: validation loss" in err
    assert max(map(len, out.splitlines())) <= 100


def test_plurals_agree(cli, text):
    """One of each, and more; commands leave that to `counted`."""
    assert [counted(n, "step") for n in (0, 1, 2, 2048)] == ["0 steps", "1 step", "2 steps", "2,048 steps"]
    assert [counted(n, "axis", "axes") for n in (1, 2)] == ["1 axis", "2 axes"]
    out = cli("train", *TINY, "--heads", 1, "--len", 1, "--batch", 1, "--steps", 1, "--data", text)[1]
    for words in ("1 layer, ", ", 1 head of 16", "training      1 step, 1 token a step (1 x 1)"):
        assert words in out
    for path in (ROOT / "peref" / "cli").glob("*.py"):
        assert not re.findall(
            r"\} (?:cases|tensors|steps|files|groups|positions|implementations)\b", path.read_text()
        ), path


def test_plain_lines_every_fifty_steps_where_stderr_is_no_terminal(cli, text):
    _, _, err = cli("train", *TINY, "--steps", 101, "--data", text)
    steps = re.findall(r"^step (\d+)/101: loss \d\.\d+, \d\.\d+ bits/byte, [\d,]+ tokens/s$", err, re.M)
    assert [s for s in steps if int(s) % 50 == 0] == ["50", "100"]
    assert "\r" not in err


def on_a_terminal(folder, columns, *args):
    """What a Python process writes to a terminal so wide, its stderr."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, *map(str, args)]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return seen.decode()


def test_a_bar_where_stderr_is_a_terminal(tmp_path, text):
    seen = on_a_terminal(tmp_path, 100, ROOT / "cli.py", "train", *TINY, "--steps", 300, "--data", text)
    assert "\r" in seen
    assert re.search(
        r"\d+% \d+/300 step, loss [\d.]+, [\d.]+ bits/byte, [\d,]+ tokens/s \[[\d:]+<[\d:]+\] \|.*\|", seen
    ), seen


def test_a_narrow_terminal_shows_the_loss(tmp_path):
    """Whole lines, and of each what comes first."""
    code = "from peref.cli.progress import Progress\nwith Progress(500, 'step') as bar:\n"
    code += " bar.to(500, 'loss 2.3456, 3.384 bits/byte, 39,521 tokens/s')\n bar.bar.refresh()"
    lines = re.split(r"[\r\n]+", on_a_terminal(tmp_path, 40, "-c", code))
    assert "100% 500/500 step, loss 2.3456, 3.384 b" in "\n".join(lines)
    assert max(map(len, lines)) <= 40


def test_a_note_stands_above_the_bar(tmp_path):
    """And not behind it, where the bar's next turn would write over it."""
    code = "import sys\nfrom peref.cli.progress import Progress, aside\nwith Progress(500, 'step') as bar:\n"
    code += " bar.to(1)\n bar.bar.refresh()\n aside('note  one line', sys.stderr)\n bar.bar.refresh()"
    assert "note  one line" in re.split(r"[\r\n]+", on_a_terminal(tmp_path, 60, "-c", code))


def test_train_eval_generate_list_of_one_run(trained, tmp_path):
    code, out, err = trained("eval", "--len", 64)
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith("run ")
    assert the_run(tmp_path).name in first
    assert re.findall(r"^ +(\d+) +\d\.\d{4} +\d+\.\d{3} +\d\.\d{4} +\d\.\d{4} +\d\.\d{4}$", out, re.M) == [
        "8",
        "16",
        "32",
        "64",
    ]
    assert re.search(r"^ +16 .* 1\.0000$", out, re.M)
    assert re.search(r"^ *32 to 63 +\d\.\d{4} +\d\.\d{4} +\d+$", out, re.M)
    assert "non-overlapping" in out
    assert re.findall(r"^length (\d+): ", err, re.M) == ["8", "16", "32", "64"]
    assert max(map(len, out.splitlines())) <= 100
    saved = json.loads((the_run(tmp_path) / "eval" / "64.json").read_text())
    assert saved["protocol"] == {"name": "non-overlapping", "stride": None}
    assert [row["length"] for row in saved["rows"]] == [8, 16, 32, 64]
    code, out, _ = trained("generate", "--prompt", "def ", "--tokens", 5, "--temperature", 0)
    assert (code, out[:4], len(out)) == (0, "def ", 10)
    assert (
        trained("generate", "--tokens", 5, "--seed", 3)[1]
        == trained("generate", "--tokens", 5, "--seed", 3)[1]
    )


def test_what_the_first_two_tokens_compile_is_noted_before_the_text(trained, capsys, monkeypatch):
    """Nothing is on the line when the second is asked for, which is the first of a step of one token."""
    shown = []

    def generate(*given, **more):
        for token in b"abc":
            yield token
            shown.append(capsys.readouterr().out)

    monkeypatch.setattr("peref.cli.generate.generate", generate)
    assert trained("generate", "--prompt", "x", "--tokens", 3)[1] == "c\n"
    assert shown == ["", "xa", "b"]


def test_a_long_text_is_decoded_once(trained, monkeypatch):
    """Not all of it for each token: of each a bounded number is looked at. Characters stay whole."""
    tokens, text, seen = "aäß€ ".encode() * 40, Vocabulary.text, []
    monkeypatch.setattr(Vocabulary, "text", lambda self, of: seen.append(len(of)) or text(self, of))
    monkeypatch.setattr("peref.cli.generate.generate", lambda *given, **more: tokens)
    assert trained("generate", "--prompt", "x", "--tokens", len(tokens))[1] == f"x{tokens.decode()}\n"
    assert sum(seen) < 12 * len(tokens)


@pytest.mark.parametrize(("terminal", "said"), [(True, "xa?[2J\nb\n"), (False, "xa\x1b[2J\nb\n")])
def test_a_terminal_is_not_given_what_it_obeys(trained, monkeypatch, terminal, said):
    """The bytes of a model are anything; a file or a pipe has them as they are."""
    monkeypatch.setattr("peref.cli.generate.generate", lambda *given, **more: b"a\x1b[2J\nb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert trained("generate", "--prompt", "x", "--tokens", 7)[1] == said


@pytest.mark.parametrize(("tokens", "said"), [(b"", ""), (b"a", "xa\n")])
def test_what_fails_before_the_first_token_writes_nothing(trained, monkeypatch, tokens, said):
    """Later it ends the line that is begun. With no token asked for the prompt is all."""
    assert trained("generate", "--prompt", "x", "--tokens", 0)[:2] == (0, "x\n")

    def generate(*given, **more):
        yield from tokens
        raise Diverged("the logits are not finite; train again")

    monkeypatch.setattr("peref.cli.generate.generate", generate)
    assert trained("generate", "--prompt", "x", "--tokens", 3)[:2] == (1, said)


def test_evaluations_under_another_protocol_encoding_text_or_amount_do_not_overwrite_each_other(
    trained, text, tmp_path
):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text()[::-1])
    variants = (
        (),
        ("--protocol", "sliding"),
        ("--protocol", "sliding", "--stride", 3),
        ("--pe", "rope"),
        ("--pe", "rope", "--set", "base=100"),
        ("--set", "max_bias=4"),
        ("--bytes", 300),
        ("--data", other),
    )
    for extra in variants:
        code, out, err = trained("eval", "--len", 32, *extra)
        assert code == 0, err
    made = {path.name for path in (the_run(tmp_path) / "eval").iterdir()}
    assert len(made) == len(variants)
    assert {
        "32.json",
        "32-sliding8.json",
        "32-sliding3.json",
        "32-rope.json",
        "32-rope-base=100.0.json",
        "32-max_bias=4.0.json",
        "32-300bytes.json",
    } < made
    assert "NOT the text of the run" in out
    assert "sliding, stride 8" in trained("eval", "--len", 32, "--protocol", "sliding")[1]
    assert "trained with alibi" in trained("eval", "--len", 32, "--pe", "rope")[1]


def test_the_same_evaluation_said_otherwise_has_the_same_file(trained, text, tmp_path):
    """Defaults that are said, numbers in another form and more text than there is change nothing."""
    for extra in (
        (),
        ("--set", "max_bias=8"),
        ("--set", "max_bias=8.0"),
        ("--pe", "alibi"),
        ("--data", text),
        ("--bytes", 10**9),
    ):
        assert trained("eval", "--len", 32, *extra)[0] == 0
    assert [path.name for path in (the_run(tmp_path) / "eval").iterdir()] == ["32.json"]
    for extra in (
        ("--set", "max_bias=4"),
        ("--set", "max_bias=4.0"),
        ("--pe", "alibi", "--set", "max_bias=4e0"),
    ):
        assert trained("eval", "--len", 32, *extra)[0] == 0
    assert {path.name for path in (the_run(tmp_path) / "eval").iterdir()} == {
        "32.json",
        "32-max_bias=4.0.json",
    }
    for extra in ((), ("--set", "base=10000"), ("--set", "rotary_dim=8")):
        assert trained("eval", "--len", 32, "--pe", "rope", *extra)[0] == 0
    assert trained("eval", "--len", 32, "--pe", "rope", "--set", "rotary_dim=4")[0] == 0
    assert {path.name for path in (the_run(tmp_path) / "eval").glob("*rope*")} == {
        "32-rope.json",
        "32-rope-rotary_dim=4.json",
    }


@pytest.mark.parametrize(
    ("encoding", "whole"),
    [
        ("rerope", ("near=64",)),
        ("self_extend", ("neighbor_window=64",)),
        ("dual_chunk", ("chunk_size=72", "local_window=8")),
    ],
)
def test_what_extends_rope_at_test_time_reads_its_weights(cli, text, tmp_path, encoding, whole):
    """With a window over all of the text these are RoPE with the run's base; with their own they are not."""
    assert cli("train", *TINY, "--pe", "rope", "--set", "base=50", "--steps", 3, "--data", text)[0] == 0
    losses = []
    for extra in (
        (),
        ("--pe", encoding, *(word for one in whole for word in ("--set", one))),
        ("--pe", encoding),
    ):
        code, out, err = cli("eval", "--len", 64, "--json", *extra)
        assert code == 0, err
        losses.append([row["loss"] for row in json.loads(out)["rows"]])
    same_numbers(losses[1], losses[0], 1e-5)
    assert apart(losses[2][-1], losses[0][-1], 1e-5)


def test_a_note_waits_for_no_reader_where_a_signal_ends_nothing():
    """A kernel that is compiled in a step is told of; a full pipe held that step, and with it Ctrl-C."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, bytes(1 << 16)):
            pass
    os.set_blocking(write, True)
    context = click.Context(group, obj=Signals())
    context.params = {"as_json": False}
    given = Given(context)
    given.stream = os.fdopen(write, "w")

    def late(number, frame):
        raise TimeoutError("it waits for who reads")

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.alarm(5)
        with given.signals.gently():
            given.note("compiling attention.forward")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        os.close(read)
        with contextlib.suppress(OSError):
            given.stream.close()


def test_a_list_on_the_command_line(trained, text, tmp_path):
    """Numbers between commas or in brackets, said back as they are set; in the run and in the name of the
    evaluation.
    """
    lists = ["long_factor=1,1.5,2,4", "short_factor=[1, 1, 1, 1.5]"]
    code, out, err = trained(
        "train",
        *TINY,
        "--pe",
        "longrope",
        *(word for item in lists for word in ("--set", item)),
        "--steps",
        2,
        "--data",
        text,
    )
    assert code == 0, err
    assert re.search(r"short_factor=1\.0,1\.0,1\.0,1\.5,\s+long_factor=1\.0,1\.5,2\.0,4\.0, ", out), out
    assert trained("eval", "--len", 32)[0] == 0
    assert trained("eval", "--len", 32, "--set", "long_factor=1,1,1,1")[0] == 0
    assert trained("eval", "--len", 32, "--set", "long_factor=1.0,1.5,2,4e0")[0] == 0
    run = max(tmp_path.glob("runs/*longrope*"))
    assert json.loads((run / "run.json").read_text())["config"]["pe"][0][1]["long_factor"] == [
        1.0,
        1.5,
        2.0,
        4.0,
    ]
    assert {path.name for path in (run / "eval").iterdir()} == {
        "32.json",
        "32-long_factor=1.0,1.0,1.0,1.0.json",
    }
    code, out, err = trained("eval", "--len", 32, "--set", "long_factor=1,2")
    assert (code, "long_factor is 1.0,2.0; expected 4 numbers above 0" in err) == (2, True), err


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_eval_that_cannot_be_kept_is_refused_before_it_is_computed(trained, tmp_path, monkeypatch, extra):
    place = the_run(tmp_path) / "eval"
    place.rmdir()
    place.touch()
    monkeypatch.setattr("peref.evaluate.evaluate", lambda *args, **given: pytest.fail("it was computed"))
    code, out, err = trained("eval", *extra)
    assert code == 1
    assert f"{Path('runs') / place.parent.name / 'eval'}: a file, where a folder belongs" in (
        json.loads(out)["error"]["message"] if extra else err
    )
    assert extra or out == ""


def test_the_unit_of_the_standard_error_is_said(trained):
    assert "  std. error (bits/byte)  " in trained("eval", "--len", 32)[1]


def test_a_run_inside_its_own_text_can_be_resumed_and_evaluated(cli, text, tmp_path):
    (tmp_path / "words.txt").write_text(text.read_text())
    assert cli("train", *TINY, "--steps", 4, "--save-every", 2, "--data", ".")[0] == 0
    max((the_run(tmp_path) / "ckpt").iterdir()).unlink()
    code, _, err = cli("train", "--resume")
    assert code == 0, err
    assert cli("eval", "--len", 16)[0] == 0
    assert cli("eval", "--len", 16)[0] == 0


def test_a_run_that_cannot_reach_its_peak_rate_says_so(cli, text):
    out = cli("train", *TINY, "--steps", 10, "--data", text)[1]
    assert re.search(r"^note +the peak rate is never reached: warm-up is 50 steps of 10$", out, re.M)
    assert "peak rate is never" not in cli("train", *TINY, "--steps", 10, "--warmup", 5, "--data", text)[1]


def test_resuming_elsewhere_names_only_what_differs(cli, text, tmp_path, monkeypatch):
    assert cli("train", *TINY, "--steps", 4, "--save-every", 2, "--backend", "numpy", "--data", text)[0] == 0
    max((the_run(tmp_path) / "ckpt").iterdir()).unlink()
    monkeypatch.setattr("peref.backends.blas.threads", lambda: 77)
    out = " ".join(cli("train", "--resume", "--backend", "numpy")[1].split())
    assert re.search(
        r"note this run began elsewhere: threads \S+ -> 77; it goes on, but perhaps not to the same bits ",
        out,
    ), out


def test_a_folder_of_checkpoints_that_is_closed_is_not_empty(trained, tmp_path, monkeypatch):
    inner = os.listdir

    def listdir(path="."):
        if Path(path).name == "ckpt":
            raise PermissionError(13, "Permission denied", str(path))
        return inner(path)

    monkeypatch.setattr(os, "listdir", listdir)
    for args in (["eval"], ["generate"], ["train", "--resume"], ["eval", the_run(tmp_path)]):
        code, _, err = trained(*args)
        assert code == 1
        assert re.fullmatch(
            r"error: runs/\S+/ckpt: cannot list: Permission denied; .*\n|error: /\S+/ckpt: cannot list: "
            r"Permission denied; .*\n",
            err,
        ), err


def test_what_is_refused_is_refused_before_the_backend_is_asked_for(trained, text, tmp_path, monkeypatch):
    """For a backend may have kernels to compile."""
    asked = []
    monkeypatch.setattr("peref.cli.found.get_backend", lambda *args, **given: asked.append(args))
    for args in (["--temperature", -1], ["--top-k", 0], ["--tokens", -1], ["--prompt", ""]):
        assert trained("generate", *args)[0] == 2
    for args in (["--pe", "t5"], ["--pe", "learned", "--len", 32], ["--len", 4096]):
        assert trained("eval", *args)[0] == 2
    assert asked == []


def test_text_past_the_end_of_a_table_is_refused_before_the_backend_is_asked_for(cli, text, monkeypatch):
    assert cli("train", *TINY, "--pe", "learned", "--steps", 2, "--data", text)[0] == 0
    monkeypatch.setattr("peref.cli.found.get_backend", lambda *args, **given: pytest.fail("asked for"))
    code, _, err = cli("generate", "--tokens", 20)
    assert (code, "ends at length 16" in err) == (2, True)


def test_every_tile_and_threads_reach_the_backend(cli, trained, text, monkeypatch):
    """In every command that computes."""
    asked = []

    def get(real, *args, every_tile, threads, **given):
        asked.append((every_tile, threads))
        return real(*args, every_tile=every_tile, threads=threads, **given)

    monkeypatch.setattr("peref.cli.found.get_backend", partial(get, backends.get))
    for command in (
        ["train", *TINY, "--steps", 2, "--data", text],
        ["eval", "--len", 16, "--data", text],
        ["generate", "--tokens", 2],
    ):
        assert cli(*command, "--every-tile")[0] == 0
        assert cli(*command, "--threads", 1)[0] == 0
    assert asked == [(True, None), (False, 1)] * 3


def test_warmup_compiles_what_is_missing_and_says_so(cli, tmp_path, monkeypatch):
    """Into a cache that is empty, and nothing the second time."""
    from peref.backends.numba import ahead, kernel

    names = ["embedding.take", "adamw.adamw"]
    monkeypatch.setattr(
        ahead, "every", lambda: [kernel.kernels(name.partition(".")[0]) and name for name in names]
    )
    for module in (kernel, ahead):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    # here, for other processes have a folder of their own
    monkeypatch.setattr(ahead.config, "NUMBA_DEFAULT_NUM_THREADS", 1)
    for name in names:
        kernel.kernels(name.partition(".")[0])
        monkeypatch.setattr(kernel.KERNELS[name], "compiled", None)
    code, out, err = cli("warmup", "--json")
    said = json.loads(out)
    assert (code, said["kernels"], said["compiled"], said["folder"]) == (0, names, names, str(tmp_path)), err
    assert re.findall(r"^kernels (\d/2: .*)$", err, re.M) == [
        f"{n}/2: {name}" for n, name in enumerate(names, 1)
    ]
    assert sorted(path.stem for path in tmp_path.glob("*.kept")) == sorted(names)
    code, out, _ = cli("warmup")
    assert (code, "2, 0 of them compiled now" in out) == (0, True), out


def test_train_tells_the_backend_the_dtype_before_it_makes_anything(cli, text, tmp_path, monkeypatch):
    def refuse(name, *, dtype, **given):
        raise Misuse(f"{name} and {dtype}")

    monkeypatch.setattr("peref.cli.found.get_backend", refuse)
    code, out, err = cli("train", *TINY, "--dtype", "float64", "--backend", "numba", "--data", text)
    assert (code, out, err) == (2, "", "error: numba and float64\n")
    assert not (tmp_path / "runs").exists()


def test_eval_names_the_newest_run_and_takes_a_named_one(trained, text, tmp_path):
    old = the_run(tmp_path)
    assert trained("train", *TINY, "--pe", "rope", "--steps", 2, "--data", text)[0] == 0
    assert "-rope-" in trained("eval", "--len", 16)[1].splitlines()[0]
    assert old.name in trained("eval", old, "--len", 16)[1].splitlines()[0]
    assert trained("generate", old, "--tokens", 1)[0] == 0
    assert trained("eval", "--runs", "elsewhere")[0] == 2


def test_eval_on_a_text_that_changed_asks_for_data(cli, text, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text(text.read_text())
    assert cli("train", *TINY, "--steps", 2, "--data", mine)[0] == 0
    mine.write_text(text.read_text() + "!")
    code, _, err = cli("eval", "--len", 16)
    assert code == 2
    assert "--data" in err
    code, out, _ = cli("eval", "--len", 16, "--data", mine, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["corpus"] != found["trained_on"]
    mine.unlink()
    assert "say with --data where it is now" in cli("eval", "--len", 16)[2]
    assert cli("eval", "--len", 16, "--data", text)[0] == 0
    assert json.loads(cli("eval", "--len", 16, "--data", text, "--json")[1])["corpus"] == found["trained_on"]


def test_the_run_is_found_from_another_folder_and_so_is_its_text(cli, text, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "here.txt").write_text(text.read_text())
    assert cli("train", *TINY, "--steps", 2, "--data", "here.txt")[0] == 0
    monkeypatch.chdir(tmp_path / "deep")
    code, _, err = cli("eval", "--runs", "../runs", "--len", 16)
    assert code == 0, err


def test_list_shows_every_encoding(cli):
    code, out, _ = cli("list")
    assert code == 0
    for name in names():
        assert re.search(rf"^{name} \((no hook|{'|'.join(HOOKS)})\)$", out, re.M), name
    assert out.count("\n  formula ") == out.count("\n  paper ") == len(names())
    assert "base=10000.0 (float)" in out
    for name, kind in SETTINGS.items():
        assert f"{name} ({wanted(kind)})" in " ".join(out.split()), name
    assert "table[512,128]" in out
    assert max(map(len, out.splitlines())) <= 100


def test_without_an_output_nothing_is_printed(cli, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert cli("list", "--pe", "rope") == (0, "", "")


@pytest.mark.parametrize(("wide", "most"), [(80, 80), (200, 100)])
def test_lines_are_as_long_as_a_terminal_shows(cli, monkeypatch, wide, most):
    monkeypatch.setenv("COLUMNS", str(wide))
    monkeypatch.setattr("peref.cli.text.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    assert most - 10 < max(map(len, cli("list", "--pe", "deltanet,rope")[1].splitlines())) <= most


def test_help_fits_a_terminal_of_80_columns(cli, monkeypatch):
    """Each command in one line; arguments, which have no words of their own, stand in the usage alone."""
    monkeypatch.setenv("COLUMNS", "80")
    commands = cli("--help")[1].partition("Commands:\n")[2]
    assert len(commands.splitlines()) == len(COMMANDS)
    for name in COMMANDS:
        out = cli(name, "--help")[1]
        assert max(map(len, out.splitlines())) <= 80
        assert not re.search(r"^  \S+\n  -", out, re.M), name


def test_help_names_every_command_and_default(cli):
    code, out, _ = cli()
    assert code == 0
    assert re.findall(r"^  (\w+)  +[A-Z]", out, re.M) == [
        "train",
        "eval",
        "compare",
        "sweep",
        "search",
        "report",
        "import",
        "export",
        "trace",
        "generate",
        "runs",
        "warmup",
        "show",
        "check",
        "matrix",
        "diff",
        "explain",
        "golden",
        "list",
        "laws",
        "data",
    ]
    code, out, _ = cli("train", "--help")
    assert code == 0
    assert "[default: 500]" in " ".join(out.split())
    assert "[default: 0.003]" in " ".join(out.split())


def test_help_of_train_is_in_sections_and_in_the_usual_words(cli):
    out = cli("train", "--help")[1]
    sections = re.findall(r"^(\w[\w ]*):$", out, re.M)
    assert sections == ["Encoding", "Model", "Training", "Validation", "Computing", "Output", "Other options"]
    said = " ".join(out.split())
    for words in (
        "`python cli.py list` shows all",
        "Random seed",
        "Gradient-norm clip",
        "Batch size",
        "Gradient accumulation",
        "Weight decay",
    ):
        assert words in said
    assert {f"--{name}" for name in ("pe", "layers", "rate", "backend", "resume", "json")} <= set(
        re.findall(r"^  (--[\w-]+)", out, re.M)
    )


@pytest.mark.parametrize("command", ["eval", "show", "golden vectors"])
def test_help_without_sections_has_all_options_in_one_place(cli, command):
    assert "Other options" not in cli(*command.split(), "--help")[1]


def test_golden_without_a_command_says_which_there_are(cli):
    code, out, err = cli("golden")
    assert (code, out) == (2, "")
    assert err.startswith(
        "error: python cli.py golden wants a command: archive, verify, show, vectors (see: "
    )


@pytest.mark.parametrize("args", [("list", "--json", "--pe", "RoPE"), ("laws", "None", "--json")])
def test_list_and_laws_take_names_in_any_case(cli, args):
    code, out, _ = cli(*args)
    assert code == 0
    assert args[-1 if args[0] == "list" else 1].lower() in out


@pytest.mark.parametrize("command", ["train", "golden vectors"])
def test_an_encoding_in_a_wrong_place(cli, command):
    """`train alibi` says what was meant; any other word is unexpected."""
    rest = ["--shape", "1,2,1,3,4", "-o", "x", "--pe", "rope"] if command != "train" else []
    code, _, err = cli(*command.split(), "ALiBi", *rest)
    assert code == 2
    assert (
        f"error: unexpected argument 'ALiBi'; for this encoding, use: python cli.py {command} --pe alibi "
        "(see: " in err
    )
    assert "unexpected argument 'words'; expected: " in cli(*command.split(), "words", *rest)[2]
    path = cli(*command.split(), "./mine.py", *rest)[2]
    assert f"use: python cli.py {command} --pe ./mine.py (see: " in path


def test_names_in_any_case(cli, text, tmp_path, undrawn):
    """RoPE is rope, wherever a command or Python takes a name."""
    assert [peref.get(name) for name in ("RoPE", "ALiBi", "T5")] == [
        peref.get(name) for name in ("rope", "alibi", "t5")
    ]
    assert Config(pe=(("RoPE", {}), ("T5", {}))).named == "rope,t5"
    code, out, err = cli("train", *TINY, "--pe", "RoPE", "--set", "base=100", "--steps", 2, "--data", text)
    assert code == 0, err
    assert re.search(r"^encoding +rope \(base=100\.0", out, re.M)
    assert "-rope-" in the_run(tmp_path).name
    assert cli("eval", "--len", 16, "--pe", "YaRN")[0] == 0
    assert [*(the_run(tmp_path) / "eval").glob("*-yarn-base=100.0.json")]
    assert cli("show", "ALiBi")[1] == "alibi.png\n"
    assert cli("show", "RoPE", "--run", the_run(tmp_path))[0] == 0
    assert (
        "rope.op/yours" in cli("golden", "vectors", "--pe", "RoPE", "--shape", "1,2,1,3,4", "-o", "made")[1]
    )
    assert "did you mean 'alibi'" in cli("show", "ALiBbi")[2]
    assert "did you mean 'max_bias'" in cli("train", "--set", "MAX_BIAS=2")[2]
    assert "did you mean 'train'" in cli("TRAIN")[2]


# ---------------------------------------------------------------- --json


def the_document(cli, *args, code=0):
    got, out, err = cli(*args, "--json")
    assert got == code, (out, err)
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_json_of_every_command(cli, text, tmp_path):
    made = the_document(cli, "train", *TINY, "--steps", 3, "--data", text)
    assert made["run"] == f"runs/{the_run(tmp_path).name}"
    assert made["step"] == 3
    assert set(made["val"]) == {"loss", "bpb"}
    assert set(made["yardsticks"]) == {"unigram_bpb", "bigram_bpb", "xz_bpb"}
    assert made["tokens_per_s"] > 0
    assert made["peak_rss"] > 1e6
    assert made["plain"] == backends.get(made["backend"]).plain()

    found = the_document(cli, "eval", "--len", 32)
    assert found["run"] == made["run"]
    assert found["protocol"]["name"] == "non-overlapping"
    assert [row["length"] for row in found["rows"]] == [8, 16, 32]
    assert {"length", "loss", "ppl", "bpb", "stderr", "ratio"} <= set(found["rows"][0])
    assert [(b["from"], b["to"]) for b in found["by_position"]] == [
        (0, 0),
        (1, 1),
        (2, 3),
        (4, 7),
        (8, 15),
        (16, 31),
    ]
    assert (tmp_path / found["file"]).is_file()

    wrote = the_document(cli, "generate", "--tokens", 4, "--prompt", "é")
    assert (wrote["run"], wrote["prompt"], len(wrote["bytes"])) == (made["run"], "é", 4)

    listed = the_document(cli, "list")
    assert [item["name"] for item in listed["encodings"]] == names()
    rope = next(item for item in listed["encodings"] if item["name"] == "rope")
    assert (rope["hook"], rope["paper"]) == ("rotate", "arXiv:2104.09864")
    assert rope["options"]["base"] == {"default": 10000.0, "expects": "float"}
    assert {"layout", "rotary_dim"} < set(rope["options"])
    assert set(listed) == {"encodings", "settings", "refused"}
    assert listed["settings"]["chunk"] == "int or none"


def test_json_keeps_stdout_to_itself_also_on_resume(cli, text, tmp_path):
    process = start(tmp_path, "train", *LONG, "--data", text)
    wait_for(lambda: lines_of(tmp_path) > 30, process)
    process.kill()
    process.communicate()
    assert the_document(cli, "train", "--resume")["step"] == 400


def test_a_python_without_the_dependencies_is_named():
    """As where the environment was not activated, which is no bug of peref."""
    line = [sys.executable, "-S", ROOT / "cli.py", "list"]
    done = subprocess.run(line, cwd=ROOT, env={}, capture_output=True, text=True)
    words = f"error: click is not installed for {sys.executable}; activate the environment that peref was "
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{words}installed in, or: pip install -e .\n"


@pytest.mark.parametrize(
    "args",
    [["train", "--pe", "alibbi"], ["trian"], ["train", "--lenn", "3"], ["eval"], ["generate"], ["data", "x"]],
)
def test_json_of_errors(cli, args):
    found = the_document(cli, *args, code=2)
    assert set(found) == {"error"}
    assert found["error"]["kind"] == "misuse"
    assert found["error"]["message"]


# ---------------------------------------------------------------- data


def test_data_lists_every_text(cli):
    """With its size, digest, source and licence, the default first."""
    code, out, _ = cli("data")
    assert code == 0
    listed = the_document(cli, "data")["corpora"]
    assert [item["name"] for item in listed] == data.known()
    assert listed[0]["name"] == data.DEFAULT
    for item, said in zip(listed, re.split(r"\n\n", out), strict=False):
        said = " ".join(said.split())
        assert said.startswith(
            f"{item['name']} text {item['title']} size {item['bytes']:,} bytes SHA-256 {item['sha256']} "
            "source "
        )
        assert f"source {item['source']} licence {item['licence']}" in said
    assert listed[-1]["sha256"] == data.corpus("stdlib").sha256
    assert max(map(len, out.splitlines())) <= 100


def test_data_of_a_python_without_sources(cli, monkeypatch, tmp_path):
    """It says so, and what to choose."""
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path / "none")})
    assert "came without the sources" in " ".join(cli("data")[1].split())
    assert the_document(cli, "data")["corpora"][-1]["bytes"] is None


def test_train_takes_the_default_and_the_run_finds_it_again(cli):
    """The default text is train's when nothing is said, and goes into the run by its name."""
    made = the_document(cli, "train", *TINY, "--steps", 2)
    assert (made["data"]["spec"], made["data"]["sha256"]) == (data.DEFAULT, data.corpus().sha256)
    assert the_document(cli, "eval", "--len", 16, "--bytes", 64)["corpus"] == data.corpus().sha256


def respec(run, **said):
    """The run as one that was made with another text."""
    record = {**run.record, "data": {**run.record["data"], **said}}
    (run.folder / "run.json").write_text(records.sealed(record))


@pytest.mark.parametrize("spec", ["stdlib", "tinyshakespeare"])
def test_a_run_of_another_known_text_still_evaluates(trained, tmp_path, spec):
    """As it was named when it began, though it was the default then or was fetched."""
    run = runs.open_run(the_run(tmp_path))
    for path in (run.folder / "ckpt").iterdir():
        path.unlink()
    respec(run, spec=spec, sha256=data.corpus(spec).sha256)
    assert trained("train", "--resume", run.folder)[0] == 0
    assert the_document(trained, "eval", "--len", 16, "--bytes", 64)["trained_on"] == data.corpus(spec).sha256


def test_a_run_of_a_text_that_was_fetched_once_asks_for_it(trained, text, tmp_path):
    """In one line; with --data it evaluates."""
    respec(runs.open_run(the_run(tmp_path)), spec="enwik8")
    code, _, err = trained("eval", "--len", 16)
    assert (code, err.count("\n")) == (2, 1)
    assert "was trained on enwik8, which cannot be had" in err
    assert "say with --data where it is now" in err


# ---------------------------------------------------------------- resuming


def test_resume_refuses_what_the_run_fixes_and_what_is_finished(trained, tmp_path, monkeypatch):
    run = the_run(tmp_path)
    for extra, named in (
        (["--pe", "rope"], "--pe"),
        (["--len", 32], "--len"),
        (["--set", "a=1"], "--set"),
        (["--tied"], "--tied"),
    ):
        code, _, err = trained("train", "--resume", run, *extra)
        assert code == 2
        assert named in err
    code, _, err = trained("train", "--resume", run)
    assert code == 2
    assert "is finished" in err
    with monkeypatch.context() as patch:
        patch.setattr("peref.runs.Run.finished", False)  # as if it was finished right after it was asked
        code, _, err = trained("train", "--resume", run)
    assert code == 2
    assert "is finished" in err
    assert "no unfinished run" in trained("train", "--resume")[2]


def test_a_damaged_checkpoint_is_named_and_the_run_goes_on_from_the_one_before(cli, text, tmp_path):
    assert cli("train", *TINY, "--steps", 6, "--save-every", 3, "--data", text)[0] == 0
    run, before = the_run(tmp_path), bits(tmp_path)
    last = run / "ckpt" / "00000006.safetensors"
    body = bytearray(last.read_bytes())
    body[-1] ^= 1
    last.write_bytes(body)
    code, out, err = cli("eval", "--len", 16)
    assert (code, out) == (1, "")
    assert str(last.name) in err
    code, out, err = cli("train", "--resume", run)
    assert code == 0, err
    assert "going on after step 3" in out
    assert "moved to" in out
    assert bits(tmp_path) == before


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_step_and_resuming_gives_the_undisturbed_bits(
    tmp_path, text, undisturbed, number, expected
):
    process = start(tmp_path, "train", *LONG, "--data", text)
    wait_for(lambda: lines_of(tmp_path) >= 33, process)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == expected
    step = lines_of(tmp_path)
    assert (the_run(tmp_path) / "ckpt" / f"{step:08d}.safetensors").is_file()
    assert "error" not in err
    again = re.search(
        rf"go on with: python {re.escape(str(ROOT / 'cli.py'))} (train --resume runs/\S+)$", err.strip()
    )
    assert again, err
    code, out, _ = finish(start(tmp_path, *again[1].split()))
    assert code == 0
    assert f"going on after step {step:,}" in out
    assert bits(tmp_path)["metrics.jsonl"] == undisturbed["metrics.jsonl"]
    assert bits(tmp_path)["00000400.safetensors"] == undisturbed["00000400.safetensors"]


def test_a_signal_that_is_ignored_ends_nothing(tmp_path, text):
    """As under nohup, and as Ctrl-C is in the background: neither while peref loads nor while it trains."""
    ignored = {*SIGNAL_WORDS} - {signal.SIGTERM}
    process = start(tmp_path, "train", *TINY, "--steps", 100_000, "--data", text, ignored=ignored)

    def trained_on():
        for number in ignored:
            process.send_signal(number)
        return lines_of(tmp_path) >= 30

    wait_for(trained_on, process)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 143
    assert f"stopped after step {lines_of(tmp_path)} of 100,000, which is saved" in err


def test_json_of_an_interrupted_run_says_how_to_go_on(tmp_path, text):
    process = start(tmp_path, "train", *LONG, "--data", text, "--json")
    wait_for(lambda: lines_of(tmp_path) >= 3, process)
    process.send_signal(signal.SIGTERM)
    code, out, _ = finish(process)
    found = json.loads(out)
    assert code == 143
    assert found["error"]["kind"] == "interrupted"
    assert found["run"] == f"runs/{the_run(tmp_path).name}"
    assert found["step"] == lines_of(tmp_path)


def test_a_second_sigint_leaves_at_once(tmp_path, text):
    slow = [
        "--width",
        "256",
        "--heads",
        "2",
        "--layers",
        "8",
        "--len",
        "512",
        "--batch",
        "8",
        "--accumulate",
        "40",
    ]
    process = start(tmp_path, "train", *slow, "--data", text)
    wait_for(lambda: lines_of(tmp_path) >= 0, process)
    wait_for_line(process.stdout, "run ")
    process.send_signal(signal.SIGINT)
    wait_for_line(process.stderr, "stopping")
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "--resume" in err
    assert lines_of(tmp_path) == 0


def test_a_signal_that_would_be_lost_comes_again(monkeypatch):
    """What rises in a function that LLVM calls is dropped, and the process with it; in one that frees an
    object it is printed, and forgotten.
    """
    from numba.core.codegen import ll

    came, signals = queue.Queue(), Signals()
    monkeypatch.setattr("peref.cli.signals.os.kill", lambda *what: came.put(what))

    def _raw_object_cache_getbuffer():
        (lambda: signals.handle(signal.SIGINT, sys._getframe()))()

    class Freed:
        def __del__(self):
            (lambda: signals.handle(signal.SIGINT, sys._getframe()))()

    assert hasattr(ll.ExecutionEngine, _raw_object_cache_getbuffer.__name__)
    for call in (_raw_object_cache_getbuffer, Freed().__del__):
        call()
        assert came.get(timeout=PATIENCE) == (os.getpid(), signal.SIGINT)
    del call
    with pytest.raises(Interrupted):
        signals.handle(signal.SIGINT, sys._getframe())


def wait_for_line(stream, beginning):
    for line in stream:
        if line.startswith(beginning):
            return
    pytest.fail(f"no line begins with {beginning!r}")


def test_kill_9_and_resume_gives_the_undisturbed_bits(tmp_path, text, undisturbed):
    moments = random.Random(1)
    for kill in range(5):
        process = start(tmp_path, "train", *(["--resume"] if kill else [*LONG, "--data", str(text)]))
        target = 60 * kill + moments.randrange(1, 60)
        wait_for(lambda target=target: lines_of(tmp_path) >= target, process)
        time.sleep(moments.random() * 0.02)
        process.kill()
        process.communicate()
    code, _, err = finish(start(tmp_path, "train", "--resume"))
    assert code == 0, err
    assert bits(tmp_path) == undisturbed
    assert not [*the_run(tmp_path).rglob(".tmp-*")]


def test_a_full_disk_ends_a_run_in_one_line_and_resuming_gives_the_undisturbed_bits(
    tmp_path, text, undisturbed
):
    """For files of 80 kB: every checkpoint is larger, all lines of the metrics are smaller, and so is what
    is tried where kernels are kept.
    """
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, 80_000))
    command = [sys.executable, ROOT / "cli.py", "train", *LONG, "--data", text]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, preexec_fn=limit
    )
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: \S+00000020\.safetensors: cannot write: File too large; check space, .*",
        done.stderr.splitlines()[-1],
    ), done.stderr
    assert [
        path.name for path in the_run(tmp_path).rglob("*") if path.is_file() and path.parent.name == "ckpt"
    ] == []
    code, _, err = finish(start(tmp_path, "train", "--resume"))
    assert code == 0, err
    assert bits(tmp_path) == undisturbed


def test_two_processes_cannot_write_one_run(tmp_path, text, cli):
    process = start(tmp_path, "train", *TINY, "--steps", 100000, "--data", text)
    wait_for(lambda: lines_of(tmp_path) >= 1, process)
    code, _, err = cli("train", "--resume")
    process.kill()
    process.communicate()
    assert code == 1
    assert f"in use by pid {process.pid}" in err


def minds_sigterm(process):
    """Whether the shim or main() has taken the signals over; where there is no /proc, surely after a
    second.
    """
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        time.sleep(1)
        return True
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status.read_text(), re.M)[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_generate_or_before_training_ends_it_without_a_traceback(
    trained, tmp_path, number, expected
):
    process = start(tmp_path, "generate", "--tokens", 1000000, "--backend", "numpy")
    assert process.stdout.read(8)
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, err) == (expected, "interrupted\n" if number == signal.SIGINT else "terminated\n")
    assert out.endswith("\n")
    (tmp_path / "many").mkdir()
    for i in range(3):
        (tmp_path / "many" / f"{i}.txt").write_text(os.urandom(2**23).hex())
    process = start(tmp_path, "train", "--data", tmp_path / "many", "--runs", "never", "--backend", "numpy")
    wait_for(lambda: minds_sigterm(process), process)
    time.sleep(random.random())  # it is importing, reading or counting
    process.send_signal(number)
    assert finish(process)[0] == expected
    assert not (tmp_path / "never").exists()


ENTRY = "from peref.__main__ import main; main()"  # what the installed command does


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("args", [["cli.py"], ["-m", "peref"], ["-c", ENTRY]])
def test_a_signal_while_the_package_is_imported_ends_it_without_a_word(tmp_path, args, number, expected):
    """However it is started, where the commands never end to load."""
    (tmp_path / "peref" / "cli").mkdir(parents=True)
    for file in ("cli.py", "peref/__init__.py", "peref/__main__.py"):
        (tmp_path / file).write_text((ROOT / file).read_text())
    (tmp_path / "peref" / "cli" / "__init__.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(600)\n"
    )
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [sys.executable, *args],
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **quiet,
    )
    assert process.stdout.readline() == "loading\n"
    process.send_signal(number)
    assert (*process.communicate(timeout=PATIENCE), process.returncode) == ("", "", expected)


def test_a_signal_outside_of_the_command_is_an_exit_code(monkeypatch, capsys):
    """main() may be interrupted before run() minds signals, or after."""
    for error, code in (
        (Interrupted(signal.SIGTERM), 143),
        (Interrupted(signal.SIGINT), 130),
        (KeyboardInterrupt(), 130),
    ):

        def fail(*args, error=error):
            raise error

        monkeypatch.setattr(Signals, "install", fail)
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == code
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_when_the_command_is_done_ends_in_no_traceback(number, expected):
    """It comes while the last of the output is written."""
    late = f"type('', (), {{'flush': lambda self: os.kill(os.getpid(), {int(number)})}})()"
    code = f"import os, sys; from peref.cli import main; sys.stderr = {late}; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (expected, "")
    assert done.stdout == f"peref, version {peref.__version__}\n"


# ---------------------------------------------------------------- misuse


MISUSE = {
    "two cycles": (
        ["eval", "none", "--pe", "RoPE", "--pe", "t5"],
        "expected one NAME[+NAME][,NAME...], such as rope,t5 or rope+t5",
    ),
    "two encodings to show": (
        ["show", "--pe", "rope", "--pe", "t5"],
        "'--pe': given 2 times; expected one NAME, such as rope (",
    ),
    "encoding": (["train", "--pe", "alibbi"], "did you mean 'alibi'"),
    "command": (["trian"], "did you mean 'train'"),
    "option": (["train", "--wdth", "3"], "--width"),
    "length 0": (["train", "--len", "0"], "--len"),
    "length in words": (["train", "--len", "many"], "'--len': 'many' is not a whole number of at least 1"),
    "odd rotary width": (["train", "--pe", "rope", "--set", "rotary_dim=7"], "rotary width is 7"),
    "heads": (["train", "--width", "128", "--heads", "3"], "does not divide"),
    "key-value heads": (["train", "--kv-heads", "3"], "key-value heads"),
    "set": (["train", "--set", "slope=3"], "has no option 'slope'"),
    "set without value": (["train", "--set", "max_bias"], "NAME=VALUE"),
    "set of another type": (["train", "--set", "max_bias=high"], "expected float"),
    "kv heads of a mixing layer": (["train", "--pe", "retnet", "--kv-heads", "2"], "no attention layer"),
    "embed in a cycle": (["train", "--pe", "none,learned"], "first member"),
    "shape": (["train", "--shape", "lama"], "llama"),
    "norm": (["train", "--norm", "batch"], "expected one of: rms, layer"),
    "rate": (["train", "--rate", "nan"], "rate is nan"),
    "epsilon": (["train", "--norm-eps", "nan"], "the norms' eps is nan"),
    "other epsilon": (["train", "--eps", "0"], "AdamW's eps is 0"),
    "rotary width in words": (
        ["train", "--pe", "rope", "--set", "rotary_dim=abc"],
        "option rotary_dim is 'abc'",
    ),
    "a member that no layer takes": (
        ["train", "--pe", "alibi,none,rope,t5,path"],
        "no layer would take path",
    ),
    "runs without a name": (["train", "--runs", ""], "'--runs': it is empty; expected a folder"),
    "runs without a name in eval": (["eval", "--runs", ""], "'--runs': it is empty; expected a folder"),
    "runs without a name on resume": (
        ["train", "--resume", "--runs", ""],
        "'--runs': it is empty; expected a folder",
    ),
    "a comparison without a name": (["compare", "-o", ""], "'--output': it is empty; expected a folder"),
    "a report without a name": (["report", "-o", ""], "'--output': it is empty; expected a file"),
    "a matrix without a name": (["matrix", "-o", ""], "'--out': it is empty; expected a file"),
    "dtype": (["train", "--dtype", "float16"], "float32"),
    "dtype of the cuda backend": (
        ["train", *TINY, "--data", "TEXT", "--dtype", "float64", "--backend", "cuda"],
        "the cuda backend computes in float32",
    ),
    "threads of the cuda backend": (
        ["train", *TINY, "--data", "TEXT", "--backend", "cuda", "--threads", "2"],
        "leave --threads out",
    ),
    "dtype of a backend": (
        ["train", *TINY, "--data", "TEXT", "--dtype", "float64", "--backend", "numba"],
        "computes in float32",
    ),
    "seed": (["train", "--seed", "-1"], "error: seed is -1; expected 0 or more"),
    "steps": (["train", "--steps", "0"], "steps is 0"),
    "backend": (["train", "--backend", "tpu"], "unknown backend 'tpu'"),
    "layers": (
        ["train", "--data", "TEXT", "--layers", "1000000000"],
        "GB for 184,576,000,032,896 parameters",
    ),
    "layers of a mixture": (
        ["train", "--data", "TEXT", "--layers", "99999999999", "--pe", "retnet,alibi"],
        "choose fewer layers",
    ),
    "width": (["train", "--data", "TEXT", "--width", "1000000"], "this training needs at least"),
    "a feed-forward": (["train", "--data", "TEXT", "--ff", "1000000000000"], "this training needs at least"),
    "batch": (["train", "--data", "TEXT", "--batch", "1000000000"], "for the tokens of a step"),
    "accumulate": (["train", "--data", "TEXT", "--accumulate", "1000000000000"], "for the tokens of a step"),
    "window": (["train", "--data", "TEXT", "--window", "1" + 30 * "0"], "expected at most 9007199254740992"),
    "no such text": (["train", "--data", "nowhere.txt"], "nowhere.txt"),
    "a pipe for a text": (["train", "--data", "pipe"], "neither a file, nor a folder"),
    "a device for a text": (["train", "--data", "/dev/zero"], "neither a file, nor a folder"),
    "binary text": (["train", "--data", "binary.txt"], "not a text file"),
    "empty text": (["train", "--data", "empty.txt"], "empty"),
    "short text": (["train", "--data", "short.txt"], "too small for length 512"),
    "folder that is a file": (["train", *TINY, "--data", "TEXT", "--runs", "short.txt"], "short.txt"),
    "no run": (["eval", "--runs", "nowhere"], "no run"),
    "not a run": (["eval", "nowhere"], "not a run folder"),
    "a file for a run": (["eval", __file__], "not a run folder"),
    "resume of nothing": (["train", "--resume"], "no unfinished run"),
    "resume and runs": (["train", "--resume", "a", "--runs", "b"], "leave one of them out"),
    "eval and runs": (["eval", "a", "--runs", "b"], "leave one of them out"),
    "show nothing": (["show"], "say which encoding to show"),
    "show unknown": (["show", "alibbi"], "did you mean 'alibi'"),
    "show a config": (["show", "a/config.json"], "use: python cli.py show --config a/config.json"),
    "show set": (["show", "alibi", "--set", "slope=3"], "has no option 'slope'"),
    "show as a film": (["show", "alibi", "-o", "alibi.mp4"], "expected a name that ends in .png or .svg"),
    "show in no folder": (["show", "alibi", "-o", "nowhere/alibi.png"], "nowhere/alibi.png: cannot write"),
    "show all of one": (["show", "alibi", "--all"], "leave out NAME"),
    "show a layer of no run": (["show", "alibi", "--layer", "0"], "--layer is about a run"),
    "show too far": (["show", "alibi", "--len", "1000000000"], "--len is 1000000000; expected at most 16384"),
    "show in a format": (["show", "alibi", "--format", "svg"], "such as -o NAME.svg"),
    "show no config": (["show", "--config", "nowhere.json"], "nowhere.json: cannot read"),
    "show a config and a name": (["show", "rope", "--config", "config.json"], "leave out NAME"),
    "show no run": (["show", "alibi", "--run", "nowhere"], "not a run folder"),
    "an argument too many": (["list", "rope"], "for this encoding, use: python cli.py list --pe rope"),
    "an option that has to be there": (["trace", "run"], "; expected: python cli.py trace [OPTIONS] RUN"),
    "an argument where there is none": (["warmup", "x"], "expected: python cli.py warmup [OPTIONS]"),
    "an argument of golden": (["golden", "show", "x", "y"], "golden show [OPTIONS] [CASE|PREFIX]"),
    "a command of golden": (["golden", "vrify"], "there is no command 'vrify'; did you mean 'verify'?"),
    "an argument missing": (["diff", "a"], "expected: python cli.py diff [OPTIONS] FIRST SECOND"),
    "an option without its value": (["train", "--len"], "say it after the option: --len VALUE"),
    "no such corpus": (["train", "--data", "shakespear"], "did you mean 'tinyshakespeare'?"),
}


def leaves(group, *names):
    """Every command below: (its words, the command)."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        yield from leaves(found, *names, name) if hasattr(found, "commands") else [([*names, name], found)]


def test_no_command_speaks_in_clicks_words_of_an_argument_too_many(cli):
    """Each that takes a fixed number of them."""
    for words, command in leaves(group):
        if all(param.nargs != -1 for param in command.params):
            wanted = [
                word
                for param in command.params
                if isinstance(param, click.Option) and param.required
                for word in (param.opts[0], "1,2,1,3,4" if param.opts[0] == "--shape" else "rope")
            ]
            kinds = [param.type for param in command.params if isinstance(param, click.Argument)]
            wanted += [kind.choices[0] for kind in kinds if isinstance(kind, click.Choice)]
            code, _, err = cli(*words, *wanted, *["rope"] * 3)
            assert (code, err.startswith("error: unexpected argument 'rope'; ")) == (2, True), err


@pytest.mark.parametrize(("args", "word"), MISUSE.values(), ids=MISUSE.keys())
def test_misuse_is_one_clear_line_and_no_traceback(cli, text, args, word):
    Path("binary.txt").write_bytes(b"\x7fELF\0\0" * 1000)
    Path("empty.txt").touch()
    os.mkfifo("pipe")
    Path("short.txt").write_text("too short\n" * 9)
    code, out, err = cli(*(text if a == "TEXT" else a for a in args))
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert word in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--lenn", "there is no option '--lenn'; did you mean '--len' or '--pe'?"),
        ("-x", "there is no option '-x'"),
    ],
)
def test_an_option_that_is_not_there_is_said_in_words_of_ours(cli, monkeypatch, option, said):
    """Those of click are others in other versions."""
    monkeypatch.setattr(click.NoSuchOption, "format_message", lambda error: "of click")
    assert cli("train", option)[2] == f"error: {said} (see: python cli.py train --help)\n"


def test_a_large_count_is_said_in_full():
    part = {"from": 0, "to": 12_345_678, "loss": 1.5, "bpb": 2.5, "tokens": 12_345_678}
    last = by_place([part], "byte", "byte").splitlines()[-1]
    assert last.split() == ["0", "to", "12,345,678", "1.5000", "2.5000", "12,345,678"]


MISUSE_OF_A_RUN = {
    "len 0": (["eval", "--len", "0"], "'--len': '0' is not a whole number of at least 1"),
    "len in words": (["eval", "--len", "twelve"], "'--len': 'twelve' is not a whole number of at least 1"),
    "steps in words": (["train", "--steps", "two"], "'--steps': 'two' is not a whole number"),
    "index": (["sweep", "task", "a.toml", "--index", "-1"], "'-1' is not a whole number of at least 0"),
    "stride alone": (["eval", "--len", "32", "--stride", "4"], "--protocol sliding"),
    "stride too long": (["eval", "--len", "32", "--protocol", "sliding", "--stride", "9"], "expected 1 to 8"),
    "protocol": (["eval", "--protocol", "overlapping"], "non-overlapping"),
    "bytes": (
        ["eval", "--len", "32", "--bytes", "10"],
        "--bytes is 10, too little text for --len 32; expected at least 32",
    ),
    "too long": (["eval", "--len", "4096"], "too few for length 4096"),
    "weights do not fit": (["eval", "--len", "32", "--pe", "t5"], "pe.0.table"),
    "past a table": (["eval", "--len", "32", "--pe", "learned"], "table"),
    "empty prompt": (["generate", "--prompt", ""], "prompt is empty"),
    "temperature": (["generate", "--temperature", "-1"], "temperature"),
    "tokens": (["generate", "--tokens", "-1"], "number of tokens is -1"),
}


@pytest.mark.parametrize(("args", "word"), MISUSE_OF_A_RUN.values(), ids=MISUSE_OF_A_RUN.keys())
def test_misuse_of_a_run_is_one_clear_line(trained, args, word):
    code, _, err = trained(*args)
    assert code in (1, 2)
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert word in err


def test_a_table_of_learned_positions_is_not_read_past_its_end(cli, text):
    for pe in ("learned", "learned_bias"):
        assert cli("train", *TINY, "--pe", pe, "--steps", 2, "--data", text)[0] == 0
        code, _, err = cli("eval", "--len", 32)
        assert code == 2
        assert f"{pe} ends at length 16" in err
        assert cli("eval")[0] == 0


@pytest.mark.parametrize(
    "args",
    [
        ["--pe", "rope,rope,rope,none", "--layers", 4],
        [
            "--pe",
            "mrope,axial",
            "--layers",
            2,
            "--set",
            "sections=1,2,1",
            "--set",
            "ladder=alternate",
            "--set",
            "width=4",
        ],
        ["--pe", "mrope", "--set", "order=interleaved"],
        ["--pe", "xpos", "--set", "centre=8"],
        ["--pe", "alibi", "--heads", 4, "--kv-heads", 1, "--window", 5],
        ["--pe", "rope", "--heads", 4, "--kv-heads", 2, "--window", 1, "--qk-norm"],
        ["--pe", "t5,retnet", "--layers", 2, "--heads", 4, "--kv-heads", 4],
    ],
)
def test_cycles_groups_and_windows_train_evaluate_and_generate(cli, text, tmp_path, args):
    """From the command line to the end: at twice the length, and on from a prompt."""
    code, out, err = cli("train", *TINY, *args, "--steps", 60, "--warmup", 5, "--data", text, "--json")
    assert code == 0, err
    losses = [
        json.loads(line)["loss"] for line in (the_run(tmp_path) / "metrics.jsonl").read_text().splitlines()
    ]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    known = json.loads(out)["config"]
    for flag, field in (("--kv-heads", "G"), ("--window", "window"), ("--layers", "layers")):
        assert flag not in args or known[field] == args[args.index(flag) + 1]
    assert [name for name, _ in known["pe"]] == args[1].split(",")
    code, out, err = cli("eval", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"][-1]["length"] == 64
    assert cli("generate", "--tokens", 60)[0] == 0


def test_a_list_of_numbers_on_the_command_line(cli, text, tmp_path):
    """As it was said, in what train says, in the run and in the name of an evaluation."""
    code, out, err = cli(
        "train", *TINY, "--pe", "mrope", "--set", "sections=1,2,1", "--steps", 2, "--data", text
    )
    assert code == 0, err
    assert "mrope (base=10000.0, order=chunked, sections=1,2,1)" in out
    assert cli("eval", "--len", 32)[0] == cli("eval", "--len", 32, "--set", "sections=2,1,1")[0] == 0
    assert {path.name for path in (the_run(tmp_path) / "eval").iterdir()} == {
        "32.json",
        "32-sections=2,1,1.json",
    }
    for wrong, words in (
        ("2,1", "expected three numbers from 0 on"),
        ("2,1,a", "is '2,1,a'; expected a list of int or none"),
    ):
        code, _, err = cli("train", *TINY, "--pe", "mrope", "--set", f"sections={wrong}", "--data", text)
        assert (code, words in err) == (2, True), err
    assert "sections=none (a list of int or none)" in " ".join(cli("list")[1].split())


def test_xpos_is_refused_past_its_reach_before_anything_is_computed(cli, text, monkeypatch):
    """Where the gains leave the dtype: to train, evaluate and generate; within it xpos evaluates and
    generates past its training length.
    """
    # ends at 29, in float64 at 269
    far = [*TINY, "--pe", "xpos", "--set", "scale_base=0.5", "--steps", 2, "--data", text]
    assert cli("train", *far)[0] == 0
    assert '"length": 29' in cli("eval", "--json")[1]
    monkeypatch.setattr("peref.cli.found.get_backend", lambda *args, **given: pytest.fail("asked for"))
    for args, words in (
        (["eval", "--len", 30], "xpos ends at length 29, and length is 30; ask for at most 29"),
        (
            ["generate", "--prompt", "def", "--tokens", 27],
            "xpos ends at length 29; prompt and text would be 30 tokens; ask for at most 26",
        ),
        (["generate", "--tokens", 2, "--seed", -1], "seed -1 is out of range"),
        (
            ["train", *far, "--len", 32],
            "xpos ends at length 29 in float32, and the length to train on is 32; ask for at most 29",
        ),
        (["train", *far, "--len", 300, "--dtype", "float64"], "xpos ends at length 269 in float64"),
    ):
        code, _, err = cli(*args)
        assert (code, words in err) == (2, True), err


def test_where_memory_is_limited_the_limit_is_said(monkeypatch):
    monkeypatch.setattr("peref.share.address_space", lambda: 500_000_000)
    assert explain(MemoryError())[1:] == (
        "not enough memory (no details): this process may have 500 MB; raise that (ulimit -v); "
        "try a smaller --len, --batch, --width or --layers",
        1,
    )


def test_a_run_that_diverges_says_so_in_one_line(cli, text):
    code, _, err = cli("train", *TINY, "--steps", 20, "--rate", "1e30", "--warmup", 0, "--data", text)
    assert code == 1
    assert re.search(r"^error: step \d+: .* begin a new run with a lower --rate", err.splitlines()[-1]), err
    assert "Warning" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(cli, text, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    code, _, err = cli("train", *TINY, "--data", text, "--runs", "closed/runs")
    assert code == 1
    assert "closed" in err


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a place where nobody can make a folder")
def test_a_place_where_no_folder_can_be_made(cli, text):
    code, _, err = cli("train", *TINY, "--data", text, "--runs", "/proc/runs")
    assert code == 1
    assert "/proc/runs" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (MemoryError(), 1, "not enough memory"),
        (OSError(5, "went wrong", "a.txt"), 1, "error: a.txt: went wrong; check"),
        (OSError("odd"), 1, "odd"),
        (RuntimeError("odd\nthing"), 1, "internal error"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_nobody_expected_is_one_line_too(cli, monkeypatch, error, code, word):
    def fail():
        raise error

    monkeypatch.setattr("peref.cli.listing.names", fail)
    got, out, err = cli("list")
    assert (got, out) == (code, "")
    assert word in err
    assert err.startswith("error: ") == (code != 130)
    assert err.count("\n") == 1
    assert word.removeprefix("error: ") in the_document(cli, "list", code=code)["error"]["message"]


@pytest.mark.parametrize("buckets", [10**30, 10**18])
def test_what_is_beyond_all_memory_is_no_bug(cli, text, buckets):
    """NumPy has no MemoryError for what it cannot even ask for."""
    code, _, err = cli(
        "train", *TINY, "--heads", 16, "--pe", "t5", "--set", f"buckets={buckets}", "--data", text
    )
    assert (code, err.startswith("error: not enough memory ("), err.count("\n")) == (1, True, 1), err


def test_traceback_on_request(monkeypatch, capsys):
    monkeypatch.setattr("peref.cli.listing.names", lambda: 1 / 0)
    assert run_cli(["--traceback", "list"], Signals()) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_what_a_signal_interrupts_is_not_freed(monkeypatch, capsys):
    """Modules of LLVM among it, which llvmlite frees twice where it could not take note of the first time."""
    signals, modules = Signals(), []

    def compiling(args, signals):
        module = {1}
        modules.append(weakref.ref(module))
        signals.handle(signal.SIGXCPU, None)

    monkeypatch.setattr("peref.cli.app.execute", compiling)
    assert run_cli([], signals) == 128 + signal.SIGXCPU
    assert modules[0]() is not None


# ---------------------------------------------------------------- the process


def test_the_shim_runs_the_commands_and_help_is_quick(tmp_path):
    before = os.times()
    code, out, _ = finish(start(tmp_path, "--help"))
    assert code == 0
    assert "generate" in out
    assert os.times().children_user - before.children_user < 1  # of CPU time, of which it takes 0.1
    code, out, _ = finish(start(tmp_path, "list", "--json"))
    assert code == 0
    assert len(json.loads(out)["encodings"]) == len(names())


def test_importing_the_commands_loads_nothing_heavy():
    code = (
        "import sys, peref.cli, peref.cli.app; print([m for m in ('peref.train', 'numba', 'cupy', "
        "'matplotlib', 'tqdm') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    code = (
        "import sys, peref.cli.train, peref.cli.evaluate, peref.cli.generate, peref.cli.listing, "
        "peref.cli.data, peref.cli.show; "
    )
    code += "import peref.cli.check, peref.cli.diff, peref.cli.flags, peref.cli.golden; "
    code += "print([m for m in ('numba', 'cupy', 'matplotlib', 'tqdm') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line(tmp_path):
    args = [sys.executable, ROOT / "cli.py", "list"]
    with open("/dev/full", "w") as full:
        done, said_with_json = (
            subprocess.run([*args, *extra], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
            for extra in ([], ["--json"])
        )
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*No space left.*\n", done.stderr), done.stderr
    assert said_with_json.returncode == 1
    assert "No space left" in said_with_json.stderr


def test_a_reader_that_leaves_is_told_nothing(trained, tmp_path, text):
    """`peref list | head -1`: no error, no traceback, no exception that Python ignores at exit."""
    for args in (
        ["--help"],
        ["train", *TINY, "--steps", 2, "--data", text, "--backend", "numpy"],
        ["eval", "--len", 16, "--backend", "numpy"],
        ["generate", "--tokens", 3, "--backend", "numpy", "--json"],
        ["show", "alibi"],
        ["golden", "show"],
        ["list"],
        ["list", "--json"],
        ["explain"],
        ["data"],
    ):
        process = start(tmp_path, *args)
        process.stdout.close()
        err = re.sub(r"(?m)^length [\d,]+: \d\.\d+ bits/byte\n", "", process.stderr.read())  # eval goes on
        process.stderr.close()
        assert (process.wait(30), err) == (141, ""), args


def test_python_m_peref_is_the_same_command(tmp_path):
    """With its own name in what it says."""
    call = lambda *args: subprocess.run(
        [sys.executable, *map(str, args)], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    for args in (["list"], ["train", "--help"], ["eval"], ["trian"]):
        module, shim = call("-m", "peref", *args), call(ROOT / "cli.py", *args)
        said = [f"{done.stdout}{done.stderr}{done.returncode}".split() for done in (module, shim)]
        assert " ".join(said[0]).replace("python -m peref", f"python {ROOT / 'cli.py'}") == " ".join(said[1])
    assert "`python -m peref train` makes one" in call("-m", "peref", "eval").stderr


def test_what_was_evaluated_is_stored_whoever_reads(trained, tmp_path):
    """`peref eval | head -1`: the first line goes out long before the result."""
    process = start(tmp_path, "eval", "--len", 16, "--backend", "numpy")
    assert process.stdout.readline().startswith("run ")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=PATIENCE), "Traceback" in err, "ignored" in err) == (141, False, False), err
    (stored,) = (the_run(tmp_path) / "eval").iterdir()
    assert [row["length"] for row in json.loads(stored.read_text())["rows"]] == [8, 16]


def test_names_of_other_things_in_any_case(cli, text):
    """Of texts, backends and shapes, of cases and flags; a file of that name is the file."""
    given = ["--steps", 1, "--shape", "GPT2", "--backend", "NumPy"]
    code, out, err = cli("train", *TINY, *given, "--data", "SQLite")
    assert code == 0, err
    assert re.search(r"^data +sqlite", out, re.M), out
    assert re.search(r"^backend +numpy", out, re.M), out
    assert cli("golden", "show", "RoPE.op/Default")[1].startswith("rope.op/default")
    assert cli("explain", "RoPE.sign")[1].startswith("rope.sign")
    named = ["--norm", "RMS", "--activation", "SwiGLU", "--dtype", "Float64", "--backend", "numpy"]
    code, out, err = cli("train", *TINY, *named, "--steps", 1, "--data", text)
    assert code == 0, err
    assert "rms norm, swiglu" in " ".join(out.split())
    narrowed = ("--case", "RoPE.op/Default", "--level", "OP", "--dtype", "F32", "--class", "c")
    code, out, _ = cli("check", "--impl", "peref.golden.compute.reference:reference", *narrowed)
    assert (code, "of 1 case compared in float32" in out) == (0, True), out
    assert "--class [A|B|C]" in cli("check", "--help")[1]
    assert "'D' is not one of 'A', 'B', 'C' (see" in cli("check", "--class", "D", "x")[2]
    assert (
        cli("check", "--impl", "peref.golden.compute.reference:reference", "--case", "RoPE.op/Default")[0]
        == 0
    )
    Path("SQLite").write_text(Path(text).read_text())
    assert re.search(r"^data +SQLite", cli("train", *TINY, *given, "--data", "SQLite")[1], re.M)
