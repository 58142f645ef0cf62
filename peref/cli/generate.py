"""generate: a trained model writes on from a prompt."""

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from peref.backends import Backend
from peref.cli import completion, options, text
from peref.cli.found import TrainedOnTask, backend_of, find_task, find_trained
from peref.evaluate import differing, under
from peref.exact_match import answer
from peref.generate import check_generation, generate
from peref.parameters import check
from peref.tasks import BEGIN, END

SOURCES = 10  # held-out samples that are answered where there is no prompt
DEFAULTS: dict[str, Any] = {"prompt": "static int ", "tokens": 200, "temperature": 0.8, "seed": 0}


@click.command("generate", cls=options.Command)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=completion.runs)
@click.option(
    "--prompt",
    help="The text to continue, or a source for a task.  "
    f"[default: {DEFAULTS['prompt']!r}; held-out sources]",
)
@click.option("--tokens", type=int, help="Number of tokens (bytes) to generate.  [default: 200]")
@click.option(
    "--temperature",
    type=float,
    help="Sampling temperature; 0 always takes the likeliest byte.  [default: 0.8]",
)
@click.option("--top-k", type=int, help="Sample from this many likeliest bytes only.  [default: all]")
@click.option("--seed", type=int, help="Random seed.  [default: 0]")
@options.task_option("Answer with the newest run of this task.")
@options.of_a_run
@options.together
def command(given: SimpleNamespace) -> None:
    """Continue a prompt with the model of RUN, or of the newest run that has a checkpoint; or answer with it,
    where that was trained on a task.
    """
    if pair := find_task(given, given.run):
        return answer_sources(pair, given)
    for name, value in DEFAULTS.items():
        setattr(given, name, value if getattr(given, name) is None else getattr(given, name))
    found = find_trained(given.run, given.runs, given.pe)
    known = found.vocabulary
    prompt = known.tokens(os.fsencode(given.prompt))
    cfg = under(found.cfg, given.pe, given.settings)
    check(cfg, found.params)
    sampling: dict[str, Any] = {"temperature": given.temperature, "top_k": given.top_k, "seed": given.seed}
    check_generation(cfg, prompt, given.tokens, **sampling, dtype=found.dtype)
    note = lambda said: print(text.labelled("note", said), file=sys.stderr, flush=True)
    for words in differing(found.run):
        note(words)
    be = backend_of(given, found.dtype, note)
    written: list[int] = []
    shown = 0

    def show(said: str) -> None:
        nonlocal shown
        if not given.as_json:
            print(said[shown:], end="", flush=True)
        shown = len(said)

    with np.errstate(all="ignore"):
        for token in generate(cfg, found.params, prompt, given.tokens, **sampling, be=be):
            written.append(token)
            if not (said := known.text([*prompt, *written])).endswith("\N{REPLACEMENT CHARACTER}"):
                show(said)  # else perhaps a character of which more comes
    show(known.text([*prompt, *written]) + "\n")
    about: dict[str, Any] = {"run": str(found.run.folder), "step": found.step, f"{known.unit}s": written}
    about |= {"prompt": given.prompt, "text": known.text(written)}
    text.emit(given.as_json, about | sampling | {"backend": be.name}, [])


Answer = tuple[
    Sequence[int], list[int], list[int] | None
]  # to what, what was written, what is right if known


def answer_sources(found: TrainedOnTask, given: SimpleNamespace) -> None:
    """Answers to the prompt, or to held-out samples, and whether they are exactly right."""
    note = lambda said: print(text.labelled("note", said), file=sys.stderr, flush=True)
    be = backend_of(given, found.params["embed.weight"].dtype, note)
    prompt = None if given.prompt is None else [*os.fsencode(given.prompt)]
    with np.errstate(all="ignore"):
        answered = answers_to(found, prompt, be)
    readable = lambda row: bytes(int(x) for x in row if x not in (BEGIN, END)).decode(
        errors="backslashreplace"
    )
    said: list[dict[str, Any]] = [
        {"source": readable(source), "answer": readable(row), "exact": None if want is None else row == want}
        for source, row, want in answered
    ]
    right = sum(one["exact"] or 0 for one in said)
    lines = [f"{one['source']} -> {one['answer']}{'  WRONG' * (one['exact'] is False)}" for one in said]
    lines += [f"{right} of {len(said)} exactly right"] if prompt is None else []
    about = {
        "run": str(found.run.folder),
        "step": found.step,
        "task": found.exercise.name,
        "backend": be.name,
    }
    text.emit(given.as_json, about | {"answers": said}, lines)


def answers_to(found: TrainedOnTask, prompt: list[int] | None, be: Backend) -> list[Answer]:
    """Of a sample with several questions the first. A prompt of letters is theirs, else all that is read."""
    exercise = found.exercise
    first = lambda held: exercise.question(*held) if exercise.alone else exercise.of_letters(held)
    asked: list[Any] = [first(exercise.held_out(n)) for n in range(SOURCES)]
    most = len(asked[0][1])
    if prompt is not None:
        letters = exercise.task.answer is not None
        asked = [exercise.of_letters(prompt) if letters else (prompt, None)]
        most = max(most, len(prompt) + 1) if letters else most
    params = be.place(found.params)
    return [(source, answer(found.cfg, params, source, most, be=be), right) for source, right in asked]
