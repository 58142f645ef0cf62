"""Wrong programs that decode through a cache: each bug is named by its flag first, right ones never.

The programs here have a cache of their own and none of the replay's parts: a decoder of attention with one
method for each thing that can go wrong, and layers whose states are tampered with between calls.
"""

from dataclasses import replace

import level_mutants
import numpy as np
import pytest
from making.catalogue import core
from recipes.wholes import traces

from peref.encodings import claims_of, get, names
from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.ranking import weighed
from peref.golden.spec.cases import rebuilt
from peref.golden.spec.files import Tensor
from peref.hooks import distance_table, mixed, rotation, softmax_scale, with_position
from peref.model import PLAIN

ROTATE = [name for name in names() if get(name).hook == "rotate"][:2]
BIAS = [name for name in names() if get(name).hook == "bias" and "any_length" in claims_of(get(name))][:2]
MIX = [name for name in names() if get(name).hook == "mix"][:2]


class Decoder:
    """Attention through a cache, from the tables of the encoding; a bug is another method."""

    def __init__(self, case, a):
        self.case, self.a, self.pe = case, a, case.config.encoding(0)
        self.p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}

    def rows(self):
        out, self.first_of_text = [], 0
        for first, stop, fresh, n in self.case.calls:
            if fresh:
                self.begin(first)
            self.first, self.stop, self.n = first, stop, self.length(n)
            q, k, v = (self.a[name][:, :, first:stop] for name in "qkv")
            i = self.positions(self.case.at.i[..., first:stop])
            q, k = self.turned(q, i, 0), self.turned(k, self.key_positions(i), 1)
            keys, values = self.joined("k", k, 2), self.joined("v", v, 2)
            j = self.joined("j", self.key_positions(i), -1)
            out.append(self.attention(q, keys, values, i, j))
            self.kept = self.keep({"k": keys, "v": values, "j": j})
        return {"out": np.concatenate(out, 2)}

    def begin(self, first):
        self.kept, self.first_of_text = {}, first

    def length(self, n):
        return n

    def positions(self, i):
        return i

    def key_positions(self, i):
        return i

    def keep(self, cache):
        return cache

    def joined(self, name, x, axis):
        old = self.kept.get(name)
        return x if old is None else np.concatenate([old, x], axis)

    def turned(self, x, i, which):
        if self.pe.rotate is None:
            return x
        angle, *gains = rotation(self.pe, self.p, i, self.n)
        return np.asarray(PLAIN.turn(x, angle, gains[which], layout=self.layout))

    @property
    def layout(self):
        return self.case.layout

    def scale(self, D):
        return softmax_scale(self.pe, D)

    def seen(self, T, S):
        t, s = np.arange(S - T, S)[:, None], np.arange(S)
        return (s <= t) & (t - s < (self.case.window or S))

    def bias(self, i, j):
        if self.pe.bias is None:
            return 0
        d, index = np.unique(i[:, None] - j, return_inverse=True)
        table = np.asarray(distance_table(PLAIN, self.pe, self.p, d))
        return table[:, index.reshape(len(i), len(j))]

    def attention(self, q, k, v, i, j):
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
        s = q @ k.swapaxes(2, 3) * self.scale(q.shape[-1]) + self.bias(i, j)
        s = np.where(self.seen(q.shape[2], k.shape[2]), s, -np.inf)
        w = np.exp(s - s.max(-1, keepdims=True))
        return w / w.sum(-1, keepdims=True) @ v

    @property
    def cached(self):
        return self.first > self.first_of_text


class Restarts(Decoder):
    def positions(self, i):
        return i - self.first + self.first_of_text


class QueriesRestart(Restarts):
    def key_positions(self, i):
        return self.case.at.i[..., self.first : self.stop]


class Doubled(Decoder):
    def positions(self, i):
        return i + self.first - self.first_of_text


class Late(Decoder):
    def positions(self, i):
        return i + self.cached


class QueriesLate(Late):
    """A softmax does not see it where the bias is a straight line."""

    def key_positions(self, i):
        return self.case.at.i[..., self.first : self.stop]


class Early(Decoder):
    def positions(self, i):
        return i - self.cached


class Ring(Decoder):
    def positions(self, i):
        return i % self.case.window if self.case.window else i


class GoesOn(Decoder):
    def positions(self, i):
        return i + self.first_of_text


class NotCleared(Decoder):
    def begin(self, first):
        self.kept = self.kept if first else {}


class TopLeft(Decoder):
    def seen(self, T, S):
        return np.arange(T)[:, None] >= np.arange(S)


