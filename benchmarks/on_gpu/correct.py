"""Phase 4: the plain ops on CuPy against NumPy; then every kernel against the plain ops in float64, twice for
equal bits, and a training run of the device beside one of the CPU.
"""

from collections.abc import Callable
from functools import cache as once
from functools import partial
from typing import Any

import numpy as np

from on_gpu.cases import ELEMENTWISE, PRODUCT, Case, draw, heads, products, recurrences, rows
from on_gpu.ceilings import bf16
from on_gpu.golden import REFUSED, golden
from on_gpu.sanitizer import beside
from on_gpu.session import Session
from peref import backends
from peref.config import Config
from peref.encodings import get, names
from peref.errors import Misuse
from peref.model import cache, decode, init, logits, loss
from peref.ops.place import At
from peref.optim import adamw, update
from peref.tape import Tape
from peref.train import Recipe, one_step
from peref.xp import to_host

# relative Frobenius: float32 cut to TF32 in products, bfloat16, the plain ops in float64 on two libraries
CUT, HALF, EXACT = 1e-3, 1e-2, 1e-11
# between losses of a hundred steps here and on the CPU in float32; of the narrow ones three times what
# rounding the factors of products does there
APART = {"cuda": 1e-2, "cuda:tf32": 2.5e-2, "cuda:bf16": 0.1}


def pulled(
    be: Any,
    function: Callable,
    arrays: list[Any],
    settings: dict[str, Any],
    place: Callable,
    dtype: Any,
    between: Callable[[], Any] = lambda: None,
) -> list[Any]:
    """y and every gradient, on the host; between() is called before the gradients."""
    tape = Tape()
    real = lambda a: isinstance(a, np.ndarray) and a.dtype.kind == "f"
    args = [
        tape.watch(place(a.astype(dtype))) if real(a) else None if a is None else place(a) for a in arrays
    ]
    y = function(
        be,
        *args,
        **{n: place(one) if isinstance(one, (At, np.ndarray)) else one for n, one in settings.items()},
    )
    y = y[0] if isinstance(y, tuple) else y
    between()
    dy = np.random.default_rng(9).standard_normal(y.shape).astype(dtype)
    found = tape.gradients(y, place(np.asarray(dy)))
    host = lambda a: a.get() if hasattr(a, "get") else np.asarray(a)
    return [host(y.value), *(host(found[a]) for a in args if hasattr(a, "slot"))]


def checked(s: Session, be: Any, case: Case, dtype: Any, loose: float | None) -> dict[str, Any]:
    """Errors against float64 and whether two runs agree, of the result and of the gradients apart."""
    _, _, function, arrays, settings, tolerance = case
    rounded = lambda a: isinstance(a, np.ndarray) and a.dtype.kind == "f"
    exact = [a.astype(dtype).astype(np.float64) if rounded(a) else a for a in arrays]
    waste = s.xp.empty(1 << (8 if s.emulated else 26), np.float32)
    waste[...] = np.nan  # what new memory is made of next
    del waste
    marks = [len(s.launched)]
    mark = lambda: marks.append(len(s.launched))
    one = pulled(be, function, exact, settings, be.place, dtype, mark)
    mark()
    two = pulled(be, function, exact, settings, be.place, dtype)
    want = pulled(backends.Backend(), function, exact, settings, lambda a: a, np.float64)
    limit = tolerance if loose is None else loose

    def way(begin: int, end: int, some: slice) -> dict[str, Any]:
        worst = max((distance(a, b) for a, b in zip(one[some], want[some], strict=True)), default=0.0)
        equal = all(a.tobytes() == b.tobytes() for a, b in zip(one[some], two[some], strict=True))
        kernels = sorted(set(s.launched[begin:end]))
        return {"error": worst, "same_bits": equal, "good": worst <= limit and equal, "kernels": kernels}

    return summed(limit, forward=way(*marks[:2], slice(1)), backward=way(*marks[1:], slice(1, None)))


def summed(limit: float, **ways: dict[str, Any]) -> dict[str, Any]:
    """A row of what was found each way."""
    of = lambda key: [way[key] for way in ways.values()]
    return {
        "error": max(of("error")),
        "allowed": limit,
        "same_bits": all(of("same_bits")),
        "good": all(of("good")),
    } | ways


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Relative, in the Frobenius norm; b in float64."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / max(np.linalg.norm(b), 1e-30))


