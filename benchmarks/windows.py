"""What a window saves: a training step of --pe rope,rope,rope,none with --set 0.window=128, 1.window=128 and
2.window=128, beside the same cycle without windows.

    python benchmarks/windows.py [--window 128] [--rounds 9] [--threads 1] [--shape 8x512 --shape 2x2048]

Both are steps of the default model in float32 with numba, in one process, in turn: a round is one step of
each, and which is first changes from round to round. Printed are, for each shape (batch x length), the median
over the rounds of the ratio with to without, of wall time and of CPU time of this process, each with its
range. Exit code 1 where the median of CPU time is above --limit.

    python benchmarks/windows.py --decode 100000

What it saves in decoding: the default model of --pe rope, all of its layers with the window, reads so many
tokens, in pieces of 1,000 and the last 100 one at a time, and the same without; a process for each. Printed
are the keys and values of the cache in bytes, the arrays that they lie in, which have room to spare, and the
peak memory of the process.
"""

import argparse
import itertools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import measure

SHAPES = ("8x512", "2x2048")
Clocks = tuple[float, float]  # wall, CPU


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument(
        "--shape", action="append", help=f"batch x length; {' and '.join(SHAPES)} unless said"
    )
    parser.add_argument("--decode", type=int, metavar="TOKENS", help="measure the memory of decoding instead")
    return parser.parse_args()


def cycle(window: int | None) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Three layers that turn, with a window or without, and one of no encoding."""
    return (("rope", {} if window is None else {"window": window}),) * 3 + (("none", {}),)


def stepping(window: int | None, batch: int, length: int, be: Any) -> Callable[[], Any]:
    """A training step of the default model."""
    import numpy as np

    from peref import model
    from peref.config import Config
    from peref.recipe import Recipe
    from peref.train import one_step

    cfg = Config(pe=cycle(window), L=length)
    p = be.place(model.init(cfg, 0, np.float32))
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in range(2))
    text = np.random.default_rng(1).integers(0, cfg.V, (batch, length + 1))
    parts, rule = [(text[:, :-1].copy(), text[:, 1:].copy())], Recipe(batch=batch).rule
    numbers = np.array([1e-3, 1.0, 1.0])
    return lambda: be.step(one_step, be, cfg, rule, p, m, v, parts, numbers)


def timed(step: Callable[[], Any]) -> Clocks:
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - wall, time.process_time() - cpu


def ratios(
    one: Callable[[], Any], other: Callable[[], Any], rounds: int
) -> tuple[list[Clocks], list[Clocks]]:
    """Of each round one / other, and the seconds of other."""
    for step in (one, other):  # kernels compile, arrays find their place
        step()
        step()
    found, took = [], []
    for number in range(rounds):
        if number % 2:
            b, a = timed(other), timed(one)
        else:
            a, b = timed(one), timed(other)
        found.append((a[0] / b[0], a[1] / b[1]))
        took.append(b)
    return found, took


def decoding(window: int | None, count: int, threads: int) -> tuple[int, int, float | None]:
    """Bytes of keys and values, of the arrays that they lie in, and the peak memory of the process, MiB."""
    measure.hold(threads)
    import numpy as np

    from peref import backends, model
    from peref.config import Config

    be, cfg, last = backends.get("numba", threads=threads), Config(pe=cycle(window)[:1]), max(count - 100, 0)
    p, cache = be.place(model.init(cfg, 0, np.float32)), model.cache(cfg, count)
    text = np.random.default_rng(1).integers(0, cfg.V, (1, count))
    cuts = [*range(0, last, 1000), *range(last, count + 1)]
    for first, stop in itertools.pairwise(cuts):
        _, cache = model.decode(cfg, p, text[:, first:stop], cache, be=be)
    kept = [layer[name] for layer in cache.layers for name in "kv"]
    return sum(x.rows.nbytes for x in kept), sum(x.buffer.nbytes for x in kept), measure.peak_mib()


def memory_of_decoding(a: argparse.Namespace) -> int:
    print(f"{a.decode:,} tokens through the cache, float32, {a.threads} threads:")
    for window in (a.window, None):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            kept, room, peak = fresh.apply(decoding, (window, a.decode, a.threads))
        print(f"  {f'window {window}' if window else 'no window'}: keys and values {kept:,} bytes", end="")
        print(f", in arrays of {room:,}; peak memory of the process {peak:.0f} MiB")
    return 0


def main() -> int:
    a = arguments()
    if a.decode:
        return memory_of_decoding(a)
    measure.hold(a.threads)
    from peref import backends

    be, worst = backends.get("numba", threads=a.threads), 0.0
    for shape in a.shape or SHAPES:
        batch, length = map(int, shape.split("x"))
        steps = [stepping(window, batch, length, be) for window in (a.window, None)]
        found, took = ratios(*steps, a.rounds)
        print(f"{shape}, window {a.window}, {a.threads} threads, {a.rounds} rounds; with / without:")
        for k, clock in enumerate(("wall", "CPU")):
            each = [pair[k] for pair in found]
            median, seconds = statistics.median(each), statistics.median(pair[k] for pair in took)
            print(f"  {clock:4}  {median:.3f}  ({min(each):.3f} to {max(each):.3f})", end="")
            print(f", without {seconds:.3f} s a step")
        worst = max(worst, median)
    return int(worst > a.limit)


if __name__ == "__main__":
    sys.exit(main())
