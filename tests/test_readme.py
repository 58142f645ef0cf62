"""What README and docs say is so: links lead somewhere, tables are the registry, Python and commands run, and
transcripts, keys and exit codes are those of the package. The README stays short.

`python tests/test_readme.py` writes what follows from the package: tables of encodings and transcripts.
"""

import html
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import click
import pytest
import safetensors.numpy

import peref
from peref import cli, compare, data, errors, model, modules, porting
from peref.cli import text
from peref.cli.app import group
from peref.cli.signals import SIGNAL_WORDS, Interrupted, Signals
from peref.config import Config
from peref.encodings import HOOKS, get, names
from peref.golden import SPEC_VERSION
from peref.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # path -> text of every page that a user reads
    path.relative_to(ROOT).as_posix(): path.read_text()
    for where in ("*.md", "docs/**/*.md", "golden/*.md", "data/*.md", "benchmarks/**/*.md")
    for path in sorted(ROOT.glob(where))
}
README, CLI, CHECKING = (PAGES[page] for page in ("README.md", "docs/cli.md", "docs/checking.md"))
START, END = "<!-- encodings: python tests/test_readme.py -->\n", "<!-- /encodings -->"
MOST_WORDS, MOST_BYTES = 1200, 150_000
TRANSCRIPT = re.compile(r"(?<=^```console\n)\$ (.*?)\n(.*?)(?=^```$)", re.M | re.S)
NAMED = re.compile(
    r"`(\w+\.py)`[^`\n]*(?:\n[^`\n]+)*:?\n\n```python\n(.*?)```", re.S
)  # a file that a page holds


FAKE_TORCH = ROOT / "tests" / "fake_torch.py"
WALK = "docs/porting.md"  # its transcripts go on from one another
TRANSCRIPTS = [
    (page, line)
    for page in ("README.md", "docs/checking.md", WALK)
    for line, _ in TRANSCRIPT.findall(PAGES[page])
]


def table() -> str:
    """The table of docs/encodings.md, from the registry."""
    lines = ["| name | hook | formula | paper |", "|---|---|---|---|"]
    for name in names():
        encoding = get(name)
        paper = encoding.paper
        if paper.startswith("arXiv:"):
            paper = f"[{paper}](https://arxiv.org/abs/{paper.removeprefix('arXiv:')})"
        formula = encoding.formula.replace("|", r"\|")
        lines.append(f"| [{name}](../{file_of(name)}) | {encoding.hook or '-'} | `{formula}` | {paper} |")
    return "\n".join(lines) + "\n"


def links() -> str:
    """The README's table: for each hook the names, each with a link to its file."""
    lines = ["| hook | encodings |", "|---|---|"]
    for hook in ("", *HOOKS):
        found = [f"[{name}]({file_of(name)})" for name in names() if get(name).hook == hook]
        lines.append(f"| {hook or '-'} | {' '.join(found)} |")
    return "\n".join(lines) + "\n"


def file_of(name: str) -> str:
    """Path of the file of an encoding in the checkout."""
    return "/".join(["peref", "encodings", get(name).hook or "", f"{name}.py"]).replace("//", "/")


def printed(page: str, line: str, torch: Path | None = None) -> str:
    """What a command of a page prints now, in a folder with the files that the page holds, after those before
    it where the page is the walk; `torch` is a file that stands in for PyTorch.
    """
    before, _, _ = (page if page == PAGES[WALK] else "").partition(f"$ {line}\n")
    line = "".join(f"{earlier} > /dev/null; " for earlier, _ in TRANSCRIPT.findall(before)) + line
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name in ("cli.py", "golden"):
            (here / name).symlink_to(ROOT / name)
        for name, code in NAMED.findall(page):
            (here / name).write_text(code)
        if torch:
            shutil.copy(torch, here / "torch.py")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = environment() | {"PATH": path}
        done = subprocess.run(line, shell=True, cwd=here, env=env, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout


def uses_torch(page: str, line: str) -> bool:
    return any(f"{name[:-3]}:" in line and "import torch" in code for name, code in NAMED.findall(page))


def absent(page: str, line: str) -> str:
    """What this machine lacks for a command of a page, in words; "" where it has all."""
    lacks = {
        "PyTorch": uses_torch(page, line) and find_spec("torch") is None,
        "C compiler": line.startswith("cc ") and shutil.which("cc") is None,
    }
    return " and ".join(f"there is no {what} here" for what, is_so in lacks.items() if is_so)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.S | re.M)


