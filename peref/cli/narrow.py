"""Options that narrow golden cases to some flags, levels and encodings: check and golden show have them."""

from collections.abc import Callable

from peref.cli import completion, options
from peref.golden.spec.cases import LEVELS

LEVEL_NAMES = (*LEVELS, "refuse", "law")


def narrowed(command: Callable) -> Callable:
    """A command with --flag, --level and --pe, which are handed to it as flags, levels and encodings."""
    help = "Only cases with such a flag, as 'rope.layout.*'."
    flag = options.patterns("--flag", "flags", help, shell_complete=completion.flags)
    help = f"Only this level: {', '.join(LEVEL_NAMES[:-1])} or {LEVEL_NAMES[-1]}."
    words = lambda ctx, param, incomplete: completion.beginning(incomplete, LEVEL_NAMES)
    how = {"metavar": "LEVEL", "callback": None, "shell_complete": words}
    level = options.patterns("--level", "levels", help, **how)
    pe = options.patterns(
        *("--pe", "encodings", "Only this encoding."), metavar="NAME", callback=None, type=options.ENCODINGS
    )
    return flag(level(pe(command)))
