"""A training step recorded as one graph: the bits of the step run as it is, and no request but copies of
its input and one launch.
"""

import sys
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import fake_cublas
import fake_cupy
import fake_device
import numpy as np
import pytest
from check import Differs, same
from emulated.twins import emulated
from test_train import CORPUS, SMALL, parts, tiny, zeros

from peref.backends import Backend, call
from peref.backends.cuda import graph, open_device, place
from peref.backends.cuda.arena import Arena, Layout, Measure
from peref.backends.cuda.branch import PIECES_BESIDE
from peref.backends.cuda.cublas import Cublas
from peref.backends.cuda.products import products
from peref.data import batch
from peref.encodings import names
from peref.errors import Misuse, PerefError
from peref.model import init
from peref.ops.activation import gelu, swiglu
from peref.ops.attention import attention
from peref.optim import read_status
from peref.train import one_step, stepped


def steps(
    cp,
    name,
    count,
    record,
    make=lambda cp: open_device(cp, fake_cublas.Library()),
    numbers=lambda step: (0.01, step, 1.0),
    batches=lambda step: parts(1),
    **given,
):
    """p, m, v and the status after some steps, and what each step asked of the device."""
    be = make(cp)
    be = be if record else replace(be, step=call)
    cfg = replace(tiny(name), **given)
    host = init(cfg)
    p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))
    asked = []
    for step in range(1, count + 1):
        before = fake_cupy.counts()
        be.step(one_step, be, cfg, SMALL.rule, p, m, v, batches(step), np.array(numbers(step)), status)
        asked.append(
            {key: n - before.get(key, 0) for key, n in fake_cupy.counts().items() if n != before.get(key, 0)}
        )
    return [{name: a.get() for name, a in kind.items()} for kind in (p, m, v)], status.get(), asked, be


def quick(cp, say=pytest.fail):
    """The backend with the plain text in place of the kernels, whose emulation takes time: the rest is
    recorded as it is.
    """
    multiply = Cublas(cp, fake_cublas.Library())
    made = products(multiply, gelu, swiglu)
    works = {"linear": made.linear, "matmul": made.matmul, "activated_linear": made.activated_linear}
    works["attention"] = partial(attention, matmul=made.matmul)
    works["place"] = lambda x: place(x, cp)
    return Backend("cuda", **works, step=graph.Steps(cp, multiply.branch, say))


def varied(step):
    return [(x + step) % 256 for x in parts(1)[0]][:2]


VARIED = {
    "numbers": lambda step: (0.01 * step, step, 0.3 * step),
    "batches": lambda step: [tuple(varied(step))],
}


ENCODINGS = ("rope", "t5", "retnet", "mamba", "s4d", "rwkv4", "rwkv6", "rwkv7")
NARROW = ("cuda:tf32", "cuda:bf16")


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "cuda") for name in ENCODINGS), *(("rope", kind) for kind in NARROW)]
)
def test_a_recorded_step_gives_the_bits_of_the_step(name, kind):
    """Over five steps with other tokens and another rate each; from the fourth on nothing is launched by
    hand, allocated or waited for.
    """
    found = []
    for record in (True, False):
        with emulated() as cp:
            make = lambda cp: open_device(cp, fake_cublas.Library(), kind)
            found.append(steps(cp, name, 5, record, make, **VARIED))
    (got, status, asked, be), (want, expected, _, _) = found
    same(got, want, 0)
    same(status, expected, 0)
    read_status(status, got[0])
    assert asked[3] == asked[4]
    assert not asked[4].keys() & {"calls", "allocations"}
    assert asked[1]["calls"]
    assert all("syncs" not in one for one in asked)
    assert asked[2]["allocations"] < asked[1]["allocations"]  # the arena in place of all the rest
    (recording,) = be.step.kept.values()
    assert recording.arena.layout.peak <= recording.peak
    assert not all(chain for _, _, chain in recording.graph.nodes)  # gradients of weights are beside it


