"""How fast and how large peref is beside torch, torch.compile and JAX: same model, same work, same threads,
interleaved on one machine.

    pip install -e '.[bench]'
    python benchmarks/speed.py [--only NAME ...] [--rounds 3] [--threads 2] [--quick] [--resume] [--key]
    python benchmarks/speed.py --avx2 --results FOLDER      everybody held to AVX2 where there is AVX-512
    python benchmarks/speed.py --guard                      our speed against the committed ratios

About 25 minutes, 5 with --quick, on a machine that does nothing else. Every measurement is a process of its
own (measure.py for us, peers.py for them), one after the other, in an order that rotates from round to round.
Ratios are of runs of one round; the tables have their median over the rounds and their range. Each run
records how much CPU others used meanwhile: above --limit cores it is dropped and repeated, at most three
times, and what stays disturbed counts only where there is nothing better, and is marked.

Shares of the peak are those of NumPy's sgemm on all threads in our own process, right after the work, so
that a figure means the same on every processor.

--guard measures the key cases beside torch eager and compares each ratio with the one that is committed of
the same kind of processor, threads and torch. Exit code 1 where one is below SLOWER of it, 2 where none is
committed. It writes no results.

Results: benchmarks/results/speed.json (every run, also those dropped) and speed.md (the tables, with what
must be reached and what is aimed at). Sections that are not asked for keep the rows they have. --resume keeps
rows of the same sources, versions, machine and settings, so that a measurement that was stopped goes on. A
section whose time is over ends with the round it is in. Exit code 1 when a run failed or results of ours and
a peer's differ.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
TRIES, TIMEOUT = 3, 400
SLOWER = 0.9  # of a committed ratio: a slowdown by 15 % leaves 0.87
TOLERANCE = 1e-3  # relative, of results that must agree
OURS, EAGER, COMPILED, EMBEDDING, JAX = "ours", "torch", "torch-compile", "torch-embedding", "jax"
NAMES = {
    OURS: "peref",
    EAGER: "torch eager",
    COMPILED: "torch.compile",
    EMBEDDING: "torch, F.embedding",
    JAX: "JAX jit",
}
HELD = {  # what holds the peers to AVX2
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
# seconds of a section
BUDGET = {
    "train": 600,
    "train256": 140,
    "eval": 200,
    "attention": 130,
    "rope": 110,
    "start": 250,
    "decode": 100,
}
TITLES = {
    "train": "Training step, width 128, 4 layers, 4 heads, 8 x 512",
    "train256": "Training step, width 256, 6 layers, 8 heads, 4 x 512",
    "eval": "Loss of 8,192 tokens, where nothing else is said, without gradients, "
    "width 128, 4 layers, batch 1",
    "attention": "Attention alone, forward and backward, with ALiBi's table; 4 heads of 32",
    "rope": "Rotation of [1,32,4096,128], halves",
    "start": "From the start of a process to the end of its first step "
    "(training, ALiBi, default Llama shape)",
    "decode": "1,000 tokens one at a time through the cache, width 128, 4 layers, batch 1 where nothing else "
    "is said",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is measured of everybody in `whos`: arguments of measure.py and peers.py."""

    section: str
    name: str
    arguments: str
    whos: tuple[str, ...] = (OURS, EAGER)


