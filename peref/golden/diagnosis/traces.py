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

from peref.encodings import get, options, settings
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.attention import GROUPINGS, WHO_SEES, in_block
from peref.golden.diagnosis.biases import BIASES, ROWS_ADDED
from peref.golden.diagnosis.engine import TRACES, WRAPS, family, with_changes
from peref.golden.diagnosis.options import FACTOR
from peref.golden.diagnosis.replays import (
    SUMS,
    Call,
    attends,
    calls_of,
    kept_names,
    not_written,
    on_trace,
    with_another_map,
    with_calls,
    with_encoding,
    with_features,
    with_heads,
    with_keys,
    with_lengths,
    with_mask,
    with_old_states,
    with_place,
    with_places,
    with_short_tails,
    with_states,
    with_zeros,
    without_keys,
)
from peref.golden.diagnosis.rotation import MAPS, OF_ANGLES, STILL, TWICE_TURNED, Map, turned_at_all
from peref.golden.spec.models import ModelCase
from peref.hooks import around
from peref.settings import other_choices

RESTARTS, LATE, RING = "cache.position_restarts", "position.off_by_one", "cache.ring_positions"
BIAS_LATE = "bias.off_by_one"
KEPT, DROPPED, LOST = "cache.not_cleared", "cache.state_dropped", "cache.keys_lost"
OFFSET, TURNED_AGAIN, OPEN = "cache.position_offset", "cache.keys_turned_again", "mask.chunk_open"

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
OF_ONE = 0.96  # and one of queries or keys alone
KINDS = (every_call, *SOME)
WHO = (("", "qk"), (", of queries alone", "q"), (", of keys alone", "k"))


def of_kinds(flag: str, words: str, make: Any, kinds: Any = KINDS, sure: float = 1.0) -> Iterator[Guess]:
    """The guess make(kind) for all calls, and for those of each kind."""
    for kind in kinds:
        worth = sure if kind is every_call else min(sure, NARROW)
        yield guess(flag, words + NAMED.get(kind, ""), make(kind), worth)


