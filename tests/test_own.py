"""Encodings of the user's own: a file after --pe and what installed packages offer, in every command; what
is wrong with one is told by its line.
"""

import json
import os
import random
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from check import same

import peref
from peref import modules
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.config import Config
from peref.encodings import get, names
from peref.errors import Misuse
from peref.evaluate import weights_of
from peref.runs import open_run
from peref.settings import choose

ROOT = Path(__file__).resolve().parent.parent
MINE = re.search(
    r"bias/square_root.py`:\n\n```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S
)[1]
SLOPED = MINE.replace("bias(be, p, d):", "bias(be, p, d, *, power: float = 1.0):")
SLOPED = SLOPED.replace('table(p["r"], d)', 'table(p["r"], abs(d) ** power)')
TINY = [
    "--width",
    16,
    "--heads",
    2,
    "--layers",
    3,
    "--len",
    16,
    "--batch",
    2,
    "--valid-bytes",
    200,
    "--backend",
    "numpy",
]


@pytest.fixture(autouse=True)
def forgotten():
    """What a test imports is no other test's."""
    yield
    for name in modules.everyone():
        modules.forget(name)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs a command line in a folder with mine.py and a text, as a process of its own would: gives exit
    code, stdout, stderr.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SLOPED)
    words = random.Random(0)
    (tmp_path / "words.txt").write_text(
        "".join(words.choice("def return lambda self, x = y\n") for _ in range(6000))
    )

    def call(*args):
        capsys.readouterr()
        for name in modules.everyone():
            modules.forget(name)
        code = run_cli([str(a) for a in args], Signals())
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "bug in peref" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def trained(cli, tmp_path):
    """The cli, and a run of six steps with mine.py between two built-in encodings."""
    code, out, err = cli(
        "train", *TINY, "--pe", "rope,./mine.py,none", "--set", "power=2", "--steps", 6, "--data", "words.txt"
    )
    assert code == 0, err
    (run,) = (tmp_path / "runs").iterdir()
    assert f"eval --len 64 --pe rope,{tmp_path}/mine.py,none" in " ".join(out.split())
    return cli, run


# ---------------------------------------------------------------- files


