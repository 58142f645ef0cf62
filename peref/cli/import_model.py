"""import: a published model becomes a run."""

import sys
from pathlib import Path

from peref.cli import options, text
from peref.cli.completion import RUNS
from peref.cli.found import cycles
from peref.cli.options import Document, Given
from peref.errors import Misuse, counted
from peref.evaluate import model_of
from peref.imported import import_run


@options.command("import")
@options.argument("folder", options.DIR)
@options.option("-o --output=RUN", "The folder of the new run.  [default: a new one in runs]", options.DIR)
@options.option("--dtype", "What the weights are kept in.", ["float32", "float64"], default="float32")
def command(given: Given) -> Document:
    """Make a run of the model in FOLDER: config.json, *.safetensors in float32, float16 or bfloat16, and
    tokenizer.json where there is one. eval, generate, show, trace and train --from take it; of an
    encoder and a decoder (T5) generate and trace.
    """
    root, name = Path(RUNS), None
    if given.output is not None:
        root, name = Path(given.output).parent, Path(given.output).name
        if Path(given.output).exists():
            raise Misuse(f"{given.output} is there already; choose a new folder")
    run = import_run(given.folder, root, sys.argv[1:], name=name, dtype=given.dtype)
    of, cfg = run.record["imported"], model_of(run)
    name, option = ("generate", "--prompt") if cfg.encoder else ("eval", "--data")
    said = {
        "model": f"{of['model_type']}, {counted(len(of['files']), 'file')} of {of['folder']}",
        **cycles(cfg),
        "run": str(run.folder),
        "next": text.command(name, run.folder, option, "TEXT"),
    }
    return {"run": str(run.folder), "imported": of, "config": run.record["config"]}, said
