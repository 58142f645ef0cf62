"""What `show --config` says: a public config.json as a line to train with, its rotations in words, numbers
and pictures.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from peref import huggingface, porting
from peref.cli import text
from peref.config import Config
from peref.errors import Misuse, counted
from peref.hooks import softmax_scale
from peref.huggingface import Found, Rotation
from peref.lab.effects import Subject
from peref.member import said_of
from peref.porting.families import FAMILIES, NOT_HERE
from peref.tasks import TASKS

PAIRS_SHOWN = 17  # pairs of a table in text; --json has all
# of notes, in this order
NOTE_KINDS = ("contradictory", "differs", "ignored", "unknown", "beyond", "assumed")


def read_config(path: Path) -> tuple[Found, Config | None, str]:
    """What a file says of rotations, the model that it means, and what is missing where that is none."""
    public, missing = huggingface.load_json(path), ""
    kind = str(public.get("model_type"))  # it may be anything
    cfg: Config | None = None
    try:
        cfg = porting.one_or_two(public)
    except Misuse as error:
        missing = str(error)
    try:
        return huggingface.read(public), cfg, missing
    except Misuse as error:
        if cfg is None:
            if kind in FAMILIES | NOT_HERE and str(error) != missing:
                raise Misuse(f"{missing}; {error}") from None
            raise
        return Found(kind, cfg.L, cfg.layers, ()), cfg, missing


def words_of(cfg: Config) -> list[str]:
    """The arguments of `train` that mean this model, but for its sizes; of a pair on the first task."""
    if cfg.encoder:
        first = ["--task", next(iter(TASKS)), "--encoder", cfg.encoder.named]
        return [*first, *settings_said(cfg.encoder, "encoder."), *words_of(cfg.decoder)]
    line = ["--pe", cfg.named, *settings_said(cfg)]
    if cfg.R is not None:
        line += ["--set", f"rotary_dim={cfg.R}", "--set", f"layout={cfg.layout}"]
    line += [] if cfg.G is None else ["--head-width", str(cfg.D)]
    line += [] if cfg.window is None else ["--window", str(cfg.window)]
    line += ["--layers", str(len(cfg.pe))] if len(cfg.pe) > Config.layers else []
    fields = {name: getattr(cfg, name) for name in ("norm", "activation", "biases", "qk_norm", "eps", "tied")}
    fields = {name: x for name, x in fields.items() if x != getattr(Config, name)}
    fields |= ({} if cfg.qkv_bias in (cfg.biases, None) else {"qkv_bias": cfg.qkv_bias}) | cfg.unusual
    return line + [word for name, x in fields.items() for word in ("--model", f"{name}={text.shown(x)}")]


def size_words(cfg: Config) -> list[str]:
    """The arguments of `train` that are left out there; of a pair the decoder's, and no length, which is the
    task's.
    """
    if cfg.encoder:
        return size_words(cfg.decoder)[:-2]
    sizes = {"layers": cfg.layers, "width": cfg.C, "heads": cfg.H, "kv-heads": cfg.G, "ff": cfg.F}
    words = [word for name, n in sizes.items() if n is not None for word in (f"--{name}", str(n))]
    return [*words, "--model", f"V={cfg.V}", "--len", str(cfg.L)]


def settings_said(cfg: Config, of: str = "") -> Iterator[str]:
    """What --set says of its cycle; `of` stands before each name."""
    for index, (name, given) in enumerate(cfg.pe):
        before = f"{of}{index}." if len(cfg.pe) > 1 else of
        for key, value in said_of(name, given).items():
            yield from ("--set", f"{before}{key}={text.shown(value)}")


def described(path: str, found: Found, cfg: Config | None, missing: str) -> dict[str, Any]:
    """All of it as data."""
    of_all = huggingface.all_layers(found) if cfg is None else cfg
    left_out: str | None = f"all but the rotations: {missing}"
    if cfg:
        left_out = None
    if cfg and cfg.encoder and cfg.encoder.layers != cfg.decoder.layers:
        left_out = f"that the encoder has {counted(cfg.encoder.layers, 'layer')}"
    return {
        "path": path,
        "model_type": found.model_type,
        "max_position_embeddings": found.longest,
        "layers": found.layers,
        "without_positions": list(found.still),
        "train": text.command("train", *words_of(of_all)) if of_all else None,
        "sizes": " ".join(size_words(cfg)) if cfg else None,
        "left_out": left_out,
        "rotations": [rotation_data(r, alone=not of_all) for r in found.rotations],
    }


def rotation_data(r: Rotation, alone: bool) -> dict[str, Any]:
    """One rotation; where it stands `alone`, no line is for all layers, with the one that means it."""
    encoding = r.cfg.encoding(0)
    scale, made = softmax_scale(encoding, r.cfg.D), {n: huggingface.frequencies(r.cfg, n) for n in r.lengths}
    return {
        "layers": r.layers or None,
        "which": list(r.which),
        "encoding": r.name,
        "formula": encoding.formula,
        "options": dict(r.options),
        "train": text.command("train", *words_of(r.cfg)) if alone else None,
        "head_width": r.cfg.D,
        "rotary_dim": r.cfg.R,
        "layout": r.cfg.layout,
        "softmax_scale": scale,
        "softmax_scale_times": scale / r.cfg.D**-0.5,
        "unscaled": huggingface.unscaled(r.cfg).tolist(),
        "made_for": [
            {"length": n, "attention_factor": a, "frequencies": w.tolist()} for n, (w, a) in made.items()
        ],
        "notes": [note._asdict() for note in r.notes],
    }


def config_lines(data: dict[str, Any], drawn: list[str]) -> Iterator[str]:
    """The same for people."""
    longest = f"max_position_embeddings {data['max_position_embeddings']:,}"
    yield text.labelled("file", f"{data['path']}: model_type {data['model_type']}, {longest}")
    if still := data["without_positions"]:
        yield text.labelled("no positions", f"layers {', '.join(map(str, still))}")
    for r in data["rotations"]:
        yield ""
        if which := r["which"]:
            which = f", {len(which)} of {data['layers']} layers: {', '.join(map(str, which))}"
        if r["layers"]:
            yield text.labelled("layers", f"{r['layers']}{which or ''}")
        yield from rotation_lines(r)
    if data["train"]:
        yield f"\nall layers    {data['train']}"
    if data["sizes"]:
        yield f"{'left out':14}its sizes: {data['sizes']}"
    if data["left_out"]:
        yield text.labelled("left out", data["left_out"])
    yield from (text.labelled("picture", path) for path in drawn)


def rotation_lines(r: dict[str, Any]) -> Iterator[str]:
    half, R, D = r["rotary_dim"] // 2, r["rotary_dim"], r["head_width"]
    yield text.labelled("encoding", f"{r['encoding']}: {r['formula']}")
    if r["train"]:
        yield f"{'command':14}{r['train']}"
    pairs = f"n with n + {half}" if r["layout"] == "half" else "2n with 2n + 1"
    turning = f"{R} of {D} channels, {counted(half, 'pair')}, layout {r['layout']} ({pairs})"
    yield text.labelled("turns", turning)
    gains = {f"{one['attention_factor']:.9g}": one["length"] for one in r["made_for"]}
    for a, n in gains.items():
        where = f" in texts of {n:,} tokens" if len(gains) > 1 else ""
        yield text.labelled("factor", f"q and k times {a}{where}")
    times = f" times {r['softmax_scale_times']:.9g}" if r["softmax_scale_times"] != 1 else ""
    yield text.labelled("softmax", f"scale {r['softmax_scale']:.9g}, {D}^-0.5{times}")
    for note in sorted(r["notes"], key=lambda note: NOTE_KINDS.index(note["kind"])):
        yield text.labelled(note["kind"], f"{note['key']}: {note['says']}")
    yield f"\n{frequency_table(r)}"


def frequency_table(r: dict[str, Any]) -> str:
    """A table of some pairs: evenly, and where the ratio begins and ends to change."""
    plain, made = np.array(r["unscaled"]), [np.array(one["frequencies"]) for one in r["made_for"]]
    half = len(plain)
    rows = set(np.linspace(0, half - 1, min(PAIRS_SHOWN, half)).round().astype(int).tolist())
    for w in made:
        level = np.isclose(np.diff(w / plain), 0, rtol=0, atol=1e-12)
        turns = np.flatnonzero(level[1:] != level[:-1]) + 1
        rows |= set(turns.tolist()) if len(turns) < PAIRS_SHOWN else set()
    head = ["pair", "unscaled"]
    for one in r["made_for"]:
        what = f"for {one['length']:,}" if len(made) > 1 else "frequency"
        head += [what, "ratio", "tokens a turn"]
    cells = [[str(pair), f"{plain[pair]:.6e}"] for pair in sorted(rows)]
    for pair, cell in zip(sorted(rows), cells, strict=True):
        for w in (one[pair] for one in made):
            cell += [f"{w:.6e}", f"{w / plain[pair]:.6f}", text.number(2 * np.pi / w if w else None, 2)]
    left = half - len(rows)
    return text.table(head, cells) + (f"\n{counted(left, 'more pair')} with --json" if left else "")


def subjects(found: Found, output: str) -> Iterator[tuple[Path, Subject, str]]:
    """What is to be drawn for each rotation: the file, the encoding, words."""
    path = Path(output)
    if not found.rotations:
        raise Misuse(f"a {found.model_type} turns nothing that -o could draw; leave it out")
    for r in found.rotations:
        where = path if len(found.rotations) == 1 else path.with_name(f"{path.stem}-{r.layers}{path.suffix}")
        kind = f"{found.model_type}{r.layers and f', {r.layers}'}"
        about = f"{kind}: {r.cfg.R} of {r.cfg.D} channels turn, layout {r.cfg.layout}"
        # drawn for the length before scaling, and for four times that
        cfg = replace(r.cfg, L=r.options.get("original", r.cfg.L))
        yield where, Subject(r.name, cfg, cfg.encoding(0), {}, dict(cfg.pe[0][1])), about