SMALL, WIDE = "--width 128 --layers 4 --heads 4", "--width 256 --layers 6 --heads 8"
ALL = (OURS, EAGER, COMPILED, JAX)
WHOS = {"alibi": ALL, "t5": (OURS, EAGER, EMBEDDING, COMPILED, JAX)}
ENCODINGS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5", "learned_bias")
CASES = [
    *(Case("train", pe, f"train --pe {pe} {SMALL}", WHOS.get(pe, (OURS, EAGER))) for pe in ENCODINGS),
    *(
        Case("train", f"{pe}, Llama shape", f"train --pe {pe} {SMALL} --shape llama")
        for pe in ("alibi", "rope")
    ),
    *(Case("train256", pe, f"train --pe {pe} {WIDE} --batch 4") for pe in ("alibi", "t5")),
    Case("eval", "alibi", f"eval --pe alibi {SMALL} --batch 1 --len 8192 --least 2 --warm 1"),
    Case(
        "eval",
        "t5",
        f"eval --pe t5 {SMALL} --batch 1 --len 8192 --least 2 --warm 1",
        (OURS, EAGER, EMBEDDING),
    ),
    Case(
        "eval",
        "alibi, 131,072 tokens",
        f"eval --pe alibi {SMALL} --batch 1 --len 131072 --least 1 --warm 0",
        (OURS,),
    ),
    *(
        Case("attention", f"{b} x {n}", f"attention --width 128 --heads 4 --batch {b} --len {n}")
        for b, n in ((8, 512), (1, 2048), (1, 8192))
    ),
    Case(
        "rope", "into an output that is there", "rope --pe rope --width 4096 --heads 32 --batch 1 --len 4096"
    ),
    Case(
        "rope",
        "as users call it",
        "rope --pe rope --width 4096 --heads 32 --batch 1 --len 4096 --allocate",
        ALL,
    ),
    Case("start", "warm", f"start {SMALL} --shape llama", ALL),
    Case("start", "nothing compiled", f"start {SMALL} --shape llama --cold", (OURS, COMPILED)),
    Case("start", "warmup, nothing compiled", "warmup", (OURS,)),
    *(
        Case("decode", pe, f"decode --pe {pe} {SMALL} --batch 1 --len 1000 --least 2 --warm 0")
        for pe in ("alibi", "rope")
    ),
    Case("decode", "rope, batch of 8", f"decode --pe rope {SMALL} --batch 8 --len 1000 --least 2 --warm 0"),
]
KEY = {  # what --key and --guard measure
    *(("train", pe) for pe in ("alibi", "rope", "t5")),
    *(("train256", pe) for pe in ("alibi", "t5")),
    ("eval", "t5"),
    *(("decode", of) for of in ("rope", "rope, batch of 8")),
}


@dataclass(frozen=True)
class Goal:
    """A figure of the project. kind: "speed", how many times faster, at least; "memory", our peak over
    theirs, at most; "seconds", and "compiling", which is what a cold start takes longer than a warm one,
    at most. `avx2`: what must be reached with AVX2 alone, where that is another figure.
    """

    what: str
    section: str
    case: str
    peer: str
    kind: str
    must: float
    aim: float | None = None
    avx2: float | None = None


GOALS = [
    *(
        Goal("training step, ALiBi", "train", "alibi", *of)
        for of in ((EAGER, "speed", 1.75, 2, 1.5), (COMPILED, "speed", 1.7, 1.9), (JAX, "speed", 4.2, 5))
    ),
    *(
        Goal(f"training step, {title}", "train", pe, EAGER, "speed", must, aim, avx2)
        for pe, title, must, aim, avx2 in (
            ("rope", "RoPE", 1.75, 2, 1.6),
            ("sinusoidal", "sinusoidal", 1.4, 1.9, None),
        )
    ),
    Goal("training step, T5", "train", "t5", EAGER, "speed", 2.7, 3.2, 2.3),
    Goal("training step, T5", "train", "t5", EMBEDDING, "speed", 2.4, 3.2),
    Goal("training step, T5", "train", "t5", COMPILED, "speed", 2.1, 2.8),
    Goal("training step, T5", "train", "t5", JAX, "speed", 5, 6.5),
    *(
        Goal(f"training step, {pe.replace('_', ' ')}", "train", pe, EAGER, "speed", 1)
        for pe in ("none", "learned", "learned_bias")
    ),
    Goal("peak memory of the training step, ALiBi", "train", "alibi", EAGER, "memory", 0.65, 0.5),
    Goal("training step, width 256, ALiBi", "train256", "alibi", EAGER, "speed", 1.5, 1.8),
    Goal("training step, width 256, T5", "train256", "t5", EAGER, "speed", 2.1, 2.5),
    Goal("evaluation at 8192, ALiBi", "eval", "alibi", EAGER, "speed", 3.4, 5),
    Goal("its peak memory", "eval", "alibi", EAGER, "memory", 1 / 6, 1 / 8),
    Goal("evaluation at 8192, T5", "eval", "t5", EAGER, "speed", 5, 7),
    Goal("its peak memory", "eval", "t5", EAGER, "memory", 0.12, 0.08),
    Goal("evaluation at 8192, T5", "eval", "t5", EMBEDDING, "speed", 5, 7),
    Goal("its peak memory", "eval", "t5", EMBEDDING, "memory", 1 / 10, 1 / 12),
    *(
        Goal(f"attention alone, {case}", "attention", case, EAGER, "speed", must, aim)
        for case, must, aim in (("8 x 512", 2.1, 2.6), ("1 x 2048", 2.6, 3.2), ("1 x 8192", 2.8, 6))
    ),
    Goal("RoPE into an output that is there", "rope", "into an output that is there", EAGER, "speed", 3, 5),
    Goal("compiling what training with ALiBi needs", "start", "nothing compiled", OURS, "compiling", 8, 6),
    Goal("warmup", "start", "warmup, nothing compiled", OURS, "seconds", 60, 30),
    Goal("warm start to the end of the first step", "start", "warm", OURS, "seconds", 2, 1.2),
    *(
        Goal(f"decoding, {title}", "decode", case, EAGER, "speed", must, aim)
        for case, title, must, aim in (
            ("alibi", "ALiBi", 2, 5),
            ("rope", "RoPE", 3, 5),
            ("rope, batch of 8", "RoPE, batch of 8", 2, 4),
        )
    ),
]


