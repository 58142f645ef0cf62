"""sweep: a grid from a file, computed by whoever comes, with the same bits as by one undisturbed process."""

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from peref import backends, modules, share
from peref.cli import run as run_cli
from peref.cli import sweep as cli
from peref.cli.signals import Signals
from peref.errors import Misuse, PerefError
from peref.lab import sweep as lab
from peref.lab.sweep import standings, work
from peref.runs import Run

SMALL = """
data = "text.txt"
to = 16
bytes = 128
backend = "numpy"
width = 16
heads = 2
layers = 2
batch = 2
len = 8
steps = 6
warmup = 1
save-every = 2
"""
TWO_STAGES = (
    'pe = "rope"\nseed = [0, 1]\n[[then]]\npe = ["pi", "yarn"]\nset = "factor=2"\nlen = 16\nsteps = 3\n'
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes SWEEP.toml: these lines, and those of SMALL that they do not say on top; returns its
    plan.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "WAITING", 0.01)
    Path("text.txt").write_text("the cat sat on the mat and ran\n" * 100)

    def call(lines, root="runs"):
        on_top = {line.split(" = ")[0] for line in lines.partition("[[")[0].splitlines()}
        first = [line for line in SMALL.splitlines(True) if line.split(" = ")[0] not in on_top]
        Path("SWEEP.toml").write_text("".join(first) + lines)
        return cli.sweep_of(cli.sheet_of(SimpleNamespace(file="SWEEP.toml", runs=root)))

    return call


@pytest.fixture
def sweep(write, capsys):
    """`sweep` with these words; gives exit code, stdout and stderr."""

    def call(*words, signals=None):
        capsys.readouterr()
        code = run_cli(["sweep", *map(str, words)], signals or Signals())
        return code, *capsys.readouterr()

    return call


def computed(plan, wanted=None, stopping=lambda: False):
    """All that is yielded by computing these tasks, all unless said."""
    wanted = range(len(plan.tasks)) if wanted is None else wanted
    return list(work(plan, wanted, backends.get("numpy", threads=1), stopping))


