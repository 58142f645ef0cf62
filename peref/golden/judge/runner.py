"""Somebody's program held against the golden files: it is asked over stdin, answers over stdout, and arrays
go by file.

One JSON object a line, without blanks and with its keys in the order shown, so that a program without a JSON
library finds its way:

    > {"cmd":"hello","protocol":1,"spec":"0.11.0","dir":"/tmp/run"}
    < {"ok":true,"implementation":{"name":"mine"},
       "supports":{"ops":["rope.table","rope.op"],"dtypes":["f32"],"vjp":false}}
    > {"cmd":"case","seq":7,"text":"case-7.txt","in":"in-7.safetensors","out":"out-7.safetensors",
       "id":"rope.op/long","dtype":"f32",...}
    < {"seq":7,"status":"ok"}
       or "skip" with a reason, "refused" with kind and message, "error" with a message
    > {"cmd":"bye"}

Files are in `dir`. case-7.txt has the same words a line each (text_of). A runner is told names of outputs and
never a number that is expected. What `supports` may say: ops, dtypes, vjp (default true), max_position,
refusals (default false: calls that must be refused are sent if true). A crash, a broken protocol or more than
`seconds` for an answer: the process is ended and started once more; the second time the run is over.

Not here: comparing what came (report), what must be refused (refusals).
"""

import contextlib
import shlex
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peref.encodings import get
from peref.errors import Misuse, PerefError
from peref.golden import SPEC_VERSION
from peref.golden.judge.process import Process, RunnerBroken
from peref.golden.judge.refusals import Refused
from peref.golden.judge.wire import encoded_inputs, request_text
from peref.golden.spec.files import Tensor, tensors
from peref.golden.spec.schema import misfit
from peref.store import read_bytes

PROTOCOL = 1
SECONDS = 30.0
LARGEST_OUTPUT = 1 << 30
OUTPUTS = {
    ("embed", "table"): ("rows",),
    ("embed", "op"): ("y",),
    ("rotate", "table"): ("angle", "cos", "sin"),
    ("rotate", "op"): ("q_rotated", "k_rotated"),
    ("bias", "table"): ("bias",),
    ("bias", "op"): ("bias",),
    ("score", "op"): ("term",),
    ("mix", "op"): ("y",),
}


def outputs_of(case: Mapping[str, Any]) -> tuple[str, ...]:
    """What to ask for where a case, one that must be refused, does not say."""
    return OUTPUTS.get((get(case["encoding"]).hook, case.get("call", case["level"])), ("out",))


TEXTS = {"type": "array", "items": {"type": "string"}}
HELLO = {  # what a first answer must be
    "type": "object",
    "required": ["ok"],
    "properties": {
        "ok": {"const": True},
        "implementation": {"type": "object"},
        "supports": {
            "type": "object",
            "properties": {
                **{"ops": TEXTS, "dtypes": TEXTS, "max_position": {"type": "number"}},
                **{"refusals": {"type": "boolean"}, "vjp": {"type": "boolean"}},
            },
        },
    },
}


class Unable(PerefError):
    """The runner answered that it could not compute a case."""


