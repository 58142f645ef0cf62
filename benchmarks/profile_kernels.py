"""Where the time of a step goes: milliseconds and calls of each kernel, and the GFLOP/s of the products.

    python benchmarks/profile_kernels.py train --pe t5
    python benchmarks/profile_kernels.py eval --pe alibi --len 8192 --batch 1

Takes the arguments of measure.py. The rest of a step, outside the kernels, is Python and NumPy between them.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import measure

TIMES, WARM = 10, 3


def named(name: str, arrays: tuple[Any, ...]) -> tuple[str, float]:
    """What a call is counted as, and the floating-point operations that follow from its shapes, 0 where it
    is no product.
    """
    if name != "matrix.multiply":
        return name, 0.0
    (n, M, N), K = arrays[0].shape, arrays[1].shape[2]
    return f"{name} [{M},{K}] [{K},{N}]", 2.0 * n * M * K * N


def profiled(step: Callable[[], Any]) -> tuple[float, dict[str, list[float]]]:
    """Seconds of a step, the median; and for each kernel its seconds, calls and operations in all of TIMES
    steps.
    """
    from peref.backends.numba import kernel

    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    run = kernel.Kernel.__call__

    def timed(called: Any, *arrays: Any) -> None:
        began = time.perf_counter()
        run(called, *arrays)
        name, operations = named(called.name, arrays)
        for k, x in enumerate((time.perf_counter() - began, 1.0, operations)):
            found[name][k] += x

    for _ in range(WARM):
        step()
    kernel.Kernel.__call__ = timed  # type: ignore[method-assign]
    try:
        took = []
        for _ in range(TIMES):
            began = time.perf_counter()
            step()
            took.append(time.perf_counter() - began)
    finally:
        kernel.Kernel.__call__ = run  # type: ignore[method-assign]
    return statistics.median(took), found


def main() -> None:
    a = measure.arguments(__doc__)
    measure.hold(a.threads)
    sys.path.insert(0, str(measure.ROOT))
    from peref import backends

    made = {
        "train": measure.training,
        "eval": measure.evaluation,
        "attention": measure.attention,
        "decode": measure.decoding,
    }
    if a.what not in made:
        raise SystemExit(f"'{a.what}' has no steps of kernels; expected one of: {', '.join(made)}")
    seconds, found = profiled(made[a.what](a, backends.get("numba", threads=a.threads)))
    inside = sum(row[0] for row in found.values()) / TIMES
    print(f"{a.what} {a.pe}: {1e3 * seconds:.1f} ms a step, {1e3 * inside:.1f} ms of it in kernels")
    print(f"{'ms':>8}  {'calls':>6}  {'GFLOP/s':>7}  kernel")
    for name, (took, calls, operations) in sorted(found.items(), key=lambda item: -item[1][0]):
        speed = f"{operations / took / 1e9:.0f}" if operations else ""
        print(f"{1e3 * took / TIMES:8.2f}  {calls / TIMES:6.1f}  {speed:>7}  {name}")


if __name__ == "__main__":
    main()
