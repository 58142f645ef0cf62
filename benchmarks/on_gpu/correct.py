"""Phase 3: every kernel against the plain ops in float64, twice for equal bits, and a training run of the device beside one of the CPU."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from on_gpu.ceilings import bf16
from on_gpu.golden import golden
from on_gpu.session import Session
from peref import backends
from peref.config import Config
from peref.encodings import get, names
from peref.model import cache, decode, init, logits, loss
from peref.ops.place import At
from peref.optim import adamw, update
from peref.tape import Tape
from peref.train import Recipe, one_step
from peref.xp import to_host

ELEMENTWISE, PRODUCT, HALF = 2e-6, 1e-5, 1e-2  # relative Frobenius: float32 that adds little, float32 sums, bfloat16

Case = tuple[str, str, Callable, list[Any], dict[str, Any], float]  # kernel files, title, (be, arrays) -> y, arrays, settings, tolerance


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def field(name: str) -> Callable:
    return lambda be, *arrays, **settings: getattr(be, name)(*arrays, **settings)


def rows(tiny: bool) -> Iterator[Case]:
    """The kernels that go over rows."""
    N, C = (5, 40) if tiny else (1000, 1536)
    x, w, b = draw(N, C), draw(C, seed=1), draw(C, seed=2)
    yield "norm", "rms_norm", field("rms_norm"), [x, w], {"eps": 1e-5}, PRODUCT
    yield "norm", "layer_norm", field("layer_norm"), [x, w, b], {"eps": 1e-5}, PRODUCT
    yield "activation", "swiglu", field("swiglu"), [x, draw(N, C, seed=3)], {}, ELEMENTWISE
    yield "activation", "gelu", field("gelu"), [x], {}, ELEMENTWISE
    index = np.random.default_rng(4).integers(0, N, 3 * N)
    yield "embedding", "take", field("take"), [x, index], {}, PRODUCT
    yield "loss", "cross_entropy", field("cross_entropy"), [x, np.random.default_rng(5).integers(-1, C, N)], {}, PRODUCT
    q, angle = draw(2, 3, 7 if tiny else 77, 64), draw(7 if tiny else 77, 24, seed=6)
    for layout in ("half", "interleaved"):
        yield "turn", f"turn {layout}", lambda be, x, layout=layout: be.turn(x, be.place(angle), None, layout=layout), [q], {}, ELEMENTWISE
    yield "turn", "turn by learned angles", lambda be, x, angle: be.turn(x, angle, None, layout="half"), [q, angle], {}, PRODUCT


def heads(tiny: bool) -> Iterator[Case]:
    """Attention and retention: widths, ragged lengths, grouped heads, a table with its gradient, windows, documents."""
    lengths = (9,) if tiny else (130, 333)
    files = "attention attention_backward embedding"
    for D in (32,) if tiny else (32, 64, 128, 40):
        for T in lengths:
            q, k, v, table = draw(2, 4, T, D), draw(2, 2, T, D, seed=1), draw(2, 2, T, D, seed=2), draw(4, T, seed=3)
            seg = np.repeat([[1, 2]], 2, 0).repeat([T // 3, T - T // 3], 1)
            yield files, f"attention {D} x {T}", field("attention"), [q, k, v, None], {"at": At.of(T), "scale": D**-0.5}, PRODUCT
            yield files, f"attention {D} x {T} table", field("attention"), [q, k, v, table], {"at": At.of(T), "scale": D**-0.5}, PRODUCT
            near = At.of(T, window=max(2, T // 5))
            yield files, f"attention {D} x {T} window", field("attention"), [q, k, v, None], {"at": near, "scale": D**-0.5}, PRODUCT
            packed = At.of(T, seg=seg)
            yield files, f"attention {D} x {T} packed", field("attention"), [q, k, v, None], {"at": packed, "scale": D**-0.5}, PRODUCT
    T, H = (520, 1) if tiny else (1500, 8)  # enough queries to look where to stop, and a table that is steep enough to
    steep = [*(draw(1, H, T, 32, seed=s) for s in range(3)), -np.arange(1.0, H + 1)[:, None] * np.arange(T) / H]
    yield f"{files} reach", "attention that stops", field("attention"), steep, {"at": At.of(T), "scale": 32**-0.5}, PRODUCT
    T = lengths[-1]
    decay = {"log_decay": np.log(1 - 2.0 ** -np.arange(5, 9)), "chunk": 64, "scale": 0.2}
    first = lambda be, q, k, v, **given: be.retention(q, k, v, None, None, **given)[0]
    yield "retention", "retention", first, [draw(2, 4, T, 32, seed=s) for s in range(3)], decay, PRODUCT


def pulled(be: Any, function: Callable, arrays: list[Any], settings: dict[str, Any], place: Callable, dtype: Any) -> list[Any]:
    """y and every gradient, on the host."""
    tape = Tape()
    real = lambda a: isinstance(a, np.ndarray) and a.dtype.kind == "f"
    args = [tape.watch(place(a.astype(dtype))) if real(a) else None if a is None else place(a) for a in arrays]
    y = function(be, *args, **{name: place(one) if isinstance(one, At) else one for name, one in settings.items()})
    y = y[0] if isinstance(y, tuple) else y
    dy = np.random.default_rng(9).standard_normal(y.shape).astype(dtype)
    found = tape.gradients(y, place(np.asarray(dy)))
    host = lambda a: a.get() if hasattr(a, "get") else np.asarray(a)
    return [host(y.value), *(host(found[a]) for a in args if hasattr(a, "slot"))]


def checked(s: Session, be: Any, case: Case, dtype: Any, loose: float | None) -> dict[str, Any]:
    """Errors against float64 and whether two runs agree."""
    _, _, function, arrays, settings, tolerance = case
    held = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arrays]
    exact = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind not in "iu" else a for a in held]
    waste = s.xp.empty(1 << (8 if s.emulated else 26), np.float32)
    waste[...] = np.nan  # what new memory is made of next
    del waste
    held = [a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype.kind not in "iu" else a for a in held]
    one, two = (pulled(be, function, held, settings, be.place, dtype) for _ in range(2))
    want = pulled(backends.Backend(), function, exact, settings, lambda a: a, np.float64)
    distance = lambda a, b: float(np.linalg.norm(a.astype(np.float64) - b) / max(np.linalg.norm(b), 1e-30))
    worst, limit = max(map(distance, one, want)), tolerance if loose is None else loose
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))
    return {"error": worst, "allowed": limit, "same_bits": equal, "good": worst <= limit and equal}


def curve(s: Session) -> dict[str, Any]:
    """The losses of a short training run, here and on the CPU."""
    steps = 4 if s.emulated else 100
    cfg = Config(pe=(("t5", {}),), L=16 if s.emulated else 128, C=16 if s.emulated else 128, layers=1 if s.emulated else 2, H=2, G=2)
    recipe, losses, weights = Recipe(batch=2), [], []
    for be in (s.backend(), backends.Backend()):
        p = init(cfg)
        p, m, v = (be.place(a) for a in (p, *({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv")))
        word, found = be.place(np.zeros(3)), []
        for step in range(1, steps + 1):
            x = (np.random.default_rng(step).integers(0, 16, (2, cfg.L + 1)).cumsum(1)) % 256
            be.step(one_step, be, cfg, recipe.rule, p, m, v, [(x[:, :-1], x[:, 1:])], np.array([3e-3, step, recipe.clip]), word)
            found.append(float(word[0]))
        losses.append(np.array(found))
        weights.append({name: a.get() if hasattr(a, "get") else a for name, a in p.items()})
    apart, moved = float(abs(losses[0] - losses[1]).max()), max(float(abs(a - weights[1][name]).max()) for name, a in weights[0].items())
    return {"steps": steps, "apart": apart, "weights_apart": moved, "first": float(losses[0][0]), "last": float(losses[0][-1]), "good": apart < 1e-2}


def updating(s: Session) -> dict[str, Any]:
    """A step of AdamW over the arena, with a gradient that is cut, and of one tensor, against the plain ones in float64."""
    be, shapes = s.backend(), {"a.weight": (30, 40) if s.emulated else (3000, 400), "b": (700,), "c": (1, 3)}
    kinds = [{n: draw(*shape, seed=k).astype(np.float32) for n, shape in shapes.items()} for k in range(3)]
    p, g, m = kinds
    v, numbers, word = {n: a * a for n, a in m.items()}, [np.array(x) for x in (2.0, 0.01, 3.0, 1.0)], np.zeros(3)
    rule = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
    rest = {"sizes": {"b": 0.5}, "decay": 0.1, **rule}
    there, told, runs = [], [], []
    for _ in range(2):
        there, told = [be.place({n: a.copy() for n, a in kind.items()}) for kind in (p, g, m, v)], be.place(np.zeros(3))
        be.update(there[0], dict(there[1]), *there[2:], *map(be.place, numbers), told, **rest)
        alone = [be.place(kind["b"].copy()) for kind in (p, g, m, v)]
        be.adamw(*alone, *map(be.place, numbers[1:3]), decay=0.1, **rule)
        runs.append([a.get() for kind in (there[0], *there[2:]) for a in kind.values()] + [alone[k].get() for k in (0, 2, 3)])
    wide = [{n: a.astype(np.float64) for n, a in kind.items()} for kind in (p, g, m, v)]
    single = [kind["b"].copy() for kind in wide]
    update(*wide, *numbers, word, **rest)
    adamw(*single, *numbers[1:3], decay=0.1, **rule)
    want = [a for kind in (wide[0], *wide[2:]) for a in kind.values()] + [single[k] for k in (0, 2, 3)]
    worst = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(runs[0], want, strict=True))
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(*runs, strict=True))
    good = worst <= ELEMENTWISE and equal and bool(np.allclose(told.get(), word, rtol=1e-10))
    return {"error": worst, "allowed": ELEMENTWISE, "same_bits": equal, "good": good}


def whole(s: Session, be: Any, name: str) -> dict[str, Any]:
    """A small model with this encoding: its logits, loss and every gradient against float64, and decoding in pieces against one call.

    Where the plain ops in float32 are further off than kernels may be, a rounding decides, and four times that is allowed.
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
    got, want, rounded = of(be, p, np.float32), of(backends.Backend(), exact, np.float64), of(backends.Backend(), p, np.float32)
    distance = lambda a, b: float(np.linalg.norm(a.astype(np.float64) - b) / max(np.linalg.norm(b), 1e-30))
    misses = [(distance(a, c), max(PRODUCT, 4 * distance(b, c))) for a, b, c in zip(got, rounded, want, strict=True)]
    memory, rows, there = cache(cfg, 11), [], be.place(p)
    for first, stop in ((0, 5), (5, 6), (6, 11)):
        y, memory = decode(cfg, there, x[:, first:stop], memory, be=be)
        rows.append(to_host(y))
    apart = distance(np.concatenate(rows, 1), to_host(logits(cfg, exact, x)))
    worst = max(misses, key=lambda pair: pair[0] / pair[1])
    return {"error": worst[0], "allowed": worst[1], "decoded": apart, "good": all(a <= b for a, b in misses) and apart < 1e-4}


def correctness(s: Session) -> None:
    be = s.backend()
    every = [*rows(s.emulated), *heads(s.emulated)]
    for case in every:
        s.attempt(case[1], partial(checked, s, be, case, np.float32, None), files=case[0])
    s.attempt("adamw over an arena", lambda: updating(s), files="optimizer")
    s.attempt("loss curve", lambda: curve(s), files="optimizer")
    for title, files, work in golden(be, ["rope", "retnet"] if s.emulated else names()):
        s.attempt(title, work, files=files)
    for name in ("alibi", "mamba") if s.emulated else names():
        s.attempt(f"model {name}", partial(whole, s, be, name))
    for case in every if not s.emulated else every[2:4]:
        s.attempt(f"{case[1]} bf16", lambda case=case: checked(s, be, case, bf16(), HALF), files=case[0])
