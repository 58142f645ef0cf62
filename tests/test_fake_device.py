"""The promises of the emulated device: counts, poison, copies that have not arrived, captures and what
they refuse.
"""

import fake_cupy
import numpy as np
import pytest
from fake_device import Device, at_address


@pytest.fixture
def cp():
    """The fake CuPy with addresses."""
    with fake_cupy.installed(memory=True) as module:
        yield module


def capture(cp, act):
    """The graph of what act() does, and what it returns."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        found = act()
        return stream.end_capture(), found


def test_what_is_counted(cp):
    """A kernel, an allocation and a copy each count once; views cost nothing; whatever gives the host a
    number is a sync.
    """
    x = cp.asarray(np.arange(6.0).reshape(2, 3))
    before = fake_cupy.counts()
    assert before == {"allocations": 1, "copies": 1}
    y = (x.T[1:] + 1).reshape(-1)
    y += 1
    # a sum, a copy that reshape needs, a sum in place
    assert fake_cupy.counts() == before | {"allocations": 3, "calls": 3}
    for wait in (lambda: float(y[0]), lambda: int(y[0]), lambda: bool(y[0] > 0), lambda: y.tolist(),
                 lambda: y.get(), lambda: y[y > 2], lambda: cp.nonzero(y), cp.cuda.Stream().synchronize,
                 cp.cuda.Device().synchronize):  # fmt: skip
        syncs = fake_cupy.counts().get("syncs", 0)
        wait()
        assert fake_cupy.counts()["syncs"] == syncs + 1
    cp.bincount(cp.asarray([0, 1]))
    assert fake_cupy.counts()["syncs"] == syncs + 3


def test_new_and_freed_memory_is_poison(cp):
    """What nobody wrote reads NaN, and so does what was given back."""
    x = cp.empty(3)
    assert np.isnan(x.get()).all()
    x[...] = 1.0
    address, buffer = x.data.ptr, Device.now.buffer_of(x.data.ptr)
    assert at_address(address, (3,), np.float64).tolist() == [1, 1, 1]
    view = x[1:]
    del x
    assert buffer.alive
    assert view.tolist() == [1, 1]
    del view
    assert not buffer.alive
    assert np.isnan(buffer.bytes.view(np.float64)).all()


def test_a_capture_does_nothing_until_it_is_launched(cp):
    """The work is done again at the same addresses, with what stands there then."""
    x, y = cp.ones(3), cp.zeros(3)

    def act():
        z = x * 2
        w = z + 1
        y[...] = w
        y[0] += 1
        return z, w

    before = fake_cupy.counts()
    graph, (z, _) = kept = capture(cp, act)
    assert y.tolist() == [0, 0, 0]
    assert np.isnan(z.get()).all()
    graph.launch()
    assert y.tolist() == [4, 3, 3]
    x[...] = 5.0
    calls = fake_cupy.counts()["calls"]
    graph.launch()
    assert y.tolist() == [12, 11, 11]
    assert z.tolist() == [10, 10, 10]
    assert fake_cupy.counts()["graphs"] == 2
    assert fake_cupy.counts()["calls"] == calls > before["calls"]
    assert kept


def test_a_forked_stream_runs_when_it_can_and_when_it_must(cp):
    """Early at one launch, late at the next; what waits for it has it behind it, and what does not, not."""
    said, side = [], cp.cuda.Stream(non_blocking=True)
    note = lambda word: Device.now.perform(lambda: said.append(word), [])

    def forked():
        main = cp.cuda.get_current_stream()
        note("before")
        side.wait_event(main.record())
        with side:
            note("side")
        note("main")
        main.wait_event(side.record())
        note("after")

    graph, _ = capture(cp, forked)
    assert said == []
    for _ in range(2):
        graph.launch()
    assert sorted([said[:4], said[4:]]) == [
        ["before", "main", "side", "after"],
        ["before", "side", "main", "after"],
    ]
    assert not side.is_capturing()


def test_a_fork_is_joined_and_knows_its_own_capture(cp):
    """As CUDA asks for it."""
    side, other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))

    def left():
        side.wait_event(cp.cuda.get_current_stream().record())
        with side:
            cp.ones(1)

    with pytest.raises(RuntimeError, match="Unjoined"):
        capture(cp, left)
    assert not side.is_capturing()
    with pytest.raises(RuntimeError, match="Isolation"):
        capture(cp, lambda: cp.cuda.get_current_stream().wait_event(other.record()))


def test_memory_freed_after_a_capture_reads_as_poison(cp):
    """A graph whose arrays went back to the pool gives no right answer (cupy#8318); one whose arrays were
    kept does.
    """
    x = cp.ones(3)
    for keeps in (True, False):
        y = cp.zeros(3)

        def act(y=y):
            z = x * 2
            w = z + 1
            y[...] = w
            return z, w

        graph, z = capture(cp, act)
        if not keeps:
            del z
        graph.launch()
        assert y.tolist() == [3, 3, 3] if keeps else np.isnan(y.get()).all()


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda cp, x: float(x[0, 0]), "stream is capturing"),
        (lambda cp, x: x.get(), "stream is capturing"),
        (lambda cp, x: cp.asarray(np.ones(2)), "stream is capturing"),
        (lambda cp, x: x[x > 0], "stream is capturing"),
        (lambda cp, x: cp.bincount(cp.zeros(3, dtype=np.int64)), "stream is capturing"),
        (lambda cp, x: x @ x, "cuBLAS"),
        (lambda cp, x: cp.matmul(x, x), "cuBLAS"),
        (lambda cp, x: x.dot(x), "cuBLAS"),
        (lambda cp, x: cp.einsum("ij,jk->ik", x, x), "cuBLAS"),
        (lambda cp, x: cp.cuda.get_current_stream().synchronize(), "stream is capturing"),
        (lambda cp, x: cp.cuda.Event().synchronize(), "stream is capturing"),
    ],
)
def test_what_a_capture_refuses(cp, act, word):
    """Transfers, waiting, and CuPy's own products of matrices; the same outside of one is fine."""
    x = cp.ones((2, 2))
    act(cp, x)
    with pytest.raises((RuntimeError, NotImplementedError), match=word):
        capture(cp, lambda: act(cp, x))


def test_the_default_stream_captures_nothing(cp):
    with pytest.raises(RuntimeError, match="default stream"):
        cp.cuda.get_current_stream().begin_capture()


def test_a_copy_to_the_host_arrives_with_its_event(cp):
    """Before that, the pinned memory is poison; afterwards it holds what the array was when the copy was
    asked for.
    """
    x = cp.asarray(np.arange(3.0))
    out = np.frombuffer(cp.cuda.alloc_pinned_memory(x.nbytes), x.dtype, x.size)
    x.get(out=out, blocking=False)
    event = cp.cuda.Event(disable_timing=True)
    event.record()
    x += 10
    assert np.isnan(out).all()
    syncs = fake_cupy.counts().get("syncs", 0)
    event.synchronize()
    assert out.tolist() == [0, 1, 2]
    assert (fake_cupy.counts().get("syncs", 0), fake_cupy.counts()["waits"]) == (syncs, 1)


def test_pinned_memory_is_left_alone_until_it_was_copied(cp):
    """Changing it earlier is found at the next wait."""
    x = cp.zeros(3)
    host = np.frombuffer(cp.cuda.alloc_pinned_memory(x.nbytes), x.dtype, x.size)
    for early in (False, True):
        host[...] = 1.0
        x.set(host)
        event = cp.cuda.Event()
        event.record()
        if early:
            host[...] = 2.0
            with pytest.raises(RuntimeError, match="changed while it was being copied"):
                event.synchronize()
        else:
            event.synchronize()
            assert x.tolist() == [1, 1, 1]


def test_an_allocator_of_ones_own(cp):
    """Arrays made under using_allocator are where it says, and hold what it gave them until they go."""
    whole, given = cp.cuda.alloc(1024), []

    class Piece:
        def __del__(self):
            given.append("back")

    def allocator(size):
        return cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(whole.ptr + 512, size, Piece()), 0)

    before = fake_cupy.counts()["allocations"]
    with cp.cuda.using_allocator(allocator):
        x = cp.arange(4.0)
    assert x.data.ptr == whole.ptr + 512
    assert cp.ndarray((4,), np.float64, cp.cuda.MemoryPointer(whole.mem, 512)).tolist() == [0, 1, 2, 3]
    assert fake_cupy.counts()["allocations"] == before
    assert given == []
    del x
    assert given == ["back"]
