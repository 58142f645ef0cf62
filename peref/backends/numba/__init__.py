"""The CPU backend: numba kernels in float32, the plain ops' drop-in."""

from peref.backends import Backend
from peref.backends.numba import ops, states

BACKEND = Backend(
    name="numba",
    take=ops.take,
    linear=ops.linear,
    activated_linear=ops.activated_linear,
    matmul=ops.matmul,
    rms_norm=ops.rms_norm,
    layer_norm=ops.layer_norm,
    swiglu=ops.swiglu,
    gelu=ops.gelu,
    turn=ops.turn,
    attention=ops.attention,
    short_conv=states.short_conv,
    retention=ops.retention,
    wkv4=states.wkv4,
    wkv6=states.wkv6,
    wkv7=states.wkv7,
    diagonal_scan=states.diagonal_scan,
    selective_scan=states.selective_scan,
    cross_entropy=ops.cross_entropy,
    adamw=ops.adamw,
    token=ops.token,
    skips=True,
)
