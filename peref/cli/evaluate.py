"""eval: loss by length and by position of a run's newest checkpoint."""

import contextlib
import hashlib
import os
import re
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peref import evaluate as loss
from peref import store
from peref.backends import Backend
from peref.cli import options, text
from peref.cli.found import Trained, backend_of, cycles, find_trained, raw_text, reach, tokens_of
from peref.cli.options import Document, Given, option, size_option
from peref.cli.side_by_side import side_by_side, table_lines
from peref.config import Config
from peref.data import Corpus
from peref.encodings import origin
from peref.environment import environment
from peref.errors import Misuse, counted
from peref.exact_match import SURE, each_length, effective_length, in_words
from peref.masking import CHOSEN
from peref.runs import Run
from peref.settings import OF_ROTATIONS
from peref.tasks import DEPTHS, Exercise

BYTES, SAMPLES = 131072, 400
PROTOCOLS = ("non-overlapping", "sliding")


# yields the name of its file, then, sent the backend, what is measured in, what was found, and its tables
Measuring = Generator[Any, Backend, None]


@options.command("eval")
@options.argument("named", options.RUN, nargs=-1)
@size_option(
    "--len longest", "The longest length.  [default: four times that of training, where the encoding allows]"
)
@option("--protocol", "How the text is cut into windows.", [*PROTOCOLS], default=PROTOCOLS[0])
@size_option("--stride", "Tokens by which a sliding window moves.  [default: half the training length]")
@option("--bytes count", "Bytes of held-out text to read.", options.SIZE, default=BYTES)
@options.task_option("Evaluate the newest run of this task.")
@option("--samples", "Held-out sources of a task, at each length.", options.SIZE, default=SAMPLES)
@options.data_option(
    "Another text, whose last tenth is read, or where the run's text is now.  [default: the text of the run]"
)
@options.of_a_run
def command(given: Given) -> Document:
    """Evaluate RUN, or the newest run that has a checkpoint: loss by length and by position, under a
    stated protocol; of a task, how many answers are exactly right. Several runs make one table.
    """
    if twice := sorted({name for name in given.named if given.named.count(name) > 1}):
        raise Misuse(f"{', '.join(twice)} is named twice; a table has each run once")
    found = [find_trained(given, name) for name in given.named or (None,)]
    if len({one.run.task is None for one in found}) > 1:
        raise Misuse("some of these runs were trained on a text and some on a task; evaluate them apart")
    work = [of_task(given, one, one.exercise) if one.exercise else of_text(given, one) for one in found]
    names, results = list(map(next, work)), []
    for one, measuring, name in zip(found, work, names, strict=True):
        run, be = one.run, backend_of(given, one.dtype)
        say(given, "run", f"{run.folder}{one.how}, step {one.step:,} of {run.record['steps']:,}")
        unit, result, lines = measuring.send(be)
        result["environment"] = environment(be)
        path = run.folder / "eval" / f"{name}.json"
        store.write_text(path, store.canonical(result) + "\n", run.folder)
        about = {"run": str(run.folder), "file": str(path), **unit}
        results.append((about | result, [*lines, text.labelled("stored", str(path))]))
        if len(work) > 1:
            say(given, "stored", str(path))
    if len(results) == 1:
        return results[0]
    table = side_by_side([document for document, _ in results])
    return table, table_lines(table)


