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

from peref import hooks
from peref.config import Config, check_rotary_width
from peref.encodings import Encoding, get, names, resolve
from peref.errors import Misuse
from peref.member import FEEDING, by_hooks, encodings_of, turning
from peref.model import PLAIN
from peref.ops.attention import added
from peref.ops.place import At
from peref.ops.shape import cut, join, only
from peref.ops.turn import LAYOUTS
from peref.parameters import learned_settings
from peref.rng import generator
from peref.tape import Tape, Var, value
from peref.xp import Arrays

# ---------------------------------------------------------------- what was given


Names = tuple[str, ...]
SOFTMAX = ("", "rotate", "bias", "score", "attend")


def is_real(x: Any) -> bool:
    """Whether x is a NumPy array of float32 or float64, which alone have gradients here."""
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


def real(arrays: Arrays, like: np.dtype | None = None) -> np.dtype:
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
    return np.dtype(np.float64) if like is None else like


def sizes_of(q: Any, k: Any, v: Any = None, x: Any = None) -> tuple[np.dtype, Arrays]:
    """The dtype, and H, G, D and C, of q [B,H,T,D], k and v [B,G,S,D] and x [B,S,C], or Misuse."""
    heads: Arrays = {"q": q, "k": k} | ({} if v is None else {"v": v})
    dtype = real(heads | ({} if x is None else {"x": x}))
    fit = q.ndim == k.ndim == 4 and k.shape[::3] == q.shape[::3] and k.shape[2] >= q.shape[2]
    fit = fit and min(q.shape + k.shape) > 0 and q.shape[1] % k.shape[1] == 0
    if not fit or (v is not None and (v.ndim != 4 or v.shape[:3] != k.shape[:3])):
        given = ", ".join(f"{name} {list(a.shape)}" for name, a in heads.items())
        wanted = f"q [B,H,T,D] and {', '.join([*heads][1:])} [B,G,S,D], H a multiple of G and S at least T"
        raise Misuse(f"{given} do not fit; expected {wanted}: the queries are the last tokens")
    (B, H, _, D), (_, G, S, _) = q.shape, k.shape
    if x is not None and (x.ndim != 3 or x.shape[:2] != (B, S)):
        raise Misuse(f"x is {list(x.shape)}; expected [{B}, {S}, C], the layer's input")
    return dtype, {"H": H, "G": G, "D": D, "C": H * D if x is None else x.shape[-1]}


