"""export: a run that was imported becomes a published model again."""

from pathlib import Path

from peref.cli import options
from peref.cli.found import weights_found
from peref.cli.options import Document, Given
from peref.imported import export_run
from peref.runs import open_run


@options.command("export")
@options.argument("run", options.RUN)
@options.own_encodings
@options.option("-o --output", "A new folder.", options.DIR, required=True)
@options.option("--dtype", "What is written.", ["float32", "bfloat16"], default="float32")
def command(given: Given) -> Document:
    """Write an imported RUN, or one trained on from it, as config.json, model.safetensors and tokenizer.json,
    which transformers loads.
    """
    found = weights_found(open_run(given.run), pairs=True)
    folder = export_run(found.run, found.cfg, found.params, Path(given.output), given.dtype)
    data = {"run": str(found.run.folder), "step": found.step, "folder": str(folder), "dtype": given.dtype}
    return data, {"written": f"{folder}, step {found.step:,}, {given.dtype}"}