def last_steps(root="runs"):
    """How often each run did its last step: what is in timing.jsonl stays there, whatever is done again."""
    found = {}
    for path in Path(root).glob("*/timing.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        found[path.parent.name] = steps.count(Run(path.parent).record["steps"])
    return found


def test_the_grid(write):
    """Every combination, the last list turning fastest; grids have what stands above them."""
    plan = write(
        'seed = 3\n[[grid]]\npe = ["rope", "alibi"]\nset = ["", "window=4"]\n[[grid]]\nlen = [4, 8]\n'
    )
    keys = ("pe", "set", "len", "seed")
    assert [tuple(said[key] for key in keys) for said in plan.said] == [
        *[("rope", "", 8, 3), ("rope", "window=4", 8, 3), ("alibi", "", 8, 3), ("alibi", "window=4", 8, 3)],
        *[("alibi", "", 4, 3), ("alibi", "", 8, 3)],
    ]
    assert [dict(task.cfg.pe[0][1]).get("window") for task in plan.tasks] == [None, 4, None, 4, None, None]
    assert {(task.cfg.C, task.recipe.steps, task.recipe.seed) for task in plan.tasks} == {(16, 6, 3)}


def test_the_example_of_the_page(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
    (tmp_path / "grid.toml").write_text(re.search(r"`grid.toml`:\n\n```\n(.*?)```", page, re.S)[1])
    plan = cli.sweep_of(cli.sheet_of(SimpleNamespace(file=str(tmp_path / "grid.toml"), runs="runs")))
    assert (len(plan.tasks), plan.longest) == (22, 2048)
    assert "here 22" in page
    assert "array=0-21 " in page


def test_two_stages(write, sweep):
    """The second is `train --from` the first: its weights, and what the first said but for what it says."""
    plan = write(TWO_STAGES)
    assert plan.parents == (None, 0, 0, None, 3, 3)
    pi, yarn = plan.tasks[1], plan.tasks[5]
    assert (pi.cfg.pe[0][0], pi.cfg.L, pi.cfg.pe[0][1]["original"]) == ("pi", 16, 8)
    assert (yarn.recipe.steps, yarn.recipe.seed, yarn.recipe.batch) == (3, 1, 2)
    assert sweep("task", "SWEEP.toml", "--index", 2)[0] == 0  # with what it goes on from
    assert [row["state"] for row in standings(plan)] == [
        "finished",
        "new",
        "finished",
        "new",
        "waiting",
        "waiting",
    ]
    first, _, second, *_ = standings(plan)
    parent = Run(plan.root / second["run"]).record["parent"]
    assert (Path(parent["run"]).name, parent["step"]) == (first["run"], 6)


def test_a_dry_run_computes_nothing(write, sweep):
    write(TWO_STAGES)
    code, out, err = sweep("SWEEP.toml", "--dry-run")
    assert (code, err, Path("runs").exists(), Path("SWEEP.csv").exists()) == (0, "", False, False)
    assert [line.split()[0] for line in out.splitlines()[1:7]] == list("012345")
    assert "2 new, 4 waiting; 0 of 24 steps" in out


def test_a_task_by_its_index(write, sweep):
    """It alone, and once; the last one writes the results, which are those of eval."""
    write('pe = ["rope", "alibi"]\n')
    assert sweep("task", "SWEEP.toml", "--index", 1)[0] == 0
    assert last_steps().popitem()[0].startswith("alibi")
    assert not Path("SWEEP.csv").exists()
    code, out, _ = sweep("task", "SWEEP.toml", "--index", 1)
    assert (code, "1 finished" in out, sum(last_steps().values())) == (0, True, 1)
    assert sweep("task", "SWEEP.toml", "--index", 0)[0] == 0
    found = json.loads(Path("SWEEP.json").read_text())
    lines = Path("SWEEP.csv").read_text().splitlines()
    assert lines[0].startswith("index,from,")
    assert len(lines) == 1 + 2 * 3
    for row in found["tasks"]:
        words = [
            "eval",
            f"runs/{row['run']}",
            "--len",
            "16",
            "--bytes",
            "128",
            "--backend",
            "numpy",
            "--json",
        ]
        assert run_cli(words, Signals()) == 0
        (path,) = Path("runs", row["run"], "eval").glob("16-*")
        assert json.loads(path.read_text())["rows"] == row["result"]["rows"]


def test_two_at_once_do_each_task_once(write, monkeypatch):
    """And make the bits of one alone; only one of them trains or evaluates a task."""
    lines = TWO_STAGES.replace("[0, 1]", "0")
    alone = write(lines, "alone")
    computed(alone)
    plan, evaluated = write(lines), []
    whole = lab.evaluated
    monkeypatch.setattr(lab, "evaluated", lambda *given: evaluated.append(1) or whole(*given))
    both = [threading.Thread(target=computed, args=[plan]) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert lab.results(plan, standings(plan)) == lab.results(alone, standings(alone))
    assert (len(evaluated), set(last_steps().values())) == (3, {1})


def test_what_is_in_use_is_left_and_shown_as_running(write, monkeypatch):
    plan = write('pe = ["rope", "alibi"]\n')
    monkeypatch.setattr(lab, "WAITING", 0.0)
    stop = iter([False] * 5 + [True] * 9)
    computed(plan, [0], stopping=lambda: next(stop))
    assert standings(plan)[0]["state"] == "stopped"
    with Run(plan.root / standings(plan)[0]["run"]).lock():
        assert standings(plan)[0]["state"] == "running"
        looks, said = iter([False] * 40 + [True]), []
        work_of = work(
            plan, range(2), backends.get("numpy", threads=1), lambda: next(looks, True), said.append
        )
        assert {n for n, _ in work_of} == {1}
        assert [row["state"] for row in standings(plan)] == ["running", "finished"]
        assert said == ["waiting for others, who compute: 0"]
    computed(plan)
    assert {row["state"] for row in standings(plan)} == {"finished"}


def test_stopped_and_called_again_it_goes_on(write, sweep):
    plan = write('pe = ["rope", "alibi"]\n')
    stopped = Signals()
    stopped.asked = signal.SIGTERM
    code, _, err = sweep("task", "SWEEP.toml", signals=stopped)
    assert (code, "goes on" in err) == (143, True)
    assert sweep("SWEEP.toml", signals=stopped)[0] == 143
    alone = write('pe = ["rope", "alibi"]\n', "alone")
    computed(alone)
    assert sweep("task", "SWEEP.toml")[0] == 0
    assert lab.results(plan, standings(plan)) == lab.results(alone, standings(alone))


def test_a_task_that_diverges_is_a_result(write, sweep):
    """With the tasks that go on from it; the others are finished."""
    plan = write('pe = "rope"\nrate = [0.01, 1e30]\nclip = 1e30\n[[then]]\nset = "base=500"\nrate = 0.01\n')
    code, out, _ = sweep("task", "SWEEP.toml")
    assert (code, "2 finished, 2 diverged" in out) == (0, True)
    said = [row["result"].get("diverged", "") for row in standings(plan)]
    assert "is not finite" in said[2] or "nan" in said[2] or "inf" in said[2]
    assert said[3] == "task 2, from which it goes on, has diverged"
    assert said[:2] == ["", ""]
    assert "diverged" in Path("SWEEP.csv").read_text()


def test_workers_of_this_machine_one_of_which_is_killed(write, sweep, monkeypatch):
    """Two processes make the bits of one that nobody disturbed, although one dies in the midst of it."""
    lines = 'pe = ["rope", "alibi"]\nsteps = 60\nsave-every = 20\n'
    alone, plan, killed = write(lines, "alone"), write(lines), []
    computed(alone)
    show = cli.Live.rows

    def watched(self, rows):
        show(self, rows)
        if not killed and (some := [row for row in rows if row["step"] > 20 and row["state"] == "running"]):
            killed.append(Run(plan.root / some[0]["run"]).owner)
            os.kill(int(killed[0].split()[1]), signal.SIGKILL)

    monkeypatch.setattr(cli.Live, "rows", watched)
    code, _, err = sweep("SWEEP.toml", "--workers", 2)
    assert (code, "exit code -9" in err, len(killed)) == (0, True, 1), err
    assert lab.results(plan, standings(plan)) == lab.results(alone, standings(alone))
    assert Path("SWEEP.json").read_text() == lab.results(alone, standings(alone))[0]
    assert set(last_steps().values()) == {1}


@pytest.mark.parametrize("alive", [True, False])
def test_workers_that_die_are_replaced_unless_nothing_comes_of_it(write, monkeypatch, alive):
    """Every second one has done its task before it dies, while `alive`."""
    plan, calls, said = write("seed = [0, 1, 2]\n"), [], []

    def task(n):
        calls.append(n)
        if alive and len(calls) % 2 == 0:
            computed(plan, [n])
        raise PerefError(f"process {len(calls)} died")

    with lab.processes(1) as one:
        live = SimpleNamespace(rows=lambda rows: None, line=said.append)
        drive = lambda: lab.drive(plan, one, task, live, lambda: False)
        if alive:
            assert all(row["result"] for row in drive())
            assert len(said) >= 3
        else:
            with pytest.raises(PerefError, match=r"process \d+ died"):
                drive()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("lenn = 4\n", "there is no key 'lenn'; did you mean 'len'?"),
        ("[[grid]]\nto = 4\n", "to is of the whole sweep; say it above all [[grid]] and [[then]]"),
        ("[[then]]\nstep = 4\n", "there is no key 'step'; did you mean 'steps'?"),
        ('seed = ["a"]\n', "seed is 'a'; expected int"),
        ("seed = 1.5\n", "seed is 1.5; expected int"),
        ("seed = true\n", "seed is True; expected int"),
        ("seed = []\n", "seed is an empty list"),
        ("pe = 4\n", "pe is 4; expected str"),
        ('pe = "alibbi"\n', "did you mean 'alibi'?"),
        ('set = "bose=4"\n', "bose"),
        ("grid = 4\n", "grid is 4; expected tables, [[grid]]"),
        ("then = [4]\n", "then is [4]; expected tables, [[then]]"),
        ('pe = "learned"\n', "task 0 (pe learned): learned ends at length 8"),
        ('pe = "none"\n[[then]]\npe = "t5"\n', "task 1 (pe t5): the weights have no"),
        ('dtype = ["float32", "float64"]\n', "a sweep has one"),
        ("seed = = 4\n", "cannot be read as TOML"),
        ("seed = " + "[" * 3000, "cannot be read as TOML"),
        ("layers = 99999999\n", "this training needs at least"),
        ("kv-heads = 3\n", "3"),
    ],
)
def test_what_a_file_may_not_say(sweep, write, lines, said):
    with pytest.raises(Misuse):
        write(lines)
    code, out, err = sweep("SWEEP.toml", "--dry-run")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said in err
    assert "SWEEP.toml: " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["SWEEP.toml", "--workers", 10_000], "10000 threads; expected at most"),
        (["SWEEP.toml", "--workers", 1, "--scheduler", "tcp://127.0.0.1:1"], "--workers is for this machine"),
        (["task", "SWEEP.toml", "--index", 1], "--index is 1; SWEEP.toml has tasks 0 to 0"),
        (["task", "SWEEP.toml", "--index", -1], "-1"),
        (["gone.toml"], "gone.toml: No such file or directory; check the path"),
        (["text.txt"], "expected SWEEP.toml"),
        ([], "sweep wants a command: all, task, status"),
    ],
)
def test_what_the_command_refuses(sweep, write, words, said):
    write("")
    code, out, err = sweep(*words)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said in err