def trained(be: Any, steps: int, cfg: Config, dtype: Any = np.float32) -> tuple[np.ndarray, dict[str, Any]]:
    """The losses of a short training run, and the weights at its end."""
    p, recipe, found = {n: a.astype(dtype) for n, a in init(cfg).items()}, Recipe(batch=2), []
    p, m, v = (be.place(a) for a in (p, *({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv")))
    word = be.place(np.zeros(3))
    for step in range(1, steps + 1):
        x = (np.random.default_rng(step).integers(0, 16, (2, cfg.L + 1)).cumsum(1)) % 256
        be.step(
            one_step,
            be,
            cfg,
            recipe.rule,
            p,
            m,
            v,
            [(x[:, :-1], x[:, 1:])],
            np.array([3e-3, step, recipe.clip]),
            word,
        )
        found.append(float(word[0]))
    return np.array(found), {name: to_host(a) for name, a in p.items()}


def same_training(s: Session) -> dict[str, Any]:
    """A few steps of a small model by the plain ops, in float64: on CuPy, and on NumPy."""
    cfg = Config(pe=(("t5", {}),), L=16, C=16, layers=1, H=2, G=2)
    (losses, p), (want, weights) = (trained(be, 3, cfg, np.float64) for be in (s.plain(), backends.Backend()))
    worst = max(distance(losses, want), *(distance(p[n], a) for n, a in weights.items()))
    return {"error": worst, "allowed": EXACT, "good": worst <= EXACT}


def curves(s: Session) -> dict[str, Callable[[], dict[str, Any]]]:
    """For each backend a row: a training run here, twice for equal bits, beside one of the CPU."""
    steps, w = (2, 16) if s.emulated else (100, 128)
    cfg = Config(pe=(("t5", {}),), L=w, C=w, layers=1 if s.emulated else 2, H=2, G=2)
    plain = once(lambda: trained(backends.Backend(), steps, cfg))

    def beside(name: str) -> dict[str, Any]:
        (losses, p), again = (trained(s.backend(name), steps, cfg) for _ in range(2))
        want, weights = plain()
        equal = losses.tobytes() == again[0].tobytes() and all(
            a.tobytes() == again[1][n].tobytes() for n, a in p.items()
        )
        apart, moved = (
            float(abs(losses - want).max()),
            max(float(abs(a - weights[n]).max()) for n, a in p.items()),
        )
        found = {
            "steps": steps,
            "apart": apart,
            "weights_apart": moved,
            "first": float(losses[0]),
            "last": float(losses[-1]),
        }
        return found | {"allowed": APART[name], "same_bits": equal, "good": apart < APART[name] and equal}

    return {name: partial(beside, name) for name in APART}


def updating(s: Session, kind: str = "cuda") -> dict[str, Any]:
    """A step of AdamW over the arena, with a gradient that is cut, and of one tensor, against the plain
    ones in float64. In bfloat16 the arena's gradients are narrow, and so are the weights that the next step
    works with: those in float32, rounded.
    """
    begun = len(s.launched)
    be, half = s.backend(kind), kind == "cuda:bf16"
    shapes = {"a.weight": (30, 40) if s.emulated else (3000, 400), "b": (700,), "c": (1, 3)}
    kinds = [{n: draw(*shape, seed=k).astype(np.float32) for n, shape in shapes.items()} for k in range(3)]
    p, g, m = kinds
    sent = {n: a.astype(bf16()) for n, a in g.items()} if half else g
    g = {n: a.astype(np.float32) for n, a in sent.items()}
    v, numbers, word = (
        {n: a * a for n, a in m.items()},
        [np.array(x) for x in (2.0, 0.01, 3.0, 1.0)],
        np.zeros(3),
    )
    rule = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
    rest = {"sizes": {"b": 0.5}, "decay": 0.1, **rule}
    there, told, runs = [], [], []
    for _ in range(2):
        there, told = (
            [be.place({n: a.copy() for n, a in kind.items()}) for kind in (p, sent, m, v)],
            be.place(np.zeros(3)),
        )
        working = be.working(there[0])
        be.update(there[0], dict(there[1]), *there[2:], *map(be.place, numbers), told, **rest)
        alone = [be.place(kind["b"].copy()) for kind in (p, g, m, v)]
        be.adamw(*alone, *map(be.place, numbers[1:3]), decay=0.1, **rule)
        runs.append(
            [a.get() for kind in (there[0], *there[2:]) for a in kind.values()]
            + [alone[k].get() for k in (0, 2, 3)]
            + [a.get() for a in working.values()]
        )
    wide = [{n: a.astype(np.float64) for n, a in kind.items()} for kind in (p, g, m, v)]
    single = [kind["b"].copy() for kind in wide]
    update(*wide, *numbers, word, **rest)
    adamw(*single, *numbers[1:3], decay=0.1, **rule)
    want = [a for kind in (wide[0], *wide[2:]) for a in kind.values()] + [single[k] for k in (0, 2, 3)]
    worst = max(distance(a, b) for a, b in zip(runs[0][: len(want)], want, strict=True))
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(*runs, strict=True))
    rounded = (a.astype(bf16() if half else np.float32) for a in runs[0][: len(p)])
    kept = all(a.tobytes() == b.tobytes() for a, b in zip(runs[0][len(want) :], rounded, strict=True))
    good = worst <= ELEMENTWISE and equal and kept and bool(np.allclose(told.get(), word, rtol=1e-10))
    kernels = sorted(set(s.launched[begun:]))
    return summed(ELEMENTWISE, forward={"error": worst, "same_bits": equal, "good": good, "kernels": kernels})


def whole(s: Session, be: Any, name: str) -> dict[str, Any]:
    """A small model with this encoding: loss and every gradient against float64, twice for equal bits, and
    decoding in pieces against one call.

    Where the plain ops in float32 are further off than kernels may be, a rounding decides, and four times
    that is allowed.
    """
    cfg = Config(pe=((name, {}),), L=16, C=36, layers=2, H=3, G=None if get(name).mix else 3)
    p = {n: a + 0.1 * draw(*a.shape, seed=7).astype(np.float32) for n, a in init(cfg).items()}
    x = np.random.default_rng(8).integers(0, cfg.V, (2, 11))

    def of(be: Any, p: Any, dtype: Any) -> list[Any]:
        tape = Tape()
        leaves = tape.watch(be.place(p))
        y, nll = loss(cfg, leaves, x, x, be=be)
        found = tape.gradients(y, be.place(np.ones((), dtype)))
        return [to_host(nll), *(to_host(found[leaves[n]]) for n in sorted(p))]

    exact = {n: a.astype(np.float64) for n, a in p.items()}
    got, again = (of(be, p, np.float32) for _ in range(2))
    want, rounded = of(backends.Backend(), exact, np.float64), of(backends.Backend(), p, np.float32)
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(got, again, strict=True))
    misses = [
        (distance(a, c), max(PRODUCT, 4 * distance(b, c))) for a, b, c in zip(got, rounded, want, strict=True)
    ]
    memory, rows, there = cache(cfg, 11), [], be.place(p)
    for first, stop in ((0, 5), (5, 6), (6, 11)):
        y, memory = decode(cfg, there, x[:, first:stop], memory, be=be)
        rows.append(to_host(y))
    apart = distance(np.concatenate(rows, 1), to_host(logits(cfg, exact, x)))
    worst = max(misses, key=lambda pair: pair[0] / pair[1])
    good = all(a <= b for a, b in misses) and apart < 1e-4 and equal
    return {"error": worst[0], "allowed": worst[1], "decoded": apart, "same_bits": equal, "good": good}


def unless_refused(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What work() finds, or what the backend has no kernels for."""
    try:
        return work()
    except Misuse as error:
        if REFUSED not in str(error):
            raise
        return {"refused": 1, "because": [str(error)]}


def correctness(s: Session) -> None:
    with beside(s):
        rows_of(s)


def rows_of(s: Session) -> None:
    """What the kernels are judged by comes first: the plain ops on CuPy are those on NumPy.

    Every row that vouches for a kernel file, its own operations alone, comes before the encodings, which
    take longest and name the kernels that they launched.
    """
    be, tf32, half = s.backend(), s.backend("cuda:tf32"), bf16()
    single, wide, narrow, scans = ([*one(s.emulated)] for one in (rows, heads, products, recurrences))
    plain = s.plain()
    for case in [*single, *wide, *narrow, *scans]:
        if "reach" in case[0]:
            continue  # it is in the kernels that attention stops
        s.attempt(f"cupy {case[1]}", partial(checked, s, plain, case, np.float64, EXACT))
    s.attempt("cupy training", lambda: same_training(s))
    for case in [*single, *wide, *narrow, *scans]:
        s.attempt(case[1], partial(checked, s, be, case, np.float32, None), files=case[0])
    for kind in ("cuda", "cuda:bf16"):
        title = f"adamw over an arena{kind.removeprefix('cuda').replace(':', ' ')}"
        s.attempt(title, partial(updating, s, kind), files="optimizer")
    for case in [*wide[1:2], *narrow] if s.emulated else [*wide, *narrow]:
        s.attempt(f"{case[1]} tf32", partial(checked, s, tf32, case, np.float32, CUT), files=case[0])
    for case in [*single[2:4], *narrow, *scans[:1]] if s.emulated else [*single, *wide, *narrow, *scans]:
        s.attempt(f"{case[1]} bf16", partial(checked, s, be, case, half, HALF), files=case[0])
    for name, work in curves(s).items():
        s.attempt(f"loss curve{name.removeprefix('cuda').replace(':', ' ')}", work)
    for title, work in golden(be, ["none", "rope", "retnet"] if s.emulated else names()):
        s.attempt(title, work)
    for name in ("alibi", "mamba") if s.emulated else names():
        s.attempt(f"model {name}", partial(unless_refused, partial(whole, s, be, name)))
