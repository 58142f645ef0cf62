"""Everything about one encoding stands in its file, its loop or its recipe: no other file names it, so that a
new one edits none.

A file names an encoding where a text in its code is its name, or a list or a flag with it (none,alibi or
alibi.slopes.exponent), or where it imports its module. Not asked of files of tests (test_*.py), which take
encodings as examples, nor of what is generated.
"""

import ast
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from peref.encodings import names

ROOT = Path(__file__).resolve().parent.parent
ORDINARY = {"none", "path", "learned"}  # words that mean other things too
MAY = {  # file or folder -> why encodings are named there
    "peref/config.py": "the encoding of a model where nothing is said",
    "peref/huggingface/": "what public configurations and classes call them",
    "peref/porting/families.py": "the same",
    "peref/porting/names.py": "models that are called as they are",
    "peref/lab/comparison.py": "whose weights the scalings read",
    "peref/lab/search.py": "what is searched, and what it is compared with",
    "peref/cli/compare.py": "what is compared where nothing is said",
    "peref/golden/diagnosis/traces.py": "which of two flags it is",
    "peref/encodings/score/dape.py": "what it may stand beside",
    "tests/recipes/dape.py": "the same",
    "tests/level_mutants.py": "what traces show alone: all of it is made with functions that stand there",
    "tests/honest/forms.py": "right programs in other forms, of some encodings",
    "tests/recipes/settings.py": "encodings beside one another, and layers that differ",
    "tests/golden_files.py": "two small cases",
    "golden/runners/": "examples of programs, for some encodings each",
}


ANY_ROTATION = r"^rope\.(ntk\.)?"  # how flags of rotations begin, and of both kinds of NTK


@cache
def shared_flags():
    """Those of several encodings, which are about none of them."""
    words = (json.loads(path.read_text()) for path in (ROOT / "golden" / "core").glob("*/cases.json"))
    flags = Counter(flag for one in words for flag in one["flags"])
    return {flag for flag, count in flags.items() if count > 1}


def texts(path):
    """The texts in the code of a file and the modules of encodings that it imports; all words where it is
    not Python.
    """
    if path.suffix != ".py":
        return set(path.read_text().replace('"', " ").replace("'", " ").split())
    tree, found, said = ast.parse(path.read_text()), set(), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            said.add(body[0].value)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in said:
                found.add(text)
                if " " not in text and text not in shared_flags():
                    found |= set(re.split("[.,+:]", re.sub(ANY_ROTATION, "", text)))
            case ast.ImportFrom(module=str(module), names=some) if module.startswith(
                ("peref.encodings", "loops", "recipes")
            ):
                found |= {module.rpartition(".")[2], *(alias.name for alias in some)}
    return found


@cache
def words_of_files():
    return {
        path.relative_to(ROOT).as_posix(): texts(path)
        for folder, kind in (("peref", "*.py"), ("tests", "*.py"), ("golden/runners", "*.*"))
        for path in (ROOT / folder).rglob(kind)
        if not path.name.startswith("test_") and path.suffix in (".py", ".c", ".mjs", ".rs")
    }


@pytest.mark.parametrize("name", sorted(set(names()) - ORDINARY))
def test_no_other_file_names_it(name):
    """But for the list above, which is printed where one does."""
    others = [path for path, words in words_of_files().items() if name in words and Path(path).stem != name]
    wrong = [path for path in others if not path.startswith(tuple(MAY))]
    listed = "\n".join(f"{path}: {why}" for path, why in MAY.items())
    assert wrong == [], (
        f"{wrong} name {name}; say it in its file, loop or recipe. These may name encodings:\n{listed}"
    )


def test_the_list_is_short_and_needed():
    for place in MAY:
        words = set().union(*(words for path, words in words_of_files().items() if path.startswith(place)))
        assert words & (set(names()) - ORDINARY), f"{place} names no encoding any more; take it off the list"


def test_a_name_is_found(tmp_path):
    path = tmp_path / "x.py"
    for text, found in (
        ("a = 'rope'", True),
        ("a = 'none,rope'", True),
        ("a = 'rope.layout.half'", False),
        ("a = 'as rope does it'", False),
        ("from peref.encodings.rotate import rope", True),
        ('"""rope"""', False),
        ("rope = 1", False),
    ):
        path.write_text(text)
        assert ("rope" in texts(path)) == found
    path.write_text("a = 'alibi.slopes.exponent'")
    assert "alibi" in texts(path)
