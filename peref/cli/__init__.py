"""The commands: arguments in, text out, no maths. Only this package imports click and tqdm, and it imports
both when they are needed.

main() is the command, started by peref.__main__; run() is the same for one list of arguments and returns the
exit code:

    0 done      1 failed, or differs      2 misuse
    130 interrupted (SIGINT)      141 whoever read the output left (SIGPIPE)      143 terminated (SIGTERM)

What goes wrong is one line on stderr, or with --json one document {"error": {"kind", "message"}} on stdout,
and never a traceback. Who reads the output and leaves, as `head` does, is told nothing.
"""

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from peref.cli.signals import Interrupted, Signals
from peref.errors import PerefError


def main() -> None:
    """The command: run() on the arguments of the process, minding signals."""
    signals = Signals()
    try:
        signals.install()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        code = run(sys.argv[1:], signals)
    except (Interrupted, KeyboardInterrupt) as error:  # before or after run() minds them
        code = explain(error)[2]
    sys.exit(code)


def run(args: Sequence[str], signals: Signals) -> int:
    """Run one command line and return its exit code; every error becomes one message."""
    try:
        from peref.cli.app import execute

        code = execute(args, signals)
        if sys.stdout is not None:
            sys.stdout.flush()
        if signals.leaving:  # the exception was lost in a place where Python drops them
            raise Interrupted(signals.leaving)
        return code
    except BaseException as error:
        return report(error, args)


def report(error: BaseException, args: Sequence[str]) -> int:
    """Say what went wrong, and return the exit code that belongs to it."""
    kind, message, code = explain(error)
    message = " ".join(message.split())
    if isinstance(error, BrokenPipeError):
        discard()
        return code
    said = message if kind == "interrupted" else f"error: {message}"
    try:
        if "--traceback" in args:
            traceback.print_exception(error)
        if "--json" in args:
            details: dict[str, Any] = getattr(error, "details", {})
            print(json.dumps({"error": {"kind": kind, "message": message}} | details, indent=2))
        else:
            print(said, file=sys.stderr)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        if "--json" in args:
            with contextlib.suppress(OSError):
                print(said, file=sys.stderr)
        discard()
    return code


def discard() -> None:
    """What is left in the buffers goes nowhere: Python must not try it again at exit, and complain."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def explain(error: BaseException) -> tuple[str, str, int]:
    """The kind, the message and the exit code of an error."""
    if isinstance(error, PerefError):
        return error.kind, str(error), error.exit_code
    if isinstance(error, Interrupted):
        return "interrupted", str(error), 128 + error.number
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted", 130
    if isinstance(error, MemoryError):
        return (
            "failed",
            (
                f"not enough memory ({str(error) or 'no details'}); try a smaller --len, --batch, --width or "
                "--layers"
            ),
            1,
        )
    if isinstance(error, BrokenPipeError):
        return "failed", "whoever read the output has left", 128 + signal.SIGPIPE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return "failed", f"{where}{error.strerror or error}; check space, permissions and the folder", 1
    return explain_click(error)


def misused(error: Any) -> str:
    """A click.UsageError in words of ours where click's do not say what to do."""
    import click

    if isinstance(error, click.NoSuchOption):
        near = " or ".join(f"'{option}'" for option in error.possibilities or ())
        return f"there is no option '{error.option_name}'" + (f"; did you mean {near}?" if near else "")
    if isinstance(error, click.MissingParameter) and error.ctx:
        usage = " ".join([error.ctx.command_path, *error.ctx.command.collect_usage_pieces(error.ctx)])
        return f"an argument is missing; expected: {usage}"
    if isinstance(error, click.BadParameter) and error.param:
        where = error.param.get_error_hint(error.ctx).replace("'", "")
        return f"{where}: {error.message}"
    if isinstance(error, click.BadOptionUsage) and "requires" in error.message:
        return f"{error.option_name} has no value; say it after the option: {error.option_name} VALUE"
    return error.format_message()


def explain_click(error: BaseException) -> tuple[str, str, int]:
    """As explain(), for what click raises, and for all that nobody meant to raise."""
    with contextlib.suppress(ImportError):
        import click

        if isinstance(error, click.exceptions.NoArgsIsHelpError) and error.ctx:
            within = ", ".join(getattr(error.ctx.command, "commands", ()))
            return (
                "misuse",
                f"{error.ctx.command_path} wants a command: {within} (see: {error.ctx.command_path} --help)",
                2,
            )
        if isinstance(error, click.UsageError):
            see = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
            return "misuse", misused(error).rstrip(".") + see, 2
        if isinstance(error, click.ClickException):
            return "failed", error.format_message(), 1
    from peref import modules, share

    if own := modules.everyone():  # then somebody else's text has had a part in it
        what = (
            f"{type(error).__name__}: {error}, with {', '.join(own)} not of peref (`--traceback` shows where)"
        )
        look = f"to see what is wrong with it: {share.program()} laws {next(iter(own.values()))}"
        return "misuse", f"{modules.blamed(error) or what}; {look}", 2
    why = f"internal error: {type(error).__name__}: {error}"
    return (
        "internal",
        (
            f"{why}; this is a bug in peref: please report it, with what the same command says after "
            "`--traceback`"
        ),
        1,
    )