def in_pieces(be, x, pieces):
    """What `pieces` of work beside the chain give."""
    found = []
    with be.branch() as beside:
        for n in range(pieces):
            read = x + n
            found.append(beside(lambda read=read: (read * 2) * 2))
            del read
            for taken in (x * 0, x * 0, x * 0):
                taken += 1
                del taken
    return found


@pytest.mark.parametrize("pieces", [1, 9])
def test_a_branch_keeps_the_memory_that_its_pieces_use(pieces):
    """What they read, and what they take in between: early or late, they give what they give at once, and the
    last PIECES_BESIDE keep theirs.
    """
    with fake_cupy.installed(memory=True) as cp:
        be, x = quick(cp), cp.ones(512)
        for _ in range(6):
            got = [one.tolist() for one in be.step(in_pieces, be, x, pieces)]
            assert got == [[4.0 + 4 * n] * 512 for n in range(pieces)]
        (recording,) = be.step.kept.values()
        kept = recording.peak // x.nbytes
        assert (pieces == 1) or pieces + 2 * PIECES_BESIDE <= kept <= pieces + 2 * PIECES_BESIDE + 6


@pytest.mark.parametrize("refused", [True, False])
def test_without_a_recording_no_piece_keeps_memory(refused, monkeypatch):
    """A step that is not to be recorded, or could not be, has what pieces give and what one takes."""
    with fake_cupy.installed(memory=True) as cp:
        x, measure = cp.ones(512), Measure(cp)
        if refused:
            be = quick(cp, lambda said: None)
            monkeypatch.setattr(cp.cuda.Stream, "begin_capture", fails(RuntimeError("planted")))
            for _ in range(3):
                be.step(in_pieces, be, x, 9)
        else:
            be = open_device(cp, fake_cublas.Library(), record=False)
        with cp.cuda.using_allocator(measure.malloc):
            be.step(in_pieces, be, x, 9)
        assert measure.layout.peak // x.nbytes <= 9 + 3


@pytest.mark.parametrize("sees", [{"window": 3}, {"chunk": 3}, {"window": 2, "global_tokens": 1}])
def test_a_step_whose_layers_see_different_keys_is_recorded(sees):
    """The places of all of them go through Backend.place."""
    found, cycle = [], {"pe": (("rope", sees), ("rope", {})), "layers": 2}
    for record in (True, False):
        with fake_cupy.installed(memory=True) as cp:
            found.append(steps(cp, "rope", 4, record, quick, **VARIED, **cycle))
            assert fake_cupy.counts().get("graphs", 0) == 2 * record
    same(*[each[:2] for each in found], 0)


def test_only_what_differs_is_recorded_again():
    """Another setting, another size, another place for the weights: each has a recording of its own, and
    the old one is still right.
    """
    with fake_cupy.installed(memory=True) as cp:
        be, cfg = quick(cp), tiny("rope")
        host = init(cfg)
        p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))

        def step(recipe=SMALL, size=2, p=p):
            be.step(one_step, be, cfg, recipe.rule, p, m, v, parts(1, size), recipe.numbers(1), status)
            return len(be.step.kept)

        assert [step(), step(), step(replace(SMALL, clip=0.5))] == [1, 1, 1]
        assert [step(replace(SMALL, eps=0.5)), step(size=3), step(), step(p=be.place(host))] == [2, 3, 3, 4]
        step(replace(SMALL, decay=0.5))
        assert len(be.step.kept) == 4


def test_an_array_that_takes_the_place_of_a_weight_is_seen():
    """It is another step, whose recording has the new address."""
    with fake_cupy.installed(memory=True) as cp:
        host = init(tiny("rope"))
        p = place(host, cp)
        keys = {graph.known_by(p, []): 0, graph.known_by(place(host, cp), []): 1}
        assert keys[graph.known_by(p, [])] == 0
        p["norm.weight"] = p["norm.weight"].copy()
        assert graph.known_by(p, []) not in keys


