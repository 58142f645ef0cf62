"""Programs held against the golden files: the example runners pass, and a program that crashes, hangs or
cheats is told as what it is.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from check import same
from golden_files import cli

from peref.errors import Misuse
from peref.golden.judge.declared import declared_entries
from peref.golden.judge.implementation import check_program
from peref.golden.judge.matrix import cell, read_reports, table_rows
from peref.golden.judge.process import RunnerBroken
from peref.golden.judge.report import NothingRan, merged
from peref.golden.judge.selection import Pick
from peref.golden.judge.tables import markdown
from peref.golden.judge.wire import encoded_inputs, request_text
from peref.golden.spec.files import tensors

ROOT = Path(__file__).resolve().parent.parent
RUNNERS = ROOT / "golden" / "runners"
FEW = Pick(cases=("rope.op/default", "rope.op/long", "alibi.table/default"))
SOURCES = {"c": "runner.c", "rust": "runner.rs"}
STRICT = {
    "c": ("cc", ["-O2", "-Wall", "-Wextra", "-Werror", "-o", "{out}", str(RUNNERS / SOURCES["c"]), "-lm"]),
    "rust": (
        "rustc",
        ["-O", "--edition", "2021", "-D", "warnings", "-o", "{out}", str(RUNNERS / SOURCES["rust"])],
    ),
}


# ---------------------------------------------------------------- the examples


def built(language, folder):
    """The command of an example runner, compiled without a warning; a skip where this machine cannot."""
    if language == "javascript":
        if not shutil.which("node"):
            pytest.skip("golden/runners/runner.mjs was not run: there is no node here")
        return f"node {shlex.quote(str(RUNNERS / 'runner.mjs'))}"
    compiler, args = STRICT[language]
    if not shutil.which(compiler):
        pytest.skip(f"golden/runners/{SOURCES[language]} was not built: there is no {compiler} here")
    out = str(folder / "runner")
    done = subprocess.run([compiler, *(a.format(out=out) for a in args)], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return shlex.quote(out)


CLAIMED = {"rope", "yarn", "alibi", "t5"}


def refusals_of(book):
    """The calls that an example must refuse: those of its levels, with options that it claims."""
    others = {"ramp": "code", "attention_factor": None, "form": "static"}
    cases = [
        one.words
        for one in declared_entries(book)["refusals"]
        if one.words["encoding"] in CLAIMED and one.words["call"] in ("table", "op")
    ]
    return {
        words["id"]
        for words in cases
        if all(words["options"].get(key, value) == value for key, value in others.items())
    }


@pytest.mark.parametrize("language", ["c", "javascript", "rust"])
def test_an_example_passes_what_it_claims(book, language, tmp_path):
    """Every tensor in class A, in two dtypes; what it leaves out has a reason; what must be refused is,
    and nothing else.
    """
    command = built(language, tmp_path)
    for dtype in ("f32", "f64"):
        report = check_program(command, book, Pick(), dtype)
        refused = {o.id for o in report.outcomes if o.words["level"] == "refuse" and o.held}
        assert refused == refusals_of(book), report.outcomes
        assert len(refused) > 20
        assert all(o.said.startswith("refused: ") for o in report.outcomes if o.id in refused)
        assert sum(o.words["level"] == "law" for o in report.outcomes if o.held) > 10
        assert report.exit_code == 0, (report.failed, report.errors, report.crashes, report.broken)
        assert report.by_class()["A"] == len(report.results) > 150
        assert {r.entry.words["encoding"] for r in report.results} == CLAIMED
        assert {r.entry.words["facts"]["layout"] for r in report.results} == {"half", "interleaved"}
        assert all(report.skipped.values())
        assert any(r.name.startswith("vjp.") for r in report.results)


def test_the_numpy_adapter_passes(capsys, monkeypatch, book):
    """In two dtypes; it is 120 lines at most."""
    monkeypatch.chdir(RUNNERS)
    assert len(Path("numpy_adapter.py").read_text().splitlines()) <= 120
    passes(capsys, book, "numpy_adapter:run", "f32", "f64")


def test_the_pytorch_adapter_passes(capsys, monkeypatch, book):
    """Its gradients are autograd's."""
    pytest.importorskip(
        "torch", reason="golden/runners/torch_adapter.py was not run: there is no PyTorch here"
    )
    monkeypatch.chdir(RUNNERS)
    passes(capsys, book, "torch_adapter:run", "f32")


