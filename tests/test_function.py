"""Somebody's function under `check --impl`: in a process of its own, whatever it does there; called with a
case, or with the inputs of one thing; the start of one. And what only a checkout has.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from check import same
from golden_files import cli, dumped, two_cases

from peref import share
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.encodings import names
from peref.errors import Misuse
from peref.golden.judge.function import found_function, names_of
from peref.golden.judge.implementation import run_function
from peref.golden.judge.isolated import MOST_PROCESSES, function_of
from peref.golden.judge.selection import Pick
from peref.golden.judge.start import start_of
from peref.golden.spec.book import Book

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
REFERENCE = "from peref.golden.compute.reference import reference\n"
ONE = ("--case", "rope.op/default")


@pytest.fixture(scope="module")
def book():
    return Book(GOLDEN)


@pytest.fixture
def mine(tmp_path, monkeypatch, request):
    """Writes a module in the folder one is in; its name, another one in each test."""
    monkeypatch.chdir(tmp_path)
    name = "mine_" + re.sub(r"\W", "_", request.node.name)[-60:]

    def write(text):
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def checked(capfd, *args):
    """Exit code and the one document on stdout."""
    code, out = cli_apart(capfd, *args, "--json")[:2]
    return code, json.loads(out)


def cli_apart(capfd, *args):
    """Exit code, stdout and stderr, of other processes too."""
    code = run_cli([str(a) for a in args], Signals())
    return code, *capfd.readouterr()


# ---------------------------------------------------------------- in a process of its own

DOES = {  # what a function does -> what is told of it
    "os._exit(0)": "Ended: .*it stopped, exit code 0",
    "sys.exit(3)": r"WrongAnswer: it called sys\.exit\(3\) \(mine_\w+\.py, line 3\)",
    "ctypes.string_at(0)": r"Ended: .*by signal 11[^;]*; its stderr ends: .*mine_\w+\.py\", line 3 in f",
    "time.sleep(60)": "Ended: .*no answer within 3 s",
    "raise KeyboardInterrupt": r"KeyboardInterrupt: \(mine_\w+\.py, line 3\)",
    "return 1 / 0": r"ZeroDivisionError: division by zero \(mine_\w+\.py, line 3\)",
    "return np.zeros(3) + np.zeros(2)": r"ValueError: operands could not .*\(mine_\w+\.py, line 3\)",
    "return input()": r"EOFError: .*\(mine_\w+\.py, line 3\)",
    "return [np.zeros(3)]": "WrongAnswer: it returned list; expected a dict",
    "return np.zeros(3)": "WrongAnswer: it returned ndarray; expected a dict",
    "return {1: np.zeros(3)}": "WrongAnswer: it returned a dict with other keys",
    "return {'q_rotated': np.zeros(3, complex)}": "WrongAnswer: q_rotated is complex128",
    "return {'q rotated': np.zeros(3)}": "a tensor is called 'q rotated'",
    "raise ValueError('\\udc80' + 9999 * 'x')": r"ValueError: \\udc80x{1999} \(",
}


@pytest.mark.parametrize("does", DOES)
def test_what_a_function_does_is_told_as_theirs(capfd, mine, does):
    """With the line, exit code 1, and one document on stdout."""
    name = mine(f"import ctypes, os, sys, time; import numpy as np\ndef f(case, inputs):\n    {does}\n")
    more = ("--timeout", 3, "--dtype", "f64") if "sleep" in does else ()  # waited for once
    code, said = checked(capfd, "check", "--impl", f"{name}:f", *more, *ONE)
    assert (code, list(said["errors"])) == (1, ["rope.op/default"])
    assert re.search(DOES[does], said["errors"]["rope.op/default"], re.S), said["errors"]


def test_prints_go_to_stderr(capfd, mine):
    """Those of Python, of the process and of the import; a document stays one. What a function may be given
    beside the two is no matter.
    """
    text = REFERENCE + "import os\nprint('imported')\ndef f(case, inputs, more=None):\n    print('called')\n"
    name = mine(text + "    os.write(1, b'low' + b' down')\n    return reference(case, inputs)\n")
    code, out, err = cli_apart(capfd, "check", "--impl", f"{name}:f", *ONE, "--json")
    assert (code, json.loads(out)["failed"]) == (0, 0)
    assert all(words in err for words in ("imported", "called", "low down"))


def test_prints_in_this_process_go_to_stderr_too(mine, monkeypatch):
    """Those of Python, of the process and of C, which keep them until later: a document stays one."""
    c = "import ctypes, os, sys\nc = ctypes.CDLL(None)\nos.write(1, b'imp' + b'orted')\n"
    does = "    print('called')\n    os.write(1, b'low' + b' down')\n    c.printf(b'from' + b' C')\n"
    does += "    sys.__stdout__.write('ke' + 'pt')\n"
    name = mine(REFERENCE + c + f"def f(case, inputs):\n{does}    return reference(case, inputs)\n")
    monkeypatch.setenv("PYTHONPATH", str(GOLDEN.parent))
    line = [sys.executable, "-m", "peref", "check", "--impl", f"{name}:f", "--in-process", *ONE, "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["failed"]) == (0, 0)
    assert all(words in done.stderr for words in ("imported", "called", "low down", "from C", "kept"))


def test_prints_in_this_process_without_stdout(mine, monkeypatch):
    """Where it is closed there is nothing to keep clear."""
    name = mine(REFERENCE + "def f(case, inputs):\n    print('called')\n    return reference(case, inputs)\n")
    monkeypatch.setenv("PYTHONPATH", str(GOLDEN.parent))
    line = [sys.executable, "-m", "peref", "check", "--impl", f"{name}:f", "--in-process", *ONE]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *line], capture_output=True, text=True)
    assert (done.returncode, "called" in done.stderr) == (0, True)


@pytest.mark.parametrize("where", [(), ("--in-process",)])
def test_a_function_imports_what_lies_beside_it(capfd, mine, monkeypatch, where):
    """In the current folder, when it is called and not before."""
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    kept, beside = list(sys.meta_path), f"beside_mine_{len(where)}"
    name = mine(f"def f(case, inputs):\n    from {beside} import g\n    return g(case, inputs)\n")
    Path(f"{beside}.py").write_text(REFERENCE + "g = reference\n")
    code, said = checked(capfd, "check", "--impl", f"{name}:f", *where, *ONE)
    assert (code, said["errors"], sys.meta_path) == (0, {}, kept)


def test_the_next_case_goes_on_in_a_new_process(capfd, mine):
    """One crash costs one case; after the last one that may be, no case is asked."""
    text = (
        REFERENCE
        + "import os\ndef f(case, inputs):\n    if {}: os._exit(1)\n    return reference(case, inputs)\n"
    )
    name = mine(text.format("case['id'] == 'rope.op/default'"))
    code, said = checked(capfd, "check", "--impl", f"{name}:f", "--pe", "rope", "--level", "op")
    assert (code, list(said["errors"]), said["not_run"], said["failed"]) == (1, ["rope.op/default"], [], 0)
    assert said["compared"] > 50
    name = mine(text.format("True"))
    code, said = checked(capfd, "check", "--impl", f"{name}:f", "--pe", "rope", "--level", "op")
    assert (code, len(said["errors"]), said["compared"]) == (1, MOST_PROCESSES, 0)
    assert [words.endswith("no further case was asked") for words in said["errors"].values()] == [
        False,
        False,
        True,
    ]


def test_nothing_is_left_of_it(tmp_path, mine, monkeypatch):
    """Neither its process nor its folder."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    name = mine("import os\ndef f(case, inputs):\n    return {'pid': [os.getpid()]}\n")
    with function_of(f"{name}:f") as f:
        pid = int(f({}, {})["pid"].bits[0])
        os.kill(pid, 0)
        assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert os.listdir(tmp_path / "tmp") == []
    with function_of(f"{name}:f", in_process=True) as f:
        assert int(f({}, {})["pid"].bits[0]) == os.getpid()