def test_a_record_is_looked_at_once(monkeypatch):
    """And records that are equal are the same step."""
    said, cfg = [], tiny("rope")
    monkeypatch.setattr(graph, "fields", lambda x, of=graph.fields: said.append(x) or of(x))
    keys = [graph.known_by(one, []) for one in (cfg, cfg, replace(cfg))]
    assert keys[0] is keys[1]
    assert keys[1] == keys[2]
    assert said == [cfg, cfg]
    assert keys[0] != graph.known_by(replace(cfg, eps=0.5), [])


def test_a_record_that_can_change_is_looked_at_again():
    """By identity it would be the step that it was."""

    @dataclass
    class Rates:
        warm: float

    rates = Rates(0.5)
    before = graph.known_by(rates, [])
    rates.warm = 0.25
    assert graph.known_by(rates, []) != before


def test_a_bad_step_is_held_back_by_the_graph_too():
    """A NaN among the weights: the replayed step changes nothing, and its status names the loss."""
    with emulated() as cp:
        be, cfg = open_device(cp, fake_cublas.Library()), tiny("rope")
        host = init(cfg)
        p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))
        for step in range(1, 6):
            if step == 4:
                p["0.up.weight"][0, 0] = np.nan
                before = p.line.get()
            be.step(one_step, be, cfg, SMALL.rule, p, m, v, parts(1), SMALL.numbers(step), status)
        same(p.line.get(), before, 0)
        with pytest.raises(PerefError, match="the loss is nan"):
            read_status(status.get(), p)


@pytest.mark.parametrize(
    ("place", "said"),
    [(0, "tokens go from 0 to 256; expected 0 to 255"), (1, "targets go up to 256; expected at most 255")],
)
def test_tokens_of_a_replayed_step_are_looked_at(place, said):
    """Before they are copied: a graph would read beyond the table, or take another row."""
    with fake_cupy.installed(memory=True) as cp:
        be, cfg = quick(cp), tiny("rope")
        host = init(cfg)
        p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))
        for n in range(1, 5):
            ((tokens, targets),) = batches = parts(1)
            if n == 4:
                before, graphs = p.line.get(), fake_cupy.counts()["graphs"]
                (tokens, targets)[place][0, :2] = 0, 256
                with pytest.raises(Misuse, match=said):
                    stepped(be, cfg, SMALL.rule, p, m, v, batches, SMALL.numbers(n), status)
                continue
            stepped(be, cfg, SMALL.rule, p, m, v, batches, SMALL.numbers(n), status)
        assert fake_cupy.counts()["graphs"] == graphs > 0
        same(p.line.get(), before, 0)


WITHOUT = "this step runs without a recording, kernel by kernel: "


@pytest.mark.parametrize("moved", ["0 1 2 3", "0 0 1 1", "0 1 0 0", "0 00 00 00"])
def test_a_step_that_moves_something_else_is_not_recorded(moved):
    """What goes through `place` is kept: a step that hands it other digits, or more, is run as it is."""
    said, found, now = [], [], []

    def step(be, x):
        for digit in now[0]:
            x = x + be.place(np.array([float(digit)]))
        return x

    with emulated() as cp:
        be, x = open_device(cp, fake_cublas.Library(), say=said.append), cp.ones(1)
        for digits in moved.split():
            now[:] = [digits]
            found.append(be.step(step, be, x).tolist())
    assert found == [[1.0 + sum(map(int, digits))] for digits in moved.split()]
    assert said == [WITHOUT + "it moves something else to the device from one call to the next"]


def fails(error):
    def failing(*given, **named):
        raise error

    return failing


def during(count):
    """The launch of a kernel that fails, the count-th of a capture."""

    def plant(planted, cp, perform=fake_device.Device.perform):
        left = iter(range(count, -1, -1))

        def failing(self, act, written):
            if self.streams[-1].is_capturing() and next(left) == 0:
                raise RuntimeError("planted\nduring")
            perform(self, act, written)

        planted.setattr(fake_device.Device, "perform", failing)

    return plant


