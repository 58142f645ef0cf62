"""search: settings that suit the weights of a run, found by trying."""

import hashlib
import math
import signal
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from peref import share, store
from peref.cli import completion, options, text
from peref.cli.found import Trained, backend_of, find_trained, run_text
from peref.cli.progress import Progress
from peref.cli.signals import Interrupted, Signals
from peref.errors import Misuse
from peref.evaluate import check_evaluation, in_units
from peref.lab import search as lab
from peref.lab.comparison_report import TOGETHER, interval
from peref.lab.paired import estimate
from peref.lab.search import BESIDE, METHOD, TRAINED_WITH, Candidate, Reader
from peref.records import Lines

COUNT, REPORTED = 8, 8  # of text for a candidate; as many times that for the report


@click.command("search", cls=options.Command)
@click.argument("method", metavar=METHOD, type=click.Choice([METHOD]))
@click.argument("named", required=False, metavar="[RUN]", shell_complete=completion.runs)
@click.option("--factor", type=float, help="How many times the length trained for.  [default: 4]")
@options.size_option("--rounds", f"Rounds of the search.  [default: {lab.ROUNDS}]")
@options.size_option(
    "--windows",
    "Windows of held-out text that a candidate reads; as many choose one of the best, and "
    f"{REPORTED} times as many are for the report.  [default: {COUNT}]",
)
@click.option("--seed", type=click.IntRange(0), help="Random seed.  [default: 0]")
@options.data_option("Another text, or where that of the run is now.  [default: the text of the run]")
@options.set_option
@options.runs_folder
@options.computing
@options.as_json
@click.pass_context
@options.together
def command(ctx: click.Context, given: SimpleNamespace) -> None:
    """Search divisors of RoPE's frequencies, the long_factor of longrope, with which RUN, or the newest run,
    reads longer text best: the search of LongRoPE. Stopped and called again, it goes on.
    """
    out = sys.stderr if given.as_json else sys.stdout
    say = lambda name, what: print(text.labelled(name, what), file=out, flush=True)
    found, factor = find_trained(given.named, given.runs), 4.0 if given.factor is None else given.factor
    rounds, seed = given.rounds or lab.ROUNDS, given.seed or 0
    reader = reader_of(found, given, factor, partial(say, "note"))
    count, each = lab.evaluations(rounds), f"{reader.count} windows of {reader.length:,}"
    say("run", f"{found.run.folder}{found.how}, step {found.step:,}")
    say("search", f"{count:,} evaluations of {each} {found.vocabulary.unit}s, seed {seed}")
    say("kept", str(reader.kept.path))
    whole, signals = count + lab.PARENTS + 3 + REPORTED * (1 + len(BESIDE)), ctx.obj
    with signals.gently(), np.errstate(all="ignore"), Progress(whole, "step", plain=given.as_json) as bar:
        best, nats = searched(reader, factor, seed, rounds, bar, signals)
    rows: list[dict[str, Any]] = []
    for name, mine in sorted(nats.items(), key=lambda one: one[1].mean()):
        more = estimate((mine - nats["found"]) / math.log(2), TOGETHER) if name != "found" else None
        rows.append({"name": name, "bits": in_units(mine.mean())["bpb"], "more": more and vars(more)})
        rows[-1]["said"] = interval(more) if more else ""
    settings = [word for one in (*reader.settings, lab.said(best)) for word in ("--set", one)]
    words = ("--pe", reader.cycle(METHOD), *settings, "--len", str(reader.length))
    head = ["encoding", f"bits/{found.vocabulary.unit} at {reader.length:,}", "more than found"]
    cells = [[row["name"], f"{row['bits']:.4f}", row.pop("said")] for row in rows]
    lines = ["", text.table(head, cells), "", text.labelled("found", settings[-1])]
    lines.append(text.labelled("next", text.command("eval", str(found.run.folder), *words)))
    lines.append(text.labelled("", text.command("train", "--from", str(found.run.folder), *words)))
    document = {"run": str(found.run.folder), "kept": str(reader.kept.path), "factor": factor, "seed": seed}
    document |= {"length": reader.length, "evaluations": count, "settings": settings[1::2], "rows": rows}
    text.emit(given.as_json, document, lines)


def reader_of(found: Trained, given: SimpleNamespace, factor: float, say: Any) -> Reader:
    """What reads the windows for the search, for the choice, and for the report, one behind the other. Raises
    Misuse for what cannot be searched.
    """
    run, trained, count = found.run, found.cfg, given.windows or COUNT
    if run.task:
        raise Misuse(f"{run.folder} was trained on the task {run.task}; expected a run of a text")
    if TRAINED_WITH not in trained.encodings:
        raise Misuse(f"{run.folder} was trained with {trained.named}; expected one with {TRAINED_WITH}")
    if not 1 < factor < math.inf:
        raise Misuse(f"--factor is {factor:g}; expected more than 1")
    length, windows = round(factor * trained.L), (2 + REPORTED) * count
    part = run_text(run, given.data).valid[: windows * length + 1]
    if len(part) <= windows * length:
        what = f"--windows {count} of length {length} need {windows * length + 1:,} {found.vocabulary.unit}s"
        raise Misuse(f"{what} of held-out text, and there are {len(part):,}; say fewer, or other --data")
    settings = (*given.settings, f"factor={factor:g}")
    be = backend_of(given, found.dtype, say)
    about = [run.digest(found.step), length, count, settings, hashlib.sha256(part.tobytes()).hexdigest()]
    mark = hashlib.sha256(store.canonical([*about, share.code(), be.name]).encode()).hexdigest()[:12]
    kept = Lines(run.folder / "eval" / f"{METHOD}-{length}-{mark}.jsonl")
    store.check_writable(kept.path.parent, run.folder)
    reader = Reader(trained, be.place(found.params), part, length, count, settings, kept, be)
    check_evaluation(reader.under(METHOD), found.params, part, length)
    return reader


def searched(
    reader: Reader, factor: float, seed: int, rounds: int, bar: Progress, signals: Signals
) -> tuple[Candidate, dict[str, np.ndarray]]:
    """The candidate that is found, and the nats of it and of others on the text for the report. Raises
    Interrupted after a signal.
    """
    known, count = reader.known(), reader.count
    first = lab.first_candidates(reader.under(METHOD), factor, reader.length)

    def go_on() -> None:
        if signals.asked or bar.deaf:
            best = min((loss, one) for (part, one), loss in known.items() if part == 0) if known else None
            so_far = f"; the best so far: --set {lab.said(best[1])}" if best else ""
            said = f"stopped; what is done is kept, and the same command goes on{so_far}"
            raise Interrupted(signals.asked or signal.SIGPIPE, said)

    def loss(part: int, one: Candidate) -> float:
        if (part, one) not in known:
            go_on()
            known[part, one] = reader.loss(part, one)
        bar.to(bar.count + 1, f"{in_units(known[part, one])['bpb']:.4f} bits")
        return known[part, one]

    ranked = lab.search(partial(loss, 0), first, factor, seed, rounds)
    best = min({*ranked[: lab.PARENTS], *first}, key=lambda one: (loss(1, one), one))
    nats = {}
    for name in ("found", *BESIDE):
        go_on()
        cfg = reader.under(METHOD, lab.said(best)) if name == "found" else reader.under(name)
        nats[name] = reader.nats(cfg, 2 * count, REPORTED * count)
        bar.add(REPORTED)
    return best, nats