def passes(capsys, book, function, *dtypes):
    code, text = cli(
        capsys,
        "check",
        "--impl",
        function,
        *(word for dtype in dtypes for word in ("--dtype", dtype)),
        "--json",
    )
    found = json.loads(text)
    assert (code, found["classes"]["A"]) == (0, len(found["results"])), text
    assert len(found["results"]) > 150 * len(dtypes)
    held = [one["case"] for one in found["refusals_and_laws"] if one["level"] == "refuse" and one["held"]]
    assert (set(held), len(held)) == (refusals_of(book), len(dtypes) * len(refusals_of(book)))


# ---------------------------------------------------------------- the protocol

PROGRAM = """
import json, os, struct, sys, time
def say(x):
    print(json.dumps(x), flush=True)
def write(path, tensors):
    header, at, payload = {}, 0, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}d", *values)
        header[name] = {"dtype": "F64", "shape": [len(values)], "data_offsets": [at, at + len(raw)]}
        at, payload = at + len(raw), payload + raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + payload)
supports, count = {"ops": ["rope.op", "alibi.table"]}, 0
for line in sys.stdin:
    r = json.loads(line)
    if r["cmd"] == "hello":
        folder = r["dir"]
HELLO
        say({"ok": True, "implementation": {"name": "for a test"}, "supports": supports})
    elif r["cmd"] == "bye":
BYE
        break
    else:
        count, out, seq = count + 1, os.path.join(folder, r["out"]), r["seq"]
CASE
"""


def program(tmp_path, case="", hello="pass", bye="pass"):
    """The command of a program that does this with a case."""
    indented = lambda text, n: "\n".join(" " * n + line for line in text.splitlines())
    text = (
        PROGRAM.replace("HELLO", indented(hello, 8))
        .replace("BYE", indented(bye, 8))
        .replace("CASE", indented(case or "pass", 8))
    )
    (tmp_path / "program.py").write_text(text)
    return f"{shlex.quote(sys.executable)} -S {shlex.quote(str(tmp_path / 'program.py'))}"


OK = "say({'seq': seq, 'status': 'ok'})"
BREAKS = {
    "crash": (
        "print('a table of 3 rows', file=sys.stderr, flush=True); os._exit(3)",
        "exit code 3; its stderr ends: a table of 3 rows",
    ),
    "signal": ("os.abort()", "by signal 6"),
    "hang": ("time.sleep(60)", "no answer within 0.5 s"),
    "silence": ("os.close(1); time.sleep(60)", "output closed while it ran on"),
    "silence, then much": (
        "os.close(1); os.write(2, b'e' * (1 << 20)); os._exit(4)",
        "it stopped, exit code 4",
    ),
    "no JSON": ("print('{{{', flush=True)", "not the JSON that was expected"),
    "NaN": ("print('{\"seq\": NaN}', flush=True)", "NaN is no JSON number"),
    "a key twice": ('print(\'{"seq": 1, "seq": 2}\', flush=True)', "there twice"),
    "deep": ("print('[' * 100000, flush=True)", "not the JSON|nested too deeply"),
    "no end": ("sys.stdout.write('x' * (2 << 20)); sys.stdout.flush()", "its answer has no end"),
    "a list": ("say([1])", "no JSON object"),
    "bytes": ("sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()", "utf-8"),
    "other seq": ("say({'seq': 99, 'status': 'ok'})", "it answered seq 99 where 1"),
    "seq true": ("say({'seq': True, 'status': 'ok'})", "it answered seq True"),
    "no status": ("say({'seq': seq})", "expected ok, skip, refused or error"),
    "nothing written": (OK, "wrote no out-1.safetensors"),
    "a link": (f"os.symlink('/etc/passwd', out); {OK}", "no plain file"),
    "a second name": (f"write(folder + '/x', {{}}); os.link(folder + '/x', out); {OK}", "no plain file"),
    "a folder": (f"os.mkdir(out); {OK}", "no plain file"),
    "a pipe": (f"os.mkfifo(out); {OK}", "no plain file"),
    "a file of 2 GB": (f"open(out, 'wb').truncate(2 << 30); {OK}", "at most [0-9,]+ are read of what"),
    "a file of 4 MB": (f"open(out, 'wb').truncate(4 << 20); {OK}", "4,194,304 bytes; at most 1,[0-9,]+ are"),
    "a folder in place of its own": (
        f"os.rename(folder, folder + '-'); os.mkdir(folder); {OK}",
        "wrote no out-1.safetensors in the folder that it was given",
    ),
    "a folder that is removed": (
        f"import shutil; shutil.rmtree(folder); {OK}",
        "wrote no out-1.safetensors in the folder that it was given",
    ),
    "no folder": (
        f"os.rename(folder, folder + '-'); {OK}",
        "wrote no out-1.safetensors in the folder that it was given",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_program_that_breaks_is_told(book, name, tmp_path):
    """How, with its stderr; it is started once more, and then no more."""
    case, words = BREAKS[name]
    report = check_program(program(tmp_path, case), book, FEW, "f64", seconds=0.5 if name == "hang" else 20)
    assert report.exit_code == 4
    assert (len(report.crashes), report.errors) == (2, {})
    assert re.search(words, next(iter(report.crashes.values())).replace(" 2 where", " 1 where")), (
        report.crashes
    )
    assert all(
        "program.py" in said.partition(": ")[0] and said.startswith("--cmd ")
        for said in report.crashes.values()
    )


def test_it_is_started_once_more_and_not_again(book, tmp_path):
    """Also where laws call the same case several times."""
    log = f"open({str(tmp_path / 'log')!r}, 'a').write('x')"
    pick = Pick(levels=("law",), encodings=("t5",))
    report = check_program(
        program(tmp_path, "os._exit(1)", hello=f"supports = {{}}; {log}"), book, pick, "f64"
    )
    assert report.exit_code == 4
    assert (tmp_path / "log").read_text() == "xx"


def test_a_program_that_recovers(book, tmp_path):
    """One crash is told, the cases after it are still run."""
    case = (
        "if r['id'] == 'alibi.table/default': os._exit(1)\n"
        "say({'seq': seq, 'status': 'skip', 'reason': 'enough'})"
    )
    report = check_program(program(tmp_path, case), book, FEW, "f64")
    assert (list(report.crashes), len(report.skipped), report.exit_code) == (["alibi.table/default"], 2, 4)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ("os._exit(7)", "exit code 7"),
        ("print('hello', flush=True)", "not the JSON"),
        ("say({'ok': False}); continue", r"its first answer\.ok is false; expected true"),
        ("supports = {'ops': 'rope.op'}", r'its first answer\.supports\.ops is "rope.op"; expected a list'),
        ("supports = {'vjp': 1}", "expected true or false"),
        ("supports = [1]", r"its first answer\.supports is \[1\]; expected an object"),
    ],
)
def test_a_first_answer_that_is_none(book, tmp_path, hello, words):
    command = program(tmp_path, hello=hello)
    with pytest.raises(RunnerBroken, match=words) as error:
        check_program(command, book, FEW, "f64")
    assert str(error.value).startswith(f"--cmd {shlex.quote(command)}: asked hello: ")