def test_a_file_is_an_encoding_like_any_other(tmp_path):
    """Its name is the file's; calls without a model, models and gradients know it."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    with pytest.raises(Misuse, match="unknown encoding 'mine'"):
        get("mine")
    assert peref.load(path) == "mine"
    assert get("mine").formula == "b_h(d) = -r_h sqrt(|d|)"
    assert "mine" not in names()
    got = peref.bias("mine", heads=2, tokens=3, params={"r": np.array([1.0, 2.0])})
    want = [[0, 0, 0], [-1, 0, 0], [-(2**0.5), -1, 0]]
    same(got, np.array([want, 2 * np.array(want)]), 1e-15)
    assert peref.load(path) == "mine"
    # as somebody who edits it in a notebook
    path.write_text(MINE.replace('"b_h(d) = -r_h sqrt(|d|)"', '"b_h(d) = again"'))
    assert peref.load(path) == "mine"
    assert get("mine").formula == "b_h(d) = again"
    Config(pe=(("mine", {}), ("rope", {})))


def test_a_path_may_have_a_plus(tmp_path):
    """It joins names; behind the / of a path it is a letter."""
    (tmp_path / "c++").mkdir()
    (tmp_path / "c++" / "mine.py").write_text(MINE)
    chosen = choose(f"rope+{tmp_path}/c++/mine.py,alibi")
    assert [name for name, _ in chosen["pe"]] == ["rope+mine", "alibi"]


@pytest.mark.parametrize("given", ["c++/mine.py", "rope+c+x/mine.py,alibi"])
def test_a_path_with_a_plus_and_no_dot_is_told_of_it(given):
    with pytest.raises(Misuse, match=r"no such file; .*; a path with a \+ in it begins with ./, as ./c"):
        choose(given)
    with pytest.raises(Misuse, match=r"no such file; expected a file of Python$"):
        choose("rope+./nowhere/mine.py")


def test_two_files_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(MINE)
    peref.load(tmp_path / "a" / "mine.py")
    with pytest.raises(
        Misuse,
        match=r"b/mine.py: 'mine' already means .*a/mine.py here; give one of the two files another name",
    ):
        peref.load(tmp_path / "b" / "mine.py")


@pytest.mark.parametrize("claims", ["{'shift'}", "['shift']", "('shift',)", "frozenset()"])
def test_claims_are_any_few_laws(tmp_path, claims):
    (tmp_path / "few.py").write_text(f"{HEAD}ENCODING = Encoding('a', 'b', bias=f, claims={claims})\n")
    expected = {"shift"} if "shift" in claims else set()
    assert set(peref.get(peref.load(tmp_path / "few.py")).claims) == expected


HEAD = "from peref.encodings import Encoding\ndef f(be, p, d):\n    return d\n"
WRONG = {  # text of bad.py -> the line, and what is said
    "x = (\n": (1, "SyntaxError: '(' was never closed"),
    "import numpy\n\nimport nonsense_x\n": (3, "ModuleNotFoundError: No module named 'nonsense_x'"),
    "\nraise SystemExit(3)\n": (2, "SystemExit: 3"),
    "\ndef f():\n    return 1 / 0\n\nf()\n": (3, "in f: ZeroDivisionError: division by zero"),
    "from . import other\n": (1, "ModuleNotFoundError"),
    "x = 1\n": (1, "there is no ENCODING; expected ENCODING = Encoding"),
    "\nENCODING = 5\n": (2, "ENCODING is a int; expected"),
    f"{HEAD}\n\nENCODING = Encoding('a', 'b', bias=f, rotate=f)\n": (
        6,
        "ENCODING fills rotate and bias; expected one of: embed, rotate,",
    ),
    f"{HEAD}ENCODING = Encoding('a', 'b')\n": (4, "ENCODING fills no hook; expected one of"),
    f"{HEAD}ENCODING = Encoding('a', 'b', bias=7)\n": (4, "bias of ENCODING is a int; expected a function"),
    f"{HEAD}ENCODING = Encoding('a', 'b', bias=f, shared='r')\n": (
        4,
        "shared of ENCODING is a str; expected a set or a function",
    ),
    f"{HEAD}ENCODING = Encoding('a', 'b', bias=f, steps=2.0)\n": (
        4,
        "steps of ENCODING is a float; expected a dict or a function",
    ),
    f"{HEAD}ENCODING = Encoding('a', 'b', biass=f)\n": (4, "unexpected keyword argument 'biass'"),
    f"{HEAD}ENCODING = Encoding('a', 'b', rotate=f, init=f)\n": (
        2,
        "init takes 3 arguments before its settings (after a *); it is called with 1",
    ),
    f"{HEAD}ENCODING = Encoding('a', 'b', bias=f, claims=frozenset({{'shfit'}}))\n": (
        4,
        "claims 'shfit'; did you mean 'shift'?",
    ),
    HEAD.replace("d)", "d, *, Hh)") + "ENCODING = Encoding('a', 'b', bias=f)\n": (
        2,
        "Hh is no fact of a model (H, G, D",
    ),
    HEAD.replace("d)", "d, *, H=3)") + "ENCODING = Encoding('a', 'b', bias=f)\n": (
        2,
        "H is a fact of the model; give the option another name",
    ),
    HEAD.replace("d)", "d, *, x: float = 'a')") + "ENCODING = Encoding('a', 'b', bias=f)\n": (
        2,
        "option x is 'a'; expected float",
    ),
    HEAD.replace("d)", "d, *, x: 'Foo' = 1)") + "ENCODING = Encoding('a', 'b', bias=f)\n": (
        2,
        "name 'Foo' is not defined",
    ),
    (
        f"{HEAD}def g(rng, *, x=1): pass\n"
        "def h(be, p, d, *, x=2): pass\n"
        "ENCODING = Encoding('a', 'b', init=g, bias=h)\n"
    ): (5, "x has two defaults"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_file_is_told_by_its_line(cli, tmp_path, text):
    """In one line, exit 2; nothing of it stays behind."""
    (tmp_path / "bad.py").write_text(text)
    code, out, err = cli("list", "--pe", "./bad.py")
    line, words = WRONG[text]
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {tmp_path / 'bad.py'}, line {line}")
    assert err.count("\n") == 1
    assert words in err
    assert not modules.everyone()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("./rope.py", "./rope.py: 'rope' is the name of a built-in encoding; give the file another name"),
        ("./none.py", "'none' is the name of a built-in encoding"),
        ("./Mine.py", "expected small letters, digits and _, as in mine.py"),
        ("./my-own.py", "expected small letters, digits and _, as in mine.py"),
        ("./absent.py", "./absent.py: no such file"),
        ("./", "no such file"),
        ("./mine.py,./more/mine.py", "'mine' already means"),
    ],
)
def test_a_file_that_cannot_be_named(cli, tmp_path, file, words):
    for name in ("rope", "none", "Mine", "my-own"):
        (tmp_path / f"{name}.py").write_text(MINE)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.py").write_text(MINE)
    code, _, err = cli("train", *TINY, "--pe", file, "--data", "words.txt")
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("body", "words"),
    [("1 / 0", "bad.py, line 3, in bias: ZeroDivisionError"), ("d[None, :1] * 1.0", "with bad not of peref")],
)
def test_an_error_in_a_file_is_not_called_a_bug_of_peref(cli, tmp_path, body, words):
    """In its own lines it is told by the line, elsewhere by its name; both say what looks closer."""
    given = (
        "from peref.encodings import Encoding\n"
        "def bias(be, p, d):\n"
        f"    return {body}\n"
        "ENCODING = Encoding('a', 'b', bias=bias)\n"
    )
    (tmp_path / "bad.py").write_text(given)
    code, _, err = cli("train", *TINY, "--pe", "./bad.py", "--data", "words.txt")
    assert code == 2
    assert words in err
    assert f"laws {tmp_path / 'bad.py'}" in err


TOO_LONG = """\"\"\"It computes two tokens, which a new model is tried with, and no more.\"\"\"
from peref.encodings import Encoding

