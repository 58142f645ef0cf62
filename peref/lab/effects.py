"""What an encoding does, by the hook that it fills and never by its name: what shows of positions alone.
responses.py has what needs content.

embed     the table, and how alike the vectors of two positions are
rotate    frequencies and wavelengths beside the ladder base^(-2n/R), gains, and how the score of a key equal
          to the query falls
bias      the bias over distance, the edges of its buckets where there are any, and the attention it leaves
          where all contents are equal
"""

from dataclasses import replace
from typing import Any

import numpy as np

from peref import hooks
from peref.combination import inside
from peref.config import Config
from peref.encodings import HOOKS, get
from peref.errors import Misuse, in_runs
from peref.lab import responses
from peref.lab.panels import DISTANCE, PAIR, Curve, Image, Panel, numbered
from peref.lab.responses import Subject
from peref.member import encodings_of
from peref.model import PLAIN
from peref.parameters import of_encoding
from peref.rng import generator

# else those of Config
HOOK_SIZES: dict[str, dict[str, int]] = {"rotate": {"C": 128, "H": 1}, "bias": {"C": 256, "H": 8}}
LONGER = 4  # times L: where frequencies that depend on the length are drawn a second time
TABLE_POSITIONS = 128  # positions in the picture of a table
SPAN = 8192  # positions at most that rotations are drawn over


def fresh(pe: dict[str, Any], L: int) -> Subject:
    """The member with parameters as they start, in a model of a size that shows it; `pe` as
    settings.choose gives it.
    """
    if len(pe["pe"]) > 1:
        raise Misuse(f"{','.join(name for name, _ in pe['pe'])} is a cycle; show one of its members")
    sizes: dict[str, int] = {}
    for one in encodings_of(pe["pe"][0][0]):
        sizes |= HOOK_SIZES.get(get(one).hook, {})
    cfg = Config(**{**sizes, "L": L, **pe})
    p = {n: np.asarray(a, np.float64) for n, a in cfg.encoding(0).init(generator(0, "pe", 0)).items()}
    return Subject(cfg.named, cfg, cfg.encoding(0), p, dict(cfg.pe[0][1]))


def trained_subject(cfg: Config, params: dict[str, Any], layer: int) -> Subject:
    """The encoding of a layer of a model with these parameters."""
    p = {n: np.asarray(a, np.float64) for n, a in of_encoding(cfg, params, layer).items()}
    name, chosen = cfg.pe[layer % len(cfg.pe)]
    return Subject(name, cfg, cfg.encoding(layer), p, dict(chosen), True)


def effects(s: Subject) -> list[Panel | Image]:
    """The panels of an encoding; of several in one layer those of each, and the attention of all."""
    if len(names := encodings_of(s.name)) > 1:
        own = ((name, panel) for name in names for panel in effects(one_of_several(s, name)))
        each = [replace(panel, title=f"{name}: {panel.title}") for name, panel in own]
        return each + ([] if s.encoding.mix else responses.attend_panels(s))
    kinds = {"embed": embed_panels, "rotate": rotate_panels, "bias": bias_panels}
    kinds |= {"score": responses.score_panels, "mix": responses.mix_panels}
    hook = get(s.name).hook
    if hook in ("score", "attend") and (found := responses.start_panels(s)):
        # with features its weights go by what tokens say, which equal contents hide
        return [*(responses.attend_panels(s)[:1] if s.encoding.features else []), *found]
    return kinds.get(hook, responses.attend_panels)(s)


def one_of_several(s: Subject, name: str) -> Subject:
    """One of several encodings in a layer, which leaves the hooks of the others empty; a score may ask for
    the bias beside it, so that stays.
    """
    hook = get(name).hook
    kept = {hook, "bias"} if hook == "score" else {hook}
    mine = {n: a for n, a in s.p.items() if n.startswith(f"{name}.")}
    p = mine if hook in ("embed", "rotate", "bias") else s.p  # the others are handed features of all
    empty: dict[str, Any] = dict.fromkeys(set(HOOKS) - kept)
    return replace(s, name=name, encoding=replace(s.encoding, **empty), p=p, options=inside(name, s.options))


