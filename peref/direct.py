"""One call each, without a model or a run: turn q and k by a named encoding, its bias, attention with it, and the gradient of any of these.

    q, k      = rotate("rope", q, k, positions=range(5, 12), base=500000.0)
    b         = bias("alibi", heads=12, tokens=7)
    o         = attention("t5", q, k, v, params={"table": table})
    o, pull   = vjp(attention, "rope", q, k, v);    dq, dk, dv = pull(do)

Options of the encoding go by name. Parameters of learned encodings come as `params`, a dict under the names of the encoding's file; left out,
they are drawn from `seed`. Arrays are NumPy's, float32 or float64; what comes out has the dtype of what went in.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref.encodings import Encoding, bind, get, names, resolve
from peref.errors import Misuse
from peref.model import PLAIN, attend_heads
from peref.ops.attention import scores
from peref.ops.place import At
from peref.ops.turn import LAYOUTS
from peref.rng import generator
from peref.tape import Op, Tape, Var


def only_forward(x):  # [1,...]
    return x[0], None


def only_backward(saved, dy):
    return (dy[None],)


only = Op(only_forward, only_backward)


def prepared(name: str, hooks: set[str], facts: dict[str, Any], options: dict[str, Any], params: Any, seed: int) -> tuple[Encoding, Any]:
    """The encoding with its facts and options filled in, and its parameters. Raises Misuse where its hook is none of `hooks`."""
    encoding = get(name)
    if encoding.hook not in hooks:
        others = ", ".join(n for n in names() if get(n).hook in hooks)
        raise Misuse(f"{name} fills {encoding.hook or 'no hook'} and cannot do this; those that can: {others}")
    if not facts.get("causal", True) and "two_sided" not in encoding.claims:
        raise Misuse(f"{name} reads only the past; causal=False is not for it")
    bound = bind(encoding, {"layer": 0, "layers": 1, **facts}, resolve(name, options))
    return bound, bound.init(generator(seed, "pe", 0)) if params is None else params


def place(tokens: int, positions: Any, **rest: Any) -> At:
    at = At.of(tokens, positions=None if positions is None else np.asarray(positions), **rest)
    if at.T != tokens:
        raise Misuse(f"there are {at.T} positions for {tokens} tokens; expected one for each")
    return at


def width_of_rotation(D: int, rotary_dim: int | None, layout: str) -> int:
    R = D if rotary_dim is None else rotary_dim
    if R % 2 or not 0 < R <= D:
        raise Misuse(f"rotary_dim is {R}; expected an even number from 2 to the head width {D}")
    if layout not in LAYOUTS:
        raise Misuse(f"layout is {layout!r}; expected one of: {', '.join(LAYOUTS)}")
    return R


def rotate(
    name: str,
    q: Any,
    k: Any,
    *,
    positions: Any = None,
    layout: str = "half",
    rotary_dim: int | None = None,
    L: int | None = None,
    n: int | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """q [B,H,T,D] and k [B,G,T,D] turned by the rotary encoding `name` at `positions` [T] or [B,T], 0, 1, ... unless given.

    layout: "half" or "interleaved" (ops/turn.py); the first `rotary_dim` channels turn, all unless given. L is the length trained for and
    n the length that frequencies are made for, T unless given. Raises Misuse for an encoding that turns nothing and sizes that do not fit.
    """
    T, D = q.shape[-2:]
    facts = {"R": width_of_rotation(D, rotary_dim, layout), "D": D, "L": L or T}
    encoding, p = prepared(name, {"rotate"}, facts, options, {}, 0)
    at = place(T, positions, n=n)
    angle, gain_q, gain_k = encoding.rotate(p, at.i, at.n)  # type: ignore[misc]
    return PLAIN.turn(q, angle, gain_q, layout=layout), PLAIN.turn(k, angle, gain_k, layout=layout)


def bias(
    name: str,
    *,
    heads: int,
    tokens: int | None = None,
    positions: Any = None,
    causal: bool = True,
    L: int | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the logits of `tokens` queries and keys, [heads,T,T], float64 or the dtype of its parameters.

    positions [T] are 0, 1, ... unless given. Cells in the future of a causal model are excluded by attention and hold the bias of some distance
    that is seen. L is the length trained for, T unless given. Raises Misuse for an encoding that adds no function of distance.
    """
    if (tokens is None) == (positions is None):
        raise Misuse("bias: give either tokens or positions")
    T = len(positions) if tokens is None else tokens
    at = place(T, positions, causal=causal)
    encoding, p = prepared(name, {"bias"}, {"H": heads, "causal": causal, "L": L or T}, options, params, seed)
    table = encoding.bias(PLAIN, p, at.distances[0])  # type: ignore[misc]
    nothing = np.zeros((1, heads, T, 1), table.dtype)
    return only(scores(nothing, nothing, table, None, None, None, at=at, scale=1.0))


