"""All bugs, by name."""

from . import (
    bugs_attention,
    bugs_biases,
    bugs_deltas,
    bugs_gradients,
    bugs_images,
    bugs_mixes,
    bugs_rotations,
    bugs_traces,
    bugs_zones,
)
from .edits import BUGS

__all__ = [
    "BUGS",
    "bugs_attention",
    "bugs_biases",
    "bugs_deltas",
    "bugs_gradients",
    "bugs_images",
    "bugs_mixes",
    "bugs_rotations",
    "bugs_traces",
    "bugs_zones",
]
