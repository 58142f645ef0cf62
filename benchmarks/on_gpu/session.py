"""One phase of benchmarks/gpu.py, in a process of its own: the device or its emulation, the time that is
left, and the rows, each on disk as soon as it is known. What a process knows of others it reads there, so
a phase can be taken up again after the row that ended it.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent

TIMES = {
    "us",
    "low",
    "high",
    "n",
    "TB_per_s",
    "TFLOP_per_s",
    "ours_us",
    "cupy_us",
    "plain_us",
    "times_as_fast",
    "seconds",
    "cold_s",
    "warm_s",
}
# spans that a row has at least, and microseconds after which it has no more than it must
FEW, ENOUGH = 3, 3e6
BRIEF = 1e6  # the same of what ours is held against: one to warm up and one or more, as it may take seconds
AGAIN = 75  # a process ends with: begin anew behind the last row
LONGEST, GRACE = 60, 5  # seconds that one row may take, and go on for when its phase is over


def spans_of(
    span: Callable[[], float],
    least: int,
    more: Callable[[], bool] = lambda: False,
    each: int = 1,
    few: int = FEW,
    enough: float = ENOUGH,
) -> dict[str, Any]:
    """What `span`, which gives microseconds, took for each of `each` pieces of work: warmed up, at least
    `least` times, and up to 200 of 0.2 seconds in all where there is time for `more`. Where one is so long
    that these take seconds, it is warmed up once and the figure is of a few.
    """
    warm: list[float] = []
    while len(warm) < min(4, least) and sum(warm) < enough / FEW:
        warm.append(span())
    spans: list[float] = []
    while len(spans) < few or sum(spans) < enough:
        if len(spans) >= least and not (len(spans) < 200 and sum(spans) < 2e5 and more()):
            break
        spans.append(span())
    spans = [one / each for one in spans]
    return {"us": statistics.median(spans), "low": min(spans), "high": max(spans), "n": len(spans)}


@dataclass
class Session:
    out: Path
    emulated: bool
    phase: str = ""
    until: float = 0.0
    xp: Any = None
    library: Any = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)  # "file.kernel", by the row under way
    so_far: dict[str, Any] = field(default_factory=dict)  # what it has also where it does not come to its end
    longest: float = LONGEST

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        """All rows so far."""
        kept = self.out / "results.jsonl"
        self.rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def say(self, text: str) -> None:
        print(text, flush=True)
        with (self.out / "log.txt").open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def row(self, name: str, **found: Any) -> None:
        found = {k: v for k, v in found.items() if not (self.emulated and k in TIMES)}
        one = {
            "phase": self.phase,
            "name": name,
            "at": time.strftime("%H:%M:%S"),
            "emulated": self.emulated,
        } | found
        self.rows.append(one)
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(one, default=str) + "\n")
        shown = " ".join(
            f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
            for k, v in found.items()
            if k not in ("forward", "backward", "kernels")
        )
        self.say(f"{name}: {shown}"[:300])

    def has(self, name: str) -> bool:
        """Whether this phase has the row."""
        return any(row["phase"] == self.phase and row["name"] == name for row in self.rows)

    def attempt(self, name: str, act: Callable[[], dict[str, Any]], **always: Any) -> None:
        """A row for what act() gives, the kernels that it launched, and for `always`; one that fails or has
        no time left is a row too, and the run goes on.

        A row that does not come, or leaves the device unusable, ends this process; the next one goes on
        behind it.
        """
        if self.has(name):
            return
        if self.left() <= 0:
            self.row(name, skipped="no time left", **always)
            return
        (self.out / "begun").write_text(name)
        limit = min(self.longest, self.left() + GRACE)
        watch = threading.Timer(limit, self.give_up, (name, limit, always))
        watch.daemon = True
        watch.start()
        self.launched.clear()
        self.so_far = {}
        try:
            found = act()
        except Exception as error:
            found = self.so_far | {"error": f"{type(error).__name__}: {error}"[:400]}
        watch.cancel()
        if self.launched:
            found = {**found, "kernels": sorted(set(self.launched))}
        self.row(name, **always | found)
        if isinstance(found.get("error"), str) and not self.sound():
            raise SystemExit(AGAIN)

    def give_up(self, name: str, seconds: float, always: dict[str, Any]) -> None:
        self.row(name, **always | self.so_far, error=f"no answer within {seconds:.0f} s")
        os._exit(AGAIN)

    def sound(self) -> bool:
        """Whether the device still answers: some errors stay with a process until it ends."""
        try:
            self.xp.cuda.Device().synchronize()
            return float(self.xp.ones(1).sum()) == 1
        except Exception:
            return False

    def found(self, name: str, key: str) -> Any:
        """What an earlier row said, None where it did not."""
        return next((row.get(key) for row in reversed(self.rows) if row["name"] == name), None)

    def backend(self, name: str = "cuda", *, every_tile: bool = False) -> Any:
        from peref.backends.cuda import open_device

        return open_device(self.xp, self.library, name, every_tile=every_tile)

    def plain(self) -> Any:
        """The plain ops on CuPy, as --backend cupy: what there would be without kernels of our own."""
        from peref.backends import Backend, cupy

        return Backend("cupy", place=partial(cupy.place, xp=self.xp))

    def timed(
        self, act: Callable[[], Any], least: int = 30, each: int = 1, brief: bool = False
    ) -> dict[str, Any]:
        """Median, lowest and highest microseconds of act(), which does `each` pieces of work, by events on
        the device; brief: in two seconds or so.

        Emulated it runs twice, for nothing: row() leaves the times out.
        """
        cuda = self.xp.cuda

        def span() -> float:
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            act()
            stop.record()
            stop.synchronize()
            return 1e3 * cuda.get_elapsed_time(start, stop)

        return (
            spans_of(span, 1, each=each)
            if self.emulated
            else spans_of(span, 3, each=each, few=1, enough=BRIEF)
            if brief
            else spans_of(span, least, lambda: self.left() > 5, each)
        )


def library(emulated: bool, stack: ExitStack) -> Any:
    """CuPy with the device of this machine, or its emulation by the tests. Raises Misuse where there is
    none.
    """
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if emulated:
        import fake_cupy
        from emulated.device import attach

        xp = stack.enter_context(fake_cupy.installed(memory=True))
        xp.emulated = attach(xp)
        return xp
    from peref.backends import find

    xp = find.cupy("cuda")
    find.check_capability(xp, "cuda")
    find.check_memory(xp, "cuda")
    return xp


def opened(out: Path, emulated: bool, stack: ExitStack, phase: str = "", seconds: float = 60.0) -> Session:
    """A session that has `seconds` for its phase; s.launched names each kernel that is launched."""
    out.mkdir(parents=True, exist_ok=True)
    s = Session(out, emulated, phase, time.monotonic() + seconds, library(emulated, stack))
    if emulated:
        import fake_cublas

        s.library = fake_cublas.Library()
    else:
        from peref.backends import find

        s.library = find.cublas(s.xp)
    from peref.backends.cuda import launch

    made = launch.compiled

    def noted(xp: Any, file: str, name: str, defines: frozenset[tuple[str, int]]) -> Any:
        s.launched.append(f"{file}.{name}")
        return made(xp, file, name, defines)

    stack.enter_context(mock.patch.object(launch, "compiled", noted))
    return s
