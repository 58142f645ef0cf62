"""search: settings that suit the weights of a run, found by trying."""

import hashlib
import math
from functools import partial

import numpy as np

from peref import share, store
from peref.cli import options, text
from peref.cli.found import Trained, backend_of, named_or_newest, run_text, weights_found
from peref.cli.options import Document, Given, option
from peref.cli.progress import Progress
from peref.environment import environment
from peref.errors import Misuse, counted
from peref.evaluate import Protocol, check_evaluation, in_units
from peref.lab import search as lab
from peref.lab.comparison_report import NEIGHBOURS, interval
from peref.lab.paired import estimate
from peref.lab.search import BESIDE, METHOD, TRAINED_WITH, Candidate, Reader
from peref.records import Lines

REPORTED = 8  # times as much text as for a candidate is for the report


@options.command("search")
@options.argument("method", [METHOD], metavar=METHOD)
@options.argument("named", options.RUN, required=False)
@option(
    "--factor", "How many times the length trained for.  [default: 4]", float, default=4.0, show_default=False
)
@option("--rounds", "Rounds of the search.", options.SIZE, default=lab.ROUNDS)
@option(
    "--windows",
    "Windows of held-out text for each candidate; as many more choose among the best, and "
    f"{REPORTED} times as many are for the table.",
    options.SIZE,
    default=8,
)
@option("--seed", "Random seed.", options.INDEX, default=0)
@options.data_option("Another text, or where the run's text is now.  [default: the text of the run]")
@options.set_option
@options.own_encodings
@options.runs_folder
@options.computing
def command(given: Given) -> Document:
    """Search divisors of RoPE's frequencies, the long_factor of longrope, with which RUN, or the newest run,
    reads longer text best: the search of LongRoPE. Stopped and called again, it goes on.
    """
    found, factor, seed = weights_found(*named_or_newest(given, given.named)), given.factor, given.seed
    reader = reader_of(found, given)
    count, each = lab.evaluations(given.rounds), f"{counted(reader.count, 'window')} of {reader.length:,}"
    given.say("run", f"{found.run.folder}{found.how}, step {found.step:,}")
    given.say("search", f"{count:,} evaluations of {each} {found.vocabulary.unit}s, seed {seed}")
    given.say("kept", str(reader.kept.path))
    total = count + lab.PARENTS + 3 + REPORTED * (1 + len(BESIDE))
    with given.signals.gently(), np.errstate(all="ignore"), given.progress(total, "step") as bar:
        best, nats = searched(reader, given, bar)
    rows, cells = [], []
    for name, mine in sorted(nats.items(), key=lambda one: one[1].mean()):
        more = estimate((mine - nats["found"]) / math.log(2), NEIGHBOURS) if name != "found" else None
        rows.append({"name": name, "bits": in_units(mine.mean())["bpb"], "more": more and vars(more)})
        cells.append([name, f"{rows[-1]['bits']:.4f}", interval(more) if more else ""])
    settings = [word for one in (*reader.settings, lab.said(best)) for word in ("--set", one)]
    words = ("--pe", reader.cycle(METHOD), *settings, "--len", str(reader.length))
    head = ["encoding", f"bits/{found.vocabulary.unit} at {reader.length:,}", "more than found"]
    lines = ["", text.table(head, cells), "", text.labelled("found", settings[-1])]
    lines.append(text.labelled("next", text.command("eval", str(found.run.folder), *words)))
    lines.append(text.labelled("", text.command("train", "--from", str(found.run.folder), *words)))
    document = {"run": str(found.run.folder), "kept": str(reader.kept.path), "factor": factor, "seed": seed}
    document |= {"length": reader.length, "evaluations": count, "settings": settings[1::2], "rows": rows}
    document |= {"protocol": str(Protocol()), "windows": reader.count, "step": found.step}
    document |= {"sha256": sha256_of(reader.text), "environment": environment(reader.be)}
    document["config"] = reader.cfg.to_json()
    return document, lines


def sha256_of(tokens: np.ndarray) -> str:
    return hashlib.sha256(tokens.tobytes()).hexdigest()


def reader_of(found: Trained, given: Given) -> Reader:
    """What reads the windows for the search, for the choice, and for the report, one behind the other. Raises
    Misuse for what cannot be searched.
    """
    run, trained, count, factor = found.run, found.cfg, given.windows, given.factor
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
    be = backend_of(given, found.dtype)
    about = [run.digest(found.step), length, count, settings, sha256_of(part)]
    mark = hashlib.sha256(store.canonical([*about, share.code(), be.name]).encode()).hexdigest()[:12]
    kept = Lines(run.folder / "eval" / f"{METHOD}-{length}-{mark}.jsonl")
    store.check_writable(kept.path.parent, run.folder)
    reader = Reader(trained, be.place(found.params), part, length, count, settings, kept, be)
    check_evaluation(reader.under(METHOD), found.params, part, length)
    return reader


def searched(reader: Reader, given: Given, bar: Progress) -> tuple[Candidate, dict[str, np.ndarray]]:
    """The candidate that is found, and the nats of it and of others on the text for the report. Raises
    Interrupted after a signal.
    """
    known, count, factor = reader.known(), reader.count, given.factor
    first = lab.first_candidates(reader.under(METHOD), factor, reader.length)

    def go_on() -> None:
        best = min(((loss, one) for (part, one), loss in known.items() if part == 0), default=None)
        bar.stop_if_asked(f"; the best so far: --set {lab.said(best[1])}" if best else "")

    def loss(part: int, one: Candidate) -> float:
        if (part, one) not in known:
            go_on()
            known[part, one] = reader.loss(part, one)
        bar.to(bar.count + 1, f"{in_units(known[part, one])['bpb']:.4f} bits")
        return known[part, one]

    ranked = lab.search(partial(loss, 0), first, factor, given.seed, given.rounds)
    best = min({*ranked[: lab.PARENTS], *first}, key=lambda one: (loss(1, one), one))
    nats = {}
    for name in ("found", *BESIDE):
        go_on()
        cfg = reader.under(METHOD, lab.said(best)) if name == "found" else reader.under(name)
        nats[name] = reader.nats(cfg, 2 * count, REPORTED * count)
        bar.add(REPORTED)
    return best, nats