def test_an_encoding_of_ones_own_is_found_from_anywhere(write, tmp_path, monkeypatch):
    text = (Path(share.PACKAGE) / "encodings" / "bias" / "alibi.py").read_text()
    Path("sloped.py").write_text(text)
    write('pe = "./sloped.py"\n')
    asked = cli.sheet_of(SimpleNamespace(file="SWEEP.toml", runs="runs"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    try:
        plan = cli.sweep_of(asked)
    finally:
        modules.forget("sloped")
    assert (plan.tasks[0].cfg.pe[0][0], plan.root) == ("sloped", tmp_path / "runs")


def test_the_workers_of_dask(write, sweep, monkeypatch):
    """The same table; a worker for several tasks at once is refused. Where there are none `sweep` says so,
    and gives up.
    """
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra test has it)")
    lines = TWO_STAGES.replace("[0, 1]", "0")
    alone = write(lines, "alone")
    computed(alone)
    write(lines)
    how = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "protocol": "tcp"}
    with distributed.LocalCluster(dashboard_address=":0", **how) as cluster:
        monkeypatch.setattr(lab, "MOST_ALONE", 0.1)
        code, _, err = sweep("SWEEP.toml", "--scheduler", cluster.scheduler_address)
        assert code == 1
        assert err.count("the scheduler has no workers; waiting 0 s for one\n") == 1
        assert "the scheduler has had no workers for 0 s, and what is done is kept; start some" in err
        cluster.scale(1)
        monkeypatch.setattr(lab, "MOST_ALONE", 60.0)
        code, _, err = sweep("SWEEP.toml", "--scheduler", cluster.scheduler_address)
        assert code == 0, err
        monkeypatch.setattr(distributed.Client, "nthreads", lambda self: {"one": 1, "another": 2})
        code, _, err = sweep("SWEEP.toml", "--scheduler", cluster.scheduler_address)
        assert (code, "computes 2 tasks at once" in err, err.count("\n")) == (2, True, 1), err
    assert Path("SWEEP.json").read_text() == lab.results(alone, standings(alone))[0]


