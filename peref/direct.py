"""One call each, without a model or a run: turn q and k by a named encoding, its bias, attention with it, and
the gradient of any of these.

    q, k      = rotate("rope", q, k, positions=range(5, 12), base=500000.0)
    b         = bias("alibi", heads=12, tokens=7)
    o         = attention("t5", q, k, v, params={"table": table})
    o         = attention("rope+alibi", q, k, v, softcap=50.0, sinks=True, params={"sinks": logits})
    p         = probabilities("alibi", q, k)
    s         = score("forgetting", q, k, x=x)
    e         = embed("sinusoidal", width=64, tokens=7)
    y         = mix("retnet", x, heads=4)
    y, last   = mix("retnet", x, heads=4, state=last, positions=range(7, 14))
    o, pull   = vjp(attention, "rope", q, k, v);    dq, dk, dv = pull(do)

Options of the encoding go by name, and to attention and probabilities also the settings of a layer
(member.py). Parameters of learned encodings come as `params`, a dict under the names of the encoding's file;
left out, they are drawn from `seed`. Arrays are NumPy's, all float32 or all float64; what comes out has the
dtype of what went in. Where there are fewer queries than keys, they are the last: one query against a cache.

Not here: a cache that grows (model.decode).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref.config import check_claims, check_rotary_width
from peref.encodings import Encoding, bind, get, names, resolve
from peref.errors import Misuse
from peref.hooks import (
    attend_heads,
    check_options,
    check_place,
    cosines,
    distance_table,
    features,
    mixed_from,
    place_tables,
    position_rows,
    rotation,
    score_terms,
    turn_heads,
)
from peref.member import FEEDING, Layer, bound, by_hooks, encodings_of, settled, turning
from peref.model import PLAIN
from peref.ops.attention import scores
from peref.ops.place import At, positions_of
from peref.ops.shape import join
from peref.ops.turn import LAYOUTS
from peref.parameters import learned_settings
from peref.rng import generator
from peref.tape import Op, Tape, Var, value


def seen_forward(s, see):  # [1,H,T,T], [T,T]
    return np.where(see, s[0], 0), see


def seen_backward(see, dy):
    return np.where(see, dy, 0)[None], None


seen = Op(seen_forward, seen_backward)


def masked_forward(s, see):  # bool of a shape that broadcasts
    return np.where(see, s, 0), see


def masked_backward(see, dy):
    return np.where(see, dy, 0), None


masked = Op(masked_forward, masked_backward)


def last_rows_forward(o, *, count):
    """The last `count` tokens of o [B,H,T,D]."""
    return o[:, :, o.shape[2] - count :], o.shape


def last_rows_backward(shape, dy):
    do = np.zeros(shape, dy.dtype)
    do[:, :, shape[2] - dy.shape[2] :] = dy
    return (do,)


last_rows = Op(last_rows_forward, last_rows_backward)


# ---------------------------------------------------------------- what was given


# where a call says nothing of layers
ONE_LAYER: dict[str, Any] = {"layer": 0, "layers": 1, "earlier": 0, "biased": False, "pairs": "half"}
SOFTMAX = ("", "rotate", "bias", "score", "attend")


def is_real(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


def real(arrays: dict[str, Any], like: np.dtype | None = None) -> np.dtype:
    """The dtype that all of them have, `like` where that is said. Raises Misuse unless they are NumPy
    arrays of one of two dtypes.
    """
    for name, array in arrays.items():
        x = value(array)
        if not is_real(x):
            kind = x.dtype if isinstance(x, np.ndarray) else f"a {type(x).__module__}.{type(x).__name__}"
            raise Misuse(f"{name} is {kind}; expected a NumPy array, float32 or float64")
        like = x.dtype if like is None else like
        if x.dtype != like:
            raise Misuse(f"{name} is {x.dtype} beside others of {like}; give all of them one dtype")
    assert like is not None
    return like


def heads_of(q: Any, k: Any, v: Any = None) -> dict[str, int]:
    """H, G and D of q [B,H,T,D], k [B,G,S,D] and v [B,G,S,D], or Misuse."""
    fit = q.ndim == k.ndim == 4 and k.shape[::3] == q.shape[::3] and k.shape[2] >= q.shape[2]
    fit = fit and min(q.shape + k.shape) > 0 and q.shape[1] % k.shape[1] == 0
    if not fit or (v is not None and (v.ndim != 4 or v.shape[:3] != k.shape[:3])):
        arrays = {"q": q, "k": k} | ({} if v is None else {"v": v})
        given = ", ".join(f"{name} {list(a.shape)}" for name, a in arrays.items())
        wanted = f"q [B,H,T,D] and {', '.join([*arrays][1:])} [B,G,S,D], H a multiple of G and S at least T"
        raise Misuse(f"{given} do not fit; expected {wanted}: the queries are the last tokens")
    return {"H": q.shape[1], "G": k.shape[1], "D": q.shape[3]}


def check_count(what: str, n: Any) -> None:
    """Raises Misuse unless it counts something."""
    if not isinstance(n, int | np.integer) or n < 1:
        raise Misuse(f"{what} is {n!r}; expected a whole number, at least 1")


def check_sizes(facts: dict[str, Any]) -> None:
    for fact in ("H", "L"):
        check_count(fact, facts[fact])


def layer_of(name: str, facts: dict[str, Any], given: dict[str, Any], layout: str) -> Layer:
    """An attention layer of the encoding, or of several, with options and settings. Raises Misuse as
    `chosen`.
    """
    for one in encodings_of(name):
        fills_one_of(one, SOFTMAX)
    check_sizes(facts)
    if beside := sorted(given.keys() & FEEDING):
        raise Misuse(f"{beside[0]} is {given[beside[0]]}, but this is attention alone; leave it out")
    model = {"layout": layout, "window": facts["window"]}
    layer = bound(name, settled(name, given), ONE_LAYER | facts, lambda _: 0, model)
    check_claims(name, layer.pe, facts["causal"], layer.window or layer.chunk)
    check_options(layer.pe)
    return layer


def fills_one_of(name: str, hooks: tuple[str, ...]) -> None:
    """Raises Misuse where the encoding fills none of these hooks."""
    if get(name).hook not in hooks:
        others = ", ".join(n for n in names() if get(n).hook in hooks)
        raise Misuse(
            f"{name} fills {get(name).hook or 'no hook'} and cannot do this; those that can: {others}"
        )


def chosen(name: str, hooks: tuple[str, ...], facts: dict[str, Any], options: dict[str, Any]) -> Encoding:
    """The encoding with its facts and options filled in. Raises Misuse where it fills none of `hooks` or
    does not claim what is asked.
    """
    encoding = get(name)
    fills_one_of(name, hooks)
    check_sizes(facts)
    encoding = bind(encoding, ONE_LAYER | facts, resolve(name, options))
    check_claims(name, encoding, facts.get("causal", True), facts.get("window"))
    check_options(encoding)
    return encoding


def parameters(
    name: str,
    encoding: Encoding,
    params: dict[str, Any] | None,
    seed: int,
    dtype: np.dtype,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`params` where they fit the bound `encoding`, new ones of `dtype` where there are none. `more` is what
    the settings of its layer learn, as it starts. Raises Misuse, with the names and shapes expected.
    """
    drawn = encoding.init(generator(seed, "pe", 0)) | (more or {})
    fresh = {n: np.asarray(a, dtype) for n, a in drawn.items()}
    if params is None:
        return fresh
    real({f"params[{n!r}]": a for n, a in params.items()}, dtype)
    shaped_like(f"parameters given to {name}", params, fresh, "options and L decide their shapes")
    return params


