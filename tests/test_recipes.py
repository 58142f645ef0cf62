"""The recipes: every encoding has its file, no golden case goes missing, and without the tests vectors of
one's own are still made.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import recipes
from making.catalogue import catalogue, core, declared, full

from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.encodings import names
from peref.errors import Misuse
from peref.golden.judge.declared import VERDICTS
from peref.golden.spec.cases import LEVELS_OF_HOOK, yours

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def committed():
    """Id of each case in the files -> its words."""
    found = {}
    for file in GOLDEN.glob("*/*/cases.json"):
        words = json.loads(file.read_text())
        found |= {case["id"]: case for part in ("cases", *VERDICTS) for case in words[part]}
    return found


def made():
    """The same from the recipes."""
    found = {case.id: {"encoding": case.encoding, "level": case.level} for case in (*core(), *full())}
    return found | {
        words["id"]: words for part in VERDICTS for name in names() for words in declared(name, part)
    }


def test_every_encoding_has_its_recipes():
    """One file each, found by name, and none that belongs to nothing."""
    assert recipes.files() == sorted(names())


def test_what_has_no_recipe_is_told_to_write_one():
    """The file, and where it is said what stands in it."""
    with pytest.raises(FileNotFoundError, match=r"no tests/recipes/nobody\.py; CONTRIBUTING\.md says what"):
        recipes.module("nobody")


@pytest.mark.parametrize("name", names())
def test_a_file_of_recipes_is_of_its_encoding(name):
    """Each level at its default, and a reason, a sentence, for every case."""
    module = import_module(f"recipes.{name}")
    assert module.__doc__, f"{module.__file__} has no docstring; say what is in it"
    others = {case.encoding for case in module.RECIPES} - {name}
    assert not others, f"{module.__file__} has cases of {others}; move them into their own files"
    have = {(case.level, case.slug) for case in module.RECIPES}
    missing = {(level, "default") for level in LEVELS_OF_HOOK[module.RECIPES[0].hook]} - have
    assert not missing, f"{module.__file__} lacks the cases {missing}; usual({name!r}) makes them"
    for case in module.RECIPES:
        assert len(case.why.split()) > 1, f"{case.id}: say in a sentence why it is there"
        assert case.why.endswith("."), f"{case.id}: end {case.why!r} with a full stop"
        assert case.flags, f"{case.id}: name the traps that it catches (recipes/traps.py has their flags)"


def test_no_id_is_ever_dropped():
    """What stands in the committed files is still made by a recipe: an id may be changed, never taken away
    or given to something else.
    """
    now, before = made(), committed()
    gone = sorted(set(before) - set(now))
    assert gone == [], f"golden/ has these cases, and no recipe makes them: {gone}; put them back"
    for name, words in before.items():
        assert (now[name]["encoding"], now[name]["level"]) == (words["encoding"], words["level"]), name


def test_a_recipe_that_is_gone_is_noticed(monkeypatch):
    """One case, and a whole file."""
    usual = recipes.of
    monkeypatch.setattr(
        recipes, "of", lambda name: [case for case in usual(name) if case.id != "yarn.table/llama-2"]
    )
    with pytest.raises(AssertionError, match=r"yarn\.table/llama-2"):
        test_no_id_is_ever_dropped()
    monkeypatch.setattr(recipes, "files", lambda: sorted(set(names()) - {"yarn"}))
    with pytest.raises(Misuse, match="no golden case is made for yarn"):
        catalogue()
    with pytest.raises(AssertionError):
        test_every_encoding_has_its_recipes()


def test_a_second_process_builds_the_same_bytes(tmp_path):
    """Whatever the hashes of texts are there."""
    ids = (
        "rope.op/long",
        "alibi.table/slopes-12",
        "t5.op/default",
        "mamba.op/short",
        "learned.table/last-row",
    )
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from golden_files import folder_of\n"
        "from making.catalogue import catalogue\n"
    )
    code += f"folder_of(Path(sys.argv[1]), [c for c in catalogue() if c.id in {ids!r}])"
    for seed in "12":
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": f"{GOLDEN.parent}{os.pathsep}{GOLDEN.parent / 'tests'}",
        }
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], env=env, check=True, cwd=tmp_path)
    one, other = (
        {
            p.relative_to(tmp_path / n).as_posix(): p.read_bytes()
            for p in (tmp_path / n).rglob("*")
            if p.is_file()
        }
        for n in "12"
    )
    assert "alibi/SHA256SUMS" in one
    assert one == other


def test_without_a_checkout(monkeypatch, capsys, tmp_path):
    """Vectors for a shape of one's own need no recipes, and the files of the package are computed again
    without them.
    """
    for name in ("recipes", "making", "loops", "mutants"):
        monkeypatch.setitem(sys.modules, name, None)
    assert [case.level for case in yours("rope", {})] == ["table", "op", "attn"]
    code = run_cli(
        ["golden", "vectors", "--pe", "alibi", "--shape", "1,2,1,5,4", "-o", str(tmp_path / "mine")],
        Signals(),
    )
    assert code == 0, capsys.readouterr()
    assert run_cli(["golden", "verify", str(tmp_path / "mine"), "--rebuild"], Signals()) == 0, (
        capsys.readouterr()
    )