# ---------------------------------------------------------------- what is measured on


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The model of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = (
        dict(line.split(":", 1) for line in path.read_text().split("\n\n")[0].splitlines() if ":" in line)
        if path.exists()
        else {}
    )
    facts = {name.strip(): text.strip() for name, text in lines.items()}
    width = next(
        (
            f", {title}"
            for flag, title in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
            if flag in facts.get("flags", "").split()
        ),
        "",
    )
    family = f" (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts else ""
    held = ", held to AVX2" if os.environ.get("ATEN_CPU_CAPABILITY") == "avx2" else ""
    return f"{facts.get('model name', platform.machine())}{family}{width}{held}"


def hold_to_avx2() -> None:
    """This process's children, ours and the peers', as on a processor without AVX-512."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from without_avx512 import in_use

    os.environ.update(HELD | in_use())


PACKAGES = ("peref", "numba", "numpy", "torch", "jax")


def setup(threads: int, packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """What a figure depends on: sources, versions, machine."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "peref").rglob("*.py"), HERE / "measure.py", HERE / "peers.py"]):
        digest.update(path.read_bytes())
    return {
        "sources": digest.hexdigest()[:12],
        "versions": {"python": platform.python_version()} | {name: installed(name) for name in packages},
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": threads,
    }


# ---------------------------------------------------------------- measuring


