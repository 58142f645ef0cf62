"""eval: loss by length and by position of a run's newest checkpoint."""

import contextlib
import hashlib
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from peref import store
from peref.cli import completion, options, text
from peref.cli.found import Say, Trained, TrainedOnTask, backend_of, find_task, find_trained, raw_text, reach
from peref.cli.progress import Progress
from peref.cli.side_by_side import side_by_side, table_lines
from peref.config import Config
from peref.data import Corpus
from peref.encodings import origin
from peref.errors import Misuse, counted
from peref.evaluate import (
    Protocol,
    check_evaluation,
    check_loss,
    differing,
    evaluate,
    lengths,
    stored,
    under,
)
from peref.exact_match import SURE, effective_length, exact_match, in_words, lengths_of
from peref.masking import CHOSEN
from peref.pair import Pair
from peref.runs import Run
from peref.settings import OF_ROTATIONS
from peref.tasks import DEPTHS
from peref.vocabulary import Vocabulary

BYTES, SAMPLES = 131072, 400


@click.command("eval", cls=options.Command)
@click.argument("named", nargs=-1, metavar="[RUN]...", shell_complete=completion.runs)
@click.option(
    "--len",
    "longest",
    type=int,
    help="The longest length.  [default: four times that of training, where the encoding allows]",
)
@click.option(
    "--protocol",
    type=click.Choice(["non-overlapping", "sliding"]),
    help="How the text is cut into windows.  [default: non-overlapping]",
)
@click.option(
    "--stride", type=int, help="Tokens by which a sliding window moves.  [default: half the training length]"
)
@click.option("--bytes", "count", type=int, help=f"Bytes of held-out text to read.  [default: {BYTES}]")
@options.task_option("Evaluate the newest run of this task.")
@options.size_option("--samples", f"Held-out sources of a task, at each length.  [default: {SAMPLES}]")
@options.data_option("Another text, or where that of the run is now.  [default: the text of the run]")
@options.of_a_run
@options.together
def command(given: SimpleNamespace) -> None:
    """Evaluate RUN, or the newest run that has a checkpoint: loss by length and by position, under a
    stated protocol; of a task, how many answers are exactly right. Several runs make one table.
    """
    out = sys.stderr if given.as_json else sys.stdout

    def say(name: str, what: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # who read has left; the result is stored all the same
            print(text.labelled(name, what), file=out, flush=True)

    if twice := sorted({name for name in given.named if given.named.count(name) > 1}):
        raise Misuse(f"{', '.join(twice)} is named twice; a table has each run once")
    asked = [asked_of(given, name) for name in given.named or (None,)]
    if len({isinstance(one, Asked) for one in asked}) > 1:
        raise Misuse("some of these runs were trained on a text and some on a task; evaluate them apart")
    results = []
    for one in asked:
        results.append(of_text(one, given, say) if isinstance(one, Asked) else of_task(one, given, say))
        say("stored", results[-1][0]["file"]) if len(asked) > 1 else None
    if len(asked) == 1:
        found, lines = results[0]
        text.emit(given.as_json, found, lines)
    else:
        found = side_by_side([found for found, _ in results])
        text.emit(given.as_json, found, table_lines(found))


@dataclass(frozen=True)
class Asked:
    """A run of a text and all that its evaluation depends on; `path` is where the result goes."""

    found: Trained
    cfg: Config
    longest: int
    rule: Protocol
    corpus: Corpus
    part: np.ndarray
    per_byte: float
    known: Vocabulary
    path: Path

    @property
    def same(self) -> bool:
        """Whether the text is that of the run."""
        return self.corpus.sha256 == self.found.run.record["data"]["sha256"]


def asked_of(given: SimpleNamespace, named: str | None) -> Asked | TrainedOnTask:
    """What is to be evaluated of the run that is named, or the newest. Raises Misuse for what cannot be."""
    if found_task := find_task(given, named):
        return found_task
    if given.samples is not None:
        raise Misuse("--samples is for a run that was trained on a task; leave it out")
    found = find_trained(named, given.runs, given.pe)
    trained, count = found.cfg, BYTES if given.count is None else given.count
    cfg = under(trained, given.pe, given.settings)
    longest = reach(cfg, found.dtype) if given.longest is None else given.longest
    if longest < 1:
        raise Misuse(f"--len is {longest}; expected at least 1")
    if count < longest:
        raise Misuse(f"--bytes is {count}, too little text for --len {longest}; expected at least {longest}")
    rule = rule_of(given.protocol or "non-overlapping", given.stride, trained.L, longest)
    corpus = corpus_of(found.run, given.data)
    part, per_byte = tokens_of(found.vocabulary, corpus.valid[: count + 1])
    check_evaluation(cfg, found.params, part, longest)
    same = corpus.sha256 == found.run.record["data"]["sha256"]
    marks = [
        *marks_of(rule, cfg, trained, corpus, same, min(count, corpus.valid.size - 1)),
        *marks_of_files(found.run, cfg),
    ]
    path = found.run.folder / "eval" / f"{'-'.join([str(longest), *marks])}.json"
    store.check_writable(path.parent, found.run.folder)
    return Asked(found, cfg, longest, rule, corpus, part, per_byte, found.vocabulary, path)


def tokens_of(known: Vocabulary, part: np.ndarray) -> tuple[np.ndarray, float]:
    """The tokens of a text that may be cut anywhere, and how many there are in a byte."""
    if known.of_bytes:
        return part, 1.0
    whole = part.tobytes().decode("utf-8", errors="ignore")  # the last character may be cut
    if known.tokenizer is None:  # and so may be the first and last number
        whole = " ".join(whole.split()[1:-1])
    tokens = known.tokens(whole.encode())
    return tokens, tokens.size / len(whole.encode()) if known.tokenizer else 1.0


def of_text(asked: Asked, given: SimpleNamespace, say: Say) -> tuple[dict[str, Any], list[str]]:
    """The document of an evaluation, and its tables of lengths and positions."""
    found, cfg, longest, part, rule = asked.found, asked.cfg, asked.longest, asked.part, asked.rule
    trained, record, unit = found.cfg, found.run.record, asked.known.unit
    be = backend_of(given, found.dtype, partial(say, "note"))
    say("run", f"{found.run.folder}{found.how}, step {found.step:,} of {record['steps']:,}")
    before = "" if cfg == trained else f"; trained with {text.cycle(trained.pe)}"
    say("encoding", f"{text.cycle(cfg.pe)}{before}")
    for words in differing(found.run):
        say("NOTE", words)
    other = "" if asked.same or not record["steps"] else "; NOT the text of the run"
    of = counted(part.size - 1, unit)
    of += f", {1 / asked.per_byte:.2f} bytes each," if asked.per_byte != 1 else ""
    say("data", f"{asked.corpus.name}, {of} of the part held out{other}")
    masked = "" if cfg.causal else f", masked tokens: {CHOSEN:.0%} of the {unit}s are asked"
    say("protocol", f"{rule}{masked}")
    say("backend", text.chosen(be.name, given.backend))
    per_byte, measure = asked.per_byte, asked.known.measure
    rows, byte = [], measure.removeprefix("bits/") if cfg.causal else measure.replace("bits/", "masked ")
    whole = len(lengths(trained.L, longest)) * (part.size - 1)
    with (
        np.errstate(all="ignore"),
        Progress(whole, f"{unit}s", scaled=True, plain=given.as_json) as bar,
    ):
        for row in evaluate(
            cfg, found.params, part, longest, protocol=rule, be=be, progress=bar.add, per_byte=per_byte
        ):
            rows.append(row)
            bar.line(f"length {row['length']:,}: {row['bpb']:.4f} bits/{byte}")
    how: dict[str, Any] = {"trained_on": record["data"]["sha256"], "be": be, "per_byte": per_byte}
    result = text.finite(stored(rule, asked.corpus.sha256, part, found.step, cfg, rows, **how))
    store.write_text(asked.path, store.canonical(result) + "\n", found.run.folder)
    lengthwise, placewise = (
        by_length(result["rows"], trained.L, byte, per_byte),
        by_place(result["by_position"], byte, unit),
    )
    said = ["", lengthwise, f"\nby position, at length {longest:,}\n", placewise, ""]
    said.append(text.labelled("stored", str(asked.path)))
    about = {"run": str(found.run.folder), "file": str(asked.path), "unit": f"bits/{byte}"}
    return about | result, said


def of_task(found: TrainedOnTask, given: SimpleNamespace, say: Say) -> tuple[dict[str, Any], list[str]]:
    """The document and table of a task: answers that are exactly right, by the length of their sources."""
    exercise, cfg, count = found.exercise, found.cfg, SAMPLES if given.samples is None else given.samples
    trained, least = exercise.longest, exercise.task.shortest
    longest = 2 * trained if given.longest is None else given.longest
    if longest < least:
        raise Misuse(f"--len is {longest}; expected at least {least}")
    end, name = cfg.ends(dtype := found.params["embed.weight"].dtype)
    if (tokens := replace(exercise, longest=longest).tokens) > end:
        raise Misuse(
            f"--len {longest} has {tokens} tokens; expected a length with at most {end}: {name} ends"
        )
    be = backend_of(given, dtype, partial(say, "note"))
    say("run", f"{found.run.folder}{found.how}, step {found.step:,} of {found.run.record['steps']:,}")
    if isinstance(cfg, Pair):
        say("encoder", text.cycle(cfg.encoder.pe))
        say("decoder", text.cycle(cfg.decoder.pe))
    else:
        say("encoding", text.cycle(cfg.pe))
    say("task", f"{exercise.name}: {exercise.task.words}; {count:,} held-out samples a length")
    say("backend", text.chosen(be.name, given.backend))
    params, rows = be.place(found.params), []
    with np.errstate(all="ignore"):
        for length in lengths_of(exercise, longest):
            rows.append(exact_match(cfg, params, replace(exercise, longest=length), count, be=be))
            check_loss(rows[-1])
    path = found.run.folder / "eval" / f"{exercise.name}-{longest}-{count}.json"
    result: dict[str, Any] = {"task": exercise.name, "samples": count, "step": found.step, "L": trained}
    result |= {"pe": cfg.to_json()["pe"], "effective": effective_length(rows, trained)}
    result |= {"rows": text.finite(rows)}
    store.write_text(path, store.canonical(result) + "\n", found.run.folder)
    head = ["length", "exactly right", "95 % interval", "tokens right", "loss", "bits/token"]
    cells = [
        [
            *(f"{row['length']:,}", f"{row['exact']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"),
            *(f"{row['tokens_right']:.4f}", f"{row['loss']:.4f}", f"{row['bpb']:.4f}"),
        ]
        for row in rows
    ]
    said = ["", text.table(head, cells), ""]
    if exercise.task.deep:
        share = lambda x: "-" if x is None else f"{x:.2f}"
        deep = [[f"{row['length']:,}", *map(share, row["by_depth"])] for row in rows]
        head = ["length", *(f"at {depth:.0%}" for depth in DEPTHS)]
        said += ["exactly right, by how deep in it the answer stands\n", text.table(head, deep), ""]
    what = f"{SURE:.0%} exactly right there and at all shorter lengths"
    said.append(text.labelled("effective", f"{in_words(result['effective'])}: {what}"))
    said.append(text.labelled("stored", str(path)))
    return {"run": str(found.run.folder), "file": str(path), **result}, said


def rule_of(protocol: str, stride: int | None, trained: int, longest: int) -> Protocol:
    """The protocol in the words of the command line; a sliding window moves by the shortest length of the
    table unless said.
    """
    if protocol != "sliding":
        if stride is not None:
            what = f"--stride {stride} belongs to --protocol sliding"
            raise Misuse(f"{what}; say that too, or leave the stride out")
        return Protocol()
    shortest = lengths(trained, longest)[0]
    stride = shortest if stride is None else stride
    if not 1 <= stride <= shortest:
        raise Misuse(f"--stride is {stride}; expected 1 to {shortest}, the shortest length of the table")
    return Protocol(stride)


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


def marks_of(
    rule: Protocol, cfg: Config, trained: Config, corpus: Corpus, same: bool, count: int
) -> list[str]:
    """What tells the file of one evaluation from that of another at the same length; nothing for the default
    one.

    Of the encoding: its name and what differs from its defaults, or where the name is that of the training
    only what differs from that.
    """
    marks = [] if rule.stride is None else [f"sliding{rule.stride}"]
    before = trained
    if cfg.named != trained.named:
        marks.append(legible(cfg.named))
        before = replace(cfg, pe=tuple((name, {}) for name, _ in cfg.pe), R=Config.R, layout=Config.layout)
    for index, ((_, now), (_, then)) in enumerate(zip(cfg.pe, before.pe, strict=True)):
        at = f"{index}." if len(cfg.pe) > 1 else ""
        marks += [
            legible(f"{at}{option}={text.shown(value)}")
            for option, value in now.items()
            if value != then.get(option, ...)
        ]
    marks += [
        f"{option}={getattr(cfg, field)}"
        for option, field in OF_ROTATIONS.items()
        if getattr(cfg, field) != getattr(before, field)
    ]
    marks += [] if same else [f"{legible(Path(corpus.name).stem)}.{corpus.sha256[:8]}"]
    return marks + ([] if count == min(BYTES, corpus.valid.size - 1) else [f"{count}bytes"])


def marks_of_files(run: Run, cfg: Config) -> list[str]:
    """The digest of each encoding that is not built in, where it is not what the run began with."""
    here = {name: found.sha256 for name in cfg.encodings if (found := origin(name))}
    began = {name: about["sha256"] for name, about in run.own.items()}
    return [f"{name}.{sha256[:8]}" for name, sha256 in here.items() if began.get(name) != sha256]


def legible(word: str) -> str:
    """`word` where it can be part of a file name, else eight digits of its SHA-256."""
    plain = re.fullmatch(r"[A-Za-z0-9_.=,+]{1,40}", word)
    return word if plain else hashlib.sha256(os.fsencode(word)).hexdigest()[:8]


def by_length(rows: list[dict[str, Any]], trained: int, byte: str = "byte", per_byte: float = 1.0) -> str:
    """The table of lengths; where a token is no byte, also in bits per token."""
    head = [
        "length",
        "loss",
        "perplexity",
        f"bits/{byte}",
        f"std. error (bits/{byte})",
        f"ratio to {trained:,}",
    ]
    keys = {"loss": 4, "ppl": 3, "bpb": 4, "stderr": 4, "ratio": 4}
    cells = [[f"{row['length']:,}", *(text.number(row[key], keys[key]) for key in keys)] for row in rows]
    if per_byte != 1:
        head.insert(3, "bits/token")
        for row, cell in zip(rows, cells, strict=True):
            cell.insert(3, text.number(row["bpb"] and row["bpb"] / per_byte, 4))
    return text.table(head, cells)


def by_place(buckets: list[dict[str, Any]], byte: str, unit: str) -> str:
    """The table of positions."""
    lines = []
    for b in buckets:
        where = f"{b['from']:,}" if b["from"] == b["to"] else f"{b['from']:,} to {b['to']:,}"
        lines.append([where, text.number(b["loss"], 4), text.number(b["bpb"], 4), f"{b['tokens']:,}"])
    return text.table(["position", "loss", f"bits/{byte}", f"{byte if unit == 'byte' else unit}s"], lines)