class NoMask(Decoder):
    def seen(self, T, S):
        t, s = np.arange(S - T, S)[:, None], np.arange(S)
        return (t - s < (self.case.window or S)) & (s - t < (self.case.window or S))


class WiderWindow(Decoder):
    def seen(self, T, S):
        t, s = np.arange(S - T, S)[:, None], np.arange(S)
        return (s <= t) & (t - s <= (self.case.window or S))


class DropsFirst(Decoder):
    """The cache is cut to what the window leaves beside a chunk, before that attends."""

    def seen(self, T, S):
        return super().seen(T, S) & (np.arange(S) >= S - max(self.case.window or S, T))


class Ignored(Decoder):
    def joined(self, name, x, axis):
        return x


class OneTokenLost(Decoder):
    """What a call of one token brings is not written to the cache."""

    def keep(self, cache):
        return self.kept if self.stop - self.first == 1 and self.kept else cache


class KeysRaw(Decoder):
    """Keys are cached before they are turned, and read so."""

    def turned(self, x, i, which):
        if which == 1:
            self.raw = x
        return super().turned(x, i, which)

    def keep(self, cache):
        k = np.array(cache["k"])
        k[:, :, -self.raw.shape[2] :] = self.raw
        return cache | {"k": k}


class KeysTwice(Decoder):
    """Keys that come out of the cache are turned again in every call."""

    def joined(self, name, x, axis):
        if name == "k" and self.kept:
            self.kept["k"] = self.turned(self.kept["k"], self.kept["j"], 1)
        return super().joined(name, x, axis)


class KeysOfTraining(Decoder):
    """Queries have the frequencies of the length there is, keys those of the length trained for."""

    def turned(self, x, i, which):
        now, self.n = self.n, max(self.stop - self.first_of_text, self.case.L) if which == 0 else self.case.L
        try:
            return super().turned(x, i, which)
        finally:
            self.n = now


class NoBias(Decoder):
    def bias(self, i, j):
        return 0 * super().bias(i, j) if self.cached else super().bias(i, j)


class OneRow(Decoder):
    """All rows of a chunk have the bias of its first."""

    def bias(self, i, j):
        return super().bias(np.full_like(i, i[0]), j)


class Counted(Decoder):
    """Positions are counted in the cache, whatever was given."""

    def positions(self, i):
        return np.broadcast_to(np.arange(self.first, self.stop) - self.first_of_text, i.shape)


class OneTokenOtherLayout(Decoder):
    """The kernel for one token pairs channels as the other layout does."""

    @property
    def layout(self):
        other = {"half": "interleaved", "interleaved": "half"}[self.case.layout]
        return other if self.cached and self.stop - self.first == 1 else self.case.layout


class CachedUnscaled(Decoder):
    def scale(self, D):
        return 1.0 if self.cached else super().scale(D)


class CachedHeadsReversed(Decoder):
    def bias(self, i, j):
        return super().bias(i, j)[::-1] if self.cached else super().bias(i, j)


class CachedBucketsTwoSided(Decoder):
    """The table of a model that looks both ways is read once there is a cache."""

    def bias(self, i, j):
        right = self.pe
        self.pe = replace(self.case, causal=False).config.encoding(0) if self.cached else right
        try:
            return super().bias(i, j)
        finally:
            self.pe = right


class LastOfChunkLost(Decoder):
    """Of a later call of several tokens the last key is not written to the cache."""

    def keep(self, cache):
        short = self.cached and self.stop - self.first > 1
        return {n: x[..., :-1] if n == "j" else x[:, :, :-1] for n, x in cache.items()} if short else cache


ANY_HOOK = [
    (Restarts, "cache.position_restarts"),
    (QueriesRestart, "cache.position_restarts"),
    (Ring, "cache.ring_positions"),
    (NotCleared, "cache.not_cleared"),
    (TopLeft, "mask.top_left"),
    (WiderWindow, "mask.window"),
    (DropsFirst, "cache.window_late"),
    (Ignored, "cache.state_dropped"),
    (OneTokenLost, "cache.state_dropped"),
    (CachedUnscaled, "attn.scale"),
]
OF_ROTATIONS = [
    (NoMask, "mask.causal"),
    (Late, "position.off_by_one"),
    (Early, "position.off_by_one"),
    (Doubled, "cache.position_restarts"),
    (KeysRaw, "rope.one_of_two"),
    (KeysTwice, "rope.one_of_two"),
    (Counted, "position.counted"),
    (OneTokenOtherLayout, "rope.layout.half"),
    (LastOfChunkLost, "cache.state_dropped"),
]
OF_BIASES = [(OneRow, "cache.position_restarts"), (CachedHeadsReversed, "bias.heads")]


