"""SIGINT and SIGTERM: an orderly end, and the exit code that tells which. Imports nothing that takes time."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

SIGNAL_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupted(BaseException):
    """A signal asked the command to end. `details` go beside the error in --json output."""

    def __init__(self, number: int, message: str = "", **details: Any) -> None:
        words = SIGNAL_WORDS.get(number, f"signal {number}")  # type: ignore[call-overload]
        super().__init__(message or words)
        self.number = number
        self.details = details


class Signals:
    """What arrived. The first signal raises Interrupted, unless somebody is gentle; one that comes while
    leaving ends the process.
    """

    def __init__(self) -> None:
        self.asked = 0  # the signal that asked to stop gently
        self.leaving = 0  # the signal that made Interrupted rise
        self.gentle = False

    def install(self) -> None:
        """Take over SIGINT and SIGTERM, but not one that this process was told to ignore (a shell's
        background job).
        """
        for number in SIGNAL_WORDS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.handle)

    def handle(self, number: int, frame: Any) -> None:
        if self.leaving:
            os._exit(128 + number)
        if self.gentle and not self.asked:
            self.asked = number
            os.write(
                2,
                b"\nstopping: this step is finished and saved first; the same signal again leaves at once\n",
            )
            return
        self.leaving = number
        raise Interrupted(number)

    @contextlib.contextmanager
    def gently(self) -> Iterator[None]:
        """Inside, the first signal only sets `asked`."""
        self.gentle = True
        try:
            yield
        finally:
            self.gentle = False