def test_a_worker_elsewhere_has_the_same_code_and_folder(write, monkeypatch):
    """And asks no more whether all can be done: the memory that others take now is not theirs later."""
    plan = write("")
    sheet = cli.sheet_of(SimpleNamespace(file="SWEEP.toml", runs="runs"))
    for code in ("another", share.code()):
        with pytest.raises(Misuse, match=r"another version of peref, or no folder .*/runs"):
            cli.by_index(sheet, 1, code, 0)
    monkeypatch.setattr(cli, "refuse", None)
    plan.root.mkdir()
    cli.by_index(sheet, 1, share.code(), 0)
    assert standings(plan)[0]["state"] == "finished"


def test_a_scheduler_without_dask_or_that_is_not_there(write, sweep, monkeypatch):
    write("")
    pytest.importorskip("distributed", reason="Dask is not installed (the extra test has it)")
    code, _, err = sweep("SWEEP.toml", "--scheduler", "nowhere")
    assert (code, "no Dask scheduler answers there" in err, err.count("\n")) == (2, True, 1), err
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = sweep("SWEEP.toml", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, err.count("\n")) == (2, 1)
    assert "[cluster]" in err


def test_the_table_is_drawn_again_over_itself(write, monkeypatch, capfd):
    """As wide and high as the terminal; a line of words takes its place. Where none runs totals are all."""
    plan = write("seed = [0, 1, 2, 3, 4, 5]\n")
    monkeypatch.setattr(cli, "draws", lambda: True)
    monkeypatch.setattr(cli.os, "get_terminal_size", lambda fd: (30, 5))
    rows = [row | {"state": "running"} for row in standings(plan)]
    live = cli.Live(plan, plain=False)
    live.rows(standings(plan))
    live.rows(rows)
    live.rows(rows)
    live.line("a note")
    none, drawn = capfd.readouterr().err.split("\x1b[1F\x1b[J")
    first, again, note = drawn.split("\x1b[4F\x1b[J")
    assert (first, none) == (again, "6 new; 0 of 36 steps\n")
    assert (len(first.splitlines()), max(map(len, first.splitlines())), note) == (4, 30, "a note\n")