IMPORTS = {  # module -> what is told
    "import os; os._exit(7)": "importing mine_.* failed: it stopped, exit code 7",
    "import sys; sys.exit(7)": r"importing mine_.* failed: SystemExit: 7 \(mine_\w+\.py, line 1\)",
    "import json\nimport no_such": r"failed: ModuleNotFoundError: .*'no_such' \(mine_\w+\.py, line 2\)",
    "def f(:": r"failed: SyntaxError: invalid syntax \(mine_\w+\.py, line 1\)$",
    "import time; time.sleep(60)": "importing mine_.* failed: no answer within 2 s",
    "f = 3": "has no function f",
    "def f(a, b, c): pass": "the function takes 3 arguments; expected two, case and inputs; .* --for ",
}


@pytest.mark.parametrize("text", IMPORTS)
def test_a_module_that_cannot_be_used(capfd, mine, text):
    """In one line, exit code 2."""
    timeout = 2 if "sleep" in text else 30
    code, out, err = cli_apart(capfd, "check", "--impl", f"{mine(text)}:f", "--timeout", timeout)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(IMPORTS[text], err.strip()), err


def test_it_says_what_the_same_function_says_here(capfd, mine):
    """Numbers, refusals, laws and what is not claimed, in all dtypes that NumPy has; only where an exception
    was raised is said there alone.
    """
    text = "def f(case, inputs):\n    if case['id'].endswith('packed'): return None\n"
    name = mine(REFERENCE + text + "    return reference(case, inputs)\n")
    args = ["check", "--impl", f"{name}:f", "--pe", "alibi"]
    args += [word for dtype in ("f64", "f32", "f16") for word in ("--dtype", dtype)]
    apart, here = checked(capfd, *args), checked(capfd, *args, "--in-process")
    for one in apart[1]["refusals_and_laws"]:
        one["said"] = re.sub(r" \(\w+\.py, line \d+\)$", "", one["said"])
    assert apart == here
    assert apart[0] == 0
    assert apart[1]["compared"] > 100
    assert apart[1]["not_run"]
    assert all(case.endswith("packed") for case in apart[1]["not_run"])