def shaped_like(what: str, given: dict[str, Any], fresh: dict[str, Any], why: str) -> None:
    """Raises Misuse unless the arrays have these names and shapes."""
    has, wanted = ({n: list(a.shape) for n, a in some.items()} for some in (given, fresh))
    if has != wanted:
        listed = lambda some: ", ".join(f"{n} {shape}" for n, shape in some.items()) or "none"
        raise Misuse(f"{what}: {listed(has)}; expected: {listed(wanted)}; {why}")


def place(
    name: str, encoding: Encoding, dtype: Any, T: int, positions: Any, B: int | None = None, **rest: Any
) -> At:
    """Where T tokens are: [T] or, of B sequences, [B,T], or [A,B,T] where the encoding tells A axes apart.
    Raises Misuse unless it can be there.
    """
    i = None if positions is None else positions_of(positions, B, T, encoding.axes, name)
    if (seg := rest.get("seg")) is not None and np.shape(seg) != (B, T):
        raise Misuse(f"seg is {list(np.shape(seg))}; expected [{B}, {T}], one number for each token")
    at = At.of(T, positions=i, **rest)
    check_place(encoding, at, dtype)
    return at


def of_last(at: At, T: int) -> At:
    """The same place of T queries, the last of its tokens."""
    return at if at.T == T else replace(at, i=at.i[..., at.S - T :])


