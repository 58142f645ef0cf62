"""At: where and with whom every token is. Positions feed formulas; slots decide what is past.

Query row t is key column S-T+t. It sees column s when s <= S-T+t (causal), within `window` slots, and both
belong to the same non-zero segment; global tokens see and are seen however far. Comparing positions instead
would leak the future for tokens that share a position and for documents that restart at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from peref.errors import Misuse
from peref.xp import like, namespace

# beyond it float64, in which angles and biases are made, does not tell neighbours apart
LARGEST_POSITION = 2**53


def exact(i: np.ndarray) -> np.ndarray:
    """Numbers as int64 or float64: differences of narrower ones round, and of unsigned ones wrap."""
    return i.astype({"i": np.int64, "u": np.int64, "f": np.float64}.get(i.dtype.kind, i.dtype), copy=False)


def positions_of(given: Any, B: int | None, T: int, axes: int | None = 1, named: str = "") -> np.ndarray:
    """Positions of T tokens in B sequences (None: no sequences) as At has them: [T], [B,T] or, of several
    axes, [A,B,T].

    [A,1,T] and [A,T] are the same in every sequence, [1,B,T] is [B,T]. Raises Misuse for other shapes, for
    what are no numbers, for several axes that are not the `axes` (None: any) which the encodings `named` tell
    apart, and for [B,T] that might as well be [A,T].
    """
    i, rows = exact(np.asarray(given)), 1 if B is None else B
    several = i[:, None] if i.ndim == 2 else i  # [A,1,T] or [A,B,T]
    has_axes = B is not None and several.ndim == 3 and several.shape[1:] in ((1, T), (B, T))
    if i.dtype.kind in "iuf":
        if i.shape == (B, T) and B == axes != 1:
            what = f"positions are {list(i.shape)}, of {B} sequences or of {B} axes"
            raise Misuse(f"{what}; give [1, {B}, {T}] or [{B}, 1, {T}]")
        if i.shape in ((T,), (B, T)):
            return i
        if has_axes and i.ndim == 3 and len(i) == 1:
            return np.broadcast_to(i[0], (rows, T))
        if has_axes and len(several) > 1 and axes in (None, len(several)):
            return np.broadcast_to(several, (len(several), rows, T))
    wanted = f"[{T}]" if B is None else f"[{T}] or [{B}, {T}]"
    wanted += "" if B is None or axes == 1 else f" or [{axes or 'A'}, {B}, {T}]"
    more = f"; {named} cannot tell {len(several)} axes apart" if named and has_axes else ""
    what = f"positions are {i.dtype}{list(i.shape)}; expected numbers {wanted}"
    raise Misuse(f"{what}, one for each token{more}")


def given_place(
    B: int | None, T: int, positions: Any, seg: Any, axes: int | None, named: str
) -> tuple[Any, Any]:
    """positions and seg [B,T], where given, of B sequences of T tokens as At takes them. Raises Misuse for
    other shapes, and as `positions_of`.
    """
    if positions is not None:
        positions = positions_of(positions, B, T, axes, named)
    seg = None if seg is None else np.asarray(seg)
    if seg is not None and seg.dtype.kind not in "biuf":
        raise Misuse(f"seg is of {seg.dtype}; expected whole numbers, one for each token")
    if seg is not None and seg.shape != (B, T):
        raise Misuse(f"seg is {list(seg.shape)}; expected [{B}, {T}], one number for each token")
    return positions, seg


def positions_in(seg: np.ndarray) -> np.ndarray:
    """Positions [B,S] that restart at 0 where a segment starts; seg [B,S]."""
    slot = np.broadcast_to(np.arange(seg.shape[1]), seg.shape)
    starts = np.diff(seg, axis=1, prepend=-1) != 0
    return slot - np.maximum.accumulate(np.where(starts, slot, 0), axis=1)


def check_documents(name: str, seg: np.ndarray) -> None:
    """Raises Misuse where a document of seg [B,S] stops and starts again."""
    for row in seg:
        starts = row[np.diff(row, prepend=-1) != 0]
        if len(np.unique(starts[starts != 0])) < np.count_nonzero(starts):
            what = f"{name} has a document in two pieces: {row.tolist()}"
            raise Misuse(f"{what}; give every document a number of its own")


@dataclass(frozen=True)
class At:
    """The place of T queries and S keys; the queries are the last T keys.

    i       positions of the queries, [T], [B,T] or, of several axes (time, height, width), [A,B,T]; integer
            or real
    j       positions of the keys, likewise with S
    n       the length that frequencies are made for
    causal  a query sees no later slot
    window  a query sees slots less than `window` away, itself included; None: all
    seg     [B,S] whole numbers: 0 is padding, equal numbers are one document; None: one document, no padding
    chunk   a query sees the keys of its own chunk of so many tokens of a document; None: all
    parts   [B or 1,S], where there are chunks: as seg, but each chunk has a number
    everywhere  [B or 1,S], true for global tokens: window and chunk hide nothing from them, nor them
            (Longformer, arXiv:2004.05150, section 3.1, whose further projections for them are not here)
    keeps_all   a layer with global tokens keeps every key, for its encoding reads what is between two of them
    host    the same place in NumPy, where these arrays live on a device: what decides a shape is asked there
    """

    i: Any
    j: Any
    n: int
    causal: bool = True
    window: int | None = None
    seg: Any = None
    host: "At | None" = None
    chunk: int | None = None
    parts: Any = None
    everywhere: Any = None
    keeps_all: bool = False

    @classmethod
    def of(
        cls, tokens: int, *, positions: Any = None, seg: Any = None, n: int | None = None, **rest: Any
    ) -> "At":
        """The place of a whole sequence: positions count from 0, within each segment [B,T], or are those
        given, [T], [B,T] or [axes,B,T].

        Raises Misuse for sizes that do not fit and for a segment that stops and starts again.
        """
        seg = None if seg is None else np.asarray(seg)
        if seg is not None and (seg.ndim != 2 or seg.shape[1] != tokens):
            raise Misuse(f"seg is {list(seg.shape)}; expected [B, {tokens}], one number for each token")
        if positions is not None:
            i = exact(np.asarray(positions))
        else:
            i = np.arange(tokens) if seg is None else positions_in(seg)
        return cls(i, i, tokens if n is None else n, seg=seg, **rest).checked()

    def checked(self) -> "At":
        """Itself, or Misuse. Called where a place is made from outside numbers."""
        if self.window is not None and self.window < 1:
            raise Misuse(f"window is {self.window}; expected at least 1 (a token sees itself)")
        if self.i.shape[:-1] != self.j.shape[:-1] or self.T > self.S:
            what = f"positions of queries {list(self.i.shape)} and keys {list(self.j.shape)} do not fit"
            raise Misuse(f"{what}; queries are the last keys")
        if self.i.ndim not in (1, 2, 3):
            wanted = "[T], [B,T] or, of several axes, [A,B,T]"
            raise Misuse(f"positions are {list(self.i.shape)}; expected {wanted}")
        for i in (self.i, self.j):
            if not ((i >= -LARGEST_POSITION) & (i <= LARGEST_POSITION)).all():
                what = "positions must be finite numbers of at most 2^53 in size"
                raise Misuse(f"{what}, got {i.min()} to {i.max()}")
        if self.seg is not None:
            check_documents("seg", self.seg)
        return self

    def moved(self, asarray: Callable) -> "At":
        """The same place with its arrays in another library; `asarray` takes a NumPy array there."""
        of: dict[str, Any] = {n: getattr(self, n) for n in ("i", "j", "seg", "parts", "everywhere")}
        there: dict[str, Any] = {n: asarray(a) for n, a in of.items() if a is not None}
        return replace(self, **there, host=self)

    def within(
        self, window: int | None, chunk: int | None = None, global_tokens: Any = None, keeps_all: bool = False
    ) -> "At":
        """The same place, in NumPy, as a layer sees it: with this window, in chunks of so many tokens of a
        document, the first so many of each global; and of the keys before the queries only those that the
        layer has kept.
        """
        if window is None is self.window and chunk is None is self.chunk:
            return self
        found = self.seen_within(window, chunk, global_tokens, keeps_all)
        kept = found.kept(self.S - self.T)
        if kept is None:
            return found
        new = np.broadcast_to(np.arange(self.S - self.T, self.S), (len(kept), self.T))
        return found._among(np.concatenate([kept, new], 1))

    def seen_within(self, window: int | None, chunk: int | None, global_tokens: Any, keeps_all: bool) -> "At":
        """The same place with this window, these chunks and global tokens, and every key."""
        everywhere = None if global_tokens is None else (self._slots < global_tokens) & (self._segments != 0)
        parts = None if chunk is None else self._chunks(chunk)
        return replace(
            self, window=window, chunk=chunk, parts=parts, everywhere=everywhere, keeps_all=keeps_all
        )

    def _among(self, columns: np.ndarray) -> "At":
        """The same queries over these keys alone [1 or B,S]; -1: one that nobody sees."""
        of: dict[str, Any] = {n: getattr(self, n) for n in ("j", "seg", "parts", "everywhere")}
        if len(columns) == 1:
            some: dict[str, Any] = {n: None if a is None else a[..., columns[0]] for n, a in of.items()}
            return replace(self, **some)
        lead = np.broadcast_shapes(self.i.shape[:-1], (len(columns),))
        for n, a in of.items():
            if a is not None:
                a = np.broadcast_to(a, (*(lead if n == "j" else (len(columns),)), self.S))
                index = np.broadcast_to(np.maximum(columns, 0), (*a.shape[:-1], columns.shape[1]))
                a = np.take_along_axis(a, index, -1)
                of[n] = a if n == "j" else np.where(columns < 0, np.zeros_like(a), a)
        return replace(self, **of, i=np.broadcast_to(self.i, (*lead, self.T)))

    @property
    def _segments(self) -> np.ndarray:
        return np.ones((1, self.S), int) if self.seg is None else self.seg

    @property
    def _slots(self) -> np.ndarray:
        """[B or 1,S]: each key counted from the first of its document."""
        return positions_in(self._segments)

    def _chunks(self, chunk: int) -> np.ndarray:
        """[B or 1,S]: a number for each chunk of each document, 0 for padding."""
        return np.where(self._segments == 0, 0, np.cumsum(self._slots % min(chunk, self.S) == 0, 1))

    @property
    def numbers(self) -> Any:
        """Which keys a query sees without global tokens: those of its own number, but 0. None: all."""
        return self.seg if self.parts is None else self.parts

    def kept(self, stop: int) -> np.ndarray | None:
        """Which of the first `stop` keys queries behind them may see, [1 or B,K], -1 where a sequence has
        fewer; None: all. The last at least, which says whether a document goes on.
        """
        if self.host is not None:
            return self.host.kept(stop)
        widths = [n - 1 for n in (self.window, self.chunk) if n is not None]
        first = stop - max(min(widths), 1) if widths and not self.keeps_all else 0
        if first <= 0:
            return None
        recent = np.arange(first, stop)[None]
        if self.everywhere is None:
            return recent
        far = self.everywhere[:, :first]
        if self.seg is not None:
            far = far & (self.seg[:, :first] == self.seg[:, stop - 1 : stop])
        count = int(far.sum(1).max())
        columns = np.argsort(far, 1, kind="stable")[:, first - count :]  # those that are seen, in order
        columns = np.where(np.take_along_axis(far, columns, 1), columns, -1)
        return np.concatenate([columns, np.broadcast_to(recent, (len(columns), recent.shape[1]))], 1)

    @cached_property
    def made(self) -> list[Any]:
        """What was made of this place alone, kept with it: empty at first."""
        return []

    @property
    def T(self) -> int:
        """How many queries there are."""
        return self.i.shape[-1]

    @property
    def S(self) -> int:
        """How many keys there are; the queries are the last of them."""
        return self.j.shape[-1]

    @cached_property
    def consecutive(self) -> bool:
        """Whether the distance to every key that is seen is that of the slots, so that a table of
        distances can be read by diagonal: positions go up in ones, within each document where there are
        several; those of padding may be anything.
        """
        if self.j.ndim > 2 or self.j.dtype.kind not in "iu":
            return False
        i, j = exact(self.i), exact(self.j)
        on = j[..., 1:] == j[..., :-1] + 1
        if self.seg is not None:
            on = on | (self.seg[:, 1:] != self.seg[:, :-1]) | (self.seg[:, 1:] == 0)
        return bool(on.all() and (i == j[..., self.S - self.T :]).all())

    @cached_property
    def see(self) -> Any:
        """Which key each query sees, bool, [T,S] or with segments [B,1,T,S]."""
        xp = namespace(self.i)
        back = xp.arange(self.S - self.T, self.S)[:, None] - xp.arange(self.S)  # [T,S], in slots
        past = back >= 0 if self.causal else back == back
        seen = past if self.window is None else past & (abs(back) < self.window)
        if self.numbers is None and self.everywhere is None:
            return seen
        seen = self._beside(seen, self.numbers)
        if self.everywhere is None:
            return seen
        anyone = self.everywhere[:, None, self.S - self.T :, None] | self.everywhere[:, None, None, :]
        return seen | (anyone & self._beside(past, self.seg))

    def _beside(self, seen: Any, number: Any) -> Any:
        """What is `seen` [T,S] of the keys that have the query's number, [B or 1,1,T,S]."""
        if number is None:
            return seen[None, None]
        mine = number[:, self.S - self.T :, None]
        return (seen & (mine == number[:, None, :]) & (mine != 0))[:, None]

    @cached_property
    def spans(self) -> Any:
        """The first slot that a query sees and one beyond the last, [1,T,2] or [B,T,2] in NumPy; where there
        are no global tokens it sees all between them.
        """
        if self.host is not None:
            return self.host.spans
        t = np.arange(self.S - self.T, self.S)[None]
        past = first, stop = t * 0, t + 1 if self.causal else np.full_like(t, self.S)
        if self.window is not None:
            window = min(self.window, self.S)
            first, stop = np.maximum(first, t - window + 1), np.minimum(stop, t + window)
        first, stop = self._cut(first, stop, self.numbers)
        if self.everywhere is not None:
            begin, end = self._cut(*past, self.seg)
            first = np.where(begin < end, begin, 0)
            stop = np.where(self.everywhere[:, self.S - self.T :], end, stop)
        return np.concatenate([first[..., None], stop[..., None]], -1)

    def _cut(self, first: Any, stop: Any, number: Any) -> tuple[Any, Any]:
        """The part of spans among slots that have the query's number; empty at padding."""
        if number is None:
            return first, stop
        slot = np.arange(self.S)
        starts = np.diff(number, axis=1, prepend=-1) != 0
        ends = np.diff(number, axis=1, append=-1) != 0
        begin = np.maximum.accumulate(np.where(starts, slot, 0), axis=1)
        end = np.minimum.accumulate(np.where(ends, slot, self.S)[:, ::-1], axis=1)[:, ::-1] + 1
        begin, end, seen = (a[:, self.S - self.T :] for a in (begin, end, number != 0))
        return np.where(seen, np.maximum(first, begin), 0), np.where(seen, np.minimum(stop, end), 0)

    @cached_property
    def distances(self) -> Any:
        """d [N], the distances i - j between queries and keys they see, ascending. Consecutive positions
        have every whole number from one end to the other.
        """
        if self.host is not None:
            return like(self.host.distances, self.i)
        if not self.consecutive:
            return self._distinct[0]
        if self.numbers is not None or self.everywhere is not None:
            (first, stop), slot = np.moveaxis(self.spans, 2, 0), np.arange(self.S - self.T, self.S)
            seen = first < stop
            return np.arange(((slot - stop + 1) * seen).min(), ((slot - first) * seen).max() + 1)
        reach = self.S if self.window is None else min(self.S, self.window)
        return np.arange(0 if self.causal else 1 - min(self.T, reach), reach)

    @cached_property
    def index(self) -> Any:
        """Which of the distances is at each cell, [T,S] or [B,T,S]. A cell that is not seen has some valid
        one.
        """
        if self.host is not None:
            return like(self.host.index, self.i)
        if not self.consecutive:
            return self._distinct[1]
        d = np.arange(self.S - self.T, self.S)[:, None] - np.arange(self.S)
        return np.clip(d - self.distances[0], 0, len(self.distances) - 1)

    @cached_property
    def _distinct(self) -> tuple[Any, Any]:
        """Distances and index where positions are not consecutive."""
        if self.i.ndim > 2:
            what = "a function of distance needs one position for each token"
            raise Misuse(f"{what}, got {self.i.shape[0]} axes")
        d = self.i[..., :, None] - self.j[..., None, :]  # [T,S] or [B,T,S]
        d, see = np.broadcast_arrays(d, self.see if self.see.ndim == 2 else self.see[:, 0])
        distinct = np.unique(d[see]) if see.any() else np.zeros(1, d.dtype)
        return distinct, np.clip(np.searchsorted(distinct, d), 0, len(distinct) - 1)

    @cached_property
    def runs(self) -> Any:
        """For everything with a state over tokens, [B,T] or None: tokens of equal number share a state, 0
        goes on with the state handed in, -1 is padding.
        """
        if self.seg is None:
            return None
        xp, first = namespace(self.seg), self.S - self.T
        before = xp.concatenate([self.seg[:, :1], self.seg[:, :-1]], 1)[:, first:]
        mine = self.seg[:, first:]
        return xp.where(mine == 0, -1, xp.cumsum(mine != before, 1))
