"""What the README says is so: its table is the registry, its Python runs, its commands run, its keys and exit
codes are those of the package.

`python tests/test_readme.py` writes the table of encodings anew.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import click
import pytest
import safetensors.numpy

import peref
from peref import cli, compare, data, errors, model, porting
from peref.cli import text
from peref.cli.app import group
from peref.cli.signals import Interrupted, Signals
from peref.config import Config
from peref.encodings import get, names
from peref.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "README.md"
README = FILE.read_text()
START, END = "<!-- encodings -->\n", "<!-- /encodings -->"


def table() -> str:
    """The README's table of encodings, from the registry."""
    lines = ["| name | hook | formula | paper |", "|---|---|---|---|"]
    for name in names():
        encoding = get(name)
        paper = encoding.paper
        if paper.startswith("arXiv:"):
            paper = f"[{paper}](https://arxiv.org/abs/{paper.removeprefix('arXiv:')})"
        formula = encoding.formula.replace("|", r"\|")
        lines.append(f"| `{name}` | {encoding.hook or '-'} | `{formula}` | {paper} |")
    return "\n".join(lines) + "\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M)


def rows(head: str) -> list[list[str]]:
    """The cells of the table that begins with this line."""
    lines = README[README.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def commands() -> list[list[str]]:
    """The words after `python cli.py` of every command line in a block, in the README's order."""
    lines = [line for block in blocks("") for line in block.splitlines()]
    return [
        shlex.split(part)[2:]
        for line in lines
        for part in line.split(" && ")
        if part.startswith("python cli.py ")
    ]


def test_the_table_of_encodings_is_the_registry():
    """`python tests/test_readme.py` makes it so."""
    assert README.count(START) == README.count(END) == 1
    assert README.partition(START)[2].partition(END)[0] == table()


# ---------------------------------------------------------------- Python


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_runs(number, tmp_path):
    """Each block by itself, in a folder where a public model lies."""
    public = {
        "model_type": "llama",
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    public |= {"intermediate_size": 16, "max_position_embeddings": 16, "tie_word_embeddings": True}
    cfg = porting.config_of(public)
    (tmp_path / "config.json").write_text(json.dumps(public))
    safetensors.numpy.save_file(porting.unload(model.init(cfg), cfg), tmp_path / "model.safetensors")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks("python")[number]],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


def test_the_comparison_is_five_lines_and_says_what_is_printed():
    """With the other layout it raises, in the words that the README has."""
    code = blocks("python")[0].replace('layout="half"', 'layout="interleaved"')
    assert len([line for line in code.splitlines() if "import" not in line]) <= 5
    with pytest.raises(compare.Differs) as error:
        exec(code, {})
    # the last digits are the machine's
    said, readme = (re.sub(r"(-?\d\.\d{8})\d*", r"\1", text) for text in (str(error.value), README))
    assert said in readme


def test_what_the_python_blocks_say_of_shapes():
    """Read off after running them."""
    scope = {}
    exec(blocks("python")[1], scope)
    assert scope["b"].shape == (2, 7, 7)
    assert scope["dp"]["table"].shape == (32, 2)


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize("args", commands(), ids=" ".join)
def test_click_takes_every_command(args):
    """Names and kinds of options, without running."""
    with group.make_context("peref", list(args)) as ctx:
        name, command, rest = group.resolve_command(ctx, list(args))
        with command.make_context(name, rest, parent=ctx) as inner:
            if isinstance(command, click.Group) and rest:
                name, command, rest = command.resolve_command(inner, rest)
                command.make_context(name, rest, parent=inner)


SMALL = [
    "--steps",
    "2",
    "--batch",
    "1",
    "--width",
    "16",
    "--heads",
    "2",
    "--layers",
    "4",
    "--save-every",
    "1",
    "--valid-bytes",
    "4096",
]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder that commands run in."""
    return tmp_path_factory.mktemp("checkout")


@pytest.fixture(scope="module")
def told(here):
    """Every command run in the README's order, training made small: command line -> what `--json` says."""
    words = "".join(f"def f{n}(x):\n    return x * {n} + {n * n}\n\n" for n in range(9000))
    (here / "text.py").write_text(words)
    (here / "peref").mkdir()
    (here / "peref" / "text.py").write_text(words)
    shutil.copy(ROOT / "tests" / "configs" / "llama-3.1-8b.json", here / "config.json")
    found = {}
    for args in commands():
        line = list(args)
        if args[:2] == ["train", "--resume"]:
            newest = max((here / "runs").iterdir(), key=lambda run: (run / "run.json").stat().st_mtime_ns)
            max((newest / "ckpt").iterdir()).unlink()
        elif args[0] == "train":
            line += [*SMALL, *([] if "--data" in args else ["--data", "text.py"])]
        elif args[0] == "generate":
            line += ["--tokens", "5"]
        elif args[0] == "eval":
            line += ["--bytes", "8192"]
        done = subprocess.run(
            [sys.executable, ROOT / "cli.py", *line, "--json"],
            cwd=here,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        found[" ".join(args)] = json.loads(done.stdout)
    return found


def test_the_sample_shows_the_defaults():
    """What it says of model, encoding and training, which no machine changes."""
    cfg, recipe = Config(), Recipe()
    count = sum(a.size for a in model.init(cfg).values())
    assert (
        "\n"
        f"model         {count:,} parameters: {cfg.layers} layers, width {cfg.C}, {cfg.H} heads of {cfg.D} "
        f"({cfg.G} key-value)" in README
    )
    assert f"\n{text.labelled('encoding', text.cycle(cfg.pe))}\n" in README
    assert (
        "\n"
        f"training      {recipe.steps} steps, {recipe.batch * cfg.L:,} tokens a step ({recipe.batch} x "
        f"{cfg.L}), rate {recipe.rate}" in README
    )


def test_the_sample_is_of_the_default_text():
    """Which text it is, and its yardsticks, as printed."""
    corpus = data.corpus()
    assert (
        f"\ndata          {corpus.name}: {corpus.source}; {text.size(corpus.train.size)} to train on, "
        in README
    )
    marks = data.yardsticks(corpus.train, corpus.valid)
    assert (
        f"\nyardsticks    unigram {marks['unigram_bpb']:.3f}, bigram {marks['bigram_bpb']:.3f}, xz -9 "
        in README
    )


@pytest.mark.parametrize("name", ["extrapolation", "scalings"])
def test_the_measured_tables_are_those_of_the_benchmarks(name):
    """Every row that the README has of them, and the text that they were measured on is the default."""
    corpus = data.corpus()
    found = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text()
    assert f"{corpus.source} ({corpus.sha256[:12]})" in found
    measured = [line for line in found.splitlines() if re.fullmatch(r"\| \w+ (\| \d\.\d\d )+\|", line)]
    assert len(measured) > 6
    assert [line for line in measured if line not in README.splitlines()] == []


def test_every_command_runs(told):
    """As written, but for the size of the training and the text of those that name none."""
    assert len(told) == len({" ".join(args) for args in commands()}) > 10


def test_json_has_the_keys_that_are_said(told):
    """Of every command, no more and no fewer."""
    said = {
        command.strip("`"): set(re.findall(r"`(\w+)`", keys)) for command, keys in rows("| command | keys |")
    }
    assert set(said) == {line.split()[0] for line in told}
    for line, document in told.items():
        assert set(document) == said[line.split()[0]], line
    row = re.search(r"A row has (.*?)\. ", README.replace("\n", " "))[1]
    assert set(re.findall(r"`(\w+)`", row)) == set(told["eval --len 2048"]["rows"][0])
    assert set(told["train --resume"]["val"]) == {"loss", "bpb"}


def test_the_gallery_has_every_encoding(told, here):
    """A picture each, and a page that shows and names them all."""
    said = told["show --all -o gallery"]
    page = (here / said["page"]).read_text()
    assert [one["name"] for one in said["pictures"]] == names()
    for one in said["pictures"]:
        assert (here / one["path"]).stat().st_size > 1000
        assert len(one["panels"]) >= 2
        assert f'<img src="{one["name"]}.png"' in page
        assert f'href="#{one["name"]}"' in page
    assert sorted(p.name for p in (here / "gallery").iterdir()) == sorted(
        [*(f"{n}.png" for n in names()), "index.html"]
    )


def test_the_base_that_is_set_is_the_base_that_is_evaluated(told):
    """`eval --set` on a cycle goes to every member that has the option."""
    cycle = told["eval --len 2048 --set base=20000"]["pe"]
    assert [(name, given.get("base")) for name, given in cycle] == [("rope", 20000.0)] * 3 + [("none", None)]


# ---------------------------------------------------------------- exit codes


def kinds(error=errors.PerefError):
    """Kind -> exit code, of this class of error and all below."""
    return {error.kind: error.exit_code} | {
        kind: code for below in error.__subclasses__() for kind, code in kinds(below).items()
    }


def test_exit_codes_are_those_of_the_errors():
    """The table has every code that there is, and the kinds are all named."""
    # every error of the package, whatever ran before this test
    for found in walk_packages(peref.__path__, "peref."):
        import_module(found.name)
    of_signals = {n: cli.explain(Interrupted(n))[::2] for n in (signal.SIGINT, signal.SIGTERM)}
    others = {cli.explain(error)[2] for error in (RuntimeError("bug"), BrokenPipeError())}
    codes = {0, *kinds().values(), *(code for _, code in of_signals.values()), *others}
    said = {int(code): meaning for code, meaning in rows("| code | meaning |")}
    assert set(said) == codes
    assert "misuse" in said[errors.Misuse.exit_code]
    assert "failed" in said[errors.PerefError.exit_code]
    assert "differs" in said[compare.Differs.exit_code]
    assert "SIGINT" in said[of_signals[signal.SIGINT][1]]
    assert "SIGTERM" in said[of_signals[signal.SIGTERM][1]]
    named = re.search(r"The kinds are (.*?)\.\n", README, re.S)[1]
    assert set(re.findall(r"`(\w+)`", named)) == {*kinds(), "interrupted", "internal"}


@pytest.mark.parametrize(
    ("args", "code"),
    [(["list"], 0), (["train", "--pe", "alibbi"], 2), (["eval", "--len", "many"], 2), (["--version"], 0)],
)
def test_the_command_gives_those_codes(args, code, tmp_path, monkeypatch):
    """Done and misuse, as the shell sees them."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(args, Signals()) == code


def test_links_and_files_that_are_named_are_there():
    """Every relative link, and every path in backquotes that is one of the checkout's."""
    for link in re.findall(r"\]\((?!http|#)([^)]+)\)", README):
        assert (ROOT / link).exists(), link
    for anchor in re.findall(r"\]\(#([^)]+)\)", README):
        assert anchor in {
            re.sub(r"[^\w -]", "", h).lower().replace(" ", "-")
            for h in re.findall(r"^#+ (.*)$", README, re.M)
        }
    for path in re.findall(r"(?:`|python )((?:peref|tests|benchmarks)/[\w./]+)", README):
        assert (ROOT / path).exists(), path


if __name__ == "__main__":
    before, _, rest = README.partition(START)
    FILE.write_text(before + START + table() + END + rest.partition(END)[2])