class Store:
    """Rows in speed.json, written after each of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = json.loads(path.read_text())["rows"] if path.exists() else []

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        lines = ",\n".join("  " + json.dumps(row) for row in self.rows)
        new.write_text(f'{{"rows": [\n{lines}\n]}}\n')
        new.replace(self.path)

    def keep(self, wanted: Callable[[Row], bool]) -> None:
        self.rows = [row for row in self.rows if wanted(row)]

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.save()

    def find(self, **facts: Any) -> list[Row]:
        return [row for row in self.rows if all(row.get(name) == fact for name, fact in facts.items())]


def run(who: str, arguments: str) -> Row:
    """One process: what it measured, or {"error": its last words}."""
    script = ["measure.py"] if who == OURS else ["peers.py"]
    peer = [] if who == OURS else ["--peer", who]
    command = [sys.executable, str(HERE / script[0]), *arguments.split(), *peer]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {TIMEOUT} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    return json.loads(lines[-1])


def measure(
    case: Case,
    who: str,
    number: int,
    arguments: str,
    here: dict[str, Any],
    limit: float,
    tries: int,
    store: Store,
) -> bool:
    """Run it until it was undisturbed, `tries` times at most; every run is stored. Returns whether one
    succeeded.
    """
    for attempt in range(1, tries + 1):
        found = run(who, arguments)
        disturbed = (found.get("foreign") or 0) > limit
        facts = {
            "section": case.section,
            "case": case.name,
            "who": who,
            "round": number,
            "try": attempt,
            "disturbed": disturbed,
        }
        store.add(
            facts
            | found
            | {"arguments": arguments, "date": time.strftime("%Y-%m-%d %H:%M:%S"), "setup": here}
        )
        shown = found.get("error") or (
            f"{duration(found['seconds'])}, others' CPU "
            f"{found['foreign']}{', disturbed' if disturbed else ''}"
        )
        print(f"  {case.section:9} {case.name:29} {NAMES[who]:14} {shown}", flush=True)
        if "error" in found:
            return False
        if not disturbed:
            break
    return True


def measure_section(section: str, options: argparse.Namespace, here: dict[str, Any], store: Store) -> bool:
    """All rounds of a section, or as many as its time allows."""
    began, fine = time.perf_counter(), True
    for number in range(1, options.rounds + 1):
        before = time.perf_counter()
        for case in (c for c in CASES if c.section == section):
            if (options.key or options.guard) and (section, case.name) not in KEY:
                continue
            whos = [
                who
                for who in case.whos
                if not (options.quick and who == COMPILED and "--cold" in case.arguments)
                and not (options.guard and who not in (OURS, EAGER))
            ]
            turn = (number - 1) % len(whos)
            extra = " --seconds 1.5" if options.quick else ""
            arguments = (
                f"{case.arguments}{extra if case.section != 'start' else ''} --threads {options.threads}"
            )
            for who in whos[turn:] + whos[:turn]:
                same = {
                    "section": section,
                    "case": case.name,
                    "who": who,
                    "round": number,
                    "arguments": arguments,
                    "setup": here,
                    "disturbed": False,
                }
                if any("error" not in row for row in store.find(**same)):
                    continue
                tries = TRIES if time.perf_counter() - began < BUDGET[section] else 1
                fine &= measure(case, who, number, arguments, here, options.limit, tries, store)
        now = time.perf_counter()
        if number < options.rounds and now - began + 0.7 * (now - before) > BUDGET[section]:
            print(f"  {section}: its time is over after {number} of {options.rounds} rounds")
            break
    return fine


def measure_sections(options: argparse.Namespace, here: dict[str, Any], store: Store) -> bool:
    """All that is asked for, with kernels compiled before."""
    fine, warmup = True, [sys.executable, str(ROOT / "cli.py"), "warmup", "--json"]
    subprocess.run(warmup, check=True, capture_output=True)
    for section in BUDGET:
        if section in options.only:
            print(TITLES[section], flush=True)
            fine &= measure_section(section, options, here, store)
    return fine


# ---------------------------------------------------------------- tables


def duration(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def best(store: Store, section: str, case: str, who: str) -> dict[int, Row]:
    """Round -> its least disturbed run."""
    found: dict[int, Row] = {}
    for row in store.find(section=section, case=case, who=who):
        if "error" not in row and (
            row["round"] not in found or (row["foreign"] or 0) < (found[row["round"]]["foreign"] or 0)
        ):
            found[row["round"]] = row
    return found


@dataclass(frozen=True)
class Figure:
    """A median over the rounds and its range. `clean`: from undisturbed runs only."""

    median: float
    least: float
    most: float
    rounds: int
    clean: bool

    def __str__(self) -> str:
        return f"{self.median:.2f}{'' if self.clean else ' (disturbed)'}"

    def percent(self) -> str:
        return f"{100 * self.median:.0f} %"


def over_rounds(pairs: Iterable[tuple[float, bool]]) -> Figure | None:
    """The figure of (value, disturbed) of each round; undisturbed ones where there are any."""
    known = list(pairs)
    clean = [value for value, disturbed in known if not disturbed]
    values = clean or [value for value, _ in known]
    return (
        Figure(statistics.median(values), min(values), max(values), len(values), bool(clean))
        if values
        else None
    )


def figure(store: Store, section: str, case: str, peer: str, kind: str) -> Figure | None:
    """The figure that a goal of this kind asks for; None where nothing was measured."""
    ours = best(store, section, case, OURS)
    if kind == "seconds":
        return over_rounds(
            (row["seconds"], row["disturbed"]) for row in best(store, section, case, peer).values()
        )
    theirs = best(store, section, "warm", OURS) if kind == "compiling" else best(store, section, case, peer)
    of = {
        "speed": lambda a, b: b["seconds"] / a["seconds"],
        "memory": lambda a, b: a["peak_mib"] / b["peak_mib"],
        "compiling": lambda a, b: a["seconds"] - b["seconds"],
    }[kind]
    both = [(ours[n], theirs[n]) for n in sorted(ours) if n in theirs]
    if kind == "memory" and any(row.get("peak_mib") is None for pair in both for row in pair):
        return None
    return over_rounds((of(a, b), a["disturbed"] or b["disturbed"]) for a, b in both)


def mark(value: float, goal: Goal) -> str:
    reached = (lambda limit: value >= limit) if goal.kind == "speed" else (lambda limit: value <= limit)
    if goal.aim is not None and reached(goal.aim):
        return "met, aim too"
    return "met" if reached(goal.must) else "missed"


def goals_of(store: Store) -> list[Goal]:
    """The goals of the processor that was measured on."""
    narrow = all(row["setup"]["cpu"].endswith("AVX2") for row in store.rows)
    return [replace(g, must=g.avx2) if narrow and g.avx2 is not None else g for g in GOALS]


def share(store: Store, section: str, case: str, who: str, of: str = "sgemm") -> Figure | None:
    """Of the machine's peak in our run of the same round, what the products of the work reach."""
    ours, theirs = best(store, section, case, OURS), best(store, section, case, who)
    return over_rounds(
        (
            1e-9 * ours[n]["operations"] / row["seconds"] / ours[n]["peaks"][of],
            row["disturbed"] or ours[n]["disturbed"],
        )
        for n, row in theirs.items()
        if "peaks" in ours.get(n, ())
    )