def say(given: Given, name: str, words: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # who read has left; the result is stored all the same
        given.say(name, words)


def of_text(given: Given, found: Trained) -> Measuring:
    """An evaluation with its tables of lengths and positions. What cannot be evaluated is refused first."""
    run, trained, known = found.run, found.cfg, found.vocabulary
    if given.said("samples"):
        raise Misuse("--samples is for a run that was trained on a task; leave it out")
    cfg = loss.under(trained, given.pe, given.settings)
    longest = reach(cfg, found.dtype) if given.longest is None else given.longest
    if given.count < longest:
        what = f"--bytes is {given.count}, too little text for --len {longest}"
        raise Misuse(f"{what}; expected at least {longest}")
    rule = rule_of(given, trained.L, longest)
    corpus = corpus_of(run, given.data)
    part, per_byte = tokens_of(known, corpus.valid[: given.count + 1])
    same = corpus.sha256 == run.record["data"]["sha256"]
    held = "part held out" if same else f"{corpus.held} of {corpus.name}"
    loss.check_evaluation(cfg, found.params, part, longest, f"the {held}")
    other_text = [] if same else [f"{legible(Path(corpus.name).stem)}.{corpus.sha256[:8]}"]
    if (count := min(given.count, corpus.valid.size - 1)) != min(BYTES, corpus.valid.size - 1):
        other_text.append(f"{count}bytes")
    marks = [str(longest), *marks_of(rule, run, cfg, trained, other_text)]
    store.check_writable(run.folder / "eval", run.folder)
    be = yield "-".join(marks)

    before = "" if cfg == trained else f"; trained with {text.cycle(trained.pe)}"
    say(given, "encoding", f"{text.cycle(cfg.pe)}{before}")
    for words in loss.differing(run):
        say(given, "NOTE", words)
    other = "" if same or not run.record["steps"] else "; NOT the text of the run"
    of = counted(part.size - 1, known.unit)
    of += f", {1 / per_byte:.2f} bytes each," if per_byte != 1 else ""
    which = "the part held out" if same else f"its {corpus.held}"
    say(given, "data", f"{corpus.name}, {of} of {which}{other}")
    masked = "" if cfg.causal else f", masked tokens: {CHOSEN:.0%} of the {known.unit}s are asked"
    say(given, "protocol", f"{rule}{masked}")
    say(given, "backend", text.chosen(be.name, given.backend))
    byte = known.measure.removeprefix("bits/") if cfg.causal else known.measure.replace("bits/", "masked ")
    rows, total = [], len(loss.lengths(trained.L, longest)) * (part.size - 1)
    with np.errstate(all="ignore"), given.progress(total, f"{known.unit}s", scaled=True) as bar:
        how = loss.Scoring(rule, be, bar.add, per_byte)
        for row in loss.evaluate(cfg, found.params, part, longest, how):
            rows.append(row)
            bar.line(f"length {row['length']:,}: {row['bpb']:.4f} bits/{byte}")
    result = text.finite(loss.stored(how, corpus.sha256, part, found.step, cfg, rows))
    result["trained_on"] = run.record["data"]["sha256"]
    for row in result["rows"] if per_byte != 1 else ():
        row["bits_per_token"] = row["bpb"] and row["bpb"] / per_byte
    lengthwise = by_length(result["rows"], trained.L, byte, per_byte)
    placewise = by_place(result["by_position"], byte, known.unit)
    lines = ["", lengthwise, f"\nby position, at length {longest:,}\n", placewise, ""]
    yield {"unit": f"bits/{byte}"}, result, lines


def of_task(given: Given, found: Trained, exercise: Exercise) -> Measuring:
    """The same of a task: answers that are exactly right, by the length of their sources."""
    cfg, count, trained = found.cfg, given.samples, exercise.longest
    longest, least = 2 * trained if given.longest is None else given.longest, exercise.task.shortest
    if longest < least:
        raise Misuse(f"--len is {longest}; expected at least {least}")
    end, name = cfg.ends(found.dtype)
    if (tokens := replace(exercise, longest=longest).tokens) > end:
        what = f"--len {longest} has {tokens} tokens"
        raise Misuse(f"{what}; expected a length with at most {end}: {name} ends")
    be = yield f"{exercise.name}-{longest}-{count}"

    for label, words in cycles(cfg).items():
        say(given, label, words)
    say(given, "task", f"{exercise.name}: {exercise.task.words}; {count:,} held-out samples a length")
    say(given, "backend", text.chosen(be.name, given.backend))
    with np.errstate(all="ignore"):
        rows = [*each_length(lambda tokens: cfg, found.params, exercise, longest, count, be)]
    result: dict[str, Any] = {"task": exercise.name, "samples": count, "step": found.step, "L": trained}
    result |= {"pe": cfg.to_json()["pe"], "effective": effective_length(rows, trained)}
    result |= {"rows": text.finite(rows), "sha256": exercise.sha256, "config": cfg.to_json()}
    columns: dict[str, text.Column] = {"length": ("length", 0), "exactly right": ("exact", 4)}
    columns |= {"95 % interval": lambda row: f"{row['low']:.4f} to {row['high']:.4f}"}
    columns |= {"tokens right": ("tokens_right", 4), "loss": ("loss", 4), "bits/token": ("bpb", 4)}
    lines = ["", text.row_table(rows, columns), ""]
    if exercise.task.deep:
        columns = {"length": ("length", 0)}
        columns |= {f"at {depth:.0%}": partial(right_at, n) for n, depth in enumerate(DEPTHS)}
        lines += ["exactly right, by how deep in it the answer stands\n", text.row_table(rows, columns), ""]
    what = f"the longest length with {SURE:.0%} exactly right there and at all shorter ones"
    lines.append(text.labelled("effective", f"{in_words(result['effective'])} ({what})"))
    yield {}, result, lines


def rule_of(given: Given, trained: int, longest: int) -> loss.Protocol:
    """The protocol in the words of the command line; a sliding window moves by the shortest length of the
    table unless said.
    """
    if given.protocol == PROTOCOLS[0]:
        if given.stride is not None:
            what = f"--stride {given.stride} belongs to --protocol sliding"
            raise Misuse(f"{what}; say that too, or leave the stride out")
        return loss.Protocol()
    shortest = loss.lengths(trained, longest)[0]
    stride = shortest if given.stride is None else given.stride
    if stride > shortest:
        raise Misuse(f"--stride is {stride}; expected 1 to {shortest}, the shortest length of the table")
    return loss.Protocol(stride)


def corpus_of(run: Run, spec: str | None) -> Corpus:
    """The text to evaluate on. Raises Misuse where nobody chose another than the run's, and yet it is
    another.
    """
    corpus, (path, sha256) = raw_text(run, spec), (run.record["data"][key] for key in ("spec", "sha256"))
    if spec is None and corpus.sha256 != sha256:
        raise Misuse(
            f"{path} is not the text that {run.folder} was trained on (SHA-256 {sha256[:12]}, now "
            f"{corpus.sha256[:12]}); say with --data where that is, or --data {path} to evaluate on this one "
            "all the same"
        )
    return corpus


def marks_of(rule: loss.Protocol, run: Run, cfg: Config, trained: Config, of_corpus: list[str]) -> list[str]:
    """What tells the file of one evaluation from that of another at the same length; nothing for the default
    one.

    Of the encoding: its name and what differs from its defaults, or where the name is that of the training
    only what differs from that; and the digest of each that is not built in, where it is not what the run
    began with.
    """
    marks = [] if rule.stride is None else [f"sliding{rule.stride}"]
    before = trained
    if cfg.named != trained.named:
        marks.append(legible(cfg.named))
        before = replace(cfg, pe=tuple((name, {}) for name, _ in cfg.pe), R=Config.R, layout=Config.layout)
    for index, ((_, now), (_, then)) in enumerate(zip(cfg.pe, before.pe, strict=True)):
        at = f"{index}." if len(cfg.pe) > 1 else ""
        other = {key: value for key, value in now.items() if value != then.get(key, ...)}
        marks += [legible(f"{at}{key}={text.shown(value)}") for key, value in other.items()]
    turning = {key: (getattr(cfg, field), getattr(before, field)) for key, field in OF_ROTATIONS.items()}
    marks += [f"{key}={now}" for key, (now, then) in turning.items() if now != then] + of_corpus
    here = {name: own.sha256 for name in cfg.encodings if (own := origin(name))}
    began = {name: about["sha256"] for name, about in run.own.items()}
    return marks + [f"{name}.{sha256[:8]}" for name, sha256 in here.items() if began.get(name) != sha256]


def legible(word: str) -> str:
    """`word` where it can be part of a file name, else eight digits of its SHA-256."""
    plain = re.fullmatch(r"[A-Za-z0-9_.=,+]{1,40}", word)
    return word if plain else hashlib.sha256(os.fsencode(word)).hexdigest()[:8]


def right_at(n: int, row: dict[str, Any]) -> str:
    """The share of right answers that stand at the n-th of DEPTHS."""
    return text.number(row["by_depth"][n], 2)


def by_length(rows: list[dict[str, Any]], trained: int, byte: str, per_byte: float) -> str:
    """The table of lengths; where a token is no byte, also in bits per token."""
    columns: dict[str, text.Column] = {"length": ("length", 0), "loss": ("loss", 4), "perplexity": ("ppl", 3)}
    columns |= {"bits/token": ("bits_per_token", 4)} if per_byte != 1 else {}
    columns |= {f"bits/{byte}": ("bpb", 4), f"std. error (bits/{byte})": ("stderr", 4)}
    return text.row_table(rows, columns | {f"ratio to {trained:,}": ("ratio", 4)})


def by_place(buckets: list[dict[str, Any]], byte: str, unit: str) -> str:
    """The table of positions."""
    where = lambda b: f"{b['from']:,}" if b["from"] == b["to"] else f"{b['from']:,} to {b['to']:,}"
    columns: dict[str, text.Column] = {"position": where, "loss": ("loss", 4), f"bits/{byte}": ("bpb", 4)}
    return text.row_table(buckets, columns | {f"{byte if unit == 'byte' else unit}s": ("tokens", 0)})