def turned(encoding: Encoding, p: dict[str, Any], q: Any, k: Any, at: At, layout: str) -> tuple[Any, Any]:
    """q and k after the rotation of their places."""
    rotary = rotation(encoding, p, at.j, at.n)
    if rotary is None or at.T == at.S:
        return turn_heads(PLAIN, q, k, rotary, layout=layout)
    k = turn_heads(PLAIN, k, k, rotary, layout=layout)[1]
    return turn_heads(PLAIN, q, q, rotation(encoding, p, at.i, at.n), layout=layout)[0], k


def width_of_rotation(name: str, D: int, rotary_dim: int | None, layout: str) -> int | None:
    """R, None where the encoding turns nothing."""
    if layout not in LAYOUTS:
        raise Misuse(f"layout is {layout!r}; expected one of: {', '.join(LAYOUTS)}")
    if not turning(name):
        if rotary_dim is not None:
            raise Misuse(f"rotary_dim is {rotary_dim}, but {name} turns nothing; leave it out")
        return None
    R = D if rotary_dim is None else rotary_dim
    check_rotary_width(R, D)
    return R


# ---------------------------------------------------------------- the calls


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
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> tuple[Any, Any]:
    """q [B,H,T,D] and k [B,G,S,D] turned by the rotary encoding `name` at `positions`, 0, 1, ... unless
    given; the queries are the last T of the S tokens.

    positions [S] or [B,S], and for encodings of several axes also [A,B,S], or [A,S] where A is not B.

    layout: "half" or "interleaved" (ops/turn.py); the first `rotary_dim` channels turn, all unless given. L
    is the length trained for and n the length that frequencies are made for, S unless given. Raises Misuse
    for an encoding that turns nothing and sizes that do not fit.
    """
    dtype, sizes, S = real({"q": q, "k": k}), heads_of(q, k), k.shape[2]
    facts = sizes | {"R": width_of_rotation(name, sizes["D"], rotary_dim, layout), "L": S if L is None else L}
    encoding = chosen(name, ("rotate",), facts, options)
    p = parameters(name, encoding, params, seed, dtype)
    at = of_last(place(name, encoding, dtype, S, positions, q.shape[0], n=n), q.shape[2])
    return turned(encoding, p, q, k, at, layout)


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
    """What the encoding `name` adds to the logits, [heads,T,T]: queries down, keys across, 0 where a causal
    model does not look.

    Give `tokens`, their number, or their positions [T]. The dtype is that of `params`, else float64; L is the
    length trained for, T unless given. Raises Misuse for an encoding that adds no function of distance.
    """
    T = counted_tokens(tokens, positions)
    encoding = chosen(name, ("bias",), {"H": heads, "causal": causal, "L": T if L is None else L}, options)
    dtype = real({f"params[{n!r}]": a for n, a in params.items()}) if params else np.dtype(np.float64)
    p = parameters(name, encoding, params, seed, dtype)
    at = place(name, encoding, dtype, T, positions, causal=causal)
    table = distance_table(PLAIN, encoding, p, at.distances)
    nothing = np.zeros((1, heads, T, 1), dtype)
    return seen(scores(nothing, nothing, table, None, None, None, at=at, scale=1.0), at.see)


