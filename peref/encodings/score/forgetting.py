"""Forgetting Transformer: every token decides how much of the past each head forgets.

    s_ij + sum_{l=j+1..i} log f_l = s_ij + c_i - c_j
    f_l = sigmoid(W_f x_l + b_f),  c = prefix sum of log f

Lin, Nikishin, He, Courville 2025, arXiv:2503.02130, section 3. A constant f is ALiBi with slope -log f. c is
summed in float64 and stays so until row and column meet, for they are large and nearly cancel; nothing of
size T x S is made.
b_f starts between 1 and 5, our choice, so that heads begin with memories of different length. x-transformers
has it as data-dependent ALiBi, where b_f starts at 5.
Not here: their Pro block (output gate, output norm, key and value shift: that is a layer); x-transformers'
factor of log f (1 there) and its gates for the future, a second set that counts backward: the sum over both
sides is no row and column any more.
"""

from peref.encodings import Encoding
from peref.ops.activation import log_sigmoid
from peref.ops.linear import initial
from peref.ops.shape import swap
from peref.tape import Op
from peref.xp import namespace


def prefix_sum(x):
    """The sum of x [B,H,S] up to each token, [B,H,S] in float64."""
    return x.cumsum(-1, dtype=namespace(x).float64)


def suffix_sum(dc, dtype):
    """The sum of dc [B,H,S] from each token on, [B,H,S] in `dtype`."""
    return dc[..., ::-1].cumsum(-1)[..., ::-1].astype(dtype)


def gate_row_forward(log_f, *, T):
    """c_i [B,H,T,1] in float64 at the T queries, the sum of log_f [B,H,S] up to each."""
    return prefix_sum(log_f)[..., -T:, None], log_f  # [B,H,T,1]


def gate_row_backward(log_f, dy):
    """The gradient of log_f [B,H,S]: the sum of dy [B,H,T,1] over the queries from each token on."""
    dc = namespace(dy).zeros(log_f.shape, dy.dtype)
    dc[..., -dy.shape[2] :] = dy[..., 0]
    return (suffix_sum(dc, log_f.dtype),)


def gate_column_forward(log_f):
    """-c_j [B,H,1,S] in float64, minus the sum of log_f [B,H,S] up to each key."""
    return -prefix_sum(log_f)[:, :, None], log_f.dtype  # [B,H,1,S]


def gate_column_backward(dtype, dy):
    """The gradient of log_f [B,H,S]: minus the sum of dy [B,H,1,S] over the keys from each token on."""
    return (suffix_sum(-dy[:, :, 0], dtype),)


gate_row, gate_column = Op(gate_row_forward, gate_row_backward), Op(gate_column_forward, gate_column_backward)


def init(rng, *, C, H):
    """W_f [H,C] and b_f [H], uniform from 1 to 5."""
    return {"f.weight": initial(rng, H, C), "f.bias": rng.uniform(1.0, 5.0, H)}


def features(be, p, x, at, state):
    """log_f [B,H,T] of every token, at most 0; no state."""
    return {"log_f": log_sigmoid(swap(be.linear(x, p["f.weight"], p["f.bias"]), axes=(1, 2)))}, {}


def score(be, p, q, k, f, at):
    """No term, but the row c_i [B,H,T,1] and the column -c_j [B,H,1,S], both in float64, for q [B,H,T,D] at
    the last T of S tokens. Section 3.
    """
    return None, gate_row(f["log_f"], T=at.T), gate_column(f["log_f"])


ENCODING = Encoding(
    "arXiv:2503.02130",
    "s_ij + sum_{l=j+1..i} log f_l",
    symbols={"f_l": "gate of token l, sigmoid(W x + b)", "l": "a token after the key, up to the query"},
    init=init,
    score=score,
    features=features,
    claims=frozenset({"shift", "real_positions", "any_length", "window", "products"}),
    axes=None,
)
