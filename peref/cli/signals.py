"""The signals that end a command in order, and the exit code that tells which. Imports nothing that takes
time.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

SIGNAL_WORDS = {  # peref.__main__ minds the same ones
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal or the connection was closed",
    signal.SIGUSR1: "asked to stop by SIGUSR1",
    signal.SIGXCPU: "the limit of CPU time is reached",
}
STOPPING = b"\nstopping: this step is finished and saved first; Ctrl-C now leaves at once\n"


class Interrupted(BaseException):
    """A signal asked the command to end. `details` go beside the error in --json output."""

    def __init__(self, number: int, message: str = "", **details: Any) -> None:
        words = SIGNAL_WORDS.get(number, f"signal {number}")  # type: ignore[call-overload]
        super().__init__(message or words)
        self.number = number
        self.details = details


class Signals:
    """What arrived. The first signal raises Interrupted, unless somebody is gentle. What insists ends the
    process: SIGINT after any other, SIGTERM after itself. The rest may come in pairs, as SIGHUP does, or
    every second, as SIGXCPU. What was interrupted is not freed while Python runs: where LLVM had just linked
    a module, llvmlite would free it again.
    """

    rising: Interrupted | None = None  # kept, and with it what it interrupted

    def __init__(self) -> None:
        self.asked = 0  # the signal that asked to stop gently
        self.leaving = 0  # the signal that made Interrupted rise, -1 once the command is over
        self.gentle = False

    def install(self) -> None:
        """Take over the signals, but none that this process was told to ignore (nohup, a shell's background
        job).
        """
        for number in SIGNAL_WORDS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.handle)

    def handle(self, number: int, frame: Any) -> None:
        """Nothing in here waits or fails: what it interrupts must go on."""
        before = self.leaving or self.asked
        if before and number != signal.SIGINT and (number, before) != (signal.SIGTERM, signal.SIGTERM):
            return
        if self.leaving:
            os._exit(128 + number)
        if is_lost(frame):
            threading.Timer(0.02, os.kill, (os.getpid(), number)).start()
            return
        if self.gentle and not self.asked:
            self.asked = number
            tell(STOPPING)
            return
        self.leaving = number
        self.rising = Interrupted(number)
        raise self.rising

    @contextlib.contextmanager
    def gently(self) -> Iterator[None]:
        """Inside, the first signal only sets `asked`."""
        self.gentle = True
        try:
            yield
        finally:
            self.gentle = False


def is_lost(frame: Any) -> bool:
    """Whether what rises here is dropped: LLVM waits for what was interrupted, and would get nothing; or an
    object is freed, and Python would print a traceback and go on.
    """
    while frame and not frame.f_code.co_name.startswith(("_raw_object_cache", "__del__")):
        frame = frame.f_back
    return frame is not None


def takes(stream: Any) -> bool:
    """Whether a line can be written there without waiting for who reads; True for what is no file."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return bool(select.select([], [stream.fileno()], [], 0)[1])
    return True


def tell(line: bytes) -> None:
    """A line on stderr, where somebody can read it now. sys.stderr is None where it was closed: descriptor 2
    may then be any file of ours.
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):
        if takes(sys.stderr):
            os.write(sys.stderr.fileno(), line)
