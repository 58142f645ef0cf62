"""Backend.step: a training step recorded as one CUDA graph and replayed.

The first two calls of a step run as they are; the requests for memory of the second are measured, when all that is made once has been made. The
third is captured on a stream of its own, in an arena of that size, and launched; from the fourth on only the arguments on the host are copied and the
graph is launched: no kernel is launched by hand, nothing is allocated, nothing waits. The bits are those of the step run as it is: the same kernels
in the same order.

What a step is known by: the function, every setting, shape and dtype, the content of an At, the address of every array on the device. Arrays on the
host are its input: tokens; learning rate, step and clip. Whatever else a step moves to the device goes through `be.place`, is moved once and kept;
a step that changes such a thing from one call to the next is an error, and one that moves an array past `be.place` is run as it is, which is said.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.backends.cuda.arena import Arena, Measure
from peref.errors import PerefError
from peref.ops.place import At
from peref.xp import library

KEPT = 4  # recordings: a training run has one, or two where the last batch is smaller


def known_by(x: Any, inputs: list[np.ndarray]) -> Any:
    """What tells one step from another in an argument, hashable; NumPy arrays are appended to `inputs`."""
    if isinstance(x, Backend):
        return "backend", *(id(getattr(x, f.name)) for f in fields(x))
    if isinstance(x, At):
        return content(x)
    if isinstance(x, np.ndarray):
        inputs.append(x)
        return "input", x.shape, x.dtype.str
    if library(x) == "cupy":
        return "array", x.data.ptr, tuple(x.shape), tuple(x.strides), str(x.dtype)
    if isinstance(x, dict):
        return "dict", *((key, known_by(one, inputs)) for key, one in x.items())
    if isinstance(x, (tuple, list)):
        return type(x).__name__, *(known_by(one, inputs) for one in x)
    if is_dataclass(x) and not isinstance(x, type):
        return type(x), *(known_by(getattr(x, f.name), inputs) for f in fields(x) if f.init)
    if callable(x):
        return "function", id(x)
    return type(x), x


def content(x: Any) -> Any:
    """An array or an At by all that it says."""
    if isinstance(x, At):
        return "at", *(content(getattr(x, f.name)) for f in fields(x) if f.name != "host")
    return (x.shape, x.dtype.str, x.tobytes()) if isinstance(x, np.ndarray) else x


class PastPlace(PerefError):
    """A step that is being recorded moves an array to the device that did not go through Backend.place."""


def past_place(size: int) -> Any:
    """Stands in for CuPy's pinned memory during a capture, so that no copy from it becomes part of a graph."""
    raise PastPlace(f"it moves an array of {size} bytes to the device that did not go through Backend.place")


@contextmanager
def no_numbers(xp: Any) -> Iterator[None]:
    """During a capture: CuPy makes an array of a NumPy array without axes by a kernel that has the number in it, and the graph would keep it."""
    made = xp.asarray, xp.array

    def refusing(function: Callable) -> Callable:
        def looked_at(x: Any, *rest: Any, **given: Any) -> Any:
            if isinstance(x, np.ndarray) and not x.ndim:
                raise PastPlace("it moves a number, an array without axes, to the device that did not go through Backend.place")
            return function(x, *rest, **given)

        return looked_at

    xp.asarray, xp.array = map(refusing, made)
    try:
        yield
    finally:
        xp.asarray, xp.array = made