def check_count(what: str, n: Any) -> None:
    """Raises Misuse unless it counts something."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise Misuse(f"{what} is {n!r}; expected a whole number, at least 1")


def fills_one_of(name: str, wanted: Names) -> None:
    """Raises Misuse where the encoding fills none of these hooks."""
    if get(name).hook not in wanted:
        others = ", ".join(n for n in names() if get(n).hook in wanted)
        what = f"{name} fills {get(name).hook or 'no hook'} and cannot do this"
        raise Misuse(f"{what}; those that can: {others}")


def parameters(
    name: str, encoding: Encoding, params: Arrays | None, seed: int, dtype: Any, more: Arrays | None = None
) -> Arrays:
    """`params` where they fit the bound `encoding`, new ones of `dtype` where there are none. `more` is what
    the settings of its layer learn, as it starts. Raises Misuse, with the names and shapes expected.
    """
    drawn = encoding.init(generator(seed, "pe", 0)) | (more or {})
    fresh = {n: np.asarray(a, dtype) for n, a in drawn.items()}
    if params is None:
        return fresh
    real(keyed("params", params), dtype)
    shaped_like(f"parameters given to {name}", params, fresh, "options and L decide their shapes")
    return params


def shaped_like(what: str, given: Arrays, fresh: Arrays, why: str) -> None:
    """Raises Misuse unless the arrays have these names and shapes."""
    has, wanted = ({n: list(a.shape) for n, a in some.items()} for some in (given, fresh))
    if has != wanted:
        listed = lambda some: ", ".join(f"{n} {shape}" for n, shape in some.items()) or "none"
        raise Misuse(f"{what}: {listed(has)}; expected: {listed(wanted)}; {why}")


def keyed(what: str, arrays: Arrays) -> Arrays:
    """These as a message calls them. Raises Misuse for what is no dict."""
    if not isinstance(arrays, dict):
        raise Misuse(f"{what} is {arrays!r:.40}; expected a dict of arrays by their names")
    return {f"{what}[{n!r}]": a for n, a in arrays.items()}


def single_layer(
    name: str, wanted: Names, facts: Arrays, T: int, options: Arrays, params: Any, seed: int, dtype: Any
) -> tuple[Config, Arrays]:
    """A model whose one layer has the encoding, or several, with these facts, L being T where it is None, and
    the parameters of that. Raises Misuse where an encoding fills none of `wanted` or does not claim what is
    asked, and for what does not fit.
    """
    for one in encodings_of(name):
        fills_one_of(one, wanted)
    L, x = (facts.pop(fact, None) for fact in "Lx")
    check_count("L", T if L is None else L)
    given = options if wanted == SOFTMAX else resolve(name, options)
    cfg = Config(((name, given),), T if L is None else L, layers=1, **facts)
    layer = cfg.layer(0)
    if layer.pe.features and x is None:
        raise Misuse(f"{name} computes something of the layer's input; give x [B,S,C]")
    more = learned_settings(layer, cfg.H, cfg.L)
    return cfg, parameters(name, layer.pe, params, seed, dtype, more)


def place(cfg: Config, dtype: Any, T: int, positions: Any, B: Any = None, **rest: Any) -> At:
    """Where T tokens are: [T] or, of B sequences, [B,T], or [A,B,T] where the encoding tells A axes apart.
    Raises Misuse unless it can be there.
    """
    at = cfg.place(B, T, positions, **rest)
    cfg.check_place(at, dtype)
    return at


def of_last(at: At, T: int) -> At:
    """The same place of T queries, the last of its tokens."""
    return replace(at, i=at.i[..., at.S - T :])


def as_many(q: Any, S: int) -> Any:
    """q [B,H,T,D] behind rows of 0, so that there are S of them."""
    B, H, T, D = q.shape
    return join(np.zeros((B, H, S - T, D), q.dtype), q, axis=2) if T < S else q


def last_rows(o: Any, T: int) -> Any:
    """The last T tokens of o [B,H,S,D]."""
    return cut(o, first=o.shape[2] - T, stop=o.shape[2], axis=2) if o.shape[2] > T else o


def of_rotation(name: str, D: int, rotary_dim: int | None, layout: str) -> Arrays:
    """Rotary width and layout as facts of a model. Raises Misuse for a width that cannot turn, and for a
    layout that nobody has, whatever the encoding does.
    """
    turns = turning(name)
    if turns and rotary_dim is not None:
        check_rotary_width(rotary_dim, D)
    if layout not in LAYOUTS:
        raise Misuse(f"layout is {layout!r}; expected one of: {', '.join(LAYOUTS)}")
    return {"R": rotary_dim, "layout": layout if turns else "half"}


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
    params: Arrays | None = None,
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
    (dtype, facts), (B, S) = sizes_of(q, k), k.shape[::2]
    facts |= of_rotation(name, q.shape[3], rotary_dim, layout) | {"L": L}
    cfg, p = single_layer(name, ("rotate",), facts, S, options, params, seed, dtype)
    pe, at = cfg.encoding(0), of_last(place(cfg, dtype, S, positions, B, n=n), q.shape[2])
    rotary, keys = hooks.rotation(pe, p, at.i, at.n), hooks.rotation_of_keys(pe, p, k, at)
    return hooks.turn_heads(PLAIN, q, k, rotary, layout=layout, keys=keys)


def bias(
    name: str,
    *,
    heads: int,
    tokens: int | None = None,
    positions: Any = None,
    causal: bool = True,
    L: int | None = None,
    params: Arrays | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the logits, [heads,T,T]: queries down, keys across, 0 where a causal
    model does not look.

    Give `tokens`, their number, or their positions [T]. The dtype is that of `params`, else float64; L is the
    length trained for, T unless given. Raises Misuse for an encoding that adds no function of distance.
    """
    T, dtype = counted_tokens(tokens, positions), real(keyed("params", params or {}))
    check_count("heads", heads)
    facts = {"H": heads, "C": heads, "causal": causal, "L": L}
    cfg, p = single_layer(name, ("bias",), facts, T, options, params, seed, dtype)
    at = place(cfg, dtype, T, positions)
    table = hooks.distance_table(PLAIN, cfg.encoding(0), p, at.distances)
    return only(added(table, None, None, None, at=at, B=1, H=heads, dtype=dtype))


