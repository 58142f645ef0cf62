"""report: a page about runs: learning, loss, attention beyond the length trained for, learned parameters."""

import os
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from peref import store
from peref.cli import options, text
from peref.cli.evaluate import SAMPLES
from peref.cli.found import backend_of, find_trained, raw_text, tokens_of
from peref.cli.options import Document, Given, option, size_option
from peref.cli.show import drawing
from peref.environment import environment
from peref.errors import Misuse
from peref.evaluate import Protocol, Scoring, check_evaluation, evaluate
from peref.exact_match import each_length
from peref.lab import run_report
from peref.lab.comparison_report import embedded, measured_with
from peref.lab.panels import Image, Panel
from peref.lab.run_report import SHARE_RIGHT, Looked
from peref.page import html_page, html_table, td
from peref.vocabulary import Vocabulary

READ = 32768  # bytes of held-out text
FARTHEST_MAP = 4096  # tokens that attention is looked at over: all pairs are kept


@options.command("report")
@options.argument("named", options.RUN, nargs=-1)
@size_option(
    "--len longest", "The longest length, of losses and of the prompt.  [default: twice that of training]"
)
@option("--prompt", "The text to attend over.  [default: --len bytes that were held out]")
@option(
    "--heads=LAYER.HEAD[,LAYER.HEAD...]",
    "The heads whose attention is drawn.  [default: the first of each layer]",
)
@option("--bytes count", "Bytes of held-out text to read.", options.SIZE, default=READ)
@options.data_option("Another text, or where that of the runs is now.  [default: the text of each]")
@option("-o --output", "The page to write.", options.FILE, default="report.html")
@options.own_encodings
@options.runs_folder
@options.computing
def command(given: Given) -> Document:
    """Write one page about RUNs, or the newest run: how they learned, loss by length and by position, where
    they attend, also beyond the length trained for, and what their encodings have learned; of an encoder and
    a decoder the first two.
    """
    drawing()  # refused at once where there is none
    path = Path(given.output)
    with np.errstate(all="ignore"):
        found = [looked(given, name) for name in given.named or (None,)]
    if len(units := sorted({run.measure for run in found})) > 1:
        raise Misuse(f"these runs are measured in different units ({', '.join(units)}); report them apart")
    if len({run.name for run in found}) < len(found):
        found = [replace(run, name=f"{run.name} ({n + 1})") for n, run in enumerate(found)]
    store.write_text(path, page(found, given))
    table = text.table(["run", *HEAD], [cells_of(run) for run in found])
    lines = ["", table, "", text.labelled("report", str(path))]
    return {"report": str(path), "runs": [run_facts(run) for run in found]}, lines


def looked(given: Given, named: str | None) -> Looked:
    """A run evaluated, and its attention over the prompt."""
    found = find_trained(given, named)
    run, cfg, params, exercise = found.run, found.cfg, found.params, found.exercise
    trained = exercise.longest if exercise else cfg.L
    tokens_at = lambda n: replace(exercise, longest=n).tokens if exercise else n
    end, name = cfg.ends(found.dtype)
    longest = given.longest or (2 * trained if tokens_at(2 * trained) <= end else trained)
    if tokens_at(longest) > end:
        raise Misuse(f"--len {longest} has {tokens_at(longest)} tokens, and {name} ends at length {end}")
    if exercise:
        given.refuse(f"{run.folder} was trained on the task {run.task}", "data")
        known, asked = Vocabulary(256), replace(exercise, longest=longest)
        held = asked.asked([asked.held_out(0)])[0][0]
        of = {"task": exercise.name, "samples": SAMPLES, "sha256": exercise.sha256}
    else:
        known, corpus = found.vocabulary, raw_text(run, given.data)
        part, per_byte = tokens_of(known, corpus.valid[: max(given.count, longest) + 1])
        held = part[:longest]
        of = {"text": corpus.name, "corpus": corpus.sha256, "tokens": part.size - 1}
        of |= {"protocol": str(Protocol())}
        check_evaluation(cfg, params, part, longest)
    prompt = None if cfg.encoder else prompt_of(given, known, held, end)
    be = backend_of(given, found.dtype)
    given.say("run", f"{run.folder}{found.how}")
    if exercise:
        rows = [*each_length(lambda tokens: cfg, params, exercise, longest, SAMPLES, be)]
    else:
        rows = [*evaluate(cfg, params, part, longest, Scoring(be=be, per_byte=per_byte))]
    measure, places = SHARE_RIGHT if exercise else known.measure, rows[-1].get("by_position", [])
    how = {"run": str(run.folder), "step": found.step, **of, "environment": environment(be)}
    about = (cfg, params, run.metrics.read(), measure, rows, places, trained, how)
    where, heads = (np.arange(0), {}) if prompt is None else run_report.attended(cfg, params, prompt)
    return Looked(cfg.named, *about, where, heads)


