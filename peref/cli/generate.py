"""generate: a trained model writes on from a prompt."""

import codecs
import os
import sys

import click
import numpy as np

from peref.cli import completion, options, text
from peref.cli.found import find_trained
from peref.generate import check_request, generate


@click.command("generate")
@click.argument("run", required=False, metavar="[RUN]", shell_complete=completion.runs)
@click.option("--prompt", default="static int ", show_default=True, help="The text to continue.")
@click.option("--tokens", default=200, show_default=True, help="Number of tokens (bytes) to generate.")
@click.option("--temperature", default=0.8, show_default=True, help="Sampling temperature; 0 always takes the likeliest byte.")
@click.option("--top-k", type=int, help="Sample from this many likeliest bytes only.  [default: all]")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
@options.runs_folder
@options.computing
@options.as_json
def command(
    run: str | None,
    prompt: str,
    tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    runs: str | None,
    backend: str,
    threads: int | None,
    every_tile: bool,
    as_json: bool,
) -> None:
    """Continue a prompt with the model of RUN, or of the newest run that has a checkpoint."""
    found, given = find_trained(run, runs), os.fsencode(prompt)
    check_request(found.cfg, np.frombuffer(given, np.uint8), tokens, temperature, top_k, seed, found.params["embed.weight"].dtype)
    be = found.backend(backend, threads, every_tile, lambda said: print(text.labelled("note", said), file=sys.stderr, flush=True))
    written = bytearray()
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def show(piece: str) -> None:
        if not as_json:
            print(piece, end="", flush=True)

    with np.errstate(all="ignore"):
        for token in generate(found.cfg, found.params, list(given), tokens, temperature=temperature, top_k=top_k, seed=seed, be=be):
            if not written:
                show(decoder.decode(given))
            written.append(token)
            show(decoder.decode(bytes([token])))
    show(decoder.decode(b"", final=True) + "\n")
    if as_json:
        whole = {"prompt": given.decode(errors="replace"), "text": written.decode(errors="replace"), "bytes": list(written)}
        settings = {"temperature": temperature, "top_k": top_k, "seed": seed, "backend": be.name}
        print(text.document({"run": str(found.run.folder), "step": found.step, **whole, **settings}))
