"""Every encoding there is: how fast it trains with the numba backend, what of it has no kernel, and whether
it trains, evaluates and generates.

    python benchmarks/catalogue.py [--only NAME ...] [--threads 2] [--resume] [--quick]

About 12 seconds an encoding, on a machine that does nothing else; the estimate is printed first.

speed   A training step at the default shape (width 128, 4 layers, 8 x 512), each encoding in a process of its
        own beside one of `none`, now before and now after it; "of none" is the ratio of the two, and for
        `none` itself it says what the machine's noise is. As in speed.py, a pair that others disturbed by
        more than --limit cores is repeated once, and marked where it stays so. One step more is traced,
        outside the timing: every field of Backend that it uses, and every op, with its time, forward and
        backward. What is not in a kernel of numba is plain NumPy; nothing of that goes unnamed.
works   `train --len 256 --steps 50`, whose loss must fall; `eval --len 512`, which works or refuses in words;
        `generate`. Not timed, as many at once as there are threads.

Results: benchmarks/results/catalogue.json and catalogue.md. Encodings that are not asked for keep the rows
they have. --resume keeps rows of the same sources, versions, machine and settings. --quick: a tiny shape and
few steps, a try of the script and no result; its files go to runs/quick. Exit code 1 when something failed.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from measure import repeated
from speed import RESULTS, ROOT, Row, Store, described, setup, table

from peref import backends, model, runs, train
from peref.config import shaped
from peref.encodings import get, names
from peref.recipe import Recipe
from peref.settings import choose
from peref.tape import Op, Tape

TRIES, TIMEOUT = 2, 300
SECONDS = 12  # what one encoding takes, about
KERNELS = "kernels"
# fields that are no operation of a training step
UNTRACED = ("name", "skips", "note", "recurrences", "place", "step", "branch", "token", "update", "working")
UNTRACED += ("widen",)


@dataclass(frozen=True)
class Size:
    """How much work: of the model, the step, the run."""

    shape: dict[str, int]
    batch: int
    length: int
    least: int
    seconds: float
    train: tuple[str, ...]
    twice: int
    count: int  # bytes to evaluate on


FULL = Size({}, 8, 512, 3, 1.2, ("--len", "256", "--steps", "50", "--valid-bytes", "8192"), 512, 16384)
TINY = ("--width", "32", "--layers", "1", "--heads", "2", "--batch", "2", "--warmup", "5")
QUICK = Size(
    {"C": 32, "layers": 1, "H": 2},
    1,
    64,
    1,
    0.0,
    ("--len", "32", "--steps", "20", "--valid-bytes", "256", *TINY),
    64,
    256,
)


# ---------------------------------------------------------------- one encoding, in a process of its own


class Trace:
    """Seconds of one training step by what ran: KERNELS, a field of Backend that has none, or an op of its
    own; of nested ones the inner.
    """

    def __init__(self, be: backends.Backend) -> None:
        self.be, self.filled = be, be.filled()
        self.seconds: Counter[str] = Counter()
        self.used: set[str] = set()
        self.fields: list[str] = []  # those that are being called
        self.inside: list[float] = []  # seconds of the calls within each call that is being timed

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        before = time.perf_counter()
        self.inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - before
            self.seconds[what] += took - self.inside.pop()
            if self.inside:
                self.inside[-1] += took

    def of_field(self, name: str) -> str:
        return KERNELS if name in self.filled else name

    def of_op(self, op: Op) -> str:
        """What an op belongs to: the field that calls it, or nobody but itself."""
        if self.fields:
            return self.of_field(self.fields[-1])
        if op.forward.__module__.startswith("peref.backends.numba"):
            return KERNELS
        return f"{op.forward.__module__.rpartition('.')[2]}.{op.forward.__name__.removesuffix('_forward')}"

    def operation(self, name: str, function: Callable) -> Callable:
        def traced(*arguments: Any, **settings: Any) -> Any:
            self.used.add(name)
            self.fields.append(name)
            try:
                with self.timed(self.of_field(name)):
                    return function(*arguments, **settings)
            finally:
                self.fields.pop()

        return traced

    def backend(self) -> backends.Backend:
        """The backend, every operation traced."""
        named = {
            f.name: self.operation(f.name, getattr(self.be, f.name))
            for f in fields(self.be)
            if f.name not in UNTRACED and getattr(self.be, f.name)
        }
        return replace(self.be, **named, recurrences=Recurrences(self))

    @contextmanager
    def ops(self) -> Iterator[None]:
        """Every op is traced meanwhile, and its backward under the same name."""
        call, record = Op.__call__, Tape.record

        def traced_call(op: Op, *arrays: Any, **settings: Any) -> Any:
            with self.timed(self.of_op(op)):
                return call(op, *arrays, **settings)

        def traced_record(tape: Tape, op: Op, *rest: Any) -> Any:
            what = self.of_op(op)

            def backward(*arguments: Any) -> Any:
                with self.timed(what):
                    return op.backward(*arguments)

            return record(tape, replace(op, backward=backward), *rest)

        with patch.object(Op, "__call__", traced_call), patch.object(Tape, "record", traced_record):
            yield

    def of(self, step: Callable[[backends.Backend], Any]) -> dict[str, Any]:
        """What one step used: fields without a kernel, the share of its time outside of kernels, and the
        shares of what ran there.
        """
        before, be = time.perf_counter(), self.backend()
        with self.ops():
            step(be)
        whole = time.perf_counter() - before
        shares = {what: seconds / whole for what, seconds in self.seconds.most_common() if what != KERNELS}
        return {
            "plain": sorted(self.used - set(self.filled)),
            "outside": 1 - self.seconds[KERNELS] / whole,
            "shares": shares,
        }


class Recurrences(dict[str, Callable]):
    """Those that encodings ask the backend of a trace for, traced."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def get(self, name: str, plain: Any = None) -> Any:
        return self.trace.operation(name, self.trace.be.recurrence(name, plain))


