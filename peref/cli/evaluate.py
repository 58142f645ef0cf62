"""eval: loss by length and by position of a run's newest checkpoint."""

import hashlib
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from peref import store
from peref.backends import get as get_backend
from peref.cli import options, text
from peref.cli.found import find_run, reach, text_of
from peref.cli.progress import Progress
from peref.data import Corpus
from peref.errors import Misuse
from peref.evaluate import Protocol, evaluate, lengths, stored, under, weights_of
from peref.runs import Run

BYTES = 131072


@click.command("eval")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--len", "longest", type=int, help="The longest length.  [default: four times that of training, where the encoding allows]")
@click.option("--protocol", type=click.Choice(["non-overlapping", "sliding"]), default="non-overlapping", show_default=True)
@click.option("--stride", type=int, help="Tokens that a sliding window moves.  [default: half the training length]")
@click.option("--bytes", "count", type=int, default=BYTES, show_default=True, help="How much of the validation text is read.")
@click.option("--data", metavar="NAME|PATH", help="Another text, or where the run's is now.  [default: the text of the run]")
@click.option("--pe", metavar="NAME[,NAME...]", help="The same weights under another encoding.")
@options.set_option
@options.runs_folder
@options.backend
@options.threads
@options.as_json
def command(
    run: str | None,
    longest: int | None,
    protocol: str,
    stride: int | None,
    count: int,
    data: str | None,
    pe: str | None,
    settings: tuple[str, ...],
    runs: str | None,
    backend: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Loss by length and by position, under a stated protocol, of RUN or of the newest run that has a checkpoint."""
    out = sys.stderr if as_json else sys.stdout
    found, how = find_run(run, runs)
    trained, params, step = weights_of(found)
    cfg = under(trained, pe, settings)
    longest = reach(cfg) if longest is None else longest
    if longest < 1:
        raise Misuse(f"--len is {longest}; expected at least 1")
    if count < longest:
        raise Misuse(f"--bytes is {count}, too little text for --len {longest}")
    rule = rule_of(protocol, stride, trained.L, longest)
    corpus = corpus_of(found, data)
    same = corpus.sha256 == found.record["data"]["sha256"]
    part = corpus.valid[: count + 1]
    grid = lengths(trained.L, longest)

    def say(name: str, what: str) -> None:
        print(text.labelled(name, what), file=out, flush=True)

    be = get_backend(backend, dtype=params["embed.weight"].dtype, threads=threads, say=partial(say, "note"))
    say("run", f"{found.folder}{how}, step {step:,} of {found.record['steps']:,}")
    say("encoding", text.cycle(cfg.pe) + ("" if cfg == trained else f"; trained with {text.cycle(trained.pe)}"))
    say("data", f"{corpus.name}, {part.size - 1:,} bytes of the part held out" + ("" if same else "; NOT the text of the run"))
    say("protocol", str(rule))
    say("backend", text.chosen(be.name, backend))
    rows = []
    with np.errstate(all="ignore"), Progress(len(grid) * (part.size - 1), "bytes", scaled=True, plain=as_json) as bar:
        for row in evaluate(cfg, params, part, longest, protocol=rule, be=be, progress=bar.add):
            rows.append(row)
            bar.line(f"length {row['length']:,}: {row['bpb']:.4f} bits/byte")
    beside = {"trained_on": found.record["data"]["sha256"], "L": trained.L, "backend": be.name}
    result = text.finite(stored(rule, corpus.sha256, part, step, cfg, rows) | beside)
    name = "-".join([str(longest), *marks_of(rule, pe, settings, None if same else corpus, count)])
    path = found.folder / "eval" / f"{name}.json"
    if not as_json:
        print(f"\n{by_length(result['rows'], trained.L)}\n\nby position, at length {longest:,}\n\n{by_place(result['by_position'])}\n")
    store.write_text(path, store.canonical(result) + "\n")
    if as_json:
        print(text.document({"run": str(found.folder), "file": str(path), **result}))
    else:
        say("stored", str(path))


def rule_of(protocol: str, stride: int | None, trained: int, longest: int) -> Protocol:
    """The protocol in the words of the command line; a sliding window moves by the shortest length of the table unless said."""
    if protocol != "sliding":
        if stride is not None:
            raise Misuse(f"--stride {stride} belongs to --protocol sliding; say that too, or leave the stride out")
        return Protocol()
    shortest = lengths(trained, longest)[0]
    stride = shortest if stride is None else stride
    if not 1 <= stride <= shortest:
        raise Misuse(f"--stride is {stride}; expected 1 to {shortest}, the shortest length of the table")
    return Protocol(stride)


def corpus_of(run: Run, spec: str | None) -> Corpus:
    """The text to evaluate on. Raises Misuse where nobody chose another than the run's, and yet it is another."""
    corpus, trained_on = text_of(run, spec), run.record["data"]
    if spec is None and corpus.sha256 != trained_on["sha256"]:
        raise Misuse(
            f"{trained_on['spec']} is not the text that {run.folder} was trained on (SHA-256 {trained_on['sha256'][:12]}, now "
            f"{corpus.sha256[:12]}); say with --data where that is, or --data {trained_on['spec']} to evaluate on this one all the same"
        )
    return corpus


def marks_of(rule: Protocol, pe: str | None, settings: tuple[str, ...], other: Corpus | None, count: int) -> list[str]:
    """What tells the file of one evaluation from that of another at the same length; nothing for the default one."""
    marks = [] if rule.stride is None else [f"sliding{rule.stride}"]
    marks += [legible(word) for word in (*([pe] if pe else []), *settings)]
    marks += [] if other is None else [f"{legible(Path(other.name).stem)}.{other.sha256[:8]}"]
    return marks + ([] if count == BYTES else [f"{count}bytes"])


def legible(word: str) -> str:
    """`word` where it can be part of a file name, else eight digits of its SHA-256."""
    return word if re.fullmatch(r"[A-Za-z0-9_.=,+]{1,40}", word) else hashlib.sha256(os.fsencode(word)).hexdigest()[:8]


def by_length(rows: list[dict[str, Any]], trained: int) -> str:
    """The table of lengths."""
    head = ["length", "loss", "perplexity", "bits/byte", "std. error", f"ratio to {trained:,}"]
    keys = (("loss", 4), ("ppl", 3), ("bpb", 4), ("stderr", 4), ("ratio", 4))
    return text.table(head, [[f"{row['length']:,}", *(text.number(row[key], digits) for key, digits in keys)] for row in rows])


def by_place(buckets: list[dict[str, Any]]) -> str:
    """The table of positions."""
    lines = []
    for b in buckets:
        where = f"{b['from']:,}" if b["from"] == b["to"] else f"{b['from']:,} to {b['to']:,}"
        lines.append([where, text.number(b["loss"], 4), text.number(b["bpb"], 4), f"{b['tokens']:,}"])
    return text.table(["position", "loss", "bits/byte", "bytes"], lines)