def test_any_array_arrives_as_it_is(mine):
    """bfloat16 of ml_dtypes, whole numbers, truth values, nothing at all and single numbers."""
    name = mine("def f(case, inputs):\n    x = inputs['x']\n    return {f'{x.dtype}': x.astype('float64')}\n")
    kinds = (ml_dtypes.bfloat16, np.float16, np.int32, np.uint8, np.bool_)
    arrays = [np.arange(6).reshape(2, 3).astype(kind)[:, ::-1] for kind in kinds]
    with function_of(f"{name}:f") as f:
        for x in (*arrays, np.array(2.5)):
            came = {name: y.bits for name, y in f({}, {"x": x}).items()}
            same(came, {str(x.dtype): x.astype(np.float64)}, 0)
        assert f({}, {"x": np.zeros((0, 2))})["float64"].bits.shape == (0, 2)


# ---------------------------------------------------------------- a function of one thing


def test_a_function_of_one_thing_is_asked_for_nothing_else(capfd, mine):
    """Inputs, facts and options by name; refusals and laws are not asked, gradients neither by --no-vjp."""
    name = mine(REFERENCE + FOR_ONE)
    words = ("check", "--impl", f"{name}:rope", "--for", "rope.op", "--case", "*/default")
    assert checked(capfd, *words, "--no-vjp")[0] == 0
    code, said = checked(capfd, "check", "--impl", f"{name}:rope", "--for", "rope.op")
    assert (code, said["errors"], said["not_run"], said["refusals_and_laws"]) == (0, {}, [], [])
    assert {r["case"].partition("/")[0] for r in said["results"]} == {"rope.op"}
    code, out, _ = cli_apart(capfd, "check", "--impl", f"{name}:late", "--for", "rope.op", "--show", 1)
    assert code == 1
    assert "explain position.off_by_one" in out
    assert f"check --impl {name}:late --for rope.op --case rope.op/" in out


