"""Panels as a PNG or SVG file, and a page of many. The only module that imports matplotlib (the extra
`plot`).

The same panels give the same bytes: no date, no random names, no settings of the user's.
"""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.rcsetup import cycler
from matplotlib.textpath import text_to_path
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from peref.encodings import Encoding, get, symbols_of
from peref.lab.panels import Curve, Image, Panel
from peref.page import html_page

MATPLOTLIB: Any = {
    **dict[Any, Any](matplotlib.rcParamsDefault),
    "svg.hashsalt": "peref",
    "font.size": 9.0,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
NOTE: dict[str, Any] = {"fontsize": 7.8, "color": "0.4", "va": "bottom", "linespacing": 1.25}
NOTE |= {"xycoords": "axes fraction", "textcoords": "offset points"}
TITLE, CAPTION = 16.0, 9.5  # points of the name of a picture, and of the lines over its panels
OVER: dict[str, Any] = {"fontsize": CAPTION, "color": "0.25"}
DEEPEST = 1e-12  # of a logarithmic scale, to its top
# words along a line at a height, which a curve may cross
BEHIND: dict[str, Any] = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.0}
ALONG: dict[str, Any] = {"color": "0.4", "fontsize": 8, "zorder": 4, "ha": "right", "va": "bottom"}
MAPS = "over the prompt: rows are queries, columns keys, darker is more (of a row, in square roots)"
# panels, and maps of one layer each, in a row; inches
GRID_COLUMNS, ABREAST, PANEL_WIDTH, ROW, HEAD = 3, 4, 4.6, 3.5, 0.95
GREY, MARK = "0.45", "0.85"
LIGHTEST = 0.64  # of a scale of colours: it differs from white by 3 to 1, which WCAG 2.1 (1.4.11) asks
LEGIBLE = 6.5  # points of a token beside a map, at least
# letters of a label, and labels among the curves: longer ones, and more, would hide curves
LONGEST_BESIDE, MOST_WITHIN = 24, 4
UNDER, ENTRY = 36, 0.16  # points from an axis to a legend under its words; inches of an entry there
# of curves, one after the other: the ten colours in whole lines, then dotted
DISTINCT = cycler(linestyle=["-", ":"])
DISTINCT *= cycler(color=matplotlib.color_sequences["tab10"])
DECADE = 10.0  # of a logarithmic scale, at least: else it is drawn as a plain one


