"""import: a published model becomes a run."""

import sys
from pathlib import Path
from types import SimpleNamespace

import click

from peref.cli import options, text
from peref.cli.completion import RUNS
from peref.errors import Misuse, counted
from peref.imported import import_run


@click.command("import", cls=options.Command)
@click.argument("folder", type=options.Folder())
@click.option(
    "-o",
    "--output",
    metavar="RUN",
    type=options.Folder(),
    help="The folder of the new run.  [default: a new one in runs]",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    help="What the weights are kept in.",
)
@options.as_json
@options.together
def command(given: SimpleNamespace) -> None:
    """Make a run of the model in FOLDER: config.json, *.safetensors in float32, float16 or bfloat16, and
    tokenizer.json where there is one. eval, generate, show and train --from take it.
    """
    root, name = (
        (Path(RUNS), None) if given.output is None else (Path(given.output).parent, Path(given.output).name)
    )
    if given.output is not None and Path(given.output).exists():
        raise Misuse(f"{given.output} is there already; choose a new folder")
    run = import_run(given.folder, root, sys.argv[1:], name=name, dtype=given.dtype)
    record = run.record
    files = counted(len(record["imported"]["files"]), "file")
    said = [
        text.labelled("model", f"{record['imported']['model']}, {files} of {record['imported']['folder']}"),
        text.labelled("encoding", text.cycle(record["config"]["pe"])),
        text.labelled("run", str(run.folder)),
        text.labelled("next", text.command("eval", run.folder, "--data", "TEXT")),
    ]
    text.emit(
        given.as_json, {"run": str(run.folder), **{key: record[key] for key in ("imported", "config")}}, said
    )
