"""One run of benchmarks/gpu.py: the device or its emulation, the time that is left, and the rows, each on disk as soon as it is known."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent

TIMES = {"us", "low", "high", "n", "TB_per_s", "TFLOP_per_s", "ours_us", "cupy_us", "seconds", "cold_s", "warm_s"}


@dataclass
class Session:
    out: Path
    budget: float
    emulated: bool
    xp: Any = None
    library: Any = None
    began: float = field(default_factory=time.monotonic)
    until: float = 0.0
    phase: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)  # kernel file -> what was measured against float64

    def enter(self, phase: str, seconds: float) -> None:
        """A phase begins, and has so many seconds, or what is left."""
        self.phase, now = phase, time.monotonic()
        self.until = min(now + seconds, self.began + self.budget)
        self.say(f"== {phase}, {self.left():.0f} s")

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def say(self, text: str) -> None:
        print(text, flush=True)
        with (self.out / "log.txt").open("a") as file:
            file.write(f"{time.monotonic() - self.began:7.2f} {text}\n")

    def row(self, name: str, **found: Any) -> None:
        found = {k: v for k, v in found.items() if not (self.emulated and k in TIMES)}
        one = {"phase": self.phase, "name": name, "at": round(time.monotonic() - self.began, 2), "emulated": self.emulated} | found
        self.rows.append(one)
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(one, default=str) + "\n")
        shown = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in found.items())
        self.say(f"{name}: {shown}"[:300])

    def attempt(self, name: str, act: Callable[[], dict[str, Any]]) -> None:
        """A row for what act() gives; one that fails or has no time left is a row too, and the run goes on."""
        if self.left() <= 0:
            self.row(name, skipped="no time left")
            return
        try:
            found = act()
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:400]}
        self.row(name, **found)

    def found(self, name: str, key: str) -> Any:
        """What an earlier row said, None where it did not."""
        return next((row.get(key) for row in reversed(self.rows) if row["name"] == name), None)

    def backend(self, name: str = "cuda") -> Any:
        from peref.backends.cuda import opened

        return opened(self.xp, self.library, name)

    def timed(self, act: Callable[[], Any], least: int = 30, each: int = 1) -> dict[str, Any]:
        """Median, lowest and highest microseconds of act(), which does `each` pieces of work, by events on the device.

        Emulated it runs twice, for nothing: row() leaves the times out.
        """
        cuda, spans = self.xp.cuda, []
        for _ in range(1 if self.emulated else 4):
            act()
        least, most = (1, 1) if self.emulated else (least, 200)
        while len(spans) < least or (len(spans) < most and sum(spans) < 2e5 and self.left() > 5):
            start, stop = cuda.Event(), cuda.Event()
            start.record()
            act()
            stop.record()
            stop.synchronize()
            spans.append(1e3 * cuda.get_elapsed_time(start, stop) / each)
        return {"us": statistics.median(spans), "low": min(spans), "high": max(spans), "n": len(spans)}


def opened(out: Path, budget: float, emulated: bool, stack: ExitStack) -> Session:
    """A session on the device of this machine, or on its emulation by the tests."""
    out.mkdir(parents=True, exist_ok=True)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    s = Session(out, budget, emulated)
    if emulated:
        import fake_cublas
        import fake_cupy
        from emulated.device import attach

        s.xp, s.library = stack.enter_context(fake_cupy.installed(memory=True)), fake_cublas.Library()
        attach(s.xp)
    else:
        from peref.backends.cuda import find

        s.xp = find.cupy()
        find.check_device(s.xp)
        s.library = find.cublas(s.xp)
    return s
