"""export: a run that was imported becomes a published model again."""

from pathlib import Path
from types import SimpleNamespace

import click

from peref.cli import completion, options, text
from peref.cli.found import find_trained
from peref.imported import export_run


@click.command("export", cls=options.Command)
@click.argument("run", shell_complete=completion.runs)
@click.option("-o", "--output", metavar="FOLDER", required=True, type=options.Folder(), help="A new folder.")
@click.option(
    "--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", help="What is written."
)
@options.as_json
@options.together
def command(given: SimpleNamespace) -> None:
    """Write RUN, which was imported or trained on from such a run, as config.json, model.safetensors and
    tokenizer.json under the public names, which transformers loads.
    """
    found = find_trained(given.run, None)
    folder = export_run(found.run, found.cfg, found.params, Path(given.output), given.dtype)
    data = {"run": str(found.run.folder), "step": found.step, "folder": str(folder), "dtype": given.dtype}
    text.emit(
        given.as_json, data, [text.labelled("written", f"{folder}, step {found.step:,}, {given.dtype}")]
    )
