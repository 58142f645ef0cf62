"""Backend.step: a training step recorded as one CUDA graph and replayed.

The first two calls of a step run as they are; the requests for memory of the second are measured, when all
that is made once has been made. The third is captured on a stream of its own, in an arena of that size, and
launched; from the fourth on only the arguments on the host are copied and the graph is launched: no kernel is
launched by hand, nothing is allocated, nothing waits. The bits are those of the step run as it is: the same
kernels in the same order.

What a step is known by: the function, every setting, shape and dtype, the content of an At, the address of
every array on the device, and the line of weights itself. Arrays on the host are its input: tokens; learning
rate, step and clip. What else a step moves to the device goes through `be.place`, is moved once and kept.

A step that cannot be recorded is run as it is, every time, which is said once: where it changes what it moves
from one call to the next or moves an array past `be.place`, and where CUDA or CuPy fails at any point of the
recording or of a replay. Until a graph is launched nothing of the step has run: the bits are the same.
"""

import gc
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.backends.cuda.arena import POOL_UNIT, Arena, Measure
from peref.backends.cuda.flat import Flat
from peref.errors import PerefError
from peref.ops.place import At
from peref.xp import library

RECORDINGS = 4  # recordings: a training run has one, or two where the last batch is smaller


class Same:
    """What is known by being the same objects, which is quick to see; it keeps them, so that no other can
    take the place of one.
    """

    def __init__(self, arrays: dict[str, Any]):
        self.names, self.arrays = tuple(arrays), tuple(arrays.values())

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.arrays[:1])))  # the rest is seen by ==

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Same)
            and self.names == other.names
            and all(map(operator.is_, self.arrays, other.arrays))
        )


def known_by(x: Any, inputs: list[np.ndarray]) -> Any:
    """What tells one step from another in an argument, hashable; NumPy arrays are appended to `inputs`."""
    if isinstance(x, Backend):
        return "backend", *(id(getattr(x, f.name)) for f in fields(x))
    if isinstance(x, At):
        return content(x)
    if isinstance(x, np.ndarray):
        inputs.append(x)
        return "input", x.shape, x.dtype
    if isinstance(x, Flat):
        return Same(x)
    if library(x) == "cupy":
        return "array", x.data.ptr, x.shape, x.strides, x.dtype
    if isinstance(x, dict):
        return "dict", *((key, known_by(one, inputs)) for key, one in x.items())
    if isinstance(x, (tuple, list)):
        return type(x).__name__, *(known_by(one, inputs) for one in x)
    if is_dataclass(x) and not isinstance(x, type):
        frozen = x.__dataclass_params__.frozen  # type: ignore[attr-defined]
        said, arrays = (frozen_by_fields if frozen else by_fields)(Same({"": x}))
        inputs.extend(arrays)
        return said
    if callable(x):
        return "function", id(x)
    return type(x), x


def by_fields(record: Same) -> tuple[Any, list[np.ndarray]]:
    """What tells a record from another, and its inputs."""
    inputs: list[np.ndarray] = []
    (x,) = record.arrays
    return (type(x), *(known_by(getattr(x, f.name), inputs) for f in fields(x) if f.init)), inputs


# of each that cannot change, nor what it holds, found once: it takes as long as to launch a graph
frozen_by_fields = lru_cache(maxsize=RECORDINGS)(by_fields)


def content(x: Any) -> Any:
    """An array or an At by all that it says."""
    if isinstance(x, At):
        return "at", *(content(getattr(x, f.name)) for f in fields(x) if f.name != "host")
    return (x.shape, x.dtype, x.tobytes()) if isinstance(x, np.ndarray) else x


class NotRecorded(PerefError):
    """Why a step cannot be recorded or replayed. Nothing of this call of it has run."""


CHANGES = "it moves something else to the device from one call to the next"
PAST = "did not go through Backend.place"


def past_place(size: int) -> Any:
    """Stands in for CuPy's pinned memory during a capture, so that no copy from it becomes part of a
    graph.
    """
    raise NotRecorded(f"it moves an array of {size} bytes to the device that {PAST}")