FOR_ONE = """
import numpy as np, peref

def rope(q, k, positions, layout, R, base, *, cotangent_q_rotated, cotangent_k_rotated, eps=1e-6):
    return of(q, k, cotangent_q_rotated, cotangent_k_rotated, positions, layout, R, base)

def of(q, k, dq, dk, i, layout, R, base):
    turn = lambda *x, i: peref.rotate("rope", *x, positions=i, layout=layout, rotary_dim=R, base=base)
    q_rotated, k_rotated = turn(q, k, i=i)
    vjp_q, vjp_k = turn(dq, dk, i=-i)
    return {"q_rotated": q_rotated, "k_rotated": k_rotated, "vjp_q": vjp_q, "vjp.k": vjp_k}

def late(q, k, positions, layout, R, base, **more):
    return of(q, k, more["cotangent_q_rotated"], more["cotangent_k_rotated"], positions + 1, layout, R, base)
"""


def test_names_of_one_thing(book, mine):
    """None for what a case has not, the default where there is one; a name that nothing has is told, and an
    output that was not asked for is left for the report.
    """
    name = mine(
        "def f(seg, x, other=5):\n    return {'y': [seg is None, other]}\n\n"
        "def unknown(x, theta):\n    pass\n\ndef slip(x):\n    return {'z': x}\n"
    )
    known = names_of(book, "mamba.op")
    case = book.entries["mamba.op/default"].words
    a = book.entries["mamba.op/default"].inputs()
    with function_of(f"{name}:f", known) as f:
        same(f(case, a)["y"].bits, np.array([1, 5]), 0)
    with pytest.raises(Misuse, match=r"unknown argument theta; expected one of .*param_A_log.*x.*\bB\b"):
        function_of(f"{name}:unknown", known).__enter__()
    with function_of(f"{name}:slip", known) as f:
        errors = run_function(f, book, Pick(cases=("mamba.op/default",)), "f32")[1]
    assert errors["mamba.op/default"].startswith(
        "WrongAnswer: it gave z, which was not asked for; wanted: vjp."
    )


def test_a_gain_of_one_may_come_where_the_case_has_none(book, mine):
    """The function is not told which outputs are wanted, so right code may give it always; no other gain."""
    name = mine(
        "import numpy as np\n\ndef f(positions, R, k=1):\n"
        "    y = np.ones((len(positions), R // 2), np.float32)\n"
        "    return {n: y for n in ('angle', 'cos', 'sin', 'gain_q')} | {'gain_k': k * y}\n\n"
        "def twice(positions, R):\n    return f(positions, R, 2)\n"
    )
    case = Pick(cases=("yarn.table/factor-1",))
    known = names_of(book, "yarn.table")
    with function_of(f"{name}:f", known) as f:
        came, errors = run_function(f, book, case, "f32")
    assert errors == {}
    assert {n.partition(":")[2] for n in came} == {"angle", "cos", "sin"}
    with function_of(f"{name}:twice", known) as f:
        errors = run_function(f, book, case, "f32")[1]
    assert "it gave gain_k, which was not asked for" in errors["yarn.table/factor-1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--impl", "m:f", "--for", "rope.opp"],
            "--for rope.opp: there is no such case; did you mean 'rope.op'?",
        ),
        (["--impl", "m:f", "--for", "rope.op", "--pe", "rope"], "leave out --pe and --level"),
        (["--cmd", "m", "--for", "rope.op"], "--for is about a function"),
        (["--cmd", "m", "--in-process"], "--in-process is about a function"),
        (["--start", "rope", "--impl", "m:f"], "give either a file of tensors, or "),
        (["--start", "roep"], "--start roep: no encoding of that name has a case; did you mean 'rope'"),
        (["--start", "all"], "has a case; expected one encoding, see: python cli.py list"),
    ],
)
def test_options_that_do_not_go_together(capsys, words, said):
    code, text = cli(capsys, "check", *words)
    assert (code, said in text) == (2, True), text


