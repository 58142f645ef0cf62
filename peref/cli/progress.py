"""How far it is, on stderr: a tqdm bar on a terminal, else plain lines now and then. What cannot be shown is
left out: it ends no work and is not waited for.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from peref.cli.signals import Interrupted, Signals, takes

SECONDS = 10.0  # between two plain lines
# a narrow terminal cuts off what comes last
FORMAT = "{percentage:3.0f}% {n_fmt}/{total_fmt} {unit}{postfix} [{elapsed}<{remaining}] |{bar}|"


def draws() -> bool:
    """Whether stderr is a terminal that says how large it is; on one of no size tqdm shows nothing."""
    try:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        return terminal and 0 not in os.get_terminal_size(sys.stderr.fileno())
    except OSError:  # a terminal that has gone
        return False


def aside(text: str, file: TextIO | None) -> None:
    """Print `text` where a bar may be drawn: above it. `file` is None where it was closed."""
    if file is None:
        return
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(text, file=file)
    else:
        print(text, file=file)
    file.flush()


def discard(*streams: TextIO | None) -> None:
    """What is left in their buffers goes nowhere, and so does what follows: Python must not try it again at
    exit, and complain.
    """
    for stream in streams:
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress:
    """Counts `unit`s from `start` to `total`. Without a terminal, or `plain`, a line every SECONDS, and
    every `every` units if given. `deaf`: whoever read has left; `signals` may ask to stop.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        *,
        start: int = 0,
        every: int = 0,
        scaled: bool = False,
        plain: bool = False,
        signals: Signals | None = None,
    ) -> None:
        self.total, self.unit, self.every = total, unit, every
        self.count, self.said, self.last = start, start, time.monotonic()
        self.bar: Any = None
        self.deaf, self.signals = False, signals
        if not plain and draws():
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no thread beside the work
            what: dict[str, Any] = {"total": total, "initial": start, "unit": unit, "unit_scale": scaled}
            self.bar = tqdm(**what, bar_format=FORMAT, file=sys.stderr, dynamic_ncols=True, leave=False)

    def to(self, count: int, text: str = "") -> None:
        """`count` are done; `text` says how it goes."""
        step, self.count = count - self.count, count
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
            self.show(self.bar.update, step)
            return
        now = time.monotonic()
        if now - self.last >= SECONDS or (self.every and count // self.every > self.said // self.every):
            self.said, self.last = count, now
            self.line(f"{self.unit} {count:,}/{self.total:,}" + (f": {text}" if text else ""))

    def add(self, count: int) -> None:
        """`count` more are done."""
        self.to(self.count + count)

    def line(self, text: str) -> None:
        """A line of its own."""
        self.show(aside, text, sys.stderr)

    def stopping(self) -> bool:
        """Whether to end: after a signal, or where whoever read has left."""
        return self.deaf or bool(self.signals and self.signals.asked)

    def stop_if_asked(self, so_far: str = "") -> None:
        """Raises Interrupted where it is to end."""
        if self.stopping():
            asked = self.signals and self.signals.asked
            kept = "stopped; what is done is kept, and the same command goes on"
            raise Interrupted(asked or signal.SIGPIPE, kept + so_far)

    def show(self, write: Callable, *what: Any) -> None:
        """write(*what), if stderr takes it."""
        try:
            if takes(sys.stderr):
                write(*what)
        except BrokenPipeError:
            self.deaf = True
            discard(sys.stderr)
        except OSError:
            pass

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.show(self.bar.close)