def slowed(now: Store, committed: Store) -> tuple[list[str], bool]:
    """A line for each key ratio to torch eager that both stores have, and whether all are fast enough."""
    lines, fine = [], True
    for section, case in sorted(KEY):
        found, before = (figure(store, section, case, EAGER, "speed") for store in (now, committed))
        if found and before:
            slow = found.median < SLOWER * before.median
            fine &= not slow
            lines.append(
                f"{section}, {case}: {found.median:.2f}x torch eager, committed {before.median:.2f}x"
                f"{', TOO SLOW' if slow else ''}"
            )
    return lines, fine


def committed_of(here: dict[str, Any]) -> Store:
    """The newest committed rows of the same kind of processor, threads and torch, if there are such."""
    kind = lambda of: (of["cpu"], of["threads"], of["versions"].get("torch"))
    found = [Store(path) for path in sorted(RESULTS.rglob("speed.json"))]
    for store in found:
        store.rows = [row for row in store.rows if kind(row["setup"]) == kind(here)]
    newest = lambda store: max((row["date"] for row in store.rows), default="")
    return max(found, key=newest, default=Store(RESULTS / "none"))


def table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def goals_table(store: Store) -> str:
    rows = []
    for goal in goals_of(store):
        found = figure(store, goal.section, goal.case, goal.peer, goal.kind)
        if found is None:
            continue
        unit = {"speed": "x", "memory": "", "seconds": " s", "compiling": " s"}[goal.kind]
        show = lambda number, unit=unit: "" if number is None else f"{number:.3g}{unit}"
        against = "" if goal.peer == OURS else NAMES[goal.peer]
        spread = f"{show(found.least)} to {show(found.most)}, {found.rounds}"
        reached = mark(found.median, goal) if found.clean else "disturbed"
        case = next(c for c in CASES if (c.section, c.name) == (goal.section, goal.case))
        if differs(deviation(store, case, goal.peer)):
            reached = "results differ"
        peak = share(store, goal.section, goal.case, OURS) if goal.kind == "speed" else None
        cells = [show(found.median), spread, peak.percent() if peak else "", show(goal.must), show(goal.aim)]
        rows.append([goal.what, against, *cells, reached])
    head = ["what", "against", "measured", "range, rounds", "of sgemm", "must", "aim", ""]
    return table(head, rows) if rows else ""


def differs(off: float | None) -> bool:
    return off is not None and not off <= TOLERANCE


