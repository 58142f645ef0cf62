"""generate: a trained model writes on from a prompt."""

import codecs
import os
import sys
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from peref.cli import completion, options, text
from peref.cli.found import backend_of, find_trained
from peref.evaluate import differing, under
from peref.generate import check_generation, generate
from peref.parameters import check


@click.command("generate", cls=options.Command)
@click.argument("run", required=False, metavar="[RUN]", shell_complete=completion.runs)
@click.option("--prompt", default="static int ", help="The text to continue.")
@click.option("--tokens", default=200, help="Number of tokens (bytes) to generate.")
@click.option("--temperature", default=0.8, help="Sampling temperature; 0 always takes the likeliest byte.")
@click.option("--top-k", type=int, help="Sample from this many likeliest bytes only.  [default: all]")
@click.option("--seed", default=0, help="Random seed.")
@options.of_a_run
@options.together
def command(given: SimpleNamespace) -> None:
    """Continue a prompt with the model of RUN, or of the newest run that has a checkpoint."""
    found, prompt = find_trained(given.run, given.runs, given.pe), os.fsencode(given.prompt)
    cfg = under(found.cfg, given.pe, given.settings)
    check(cfg, found.params)
    sampling: dict[str, Any] = {"temperature": given.temperature, "top_k": given.top_k, "seed": given.seed}
    check_generation(cfg, np.frombuffer(prompt, np.uint8), given.tokens, **sampling, dtype=found.dtype)
    note = lambda said: print(text.labelled("note", said), file=sys.stderr, flush=True)
    for words in differing(found.run):
        note(words)
    be = backend_of(given, found.dtype, note)
    written = bytearray()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def show(piece: str) -> None:
        if not given.as_json:
            print(piece, end="", flush=True)

    with np.errstate(all="ignore"):
        for token in generate(cfg, found.params, list(prompt), given.tokens, **sampling, be=be):
            if not written:
                show(decoder.decode(prompt))
            written.append(token)
            show(decoder.decode(bytes([token])))
    show(decoder.decode(b"", final=True) + "\n")
    about: dict[str, Any] = {"run": str(found.run.folder), "step": found.step, "bytes": list(written)}
    about |= {"prompt": prompt.decode(errors="replace"), "text": written.decode(errors="replace")}
    text.emit(given.as_json, about | sampling | {"backend": be.name}, [])
