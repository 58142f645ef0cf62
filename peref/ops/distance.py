"""Between a table of few rows and the cells of attention. Each is the other's derivative."""

from peref.tape import Op
from peref.xp import namespace


def spread(x, index):  # [B,H,T,R], [T,S] or [B,T,S] -> [B,H,T,S]
    index = index if index.ndim == 2 else index[:, None]
    shape = (*x.shape[:3], index.shape[-1])
    return namespace(x).take_along_axis(x, namespace(index).broadcast_to(index, shape), -1)


def gathered(cells, index, rows):  # [B,H,T,S] -> [B,H,T,rows]: the sum over the cells of each row
    xp = namespace(cells)
    B, H, T, S = cells.shape
    index = xp.broadcast_to(index if index.ndim == 2 else index[:, None], cells.shape).reshape(-1, S)
    slot = xp.arange(B * H * T)[:, None] * rows + index
    return xp.bincount(slot.ravel(), weights=cells.ravel(), minlength=B * H * T * rows).reshape(B, H, T, rows).astype(cells.dtype)


def gather_forward(x, index, *, scale):
    return spread(x, index) * scale, (index, x.shape[-1], scale)


def gather_backward(saved, dy):
    index, rows, scale = saved
    return gathered(dy, index, rows) * scale, None


gather = Op(gather_forward, gather_backward)


def scatter_forward(cells, index, *, rows):
    return gathered(cells, index, rows), index


def scatter_backward(index, dy):
    return spread(dy, index), None


scatter = Op(scatter_forward, scatter_backward)