class Recording:
    """One step: its inputs' places on the device, what was moved there once, and its graph."""

    def __init__(self, xp: Any, stream: Any, function: Callable, arguments: tuple[Any, ...], inputs: list[np.ndarray], say: Callable):
        self.xp, self.stream, self.function, self.arguments = xp, stream, function, arguments
        self.there = [xp.empty(a.shape, a.dtype) for a in inputs]
        pinned = lambda a: np.frombuffer(xp.cuda.alloc_pinned_memory(max(a.nbytes, 1)), a.dtype, a.size).reshape(a.shape)
        self.slots = [([pinned(a) for a in inputs], xp.cuda.Event(disable_timing=True)) for _ in range(2)]
        self.moved: list[tuple[Any, Any]] = []
        self.turn, self.peak, self.count, self.calls = 0, 0, 0, 0
        self.say, self.refused = say, False
        self.graph: Any = None
        self.arena: Any = None
        self.result: Any = None

    def feed(self, inputs: list[np.ndarray]) -> None:
        """The inputs, on their way to the device; waits only where the copy of two calls ago is not done yet."""
        pinned, copied = self.slots[self.turn]
        self.turn ^= 1
        copied.synchronize()
        for host, between, there in zip(inputs, pinned, self.there, strict=True):
            between[...] = host
            there.set(between, stream=self.stream)
        copied.record(self.stream)

    def place(self, thing: Any, inputs: list[np.ndarray]) -> Any:
        """`thing` on the device: an input where inputs are, another array or an At where the first call put it."""
        if isinstance(thing, dict):
            return {name: self.place(one, inputs) for name, one in thing.items()}
        if library(thing) == "cupy":
            return thing
        for host, there in zip(inputs, self.there, strict=True):
            if thing is host:
                return there
        said = content(thing)
        if self.count == len(self.moved):
            if self.calls > 1:
                raise PerefError("a recorded step moves more to the device than before; it cannot be replayed")
            self.moved.append((said, thing.moved(self.xp.asarray) if isinstance(thing, At) else self.xp.asarray(thing)))
        before, there = self.moved[self.count]
        if before != said:
            raise PerefError("a recorded step moves something else to the device than before; it cannot be replayed")
        self.count += 1
        return there

    def run(self, arguments: tuple[Any, ...], inputs: list[np.ndarray], allocator: Any) -> Any:
        self.count = 0
        place = lambda thing: self.place(thing, inputs)
        arguments = tuple(replace(a, place=place) if isinstance(a, Backend) else a for a in arguments)
        with uncollected(), self.xp.cuda.using_allocator(allocator.malloc):
            return self.function(*arguments)

    def __call__(self, arguments: tuple[Any, ...], inputs: list[np.ndarray]) -> Any:
        self.feed(inputs)
        self.calls += 1
        if self.calls < 3 or self.refused:
            measure = Measure(self.xp)
            found = self.run(arguments, inputs, measure)
            self.peak = measure.layout.peak
            return found
        if self.graph is None:
            try:
                self.graph = self.captured(arguments, inputs)
            except PastPlace as error:
                self.refused = True
                self.say(f"this step runs without a recording, kernel by kernel: {error}")
                return self.run(arguments, inputs, Measure(self.xp))
        self.graph.launch(self.stream)
        return self.result

    def captured(self, arguments: tuple[Any, ...], inputs: list[np.ndarray]) -> Any:
        """The graph of the step; its result is kept. What would read pinned memory of CuPy's when it is replayed is refused."""
        self.xp.get_default_memory_pool().free_all_blocks()  # what the step took before is what the arena will be
        self.arena = Arena(self.xp, self.peak)
        self.xp.cuda.set_pinned_memory_allocator(past_place)
        self.stream.begin_capture()
        try:
            with no_numbers(self.xp):
                self.result = self.run(arguments, inputs, self.arena)
        except BaseException:
            with suppress(Exception):  # a capture that was broken off cannot be ended either, and the reason is the first error
                self.stream.end_capture()
            raise
        finally:
            self.xp.cuda.set_pinned_memory_allocator(self.xp.get_default_pinned_memory_pool().malloc)
        return self.stream.end_capture()


@contextmanager
def uncollected() -> Iterator[None]:
    """Arrays go when their last name goes, and not when a collector comes by: then two runs ask for memory in the same order."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Steps:
    """What Backend.step is on the device. It keeps the recordings of the last few steps that differ."""

    def __init__(self, xp: Any, say: Callable[[str], None] = lambda text: None):
        self.say = say
        self.xp, self.stream = xp, xp.cuda.Stream(non_blocking=True)
        self.kept: OrderedDict[Any, Recording] = OrderedDict()

    def __call__(self, function: Callable, *arguments: Any) -> Any:
        inputs: list[np.ndarray] = []
        key = id(function), *(known_by(a, inputs) for a in arguments)
        if key not in self.kept:
            self.kept[key] = Recording(self.xp, self.stream, function, arguments, inputs, self.say)
            while len(self.kept) > KEPT:
                self.stream.synchronize()
                self.kept.popitem(last=False)
        self.kept.move_to_end(key)
        outer = self.xp.cuda.get_current_stream()
        self.stream.wait_event(outer.record())
        with self.stream:
            found = self.kept[key](arguments, inputs)
        outer.wait_event(self.stream.record())
        return found