@pytest.mark.parametrize("name", names())
def test_the_start_of_every_encoding_runs(book, mine, name):
    """As it is, in every case of it: each output comes, in its shape, and it is not right."""
    text = start_of(name, book)
    thing = re.search(r"--for (\S+)$", text, re.M)[1]
    level = thing.partition(".")[2]
    body = text.partition("import numpy as np\n")[2].strip().splitlines()
    assert len([line for line in body if not line.startswith("    #")]) <= 5
    function = found_function(f"{mine(text)}:{name}", names_of(book, thing))
    pick = Pick(levels=(level,), encodings=(name,))
    found, errors = run_function(function, book, pick, "f32")
    assert errors == {}
    asked = [e for e in book.entries.values() if pick(e) and "before" not in e.words["facts"]]
    wanted = {f"{e.id}:{n}": e.want(n).shape for e in asked for n in e.outputs}
    assert {key: y.bits.shape for key, y in found.items()} == wanted


def test_a_start_on_the_command_line(capfd, tmp_path, monkeypatch):
    """What it prints is checked by the command that stands in it, and told what is wrong."""
    monkeypatch.chdir(tmp_path)
    code, text, _ = cli_apart(capfd, "check", "--start", "t5")
    (tmp_path / "mine.py").write_text(text)
    command = re.search(r"^    .*cli\.py (check --impl mine:.*)$", text, re.M)[1].split()
    assert (code, command[3:]) == (0, ["--for", "t5.op"])
    code, document, _ = cli_apart(capfd, "check", "--start", "t5", "--json")
    assert json.loads(document) == {"encoding": "t5", "text": text}
    code, out, err = cli_apart(capfd, *command)
    assert (code, err, "ERROR" in out) == (1, "", False)
    assert "zero throughout" in out or "no position" in out, out


def test_a_start_whose_formula_has_a_mask_is_told_what_is_wrong(book, capfd, mine):
    name = mine(start_of("stick_breaking", book))
    words = ("--for", "stick_breaking.attn", "--case", "*/longer", "--dtype", "f64", "--in-process")
    code, out, err = cli_apart(capfd, "check", "--impl", f"{name}:stick_breaking", *words)
    assert (code, err, "wrong (1 of 1 case" in out) == (1, "", True), out


# ---------------------------------------------------------------- what only a checkout has


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--impl", "peref.golden.compute.reference:reference", "--full"],
        ["check", "--impl", "peref.golden.compute.reference:reference", "--level", "block"],
        ["check", "--impl", "peref.golden.compute.reference:reference", "--case", "rope.block/llama"],
        ["check", "out.safetensors"],
        ["golden", "archive", "full.tar"],
        ["golden", "show", "rope.block/llama"],
        ["golden", "show", "alibi.op/spread"],
        ["check", "--impl", "peref.golden.compute.reference:reference", "--case", "alibi.op/spread"],
    ],
    ids=lambda words: " ".join(words[:2] + words[3:]),
)
def test_an_installation_says_that_it_has_the_core_alone(capsys, tmp_path, monkeypatch, words):
    """Exit code 2, and what to do: nothing passes because it was not compared."""
    there = tmp_path / "golden"
    there.mkdir()
    (there / "core").symlink_to(GOLDEN / "core")
    for name in ("SPEC_VERSION", "cases.schema.json"):
        shutil.copy(GOLDEN / name, there)
    monkeypatch.setattr(share, "folder", lambda name: tmp_path / name)
    monkeypatch.chdir(tmp_path)
    dumped(tmp_path / "out.safetensors", {"rope.block/llama:y": ("F64", np.zeros(3))})
    code, text = cli(capsys, *words)
    assert code == 2, text
    assert (
        "has the core alone; a checkout of peref has it, and packs it with `python cli.py golden archive"
        in text
    )
    assert not (tmp_path / "full.tar").exists()