def stepping(pe: str, size: Size) -> Callable[[backends.Backend], float]:
    """One training step after the other, with the backend that each is given."""
    cfg, recipe = shaped("llama", L=size.length, **size.shape, **choose(pe)), Recipe(batch=size.batch)
    p = model.init(cfg)
    m, v = ({name: np.zeros_like(a) for name, a in p.items()} for _ in range(2))
    drawn, count = (
        np.random.default_rng(1).integers(0, cfg.V, (size.batch, size.length + 1)),
        iter(range(1, 1 << 30)),
    )
    batches = [(drawn[:, :-1].copy(), drawn[:, 1:].copy())]
    return lambda be: be.step(
        train.one_step,
        be,
        cfg,
        recipe.rule,
        p,
        m,
        v,
        batches,
        np.array([recipe.rate, next(count), recipe.clip]),
    )[0]


def measured(pe: str, size: Size, threads: int) -> Row:
    be, step = (
        backends.get("numba", threads=threads, say=lambda text: print(text, file=sys.stderr)),
        stepping(pe, size),
    )
    found = repeated(
        argparse.Namespace(warm=1, least=size.least, most=1000, seconds=size.seconds), lambda: step(be)
    )
    return found | {"tokens_per_s": size.batch * size.length / found["seconds"]} | Trace(be).of(step)


def alone(pe: str, given: argparse.Namespace) -> Row:
    """`measured` in a process of its own, or {"error": its last words}."""
    command = [
        sys.executable,
        __file__,
        "--measure",
        pe,
        "--threads",
        str(given.threads),
        *(["--quick"] if given.quick else []),
    ]
    done, said = ran(command, given.threads)
    return json.loads(done[-1]) if done else {"error": said}


def ran(command: list[str], threads: int) -> tuple[list[str], str]:
    """What a command printed, none where it failed, and its last words."""
    held = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads)
    )
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **held, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return [], f"did not end within {TIMEOUT} s"
    said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return ([] if done.returncode else done.stdout.splitlines()), said


# ---------------------------------------------------------------- speed


def beside_none(pe: str, number: int, given: argparse.Namespace) -> Row:
    """One encoding and `none`, one after the other, in an order that alternates; once more where they were
    disturbed.
    """
    for _ in range(TRIES):
        pair = {}
        for who in ("none", "it") if number % 2 else ("it", "none"):
            pair[who] = alone("none" if who == "none" else pe, given)
        for found in pair.values():
            if "error" in found:
                return found
        foreign = max(found["foreign"] or 0 for found in pair.values())
        if foreign <= given.limit:
            break
    beside = {name: pair["none"][name] for name in ("tokens_per_s", "range", "times")}
    return pair["it"] | {
        "none": beside,
        "relative": pair["none"]["seconds"] / pair["it"]["seconds"],
        "disturbed": foreign > given.limit,
    }


# ---------------------------------------------------------------- works