def bias(be, p, d):
    if len(d) > 3: raise ValueError("too long")
    return be.place(0 * d[None].astype("float32").repeat(2, 0))

ENCODING = Encoding("no paper", "0", bias=bias)
"""


def test_an_error_before_the_first_step_leaves_no_folder(cli, tmp_path):
    """Neither where it is found at once, nor where the run's folder is there already, nor the folder of runs,
    unless it was there before; one in a later step does.
    """
    (tmp_path / "far.py").write_text(TOO_LONG)
    for given, words in (
        (["--stps", 4], "there is no option"),
        (["--pe", "alib"], "unknown encoding 'alib'"),
        (["--heads", 2, "--pe", "./far.py"], "far.py, line 5, in bias: ValueError: too long"),
    ):
        code, out, err = cli("train", *TINY, *given, "--backend", "numpy", "--data", "words.txt")
        assert code == 2
        assert words in err
        assert not Path("runs").exists(), out
    assert "run           runs" in out  # it was there
    Path("runs").mkdir()
    cli("train", *TINY, *given, "--backend", "numpy", "--data", "words.txt")
    assert [*Path("runs").iterdir()] == []
    cli("train", *TINY, "--steps", 20, "--rate", "1e30", "--warmup", 0, "--data", "words.txt")
    assert any(Path("runs").glob("*"))


# ---------------------------------------------------------------- commands


def test_it_is_listed_shown_and_made_into_vectors(cli, tmp_path, undrawn):
    """As an encoding of that name, with its options; the vectors are checked without the file."""
    code, out, _ = cli("list", "--pe", "./mine.py", "--json")
    (item,) = json.loads(out)["encodings"]
    assert (item["name"], item["hook"], item["from"]) == ("mine", "bias", str(tmp_path / "mine.py"))
    assert item["options"] == {"power": {"default": 1.0, "expects": "float"}}
    assert f"  from        {tmp_path / 'mine.py'}" in cli("list", "--pe", "rope,./mine.py")[1]
    for args in (("./mine.py",), ("--pe", "./mine.py", "-o", "mine.svg", "--set", "power=3")):
        assert cli("show", *args)[0] == 0
    assert (tmp_path / "mine.png").is_file()
    assert "power=3.0" in (tmp_path / "mine.svg").read_text()
    assert "say one of them" in cli("show", "rope", "--pe", "./mine.py")[2]
    made = cli(
        "golden", "vectors", "--pe", "./mine.py", "--set", "power=2", "--shape", "1,4,2,8,8", "-o", "vectors"
    )
    assert made[0] == 0, made[2]
    code, out, err = cli("golden", "verify", "vectors", "--rebuild", "--pe", "./mine.py")
    assert (code, err) == (0, ""), err
    modules.forget("mine")
    code, _, err = cli("golden", "verify", "vectors", "--rebuild")
    assert code == 2
    assert "unknown encoding 'mine'" in err
    assert "one of your own takes its file: --rebuild --pe ./mine.py" in err
    (tmp_path / "mine.py").unlink()
    (tmp_path / "theirs.safetensors").write_bytes(Path("vectors/mine/expected.safetensors").read_bytes())
    code, out, err = cli("check", "theirs.safetensors", "--golden", "vectors")
    assert code == 0, err
    assert "pass: 11 tensors of 3 cases compared" in out


def test_a_run_asks_for_its_file_and_runs_nothing_by_itself(trained, tmp_path, monkeypatch, undrawn):
    """From any folder; neither the copy in the run nor what lies where the file was is imported until it
    is named.
    """
    cli, run = trained
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    told = (
        f"was trained with 'mine' of {tmp_path / 'mine.py'}; say that the file may be imported: --pe "
        f"rope,{tmp_path / 'mine.py'},none"
    )
    for command in (("eval", run), ("generate", run), ("show", "--run", run), ("train", "--resume", run)):
        code, _, err = cli(*command)
        assert (code, told in err) == (2, True), err
        assert not modules.everyone()
    given = ("--pe", "rope,../mine.py,none", "--backend", "numpy")
    code, out, err = cli("eval", run, *given, "--len", 32, "--bytes", 500, "--json")
    assert code == 0, err
    assert json.loads(out)["pe"][1] == ["mine", {"power": 2.0}], "the options are those of the run"
    assert "NOTE" not in err
    assert [path.name for path in (run / "eval").iterdir()] == ["32-500bytes.json"]
    code, out, err = cli("generate", run, *given, "--tokens", 5, "--json")
    assert code == 0, err
    assert len(json.loads(out)["bytes"]) == 5
    for args in (
        ("trace", run, "--prompt", "a", "-o", "a.safetensors"),
        ("report", run, "--bytes", 100, "--backend", "numpy"),
        ("search", "longrope", run, "--factor", 2, "--rounds", 1, "--windows", 1, "--backend", "numpy"),
    ):
        assert told in cli(*args)[2]
        code, _, err = cli(*args, *given[:2])
        assert code == 0, err
    assert "was not imported" in cli("export", run, *given[:2], "-o", "out")[2]
    assert cli("show", "../mine.py", "--run", run, "-o", "one.png")[0] == 0
    assert cli("show", "--pe", "rope,../mine.py,none", "--run", run, "--layer", 1, "-o", "two.png")[0] == 0
    assert "not the cycle of the run" in cli("show", "--pe", "rope,../mine.py", "--run", run)[2]


@pytest.mark.parametrize("of_pair", [False, True])
def test_a_run_of_a_task_takes_its_file(cli, tmp_path, of_pair, undrawn):
    """Also where it is the encoder's, and to go on; another file is refused."""
    (tmp_path / "other.py").write_text(MINE)
    given = ["--task", "reverse", "--encoder", "./mine.py", "--pe", "rope"]
    given = given if of_pair else ["--task", "copy", "--pe", "./mine.py"]
    code, out, err = cli("train", *TINY[:6], *given, "--len", 4, "--steps", 2, "--save-every", 1)
    assert code == 0, err
    assert re.search(r"^next +\S.* --len 8 --pe", out, re.M)
    (run,) = (tmp_path / "runs").iterdir()
    assert f"may be imported: --pe {tmp_path / 'mine.py'}\n" in cli("eval", run)[2]
    assert "(gone" not in cli("eval", run)[2]
    for args in (("eval", run, "--samples", 2), ("generate", run, "--prompt", "ab"), ("report", run)):
        code, _, err = cli(*args, "--pe", "./mine.py", "--backend", "numpy")
        assert code == 0, err
    assert "leave out --pe" in cli("eval", run, "--pe", "./other.py")[2]
    assert (
        "unknown encoding 'mine'; for the file mine.py, say ./mine.py" in cli("eval", run, "--pe", "mine")[2]
    )
    (run / "ckpt" / "00000002.safetensors").unlink()
    code, _, err = cli("train", "--resume", run, "--pe", "./mine.py", "--backend", "numpy")
    assert code == 0, err


