"""How far the delta rule with decay is from float64 in float32, whatever the decay and the chunk.

    python benchmarks/delta.py [--tokens 8192] [-o benchmarks/results/delta]

Written are a table, .md, and a picture of it, .png: for each log decay a token and size of chunk the worst
error of the output, the last state and every gradient, relative to the largest number of each, beside float64
in chunks of 16; two heads of 8 channels, keys of length one, beta up to 2, a state handed in and a gradient
that comes through the last; the worst of with and without the rule, decays of a head and of its channels.
Exit code 1 where one is above the bound that ops/delta.py states.
"""

import argparse
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from test_ops import DELTA_BOUND, DELTA_DECAYS, far_from_float64  # noqa: E402

CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "results" / "delta")
    given = parser.parse_args()
    each = [(removes, decays) for removes in (True, False) for decays in (8, 1)]
    found = np.max([far_from_float64(given.tokens, CHUNKS, *settings) for settings in each], 0).T
    rows = list(zip(DELTA_DECAYS, found, strict=True))
    lines = [
        f"# The delta rule in float32 beside float64, {given.tokens} tokens\n",
        "python benchmarks/delta.py: worst relative error of output, last state and gradients.\n",
        f"| log decay | {' | '.join(f'chunk {chunk}' for chunk in CHUNKS)} |",
        f"|{' --- |' * (1 + len(CHUNKS))}",
        *(
            f"| {g:g} | {' | '.join(f'{x:.1e}' for x in row)} |"
            for g, row in zip(DELTA_DECAYS, found, strict=True)
        ),
    ]
    given.output.with_suffix(".md").write_text("\n".join(lines) + "\n")
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for g, row in rows:
        axes.plot(CHUNKS, row, marker="o", label=f"log decay {g:g}")
    axes.axhline(DELTA_BOUND, color="black", linestyle="--", label="bound")
    axes.set(xscale="log", yscale="log", xlabel="chunk (tokens)", ylabel="worst relative error")
    axes.set_xticks(CHUNKS, map(str, CHUNKS))
    figure.legend(loc="outside right center")
    figure.savefig(given.output.with_suffix(".png"), dpi=100)
    return int(not found.max() <= DELTA_BOUND)


if __name__ == "__main__":
    sys.exit(main())
