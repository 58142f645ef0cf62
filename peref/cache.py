"""What decoding remembers from one call to the next, and where the next tokens are.

Not here: what fills it (model.decode).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from peref.config import Config
from peref.errors import Misuse, counted
from peref.ops.place import At, given_place, positions_in
from peref.xp import Arrays


@dataclass(frozen=True)
class Cache:
    """What decoding remembers: for each layer keys after rotation, values, features, states and what the last
    token gave the feed-forward; where the keys are; n.
    """

    n: int
    j: Any = None  # positions of the keys so far, [S], [B,S] or [A,B,S]
    seg: Any = None  # [B,S]
    # {"k", "v" and "f.<feature>": Kept, "state": a dict of arrays, "before": [B,1,C]}
    layers: tuple[Arrays, ...] = ()
    B: int | None = None  # sequences, None while empty

    @property
    def S(self) -> int:
        """How many tokens it holds."""
        return 0 if self.j is None else self.j.shape[-1]

    def at(self, cfg: Config, tokens: Any, positions: Any = None, seg: Any = None) -> At:
        """The place of the next tokens [B,T]: after the last ones, or where said."""
        B, T = tokens.shape
        if self.B not in (None, B):
            what = f"tokens are of {counted(B, 'sequence')}, the cache is of {self.B}"
            raise Misuse(f"{what}; a cache goes on with the sequences it began with")
        if self.S == 0:
            return cfg.place(B, T, positions, seg, self.n)
        positions, seg = given_place(B, T, positions, seg, cfg.axes, cfg.named)
        before = self.seg
        if seg is None and before is not None:
            if (before[:, -1] == 0).any():
                what = "the cache ends in padding"
                raise Misuse(f"{what}; say with seg which document the next tokens belong to")
            seg = np.repeat(before[:, -1:], T, 1)
        segments: Any = None
        if seg is not None:
            before = np.ones((B, self.S), int) if before is None else before
            segments = np.concatenate([before, seg], 1)
        self.check_axes(cfg, positions)
        if positions is None and segments is None:
            i = self.last(True) + np.arange(1, T + 1)
            return At(i, np.concatenate([self.j, i], -1), self.n, cfg.causal, cfg.window)
        if positions is None:
            goes_on = np.cumprod(segments[:, self.S :] == segments[:, self.S - 1 : -1], 1).astype(bool)
            onwards = self.last(goes_on[:, 0]) + 1 + np.arange(T)
            positions = np.where(goes_on, onwards, positions_in(segments)[:, self.S :])
        i, j = positions, self.j
        if i.shape[:-1] != j.shape[:-1]:
            lead = np.broadcast_shapes(i.shape[:-1], j.shape[:-1], (B,))
            i, j = np.broadcast_to(i, (*lead, T)), np.broadcast_to(j, (*lead, self.S))
        return At(i, np.concatenate([j, i], -1), self.n, cfg.causal, cfg.window, segments).checked()

    def check_axes(self, cfg: Config, positions: Any) -> None:
        """Raises Misuse where `positions` of new tokens, None where they go on, have not the axes of those
        in the cache and cannot be given them.
        """
        before, now = (0 if a is None else len(a) if a.ndim == 3 else 1 for a in (self.j, positions))
        if before != now and max(before, now) > 1 and (not cfg.text or min(before, now) > 1):
            had = f"the cache has positions of {counted(before, 'axis', 'axes')}, the next tokens have"
            use = f"with {cfg.named} give positions of as many axes throughout"
            raise Misuse(f"{had} {now or 'none'}; {use}")

    def last(self, needed: Any) -> Any:
        """Positions of the last key, [1], [B,1] or [A,B,1]. Raises Misuse where its axes differ and it is
        `needed`, bool [] or [B].
        """
        last = self.j[..., -1:]
        if last.ndim == 3 and ((last != last[:1]).any((0, 2)) & needed).any():
            what = "the cache ends at a place whose axes differ, as in an image; give the positions of the"
            then = "text after an image goes on one beyond the largest number on any axis"
            raise Misuse(f"{what} next tokens ({then})")
        return last


def cache(cfg: Config, n: int | None = None) -> Cache:
    """An empty cache for sequences up to length `n`, L unless said: the length that frequencies are made
    for.
    """
    return Cache(cfg.L if n is None else n, layers=({},) * cfg.layers)