def test_weights_of_a_built_in_encoding_under_one_of_a_file(cli, tmp_path):
    """eval and generate take another encoding for the same weights, also from a file; the result of each
    has its own name.
    """
    halved = "from peref.encodings import Encoding\n\n\ndef bias(be, p, d, *, H, slope: float = 0.5):\n"
    halved += "    return -slope * abs(d)[None].repeat(H, 0).astype('float32')\n\n\n"
    halved += "ENCODING = Encoding('no paper', '-|d|/2', bias=bias, claims=frozenset({'any_length'}))\n"
    (tmp_path / "halved.py").write_text(halved)
    assert cli("train", *TINY, "--pe", "alibi", "--steps", 2, "--data", "words.txt")[0] == 0
    (run,) = (tmp_path / "runs").iterdir()
    for given in ((), ("--set", "slope=2")):
        code, out, err = cli("eval", "--pe", "./halved.py", *given, "--len", 16, "--backend", "numpy")
        assert code == 0, err
        assert "trained with alibi" in " ".join(out.split())
    assert [
        bool(re.fullmatch(r"16-halved(-slope=2.0)?-halved.[0-9a-f]{8}.json", path.name))
        for path in (run / "eval").iterdir()
    ] == [True, True]
    generated = [
        cli("generate", *given, "--tokens", 20, "--json", "--backend", "numpy")[1]
        for given in ((), ("--pe", "./halved.py", "--set", "slope=9"))
    ]
    assert json.loads(generated[0])["bytes"] != json.loads(generated[1])["bytes"]
    code, _, err = cli("generate", "--pe", "./mine.py")
    assert (code, "the weights have no 0.pe.r" in err) == (2, True), err


