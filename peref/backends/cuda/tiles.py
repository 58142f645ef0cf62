"""What kernels over tiles are compiled for (kernels/tile.cuh)."""

from typing import Any

from peref.backends.cuda.launch import WIDTHS
from peref.errors import Misuse

# as in the kernels: least rows of a block of attention's, threads of a block, columns beside a tile
OWN_ROWS, BLOCK, PAD = 64, 128, 8


def width_of(what: str, *D: int) -> int:
    """What heads are padded to."""
    found = [w for w in WIDTHS if max(D) <= w]
    if not found:
        raise Misuse(
            f"{what}: heads are {max(D)} wide; the cuda backend takes them up to {WIDTHS[-1]}, use "
            "--backend numpy"
        )
    return found[0]


def kind_of(width: int, dtype: Any, tf32: bool) -> dict[str, int]:
    """The defines of a variant; bfloat16 is one by its dtype."""
    return {"WIDTH": width, **({"TF32": 1} if tf32 and dtype.name == "float32" else {})}
