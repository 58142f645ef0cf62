"""Many arrays made one.

CuPy joins up to 8 by itself; of more it moves the addresses to the device, and a step that does so cannot be
recorded (backends/cuda/graph.py).
"""

from peref.xp import library, namespace

MOST = 8


def joined(parts, axis):
    """concatenate, on a device of few at a time."""
    parts = list(parts)
    xp = namespace(*parts)
    while library(parts[0]) != "numpy" and len(parts) > MOST:
        parts = [xp.concatenate(parts[n : n + MOST], axis) for n in range(0, len(parts), MOST)]
    return xp.concatenate(parts, axis)


def stacked(parts, axis=0):
    """stack, on a device of few at a time."""
    return joined([namespace(a).expand_dims(a, axis) for a in parts], axis)
