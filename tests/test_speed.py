"""How benchmarks/speed.py measures: interleaved, with what others used of the CPU, without rounds that
were disturbed; medians with their range.
"""

import argparse
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from check import same_numbers

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
HERE = {"sources": "-", "versions": {"numpy": "2"}, "cpu": "-", "cores": 2, "threads": 2}


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("speed")


@pytest.fixture
def store(speed, tmp_path):
    return speed.Store(tmp_path / "speed.json")


def row(seconds, foreign=0.0, number=1, who="ours", **more):
    same = {
        "section": "train",
        "case": "alibi",
        "try": 1,
        "disturbed": foreign > 0.1,
        "peak_mib": 100 * seconds,
        "check": [1.0],
    }
    return (
        same
        | {
            "who": who,
            "round": number,
            "seconds": seconds,
            "foreign": foreign,
            "setup": HERE,
            "date": "today",
        }
        | more
    )


def asked(speed, monkeypatch, *found):
    """speed.run answers with these one after the other; gives who was run."""
    order, answers = [], iter(found)

    def run(who, arguments):
        order.append(who)
        return next(answers, {"seconds": 1.0, "foreign": 0.0, "check": [1.0], "peak_mib": 1.0})

    monkeypatch.setattr(speed, "run", run)
    return order


# ---------------------------------------------------------------- measuring


@pytest.mark.parametrize(
    ("foreign", "kept"),
    [
        ([0.0], [False]),
        ([0.5, 0.0], [True, False]),
        ([0.5, 0.11, 0.3, 0.0], [True, True, True]),
        ([None], [False]),
        ([0.1], [False]),
    ],
)
def test_a_disturbed_run_is_repeated_three_times_at_most(speed, store, monkeypatch, foreign, kept):
    """All are stored with what others used; on a system that does not say none is disturbed."""
    asked(speed, monkeypatch, *({"seconds": 1.0, "foreign": cores} for cores in foreign))
    assert speed.measure(speed.CASES[0], "ours", 1, "-", HERE, 0.1, speed.TRIES, store)
    assert [(r["foreign"], r["disturbed"]) for r in store.rows] == list(zip(foreign, kept, strict=False))
    assert speed.Store(store.path).rows == store.rows


def test_a_run_that_fails_is_stored_and_fails_the_command(speed, store, monkeypatch):
    asked(speed, monkeypatch, {"error": "no room"})
    assert not speed.measure(speed.CASES[0], "ours", 1, "-", HERE, 0.1, 3, store)
    assert [r["error"] for r in store.rows] == ["no room"]


def options(**given):
    return argparse.Namespace(
        **{"rounds": 3, "quick": False, "key": False, "guard": False, "threads": 2, "limit": 0.1, **given}
    )


def test_everybody_takes_turns_in_an_order_that_rotates(speed, store, monkeypatch):
    """A round is one run of each case by each; who is first is another in the next. What was measured of
    the same sources stays.
    """
    case = speed.Case("train", "alibi", "train", ("ours", "torch", "jax"))
    monkeypatch.setattr(speed, "CASES", [case])
    order = asked(speed, monkeypatch)
    assert speed.measure_section("train", options(), HERE, store)
    assert order == ["ours", "torch", "jax", "torch", "jax", "ours", "jax", "ours", "torch"]
    assert [r["round"] for r in store.rows] == [1] * 3 + [2] * 3 + [3] * 3
    order.clear()
    assert speed.measure_section("train", options(rounds=4), HERE, store)
    assert order == ["ours", "torch", "jax"]
    order.clear()
    assert speed.measure_section("train", options(rounds=1), HERE | {"sources": "other"}, store)
    assert order == ["ours", "torch", "jax"]


def test_a_section_whose_time_is_over_ends_with_its_round(speed, store, monkeypatch):
    monkeypatch.setattr(speed, "CASES", [speed.Case("train", "alibi", "train", ("ours", "torch"))])
    monkeypatch.setitem(speed.BUDGET, "train", 0)
    order = asked(speed, monkeypatch, *[{"seconds": 1.0, "foreign": 1.0}] * 9)
    assert speed.measure_section("train", options(), HERE, store)
    assert order == ["ours", "torch"]