def at_the_end(ended):
    """A capture that cannot be ended; `ended`: it is over, but its graph cannot be instantiated."""

    def plant(planted, cp, end=fake_device.Stream.end_capture):
        def failing(self):
            if ended:
                end(self)
            raise RuntimeError("planted\nat the end")

        planted.setattr(fake_device.Stream, "end_capture", failing)

    return plant


def during_and_at_the_end(planted, cp):
    """As CUDA does it: a capture that was broken off cannot be ended either."""
    during(3)(planted, cp)
    at_the_end(ended=False)(planted, cp)


def at_replay(count):
    """The count-th launch of the graph fails."""

    def plant(planted, cp, launch=fake_device.Graph.launch):
        left = iter(range(count, -1, -1))

        def failing(self, stream=None):
            if next(left) == 0:
                raise RuntimeError("planted\nat replay")
            launch(self, stream)

        planted.setattr(fake_device.Graph, "launch", failing)

    return plant


def instead(what, name, error):
    """`name` of `what(cp)` fails."""
    return lambda planted, cp: planted.setattr(what(cp), name, fails(error("planted")))


PHASES = {
    "the wait for what was asked before": instead(lambda cp: cp.cuda.Stream, "wait_event", RuntimeError),
    "pinned memory": instead(lambda cp: cp.cuda, "alloc_pinned_memory", MemoryError),
    "the copy of the input": instead(lambda cp: cp.ndarray, "set", RuntimeError),
    "memory": instead(lambda cp: graph, "Arena", MemoryError),
    "begin": instead(lambda cp: cp.cuda.Stream, "begin_capture", RuntimeError),
    "the first kernel": during(0),
    "a kernel": during(300),
    "a kernel of AdamW": during(640),
    "the capture, twice": during_and_at_the_end,
    "the end": at_the_end(ended=False),
    "instantiation": at_the_end(ended=True),
    "the first replay": at_replay(0),
    "a later replay": at_replay(2),
}


@cache
def unrecorded():
    """Weights, moments and status after six steps of RoPE, run as they are."""
    with fake_cupy.installed(memory=True) as cp:
        return list(steps(cp, "rope", 6, False, quick, **VARIED)[:2])


@pytest.mark.parametrize("phase", PHASES)
def test_a_failure_while_a_step_is_recorded_changes_no_bit(phase, monkeypatch):
    """One line, and from there on every step runs kernel by kernel, to the weights, moments and status of a
    run that records nothing. CuPy's pinned memory and asarray are its own again, and another step can be
    recorded.
    """
    said, again = [], lambda be, x: x + 1
    with fake_cupy.installed(memory=True) as cp:
        before = cp.asarray, cp.array
        with monkeypatch.context() as planted:
            PHASES[phase](planted, cp)
            *got, asked, be = steps(cp, "rope", 6, True, lambda cp: quick(cp, said.append), **VARIED)
        assert (cp.asarray, cp.array) == before
        assert fake_device.Device.now.pinner is None
        assert not be.step.stream.is_capturing()
        assert asked[-1].get("graphs", 0) == 0
        (recording,) = be.step.kept.values()
        assert recording.arena is recording.graph is None
        x, graphs = cp.ones(1), fake_cupy.counts().get("graphs", 0)
        assert [be.step(again, be, x).tolist() for _ in range(4)] == [[2]] * 4
        assert fake_cupy.counts()["graphs"] > graphs
    same(got, unrecorded(), 0)
    (line,) = said
    assert line.startswith(WITHOUT)
    assert "planted" in line
    assert "\n" not in line


