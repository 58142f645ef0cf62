"""Kept: what a cache keeps of every token, in an array with room to spare, so that one more token does not
copy all those before it.
"""

from typing import Any

from peref.xp import namespace

LEAST = 64  # slots that are added at once


class Kept:
    """Rows [B,heads,S,...] of S tokens: the first S slots of `whole`.

    `longer` gives the same rows with space behind them. The first that goes on from some rows takes the slots
    behind them, any other gets a copy: rows that somebody holds never change.
    """

    __slots__ = ("S", "taken", "whole")

    def __init__(self, rows: Any) -> None:
        self.whole, self.S = rows, rows.shape[2]
        self.taken = [self.S]  # slots of `whole` that are somebody's, shared by all that lie in it

    @property
    def rows(self) -> Any:
        return self.whole[:, :, : self.S]

    def longer(self, tokens: int) -> "Kept":
        """The same and `tokens` slots more, whose content is anything."""
        new, stop = object.__new__(Kept), self.S + tokens
        if self.taken[0] == self.S and stop <= self.whole.shape[2]:
            new.whole, new.taken = self.whole, self.taken
        else:
            B, heads, _, *rest = self.whole.shape
            new.whole = namespace(self.whole).empty(
                (B, heads, stop + max(stop // 2, LEAST), *rest), self.whole.dtype
            )
            new.whole[:, :, : self.S] = self.rows
            new.taken = [stop]
        new.S = new.taken[0] = stop
        return new

    def joined(self, rows: Any) -> "Kept":
        """These rows and then `rows` [B,heads,T,...]."""
        new = self.longer(rows.shape[2])
        new.whole[:, :, self.S : new.S] = rows
        return new