def test_what_others_use_is_measured(monkeypatch):
    """A second process that computes is seen, and one of our own is not."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    measure = import_module("measure")
    if not Path("/proc/stat").exists():
        pytest.skip(reason="this system does not say what others use")
    monkeypatch.setattr(measure, "busy_seconds", lambda: 100.0 + measure.own_seconds())
    of_children = lambda: measure.own_seconds() - time.process_time()
    others, before = measure.Others(), of_children()
    child = subprocess.Popen([sys.executable, "-c", "for n in range(10**9): pass"])
    while of_children() - before < 0.1 and child.poll() is None:
        time.sleep(0.01)
    assert child.poll() is None  # it still runs, and its time is known
    child.kill()
    child.wait()
    assert others.cores() < 0.1  # clocks tick 100 times a second
    others.began -= 100  # long ago beside what this process may be kept from computing between two lines
    monkeypatch.setattr(
        measure,
        "busy_seconds",
        lambda: 100.0 + measure.own_seconds() + 2 * (time.perf_counter() - others.began),
    )
    same_numbers(others.cores(), 2.0, 0.1)


# ---------------------------------------------------------------- figures


def test_of_a_round_the_least_disturbed_run_counts(speed, store):
    store.rows = [
        row(3, 0.5),
        row(2, 0.2),
        row(9, 0.3),
        row(5, 0.0, number=2),
        {**row(1, number=3), "error": "no room"},
    ]
    assert {n: r["seconds"] for n, r in speed.best(store, "train", "alibi", "ours").items()} == {1: 2, 2: 5}


def test_a_figure_is_the_median_of_undisturbed_rounds_with_their_range(speed):
    found = speed.over_rounds([(2.0, False), (9.0, True), (3.0, False), (4.0, False)])
    assert (found.median, found.least, found.most, found.rounds, found.clean) == (3.0, 2.0, 4.0, 3, True)
    found = speed.over_rounds([(9.0, True), (7.0, True)])
    assert (found.median, found.clean, str(found)) == (8.0, False, "8.00 (disturbed)")
    assert speed.over_rounds([]) is None


def test_a_ratio_is_of_runs_of_one_round(speed, store):
    """Rounds that only one of both has do not count, and a round is disturbed where either run was."""
    store.rows = [
        row(1),
        row(3, who="torch"),
        row(2, number=2),
        row(8, who="torch", number=2),
        row(100, number=3),
        row(1, who="torch", number=4),
    ]
    found = speed.figure(store, "train", "alibi", "torch", "speed")
    assert (found.median, found.least, found.most, found.rounds) == (3.5, 3, 4, 2)
    same_numbers(speed.figure(store, "train", "alibi", "torch", "memory").median, (1 / 3 + 1 / 4) / 2, 1e-15)
    store.rows[1] |= {"disturbed": True, "foreign": 0.4}
    assert speed.figure(store, "train", "alibi", "torch", "speed").median == 4
    assert speed.figure(store, "train", "t5", "torch", "speed") is None


def test_goals_are_met_or_missed_and_disturbed_ones_are_neither(speed, store):
    goal = speed.Goal("a step", "train", "alibi", "torch", "speed", 1.5, 2)
    assert [speed.mark(ratio, goal) for ratio in (1.4, 1.5, 2)] == ["missed", "met", "met, aim too"]
    less = speed.Goal("memory", "train", "alibi", "torch", "memory", 0.65, 0.5)
    assert [speed.mark(ratio, less) for ratio in (0.66, 0.65, 0.5)] == ["missed", "met", "met, aim too"]
    store.rows = [row(1), row(1.8, who="torch")]
    begin = "| training step, ALiBi | torch eager | 1.8x | 1.8x to 1.8x, 1 |"
    assert f"{begin}  | 1.75x | 2x | met |" in speed.goals_table(store)
    store.rows[0] |= {"operations": 4e11, "peaks": {"sgemm": 800.0, "fma": 1000.0}}
    assert f"{begin} 50 % | 1.75x | 2x | met |" in speed.goals_table(store)
    assert "| 50 % | 40 % |" in speed.section_table(store, "train")
    assert "| 28 % | 22 % |" in speed.section_table(store, "train")  # torch's, of the same peak
    store.rows[0] |= {"disturbed": True, "foreign": 0.4}
    assert "| 1.75x | 2x | disturbed |" in speed.goals_table(store)
    for each in store.rows:
        each["setup"] = HERE | {"cpu": "a laptop, AVX2"}
    assert "| 1.5x | 2x | disturbed |" in speed.goals_table(store)


def test_every_goal_is_of_something_that_is_measured(speed):
    cases = {(case.section, case.name): case.whos for case in speed.CASES}
    assert all(goal.peer in cases[goal.section, goal.case] for goal in speed.GOALS)
    assert {case.section for case in speed.CASES} == set(speed.BUDGET) == set(speed.TITLES)
    assert {goal.case for goal in speed.GOALS if goal.section == "train"} == set(speed.ENCODINGS)


def test_results_that_differ_fail_the_command(speed, store, monkeypatch, tmp_path):
    """As far as two may round differently they agree."""
    store.rows = [row(1), row(2, who="torch", check=[1.0005])]
    store.save()
    store.rows[0]["check"] = [1.0, 1.0]
    for check, code in ((1.0005, 0), (1.002, 1), (float("nan"), 1)):
        store.rows[1]["check"] = [1.0, check]
        store.save()
        monkeypatch.setattr(sys, "argv", ["speed.py", "--tables", "--results", str(tmp_path)])
        with pytest.raises(SystemExit) as left:
            speed.main()
        assert left.value.code == code
    text = (tmp_path / "speed.md").read_text()
    assert "times as slow as peref" in text
    assert "| 1.75x | 2x | results differ |" in text


# ---------------------------------------------------------------- the guard


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (0.8, 0), (1.08, 0), (1.15, 1)])
def test_the_guard_fails_on_a_slowdown_of_15_percent(speed, monkeypatch, tmp_path, capsys, slower, code):
    """Of one case, ours alone; the ratios are those of the same processor, threads and torch."""
    monkeypatch.setattr(speed, "RESULTS", tmp_path)
    there = HERE | {"versions": {"torch": "2"}}
    committed = speed.Store(tmp_path / "kind" / "speed.json")
    for number in (1, 2, 3):
        for case in ("alibi", "t5"):
            same = {"number": number, "case": case, "setup": there}
            committed.add(row(1, **same))
            committed.add(row(1.6, who="torch", **same))
    committed.add(row(1, number=4, setup=there | {"cpu": "another"}))
    committed.add(row(9, who="torch", number=4, setup=there | {"cpu": "another"}))

    def measured(options, here, store):
        store.rows = [{**r, "setup": here} for r in committed.rows[:-2]]
        for r in store.rows:
            if r["who"] == "ours" and r["case"] == "alibi":
                r["seconds"] *= slower
        return True

    monkeypatch.setattr(speed, "measure_sections", measured)
    assert speed.guard(options(), there) == code
    said = capsys.readouterr().out
    assert ("train, alibi: 1.39x torch eager, committed 1.60x, TOO SLOW" in said) == bool(code)
    assert "train, t5: 1.60x torch eager, committed 1.60x\n" in said
    assert speed.guard(options(), there | {"threads": 3}) == 2
    assert "no ratios are committed of -, 3 threads, torch 2" in capsys.readouterr().out


def test_the_guard_measures_ours_and_torch_in_the_key_cases(speed, store, monkeypatch):
    order = asked(speed, monkeypatch)
    assert speed.measure_section("train", options(rounds=1, guard=True), HERE, store)
    assert order == ["ours", "torch"] * 3
    assert {(r["section"], r["case"]) for r in store.rows} == {k for k in speed.KEY if k[0] == "train"}
    assert {(case.section, case.name) for case in speed.CASES} >= speed.KEY


# ---------------------------------------------------------------- what is committed


def committed(speed, name):
    return speed.Store(BENCHMARKS / "results" / name / "speed.json")


@pytest.mark.parametrize("name", ["zen4", "zen4-key", "zen4-avx2"])
def test_the_committed_tables_are_those_of_the_committed_runs(speed, name):
    store = committed(speed, name)
    assert store.path.with_name("speed.md").read_text() == speed.document(store)


@pytest.mark.parametrize("name", ["zen4-key", "zen4-avx2"])
def test_the_page_says_what_was_measured(speed, name):
    """Its table is the one that speed.py prints of these runs."""
    assert (
        f"\n\n{speed.goals_table(committed(speed, name))}\n"
        in (BENCHMARKS.parent / "docs" / "speed.md").read_text()
    )
