"""All bugs, by name."""

from . import bugs_attention, bugs_biases, bugs_gradients, bugs_mixes, bugs_rotations, bugs_traces
from .edits import BUGS

__all__ = [
    "BUGS",
    "bugs_attention",
    "bugs_biases",
    "bugs_gradients",
    "bugs_mixes",
    "bugs_rotations",
    "bugs_traces",
]
