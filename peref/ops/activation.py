"""Functions of one number, and the gate of a SwiGLU."""

import math

from peref.tape import Op
from peref.xp import namespace


def logistic(x):
    """1 / (1 + e^-x) of each number of a bare array x [...], without overflow on either side."""
    xp = namespace(x)
    e = xp.exp(-abs(x))
    return xp.where(x >= 0, 1 / (1 + e), e / (1 + e))


def sigmoid_forward(x):
    """1 / (1 + e^-x) of each number of x [...]."""
    y = logistic(x)
    return y, y


def sigmoid_backward(y, dy):
    """The gradient of x [...]: dy y (1 - y)."""
    return (dy * y * (1 - y),)


sigmoid = Op(sigmoid_forward, sigmoid_backward)


def log_sigmoid_forward(x):
    """ln sigmoid(x) of each number of x [...], finite wherever x is."""
    xp = namespace(x)
    return xp.minimum(x, 0) - xp.log1p(xp.exp(-abs(x))), x


def log_sigmoid_backward(x, dy):
    """The gradient of x [...]: dy sigmoid(-x)."""
    return (dy * logistic(-x),)


log_sigmoid = Op(log_sigmoid_forward, log_sigmoid_backward)


def tanh_forward(x):
    """tanh(x) of each number of x [...]."""
    y = namespace(x).tanh(x)
    return y, y


def tanh_backward(y, dy):
    """The gradient of x [...]: dy (1 - y^2)."""
    return (dy * (1 - y * y),)


tanh = Op(tanh_forward, tanh_backward)


def minus_exp_forward(x):
    """-e^x of each number of x [...]: the logarithm of the decay exp(-exp(x)) of RWKV-6."""
    y = -namespace(x).exp(x)
    return y, y


def minus_exp_backward(y, dy):
    """The gradient of x [...]: dy y, for y = -e^x is its own derivative."""
    return (dy * y,)


minus_exp = Op(minus_exp_forward, minus_exp_backward)


def silu_forward(x):
    """x sigmoid(x) of each number of x [...]. Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2."""
    s = logistic(x)
    return x * s, (x, s)


def silu_backward(saved, dy):
    """The gradient of x [...]: dy s (1 + x (1 - s)), s = sigmoid(x)."""
    x, s = saved
    return (dy * s * (1 + x * (1 - s)),)


silu = Op(silu_forward, silu_backward)


def squashed_forward(b):
    """16 sigmoid(b) of each number of b [...]. Liu et al. 2021, arXiv:2111.09883, in its code."""
    s = logistic(b)
    return 16 * s, s


def squashed_backward(s, dy):
    """The gradient of x [...]: 16 dy s (1 - s), s = sigmoid(x)."""
    return (16 * dy * s * (1 - s),)


squashed = Op(squashed_forward, squashed_backward)


def softplus_forward(x):
    """ln(1 + e^x) of each number of x [...], without overflow."""
    xp = namespace(x)
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-abs(x))), x


def softplus_backward(x, dy):
    """The gradient of x [...]: dy sigmoid(x)."""
    return (dy * logistic(x),)


softplus = Op(softplus_forward, softplus_backward)


def inverse_softplus(y):
    """The x [...] whose softplus is y [...], on a bare array; y > 0."""
    xp = namespace(y)
    return y + xp.log(-xp.expm1(-y))


def relu_forward(x, *, slope=0.0):
    """max(x, slope x) of each number of x [...]; a slope between 0 and 1 makes it leaky. At 0 the derivative
    is the slope.
    """
    return namespace(x).maximum(x, slope * x if slope else 0), (x > 0, slope)


def relu_backward(saved, dy):
    """The gradient of x [...]: dy where x is above 0, slope dy elsewhere, at 0 too."""
    rises, slope = saved
    r = rises.astype(dy.dtype)  # of 0 and 1: a choice cell by cell is slower than sums and products
    if slope:
        r += slope * (1 - r)
    r *= dy
    return (r,)


relu = Op(relu_forward, relu_backward)


def swiglu_forward(gate, up):
    """silu(gate) up, both [...]. Shazeer 2020, arXiv:2002.05202, section 2."""
    s = logistic(gate)  # 1
    return gate * s * up, (gate, up, s)  # 2


