"""generate: a trained model writes on from a prompt."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.cli import options
from peref.cli.found import Trained, backend_of, find_trained
from peref.cli.options import Document, Given, option
from peref.encoder_decoder import encode
from peref.errors import Misuse, printable
from peref.evaluate import differing, under
from peref.exact_match import answer
from peref.generate import check_generation, generate
from peref.huggingface.keys import json_object
from peref.model import check_tokens
from peref.parameters import check, half_of
from peref.porting.files import CONFIG
from peref.runs import Run
from peref.tasks import BEGIN, END, Exercise

SOURCES = 10  # held-out samples that are answered where there is no prompt
BEGUN = "static int "
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # how a text ends whose last character is perhaps not all there


@options.command("generate")
@options.argument("run", options.RUN, required=False)
@option("--prompt", f"The text to continue, or a source for a task.  [default: {BEGUN!r}; held-out sources]")
@option("--tokens", "Number of tokens (bytes) to generate.", int, default=200)
@option("--temperature", "Sampling temperature; 0 always takes the likeliest byte.", float, default=0.8)
@option("--top-k", "Sample from this many likeliest bytes only.  [default: all]", options.SIZE)
@option("--seed", "Random seed.", int, default=0)
@options.task_option("Answer with the newest run of this task.")
@options.of_a_run
def command(given: Given) -> Document:
    """Continue a prompt with the model of RUN, or of the newest run that has a checkpoint; or answer with it,
    where that was trained on a task. Of an imported encoder and decoder the first reads the prompt.
    """
    given.stream = sys.stderr  # stdout has what is written
    found = find_trained(given, given.run, pairs=True)
    if found.exercise:
        return answer_sources(found, found.exercise, given)
    known, begun = found.vocabulary, BEGUN if given.prompt is None else given.prompt
    prompt = known.prompt(begun)
    cfg, params, source = found.cfg, found.params, None
    if cfg.encoder:
        given.refuse(f"{found.run.folder} is an encoder and a decoder", "pe", "settings")
        source, prompt = check_tokens(cfg.encoder, prompt[None]), first_token(found.run)
        cfg, params = cfg.decoder, half_of(params, "decoder")
    else:
        cfg = under(cfg, given.pe, given.settings)
        check(cfg, params)
    sampling: dict[str, Any] = {"temperature": given.temperature, "top_k": given.top_k, "seed": given.seed}
    check_generation(cfg, prompt, given.tokens, **sampling, dtype=found.dtype)
    for words in differing(found.run):
        given.note(words)
    be = backend_of(given, found.dtype)
    written: list[int] = []
    # tokens that are not printed yet, and those before them: a tokenizer may leave out the first one's blank
    waiting, before = [*map(int, prompt if source is None else ())], list[int]()
    legible = printable if sys.stdout and sys.stdout.isatty() else str  # a terminal obeys some bytes
    piece = lambda: known.text([*before, *waiting])[len(known.text(before)) :]
    with np.errstate(all="ignore"):
        memory = None if source is None else encode(found.cfg, be.place(found.params), source, be=be)
        try:
            for token in generate(cfg, params, prompt, given.tokens, **sampling, be=be, memory=memory):
                # one token late: what the first two still compile is noted before a line is begun
                if written and not given.as_json and (said := piece())[-1:] != INCOMPLETE:
                    print(legible(said), end="", flush=True)
                    waiting, before = [], waiting
                waiting.append(token)
                written.append(token)
        finally:  # an error has a line of its own
            if not given.as_json and (written or not given.tokens):
                print(legible(piece()))
    about: dict[str, Any] = {"run": str(found.run.folder), "step": found.step, f"{known.unit}s": written}
    about |= {"prompt": begun, "text": known.text(written)}
    return about | sampling | {"backend": be.name}, []


def first_token(run: Run) -> np.ndarray:
    """What the decoder of an imported run begins with, [1]. Raises Misuse where its config.json is silent."""
    key = "decoder_start_token_id"
    path = run.folder / "public" / CONFIG
    first = json_object(run.public(CONFIG) or b"{}", path).get(key)
    if type(first) is not int:
        what = f"{key} is {first!r} in the {CONFIG} of {run.folder}"
        raise Misuse(f"{what}; write the token there, and import again")
    return np.array([first])


# to what, what was written, what is right if known
Answer = tuple[Sequence[int], list[int], list[int] | None]


def answer_sources(found: Trained, exercise: Exercise, given: Given) -> Document:
    """Answers to the prompt, or to held-out samples, and whether they are exactly right."""
    be = backend_of(given, found.dtype)
    prompt = None if given.prompt is None else [*os.fsencode(given.prompt)]
    with np.errstate(all="ignore"):
        answered = answers_to(found, exercise, prompt, be)
    letters = lambda row: bytes(int(x) for x in row if x not in (BEGIN, END))
    readable = lambda row: letters(row).decode(errors="backslashreplace")
    said: list[dict[str, Any]] = [
        {"source": readable(source), "answer": readable(row), "exact": None if want is None else row == want}
        for source, row, want in answered
    ]
    right = sum(one["exact"] or 0 for one in said)
    lines = [f"{one['source']} -> {one['answer']}{'  WRONG' * (one['exact'] is False)}" for one in said]
    lines += [f"{right} of {len(said)} exactly right"] if prompt is None else []
    about = {"run": str(found.run.folder), "step": found.step, "task": exercise.name, "backend": be.name}
    return about | {"answers": said}, lines


def answers_to(found: Trained, exercise: Exercise, prompt: list[int] | None, be: Backend) -> list[Answer]:
    """Of a sample with several questions the first. A prompt of letters is theirs, else all that is read."""
    first = lambda held: exercise.question(*held) if exercise.alone else exercise.of_letters(held)
    asked: list[Any] = [first(exercise.held_out(n)) for n in range(SOURCES)]
    most = len(asked[0][1])
    if prompt is not None:
        letters = exercise.task.answer is not None
        asked = [exercise.of_letters(prompt) if letters else (prompt, None)]
        most = max(most, len(prompt) + 1) if letters else most
    params = be.place(found.params)
    return [(source, answer(found.cfg, params, source, most, be=be), right) for source, right in asked]