def test_a_crash_at_the_end_is_told(book, tmp_path):
    case = "say({'seq': seq, 'status': 'skip', 'reason': 'no time', 'issue': 'https://example.org/1'})"
    command = program(tmp_path, case, bye="os._exit(9)")
    report = check_program(command, book, FEW, "f64")
    assert report.crashes == {
        "bye": f"--cmd {shlex.quote(command)}: asked bye: exit code 9 at its end; its stderr is empty"
    }


def test_what_it_does_not_claim_is_not_sent(book, tmp_path):
    """By op, by dtype, by position, and gradients: nothing of this is a failure."""
    log = f"open({str(tmp_path / 'log')!r}, 'a').write(r['id'] + ' ' + ' '.join(r['want']) + '\\n')\n"
    skip = "say({'seq': seq, 'status': 'skip', 'reason': 'no time'})"
    command = program(
        tmp_path,
        log + skip,
        hello="supports = {'ops': ['rope.op'], 'dtypes': ['f64'], 'max_position': 4096, 'vjp': False}",
    )
    report = check_program(command, book, FEW, "f64")
    assert (list(report.skipped), len(report.not_run)) == (["rope.op/default"], 3)
    with pytest.raises(NothingRan, match="2 cases were asked for and none was answered, 1 skipped"):
        merged([report])
    assert (tmp_path / "log").read_text() == "rope.op/default k_rotated q_rotated\n"
    report = check_program(command, book, FEW, "f32")
    assert (report.skipped, report.exit_code) == ({}, 0)


def test_what_is_not_asked_in_float16_is_not_sent(book, tmp_path):
    log = f"open({str(tmp_path / 'log')!r}, 'a').write(r['id'] + '\\n')\n"
    command = program(
        tmp_path, log + "say({'seq': seq, 'status': 'skip', 'reason': 'no time'})", hello="supports = {}"
    )
    kept, *_ = pick = Pick(cases=("gla.trace/kept-state", "gla.trace/chunks")).cases
    for dtype, sent in (("f16", {"gla.trace/chunks"}), ("bf16", set(pick))):
        report = check_program(command, book, Pick(cases=pick), dtype)
        assert ({*report.skipped}, {*(tmp_path / "log").read_text().split()}) == (sent, sent)
        assert (report.exit_code, report.not_asked) == (0, () if dtype == "bf16" else (kept,))


