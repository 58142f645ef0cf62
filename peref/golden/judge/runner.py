"""Somebody's program held against the golden files: it is asked over stdin, answers over stdout, and arrays
go by file.

One JSON object a line, without blanks and with its keys in the order shown, so that a program without a JSON
library finds its way:

    > {"cmd":"hello","protocol":1,"spec":"0.15.0","dir":"/tmp/run"}
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

import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peref.encodings import get
from peref.errors import Misuse, PerefError
from peref.golden import SPEC_VERSION
from peref.golden.judge.process import Respondent, RunnerBroken
from peref.golden.judge.refusals import Refused
from peref.golden.judge.wire import encoded_inputs, request_text
from peref.golden.spec.files import Tensor
from peref.schema import misfit

PROTOCOL = 1
SECONDS = 30.0
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


class Runner(Respondent):
    """A command as function(case, inputs) -> outputs, None for a case that it does not claim; use in a
    `with`.

    Inputs are given in float64 and handed over in `dtype`. Raises Misuse for a command that cannot be
    started, Broken where its first answer is none, Unable for a case that it cannot compute and Refused for
    one that it refuses. `crashes` and `skipped` say what happened to the others.
    """

    def __init__(self, command: str, folder: Path, dtype: str = "f64", seconds: float = SECONDS):
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise Misuse(f"--cmd {command}: {error}") from error
        if not argv:
            raise Misuse("--cmd is empty; expected a program and its arguments")
        self.command, self.dtype = command, dtype
        super().__init__(argv, folder, seconds, {"protocol": PROTOCOL, "spec": SPEC_VERSION}, False)
        self.crashes: dict[str, str] = {}  # case -> how the program failed there
        self.skipped: dict[str, str] = {}
        try:
            self.start()
        except RunnerBroken as error:
            raise RunnerBroken(self.named(error)) from error

    def start(self) -> None:
        try:
            super().start()
        except RunnerBroken as error:
            again = " (started once more)" if self.ended else ""
            raise RunnerBroken(f"asked hello: {error}{again}") from error

    def greeted(self, answer: Mapping[str, Any]) -> None:
        if said := misfit(answer, HELLO, "its first answer"):
            raise RunnerBroken(said)
        self.supports: Mapping[str, Any] = answer.get("supports", {})

    def named(self, words: object) -> str:
        """What the program did, behind the command that it is."""
        return f"--cmd {shlex.quote(self.command)}: {words}"

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: Any, *more: Any) -> None:
        process = self.process
        if process and process.child.poll() is None and kind is None:
            process.say({"cmd": "bye"}, last=True)
            try:
                process.child.wait(5)
            except subprocess.TimeoutExpired:
                self.crashes["bye"] = self.named("asked bye: it did not end within 5 s")
            if process.child.returncode:
                said = f"asked bye: {process.code()} at its end{process.said()}"
                self.crashes["bye"] = self.named(said)
        self.end()

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
        if self.ended > 1 or not self.claims(case, inputs):
            return None
        known = case.get("expected") or outputs_of(case)
        vjp = self.supports.get("vjp", True)
        self.case, self.want = case["id"], [name for name in known if vjp or not name.startswith("vjp.")]
        request = {name: case[name] for name in ("id", "encoding")}
        request |= {"level": case.get("call", case["level"]), "dtype": self.dtype}
        request |= {"facts": case["facts"], "options": case["options"], "want": self.want}
        data = encoded_inputs(inputs, self.dtype)
        try:
            return self.exchange(case, inputs, request, data, lambda whole: request_text(whole, data))
        except RunnerBroken as error:
            self.crashes[self.case] = self.named(error)
            return None

    def answered(
        self, answer: Mapping[str, Any], outputs: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor] | None:
        """What an answer brings. Raises Unable for a tensor that was not asked for."""
        words, process = lambda key: str(answer.get(key, ""))[:500], self.process
        assert process is not None
        if answer.get("seq") != self.seq or type(answer.get("seq")) is not int:
            raise RunnerBroken(f"it answered seq {words('seq')} where {self.seq} was asked{process.said()}")
        match answer.get("status"):
            case "ok":
                found = outputs()
                if strange := sorted(found.keys() - set(self.want)):
                    said = f"it gave {strange[0][:80]}, which was not asked for"
                    raise Unable(f"{said}; wanted: {', '.join(self.want)}")
                return found
            case "skip":
                self.skipped[self.case] = words("reason") or "no reason given"
                return None
            case "refused":
                raise Refused(words("kind"), words("message") or "refused")
            case "error":
                raise Unable(words("message") or "an error without a message")
        said = f"its status is {words('status')!r}; expected ok, skip, refused or error"
        raise RunnerBroken(f"{said}{process.said()}")
