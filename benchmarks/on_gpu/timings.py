"""Phase 5: ours, by replaying a recorded graph over several buffers, so that nothing comes from a cache;
and whole steps, recorded or not.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from on_gpu.cases import Case, large
from on_gpu.ceilings import bf16, random
from on_gpu.session import Session
from on_gpu.shapes import of
from peref.backends import call
from peref.backends.cuda.flat import Flat
from peref.config import Config
from peref.model import init
from peref.ops.place import At
from peref.tape import Tape
from peref.train import Recipe, one_step

AGAIN = 4  # how often a recording has what is quick, so that its launch is a small part of it


def replaying(
    s: Session, be: Any, work: Callable, sets: list[tuple[Any, ...]], again: int = 1
) -> dict[str, Any]:
    """Time of work(be, *arrays) for one of the sets of arrays, each `again` and again in one graph, without
    what Python takes to ask for it, and the most memory that it takes, with its result, where there is one
    set alone.
    """

    def every(be: Any, sets: Any) -> Any:
        return [work(be, *arrays) for arrays in sets][-1]

    for _ in range(2):  # as it is, and measured
        be.step(every, be, sets[:1])
    peak = next(reversed(be.step.kept.values())).peak
    sets = sets * (1 if s.emulated else again)
    for _ in range(3):  # twice as it is, then recorded
        be.step(every, be, sets)
    graph, stream = next(reversed(be.step.kept.values())).graph, be.step.stream
    with stream:
        return s.timed(lambda: graph.launch(stream), each=len(sets)) | {"peak_bytes": peak}


def sets(s: Session, count: int, *shapes: tuple[int, ...], dtype: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(random(s, *shape, dtype=dtype, seed=9 * n + k) for k, shape in enumerate(shapes))
        for n in range(1 if s.emulated else count)
    ]


def rope(s: Session, be: Any) -> dict[str, Any]:
    B, H, T, D = of(s.emulated).rope
    angle = be.place(np.arange(T)[:, None] * 10000.0 ** (-np.arange(D // 2) * 2 / D))
    work = lambda be, q, k: [be.turn(x, angle, None, layout="half") for x in (q, k)]
    return replaying(s, be, work, sets(s, 2, (B, H, T, D), (B, H, T, D), dtype=bf16()), AGAIN)


def attention(
    s: Session, be: Any, D: int, T: int, kind: str, backward: bool = False, channels: int | None = None
) -> dict[str, Any]:
    H = max(1, (channels or of(s.emulated).channels) // D)
    at, scale = be.place(At.of(T)), D**-0.5
    there = {
        "no table": None,
        "ALiBi": -np.exp2(-8 * np.arange(1, H + 1) / H)[:, None] * np.arange(T),
        "table": None,
    }[kind]
    table = None if there is None else be.place(there.astype(np.float32))
    if kind == "table":
        table = random(s, H, T)

    def work(be: Any, q: Any, k: Any, v: Any) -> Any:
        if not backward:
            return be.attention(q, k, v, table, at=at, scale=scale)
        tape = Tape()
        leaves = [None if a is None else tape.watch(a) for a in (q, k, v, table)]
        y = be.attention(*leaves, at=at, scale=scale)
        return list(tape.gradients(y, q).values())

    count = 1 if of(s.emulated).long == T else 2  # one is hundreds of megabytes there, more than any cache
    found = replaying(s, be, work, sets(s, count, *[(1, H, T, D)] * 3, dtype=bf16()))
    flop = 2 * T * T * D * H * (3.5 if backward else 1)
    held = 0 if table is None else table.size * table.dtype.itemsize  # as SDPA's figure has its mask
    return found | {"TFLOP_per_s": flop / found["us"] / 1e6, "peak_bytes": found["peak_bytes"] + held}


def beside(s: Session, found: dict[str, Any], act: Callable[[], Any]) -> dict[str, Any]:
    """What was found of ours, with the time of the plain ops on CuPy for the same work."""
    s.so_far = found
    plain = s.timed(act, brief=True)["us"]
    return found | {"plain_us": plain, "times_as_fast": plain / found["us"]}


def against_plain(s: Session, be: Any, case: Case) -> dict[str, Any]:
    """Forward and backward of a case in float32, recorded, and of its plain text on CuPy as it is; the output
    is the cotangent.
    """
    _, _, function, arrays, settings, _ = case
    real = lambda a: isinstance(a, np.ndarray) and a.dtype.kind == "f"
    put = lambda a: be.place(a) if isinstance(a, (At, np.ndarray)) else a
    there = tuple(put(a.astype(np.float32)) if real(a) else put(a) for a in arrays)
    placed = {name: put(one) for name, one in settings.items()}

    def work(be: Any, *arrays: Any) -> Any:
        tape = Tape()
        y = function(
            be, *(tape.watch(a) if a is not None and a.dtype.kind == "f" else a for a in arrays), **placed
        )
        y = y[0] if isinstance(y, tuple) else y
        return list(tape.gradients(y, y.value).values())

    plain, moved = s.plain(), {}  # type: Any, dict[int, Any]

    def once(thing: Any) -> Any:
        if id(thing) not in moved:
            moved[id(thing)] = plain.place(thing)
        return moved[id(thing)]

    free = replace(plain, place=once)  # of copies to the device, as a recording is
    return beside(s, replaying(s, be, work, [there]), lambda: work(free, *there))


def norm(s: Session, be: Any) -> dict[str, Any]:
    N, C = of(s.emulated).norm
    work = lambda be, x, w: be.rms_norm(x, w, eps=1e-5)
    return replaying(s, be, work, sets(s, 2, (N, C), (C,), dtype=bf16()), AGAIN)


def entropy(s: Session, be: Any) -> dict[str, Any]:
    N, V = of(s.emulated).entropy
    targets = be.place(np.random.default_rng(0).integers(0, V, N))

    def work(be: Any, x: Any) -> Any:
        tape = Tape()
        leaf = tape.watch(x)
        y, _ = be.cross_entropy(leaf, targets)
        return tape.gradients(y, be.place(np.ones((), y.dtype)))[leaf]

    return replaying(s, be, work, sets(s, 2, (N, V), dtype=bf16()), AGAIN)


def adamw(s: Session, be: Any) -> dict[str, Any]:
    """The update with clipping, as in a step."""
    n = of(s.emulated).parameters
    host = {
        f"{k}.weight": np.random.default_rng(k).standard_normal((n // 32, 4)).astype(np.float32)
        for k in range(8)
    }
    word, one = be.place(np.zeros(3)), be.place(np.asarray(1.0))
    rest = {"sizes": {}, "decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
    work = lambda be, p, g, m, v: be.update(p, g, m, v, one, one, one, one, word, **rest)
    both = [(p, dict(g), m, v) for p, g, m, v in ([Flat(host, s.xp) for _ in range(4)] for _ in range(2))]
    return beside(s, replaying(s, be, work, both, AGAIN), lambda: work(s.plain(), *map(dict, both[0])))


def stepping(s: Session, be: Any, batch: int, length: int) -> tuple[Callable[[], Any], int]:
    """A training step, and how many parameters it has."""
    w = of(s.emulated)
    cfg = Config(
        pe=(("rope", {}),),
        L=length,
        C=w.width,
        layers=w.layers,
        H=w.heads,
        G=w.heads,
        F=4 * w.width,
        activation="gelu",
    )
    host = init(cfg)
    zeros = {n: np.zeros_like(a) for n, a in host.items()}
    p, m, v = (be.place({n: a.copy() for n, a in kind.items()}) for kind in (host, zeros, zeros))
    word, count = be.place(np.zeros(3)), iter(range(1, 1 << 30))
    x = np.random.default_rng(1).integers(0, 256, (batch, length + 1))
    batches, rule = [(x[:, :-1].copy(), x[:, 1:].copy())], Recipe().rule
    act = lambda: be.step(one_step, be, cfg, rule, p, m, v, batches, np.array([1e-4, next(count), 1.0]), word)
    return act, sum(a.size for a in host.values())


def step(s: Session, be: Any, batch: int, length: int, brief: bool = False) -> dict[str, Any]:
    act, parameters = stepping(s, be, batch, length)
    return s.timed(act, brief=brief) | {"parameters": parameters}


def launches(s: Session, be: Any, batch: int, length: int) -> dict[str, Any]:
    """How many nodes the graph of a recorded step has; how many of them are kernels that cuBLAS adds where
    it cuts a product's sum into parts, and how many set memory.
    """
    act, _ = stepping(s, be, batch, length)
    for _ in range(3):
        act()
    (recording,) = be.step.kept.values()
    text = recording.graph.debug_dot_str()
    nodes = re.findall(r'"(graph_\d+_node_\d+)" *\[(.*?)\];?\n', text, re.DOTALL)
    kinds = {"launches": "", "parts": "splitKreduce", "sets": "MEMSET"}
    return {kind: len({node for node, about in nodes if word in about}) for kind, word in kinds.items()}


def timings(s: Session) -> None:
    """What is quick and what has a target comes first; what takes seconds last."""
    be, w = s.backend("cuda:tf32", every_tile=True), of(s.emulated)  # what is left out is measured by itself
    whole = s.backend(every_tile=True)
    for batch, length in w.steps:
        title = f"step {batch} x {length}"
        s.attempt(f"{title} tf32, recorded", lambda b=batch, n=length: step(s, be, b, n))
        s.attempt(f"{title} bf16, recorded", lambda b=batch, n=length: step(s, s.backend("cuda:bf16"), b, n))
        s.attempt(f"{title} float32, recorded", lambda b=batch, n=length: step(s, s.backend(), b, n))
    for kind in ("tf32", "bf16"):
        work = lambda kind=kind: launches(s, s.backend(f"cuda:{kind}", every_tile=True), *w.steps[0])
        s.attempt(f"launches of a step, {kind}", work)
    s.attempt("rope", lambda: rope(s, be))
    s.attempt("rms_norm", lambda: norm(s, be))
    s.attempt("cross-entropy", lambda: entropy(s, be))
    s.attempt("adamw", lambda: adamw(s, be))
    for case in large(s.emulated, w.scan):
        s.attempt(f"{case[1]}, and its plain text", lambda case=case: against_plain(s, whole, case))
    for D, T in w.attend:
        for kind in ("no table", "ALiBi", "table"):
            s.attempt(f"attention {D} x {T} {kind}", lambda D=D, T=T, kind=kind: attention(s, be, D, T, kind))
    D = w.attend[-1][0]
    s.attempt(f"attention 64 x {w.masked} table", lambda: attention(s, be, D, w.masked, "table"))
    s.attempt(
        f"attention 64 x {w.learned} table, with gradients",
        lambda: attention(s, be, D, w.learned, "table", backward=True),
    )
    for batch, length in w.steps:
        for kind, one in (("tf32, as it is", replace(be, step=call)), ("plain ops on CuPy", s.plain())):
            work = lambda one=one, b=batch, n=length: step(s, one, b, n, brief=True)
            s.attempt(f"step {batch} x {length} {kind}", work)
    for n in (w.far, w.long):
        for kind, one in (("", be), (", skipping", s.backend("cuda:tf32"))):
            work = lambda one=one, n=n: attention(s, one, D, n, "ALiBi", channels=8 * D)
            s.attempt(f"attention 8 heads x {n} ALiBi{kind}", work)
    for kind in ("ALiBi", "table"):
        s.attempt(f"attention 64 x {w.long} {kind}", lambda kind=kind: attention(s, be, D, w.long, kind))
