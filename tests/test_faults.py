"""A sample of each campaign of benchmarks/faults: nothing is lost, believed unread or written elsewhere, and
with a guard away the same sample finds it.
"""

import random
from importlib import import_module
from types import SimpleNamespace

import pytest

from benchmarks.faults import BACKENDS, ROOT, fuzzed, noticed, tried
from benchmarks.faults import __main__ as command
from benchmarks.faults.__main__ import recorded, table
from benchmarks.faults.linked import OF_FILES
from peref.__main__ import ENDING
from peref.cli.signals import SIGNAL_WORDS
from peref.golden.spec import checksums

DRAWN = {"poisoned": 6, "linked": 60, "metrics": 13, "sealed": 40}  # cases each
CHOSEN = {
    "storage": [
        ("stopped", "numpy", "killed before it", "replace", 1),
        ("stopped", "numpy", "killed after it", "replace", 0),
        ("stopped", "numpy", "killed half-way", "write", 37),
        ("stopped", "numpy", "a short write", "write", 37),
        ("stopped", "numpy", "a short write", "write", 6),  # a checkpoint, of who writes at once
        ("stopped", "numpy", "no space", "write", 36),
        ("stopped", "numpy", "no rights", "open", 80),
        ("new", "numpy", "I/O error", "fsync", 9),
        ("stopped", "numpy", "I/O error, though done", "unlink", 4),
        ("damaged", "numpy", "killed before it", "replace", 1),
    ],
    "flipped": [
        ("run", "run/ckpt/00000012.safetensors", 6000, 60),
        ("run", "run/ckpt/00000012.safetensors", 60000, 60),
        ("run", "run/run.json", 500, 60),
        ("run", "run/metrics.jsonl", 700, 60),
        *(("golden", f"sincos_2d/{name}", 999, 20) for name in checksums.FILES),
    ],
    "fuzzed": [
        ("sweeps", False, 590161973, 10),
        ("tokenizer", False, 769924810, 16),
        *((name, False, 0, 25) for name in fuzzed.READERS),
        *((name, True, 0, 1) for name in fuzzed.WHOLE if name != "texts"),
        ("config.json", False, 646, 1),  # a head of 5 * 10^9 channels
        ("config.json", False, 778, 1),  # 10^10 layers or more
    ],
    "shared": [("writers", "numpy", seed) for seed in (0, 1, 5)],  # 0.1, 0 and 0.5 s until the winner signs
    "killed": [("text", "numpy", 2, n) for n in range(20)],
    "repeated": [("numba", (2, 1), 7, "tr_TR.UTF-8", "Asia/Kathmandu", ("rope",))],
    "power": [("new", "numpy", cut, kept, 0) for cut in (0.16, 0.3, 0.5, 0.99) for kept in (0.0, 0.5, 1.0)],
}
COMPILED = ("no digest of kernels",)  # test_kept has one
IN_PROCESS = {name: import_module(f"benchmarks.faults.{name}") for name in (*DRAWN, *CHOSEN)}
STOPPED = import_module("benchmarks.faults.stopped")


def sample(name):
    """Its cases; of the links those that a training meets."""
    if name in CHOSEN:
        return [IN_PROCESS[name].Case(*one) for one in CHOSEN[name]]
    cases = IN_PROCESS[name].cases(random.Random(0), DRAWN[name])
    return [case for case in cases if name != "linked" or case.command == "train"]


@pytest.mark.parametrize("name", IN_PROCESS)
def test_no_case_has_a_fault(name):
    cases = sample(name)[: 2 if name == "killed" else None]  # the moments of a mutant's kills vary
    found = {str(case): words for case in cases if (words := tried(IN_PROCESS[name].fault, case))}
    assert found == {}


@pytest.mark.parametrize(
    ("name", "mutant"), [(n, m) for n in IN_PROCESS for m in IN_PROCESS[n].MUTANTS if m not in COMPILED]
)
def test_a_guard_that_is_away_is_noticed(name, mutant):
    assert noticed(IN_PROCESS[name].fault, sample(name), IN_PROCESS[name].MUTANTS[mutant])


