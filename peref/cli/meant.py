"""What `show --config` says: the rotations of a public config.json in words, numbers and pictures."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from peref import huggingface
from peref.cli import text
from peref.errors import counted
from peref.hooks import softmax_scale
from peref.huggingface import Found, Rotation
from peref.lab.effects import Subject

PAIRS_SHOWN = 17  # pairs of a table in text; --json has all
NOTE_KINDS = (
    "contradictory",
    "differs",
    "ignored",
    "unknown",
    "beyond",
    "assumed",
)  # of notes, in this order


def read_config(path: Path) -> Found:
    return huggingface.read(huggingface.load_json(path))


def described(path: str, found: Found) -> dict[str, Any]:
    """All of it as data."""
    whole = huggingface.cycle(found)
    return {
        "path": path,
        "model_type": found.model_type,
        "max_position_embeddings": found.longest,
        "layers": found.layers,
        "without_positions": list(found.still),
        "train": text.command("train", *whole) if whole else None,
        "rotations": [rotation_data(r) for r in found.rotations],
    }


def rotation_data(r: Rotation) -> dict[str, Any]:
    encoding, plain = r.cfg.encoding(0), huggingface.unscaled(r.cfg)
    made = {n: huggingface.frequencies(r.cfg, n) for n in r.lengths}
    return {
        "layers": r.layers or None,
        "which": list(r.which),
        "encoding": r.name,
        "formula": encoding.formula,
        "options": dict(r.options),
        "train": text.command("train", *huggingface.words(r)),
        "head_width": r.cfg.D,
        "rotary_dim": r.cfg.R,
        "layout": r.cfg.layout,
        "softmax_scale": softmax_scale(encoding, r.cfg.D),
        "softmax_scale_times": softmax_scale(encoding, r.cfg.D) / r.cfg.D**-0.5,
        "unscaled": plain.tolist(),
        "made_for": [
            {"length": n, "attention_factor": a, "frequencies": w.tolist()} for n, (w, a) in made.items()
        ],
        "notes": [note._asdict() for note in r.notes],
    }


def say(data: dict[str, Any], drawn: list[str]) -> None:
    """The same for people."""
    text.print_labelled(
        "file",
        f"{data['path']}: model_type {data['model_type']}, max_position_embeddings "
        f"{data['max_position_embeddings']:,}",
    )
    if data["without_positions"]:
        text.print_labelled("no positions", f"layers {', '.join(map(str, data['without_positions']))}")
    for r in data["rotations"]:
        print()
        if r["layers"]:
            which = (
                f", {len(r['which'])} of {data['layers']} layers: {', '.join(map(str, r['which']))}"
                if r["which"]
                else ""
            )
            text.print_labelled("layers", r["layers"] + which)
        told(r)
    if data["train"]:
        print(f"\nall layers    {data['train']}")
    for path in drawn:
        text.print_labelled("picture", path)


def told(r: dict[str, Any]) -> None:
    """One rotation."""
    half, R = r["rotary_dim"] // 2, r["rotary_dim"]
    text.print_labelled("encoding", f"{r['encoding']}: {r['formula']}")
    print(f"{'command':14}{r['train']}")
    pairs = f"n with n + {half}" if r["layout"] == "half" else "2n with 2n + 1"
    text.print_labelled(
        "turns",
        f"{R} of {r['head_width']} channels, {counted(half, 'pair')}, layout {r['layout']} ({pairs})",
    )
    gains = {f"{one['attention_factor']:.9g}": one["length"] for one in r["made_for"]}
    for a, n in gains.items():
        text.print_labelled(
            "factor", f"q and k times {a}" + (f" in texts of {n:,} tokens" if len(gains) > 1 else "")
        )
    times = r["softmax_scale_times"]
    text.print_labelled(
        "softmax",
        f"scale {r['softmax_scale']:.9g}, {r['head_width']}^-0.5"
        + (f" times {times:.9g}" if times != 1 else ""),
    )
    for note in sorted(r["notes"], key=lambda note: NOTE_KINDS.index(note["kind"])):
        text.print_labelled(note["kind"].ljust(text.LABEL), f"{note['key']}: {note['says']}")
    print()
    print(frequency_table(r))


def frequency_table(r: dict[str, Any]) -> str:
    """A table of some pairs: evenly, and where the ratio begins and ends to change."""
    plain, made = (
        np.array(r["unscaled"]),
        [(one["length"], np.array(one["frequencies"])) for one in r["made_for"]],
    )
    half = len(plain)
    rows = set(np.linspace(0, half - 1, min(PAIRS_SHOWN, half)).round().astype(int).tolist())
    for _, w in made:
        level = np.isclose(np.diff(w / plain), 0, rtol=0, atol=1e-12)
        turns = np.flatnonzero(level[1:] != level[:-1]) + 1
        rows |= set(turns.tolist()) if len(turns) < PAIRS_SHOWN else set()
    head = ["pair", "unscaled"]
    for n, _ in made:
        head += [f"for {n:,}" if len(made) > 1 else "frequency", "ratio", "tokens a turn"]
    cells = []
    for pair in sorted(rows):
        cell = [str(pair), f"{plain[pair]:.6e}"]
        for _, w in made:
            cell += [
                f"{w[pair]:.6e}",
                f"{w[pair] / plain[pair]:.6f}",
                text.number(2 * np.pi / w[pair] if w[pair] else None, 2),
            ]
        cells.append(cell)
    left = half - len(rows)
    return text.table(head, cells) + (f"\n{counted(left, 'more pair')} with --json" if left else "")


def subjects(found: Found, output: str) -> Iterator[tuple[Path, Subject, str]]:
    """What is to be drawn for each rotation: the file, the encoding, words."""
    path = Path(output)
    for r in found.rotations:
        where = path if len(found.rotations) == 1 else path.with_name(f"{path.stem}-{r.layers}{path.suffix}")
        about = (
            f"{found.model_type}{', ' + r.layers if r.layers else ''}: {r.cfg.R} of {r.cfg.D} channels turn, "
            f"layout {r.cfg.layout}"
        )
        # drawn for the length before scaling, and for four times that
        cfg = replace(r.cfg, L=r.options.get("original", r.cfg.L))
        yield where, Subject(r.name, cfg, cfg.encoding(0), {}, dict(cfg.pe[0][1])), about