def rows(head: str) -> list[list[str]]:
    """The cells of the table of docs/cli.md that begins with this line."""
    lines = CLI[CLI.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def commands(*pages: str) -> list[list[str]]:
    """The words after `python cli.py` of each command in a block, in the order of the pages, each once."""
    lines = [line for page in pages for block in blocks(page, "(?:console)?") for line in block.splitlines()]
    parts = [part for line in lines for part in line.removeprefix("$ ").split(" && ")]
    return [
        shlex.split(part, comments=True)[2:]
        for part in dict.fromkeys(parts)
        if part.startswith("python cli.py ")
    ]


# ---------------------------------------------------------------- the pages


def test_the_readme_is_short():
    count = len(README.split())
    more = "move what a newcomer does not need into docs/"
    assert count <= MOST_WORDS, f"README.md has {count} words, expected at most {MOST_WORDS}: {more}"


def test_the_readme_gives_the_figures_of_the_exam():
    """Those of the tables of docs/diagnosis.md: the first run, and the last one."""
    tables = re.findall(r"^\| all \| (558) \|(.*)\|$", PAGES["docs/diagnosis.md"], re.M)
    percent = [re.findall(r"([\d.]+ %)", cells) for _, cells in tables]
    (noticed, named, probable), (noticed_now, named_now, _, with_later_flags) = percent
    later = re.search(r"without them \d+ .*?\(([\d.]+ %)\)", PAGES["docs/diagnosis.md"], re.S)[1]
    words = " ".join(README[README.index("Of 558 bugs") :].split(": [docs")[0].split())
    assert re.findall(r"float\d+|[\d.]+ %", words) == [
        *("float64", noticed_now, noticed, named_now, named, later, probable, "95 %", with_later_flags)
    ]


@pytest.mark.parametrize(("page", "expected"), [("README.md", links), ("docs/encodings.md", table)])
def test_the_tables_of_encodings_are_the_registry(page, expected):
    assert PAGES[page].count(START) == PAGES[page].count(END) == 1
    assert PAGES[page].partition(START)[2].partition(END)[0] == expected(), "run: python tests/test_readme.py"


@pytest.mark.parametrize(("page", "line"), TRANSCRIPTS)
def test_a_transcript_is_what_is_printed(page, line):
    """To the letter."""
    if reason := absent(PAGES[page], line):
        instead = "; tests/fake_torch.py stood in for it" * uses_torch(PAGES[page], line)
        pytest.skip(f"the transcript of {line!r} was not made: {reason}{instead}")
    expected = dict(TRANSCRIPT.findall(PAGES[page]))[line]
    assert printed(PAGES[page], line) == expected, "run: python tests/test_readme.py"


@pytest.mark.parametrize("line", [line for page, line in TRANSCRIPTS if uses_torch(PAGES[page], line)])
def test_a_transcript_of_pytorch_is_what_a_stand_in_prints(line):
    """To the letter, where there is PyTorch too."""
    expected = dict(TRANSCRIPT.findall(CHECKING))[line]
    assert printed(CHECKING, line, FAKE_TORCH) == expected


@pytest.mark.parametrize("torch", [None, FAKE_TORCH], ids=["PyTorch", "its stand-in"])
def test_frequencies_that_stay_float32_pass(torch):
    """As docs/checking.md says below the transcript of the wrong ones."""
    line = next(line for _, line in TRANSCRIPTS if "bf16" in line)
    if torch is None and (reason := absent(CHECKING, line)):
        pytest.skip(f"the right module was checked with tests/fake_torch.py alone: {reason}")
    assert CHECKING.count("Rotary(R, base).bfloat16()") == 1
    said = printed(CHECKING.replace("base).bfloat16()", "base)"), line, torch)
    assert re.fullmatch(r"pass: .* \(A \d+\), outputs only, .*\n", said), said


def test_the_citation_has_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = dict(re.findall(r"^(\w+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert f"({project['version']})" in PAGES["CHANGELOG.md"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_file_and_a_heading(page):
    """Every relative link of a page, its anchor too, and every picture is there and small."""
    for bang, words, target in re.findall(
        r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)", without_code(PAGES[page])
    ):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}: no such file"
        if anchor:
            assert anchor in anchors(file.read_text()), f"{page}: {target}: no such heading"
        if bang:
            assert len(words.split()) > 10, f"{page}: {target}: say in words what the picture shows"
            assert file.stat().st_size < MOST_BYTES, f"{page}: {target}: larger than {MOST_BYTES} bytes"


def without_code(page: str) -> str:
    """The page without blocks and words of code, which have brackets of their own."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$|^    .*?$", "", page, flags=re.S | re.M))


def anchors(page: str) -> set[str]:
    """Those that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("README", "docs/"))])
