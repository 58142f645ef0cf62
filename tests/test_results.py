"""docs/results: each `compare` command of a page is taken, and asks for the rows and lengths of the table
that stands under it.
"""

import re
import shlex
from pathlib import Path

import pytest

from peref.cli import compare
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.errors import Misuse
from peref.lab.comparison import entries

PAGES = [
    path
    for path in sorted((Path(__file__).parents[1] / "docs" / "results").glob("*.md"))
    if "cli.py compare " in path.read_text()
]
COMMAND = re.compile(r"^python cli\.py (compare .*)$", re.M)
TABLE = re.compile(r"^\| encoding (.*)\n\|[-:| ]+\|\n((?:\|.*\n)+)", re.M)

THREE = "gated_deltanet,gated_deltanet,gated_deltanet"
IN_WORDS = {f"{THREE},{last}": f"three of four, then {last}" for last in ("rope", "none")}


def planned(line, monkeypatch):
    """What a command would compare."""
    found = []

    def instead(plan, given):
        found.append(plan)
        raise Misuse("this is a test")

    monkeypatch.setattr(compare, "compared", instead)
    assert run_cli(shlex.split(line), Signals()) == 2
    return found[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_command_asks_for_what_stands_under_it(page, monkeypatch, tmp_path):
    """A table may leave out a length."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    for line, (head, rows) in zip(COMMAND.findall(text), TABLE.findall(text), strict=True):
        plan = planned(line, monkeypatch)
        cells = [cell.strip(" *").replace(",", "") for cell in head.split("|")]
        assert {int(cell) for cell in cells if cell.isdigit()} <= {*plan.grid}
        assert max(int(cell) for cell in cells if cell.isdigit()) == plan.longest
        told = [row.split("|")[1].strip() for row in rows.splitlines()]
        asked = dict.fromkeys(entry.label.replace(", as it is", "") for entry in entries(plan))
        assert all(there in (name, IN_WORDS.get(name)) for name, there in zip(asked, told, strict=True))
