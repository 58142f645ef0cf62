"""docs/results: each `compare` command of a page is taken, and asks for the rows and lengths of the table
that stands under it. Where what it measured is kept as JSON, that is of this command, and table and picture
are made of it.
"""

import json
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from peref import store
from peref.cli import compare
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.errors import Misuse
from peref.lab import comparison_report
from peref.lab.comparison import entries

FOLDER = Path(__file__).parents[1] / "docs" / "results"
PAGES = [path for path in sorted(FOLDER.glob("*.md")) if "cli.py compare " in path.read_text()]
KEPT = sorted(FOLDER.glob("*.json"))
COMMAND = re.compile(r"^python cli\.py (compare (?!--again).*)$", re.M)
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


def cells_of(line):
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_command_asks_for_what_stands_under_it(page, monkeypatch, tmp_path):
    """A table may leave out a length."""
    monkeypatch.chdir(tmp_path)
    text, told_of = page.read_text(), []
    for line, (head, rows) in zip(COMMAND.findall(text), TABLE.findall(text), strict=True):
        plan = planned(line, monkeypatch)
        cells = [cell.replace(",", "") for cell in cells_of(head)]
        assert {int(cell) for cell in cells if cell.isdigit()} <= {*plan.grid}
        assert max(int(cell) for cell in cells if cell.isdigit()) == plan.longest
        table = [cells_of(row) for row in rows.splitlines()]
        asked = dict.fromkeys(entry.label.replace(", as it is", "") for entry in entries(plan))
        assert all(row[0] in (name, IN_WORDS.get(name)) for name, row in zip(asked, table, strict=True))
        name = plan.task.name if plan.task else page.stem
        if (path := FOLDER / f"{name}.json") in KEPT:
            told_of.append(path.name)
            is_of(plan, found := json.loads(path.read_text()))
            for row, made in zip(table, comparison_report.rows_of_table(found), strict=True):
                want = [cell.partition(" (")[0] if plan.task else cell for cell in made]
                assert row == [cell.removeprefix("length ") for cell in want[: len(row)]]
    again = re.findall(r"compare --again docs/results/(\S+) ", text)
    assert again == re.findall(r"\]\((\S+\.json)\)", text) == told_of


def is_of(plan, found):
    """Raises AssertionError where a document is not what the command of this plan measures."""
    assert (found["corpus"], found["lengths"], found["L"]) == (plan.corpus.sha256, plan.grid, plan.L)
    assert found["samples" if plan.task else "bytes"] == plan.count
    said = [[entry[key] for key in ("label", "seed", "recipe", "config")] for entry in found["entries"]]
    tokens = plan.tokens(plan.longest)
    wanted = [(e.label, e.recipe.seed, asdict(e.recipe), e.at(tokens).to_json()) for e in entries(plan)]
    assert said == json.loads(store.canonical(wanted))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_picture_is_drawn_again_from_what_is_kept(path, tmp_path):
    """But for how another version draws an edge; some page shows it, with words."""
    imread = pytest.importorskip("matplotlib.image", reason="pictures need the extra plot").imread
    words = ["compare", "--again", str(path), "-o", str(tmp_path)]
    assert run_cli(words, Signals()) == 0
    drawn, kept = imread(tmp_path / "comparison.png"), imread(path.with_suffix(".png"))
    assert drawn.shape[:2] == kept.shape[:2]
    assert np.abs(drawn[..., :3] - kept[..., :3]).mean() < 0.002
    assert any(re.search(rf"!\[\w.*\]\({path.stem}\.png\)", page.read_text()) for page in PAGES)
