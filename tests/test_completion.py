"""What the shells complete, asked as they ask: bash by its function, fish by `complete -C`, zsh on a
terminal; and that it loads little.
"""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peref import data
from peref.cli import run as run_cli
from peref.cli.app import COMMANDS
from peref.cli.signals import Signals
from peref.encodings import names
from peref.golden.spec.book import known_flags
from peref.member import settings_of
from peref.runs import create

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 60  # seconds
HEAVY = {"numba", "llvmlite", "cupy", "matplotlib", "tqdm", "scipy", "torch"}
NEWER, OLDER = "runs/2026-02-02-000000-rope-L16-s0-1111", "runs/2026-01-01-000000-t5-L16-s0-2222"
FILES = ["compopt -o default"]
OF_LAYERS = [f"{setting}=" for setting in settings_of("alibi")]

# A line, | where readline ends a word -> what is offered for its last word
LINES = {
    "peref ": list(COMMANDS),
    "peref tr": ["train", "trace"],
    "peref golden v": ["vectors", "verify"],
    "peref train --see": ["--seed"],
    "peref train --pe ": names(),
    "peref train --pe AL": ["alibi"],
    "peref train --pe|=|RoP": ["rope", "rope_mixed"],
    "peref train --pe rope,ret": ["rope,retnet"],
    "peref train --pe rope+RET": ["rope+retnet"],
    "peref train --pe rope,rope+al": ["rope,rope+alibi"],
    "peref show mam": ["mamba", "mamba2"],
    "peref list --pe ro": ["rope", "rope_mixed"],
    "peref laws RO": ["rope", "rope_mixed"],
    "peref laws rope --set b": ["base="],
    "peref train --pe ./no": FILES,
    "peref train --pe rope,./c++/no": FILES,
    "peref train --pe ./c++/mine.py+ret": ["./c++/mine.py+retnet"],
    "peref golden vectors --pe xp": ["xpos"],
    "peref train --pe alibi --set m": ["max_bias="],
    "peref train --pe alibi,rope --set 0.m": ["0.max_bias="],
    "peref train --pe rope --set l": ["learned=", "layout="],
    "peref train --pe rope --set layout|=": ["half", "interleaved"],
    "peref train --set max_bias|=|8 --pe ya": ["yarn"],
    "peref train --set ": ["max_bias=", "slopes=", "directions=", "across_layers=", *OF_LAYERS],
    "peref show xpos --set sc": ["scale_base=", "scale="],
    "peref eval --set b": ["base="],  # of the newest run, which has rope
    f"peref eval {OLDER} --set b": ["buckets="],
    "peref eval ": [NEWER, OLDER],
    "peref train --resume runs/2026-01": [OLDER],
    "peref show --run runs/2026-02": [NEWER],
    "peref train --data ": [*FILES, *data.known()],
    "peref check --flag adamw.b": ["adamw.bias_correction"],
    "peref explain ": list(known_flags()),
    "peref golden show rope.op/def": ["rope.op/default"],
    "peref check --case t5.table/two": ["t5.table/two-sided"],
    "peref check --for rope.o": ["rope.op"],
    "peref check --level r": ["refuse"],
    "peref train --norm ": ["rms", "layer"],
    "peref train --model norm_p": ["norm_place="],
    "peref train --model residual|=|p": ["parallel"],
    "peref train --shape ": ["llama", "gpt2"],
    "peref train --backend cuda|:|t": ["tf32"],
    "peref check --golden ": ["compopt -o dirnames"],
    "peref diff ": FILES,
    "peref nothing --wi": [],
    "peref golden show --golden notes.txt x": [],  # no golden files: nothing, and no message on the line
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with two runs, and a `peref` in front of every other on the path."""
    folder = tmp_path_factory.mktemp("completion")
    for name, pe in ((NEWER, "rope"), (OLDER, "t5")):
        text = {"name": "a", "spec": "a.txt", "sha256": "ab"}
        about = {"argv": [], "data": text, "environment": {}, "recipe": {}, "steps": 1}
        run = create(folder / "runs", [pe], about | {"config": {"pe": [[pe, {}]]}})
        (run.folder / "ckpt" / "00000001.safetensors").touch()
        run.folder.rename(folder / name)
    (folder / "notes.txt").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "peref").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m peref "$@"\n')
    (folder / "bin" / "peref").chmod(0o755)
    return folder


def environment(here, **more):
    path = f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(here), "TERM": "xterm", **more}


def needs(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed")


@pytest.mark.parametrize(("line", "expected"), LINES.items(), ids=LINES.keys())
def test_what_is_offered(here, monkeypatch, capsys, line, expected):
    """To bash, which is given what comes after the last = or :, and told of files by their kind."""
    words = line.replace("|", " ").split(" ")
    monkeypatch.chdir(here)
    for name, value in {
        "_PEREF_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }.items():
        monkeypatch.setenv(name, value)
    assert run_cli([], Signals()) == 0
    out, err = capsys.readouterr()
    kinds = {"plain": "", "file": "compopt -o default ", "dir": "compopt -o dirnames "}
    offered = [
        (kinds[kind] or value).strip()
        for kind, _, value in (item.partition(",") for item in out.splitlines())
        if kind
    ]
    assert (offered, err) == (expected, "")


IN_SHELLS = [
    "peref tr",
    "peref train --pe rope,ret",
    "peref train --pe rope+RET",
    "peref train --pe alibi --set m",
    "peref train --data ",
    "peref train --pe rope --set layout|=",
    "peref eval ",
    "peref golden show --golden notes.txt x",
]


@needs("bash")
def test_bash(here):
    """The function that is registered, given the words as readline cuts them."""
    script = (
        'eval "$(_PEREF_COMPLETE=bash_source peref)"\n'
        'compopt() { [[ $2 == nospace ]] && space=none || COMPREPLY=("compopt $1 $2"); }\n'
    )
    for line in IN_SHELLS:
        words = " ".join(f"'{word}'" for word in line.replace("|", " ").split(" "))
        script += (
            f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); space=; "
            "_peref_completion peref\n"
        )
        script += 'printf "%s\\n" "${COMPREPLY[@]}" "space $space" ===\n'
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=here,
        env=environment(here),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stderr == ""
    for line, answer in zip(IN_SHELLS, done.stdout.split("===\n")[:-1], strict=True):
        *offered, space = answer.splitlines()
        assert [word for word in offered if word] == LINES[line], line
        assert (space == "space none") == line.endswith("--set m"), line  # NAME= goes on without a space


@needs("fish")
def test_fish(here):
    """The same of lines without files; fish cuts no words at = or :, and puts no space after an = by
    itself.
    """
    lines = [line for line in IN_SHELLS if "|" not in line and "--data" not in line]
    script = "_PEREF_COMPLETE=fish_source peref | source\n" + "".join(
        f"complete -C '{line}'; echo ===\n" for line in lines
    )
    done = subprocess.run(
        ["fish", "-c", script], cwd=here, env=environment(here), capture_output=True, text=True, timeout=600
    )
    assert done.stderr == ""
    for line, answer in zip(lines, done.stdout.split("===\n")[:-1], strict=True):
        assert sorted(word.partition("\t")[0] for word in answer.splitlines()) == sorted(LINES[line]), line


@needs("zsh")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("peref di", "peref diff "),
        ("peref train --pe rope,ret", "--pe rope,retnet "),
        ("peref train --set max", "--set max_bias="),
        ("peref eval runs/2026-01", f"eval {OLDER} "),
        ("peref diff no", "diff notes.txt "),
    ],
)
def test_zsh(here, line, completed):
    """On a terminal: what stands there after TAB."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(here)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment(here, TERM="dumb", ZDOTDIR=str(here)))
    try:
        os.write(
            terminal,
            b'autoload -Uz compinit; compinit -u; eval "$(_PEREF_COMPLETE=zsh_source peref)"; '
            b"PS1=rea'dy> '\n",
        )
        seen(terminal, "ready> ")
        os.write(terminal, f"{line}\t|".encode())
        assert completed in seen(terminal, "|")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def seen(terminal, end):
    """What a terminal shows, until `end` is in it; zsh steps back over the space that it adds and writes
    it anew.
    """
    text, until = "", time.monotonic() + PATIENCE
    while end not in text and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")
    return text


@pytest.mark.parametrize(
    "line",
    [
        "peref tr",
        "peref train --pe r",
        "peref eval --set b",
        "peref check --case t5.t",
        "peref show --run r",
        "peref train --data t",
    ],
)
def test_it_loads_little(here, line):
    """No compiler, nothing that draws; and to complete a command, no command."""
    code = (
        "import sys\n"
        "from peref.cli import run\n"
        "from peref.cli.signals import Signals\n"
        "code = run([], Signals())\n"
    )
    code += "print(*sys.modules, file=sys.stderr)\nsys.exit(code)"
    words = line.split()
    given = {
        "_PEREF_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        env=environment(here, **given),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert done.stdout.startswith(("plain,", "file,"))
    assert "peref.cli.app" in loaded
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert ("peref.cli.train" in loaded) == (words[1] == "train")


def test_a_shell_that_is_not_known(monkeypatch, capsys):
    monkeypatch.setenv("_PEREF_COMPLETE", "tcsh_source")
    assert run_cli([], Signals()) == 2
    assert (
        capsys.readouterr().err
        == "error: _PEREF_COMPLETE is 'tcsh_source'; expected bash_source, zsh_source or fish_source\n"
    )


def test_click_before_8_5_is_enough():
    """Whose CompletionItem is of no kind: nothing could be started with it."""
    older = "import click.shell_completion as s; s.CompletionItem = type('Older', (), {})"
    subprocess.run([sys.executable, "-c", f"{older}; import peref.cli.completion"], check=True)