def attention(
    name: str,
    q: Any,
    k: Any,
    v: Any,
    *,
    positions: Any = None,
    x: Any = None,
    causal: bool = True,
    window: int | None = None,
    seg: Any = None,
    layout: str = "half",
    rotary_dim: int | None = None,
    L: int | None = None,
    n: int | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Softmax attention of q [B,H,T,D] over k, v [B,G,T,D] with the encoding `name`, [B,H,T,D]. H is a multiple of G.

    x [B,T,C] is the layer's input, for encodings that compute something of it (forget gates, Householder maps). window, seg, positions are
    those of ops/place.py, the other settings those of `rotate` and `bias`. Raises Misuse for an encoding that replaces attention or is added
    to the embedding, and sizes that do not fit.
    """
    (_, H, T, D), G = q.shape, k.shape[1]
    if H % G or k.shape[2:] != q.shape[2:] or v.shape[:3] != k.shape[:3]:
        raise Misuse(f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)} do not fit; expected [B,H,T,D], [B,G,T,D] twice, H a multiple of G")
    facts = {"H": H, "G": G, "D": D, "R": width_of_rotation(D, rotary_dim, layout) if get(name).rotate else None}
    facts |= {"C": None if x is None else x.shape[-1], "causal": causal, "L": L or T}
    if get(name).features and x is None:
        raise Misuse(f"{name} computes something of the layer's input; give x [B,T,C]")
    encoding, p = prepared(name, {"", "rotate", "bias", "score", "attend"}, facts, options, params, seed)
    at = place(T, positions, causal=causal, window=window, seg=seg, n=n)
    return attend_heads(PLAIN, encoding, p, q, k, v, x, at, {}, layout=layout)[0]


def vjp(function: Callable, *arguments: Any, params: dict[str, Any] | None = None, **settings: Any) -> tuple[Any, Callable]:
    """What function(*arguments, **settings) gives, and `pull`: a cotangent of it -> the gradient of every real array among the arguments.

    For several results pull takes as many cotangents. Gradients come in the order of the arguments; where `params` or `x` is given, a dict
    {"params": ..., "x": ...} of theirs is the last. pull can be called once.
    """
    tape = Tape()
    watched = [tape.watch(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in arguments]
    named = {name: tape.watch(a) for name, a in (("params", params), ("x", settings.pop("x", None))) if a is not None}
    y = function(*watched, **named, **settings)

    def pull(*dy: Any) -> Any:
        found = tape.gradients(y if isinstance(y, tuple) else (y,), dy)
        gradients = [found[a] for a in watched if isinstance(a, Var)]
        of_names = {name: {n: found[b] for n, b in a.items()} if isinstance(a, dict) else found[a] for name, a in named.items()}
        every = (*gradients, of_names) if named else tuple(gradients)
        return every[0] if len(every) == 1 else every

    return tuple(one.value for one in y) if isinstance(y, tuple) else y.value, pull