def drawn(
    suffix: str,
    name: str,
    about: Sequence[str],
    panels: Sequence[Panel | Image],
    maps: Sequence[Sequence[Image]] = (),
) -> bytes:
    """The panels, and the maps of a model's layers under them, as a file of this suffix, .png or .svg."""
    columns = len(panels) if len(panels) <= GRID_COLUMNS else min(GRID_COLUMNS, -(-len(panels) // 2))
    rows = -(-len(panels) // columns)
    if max(map(len, maps), default=0) == 1:  # one of each layer: side by side
        flat = [one for row in maps for one in row]
        maps = [flat[n : n + ABREAST] for n in range(0, len(flat), ABREAST)]
    across = max(map(len, maps), default=0)
    tokens = max((len(one.ticks or ()) for row in maps for one in row), default=0)
    size = max(min(max(3.3, 11.0 / across), 5.5), 0.3 + tokens * LEGIBLE / 72) if maps else 0.0
    width = max(columns * PANEL_WIDTH, across * size)
    words = [line for text in about for line in wrapped(text, 0.97 * width)]
    title = wrapped(name, 0.97 * width, TITLE, "bold")
    named = 0.4 + 1.2 * TITLE / 72 * (len(title) - 1)
    head = HEAD / 2 - 0.4 + named + 0.18 * len(words)
    entries = max(legend_under(one) for one in panels)
    heights = [head, (ROW + ENTRY * entries) * rows, *([size * len(maps) + 0.3] if maps else [])]
    undated, out = {"Date": None} if suffix == ".svg" else {"Software": None}, io.BytesIO()
    with matplotlib.rc_context(MATPLOTLIB):  # no settings of the user
        figure = Figure(figsize=(width, sum(heights)), layout="constrained", facecolor="white")
        strips: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
        strips[0].text(0.012, 0.94, "\n".join(title), fontsize=TITLE, fontweight="bold", va="top")
        strips[0].text(0.012, 1 - named / head, "\n".join(words), va="top", linespacing=1.4, **OVER)
        axes = strips[1].subplots(rows, columns, squeeze=False).ravel()
        for n, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            curves(ax, panel) if isinstance(panel, Panel) else image(ax, panel)
            beside = panels[n - n % columns : n - n % columns + columns]
            titled(ax, panel, max(len(noted(one)) for one in beside))
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        if maps:
            strips[2].suptitle(MAPS, x=0.012, ha="left", **OVER)
            grid = strips[2].subplots(len(maps), across, squeeze=False)
            for row, images in zip(grid, maps, strict=True):
                for ax, one in zip(row, images, strict=False):
                    draw_tokens(ax, one, size)
                for ax in row[len(images) :]:
                    ax.set_axis_off()
            # maps keep their shape, and the layout has room for words beside them the second time
            figure.draw_without_rendering()
        figure.savefig(out, format=suffix[1:], dpi=130, metadata=undated)
    return out.getvalue()


def wrapped(text: str, inches: float, size: float = CAPTION, weight: str = "normal") -> list[str]:
    """The words of `text` in lines that are no wider."""
    font, lines = FontProperties(size=size, weight=weight), [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_to_path.get_text_width_height_descent(longer, font, False)[0] > 72 * inches:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def legend_under(panel: Panel | Image) -> int:
    """How many entries the legend has that stands under a panel, for elsewhere it would hide curves."""
    named = [c for c in panel.curves if c.label] if isinstance(panel, Panel) else []
    within = len(named) > MOST_WITHIN and not any(c.of for c in named)
    return len(named) if within or any(len(c.label) > LONGEST_BESIDE for c in named) else 0


def shade(curve: Curve) -> Any:
    """The colour of one of several curves alike."""
    if curve.plain or curve.of is None:
        return GREY if curve.plain else None
    return matplotlib.colormaps["plasma"](LIGHTEST * curve.of[0] / max(curve.of[1] - 1, 1))


def scales(panel: Panel) -> str:
    """The axes that are drawn on a logarithmic scale: those asked for whose numbers span a decade."""
    found = ""
    for axis in panel.log:
        values = np.concatenate([np.asarray(getattr(c, axis), float) for c in panel.curves])
        values = values[np.isfinite(values) & (values > 0)]
        found += axis if values.size and values.max() >= DECADE * values.min() else ""
    return found


def counts(panel: Panel) -> bool:
    """Whether its y are whole numbers."""
    return all(np.issubdtype(np.asarray(c.y).dtype, np.integer) for c in panel.curves)


def curves(ax: Any, panel: Panel) -> None:
    log = scales(panel)
    ax.set_prop_cycle(DISTINCT)
    for curve in panel.curves:
        style = {"color": shade(curve), "label": curve.label or None, "zorder": 3 if curve.plain else 2}
        style |= {"lw": 1.0 if curve.plain or curve.of else 1.4}
        style |= {"ls": "--"} if curve.plain else {"marker": "o", "ms": 2.8} if curve.points else {}
        style |= {"ls": "-"} if curve.of else {}
        style |= {"drawstyle": "steps-mid"} if curve.steps else {}
        style |= {"ls": "", "marker": ".", "color": ax.lines[-1].get_color()} if curve.dots else {}
        (line,) = ax.plot(curve.x, np.where(curve.y > 0, curve.y, np.nan) if "y" in log else curve.y, **style)
        if curve.spread is not None:
            low, high = curve.y - curve.spread, curve.y + curve.spread
            ax.fill_between(curve.x, low, high, color=line.get_color(), alpha=0.12, lw=0)
    for axis, where, words in panel.marks:
        (ax.axvline if axis == "x" else ax.axhline)(where, color=MARK, lw=0.8, zorder=0)
        if words:
            ax.text(0.99, where, words, transform=ax.get_yaxis_transform(), bbox=BEHIND, **ALONG)
    ax.set(xlabel=panel.x, ylabel=panel.y, **{f"{axis}scale": "log" for axis in log})
    if "y" in log:
        most = max(np.nanmax(c.y) for c in panel.curves)
        ax.set_ylim(bottom=max(ax.get_ylim()[0], DEEPEST * most), top=min(ax.get_ylim()[1], 2 * most))
    elif "y" in panel.log:
        ax.set_ylim(bottom=0)
    if "y" not in log and counts(panel):
        ax.yaxis.set_major_locator(whole_numbers())
    if "x" in log:
        low, high = ax.get_xlim()
        if high < DECADE**2 * low:
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
    else:
        ax.xaxis.set_major_locator(whole_numbers())
    if any(c.label for c in panel.curves):
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.0}
        below = ax.transAxes + ScaledTranslation(0.0, -UNDER / 72, ax.figure.dpi_scale_trans)
        under = beside | {"bbox_to_anchor": (0.0, 0.0), "bbox_transform": below}
        beside = beside if any(c.of for c in panel.curves) else {}
        beside = under if legend_under(panel) else beside
        ax.legend(fontsize=7.5, framealpha=0.75, edgecolor="none", handlelength=1.4, **beside)


def noted(panel: Panel | Image) -> list[str]:
    """The lines of its note."""
    return wrap(panel.note, 64)


def titled(ax: Any, panel: Panel | Image, lines: int) -> None:
    """The title, above so many lines of notes: as many as its neighbours need."""
    ax.set_title(panel.title, loc="left", pad=5 + 10.5 * lines)
    above = (0, 4 + 10.5 * (lines - len(noted(panel))))
    ax.annotate("\n".join(noted(panel)), (0, 1), above, **NOTE)


def image(ax: Any, panel: Image) -> None:
    most = float(np.nanmax(np.abs(panel.values))) if panel.top is None else panel.top
    colours: dict[str, Any] = {"cmap": "magma_r", "norm": PowerNorm(0.5, 0.0, most)}
    if panel.centred:
        colours = {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    shown = ax.imshow(panel.values, aspect="auto", interpolation="nearest", **colours)
    ax.figure.colorbar(shown, ax=ax, shrink=0.9, pad=0.02)
    ax.set(xlabel=panel.x, ylabel=panel.y)
    for axis in (ax.xaxis, ax.yaxis):  # tokens, channels, heads, pairs
        axis.set_major_locator(whole_numbers())


def whole_numbers() -> MaxNLocator:
    return MaxNLocator(integer=True, steps=[1, 2, 5, 10])


def draw_tokens(ax: Any, panel: Image, size: float) -> None:
    """An attention map, `size` inches wide, with its tokens along both sides."""
    words = panel.ticks or ()
    font = min(8.0, 72 * (size - 0.3) / max(len(words), 1))
    ax.imshow(panel.values, interpolation="nearest", cmap="magma_r", norm=PowerNorm(0.5, 0.0, panel.top))
    ax.set_title(panel.title, loc="left", fontsize=9)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(len(words)), words, fontsize=font, family="monospace")
        axis.set_tick_params(length=0, pad=1)


def page(about: str, pictures: Sequence[dict[str, Any]]) -> str:
    """One HTML page of pictures by the hooks of their encodings, each with its formula and paper as text; of
    a picture `name`, `path` and the titles of its `panels`.
    """
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in pictures:
        kinds.setdefault(get(one["name"]).hook or "no hook", []).append(one)
    link = lambda one: f'<a href="#{escape(one["name"])}">{escape(one["name"])}</a>'
    index = [f"<nav><b>{escape(kind)}</b>: {' '.join(map(link, of))}</nav>" for kind, of in kinds.items()]
    body = [part for kind, of in kinds.items() for part in (f"<h2>{escape(kind)}</h2>", *map(section_of, of))]
    top = ["<h1>What each encoding does</h1>", f"<p>{escape(about)}</p>"]
    return html_page("peref: every encoding", "\n".join([*top, *index, *body]))


def in_a_line(encoding: Encoding) -> str:
    """The symbols of its formula."""
    return "; ".join(f"{name}: {words}" for name, words in symbols_of(encoding).items())


def section_of(one: dict[str, Any]) -> str:
    """A picture of the page, with the words that stand in it."""
    e, name, file = get(one["name"]), escape(one["name"]), escape(Path(one["path"]).name)
    paper = escape(e.paper)
    if paper.startswith("arXiv:"):
        paper = f'<a href="https://arxiv.org/abs/{paper.removeprefix("arXiv:")}">{paper}</a>'
    alt = escape(f"Plots of {one['name']}: {'; '.join(one['panels'])}.")
    return (
        f'<section id="{name}"><h3>{name}</h3>\n'
        f"<p><code>{escape(e.formula)}</code> &nbsp; {paper}<br>{escape(in_a_line(e))}</p>\n"
        f'<img src="{file}" alt="{alt}" loading="lazy"></section>'
    )