def test_a_run_whose_file_has_gone_keeps_a_copy(trained, tmp_path):
    cli, run = trained
    (tmp_path / "mine.py").unlink()
    code, _, err = cli("eval", run)
    copy = run / "encodings" / "mine.py"
    assert copy.read_text() == SLOPED
    assert (
        code,
        f"(gone; the run keeps a copy); say that the file may be imported: --pe rope,{copy},none" in err,
    ) == (2, True), err
    assert cli("eval", run, "--pe", f"rope,{copy},none", "--len", 16, "--backend", "numpy")[0] == 0


def test_a_file_that_has_changed_is_noticed(trained, tmp_path):
    """Evaluation says so and stores the result apart; a run does not go on."""
    cli, run = trained
    (tmp_path / "mine.py").write_text(SLOPED + "# another line\n")
    given = ("--pe", "rope,./mine.py,none")
    code, out, _ = cli("eval", run, *given, "--len", 16, "--backend", "numpy")
    assert code == 0
    assert f"mine.py is not the mine that {run} began with" in " ".join(out.split())
    (stored,) = (run / "eval").iterdir()
    assert re.fullmatch(r"16-mine\.[0-9a-f]{8}\.json", stored.name)
    assert "is not the mine" in " ".join(
        cli("generate", run, *given, "--tokens", 2, "--backend", "numpy")[2].split()
    )


def test_a_stopped_run_goes_on_with_the_same_file_only(cli, tmp_path):
    """To the bits of a run that was not stopped; options stay those of the run."""
    args = [
        *TINY,
        "--pe",
        "rope,./mine.py,none",
        "--set",
        "power=2",
        "--save-every",
        3,
        "--steps",
        6,
        "--data",
        "words.txt",
    ]
    assert cli("train", *args)[0] == 0
    assert cli("train", *args)[0] == 0
    whole, cut = sorted((tmp_path / "runs").iterdir(), key=lambda path: (len(path.name), path.name))
    assert open_run(whole).identity == open_run(cut).identity
    (cut / "ckpt" / "00000006.safetensors").unlink()
    again = ("train", "--resume", cut, "--backend", "numpy")
    assert "leave out --pe" in cli(*again, "--pe", "./mine.py")[2]
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text + "\n")
    code, _, err = cli(*again, "--pe", "rope,./mine.py,none")
    assert (code, "a run goes on with what it began with" in err) == (2, True), err
    (tmp_path / "mine.py").write_text(text)
    code, _, err = cli(*again, "--pe", "rope,./mine.py,none")
    assert code == 0, err
    a, b = (weights_of(open_run(folder))[1] for folder in (whole, cut))
    same(a, b, 0)