def test_files_that_are_named_are_there(page):
    """Every path in backquotes or after `python` that is one of the checkout's."""
    for path in re.findall(r"(?:`|python )((?:peref|tests|benchmarks|golden)/[\w./]+)", PAGES[page]):
        assert (ROOT / path).exists(), path


# ---------------------------------------------------------------- Python


PYTHON = [
    (page, n)
    for page in PAGES
    if page.startswith(("README", "docs/"))
    for n, code in enumerate(blocks(PAGES[page], "python"))
    if code not in [named for _, named in NAMED.findall(PAGES[page])]  # the transcripts run these
]


@pytest.mark.parametrize(("page", "number"), PYTHON)
def test_python_runs(page, number, tmp_path):
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
    command = [sys.executable, "-W", "error", "-c", blocks(PAGES[page], "python")[number]]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


def test_there_is_python_to_run():
    assert {page for page, _ in PYTHON} >= {"docs/checking.md", "docs/api.md"}


def test_the_comparison_is_five_lines_and_says_what_is_printed():
    """With the other layout it raises, in the words that the page has."""
    code = blocks(CHECKING, "python")[-1].replace('layout="half"', 'layout="interleaved"')
    assert len([line for line in code.splitlines() if "import" not in line]) <= 5
    with pytest.raises(compare.Differs) as error:
        exec(code, {})
    last = re.compile(r"(-?\d\.\d{8})\d*")  # the last digits are the machine's
    assert last.sub(r"\1", str(error.value)) in last.sub(r"\1", CHECKING)


def test_what_the_python_blocks_say_of_shapes():
    """Read off after running them."""
    scope = {}
    exec(blocks(PAGES["docs/api.md"], "python")[0], scope)
    assert scope["b"].shape == (2, 7, 7)
    assert scope["dp"]["table"].shape == (32, 2)


# ---------------------------------------------------------------- commands


SAID = [page for name, page in PAGES.items() if name.startswith(("README", "docs/", "golden/README"))]


@pytest.mark.parametrize("args", commands(*SAID), ids=" ".join)
def test_click_takes_every_command(args, tmp_path, monkeypatch):
    """Names and kinds of options, without running; mine.py is the example of CONTRIBUTING.md."""
    (encoding,) = re.findall(r"bias/square_root.py`:\n\n```python\n(.*?)```", PAGES["CONTRIBUTING.md"], re.S)
    for file in ("mine.py", "loop.py"):
        (tmp_path / file).write_text(encoding)
    monkeypatch.chdir(tmp_path)
    try:
        with group.make_context("peref", list(args)) as ctx:
            name, command, rest = group.resolve_command(ctx, list(args))
            with command.make_context(name, rest, parent=ctx) as inner:
                if isinstance(command, click.Group) and rest:
                    name, command, rest = command.resolve_command(inner, rest)
                    command.make_context(name, rest, parent=inner)
    finally:
        for name in modules.everyone():
            modules.forget(name)


TOLD = [
    args for args in commands(README, CLI) if args[0] != "check" and args[-1] != "alibi.png"
]  # but for the transcripts
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
]


OF_TASK = ["--len", "48", "--to", "96", "--samples", "10"]
GRID = """
data = "text.py"
bytes = 1024
to = 16
len = 8
steps = 2
width = 16
heads = 2
seed = [0, 1]
"""


