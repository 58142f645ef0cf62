"""Kept: what a cache keeps of every token, in an array with room to spare, so that one more token does not
copy all those before it.
"""

from typing import Any

from peref.xp import empty_at_line, namespace

LEAST = 64  # slots that are added at once


class Kept:
    """Rows [B,heads,S,...] of S tokens: the slots of `buffer` from `first` to one before `stop`.

    `longer` gives the same rows with space behind them. The first that goes on from some rows takes the slots
    behind them, any other gets a copy: rows that somebody holds never change.
    """

    __slots__ = ("buffer", "first", "stop", "taken")

    def __init__(self, rows: Any) -> None:
        self.buffer, self.first, self.stop = rows, 0, rows.shape[2]
        self.taken = [self.stop]  # slots of `buffer` that are somebody's, shared by all that lie in it

    def _part(self, first: int, stop: int) -> "Kept":
        new = object.__new__(Kept)
        new.buffer, new.taken, new.first, new.stop = self.buffer, self.taken, first, stop
        return new

    @property
    def rows(self) -> Any:
        """What is kept, [B,H,S,...], without the room behind it: a view, no copy."""
        return self.buffer[:, :, self.first : self.stop]

    def longer(self, tokens: int) -> "Kept":
        """The same and `tokens` slots more, whose content is anything."""
        stop = self.stop + tokens
        if self.taken[0] == self.stop and stop <= self.buffer.shape[2]:
            self.taken[0] = stop
            return self._part(self.first, stop)
        S = self.stop - self.first
        B, heads, _, *rest = self.buffer.shape
        room = S + tokens + max((S + tokens) // 2, LEAST)
        new = Kept(empty_at_line((B, heads, room, *rest), self.buffer))
        new.buffer[:, :, :S] = self.rows
        new.stop = new.taken[0] = S + tokens
        return new

    def joined(self, rows: Any) -> "Kept":
        """These rows and then `rows` [B,heads,T,...]."""
        new = self.longer(rows.shape[2])
        new.buffer[:, :, new.stop - rows.shape[2] : new.stop] = rows
        return new

    def last(self, count: int | None) -> "Kept":
        """The last `count` of these rows, None: all; in memory of their own where most would lie idle."""
        if count is None or self.stop - self.first <= count:
            return self
        new = self._part(self.stop - count, self.stop)
        return new if self.buffer.shape[2] <= 2 * (count + LEAST) else Kept(new.rows.copy())

    def among(self, columns: Any) -> "Kept":
        """These of its rows in order, [1 or B,K] in NumPy, None: all; any row where one is -1."""
        if columns is None:
            return self
        count = columns.shape[1]
        if (columns[:, 0] == self.stop - self.first - count).all():
            return self.last(count)
        xp, rows = namespace(self.buffer), self.rows
        index = xp.asarray(columns)
        if len(index) == 1:
            return Kept(rows[:, :, index[0]])
        return Kept(xp.stack([one[:, row] for one, row in zip(rows, index, strict=True)]))