def counted_tokens(tokens: int | None, positions: Any) -> int:
    """How many tokens there are. Raises Misuse unless their number or a row of positions is given."""
    if (tokens is None) == (positions is None):
        raise Misuse("give either tokens or positions")
    if positions is not None and np.ndim(positions) != 1:
        what = f"positions are {list(np.shape(positions))}; expected [T], one number for each token of one"
        raise Misuse(f"{what} sequence, such as positions=[2, 1, 4]")
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
    params: Arrays | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Attention of q [B,H,T,D] over k, v [B,G,S,D] with the encoding `name`, [B,H,T,D]. H is a
    multiple of G; the queries are the last T of the S tokens, which positions, seg and n are of.

    `name` may be several encodings joined by +, and the options settings of a layer (member.py): softcap,
    chunk, global_tokens, scale, temperature and its two; sinks=True takes params["sinks"] [H], cosine=True
    params["cosine"] [H], and temperature="ssmax" params["temperature"] [H]. Logits are scaled as the encoding
    wants it where scale is not given: D**-0.5, and 1 for t5 and cosines. x [B,S,C] is the layer's input, for
    encodings that compute something of it (forget gates, Householder maps); without it C is H D. window and
    seg [B,S] are those of ops/place.py, the other settings those of `rotate` and `bias`. Raises Misuse for an
    encoding that replaces attention or is added to the embedding, and sizes that do not fit.
    """
    (dtype, facts), (B, S), name = sizes_of(q, k, v, x), k.shape[::2], by_hooks(name)
    facts |= {"causal": causal, "window": window, "L": L, "x": x}
    facts |= of_rotation(name, q.shape[3], rotary_dim, layout)
    if beside := sorted(options.keys() & FEEDING):
        raise Misuse(f"{beside[0]} is {options[beside[0]]}, but this is attention alone; leave it out")
    cfg, p = single_layer(name, SOFTMAX, facts, S, options, params, seed, dtype)
    layer = cfg.layer(0)
    at = layer.place(place(cfg, dtype, S, positions, B, seg=seg, n=n))
    T, q = q.shape[2], as_many(q, S) if layer.pe.features else q  # something of every token
    at = of_last(at, q.shape[2])
    how = layer.of_heads(p, layer.factor(at.i))
    return last_rows(hooks.attend_heads(PLAIN, layer.pe, p, q, k, v, x, at, **how)[0], T)


def probabilities(name: str, q: Any, k: Any, **given: Any) -> Any:
    """The weights of `attention`, which takes the same settings, [B,H,T,S]: 0 where a query does not look.

    With sinks a row adds up to less than 1. Raises Misuse also for encodings that are no softmax over keys.
    """
    for one in encodings_of(name):
        fills_one_of(one, SOFTMAX[:-1])
    sizes_of(q, k)
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
    params: Arrays | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the logits of q [B,H,T,D] and k [B,G,S,D] by their content, [B,H,T,S],
    0 where a query does not look; the queries are the last T of the S tokens. x and the settings are those of
    `attention`.

    Raises Misuse for an encoding that adds no such thing, and sizes that do not fit.
    """
    (dtype, facts), (B, S), T = sizes_of(q, k, None, x), k.shape[::2], q.shape[2]
    facts |= {"causal": causal, "window": window, "L": L, "x": x}
    cfg, p = single_layer(name, ("score",), facts, S, options, params, seed, dtype)
    pe, at = cfg.encoding(0), place(cfg, dtype, S, positions, B, seg=seg)
    f, q = hooks.features(PLAIN, pe, p, x, at)[0], as_many(q, S)  # something of every token
    terms = hooks.score_terms(PLAIN, pe, p, q, k, f, at)
    return last_rows(added(None, *terms, at=at, B=B, H=facts["H"], dtype=dtype), T)