def named(args, here):
    """The words of a command, with runs of a text in place of RUN."""
    runs = [json.loads(path.read_text()) | {"run": path.parent} for path in here.glob("runs/*/run.json")]
    of_text = (one for one in runs if "task" not in one and one["config"]["causal"])
    if args[0] == "search":
        of_text = (one for one in of_text if one["config"]["pe"][0][0] == "rope")
    return [str(next(of_text)["run"]) if word == "RUN" else word for word in args]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder that commands run in."""
    return tmp_path_factory.mktemp("checkout")


DRAWN = names()[::8]  # of the gallery


def draw_few(patch):
    """Draw those alone, for drawing takes long; of the others the font is asked for every character."""
    from peref.lab import pictures

    draw = pictures.drawn

    def drawn(suffix, name, about, panels, maps=()):
        if name.split()[0] in DRAWN:
            return draw(suffix, name, about, panels, maps)
        written = {c for c in repr((name, about, panels)) if c.isprintable()}
        pictures.wrapped("".join(written), 9.0)  # warns of one that the font has not
        return name.encode()

    patch.setattr(pictures, "drawn", drawn)


@pytest.fixture(scope="module")
def told(here):
    """Every command of README and docs/cli.md, training made small: command line -> what `--json` says.

    In this process: that of a command of its own is in test_cli.py.
    """
    words = "".join(f"def f{n}(x):\n    return x * {n} + {n * n}\n\n" for n in range(9000))
    (here / "text.py").write_text(words)
    (here / "peref").mkdir()
    (here / "peref" / "text.py").write_text(words)
    public = {"config": "llama-3.1-8b", "one": "llama-3.2-1b", "another": "qwen2.5-7b-1m"}
    for name, public_name in public.items():
        shutil.copy(ROOT / "tests" / "configs" / f"{public_name}.json", here / f"{name}.json")
    (here / "grid.toml").write_text(GRID)
    found = {}
    for args in TOLD:
        line = named(args, here)
        if args[:2] == ["train", "--resume"]:
            newest = max((here / "runs").iterdir(), key=lambda run: (run / "run.json").stat().st_mtime_ns)
            max((newest / "ckpt").iterdir()).unlink()
        elif args[0] == "train":
            line += [*SMALL, *([] if "--task" in args else ["--valid-bytes", "4096"])]
            line += [] if {"--data", "--task"} & {*args} else ["--data", "text.py"]
        elif args[0] == "compare":
            line += [*SMALL[:-2], "--data", "text.py"]
            line += OF_TASK if "--task" in args else ["--len", "32", "--to", "64", "--bytes", "1024"]
        elif args[0] == "search":
            line += ["--windows", "1", "--rounds", "1"]
        elif args[0] == "generate":
            line += [] if "--task" in args else ["--tokens", "5"]
        elif args[0] == "report":
            line += [] if "--len" in args or "--prompt" in args else ["--len", "64"]
        elif args[0] == "eval":
            line += ["--samples", "20"] if "--task" in args else ["--bytes", "8192"]
        elif args[:2] == ["show", "--all"]:
            line += ["--len", "32"]
        out, err = io.StringIO(), io.StringIO()
        with chdir(here), redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
            if args[:2] == ["show", "--all"] or args[0] == "report":  # test_run_report has pages
                draw_few(patch)
            code = cli.run([*map(str, line), "--json"], Signals())
        assert code == 0, (args, out.getvalue(), err.getvalue())
        found[" ".join(args)] = json.loads(out.getvalue())
    return found


def test_the_sample_shows_the_defaults():
    """What it says of model, encoding and training, which no machine changes."""
    cfg, recipe = Config(), Recipe()
    count = sum(a.size for a in model.init(cfg).values())
    heads = f"{cfg.H} heads of {cfg.D} ({cfg.G} key-value)"
    assert f"\nmodel         {count:,} parameters: {cfg.layers} layers, width {cfg.C}, {heads}" in CLI
    assert f"\n{text.labelled('encoding', text.cycle(cfg.pe))}\n" in CLI
    tokens = f"{recipe.batch * cfg.L:,} tokens a step ({recipe.batch} x {cfg.L})"
    assert f"\ntraining      {recipe.steps} steps, {tokens}, rate {recipe.rate}" in CLI


def test_the_sample_is_of_the_default_text():
    """Which text it is, and its yardsticks, as printed."""
    corpus = data.corpus()
    assert (
        f"\ndata          {corpus.name}: {corpus.source}; {text.size(corpus.train.size)} to train on, " in CLI
    )
    marks = data.yardsticks(corpus.train, corpus.valid)
    assert (
        f"\nyardsticks    unigram {marks['unigram_bpb']:.3f}, bigram {marks['bigram_bpb']:.3f}, xz -9 " in CLI
    )


def test_every_command_runs(told):
    """As written, but for the size of the training and of pictures and the text of those that name none."""
    assert len(told) == len(TOLD) > 10


def test_json_has_the_keys_that_are_said(told):
    """Of every command, no more and no fewer."""
    said = {
        command.strip("`"): set(re.findall(r"`(\w+)`", keys)) for command, keys in rows("| command | keys |")
    }
    two = "show --config A --config B"
    kinds = {line: two if line.count("--config") == 2 else line.split()[0] for line in told}
    kinds |= {line: f"{kinds[line]} --task" for line in told if re.match("(eval|gen.*|compare) --task", line)}
    kinds["eval RUN RUN"] = "eval RUN RUN"
    assert set(said) == set(kinds.values())
    for line, document in told.items():
        assert set(document) == said[kinds[line]], line
    row = re.search(r"A row has (.*?)\. ", CLI.replace("\n", " "))[1]
    assert set(re.findall(r"`(\w+)`", row)) == set(told["eval --len 2048"]["rows"][0])
    assert set(told["train --resume"]["val"]) == {"loss", "bpb"}


def test_the_gallery_has_every_encoding(told, here):
    """A picture each, and a page that shows them all, with formula, paper and what is drawn as text."""
    said = told["show --all -o gallery"]
    page = (here / said["page"]).read_text()
    assert [one["name"] for one in said["pictures"]] == names()
    for one in said["pictures"]:
        assert one["name"] not in DRAWN or (here / one["path"]).stat().st_size > 1000
        assert len(one["panels"]) >= 2
        assert f'<img src="{one["name"]}.png"' in page
        assert f'href="#{one["name"]}"' in page
        encoding = get(one["name"])
        assert f"<code>{html.escape(encoding.formula)}</code>" in page
        assert encoding.paper in page
        assert f'alt="Plots of {one["name"]}: {html.escape("; ".join(one["panels"]))}."' in page
    assert "prefers-color-scheme: dark" in page
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
    for found in walk_packages(
        peref.__path__, "peref."
    ):  # every error of the package, whatever ran before this test
        import_module(found.name)
    of_signals = {n: cli.explain(Interrupted(n))[::2] for n in SIGNAL_WORDS}
    others = {cli.explain(error)[2] for error in (RuntimeError("bug"), BrokenPipeError())}
    codes = {0, *kinds().values(), *(code for _, code in of_signals.values()), *others}
    said = {int(code): meaning for code, meaning in rows("| code | meaning |")}
    assert set(said) == codes
    assert "misuse" in said[errors.Misuse.exit_code]
    assert "failed" in said[errors.PerefError.exit_code]
    assert "differs" in said[compare.Differs.exit_code]
    assert "SIGINT" in said[of_signals[signal.SIGINT][1]]
    assert "SIGTERM" in said[of_signals[signal.SIGTERM][1]]
    named = re.search(r"The kinds are (.*?)\.\n", CLI, re.S)[1]
    assert set(re.findall(r"`(\w+)`", named)) == {*kinds(), "interrupted", "internal"}


@pytest.mark.parametrize(
    ("args", "code"),
    [(["list"], 0), (["train", "--pe", "alibbi"], 2), (["eval", "--len", "many"], 2), (["--version"], 0)],
)
def test_the_command_gives_those_codes(args, code, tmp_path, monkeypatch):
    """Done and misuse, as the shell sees them."""
    monkeypatch.chdir(tmp_path)
    assert cli.run(args, Signals()) == code


def with_count(page):
    """CHANGELOG.md with as many encodings as there are."""
    return re.sub(r"^- \d+ position encodings", f"- {len(names())} position encodings", page, flags=re.M)


def test_the_changelog_counts_the_encodings():
    page = (ROOT / "CHANGELOG.md").read_text()
    assert "position encodings over six hooks" in page
    assert page == with_count(page), "python tests/test_readme.py writes how many there are"


def of_this_version(page):
    """The page with the version of the golden files where it speaks of one, in what is left as it was too."""
    page = re.sub(r'(spec |"spec":")[\d.]+', rf"\g<1>{SPEC_VERSION}", page)
    return re.sub(r"(\(version |is version )[\d.]+", rf"\g<1>{SPEC_VERSION.rpartition('.')[0]}", page)


if __name__ == "__main__":
    for page, rows_of in {"README.md": links, "docs/encodings.md": table}.items():
        before, _, rest = PAGES[page].partition(START)
        PAGES[page] = before + START + rows_of() + END + rest.partition(END)[2]
    for page, line in TRANSCRIPTS:
        if reason := absent(PAGES[page], line):
            print(f"{page}: {line}: left as it was, {reason}")
            continue
        now = f"$ {line}\n{printed(PAGES[page], line)}"
        PAGES[page] = TRANSCRIPT.sub(lambda m, now=now, line=line: now if m[1] == line else m[0], PAGES[page])
    for page in ("README.md", "docs/encodings.md", "docs/checking.md", WALK):
        (ROOT / page).write_text(of_this_version(PAGES[page]))
    for page, change in {"golden/README.md": of_this_version, "CHANGELOG.md": with_count}.items():
        (ROOT / page).write_text(change((ROOT / page).read_text()))