def test_refused_and_error_are_failures_of_a_valid_case(book, tmp_path):
    for answer, words in (
        ("'refused', 'kind': 'width', 'message': 'R is odd'", "Refused: R is odd"),
        ("'error', 'message': 'no memory'", "Unable: no memory"),
        ("'error', 'raised': 'no name' + chr(0), 'message': 'no memory'", "Unable: no memory"),
    ):
        report = check_program(
            program(tmp_path, f"say({{'seq': seq, 'status': {answer}}})"), book, FEW, "f64"
        )
        assert report.exit_code == 1
        assert set(report.errors.values()) == {words}


def test_an_output_that_nobody_asked_for_or_that_is_no_tensor_file(book, tmp_path):
    """The case fails; the program is not to blame for the protocol."""
    report = check_program(program(tmp_path, f"write(out, {{'a/b': [1.0]}}); {OK}"), book, FEW, "f64")
    assert all("gave a/b, which was not asked for" in words for words in report.errors.values())
    report = check_program(program(tmp_path, f"open(out, 'wb').write(b'x' * 50); {OK}"), book, FEW, "f64")
    assert len(report.errors) == 3
    assert all(words.startswith("Damaged: out-") for words in report.errors.values())


def test_a_law_takes_what_it_asks_for_of_what_a_program_gives(book, tmp_path):
    """As of a function: lengths are kept by what is given back as it came, all of it."""
    back = """
data = open(os.path.join(folder, r['in']), 'rb').read()
end = 8 + int.from_bytes(data[:8], 'little')
head = data[8:end].replace(b'"q"', b'"q_rotated"').replace(b'"k"', b'"k_rotated"')
open(out, 'wb').write(len(head).to_bytes(8, 'little') + head + data[end:])
"""
    report = check_program(program(tmp_path, back + OK), book, Pick(cases=("rope.law/norm",)), "f64")
    assert [(o.held, o.said) for o in report.outcomes] == [(True, "holds")]


def test_wrong_numbers_and_wrong_shapes_fail(book, tmp_path):
    report = check_program(
        program(tmp_path, f"write(out, {{n: [1.0, 2.0] for n in r['want']}}); {OK}"), book, FEW, "f64"
    )
    assert (report.exit_code, len(report.failed)) == (1, len(report.results))
    assert report.failed[0].verdict.words.startswith("shape [2], expected")


def test_refusals_are_sent_to_who_takes_them(tmp_path, book):
    """One that refuses everything holds all of them, one that says nothing is not asked."""
    pick = Pick(levels=("refuse",), encodings=("rope",))
    refuse = "say({'seq': seq, 'status': 'refused', 'kind': 'width', 'message': 'no'})"
    report = check_program(
        program(tmp_path, refuse, hello="supports = {'ops': ['rope.op'], 'refusals': True}"),
        book,
        pick,
        "f64",
    )
    held = [o for o in report.outcomes if o.held is not None]
    assert len(held) > 3
    assert all(o.held for o in held)
    assert all(o.held is None for o in check_program(program(tmp_path, refuse), book, pick, "f64").outcomes)


def test_laws_and_refusals_that_it_skips_are_no_cases(book, tmp_path):
    """They are counted as not run, and the program's reason is kept."""
    skip = "say({'seq': seq, 'status': 'skip', 'reason': 'no time'})"
    command = program(tmp_path, skip, hello="supports = {'refusals': True}")
    pick = Pick(cases=("rope.op/default", "rope.law/norm", "rope.refuse/odd-width"))
    report = check_program(command, book, pick, "f64")
    assert report.skipped == {"rope.op/default": "no time"}
    reasons = {o.id: o.said for o in report.untried}
    assert reasons == dict.fromkeys(("rope.law/norm", "rope.refuse/odd-width"), "no time")


