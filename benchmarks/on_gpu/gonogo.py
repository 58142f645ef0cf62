"""Phase 3: the questions that decide the design, each with GO or NO-GO."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from on_gpu.ceilings import bf16, random
from on_gpu.session import ROOT, Session
from peref.backends import call
from peref.backends.cuda.cublas import Cublas
from peref.config import Config
from peref.model import init
from peref.train import Recipe, one_step

START = """
import time; began = time.perf_counter()
import numpy as np
from peref import backends
from peref.config import Config
from peref.model import init
from peref.train import Recipe, one_step
be, cfg = backends.get("cuda"), Config(L=128)
p = init(cfg)
p, m, v = (be.place(a) for a in (p, *({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv")))
x = np.zeros((2, 128), int)
be.step(one_step, be, cfg, Recipe().rule, p, m, v, [(x, x)], Recipe().numbers(1)).get()
print(time.perf_counter() - began)
"""


def verdict(good: bool, **found: Any) -> dict[str, Any]:
    return {"verdict": "GO" if good else "NO-GO"} | found


def captured_product(s: Session) -> dict[str, Any]:
    n, times = (16, 10) if s.emulated else (512, 1000)
    a, b = random(s, n, n, dtype=bf16()), random(s, n, n, dtype=bf16(), seed=1)
    blas, c, stream = Cublas(s.xp, s.library), s.xp.zeros((n, n), bf16()), s.xp.cuda.Stream(non_blocking=True)
    want = a.get().astype(np.float64) @ b.get().astype(np.float64)
    with stream:
        blas(a, b)
        stream.begin_capture()
        c[...] = 0
        blas(a, b, c)
        graph = stream.end_capture()
        graph.launch()  # the first may bring the graph to the device
        stream.synchronize()
        before = s.xp.cuda.runtime.memGetInfo()[0]
        for _ in range(times):
            graph.launch()
        stream.synchronize()
    grown = before - s.xp.cuda.runtime.memGetInfo()[0]
    error = float(np.linalg.norm(c.get().astype(np.float64) - want) / np.linalg.norm(want))
    return verdict(error < 1e-2 and grown <= 0, error=error, replays=times, bytes_grown=int(grown))


def small(s: Session, be: Any) -> tuple[Any, ...]:
    cfg = Config(
        pe=(("rope", {}),),
        L=8 if s.emulated else 128,
        C=16 if s.emulated else 256,
        layers=1 if s.emulated else 6,
        H=2 if s.emulated else 8,
    )
    p = init(cfg)
    return (
        cfg,
        *(be.place(a) for a in (p, *({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv"))),
        be.place(np.zeros(3)),
    )


def stepping(s: Session, be: Any, rates: list[float], clips: list[float] | None = None) -> list[Any]:
    """The weights after each of some steps."""
    cfg, p, m, v, word = small(s, be)
    seen = []
    for step, (rate, clip) in enumerate(zip(rates, clips or [1.0] * len(rates), strict=True), 1):
        x = np.random.default_rng(step).integers(0, 256, (2, cfg.L))
        be.step(one_step, be, cfg, Recipe().rule, p, m, v, [(x, x)], np.array([rate, step, clip]), word)
        seen.append(p.line.get())
    return seen


def replayed(s: Session, kind: str) -> dict[str, Any]:
    """Whether the weights after each step are, to the bit, those of steps launched kernel by kernel."""
    be, rates = s.backend(kind), [1e-3] * 4
    recorded, plain = stepping(s, be, rates), stepping(s, replace(be, step=call), rates)
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(recorded, plain, strict=True))
    return verdict(
        equal and all(r.graph is not None for r in be.step.kept.values()), same_bits=equal, steps=len(rates)
    )


def rate_on_the_device(s: Session) -> dict[str, Any]:
    """A replayed step takes another learning rate, and another clip: AdamW's first moment, divided by its
    second's root, shows a shorter gradient.
    """
    be = s.backend()
    seen = stepping(s, be, [1e-3, 1e-3, 1e-3, 0.0, 1e-3, 0.0])
    still = [bool((a == b).all()) for a, b in pairwise(seen)]
    cut = stepping(s, be, [1e-3] * 5, [1.0] * 4 + [1e-9])
    other = bool((cut[-1] != stepping(s, be, [1e-3] * 5)[-1]).any())
    return verdict(still == [False, False, True, False, True] and other, unchanged=still, clip_seen=other)


def host_cost(s: Session) -> dict[str, Any]:
    """Microseconds that the host spends on a product: ours, and CuPy's."""
    a, blas, count = random(s, 32, 32), Cublas(s.xp, s.library), 3 if s.emulated else 2000
    found = {}
    for name, act in (("ours_us", lambda: blas(a, a)), ("cupy_us", lambda: a @ a)):
        act()
        before = time.perf_counter()
        for _ in range(count):
            act()
        found[name] = 1e6 * (time.perf_counter() - before) / count
        s.xp.cuda.Device().synchronize()
    return (
        {"verdict": "not asked", **found}
        if s.emulated
        else verdict(found["ours_us"] <= 2 * found["cupy_us"], **found)
    )


def started(s: Session) -> dict[str, Any]:
    """Seconds from the start of a process to its first step, with no kernel compiled before and with all."""
    if s.emulated:
        return {"verdict": "not asked", "why": "no device to start"}
    with tempfile.TemporaryDirectory() as folder:
        env, found = os.environ | {"CUPY_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)}, []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", START],
                env=env,
                capture_output=True,
                text=True,
                check=True,
                timeout=max(1, s.left()),
            )
            found.append(float(done.stdout))
    return verdict(found[0] <= 10, us=1e6 * found[0], cold_s=found[0], warm_s=found[1])


def answers(s: Session, be: Any) -> list[Any]:
    """A few outputs in bfloat16, to be compared between the device and its emulation."""
    from peref.ops.place import At

    x, w = (
        np.random.default_rng(n).standard_normal(shape).astype(bf16())
        for n, shape in ((0, (7, 64)), (1, (64,)))
    )
    q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 33, 64)).astype(bf16()) for n in (2, 3, 4))
    at = be.place(At.of(33))
    return [
        be.rms_norm(be.place(x), be.place(w), eps=1e-5).get(),
        be.attention(*map(be.place, (q, k, v)), at=at, scale=0.125).get(),
    ]


