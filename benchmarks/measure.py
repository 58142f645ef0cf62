"""One measurement of peref, printed as one line of JSON. speed.py runs many of them beside the same ones of
its peers (peers.py).

    python benchmarks/measure.py train --pe alibi --width 128 --layers 4 --heads 4 --batch 8 --len 512 --shape
    bench

    train       a training step: loss, every gradient, clipping at global norm 1, AdamW
    eval        loss without gradients
    attention   attention alone, forward and backward, with ALiBi's table
    rope        rotation of one tensor [batch,heads,len,head width]; --allocate: as users call it, else into
                an output that is there
    decode      `len` tokens one at a time through the cache
    start       a new process to the end of its first training step; --cold: with an empty cache of compiled
                code
    warmup      the command of that name with an empty cache

Also here, for peers.py: the arguments, the weights and inputs (the same numbers for everybody), the clock,
and what other processes took. Only the standard library is imported before the clock of a start runs; memory
is the largest resident set of the whole process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WHAT = ("train", "eval", "attention", "rope", "decode", "start", "warmup")
ENCODINGS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5", "learned_bias")
VOCABULARY, EPS, BASE = 256, 1e-5, 10000.0
BUCKETS, FARTHEST = 32, 128  # of t5
RATE, BETA1, BETA2, ADAM_EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0


def arguments(doc: str | None, peers: tuple[str, ...] = ()) -> argparse.Namespace:
    """The command line, the same for us and for the peers but for --peer."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    if peers:
        parser.add_argument("--peer", choices=peers, required=True)
    parser.add_argument("--pe", choices=ENCODINGS, default="alibi")
    parser.add_argument(
        "--shape",
        choices=("bench", "llama"),
        default="bench",
        help="bench: GELU, G = H, untied; llama: our default",
    )
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--len", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="time again and again for about so long")
    parser.add_argument("--least", type=int, default=3, help="times at least")
    parser.add_argument("--most", type=int, default=1000, help="times at most")
    parser.add_argument("--warm", type=int, default=2, help="times before the clock runs, after the first")
    parser.add_argument("--cold", action="store_true", help="start: nothing is compiled yet")
    parser.add_argument(
        "--allocate", action="store_true", help="rope: what users call, which makes its output"
    )
    a = parser.parse_args()
    a.kv = a.heads if a.shape == "bench" else a.heads // 2 if a.heads % 2 == 0 else a.heads
    a.head = a.width // a.heads
    a.hidden = 4 * a.width if a.shape == "bench" else -(-8 * a.width // (3 * 32)) * 32
    return a


# ---------------------------------------------------------------- the clock


def processes() -> dict[int, tuple[int, float]]:
    """Every process -> its parent and the CPU seconds of it and of its children that have ended."""
    found, hz = {}, os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        found[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / hz
    return found


def own_seconds() -> float:
    """CPU time of this process and of all that it started, those of them that run included."""
    known = processes()
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in known.items() if parent in ours} - ours:
        ours |= more
    return sum(known[pid][1] for pid in ours if pid in known)


def busy_seconds() -> float:
    """CPU time of everybody since the machine started; what a hypervisor took away counts as busy."""
    fields = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(fields[k] for k in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Others:
    """How much of the CPU other processes used since it was made, in cores; None where the system does not
    say (no /proc).
    """

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.before = self.taken()

    def taken(self) -> float | None:
        return busy_seconds() - own_seconds() if Path("/proc/stat").exists() else None

    def cores(self) -> float | None:
        now = self.taken()
        if now is None or self.before is None:
            return None
        return round(max(0.0, (now - self.before) / (time.perf_counter() - self.began)), 3)


BEGAN, SINCE_START = time.perf_counter(), Others()


def since_start() -> float:
    """Seconds since this process was started."""
    if not Path("/proc/self/stat").exists():
        return time.perf_counter() - BEGAN
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def peak_mib() -> float | None:
    """The largest resident set of this process so far. Not getrusage's: that begins with what the parent
    had.
    """
    path = Path("/proc/self/status")
    return (
        next(
            (
                int(line.split()[1]) / 1024
                for line in path.read_text().splitlines()
                if line.startswith("VmHWM")
            ),
            None,
        )
        if path.exists()
        else None
    )


def hold(threads: int) -> None:
    """To be called before NumPy and its like are imported: as many threads, and as many cores, for
    everything.
    """
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


@contextmanager
def empty_cache(variable: str, wanted: bool = True) -> Iterator[None]:
    """The environment variable names an empty folder meanwhile."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ[variable] = folder
        yield


def repeated(
    a: argparse.Namespace, step: Callable[[], Any], look: Callable[[Any], list[float]] = lambda loss: [loss]
) -> dict[str, Any]:
    """Call `step` until it is warm, then against the clock. `look` takes what it returns to a few numbers
    that must agree with the peers'.
    """
    base, began = peak_mib(), time.perf_counter()
    check = look(step())
    first = time.perf_counter() - began
    for _ in range(a.warm):
        check += look(step())
    took: list[float] = []
    others, began = Others(), time.perf_counter()
    while len(took) < a.most and (len(took) < a.least or time.perf_counter() - began < a.seconds):
        before = time.perf_counter()
        step()
        took.append(time.perf_counter() - before)
    foreign = others.cores()
    return {
        "seconds": statistics.median(took),
        "range": [min(took), max(took)],
        "times": len(took),
        "foreign": foreign,
        "first": first,
        "peak_mib": peak_mib(),
        "base_mib": base,
        "check": check,
    }


def started(step: Callable[[], float]) -> dict[str, Any]:
    """The seconds of this process up to the end of its first step."""
    built, loss = since_start(), step()
    seconds = since_start()
    return {
        "seconds": seconds,
        "first": seconds - built,
        "foreign": SINCE_START.cores(),
        "peak_mib": peak_mib(),
        "check": [loss],
    }


def report(a: argparse.Namespace, who: str, found: dict[str, Any], versions: dict[str, str]) -> None:
    tokens = a.len * a.batch if a.what in ("train", "eval", "decode") else None
    speed = {"tokens_per_s": tokens / found["seconds"]} if tokens else {}
    print(
        json.dumps({"what": a.what, "who": who, **found, **speed, "threads": a.threads, "versions": versions})
    )


# ---------------------------------------------------------------- what the machine can do


def operations(a: argparse.Namespace) -> float | None:
    """Multiplications and additions of the products in the work, with the keys that causal attention sees;
    None where the multiplier is not what bounds it.
    """
    one = 4.0 * a.batch * a.heads * a.head * a.len * (a.len + 1) / 2  # attention forward, of a layer
    block = a.width * a.head * (2 * a.heads + 2 * a.kv) + (2 + (a.shape == "llama")) * a.width * a.hidden
    linear = 2.0 * a.batch * a.len * (a.layers * block + VOCABULARY * a.width)
    of = {"train": 3 * linear + 3.5 * a.layers * one, "eval": linear + a.layers * one, "attention": 3.5 * one}
    return of.get(a.what)


def peaks(a: argparse.Namespace) -> dict[str, float]:
    """GFLOP/s of this machine on these threads: NumPy's sgemm of 2048 x 2048, and multiply-adds of numbers
    in registers and the first cache. The best of a few times, after the work and not beside it.
    """
    import numpy as np
    from numba import njit

    from peref.backends.numba.host import COLUMNS, ROWS
    from peref.backends.numba.kernel import INNER
    from peref.backends.numba.threads import in_parallel
    from peref.backends.numba.tile import tile_set

    def best(work: Callable[[], Any]) -> float:
        took = []
        for _ in range(6):
            before = time.perf_counter()
            work()
            took.append(time.perf_counter() - before)
        return min(took)

    @njit(**INNER)
    def one(unit: Any, c: Any, x: Any, times: Any) -> None:
        tile_set(c, unit * ROWS * COLUMNS, COLUMNS, x, 0, 0, 0, x, 0, 0, times)

    @njit
    def all_threads(c: Any, x: Any, times: Any) -> None:
        in_parallel(one, len(c) // (ROWS * COLUMNS), (c, x, times))

    n, times = 2048, 5_000_000
    x, y = np.ones((n, n), np.float32), np.empty((n, n), np.float32)
    c, line = np.empty(a.threads * ROWS * COLUMNS, np.float32), np.ones(COLUMNS, np.float32)
    return {
        "fma": 2e-9 * c.size * times / best(lambda: all_threads(c, line, times)),
        "sgemm": 2e-9 * n**3 / best(lambda: np.matmul(x, x, out=y)),
    }


# ---------------------------------------------------------------- the same numbers for everybody


def weights(a: argparse.Namespace) -> dict[str, Any]:
    """Weights of the model under peref's names. Their sizes are those of a new model: logits and gradients
    are realistic.
    """
    import numpy as np

    rng, C, D = np.random.default_rng(0), a.width, a.head
    ones = lambda: np.ones(C, np.float32)
    normal = lambda rows, columns, by: (by * rng.standard_normal((rows, columns))).astype(np.float32)
    p = {"embed.weight": normal(VOCABULARY, C, C**-0.5), "norm.weight": ones()}
    if a.shape == "bench":
        p["head.weight"] = normal(VOCABULARY, C, C**-0.5)
    out, of_q = (2 * a.layers) ** -0.5, D**-0.5 if a.pe == "t5" else 1.0
    for l in range(a.layers):
        p |= {
            f"{l}.norm1.weight": ones(),
            f"{l}.norm2.weight": ones(),
            f"{l}.q.weight": normal(a.heads * D, C, of_q * C**-0.5),
        }
        p |= {f"{l}.{name}.weight": normal(a.kv * D, C, C**-0.5) for name in "kv"}
        p |= {f"{l}.o.weight": normal(C, a.heads * D, out * (a.heads * D) ** -0.5)}
        p |= {
            f"{l}.{name}.weight": normal(a.hidden, C, C**-0.5)
            for name in (("up",) if a.shape == "bench" else ("gate", "up"))
        }
        p |= {f"{l}.down.weight": normal(C, a.hidden, out * a.hidden**-0.5)}
        if a.pe == "learned_bias":
            p[f"{l}.pe.table"] = normal(a.heads, a.len, 0.02)
    if a.pe in ("t5", "learned"):
        p["pe.0.table"] = normal(BUCKETS, a.heads, 0.02) if a.pe == "t5" else normal(a.len, C, 0.02)
    return p


def tokens(a: argparse.Namespace) -> tuple[Any, Any]:
    """Inputs and targets, [batch,len] int64."""
    import numpy as np

    drawn = np.random.default_rng(1).integers(0, VOCABULARY, (a.batch, a.len + 1))
    return drawn[:, :-1].copy(), drawn[:, 1:].copy()


def tensors(a: argparse.Namespace, count: int) -> list[Any]:
    """Random [batch,heads,len,head width] float32."""
    import numpy as np

    rng = np.random.default_rng(2)
    return [rng.standard_normal((a.batch, a.heads, a.len, a.head), dtype=np.float32) for _ in range(count)]


def angles(a: argparse.Namespace) -> Any:
    """Of RoPE, [len,head width/2] float64."""
    import numpy as np

    return np.arange(a.len)[:, None] * BASE ** (-2 * np.arange(a.head // 2) / a.head)


def sizes(arrays: Any) -> list[float]:
    """The mean absolute value of each."""
    return [float(abs(x).mean()) for x in arrays]


def corner(y: Any) -> list[float]:
    """A few numbers of y [B,H,T,D], at the last token."""
    return [float(x) for x in y[0, -1, -1, :4]]


# ---------------------------------------------------------------- ours


def config(a: argparse.Namespace) -> Any:
    from peref.config import shaped

    given = {"activation": "gelu", "tied": False, "G": a.heads} if a.shape == "bench" else {}
    return shaped(
        "llama",
        pe=((a.pe, {}),),
        L=a.len,
        V=VOCABULARY,
        C=a.width,
        layers=a.layers,
        H=a.heads,
        eps=EPS,
        **given,
    )


def model(a: argparse.Namespace, be: Any) -> tuple[Any, Any]:
    """Config and weights."""
    from peref.model import check

    cfg, p = config(a), weights(a)
    check(cfg, p)
    return cfg, be.place(p)


def training(a: argparse.Namespace, be: Any) -> Callable[[], float]:
    import numpy as np

    from peref.recipe import Recipe
    from peref.train import one_step

    cfg, p = model(a, be)
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    recipe = Recipe(batch=a.batch, beta1=BETA1, beta2=BETA2, eps=ADAM_EPS, decay=DECAY, clip=CLIP)
    batch, count = tokens(a), iter(range(1, 1 << 30))
    return lambda: be.step(
        one_step, be, cfg, recipe.rule, p, m, v, [batch], np.array([RATE, next(count), CLIP])
    )[0]


def evaluation(a: argparse.Namespace, be: Any) -> Callable[[], float]:
    from peref.model import loss

    (cfg, p), (inputs, targets) = model(a, be), tokens(a)
    return lambda: float(loss(cfg, p, inputs, targets, be=be)[0])


def attention(a: argparse.Namespace, be: Any) -> Callable[[], list[Any]]:
    from peref.hooks import distance_table
    from peref.ops.place import At
    from peref.tape import Tape

    q, k, v, do = tensors(a, 4)
    encoding = config(a).encoding(0)

    def step() -> list[Any]:
        tape, at = Tape(), At.of(a.len)
        table = distance_table(be, encoding, {}, at.distances)
        leaves = tape.watch({"q": q, "k": k, "v": v})
        o = be.attention(*leaves.values(), table, at=at, scale=a.head**-0.5)
        found = tape.gradients(o, do)
        return [o.value, *(found[leaf] for leaf in leaves.values())]

    return step


def rotation(a: argparse.Namespace, be: Any) -> Callable[[], Any]:
    import numpy as np

    from peref.backends.numba.kernel import kernels

    (x,), angle = tensors(a, 1), angles(a)
    if a.allocate:
        return lambda: be.turn(x, angle, None, layout="half")
    cos, sin = (np.ascontiguousarray(f(angle)[None], np.float32) for f in (np.cos, np.sin))
    y = np.zeros((a.batch, a.len, a.heads, a.head), np.float32)
    turn = kernels("turn").turn

    def step() -> Any:
        turn(y, x, cos, sin, True)
        return y.swapaxes(1, 2)

    return step


def decoding(a: argparse.Namespace, be: Any) -> Callable[[], Any]:
    from peref.model import cache, decode

    (cfg, p), (inputs, _) = model(a, be), tokens(a)

    def step() -> Any:
        memory = cache(cfg, a.len)
        for t in range(a.len):
            logits, memory = decode(cfg, p, inputs[:, t : t + 1], memory, be=be)
        return logits[0, 0]

    return step


def warmup() -> dict[str, Any]:
    with empty_cache("XDG_CACHE_HOME"):
        before = time.perf_counter()
        subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), "warmup", "--json"], check=True, capture_output=True
        )
        seconds = time.perf_counter() - before
        return {"seconds": seconds, "foreign": SINCE_START.cores(), "check": []}


def main() -> None:
    a = arguments(__doc__)
    hold(a.threads)
    sys.path.insert(0, str(ROOT))
    if a.what == "warmup":
        found = warmup()
    else:
        with empty_cache("XDG_CACHE_HOME", a.cold):
            from peref import backends

            be = backends.get("numba", threads=a.threads, say=lambda text: print(text, file=sys.stderr))
            match a.what:
                case "start":
                    found = started(training(a, be))
                case "train":
                    found = repeated(a, training(a, be))
                case "eval":
                    found = repeated(a, evaluation(a, be))
                case "attention":
                    found = repeated(a, attention(a, be), sizes)
                case "rope":
                    found = repeated(a, rotation(a, be), corner)
                case "decode":
                    found = repeated(a, decoding(a, be), lambda logits: sizes([logits]))
    import numba
    import numpy

    import peref

    if work := operations(a):
        found |= {"operations": work, "peaks": peaks(a)}
    versions = {"peref": peref.__version__, "numba": numba.__version__, "numpy": numpy.__version__}
    report(a, "ours", found, versions)


if __name__ == "__main__":
    main()