def test_a_crash_at_a_law_or_refusal_is_told_once_and_is_no_case(capsys, tmp_path):
    """Under its own id, which `--case` takes: in the last line, in JUnit, in JSON and in the matrix."""
    declared = ("rope.refuse/odd-width", "rope.law/norm")
    case = f"if r['id'] in {declared}: os._exit(3)\nwrite(out, {{n: [1.0] for n in r['want']}}); {OK}"
    command = program(tmp_path, case, hello="supports = {'refusals': True}")
    xml, kept = tmp_path / "r.xml", tmp_path / "mine.json"
    asked = [word for name in ("rope.op/default", *declared) for word in ("--case", name)]
    written = ("--report", f"junit:{xml}", "--report", f"json:{kept}")
    code, text = cli(capsys, "check", "--cmd", command, *asked, *written)
    assert (code, text.splitlines()[-1].count("not run")) == (4, 1), text
    assert "the program broke 2 times, 0 cases not run; spec" in text
    found = json.loads(kept.read_text())
    assert [*found["crashes"]] == [*declared]
    assert {o["case"]: o["said"] for o in found["refusals_and_laws"]} == found["crashes"]
    suite = xml.read_text()
    assert [suite.count(f'name="{name}"') for name in declared] == [1, 1], suite
    assert ('errors="2"' in suite, 'skipped="0"' in suite) == (True, True), suite
    (one,) = read_reports([kept])
    assert (table_rows([one]), str(cell(one, ("rope", "op")))) == ([("rope", "op")], "FAIL (1/1)")
    assert all(name in markdown([one]) for name in declared)
    assert f"--cmd {shlex.quote(command)} --case rope.law/norm" in text
    assert cli(capsys, "check", "--cmd", command, "--case", "rope.law/norm")[0] == 4


def test_nothing_is_left_and_nobody_sees_what_is_expected(book, tmp_path, monkeypatch):
    """The folder of a run goes with it; in it are inputs alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    look = f"open({str(tmp_path / 'log')!r}, 'a').write(' '.join(sorted(os.listdir(folder))) + '\\n')\n"
    check_program(program(tmp_path, look + f"write(out, {{}}); {OK}"), book, FEW, "f32")
    assert os.listdir(tmp_path / "tmp") == []
    assert (tmp_path / "log").read_text().splitlines() == [
        f"case-{n}.txt in-{n}.safetensors" for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_inputs_arrive_exactly(book, dtype):
    """In every dtype: the grid is made for that. The lines say where each tensor lies."""
    for name in ("rope.op/rows", "t5.table/default"):
        a = book.entries[name].inputs()
        data = encoded_inputs(a, dtype)
        found = tensors(data, "x")
        assert set(found) == set(a)
        same({key: x.wide for key, x in found.items()}, a, 0)
        request = {
            "id": name,
            "encoding": "x",
            "level": "op",
            "dtype": dtype,
            "out": "o",
            "want": ["y"],
            "facts": {"n": None, "shape": {"b": True, "a": [3]}},
            "options": {"f": [1, 2.5]},
        }
        lines = request_text(request, data).splitlines()
        assert {"fact n none", "fact shape 2 a 1 3 b true", "option f 2 1 2.5", "want y", "end"} <= set(lines)
        for line in lines:
            if line.startswith("input "):
                _, key, kind, size, first, rank, *dims = line.split()
                assert (kind, list(found[key].bits.shape), len(dims)) == (
                    found[key].dtype,
                    list(map(int, dims)),
                    int(rank),
                )
                assert data[int(first) : int(first) + int(size)] == found[key].bits.tobytes()


def test_commands_that_cannot_be_started(book, tmp_path):
    for command in ("", "'", str(tmp_path / "nowhere"), str(tmp_path)):
        with pytest.raises(Misuse, match="--cmd"):
            check_program(command, book, FEW, "f64")


def test_on_the_command_line(capsys, tmp_path):
    """Exit code 4 and the block; no shell reads the command; 1 for what is wrong; one form at a time."""
    code, text = cli(capsys, "check", "--cmd", program(tmp_path, BREAKS["crash"][0]), "--case", "rope.op/*")
    assert (
        code,
        text.startswith("BROKEN rope.op/"),
        "a table of 3 rows" in text,
        "the program broke 2 times" in text,
    ) == (4, True, True, True)
    code, text = cli(
        capsys,
        "check",
        "--cmd",
        program(tmp_path, f"write(out, {{n: [1.0] for n in r['want']}}); {OK}"),
        "--case",
        "rope.op/default",
        "--json",
    )
    assert (code, json.loads(text)["failed"]) == (1, 4)
    cli(capsys, "check", "--cmd", f"{sys.executable} -c 0 ; touch {tmp_path / 'shell'}")
    assert not (tmp_path / "shell").exists()
    assert cli(capsys, "check", "--cmd", "x", "--impl", "y:z")[0] == 2
    assert cli(capsys, "check", "--cmd", "x", "--timeout", "0")[0] == 2
