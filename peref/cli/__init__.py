"""The commands: arguments in, text out, no maths. Only this package imports click and tqdm, and it imports
both when they are needed.

main() is the command, started by peref.__main__; run() is the same for one list of arguments and returns the
exit code:

    0 done      1 failed, or differs      2 misuse
    130 interrupted (SIGINT)      141 whoever read the output left (SIGPIPE)      143 terminated (SIGTERM)
    129 SIGHUP      138 SIGUSR1      152 SIGXCPU, where these are not ignored (128 and their number)

What goes wrong is one line on stderr, or with --json one document {"error": {"kind", "message"}} on stdout,
and never a traceback. Who reads the output and leaves, as `head` does, is told nothing.
"""

import contextlib
import io
import json
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from peref.cli.progress import discard
from peref.cli.signals import Interrupted, Signals, takes
from peref.errors import Misuse, PerefError, printable
from peref.share import address_space, allowed_cores, blas_threads, within_limit

LEAST_SPACE, OF_A_THREAD = 170_000_000, 48_000_000  # bytes that NumPy, OpenBLAS and Matplotlib take, measured
MOST_THREADS = 64  # of the OpenBLAS that comes with NumPy
# what NumPy says where it cannot even ask for so much
BEYOND_ALL = ("Maximum allowed dimension", "array is too big", "iterator is too large")


def main() -> None:
    """The command: run() on the arguments of the process, minding signals."""
    signals = Signals()
    try:
        signals.install()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        code = run(sys.argv[1:], signals)
        signals.leaving = signals.leaving or -1
    except (Interrupted, KeyboardInterrupt) as error:  # before or after run() minds them
        code = explain(error)[2]
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:  # a full disk: Python would try it again, and exit with 120
        discard(sys.stderr)
    sys.exit(code)


def run(args: Sequence[str], signals: Signals) -> int:
    """Run one command line and return its exit code; every error becomes one message."""
    try:
        check_room()
        from peref.cli.app import execute

        code = execute(args, signals)
        if sys.stdout is not None:
            sys.stdout.flush()
        if signals.leaving:  # the exception was lost in a place where Python drops them
            raise Interrupted(signals.leaving)
        return code
    except BaseException as error:
        return report(error, args)


def check_room() -> None:
    """Raises Misuse where NumPy finds too little room: its BLAS would end the process by itself, or send it
    SIGINT.
    """
    limit, asked = address_space(), blas_threads()
    threads = min(asked if isinstance(asked, int) else 1, allowed_cores(), MOST_THREADS)
    needed = LEAST_SPACE + OF_A_THREAD * threads
    if limit is not None and limit < needed:
        raise Misuse(f"NumPy and its BLAS need {needed / 1e6:,.0f} MB of address space{within_limit()}")


def report(error: BaseException, args: Sequence[str]) -> int:
    """Say what went wrong, and return the exit code that belongs to it."""
    kind, message, code = explain(error)
    message = printable(" ".join(message.split()))
    if isinstance(error, BrokenPipeError):
        discard(sys.stdout, sys.stderr)
        return code
    said = message if kind == "interrupted" else f"error: {message}"
    try:
        if "--traceback" in args:
            traceback.print_exception(error)
        if "--json" in args:
            details: dict[str, Any] = getattr(error, "details", {})
            print(json.dumps({"error": {"kind": kind, "message": message}} | details, indent=2))
        elif takes(sys.stderr) or not isinstance(error, Interrupted):  # who was asked to end waits for nobody
            print(said, file=sys.stderr)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        if "--json" in args:
            with contextlib.suppress(OSError):
                print(said, file=sys.stderr)
        discard(sys.stdout, sys.stderr)
    return code


def explain(error: BaseException) -> tuple[str, str, int]:
    """The kind, the message and the exit code of an error."""
    if isinstance(error, PerefError):
        return error.kind, str(error), error.exit_code
    if isinstance(error, Interrupted):
        return "interrupted", str(error), 128 + error.number
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted", 130
    if (beyond := within_limit()) and (isinstance(error, ImportError) or while_importing(error)):
        said = str(error).strip() or type(error).__name__
        return "misuse", f"a library cannot be loaded ({said.splitlines()[-1]}){beyond}", 2
    if isinstance(error, MemoryError) or str(error).startswith(BEYOND_ALL):
        what = f"not enough memory ({str(error) or 'no details'})"
        less = "try a smaller --len, --batch, --width or --layers"
        return "failed", f"{what}{beyond}; {less}", 1
    if isinstance(error, BrokenPipeError):
        return "failed", "whoever read the output has left", 128 + signal.SIGPIPE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return "failed", f"{where}{error.strerror or error}; check space, permissions and the folder", 1
    with contextlib.suppress(ImportError):
        import click

        if isinstance(error, click.UsageError):
            return "misuse", misused(error), 2
        if isinstance(error, click.ClickException):
            return "failed", error.format_message(), 1
    from peref import modules, share

    what = f"{type(error).__name__}: {error}"
    if own := modules.everyone():  # then somebody else's text has had a part in it
        with_them = f"{what}, with {', '.join(own)} not of peref (`--traceback` shows where)"
        said = modules.blamed(error) or with_them
        look = f"{share.program()} laws {next(iter(own.values()))}"
        return "misuse", f"{said}; to see what is wrong with it: {look}", 2
    if isinstance(error, ModuleNotFoundError) and f"{error.name}".partition(".")[0] != "peref":
        use = f"activate the environment that peref was installed in, or: {share.install('')}"
        return "misuse", f"{error.name} is not installed for {sys.executable}; {use}", 2
    report = "please report it, with what the same command says after `--traceback`"
    return "internal", f"internal error: {what}; this is a bug in peref: {report}", 1


def while_importing(error: BaseException) -> bool:
    """Whether it arose where a module was loaded: for want of room it may be of any kind."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename.startswith("<frozen importlib") for frame, _ in frames)


def misused(error: Any) -> str:
    """A click.UsageError and where to look, in our words where click's vary or do not say what to do."""
    import click

    see = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
    said = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        commands = ", ".join(getattr(error.ctx.command, "commands", ()))
        said = f"{error.ctx.command_path} wants a command: {commands}"
    elif isinstance(error, click.NoSuchOption):
        near = " or ".join(f"'{option}'" for option in error.possibilities or ())
        said = f"there is no option '{error.option_name}'" + (f"; did you mean {near}?" if near else "")
    elif isinstance(error, click.BadOptionUsage) and "requires" in error.message:
        said = f"{error.option_name} has no value; say it after the option: {error.option_name} VALUE"
    elif isinstance(error, click.MissingParameter) and error.ctx:
        said += f"; expected: {error.ctx.get_usage().removeprefix('Usage: ')}"
    return said + see