# ---------------------------------------------------------------- embed


def embed_panels(s: Subject) -> list[Panel | Image]:
    L = s.cfg.L
    of = lambda p: np.asarray(hooks.position_rows(s.encoding, p, np.arange(L)))
    if not s.trained and (found := entries_read(of, s.p)) is not None:
        return row_panels(found[:, 0], "position")
    e = of(s.p)
    unit = e / np.maximum(np.linalg.norm(e, axis=1, keepdims=True), np.finfo(float).tiny)
    alike = unit @ unit.T
    d = np.arange(L // 2 + 1)
    diagonals = [np.diagonal(alike, -int(n)) for n in d]
    mean, low, high = (np.array([*map(f, diagonals)]) for f in (np.mean, np.min, np.max))
    curves = [Curve(d, mean, "mean over positions")]
    if not np.allclose(low, high, rtol=0, atol=1e-9):
        curves += [Curve(d, low, "least and most", plain=True), Curve(d, high, plain=True)]
    return [
        Image("the vector of each position", "channel", "position", e[:TABLE_POSITIONS], centred=True),
        Panel("how alike two positions are", DISTANCE, "cosine of the angle between their vectors", curves),
    ]


# ---------------------------------------------------------------- rotate


def rotate_panels(s: Subject) -> list[Panel | Image]:
    L, half = s.cfg.L, s.cfg.R // 2
    base = s.options.get("base", 10000.0)
    ladder = base ** (-2 * np.arange(half) / s.cfg.R)
    lengths = (L, LONGER * L) if "any_length" in s.encoding.claims else (L,)
    turned = {n: hooks.rotation(s.encoding, s.p, np.arange(min(L, SPAN)), n) for n in lengths}
    angles = {n: of_one_head(angle) for n, (angle, *_) in turned.items()}
    if len(angles) > 1 and np.array_equal(angles[L], angles[LONGER * L]):
        del angles[LONGER * L]
    if all(map(straight, angles.values())):
        found = turning(angles, ladder, base, L)
    else:  # they are no multiple of the position
        cosine, title = np.cos(angles[L][:TABLE_POSITIONS]).T, "cosine of the angle of each pair"
        found = [Image(title, "position", PAIR, cosine, centred=True, top=1.0)]
    if s.encoding.axes and s.encoding.axes > 1:
        found.append(by_axis(s))
    every = lambda gain, angle: np.broadcast_to(1.0 if gain is None else np.asarray(gain), angle.shape)
    # of the last query times that of the key d tokens before it, for each pair, [L,R/2]
    gains = {n: every(turned[n][1], a)[-1:] * every(turned[n][2], a)[::-1] for n, a in angles.items()}
    varied = [curves for curves in map(by_distance, gains.values()) if curves]
    if varied:
        found.append(Panel("gain in the score", DISTANCE, "gain of query times gain of key", varied[0]))
    return [*found, equal_content(angles, ladder, gains)]


def of_one_head(angle: Any) -> Any:
    """Angles [...,L,R/2], those of the first head where each turns by its own."""
    angle = np.asarray(angle)
    return angle[0, 0] if angle.ndim == 4 else angle


def straight(angle: Any) -> bool:
    """Whether the angle of every pair grows evenly with the position."""
    i = np.arange(len(angle))[:, None]
    return bool(np.allclose(angle, angle[:1] + i * (angle[1:2] - angle[:1]), rtol=1e-9, atol=1e-9))


def labels(angles: dict[int, Any]) -> dict[int, str]:
    """What a curve is called that was made for each of these lengths."""
    return {n: f"made for length {n:,}" if len(angles) > 1 else "of this encoding" for n in angles}


def turning(angles: dict[int, Any], ladder: Any, base: float, L: int) -> list[Panel | Image]:
    """Frequencies, wavelengths and, where any differs, their ratio to the ladder."""
    w, pair = {n: angle[1] - angle[0] for n, angle in angles.items()}, np.arange(len(ladder))
    scaled = any(not np.allclose(one, ladder, rtol=1e-9, atol=0) for one in w.values())
    label = labels(w) if scaled else {L: f"base^(-2n/R), base {base:,.0f}"}
    still = sum(one == 0 for one in w[L])
    note = f"{still} of {len(pair)} pairs {'does' if still == 1 else 'do'} not turn"
    how: dict[str, Any] = {"log": "y", "note": note if still else ""}
    unscaled = [Curve(pair, ladder, f"unscaled, base {base:,.0f}", plain=True)] * scaled
    moving = {n: np.where(one == 0, np.nan, np.abs(one)) for n, one in w.items()}
    turn = unscaled + [Curve(pair, one, label[n], points=True) for n, one in moving.items()]
    wave = [replace(curve, y=2 * np.pi / curve.y) for curve in turn]
    trained = [("y", L, f"length trained for, {L:,}")]
    found: list[Panel | Image] = [
        Panel("frequencies", PAIR, "radians per token", turn, **how),
        Panel("wavelengths", PAIR, "tokens per turn", wave, marks=trained, **how),
    ]
    if scaled:
        ratios = [Curve(pair, one / ladder, label[n], points=True) for n, one in w.items()]
        found.append(Panel("frequency, scaled to unscaled", PAIR, "ratio", ratios, marks=[("y", 1, "")]))
    return found


def by_axis(s: Subject) -> Panel:
    """Radians per step along each axis alone."""
    A, rows = s.encoding.axes or 1, []
    for i in np.eye(A)[:, :, None, None] * [0, 1]:  # two positions, a step along one axis apart
        w = np.abs(np.diff(of_one_head(hooks.rotation(s.encoding, s.p, i, s.cfg.L)[0]), axis=-2)).ravel()
        rows.append(np.where(w > 0, w, np.nan))
    curves, note = numbered(np.arange(s.cfg.R // 2), rows, "axis", points=True), f"positions of {A} axes"
    return Panel("which axis turns a pair", PAIR, "radians per step", curves, log="y", note=note)


def by_distance(gains: Any) -> list[Curve]:
    """Curves of some pairs, none where all pairs have one gain at every distance."""
    L, half = gains.shape
    some = [] if (gains == gains[0, 0]).all() else sorted({round(n) for n in np.linspace(0, half - 1, 6)})
    return [Curve(np.arange(L), gains[:, n], f"pair {n}", of=(k, len(some))) for k, n in enumerate(some)]


def equal_content(angles: dict[int, Any], ladder: Any, gains: dict[int, Any]) -> Panel:
    """The mean over random vectors u of the score of query u and key u, the key d tokens back."""
    L = len(next(iter(angles.values())))
    d, score = np.arange(L), lambda angle, g: (np.cos(angle[-1] - angle[::-1]) * g).mean(1)
    label = labels(angles)
    curves = [Curve(d, score(angle, gains[n]), label[n]) for n, angle in angles.items()]
    plain = score(d[:, None] * ladder, 1.0)
    if not any(np.allclose(plain, curve.y, rtol=0, atol=1e-9) for curve in curves):
        curves.insert(0, Curve(d, plain, "ladder base^(-2n/R), no gain", plain=True))
    everywhere = dict.fromkeys(f"{g[0, 0]:.4f}" for g in gains.values() if not by_distance(g))
    note = f"; gain of q times gain of k {', '.join(everywhere)}" if set(everywhere) - {"1.0000"} else ""
    title, y = "score of a key equal to the query", "share of the score without a turn"
    return Panel(title, DISTANCE, y, curves, marks=[("y", 0, "")], note="mean over random contents" + note)


# ---------------------------------------------------------------- tables


def entries_read(of: Any, p: Any) -> Any:
    """Which entry of a learned table each number of of(p) is, None where they are no entries: with the table
    replaced by 0, 1, 2, ... and then by their squares, the numbers are these.
    """
    if len(p) != 1:
        return None
    ((name, table),) = p.items()
    n = np.arange(table.size, dtype=np.float64).reshape(table.shape)
    once, twice = of({name: n}), of({name: n * n})
    integral = np.isfinite(once).all() and (once == np.round(once)).all() and (twice == once * once).all()
    return once if integral and len(np.unique(once)) > 1 else None


def row_panels(entries: Any, what: str) -> list[Panel | Image]:
    """Of a learned table, whose numbers mean nothing before training: the row that each place reads."""
    rows = np.unique(entries, return_inverse=True)[1].ravel()
    where, shared = np.arange(len(rows)), np.bincount(rows)
    first = [int(n) for n in np.flatnonzero(np.diff(rows)) + 1]
    few = len(shared) < len(rows) // 2
    row, note = "row, counted from the first that is read", "are learned: --run draws those of a run"
    curve, counts = Curve(where, rows, steps=True), Curve(np.arange(len(shared)), shared, points=True)
    title, y = f"how many {what}s share a row", f"{what}s up to {len(rows) - 1:,}"
    log = {"log": "x", **bucket_marks(first)} if few else {}
    return [
        Panel(f"row of the learned table over {what}", f"{what} (tokens)", row, [curve], **log),
        Panel(title, row, y, [counts], log="y", note=f"the numbers in the table {note}"),
    ]


def bucket_marks(first: list[int]) -> dict[str, Any]:
    """Marks where buckets begin, and words about them."""
    note = f"{len(first) + 1} buckets, the later ones starting at {in_runs(first, len(first))}"
    return {"marks": [("x", float(n), "") for n in first], "note": note}


# ---------------------------------------------------------------- bias


def bias_panels(s: Subject) -> list[Panel | Image]:
    d = np.arange(2 * s.cfg.L if "any_length" in s.encoding.claims else s.cfg.L)
    of = lambda p: np.asarray(hooks.distance_table(PLAIN, s.encoding, p, d), np.float64)
    if not s.trained and (found := entries_read(of, s.p)) is not None:
        return row_panels(found[0], "distance")
    if drawn_anew := responses.start_panels(s):
        return drawn_anew
    table = of(s.p)
    seen = np.where(np.isfinite(table), table, 0)  # -inf where a head does not look
    first = edges(seen)
    reach = d[: first[-1] * 5 // 4 + 2] if first else d
    weight = np.exp(table - table.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    curves = lambda rows: numbered(reach, rows[:, reach], steps=bool(first))
    title, about = "bias over distance", bucket_marks(first) if first else {}
    drawn: Panel | Image = Panel(title, DISTANCE, "added to the logit", curves(table), **about)
    if rough(seen) and not first:
        drawn = Image(title, DISTANCE, "head", table, centred=True, **about)
    equal, keys = "attention where all contents are equal", f"weight among {len(d):,} keys"
    return [drawn, Panel(equal, DISTANCE, keys, curves(weight), log="y")]


def rough(table: Any) -> bool:
    """Whether neighbours differ as much as any two entries: curves would only cover one another."""
    return bool(np.abs(np.diff(table, axis=1)).mean() > 0.5 * table.std(1).mean() > 0)


def edges(table: Any) -> list[int]:
    """First distances of the buckets after the first: where a table that mostly stands still changes.
    Empty where it has no buckets.
    """
    changes = np.flatnonzero((np.diff(table, axis=1) != 0).any(0)) + 1
    return changes.tolist() if 0 < len(changes) < table.shape[1] // 2 else []
