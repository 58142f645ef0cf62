"""The group of commands. A command's module is imported when somebody asks for that command."""

from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from peref import share, version
from peref.cli.signals import Signals
from peref.errors import did_you_mean

COMMANDS = {  # name -> the module whose `command` it is, and what it does
    "train": ("train", "Train a small language model with an encoding, or resume a run."),
    "eval": ("evaluate", "Evaluate a run: loss by length and by position."),
    "compare": ("compare", "Train encodings alike and compare them at longer lengths."),
    "sweep": ("sweep", "Train and evaluate a grid, in processes or on a cluster."),
    "search": ("search", "Search RoPE's frequencies for longer text, as LongRoPE does."),
    "report": ("page_of_runs", "Write a page about runs: learning, loss, attention, parameters."),
    "import": ("import_model", "Make a run of a published model: config.json and safetensors."),
    "export": ("export_model", "Write an imported run as a published model."),
    "trace": ("trace", "Write every tensor of a forward pass, to compare an engine with."),
    "generate": ("generate", "Continue a prompt with a trained model."),
    "runs": ("runs", "List runs, or remove some."),
    "warmup": ("warmup", "Compile all kernels of the numba backend in advance."),
    "show": ("show", "Draw an encoding, or explain a public model's config.json."),
    "check": ("check", "Check tensors, a function or a program against the golden files."),
    "matrix": ("matrix", "Make one table of the reports of several implementations."),
    "diff": ("diff", "Compare two files or folders of tensors."),
    "explain": ("flags", "Explain a bug that `check` names."),
    "golden": ("golden", "Verify, show or pack golden files; make some for your own shape."),
    "list": ("listing", "List every encoding: hook, formula, options, parameters, paper."),
    "laws": ("laws", "Check gradients, causality and other laws of an encoding."),
    "data": ("data", "List the texts to train on."),
}


class Group(click.Group):
    """A group that says which commands it has where there is none of that name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = did_you_mean(args[0], known, f"expected one of: {', '.join(known)}")
            raise click.UsageError(f"there is no command '{args[0]}'{near}", ctx)
        return super().resolve_command(ctx, args)


class Commands(Group):
    """The table above as a click group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return import_module(f"peref.cli.{COMMANDS[name][0]}").command if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(name, help=short) for name, (_, short) in COMMANDS.items()]
        named = [item for item in items if item.value.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)


ABOUT = f"""The reference for how position enters a transformer. Check your implementation, compare
encodings, or read how one works.

Start with:  {share.program()} train --pe alibi --len 512
"""


def print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    """Looked up where it is asked for: that takes longer than most that a command imports."""
    if asked and not ctx.resilient_parsing:
        click.echo(f"peref, version {version()}")
        ctx.exit()


@click.group(
    cls=Commands,
    help=ABOUT,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.option(
    "--version",
    help="Show the version and exit.",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
)
@click.option("--traceback", is_flag=True, hidden=True, expose_value=False)
def group() -> None:
    """Every command stands in COMMANDS."""


def execute(args: Sequence[str], signals: Signals) -> int:
    """Run one command line; returns its exit code, raises what goes wrong."""
    if asked := share.from_environment(share.COMPLETE):
        from peref.cli.completion import answer

        return answer(group, asked)
    try:  # not group.main, which ends the process by itself when a pipe breaks
        with group.make_context(share.program(), list(args) or ["--help"], obj=signals) as ctx:
            group.invoke(ctx)
    except click.exceptions.Exit as end:  # after --help and --version
        return end.exit_code
    return 0
