"""show: a picture of what an encoding does, or a gallery of all; what a public config.json says of
positions.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from peref import share, store
from peref.cli import meant, options, text, two_configs
from peref.cli.found import weights_found
from peref.cli.options import Document, Given, option
from peref.cli.progress import Progress
from peref.config import Config
from peref.encodings import HOOKS, names
from peref.errors import Misuse, counted, explained
from peref.evaluate import under
from peref.lab.effects import effects, fresh, trained_subject
from peref.lab.panels import Image
from peref.lab.responses import Subject, maps, starts_random
from peref.parameters import check
from peref.runs import open_run
from peref.settings import choose

PICTURE_KINDS = (".png", ".svg")
PROMPT = "for(i=0; i<n; i++){\n  x = f(i) + f(i-1);\n}\n"
LONGEST = 64  # bytes that an attention map can be read at
FARTHEST = 16384  # tokens that a picture is of: some are made of every pair of positions


@options.command("show")
@options.argument("name", options.ENCODINGS, metavar="[NAME]", required=False)
@options.encoding_option("--pe=NAME", "As the argument NAME: an encoding, or ./FILE.py of your own.")
@option(
    "-o --output=PATH",
    "The file to write, .png or .svg; with --all a folder.  [default: NAME.png; gallery]",
    options.FILE,
)
@option("--all every", "Draw every encoding, and write index.html with all the pictures.", bool)
@option(
    "--format kind",
    "The format of the pictures of --all.",
    click.Choice([k[1:] for k in PICTURE_KINDS]),
    default="png",
)
@option("--len L", "The length trained for.", options.SIZE, default=Config.L)
@option("--run", "Use the weights of this run, and draw its attention over a prompt.", options.RUN)
@option(
    "--layer",
    "The layer of the run to show.  [default: the first with NAME; without NAME, of each kind]",
    int,
)
@option(
    "--config public",
    "A public model's config.json: what its rotary settings mean, in words and numbers; -o draws it. "
    "Given twice: in what two models differ, and from which layer on.",
    options.FILE,
    multiple=True,
)
@option(
    "--prompt",
    "The text that the run attends over.  [default: lines of C; without tokenizer.json, the first tokens]",
)
@options.set_option
def command(given: Given) -> Document:
    """Draw what the encoding NAME does, or several in one layer (rope+alibi): frequencies, bias over
    distance, where attention or a response goes.

    With --config, say which encoding and options the config.json of a public model means, and what in it
    implementations read differently; with two of them, in what these models differ.
    """
    name, config, page = name_among(given), None, None
    if len(given.public) == 2:
        both = [(path, *meant.read_config(Path(path))) for path in given.public]
        data = two_configs.of_both(*both)
        return data, two_configs.difference_text(data)
    if given.public:
        found, cfg, missing = meant.read_config(Path(given.public[0]))
        drawn = [picture(*one) for one in meant.subjects(found, given.output)] if given.output else []
        config = meant.described(given.public[0], found, cfg, missing)
    elif given.every:
        folder = Path(given.output or "gallery")
        with given.progress(len(names()), "pictures") as bar:
            drawn = gallery(folder, given.L, given.kind, bar)
        page = str(folder / "index.html")
    else:
        what = asked_for(given, name)
        drawn = [picture(Path(given.output or f"{what[0].name}.png"), *what)]
    paths = [one["path"] for one in drawn]
    said = meant.config_lines(config, paths) if config else [page or paths[0]]
    return {"pictures": drawn, "page": page, "config": config}, said


def name_among(given: Given) -> Any:
    """The encoding that is named, if any. Raises Misuse for options that do not go together."""
    if given.name is not None and given.pe is not None:
        raise Misuse(f"NAME is {given.name} and --pe is {given.pe}; say one of them")
    name = given.pe if given.name is None else given.name
    if given.run is None and (said := given.said("layer", "prompt")):
        raise Misuse(f"{said[0]} is about a run; name it with --run")
    if given.said("kind") and not given.every:
        raise Misuse("--format is for --all; otherwise the name after -o says it, such as -o NAME.svg")
    if given.L > FARTHEST:
        raise Misuse(f"--len is {given.L}; expected at most {FARTHEST}")
    if len(given.public) > 2:
        raise Misuse(f"--config is given {len(given.public)} times; one is described, two are compared")
    named = ("name", "pe", "run", "settings")
    if given.public:
        given.refuse("--config says all of the encoding itself", *named, "every", "L")
        if len(given.public) == 2 and given.output is not None:
            raise Misuse("-o draws one model; leave it out, or give one --config")
    elif given.every:
        given.refuse("--all shows every encoding as it starts", *named)
    elif given.run is not None:
        given.refuse("--len is that of the run", "L")
    elif name and name.endswith(".json"):
        raise Misuse(f"NAME is {name}, no encoding; use: {text.command('show', '--config', name)}")
    elif name is None:
        raise Misuse("say which encoding to show, or --all, --run RUN or --config FILE")
    return name


def drawing() -> Any:
    """The module that draws, or Misuse where it cannot be had."""
    if find_spec("matplotlib") is None:
        use = share.install("[plot]")
        raise Misuse(f"pictures need matplotlib: {use}; every other command works without it")
    from peref.lab import pictures

    return pictures


Maps = Sequence[Sequence[Image]]
Others = Sequence[tuple[str, Subject]]  # behind their words


def picture(
    path: Path, subject: Subject, about: str = "", layers: Maps = (), others: Others = ()
) -> dict[str, Any]:
    """Draw one encoding, and `others` under their words, to `path`; what was drawn, as data."""
    if path.suffix not in PICTURE_KINDS:
        raise Misuse(f"-o {path}: expected a name that ends in {' or '.join(PICTURE_KINDS)}")
    pictures, e, panels = drawing(), subject.encoding, effects(subject)
    start = f"as it starts, for length {subject.cfg.L:,}"
    if starts_random(subject):
        start += ", with random parameters: --run draws those that were trained"
    symbols = pictures.in_a_line(e)
    lines = [f"{e.formula}        {e.paper}", *([symbols] if symbols else []), options_of(subject)]
    lines += [f"laws: {', '.join(sorted(e.claims)) or 'none'}", about or start]
    filled = [hook for hook in HOOKS if getattr(e, hook)]
    title = f"{subject.name}  ({', '.join(filled) or 'no hook'})"
    for words, other in others:
        panels += [replace(panel, title=f"{words}: {panel.title}") for panel in effects(other)]
        lines.append(f"{words}: {other.name}, {options_of(other)}")
    if subject.under:
        title += f", BUT THE WEIGHTS WERE TRAINED UNDER {subject.under}"
    store.write_bytes(path, pictures.drawn(path.suffix, title, lines, panels, layers))
    titles = [p.title for p in [*panels, *(image for row in layers for image in row)]]
    return {"name": subject.name, "path": str(path), "panels": titles}


def options_of(subject: Subject) -> str:
    return "options: " + (", ".join(f"{k}={short(v)}" for k, v in subject.options.items()) or "none")


def short(value: Any) -> str:
    """The value of an option; of a long list both ends."""
    long = isinstance(value, tuple) and len(value) > 8
    return f"{value[0]:g} ... {value[-1]:g} ({len(value)})" if long else str(value)


def asked_for(given: Given, name: Any) -> tuple[Subject, str, Maps, Others]:
    """An encoding as it starts; or that of a layer of a run, words about the run, its attention over a
    prompt, and the first layer of each other kind where none was chosen.
    """
    if given.run is None:
        return fresh(choose(name, given.settings), given.L), "", (), ()
    found, layer, prompt = weights_found(open_run(given.run), pe=name), given.layer, given.prompt
    chosen = [] if name is None else [one for one, _ in choose(name)["pe"]]
    if len(chosen) > 1 and chosen != [one for one, _ in found.cfg.pe]:
        raise Misuse(f"{name} is not the cycle of the run, {found.cfg.named}; say which one of them to show")
    name = chosen[0] if len(chosen) == 1 else None
    known = found.vocabulary
    if prompt is None and known.measure == "bits/token":  # whose tokens have no text
        prompt = " ".join(map(str, range(min(known.V, LONGEST // 2))))
    tokens = known.tokens(os.fsencode(PROMPT if prompt is None else prompt))
    words = None if known.of_bytes else [known.text([n]) for n in tokens]
    cfg = found.cfg
    other = None if name is None or any(name == n for n, _ in cfg.pe) else name
    cfg = under(cfg, other, given.settings)
    check(cfg, found.params)
    if not 0 < len(tokens) <= LONGEST:
        has = f"--prompt has {counted(len(tokens), known.unit)}"
        raise Misuse(f"{has}; expected 1 to {LONGEST}, so that a map can be read")
    names_of = [cfg.pe[n % len(cfg.pe)][0] for n in range(cfg.layers)]
    kinds = dict[str, int]()
    if layer is None:
        for n in range(cfg.layers if name is None else 0):
            kinds.setdefault(text.cycle([cfg.pe[n % len(cfg.pe)]]), n)
        layer = 0 if name is None else names_of.index(name)
    if not 0 <= layer < cfg.layers:
        raise Misuse(f"--layer is {layer}; the run has layers 0 to {cfg.layers - 1}")
    if name is not None and names_of[layer] != name:
        has = f"layer {layer} of the run has {names_of[layer]}, not {name}"
        raise Misuse(f"{has}; the layers are: {', '.join(names_of)}")
    own = cfg.pe == found.cfg.pe
    under_what = "" if own else "other options" if cfg.named == found.cfg.named else found.cfg.named
    subject = lambda n: replace(trained_subject(cfg, found.params, n), under=under_what)
    others = [(f"layer {n}", subject(n)) for n in kinds.values() if n != layer]
    trained = f"step {found.step:,}, trained" if found.run.record["steps"] else "as it was imported,"
    about = f"layer {layer} of {found.run.folder}, {trained} with {text.cycle(found.cfg.pe)}"
    about += f" at length {cfg.L:,}"
    return subject(layer), about, maps(cfg, found.params, tokens, words), others


def gallery(folder: Path, L: int, kind: str, bar: Progress) -> list[dict[str, Any]]:
    """A picture of every encoding in `folder`, and a page of them."""
    pictures = drawing()
    with explained(folder, "make it"):
        folder.mkdir(parents=True, exist_ok=True)
    done = []
    for name in names():
        done.append(picture(folder / f"{name}.{kind}", fresh(choose(name), L)))
        bar.add(1)
    about = f"Every encoding as it starts, for length {L:,}, by the hook that it fills."
    store.write_text(folder / "index.html", pictures.page(about, done))
    return done
