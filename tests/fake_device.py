"""What the arrays of the fake CuPy live on, and a count of what is asked of it.

As CUDA:     a stream that captures writes its work down and does not do it; a graph does it again, at the
             same addresses, as often as it is launched. What CuPy refuses in a capture is refused: its own
             cuBLAS, transfers, everything that waits. A copy to pinned memory has arrived when its event was
             waited for, not before; pinned memory that is changed while it is being copied is an error.
Stricter:    new memory, freed memory and what a capture has not computed yet are poison (every bit set: NaN,
             -1). Work of a graph that would write to memory which went back to the pool is left out, so that
             its readers see poison (on a device they may see anything, cupy#8318).
Not here:    time, several devices, what a kernel does (see perform).
"""

import bisect
import ctypes
import heapq
import itertools
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

POISON = 0xFF
TOTAL = 1 << 34


class Buffer:
    """Bytes of the device that were allocated once; `alive` until they are freed."""

    def __init__(self, size):
        self.bytes = np.full(max(size, 1), POISON, np.uint8)
        self.start, self.alive = self.bytes.ctypes.data, True


class Memory:
    """What an array holds of a Buffer: freed when the last holder goes."""

    def __init__(self, device, size):
        self.device, self.buffer, self.size = device, Buffer(size), size
        self.ptr = self.buffer.start
        device.add(self.buffer)

    def __del__(self):
        self.device.free(self.buffer)


class UnownedMemory:
    """A piece of memory that its `owner` keeps."""

    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self.owner = ptr, size, owner


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.offset = mem, offset

    ptr = property(lambda self: self.mem.ptr + self.offset)


class Placed:
    """Makes NumPy see an array at an address, and keep its memory."""

    def __init__(self, pointer, shape, dtype, strides):
        dtype = np.dtype(dtype)
        self.memory = pointer.mem
        kind = dtype.str if dtype.kind != "V" else f"<u{dtype.itemsize}"  # bfloat16 is not NumPy's own
        about = {
            "shape": shape,
            "typestr": kind,
            "data": (pointer.ptr, False),
            "strides": strides,
            "version": 3,
        }
        self.__array_interface__ = about


class Pinned(bytearray):
    """Host memory that copies need not wait for."""