def in_turn(encodings, bugs):
    """Each bug in one encoding of a hook, the next in the next; in all where no trace carries its flag, of
    which `test_each_flag_of_the_traces` asks nothing.
    """
    carried = {flag for case in traces() for flag in case.flags}
    some = lambda n, flag: [encodings[n % len(encodings)]] if flag in carried else encodings
    return [(name, *bug) for n, bug in enumerate(bugs) for name in some(n, bug[1])]


def of_no_bias(name):
    """The flag for a bias that is dropped, which an encoding may have of its own."""
    own = {flag for case in traces() if case.encoding == name for flag in case.flags}
    return next(flag for flag in own if "bias" in flag and "dropped" in flag)


def answers(book, encoding, program):
    """What comes from a program for the traces of an encoding."""
    found = []
    for entry in book.entries.values():
        if entry.words["encoding"] == encoding and entry.words["level"] == "trace":
            a = entry.inputs()
            given = program(rebuilt(entry.words, a), a)
            found.append(
                Answer(entry, {n: Tensor("F32", np.asarray(x).astype(np.float32)) for n, x in given.items()})
            )
    assert found
    return found


def named(answer):
    return [(one.trap.flag, one.trap.words) for one in weighed(answer)]


@pytest.mark.parametrize("encoding", [*ROTATE, *BIAS])
def test_the_right_decoder_is_never_accused(book, encoding):
    answer = answers(book, encoding, lambda case, a: Decoder(case, a).rows())
    assert not any(one.wrong for one in answer)
    assert named(answer) == []


@pytest.mark.parametrize(
    ("encoding", "program", "flag"),
    [
        *in_turn(ROTATE, ANY_HOOK + OF_ROTATIONS),
        *in_turn(BIAS, ANY_HOOK + OF_BIASES),
        *((name, NoBias, of_no_bias(name)) for name in BIAS),
        *((name, QueriesLate, "bias.off_by_one") for name in BIAS if name != "alibi"),
        *((name, Late, "position.off_by_one") for name in BIAS if name != "alibi"),
        ("t5", CachedBucketsTwoSided, "t5.bidirectional"),
        ("dynamic_ntk", KeysOfTraining, "rope.ntk.cache_mixed_bases"),
        ("longrope", KeysOfTraining, "rope.longrope.cache_mixed"),
    ],
)
def test_a_wrong_decoder(book, encoding, program, flag):
    answer = answers(book, encoding, lambda case, a: program(case, a).rows())
    assert any(one.wrong for one in answer)
    assert named(answer)[0][0] == flag, named(answer)


def layer(case, a, tamper):
    """A layer in place of attention, fed in calls; tamper(state before, state after, fresh, T) -> the state
    that the next call gets, {} before the first.
    """
    pe = case.config.encoding(0)
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
    rows, state = [], {}
    for first, stop, fresh, _ in case.calls:
        state = tamper(state, fresh)
        at = case.at.__class__(case.at.i[first:stop], case.at.i[first:stop], case.n)
        y, after = mixed(PLAIN, pe, p, a["x"][:, first:stop], at, {"state": state})
        rows.append(y)
        state = after["state"]
    return {"y": np.concatenate(rows, 1)}


TAILS = ("x", "tail")
clean = lambda state, fresh: {} if fresh else state
forgets = lambda state, fresh: {}
keeps = lambda state, fresh: state
loses_tails = lambda state, fresh: {} if fresh else {n: x for n, x in state.items() if n not in TAILS}
loses_rest = lambda state, fresh: {} if fresh else {n: x for n, x in state.items() if n in TAILS}
keeps_tails = lambda state, fresh: {n: x for n, x in state.items() if not fresh or n in TAILS}


@pytest.mark.parametrize("encoding", MIX)
def test_a_right_layer_is_never_accused(book, encoding):
    answer = answers(book, encoding, lambda case, a: layer(case, a, clean))
    assert not any(one.wrong for one in answer)
    assert named(answer) == []


@pytest.mark.parametrize("encoding", MIX)
@pytest.mark.parametrize(("tamper", "flag"), [(forgets, "cache.state_dropped"), (keeps, "cache.not_cleared")])
def test_a_layer_that_forgets_or_keeps(book, encoding, tamper, flag):
    assert named(answers(book, encoding, lambda case, a: layer(case, a, tamper)))[0][0] == flag


