"""Cross-entropy of next-token logits."""

from peref.tape import Op
from peref.xp import namespace


def cross_entropy_forward(logits, targets):
    """The mean, over the targets that are not negative, of -ln softmax(logits)[target], in nats, and of each
    target by itself [...]: logits [...,V], targets [...] whole numbers, negative where nothing is asked.
    """
    xp = namespace(logits)
    flat, asked = logits.reshape(-1, logits.shape[-1]), targets.ravel() >= 0
    rows, t = xp.arange(len(flat)), xp.where(asked, targets.ravel(), 0)
    c = flat - flat.max(-1, keepdims=True)  # 1
    e = xp.exp(c)
    z = e.sum(-1, keepdims=True)
    nll = xp.where(asked, xp.log(z[:, 0]) - c[rows, t], 0)  # 2
    count = xp.maximum(asked.sum(), 1)
    y = (nll.sum(dtype=xp.float64) / count).astype(logits.dtype)  # 3
    return y, (e / z, rows, t, asked, count, logits.shape), nll.reshape(targets.shape)


def cross_entropy_backward(saved, dy):
    """The gradient of the logits [...,V]: dy (softmax - 1 at the target) / number of targets; 0 where nothing
    is asked.
    """
    p, rows, t, asked, count, shape = saved
    d = p * (asked * (dy / count))[:, None].astype(p.dtype)  # 3, 2, 1
    d[rows, t] -= (asked * (dy / count)).astype(p.dtype)
    return d.reshape(shape), None


cross_entropy = Op(cross_entropy_forward, cross_entropy_backward, extra=True)
