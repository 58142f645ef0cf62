"""A program that is asked in lines of JSON, arrays by file: it is given so many seconds for an answer, and is
ended when it does not keep to that.

Not here: what is asked (runner, isolated).
"""

import contextlib
import json
import os
import selectors
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from peref.errors import Damaged, Misuse, PerefError, printable
from peref.golden.judge.refusals import Refused
from peref.golden.judge.wire import room
from peref.golden.spec.files import Tensor, strict_json, tensors
from peref.store import NEW, opened_folder

LONGEST_LINE, LONGEST_MESSAGE, TAIL = 1 << 20, 4000, 2000
Words = Mapping[str, Any]
PART = 1 << 16  # bytes that are read at once


class RunnerBroken(PerefError):
    """The runner crashed, hung, or did not keep to the protocol."""

    kind = "runner"
    exit_code = 4


class Unable(PerefError):
    """The runner answered that it could not compute a case."""


@contextlib.contextmanager
def lent_folder() -> Iterator[tuple[Path, int]]:
    """A folder for a program, which goes with all that is in it, whatever the program did to it; and its
    descriptor, which leads there whatever its name means by then.
    """
    with tempfile.TemporaryDirectory(prefix="peref-", ignore_cleanup_errors=True) as outer:
        inner = Path(outer).resolve() / "run"
        inner.mkdir()
        with opened_folder(inner) as at:
            yield inner, at


