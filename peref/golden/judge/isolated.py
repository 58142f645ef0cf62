"""Somebody's function in a process of its own: whatever it does there, it is theirs, and it is told.

The process speaks as a program does (runner): a line of JSON each way, arrays by file. A case goes as it
stands in cases.json, inputs in the dtype that they have. What comes is read as every file of others is.

    > {"cmd":"hello","impl":"mine:rope","names":null,"dir":"/tmp/run"}
    < {"ok":true}      or false with a message
    > {"cmd":"case","seq":7,"case":{...},"in":"in-7.safetensors","out":"out-7.safetensors"}
    < {"seq":7,"status":"ok"}      or "skip"; "refused" or "error" with a message and what was "raised"

Not here: how a function is found and called (function).
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import Misuse, PerefError
from peref.golden.judge.function import array_in, called, found_function, parted, where_raised
from peref.golden.judge.implementation import WrongAnswer, tensor_of
from peref.golden.judge.process import Respondent, RunnerBroken, lent_folder
from peref.golden.judge.refusals import refuses
from peref.golden.judge.runner import SECONDS
from peref.golden.spec.files import Tensor, encoded_tensors, read_tensors

LONGEST_ERROR = 2000  # characters
MOST_PROCESSES = 3  # processes that may end before no further case is asked


class Ended(PerefError):
    """The process of a function crashed, hung or was left."""


@contextlib.contextmanager
def function_of(
    spec: str,
    known: Collection[str] | None = None,
    seconds: float = SECONDS,
    in_process: bool = False,
) -> Iterator[Callable[[Any, Any], dict[str, Tensor] | None]]:
    """What `module:function` names as function(case, inputs) -> outputs or None; `known` are the names of one
    thing, where it is a function of that. Raises Misuse where there is no such function.
    """
    parted(spec)
    if in_process:
        with stdout_to_stderr():
            yield partial(called, found_function(spec, known))
    else:
        with lent_folder() as lent, contextlib.closing(Isolated(spec, known, lent, seconds)) as apart:
            try:
                apart.start()
            except RunnerBroken as error:
                what = f"importing {spec.partition(':')[0]} failed: {error}{apart.close()}"
                raise Misuse(f"--impl {spec}: {what}") from error
            yield apart


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Meanwhile all that this process and its threads write to stdout goes to stderr, also what C code writes
    and what either of them keeps until later. Where one of the two is closed only prints are dealt with.
    """
    with contextlib.ExitStack() as back:
        back.enter_context(contextlib.redirect_stdout(sys.stderr))
        if (stdout := sys.__stdout__) and sys.__stderr__:
            fflush = ctypes.CDLL(None).fflush
            stdout.flush()
            back.callback(os.close, kept := os.dup(1))
            back.callback(os.dup2, kept, 1)
            back.callback(fflush, None)  # every stream of C's
            back.callback(stdout.flush)
            os.dup2(2, 1)
        yield


class Isolated(Respondent):
    """The function as seen from here."""

    def __init__(self, spec: str, known: Collection[str] | None, lent: tuple[Path, int], seconds: float):
        self.spec = spec
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        hello = {"impl": spec, "names": None if known is None else list(known)}
        super().__init__([sys.executable, "-c", code], lent, seconds, hello, True)

    def start(self) -> dict[str, Any]:
        answer = super().start()
        if answer.get("ok") is not True:
            raise Misuse(str(answer.get("message")))
        return answer

    def __call__(self, case: dict[str, Any], inputs: dict[str, np.ndarray]) -> dict[str, Tensor] | None:
        if self.ended == MOST_PROCESSES:
            return None
        given = encoded_tensors({name: tensor_of(name, x) for name, x in inputs.items()})
        try:
            return self.exchange(case, inputs, {"case": case}, given)
        except RunnerBroken as error:
            over = f"; ended {MOST_PROCESSES} times, so no further case was asked"
            rest = over * (self.ended == MOST_PROCESSES)
            raise Ended(f"the process of {self.spec}: {error}{rest}") from error


def serve() -> None:
    """The other side: answer until there is no more line. What the function prints goes to stderr, what it
    reads from stdin is empty.
    """
    lines, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    faulthandler.enable()

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()

    hello = json.loads(next(lines))
    try:
        function = found_function(hello["impl"], hello["names"])
    except Misuse as error:
        return say({"ok": False, "message": said(error)})
    say({"ok": True})
    for line in lines:
        request = json.loads(line)
        say({"seq": request["seq"]} | answer_of(function, request, Path(hello["dir"])))


def answer_of(function: Callable, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The answer on a case; its outputs are written."""
    inputs = {name: array_in(t) for name, t in read_tensors(folder / request["in"]).items()}
    try:
        came = called(function, request["case"], inputs)
    except BaseException as error:
        where = "" if isinstance(error, WrongAnswer) else where_raised(error)
        status = "refused" if refuses(error) else "error"
        message = (said(error) + where).strip()
        return {"status": status, "raised": type(error).__name__, "message": message}
    if came is None:
        return {"status": "skip"}
    (folder / request["out"]).write_bytes(encoded_tensors(came))
    return {"status": "ok"}


def said(error: BaseException) -> str:
    """Its message, as text that can be printed."""
    return str(error)[:LONGEST_ERROR].encode(errors="backslashreplace").decode()