@contextmanager
def as_reason() -> Iterator[None]:
    """What fails inside is why the step is not recorded."""
    try:
        yield
    except PerefError as error:
        raise NotRecorded(str(error)) from error
    except Exception as error:
        raise NotRecorded(f"{type(error).__name__}: {error}") from error


@contextmanager
def no_numbers(xp: Any) -> Iterator[None]:
    """During a capture: CuPy makes an array of a NumPy array without axes by a kernel that has the number
    in it, and the graph would keep it.
    """
    made = xp.asarray, xp.array

    def refusing(function: Callable) -> Callable:
        def unless_number(x: Any, *rest: Any, **given: Any) -> Any:
            if isinstance(x, np.ndarray) and not x.ndim:
                raise NotRecorded(f"it moves a number, an array without axes, to the device that {PAST}")
            return function(x, *rest, **given)

        return unless_number

    xp.asarray, xp.array = map(refusing, made)
    try:
        yield
    finally:
        xp.asarray, xp.array = made


class Recording:
    """One step: its inputs' places on the device, what was moved there once, and its graph."""

    def __init__(self, xp: Any, branch: Callable, function: Callable, arguments: tuple[Any, ...]):
        self.xp, self.branch = xp, branch
        self.function, self.arguments = function, arguments  # kept: the key has their addresses
        self.turn, self.peak, self.count, self.calls = 0, 0, 0, 0
        self.changes, self.refused = False, False
        self.forget()

    def forget(self) -> None:
        """Nothing is on the device any more."""
        self.line, self.there = None, []  # type: Any, list[Any]
        self.slots: list[tuple[np.ndarray, list[np.ndarray], Any]] = []
        self.moved: list[tuple[Any, Any]] = []
        self.graph: Any = None
        self.arena: Any = None
        self.result: Any = None

    def refuse(self) -> None:
        """Give its memory back, once the copies to and from it are done."""
        for *_, copied in self.slots:
            copied.synchronize()
        self.forget()
        self.refused = True

    def feed(self, stream: Any, inputs: list[np.ndarray]) -> None:
        """The inputs, on their way to the device in one copy; waits only where that of two calls ago is not
        done yet.
        """
        if not inputs:
            return
        cuda = self.xp.cuda
        if not self.slots:
            ends = list(accumulate((-(-a.nbytes // POOL_UNIT) * POOL_UNIT for a in inputs), initial=0))
            parts = lambda line: [
                line[at : at + a.nbytes].view(a.dtype).reshape(a.shape)
                for at, a in zip(ends, inputs, strict=False)
            ]
            self.line = self.xp.empty(ends[-1], np.uint8)
            self.there = parts(self.line)
            for _ in range(2):
                pinned = np.frombuffer(cuda.alloc_pinned_memory(max(ends[-1], 1)), np.uint8, ends[-1])
                self.slots.append((pinned, parts(pinned), cuda.Event(disable_timing=True)))
        pinned, places, copied = self.slots[self.turn]
        self.turn ^= 1
        copied.synchronize()
        for host, there in zip(inputs, places, strict=True):
            there[...] = host
        self.line.set(pinned, stream=stream)
        copied.record(stream)

    def place(self, thing: Any, inputs: list[np.ndarray]) -> Any:
        """`thing` on the device: an input where inputs are, another array or an At where the first call
        put it.
        """
        if isinstance(thing, dict):
            return {name: self.place(one, inputs) for name, one in thing.items()}
        if library(thing) == "cupy":
            return thing
        for host, there in zip(inputs, self.there, strict=True):
            if thing is host:
                return there
        said, count = content(thing), self.count
        self.count += 1
        if self.moved[count : count + 1] and self.moved[count][0] == said:
            return self.moved[count][1]
        if self.calls > 2:
            raise NotRecorded(CHANGES)
        there = thing.moved(self.xp.asarray) if isinstance(thing, At) else self.xp.asarray(thing)
        if self.calls == 1:
            self.moved.append((said, there))
        else:
            self.changes = True
        return there

    def run(self, arguments: tuple[Any, ...], inputs: list[np.ndarray], allocator: Any) -> Any:
        self.count = 0
        place = lambda thing: self.place(thing, inputs)
        own = lambda be: replace(be, place=place, branch=self.branch)
        arguments = tuple(own(a) if isinstance(a, Backend) else a for a in arguments)
        with uncollected(), self.xp.cuda.using_allocator(allocator.malloc):
            return self.function(*arguments)

    def __call__(self, stream: Any, arguments: tuple[Any, ...], inputs: list[np.ndarray]) -> Any:
        """What the step gives on `stream`, the current one. Raises NotRecorded before any of it has run."""
        self.calls += 1
        with as_reason():
            self.feed(stream, inputs)
            if self.calls > 2:
                if self.graph is None:
                    self.graph = self.captured(stream, arguments, inputs)
                self.graph.launch(stream)
                return self.result
        measure = Measure(self.xp)
        found = self.run(arguments, inputs, measure)
        self.peak = measure.layout.peak
        return found

    def captured(self, stream: Any, arguments: tuple[Any, ...], inputs: list[np.ndarray]) -> Any:
        """The graph of the step; its result is kept. What would read pinned memory of CuPy's when it is
        replayed is refused.
        """
        if self.changes:
            raise NotRecorded(CHANGES)
        # what the step took before is what the arena will be
        self.xp.get_default_memory_pool().free_all_blocks()
        self.arena = Arena(self.xp, self.peak)
        self.xp.cuda.set_pinned_memory_allocator(past_place)
        try:
            stream.begin_capture()
            try:
                with no_numbers(self.xp):
                    self.result = self.run(arguments, inputs, self.arena)
            except BaseException:
                with suppress(Exception):  # a capture that was broken off cannot be ended either
                    stream.end_capture()
                raise
            return stream.end_capture()
        finally:
            self.xp.cuda.set_pinned_memory_allocator(self.xp.get_default_pinned_memory_pool().malloc)


@contextmanager
def uncollected() -> Iterator[None]:
    """Arrays go when their last name goes, and not when a collector comes by: then two runs ask for memory
    in the same order.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Steps:
    """What Backend.step is on the device. It keeps the recordings of the last few steps that differ.

    `branch` is what a step that is recorded has for Backend.branch; another, which has none, gives the memory
    of each gradient back at once.
    """

    def __init__(self, xp: Any, branch: Callable, say: Callable[[str], None] = lambda text: None):
        self.branch, self.say = branch, say
        self.xp, self.stream = xp, xp.cuda.Stream(non_blocking=True)
        self.kept: OrderedDict[Any, Recording] = OrderedDict()

    def __call__(self, function: Callable, *arguments: Any) -> Any:
        inputs: list[np.ndarray] = []
        key = id(function), *(known_by(a, inputs) for a in arguments)
        recording = self.kept.pop(key, None) or Recording(self.xp, self.branch, function, arguments)
        self.kept[key] = recording  # the latest stands last
        while len(self.kept) > RECORDINGS:
            self.stream.synchronize()
            self.kept.popitem(last=False)
        if not recording.refused:
            try:
                return self.recorded(recording, arguments, inputs)
            except NotRecorded as error:
                why = " ".join(str(error).split())
            recording.refuse()
            self.stream = self.xp.cuda.Stream(non_blocking=True)  # the old one may still capture
            self.say(f"this step runs without a recording, kernel by kernel: {why}")
        return function(*arguments)

    def recorded(self, recording: Recording, arguments: tuple[Any, ...], inputs: list[np.ndarray]) -> Any:
        """The step on the stream of recordings, after what was asked of the current one so far."""
        outer = self.xp.cuda.get_current_stream()
        with as_reason():
            self.stream.wait_event(outer.record())
        with self.stream:
            found = recording(self.stream, arguments, inputs)
        try:
            outer.wait_event(self.stream.record())
        except Exception:  # the step is under way and must not be asked for again: it is waited for here
            self.stream.synchronize()
        return found
