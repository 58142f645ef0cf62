"""What this machine's vectors are, and where compiled kernels are kept.

The width follows the host: 16 float32 lanes with AVX-512, 8 with AVX2, 4 elsewhere (NEON, SSE). A tile of the matrix kernel is ROWS x 2
vectors: as many accumulators as leave registers for the operands.
"""

import llvmlite.binding as llvm


def lanes() -> int:
    """float32 lanes of a vector on this host."""
    has = llvm.get_host_cpu_features()
    return 16 if has.get("avx512f") else 8 if has.get("avx2") else 4


LANES = lanes()
ROWS = 4 if LANES == 8 else 8  # 8 of 16 registers hold sums with AVX2, 16 of 32 elsewhere; blocks of 64 divide by it
COLUMNS = 2 * LANES
