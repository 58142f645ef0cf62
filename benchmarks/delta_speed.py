"""How fast the numba kernel of the delta rule with decay is beside the plain op, forward and backward.

    python benchmarks/delta_speed.py [--threads 2] [--rounds 7] [-o benchmarks/results/delta_speed.md]
    python benchmarks/delta_speed.py --avx2     both held to AVX2 as speed.py holds them, below what is there

Of each layer of the family, in float32, 8 x 512 tokens of a model of width 128 with default options: medians
of rounds, the plain op in chunks of 64, as the layers ask for. The kernel's rounds begin when the threads of
the plain op's products are asleep: for a while after each product they spin, and would take a core from it.
Half a minute, on a machine that does nothing else; "others' CPU" is what other processes used meanwhile, in
cores.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import Others, hold
from speed import RESULTS, ROOT, hold_to_avx2, processor, table

B, T, C, CHUNK = 8, 512, 128, 64
# heads, widths of k and v, decays, whether by the delta rule; of H heads of width D
LAYERS = {
    "deltanet": lambda H, D: (H, D, D, None, True),
    "gated_deltanet": lambda H, D: (H, D, 2 * D, "head", True),
    "kda": lambda H, D: (H, D, D, "channel", True),
    "gla": lambda H, D: (H, D, 2 * D, "channel", False),
    "mamba2": lambda H, D: (2 * H, 128, D, "head", False),
}


def rounds(given: argparse.Namespace, shape: tuple[Any, ...]) -> list[list[float]]:
    """Median seconds, forward and backward, of the plain op and of the kernel."""
    import numpy as np

    from peref import backends
    from peref.ops.delta import delta

    H, K, V, decays, removes = shape
    rng = np.random.default_rng(0)
    normal = lambda *sizes: rng.standard_normal((B, H, T, *sizes), dtype=np.float32)
    key, beta = normal(K), 1 / (1 + np.exp(-normal(1)))
    key /= np.sqrt((key * key).sum(-1, keepdims=True))
    g = None if decays is None else -abs(normal(1 if decays == "head" else K)) / 4
    r, v, dy = normal(K), normal(V), normal(V)
    arrays = (r, g, beta * key, v, key) if removes else (r, g, key, v, None)
    fast = backends.get("numba", threads=given.threads, say=print).recurrence("delta", delta)

    def timed(op: Any) -> list[float]:
        began = time.perf_counter()
        _, saved, _ = op.forward(*arrays, None, None, chunk=CHUNK)
        between = time.perf_counter()
        op.backward(saved, dy)
        return [between - began, time.perf_counter() - between]

    def medians(op: Any) -> list[float]:
        found = [timed(op) for _ in range(given.rounds + 1)][1:]
        time.sleep(0.5)
        return [statistics.median(way) for way in zip(*found, strict=True)]

    return [medians(delta), medians(fast)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "delta_speed.md")
    given = parser.parse_args()
    hold(given.threads)
    if given.avx2:
        hold_to_avx2()
    sys.path.insert(0, str(ROOT))
    others, rows = Others(), []
    for heads in (4, 2):
        for name, layer in LAYERS.items():
            plain, fast = rounds(given, layer(heads, C // heads))
            shown = [f"{1000 * seconds:.1f}" for seconds in (*plain, *fast)]
            rows.append([name, str(C // heads), *shown, f"{sum(plain) / sum(fast):.1f}"])
    head = [
        "layer",
        "head width",
        "plain, forward",
        "backward",
        "kernel, forward",
        "backward",
        "times as fast",
    ]
    title = "The delta rule with decay: the numba kernel beside the plain op"
    how = f"Written by `python benchmarks/delta_speed.py`, which says how it measures: ms, {B} x {T} tokens."
    above = given.output.read_text() if given.avx2 else f"# {title}\n\n{how}\n"
    setup = f"{processor()}, {given.threads} threads; others' CPU {others.cores()}."
    given.output.write_text(f"{above}\n{setup}\n\n{table(head, rows)}")


if __name__ == "__main__":
    main()