def test_a_record_that_was_made_up(trained, tmp_path):
    """What a run says of its encodings is read with care."""
    cli, run = trained
    from peref import records

    record = {key: value for key, value in open_run(run).record.items()}
    for made_up in (5, {"mine": 3}, {"mine": {"path": "x"}}, ["mine"]):
        (run / "run.json").write_text(records.sealed(record | {"encodings": made_up}))
        code, _, err = cli("eval", run, "--pe", "rope,./mine.py,none")
        assert (code, "not what peref writes: encodings" in err) == (1, True), err


# ---------------------------------------------------------------- installed packages


@pytest.fixture
def package(tmp_path):
    """An installed package of the name acme, as pip leaves it: gives what runs peref in a process that
    sees it.
    """
    site = tmp_path / "site"
    (site / "acme").mkdir(parents=True)
    (site / "acme" / "__init__.py").write_text("")
    (site / "acme" / "rooted.py").write_text(MINE)
    (site / "acme" / "broken.py").write_text("\nimport nonsense_x\n")
    (site / "acme" / "empty.py").write_text("")
    about = site / "acme-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    offers = {
        "rooted": "acme.rooted",
        "rope": "acme.rooted",
        "broken": "acme.broken",
        "empty": "acme.empty",
        "Loud": "acme.rooted",
        "op": "acme.rooted:table",
    }
    (about / "entry_points.txt").write_text(
        "[peref.encodings]\n" + "".join(f"{name} = {value}\n" for name, value in offers.items())
    )
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}

    def call(*args):
        done = subprocess.run(
            [sys.executable, ROOT / "cli.py", *map(str, args)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    return call


def test_installed_packages_offer_encodings(package, tmp_path):
    """By name, in every command; listed with where they are from, and what is wrong with one does not
    break the list.
    """
    code, out, err = package("list", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [(item["name"], item["from"]) for item in found["encodings"] if item["from"]] == [
        ("rooted", "acme 1.2")
    ]
    said = found["refused"]
    assert sorted(said) == ["Loud", "broken", "empty", "op", "rope"]
    assert said["rope"] == "acme 1.2 offers 'rope', which is the name of a built-in encoding"
    assert (
        f"cannot be imported: {tmp_path}/site/acme/broken.py, line 2: ModuleNotFoundError" in said["broken"]
    )
    assert "line 1: there is no ENCODING" in said["empty"]
    assert "expected a name of small letters" in said["Loud"]
    assert "expected the name of a module" in said["op"]
    (tmp_path / "words.txt").write_text("abc def\n" * 3000)
    code, out, err = package("train", *TINY, "--pe", "rooted", "--steps", 2, "--data", "words.txt")
    assert code == 0, err
    (run,) = (tmp_path / "runs").iterdir()
    assert open_run(run).own["rooted"]["package"] == "acme 1.2"
    assert package("eval", run, "--len", 16, "--backend", "numpy")[0] == 0, (
        "no file has to be named: the package was installed"
    )
    code, _, err = package("train", "--pe", "rootde")
    assert (code, "did you mean 'rooted'?" in err) == (2, True)


def test_packages_are_asked_only_for_what_is_not_built_in(monkeypatch):
    """Looking up their list takes milliseconds, and every Config looks up names."""
    monkeypatch.setattr(modules, "offered", lambda: pytest.fail("asked"))
    Config(pe=(("rope", {}), ("none", {})))


def test_two_packages_that_offer_one_name(monkeypatch):
    monkeypatch.setattr(
        modules,
        "offered",
        lambda: (EntryPoint("twin", "a.b", modules.GROUP), EntryPoint("twin", "c.d", modules.GROUP)),
    )
    with pytest.raises(Misuse, match=r"'twin' is offered by a\.b and c\.d; uninstall one of them"):
        get("twin")


def test_a_module_is_imported_once(monkeypatch, tmp_path):
    """What a package offers is looked up once, and stands in sys.modules from then on."""
    path = tmp_path / "found.py"
    path.write_text(MINE)
    module = modules.from_file(str(path))
    modules.forget("found")
    assert isinstance(module, ModuleType)
    asked = []

    class Offer(EntryPoint):
        def load(self):
            asked.append(self.name)
            return module

    monkeypatch.setattr(modules, "offered", lambda: (Offer("found", "found", modules.GROUP),))
    assert get("found") is get("found") is module.ENCODING
    assert asked == ["found"]