def deviation(store: Store, case: Case, peer: str) -> float | None:
    """The largest relative difference between numbers that must agree: losses of the first steps, sizes of
    gradients, ...

    Of encodings whose parameters we give learning rates of their own, only the loss of the first step.
    """
    ours, theirs = best(store, case.section, case.name, OURS), best(store, case.section, case.name, peer)
    pairs = [
        (a, b)
        for n in ours
        if n in theirs
        for a, b in zip(ours[n]["check"], theirs[n]["check"], strict=False)
    ]
    if case.section.startswith("train") and case.name in ("t5", "learned_bias"):
        pairs = [(ours[n]["check"][0], theirs[n]["check"][0]) for n in ours if n in theirs]
    scale = max((abs(b) for _, b in pairs), default=0.0) if case.section == "rope" else 0.0
    found = [abs(a - b) / max(abs(b), scale) for a, b in pairs]
    return max(found, key=lambda off: math.inf if math.isnan(off) else off, default=None)


def section_table(store: Store, section: str) -> str:
    rows = []
    for case in (c for c in CASES if c.section == section):
        for who in case.whos:
            seconds = figure(store, section, case.name, who, "seconds")
            if seconds is None:
                continue
            runs = best(store, section, case.name, who).values()
            peak = over_rounds((row["peak_mib"], row["disturbed"]) for row in runs if row.get("peak_mib"))
            rate = over_rounds(
                (row["tokens_per_s"], row["disturbed"]) for row in runs if row.get("tokens_per_s")
            )
            cells = [
                case.name,
                NAMES[who],
                duration(seconds.median) + ("" if seconds.clean else " (disturbed)"),
            ]
            cells += [f"{rate.median:,.0f}" if rate else "", f"{peak.median:.0f}" if peak else ""]
            shares = [share(store, section, case.name, who, of) for of in ("sgemm", "fma")]
            cells += [part.percent() if part else "" for part in shares]
            if who == OURS:
                cells += ["", "", "", ""]
            else:
                speed, memory, off = (
                    *(figure(store, section, case.name, who, kind) for kind in ("speed", "memory")),
                    deviation(store, case, who),
                )
                cells += [
                    str(speed) if speed else "",
                    f"{speed.least:.2f} to {speed.most:.2f}" if speed else "",
                ]
                cells += [str(memory) if memory else "", "" if off is None else f"{off:.0e}"]
            counted = [row for row in runs if not row["disturbed"]] or runs
            worst = max(row["foreign"] or 0 for row in counted)
            rows.append([*cells, f"{worst:.2f}"])
    if not rows:
        return ""
    failed = {
        (row["case"], NAMES[row["who"]], row["error"])
        for row in store.find(section=section)
        if "error" in row
    }
    head = [
        "case",
        "of",
        "median",
        "tokens/s",
        "peak MiB",
        "of sgemm",
        "of FMA",
        "times as slow as peref",
        "range",
        "peref's memory / its",
        "deviation",
        "others' CPU",
    ]
    lost = "".join(f"\n{case}, {who}: failed: {error}\n" for case, who, error in sorted(failed))
    return f"\n## {TITLES[section]}\n\n{table(head, rows)}{lost}"


def described(rows: list[Row], titled: Callable[[list[Row]], str] = lambda of: "") -> str:
    """Where and when, one line for each set-up that rows are from, which begins with what `titled` says of
    these.
    """
    lines = []
    for text in dict.fromkeys(json.dumps(row["setup"], sort_keys=True) for row in rows):
        found, of = (
            json.loads(text),
            [row for row in rows if json.dumps(row["setup"], sort_keys=True) == text],
        )
        versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)
        dates = sorted(row["date"] for row in of)
        lines.append(
            f"- {titled(of)}{found['cpu']}, {found['threads']} threads on {found['cores']} cores; "
            f"{versions}; sources {found['sources']}; {dates[0]} to {dates[-1]}\n"
        )
    return "".join(lines)


def sections_of(rows: list[Row]) -> str:
    return f"{', '.join(name for name in BUDGET if any(row['section'] == name for row in rows))}: "


