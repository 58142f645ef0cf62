"""An array times a number, and a limit that it nears smoothly."""

from peref.tape import Op
from peref.xp import namespace


def scaled_forward(x, *, factor):
    """factor x in the dtype of x, x [...]; bfloat16 times a number would be float32."""
    return (x * factor).astype(x.dtype, copy=False), factor


def scaled_backward(factor, dy):
    """factor dy [...] in the dtype of dy."""
    return ((dy * factor).astype(dy.dtype, copy=False),)


scaled = Op(scaled_forward, scaled_backward)


def softcapped_forward(x, *, cap):
    """cap tanh(x / cap), x [...]. Gemma Team 2024, arXiv:2408.00118, section 2."""
    t = namespace(x).tanh(x / cap)
    return cap * t, t


def softcapped_backward(t, dy):
    """The gradient of x [...]: dy (1 - t^2), t = tanh(x / cap)."""
    return (dy * (1 - t * t),)


softcapped = Op(softcapped_forward, softcapped_backward)
