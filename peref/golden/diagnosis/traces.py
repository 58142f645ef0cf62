"""Guesses at decoding through a cache: positions that begin anew, masks of a chunk, what the cache loses or
keeps of an earlier text, the length that frequencies are made for.

The bugs of the wild, simple ones first: what shows in calls of one kind alone is tried where none of those
gives what came.

Not here: how a trace is replayed (replays).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import Answer, Guess, guess
from peref.golden.diagnosis.attention import WHO_SEES
from peref.golden.diagnosis.biases import BIASES, ROWS_ADDED
from peref.golden.diagnosis.engine import TRACES, WRAPS, Row, attends, family, guesses, rows
from peref.golden.diagnosis.options import option_rows
from peref.golden.diagnosis.recurrences import SUMS
from peref.golden.diagnosis.replays import (
    Call,
    alone,
    as_operation,
    calls_of,
    kept_names,
    not_cleared,
    not_written,
    on_trace,
    replayed,
    with_another_map,
    with_keys,
    with_old_states,
    with_places,
    with_states,
    with_turns,
    with_zeros,
    without_keys,
)
from peref.golden.diagnosis.rotation import MAPS, OF_ANGLES, STILL, Map, turned_at_all
from peref.golden.spec.cases import Case
from peref.hooks import around

RESTARTS, LATE, RING = "cache.position_restarts", "position.off_by_one", "cache.ring_positions"
BIAS_LATE = "bias.off_by_one"
AXES_EXCHANGED = "has its last two axes exchanged"
KEPT, DROPPED = "cache.not_cleared", "cache.state_dropped"
CAUSAL, ONE_OF_TWO = "mask.causal", "rope.one_of_two"

later = lambda call: call.later
not_first = lambda call: call.first > 0
one_token = lambda call: call.later and call.T == 1
a_chunk = lambda call: call.later and call.T > 1
every_call = lambda call: True
opening = lambda call: not call.later
SOME = (later, one_token, a_chunk)
NAMED = {  # words for the calls in which a bug shows
    opening: ", in the first call of a text",
    later: ", in calls after the first",
    not_first: ", in every call but the very first",
    one_token: ", in later calls of one token",
    a_chunk: ", in later calls of several tokens",
}
NARROW = 0.97  # how much a bug is worth that shows in calls of one kind alone: less than one of all
OF_ONE = 0.92  # and one of queries or keys alone; of both the search goes on
KINDS = (every_call, *SOME)
WHO = (("", "qk"), (", of queries alone", "q"), (", of keys alone", "k"))


def of_kinds(flag: str, words: str, make: Any, kinds: Any = KINDS, sure: float = 1.0) -> Iterator[Guess]:
    """The guess make(kind) for all calls, and for those of each kind."""
    for kind in kinds:
        worth = sure if kind is every_call else sure * NARROW
        found = guess(flag, words + NAMED.get(kind, ""), make(kind), worth)
        yield replace(found, vague=worth < OF_ONE)


one_each = lambda i, far, c: i - far + (c.opening + c.number - 1) * c.later
own_once_cached = lambda i, far, c: i + c.T * c.later
in_cache = lambda i, far, c: 0 * i + np.arange(c.first - c.begin, c.stop - c.begin)
WRONG_PLACES = (  # flag, words, place(positions of a call, its offset, the call)
    (RESTARTS, "every call counts its positions from the beginning", lambda i, far, c: i - far),
    (RESTARTS, "every call counts its positions from 0", lambda i, far, c: 0 * i + np.arange(c.T)),
    (RESTARTS, "the offset of a call counts twice in its positions", lambda i, far, c: i + far),
    (LATE, "positions are one too large once there is a cache", lambda i, far, c: i + c.later),
    (LATE, "positions are one too small once there is a cache", lambda i, far, c: i - c.later),
    (RESTARTS, "a call's own tokens count in its offset", lambda i, far, c: i + c.T),
    (RESTARTS, "a call's own tokens count in its offset once there is a cache", own_once_cached),
    (RESTARTS, "the offset grows by one with each call, however many tokens it has", one_each),
    (
        RESTARTS,
        "the offset of a call is the length of the one before",
        lambda i, far, c: i - far + c.previous,
    ),
    (RESTARTS, "the offset of a call is the number of calls before it", lambda i, far, c: i - far + c.number),
    (RESTARTS, "every token of a call has the position of its first", lambda i, far, c: 0 * i + i[..., :1]),
    ("position.counted", "positions are counted in the cache, whatever is given", in_cache),
    (RESTARTS, "every token of a call has the position of its last", lambda i, far, c: 0 * i + i[..., -1:]),
)


@family(what=TRACES)
def of_positions(answer: Answer, case: Any) -> Iterator[Guess]:
    """Where the tokens of a call are; that of queries or of keys alone is a distance."""
    known = answer.entry.vectors.words["flags"]
    window, of_bias = case.window or 0, LATE not in known and BIAS_LATE in known
    for whose, who in WHO:
        late = BIAS_LATE if of_bias and who != "qk" else LATE
        for flag, words, place in WRONG_PLACES:
            mine = late if flag == LATE else flag
            sure = 1.0 if who == "qk" else OF_ONE
            yield from of_kinds(mine, f"{words}{whose}", partial(with_places, place, who), sure=sure)
        goes_on = with_places(lambda i, far, c: i + c.begin, who, every_call)
        yield guess(KEPT, f"positions in a new text go on from the one before{whose}", goes_on)
        for more in (0, 1) if window else ():
            words = f"positions are places in a ring of {window + more} keys{whose}"
            ring = lambda i, far, c, more=more: i % (c.window + more) if c.window else i
            yield guess(RING, words, with_places(ring, who, every_call))
    for more in (0, 1) if window else ():
        words = f"the position is the number of keys in a cache of {window - more}"
        full = lambda i, far, c, more=more: i - np.maximum(far - c.window + more, 0) if c.window else i
        yield guess(RING, words, with_places(full, "qk", every_call))


TOP, WINDOW_LATE = "mask.top_left", "cache.window_late"
rolling = lambda t, s, c: (s <= t) & (t - s < (c.window or np.inf))
left_of = lambda first: lambda see, t, s, c: see & (s >= first(t, s, c))
has_global = lambda case: attends(case) and case.layer.global_tokens
windowed = lambda case: attends(case) and case.window is not None
OPENED = Row(CAUSAL, "there is no causal mask", {"place": lambda at, c: {"causal": False}}, attends)
ALIGNED = {
    "the mask is aligned with the first key": lambda see, t, s, c: rolling(t - t[0], s, c),
    "the mask is aligned with the first key, without a window": lambda see, t, s, c: s <= t - t[0],
}
KEPT_OF_WINDOW = {
    "room is made in the cache before a call attends": left_of(lambda t, s, c: min(t[0], len(s) - c.window)),
    "a call attends to the last window alone": left_of(lambda t, s, c: len(s) - c.window),
    "two keys less than the window are kept": left_of(lambda t, s, c: t[0] - c.window + 2),
    "a call as long as the window sees no earlier key": left_of(lambda t, s, c: t[0] * (c.window <= c.T)),
}
BLIND = {"a call does not see its own keys": lambda see, t, s, c: see & (s < t[0])}
OF_FIRST = {
    "every token of a call has the window of the first": lambda see, t, s, c: (s <= t) & (t[0] - s < c.window)
}
NOT_GLOBAL = {"later calls find the keys of the window alone": left_of(lambda t, s, c: t[0] - c.window + 1)}
MASKS = (
    *rows(TOP, "see", ALIGNED, attends),
    *rows(CAUSAL, "see", BLIND, attends),
    *rows(WINDOW_LATE, "see", KEPT_OF_WINDOW, windowed),
    *rows("mask.window", "see", OF_FIRST, windowed),
    *rows("cache.global_dropped", "see", NOT_GLOBAL, has_global),
    *(row for row in WHO_SEES if row.change.keys() & {"see", "place", "inputs"}),
)
ALL_OF, LAST_KEY = slice(None), slice(-1, None)
in_every = lambda old, now: True
chunk_between = lambda old, now: a_chunk(now) or any(old.number < n for n in now.chunks)
WHICH_KEYS = {
    "keys": ALL_OF,
    "the last key": LAST_KEY,
    "the first key": slice(1),
    "all but the first key": slice(1, None),
    "all but the last key": slice(-1),
}
WHOSE_KEYS = {  # lost(call of the key, this call)
    "of each call": in_every,
    "of the first call": lambda old, now: not old.later,
    "of later calls": lambda old, now: old.later,
    "of calls of one token": lambda old, now: one_token(old),
    "of later calls of several tokens": lambda old, now: a_chunk(old),
    "of calls of several tokens": lambda old, now: old.T > 1,
    "of the call before": lambda old, now: old.number == now.number - 1,
    "of calls before the last": lambda old, now: old.number < now.number - 1,
}
LOST_KEYS = (  # words, lost(call of the key, this call), which of the call's
    ("a call sees its own keys alone: the cache is not read", in_every, ALL_OF),
    ("a chunk sees its own keys alone", lambda old, now: a_chunk(now), ALL_OF),
    ("a single token sees itself alone", lambda old, now: one_token(now), ALL_OF),
    ("a chunk takes the place of all that was cached", chunk_between, ALL_OF),
    *(
        (f"the cache has lost {which} {whose}", lost, rows)
        for whose, lost in WHOSE_KEYS.items()
        for which, rows in WHICH_KEYS.items()
        if (lost, rows) != (in_every, ALL_OF)
    ),
)


@family(attends, TRACES)
def of_masks(answer: Answer, case: Any) -> Iterator[Guess]:
    """Whom the tokens of a call see, and which keys are lost."""
    yield from in_calls(answer, partial(guesses, MASKS))
    yield from in_calls(answer, partial(guesses, (OPENED,)), (every_call, opening, *SOME))
    for words, lost, which in LOST_KEYS:
        sure = 1.0 if which == ALL_OF else NARROW
        yield guess(DROPPED, words, without_keys(lost, which), sure)
        for names, said in (("kv", "; 0 stands"), ("v", " (values alone); 0 stands")):
            yield guess(DROPPED, f"{words}{said} in their place", with_zeros(names, lost, which), sure)


STATES = (  # what calls get in place of the state: words, new(the state, the one before it, the call), calls
    ("is not read", lambda x, before, call: None, SOME),
    ("counts half", lambda x, before, call: x / 2, SOME),
    ("is not written back", not_written, KINDS),
    (AXES_EXCHANGED, lambda x, before, call: x.swapaxes(-1, -2).reshape(x.shape), SOME),
)


@family(lambda case: case.hook != "embed", TRACES)
def of_memory(answer: Answer, case: Any) -> Iterator[Guess]:
    """What the cache loses, and what it keeps of an earlier text."""
    yield guess(KEPT, "the cache is not cleared before a new text", not_cleared(False))
    yield guess(KEPT, "neither cache nor positions begin anew with a new text", not_cleared(True))
    states, features = kept_names(case, answer.a)
    tails = tuple(name for name in states if name not in SUMS)
    rest = tuple(name for name in states if name in SUMS)
    groups = [some for some in (tuple(states), tails, rest) if some]
    for some in dict.fromkeys([*groups, *((name,) for name in states)]):
        flag = "cache.tail_dropped" if set(some) <= set(tails) else DROPPED
        what = f"the state {', '.join(some)}"
        for words, new, kinds in STATES:
            named = "state.transposed" if words == AXES_EXCHANGED else flag
            yield from of_kinds(named, f"{what} {words}", partial(with_states, some, new=new), kinds)
        yield guess(KEPT, f"{what} of an earlier text is still there", with_old_states(some))
    if tails:
        words = "the last inputs that a call hands on are its own alone: a call of few tokens leaves zeros"
        yield guess("cache.tail_dropped", words, with_states(tails, every_call, alone))
    for some in dict.fromkeys([tuple(features), *((name,) for name in features)]) if features else ():
        words = f"{', '.join(name[2:] for name in some)} of cached tokens is lost"
        of_calls = lambda kind, some=some: with_zeros(some, lambda old, now: kind(old))
        yield from of_kinds("cache.features_dropped", words, of_calls)


@family(turned_at_all, TRACES)
def of_lengths(answer: Answer, case: Any) -> Iterator[Guess]:
    """For which length the frequencies of a call are made, and how often cached keys are turned."""
    known = answer.entry.vectors.words["flags"]
    flag = lambda *ends: next((one for end in ends for one in known if one.endswith(end)), ends[-1])
    mixed, fixed = flag("cache_mixed_bases", "cache_mixed"), flag("static_as_dynamic", "longrope.switch")
    grown = flag("long_then_short", KEPT)
    first = lambda case, c: next(one for one in calls_of(case) if one.begin == c.begin)
    so_far = lambda case, c: (one for one in calls_of(case) if one.first <= c.first)
    length = lambda case, c: max(c.stop - c.begin, case.L)
    longest = lambda case, c: max(length(case, one) for one in so_far(case, c))
    for name, words, n in (
        (mixed, "that there is at each call", length),
        (mixed, "of all that came, earlier texts too, at each call", lambda case, c: max(c.stop, case.L)),
        (fixed, "of the first call", lambda case, c: max(first(case, c).T, case.L)),
        (fixed, "trained for, however long the text is", lambda case, c: case.L),
        (grown, "of the longest text so far", lambda case, c: max(one.n for one in so_far(case, c))),
        (grown, "of the longest text so far, which grows at each call", longest),
    ):
        yield guess(name, f"frequencies are made for the length {words}", with_turns(made_for(q=n, k=n)))
    for words, n in (
        ("the one trained for", lambda case, c: case.L),
        ("the one before their call", lambda case, c: max(c.first - c.begin, case.L)),
    ):
        words = f"queries are turned for the length that there is at each call, keys for {words}"
        yield guess(mixed, words, with_turns(made_for(q=length, k=n)))
    words = "cached keys are turned anew for the length of each call"
    yield guess(mixed, words, with_keys(lambda c, now: 1, True))
    for words, times in (
        ("cached keys are turned once more when they are read", lambda c, now: 2),
        ("cached keys are turned once more in every call", lambda c, now: now.number - c.number + 1),
        ("cached keys are turned once more in every later call of several tokens", again_in_chunks),
        ("cached keys are not turned", lambda c, now: 0),
    ):
        yield guess(ONE_OF_TWO, words, with_keys(times))
    for who, words in {"k": "keys are", "q": "queries are", "qk": "queries and keys are"}.items():
        sure = 0.95 if who == "qk" else 1.0  # position 0 gives the same
        still = partial(with_another_map, STILL, who)
        yield from of_kinds(ONE_OF_TWO, f"{words} not turned", still, sure=sure)


def again_in_chunks(old: Call, now: Call) -> int:
    """How often keys are turned that each later call of several tokens turns again."""
    return 1 + a_chunk(now) + sum(n > old.number for n in now.chunks)


def made_for(**lengths: Any) -> Any:
    """Frequencies of queries and of keys are made for the lengths q(case, call) and k(case, call)."""
    made = lambda name, c, case: {"n": lengths[name](case, c)}
    return lambda name, c, case: made(name, c, case) if made(name, c, case)["n"] != c.n else {}


@family(what=TRACES)
def of_settings(answer: Answer, case: Any) -> Iterator[Guess]:
    """An option has another value than the case says."""
    yield from in_calls(answer, partial(guesses, option_rows(answer, case)))


@family(what=TRACES)
def of_rows_below(answer: Answer, case: Any) -> Iterator[Guess]:
    """What the levels of single operations know: angles, gains, biases, rows, the softmax scale."""
    yield from in_calls(answer, partial(guesses, ROWS_BELOW))
    for flag, words, made in OTHER_MAPS if turned_at_all(case) else ():
        for whose, who in WHO:
            sure = 1.0 if who == "qk" else NARROW
            yield from of_kinds(flag, f"{words}{whose}", partial(with_another_map, made, who), KINDS, sure)


def of_operations(*families: Any) -> Any:
    """What guesses at operations change, in all calls or in those of a kind: a step of decoding is often
    written anew.
    """

    @family(what=TRACES)
    def asked(answer: Answer, case: Any) -> Iterator[Guess]:
        for make in families if "+" not in case.config.pe[0][0] else ():
            yield from in_calls(answer, make)

    return asked


def in_calls(answer: Answer, make: Any, kinds: Any = KINDS) -> Iterator[Guess]:
    """The guesses at operations that `make` yields, in all calls or in those of a kind."""
    for one in make(as_operation(answer, every_call)):
        so = lambda kind, one=one: on_trace(lambda case, calls, other: one.gives(as_operation(other, kind)))
        for found in of_kinds(one.trap.flag, one.trap.words, so, kinds, one.sure):
            yield replace(found, vague=one.vague or found.vague)


below = lambda row: row.change.keys() <= {*WRAPS, "scale", "parts"}
ROWS_BELOW = [*filter(below, (*OF_ANGLES, *BIASES, *ROWS_ADDED, *WHO_SEES))]
OTHER_MAPS = (("rope.layout.half", "channels pair up as in the other layout", Map("other")), *MAPS)


@family(lambda case: case.hook in ("bias", "score"), TRACES)
def of_terms(answer: Answer, case: Any) -> Iterator[Guess]:
    """What is added to the logits once there is a cache."""
    known = answer.entry.vectors.words["flags"]
    dropped = next((one for one in known if one.endswith("bias.dropped_on_decode")), "cache.bias_dropped")
    terms = {"nothing is added to the logits": lambda *terms: (None, None, None)}
    for part, what in enumerate(("term", "row", "column")):
        terms[f"the {what} is not added to the logits"] = partial(less, part)
    unbiased = Row(dropped, "there is no bias", {"table": lambda b: 0 * b})
    of_rows = partial(guesses, (unbiased, *rows(dropped, "terms", terms)))
    yield from in_calls(answer, of_rows, (not_first, *SOME))
    yield from of_kinds(dropped, "cached keys have no bias", cached_unbiased, (not_first, *SOME))


def cached_unbiased(kind: Any) -> Any:
    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        near = lambda call: lambda bias, be, p, d: bias(be, p, d) * (d < call.T)
        pick = lambda call, pe, *there: (around(pe, "bias", near(call)) if kind(call) else pe, *there)
        return replayed(case, answer.a, pick)

    return on_trace(make, lambda case: case.hook == "bias")


def less(part: int, *terms: Any) -> Any:
    return tuple(None if n == part else x for n, x in enumerate(terms))


SIMPLE = (of_positions, of_masks, of_memory, of_lengths, of_terms)
