"""docs/exercises.md: each exercise is a command that makes the picture it names."""

import re
import shlex
from glob import glob
from pathlib import Path

import numpy as np

from peref.cli import run as run_cli
from peref.cli.signals import Signals

PAGE = (Path(__file__).parent.parent / "docs" / "exercises.md").read_text()
PARTS = PAGE.split("\n## ")[1:]
TINY = [
    "--layers",
    "2",
    "--width",
    "16",
    "--heads",
    "2",
    "--steps",
    "2",
    "--batch",
    "1",
    "--backend",
    "numpy",
]


def lines_of(part):
    """The commands of an exercise, as words."""
    (block,) = re.findall(r"^```\n(.*?)^```$", part, re.S | re.M)
    return [shlex.split(line)[2:] for line in block.replace("&&", "\n").splitlines() if line.strip()]


def made_small(words):
    """The same command with models and texts that take seconds."""
    last = {"--len": "16", "--to": "64", "--finetune": "2"}
    small = [last.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    more = {"train": TINY, "compare": [*TINY, "--bytes", "1024", "--data", "text.txt"], "show": []}
    return [*small, *more.get(words[0], ["--backend", "numpy"])]


def test_the_commands_make_the_pictures(tmp_path, monkeypatch):
    """All five, the second after the third, whose runs it reads."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = ["the cat ", "sat on ", "a mat\n", "and ran ", "off "]
    Path("text.txt").write_text("".join(words[n] for n in rng.integers(0, 5, 4000)))
    assert len(PARTS) == 5
    for number in (0, 2, 1, 3, 4):
        named = re.findall(r"picture is(?: in)? `([^`]+)`", PARTS[number])
        for line in lines_of(PARTS[number]):
            found = [path for word in made_small(line) for path in (glob(word) or [word])]
            assert run_cli(found, Signals()) == 0, found
        (picture,) = named
        page = Path(picture).read_bytes()
        assert page[:4] == b"\x89PNG" or b"data:image/png;base64," in page