def counted_tokens(tokens: int | None, positions: Any) -> int:
    """How many tokens there are. Raises Misuse unless their number or a row of positions is given."""
    if (tokens is None) == (positions is None):
        raise Misuse("give either tokens or positions")
    if positions is not None and np.ndim(positions) != 1:
        raise Misuse(
            f"positions are {list(np.shape(positions))}; expected [T], one number for each token of one "
            "sequence, such as positions=[2, 1, 4]"
        )
    T = np.size(positions) if tokens is None else tokens
    check_count("the number of tokens", T)
    return T


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
    """Softmax attention of q [B,H,T,D] over k, v [B,G,S,D] with the encoding `name`, [B,H,T,D]. H is a
    multiple of G; the queries are the last T of the S tokens, which positions, seg and n are of.

    `name` may be several encodings joined by +, and the options settings of a layer (member.py): softcap,
    chunk, global_tokens, scale, temperature and its two; sinks=True takes params["sinks"] [H], cosine=True
    params["cosine"] [H], and temperature="ssmax" params["temperature"] [H]. Logits are scaled as the encoding
    wants it where scale is not given: D**-0.5, and 1 for t5 and cosines. x [B,S,C] is the layer's input, for
    encodings that compute something of it (forget gates, Householder maps); without it C is H D. window and
    seg [B,S] are those of ops/place.py, the other settings those of `rotate` and `bias`. Raises Misuse for an
    encoding that replaces attention or is added to the embedding, and sizes that do not fit.
    """
    dtype, sizes = real({"q": q, "k": k, "v": v} | ({} if x is None else {"x": x})), heads_of(q, k, v)
    B, T, S, name = q.shape[0], q.shape[2], k.shape[2], by_hooks(name)
    R = width_of_rotation(name, sizes["D"], rotary_dim, layout)
    facts: dict[str, Any] = sizes | {"R": R, "L": S if L is None else L}
    facts |= {"C": sizes["H"] * sizes["D"] if x is None else x.shape[-1], "causal": causal, "window": window}
    layer = layer_of(name, facts, options, layout)
    encoding = layer.pe
    if x is None and encoding.features:
        raise Misuse(f"{name} computes something of the layer's input; give x [B,S,C]")
    if x is not None and (x.ndim != 3 or x.shape[:2] != (B, S)):
        raise Misuse(f"x is {list(x.shape)}; expected [{B}, {S}, C], the layer's input")
    p = parameters(name, encoding, params, seed, dtype, learned_settings(layer, facts["H"], facts["L"]))
    at = place(name, encoding, dtype, S, positions, B, causal=causal, window=window, seg=seg, n=n)
    if encoding.features and T < S:  # something of every token: as many queries, of which the last count
        q = join(np.zeros((B, sizes["H"], S - T, sizes["D"]), dtype), q, axis=2)
    at = of_last(layer.place(at), q.shape[2])
    made, how = None, layer.of_heads(p, layer.factor(at.i))
    if q.shape[2] < S:
        made = None, place_tables(PLAIN, replace(encoding, rotate=None), p, at)[1]
        q, k = cosines(PLAIN, q, k, how.pop("cosine", None))
        q, k = turned(encoding, p, q, k, at, layout)
    o = attend_heads(PLAIN, encoding, p, q, k, v, x, at, made=made, **how)[0]
    return o if q.shape[2] == T else last_rows(o, count=T)


def probabilities(name: str, q: Any, k: Any, **given: Any) -> Any:
    """The weights of `attention`, which takes the same settings, [B,H,T,S]: 0 where a query does not look.

    With sinks a row adds up to less than 1. Raises Misuse also for encodings that are no softmax over keys.
    """
    for one in encodings_of(name):
        fills_one_of(one, SOFTMAX[:-1])
    heads_of(q, k)
    B, G, S, _ = k.shape
    unit = np.broadcast_to(np.eye(S, dtype=value(k).dtype), (B, G, S, S)).copy()
    return attention(name, q, k, unit, **given)