def document(store: Store) -> str:
    tables = "".join(section_table(store, section) for section in BUDGET)
    return f"""# Speed

Written by `python benchmarks/speed.py`, which says how it measures; every run is in speed.json.

{described(store.rows, sections_of)}
Everybody has the same weights and inputs, which are drawn at random and of no text, and does the same work in
float32. The model, unless said: pre-RMSNorm, GELU (tanh) of 4 widths, no biases, untied head, as many
key-value heads as heads, 256 tokens of vocabulary. The Llama shape is the default of peref: SwiGLU, half the
key-value heads, tied head. A training step is forward, mean cross-entropy, every gradient, clipping at global
norm 1 and AdamW, for all of them. A rotation "as users call it" makes its output; ours also makes the sines
from the angles, which the peers are given. "deviation" is the largest relative difference of results from
ours: losses of the first steps (of t5 and learned_bias the first only, for peref gives tables and T5's
queries learning rates of their own), mean sizes of outputs and gradients, turned channels, last logits. Peak
memory is that of the process, libraries included. "others' CPU" is what other processes used during the
timing, in cores. "of sgemm" is the share of NumPy's product of 2048 x 2048 matrices on the same threads that
the products of the work reach; "of FMA" that of multiply-adds of numbers that need no loading. Both peaks are
measured in our own process of the same round, after the work. Operations are counted of the keys that a query
sees, also where tiles of them are skipped and where the whole square is computed.

The peers' settings: torch eager is F.scaled_dot_product_attention, q, k and v from one product,
AdamW(fused=True), and inference_mode where there are no gradients; torch.compile is the same model in its
default mode; JAX is one jitted function with donated buffers. All have as many threads as peref, on the same
cores. "Held to AVX2": peref by NUMBA_CPU_FEATURES, NumPy by NPY_DISABLE_CPU_FEATURES and OPENBLAS_CORETYPE,
the peers by
{", ".join(f"{name}={value}" for name, value in HELD.items())}.

{goals_table(store)}{tables}"""


def guard(options: argparse.Namespace, here: dict[str, Any]) -> int:
    """Measures the key cases and compares; the exit code."""
    committed = committed_of(here)
    if not committed.rows:
        torch = here["versions"]["torch"]
        print(f"no ratios are committed of {here['cpu']}, {here['threads']} threads, torch {torch}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        now = Store(Path(folder) / "speed.json")
        ran = measure_sections(options, here, now)
        lines, fine = slowed(now, committed)
    print("\n".join(lines))
    return 0 if ran and fine and lines else 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(BUDGET),
        default=list(BUDGET),
        metavar="NAME",
        help=", ".join(BUDGET),
    )
    parser.add_argument("--rounds", type=int, help="3, with --quick 1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round, shorter")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep rows that were measured of the same sources, versions and settings",
    )
    parser.add_argument("--key", action="store_true", help="only the cases that --guard looks at")
    parser.add_argument("--guard", action="store_true", help="fail where a committed ratio is not reached")
    parser.add_argument("--avx2", action="store_true", help="hold everybody to AVX2")
    parser.add_argument("--limit", type=float, default=0.1, help="cores that others may use during a run")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of speed.json and speed.md")
    parser.add_argument(
        "--tables", action="store_true", help="measure nothing, write speed.md from speed.json"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.key or options.guard:
        options.only = [name for name in options.only if any(name == section for section, _ in KEY)]
    if options.avx2:
        hold_to_avx2()
    here, fine, began = setup(options.threads), True, time.perf_counter()
    if options.guard:
        sys.exit(guard(options, here))
    store = Store(options.results / "speed.json")
    if not options.tables:
        again = lambda row: options.resume and row["setup"] == here and "error" not in row
        store.keep(lambda row: row["section"] not in options.only or again(row))
        fine = measure_sections(options, here, store)
    text = document(store)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "speed.md").write_text(text)
    print(
        "\n"
        f"{goals_table(store)}\n"
        f"{options.results / 'speed.md'} after {(time.perf_counter() - began) / 60:.0f} min"
    )
    for case in CASES:
        for who in case.whos[1:]:
            off = deviation(store, case, who)
            if differs(off):
                fine = False
                print(
                    f"results differ: {case.section}, {case.name}: {NAMES[who]} is {off:.1e} away from ours"
                )
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
