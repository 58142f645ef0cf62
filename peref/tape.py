"""Op, Var, Tape: pairs of functions on a list.

An op is two plain functions. What backward needs is what forward returns. The tape is a list in order of
execution; gradients pops it. Nothing is global: a call is recorded when one of its arguments belongs to a
tape, else it just runs.

Not here: arithmetic on Var (there is one array language and it is NumPy's), graphs, sorting, a "no-grad"
mode.
"""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peref.errors import counted
from peref.xp import namespace


class Slot:
    """What the tape remembers of a value: its shape and dtype, not its memory."""

    __slots__ = ("dtype", "shape")

    def __init__(self, value: Any):
        self.shape, self.dtype = value.shape, value.dtype


class Var:
    """An array on a tape. It has a value and a shape, and no arithmetic."""

    __slots__ = ("slot", "tape", "value")

    def __init__(self, tape: "Tape", value: Any):
        self.tape, self.value, self.slot = tape, value, Slot(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its value."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """How many axes its value has."""
        return self.value.ndim

    @property
    def dtype(self) -> Any:
        """The dtype of its value, which its gradient has too."""
        return self.value.dtype

    def __repr__(self) -> str:
        return f"Var({self.dtype}{list(self.shape)})"


def value(x: Any) -> Any:
    """The bare array of a Var; anything else is already bare."""
    return x.value if isinstance(x, Var) else x


def at_once(arrays: slice, make: Callable) -> Any:
    """make(): the gradients of these arrays, beside no others (Op.aside)."""
    return make()


@dataclass(frozen=True)
class Op:
    """A function of arrays and the derivative written by hand beside it.

    forward(*arrays, **settings) -> y, saved            one differentiable array out
    backward(saved, dy)          -> a tuple, one gradient per array, None where there is none

    Arrays go by position (absent ones as None), settings by keyword. The pair keeps no state and writes to
    none of its arguments. The docstring of forward, which has the shapes, is that of the op.
    """

    forward: Callable
    backward: Callable
    # backward(saved, dy, wants) may skip gradients nobody asked for; the others must not change
    selective: bool = False
    extra: bool = False  # forward -> y, saved, extra: by-products that never carry a gradient
    # forward -> y, saved, last, the state after the last token; backward(saved, dy, dlast=None) takes the
    # gradient that arrives through it
    state: bool = False
    # backward(..., arrived) may be handed the gradient that arrived at the first array from elsewhere, and
    # returns the sum
    adds: bool = False
    # backward(..., aside=f) has f(arrays, make) make the gradients of these arrays, a slice: beside the
    # others, perhaps, where nobody reads them before all are there
    aside: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.forward.__doc__)

    def __repr__(self) -> str:
        return f"{self.forward.__name__.removesuffix('_forward')}{inspect.signature(self.forward)}"

    def __call__(self, *arrays: Any, **settings: Any) -> Any:
        """Run forward on the bare arrays; with a Var among them, also append an entry to its tape."""
        tapes = {a.tape for a in arrays if isinstance(a, Var)}
        if len(tapes) > 1:
            what = "its arguments are on two tapes; a call belongs to one"
            raise ValueError(f"{self.forward.__name__}: {what}")
        bare = map(value, arrays) if tapes else arrays
        y, saved, *extra = self.forward(*bare, **settings)
        if tapes:
            y, *last = tapes.pop().record(self, saved, arrays, *((y, *extra) if self.state else (y,)))
            extra = last or extra
        return (y, *extra) if self.extra or self.state else y


class Tape:
    """Recorded calls in order of execution."""

    def __init__(self) -> None:
        self.entries: list[tuple[Op, Any, tuple[Slot | None, ...], tuple[Slot, ...]]] = []
        self.leaves: list[Var] = []

    def watch(self, x: Any) -> Any:
        """A leaf for an array; for a dict, a dict of leaves."""
        if isinstance(x, dict):
            return {name: self.watch(a) for name, a in x.items()}
        self.leaves.append(Var(self, x))
        return self.leaves[-1]

    def record(self, op: Op, saved: Any, arrays: tuple[Any, ...], *results: Any) -> list[Var]:
        """Appends a call of op, with what its forward saved, and returns its results as Vars of this tape;
        the arguments that are not Vars get no gradient.
        """
        found = [Var(self, y) for y in results]
        slots = tuple(a.slot if isinstance(a, Var) else None for a in arrays)
        self.entries.append((op, saved, slots, tuple(one.slot for one in found)))
        return found

    def gradients(
        self, y: Var | tuple[Var, ...], dy: Any, *, beside: Callable = lambda make: make()
    ) -> dict[Var, Any]:
        """The gradient of <y, dy> with respect to every leaf, in the order in which they are complete, zeros
        where none arrives. The tape is empty afterwards.

        For several results, tuples of them and of their cotangents. `beside` makes the gradients of leaves
        that one call alone has, where its op can leave them to others (Backend.branch). Raises ValueError
        when dy does not have the shape and dtype of y, and for a y that an earlier call took off the tape,
        TypeError when a backward returns a wrong number of gradients or one of another shape or dtype than
        its array.
        """
        found: dict[Slot, Any] = {}
        kind = lambda a: f"{a.dtype}{list(a.shape)}"
        known = {leaf.slot for leaf in self.leaves}.union(*(outputs for *_, outputs in self.entries))
        for one, d in zip(y, dy, strict=True) if isinstance(y, tuple) else ((y, dy),):
            if not isinstance(one, Var) or one.tape is not self:
                raise ValueError("y is not on this tape")
            if one.slot not in known:
                raise ValueError("the gradients of y were taken, and the tape emptied; run forward again")
            if (d.shape, d.dtype) != (one.shape, one.dtype):
                raise ValueError(f"dy is {kind(d)}, expected the shape and dtype of y, {kind(one)}")
            found[one.slot] = found[one.slot] + d if one.slot in found else d
        uses = Counter(slot for _, _, inputs, _ in self.entries for slot in inputs)
        alone = {leaf.slot for leaf in self.leaves if uses[leaf.slot] == 1 and leaf.slot not in found}
        while self.entries:
            op, saved, inputs, (output, *last) = self.entries.pop()
            dy, dlast = found.pop(output, None), [found.pop(one, None) for one in last]
            if dy is None:
                there = next((d for d in dlast if d is not None), None)
                if there is None:
                    continue
                dy = namespace(there).zeros(output.shape, output.dtype)
            wants = (tuple(s is not None for s in inputs),) if op.selective else ()
            arrived = (found.pop(inputs[0]),) if op.adds and inputs[0] in found else ()

            def aside(arrays: slice, make: Callable, inputs: tuple[Slot | None, ...] = inputs) -> Any:
                return beside(make) if {*inputs[arrays]} <= alone | {None} else make()

            how = {"aside": aside} if op.aside else {}
            got = op.backward(saved, dy, *dlast, *wants, *arrived, **how)
            del saved
            name = op.forward.__name__
            if len(got) != len(inputs):
                made, of = counted(len(got), "gradient"), counted(len(inputs), "array")
                raise TypeError(f"backward of {name} returned {made} for {of}")
            for k, (slot, g) in enumerate(zip(inputs, got, strict=True)):
                if slot is None or g is None:
                    continue
                if (g.shape, g.dtype) != (slot.shape, slot.dtype):
                    what = f"gradient {k} is {kind(g)}, its array is {kind(slot)}"
                    raise TypeError(f"backward of {name}: {what}")
                found[slot] = found.pop(slot) + g if slot in found else g
        nothing = lambda a: namespace(a.value).zeros_like(a.value)
        turn = {slot: n for n, slot in enumerate(found)}
        leaves = sorted(self.leaves, key=lambda a: turn.get(a.slot, len(turn)))
        return {a: found[a.slot] if a.slot in found else nothing(a) for a in leaves}