def embed(
    name: str,
    *,
    width: int,
    tokens: int | None = None,
    positions: Any = None,
    L: int | None = None,
    params: Arrays | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """What the encoding `name` adds to the embedding, [T,width]. tokens, positions, L and the dtype are those
    of `bias`. Raises Misuse for an encoding that adds nothing there.
    """
    T, dtype = counted_tokens(tokens, positions), real(keyed("params", params or {}))
    check_count("width", width)
    cfg, p = single_layer(name, ("embed",), {"H": 1, "C": width, "L": L}, T, options, params, seed, dtype)
    return hooks.position_rows(cfg.encoding(0), p, place(cfg, dtype, T, positions).i)


def mix(
    name: str,
    x: Any,
    *,
    heads: int,
    head_width: int | None = None,
    positions: Any = None,
    seg: Any = None,
    L: int | None = None,
    state: Arrays | None = None,
    params: Arrays | None = None,
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
    facts = {"H": heads, "D": head_width, "C": C, "L": L}
    cfg, p = single_layer(name, ("mix",), facts, T, options, params, seed, dtype)
    pe, at = cfg.encoding(0), place(cfg, dtype, T, positions, B, seg=seg)
    if state:
        nothing = np.zeros((B, 1, C), dtype)
        fresh = hooks.mixed_from(PLAIN, pe, hooks.off_tape(p), nothing, At.of(1), {})[1]
        real(keyed("state", state), dtype)
        shaped_like(f"state given to {name}", state, fresh, "give what the call before returned, or {}")
    y, last = hooks.mixed_from(PLAIN, pe, p, x, at, state or {})
    return y if state is None else (y, last)


def vjp(
    function: Callable,
    *arguments: Any,
    params: Arrays | None = None,
    x: Any = None,
    state: Arrays | None = None,
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
    tape, by_name = Tape(), {"x": x, "params": params, "state": state}
    watched = [tape.watch(a) if is_real(a) else a for a in arguments]
    named = {name: tape.watch(a) for name, a in by_name.items() if a is not None}
    y = function(*watched, **named, **settings)
    results = y if isinstance(y, tuple) else (y,)
    if not all(isinstance(one, (Var, dict)) for one in results):
        what = "nothing to differentiate: the result does not depend on a real array among the arguments"
        raise Misuse(f"{what}, x or params")
    recorded = list(tape.entries)

    def pull(*dy: Any) -> tuple[Any, ...]:
        kind = lambda a: f"{getattr(a, 'dtype', type(a).__name__)}{list(np.shape(a))}"
        listed = lambda arrays: ", ".join(f"{name} {kind(a)}".lstrip() for name, a in in_one(arrays))
        if (given := listed(dy)) != (wanted := listed(results)):
            raise Misuse(f"pull was given {given or 'nothing'}; expected {wanted}, like the result")
        tape.entries = list(recorded)
        both = zip(in_one(results), in_one(dy), strict=True)
        judged = [(one, d) for (_, one), (_, d) in both if isinstance(one, Var)]  # a count has no gradient
        found = tape.gradients(*map(tuple, zip(*judged, strict=True)))
        leaves = [*(a for a in watched if isinstance(a, Var)), *named.values()]
        return tuple({n: found[b] for n, b in a.items()} if isinstance(a, dict) else found[a] for a in leaves)

    values = tuple(hooks.off_tape(one) if isinstance(one, dict) else one.value for one in results)
    return values if isinstance(y, tuple) else values[0], pull


def in_one(arrays: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Each array, and each of a dict with its name, in order."""
    each = lambda one: sorted(one.items()) if isinstance(one, dict) else [("", one)]
    return [pair for one in arrays for pair in each(one)]