one_each = lambda i, far, c: i - far + (c.opening + c.number - 1) * c.later
WRONG_PLACES = (  # flag, words, place(positions of a call, its offset, the call)
    (RESTARTS, "every call counts its positions from the beginning", lambda i, far, c: i - far),
    (RESTARTS, "every call counts its positions from 0", lambda i, far, c: 0 * i + np.arange(c.T)),
    (OFFSET, "the offset of a call counts twice in its positions", lambda i, far, c: i + far),
    (LATE, "positions are one too large once there is a cache", lambda i, far, c: i + c.later),
    (LATE, "positions are one too small once there is a cache", lambda i, far, c: i - c.later),
    (OFFSET, "a call's own tokens count in its offset", lambda i, far, c: i + c.T),
    (
        OFFSET,
        "a call's own tokens count in its offset once there is a cache",
        lambda i, far, c: i + c.T * c.later,
    ),
    (OFFSET, "the offset grows by one with each call, however many tokens it has", one_each),
    (OFFSET, "the offset of a call is the length of the one before", lambda i, far, c: i - far + c.previous),
    (OFFSET, "the offset of a call is the number of calls before it", lambda i, far, c: i - far + c.number),
    (RESTARTS, "every token of a call has the position of its first", lambda i, far, c: 0 * i + i[..., :1]),
    (
        "position.counted",
        "positions are counted in the cache, whatever is given",
        lambda i, far, c: 0 * i + np.arange(c.first - c.begin, c.stop - c.begin),
    ),
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
            yield guess(RING, words, with_places(partial(rung, more), who, every_call))
    for more in (0, 1) if window else ():
        words = f"the position is the number of keys in a cache of {window - more}"
        yield guess(RING, words, with_places(partial(full, -more), "qk", every_call))


def rung(more: int, i: Any, far: Any, call: Call) -> Any:
    """The place in a ring."""
    return i if call.window is None else i % (call.window + more)


def full(more: int, i: Any, far: Any, call: Call) -> Any:
    """How many keys there are before a token in a cache that holds no more than the window."""
    return i if call.window is None else i - np.maximum(far - call.window - more, 0)


def chunk_between(old: Call, now: Call) -> bool:
    """Whether a later call of several tokens came after the old one."""
    return a_chunk(now) or any(old.number < n for n in now.chunks)


TOP, WINDOW_LATE = "mask.top_left", "cache.window_late"
rolling = lambda t, s, c: (s <= t) & (t - s < (c.window or np.inf))
left_of = lambda first: lambda see, t, s, c: see & (s >= first(t, s, c))
MASKS = {  # (flag, words): see(what is seen, slot of the query, of the key, call)
    (TOP, "the mask is aligned with the first key"): lambda see, t, s, c: rolling(t - t[0], s, c),
    (TOP, "the mask is aligned with the first key, without a window"): lambda see, t, s, c: s <= t - t[0],
    ("mask.causal", "a token sees the one after it"): lambda see, t, s, c: rolling(t + 1, s, c),
    ("mask.causal", "a token does not see itself"): lambda see, t, s, c: see & (s != t),
    ("mask.causal", "a call does not see its own keys"): lambda see, t, s, c: see & (s < t[0]),
}
first_window = lambda see, t, s, c: (s <= t) & (t[0] - s < c.window)
WINDOWS = {  # the same, of a window
    (WINDOW_LATE, "room is made in the cache before a call attends"): left_of(
        lambda t, s, c: min(t[0], len(s) - c.window)
    ),
    (WINDOW_LATE, "a call attends to the last window alone"): left_of(lambda t, s, c: len(s) - c.window),
    (WINDOW_LATE, "two keys less than the window are kept"): left_of(lambda t, s, c: t[0] - c.window + 2),
    (WINDOW_LATE, "a call as long as the window sees no earlier key"): left_of(
        lambda t, s, c: t[0] if c.window <= c.T else 0
    ),
    ("mask.window", "every token of a call has the window of the first"): first_window,
    ("mask.window", "the window is a block: it does not roll"): in_block,
}
ALL_OF, LAST_KEY = slice(None), slice(-1, None)
in_every = lambda old, now: True
IGNORED = "cache.ignored"
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
LOST_KEYS = (  # flag, words, lost(call of the key, this call), which of the call's
    (IGNORED, "a call sees its own keys alone: the cache is not read", in_every, ALL_OF),
    (IGNORED, "a chunk sees its own keys alone", lambda old, now: a_chunk(now), ALL_OF),
    (IGNORED, "a single token sees itself alone", lambda old, now: one_token(now), ALL_OF),
    (LOST, "a chunk takes the place of all that was cached", chunk_between, ALL_OF),
    *(
        (LOST, f"the cache has lost {which} {whose}", lost, rows)
        for whose, lost in WHOSE_KEYS.items()
        for which, rows in WHICH_KEYS.items()
        if (lost, rows) != (in_every, ALL_OF)
    ),
)


@family(attends, TRACES)
def of_masks(answer: Answer, case: Any) -> Iterator[Guess]:
    """Whom the tokens of a call see, and which keys are lost."""
    for only, table in ((attends, MASKS), (windowed, WINDOWS if case.window else {})):
        for (flag, words), see in table.items():
            yield from of_kinds(flag, words, partial(with_place, with_mask(see), only=only))
    open_ = partial(with_place, lambda at, call: replace(at, causal=False))
    yield guess("mask.causal", "there is no causal mask", open_(every_call))
    yield from of_kinds(OPEN, "there is no causal mask", open_, (opening, *SOME))
    if case.window:
        none = partial(with_place, lambda at, call: replace(at, window=None), only=windowed)
        yield from of_kinds("mask.window", "your window is not there", none)
    for more in (1, -1, 2) if case.window else ():
        wide = lambda at, call, more=more: replace(at, window=max(at.window + more, 1))
        words = f"your window is {case.window + more}, this case has {case.window}"
        yield from of_kinds("mask.window", words, partial(with_place, wide, only=windowed))
    if has_global(case):
        near = with_mask(lambda see, t, s, c: see & (s > t[0] - c.window))
        words = "later calls find the keys of the window alone"
        yield guess("cache.global_dropped", words, with_place(near, later, has_global))
    for flag, words, lost, which in LOST_KEYS:
        sure = 1.0 if which == ALL_OF else NARROW
        yield guess(flag, words, without_keys(lost, which), sure)
        yield guess(flag, f"{words}; 0 stands in their place", with_zeros("kv", lost, which), sure)
        said = f"{words} (values alone, 0 stands in their place)"
        yield guess(flag, said, with_zeros("v", lost, which), sure)


has_global = lambda case: attends(case) and case.layer.global_tokens


def windowed(case: ModelCase) -> bool:
    return attends(case) and case.window is not None


axes_exchanged = lambda x, before: x.swapaxes(-1, -2).reshape(x.shape)


@family(lambda case: case.hook != "embed", TRACES)
def of_memory(answer: Answer, case: Any) -> Iterator[Guess]:
    """What the cache loses, and what it keeps of an earlier text."""
    once = lambda case, c, fresh: (c.first == 0, c.n)
    yield guess(KEPT, "the cache is not cleared before a new text", with_calls(once))
    yield guess(
        KEPT,
        "neither cache nor positions begin anew with a new text",
        with_calls(once, lambda case: np.broadcast_to(np.arange(case.T), case.at.i.shape)),
    )
    states, features = kept_names(case, answer.a)
    tails = tuple(name for name in states if name not in SUMS)
    rest = tuple(name for name in states if name in SUMS)
    groups = [some for some in (tuple(states), tails, rest) if some]
    for some in dict.fromkeys([*groups, *((name,) for name in states)]):
        flag = "cache.tail_dropped" if set(some) <= set(tails) else DROPPED
        what = f"the state {', '.join(some)}"
        of_state = partial(with_states, some)
        yield from of_kinds(flag, f"{what} is not read", partial(of_state, new=lambda x, before: None), SOME)
        yield from of_kinds(flag, f"{what} counts half", partial(of_state, new=lambda x, before: x / 2), SOME)
        yield from of_kinds(flag, f"{what} is not written back", partial(of_state, new=not_written))
        words = f"{what} has its last two axes exchanged"
        yield from of_kinds("state.axes_exchanged", words, partial(of_state, new=axes_exchanged), SOME)
        yield guess(KEPT, f"{what} of an earlier text is still there", with_old_states(some))
    if tails:
        words = "the last inputs that a call hands on are its own alone: a call of few tokens leaves zeros"
        yield guess("cache.tail_dropped", words, on_trace(with_short_tails))
    for some in dict.fromkeys([tuple(features), *((name,) for name in features)]) if features else ():
        words = f"{', '.join(some)} of cached tokens is lost"
        yield from of_kinds("cache.features_dropped", words, partial(with_features, some))


@family(turned_at_all, TRACES)
def of_lengths(answer: Answer, case: Any) -> Iterator[Guess]:
    """For which length the frequencies of a call are made, and how often cached keys are turned."""
    known = answer.entry.vectors.words["flags"]
    flag = lambda *ends: next((one for end in ends for one in known if one.endswith(end)), ends[-1])
    mixed, fixed = flag("cache_mixed_bases", "cache_mixed"), flag("static_as_dynamic", "longrope.switch")
    first = lambda case, c: next(one for one in calls_of(case) if one.begin == c.begin)
    length = lambda case, c: max(c.stop - c.begin, case.L)
    for name, words, n in (
        (mixed, "that there is at each call", length),
        (mixed, "of all that came, earlier texts too, at each call", lambda case, c: max(c.stop, case.L)),
        (fixed, "of the first call", lambda case, c: max(first(case, c).T, case.L)),
        (fixed, "trained for, however long the text is", lambda case, c: case.L),
        (
            flag("long_then_short", KEPT),
            "of the longest text so far",
            lambda case, c: max(one.n for one in calls_of(case) if one.first <= c.first),
        ),
        (
            flag("long_then_short", KEPT),
            "of the longest text so far, which grows at each call",
            lambda case, c: max(length(case, one) for one in calls_of(case) if one.first <= c.first),
        ),
    ):
        words = f"frequencies are made for the length {words}"
        yield guess(name, words, with_calls(partial(at_length, n)))
    for words, n in (
        ("the one trained for", lambda case, c: case.L),
        ("the one before their call", lambda case, c: max(c.first - c.begin, case.L)),
    ):
        words = f"queries are turned for the length that there is at each call, keys for {words}"
        yield guess(mixed, words, with_lengths(q=length, k=n))
    yield guess(
        mixed, "cached keys are turned anew for the length of each call", with_keys(lambda c, now: 1, True)
    )
    for words, times in (
        ("cached keys are turned once more when they are read", lambda c, now: 2),
        ("cached keys are turned once more in every call", lambda c, now: now.number - c.number + 1),
        ("cached keys are turned once more in every later call of several tokens", again_in_chunks),
        ("cached keys are not turned", lambda c, now: 0),
    ):
        yield guess(
            "rope.one_of_two" if words.endswith("not turned") else TURNED_AGAIN, words, with_keys(times)
        )
    whose = {"k": "keys are not", "q": "queries are not", "qk": "queries and keys are not"}
    for who, words in whose.items():
        for made, said in ((STILL, words), (TWICE_TURNED, f"{words.replace(' not', '')} twice")):
            sure = 0.95 if who == "qk" else 1.0  # position 0 gives the same
            other = partial(with_another_map, made, who)
            yield from of_kinds("rope.one_of_two", f"{said} turned", other, sure=sure)


def again_in_chunks(old: Call, now: Call) -> int:
    """How often keys are turned that each later call of several tokens turns again."""
    return 1 + a_chunk(now) + sum(n > old.number for n in now.chunks)


def at_length(n: Any, case: ModelCase, call: Call, fresh: bool) -> tuple[bool, int]:
    return fresh, n(case, call)


@family(what=TRACES)
def of_settings(answer: Answer, case: Any) -> Iterator[Guess]:
    """An option has another value than the case says."""
    for name, (default, kind) in options(get(case.encoding)).items():
        given, flag = case.config.pe[0][1][name], flag_of(answer, "options", name)
        for value in {*other_choices(default, kind), default} - {given} if is_plain(given) else ():
            words = f"the option {name} seems to be {value}"
            with_value = partial(encoding_with, answer, name, lambda x, value=value: value)
            yield from of_kinds(flag, words, partial(with_encoding, with_value))
        for words, (named, change) in FACTOR.items() if name == "factor" else ():
            with_value = partial(encoding_with, answer, name, change)
            yield from of_kinds(named or flag, words, partial(with_encoding, with_value))


def encoding_with(answer: Answer, name: str, change: Any, pe: Any, case: Any, call: Call) -> Any:
    """The encoding with another option. Raises ValueError where it then has other parameters."""
    other = replace(case, options={**case.options, name: change(case.config.pe[0][1][name])})
    if not answer.has_parameters_of(other):
        raise ValueError(f"{name} decides which parameters there are")
    return other.config.encoding(0)


@family(what=TRACES)
def of_rows_below(answer: Answer, case: Any) -> Iterator[Guess]:
    """What the levels of single operations know: angles, gains, biases, rows, the softmax scale."""
    for row in ROWS_BELOW:
        hooks = {WRAPS[kind][0] for kind in row.change if kind in WRAPS} or (
            {case.hook} if attends(case) else set()
        )
        if hooks == {case.hook} and row.when(case) and (flag := row.flag_for(answer)):
            change = lambda pe, case, call, row=row: with_changes(pe, row.change, case)
            yield from of_kinds(
                flag, row.words.format(case=case), partial(with_encoding, change), KINDS, row.sure
            )
    for flag, words, made in OTHER_MAPS if turned_at_all(case) else ():
        for whose, who in WHO:
            sure = 1.0 if who == "qk" else NARROW
            yield from of_kinds(flag, f"{words}{whose}", partial(with_another_map, made, who), KINDS, sure)


ROWS_BELOW = [
    row for row in (*OF_ANGLES, *BIASES, *ROWS_ADDED, *WHO_SEES) if row.change.keys() <= {*WRAPS, "scale"}
]
OTHER_MAPS = (("rope.layout.half", "channels pair up as in the other layout", Map("other")), *MAPS)


def is_plain(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)


@family(lambda case: case.hook in ("bias", "score"), TRACES)
def of_terms(answer: Answer, case: Any) -> Iterator[Guess]:
    """What is added to the logits once there is a cache."""
    known = answer.entry.vectors.words["flags"]
    dropped = next((one for one in known if one.endswith("bias.dropped_on_decode")), "cache.bias_dropped")
    nothing = lambda call, bias, be, p, d: 0 * bias(be, p, d)
    short = lambda call, bias, be, p, d: bias(be, p, d) * (d < call.T)
    no_terms = lambda call, score, *given: (None, None, None)
    others = {
        "there is no bias": ("bias", nothing),
        "cached keys have no bias": ("bias", short),
        "nothing is added to the logits": ("score", no_terms),
    }
    for part, what in enumerate(("term", "row", "column")):
        others[f"the {what} is not added to the logits"] = "score", partial(less, part)
    for words, other in others.items():
        yield from of_kinds(dropped, words, partial(with_hook, *other), (not_first, *SOME))


def less(part: int, call: Call, score: Any, *given: Any) -> Any:
    return tuple(None if n == part else x for n, x in enumerate(score(*given)))


def with_hook(hook: str, change: Any, kind: Any) -> Any:
    """A hook does something else in calls of a kind: change(call, hook, *what it is given)."""
    other = lambda pe, case, call: around(pe, hook, partial(change, call))
    return with_encoding(other, kind, lambda case: case.hook == hook)


@family(lambda case: attends(case) and "G" not in settings(get(case.encoding).init), TRACES)
def of_key_heads(answer: Answer, case: Any) -> Iterator[Guess]:
    """Which key-value head a query head reads."""
    for words, order in GROUPINGS.items():
        yield from of_kinds("gqa.order", words, partial(with_heads, order))


SIMPLE = (of_positions, of_masks, of_memory, of_lengths, of_terms, of_key_heads)