def test_vectors_of_one_s_own_have_no_full_set(capsys, tmp_path):
    small = two_cases(tmp_path / "small")
    code, text = cli(capsys, "check", "--impl", "m:f", "--golden", small, "--full")
    assert (code, f"--full: only the full set has that, and {small} has the core alone" in text) == (2, True)


def test_vectors_are_not_replaced_without_a_word(capsys, tmp_path, monkeypatch):
    """Where nobody can be asked they stay; on a terminal it is asked."""
    args = ["golden", "vectors", "--shape", "1,2,1,5,4", "-o", tmp_path / "mine", "--pe"]
    assert cli(capsys, *args, "alibi")[0] == 0
    before = (tmp_path / "mine" / "alibi" / "SHA256SUMS").read_bytes()
    other = [*args, "alibi", "--set", "max_bias=4"]
    code, text = cli(capsys, *other)
    assert (code, "is there already and is left as it is" in text) == (2, True), text
    assert cli(capsys, *args, "rope")[0] == 0
    for answer, code in (("n\n", 2), ("", 2), ("y\n", 0)):
        assert (tmp_path / "mine" / "alibi" / "SHA256SUMS").read_bytes() == before
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        code_now, text = cli(capsys, *other)
        assert (code_now, "replace it? [y/N]" in text) == (code, True), text
    assert (tmp_path / "mine" / "alibi" / "SHA256SUMS").read_bytes() != before


class Terminal:
    """What somebody types."""

    def __init__(self, answer):
        self.answer = answer

    def isatty(self):
        return True

    def readline(self, size=-1):
        return self.answer


def test_a_file_of_40_gb_is_told_and_not_read(capsys, tmp_path):
    """Its header promises what no golden case has; alone and in a folder."""
    about = {"dtype": "F64", "shape": [5 * 10**9], "data_offsets": [0, 4 * 10**10]}
    header = json.dumps({"rope.op/default:q_rotated": about})
    with open(tmp_path / "large.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + 4 * 10**10)
    for place in (tmp_path / "large.safetensors", tmp_path):
        code, text = cli(capsys, "check", place)
        assert code == 2
        assert re.search(r"large\.safetensors: 40,000,000,\d+ bytes; at most 1,073,741,824 are read", text), (
            text
        )


@pytest.mark.parametrize("where", [(), ("--in-process",)])
def test_a_function_of_c_has_no_signature(capfd, where):
    """It is called; by name it cannot be."""
    code, said = checked(capfd, "check", "--impl", "math:hypot", *where, *ONE)
    assert (code, said["errors"]["rope.op/default"][:25]) == (1, "TypeError: must be real n")
    with pytest.raises(Misuse, match="no names that Python can tell"):
        found_function("math:hypot", ["q"])


def test_nothing_in_a_folder_is_passed_over(capsys, tmp_path):
    """A link to a folder, one that leads nowhere, what is no file."""
    want = np.zeros((1, 3, 7, 32), np.float32)
    (tmp_path / "mine").mkdir()
    dumped(tmp_path / "mine" / "a.safetensors", {"rope.op/default:q_rotated": ("F32", want)})
    strange = tmp_path / "mine" / "b.safetensors"
    for made, said in (
        (lambda: strange.symlink_to(tmp_path / "gone"), "gone|No such file|no such file|nothing is there"),
        (lambda: os.mkfifo(strange), r"b\.safetensors: a folder, pipe or device, not a file"),
        (lambda: strange.symlink_to(tmp_path), "a link to a folder, which is not followed"),
    ):
        made()
        code, text = cli(capsys, "check", tmp_path / "mine")
        assert (code, bool(re.search(said, text))) == (2, True), text
        strange.unlink()
    assert cli(capsys, "check", tmp_path / "mine")[0] == 1


def test_a_module_that_is_not_there_has_no_line(monkeypatch, tmp_path):
    """The line is one of somebody's own file; Python's own importing has none to show."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=r"No module named 'not_there'$"):
        found_function("not_there:f")