def prompt_of(given: Given, known: Vocabulary, held: np.ndarray, end: float) -> np.ndarray:
    """The tokens to attend over."""
    said = given.prompt
    tokens = held if said is None else known.tokens(os.fsencode(said))
    most = min(FARTHEST_MAP, end)
    if not 0 < len(tokens) <= most:
        raise Misuse(f"the prompt has {len(tokens)} tokens; expected 1 to {most}; say --prompt or --len")
    return tokens


HEAD = ["trained at", "loss by length", "entropy inside", "beyond"]


def cells_of(run: Looked) -> list[str]:
    """A line about a run."""
    unit = " right" if run.measure == SHARE_RIGHT else f" {run.measure}"
    rows = ", ".join(f"{row['length']:,}: {row[run.key]:.3f}" for row in run.rows)
    bits = [text.number(value, 3) for value in run_report.entropy_of(run).values()]
    return [run.name, f"{run.trained:,}", rows + unit, *bits]


def run_facts(run: Looked) -> dict[str, Any]:
    rows = [{key: row[key] for key in ("length", run.key)} for row in run.rows]
    about = {"name": run.name, "L": run.trained, **run.measured}
    return about | {"rows": rows, "entropy": run_report.entropy_of(run)}


def heads_of(run: Looked, said: str | None) -> list[str]:
    """The names of the heads to draw. Raises Misuse for one that the run has not."""
    if said is None or not run.heads:  # the first of each layer
        return [name for name in run.heads if name.endswith((", head 0", ", response"))]
    found = []
    for one in said.split(","):
        layer, _, head = one.partition(".")
        name = f"layer {layer}, head {head}"
        if name not in run.heads:
            known = f"0.0 to {run.cfg.layers - 1}.{run.cfg.H - 1}"
            raise Misuse(f"--heads {one}: {run.name} has no such head; expected {known}, as 0.0,1.2")
        found.append(name)
    return found


def page(runs: list[Looked], given: Given) -> str:
    """One file with all pictures in it."""
    chosen = [heads_of(run, given.heads) for run in runs]
    table = html_table(["run", *HEAD], [map(td, cells_of(run)) for run in runs])
    body = ["<h1>Runs, side by side</h1>", f'<div class="wide">{table}</div>']
    names = ", ".join(run.name for run in runs)
    body.append(picture_of("side by side", names, run_report.side_by_side_panels(runs)))
    for run, heads in zip(runs, chosen, strict=True):
        if not run.heads:  # of an encoder and a decoder
            continue
        body.append(f"<h2>{escape(run.name)}</h2>")
        about = f"attention over {run.queries[-1] + 1:,} tokens"
        body.append(picture_of(run.name, about, run_report.panels_of(run, heads)))
    body.append("<p>Attention: how much an output moves with the value of each key.</p>")
    facts = (f"{key}: {value}" for run in runs for key, value in run.measured.items())
    return html_page("peref report", "\n".join([*body, measured_with(facts)]))


def picture_of(title: str, about: str, panels: list[Panel | Image]) -> str:
    """Panels as a picture within the page."""
    picture = drawing().drawn(".png", title, [about], panels)
    return embedded(picture, f"{title}: {'; '.join(panel.title for panel in panels)}.")
