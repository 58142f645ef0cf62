"""Whether something fits into this machine's memory. A machine that fills up does so slowly and takes others
along, so it is refused at once.

What is needed is counted too low on purpose, so nothing that fits is refused:

    parameters   the maps and norms that every model of this shape has, each number four times: itself, its
                 gradient, AdamW's two moments
    a step       what backward needs of each token: per layer the inputs of two norms and of the activation,
                 the logits twice; and the tokens
    attention    of the plain ops, a number for each query and key of each head: in training for every layer,
                 else two at a time

The cupy backend computes as numpy does, in the memory of the GPU.
Not here: an encoding's own parameters, what a backend makes besides; memory that the cuda backend takes.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from peref.backends import find
from peref.config import Config
from peref.errors import Misuse
from peref.member import FEEDING, fills
from peref.parameters import feed_forwards, norms_of

TOKEN = 16  # bytes of one token and its target
GROUP_FILES = (  # of a cgroup: its limit, what it has; the same of swap, in version 1 of both together; in
    # memory.stat what of it are files, and in tmpfs
    ("memory.max", "memory.current", "memory.swap.max", "memory.swap.current", "file", "shmem"),
    (
        *("memory.limit_in_bytes", "memory.usage_in_bytes"),
        *("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes", "total_cache", "total_shmem"),
    ),
)


def layers_with(cfg: Config, *without: str) -> int:
    """How many layers at least have an encoding that fills none of the hooks `without`."""
    return cfg.layers // len(cfg.pe) * sum(not fills(name, *without) for name, _ in cfg.pe)


def inner_maps(cfg: Config) -> int:
    """Linear maps of a feed-forward before the activation."""
    return 0 if cfg.activation == "none" else 2 if cfg.gated else 1


def fed(cfg: Config, many: Callable[[tuple[int, ...]], int]) -> int:
    """Channels of all feed-forwards at least, counting as many of a kind as `many` says of how many there
    are.
    """
    found = 0
    for _, given in cfg.pe:
        experts, F = (given.get(name, getattr(cfg, name)) for name in FEEDING)
        found += sum(many(each) for _, each in feed_forwards(cfg, experts)) * (F or 0)
    return cfg.layers // len(cfg.pe) * found


def parameter_count(cfg: Config) -> int:
    """Parameters that a model of this shape has at least."""
    attention = layers_with(cfg, "mix") * 2 * (cfg.H + (cfg.G or 0)) * cfg.D
    inner = (1 + inner_maps(cfg)) * fed(cfg, lambda each: math.prod(each))
    norms = len(norms_of(cfg)) * cfg.layers + 1
    return ((1 if cfg.tied else 2) * cfg.V + attention + inner + norms) * cfg.C


def activations(cfg: Config) -> int:
    """Numbers that forward keeps for each token at least."""
    chosen = fed(cfg, lambda each: cfg.experts_chosen if each else 1)
    return cfg.layers * len(norms_of(cfg)) * cfg.C + inner_maps(cfg) * chosen + 2 * cfg.V


def free(
    proc: Path = Path("/proc/meminfo"),
    own: Path = Path("/proc/self/cgroup"),
    root: Path = Path("/sys/fs/cgroup"),
) -> int | None:
    """Bytes that a process may still take here, swap included: what Linux says, also of the groups that this
    process is in (cgroups), else all that the machine has; None where nobody says.
    """
    here = of_machine(proc)
    in_groups = (left_in(group, sum(here[1:])) for group in groups(own, root))
    return min((*([sum(here)] if here else ()), *(n for n in in_groups if n is not None)), default=None)


def of_machine(proc: Path) -> list[int]:
    """What the machine has left: memory, and swap. Without Linux, all memory that it has, if known."""
    try:
        lines = dict(line.split(":") for line in proc.read_text().splitlines())
        return [1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree")]
    except (OSError, ValueError, KeyError):
        known = {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys()
        return [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if known else []


def groups(own: Path, root: Path) -> Iterator[Path]:
    """The folders of the groups whose memory this process shares, from its own up: each may have a limit. In
    a container its own is often seen at the root.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = root / "memory" if controllers else root
            inner = PurePosixPath(path.lstrip("/"))
            yield from (top / place for place in (inner, *inner.parents) if ".." not in place.parts)


def left_in(group: Path, swap: int) -> int | None:
    """Bytes that a group may still take, in version 2 or 1 of cgroups, None where it has no limit; of `swap`,
    what the machine has, as much as it may. What only caches files counts as free, for it is given up.
    """
    for limit, used, swap_limit, swap_used, cached, shared in GROUP_FILES:
        number = lambda name: int((group / name).read_text())
        with contextlib.suppress(OSError, ValueError, KeyError):  # no such group, or "max"
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            left = max(0, number(limit) - number(used) + int(stat[cached]) - int(stat[shared]))
            with contextlib.suppress(OSError, ValueError):
                swap = min(swap, max(0, number(swap_limit) - number(swap_used)))
            return left + swap
    return None


def refuse(needed: int, backend: str, what: str, use: str, instead: str = "") -> None:
    """Raises Misuse where `backend`, a name, may not take so many bytes more."""
    on_gpu = backend == "cupy"
    here, where = (find.free(find.cupy(backend)), "on the GPU") if on_gpu else (free(), "here")
    if here is not None and needed > here:
        said = f"{what} needs at least {gigabytes(needed)} of memory{use}"
        raise Misuse(f"{said}; {gigabytes(here)} are free {where}{instead}")


def check_training(cfg: Config, dtype: Any, batch: int, accumulate: int, backend: str) -> None:
    """Raises Misuse, saying how much is needed, for a training that does not fit where `backend` computes."""
    width, tokens, count = np.dtype(dtype).itemsize, batch * cfg.L, parameter_count(cfg)
    weights, kept = 4 * count * width, tokens * activations(cfg)
    if backend in ("numpy", "cupy"):  # attention is the plain op's
        kept += layers_with(cfg, "mix", "attend") * cfg.H * tokens * cfg.L
    step = kept * width + (1 if backend == "cupy" else accumulate) * tokens * TOKEN
    use = f", {gigabytes(weights)} for {count:,} parameters with their gradients and moments and "
    use += f"{gigabytes(step)} for the tokens of a step"
    instead = ": choose fewer layers, a smaller width, batch or length"
    refuse(weights + step, backend, "this training", use, instead)


def check_weights(cfg: Config, dtype: Any) -> None:
    """Raises Misuse for weights that do not fit here beside the bytes of the checkpoint that they become."""
    halves = [cfg, *([cfg.encoder] if cfg.encoder else [])]
    count = sum(map(parameter_count, halves)) - (len(halves) - 1) * cfg.V * halves[0].C
    use = f", for {count:,} parameters and the checkpoint that they become"
    refuse(2 * count * np.dtype(dtype).itemsize, "", "this model", use)


def check_attention(cfg: Config, dtype: Any, length: int, backend: str) -> None:
    """Raises Misuse for a length whose attention by the plain ops, without a gradient, cannot fit there."""
    needed = 2 * cfg.H * length * length * np.dtype(dtype).itemsize
    if layers_with(cfg, "mix", "attend"):
        what = f"attention over {length} tokens by the {backend} backend"
        refuse(needed, backend, what, "", "; choose a shorter length or another backend")


def gigabytes(count: int) -> str:
    """A number of bytes in words, in units of 10^9: "1.5 GB"."""
    return f"{count / 1e9:,.1f} GB"
