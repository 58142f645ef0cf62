"""What an encoding does, applied. Nothing else calls its hooks: model, direct, golden and lab come here.

    with_position   embed, added to the embedding
    attend_heads    rotate, bias, features, score, then attend or softmax
    mixed           mix, in place of attention
    around          the same encoding with something done before or after a hook

and the parts of these: position_rows, rotation, distance_table, turn_heads, features, score_terms. The other
functions of an encoding are asked here too: softmax_scale, query_size, check_place, longest.

pe is a bound encoding (Config.encoding), p its parameters under their bare names, at the place where the
backend has it: be.place(at).
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.encodings import Encoding
from peref.errors import Misuse
from peref.ops.cast import in_dtype
from peref.ops.cosine import SHORT, of_length
from peref.ops.kept import Kept
from peref.ops.norm import unit
from peref.ops.place import LARGEST_POSITION, At
from peref.ops.shape import add_position, join
from peref.ops.temperature import tempered
from peref.tape import Var, value
from peref.xp import Arrays

State = Arrays | None


# ---------------------------------------------------------------- what it says of itself


def softmax_scale(pe: Encoding, D: int) -> float:
    """What q k is multiplied by at head width D; D**-0.5 unless the encoding says otherwise."""
    return pe.scale(D)


def query_size(pe: Encoding, D: int) -> float:
    """What queries are multiplied with, so that first logits have one size whatever the softmax scale."""
    return D**-0.5 / pe.scale(D)


def check_place(pe: Encoding, at: At, dtype: Any) -> None:
    """Raises Misuse for a place, in NumPy, that pe cannot compute in `dtype` or has nothing for."""
    if pe.check:
        # bfloat16 is not NumPy's own, and ends where float32 does
        pe.check(at, np.float32 if np.dtype(dtype).kind == "V" else dtype)


def longest(pe: Encoding, L: int, dtype: Any) -> float:
    """The longest sequence, from position 0, that can be computed in `dtype`; L is the length trained for."""

    def ends_before(T: int) -> bool:
        try:
            check_place(pe, At.of(2, positions=[0, T - 1]), dtype)
        except Misuse:
            return True
        return False

    if "any_length" in pe.claims:
        return math.inf
    lengths = range(1, LARGEST_POSITION)
    found = bisect_left(lengths, True, key=ends_before)
    return found if found < len(lengths) else L


# ---------------------------------------------------------------- what the place alone decides


def position_rows(pe: Encoding, p: Arrays, i: Any) -> Any:
    """What is added to the embedding at positions i, [...,T,C]; None where pe adds nothing."""
    return pe.embed(p, i) if pe.embed else None


def rotation(pe: Encoding, p: Arrays, i: Any, n: int) -> Any:
    """Angles [...,T,R/2] at positions i, gain of q and of k (None: 1); None where pe turns nothing.

    n is the length that frequencies are made for.
    """
    return pe.rotate(p, i, n) if pe.rotate else None


def distance_table(be: Backend, pe: Encoding, p: Arrays, d: Any) -> Any:
    """What is added to the logits at distances d [N], [H,N]; None where that is no function of distance."""
    return pe.bias(be, p, d) if pe.bias else None


def place_tables(be: Backend, pe: Encoding, p: Arrays, at: At) -> tuple[Any, Any]:
    """The rotation and the table of distances of a place."""
    return rotation(pe, p, at.i, at.n), distance_table(be, pe, p, at.distances) if pe.bias else None


# ---------------------------------------------------------------- and what it does with it


def with_position(pe: Encoding, p: Arrays, x: Any, i: Any) -> Any:
    """The embedding x [B,T,C] of tokens at positions i, with what pe adds to it."""
    return add_position(x, position_rows(pe, p, i)) if pe.embed else x


def turn_heads(be: Backend, q: Any, k: Any, rotary: Any, *, layout: str, keys: Any = None) -> tuple[Any, Any]:
    """q and k, turned by what `rotation` gives, k by what it gives for the keys where that is another."""
    if rotary is None:
        return q, k
    (angle, gain_q, _), (of_keys, _, gain_k) = rotary, keys or rotary
    return be.turn(q, angle, gain_q, layout=layout), be.turn(k, of_keys, gain_k, layout=layout)


def rotation_of_keys(pe: Encoding, p: Arrays, k: Any, at: At) -> Any:
    """That of k [B,G,S,D] where these are more than the queries, else None: it is theirs."""
    return rotation(pe, p, at.j, at.n) if k.shape[2] > at.T else None


def cosines(be: Backend, q: Any, k: Any, s: Any) -> tuple[Any, Any]:
    """k as unit vectors and q as long as s [H] says, so that q k are cosines times that length; both as they
    are where s is None.
    """
    if s is None:
        return q, k
    longer, unit_k = of_length(be.widen(q), be.widen(s)), unit(be.widen(k), eps=SHORT)
    return in_dtype(longer, q.dtype), in_dtype(unit_k, k.dtype)


def features(be: Backend, pe: Encoding, p: Arrays, x: Any, at: At, state: State = None) -> Any:
    """What tokens have besides k and v, {name: [B,heads,T,...]}, and the state after them."""
    return pe.features(be, p, be.widen(x), at, state or {}) if pe.features else ({}, {})


def score_terms(
    be: Backend, pe: Encoding, p: Arrays, q: Any, k: Any, f: Arrays, at: At, table: Any = None
) -> Any:
    """What is added to the scaled logits, by their content: term, row and column, None where absent. `table`
    is what another encoding of the layer adds by distance.
    """
    beside = () if table is None else (table,)
    return pe.score(be, p, be.widen(q), be.widen(k), f, at, *beside) if pe.score else (None, None, None)


def attend_heads(
    be: Backend,
    pe: Encoding,
    p: Arrays,
    q: Any,
    k: Any,
    v: Any,
    x: Any,
    at: At,
    old: State = None,
    *,
    layout: str,
    softcap: float | None = None,
    cosine: Any = None,
    sinks: Any = None,
    factor: Any = None,
    temperature: Any = None,
    made: Any = None,
) -> tuple[Any, State]:
    """Attention of q [B,H,T,D] over k, v [B,G,T,D] and those in the layer's cache `old`; and that cache then.

    Without a cache (None) nothing is kept, and there may be more keys than queries, which are then the last.
    x [B,T,C], the layer's input, feeds features. `made` are the tables of the place and what turns q and k,
    where layers share them; softcap and sinks are those of ops/attention.py; q and k are `cosines` of
    `cosine` [H], and queries are multiplied with `factor` [T] or [B,T], and with `temperature` [H], where
    there are some.
    """
    rotary, table, turn = made or (*place_tables(be, pe, p, at), None)
    q, k = cosines(be, q, k, cosine)  # [B,H,T,D], [B,G,T,D]
    q = q if factor is None else tempered(q, temperature, factor=factor)  # [B,H,T,D]
    if turn:
        q, k, v = turn(q, k, v, layout=layout)  # [B,H,T,D], [B,G,T,D], [B,G,T,D]
    else:
        keys = rotation_of_keys(pe, p, k, at)
        q, k = turn_heads(be, q, k, rotary, layout=layout, keys=keys)  # [B,H,T,D], [B,G,T,D]
    if any(a is not None for a in (rotary, turn, cosine, factor)):
        q, k = be.note("q_turned", q), be.note("k_turned", k)
    if pe.features or pe.attend or pe.score:
        p = widened(be, p)
    f, state = features(be, pe, p, x, at, old and old.get("state"))
    new = None
    if old is not None:
        given = {"k": k, "v": v} | {f"f.{name}": a for name, a in f.items()}
        new, (k, v, *rest) = join_kept(old, given)  # [B,G,S,D]
        new, f = new | {"state": off_tape(state)}, dict(zip(f, rest, strict=True))
    term, row, column = score_terms(be, pe, p, q, k, f, at, table)
    if pe.attend:
        beside = [(table, term, row, column)] if pe.bias or pe.score else []  # of others in the layer
        o = pe.attend(be, p, *map(be.widen, (q, k, v)), f, at, *beside)
        return in_dtype(o, q.dtype), new  # [B,H,T,D]
    term, scale = in_dtype(term, q.dtype), softmax_scale(pe, q.shape[-1])
    o = be.attention(q, k, v, table, term, row, column, sinks, at=at, scale=scale, softcap=softcap)
    return o, new  # [B,H,T,D]


def mixed(be: Backend, pe: Encoding, p: Arrays, x: Any, at: At, old: State = None, across: Any = None) -> Any:
    """What stands in place of attention, of x [B,T,C], and the layer's cache afterwards, None without one.

    `across` is what layers hand on.
    """
    y, last = mixed_from(be, pe, p, x, at, (old or {}).get("state", {}), across)
    return y, None if old is None else {"state": off_tape(last)}


def mixed_from(
    be: Backend, pe: Encoding, p: Arrays, x: Any, at: At, state: Arrays, across: Any = None
) -> Any:
    """The same from `state`, {} where nothing was before, and the state after the last token; both are on the
    tape where x or p are.
    """
    assert pe.mix
    y, last = pe.mix(be, widened(be, p), be.widen(x), at, state, {} if across is None else across)
    return in_dtype(y, x.dtype), last  # [B,T,C]


def off_tape(state: Arrays) -> Arrays:
    """A state as a cache keeps it: never on a tape."""
    return {name: value(a) for name, a in state.items()}


def widened(be: Backend, p: Arrays) -> Arrays:
    """Parameters of an encoding as it computes with them."""
    return {name: be.widen(a) for name, a in p.items()}


def join_kept(old: Arrays, new: Arrays) -> tuple[Arrays, list[Any]]:
    """A layer's cache with the rows `new` [B,heads,T,...] after those in `old`, and the same as arrays.

    The arrays are on the tape where `new` is, the cache never is.
    """
    both, rows = {}, []
    for name, a in new.items():
        before = old.get(name)
        if isinstance(a, Var) or before is None:
            rows.append(a if before is None else join(before.rows, a, axis=2))
            both[name] = Kept(value(rows[-1]))
        else:
            both[name] = before.joined(a)
            rows.append(both[name].rows)
    return both, rows


def around(pe: Encoding, hook: str, function: Callable) -> Encoding:
    """The encoding with function(its hook, *what the hook is given) in place of the hook."""
    changed: dict[str, Any] = {hook: partial(function, getattr(pe, hook))}
    return replace(pe, **changed)