def test_the_page_has_the_table_of_what_was_done():
    """`python -m benchmarks.faults` prints it."""
    assert table(recorded()) in (ROOT / "docs" / "reliability.md").read_text()


def test_a_fault_stays_in_the_table_with_what_was_done_since():
    runs = [{"done": {"writers": 160}, "faults": 2, "mutants": ["no lock is taken"]}]
    runs += [{"done": {"writers": 96}, "faults": 0, "mutants": []}] * 2
    assert "| 2; none in 192 since | 1 of 2 |" in table({"shared": runs})


def test_a_campaign_of_every_case_goes_on_where_it_was_left(monkeypatch):
    """From the last to the first; so a case is asked that came behind the mark, where others were asked."""
    done, there = [], [*range(5)]
    every = SimpleNamespace(
        COUNT=2,
        EVERY=True,
        cases=lambda draw, count: draw.sample(there, len(there)),
        fault=lambda case, folder, mutant: done.append(case) or "",
    )
    monkeypatch.setattr(command, "campaign_of", lambda name: every)
    after = ""
    for _ in range(2):
        run, drawn = command.gone_on("", 0, after, None, 1)
        assert (len(drawn), run["of"], run["done"]) == (2, 5, {"cases": 2})
        after = run["until"]
    assert len(set(done)) == 4
    there.append(next(n for n in range(5, 99) if command.digest_of(n) < after))
    for _ in range(2):
        after = command.gone_on("", 0, after, None, 1)[0]["until"]
    assert set(done) == {*there}
    assert done[4] not in done[:4]


def test_every_signal_and_reader_is_there():
    """The campaign has each with each."""
    cases = STOPPED.cases(random.Random(0), 576)
    assert {(case.number, case.reader) for case in cases} >= {(n, r) for n in ENDING for r in STOPPED.READERS}
    assert {(c.work, c.backend) for c in cases} == {
        (work, be) for work in STOPPED.WORK for be in BACKENDS
    } - {("compiling", "numpy")}
    assert set(STOPPED.SIGNALS) == set(SIGNAL_WORDS) == set(ENDING)


def test_every_number_of_threads_is_there():
    cases = IN_PROCESS["repeated"].cases(random.Random(0), 16)
    assert {case.threads[0] for case in cases if case.backend == "numba"} == {*range(1, 9)}


def test_the_links_are_all_there():
    """Every kind of thing at every file of a run, and links at every folder, with every command."""
    assert len(IN_PROCESS["linked"].cases(random.Random(0), 0)) == 3 * (5 * len(OF_FILES) + 5)


@pytest.mark.parametrize(
    ("number", "reader"),
    [
        (2, "leaves first"),
        (15, "left before"),
        (1, "never reads"),
        (15, "slow"),
        (10, "full disk"),
        (24, "closed"),
        (0, "left before"),
    ],
)
def test_a_signal_loses_no_step_whoever_reads(number, reader):
    assert tried(STOPPED.fault, STOPPED.Case(number, reader, 20)) == ""


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        ("the handler writes whatever may come", (15, "left before")),
        ("a progress line may fail", (0, "left before")),
        ("only two signals are minded", (1, "reads")),
        ("who does not read is waited for", (1, "never reads")),
        ("the last line waits for who reads", (15, "never reads")),
    ],
)
def test_a_guard_of_signals_that_is_away_is_noticed(mutant, case, monkeypatch):
    """In a training that saves no step by itself: one would hide that no signal has saved it."""
    monkeypatch.setattr(STOPPED, "PATIENCE", 2)
    monkeypatch.setattr(STOPPED, "TRAIN", [*STOPPED.TRAIN, "--save-every", "80"])
    assert tried(STOPPED.fault, STOPPED.Case(*case, 12), STOPPED.MUTANTS[mutant])


def test_a_signal_while_llvm_links_is_noticed_where_what_it_interrupts_is_freed():
    case = STOPPED.Case(24, "reads", 9, 0.0, "numba", "compiling")
    assert tried(STOPPED.fault, case, STOPPED.MUTANTS["what was interrupted is freed"])