def with_tails(book):
    """Encodings whose traces are there to catch lost tails of a recurrence."""
    return [
        entry.words["encoding"]
        for entry in book.entries.values()
        if {"cache.tail_dropped", "cache.state_dropped"} <= set(entry.words["flags"])
    ]


@pytest.mark.parametrize(
    ("tamper", "flag"),
    [
        (loses_tails, "cache.tail_dropped"),
        (loses_rest, "cache.state_dropped"),
        (keeps_tails, "cache.not_cleared"),
    ],
)
def test_a_layer_that_loses_one_of_its_states(book, tamper, flag):
    for encoding in with_tails(book)[:2]:
        found = named(answers(book, encoding, lambda case, a: layer(case, a, tamper)))
        assert found[0][0] == flag, (encoding, found)


@pytest.mark.parametrize(
    ("encoding", "parameter", "flag"), [("mamba", "D", "mix.skip"), ("rwkv4", "bonus", "rwkv.bonus")]
)
def test_a_step_of_a_layer_without_a_parameter(book, encoding, parameter, flag):
    """The step of one token is written anew, and leaves it out."""

    def wrong(case, a):
        pe = case.config.encoding(0)
        p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
        rows, old = [], {}
        for first, stop, fresh, _ in case.calls:
            old = {} if fresh else old
            less = {parameter: 0 * p[parameter]} if old and stop - first == 1 else {}
            at = case.at.__class__(case.at.i[first:stop], case.at.i[first:stop], case.n)
            y, old = mixed(PLAIN, pe, p | less, a["x"][:, first:stop], at, old)
            rows.append(y)
        return {"y": np.concatenate(rows, 1)}

    first = named(answers(book, encoding, wrong))[0]
    assert first[0] == flag
    assert first[1].endswith("in later calls of one token")


def test_an_embedding_that_counts_calls_from_0(book):
    def wrong(case, a):
        pe = case.config.encoding(0)
        p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}
        rows = [
            with_position(pe, p, a["x"][:, first:stop], np.arange(stop - first))
            for first, stop, _, _ in case.calls
        ]
        return {"y": np.concatenate(rows, 1)}

    for encoding in [name for name in names() if get(name).hook == "embed"]:
        assert named(answers(book, encoding, wrong))[0][0] == "cache.position_restarts"


def flags_of_traces():
    """(flag, encoding): of each flag that traces of the core are there to catch, two encodings."""
    found = {}
    for case in core():
        for flag in case.flags if case.level == "trace" else ():
            found.setdefault(flag, {})[case.encoding] = None
    return [(flag, name) for flag, some in found.items() for name in list(some)[:2]]


FORMS = {  # what cases are there to catch, of which trap it is a form
    "cache.position_offset": "cache.position_restarts",
    "cache.ignored": "cache.state_dropped",
    "cache.keys_lost": "cache.state_dropped",
    "cache.keys_turned_again": "rope.one_of_two",
    "mask.chunk_open": "mask.causal",
}


@pytest.mark.parametrize(("flag", "encoding"), flags_of_traces())
def test_each_flag_of_the_traces(book, flag, encoding):
    """The bugs that the levels above one operation are tried with; where one cannot be had, what is right."""

    def program(case, a):
        try:
            return (level_mutants.MUTANTS | level_mutants.LEFT)[flag](case, a)
        except TypeError:  # a window where there is none
            return expected(case, a)

    found = named(answers(book, encoding, program))
    assert found[0][0] == FORMS.get(flag, flag), found


@pytest.mark.parametrize("encoding", ["mamba", "retnet"])
def test_of_states_that_are_no_numbers_nothing_is_guessed(book, encoding):
    """Any formula that gives NaN there would fit; where the first came is said. The same of infinities."""
    tamper = lambda state, fresh: {n: x * np.nan for n, x in clean(state, fresh).items()}
    entry = book.entries["alibi.op/default"]
    bias = np.where(np.arange(5) < 4, entry.want("bias"), -np.inf)
    for answer, words, where in (
        (answers(book, encoding, lambda case, a: layer(case, a, tamper)), "NaN", "y[0, 4, 0] of"),
        ([Answer(entry, {"bias": Tensor("F64", bias)})], "infinities", "bias[0, 0, 4] of alibi.op/default"),
        ([Answer(entry, {"bias": Tensor("F64", bias * np.nan)})], "NaN", "bias[0, 0, 0] of alibi.op/default"),
    ):
        (one,) = weighed(answer)
        rest = ", and all that is finite is right" if "0, 0, 0" not in where else ""
        assert (one.trap.flag, one.trap.words) == ("", f"{words} came{rest}")
        assert one.trap.evidence.startswith(f"first at {where}")