def swiglu_backward(saved, dy):
    """The gradients of gate and up [...]: dy up s (1 + gate (1 - s)) and dy gate s, s = sigmoid(gate)."""
    gate, up, s = saved
    return dy * up * s * (1 + gate * (1 - s)), dy * gate * s  # 2, 1


swiglu = Op(swiglu_forward, swiglu_backward)


SHARPNESS = 1.702  # Hendrycks and Gimpel 2016, section 2: x sigmoid(1.702 x) is near gelu(x)


def clamped(gate, up, limit):
    """min(gate, limit), and up between -limit and limit, both [...]."""
    xp = namespace(gate)
    return xp.minimum(gate, limit), xp.minimum(xp.maximum(up, -limit), limit)


def swiglu_clamped_forward(gate, up, *, limit):
    """g sigmoid(1.702 g) (u + 1), g = min(gate, limit) and u = up between -limit and limit, both [...]:
    gpt-oss, OpenAI 2025, arXiv:2508.10925, section 2.2.
    """
    g, u = clamped(gate, up, limit)  # 1
    s = logistic(SHARPNESS * g)  # 2
    return g * s * (u + 1), (gate, up, s, limit)  # 3


def swiglu_clamped_backward(saved, dy):
    """The gradients of gate and up [...]; 0 beyond the limit, at it half."""
    gate, up, s, limit = saved
    g, u = clamped(gate, up, limit)
    share = lambda room: (namespace(gate).sign(room) + 1) / 2  # at the limit the mean of both sides
    dg = dy * (u + 1) * s * (1 + SHARPNESS * g * (1 - s))  # 3, 2
    return dg * share(limit - gate), dy * g * s * share(limit - abs(up))  # 1


swiglu_clamped = Op(swiglu_clamped_forward, swiglu_clamped_backward)


def relu2_forward(x):
    """max(x, 0)^2 of each number of x [...]. So et al. 2021, arXiv:2109.08668, section 4."""
    r = namespace(x).maximum(x, 0)  # 1
    return r * r, r  # 2


def relu2_backward(r, dy):
    """The gradient of x [...]: 2 dy max(x, 0)."""
    return (2 * dy * r,)  # 2, 1


relu2 = Op(relu2_forward, relu2_backward)


def gated_forward(gate, x):
    """sigmoid(gate) x, both [...]."""
    s = logistic(gate)
    return s * x, (s, x)


def gated_backward(saved, dy):
    """The gradients of the gate and of x [...]: dy x s (1 - s) and dy s, s = sigmoid(gate)."""
    s, x = saved
    return dy * x * s * (1 - s), dy * s


gated = Op(gated_forward, gated_backward)

GELU_OUTER = math.sqrt(2 / math.pi)
# Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2: the tanh form, the one GPT-2 uses
GELU_CUBIC = 0.044715


def gelu_forward(x):
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of each number of x [...]: the tanh form of Hendrycks and
    Gimpel 2016, arXiv:1606.08415, section 2, which GPT-2 uses.
    """
    t = namespace(x).tanh(GELU_OUTER * x * (1 + GELU_CUBIC * x * x))  # 1
    return 0.5 * x * (1 + t), (x, t)  # 2


def gelu_backward(saved, dy):
    """The gradient of x [...]: dy ((1 + t) + x (1 - t^2) c (1 + 3 b x^2)) / 2, t = tanh(c (x + b x^3))."""
    x, t = saved
    inner = GELU_OUTER * (1 + 3 * GELU_CUBIC * x * x)
    return (0.5 * dy * (1 + t + x * (1 - t * t) * inner),)  # 2, 1


gelu = Op(gelu_forward, gelu_backward)


def geglu_forward(gate, up):
    """gelu(gate) up, both [...]. Shazeer 2020, arXiv:2002.05202, section 2."""
    g, saved = gelu_forward(gate)  # 1
    return g * up, (saved, g, up)  # 2


def geglu_backward(saved, dy):
    """The gradients of gate and up [...]: dy up times that of gelu, and dy gelu(gate)."""
    of_gelu, g, up = saved
    return *gelu_backward(of_gelu, dy * up), dy * g  # 2, 1


geglu = Op(geglu_forward, geglu_backward)
