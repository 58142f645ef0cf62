"""What a program that is asked may do to us: fill the memory, write to the terminal, exchange its folder,
leave processes and files behind.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import pytest
from golden_files import cli
from test_runners import FEW, OK, program

from peref.cli.signals import SIGNAL_WORDS
from peref.errors import printable
from peref.golden.judge.implementation import check_program
from peref.golden.judge.wire import LEAST_ROOM, room

ROOT = Path(__file__).resolve().parent.parent
EVIL = "\\x1b[31m red \\x1b]0;title\\x07 \\x9b2J \\u202e back \\r over"


def test_what_is_read_suffices_for_every_case(book):
    """In float64, and is little."""
    for entry in book.entries.values():
        needed = sum(8 * entry.want(name).size for name in entry.outputs)
        most = room(entry.words, entry.inputs())
        assert needed + LEAST_ROOM <= most + needed // 8, entry.id
        assert most < 20 * LEAST_ROOM, entry.id


@pytest.mark.parametrize(
    "case",
    [
        "say({'seq': seq, 'status': 'error', 'message': EVIL})",
        "say({'seq': seq, 'status': 'skip', 'reason': EVIL})",
        "say({'seq': seq, 'status': 'refused', 'kind': EVIL, 'message': EVIL})",
        "say({'seq': seq, 'status': EVIL})",
        "say({'seq': EVIL, 'status': 'ok'})",
        "sys.stdout.buffer.write(EVIL.encode() + b'\\n'); sys.stdout.flush()",
        "print(EVIL, file=sys.stderr, flush=True); os._exit(1)",
        "write(out, {EVIL: [1.0]}); say({'seq': seq, 'status': 'ok'})",
        "",
    ],
)
def test_a_terminal_is_not_told_what_to_do(capsys, tmp_path, case):
    """In the report; and, in the last, where its first answer is none."""
    hello = "pass" if case else f"say({{'ok': '{EVIL}'}}); continue"
    command = program(tmp_path, case.replace("EVIL", f"'{EVIL}'"), hello=hello)
    code, text = cli(capsys, "check", "--cmd", command, "--case", "rope.op/default", "--dtype", "f64")
    assert code
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


def test_what_can_be_printed():
    assert printable("a\tb\n") == "a\tb\n"
    ordinary = "今日は\u3000晴れ 10\xa0%, 5\u202fkg, co\xadop, \U0001f468\u200d\U0001f469, می\u200cخواهم"
    assert printable(ordinary) == ordinary
    assert printable("\x1b[31m\x7f\x9b\u202e\r\0\ud800é") == "?[31m??????é"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, of this test's own; and of processes that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_its_folder_becomes_a_link(book, tmp_path, temporary):
    """The report is made all the same; nothing is written, read or removed where the link leads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("in-1.safetensors", "out-1.safetensors", "case-1.txt", "in-2.safetensors"):
        (elsewhere / name).write_text("mine")
    case = f"os.rename(folder, folder + '-'); os.symlink({str(elsewhere)!r}, folder); {OK}"
    report = check_program(program(tmp_path, case), book, FEW, "f64")
    assert report.exit_code == 4
    assert len(report.crashes) == 2
    assert "wrote no out-1.safetensors in the folder that it was given" in next(iter(report.crashes.values()))
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == dict.fromkeys(
        ("in-1.safetensors", "out-1.safetensors", "case-1.txt", "in-2.safetensors"), "mine"
    )
    assert list(temporary.iterdir()) == []


def test_a_link_where_its_input_goes(book, tmp_path):
    """Nothing is written through it."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    case = f"if seq == 1: os.symlink({str(mine)!r}, folder + '/in-2.safetensors')\nwrite(out, {{}}); {OK}"
    report = check_program(program(tmp_path, case), book, FEW, "f64")
    (words,) = report.crashes.values()
    assert "it put a in-2.safetensors of its own where its input goes" in words
    assert mine.read_text() == "mine"


def started_by(log):
    """What a program does that leaves a process behind."""
    return (
        "import subprocess\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(log)!r}, 'w').write(str(child.pid) + '\\n')\n"
    )


def gone(pid):
    """Whether the process ends soon, which another one has killed."""
    for _ in range(500):
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.02)
                continue
        return True
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which processes there are")
def test_what_it_started_ends_with_it(book, tmp_path, temporary):
    log = tmp_path / "log"
    report = check_program(program(tmp_path, started_by(log) + f"write(out, {{}}); {OK}"), book, FEW, "f64")
    assert report.crashes == {}
    assert gone(int(log.read_text()))
    assert list(temporary.iterdir()) == []


def minded():
    """No signal is ignored, as it is where the tests run in the background or under nohup."""
    for number in SIGNAL_WORDS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which processes there are")
@pytest.mark.parametrize(
    ("number", "way"),
    [(signal.SIGINT, "--impl"), *zip(SIGNAL_WORDS, cycle(["--cmd", "--impl"]), strict=False)],
)
def test_it_ends_with_us(tmp_path, temporary, number, way):
    """With what it started, when we are told to end while it computes; its folder goes too."""
    log = tmp_path / "log"
    if way == "--cmd":
        asked = program(tmp_path, started_by(log) + "time.sleep(600)")
    else:
        (tmp_path / "mine.py").write_text(
            "import sys, time\ndef f(case, inputs):\n"
            + "".join(f"    {line}\n" for line in [*started_by(log).splitlines(), "time.sleep(600)"])
        )
        asked = "mine:f"
    command = [sys.executable, str(ROOT / "cli.py"), "check", way, asked, "--case", "rope.op/default"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=minded
    ) as process:
        while not (log.exists() and log.read_text().endswith("\n")):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(300) == 128 + number
    assert gone(int(log.read_text()))
    assert list(temporary.iterdir()) == []


def test_a_process_with_many_open_files_asks_too(tmp_path):
    (tmp_path / "mine.py").write_text("def f(case, inputs): ...\n")
    text = """if True:
        import os, resource
        from peref.golden.judge.isolated import function_of
        resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
        keep = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        with function_of("mine:f"):
            print("asked")
    """
    command, path = [sys.executable, "-c", text], {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, cwd=tmp_path, env=path, capture_output=True).stdout == b"asked\n"