def score(
    name: str,
    q: Any,
    k: Any,
    *,
    positions: Any = None,
    x: Any = None,
    causal: bool = True,
    window: int | None = None,
    seg: Any = None,
    L: int | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the logits of q [B,H,T,D] and k [B,G,S,D] by their content, [B,H,T,S],
    0 where a query does not look; the queries are the last T of the S tokens. x and the settings are those of
    `attention`.

    Raises Misuse for an encoding that adds no such thing, and sizes that do not fit.
    """
    dtype, sizes = real({"q": q, "k": k} | ({} if x is None else {"x": x})), heads_of(q, k)
    B, T, S = q.shape[0], q.shape[2], k.shape[2]
    facts = sizes | {"L": S if L is None else L, "causal": causal, "window": window}
    facts |= {"C": sizes["H"] * sizes["D"] if x is None else x.shape[-1]}
    encoding = chosen(name, ("score",), facts, options)
    if x is None and encoding.features:
        raise Misuse(f"{name} computes something of the layer's input; give x [B,S,C]")
    p = parameters(name, encoding, params, seed, dtype)
    at = place(name, encoding, dtype, S, positions, B, causal=causal, window=window, seg=seg)
    if T < S:  # something of every token: as many queries, of which the last count
        q = join(np.zeros((B, sizes["H"], S - T, sizes["D"]), dtype), q, axis=2)
    terms = score_terms(PLAIN, encoding, p, q, k, features(PLAIN, encoding, p, x, at)[0], at)
    nothing = np.zeros((B, sizes["H"], S, 1), dtype)
    found = masked(scores(nothing, nothing, None, *terms, at=at, scale=1.0), at.see)
    return found if T == S else last_rows(found, count=T)


def embed(
    name: str,
    *,
    width: int,
    tokens: int | None = None,
    positions: Any = None,
    L: int | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the embedding, [T,width]. tokens, positions, L and the dtype are those
    of `bias`. Raises Misuse for an encoding that adds nothing there.
    """
    T = counted_tokens(tokens, positions)
    check_count("width", width)
    encoding = chosen(name, ("embed",), {"H": 1, "C": width, "L": T if L is None else L}, options)
    dtype = real({f"params[{n!r}]": a for n, a in params.items()}) if params else np.dtype(np.float64)
    p = parameters(name, encoding, params, seed, dtype)
    return position_rows(encoding, p, place(name, encoding, dtype, T, positions).i)


def mix(
    name: str,
    x: Any,
    *,
    heads: int,
    head_width: int | None = None,
    positions: Any = None,
    seg: Any = None,
    L: int | None = None,
    state: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` gives in place of attention for a layer's input x [B,T,C], [B,T,C]. The head
    width is C / heads unless given.

    With a `state`, {} where nothing was before, also the one after the last token, {name: array [B,...]},
    which the next call takes; the first document of seg goes on with it. Both have gradients (vjp). Raises
    Misuse for an encoding that stands beside attention, and sizes that do not fit.
    """
    dtype = real({"x": x})
    if x.ndim != 3 or min(x.shape) < 1:
        raise Misuse(f"x is {list(x.shape)}; expected [B, T, C], the layer's input")
    B, T, C = x.shape
    check_count("heads", heads)
    check_count("head_width", 1 if head_width is None else head_width)
    if head_width is None and C % heads:
        raise Misuse(f"width {C} does not divide by {heads} heads; change one, or give head_width")
    facts = {"H": heads, "D": C // heads if head_width is None else head_width, "C": C}
    encoding = chosen(name, ("mix",), facts | {"L": T if L is None else L, "causal": True}, options)
    p = parameters(name, encoding, params, seed, dtype)
    at = place(name, encoding, dtype, T, positions, B, seg=seg)
    if state:
        bare = {n: value(a) for n, a in p.items()}
        fresh = mixed_from(PLAIN, encoding, bare, np.zeros((B, 1, C), dtype), At.of(1), {})[1]
        real({f"state[{n!r}]": a for n, a in state.items()}, dtype)
        shaped_like(f"state given to {name}", state, fresh, "give what the call before returned, or {}")
    y, last = mixed_from(PLAIN, encoding, p, x, at, state or {})
    return y if state is None else (y, last)


def vjp(
    function: Callable,
    *arguments: Any,
    params: dict[str, Any] | None = None,
    x: Any = None,
    state: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Any, Callable]:
    """What function(*arguments, ...) gives, and `pull`, which takes a cotangent of it to a tuple of
    gradients.

    A cotangent has the shape [...] and dtype of the result. Each real array among the arguments has one
    gradient of its own shape, in their order, then x, the dict of params and that of state, where these are
    given: dq, dk, dv, dx, dp = pull(do). Of a function with several results pull takes as many cotangents, of
    a state a dict: dx, dp, dstate = pull(dy, dlast). It can be called again. Raises Misuse where nothing can
    be differentiated, and where a cotangent does not fit.
    """
    tape = Tape()
    watched = [tape.watch(a) if is_real(a) else a for a in arguments]
    given_by_name = (("x", x), ("params", params), ("state", state))
    named = {name: tape.watch(a) for name, a in given_by_name if a is not None}
    y = function(*watched, **named, **settings)
    results = y if isinstance(y, tuple) else (y,)
    if not all(isinstance(one, (Var, dict)) for one in results):
        what = "the result does not depend on a real array among the arguments, x or params"
        raise Misuse(f"nothing to differentiate: {what}")
    recorded = list(tape.entries)

    def pull(*dy: Any) -> tuple[Any, ...]:
        given, wanted = (
            ", ".join(
                f"{name} {getattr(a, 'dtype', type(a).__name__)}{list(np.shape(a))}".lstrip()
                for name, a in in_one(arrays)
            )
            for arrays in (dy, results)
        )
        if given != wanted:
            raise Misuse(f"pull was given {given or 'nothing'}; expected {wanted}, like the result")
        tape.entries = list(recorded)
        both = zip(in_one(results), in_one(dy), strict=True)
        judged = [(one, d) for (_, one), (_, d) in both if isinstance(one, Var)]  # a count has no gradient
        found = tape.gradients(*map(tuple, zip(*judged, strict=True)))
        leaves = [*(a for a in watched if isinstance(a, Var)), *named.values()]
        return tuple({n: found[b] for n, b in a.items()} if isinstance(a, dict) else found[a] for a in leaves)

    values = tuple(
        {n: value(a) for n, a in one.items()} if isinstance(one, dict) else one.value for one in results
    )
    return values if isinstance(y, tuple) else values[0], pull


def in_one(arrays: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Each array, and each of a dict with its name, in order."""
    return [
        pair for one in arrays for pair in (sorted(one.items()) if isinstance(one, dict) else [("", one)])
    ]