def test_an_interruption_of_a_recording_is_no_reason_to_go_on(monkeypatch):
    """Ctrl-C during a capture ends it and is passed on."""
    with emulated() as cp:
        be, x = open_device(cp, fake_cublas.Library(), say=pytest.fail), cp.ones(1)

        def step(be, x):
            if be.step.stream.is_capturing():
                raise KeyboardInterrupt
            return x + 1

        whole = replace(be, place=lambda thing: be.place(thing))
        assert [whole.step(step, whole, x).tolist() for _ in range(2)] == [[2]] * 2
        with pytest.raises(KeyboardInterrupt):
            whole.step(step, whole, x)
        assert not be.step.stream.is_capturing()
        assert fake_device.Device.now.pinner is None


@pytest.mark.parametrize("fine", [0, 1, 2])
def test_errors_of_the_step_itself_are_its_own(fine):
    """A step that fails as it is, in its first calls or when it is recorded, fails with its own error."""
    calls = []

    def step(be, x):
        calls.append(1)
        if len(calls) > fine:
            raise Misuse("its own error")
        return x

    with fake_cupy.installed(memory=True) as cp:
        be, x = quick(cp, lambda said: None), cp.ones(1)
        for _ in range(fine):
            be.step(step, be, x)
        with pytest.raises(Misuse, match=r"^its own error"):
            be.step(step, be, x)


def test_nothing_is_recorded_where_that_is_asked_for():
    """The bits are the same."""
    with emulated() as cp:
        be = open_device(cp, fake_cublas.Library(), record=False)
        assert be.step is call
        got = steps(cp, "rope", 4, True, lambda cp: be)
        assert fake_cupy.counts().get("graphs", 0) == 0
    with emulated() as cp:
        want = steps(cp, "rope", 4, True)
        assert fake_cupy.counts()["graphs"]
    same(list(got[:2]), list(want[:2]), 0)


def strings(key):
    """Every string in a key."""
    inside = map(strings, key) if isinstance(key, tuple) else ()
    return {key} if isinstance(key, str) else set().union(*inside)


def test_no_dtype_becomes_a_string_in_a_replayed_step():
    """NumPy writes a dtype out in Python, which took most of a step's time. The key has dtypes themselves."""
    with fake_cupy.installed(memory=True) as cp:
        be, cfg = quick(cp), tiny("rope")
        host, written = init(cfg), []
        p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))

        def watch(frame, event, argument):
            if event == "call" and frame.f_code.co_filename == np._core._dtype.__file__:
                written.append(frame.f_code.co_name)

        def step(number):
            stepped(be, cfg, SMALL.rule, p, m, v, parts(1), SMALL.numbers(number), status)

        for number in (1, 2, 3):
            step(number)
        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            step(4)
            assert written == []
            str(status.dtype)
            assert written
        finally:
            sys.setprofile(before)
        assert fake_cupy.counts()["graphs"]
        (key,) = be.step.kept
        names = {*p, *SMALL.rule, *vars(cfg)}
        assert not {np.dtype(kind).str for kind in "fdil"} & (strings(key) - names)
        assert not {np.dtype(kind).name for kind in "fdil"} & (strings(key) - names)


def test_memory_of_the_pool_would_be_caught(monkeypatch):
    """Were the arena CuPy's pool, the replayed step would not give the bits of the step: this is what the
    emulation is for.
    """
    found = []
    for record in (True, False):
        with fake_cupy.installed(memory=True) as cp:
            monkeypatch.setattr(graph, "Arena", lambda xp, size: xp.get_default_memory_pool())
            found.append(steps(cp, "rope", 3, record, make=quick)[0])
    with pytest.raises(Differs):
        same(*found, 0)


def test_what_goes_past_place_is_not_recorded():
    """A step that moves an array to the device itself runs as it is, every time, and says so once."""
    said = []

    def step(be, x):
        return x + cp.asarray(np.ones(1))

    with emulated() as cp:
        be = open_device(cp, fake_cublas.Library(), say=said.append)
        x = cp.ones(1)
        assert [be.step(step, be, x).tolist() for _ in range(5)] == [[2]] * 5
    assert said == [
        WITHOUT + "it moves an array of 8 bytes to the device that did not go through Backend.place"
    ]


