"""Somebody's program held against the golden files: it is asked over stdin, answers over stdout, and arrays
go by file.

One JSON object a line, without blanks and with its keys in the order shown, so that a program without a JSON
library finds its way:

    > {"cmd":"hello","protocol":1,"spec":"X.Y.Z","dir":"/tmp/run"}
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peref.encodings import get
from peref.errors import Misuse
from peref.golden import SPEC_VERSION
from peref.golden.judge.process import Respondent, RunnerBroken
from peref.golden.judge.wire import encoded_inputs, request_text
from peref.golden.spec.files import Tensor
from peref.schema import FLAG, NAMES, NUMBER, OBJECT, fields, misfit

PROTOCOL = 1
SECONDS = 30.0
PATIENCE = 5  # seconds for its end
OUTPUTS = {  # what to ask for where a case, one that must be refused, does not say; of others "out"
    ("embed", "table"): ("rows",),
    ("embed", "op"): ("y",),
    ("rotate", "table"): ("angle", "cos", "sin"),
    ("rotate", "op"): ("q_rotated", "k_rotated"),
    ("bias", "table"): ("bias",),
    ("bias", "op"): ("bias",),
    ("score", "op"): ("term",),
    ("mix", "op"): ("y",),
}


# what a first answer must be
SUPPORTS = fields({}, ops=NAMES, dtypes=NAMES, max_position=NUMBER, refusals=FLAG, vjp=FLAG)
HELLO = fields({"ok": {"const": True}}, implementation=OBJECT, supports=SUPPORTS)


class Runner(Respondent):
    """A command as function(case, inputs) -> outputs, None for a case that it does not claim; started by
    `start`.

    Inputs are given in float64 and handed over in `dtype`. Raises Misuse for a command that cannot be
    started, RunnerBroken where its first answer is none, Unable for a case that it cannot compute and Refused
    for one that it refuses. `crashes` and `skipped` say what happened to the others.
    """

    def __init__(self, command: str, lent: tuple[Path, int], dtype: str, seconds: float = SECONDS):
        try:
            argv = shlex.split(command)
        except ValueError as error:
            raise Misuse(f"--cmd {command}: {error}") from error
        if not argv:
            raise Misuse("--cmd is empty; expected a program and its arguments")
        self.command, self.dtype = command, dtype
        super().__init__(argv, lent, seconds, {"protocol": PROTOCOL, "spec": SPEC_VERSION}, False)
        self.crashes: dict[str, str] = {}  # case -> how the program failed there
        self.supports: Mapping[str, Any] = {}

    def start(self) -> dict[str, Any]:
        try:
            answer = super().start()
            if said := misfit(answer, HELLO, "its first answer"):
                raise RunnerBroken(said)
        except RunnerBroken as error:
            again = " (started once more)" if self.ended else ""
            said = f"asked hello: {error}{again}{self.close()}"
            raise RunnerBroken(said if self.seq else self.named(said)) from error  # a case says the command
        self.supports = answer.get("supports", {})
        return answer

    def named(self, words: object) -> str:
        """What the program did, behind the command that it is."""
        return f"--cmd {shlex.quote(self.command)}: {words}"

    def bye(self) -> None:
        """Let it end by itself."""
        if (child := self.child) is None or child.poll() is not None:
            return
        self.say({"cmd": "bye"})
        with contextlib.suppress(OSError):
            child.stdin.close()
        on_time = self.ended_within(PATIENCE)
        said = f"{self.code()} at its end" if on_time else f"it did not end within {PATIENCE} s"
        told = self.close()
        if child.returncode:
            self.crashes["bye"] = self.named(f"asked bye: {said}{told}")

    def claims(self, case: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
        """Whether it said in its first answer that it does such cases."""
        can, level = self.supports, case.get("call", case["level"])
        places = (inputs[name] for name in ("positions", "distances") if name in inputs)
        reach = max((float(np.abs(x).max(initial=0)) for x in places), default=0.0)
        return (
            (case["level"] != "refuse" or can.get("refusals", False))
            and f"{case['encoding']}.{level}" in can.get("ops", [f"{case['encoding']}.{level}"])
            and self.dtype in can.get("dtypes", [self.dtype])
            and ("max_position" not in can or reach <= can["max_position"])
        )

    def __call__(self, case: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor] | None:
        if self.ended > 1 or not self.claims(case, inputs):
            return None
        level, vjp = case.get("call", case["level"]), self.supports.get("vjp", True)
        known = case.get("expected") or OUTPUTS.get((get(case["encoding"]).hook, level), ("out",))
        want = [name for name in known if vjp or not name.startswith("vjp.")]
        request = {"id": case["id"], "encoding": case["encoding"], "level": level, "dtype": self.dtype}
        request |= {"facts": case["facts"], "options": case["options"], "want": want}
        data = encoded_inputs(inputs, self.dtype)
        try:
            return self.exchange(case, inputs, request, data, lambda kept: request_text(kept, data))
        except RunnerBroken as error:
            self.crashes[case["id"]] = self.named(error)
            return None
