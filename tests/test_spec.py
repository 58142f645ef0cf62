"""golden/SPEC.md describes every encoding, option, level, law, kind, flag and field that is in the files.

python tests/test_spec.py writes what follows from the recipes: the line of each encoding and the list of
flags.
"""

import json
import re
import textwrap
from pathlib import Path

import pytest
from recipes import said as said_of
from recipes.traps import KINDS, every

from peref.encodings import HOOKS, get, names, options
from peref.golden.judge.laws import LAWS
from peref.golden.judge.refusals import WRONGS as WRONGS
from peref.golden.spec.checksums import FILES, SUMS
from peref.golden.spec.rule import CLASSES, K_ACC, K_OUT

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LEFT_OUT = {
    "eps",
    "unit_eps",
    "chunk",
    "base",
    "value_factor",
    "kernel",
    "rank",
    "expand",
    "state_size",
    "start",
    "across_layers",
    "depth",
    "value_gate",
}
LEFT_OUT |= {f"{part}_rank" for part in ("mix", "decay", "a", "v", "gate")} | {
    "dt_min",
    "dt_max",
    "width",
}  # sizes and starts of layers: in the words of a case


def text():
    return (GOLDEN / "SPEC.md").read_text()


def flags():
    """One line for each flag."""
    bars = lambda words: words.replace("|", "\\|")
    rows = [
        f"| `{name}` | {flag['kind']} | {bars(flag['title'])} | {bars(flag['fix'])} |\n"
        for name, flag in sorted(every().items())
    ]
    return "| flag | kind | the trap | the remedy |\n|---|---|---|---|\n" + "".join(rows)


def line(name):
    """That of an encoding, from its recipe."""
    words = f"**{name}** {' '.join(said_of(name, 'SPEC').split())}"
    how = {
        "initial_indent": "- ",
        "subsequent_indent": "  ",
        "break_long_words": False,
        "break_on_hyphens": False,
    }
    return textwrap.fill(words, 118, **how) + "\n"


def generated():
    """Name of each part of the page that is written from the recipes -> what stands there."""
    lines = {hook: "".join(line(name) for name in names() if get(name).hook == hook) for hook in HOOKS}
    return lines | {"none": line("none"), "flags": flags()}


def begin(part):
    return f"<!-- {part}: written by python tests/test_spec.py -->\n"


def end(part):
    return f"<!-- end of {part} -->\n"


def said(word, where):
    """Whether a word stands there as a word of its own."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", where) is not None


def section(number):
    return re.split(r"^## \d+\. ", text(), flags=re.M)[number]


@pytest.mark.parametrize("name", names())
def test_every_encoding_has_its_formula(name):
    """A line of its own, with its paper and the options that change a formula."""
    found = re.search(rf"^- \*\*{name}\*\*.*?(?=^- \*\*|^#|^Names|\Z)", section(4), re.M | re.S)
    assert found, name
    paper = get(name).paper
    assert paper in found[0] or paper == "no paper" or name == "none", paper
    for option in set(options(get(name))) - LEFT_OUT:
        assert said(option, found[0]) or (said(option, section(4)) and option == "original"), (name, option)


def test_every_level_law_kind_and_class():
    for level in ("table", "op", "attn", "cross", "trace", "block", "model", "step", "refuse", "law"):
        assert f"| `{level}` |" in section(3), level
    for law in LAWS:
        assert f"| `{law}` |" in section(7), law
    for kind in WRONGS:
        assert f"`{kind}`" in section(6), kind
    for kind in KINDS:
        assert said(kind, section(10)), kind


@pytest.mark.parametrize("part", generated())
def test_what_follows_from_the_recipes_is_up_to_date(part):
    assert text().split(begin(part))[1].split(end(part))[0] == generated()[part], (
        "run: python tests/test_spec.py"
    )


def test_a_flag_says_what_happens_and_what_to_do():
    """In words that can be followed: no single word, and nobody is sent back to the formula."""
    nothing = re.compile(r"^(as|mind|refuse it)\b.*|the formula has it|\bsays$|^use the|^write it$")
    for flag, words in every().items():
        assert len(words["effect"].split()) >= 3, (flag, words)
        assert len(words["fix"].split()) >= 5, (flag, words)
        assert not nothing.search(words["fix"]), (flag, words)


@pytest.mark.parametrize("part", ["case", "refusal", "law"])
def test_every_field_of_the_files(part):
    """From the schema, which has them all."""
    schema = json.loads((GOLDEN / "cases.schema.json").read_text())
    top = schema["$defs"][part]["properties"]
    everywhere = "\n".join(section(n) for n in (2, 3, 6, 7, 8))
    for field in [
        *top,
        *schema["properties"],
        *(key for key in schema["$defs"]["facts"]["properties"] if part == "case"),
    ]:
        assert f"`{field}`" in everywhere + section(1) or f'"{field}"' in everywhere, field


def test_the_rule_has_its_figures_in_one_place():
    """K and the limits of the classes are in a file, not in prose, and are those that `check` goes by."""
    rule = section(5)
    assert "`rule.json`" in rule
    assert json.loads((GOLDEN / "rule.json").read_text()) == {
        "K_o": K_OUT,
        "K_c": K_ACC,
        "classes": dict(CLASSES),
    }
    assert not re.search(r"K_[oc] = \d|<= 16|: 16|<= 64|: 64", rule)


def test_it_speaks_of_the_files_that_are_there():
    for path in ("cases.schema.json", "report.schema.json", "rule.json", "SPEC_VERSION", "LICENSE-DATA"):
        assert f"`{path}`" in section(2), path
        assert (GOLDEN / path).is_file(), path
    for name in (*FILES, SUMS):
        assert f"`core/NAME/{name}`" in section(2), name
    version = (GOLDEN / "SPEC_VERSION").read_text().strip()
    assert version in section(11)
    for page in (GOLDEN / "README.md", GOLDEN.parent / "README.md"):
        assert re.findall(r"version (\d+\.\d+)", page.read_text()) == [version.rpartition(".")[0]], page


if __name__ == "__main__":
    page = text()
    for part, words in generated().items():
        head, _, rest = page.partition(begin(part))
        page = head + begin(part) + words + end(part) + rest.partition(end(part))[2]
    (GOLDEN / "SPEC.md").write_text(page)