def asked(root: Path, threads: int, *words: str) -> dict[str, Any]:
    """What a command of cli.py says with --json; {"error": {"kind", "message"}} where it does not do it."""
    command = [
        sys.executable,
        str(ROOT / "cli.py"),
        *words,
        "--backend",
        "numba",
        "--threads",
        str(threads),
        "--json",
    ]
    held = dict.fromkeys(("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, cwd=root, env={**os.environ, **held}
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": {"kind": "failed", "message": f"did not end within {TIMEOUT} s"}}
    except ValueError:
        return {
            "error": {
                "kind": "failed",
                "message": (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1],
            }
        }


def works(pe: str, root: Path, size: Size, threads: int) -> Row:
    """train, eval and generate of one encoding: its losses, bits per byte by length, or the words of what
    was refused.
    """
    folder = root / pe
    folder.mkdir()
    done = asked(folder, threads, "train", "--pe", pe, *size.train)
    if "error" in done:
        return {"error": f"train: {done['error']['message']}"}
    run = folder / done["run"]
    losses = [line["loss"] for line in runs.open_run(run).metrics.read()]
    corpus = f"{done['data']['name']} ({done['data']['sha256'][:12]})"
    found: Row = {"corpus": corpus, "first": losses[0], "last": losses[-1], "steps": len(losses)}
    evaluated = asked(folder, threads, "eval", str(run), "--len", str(size.twice), "--bytes", str(size.count))
    if "error" in evaluated:
        found["refused"] = evaluated["error"]
    else:
        found["bpb"] = {str(row["length"]): row["bpb"] for row in evaluated["rows"]}
    written = asked(folder, threads, "generate", str(run), "--tokens", "16")
    return found | (
        {"ungenerated": written["error"]}
        if "error" in written
        else {"text": written["text"], "written": len(written["bytes"])}
    )


def failures(row: Row) -> list[str]:
    """What of a row must not be."""
    if "error" in row:
        return [row["error"]]
    if row["section"] == "speed":
        return []
    wrong = []
    if not row["last"] < row["first"]:
        wrong.append(f"the loss does not fall: {row['first']:.3f} to {row['last']:.3f}")
    if row.get("refused", {}).get("kind", "misuse") != "misuse":
        wrong.append(f"eval: {row['refused']['message']}")
    if "ungenerated" in row:
        wrong.append(f"generate: {row['ungenerated']['message']}")
    return wrong


# ---------------------------------------------------------------- tables


def speed_cells(row: Row) -> list[str]:
    """Of ops outside of kernels those of a twentieth of the step or more, and all fields, however little
    they take.
    """
    mark = " (disturbed)" if row["disturbed"] else ""
    plain = ", ".join(f"{field} {row['shares'].get(field, 0):.0%}" for field in row["plain"]) or "none"
    large = ", ".join(
        f"{op} {share:.0%}" for op, share in row["shares"].items() if op not in row["plain"] and share >= 0.05
    )
    hook = get(row["pe"]).hook or "no hook"
    return [
        row["pe"],
        hook,
        f"{row['tokens_per_s']:,.0f}{mark}",
        f"{row['relative']:.2f}",
        plain,
        f"{row['outside']:.0%}",
        large,
    ]


def works_cells(row: Row) -> list[str]:
    by_length = row.get("bpb", {})
    bits = (
        ", ".join(f"{bpb:.2f}" for bpb in by_length.values())
        if by_length
        else f"refused: {row['refused']['message']}"
    )
    wrote = f"{row['written']} bytes" if "written" in row else f"failed: {row['ungenerated']['message']}"
    return [row["pe"], f"{row['first']:.3f}", f"{row['last']:.3f}", bits, wrote]


def quick(rows: list[Row]) -> str:
    return "" if rows[0]["setup"]["result"] else "--quick, which is no result: "


def document(store: Store) -> str:
    order = {pe: number for number, pe in enumerate(names())}
    rows = sorted((row for row in store.rows if row["pe"] in order), key=lambda row: order[row["pe"]])
    speed, tried = (
        [row for row in rows if row["section"] == section and "error" not in row]
        for section in ("speed", "works")
    )
    lengths = ", ".join(max((row.get("bpb", {}) for row in tried), key=len, default={}))
    heads = (
        [
            "encoding",
            "hook",
            "tokens/s",
            "of none",
            "fields without a kernel",
            "outside of kernels",
            "of that, ops of 5% and more",
        ],
        ["encoding", "loss, first step", "last step", f"bits/byte at {lengths}", "generate"],
    )
    corpora = " and ".join(dict.fromkeys(row["corpus"] for row in tried))
    wrong = [f"- {row['pe']}: {what}" for row in rows for what in failures(row)]
    verdict = "\n".join(["What failed:", "", *wrong]) if wrong else "Nothing failed."
    return f"""# The catalogue

Written by `python benchmarks/catalogue.py`, which says how it measures; every number is in catalogue.json.

{described(rows, quick)}
{len(speed)} encodings were measured, {len(tried)} trained, evaluated and asked to generate. {verdict}

## A training step with the numba backend, default options, width 128, 4 layers, 4 heads over 2, 8 x 512

Tokens are drawn at random, of no text. Fields of Backend that numba does not fill run the plain ops, and so
do an encoding's own; shares are of the time of one traced step, forward and backward, and what runs in a
kernel inside of a plain op is a kernel's. What is outside of kernels for `none` is the tape and the sums. "Of
none" is against the run of `none` beside it, for machines flip between speeds a quarter apart from minute to
minute: tokens/s of two rows do not divide to it.

{table(heads[0], [speed_cells(row) for row in speed])}
## `train --len 256 --steps 50`, `eval --len 512`, `generate`

Fifty steps, all of them warm-up, of 8 x 256 bytes of {corpora}; the numbers say that it works, not which is
better (docs/results). A refusal is in the words of the command.

{table(heads[1], [works_cells(row) for row in tried])}"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names(),
        default=names(),
        metavar="NAME",
        help="encodings; all unless said",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep rows that were measured of the same sources, versions and settings",
    )
    parser.add_argument("--limit", type=float, default=0.1, help="cores that others may use during a timing")
    parser.add_argument("--quick", action="store_true", help="tiny, no result")
    parser.add_argument("--results", type=Path, help="benchmarks/results, with --quick runs/quick")
    parser.add_argument(
        "--tables", action="store_true", help="measure nothing, write catalogue.md from catalogue.json"
    )
    parser.add_argument(
        "--measure",
        choices=names(),
        metavar="NAME",
        help="one measurement of one encoding, as a line of JSON",
    )
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    if given.measure:
        print(json.dumps(measured(given.measure, size, given.threads)))
        return
    place = given.results or (Path("runs/quick") if given.quick else RESULTS)
    store, began = Store(place / "catalogue.json"), time.perf_counter()
    if not given.tables:
        measure_all(given, size, store)
    place.mkdir(parents=True, exist_ok=True)
    (place / "catalogue.md").write_text(document(store))
    wrong = [f"{row['pe']}: {what}" for row in store.rows for what in failures(row)]
    print(
        "\n".join(
            ["", *wrong, f"{place / 'catalogue.md'} after {(time.perf_counter() - began) / 60:.1f} min"]
        )
    )
    sys.exit(1 if wrong else 0)


def measure_all(given: argparse.Namespace, size: Size, store: Store) -> None:
    """Every row that is asked for and not there yet, first the speed of all, then whether they work."""
    here = setup(given.threads, ("peref", "numba", "numpy"))
    here |= {
        "script": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12],
        "result": not given.quick,
    }
    again = lambda row: given.resume and row["setup"] == here and not failures(row)
    store.keep(lambda row: row["pe"] not in given.only or again(row))
    left = {
        section: [pe for pe in given.only if not store.find(section=section, pe=pe)]
        for section in ("speed", "works")
    }
    print(
        f"about {(len(left['speed']) + len(left['works'])) / 2 * (3 if given.quick else SECONDS) / 60:.1f} "
        "min",
        flush=True,
    )

    def add(section: str, pe: str, found: Row, cells: Callable[[Row], list[str]]) -> None:
        row = {
            "section": section,
            "pe": pe,
            **found,
            "date": time.strftime("%Y-%m-%d %H:%M:%S"),
            "setup": here,
        }
        store.add(row)
        print(
            f"  {section} {pe:16} {row['error'] if 'error' in row else '; '.join(cells(row)[1:])}", flush=True
        )

    subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), "warmup", "--json"], check=True, capture_output=True
    )
    for number, pe in enumerate(left["speed"]):
        add("speed", pe, beside_none(pe, number, given), speed_cells)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.threads) as pool:
        tasks = {pool.submit(works, pe, Path(folder), size, 1): pe for pe in left["works"]}
        for task in as_completed(tasks):
            add("works", tasks[task], task.result(), works_cells)


if __name__ == "__main__":
    main()
