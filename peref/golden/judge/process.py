"""A program that is asked in lines of JSON, arrays by file: it is given so many seconds for an answer, and is
ended when it does not keep to that.

Not here: what is asked (runner, isolated).
"""

import contextlib
import json
import os
import queue
import signal
import stat
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from peref.errors import Damaged, Misuse, PerefError, printable
from peref.golden.judge.wire import room
from peref.golden.spec.files import Tensor, strict_json, tensors

LONGEST_LINE, TAIL = 1 << 20, 2000


class RunnerBroken(PerefError):
    """The runner crashed, hung, or did not keep to the protocol."""

    kind = "runner"
    exit_code = 4


class Process:
    """A running program with lines in and out. The last of its stderr is kept; `aloud`, all of it is also
    printed on ours.
    """

    def __init__(self, argv: list[str], seconds: float, aloud: bool = False):
        self.seconds, self.argv, self.aloud = seconds, argv, aloud
        try:
            pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.child: Any = subprocess.Popen(argv, **pipes, start_new_session=True)
        except (OSError, ValueError) as error:
            raise Misuse(
                f"--cmd: {argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
            ) from error
        self.lines: queue.Queue[bytes] = queue.Queue(4)
        self.tail: deque[bytes] = deque(maxlen=TAIL)
        pumps = (self.read_lines, self.read_tail)
        self.pumps = [threading.Thread(target=pump, daemon=True) for pump in pumps]
        for pump in self.pumps:
            pump.start()

    def read_lines(self) -> None:
        line = b"."
        while line:
            line = self.child.stdout.readline(LONGEST_LINE)
            self.lines.put(line)

    def read_tail(self) -> None:
        while part := os.read(self.child.stderr.fileno(), 4096):
            self.tail.extend(part[n : n + 1] for n in range(len(part)))
            if self.aloud:
                with contextlib.suppress(OSError):
                    os.write(2, part)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises Broken."""
        self.say(request)
        try:
            line = self.lines.get(timeout=self.seconds)
        except queue.Empty:
            self.end()
            raise RunnerBroken(f"no answer within {self.seconds:g} s; ended{self.said()}") from None
        if not line:
            raise RunnerBroken(f"it stopped, {self.code()}{self.said()}")
        wrong = "" if line.endswith(b"\n") else "its answer has no end"
        try:
            found = None if wrong else strict_json(line, "its answer")
        except Damaged as error:
            wrong = str(error)
        if not wrong and isinstance(found, dict):
            return found
        self.end()
        began = repr(line[:80].decode("utf-8", errors="replace"))
        raise RunnerBroken(f"{wrong or 'its answer is no JSON object'}: {began}{self.said()}")

    def say(self, request: Mapping[str, Any], last: bool = False) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has gone: reading tells how
            self.child.stdin.write(json.dumps(request, separators=(",", ":")).encode() + b"\n")
            self.child.stdin.flush()
            if last:
                self.child.stdin.close()

    def code(self) -> str:
        """How it ended."""
        try:
            number = self.child.wait(1)
        except subprocess.TimeoutExpired:
            self.end()
            return "its output closed while it ran on; ended"
        return f"by signal {-number} ({signal.strsignal(-number)})" if number < 0 else f"exit code {number}"

    def said(self) -> str:
        """The end of its stderr."""
        self.pumps[1].join(0.5)
        words = printable(b"".join(self.tail).decode("utf-8", errors="replace").strip())
        return f"; its stderr ends: {words}" if words else "; its stderr is empty"

    def end(self) -> None:
        """Stop it, and what it started, at once."""
        try:
            os.killpg(self.child.pid, signal.SIGKILL)
        except OSError:
            self.child.kill()
        self.child.wait()
        # the pumps come to an end unless something it started elsewhere still holds its pipes
        for _ in range(100):
            if not any(pump.is_alive() for pump in self.pumps):
                break
            with contextlib.suppress(queue.Empty):
                self.lines.get(timeout=0.01)
        else:
            return
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def lent_folder() -> Iterator[Path]:
    """A folder for a program, which goes with all that is in it, whatever the program did to it."""
    with tempfile.TemporaryDirectory(prefix="peref-", ignore_cleanup_errors=True) as outer:
        inner = Path(outer).resolve() / "run"
        inner.mkdir()
        yield inner


def tensors_written(path: Path, most: int) -> dict[str, Tensor]:
    """The tensors of a file that another process wrote. Raises RunnerBroken for anything but a plain file of
    at most so many bytes, and Damaged for what is in it.
    """
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
            raise RunnerBroken(f"{path.name} is no plain file of its own in the run's folder")
        with open(os.open(path, os.O_RDONLY | careful), "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise RunnerBroken(f"it said ok, and wrote no {path.name}") from error
    if len(data) > most:
        said = f"{path.name} has {about.st_size:,} bytes; at most {most:,} are read of what was asked for"
        raise RunnerBroken(said)
    return tensors(data, path.name)


class Respondent(ABC):
    """A program that answers one case after the other, started anew for the next one where it ended."""

    def __init__(self, argv: list[str], folder: Path, seconds: float, hello: Mapping[str, Any], aloud: bool):
        self.argv, self.folder, self.seconds, self.aloud = argv, folder.resolve(), seconds, aloud
        self.place = self.folder.lstat()
        self.hello = {"cmd": "hello", **hello, "dir": str(self.folder)}
        self.seq = self.ended = 0
        self.process: Process | None = None

    @abstractmethod
    def greeted(self, answer: Mapping[str, Any]) -> None:
        """Raises what is to be said of a first answer that is none."""

    @abstractmethod
    def answered(self, answer: Mapping[str, Any], outputs: Callable[[], dict[str, Tensor]]) -> Any:
        """What the answer on a case brings; its outputs are read when they are asked for."""

    def start(self) -> None:
        self.process = Process(self.argv, self.seconds, self.aloud)
        try:
            self.greeted(self.process.ask(self.hello))
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if self.process:
            self.process.end()
        self.process = None

    def check_place(self) -> None:
        """Raises RunnerBroken where the folder is another than it was: nothing is written or removed
        elsewhere.
        """
        try:
            now = self.folder.lstat()
        except OSError as error:
            raise RunnerBroken(f"its folder {self.folder} has gone") from error
        if (now.st_dev, now.st_ino) != (self.place.st_dev, self.place.st_ino):
            raise RunnerBroken(f"its folder {self.folder} is another than it was given")

    def written(self, name: str, most: int) -> dict[str, Tensor]:
        """The tensors of a file that the program wrote."""
        self.check_place()
        return tensors_written(self.folder / name, most)

    def exchange(
        self,
        case: Mapping[str, Any],
        inputs: Mapping[str, Any],
        request: Mapping[str, Any],
        data: bytes,
        text: Callable[[Any], str] | None = None,
    ) -> Any:
        """What the answer on a case brings; its inputs go as a file and, where it is wanted, the request in
        lines as another. Raises RunnerBroken, and the program has ended.
        """
        self.seq += 1
        files = {} if text is None else {"text": f"case-{self.seq}.txt"}
        files |= {way: f"{way}-{self.seq}.safetensors" for way in ("in", "out")}
        request = {"cmd": "case", "seq": self.seq, **files, **request}
        try:
            self.check_place()
            self.hand_over(files["in"], data)
            if text:
                self.hand_over(files["text"], text(request).encode())
            if self.process is None:
                self.start()
            assert self.process is not None
            outputs = partial(self.written, files["out"], room(case, inputs))
            return self.answered(self.process.ask(request), outputs)
        except RunnerBroken:
            self.end()
            self.ended += 1
            raise
        finally:
            with contextlib.suppress(RunnerBroken):
                self.check_place()
                for name in files.values():
                    with contextlib.suppress(OSError):  # nothing there, or no file: it goes with the folder
                        (self.folder / name).unlink()

    def hand_over(self, name: str, data: bytes) -> None:
        """A new file for the program."""
        try:
            with open(self.folder / name, "xb") as file:
                file.write(data)
        except FileExistsError as error:
            raise RunnerBroken(f"it put a {name} of its own where its input goes") from error