class Runner:
    """A command as function(case, inputs) -> outputs, None for a case that it does not claim; use in a
    `with`.

    Inputs are given in float64 and handed over in `dtype`. Raises Misuse for a command that cannot be
    started, Broken where its first answer is none, Unable for a case that it cannot compute and Refused for
    one that it refuses. `crashes` and `skipped` say what happened to the others.
    """

    def __init__(self, command: str, folder: Path, dtype: str = "f64", seconds: float = SECONDS):
        try:
            self.argv = shlex.split(command)
        except ValueError as error:
            raise Misuse(f"--cmd {command}: {error}") from error
        if not self.argv:
            raise Misuse("--cmd is empty; expected a program and its arguments")
        self.command, self.folder, self.dtype, self.seconds = command, folder.resolve(), dtype, seconds
        self.seq = self.ended = 0
        self.crashes: dict[str, str] = {}  # case -> how the program failed there
        self.skipped: dict[str, str] = {}
        self.process = self.start()

    def start(self) -> Process:
        process = Process(self.argv, self.seconds)
        try:
            hello = {"cmd": "hello", "protocol": PROTOCOL, "spec": SPEC_VERSION, "dir": str(self.folder)}
            self.supports = supported(process.ask(hello))
        except RunnerBroken as error:
            process.end()
            raise RunnerBroken(self.named(f"asked hello: {error}")) from error
        except BaseException:
            process.end()
            raise
        return process

    def named(self, words: object) -> str:
        """What the program did, behind the command that it is."""
        return f"--cmd {shlex.quote(self.command)}: {words}"

    def again(self) -> None:
        try:
            self.process = self.start()
        except RunnerBroken as error:
            self.crashes["hello"] = f"{error} (started once more)"
            self.ended += 1

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: Any, *more: Any) -> None:
        process = self.process
        if process.child.poll() is None and kind is None:
            process.say({"cmd": "bye"}, last=True)
            try:
                process.child.wait(5)
            except subprocess.TimeoutExpired:
                self.crashes["bye"] = self.named("asked bye: it did not end within 5 s")
            if process.child.returncode:
                said = f"asked bye: {process.code()} at its end{process.said()}"
                self.crashes["bye"] = self.named(said)
        process.end()

    def claims(self, case: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
        """Whether it said in its first answer that it does such cases."""
        can, level = self.supports, case.get("call", case["level"])
        places = (inputs[name] for name in ("positions", "distances") if name in inputs)
        reach = max((float(np.abs(x).max(initial=0)) for x in places), default=0.0)
        return (
            (case["level"] != "refuse" or can.get("refusals", False))
            and ("ops" not in can or f"{case['encoding']}.{level}" in can["ops"])
            and ("dtypes" not in can or self.dtype in can["dtypes"])
            and ("max_position" not in can or reach <= can["max_position"])
        )

    def __call__(self, case: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor] | None:
        want = [
            name
            for name in case.get("expected") or outputs_of(case)
            if self.supports.get("vjp", True) or not name.startswith("vjp.")
        ]
        if self.ended > 1 or not self.claims(case, inputs):
            return None
        self.seq += 1
        files = {"text": f"case-{self.seq}.txt"}
        files |= {way: f"{way}-{self.seq}.safetensors" for way in ("in", "out")}
        request = {"cmd": "case", "seq": self.seq, **files, "id": case["id"], "encoding": case["encoding"]}
        request |= {"level": case.get("call", case["level"]), "dtype": self.dtype}
        request |= {"facts": case["facts"], "options": case["options"], "want": want}
        data = encoded_inputs(inputs, self.dtype)
        (self.folder / files["in"]).write_bytes(data)
        (self.folder / files["text"]).write_text(request_text(request, data))
        try:
            return self.answered(self.process.ask(request), case["id"], want)
        except RunnerBroken as error:
            self.crashes[case["id"]] = self.named(error)
            self.process.end()
            self.ended += 1
            if self.ended == 1:
                self.again()
            return None
        finally:
            for name in files.values():
                with contextlib.suppress(OSError):  # nothing there, or no file: it goes with the folder
                    (self.folder / name).unlink()

    def answered(self, answer: Mapping[str, Any], case: str, want: list[str]) -> dict[str, Tensor] | None:
        """What an answer brings."""
        words = lambda key: str(answer.get(key, ""))[:500]
        if answer.get("seq") != self.seq or type(answer.get("seq")) is not int:
            raise RunnerBroken(
                f"it answered seq {words('seq')} where {self.seq} was asked{self.process.said()}"
            )
        match answer.get("status"):
            case "ok":
                return outputs(self.folder, f"out-{self.seq}.safetensors", want)
            case "skip":
                self.skipped[case] = words("reason") or "no reason given"
                return None
            case "refused":
                raise Refused(words("kind"), words("message") or "refused")
            case "error":
                raise Unable(words("message") or "an error without a message")
        raise RunnerBroken(
            f"its status is {words('status')!r}; expected ok, skip, refused or error{self.process.said()}"
        )


def supported(hello: Mapping[str, Any]) -> dict[str, Any]:
    """What a first answer says that the program does. Raises Broken."""
    if said := misfit(hello, HELLO, "its first answer"):
        raise RunnerBroken(said)
    return hello.get("supports", {})


def outputs(folder: Path, name: str, want: list[str]) -> dict[str, Tensor]:
    """The tensors that the runner wrote. Raises Unable for one that was not asked for."""
    found = tensors_written(folder, name)
    if strange := sorted(found.keys() - set(want)):
        raise Unable(f"it gave {strange[0][:80]}, which was not asked for; wanted: {', '.join(want)}")
    return found


def tensors_written(folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a file that another process wrote. Raises Broken for anything but a plain file in the
    folder, Damaged for what is in it.
    """
    path = folder / name
    try:
        about = path.lstat()
    except OSError as error:
        raise RunnerBroken(f"it said ok, and wrote no {name}") from error
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        raise RunnerBroken(f"{name} is no plain file of its own in the run's folder")
    if about.st_size > LARGEST_OUTPUT:
        raise RunnerBroken(f"{name} has {about.st_size:,} bytes; at most {LARGEST_OUTPUT:,} are read")
    return tensors(read_bytes(path), name)