def emulation(s: Session) -> dict[str, Any]:
    """Whether the emulation, by which the kernels were tested, gives what the device gives."""
    from on_gpu import session

    got = answers(s, s.backend())
    if s.emulated:
        return {"verdict": "not asked", "why": "this is the emulation", "ran": len(got)}
    script = (
        "import sys, pathlib, pickle; from contextlib import ExitStack; from on_gpu import session, "
        "gonogo\n"
        "with ExitStack() as stack:\n"
        "    s = session.opened(pathlib.Path(sys.argv[1]), True, stack)\n"
        "    import numpy as np\n"
        "    np.savez(sys.argv[1] + '/answers.npz', *[a.astype(np.float32) for a in gonogo.answers(s, "
        "s.backend())])\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests")])
        }
        subprocess.run(
            [sys.executable, "-c", script, folder],
            env=env,
            check=True,
            timeout=max(1, s.left()),
            capture_output=True,
        )
        with np.load(f"{folder}/answers.npz") as kept:
            want = list(kept.values())
    apart = max(
        float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))
        for a, b in zip(got, want, strict=True)
    )
    return verdict(apart < 1e-2, apart=apart, of=session.__name__)


def decide(s: Session) -> None:
    s.attempt("2 captured bf16 product", lambda: captured_product(s))
    for kind in ("cuda", "cuda:tf32", "cuda:bf16"):
        title = f"3 replay is the step{kind.removeprefix('cuda').replace(':', ', ')}"
        s.attempt(title, partial(replayed, s, kind))
    s.attempt("4 us per graph node", lambda: {"us": s.found("graph node", "us")})
    s.attempt(
        "6 TF32 and float32",
        lambda: {key: s.found(f"gemm {key}", "TFLOP_per_s") for key in ("tf32", "float32")},
    )
    s.attempt("7 host cost of a product", lambda: host_cost(s))
    s.attempt("8 rate and clip in device memory", lambda: rate_on_the_device(s))
    s.attempt("9 cold and warm start", lambda: started(s))
    s.attempt("10 emulation is the device", lambda: emulation(s))