def test_a_number_that_goes_past_place_is_not_recorded():
    """CuPy would put it into a kernel, without a copy that could be noticed, and every replay would have
    the first one.
    """
    said, rate = [], iter(range(10))

    def step(be, x):
        return x + cp.asarray(np.array(float(next(rate))))

    with emulated() as cp:
        be = open_device(cp, fake_cublas.Library(), say=said.append)
        x = cp.zeros(1)
        before = cp.asarray
        assert [be.step(step, be, x).tolist() for _ in range(2)] == [[0], [1]]
        next_of = [be.step(step, be, x).tolist() for _ in range(3)]
        assert cp.asarray is before
    assert next_of == [[3], [4], [5]]  # one was drawn by the capture that was broken off
    assert said == [
        WITHOUT
        + "it moves a number, an array without axes, to the device that did not go through Backend.place"
    ]


# the arena


def test_layout_reuses_and_joins():
    """First fit in units of 512 bytes; neighbours that are given back are one gap again; the peak is
    remembered.
    """
    layout = Layout(4 * 512)
    a, b, c = (layout.take(n) for n in (1, 512, 513))
    assert [a, b, c] == [(0, 512), (512, 512), (1024, 1024)]
    with pytest.raises(PerefError, match="more than its 2048"):
        layout.take(1)
    layout.give(*b)
    assert layout.take(100) == (512, 512)
    for piece in (a, c, b):
        layout.give(*piece)
    assert layout.gaps == [(0, 2048)]
    assert layout.peak == 2048


def test_an_arena_of_the_measured_size_is_enough(rng):
    """The same requests in the same order have the same places, and none overlaps one that is still held."""
    with fake_cupy.installed(memory=True) as cp:
        measure = Measure(cp)
        arena, script = None, rng.integers(1, 5000, 60)
        for allocator in (measure, None):
            allocator = arena = Arena(cp, measure.layout.peak) if allocator is None else allocator
            held = []
            for n in script.tolist():
                held.append((allocator.malloc(n), n))
                if n % 3:
                    held.pop(n % len(held))
                spans = sorted((p.ptr, p.ptr + size) for p, size in held)
                assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
            del held
        assert arena.layout.peak == measure.layout.peak
        assert arena.layout.gaps == [(0, measure.layout.peak)]


@pytest.mark.parametrize("name", names())
def test_every_encoding_can_be_recorded(name):
    """A replayed step of every encoding gives the bits of the step run as it is."""
    found = []
    for record in (True, False):
        with fake_cupy.installed(memory=True) as cp:
            found.append(steps(cp, name, 3, record, make=quick)[:3])
    assert found[0][2][2]["graphs"]
    same(found[0][0], found[1][0], 0)
    same(found[0][1], found[1][1], 0)
    read_status(found[0][1], found[0][0][0])


@pytest.mark.parametrize("name", names())
def test_nothing_is_moved_behind_the_steps_back(name):
    """With more tokens and heads than CuPy joins arrays by itself: the second call copies its inputs (tokens,
    targets and the three numbers) to the device, at once, and nothing else.
    """
    with fake_cupy.installed() as cp:
        be, cfg = quick(cp), replace(tiny(name), L=33, C=36, H=9)
        host = init(cfg)
        p, m, v, status = (be.place(a) for a in (host, zeros(host), zeros(host), np.zeros(3)))
        batches = [batch(CORPUS.train, 5, 1, batch=1, length=33, part=0)]
        for _ in range(2):
            before = fake_cupy.counts()["copies"]
            be.step(one_step, be, cfg, SMALL.rule, p, m, v, batches, np.array([0.01, 1, 1.0]), status)
        copied = fake_cupy.counts()["copies"] - before
        assert copied == 1, f"{name} copies arrays to the device; use be.place, and ops.join"