class Stream:
    def __init__(self, null=False, non_blocking=False, ptds=False):
        self.device, self.null, self.capture = Device.now, null, None
        self.queue, self.settled, self.ptr = [], 0, 0 if null else next(self.device.numbers)

    def __enter__(self):
        self.device.streams.append(self)
        return self

    def __exit__(self, *error):
        self.device.streams.pop()

    def use(self):
        self.device.streams[-1] = self
        return self

    def later(self, act):
        self.queue.append(act)

    def settle(self, until):
        while self.settled < until:
            self.settled += 1
            self.queue[self.settled - 1]()
            self.queue[self.settled - 1] = None

    def synchronize(self):
        self.device.waits("Stream.synchronize")
        self.settle(len(self.queue))

    def record(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        """A stream that waits for an event of a capture takes part in it from then on."""
        if event.capture is None and self.capture is None:
            return
        if self.capture not in (None, event.capture):
            raise RuntimeError("cudaErrorStreamCaptureIsolation: the event is of no part of this capture")
        if self.capture is None:
            self.capture, self.tail = event.capture, frozenset()
            self.capture.streams.append(self)
        self.tail |= event.tail

    def is_capturing(self):
        return self.capture is not None

    def behind(self):
        """The numbers of all nodes of the capture that are done before what is asked next of this stream."""
        found, nodes = set(self.tail), self.capture.nodes
        for n in range(len(nodes) - 1, -1, -1):
            found |= nodes[n][1] if n in found else set()
        return found

    def begin_capture(self, mode=None):
        if self.null or self.capture is not None:
            raise RuntimeError(
                "cudaErrorStreamCaptureUnsupported: operation not permitted on the default stream or while "
                "it captures"
            )
        self.capture, self.tail = Capture([], [self]), frozenset()

    def end_capture(self):
        if self.capture is None or self.capture.streams[0] is not self:
            raise RuntimeError("cudaErrorIllegalState: this stream has begun no capture")
        nodes, streams = self.capture
        joined = self.behind()
        left = [stream for stream in streams if not stream.tail <= joined]
        for stream in streams:
            stream.capture = None
        if left:
            raise RuntimeError("cudaErrorStreamCaptureUnjoined: a forked stream was not joined again")
        return Graph(self.device, nodes)


class Capture(NamedTuple):
    nodes: list  # what is done, behind which of the others, and whether by the stream that began
    streams: list  # the one that began comes first


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.device, self.stream, self.until, self.capture = Device.now, None, 0, None

    def record(self, stream=None):
        self.stream = self.device.streams[-1] if stream is None else stream
        self.capture, self.tail = self.stream.capture, getattr(self.stream, "tail", None)
        self.until = len(self.stream.queue)

    def synchronize(self):
        """The host waits for what was asked before this event, and for nothing asked since."""
        self.device.refuse("Event.synchronize")
        self.device.counts["waits"] += 1
        if self.stream is not None:
            self.stream.settle(self.until)


class Graph:
    """Streams that were forked come as early as they can at one launch, and as late at the next."""

    def __init__(self, device, nodes):
        self.device, self.nodes = device, nodes
        self.orders = itertools.cycle([self.order(late) for late in (True, False)])

    def order(self, late):
        left = [len(before) for _, before, _ in self.nodes]
        behind = [[] for _ in self.nodes]
        for n, (_, before, _) in enumerate(self.nodes):
            for one in before:
                behind[one].append(n)
        key = lambda n: (self.nodes[n][2] != late, n)
        ready, found = [key(n) for n, count in enumerate(left) if not count], []
        while ready:
            _, n = heapq.heappop(ready)
            found.append(self.nodes[n][0])
            for one in behind[n]:
                left[one] -= 1
                if not left[one]:
                    heapq.heappush(ready, key(one))
        return found

    def launch(self, stream=None):
        self.device.refuse("Graph.launch")
        self.device.counts["graphs"] += 1
        for act in next(self.orders):
            act()

    def upload(self, stream=None):
        pass

    def debug_dot_str(self, flags=0):
        """A line for each node, named as cudaGraphDebugDotPrint names them."""
        lines = (f'"graph_1_node_{n}"[shape="octagon"];\n' for n in range(len(self.nodes)))
        return f"digraph dot {{\n{''.join(lines)}}}\n"


class Device:
    """One device; `now` is the one of the fake CuPy that is installed."""

    now = None

    def __init__(self, memory):
        self.memory, self.counts, self.numbers = memory, Counter(), itertools.count(1)
        self.starts, self.buffers, self.kept, self.pinned = [], {}, [], {}
        self.allocators, self.pinner = [self.malloc], None
        Device.now = self
        self.streams = [Stream(null=True)]

    # memory

    def add(self, buffer):
        bisect.insort(self.starts, buffer.start)
        self.buffers[buffer.start] = buffer

    def free(self, buffer):
        buffer.alive = False
        buffer.bytes[:] = POISON
        del self.buffers[buffer.start], self.starts[bisect.bisect_left(self.starts, buffer.start)]

    def malloc(self, size):
        """What CuPy's pool does."""
        self.counts["allocations"] += 1
        return MemoryPointer(Memory(self, size), 0)

    def buffer_of(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        found = self.buffers[self.starts[at]] if at >= 0 else None
        return found if found is not None and address < found.start + len(found.bytes) else None

    def empty(self, shape, dtype, pointer=None, strides=None):
        """A NumPy array at new memory of the current allocator, or at `pointer`; poison where that is new."""
        if not self.memory and pointer is None:
            self.counts["allocations"] += 1
            return np.empty(shape, dtype)
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        array = np.asarray(
            Placed(
                self.allocators[-1](max(size, 1)) if pointer is None else pointer,
                tuple(shape),
                dtype,
                strides,
            )
        )
        return array.view(dtype)

    def raw(self, x):
        """`x` without a hold on its memory, as a graph knows it; in tuples and lists too."""
        if isinstance(x, (tuple, list)):
            return type(x)(map(self.raw, x))
        if isinstance(x, np.ndarray) and x.size == 0:
            return np.empty(x.shape, x.dtype)
        if not isinstance(x, np.ndarray) or (buffer := self.buffer_of(x.ctypes.data)) is None:
            return x
        return np.ndarray(x.shape, x.dtype, buffer.bytes, x.ctypes.data - buffer.start, x.strides)

    # work

    def refuse(self, what):
        if self.streams[-1].is_capturing():
            raise RuntimeError(
                f"{what}: cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )

    def waits(self, what):
        """The host stands still until the device has done everything."""
        self.refuse(what)
        self.counts["syncs"] += 1

    def perform(self, act, written):
        """Do act(), which writes to the NumPy arrays `written` and to nothing else; in a capture, write it
        down for the graph.

        `act` may hold arrays only as `raw` gives them, or they are never freed. A kernel launch is one such
        act.
        """
        self.counts["calls"] += 1
        stream = self.streams[-1]
        if stream.capture is None:
            act()
            return
        homes = [self.buffer_of(a.ctypes.data) for a in written if a.size]
        for a in written:
            if a.size and a.flags.owndata:
                raise RuntimeError(
                    "an array of the capture has no address; install the fake CuPy with memory=True"
                )

        def node():
            for home in homes:
                if home is not None and not home.alive:
                    return
            with np.errstate(all="ignore"):
                act()

        nodes, (first, *_) = stream.capture
        nodes.append((node, stream.tail, stream is first))
        stream.tail = frozenset([len(nodes) - 1])

    def views(self, got, inputs):
        return any(isinstance(a, np.ndarray) and np.may_share_memory(got, a) for a in inputs)

    def made(self, function, args, rest=(), keywords=None):
        """What function(*args, *rest, **keywords) gives, arrays and numbers as NumPy arrays on this
        device; views stay views.
        """
        keywords = {} if keywords is None else keywords
        capturing = self.streams[-1].is_capturing()
        with np.errstate(all="ignore"):
            got = function(*args, *rest, **keywords)
        inputs = [a for one in args for a in (one if isinstance(one, (tuple, list)) else (one,))]
        several = isinstance(got, (tuple, list))
        outs, new = [], []
        for k, one in enumerate(got if several else (got,)):
            if isinstance(one, (np.ndarray, np.generic)) and not self.views(one, inputs):
                if self.memory:
                    out = self.empty(np.shape(one), one.dtype, strides=np.empty_like(one).strides)
                    if not capturing and function not in (np.empty, np.empty_like):
                        out[...] = one
                else:
                    self.counts["allocations"] += 1
                    out = np.asarray(one)
                new.append((k, out))
                one = out
            outs.append(one)
        if function in (np.empty, np.empty_like):
            return outs[0]
        if new and capturing:
            args, written = self.raw(tuple(args)), [(k, self.raw(out)) for k, out in new]
            if not self.memory:
                raise RuntimeError(
                    "captures need memory with addresses; install the fake CuPy with memory=True"
                )

            def again():
                found = function(*args, *rest, **keywords)
                for k, out in written:
                    out[...] = found[k] if several else found

            self.perform(again, [out for _, out in written])
        elif new:
            self.counts["calls"] += 1
        return type(got)(outs) if several else outs[0]

    # transfers

    def pin(self, size):
        memory = Pinned([POISON]) * size
        memory = Pinned(memory)
        start = np.frombuffer(memory, np.uint8).ctypes.data
        self.pinned[start] = (start + size, memory)
        return memory

    def is_pinned(self, host):
        return any(start <= host.ctypes.data < stop for start, (stop, _) in self.pinned.items())

    def upload(self, host, to):
        """A copy to the device; of pinned memory it is done when the stream has come so far, of other
        memory at once.
        """
        if not self.is_pinned(host) and self.pinner is not None:
            self.pinner(host.nbytes)  # where CuPy puts it meanwhile
        self.refuse("a copy to the device")
        self.counts["copies"] += 1
        to[...] = host
        if self.is_pinned(host):
            before = host.copy()

            def still():
                if before.tobytes() != host.tobytes():
                    raise RuntimeError("pinned memory was changed while it was being copied to the device")

            self.streams[-1].later(still)

    def download(self, there, out, blocking):
        if blocking or not self.is_pinned(out):
            self.waits("a copy to the host")
            self.streams[-1].settle(len(self.streams[-1].queue))
            out[...] = there
            return out
        self.refuse("a copy to the host")
        self.counts["copies"] += 1
        value = np.array(there)
        out.view(np.uint8)[...] = POISON
        self.streams[-1].later(lambda: np.copyto(out, value))
        return out

    # what cupy.cuda offers

    def offered(self, ready=True, free=TOTAL, capability="90"):
        """cupy.cuda, and with it what there is to find out about a device."""
        device = self

        class using_allocator:  # the name is CuPy's
            def __init__(self, allocator):
                self.allocator = allocator

            def __enter__(self):
                device.allocators.append(self.allocator)

            def __exit__(self, *error):
                device.allocators.pop()

        def count():
            if not ready:
                raise RuntimeError(
                    "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime "
                    "version"
                )
            return 1

        class CompileException(Exception):
            pass

        about = {
            "name": b"Emulated",
            "major": int(capability) // 10,
            "minor": int(capability) % 10,
            "multiProcessorCount": 4,
            "totalGlobalMem": TOTAL,
        }
        runtime = SimpleNamespace(
            getDeviceCount=count,
            memGetInfo=lambda: (free, TOTAL),
            getDeviceProperties=lambda index: about,
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 13000,
            CUDARuntimeError=RuntimeError,
            deviceGetAttribute=lambda which, index: {97: 227 * 1024}[which],
        )
        return SimpleNamespace(
            Stream=Stream,
            get_elapsed_time=lambda start, stop: 1.0,  # milliseconds, whatever happened
            Event=Event,
            Graph=Graph,
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            using_allocator=using_allocator,
            get_allocator=lambda: device.allocators[-1],
            alloc=lambda size: device.allocators[-1](size),
            alloc_pinned_memory=self.pin,
            set_pinned_memory_allocator=self.pin_with,
            get_current_stream=lambda: device.streams[-1],
            is_available=lambda: ready,
            runtime=runtime,
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=SimpleNamespace(CompileException=CompileException),
            Device=lambda index=None: SimpleNamespace(
                id=0, mem_info=(free, TOTAL), compute_capability=capability, synchronize=self.synchronize
            ),
        )

    def pin_with(self, allocator):
        self.pinner = None if allocator == self.pin else allocator

    def synchronize(self):
        self.waits("Device.synchronize")
        for stream in self.streams:
            stream.settle(len(stream.queue))


def at_address(pointer, shape, dtype):
    """The NumPy array of the device's memory at an address, as a kernel or a library that was given a
    pointer sees it.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype).reshape(shape)


Device(memory=False)  # for arrays that outlive the module they came from
