"""The CPU backend: numba kernels in float32, the plain ops' drop-in."""

from importlib.metadata import version
from typing import Any

from peref.backends import Backend
from peref.backends.numba import host, kernel
from peref.backends.numba.ops.attention import attention
from peref.backends.numba.ops.cells import gather, interpolate, probabilities, scatter
from peref.backends.numba.ops.delta import delta
from peref.backends.numba.ops.edges import place
from peref.backends.numba.ops.ends import adamw, cross_entropy, take
from peref.backends.numba.ops.norms import layer_norm, rms_norm
from peref.backends.numba.ops.products import activated_linear, linear, matmul
from peref.backends.numba.ops.retention import retention
from peref.backends.numba.ops.scans import diagonal_scan, selective_scan, short_conv
from peref.backends.numba.ops.token import token
from peref.backends.numba.ops.turn import turn
from peref.backends.numba.ops.wkv import wkv4, wkv6, wkv7


def of_kernels() -> dict[str, Any]:
    """What the kernels are made from, by and for; how many threads run them changes no bit."""
    return {"numba": version("numba"), "kernels": kernel.digest(), "lanes": host.LANES}


BACKEND = Backend(
    name="numba",
    about=of_kernels,
    take=take,
    linear=linear,
    activated_linear=activated_linear,
    matmul=matmul,
    rms_norm=rms_norm,
    layer_norm=layer_norm,
    turn=turn,
    attention=attention,
    cross_entropy=cross_entropy,
    adamw=adamw,
    token=token,
    place=place,
    skips=True,
    recurrences={
        "retention": retention,
        "wkv4": wkv4,
        "wkv6": wkv6,
        "wkv7": wkv7,
        "delta": delta,
        "diagonal_scan": diagonal_scan,
        "selective_scan": selective_scan,
        "short_conv": short_conv,
        "gather": gather,
        "scatter": scatter,
        "probabilities": probabilities,
        "interpolate": interpolate,
    },
)
