"""The CUDA backend: kernels over CuPy's arrays, the plain ops' drop-in in float32 and bfloat16."""

from peref.backends import Backend
from peref.backends.cuda import activation, attention, embedding, loss, norm, optimizer, retention, turn

BACKEND = Backend(
    name="cuda",
    take=embedding.take,
    rms_norm=norm.rms_norm,
    layer_norm=norm.layer_norm,
    swiglu=activation.swiglu,
    gelu=activation.gelu,
    turn=turn.turn,
    attention=attention.attention,
    retention=retention.retention,
    cross_entropy=loss.cross_entropy,
    adamw=optimizer.adamw,
)