def tensors_written(path: str | Path, most: int, at: int | None = None) -> dict[str, Tensor]:
    """The tensors of a file that another process wrote, in the folder with descriptor `at`. Raises
    RunnerBroken for anything but a plain file of at most so many bytes, and Damaged for what is in it.
    """
    name = Path(path).name
    try:
        about = os.stat(path, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise RunnerBroken(f"{name} is no plain file of its own in the run's folder")
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise RunnerBroken(f"it said ok, and wrote no {name} in the folder that it was given") from error
    if len(data) > most:
        said = f"{name} has {about.st_size:,} bytes; at most {most:,} are read of what was asked for"
        raise RunnerBroken(said)
    return tensors(data, name)


class Respondent:
    """A program that answers one case after the other, started anew for the next one where it ended. `lent`
    is its folder, see `lent_folder`; `hello` the first request, beside the folder; it has so many seconds for
    an answer. The last of its stderr is kept; `aloud`, all of it is also printed on ours.
    """

    def __init__(self, argv: list[str], lent: tuple[Path, int], seconds: float, hello: Words, aloud: bool):
        folder, self.at = lent
        self.argv, self.seconds, self.aloud = argv, seconds, aloud
        self.hello = {"cmd": "hello", **hello, "dir": str(folder)}
        self.seq = self.ended = 0
        self.skipped: dict[str, str] = {}  # case -> why
        self.child: Any = None
        self.line = self.tail = b""

    def start(self) -> dict[str, Any]:
        """Its first answer. Raises RunnerBroken, and Misuse where it cannot be started."""
        try:
            pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.child = subprocess.Popen(self.argv, **pipes, start_new_session=True)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Misuse(f"--cmd: {self.argv[0]} cannot be started: {why}") from error
        self.pipes = selectors.PollSelector()
        for pipe in (self.child.stdout, self.child.stderr):
            self.pipes.register(pipe, selectors.EVENT_READ)
        return self.ask(self.hello)

    def read(self, seconds: float) -> bool:
        """Take what it writes within so many seconds; whether it wrote anything, or closed a pipe."""
        ready = self.pipes.select(seconds)
        for pipe, _ in ready:
            part = os.read(pipe.fd, PART)
            if not part:
                self.pipes.unregister(pipe.fileobj)
            elif pipe.fileobj is self.child.stdout:
                self.line += part
            else:
                self.tail = (self.tail + part)[-TAIL:]
                if self.aloud:
                    with contextlib.suppress(OSError):
                        os.write(2, part)
        return bool(ready)

    def ask(self, request: Words) -> dict[str, Any]:
        """The answer to a request. Raises RunnerBroken."""
        self.say(request)
        end = time.monotonic() + self.seconds
        open_pipes = self.pipes.get_map()
        while b"\n" not in self.line and len(self.line) < LONGEST_LINE and self.child.stdout in open_pipes:
            if (left := end - time.monotonic()) <= 0 or not self.read(left):
                raise RunnerBroken(f"no answer within {self.seconds:g} s; ended")
        line, newline, self.line = self.line.partition(b"\n")
        if not (line or newline):
            raise RunnerBroken(f"it stopped, {self.code()}")
        try:
            if not newline:
                raise Damaged("its answer has no end")
            if isinstance(found := strict_json(line, "its answer"), dict):
                return found
            raise Damaged("its answer is no JSON object")
        except Damaged as error:
            began = repr(line[:80].decode("utf-8", errors="replace"))
            raise RunnerBroken(f"{error}: {began}") from error

    def say(self, request: Words) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has gone: reading tells how
            self.child.stdin.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
            self.child.stdin.flush()

    def ended_within(self, seconds: float) -> bool:
        """Whether it has ended by then; what it writes until that is taken."""
        end = time.monotonic() + seconds
        while self.child.poll() is None and time.monotonic() < end:
            self.read(0.02)
        return self.child.returncode is not None

    def code(self) -> str:
        """How it ended."""
        if not self.ended_within(1):
            return "its output closed while it ran on; ended"
        number = self.child.returncode
        return f"by signal {-number} ({signal.strsignal(-number)})" if number < 0 else f"exit code {number}"

    def close(self) -> str:
        """Stop it, and what it started, at once; the end of its stderr, "" where it does not run."""
        if self.child is None:
            return ""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except OSError:
            self.child.kill()
        self.child.wait()
        most = 32  # reads, for something it started elsewhere may still hold its pipes
        while most and self.read(0):
            most -= 1
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        words = printable(self.tail.decode("utf-8", errors="replace").strip())
        self.child, self.line, self.tail = None, b"", b""
        return f"; its stderr ends: {words}" if words else "; its stderr is empty"

    def exchange(
        self,
        case: Words,
        inputs: Words,
        request: Words,
        data: bytes,
        text: Callable[[Any], str] | None = None,
    ) -> dict[str, Tensor] | None:
        """The outputs of a case, None where it was skipped; its inputs go as a file and, where it is wanted,
        the request in lines as another.

        Raises Refused and Unable, under the name of what was `raised` where that is told; RunnerBroken, with
        the end of its stderr, and it has ended.
        """
        self.seq += 1
        files = {} if text is None else {"text": f"case-{self.seq}.txt"}
        files |= {way: f"{way}-{self.seq}.safetensors" for way in ("in", "out")}
        request = {"cmd": "case", "seq": self.seq, **files, **request}
        try:
            self.hand_over(files["in"], data)
            if text:
                self.hand_over(files["text"], text(request).encode())
            if self.child is None:
                self.start()
            answer = self.ask(request)
            words = lambda key: str(answer.get(key, ""))[:LONGEST_MESSAGE]
            if answer.get("seq") != self.seq or type(answer.get("seq")) is not int:
                raise RunnerBroken(f"it answered seq {words('seq')} where {self.seq} was asked")
            match answer.get("status"):
                case "ok":
                    return tensors_written(files["out"], room(case, inputs), self.at)
                case "skip":
                    self.skipped[case.get("id", "")] = words("reason") or "no reason given"
                    return None
                case "refused" | "error" as status:
                    kind: Any = Refused if status == "refused" else Unable
                    said = words("message") or f"{status}, without a message"
                    name = words("raised") if words("raised").isidentifier() else kind.__name__
                    raise type(name, (kind,), {})(said)
            raise RunnerBroken(f"its status is {words('status')!r}; expected ok, skip, refused or error")
        except RunnerBroken as error:
            self.ended += 1
            raise RunnerBroken(f"{error}{self.close()}") from error
        finally:
            for name in files.values():
                with contextlib.suppress(OSError):  # nothing there, or no file: it goes with the folder
                    os.unlink(name, dir_fd=self.at)

    def hand_over(self, name: str, data: bytes) -> None:
        """A new file for the program."""
        try:
            with open(os.open(name, NEW, 0o600, dir_fd=self.at), "wb") as file:
                file.write(data)
        except FileExistsError as error:
            raise RunnerBroken(f"it put a {name} of its own where its input goes") from error
        except FileNotFoundError as error:
            raise RunnerBroken("the folder that it was given has gone") from error
